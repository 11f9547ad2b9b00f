//! TCP, UDP, SCTP, ICMP, and which tunnels they and IP carry.

use super::ip::{Upper, quoted};
use super::{Decoder, spread_pair, sum, u16_at, u32_at};
use crate::event::{Event, Events};
use crate::packet::{Packet, Quoted, Signature, Tcp, Transport, flag};

impl Decoder {
    /// Decodes what an IP packet carries.
    pub(super) fn upper(&mut self, packet: &mut Packet<'_>, upper: Upper) {
        match upper.protocol {
            6 => self.tcp(packet, upper),
            17 => self.udp(packet, upper),
            1 if !upper.v6 => self.icmp(packet, upper),
            58 if upper.v6 => self.icmp(packet, upper),
            132 => self.sctp(packet, upper),
            1 => packet.events.insert(Event::Ipv6Icmpv4),
            58 => packet.events.insert(Event::Ipv4Icmpv6),
            47 => self.gre(packet, upper.start, upper.end),
            4 => self.carries_ip(packet, 4, upper.start, upper.end),
            41 => self.carries_ip(packet, 6, upper.start, upper.end),
            50 => {
                self.counts.esp += 1;
                if upper.end - upper.start < 8 {
                    packet.events.insert(Event::EspTooSmall);
                } else {
                    packet.payload.start = upper.start + 8;
                }
            }
            // IPv6 has read it already.
            51 if !upper.v6 => self.authenticated(packet, upper),
            // Known without being decoded: IGMP, EGP, DCCP, RSVP, mobility, EIGRP, OSPF, PIM, VRRP, L2TP, UDP-Lite, HIP, shim6, Ethernet.
            2 | 8 | 33 | 46 | 51 | 88 | 89 | 103 | 112 | 115 | 135 | 136 | 139 | 140 | 143 => {}
            _ if upper.v6 => packet.events.insert(Event::Ipv6UnknownNext),
            _ => {}
        }
    }

    /// An authentication header hides nothing: what follows it is decoded.
    fn authenticated(&mut self, packet: &mut Packet<'_>, mut upper: Upper) {
        let Some(&[next, length]) = packet.within(upper.start, upper.end).first_chunk() else {
            return;
        };
        let start = upper.start + (usize::from(length) + 2) * 4;
        // A second one would be a loop to bound; no host sends it.
        if start <= upper.end && next != 51 {
            upper.protocol = next;
            upper.start = start;
            packet.payload.start = start;
            if let Some(ip) = &mut packet.ip {
                ip.protocol = next;
                ip.header.end = start;
            }
            self.upper(packet, upper);
        }
    }

    /// Whether the checksum of `data` with its pseudo-header is wrong.
    fn is_wrong(upper: &Upper, data: &[u8]) -> bool {
        upper.verify
            && !sum::is_right([
                sum::sum(data),
                upper.addresses,
                u32::from(upper.protocol) + data.len() as u32,
            ])
    }

    fn tcp(&mut self, packet: &mut Packet<'_>, upper: Upper) {
        let data = packet.within(upper.start, upper.end);
        let Some(fixed) = data.first_chunk::<20>() else {
            packet.events.insert(Event::TcpTooSmall);
            return;
        };
        let header = usize::from(fixed[12] >> 4) * 4;
        if header < 20 {
            packet.events.insert(Event::TcpOptionsNegative);
            return;
        }
        if header > data.len() {
            packet.events.insert(Event::TcpHeaderTooSmall);
            return;
        }
        self.counts.tcp += 1;
        // Few packets of a session have one of these.
        if fixed[13] & (flag::SYN | flag::RST) != 0 {
            let (syn, ack) = (fixed[13] & flag::SYN != 0, fixed[13] & flag::ACK != 0);
            self.counts.syn += u64::from(syn && !ack);
            self.counts.synack += u64::from(syn && ack);
            self.counts.rst += u64::from(fixed[13] & flag::RST != 0);
        }
        let mut tcp = Tcp {
            source: u16::from_be_bytes([fixed[0], fixed[1]]),
            destination: u16::from_be_bytes([fixed[2], fixed[3]]),
            sequence: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            acknowledgement: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
            flags: fixed[13],
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
            urgent: u16::from_be_bytes([fixed[18], fixed[19]]),
            header: upper.start..upper.start + header,
            timestamps: None,
            window_scale: None,
            mss: None,
            sack_permitted: false,
            fast_open: false,
            signature: Signature::None,
        };
        match data.get(20..header).unwrap_or_default() {
            [] => {}
            // What nearly all segments of most connections have.
            [1, 1, 8, 10, a, b, c, d, e, f, g, h] => {
                tcp.timestamps = Some((
                    u32::from_be_bytes([*a, *b, *c, *d]),
                    u32::from_be_bytes([*e, *f, *g, *h]),
                ));
            }
            options => tcp_options(options, &mut tcp, &mut packet.events),
        }
        if Self::is_wrong(&upper, data) {
            packet.events.insert(Event::TcpChecksum);
            packet.bad_checksum = true;
        }
        packet.payload.start = upper.start + header;
        packet.transport = Transport::Tcp(tcp);
    }

