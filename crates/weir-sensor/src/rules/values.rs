//! Small values of options: ranges of numbers, bits, quoted texts.

use super::load::Dialect;
use super::model::{BitsMode, Number, Range};
use super::problem::{Kind, Parsed};
use super::text::Text;

/// `n`, `!n`, `<n`, `>n`, `<=n`, `>=n`, `a<>b` (both ends left out), `!a<>b`; `a-b` as `a<>b` in Suricata's dialect, `a<=>b` (ends included) in Snort's.
pub(super) fn range(text: Text<'_>, top: u64, dialect: Dialect) -> Parsed<Range> {
    let (text, negated) = text.negation();
    let text = match text.strip("=") {
        Some(rest) => rest.trim(),
        None => text,
    };
    let high = i64::try_from(top).unwrap_or(i64::MAX);
    let number = |t: Text<'_>| t.number(0, high).map(|n| n as u64);
    let done = |low, high| Range { low, high, negated };
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
            // A backslash before anything else stands for itself.
            b if escaped && !matches!(b, b'\\' | b'"' | b';' | b':') => {
                out.extend([b'\\', *b]);
                escaped = false;
            }
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
