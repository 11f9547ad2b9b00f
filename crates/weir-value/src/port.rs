//! Ports of transport protocols, and ranges of them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{Invalid, decimal};

/// `80`.
///
/// # Errors
/// The text is not a port.
pub fn port(text: &str) -> Result<u16, Invalid> {
    number(text).ok_or_else(|| Invalid::new("invalid port", text, "a number from 0 to 65535"))
}

fn number(text: &str) -> Option<u16> {
    decimal(text.as_bytes()).and_then(|n| u16::try_from(n).ok())
}

/// Ports that follow each other: `80` or `8000-8999`.
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
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(PortRange { first, last }),
            (Some(first), Some(last)) => Err(Invalid::new(WHAT, text, &format!("{last}-{first}"))),
            _ => Err(Invalid::new(
                WHAT,
                text,
                "a port such as 80 or a range such as 8000-8999",
            )),
        }
    }
}
