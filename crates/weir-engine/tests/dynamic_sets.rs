//! Sets that packets fill: every engine agrees with the reference about who is in them, until when, and who gives way where they are full.
//!
//! `WEIR_CASES` sets the number of scripts (default 100).

use crate::common::{Coverage, Sample, cases, config, disagreement, engines, policy};
use proptest::prelude::*;
use weir_engine::{EngineKind, ReplayHook, ReplayOptions};
use weir_packet::Reason;

/// A UDP packet in an Ethernet frame, with valid checksums: UDP without one.
fn udp(source: u32, destination: u32, port: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    ip.extend(source.to_be_bytes());
    ip.extend(destination.to_be_bytes());
    let sum: u32 = (ip.chunks(2))
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend(9u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame
}

fn udp6(source: u128, destination: u128, port: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
    frame.extend(source.to_be_bytes());
    frame.extend(destination.to_be_bytes());
    frame.extend(9u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0, 8, 0x12, 0x34]);
    frame
}

fn sample(frame: Vec<u8>, now_ns: u64) -> Sample {
    Sample {
        frame,
        now_ns,
        port: 0,
        queue: 0,
    }
}

const SECOND: u64 = 1_000_000_000;

const KNOCK: &str = "set one = dynamic timeout 5s\nset two = dynamic timeout 5s\nset open = dynamic timeout 10s size 100\n\
    udp-dport 1001 add @one source\nip-saddr in @one udp-dport 1002 add @two source delete @one source\n\
    ip-saddr in @two udp-dport 1003 add @open source\nip-saddr in @open accept\nall drop";

#[test]
fn three_knocks_open_in_every_engine() {
    let (host, other, box_) = (0x0a00_0001, 0x0a00_0002, 0xc000_0201);
    let at = |source, port, second: u64| sample(udp(source, box_, port), second * SECOND);
    let samples = [
        at(host, 22, 1),
        at(host, 1001, 2),
        at(host, 1002, 3),
        at(host, 1003, 4),
        at(host, 22, 5),
        at(other, 22, 5),
        // The third knock without the second, and one that comes too late.
        at(other, 1001, 6),
        at(other, 1003, 7),
        at(other, 1002, 11),
        at(other, 1003, 12),
        at(other, 22, 12),
        // 10 s after the third knock.
        at(host, 22, 13),
        at(host, 22, 14),
    ];
    let policy = policy(KNOCK);
    let options = ReplayOptions::default();
    for engine in engines().into_iter().chain([EngineKind::Reference]) {
        let run = crate::common::run(ReplayHook::Xdp, engine, &policy, &options, &samples)
            .expect("planned");
        let passed: Vec<usize> = (run.verdicts.iter().enumerate())
            .filter(|(_, verdict)| **verdict == weir_packet::Verdict::Pass)
            .map(|(n, _)| n)
            .collect();
        assert_eq!(passed, [4, 11], "{engine:?}");
    }
}

#[test]
fn sources_of_a_flood_displace_the_oldest_and_nothing_else() {
    let all: Vec<EngineKind> = (engines().into_iter())
        .chain([EngineKind::Reference])
        .collect();
    flood_displaces_the_oldest(20_000, &all);
}

#[test]
fn a_million_sources_displace_the_oldest_and_nothing_else() {
    if std::env::var("WEIR_LONG").as_deref() == Ok("1") {
        // The interpreter has its part above; a million packets take it too long.
        let mut all = engines();
        all.retain(|kind| *kind != EngineKind::User);
        all.push(EngineKind::Reference);
        flood_displaces_the_oldest(1_000_000, &all);
    }
}

/// The set is made for one in twenty of the sources.
fn flood_displaces_the_oldest(sources: u32, all: &[EngineKind]) {
    let size = sources / 20;
    let policy = policy(&format!(
        "set seen = dynamic size {size} timeout 1h\nip-saddr in @seen log \"again\"\nall add @seen source"
    ));
    let options = ReplayOptions::default();
    // Five times as many sources as there are places, then the latest ones once more.
    let mut samples: Vec<Sample> = (0..sources)
        .map(|n| sample(udp(0x0a00_0000 + n, 1, 7), u64::from(n) * 1000))
        .collect();
    let latest = sources - 500..sources;
    samples.extend(latest.map(|n| sample(udp(0x0a00_0000 + n, 1, 7), SECOND)));
    let mut seen = None;
    for &engine in all {
        let run = crate::common::run(ReplayHook::Xdp, engine, &policy, &options, &samples)
            .expect("planned");
        let again = run.counters[0].packets;
        let displaced = run.stats.reason[Reason::SetDisplaced as usize];
        assert!(
            again >= 499,
            "{engine:?}: {again} of the latest 500 were known"
        );
        let places = u64::from(size) / 2 * 8;
        assert_eq!(
            u64::from(sources) - displaced,
            places + 500 - again,
            "{engine:?}: of {places} places"
        );
        assert_eq!(
            *seen.get_or_insert((again, displaced)),
            (again, displaced),
            "{engine:?}"
        );
    }
}

