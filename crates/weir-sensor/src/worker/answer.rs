//! What is sent for a rejected packet: to both ends of a TCP connection a reset, to the sender of anything else an ICMP error.
//!
//! Pure: from a decoded packet to frames. They have the link header of the packet, with its VLAN tags, and for its sender with the addresses turned around. A packet in a tunnel has no
//! answer, as who built the tunnel would have to send it; nor has what no host may answer (RFC 1122, section 3.2.2: errors, later fragments, what is not for one host).

use std::net::IpAddr;

use weir_packet::checksum::{fold, pseudo_header4, pseudo_header6, sum};

use crate::packet::{Ip, Packet, Tcp, Transport, flag};
use crate::source::Answer;

/// Bytes of both addresses of an Ethernet header.
const ADDRESSES: usize = 12;
const TTL: u8 = 64;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Bytes of a datagram that an ICMP error quotes at most, so that the error is no longer than any link takes (RFC 1812, RFC 4443).
const QUOTED4: usize = 548;
const QUOTED6: usize = 1232;

/// The answers to a packet of a frame of Ethernet. `at`: the place of the frame.
pub(super) fn to(packet: &Packet<'_>, at: u32) -> Vec<Answer> {
    let mut answers = Vec::new();
    let Some(ip) = packet.ip.as_ref().filter(|ip| is_one_host(ip)) else {
        return answers;
    };
    let Some(link) = link(packet, ip) else {
        return answers;
    };
    let mut send = |back: bool, protocol: u8, body: Vec<u8>| {
        let (from, to) = match back {
            true => (ip.destination, ip.source),
            false => (ip.source, ip.destination),
        };
        let mut bytes = link.to_vec();
        if back && let Some((to, from)) = bytes.get_mut(..ADDRESSES).map(|a| a.split_at_mut(6)) {
            to.swap_with_slice(from);
        }
        if let Some(datagram) = datagram(from, to, protocol, body) {
            bytes.extend(datagram);
            answers.push(Answer { at, back, bytes });
        }
    };
    match &packet.transport {
        Transport::Tcp(tcp) if tcp.flags & flag::RST != 0 => {}
        Transport::Tcp(tcp) => {
            let length = packet.payload.len() as u32
                + u32::from(tcp.flags & flag::SYN != 0)
                + u32::from(tcp.flags & flag::FIN != 0);
            let next = tcp.sequence.wrapping_add(length);
            // What its sender expects next is what it has acknowledged; one that acknowledges nothing waits for its acknowledgement (RFC 9293, section 3.10.7.1).
            let sequence = match tcp.flags & flag::ACK {
                0 => 0,
                _ => tcp.acknowledgement,
            };
            send(true, TCP, reset(tcp, true, sequence, next));
            // The receiver has not seen the packet, and of one that begins a connection it knows none.
            if tcp.flags & flag::SYN == 0 {
                let ends = reset(tcp, false, tcp.sequence, tcp.acknowledgement);
                send(false, TCP, ends);
            }
        }
        Transport::Icmp { v6, kind, .. } if is_error(*v6, *kind) => {}
        other => {
            let v6 = ip.source.is_ipv6();
            let port = matches!(other, Transport::Udp { .. }) && ip.protocol == UDP;
            // Port unreachable, or administratively prohibited.
            let (protocol, kind, code, most) = match (v6, port) {
                (false, true) => (ICMP, 3, 3, QUOTED4),
                (false, false) => (ICMP, 3, 13, QUOTED4),
                (true, true) => (ICMP6, 1, 4, QUOTED6),
                (true, false) => (ICMP6, 1, 1, QUOTED6),
            };
            let datagram = packet.data.get(ip.header.start..).unwrap_or_default();
            let mut body = vec![kind, code, 0, 0, 0, 0, 0, 0];
            body.extend(&datagram[..datagram.len().min(most)]);
            send(true, protocol, body);
        }
    }
    answers
}

