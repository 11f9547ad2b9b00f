//! `weir connections` on a running instance: what is listed is what packets opened, ending one ends it, and a rule that goes takes its
//! connections along. Needs root.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::live_bed::{Run, file, root, stderr, weir};
use serde_json::Value;
use weir_kernel::{NetNs, bed, pins};

/// A host that takes nothing in but answers to what it asked, and reaches port 7 as port 5007.
const POLICY: &str = "connections 500\ntimeout udp-new 30s\n\
    out: add-stateful out right0 udp-dport 1-1000 accept\n\
    map: add-stateful out right0 udp-dport 5007 map udp-dport 7 accept\n\
    in right0 ip-proto udp drop\n";

#[test]
fn connections_are_listed_counted_and_ended() {
    if !root("connections_are_listed_counted_and_ended") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let left = NetNs::create("weirc-l").expect("namespace");
    let right = NetNs::create("weirc-r").expect("namespace");
    let end = |ns, name, addresses| bed::End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&left, "left0", &["10.82.0.1/24"]),
        end(&right, "right0", &["10.82.0.2/24"]),
    )
    .expect("veth");
    let run = Run::start(&right, POLICY, &["right0"], &["--egress"]);
    let server = open(&left, "10.82.0.1:7");
    let host = open(&right, "10.82.0.2:6000");

    // Asked, so the answer comes in.
    let asked = |port: u16| {
        host.send_to(b"?", ("10.82.0.1", port)).expect("sends");
        let mut buffer = [0; 8];
        let Ok((_, from)) = server.recv_from(&mut buffer) else {
            return None;
        };
        server.send_to(b"!", from).expect("answers");
        host.recv_from(&mut buffer).ok().map(|(_, from)| from)
    };
    assert_eq!(asked(7), Some(SocketAddr::from(([10, 82, 0, 1], 7))));
    let listed = list(&right, &[]);
    assert_eq!(listed["capacity"], 500);
    let all = listed["connections"].as_array().expect("a list");
    assert_eq!(all.len(), 1, "{listed}");
    assert_eq!(all[0]["state"], "udp-stream");
    assert_eq!(all[0]["on_transmit"], true);
    assert_eq!(all[0]["original"]["source"], "10.82.0.2");
    assert_eq!(all[0]["original"]["destination_port"], 7);
    assert_eq!(all[0]["translated"], Value::Null);
    assert_eq!(all[0]["rules"], serde_json::json!([1]));

    // The other rule would give it the tuple of the connection there is: another source port is taken.
    assert_eq!(
        asked(5007),
        Some(SocketAddr::from(([10, 82, 0, 1], 5007))),
        "the host sees the port it asked"
    );
    let mapped = list(&right, &["--rule", "2"]);
    let mapped = &mapped["connections"][0];
    assert_eq!(mapped["translated"]["destination_port"], 7);
    assert_ne!(mapped["translated"]["source_port"], 6000, "{mapped}");
    let text = weir(&right, &["connections", "--port", "5007"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("udp-stream 10.82.0.2:6000 > 10.82.0.1:5007") && text.contains(" as "),
        "{text}"
    );
    let count = json(&right, &["count"]);
    assert_eq!(count["total"], 2);
    assert_eq!(count["translated"], 1);
    assert_eq!(count["by_state"]["udp-stream"], 2);

    // Ended: the answer that was let in is not any more.
    let id = all[0]["id"].to_string();
    assert_eq!(json(&right, &["delete", "--id", &id])["ended"], 1);
    server
        .send_to(b"!", (IpAddr::from([10, 82, 0, 2]), 6000))
        .expect("sends");
    assert!(host.recv_from(&mut [0; 8]).is_err(), "nobody asked");
    assert_eq!(json(&right, &["delete", "--id", &id])["ended"], 0);

    // A rule that goes takes its connections along with the next packet of each.
    assert_eq!(asked(7), Some(SocketAddr::from(([10, 82, 0, 1], 7))));
    let deleted = weir(&right, &["rule", "delete", "1"]);
    assert!(deleted.status.success(), "{}", stderr(&deleted));
    server
        .send_to(b"!", (IpAddr::from([10, 82, 0, 2]), 6000))
        .expect("sends");
    assert!(host.recv_from(&mut [0; 8]).is_err(), "its rule is gone");
    assert_eq!(
        list(&right, &["--rule", "1"])["connections"],
        Value::from(Vec::<u8>::new())
    );
    // Added again, it is another rule; the rest goes on.
    let added = weir(
        &right,
        &[
            "rule",
            "add-stateful",
            "out",
            "right0",
            "udp-dport",
            "7",
            "accept",
        ],
    );
    assert!(added.status.success(), "{}", stderr(&added));
    assert_eq!(asked(7), Some(SocketAddr::from(([10, 82, 0, 1], 7))));
    assert_eq!(
        list(&right, &["--rule", "2"])["connections"][0]["id"],
        mapped["id"]
    );
    assert_eq!(json(&right, &["delete", "--all"])["ended"], 2);
    assert_eq!(json(&right, &["count"])["total"], 0);
    run.stop();
}

