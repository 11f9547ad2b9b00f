//! Fragments: the published example of overlaps, a byte-map reference, IPv6, caps and timeouts.

use std::collections::BTreeMap;

use super::common::{CLIENT, RAW, SECOND, SERVER};
use proptest::prelude::*;
use weir_sensor::decode::Decoder;
use weir_sensor::defragment::{DefragConfig, Defragmenter, Policy};
use weir_sensor::event::{Event, Events};
use weir_sensor::packet::Transport;

/// A fragment of a datagram of protocol 253 (for experiments). `start` in units of 8 bytes.
fn fragment(id: u16, start: u16, more: bool, bytes: &[u8]) -> Vec<u8> {
    super::common::ipv4(
        CLIENT,
        SERVER,
        253,
        id,
        start | if more { 0x2000 } else { 0 },
        bytes,
    )
}

struct Line {
    decoder: Decoder,
    defragmenter: Defragmenter,
    time: u64,
}

impl Line {
    fn new(config: DefragConfig) -> Line {
        Line {
            decoder: Decoder::default(),
            defragmenter: Defragmenter::new(config),
            time: 0,
        }
    }

    /// What a whole datagram carries.
    fn take(&mut self, packet: &[u8]) -> (Option<Vec<u8>>, Events) {
        self.time += 1_000_000;
        let packet = self.decoder.frame(RAW, self.time, 1, packet);
        let mut events = packet.events;
        let whole = self
            .defragmenter
            .fragment(&packet, &mut events)
            .map(<[u8]>::to_vec);
        let whole = whole.map(|bytes| {
            let datagram = self.decoder.datagram(&packet, &bytes);
            assert!(
                datagram.reassembled && !datagram.ip.as_ref().expect("IP").fragment,
                "{datagram:?}"
            );
            assert!(!datagram.events.has(Event::Ipv4Checksum));
            datagram.payload().to_vec()
        });
        (whole, events)
    }

    fn check(&mut self) {
        self.defragmenter.shutdown();
        let c = *self.defragmenter.counts();
        assert_eq!(
            c.fragments,
            c.used + c.timeout + c.evicted + c.dropped + c.overlap + c.invalid,
            "{c:?}"
        );
        assert_eq!((c.pending, self.defragmenter.memory()), (0, 0));
    }
}

/// The example of "Active Mapping" (Shankar and Paxson 2003), by which policies are told apart.
#[test]
fn the_published_example() {
    for (policy, expected) in [
        (Policy::First, "111422333666"),
        (Policy::Last, "144442555666"),
        (Policy::Bsd, "111442333666"),
        (Policy::BsdRight, "144422555666"),
        (Policy::Linux, "111442555666"),
        (Policy::Windows, "111422333666"),
        (Policy::Solaris, "111422333666"),
    ] {
        let mut line = Line::new(DefragConfig {
            policy,
            ..DefragConfig::default()
        });
        let mut whole = None;
        for (name, start, length) in [
            (b'1', 0, 3),
            (b'2', 4, 2),
            (b'3', 6, 3),
            (b'4', 1, 4),
            (b'5', 6, 3),
            (b'6', 9, 3),
        ] {
            let (found, events) =
                line.take(&fragment(1, start, name != b'6', &vec![name; length * 8]));
            assert_eq!(
                events.has(Event::Ipv4FragmentOverlap),
                matches!(name, b'4' | b'5'),
                "{}",
                char::from(name)
            );
            whole = found;
        }
        let units: String = whole
            .expect("a datagram")
            .chunks(8)
            .map(|unit| char::from(unit[0]))
            .collect();
        assert_eq!(units, expected, "{policy:?}");
        line.check();
    }
}

