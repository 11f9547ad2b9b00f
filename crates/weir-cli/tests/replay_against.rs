//! `weir replay NEW --against OLD`: counts that two replays on their own confirm, the same from every engine, with rules, reasons and devices.

use std::path::Path;

use serde_json::Value;

use crate::common::{Folder, engines, root, weir};

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

/// The report of a comparison over the demonstration, which must be the same from all engines.
fn compared(old: &Path, new: &Path, more: &[&str], skip: &[&str]) -> Value {
    let input = root().join("tests/captures/demo.pcapng");
    let mut first: Option<Value> = None;
    for engine in engines() {
        if skip.contains(&engine) {
            continue;
        }
        let fixed = [
            "replay",
            text(new),
            "--against",
            text(old),
            "--in",
            text(&input),
        ];
        let args = [&fixed[..], &["--json", "--engine", engine], more].concat();
        let report = weir(args).succeeded().json();
        match &first {
            None => first = Some(report),
            Some(known) => assert_eq!(*known, report, "{engine}"),
        }
    }
    first.expect("an engine")
}

/// Packets that a policy drops of the demonstration, and of which its first rule has matched.
fn alone(policy: &Path) -> (u64, u64) {
    let input = root().join("tests/captures/demo.pcapng");
    let report = weir(["replay", text(policy), "--in", text(&input), "--json"]);
    let report = report.succeeded().json();
    let number = |value: &Value| value.as_u64().expect("a number");
    (
        number(&report["packets"]["drop"]),
        number(&report["rules"][0]["packets"]),
    )
}

