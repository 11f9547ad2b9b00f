//! Packets followed over the example: what is decided, and the bytes that arrive.

use crate::bench::networks;
use weir_network::trace::{Described, Payload, Trace, trace, trace_frame};
use weir_network::values::{Mac, mac_of_name};
use weir_packet::build::Frame;

const EXAMPLE: &str = include_str!("../../../examples/network.toml");

fn described(workload: &str, to: &str) -> Described {
    Described {
        network: "shop".to_owned(),
        workload: workload.to_owned(),
        to: to.parse().expect("address"),
        from: None,
        mac: None,
        payload: Payload::Udp(1000, 53),
        ttl: 64,
        length: 0,
    }
}

fn traced(described: &Described) -> Trace {
    traced_in(EXAMPLE, described)
}

fn traced_in(text: &str, described: &Described) -> Trace {
    trace(&networks(text), described).expect("traced")
}

fn frame(workload: Mac, to: Mac, frame: Frame) -> Vec<u8> {
    let mut bytes = frame.build();
    bytes[..6].copy_from_slice(&to.0);
    bytes[6..12].copy_from_slice(&workload.0);
    bytes
}

const W1: Mac = Mac([2, 0, 0, 0, 0, 7]);

#[test]
fn a_packet_crosses_the_router_where_it_starts_and_the_tunnel_of_its_last_subnet() {
    let trace = traced(&described("w1", "10.2.0.2"));
    assert_eq!(
        trace.to_string(),
        "\
edge e1
  w1: the packet's source is its own
  web: knows 3e:9f:3a:3d:50:98: gw.web
  gw: 10.2.0.2 is a neighbour: by gw.db to de:dd:10:3b:5c:a4, TTL 63
  db: knows de:dd:10:3b:5c:a4: other edges, on edge e2
  tunnel db: by geneve to edge e2, identifier 101
edge e2
  tunnel db: edge e1 may send identifier 101, and it is known here
  db: knows de:dd:10:3b:5c:a4: workload store
  db: delivered to workload store by device red-store
"
    );
    let [arrived] = trace.delivered.as_slice() else {
        panic!("{trace}");
    };
    let store = mac_of_name("shop/store");
    let router = Mac([2, 0, 0, 0, 2, 1]);
    let expected = Frame::new()
        .ip4([10, 1, 0, 7], [10, 2, 0, 2])
        .udp(1000, 53)
        .ttl(63);
    assert_eq!(arrived.frame, frame(router, store, expected));
}

#[test]
fn the_same_over_ipv6_within_a_subnet() {
    let trace = traced(&described("w1", "fd00:1::8"));
    let arrived: Vec<&str> = trace
        .delivered
        .iter()
        .map(|one| one.workload.as_str())
        .collect();
    assert_eq!((arrived, trace.dropped.len()), (vec!["w2"], 0));
}

#[test]
fn what_a_workload_is_not_it_cannot_send() {
    for (source, address, reason) in [
        (W1, [10, 1, 0, 8], "spoofed"),
        (Mac([2, 0, 0, 0, 0, 8]), [10, 1, 0, 7], "spoofed_mac"),
    ] {
        let bytes = frame(
            source,
            mac_of_name("shop/w2"),
            Frame::new().ip4(address, [10, 1, 0, 8]).udp(1, 2),
        );
        let trace = trace_frame(&networks(EXAMPLE), "shop", "w1", &bytes).expect("traced");
        assert_eq!(trace.dropped, [reason]);
        assert!(trace.delivered.is_empty());
    }
}

#[test]
fn a_station_of_another_tenant_is_nobody() {
    let bytes = frame(
        W1,
        mac_of_name("lab/a"),
        Frame::new().ip4([10, 1, 0, 7], [10, 1, 0, 8]).udp(1, 2),
    );
    let trace = trace_frame(&networks(EXAMPLE), "shop", "w1", &bytes).expect("traced");
    assert_eq!(trace.dropped, ["unknown_station"]);
}

