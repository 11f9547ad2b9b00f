//! Frames of other link types as Ethernet frames, so that rules and functions see one kind of frame.
//!
//! The link header is replaced by 14 bytes of Ethernet: addresses as far as the link header knows them, and the EtherType of what follows.
//! docs/semantics.md section 8 states for each link type what these bytes hold; this file is its only implementation.
//! Layouts: the registry of link types at tcpdump.org.

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_HEADER: usize = 14;

/// EtherType of what has none: reserved (RFC 1701), so that no rule takes it for something else.
const UNKNOWN: u16 = 0xffff;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
/// PPP from its protocol number on.
const PPP: u16 = 0x880b;

/// From this value on an EtherType is a type and not the length of an IEEE 802.3 frame.
const FIRST_TYPE: u16 = 0x0600;
/// The largest length of an IEEE 802.3 frame.
const MAX_LENGTH: usize = 1500;

/// What a link header says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes in front of what the EtherType announces.
    pub(super) length: usize,
    pub(super) ether_type: u16,
    pub(super) destination: [u8; 6],
    pub(super) source: [u8; 6],
    /// Index of the interface that the packet was captured on.
    pub(super) device: Option<u32>,
}

impl Header {
    fn new(length: usize, ether_type: u16) -> Header {
        Header {
            length,
            ether_type,
            destination: [0; 6],
            source: [0; 6],
            device: None,
        }
    }

    /// The Ethernet header in its place.
    pub(super) fn bytes(&self) -> [u8; ETHERNET_HEADER] {
        let [d0, d1, d2, d3, d4, d5] = self.destination;
        let [s0, s1, s2, s3, s4, s5] = self.source;
        let [t0, t1] = self.ether_type.to_be_bytes();
        [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]
    }
}

/// The link types that are read beside Ethernet, by their names; for messages.
pub(super) const READ: &str =
    "ETHERNET, LINUX_SLL, LINUX_SLL2, RAW, IPV4, IPV6, NULL, LOOP, PPP, PPP_HDLC and C_HDLC";

/// Whether frames of this type can be read.
pub(super) fn is_read(link: u16) -> bool {
    matches!(
        link,
        0 | 1 | 9 | 12 | 14 | 50 | 101 | 104 | 108 | 113 | 228 | 229 | 276
    )
}

/// Reads the link header of a packet that is no Ethernet frame. `None`: the packet ends inside it, or its type is not read.
pub(super) fn header(link: u16, data: &[u8]) -> Option<Header> {
    match link {
        0 | 108 => loopback(data),
        9 => ppp(data),
        50 => match data.first() {
            Some(0x0f | 0x8f) => cisco(data),
            _ => ppp(data),
        },
        12 | 14 | 101 => Some(Header::new(
            0,
            match data.first().map(|byte| byte >> 4) {
                Some(4) => IPV4,
                Some(6) => IPV6,
                _ => UNKNOWN,
            },
        )),
        104 => cisco(data),
        113 => cooked(data),
        228 => Some(Header::new(0, IPV4)),
        229 => Some(Header::new(0, IPV6)),
        276 => cooked_2(data),
        _ => None,
    }
}

/// `LINKTYPE_NULL`, `LINKTYPE_LOOP`: the address family, in the byte order of the host that captured, or of the network.
fn loopback(data: &[u8]) -> Option<Header> {
    let family = u32::from_le_bytes(*data.first_chunk()?);
    // Families are small numbers: the order in which they are is known by that.
    let family = if family > 0xffff {
        family.swap_bytes()
    } else {
        family
    };
    let ether_type = match family {
        2 => IPV4,
        // Linux, NetBSD and OpenBSD, FreeBSD, macOS.
        10 | 24 | 28 | 30 => IPV6,
        _ => UNKNOWN,
    };
    Some(Header::new(4, ether_type))
}

/// `LINKTYPE_PPP`: RFC 1661, with or without the address and control bytes of RFC 1662; the protocol number may be one odd byte.
fn ppp(data: &[u8]) -> Option<Header> {
    let at = if data.starts_with(&[0xff, 0x03]) {
        2
    } else {
        0
    };
    let &first = data.get(at)?;
    let (protocol, length) = if first & 1 == 1 {
        (u16::from(first), at + 1)
    } else {
        (word(data, at)?, at + 2)
    };
    Some(match protocol {
        0x0021 => Header::new(length, IPV4),
        0x0057 => Header::new(length, IPV6),
        0x0281 => Header::new(length, MPLS),
        0x0283 => Header::new(length, MPLS_MULTICAST),
        _ => Header::new(at, PPP),
    })
}

/// `LINKTYPE_C_HDLC`: address, control, and an EtherType; 0x8035 is Cisco's SLARP there and not RARP.
fn cisco(data: &[u8]) -> Option<Header> {
    let protocol = word(data, 2)?;
    let known = protocol >= FIRST_TYPE && protocol != 0x8035;
    Some(Header::new(4, if known { protocol } else { UNKNOWN }))
}

/// `LINKTYPE_LINUX_SLL`: packet type, device type, address, protocol.
fn cooked(data: &[u8]) -> Option<Header> {
    let payload = data.len().checked_sub(16)?;
    let mut header = Header::new(16, cooked_type(word(data, 2)?, word(data, 14)?, payload));
    header.destination = cooked_destination(word(data, 0)?);
    if word(data, 4)? == 6 {
        header.source = *data.get(6..)?.first_chunk()?;
    }
    Some(header)
}

/// `LINKTYPE_LINUX_SLL2`: protocol, interface, device type, packet type, address.
fn cooked_2(data: &[u8]) -> Option<Header> {
    let payload = data.len().checked_sub(20)?;
    let mut header = Header::new(20, cooked_type(word(data, 8)?, word(data, 0)?, payload));
    header.destination = cooked_destination(u16::from(*data.get(10)?));
    if *data.get(11)? == 6 {
        header.source = *data.get(12..)?.first_chunk()?;
    }
    header.device = Some(u32::from_be_bytes(*data.get(4..)?.first_chunk()?));
    Some(header)
}

/// The EtherType of a cooked packet by the type of its device (`ARPHRD_*`) and its protocol.
fn cooked_type(device: u16, protocol: u16, payload: usize) -> u16 {
    const FRAD: u16 = 770;
    const RADIOTAP: u16 = 803;
    const NETLINK: u16 = 824;
    match (device, protocol) {
        // There the protocol is not an EtherType.
        (FRAD | RADIOTAP | NETLINK, _) => UNKNOWN,
        // IEEE 802.3 without and with an LLC header.
        (_, 0x0001 | 0x0004) => payload.min(MAX_LENGTH) as u16,
        (_, FIRST_TYPE..) => protocol,
        _ => UNKNOWN,
    }
}

/// Whom a cooked packet was for: a broadcast, a group that is not known, or a host that is not known.
fn cooked_destination(packet_type: u16) -> [u8; 6] {
    match packet_type {
        1 => [0xff; 6],
        2 => [0x01, 0, 0, 0, 0, 0],
        _ => [0; 6],
    }
}

fn word(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes))
}
