//! Values as iptables, nft and pf write them.

use std::net::IpAddr;

use crate::condition::Field;
use crate::numbers::Numbers;

/// Numbers of a table of names of the policy language, by a field that takes them.
fn named(table: &str, word: &str) -> Option<u128> {
    let tables = weir_policy::names();
    let (_, names) = tables.iter().find(|(fields, _)| fields.contains(table))?;
    let found = names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word));
    found.map(|&(_, number)| number.into())
}

/// The names that a field's values have.
fn table(field: Field) -> Option<&'static str> {
    Some(match field {
        Field::Sport | Field::Dport => "ports",
        Field::Proto => "`l4-proto`",
        Field::EthType => "`eth-type`",
        Field::Dscp4 | Field::Dscp6 => "`ip-dscp`",
        Field::IcmpType => "`icmp-type`",
        Field::IcmpCode => "`icmp-code`",
        Field::Icmp6Type => "`icmp6-type`",
        Field::Icmp6Code => "`icmp6-code`",
        Field::TcpFlags => "`tcp-flags`",
        Field::Day => "`day`",
        _ => return None,
    })
}

/// A number, decimal or hex, or a name; what does not fit the field is none.
pub(crate) fn number(field: Field, word: &str) -> Option<u128> {
    let number = match word.strip_prefix("0x") {
        _ if field == Field::Hour && word.contains(':') => time_of_day(word),
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse().ok(),
        None => table(field).and_then(|table| named(table, word)),
    };
    // `lo-hi` and the like are for the caller.
    number.filter(|&number| number <= field.max())
}

/// A time of day in seconds: `08:00`, `08:00:30`.
fn time_of_day(word: &str) -> Option<u128> {
    let mut parts = word.split(':').map(|part| part.parse::<u32>().ok());
    let (hours, minutes) = (parts.next()??, parts.next()??);
    let seconds = parts.next().unwrap_or(Some(0))?;
    let is_time = hours < 24 && minutes < 60 && seconds < 60 && parts.next().is_none();
    is_time.then(|| (hours * 3600 + minutes * 60 + seconds).into())
}

/// Days of the week as iptables writes them: `Mon,Tue`, `Mo`, `1` for Monday to `7` for Sunday.
pub(crate) fn weekdays(list: &str) -> Option<Numbers> {
    const DAYS: [&str; 7] = ["su", "mo", "tu", "we", "th", "fr", "sa"];
    let day = |word: &str| match word.parse::<u128>() {
        Ok(number) => (1..=7).contains(&number).then_some(number % 7),
        Err(_) => {
            let start = word.get(..2)?.to_ascii_lowercase();
            (0..)
                .zip(DAYS)
                .find(|(_, day)| *day == start)
                .map(|(n, _)| n)
        }
    };
    let days: Option<Vec<u128>> = list.split(',').map(day).collect();
    Some(Numbers::new(days?.into_iter().map(|n| (n, n)).collect()))
}

/// Times of day of which the second may lie in front of the first.
pub(crate) fn hours(start: u128, stop: u128) -> Numbers {
    match start < stop {
        true => Numbers::range(start, stop),
        false => Numbers::new(vec![(0, stop), (start, Field::Hour.max())]),
    }
}

/// Marks whose bits under a mask are these.
pub(crate) fn masked_mark(value: &str, mask: &str) -> Result<Numbers, String> {
    let one = |word: &str| {
        number(Field::Mark, word).ok_or_else(|| format!("`{word}` is not a number of 32 bits"))
    };
    let (value, mask) = (one(value)?, one(mask)?);
    let free = u128::from(u32::MAX) & !mask;
    if value & free != 0 {
        return Ok(Numbers::default());
    }
    match free & (free + 1) {
        0 => Ok(Numbers::range(value, value | free)),
        _ => Err("only a mask of leading bits can be told apart from other marks".to_owned()),
    }
}

/// A number, or a range with this between its ends; an end may be left out.
pub(crate) fn numbers(field: Field, word: &str, between: char) -> Option<Numbers> {
    if let Some(one) = number(field, word) {
        return Some(Numbers::one(one));
    }
    // Names may have the separator in them: the split that gives two values counts.
    word.match_indices(between).find_map(|(at, _)| {
        let (low, high) = (word.get(..at)?, word.get(at + between.len_utf8()..)?);
        if low.is_empty() && high.is_empty() {
            return None;
        }
        let max = field.max();
        let low = if low.is_empty() {
            0
        } else {
            number(field, low)?
        };
        let high = if high.is_empty() {
            max
        } else {
            number(field, high)?
        };
        (low <= high).then(|| Numbers::range(low, high))
    })
}

/// Addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Four,
    Six,
}

