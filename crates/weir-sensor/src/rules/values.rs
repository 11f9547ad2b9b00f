//! Small values of options: ranges of numbers, bits, quoted texts.

use super::load::Dialect;
use super::model::{BitsMode, Number, Range};
use super::problem::{Kind, Parsed};
use super::text::Text;

/// What a number is compared with, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `n`, `=n`.
    Equal(u64),
    /// `<n`.
    Below(u64),
    /// `<=n`.
    AtMost(u64),
    /// `>n`.
    Above(u64),
    /// `>=n`.
    AtLeast(u64),
    /// `a<>b`, `a-b`: without both ends.
    Between(u64, u64),
    /// `a<=>b` of Snort 3: with both ends.
    Within(u64, u64),
    /// `&mask=n`.
    Bits(u64, u64),
}

impl Comparison {
    /// The numbers up to `top` that it holds for; `None`: there is none.
    fn range(self, negated: bool, top: u64) -> Option<Range> {
        let (low, high) = match self {
            Comparison::Equal(n) => (n, n),
            Comparison::Below(n) => (0, n.checked_sub(1)?),
            Comparison::AtMost(n) => (0, n),
            Comparison::Above(n) if n >= top => return None,
            Comparison::Above(n) => (n + 1, top),
            Comparison::AtLeast(n) => (n, top),
            Comparison::Between(a, b) => (a.checked_add(1)?, b.checked_sub(1)?),
            Comparison::Within(a, b) => (a, b),
            Comparison::Bits(mask, n) => {
                return Some(Range {
                    mask,
                    ..Range::new(n, n, negated)
                });
            }
        };
        (low <= high).then(|| Range::new(low, high, negated))
    }
}

/// `n`, `!n`, `<n`, `>n`, `<=n`, `>=n`, `a<>b` (both ends left out), `!a<>b`; `a-b` as `a<>b` in Suricata's dialect, `a<=>b` (ends included) in Snort's. In Suricata's also bits, `&mask=n` and
/// `&mask!=n`, and numbers with a unit, as `1KiB`.
pub(super) fn range(text: Text<'_>, top: u64, dialect: Dialect) -> Parsed<Range> {
    let (comparison, negated) = read(text, top, dialect)?;
    let nothing = || {
        text.negation()
            .0
            .fail(Kind::Value, "no number is in this range")
    };
    comparison.range(negated, top).ok_or_else(nothing)
}

/// What the value of an option of Suricata's dialect compares a number with, and whether that is negated: its first part between commas that is a comparison.
pub fn compared(value: &str) -> Option<(Comparison, bool)> {
    let value = Text::new(value.as_bytes());
    let parts = value.split(b',').into_iter();
    let read = |part: Text<'_>| read(part.unquoted().ok()?, u64::MAX, Dialect::Suricata).ok();
    parts.filter_map(read).next()
}

/// Makes a comparison of one number.
type OfOne = fn(u64) -> Comparison;
/// Makes one of two.
type OfTwo = fn(u64, u64) -> Comparison;

fn read(text: Text<'_>, top: u64, dialect: Dialect) -> Parsed<(Comparison, bool)> {
    let high = i64::try_from(top).unwrap_or(i64::MAX);
    let number = |t: Text<'_>| match dialect {
        Dialect::Suricata => united(t, high),
        Dialect::Snort => t.number(0, high).map(|n| n as u64),
    };
    if let Some(rest) = text.strip("&").filter(|_| dialect == Dialect::Suricata) {
        let Some((mask, wanted)) = rest.cut(b'=') else {
            let reason = "bits are asked for as `&mask=number` or `&mask!=number`";
            return Err(text.fail(Kind::Syntax, reason));
        };
        let mask = mask.trim();
        let (mask, negated) = match mask.bytes.strip_suffix(b"!") {
            Some(before) => (mask.part(0..before.len()), true),
            None => (mask, false),
        };
        let (mask, n) = (number(mask.trim())?, number(wanted.trim())?);
        if n & !mask != 0 {
            let reason = "the number has bits that the mask takes out: it is never there";
            return Err(wanted.trim().fail(Kind::Value, reason));
        }
        return Ok((Comparison::Bits(mask, n), negated));
    }
    let (text, negated) = text.negation();
    let text = match text.strip("=") {
        Some(rest) => rest.trim(),
        None => text,
    };
    let signs: [(&str, OfOne); 4] = [
        ("<=", Comparison::AtMost),
        (">=", Comparison::AtLeast),
        ("<", Comparison::Below),
        (">", Comparison::Above),
    ];
    for (sign, comparison) in signs {
        if let Some(rest) = text.strip(sign) {
            return Ok((comparison(number(rest.trim())?), negated));
        }
    }
    let between: &[(&str, OfTwo)] = match dialect {
        Dialect::Suricata => &[("<>", Comparison::Between), ("-", Comparison::Between)],
        Dialect::Snort => &[("<=>", Comparison::Within), ("<>", Comparison::Between)],
    };
    for (sign, comparison) in between {
        let found = text
            .bytes
            .windows(sign.len())
            .position(|w| w == sign.as_bytes());
        let Some(at) = found else { continue };
        let low = number(text.part(0..at).trim())?;
        let high = number(text.from(at + sign.len()).trim())?;
        return Ok((comparison(low, high), negated));
    }
    Ok((Comparison::Equal(number(text)?), negated))
}

