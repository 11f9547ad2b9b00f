//! Random networks over several edges, each edge in the user engine: what leaves by the underlay of one comes in by that of another. Beside each step the
//! reference walk over the same edge's tables: the same ends, byte for byte, through floods, learning, tunnels, chains and recirculation.
//!
//! `WEIR_LONG`: 600 networks instead of 25. A difference prints the document and the number that makes it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::network_bed::checked;
use weir_engine::Packet;
use weir_engine::network::user::{End, Port, User};
use weir_network::reference::{Arrival, Open, Reference, To};
use weir_network::trace::tables_of;
use weir_network::values::Kind;
use weir_network::{EdgeNetworks, Tables};
use weir_packet::build::Frame;

/// Frames of each network.
const FRAMES: u64 = 80;
/// Shortest frame that a tunnel carries: others are filled up.
const PADDED: usize = 60;

/// xorshift: a network is its number.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        for _ in 0..2 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
        }
        (self.0 >> 20) as usize % n
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// What frames may name.
#[derive(Default)]
struct Shape {
    edges: usize,
    subnets: usize,
    routers: Vec<(usize, usize)>,
    /// Subnet, edge, whether it has no fixed addresses, and VLANs.
    workloads: Vec<(usize, usize, bool, &'static str)>,
}

fn home(c: &mut Chance, edges: usize) -> String {
    match c.one_in(2) {
        true => format!("home = \"e{}\"\n", c.below(edges)),
        false => String::new(),
    }
}

/// A link, sometimes with a row of functions in it that takes more calls than the kernel allows.
fn link(text: &mut String, c: &mut Chance, edges: usize, name: &str, from: &str, to: &str) {
    let between = c.of(&[0, 0, 0, 1, 1, 2, 36]);
    // One home for all: on different edges, each would be a tunnel of its own.
    let home = home(c, edges);
    let mut last = from.to_owned();
    for at in 0..between {
        let _ = write!(
            text,
            "[[network.function]]\nname = \"{name}-{at}\"\nkind = \"empty\"\n{home}[[network.link]]\nfrom = \"{last}\"\nto = \"{name}-{at}\"\n"
        );
        last = format!("{name}-{at}");
    }
    let _ = write!(text, "[[network.link]]\nfrom = \"{last}\"\nto = \"{to}\"\n");
}

fn document(c: &mut Chance) -> (String, Shape) {
    let mut shape = Shape {
        edges: 1 + c.below(3),
        subnets: 1 + c.below(4),
        ..Shape::default()
    };
    let edges = shape.edges;
    let mut text = String::new();
    for edge in 0..edges {
        let kind = c.of(&["vxlan", "geneve", "gre"]);
        let _ = write!(
            text,
            "[[edge]]\nname = \"e{edge}\"\nunderlay = \"192.0.2.{}\"\ndevice = \"under\"\nmtu = 1600\ntunnel = \"{kind}\"\naccepts = [\"vxlan\", \"geneve\", \"gre\"]\n",
            edge + 1
        );
    }
    text.push_str("[[tenant]]\nname = \"t\"\n[[network]]\nname = \"n\"\ntenant = \"t\"\n");
    for s in 0..shape.subnets {
        let _ = write!(
            text,
            "[[network.subnet]]\nname = \"s{s}\"\nprefix = [\"10.0.{s}.0/24\", \"fd00:{s}::/64\"]\n"
        );
    }
    for r in 0..c.below(3) {
        let (a, b) = (c.below(shape.subnets), c.below(shape.subnets));
        if a == b {
            continue;
        }
        let mtu = c.of(&["", ", mtu = 1300"]);
        let _ = write!(
            text,
            "[[network.function]]\nname = \"r{r}\"\nkind = \"router\"\n{}interface = [{{ name = \"a\", address = [\"10.0.{a}.{h}/24\", \"fd00:{a}::{h:x}/64\"] }}, {{ name = \"b\", address = [\"10.0.{b}.{h}/24\", \"fd00:{b}::{h:x}/64\"]{mtu} }}]\nroute = [\"10.50.0.0/16 blackhole\", \"10.51.0.0/16 unreachable\", \"fd00:51::/32 prohibit\", \"0.0.0.0/0 via 10.0.{b}.77\"]\n",
            home(c, edges),
            h = 200 + r,
        );
        shape.routers.push((a, b));
        link(
            &mut text,
            c,
            edges,
            &format!("f{r}"),
            &format!("s{a}"),
            &format!("r{r}.a"),
        );
        let _ = write!(text, "[[network.link]]\nfrom = \"s{b}\"\nto = \"r{r}.b\"\n");
        if r == 0 && c.one_in(3) {
            for n in 0..3 {
                let home = home(c, edges);
                let _ = write!(
                    text,
                    "[[network.function]]\nname = \"c{n}\"\nkind = \"empty\"\n{home}"
                );
            }
            let select = c.of(&["", "select = [{ protocol = \"udp\" }]\n"]);
            let _ = write!(
                text,
                "[[network.chain]]\nname = \"c\"\nat = \"r0.a\"\nthrough = [\"c0\", [\"c1\", \"c2\"]]\n{select}"
            );
        }
    }
    for s in 1..shape.subnets {
        if c.one_in(4) {
            let to = c.below(s);
            link(
                &mut text,
                c,
                edges,
                &format!("j{s}"),
                &format!("s{s}"),
                &format!("s{to}"),
            );
        }
    }
    for w in 0..2 + c.below(5) {
        let (subnet, edge, any) = (c.below(shape.subnets), c.below(edges), c.one_in(4));
        let vlan = c.of(&["", "", "", "vlan = 7\n", "vlan = [0, 7]\n"]);
        let given = match any {
            true => "mac = \"any\"\naddress = \"any\"\n".to_owned(),
            false => format!(
                "mac = \"02:00:00:00:00:{:02x}\"\naddress = [\"10.0.{subnet}.{h}\", \"fd00:{subnet}::{h:x}\"]\n",
                w + 1,
                h = w + 1
            ),
        };
        let _ = write!(
            text,
            "[[network.workload]]\nname = \"w{w}\"\nsubnet = \"s{subnet}\"\nedge = \"e{edge}\"\ndevice = \"w{w}\"\n{given}{vlan}"
        );
        shape.workloads.push((subnet, edge, any, vlan));
    }
    (text, shape)
}

fn mac(w: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, w as u8 + 1]
}

