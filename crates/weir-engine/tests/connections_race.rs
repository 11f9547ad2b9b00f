//! Two CPUs opening connections at the same time: whatever they race for, the tables stay what docs/design/connections.md says.
//!
//! Two copies of the program share their maps, as two ports of an instance do; each runs on a CPU of its own. Afterwards
//! the records are read: no two live ones share a tuple, each is found by its index. Full tables and floods are here, too, for
//! they need the records.

use std::collections::HashMap;
use std::sync::Barrier;

use crate::common;
use weir_bpf::abi::{self, Bucket, Flow, NatBucket, Stats, Tuple, flow_flag, life};
use weir_functions::middlebox::plan;
use weir_functions::plan::PortConstants;
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_packet::Reason;
use weir_packet::build::Frame;
use weir_packet::checksum::{fold, sum};
use zerocopy::FromBytes;

const PASS: u32 = 2;

/// Programs that share their maps.
struct Bed {
    programs: Vec<LoadedProgram>,
}

impl Bed {
    /// `None`, said, without privileges.
    fn new(text: &str, copies: usize) -> Option<Bed> {
        if !common::engines().contains(&weir_engine::EngineKind::Kernel) {
            return None;
        }
        let (plan, _) = plan(&common::policy(text), &[]).expect("plans");
        let mut programs: Vec<LoadedProgram> = Vec::new();
        for _ in 0..copies {
            let elf = plan.object.bytes().expect("compiled");
            let mut object = KernelObject::open(elf).expect("opens");
            let port = PortConstants::default().constants();
            for (symbol, bytes) in plan.constants.iter().chain(&port) {
                object.set_rodata(symbol, bytes).expect("constant");
            }
            for map in &plan.maps {
                object
                    .set_map_entries(&map.name, map.max_entries)
                    .expect("size");
            }
            if let Some(first) = programs.first() {
                for map in object.maps() {
                    if !map.starts_with('.') {
                        object.reuse_map(&map, first).expect("shared");
                    }
                }
            }
            let program = object.load(&plan.program).expect("loads");
            if programs.is_empty() {
                for map in plan.maps.iter().filter(|map| !map.keys.is_empty()) {
                    program
                        .update_batch(&map.name, &map.keys, &map.values)
                        .expect("filled");
                }
            }
            programs.push(program);
        }
        Some(Bed { programs })
    }

    fn send(&mut self, frame: &[u8]) -> u32 {
        send(&mut self.programs[0], frame).0
    }

