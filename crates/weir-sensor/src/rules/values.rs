//! Small values of options: ranges of numbers, bits, quoted texts.

use super::load::Dialect;
use super::model::{BitsMode, Number, Range};
use super::problem::{Kind, Parsed};
use super::text::Text;

/// `n`, `!n`, `<n`, `>n`, `<=n`, `>=n`, `a<>b` (both ends left out), `!a<>b`; `a-b` as `a<>b` in Suricata's dialect, `a<=>b` (ends included) in Snort's. In Suricata's also bits, `&mask=n` and
/// `&mask!=n`, and numbers with a unit, as `1KiB`.
pub(super) fn range(text: Text<'_>, top: u64, dialect: Dialect) -> Parsed<Range> {
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
        return Ok(Range {
            mask,
            ..Range::new(n, n, negated)
        });
    }
    let (text, negated) = text.negation();
    let text = match text.strip("=") {
        Some(rest) => rest.trim(),
        None => text,
    };
    let done = |low, high| Range::new(low, high, negated);
    let nothing = || text.fail(Kind::Value, "no number is in this range");
    if let Some(rest) = text.strip("<=") {
        return Ok(done(0, number(rest.trim())?));
    }
    if let Some(rest) = text.strip(">=") {
        return Ok(done(number(rest.trim())?, top));
    }
    if let Some(rest) = text.strip("<") {
        let below = number(rest.trim())?;
        return Ok(done(0, below.checked_sub(1).ok_or_else(nothing)?));
    }
    if let Some(rest) = text.strip(">") {
        let above = number(rest.trim())?;
        if above >= top {
            return Err(nothing());
        }
        return Ok(done(above + 1, top));
    }
    let between: &[(&str, bool)] = match dialect {
        Dialect::Suricata => &[("<>", false), ("-", false)],
        Dialect::Snort => &[("<=>", true), ("<>", false)],
    };
    for (sign, ends) in between {
        let found = text
            .bytes
            .windows(sign.len())
            .position(|w| w == sign.as_bytes());
        let Some(at) = found else { continue };
        let low = number(text.part(0..at).trim())?;
        let high = number(text.from(at + sign.len()).trim())?;
        let (low, high) = match ends {
            true => (low, high),
            false => (low + 1, high.checked_sub(1).ok_or_else(nothing)?),
        };
        if low > high {
            return Err(nothing());
        }
        return Ok(done(low, high));
    }
    let exactly = number(text)?;
    Ok(done(exactly, exactly))
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
