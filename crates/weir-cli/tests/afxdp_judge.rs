//! `weir lab afxdp --from` and `--compare`, profiles at `weir xsk` and `weir doctor`: as a user runs them, without privileges.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("folder");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("folder")).expect("folder");
        fs::write(&path, text).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs weir with `folder` as the place of configuration.
fn weir(folder: &Folder, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .env("XDG_CONFIG_HOME", &folder.0)
        .output()
        .expect("weir runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Results of 24 cells, 12 of which spin; `slow` are ten times slower than the others.
fn results(slow: &str) -> String {
    let mut cells = Vec::new();
    for forwarder in ["spin", "poll"] {
        for prober in ["spin", "poll"] {
            for wakeup in ["on", "off"] {
                for ring in ["64", "512", "2048"] {
                    let knobs = json!({
                        "mode": "copy", "forwarder_wait": forwarder, "prober_wait": prober,
                        "need_wakeup": wakeup, "ring": ring, "interval": "0", "size": "60", "batch": "1",
                    });
                    let slower = knobs[slow] == "poll" || knobs[slow] == "off";
                    let base = if slower { 10_000 } else { 1_000 };
                    let seed = ring.len() as u64 * 7 + wakeup.len() as u64;
                    let runs: Vec<Value> = (0..3u64)
                        .map(|block| {
                            let samples: Vec<u64> = (0..50)
                                .map(|n| base + (n * 37 + seed * 11 + block * 5) % 97)
                                .collect();
                            json!({
                                "block": block, "place": 0, "samples": samples, "sent": 50, "received": 50,
                                "cpu_per_packet": 2000.0,
                                "effective": {
                                    "zero_copy": false, "napi": [0, 0], "busy_poll_packets": 0,
                                    "wakeup_skipped": false, "unmet": [],
                                },
                                "failure": null,
                            })
                        })
                        .collect();
                    cells.push(json!({
                        "id": format!("copy,fwd={forwarder},rx={prober},nw={wakeup},ring={ring}"),
                        "knobs": knobs, "control": null, "runs": runs,
                    }));
                }
            }
        }
    }
    json!({
        "version": 1, "machine": [["cpu", "made up"], ["date", "2026-11-23"]], "driver": "veth",
        "kernel": "5.19.0-made-up", "seed": 1, "blocks": 3, "seconds": 1.0, "cells": cells,
        "pruned": [], "extras": [],
    })
    .to_string()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn results_are_judged_reported_and_made_a_profile() {
    let folder = Folder::new("judge-report");
    let from = text(&folder.file("results.json", &results("prober_wait")));
    let report = text(&folder.0.join("report"));
    let profile = text(&folder.0.join("weir/afxdp.toml"));
    let done = weir(
        &folder,
        &[
            "lab",
            "afxdp",
            "--from",
            &from,
            "--out",
            &report,
            "--recommend",
            "--profile-out",
            &profile,
        ],
    );
    assert!(done.status.success(), "{}", err(&done));
    let shown = out(&done);
    for words in [
        "2 clusters",
        "prober_wait spin",
        "for latency: copy,fwd=spin,rx=spin,nw=on",
    ] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    assert!(shown.contains("for throughput: no recommendation"));
    for name in ["report.html", "judgement.json", "cells.csv"] {
        assert!(Path::new(&report).join(name).exists(), "{name}");
    }

    // doctor finds it, and says that the kernel is another one.
    let doctor = weir(&folder, &["doctor", "--json"]);
    let told: Value = serde_json::from_str(&out(&doctor)).expect("JSON");
    assert_eq!(told["afxdp_profile"]["path"], profile);
    let doubts = told["afxdp_profile"]["doubts"].to_string();
    assert!(
        doubts.contains("5.19.0-made-up, older than the running"),
        "{doubts}"
    );
    let doctor = out(&weir(&folder, &["doctor"]));
    assert!(
        doctor.contains("AF_XDP settings:") && doctor.contains("measure again"),
        "{doctor}"
    );

    // xsk uses it: what is said of the kernel comes before the interface is missed.
    let nowhere = ["xsk", "ping", "-i", "weir-none", "--profile"];
    for name in ["measured", &profile] {
        let ping = weir(&folder, &[&nowhere[..], &[name]].concat());
        assert!(!ping.status.success());
        assert!(
            err(&ping).contains("older than the running"),
            "{}",
            err(&ping)
        );
        assert!(err(&ping).contains("weir-none"), "{}", err(&ping));
    }
    let ping = weir(
        &folder,
        &[&nowhere[..], &["measured", "--profile-for", "throughput"]].concat(),
    );
    assert_eq!(ping.status.code(), Some(2));
    assert!(
        err(&ping).contains("nothing for throughput; it does for latency, cpu"),
        "{}",
        err(&ping)
    );
}

#[test]
fn two_sweeps_are_compared() {
    let folder = Folder::new("judge-compare");
    let one = text(&folder.file("one.json", &results("prober_wait")));
    let two = text(&folder.file("two.json", &results("need_wakeup")));
    let same = weir(&folder, &["lab", "afxdp", "--compare", &one, &one]);
    assert!(same.status.success(), "{}", err(&same));
    assert!(
        out(&same).contains("1.000") && out(&same).contains("are the same"),
        "{}",
        out(&same)
    );
    let other = weir(
        &folder,
        &["lab", "afxdp", "--json", "--compare", &one, &two],
    );
    assert_eq!(other.status.code(), Some(1), "{}", err(&other));
    let told: Value = serde_json::from_str(&out(&other)).expect("JSON");
    assert_eq!(
        told["relevant"],
        json!([["prober_wait=spin"], ["need_wakeup=on"]])
    );
    assert!(told["overlap"].as_f64().expect("overlap") < 0.5);
}

#[test]
fn what_cannot_be_read_is_told() {
    let folder = Folder::new("judge-bad");
    let none = text(&folder.0.join("none.json"));
    let bad = text(&folder.file("bad.json", "{\"version\": 1}"));
    for (args, words) in [
        (vec!["lab", "afxdp", "--from", &none], "cannot read"),
        (vec!["lab", "afxdp", "--from", &bad], "is not a result file"),
        (
            vec!["lab", "afxdp", "--compare", &bad, &none],
            "is not a result file",
        ),
        (
            vec!["lab", "afxdp", "--from", &bad, "--profile-out", "x"],
            "--recommend",
        ),
        (
            vec!["lab", "afxdp", "--from", &bad, "--dry-run"],
            "cannot be used with",
        ),
        (
            vec!["xsk", "ping", "-i", "lo", "--profile", &none],
            "cannot read the profile",
        ),
        (
            vec!["xsk", "ping", "-i", "lo", "--profile", &bad],
            "is not a profile",
        ),
        (
            vec!["xsk", "ping", "-i", "lo", "--profile-for", "cpu"],
            "--profile",
        ),
        (
            vec![
                "xsk",
                "ping",
                "-i",
                "lo",
                "--packet",
                "--profile",
                "measured",
            ],
            "cannot be used with",
        ),
    ] {
        let done = weir(&folder, &args);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {}", err(&done));
        assert!(err(&done).contains(words), "{args:?}: {}", err(&done));
    }
}
