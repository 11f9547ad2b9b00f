//! `weir top` on virtual networks between two edges with real traffic.

use std::process::{Output, Stdio};

use serde_json::Value;
use weir_kernel::NetNs;

use crate::live_bed::{root, stderr, weir};
use crate::live_net_ping::Pair;

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

fn run(ns: &NetNs, program: &str, args: &[&str]) -> Output {
    let mut command = ns.command(program).expect("namespace");
    command.args(args).output().expect("it runs")
}

/// Starts weir and gives its output when it ends.
fn begin(ns: &NetNs, args: &[&str]) -> std::process::Child {
    let mut command = ns.command(env!("CARGO_BIN_EXE_weir")).expect("namespace");
    let command = command.args(args).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().expect("weir starts")
}

fn found<'v>(rows: &'v Value, name: &str) -> &'v Value {
    let mut all = rows.as_array().into_iter().flatten();
    all.find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {rows}"))
}

#[test]
fn top_shows_networks_with_workloads_and_reasons() {
    if !root("top_shows_networks_with_workloads_and_reasons") {
        return;
    }
    let pair = Pair::new("top");
    let [a, _, c] = &pair.workloads;
    // Questions for neighbours are over before rates are taken.
    run(a, "ping", &["-c1", "-W2", "10.1.0.12"]);
    let tops: Vec<_> = (pair.edges.iter())
        .map(|edge| begin(edge, &["top", "--once", "--json", "--interval", "3"]))
        .collect();
    // One every 100 ms: through the tunnel, and into a route that drops.
    let mut sent = Vec::new();
    for to in ["10.1.0.12", "10.8.0.1"] {
        let mut command = a.command("ping").expect("namespace");
        let command = command.args(["-i", "0.1", "-w", "5", to]);
        sent.push(command.stdout(Stdio::null()).spawn().expect("it starts"));
    }
    let tables: Vec<Value> = tops
        .into_iter()
        .map(|top| {
            let output = top.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", stderr(&output));
            lines(&output).remove(0)
        })
        .collect();
    for mut one in sent {
        one.wait().expect("it ends");
    }
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let shop = found(&tables[0]["networks"], "shop");
    // Requests to both, and answers by the tunnel.
    assert!(number(&shop["packets"]) > 20.0, "{shop}");
    assert!(number(&shop["reasons"]["no_route"]) > 5.0, "{shop}");
    assert!(number(&shop["drops"]) > 5.0, "{shop}");
    let workload = found(&shop["workloads"], "a");
    assert!(number(&workload["packets"]) > 14.0, "{workload}");
    assert!(number(&workload["bits"]) > 8.0 * 98.0 * 14.0, "{workload}");
    assert_eq!(number(&found(&shop["workloads"], "b")["drops"]), 0.0);
    let router = found(&shop["functions"], "gw");
    assert!(number(&router["reasons"]["no_route"]) > 5.0, "{router}");
    assert_eq!(tables[0]["ports"], serde_json::json!([]));
    let other = found(&tables[1]["networks"], "shop");
    assert!(number(&other["packets"]) > 10.0, "{other}");
    assert!(
        number(&found(&other["workloads"], "c")["packets"]) > 5.0,
        "{other}"
    );
    // In a pipe it is a table, and an address that is not the workload's shows at its port.
    let spoof = ["address", "add", "10.1.0.99/24", "dev", "eth0"];
    c.ip(&spoof).expect("an address");
    let table = begin(
        &pair.edges[1],
        &["top", "--once", "--interval", "3", "--edge", &pair.names[1]],
    );
    run(
        c,
        "ping",
        &["-i", "0.2", "-w", "4", "-I", "10.1.0.99", "10.1.0.10"],
    );
    let output = table.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("  shop/c"));
    assert!(line.is_some_and(|line| line.contains("spoofed")), "{text}");
    let shown = weir(&pair.edges[0], &["status", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let total = &shown["networks"][0]["totals"][0];
    assert_eq!(total["workloads"], 2, "{total}");
    assert!(number(&total["reasons"]["no_route"]) > 10.0, "{total}");
}
