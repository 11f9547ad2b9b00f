//! Frames of a workload that pretends to be somebody else, and those that it may send: what each is called, its bytes, and how it has to end.

/// Addresses of the bed: of the workload that tries, of its victim in the same subnet, of their router, and of a workload behind that.
pub(crate) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 7];
pub(crate) const VICTIM: [u8; 6] = [2, 0, 0, 0, 0, 8];
pub(crate) const FRIEND: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(crate) const ROUTER: [u8; 6] = [2, 0, 0, 0, 1, 1];
const ALL: [u8; 6] = [0xff; 6];
const OWN4: [u8; 4] = [10, 1, 0, 7];
const VICTIM4: [u8; 4] = [10, 1, 0, 8];
const ROUTER4: [u8; 4] = [10, 1, 0, 1];
const FAR4: [u8; 4] = [10, 2, 0, 9];
const FREE4: [u8; 4] = [10, 1, 0, 99];

/// How a frame has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Dropped for this reason, and nobody gets a copy.
    Drop(&'static str),
    /// It comes back to who sent it, as an answer; nobody else sees it.
    Answered,
    /// So many workloads get it, who sent it not among them.
    Reaches(usize),
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) frame: Vec<u8>,
    pub(crate) want: Want,
}

fn v6(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>()
        .expect("an address")
        .octets()
}

pub(crate) fn eth(to: [u8; 6], from: [u8; 6], kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(kind.to_be_bytes());
    frame.extend(body);
    frame
}

/// A frame with tags behind its addresses.
fn tagged(frame: &[u8], tags: &[u16]) -> Vec<u8> {
    let mut out = frame[..12].to_vec();
    for tag in tags {
        out.extend([0x81, 0]);
        out.extend(tag.to_be_bytes());
    }
    out.extend(&frame[12..]);
    out
}

fn sum(bytes: &[u8]) -> u16 {
    !weir_packet::checksum::fold(weir_packet::checksum::sum(bytes))
}