    /// Every copy runs its frames at the same time as the others theirs. Returns what came out, copy by copy.
    fn race(&mut self, frames: &[Vec<Vec<u8>>]) -> Vec<Vec<(u32, Vec<u8>)>> {
        let start = Barrier::new(frames.len());
        std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .programs
                .iter_mut()
                .zip(frames)
                .map(|(program, frames)| {
                    let start = &start;
                    scope.spawn(move || {
                        let mut outcomes = Vec::with_capacity(frames.len());
                        start.wait();
                        for frame in frames {
                            outcomes.push(send(program, frame));
                        }
                        outcomes
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        })
    }

    fn records(&self) -> Vec<(u32, Flow)> {
        let all = values::<Flow>(&self.programs[0], "flows");
        (0..)
            .zip(all)
            .filter(|(_, f)| f.life & life::MASK != life::FREE)
            .collect()
    }

    fn reasons(&self) -> Stats {
        let mut total = Stats::read_from_bytes(&[0; size_of::<Stats>()]).expect("zeros");
        let one = self.programs[0]
            .lookup_percpu("stats", &0u32.to_ne_bytes())
            .expect("readable");
        for cpu in one {
            let stats = Stats::read_from_bytes(&cpu).expect("stats");
            total.received += stats.received;
            for (a, b) in total.verdict.iter_mut().zip(stats.verdict) {
                *a += b;
            }
            for (a, b) in total.reason.iter_mut().zip(stats.reason) {
                *a += b;
            }
        }
        total
    }

    /// The invariants of docs/design/connections.md that records can break.
    fn check(&self) {
        let records = self.records();
        let buckets = values::<Bucket>(&self.programs[0], "flow_index");
        let nat = values::<NatBucket>(&self.programs[0], "nat_index");
        let entries: Vec<u64> = nat.iter().flat_map(|b| b.entry).collect();
        let mut owners: HashMap<Tuple, u32> = HashMap::new();
        for (place, record) in &records {
            assert_eq!(
                record.life & life::MASK,
                life::LIVE,
                "nothing runs, so no record is being written"
            );
            let translated = record.what & flow_flag::NAT != 0;
            let trans = translated.then_some(record.trans);
            for tuple in std::iter::once(record.orig).chain(trans) {
                if let Some(other) = owners.insert(normal(tuple), *place) {
                    panic!("places {place} and {other} share {tuple:?}");
                }
            }
            let (bucket, way) = (*place as usize / abi::WAYS, *place as usize % abi::WAYS);
            assert_ne!(buckets[bucket].tag[way], 0, "place {place} has a tag");
            if translated {
                let entry = u64::from(record.trans_tag) << 32 | u64::from(place + 1);
                let found = entries.iter().filter(|&&e| e == entry).count();
                assert!(
                    found > 0,
                    "place {place} is in the index by translated tuple"
                );
            }
        }
    }
}

fn send(program: &mut LoadedProgram, frame: &[u8]) -> (u32, Vec<u8>) {
    let mut out = Vec::new();
    let outcome = program
        .test_run(frame, &mut out, TestCtx::default())
        .expect("test run");
    (outcome.retval, out)
}

fn values<T: FromBytes>(program: &LoadedProgram, map: &str) -> Vec<T> {
    if map == "flows" {
        let memory = program.mmap_array(map).expect("mapped");
        let mut bytes = vec![0; memory.len()];
        memory.read(0, &mut bytes).expect("readable");
        return bytes
            .chunks_exact(size_of::<T>())
            .filter_map(|c| T::read_from_bytes(c).ok())
            .collect();
    }
    (0u32..)
        .map_while(|i| program.lookup(map, &i.to_ne_bytes()).expect("readable"))
        .filter_map(|bytes| T::read_from_bytes(&bytes).ok())
        .collect()
}

/// The same for both directions.
fn normal(tuple: Tuple) -> Tuple {
    let reversed = Tuple {
        src: tuple.dst,
        dst: tuple.src,
        sport: tuple.dport,
        dport: tuple.sport,
        ..tuple
    };
    if (tuple.src, tuple.sport) <= (reversed.src, reversed.sport) {
        tuple
    } else {
        reversed
    }
}

fn udp(source: [u8; 4], sport: u16, destination: [u8; 4], dport: u16) -> Vec<u8> {
    Frame::new()
        .ip4(source, destination)
        .udp(sport, dport)
        .payload(b"weir")
        .build()
}

/// The answer to a frame, as its receiver would send it.
fn answer(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for (a, b, len) in [(26, 30, 4), (34, 36, 2)] {
        for i in 0..len {
            frame.swap(a + i, b + i);
        }
    }
    frame
}

#[test]
fn one_of_two_cpus_opens_a_connection_and_both_use_it() {
    let text = "connections 20000\nadd-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 shuffle udp-sport accept\n";
    let Some(mut bed) = Bed::new(text, 2) else {
        return;
    };
    let frames: Vec<Vec<u8>> = (0..6000u16)
        .map(|i| {
            udp(
                [10, 0, (i >> 8) as u8, i as u8],
                5000,
                [198, 51, 100, 7],
                53,
            )
        })
        .collect();
    let outcomes = bed.race(&[frames.clone(), frames.clone()]);
    bed.check();
    let records = bed.records();
    let stats = bed.reasons();
    let busy = stats.reason[Reason::FlowBusy as usize];
    eprintln!(
        "{} connections, {busy} packets met flow_busy, {} pool_busy",
        records.len(),
        stats.reason[Reason::PoolBusy as usize]
    );
    assert_eq!(records.len(), frames.len());
    for (one, other) in outcomes[0].iter().zip(&outcomes[1]) {
        if one.0 == PASS && other.0 == PASS {
            assert_eq!(one.1, other.1, "both CPUs translate alike");
        }
    }
    assert!(busy < 600, "losing a race is rare: {busy}");
}

#[test]
fn an_expectation_is_one_and_used_once_on_two_cpus() {
    const HOSTS: u16 = 3000;
    const SERVER: [u8; 4] = [198, 51, 100, 7];
    let text = "connections 40000\nadd-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 helper tftp accept\nall drop\n";
    let Some(mut bed) = Bed::new(text, 2) else {
        return;
    };
    let said = |from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]| {
        let frame = Frame::new().ip4(from.0, to.0).udp(from.1, to.1);
        frame.payload(payload).build()
    };
    let host = |i: u16| ([10, 0, (i >> 8) as u8, i as u8], 5000);
    let requests: Vec<Vec<u8>> = (0..HOSTS)
        .map(|i| said(host(i), (SERVER, 69), b"\x00\x01boot\x00octet\x00"))
        .collect();
    bed.race(&[requests.clone(), requests.clone()]);
    // Who lost a race sends again, and nothing changes for who did not.
    let sent: Vec<Vec<u8>> = (requests.iter())
        .map(|request| {
            let (verdict, out) = send(&mut bed.programs[0], request);
            assert_eq!(verdict, PASS);
            out
        })
        .collect();
    bed.check();
    let expected = |bed: &Bed| {
        let records = bed.records();
        let of = |f: &Flow| f.orig.what == abi::TUPLE_EXPECTED;
        records.iter().filter(|(_, f)| of(f)).count()
    };
    assert_eq!(expected(&bed), usize::from(HOSTS));
    let answers = |port: u16| -> Vec<Vec<u8>> {
        let outer = |sent: &Vec<u8>| u16::from_be_bytes([sent[34], sent[35]]);
        let to = sent.iter().map(|sent| ([192, 0, 2, 1], outer(sent)));
        to.map(|to| said((SERVER, port), to, b"\x00\x03\x00\x01data"))
            .collect()
    };
    let outcomes = bed.race(&[answers(3000), answers(3001)]);
    bed.check();
    assert_eq!(expected(&bed), 0);
    let busy = bed.reasons().reason[Reason::FlowBusy as usize];
    eprintln!("{HOSTS} requests and answers on two CPUs, {busy} packets met flow_busy");
    for (i, (one, other)) in outcomes[0].iter().zip(&outcomes[1]).enumerate() {
        let passed = u32::from(one.0 == PASS) + u32::from(other.0 == PASS);
        // Both can lose: who used it up found no way to open the connection in three attempts.
        assert!(passed <= 1, "host {i}: both answers passed");
    }
    let passed = outcomes
        .iter()
        .flatten()
        .filter(|(verdict, _)| *verdict == PASS);
    let lost = usize::from(HOSTS) - passed.count();
    assert!(lost < 300, "losing a race is rare: {lost}");
}

#[test]
fn two_cpus_never_give_out_one_translated_tuple_twice() {
    // 4 addresses of 500 ports for 1,800 connections to one place: most tries meet taken ones.
    let text = "connections 20000\nadd-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1-192.0.2.4 map udp-sport 20000-20499 accept\n";
    let Some(mut bed) = Bed::new(text, 2) else {
        return;
    };
    let frames = |cpu: u8| -> Vec<Vec<u8>> {
        (0..900u16)
            .map(|i| {
                udp(
                    [10, cpu, (i >> 8) as u8, i as u8],
                    5000,
                    [198, 51, 100, 7],
                    53,
                )
            })
            .collect()
    };
    let outcomes = bed.race(&[frames(0), frames(1)]);
    bed.check();
    let passed = outcomes.iter().flatten().filter(|o| o.0 == PASS).count();
    let stats = bed.reasons();
    eprintln!(
        "{passed} of 1800 connections; {} pool_busy, {} flow_busy",
        stats.reason[Reason::PoolBusy as usize],
        stats.reason[Reason::FlowBusy as usize]
    );
    assert_eq!(bed.records().len(), passed);
    assert!(
        passed > 1600,
        "a pool nine tenths full still gives out: {passed}"
    );
    // The answers find their way back, whichever CPU they come by.
    for (sent, outcome) in frames(0).iter().zip(&outcomes[0]) {
        if outcome.0 != PASS {
            continue;
        }
        let (verdict, back) = send(&mut bed.programs[1], &answer(&outcome.1));
        assert_eq!(verdict, PASS);
        assert_eq!(back[30..34], sent[26..30], "back to who asked");
        assert_eq!(back[36..38], sent[34..36], "and to the port it came from");
        let covered = &back[26..];
        let pseudo = sum(&back[26..34]) + 17 + 12;
        assert_eq!(fold(sum(&covered[8..20]) + pseudo), 0xffff, "checksum");
    }
}

#[test]
fn a_small_pool_is_used_up_to_its_last_port() {
    let text = "connections 1000\nadd-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 map udp-sport 20000-20009 accept\n";
    let Some(mut bed) = Bed::new(text, 1) else {
        return;
    };
    let verdicts: Vec<u32> = (0..12)
        .map(|i| bed.send(&udp([10, 0, 0, i], 5000, [198, 51, 100, 7], 53)))
        .collect();
    assert_eq!(verdicts, [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1]);
    assert_eq!(bed.reasons().reason[Reason::PoolBusy as usize], 2);
    bed.check();
    // To another place every port is free again.
    assert_eq!(
        bed.send(&udp([10, 0, 0, 10], 5000, [198, 51, 100, 8], 53)),
        PASS
    );
}

#[test]
fn a_flood_does_not_push_out_connections_that_were_answered() {
    let text = "connections 1000\nadd-stateful ip-saddr 10.0.0.0/8 accept\nall drop\n";
    let Some(mut bed) = Bed::new(text, 1) else {
        return;
    };
    let honest: Vec<Vec<u8>> = (0..500u16)
        .map(|i| {
            udp(
                [10, 1, (i >> 8) as u8, i as u8],
                5000,
                [198, 51, 100, 7],
                53,
            )
        })
        .collect();
    for frame in &honest {
        assert_eq!(bed.send(frame), PASS);
        assert_eq!(bed.send(&answer(frame)), PASS);
    }
    for i in 0..20_000u32 {
        let [_, a, b, c] = i.to_be_bytes();
        bed.send(&udp([10, 100 + a, b, c], 6000, [198, 51, 100, 7], 53));
    }
    bed.check();
    let stats = bed.reasons();
    eprintln!(
        "flood of 20,000: {} displaced, {} refused",
        stats.reason[Reason::FlowDisplaced as usize],
        stats.reason[Reason::FlowFull as usize]
    );
    assert!(stats.reason[Reason::FlowDisplaced as usize] > 15_000);
    for frame in &honest {
        assert_eq!(bed.send(&answer(frame)), PASS, "still there");
    }
}

#[test]
fn a_table_full_of_answered_connections_refuses_and_says_so() {
    let text = "connections 100\nadd-stateful ip-saddr 10.0.0.0/8 accept\nall drop\n";
    let Some(mut bed) = Bed::new(text, 1) else {
        return;
    };
    let mut open = Vec::new();
    for i in 0..2000u16 {
        let frame = udp(
            [10, 1, (i >> 8) as u8, i as u8],
            5000,
            [198, 51, 100, 7],
            53,
        );
        if bed.send(&frame) == PASS {
            assert_eq!(bed.send(&answer(&frame)), PASS);
            open.push(frame);
        }
    }
    bed.check();
    let stats = bed.reasons();
    let full = stats.reason[Reason::FlowFull as usize];
    eprintln!("{} connections, then {full} refused", open.len());
    assert!(open.len() >= 100, "at least what was asked for");
    assert_eq!(full as usize + open.len(), 2000);
    assert_eq!(
        stats.received,
        stats.verdict.iter().sum::<u64>(),
        "balanced"
    );
    for frame in &open {
        assert_eq!(bed.send(&answer(frame)), PASS, "untouched");
    }
}
