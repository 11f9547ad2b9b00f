//! Capture files: both formats in every byte order, cut at every byte, written and read back, and the shared corpora.

use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};

use weir_packet::pcap::{Capture, CaptureError, LinkType, Writer};
use weir_packet::{parse, summary};

/// A packet as a test sees it: time, bytes, original length, interface name.
type Seen = (u64, Vec<u8>, u32, Option<String>);

fn read(file: &[u8]) -> (Vec<Seen>, Option<CaptureError>) {
    let mut capture = match Capture::open(Cursor::new(file)) {
        Ok(capture) => capture,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut packets = Vec::new();
    loop {
        match capture.next_packet() {
            Ok(Some(packet)) => {
                assert_eq!(packet.number, packets.len() as u64);
                let name = packet.interface.name.clone();
                packets.push((
                    packet.timestamp_ns,
                    packet.data.to_vec(),
                    packet.original_len,
                    name,
                ));
            }
            Ok(None) => return (packets, None),
            Err(error) => {
                assert!(
                    capture
                        .next_packet()
                        .expect("an error ends the capture")
                        .is_none()
                );
                return (packets, Some(error));
            }
        }
    }
}

/// Numbers in one byte order.
#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    fn pcap(self, magic: u32, network: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(self.u32(magic));
        file.extend(self.u16(2));
        file.extend(self.u16(4));
        file.extend([0; 8]);
        file.extend(self.u32(65_535));
        file.extend(self.u32(network));
        for (seconds, fraction, data) in packets {
            file.extend(self.u32(*seconds));
            file.extend(self.u32(*fraction));
            file.extend(self.u32(data.len() as u32));
            file.extend(self.u32(data.len() as u32 + 10));
            file.extend(*data);
        }
        file
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let mut block = Vec::new();
        block.extend(self.u32(kind));
        block.extend(self.u32(padded as u32 + 12));
        block.extend(body);
        block.resize(8 + padded, 0);
        block.extend(self.u32(padded as u32 + 12));
        block
    }

    fn section(self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.u32(0x1a2b_3c4d));
        body.extend(self.u16(1));
        body.extend(self.u16(0));
        body.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link: u16, snap: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.u16(link));
        body.extend(self.u16(0));
        body.extend(self.u32(snap));
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, units: u64, data: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.u32(interface));
        body.extend(self.u32((units >> 32) as u32));
        body.extend(self.u32(units as u32));
        body.extend(self.u32(data.len() as u32));
        body.extend(self.u32(data.len() as u32));
        body.extend(data);
        self.block(6, &body)
    }

    fn obsolete(self, interface: u16, units: u64, data: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.u16(interface));
        body.extend(self.u16(0xffff));
        body.extend(self.u32((units >> 32) as u32));
        body.extend(self.u32(units as u32));
        body.extend(self.u32(data.len() as u32));
        body.extend(self.u32(99));
        body.extend(data);
        self.block(2, &body)
    }

    fn simple(self, original: u32, data: &[u8]) -> Vec<u8> {
        let mut body = self.u32(original).to_vec();
        body.extend(data);
        self.block(3, &body)
    }
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for order in [Order::Little, Order::Big] {
        for (magic, expected) in [(0xa1b2_c3d4, 7_000_008_000), (0xa1b2_3c4d, 7_000_000_008)] {
            let (packets, error) =
                read(&order.pcap(magic, 1, &[(7, 8, b"abc"), (u32::MAX, 0, b"")]));
            assert!(error.is_none());
            assert_eq!(packets[0], (expected, b"abc".to_vec(), 13, None));
            assert_eq!(
                packets[1],
                (u64::from(u32::MAX) * 1_000_000_000, Vec::new(), 10, None)
            );
        }
    }
}

#[test]
fn the_upper_bits_of_a_link_type_are_not_part_of_it() {
    for network in [1, 0x3000_0001, 0x4400_0001] {
        let file = Order::Little.pcap(0xa1b2_c3d4, network, &[]);
        let capture = Capture::open(&file[..]).expect("a capture");
        assert_eq!(capture.interfaces()[0].link_type, LinkType::ETHERNET);
        capture.interfaces()[0].require_frames().expect("Ethernet");
    }
}