    fn udp(&mut self, packet: &mut Packet<'_>, upper: Upper) {
        let data = packet.within(upper.start, upper.end);
        let Some(fixed) = data.first_chunk::<8>() else {
            packet.events.insert(Event::UdpHeaderTooSmall);
            return;
        };
        let length = match u16::from_be_bytes([fixed[4], fixed[5]]) {
            // More than fits (RFC 2675).
            0 if data.len() > usize::from(u16::MAX) => data.len(),
            n => usize::from(n),
        };
        if length > data.len() {
            packet.events.insert(Event::UdpTooSmall);
            return;
        }
        if length < 8 {
            packet.events.insert(Event::UdpLength);
            return;
        }
        // Bytes behind it are no fault: padding of routers, or options (RFC 9868).
        self.counts.udp += 1;
        let (source, destination) = (
            u16::from_be_bytes([fixed[0], fixed[1]]),
            u16::from_be_bytes([fixed[2], fixed[3]]),
        );
        // IPv4 may leave the checksum out.
        if (upper.v6 || fixed[6..8] != [0, 0])
            && Self::is_wrong(&upper, data.get(..length).unwrap_or_default())
        {
            packet.events.insert(Event::UdpChecksum);
            packet.bad_checksum = true;
        }
        packet.payload = upper.start + 8..upper.start + length;
        packet.transport = Transport::Udp {
            source,
            destination,
            header: upper.start,
        };
        self.udp_tunnels(packet, source, destination);
    }

    fn sctp(&mut self, packet: &mut Packet<'_>, upper: Upper) {
        let data = packet.within(upper.start, upper.end);
        let Some(fixed) = data.first_chunk::<12>() else {
            packet.events.insert(Event::SctpTooSmall);
            return;
        };
        self.counts.sctp += 1;
        packet.payload.start = upper.start + 12;
        packet.transport = Transport::Sctp {
            source: u16::from_be_bytes([fixed[0], fixed[1]]),
            destination: u16::from_be_bytes([fixed[2], fixed[3]]),
            header: upper.start,
        };
    }

    fn icmp(&mut self, packet: &mut Packet<'_>, upper: Upper) {
        let data = packet.within(upper.start, upper.end);
        let v6 = upper.v6;
        let Some(&[kind, code, _, _, a, b, c, d]) = data.first_chunk::<8>() else {
            packet.events.insert(if v6 {
                Event::Icmpv6TooSmall
            } else {
                Event::Icmpv4TooSmall
            });
            return;
        };
        if v6 {
            self.counts.icmpv6 += 1;
            icmpv6_kind(kind, code, upper.ttl, &mut packet.events);
        } else {
            self.counts.icmpv4 += 1;
            icmpv4_kind(kind, code, &mut packet.events);
        }
        let wrong = if v6 {
            Self::is_wrong(&upper, data)
        } else {
            upper.verify && !sum::is_right([sum::sum(data), 0, 0])
        };
        if wrong {
            packet.events.insert(if v6 {
                Event::Icmpv6Checksum
            } else {
                Event::Icmpv4Checksum
            });
            packet.bad_checksum = true;
        }
        let echo = if v6 {
            matches!(kind, 128 | 129)
        } else {
            matches!(kind, 0 | 8 | 13..=18)
        };
        packet.payload.start = upper.start + 8;
        packet.transport = Transport::Icmp {
            v6,
            kind,
            code,
            echo: echo.then(|| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))),
            header: upper.start,
        };
        let error = if v6 {
            matches!(kind, 1..=4)
        } else {
            matches!(kind, 3 | 4 | 5 | 11 | 12)
        };
        if error {
            let quoted = quote(data.get(8..).unwrap_or_default(), v6, &mut packet.events);
            if packet.depth > 0 {
                packet.quoted = quoted;
            } else if !packet.reassembled {
                if let Some(quoted) = &quoted {
                    packet.spread = spread_pair(quoted.source, quoted.destination);
                }
                packet.quoted = quoted;
            }
            // Fragments of an error went by its own addresses; the flow that it quotes may be another worker's, so it is looked for by none.
        }
    }
}

