//! Packets for a router: mostly what hosts send, and everything else that comes in by a wire.
//!
//! A packet's number is its IPv4 identification or its IPv6 flow label, begins its payload and its sequence numbers: whatever comes out is
//! told by it, an error by its quote. Invariant: numbers of one batch differ.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_packet::build::Frame;
use weir_packet::checksum::checksum;

use super::draw::Draw;
use super::world::{HOSTS, PORTS, To, World, host_mac, host4, host6, port_mac, source4};

/// Most packets of a batch.
pub(crate) const MOST: usize = 60_000;
/// Places of sequence numbers below the packet's number.
const SEQUENCE: u32 = 12;

/// Hops that packets of the router's own have left; no packet that is forwarded has so many afterwards.
const OWN_TTL: u8 = 64;

/// A packet and where it comes in.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) port: usize,
    pub(crate) frame: Vec<u8>,
    /// What was done to it, for messages.
    pub(crate) what: String,
}

pub(crate) fn draw_packets(world: &World, draw: &mut Draw, count: usize) -> Vec<Packet> {
    assert!(count <= MOST);
    let mut all: Vec<Packet> = (1..=count).map(|n| packet(world, draw, n as u16)).collect();
    // One of them by itself, for whoever looks into a difference.
    if let Ok(only) = std::env::var("WEIR_PACKET") {
        for (n, packet) in (1..).zip(&mut all) {
            if only.parse() != Ok(n) {
                packet.frame.clear();
            }
        }
    }
    all
}

/// A packet from every port to every port, with numbers above those of all others.
pub(crate) fn last_packets() -> Vec<Packet> {
    let pairs = (0..PORTS).flat_map(|from| (0..PORTS).map(move |to| (from, to)));
    let packet = |(number, (from, to)): (usize, (usize, usize))| {
        let (source, target) = (host4(from, 1).octets(), host4(to, 0).octets());
        let frame = Frame::new().ip4(source, target).id(number as u16);
        let mut frame = frame.udp(7, 9).build();
        frame[..6].copy_from_slice(&port_mac(from));
        frame[6..12].copy_from_slice(&host_mac(from, 1));
        Packet {
            port: from,
            frame,
            what: "the last".to_owned(),
        }
    };
    (MOST + 1..).zip(pairs).map(packet).collect()
}

fn packet(world: &World, draw: &mut Draw, number: u16) -> Packet {
    let port = draw.weighted(&[5, 2, 2, 2]);
    let ipv6 = draw.percent(45);
    let destination = destination(world, draw, ipv6);
    let refused = match world.route(destination) {
        None => true,
        Some(route) => matches!(route.to, To::Unreachable | To::Prohibit),
    };
    // Of one source the kernel answers few of those in a second, whatever the settings of a namespace.
    let source = match destination {
        IpAddr::V4(_) if refused => source4(port, number).into(),
        _ => source(world, draw, port, ipv6),
    };
    let mut what = Vec::new();
    let (mut frame, start) = match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            (Frame::new().ip4(s.octets(), d.octets()).id(number), false)
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => (
            Frame::new()
                .ip6(s.octets(), d.octets())
                .flow_label(number.into()),
            true,
        ),
        _ => unreachable!("both are of one family"),
    };
    if draw.percent(40) {
        frame = frame.traffic_class(draw.bits() as u8);
    }
    let ttl = match draw.weighted(&[84, 5, 7, 4]) {
        0 => *draw.one_of(&[3, 17, 64, 128, 255]),
        n => n as u8 - 1,
    };
    if ttl < 3 {
        what.push(format!("ttl {ttl}"));
    }
    frame = frame.ttl(ttl);
    // Whoever makes an IPv4 packet without DF wants it cut.
    if !start && draw.percent(35) {
        frame = frame.fragment(0, false);
        what.push("no DF".to_owned());
    }
    if draw.percent(7) {
        let (offset, more) = *draw.one_of(&[(0, true), (8, true), (100, false), (185, false)]);
        frame = frame.fragment(offset, more);
        what.push(format!("fragment at {offset}"));
    }
    if draw.percent(6) {
        frame = extras(draw, frame, start, &mut what);
    }
    let length = match draw.weighted(&[70, 20, 10]) {
        0 => 4 + draw.below(60),
        1 => 1150 + draw.below(310),
        _ => *draw.one_of(&[
            1200, 1232, 1252, 1260, 1352, 1372, 1380, 1440, 1452, 1460, 1472,
        ]),
    };
    let mut payload = u32::from(number).to_be_bytes().to_vec();
    payload.extend(draw.bytes(length - 4));
    frame = transport(draw, frame, number, &mut payload, start, &mut what).payload(&payload);
    if draw.percent(4) {
        frame = frame.wrong_checksum(1 + draw.below(0xff00) as u16);
        what.push("wrong L4 checksum".to_owned());
    }
    if draw.percent(8) {
        let length = 1 + draw.below(30);
        frame = frame.trailer(&draw.bytes(length));
        what.push("trailer".to_owned());
    }
    if draw.percent(2) {
        frame = frame.vlan(draw.bits() as u16 & 0xfff);
        what.push("VLAN tag".to_owned());
    }
    let mut frame = frame.build();
    let to = match draw.weighted(&[93, 3, 2, 2]) {
        0 => port_mac(port),
        1 => [2, 0, 0, 0, 0x77, 7],
        2 => [0xff; 6],
        _ => [1, 0, 0x5e, 0, 0, 9],
    };
    if to != port_mac(port) {
        what.push("not to the router's MAC".to_owned());
    }
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&host_mac(port, draw.below(HOSTS)));
    if draw.percent(6) && frame[12..14] != [0x81, 0] {
        damage(draw, &mut frame, start, &mut what);
    }
    frame.truncate(1514);
    Packet {
        port,
        frame,
        what: what.join(", "),
    }
}

