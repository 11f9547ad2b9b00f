//! Frame bytes to a [`Layout`]: where headers, options and payloads are, or why the packet is dropped.
//!
//! Implements docs/semantics.md section 1, check by check in that order, and nothing else: the reference
//! interpreter and everything that displays packets stand on it. Invariant: every offset and range in a
//! layout lies inside the frame it was made from.

use std::ops::Range;

use crate::Reason;
use crate::checksum;

/// The longest frame that is processed: an Ethernet header and the largest IP packet.
pub const MAX_FRAME: usize = 65_549;
/// VLAN tags that are walked.
pub const MAX_TAGS: usize = 4;
/// IPv6 extension headers that are walked.
pub const MAX_EXTENSIONS: usize = 8;
/// Bytes of IPv6 extension headers that are walked.
pub const MAX_EXTENSION_BYTES: usize = 256;

/// Where everything is in a frame that is well formed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// EtherType behind the last VLAN tag.
    pub ether_type: u16,
    /// Offsets of the VLAN tags' control information (TCI), outermost first.
    pub tags: Vec<usize>,
    /// Offset of the first byte behind the last EtherType.
    pub network: usize,
    /// The IP header, if the frame has one.
    pub ip: Option<Ip>,
    /// The L4 header, if the packet has one that is known.
    pub l4: Option<L4>,
    /// What was odd, in the order found; each at most once.
    pub notes: Vec<Reason>,
}

/// An IP header of either version, extension headers included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Which header it is.
    pub version: Version,
    /// Offset of the header.
    pub at: usize,
    /// IPv4: bytes of header and options. IPv6: 40.
    pub header_len: usize,
    /// The protocol of what follows the last header walked.
    pub protocol: u8,
    /// What follows the last header walked, up to the end of the packet; for ESP from its header on.
    pub payload: Range<usize>,
    /// Whether the packet is a fragment.
    pub fragment: Fragment,
    /// IPv4 options without NOP and EOL.
    pub options: Vec<Opt>,
    /// IPv6 extension headers in order, ESP included.
    pub extensions: Vec<Extension>,
}

impl Ip {
    /// Offset of the last IPv6 fragment header walked.
    pub fn fragment_header(&self) -> Option<usize> {
        self.extensions
            .iter()
            .rev()
            .find(|extension| extension.protocol == protocol::FRAGMENT)
            .map(|e| e.at)
    }

    /// Whether an L4 header follows: not behind later fragments and ESP.
    pub fn carries_l4(&self) -> bool {
        self.fragment != Fragment::Later
            && self
                .extensions
                .last()
                .is_none_or(|extension| extension.protocol != protocol::ESP)
    }
}

/// Version of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// All of it; atomic fragments (RFC 6946), too.
    Whole,
    /// The first, with the L4 header.
    First,
    /// One behind the first.
    Later,
}

/// An option of an IPv4 or TCP header, by its place in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    /// IPv4: type byte. TCP: kind.
    pub kind: u8,
    /// Offset of the kind byte.
    pub at: usize,
    /// Bytes, kind and length byte included; at least 2.
    pub len: usize,
}

impl Opt {
    /// The bytes behind the length byte.
    pub fn value<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame
            .get(self.at + 2..self.at + self.len)
            .unwrap_or_default()
    }
}

/// An IPv6 extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its protocol number.
    pub protocol: u8,
    /// Offset.
    pub at: usize,
    /// Bytes; of ESP the 8 that are looked at.
    pub len: usize,
}

/// An L4 header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L4 {
    /// Which.
    pub protocol: Protocol,
    /// Offset.
    pub at: usize,
    /// Bytes, TCP options included.
    pub header_len: usize,
    /// Bytes behind the header that belong to it; of UDP up to its length.
    pub payload: Range<usize>,
    /// TCP options without NOP and what follows EOL.
    pub options: Vec<Opt>,
}

impl L4 {
    /// Offset of the checksum in the frame.
    pub fn checksum_at(&self) -> usize {
        self.at
            + match self.protocol {
                Protocol::Tcp => 16,
                Protocol::Udp => 6,
                Protocol::Icmp | Protocol::Icmp6 => 2,
            }
    }
}

/// L4 protocols whose headers are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 792, in IPv4 only.
    Icmp,
    /// RFC 4443, in IPv6 only.
    Icmp6,
}

/// Protocol numbers that mean something to the parser.
#[expect(missing_docs, reason = "the names are those of the registry")]
pub mod protocol {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const DCCP: u8 = 33;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMP6: u8 = 58;
    pub const DESTINATION: u8 = 60;
    pub const SCTP: u8 = 132;
    pub const MOBILITY: u8 = 135;
    pub const UDP_LITE: u8 = 136;
    pub const HIP: u8 = 139;
    pub const SHIM6: u8 = 140;
}

