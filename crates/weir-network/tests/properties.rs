//! Random documents: what their tables do with packets is what a naive reading of the document says, on whichever edges things are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::bench;
use crate::bench::{Numbered, networks};
use proptest::prelude::*;
use weir_bpf::abi::{exact_kind, net_slot};
use weir_network::exact::scope;
use weir_network::trace::{Described, Payload, TraceError, tables_of, trace, trace_frame};
use weir_network::values::{Mac, mac_of_name, number, words};
use weir_network::{Numbers, Tables, diff, export, parse};
use weir_packet::build::Frame;

/// What stands on a link between two others.
#[derive(Clone, Debug)]
struct Between {
    /// A function with two interfaces.
    function: bool,
    /// Its home.
    home: Option<usize>,
}

#[derive(Clone, Debug)]
struct Net {
    subnets: usize,
    /// Subnets that are one segment: each with one before it.
    joined: Vec<(usize, Option<(usize, Between)>)>,
    /// Two subnets, home, and what stands in front of the first.
    routers: Vec<(usize, usize, Option<usize>, Between)>,
    /// Subnet and edge.
    workloads: Vec<(usize, usize)>,
    /// In front of the first router: homes of its functions, and whether it selects.
    chain: Option<([Option<usize>; 3], bool)>,
}

#[derive(Clone, Debug)]
struct Doc {
    edges: usize,
    kinds: Vec<usize>,
    nets: Vec<Net>,
}

fn home(edges: usize) -> impl Strategy<Value = Option<usize>> {
    prop::option::of(0..edges)
}

fn between(edges: usize) -> impl Strategy<Value = Between> {
    (any::<bool>(), home(edges)).prop_map(|(function, home)| Between { function, home })
}

fn net(edges: usize) -> impl Strategy<Value = Net> {
    (1..=4_usize).prop_flat_map(move |subnets| {
        let joined = prop::collection::vec(
            prop::option::weighted(0.3, (0..subnets, between(edges))),
            subnets,
        );
        let routers =
            prop::collection::vec((0..subnets, 0..subnets, home(edges), between(edges)), 0..=3);
        let workloads = prop::collection::vec((0..subnets, 0..edges), 1..=6);
        let chain = prop::option::of(([home(edges), home(edges), home(edges)], any::<bool>()));
        (joined, routers, workloads, chain).prop_map(move |(joined, routers, workloads, chain)| {
            Net {
                chain,
                subnets,
                joined: (0..subnets)
                    .zip(joined)
                    .map(|(at, join)| (at, join.filter(|(to, _)| *to < at)))
                    .collect(),
                routers: routers.into_iter().filter(|(a, b, ..)| a != b).collect(),
                workloads,
            }
        })
    })
}

fn doc() -> impl Strategy<Value = Doc> {
    (1..=3_usize).prop_flat_map(|edges| {
        let nets = prop::collection::vec(net(edges), 1..=2);
        let kinds = prop::collection::vec(0..3_usize, edges);
        (nets, kinds).prop_map(move |(nets, kinds)| Doc { edges, kinds, nets })
    })
}

fn home_key(home: Option<usize>) -> String {
    home.map_or_else(String::new, |edge| format!("home = \"e{edge}\"\n"))
}

/// A link, with a function in the middle if there is to be one.
fn link(text: &mut String, from: &str, to: &str, name: &str, between: &Between) {
    match between.function {
        false => drop(write!(
            text,
            "[[network.link]]\nfrom = \"{from}\"\nto = \"{to}\"\n"
        )),
        true => drop(write!(
            text,
            "[[network.function]]\nname = \"{name}\"\nkind = \"empty\"\n{}[[network.link]]\nfrom = \"{from}\"\nto = \"{name}\"\n[[network.link]]\nfrom = \"{name}\"\nto = \"{to}\"\n",
            home_key(between.home)
        )),
    }
}

