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

#[test]
fn limits_have_their_tables() {
    let path = std::env::temp_dir().join(format!("weir-limits-{}.weir", std::process::id()));
    let policy = "limits 1000\nadd-stateful tcp-dport { 22, 25 } timeout 1h\ntcp-dport 22 drop over 3 connections per source\n\
        tcp-dport 25 drop over 2 connections\nudp drop over 10/s per pair\nicmp drop over 5/s\n";
    std::fs::write(&path, policy.replace("tcp-dport {", "tcp-dport in {")).expect("writable");
    let path_text = path.to_str().expect("a name");
    let shown = tables(&[path_text]);
    let json = tables(&[path_text, "--json"]);
    std::fs::remove_file(&path).expect("was there");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    // 1,024 buckets of four names: 32 bytes for the names, 8 for each connection of each.
    for line in [
        "     2  3 connections        4,096        131,072",
        "     3  2 connections            1             96",
        "     4  packets              4,096         65,536",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    let limits = json["limits"].as_array().expect("limits");
    assert_eq!(limits.len(), 3, "{json}");
    assert_eq!(
        (&limits[0]["rule"], &limits[0]["connections"]),
        (&2.into(), &3.into())
    );
    // The maps hold them, one behind the other.
    let bytes = |wanted: &str| {
        let maps = json["maps"].as_array().expect("maps");
        let map = maps.iter().find(|map| map["name"] == wanted).expect(wanted);
        let entries = map["entries"].as_u64().expect("a number");
        map["bytes"].as_u64().expect("a number") - 4 * entries
    };
    let of = |n: usize| limits[n]["bytes"].as_u64().expect("a number");
    assert_eq!(bytes("count_names") + bytes("count_words"), of(0) + of(1));
}
