//! Objects of others, unmodified, in the user engine and in the running kernel: verdicts, bytes and map contents over captures.
//!
//! The objects are those that Debian's package xdp-tools installs. Needs root, and the package; says when it skips.

#![allow(
    clippy::print_stderr,
    reason = "what is skipped is said where the test runs"
)]

use crate::common;
use crate::pair;
use crate::pair::{Pair, frames, installed};
use weir_engine::EngineKind;
use weir_vm::{LoadError, Object};

/// Frames a program sees unless `WEIR_LONG=1`.
const FRAMES: usize = 1_000;

#[test]
fn every_program_of_xdp_tools_runs_as_in_the_kernel() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let objects = installed();
    if objects.is_empty() {
        return;
    }
    let frames = frames(FRAMES);
    let mut ran = Vec::new();
    let mut refused = Vec::new();
    for path in &objects {
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let elf = std::fs::read(path).expect("the object can be read");
        let object = Object::parse(&elf).unwrap_or_else(|e| panic!("{file}: {e}"));
        let programs: Vec<String> = object.programs().map(str::to_owned).collect();
        assert!(!programs.is_empty(), "{file} has no programs");
        for program in &programs {
            let is_xdp = object.program_kind(program).is_some_and(|k| k.is_xdp());
            if !is_xdp {
                let error = object.clone().load(program).expect_err("is not XDP");
                assert!(matches!(error, LoadError::NotRunnable { .. }), "{error}");
                refused.push(format!("{file}: {error}"));
                continue;
            }
            let runs = setups(&file).into_iter();
            for (setup, native) in runs.flat_map(|s| executions().map(move |native| (s, native))) {
                let mut pair = Pair::load(&elf, program, &constants(&setup));
                prepare(&mut pair, &setup, &frames);
                pair.start(native);
                let mut records = 0;
                for (number, frame) in frames.iter().enumerate() {
                    let ran = pair.packet(frame);
                    // Buffers are smaller than what a capture makes of them, and records of one packet are on one CPU.
                    let ran = ran.and_then(|()| match setup {
                        Setup::Capturing => pair.compare_perf("xdpdump_perf_map"),
                        _ => Ok(0),
                    });
                    records += ran.as_ref().copied().unwrap_or(0);
                    if let Err(difference) = ran {
                        panic!(
                            "{file}, {program} ({setup:?}, {}), frame {number}: {difference}\n{frame:02x?}",
                            pair.execution()
                        );
                    }
                }
                let entries = pair.compare_maps().unwrap_or_else(|e| {
                    panic!("{file}, {program} ({setup:?}, {}): {e}", pair.execution())
                });
                ran.push(format!(
                    "{file} {program} {setup:?}, {}: verdicts {:?}, {} frames not taken, {entries} map entries, {records} records",
                    pair.execution(), pair.verdicts, pair.skipped
                ));
            }
        }
    }
    let least = 14 * executions().count();
    assert!(ran.len() >= least, "only {} runs", ran.len());
    eprintln!(
        "agree:\n  {}\nrefused:\n  {}",
        ran.join("\n  "),
        refused.join("\n  ")
    );
}