/// Mostly a host behind the port.
fn source(world: &World, draw: &mut Draw, port: usize, ipv6: bool) -> IpAddr {
    let host = |draw: &mut Draw, port: usize| -> IpAddr {
        let n = draw.below(HOSTS);
        match ipv6 {
            true => host6(port, n).into(),
            false => host4(port, n).into(),
        }
    };
    match draw.weighted(&[60, 15, 10, 10, 5]) {
        0 => host(draw, port),
        // Somebody whose answers go back by the same port.
        1 => {
            let behind = world.routes.iter().filter(|r| {
                r.network.is_ipv6() == ipv6
                    && matches!(&r.to, To::Hosts(all) if all.iter().all(|(p, _)| *p == port))
            });
            let all: Vec<_> = behind.collect();
            match all.is_empty() {
                true => host(draw, port),
                false => draw.one_of(&all).within(draw),
            }
        }
        2 => {
            let other = draw.below(PORTS);
            host(draw, other)
        }
        3 => any_route(world, draw, ipv6),
        _ => odd(draw, ipv6, world),
    }
}

fn destination(world: &World, draw: &mut Draw, ipv6: bool) -> IpAddr {
    let port = draw.below(PORTS);
    match (draw.weighted(&[66, 12, 8, 4, 6, 4]), ipv6) {
        (0, _) => any_route(world, draw, ipv6),
        (1, false) => host4(port, draw.below(HOSTS)).into(),
        (1, true) => host6(port, draw.below(HOSTS)).into(),
        (2, false) => world.ports[port].v4.into(),
        (2, true) => world.ports[port].v6.into(),
        // Nobody is there.
        (3, false) => Ipv4Addr::new(10, port as u8 + 1, 0, 200).into(),
        (3, true) => Ipv6Addr::new(0xfd01 + port as u16, 0, 0, 0, 0, 0, 0, 200).into(),
        (4, false) => Ipv4Addr::from_bits(draw.bits() as u32).into(),
        (4, true) => Ipv6Addr::from_bits(u128::from(draw.bits()) << 64 | 1 << 125).into(),
        _ => odd(draw, ipv6, world),
    }
}

fn any_route(world: &World, draw: &mut Draw, ipv6: bool) -> IpAddr {
    let all = world.routes.iter().filter(|r| r.network.is_ipv6() == ipv6);
    let all: Vec<_> = all.collect();
    draw.one_of(&all).within(draw)
}

