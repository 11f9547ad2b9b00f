//! The compiled filter in the kernel and in the user engine, behind one trait: packet in, verdict out, then what was counted.

use weir_bpf::abi::{FilterCount, Replay, Stats};
use weir_functions::filter::{Compiled, hits};
use weir_functions::plan::InstancePlan;
use weir_kernel::{KernelObject, LoadedProgram, MmapArray, TestCtx};
use weir_vm::verify::VerifyOptions;
use weir_vm::{BPF_ANY, Env, Frame, Machine, Object};
use zerocopy::{FromBytes, IntoBytes};

/// An engine that runs one filter.
pub(crate) trait Run {
    fn name(&self) -> &'static str;
    /// `enum xdp_action`; what is in the frame afterwards goes to `out`.
    fn packet(&mut self, frame: &[u8], now_ns: u64, out: &mut Vec<u8>) -> u32;
    /// Bytes of a value, of all CPUs for a per-CPU map.
    fn value(&self, map: &str, index: u32) -> Vec<Vec<u8>>;
    fn write(&mut self, map: &str, index: u32, value: &[u8]);
}

fn constants(plan: &InstancePlan) -> Vec<(String, Vec<u8>)> {
    let own = plan.constants.iter();
    own.map(|(name, bytes)| (name.to_string(), bytes.clone()))
        .collect()
}

/// Time comes from the test.
const REPLAY: (&str, u32) = ("weir_replay", 1);

/// The filter in the running kernel, with these constants besides its own.
pub(crate) fn load(compiled: &Compiled, more: &[(&str, u32)]) -> LoadedProgram {
    let plan = &compiled.plan;
    let mut object = KernelObject::open(plan.object.bytes().expect("embedded")).expect("opens");
    for (symbol, bytes) in constants(plan) {
        object.set_rodata(&symbol, &bytes).expect("a constant");
    }
    for (symbol, value) in more {
        object
            .set_rodata(symbol, &value.to_ne_bytes())
            .expect("a constant");
    }
    for map in &plan.maps {
        object
            .set_map_entries(&map.name, map.max_entries)
            .expect("a map");
    }
    let program = object
        .load(&plan.program)
        .unwrap_or_else(|e| panic!("{e}\n{}", e.log().unwrap_or_default()));
    for map in &plan.maps {
        for (key, value) in map.entries() {
            program.update(&map.name, key, value, 0).expect("an update");
        }
    }
    program
}

pub(crate) struct Kernel {
    program: LoadedProgram,
    replay: MmapArray,
}

impl Kernel {
    pub(crate) fn new(compiled: &Compiled) -> Kernel {
        let program = load(compiled, &[REPLAY]);
        let replay = program.mmap_array("replay").expect("mapped");
        Kernel { program, replay }
    }
}

impl Run for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn packet(&mut self, frame: &[u8], now_ns: u64, out: &mut Vec<u8>) -> u32 {
        self.replay
            .write(
                0,
                Replay {
                    now_ns,
                    ..Replay::default()
                }
                .as_bytes(),
            )
            .expect("written");
        self.program
            .test_run(frame, out, TestCtx::default())
            .expect("runs")
            .retval
    }

    fn value(&self, map: &str, index: u32) -> Vec<Vec<u8>> {
        self.program
            .lookup_percpu(map, &index.to_ne_bytes())
            .expect("read")
    }

    fn write(&mut self, map: &str, index: u32, value: &[u8]) {
        self.program
            .update(map, &index.to_ne_bytes(), value, 0)
            .expect("written");
    }
}

pub(crate) struct User {
    machine: Machine,
    frame: Frame,
    name: &'static str,
}

impl User {
    pub(crate) fn new(compiled: &Compiled, native: bool) -> User {
        let plan = &compiled.plan;
        let mut object = Object::parse(plan.object.bytes().expect("embedded")).expect("parses");
        for (symbol, bytes) in constants(plan) {
            object.set_rodata(&symbol, &bytes).expect("a constant");
        }
        object
            .set_rodata(REPLAY.0, &REPLAY.1.to_ne_bytes())
            .expect("a constant");
        for map in &plan.maps {
            object
                .set_map_entries(&map.name, map.max_entries)
                .expect("a map");
        }
        let mut machine = object.load(&plan.program).expect("loads");
        for map in &plan.maps {
            let target = machine.map_mut(&map.name).expect("a map");
            for (key, value) in map.entries() {
                target.update_all(key, value, BPF_ANY).expect("an update");
            }
        }
        if native {
            machine
                .verify_and_compile(&VerifyOptions::default())
                .unwrap_or_else(|e| panic!("{e}"));
        }
        User {
            machine,
            frame: Frame::new(&[]),
            name: if native { "user-jit" } else { "user" },
        }
    }
}

