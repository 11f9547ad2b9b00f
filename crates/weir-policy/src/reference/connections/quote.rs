//! What ICMP errors quote: docs/semantics.md section 7, "ICMP errors".

use weir_packet::parse::{Fragment, Layout, Protocol, Version, is_extension, protocol, word16};

use super::Tuple;

/// Bytes of a frame in which quotes are looked at.
const REACH: usize = 400;

/// A quoted packet with a tuple.
#[derive(Clone, Copy, Debug)]
pub(in crate::reference) struct Quote {
    pub(in crate::reference) tuple: Tuple,
    pub(in crate::reference) version: Version,
    /// Offset of its IP header in the frame.
    pub(in crate::reference) at: usize,
    /// `None`: one of which no L4 header is known.
    pub(in crate::reference) protocol: Option<Protocol>,
    /// Offset of its L4 header in the frame.
    pub(in crate::reference) l4_at: usize,
    /// One past the last byte of it that is looked at.
    pub(in crate::reference) end: usize,
}

impl Quote {
    /// The quote of an ICMP error, if it quotes a packet with a tuple.
    pub(in crate::reference) fn of_packet(frame: &[u8], layout: &Layout) -> Option<Quote> {
        let (ip, l4) = (layout.ip.as_ref()?, layout.l4.as_ref()?);
        let kind = *frame.get(l4.at)?;
        if !is_error(l4.protocol, kind) || ip.fragment != Fragment::Whole {
            return None;
        }
        let at = l4.at + 8;
        let end = ip.payload.end.min(REACH);
        let quoted = frame.get(at..end)?;
        let (header_len, number) = match ip.version {
            Version::V4 => {
                let fixed = quoted.get(..20)?;
                let header_len = usize::from(fixed[0] & 15) * 4;
                if fixed[0] >> 4 != 4 || header_len < 20 || word16(fixed, 6) & 0x1fff != 0 {
                    return None;
                }
                (header_len, fixed[9])
            }
            Version::V6 => {
                let fixed = quoted.get(..40)?;
                if fixed[0] >> 4 != 6 {
                    return None;
                }
                (40, fixed[6])
            }
        };
        let l4_at = at + header_len;
        if l4_at + 8 > end {
            return None;
        }
        let protocol = match (number, ip.version) {
            (protocol::TCP, _) => Some(Protocol::Tcp),
            (protocol::UDP, _) => Some(Protocol::Udp),
            (protocol::ICMP, Version::V4) => Some(Protocol::Icmp),
            (protocol::ICMP6, Version::V6) => Some(Protocol::Icmp6),
            (number, Version::V6) if is_extension(number) && number != protocol::ESP => {
                return None;
            }
            _ => None,
        };
        let tuple = match protocol {
            Some(known) => Tuple::of_headers(frame, ip.version, at, known, l4_at)?,
            None => Tuple::without_l4(frame, ip.version, at, number, &frame[l4_at..end]),
        };
        Some(Quote {
            tuple,
            version: ip.version,
            at,
            protocol,
            l4_at,
            end,
        })
    }
}

/// Whether an ICMP type is an error.
pub(super) fn is_error(protocol: Protocol, kind: u8) -> bool {
    match protocol {
        Protocol::Icmp => matches!(kind, 3 | 11 | 12),
        Protocol::Icmp6 => matches!(kind, 1..=4),
        Protocol::Tcp | Protocol::Udp => false,
    }
}
