//! IPv4 with options, IPv6 with extension headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Decoder, sum, u16_at, u32_at};
use crate::event::{Event, Events};
use crate::packet::{Ip, Packet};

/// Extension headers that are followed; hosts send at most six.
const MAX_HEADERS: usize = 16;

/// Packets longer than frames usually are have a length of 0 where a host leaves it to its network card to cut them. Of shorter ones 0 is wrong: nobody takes them.
const USUAL: usize = 1600;

/// What the transport headers need of the IP header.
#[derive(Clone, Copy)]
pub(super) struct Upper {
    /// Upper protocol.
    pub(super) protocol: u8,
    /// Where it begins.
    pub(super) start: usize,
    /// Where the packet ends.
    pub(super) end: usize,
    /// Folded sum of both addresses.
    pub(super) addresses: u32,
    /// Whether checksums are verified: not where a routing header changes the destination.
    pub(super) verify: bool,
    pub(super) v6: bool,
    pub(super) ttl: u8,
}

impl Decoder {
    pub(super) fn ipv4(&mut self, packet: &mut Packet<'_>, at: usize) {
        let data = packet.data.get(at..).unwrap_or_default();
        let Some(fixed) = data.first_chunk::<20>() else {
            packet.events.insert(Event::Ipv4TooSmall);
            return;
        };
        if fixed[0] >> 4 != 4 {
            packet.events.insert(Event::Ipv4WrongVersion);
            return;
        }
        let header = usize::from(fixed[0] & 15) * 4;
        let total = match u16::from_be_bytes([fixed[2], fixed[3]]) {
            0 if data.len() > USUAL => data.len(),
            n => usize::from(n),
        };
        let problem = if header < 20 {
            Some(Event::Ipv4HeaderTooSmall)
        } else if total < header {
            Some(Event::Ipv4LengthTooSmall)
        } else if total > data.len() {
            Some(Event::Ipv4Truncated)
        } else {
            None
        };
        if let Some(event) = problem {
            packet.events.insert(event);
            return;
        }
        self.counts.ipv4 += 1;
        if header > 20 {
            options(data.get(20..header).unwrap_or_default(), &mut packet.events);
        }
        let [header_too, verify] = self.verifies(packet.depth);
        if header_too && !sum::is_right([sum::sum(data.get(..header).unwrap_or_default()), 0, 0]) {
            packet.events.insert(Event::Ipv4Checksum);
            packet.bad_checksum = true;
        }
        let bits = u16::from_be_bytes([fixed[6], fixed[7]]);
        let ip = Ip {
            source: IpAddr::V4(Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15])),
            destination: IpAddr::V4(Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19])),
            header: at..at + header,
            protocol: fixed[9],
            ttl: fixed[8],
            tos: fixed[1],
            id: u32::from(u16::from_be_bytes([fixed[4], fixed[5]])),
            flags: (bits >> 13) as u8,
            fragment_offset: (bits & 0x1fff) * 8,
            fragment: bits & 0x3fff != 0,
        };
        let fragment = ip.fragment;
        let upper = Upper {
            protocol: ip.protocol,
            start: at + header,
            end: at + total,
            addresses: if verify { sum::sum(&fixed[12..20]) } else { 0 },
            verify,
            v6: false,
            ttl: ip.ttl,
        };
        packet.payload = upper.start..upper.end;
        Self::found(packet, ip);
        if fragment {
            self.counts.fragments += 1;
        } else {
            self.upper(packet, upper);
        }
    }

    pub(super) fn ipv6(&mut self, packet: &mut Packet<'_>, at: usize) {
        let data = packet.data.get(at..).unwrap_or_default();
        let Some(fixed) = data.first_chunk::<40>() else {
            packet.events.insert(Event::Ipv6TooSmall);
            return;
        };
        if fixed[0] >> 4 != 6 {
            packet.events.insert(Event::Ipv6WrongVersion);
            return;
        }
        let length = match u16::from_be_bytes([fixed[4], fixed[5]]) {
            // Or more than fits (RFC 2675).
            0 if data.len() > USUAL => data.len(),
            n => 40 + usize::from(n),
        };
        if length > data.len() {
            packet.events.insert(Event::Ipv6Truncated);
            return;
        }
        self.counts.ipv6 += 1;
        let mut ip = Ip {
            source: address::<8>(fixed),
            destination: address::<24>(fixed),
            header: at..at + 40,
            protocol: fixed[6],
            ttl: fixed[7],
            tos: fixed[0] << 4 | fixed[1] >> 4,
            id: 0,
            flags: 0,
            fragment_offset: 0,
            fragment: false,
        };
        let whole = data.get(..length).unwrap_or_default();
        let walked = extensions(whole, fixed[6], &mut ip, &mut packet.events);
        ip.header.end = at + walked.end;
        ip.protocol = walked.protocol;
        let fragment = ip.fragment;
        let verify = self.verifies(packet.depth)[1] && !walked.routed;
        let upper = Upper {
            protocol: walked.protocol,
            start: at + walked.end,
            end: at + length,
            addresses: if verify { sum::sum(&fixed[8..40]) } else { 0 },
            verify,
            v6: true,
            ttl: ip.ttl,
        };
        packet.payload = upper.start..upper.end;
        Self::found(packet, ip);
        if fragment {
            self.counts.fragments += 1;
        } else if walked.whole {
            self.upper(packet, upper);
        }
    }
}

