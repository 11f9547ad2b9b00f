//! Values that documents of virtual networks are made of: MAC addresses, networks of addresses, kinds of tunnels, and values with a place.
//!
//! Each reads and writes its text form; what was read is in range.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::str::FromStr;

use weir_bpf::abi::tunnel_kind;
use weir_functions::read::Spanned;
use weir_policy::ast::Span;

/// A value and where it stands. Two are the same if they say the same, wherever they do.
#[derive(Clone, Copy, Debug, Default)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place in the document.
    pub span: Span,
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &At<T>) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> From<Spanned<T>> for At<T> {
    fn from(from: Spanned<T>) -> At<T> {
        At {
            value: from.value,
            span: from.span,
        }
    }
}

impl<T> At<T> {
    /// Another value at the same place.
    pub fn with<U>(&self, value: U) -> At<U> {
        At {
            value,
            span: self.span,
        }
    }
}

/// Why a text was not read: it is not such a value. Who reads says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not such a value")]
pub struct NotOne;

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The one that all stations take for theirs.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// As a number of 48 bits.
    pub fn number(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Of a number's lower 48 bits.
    pub fn from_number(number: u64) -> Mac {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Mac([a, b, c, d, e, f])
    }

    /// Whether it names more than one station.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// The address of who was given none: made of names, so that every edge makes the same; locally administered, of one station.
    pub fn of_name(name: &str) -> Mac {
        let mut mac = Mac::from_number(hash(name));
        mac.0[0] = mac.0[0] & 0xfc | 0x02;
        mac
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = NotOne;

    fn from_str(text: &str) -> Result<Mac, NotOne> {
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().ok_or(NotOne)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(NotOne);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| NotOne)?;
        }
        match parts.next() {
            None => Ok(Mac(mac)),
            Some(_) => Err(NotOne),
        }
    }
}

