//! `weir bench middlebox` at its smallest: its JSON has the promised shape, its names are documented, every group yields figures, and
//! nothing is left behind. Times are not looked at.

use std::process::{Command, Stdio};

use crate::live_bed::root;
use serde_json::Value;
use weir_lab::bench::catalogue;

#[test]
fn a_small_run_has_the_documented_shape() {
    if !root("a_small_run_has_the_documented_shape") {
        return;
    }
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-{}", std::process::id()));
    let pins = pins();
    let child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args([
            "bench",
            "middlebox",
            "--quick",
            "--json",
            "--max-rules",
            "10",
        ])
        .arg("--out")
        .arg(&out)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let id = child.id();
    let output = child.wait_with_output().expect("ends");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(outcome["bench"], "middlebox");
    for text in ["machine", "commit", "date"] {
        assert!(outcome[text].as_str().is_some_and(|t| !t.is_empty()));
    }
    check_figures(&outcome);

    for file in ["middlebox.json", "middlebox.tsv"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let written = std::fs::read_to_string(out.join("middlebox.json")).expect("readable");
    assert_eq!(
        serde_json::from_str::<Value>(&written).expect("JSON"),
        outcome
    );
    std::fs::remove_dir_all(&out).expect("ours");
    nothing_is_left(id);
    assert_eq!(pins, self::pins());
}

/// With nothing on the path but what beds need, the peers are named with their packages and weir is measured all the same.
#[test]
fn missing_peers_are_named() {
    if !root("missing_peers_are_named") {
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("tools-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("cargo's folder is writable");
    let path = std::env::var_os("PATH").expect("a path");
    for tool in ["ip", "ethtool", "date"] {
        let found = std::env::split_paths(&path)
            .map(|dir| dir.join(tool))
            .find(|file| file.is_file())
            .unwrap_or_else(|| panic!("{tool} is needed"));
        let _ = std::os::unix::fs::symlink(found, folder.join(tool));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args([
            "bench",
            "middlebox",
            "--quick",
            "--json",
            "--max-rules",
            "1",
        ])
        .args(["--only", "live.sources,bandwidth"])
        .env("PATH", &folder)
        .output()
        .expect("starts");
    std::fs::remove_dir_all(&folder).expect("ours");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let absent: Vec<&str> = outcome["absent"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["package"].as_str())
        .collect();
    assert_eq!(absent, ["nftables", "xdp-tools", "iperf3"]);
    let figures = outcome["figures"].as_array().expect("figures");
    let has = |name: &str| figures.iter().any(|f| f["name"] == name);
    assert!(has("live.sources.weir-tc.1.drop") && !has("live.sources.nft-set.1.drop"));
}

#[test]
fn bad_usage_is_refused_before_anything_is_built() {
    if !root("bad_usage_is_refused_before_anything_is_built") {
        return;
    }
    for (args, words) in [
        (vec!["--only", "nosuch"], "nosuch"),
        (
            vec!["--only", "testrun.classbench", "--rules", "/nonexistent"],
            "/nonexistent",
        ),
        (vec!["--max-rules", "0"], "0"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["bench", "middlebox", "--quick"])
            .args(&args)
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(words), "{text}");
    }
}

/// Every figure is complete and documented, and every group has some, unless it says why not.
fn check_figures(outcome: &Value) {
    let figures = outcome["figures"].as_array().expect("figures");
    for figure in figures {
        let name = figure["name"].as_str().expect("a name");
        assert!(
            catalogue::is_known(name),
            "{name} is not in docs/figures.md"
        );
        assert!(figure["value"].is_number(), "{figure}");
        assert!(
            figure["unit"].is_string() && figure["spread"].is_number(),
            "{figure}"
        );
        assert!(
            figure["rounds"].as_u64().is_some_and(|n| n >= 5),
            "{figure}"
        );
        // What packets do is known of weir's own programs in test runs.
        let ours = [".weir.", ".table-per-mask."];
        let counted = name.starts_with("testrun.") && ours.iter().any(|part| name.contains(part));
        let budget = &figure["budget"];
        assert_eq!(
            budget["instructions"].as_u64() > Some(100),
            counted,
            "{figure}"
        );
        assert_eq!(
            figure["against"].is_string(),
            figure["ratio"].is_number(),
            "{figure}"
        );
    }
    let excused: Vec<&str> = ["refused", "absent"]
        .iter()
        .flat_map(|list| outcome[*list].as_array().expect("a list"))
        .filter_map(|one| one["name"].as_str().or(one["program"].as_str()))
        .collect();
    for group in [
        "testrun.rules.weir",
        "testrun.rules.linear",
        "testrun.exact.tuple-hash",
        "testrun.exact.tracker",
        "testrun.masks.table-per-mask",
        "testrun.mss.weir",
        "testrun.mss-range.weir",
        "live.floor",
        "live.tuples.forwarding",
        "live.tuples.weir-tc",
        "live.tuples.weir-xdp",
        "live.exact.weir-xdp",
        "live.sources.weir-tc",
        "live.mss.weir-xdp",
        "live.stateful.forwarding",
        "live.stateful.weir-tc",
        "bandwidth.direct",
        "bandwidth.forwarding",
        "bandwidth.tuples.weir-tc",
    ] {
        let found = figures
            .iter()
            .any(|f| f["name"].as_str().is_some_and(|n| n.starts_with(group)));
        assert!(found, "no figure of {group}; not measured: {excused:?}");
    }
    for target in outcome["targets"].as_array().expect("targets") {
        assert!(
            target["ratio"].is_number() && target["promise"].is_string(),
            "{target}"
        );
    }
}

fn nothing_is_left(of: u32) {
    let names = std::fs::read_dir("/run/netns")
        .map(|d| d.flatten().map(|e| e.file_name()).collect())
        .unwrap_or_else(|_| Vec::new());
    let left: Vec<_> = names
        .iter()
        .filter(|n| n.to_string_lossy().contains(&format!("-{of}-")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let scratch = std::env::temp_dir().join(format!("weir-bench-{of}-0"));
    assert!(!scratch.exists());
}

/// What xdp-filter and weir pin outside namespaces.
fn pins() -> Vec<String> {
    let folder = std::fs::read_dir("/sys/fs/bpf/xdp-filter");
    let mut names: Vec<String> = folder
        .map(|d| {
            d.flatten()
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_else(|_| Vec::new());
    names.sort();
    names
}
