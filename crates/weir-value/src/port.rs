//! Ports of transport protocols, and ranges of them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{Invalid, SERVICES, decimal};

/// `80` or `http`.
///
/// # Errors
/// The text is not a port.
pub fn port(text: &str) -> Result<u16, Invalid> {
    number(text).ok_or_else(|| {
        Invalid::new(
            "invalid port",
            text,
            "a number from 0 to 65535, or the name of a service",
        )
    })
}

fn number(text: &str) -> Option<u16> {
    let named = SERVICES.iter().find(|(name, _)| *name == text);
    named
        .map(|(_, number)| *number)
        .or_else(|| decimal(text.as_bytes()).and_then(|n| u16::try_from(n).ok()))
}

/// The two ends of a range. Names of services may have a `-` themselves.
fn ends(text: &str) -> Option<(u16, u16)> {
    if let Some(port) = number(text) {
        return Some((port, port));
    }
    text.match_indices('-').find_map(|(at, _)| {
        let (first, last) = (text.get(..at)?, text.get(at + 1..)?);
        Some((number(first)?, number(last)?))
    })
}

/// Ports that follow each other: `80`, `http`, `8000-8999` or `http-https`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last, not below the first.
    pub last: u16,
}

impl PortRange {
    /// As a range.
    pub fn range(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl FromStr for PortRange {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<PortRange, Invalid> {
        const WHAT: &str = "invalid port range";
        match ends(text) {
            Some((first, last)) if first <= last => Ok(PortRange { first, last }),
            Some((first, last)) => Err(Invalid::new(WHAT, text, &format!("{last}-{first}"))),
            None => Err(Invalid::new(
                WHAT,
                text,
                "a port such as 80 or http, or a range such as 8000-8999",
            )),
        }
    }
}