/// Rules that only fill sets, or only test them, load as well.
#[test]
fn sets_may_be_filled_only_or_tested_only() {
    let options = ReplayOptions::default();
    let samples = [1, 2].map(|n| sample(udp(n, n + 1, 7), SECOND));
    for (text, matched) in [
        ("set s = dynamic\nall add @s source", 2),
        ("set s = dynamic\nip-saddr in @s drop", 0),
        ("set s = dynamic\n! ip-saddr in @s ip-daddr 0.0.0.2 drop", 1),
    ] {
        let policy = policy(text);
        for engine in engines().into_iter().chain([EngineKind::Reference]) {
            for hook in [ReplayHook::Xdp, ReplayHook::Tc] {
                // Programs of tc have no native code.
                if (hook, engine) == (ReplayHook::Tc, EngineKind::UserJit) {
                    continue;
                }
                let run = crate::common::run(hook, engine, &policy, &options, &samples)
                    .unwrap_or_else(|e| panic!("{text}: {engine:?}: {e}"));
                assert_eq!(run.counters[0].packets, matched, "{text}: {engine:?}");
            }
        }
    }
}

fn address() -> impl Strategy<Value = Sample> {
    let v4 =
        (0u32..24, 0u32..6, 0u16..8).prop_map(|(s, d, p)| udp(0x0a00_0000 + s, 0x0a00_0000 + d, p));
    let v6 =
        (0u128..12, 0u128..4, 0u16..8).prop_map(|(s, d, p)| udp6(s << 64 | 7, 0x0a00_0000 + d, p));
    let frame = prop_oneof![2 => v4, 1 => v6];
    (frame, 0u64..60).prop_map(|(frame, gap)| sample(frame, gap * SECOND / 20))
}

/// One bucket of which all is taken, elements for good among those that end, tests of all addresses.
const FULL: &str = "set one = dynamic size 1 timeout 2s\nset two = dynamic size 3\n\
    udp-dport 1 add @one source\nudp-dport 2 add @one destination 5s\nudp-dport 3 add @one source 1h\n\
    udp-dport 4 delete @one source\nudp-dport 5 add @two source add @one destination\nudp-dport 6 add @two destination 3s\n\
    udp-dport 7 delete @two destination delete @one source\nip-saddr in @one log \"s4\"\nip-daddr in @one log \"d4\"\n\
    ip6-saddr in @one log \"s6\"\n! ip6-daddr in @one log \"d6\"\nip-saddr in @two drop\n! ip-saddr in @two ip-daddr in @two log \"two\"\n\
    ip6-saddr in @two reject\neth-saddr in @two log \"mac\"\nudp-sport 9 ip-daddr 10.0.0.3 add @two eth-saddr 100ms";

#[test]
fn full_buckets_are_the_same_in_every_engine() {
    let cases = cases(100);
    let engines = engines();
    let policy = policy(FULL);
    let options = ReplayOptions::default();
    let strategy = prop::collection::vec(address(), 200);
    let mut runner = proptest::test_runner::TestRunner::new(config(cases, file!()));
    let coverage = std::cell::RefCell::new(Coverage::default());
    let notes = std::cell::RefCell::new([0; 2]);
    let result = runner.run(&strategy, |gaps| {
        let mut now_ns = 0;
        let samples: Vec<Sample> = (gaps.into_iter())
            .map(|one| {
                now_ns += one.now_ns;
                Sample { now_ns, ..one }
            })
            .collect();
        let run = crate::common::run(
            ReplayHook::Xdp,
            EngineKind::Reference,
            &policy,
            &options,
            &samples,
        );
        let stats = run.expect("planned").stats;
        for (sum, reason) in
            (notes.borrow_mut().iter_mut()).zip([Reason::SetDisplaced, Reason::SetFull])
        {
            *sum += stats.reason[reason as usize];
        }
        match disagreement(
            &engines,
            &policy,
            &options,
            &samples,
            &mut coverage.borrow_mut(),
        ) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(difference)),
        }
    });
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    eprintln!("displaced, full: {:?}", notes.borrow());
    assert!(
        notes
            .borrow()
            .iter()
            .all(|count| *count >= u64::from(cases)),
        "{notes:?}"
    );
}
