//! Link layers: Ethernet with VLAN tags, network service headers, MPLS, PPPoE, PPP, Linux cooked captures, loopback, raw IP.

use weir_packet::pcap::LinkType;

use super::arp::Arp;
use super::{Decoder, u16_at, u32_at};
use crate::event::Event;
use crate::packet::{Carried, Packet};

/// More labels than any network pushes.
const MAX_LABELS: usize = 16;

/// How often Ethernet may lie over labels over Ethernet: each is decoded by a call inside of the one before.
const MAX_NESTED: u8 = 8;

impl Decoder {
    pub(super) fn link(&mut self, packet: &mut Packet<'_>, link: LinkType) {
        match link.0 {
            1 => self.ethernet(packet, 0),
            113 => {
                self.counts.sll += 1;
                match u16_at(packet.data, 14) {
                    Some(kind) => self.ethertype(packet, kind, 16),
                    None => packet.events.insert(Event::SllTooSmall),
                }
            }
            276 => {
                self.counts.sll2 += 1;
                match u16_at(packet.data, 0).filter(|_| packet.data.len() >= 20) {
                    Some(kind) => self.ethertype(packet, kind, 20),
                    None => packet.events.insert(Event::Sll2TooSmall),
                }
            }
            12 | 14 | 101 => {
                self.counts.raw += 1;
                self.ip(packet, 0);
            }
            228 => {
                self.counts.raw += 1;
                self.ipv4(packet, 0);
            }
            229 => {
                self.counts.raw += 1;
                self.ipv6(packet, 0);
            }
            0 | 108 => self.loopback(packet),
            9 | 50 => self.ppp(packet, 0),
            51 => self.pppoe(packet, 0),
            104 => {
                self.counts.chdlc += 1;
                match u16_at(packet.data, 2) {
                    Some(kind) => self.ethertype(packet, kind, 4),
                    None => packet.events.insert(Event::ChdlcTooSmall),
                }
            }
            _ => packet.events.insert(Event::LinkUnsupported),
        }
    }

    pub(super) fn ethernet(&mut self, packet: &mut Packet<'_>, at: usize) {
        self.counts.ethernet += 1;
        match u16_at(packet.data, at + 12) {
            Some(kind) => {
                packet.ethernet = Some(at);
                self.ethertype(packet, kind, at + 14);
            }
            None => packet.events.insert(Event::EthernetTooSmall),
        }
    }

