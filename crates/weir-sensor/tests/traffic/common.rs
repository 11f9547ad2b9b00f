//! What the tests of decoding, flows and streams share: packets as bytes, captures, and a sink that writes down what it is told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir_packet::checksum;
use weir_packet::pcap::{Capture, LinkType};
use weir_sensor::decode::Decoder;
use weir_sensor::defragment::Defragmenter;
use weir_sensor::event::Events;
use weir_sensor::flow::{Flow, Info, Reason, Sink, Tracked, Tracker};
use weir_sensor::packet::{Direction, Packet};
use weir_sensor::stream::End;

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const RAW: LinkType = LinkType(101);

/// A TCP segment to be.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) to_server: bool,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const CLIENT: [u8; 4] = [10, 0, 0, 1];
pub(crate) const SERVER: [u8; 4] = [10, 0, 0, 2];

/// An IPv4 packet with a right checksum.
pub(crate) fn ipv4(
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    id: u16,
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&fragment.to_be_bytes());
    bytes.extend_from_slice(&[64, protocol, 0, 0]);
    bytes.extend_from_slice(&source);
    bytes.extend_from_slice(&destination);
    let sum = checksum::checksum(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Writes the checksum of a TCP, UDP or ICMPv6 message over IPv4 at `at`.
pub(crate) fn seal(
    message: &mut [u8],
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    at: usize,
) {
    let total = checksum::sum(message)
        + checksum::pseudo_header4(source, destination, protocol, message.len() as u32);
    let sum = !checksum::fold(total);
    message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

pub(crate) fn udp(
    source: [u8; 4],
    destination: [u8; 4],
    ports: (u16, u16),
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&ports.0.to_be_bytes());
    bytes.extend_from_slice(&ports.1.to_be_bytes());
    bytes.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(payload);
    seal(&mut bytes, source, destination, 17, 6);
    bytes
}

impl Segment {
    pub(crate) fn new(
        to_server: bool,
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
        payload: &[u8],
    ) -> Segment {
        Segment {
            to_server,
            sequence,
            acknowledgement,
            flags,
            window: 65_535,
            options: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    /// The packet, between the client's port `port` and the server's port 80.
    pub(crate) fn packet(&self, port: u16) -> Vec<u8> {
        let (source, destination) = if self.to_server {
            (CLIENT, SERVER)
        } else {
            (SERVER, CLIENT)
        };
        self.between(
            source,
            destination,
            if self.to_server {
                (port, 80)
            } else {
                (80, port)
            },
        )
    }

    pub(crate) fn between(
        &self,
        source: [u8; 4],
        destination: [u8; 4],
        ports: (u16, u16),
    ) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend_from_slice(&ports.0.to_be_bytes());
        tcp.extend_from_slice(&ports.1.to_be_bytes());
        tcp.extend_from_slice(&self.sequence.to_be_bytes());
        tcp.extend_from_slice(&self.acknowledgement.to_be_bytes());
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        tcp.extend_from_slice(&[((20 + options.len()) / 4 * 16) as u8, self.flags]);
        tcp.extend_from_slice(&self.window.to_be_bytes());
        tcp.extend_from_slice(&[0; 4]);
        tcp.extend_from_slice(&options);
        tcp.extend_from_slice(&self.payload);
        seal(&mut tcp, source, destination, 6, 16);
        ipv4(source, destination, 6, 1, 0x4000, &tcp)
    }
}

/// What is known of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Heard {
    pub(crate) bytes: Vec<u8>,
    /// Where gaps were, and how long.
    pub(crate) gaps: Vec<(usize, u64)>,
    pub(crate) end: Option<String>,
}

/// Writes down what it is told, by flow.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) streams: BTreeMap<u64, [Heard; 2]>,
    pub(crate) finished: Vec<(u64, Reason)>,
    /// Do not keep bytes.
    pub(crate) only_count: bool,
    pub(crate) count: u64,
}