/// Reads what an ICMP error quotes.
fn quote(data: &[u8], v6: bool, events: &mut Events) -> Option<Quoted> {
    let [truncated, version] = if v6 {
        [Event::Icmpv6Truncated, Event::Icmpv6UnknownVersion]
    } else {
        [Event::Icmpv4Truncated, Event::Icmpv4UnknownVersion]
    };
    let Some(&first) = data.first() else {
        events.insert(truncated);
        return None;
    };
    if first >> 4 != if v6 { 6 } else { 4 } {
        events.insert(version);
        return None;
    }
    let Some(quote) = quoted(data, v6) else {
        events.insert(truncated);
        return None;
    };
    let ports = match quote.protocol {
        _ if quote.fragment => (0, 0),
        6 | 17 | 132 => match u32_at(data, quote.upper) {
            Some(word) => ((word >> 16) as u16, word as u16),
            None => {
                events.insert(truncated);
                return None;
            }
        },
        // As flows of echoes are known: type and identifier.
        1 | 58 => (
            data.get(quote.upper).copied().map_or(0, u16::from),
            u16_at(data, quote.upper + 4).unwrap_or(0),
        ),
        _ => (0, 0),
    };
    Some(Quoted {
        source: quote.source,
        destination: quote.destination,
        protocol: quote.protocol,
        ports,
    })
}

fn tcp_options(mut options: &[u8], tcp: &mut Tcp, events: &mut Events) {
    // Of the options that may be there once: bits by kind.
    let mut seen = 0_u32;
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            0 => return,
            1 => {
                options = rest;
                continue;
            }
            _ => {}
        }
        let length = rest.first().map_or(0, |&n| usize::from(n));
        if length < 2 || length > options.len() {
            events.insert(Event::TcpOptionLength);
            return;
        }
        if matches!(kind, 2..=5 | 8) {
            if seen & 1 << kind != 0 {
                events.insert(Event::TcpOptionDuplicate);
            }
            seen |= 1 << kind;
        }
        let Some((option, next)) = options.split_at_checked(length) else {
            return;
        };
        match (kind, option.get(2..).unwrap_or_default()) {
            (2, &[a, b]) => tcp.mss = Some(u16::from_be_bytes([a, b])),
            // More than 14 is 14 (RFC 7323, section 2.3).
            (3, &[scale]) => tcp.window_scale = Some(scale.min(14)),
            (4, &[]) => tcp.sack_permitted = true,
            (8, &[a, b, c, d, e, f, g, h]) => {
                tcp.timestamps = Some((
                    u32::from_be_bytes([a, b, c, d]),
                    u32::from_be_bytes([e, f, g, h]),
                ))
            }
            // However long it is: receivers look at its kind first.
            (19, _) => tcp.signature = Signature::Md5,
            // The second is the one of experiments (RFC 6994) with the number of this one.
            (34, _) | (254, [0xf9, 0x89, ..]) => tcp.fast_open = true,
            (29, _) => tcp.signature = Signature::Authentication,
            (2 | 3 | 4 | 8, _) => events.insert(Event::TcpOptionLength),
            // Without an edge it says nothing, and is whole.
            (5, edges) if edges.len() % 8 != 0 => events.insert(Event::TcpOptionLength),
            _ => {}
        }
        options = next;
    }
}

fn icmpv4_kind(kind: u8, code: u8, events: &mut Events) {
    let codes = match kind {
        3 => 15,
        5 => 3,
        9 => 16,
        11 => 1,
        12 => 2,
        40 => 5,
        43 => 4,
        0 | 4 | 8 | 10 | 13..=18 | 30..=39 | 41 | 42 => 0,
        _ => {
            events.insert(Event::Icmpv4UnknownType);
            return;
        }
    };
    if code > codes || kind == 9 && !matches!(code, 0 | 16) {
        events.insert(Event::Icmpv4UnknownCode);
    }
}

fn icmpv6_kind(kind: u8, code: u8, hop_limit: u8, events: &mut Events) {
    let codes = match kind {
        1 => 8,
        3 => 1,
        4 => 10,
        130..=132 | 143 => {
            if hop_limit != 1 {
                events.insert(Event::Icmpv6MulticastHopLimit);
            }
            0
        }
        138 => 255,
        139 | 140 => 2,
        157 | 158 => 4,
        2 | 128 | 129 | 133..=137 | 141 | 142 | 144..=156 | 159 | 160 => {
            if matches!(kind, 150..=156 | 159 | 160) {
                return;
            }
            0
        }
        100 | 101 | 200 | 201 => {
            events.insert(Event::Icmpv6ExperimentationType);
            return;
        }
        127 | 255 => {
            events.insert(Event::Icmpv6UnknownType);
            return;
        }
        _ => {
            events.insert(Event::Icmpv6UnassignedType);
            return;
        }
    };
    if code > codes {
        events.insert(Event::Icmpv6UnknownCode);
    }
}
