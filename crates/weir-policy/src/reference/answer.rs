//! What answers a packet that a rule rejects: docs/semantics.md section 3, "Answers".
//!
//! Builds the frame from the packet as received, byte by byte, and shares nothing with the data plane.

use weir_packet::checksum::{fold, sum};
use weir_packet::parse::{Fragment, Ip, Layout, Protocol, Version, protocol};

use crate::model::Answer;

/// Nanoseconds between two answers of a rule, on average, and how many it may send at once.
const PERIOD_NS: u64 = 1_000_000;
const BURST: u64 = 50;

/// Bytes of a quote, with which an error has 576 bytes in IPv4 (RFC 1812 4.3.2.3) and 1,280 in IPv6 (RFC 4443 2.4 c).
const QUOTE4: usize = 576 - 20 - 8;
const QUOTE6: usize = 1280 - 40 - 8;

const TTL: u8 = 64;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Whether a rule may send one more answer at this time; `tat` is its word.
pub(super) fn may_answer(tat: &mut u64, now_ns: u64) -> bool {
    let base = now_ns.max(*tat);
    if base - now_ns > PERIOD_NS * (BURST - 1) {
        return false;
    }
    *tat = base.wrapping_add(PERIOD_NS);
    true
}

/// The frame that answers a packet; `None`: nothing answers it. An error goes behind `most_tags` VLAN tags; `is_damaged` says whether the
/// checksum of a whole TCP packet is wrong.
pub(super) fn answer(
    with: Answer,
    frame: &[u8],
    layout: &Layout,
    most_tags: usize,
    is_damaged: impl FnOnce() -> bool,
) -> Option<Vec<u8>> {
    let ip = layout.ip.as_ref()?;
    let l4 = layout.l4.as_ref();
    // What follows ESP is nobody's to read, and no error hides there.
    let is_hidden = (ip.extensions.iter()).any(|extension| extension.protocol != protocol::ESP);
    if frame[0] & 1 != 0 || is_hidden || !has_two_stations(frame, ip) {
        return None;
    }
    let flags = l4
        .filter(|l4| l4.protocol == Protocol::Tcp)
        .map(|l4| frame[l4.at + 13]);
    if flags.is_some_and(|flags| flags & RST != 0) || ip.fragment == Fragment::Later {
        return None;
    }
    if let (Some(flags), true) = (flags, with.reset) {
        if ip.fragment != Fragment::Whole || is_damaged() {
            return None;
        }
        return Some(reset(frame, layout, ip, flags));
    }
    let tags = (ip.at - 14) / 4;
    if tags > most_tags {
        return None;
    }
    let is_error = match l4.map(|l4| (l4.protocol, frame[l4.at])) {
        Some((Protocol::Icmp, kind)) => !matches!(kind, 0 | 8..=10 | 13..=18),
        Some((Protocol::Icmp6, kind)) => kind < 128,
        _ => false,
    };
    (!is_error).then(|| error(with, frame, ip))
}

/// Source and destination are one station each, as far as the addresses tell.
fn has_two_stations(frame: &[u8], ip: &Ip) -> bool {
    match ip.version {
        Version::V4 => {
            let (from, to) = (
                &frame[ip.at + 12..ip.at + 16],
                &frame[ip.at + 16..ip.at + 20],
            );
            let is_group = |address: &[u8]| address[0] >> 4 == 14 || address == [255; 4];
            from[0] != 0 && from[0] != 127 && !is_group(from) && !is_group(to)
        }
        Version::V6 => {
            let (from, to) = (
                &frame[ip.at + 8..ip.at + 24],
                &frame[ip.at + 24..ip.at + 40],
            );
            from[0] != 0xff && to[0] != 0xff && from != [0; 16]
        }
    }
}

/// Ethernet header and tags of the way back.
fn link_header(frame: &[u8], ip: &Ip) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..ip.at]].concat()
}

/// An IP header without options from the packet's destination to its source, with its checksum.
fn ip_header(frame: &[u8], ip: &Ip, tos: u8, flags: u8, protocol: u8, payload: usize) -> Vec<u8> {
    let addresses =
        |at: usize, len: usize| [&frame[at + len..at + 2 * len], &frame[at..at + len]].concat();
    match ip.version {
        Version::V4 => {
            let [high, low] = ((20 + payload) as u16).to_be_bytes();
            let mut header = vec![0x45, tos, high, low, 0, 0, flags, 0, TTL, protocol, 0, 0];
            header.extend(addresses(ip.at + 12, 4));
            let checksum = !fold(sum(&header));
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        Version::V6 => {
            let [high, low] = (payload as u16).to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, high, low, protocol, TTL];
            header.extend(addresses(ip.at + 8, 16));
            header
        }
    }
}

/// Sum of the pseudo-header behind this header.
fn pseudo(header: &[u8], protocol: u8, len: usize) -> u64 {
    let at = if header.len() == 20 { 12 } else { 8 };
    sum(&header[at..]) + u64::from(protocol) + len as u64
}

/// RFC 9293 3.10.7.1.
fn reset(frame: &[u8], layout: &Layout, ip: &Ip, flags: u8) -> Vec<u8> {
    let at = layout.l4.as_ref().map_or(0, |l4| l4.at);
    let number =
        |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let header_len = usize::from(frame[at + 12] >> 4) * 4;
    let payload = (ip.payload.end - at - header_len) as u32;
    let (sequence, acknowledgement, says) = if flags & ACK != 0 {
        (number(at + 8), 0, RST)
    } else {
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let end = number(at + 4).wrapping_add(payload).wrapping_add(controls);
        (0, end, RST | ACK)
    };
    let mut segment = [&frame[at + 2..at + 4], &frame[at..at + 2]].concat();
    segment.extend(sequence.to_be_bytes());
    segment.extend(acknowledgement.to_be_bytes());
    segment.extend([0x50, says, 0, 0, 0, 0, 0, 0]);
    // IPv4: do not fragment.
    let header = ip_header(frame, ip, 0, 0x40, 6, segment.len());
    let checksum = !fold(pseudo(&header, 6, segment.len()) + sum(&segment));
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    [link_header(frame, ip), header, segment].concat()
}

/// Destination unreachable, which quotes the packet.
fn error(with: Answer, frame: &[u8], ip: &Ip) -> Vec<u8> {
    let (kind, code, protocol, most) = match ip.version {
        Version::V4 => (3, with.icmp4, 1, QUOTE4),
        Version::V6 => (1, with.icmp6, 58, QUOTE6),
    };
    let end = ip.payload.end.min(ip.at + most);
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend(&frame[ip.at..end]);
    let tos = frame[ip.at + 1] & 0x1e | 0xc0;
    let header = ip_header(frame, ip, tos, 0, protocol, message.len());
    let covered = match ip.version {
        Version::V4 => 0,
        Version::V6 => pseudo(&header, protocol, message.len()),
    };
    let checksum = !fold(covered + sum(&message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    [link_header(frame, ip), header, message].concat()
}
