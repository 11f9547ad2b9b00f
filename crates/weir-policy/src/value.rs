//! Values: from a word to a number, an interval or bytes.
//!
//! What a word means depends on the field it is for ([`Domain`]). Nothing is ever cut to fit: what is too wide is refused with
//! the width and the largest value.

use std::net::Ipv4Addr;

use weir_value::{Invalid, Mac, Prefix};

use crate::field::{Field, Header, Kind};
use crate::names::{DAYS, Names, examples, flag_parts, has_flags, names_of, number_of, range_of};
use crate::words::{hex_digits, nearest};

/// Width of flags.
const FLAG_BITS: u16 = 8;

/// Longest hex literal, in bytes.
pub(crate) const MAX_BYTES: usize = 64;

/// What values a field takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Domain {
    /// Numbers of so many bits, some with names.
    Number(u16, Names),
    /// Eight bits with names.
    Flags(Names),
    /// IPv4 addresses.
    Addr4,
    /// IPv6 addresses.
    Addr6,
    /// MAC addresses.
    Mac,
    /// 32 bits, that may be written as the two halves of a class of a queueing discipline.
    Class,
    /// Times that come again: a range may run over their end.
    Clock(ClockField),
}

/// What a field of times holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClockField {
    /// Seconds of the day.
    Hour,
    /// Days of the week from Sunday.
    Day,
}

impl ClockField {
    /// What `hour` and `day` hold.
    fn of(field: Field) -> ClockField {
        match field.info().name {
            "hour" => ClockField::Hour,
            _ => ClockField::Day,
        }
    }

    /// The last value in front of the first.
    pub(crate) fn last(self) -> u32 {
        match self {
            ClockField::Hour => 86_399,
            ClockField::Day => 6,
        }
    }

    fn names(self) -> Names {
        match self {
            ClockField::Hour => &[],
            ClockField::Day => DAYS,
        }
    }
}

impl Domain {
    /// The domain of a field that has numbers; `None` for others.
    pub(crate) fn of(field: Field) -> Option<Domain> {
        let info = field.info();
        match info.kind {
            Kind::Number if info.header == Header::Clock => {
                Some(Domain::Clock(ClockField::of(field)))
            }
            Kind::Number if info.name == "priority" => Some(Domain::Class),
            Kind::Number if has_flags(field) => Some(Domain::Flags(names_of(field))),
            Kind::Number => Some(Domain::Number(info.bits, names_of(field))),
            Kind::NetProto | Kind::L4Proto | Kind::CtState => {
                Some(Domain::Number(8, names_of(field)))
            }
            Kind::Mac => Some(Domain::Mac),
            Kind::Addr4 => Some(Domain::Addr4),
            Kind::Addr6 => Some(Domain::Addr6),
            _ => None,
        }
    }

    /// Width in bits.
    pub(crate) fn bits(self) -> u16 {
        match self {
            Domain::Number(bits, _) => bits,
            Domain::Flags(_) => FLAG_BITS,
            Domain::Addr4 | Domain::Class => 32,
            Domain::Addr6 => 128,
            Domain::Mac => 48,
            Domain::Clock(ClockField::Hour) => 17,
            Domain::Clock(ClockField::Day) => 3,
        }
    }

    /// Largest value.
    pub(crate) fn max(self) -> u128 {
        if let Domain::Clock(clock) = self {
            return clock.last().into();
        }
        u128::MAX >> (128 - u32::from(self.bits().clamp(1, 128)))
    }

    fn names(self) -> Names {
        match self {
            Domain::Number(_, names) | Domain::Flags(names) => names,
            Domain::Clock(clock) => clock.names(),
            Domain::Addr4 | Domain::Addr6 | Domain::Mac | Domain::Class => &[],
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Domain::Number(..) => "a number, decimal or hex (`80`, `x50`)",
            Domain::Flags(_) => "flags (`syn,ack`) or a number",
            Domain::Addr4 => "an IPv4 address like `192.0.2.1`",
            Domain::Addr6 => "an IPv6 address like `2001:db8::1`",
            Domain::Mac => "a MAC address like `02:00:00:00:00:01`",
            Domain::Class => "a number, or a class like `1:10`",
            Domain::Clock(ClockField::Hour) => "a time of day like `08:00`",
            Domain::Clock(ClockField::Day) => "a day like `mon`",
        }
    }
}

