//! `weir bench xdp`, `ddos`, `router`, `balancer`, `limits` and `all` at their smallest: figures with documented names, nothing lost on the way, nothing left behind. Times
//! are not looked at.

use std::process::{Command, Stdio};

use crate::live_bed::root;
use serde_json::Value;
use weir_lab::bench::catalogue;

#[test]
fn packets_are_dropped_sent_back_redirected_and_passed() {
    if !root("packets_are_dropped_sent_back_redirected_and_passed") {
        return;
    }
    let outcome = bench("xdp", &["--only", "live.verdicts,testrun"]);
    for name in [
        "live.floor.1.ipv4",
        "live.minimal.drop",
        "live.minimal.read",
        "live.graph.drop",
        "live.minimal.tx",
        "live.graph.tx",
        "live.minimal.redirect",
        "live.graph.redirect",
        "live.kernel.redirect",
        "live.over.drop",
        "live.chain.40.drop",
        "live.recirculation.extra",
        "testrun.chain.weir.32.hop",
        "testrun.chain.panel.32.hop",
        "testrun.chain.tail-calls.1.total",
        "verified.entry.graph",
    ] {
        figure(&outcome, name);
    }
    let targets = outcome["targets"].as_array().expect("targets");
    assert!(targets.iter().any(|t| t["figure"] == "live.over.redirect"));
}

#[test]
fn a_service_is_flooded_by_a_counted_number_of_packets() {
    if !root("a_service_is_flooded_by_a_counted_number_of_packets") {
        return;
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    let outcome = bench("ddos", &[]);
    for series in ["none", "minimal", "minimal-cpu"] {
        let value = |kind: &str| figure(&outcome, &format!("flood.tcp.{series}.1.{kind}"));
        assert!(value("transactions") > 0.0, "{series} answers");
        let offered = value("offered");
        assert!((500.0..2000.0).contains(&offered), "{series}: {offered}");
    }
}

#[test]
fn packets_are_routed_by_all_and_none_is_lost_to_changes() {
    if !root("packets_are_routed_by_all_and_none_is_lost_to_changes") {
        return;
    }
    let outcome = bench("router", &["--only", "router.one,router.changes"]);
    for series in ["kernel", "minimal", "fib", "own"] {
        for family in ["ipv4", "ipv6"] {
            figure(&outcome, &format!("router.one.{series}.4000.{family}"));
        }
    }
    if std::thread::available_parallelism().map_or(1, usize::from) > 1 {
        assert!(figure(&outcome, "router.changes.own.sent") > 0.0);
        assert_eq!(figure(&outcome, "router.changes.own.lost"), 0.0);
    }
}

#[test]
fn packets_are_balanced_in_every_mode_and_attackers_dropped() {
    if !root("packets_are_balanced_in_every_mode_and_attackers_dropped") {
        return;
    }
    let only = match long() {
        true => "balancer.cost,balancer.attack",
        false => "balancer.cost",
    };
    // Found by name, not by where the test runs.
    let object = weir_testdata::find("katran").map(|folder| folder.join("balancer.bpf.o"));
    let object = object.map(|path| path.to_string_lossy().into_owned());
    let mut more = vec!["--only", only];
    more.extend(
        object
            .as_deref()
            .into_iter()
            .flat_map(|path| ["--katran", path]),
    );
    let outcome = bench("balancer", &more);
    for series in ["tx", "redirect", "ipip", "gue", "nat", "dsr"] {
        figure(&outcome, &format!("balancer.{series}.60000"));
    }
    if object.is_some() {
        // Every packet came back from a server.
        figure(&outcome, "balancer.katran.60000");
    }
    if long() {
        figure(&outcome, "balancer.attack.composed.attacked");
    }
    let targets = outcome["targets"].as_array().expect("targets");
    assert!(
        targets
            .iter()
            .any(|t| t["figure"] == "balancer.over-tx.ipip.60000")
    );
}

#[test]
fn limits_are_measured_and_stand_beside_budgets() {
    if !root("limits_are_measured_and_stand_beside_budgets") {
        return;
    }
    let limits = bench("limits", &[]);
    for name in [
        "testrun",
        "memory.16",
        "memory.262144",
        "lookup.percpu-array",
        "lookup.hash.64",
        "lookup.lpm-trie.1048576",
        "atomic",
        "call",
        "helper",
        "clock",
        "tail-call",
    ] {
        figure(&limits, name);
    }
    // A walk through 256 MiB cannot be as fast as one through what the first cache holds.
    assert!(figure(&limits, "memory.262144") > figure(&limits, "memory.16"));
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-all-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "all", "--quick", "--only", "limits,vm", "--output"])
        .arg(&out)
        .output()
        .expect("starts");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = table.lines().find(|l| l.starts_with("vm: lookup.jit "));
    let row = row.unwrap_or_else(|| panic!("{table}"));
    assert!(
        row.contains("lookup.kernel") && row.contains("at most 0.5"),
        "{row}"
    );
    for file in ["all.tsv", "limits.tsv", "vm.json"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    std::fs::remove_dir_all(&out).expect("ours");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "all", "--only", "nosuch"])
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn only_known_groups_are_measured() {
    if !root("only_known_groups_are_measured") {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "xdp", "--quick", "--only", "nosuch"])
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("nosuch") && text.contains("live.prefixes"),
        "{text}"
    );
}

/// Whether all of it is wanted: each benchmark takes a third of a minute at its smallest.
fn long() -> bool {
    std::env::var_os("WEIR_LONG").is_some()
}

/// Runs a quick benchmark and looks at everything that all of them promise.
fn bench(name: &str, more: &[&str]) -> Value {
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-{name}-{}", std::process::id()));
    let child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", name, "--quick", "--json"])
        .args(more)
        .arg("--out")
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
    assert_eq!(outcome["bench"], name);
    for one in outcome["figures"].as_array().expect("figures") {
        let name = one["name"].as_str().expect("a name");
        assert!(
            catalogue::is_known(name),
            "{name} is not in docs/figures.md"
        );
        assert!(one["value"].is_number(), "{one}");
        assert!(one["spread"].is_number(), "{one}");
    }
    for target in outcome["targets"].as_array().expect("targets") {
        assert!(target["ratio"].is_number(), "{target}");
    }
    for file in ["json", "tsv"] {
        assert!(out.join(format!("{name}.{file}")).is_file(), "{file}");
    }
    std::fs::remove_dir_all(&out).expect("ours");
    let names = |folder: &str, part: &str| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|n| n.contains(part)).collect()
    };
    let left = [
        names("/run/netns", &format!("-{id}-")),
        names("/sys/fs/bpf/weir/edge", &format!("bench-{id}-")),
    ];
    assert_eq!(left, [vec![], Vec::<String>::new()]);
    outcome
}

/// A figure's value. What was lost or misjudged on the way has none.
fn figure(outcome: &Value, name: &str) -> f64 {
    let figures = outcome["figures"].as_array().expect("figures");
    let found = figures.iter().find(|f| f["name"] == name);
    let refused = &outcome["refused"];
    let found = found.unwrap_or_else(|| panic!("no figure {name}; without one: {refused}"));
    found["value"].as_f64().expect("a number")
}
