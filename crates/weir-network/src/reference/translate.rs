//! Other addresses and ports for packets, and for what ICMP errors quote of them, byte for byte. RFC 792, 1624, 4443.

use std::net::{IpAddr, SocketAddr};

use weir_packet::checksum::{sum, update};

use super::chain::Fields;
use super::frames::{ETH_IP4, ETH_IP6, HEADER, address4, address6, ether_type, word16};

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP: u8 = 1;
pub(super) const ICMP6: u8 = 58;
/// TTL and hop limit of answers.
const TTL: u8 = 64;

/// Which address and port of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source = 0,
    Target = 1,
}

/// Source and destination of an IP packet; of another frame `None`.
pub(super) fn ends(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match ether_type(frame) {
        ETH_IP4 => Some((
            address4(frame, HEADER + 12).into(),
            address4(frame, HEADER + 16).into(),
        )),
        ETH_IP6 => Some((
            address6(frame, HEADER + 8).into(),
            address6(frame, HEADER + 24).into(),
        )),
        _ => None,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Puts bytes into a frame. Sums of what was there and what is there now.
fn put(frame: &mut [u8], at: usize, bytes: &[u8]) -> (u64, u64) {
    let place = &mut frame[at..at + bytes.len()];
    let before = sum(place);
    place.copy_from_slice(bytes);
    (before, sum(bytes))
}

/// The checksum at a place after words of its sum changed.
fn follow(frame: &mut [u8], at: usize, (before, after): (u64, u64)) -> (u64, u64) {
    let new = update(word16(frame, at), before, after);
    put(frame, at, &new.to_be_bytes())
}

/// The same of UDP, where 0 says that there is none.
fn follow_udp(frame: &mut [u8], at: usize, changed: (u64, u64)) -> (u64, u64) {
    let was = u64::from(word16(frame, at));
    if was == 0 {
        return (0, 0);
    }
    follow(frame, at, changed);
    if word16(frame, at) == 0 {
        put(frame, at, &[0xff, 0xff]);
    }
    (was, u64::from(word16(frame, at)))
}

fn both(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0 + other.0, one.1 + other.1)
}

/// Where an address of a packet at `ip` lies.
fn place(ip: usize, side: Side, is_v4: bool) -> usize {
    match is_v4 {
        true => ip + 12 + side as usize * 4,
        false => ip + 8 + side as usize * 16,
    }
}

/// Gives a packet another address and port on one side; port 0: it stays. Its checksums follow.
pub(super) fn packet(frame: &mut [u8], fields: &Fields, side: Side, new: IpAddr, port: u16) {
    let mut changed = put(frame, place(HEADER, side, new.is_ipv4()), &octets(new));
    if new.is_ipv4() {
        follow(frame, HEADER + 10, changed);
    }
    let l4 = HEADER + fields.l4;
    if port != 0 {
        changed = both(
            changed,
            put(frame, l4 + side as usize * 2, &port.to_be_bytes()),
        );
    }
    match fields.protocol {
        TCP => follow(frame, l4 + 16, changed),
        _ => follow_udp(frame, l4 + 6, changed),
    };
}

/// Makes an echo request the answer. `false`: it is none.
pub(super) fn echo(frame: &mut [u8], fields: &Fields) -> bool {
    let is_v4 = ether_type(frame) == ETH_IP4;
    let l4 = HEADER + fields.l4;
    let (request, reply) = if is_v4 { (8, 0) } else { (128, 129) };
    if fields.is_fragment || frame.get(l4) != Some(&request) || frame.len() < l4 + 8 {
        return false;
    }
    let (at, length) = if is_v4 {
        (HEADER + 12, 4)
    } else {
        (HEADER + 8, 16)
    };
    frame[at..at + 2 * length].rotate_left(length);
    let code = frame[l4 + 1];
    let changed = put(frame, l4, &[reply, code]);
    follow(frame, l4 + 2, changed);
    if is_v4 {
        let protocol = frame[HEADER + 9];
        let changed = put(frame, HEADER + 8, &[TTL, protocol]);
        follow(frame, HEADER + 10, changed);
    } else {
        frame[HEADER + 7] = TTL;
    }
    frame[..12].rotate_left(6);
    true
}

/// What an ICMP error quotes of a TCP or UDP packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quote {
    pub(super) protocol: u8,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// Where it begins in the frame, and its TCP or UDP header.
    at: usize,
    l4: usize,
    /// End of the IP packet that the error is.
    end: usize,
}