/// What is wrong with a value.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Problem {
        Problem {
            message: message.into(),
            help: None,
        }
    }

    pub(crate) fn with_help(message: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem {
            message: message.into(),
            help: Some(help.into()),
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        Problem::with_help(
            invalid.to_string(),
            "docs/values.md says how values are written",
        )
    }
}

/// Reads a value; words of the language are of any case, and values of others are not.
pub(crate) fn any_case<T>(
    word: &str,
    read: impl Fn(&str) -> Result<T, Invalid>,
) -> Result<T, Invalid> {
    read(word).or_else(|invalid| read(&word.to_ascii_lowercase()).map_err(|_| invalid))
}

/// How an interval was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One value.
    Single,
    /// `a-b`.
    Range,
    /// `a/len`
    Prefix,
    /// `flags/mask`: every value that has these flags of the mask, and no others of it.
    Mask(u8),
    /// `a-b` over the end of the day or week, whose last value is this.
    Around(u32),
}

/// A closed interval of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) lo: u128,
    pub(crate) hi: u128,
    pub(crate) form: Form,
}

impl Interval {
    /// All values: one interval, or those that a mask leaves.
    pub(crate) fn intervals(self) -> Vec<(u128, u128)> {
        match self.form {
            Form::Mask(mask) => (0..=u128::from(u8::MAX))
                .filter(|value| value & u128::from(mask) == self.lo)
                .map(|value| (value, value))
                .collect(),
            Form::Around(last) => vec![(0, self.hi), (self.lo, last.into())],
            _ => vec![(self.lo, self.hi)],
        }
    }
}

/// Reads a value, a range or a prefix.
pub(crate) fn interval(word: &str, domain: Domain) -> Result<Interval, Problem> {
    if let Some((left, right)) = word.split_once('/') {
        return match domain {
            Domain::Flags(names) => masked(word, left, right, names),
            _ => prefix(word, left, right, domain),
        };
    }
    if matches!(domain, Domain::Mac)
        && !word.contains(':')
        && word.matches('-').count() == 5
        && let Err(problem) = single(word, domain)
    {
        let help = format!("write `{}`", word.replace('-', ":"));
        return Err(Problem::with_help(problem.message, help));
    }
    if let Some((left, right)) = range_of(domain.names(), word) {
        let lo = single(left, domain)?;
        if right.is_empty() {
            return Err(Problem::new(format!("the range `{word}` has no end")));
        }
        let hi = single(right, domain)?;
        if lo > hi
            && let Domain::Clock(clock) = domain
        {
            return Ok(Interval {
                lo,
                hi,
                form: Form::Around(clock.last()),
            });
        }
        if lo > hi {
            return Err(Problem::with_help(
                format!("the range `{word}` runs backwards"),
                format!("write `{right}-{left}`"),
            ));
        }
        return Ok(Interval {
            lo,
            hi,
            form: Form::Range,
        });
    }
    if matches!(domain, Domain::Addr4 | Domain::Addr6) && !is_hex(word) {
        let (lo, hi) = block(word, domain)?;
        return Ok(Interval {
            lo,
            hi,
            form: Form::Single,
        });
    }
    let value = single(word, domain)?;
    Ok(Interval {
        lo: value,
        hi: value,
        form: Form::Single,
    })
}

/// Reads one value.
pub(crate) fn single(word: &str, domain: Domain) -> Result<u128, Problem> {
    match domain {
        Domain::Number(bits, names) => number(word, bits, names),
        Domain::Flags(names) => flags(word, names),
        Domain::Class => class(word),
        Domain::Clock(ClockField::Hour) => time_of_day(word),
        Domain::Clock(ClockField::Day) => day(word),
        _ if is_hex(word) => number(word, domain.bits(), &[]),
        Domain::Mac => Ok(word.parse::<Mac>()?.number().into()),
        Domain::Addr4 | Domain::Addr6 => {
            let address = weir_value::address(word)?;
            of_family(word, Prefix::one(address), domain).map(|prefix| prefix.first)
        }
    }
}

