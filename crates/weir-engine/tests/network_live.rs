//! Virtual networks on real devices, from documents: what is declared reaches, and nothing else.

use std::net::IpAddr;

use crate::network_bed::{Bed, checked, root};
use weir_kernel::iface;
use weir_packet::build::Frame;

/// Two subnets and a router on one edge.
const SHOP: &str = r#"
version = 1

[[edge]]
name = "e1"

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
prefix = ["10.2.0.0/24", "fd00:2::/64"]

[[network.function]]
name = "gw"
kind = "router"
interface = [
  { name = "web", address = ["10.1.0.1/24", "fd00:1::1/64"] },
  { name = "db", address = ["10.2.0.1/24", "fd00:2::1/64"] },
]

[[network.link]]
from = "web"
to = "gw.web"

[[network.link]]
from = "db"
to = "gw.db"

[[network.workload]]
name = "a"
subnet = "web"
edge = "e1"
device = "wa"
address = ["10.1.0.7", "fd00:1::7"]

[[network.workload]]
name = "b"
subnet = "web"
edge = "e1"
device = "wb"
address = ["10.1.0.8", "fd00:1::8"]

[[network.workload]]
name = "store"
subnet = "db"
edge = "e1"
device = "wd"
address = ["10.2.0.2", "fd00:2::2"]
"#;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn workloads_of_one_edge_reach_each_other_by_bridge_and_router() {
    if !root("workloads_of_one_edge_reach_each_other_by_bridge_and_router") {
        return;
    }
    let bed = Bed::new(&checked(SHOP).document);
    bed.apply(SHOP);
    for to in ["10.1.0.8", "fd00:1::8", "10.2.0.2", "fd00:2::2"] {
        assert!(bed.reaches("shop/a", ip(to)), "{to}: {:?}", bed.drops("e1"));
    }
    for to in ["10.1.0.1", "fd00:1::1", "10.2.0.1", "fd00:2::1"] {
        let said = bed.ping("shop/a", &[to]);
        assert!(
            said.contains(" 2 received"),
            "{to}: {said} {:?}",
            bed.drops("e1")
        );
    }
    let whole = bed.echo("shop/a", ip("10.2.0.2"), 20_000_000);
    assert_eq!(whole.expect("echoed"), 20_000_000);
    // The frames of one connection were not cut on the way.
    assert!(
        bed.ping("shop/store", &["10.1.0.8"])
            .contains(" 2 received")
    );
}

/// Edges that are joined by an underlay, and networks of two tenants with the same addresses over all of them: of each tenant a router between
/// two subnets, and on each edge a workload in each.
fn spread(edges: usize, tunnel: &str, v6: bool) -> String {
    let mut text = "version = 1\n".to_owned();
    for e in 0..edges {
        let underlay = match v6 {
            true => format!("fd00:99::{}", e + 1),
            false => format!("192.0.2.{}", e + 1),
        };
        text.push_str(&format!(
            "[[edge]]\nname = \"e{e}\"\nunderlay = \"{underlay}\"\ndevice = \"under0\"\nmtu = 1600\ntunnel = \"{tunnel}\"\n"
        ));
    }
    for tenant in ["red", "blue"] {
        text.push_str(&format!("[[tenant]]\nname = \"{tenant}\"\n"));
    }
    for tenant in ["red", "blue"] {
        text.push_str(&format!(
            r#"
[[network]]
name = "{tenant}-net"
tenant = "{tenant}"
[[network.subnet]]
name = "web"
prefix = ["10.1.0.0/24", "fd00:1::/64"]
[[network.subnet]]
name = "db"
prefix = ["10.2.0.0/24", "fd00:2::/64"]
[[network.function]]
name = "gw"
kind = "router"
interface = [
  {{ name = "web", address = ["10.1.0.1/24", "fd00:1::1/64"] }},
  {{ name = "db", address = ["10.2.0.1/24", "fd00:2::1/64"] }},
]
[[network.link]]
from = "web"
to = "gw.web"
[[network.link]]
from = "db"
to = "gw.db"
"#
        ));
        for e in 0..edges {
            for (n, subnet) in [(1, "web"), (2, "db")] {
                text.push_str(&format!(
                    "[[network.workload]]\nname = \"{subnet}{e}\"\nsubnet = \"{subnet}\"\nedge = \"e{e}\"\ndevice = \"{tenant}-{subnet}{e}\"\naddress = [\"10.{n}.0.{h}\", \"fd00:{n}::{h}\"]\n",
                    h = e + 10
                ));
            }
        }
    }
    text
}

