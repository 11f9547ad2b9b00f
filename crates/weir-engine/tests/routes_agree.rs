//! `bpf_fib_lookup` and `bpf_check_mtu` over given tables answer what the kernel answers over the same tables, in a namespace of its own.
//! Needs root; says when it skips.

#![allow(
    clippy::print_stderr,
    reason = "what is skipped is said where the test runs"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::common;
use crate::pair;
use crate::pair::Pair;
use weir_engine::EngineKind;
use weir_kernel::NetNs;
use weir_vm::{Neighbour, Route, RouteKind, RouteLink, Routes, TABLE_MAIN};

/// Link-layer address of the neighbours.
const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 9, 9];

#[test]
fn answers_are_the_kernels() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let ns = NetNs::create("weir-fib").expect("a namespace can be made");
    let routes = host(&ns);
    let elf = pair::compile("fib", &["-g"]);
    let answers = ns
        .run(|| {
            let mut answers = BTreeMap::new();
            let mut route = Pair::load(&elf, "route", &[]);
            route.user.set_routes(routes.clone());
            for question in questions(&routes) {
                if let Err(difference) = route.packet(&question) {
                    panic!("{difference}\n{:?}", &question[14..86]);
                }
            }
            answers.append(&mut route.verdicts);
            let mut mtu = Pair::load(&elf, "mtu", &[]);
            mtu.user.set_routes(routes.clone());
            for question in mtu_questions(&routes) {
                if let Err(difference) = mtu.packet(&question) {
                    panic!("{difference}\n{:?}", &question[14..30]);
                }
            }
            answers.extend(
                mtu.verdicts
                    .into_iter()
                    .map(|(v, n)| (v.wrapping_add(1_000), n)),
            );
            answers
        })
        .expect("the namespace can be entered");
    // Every answer that these tables can give was given; those of check_mtu are 1,000 higher.
    for answer in [
        0,
        1,
        2,
        3,
        4,
        5,
        7,
        8,
        -22i32 as u32,
        -19i32 as u32,
        -97i32 as u32,
        1_000,
        1_001,
    ] {
        assert!(
            answers.contains_key(&answer),
            "no answer {}: {answers:?}",
            answer as i32
        );
    }
    eprintln!("answers: {answers:?}");
}