pub(crate) fn ip4(
    from: [u8; 4],
    to: [u8; 4],
    protocol: u8,
    options: &[u8],
    fragment: u16,
    body: &[u8],
) -> Vec<u8> {
    let head = 20 + options.len();
    let mut ip = vec![0x40 | (head / 4) as u8, 0];
    ip.extend(((head + body.len()) as u16).to_be_bytes());
    ip.extend([0, 1]);
    ip.extend(fragment.to_be_bytes());
    ip.extend([64, protocol, 0, 0]);
    ip.extend(from);
    ip.extend(to);
    ip.extend(options);
    let check = sum(&ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    ip.extend(body);
    ip
}

fn ip6(from: [u8; 16], to: [u8; 16], next: u8, hops: u8, body: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((body.len() as u16).to_be_bytes());
    ip.extend([next, hops]);
    ip.extend(from);
    ip.extend(to);
    ip.extend(body);
    ip
}

pub(crate) fn udp(from: u16, to: u16, bytes: usize) -> Vec<u8> {
    let mut udp = [from.to_be_bytes(), to.to_be_bytes()].concat();
    udp.extend(((8 + bytes) as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(vec![0x42; bytes]);
    udp
}

/// UDP over IPv4 from the workload's station.
fn udp4(to: [u8; 6], from: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    eth(
        to,
        OWN,
        0x800,
        &ip4(from, target, 17, &[], 0, &udp(1000, 2000, 30)),
    )
}

fn udp6(to: [u8; 6], from: &str, target: &str) -> Vec<u8> {
    eth(
        to,
        OWN,
        0x86dd,
        &ip6(v6(from), v6(target), 17, 64, &udp(1000, 2000, 30)),
    )
}

fn arp(to: [u8; 6], op: u8, hardware: [u8; 6], sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4, 0, op];
    body.extend(hardware);
    body.extend(sender);
    body.extend([0; 6]);
    body.extend(target);
    let mut frame = eth(to, OWN, 0x806, &body);
    frame.resize(60, 0);
    frame
}

/// A message of ICMPv6 with its checksum.
fn icmp6(from: &str, to: &str, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let pseudo = weir_packet::checksum::pseudo_header6(v6(from), v6(to), 58, message.len() as u32);
    let check = !weir_packet::checksum::fold(pseudo + weir_packet::checksum::sum(&message));
    message[2..4].copy_from_slice(&check.to_be_bytes());
    message
}

/// The station of a group.
fn group(address: &str) -> [u8; 6] {
    let bytes = v6(address);
    match bytes[0] {
        0xff => [0x33, 0x33, bytes[12], bytes[13], bytes[14], bytes[15]],
        _ => VICTIM,
    }
}

/// Neighbour discovery of the workload's station, with extension headers in front.
fn nd_behind(from: &str, to: &str, hops: u8, message: &[u8], next: u8, headers: &[u8]) -> Vec<u8> {
    let body = [headers, &icmp6(from, to, message)].concat();
    eth(
        group(to),
        OWN,
        0x86dd,
        &ip6(v6(from), v6(to), next, hops, &body),
    )
}

fn nd(from: &str, to: &str, message: &[u8]) -> Vec<u8> {
    nd_behind(from, to, 255, message, 58, &[])
}

/// A solicitation or advertisement: type, flags, target, options.
fn neighbour(kind: u8, flags: u8, target: &str, options: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(v6(target));
    message.extend(options);
    message
}

/// An option with a link-layer address.
fn link_layer(kind: u8, mac: [u8; 6]) -> Vec<u8> {
    [&[kind, 1][..], &mac].concat()
}

fn advertisement(from: &str, to: &str, target: &str, mac: [u8; 6], flags: u8) -> Vec<u8> {
    nd(
        from,
        to,
        &neighbour(136, flags, target, &link_layer(2, mac)),
    )
}

/// A router advertisement with a link-layer address.
fn ra(mac: [u8; 6]) -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend(link_layer(1, mac));
    message
}

fn dhcp(from: u16, to: u16, options: &[u8], fragment: u16) -> Vec<u8> {
    eth(
        ALL,
        OWN,
        0x800,
        &ip4(OWN4, [255; 4], 17, options, fragment, &udp(from, to, 240)),
    )
}

/// A message of ICMP to the victim.
fn icmp4(kind: u8) -> Vec<u8> {
    let mut message = vec![kind, 1, 0, 0, 10, 1, 0, 7];
    message.extend([0x45; 28]);
    let check = sum(&message);
    message[2..4].copy_from_slice(&check.to_be_bytes());
    eth(VICTIM, OWN, 0x800, &ip4(OWN4, VICTIM4, 1, &[], 0, &message))
}

fn dhcp6(from: u16, to: u16, next: u8, headers: &[u8]) -> Vec<u8> {
    let body = [headers, &udp(from, to, 40)].concat();
    let target = "fe80::ff:fe00:8";
    eth(
        VICTIM,
        OWN,
        0x86dd,
        &ip6(v6(OWN_LINK), v6(target), next, 64, &body),
    )
}

fn igmp(from: [u8; 4], kind: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 239, 1, 1, 1];
    let check = sum(&message);
    message[2..4].copy_from_slice(&check.to_be_bytes());
    let station = [1, 0, 0x5e, 1, 1, 1];
    eth(
        station,
        OWN,
        0x800,
        &ip4(from, [239, 1, 1, 1], 2, &[0x94, 4, 0, 0], 0, &message),
    )
}

/// Multicast listener discovery, behind the header with the router alert.
fn mld(from: &str, kind: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(v6("ff02::1:ff00:7"));
    nd_behind(from, "ff02::16", 1, &message, 0, &[58, 0, 5, 2, 0, 0, 1, 0])
}

const OWN6: &str = "fd00:1::7";
/// Made of the workload's MAC address.
const OWN_LINK: &str = "fe80::ff:fe00:7";
const VICTIM_LINK: &str = "fe80::ff:fe00:8";