#[test]
fn a_link_type_that_is_not_read_is_named_packet_by_packet() {
    let file = Order::Big.pcap(0xa1b2_c3d4, 105, &[(1, 2, b"abc"), (3, 4, b"def")]);
    let mut capture = Capture::open(&file[..]).expect("a capture");
    let said = "link type 105 (IEEE802_11) is not supported: weir reads ETHERNET, LINUX_SLL, LINUX_SLL2, RAW, IPV4, IPV6, NULL, LOOP, PPP, PPP_HDLC and C_HDLC";
    let error = capture.interfaces()[0]
        .require_frames()
        .expect_err("wireless");
    assert_eq!(error.to_string(), said);
    for _ in 0..2 {
        let error = capture.next_frame().expect_err("wireless");
        assert_eq!(error.to_string(), said);
    }
    assert!(capture.next_frame().expect("the end").is_none());
}

/// What a test sees of a frame: its first 14 bytes in hex, what follows, the original length, the device, whether its link header is cut.
type SeenFrame = (String, Vec<u8>, u32, Option<u32>, bool);

fn frames(file: &[u8]) -> Vec<SeenFrame> {
    let mut capture = Capture::open(file).expect("a capture");
    let mut frames = Vec::new();
    while let Some(frame) = capture.next_frame().expect("whole") {
        let (header, rest) = frame.data.split_at(frame.data.len().min(14));
        frames.push((
            header.iter().map(|byte| format!("{byte:02x}")).collect(),
            rest.to_vec(),
            frame.original_len,
            frame.device,
            frame.cut_in_link_header,
        ));
    }
    frames
}

/// Link type, a link header, and the Ethernet header that stands for it. The packet behind it is `PACKET`.
const LINKS: &[(u16, &[u8], &str, Option<u32>)] = &[
    // NULL in both byte orders, and the IPv6 of each system.
    (0, &[2, 0, 0, 0], "0000000000000000000000000800", None),
    (0, &[0, 0, 0, 2], "0000000000000000000000000800", None),
    (0, &[10, 0, 0, 0], "00000000000000000000000086dd", None),
    (0, &[0, 0, 0, 24], "00000000000000000000000086dd", None),
    (0, &[28, 0, 0, 0], "00000000000000000000000086dd", None),
    (108, &[0, 0, 0, 30], "00000000000000000000000086dd", None),
    (108, &[0, 0, 0, 2], "0000000000000000000000000800", None),
    (108, &[0, 0, 0, 23], "000000000000000000000000ffff", None),
    // IP without a link header: the packet begins with 0x45.
    (12, &[], "0000000000000000000000000800", None),
    (14, &[], "0000000000000000000000000800", None),
    (101, &[], "0000000000000000000000000800", None),
    (228, &[], "0000000000000000000000000800", None),
    (229, &[], "00000000000000000000000086dd", None),
    // PPP with and without address and control, and with a short protocol number.
    (9, &[0x00, 0x21], "0000000000000000000000000800", None),
    (
        9,
        &[0xff, 3, 0x00, 0x57],
        "00000000000000000000000086dd",
        None,
    ),
    (9, &[0x21], "0000000000000000000000000800", None),
    (9, &[0xff, 3, 0x57], "00000000000000000000000086dd", None),
    (9, &[0x02, 0x81], "0000000000000000000000008847", None),
    (9, &[0x02, 0x83], "0000000000000000000000008848", None),
    (
        50,
        &[0xff, 3, 0x00, 0x21],
        "0000000000000000000000000800",
        None,
    ),
    // Cisco HDLC, as a type of its own and as PPP_HDLC has it.
    (
        104,
        &[0x0f, 0, 0x08, 0x00],
        "0000000000000000000000000800",
        None,
    ),
    (
        104,
        &[0x8f, 0, 0x80, 0x35],
        "000000000000000000000000ffff",
        None,
    ),
    (
        50,
        &[0x0f, 0, 0x86, 0xdd],
        "00000000000000000000000086dd",
        None,
    ),
    // Cooked: a broadcast, a group, a host, and what this host sent.
    (
        113,
        &[0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 0],
        "ffffffffffff0200000000090800",
        None,
    ),
    (
        113,
        &[0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 0x86, 0xdd],
        "01000000000002000000000986dd",
        None,
    ),
    (
        113,
        &[0, 0, 2, 8, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 8, 6],
        "0000000000000000000000000806",
        None,
    ),
    (
        113,
        &[0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 0x81, 0],
        "0000000000000200000000098100",
        None,
    ),
    // IEEE 802.3 with LLC: the length; other protocols below 0x600, and devices whose protocol is no EtherType.
    (
        113,
        &[0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 0, 4],
        "0000000000000200000000090006",
        None,
    ),
    (
        113,
        &[0, 3, 1, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12],
        "000000000000000000000000ffff",
        None,
    ),
    (
        113,
        &[0, 4, 3, 56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0],
        "000000000000000000000000ffff",
        None,
    ),
    (
        276,
        &[8, 0, 0, 0, 0, 0, 1, 3, 0, 1, 1, 6, 2, 0, 0, 0, 0, 9, 0, 0],
        "ffffffffffff0200000000090800",
        Some(259),
    ),
    (
        276,
        &[
            0x86, 0xdd, 0, 0, 0, 0, 0, 3, 3, 4, 4, 0, 2, 0, 0, 0, 0, 9, 0, 0,
        ],
        "00000000000000000000000086dd",
        Some(3),
    ),
];