/// Sets up the host, and says so in this engine's words.
fn host(ns: &NetNs) -> Routes {
    let ip = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        ns.ip(&words).unwrap_or_else(|e| panic!("ip {line}: {e}"))
    };
    ip("link add v0 type veth peer name v1");
    for (device, mtu) in [("v0", "1500"), ("v1", "1400")] {
        ip(&format!("link set {device} mtu {mtu} up"));
        ns.sysctl(&format!("net.ipv6.conf.{device}.accept_dad"), "0")
            .expect("can be set");
    }
    for (name, value) in [
        ("net.ipv4.conf.v0.forwarding", "1"),
        ("net.ipv4.conf.v1.forwarding", "0"),
        ("net.ipv6.conf.v0.forwarding", "1"),
        ("net.ipv6.conf.v1.forwarding", "0"),
    ] {
        ns.sysctl(name, value).expect("can be set");
    }
    ip("addr add 10.1.0.1/24 dev v0");
    ip("addr add 10.2.0.1/24 dev v1");
    ip("addr add fd01::1/64 dev v0 nodad");
    ip("addr add fd02::1/64 dev v1 nodad");
    ip("route add 10.9.0.0/16 via 10.1.0.2");
    ip("route add 10.9.1.0/24 via 10.2.0.2 metric 5");
    ip("route add 10.9.1.0/24 via 10.1.0.2 metric 9");
    ip("route add blackhole 10.8.0.0/16");
    ip("route add unreachable 10.8.1.0/24");
    ip("route add prohibit 10.8.2.0/24");
    ip("route add 10.7.0.0/16 via inet6 fd01::2 dev v0");
    ip("route add 10.6.0.0/16 via 10.1.0.2 mtu lock 1000");
    ip("route add 10.5.0.0/16 via 10.1.0.3");
    ip("route add default via 10.2.0.2 table 100");
    ip("-6 route add fd09::/48 via fd01::2 metric 7");
    ip("-6 route add fd08::/48 via fd02::2");
    ip("-6 route add blackhole fd07::/48");
    ip("-6 route add fd09::/48 via fd02::2 table 100");
    for (address, device) in [
        ("10.1.0.2", "v0"),
        ("10.2.0.2", "v1"),
        ("10.1.0.77", "v0"),
        ("fd01::2", "v0"),
        ("fd02::2", "v1"),
    ] {
        ip(&format!(
            "neigh replace {address} lladdr 02:00:00:00:09:09 dev {device} nud permanent"
        ));
    }
    let link = |name: &str, mtu, forwards| {
        let shown = ip(&format!("-o link show dev {name}"));
        let index = shown.split(':').next().and_then(|n| n.trim().parse().ok());
        let address = shown.split("link/ether ").nth(1).map_or([0; 6], |rest| {
            let mut bytes = [0; 6];
            for (to, from) in bytes.iter_mut().zip(rest.split([':', ' '])) {
                *to = u8::from_str_radix(from, 16).expect("a hexadecimal byte");
            }
            bytes
        });
        RouteLink {
            ifindex: index.expect("an index"),
            mtu,
            header: 14,
            address,
            forwards_ipv4: forwards,
            forwards_ipv6: forwards,
        }
    };
    let (v0, v1) = (link("v0", 1500, true), link("v1", 1400, false));
    let lo = RouteLink {
        ifindex: 1,
        mtu: 65_536,
        header: 14,
        address: [0; 6],
        forwards_ipv4: false,
        forwards_ipv6: false,
    };
    let (a, b) = (v0.ifindex, v1.ifindex);
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let route = |kind, network: &str, prefix, via: &str, ifindex, metric| Route {
        table: TABLE_MAIN,
        network: address(network),
        prefix,
        kind,
        via: via.parse().ok(),
        ifindex,
        metric,
        locked_mtu: None,
        source: Some(address(match (network.contains(':'), ifindex == a) {
            (false, true) => "10.1.0.1",
            (false, false) => "10.2.0.1",
            (true, true) => "fd01::1",
            (true, false) => "fd02::1",
        })),
    };
    use RouteKind::*;
    let mut routes = vec![
        route(Local, "10.1.0.1", 32, "", a, 0),
        route(Local, "10.2.0.1", 32, "", b, 0),
        route(Broadcast, "10.1.0.255", 32, "", a, 0),
        route(Broadcast, "10.2.0.255", 32, "", b, 0),
        route(Local, "127.0.0.0", 8, "", 1, 0),
        route(Local, "fd01::1", 128, "", a, 0),
        route(Local, "fd02::1", 128, "", b, 0),
        route(Unicast, "10.1.0.0", 24, "", a, 0),
        route(Unicast, "10.2.0.0", 24, "", b, 0),
        route(Unicast, "10.9.0.0", 16, "10.1.0.2", a, 0),
        route(Unicast, "10.9.1.0", 24, "10.2.0.2", b, 5),
        route(Unicast, "10.9.1.0", 24, "10.1.0.2", a, 9),
        route(Blackhole, "10.8.0.0", 16, "", 1, 0),
        route(Unreachable, "10.8.1.0", 24, "", 1, 0),
        route(Prohibit, "10.8.2.0", 24, "", 1, 0),
        route(Unicast, "10.7.0.0", 16, "fd01::2", a, 0),
        route(Unicast, "10.6.0.0", 16, "10.1.0.2", a, 0),
        route(Unicast, "10.5.0.0", 16, "10.1.0.3", a, 0),
        route(Unicast, "fd01::", 64, "", a, 256),
        route(Unicast, "fd02::", 64, "", b, 256),
        route(Unicast, "fd09::", 48, "fd01::2", a, 7),
        route(Unicast, "fd08::", 48, "fd02::2", b, 1024),
        route(Blackhole, "fd07::", 48, "", 1, 1024),
    ];
    for r in &mut routes {
        if r.network == address("10.6.0.0") {
            r.locked_mtu = Some(1000);
        }
    }
    let mut other = route(Unicast, "0.0.0.0", 0, "10.2.0.2", b, 0);
    other.table = 100;
    routes.push(other);
    let mut other = route(Unicast, "fd09::", 48, "fd02::2", b, 1024);
    other.table = 100;
    routes.push(other);
    let neighbour = |ifindex, text: &str| Neighbour {
        ifindex,
        address: address(text),
        link: NEIGHBOUR,
    };
    Routes {
        links: vec![lo, v0, v1],
        routes,
        neighbours: vec![
            neighbour(a, "10.1.0.2"),
            neighbour(b, "10.2.0.2"),
            neighbour(a, "10.1.0.77"),
            neighbour(a, "fd01::2"),
            neighbour(b, "fd02::2"),
        ],
    }
}

