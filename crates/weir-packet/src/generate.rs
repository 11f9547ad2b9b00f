//! Frames for property tests: every kind of packet weir distinguishes, and every way of being malformed.
//!
//! Values come from small pools, so that generated policies hit generated packets: addresses of 10.0.0.0/24,
//! 192.0.2.0/24 and 2001:db8::/64, a dozen ports, a few option kinds, small TTLs, VLAN identifiers 1 to 10.
//! Shrinking removes tags, headers, options and payload one by one. `conversation` makes packets that follow from others.

#![expect(
    clippy::indexing_slicing,
    reason = "generated frames have the headers that are indexed; nothing foreign is read here"
)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::build::Frame;
use crate::checksum::checksum;
use crate::parse::{parse, protocol};

mod conversation;

pub use conversation::{Exchange, Step, conversations, transfers};

/// Ports of the pool.
pub const PORTS: &[u16] = &[
    80, 443, 22, 53, 8080, 1024, 1025, 1026, 1027, 1028, 1029, 1030,
];
/// TCP option kinds of the pool.
pub const OPTION_KINDS: &[u8] = &[2, 3, 4, 5, 8, 30, 34, 253];

/// Frames of all kinds.
pub fn frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        30 => well_formed(),
        10 => odd(),
        8 => mutated(),
        1 => large(),
        1 => vec(any::<u8>(), 0..14),
        1 => random(),
    ]
}

/// Frames that no parser check drops.
pub fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    (
        prop_oneof![4 => 1u8..=4, 1 => Just(64u8), 1 => Just(255u8)],
        packet(false),
        tags(3),
        trailer(),
        checksums(),
    )
        .prop_map(|(ttl, packet, tags, trailer, checksums)| {
            finish(packet.ttl(ttl), &tags, &trailer, checksums)
        })
}

/// A source or destination address of the IPv4 pools.
pub fn address4() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![
        8 => (0u8..=4).prop_map(|host| [10, 0, 0, host]),
        2 => any::<u8>().prop_map(|host| [10, 0, 0, host]),
        3 => (0u8..=4).prop_map(|host| [192, 0, 2, host]),
        1 => any::<[u8; 4]>(),
    ]
}

/// A source or destination address of the IPv6 pool.
pub fn address6() -> impl Strategy<Value = [u8; 16]> {
    let pool = |host: u64| {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        address[8..].copy_from_slice(&host.to_be_bytes());
        address
    };
    prop_oneof![8 => (0u64..=4).prop_map(pool), 2 => any::<u64>().prop_map(pool), 1 => any::<[u8; 16]>()]
}

/// A port of the pool, rarely another.
pub fn port() -> impl Strategy<Value = u16> {
    prop_oneof![9 => select(PORTS), 1 => any::<u16>()]
}

/// A TCP option of the pool with a value of the usual length, rarely of another.
pub fn tcp_option() -> impl Strategy<Value = (u8, Vec<u8>)> {
    select(OPTION_KINDS).prop_flat_map(|kind| {
        let usual = match kind {
            2 => 2..=2,
            3 => 1..=1,
            4 => 0..=0,
            5 => 8..=8,
            8 => 8..=8,
            _ => 0..=12,
        };
        let value = prop_oneof![
            6 => vec(prop_oneof![2 => 0u8..=7, 1 => any::<u8>()], usual),
            1 => vec(any::<u8>(), 0..=16),
        ];
        (Just(kind), value)
    })
}

/// How the L4 checksum is.
#[derive(Clone, Copy, Debug)]
enum Sum {
    Correct,
    Unfinished,
    OffBy(u16),
    Zero,
}

fn checksums() -> impl Strategy<Value = Sum> {
    prop_oneof![
        6 => Just(Sum::Correct),
        2 => Just(Sum::Unfinished),
        1 => any::<u16>().prop_map(Sum::OffBy),
        1 => Just(Sum::Zero),
    ]
}

fn finish(mut frame: Frame, tags: &[(u16, u16)], trailer: &[u8], checksums: Sum) -> Vec<u8> {
    for &(tpid, tci) in tags {
        frame = frame.tag(tpid, tci);
    }
    frame = match checksums {
        Sum::Correct => frame,
        Sum::Unfinished => frame.unfinished(),
        Sum::OffBy(difference) => frame.wrong_checksum(difference),
        Sum::Zero => frame.zero_checksum(),
    };
    frame.trailer(trailer).build()
}

