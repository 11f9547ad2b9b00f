//! Section 4 without TCP options: fields, checksums, payloads; and unfinished checksums of section 5.

use super::*;

/// Rewrites one frame and expects exactly another, whose checksums were computed from scratch.
fn becomes(from: Frame, targets: Vec<Target>, to: &Frame) {
    let outcome = run(&from.build(), targets.clone());
    assert_eq!(outcome.frame, to.build(), "{targets:?}");
    assert_eq!(outcome.matched, [1]);
}

#[test]
fn a_port_rewrite_to_the_byte() {
    let hex = |text: &str| -> Vec<u8> {
        let digits: Vec<u8> = text
            .chars()
            .filter_map(|c| c.to_digit(16))
            .map(|digit| digit as u8)
            .collect();
        digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()
    };
    let from = "020000000002 020000000001 0800 4500 001f 0001 4000 4011 26cb 0a000001 0a000002 0035 0400 000b 5e37 686921";
    // 0x5e37 covered port 0x0400; 0x1f90 is 0x1b90 more, so the checksum is 0x1b90 less.
    let to = "020000000002 020000000001 0800 4500 001f 0001 4000 4011 26cb 0a000001 0a000002 0035 1f90 000b 42a7 686921";
    assert_eq!(run(&hex(from), vec![set("udp-dport", 8080)]).frame, hex(to));
}

#[test]
fn fields_are_written_and_checksums_follow() {
    let tcp4 = || ip4().tcp(1024, 80).payload(b"odd");
    becomes(
        tcp4(),
        vec![set("tcp-dport", 8080)],
        &ip4().tcp(1024, 8080).payload(b"odd"),
    );
    becomes(tcp4(), vec![set("ip-ttl", 3)], &tcp4().ttl(3));
    becomes(
        tcp4(),
        vec![set("ip-dscp", 46), set("ip-ce", 3)],
        &tcp4().traffic_class(46 << 2 | 3),
    );
    becomes(
        tcp4(),
        vec![set("ip-saddr", 0xc000_0201)],
        &Frame::new()
            .ip4([192, 0, 2, 1], [10, 0, 0, 2])
            .tcp(1024, 80)
            .payload(b"odd"),
    );
    becomes(
        tcp4(),
        vec![set("ip-id", 0xffff), set("ip-df", 1)],
        &tcp4().id(0xffff),
    );
    becomes(
        tcp4(),
        vec![
            set("tcp-seq-num", 0x0102_0304),
            set("tcp-ack-num", 0xffff_fffe),
        ],
        &tcp4().numbers(0x0102_0304, 0xffff_fffe),
    );
    becomes(
        tcp4(),
        vec![set("tcp-syn", 1), set("tcp-ack", 0)],
        &tcp4().flags(Frame::SYN),
    );
    becomes(
        ip4().udp(1, 2).payload(b"x"),
        vec![set("ip-daddr", 0x0a00_0009)],
        &Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 9])
            .udp(1, 2)
            .payload(b"x"),
    );
    becomes(
        ip4().icmp(8, 0),
        vec![set("icmp-type", 0), set("ip-saddr", 0x0a00_0009)],
        &Frame::new().ip4([10, 0, 0, 9], [10, 0, 0, 2]).icmp(0, 0),
    );

    let six = u128::from_be_bytes(address6(9));
    becomes(
        ip6().tcp(1, 2),
        vec![set("ip6-saddr", six)],
        &Frame::new().ip6(address6(9), address6(2)).tcp(1, 2),
    );
    becomes(
        ip6().icmp(128, 0),
        vec![set("ip6-daddr", six)],
        &Frame::new().ip6(address6(1), address6(9)).icmp(128, 0),
    );
    becomes(
        ip6().udp(1, 2),
        vec![
            set("ip6-flow-label", 0xfffff),
            set("ip6-traffic-class", 0xff),
            set("ip6-hop-limit", 1),
        ],
        &ip6()
            .traffic_class(0xff)
            .flow_label(0xfffff)
            .ttl(1)
            .udp(1, 2),
    );
    becomes(
        ip6().icmp(128, 0),
        vec![set("icmp6-code", 7)],
        &ip6().icmp(128, 7),
    );

    let tagged = |outer, inner| ip4().tag(0x88a8, outer).tag(0x8100, inner).udp(1, 2);
    becomes(
        tagged(0x0005, 0x0006),
        vec![
            set("vlan-id", 0xfff),
            set("vlan2-pcp", 7),
            set("vlan2-dei", 1),
        ],
        &tagged(0x0fff, 0xf006),
    );
}

