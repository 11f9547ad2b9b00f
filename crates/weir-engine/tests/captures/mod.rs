//! Captures and example policies that tests read: the project's own always, those of other projects when they are there.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use weir_packet::pcap::{Capture, CaptureError};

use crate::common::Sample;

/// One in so many captures meets a policy unless `WEIR_LONG=1`.
const DEALT: usize = 7;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// All captures.
pub(crate) fn captures() -> Vec<PathBuf> {
    let mut paths = files(&Path::new(ROOT).join("tests/captures"));
    for folder in ["pcaps", "zeek-traces"] {
        if let Some(folder) = weir_testdata::find(folder) {
            paths.extend(files(&folder));
        }
    }
    paths
}

/// The example policies.
pub(crate) fn examples() -> Vec<PathBuf> {
    let mut policies = files(&Path::new(ROOT).join("examples"));
    policies.retain(|p| p.extension().is_some_and(|e| e == "weir"));
    assert!(!policies.is_empty(), "examples/ holds policies");
    policies
}

/// Every second example policy, from `first` on; all of them in the long form (`WEIR_LONG=1`). Graphs on tc take one half, graphs on XDP the
/// other: each policy runs in the kernel in a graph of one of the two, and by itself on both hooks.
pub(crate) fn half_of_examples(first: usize) -> Vec<PathBuf> {
    let step = if std::env::var_os("WEIR_LONG").is_some() {
        1
    } else {
        2
    };
    examples()
        .into_iter()
        .skip(first % step)
        .step_by(step)
        .collect()
}

/// Packets that a policy meets, by capture: all in the long form (`WEIR_LONG=1`), else one capture in [`DEALT`]. The policy's number says where
/// it begins, so that every capture meets a share of the policies.
pub(crate) fn dealt(all: &[Vec<Sample>], policy: usize) -> impl Iterator<Item = &[Sample]> {
    let long = std::env::var_os("WEIR_LONG").is_some();
    let step = if long { 1 } else { DEALT };
    let begin = policy % step;
    all.iter().skip(begin).step_by(step).map(Vec::as_slice)
}

/// The packets of a capture as Ethernet frames, up to where it can be read, as they come in by port 1; `None` for files of which none can be made.
pub(crate) fn ethernet(path: &Path) -> Option<Vec<Sample>> {
    let mut capture = Capture::open(BufReader::new(File::open(path).ok()?)).ok()?;
    let mut samples = Vec::new();
    loop {
        let packet = match capture.next_frame() {
            Ok(Some(packet)) => packet,
            Err(CaptureError::UnsupportedLinkType { .. }) => return None,
            _ => return Some(samples),
        };
        samples.push(Sample {
            frame: packet.data.to_vec(),
            now_ns: packet.timestamp_ns,
            port: 1,
            queue: 0,
        });
    }
}

/// All files below a folder, sorted; none if it is not there.
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
