//! The firewall bed as a user runs it: every case through weir on XDP, weir on tc and nftables, and the table of docs/firewall-bed.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::live_bed::root;
use serde_json::Value;

/// Cases that weir does not pass yet, under one policy at least. One that passes must leave this list and the table of the page.
const OPEN: &[&str] = &["traceroute: the box answers the first hop"];
/// Cases in which weir passes what nftables drops, and says why.
const ARGUED: &[&str] = &["data with a wrong checksum"];
const BEGIN: &str = "<!-- table: written by the test `lab_firewall`; WEIR_UPDATE=1 renews it -->\n";
const END: &str = "<!-- end -->\n";

fn firewall(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["lab", "firewall"])
        .args(args)
        .output()
        .expect("it runs");
    (
        output.status.code().expect("a status"),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn file(name: &str, text: &str) -> std::path::PathBuf {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    fs::write(&path, text).expect("cargo's folder is writable");
    path
}

#[test]
fn every_case_is_as_strict_as_nftables_and_none_breaks() {
    if !root("every_case_is_as_strict_as_nftables_and_none_breaks") {
        return;
    }
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("firewall-{}", std::process::id()));
    let (_, out, err) = firewall(&["--json", "--out", &folder.to_string_lossy()]);
    let table = fs::read_to_string(folder.join("firewall.md")).unwrap_or_default();
    let _ = fs::remove_dir_all(&folder);
    let outcome: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    let rows = outcome["rows"].as_array().expect("rows");
    let titles: BTreeSet<&str> = rows
        .iter()
        .filter_map(|r| r["row"]["title"].as_str())
        .collect();
    assert!(titles.len() >= 140, "{} cases", titles.len());
    let with = |verdict: &str| -> BTreeSet<&str> {
        let found = rows.iter().filter(|r| r["verdict"] == verdict);
        found
            .map(|r| r["row"]["title"].as_str().expect("a title"))
            .collect()
    };
    let open: BTreeSet<&str> = OPEN.iter().copied().collect();
    let fails = with("fails");
    assert_eq!(fails, open, "{table}");
    assert_eq!(with("laxer"), BTreeSet::new(), "{table}");
    assert_eq!(with("argued"), ARGUED.iter().copied().collect(), "{table}");
    assert_eq!(outcome["counters"], serde_json::json!([]));
    page(&table);
}

/// The page has the table as printed.
fn page(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/firewall-bed.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (head, rest) = page.split_once(BEGIN).expect("the table's begin");
    let (_, tail) = rest.split_once(END).expect("the table's end");
    let (rows, below) = table.split_once("\n\n").expect("a table");
    let sums = below.trim_end().lines().last().unwrap_or_default();
    let new = format!("{head}{BEGIN}{rows}\n\n{sums}\n{END}{tail}");
    if std::env::var("WEIR_UPDATE").as_deref() == Ok("1") {
        fs::write(&path, new).expect("written");
        return;
    }
    // Columns are as wide as their widest cell.
    let cells = |line: &str| -> Vec<String> {
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let written: Vec<Vec<String>> = rest.lines().map(cells).collect();
    for line in rows.lines().filter(|line| !line.starts_with("|--")) {
        let line = cells(line);
        assert!(
            written.contains(&line),
            "docs/firewall-bed.md has another line for {line:?}; WEIR_UPDATE=1 renews the table"
        );
    }
}

/// The bed sees what is wrong: packets that pass or arrive otherwise than a case says, and reasons counted otherwise.
#[test]
fn a_case_that_does_not_hold_is_found() {
    if !root("a_case_that_does_not_hold_is_found") {
        return;
    }
    let script = file(
        "wrong.fw",
        "case drops what passes\ncite none\npolicy masquerade\nopen\nabuse a > b A 1:11 ack 1 => drop\n\
         case passes what is dropped\ncite none\npolicy masquerade\ns > c udp \"unasked\"\n\
         case other translation\ncite none\npolicy masquerade\nc:5 > s:53 udp \"one\" => q:?m > s:53\n\
         case other port\ncite none\npolicy masquerade\nc:5 > s:53 udp \"one\" => p:6 > s:53\n\
         case other reason\ncite none\npolicy masquerade\nopen\nabuse b > a - 1 => drop tcp_window\n\
         case holds\ncite none\npolicy masquerade\nopen\nalive 1 1\n",
    );
    let path = script.to_string_lossy().into_owned();
    let (status, out, err) = firewall(&["--script", &path, "--device", "weir-tc", "--json"]);
    assert_eq!(status, 1, "{out}{err}");
    let outcome: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    let verdicts: Vec<&str> = (outcome["rows"].as_array().expect("rows").iter())
        .map(|r| r["verdict"].as_str().expect("a verdict"))
        .collect();
    assert_eq!(
        verdicts,
        ["fails", "fails", "fails", "fails", "same", "same"],
        "{out}"
    );
    let counters = outcome["counters"][0].as_str().expect("a counter");
    assert!(
        counters.contains("tcp_window: 0 counted, 1 expected"),
        "{counters}"
    );
    let _ = fs::remove_file(script);
}

/// A script that does not parse is refused with its line, before anything is built.
#[test]
fn a_script_with_an_error_is_refused() {
    let script = file("bad.fw", "case one\ncite none\npolicy accept\na > b Z 1\n");
    let (status, _, err) = firewall(&["--script", &script.to_string_lossy()]);
    assert_eq!(status, 1);
    assert!(
        err.contains("line 4") && err.contains("expected TCP flags"),
        "{err}"
    );
    let _ = fs::remove_file(script);
}
