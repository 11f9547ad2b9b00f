//! The packet parser against literal frames: every reason to drop, every note, and the limits on the good side.
//!
//! The bytes were written down by hand and by an independent script, not by the crate's own builder.

use weir_packet::parse::{Layout, MAX_FRAME, Version, parse};
use weir_packet::{Fate, Reason, summary};

#[test]
fn malformed_frames_are_dropped_for_their_reason() {
    for (reason, what, hex) in MALFORMED {
        let frame = bytes(hex);
        let malformed = parse(&frame).expect_err(what);
        assert_eq!(malformed.reason, *reason, "{what}: {hex}");
        assert!(
            summary(&frame).contains(reason.name()),
            "{}",
            summary(&frame)
        );
    }
}

#[test]
fn every_reason_of_the_parser_has_a_frame() {
    let elsewhere = [
        "rule_drop",
        "frame_long",
        "match_overflow",
        "scratch_depth",
        "internal",
        "flow_full",
        "limit_full",
        "flow_busy",
        "pool_busy",
        "frag_before_first",
        "missed_call",
        "link_drop",
        "loop_guard",
        "recirculation_lost",
        "redirect_failed",
        "denied",
        "blocked",
        "shed",
        "limited",
        "not_allowed",
        "cookie_bad",
        "object_drop",
        "head_split",
        "cookie_room",
        "no_route",
        "ttl_expired",
        "path_mtu",
        "rpf_failed",
        "head_room",
        "no_server",
        "tunnel_bad",
        "spoofed",
        "no_link",
        "dst_mac_mismatch",
        "unknown_station",
        "split_horizon",
        "flood_rate_limited",
        "vlan_not_allowed",
        "unknown_neighbour",
        "router_local",
        "tunnel_unknown",
        "unknown_vtep",
        "tunnel_member",
        "tunnel_kind",
        "tunnel_tenant",
        "no_remote_vtep",
        "tunnel_nested",
        "tunnel_ecn",
        "probe",
        "punt_no_listener",
        "punt_full",
        "punt_limited",
        "punt_large",
        "punt_denied",
        "tcp_flags",
        "tcp_window",
        "tcp_checksum",
        "icmp_window",
        "frag_overlap",
        "frag_held",
        "pmtu_floor",
        "nat_protocol",
        "nat_peer_busy",
        "nat_filtered",
        "tcp_rst_stale",
        "icmp_checksum",
        "icmp_not_accepted",
        "spoofed_mac",
        "neighbour_spoofed",
        "neighbour_bad",
        "ra_guard",
        "dhcp_guard",
        "group_spoofed",
        "martian",
        "tunnel_no_tenant",
    ];
    let wrong: Vec<_> = Reason::ALL
        .iter()
        .filter(|reason| reason.fate() == Fate::Drop)
        .filter(|reason| {
            let here = MALFORMED.iter().any(|(shown, ..)| shown == *reason);
            here == elsewhere.contains(&reason.name())
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "neither a frame here nor elsewhere, or both: {wrong:?}"
    );
}

#[test]
fn frames_over_the_limit_are_too_long() {
    assert!(parse(&vec![0; MAX_FRAME]).is_ok());
    assert_eq!(
        parse(&vec![0; MAX_FRAME + 1]).map_err(|m| m.reason),
        Err(Reason::FrameLong)
    );
}

#[test]
fn notes_found_before_a_drop_are_kept() {
    // An IPv6 packet with a trailer and a hop-by-hop header that is cut.
    let mut frame = bytes(
        WELL_FORMED
            .iter()
            .find(|row| row.0.contains("no next header"))
            .expect("row")
            .2,
    );
    frame[20] = 0;
    let malformed = parse(&frame).expect_err("3 bytes are no extension header");
    assert_eq!(
        (malformed.reason, malformed.notes),
        (Reason::Ip6EhTruncated, vec![Reason::Trailer])
    );
}

#[test]
fn well_formed_frames_are_laid_out() {
    for (what, notes, hex, expected) in WELL_FORMED {
        let frame = bytes(hex);
        let layout = parse(&frame).expect(what);
        assert_eq!(describe(&layout), *expected, "{what}: {hex}");
        assert_eq!(layout.notes, *notes, "{what}");
    }
}

#[test]
fn every_prefix_and_every_flipped_byte_is_survived() {
    for (_, _, hex, _) in WELL_FORMED {
        let frame = bytes(hex);
        for end in 0..frame.len() {
            let _ = parse(&frame[..end]);
            let _ = summary(&frame[..end]);
        }
        for at in 12..frame.len() {
            for value in [0, 1, 0x0f, 0x40, 0x60, 0xf0, 0xff] {
                let mut damaged = frame.clone();
                damaged[at] = value;
                let _ = parse(&damaged);
                let _ = summary(&damaged);
            }
        }
    }
}

fn describe(layout: &Layout) -> String {
    let list = |numbers: Vec<u8>| {
        let numbers: Vec<String> = numbers.iter().map(u8::to_string).collect();
        format!("[{}]", numbers.join(","))
    };
    let ip = layout.ip.as_ref().map_or("-".to_owned(), |ip| {
        let version = if ip.version == Version::V4 { 4 } else { 6 };
        let mut text = format!(
            "{version} {:?} {}+{}",
            ip.fragment,
            ip.header_len,
            ip.payload.len()
        );
        if !ip.options.is_empty() {
            text += &format!(
                " opts={}",
                list(ip.options.iter().map(|option| option.kind).collect())
            );
        }
        if !ip.extensions.is_empty() {
            text += &format!(
                " ext={}",
                list(
                    ip.extensions
                        .iter()
                        .map(|extension| extension.protocol)
                        .collect()
                )
            );
        }
        text
    });
    let l4 = layout.l4.as_ref().map_or("-".to_owned(), |l4| {
        let kinds = list(l4.options.iter().map(|option| option.kind).collect());
        format!(
            "{:?} {}+{} opts={kinds}",
            l4.protocol,
            l4.header_len,
            l4.payload.len()
        )
    });
    format!("tags={} ip={ip} l4={l4}", layout.tags.len())
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

#[rustfmt::skip]
const MALFORMED: &[(Reason, &str, &str)] = &[
    (Reason::FrameShort, "empty", ""),
    (Reason::FrameShort, "13 bytes", "02000000000202000000000108"),
    (Reason::VlanTruncated, "tag cut after its TCI", "0200000000020200000000018100 0005"),
    (Reason::VlanTruncated, "second tag cut", "02000000000202000000000188a8 0005 8100 0006 08"),
    (Reason::VlanDeep, "five tags", "0200000000020200000000018100 0001 8100 0002 88a8 0003 9100 0004 8100 0005 0800"),
    (Reason::Ip4Truncated, "no byte of it", "0200000000020200000000010800"),
    (Reason::Ip4Truncated, "19 bytes", "0200000000020200000000010800 45000000000000000000000000000000000000"),
    (Reason::Ip4BadVersion, "version 6", "0200000000020200000000010800 6500002800010000400646cd0a0000010a000002 040000500000000100000002501003e800000000"),
    (Reason::Ip4BadIhl, "IHL 4", "0200000000020200000000010800 4400002800010000400667cd0a0000010a000002 040000500000000100000002501003e800000000"),
    (Reason::Ip4BadIhl, "IHL past the frame", "0200000000020200000000010800 4600001400010000400665e10a0000010a000002"),
    (Reason::Ip4BadLen, "total length 19", "0200000000020200000000010800 4500001300010000400666e20a0000010a000002 040000500000000100000002501003e800000000"),
    (Reason::Ip4LenOver, "one byte over", "0200000000020200000000010800 4500002900010000400666cc0a0000010a000002 040000500000000100000002501003e800000000"),
    (Reason::Ip4BadChecksum, "off by one", "0200000000020200000000010800 4500002800010000400666ce0a0000010a000002 040000500000000100000002501003e800000000"),
    (Reason::TtlZero, "IPv4", "0200000000020200000000010800 45000028000100000006a6cd0a0000010a000002 040000500000000100000002501003e800000000"),
    (Reason::Ip4BadOption, "length 0", "0200000000020200000000010800 4600002c0001000040065ec90a0000010a00000207000000 040000500000000100000002501003e800000000"),
    (Reason::Ip4BadOption, "length 1", "0200000000020200000000010800 4600002c0001000040065ec80a0000010a00000207010000 040000500000000100000002501003e800000000"),
    (Reason::Ip4BadOption, "length past the header", "0200000000020200000000010800 4600002c00010000400660c20a0000010a00000201070400 040000500000000100000002501003e800000000"),
    (Reason::Ip4BadOption, "no length byte", "0200000000020200000000010800 4600002c00010000400663c10a0000010a00000201010107 040000500000000100000002501003e800000000"),
    (Reason::FragPastEnd, "IPv4, 8191*8 + 8", "0200000000020200000000010800 4500001c00011fff401146cf0a0000010a000002 0000000000000000"),
    (Reason::Ip6Truncated, "39 bytes", "02000000000202000000000186dd 600000000000000000000000000000000000000000000000000000000000000000000000000000"),
    (Reason::Ip6BadVersion, "version 4", "02000000000202000000000186dd 400000000014064020010db800000000000000000000000120010db8000000000000000000000002 040000500000000100000002501003e800000000"),
    (Reason::TtlZero, "IPv6", "02000000000202000000000186dd 600000000014060020010db800000000000000000000000120010db8000000000000000000000002 040000500000000100000002501003e800000000"),
    (Reason::Ip6Jumbo, "Ip6Jumbo", "02000000000202000000000186dd 600000000000004020010db800000000000000000000000120010db8000000000000000000000002 0000000000000000"),
    (Reason::Ip6LenOver, "one byte over", "02000000000202000000000186dd 600000000015064020010db800000000000000000000000120010db8000000000000000000000002 040000500000000100000002501003e800000000"),
    (Reason::Ip6EhTruncated, "7 bytes left", "02000000000202000000000186dd 600000000007004020010db800000000000000000000000120010db8000000000000000000000002 00000000000000"),
    (Reason::Ip6EhTruncated, "length past the packet", "02000000000202000000000186dd 6000000000083c4020010db800000000000000000000000120010db8000000000000000000000002 0601000000000000"),
    (Reason::Ip6EhTruncated, "ESP of 7 bytes", "02000000000202000000000186dd 600000000007324020010db800000000000000000000000120010db8000000000000000000000002 00000000000000"),
    (Reason::Ip6EhDeep, "nine headers", "02000000000202000000000186dd 60000000005c3c4020010db800000000000000000000000120010db8000000000000000000000002 3c000000000000003c000000000000003c000000000000003c000000000000003c000000000000003c000000000000003c000000000000003c000000000000000600000000000000040000500000000100000002501003e800000000"),
    (Reason::Ip6EhDeep, "ESP as the ninth", "02000000000202000000000186dd 6000000000483c4020010db800000000000000000000000120010db8000000000000000000000002 3c000000000000003c000000000000003c000000000000003c000000000000003c000000000000003c000000000000003c0000000000000032000000000000000000000000000000"),
    (Reason::Ip6EhLong, "264 bytes", "02000000000202000000000186dd 60000000011c3c4020010db800000000000000000000000120010db8000000000000000000000002 3c1f00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000600000000000000040000500000000100000002501003e800000000"),
    (Reason::FragPastEnd, "IPv6, 8191*8 + 8", "02000000000202000000000186dd 6000000000102c4020010db800000000000000000000000120010db8000000000000000000000002 0600fff8000000010000000000000000"),
    (Reason::TcpTruncated, "19 bytes", "0200000000020200000000010800 4500002700010000400666ce0a0000010a000002 040000500000000100000002501003e8000000"),
    (Reason::TcpTruncated, "in IPv6", "02000000000202000000000186dd 600000000000064020010db800000000000000000000000120010db8000000000000000000000002"),
    (Reason::TcpBadOffset, "4 words", "0200000000020200000000010800 4500002800010000400666cd0a0000010a000002 040000500000000100000002401003e800000000"),
    (Reason::TcpBadOffset, "past the packet", "0200000000020200000000010800 4500002800010000400666cd0a0000010a000002 040000500000000100000002601003e800000000"),
    (Reason::TcpBadOption, "length 0", "0200000000020200000000010800 4500002c00010000400666c90a0000010a000002 040000500000000100000002601003e80000000002000000"),
    (Reason::TcpBadOption, "length 1", "0200000000020200000000010800 4500002c00010000400666c90a0000010a000002 040000500000000100000002601003e80000000001020100"),
    (Reason::TcpBadOption, "length past the header", "0200000000020200000000010800 4500002c00010000400666c90a0000010a000002 040000500000000100000002601003e80000000002050000"),
    (Reason::TcpBadOption, "no length byte", "0200000000020200000000010800 4500002c00010000400666c90a0000010a000002 040000500000000100000002601003e80000000001010108"),
    (Reason::UdpTruncated, "7 bytes", "0200000000020200000000010800 4500001b00010000401166cf0a0000010a000002 04000035000812"),
    (Reason::UdpBadLen, "length 7", "0200000000020200000000010800 4500001c00010000401166ce0a0000010a000002 0400003500071234"),
    (Reason::UdpBadLen, "length past the packet", "02000000000202000000000186dd 600000000008114020010db800000000000000000000000120010db8000000000000000000000002 0400003500091234"),
    (Reason::IcmpTruncated, "7 bytes", "0200000000020200000000010800 4500001b00010000400166df0a0000010a000002 00000000000000"),
    (Reason::IcmpTruncated, "ICMPv6, 7 bytes", "02000000000202000000000186dd 6000000000073a4020010db800000000000000000000000120010db8000000000000000000000002 00000000000000"),
];

#[rustfmt::skip]
const WELL_FORMED: &[(&str, &[Reason], &str, &str)] = &[
    ("four tags", &[], "0200000000020200000000018100 0001 8100 0002 88a8 0003 9100 0004 0806", "tags=4 ip=- l4=-"),
    ("802.3 length", &[], "0200000000020200000000010003 424203", "tags=0 ip=- l4=-"),
    ("TCP with options", &[], "0200000000020200000000010800 4500003b00010000400666ba0a0000010a000002 040000500000000100000002901003e800000000020405b401030307010104020009090978797a", "tags=0 ip=4 Whole 20+39 l4=Tcp 36+3 opts=[2,3,4]"),
    ("padding", &[Reason::Trailer], "0200000000020200000000010800 4500001c00010000401166ce0a0000010a000002 04000035000812340000", "tags=0 ip=4 Whole 20+8 l4=Udp 8+0 opts=[]"),
    ("UDP without checksum", &[Reason::UdpZeroChecksum], "0200000000020200000000010800 4500001c00010000401166ce0a0000010a000002 0400003500080000", "tags=0 ip=4 Whole 20+8 l4=Udp 8+0 opts=[]"),
    ("UDP shorter than its packet", &[], "0200000000020200000000010800 4500001f00010000401166cb0a0000010a000002 0400003500090001616263", "tags=0 ip=4 Whole 20+11 l4=Udp 8+1 opts=[]"),
    ("first fragment of UDP", &[], "0200000000020200000000010800 4500001f00012000401146cb0a0000010a000002 0400003500640001616263", "tags=0 ip=4 First 20+11 l4=Udp 8+3 opts=[]"),
    ("later fragment", &[], "0200000000020200000000010800 4500001700010001401166d20a0000010a000002 616263", "tags=0 ip=4 Later 20+3 l4=-"),
    ("last byte of a datagram", &[], "0200000000020200000000010800 4500001b00011fff401146d00a0000010a000002 00000000000000", "tags=0 ip=4 Later 20+7 l4=-"),
    ("IPv4 options", &[], "0200000000020200000000010800 4700002400010000400160c40a0000010a0000020107030400070000 0000000000000000", "tags=0 ip=4 Whole 28+8 opts=[7] l4=Icmp 8+0 opts=[]"),
    ("protocol 58 in IPv4", &[], "0200000000020200000000010800 4500001c00010000403a66a50a0000010a000002 0000000000000000", "tags=0 ip=4 Whole 20+8 l4=-"),
    ("eight headers of 256 bytes", &[], "02000000000202000000000186dd 6000000001143c4020010db800000000000000000000000120010db8000000000000000000000002 3c180000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003c000000000000003c000000000000003c000000000000003c000000000000003c000000000000003c000000000000000600000000000000040000500000000100000002501003e800000000", "tags=0 ip=6 Whole 40+20 ext=[60,60,60,60,60,60,60,60] l4=Tcp 20+0 opts=[]"),
    ("AH, routing, atomic fragment", &[], "02000000000202000000000186dd 600000000024334020010db800000000000000000000000120010db8000000000000000000000002 2b01000000000000000000002c000000000000003a000000000000010000000000000000", "tags=0 ip=6 Whole 40+8 ext=[51,43,44] l4=Icmp6 8+0 opts=[]"),
    ("first fragment", &[], "02000000000202000000000186dd 6000000000102c4020010db800000000000000000000000120010db8000000000000000000000002 11000001000000010400003500641234", "tags=0 ip=6 First 40+8 ext=[44] l4=Udp 8+0 opts=[]"),
    ("later fragment, nothing behind it is walked", &[], "02000000000202000000000186dd 60000000000b2c4020010db800000000000000000000000120010db8000000000000000000000002 3c00000900000001000000", "tags=0 ip=6 Later 40+3 ext=[44] l4=-"),
    ("ESP", &[], "02000000000202000000000186dd 600000000014004020010db800000000000000000000000120010db8000000000000000000000002 3200000000000000000000000000000000000000", "tags=0 ip=6 Whole 40+12 ext=[0,50] l4=-"),
    ("no next header, and a trailer", &[Reason::Trailer], "02000000000202000000000186dd 6000000000033b4020010db800000000000000000000000120010db8000000000000000000000002 61626300", "tags=0 ip=6 Whole 40+3 l4=-"),
    ("protocol 1 in IPv6", &[], "02000000000202000000000186dd 600000000008014020010db800000000000000000000000120010db8000000000000000000000002 0000000000000000", "tags=0 ip=6 Whole 40+8 l4=-"),
];
