//! The patch panel in the running kernel: chains of functions in test runs, their ledgers, missed calls, ways out, and what a hop costs.
//!
//! The maps of the edge are filled by hand here; what fills them in earnest is `weir_engine::edge`.

use crate::common;
use weir_bpf::abi::{NEXT, Stats, csum, panel};
use weir_engine::EngineKind;
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_packet::Reason;
use weir_packet::build::Frame;
use zerocopy::FromBytes;

const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;
/// weir's number of the one port.
const PORT: u32 = 1;
/// Maps that all programs of an edge share.
const SHARED: [&str; 5] = [
    "weir_chain",
    "weir_links",
    "weir_programs",
    "weir_devices",
    "weir_finish",
];

#[test]
fn a_chain_counts_packets_at_every_hop() {
    let Some(mut chain) = Chain::new(32, Hops::LookedUp) else {
        return;
    };
    for end in [
        (panel::STACK, PASS),
        (panel::DROP, DROP),
        (panel::TX, TX),
        (panel::DEVICE, DROP),
    ] {
        chain.end(end.0);
        assert_eq!(chain.run(1), end.1, "way out {:#x}", end.0);
    }
    let first = chain.stats(0);
    assert_eq!((first.received, first.verdict[NEXT]), (4, 4));
    let last = chain.stats(32);
    assert_eq!(last.received, 4);
    assert_eq!(last.verdict[..6], [0, 2, 1, 1, 0, 0]);
    assert_eq!(last.bytes, 4 * FRAME.len() as u64);
    assert_eq!(last.reason[Reason::LinkDrop.index() as usize], 1);
    // Nothing is at that place of the map of devices.
    assert_eq!(last.reason[Reason::RedirectFailed.index() as usize], 1);
}

#[test]
fn a_call_that_finds_no_program_is_counted_where_it_was_made() {
    let Some(mut chain) = Chain::new(3, Hops::LookedUp) else {
        return;
    };
    let entry = &chain.programs[0];
    // The slot of the second function is empty.
    let hop = [panel::VIDS as u32 + 2, 4000]
        .map(u32::to_ne_bytes)
        .concat();
    let at = (panel::VIDS as u32 + 1) * panel::OUTS as u32;
    entry
        .update("weir_links", &at.to_ne_bytes(), &hop, 0)
        .expect("in range");
    assert_eq!(chain.run(1), DROP);
    let first = chain.stats(1);
    assert_eq!(first.verdict[..6], [0, 1, 0, 0, 0, 0]);
    assert_eq!(first.reason[Reason::MissedCall.index() as usize], 1);
    assert_eq!(chain.stats(2).received, 0);
}

#[test]
fn the_kernel_takes_33_calls_and_the_34th_is_counted() {
    for (functions, hops, verdict) in [
        (33, Hops::LookedUp, PASS),
        (34, Hops::LookedUp, DROP),
        (33, Hops::Constant, PASS),
        (34, Hops::Constant, DROP),
    ] {
        let Some(mut chain) = Chain::new(functions, hops) else {
            return;
        };
        assert_eq!(chain.run(1), verdict, "{functions} functions");
        let lost = chain.stats(33).reason[Reason::MissedCall.index() as usize];
        assert_eq!(lost, u64::from(verdict == DROP));
    }
}

#[test]
fn the_generation_word_switches_all_packets() {
    let Some(mut chain) = Chain::new(2, Hops::LookedUp) else {
        return;
    };
    // Generation 2 has no instances: its packets leave at the entry.
    let hop = [0, panel::DROP].map(u32::to_ne_bytes).concat();
    let entry = &chain.programs[0];
    entry
        .update("weir_entries", &(PORT * 2).to_ne_bytes(), &hop, 0)
        .expect("in range");
    assert_eq!(chain.run(1), PASS);
    chain.programs[0]
        .update("weir_edge", &0u32.to_ne_bytes(), &2u64.to_ne_bytes(), 0)
        .expect("in range");
    assert_eq!(chain.run(1), DROP);
    assert_eq!(chain.stats(1).received, 1);
}

#[test]
fn packets_that_leave_by_their_device_have_their_checksums_finished() {
    let frame = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(5, 6)
        .payload(b"odd");
    for (mode, finished) in [(csum::OFFLOADED, true), (csum::COMPLETE, false)] {
        let Some(mut chain) = Chain::with_checksums(2, Hops::LookedUp, mode) else {
            return;
        };
        for (way_out, leaves) in [(panel::TX, true), (panel::STACK, false)] {
            chain.end(way_out);
            let mut out = Vec::new();
            let unfinished = frame.clone().unfinished().build();
            chain.programs[0]
                .test_run(&unfinished, &mut out, TestCtx::default())
                .expect("runs");
            let expected = match finished && leaves {
                true => frame.build(),
                false => unfinished,
            };
            assert_eq!(out, expected, "mode {mode}, way out {way_out:#x}");
        }
    }
}

/// Prints; times are not asserted. `weir bench xdp` measures the same beside peers.
#[test]
fn what_a_hop_costs() {
    for hops in [Hops::LookedUp, Hops::Constant] {
        for line in costs(hops) {
            eprintln!("{line}");
        }
    }
    for form in ["empty", "empty_graph", "empty_watched"] {
        let object = KernelObject::open(weir_bpf::object(form).expect("compiled"));
        let loaded = object.and_then(|object| object.load("empty"));
        let verified = loaded.and_then(|program| program.verified_insns());
        eprintln!("{form}: {} verified instructions", verified.expect("loads"));
    }
}