/// A number up to `top` with or without a unit, in either case: 1024, its square or its cube.
fn united(text: Text<'_>, top: i64) -> Parsed<u64> {
    const UNITS: [(&str, u32); 6] = [
        ("kib", 10),
        ("mib", 20),
        ("gib", 30),
        ("kb", 10),
        ("mb", 20),
        ("gb", 30),
    ];
    // Digits of hexadecimal numbers look like the end of a unit.
    let hexadecimal = text.strip("0x").is_some() || text.strip("0X").is_some();
    let lower = text.bytes.to_ascii_lowercase();
    let unit = UNITS.iter().find(|(u, _)| lower.ends_with(u.as_bytes()));
    let Some((unit, shift)) = unit.filter(|_| !hexadecimal) else {
        return text.number(0, top).map(|n| n as u64);
    };
    let number = text.part(0..text.len() - unit.len()).trim();
    Ok((number.number(0, top >> shift)? as u64) << shift)
}

/// A number, or the name of a variable.
pub(super) fn number(text: Text<'_>, low: i64, high: i64) -> Parsed<Number> {
    match text.bytes.first() {
        Some(b) if b.is_ascii_alphabetic() || *b == b'_' => {
            Ok(Number::Variable(name(text)?.to_owned()))
        }
        _ => text.number(low, high).map(Number::Is),
    }
}

/// A name of a variable or of a bit: anything printable without spaces.
pub(super) fn name(text: Text<'_>) -> Parsed<&str> {
    let word = text.str()?;
    let good = |c: char| !c.is_whitespace() && !c.is_control();
    match !word.is_empty() && word.chars().all(good) {
        true => Ok(word),
        false => Err(text.fail(Kind::Value, "a name without spaces is expected")),
    }
}

/// A quoted text (quotation marks may be missing), with backslashes undone.
pub(super) fn quoted(text: Text<'_>) -> Parsed<String> {
    let inner = text.unquoted()?;
    let mut out = Vec::with_capacity(inner.len());
    let mut escaped = false;
    for b in inner.bytes {
        match b {
            b'\\' if !escaped => escaped = true,
            // Whatever it stands before: messages are known without it.
            b => {
                out.push(*b);
                escaped = false;
            }
        }
    }
    if escaped {
        out.push(b'\\');
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Letters with a mode before or behind them: bits of the letters, and the mode.
pub(super) fn bits(text: Text<'_>, letters: &[(u8, u8)]) -> Parsed<(u8, BitsMode)> {
    let mut bits = 0;
    let mut mode = None;
    for (i, b) in text.bytes.iter().enumerate() {
        let at = text.part(i..i + 1);
        let found = match b {
            b'+' => BitsMode::All,
            b'*' => BitsMode::Any,
            b'!' => BitsMode::None,
            b' ' => continue,
            b => {
                let upper = b.to_ascii_uppercase();
                let Some((_, bit)) = letters.iter().find(|(l, _)| *l == upper) else {
                    let known: String = letters.iter().map(|(l, _)| *l as char).collect();
                    let reason = format!("`{}` is none of {known}, nor `+ * !`", at.lossy());
                    return Err(at.fail(Kind::Value, reason));
                };
                bits |= bit;
                continue;
            }
        };
        if mode.replace(found).is_some() {
            return Err(at.fail(Kind::Value, "only one of `+`, `*`, `!` is possible"));
        }
    }
    Ok((bits, mode.unwrap_or(BitsMode::Exact)))
}
