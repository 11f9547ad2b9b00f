//! What tells flows apart: the unordered pair of ends, protocol, VLAN, tunnel. ICMP is told apart by kind; questions and their answers are one flow, whatever their identifiers.

use std::net::IpAddr;

use crate::decode::{bits, mix};
use crate::packet::{Packet, Quoted, Transport};

/// A flow's key. `low` and `high` are the ends in the order of their numbers, so both directions have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    low: u128,
    high: u128,
    /// Port of `low`, port of `high`, protocol, version of IP, depth of tunnels.
    ends: u64,
    /// VLAN identifiers, 16 bits each, and their number.
    tags: u64,
    /// Of a tunnelled flow, the hosts between which its tunnel runs: what decides which slice it is of must be in its key, or the number of slices would join or part flows.
    outer: u64,
}

impl Key {
    pub(super) fn hash(&self, seed: u64) -> u64 {
        let mut hash = mix(seed, self.ends);
        hash = mix(hash, self.low as u64 ^ self.tags.rotate_left(32));
        hash = mix(hash, self.high as u64 ^ self.outer);
        if self.high > u128::from(u32::MAX) {
            hash = mix(hash, (self.low >> 64) as u64);
            hash = mix(hash, (self.high >> 64) as u64);
        }
        hash
    }
}

/// Of ICMP kinds that ask and answer: the one that asks, and whether this one does.
fn pair(v6: bool, kind: u8) -> Option<(u8, bool)> {
    Some(match (v6, kind) {
        // Echo, solicitation of routers, time, information, mask.
        (false, 8 | 10 | 13 | 15 | 17) => (kind, true),
        (false, 0) => (8, false),
        (false, 9) => (10, false),
        (false, 14 | 16 | 18) => (kind - 1, false),
        // Echo, routers, neighbours, node information, home agents.
        (true, 128 | 133 | 135 | 139 | 144) => (kind, true),
        (true, 129 | 134 | 136 | 140 | 145) => (kind - 1, false),
        _ => return None,
    })
}

/// Protocols whose packets make flows: those with ends of their own, and IP in IP. Packets of others are looked at one by one.
fn makes_flows(protocol: u8) -> bool {
    matches!(protocol, 1 | 4 | 6 | 17 | 41 | 50 | 58 | 132)
}

/// A packet's key, and whether the packet goes from `high` to `low`.
pub(super) fn of(packet: &Packet<'_>, vlans: bool) -> Option<(Key, bool)> {
    let ip = packet.ip.as_ref()?;
    let (mut source, mut destination) = packet.ports();
    let mut answers = None;
    match &packet.transport {
        Transport::None if matches!(ip.protocol, 1 | 6 | 17 | 58 | 132) => return None,
        Transport::None if !makes_flows(ip.protocol) => return None,
        Transport::Icmp { v6, kind, .. } => {
            (source, destination) = match pair(*v6, *kind) {
                Some((asks, is_question)) => {
                    answers = Some(!is_question);
                    (u16::from(asks), 0)
                }
                None => (u16::from(*kind), 0),
            };
            return Some(make(
                packet,
                ip.source,
                ip.destination,
                ip.protocol,
                (source, destination),
                false,
                answers,
                vlans,
            ));
        }
        // Each direction of ESP has an SPI of its own, which its receiver chose.
        Transport::None if ip.protocol == 50 => {
            let header = packet.data.get(ip.header.end..);
            let header = header.and_then(|h| h.first_chunk().copied());
            let spi = header.map_or(0, u32::from_be_bytes);
            let ports = ((spi >> 16) as u16, spi as u16);
            return Some(make(
                packet,
                ip.source,
                ip.destination,
                ip.protocol,
                ports,
                false,
                None,
                vlans,
            ));
        }
        _ => {}
    }
    Some(make(
        packet,
        ip.source,
        ip.destination,
        ip.protocol,
        (source, destination),
        true,
        answers,
        vlans,
    ))
}

/// The key of the flow that an ICMP error is about, and whether the error's own direction goes from `high` to `low`: an error answers the quoted packet.
pub(super) fn of_quoted(packet: &Packet<'_>, quoted: &Quoted, vlans: bool) -> (Key, bool) {
    let (mut ports, mut answers) = (quoted.ports, None);
    let has_ports = !matches!(quoted.protocol, 1 | 58);
    if !has_ports {
        let kind = quoted.ports.0 as u8;
        ports = (u16::from(kind), 0);
        if let Some((asks, is_question)) = pair(quoted.protocol == 58, kind) {
            ports.0 = u16::from(asks);
            answers = Some(!is_question);
        }
    }
    let (key, swapped) = make(
        packet,
        quoted.source,
        quoted.destination,
        quoted.protocol,
        ports,
        has_ports,
        answers,
        vlans,
    );
    (key, !swapped)
}

#[expect(clippy::too_many_arguments, reason = "the parts of a key")]
fn make(
    packet: &Packet<'_>,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: (u16, u16),
    has_ports: bool,
    answers: Option<bool>,
    vlans: bool,
) -> (Key, bool) {
    let (a, b) = (bits(source), bits(destination));
    // Between equal addresses ports decide, then who asks.
    let swapped = if has_ports {
        (a, ports.0) > (b, ports.1)
    } else {
        a > b || a == b && answers == Some(true)
    };
    let (low, high) = if swapped { (b, a) } else { (a, b) };
    // An answer goes the other way than its question: what both ends ask each other is two flows.
    let asker = answers.map_or(0, |answers| 1 + u64::from(swapped != answers));
    let (low_port, high_port) = if swapped && has_ports {
        (ports.1, ports.0)
    } else {
        ports
    };
    let mut tags = 0;
    if vlans {
        for tag in &packet.vlan[..usize::from(packet.vlans)] {
            tags = tags << 16 | u64::from(*tag);
        }
        tags |= u64::from(packet.vlans) << 60;
    }
    let ends = u64::from(low_port) << 48
        | u64::from(high_port) << 32
        | u64::from(protocol) << 24
        | asker << 17
        | u64::from(source.is_ipv6()) << 16
        | u64::from(packet.depth);
    (
        Key {
            low,
            high,
            ends,
            tags,
            outer: if packet.depth == 0 { 0 } else { packet.spread },
        },
        swapped,
    )
}
