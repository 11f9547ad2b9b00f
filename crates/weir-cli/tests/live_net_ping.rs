//! `weir net ping` on real devices: over a bridge, small filters, a router and the tunnel to another edge, and what it says where nothing comes back.

use std::process::Output;

use crate::live_bed::{file, root, stderr, weir};
use serde_json::Value;
use weir_kernel::NetNs;

/// Two edges; names of edges are those of pins, which other tests have beside these.
fn document(edges: &[String; 2]) -> String {
    let [one, two] = edges;
    format!(
        r#"
[[edge]]
name = "{one}"
underlay = "192.0.2.1"
device = "under0"
mtu = 1600
tunnel = "geneve"
[[edge]]
name = "{two}"
underlay = "192.0.2.2"
device = "under0"
mtu = 1600
tunnel = "geneve"
[[tenant]]
name = "red"
[[network]]
name = "shop"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = ["10.1.0.0/24", "fd00:1::/64"]
[[network.subnet]]
name = "db"
prefix = "10.2.0.0/24"
[[network.function]]
name = "gw"
kind = "router"
interface = [
  {{ name = "web", address = ["10.1.0.1/24", "fd00:1::1/64"] }},
  {{ name = "db", address = "10.2.0.1/24" }},
]
route = ["unreachable 10.9.0.0/16", "blackhole 10.8.0.0/16"]
[[network.link]]
from = "web"
to = "gw.web"
[[network.function]]
name = "wall"
kind = "filter"
rules = ["deny udp to-port 53"]
[[network.function]]
name = "list"
kind = "filter"
rules = ["deny from 10.7.0.0/16"]
[[network.link]]
from = "db"
to = "wall"
[[network.link]]
from = "wall"
to = "list"
[[network.link]]
from = "list"
to = "gw.db"
[[network.workload]]
name = "a"
subnet = "web"
edge = "{one}"
device = "wa"
mac = "02:00:00:00:00:0a"
address = ["10.1.0.10", "fd00:1::10"]
[[network.workload]]
name = "b"
subnet = "db"
edge = "{one}"
device = "wb"
mac = "02:00:00:00:00:0b"
address = "10.2.0.11"
[[network.workload]]
name = "c"
subnet = "web"
edge = "{two}"
device = "wc"
mac = "02:00:00:00:00:0c"
address = ["10.1.0.12", "fd00:1::12"]
"#
    )
}

/// A workload behind a veth of an edge.
fn workload(edge: &NetNs, device: &str, mac: &str, addresses: &[&str], gateway: &str) -> NetNs {
    let ns = NetNs::create("vpw").expect("a namespace");
    let pair = [
        "link",
        "add",
        device,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        ns.name(),
    ];
    edge.ip(&pair).expect("a pair");
    edge.ip(&["link", "set", device, "up"]).expect("up");
    ns.ip(&["link", "set", "eth0", "address", mac, "up"])
        .expect("up");
    for address in addresses {
        let mut args = vec!["address", "add", address, "dev", "eth0"];
        if address.contains(':') {
            args.push("nodad");
        }
        ns.ip(&args).expect("an address");
    }
    ns.ip(&["route", "add", "default", "via", gateway])
        .expect("a route");
    ns
}

/// Two edges with an underlay between them. Workloads `a` and `b` are on the first, `c` on the second.
pub(crate) struct Pair {
    pub(crate) edges: [NetNs; 2],
    pub(crate) names: [String; 2],
    pub(crate) workloads: [NetNs; 3],
    pub(crate) document: String,
}

impl Pair {
    /// Made and applied; names of edges begin with `prefix`.
    pub(crate) fn new(prefix: &str) -> Pair {
        let edges = [
            NetNs::create("vpe").expect("a namespace"),
            NetNs::create("vpe").expect("a namespace"),
        ];
        let names = ["a", "b"].map(|end| format!("{prefix}-{}-{end}", std::process::id()));
        let under = [
            "link",
            "add",
            "under0",
            "mtu",
            "1600",
            "type",
            "veth",
            "peer",
            "name",
            "under0",
            "mtu",
            "1600",
            "netns",
            edges[1].name(),
        ];
        edges[0].ip(&under).expect("an underlay");
        for (edge, address) in edges.iter().zip(["192.0.2.1/24", "192.0.2.2/24"]) {
            edge.ip(&["address", "add", address, "dev", "under0"])
                .expect("an address");
            edge.ip(&["link", "set", "under0", "up"]).expect("up");
            edge.ip(&["link", "set", "lo", "up"]).expect("up");
        }
        let workloads = [
            workload(
                &edges[0],
                "wa",
                "02:00:00:00:00:0a",
                &["10.1.0.10/24", "fd00:1::10/64"],
                "10.1.0.1",
            ),
            workload(
                &edges[0],
                "wb",
                "02:00:00:00:00:0b",
                &["10.2.0.11/24"],
                "10.2.0.1",
            ),
            workload(
                &edges[1],
                "wc",
                "02:00:00:00:00:0c",
                &["10.1.0.12/24", "fd00:1::12/64"],
                "10.1.0.1",
            ),
        ];
        let path = file(&format!("{prefix}.toml"), &document(&names));
        let pair = Pair {
            edges,
            names,
            workloads,
            document: path.to_str().expect("a path").to_owned(),
        };
        for (edge, name) in pair.edges.iter().zip(&pair.names) {
            let output = weir(edge, &["apply", &pair.document, "--edge", name]);
            assert!(output.status.success(), "{}", stderr(&output));
        }
        pair
    }
}

