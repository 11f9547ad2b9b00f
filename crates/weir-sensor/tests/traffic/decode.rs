//! Decoding of single packets: each layer, each tunnel, and what is odd.

use std::net::IpAddr;

use super::common::{CLIENT, RAW, SERVER, Segment, ipv4, udp};
use weir_packet::pcap::LinkType;
use weir_sensor::decode::{DecodeConfig, Decoder};
use weir_sensor::event::Event;
use weir_sensor::packet::flag::{ACK, SYN};
use weir_sensor::packet::{Packet, Transport};

fn inside() -> Vec<u8> {
    ipv4(
        CLIENT,
        SERVER,
        17,
        1,
        0,
        &udp(CLIENT, SERVER, (1234, 9), b"inside"),
    )
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &kind.to_be_bytes(), payload].concat()
}

/// The innermost packet of a frame.
fn innermost<'a>(decoder: &mut Decoder, link: u16, frame: &'a [u8]) -> Packet<'a> {
    let mut packet = decoder.frame(LinkType(link), 0, 1, frame);
    while let Some(inner) = decoder.inner(&packet) {
        packet = inner;
    }
    packet
}

fn finds_inside(link: u16, frame: &[u8]) -> Packet<'_> {
    let mut decoder = Decoder::default();
    let packet = innermost(&mut decoder, link, frame);
    assert_eq!(packet.payload(), b"inside", "{packet:?}");
    assert_eq!(
        packet.ip.as_ref().map(|ip| ip.source),
        Some(IpAddr::from(CLIENT))
    );
    assert!(
        packet.events.is_empty(),
        "{:?}",
        packet.events.iter().collect::<Vec<_>>()
    );
    packet
}

#[test]
fn link_layers() {
    let ip = inside();
    finds_inside(1, &ethernet(0x0800, &ip));
    // Padding after the packet is not payload.
    finds_inside(1, &[ethernet(0x0800, &ip), vec![0; 20]].concat());
    finds_inside(
        1,
        &ethernet(
            (ip.len() + 8) as u16,
            &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &ip].concat(),
        ),
    );
    let tagged = ethernet(
        0x88a8,
        &[&[0, 10, 0x81, 0, 0x20, 20, 0x91, 0, 0, 30, 8, 0][..], &ip].concat(),
    );
    let packet = finds_inside(1, &tagged);
    assert_eq!((packet.vlan, packet.vlans), ([10, 20, 30], 3));
    finds_inside(
        1,
        &ethernet(0x8847, &[&[0, 1, 0, 0, 0, 2, 1, 64][..], &ip].concat()),
    );
    finds_inside(
        1,
        &ethernet(
            0x8847,
            &[&[0, 1, 1, 64, 0, 0, 0, 0][..], &ethernet(0x0800, &ip)].concat(),
        ),
    );
    finds_inside(
        1,
        &ethernet(
            0x8864,
            &[&[0x11, 0, 0, 1, 0, (ip.len() + 2) as u8, 0, 0x21][..], &ip].concat(),
        ),
    );
    // Provider backbones and VN tags.
    let backbone = [&[0, 0, 0, 5][..], &ethernet(0x0800, &ip)].concat();
    finds_inside(1, &ethernet(0x88e7, &backbone));
    finds_inside(
        1,
        &ethernet(0x8926, &[&[0, 0, 0, 5, 8, 0][..], &ip].concat()),
    );
    // Service chains: fixed metadata over IP, none over Ethernet.
    let fixed = [&[0x0f, 0xc6, 1, 1, 0, 0, 9, 255][..], &[7; 16], &ip].concat();
    finds_inside(1, &ethernet(0x894f, &fixed));
    let bare = [
        &[0x0f, 0xc2, 2, 3, 0, 0, 9, 255][..],
        &ethernet(0x0800, &ip),
    ];
    finds_inside(1, &ethernet(0x894f, &bare.concat()));
    finds_inside(9, &[&[0xff, 3, 0, 0x21][..], &ip].concat());
    finds_inside(9, &[&[0x21][..], &ip].concat());
    finds_inside(113, &[&[0; 14][..], &[8, 0], &ip].concat());
    finds_inside(276, &[&[8, 0][..], &[0; 18], &ip].concat());
    finds_inside(0, &[&[2, 0, 0, 0][..], &ip].concat());
    finds_inside(108, &[&[0, 0, 0, 2][..], &ip].concat());
    finds_inside(101, &ip);
    finds_inside(228, &ip);
    finds_inside(104, &[&[0x0f, 0, 8, 0][..], &ip].concat());
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[next, 64]);
    packet.extend_from_slice(&[1; 16]);
    packet.extend_from_slice(&[2; 16]);
    packet.extend_from_slice(payload);
    packet
}

