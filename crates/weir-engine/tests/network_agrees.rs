//! The data plane of virtual networks against the reference walk over the same tables: random frames of workloads, in test runs of the kernel
//! on tc and XDP, and in the user engine, where floods and limits can be looked at, too. Verdict, bytes, place and reasons are equal.
//!
//! `WEIR_CASES` frames (default 3,000) of each. A difference prints the frame and the seed that makes it.

use std::collections::BTreeMap;

use crate::network_bed::{checked, root};
use weir_bpf::abi::{NetChain, NetPunted, NetRecord};
use weir_engine::Packet;
use weir_engine::network::user::{End, Port, User};
use weir_engine::network::{Capacity, Set};
use weir_kernel::{NetNs, TestCtx};
use weir_network::reference::{Open, Reference, To, What};
use weir_network::{Device, EdgeNetworks, Host, Numbers, Tables};
use weir_packet::Reason;
use weir_packet::build::Frame;
use zerocopy::FromBytes;

/// A network with everything that a frame may meet: open and closed bridges, two routers in a row, a chain in front of one, routes of several lengths, an MTU that
/// is smaller behind one of them, workloads without fixed addresses.
const DOCUMENT: &str = r#"
version = 1

[[edge]]
name = "e1"

[[tenant]]
name = "red"

[[network]]
name = "n"
tenant = "red"
mtu = 1500

[[network.subnet]]
name = "web"
prefix = ["10.1.0.0/24", "fd00:1::/64"]

[[network.subnet]]
name = "mid"
prefix = ["10.9.0.0/24", "fd00:9::/64"]

[[network.subnet]]
name = "db"
prefix = ["10.2.0.0/24", "fd00:2::/64"]
dhcp = true

[[network.function]]
name = "r1"
kind = "router"
interface = [
  { name = "web", address = ["10.1.0.1/24", "fd00:1::1/64"] },
  { name = "mid", address = ["10.9.0.1/24", "fd00:9::1/64"], mtu = 1300 },
]
route = [
  "10.2.0.0/24 via 10.9.0.2",
  "fd00:2::/64 via fd00:9::2",
  "10.66.0.0/16 via 10.9.0.77",
  "10.50.0.0/16 blackhole",
  "10.51.0.0/16 unreachable",
  "fd00:51::/32 prohibit",
]

[[network.function]]
name = "r2"
kind = "router"
interface = [
  { name = "mid", address = ["10.9.0.2/24", "fd00:9::2/64"] },
  { name = "db", address = ["10.2.0.1/24", "fd00:2::1/64"] },
]
route = ["0.0.0.0/0 via 10.9.0.1", "::/0 via fd00:9::1"]

[[network.function]]
name = "ctl"
kind = "punt"
rate = 0
select = [
  { protocol = "udp", from = "10.1.0.0/24", port = "9" },
  { protocol = "tcp", from = "fd00:1::/64", from_port = "1000" },
  { protocol = "icmp", to = "10.2.0.2/32" },
]

[[network.function]]
name = "c1"
kind = "empty"
[[network.function]]
name = "c2"
kind = "empty"
[[network.function]]
name = "c3"
kind = "empty"

[[network.chain]]
name = "look"
at = "r2.db"
through = ["c1", ["c2", "c3"]]
select = [
  { protocol = "udp", from = "10.2.0.0/24" },
  { protocol = "tcp", to = "10.2.0.0/24", from_port = "0-30000" },
  { protocol = "icmp6" },
  { protocol = "udp", to = "fd00:1::/64", port = "1-65000" },
]

[[network.link]]
from = "web"
to = "ctl.a"
[[network.link]]
from = "ctl.b"
to = "r1.web"
[[network.link]]
from = "mid"
to = "r1.mid"
[[network.link]]
from = "mid"
to = "r2.mid"
[[network.link]]
from = "db"
to = "r2.db"

[[network.workload]]
name = "a"
subnet = "web"
edge = "e1"
device = "wa"
mac = "02:00:00:00:00:0a"
address = ["10.1.0.7", "fd00:1::7", "10.1.0.70"]

[[network.workload]]
name = "b"
subnet = "web"
edge = "e1"
device = "wb"
mac = "02:00:00:00:00:0b"
address = ["10.1.0.8", "fd00:1::8"]

[[network.workload]]
name = "d"
subnet = "db"
edge = "e1"
device = "wd"
mac = "02:00:00:00:00:0d"
address = ["10.2.0.2", "fd00:2::2"]
"#;