#[test]
fn windows_and_solaris_differ_from_first() {
    // The new fragment covers one that is held: beyond both ends, or from before to its end.
    for (policy, both, end) in [
        (Policy::First, b'a', b'a'),
        (Policy::Windows, b'b', b'a'),
        (Policy::Solaris, b'b', b'b'),
    ] {
        for (length, winner) in [(4, both), (3, end)] {
            let mut line = Line::new(DefragConfig {
                policy,
                ..DefragConfig::default()
            });
            line.take(&fragment(1, 0, true, &[b'x'; 8]));
            line.take(&fragment(1, 2, true, &[b'a'; 16]));
            line.take(&fragment(1, 1, true, &vec![b'b'; length * 8]));
            let whole = line
                .take(&fragment(1, 1 + length as u16, false, &[b'z'; 8]))
                .0
                .expect("a datagram");
            assert_eq!(whole[16], winner, "{policy:?} {length}");
        }
    }
}

/// The longest prefix that names the receiver decides, in whichever order prefixes are given; of two that are the same, the last.
#[test]
fn the_receivers_prefix_chooses_the_policy() {
    let [a, b, c, d] = SERVER;
    let network = [a, b, c, 0];
    let (first, last) = (Policy::First, Policy::Last);
    let host = |address: [u8; 4], length, policy| (address.into(), length, policy);
    let elsewhere = host([192, 0, 2, 0], 24, first);
    for (hosts, default, new) in [
        (vec![], first, false),
        (vec![], last, true),
        (vec![host(SERVER, 32, last)], first, true),
        (vec![host([a, b, c, d ^ 1], 32, last)], first, false),
        (vec![host([0; 4], 0, last), elsewhere], first, true),
        (
            vec![host(SERVER, 32, last), host(network, 24, first)],
            first,
            true,
        ),
        (
            vec![host(network, 24, first), host(SERVER, 32, last)],
            first,
            true,
        ),
        (
            vec![host(network, 24, last), host([0; 4], 0, first)],
            first,
            true,
        ),
        (
            vec![host(network, 24, first), host(network, 24, last)],
            first,
            true,
        ),
        (
            vec![host(network, 24, last), host(network, 24, first)],
            last,
            false,
        ),
    ] {
        let what = format!("{hosts:?}, else {default:?}");
        let mut line = Line::new(DefragConfig {
            policy: default,
            hosts,
            ..DefragConfig::default()
        });
        line.take(&fragment(1, 0, true, &[b'o'; 8]));
        line.take(&fragment(1, 0, true, &[b'n'; 8]));
        let whole = line.take(&fragment(1, 1, false, b"z")).0.expect(&what);
        assert_eq!(whole[0] == b'n', new, "{what}");
    }
}

fn ipv6_fragment(id: u32, start: u16, more: bool, options: bool, bytes: &[u8]) -> Vec<u8> {
    let extension = if options { 8 } else { 0 };
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(bytes.len() as u16 + 8 + extension).to_be_bytes());
    packet.extend_from_slice(&[if options { 60 } else { 44 }, 64]);
    packet.extend_from_slice(&[1; 16]);
    packet.extend_from_slice(&[2; 16]);
    if options {
        packet.extend_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0]);
    }
    packet.extend_from_slice(&[17, 0]);
    packet.extend_from_slice(&(start << 3 | u16::from(more)).to_be_bytes());
    packet.extend_from_slice(&id.to_be_bytes());
    packet.extend_from_slice(bytes);
    packet
}

#[test]
fn ipv6_with_a_header_before_the_fragment_header() {
    for options in [false, true] {
        let mut decoder = Decoder::new(weir_sensor::decode::DecodeConfig {
            checksums: false,
            ..Default::default()
        });
        let mut defragmenter = Defragmenter::default();
        let mut udp = vec![0, 9, 0, 53, 0, 40, 0, 0];
        udp.extend_from_slice(&[b'q'; 32]);
        let second = ipv6_fragment(7, 3, false, options, &udp[24..]);
        let first = ipv6_fragment(7, 0, true, options, &udp[..24]);
        let packet = decoder.frame(RAW, 0, 1, &second);
        assert!(
            defragmenter
                .fragment(&packet, &mut Events::default())
                .is_none()
        );
        let packet = decoder.frame(RAW, 1, 2, &first);
        let whole = defragmenter
            .fragment(&packet, &mut Events::default())
            .expect("a datagram")
            .to_vec();
        let datagram = decoder.datagram(&packet, &whole);
        assert_eq!(datagram.payload(), [b'q'; 32]);
        assert!(
            matches!(
                datagram.transport,
                Transport::Udp {
                    destination: 53,
                    ..
                }
            ),
            "{datagram:?}"
        );
        assert_eq!(datagram.ip.expect("IP").protocol, 17);
    }
}