const PACKET: &[u8] = &[0x45, 2, 3, 4, 5, 6];

#[test]
fn frames_of_other_link_types_get_an_ethernet_header() {
    for order in [Order::Little, Order::Big] {
        for &(link, header, ethernet, device) in LINKS {
            let packet = [header, PACKET].concat();
            let expected: SeenFrame = (
                ethernet.to_owned(),
                PACKET.to_vec(),
                // `pcap` says that ten bytes more were on the wire.
                14 + PACKET.len() as u32 + 10,
                device,
                false,
            );
            let file = order.pcap(0xa1b2_c3d4, u32::from(link), &[(7, 8, &packet)]);
            assert_eq!(
                frames(&file),
                std::slice::from_ref(&expected),
                "{link} {header:02x?}"
            );

            let mut file = order.section();
            file.extend(order.interface(1, 0, &[]));
            file.extend(order.interface(link, 0, &[(2, b"any")]));
            file.extend(order.enhanced(0, 1, b"as it is, and longer than 14"));
            file.extend(order.enhanced(1, 2, &packet));
            let read = frames(&file);
            assert_eq!(read[0].1, b"longer than 14");
            assert_eq!(
                read[1],
                (
                    expected.0,
                    expected.1,
                    14 + PACKET.len() as u32,
                    device,
                    false
                ),
                "{link} {header:02x?}"
            );
        }
    }
}

/// A number of PPP that has no EtherType keeps its bytes behind the EtherType of PPP, a short one too.
#[test]
fn other_protocols_of_ppp_keep_their_number() {
    for (packet, rest) in [
        (&[0xff, 3, 0xc0, 0x21, 1][..], &[0xc0, 0x21, 1][..]),
        (&[0x80, 0x21, 1], &[0x80, 0x21, 1]),
        (&[0x2d, 1], &[0x2d, 1]),
    ] {
        let read = frames(&Order::Little.pcap(0xa1b2_c3d4, 9, &[(7, 8, packet)]));
        assert_eq!(
            (read[0].0.as_str(), read[0].1.as_slice()),
            ("000000000000000000000000880b", rest)
        );
    }
}