struct Walked {
    /// First byte after the headers.
    end: usize,
    protocol: u8,
    /// Whether they end in an upper protocol.
    whole: bool,
    /// Whether a routing header has segments left.
    routed: bool,
}

/// Follows extension headers to the upper protocol, or to a fragment header of a fragment.
fn extensions(data: &[u8], mut next: u8, ip: &mut Ip, events: &mut Events) -> Walked {
    let mut at = 40;
    let mut seen = [0_u8; 6];
    let mut routed = false;
    let stop = |at, protocol, whole, routed| Walked {
        end: at,
        protocol,
        whole,
        routed,
    };
    for _ in 0..MAX_HEADERS {
        // Hop-by-hop, routing, fragment, authentication, destination options; mobility, host identity, shim.
        let slot = match next {
            0 => 0,
            43 => 1,
            44 => 2,
            51 => 3,
            60 => 4,
            135 | 139 | 140 => 5,
            59 => {
                if at < data.len() {
                    events.insert(Event::Ipv6DataAfterNone);
                }
                return stop(at, next, false, routed);
            }
            _ => {
                // No upper header has less than two bytes.
                if at > 40 && data.len() < at + 2 {
                    events.insert(Event::Ipv6HeaderTruncated);
                }
                return stop(at, next, true, routed);
            }
        };
        let Some(seen) = seen.get_mut(slot) else {
            return stop(at, next, true, routed);
        };
        *seen += 1;
        match (slot, *seen) {
            (0, 2) => events.insert(Event::Ipv6DuplicateHopByHop),
            (1, 2) => events.insert(Event::Ipv6DuplicateRouting),
            (2, 2) => events.insert(Event::Ipv6DuplicateFragment),
            (3, 2) => events.insert(Event::Ipv6DuplicateAuthentication),
            (4, 3) => events.insert(Event::Ipv6DuplicateDestination),
            _ => {}
        }
        let Some(&[following, length, third, fourth, ..]) =
            data.get(at..).and_then(|d| d.first_chunk::<8>())
        else {
            events.insert(Event::Ipv6HeaderTruncated);
            return stop(at, next, false, routed);
        };
        let size = match slot {
            2 => 8,
            3 => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        let Some(header) = data.get(at..at + size) else {
            events.insert(Event::Ipv6HeaderTruncated);
            return stop(at, next, false, routed);
        };
        match slot {
            0 => ipv6_options(
                header.get(2..).unwrap_or_default(),
                events,
                [Event::Ipv6HopByHopUnknown, Event::Ipv6HopByHopPadding],
            ),
            4 => ipv6_options(
                header.get(2..).unwrap_or_default(),
                events,
                [Event::Ipv6DestinationUnknown, Event::Ipv6DestinationPadding],
            ),
            1 => {
                if third == 0 {
                    events.insert(Event::Ipv6RoutingType0);
                }
                routed |= fourth > 0;
            }
            3 if third != 0 || fourth != 0 => events.insert(Event::Ipv6AuthenticationReserved),
            3 | 5 => {}
            _ => {
                let word = u16::from_be_bytes([third, fourth]);
                if length != 0 || word & 6 != 0 {
                    events.insert(Event::Ipv6FragmentReserved);
                }
                ip.id = u32_at(header, 4).unwrap_or(0);
                ip.fragment_offset = word & !7;
                ip.flags = (word & 1) as u8;
                at += size;
                if word & !6 == 0 {
                    // An atomic fragment (RFC 6946) is whole by itself.
                    events.insert(Event::Ipv6UselessFragment);
                    next = following;
                    continue;
                }
                ip.fragment = true;
                return stop(at, following, false, routed);
            }
        }
        at += size;
        next = following;
    }
    events.insert(Event::Ipv6TooManyHeaders);
    stop(at, next, false, routed)
}

/// Looks at the options of a hop-by-hop or destination options header. `kinds`: what is raised if all are unknown, or all are padding.
fn ipv6_options(mut options: &[u8], events: &mut Events, kinds: [Event; 2]) {
    let (mut known, mut unknown, mut padding) = (false, false, false);
    while let Some((&kind, rest)) = options.split_first() {
        if kind == 0 {
            padding = true;
            options = rest;
            continue;
        }
        let Some((value, after)) = rest
            .split_first()
            .and_then(|(&n, r)| r.split_at_checked(usize::from(n)))
        else {
            events.insert(Event::Ipv6OptionLength);
            return;
        };
        match kind {
            1 => {
                padding = true;
                if value.is_empty() {
                    events.insert(Event::Ipv6ZeroPad);
                }
            }
            // Router alert, jumbo, home address: of one length.
            0x05 if value.len() != 2 => events.insert(Event::Ipv6OptionLength),
            0xc2 if value.len() != 4 => events.insert(Event::Ipv6OptionLength),
            0xc9 if value.len() != 16 => events.insert(Event::Ipv6OptionLength),
            // Alternate marking (RFC 9343, section 3.1): of another length it is something else.
            0x12 if value.len() != 4 => unknown = true,
            // Router alert, tunnel limit, jumbo, home address, quick start, CALIPSO, RPL (two values), ILNP nonce, SMF, MPL, PDM, alternate marking.
            0x05 | 0x04 | 0xc2 | 0xc9 | 0x26 | 0x07 | 0x63 | 0x23 | 0x8b | 0x08 | 0x6d | 0x0f
            | 0x12 => known = true,
            _ => unknown = true,
        }
        options = after;
    }
    if unknown && !known {
        events.insert(kinds[0]);
    } else if padding && !known {
        events.insert(kinds[1]);
    }
}

/// Looks at IPv4 options; none of them changes how the packet is decoded.
fn options(mut options: &[u8], events: &mut Events) {
    let mut seen = [false; 256];
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            0 => return,
            1 => {
                options = rest;
                continue;
            }
            _ => {}
        }
        let Some(&length) = rest.first() else {
            events.insert(Event::Ipv4OptionLength);
            return;
        };
        let length = usize::from(length);
        if length < 2 || length > options.len() {
            events.insert(Event::Ipv4OptionLength);
            return;
        }
        let Some((option, next)) = options.split_at_checked(length) else {
            return;
        };
        if seen
            .get_mut(usize::from(kind))
            .is_some_and(|seen| std::mem::replace(seen, true))
        {
            events.insert(Event::Ipv4OptionDuplicate);
        }
        match kind {
            // Record route, loose and strict source route: a pointer from 4 in steps of 4.
            7 | 131 | 137 => match option.get(2) {
                Some(&pointer)
                    if length % 4 == 3
                        && (pointer < 4
                            || pointer % 4 != 0
                            || usize::from(pointer) > length + 1) =>
                {
                    events.insert(Event::Ipv4OptionMalformed);
                }
                Some(_) if length % 4 == 3 => {}
                _ => events.insert(Event::Ipv4OptionInvalid),
            },
            // Timestamp: a pointer from 5.
            68 => match option.get(2) {
                Some(&pointer)
                    if length >= 4 && (pointer < 5 || usize::from(pointer) > length + 1) =>
                {
                    events.insert(Event::Ipv4OptionMalformed)
                }
                Some(_) if length >= 4 => {}
                _ => events.insert(Event::Ipv4OptionInvalid),
            },
            // Stream identifier, router alert: four bytes.
            136 | 148 if length != 4 => events.insert(Event::Ipv4OptionInvalid),
            // Security, extended security, CIPSO, stream identifier, router alert, quick start.
            130 | 133 | 134 | 136 | 148 | 25 => {}
            _ => events.insert(Event::Ipv4OptionUnknown),
        }
        options = next;
    }
}

