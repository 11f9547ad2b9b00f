//! How values are written: one parser, one type and one error message for each kind, used by policies, configurations, documents of
//! networks and options of commands alike.
//!
//! Which values make sense in a field (a range, a family, one station) is for the field. Formats of other programs keep their own
//! spelling and parsers: suricata.yaml, rules of signatures, ClassBench, frames of captures.

#![warn(clippy::expect_used, clippy::unwrap_used)]

mod count;
mod duration;
mod interface;
mod invalid;
mod mac;
mod port;
mod prefix;
mod protocol;
mod service;
mod time;

pub use count::{Rate, count, rate};
pub use duration::{duration, whole_seconds};
pub use interface::interface;
pub use invalid::Invalid;
pub use mac::Mac;
pub use port::{PortRange, port};
pub use prefix::{InterfaceAddress, Prefix, address};
pub use protocol::{PROTOCOLS, protocol};
pub use service::SERVICES;
pub use time::{utc, utc_day};

/// A decimal number without sign, of at most 19 digits.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| sum * 10 + u64::from(digit))
    })
}

/// `12` or `1.25`: digits, and digits behind a point.
fn is_number(text: &str) -> bool {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    [whole, part]
        .iter()
        .all(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Such a number times a factor; `None` unless that is a whole number that fits.
fn scaled(text: &str, factor: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if !is_number(text) || part.len() > 18 {
        return None;
    }
    let tenths = 10u128.pow(part.len() as u32);
    let number = whole.parse::<u64>().ok()?;
    let number = u128::from(number) * tenths + part.parse::<u128>().ok()?;
    let scaled = number.checked_mul(factor.into())?;
    scaled
        .is_multiple_of(tenths)
        .then(|| u64::try_from(scaled / tenths).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_are_exact() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("0.000000001"), Ok(Duration::from_nanos(1)));
        assert_eq!(duration("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("0.0000000001").is_err() && duration("300000d").is_err());
        assert_eq!(count("18446744073709551615"), Ok(u64::MAX));
        assert!(count("18446744073709551616").is_err() && count("99999999999G").is_err());
        assert_eq!(count("1.25k"), Ok(1250));
        let of = |text: &str| rate(text).map(|rate| (rate.count, rate.seconds, rate.per_second()));
        assert_eq!(of("600/m"), Ok((600, 60, Some(10))));
        assert_eq!(of("100/h"), Ok((100, 3600, None)));
        assert_eq!(of("1.5k"), Ok((1500, 1, Some(1500))));
    }

    #[test]
    fn prefixes_hold_what_they_hold() {
        let of = |text: &str| -> Prefix { text.parse().unwrap_or_else(|e| panic!("{e}")) };
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.1", "::/0", "::1"] {
            assert_eq!(of(text).to_string(), text);
        }
        assert_eq!(format!("{:#}", of("192.0.2.1")), "192.0.2.1/32");
        assert_eq!(of("0.0.0.0/0").last(), 0xffff_ffff);
        assert_eq!(of("::/0").last(), u128::MAX);
        assert!(of("10.0.0.0/8").covers(&of("10.9.0.0/16")));
        assert!(!of("10.9.0.0/16").covers(&of("10.0.0.0/8")));
        assert!(of("10.9.0.0/16").overlaps(&of("10.0.0.0/8")));
        assert!(!of("0.0.0.0/0").overlaps(&of("::/0")));
        assert!(of("10.0.0.0/8").contains([10, 255, 0, 1].into()));
        let own: InterfaceAddress = "10.1.0.7/24".parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(own.to_string(), "10.1.0.7/24");
        assert_eq!(own.network(), of("10.1.0.0/24"));
    }

    #[test]
    fn stations_are_one() {
        let mac = Mac::of_station("02:00:00:00:00:01").map(Mac::number);
        assert_eq!(mac, Ok(0x0200_0000_0001));
        for group in [
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
        ] {
            assert!(group.parse::<Mac>().is_ok() && Mac::of_station(group).is_err());
        }
        assert_eq!(
            Mac::from_number(0x0200_0000_0001).to_string(),
            "02:00:00:00:00:01"
        );
    }
}