#[test]
fn ipv6_fragments_that_overlap_lose_their_datagram() {
    let mut line = Line::new(DefragConfig::default());
    line.take(&ipv6_fragment(7, 0, true, false, &[1; 16]));
    assert!(
        line.take(&ipv6_fragment(7, 0, true, false, &[1; 16]))
            .1
            .is_empty(),
        "an exact copy is none"
    );
    assert!(
        line.take(&ipv6_fragment(7, 1, true, false, &[1; 16]))
            .1
            .has(Event::Ipv6FragmentOverlap)
    );
    let (whole, events) = line.take(&ipv6_fragment(7, 2, false, false, &[1; 16]));
    assert!(whole.is_none() && events.has(Event::Ipv6FragmentIgnored));
    assert!(
        line.take(&ipv6_fragment(8, 0, true, false, &[1; 15]))
            .1
            .has(Event::Ipv6FragmentLength)
    );
    line.check();
    assert_eq!(
        (
            line.defragmenter.counts().overlap,
            line.defragmenter.counts().invalid
        ),
        (4, 1)
    );
}

#[test]
fn fragments_that_cannot_be() {
    let mut line = Line::new(DefragConfig::default());
    assert!(
        line.take(&fragment(1, 8190, false, &[0; 100]))
            .1
            .has(Event::Ipv4FragmentTooLarge)
    );
    assert!(line.take(&fragment(1, 0, true, &[0; 7])).0.is_none());
    // The end cannot move, and nothing lies beyond it.
    line.take(&fragment(2, 2, false, &[0; 8]));
    assert!(
        line.take(&fragment(2, 1, false, &[0; 8]))
            .1
            .has(Event::Ipv4FragmentIgnored)
    );
    assert!(
        line.take(&fragment(2, 3, true, &[0; 8]))
            .1
            .has(Event::Ipv4FragmentIgnored)
    );
    assert_eq!(
        line.take(&fragment(2, 0, true, &[0; 16]))
            .0
            .expect("a datagram")
            .len(),
        24
    );
    // A last one inside of another: what once made systems crash.
    line.take(&fragment(3, 0, true, &[0; 40]));
    assert!(
        line.take(&fragment(3, 3, false, &[0; 4]))
            .1
            .has(Event::Ipv4FragmentOverlap)
    );
    line.check();
    assert_eq!(line.defragmenter.counts().invalid, 5);
}

#[test]
fn what_is_no_multiple_of_eight_bytes_is_cut() {
    let mut line = Line::new(DefragConfig::default());
    line.take(&fragment(1, 0, true, b"whole123cut"));
    let (whole, _) = line.take(&fragment(1, 1, false, b"end"));
    assert_eq!(whole.as_deref(), Some(b"whole123end".as_slice()));
    line.check();
}

#[test]
fn a_datagram_may_not_take_longer_than_its_timeout() {
    let mut line = Line::new(DefragConfig {
        timeout: 30,
        ..DefragConfig::default()
    });
    line.take(&fragment(1, 0, true, &[0; 8]));
    line.time += 31 * SECOND;
    assert!(line.take(&fragment(1, 1, false, &[0; 8])).0.is_none());
    assert_eq!(line.defragmenter.counts().timeout, 1);
    assert!(line.take(&fragment(1, 0, true, &[0; 8])).0.is_some());
    line.check();
}