/// Well built but for one or several of: TTL 0, bad options, deep tags, extension chains past the limits.
fn odd() -> impl Strategy<Value = Vec<u8>> {
    (
        prop_oneof![4 => Just(64u8), 1 => Just(0u8)],
        packet(true),
        tags(6),
        trailer(),
        checksums(),
    )
        .prop_map(|(ttl, packet, tags, trailer, checksums)| {
            finish(packet.ttl(ttl), &tags, &trailer, checksums)
        })
}

/// Well built, then damaged: bytes overwritten, preferably in the headers, and cut; in half of them the lengths and the
/// IPv4 checksum are repaired, so that what lies deeper is reached.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![select(&[0u8, 1, 5, 255][..]), any::<u8>()];
    let edits = vec((any::<Index>(), any::<bool>(), value), 0..4);
    let cut = proptest::option::of((any::<Index>(), any::<bool>()));
    (well_formed(), edits, cut, any::<bool>()).prop_map(|(mut frame, edits, cut, repaired)| {
        for (at, in_headers, value) in edits {
            let within = if in_headers {
                frame.len().min(80)
            } else {
                frame.len()
            };
            let at = at.index(within);
            frame[at] = value;
        }
        if let Some((cut, in_headers)) = cut {
            let within = if in_headers {
                frame.len().min(80)
            } else {
                frame.len()
            };
            frame.truncate(cut.index(within + 1));
        }
        if repaired {
            repair(&mut frame);
        }
        frame
    })
}

/// Makes the IP length what the frame holds, and the IPv4 checksum right.
fn repair(frame: &mut [u8]) {
    let layout = match parse(frame) {
        Ok(layout) => layout,
        Err(malformed) => malformed.partial,
    };
    let header = frame.get_mut(layout.network..).unwrap_or_default();
    let avail = header.len();
    match layout.ether_type {
        0x0800 if avail >= 20 => {
            header[2..4].copy_from_slice(&(avail as u16).to_be_bytes());
            header[10..12].fill(0);
            let len = (usize::from(header[0] & 15) * 4).min(avail);
            let sum = checksum(&header[..len]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        0x86dd if avail >= 40 => header[4..6].copy_from_slice(&((avail - 40) as u16).to_be_bytes()),
        _ => {}
    }
}

fn large() -> impl Strategy<Value = Vec<u8>> {
    (packet(false), checksums(), 1_000usize..9_000, any::<u8>()).prop_map(
        |(packet, checksums, len, seed)| {
            let payload: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(seed | 1)).collect();
            finish(packet.payload(&payload), &[], &[], checksums)
        },
    )
}

/// Random bytes behind an EtherType that is looked into.
fn random() -> impl Strategy<Value = Vec<u8>> {
    let ether_type = prop_oneof![
        select(&[[8u8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8], [8, 6]][..]),
        any::<[u8; 2]>(),
    ];
    (ether_type, vec(any::<u8>(), 0..120)).prop_map(|(ether_type, rest)| {
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&ether_type);
        frame.extend_from_slice(&rest);
        frame
    })
}

fn tags(most: usize) -> impl Strategy<Value = Vec<(u16, u16)>> {
    let tag = (
        select(&[0x8100u16, 0x8100, 0x8100, 0x88a8, 0x9100][..]),
        1u16..=10,
        0u16..=15,
    )
        .prop_map(|(tpid, id, priority)| (tpid, priority << 12 | id));
    prop_oneof![3 => Just(Vec::new()), 2 => vec(tag, 0..=most)]
}

fn trailer() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![5 => Just(Vec::new()), 1 => vec(any::<u8>(), 1..12)]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![2 => Just(Vec::new()), 3 => vec(any::<u8>(), 0..24), 1 => vec(any::<u8>(), 0..200)]
}

/// Network and transport header. `odd` lets options and chains go wrong.
fn packet(odd: bool) -> impl Strategy<Value = Frame> {
    let network = prop_oneof![5 => ip4(odd).boxed(), 4 => ip6(odd).boxed(), 1 => not_ip().boxed()];
    (network, transport(odd), payload()).prop_map(move |((frame, part), transport, mut payload)| {
        // Numbers 1 and 58 make an ICMP header of the payload.
        if matches!(transport, Transport::Other(_)) && payload.len() < 8 && !odd {
            payload.resize(8, 0);
        }
        match part {
            Part::Later => frame.protocol(transport.number()).payload(&payload),
            Part::Any => transport.put_on(frame).payload(&payload),
        }
    })
}

/// Whether a network header may be followed by an L4 header.
#[derive(Clone, Copy, Debug)]
enum Part {
    Any,
    Later,
}