/// Reads a number, or a class of a queueing discipline as tc writes it: two numbers of 16 bits in hex.
fn class(word: &str) -> Result<u128, Problem> {
    let Some((major, minor)) = word.split_once(':') else {
        return number(word, 32, &[]);
    };
    let half = |digits: &str| match digits {
        "" => Some(0),
        _ if digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) => None,
        _ => u32::from_str_radix(digits, 16).ok(),
    };
    match (half(major), half(minor)) {
        (Some(major), Some(minor)) if word != ":" => Ok(u128::from(major << 16 | minor)),
        _ => Err(Problem::with_help(
            format!("`{word}` is not a class"),
            "a class is written as tc does, two hex numbers of at most four digits: `1:10`",
        )),
    }
}

/// A class as tc writes it; a number without an upper half as a number.
pub(crate) fn class_text(value: u128) -> String {
    match (value >> 16, value & 0xffff) {
        (0, minor) => minor.to_string(),
        (major, minor) => format!("{major:x}:{minor:x}"),
    }
}

/// Reads a time of day as seconds: `8:00`, `17:30`, `17:30:15`.
fn time_of_day(word: &str) -> Result<u128, Problem> {
    let number = |digits: &str, most: u32| {
        let is_number = matches!(digits.len(), 1 | 2) && digits.bytes().all(|b| b.is_ascii_digit());
        let number = digits.parse::<u32>().ok().filter(|_| is_number)?;
        (number <= most).then_some(number)
    };
    let two = |digits: &&str| digits.len() == 2;
    let mut parts = word.split(':');
    let hours = parts.next().unwrap_or_default();
    let (minutes, seconds) = (parts.next(), parts.next());
    let has_more = parts.next().is_some();
    let read = || {
        let hours = number(hours, 23)?;
        let minutes = number(minutes.filter(two)?, 59)?;
        let seconds = match seconds {
            Some(seconds) => number(Some(seconds).filter(two)?, 59)?,
            None => 0,
        };
        (!has_more).then_some(hours * 3600 + minutes * 60 + seconds)
    };
    if let Some(seconds) = read() {
        return Ok(seconds.into());
    }
    let help = match (number(hours, 23), minutes) {
        (Some(hours), None) => format!("write `{hours:02}:00`"),
        (None, _) if hours == "24" => {
            "the day ends with 23:59:59: write `18:00-23:59:59` or `>= 18:00`".to_owned()
        }
        _ => "hours are 00 to 23, minutes and seconds 00 to 59: `08:00`, `17:30:15`".to_owned(),
    };
    Err(Problem::with_help(
        format!("`{word}` is not a time of day"),
        help,
    ))
}

/// A time of day as it is written; seconds where there are some.
pub(crate) fn time_of_day_text(seconds: u128) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match seconds {
        0 => format!("{hours:02}:{minutes:02}"),
        _ => format!("{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// A time of day in its canonical spelling; `None` if the word is none.
pub(crate) fn canonical_time_of_day(word: &str) -> Option<String> {
    time_of_day(word).ok().map(time_of_day_text)
}

/// Reads an offset from UTC in minutes: `utc`, `+02:00`, `-03:30`. Offsets that are in use run from -12:00 to +14:00.
pub(crate) fn timezone(word: &str) -> Result<i16, Problem> {
    if word.eq_ignore_ascii_case("utc") {
        return Ok(0);
    }
    let sign = match word.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => {
            let help = match word.contains('/') {
                true => {
                    "the offset of a named zone changes over the year: write the one that holds, `timezone +01:00`"
                }
                false => {
                    "write the time ahead of UTC, `timezone +02:00`, behind it, `timezone -05:00`, or `timezone utc`"
                }
            };
            return Err(Problem::with_help(
                format!("`{word}` is not an offset from UTC"),
                help,
            ));
        }
    };
    let minutes = time_of_day(word.get(1..).unwrap_or_default())
        .ok()
        .filter(|seconds| seconds % 60 == 0)
        .map(|seconds| sign * (seconds / 60) as i16)
        .filter(|minutes| (-12 * 60..=14 * 60).contains(minutes));
    minutes.ok_or_else(|| {
        Problem::with_help(
            format!("`{word}` is not an offset from UTC"),
            "offsets are hours and minutes from -12:00 to +14:00: `timezone +05:30`",
        )
    })
}

/// An offset from UTC as it is written.
pub(crate) fn timezone_text(minutes: i16) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    let distance = minutes.unsigned_abs();
    match minutes {
        0 => "utc".to_owned(),
        _ => format!("{sign}{:02}:{:02}", distance / 60, distance % 60),
    }
}