#[test]
fn workloads_of_two_edges_reach_each_other_by_every_kind_of_tunnel() {
    if !root("workloads_of_two_edges_reach_each_other_by_every_kind_of_tunnel") {
        return;
    }
    for (tunnel, v6) in [
        ("vxlan", false),
        ("geneve", false),
        ("gre", false),
        ("geneve", true),
        ("gre", true),
        ("vxlan", true),
        ("kernel-vxlan", false),
        ("kernel-vxlan", true),
    ] {
        let text = spread(2, tunnel, v6);
        let bed = Bed::new(&checked(&text).document);
        bed.apply(&text);
        for tenant in ["red-net", "blue-net"] {
            let from = format!("{tenant}/web0");
            for to in [
                "10.1.0.11",
                "10.2.0.11",
                "fd00:1::11",
                "fd00:2::11",
                "10.2.0.10",
            ] {
                let to = ip(to);
                assert!(
                    bed.reaches(&from, to),
                    "{tunnel} {v6} {from} {to}: {:?} {:?}",
                    bed.drops("e0"),
                    bed.drops("e1")
                );
            }
            let whole = bed.echo(&from, ip("10.2.0.11"), 10_000_000);
            assert_eq!(whole.expect("echoed"), 10_000_000, "{tunnel} {v6}");
        }
    }
}

#[test]
fn the_kernels_tunnel_device_follows_the_mtu_of_its_edge() {
    if !root("the_kernels_tunnel_device_follows_the_mtu_of_its_edge") {
        return;
    }
    let text =
        |mtu: u32| spread(2, "kernel-vxlan", false).replace("mtu = 1600", &format!("mtu = {mtu}"));
    let bed = Bed::new(&checked(&text(1600)).document);
    // Outer IPv4, UDP, VXLAN and the inner Ethernet header: 20 + 8 + 8 + 14.
    for mtu in [1600, 1580, 1700] {
        bed.apply(&text(mtu));
        let ns = &bed.edges["e0"];
        let tunnels = || {
            let all = iface::list().expect("devices").into_iter();
            all.filter(|one| one.name.starts_with("wx"))
                .map(|one| one.mtu)
                .collect::<Vec<_>>()
        };
        assert_eq!(ns.run(tunnels).expect("in the namespace"), [mtu - 50]);
    }
}

/// Three tenants with the same addresses on five edges: in all 50 workloads, one of each tenant and edge on a tap, the rest on veths.
fn mesh() -> String {
    let mut text = "version = 1\n".to_owned();
    for e in 0..5 {
        // All kinds are taken, each edge sends another one.
        let tunnel = ["vxlan", "geneve", "gre", "geneve", "vxlan"][e];
        text.push_str(&format!(
            "[[edge]]\nname = \"e{e}\"\nunderlay = \"192.0.2.{}\"\ndevice = \"under0\"\nmtu = 1600\ntunnel = \"{tunnel}\"\naccepts = [\"vxlan\", \"geneve\", \"gre\"]\n",
            e + 1
        ));
    }
    let tenants = ["red", "blue", "gray"];
    for tenant in tenants {
        text.push_str(&format!("[[tenant]]\nname = \"{tenant}\"\n"));
    }
    for tenant in tenants {
        text.push_str(&format!(
            r#"
[[network]]
name = "{tenant}-net"
tenant = "{tenant}"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
[[network.subnet]]
name = "db"
prefix = "10.2.0.0/24"
[[network.function]]
name = "gw"
kind = "router"
interface = [ {{ name = "web", address = "10.1.0.1/24", mac = "02:00:00:00:01:01" }}, {{ name = "db", address = "10.2.0.1/24" }} ]
[[network.link]]
from = "web"
to = "gw.web"
[[network.link]]
from = "db"
to = "gw.db"
"#
        ));
        for e in 0..5 {
            // red has one more on every edge: 50 in all.
            let places: &[(u8, &str, &str)] = match tenant {
                "red" => &[
                    (1, "web", "v"),
                    (2, "db", "v"),
                    (1, "web", "tap"),
                    (2, "db", "w"),
                ],
                _ => &[(1, "web", "v"), (2, "db", "v"), (1, "web", "tap")],
            };
            for (at, (n, subnet, kind)) in places.iter().enumerate() {
                let host = 10 + e * 10 + at;
                text.push_str(&format!(
                    "[[network.workload]]\nname = \"{kind}{e}{at}\"\nsubnet = \"{subnet}\"\nedge = \"e{e}\"\ndevice = \"{kind}-{tenant}{e}{at}\"\naddress = \"10.{n}.0.{host}\"\n"
                ));
            }
        }
    }
    text
}