/// Of the network.
const MTU: usize = 1500;

/// Workloads' devices, and the index of the first.
const DEVICES: [&str; 3] = ["wa", "wb", "wd"];
const FIRST: u32 = 101;

struct Named;

impl Host for Named {
    fn device(&self, name: &str) -> Option<Device> {
        let at = DEVICES.iter().position(|one| *one == name)?;
        Some(Device {
            index: at as u32 + FIRST,
            peer: false,
        })
    }

    fn kernel_tunnel(&self) -> Option<u32> {
        None
    }
}

/// xorshift: a case is its number.
struct Chance(u64);

impl Chance {
    fn new(case: u64) -> Chance {
        Chance(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

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
}

/// Stations of the network, by name of the function or workload they are.
fn stations(plan: &EdgeNetworks) -> Vec<[u8; 6]> {
    let mut macs: Vec<[u8; 6]> = plan.interfaces.iter().map(|vi| vi.mac).collect();
    macs.retain(|mac| *mac != [0; 6]);
    macs.extend([[0xff; 6], [0x33, 0x33, 0xff, 0, 0, 1], [2, 9, 9, 9, 9, 9]]);
    macs
}

const V4: [[u8; 4]; 14] = [
    [10, 1, 0, 7],
    [10, 1, 0, 70],
    [10, 1, 0, 8],
    [10, 2, 0, 2],
    [10, 1, 0, 1],
    [10, 9, 0, 1],
    [10, 9, 0, 2],
    [10, 2, 0, 1],
    [10, 2, 0, 99],
    [10, 66, 1, 1],
    [10, 50, 1, 1],
    [10, 51, 1, 1],
    [8, 8, 8, 8],
    [255, 255, 255, 255],
];

const V6: [&str; 9] = [
    "fd00:1::7",
    "fd00:1::8",
    "fd00:2::2",
    "fd00:1::1",
    "fd00:9::2",
    "fd00:2::99",
    "fd00:51::1",
    "2001:db8::1",
    "ff02::1",
];

fn v6(chance: &mut Chance) -> [u8; 16] {
    let text = chance.of(&V6);
    text.parse::<std::net::Ipv6Addr>()
        .expect("an address")
        .octets()
}

/// Where a frame comes in (index of the device, MAC, own addresses).
const SENDERS: [(u32, [u8; 6], [u8; 4], &str); 3] = [
    (101, [2, 0, 0, 0, 0, 0x0a], [10, 1, 0, 7], "fd00:1::7"),
    (102, [2, 0, 0, 0, 0, 0x0b], [10, 1, 0, 8], "fd00:1::8"),
    (103, [2, 0, 0, 0, 0, 0x0d], [10, 2, 0, 2], "fd00:2::2"),
];

fn frame(case: u64, macs: &[[u8; 6]], routers: [[u8; 6]; 3]) -> (u32, Vec<u8>) {
    let mut chance = Chance::new(case);
    let c = &mut chance;
    let (device, mac, own4, own6) = c.of(&SENDERS);
    let own6 = own6
        .parse::<std::net::Ipv6Addr>()
        .expect("an address")
        .octets();
    let ttl = c.of(&[0, 1, 2, 3, 64, 64, 64, 255]);
    let payload = vec![0x42; c.of(&[0, 1, 30, 100, 1240, 1260, 1300, 1460, 1480])];
    let mut frame = match c.below(8) {
        0 => arp(c, mac, own4),
        1 if c.below(3) == 0 => dhcp(c, own4),
        1 => solicitation(c, own6),
        kind => {
            let v4 = kind < 5;
            let made = match v4 {
                true => {
                    let source = if c.below(12) == 0 { c.of(&V4) } else { own4 };
                    let mut made = Frame::new().ip4(source, c.of(&V4)).ttl(ttl);
                    if c.below(8) == 0 {
                        made = made.ip_options(&[1, 1, 1, 0]);
                    }
                    if c.below(8) == 0 {
                        made = made.fragment(c.of(&[0, 185]), true);
                    }
                    made
                }
                false => {
                    let source = if c.below(12) == 0 { v6(c) } else { own6 };
                    let mut made = Frame::new().ip6(source, v6(c)).ttl(ttl);
                    if c.below(8) == 0 {
                        made = made.extension(60, &[0; 6]);
                    }
                    made
                }
            };
            let made = match c.below(4) {
                0 => made.tcp(1000, 80),
                1 => made.udp(1000, 53),
                2 => {
                    let echo = if v4 { 8 } else { 128 };
                    made.icmp(c.of(&[echo, echo, 3, 1]), 0).echo(7, 9)
                }
                _ => made.udp(9, 9),
            };
            made.payload(&payload).build()
        }
    };
    let router = routers[(device - FIRST) as usize];
    frame[..6].copy_from_slice(&if c.below(2) == 0 { router } else { c.of(macs) });
    frame[6..12].copy_from_slice(&if c.below(20) == 0 { c.of(macs) } else { mac });
    // Fields that nobody checks for the sender.
    if c.below(12) == 0 && frame.len() > 40 {
        let at = 14 + c.below(26);
        frame[at] ^= 1 << c.below(8);
    }
    frame.resize(frame.len().max(60), 0);
    (device, frame)
}

fn arp(c: &mut Chance, mac: [u8; 6], own: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, c.of(&[1, 1, 1, 2])]);
    frame.extend(mac);
    frame.extend(if c.below(8) == 0 { c.of(&V4) } else { own });
    frame.extend([0; 6]);
    frame.extend(c.of(&V4));
    frame
}

