//! One program of a foreign object in two places, the user engine and the running kernel, with the same maps: what packets do to
//! both is compared.
//!
//! Values of per-CPU maps are compared as sums of 64-bit words since the start, for a test run is on any CPU.

#![allow(
    clippy::print_stderr,
    reason = "what is skipped is said where the test runs"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::captures::{captures, ethernet};
use weir_kernel::object::{TC_TEST_RUN_MAX, TEST_RUN_LINEAR, TEST_RUN_MAX, TEST_RUN_MIN};
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_vm::jit::Execution;
use weir_vm::verify::VerifyOptions;
use weir_vm::{Btf, Env, Frame, Machine, MapKind, Object, ProgramKind, Skb};

/// Contents of a map: key -> value.
type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A program in both engines.
pub(crate) struct Pair {
    pub(crate) user: Machine,
    pub(crate) kernel: LoadedProgram,
    pub(crate) env: Env,
    frame: Frame,
    /// For tc programs.
    skb: Option<Skb>,
    frags: bool,
    /// Contents of per-CPU maps at the start.
    before: BTreeMap<String, (Contents, Contents)>,
    /// Verdicts seen.
    pub(crate) verdicts: BTreeMap<u32, u64>,
    /// Frames that the kernel's test run does not take.
    pub(crate) skipped: u64,
}

/// The types of the running kernel.
fn kernel_types() -> Arc<Btf> {
    static TYPES: OnceLock<Arc<Btf>> = OnceLock::new();
    let types = TYPES
        .get_or_init(|| Arc::new(Btf::of_running_kernel().expect("the kernel shows its types")));
    Arc::clone(types)
}

impl Pair {
    /// Loads a program into both, with constants set alike.
    pub(crate) fn load(elf: &[u8], program: &str, constants: &[(&str, Vec<u8>)]) -> Pair {
        Pair::load_twins((elf, elf), program, constants)
    }

    /// As [`Pair::load`], from an object for each engine: (user, kernel).
    pub(crate) fn load_twins(
        elves: (&[u8], &[u8]),
        program: &str,
        constants: &[(&str, Vec<u8>)],
    ) -> Pair {
        Pair::load_sized(elves, program, constants, &[])
    }

    /// As [`Pair::load_twins`], with maps of other sizes than the object says.
    pub(crate) fn load_sized(
        (user_elf, kernel_elf): (&[u8], &[u8]),
        program: &str,
        constants: &[(&str, Vec<u8>)],
        entries: &[(&str, u32)],
    ) -> Pair {
        let mut user = Object::parse(user_elf).unwrap_or_else(|e| panic!("{program}: {e}"));
        let mut kernel =
            KernelObject::open(kernel_elf).unwrap_or_else(|e| panic!("{program}: {e}"));
        for (name, value) in constants {
            user.set_rodata(name, value)
                .unwrap_or_else(|e| panic!("{program}: {e}"));
            kernel
                .set_rodata(name, value)
                .unwrap_or_else(|e| panic!("{program}: {e}"));
        }
        for (map, entries) in entries {
            user.set_map_entries(map, *entries)
                .unwrap_or_else(|e| panic!("{program}: {e}"));
            kernel
                .set_map_entries(map, *entries)
                .unwrap_or_else(|e| panic!("{program}: {e}"));
        }
        let frags = matches!(
            user.program_kind(program),
            Some(ProgramKind::Xdp { frags: true, .. })
        );
        let tc = user.program_kind(program) == Some(&ProgramKind::SchedCls);
        user.relocate_against(kernel_types());
        Pair {
            user: user
                .load(program)
                .unwrap_or_else(|e| panic!("{program}: {e}")),
            kernel: kernel
                .load(program)
                .unwrap_or_else(|e| panic!("{program}: {e}")),
            env: Env::default(),
            frame: Frame::new(&[]),
            skb: tc.then(|| Skb::new(&[])),
            frags,
            before: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            skipped: 0,
        }
    }

    /// A tc program's packet as the last run left it.
    pub(crate) fn left(&self) -> &Skb {
        self.skb.as_ref().expect("a tc program")
    }

    /// Stores a value in both maps, on every CPU.
    pub(crate) fn update(&mut self, map: &str, key: &[u8], value: &[u8]) {
        self.kernel
            .update(map, key, value, 0)
            .unwrap_or_else(|e| panic!("{e}"));
        let target = self.user.map_mut(map).expect("the map is in both");
        let mut value = value.to_vec();
        if target.kind().is_percpu() {
            value.resize(value.len().next_multiple_of(8), 0);
        }
        target
            .update(key, &value, 0)
            .unwrap_or_else(|e| panic!("{e}"));
    }

