//! Bytes of contents: text with hexadecimal parts between bars, and escapes.

use super::phrase::Phrase;
use super::problem::{Kind, Parsed};
use super::text::Text;

/// The longest content, bytes.
const LONGEST: usize = 8192;

/// Whether it is negated, and its bytes: `"..."` or `!"..."`.
pub(super) fn content(text: Text<'_>) -> Parsed<(bool, Vec<u8>)> {
    let (text, negated) = text.negation();
    let bytes = pattern(text.unquoted()?)?;
    if bytes.is_empty() {
        return Err(text.fail(Kind::Value, "an empty content"));
    }
    if bytes.len() > LONGEST {
        let reason = format!("a content of more than {LONGEST} bytes");
        return Err(text.fail(Kind::Value, reason));
    }
    Ok((negated, bytes))
}

/// The bytes of a pattern without its quotation marks.
pub(super) fn pattern(text: Text<'_>) -> Parsed<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes.iter().enumerate();
    while let Some((i, b)) = bytes.next() {
        match b {
            b'|' => {
                let mut high = None;
                let mut closed = false;
                for (j, h) in bytes.by_ref() {
                    match (h, (*h as char).to_digit(16)) {
                        (b'|', _) => {
                            closed = true;
                            break;
                        }
                        (h, _) if h.is_ascii_whitespace() => {}
                        (_, Some(digit)) => match high.take() {
                            None => high = Some(digit),
                            Some(first) => out.push((first * 16 + digit) as u8),
                        },
                        _ => {
                            let at = text.part(j..j + 1);
                            let reason = "neither a hexadecimal digit nor the closing `|`";
                            let phrase = Phrase::HexCode(text.lossy(), char::from(*h));
                            return Err(at.fail(Kind::Value, reason).called(phrase));
                        }
                    }
                }
                if !closed {
                    let reason = "the hexadecimal part is not closed with `|`";
                    let problem = text.from(i).fail(Kind::Value, reason);
                    return Err(problem.called(Phrase::HexOpen(text.lossy())));
                }
                if high.is_some() {
                    let reason = "an odd number of hexadecimal digits";
                    let problem = text.from(i).fail(Kind::Value, reason);
                    return Err(problem.called(Phrase::HexHalf(text.lossy())));
                }
            }
            b'\\' => match bytes.next() {
                Some((_, c @ (b'\\' | b'"' | b';' | b':' | b'|'))) => out.push(*c),
                _ => {
                    let at = text.part(i..(i + 2).min(text.len()));
                    let reason = "after a backslash only `\\ \" ; : |` are possible";
                    return Err(at.fail(Kind::Value, reason));
                }
            },
            b'"' => {
                let at = text.part(i..i + 1);
                let reason = "a quotation mark in a content must be written `\\\"` or `|22|`";
                return Err(at.fail(Kind::Value, reason));
            }
            b => out.push(*b),
        }
    }
    Ok(out)
}
