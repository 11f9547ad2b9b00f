//! Port security: frames by which a workload, or somebody on the underlay, pretends to be somebody else reach nobody, each with its reason; what
//! is honest arrives. In the user engine, in test runs of the kernel on tc and XDP, and by the reference, which all agree, also over bits that are flipped.
//!
//! `WEIR_CASES` flipped frames (default 3,000).

use crate::network_bed;
use crate::network_guard_cases;
use std::collections::BTreeMap;

use crate::network_bed::{checked, root};
use crate::network_guard_cases::{
    Case, OWN, Want, allowed, foreign_sources, groups, honest, neighbours, servers, tags_and_others,
};
use weir_engine::Packet;
use weir_engine::network::user::{End, Port, User};
use weir_engine::network::{Capacity, Set};
use weir_kernel::{NetNs, TestCtx};
use weir_network::reference::{Open, Reference, To, Walk, What};
use weir_network::{Device, EdgeNetworks, Host, Numbers, Tables};
use weir_packet::Reason;

const DOCUMENT: &str = r#"
[[edge]]
name = "e1"
[[tenant]]
name = "red"
[[network]]
name = "n"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = ["10.1.0.0/24", "fd00:1::/64"]
storm = 0
[[network.subnet]]
name = "db"
prefix = ["10.2.0.0/24", "fd00:2::/64"]
[[network.function]]
name = "gw"
kind = "router"
interface = [
  { name = "web", address = ["10.1.0.1/24", "fd00:1::1/64"], mac = "02:00:00:00:01:01" },
  { name = "db", address = ["10.2.0.1/24", "fd00:2::1/64"], mac = "02:00:00:00:01:02" },
]
route = ["0.0.0.0/0 via 10.2.0.9", "::/0 via fd00:2::9"]
[[network.link]]
from = "web"
to = "gw.web"
[[network.link]]
from = "db"
to = "gw.db"
[[network.workload]]
name = "own"
subnet = "web"
edge = "e1"
device = "w0"
mac = "02:00:00:00:00:07"
address = ["10.1.0.7", "fd00:1::7", "10.1.0.70", "fe80::77"]
[[network.workload]]
name = "victim"
subnet = "web"
edge = "e1"
device = "w1"
mac = "02:00:00:00:00:08"
address = ["10.1.0.8", "fd00:1::8"]
[[network.workload]]
name = "friend"
subnet = "web"
edge = "e1"
device = "w2"
mac = "02:00:00:00:00:09"
address = ["10.1.0.9", "fd00:1::9"]
allow = ["ra", "dhcp-server"]
[[network.workload]]
name = "far"
subnet = "db"
edge = "e1"
device = "w3"
mac = "02:00:00:00:00:0d"
address = ["10.2.0.9", "fd00:2::9"]
"#;

/// Index of the first device; the others follow.
const FIRST: u32 = 101;
/// ... and how many there are.
const DEVICES: usize = 4;

struct Named;

impl Host for Named {
    fn device(&self, name: &str) -> Option<Device> {
        let place: u32 = name.strip_prefix('w')?.parse().ok()?;
        Some(Device {
            index: FIRST + place,
            peer: false,
        })
    }

    fn kernel_tunnel(&self) -> Option<u32> {
        None
    }
}

fn plan() -> EdgeNetworks {
    checked(DOCUMENT)
        .plan("e1", &Numbers::default())
        .expect("planned")
}

/// All cases, and the place of the workload that sends each.
fn cases() -> Vec<(usize, Case)> {
    let bad = [
        foreign_sources(),
        neighbours(),
        servers(),
        groups(),
        tags_and_others(),
        honest(),
    ];
    let own = bad.into_iter().flatten().map(|case| (0, case));
    own.chain(allowed().into_iter().map(|case| (2, case)))
        .collect()
}

fn packet(frame: &[u8], number: u64) -> Packet<'_> {
    Packet {
        frame,
        now_ns: (number + 1) * 1_000_000_000,
        number,
        port: 0,
        queue: 0,
    }
}