/// The addresses, protocol, start of the upper header and first ports of a packet quoted by ICMP, of which only the beginning may be there.
pub(super) struct Quote {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) upper: usize,
    pub(super) fragment: bool,
}

pub(super) fn quoted(data: &[u8], v6: bool) -> Option<Quote> {
    if v6 {
        let fixed = data.first_chunk::<40>()?;
        let mut ip = Ip {
            source: address::<8>(fixed),
            destination: address::<24>(fixed),
            header: 0..40,
            protocol: fixed[6],
            ttl: 0,
            tos: 0,
            id: 0,
            flags: 0,
            fragment_offset: 0,
            fragment: false,
        };
        // What is odd about a quoted packet was an event when it was seen itself.
        let walked = extensions(data, fixed[6], &mut ip, &mut Events::default());
        return Some(Quote {
            source: ip.source,
            destination: ip.destination,
            protocol: walked.protocol,
            upper: walked.end,
            fragment: ip.fragment_offset != 0,
        });
    }
    let fixed = data.first_chunk::<20>()?;
    let header = usize::from(fixed[0] & 15) * 4;
    if header < 20 {
        return None;
    }
    Some(Quote {
        source: IpAddr::V4(Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15])),
        destination: IpAddr::V4(Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19])),
        protocol: fixed[9],
        upper: header,
        fragment: u16_at(data, 6)? & 0x1fff != 0,
    })
}

/// An address in a fixed header of IPv6.
fn address<const AT: usize>(fixed: &[u8; 40]) -> IpAddr {
    let bytes = fixed.get(AT..).and_then(|f| f.first_chunk::<16>());
    IpAddr::V6(Ipv6Addr::from(bytes.copied().unwrap_or_default()))
}
