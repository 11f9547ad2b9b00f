//! Generated policies over generated packets: every engine gives the reference's verdicts, bytes, log lines and counters. So it
//! does where policies keep connections and packets are conversations.
//!
//! `WEIR_CASES` sets the number of policies (default 400, and 150 that keep connections, 100 packets each; 50 with helpers, 400 packets each). Failing
//! cases shrink and are kept in tests/engines_agree.regressions.

use crate::common::{
    Connected, Coverage, Sample, TRANSFER_PACKETS, TRANSFERS, cases, config, disagreement, engines,
    fixed_sample, play, policy,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use weir_engine::{EngineKind, ReplayHook, ReplayOptions};
use weir_functions::plan::{ChecksumMode, Port};

const PACKETS: usize = 100;

fn sample() -> impl Strategy<Value = Sample> {
    let frame = weir_packet::generate::frame();
    (frame, 0u64..2_000_000_000, 0u32..3, 0u16..3).prop_map(|(frame, now_ns, port, queue)| Sample {
        frame,
        now_ns,
        port,
        queue,
    })
}

fn options() -> impl Strategy<Value = ReplayOptions> {
    let checksums = prop_oneof![Just(ChecksumMode::Complete), Just(ChecksumMode::Offloaded)];
    let mtu = prop_oneof![3 => Just(None), 1 => (40u32..120).prop_map(Some), 1 => Just(Some(1500))];
    (checksums, mtu, any::<u64>()).prop_map(|(checksums, mtu, seed)| ReplayOptions {
        checksums,
        mtu,
        seed,
        ports: vec![
            Port {
                number: 1,
                name: Some("eth0".to_owned()),
                index: 2,
            },
            Port {
                number: 2,
                name: Some("eth1".to_owned()),
                index: 3,
            },
        ],
    })
}

#[test]
fn generated_policies_do_the_same_to_generated_packets_in_every_engine() {
    let cases = cases(200);
    let engines = engines();
    let coverage = packets(TestRunner::new(config(cases, file!())), &engines);
    eprintln!("{cases} policies x {PACKETS} packets: reference and {engines:?} agree\n{coverage}");
}

#[test]
fn generated_packets_meet_every_reason() {
    let policies = 1000;
    packets(fixed_sample(policies), &[]).demand(policies);
}

/// Generated packets under generated policies: engines do what the reference does.
fn packets(mut runner: TestRunner, engines: &[EngineKind]) -> Coverage {
    let strategy = (
        weir_policy::generate::policy_text(),
        options(),
        prop::collection::vec(sample(), PACKETS),
    );
    let coverage = std::cell::RefCell::new(Coverage::default());
    let result = runner.run(&strategy, |(text, options, samples)| {
        let policy = policy(&text);
        match disagreement(
            engines,
            &policy,
            &options,
            &samples,
            &mut coverage.borrow_mut(),
        ) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(format!(
                "{difference}\npolicy:\n{text}"
            ))),
        }
    });
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    coverage.into_inner()
}

#[test]
fn generated_connections_are_the_same_in_every_engine() {
    let cases = cases(75);
    let engines = engines();
    let (coverage, connected) = conversations(TestRunner::new(config(cases, file!())), &engines);
    eprintln!(
        "{cases} policies x {PACKETS} packets: reference and {engines:?} agree\n{coverage}\n{connected:?}"
    );
}

#[test]
fn conversations_meet_what_connections_can_meet() {
    let policies = 400;
    let (coverage, connected) = conversations(fixed_sample(policies), &[]);
    coverage.demand_connections(policies);
    connected.demand();
}

/// Generated conversations under generated policies: engines do what the reference does.
fn conversations(mut runner: TestRunner, engines: &[EngineKind]) -> (Coverage, Connected) {
    let strategy = (
        weir_policy::generate::stateful_policy_text(),
        options(),
        weir_packet::generate::conversations(PACKETS),
    );
    let coverage = std::cell::RefCell::new(Coverage::default());
    let connected = std::cell::RefCell::new(Connected::default());
    let result = runner.run(&strategy, |(text, options, script)| {
        let policy = policy(&text);
        let samples = play(ReplayHook::Xdp, &policy, &options, &script, |_| true);
        if let Ok(samples) = &samples {
            connected.borrow_mut().count(&policy, options.seed, samples);
        }
        // What cannot be planned is refused alike.
        let samples = samples.unwrap_or_default();
        match disagreement(
            engines,
            &policy,
            &options,
            &samples,
            &mut coverage.borrow_mut(),
        ) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(format!(
                "{difference}\npolicy:\n{text}"
            ))),
        }
    });
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    (coverage.into_inner(), connected.into_inner())
}

#[test]
fn what_helpers_expect_is_the_same_in_every_engine() {
    let cases = cases(50);
    let engines = engines();
    let (coverage, connected) = transfers(TestRunner::new(config(cases, file!())), &engines);
    eprintln!(
        "{cases} policies x {TRANSFER_PACKETS} packets: reference and {engines:?} agree\n{coverage}\n{connected:?}"
    );
}

#[test]
fn transfers_meet_what_helpers_expect() {
    transfers(fixed_sample(60), &[]).1.demand_expected(20);
}

/// Generated transfers under policies with helpers: engines do what the reference does.
fn transfers(mut runner: TestRunner, engines: &[EngineKind]) -> (Coverage, Connected) {
    let strategy = (
        proptest::sample::select(TRANSFERS),
        options(),
        weir_packet::generate::transfers(TRANSFER_PACKETS),
    );
    let coverage = std::cell::RefCell::new(Coverage::default());
    let connected = std::cell::RefCell::new(Connected::default());
    let result = runner.run(&strategy, |(text, options, script)| {
        let policy = policy(text);
        let samples = play(ReplayHook::Xdp, &policy, &options, &script, |_| true).expect("planned");
        connected
            .borrow_mut()
            .count(&policy, options.seed, &samples);
        match disagreement(
            engines,
            &policy,
            &options,
            &samples,
            &mut coverage.borrow_mut(),
        ) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(format!(
                "{difference}\npolicy:\n{text}"
            ))),
        }
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    (coverage.into_inner(), connected.into_inner())
}
