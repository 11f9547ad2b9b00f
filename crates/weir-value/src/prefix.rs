//! Addresses, prefixes, and addresses of interfaces with the length of their prefix.
//!
//! A [`Prefix`] has no host bits: text that sets them is refused, because what its writer meant is not known. An [`InterfaceAddress`]
//! keeps them. Own types rather than those of the crate `ipnet`: its networks keep host bits, it reads no address alone, and lists have
//! millions of prefixes, which the parser here reads several times as fast.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::{Invalid, decimal};

/// An IPv4 or IPv6 address.
///
/// # Errors
/// The text is not an address.
pub fn address(text: &str) -> Result<IpAddr, Invalid> {
    match number(text) {
        Some((number, is_ip6)) => Ok(of_number(number, is_ip6)),
        None => Err(Invalid::new(
            "invalid address",
            text,
            "an IPv4 or IPv6 address such as 192.0.2.1 or 2001:db8::1",
        )),
    }
}

/// A block of addresses. Its text is an address and a length, or one address; with `#`, the length in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// Whether it is IPv6.
    pub is_ip6: bool,
    /// First address; an IPv4 one is in the lowest 32 bits.
    pub first: u128,
    /// Bits that all its addresses have in common.
    pub len: u8,
}

impl Prefix {
    /// The block of this length that holds the address.
    pub fn around(address: IpAddr, len: u8) -> Prefix {
        let (number, width, is_ip6) = match address {
            IpAddr::V4(a) => (u128::from(u32::from(a)), 32, false),
            IpAddr::V6(a) => (u128::from(a), 128, true),
        };
        let host = width - u32::from(len).min(width);
        let first = if host >= 128 {
            0
        } else {
            number >> host << host
        };
        Prefix { is_ip6, first, len }
    }

    /// The block of one address.
    pub fn one(address: IpAddr) -> Prefix {
        Prefix::around(address, if address.is_ipv4() { 32 } else { 128 })
    }

    /// Bits of an address of its family.
    pub fn width(&self) -> u8 {
        if self.is_ip6 { 128 } else { 32 }
    }

    /// Whether it is a single address.
    pub fn is_one(&self) -> bool {
        self.len == self.width()
    }

    /// First address.
    pub fn address(&self) -> IpAddr {
        of_number(self.first, self.is_ip6)
    }

    /// Last address, as a number.
    pub fn last(&self) -> u128 {
        match self.width() - self.len {
            128 => u128::MAX,
            host => self.first | ((1 << host) - 1),
        }
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.covers(&Prefix::one(address))
    }

    /// Whether all of `other` lies in it.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.is_ip6 == other.is_ip6
            && self.len <= other.len
            && (self.first..=self.last()).contains(&other.first)
    }

    /// Whether some address lies in both.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.covers(other) || other.covers(self)
    }
}

impl FromStr for Prefix {
    type Err = Invalid;

    /// `10.0.0.0/8`, `2001:db8::/32`, or one address.
    fn from_str(text: &str) -> Result<Prefix, Invalid> {
        const WHAT: &str = "invalid prefix";
        let Some((first, is_ip6, len)) = split(text) else {
            return Err(Invalid::new(
                WHAT,
                text,
                "an address or a prefix such as 192.0.2.0/24 or 2001:db8::/32",
            ));
        };
        let prefix = Prefix { is_ip6, first, len };
        let address = prefix.address();
        let block = Prefix::around(address, len);
        match block == prefix {
            true => Ok(prefix),
            false => Err(Invalid::because(
                WHAT,
                text,
                format!("host bits are set; write {block:#} or {address}"),
            )),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_one() && !f.alternate() {
            true => write!(f, "{}", self.address()),
            false => write!(f, "{}/{}", self.address(), self.len),
        }
    }
}

/// An address of an interface with the length of its prefix, host bits included. Its text is that of `ip address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub len: u8,
}

impl InterfaceAddress {
    /// The prefix that the interface is connected to.
    pub fn network(&self) -> Prefix {
        Prefix::around(self.address, self.len)
    }
}

impl FromStr for InterfaceAddress {
    type Err = Invalid;

    /// `192.0.2.1/24`, `2001:db8::1/64`; without a length the address is alone.
    fn from_str(text: &str) -> Result<InterfaceAddress, Invalid> {
        match split(text) {
            Some((number, is_ip6, len)) => Ok(InterfaceAddress {
                address: of_number(number, is_ip6),
                len,
            }),
            None => Err(Invalid::new(
                "invalid interface address",
                text,
                "an address and the length of its prefix such as 192.0.2.1/24 or 2001:db8::1/64",
            )),
        }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// Address, family and length; the length of an address alone is the whole width.
fn split(text: &str) -> Option<(u128, bool, u8)> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (text, None),
    };
    let (address, is_ip6) = number(address)?;
    let width: u8 = if is_ip6 { 128 } else { 32 };
    let len = match len {
        None => width,
        Some(digits) => decimal(digits.as_bytes())
            .and_then(|n| u8::try_from(n).ok())
            .filter(|len| *len <= width)?,
    };
    Some((address, is_ip6, len))
}

fn of_number(number: u128, is_ip6: bool) -> IpAddr {
    match is_ip6 {
        true => IpAddr::V6(Ipv6Addr::from(number)),
        false => IpAddr::V4(Ipv4Addr::from(number as u32)),
    }
}

/// An address as a number, and whether it is IPv6. IPv4 by hand: lists have millions of them.
fn number(text: &str) -> Option<(u128, bool)> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(|a| (u128::from(a), true));
    }
    let mut parts = text.as_bytes().split(|b| *b == b'.');
    let mut address = 0u32;
    for _ in 0..4 {
        let digits = parts.next()?;
        if digits.len() > 3 || (digits.len() > 1 && digits[0] == b'0') {
            return None;
        }
        address = address << 8 | u32::from(u8::try_from(decimal(digits)?).ok()?);
    }
    parts
        .next()
        .is_none()
        .then_some((u128::from(address), false))
}
