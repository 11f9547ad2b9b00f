//! A builder of frames for tests: well formed by default, wrong on request.
//!
//! Lengths, next-header fields and checksums follow from what was added, in whatever order it was added.
//! Invariant: building never panics; what does not fit a field is cut to it.
//!
//! ```
//! use weir_packet::build::Frame;
//! let frame = Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1024, 80).flags(Frame::SYN).tcp_option(2, &[5, 180]).build();
//! assert_eq!(weir_packet::summary(&frame), "IP 10.0.0.1.1024 > 10.0.0.2.80: Flags [S], seq 0, win 65535, options [mss 1460], length 0");
//! ```

#![expect(
    clippy::indexing_slicing,
    reason = "what is indexed was appended just before; nothing foreign is read here"
)]

use crate::checksum::{self, fold, sum};
use crate::parse::protocol;

/// A frame to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    source: [u8; 6],
    destination: [u8; 6],
    /// Tag protocol and tag control information, outermost first.
    tags: Vec<(u16, u16)>,
    ether_type: u16,
    network: Network,
    protocol: Option<u8>,
    transport: Transport,
    tcp_options: Vec<u8>,
    payload: Vec<u8>,
    trailer: Vec<u8>,
    checksums: Checksums,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Network {
    None,
    Ip4 {
        source: [u8; 4],
        destination: [u8; 4],
        tos: u8,
        id: u16,
        fragment: u16,
        ttl: u8,
        options: Vec<u8>,
    },
    Ip6 {
        source: [u8; 16],
        destination: [u8; 16],
        class: u8,
        label: u32,
        hop_limit: u8,
        extensions: Vec<(u8, Vec<u8>)>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Transport {
    None,
    Tcp {
        source: u16,
        destination: u16,
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
        window: u16,
        urgent: u16,
    },
    Udp {
        source: u16,
        destination: u16,
        len: Option<u16>,
    },
    Icmp {
        kind: u8,
        code: u8,
        rest: [u8; 4],
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksums {
    Correct,
    /// The L4 checksum is the sum of the pseudo-header, as a sender leaves it to its device.
    Unfinished,
    /// The L4 checksum is off by this much.
    OffBy(u16),
    /// UDP: none. Others: 0 in the field.
    Zero,
}

impl Default for Frame {
    fn default() -> Self {
        Frame::new()
    }
}

impl Frame {
    /// TCP flag.
    pub const FIN: u8 = 1;
    /// TCP flag.
    pub const SYN: u8 = 2;
    /// TCP flag.
    pub const RST: u8 = 4;
    /// TCP flag.
    pub const PSH: u8 = 8;
    /// TCP flag.
    pub const ACK: u8 = 16;

    /// An Ethernet header with locally administered addresses and EtherType 0x88b5 (local experiments).
    pub fn new() -> Frame {
        Frame {
            source: [2, 0, 0, 0, 0, 1],
            destination: [2, 0, 0, 0, 0, 2],
            tags: Vec::new(),
            ether_type: 0x88b5,
            network: Network::None,
            protocol: None,
            transport: Transport::None,
            tcp_options: Vec::new(),
            payload: Vec::new(),
            trailer: Vec::new(),
            checksums: Checksums::Correct,
        }
    }

    /// Another EtherType; [`Frame::ip4`] and [`Frame::ip6`] set theirs.
    #[must_use]
    pub fn ether_type(mut self, value: u16) -> Frame {
        self.ether_type = value;
        self
    }

    /// Adds an inner VLAN tag of this identifier, with TPID 0x8100.
    #[must_use]
    pub fn vlan(self, id: u16) -> Frame {
        self.tag(0x8100, id)
    }

    /// Adds an inner tag of any TPID and TCI.
    #[must_use]
    pub fn tag(mut self, tpid: u16, tci: u16) -> Frame {
        self.tags.push((tpid, tci));
        self
    }

    /// An IPv4 header: TTL 64, DF.
    #[must_use]
    pub fn ip4(mut self, source: [u8; 4], destination: [u8; 4]) -> Frame {
        self.ether_type = 0x0800;
        self.network = Network::Ip4 {
            source,
            destination,
            tos: 0,
            id: 1,
            fragment: 0x4000,
            ttl: 64,
            options: Vec::new(),
        };
        self
    }

    /// An IPv6 header: hop limit 64.
    #[must_use]
    pub fn ip6(mut self, source: [u8; 16], destination: [u8; 16]) -> Frame {
        self.ether_type = 0x86dd;
        self.network = Network::Ip6 {
            source,
            destination,
            class: 0,
            label: 0,
            hop_limit: 64,
            extensions: Vec::new(),
        };
        self
    }

    /// TTL or hop limit.
    #[must_use]
    pub fn ttl(mut self, value: u8) -> Frame {
        match &mut self.network {
            Network::Ip4 { ttl, .. } => *ttl = value,
            Network::Ip6 { hop_limit, .. } => *hop_limit = value,
            Network::None => {}
        }
        self
    }

    /// DSCP and ECN as one byte.
    #[must_use]
    pub fn traffic_class(mut self, value: u8) -> Frame {
        match &mut self.network {
            Network::Ip4 { tos, .. } => *tos = value,
            Network::Ip6 { class, .. } => *class = value,
            Network::None => {}
        }
        self
    }

    /// IPv6 flow label, 20 bits.
    #[must_use]
    pub fn flow_label(mut self, value: u32) -> Frame {
        if let Network::Ip6 { label, .. } = &mut self.network {
            *label = value & 0xf_ffff;
        }
        self
    }

    /// IPv4 identification.
    #[must_use]
    pub fn id(mut self, value: u16) -> Frame {
        if let Network::Ip4 { id, .. } = &mut self.network {
            *id = value;
        }
        self
    }

    /// Makes the packet a fragment: offset in 8-byte units, more fragments. In IPv6 it appends a fragment header.
    #[must_use]
    pub fn fragment(mut self, offset: u16, more: bool) -> Frame {
        match &mut self.network {
            Network::Ip4 { fragment, .. } => *fragment = offset & 0x1fff | u16::from(more) << 13,
            Network::Ip6 { extensions, .. } => {
                let field = (offset << 3 | u16::from(more)).to_be_bytes();
                extensions.push((protocol::FRAGMENT, vec![0, field[0], field[1], 0, 0, 0, 7]));
            }
            Network::None => {}
        }
        self
    }

    /// IPv4 options as bytes; zero bytes fill them to a multiple of 4, what is past 40 is cut.
    #[must_use]
    pub fn ip_options(mut self, bytes: &[u8]) -> Frame {
        if let Network::Ip4 { options, .. } = &mut self.network {
            *options = padded(bytes, 4);
            options.truncate(40);
        }
        self
    }

    /// Appends an IPv6 extension header with a body behind its next-header byte and its length byte; zero bytes
    /// fill it to the multiple of 8 (AH: 4) that the length byte then says.
    #[must_use]
    pub fn extension(mut self, number: u8, body: &[u8]) -> Frame {
        if let Network::Ip6 { extensions, .. } = &mut self.network {
            let unit = if number == protocol::AH { 4 } else { 8 };
            let mut bytes = vec![0];
            bytes.extend_from_slice(body);
            // The next-header byte is in front of these.
            while bytes.len() + 1 < 8 || !(bytes.len() + 1).is_multiple_of(unit) {
                bytes.push(0);
            }
            let len = bytes.len() + 1;
            bytes[0] = if number == protocol::AH {
                len / 4 - 2
            } else {
                len / 8 - 1
            } as u8;
            extensions.push((number, bytes));
        }
        self
    }

    /// The protocol number, where it does not follow from the L4 header.
    #[must_use]
    pub fn protocol(mut self, number: u8) -> Frame {
        self.protocol = Some(number);
        self
    }

    /// A TCP header: ACK, window 65,535.
    #[must_use]
    pub fn tcp(mut self, source: u16, destination: u16) -> Frame {
        self.transport = Transport::Tcp {
            source,
            destination,
            sequence: 0,
            acknowledgement: 0,
            flags: Frame::ACK,
            window: 65_535,
            urgent: 0,
        };
        self
    }

    /// TCP flags.
    #[must_use]
    pub fn flags(mut self, value: u8) -> Frame {
        if let Transport::Tcp { flags, .. } = &mut self.transport {
            *flags = value;
        }
        self
    }

    /// TCP sequence and acknowledgement numbers.
    #[must_use]
    pub fn numbers(mut self, seq: u32, ack: u32) -> Frame {
        if let Transport::Tcp {
            sequence,
            acknowledgement,
            ..
        } = &mut self.transport
        {
            *sequence = seq;
            *acknowledgement = ack;
        }
        self
    }

    /// TCP window.
    #[must_use]
    pub fn window(mut self, value: u16) -> Frame {
        if let Transport::Tcp { window, .. } = &mut self.transport {
            *window = value;
        }
        self
    }

    /// Appends a TCP option.
    #[must_use]
    pub fn tcp_option(self, kind: u8, value: &[u8]) -> Frame {
        let mut bytes = vec![kind, (value.len() + 2) as u8];
        bytes.extend_from_slice(value);
        self.tcp_bytes(&bytes)
    }

    /// Appends bytes to the TCP options; zero bytes fill them to a multiple of 4, what is past 40 is cut.
    #[must_use]
    pub fn tcp_bytes(mut self, bytes: &[u8]) -> Frame {
        self.tcp_options.extend_from_slice(bytes);
        self
    }

    /// A UDP header.
    #[must_use]
    pub fn udp(mut self, source: u16, destination: u16) -> Frame {
        self.transport = Transport::Udp {
            source,
            destination,
            len: None,
        };
        self
    }

    /// A UDP length of its own.
    #[must_use]
    pub fn udp_len(mut self, value: u16) -> Frame {
        if let Transport::Udp { len, .. } = &mut self.transport {
            *len = Some(value);
        }
        self
    }

    /// An ICMP header, or in IPv6 an ICMPv6 header.
    #[must_use]
    pub fn icmp(mut self, kind: u8, code: u8) -> Frame {
        self.transport = Transport::Icmp {
            kind,
            code,
            rest: [0, 1, 0, 1],
        };
        self
    }

    /// Identifier and sequence number of an ICMP query or answer: bytes 4 to 7 of its header.
    #[must_use]
    pub fn echo(mut self, identifier: u16, sequence: u16) -> Frame {
        if let Transport::Icmp { rest, .. } = &mut self.transport {
            rest[..2].copy_from_slice(&identifier.to_be_bytes());
            rest[2..].copy_from_slice(&sequence.to_be_bytes());
        }
        self
    }

    /// What follows the last header.
    #[must_use]
    pub fn payload(mut self, bytes: &[u8]) -> Frame {
        self.payload = bytes.to_vec();
        self
    }

    /// Bytes behind the packet.
    #[must_use]
    pub fn trailer(mut self, bytes: &[u8]) -> Frame {
        self.trailer = bytes.to_vec();
        self
    }

    /// The L4 checksum holds the pseudo-header's sum only.
    #[must_use]
    pub fn unfinished(mut self) -> Frame {
        self.checksums = Checksums::Unfinished;
        self
    }

    /// The L4 checksum is off by `difference`.
    #[must_use]
    pub fn wrong_checksum(mut self, difference: u16) -> Frame {
        self.checksums = Checksums::OffBy(difference);
        self
    }

    /// The L4 checksum field is 0: in UDP, no checksum.
    #[must_use]
    pub fn zero_checksum(mut self) -> Frame {
        self.checksums = Checksums::Zero;
        self
    }

    /// The bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(64 + self.payload.len());
        frame.extend_from_slice(&self.destination);
        frame.extend_from_slice(&self.source);
        for (tpid, tci) in &self.tags {
            frame.extend_from_slice(&tpid.to_be_bytes());
            frame.extend_from_slice(&tci.to_be_bytes());
        }
        frame.extend_from_slice(&self.ether_type.to_be_bytes());
        let segment = self.segment();
        self.network(&mut frame, &segment);
        frame.extend_from_slice(&segment);
        frame.extend_from_slice(&self.trailer);
        frame
    }

    fn number(&self) -> u8 {
        let six = matches!(self.network, Network::Ip6 { .. });
        self.protocol.unwrap_or(match self.transport {
            Transport::None if six => 59,
            Transport::None => 253,
            Transport::Tcp { .. } => protocol::TCP,
            Transport::Udp { .. } => protocol::UDP,
            Transport::Icmp { .. } if six => protocol::ICMP6,
            Transport::Icmp { .. } => protocol::ICMP,
        })
    }

    fn network(&self, frame: &mut Vec<u8>, segment: &[u8]) {
        match &self.network {
            Network::None => {}
            Network::Ip4 {
                source,
                destination,
                tos,
                id,
                fragment,
                ttl,
                options,
            } => {
                let at = frame.len();
                let header_len = 20 + options.len();
                frame.extend_from_slice(&[0x40 | (header_len / 4) as u8, *tos]);
                frame.extend_from_slice(&((header_len + segment.len()) as u16).to_be_bytes());
                frame.extend_from_slice(&id.to_be_bytes());
                frame.extend_from_slice(&fragment.to_be_bytes());
                frame.extend_from_slice(&[*ttl, self.number(), 0, 0]);
                frame.extend_from_slice(source);
                frame.extend_from_slice(destination);
                frame.extend_from_slice(options);
                let header = checksum::checksum(&frame[at..]);
                frame[at + 10..at + 12].copy_from_slice(&header.to_be_bytes());
            }
            Network::Ip6 {
                source,
                destination,
                class,
                label,
                hop_limit,
                extensions,
            } => {
                let bytes: usize = extensions.iter().map(|(_, body)| body.len() + 1).sum();
                let first = 6 << 28 | u32::from(*class) << 20 | label;
                frame.extend_from_slice(&first.to_be_bytes());
                frame.extend_from_slice(&((bytes + segment.len()) as u16).to_be_bytes());
                let mut next = extensions
                    .iter()
                    .map(|&(number, _)| number)
                    .chain([self.number()]);
                frame.push(next.next().unwrap_or(59));
                frame.push(*hop_limit);
                frame.extend_from_slice(source);
                frame.extend_from_slice(destination);
                for ((_, body), following) in extensions.iter().zip(next) {
                    frame.push(following);
                    frame.extend_from_slice(body);
                }
            }
        }
    }

    /// L4 header and payload, with its checksum.
    fn segment(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let checksum_at = match &self.transport {
            Transport::None => {
                bytes.extend_from_slice(&self.payload);
                return bytes;
            }
            Transport::Tcp {
                source,
                destination,
                sequence,
                acknowledgement,
                flags,
                window,
                urgent,
            } => {
                let mut options = padded(&self.tcp_options, 4);
                options.truncate(40);
                bytes.extend_from_slice(&source.to_be_bytes());
                bytes.extend_from_slice(&destination.to_be_bytes());
                bytes.extend_from_slice(&sequence.to_be_bytes());
                bytes.extend_from_slice(&acknowledgement.to_be_bytes());
                bytes.extend_from_slice(&[((20 + options.len()) * 4) as u8, *flags]);
                bytes.extend_from_slice(&window.to_be_bytes());
                bytes.extend_from_slice(&[0, 0]);
                bytes.extend_from_slice(&urgent.to_be_bytes());
                bytes.extend_from_slice(&options);
                16
            }
            Transport::Udp {
                source,
                destination,
                len,
            } => {
                let len = len.unwrap_or((8 + self.payload.len()) as u16);
                for word in [*source, *destination, len, 0] {
                    bytes.extend_from_slice(&word.to_be_bytes());
                }
                6
            }
            Transport::Icmp { kind, code, rest } => {
                bytes.extend_from_slice(&[*kind, *code, 0, 0]);
                bytes.extend_from_slice(rest);
                2
            }
        };
        bytes.extend_from_slice(&self.payload);
        let value = self.l4_checksum(&bytes);
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&value.to_be_bytes());
        bytes
    }

    fn l4_checksum(&self, segment: &[u8]) -> u16 {
        let udp = matches!(self.transport, Transport::Udp { .. });
        // UDP covers what its own length says, also where the IP payload is longer.
        let covered = match self.transport {
            Transport::Udp { len: Some(len), .. } => usize::from(len).min(segment.len()),
            _ => segment.len(),
        };
        let length = covered as u32;
        let pseudo = match (&self.network, &self.transport) {
            (
                Network::Ip6 {
                    source,
                    destination,
                    ..
                },
                _,
            ) => checksum::pseudo_header6(*source, *destination, self.number(), length),
            (Network::None, _) | (_, Transport::Icmp { .. }) => 0,
            (
                Network::Ip4 {
                    source,
                    destination,
                    ..
                },
                _,
            ) => checksum::pseudo_header4(*source, *destination, self.number(), length),
        };
        let correct = match !fold(pseudo + sum(&segment[..covered])) {
            0 if udp => 0xffff,
            value => value,
        };
        match self.checksums {
            Checksums::Correct => correct,
            Checksums::Unfinished => fold(pseudo),
            Checksums::OffBy(difference) => correct.wrapping_add(difference),
            Checksums::Zero => 0,
        }
    }
}

fn padded(bytes: &[u8], unit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(unit), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn a_udp_datagram_to_the_byte() {
        let frame = Frame::new()
            .vlan(5)
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(53, 1024)
            .payload(b"hi!")
            .build();
        let expected: &[u8] = &[
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 5, 8, 0, //
            0x45, 0, 0, 31, 0, 1, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2, //
            0, 53, 4, 0, 0, 11, 0x5e, 0x37, b'h', b'i', b'!',
        ];
        assert_eq!(frame, expected);
    }

    #[test]
    fn chains_parse_to_what_was_built() {
        let frame = Frame::new()
            .ip6([1; 16], [2; 16])
            .extension(protocol::HOP_BY_HOP, &[5, 2, 0, 0])
            .extension(protocol::AH, &[0; 10])
            .fragment(0, false)
            .icmp(128, 0)
            .payload(b"abc")
            .build();
        let layout = parse(&frame).expect("well formed");
        let ip = layout.ip.expect("IPv6");
        let chain: Vec<(u8, usize)> = ip.extensions.iter().map(|e| (e.protocol, e.len)).collect();
        assert_eq!(chain, [(0, 8), (51, 12), (44, 8)]);
        assert_eq!(ip.protocol, 58);
        assert_eq!(
            layout.l4.map(|l4| frame[l4.payload].to_vec()),
            Some(b"abc".to_vec())
        );
    }
}