#[test]
fn questions_for_declared_addresses_are_answered_where_they_are_asked() {
    let mut arp = vec![0xff; 6];
    arp.extend(W1.0);
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.extend(W1.0);
    arp.extend([10, 1, 0, 7, 0, 0, 0, 0, 0, 0, 10, 1, 0, 8]);
    let trace = trace_frame(&networks(EXAMPLE), "shop", "w1", &arp).expect("traced");
    let w2 = mac_of_name("shop/w2");
    let mut answer = W1.0.to_vec();
    answer.extend(w2.0);
    answer.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    answer.extend(w2.0);
    answer.extend([10, 1, 0, 8]);
    answer.extend(W1.0);
    answer.extend([10, 1, 0, 7]);
    assert_eq!(trace.delivered.len(), 1, "{trace}");
    assert_eq!(
        (
            trace.delivered[0].workload.as_str(),
            &trace.delivered[0].frame
        ),
        ("w1", &answer)
    );
}

#[test]
fn broadcasts_reach_every_workload_of_the_segment_once() {
    let bytes = frame(
        W1,
        Mac::BROADCAST,
        Frame::new().ip4([10, 1, 0, 7], [10, 1, 0, 255]).udp(1, 2),
    );
    let trace = trace_frame(&networks(EXAMPLE), "shop", "w1", &bytes).expect("traced");
    let arrived: Vec<&str> = trace
        .delivered
        .iter()
        .map(|one| one.workload.as_str())
        .collect();
    assert_eq!(arrived, ["w2"]);
    // The router has no use for it.
    assert_eq!(trace.dropped, ["router_local"]);
}

