//! The sensor's stages before the application layer: decoding, fragments, flows and streams.

use weir_packet::pcap::LinkType;
use weir_sensor::decode::{self, Decoder, spread};
use weir_sensor::defragment::{self, Defragmenter};
use weir_sensor::event::Events;
use weir_sensor::flow::{self, Flow, Info, Reason, Sink, Tracker};
use weir_sensor::packet::{Direction, Packet, Transport};
use weir_sensor::stream::{self, End, Policy};

/// Link types, by the first byte of the input.
const LINKS: [u16; 12] = [1, 101, 113, 276, 0, 108, 9, 50, 51, 104, 228, 229];

/// Decodes a frame and all that it carries: every offset lies inside of its packet, and every packet is counted once.
pub fn decode(data: &[u8]) {
    let Some((link, frame)) = data.split_first() else {
        return;
    };
    let link = LinkType(LINKS[usize::from(*link) % LINKS.len()]);
    let mut decoder = Decoder::default();
    let mut packet = decoder.frame(link, 1, 1, frame);
    assert_eq!(packet.spread, spread(link, frame));
    let mut packets = 1;
    loop {
        assert_inside(&packet);
        let Some(inner) = decoder.inner(&packet) else {
            break;
        };
        assert_eq!(inner.depth, packet.depth + 1);
        packet = inner;
        packets += 1;
    }
    let counts = decoder.counts();
    assert_eq!(counts.packets, packets);
    assert_eq!(counts.ip + counts.not_ip + counts.invalid, packets);
}

fn assert_inside(packet: &Packet<'_>) {
    let inside = |range: &std::ops::Range<usize>| {
        assert!(
            range.start <= range.end && range.end <= packet.data.len(),
            "{range:?}"
        )
    };
    inside(&packet.payload);
    if let Some(ip) = &packet.ip {
        inside(&ip.header);
    }
    if let Some((_, range)) = &packet.inner {
        inside(range);
    }
    match &packet.transport {
        Transport::Tcp(tcp) => inside(&tcp.header),
        Transport::Udp { header, .. }
        | Transport::Sctp { header, .. }
        | Transport::Icmp { header, .. } => inside(&(*header..header + 8)),
        Transport::None => {}
    }
}

/// Fragments of four bytes of input each, of both versions of IP, under small caps: accounts are exact, caps hold, datagrams decode.
pub fn defragment(data: &[u8]) {
    let Some((policy, rest)) = data.split_first() else {
        return;
    };
    let config = defragment::DefragConfig {
        policy: defragment::Policy::ALL[usize::from(*policy) % defragment::Policy::ALL.len()],
        memory: 20_000,
        datagrams: 6,
        fragments: 20,
        timeout: 3,
        ..defragment::DefragConfig::default()
    };
    let memory = config.memory;
    let mut defragmenter = Defragmenter::new(config);
    let mut decoder = Decoder::new(decode::DecodeConfig {
        checksums: false,
        ..decode::DecodeConfig::default()
    });
    for (i, &[kind, at, length, flags]) in rest.as_chunks::<4>().0.iter().enumerate() {
        let bytes = vec![i as u8; usize::from(length) + 1];
        let start = u16::from(at) | u16::from(kind & 0x10) << 8;
        let packet = if kind & 1 == 0 {
            let mut packet = vec![
                0x45,
                0,
                0,
                0,
                0,
                kind >> 1 & 3,
                0,
                0,
                64,
                17,
                0,
                0,
                10,
                0,
                0,
                1,
                10,
                0,
                0,
                2,
            ];
            packet[2..4].copy_from_slice(&(20 + bytes.len() as u16).to_be_bytes());
            packet[6..8]
                .copy_from_slice(&(start & 0x1fff | u16::from(flags & 1) << 13).to_be_bytes());
            packet.extend_from_slice(&bytes);
            packet
        } else {
            let mut packet = vec![0x60, 0, 0, 0, 0, 0, 44, 64];
            packet[4..6].copy_from_slice(&(8 + bytes.len() as u16).to_be_bytes());
            packet.extend_from_slice(&[1; 32]);
            packet.extend_from_slice(&[60, 0]);
            packet.extend_from_slice(&(start << 3 | u16::from(flags & 1)).to_be_bytes());
            packet.extend_from_slice(&[0, 0, 0, kind >> 1 & 3]);
            packet.extend_from_slice(&bytes);
            packet
        };
        let time = i as u64 * u64::from(flags >> 4) * 100_000_000;
        let packet = decoder.frame(LinkType(101), time, 1, &packet);
        let mut events = Events::default();
        if let Some(whole) = defragmenter.fragment(&packet, &mut events) {
            let datagram = decoder.datagram(&packet, whole);
            assert!(datagram.ip.as_ref().is_some_and(|ip| !ip.fragment));
            assert_inside(&datagram);
        }
        assert!(defragmenter.memory() <= memory);
    }
    defragmenter.shutdown();
    let c = defragmenter.counts();
    assert_eq!(
        c.fragments,
        c.used + c.timeout + c.evicted + c.dropped + c.overlap + c.invalid
    );
    assert_eq!((c.pending, defragmenter.memory()), (0, 0));
}