/// A frame of workload `w`.
fn frame(c: &mut Chance, shape: &Shape, routers: &[[u8; 6]], w: usize) -> Vec<u8> {
    let (subnet, _, any, vlan) = shape.workloads[w];
    let s = subnet as u8;
    let other = c.below(shape.workloads.len());
    let to_subnet = shape.workloads[other].0 as u8;
    let to4 = match c.below(8) {
        0 => [10, 0, c.below(4) as u8, 77],
        1 => [10, c.of(&[50, 51]), 0, 1],
        2 => [10, 0, s, 200],
        3 => [8, 8, 8, 8],
        _ => [10, 0, to_subnet, other as u8 + 1],
    };
    let from4 = [10, 0, s, w as u8 + 1];
    let v6 = |a: u8, b: u16, h: u8| {
        let mut address = [0; 16];
        address[..2].copy_from_slice(&[0xfd, 0]);
        address[2..4].copy_from_slice(&b.to_be_bytes());
        address[3] |= a;
        address[15] = h;
        address
    };
    let own_mac = if any && c.one_in(3) {
        [2, 9, 9, 9, 9, c.below(3) as u8]
    } else {
        mac(w)
    };
    let ttl = c.of(&[1, 2, 64, 64, 64]);
    let payload = vec![0x42; c.of(&[30, 60, 100, 1240, 1300, 1400])];
    let mut bytes = match c.below(6) {
        0 => {
            let mut arp = vec![0; 12];
            arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, c.of(&[1, 1, 2])]);
            arp.extend(own_mac);
            arp.extend(from4);
            arp.extend([0; 6]);
            arp.extend(to4);
            arp
        }
        1 | 2 => {
            let to = match c.below(4) {
                0 => v6(0x51, 0, 1),
                1 => v6(s, 0, 200),
                _ => v6(to_subnet, 0, other as u8 + 1),
            };
            let frame = Frame::new().ip6(v6(s, 0, w as u8 + 1), to).ttl(ttl);
            let frame = match c.one_in(3) {
                true => frame.icmp(128, 0).echo(3, 4),
                false => frame.udp(1000, 53),
            };
            frame.payload(&payload).build()
        }
        _ => {
            let frame = Frame::new().ip4(from4, to4).ttl(ttl);
            let frame = match c.below(3) {
                0 => frame.icmp(8, 0).echo(3, 4),
                1 => frame.udp(1000, 9),
                _ => frame.tcp(1000, 80),
            };
            frame.payload(&payload).build()
        }
    };
    let to = match c.below(8) {
        0 => [0xff; 6],
        1 => [2, 9, 9, 9, 9, c.below(3) as u8],
        2..=4 => mac(other),
        _ if routers.is_empty() => mac(other),
        _ => c.of(routers),
    };
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&own_mac);
    bytes.resize(bytes.len().max(64), 0);
    let tagged = if vlan.contains('[') {
        c.one_in(2)
    } else {
        c.one_in(20)
    };
    if tagged {
        let tag = [0x81, 0, 0, c.of(&[7, 7, 7, 8])];
        bytes.splice(12..12, tag);
    }
    bytes
}

