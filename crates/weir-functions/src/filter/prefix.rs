//! Addresses and prefixes of both families, and how they are written.
//!
//! A prefix never has bits set behind its length; text that has them is refused, because what its writer meant is not known.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// First address; an IPv4 one is in the lowest 32 bits.
    pub first: u128,
    /// Bits that all its addresses have in common.
    pub len: u8,
    /// Whether it is IPv6.
    pub is_ip6: bool,
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
        Prefix { first, len, is_ip6 }
    }

    /// Bits of an address of its family.
    pub fn width(&self) -> u8 {
        if self.is_ip6 { 128 } else { 32 }
    }

    /// Last address.
    pub fn last(&self) -> u128 {
        match self.width() - self.len {
            128 => u128::MAX,
            host => self.first | ((1 << host) - 1),
        }
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let all = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let one = Prefix::around(address, all);
        one.is_ip6 == self.is_ip6 && (self.first..=self.last()).contains(&one.first)
    }

    /// `10.0.0.0/8`, `2001:db8::/32`, or one address.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse(text: &str) -> Result<Prefix, String> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let (first, is_ip6) =
            number(address).ok_or_else(|| format!("`{address}` is not an IPv4 or IPv6 address"))?;
        let width: u8 = if is_ip6 { 128 } else { 32 };
        let len = match len {
            None => width,
            Some(digits) => decimal(digits.as_bytes())
                .and_then(|n| u8::try_from(n).ok())
                .filter(|len| *len <= width)
                .ok_or_else(|| format!("`/{digits}` is not a prefix length from /0 to /{width}"))?,
        };
        let prefix = Prefix { first, len, is_ip6 };
        let address = prefix.address();
        let block = Prefix::around(address, len);
        if block != prefix {
            return Err(format!(
                "{address}/{len} has bits set behind its length: write {block}, or {address}"
            ));
        }
        Ok(prefix)
    }

    /// First address.
    pub fn address(&self) -> IpAddr {
        match self.is_ip6 {
            true => IpAddr::V6(Ipv6Addr::from(self.first)),
            false => IpAddr::V4(Ipv4Addr::from(self.first as u32)),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len == self.width() {
            true => write!(f, "{}", self.address()),
            false => write!(f, "{}/{}", self.address(), self.len),
        }
    }
}

/// An address as a number, and whether it is IPv6. IPv4 by hand: lists have millions of them.
pub(super) fn number(text: &str) -> Option<(u128, bool)> {
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

/// A decimal number without sign.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| sum * 10 + u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_and_printed() {
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "192.0.2.1",
            "2001:db8::/32",
            "::/0",
            "::1",
        ] {
            assert_eq!(Prefix::parse(text).expect("reads").to_string(), text);
        }
        assert_eq!(
            Prefix::parse("0.0.0.0/0").expect("reads").last(),
            0xffff_ffff
        );
        assert_eq!(Prefix::parse("::/0").expect("reads").last(), u128::MAX);
    }

    #[test]
    fn what_is_no_prefix_says_why() {
        let said = |text: &str| Prefix::parse(text).expect_err("refused");
        assert_eq!(
            said("10.0.0.1/8"),
            "10.0.0.1/8 has bits set behind its length: write 10.0.0.0/8, or 10.0.0.1"
        );
        assert_eq!(
            said("10.0.0.0/33"),
            "`/33` is not a prefix length from /0 to /32"
        );
        for text in [
            "",
            "10.0.0",
            "10.0.0.0.0",
            "256.0.0.1",
            "01.2.3.4",
            "1.2.3.+4",
            "x",
            "::g",
        ] {
            assert!(
                said(text).ends_with("is not an IPv4 or IPv6 address"),
                "{text}"
            );
        }
    }
}
