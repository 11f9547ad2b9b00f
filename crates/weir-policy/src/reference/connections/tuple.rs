//! Tuples: what tells the packets of one connection from others. docs/semantics.md section 7, "Tuple".

use weir_packet::parse::{Fragment, Layout, Protocol, Version, protocol, word16};

/// Family, protocol, addresses and ports; of ICMP queries and answers the identifier and the query's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) struct Tuple {
    /// 4 or 6.
    pub(in crate::reference) family: u8,
    pub(in crate::reference) protocol: u8,
    pub(in crate::reference) source: u128,
    pub(in crate::reference) destination: u128,
    pub(in crate::reference) source_port: u16,
    pub(in crate::reference) destination_port: u16,
}

/// Bytes of an SCTP packet in which its ports are looked for: as many as an ICMP error quotes.
const SCTP_PORTS_IN: usize = 8;

impl Tuple {
    /// The tuple of a packet, if it has one.
    pub(in crate::reference) fn of_packet(frame: &[u8], layout: &Layout) -> Option<Tuple> {
        let ip = layout.ip.as_ref()?;
        if ip.fragment == Fragment::Later {
            return None;
        }
        let Some(l4) = &layout.l4 else {
            let payload = frame.get(ip.payload.clone()).unwrap_or_default();
            let tuple = Tuple::without_l4(frame, ip.version, ip.at, ip.protocol, payload);
            return Some(tuple).filter(|tuple| !tuple.stays_on_link());
        };
        Tuple::of_headers(frame, ip.version, ip.at, l4.protocol, l4.at)
    }

    /// The tuple of an IP header and a payload of which no L4 header is known: the pair of addresses, and the ports of SCTP.
    pub(super) fn without_l4(
        frame: &[u8],
        version: Version,
        ip_at: usize,
        protocol: u8,
        payload: &[u8],
    ) -> Tuple {
        let (source, destination) = addresses(frame, version, ip_at);
        let has_ports = protocol == protocol::SCTP && payload.len() >= SCTP_PORTS_IN;
        let port = |at: usize| if has_ports { word16(payload, at) } else { 0 };
        Tuple {
            family: family(version),
            protocol,
            source,
            destination,
            source_port: port(0),
            destination_port: port(2),
        }
    }

    /// Whether no L4 header of the protocol is known, so that only addresses can be translated.
    pub(in crate::reference) fn is_generic(&self) -> bool {
        !matches!(
            (self.protocol, self.family),
            (protocol::TCP | protocol::UDP, _) | (protocol::ICMP, 4) | (protocol::ICMP6, 6)
        )
    }

    /// Whether the destination is a group of the interface or the link, to which no router sends on.
    fn stays_on_link(&self) -> bool {
        match self.family {
            4 => self.destination >> 8 == 0xe0_0000,
            _ => {
                let group = (self.destination >> 112) as u16;
                group >> 8 == 0xff && (1..=2).contains(&(group & 0xf))
            }
        }
    }

    /// The tuple of an IP header and the first 8 bytes of an L4 header, which the frame holds.
    pub(super) fn of_headers(
        frame: &[u8],
        version: Version,
        ip_at: usize,
        protocol: Protocol,
        l4_at: usize,
    ) -> Option<Tuple> {
        let (source, destination) = addresses(frame, version, ip_at);
        let (source_port, destination_port) = match protocol {
            Protocol::Tcp | Protocol::Udp => (word16(frame, l4_at), word16(frame, l4_at + 2)),
            Protocol::Icmp | Protocol::Icmp6 => {
                let kind = *frame.get(l4_at)?;
                let identifier = word16(frame, l4_at + 4);
                if is_query(protocol, kind) {
                    (identifier, u16::from(kind))
                } else {
                    (u16::from(query_of(protocol, kind)?), identifier)
                }
            }
        };
        Some(Tuple {
            family: family(version),
            protocol: number(protocol),
            source,
            destination,
            source_port,
            destination_port,
        })
    }

    /// That of a packet the other way.
    pub(in crate::reference) fn reversed(self) -> Tuple {
        Tuple {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }
}

/// 4 or 6.
pub(super) fn family(version: Version) -> u8 {
    match version {
        Version::V4 => 4,
        Version::V6 => 6,
    }
}

/// Source and destination of an IP header.
pub(in crate::reference) fn addresses(frame: &[u8], version: Version, at: usize) -> (u128, u128) {
    let (first, len) = match version {
        Version::V4 => (at + 12, 4),
        Version::V6 => (at + 8, 16),
    };
    let number = |from: usize| {
        let bytes = frame.get(from..from + len).unwrap_or_default();
        bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | u128::from(byte))
    };
    (number(first), number(first + len))
}

/// Whether an ICMP type is a query.
pub(in crate::reference) fn is_query(protocol: Protocol, kind: u8) -> bool {
    matches!(
        (protocol, kind),
        (Protocol::Icmp, 8 | 13) | (Protocol::Icmp6, 128)
    )
}

/// The query that an ICMP type answers.
fn query_of(protocol: Protocol, kind: u8) -> Option<u8> {
    match (protocol, kind) {
        (Protocol::Icmp, 0) => Some(8),
        (Protocol::Icmp, 14) => Some(13),
        (Protocol::Icmp6, 129) => Some(128),
        _ => None,
    }
}

fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => protocol::TCP,
        Protocol::Udp => protocol::UDP,
        Protocol::Icmp => protocol::ICMP,
        Protocol::Icmp6 => protocol::ICMP6,
    }
}