/// Whether a packet is from one host to one, and not a later fragment.
fn is_one_host(ip: &Ip) -> bool {
    let one = |address: &IpAddr| match address {
        IpAddr::V4(a) => !a.is_multicast() && !a.is_broadcast() && !a.is_unspecified(),
        IpAddr::V6(a) => !a.is_multicast() && !a.is_unspecified(),
    };
    one(&ip.source) && one(&ip.destination) && ip.fragment_offset == 0
}

/// The link header of a frame's own packet, if it is addresses, VLAN tags and the type of IP, and addressed to one station.
fn link<'a>(packet: &Packet<'a>, ip: &Ip) -> Option<&'a [u8]> {
    let header = packet.data.get(..ip.header.start)?;
    let group = header.first()? & 1 != 0;
    let (tags, kind) = header.get(ADDRESSES..)?.split_last_chunk::<2>()?;
    let ip_type = match ip.source {
        IpAddr::V4(_) => [0x08, 0x00],
        IpAddr::V6(_) => [0x86, 0xdd],
    };
    let tagged = tags.chunks(4).all(|tag| {
        matches!(
            tag,
            [0x81, 0x00, _, _] | [0x88, 0xa8, _, _] | [0x91, 0x00, _, _]
        )
    });
    (packet.depth == 0 && !group && *kind == ip_type && tagged).then_some(header)
}

/// Errors, which are not answered.
fn is_error(v6: bool, kind: u8) -> bool {
    match v6 {
        true => kind < 128,
        false => matches!(kind, 3 | 4 | 5 | 11 | 12),
    }
}

/// A TCP header that ends a connection; `back`: for the sender of the one given.
fn reset(tcp: &Tcp, back: bool, sequence: u32, acknowledgement: u32) -> Vec<u8> {
    let (from, to) = match back {
        true => (tcp.destination, tcp.source),
        false => (tcp.source, tcp.destination),
    };
    let mut header = Vec::with_capacity(20);
    header.extend(from.to_be_bytes());
    header.extend(to.to_be_bytes());
    header.extend(sequence.to_be_bytes());
    header.extend(acknowledgement.to_be_bytes());
    header.extend([5 << 4, flag::RST | flag::ACK, 0, 0, 0, 0, 0, 0]);
    header
}

/// A datagram with the checksum of its body filled in; none if the addresses are of two versions.
fn datagram(from: IpAddr, to: IpAddr, protocol: u8, mut body: Vec<u8>) -> Option<Vec<u8>> {
    let length = u16::try_from(body.len()).ok()?;
    let pseudo = match (from, to) {
        // ICMP of IPv4 has none.
        (IpAddr::V4(_), IpAddr::V4(_)) if protocol == ICMP => 0,
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            pseudo_header4(a.octets(), b.octets(), protocol, u32::from(length))
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            pseudo_header6(a.octets(), b.octets(), protocol, u32::from(length))
        }
        _ => return None,
    };
    let place = match protocol {
        TCP => 16,
        _ => 2,
    };
    let checksum = !fold(pseudo + sum(&body));
    body.get_mut(place..place + 2)?
        .copy_from_slice(&checksum.to_be_bytes());
    let mut header = Vec::with_capacity(40 + body.len());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend([0x45, 0]);
            header.extend((length.checked_add(20)?).to_be_bytes());
            // No identification: it is not to be fragmented.
            header.extend([0, 0, 0x40, 0, TTL, protocol, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            let checksum = !fold(sum(&header));
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            header.extend([0x60, 0, 0, 0]);
            header.extend(length.to_be_bytes());
            header.extend([protocol, TTL]);
            header.extend(from.octets());
            header.extend(to.octets());
        }
        _ => return None,
    }
    header.extend(body);
    Some(header)
}

#[cfg(test)]
mod tests {
    use weir_packet::build::Frame;
    use weir_packet::pcap::LinkType;

