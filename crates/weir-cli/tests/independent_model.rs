//! `weir replay` beside an independent model of the policy language: another language, another packet library (scapy), another generator,
//! written from the documentation alone (`model/model.py`). Verdicts and bytes of packets, counters of rules, and notes of what limits and sets
//! displace are compared.

use std::path::Path;
use std::process::Command;

use crate::common::{Folder, WEIR, long, say};

/// Verdicts of a run, and of one with WEIR_LONG=1.
const VERDICTS: u64 = 40_000;
const VERDICTS_LONG: u64 = 1_000_000;

/// A Python that has scapy; a version manager's own need not have Debian's packages.
fn python() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let out = Command::new(python).args(["-c", "import scapy"]).output();
        out.is_ok_and(|out| out.status.success())
    })
}

#[test]
fn an_independent_model_reaches_the_same_verdicts() {
    let Some(python) = python() else {
        weir_testdata::not_run("no Python with scapy; install python3-scapy");
        return;
    };
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model/model.py");
    let folder = Folder::new();
    // A long run draws other packets and policies each time; its seed is in its first line.
    let seed = if long() {
        u64::from(std::process::id())
    } else {
        1
    };
    let wanted = if long() { VERDICTS_LONG } else { VERDICTS };
    say(&format!("independent model: seed {seed}"));
    let out = Command::new(python)
        .arg("-B")
        .arg(model)
        .args([WEIR, &wanted.to_string(), &seed.to_string()])
        .arg(folder.path())
        .output()
        .expect("Python runs");
    let told = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "seed {seed}\n{told}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    say(told.trim_end());
}