#[test]
fn ordinary_programs_run_as_in_the_kernel() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let elf = pair::compile("agree", &["-g"]);
    let programs = [
        "count",
        "lines",
        "filter",
        "sample",
        "nested",
        "remember",
        "routes",
        "spread",
        "reshape",
        "arithmetic",
        "kernel_types",
    ];
    let frames = frames(FRAMES);
    for (program, native) in programs
        .into_iter()
        .flat_map(|p| executions().map(move |native| (p, native)))
    {
        let mut pair = Pair::load(&elf, program, &[("limit", 300u32.to_le_bytes().to_vec())]);
        // Loopback is in every namespace; slots 1 and 2 have it, and CPU 0 has a queue.
        for slot in [0u32, 1, 2] {
            pair.update("devices", &slot.to_le_bytes(), &1u32.to_le_bytes());
            pair.update(
                "device_hash",
                &(slot + 1).to_le_bytes(),
                &1u32.to_le_bytes(),
            );
        }
        pair.update("cpus", &[0; 4], &192u32.to_le_bytes());
        pair.open_perf("events");
        pair.start(native);
        let mut records = 0;
        for (number, frame) in frames.iter().enumerate() {
            let ran = pair.packet(frame).and_then(|()| {
                records += pair.compare_perf("events")?;
                // So that a difference shows at its packet.
                pair.compare_map("results").map(drop)
            });
            if let Err(difference) = ran {
                let execution = pair.execution();
                panic!("{program} ({execution}), frame {number}: {difference}\n{frame:02x?}");
            }
        }
        let execution = pair.execution();
        let entries = pair
            .compare_maps()
            .unwrap_or_else(|e| panic!("{program} ({execution}): {e}"));
        assert!(program != "sample" || records > 0);
        eprintln!(
            "{program}, {execution}: verdicts {:?}, {entries} map entries, {records} records",
            pair.verdicts
        );
    }
}

/// The retired map section: libbpf refuses it since 1.0, so the kernel gets the same source with today's definitions.
#[test]
fn retired_map_sections_mean_what_todays_do() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let (old, new) = (
        pair::compile("legacy", &[]),
        pair::compile("legacy", &["-g", "-DTODAY"]),
    );
    for program in ["first", "second"] {
        let mut pair = Pair::load_twins((&old, &new), program, &[]);
        for frame in frames(200) {
            if let Err(difference) = pair.packet(&frame) {
                panic!("{program}: {difference}");
            }
        }
        pair.compare_maps()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
    }
}

#[test]
fn tc_programs_run_as_in_the_kernel() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let elf = pair::compile("tc", &["-g"]);
    let frames = frames(FRAMES);
    for program in ["fields", "tags", "lengths", "checksums"] {
        let mut pair = Pair::load(&elf, program, &[]);
        for (number, frame) in frames.iter().enumerate() {
            let ran = pair.packet(frame);
            let ran = ran.and_then(|()| pair.compare_map("results"));
            if let Err(difference) = ran {
                panic!("{program}, frame {number}: {difference}\n{frame:02x?}");
            }
        }
        let results = pair.user.map("results").expect("the object has it");
        let keys = results.keys().filter_map(|key| results.value(&key));
        let written = keys.filter(|value| value.iter().any(|b| *b != 0)).count();
        assert!(written > 0, "{program} wrote no results");
        eprintln!("{program}: verdicts {:?}, {written} results", pair.verdicts);
    }
}

/// What tunnels are made with: any order of steps that follows from the packet. In a namespace of its own, because copies are sent there.
#[test]
fn room_and_keys_and_copies_are_as_in_the_kernel() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let elf = pair::compile("room", &["-g"]);
    let frames = frames(FRAMES);
    let ns = weir_kernel::NetNs::create("weir-room").expect("namespace");
    for program in ["room", "keys", "copies"] {
        let written = ns.run(|| {
            let mut pair = Pair::load(&elf, program, &[]);
            let mut written = std::collections::BTreeSet::new();
            let mut sent = 0;
            for (number, frame) in frames.iter().enumerate() {
                let ran = pair.packet(frame);
                let ran = ran.and_then(|()| pair.compare_map("results"));
                if let Err(difference) = ran {
                    panic!("{program}, frame {number}: {difference}\n{frame:02x?}");
                }
                for copy in pair.user.take_sent() {
                    assert_eq!((copy.ifindex, copy.skb.data()), (1, &frame[..]));
                    assert_eq!(copy.skb.get(weir_vm::SkbField::Cb0) as usize, frame.len());
                    sent += 1;
                }
                let results = pair.user.map("results").expect("the object has it");
                written.extend(results.keys().filter_map(|key| {
                    let value = results.value(&key)?.first_chunk::<8>().copied()?;
                    Some((key, i64::from_le_bytes(value)))
                }));
            }
            eprintln!("{program}: verdicts {:?}, {sent} copies", pair.verdicts);
            written
        });
        let written = written.expect("namespace");
        // Every error that there is was met.
        let met = |number: i64| written.iter().any(|(_, value)| *value == number);
        let numbers: &[i64] = match program {
            "room" => &[0, -14, -22, -114, -524],
            "keys" => &[0, -22, -71],
            _ => &[0, -22],
        };
        for number in numbers {
            assert!(met(*number), "{program} never answered {number}");
        }
    }
}