/// A hash of a text that is the same everywhere and for ever: FNV-1a of 64 bits and the finalizer of MurmurHash3.
pub fn hash(text: &str) -> u64 {
    let mut h = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| {
        (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

/// An address as a number of 128 bits; those of IPv4 as `::ffff:a.b.c.d`.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Of a number.
pub fn address(number: u128) -> IpAddr {
    let v6 = Ipv6Addr::from(number);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

/// The words of an address in keys of exact matches: as in packets.
pub fn words(number: u128) -> [u64; 2] {
    let bytes = number.to_be_bytes();
    let (high, low) = bytes.split_at(8);
    [high, low].map(|half| u64::from_ne_bytes(half.try_into().unwrap_or_default()))
}

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net {
    /// The address, host bits included.
    pub address: IpAddr,
    /// Bits of the prefix, of the address's own family.
    pub length: u8,
}

impl Net {
    /// Bits of an address of its family.
    pub fn bits(&self) -> u8 {
        match self.address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        }
    }

    /// Bits of the prefix as one of an IPv6 address: 96 more for IPv4.
    pub fn mapped_length(&self) -> u8 {
        self.length + (128 - self.bits())
    }

    /// The first address, as a number.
    pub fn first(&self) -> u128 {
        masked(number(self.address), self.mapped_length())
    }

    /// Without host bits.
    pub fn network(&self) -> Net {
        Net {
            address: match self.address {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(self.first() as u32)),
                IpAddr::V6(_) => IpAddr::V6(self.first().into()),
            },
            length: self.length,
        }
    }

    /// Whether an address is one of the network.
    pub fn contains(&self, other: IpAddr) -> bool {
        self.address.is_ipv4() == other.is_ipv4()
            && masked(number(other), self.mapped_length()) == self.first()
    }

    /// Whether some address is in both.
    pub fn overlaps(&self, other: &Net) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

/// The first bits of an address; the rest are zeros.
pub fn masked(address: u128, length: u8) -> u128 {
    match length {
        0 => 0,
        _ => address & u128::MAX << (128 - u32::from(length.min(128))),
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Net {
    type Err = NotOne;

    fn from_str(text: &str) -> Result<Net, NotOne> {
        let (address, length) = text.split_once('/').ok_or(NotOne)?;
        let address = plain_address(address)?;
        if length.starts_with('+') {
            return Err(NotOne);
        }
        let net = Net {
            address,
            length: length.parse().map_err(|_| NotOne)?,
        };
        (net.length <= net.bits()).then_some(net).ok_or(NotOne)
    }
}

/// An address; not one of IPv4 in the clothes of IPv6, which packets never have.
pub fn plain_address(text: &str) -> Result<IpAddr, NotOne> {
    match text.parse().map_err(|_| NotOne)? {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(NotOne),
        address => Ok(address),
    }
}

/// How packets travel between edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926, with an option that names the tenant.
    Geneve,
    /// RFC 2784 and 2890: transparent Ethernet bridging with a key.
    Gre,
    /// VXLAN, by a device of the kernel.
    KernelVxlan,
}

impl Kind {
    /// All of them, and their names.
    pub const ALL: [(&'static str, Kind); 4] = [
        ("vxlan", Kind::Vxlan),
        ("geneve", Kind::Geneve),
        ("gre", Kind::Gre),
        ("kernel-vxlan", Kind::KernelVxlan),
    ];

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Vxlan => "vxlan",
            Kind::Geneve => "geneve",
            Kind::Gre => "gre",
            Kind::KernelVxlan => "kernel-vxlan",
        }
    }

    /// Its number in tables.
    pub fn number(self) -> u8 {
        match self {
            Kind::Vxlan => tunnel_kind::VXLAN,
            Kind::Geneve => tunnel_kind::GENEVE,
            Kind::Gre => tunnel_kind::GRE,
            Kind::KernelVxlan => tunnel_kind::KERNEL,
        }
    }

    /// Port of UDP that it is sent to; 0: it uses none.
    pub fn port(self) -> u16 {
        match self {
            Kind::Vxlan | Kind::KernelVxlan => 4789,
            Kind::Geneve => 6081,
            Kind::Gre => 0,
        }
    }

    /// Bytes of a packet of the underlay in front of the inner packet: outer IP header to inner Ethernet header.
    pub fn overhead(self, v6: bool) -> u16 {
        let own = match self {
            Kind::Vxlan | Kind::KernelVxlan => 8 + 8,
            Kind::Geneve => 8 + 8 + 8,
            Kind::Gre => 8,
        };
        own + 14 + if v6 { 40 } else { 20 }
    }

    /// Whether what is sent as `self` arrives where `other` is accepted: on the wire, VXLAN is VXLAN whoever makes it.
    pub fn is_taken_as(self, other: Kind) -> bool {
        let wire = |kind| match kind {
            Kind::KernelVxlan => Kind::Vxlan,
            kind => kind,
        };
        wire(self) == wire(other)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in ["02:00:00:00:00:07", "ff:ff:ff:ff:ff:ff"] {
            assert_eq!(text.parse::<Mac>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:07:01",
            "2:0:0:0:0:7",
            "+2:00:00:00:00:07",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
        for text in [
            "10.1.0.1/24",
            "0.0.0.0/0",
            "fd00::1/64",
            "::/0",
            "fe80::1/128",
        ] {
            assert_eq!(text.parse::<Net>().expect(text).to_string(), text);
        }
        for text in [
            "10.1.0.1",
            "10.1.0.1/33",
            "fd00::/129",
            "::ffff:10.0.0.1/128",
            "10.0.0.0/+8",
        ] {
            assert!(text.parse::<Net>().is_err(), "{text}");
        }
    }

    #[test]
    fn networks_hold_their_addresses() {
        let net: Net = "10.1.0.7/24".parse().expect("net");
        assert_eq!(net.network().to_string(), "10.1.0.0/24");
        assert_eq!(net.mapped_length(), 120);
        assert!(net.contains("10.1.0.255".parse().expect("address")));
        assert!(!net.contains("10.1.1.0".parse().expect("address")));
        let all: Net = "0.0.0.0/0".parse().expect("net");
        assert!(all.overlaps(&net) && net.overlaps(&all));
        assert!(!all.contains("fd00::1".parse().expect("address")));
        assert_eq!(address(number(net.address)), net.address);
    }

    #[test]
    fn words_are_as_in_packets() {
        let one = number("10.1.2.3".parse().expect("address"));
        let word = |bytes| u64::from_ne_bytes(bytes);
        assert_eq!(words(one), [0, word([0, 0, 0xff, 0xff, 10, 1, 2, 3])]);
    }

    #[test]
    fn addresses_made_of_names_are_of_one_station_and_local() {
        let a = Mac::of_name("shop/w1");
        assert_eq!(a, Mac::of_name("shop/w1"));
        assert_ne!(a, Mac::of_name("shop/w2"));
        assert_eq!(a.0[0] & 3, 2);
        assert_eq!(Mac::from_number(a.number()), a);
        // Whoever changes the hash gives every station another address.
        assert_eq!(a.to_string(), "f2:c6:67:15:fc:31");
    }

    #[test]
    fn overheads_are_those_of_the_headers() {
        let of = |kind: Kind| [kind.overhead(false), kind.overhead(true)];
        assert_eq!(of(Kind::Vxlan), [50, 70]);
        assert_eq!(of(Kind::KernelVxlan), [50, 70]);
        assert_eq!(of(Kind::Geneve), [58, 78]);
        assert_eq!(of(Kind::Gre), [42, 62]);
    }
}