fn drop(name: &'static str, frame: Vec<u8>, reason: &'static str) -> Case {
    Case {
        name,
        frame,
        want: Want::Drop(reason),
    }
}

fn from(mac: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[6..12].copy_from_slice(&mac);
    frame
}

/// Frames by which the workload claims to be somebody else.
pub(crate) fn foreign_sources() -> Vec<Case> {
    let own = || udp4(VICTIM, OWN4, VICTIM4);
    let mut cases = vec![
        drop("another MAC address", from(VICTIM, own()), "spoofed_mac"),
        drop(
            "the MAC address of a group",
            from([3, 0, 0, 0, 0, 7], own()),
            "spoofed_mac",
        ),
        drop("no MAC address", from([0; 6], own()), "spoofed_mac"),
        drop(
            "the router's MAC address",
            from(ROUTER, own()),
            "spoofed_mac",
        ),
    ];
    for (name, source) in [
        ("the victim's IPv4 address", VICTIM4),
        ("the router's IPv4 address", ROUTER4),
        ("a foreign IPv4 address", [8, 8, 8, 8]),
        ("no IPv4 address", [0; 4]),
        ("the IPv4 broadcast address", [255; 4]),
        ("a loopback address", [127, 0, 0, 1]),
        ("an IPv4 group", [224, 0, 0, 1]),
        ("a link-local IPv4 address", [169, 254, 1, 1]),
    ] {
        cases.push(drop(name, udp4(VICTIM, source, VICTIM4), "spoofed"));
    }
    for (name, source) in [
        ("the victim's IPv6 address", "fd00:1::8"),
        ("a foreign IPv6 address", "2001:db8::1"),
        ("a link-local address nobody made", "fe80::1"),
        ("the victim's link-local address", VICTIM_LINK),
        ("a link-local address of another prefix", "fe81::ff:fe00:7"),
        ("no IPv6 address", "::"),
        ("::1", "::1"),
        ("the own IPv4 address as one of IPv6", "::ffff:10.1.0.7"),
        ("a second IPv4 address as one of IPv6", "::ffff:10.1.0.70"),
        ("an IPv6 group", "ff02::1"),
    ] {
        cases.push(drop(name, udp6(VICTIM, source, "fd00:1::8"), "spoofed"));
    }
    let later = [17, 0, 0, 8, 0, 0, 0, 1];
    let body = [&later[..], &[0x42; 40]].concat();
    cases.push(drop(
        "a later fragment of a foreign address",
        eth(
            VICTIM,
            OWN,
            0x86dd,
            &ip6(v6("2001:db8::1"), v6("fd00:1::8"), 44, 64, &body),
        ),
        "spoofed",
    ));
    cases
}