/// What a tunnel's packet says: edge it is for and from, and what the reference takes of it.
fn unpacked(outer: &[u8]) -> (Ipv4Addr, Arrival) {
    let address = |at: usize| Ipv4Addr::new(outer[at], outer[at + 1], outer[at + 2], outer[at + 3]);
    let three = |at: usize| u32::from_be_bytes([0, outer[at], outer[at + 1], outer[at + 2]]);
    let (kind, identifier, inner, tenant) =
        match (outer[23], u16::from_be_bytes([outer[36], outer[37]])) {
            (47, _) => (Kind::Gre, three(39), 42, None),
            (17, 4789) => (Kind::Vxlan, three(46), 50, None),
            (17, 6081) => {
                let tenant = u32::from_be_bytes([outer[54], outer[55], outer[56], outer[57]]);
                (Kind::Geneve, three(46), 58, Some(tenant))
            }
            other => panic!("{other:?} is no tunnel: {outer:02x?}"),
        };
    let arrival = Arrival {
        from: address(26).into(),
        kind,
        identifier,
        tenant,
        frame: outer[inner..].to_vec(),
    };
    (address(30), arrival)
}

/// An end of a frame as both say it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// Workload by its place, and bytes.
    Left(usize, Vec<u8>),
    /// Edge, identifier, and the frame inside.
    Sent(String, u32, Vec<u8>),
    Dropped(&'static str),
}

struct Edge {
    plan: EdgeNetworks,
    user: User,
    reference: Reference<'static>,
}

enum Ahead {
    Device(usize, usize, Vec<u8>),
    Tunnel(usize, Vec<u8>),
}