    /// What carries the program out in the user engine.
    pub(crate) fn execution(&self) -> &'static str {
        match self.user.execution() {
            Execution::Interpreter => "interpreter",
            Execution::Jit => "jit",
        }
    }

    /// Remembers what per-CPU maps hold, and compiles where native code is asked for; to be called when the maps are set up.
    pub(crate) fn start(&mut self, native: bool) {
        if native {
            let compiled = self.user.verify_and_compile(&VerifyOptions::default());
            compiled.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(self.user.execution(), Execution::Jit);
        }
        let names: Vec<String> = self.user.map_names().map(str::to_owned).collect();
        for name in names {
            if self.kind(&name).is_percpu() {
                self.before.insert(name.clone(), self.contents(&name));
            }
        }
    }

    /// Runs one frame in both; what differs.
    pub(crate) fn packet(&mut self, frame: &[u8]) -> Result<(), String> {
        if !self.is_taken(frame) {
            self.skipped += 1;
            return Ok(());
        }
        let mut out = Vec::new();
        let kernel = self
            .kernel
            .test_run(frame, &mut out, TestCtx::default())
            .map_err(|e| e.to_string())?;
        let user = match &mut self.skb {
            Some(skb) => {
                skb.reset(frame);
                self.user.run_tc(skb, &self.env)
            }
            None => {
                self.frame.reset(frame);
                self.user.run_xdp(&mut self.frame, &self.env)
            }
        };
        let user = user.map_err(|e| format!("{e} ({:?})", self.user.source_line(e.op)))?;
        if user != kernel.retval {
            return Err(format!("verdict {user}, kernel {}", kernel.retval));
        }
        let bytes = match &self.skb {
            Some(skb) => skb.data().to_vec(),
            None => [self.frame.metadata(), self.frame.data()].concat(),
        };
        if bytes != out {
            return Err(format!("bytes {bytes:02x?}, kernel {out:02x?}"));
        }
        *self.verdicts.entry(user).or_default() += 1;
        Ok(())
    }

    /// Whether the kernel's test run takes a frame.
    fn is_taken(&self, frame: &[u8]) -> bool {
        if self.skb.is_none() {
            let longest = if self.frags {
                TEST_RUN_MAX
            } else {
                TEST_RUN_LINEAR
            };
            return (TEST_RUN_MIN..=longest).contains(&frame.len());
        }
        let least = match frame.get(12..14) {
            Some([0x08, 0x00]) => 34,
            Some([0x86, 0xdd]) => 54,
            _ => TEST_RUN_MIN,
        };
        (least..=TC_TEST_RUN_MAX).contains(&frame.len())
    }

    /// Compares all maps; what differs.
    pub(crate) fn compare_maps(&mut self) -> Result<usize, String> {
        let names: Vec<String> = self.user.map_names().map(str::to_owned).collect();
        let mut entries = 0;
        for name in &names {
            let kind = self.kind(name);
            if kind == MapKind::RingBuf {
                let mut kernel = Vec::new();
                self.kernel
                    .drain(name, Duration::ZERO, |bytes| kernel.push(bytes.to_vec()))
                    .map_err(|e| e.to_string())?;
                let user = self.user.drain_ringbuf(name);
                entries += user.len();
                if user != kernel {
                    return Err(format!(
                        "records of {name}: {user:02x?}, kernel {kernel:02x?}"
                    ));
                }
                continue;
            }
            if kind == MapKind::PerfEventArray {
                entries += self.compare_perf(name)?;
                continue;
            }
            if matches!(kind, MapKind::Queue | MapKind::Stack) {
                loop {
                    let kernel = self.kernel.pop(name).map_err(|e| e.to_string())?;
                    let user = self.user.map_mut(name).and_then(|m| m.pop());
                    if user != kernel {
                        return Err(format!("next of {name}: {user:02x?}, kernel {kernel:02x?}"));
                    }
                    if user.is_none() {
                        break;
                    }
                    entries += 1;
                }
                continue;
            }
            // What they refer to is compared by itself; a filter can only be asked.
            if kind.holds_maps() || matches!(kind, MapKind::ProgArray | MapKind::BloomFilter) {
                continue;
            }
            entries += self.compare_map(name)?;
        }
        Ok(entries)
    }

    /// Compares the elements of one map; how many there are.
    pub(crate) fn compare_map(&self, name: &str) -> Result<usize, String> {
        let (mut user, mut kernel) = self.contents(name);
        if let Some((user_before, kernel_before)) = self.before.get(name) {
            subtract(&mut user, user_before);
            subtract(&mut kernel, kernel_before);
        }
        match difference(&user, &kernel) {
            Some(difference) => Err(format!("map {name}: {difference}")),
            None => Ok(user.len()),
        }
    }

    /// Starts reading a perf event array in both.
    pub(crate) fn open_perf(&mut self, map: &str) {
        self.user
            .open_perf(map, 1 << 18)
            .unwrap_or_else(|e| panic!("{e}"));
        self.kernel.open_perf(map).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Compares and takes the records of a perf event array; the kernel's are sorted by CPU here and have some bytes of padding.
    pub(crate) fn compare_perf(&mut self, map: &str) -> Result<usize, String> {
        let mut kernel = self.kernel.drain_perf(map).map_err(|e| e.to_string())?;
        let user = self.user.drain_perf(map);
        if kernel.len() != user.len() {
            return Err(format!(
                "{} records of {map}, kernel {}",
                user.len(),
                kernel.len()
            ));
        }
        for ((_, user), (_, kernel)) in user.iter().zip(&mut kernel) {
            let padded = (user.len() + 4).next_multiple_of(8) - 4;
            if kernel.len() != padded || kernel.get(..user.len()) != Some(user) {
                return Err(format!(
                    "record of {map}: {user:02x?}, kernel {kernel:02x?}"
                ));
            }
        }
        Ok(user.len())
    }

    fn kind(&self, map: &str) -> MapKind {
        self.user.map(map).expect("the map is there").kind()
    }

    /// What a map holds here and in the kernel; per-CPU values summed.
    fn contents(&self, name: &str) -> (Contents, Contents) {
        let map = self.user.map(name).expect("the map is there");
        let percpu = map.kind().is_percpu();
        let user = map.keys().map(|key| {
            let value = map.lookup(&key).unwrap_or_default();
            (key, value)
        });
        let keys = self.kernel.keys(name).unwrap_or_else(|e| panic!("{e}"));
        let kernel = keys.into_iter().filter_map(|key| {
            let values = self.kernel.lookup_percpu(name, &key).ok()?;
            let mut sum = vec![0; values.first()?.len()];
            for value in values {
                sum = add(&sum, &value, percpu);
            }
            if percpu {
                sum.resize(sum.len().next_multiple_of(8), 0);
            }
            Some((key, sum))
        });
        (user.collect(), kernel.collect())
    }
}

