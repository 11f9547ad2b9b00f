//! Decoding: captured bytes to a [`Packet`] of offsets. Nothing is copied, nothing allocated, nothing panics.
//!
//! A packet that carries another one says so in `Packet::inner`; the caller asks for it with [`Decoder::inner`], so that it decides what happens between the layers (a fragment
//! is put together before what it carries is decoded) and no callback is needed. What is wrong is an [`Event`] of the packet, counted by name.

#![warn(clippy::indexing_slicing)]

mod arp;
mod ip;
mod link;
mod sum;
mod transport;
mod tunnel;

use std::net::IpAddr;

use weir_packet::pcap::LinkType;

pub(crate) use arp::Arp;

use crate::event::{Event, EventCounts};
use crate::packet::{Carried, Ip, Packet, Transport};

/// What is known of a frame's checksums before it is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sums {
    /// Nothing: they are verified.
    #[default]
    Unknown,
    /// That of the outermost transport header is right, as who received the frame has found.
    Valid,
    /// Those of transport headers are not filled in, as the sender leaves that to the device.
    Unfinished,
    /// They are not to be looked at.
    Ignored,
}

/// How packets are decoded.
#[derive(Clone, Debug)]
pub struct DecodeConfig {
    /// Whether checksums of IPv4, TCP, UDP and ICMP are verified (`-k all`, or not: `-k none`).
    pub checksums: bool,
    /// How many tunnels in each other are followed.
    pub depth: u8,
    /// Ports of VXLAN; none: not decoded.
    pub vxlan: Vec<u16>,
    /// Ports of Geneve.
    pub geneve: Vec<u16>,
    /// Ports of Teredo.
    pub teredo: Vec<u16>,
}

impl Default for DecodeConfig {
    fn default() -> Self {
        DecodeConfig {
            checksums: true,
            depth: 8,
            vxlan: vec![4789],
            geneve: vec![6081],
            teredo: vec![3544],
        }
    }
}

/// What was decoded. `ip + not_ip + invalid == packets`, of frames, carried packets and reassembled datagrams together.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Captured frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames, carried packets and reassembled datagrams.
    pub packets: u64,
    /// Those with a whole IP header.
    pub ip: u64,
    /// Those of other protocols.
    pub not_ip: u64,
    /// Those whose headers before IP, or whose IP header, are broken.
    pub invalid: u64,
    /// IPv4.
    pub ipv4: u64,
    /// IPv6.
    pub ipv6: u64,
    /// TCP headers.
    pub tcp: u64,
    /// UDP headers.
    pub udp: u64,
    /// SCTP headers.
    pub sctp: u64,
    /// ICMP headers.
    pub icmpv4: u64,
    /// ICMPv6 headers.
    pub icmpv6: u64,
    /// Fragments.
    pub fragments: u64,
    /// Ethernet headers.
    pub ethernet: u64,
    /// Packets with VLAN tags.
    pub vlan: u64,
    /// Packets with more than one.
    pub vlan_qinq: u64,
    /// Packets with more than two.
    pub vlan_qinqinq: u64,
    /// Packets with MPLS labels.
    pub mpls: u64,
    /// VN tags.
    pub vntag: u64,
    /// Network service headers.
    pub nsh: u64,
    /// PPPoE sessions.
    pub pppoe: u64,
    /// PPP headers.
    pub ppp: u64,
    /// Linux cooked headers.
    pub sll: u64,
    /// Those of version 2.
    pub sll2: u64,
    /// Cisco's HDLC.
    pub chdlc: u64,
    /// Loopback headers.
    pub null: u64,
    /// Raw IP.
    pub raw: u64,
    /// ARP.
    pub arp: u64,
    /// GRE headers.
    pub gre: u64,
    /// ERSPAN headers.
    pub erspan: u64,
    /// IP in IP: in IPv4 and in IPv6, of IPv4 and of IPv6 each.
    pub ip_in_ip: [[u64; 2]; 2],
    /// VXLAN headers.
    pub vxlan: u64,
    /// Geneve headers.
    pub geneve: u64,
    /// Teredo packets.
    pub teredo: u64,
    /// ESP packets.
    pub esp: u64,
    /// TCP packets with SYN and no ACK.
    pub syn: u64,
    /// With both.
    pub synack: u64,
    /// With RST.
    pub rst: u64,
    /// The longest frame seen.
    pub max_size: u64,
    /// The deepest packet seen.
    pub max_depth: u8,
}