/// Reads a day of the week: its name, or its number from Sunday on.
fn day(word: &str) -> Result<u128, Problem> {
    let last = u128::from(ClockField::Day.last());
    number(word, 3, DAYS)
        .ok()
        .filter(|&day| day <= last)
        .ok_or_else(|| {
            let help = match nearest(word, DAYS.iter().map(|day| day.0)) {
                Some(near) if !word.starts_with(|c: char| c.is_ascii_digit()) => {
                    format!("did you mean `{near}`?")
                }
                _ => "days are mon, tue, wed, thu, fri, sat and sun, or 0 to 6 from Sunday: `mon-fri`"
                    .to_owned(),
            };
            Problem::with_help(format!("`{word}` is not a day of the week"), help)
        })
}

/// Reads `value/mask`, two numbers of 32 bits; `None` if the word has no mask.
pub(crate) fn masked_number(word: &str) -> Option<Result<(u32, u32), Problem>> {
    let (value, mask) = word.split_once('/')?;
    let read = |text| number(text, 32, &[]).map(|number| number as u32);
    Some(match (read(value), read(mask)) {
        (Ok(value), Ok(mask)) if value & !mask == 0 => Ok((value, mask)),
        (Ok(value), Ok(mask)) => Err(Problem::with_help(
            format!("`{word}` has bits in front of the `/` that are not behind it"),
            format!(
                "behind the `/` stand all bits that are meant, in front those that are 1: `x{value:x}/x{:x}`",
                value | mask
            ),
        )),
        (Err(problem), _) | (_, Err(problem)) => Err(problem),
    })
}

/// A MAC address as it is written.
pub(crate) fn mac_text(address: u128) -> String {
    Mac::from_number(address as u64).to_string()
}

/// Reads flags that are joined: `syn,ack`, or `syn|ack` and `syn+ack` where a comma parts values.
fn flags(word: &str, names: Names) -> Result<u128, Problem> {
    flag_parts(word).try_fold(0, |all, part| Ok(all | number(part, FLAG_BITS, names)?))
}

/// `flags/mask`.
fn masked(word: &str, value: &str, mask: &str, names: Names) -> Result<Interval, Problem> {
    let (value, mask) = (flags(value, names)?, flags(mask, names)?);
    if value & !mask != 0 {
        return Err(Problem::with_help(
            format!("no packet has `{word}`: in front of the `/` are flags that are not behind it"),
            "the flags that are set stand in front of the `/`, all that are looked at behind it: `syn/syn,ack` is SYN without ACK; both set are `syn,ack`",
        ));
    }
    Ok(Interval {
        lo: value,
        hi: value,
        form: Form::Mask(mask as u8),
    })
}

/// Reads a number of at most `bits` bits.
pub(crate) fn number(word: &str, bits: u16, names: Names) -> Result<u128, Problem> {
    let max = u128::MAX >> (128 - u32::from(bits.clamp(1, 128)));
    let too_wide = || {
        Problem::with_help(
            format!(
                "`{word}` is too large for a field of {bits} bit{}",
                if bits == 1 { "" } else { "s" }
            ),
            format!("the largest value is {max} (x{max:x})"),
        )
    };
    if word.starts_with(|c: char| c.is_ascii_digit()) && hex_digits(word).is_none() {
        if !word.bytes().all(|b| b.is_ascii_digit()) {
            return Err(not_a_number(word, names));
        }
        return match word.parse::<u128>() {
            Ok(value) if value <= max => Ok(value),
            _ => Err(too_wide()),
        };
    }
    if let Some(value) = number_of(names, word) {
        return Ok(u128::from(value));
    }
    match hex_digits(word) {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) && !digits.is_empty() => {
            match u128::from_str_radix(digits.trim_start_matches('0'), 16) {
                Ok(value) if value <= max => Ok(value),
                Err(_) if digits.bytes().all(|b| b == b'0') => Ok(0),
                _ => Err(too_wide()),
            }
        }
        _ => Err(not_a_number(word, names)),
    }
}