    /// What an Ethertype announces at `at`, tags first.
    pub(super) fn ethertype(&mut self, packet: &mut Packet<'_>, mut kind: u16, mut at: usize) {
        let mut tagged = false;
        loop {
            match kind {
                0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
                    let Some(word) = u32_at(packet.data, at) else {
                        packet.events.insert(Event::VlanTooSmall);
                        return;
                    };
                    let Some(slot) = packet.vlan.get_mut(usize::from(packet.vlans)) else {
                        packet.events.insert(Event::VlanTooMany);
                        return;
                    };
                    *slot = (word >> 16) as u16 & 0xfff;
                    packet.vlans += 1;
                    kind = word as u16;
                    at += 4;
                    tagged = true;
                }
                // IEEE 802.1ah: a tag of four bytes and the customer's addresses.
                0x88e7 => match u16_at(packet.data, at + 16) {
                    Some(next) => (kind, at) = (next, at + 18),
                    None => {
                        packet.events.insert(Event::BackboneTooSmall);
                        return;
                    }
                },
                // The tag between a switch and its virtual ports (IEEE 802.1BR was made of it).
                0x8926 => {
                    self.counts.vntag += 1;
                    match u16_at(packet.data, at + 4) {
                        Some(next) => (kind, at) = (next, at + 6),
                        None => {
                            packet.events.insert(Event::VnTagTooSmall);
                            return;
                        }
                    }
                }
                _ => break,
            }
        }
        packet.payload.start = at.min(packet.payload.end);
        match kind {
            0x0800 => self.ipv4(packet, at),
            0x86dd => self.ipv6(packet, at),
            0x8847 | 0x8848 => self.mpls(packet, at),
            0x894f => self.nsh(packet, at),
            0x8864 => self.pppoe(packet, at),
            0x0806 => {
                self.counts.arp += 1;
                match Arp::read(packet.payload()) {
                    Ok(_) => packet.arp = true,
                    Err(event) => packet.events.insert(event),
                }
            }
            0x8863 => pppoe_tags(packet, at),
            // LLDP, 802.1X, slow protocols, loop detection, RARP, PTP, FCoE, MACsec: known, and not for this sensor.
            0x88cc | 0x888e | 0x8809 | 0x9000 | 0x8035 | 0x88f7 | 0x8906 | 0x88e5 => {}
            // IEEE 802.3 length: an LLC header, perhaps with SNAP.
            0..=1500 => {
                if packet.data.get(at..at + 6) == Some(&[0xaa, 0xaa, 3, 0, 0, 0])
                    && let Some(kind) = u16_at(packet.data, at + 6)
                {
                    match kind {
                        0x0800 => self.ipv4(packet, at + 8),
                        0x86dd => self.ipv6(packet, at + 8),
                        _ => {}
                    }
                }
            }
            _ if tagged => packet.events.insert(Event::VlanUnknownType),
            _ => packet.events.insert(Event::EthernetUnknownType),
        }
    }

    /// A network service header (RFC 8300), and what it carries.
    fn nsh(&mut self, packet: &mut Packet<'_>, at: usize) {
        self.counts.nsh += 1;
        // Eight bytes are the base and the service path.
        let Some(word) = u32_at(packet.data, at).filter(|_| packet.data.len() >= at + 8) else {
            packet.events.insert(Event::NshTooSmall);
            return;
        };
        if word >> 30 != 0 {
            packet.events.insert(Event::NshVersion);
            return;
        }
        let length = (word >> 16 & 0x3f) as usize * 4;
        let metadata = word >> 8 & 15;
        let fits = match metadata {
            1 => length == 24,
            _ => length >= 8,
        };
        if !fits || packet.data.len() < at + length {
            packet.events.insert(Event::NshLength);
            return;
        }
        match metadata {
            0 => {
                packet.events.insert(Event::NshReserved);
                return;
            }
            1 | 2 => {}
            _ => {
                packet.events.insert(Event::NshUnsupported);
                return;
            }
        }
        if self.nested == MAX_NESTED {
            packet.events.insert(Event::TooManyLayers);
            return;
        }
        self.nested += 1;
        let inside = at + length;
        match word & 0xff {
            1 => self.ipv4(packet, inside),
            2 => self.ipv6(packet, inside),
            3 => self.ethernet(packet, inside),
            5 => self.mpls(packet, inside),
            _ => packet.events.insert(Event::NshUnknownPayload),
        }
        self.nested -= 1;
    }

    pub(super) fn mpls(&mut self, packet: &mut Packet<'_>, at: usize) {
        self.counts.mpls += 1;
        if self.nested == MAX_NESTED {
            packet.events.insert(Event::TooManyLayers);
            return;
        }
        self.nested += 1;
        self.labels(packet, at);
        self.nested -= 1;
    }

    fn labels(&mut self, packet: &mut Packet<'_>, mut at: usize) {
        for _ in 0..MAX_LABELS {
            let Some(word) = u32_at(packet.data, at) else {
                packet.events.insert(Event::MplsTooSmall);
                return;
            };
            at += 4;
            let label = word >> 12;
            let bottom = word & 0x100 != 0;
            match label {
                1 if bottom => {
                    packet.events.insert(Event::MplsRouterAlert);
                    return;
                }
                3 => {
                    packet.events.insert(Event::MplsImplicitNull);
                    return;
                }
                // 7 and 14 have uses (RFC 6790, RFC 3429) but not at the bottom over a packet.
                4..=15 if bottom || !matches!(label, 7 | 13 | 14) => {
                    packet.events.insert(Event::MplsReserved);
                    return;
                }
                _ => {}
            }
            if !bottom {
                continue;
            }
            let Some(&first) = packet.data.get(at) else {
                packet.events.insert(Event::MplsPayloadTooSmall);
                return;
            };
            match (label, first >> 4) {
                (0, _) | (_, 4) => self.ipv4(packet, at),
                (2, _) | (_, 6) => self.ipv6(packet, at),
                // A pseudo-wire with a control word (RFC 4385) carries Ethernet.
                (_, 0) => self.ethernet(packet, at + 4),
                _ => packet.events.insert(Event::MplsUnknownPayload),
            }
            return;
        }
        packet.events.insert(Event::MplsReserved);
    }

    pub(super) fn pppoe(&mut self, packet: &mut Packet<'_>, at: usize) {
        self.counts.pppoe += 1;
        let (Some(&code), Some(length)) = (packet.data.get(at + 1), u16_at(packet.data, at + 4))
        else {
            packet.events.insert(Event::PppoeTooSmall);
            return;
        };
        if code != 0 {
            packet.events.insert(Event::PppoeWrongCode);
            return;
        }
        if length < 2 || packet.data.len() < at + 8 {
            packet.events.insert(Event::PppoeTooSmall);
            return;
        }
        self.ppp(packet, at + 6);
    }

    pub(super) fn ppp(&mut self, packet: &mut Packet<'_>, mut at: usize) {
        self.counts.ppp += 1;
        if packet.data.get(at..at + 2) == Some(&[0xff, 3]) {
            at += 2;
        }
        let Some(&first) = packet.data.get(at) else {
            packet.events.insert(Event::PppTooSmall);
            return;
        };
        // A number may be one byte, if odd (RFC 1661, section 6.5). Cisco's HDLC begins with 0x0f00 or 0x8f00 and has an Ethertype.
        let protocol = if first & 1 == 1 && first != 0x0f && first != 0x8f {
            at += 1;
            u16::from(first)
        } else {
            let Some(protocol) = u16_at(packet.data, at) else {
                packet.events.insert(Event::PppTooSmall);
                return;
            };
            at += 2;
            protocol
        };
        let left = packet.data.len().saturating_sub(at);
        match protocol {
            0x002f if left < 20 => packet.events.insert(Event::PppVjTooSmall),
            0x0021 if left < 20 => packet.events.insert(Event::PppIp4TooSmall),
            0x0057 if left < 40 => packet.events.insert(Event::PppIp6TooSmall),
            0x0021 => self.ipv4(packet, at),
            0x0057 => self.ipv6(packet, at),
            0x0281 | 0x0283 => self.mpls(packet, at),
            0x0f00 | 0x8f00 => match u16_at(packet.data, at) {
                Some(kind) => self.ethertype(packet, kind, at + 2),
                None => packet.events.insert(Event::PppTooSmall),
            },
            // How two ends agree: of the link, authentication, IP, IPv6, compression. And what is compressed.
            0xc021 | 0xc023 | 0xc025 | 0xc029 | 0xc223 | 0x8021 | 0x8057 | 0x80fd | 0x00fd => {}
            p if p & 0x0101 == 1 => packet.events.insert(Event::PppUnsupported),
            _ => packet.events.insert(Event::PppWrongType),
        }
    }

    fn loopback(&mut self, packet: &mut Packet<'_>) {
        self.counts.null += 1;
        let Some(family) = u32_at(packet.data, 0) else {
            packet.events.insert(Event::NullTooSmall);
            return;
        };
        // In the byte order of the host that captured.
        let family = if family > 0xffff {
            family.swap_bytes()
        } else {
            family
        };
        match family {
            2 => self.ipv4(packet, 4),
            // Linux, the BSDs, macOS.
            10 | 24 | 28 | 30 => self.ipv6(packet, 4),
            _ => packet.events.insert(Event::NullUnsupported),
        }
    }

    /// IP of the version that its first four bits say.
    pub(super) fn ip(&mut self, packet: &mut Packet<'_>, at: usize) {
        match packet.data.get(at).map(|b| b >> 4) {
            Some(4) => self.ipv4(packet, at),
            Some(6) => self.ipv6(packet, at),
            _ => packet.events.insert(Event::RawInvalidVersion),
        }
    }

    /// A carried IP packet must have the version that was announced.
    pub(super) fn carries_ip(
        &mut self,
        packet: &mut Packet<'_>,
        version: u8,
        start: usize,
        end: usize,
    ) {
        let v6 = packet.ip.as_ref().is_some_and(|ip| ip.source.is_ipv6());
        let [in4, in6] = &mut self.counts.ip_in_ip;
        let [four, six] = if v6 { in6 } else { in4 };
        *if version == 6 { six } else { four } += 1;
        let least = if version == 4 { 20 } else { 40 };
        match (packet.data.get(start).map(|b| b >> 4), version) {
            (_, 4) if v6 && end - start < least => packet.events.insert(Event::Ipv6In4TooSmall),
            (_, _) if v6 && end - start < least => packet.events.insert(Event::Ipv6In6TooSmall),
            (Some(v), _) if v == version => self.carries(packet, Carried::Ip, start, end),
            (_, 4) if v6 => packet.events.insert(Event::Ipv6In4WrongVersion),
            _ if v6 => packet.events.insert(Event::Ipv6In6WrongVersion),
            (_, 4) => packet.events.insert(Event::Ipv4WrongVersion),
            _ => packet.events.insert(Event::Ipv6WrongVersion),
        }
    }
}
/// Looks at the tags of PPPoE discovery (RFC 2516, section 5): each has a kind and a length of two bytes.
fn pppoe_tags(packet: &mut Packet<'_>, at: usize) {
    let Some(length) = u16_at(packet.data, at + 4) else {
        packet.events.insert(Event::PppoeTooSmall);
        return;
    };
    let end = (at + 6 + usize::from(length)).min(packet.data.len());
    let mut tags = packet.within(at + 6, end);
    while let Some((kind, rest)) = tags.split_first_chunk::<2>() {
        // The end of the list.
        if *kind == [0, 0] {
            return;
        }
        let value = rest.split_first_chunk::<2>();
        let after = value.and_then(|(n, rest)| rest.get(usize::from(u16::from_be_bytes(*n))..));
        let Some(after) = after else {
            packet.events.insert(Event::PppoeMalformedTags);
            return;
        };
        tags = after;
    }
}
