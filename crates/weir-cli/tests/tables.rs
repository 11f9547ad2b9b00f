//! `weir tables` says what a packet can cost before anything is loaded, and refuses what could overflow the hit list.

use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn tables(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("tables")
        .args(arguments)
        .output()
        .expect("weir runs")
}

#[test]
fn the_bounds_of_every_example_are_within_the_limits() {
    let mut seen = 0;
    for entry in std::fs::read_dir(format!("{ROOT}/examples")).expect("examples") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|e| e != "weir") {
            continue;
        }
        let output = tables(&[path.to_str().expect("a name"), "--json"]);
        assert!(output.status.success(), "{}: {output:?}", path.display());
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("one JSON object");
        let bound = |name: &str| report["bounds"][name].as_u64().expect("a number");
        assert!(bound("hits") <= bound("hits_limit"), "{report}");
        assert!(bound("probes") <= bound("tables"), "{report}");
        assert!(bound("candidates") >= bound("hits"), "{report}");
        seen += 1;
    }
    assert!(seen > 5, "examples hold policies");
}

#[test]
fn more_rewriting_rules_than_one_packet_can_collect_are_refused_with_the_reason() {
    let path = std::env::temp_dir().join(format!("weir-tables-{}.weir", std::process::id()));
    let rules: String = (0..65)
        .map(|i| format!("ip-ttl > {i} mod ip-dscp {}\n", i % 64))
        .collect();
    std::fs::write(&path, rules).expect("writable");
    let output = tables(&[path.to_str().expect("a name")]);
    std::fs::remove_file(&path).expect("was there");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(
            "65 rules with rewrites or log lines could match one packet, 64 are collected"
        ),
        "{said}"
    );
}