/// Cut anywhere in its link header, a packet becomes a frame that is too short for Ethernet, which every engine counts as `frame_short`.
#[test]
fn a_packet_that_ends_inside_its_link_header_is_a_short_frame() {
    let mut cuts = 0;
    for &(link, header, _, _) in LINKS {
        for length in 0..header.len() {
            let read = frames(&Order::Big.pcap(
                0xa1b2_c3d4,
                u32::from(link),
                &[(7, 8, &header[..length])],
            ));
            let (start, rest, original, device, cut) = &read[0];
            // Of PPP an odd byte is a whole protocol number.
            if matches!(link, 9 | 50) && header[..length].last().is_some_and(|byte| byte & 1 == 1) {
                continue;
            }
            assert!(*cut, "{link} {length}");
            assert_eq!((start.len() / 2, rest.len()), (length.min(13), 0));
            assert_eq!((*original, *device), (length as u32 + 10, None));
            let frame = &header[..length.min(13)];
            assert_eq!(
                parse::parse(frame).expect_err("short").reason,
                weir_packet::Reason::FrameShort
            );
            cuts += 1;
        }
    }
    assert!(cuts > 100, "{cuts}");
    let read = frames(&Order::Big.pcap(0xa1b2_c3d4, 101, &[(7, 8, b"")]));
    assert_eq!(read[0].0, "000000000000000000000000ffff");
}

/// A frame is never longer than a capture can hold, so that it can be written.
#[test]
fn the_longest_packet_of_another_link_type_is_cut_to_what_can_be_written() {
    let longest = vec![0x45; weir_packet::pcap::MAX_PACKET as usize];
    let file = Order::Little.pcap(0xa1b2_c3d4, 101, &[(7, 8, &longest)]);
    let mut capture = Capture::open(&file[..]).expect("a capture");
    let frame = capture.next_frame().expect("whole").expect("one");
    assert_eq!(
        (frame.data.len(), frame.original_len),
        (longest.len(), longest.len() as u32 + 14 + 10)
    );
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer
        .write(7, frame.data, frame.original_len)
        .expect("fits");
}

#[test]
fn pcapng_with_every_packet_block_in_two_sections() {
    for (first, second) in [(Order::Little, Order::Big), (Order::Big, Order::Little)] {
        let mut file = first.section();
        file.extend(first.interface(1, 0, &[(2, b"eth0"), (9, &[9])]));
        file.extend(first.interface(
            1,
            4,
            &[
                (2, b"wan"),
                (9, &[0x80 | 10]),
                (14, &first.u64(100)),
                (0, &[]),
            ],
        ));
        file.extend(first.enhanced(0, 5_000_000_001, b"one"));
        file.extend(first.block(5, &[0; 20]));
        file.extend(first.enhanced(1, 1536, b"two!"));
        file.extend(first.obsolete(1, 1024, b"three"));
        file.extend(first.simple(4, b"four"));
        file.extend(second.section());
        file.extend(second.interface(1, 3, &[(2, b"lan")]));
        file.extend(second.simple(9, b"fiv"));
        file.extend(second.enhanced(0, 1_000_000, b"six"));
        let (packets, error) = read(&file);
        assert!(error.is_none(), "{error:?}");
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(
            packets[0],
            (5_000_000_001, b"one".to_vec(), 3, name("eth0"))
        );
        assert_eq!(
            packets[1],
            (101_500_000_000, b"two!".to_vec(), 4, name("wan"))
        );
        assert_eq!(
            packets[2],
            (101_000_000_000, b"three".to_vec(), 99, name("wan"))
        );
        assert_eq!(
            packets[3],
            (101_000_000_000, b"four".to_vec(), 4, name("eth0"))
        );
        assert_eq!(
            packets[4],
            (101_000_000_000, b"fiv".to_vec(), 9, name("lan"))
        );
        assert_eq!(packets[5], (1_000_000_000, b"six".to_vec(), 3, name("lan")));

        let mut capture = Capture::open(&file[..]).expect("a capture");
        while capture.next_packet().expect("whole").is_some() {}
        let indices: Vec<u32> = capture
            .interfaces()
            .iter()
            .map(|interface| interface.index)
            .collect();
        assert_eq!(indices, [0, 1, 2]);
    }
}

