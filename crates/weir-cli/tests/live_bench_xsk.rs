//! `weir bench xsk` at its smallest: all figures with documented names, units and rounds, all ratios, the files, and nothing left behind. Times are not
//! looked at.

use std::process::{Command, Stdio};

use crate::live_bed::root;
use serde_json::Value;
use weir_lab::bench::catalogue;

#[test]
fn sockets_are_measured_beside_c_packet_sockets_and_udp() {
    if !root("sockets_are_measured_beside_c_packet_sockets_and_udp") {
        return;
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-xsk-{}", std::process::id()));
    let child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "xsk", "--quick", "--json", "--out"])
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let id = child.id();
    let output = child.wait_with_output().expect("ends");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(outcome["bench"], "xsk");

    // Without a C compiler the bench says so, and the rest of it is there.
    let absent = outcome["absent"].as_array().expect("a list");
    let no_c = absent.iter().any(|a| a["program"] == "cc");
    assert!(
        !no_c || Command::new("cc").arg("--version").output().is_err(),
        "{outcome}"
    );
    assert_eq!(outcome["refused"], serde_json::json!([]), "{outcome}");
    let mut expected = vec![];
    for (figure, series, unit) in [
        ("receive", "own", "ns"),
        ("receive", "cpu", "ns"),
        ("receive", "rate", "Mpps"),
        ("forward", "rate", "Mpps"),
        ("receive", "local", "Mpps"),
        ("forward", "local", "Mpps"),
    ] {
        let mut who = vec!["weir"];
        if figure == "receive" && series != "local" && !no_c {
            who.push("c");
        }
        if series != "own" {
            who.push("packet");
        }
        expected.extend(
            who.into_iter()
                .map(|who| (format!("xsk.{figure}.{who}.{series}"), unit)),
        );
    }
    for who in ["weir", "udp", "udp-blocking"] {
        expected.push((format!("xsk.trip.{who}.p50"), "us"));
    }
    let figures = outcome["figures"].as_array().expect("figures");
    for (name, unit) in &expected {
        let found = figures.iter().find(|f| f["name"] == name.as_str());
        let found = found.unwrap_or_else(|| panic!("no figure {name}: {outcome}"));
        assert!(
            catalogue::is_known(name),
            "{name} is not in docs/figures.md"
        );
        assert_eq!(found["unit"], *unit, "{found}");
        assert_eq!(found["rounds"], 2, "{found}");
        // What sockets cost by themselves is a difference of two times: on a busy machine it may be below zero.
        let least = if name.ends_with(".own") {
            f64::MIN
        } else {
            0.0
        };
        assert!(
            found["value"].as_f64().is_some_and(|v| v > least),
            "{found}"
        );
        assert!(found["spread"].is_number(), "{found}");
    }
    assert_eq!(figures.len(), expected.len(), "{outcome}");

    // Each ratio is of two figures that are there, and says whether its promise holds where there is one.
    let targets = outcome["targets"].as_array().expect("targets");
    let value = |name: &Value| {
        let found = figures.iter().find(|f| f["name"] == *name);
        found.and_then(|f| f["value"].as_f64()).expect("a figure")
    };
    for target in targets {
        let ratio = value(&target["figure"]) / value(&target["against"]);
        let told = target["ratio"].as_f64().expect("a ratio");
        assert!((ratio - told).abs() < 1e-6 * ratio.abs(), "{target}");
        let met = match target["promise"].as_str().expect("words") {
            "no target" => Value::Null,
            words => {
                let (kind, limit) = words.rsplit_once(' ').expect("a kind and a limit");
                let limit: f64 = limit.parse().expect("a number");
                match kind {
                    "at most" => (told <= limit).into(),
                    "at least" => (told >= limit).into(),
                    other => panic!("{other}"),
                }
            }
        };
        assert_eq!(target["met"], met, "{target}");
    }
    assert_eq!(targets.len(), if no_c { 7 } else { 10 }, "{outcome}");

    for file in ["json", "tsv"] {
        assert!(out.join(format!("xsk.{file}")).is_file(), "{file}");
    }
    std::fs::remove_dir_all(&out).expect("ours");
    let left = |folder: &str, part: &str| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|n| n.contains(part)).collect()
    };
    assert_eq!(left("/run/netns", &format!("-{id}-")), Vec::<String>::new());
    let temporary = std::env::temp_dir();
    assert_eq!(
        left(
            temporary.to_str().expect("UTF-8"),
            &format!("weir-bench-xsk-{id}-")
        ),
        Vec::<String>::new()
    );
}
