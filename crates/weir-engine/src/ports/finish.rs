//! Finishing what a sender left to hardware: checksums not computed, and packets to be cut into segments.
//!
//! A frame from a packet socket may be what the stack would have handed to a device with offloads. A program must see what
//! would be on the wire, so checksums are computed and TCP and UDP packets with a segment size are cut here (RFC 9293, RFC 768;
//! what a device's TSO does to id, sequence number and flags). Invariant: a frame that cannot be finished is refused whole.

use weir_kernel::Unfinished;
use weir_packet::checksum::{checksum, fold, pseudo_header4, pseudo_header6, sum};

const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// The connection uses explicit congestion notification: CWR goes on the first segment only.
const GSO_ECN: u8 = 0x80;

const ETH_TYPE: usize = 12;
const ETH_HEADER: usize = 14;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Calls `each` with the frames that would be on the wire. `false` if the frame cannot be finished.
pub(super) fn finish(frame: &[u8], left: Unfinished, mut each: impl FnMut(&[u8])) -> bool {
    match left {
        Unfinished {
            segments: Some((kind, size)),
            ..
        } => segment(frame, kind, usize::from(size), each).is_some(),
        Unfinished {
            checksum: Some((from, field)),
            ..
        } => {
            let mut frame = frame.to_vec();
            let done = complete(&mut frame, from, field).is_some();
            if done {
                each(&frame);
            }
            done
        }
        Unfinished { .. } => {
            each(frame);
            true
        }
    }
}

/// Computes the checksum of a frame as an XDP program got it, which has no note beside it: an unfinished one holds the pseudo-header's plain sum. A whole TCP or UDP packet only;
/// others are as they were. Of complete packets one in 65,536 looks the same, and computing gives it the checksum that it has.
pub(super) fn finish_received(frame: &mut [u8]) {
    let found = unfinished(frame);
    if let Some((from, end, field)) = found
        && let Some(segment) = frame.get_mut(..end)
    {
        // The place was found inside the frame.
        let _ = complete(segment, from, field);
    }
}

