//! ARP over Ethernet for IPv4 (RFC 826).

use std::net::Ipv4Addr;

use crate::event::Event;

/// Operations (IANA, Address Resolution Protocol Parameters), from 1 on.
const OPERATIONS: [&str; 10] = [
    "request",
    "reply",
    "request_reverse",
    "reply_reverse",
    "drarp_request",
    "drarp_reply",
    "drarp_error",
    "inarp_request",
    "inarp_reply",
    "arp_nak",
];

/// Bytes before the addresses.
const FIXED: usize = 8;

/// Hardware and protocol address of one end.
type End = ([u8; 6], Ipv4Addr);

/// What a packet of ARP says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arp {
    /// The name of its operation.
    pub(crate) operation: &'static str,
    /// The sender, then the target.
    pub(crate) ends: [End; 2],
}

impl Arp {
    /// Reads what follows the Ethertype; bytes behind the addresses are padding.
    ///
    /// # Errors
    /// What is odd about it, as an event of its packet.
    pub(crate) fn read(bytes: &[u8]) -> Result<Arp, Event> {
        let Some(&[h, w, p, q, hardware, protocol, o, n]) = bytes.first_chunk::<FIXED>() else {
            return Err(Event::ArpTooSmall);
        };
        if [h, w] != [0, 1] {
            return Err(Event::ArpHardware);
        }
        if [p, q] != [8, 0] {
            return Err(Event::ArpProtocol);
        }
        if hardware != 6 {
            return Err(Event::ArpHardwareSize);
        }
        if protocol != 4 {
            return Err(Event::ArpProtocolSize);
        }
        let rest = bytes.get(FIXED..).unwrap_or_default();
        let (sender, rest) = end(rest).ok_or(Event::ArpTruncated)?;
        let (target, _) = end(rest).ok_or(Event::ArpTruncated)?;
        let operation = usize::from(u16::from_be_bytes([o, n])).checked_sub(1);
        let operation = operation.and_then(|n| OPERATIONS.get(n));
        Ok(Arp {
            operation: operation.ok_or(Event::ArpOpcode)?,
            ends: [sender, target],
        })
    }
}

/// The addresses of one end, and what follows.
fn end(bytes: &[u8]) -> Option<(End, &[u8])> {
    let (hardware, rest) = bytes.split_first_chunk()?;
    let (protocol, rest) = rest.split_first_chunk::<4>()?;
    Some(((*hardware, Ipv4Addr::from(*protocol)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: [u8; 28] = [
        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9,
    ];

    #[test]
    fn a_request_says_who_asks_for_whom() {
        let padded = [&REQUEST[..], &[0; 18]].concat();
        let arp = Arp::read(&padded).expect("a request");
        assert_eq!(arp.operation, "request");
        let [sender, target] = arp.ends;
        assert_eq!(sender, ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(target, ([0; 6], Ipv4Addr::new(192, 0, 2, 9)));
    }

    #[test]
    fn what_is_odd_is_an_event() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = REQUEST;
            bytes[at] = byte;
            Arp::read(&bytes)
        };
        assert_eq!(changed(1, 6), Err(Event::ArpHardware));
        assert_eq!(changed(2, 0x86), Err(Event::ArpProtocol));
        assert_eq!(changed(4, 8), Err(Event::ArpHardwareSize));
        assert_eq!(changed(5, 16), Err(Event::ArpProtocolSize));
        assert_eq!(changed(7, 0), Err(Event::ArpOpcode));
        assert_eq!(changed(7, 11), Err(Event::ArpOpcode));
        for length in 0..28 {
            let event = match length {
                0..8 => Event::ArpTooSmall,
                _ => Event::ArpTruncated,
            };
            assert_eq!(Arp::read(&REQUEST[..length]), Err(event), "{length}");
        }
    }
}