/// Decodes packets.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    config: DecodeConfig,
    counts: Counts,
    events: EventCounts,
    /// How many label stacks over each other are being decoded.
    nested: u8,
    /// Of the frame that is decoded.
    sums: Sums,
}

impl Decoder {
    /// One of a worker.
    pub fn new(config: DecodeConfig) -> Decoder {
        Decoder {
            config,
            ..Decoder::default()
        }
    }

    /// What was decoded until now.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How often each event happened.
    pub fn events(&self) -> &EventCounts {
        &self.events
    }

    /// Decodes a captured frame. `number`: its number in the run, from 1.
    pub fn frame<'a>(
        &mut self,
        link: LinkType,
        time: u64,
        number: u64,
        frame: &'a [u8],
    ) -> Packet<'a> {
        self.frame_with(link, time, number, frame, Sums::Unknown)
    }

    /// The same of a frame of whose checksums something is known; that holds for what it carries, too, until the next frame.
    pub fn frame_with<'a>(
        &mut self,
        link: LinkType,
        time: u64,
        number: u64,
        frame: &'a [u8],
        sums: Sums,
    ) -> Packet<'a> {
        self.sums = sums;
        let mut packet = Packet::new(time, number, frame);
        packet.payload = 0..frame.len();
        self.counts.frames += 1;
        self.counts.bytes += frame.len() as u64;
        self.counts.max_size = self.counts.max_size.max(frame.len() as u64);
        self.link(&mut packet, link);
        self.finish(&mut packet);
        packet
    }

    /// Decodes the packet that another one carries, if it does.
    pub fn inner<'a>(&mut self, outer: &Packet<'a>) -> Option<Packet<'a>> {
        let (kind, range) = outer.inner.clone()?;
        let mut packet = Packet::new(outer.time, outer.number, outer.data.get(range)?);
        packet.payload = 0..packet.data.len();
        packet.interface = outer.interface;
        packet.vlan = outer.vlan;
        packet.vlans = outer.vlans;
        packet.depth = outer.depth + 1;
        packet.carrier = Some(self.carrier(outer));
        packet.spread = outer.spread;
        packet.reassembled = outer.reassembled;
        self.counts.max_depth = self.counts.max_depth.max(packet.depth);
        match kind {
            Carried::Ethernet => self.ethernet(&mut packet, 0),
            Carried::Tagged => self.ethertype(&mut packet, 0x8100, 0),
            Carried::Ip => self.ip(&mut packet, 0),
            Carried::Ppp => self.ppp(&mut packet, 0),
        }
        self.finish(&mut packet);
        Some(packet)
    }

    /// What logs call a packet as the carrier of another one.
    fn carrier(&self, outer: &Packet<'_>) -> &'static str {
        let of = |ports: &[u16]| {
            let (source, destination) = outer.ports();
            ports.iter().any(|p| *p == source || *p == destination)
        };
        match (&outer.transport, &outer.ip) {
            (Transport::Udp { .. }, _) if of(&self.config.vxlan) => "vxlan encapsulation",
            (Transport::Udp { .. }, _) if of(&self.config.geneve) => "geneve encapsulation",
            (Transport::Udp { .. }, _) => "teredo tunnel",
            (_, Some(ip)) if ip.protocol == 47 => "gre tunnel",
            (_, Some(ip)) if ip.source.is_ipv6() => "ipv6 tunnel",
            _ => "ipv4 tunnel",
        }
    }

    /// A datagram that was put together from its IP header on, behind the headers of lower layers of the fragment that made it whole: so logs show packets of a link type.
    pub fn whole(last: &Packet<'_>, datagram: &[u8]) -> Vec<u8> {
        let link = Self::below(last);
        let mut whole = Vec::with_capacity(link.len() + datagram.len());
        whole.extend_from_slice(link);
        whole.extend_from_slice(datagram);
        whole
    }

    /// The headers below IP.
    fn below<'a>(packet: &Packet<'a>) -> &'a [u8] {
        let end = packet.ip.as_ref().map_or(0, |ip| ip.header.start);
        packet.data.get(..end).unwrap_or_default()
    }

    /// Decodes what [`Decoder::whole`] made; `last` is the fragment that made the datagram whole.
    pub fn datagram<'a>(&mut self, last: &Packet<'_>, datagram: &'a [u8]) -> Packet<'a> {
        let at = Self::below(last).len();
        let mut packet = Packet::new(last.time, last.number, datagram);
        packet.payload = at..datagram.len();
        packet.interface = last.interface;
        packet.vlan = last.vlan;
        packet.vlans = last.vlans;
        packet.depth = last.depth;
        packet.spread = last.spread;
        packet.reassembled = true;
        packet.ethernet = last.ethernet;
        self.ip(&mut packet, at);
        self.finish(&mut packet);
        packet
    }

    /// Counts events that a later stage found in decoded packets: those of fragments.
    pub fn count(&mut self, events: crate::event::Events) {
        self.events.add(events);
    }

    fn finish(&mut self, packet: &mut Packet<'_>) {
        self.counts.packets += 1;
        if packet.ip.is_some() {
            self.counts.ip += 1;
        } else if packet.events.is_empty() {
            self.counts.not_ip += 1;
        } else {
            self.counts.invalid += 1;
        }
        if packet.vlans > 0 && packet.depth == 0 && !packet.reassembled {
            self.counts.vlan += 1;
            self.counts.vlan_qinq += u64::from(packet.vlans > 1);
            self.counts.vlan_qinqinq += u64::from(packet.vlans > 2);
        }
        self.events.add(packet.events);
    }

    /// Whether checksums of headers below transport headers are verified, and those of transport headers so many tunnels deep.
    fn verifies(&self, depth: u8) -> [bool; 2] {
        let any = self.config.checksums && self.sums != Sums::Ignored;
        let transport = match self.sums {
            Sums::Unknown | Sums::Ignored => any,
            Sums::Valid => any && depth > 0,
            Sums::Unfinished => false,
        };
        [any, transport]
    }

    /// Says that a packet carries another one, unless it is too deep.
    fn carries(&self, packet: &mut Packet<'_>, kind: Carried, start: usize, end: usize) {
        if start >= end {
            return;
        }
        if packet.depth >= self.config.depth {
            packet.events.insert(Event::TooManyLayers);
        } else {
            packet.inner = Some((kind, start..end));
        }
    }

    /// An IP header was found; what spreads packets over workers is computed from the outermost addresses, of an ICMP error from those it quotes.
    fn found(packet: &mut Packet<'_>, ip: Ip) {
        if packet.depth == 0 && !packet.reassembled {
            packet.spread = spread_pair(ip.source, ip.destination);
        }
        packet.ip = Some(ip);
    }
}