/// Frames with a question each: flags, length, parameters.
fn questions(routes: &Routes) -> Vec<Vec<u8>> {
    let destinations = [
        "10.1.0.1",
        "10.1.0.2",
        "10.1.0.77",
        "10.1.0.78",
        "10.1.0.255",
        "10.2.0.2",
        "10.9.0.1",
        "10.9.1.1",
        "10.8.0.1",
        "10.8.1.1",
        "10.8.2.1",
        "10.7.0.1",
        "10.6.0.1",
        "10.5.0.1",
        "127.0.0.1",
        "192.0.2.1",
        "fd01::1",
        "fd01::2",
        "fd01::3",
        "fd02::2",
        "fd09::1",
        "fd08::1",
        "fd07::1",
        "fd99::1",
        "fe80::1",
        "ff02::1",
    ];
    const DIRECT: u32 = 1;
    const TABLE: u32 = 8;
    let mut out = Vec::new();
    let indices = routes.links.iter().map(|l| l.ifindex).chain([99]);
    for ifindex in indices {
        for destination in destinations {
            for flags in [
                0,
                DIRECT,
                4,
                16,
                20,
                DIRECT | TABLE,
                DIRECT | 16,
                2,
                2 | DIRECT,
                64,
            ] {
                for (total, table, length) in [
                    (0u16, 100u32, 64u32),
                    (1000, 100, 64),
                    (1001, 254, 64),
                    (1401, 77, 64),
                    (1501, 100, 64),
                    (100, 100, 63),
                ] {
                    let mut params = [0u8; 64];
                    params[6..8].copy_from_slice(&total.to_le_bytes());
                    params[8..12].copy_from_slice(&ifindex.to_le_bytes());
                    match destination.parse().expect("an address") {
                        IpAddr::V4(a) => {
                            params[0] = 2;
                            params[16..20].copy_from_slice(&[10, 1, 0, 9]);
                            params[32..36].copy_from_slice(&a.octets());
                        }
                        IpAddr::V6(a) => {
                            params[0] = 10;
                            params[16..18].copy_from_slice(&[0xfd, 1]);
                            params[31] = 9;
                            params[32..48].copy_from_slice(&a.octets());
                        }
                    }
                    if flags & TABLE != 0 {
                        params[48..52].copy_from_slice(&table.to_le_bytes());
                    }
                    out.push(question(&[flags, length], &params));
                }
            }
        }
    }
    let mut odd = [0u8; 64];
    odd[0] = 7;
    out.push(question(&[0, 64], &odd));
    out
}

fn mtu_questions(routes: &Routes) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let indices = routes.links.iter().map(|l| l.ifindex).chain([99]);
    for ifindex in indices {
        for length in [0u32, 1400, 1401, 1500, 1501, 70_000] {
            for difference in [0i32, 1, -1, 1_400, 1_500, -70_000] {
                for flags in [0u32, 1, 2] {
                    out.push(question(
                        &[ifindex, length, difference as u32, flags],
                        &[0; 20],
                    ));
                }
            }
        }
    }
    out
}

fn question(words: &[u32], rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    frame.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    frame.extend_from_slice(rest);
    frame
}
