//! Conditions that read bytes, the names they extract, and those about a buffer as a whole.

use crate::buffer::Buffer;
use crate::rules::load::Dialect;
use crate::rules::model::{Asn1, Condition, Entropy, Number, Range, Transform};
use crate::rules::parse::{Draft, unknown_name};
use crate::rules::phrase::Phrase;
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::{Opt, commas};
use crate::rules::text::Text;
use crate::rules::values::range;

use super::in_buffer;

/// Names that a condition uses, which must be extracted before it.
fn names_used(condition: &Condition) -> Vec<&Number> {
    match condition {
        Condition::IsDataAt { offset, .. } => vec![offset],
        Condition::ByteTest(t) => vec![&t.read.bytes, &t.read.offset, &t.value],
        Condition::ByteJump(j) => vec![&j.read.bytes, &j.read.offset, &j.post_offset],
        Condition::ByteExtract(e) => vec![&e.read.bytes, &e.read.offset],
        Condition::ByteMath(m) => vec![&m.read.bytes, &m.read.offset, &m.value],
        _ => Vec::new(),
    }
}

/// `isdataat:!1,relative` after a content is another way to write `endswith`, also if the content is negated: it is not at the end then, rather than nowhere while the match before is.
fn ends_content(draft: &mut Draft<'_>, condition: &Condition) -> bool {
    let end = Condition::IsDataAt {
        offset: Number::Is(1),
        relative: true,
        negated: true,
    };
    if draft.dialect != Dialect::Suricata || *condition != end {
        return false;
    }
    let Some((part, item)) = draft.last else {
        return false;
    };
    let Some(items) = draft.parts.get_mut(part).map(|p| &mut p.items) else {
        return false;
    };
    if item + 1 != items.len() {
        return false;
    }
    match items.last_mut().map(|i| &mut i.condition) {
        Some(Condition::Content(content)) if content.negated => {
            content.ends = true;
            true
        }
        _ => false,
    }
}

/// Adds a condition that reads bytes.
pub(super) fn reading<'a>(draft: &mut Draft<'a>, condition: Condition, opt: Opt<'a>) -> Parsed<()> {
    for number in names_used(&condition) {
        if let Number::Variable(name) = number
            && !draft.names.contains(name)
        {
            let phrase = Phrase::UnknownVariable(opt.name.lossy(), name.clone());
            return Err(unknown_name(opt.whole, name).called(phrase));
        }
    }
    if ends_content(draft, &condition) {
        return Ok(());
    }
    let relative = match &condition {
        Condition::IsDataAt { relative, .. } => *relative,
        Condition::ByteTest(t) => t.read.relative,
        Condition::ByteJump(j) => j.read.relative,
        Condition::ByteExtract(e) => e.read.relative,
        Condition::ByteMath(m) => m.read.relative,
        Condition::Asn1(a) => a.relative,
        _ => false,
    };
    if let Condition::ByteMath(_) = &condition
        && relative
        && draft.dialect == Dialect::Suricata
        && !draft.has_place()
    {
        let reason = "`relative` without a condition before it that has a place";
        let problem = opt.whole.fail(Kind::Conflict, reason);
        return Err(problem.called(Phrase::NothingBefore));
    }
    let new = match &condition {
        Condition::ByteExtract(e) => Some(e.name.clone()),
        Condition::ByteMath(m) => Some(m.name.clone()),
        _ => None,
    };
    if let Some(name) = new {
        draft.names.push(name);
    }
    let part = draft.place(relative);
    draft.add(part, condition, opt.whole)?;
    draft.mover = Some(part);
    Ok(())
}

/// What follows is about the decoded bytes.
pub(super) fn base64_data<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    opt.bare()?;
    let decodes = |c: &Condition| matches!(c, Condition::Base64Decode(_));
    let found = draft
        .parts
        .iter()
        .rposition(|p| p.items.iter().any(|i| decodes(&i.condition)));
    let Some(part) = found else {
        let reason = "there is no base64_decode before this";
        return Err(opt.whole.fail(Kind::Syntax, reason));
    };
    draft.leave()?;
    draft.add(part, Condition::Base64Data, opt.whole)?;
    draft.parts[part].decoded = true;
    draft.current = Some(part);
    draft.last = None;
    Ok(())
}

/// The length of the buffer in force.
pub(super) fn buffer_length<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let dialect = draft.dialect;
    let parts = commas(opt.need()?);
    if let Some(extra) = parts.get(1) {
        let reason = "a length relative to the place of matching is not supported";
        return Err(extra.fail(Kind::Unsupported, reason));
    }
    let size = range(parts[0], u64::from(u16::MAX), dialect)?;
    let part = draft.place(false);
    draft.add(part, Condition::Size(size), opt.whole)?;
    Ok(())
}

/// The length of the URI, normalized or raw.
pub(super) fn uri_length<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let dialect = draft.dialect;
    let parts = commas(opt.need()?);
    let raw = match parts.get(1).map(|p| p.bytes) {
        None | Some(b"norm") => false,
        Some(b"raw") => true,
        Some(_) => {
            return Err(parts[1].fail(Kind::Value, "only `norm` and `raw` are possible"));
        }
    };
    let size = range(parts[0], u64::from(u16::MAX), dialect)?;
    let buffer = if raw {
        Buffer::HttpUriRaw
    } else {
        Buffer::HttpUri
    };
    let part = draft.part_of(buffer);
    draft.add(part, Condition::Size(size), opt.whole)?;
    Ok(())
}