fn dhcp(c: &mut Chance, own: [u8; 4]) -> Vec<u8> {
    let from = c.of(&[[0; 4], own]);
    let made = Frame::new().ip4(from, c.of(&[[255; 4], own, [10, 2, 0, 1]]));
    let ports = c.of(&[(68, 67), (68, 67), (67, 68), (68, 68)]);
    made.udp(ports.0, ports.1).payload(&[0x42; 300]).build()
}

fn solicitation(c: &mut Chance, own: [u8; 16]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0];
    body.extend(v6(c));
    body.extend([1, 1, 2, 0, 0, 0, 0, 9]);
    let group = "ff02::1:ff00:7"
        .parse::<std::net::Ipv6Addr>()
        .expect("an address");
    let frame = Frame::new().ip6(own, group.octets()).ttl(255).icmp(135, 0);
    // The builder's ICMP header has 8 bytes: the reserved word is part of it.
    frame.payload(&body[4..]).build()
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// VID of the workload it went to, and its bytes.
    Left(u32, Vec<u8>),
    /// Copies for many.
    Copied,
    /// Handed to the helper: VID it came in by, and its bytes.
    Punted(u32, Vec<u8>),
    Dropped(&'static str),
}

fn expected(walk: &weir_network::reference::Walk, tables: &Tables) -> Outcome {
    let flooded = walk
        .steps
        .iter()
        .any(|step| matches!(step.what, What::Flooded { .. }));
    match (walk.leaving.as_slice(), flooded) {
        (_, true) => Outcome::Copied,
        ([one], _) => match one.to {
            To::Device { vid, .. } => {
                Outcome::Left(tables.interfaces[vid as usize].peer, one.frame.clone())
            }
            To::Process { vid } => Outcome::Punted(vid, one.frame.clone()),
            other => panic!("{other:?}"),
        },
        _ => Outcome::Dropped(walk.drops().first().expect("a reason")),
    }
}

/// An end of a frame as both say it: the workload it went to, by its place, and its bytes; or why it was dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Left(usize, Vec<u8>),
    Dropped(&'static str),
}