pub(crate) fn neighbours() -> Vec<Case> {
    let spoofed = "neighbour_spoofed";
    let bad = "neighbour_bad";
    let long = {
        let mut frame = arp(ALL, 1, OWN, OWN4, VICTIM4);
        frame[18] = 8;
        frame
    };
    let mut cases = vec![
        drop(
            "ARP request of the victim",
            arp(ALL, 1, OWN, VICTIM4, ROUTER4),
            spoofed,
        ),
        drop(
            "ARP answer of the victim",
            arp(ROUTER, 2, OWN, VICTIM4, ROUTER4),
            spoofed,
        ),
        drop(
            "gratuitous ARP for the victim",
            arp(ALL, 1, OWN, VICTIM4, VICTIM4),
            spoofed,
        ),
        drop(
            "gratuitous ARP answer for the router",
            arp(ALL, 2, OWN, ROUTER4, ROUTER4),
            spoofed,
        ),
        drop(
            "ARP with another hardware address",
            arp(ALL, 1, VICTIM, OWN4, ROUTER4),
            spoofed,
        ),
        drop(
            "ARP probe for a free address",
            arp(ALL, 1, OWN, [0; 4], FREE4),
            spoofed,
        ),
        drop(
            "ARP answer of nobody",
            arp(ALL, 2, OWN, [0; 4], OWN4),
            spoofed,
        ),
        drop(
            "ARP that ends early",
            eth(ALL, OWN, 0x806, &[0, 1, 8, 0, 6, 4, 0, 1]),
            bad,
        ),
        drop("ARP with long hardware addresses", long, bad),
        drop("reverse ARP", arp(ALL, 3, OWN, OWN4, OWN4), bad),
        drop(
            "advertisement of the victim's address",
            advertisement(OWN_LINK, "ff02::1", "fd00:1::8", OWN, 0x20),
            spoofed,
        ),
        drop(
            "answer for the victim",
            advertisement(OWN6, "fd00:1::8", "fd00:1::8", OWN, 0x60),
            spoofed,
        ),
        drop(
            "own address at the victim's MAC address",
            advertisement(OWN6, "ff02::1", OWN6, VICTIM, 0x20),
            spoofed,
        ),
        drop(
            "advertisement of the router's address",
            advertisement(OWN_LINK, "ff02::1", "fd00:1::1", OWN, 0xa0),
            spoofed,
        ),
        drop(
            "advertisement of the victim's link-local address",
            advertisement(OWN_LINK, "ff02::1", VICTIM_LINK, OWN, 0x20),
            spoofed,
        ),
        drop(
            "advertisement from the victim",
            advertisement("fd00:1::8", "ff02::1", OWN6, OWN, 0x20),
            spoofed,
        ),
        drop(
            "answer to duplicate address detection of a free address",
            advertisement(OWN_LINK, "ff02::1", "fd00:1::99", OWN, 0x20),
            spoofed,
        ),
        drop(
            "solicitation with another MAC address",
            nd(
                OWN6,
                "ff02::1:ff00:8",
                &neighbour(135, 0, "fd00:1::8", &link_layer(1, VICTIM)),
            ),
            spoofed,
        ),
        drop(
            "duplicate address detection of a free address",
            nd(
                "::",
                "ff02::1:ff00:99",
                &neighbour(135, 0, "fd00:1::99", &[]),
            ),
            spoofed,
        ),
        drop(
            "duplicate address detection with a MAC address",
            nd(
                "::",
                "ff02::1:ff00:7",
                &neighbour(135, 0, OWN6, &link_layer(1, OWN)),
            ),
            bad,
        ),
        drop(
            "router solicitation with another MAC address",
            nd(
                OWN_LINK,
                "ff02::2",
                &[&[133, 0, 0, 0, 0, 0, 0, 0][..], &link_layer(1, VICTIM)].concat(),
            ),
            spoofed,
        ),
    ];
    let solicitation = neighbour(135, 0, "fd00:1::8", &link_layer(1, OWN));
    let claim = neighbour(136, 0x20, "fd00:1::8", &link_layer(2, OWN));
    let to = "ff02::1:ff00:8";
    let mut coded = solicitation.clone();
    coded[1] = 1;
    let endless = neighbour(135, 0, "fd00:1::8", &[1, 0, 2, 0, 0, 0, 0, 7]);
    let mut over = nd(OWN6, to, &solicitation);
    over[18..20].copy_from_slice(&64_u16.to_be_bytes());
    cases.extend([
        drop(
            "solicitation over a router",
            nd_behind(OWN6, to, 64, &solicitation, 58, &[]),
            bad,
        ),
        drop("solicitation with a code", nd(OWN6, to, &coded), bad),
        drop("option of no length", nd(OWN6, to, &endless), bad),
        drop(
            "solicitation that ends early",
            nd(OWN6, to, &solicitation[..16]),
            bad,
        ),
        drop("solicitation longer than its frame", over, bad),
        drop(
            "claim behind destination options",
            nd_behind(OWN6, "ff02::1", 255, &claim, 60, &[58, 0, 1, 4, 0, 0, 0, 0]),
            spoofed,
        ),
        drop(
            "claim in an atomic fragment",
            nd_behind(OWN6, "ff02::1", 255, &claim, 44, &[58, 0, 0, 0, 0, 0, 0, 1]),
            bad,
        ),
        Case {
            name: "duplicate address detection of the victim's address",
            frame: nd("::", "ff02::1:ff00:8", &neighbour(135, 0, "fd00:1::8", &[])),
            want: Want::Answered,
        },
        Case {
            name: "duplicate address detection of the router's address, with a nonce",
            frame: nd(
                "::",
                "ff02::1:ff00:1",
                &neighbour(135, 0, "fd00:1::1", &[14, 1, 1, 2, 3, 4, 5, 6]),
            ),
            want: Want::Answered,
        },
        Case {
            name: "ARP probe for the victim's address",
            frame: arp(ALL, 1, OWN, [0; 4], VICTIM4),
            want: Want::Answered,
        },
    ]);
    cases
}