/// The buffer is not there.
pub(super) fn absent<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let or_else = match opt.value {
        None => false,
        Some(value) if value.is("or_else") => true,
        Some(value) => return Err(value.fail(Kind::Value, "only `or_else` is possible")),
    };
    let part = in_buffer(draft, opt)?;
    if !draft.parts[part].items.is_empty() {
        let reason = "absent comes first behind its buffer";
        return Err(opt.whole.fail(Kind::Conflict, reason));
    }
    draft.add(part, Condition::Absent(or_else), opt.whole)?;
    Ok(())
}

/// A transform that decompresses.
pub(super) fn inflate(opt: Opt<'_>, gzip: bool) -> Parsed<Transform> {
    let mut most = 1024;
    if let Some(text) = opt.value {
        match text.words()[..] {
            [key, value] if key.is("max-size") => {
                most = value.number(1, i64::from(MOST_INFLATED))? as u32;
            }
            _ => return Err(text.fail(Kind::Syntax, "`max-size N` is possible")),
        }
    }
    Ok(Transform::Inflate { gzip, most })
}

/// `asn1`: words with commas or blanks between them.
pub(super) fn asn1(opt: Opt<'_>) -> Parsed<Condition> {
    let value = opt.need()?;
    let mut asked = Asn1 {
        bitstring: false,
        double: false,
        oversize: None,
        offset: 0,
        relative: false,
    };
    let mut placed = false;
    let words = value.split(b',').into_iter().flat_map(|part| part.words());
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let mut number = |low: i64, high: i64| match words.next() {
            Some(n) => n.number(low, high),
            None => Err(word.fail(Kind::Syntax, "a number is missing behind this")),
        };
        match word.bytes {
            b"bitstring_overflow" => asked.bitstring = true,
            b"double_overflow" => asked.double = true,
            b"oversize_length" => asked.oversize = Some(number(1, u32::MAX.into())? as u32),
            b"absolute_offset" | b"relative_offset" => {
                if std::mem::replace(&mut placed, true) {
                    return Err(word.fail(Kind::Conflict, "there is one offset"));
                }
                asked.relative = word.is("relative_offset");
                let low = if asked.relative { -65535 } else { 0 };
                asked.offset = number(low, 65535)? as i32;
            }
            _ => {
                let reason = "bitstring_overflow, double_overflow, oversize_length, absolute_offset and relative_offset are possible";
                return Err(word.fail(Kind::Value, reason));
            }
        }
    }
    if !asked.bitstring && !asked.double && asked.oversize.is_none() {
        let reason = "`asn1` asks for bitstring_overflow, double_overflow or oversize_length";
        return Err(value.fail(Kind::Syntax, reason));
    }
    Ok(Condition::Asn1(asked))
}

/// A part of the buffer.
pub(super) fn subslice(opt: Opt<'_>) -> Parsed<Transform> {
    let value = opt.need()?;
    let parts = commas(value);
    let number = |text: Text<'_>| text.number(i32::MIN.into(), i32::MAX.into());
    let (count, truncate) = match parts[1..] {
        [] => (None, false),
        [word] if word.is("truncate") => (None, true),
        [count] => (Some(count), false),
        [count, word] if word.is("truncate") => (Some(count), true),
        [_, word] => return Err(word.fail(Kind::Value, "only `truncate` is possible here")),
        [_, _, more, ..] => {
            let reason = "the form is `subslice:OFFSET[, NBYTES][, truncate]`";
            return Err(more.fail(Kind::Syntax, reason));
        }
    };
    let bytes = match count {
        None => None,
        Some(text) => match number(text)? as i32 {
            0 => return Err(text.fail(Kind::Value, "0 bytes are nothing to inspect")),
            n => Some(n),
        },
    };
    Ok(Transform::Subslice {
        offset: number(parts[0])? as i32,
        bytes,
        truncate,
    })
}

/// More is not decompressed for one rule.
const MOST_INFLATED: u32 = 1 << 20;

/// The entropy of the buffer in force.
pub(super) fn entropy<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let (mut bytes, mut offset, mut value) = (None, 0, None);
    for part in commas(opt.need()?) {
        let text = part.lossy();
        let (key, rest) = text.split_at(
            text.find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(text.len()),
        );
        let rest = rest.trim();
        let wrong = || {
            part.fail(
                Kind::Syntax,
                "`value OPERATOR NUMBER`, `bytes N` and `offset N` are possible",
            )
        };
        match key {
            "bytes" => bytes = Some(rest.parse().map_err(|_| wrong())?),
            "offset" => offset = rest.parse().map_err(|_| wrong())?,
            "value" => {
                let (operator, number) = rest.split_at(
                    rest.find(|c: char| !"<>=!".contains(c))
                        .unwrap_or(rest.len()),
                );
                let number: f64 = number.trim().parse().map_err(|_| wrong())?;
                if !(0.0..=8.0).contains(&number) {
                    return Err(part.fail(Kind::Value, "a byte tells 0 to 8 bits"));
                }
                let n = (number * 1e6).round() as u64;
                let (low, high, negated) = match operator {
                    "" | "=" | "==" => (n, n, false),
                    "!=" => (n, n, true),
                    "<" if n == 0 => return Err(part.fail(Kind::Value, "nothing is below 0")),
                    "<" => (0, n - 1, false),
                    "<=" => (0, n, false),
                    ">" => (n + 1, u64::MAX, false),
                    ">=" => (n, u64::MAX, false),
                    _ => return Err(wrong()),
                };
                value = Some(Range::new(low, high, negated));
            }
            _ => return Err(wrong()),
        }
    }
    let Some(value) = value else {
        return Err(opt.whole.fail(Kind::Value, "a `value` is missing"));
    };
    let entropy = Entropy {
        bytes,
        offset,
        value,
    };
    let part = draft.place(false);
    draft.add(part, Condition::Entropy(entropy), opt.whole)?;
    Ok(())
}