#[test]
fn five_edges_reach_what_is_declared_and_nothing_of_other_tenants() {
    if !root("five_edges_reach_what_is_declared_and_nothing_of_other_tenants") {
        return;
    }
    let text = mesh();
    let bed = Bed::new(&checked(&text).document);
    assert_eq!(bed.workloads.len() + bed.taps.len(), 50);
    bed.apply(&text);
    // The full mesh: who answers is the tenant's own workload, although all tenants have the same addresses.
    let mut pairs = 0;
    for (from, one) in &bed.workloads {
        for (to, other) in &bed.workloads {
            let tenant = |name: &str| name.split('/').next().map(str::to_owned);
            if from == to || tenant(from) != tenant(to) {
                continue;
            }
            let who = bed.who(from, other.addresses[0]);
            assert_eq!(
                who.as_deref(),
                Some(to.as_str()),
                "{from} ({}) -> {to} ({})",
                one.edge,
                other.edge
            );
            pairs += 1;
        }
        let same = |name: &&String| name.split('/').next() == from.split('/').next();
        for name in bed.taps.keys().filter(same) {
            let address = IpAddr::from(bed.taps[name].address);
            let said = bed.ping(from, &["-c", "1", &address.to_string()]);
            assert!(said.contains(" 1 received"), "{from} -> {name}: {said}");
            pairs += 1;
        }
    }
    for (name, tap) in &bed.taps {
        for (to, other) in &bed.workloads {
            if name.split('/').next() != to.split('/').next() {
                continue;
            }
            let IpAddr::V4(address) = other.addresses[0] else {
                panic!("an address of IPv4");
            };
            // In the same subnet to the station itself, else to the router.
            let station = match address.octets()[1] {
                1 => other.mac,
                _ => [2, 0, 0, 0, 1, 1],
            };
            assert!(tap.reaches(station, address.octets()), "{name} -> {to}");
            pairs += 1;
        }
    }
    eprintln!("{pairs} pairs reach each other");
    forge(&bed);
}

