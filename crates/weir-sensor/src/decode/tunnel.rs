//! Tunnels: GRE (RFC 2784, RFC 2890, version 1 of PPTP, ERSPAN), VXLAN, Geneve, Teredo.

use super::{Decoder, u16_at, u32_at};
use crate::event::Event;
use crate::packet::{Carried, Packet};

const CHECKSUM: u16 = 0x8000;
const ROUTING: u16 = 0x4000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const STRICT: u16 = 0x0800;
const RECURSION: u16 = 0x0700;
const ACKNOWLEDGEMENT: u16 = 0x0080;

impl Decoder {
    pub(super) fn gre(&mut self, packet: &mut Packet<'_>, start: usize, end: usize) {
        self.counts.gre += 1;
        let data = packet.within(start, end);
        let Some(word) = u32_at(data, 0) else {
            packet.events.insert(Event::GreTooSmall);
            return;
        };
        let (flags, protocol) = ((word >> 16) as u16, word as u16);
        match flags & 7 {
            0 => self.gre0(packet, flags, protocol, start, end),
            1 => self.gre1(packet, flags, protocol, start, end),
            _ => packet.events.insert(Event::GreWrongVersion),
        }
    }

    fn gre0(
        &mut self,
        packet: &mut Packet<'_>,
        flags: u16,
        protocol: u16,
        start: usize,
        end: usize,
    ) {
        if flags & RECURSION != 0 {
            packet.events.insert(Event::Gre0Recursion);
            return;
        }
        if flags & 0x00f8 != 0 {
            packet.events.insert(Event::Gre0Flags);
            return;
        }
        let mut at = start + 4;
        if flags & (CHECKSUM | ROUTING) != 0 {
            at += 4;
        }
        at += 4 * (usize::from(flags & KEY != 0) + usize::from(flags & SEQUENCE != 0));
        if flags & ROUTING != 0 {
            // Source route entries (RFC 1701): family, offset, length; a null family of length 0 ends them. Each is at least 4 bytes.
            loop {
                let data = packet.within(0, end);
                let (Some(family), Some(&length)) = (u16_at(data, at), data.get(at + 3)) else {
                    packet.events.insert(Event::Gre0TooBig);
                    return;
                };
                at += 4 + usize::from(length);
                if family == 0 && length == 0 {
                    break;
                }
            }
        }
        if at > end {
            packet.events.insert(Event::Gre0TooBig);
            return;
        }
        packet.payload.start = at;
        match protocol {
            0x0800 | 0x86dd => self.carries(packet, Carried::Ip, at, end),
            0x6558 => self.carries(packet, Carried::Ethernet, at, end),
            0x880b => self.carries(packet, Carried::Ppp, at, end),
            0x8100 => self.carries(packet, Carried::Tagged, at, end),
            0x88be => self.erspan(packet, at, end, flags & SEQUENCE != 0),
            0x22eb => self.erspan3(packet, at, end),
            // WCCP version 2 puts four bytes before IPv4; version 1 none.
            0x883e => {
                let at = if packet.data.get(at).is_some_and(|b| b >> 4 == 4) {
                    at
                } else {
                    at + 4
                };
                self.carries(packet, Carried::Ip, at, end);
            }
            _ => {}
        }
    }

    fn gre1(
        &mut self,
        packet: &mut Packet<'_>,
        flags: u16,
        protocol: u16,
        start: usize,
        end: usize,
    ) {
        let problem = if flags & CHECKSUM != 0 {
            Some(Event::Gre1Checksum)
        } else if flags & ROUTING != 0 {
            Some(Event::Gre1Route)
        } else if flags & STRICT != 0 {
            Some(Event::Gre1StrictRoute)
        } else if flags & RECURSION != 0 {
            Some(Event::Gre1Recursion)
        } else if flags & 0x0078 != 0 {
            Some(Event::Gre1Flags)
        } else if protocol != 0x880b {
            Some(Event::Gre1WrongProtocol)
        } else if flags & KEY == 0 {
            Some(Event::Gre1NoKey)
        } else {
            None
        };
        if let Some(event) = problem {
            packet.events.insert(event);
            return;
        }
        let at = start
            + 8
            + 4 * (usize::from(flags & SEQUENCE != 0) + usize::from(flags & ACKNOWLEDGEMENT != 0));
        if at > end {
            packet.events.insert(Event::Gre1TooBig);
            return;
        }
        packet.payload.start = at;
        // A bare acknowledgement carries nothing.
        if flags & SEQUENCE != 0 {
            self.carries(packet, Carried::Ppp, at, end);
        }
    }