/// A packet that is dropped while it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Why; a reason whose fate is a drop.
    pub reason: Reason,
    /// Notes collected before.
    pub notes: Vec<Reason>,
    /// What had been found before.
    pub partial: Layout,
}

/// Parses a frame.
///
/// # Errors
/// The first reason to drop it.
pub fn parse(frame: &[u8]) -> Result<Layout, Box<Malformed>> {
    let mut layout = Layout::default();
    match walk(frame, &mut layout) {
        Ok(()) => Ok(layout),
        Err(reason) => Err(Box::new(Malformed {
            reason,
            notes: std::mem::take(&mut layout.notes),
            partial: layout,
        })),
    }
}

/// Reads a big-endian 16-bit word; past the end it is 0.
pub fn word16(frame: &[u8], at: usize) -> u16 {
    frame
        .get(at..)
        .and_then(|tail| tail.first_chunk())
        .map_or(0, |&bytes| u16::from_be_bytes(bytes))
}

fn walk(frame: &[u8], layout: &mut Layout) -> Result<(), Reason> {
    if frame.len() < 14 {
        return Err(Reason::FrameShort);
    }
    if frame.len() > MAX_FRAME {
        return Err(Reason::FrameLong);
    }
    let mut at = 12;
    while matches!(word16(frame, at), 0x8100 | 0x88a8 | 0x9100) {
        if layout.tags.len() == MAX_TAGS {
            return Err(Reason::VlanDeep);
        }
        if at + 6 > frame.len() {
            return Err(Reason::VlanTruncated);
        }
        layout.tags.push(at + 2);
        at += 4;
    }
    layout.ether_type = word16(frame, at);
    layout.network = at + 2;
    match layout.ether_type {
        0x0800 => ip4(frame, layout)?,
        0x86dd => ip6(frame, layout)?,
        _ => return Ok(()),
    }
    l4(frame, layout)
}

#[expect(
    clippy::indexing_slicing,
    reason = "each length is checked before its bytes are read"
)]
fn ip4(frame: &[u8], layout: &mut Layout) -> Result<(), Reason> {
    let at = layout.network;
    let avail = frame.len() - at;
    if avail < 20 {
        return Err(Reason::Ip4Truncated);
    }
    if frame[at] >> 4 != 4 {
        return Err(Reason::Ip4BadVersion);
    }
    let header_len = usize::from(frame[at] & 15) * 4;
    if header_len < 20 || header_len > avail {
        return Err(Reason::Ip4BadIhl);
    }
    let total_len = usize::from(word16(frame, at + 2));
    if total_len < header_len {
        return Err(Reason::Ip4BadLen);
    }
    if total_len > avail {
        return Err(Reason::Ip4LenOver);
    }
    let header = &frame[at..at + header_len];
    if checksum::fold(checksum::sum(header)) != 0xffff {
        return Err(Reason::Ip4BadChecksum);
    }
    if header[8] == 0 {
        return Err(Reason::TtlZero);
    }
    let options = options(frame, at + 20..at + header_len).ok_or(Reason::Ip4BadOption)?;
    let flags = word16(header, 6);
    let offset = usize::from(flags & 0x1fff) * 8;
    if offset + (total_len - header_len) > 65_535 {
        return Err(Reason::FragPastEnd);
    }
    if total_len < avail {
        layout.notes.push(Reason::Trailer);
    }
    layout.ip = Some(Ip {
        version: Version::V4,
        at,
        header_len,
        protocol: header[9],
        payload: at + header_len..at + total_len,
        fragment: fragment(offset, flags & 0x2000 != 0),
        options,
        extensions: Vec::new(),
    });
    Ok(())
}

#[expect(
    clippy::indexing_slicing,
    reason = "each length is checked before its bytes are read"
)]
fn ip6(frame: &[u8], layout: &mut Layout) -> Result<(), Reason> {
    let at = layout.network;
    let avail = frame.len() - at;
    if avail < 40 {
        return Err(Reason::Ip6Truncated);
    }
    if frame[at] >> 4 != 6 {
        return Err(Reason::Ip6BadVersion);
    }
    if frame[at + 7] == 0 {
        return Err(Reason::TtlZero);
    }
    let payload_len = usize::from(word16(frame, at + 4));
    if payload_len == 0 && frame[at + 6] == protocol::HOP_BY_HOP {
        return Err(Reason::Ip6Jumbo);
    }
    if payload_len + 40 > avail {
        return Err(Reason::Ip6LenOver);
    }
    if payload_len + 40 < avail {
        layout.notes.push(Reason::Trailer);
    }
    let end = at + 40 + payload_len;
    let ip = layout.ip.insert(Ip {
        version: Version::V6,
        at,
        header_len: 40,
        protocol: frame[at + 6],
        payload: at + 40..end,
        fragment: Fragment::Whole,
        options: Vec::new(),
        extensions: Vec::new(),
    });
    extensions(frame, ip)
}

