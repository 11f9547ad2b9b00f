//! Bytes of frames: fields, answers to questions for addresses, echo, and ICMP errors. RFC 791, 792, 826, 1812, 4443, 4861, 8200.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_packet::checksum::{checksum, fold, pseudo_header6, sum};

use crate::values::Mac;

pub(super) const HEADER: usize = 14;
pub(super) const ETH_IP4: u16 = 0x0800;
pub(super) const ETH_ARP: u16 = 0x0806;
pub(super) const ETH_IP6: u16 = 0x86dd;

/// Bytes of an ARP packet of Ethernet and IPv4.
const ARP: usize = 28;
/// Bytes of a neighbour solicitation with one option.
const SOLICITATION: usize = 32;
const ICMP6: u8 = 58;
/// TTL and hop limit of what is made here.
const TTL: u8 = 64;
/// Bytes of a packet that an error quotes.
const QUOTE4: usize = 576 - 20 - 8;
const QUOTE6: usize = 1280 - 40 - 8;

pub(super) fn word16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

pub(super) fn ether_type(frame: &[u8]) -> u16 {
    word16(frame, 12)
}

pub(super) fn is_tag(kind: u16) -> bool {
    kind == 0x8100 || kind == 0x88a8
}

/// The MAC address at a place, which is in the frame.
pub(super) fn mac(frame: &[u8], at: usize) -> Mac {
    frame
        .get(at..at + 6)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(Mac::default(), Mac)
}

pub(super) fn address4(frame: &[u8], at: usize) -> Ipv4Addr {
    let bytes: Option<[u8; 4]> = frame
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(Ipv4Addr::UNSPECIFIED, Ipv4Addr::from)
}

pub(super) fn address6(frame: &[u8], at: usize) -> Ipv6Addr {
    let bytes: Option<[u8; 16]> = frame
        .get(at..at + 16)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from)
}

/// A question for the MAC address of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) address: IpAddr,
    /// Who asks has no address yet: he looks for a duplicate (RFC 5227, RFC 4862).
    pub(super) probe: bool,
}

/// What a frame asks for, if it does.
pub(super) fn asked(frame: &[u8]) -> Option<Asked> {
    match ether_type(frame) {
        ETH_ARP => {
            let arp = frame.get(HEADER..HEADER + ARP)?;
            let is_request = arp[..8] == [0, 1, 8, 0, 6, 4, 0, 1];
            is_request.then(|| Asked {
                address: address4(arp, 24).into(),
                probe: arp[14..18] == [0; 4],
            })
        }
        ETH_IP6 => {
            let ip = frame.get(HEADER..HEADER + 40 + SOLICITATION - 8)?;
            let probe = ip[8..24] == [0; 16];
            let length = word16(ip, 4) as usize;
            // Duplicates are looked for without an option, or with a nonce (RFC 7527).
            let has_option = match length {
                SOLICITATION => frame
                    .get(HEADER + 64..HEADER + 40 + SOLICITATION)
                    .is_some_and(|option| option[..2] == [if probe { 14 } else { 1 }, 1]),
                _ => probe && length == SOLICITATION - 8,
            };
            let is_solicitation = ip[6] == ICMP6 && ip[7] == 255 && ip[40..42] == [135, 0];
            (is_solicitation && has_option).then(|| Asked {
                address: address6(ip, 48).into(),
                probe,
            })
        }
        _ => None,
    }
}

/// Turns a question, which [`asked`] found to be one, into the answer that `owner` has the address.
pub(super) fn answer(frame: &mut Vec<u8>, asked: &Asked, owner: Mac) {
    let kind = ether_type(frame);
    if kind == ETH_IP6 && word16(frame, HEADER + 4) as usize != SOLICITATION {
        frame.resize(HEADER + 40 + SOLICITATION, 0);
    }
    match asked.probe && kind == ETH_IP6 {
        true => frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]),
        false => frame.copy_within(6..12, 0),
    }
    frame[6..12].copy_from_slice(&owner.0);
    let body = &mut frame[HEADER..];
    if kind == ETH_ARP {
        let target: [u8; 4] = address4(body, 24).octets();
        body[7] = 2;
        // The sender becomes the target, hardware and protocol address.
        body.copy_within(8..18, 18);
        body[8..14].copy_from_slice(&owner.0);
        body[14..18].copy_from_slice(&target);
        return;
    }
    let target = address6(body, 48).octets();
    body[4..6].copy_from_slice(&(SOLICITATION as u16).to_be_bytes());
    match asked.probe {
        // All nodes (RFC 4861, 7.2.4).
        true => body[24..40].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        false => body.copy_within(8..24, 24),
    }
    body[8..24].copy_from_slice(&target);
    // Override; solicited if somebody with an address asked.
    let flags = if asked.probe { 0x20 } else { 0x60 };
    body[40..48].copy_from_slice(&[136, 0, 0, 0, flags, 0, 0, 0]);
    body[64..66].copy_from_slice(&[2, 1]);
    body[66..72].copy_from_slice(&owner.0);
    let sum16 = checksum6(body, &body[40..40 + SOLICITATION]);
    body[42..44].copy_from_slice(&sum16.to_be_bytes());
}