/// What a frame's ends come to. Routers get copies of what is for all, and drop them.
fn seen(sender: usize, ends: &[End]) -> Want {
    let by = |place: usize| {
        let left = ends
            .iter()
            .filter(|end| matches!(end, End::Left { by: Port::Workload(at), .. } if *at == place));
        left.count()
    };
    let others: usize = (0..DEVICES).filter(|place| *place != sender).map(by).sum();
    let drop = ends.iter().find_map(|end| match end {
        End::Dropped { reason, .. } => Some(reason.name()),
        _ => None,
    });
    match (others, by(sender), drop) {
        (0, 1, None) => Want::Answered,
        (0, 0, Some(reason)) => Want::Drop(reason),
        (n, 0, _) => Want::Reaches(n),
        other => panic!("{other:?}: {ends:?}"),
    }
}

/// The same by the reference.
fn expected(sender: usize, walk: &Walk, plan: &EdgeNetworks) -> Want {
    let ends: Vec<End> = walk
        .leaving
        .iter()
        .map(|one| match one.to {
            To::Device { vid, .. } => {
                let place = plan.devices.iter().position(|known| known.port == vid);
                End::Left {
                    by: Port::Workload(place.expect("a workload")),
                    frame: one.frame.clone(),
                }
            }
            other => panic!("{other:?}"),
        })
        .chain(walk.drops().into_iter().map(|reason| End::Dropped {
            vid: 0,
            reason: Reason::from_name(reason).expect("a reason"),
        }))
        .collect();
    seen(sender, &ends)
}

#[test]
fn who_pretends_to_be_another_reaches_nobody() {
    let plan = plan();
    let tables = plan.tables(&Named, 0).expect("tables");
    let mut user = User::new(&plan, 0).expect("an engine");
    let cases = cases();
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for (number, (sender, case)) in cases.iter().enumerate() {
        let walk =
            Reference::new(&tables).from_device(FIRST + *sender as u32, &case.frame, &mut Open);
        assert_eq!(
            expected(*sender, &walk, &plan),
            case.want,
            "{}: {:#?}",
            case.name,
            walk.steps
        );
        let before = user.totals().expect("counted").drops();
        let ends = user.packet(Port::Workload(*sender), &packet(&case.frame, number as u64));
        let ends = ends.expect("run");
        assert_eq!(seen(*sender, &ends), case.want, "{}: {ends:?}", case.name);
        let totals = user.totals().expect("counted");
        if let Want::Drop(reason) = case.want {
            *counted.entry(reason).or_default() += 1;
            assert_eq!(totals.drops(), before + 1, "{}", case.name);
        }
        // An untagged port gives no tags out.
        for end in &ends {
            if let End::Left { frame, .. } = end {
                assert_ne!(frame.get(12..14), Some(&[0x81, 0][..]), "{}", case.name);
            }
        }
    }
    let totals = user.totals().expect("counted");
    for (reason, n) in &counted {
        let known = Reason::from_name(reason).expect("a reason");
        let all = totals.dropped.iter().filter(|((_, one), _)| *one == known);
        assert_eq!(all.map(|(_, n)| n).sum::<u64>(), *n, "{reason}");
    }
    let refused: u64 = counted.values().sum();
    assert!(refused >= 60, "{refused}");
    let honest = cases
        .iter()
        .filter(|(_, case)| matches!(case.want, Want::Reaches(_)));
    eprintln!(
        "{refused} kinds of frames refused: {counted:?}; {} arrive",
        honest.count()
    );
    assert!(totals.balanced());
}