/// Removes what runs, also after a panic.
impl Drop for Pair {
    fn drop(&mut self) {
        for (edge, name) in self.edges.iter().zip(&self.names) {
            let removed = weir(edge, &["net", "delete", "--edge", name]);
            if !std::thread::panicking() {
                assert!(removed.status.success(), "{}", stderr(&removed));
            }
        }
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn a_workload_is_pinged_over_bridge_router_and_tunnel_and_losses_are_named() {
    if !root("a_workload_is_pinged_over_bridge_router_and_tunnel_and_losses_are_named") {
        return;
    }
    let pair = Pair::new("ping");
    let (edges, names) = (&pair.edges, &pair.names);
    let [_, b, c] = &pair.workloads;
    let ping = |to: &str, more: &[&str]| {
        let args = [
            &[
                "net", "ping", "shop/a", to, "-i", "0.02", "--edge", &names[0],
            ][..],
            more,
        ];
        weir(&edges[0], &args.concat())
    };
    // The router here, a workload behind it, one behind the tunnel, and that one by IPv6.
    for (to, ttl) in [
        ("10.1.0.1", 64),
        ("b", 63),
        ("shop/c", 64),
        ("fd00:1::12", 64),
    ] {
        let output = ping(to, &["-c", "3", "-W", "5", "--json"]);
        let said = json(&output);
        assert!(output.status.success(), "{to}: {said} {}", stderr(&output));
        // The first one may be lost to the underlay's own question for the neighbour.
        assert!(
            said["answered"].as_u64().is_some_and(|n| n >= 2),
            "{to}: {said}"
        );
        assert_eq!(said["requests"][2]["ttl"], ttl, "{to}: {said}");
        assert!(
            said["rtt_ms"]["least"].as_f64().is_some_and(|ms| ms > 0.0),
            "{to}: {said}"
        );
    }
    let output = ping("b", &["-c", "2", "-W", "5"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("bytes from 10.2.0.11: seq=1 ttl=63"),
        "{text}"
    );
    assert!(text.contains("2 sent, 2 answered, 0 % lost"), "{text}");
    // The router refuses, and says so.
    let output = ping("10.9.0.1", &["-c", "2", "-W", "0.3"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("from 10.1.0.1: seq=1"), "{text}");
    assert!(text.contains("2 refused"), "{text}");
    // It says nothing, and counts why.
    let output = ping("10.8.0.1", &["-c", "2", "-W", "0.3", "--json"]);
    let said = json(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let drops = said["drops"].as_array().expect("a list");
    let found = drops.iter().find(|one| one["reason"] == "no_route");
    let found = found.unwrap_or_else(|| panic!("{said}"));
    assert_eq!(found["packets"], 2, "{said}");
    assert_eq!(found["interface"], "gw.web", "{said}");
    // A workload that does not answer: requests are seen going there.
    b.sysctl("net.ipv4.icmp_echo_ignore_all", "1").expect("set");
    let said = json(&ping("b", &["-c", "2", "-W", "0.3", "--json"]));
    let why = said["why"].to_string();
    assert!(
        why.contains("2 of 2 requests were delivered to b (10.2.0.11) by wb, and it answered none"),
        "{said}"
    );
    // ... and one on the other edge: the tunnel carries.
    c.sysctl("net.ipv4.icmp_echo_ignore_all", "1").expect("set");
    let said = json(&ping("c", &["-c", "2", "-W", "0.3", "--json"]));
    let why = said["why"].to_string();
    assert!(why.contains("answered a probe by its tunnel"), "{said}");
    // The underlay is cut.
    edges[1]
        .ip(&["link", "set", "under0", "down"])
        .expect("down");
    let said = json(&ping("c", &["-c", "2", "-W", "0.3", "--json"]));
    let why = said["why"].to_string();
    assert!(
        why.contains("did not answer a probe") || why.contains("no probe of the tunnel"),
        "{said}"
    );
    // Not from here, and not to other networks.
    for (args, what) in [
        (["net", "ping", "shop/c", "10.1.0.10"], "is on edge"),
        (["net", "ping", "shop/a", "lab/x"], "another network"),
        (["net", "ping", "shop/a", "nobody"], "no workload named"),
        (["net", "ping", "a", "10.1.0.1"], "write NETWORK/WORKLOAD"),
    ] {
        let all = [&args[..], &["--edge", &names[0]]].concat();
        let output = weir(&edges[0], &all);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    }
}