#[test]
fn the_user_engine_does_with_frames_what_the_reference_does() {
    let networks = checked(DOCUMENT);
    let plan = networks.plan("e1", &Numbers::default()).expect("planned");
    let tables = plan.tables(&Named, 0).expect("tables");
    let mut user = User::new(&plan, 0).expect("loaded");
    let macs = stations(&plan);
    let routers = routers(&plan);
    let mut floods = 0;
    for case in 0..cases() {
        let (device, bytes) = frame(case, &macs, routers);
        let mut reference = Reference::new(&tables);
        let walk = reference.from_device(device, &bytes, &mut Open);
        let left = walk.leaving.iter().map(|one| match one.to {
            To::Device { vid, .. } => {
                let place = plan.devices.iter().position(|known| known.port == vid);
                Seen::Left(place.expect("a workload"), one.frame.clone())
            }
            // Over captures nobody listens.
            To::Process { .. } => Seen::Dropped(Reason::PuntNoListener.name()),
            other => panic!("{other:?}"),
        });
        let mut want: Vec<Seen> = left
            .chain(walk.drops().into_iter().map(Seen::Dropped))
            .collect();
        // A second for each: no limit is met.
        let packet = Packet {
            frame: &bytes,
            now_ns: (case + 1) * 1_000_000_000,
            number: case,
            port: 0,
            queue: 0,
        };
        let ends = user.packet(Port::Workload((device - FIRST) as usize), &packet);
        let ends = ends.unwrap_or_else(|e| panic!("case {case}: {e}"));
        let mut got: Vec<Seen> = ends
            .into_iter()
            .map(|end| match end {
                End::Left {
                    by: Port::Workload(place),
                    frame,
                } => Seen::Left(place, frame),
                End::Dropped { reason, .. } => Seen::Dropped(reason.name()),
                other => panic!("case {case}: {other:?}"),
            })
            .collect();
        floods += usize::from(got.len() > 1);
        // Where copies leave by devices at once the programs leave it to the device to refuse what is too long; the walk looks at the network's MTU.
        if walk
            .steps
            .iter()
            .any(|step| matches!(step.what, What::Flooded { .. }))
        {
            want.retain(|end| *end != Seen::Dropped("path_mtu"));
            got.retain(|end| !matches!(end, Seen::Left(_, frame) if frame.len() > 14 + MTU));
        }
        // The walk tells who sends too much to a group of IPv6 (RFC 4443, 2.4), the programs do not.
        let to_group = bytes.get(12..14) == Some(&[0x86, 0xdd]) && bytes.get(38) == Some(&0xff);
        if to_group && got == [Seen::Dropped("path_mtu")] {
            continue;
        }
        want.sort();
        got.sort();
        assert!(
            got == want,
            "case {case}, device {device}, frame {bytes:02x?}\nreference {want:02x?}\n     user {got:02x?}\n{:#?}",
            walk.steps
        );
    }
    let totals = user.totals().expect("counted");
    eprintln!("{floods} floods, {totals:?}");
    assert!(totals.balanced(), "{totals:?}");
    assert!(floods > 10 && totals.drops() > 100);
    let counted: u64 = totals.interfaces.iter().map(|count| count.dropped).sum();
    assert_eq!(counted, totals.drops());
}

fn cases() -> u64 {
    let cases = std::env::var("WEIR_CASES").ok();
    cases.and_then(|n| n.parse().ok()).unwrap_or(3000)
}

/// Stations of the routers that workloads of each device send to.
fn routers(plan: &EdgeNetworks) -> [[u8; 6]; 3] {
    let of = |address: [u8; 4]| {
        let found = plan
            .interfaces
            .iter()
            .find(|vi| vi.address4.to_ne_bytes() == address);
        found.expect("a router").mac
    };
    [of([10, 1, 0, 1]), of([10, 1, 0, 1]), of([10, 2, 0, 1])]
}

/// Drops by reason so far.
fn reasons(set: &Set) -> BTreeMap<u32, u64> {
    let mut all = BTreeMap::new();
    for (drop, count) in set.drops().expect("read") {
        *all.entry(drop.reason).or_default() += count;
    }
    all
}

fn chain(set: &Set) -> Vec<NetChain> {
    let all = set
        .map("net_chain")
        .expect("there")
        .lookup_percpu(&0u32.to_ne_bytes());
    let all = all.expect("read").into_iter();
    all.map(|bytes| NetChain::read_from_bytes(&bytes).expect("a chain"))
        .collect()
}