impl Doc {
    fn text(&self) -> String {
        let mut text = String::new();
        for edge in 0..self.edges {
            let kind = ["vxlan", "geneve", "gre"][self.kinds[edge]];
            let _ = write!(
                text,
                "[[edge]]\nname = \"e{edge}\"\nunderlay = \"192.0.2.{}\"\ndevice = \"under\"\nmtu = 1600\ntunnel = \"{kind}\"\naccepts = [\"vxlan\", \"geneve\", \"gre\"]\n",
                edge + 1
            );
        }
        for (n, net) in self.nets.iter().enumerate() {
            let _ = write!(
                text,
                "[[tenant]]\nname = \"t{n}\"\n[[network]]\nname = \"n{n}\"\ntenant = \"t{n}\"\n"
            );
            for s in 0..net.subnets {
                let _ = write!(
                    text,
                    "[[network.subnet]]\nname = \"s{s}\"\nprefix = [\"10.0.{s}.0/24\", \"fd00:{s}::/64\"]\n"
                );
            }
            for (r, (a, b, home, _)) in net.routers.iter().enumerate() {
                let _ = write!(
                    text,
                    "[[network.function]]\nname = \"r{r}\"\nkind = \"router\"\n{}interface = [{{ name = \"a\", address = [\"10.0.{a}.{}/24\", \"fd00:{a}::{:x}/64\"] }}, {{ name = \"b\", address = [\"10.0.{b}.{}/24\", \"fd00:{b}::{:x}/64\"] }}]\n",
                    home_key(*home),
                    200 + r,
                    200 + r,
                    200 + r,
                    200 + r
                );
            }
            for (at, join) in &net.joined {
                if let Some((to, between)) = join {
                    link(
                        &mut text,
                        &format!("s{at}"),
                        &format!("s{to}"),
                        &format!("j{at}"),
                        between,
                    );
                }
            }
            for (r, (a, b, _, between)) in net.routers.iter().enumerate() {
                link(
                    &mut text,
                    &format!("s{a}"),
                    &format!("r{r}.a"),
                    &format!("f{r}"),
                    between,
                );
                let plain = Between {
                    function: false,
                    home: None,
                };
                link(&mut text, &format!("s{b}"), &format!("r{r}.b"), "", &plain);
            }
            if let (Some((homes, selects)), false) = (&net.chain, net.routers.is_empty()) {
                for (number, home) in homes.iter().enumerate() {
                    let _ = write!(
                        text,
                        "[[network.function]]\nname = \"c{number}\"\nkind = \"empty\"\n{}",
                        home_key(*home)
                    );
                }
                let select = if *selects {
                    "select = [{ protocol = \"udp\", port = \"9\" }]\n"
                } else {
                    ""
                };
                let _ = write!(
                    text,
                    "[[network.chain]]\nname = \"c\"\nat = \"r0.a\"\nthrough = [\"c0\", [\"c1\", \"c2\"]]\n{select}"
                );
            }
            for (w, (subnet, edge)) in net.workloads.iter().enumerate() {
                let _ = write!(
                    text,
                    "[[network.workload]]\nname = \"w{w}\"\nsubnet = \"s{subnet}\"\nedge = \"e{edge}\"\ndevice = \"n{n}w{w}\"\naddress = [\"10.0.{subnet}.{}\", \"fd00:{subnet}::{:x}\"]\n",
                    w + 1,
                    w + 1
                );
            }
        }
        text
    }
}

impl Net {
    /// The first subnet of the segment that a subnet is in.
    fn segment(&self, mut subnet: usize) -> usize {
        while let Some((to, _)) = &self.joined[subnet].1 {
            subnet = *to;
        }
        subnet
    }

    /// Routers with an interface in a segment.
    fn routers_at(&self, segment: usize) -> impl Iterator<Item = usize> {
        let is_at = move |(_, (a, b, ..)): &(usize, &(usize, usize, Option<usize>, Between))| {
            self.segment(*a) == segment || self.segment(*b) == segment
        };
        self.routers
            .iter()
            .enumerate()
            .filter(is_at)
            .map(|(at, _)| at)
    }
}

/// Workloads a frame is delivered to: their names, sorted.
fn names(delivered: &[weir_network::trace::Delivered]) -> Vec<&str> {
    let mut names: Vec<&str> = delivered.iter().map(|one| one.workload.as_str()).collect();
    names.sort_unstable();
    names
}

