//! `ttl dec`: every engine does what the reference does, on either hook of a replay, in policies with and without connections.

#![allow(
    clippy::print_stderr,
    reason = "what was compared is said where the test runs"
)]

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::{cases, config, engines, is_taken, policy, said, tc_engines};
use weir_engine::{EngineKind, ReplayHook};
use weir_packet::Reason;

fn rule() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => Just("all ttl dec"),
        1 => Just("ip-ttl <= 2 ttl dec accept"),
        1 => Just("tcp ttl dec log"),
        1 => Just("udp ttl dec ttl dec"),
        1 => Just("icmp6 drop ttl dec"),
        1 => Just("ip-ttl > 60 mod ip-ttl 1 ttl dec"),
        1 => Just("udp mod ip6-hop-limit 5 ttl dec mod udp-payload[0] x0102"),
        1 => Just("add-stateful all ttl dec"),
        1 => Just("add-stateful tcp ttl dec mod ip-dscp 5"),
        1 => Just("add-stateful udp drop ttl dec"),
        1 => Just("add-stateful ip-ttl 1 accept"),
        1 => Just("add-stateful udp map udp-sport 1024-2000 ttl dec"),
        1 => Just("tcp strip all ttl dec"),
    ]
}

/// The frame with its TTL or hop limit almost used up, where it is IP right behind the Ethernet header.
fn worn(mut frame: Vec<u8>, left: u8) -> Vec<u8> {
    match frame.get(12..15) {
        Some([0x08, 0x00, 0x45]) if frame.len() >= 34 => {
            let [high, low] = (u16::from(frame[22]) << 8 | u16::from(frame[23])).to_be_bytes();
            let old = u16::from_be_bytes([high, low]);
            let new = u16::from_be_bytes([left, low]);
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            let sum = weir_packet::checksum::update(sum, u64::from(old), u64::from(new));
            frame[22] = left;
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        Some([0x86, 0xdd, _]) if frame.len() >= 54 => frame[21] = left,
        _ => {}
    }
    frame
}

#[test]
fn engines_agree_on_decrements() {
    let cases = cases(20);
    let frame = (weir_packet::generate::frame(), 0u8..8).prop_map(|(frame, left)| match left {
        0..=3 => worn(frame, left),
        _ => frame,
    });
    let strategy = (
        weir_policy::generate::policy_text(),
        prop::collection::vec(rule(), 1..5),
        prop::collection::vec(frame, 60),
    );
    let mut runner = TestRunner::new(config(cases, file!()));
    let (expired, dropped) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let result = runner.run(&strategy, |(text, rules, frames)| {
        let policy = policy(&[text, rules.join("\n")].join("\n"));
        // Each packet twice, so that connections have more than one.
        let mut frames: Vec<Vec<u8>> = [&frames[..], &frames[..]].concat();
        for (hook, engines) in [(ReplayHook::Xdp, engines()), (ReplayHook::Tc, tc_engines())] {
            frames.retain(|frame| hook == ReplayHook::Xdp || is_taken(frame));
            let wanted = said(hook, EngineKind::Reference, &policy, &frames);
            for kind in engines {
                let found = said(hook, kind, &policy, &frames);
                prop_assert_eq!(&wanted, &found, "{:?} on {:?}", kind, hook);
            }
            let Ok((_, reasons)) = wanted else {
                continue;
            };
            expired.set(expired.get() + reasons[Reason::TtlExpired as usize]);
            dropped.set(dropped.get() + reasons[Reason::RuleDrop as usize]);
        }
        Ok(())
    });
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    let met = (expired.get(), dropped.get());
    assert!(met.0 > 0 && met.1 > 0, "{met:?}");
    eprintln!("{cases} policies: expired and dropped by rules {met:?}: all engines agree");
}