/// Addresses that routers look at twice.
fn odd(draw: &mut Draw, ipv6: bool, world: &World) -> IpAddr {
    let port = &world.ports[draw.below(PORTS)];
    let four = [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(0, 1, 2, 3),
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(239, 1, 2, 3),
        Ipv4Addr::new(240, 0, 0, 1),
        Ipv4Addr::new(169, 254, 1, 1),
        Ipv4Addr::new(10, 1, 0, 255),
        Ipv4Addr::new(10, 2, 0, 0),
        port.v4,
    ];
    let six = [
        "::",
        "::1",
        "ff02::1",
        "ff0e::1",
        "fe80::1",
        "fec0::1",
        "::ffff:20.0.0.1",
        "fd01::",
    ];
    match ipv6 {
        false => (*draw.one_of(&four)).into(),
        true if draw.percent(10) => port.v6.into(),
        true => draw.one_of(&six).parse().expect("an address"),
    }
}

/// Options and extension headers.
fn extras(draw: &mut Draw, frame: Frame, ipv6: bool, what: &mut Vec<String>) -> Frame {
    if !ipv6 {
        let options: [&[u8]; 8] = [
            &[1, 1, 1, 1],
            &[0, 0, 0, 0],
            &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0],
            &[68, 8, 9, 0, 0, 0, 0, 0],
            &[148, 4, 0, 0],
            &[131, 7, 4, 10, 1, 0, 2],
            &[7, 40, 4, 0],
            &[130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        let chosen = draw.one_of(&options);
        what.push(format!("IP options {chosen:?}"));
        return frame.ip_options(chosen);
    }
    let bodies: [(u8, &[u8]); 8] = [
        (0, &[1, 4, 0, 0, 0, 0]),
        (0, &[5, 2, 0, 0, 1, 0]),
        (0, &[0xc7, 4, 0, 0, 0, 0]),
        (60, &[1, 4, 0, 0, 0, 0]),
        (60, &[0x87, 4, 0, 0, 0, 0]),
        (43, &[0, 0, 0, 0, 0, 0]),
        (43, &[0, 1, 0, 0, 0, 0]),
        (51, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
    ];
    let (kind, body) = draw.one_of(&bodies);
    what.push(format!("extension header {kind} {body:?}"));
    frame.extension(*kind, body)
}

fn transport(
    draw: &mut Draw,
    frame: Frame,
    number: u16,
    payload: &mut Vec<u8>,
    ipv6: bool,
    what: &mut Vec<String>,
) -> Frame {
    let sequence = u32::from(number) << SEQUENCE | 1;
    let port = |draw: &mut Draw| 1024 + draw.below(60_000) as u16;
    match draw.weighted(&[40, 30, 12, 6, 8]) {
        0 => {
            what.push("UDP".to_owned());
            frame.udp(port(draw), port(draw))
        }
        1 => {
            what.push("TCP".to_owned());
            let flags = *draw.one_of(&[
                Frame::SYN,
                Frame::ACK,
                Frame::ACK | Frame::PSH,
                Frame::RST,
                Frame::FIN | Frame::ACK,
            ]);
            frame
                .tcp(port(draw), port(draw))
                .flags(flags)
                .numbers(sequence, sequence)
        }
        2 => {
            what.push("echo".to_owned());
            let kind = if ipv6 { 128 } else { 8 };
            frame.icmp(kind, 0).echo(number, 1)
        }
        3 => {
            let (kind, code) = match ipv6 {
                true => *draw.one_of(&[(1, 0), (2, 0), (3, 0), (4, 1), (129, 0), (200, 0)]),
                false => *draw.one_of(&[(3, 1), (3, 3), (11, 0), (12, 0), (0, 0), (40, 0)]),
            };
            what.push(format!("ICMP {kind}/{code}"));
            if kind != 0 && kind < 100 {
                // About a packet that nobody here sent.
                let quoted = match ipv6 {
                    true => Frame::new()
                        .ip6([0x20; 16], [0x21; 16])
                        .flow_label(number.into())
                        .udp(7, 9)
                        .build(),
                    false => Frame::new()
                        .ip4([9, 9, 9, 9], [8, 8, 8, 8])
                        .id(number)
                        .udp(7, 9)
                        .build(),
                };
                *payload = quoted[14..].to_vec();
            }
            frame.icmp(kind, code)
        }
        _ => {
            let other = *draw.one_of(&[2, 4, 41, 47, 50, 89, 132, 253]);
            what.push(format!("protocol {other}"));
            frame.protocol(other)
        }
    }
}

/// Something that no sender means to do.
fn damage(draw: &mut Draw, frame: &mut Vec<u8>, ipv6: bool, what: &mut Vec<String>) {
    let done = match draw.below(6) {
        0 => {
            frame[14] = frame[14] & 0x0f | (draw.below(16) as u8) << 4;
            "version"
        }
        1 if !ipv6 => {
            frame[14] = 0x40 | draw.below(16) as u8;
            resum(frame);
            "IHL"
        }
        2 => {
            let (at, length) = if ipv6 { (18, 0) } else { (16, 20) };
            let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
            let new = match draw.below(4) {
                0 => length,
                1 => 3,
                2 => old.wrapping_sub(1 + draw.below(8) as u16),
                _ => old.wrapping_add(1 + draw.below(200) as u16),
            };
            frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
            if !ipv6 {
                resum(frame);
            }
            "length"
        }
        3 => {
            frame.truncate(14 + draw.below(60));
            "truncated"
        }
        4 => {
            let other = *draw.one_of(&[[0x88, 0xb5], [0, 60], [8, 6], [0x86, 0xdd]]);
            frame[12..14].copy_from_slice(&other);
            "EtherType"
        }
        _ if !ipv6 => {
            frame[24] ^= 1 << draw.below(8);
            "wrong header checksum"
        }
        _ => {
            frame[20] = *draw.one_of(&[0, 59, 60, 43, 44]);
            "next header"
        }
    };
    what.push(done.to_owned());
}

/// Makes the checksum of an IPv4 header right again.
pub(crate) fn resum(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 15) * 4;
    if end >= 34 && frame.len() >= end {
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..end]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The number of the packet that a frame is, or was sent because of; `None` for what the router says by itself.
pub(crate) fn number_of(world: &World, frame: &[u8]) -> Option<u16> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    let ip = frame.get(at + 2..)?;
    match frame.get(at..at + 2)? {
        [8, 0] => {
            let source: [u8; 4] = ip.get(12..16)?.try_into().ok()?;
            let own = world.is_own(Ipv4Addr::from(source).into()) && ip[8] == OWN_TTL;
            let l4 = ip.get(usize::from(ip[0] & 15) * 4..)?;
            if own && u16::from_be_bytes([ip[6] & 0x1f, ip[7]]) > 0 {
                return None;
            }
            match (own, ip[9], l4.first()) {
                (true, 1, Some(3 | 5 | 11 | 12)) => identification(l4.get(8..)?),
                (true, 1, Some(0)) => low(l4.get(8..12)?),
                (true, 6, _) => reset(l4),
                _ => identification(ip),
            }
        }
        [0x86, 0xdd] => {
            let source: [u8; 16] = ip.get(8..24)?.try_into().ok()?;
            let own = world.is_own(Ipv6Addr::from(source).into()) && ip[7] == OWN_TTL;
            let l4 = ip.get(40..)?;
            match (own, ip[6], l4.first()) {
                (_, 58, Some(130..=137 | 143)) | (_, 0, _) if label(ip) == Some(0) => None,
                (true, 58, Some(1..=4)) => label(l4.get(8..)?),
                (true, 58, Some(129)) => low(l4.get(8..12)?),
                (true, 6, _) => reset(l4),
                _ => label(ip),
            }
        }
        _ => None,
    }
}

fn identification(ip: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(ip.get(4..6)?.try_into().ok()?))
}

fn label(ip: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?))
}

fn low(number: &[u8]) -> Option<u16> {
    u16::try_from(u32::from_be_bytes(number.try_into().ok()?)).ok()
}

fn reset(tcp: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
    let number = match word(4)? {
        0 => word(8)?,
        sequence => sequence,
    };
    u16::try_from(number >> SEQUENCE).ok()
}