/// A line for each length of chain.
fn costs(hops: Hops) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last = None;
    for functions in [0, 1, 8, 16, 32] {
        let Some(mut chain) = Chain::new(functions, hops) else {
            return lines;
        };
        chain.run(20_000);
        let mut times: Vec<u64> = (0..5).map(|_| chain.time(200_000)).collect();
        times.sort_unstable();
        let ns = times[2];
        lines.push(format!("{hops:?}, {functions} functions: {ns} ns a packet"));
        if let Some((before, at)) = last {
            let hops = functions - before;
            let hop = (ns as f64 - at as f64) / hops as f64;
            lines.push(format!("  {hop:.1} ns a hop"));
        }
        last = Some((functions, ns));
    }
    lines
}

/// An Ethernet frame of a protocol that nothing looks at.
const FRAME: [u8; 64] = {
    let mut frame = [0; 64];
    frame[12] = 0x88;
    frame[13] = 0xb5;
    frame
};

/// How functions find the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hops {
    /// In the array of links.
    LookedUp,
    /// In a constant.
    Constant,
}

/// An entry program and a chain of `empty` instances behind it, in generation 1, which ends in the stack.
struct Chain {
    /// The entry, then the functions.
    programs: Vec<LoadedProgram>,
}

impl Chain {
    /// `None` without privileges.
    fn new(functions: u32, hops: Hops) -> Option<Chain> {
        Chain::with_checksums(functions, hops, csum::COMPLETE)
    }

    fn with_checksums(functions: u32, hops: Hops, mode: u32) -> Option<Chain> {
        let generation = 1u64;
        if !common::engines().contains(&EngineKind::Kernel) {
            return None;
        }
        let open =
            |name| KernelObject::open(weir_bpf::object(name).expect("compiled")).expect("opens");
        let set = |object: &mut KernelObject, name, value: u32| {
            object
                .set_rodata(name, &value.to_ne_bytes())
                .expect("a constant");
        };
        let mut object = open("entry_graph");
        set(&mut object, "weir_port", PORT);
        set(&mut object, "weir_csum_mode", mode);
        let entry = object.load("entry").expect("loads");
        let base = (generation & 1) as u32 * panel::VIDS as u32;
        let write = |map, at: u32, vid: u32, slot: u32| {
            let hop = [vid, slot].map(u32::to_ne_bytes).concat();
            entry
                .update(map, &at.to_ne_bytes(), &hop, 0)
                .expect("in range");
        };
        let mut programs = Vec::new();
        for number in 1..=functions {
            let mut object = open("empty_graph");
            set(&mut object, "weir_vid", number);
            set(&mut object, "weir_csum_mode", mode);
            if hops == Hops::Constant {
                let mut outs = [0; panel::OUTS];
                outs[0] = match number < functions {
                    true => number + 1,
                    false => panel::STACK,
                };
                let outs = outs.map(u32::to_ne_bytes).concat();
                object
                    .set_rodata("weir_next_slot", &outs)
                    .expect("a constant");
            }
            for map in SHARED {
                object.reuse_map(map, &entry).expect("the same map");
            }
            let program = object.load("empty").expect("loads");
            program
                .install_in(&entry, "weir_programs", number)
                .expect("a free slot");
            let out = (base + number) * panel::OUTS as u32;
            match number < functions {
                true => write("weir_links", out, number + 1, number + 1),
                false => write("weir_links", out, 0, panel::STACK),
            }
            programs.push(program);
        }
        let first = match functions {
            0 => (0, panel::STACK),
            _ => (1, 1),
        };
        let at = PORT * 2 + (generation & 1) as u32;
        write("weir_entries", at, first.0, first.1);
        entry
            .update(
                "weir_edge",
                &0u32.to_ne_bytes(),
                &generation.to_ne_bytes(),
                0,
            )
            .expect("in range");
        programs.insert(0, entry);
        Some(Chain { programs })
    }

    /// Lets the chain of generation 1 end elsewhere.
    fn end(&self, slot: u32) {
        let last = panel::VIDS as u32 + self.programs.len() as u32 - 1;
        let hop = [0, slot].map(u32::to_ne_bytes).concat();
        self.programs[0]
            .update(
                "weir_links",
                &(last * panel::OUTS as u32).to_ne_bytes(),
                &hop,
                0,
            )
            .expect("in range");
    }

    fn run(&mut self, repeat: u32) -> u32 {
        let mut out = Vec::new();
        self.programs[0]
            .test_run_repeated(&FRAME, &mut out, TestCtx::default(), repeat)
            .expect("runs")
            .retval
    }

    /// ns a packet.
    fn time(&mut self, repeat: u32) -> u64 {
        let mut out = Vec::new();
        let outcome = self.programs[0]
            .test_run_repeated(&FRAME, &mut out, TestCtx::default(), repeat)
            .expect("runs");
        outcome.duration.as_nanos() as u64
    }

    /// Ledger of a program over all CPUs; 0 is the entry.
    fn stats(&self, program: usize) -> Stats {
        let values = self.programs[program]
            .lookup_percpu("stats", &0u32.to_ne_bytes())
            .expect("there is one");
        let mut ones = values
            .iter()
            .map(|bytes| Stats::read_from_bytes(bytes).expect("its size"));
        let first = ones.next().expect("a CPU");
        let sum = ones.fold(first, |mut sum, one| {
            sum.received += one.received;
            sum.bytes += one.bytes;
            for (a, b) in sum.verdict.iter_mut().zip(one.verdict) {
                *a += b;
            }
            for (a, b) in sum.reason.iter_mut().zip(one.reason) {
                *a += b;
            }
            sum
        });
        let verdicts: u64 = sum.verdict.iter().sum();
        assert_eq!(sum.received, verdicts, "received = sum of verdicts");
        sum
    }
}
