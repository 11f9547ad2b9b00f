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
        capture.interfaces()[0]
            .require_ethernet()
            .expect("Ethernet");
    }
    let file = Order::Big.pcap(0xa1b2_c3d4, 113, &[]);
    let error = Capture::open(&file[..]).expect("a capture").interfaces()[0]
        .require_ethernet()
        .expect_err("cooked");
    assert!(
        error
            .to_string()
            .starts_with("link type 113 (LINUX_SLL) is not supported"),
        "{error}"
    );
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
    for path in &files {
        let bytes = std::fs::read(path).expect("a readable file");
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
        "{captures} captures, {total} packets, {dropped} malformed as Ethernet"
    );
    assert!(captures > 100 && total > 10_000);
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
