//! What helpers are for: documents that name them, plans that tell them what to do, and DHCP's answers, also to bytes that are none of its.

use crate::bench::{Numbered, networks};
use proptest::prelude::*;
use weir_bpf::abi::vi_flag;
use weir_network::dhcp::{Kind, Silence, answer};
use weir_network::reference::{Open, Reference, To};
use weir_network::trace::{Described, Payload, trace};
use weir_network::values::Mac;
use weir_network::{EdgeNetworks, Lease, Numbers, export, parse};
use weir_packet::build::Frame;
use weir_packet::checksum::{fold, pseudo_header4, sum};

const DOCUMENT: &str = r#"
version = 1
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
mtu = 1400
[[network.subnet]]
name = "web"
prefix = ["fd00:1::/64", "10.1.0.0/20"]
dhcp = true
lease = 7200
[[network.subnet]]
name = "lone"
prefix = "10.3.0.0/24"
dhcp = true
[[network.function]]
name = "ctl"
kind = "punt"
select = [{ protocol = "udp", port = "53" }]
rate = 5
flows = 7
[[network.function]]
name = "gw"
kind = "router"
interface = [{ name = "web", address = ["10.1.0.1/20", "fd00:1::1/64"] }, { name = "out", address = "10.2.0.1/24" }]
[[network.subnet]]
name = "out"
prefix = "10.2.0.0/24"
[[network.link]]
from = "web"
to = "ctl"
[[network.link]]
from = "ctl"
to = "gw.web"
[[network.link]]
from = "gw.out"
to = "out"
[[network.workload]]
name = "w"
subnet = "web"
edge = "e1"
device = "w"
mac = "02:00:00:00:00:07"
address = ["fd00:1::7", "10.1.0.7", "10.1.0.70"]
[[network.workload]]
name = "far"
subnet = "web"
edge = "e2"
device = "far"
address = "10.1.0.8"
[[network.workload]]
name = "six"
subnet = "web"
edge = "e1"
device = "six"
address = "fd00:1::9"
[[network.workload]]
name = "any"
subnet = "lone"
edge = "e1"
device = "any"
mac = "any"
address = "10.3.0.3"
"#;

fn plan(edge: &str) -> EdgeNetworks {
    let plan = networks(DOCUMENT).plan(edge, &Numbers::default());
    plan.expect("planned")
}

fn lease(workload: &str) -> Lease {
    let leases = plan("e1").leases.into_iter();
    let mut found = leases.filter(|one| one.workload == workload);
    found.next().expect("a lease")
}

const W: Mac = Mac([2, 0, 0, 0, 0, 7]);

/// A message: kind, address that the client has, flags, options.
fn message(mac: Mac, kind: u8, has: [u8; 4], flags: u8, options: &[u8]) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0, 1, 2, 3, 4, 0, 0, flags, 0];
    message.extend(has);
    message.resize(28, 0);
    message.extend(mac.0);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, kind]);
    message.extend(options);
    message.push(255);
    let frame = Frame::new().ip4(has, [255; 4]).udp(68, 67);
    let mut frame = frame.payload(&message).build();
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[6..12].copy_from_slice(&mac.0);
    frame
}

#[test]
fn each_edge_leases_the_addresses_of_its_own_workloads() {
    let names = |edge: &str| {
        let leases = plan(edge).leases.into_iter();
        leases.map(|one| one.workload).collect::<Vec<_>>()
    };
    // `six` has no address of IPv4.
    assert_eq!(names("e1"), ["w", "any"]);
    assert_eq!(names("e2"), ["far"]);
    let own = lease("w");
    assert_eq!((own.address, own.length), ([10, 1, 0, 7].into(), 20));
    assert_eq!(
        (own.router, own.server),
        (Some([10, 1, 0, 1].into()), [10, 1, 0, 1].into())
    );
    assert_eq!((own.mtu, own.seconds, own.mac), (1400, 7200, Some(W)));
    let lone = lease("any");
    assert_eq!(
        (lone.router, lone.server),
        (None, [169, 254, 169, 254].into())
    );
    assert_eq!((lone.seconds, lone.mac), (3600, None));
}