fn not_ip() -> impl Strategy<Value = (Frame, Part)> {
    let ether_type = prop_oneof![Just(0x0806), Just(0x88b5), Just(0x8847), 0u16..0x600];
    ether_type.prop_map(|value| (Frame::new().ether_type(value), Part::Any))
}

fn ip4(odd: bool) -> impl Strategy<Value = (Frame, Part)> {
    const GOOD: &[&[u8]] = &[
        &[],
        &[148, 4, 0, 0],
        &[1, 7, 3, 4],
        &[68, 4, 5, 0, 1, 1],
        &[131, 7, 4, 10, 0, 0, 9],
        &[7; 7],
        &[1; 40],
    ];
    const BAD: &[&[u8]] = &[
        &[7, 0],
        &[7, 1],
        &[7, 9, 4, 0],
        &[1, 1, 1, 7],
        &[7, 3, 4, 0, 7, 2, 1, 9],
    ];
    let options = if odd {
        prop_oneof![3 => select(GOOD), 1 => select(BAD)].boxed()
    } else {
        prop_oneof![4 => Just(GOOD[0]), 1 => select(GOOD)].boxed()
    };
    let fragment = prop_oneof![
        6 => Just(None),
        1 => Just(Some((0u16, true))),
        1 => (1u16..=3, any::<bool>()).prop_map(Some),
        u32::from(odd) => Just(Some((8191, false))),
    ];
    (
        address4(),
        address4(),
        prop_oneof![Just(0), any::<u8>()],
        0u16..4,
        options,
        fragment,
    )
        .prop_map(|(source, destination, tos, id, options, fragment)| {
            let frame = Frame::new()
                .ip4(source, destination)
                .traffic_class(tos)
                .id(id)
                .ip_options(options);
            match fragment {
                Some((offset, more)) => (
                    frame.fragment(offset, more),
                    if offset == 0 { Part::Any } else { Part::Later },
                ),
                None => (frame, Part::Any),
            }
        })
}

fn ip6(odd: bool) -> impl Strategy<Value = (Frame, Part)> {
    let number = select(
        &[
            protocol::HOP_BY_HOP,
            protocol::ROUTING,
            protocol::DESTINATION,
            protocol::AH,
            protocol::FRAGMENT,
            protocol::MOBILITY,
            protocol::HIP,
            protocol::SHIM6,
        ][..],
    );
    let body =
        prop_oneof![4 => Just(6usize), 2 => Just(14), 1 => 0usize..70, u32::from(odd) => Just(254)];
    let most = if odd { 10 } else { 3 };
    let chain = prop_oneof![3 => Just(Vec::new()), 2 => vec((number, body, 0u16..8), 0..=most)];
    let esp = proptest::bool::weighted(0.05);
    (address6(), address6(), any::<u8>(), 0u32..4, chain, esp).prop_map(
        |(source, destination, class, label, chain, esp)| {
            let mut frame = Frame::new()
                .ip6(source, destination)
                .traffic_class(class)
                .flow_label(label);
            let mut part = Part::Any;
            for (number, body, fragment) in chain {
                if number == protocol::FRAGMENT {
                    // Mostly atomic, so that something follows.
                    let (offset, more) = (fragment.saturating_sub(6), fragment == 5);
                    frame = frame.fragment(offset, more);
                    if offset > 0 {
                        part = Part::Later;
                        break;
                    }
                } else {
                    frame = frame.extension(number, &vec![0; body]);
                }
            }
            if esp && matches!(part, Part::Any) {
                return (frame.extension(protocol::ESP, &[0; 6]), Part::Later);
            }
            (frame, part)
        },
    )
}

/// An L4 header to be.
#[derive(Clone, Debug)]
enum Transport {
    Tcp {
        ports: (u16, u16),
        flags: u8,
        numbers: (u32, u32),
        options: Vec<u8>,
    },
    Udp {
        ports: (u16, u16),
        len: Option<u16>,
    },
    Icmp {
        kind: u8,
        code: u8,
    },
    Other(u8),
}

impl Transport {
    fn number(&self) -> u8 {
        match self {
            Transport::Tcp { .. } => protocol::TCP,
            Transport::Udp { .. } => protocol::UDP,
            Transport::Icmp { .. } => protocol::ICMP,
            Transport::Other(number) => *number,
        }
    }

