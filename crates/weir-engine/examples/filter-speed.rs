//! What the filter costs beside a bare drop, by number of prefixes, with sources that are random over the set:
//!
//! ```text
//! cargo run --release -p weir-engine --example filter-speed [4|6] [ROUNDS] [OBJECT]
//! ```
//!
//! A driver program writes another source into the frame on every run and calls the program under test. Needs root. Times are those of
//! this machine; only their differences within one run mean something.

use std::io::Write as _;
use std::time::Instant;

use weir_functions::filter::{Entry, Filter, Only, Set, list, rule};
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_packet::build::Frame;
use weir_value::Prefix;
use weir_vm::{BPF_ANY, Env, Object};

/// Sources of a run, a power of two.
const SOURCES: usize = 1 << 17;
const REPEAT: u32 = 2_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_ip6 = arguments.first().is_some_and(|a| a == "6");
    let rounds: usize = arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut out = std::io::stdout();
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut variants: Vec<(String, LoadedProgram, LoadedProgram)> = Vec::new();
    let sources: Vec<u128> = (0..1_000_000)
        .map(|_| address(&mut random, is_ip6))
        .collect();
    variants.push((
        "bare drop".into(),
        driver(&sources[..SOURCES], is_ip6),
        bare(),
    ));
    let text: String = sources
        .iter()
        .map(|first| {
            format!(
                "{}\n",
                Prefix {
                    first: *first,
                    len: if is_ip6 { 128 } else { 32 },
                    is_ip6
                }
            )
        })
        .collect();
    let began = Instant::now();
    let lines = list::parse(text.as_bytes(), None).map_or(0, |entries| entries.len());
    let _ = writeln!(
        out,
        "{lines} lines of a list read in {:.2?}",
        began.elapsed()
    );
    for (name, count, hits) in [
        ("1", 1, true),
        ("1000", 1000, true),
        ("100000", 100_000, true),
        ("1000000", 1_000_000, true),
        ("1000000 without hits", 1_000_000, false),
    ] {
        let entries = sources[..count].iter().map(|first| Entry {
            prefix: Prefix {
                first: *first,
                len: if is_ip6 { 128 } else { 32 },
                is_ip6,
            },
            only: Only::default(),
            until: 0,
            line: 0,
        });
        let mut filter = Filter {
            hits,
            ..Filter::default()
        };
        filter.sets.push(Set {
            name: "bad".into(),
            entries: entries.collect(),
        });
        filter
            .rules
            .push(rule::parse("deny from @bad").expect("a rule"));
        let began = Instant::now();
        let compiled = filter.compile().expect("compiles");
        let built = began.elapsed();
        let began = Instant::now();
        let program = load(&compiled.plan);
        let loaded = began.elapsed();
        let instructions = instructions(&compiled.plan, &sources[0], is_ip6);
        let bytes: usize = compiled.plan.maps.iter().map(|m| m.values.len()).sum();
        let _ = writeln!(
            out,
            "{name}: compiled in {built:.2?}, loaded in {loaded:.2?}, {} KiB of maps, {} verified instructions, {instructions} run for a packet",
            bytes >> 10,
            program.verified_insns().unwrap_or(0)
        );
        let some: Vec<u128> = (0..SOURCES).map(|i| sources[(i * 7919) % count]).collect();
        variants.push((name.into(), driver(&some, is_ip6), program));
    }
    let frame = match is_ip6 {
        false => Frame::new()
            .ip4([10, 0, 0, 1], [192, 0, 2, 1])
            .udp(1000, 2000)
            .payload(&[0; 22])
            .build(),
        true => Frame::new()
            .ip6([0x20; 16], [0x21; 16])
            .udp(1000, 2000)
            .payload(&[0; 22])
            .build(),
    };
    let mut times = vec![Vec::new(); variants.len()];
    for (_, driver, program) in &variants {
        program
            .install_in(driver, "call", 0)
            .expect("a program array");
    }
    for _ in 0..rounds {
        for (number, (name, driver, _)) in variants.iter_mut().enumerate() {
            let mut back = Vec::new();
            let outcome = driver
                .test_run_repeated(&frame, &mut back, TestCtx::default(), REPEAT)
                .expect("runs");
            assert_eq!(outcome.retval, 1, "{name} drops");
            times[number].push(outcome.duration.as_nanos() as u64);
        }
    }
    let median = |times: &[u64]| {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let floor = median(&times[0]);
    for ((name, ..), times) in variants.iter().zip(&times) {
        let _ = writeln!(
            out,
            "{name:>24}: {:4} ns, {:+4} over bare drop  {times:?}",
            median(times),
            median(times) as i64 - floor as i64
        );
    }
}