#[test]
fn the_protocol_is_part_of_the_pseudo_header() {
    // As TCP the segment of 20 zero-ish bytes verifies before, as protocol 253 after.
    let frame = ip4().tcp(1, 2);
    becomes(
        frame.clone(),
        vec![set("ip-proto", 253)],
        &frame.protocol(253),
    );
    let frame = ip6().udp(1, 2);
    becomes(
        frame.clone(),
        vec![set("ip6-next", 253)],
        &frame.protocol(253),
    );
    // Behind an extension header the fixed header does not name the protocol.
    let frame = ip6().extension(60, &[]).udp(1, 2).build();
    let outcome = run(&frame, vec![set("ip6-next", 0)]);
    assert_eq!(outcome.frame[..20], frame[..20]);
    assert_eq!(outcome.frame[20], 0);
    assert_eq!(outcome.frame[21..], frame[21..]);
}

#[test]
fn targets_run_in_order_and_where_the_received_packet_had_its_fields() {
    let frame = ip4().tcp(1, 2).payload(b"abcd");
    becomes(
        frame.clone(),
        vec![set("tcp-dport", 3), set("tcp-dport", 4)],
        &ip4().tcp(1, 4).payload(b"abcd"),
    );
    let outcome = run(
        &frame.build(),
        vec![set("tcp-offset", 15), set_payload("tcp-payload", b"X")],
    );
    assert_eq!(outcome.frame[46], 0xf0);
    assert_eq!(&outcome.frame[54..], b"Xbcd");
    let outcome = run(&frame.build(), vec![set("ip-ihl", 6), set("tcp-sport", 9)]);
    assert_eq!((outcome.frame[14], outcome.frame[35]), (0x46, 9));
}

#[test]
fn writing_what_is_there_changes_nothing() {
    // Wrong checksums would be normalised by a careless update.
    let frame = ip4().udp(1, 2).wrong_checksum(0x1234).build();
    for target in [
        set("udp-dport", 2),
        set("ip-saddr", 0x0a00_0001),
        set("ip-ttl", 64),
        set_payload("ip-payload", &[0, 1]),
    ] {
        assert_eq!(run(&frame, vec![target]).frame, frame);
    }
    // Words with equal sums leave the checksum alone, too: 0x0000_0001 and 0x0001_0000.
    let frame = ip4().tcp(1, 2).numbers(1, 0).wrong_checksum(7).build();
    let outcome = run(&frame, vec![set("tcp-seq", 0x0001_0000)]);
    assert_eq!(outcome.frame[50..52], frame[50..52]);
}

#[test]
fn checksum_fields_are_written_as_they_are_and_go_on_from_there() {
    let frame = ip4().udp(1, 2).payload(b"ab").build();
    let outcome = run(&frame, vec![set("udp-checksum", 0x1111)]);
    assert_eq!(outcome.frame[40..42], [0x11, 0x11]);
    assert_eq!(outcome.frame[..40], frame[..40]);
    // Port 2 becomes 3: one less.
    assert_eq!(
        run(
            &frame,
            vec![set("udp-checksum", 0x1111), set("udp-dport", 3)]
        )
        .frame[40..42],
        [0x11, 0x10]
    );
    // A zero written is a zero found.
    assert_eq!(
        run(&frame, vec![set("udp-checksum", 0), set("udp-dport", 3)]).frame[40..42],
        [0, 0]
    );
    let outcome = run(&frame, vec![set("ip-checksum", 0xaaaa), set("ip-ttl", 65)]);
    assert_eq!(outcome.frame[24..26], [0xa9, 0xaa]);
    let icmp = ip4().icmp(8, 0).build();
    assert_eq!(
        run(&icmp, vec![set("icmp-checksum", 5)]).frame[36..38],
        [0, 5]
    );
    let tcp = ip6().tcp(1, 2).build();
    let outcome = run(&tcp, vec![set("tcp-checksum", 5), set("tcp-urg-ptr", 2)]);
    assert_eq!(outcome.frame[70..74], [0, 3, 0, 2]);
}