/// Counts what it is given, and checks that nothing comes after an end.
#[derive(Default)]
struct Count {
    bytes: u64,
    finished: u64,
}

impl Sink<[bool; 2]> for Count {
    fn data(&mut self, _: &Info, ended: &mut [bool; 2], direction: Direction, bytes: &[u8]) {
        assert!(!bytes.is_empty() && !ended[direction.index()]);
        self.bytes += bytes.len() as u64;
    }

    fn gap(&mut self, _: &Info, ended: &mut [bool; 2], direction: Direction, length: u64) {
        assert!(length > 0 && !ended[direction.index()]);
    }

    fn end(&mut self, _: &Info, ended: &mut [bool; 2], direction: Direction, _: End) {
        assert!(!std::mem::replace(&mut ended[direction.index()], true));
    }

    fn finished(&mut self, flow: &mut Flow<[bool; 2]>, _: Reason) {
        assert!(flow.tcp.is_none() || flow.extra == [true; 2]);
        self.finished += 1;
    }
}

/// Segments of eight bytes of input each, of three connections, under small caps: the ledger is exact, caps hold.
pub fn stream(data: &[u8]) {
    let Some((&[policy, settings], rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let memory = 4096 << (settings >> 5);
    let streams = stream::StreamConfig {
        policy: Policy::ALL[usize::from(policy) % Policy::ALL.len()],
        depth: [if settings & 8 == 0 { 0 } else { 300 }; 2],
        memory,
        max_pieces: 6,
        midstream: settings & 1 != 0,
        one_sided: settings & 2 != 0,
        inline: settings & 4 != 0,
        ..stream::StreamConfig::default()
    };
    let flows = flow::FlowConfig {
        flows: if settings & 16 == 0 { 2 } else { 100 },
        ..flow::FlowConfig::default()
    };
    let mut tracker: Tracker<[bool; 2]> = Tracker::new(flows, streams);
    let mut decoder = Decoder::new(decode::DecodeConfig {
        checksums: false,
        ..decode::DecodeConfig::default()
    });
    let mut sink = Count::default();
    for (i, &[kind, flags, offset, length, ack, ack_high, window, stamp]) in
        rest.as_chunks::<8>().0.iter().enumerate()
    {
        let mut packet = vec![
            0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let port = 1000 + u16::from(kind >> 1 & 3) % 3;
        let ports = if kind & 1 == 0 {
            [port, 80]
        } else {
            packet[12..20].rotate_left(4);
            [80, port]
        };
        ports
            .iter()
            .for_each(|p| packet.extend_from_slice(&p.to_be_bytes()));
        // Far away at times: all of the sequence space is reached by the high bits.
        let far = u32::from(kind >> 3 & 7) * 0x2000_0000;
        packet.extend_from_slice(
            &0xffff_ff80_u32
                .wrapping_add(u32::from(offset))
                .wrapping_add(if kind & 0x40 != 0 { far } else { 0 })
                .to_be_bytes(),
        );
        packet.extend_from_slice(
            &0xffff_ff80_u32
                .wrapping_add(u32::from(ack) | u32::from(ack_high & 3) << 14)
                .to_be_bytes(),
        );
        packet.extend_from_slice(&[
            0x80, flags, window, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, stamp, 0, 0, 0, 0,
        ]);
        packet.resize(packet.len() + usize::from(length), i as u8);
        // The data offset of 8 words: 12 bytes of options.
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        let time = i as u64
            * if kind & 0x80 != 0 {
                20_000_000_000
            } else {
                1_000_000
            };
        let packet = decoder.frame(LinkType(101), time, i as u64 + 1, &packet);
        tracker.packet(&packet, &mut sink);
        let (held, peak) = tracker.streams().memory();
        assert!(held <= memory && peak <= memory);
        let ledger = tracker.streams().ledger();
        assert!(ledger.settled() <= ledger.payload);
    }
    tracker.shutdown(&mut sink);
    let ledger = tracker.streams().ledger();
    assert_eq!(ledger.settled(), ledger.payload);
    assert_eq!(ledger.delivered, sink.bytes);
    assert_eq!(tracker.streams().memory().0, 0);
    assert_eq!(tracker.counts().made, sink.finished);
    assert_eq!(tracker.memory(), 0);
}