#[test]
fn tunnels() {
    let ip = inside();
    let frame = ethernet(0x0800, &ip);
    let outer = |protocol: u8, payload: &[u8]| {
        ipv4([192, 0, 2, 1], [192, 0, 2, 2], protocol, 1, 0, payload)
    };
    let over_udp = |port: u16, payload: &[u8]| {
        outer(
            17,
            &udp([192, 0, 2, 1], [192, 0, 2, 2], (7777, port), payload),
        )
    };
    for packet in [
        outer(4, &ip),
        ipv6(4, &ip),
        outer(47, &[&[0, 0, 8, 0][..], &ip].concat()),
        outer(47, &[&[0xb0, 0, 8, 0][..], &[0; 12], &ip].concat()),
        outer(47, &[&[0, 0, 0x65, 0x58][..], &frame].concat()),
        // PPTP: key, sequence.
        outer(
            47,
            &[
                &[
                    0x30, 1, 0x88, 0x0b, 0, 9, 0, 9, 0, 0, 0, 1, 0xff, 3, 0, 0x21,
                ][..],
                &ip,
            ]
            .concat(),
        ),
        // ERSPAN of types I, II and III.
        outer(47, &[&[0, 0, 0x88, 0xbe][..], &frame].concat()),
        outer(
            47,
            &[
                &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 0, 0, 0, 0, 0][..],
                &frame,
            ]
            .concat(),
        ),
        outer(
            47,
            &[
                &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20][..],
                &[0; 11],
                &frame,
            ]
            .concat(),
        ),
        // Of type III, with what an optional header of eight bytes says of the platform.
        outer(
            47,
            &[
                &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20][..],
                &[0; 10],
                &[1],
                &[0x45; 8],
                &frame,
            ]
            .concat(),
        ),
        over_udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame].concat()),
        over_udp(
            6081,
            &[&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 0, 0, 0, 0][..], &frame].concat(),
        ),
        // Teredo with an origin indication around IPv6 around IPv4.
        over_udp(
            3544,
            &[&[0, 0, 1, 2, 3, 4, 5, 6][..], &ipv6(4, &ip)].concat(),
        ),
        // WCCP: version 1, and version 2 with four bytes of its own.
        outer(47, &[&[0, 0, 0x88, 0x3e][..], &ip].concat()),
        outer(47, &[&[0, 0, 0x88, 0x3e, 0, 0x45, 0, 1][..], &ip].concat()),
        outer(51, &[&[4, 4][..], &[0; 22], &ip].concat()),
        outer(47, &[&[0, 0, 0x81, 0, 0, 5, 8, 0][..], &ip].concat()),
        // Behind a mobility header.
        ipv6(135, &[&[4, 0, 0, 0, 0, 0, 0, 0][..], &ip].concat()),
    ] {
        let found = finds_inside(101, &packet);
        assert!(found.depth > 0);
    }
    let mut decoder = Decoder::new(DecodeConfig {
        vxlan: vec![],
        ..DecodeConfig::default()
    });
    let packet = over_udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame].concat());
    assert_eq!(
        innermost(&mut decoder, 101, &packet).depth,
        0,
        "ports are a setting"
    );
}

/// A host that leaves cutting to its network card writes no length.
#[test]
fn large_packets_without_a_length() {
    let datagram = udp(CLIENT, SERVER, (1234, 9), &[7; 3000]);
    for (payload, len) in [(&datagram[..], 3000), (&datagram[..100], 0)] {
        let mut four = ipv4(CLIENT, SERVER, 17, 1, 0, payload);
        four[2..4].fill(0);
        let mut six = ipv6(17, payload);
        six[4..6].fill(0);
        for packet in [four, six] {
            let mut decoder = Decoder::new(DecodeConfig {
                checksums: false,
                ..DecodeConfig::default()
            });
            let decoded = decoder.frame(RAW, 0, 1, &packet);
            let is_udp = matches!(decoded.transport, Transport::Udp { .. });
            assert_eq!((is_udp, decoded.events.is_empty()), (len > 0, len > 0));
            assert!(!is_udp || decoded.payload().len() == len);
        }
    }
}