#[test]
fn verdicts_that_change_are_counted_by_rule() {
    let folder = Folder::new();
    let old = folder.write("old.weir", "log4: all log\nweb: tcp-dport drop\n");
    let new = folder.write("new.weir", "names: udp-dport drop\nlog4: all log\n");
    let report = compared(&old, &new, &[], &[]);
    let (all, _) = alone(&old);
    let (dropped, by_rule) = alone(&new);
    assert!(all > 0 && by_rule > 0, "{report}");
    // Frames that no policy passes (reasons before the rules) are dropped by both, and are no change.
    let (tcp, udp) = (all - (dropped - by_rule), by_rule);
    assert_eq!(report["changed"], tcp + udp, "{report}");
    assert_eq!(report["rewritten"], 0, "{report}");
    let groups = report["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 2, "{report}");
    for group in groups {
        let [before, after] = [&group["before"], &group["after"]];
        let (count, side, rule) = match before["verdict"] == "drop" {
            true => (tcp, before, "web"),
            false => (udp, after, "names"),
        };
        assert_eq!(group["packets"], count, "{report}");
        assert_eq!(side["verdict"], "drop", "{report}");
        // The rule that logs matched as well, and decides nothing.
        let rules = side["rules"].as_array().expect("rules");
        assert_eq!(rules.len(), 1, "{report}");
        assert_eq!(rules[0]["name"], rule, "{report}");
        assert_eq!(side["reasons"][0], "rule_drop", "{report}");
    }
    let input = root().join("tests/captures/demo.pcapng");
    let said = weir([
        "replay",
        text(&new),
        "--against",
        text(&old),
        "--in",
        text(&input),
    ]);
    let said = said.succeeded().stdout;
    for wanted in [
        "drop -> pass: ",
        "pass -> drop: ",
        "before: rule 2 (web, line 2), rule_drop",
        "after:  rule 1 (names, line 1), rule_drop",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

#[test]
fn packets_that_differ_by_state_are_found() {
    let folder = Folder::new();
    // Of the new policy only what a client began is let in: which packets that are depends on all before them.
    let old = folder.write("old.weir", "tcp-dport accept\nall drop\n");
    let new = folder.write(
        "new.weir",
        "open: add-stateful tcp-syn tcp-dport 80 accept\nudp: udp-dport accept\nrest: all drop\n",
    );
    let report = compared(&old, &new, &[], &[]);
    let input = root().join("tests/captures/demo.pcapng");
    let drops = |policy: &Path| {
        let run = weir(["replay", text(policy), "--in", text(&input), "--json"]);
        let report = run.succeeded().json();
        report["packets"]["drop"].as_i64().expect("a number")
    };
    let groups = report["groups"].as_array().expect("groups");
    let sum = |verdict: &str| -> i64 {
        let of = groups
            .iter()
            .filter(|group| group["after"]["verdict"] == verdict);
        of.map(|group| group["packets"].as_i64().expect("a number"))
            .sum()
    };
    assert!(sum("drop") > 0 && sum("pass") > 0, "{report}");
    assert_eq!(
        drops(&new) - drops(&old),
        sum("drop") - sum("pass"),
        "{report}"
    );
    let changed = report["changed"].as_i64();
    assert_eq!(changed, Some(sum("drop") + sum("pass")), "{report}");
}

#[test]
fn the_same_policy_changes_nothing_and_other_bytes_are_told_apart() {
    let folder = Folder::new();
    let old = folder.write("old.weir", "tcp-dport drop\n");
    let report = compared(&old, &old, &[], &[]);
    assert!(report["packets"].as_u64() > Some(0), "{report}");
    assert_eq!(
        (&report["changed"], &report["rewritten"]),
        (&0.into(), &0.into())
    );
    assert_eq!(report["groups"], serde_json::json!([]), "{report}");

    let new = folder.write(
        "new.weir",
        "tcp-dport drop\nmark: udp-dport mod ip-dscp 46\n",
    );
    let report = compared(&old, &new, &[], &[]);
    assert_eq!(report["changed"], 0, "{report}");
    let rewritten = report["rewritten"].as_u64().expect("a number");
    assert!(rewritten > 0, "{report}");
    let group = &report["groups"][0];
    assert_eq!(group["packets"], rewritten, "{report}");
    assert_eq!(group["after"]["rules"][0]["name"], "mark", "{report}");
    assert_eq!(group["before"]["rules"], serde_json::json!([]), "{report}");
}

/// A graph whose middlebox has these rules, and leads to a port.
fn graph(rules: &str, to: &str) -> String {
    format!(
        "[[port]]\nname = \"wan\"\ndevice = \"box0\"\n[[port]]\nname = \"lan\"\ndevice = \"box1\"\n[[function]]\nname = \"wall\"\n\
         kind = \"middlebox\"\nrules = \"\"\"\n{rules}\"\"\"\n[[link]]\nfrom = \"wan\"\nto = \"wall\"\n[[link]]\nfrom = \"wall\"\nto = \"{to}\"\n\
         [[link]]\nfrom = \"lan\"\nto = \"stack\"\n"
    )
}

#[test]
fn graphs_name_function_rule_and_device() {
    let folder = Folder::new();
    let old = folder.write("old.toml", graph("tcp-dport drop\n", "lan"));
    let new = folder.write(
        "new.toml",
        graph("tcp-dport drop\nnames: udp-dport drop\n", "lan"),
    );
    let port = ["--port", "wan"];
    let report = compared(&old, &new, &port, &["reference"]);
    let group = &report["groups"][0];
    assert_eq!(group["packets"], report["changed"], "{report}");
    let (before, after) = (&group["before"], &group["after"]);
    assert_eq!(
        (&before["verdict"], &before["device"]),
        (&"redirect".into(), &"box1".into())
    );
    assert_eq!(
        (&after["verdict"], &after["stage"]),
        (&"drop".into(), &"wall".into())
    );
    assert_eq!(after["rules"][0]["function"], "wall", "{report}");
    assert_eq!(after["rules"][0]["name"], "names", "{report}");

    // The same verdict by another device is a change, too.
    let other = folder.write("other.toml", graph("tcp-dport drop\n", "stack"));
    let report = compared(&old, &other, &port, &["reference"]);
    let group = &report["groups"][0];
    assert!(report["changed"].as_u64() > Some(0), "{report}");
    assert_eq!(group["after"]["verdict"], "pass", "{report}");
}

/// Numbers of rules that take more than one byte.
#[test]
fn a_late_rule_of_a_graph_is_named_by_its_own_number() {
    let folder = Folder::new();
    let many: String = (0..299)
        .map(|n| format!("tcp-dport {} drop\n", 20_000 + n))
        .collect();
    let old = folder.write("old.toml", graph(&many, "lan"));
    let new = format!("{many}names: udp-dport drop\n");
    let new = folder.write("new.toml", graph(&new, "lan"));
    let report = compared(&old, &new, &["--port", "wan"], &["reference"]);
    let rules = &report["groups"][0]["after"]["rules"];
    assert_eq!(rules[0]["id"], 300, "{report}");
    assert_eq!(rules[0]["name"], "names", "{report}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = Folder::new();
    let policy = folder.write("a.weir", "all accept\n");
    let edge = folder.write("a.toml", graph("all accept\n", "stack"));
    let input = root().join("tests/captures/demo.pcapng");
    for (old, more, why) in [
        (&edge, &[][..], "two policies, or two graphs"),
        (
            &policy,
            &["--port", "wan"],
            "--port and --routes are for graphs",
        ),
        (&policy, &["-o", "x.pcap"], "cannot be used with"),
    ] {
        let fixed = [
            "replay",
            text(&policy),
            "--against",
            text(old),
            "--in",
            text(&input),
        ];
        let refused = weir([&fixed[..], more].concat());
        assert_eq!(refused.status, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}
