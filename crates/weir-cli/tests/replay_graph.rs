//! `weir replay CONFIG.toml`: the same report and output capture from every engine, packets by port, and one line for what is wrong.

use std::path::Path;

use crate::common::{Folder, engines, read_capture, root, weir};

const GRAPH: &str = r#"
edge = "replayed"
[[port]]
name = "wan"
device = "box0"
[[port]]
name = "lan"
device = "box1"
[[function]]
name = "count"
kind = "empty"
[[function]]
name = "box"
kind = "middlebox"
rules = """
udp-dport 443 drop
tcp-syn log "opens"
tcp-dport 8080 mod tcp-dport 80
"""
[[link]]
from = "wan"
to = "count"
[[link]]
from = "count"
to = "box"
[[link]]
from = "box"
to = "lan"
[[link]]
from = "lan"
to = "wan"
"#;

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

#[test]
fn every_engine_says_the_same_of_a_graph() {
    let folder = Folder::new();
    let graph = folder.write("graph.toml", GRAPH);
    let input = root().join("tests/captures/demo.pcapng");
    /// The report, the packets written, and the explanation of one engine.
    type Said = (serde_json::Value, Vec<(u64, Vec<u8>)>, String);
    let mut first: Option<Said> = None;
    for engine in engines() {
        if engine == "reference" {
            continue;
        }
        let out = folder.join(&format!("{engine}.pcap"));
        let args = |more: &[&str]| {
            let fixed = [
                "replay",
                text(&graph),
                "--in",
                text(&input),
                "--port",
                "wan",
            ];
            let fixed = fixed.iter().map(|a| (*a).to_owned());
            let all = fixed.chain(["--engine".to_owned(), engine.to_owned()]);
            let more = more.iter().map(|a| (*a).to_owned());
            all.chain(more).collect::<Vec<String>>()
        };
        let run = weir(args(&["--json", "--out", text(&out)])).succeeded();
        let mut report = run.json();
        assert_eq!(report["engine"].take(), engine);
        let frames = read_capture(&out);
        let packets = &report["packets"];
        assert_eq!(packets["redirect"], frames.len(), "{report}");
        assert_eq!(report["ports"][1]["sent"], frames.len(), "{report}");
        assert!(packets["drop"].as_u64().is_some_and(|n| n > 0), "{report}");
        let said = weir(args(&[])).succeeded();
        assert!(said.stdout.contains("box (middlebox)"), "{}", said.stdout);
        assert!(said.stderr.contains(" box rule "), "{}", said.stderr);
        match &first {
            None => first = Some((report, frames, said.stderr)),
            Some(known) => assert_eq!(*known, (report, frames, said.stderr), "{engine}"),
        }
    }
    assert!(first.is_some());
}

/// The capture names its interfaces as the graph its devices: packets come in by both ports.
#[test]
fn packets_come_in_by_the_port_their_interface_names() {
    let folder = Folder::new();
    let graph = folder.write("graph.toml", GRAPH);
    let input = root().join("tests/captures/demo.pcapng");
    let run = weir(["replay", text(&graph), "--in", text(&input), "--json"]).succeeded();
    let report = run.json();
    let received = |port: usize| report["ports"][port]["packets"]["received"].as_u64();
    let (wan, lan) = (received(0), received(1));
    assert!(wan > Some(0) && lan > Some(0), "{report}");
    assert_eq!(report["ports"][0]["sent"].as_u64(), lan, "{report}");
}

/// A port on tc: what it receives, and what leaves by it.
const HOST: &str = r#"
[[port]]
name = "wan"
device = "box0"
hook = "tc"
[[function]]
name = "wall"
kind = "middlebox"
rules = "out wan udp-dport accept\nin wan tcp-dport accept\nall drop"
[[link]]
from = "wan"
to = "wall"
[[link]]
from = "wan.transmit"
to = "wall"
"#;