#[test]
fn what_is_usual_is_no_event() {
    let over_udp = |port: u16, payload: &[u8]| {
        let ends = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let datagram = udp(ends.0, ends.1, (7777, port), payload);
        ethernet(0x0800, &ipv4(ends.0, ends.1, 17, 1, 0, &datagram))
    };
    let unknown = ethernet(0x4242, &[0; 40]);
    for (frame, event) in [
        // Who uses the port of VXLAN by chance; ARP in Geneve; LCP on a link.
        (over_udp(4789, b"not of this kind"), None),
        (
            over_udp(6081, &[0, 0, 8, 6, 0, 0, 7, 0, 0, 1, 8, 0, 6, 4, 0, 1]),
            None,
        ),
        (
            ethernet(0x8864, &[0x11, 0, 0, 1, 0, 6, 0xc0, 0x21, 9, 1, 0, 4]),
            None,
        ),
        (
            over_udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &unknown].concat()),
            Some(Event::VxlanUnknownPayload),
        ),
        (
            over_udp(6081, &[0, 0, 0x42, 0x42, 0, 0, 7, 0]),
            Some(Event::GeneveUnknownPayload),
        ),
        (
            ethernet(0x8864, &[0x11, 0, 0, 1, 0, 6, 0, 0x23, 9, 1, 0, 4]),
            Some(Event::PppUnsupported),
        ),
    ] {
        let mut decoder = Decoder::default();
        let packet = innermost(&mut decoder, 1, &frame);
        assert_eq!(packet.events.iter().next(), event, "{frame:02x?}");
    }
}

/// Of the reserved labels three have uses, but not at the bottom of a stack (RFC 7274, RFC 6790, RFC 3429); no other may stand anywhere.
#[test]
fn reserved_labels_of_mpls() {
    let label = |label: u8, bottom: u8| [0, label >> 4, label << 4 | bottom, 64];
    for reserved in 4..=15 {
        let used = matches!(reserved, 7 | 13 | 14);
        for (stack, odd) in [
            ([label(16, 0), label(reserved, 1)].concat(), true),
            ([label(reserved, 0), label(16, 1)].concat(), !used),
        ] {
            let frame = ethernet(0x8847, &[&stack[..], &inside()].concat());
            let mut decoder = Decoder::default();
            let packet = decoder.frame(LinkType(1), 0, 1, &frame);
            assert_eq!(
                packet.events.has(Event::MplsReserved),
                odd,
                "label {reserved}: {stack:02x?}"
            );
            assert_eq!(packet.ip.is_some(), !odd, "label {reserved}: {stack:02x?}");
        }
    }
}

/// An extended echo reply has five codes (RFC 8335, section 3).
#[test]
fn codes_of_an_extended_echo_reply() {
    for code in 0..=255_u8 {
        let mut message = [43, code, 0, 0, 0, 1, 0, 0];
        let sum = weir_packet::checksum::checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let bytes = ipv4(CLIENT, SERVER, 1, 1, 0, &message);
        let mut decoder = Decoder::default();
        let packet = decoder.frame(RAW, 0, 1, &bytes);
        let expected = (code > 4).then_some(Event::Icmpv4UnknownCode);
        assert_eq!(
            packet.events.iter().collect::<Vec<_>>(),
            Vec::from_iter(expected),
            "code {code}"
        );
    }
}

#[test]
fn tunnels_in_tunnels_are_bounded() {
    let mut packet = inside();
    for _ in 0..40 {
        packet = ipv4(CLIENT, SERVER, 4, 1, 0, &packet);
    }
    let mut decoder = Decoder::default();
    let last = innermost(&mut decoder, 101, &packet);
    assert_eq!(last.depth, 8);
    assert!(last.events.has(Event::TooManyLayers));
    // Labels that carry Ethernet that carries labels, as often as fits.
    let turn = [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x88, 0x47, 0, 1, 1, 0, 0, 0, 0, 0,
    ];
    for (turns, deep) in [(8, false), (9, true), (12_000, true)] {
        let mut decoder = Decoder::default();
        let frame = turn.repeat(turns);
        let packet = decoder.frame(LinkType(1), 0, 1, &frame);
        assert_eq!(packet.events.has(Event::TooManyLayers), deep, "{turns}");
    }
    // IPv6 headers as well.
    let mut headers = Vec::new();
    for _ in 0..30 {
        headers.extend_from_slice(&[60, 0, 1, 4, 0, 0, 0, 0]);
    }
    let packet = ipv6(60, &headers);
    assert!(
        decoder
            .frame(RAW, 0, 1, &packet)
            .events
            .has(Event::Ipv6TooManyHeaders)
    );
}

