//! `weir explain --in` with rules that keep connections: what it says of a packet depends on those before it, and is what replay
//! counts.

use crate::common::{Folder, weir};
use serde_json::Value;
use weir_packet::build::Frame;

#[test]
fn connections_are_those_of_the_packets_before() {
    let folder = Folder::new();
    let policy = folder.write(
        "p.weir",
        "out: add-stateful ip-saddr 10.0.0.0/8 accept\nrest: all drop\n",
    );
    let (inside, outside) = ([10, 0, 0, 1], [192, 0, 2, 53]);
    let query = Frame::new().ip4(inside, outside).udp(5000, 53).build();
    let answer = Frame::new().ip4(outside, inside).udp(53, 5000).build();
    let capture = folder.capture("in.pcap", &[answer.clone(), query, answer]);
    let (policy, capture) = (
        policy.to_str().expect("test paths are UTF-8"),
        capture.to_str().expect("test paths are UTF-8"),
    );
    let run = weir(["explain", policy, "--in", capture, "--json"]);
    let all = run.succeeded().json();
    let parts: Vec<&Value> = (0..3).map(|i| &all["packets"][i]["connection"]).collect();
    assert_eq!(parts, [&Value::Null, &"opened".into(), &"reverse".into()]);
    // What it says matches is what replay counts.
    let run = weir(["replay", policy, "--in", capture, "--json"]);
    let counted = run.succeeded().json();
    for rule in 0..2 {
        let matched = (0..3)
            .filter(|packet| all["packets"][packet]["rules"][rule]["matched"] == true)
            .count();
        assert_eq!(counted["rules"][rule]["packets"], matched, "{all}");
    }
    // One packet alone is explained as in its place.
    let run = weir(["explain", policy, "--in", capture, "--packet", "3"]);
    let text = &run.succeeded().stdout;
    assert!(
        text.contains("belongs to a connection, reply direction"),
        "{text}"
    );
    assert!(
        text.contains("rule 1 (out) counts: the packet's connection was opened with it"),
        "{text}"
    );
}