    fn put_on(&self, frame: Frame) -> Frame {
        match self {
            Transport::Tcp {
                ports,
                flags,
                numbers,
                options,
            } => frame
                .tcp(ports.0, ports.1)
                .flags(*flags)
                .numbers(numbers.0, numbers.1)
                .tcp_bytes(options),
            Transport::Udp { ports, len: None } => frame.udp(ports.0, ports.1),
            Transport::Udp {
                ports,
                len: Some(len),
            } => frame.udp(ports.0, ports.1).udp_len(*len),
            Transport::Icmp { kind, code } => frame.icmp(*kind, *code),
            Transport::Other(number) => frame.protocol(*number),
        }
    }
}

fn transport(odd: bool) -> impl Strategy<Value = Transport> {
    let ports = || (port(), port());
    let flags = prop_oneof![
        Just(Frame::SYN),
        Just(Frame::ACK),
        Just(Frame::SYN | Frame::ACK),
        any::<u8>()
    ];
    let numbers = (
        prop_oneof![Just(0), any::<u32>()],
        prop_oneof![Just(0), any::<u32>()],
    );
    let len = prop_oneof![8 => Just(None), 1 => Just(Some(8u16)), u32::from(odd) => (0u16..40).prop_map(Some)];
    let number = select(if odd {
        &[0u8, 43][..]
    } else {
        &[33, 47, 59, 132, 136, 1, 58, 253]
    });
    prop_oneof![
        5 => (ports(), flags, numbers, tcp_bytes(odd))
            .prop_map(|(ports, flags, numbers, options)| Transport::Tcp { ports, flags, numbers, options }),
        3 => (ports(), len).prop_map(|(ports, len)| Transport::Udp { ports, len }),
        1 => (select(&[0u8, 3, 8, 128, 129, 135, 136][..]), 0u8..3).prop_map(|(kind, code)| Transport::Icmp { kind, code }),
        1 => number.prop_map(Transport::Other),
    ]
}

/// TCP options with NOPs and EOL in between.
fn tcp_bytes(odd: bool) -> impl Strategy<Value = Vec<u8>> {
    let whole = tcp_option().prop_map(|(kind, value)| {
        let mut bytes = vec![kind, (value.len() + 2) as u8];
        bytes.extend_from_slice(&value);
        bytes
    });
    let element = prop_oneof![
        8 => whole,
        3 => Just(vec![1]),
        1 => Just(vec![1, 1]),
        1 => Just(vec![0, 0, 0, 0]),
        u32::from(odd) => select(&[[2u8, 0], [2, 1], [253, 255]][..]).prop_map(|bytes| bytes.to_vec()),
    ];
    // A SYN and an established segment as real stacks send them, and 40 bytes to the brim.
    const REAL: &[&[u8]] = &[
        &[
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
        ],
        &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        &[
            253, 40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
            23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38,
        ],
    ];
    prop_oneof![
        2 => Just(Vec::new()),
        2 => select(REAL).prop_map(<[u8]>::to_vec),
        4 => vec(element, 0..6).prop_map(move |elements| {
            // Whole options only, as long as they fit; odd ones may be cut by the end of the header.
            let mut bytes = Vec::new();
            for element in elements {
                if odd || bytes.len() + element.len() <= 40 {
                    bytes.extend_from_slice(&element);
                }
            }
            bytes
        }),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::{Fate, Reason};

    #[test]
    fn every_parser_reason_but_the_longest_frames_is_met() {
        let mut runner = TestRunner::deterministic();
        let strategy = frame();
        let mut seen = BTreeMap::new();
        let mut passed = 0;
        for _ in 0..40_000 {
            let frame = strategy
                .new_tree(&mut runner)
                .expect("no filters")
                .current();
            match parse(&frame) {
                Ok(layout) => {
                    passed += 1;
                    layout
                        .notes
                        .iter()
                        .for_each(|&note| *seen.entry(note).or_insert(0) += 1);
                }
                Err(malformed) => *seen.entry(malformed.reason).or_insert(0) += 1,
            }
        }
        assert!(
            passed > 20_000,
            "only {passed} of 40,000 frames are well formed"
        );
        // The parser's reasons stand together in the list.
        let parsers = Reason::FrameShort.index()..=Reason::IcmpTruncated.index();
        for reason in Reason::ALL
            .iter()
            .filter(|reason| reason.fate() == Fate::Drop)
        {
            let expected = parsers.contains(&reason.index()) && *reason != Reason::FrameLong;
            assert_eq!(seen.contains_key(reason), expected, "{reason}: {seen:?}");
        }
        assert!(seen.contains_key(&Reason::Trailer) && seen.contains_key(&Reason::UdpZeroChecksum));
    }

    proptest! {
        #[test]
        fn well_formed_frames_parse(frame in well_formed()) {
            prop_assert!(parse(&frame).is_ok(), "{:?}", parse(&frame));
        }
    }
}