/// The fabric's answer to duplicate address detection says who has the address, to all, and goes to who asked alone.
#[test]
fn duplicate_address_detection_is_answered_for_what_is_known() {
    let mut user = User::new(&plan(), 0).expect("an engine");
    let cases = neighbours();
    for (name, owner, target) in [
        (
            "duplicate address detection of the victim's address",
            [2, 0, 0, 0, 0, 8],
            "fd00:1::8",
        ),
        (
            "duplicate address detection of the router's address, with a nonce",
            [2, 0, 0, 0, 1, 1],
            "fd00:1::1",
        ),
    ] {
        let case = cases.iter().find(|case| case.name == name).expect("there");
        let ends = user
            .packet(Port::Workload(0), &packet(&case.frame, 0))
            .expect("run");
        let [
            End::Left {
                by: Port::Workload(0),
                frame,
            },
        ] = ends.as_slice()
        else {
            panic!("{ends:?}");
        };
        let address = |text: &str| {
            text.parse::<std::net::Ipv6Addr>()
                .expect("an address")
                .octets()
        };
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1], "{name}");
        assert_eq!(frame[6..12], owner, "{name}");
        assert_eq!(frame.len(), 14 + 40 + 32, "{name}");
        assert_eq!(frame[18..22], [0, 32, 58, 255], "{name}");
        assert_eq!(frame[22..38], address(target), "{name}");
        assert_eq!(frame[38..54], address("ff02::1"), "{name}");
        // An advertisement, override and not solicited, with the owner's station.
        assert_eq!((frame[54], frame[58]), (136, 0x20), "{name}");
        assert_eq!(frame[62..78], address(target), "{name}");
        assert_eq!(frame[78..86], [&[2, 1][..], &owner].concat(), "{name}");
        let pseudo =
            weir_packet::checksum::pseudo_header6(address(target), address("ff02::1"), 58, 32);
        let sum = pseudo + weir_packet::checksum::sum(&frame[54..]);
        assert_eq!(weir_packet::checksum::fold(sum), 0xffff, "{name}");
    }
}

/// xorshift: a case is its number.
fn flipped(number: u64, frame: &[u8]) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: usize| {
        for _ in 0..2 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        (state >> 20) as usize % below
    };
    let mut frame = frame.to_vec();
    for _ in 0..next(4) {
        // Behind the stations: those are what other tests change.
        let at = 12 + next(frame.len().min(100) - 12);
        frame[at] ^= 1 << next(8);
    }
    if next(10) == 0 {
        // The kernel itself drops what ends in a tag.
        frame.truncate(20 + next(frame.len() - 20));
    }
    frame
}

fn flips() -> u64 {
    let cases = std::env::var("WEIR_CASES").ok();
    cases.and_then(|n| n.parse().ok()).unwrap_or(3000)
}