pub(crate) fn servers() -> Vec<Case> {
    let guard = "ra_guard";
    let options = [60, 0, 1, 4, 0, 0, 0, 0];
    let deep: Vec<u8> = (0..9)
        .flat_map(|at| {
            if at == 8 {
                [58, 0, 1, 4, 0, 0, 0, 0]
            } else {
                options
            }
        })
        .collect();
    let redirect = [&neighbour(137, 0, "fe80::1", &[])[..], &v6("2001:db8::1")].concat();
    let hidden = nd_behind(
        OWN_LINK,
        "ff02::1",
        255,
        &ra(OWN),
        60,
        &[58, 200, 1, 4, 0, 0, 0, 0],
    );
    let alert = [58, 0, 5, 2, 0, 0, 1, 0];
    let with_alert = [17, 0, 5, 2, 0, 0, 1, 0];
    vec![
        drop(
            "router advertisement",
            nd(OWN_LINK, "ff02::1", &ra(OWN)),
            guard,
        ),
        drop(
            "router advertisement to the victim",
            nd(OWN_LINK, VICTIM_LINK, &ra(OWN)),
            guard,
        ),
        drop(
            "router advertisement of the router",
            nd("fe80::ff:fe00:101", "ff02::1", &ra(ROUTER)),
            guard,
        ),
        drop(
            "router advertisement behind hop-by-hop options",
            nd_behind(OWN_LINK, "ff02::1", 255, &ra(OWN), 0, &alert),
            guard,
        ),
        drop(
            "router advertisement in a first fragment",
            nd_behind(
                OWN_LINK,
                "ff02::1",
                255,
                &ra(OWN),
                44,
                &[58, 0, 0, 1, 0, 0, 0, 1],
            ),
            guard,
        ),
        drop(
            "router advertisement behind nine headers",
            nd_behind(OWN_LINK, "ff02::1", 255, &ra(OWN), 60, &deep),
            "ip6_eh_deep",
        ),
        drop("a header longer than the frame", hidden, "ip6_eh_truncated"),
        drop("redirect", nd(OWN_LINK, VICTIM_LINK, &redirect), guard),
        drop(
            "router advertisement in a priority tag",
            tagged(&nd(OWN_LINK, "ff02::1", &ra(OWN)), &[0xe000]),
            guard,
        ),
        drop("ICMP redirect", icmp4(5), guard),
        drop("ICMP router advertisement", icmp4(9), guard),
        drop("DHCP offer", dhcp(67, 68, &[], 0), "dhcp_guard"),
        drop(
            "DHCP offer from another port",
            dhcp(1067, 68, &[], 0),
            "dhcp_guard",
        ),
        drop(
            "DHCP offer behind IPv4 options",
            dhcp(67, 68, &[1, 1, 1, 0], 0),
            "dhcp_guard",
        ),
        drop(
            "DHCP offer in a first fragment",
            dhcp(67, 68, &[], 0x2000),
            "dhcp_guard",
        ),
        drop("DHCPv6 reply", dhcp6(547, 546, 17, &[]), "dhcp_guard"),
        drop(
            "DHCPv6 reply behind hop-by-hop options",
            dhcp6(547, 546, 0, &with_alert),
            "dhcp_guard",
        ),
    ]
}