impl Quote {
    /// `None`: the packet is no such error.
    pub(super) fn of(frame: &[u8], fields: &Fields) -> Option<Quote> {
        let is_v4 = ether_type(frame) == ETH_IP4;
        let icmp = HEADER + fields.l4;
        let kind = *frame.get(icmp)?;
        let is_error = match is_v4 {
            true => [3, 4, 11, 12].contains(&kind),
            false => (1..=4).contains(&kind),
        };
        if fields.is_fragment || !is_error {
            return None;
        }
        let end = HEADER
            + match is_v4 {
                true => usize::from(word16(frame, HEADER + 2)),
                false => 40 + usize::from(word16(frame, HEADER + 4)),
            };
        let at = icmp + 8;
        let head = if is_v4 { 20 } else { 40 };
        let quoted = frame.get(at..end).filter(|bytes| bytes.len() >= head)?;
        let (protocol, length) = match is_v4 {
            true if word16(quoted, 6) & 0x1fff != 0 => return None,
            true => (quoted[9], usize::from(quoted[0] & 15) * 4),
            false => (quoted[6], head),
        };
        let has_ports = length >= head && quoted.len() >= length + 8;
        if !has_ports || ![TCP, UDP].contains(&protocol) {
            return None;
        }
        let address = |side| match (is_v4, place(at, side, is_v4)) {
            (true, at) => IpAddr::from(address4(frame, at)),
            (false, at) => IpAddr::from(address6(frame, at)),
        };
        let port = |side: Side| word16(quoted, length + side as usize * 2);
        let end_of = |side| SocketAddr::new(address(side), port(side));
        Some(Quote {
            protocol,
            from: end_of(Side::Source),
            to: end_of(Side::Target),
            at,
            l4: at + length,
            end,
        })
    }

    /// Gives the quoted packet another address and port on one side, and the error the address on its opposite side, unless that is of a
    /// station on the way. Port 0: it stays.
    pub(super) fn translate(&self, frame: &mut [u8], side: Side, new: IpAddr, port: u16) {
        let is_v4 = new.is_ipv4();
        let (outer, quoted) = match side {
            Side::Source => (Side::Target, self.from.ip()),
            Side::Target => (Side::Source, self.to.ip()),
        };
        let bytes = octets(new);
        // What the error's own checksum covers: the quote, and in IPv6 the error's addresses.
        let mut covered = (0, 0);
        let own = ends(frame).map(|(from, to)| if outer == Side::Source { from } else { to });
        if own == Some(quoted) {
            let changed = put(frame, place(HEADER, outer, is_v4), &bytes);
            match is_v4 {
                true => drop(follow(frame, HEADER + 10, changed)),
                false => covered = changed,
            }
        }
        let mut changed = put(frame, place(self.at, side, is_v4), &bytes);
        covered = both(covered, changed);
        if is_v4 {
            covered = both(covered, follow(frame, self.at + 10, changed));
        }
        if port != 0 {
            let ports = put(frame, self.l4 + side as usize * 2, &port.to_be_bytes());
            changed = both(changed, ports);
            covered = both(covered, ports);
        }
        let l4 = match self.protocol {
            UDP => follow_udp(frame, self.l4 + 6, changed),
            // Quotes need not reach that far.
            _ if self.l4 + 18 <= self.end => follow(frame, self.l4 + 16, changed),
            _ => (0, 0),
        };
        follow(frame, self.at - 6, both(covered, l4));
    }
}