#[test]
fn udp_keeps_zero_and_never_gets_zero() {
    let frame = ip4().udp(1, 2).zero_checksum().build();
    let outcome = run(&frame, vec![set("udp-dport", 9), set("ip-saddr", 1)]);
    assert_eq!(outcome.frame[40..42], [0, 0]);
    assert_eq!(notes(&outcome), ["udp_zero_checksum"]);

    // Ports that make the sum 0xffff: the checksum would be 0.
    let frame = ip4().udp(1, 2).build();
    let checksum = u16::from_be_bytes([frame[40], frame[41]]);
    let outcome = run(&frame, vec![set("udp-dport", u128::from(checksum) + 2)]);
    assert_eq!(outcome.frame[40..42], [0xff, 0xff]);
    // TCP has no such rule.
    let frame = ip4().tcp(1, 2).build();
    let checksum = u16::from_be_bytes([frame[50], frame[51]]);
    let outcome = run(&frame, vec![set("tcp-dport", u128::from(checksum) + 2)]);
    assert_eq!(outcome.frame[50..52], [0, 0]);
}

#[test]
fn the_pseudo_header_reaches_the_checksums_of_dccp_and_udp_lite() {
    for (protocol, zero) in [(33, [0, 0]), (136, [0xff, 0xff])] {
        let frame = ip4()
            .protocol(protocol)
            .payload(&[1, 2, 3, 4, 5, 6, 0x10, 0, 9])
            .build();
        let outcome = run(&frame, vec![set("ip-saddr", 0x0a00_0002)]);
        assert_eq!(outcome.frame[40..42], [0x0f, 0xff], "{protocol}");
        // Sum 0x1000 more than before.
        assert_eq!(
            run(&frame, vec![set("ip-saddr", 0x0a00_1001)]).frame[40..42],
            zero,
            "{protocol}"
        );
        // A later fragment and 7 bytes have none.
        for other in [
            ip4().protocol(protocol).fragment(1, false).payload(&[0; 9]),
            ip4().protocol(protocol).payload(&[0; 7]),
        ] {
            assert!(
                run(&other.build(), vec![set("ip-saddr", 0x0a00_0002)]).frame[34..]
                    .iter()
                    .all(|&byte| byte == 0)
            );
        }
        let less = 0x1000 - u16::from(253 - protocol);
        assert_eq!(
            run(&frame, vec![set("ip-proto", 253)]).frame[40..42],
            less.to_be_bytes()
        );
        // Payload is not followed: how much of it is covered is not known.
        let outcome = run(&frame, vec![set_payload("ip-payload[8]", &[7])]);
        assert_eq!(outcome.frame[40..43], [0x10, 0, 7]);
    }
    // Zero is a value like others for both: UDP-Lite's 0 is updated.
    let frame = ip4().protocol(136).payload(&[0; 8]).build();
    assert_eq!(
        run(&frame, vec![set("ip-saddr", 0x0a00_0002)]).frame[40..42],
        [0xff, 0xfe]
    );
}

#[test]
fn payloads_are_written_at_any_parity() {
    let udp = |payload: &[u8]| ip4().udp(1, 2).payload(payload);
    becomes(
        udp(b"abcdefg"),
        vec![set_payload("udp-payload[1]", b"XYZ")],
        &udp(b"aXYZefg"),
    );
    becomes(
        udp(b"abcdefg"),
        vec![set_payload("udp-payload[6]", b"!")],
        &udp(b"abcdef!"),
    );
    becomes(
        ip6().icmp(128, 0).payload(b"abc"),
        vec![set_payload("icmp6-payload", b"x")],
        &ip6().icmp(128, 0).payload(b"xbc"),
    );
    becomes(
        ip4().icmp(8, 0).payload(b"abc"),
        vec![set_payload("icmp-payload[2]", b"x")],
        &ip4().icmp(8, 0).payload(b"abx"),
    );
    // Through the IP payload into the L4 header: ports, and past the checksum's own bytes.
    becomes(
        udp(b"abc"),
        vec![set_payload("ip-payload[1]", &[9])],
        &ip4().udp(9, 2).payload(b"abc"),
    );
    let outcome = run(
        &udp(b"ab").build(),
        vec![set_payload("ip-payload[6]", &[0x12, 0x34])],
    );
    assert_eq!(outcome.frame[40..42], [0x12, 0x34]);
    // No L4 header, no checksum.
    let later = |payload: &[u8]| ip4().fragment(1, false).protocol(17).payload(payload);
    becomes(
        later(b"abcdefgh"),
        vec![set_payload("ip-payload[6]", b"XY")],
        &later(b"abcdefXY"),
    );
}

