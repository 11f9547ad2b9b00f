//! Frames for the properties, made with the packet builder: those a parser passes, and damaged ones.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// TCP option kinds of the pool; targets use the same.
pub(super) const KINDS: &[u8] = &[2, 3, 4, 5, 8, 30, 253];

/// An option of the pool, mostly of the usual length.
pub(super) fn tcp_option() -> impl Strategy<Value = (u8, Vec<u8>)> {
    (select(KINDS), proptest::bool::weighted(0.8)).prop_flat_map(|(kind, usual)| {
        let lengths = match kind {
            2 if usual => 2..=2,
            3 if usual => 1..=1,
            4 if usual => 0..=0,
            5 | 8 if usual => 8..=8,
            _ => 0..=14,
        };
        (Just(kind), vec(prop_oneof![0u8..4, any::<u8>()], lengths))
    })
}

/// Frames that the parser passes.
pub(super) fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    let network = prop_oneof![
        4 => (0u8..4).prop_map(|host| (Frame::new().ip4([10, 0, 0, host], [192, 0, 2, 1]), false)),
        1 => Just((ip4().ip_options(&[1, 148, 4, 0, 0]), false)),
        1 => Just((ip4().fragment(0, true), false)),
        1 => Just((ip4().fragment(2, false), true)),
        3 => Just((ip6(), false)),
        1 => (0usize..40).prop_map(|len| (ip6().extension(60, &vec![0; len]).extension(51, &[0; 10]), false)),
        1 => Just((ip6().fragment(0, false), false)),
        1 => Just((ip6().extension(0, &[]).fragment(0, true), false)),
        1 => Just((ip6().fragment(1, true), true)),
        1 => Just((ip6().extension(50, &[]), true)),
        1 => Just((Frame::new().ether_type(0x0806), false)),
    ];
    let packet = (
        network,
        0u8..12,
        (0u16..4, 0u16..4),
        vec(tcp_option(), 0..5),
        vec(0u8..=1, 0..3),
    )
        .prop_map(
            |((frame, headless), transport, (source, destination), options, gap)| match transport {
                _ if headless => frame.protocol(6),
                0..6 => options.iter().fold(
                    frame.tcp(source, destination).tcp_bytes(&gap),
                    |frame, (kind, value)| {
                        // What does not fit is left out, so that no option is cut.
                        let longer = frame.clone().tcp_option(*kind, value);
                        if parse(&longer.build()).is_ok() {
                            longer
                        } else {
                            frame
                        }
                    },
                ),
                6..9 => frame.udp(source, destination),
                9 | 10 => frame.icmp(8, 0),
                _ => frame.protocol(136).payload(&[7; 9]),
            },
        );
    let payload = prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..30)];
    let trailer = prop_oneof![4 => Just(Vec::new()), 1 => vec(any::<u8>(), 1..5)];
    (packet, 0u16..3, payload, trailer, 0u8..8, any::<u16>()).prop_map(
        |(frame, tags, payload, trailer, sums, off)| {
            let frame = (0..tags)
                .fold(frame, |frame, tag| frame.vlan(tag + 1))
                .payload(&payload)
                .trailer(&trailer);
            match sums {
                0 | 1 => frame.unfinished(),
                2 => frame.wrong_checksum(off),
                3 => frame.zero_checksum(),
                _ => frame,
            }
            .build()
        },
    )
}

/// Frames with bytes overwritten and cut, and random bytes behind an IP EtherType.
pub(super) fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let edits = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let cut =
        (well_formed(), edits, any::<prop::sample::Index>()).prop_map(|(mut frame, edits, cut)| {
            edits.into_iter().for_each(|(at, value)| {
                let at = at.index(frame.len());
                frame[at] = value;
            });
            frame.truncate(1 + cut.index(frame.len() * 2));
            frame
        });
    let noise = (
        select(&[[8u8, 0], [0x86, 0xdd], [0x81, 0]][..]),
        vec(any::<u8>(), 0..100),
    )
        .prop_map(|(ether_type, bytes)| [&[2; 12][..], &ether_type, &bytes].concat());
    prop_oneof![3 => cut, 1 => noise]
}
