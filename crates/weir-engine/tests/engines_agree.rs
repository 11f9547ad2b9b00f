//! Generated policies over generated packets: every engine gives the reference's verdicts, bytes, log lines and counters. So it
//! does where policies keep connections and packets are conversations.
//!
//! `WEIR_CASES` sets the number of policies (default 1,000, and 300 that keep connections, 100 packets each; 50 with helpers, 400 packets each). Failing
//! cases shrink and are kept in tests/engines_agree.regressions.

use crate::common::{
    Connected, Coverage, Sample, TRANSFER_PACKETS, TRANSFERS, cases, config, disagreement, engines,
    play, policy,
};
use proptest::prelude::*;
use weir_engine::{ReplayHook, ReplayOptions};
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
    let cases = cases(1000);
    let engines = engines();
    let strategy = (
        weir_policy::generate::policy_text(),
        options(),
        prop::collection::vec(sample(), PACKETS),
    );
    let mut runner = proptest::test_runner::TestRunner::new(config(cases, file!()));
    let coverage = std::cell::RefCell::new(Coverage::default());
    let result = runner.run(&strategy, |(text, options, samples)| {
        let policy = policy(&text);
        match disagreement(
            &engines,
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
    eprintln!(
        "{cases} policies x {PACKETS} packets: reference and {engines:?} agree\n{}",
        coverage.borrow()
    );
    coverage.borrow().demand(cases);
}

#[test]
fn generated_connections_are_the_same_in_every_engine() {
    let cases = cases(300);
    let engines = engines();
    let strategy = (
        weir_policy::generate::stateful_policy_text(),
        options(),
        weir_packet::generate::conversations(PACKETS),
    );
    let mut runner = proptest::test_runner::TestRunner::new(config(cases, file!()));
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
            &engines,
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
    let (coverage, connected) = (coverage.borrow(), connected.borrow());
    eprintln!(
        "{cases} policies x {PACKETS} packets: reference and {engines:?} agree\n{coverage}\n{connected:?}"
    );
    coverage.demand_connections(cases);
    connected.demand(cases);
}

#[test]
fn what_helpers_expect_is_the_same_in_every_engine() {
    let cases = cases(50);
    let engines = engines();
    let strategy = (
        proptest::sample::select(TRANSFERS),
        options(),
        weir_packet::generate::transfers(TRANSFER_PACKETS),
    );
    let mut runner = proptest::test_runner::TestRunner::new(config(cases, file!()));
    let coverage = std::cell::RefCell::new(Coverage::default());
    let connected = std::cell::RefCell::new(Connected::default());
    let result = runner.run(&strategy, |(text, options, script)| {
        let policy = policy(text);
        let samples = play(ReplayHook::Xdp, &policy, &options, &script, |_| true).expect("planned");
        connected
            .borrow_mut()
            .count(&policy, options.seed, &samples);
        match disagreement(
            &engines,
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
    let connected = connected.borrow();
    eprintln!(
        "{cases} policies x {TRANSFER_PACKETS} packets: reference and {engines:?} agree\n{connected:?}"
    );
    connected.demand_expected(20);
}
