//! The tc build in the user engine and in the kernel's test runs: the reference's verdicts, bytes, log lines and counters, for captures through every example
//! policy and for generated policies over generated packets. Live traffic is judged by weir-cli/tests/live_checksums.rs: a test run has
//! no unfinished checksums, and of GSO only the numbers.
//!
//! What the kernel's test run does not take is skipped and counted: frames under 14 bytes, IP frames that end inside the fixed
//! header, and frames over 3,400 bytes.

use crate::captures::{captures, dealt, ethernet, examples};
use crate::common::{
    Connected, Coverage, Sample, TRANSFER_PACKETS, TRANSFERS, cases, config, disagreement_on,
    fixed_sample, is_taken, play, policy, tc_engines,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use weir_engine::{EngineKind, ReplayHook, ReplayOptions};
use weir_functions::plan::{ChecksumMode, Port};

fn ports() -> Vec<Port> {
    let port = |number, name: &str, index| Port {
        number,
        name: Some(name.to_owned()),
        index,
    };
    vec![port(1, "eth0", 2), port(2, "eth1", 3)]
}

#[test]
fn captures_through_every_example() {
    let engines = tc_engines();
    let captures = captures();
    let mut samples: Vec<Vec<Sample>> = captures.iter().filter_map(|path| ethernet(path)).collect();
    let frames = |of: &[Vec<Sample>]| of.iter().map(Vec::len).sum::<usize>();
    let all = frames(&samples);
    for capture in &mut samples {
        capture.retain(|sample| is_taken(&sample.frame));
    }
    let taken = frames(&samples);
    let policies = examples();
    assert!(taken > 0);
    let options = ReplayOptions {
        checksums: ChecksumMode::Offloaded,
        mtu: None,
        seed: 7,
        ports: ports(),
    };
    let mut coverage = Coverage::default();
    for (number, path) in policies.iter().enumerate() {
        let parsed = weir_policy::parse_file(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let policy = std::sync::Arc::new(parsed.policy);
        let samples: Vec<Sample> = dealt(&samples, number).flatten().cloned().collect();
        if let Some(difference) = disagreement_on(
            ReplayHook::Tc,
            &engines,
            &policy,
            &options,
            &samples,
            &mut coverage,
        ) {
            panic!("{}: {difference}", path.display());
        }
    }
    eprintln!(
        "{} captures, {} frames of which the test run does not take {}, {} examples: reference and {engines:?} agree\n{coverage}",
        captures.len(),
        all,
        all - taken,
        policies.len()
    );
}

#[test]
fn generated_policies_over_generated_packets() {
    let engines = tc_engines();
    let cases = cases(80);
    let sample = (
        weir_packet::generate::frame(),
        0u64..2_000_000_000,
        0u32..3,
        0u16..3,
    )
        .prop_map(|(frame, now_ns, port, queue)| Sample {
            frame,
            now_ns,
            port,
            queue,
        });
    let mtu = prop_oneof![3 => Just(None), 1 => (40u32..120).prop_map(Some), 1 => Just(Some(1500))];
    let strategy = (
        weir_policy::generate::policy_text(),
        (mtu, any::<u64>()),
        prop::collection::vec(sample, 100),
    );
    let mut runner = TestRunner::new(config(cases, file!()));
    let coverage = std::cell::RefCell::new(Coverage::default());
    let skipped = std::cell::Cell::new(0);
    let result = runner.run(&strategy, |(text, (mtu, seed), mut samples)| {
        let generated = samples.len();
        samples.retain(|sample| is_taken(&sample.frame));
        skipped.set(skipped.get() + generated - samples.len());
        let options = ReplayOptions {
            checksums: ChecksumMode::Offloaded,
            mtu,
            seed,
            ports: ports(),
        };
        match disagreement_on(
            ReplayHook::Tc,
            &engines,
            &policy(&text),
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
        "{cases} policies x 100 packets, {} frames the test run does not take: reference and {engines:?} agree\n{}",
        skipped.get(),
        coverage.borrow()
    );
}

#[test]
fn generated_connections() {
    let engines = tc_engines();
    let cases = cases(45);
    let (coverage, connected) = conversations(TestRunner::new(config(cases, file!())), &engines);
    eprintln!(
        "{cases} policies x 100 packets: reference and {engines:?} agree\n{coverage}\n{connected:?}"
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
    let mtu = prop_oneof![3 => Just(None), 1 => (40u32..120).prop_map(Some)];
    let strategy = (
        weir_policy::generate::stateful_policy_text(),
        (mtu, any::<u64>()),
        weir_packet::generate::conversations(100),
    );
    let coverage = std::cell::RefCell::new(Coverage::default());
    let connected = std::cell::RefCell::new(Connected::default());
    let result = runner.run(&strategy, |(text, (mtu, seed), script)| {
        let options = ReplayOptions {
            checksums: ChecksumMode::Offloaded,
            mtu,
            seed,
            ports: ports(),
        };
        let policy = policy(&text);
        let samples = play(ReplayHook::Tc, &policy, &options, &script, is_taken);
        if let Ok(samples) = &samples {
            connected.borrow_mut().count(&policy, seed, samples);
        }
        // What cannot be planned is refused alike.
        let samples = samples.unwrap_or_default();
        match disagreement_on(
            ReplayHook::Tc,
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
fn what_helpers_expect() {
    let engines = tc_engines();
    let cases = cases(18);
    let connected = transfers(TestRunner::new(config(cases, file!())), &engines);
    eprintln!(
        "{cases} policies x {TRANSFER_PACKETS} packets: reference and {engines:?} agree\n{connected:?}"
    );
}

#[test]
fn transfers_meet_what_helpers_expect() {
    transfers(fixed_sample(60), &[]).demand_expected(20);
}

/// Generated transfers under policies with helpers: engines do what the reference does.
fn transfers(mut runner: TestRunner, engines: &[EngineKind]) -> Connected {
    let strategy = (
        proptest::sample::select(TRANSFERS),
        any::<u64>(),
        weir_packet::generate::transfers(TRANSFER_PACKETS),
    );
    let connected = std::cell::RefCell::new(Connected::default());
    let result = runner.run(&strategy, |(text, seed, script)| {
        let options = ReplayOptions {
            checksums: ChecksumMode::Offloaded,
            mtu: None,
            seed,
            ports: ports(),
        };
        let policy = policy(text);
        let samples = play(ReplayHook::Tc, &policy, &options, &script, is_taken).expect("planned");
        connected.borrow_mut().count(&policy, seed, &samples);
        let difference = disagreement_on(
            ReplayHook::Tc,
            engines,
            &policy,
            &options,
            &samples,
            &mut Coverage::default(),
        );
        match difference {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(format!(
                "{difference}\npolicy:\n{text}"
            ))),
        }
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    connected.into_inner()
}