/// Computes the value of [`Packet::spread`], by which frames are about slices of state: of the unordered pair of addresses, and nothing else, so that fragments, both directions, and
/// what a tunnel carries stay together. An ICMP error goes where the packet that it quotes goes; frames without addresses all have 0.
///
/// It is the decoder itself that finds the addresses: keys of tunnelled flows and fragments hold this value, so whoever hands out frames must see in each of them what its pipeline will,
/// behind every header and in every broken packet. A second, smaller parser for it would part flows where the two differ.
#[derive(Clone, Debug)]
pub struct Spreader(Decoder);

impl Default for Spreader {
    fn default() -> Self {
        // Checksums and tunnels cost most of decoding; neither is looked at here.
        Spreader(Decoder::new(DecodeConfig {
            checksums: false,
            depth: 0,
            vxlan: Vec::new(),
            geneve: Vec::new(),
            teredo: Vec::new(),
        }))
    }
}

impl Spreader {
    /// The value of a frame.
    pub fn of(&mut self, link: LinkType, frame: &[u8]) -> u64 {
        self.0.frame(link, 0, 0, frame).spread
    }
}

/// As [`Spreader::of`], for a single frame.
pub fn spread(link: LinkType, frame: &[u8]) -> u64 {
    Spreader::default().of(link, frame)
}

/// A hash of the unordered pair of two addresses. Always the same: what it decides must not change between runs.
pub fn spread_pair(one: IpAddr, other: IpAddr) -> u64 {
    let (a, b) = (bits(one), bits(other));
    let (low, high) = (a.min(b), a.max(b));
    let mut hash = 0x9e37_79b9_7f4a_7c15;
    if high > u128::from(u32::MAX) {
        hash = mix(hash, (low >> 64) as u64);
        hash = mix(hash, (high >> 64) as u64);
    }
    mix(mix(hash, low as u64), high as u64)
}

/// An address as a number; IPv4 below 2^32.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// A multiplication of which both halves are kept.
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product =
        u128::from(hash ^ word.wrapping_add(0xa076_1d64_78bd_642f)) * 0xe703_7ed1_a0b4_28db;
    (product as u64) ^ (product >> 64) as u64
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?
        .first_chunk()
        .map(|b| u16::from_be_bytes(*b))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?
        .first_chunk()
        .map(|b| u32::from_be_bytes(*b))
}
