//! Limits for each source under a flood of a million sources, in every engine: their tables have the size that the policy says, sources
//! above their limit are held, what is displaced is counted, and all engines displace the same.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

use std::sync::Arc;

use weir_engine::{EngineKind, Packet, ReplayHook, ReplayOptions};
use weir_functions::plan::Port;
use weir_packet::build::Frame;
use weir_packet::{Reason, Verdict};
use weir_policy::model::Policy;

use crate::common::{engines, policy};

/// Sources that send one packet each, one every microsecond.
const SOURCES: u32 = 1_000_000;
/// Sources that send one packet every millisecond.
const HEAVY: usize = 100;
/// Packets of the flood between two of them.
const BETWEEN: u32 = 10;
/// 10 a second, 3 at once.
const PERIOD_NS: u64 = 100_000_000;
const BURST: u64 = 3;

/// What one engine did.
#[derive(Debug, PartialEq, Eq)]
struct Flooded {
    /// Of each heavy source: whether each of its packets passed.
    heavy: Vec<Vec<bool>>,
    /// Packets of the flood that passed.
    passed: u32,
    displaced: u64,
    dropped: u64,
}

fn options() -> ReplayOptions {
    ReplayOptions {
        ports: vec![Port {
            number: 1,
            name: Some("eth0".to_owned()),
            index: 2,
        }],
        ..ReplayOptions::default()
    }
}

fn from(source: [u8; 4]) -> Vec<u8> {
    Frame::new()
        .ip4(source, [192, 0, 2, 1])
        .udp(5000, 53)
        .payload(b"flood")
        .build()
}

fn flood(kind: EngineKind, policy: &Arc<Policy>) -> Flooded {
    let mut engine =
        weir_engine::open_for(ReplayHook::Xdp, kind, policy, &options()).expect("loads");
    let mut done = Flooded {
        heavy: vec![Vec::new(); HEAVY],
        passed: 0,
        displaced: 0,
        dropped: 0,
    };
    let (mut number, mut out) = (0, Vec::new());
    let mut judge = |frame: &[u8], now_ns| {
        let packet = Packet {
            frame,
            now_ns,
            number,
            port: 1,
            queue: 0,
        };
        number += 1;
        engine.packet(&packet, &mut out).expect("runs") == Verdict::Pass
    };
    let heavy: Vec<Vec<u8>> = (0..HEAVY as u8).map(|n| from([10, 0, 0, n])).collect();
    for n in 0..SOURCES {
        let now_ns = 1_000_000_000 + u64::from(n) * 1000;
        if n % BETWEEN == 0 {
            let at = (n / BETWEEN) as usize % HEAVY;
            done.heavy[at].push(judge(&heavy[at], now_ns));
        }
        let [_, a, b, c] = n.to_be_bytes();
        done.passed += u32::from(judge(&from([11, a, b, c]), now_ns));
    }
    let (stats, _) = engine.totals().expect("reads");
    assert_eq!(stats.received, number);
    done.displaced = stats.reason[Reason::LimitDisplaced as usize];
    done.dropped = stats.reason[Reason::RuleDrop as usize];
    done
}

/// What a word of its own would let through of packets a millisecond apart.
fn alone(packets: usize) -> Vec<bool> {
    let (mut tat, mut now) = (0u64, 1_000_000_000);
    let judge = (0..packets).map(|_| {
        let base = tat.max(now);
        let within = base - now <= PERIOD_NS * (BURST - 1);
        if within {
            tat = base + PERIOD_NS;
        }
        now += 1_000_000;
        within
    });
    judge.collect()
}

fn all_engines(policy: &Arc<Policy>) -> Flooded {
    let reference = flood(EngineKind::Reference, policy);
    for kind in engines() {
        // The interpreter's part is in the agreement tests; a million packets take it too long.
        if kind != EngineKind::User {
            assert_eq!(flood(kind, policy), reference, "{kind:?}");
        }
    }
    eprintln!(
        "of {SOURCES} sources {} displaced another; {} packets of {HEAVY} heavy sources passed, {} were dropped",
        reference.displaced,
        reference
            .heavy
            .iter()
            .flatten()
            .filter(|passed| **passed)
            .count(),
        reference.dropped
    );
    reference
}

/// Bytes of the tables that a policy plans.
fn table_bytes(policy: &Policy) -> usize {
    let (plan, _) = weir_functions::middlebox::plan(policy, &[]).expect("planned");
    let map = plan.maps.iter().find(|map| map.name == "meters");
    map.map_or(0, |map| map.max_entries as usize * map.value_size)
}

#[test]
fn a_million_sources_do_not_free_those_above_their_limit() {
    let policy = policy("udp-dport 53 drop over 10/s burst 3 per source");
    assert_eq!(table_bytes(&policy), 4 << 20);
    let done = all_engines(&policy);
    // Nobody's first packet is above.
    assert_eq!(done.passed, SOURCES);
    // A tenth of a second of the flood, 100,000 words, is in use at a time in 65,536 buckets: 5 % of what comes meets a full one
    // (Erlang B), and more where words that are due still lie.
    let displaced = done.displaced;
    assert!(
        (u64::from(SOURCES) / 30..u64::from(SOURCES) / 10).contains(&displaced),
        "{displaced}"
    );
    for (n, heavy) in done.heavy.iter().enumerate() {
        assert_eq!(*heavy, alone(heavy.len()), "heavy source {n}");
    }
}

#[test]
fn a_table_that_is_far_too_small_displaces_sources_below_their_limit_first() {
    let policy = policy("limits 1000\nudp-dport 53 drop over 10/s burst 3 per source");
    assert_eq!(table_bytes(&policy), 64 << 10);
    let done = all_engines(&policy);
    assert_eq!(done.passed, SOURCES);
    assert!(done.displaced > u64::from(SOURCES) * 9 / 10);
    let mut began_anew = 0;
    for (n, heavy) in done.heavy.iter().enumerate() {
        let first = heavy
            .iter()
            .position(|passed| !passed)
            .expect("was above once");
        began_anew += usize::from(first as u64 > BURST);
        // From then on it is held: one packet for each period.
        let rest = &heavy[first..];
        let passed = rest.iter().filter(|passed| **passed).count();
        let most = rest.len() as u64 * 1_000_000 / PERIOD_NS + 1;
        assert!(
            passed as u64 <= most,
            "heavy source {n}: {passed} of {most}"
        );
    }
    eprintln!("{began_anew} of {HEAVY} heavy sources began anew before they were above once");
}
