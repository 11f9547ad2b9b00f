//! `weir bench limits`: what memory and calls cost on this machine, which no program can do without. docs/design/costs.md compares other figures with them.
//!
//! Each figure is ns of one operation: a program of bpf/baselines/limits.c does it many times in a test run, and the time of the loop without
//! it is subtracted. All programs take turns in every round.

use weir_kernel::{KernelObject, LoadedProgram, TestCtx};

use super::measure::Samples;
use super::report::Figure;
use super::rules::Random;
use super::testrun::load_baseline;
use super::{Bench, BenchOptions, Outcome, Scale};
use crate::LabError;

/// Operations of a run, `STEPS` of the C file.
const STEPS: f64 = 256.0;
/// Tail calls of a run, `TAILS` of the C file.
const TAILS: f64 = 32.0;
/// Test runs in a round.
const RUNS: usize = 64;
/// Bytes of a line of the chain.
const LINE: usize = 64;
/// KiB of memory that loads walk through: within the first cache, the second, the third, and behind all.
const MEMORY: [usize; 5] = [16, 256, 4 << 10, 64 << 10, 256 << 10];
const ENTRIES: [usize; 3] = [64, 1 << 16, 1 << 20];

/// Measures what memory and calls cost, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out.
pub fn limits(
    options: &BenchOptions<'_>,
    out: &mut dyn std::io::Write,
) -> Result<Outcome, LabError> {
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("limits", options.quick),
        out,
    };
    let mut variants = variants(&mut bench)?;
    let mut run_alone = Variant::new("testrun", load_baseline("harness", &[], &[])?, 1.0);
    let mut loop_alone = Variant::new("loop", load(&[], "limits_loop", &[])?, STEPS);
    for round in 0..bench.scale.rounds {
        bench.progress(&format!("limits, round {}", round + 1))?;
        run_alone.measure()?;
        loop_alone.measure()?;
        for variant in &mut variants {
            variant.measure()?;
        }
    }
    bench.figure(Figure::new("testrun", "ns", run_alone.ns.clone()));
    for variant in variants {
        let floor = match variant.steps {
            STEPS => &loop_alone.ns,
            // The test run is within the first call.
            _ => &run_alone.ns,
        };
        let net = variant.ns.minus(floor).0;
        let each = net.into_iter().map(|ns| ns / variant.steps).collect();
        bench.figure(Figure::new(variant.name, "ns", Samples(each)));
    }
    bench.progress("")?;
    Ok(bench.outcome)
}

/// One operation.
struct Variant {
    name: String,
    program: LoadedProgram,
    /// Operations of a run.
    steps: f64,
    /// ns of a run.
    ns: Samples,
}

impl Variant {
    fn new(name: impl Into<String>, program: LoadedProgram, steps: f64) -> Variant {
        Variant {
            name: name.into(),
            program,
            steps,
            ns: Samples::default(),
        }
    }

    /// One round: the mean of the runs that no interrupt fell into.
    fn measure(&mut self) -> Result<(), LabError> {
        let mut runs = Samples::default();
        let mut out = Vec::new();
        for _ in 0..RUNS {
            let run = self
                .program
                .test_run(&[0; 64], &mut out, TestCtx::default())?;
            runs.push(run.duration.as_nanos() as f64);
        }
        self.ns.push(runs.trimmed_mean());
        Ok(())
    }
}

fn variants(bench: &mut Bench<'_>) -> Result<Vec<Variant>, LabError> {
    let mut all = Vec::new();
    for kib in MEMORY {
        bench.progress(&format!("limits: {kib} KiB of memory"))?;
        let program = chain((kib << 10) / LINE)?;
        all.push(Variant::new(format!("memory.{kib}"), program, STEPS));
    }
    let plain = [
        ("lookup.percpu-array", "limits_percpu"),
        ("atomic", "limits_atomic"),
        ("call", "limits_call"),
        ("helper", "limits_helper"),
        ("clock", "limits_clock"),
    ];
    for (name, program) in plain {
        all.push(Variant::new(name, load(&[], program, &[])?, STEPS));
    }
    for entries in ENTRIES {
        bench.progress(&format!("limits: {entries} entries"))?;
        let name = format!("lookup.hash.{entries}");
        all.push(Variant::new(name, hash(entries)?, STEPS));
        let name = format!("lookup.lpm-trie.{entries}");
        all.push(Variant::new(name, trie(entries)?, STEPS));
    }
    let tail = load(&[], "limits_tail", &[])?;
    tail.install_in(&tail, "programs", 0)?;
    all.push(Variant::new("tail-call", tail, TAILS));
    Ok(all)
}

fn load(
    constants: &[(&str, u32)],
    program: &str,
    sizes: &[(&str, usize)],
) -> Result<LoadedProgram, LabError> {
    let mut object = KernelObject::open(weir_bpf::baseline("limits").unwrap_or_default())?;
    for (symbol, value) in constants {
        object.set_rodata(symbol, &value.to_ne_bytes())?;
    }
    for (map, entries) in sizes {
        object.set_map_entries(map, *entries as u32)?;
    }
    Ok(object.load(program)?)
}

fn mask(entries: usize) -> [(&'static str, u32); 1] {
    [("limits_mask", entries as u32 - 1)]
}

/// Lines of which each names the next, all in one circle in random order, so that no prefetcher knows it.
fn chain(lines: usize) -> Result<LoadedProgram, LabError> {
    let program = load(&mask(lines), "limits_chain", &[("chain", lines)])?;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    // Sattolo's algorithm: a permutation that is one circle.
    let mut random = Random(7);
    for last in (1..lines).rev() {
        order.swap(last, random.below(last));
    }
    let memory = program.mmap_array("chain")?;
    for (line, next) in order.iter().enumerate() {
        memory.write(line * LINE, &next.to_ne_bytes())?;
    }
    Ok(program)
}

fn hash(entries: usize) -> Result<LoadedProgram, LabError> {
    let program = load(&mask(entries), "limits_hash", &[("hash", entries)])?;
    let key = |n: usize| {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&(n as u32).to_ne_bytes());
        key
    };
    let keys: Vec<u8> = (0..entries).flat_map(key).collect();
    program.update_batch("hash", &keys, &vec![0; 8 * entries])?;
    Ok(program)
}

/// Host routes side by side, which is the deepest that so many can be.
fn trie(entries: usize) -> Result<LoadedProgram, LabError> {
    let program = load(&mask(entries), "limits_trie", &[("trie", entries)])?;
    let key = |n: usize| [32u32.to_ne_bytes(), (n as u32).to_ne_bytes()].concat();
    let keys: Vec<u8> = (0..entries).flat_map(key).collect();
    program.update_batch("trie", &keys, &vec![0; 8 * entries])?;
    Ok(program)
}