/// Walks the extension headers of an IPv6 packet whose fixed header is in `ip`.
#[expect(
    clippy::indexing_slicing,
    reason = "each length is checked before its bytes are read"
)]
fn extensions(frame: &[u8], ip: &mut Ip) -> Result<(), Reason> {
    let end = ip.payload.end;
    let mut at = ip.payload.start;
    let mut bytes = 0;
    while is_extension(ip.protocol) {
        if ip.extensions.len() == MAX_EXTENSIONS {
            return Err(Reason::Ip6EhDeep);
        }
        if end - at < 8 {
            return Err(Reason::Ip6EhTruncated);
        }
        let units = usize::from(frame[at + 1]);
        let len = match ip.protocol {
            protocol::FRAGMENT | protocol::ESP => 8,
            protocol::AH => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        if len > end - at {
            return Err(Reason::Ip6EhTruncated);
        }
        bytes += len;
        if bytes > MAX_EXTENSION_BYTES {
            return Err(Reason::Ip6EhLong);
        }
        ip.extensions.push(Extension {
            protocol: ip.protocol,
            at,
            len,
        });
        if ip.protocol == protocol::ESP {
            break;
        }
        let is_fragment = ip.protocol == protocol::FRAGMENT;
        ip.protocol = frame[at];
        let header = at;
        at += len;
        ip.payload = at..end;
        if is_fragment {
            let field = word16(frame, header + 2);
            let offset = usize::from(field & 0xfff8);
            if offset + (end - at) > 65_535 {
                return Err(Reason::FragPastEnd);
            }
            // The last fragment header decides.
            ip.fragment = fragment(offset, field & 1 != 0);
            if offset != 0 {
                break;
            }
        }
    }
    Ok(())
}

#[expect(
    clippy::indexing_slicing,
    reason = "each length is checked before its bytes are read"
)]
fn l4(frame: &[u8], layout: &mut Layout) -> Result<(), Reason> {
    let Some(ip) = layout.ip.as_ref().filter(|ip| ip.carries_l4()) else {
        return Ok(());
    };
    let at = ip.payload.start;
    let end = ip.payload.end;
    let plen = end - at;
    let header = match (ip.protocol, ip.version) {
        (protocol::TCP, _) => {
            if plen < 20 {
                return Err(Reason::TcpTruncated);
            }
            let header_len = usize::from(frame[at + 12] >> 4) * 4;
            if header_len < 20 || header_len > plen {
                return Err(Reason::TcpBadOffset);
            }
            let options = options(frame, at + 20..at + header_len).ok_or(Reason::TcpBadOption)?;
            L4 {
                protocol: Protocol::Tcp,
                at,
                header_len,
                payload: at + header_len..end,
                options,
            }
        }
        (protocol::UDP, _) => {
            if plen < 8 {
                return Err(Reason::UdpTruncated);
            }
            let len = usize::from(word16(frame, at + 4));
            if len < 8 || (len > plen && ip.fragment != Fragment::First) {
                return Err(Reason::UdpBadLen);
            }
            if word16(frame, at + 6) == 0 {
                layout.notes.push(Reason::UdpZeroChecksum);
            }
            L4 {
                protocol: Protocol::Udp,
                at,
                header_len: 8,
                payload: at + 8..at + len.min(plen),
                options: Vec::new(),
            }
        }
        (protocol::ICMP, Version::V4) | (protocol::ICMP6, Version::V6) => {
            if plen < 8 {
                return Err(Reason::IcmpTruncated);
            }
            let protocol = if ip.version == Version::V4 {
                Protocol::Icmp
            } else {
                Protocol::Icmp6
            };
            L4 {
                protocol,
                at,
                header_len: 8,
                payload: at + 8..end,
                options: Vec::new(),
            }
        }
        _ => return Ok(()),
    };
    layout.l4 = Some(header);
    Ok(())
}

/// Whether a protocol number is that of an IPv6 extension header, ESP included.
pub fn is_extension(number: u8) -> bool {
    matches!(
        number,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::ESP
            | protocol::AH
            | protocol::DESTINATION
            | protocol::MOBILITY
            | protocol::HIP
            | protocol::SHIM6
    )
}

fn fragment(offset: usize, more: bool) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

/// The options in `range`, NOP and EOL left out; `None` if a length is below 2 or leads out of the range.
/// IPv4 and TCP options have the same shape.
#[expect(
    clippy::indexing_slicing,
    reason = "`at` is below the end of the range, which lies in the frame"
)]
fn options(frame: &[u8], range: Range<usize>) -> Option<Vec<Opt>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        match frame[at] {
            0 => break,
            1 => at += 1,
            kind => {
                let len = usize::from(*frame[..range.end].get(at + 1)?);
                if len < 2 || len > range.end - at {
                    return None;
                }
                found.push(Opt { kind, at, len });
                at += len;
            }
        }
    }
    Some(found)
}