#[test]
fn functions_that_hand_over_are_planned_and_written_down() {
    let plan = plan("e1");
    let [function] = plan.punt_functions.as_slice() else {
        panic!("{:?}", plan.punt_functions);
    };
    assert_eq!(
        (
            function.name.as_str(),
            function.tenant.as_str(),
            function.flows
        ),
        ("ctl", "red", 7)
    );
    for (vid, (source, target)) in function.sides.into_iter().zip([(0, 53), (53, 0)]) {
        let vi = &plan.interfaces[vid as usize];
        assert_eq!(vi.flags, vi_flag::PUNT);
        let punt = plan.punts[vi.instance as usize];
        assert_eq!((punt.n_selections, punt.rate), (1, 5));
        let one = plan.selections[punt.selections as usize];
        assert_eq!((one.source_low, one.target_low), (source, target));
    }
    let document = parse(DOCUMENT, "test").expect("read");
    let text = export(&document);
    assert_eq!(parse(&text, "again").expect("read"), document, "{text}");
    for line in [
        "lease = 7200",
        "dhcp = true",
        "rate = 5",
        "flows = 7",
        "select = [{ protocol = \"udp\", port = \"53\" }]",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_trace_says_what_is_punted() {
    let described = |payload| Described {
        network: "shop".to_owned(),
        workload: "w".to_owned(),
        to: [10, 2, 0, 9].into(),
        from: None,
        mac: None,
        payload,
        ttl: 64,
        length: 0,
    };
    let networks = networks(DOCUMENT);
    let text = |payload| {
        trace(&networks, &described(payload))
            .expect("traced")
            .to_string()
    };
    assert!(text(Payload::Udp(1000, 53)).ends_with("  ctl: punted to the helper of edge e1\n"));
    assert!(text(Payload::Udp(1000, 54)).contains("  gw: "));
    // What DHCP clients send is punted where they are; from 0.0.0.0 they send nothing else.
    let plan = plan("e1");
    let tables = plan.tables(&Numbered, 0).expect("tables");
    let own = plan
        .devices
        .iter()
        .find(|one| one.workload == "w")
        .expect("there");
    let index = tables.interfaces[own.vid as usize].device;
    let walk = |frame: &[u8]| Reference::new(&tables).from_device(index, frame, &mut Open);
    let walked = walk(&message(W, 1, [0; 4], 0, &[]));
    assert_eq!(walked.leaving[0].to, To::Process { vid: own.port });
    let mut other = Frame::new().ip4([0; 4], [255; 4]).udp(68, 66).build();
    other[6..12].copy_from_slice(&W.0);
    assert_eq!(walk(&other).drops(), ["spoofed"]);
    let six = plan
        .devices
        .iter()
        .find(|one| one.workload == "six")
        .expect("there");
    assert_eq!(
        tables.interfaces[six.port as usize].flags & vi_flag::DHCP,
        0
    );
}

/// Option of an answer.
fn option(frame: &[u8], code: u8) -> Option<Vec<u8>> {
    let mut at = 14 + 20 + 8 + 240;
    while frame[at] != 255 {
        if frame[at] == code {
            return Some(frame[at + 2..at + 2 + usize::from(frame[at + 1])].to_vec());
        }
        at += 2 + usize::from(frame[at + 1]);
    }
    None
}

#[test]
fn answers_are_what_the_document_says() {
    let own = lease("w");
    let (kind, offer) = answer(&own, &message(W, 1, [0; 4], 0, &[61, 2, 0, 9])).expect("answered");
    assert_eq!(kind, Kind::Offer);
    // To the client itself, at the address that it does not have yet.
    assert_eq!(
        (&offer[..6], &offer[30..34]),
        (&W.0[..], &[10, 1, 0, 7][..])
    );
    assert_eq!(offer[58..62], [10, 1, 0, 7]);
    assert_eq!(option(&offer, 1), Some(vec![255, 255, 240, 0]));
    assert_eq!(option(&offer, 3), Some(vec![10, 1, 0, 1]));
    assert_eq!(option(&offer, 26), Some(1400_u16.to_be_bytes().to_vec()));
    assert_eq!(option(&offer, 51), Some(7200_u32.to_be_bytes().to_vec()));
    assert_eq!(option(&offer, 58), Some(3600_u32.to_be_bytes().to_vec()));
    assert_eq!(option(&offer, 59), Some(6300_u32.to_be_bytes().to_vec()));
    assert_eq!(option(&offer, 61), Some(vec![0, 9]));
    let udp = &offer[34..];
    let pseudo = pseudo_header4([10, 1, 0, 1], [10, 1, 0, 7], 17, udp.len() as u32);
    assert_eq!(fold(pseudo + sum(udp)), 0xffff);
    assert_eq!(fold(sum(&offer[14..34])), 0xffff);
    // A client that cannot hear before it has an address.
    let (_, all) = answer(&own, &message(W, 1, [0; 4], 0x80, &[])).expect("answered");
    assert_eq!((&all[..6], &all[30..34]), (&[0xff; 6][..], &[0xff; 4][..]));
    // Renewed: to the address that it has.
    let (kind, renewed) = answer(&own, &message(W, 3, [10, 1, 0, 7], 0, &[])).expect("answered");
    assert_eq!((kind, &renewed[30..34]), (Kind::Ack, &[10, 1, 0, 7][..]));
    let (kind, informed) = answer(&own, &message(W, 8, [10, 1, 0, 7], 0, &[])).expect("answered");
    assert_eq!(
        (kind, option(&informed, 51), &informed[58..62]),
        (Kind::Ack, None, &[0; 4][..])
    );
    let (kind, moved) =
        answer(&own, &message(W, 3, [0; 4], 0, &[50, 4, 10, 1, 0, 9])).expect("answered");
    assert_eq!((kind, option(&moved, 3)), (Kind::Nak, None));
    // A tag stays.
    let mut tagged = message(W, 1, [0; 4], 0, &[]);
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    let (_, offer) = answer(&own, &tagged).expect("answered");
    assert_eq!(offer[12..18], [0x81, 0, 0, 7, 8, 0]);
    for (frame, why) in [
        (
            message(Mac([2; 6]), 1, [0; 4], 0, &[]),
            Silence::OtherStation,
        ),
        (
            message(W, 3, [0; 4], 0, &[54, 4, 10, 1, 0, 2]),
            Silence::OtherServer,
        ),
        (message(W, 3, [0; 4], 0, &[]), Silence::NoAddress),
        (message(W, 4, [0; 4], 0, &[]), Silence::GivenBack),
        (message(W, 7, [10, 1, 0, 7], 0, &[]), Silence::GivenBack),
        (message(W, 2, [0; 4], 0, &[]), Silence::NotDhcp),
        (
            Frame::new().ip4([0; 4], [255; 4]).udp(68, 67).build(),
            Silence::NotDhcp,
        ),
    ] {
        assert_eq!(answer(&own, &frame), Err(why));
    }
    let mut relayed = message(W, 1, [0; 4], 0, &[]);
    relayed[14 + 28 + 24] = 10;
    assert_eq!(answer(&own, &relayed), Err(Silence::Relayed));
    // Whoever is at the interface of a workload with any MAC address.
    assert!(answer(&lease("any"), &message(Mac([2; 6]), 1, [0; 4], 0, &[])).is_ok());
}

proptest! {
    #[test]
    fn no_bytes_make_it_fail(
        change in prop::collection::vec((0_usize..400, any::<u8>()), 0..12),
        cut in 0_usize..400,
        options in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut frame = message(W, 1, [0; 4], 0, &options);
        for (at, byte) in change {
            let length = frame.len();
            frame[at % length] = byte;
        }
        frame.truncate(frame.len().min(cut));
        if let Ok((_, made)) = answer(&lease("w"), &frame) {
            prop_assert!(made.len() >= 14 + 28 + 300);
        }
    }
}