impl<X> Sink<X> for Notes {
    fn data(&mut self, flow: &Info, _: &mut X, direction: Direction, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "no empty call");
        self.count += bytes.len() as u64;
        if self.only_count {
            return;
        }
        let heard = &mut self.streams.entry(flow.id).or_default()[direction.index()];
        assert_eq!(heard.end, None, "bytes after the end");
        heard.bytes.extend_from_slice(bytes);
    }

    fn gap(&mut self, flow: &Info, _: &mut X, direction: Direction, length: u64) {
        assert!(length > 0);
        if self.only_count {
            return;
        }
        let heard = &mut self.streams.entry(flow.id).or_default()[direction.index()];
        assert_eq!(heard.end, None, "a gap after the end");
        heard.gaps.push((heard.bytes.len(), length));
    }

    fn end(&mut self, flow: &Info, _: &mut X, direction: Direction, end: End) {
        if self.only_count {
            return;
        }
        let heard = &mut self.streams.entry(flow.id).or_default()[direction.index()];
        assert_eq!(heard.end.replace(format!("{end:?}")), None, "one end");
    }

    fn finished(&mut self, flow: &mut Flow<X>, reason: Reason) {
        if !self.only_count {
            self.finished.push((flow.info.id, reason));
        }
    }
}

/// Decoding to streams: what a worker does, without detection.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) decoder: Decoder,
    pub(crate) defragmenter: Defragmenter,
    pub(crate) tracker: Tracker<()>,
    pub(crate) notes: Notes,
    pub(crate) number: u64,
    pub(crate) time: u64,
}

impl Line {
    pub(crate) fn new(decoder: Decoder, tracker: Tracker<()>) -> Line {
        Line {
            decoder,
            defragmenter: Defragmenter::default(),
            tracker,
            notes: Notes::default(),
            number: 0,
            time: 0,
        }
    }

    /// A frame through all stages; what the tracker said of the last packet in it, and all events.
    pub(crate) fn frame(
        &mut self,
        link: LinkType,
        time: u64,
        frame: &[u8],
    ) -> (Option<Tracked>, Events) {
        self.number += 1;
        let packet = self.decoder.frame(link, time, self.number, frame);
        let mut events = Events::default();
        let tracked = take(
            &mut self.decoder,
            &mut self.defragmenter,
            &mut self.tracker,
            &mut self.notes,
            &packet,
            &mut events,
        );
        (tracked, events)
    }

    /// A raw IP packet, a millisecond after the last.
    pub(crate) fn ip(&mut self, packet: &[u8]) -> (Option<Tracked>, Events) {
        self.time += 1_000_000;
        self.frame(RAW, self.time, packet)
    }
}

fn take(
    decoder: &mut Decoder,
    defragmenter: &mut Defragmenter,
    tracker: &mut Tracker<()>,
    notes: &mut Notes,
    packet: &Packet<'_>,
    events: &mut Events,
) -> Option<Tracked> {
    events.extend(packet.events);
    let mut last = tracker.packet(packet, notes);
    if let Some(tracked) = &last {
        events.extend(tracked.events);
    }
    if packet.ip.as_ref().is_some_and(|ip| ip.fragment) {
        let mut found = Events::default();
        let whole = defragmenter
            .fragment(packet, &mut found)
            .map(|d| Decoder::whole(packet, d));
        decoder.count(found);
        events.extend(found);
        if let Some(whole) = whole {
            let datagram = decoder.datagram(packet, &whole);
            last = take(decoder, defragmenter, tracker, notes, &datagram, events);
        }
    } else if let Some(inner) = decoder.inner(packet) {
        last = take(decoder, defragmenter, tracker, notes, &inner, events);
    }
    last
}

/// All captures of the test data, in the order of their paths; `None` without it.
pub(crate) fn captures() -> Option<Vec<PathBuf>> {
    let data = weir_testdata::find("")?;
    let mut found = Vec::new();
    let mut folders = vec![data];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|e| e == "pcap" || e == "pcapng")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Some(found)
}

/// A capture's frames as far as it can be read.
pub(crate) fn frames(path: &Path) -> Vec<(LinkType, u64, Vec<u8>)> {
    let mut frames = Vec::new();
    let Ok(file) = std::fs::File::open(path) else {
        return frames;
    };
    let Ok(mut capture) = Capture::open(std::io::BufReader::new(file)) else {
        return frames;
    };
    while let Ok(Some(packet)) = capture.next_packet() {
        frames.push((
            packet.interface.link_type,
            packet.timestamp_ns,
            packet.data.to_vec(),
        ));
    }
    frames
}