#[test]
fn timestamps_of_any_resolution_stay_in_range() {
    for exponent in 0..=255u8 {
        for offset in [0, 1, i64::MIN, i64::MAX] {
            let order = Order::Little;
            let mut file = order.section();
            file.extend(order.interface(
                1,
                0,
                &[(9, &[exponent]), (14, &order.u64(offset as u64))],
            ));
            file.extend(order.enhanced(0, u64::MAX, b"x"));
            file.extend(order.enhanced(0, 1, b"x"));
            let (packets, error) = read(&file);
            assert!(error.is_none() && packets.len() == 2);
        }
    }
}

#[test]
fn a_capture_cut_at_any_byte_yields_its_whole_packets() {
    let order = Order::Little;
    let pcap = order.pcap(
        0xa1b2_c3d4,
        1,
        &[(1, 0, b"first"), (2, 0, b"second"), (3, 0, b"")],
    );
    let mut pcapng = order.section();
    pcapng.extend(order.interface(1, 0, &[(2, b"eth0")]));
    pcapng.extend(order.enhanced(0, 1, b"first"));
    pcapng.extend(order.block(0x0bad, &[1; 9]));
    pcapng.extend(order.simple(5, b"other"));
    pcapng.extend(order.obsolete(0, 1, b"third"));
    let section = order.section().len();
    for (header, file) in [(24, pcap), (section, pcapng)] {
        let (all, error) = read(&file);
        assert!(error.is_none() && all.len() == 3, "{error:?}");
        let mut last = 0;
        for end in 0..file.len() {
            let (some, error) = read(&file[..end]);
            assert!(
                some.len() >= last && some[..] == all[..some.len()],
                "cut at {end}"
            );
            last = some.len();
            match error {
                None | Some(CaptureError::NotACapture { .. }) => {}
                Some(CaptureError::TruncatedHeader) => assert!(end < header, "cut at {end}"),
                Some(CaptureError::Truncated { whole }) => {
                    assert_eq!(whole, last as u64);
                    assert!(end > header, "cut at {end}");
                }
                Some(other) => panic!("cut at {end}: {other}"),
            }
            assert!(
                end >= 4 || matches!(read(&file[..end]).1, Some(CaptureError::NotACapture { .. }))
            );
        }
        assert!(last >= 2);
    }
}

#[test]
fn damaged_captures_are_refused_with_the_packet_number() {
    let order = Order::Little;
    let mut long = order.pcap(0xa1b2_c3d4, 1, &[(1, 0, b"first")]);
    long.extend([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 4, 0, 1, 0, 4, 0]);
    let (packets, error) = read(&long);
    assert_eq!(packets.len(), 1);
    assert!(
        matches!(
            error,
            Some(CaptureError::Oversized {
                whole: 1,
                length: 262_145
            })
        ),
        "{error:?}"
    );

    for damage in [
        order.enhanced(1, 0, b"no such interface"),
        order.block(6, &[0; 8]),
        order.block(3, &[]),
    ] {
        let mut file = order.section();
        file.extend(order.interface(1, 0, &[]));
        file.extend(order.enhanced(0, 0, b"first"));
        file.extend(damage);
        let (packets, error) = read(&file);
        assert_eq!(packets.len(), 1);
        assert!(
            matches!(error, Some(CaptureError::Malformed { whole: 1, .. })),
            "{error:?}"
        );
    }
}

#[test]
fn other_files_are_refused_in_one_line() {
    for (file, text) in [
        (
            &b""[..],
            "not a capture file: it starts with nothing, which is neither pcap nor pcapng; the file is empty",
        ),
        (
            b"#!/bin/sh\n",
            "not a capture file: it starts with 23212f62, which is neither pcap nor pcapng",
        ),
        (
            &[0x1f, 0x8b, 8, 0],
            "not a capture file: it starts with 1f8b0800, which is neither pcap nor pcapng; it is compressed: decompress it with gunzip",
        ),
        (
            &[0x34, 0xcd, 0xb2, 0xa1],
            "the \"modified\" pcap format of patched libpcap versions (magic a1b2cd34) is not supported: convert the file with `editcap -F pcapng`",
        ),
        (
            &[0xa1, 0xb2, 0x34, 0xcd],
            "the Navtel pcap format (magic a1b234cd) is not supported: convert the file with `editcap -F pcapng`",
        ),
    ] {
        assert_eq!(read(file).1.expect("refused").to_string(), text);
    }
}