/// The checksum of an ICMPv6 message whose own field is zero.
fn checksum6(ip: &[u8], message: &[u8]) -> u16 {
    let [from, to] = [8, 24].map(|at| address6(ip, at).octets());
    !fold(pseudo_header6(from, to, ICMP6, message.len() as u32) + sum(message))
}

/// What an ARP answer tells: who sends it, by address and MAC address. Also of questions.
pub(super) fn told(frame: &[u8]) -> Option<(Ipv4Addr, Mac, bool)> {
    let arp = frame.get(HEADER..HEADER + ARP)?;
    if ether_type(frame) != ETH_ARP {
        return None;
    }
    Some((address4(arp, 14), mac(arp, 8), arp[4..8] == [6, 4, 0, 2]))
}

/// A question for the MAC address of a neighbour.
pub(super) fn question(from: Mac, own: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(from.0);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(from.0);
    frame.extend(own.octets());
    frame.extend([0; 6]);
    frame.extend(to.octets());
    frame
}

/// One's complement addition, as routers change a checksum by a constant.
fn end_around(sum: u16, add: u16) -> u16 {
    let (sum, carry) = sum.overflowing_add(add);
    sum + u16::from(carry)
}

/// Takes one of the TTL of an IPv4 packet; its checksum follows (RFC 1141).
pub(super) fn less_ttl(ip: &mut [u8]) {
    let sum = end_around(word16(ip, 10), 0x100);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip[8] -= 1;
}

/// Turns an echo request into its reply, of whoever it was sent to. `false`: it is none.
pub(super) fn echo(frame: &mut [u8], own: Mac) -> bool {
    let v6 = ether_type(frame) == ETH_IP6;
    let head = if v6 { 40 } else { 20 };
    let Some(ip) = frame.get_mut(HEADER..).filter(|ip| ip.len() >= head + 8) else {
        return false;
    };
    if v6 {
        if ip[6] != ICMP6 || ip[40] != 128 {
            return false;
        }
        let (from, to) = (address6(ip, 8).octets(), address6(ip, 24).octets());
        ip[8..24].copy_from_slice(&to);
        ip[24..40].copy_from_slice(&from);
        ip[7] = TTL;
        ip[40] = 129;
        let sum = end_around(word16(ip, 42), !0x100);
        ip[42..44].copy_from_slice(&sum.to_be_bytes());
    } else {
        if ip[9] != 1 || ip[20] != 8 || ip[0] != 0x45 || word16(ip, 6) & 0x3fff != 0 {
            return false;
        }
        let (from, to) = (address4(ip, 12).octets(), address4(ip, 16).octets());
        ip[12..16].copy_from_slice(&to);
        ip[16..20].copy_from_slice(&from);
        ip[8] = TTL;
        ip[10..12].fill(0);
        let sum = checksum(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip[20] = 0;
        let sum = end_around(word16(ip, 22), 0x800);
        ip[22..24].copy_from_slice(&sum.to_be_bytes());
    }
    frame.copy_within(6..12, 0);
    frame[6..12].copy_from_slice(&own.0);
    true
}

/// An error about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Error {
    pub(super) kind: u8,
    pub(super) code: u8,
    /// The second word: an MTU.
    pub(super) word: u32,
}

/// Why a packet cannot go on, as errors of both families say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Expired,
    NoRoute,
    Unreachable,
    Prohibited,
    /// The largest packet that could.
    TooBig(u16),
}

impl Cause {
    pub(super) fn error(self, v6: bool) -> Error {
        let (kind, code, word) = match (self, v6) {
            (Cause::Expired, false) => (11, 0, 0),
            (Cause::NoRoute, false) => (3, 0, 0),
            (Cause::Unreachable, false) => (3, 1, 0),
            (Cause::Prohibited, false) => (3, 13, 0),
            (Cause::TooBig(mtu), false) => (3, 4, mtu.into()),
            (Cause::Expired, true) => (3, 0, 0),
            (Cause::NoRoute, true) => (1, 0, 0),
            (Cause::Unreachable, true) => (1, 3, 0),
            (Cause::Prohibited, true) => (1, 1, 0),
            (Cause::TooBig(mtu), true) => (2, 0, mtu.into()),
        };
        Error { kind, code, word }
    }
}