    use super::*;
    use crate::decode::Decoder;

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];
    const A6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const B6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

    /// Answers to a frame.
    fn answers(frame: &Frame) -> Vec<Answer> {
        let bytes = frame.build();
        let mut decoder = Decoder::default();
        let packet = decoder.frame(LinkType(1), 0, 1, &bytes);
        to(&packet, 7)
    }

    /// What an answer says, as a receiver reads it: addresses, ports or type and code, sequence numbers and flags.
    fn read(answer: &Answer) -> String {
        let mut decoder = Decoder::default();
        let packet = decoder.frame(LinkType(1), 0, 1, &answer.bytes);
        assert!(packet.events.is_empty(), "{:?}", packet.events);
        assert!(!packet.bad_checksum);
        let ip = packet.ip.as_ref().expect("IP");
        let head = format!(
            "{} {}>{} vlans {}",
            if answer.back { "back" } else { "on" },
            ip.source,
            ip.destination,
            packet.vlans
        );
        match &packet.transport {
            Transport::Tcp(t) => format!(
                "{head} {}>{} seq {} ack {} flags {}",
                t.source, t.destination, t.sequence, t.acknowledgement, t.flags
            ),
            Transport::Icmp { kind, code, .. } => {
                let quoted = packet.quoted.expect("it quotes");
                format!("{head} icmp {kind}/{code} of {:?}", quoted.ports)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_ends_of_a_connection_are_reset() {
        let data = Frame::new()
            .vlan(7)
            .ip4(A, B)
            .tcp(1000, 80)
            .flags(Frame::ACK)
            .numbers(500, 900)
            .payload(b"0123456789");
        let got = answers(&data);
        assert_eq!(
            got.iter().map(read).collect::<Vec<_>>(),
            [
                "back 10.0.0.2>10.0.0.1 vlans 1 80>1000 seq 900 ack 510 flags 20",
                "on 10.0.0.1>10.0.0.2 vlans 1 1000>80 seq 500 ack 900 flags 20",
            ]
        );
        assert!(got.iter().all(|a| a.at == 7));
        let sent = data.build();
        assert_eq!(got[0].bytes[..6], sent[6..12]);
        assert_eq!(got[0].bytes[6..12], sent[..6]);
        assert_eq!(got[1].bytes[..12], sent[..12]);
        // The server of one that begins has seen nothing.
        let begins = Frame::new()
            .ip6(A6, B6)
            .tcp(1000, 80)
            .flags(Frame::SYN)
            .numbers(500, 0);
        let got: Vec<String> = answers(&begins).iter().map(read).collect();
        assert_eq!(
            got,
            ["back fd00::2>fd00::1 vlans 0 80>1000 seq 0 ack 501 flags 20"]
        );
    }

    #[test]
    fn senders_of_others_get_an_error() {
        let udp = Frame::new().ip4(A, B).udp(1000, 53).payload(&[1; 900]);
        let got = answers(&udp);
        assert_eq!(
            read(&got[0]),
            "back 10.0.0.2>10.0.0.1 vlans 0 icmp 3/3 of (1000, 53)"
        );
        assert_eq!(got[0].bytes.len(), 14 + 20 + 8 + QUOTED4);
        let udp = Frame::new().ip6(A6, B6).udp(1000, 53).payload(b"a");
        assert_eq!(
            answers(&udp).iter().map(read).collect::<Vec<_>>(),
            ["back fd00::2>fd00::1 vlans 0 icmp 1/4 of (1000, 53)"]
        );
        let echo = Frame::new().ip4(A, B).icmp(8, 0).echo(5, 1).payload(b"a");
        let got = answers(&echo);
        assert_eq!(got.len(), 1);
        assert!(read(&got[0]).contains("icmp 3/13"), "{}", read(&got[0]));
    }

    #[test]
    fn what_no_host_answers() {
        let frames = [
            Frame::new().ip4(A, B).tcp(1, 2).flags(Frame::RST),
            Frame::new().ip4(A, [224, 0, 0, 1]).udp(1, 2),
            Frame::new().ip4(A, [255; 4]).udp(1, 2),
            Frame::new().ip4(A, B).icmp(3, 1).payload(&[0; 28]),
            Frame::new()
                .ip4(A, B)
                .fragment(64, false)
                .protocol(17)
                .payload(&[0; 64]),
        ];
        for frame in &frames {
            assert_eq!(answers(frame), [], "{frame:?}");
        }
    }
}