/// Per-CPU values are counters: 64-bit words. A value that is not per-CPU is taken as it is.
fn add(sum: &[u8], value: &[u8], percpu: bool) -> Vec<u8> {
    if !percpu {
        return value.to_vec();
    }
    words(sum, value, u64::wrapping_add)
}

fn words(a: &[u8], b: &[u8], f: fn(u64, u64) -> u64) -> Vec<u8> {
    let word = |part: &[u8]| {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(part) {
            *to = *from;
        }
        u64::from_le_bytes(bytes)
    };
    let mut out: Vec<u8> = a
        .chunks(8)
        .zip(b.chunks(8))
        .flat_map(|(a, b)| f(word(a), word(b)).to_le_bytes())
        .collect();
    out.truncate(a.len());
    out
}

fn subtract(contents: &mut Contents, before: &Contents) {
    for (key, value) in contents {
        if let Some(old) = before.get(key) {
            *value = words(value, old, u64::wrapping_sub);
        }
    }
}

fn difference(user: &Contents, kernel: &Contents) -> Option<String> {
    for (key, value) in user {
        match kernel.get(key) {
            None => return Some(format!("key {key:02x?} is not in the kernel's")),
            Some(other) if other != value => {
                return Some(format!("key {key:02x?}: {value:02x?}, kernel {other:02x?}"));
            }
            Some(_) => {}
        }
    }
    let missing = kernel.keys().find(|key| !user.contains_key(*key));
    missing.map(|key| format!("key {key:02x?} is only in the kernel's"))
}

/// The object of `weir-vm/tests/objects/<name>.c`.
pub(crate) fn compile(name: &str, flags: &[&str]) -> Vec<u8> {
    const OBJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../weir-vm/tests/objects");
    let clang = std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
    let output = std::process::Command::new(clang)
        .args(["-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wno-unused"])
        .args(flags)
        .args(["-c", &format!("{OBJECTS}/{name}.c"), "-o", "-"])
        .output()
        .expect("clang runs: `make setup` installs it");
    assert!(
        output.status.success(),
        "{name}.c does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Frames of all Ethernet captures: the project's own, and those of other projects when they are there. Without `WEIR_LONG=1` at most
/// `most`, taken evenly.
pub(crate) fn frames(most: usize) -> Vec<Vec<u8>> {
    let paths = captures();
    let mut all: Vec<Vec<u8>> = paths
        .iter()
        .filter_map(|path| ethernet(path))
        .flatten()
        .map(|sample| sample.frame)
        .collect();
    let long = std::env::var("WEIR_LONG").as_deref() == Ok("1");
    if !long && all.len() > most {
        let step = all.len().div_ceil(most);
        all = all.into_iter().step_by(step).collect();
    }
    eprintln!("{} frames of {} captures", all.len(), paths.len());
    assert!(!all.is_empty(), "tests/captures holds Ethernet captures");
    all
}

/// Objects of xdp-tools on this machine.
pub(crate) fn installed() -> Vec<PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu/bpf",
        "/usr/lib/bpf",
        "/usr/lib64/bpf",
    ];
    let mut objects = Vec::new();
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(Path::new(folder)) else {
            continue;
        };
        let paths = entries.flatten().map(|e| e.path());
        objects.extend(paths.filter(|p| p.extension().is_some_and(|e| e == "o")));
    }
    objects.sort();
    if objects.is_empty() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "in CI the objects of xdp-tools must be there: scripts/setup installs them"
        );
        eprintln!("the package xdp-tools is not installed: its objects are skipped");
    }
    objects
}