#[test]
fn what_is_written_is_read_back() {
    let big = vec![7; 262_144];
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer
        .write(1_500_000_000_123_456_789, b"abc", 60)
        .expect("memory");
    writer.write(u64::MAX, &big, 0).expect("memory");
    assert!(writer.write(0, &vec![0; 262_145], 0).is_err());
    let file = writer.finish().expect("memory");
    let (packets, error) = read(&file);
    assert!(error.is_none());
    assert_eq!(
        packets[0],
        (1_500_000_000_123_456_789, b"abc".to_vec(), 60, None)
    );
    assert_eq!(
        (
            packets[1].0 / 1_000_000_000,
            packets[1].1.len(),
            packets[1].2
        ),
        (u64::from(u32::MAX), 262_144, 262_144)
    );
}

#[test]
fn the_shared_corpora_are_read_to_their_ends() {
    let mut files = Vec::new();
    for folder in ["pcaps", "zeek-traces"] {
        let Some(folder) = weir_testdata::find(folder) else {
            return;
        };
        collect(&folder, &mut files);
    }
    let (mut captures, mut total, mut dropped) = (0, 0, 0);
    // Captures with packets that are not Ethernet, and those of them of which no frames can be made.
    let (mut others, mut refused) = (0, 0);
    for path in &files {
        let bytes = std::fs::read(path).expect("a readable file");
        if let Ok(mut capture) = Capture::open(&bytes[..]) {
            let (mut other, mut unread) = (false, false);
            loop {
                match capture.next_frame() {
                    Ok(Some(frame)) => other |= frame.interface.link_type != LinkType::ETHERNET,
                    Err(CaptureError::UnsupportedLinkType { .. }) => unread = true,
                    _ => break,
                }
            }
            others += u32::from(other || unread);
            refused += u32::from(unread);
        }
        let (packets, error) = read(&bytes);
        for (_, data, ..) in &packets {
            dropped += u32::from(parse::parse(data).is_err());
            let _ = summary(data);
        }
        match error {
            None => assert_eq!(Some(packets.len()), count(&bytes), "{}", path.display()),
            Some(CaptureError::NotACapture { .. }) => continue,
            Some(CaptureError::Truncated { whole }) => {
                assert_eq!(whole, packets.len() as u64);
                assert_eq!(Some(packets.len()), count(&bytes), "{}", path.display());
            }
            Some(error) => {
                let _ = writeln!(std::io::stderr(), "{}: {error}", path.display());
            }
        }
        captures += 1;
        total += packets.len();
    }
    let _ = writeln!(
        std::io::stderr(),
        "{captures} captures, {total} packets, {dropped} malformed as Ethernet; {others} captures are not of Ethernet alone, {refused} are refused for their link type"
    );
    assert!(captures > 100 && total > 10_000);
    assert!(refused > 0 && others > refused + 50);
}

/// Whole packets of a file, counted by a second, minimal walk over its length words.
fn count(file: &[u8]) -> Option<usize> {
    let word = |at: usize, big: bool| {
        let bytes = *file.get(at..)?.first_chunk::<4>()?;
        Some(if big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        } as usize)
    };
    let mut packets = 0;
    if file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        let (mut at, mut big) = (0, false);
        while let Some(kind) = word(at, big) {
            if kind == 0x0a0d_0d0a {
                big = file.get(at + 8) == Some(&0x1a);
            }
            at += word(at + 4, big).filter(|&length| length >= 12)?;
            packets += usize::from(at <= file.len() && matches!(kind, 2 | 3 | 6));
        }
        return Some(packets);
    }
    let big = file[0] == 0xa1;
    let mut at = 24;
    while let Some(length) = word(at + 8, big) {
        at += 16 + length;
        packets += usize::from(at <= file.len());
    }
    Some(packets)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
    files.sort();
}