impl Run for User {
    fn name(&self) -> &'static str {
        self.name
    }

    fn packet(&mut self, frame: &[u8], now_ns: u64, out: &mut Vec<u8>) -> u32 {
        let replay = self.machine.map_mut("replay").expect("a map");
        let value = replay.value_mut(&0u32.to_ne_bytes()).expect("a value");
        value.copy_from_slice(
            Replay {
                now_ns,
                ..Replay::default()
            }
            .as_bytes(),
        );
        self.frame.reset(frame);
        let env = Env {
            now_ns,
            ..Env::default()
        };
        let action = self
            .machine
            .run_xdp(&mut self.frame, &env)
            .unwrap_or_else(|fault| panic!("{fault}"));
        out.clear();
        out.extend_from_slice(self.frame.data());
        action
    }

    fn value(&self, map: &str, index: u32) -> Vec<Vec<u8>> {
        let map = self.machine.map(map).expect("a map");
        let all = map.lookup(&index.to_ne_bytes()).expect("a value");
        let size = map.definition().value_size.next_multiple_of(8) as usize;
        all.chunks_exact(size).map(<[u8]>::to_vec).collect()
    }

    fn write(&mut self, map: &str, index: u32, value: &[u8]) {
        self.machine
            .map_mut(map)
            .expect("a map")
            .update(&index.to_ne_bytes(), value, BPF_ANY)
            .expect("written");
    }
}

/// Everything that a filter counted, summed over all CPUs.
pub(crate) fn counted(run: &dyn Run, compiled: &Compiled) -> (Stats, Vec<FilterCount>, Vec<u64>) {
    let mut stats: Option<Stats> = None;
    for one in run.value("stats", 0) {
        let one = Stats::read_from_bytes(&one[..size_of::<Stats>()]).expect("its size");
        stats = Some(match stats {
            None => one,
            Some(mut sum) => {
                sum.received += one.received;
                sum.bytes += one.bytes;
                sum.verdict
                    .iter_mut()
                    .zip(one.verdict)
                    .for_each(|(a, b)| *a += b);
                sum.reason
                    .iter_mut()
                    .zip(one.reason)
                    .for_each(|(a, b)| *a += b);
                sum
            }
        });
    }
    let counts = (0..compiled.bits() as u32).map(|bit| {
        let mut sum = FilterCount::default();
        for one in run.value("counts", bit) {
            let one = FilterCount::read_from_bytes(&one).expect("its size");
            sum.packets += one.packets;
            sum.bytes += one.bytes;
            sum.dropped += one.dropped;
            sum.blocked += one.blocked;
        }
        sum
    });
    let words = |map: &str, elements: usize| -> Vec<u64> {
        let elements = 0..elements as u32;
        elements
            .flat_map(|element| summed(&run.value(map, element)))
            .collect()
    };
    let size = |map: &str| {
        let plan = compiled.plan.maps.iter().find(|plan| plan.name == map);
        plan.map_or(0, |plan| plan.max_entries as usize)
    };
    let homes: Vec<u32> = words("homes", size("homes"))
        .iter()
        .flat_map(|word| [*word as u32, (*word >> 32) as u32])
        .collect();
    let hits = hits::sum(
        &words("hits", size("hits")),
        &words("wide_hits", size("wide_hits")),
        &homes,
        |element| Ok::<_, std::convert::Infallible>(run.value("blocks4", element)),
    );
    let hits = hits.expect("infallible");
    (stats.expect("a CPU"), counts.collect(), hits)
}

/// The words of an element, those of all CPUs added up.
fn summed(copies: &[Vec<u8>]) -> Vec<u64> {
    let mut sums = vec![0u64; copies.first().map_or(0, |copy| copy.len() / 8)];
    for copy in copies {
        for (sum, word) in sums.iter_mut().zip(copy.chunks_exact(8)) {
            *sum += u64::from_ne_bytes(word.try_into().expect("8 bytes"));
        }
    }
    sums
}
