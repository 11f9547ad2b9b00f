//! `weir bench network` at its smallest: figures with documented names, no packet lost on any row, nothing left behind. Times are not looked at.

use std::process::{Command, Stdio};

use crate::live_bed::root;
use serde_json::Value;
use weir_lab::bench::catalogue;

#[test]
fn rows_of_functions_carry_packets_and_leave_nothing_behind() {
    if !root("rows_of_functions_carry_packets_and_leave_nothing_behind") {
        return;
    }
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-network-{}", std::process::id()));
    // All groups take a minute: the short form has those without peers that are processes.
    let long = std::env::var_os("WEIR_LONG").is_some();
    let only: &[&str] = match long {
        true => &[],
        false => &["--only", "network.hop", "--only", "network.scale"],
    };
    let child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "network", "--quick", "--json", "--out"])
        .arg(&out)
        .args(only)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let id = child.id();
    let output = child.wait_with_output().expect("ends");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let figures = outcome["figures"].as_array().expect("figures");
    for one in figures {
        let name = one["name"].as_str().expect("a name");
        assert!(
            catalogue::is_known(name),
            "{name} is not in docs/figures.md"
        );
        let value = one["value"].as_f64().expect("a number");
        // A share may come out below nothing.
        assert!(value > 0.0 || name.contains(".panel."), "{one}");
    }
    let mut wanted = vec!["network.hop.panel.30.hop", "network.scale.300.change"];
    if long {
        wanted.extend([
            "network.crr.weir.21.4",
            "network.crr.hairpin.3.1",
            "network.rtt.direct.0.p50",
            "network.rtt.redirect.0.cold",
            "network.rtt.weir.101.p99",
            "network.rtt.linux.21.p50",
            "network.rtt.user.21.p50",
        ]);
    }
    if long && std::thread::available_parallelism().map_or(1, usize::from) > 1 {
        wanted.push("network.flow.weir.21.rate");
    }
    for name in wanted {
        let refused = &outcome["refused"];
        assert!(
            figures.iter().any(|figure| figure["name"] == name),
            "no figure {name}; without one: {refused}"
        );
    }
    for file in ["json", "tsv"] {
        assert!(out.join(format!("network.{file}")).is_file(), "{file}");
    }
    std::fs::remove_dir_all(&out).expect("ours");
    let names = |folder: &str, part: &str| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|n| n.contains(part)).collect()
    };
    let left = [
        names("/run/netns", &format!("-{id}-")),
        names("/sys/fs/bpf/weir/net", &format!("bench-{id}-")),
        names(
            &std::env::temp_dir().to_string_lossy(),
            &format!("weir-network-{id}-"),
        ),
    ];
    assert_eq!(left, [vec![], vec![], Vec::<String>::new()]);
}
