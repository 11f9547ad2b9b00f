//! The example of the documentation, planned for both of its edges.

use std::collections::BTreeSet;

use crate::bench::{Numbered, networks};
use weir_bpf::abi::{exact_kind, net_slot};
use weir_network::exact::scope;
use weir_network::values::{mac_of_name, number, words};
use weir_network::{EdgeNetworks, Numbers, Tables};

fn planned(edge: &str) -> (EdgeNetworks, Tables) {
    let text = include_str!("../../../examples/network.toml");
    let plan = networks(text)
        .plan(edge, &Numbers::default())
        .expect("planned");
    let tables = plan.tables(&Numbered, 0).expect("tables");
    (plan, tables)
}

fn address(text: &str) -> [u64; 2] {
    words(number(text.parse().expect("address")))
}

#[test]
fn both_edges_have_what_they_need() {
    let (plan, tables) = planned("e1");
    let bridge = |name: &str| plan.numbers.bridges.of(name);
    let vid = |name: &str| plan.numbers.interfaces.of(name);
    // The other workload of the subnet is behind the tunnel, by the only remote there is.
    let w2 = mac_of_name("shop/w2");
    let find = |kind, instance, key| tables.exact.find(scope(kind, instance, 0), key);
    let station = find(
        exact_kind::STATION,
        bridge("shop/web"),
        [w2.number() << 16, 0],
    )
    .expect("known");
    assert_eq!(station.value, vid("shop/web -> other edges"));
    assert_eq!(plan.labels.remotes[station.extra as usize], "e2");
    // The same address of another tenant has another answer.
    let red = find(exact_kind::ARP, bridge("shop/web"), address("10.1.0.8")).expect("known");
    let blue = find(exact_kind::ARP, bridge("lab/bench"), address("10.1.0.8")).expect("known");
    assert_eq!(red.extra, w2.number());
    assert_eq!(blue.extra, mac_of_name("lab/b").number());
    // What is on the wire leads to the bridge of the segment, and only the other edge may send it.
    let tunnel = find(exact_kind::TUNNEL, 0, [100, 0]).expect("known");
    let vi = &tables.interfaces[tunnel.value as usize];
    assert_eq!(
        (vi.peer, vi.slot),
        (vid("shop/web -> other edges"), net_slot::BRIDGE)
    );
    assert!(find(exact_kind::MEMBER, 0, [100, station.extra]).is_some());
    assert!(find(exact_kind::MEMBER, 0, [100, station.extra + 1]).is_none());
    // A workload's device leads to the workload.
    let (_, one) = plan
        .devices
        .iter()
        .enumerate()
        .find(|(_, one)| one.workload == "w1")
        .expect("there");
    let device = find(exact_kind::DEVICE, 0, [Numbered::index("red-w1").into(), 0]).expect("known");
    assert_eq!(device.value, one.vid);
    let other = planned("e2").0;
    let devices: Vec<&str> = other
        .devices
        .iter()
        .map(|one| one.device.as_str())
        .collect();
    assert_eq!(devices, ["red-w2", "red-store", "blue-b"]);
    // Numbers of tenants are on the wire.
    assert_eq!(plan.labels.tenants, other.labels.tenants);
}

#[test]
fn plans_are_the_same_every_time_and_keep_their_numbers() {
    let text = include_str!("../../../examples/network.toml");
    let (first, tables) = planned("e1");
    let again = networks(text).plan("e1", &first.numbers).expect("planned");
    assert_eq!(again.tables(&Numbered, 0).expect("tables"), tables);
    assert_eq!(again.numbers, first.numbers);
}

/// What the documentation shows is read as it stands, and names every key.
#[test]
fn the_documentation_shows_a_document() {
    let page = include_str!("../../../docs/design/network.md");
    let block = page
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let document = weir_network::parse(block.expect("a block"), "docs/design/network.md");
    let document = document.unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(document.networks[0].chains[0].through.len(), 2);
    let keys = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.split_once(" = "));
        lines.map(|(key, _)| key.trim().to_owned()).collect()
    };
    // Everything that export writes, which is all there is, is shown.
    let mistakes = include_str!("../src/export.rs");
    let all = mistakes
        .split("const TEXT: &str = r#\"")
        .nth(1)
        .and_then(|rest| rest.split("\"#;").next());
    let own = ["fraction", "small", "when", "flag", "\"odd key\""];
    let missing: Vec<String> = keys(all.expect("a text"))
        .difference(&keys(block.expect("a block")))
        .cloned()
        .collect();
    let missing: Vec<&String> = missing
        .iter()
        .filter(|key| !own.contains(&key.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