/// Interpreted and, where this machine has it, as native code.
fn executions() -> impl Iterator<Item = bool> + Clone {
    [false, true]
        .into_iter()
        .filter(|native| !native || weir_vm::jit::available())
}

/// How a program is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    /// As it comes.
    Bare,
    /// Filters filled with every other address and port of the captures.
    Filters,
    /// A dispatcher with all its slots in use, which hold stubs.
    Slots,
    /// Capturing on the interface that test runs come from.
    Capturing,
}

fn setups(file: &str) -> Vec<Setup> {
    if file.starts_with("xdpfilt_") {
        return vec![Setup::Bare, Setup::Filters];
    }
    match file {
        "xdp-dispatcher.o" => vec![Setup::Bare, Setup::Slots],
        "xdpdump_xdp.o" => vec![Setup::Bare, Setup::Capturing],
        _ => vec![Setup::Bare],
    }
}

/// `struct xdp_dispatcher_config`: magic, version, number of programs, frags, then actions to go on with, priorities and flags of ten.
fn constants(setup: &Setup) -> Vec<(&'static str, Vec<u8>)> {
    if *setup != Setup::Slots {
        return Vec::new();
    }
    let mut config = vec![0xec, 2, 10, 0];
    // The stubs answer 31: go on with that from the even ones only.
    for slot in 0..10u32 {
        let actions: u32 = if slot < 8 { 1 << 31 } else { 1 << 2 };
        config.extend_from_slice(&actions.to_le_bytes());
    }
    config.resize(124, 0);
    vec![("conf", config)]
}

fn prepare(pair: &mut Pair, setup: &Setup, frames: &[Vec<u8>]) {
    if *setup == Setup::Capturing {
        // Interface 1 (loopback, where test runs come from), 64 bytes, program 0.
        let config: Vec<u8> = [1u32, 64, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        pair.update(".data", &[0; 4], &config);
        pair.open_perf("xdpdump_perf_map");
    }
    if *setup != Setup::Filters {
        return;
    }
    let has = |pair: &Pair, map: &str| pair.user.map(map).is_some();
    for (number, frame) in frames.iter().enumerate().step_by(2) {
        // Source, destination or both.
        let value = (number as u64 / 2 % 3 + 1).to_le_bytes();
        let part = |range: std::ops::Range<usize>| frame.get(range);
        let side = if number % 4 == 0 { 0 } else { 1 };
        if let (true, Some(mac)) = (has(pair, "filter_ethernet"), part(side * 6..side * 6 + 6)) {
            pair.update("filter_ethernet", mac, &value);
        }
        let (address, ports) = match part(12..14) {
            Some([0x08, 0x00]) => {
                let header = usize::from(frame.get(14).copied().unwrap_or(0) & 15) * 4;
                let at = 26 + side * 4;
                let address = part(at..at + 4).map(|a| ("filter_ipv4", a));
                (address, 14 + header)
            }
            Some([0x86, 0xdd]) => {
                let at = 22 + side * 16;
                (part(at..at + 16).map(|a| ("filter_ipv6", a)), 54)
            }
            _ => continue,
        };
        if let Some((map, address)) = address.filter(|(map, _)| has(pair, map)) {
            pair.update(map, address, &value);
        }
        let port = part(ports + side * 2..ports + side * 2 + 2);
        if let (true, Some([high, low])) = (has(pair, "filter_ports"), port) {
            // The program takes the port as it stands in the packet; TCP, UDP or both.
            let key = u32::from(u16::from_le_bytes([*high, *low]));
            let flags = (number as u64 / 2 % 3 + 1) | [4, 8, 12][number / 2 % 3];
            pair.update("filter_ports", &key.to_le_bytes(), &flags.to_le_bytes());
        }
    }
}
