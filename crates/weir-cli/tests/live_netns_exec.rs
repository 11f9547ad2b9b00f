//! `ip netns exec` gives a command a mount namespace of its own, with a bare /sys: what is applied there stays, and is seen from inside and outside.

use std::process::{Command, Output};

use crate::live_bed::{file, prog_on, root, stderr, weir};
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

/// `ip netns exec NS weir ARGS`, as people type it.
fn exec(ns: &NetNs, args: &[&str]) -> Output {
    Command::new("ip")
        .args(["netns", "exec", ns.name(), env!("CARGO_BIN_EXE_weir")])
        .args(args)
        .output()
        .expect("ip starts")
}

#[test]
fn an_edge_that_was_applied_by_ip_netns_exec_stays() {
    if !root("an_edge_that_was_applied_by_ip_netns_exec_stays") {
        return;
    }
    let ns = NetNs::create("weir-exec").expect("namespace");
    let end = |name| End {
        ns: &ns,
        name,
        addresses: &[],
    };
    bed::veth(end("in0"), end("far0")).expect("veth");
    let edge = format!("exec-{}", std::process::id());
    let text = format!(
        "edge = \"{edge}\"\n[[port]]\nname = \"in\"\ndevice = \"in0\"\n[[function]]\nname = \"none\"\nkind = \"empty\"\n[[link]]\nfrom = \"in\"\nto = \"none\"\n"
    );
    let config = file("exec.toml", &text);
    let config = config.to_str().expect("UTF-8");
    let applied = exec(&ns, &["apply", config]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    assert!(prog_on(&ns, "in0").is_some(), "{}", stderr(&applied));
    for status in [exec(&ns, &["status"]), weir(&ns, &["status"])] {
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(
            text.starts_with(&format!("edge {edge}, generation 1")),
            "{text}"
        );
    }
    // Again: nothing is new, so it is the same edge.
    let again = exec(&ns, &["apply", config, "--json"]);
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).expect("one object");
    assert_eq!(again["kept"], serde_json::json!(["none"]), "{again}");
    let down = exec(&ns, &["down", "--edge", &edge]);
    assert!(down.status.success(), "{}", stderr(&down));
    assert_eq!(prog_on(&ns, "in0"), None);
}