/// Sends a frame through the fabric, both ways; how many frames reached workloads, and how many went through tunnels.
fn follow(edges: &mut [Edge], first: Ahead, number: u64, text: &str) -> (usize, usize) {
    let mut ahead = VecDeque::from([first]);
    let (mut reached, mut tunnels) = (0, 0);
    while let Some(next) = ahead.pop_front() {
        let (at, port, frame) = match next {
            Ahead::Device(at, place, frame) => (at, Port::Workload(place), frame),
            Ahead::Tunnel(at, frame) => (at, Port::Underlay, frame),
        };
        let edge = &mut edges[at];
        let walk = match port {
            Port::Workload(place) => {
                let vid = edge.plan.devices[place].vid;
                edge.reference.from_device(vid, &frame, &mut Open)
            }
            Port::Underlay => edge.reference.from_tunnel(&unpacked(&frame).1, &mut Open),
        };
        let left = walk.leaving.iter().map(|one| match one.to {
            To::Device { vid, .. } => {
                let place = edge.plan.devices.iter().position(|known| known.port == vid);
                Seen::Left(place.expect("a workload"), one.frame.clone())
            }
            To::Remote {
                remote, identifier, ..
            } => {
                let mut inner = one.frame.clone();
                inner.resize(inner.len().max(PADDED), 0);
                Seen::Sent(
                    edge.plan.labels.remotes[remote as usize].clone(),
                    identifier,
                    inner,
                )
            }
            To::Process { .. } => panic!("no function is a process"),
        });
        let mut want: Vec<Seen> = left
            .chain(walk.drops().into_iter().map(Seen::Dropped))
            .collect();
        let packet = Packet {
            frame: &frame,
            now_ns: (number + 1) * 1_000_000_000,
            number,
            port: 0,
            queue: 0,
        };
        let ends = edge
            .user
            .packet(port, &packet)
            .unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut got = Vec::new();
        for end in ends {
            got.push(match end {
                End::Left {
                    by: Port::Workload(place),
                    frame,
                } => {
                    reached += 1;
                    Seen::Left(place, frame)
                }
                End::Left {
                    by: Port::Underlay,
                    frame,
                } => {
                    tunnels += 1;
                    let (to, arrival) = unpacked(&frame);
                    let to = usize::from(to.octets()[3]) - 1;
                    ahead.push_back(Ahead::Tunnel(to, frame));
                    Seen::Sent(format!("e{to}"), arrival.identifier, arrival.frame)
                }
                End::Dropped { reason, .. } => Seen::Dropped(reason.name()),
                End::Stack => panic!("all is for networks"),
            });
        }
        want.sort();
        got.sort();
        assert!(
            got == want,
            "{text}\nframe {number} on e{at} by {port:?}: {frame:02x?}\nreference {want:02x?}\n     user {got:02x?}\n{:#?}",
            walk.steps
        );
    }
    (reached, tunnels)
}

#[test]
fn edges_in_the_user_engine_do_what_the_reference_does_over_tunnels() {
    let long = std::env::var_os("WEIR_LONG").is_some();
    let (mut reached, mut tunnels, mut around, mut floods, mut drops) = (0, 0, 0, 0, 0);
    for case in 1..=if long { 600_u64 } else { 25 } {
        let mut c = Chance(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (text, shape) = document(&mut c);
        let networks = checked(&text);
        let mut edges: Vec<Edge> = (0..shape.edges)
            .map(|edge| {
                let (plan, tables) = tables_of(&networks, &format!("e{edge}")).expect("tables");
                // As long as the test.
                let tables: &'static Tables = Box::leak(Box::new(tables));
                Edge {
                    user: User::new(&plan, case).expect("loaded"),
                    plan,
                    reference: Reference::new(tables),
                }
            })
            .collect();
        let routers: Vec<[u8; 6]> = edges
            .iter()
            .flat_map(|edge| &edge.plan.interfaces)
            .filter(|vi| vi.address4.to_ne_bytes()[3] >= 200)
            .map(|vi| vi.mac)
            .collect();
        for number in 0..FRAMES {
            let w = c.below(shape.workloads.len());
            let at = shape.workloads[w].1;
            let bytes = frame(&mut c, &shape, &routers, w);
            let name = format!("w{w}");
            let place = edges[at]
                .plan
                .devices
                .iter()
                .position(|one| one.workload == name);
            let first = Ahead::Device(at, place.expect("it is there"), bytes);
            let (more, sent) = follow(
                &mut edges,
                first,
                number,
                &format!("network {case}\n{text}"),
            );
            reached += more;
            tunnels += sent;
        }
        for edge in &mut edges {
            let totals = edge.user.totals().expect("counted");
            assert!(totals.balanced(), "{totals:?}\n{text}");
            around += totals.around;
            floods += totals.flooded;
            drops += totals.drops();
        }
    }
    eprintln!(
        "{reached} reached workloads, {tunnels} through tunnels, {around} went around, {floods} flooded, {drops} dropped"
    );
    assert!(reached > 200 && tunnels > 100 && around > 20 && floods > 50 && drops > 100);
}