#[test]
fn the_data_plane_does_with_frames_what_the_reference_does() {
    if !root("the_data_plane_does_with_frames_what_the_reference_does") {
        return;
    }
    let cases = cases();
    let networks = checked(DOCUMENT);
    let plan = networks.plan("e1", &Numbers::default()).expect("planned");
    let tables = plan.tables(&Named, 1024).expect("tables");
    let capacity = Capacity::of(&tables, plan.learned).with_room();
    assert_eq!(capacity.buckets, 1024);
    let ns = NetNs::create("vna").expect("a namespace");
    // Copies really leave.
    for (at, device) in DEVICES.iter().enumerate() {
        let (index, peer) = ((at as u32 + FIRST).to_string(), format!("x{at}"));
        ns.ip(&[
            "link", "add", device, "index", &index, "type", "veth", "peer", "name", &peer,
        ])
        .expect("a pair");
        ns.ip(&["link", "set", device, "up"]).expect("up");
        ns.ip(&["link", "set", &peer, "up"]).expect("up");
    }
    let macs = stations(&plan);
    let routers = routers(&plan);
    let run = |xdp: bool| {
        let mut set = match xdp {
            true => Set::make_for_xdp(capacity),
            false => Set::make(capacity, 1),
        }
        .expect("a set");
        set.write(1, &tables).expect("written");
        set.switch(1).expect("switched");
        // Somebody listens everywhere, and for ever: a word that lies ahead of the clock.
        let heard = set
            .map("net_punted")
            .expect("there")
            .mmap()
            .expect("mapped");
        for vid in 0..capacity.interfaces as usize {
            let word = (u64::MAX / 2).to_ne_bytes();
            heard
                .write(vid * size_of::<NetPunted>(), &word)
                .expect("written");
        }
        let ring = set.map("net_ring").expect("there").event_ring();
        let mut ring = ring.expect("a reader");
        let mut seen: BTreeMap<&'static str, u32> = BTreeMap::new();
        for case in 0..cases {
            let (device, bytes) = frame(case, &macs, routers);
            // Nothing is learned from one case to the next; floods and errors have limits that only a clock knows.
            let mut reference = Reference::new(&tables);
            let walk = reference.from_device(device, &bytes, &mut Open);
            let want = expected(&walk, &tables);
            let (before, were) = (reasons(&set), chain(&set));
            let mut out = Vec::new();
            let ctx = TestCtx {
                ingress_ifindex: device,
                ..TestCtx::default()
            };
            let program = set.program_mut("workload").expect("loaded");
            let ran = program.test_run(&bytes, &mut out, ctx);
            let ran = ran.unwrap_or_else(|e| panic!("case {case}: {e}"));
            let after = reasons(&set);
            let new = after
                .iter()
                .find(|(reason, n)| before.get(reason) != Some(n));
            let new = new.map(|(reason, _)| Reason::ALL[*reason as usize].name());
            let mut handed = Vec::new();
            let drained = ring.drain(std::time::Duration::ZERO, |record| {
                let (head, bytes) = NetRecord::read_from_prefix(record).expect("a record");
                // The ring pads to words.
                handed.push((head.vid, bytes[..head.len as usize].to_vec()));
            });
            assert!(drained.expect("read") <= 1, "case {case}");
            let got = match (ran.retval, new) {
                (7 | 4, None) => {
                    let now = chain(&set);
                    let moved = now
                        .iter()
                        .zip(&were)
                        .find(|(now, was)| now.number != was.number);
                    Outcome::Left(moved.expect("one CPU ran it").0.vid, out)
                }
                (_, Some(reason)) => Outcome::Dropped(reason),
                (_, None) if !handed.is_empty() => {
                    let (vid, bytes) = handed.remove(0);
                    Outcome::Punted(vid, bytes)
                }
                (_, None) => Outcome::Copied,
            };
            // What an error's sender is told has a limit of 50 at once: beyond it the packet is dropped for the same reason.
            let limited = walk.steps.iter().find_map(|step| match step.what {
                What::Error { reason, .. } => Some(Outcome::Dropped(reason)),
                _ => None,
            });
            // XDP copies nothing, and a router there cannot ask.
            let one_only = xdp
                && want == Outcome::Copied
                && [
                    Outcome::Dropped("missed_call"),
                    Outcome::Dropped("unknown_neighbour"),
                ]
                .contains(&got);
            let storm = want == Outcome::Copied && got == Outcome::Dropped("flood_rate_limited");
            // Of DHCP clients so many a second are heard, and no more.
            let storm = storm
                || (matches!(want, Outcome::Punted(..)) && got == Outcome::Dropped("punt_limited"));
            if got != want && Some(&got) != limited.as_ref() && !storm && !one_only {
                panic!(
                    "case {case}, device {device}, frame {bytes:02x?}\nreference {want:02x?}\n   kernel {got:02x?}\n{:#?}",
                    walk.steps
                );
            }
            let kind = match want {
                Outcome::Left(..) if limited.is_some() => "error",
                Outcome::Left(..) => "left",
                Outcome::Copied => "copied",
                Outcome::Punted(..) => "punted",
                Outcome::Dropped(reason) => reason,
            };
            *seen.entry(kind).or_default() += 1;
        }
        seen
    };
    for xdp in [false, true] {
        let seen = ns.run(|| run(xdp)).expect("in the namespace");
        eprintln!("xdp {xdp}: {seen:?}");
        for kind in [
            "left",
            "error",
            "spoofed",
            "no_route",
            "ip4_bad_checksum",
            "path_mtu",
            "punted",
        ] {
            assert!(
                seen.get(kind).is_some_and(|n| *n >= 5),
                "too few of {kind}: {seen:?}"
            );
        }
    }
}
