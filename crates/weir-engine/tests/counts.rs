//! Limits of connections at a time under a flood of sources, in every engine: whoever is above stays above, what finds no room is refused
//! and counted, and what has ended makes room.

use std::sync::Arc;

use weir_engine::{EngineKind, Packet, ReplayHook, ReplayOptions};
use weir_functions::plan::Port;
use weir_packet::build::Frame;
use weir_packet::{Reason, Verdict};
use weir_policy::model::Policy;

use crate::common::{engines, policy, tc_engines};

/// Sources that send one packet each.
const SOURCES: u32 = 5_000;
/// `limits 64`: so many buckets of four names.
const NAMES: u32 = 256;

/// What one engine did.
#[derive(Debug, PartialEq, Eq)]
struct Flooded {
    /// Whether each packet of the source that has all its connections open passed.
    heavy: Vec<bool>,
    /// Packets of the flood that passed.
    passed: u32,
    /// Whether another source had a connection when the flood was over.
    late: bool,
    dropped: u64,
    full: u64,
}

fn from(source: [u8; 4], port: u16) -> Vec<u8> {
    Frame::new()
        .ip4(source, [192, 0, 2, 1])
        .udp(port, 53)
        .payload(b"flood")
        .build()
}

fn flood(hook: ReplayHook, kind: EngineKind, policy: &Arc<Policy>) -> Flooded {
    let options = ReplayOptions {
        ports: vec![Port {
            number: 1,
            name: Some("eth0".to_owned()),
            index: 2,
        }],
        ..ReplayOptions::default()
    };
    let mut engine = weir_engine::open_for(hook, kind, policy, &options).expect("loads");
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
    let start = 1_000_000_000u64;
    let heavy = [10, 0, 0, 1];
    let mut done = Flooded {
        heavy: vec![judge(&from(heavy, 1), start), judge(&from(heavy, 2), start)],
        passed: 0,
        late: false,
        dropped: 0,
        full: 0,
    };
    for n in 0..SOURCES {
        let now_ns = start + u64::from(n) * 1000;
        let [_, _, a, b] = n.to_be_bytes();
        done.passed += u32::from(judge(&from([11, 0, a, b], 1), now_ns));
        if n % 50 == 0 {
            done.heavy
                .push(judge(&from(heavy, 3 + (n % 1000) as u16), now_ns));
        }
    }
    // All connections are dead by then.
    let late = start + 600_000_000_000;
    done.late = (0..8).all(|n| judge(&from([12, 0, 0, n], 1), late));
    let (stats, _) = engine.totals().expect("reads");
    assert_eq!(stats.received, number);
    done.dropped = stats.reason[Reason::RuleDrop as usize];
    done.full = stats.reason[Reason::LimitFull as usize];
    done
}

#[test]
fn a_flood_of_sources_lets_nobody_in_above_the_limit() {
    let policy = policy(
        "limits 64\nadd-stateful udp timeout 20s\nudp-dport 53 drop over 2 connections per source",
    );
    for hook in [ReplayHook::Xdp, ReplayHook::Tc] {
        let reference = flood(hook, EngineKind::Reference, &policy);
        let kinds = match hook {
            ReplayHook::Tc => tc_engines(),
            _ => engines(),
        };
        for kind in kinds {
            assert_eq!(flood(hook, kind, &policy), reference, "{hook:?} {kind:?}");
        }
        assert_eq!(reference.heavy[..2], [true, true]);
        assert!(!reference.heavy[2..].contains(&true));
        assert!(reference.passed < NAMES, "{}", reference.passed);
        // Of 5,000 sources nearly every bucket met more than four.
        assert!(reference.passed > NAMES * 9 / 10, "{}", reference.passed);
        assert_eq!(u64::from(SOURCES - reference.passed), reference.full);
        assert_eq!(reference.dropped, reference.heavy.len() as u64 - 2);
        assert!(reference.late);
    }
}
