//! Values that documents of virtual networks are made of: kinds of tunnels, addresses as the tables have them, and values with a place.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Deref;

use weir_bpf::abi::tunnel_kind;
use weir_functions::read::Spanned;
use weir_policy::ast::Span;
use weir_value::{InterfaceAddress, Prefix};

pub use weir_value::Mac;

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

/// The address of who was given none: made of names, so that every edge makes the same; locally administered, of one station.
pub fn mac_of_name(name: &str) -> Mac {
    let mut mac = Mac::from_number(hash(name));
    mac.0[0] = mac.0[0] & 0xfc | 0x02;
    mac
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

/// First address and length of a prefix as one of IPv6: IPv4 addresses as [`number`] has them.
pub fn mapped(prefix: &Prefix) -> (u128, u8) {
    let length = prefix.len + (128 - prefix.width());
    (number(prefix.address()), length)
}

/// The first bits of an address; the rest are zeros.
pub fn masked(address: u128, length: u8) -> u128 {
    match length {
        0 => 0,
        _ => address & u128::MAX << (128 - u32::from(length.min(128))),
    }
}

/// An address; not one of IPv4 in the clothes of IPv6, which packets never have.
pub fn plain_address(text: &str) -> Result<IpAddr, String> {
    let address = weir_value::address(text)?;
    plain(text, &address).map(|()| address)
}

/// A prefix of such addresses.
pub fn plain_prefix(text: &str) -> Result<Prefix, String> {
    let prefix: Prefix = text.parse()?;
    match prefix.len {
        96.. => plain(text, &prefix.address()).map(|()| prefix),
        _ => Ok(prefix),
    }
}

/// Such an address of an interface.
pub fn plain_interface_address(text: &str) -> Result<InterfaceAddress, String> {
    let own: InterfaceAddress = text.parse()?;
    plain(text, &own.address).map(|()| own)
}

fn plain(text: &str, address: &IpAddr) -> Result<(), String> {
    match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => Err(format!("`{text}` is the IPv4 address {v4}; write that")),
            None => Ok(()),
        },
        IpAddr::V4(_) => Ok(()),
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
    fn addresses_of_ipv4_in_ipv6_are_refused() {
        let why = "`::ffff:10.0.0.1` is the IPv4 address 10.0.0.1; write that".to_owned();
        assert_eq!(plain_address("::ffff:10.0.0.1"), Err(why));
        assert!(plain_prefix("::ffff:0:0/96").is_err() && plain_prefix("::/0").is_ok());
        assert!(plain_interface_address("::ffff:10.0.0.1/120").is_err());
    }

    #[test]
    fn prefixes_are_those_of_mapped_addresses() {
        let of = |text: &str| mapped(&text.parse().expect("a prefix"));
        let first = number("10.1.0.0".parse().expect("an address"));
        assert_eq!(of("10.1.0.0/24"), (first, 120));
        assert_eq!(of("fd00::/64").1, 64);
        assert_eq!(address(first).to_string(), "10.1.0.0");
    }

    #[test]
    fn words_are_as_in_packets() {
        let one = number("10.1.2.3".parse().expect("address"));
        let word = |bytes| u64::from_ne_bytes(bytes);
        assert_eq!(words(one), [0, word([0, 0, 0xff, 0xff, 10, 1, 2, 3])]);
    }

    #[test]
    fn addresses_made_of_names_are_of_one_station_and_local() {
        let a = mac_of_name("shop/w1");
        assert_eq!(a, mac_of_name("shop/w1"));
        assert_ne!(a, mac_of_name("shop/w2"));
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
