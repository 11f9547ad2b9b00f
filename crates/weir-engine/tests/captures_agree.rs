//! Real captures through every example policy: all engines give the reference's verdicts, bytes, log lines and counters. Without `WEIR_LONG=1` a
//! policy meets one capture in seven.
//!
//! Where a policy keeps connections, captures follow each other a day apart: time that goes back is nothing engines agree on.
//! Captures are those of other projects when they are there; the project's own (tests/captures) always.

use crate::captures::{captures, dealt, ethernet, examples};
use crate::common::{Coverage, Sample, disagreement, engines};
use weir_engine::ReplayOptions;
use weir_functions::plan::{ChecksumMode, Port};

#[test]
fn every_capture_is_treated_alike_by_every_engine_with_every_example() {
    let engines = engines();
    let mut samples: Vec<Vec<Sample>> = captures()
        .iter()
        .filter_map(|path| ethernet(path))
        .collect();
    samples.retain(|s| !s.is_empty());
    let policies = examples();
    let mut coverage = Coverage::default();
    for (number, path) in policies.iter().enumerate() {
        let policy = match weir_policy::parse_file(path) {
            Ok(parsed) => std::sync::Arc::new(parsed.policy),
            Err(error) => panic!("{}: {error}", path.display()),
        };
        for checksums in [ChecksumMode::Complete, ChecksumMode::Offloaded] {
            let options = ReplayOptions {
                checksums,
                mtu: None,
                seed: 7,
                ports: vec![Port {
                    number: 1,
                    name: Some("eth0".to_owned()),
                    index: 0,
                }],
            };
            // One run over all captures at a time, so that an engine is opened once a policy; the packet's number tells the capture.
            let captures = dealt(&samples, number);
            let all: Vec<Sample> = if policy.rules.iter().any(|rule| rule.stateful) {
                a_day_apart(captures)
            } else {
                captures.flatten().cloned().collect()
            };
            if let Some(difference) = disagreement(&engines, &policy, &options, &all, &mut coverage)
            {
                panic!("{} with {checksums:?}: {difference}", path.display());
            }
        }
    }
    eprintln!(
        "{} captures x {} examples x 2 checksum modes: reference and {engines:?} agree\n{coverage}",
        samples.len(),
        policies.len()
    );
}

/// One capture behind the other, each begun a day after the one before ended. Times within a capture stay.
fn a_day_apart<'a>(captures: impl Iterator<Item = &'a [Sample]>) -> Vec<Sample> {
    const DAY_NS: u64 = 86_400_000_000_000;
    let mut all: Vec<Sample> = Vec::new();
    let mut end = 0;
    for samples in captures {
        let first = samples.iter().map(|s| s.now_ns).min().unwrap_or(0);
        let start = end + DAY_NS;
        for sample in samples {
            let now_ns = start + (sample.now_ns - first);
            end = end.max(now_ns);
            all.push(Sample {
                now_ns,
                ..sample.clone()
            });
        }
    }
    all
}