/// Whether the packet behind an Ethernet header may be answered by an error: from and to one station each, no error itself, no later fragment.
fn is_answerable(ip: &[u8], v6: bool, is_too_big: bool) -> bool {
    if v6 {
        let (from, to) = (address6(ip, 8), address6(ip, 24));
        // Behind extension headers an error may hide.
        let is_hidden = matches!(ip[6], 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140);
        let is_error = ip[6] == ICMP6 && ip.get(40).is_none_or(|kind| *kind < 128);
        return !from.is_unspecified()
            && !from.is_multicast()
            && (!to.is_multicast() || is_too_big)
            && !is_hidden
            && !is_error;
    }
    let (from, to) = (address4(ip, 12), address4(ip, 16));
    let head = usize::from(ip[0] & 15) * 4;
    let is_query = |kind: &u8| matches!(kind, 0 | 8 | 9 | 10 | 13..=18);
    let is_error = ip[9] == 1 && !ip.get(head).is_some_and(is_query);
    let is_one = !from.is_multicast()
        && !from.is_broadcast()
        && !from.is_loopback()
        && from.octets()[0] != 0;
    is_one && !to.is_multicast() && !to.is_broadcast() && word16(ip, 6) & 0x1fff == 0 && !is_error
}

/// The error that answers a frame, from a router's address to the station it came from; `None`: it must not be answered.
pub(super) fn error(frame: &[u8], error: Error, own: Mac, from: IpAddr) -> Option<Vec<u8>> {
    let v6 = ether_type(frame) == ETH_IP6;
    let ip = frame.get(HEADER..)?;
    let length = match v6 {
        true => word16(ip, 4) as usize + 40,
        false => word16(ip, 2) as usize,
    };
    if !is_answerable(ip, v6, error.word != 0) || length > ip.len() {
        return None;
    }
    let quote = &ip[..length.min(if v6 { QUOTE6 } else { QUOTE4 })];
    let mut message = vec![error.kind, error.code, 0, 0];
    message.extend(error.word.to_be_bytes());
    message.extend(quote);
    let mut out = frame[6..12].to_vec();
    out.extend(own.0);
    out.extend(&frame[12..14]);
    match from {
        IpAddr::V4(from) if !v6 => {
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let total = 20 + message.len() as u16;
            // Internetwork control (RFC 1812, 4.3.2.5), and the rest of the packet's own.
            let mut head = vec![0x45, ip[1] & 0x1e | 0xc0];
            head.extend(total.to_be_bytes());
            head.extend([0, 0, 0, 0, TTL, 1, 0, 0]);
            head.extend(from.octets());
            head.extend(&ip[12..16]);
            let sum = checksum(&head);
            head[10..12].copy_from_slice(&sum.to_be_bytes());
            out.extend(head);
        }
        IpAddr::V6(from) if v6 => {
            let mut head = vec![0x60, 0, 0, 0];
            head.extend((message.len() as u16).to_be_bytes());
            head.extend([ICMP6, TTL]);
            head.extend(from.octets());
            head.extend(&ip[8..24]);
            let sum = checksum6(&head, &message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            out.extend(head);
        }
        _ => return None,
    }
    out.extend(message);
    Some(out)
}

/// Which of `count` things the flow of a frame falls to; both directions fall to the same. `spread.h` has the same arithmetic.
pub(super) fn spread(frame: &[u8], count: u32) -> u32 {
    let word = |at: usize, bytes: usize| {
        let read = frame.get(at..at + bytes).unwrap_or_default();
        read.iter()
            .rev()
            .fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
    };
    let pair = |a: u64, b: u64| a.wrapping_add(b).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (a ^ b);
    let ip = HEADER;
    let (mut x, proto, l4) = match ether_type(frame) {
        ETH_IP6 => {
            let x = pair(word(ip + 8, 8), word(ip + 24, 8))
                .wrapping_add(pair(word(ip + 16, 8), word(ip + 32, 8)).wrapping_mul(3));
            (x, word(ip + 6, 1), ip + 40)
        }
        _ => (
            pair(word(ip + 12, 4), word(ip + 16, 4)),
            word(ip + 9, 1),
            ip + (word(ip, 1) as usize & 15) * 4,
        ),
    };
    x = x.wrapping_add(proto);
    let is_fragment = ether_type(frame) == ETH_IP4 && word16(frame, ip + 6) & 0x3fff != 0;
    if !is_fragment && matches!(proto, 6 | 17 | 132) && frame.len() >= l4 + 4 {
        x = x
            .wrapping_mul(5)
            .wrapping_add(pair(word(l4, 2), word(l4 + 2, 2)));
    }
    for _ in 0..2 {
        x ^= x >> 32;
        x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    (((x >> 32) * u64::from(count)) >> 32) as u32
}