/// Reads the bytes of a hex literal; an odd digit is padded on the left.
pub(crate) fn bytes(word: &str) -> Result<Vec<u8>, Problem> {
    let digits = hex_digits(word).filter(|d| !d.is_empty());
    let Some(digits) = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit())) else {
        return Err(Problem::with_help(
            format!("`{word}` is not a hex literal"),
            "bytes are written as `x` and hex digits, like `x474554`",
        ));
    };
    if digits.len().div_ceil(2) > MAX_BYTES {
        return Err(Problem::with_help(
            format!("this hex literal has {} bytes", digits.len().div_ceil(2)),
            format!("at most {MAX_BYTES} bytes can be given"),
        ));
    }
    let mut nibbles = digits
        .bytes()
        .map(|b| (b as char).to_digit(16).unwrap_or(0) as u8);
    let mut out = Vec::with_capacity(digits.len().div_ceil(2));
    if digits.len() % 2 == 1 {
        out.extend(nibbles.next());
    }
    while let (Some(high), Some(low)) = (nibbles.next(), nibbles.next()) {
        out.push(high << 4 | low);
    }
    Ok(out)
}

/// Whether the word is written as hex.
pub(crate) fn is_hex(word: &str) -> bool {
    hex_digits(word).is_some()
}

fn not_a_number(word: &str, names: Names) -> Problem {
    let help = if let Some((low, high)) = word.split_once(':')
        && [low, high]
            .iter()
            .all(|end| end.bytes().all(|b| b.is_ascii_digit()))
        && !(low.is_empty() && high.is_empty())
    {
        match (low, high) {
            ("", high) => format!("a range is written `0-{high}`"),
            (low, "") => format!("a test from a value on is written `>= {low}`"),
            _ => format!("a range is written `{low}-{high}`"),
        }
    } else if word.contains('.') || word.contains(':') {
        "this field takes a number, not an address".to_owned()
    } else if word.contains('/') {
        "only addresses take a prefix length".to_owned()
    } else if let Some(near) = nearest(word, names.iter().map(|n| n.0)) {
        format!("did you mean `{near}`?")
    } else if names.is_empty() {
        "numbers are decimal, or hex behind `x`: `80`, `x50`".to_owned()
    } else {
        format!("a number, or a name like {}", examples(names).join(", "))
    };
    let what = match names {
        [] => "is not a number",
        _ => "is neither a number nor a known name",
    };
    Problem::with_help(format!("`{word}` {what}"), help)
}

/// First and last address of a prefix or of an address.
fn block(word: &str, domain: Domain) -> Result<(u128, u128), Problem> {
    let prefix: Prefix = word.parse().map_err(|invalid: Invalid| {
        // The last label of a name is letters.
        let is_name = word.contains('.') && word.ends_with(|c: char| c.is_ascii_alphabetic());
        let (address, len) = word.split_once('/').unwrap_or((word, ""));
        let help = match mask_length(len) {
            _ if is_name => Some("names of hosts are not looked up".to_owned()),
            Some(length) => Some(format!("write `{address}/{length}`")),
            None => Some(
                "a field of addresses takes one, a prefix, a range `first-last`, or a set in braces"
                    .to_owned(),
            ),
        };
        Problem {
            message: invalid.to_string(),
            help,
        }
    })?;
    let prefix = of_family(word, prefix, domain)?;
    Ok((prefix.first, prefix.last()))
}

/// The prefix, if it is of the family that the field takes.
fn of_family(word: &str, prefix: Prefix, domain: Domain) -> Result<Prefix, Problem> {
    let (is_ip6, kind, other) = match domain {
        Domain::Addr4 => (false, "IPv4", "`ip6-...` fields take IPv6 addresses"),
        _ => (true, "IPv6", "`ip-...` fields take IPv4 addresses"),
    };
    match prefix.is_ip6 == is_ip6 {
        true => Ok(prefix),
        false => Err(Problem::with_help(
            format!("`{word}` is not an {kind} address"),
            format!("expected {} ({other})", domain.expected()),
        )),
    }
}