fn address(random: &mut Random, is_ip6: bool) -> u128 {
    match is_ip6 {
        false => u128::from(random.next() as u32),
        true => {
            0x2000_u128 << 112
                | u128::from(random.next() & 0x1fff_ffff_ffff_ffff) << 64
                | u128::from(random.next())
        }
    }
}

fn load(plan: &weir_functions::plan::InstancePlan) -> LoadedProgram {
    let mut object = KernelObject::open(&elf(plan)).expect("opens");
    for (symbol, bytes) in &plan.constants {
        object.set_rodata(symbol, bytes).expect("a constant");
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

/// Instructions that a packet of this source takes, in the user engine.
fn instructions(plan: &weir_functions::plan::InstancePlan, source: &u128, is_ip6: bool) -> u64 {
    let mut object = Object::parse(&elf(plan)).expect("parses");
    for (symbol, bytes) in &plan.constants {
        object.set_rodata(symbol, bytes).expect("a constant");
    }
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
    let frame = match is_ip6 {
        false => built().ip4((*source as u32).to_be_bytes(), [192, 0, 2, 1]),
        true => built().ip6(source.to_be_bytes(), [0x21; 16]),
    };
    let mut frame = weir_vm::Frame::new(&frame.udp(1000, 2000).build());
    let before = machine.instructions_run();
    let verdict = machine.run_xdp(&mut frame, &Env::default()).expect("runs");
    assert_eq!(verdict, 1, "the source is dropped");
    machine.instructions_run() - before
}

fn built() -> Frame {
    Frame::new()
}

fn elf(plan: &weir_functions::plan::InstancePlan) -> Vec<u8> {
    match std::env::args().nth(3) {
        Some(path) => std::fs::read(path).expect("an object"),
        None => plan.object.bytes().expect("embedded").to_vec(),
    }
}

fn bare() -> LoadedProgram {
    let object = KernelObject::open(weir_bpf::baseline("bare").expect("compiled")).expect("opens");
    object.load("bare").expect("loads")
}

fn driver(sources: &[u128], is_ip6: bool) -> LoadedProgram {
    let mut object =
        KernelObject::open(weir_bpf::baseline("sources").expect("compiled")).expect("opens");
    object
        .set_rodata("weir_addresses", &(sources.len() as u32).to_ne_bytes())
        .expect("a constant");
    object
        .set_rodata("weir_ip6", &u32::from(is_ip6).to_ne_bytes())
        .expect("a constant");
    object
        .set_map_entries("addresses", sources.len() as u32)
        .expect("a map");
    let program = object.load("sources").expect("loads");
    let keys: Vec<u8> = (0..sources.len() as u32)
        .flat_map(u32::to_ne_bytes)
        .collect();
    let values: Vec<u8> = sources
        .iter()
        .flat_map(|source| match is_ip6 {
            false => {
                let mut word = [0u8; 16];
                word[..4].copy_from_slice(&(*source as u32).to_be_bytes());
                word
            }
            true => source.to_be_bytes(),
        })
        .collect();
    program
        .update_batch("addresses", &keys, &values)
        .expect("an update");
    program
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}
