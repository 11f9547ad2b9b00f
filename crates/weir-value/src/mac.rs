//! MAC addresses.

use std::fmt;
use std::str::FromStr;

use crate::Invalid;

/// A MAC address. Its text is the kernel's: `02:00:00:00:00:01`.
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

    /// Whether it is the address of one station: not of a group, and not all zeros.
    pub fn is_station(self) -> bool {
        !self.is_group() && self.0 != [0; 6]
    }

    /// The address of one station.
    ///
    /// # Errors
    /// The text is not a MAC address, or not that of a station.
    pub fn of_station(text: &str) -> Result<Mac, Invalid> {
        let mac: Mac = text.parse()?;
        match mac.is_station() {
            true => Ok(mac),
            false => Err(Invalid::new(
                WHAT,
                text,
                "a unicast address such as 02:00:00:00:00:01",
            )),
        }
    }
}

const WHAT: &str = "invalid MAC address";

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Mac, Invalid> {
        read(text).ok_or_else(|| {
            Invalid::new(
                WHAT,
                text,
                "six hexadecimal bytes such as 02:00:00:00:00:01",
            )
        })
    }
}

fn read(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next()?;
        if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(Mac(mac))
}