#[test]
fn a_flood_stays_within_the_caps() {
    let memory = 100_000;
    let mut line = Line::new(DefragConfig {
        memory,
        datagrams: 150,
        fragments: 10,
        ..DefragConfig::default()
    });
    for id in 0..5000 {
        line.take(&fragment(id, 1, true, &[0; 64]));
        assert!(line.defragmenter.memory() <= memory);
    }
    assert_eq!(line.defragmenter.counts().evicted, 4850);
    // What comes last is still put together.
    line.take(&fragment(6000, 0, true, &[0; 64]));
    assert!(line.take(&fragment(6000, 8, false, &[0; 64])).0.is_some());
    // One datagram of very many fragments.
    for start in 0..100 {
        line.take(&fragment(7000, start * 2, true, &[0; 8]));
        assert!(line.defragmenter.memory() <= memory);
    }
    line.check();
    let counts = line.defragmenter.counts();
    assert_eq!((counts.used, counts.dropped), (2, 100));
    assert!(counts.peak <= memory as u64);
}

fn takes_new(policy: Policy, held: &std::ops::Range<usize>, new: &std::ops::Range<usize>) -> bool {
    match policy {
        Policy::First => false,
        Policy::Last => true,
        Policy::Bsd => held.start > new.start,
        Policy::BsdRight => held.start <= new.start,
        Policy::Linux => held.start >= new.start,
        Policy::Windows => held.start > new.start && held.end < new.end,
        Policy::Solaris => held.start > new.start && held.end <= new.end,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if std::env::var_os("WEIR_LONG").is_some() { 5000 } else { 200 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same datagram as by a map of units that know their fragment.
    #[test]
    fn overlaps_are_decided_as_by_the_map(parts in prop::collection::vec((0_usize..20, 1_usize..8), 1..16), policy in prop::sample::select(&Policy::ALL[..])) {
        let mut line = Line::new(DefragConfig { policy, ..DefragConfig::default() });
        let mut units: BTreeMap<usize, usize> = BTreeMap::new();
        // Holes are filled at last, and then the end comes.
        let mut all: Vec<(usize, usize)> = parts.clone();
        let end = 40;
        all.extend((0..end).map(|at| (at, 1)));
        let mut whole = None;
        for (id, (start, length)) in all.iter().enumerate() {
            if id >= parts.len() && units.contains_key(start) {
                continue;
            }
            let new = *start..start + length;
            let mut winners = Vec::new();
            for at in new.clone() {
                let wins = units.get(&at).is_none_or(|owner| {
                    let same = |o: usize| units.get(&o) == Some(owner);
                    let (mut from, mut to) = (at, at + 1);
                    while from > 0 && same(from - 1) { from -= 1; }
                    while same(to) { to += 1; }
                    takes_new(policy, &(from..to), &new)
                });
                if wins { winners.push(at); }
            }
            for at in winners {
                units.insert(at, id);
            }
            whole = line.take(&fragment(1, *start as u16, *start + length < end, &vec![id as u8; length * 8])).0;
        }
        let expected: Vec<u8> = units.values().map(|id| *id as u8).collect();
        let found: Vec<u8> = whole.expect("a datagram").chunks(8).map(|u| u[0]).collect();
        prop_assert_eq!(found, expected);
        line.check();
    }

    /// Any order of the fragments of a datagram.
    #[test]
    fn order_changes_nothing(bytes in prop::collection::vec(any::<u8>(), 9..2000), unit in 1_usize..60, order in prop::collection::vec(any::<u64>(), 1..40)) {
        let mut line = Line::new(DefragConfig::default());
        let mut parts: Vec<_> = bytes.chunks(unit * 8).enumerate().map(|(i, part)| (order[i % order.len()], i, part)).collect();
        prop_assume!(parts.len() > 1);
        parts.sort_unstable();
        let last = bytes.len().div_ceil(unit * 8) - 1;
        let mut whole = None;
        for (_, i, part) in &parts {
            prop_assert!(whole.is_none());
            whole = line.take(&fragment(9, (i * unit) as u16, *i != last, part)).0;
        }
        prop_assert_eq!(whole.expect("a datagram"), bytes);
        line.check();
    }
}