impl Family {
    /// Its EtherType.
    pub(crate) fn version(self) -> u128 {
        match self {
            Family::Four => crate::condition::IP4,
            Family::Six => crate::condition::IP6,
        }
    }

    pub(crate) fn source(self) -> Field {
        match self {
            Family::Four => Field::Saddr4,
            Family::Six => Field::Saddr6,
        }
    }

    pub(crate) fn destination(self) -> Field {
        match self {
            Family::Four => Field::Daddr4,
            Family::Six => Field::Daddr6,
        }
    }
}

fn as_number(address: IpAddr) -> (Family, u128) {
    match address {
        IpAddr::V4(address) => (Family::Four, u32::from(address).into()),
        IpAddr::V6(address) => (Family::Six, address.into()),
    }
}

/// An address, a prefix, an address with a netmask, or a range; host bits behind a prefix count for nothing, as in the programs that are read.
pub(crate) fn addresses(word: &str) -> Option<(Family, Numbers)> {
    if let Some((address, length)) = word.split_once('/') {
        let (family, number) = as_number(address.parse().ok()?);
        let bits: u32 = if family == Family::Four { 32 } else { 128 };
        let length = match length.parse::<u32>() {
            Ok(length) if length <= bits => length,
            _ => netmask(length.parse().ok()?, family)?,
        };
        let host = match length {
            0 => u128::MAX >> (128 - bits),
            _ if length == bits => 0,
            _ => (1u128 << (bits - length)) - 1,
        };
        return Some((
            family,
            Numbers::range(number & !host, number & !host | host),
        ));
    }
    if let Some((low, high)) = word.split_once('-') {
        let (family, low) = as_number(low.parse().ok()?);
        let (other, high) = as_number(high.parse().ok()?);
        return (family == other && low <= high).then(|| (family, Numbers::range(low, high)));
    }
    let (family, number) = as_number(word.parse().ok()?);
    Some((family, Numbers::one(number)))
}

/// The length of a mask that is ones and then zeros.
fn netmask(mask: IpAddr, family: Family) -> Option<u32> {
    let (of, number) = as_number(mask);
    let bits = if family == Family::Four { 32 } else { 128 };
    let aligned = number << (128 - bits);
    let ones = aligned.leading_ones();
    (of == family && aligned.count_ones() == ones).then_some(ones)
}

/// A MAC address.
pub(crate) fn mac(word: &str) -> Option<Numbers> {
    let mac: weir_value::Mac = word.to_ascii_lowercase().parse().ok()?;
    Some(Numbers::one(mac.number().into()))
}

/// The name of an interface that can be written; patterns are not.
pub(crate) fn interface(word: &str) -> Option<&str> {
    let in_policies = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let plain = word.chars().all(in_policies) && weir_value::interface(word).is_ok();
    // In policies a number is an index.
    let number = word.bytes().all(|b| b.is_ascii_digit());
    (plain && !number).then_some(word)
}

/// Values of flags that have `set` of `mask`.
pub(crate) fn masked_flags(mask: u128, set: u128) -> Numbers {
    let members = (0..=255).filter(|value| value & mask == set);
    Numbers::new(members.map(|value| (value, value)).collect())
}

/// Flags with these between them.
pub(crate) fn flags(words: &str, between: &[char]) -> Option<u128> {
    words.split(between).try_fold(0, |all, word| {
        let flag = match word.trim().to_ascii_lowercase().as_str() {
            "none" | "0" => 0,
            "all" => 0x3f,
            word => number(Field::TcpFlags, word)?,
        };
        Some(all | flag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_their_programs_do() {
        let of = |word| addresses(word).map(|(_, set)| set.intervals().to_vec());
        assert_eq!(of("10.1.2.3/8"), Some(vec![(0x0a00_0000, 0x0aff_ffff)]));
        assert_eq!(of("10.0.0.0/255.0.0.0"), of("10.0.0.0/8"));
        assert_eq!(of("10.0.0.0/255.0.255.0"), None);
        assert_eq!(of("0.0.0.0/0"), Some(vec![(0, 0xffff_ffff)]));
        assert_eq!(of("::/0"), Some(vec![(0, u128::MAX)]));
        assert_eq!(of("10.0.0.9-10.0.0.1"), None);
        let ports = |word| numbers(Field::Dport, word, ':').map(|set| set.intervals().to_vec());
        assert_eq!(ports("ssh"), Some(vec![(22, 22)]));
        assert_eq!(ports(":1023"), Some(vec![(0, 1023)]));
        assert_eq!(ports("65536"), None);
        let dashed = numbers(Field::Dport, "ftp-data-ssh", '-');
        assert_eq!(dashed, Some(Numbers::range(20, 22)));
    }
}