#[test]
fn bytes_behind_the_udp_length_are_not_covered() {
    let frame = ip4().udp(1, 2).udp_len(9).payload(b"abc").build();
    let outcome = run(&frame, vec![set_payload("ip-payload[9]", b"XY")]);
    assert_eq!(&outcome.frame[42..], b"aXY");
    assert_eq!(outcome.frame[40..42], frame[40..42]);
    let outcome = run(&frame, vec![set_payload("ip-payload[8]", b"XY")]);
    assert_eq!(checksum_error(&outcome.frame), Some(0));
}

#[test]
fn payloads_too_short_are_noted_per_target() {
    let frame = ip4().udp(1, 2).payload(b"abc").trailer(b"xyz").build();
    let outcome = run(
        &frame,
        vec![
            set_payload("udp-payload[2]", b"XY"),
            set_payload("ip-payload[12]", b"X"),
            set_payload("udp-payload[2]", b"X"),
        ],
    );
    assert_eq!(
        notes(&outcome),
        ["trailer", "payload_short", "payload_short"]
    );
    assert_eq!(&outcome.frame[42..], b"abXxyz");
}

#[test]
fn fragments_with_an_l4_header_keep_their_checksum_in_step() {
    let frame = ip4()
        .fragment(0, true)
        .udp(1, 2)
        .payload(b"abcdefgh")
        .wrong_checksum(77)
        .build();
    let outcome = run(
        &frame,
        vec![
            set("udp-dport", 9),
            set("ip-saddr", 1),
            set_payload("udp-payload[3]", b"zz"),
        ],
    );
    assert_eq!(checksum_error(&outcome.frame), checksum_error(&frame));
    let later = ip4()
        .fragment(9, true)
        .protocol(6)
        .payload(&[7; 24])
        .build();
    let outcome = run(&later, vec![set("ip-saddr", 1)]);
    assert_eq!(outcome.frame[34..], later[34..]);
}

#[test]
fn unfinished_checksums_follow_the_pseudo_header_only() {
    let tcp = |source| {
        Frame::new()
            .ip4(source, [10, 0, 0, 2])
            .tcp(1, 2)
            .payload(b"abcd")
            .unfinished()
    };
    let frame = tcp([10, 0, 0, 1]).build();
    let outcome = run_with(
        &frame,
        vec![
            set("tcp-dport", 2),
            set("ip-saddr", 0x0b00_0009),
            set_payload("tcp-payload", b"abcd"),
        ],
        offloaded(),
    );
    assert_eq!(outcome.frame, tcp([11, 0, 0, 9]).build());
    let outcome = run_with(
        &frame,
        vec![set("tcp-dport", 9), set_payload("tcp-payload[1]", b"X")],
        offloaded(),
    );
    assert_eq!(outcome.frame[50..52], frame[50..52]);
    let udp = ip6().udp(1, 2).unfinished();
    let outcome = run_with(
        &udp.build(),
        vec![set("ip6-daddr", 1), set("udp-sport", 7)],
        offloaded(),
    );
    let mut one = [0; 16];
    one[15] = 1;
    assert_eq!(
        outcome.frame,
        Frame::new()
            .ip6(address6(1), one)
            .udp(7, 2)
            .unfinished()
            .build()
    );
    let outcome = run_with(&frame, vec![set("ip-proto", 17)], offloaded());
    assert_eq!(
        outcome.frame[50..52],
        (u16::from_be_bytes([frame[50], frame[51]]) + 11).to_be_bytes()
    );

    // In mode complete the same packet is a wrong one; and a complete one, an ICMPv6 one and a fragment are never unfinished.
    let outcome = run(&frame, vec![set("tcp-dport", 9)]);
    assert_eq!(checksum_error(&outcome.frame), checksum_error(&frame));
    for other in [
        ip4().tcp(1, 2),
        ip6().icmp(128, 0).unfinished(),
        ip4().fragment(0, true).udp(1, 2).unfinished(),
    ] {
        let other = other.build();
        let target = match parse(&other).expect("well formed").l4.expect("L4").protocol {
            Protocol::Tcp => set("tcp-dport", 9),
            Protocol::Udp => set("udp-dport", 9),
            _ => set("icmp6-code", 9),
        };
        let outcome = run_with(&other, vec![target], offloaded());
        assert_eq!(checksum_error(&outcome.frame), checksum_error(&other));
    }
}