/// Everything that a half names is in it.
fn whole(tables: &Tables) {
    let there = |vid: u32| (vid as usize) < tables.interfaces.len();
    for vi in &tables.interfaces {
        assert!(there(vi.peer) && there(vi.onward));
        let records = match vi.slot {
            net_slot::BRIDGE => tables.bridges.len(),
            net_slot::ROUTER => tables.routers.len(),
            net_slot::TUNNEL => tables.tunnels.len(),
            _ => continue,
        };
        assert!(vi.peer != 0, "a function and no interface of it: {vi:?}");
        let peer = &tables.interfaces[vi.peer as usize];
        assert!(peer.instance != 0 && (peer.instance as usize) < records);
    }
    let part = |first: u32, count: u32| &tables.lists[first as usize..(first + count) as usize];
    for bridge in &tables.bridges {
        assert!(there(bridge.tunnel));
        assert!(
            part(bridge.members, bridge.n_members)
                .iter()
                .all(|vid| *vid != 0 && there(*vid))
        );
        let remotes = part(bridge.remotes, bridge.n_remotes);
        assert!(
            remotes
                .iter()
                .all(|one| *one != 0 && (*one as usize) < tables.remotes.len())
        );
    }
    for cell in tables.exact.cells.iter().filter(|cell| cell.scope != 0) {
        assert_eq!(tables.exact.find(cell.scope, cell.key), Some(cell));
        match cell.scope >> weir_bpf::abi::exact::KIND {
            exact_kind::DEVICE | exact_kind::STATION | exact_kind::TUNNEL => {
                assert!(cell.value != 0 && there(cell.value))
            }
            exact_kind::NEIGHBOUR => assert!(there(cell.value)),
            exact_kind::ROUTE => {
                assert!((cell.value as usize + cell.extra as usize) <= tables.hops.len())
            }
            _ => {}
        }
    }
}