#[test]
fn packets_leave_by_a_port_on_tc_where_that_is_asked_for() {
    let folder = Folder::new();
    let graph = folder.write("host.toml", HOST);
    let input = root().join("tests/captures/demo.pcapng");
    for (port, wanted) in [
        ("wan", false),
        ("wan.transmit", true),
        ("box0.transmit", true),
    ] {
        let mut first: Option<serde_json::Value> = None;
        for engine in engines() {
            // Native code is of XDP programs only.
            if ["reference", "user-jit"].contains(&engine) {
                continue;
            }
            let args = ["replay", text(&graph), "--in", text(&input), "--json"];
            let more = ["--port", port, "--engine", engine];
            let mut report = weir([&args[..], &more].concat()).succeeded().json();
            report["engine"].take();
            let own = &report["ports"][0];
            let (received, sent) = (&own["packets"], &own["transmit"]["packets"]);
            let (some, none) = if wanted {
                (sent, received)
            } else {
                (received, sent)
            };
            assert_eq!(none["received"], 0, "{port} {report}");
            assert!(some["received"].as_u64() > Some(0), "{port} {report}");
            // UDP may leave, TCP may come in: the policy knows which is which.
            let passed = report["packets"]["pass"].as_u64();
            assert!(passed > Some(0), "{port} {report}");
            assert_ne!(report["packets"]["pass"], report["packets"]["received"]);
            match &first {
                None => first = Some(report),
                Some(known) => assert_eq!(*known, report, "{engine}"),
            }
        }
        assert!(first.is_some());
    }
    let received = |text: &str| {
        let (before, _) = text
            .split_once("[[link]]\nfrom = \"wan.transmit\"")
            .expect("two links");
        before.to_owned()
    };
    let less = folder.write("less.toml", received(HOST));
    let args = [
        "replay",
        text(&less),
        "--in",
        text(&input),
        "--port",
        "wan.transmit",
    ];
    let refused = weir(args);
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    // Without that link `out` is not known, which is said first.
    assert!(refused.stderr.contains("`out`"), "{}", refused.stderr);
    let plain = HOST.replace("out wan udp-dport accept\\n", "");
    let plain = folder.write("plain.toml", received(&plain));
    let args = [
        "replay",
        text(&plain),
        "--in",
        text(&input),
        "--port",
        "wan.transmit",
    ];
    let refused = weir(args);
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    let says = "does not see packets that leave by `wan`";
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let folder = Folder::new();
    let graph = folder.write("graph.toml", GRAPH);
    let plain = folder.capture("plain.pcap", &[vec![0; 60]]);
    let policy = folder.write("p.weir", "tcp-dport 80 drop\n");
    let broken = folder.write("broken.toml", GRAPH.replace("to = \"lan\"", "to = \"lam\""));
    let refused = |args: &[&str], wanted: &[&str]| {
        let run = weir(["replay"].iter().chain(args));
        assert_eq!(run.status, 2, "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
        for text in wanted {
            assert!(run.stderr.contains(text), "{args:?}: {}", run.stderr);
        }
    };
    let (graph, plain) = (text(&graph), text(&plain));
    refused(&[graph, "--in", plain], &["any port", "wan, lan", "--port"]);
    refused(
        &[graph, "--in", plain, "--port", "dmz"],
        &["no such port", "wan, lan"],
    );
    refused(
        &[graph, "--in", plain, "--in-if", "x"],
        &["--in-if", "--port"],
    );
    let reference = [
        graph,
        "--in",
        plain,
        "--port",
        "wan",
        "--engine",
        "reference",
    ];
    refused(&reference, &["user, user-jit or kernel"]);
    refused(
        &[text(&policy), "--in", plain, "--port", "wan"],
        &["--port is for graphs", "--in-if"],
    );
    let dangling = [text(&broken), "--in", plain, "--port", "wan"];
    refused(&dangling, &["lam", "1 mistake in the configuration"]);
    refused(
        &["none.toml", "--in", plain],
        &["cannot read the configuration `none.toml`"],
    );
    let own = [graph, "--in", plain, "--port", "wan", "--out", plain];
    refused(&own, &["choose another file"]);
}