fn prefix(word: &str, address: &str, len: &str, domain: Domain) -> Result<Interval, Problem> {
    if matches!(domain, Domain::Number(..) | Domain::Clock(_)) {
        return Err(not_a_number(word, &[]));
    }
    if matches!(domain, Domain::Addr4 | Domain::Addr6) && !is_hex(address) {
        let (lo, hi) = block(word, domain)?;
        return Ok(Interval {
            lo,
            hi,
            form: Form::Prefix,
        });
    }
    let value = single(address, domain)?;
    let bits = u32::from(domain.bits());
    let length = match len.parse::<u32>() {
        Ok(n) if n <= bits && len.bytes().all(|b| b.is_ascii_digit()) => n,
        _ => {
            return Err(Problem::with_help(
                format!("`/{len}` is not a prefix length"),
                match mask_length(len) {
                    Some(length) => format!("write `{address}/{length}`"),
                    None => format!("it is a number from 0 to {bits}"),
                },
            ));
        }
    };
    let host = if length == bits {
        0
    } else {
        domain.max() >> length
    };
    let lo = value & !host;
    if value != lo {
        return Err(Problem::new(format!(
            "invalid prefix `{word}`: host bits are set"
        )));
    }
    Ok(Interval {
        lo,
        hi: lo | host,
        form: Form::Prefix,
    })
}

/// The length of a netmask like `255.255.0.0`.
fn mask_length(mask: &str) -> Option<u32> {
    let bits = u32::from(mask.parse::<Ipv4Addr>().ok()?);
    (bits.leading_ones() + bits.trailing_zeros() == 32).then(|| bits.leading_ones())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number("80", 16, &[]).ok(), Some(80));
        assert_eq!(number("x50", 16, &[]).ok(), Some(80));
        assert_eq!(number("0x0050", 16, &[]).ok(), Some(80));
        assert_eq!(number("x00", 16, &[]).ok(), Some(0));
        assert!(number("65536", 16, &[]).is_err());
        assert!(number("x", 16, &[]).is_err());
        assert!(number("8o", 16, &[]).is_err());
        assert!(number(&"9".repeat(80), 16, &[]).is_err());
    }

    #[test]
    fn byte_strings_have_a_greatest_length() {
        let word = |bytes: usize| format!("x{}", "4a".repeat(bytes));
        assert_eq!(bytes(&word(MAX_BYTES)).ok(), Some(vec![0x4a; MAX_BYTES]));
        assert!(bytes(&word(MAX_BYTES + 1)).is_err());
    }

    #[test]
    fn prefixes() {
        let p = |w, d| interval(w, d).map(|i| (i.lo, i.hi, i.form)).ok();
        assert_eq!(
            p("10.0.0.0/8", Domain::Addr4),
            Some((0x0a000000, 0x0affffff, Form::Prefix))
        );
        assert_eq!(
            p("x0a000000/8", Domain::Addr4),
            Some((0x0a000000, 0x0affffff, Form::Prefix))
        );
        assert_eq!(p("10.0.0.1/8", Domain::Addr4), None);
        assert_eq!(p("x0a000001/8", Domain::Addr4), None);
        assert_eq!(
            p("10.0.0.1/32", Domain::Addr4),
            Some((0x0a000001, 0x0a000001, Form::Prefix))
        );
        assert_eq!(
            p("0.0.0.0/0", Domain::Addr4),
            Some((0, 0xffff_ffff, Form::Prefix))
        );
        assert_eq!(p("::/0", Domain::Addr6), Some((0, u128::MAX, Form::Prefix)));
        assert_eq!(p("::1/128", Domain::Addr6), Some((1, 1, Form::Prefix)));
        assert_eq!(p("10.0.0.0/33", Domain::Addr4), None);
    }

    #[test]
    fn literals() {
        assert_eq!(bytes("x123").ok(), Some(vec![1, 0x23]));
        assert!(bytes(&format!("x{}", "00".repeat(65))).is_err());
    }
}