fn frame(from: Mac, to: Mac, from4: [u8; 4], to4: [u8; 4]) -> Vec<u8> {
    let mut bytes = Frame::new().ip4(from4, to4).udp(7, 9).build();
    bytes[..6].copy_from_slice(&to.0);
    bytes[6..12].copy_from_slice(&from.0);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("WEIR_LONG").is_some() { 2000 } else { 60 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn packets_go_where_the_document_says(doc in doc()) {
        let text = doc.text();
        let checked = networks(&text);
        for edge in 0..doc.edges {
            whole(&tables_of(&checked, &format!("e{edge}")).expect("tables").1);
        }
        for (n, net) in doc.nets.iter().enumerate() {
            let network = format!("n{n}");
            let mac = |w: usize| mac_of_name(&format!("{network}/w{w}"));
            for (w, (subnet, edge)) in net.workloads.iter().enumerate() {
                let me = format!("w{w}");
                let own = [10, 0, *subnet as u8, w as u8 + 1];
                let segment = net.segment(*subnet);
                let near: Vec<usize> = (0..net.workloads.len()).filter(|v| net.segment(net.workloads[*v].0) == segment).collect();
                // To all: every other workload of the segment, once.
                let sent = trace_frame(&checked, &network, &me, &frame(mac(w), Mac::BROADCAST, own, [255; 4])).expect("traced");
                let mut all: Vec<String> = near.iter().filter(|v| **v != w).map(|v| format!("w{v}")).collect();
                all.sort_unstable();
                prop_assert_eq!(names(&sent.delivered), all, "broadcast of {}:\n{}\n{}", me, sent, text);
                for (v, (there, _)) in net.workloads.iter().enumerate() {
                    let to = [10, 0, *there as u8, v as u8 + 1];
                    // To a station: it, and nobody else, if it is of the segment.
                    let sent = trace_frame(&checked, &network, &me, &frame(mac(w), mac(v), own, to)).expect("traced");
                    let expected: Vec<String> = near.iter().filter(|one| **one == v && v != w).map(|v| format!("w{v}")).collect();
                    prop_assert_eq!(names(&sent.delivered), expected, "{} to {}:\n{}\n{}", me, v, sent, text);
                    if v == w {
                        continue;
                    }
                    for address in [format!("10.0.{there}.{}", v + 1), format!("fd00:{there}::{:x}", v + 1)] {
                        let sent = trace(&checked, &Described {
                            network: network.clone(),
                            workload: me.clone(),
                            to: address.parse().expect("address"),
                            from: None,
                            mac: None,
                            payload: Payload::Udp(7, 9),
                            ttl: 9,
                            length: 0,
                        });
                        let gateway = net.routers_at(segment).next();
                        let reached = gateway.is_some_and(|r| {
                            let (a, b, ..) = &net.routers[r];
                            [a, b].into_iter().any(|one| net.segment(*one) == net.segment(*there))
                        });
                        match sent {
                            Err(TraceError::NoWay(..)) => prop_assert!(there != subnet && gateway.is_none(), "{}", text),
                            Err(other) => prop_assert!(false, "{}", other),
                            Ok(sent) => {
                                let to = if there == subnet || reached { format!("w{v}") } else { me.clone() };
                                prop_assert_eq!(names(&sent.delivered), vec![to.as_str()], "{} to {}:\n{}\n{}", me, address, sent, text);
                                let frame = &sent.delivered[0].frame;
                                let ttl = if frame[12] == 8 { frame[22] } else { frame[21] };
                                let expected = if there == subnet { 9 } else if reached { 8 } else { 64 };
                                prop_assert_eq!(ttl, expected, "{}", sent);
                                prop_assert_eq!(&frame[..6], &if to == me { mac(w) } else { mac(v) }.0);
                            }
                        }
                    }
                }
                // ARP for everybody of the segment is answered by the bridge, on this edge.
                let (plan, tables) = tables_of(&checked, &format!("e{edge}")).expect("tables");
                let bridge = plan.numbers.bridges.of(&format!("{network}/s{subnet}"));
                let mut known = BTreeMap::new();
                for v in &near {
                    known.insert(format!("10.0.{}.{}", net.workloads[*v].0, v + 1), mac(*v));
                }
                for r in net.routers_at(segment) {
                    for (side, at) in [("a", net.routers[r].0), ("b", net.routers[r].1)] {
                        if net.segment(at) == segment {
                            known.insert(format!("10.0.{at}.{}", 200 + r), mac_of_name(&format!("{network}/r{r}.{side}")));
                        }
                    }
                }
                for (address, mac) in known {
                    let key = words(number(address.parse().expect("address")));
                    let cell = tables.exact.find(scope(exact_kind::ARP, bridge, 0), key);
                    prop_assert_eq!(cell.map(|cell| cell.extra), Some(mac.number()), "{}", address);
                }
                // Of nobody else.
                let other = tables.exact.find(scope(exact_kind::ARP, bridge, 0), words(number("10.0.9.9".parse().expect("address"))));
                prop_assert!(other.is_none());
            }
        }
    }

    #[test]
    fn what_is_exported_is_read_again(doc in doc()) {
        let text = doc.text();
        let document = parse(&text, "net.toml").expect("read");
        let again = parse(&export(&document), "written").expect("read again");
        prop_assert_eq!(&again, &document);
        prop_assert!(diff(&document, &again).is_empty());
    }

    /// Numbers of what is in both documents stay, and none is given to two.
    #[test]
    fn numbers_stay(before in doc(), after in doc()) {
        let plan = |doc: &Doc, numbers: &Numbers| {
            let plan = networks(&doc.text()).plan("e0", numbers).expect("planned");
            whole(&plan.tables(&Numbered, 0).expect("tables"));
            plan.numbers
        };
        let first = plan(&before, &Numbers::default());
        let second = plan(&after, &first);
        for (old, new) in [(&first.interfaces, &second.interfaces), (&first.bridges, &second.bridges), (&first.routers, &second.routers)] {
            let mut seen = BTreeSet::new();
            for (name, number) in &new.names {
                prop_assert!(seen.insert(*number));
                match old.of(name) {
                    0 => prop_assert!(!old.names.iter().any(|(_, was)| was == number), "{} has the number of another", name),
                    was => prop_assert_eq!(was, *number),
                }
            }
        }
        prop_assert_eq!(plan(&after, &second), plan(&after, &second));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[\\[\\]a-z0-9 =\"'.,{}\n]{0,200}") {
        let _ = parse(&text, "net.toml").map(|document| weir_network::check(document, &bench::NoFiles));
    }
}
