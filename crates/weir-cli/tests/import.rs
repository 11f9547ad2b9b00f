//! `weir import` and `weir export`: where the result goes, how lines that are not translated are told, and exit statuses.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::live_bed::{file, stderr};
use serde_json::Value;

const RULES: &str = "*filter\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -m quota --quota 1000 -j ACCEPT\nCOMMIT\n";

fn weir(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    let mut stdin = child.stdin.take().expect("piped");
    // It may end without reading.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("weir ends")
}

#[test]
fn an_import_goes_to_standard_output_and_names_lines_beside() {
    let made = weir(&["import", "iptables-save", "-"], RULES);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let policy = String::from_utf8(made.stdout).expect("text");
    assert!(
        policy.contains("in { lo } net-proto ip4 accept\n"),
        "{policy}"
    );
    assert!(policy.ends_with("net-proto ip4 drop\n"), "{policy}");
    let told = String::from_utf8(made.stderr).expect("text");
    assert!(
        told.starts_with("weir: <stdin>:4: `-m quota` counts bytes of IP packets"),
        "{told}"
    );
    assert_eq!(
        weir(&["import", "iptables-save", "-", "--strict"], RULES)
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn an_import_in_json_has_every_line_that_is_not_translated() {
    let output = file("made.weir", "");
    let path = output.to_str().expect("text");
    let made = weir(
        &["import", "iptables-save", "-", "--json", "-o", path],
        RULES,
    );
    let document: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(document["findings"][0]["line"], 4);
    assert_eq!(document["findings"][0]["effect"], "narrower");
    assert_eq!(document["rules"], 2);
    assert!(document.get("text").is_none());
    let checked = weir(&["check", path], "");
    assert!(checked.status.success(), "{}", stderr(&checked));
}

#[test]
fn what_says_too_little_is_bad_usage() {
    let both = RULES.replace("COMMIT", ":FORWARD DROP [0:0]\nCOMMIT");
    let made = weir(&["import", "iptables-save", "-"], &both);
    assert_eq!(made.status.code(), Some(2));
    assert!(
        stderr(&made).contains("--local ADDRESS"),
        "{}",
        stderr(&made)
    );
    let unknown = weir(&["import", "ipfw", "-"], "");
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn an_export_is_for_nft() {
    let policy = file(
        "export.weir",
        "tcp-dport 22 accept\nudp-dport 53 drop over 5/s\nall drop\n",
    );
    let path = policy.to_str().expect("text");
    let made = weir(&["export", "nft", path, "-i", "eth0", "--strict"], "");
    assert_eq!(made.status.code(), Some(1));
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(
        text.contains("type filter hook ingress devices = { \"eth0\" }"),
        "{text}"
    );
    assert!(text.contains("tcp dport == 22 accept"), "{text}");
    assert!(
        stderr(&made).contains("export.weir:2: "),
        "{}",
        stderr(&made)
    );
}
