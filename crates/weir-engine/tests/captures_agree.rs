//! Real captures through every example policy: all engines give the reference's verdicts, bytes, log lines and counters.
//!
//! Where a policy keeps connections, captures follow each other a day apart: time that goes back is nothing engines agree on.
//! Captures come from ../shared/data when it is there; the project's own (tests/captures) always.

mod common;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use common::{Coverage, Sample, disagreement, engines};
use weir_engine::ReplayOptions;
use weir_functions::plan::{ChecksumMode, Port};
use weir_packet::pcap::Capture;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn every_capture_is_treated_alike_by_every_engine_with_every_example() {
    let engines = engines();
    let mut captures = files(&Path::new(ROOT).join("tests/captures"));
    let own = captures.len();
    for folder in ["pcaps", "zeek-traces"] {
        captures.extend(files(&Path::new(ROOT).join("../shared/data").join(folder)));
    }
    if captures.len() == own {
        eprintln!("../shared/data is not here: only the project's own captures are replayed");
    }
    let samples: Vec<(PathBuf, Vec<Sample>)> = captures
        .into_iter()
        .filter_map(|path| ethernet(&path).map(|s| (path, s)))
        .filter(|(_, s)| !s.is_empty())
        .collect();
    let mut policies: Vec<PathBuf> = files(&Path::new(ROOT).join("examples"))
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "weir"))
        .collect();
    policies.sort();
    assert!(!policies.is_empty(), "examples/ holds policies");
    let mut coverage = Coverage::default();
    for path in &policies {
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
            let captures = samples.iter().map(|(_, s)| s.as_slice());
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

/// All files below a folder; none if it is not there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return found;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The packets of an Ethernet capture, up to where it can be read; `None` for other files.
fn ethernet(path: &Path) -> Option<Vec<Sample>> {
    let mut capture = Capture::open(BufReader::new(File::open(path).ok()?)).ok()?;
    let mut samples = Vec::new();
    while let Ok(Some(packet)) = capture.next_packet() {
        if packet.interface.require_ethernet().is_err() {
            return None;
        }
        samples.push(Sample {
            frame: packet.data.to_vec(),
            now_ns: packet.timestamp_ns,
            port: 1,
            queue: 0,
        });
    }
    Some(samples)
}