    /// ERSPAN of type I (no header, no sequence number in GRE) and type II (8 bytes).
    fn erspan(&mut self, packet: &mut Packet<'_>, at: usize, end: usize, has_header: bool) {
        self.counts.erspan += 1;
        if !has_header {
            self.carries(packet, Carried::Ethernet, at, end);
            return;
        }
        match packet.data.get(at).map(|b| b >> 4) {
            Some(1) if at + 8 <= end => self.carries(packet, Carried::Ethernet, at + 8, end),
            Some(1) | None => packet.events.insert(Event::ErspanTooSmall),
            Some(_) => packet.events.insert(Event::ErspanVersion),
        }
    }

    /// ERSPAN of type III: 12 bytes, and 8 more if the last bit says so.
    fn erspan3(&mut self, packet: &mut Packet<'_>, at: usize, end: usize) {
        self.counts.erspan += 1;
        match (
            packet.data.get(at).map(|b| b >> 4),
            packet.within(0, end).get(at + 11),
        ) {
            (Some(2), Some(&last)) => self.carries(
                packet,
                Carried::Ethernet,
                at + 12 + 8 * usize::from(last & 1),
                end,
            ),
            (Some(2) | None, None) => packet.events.insert(Event::ErspanTooSmall),
            _ => packet.events.insert(Event::ErspanVersion),
        }
    }

    /// Tunnels over UDP, by port and by what their headers must look like.
    pub(super) fn udp_tunnels(&mut self, packet: &mut Packet<'_>, source: u16, destination: u16) {
        let is_of = |ports: &[u16]| ports.iter().any(|p| *p == source || *p == destination);
        if is_of(&self.config.vxlan) {
            self.vxlan(packet);
        } else if is_of(&self.config.geneve) {
            self.geneve(packet);
        } else if is_of(&self.config.teredo) {
            self.teredo(packet);
        }
    }

    fn vxlan(&mut self, packet: &mut Packet<'_>) {
        let (start, end) = (packet.payload.start, packet.payload.end);
        // The flag of a valid network identifier, and the reserved last byte (RFC 7348, section 5).
        match packet.payload().first_chunk::<8>() {
            Some([flags, _, _, _, _, _, _, 0]) if flags & 8 != 0 => {
                self.counts.vxlan += 1;
                let known = [
                    0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x8847, 0x8848, 0x8864,
                ];
                match u16_at(packet.within(0, end), start + 20) {
                    Some(kind) if !known.contains(&kind) && kind > 1500 => {
                        packet.events.insert(Event::VxlanUnknownPayload)
                    }
                    _ => self.carries(packet, Carried::Ethernet, start + 8, end),
                }
            }
            // Other traffic of that port, perhaps of a client that took it by chance.
            _ => {}
        }
    }

    fn geneve(&mut self, packet: &mut Packet<'_>) {
        let (start, end) = (packet.payload.start, packet.payload.end);
        // Version 0, reserved bits 0 (RFC 8926, section 3.4); other traffic of the port is not Geneve.
        let Some(&[first, second, a, b, ..]) = packet.payload().first_chunk::<8>() else {
            return;
        };
        if first >> 6 != 0 || second & 0x3f != 0 {
            return;
        }
        self.counts.geneve += 1;
        let at = start + 8 + usize::from(first & 0x3f) * 4;
        match u16::from_be_bytes([a, b]) {
            0x6558 => self.carries(packet, Carried::Ethernet, at, end),
            0x0800 | 0x86dd => self.carries(packet, Carried::Ip, at, end),
            0x0806 => self.counts.arp += 1,
            _ => packet.events.insert(Event::GeneveUnknownPayload),
        }
    }

    /// Teredo (RFC 4380): perhaps an authentication and an origin indication, then IPv6 of exactly the length that is left.
    fn teredo(&mut self, packet: &mut Packet<'_>) {
        let (mut at, end) = (packet.payload.start, packet.payload.end);
        let data = packet.within(0, end);
        if let Some(&[0, 1, id, authentication]) = data.get(at..).and_then(|d| d.first_chunk()) {
            at += 13 + usize::from(id) + usize::from(authentication);
        }
        if let Some([0, 0]) = data.get(at..at + 2) {
            at += 8;
        }
        let Some(header) = data.get(at..).and_then(|d| d.first_chunk::<40>()) else {
            return;
        };
        let length = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 == 6 && length == end - at {
            self.counts.teredo += 1;
            self.carries(packet, Carried::Ip, at, end);
        }
    }
}