pub(crate) fn groups() -> Vec<Case> {
    let spoofed = "group_spoofed";
    vec![
        drop("IGMP report of the victim", igmp(VICTIM4, 0x16), spoofed),
        drop(
            "IGMP query of a stranger",
            igmp([10, 1, 0, 250], 0x11),
            spoofed,
        ),
        drop("MLD report of the victim", mld(VICTIM_LINK, 143), spoofed),
        drop("MLD report from a global address", mld(OWN6, 131), spoofed),
        drop("MLD query of nobody", mld("::", 130), spoofed),
        drop("MLD done of a stranger", mld("fe80::1", 132), spoofed),
    ]
}

pub(crate) fn tags_and_others() -> Vec<Case> {
    let own = udp4(VICTIM, OWN4, VICTIM4);
    let mut cases = vec![
        drop(
            "a tag on an untagged port",
            tagged(&own, &[5]),
            "vlan_not_allowed",
        ),
        drop("two tags", tagged(&own, &[5, 6]), "vlan_not_allowed"),
        drop(
            "a tag behind a priority tag",
            tagged(&own, &[0, 5]),
            "vlan_not_allowed",
        ),
        drop(
            "two priority tags",
            tagged(&own, &[0, 0]),
            "vlan_not_allowed",
        ),
        drop(
            "IPv4 that ends early",
            eth(VICTIM, OWN, 0x800, &[0x45; 12]),
            "ip4_truncated",
        ),
        drop(
            "IPv6 that ends early",
            eth(VICTIM, OWN, 0x86dd, &[0x60; 30]),
            "ip6_truncated",
        ),
    ];
    for (name, to) in [
        ("to 127.0.0.1", [127, 0, 0, 1]),
        ("to 169.254.169.254", [169, 254, 169, 254]),
        ("to 224.0.0.5", [224, 0, 0, 5]),
        ("to 240.0.0.1", [240, 0, 0, 1]),
        ("to 0.0.0.1", [0, 0, 0, 1]),
        ("to 255.255.255.255 by the router", [255; 4]),
    ] {
        cases.push(drop(name, udp4(ROUTER, OWN4, to), "martian"));
    }
    for (name, from, to) in [
        ("to ::1", OWN6, "::1"),
        ("to ::", OWN6, "::"),
        ("to ff02::5 by the router", OWN6, "ff02::5"),
        ("to an IPv4 address as one of IPv6", OWN6, "::ffff:10.2.0.9"),
        ("a link-local source over the router", OWN_LINK, "fd00:2::9"),
        (
            "a link-local source by the default route",
            OWN_LINK,
            "2001:db8::1",
        ),
    ] {
        cases.push(drop(name, udp6(ROUTER, from, to), "martian"));
    }
    cases
}