/// Frames with forged addresses, tags and inner tunnels out of a workload of each tenant: none arrives at any workload.
fn forge(bed: &Bed) {
    let patience = std::time::Duration::from_millis(1);
    let open = |ns: &weir_kernel::NetNs| {
        weir_kernel::FrameSocket::open(ns, "eth0", 1 << 20, patience).expect("a socket")
    };
    let sockets: Vec<_> = bed
        .workloads
        .iter()
        .map(|(name, one)| (name, open(&one.ns)))
        .collect();
    let macs: Vec<[u8; 6]> = bed.workloads.values().map(|one| one.mac).collect();
    let refused = |bed: &Bed| -> u64 {
        let drops = bed.edges.keys().map(|edge| bed.drops(edge));
        let of = [
            "spoofed",
            "spoofed_mac",
            "neighbour_spoofed",
            "vlan_not_allowed",
            "split_horizon",
        ];
        drops
            .flatten()
            .filter(|(reason, _)| of.contains(&reason.as_str()))
            .map(|(_, n)| n)
            .sum()
    };
    let before = refused(bed);
    let mut sent = 0;
    let senders = ["red-net/v00", "blue-net/v10", "gray-net/v20"];
    let mark = |sender: usize| [0xe0 + sender as u8; 60];
    for (at, name) in senders.iter().enumerate() {
        let one = &bed.workloads[*name];
        let IpAddr::V4(own) = one.addresses[0] else {
            panic!("an address of IPv4");
        };
        let mut frames = Vec::new();
        for mac in &macs {
            // Somebody else's MAC address, somebody else's IP address, a tag, and a tunnel inside of the network.
            let plain = |from: [u8; 6], ip: [u8; 4]| {
                let made = Frame::new().ip4(ip, [10, 1, 0, 99]).udp(1, 4789);
                let mut frame = made.payload(&mark(at)).build();
                frame[..6].copy_from_slice(mac);
                frame[6..12].copy_from_slice(&from);
                frame
            };
            frames.push(plain(*mac, own.octets()));
            frames.push(plain(one.mac, [10, 1, 0, 77]));
            let mut tagged = plain(one.mac, own.octets());
            tagged.splice(12..12, [0x81, 0, 0, 7]);
            frames.push(tagged);
        }
        let socket = open(&one.ns);
        for frame in &frames {
            // A frame that is not forged would be delivered: none here is from the workload to somebody of its own.
            socket.send(frame).expect("sent");
            sent += 1;
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    // Workloads' kernels ask for routers by addresses that they were not given, too.
    let refused = refused(bed) - before;
    assert!(refused >= sent, "{refused} of {sent} are refused");
    let mut buffer = vec![0; 1 << 16];
    for (name, socket) in &sockets {
        while let Some(frame) = socket.receive(&mut buffer).expect("read") {
            for (at, sender) in senders.iter().enumerate() {
                // A socket sees what its own workload sends, too.
                let forged = frame.windows(60).any(|bytes| bytes == mark(at));
                assert!(
                    !forged || name.as_str() == *sender,
                    "{name} got a forged frame of {sender}"
                );
            }
        }
    }
}

/// A router between two subnets on two edges, and behind it a wall that translates addresses and lets only the inside open connections. The
/// wall is on one edge, workloads of both subnets on both.
const WALL: &str = r#"
version = 1

[[edge]]
name = "e0"
underlay = "192.0.2.1"
device = "under0"
mtu = 1600
tunnel = "geneve"

[[edge]]
name = "e1"
underlay = "192.0.2.2"
device = "under0"
mtu = 1600
tunnel = "geneve"

[[tenant]]
name = "red"

[[network]]
name = "n"
tenant = "red"

[[network.subnet]]
name = "in"
prefix = "10.1.0.0/24"

[[network.subnet]]
name = "out"
prefix = "10.2.0.0/24"

[[network.function]]
name = "gw"
kind = "router"
interface = [ { name = "in", address = "10.1.0.1/24" }, { name = "out", address = "10.2.0.1/24" } ]

[[network.function]]
name = "wall"
kind = "middlebox"
home = "e0"
rules = """
open: add-stateful in a ip-saddr 10.1.0.0/24 map ip-saddr 10.2.0.1 accept
shut: in b drop
"""

[[network.link]]
from = "in"
to = "gw.in"

[[network.link]]
from = "gw.out"
to = "wall.a"

[[network.link]]
from = "wall.b"
to = "out"

[[network.workload]]
name = "in0"
subnet = "in"
edge = "e0"
device = "in0"
address = "10.1.0.10"

[[network.workload]]
name = "in1"
subnet = "in"
edge = "e1"
device = "in1"
address = "10.1.0.11"

[[network.workload]]
name = "out0"
subnet = "out"
edge = "e0"
device = "out0"
address = "10.2.0.10"

[[network.workload]]
name = "out1"
subnet = "out"
edge = "e1"
device = "out1"
address = "10.2.0.11"
"#;

#[test]
fn a_stateful_function_sees_both_directions_at_its_home() {
    if !root("a_stateful_function_sees_both_directions_at_its_home") {
        return;
    }
    // A reflexive rule alone, and one that translates, too.
    let plain = WALL.replace(" map ip-saddr 10.2.0.1", "");
    assert_ne!(plain, WALL);
    for text in [plain.as_str(), WALL] {
        let bed = Bed::new(&checked(text).document);
        bed.apply(text);
        for from in ["n/in0", "n/in1"] {
            for (to, name) in [("10.2.0.10", "n/out0"), ("10.2.0.11", "n/out1")] {
                let who = bed.who(from, ip(to));
                let drops = (bed.drops("e0"), bed.drops("e1"));
                assert_eq!(who.as_deref(), Some(name), "{from} -> {to}: {drops:?}");
            }
            let whole = bed.echo(from, ip("10.2.0.11"), 5_000_000);
            assert_eq!(whole.expect("echoed"), 5_000_000, "{from}");
        }
        // Nobody outside opens anything, on whatever edge.
        let refused = |bed: &Bed| bed.drops("e0").get("rule_drop").copied().unwrap_or(0);
        let before = refused(&bed);
        for (from, to) in [("n/out0", "10.1.0.11"), ("n/out1", "10.1.0.10")] {
            assert_eq!(bed.who_at_once(from, ip(to)), None, "{from} -> {to}");
        }
        assert!(refused(&bed) >= before + 2, "{:?}", bed.drops("e0"));
        // Another apply changes nothing of it: connections and their translations go on.
        bed.apply(text);
        assert_eq!(bed.who("n/in1", ip("10.2.0.11")).as_deref(), Some("n/out1"));
    }
}

/// A subnet on two edges in which one workload is known, and two ports behind which there may be anybody.
const STATIONS: &str = r#"
version = 1

[[edge]]
name = "e0"
underlay = "192.0.2.1"
device = "under0"
mtu = 1600

[[edge]]
name = "e1"
underlay = "192.0.2.2"
device = "under0"
mtu = 1600

[[tenant]]
name = "red"

[[network]]
name = "n"
tenant = "red"

[[network.subnet]]
name = "lab"
prefix = "10.1.0.0/24"

[[network.workload]]
name = "known"
subnet = "lab"
edge = "e0"
device = "known"
address = "10.1.0.10"

[[network.workload]]
name = "one"
subnet = "lab"
edge = "e0"
device = "one"
mac = "any"
address = "any"

[[network.workload]]
name = "other"
subnet = "lab"
edge = "e0"
device = "other"
mac = "any"
address = "any"

[[network.workload]]
name = "far"
subnet = "lab"
edge = "e1"
device = "far"
address = "10.1.0.20"
"#;

#[test]
fn stations_are_learned_where_they_speak_and_follow_when_they_move() {
    if !root("stations_are_learned_where_they_speak_and_follow_when_they_move") {
        return;
    }
    let bed = Bed::new(&checked(STATIONS).document);
    bed.apply(STATIONS);
    // A guest with addresses that no document names; one behind each port in turn.
    let guest = "10.1.0.77";
    let enter = |port: &str| {
        let ns = &bed.workloads[port].ns;
        ns.ip(&["link", "set", "eth0", "address", "02:77:00:00:00:01"])
            .expect("its address");
        ns.ip(&["address", "add", "10.1.0.77/24", "dev", "eth0"])
            .expect("an address");
    };
    let leave = |port: &str| {
        let ns = &bed.workloads[port].ns;
        ns.ip(&["address", "flush", "dev", "eth0"]).expect("gone");
        ns.ip(&["link", "set", "eth0", "address", "02:77:00:00:00:99"])
            .expect("another");
    };
    enter("n/one");
    let who = bed.who("n/known", ip(guest));
    assert_eq!(who.as_deref(), Some("n/one"), "{:?}", bed.drops("e0"));
    // Now that it is known where it is, nobody else gets a copy.
    let patience = std::time::Duration::from_millis(1);
    let other = &bed.workloads["n/other"].ns;
    let ears = weir_kernel::FrameSocket::open(other, "eth0", 1 << 20, patience).expect("a socket");
    let heard = || {
        let mut buffer = vec![0; 1 << 16];
        let mut frames = 0;
        while let Some(frame) = ears.receive(&mut buffer).expect("read") {
            frames += u32::from(frame[..6] == [2, 0x77, 0, 0, 0, 1]);
        }
        frames
    };
    heard();
    let whole = bed.echo("n/known", ip(guest), 1_000_000);
    assert_eq!(whole.expect("echoed"), 1_000_000);
    assert_eq!(heard(), 0);
    // From another edge it is found, too.
    let who = bed.who("n/far", ip(guest));
    assert_eq!(who.as_deref(), Some("n/one"), "{:?}", bed.drops("e1"));
    // It moves, and says so by the first thing it sends.
    leave("n/one");
    enter("n/other");
    let said = bed.ping("n/other", &["10.1.0.10"]);
    assert!(said.contains(" 2 received"), "{said} {:?}", bed.drops("e0"));
    for from in ["n/known", "n/far"] {
        let who = bed.who(from, ip(guest));
        assert_eq!(
            who.as_deref(),
            Some("n/other"),
            "{from}: {:?}",
            bed.drops("e0")
        );
    }
    // What was learned outlives an apply.
    bed.apply(STATIONS);
    assert_eq!(bed.who("n/far", ip(guest)).as_deref(), Some("n/other"));
}

/// A subnet on two edges with a trunk that has two VLANs, and untagged workloads in each and in none.
fn trunk() -> String {
    let mut text = STATIONS[..STATIONS.find("[[network.workload]]").expect("there")].to_owned();
    for (name, edge, host, vlan) in [
        ("tap", "e0", 50, "[10, 20]"),
        ("ten0", "e0", 11, "10"),
        ("ten1", "e1", 12, "10"),
        ("twenty0", "e0", 21, "20"),
        ("twenty1", "e1", 22, "20"),
        ("none", "e0", 31, "0"),
    ] {
        text.push_str(&format!(
            "[[network.workload]]\nname = \"{name}\"\nsubnet = \"lab\"\nedge = \"{edge}\"\ndevice = \"{name}\"\naddress = \"10.1.0.{host}\"\nvlan = {vlan}\n"
        ));
    }
    text
}

#[test]
fn a_trunk_carries_its_vlans_apart_from_each_other() {
    if !root("a_trunk_carries_its_vlans_apart_from_each_other") {
        return;
    }
    let text = trunk();
    let bed = Bed::new(&checked(&text).document);
    bed.apply(&text);
    let drops = || (bed.drops("e0"), bed.drops("e1"));
    // All in a VLAN reach each other and the trunk, on both edges.
    for (from, to) in [("ten0", 12), ("ten1", 11), ("twenty0", 22), ("twenty1", 21)] {
        for to in [to, 50] {
            let (from, to) = (format!("n/{from}"), format!("10.1.0.{to}"));
            // The trunk's end is a thread of this test: on a busy machine an answer may be late or lost, which is not what is asked here.
            let mut said = String::new();
            let reached = (0..3).any(|_| {
                said = bed.ping(&from, &[&to]);
                said.contains(" 2 received")
            });
            assert!(reached, "{from} {to}: {said} {:?}", drops());
        }
    }
    // The trunk got them with the tags of their VLANs.
    let came = |host, vlan| ([10, 1, 0, host], Some(vlan));
    let all = [came(11, 10), came(12, 10), came(21, 20), came(22, 20)];
    assert_eq!(bed.taps["n/tap"].requests(), all);
    // Nobody reaches another VLAN.
    for (from, to) in [
        ("ten0", 21),
        ("ten0", 22),
        ("twenty1", 12),
        ("ten0", 31),
        ("none", 50),
        ("none", 11),
        ("none", 21),
    ] {
        let (from, to) = (format!("n/{from}"), format!("10.1.0.{to}"));
        let said = bed.ping(&from, &["-c", "1", "-W", "0.3", &to]);
        assert!(said.contains(" 0 received"), "{from} {to}: {said}");
    }
    assert_eq!(bed.taps["n/tap"].requests(), all);
}

#[test]
fn a_chain_takes_what_it_selects_and_its_answers_the_other_way_round() {
    if !root("a_chain_takes_what_it_selects_and_its_answers_the_other_way_round") {
        return;
    }
    let mut text = SHOP.to_owned();
    text.push_str(
        r#"
[[network.function]]
name = "first"
kind = "middlebox"
rules = "seen: tcp-dport 7000 accept"

[[network.function]]
name = "second"
kind = "middlebox"
rules = "tcp-sport 7001 drop"

[[network.chain]]
name = "inspect"
at = "gw.web"
through = ["first", "second"]

[[network.chain.select]]
protocol = "tcp"
port = "7000-7001"
"#,
    );
    // Packets that go from `web` to the router are selected, and their answers belong to them.
    let bed = Bed::new(&checked(&text).document);
    bed.apply(&text);
    assert!(
        bed.reaches("shop/a", ip("10.2.0.2")),
        "{:?}",
        bed.drops("e1")
    );
    // Answers from port 7001 meet the rule of the second function, which they come to first.
    assert_eq!(bed.who_at_once("shop/a", ip("10.2.0.2")), None);
    // What is not selected, and what does not pass the link, meets neither.
    assert!(bed.ping("shop/a", &["10.2.0.2"]).contains(" 2 received"));
    assert_eq!(bed.who("shop/a", ip("10.1.0.8")).as_deref(), Some("shop/b"));
    let look = bed.look("e1");
    let drops = look.set.drops().expect("read");
    let dropped: u64 = drops.iter().map(|(_, n)| n).sum();
    assert!(dropped > 0);
}