#[test]
fn routers_answer_what_they_cannot_send_on() {
    let short = Described {
        ttl: 1,
        ..described("w1", "10.2.0.2")
    };
    let trace = traced(&short);
    assert_eq!(trace.delivered.len(), 1, "{trace}");
    let gateway = mac_of_name("shop/gw.web");
    let sent = frame(
        W1,
        gateway,
        Frame::new()
            .ip4([10, 1, 0, 7], [10, 2, 0, 2])
            .udp(1000, 53)
            .ttl(1),
    );
    let error = Frame::new()
        .ip4([10, 1, 0, 1], [10, 1, 0, 7])
        .icmp(11, 0)
        .echo(0, 0)
        .payload(&sent[14..]);
    let mut expected = frame(gateway, W1, error);
    // Internetwork control, and neither identification nor "don't fragment".
    expected[15] = 0xc0;
    expected[18..22].fill(0);
    expected[24..26].fill(0);
    let sum = weir_packet::checksum::checksum(&expected[14..34]);
    expected[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(trace.delivered[0].frame, expected);
    // The same over IPv6, where there is no route.
    let trace = traced(&described("w1", "fd00:9::1"));
    let arrived = &trace.delivered[0].frame;
    assert_eq!(arrived[54..56], [1, 0], "{trace}");
    assert!(weir_packet::parse::parse(arrived).is_ok());
}

#[test]
fn routers_answer_echo_for_each_of_their_addresses() {
    for to in ["10.1.0.1", "10.2.0.1", "fd00:1::1"] {
        let echo = Described {
            payload: Payload::Echo,
            length: 100,
            ..described("w1", to)
        };
        let trace = traced(&echo);
        assert_eq!(trace.delivered.len(), 1, "{trace}");
        let frame = &trace.delivered[0].frame;
        let kind = if frame[12] == 8 { frame[34] } else { frame[54] };
        assert!([0, 129].contains(&kind), "{trace}");
        assert!(weir_packet::parse::parse(frame).is_ok());
        let checked = match kind {
            0 => weir_packet::checksum::checksum(&frame[34..]),
            _ => {
                let (from, to): ([u8; 16], [u8; 16]) = (
                    frame[22..38].try_into().expect("16"),
                    frame[38..54].try_into().expect("16"),
                );
                let sum =
                    weir_packet::checksum::pseudo_header6(from, to, 58, frame.len() as u32 - 54);
                !weir_packet::checksum::fold(sum + weir_packet::checksum::sum(&frame[54..]))
            }
        };
        assert_eq!(checked, 0);
    }
}

#[test]
fn what_does_not_fit_is_answered_with_what_does() {
    let text = EXAMPLE.replace(
        "mac = \"02:00:00:00:02:01\" }",
        "mac = \"02:00:00:00:02:01\", mtu = 600 }",
    );
    let large = Described {
        length: 601,
        ..described("w1", "10.2.0.2")
    };
    let trace = trace(&networks(&text), &large).expect("traced");
    let frame = &trace.delivered[0].frame;
    assert_eq!(
        (trace.delivered[0].workload.as_str(), &frame[34..36]),
        ("w1", &[3, 4][..])
    );
    assert_eq!(frame[38..42], [0, 0, 2, 88]);
    // Who allows fragments gets none of them, and no word.
    let store = mac_of_name("shop/gw.web");
    let whole = Frame::new().ip4([10, 1, 0, 7], [10, 2, 0, 2]).udp(1, 2);
    let open = self::frame(W1, store, whole.fragment(0, false).payload(&[0; 600]));
    let dropped = trace_frame(&networks(&text), "shop", "w1", &open).expect("traced");
    assert_eq!(dropped.dropped, ["path_mtu"], "{dropped}");
    let fits = Described {
        length: 600,
        ..large
    };
    let trace = weir_network::trace::trace(&networks(&text), &fits).expect("traced");
    assert_eq!(trace.delivered.len(), 1);
}

#[test]
fn a_gateway_that_nobody_declared_is_asked_for() {
    let trace = traced(&described("w1", "198.51.100.1"));
    // The question goes to the whole subnet, over the tunnel; nobody is there to answer.
    assert!(
        trace
            .to_string()
            .contains("does not know the MAC address of 10.2.0.254"),
        "{trace}"
    );
    let arrived: Vec<&str> = trace
        .delivered
        .iter()
        .map(|one| one.workload.as_str())
        .collect();
    assert_eq!(arrived, ["store"]);
    assert_eq!(trace.delivered[0].frame[12..14], [8, 6]);
}

/// A chain of three functions in front of the router, the last of them one of two.
const CHAIN: &str = r#"
[[edge]]
name = "e1"
underlay = "192.0.2.1"
device = "under0"
mtu = 1600
[[edge]]
name = "e2"
underlay = "192.0.2.2"
device = "under0"
mtu = 1600
[[tenant]]
name = "red"
[[network]]
name = "shop"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
[[network.subnet]]
name = "db"
prefix = "10.2.0.0/24"
[[network.function]]
name = "gw"
kind = "router"
interface = [{ name = "web", address = "10.1.0.1/24" }, { name = "db", address = "10.2.0.1/24" }]
[[network.function]]
name = "wall"
kind = "empty"
[[network.function]]
name = "one"
kind = "empty"
[[network.function]]
name = "two"
kind = "empty"
home = "e2"
[[network.link]]
from = "web"
to = "gw.web"
[[network.link]]
from = "db"
to = "gw.db"
[[network.chain]]
name = "look"
at = "gw.web"
through = ["wall", ["one", "two"]]
select = [{ protocol = "tcp", from = "10.1.0.0/24", port = "440-443" }]
[[network.workload]]
name = "w1"
subnet = "web"
edge = "e1"
device = "w1"
address = "10.1.0.7"
[[network.workload]]
name = "store"
subnet = "db"
edge = "e1"
device = "store"
address = "10.2.0.2"
"#;

/// Functions that a packet passes, and who gets it.
fn passed(text: &str, from: &str, to: &str, payload: Payload) -> (Vec<String>, Vec<String>) {
    let described = Described {
        payload,
        ..described(from, to)
    };
    let trace = trace(&networks(text), &described).expect("traced");
    assert!(trace.dropped.is_empty(), "{trace}");
    let chosen = trace.steps.iter().filter(|step| step.decision == "steered");
    let to = chosen.map(|step| step.text.rsplit(" by ").next().unwrap_or_default());
    let to = to.map(|name| name.split(',').next().unwrap_or_default().to_owned());
    (
        to.collect(),
        trace
            .delivered
            .into_iter()
            .map(|one| one.workload)
            .collect(),
    )
}

#[test]
fn selected_flows_pass_a_chain_and_their_answers_in_the_opposite_order() {
    let mut chosen = [0, 0];
    for port in 1000..1040 {
        let (there, arrived) = passed(CHAIN, "w1", "10.2.0.2", Payload::Tcp(port, 443));
        assert_eq!(arrived, ["store"]);
        let (back, arrived) = passed(CHAIN, "store", "10.1.0.7", Payload::Tcp(443, port));
        assert_eq!(arrived, ["w1"]);
        let which = usize::from(there[1] == "look.two.a");
        chosen[which] += 1;
        let other = ["one", "two"][which];
        let way = |names: [String; 3]| names.to_vec();
        assert_eq!(
            there,
            way([
                "look.wall.a".into(),
                format!("look.{other}.a"),
                "look.b".into()
            ])
        );
        assert_eq!(
            back,
            way([
                format!("look.{other}.b"),
                "look.wall.b".into(),
                "look.a".into()
            ])
        );
    }
    assert!(chosen.iter().all(|flows| *flows > 10), "{chosen:?}");
}

#[test]
fn what_is_not_selected_passes_a_chain_by() {
    for (from, to, payload) in [
        ("w1", "10.2.0.2", Payload::Tcp(1000, 80)),
        ("w1", "10.2.0.2", Payload::Tcp(443, 1000)),
        ("w1", "10.2.0.2", Payload::Udp(1000, 443)),
        ("store", "10.1.0.7", Payload::Tcp(1000, 443)),
        ("w1", "10.2.0.2", Payload::Echo),
    ] {
        let (way, arrived) = passed(CHAIN, from, to, payload);
        let onward = if from == "w1" { "look.b" } else { "look.a" };
        assert_eq!((way, arrived.len()), (vec![onward.to_owned()], 1));
    }
    // Without a selection all IP packets pass it.
    let all = CHAIN
        .lines()
        .filter(|line| !line.starts_with("select"))
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(passed(&all, "w1", "10.2.0.2", Payload::Echo).0.len(), 3);
}

/// Clients, a balancer on another edge, a router behind it, and servers on both edges.
const BALANCED: &str = r#"
[[edge]]
name = "e1"
underlay = "192.0.2.1"
device = "eth0"
mtu = 1600
[[edge]]
name = "e2"
underlay = "192.0.2.2"
device = "eth0"
mtu = 1600
[[tenant]]
name = "red"
[[network]]
name = "shop"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
[[network.subnet]]
name = "db"
prefix = "10.2.0.0/24"
[[network.function]]
name = "gw"
kind = "router"
interface = [{ name = "web", address = "10.1.0.1/24" }, { name = "db", address = "10.2.0.1/24" }]
[[network.function]]
name = "lb"
kind = "balancer"
home = "e2"
[[network.function.service]]
address = "10.9.0.1"
protocol = "tcp"
port = 80
mode = "nat"
server = [{ address = "10.2.0.2", port = 8080 }, { address = "10.2.0.3", port = 8080 }]
[[network.function.service]]
address = "10.9.0.1"
protocol = "udp"
port = 53
mode = "nat"
server = [{ address = "10.2.0.2", drain = true }]
[[network.link]]
from = "web"
to = "lb"
[[network.link]]
from = "lb"
to = "gw.web"
[[network.link]]
from = "db"
to = "gw.db"
[[network.workload]]
name = "w1"
subnet = "web"
edge = "e1"
device = "w1"
address = "10.1.0.7"
[[network.workload]]
name = "s2"
subnet = "db"
edge = "e1"
device = "s2"
address = "10.2.0.2"
[[network.workload]]
name = "s3"
subnet = "db"
edge = "e2"
device = "s3"
address = "10.2.0.3"
"#;

fn balanced(from: &str, to: &str, payload: Payload) -> Trace {
    let described = Described {
        payload,
        ..described(from, to)
    };
    traced_in(BALANCED, &described)
}

#[test]
fn a_balancer_says_which_server_a_flow_gets_and_whose_answers_are_whose() {
    let mut chosen = [0, 0];
    for port in 1000..1040 {
        let trace = balanced("w1", "10.9.0.1", Payload::Tcp(port, 80));
        let [arrived] = trace.delivered.as_slice() else {
            panic!("{trace}");
        };
        let which = usize::from(arrived.workload == "s3");
        let server = ["10.2.0.2", "10.2.0.3"][which];
        let said = format!(
            "  lb: a new flow to service 10.9.0.1:80 goes to server {server}:8080, by its place in the ring\n"
        );
        assert!(trace.to_string().contains(&said), "{trace}");
        // What arrives has the address and port of the server, and right checksums.
        let last = [10, 2, 0, 2 + which as u8];
        let expected = Frame::new().ip4([10, 1, 0, 7], last).tcp(port, 8080);
        let [own, router] = [&*format!("shop/{}", arrived.workload), "shop/gw.db"].map(mac_of_name);
        assert_eq!(arrived.frame, frame(router, own, expected.ttl(63)));
        chosen[which] += 1;
        // The answer passes the balancer on its edge, wherever the server is. From the other server it is none.
        for (at, name) in ["s2", "s3"].into_iter().enumerate() {
            let trace = balanced(name, "10.1.0.7", Payload::Tcp(8080, port));
            let (said, expected) = match at == which {
                true => (
                    format!(
                        "  lb: an answer of server {server}:8080 goes on as one of service 10.9.0.1:80\n"
                    ),
                    Frame::new().ip4([10, 9, 0, 1], [10, 1, 0, 7]).tcp(80, port),
                ),
                false => (
                    "  lb: is for none of its services and passes unchanged\n".to_owned(),
                    Frame::new()
                        .ip4([10, 2, 0, 2 + at as u8], [10, 1, 0, 7])
                        .tcp(8080, port),
                ),
            };
            assert!(trace.to_string().contains(&said), "{trace}");
            let [own, router] = ["shop/w1", "shop/gw.web"].map(mac_of_name);
            assert_eq!(
                trace.delivered[0].frame,
                frame(router, own, expected.ttl(63))
            );
        }
    }
    assert!(chosen.iter().all(|flows| *flows > 10), "{chosen:?}");
}

#[test]
fn a_balancer_answers_echo_drops_what_has_no_server_and_lets_the_rest_pass() {
    let trace = balanced("w1", "10.9.0.1", Payload::Echo);
    let said = "  lb: answers echo to the service's address 10.9.0.1\n";
    assert!(trace.to_string().contains(said), "{trace}");
    assert_eq!(trace.delivered[0].workload, "w1");
    let trace = balanced("w1", "10.9.0.1", Payload::Udp(1000, 53));
    assert_eq!(
        (trace.delivered.len(), trace.dropped),
        (0, vec!["no_server".to_owned()])
    );
    let trace = balanced("w1", "10.2.0.3", Payload::Udp(1000, 53));
    let said = "  lb: is for none of its services and passes unchanged\n";
    assert!(trace.to_string().contains(said), "{trace}");
    assert_eq!(trace.delivered[0].workload, "s3");
    // What a router says of a packet behind the balancer is about what the client sent.
    let old = Described {
        payload: Payload::Tcp(1000, 80),
        ttl: 1,
        ..described("w1", "10.9.0.1")
    };
    let trace = traced_in(BALANCED, &old);
    let said = "8080, which becomes 10.9.0.1:80\n";
    assert!(trace.to_string().contains(said), "{trace}");
    assert_eq!(trace.delivered[0].workload, "w1");
}