/// Frames that leave, by VID of the bridge's interface, and reasons of drops: what both say of any frame.
type Ends = (Vec<(usize, Vec<u8>)>, Vec<&'static str>);

fn by_reference(walk: &Walk, plan: &EdgeNetworks) -> Ends {
    let left = walk.leaving.iter().filter_map(|one| match one.to {
        To::Device { vid, .. } => {
            let place = plan.devices.iter().position(|known| known.port == vid);
            Some((place.expect("a workload"), one.frame.clone()))
        }
        _ => None,
    });
    let mut ends = (left.collect::<Vec<_>>(), walk.drops());
    ends.0.sort();
    ends.1.sort_unstable();
    ends
}

#[test]
fn flipped_bits_are_judged_alike_by_engine_and_reference() {
    let plan = plan();
    let tables = plan.tables(&Named, 0).expect("tables");
    let mut user = User::new(&plan, 0).expect("an engine");
    let cases = cases();
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for number in 0..flips() {
        let (sender, case) = &cases[number as usize % cases.len()];
        let frame = flipped(number, &case.frame);
        let walk = Reference::new(&tables).from_device(FIRST + *sender as u32, &frame, &mut Open);
        let want = by_reference(&walk, &plan);
        let ends = user
            .packet(Port::Workload(*sender), &packet(&frame, number))
            .expect("run");
        let mut got: Ends = (Vec::new(), Vec::new());
        for end in ends {
            match end {
                End::Left {
                    by: Port::Workload(place),
                    frame,
                } => got.0.push((place, frame)),
                End::Dropped { reason, .. } => got.1.push(reason.name()),
                other => panic!("{}: {other:?}", case.name),
            }
        }
        got.0.sort();
        got.1.sort_unstable();
        assert_eq!(
            got, want,
            "{number} ({}): {frame:02x?}\n{:#?}",
            case.name, walk.steps
        );
        for reason in &want.1 {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    eprintln!("{reasons:?}");
    for reason in [
        "neighbour_spoofed",
        "neighbour_bad",
        "ra_guard",
        "dhcp_guard",
        "group_spoofed",
        "spoofed",
        "martian",
        "vlan_not_allowed",
    ] {
        assert!(
            reasons.get(reason).is_some_and(|n| *n > 10),
            "{reason}: {reasons:?}"
        );
    }
}

/// Drops by reason so far.
fn drops(set: &Set) -> BTreeMap<u32, u64> {
    let mut all = BTreeMap::new();
    for (drop, count) in set.drops().expect("read") {
        *all.entry(drop.reason).or_default() += count;
    }
    all
}

#[test]
fn both_hooks_judge_what_the_reference_judges() {
    if !root("both_hooks_judge_what_the_reference_judges") {
        return;
    }
    let plan = plan();
    let tables = plan.tables(&Named, 1024).expect("tables");
    let capacity = Capacity::of(&tables, plan.learned).with_room();
    let ns = NetNs::create("vng").expect("a namespace");
    // Copies really leave.
    for place in 0..DEVICES {
        let (name, peer) = (format!("w{place}"), format!("x{place}"));
        let index = (FIRST as usize + place).to_string();
        ns.ip(&[
            "link", "add", &name, "index", &index, "type", "veth", "peer", "name", &peer,
        ])
        .expect("a pair");
        ns.ip(&["link", "set", &name, "up"]).expect("up");
        ns.ip(&["link", "set", &peer, "up"]).expect("up");
    }
    for xdp in [false, true] {
        let seen = ns
            .run(|| on_hook(xdp, &plan, &tables, capacity))
            .expect("in the namespace");
        eprintln!("xdp {xdp}: {seen:?}");
    }
}

/// Runs all cases, as they are and flipped, on one hook: how often each reason was met.
fn on_hook(
    xdp: bool,
    plan: &EdgeNetworks,
    tables: &Tables,
    capacity: Capacity,
) -> BTreeMap<String, u64> {
    let made = match xdp {
        true => Set::make_for_xdp(capacity),
        false => Set::make(capacity, 1),
    };
    let mut set = made.expect("a set");
    set.write(1, tables).expect("written");
    set.switch(1).expect("switched");
    let cases = cases();
    let mut reasons = BTreeMap::new();
    for number in 0..cases.len() as u64 + flips() {
        let (sender, case) = &cases[number as usize % cases.len()];
        let frame = match number < cases.len() as u64 {
            true => case.frame.clone(),
            false => flipped(number, &case.frame),
        };
        // A test run of the kernel takes no frame that ends in its IP header.
        if frame.len() < 14 + 40 {
            continue;
        }
        let device = FIRST + *sender as u32;
        let walk = Reference::new(tables).from_device(device, &frame, &mut Open);
        let (left, refused) = by_reference(&walk, plan);
        let flooded = walk
            .steps
            .iter()
            .any(|step| matches!(step.what, What::Flooded { .. }));
        let error = walk
            .steps
            .iter()
            .any(|step| matches!(step.what, What::Error { .. }));
        let asked = walk
            .steps
            .iter()
            .any(|step| matches!(step.what, What::Asked { .. }));
        let before = drops(&set);
        let mut out = Vec::new();
        let ctx = TestCtx {
            ingress_ifindex: device,
            ..TestCtx::default()
        };
        let program = set.program_mut("workload").expect("loaded");
        let ran = program.test_run(&frame, &mut out, ctx);
        let ran = ran.unwrap_or_else(|e| panic!("{number}: {e}"));
        let after = drops(&set);
        let new = after
            .iter()
            .find(|(reason, n)| before.get(reason) != Some(n));
        let new = new.map(|(reason, _)| Reason::ALL[*reason as usize].name());
        // A test run leaves tags in the data, where XDP has them, and there they end: without one beside the data nothing has a VLAN.
        let tag = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        if tag && (frame[14] & 15, frame[15]) != (0, 0) {
            assert_eq!(
                (new, left.len()),
                (Some("vlan_not_allowed"), 0),
                "{}",
                case.name
            );
            *reasons.entry("vlan_not_allowed".to_owned()).or_default() += 1;
            continue;
        }
        let about = || {
            format!(
                "xdp {xdp}, {number} ({}): {frame:02x?}\n{:#?}",
                case.name, walk.steps
            )
        };
        match (flooded || asked, new) {
            // XDP copies nothing and asks nobody; copies that went around were dropped elsewhere.
            (true, reason) => {
                let fine = reason.is_none_or(|reason| {
                    (xdp && matches!(reason, "missed_call" | "unknown_neighbour"))
                        || refused.contains(&reason)
                });
                assert!(fine, "{reason:?} {}", about());
            }
            (false, Some(reason)) => {
                // Errors have a limit that only a clock knows.
                let fine = error || refused.contains(&reason);
                assert!(fine, "{reason} {}", about());
                *reasons.entry(reason.to_owned()).or_default() += 1;
            }
            (false, None) => {
                assert!(matches!(ran.retval, 4 | 7), "{} {}", ran.retval, about());
                assert!(refused.is_empty(), "{}", about());
                let [(_, bytes)] = left.as_slice() else {
                    panic!("{}", about());
                };
                assert_eq!(*bytes, out, "{}", about());
            }
        }
    }
    for reason in [
        "neighbour_spoofed",
        "neighbour_bad",
        "ra_guard",
        "dhcp_guard",
        "group_spoofed",
        "spoofed_mac",
        "spoofed",
        "martian",
        "vlan_not_allowed",
    ] {
        assert!(reasons.contains_key(reason), "{reason}: {reasons:?}");
    }
    reasons
}

/// Three edges: the third one has a part in the second network only, and says that it names no tenants.
const EDGES: &str = r#"
[[edge]]
name = "e1"
underlay = "192.0.2.1"
device = "under"
mtu = 1600
tunnel = "geneve"
[[edge]]
name = "e2"
underlay = "192.0.2.2"
device = "under"
mtu = 1600
tunnel = "geneve"
[[edge]]
name = "e3"
underlay = "192.0.2.3"
device = "under"
mtu = 1600
tunnel = "geneve"
tenant_option = false
[[tenant]]
name = "red"
[[tenant]]
name = "blue"
[[network]]
name = "n"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
identifier = 100
[[network.workload]]
name = "own"
subnet = "web"
edge = "e2"
device = "w0"
mac = "02:00:00:00:00:07"
address = "10.1.0.7"
[[network.workload]]
name = "victim"
subnet = "web"
edge = "e1"
device = "w1"
mac = "02:00:00:00:00:08"
address = "10.1.0.8"
[[network]]
name = "p"
tenant = "blue"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
identifier = 200
[[network.workload]]
name = "own"
subnet = "web"
edge = "e3"
device = "w0"
mac = "02:00:00:00:00:07"
address = "10.1.0.7"
[[network.workload]]
name = "victim"
subnet = "web"
edge = "e1"
device = "w2"
mac = "02:00:00:00:00:08"
address = "10.1.0.8"
"#;

/// What a change makes of an outer packet whose checksum is right again.
fn changed(outer: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = outer.to_vec();
    change(&mut out);
    if out.len() >= 34 {
        out[24..26].fill(0);
        let sum = !weir_packet::checksum::fold(weir_packet::checksum::sum(&out[14..34]));
        out[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    out
}

#[test]
fn who_is_on_the_underlay_reaches_nobody_without_leave() {
    let networks = checked(EDGES);
    let plan = |edge| networks.plan(edge, &Numbers::default()).expect("planned");
    let mut far = User::new(&plan("e2"), 0).expect("an engine");
    let mut third = User::new(&plan("e3"), 0).expect("an engine");
    let mut near = User::new(&plan("e1"), 0).expect("an engine");
    let body = network_guard_cases::ip4(
        [10, 1, 0, 7],
        [10, 1, 0, 8],
        17,
        &[],
        0,
        &network_guard_cases::udp(1000, 2000, 60),
    );
    let inner = network_guard_cases::eth([2, 0, 0, 0, 0, 8], OWN, 0x800, &body);
    let sent = |engine: &mut User, frame: &[u8]| {
        let ends = engine
            .packet(Port::Workload(0), &packet(frame, 0))
            .expect("run");
        match ends.as_slice() {
            [
                End::Left {
                    by: Port::Underlay,
                    frame,
                },
            ] => frame.clone(),
            other => panic!("{other:?}"),
        }
    };
    let outer = sent(&mut far, &inner);
    let of_third = sent(&mut third, &inner);
    // Ethernet 14, IPv4 20, UDP 8, Geneve 8 and an option of 8, the frame inside.
    let (udp, geneve, option, frame) = (34, 42, 50, 58);
    assert_eq!(outer[option..option + 4], [0xff, 0x77, 1, 1]);
    assert_eq!(outer[frame..], inner);
    let without_option = |outer: &[u8]| {
        changed(outer, |out| {
            out[geneve] = 0;
            out.drain(option..frame);
            for at in [16, udp + 4] {
                let length = u16::from_be_bytes([out[at], out[at + 1]]) - 8;
                out[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
        })
    };
    let byte = |at: usize, value: u8| changed(&outer, |out| out[at] = value);
    let cut = |length: usize| {
        changed(&outer, |out| {
            out.truncate(length);
            let total = ((length - 14) as u16).to_be_bytes();
            out[16..18].copy_from_slice(&total);
            if length >= 42 {
                let datagram = ((length - 34) as u16).to_be_bytes();
                out[38..40].copy_from_slice(&datagram);
            }
        })
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("an undeclared host", byte(29, 99), "unknown_vtep"),
        ("this edge's own address", byte(29, 1), "unknown_vtep"),
        (
            "an edge without a part in the network",
            byte(29, 3),
            "tunnel_member",
        ),
        (
            "an identifier nobody has",
            byte(geneve + 6, 101),
            "tunnel_unknown",
        ),
        ("no identifier", byte(geneve + 6, 0), "tunnel_unknown"),
        (
            "the other tenant's identifier",
            byte(geneve + 6, 200),
            "tunnel_member",
        ),
        (
            "another tenant",
            byte(option + 7, outer[option + 7] ^ 1),
            "tunnel_tenant",
        ),
        (
            "tenant 0",
            changed(&outer, |out| out[option + 4..option + 8].fill(0)),
            "tunnel_no_tenant",
        ),
        ("no option", without_option(&outer), "tunnel_no_tenant"),
        (
            "an option of somebody else in its place",
            byte(option, 0),
            "tunnel_no_tenant",
        ),
        (
            "a critical option that nobody knows",
            changed(&outer, |out| {
                out[option..option + 3].copy_from_slice(&[0, 1, 0x81])
            }),
            "tunnel_bad",
        ),
        (
            "an option longer than all of them",
            byte(option + 3, 9),
            "tunnel_bad",
        ),
        (
            "options longer than the packet",
            byte(geneve, 0x3f),
            "tunnel_bad",
        ),
        (
            "version 1",
            byte(geneve, outer[geneve] | 0x40),
            "tunnel_bad",
        ),
        ("a control packet", byte(geneve + 1, 0x80), "tunnel_bad"),
        (
            "no frame inside",
            changed(&outer, |out| {
                out[geneve + 2..geneve + 4].copy_from_slice(&[8, 0])
            }),
            "tunnel_bad",
        ),
        (
            "VXLAN, which is not taken",
            changed(&outer, |out| {
                out[udp + 2..udp + 4].copy_from_slice(&4789_u16.to_be_bytes())
            }),
            "tunnel_kind",
        ),
        (
            "GRE, which is not taken",
            changed(&outer, |out| {
                out[23] = 47;
                out[34..42].copy_from_slice(&[0x20, 0, 0x65, 0x58, 0, 0, 0, 100]);
            }),
            "tunnel_kind",
        ),
        (
            "a datagram shorter than its packet",
            byte(udp + 5, outer[udp + 5] - 4),
            "tunnel_bad",
        ),
        (
            "a datagram longer than its packet",
            byte(udp + 4, outer[udp + 4] + 1),
            "tunnel_bad",
        ),
        (
            "an IP packet longer than the frame",
            changed(&outer, |out| {
                out[16] += 1;
                out[udp + 4] += 1;
            }),
            "tunnel_bad",
        ),
        (
            "an IP packet shorter than its header",
            changed(&outer, |out| out[16..18].copy_from_slice(&[0, 10])),
            "tunnel_bad",
        ),
        ("cut in the header of Geneve", cut(46), "tunnel_bad"),
        ("cut in the option", cut(53), "tunnel_bad"),
        ("cut in the frame's header", cut(frame + 9), "tunnel_bad"),
        (
            "a first fragment",
            changed(&outer, |out| out[20..22].copy_from_slice(&[0x20, 0])),
            "tunnel_bad",
        ),
        (
            "a station nobody declared",
            byte(frame + 5, 0x77),
            "unknown_station",
        ),
        (
            "a tag that nobody has",
            changed(&outer, |out| {
                out.splice(frame + 12..frame + 12, [0x81, 0, 0, 5]);
                for at in [16, udp + 4] {
                    let length = u16::from_be_bytes([out[at], out[at + 1]]) + 4;
                    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
                }
            }),
            "vlan_not_allowed",
        ),
    ];
    assert!(cases.len() >= 20);
    for (number, (name, outer, reason)) in cases.iter().enumerate() {
        let ends = near
            .packet(Port::Underlay, &packet(outer, number as u64))
            .expect("run");
        let [End::Dropped { reason: got, .. }] = ends.as_slice() else {
            panic!("{name}: {ends:?}");
        };
        assert_eq!(got.name(), *reason, "{name}");
    }
    let totals = near.totals().expect("counted");
    assert_eq!(totals.drops(), cases.len() as u64);
    assert!(totals.left.is_empty(), "{totals:?}");
    eprintln!("{} kinds of packets from the underlay refused", cases.len());
    // What is right arrives: with the tenant, and without it from the edge that the document says it of.
    let mut arrives = |outer: &[u8], place: usize, bytes: &[u8], name: &str| {
        let ends = near
            .packet(Port::Underlay, &packet(outer, 99))
            .expect("run");
        let left = End::Left {
            by: Port::Workload(place),
            frame: bytes.to_vec(),
        };
        assert_eq!(ends, [left], "{name}");
    };
    arrives(&outer, 0, &inner, "as it was sent");
    arrives(&of_third, 1, &inner, "with the tenant, of the third edge");
    arrives(
        &without_option(&of_third),
        1,
        &inner,
        "without the tenant, of the third edge",
    );
    let padded = changed(&outer, |out| out.extend([0; 6]));
    let longer = [&inner[..], &[0; 6]].concat();
    arrives(&padded, 0, &longer, "padding behind the packet");
    // A priority tag is none.
    let tagged = changed(&outer, |out| {
        out.splice(frame + 12..frame + 12, [0x81, 0, 0xe0, 0]);
        for at in [16, udp + 4] {
            let length = u16::from_be_bytes([out[at], out[at + 1]]) + 4;
            out[at..at + 2].copy_from_slice(&length.to_be_bytes());
        }
    });
    arrives(&tagged, 0, &inner, "a priority tag");
}

/// Duplicate address detection of a real stack: an address of a sibling is refused, an own one is not.
#[test]
fn a_real_stack_finds_duplicates_by_the_fabric() {
    if !root("a_real_stack_finds_duplicates_by_the_fabric") {
        return;
    }
    let text = DOCUMENT.replace(
        "address = [\"10.1.0.7\", \"fd00:1::7\", \"10.1.0.70\", \"fe80::77\"]",
        "address = [\"10.1.0.7\", \"fd00:1::7\"]",
    );
    let bed = network_bed::Bed::new(&weir_network::parse(&text, "test").expect("read"));
    bed.apply(&text);
    let own = &bed.workloads["n/own"].ns;
    let judged = |address: &str| {
        let net = format!("{address}/64");
        own.ip(&["address", "add", &net, "dev", "eth0"])
            .expect("added");
        for _ in 0..100 {
            let shown = own.ip(&["-6", "-o", "address", "show", "dev", "eth0", "to", address]);
            let shown = shown.expect("shown");
            if shown.contains("dadfailed") || !shown.contains("tentative") {
                return shown.contains("dadfailed");
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{address} stays tentative");
    };
    assert!(judged("fd00:1::8"), "the victim's");
    assert!(judged("fd00:1::1"), "the router's");
    own.ip(&["address", "delete", "fd00:1::7/64", "dev", "eth0"])
        .expect("deleted");
    assert!(!judged("fd00:1::7"), "its own");
    // Nobody else was asked.
    assert_eq!(
        bed.drops("e1").get("neighbour_spoofed"),
        None,
        "{:?}",
        bed.drops("e1")
    );
}