/// Where an unfinished TCP or UDP header begins, where its payload ends, and where its checksum is.
fn unfinished(frame: &[u8]) -> Option<(usize, usize, usize)> {
    let mut at = ETH_TYPE;
    while matches!(take(frame, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let ip = at + 2;
    let (addresses, transport, end, protocol) = match take(frame, at)? {
        0x0800 => {
            if take(frame, ip + 6)? & 0x3fff != 0 {
                return None;
            }
            let transport = ip + usize::from(frame.get(ip)? & 15) * 4;
            let end = ip + usize::from(take(frame, ip + 2)?);
            (ip + 12..ip + 20, transport, end, *frame.get(ip + 9)?)
        }
        0x86dd => {
            let end = ip + 40 + usize::from(take(frame, ip + 4)?);
            let (mut transport, mut protocol) = (ip + 40, *frame.get(ip + 6)?);
            // Hop-by-hop, routing and destination options; a fragment is never unfinished.
            while matches!(protocol, 0 | 43 | 60) {
                protocol = *frame.get(transport)?;
                transport += (usize::from(*frame.get(transport + 1)?) + 1) * 8;
            }
            (ip + 8..ip + 40, transport, end, protocol)
        }
        _ => return None,
    };
    let field = transport
        + match protocol {
            6 => 16,
            17 => 6,
            _ => return None,
        };
    if end > frame.len() || field + 2 > end {
        return None;
    }
    let pseudo = sum(frame.get(addresses)?) + u64::from(protocol) + (end - transport) as u64;
    (take(frame, field)? == fold(pseudo)).then_some((transport, end, field))
}

/// Computes a checksum whose field holds the pseudo-header's sum.
fn complete(frame: &mut [u8], from: usize, field: usize) -> Option<()> {
    let value = checksum(frame.get(from..)?);
    // A UDP checksum of zero would mean "none" (RFC 768).
    let value = if value == 0 { 0xffff } else { value };
    let field = frame.get_mut(field..field.checked_add(2)?)?;
    field.copy_from_slice(&value.to_be_bytes());
    Some(())
}

/// Headers of a packet that can be cut.
struct Headers {
    /// Start of the IP header.
    ip: usize,
    /// Start of the TCP or UDP header.
    transport: usize,
    /// Start of the payload.
    payload: usize,
    six: bool,
    tcp: bool,
}

fn segment(frame: &[u8], kind: u8, size: usize, mut each: impl FnMut(&[u8])) -> Option<()> {
    let headers = headers(frame, kind & !GSO_ECN)?;
    let payload = frame.get(headers.payload..)?;
    if size == 0 {
        return None;
    }
    let last = payload.len().div_ceil(size).checked_sub(1)?;
    let mut out = Vec::with_capacity(headers.payload + size);
    for (n, part) in payload.chunks(size).enumerate() {
        out.clear();
        out.extend_from_slice(frame.get(..headers.payload)?);
        out.extend_from_slice(part);
        adapt(&mut out, &headers, n, n * size, n == last)?;
        each(&out);
    }
    Some(())
}

/// Makes the headers of `out` those of segment `n`, whose payload starts `offset` bytes into the packet's.
fn adapt(out: &mut [u8], h: &Headers, n: usize, offset: usize, last: bool) -> Option<()> {
    let transport_len = out.len() - h.transport;
    let protocol = if h.tcp { 6 } else { 17 };
    let pseudo = if h.six {
        let len = u16::try_from(out.len() - h.ip - 40).ok()?;
        put(out, h.ip + 4, len)?;
        let addresses = out.get(h.ip + 8..h.ip + 40)?;
        let source: [u8; 16] = addresses.first_chunk().copied()?;
        let destination: [u8; 16] = addresses.last_chunk().copied()?;
        pseudo_header6(source, destination, protocol, transport_len as u32)
    } else {
        let len = u16::try_from(out.len() - h.ip).ok()?;
        put(out, h.ip + 2, len)?;
        let id = take(out, h.ip + 4)?.wrapping_add(n as u16);
        put(out, h.ip + 4, id)?;
        put(out, h.ip + 10, 0)?;
        let header = checksum(out.get(h.ip..h.transport)?);
        put(out, h.ip + 10, header)?;
        let addresses = out.get(h.ip + 12..h.ip + 20)?;
        let source: [u8; 4] = addresses.first_chunk().copied()?;
        let destination: [u8; 4] = addresses.last_chunk().copied()?;
        pseudo_header4(source, destination, protocol, transport_len as u32)
    };
    let field = h.transport + if h.tcp { 16 } else { 6 };
    if h.tcp {
        let at = h.transport + 4;
        let sequence: [u8; 4] = out.get(at..at + 4)?.try_into().ok()?;
        let sequence = u32::from_be_bytes(sequence).wrapping_add(offset as u32);
        out.get_mut(at..at + 4)?
            .copy_from_slice(&sequence.to_be_bytes());
        let flags = out.get_mut(h.transport + 13)?;
        if !last {
            *flags &= !(TCP_FIN | TCP_PSH);
        }
        if n > 0 {
            *flags &= !TCP_CWR;
        }
    } else {
        put(out, h.transport + 4, u16::try_from(transport_len).ok()?)?;
    }
    put(out, field, 0)?;
    let value = !fold(pseudo + sum(out.get(h.transport..)?));
    let value = if value == 0 && !h.tcp { 0xffff } else { value };
    put(out, field, value)
}

/// The headers of a TCP or UDP packet behind any number of VLAN tags; none where the kernel's word and the bytes differ.
fn headers(frame: &[u8], kind: u8) -> Option<Headers> {
    let mut at = ETH_TYPE;
    while matches!(take(frame, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let six = match take(frame, at)? {
        0x0800 => false,
        0x86dd => true,
        _ => return None,
    };
    let ip = at + 2;
    debug_assert!(ip >= ETH_HEADER);
    let (transport, protocol) = if six {
        // Extension headers in front of a segmented packet are rare; such a packet is refused, not cut wrongly.
        (ip + 40, *frame.get(ip + 6)?)
    } else {
        (
            ip + usize::from(frame.get(ip)? & 15) * 4,
            *frame.get(ip + 9)?,
        )
    };
    let tcp = match (kind, six, protocol) {
        (GSO_TCP4, false, 6) | (GSO_TCP6, true, 6) => true,
        (GSO_UDP, _, 17) => false,
        _ => return None,
    };
    let length = if tcp {
        usize::from(frame.get(transport + 12)? >> 4) * 4
    } else {
        8
    };
    let least = if tcp { 20 } else { 8 };
    (length >= least && transport + length <= frame.len()).then_some(Headers {
        ip,
        transport,
        payload: transport + length,
        six,
        tcp,
    })
}

fn take(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    bytes
        .get_mut(at..at + 2)?
        .copy_from_slice(&value.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_packet::build::Frame;

    use super::*;

    fn all(frame: &[u8], left: Unfinished) -> Option<Vec<Vec<u8>>> {
        let mut out = Vec::new();
        finish(frame, left, |f| out.push(f.to_vec())).then_some(out)
    }

    fn tcp(payload: &[u8]) -> Vec<u8> {
        let head = Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2]);
        head.tcp(1000, 80)
            .flags(Frame::ACK | TCP_PSH | TCP_CWR)
            .payload(payload)
            .build()
    }

    #[test]
    fn a_frame_with_nothing_left_is_the_same() {
        let frame = tcp(b"abc");
        assert_eq!(all(&frame, Unfinished::default()), Some(vec![frame]));
    }

    #[test]
    fn an_unfinished_checksum_becomes_what_the_builder_computes() {
        let right = tcp(b"some payload");
        let mut frame = right.clone();
        let len = (frame.len() - 34) as u32;
        let plain = fold(pseudo_header4([10, 0, 0, 1], [10, 0, 0, 2], 6, len));
        put(&mut frame, 50, plain);
        let left = Unfinished {
            checksum: Some((34, 50)),
            segments: None,
        };
        assert_eq!(all(&frame, left), Some(vec![right]));
    }

    #[test]
    fn a_received_frame_is_finished_by_its_checksum_alone() {
        for six in [false, true] {
            let head = || match six {
                false => Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2]),
                true => Frame::new().ip6([1; 16], [2; 16]),
            };
            for (build, left) in [
                (
                    head().tcp(1, 2).payload(b"abc").build(),
                    head().tcp(1, 2).payload(b"abc").unfinished().build(),
                ),
                (
                    head().udp(1, 2).payload(b"abcd").build(),
                    head().udp(1, 2).payload(b"abcd").unfinished().build(),
                ),
            ] {
                assert_ne!(build, left);
                let mut frame = left.clone();
                // Behind the packet: what fills a short frame.
                frame.extend_from_slice(&[7; 9]);
                finish_received(&mut frame);
                assert_eq!(frame[..left.len()], build[..]);
                let mut frame = build.clone();
                finish_received(&mut frame);
                assert_eq!(frame, build);
                // A wrong one stays wrong.
                frame[build.len() - 1] ^= 1;
                let wrong = frame.clone();
                finish_received(&mut frame);
                assert_eq!(frame, wrong);
            }
        }
    }

    #[test]
    fn places_outside_the_frame_are_refused() {
        let frame = tcp(b"abc");
        for place in [(9_999, 50), (34, 9_999), (34, usize::MAX)] {
            let left = Unfinished {
                checksum: Some(place),
                segments: None,
            };
            assert_eq!(all(&frame, left), None);
        }
        let left = |kind, size| Unfinished {
            checksum: None,
            segments: Some((kind, size)),
        };
        assert_eq!(all(&frame, left(GSO_TCP6, 100)), None);
        assert_eq!(all(&frame, left(GSO_UDP, 100)), None);
        assert_eq!(all(&frame, left(GSO_TCP4, 0)), None);
        assert_eq!(all(&frame, left(77, 100)), None);
    }

    proptest! {
        #[test]
        fn segments_hold_the_payload_in_order(len in 1usize..5_000, size in 1u16..2_000) {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let frame = tcp(&payload);
            let left = Unfinished { checksum: Some((34, 50)), segments: Some((GSO_TCP4 | GSO_ECN, size)) };
            let segments = all(&frame, left).expect("can be cut");
            let mut joined = Vec::new();
            for (n, segment) in segments.iter().enumerate() {
                prop_assert!(segment.len() <= 54 + usize::from(size));
                prop_assert_eq!(checksum(&segment[14..34]), 0);
                let l4 = (segment.len() - 34) as u32;
                let covered = pseudo_header4([10, 0, 0, 1], [10, 0, 0, 2], 6, l4) + sum(&segment[34..]);
                prop_assert_eq!(fold(covered), 0xffff);
                prop_assert_eq!(usize::from(take(segment, 16).unwrap()), segment.len() - 14);
                let first: [u8; 4] = frame[38..42].try_into().unwrap();
                let this: [u8; 4] = segment[38..42].try_into().unwrap();
                prop_assert_eq!(u32::from_be_bytes(this).wrapping_sub(u32::from_be_bytes(first)) as usize, joined.len());
                prop_assert_eq!(segment[47] & TCP_PSH != 0, n + 1 == segments.len());
                prop_assert_eq!(segment[47] & TCP_CWR != 0, n == 0);
                joined.extend_from_slice(&segment[54..]);
            }
            prop_assert_eq!(joined, payload);
        }

        #[test]
        fn any_bytes_are_survived(frame in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..6, size in any::<u16>(), from in any::<u16>(), field in any::<u16>()) {
            let left = Unfinished { checksum: Some((from.into(), field.into())), segments: Some((kind, size)) };
            let _ = all(&frame, left);
            let _ = all(&frame, Unfinished { segments: None, ..left });
            finish_received(&mut frame.clone());
        }
    }
}