/// A middlebox of a graph keeps its connections without a process; the same command lists, counts and ends them.
#[test]
fn connections_of_a_graph_are_listed_and_ended() {
    if !root("connections_of_a_graph_are_listed_and_ended") {
        return;
    }
    let left = NetNs::create("weirc-gl").expect("namespace");
    let right = NetNs::create("weirc-gr").expect("namespace");
    let end = |ns, name, addresses| bed::End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&left, "left0", &["10.82.1.1/24"]),
        end(&right, "right0", &["10.82.1.2/24"]),
    )
    .expect("veth");
    let edge = format!("conn-{}", std::process::id());
    let config = file(
        "connections.toml",
        &format!(
            "edge = \"{edge}\"\n[[port]]\nname = \"right\"\ndevice = \"right0\"\n[[function]]\nname = \"track\"\nkind = \"middlebox\"\n\
             rules = \"connections 300\\nudp: add-stateful udp-dport 1-1000 accept\"\n[[link]]\nfrom = \"right\"\nto = \"track\"\n[[link]]\nfrom = \"track\"\nto = \"stack\"\n"
        ),
    );
    let config = config.to_str().expect("a path");
    let applied = weir(&right, &["apply", config]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let server = open(&right, "10.82.1.2:7");
    let host = open(&left, "10.82.1.1:6000");
    host.send_to(b"?", "10.82.1.2:7").expect("sends");
    server.recv_from(&mut [0; 8]).expect("arrives");
    // The only table here needs no name; by its name it is the same.
    let named = ["--edge", &edge, "--function", "track"];
    for arguments in [&[][..], &named] {
        let listed = list(&right, arguments);
        assert_eq!(listed["capacity"], 300, "{listed}");
        assert_eq!(listed["instance"]["function"], "track", "{listed}");
        let all = listed["connections"].as_array().expect("a list");
        assert_eq!(all.len(), 1, "{listed}");
        assert_eq!(all[0]["original"]["source"], "10.82.1.1");
        assert_eq!(all[0]["rules"], serde_json::json!([1]));
    }
    let ended = json(&right, &["delete", "--all"]);
    assert_eq!(ended["ended"], 1);
    assert_eq!(json(&right, &["count"])["total"], 0);
    let unknown = weir(&right, &["connections", "--function", "other"]);
    assert!(
        stderr(&unknown).contains("no such function"),
        "{}",
        stderr(&unknown)
    );
    let down = weir(&right, &["down", config]);
    assert!(down.status.success(), "{}", stderr(&down));
}

#[test]
fn a_tuple_that_is_deleted_and_reopened_is_found() {
    if !root("a_tuple_that_is_deleted_and_reopened_is_found") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let left = NetNs::create("weircd-l").expect("namespace");
    let right = NetNs::create("weircd-r").expect("namespace");
    let end = |ns, name, addresses| bed::End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&left, "left0", &["10.82.1.1/24"]),
        end(&right, "right0", &["10.82.1.2/24"]),
    )
    .expect("veth");
    let run = Run::start(&right, POLICY, &["right0"], &["--egress"]);
    let server = open(&left, "10.82.1.1:7");
    let host = open(&right, "10.82.1.2:6000");
    // A place of the index keeps its tag when its record is deleted; a search follows three places of a tag.
    for round in 0..8 {
        for exchange in 0..2 {
            let mut buffer = [0; 8];
            host.send_to(b"?", "10.82.1.1:7").expect("sends");
            let (_, from) = server.recv_from(&mut buffer).expect("is asked");
            server.send_to(b"!", from).expect("answers");
            assert!(
                host.recv_from(&mut buffer).is_ok(),
                "round {round}, exchange {exchange}: the answer is lost"
            );
        }
        assert_eq!(json(&right, &["count"])["total"], 1, "round {round}");
        assert_eq!(json(&right, &["delete", "--all"])["ended"], 1);
    }
    run.stop();
}

#[test]
fn what_is_not_said_well_is_refused() {
    if !root("what_is_not_said_well_is_refused") {
        return;
    }
    let ns = NetNs::create("weirc-no").expect("namespace");
    let refused = |arguments: &[&str], status: i32, part: &str| {
        let output = weir(&ns, &[&["connections"], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    };
    refused(&["delete"], 2, "or --all of them");
    refused(&["delete", "--all", "--port", "7"], 2, "or --all of them");
    refused(&[], 1, "no `weir run` is running");
    refused(&["--state", "open"], 2, "tcp-established");
    ns.ip(&["link", "add", "one", "type", "veth", "peer", "name", "two"])
        .expect("veth");
    let run = Run::start(&ns, "all accept\n", &["one"], &[]);
    refused(&[], 2, "no rule keeps connections");
    run.stop();
}

fn open(ns: &NetNs, address: &str) -> UdpSocket {
    let socket = ns
        .run(|| UdpSocket::bind(address))
        .expect("namespace")
        .expect("bind");
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .expect("timeout");
    socket
}

fn list(ns: &NetNs, arguments: &[&str]) -> Value {
    json(ns, arguments)
}

fn json(ns: &NetNs, arguments: &[&str]) -> Value {
    let output = weir(ns, &[&["connections", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}