/// What a workload sends that is what it says.
pub(crate) fn honest() -> Vec<Case> {
    let reach = |name, frame, n| Case {
        name,
        frame,
        want: Want::Reaches(n),
    };
    let back = |name, frame| Case {
        name,
        frame,
        want: Want::Answered,
    };
    let own = udp4(VICTIM, OWN4, VICTIM4);
    vec![
        reach("IPv4", own.clone(), 1),
        reach(
            "the second IPv4 address",
            udp4(VICTIM, [10, 1, 0, 70], VICTIM4),
            1,
        ),
        reach("ICMP echo", icmp4(8), 1),
        reach("IPv6", udp6(VICTIM, OWN6, "fd00:1::8"), 1),
        reach("link-local", udp6(VICTIM, OWN_LINK, VICTIM_LINK), 1),
        reach(
            "a declared link-local address",
            udp6(VICTIM, "fe80::77", VICTIM_LINK),
            1,
        ),
        reach("over the router", udp4(ROUTER, OWN4, FAR4), 1),
        reach(
            "over the router by IPv6",
            udp6(ROUTER, OWN6, "fd00:2::9"),
            1,
        ),
        reach("a priority tag", tagged(&own, &[0xe000]), 1),
        reach(
            "behind destination options",
            {
                let body = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(1000, 2000, 30)].concat();
                eth(
                    VICTIM,
                    OWN,
                    0x86dd,
                    &ip6(v6(OWN6), v6("fd00:1::8"), 60, 64, &body),
                )
            },
            1,
        ),
        reach("gratuitous ARP", arp(ALL, 1, OWN, OWN4, OWN4), 2),
        reach(
            "ARP probe for the own address",
            arp(ALL, 1, OWN, [0; 4], OWN4),
            2,
        ),
        back("ARP request", arp(ALL, 1, OWN, OWN4, VICTIM4)),
        back(
            "solicitation",
            nd(
                OWN6,
                "ff02::1:ff00:8",
                &neighbour(135, 0, "fd00:1::8", &link_layer(1, OWN)),
            ),
        ),
        reach(
            "unsolicited advertisement",
            advertisement(OWN6, "ff02::1", OWN6, OWN, 0x20),
            2,
        ),
        reach(
            "advertisement of the link-local address",
            advertisement(OWN_LINK, "ff02::1", OWN_LINK, OWN, 0x20),
            2,
        ),
        reach(
            "duplicate address detection",
            nd("::", "ff02::1:ff00:7", &neighbour(135, 0, OWN6, &[])),
            2,
        ),
        reach(
            "duplicate address detection with a nonce",
            nd(
                "::",
                "ff02::1:ff00:7",
                &neighbour(135, 0, OWN_LINK, &[14, 1, 1, 2, 3, 4, 5, 6]),
            ),
            2,
        ),
        reach(
            "router solicitation",
            nd(
                OWN_LINK,
                "ff02::2",
                &[&[133, 0, 0, 0, 0, 0, 0, 0][..], &link_layer(1, OWN)].concat(),
            ),
            2,
        ),
        reach(
            "router solicitation of nobody",
            nd("::", "ff02::2", &[133, 0, 0, 0, 0, 0, 0, 0]),
            2,
        ),
        reach("MLD report", mld(OWN_LINK, 143), 2),
        reach("MLD report of nobody", mld("::", 143), 2),
        reach("IGMP report", igmp(OWN4, 0x16), 2),
        reach(
            "DHCP discover",
            eth(
                ALL,
                OWN,
                0x800,
                &ip4([0; 4], [255; 4], 17, &[], 0, &udp(68, 67, 240)),
            ),
            2,
        ),
        reach("DHCPv6 solicit", dhcp6(546, 547, 17, &[]), 1),
    ]
}

/// What one that is allowed to may send.
pub(crate) fn allowed() -> Vec<Case> {
    let link = "fe80::ff:fe00:9";
    let mut offer = dhcp(67, 68, &[], 0);
    let ip = ip4([10, 1, 0, 9], [255; 4], 17, &[], 0, &udp(67, 68, 240));
    offer.truncate(14);
    offer.extend(ip);
    let reply = ip6(v6(link), v6(VICTIM_LINK), 17, 64, &udp(547, 546, 40));
    let reach = |name, frame, n| Case {
        name,
        frame: from(FRIEND, frame),
        want: Want::Reaches(n),
    };
    vec![
        reach(
            "an allowed router advertisement",
            nd(link, "ff02::1", &ra(FRIEND)),
            2,
        ),
        reach("an allowed DHCP offer", offer, 2),
        reach(
            "an allowed DHCPv6 reply",
            eth(VICTIM, OWN, 0x86dd, &reply),
            1,
        ),
        Case {
            name: "an allowed router with another's MAC address",
            frame: from(FRIEND, nd(link, "ff02::1", &ra(VICTIM))),
            want: Want::Drop("neighbour_spoofed"),
        },
        Case {
            name: "an allowed router with another's address",
            frame: from(FRIEND, nd("fe80::1", "ff02::1", &ra(FRIEND))),
            want: Want::Drop("neighbour_spoofed"),
        },
    ]
}