#[test]
fn a_tcp_header_with_its_options() {
    let mut syn = Segment::new(true, 7, 0, SYN, b"");
    syn.options = vec![
        2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8, 1, 3, 3, 20,
    ];
    let bytes = syn.packet(4000);
    let packet = Decoder::default().frame(RAW, 0, 1, &bytes);
    let tcp = packet.tcp().expect("TCP");
    assert_eq!(
        (tcp.source, tcp.destination, tcp.sequence, tcp.flags),
        (4000, 80, 7, SYN)
    );
    assert_eq!(
        (
            tcp.mss,
            tcp.window_scale,
            tcp.timestamps,
            tcp.sack_permitted
        ),
        (Some(1460), Some(14), Some((9, 8)), true)
    );
    assert!(packet.events.is_empty());
    syn.options = vec![2, 4, 5, 0xb4, 2, 4, 5, 0xb4, 3, 9];
    assert!(
        Decoder::default()
            .frame(RAW, 0, 1, &syn.packet(1))
            .events
            .has(Event::TcpOptionDuplicate)
    );
    assert!(
        Decoder::default()
            .frame(RAW, 0, 1, &syn.packet(1))
            .events
            .has(Event::TcpOptionLength)
    );
}

/// One change to a good packet, one event.
#[test]
fn what_is_odd() {
    let good = Segment::new(true, 7, 0, ACK, b"x").packet(4000);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let small = |protocol: u8, n: usize| ipv4(CLIENT, SERVER, protocol, 1, 0, &vec![0; n]);
    for (link, bytes, event) in [
        (101, with(0, 0x44), Event::Ipv4HeaderTooSmall),
        (228, with(0, 0x55), Event::Ipv4WrongVersion),
        (229, with(0, 0x55), Event::Ipv6WrongVersion),
        (229, good[..39].to_vec(), Event::Ipv6TooSmall),
        (101, with(0, 0x15), Event::RawInvalidVersion),
        (101, with(3, 19), Event::Ipv4LengthTooSmall),
        (101, with(3, 200), Event::Ipv4Truncated),
        (101, good[..19].to_vec(), Event::Ipv4TooSmall),
        (101, with(8, 1), Event::Ipv4Checksum),
        (101, with(32, 0x40), Event::TcpOptionsNegative),
        (101, with(32, 0xf0), Event::TcpHeaderTooSmall),
        (101, with(36, 1), Event::TcpChecksum),
        (101, small(6, 19), Event::TcpTooSmall),
        (101, small(17, 7), Event::UdpHeaderTooSmall),
        (101, small(17, 8), Event::UdpLength),
        (101, small(132, 11), Event::SctpTooSmall),
        (101, small(1, 7), Event::Icmpv4TooSmall),
        (101, small(47, 3), Event::GreTooSmall),
        (101, small(50, 3), Event::EspTooSmall),
        (101, small(58, 8), Event::Ipv4Icmpv6),
        (
            101,
            ipv4(CLIENT, SERVER, 47, 1, 0, &[0, 7, 8, 0]),
            Event::GreWrongVersion,
        ),
        (
            101,
            ipv4(CLIENT, SERVER, 1, 1, 0, &[250, 0, 5, 0xff, 0, 0, 0, 0]),
            Event::Icmpv4UnknownType,
        ),
        (
            101,
            ipv4(CLIENT, SERVER, 1, 1, 0, &[3, 99, 0xfc, 0x9c, 0, 0, 0, 0]),
            Event::Icmpv4UnknownCode,
        ),
        (
            101,
            ipv6(0, &[59, 1, 0, 0, 0, 0, 0, 0]),
            Event::Ipv6HeaderTruncated,
        ),
        (101, ipv6(59, &[1]), Event::Ipv6DataAfterNone),
        (
            101,
            ipv6(0, &[59, 0, 5, 1, 0, 1, 1, 0]),
            Event::Ipv6OptionLength,
        ),
        (1, ethernet(0x88e7, &[0; 17]), Event::BackboneTooSmall),
        (1, ethernet(0x8926, &[0; 5]), Event::VnTagTooSmall),
        (1, ethernet(0x894f, &[0; 7]), Event::NshTooSmall),
        (
            1,
            ethernet(0x894f, &[0x40, 2, 2, 1, 0, 0, 0, 0]),
            Event::NshVersion,
        ),
        (
            1,
            ethernet(0x894f, &[0, 2, 1, 1, 0, 0, 0, 0]),
            Event::NshLength,
        ),
        (
            1,
            ethernet(0x894f, &[0, 3, 2, 1, 0, 0, 0, 0]),
            Event::NshLength,
        ),
        (
            1,
            ethernet(0x894f, &[0, 2, 0, 1, 0, 0, 0, 0]),
            Event::NshReserved,
        ),
        (
            1,
            ethernet(0x894f, &[0, 2, 15, 1, 0, 0, 0, 0]),
            Event::NshUnsupported,
        ),
        (
            1,
            ethernet(0x894f, &[0, 2, 2, 4, 0, 0, 0, 0]),
            Event::NshUnknownPayload,
        ),
        (101, ipv6(1, &[8; 8]), Event::Ipv6Icmpv4),
        (101, ipv6(4, &[0x45; 19]), Event::Ipv6In4TooSmall),
        (101, ipv6(4, &[0x56; 20]), Event::Ipv6In4WrongVersion),
        (101, ipv6(41, &[0x60; 39]), Event::Ipv6In6TooSmall),
        (101, ipv6(41, &[0x45; 40]), Event::Ipv6In6WrongVersion),
        (
            101,
            ipv6(43, &[59, 0, 0, 0, 0, 0, 0, 0]),
            Event::Ipv6RoutingType0,
        ),
        (
            101,
            ipv6(0, &[59, 0, 1, 4, 0, 0, 0, 0]),
            Event::Ipv6HopByHopPadding,
        ),
        (
            101,
            ipv6(60, &[59, 0, 0x33, 4, 0, 0, 0, 0]),
            Event::Ipv6DestinationUnknown,
        ),
        (
            101,
            ipv6(60, &[59, 0, 0x33, 9, 0, 0, 0, 0]),
            Event::Ipv6OptionLength,
        ),
        (
            101,
            ipv6(44, &[59, 0, 0, 0, 0, 0, 0, 1]),
            Event::Ipv6UselessFragment,
        ),
        (1, vec![0; 13], Event::EthernetTooSmall),
        (1, ethernet(0xfeed, &[]), Event::EthernetUnknownType),
        (1, ethernet(0x8100, &[0, 1]), Event::VlanTooSmall),
        (104, vec![0x0f, 0, 8], Event::ChdlcTooSmall),
        (
            1,
            ethernet(0x8100, &[0, 1, 0xfe, 0xed]),
            Event::VlanUnknownType,
        ),
        (
            1,
            ethernet(0x8100, &[0, 1, 0x81, 0].repeat(4)),
            Event::VlanTooMany,
        ),
        (
            1,
            ethernet(0x8847, &[0, 0, 0x31, 1]),
            Event::MplsImplicitNull,
        ),
        (
            1,
            ethernet(0x8847, &[0, 0x10, 1, 1, 0xf0]),
            Event::MplsUnknownPayload,
        ),
        (
            1,
            ethernet(0x8864, &[0x11, 9, 0, 1, 0, 2, 0, 0x21]),
            Event::PppoeWrongCode,
        ),
        (9, vec![0xff, 3, 0, 0x21, 0x45], Event::PppIp4TooSmall),
        (9, vec![0xff, 3, 0, 0x23, 0x45], Event::PppUnsupported),
        (113, vec![0; 15], Event::SllTooSmall),
        (276, vec![0; 19], Event::Sll2TooSmall),
        (0, vec![0; 3], Event::NullTooSmall),
        (0, vec![99, 0, 0, 0, 1], Event::NullUnsupported),
        (147, vec![0; 60], Event::LinkUnsupported),
    ] {
        let mut decoder = Decoder::default();
        let packet = decoder.frame(LinkType(link), 0, 1, &bytes);
        let found: Vec<_> = packet.events.iter().collect();
        assert!(
            packet.events.has(event),
            "{event:?} expected, {found:?} found"
        );
        assert_eq!(decoder.events().get(event), 1);
        let counts = decoder.counts();
        assert_eq!(counts.ip + counts.not_ip + counts.invalid, 1);
    }
}

#[test]
fn checksums_are_a_setting() {
    let mut bytes = Segment::new(true, 7, 0, ACK, b"x").packet(4000);
    bytes[36] ^= 1;
    assert!(Decoder::default().frame(RAW, 0, 1, &bytes).bad_checksum);
    let packet = Decoder::new(DecodeConfig {
        checksums: false,
        ..DecodeConfig::default()
    });
    assert!(!{ packet }.frame(RAW, 0, 1, &bytes).bad_checksum);
}

#[test]
fn an_echo_has_its_numbers() {
    let bytes = ipv4(
        CLIENT,
        SERVER,
        1,
        1,
        0,
        &[8, 0, 0xe5, 0xf3, 0x12, 0x03, 0, 9],
    );
    let packet = Decoder::new(DecodeConfig {
        checksums: false,
        ..DecodeConfig::default()
    })
    .frame(RAW, 0, 1, &bytes)
    .transport;
    assert_eq!(
        packet,
        Transport::Icmp {
            v6: false,
            kind: 8,
            code: 0,
            echo: Some((0x1203, 9)),
            header: 20
        }
    );
}
