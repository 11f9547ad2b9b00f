//! A fuzzer without coverage feedback: mutates a target's corpus for a bounded
//! time and calls the target. It is built with the workspace, so that `make test`
//! runs every target without a second build; libFuzzer takes the same targets.
//!
//! ```text
//! mutate TARGET SECONDS SEED CORPUS-FOLDER ARTIFACT-FOLDER
//! ```
//!
//! Deterministic for a seed except for where the time ends. An input that
//! panics, or takes longer than ten seconds, is written to the artifact folder
//! before the process ends with status 1.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// An input that takes longer is reported like a panic.
const SLOW: Duration = Duration::from_secs(10);
/// Longest input that mutation grows, in bytes.
const MAX_LEN: usize = 64 << 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(line) => {
            let _ = writeln!(io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(line) => {
            let _ = writeln!(io::stderr(), "{line}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<String, String> {
    let [name, seconds, seed, corpus, artifacts] = args else {
        return Err("usage: mutate TARGET SECONDS SEED CORPUS-FOLDER ARTIFACT-FOLDER".to_owned());
    };
    let target = weir_fuzz::target(name).ok_or_else(|| format!("no target {name}"))?;
    let seconds: u64 = seconds
        .parse()
        .map_err(|e| format!("SECONDS {seconds}: {e}"))?;
    let seed: u64 = seed.parse().map_err(|e| format!("SEED {seed}: {e}"))?;
    let seeds = read_corpus(Path::new(corpus))?;

    let attempt = |input: &[u8]| -> Result<(), String> {
        let start = Instant::now();
        let panicked = catch_unwind(AssertUnwindSafe(|| target(input))).is_err();
        let slow = start.elapsed() > SLOW;
        if !panicked && !slow {
            return Ok(());
        }
        let kept = keep(
            Path::new(artifacts),
            input,
            if panicked { "crash" } else { "slow" },
        )?;
        let what = if panicked {
            "panicked"
        } else {
            "took over 10 s"
        };
        Err(format!("{name} {what}; the input is {kept}"))
    };

    for input in &seeds {
        attempt(input)?;
    }
    let mut random = Random(seed);
    let mut runs = seeds.len() as u64;
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        attempt(&mutated(&seeds, &mut random))?;
        runs += 1;
    }
    Ok(format!(
        "{name}: {runs} inputs in {seconds} s from {} seeds, without coverage",
        seeds.len()
    ))
}

/// The files of a folder in the order of their names, so that a seed repeats a run.
fn read_corpus(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let complain = |e: io::Error| format!("{}: {e}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(complain)? {
        let path = entry.map_err(complain)?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths
        .iter()
        .map(std::fs::read)
        .collect::<Result<_, _>>()
        .map_err(complain)?;
    if seeds.is_empty() {
        return Err(format!("{}: an empty corpus", folder.display()));
    }
    Ok(seeds)
}

fn keep(folder: &Path, input: &[u8], kind: &str) -> Result<String, String> {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = folder.join(format!("{kind}-{:016x}", hasher.finish()));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, input))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path.display().to_string())
}

/// A seed with one to eight random edits.
fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(8) {
        edit(&mut input, seeds, random);
    }
    input.truncate(MAX_LEN);
    input
}

fn edit(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    /// Values at the borders of fields and of counters.
    const ODD: [u64; 10] = [
        0,
        1,
        2,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        u64::MAX,
    ];

    if input.is_empty() {
        input.push(random.next() as u8);
        return;
    }
    let at = random.below(input.len());
    let len = 1 + random.below((input.len() - at).min(64));
    match random.below(9) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.next() as u8,
        2 => {
            input[at] = input[at]
                .wrapping_add(random.below(71) as u8)
                .wrapping_sub(35)
        }
        3 => {
            let value = ODD[random.below(ODD.len())];
            let width = [1, 2, 4, 8][random.below(4)].min(input.len() - at);
            let bytes = if random.below(2) == 0 {
                value.to_le_bytes()
            } else {
                value.swap_bytes().to_le_bytes()
            };
            input[at..at + width].copy_from_slice(&bytes[..width]);
        }
        4 => drop(input.drain(at..at + len)),
        5 => input.truncate(at),
        6 => {
            let block = input[at..at + len].to_vec();
            let to = random.below(input.len());
            input.splice(to..to, block);
        }
        7 => {
            let block: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            input.splice(at..at, block);
        }
        _ => {
            let other = &seeds[random.below(seeds.len())];
            if !other.is_empty() {
                let from = random.below(other.len());
                let to = from + 1 + random.below((other.len() - from).min(256));
                input.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
}

/// splitmix64: small, good enough, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number under `limit`, which is not 0; the bias is of no importance here.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
