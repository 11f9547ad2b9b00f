//! Options that read numbers out of bytes: `byte_test`, `byte_jump`, `byte_extract`, `byte_math`, `isdataat`, base64. Both dialects write them alike.

use super::load::Dialect;
use super::model::{
    Base64, ByteExtract, ByteJump, ByteMath, ByteTest, Condition, MathOperator, Number, Read,
    TestOperator,
};
use super::problem::{Kind, Parsed};
use super::scan::commas;
use super::text::Text;
use super::values::{name, number};

/// The farthest place that an option may name.
const FAR: i64 = i32::MAX as i64;

/// Modifiers that all of them share, and what each of them has of its own.
struct Modifiers {
    read: Read,
    multiplier: u32,
    align: Option<u8>,
    from_beginning: bool,
    from_end: bool,
    post_offset: Number,
}

/// Which modifiers beside `relative`, `string`, `big` and `little` are possible.
#[derive(Clone, Copy)]
struct Allowed {
    multiplier: bool,
    /// `align` (without a number) or `align N`.
    align: bool,
    align_number: bool,
    jump: bool,
}

fn modifiers(parts: &[Text<'_>], whole: Text<'_>, allowed: Allowed) -> Parsed<Modifiers> {
    let mut out = Modifiers {
        read: Read {
            bytes: Number::Is(1),
            offset: Number::Is(0),
            relative: false,
            little: false,
            string: None,
            dce: false,
            bitmask: None,
        },
        multiplier: 1,
        align: None,
        from_beginning: false,
        from_end: false,
        post_offset: Number::Is(0),
    };
    let mut base = None;
    let mut text = false;
    let mut endian = None;
    for part in parts {
        // `string, hex` and `string hex` are both written.
        let words = part.words();
        let (Some(word), value) = (words.first(), words.get(1).copied()) else {
            return Err(whole.fail(Kind::Syntax, "something is missing between commas"));
        };
        let need = || value.ok_or_else(|| part.fail(Kind::Syntax, "a value is missing"));
        let radix = |t: Text<'_>| match t.bytes {
            b"hex" => Some(16),
            b"dec" => Some(10),
            b"oct" => Some(8),
            _ => None,
        };
        match word.bytes {
            b"relative" => out.read.relative = true,
            b"big" | b"little" => {
                if endian.replace(word.is("little")).is_some() {
                    return Err(word.fail(Kind::Conflict, "the order of bytes is given twice"));
                }
            }
            b"endian" => match need()?.bytes {
                b"big" => endian = Some(false),
                b"little" => endian = Some(true),
                _ => return Err(part.fail(Kind::Value, "the order is `big` or `little`")),
            },
            b"string" => {
                text = true;
                if let Some(value) = value {
                    let found = radix(value);
                    let bad = || value.fail(Kind::Value, "a base is hex, dec or oct");
                    base = Some(found.ok_or_else(bad)?);
                }
            }
            b"hex" | b"dec" | b"oct" => {
                if base.is_some() {
                    return Err(word.fail(Kind::Conflict, "the base is given twice"));
                }
                base = radix(*word);
            }
            b"dce" => out.read.dce = true,
            b"bitmask" => {
                let value = need()?;
                // Without `0x` it is hexadecimal all the same.
                let digits = value.strip("0x").or(value.strip("0X")).unwrap_or(value);
                let mask = u32::from_str_radix(digits.str()?, 16);
                let bad = |_| value.fail(Kind::Value, "a mask is 1 to 4 bytes in hexadecimal");
                let mask = mask.map_err(bad)?;
                if mask == 0 {
                    return Err(value.fail(Kind::Value, "a mask of 0 leaves nothing"));
                }
                out.read.bitmask = Some(mask);
            }
            b"multiplier" if allowed.multiplier => {
                out.multiplier = need()?.number(1, 65535)? as u32;
            }
            b"align" if allowed.align_number || allowed.align => {
                let aligned = match (value, allowed.align_number) {
                    (Some(value), _) => value.number(2, 4)?,
                    (None, false) => 4,
                    (None, true) => need()?.number(2, 4)?,
                };
                if aligned == 3 || (allowed.align && aligned != 4) {
                    return Err(part.fail(Kind::Value, "alignment is to 4, or 2 where allowed"));
                }
                out.align = Some(aligned as u8);
            }
            b"from_beginning" if allowed.jump => out.from_beginning = true,
            b"from_end" if allowed.jump => out.from_end = true,
            b"post_offset" if allowed.jump => out.post_offset = number(need()?, -FAR, FAR)?,
            _ => {
                let reason = format!("`{}` is not known here", part.lossy());
                return Err(part.fail(Kind::Syntax, reason));
            }
        }
    }
    out.read.little = endian.unwrap_or(false);
    match (text, base) {
        (true, base) => out.read.string = Some(base.unwrap_or(10)),
        (false, Some(_)) => {
            let reason = "a base needs `string` before it";
            return Err(whole.fail(Kind::Syntax, reason));
        }
        (false, None) => {}
    }
    if text && endian.is_some() && out.read.little {
        let reason = "the order of bytes means nothing in a string";
        return Err(whole.fail(Kind::Conflict, reason));
    }
    if out.read.dce && (text || endian.is_some()) {
        let reason = "`dce` says the order of bytes, and excludes another and `string`";
        return Err(whole.fail(Kind::Conflict, reason));
    }
    if out.from_beginning && out.from_end {
        let reason = "from_beginning and from_end exclude each other";
        return Err(whole.fail(Kind::Conflict, reason));
    }
    Ok(out)
}

/// How many bytes a number may have: 8 in binary, 23 digits as text; 0 as text: as many digits as there are.
fn size(at: Text<'_>, bytes: Number, string: Option<u32>) -> Parsed<Number> {
    let (least, top) = if string.is_some() { (0, 23) } else { (1, 8) };
    match bytes {
        Number::Is(n) if !(least..=top).contains(&n) => {
            let reason = format!("{n} bytes cannot be read as a number: {least} to {top} can");
            Err(at.fail(Kind::Value, reason))
        }
        bytes => Ok(bytes),
    }
}

fn few<'a>(parts: &[Text<'a>], whole: Text<'a>, least: usize, form: &str) -> Parsed<()> {
    match parts.len() >= least {
        true => Ok(()),
        false => Err(whole.fail(Kind::Syntax, format!("the form is `{form}`"))),
    }
}

pub(super) fn byte_test(text: Text<'_>) -> Parsed<Condition> {
    let parts = commas(text);
    few(&parts, text, 4, "bytes, operator, value, offset, ...")?;
    let common = Allowed {
        multiplier: false,
        align: false,
        align_number: false,
        jump: false,
    };
    let mut read = modifiers(&parts[4..], text, common)?.read;
    read.bytes = size(parts[0], number(parts[0], 0, 64)?, read.string)?;
    read.offset = number(parts[3], -FAR, FAR)?;
    let (sign, negated) = parts[1].negation();
    let operator = match sign.bytes {
        b"<" => TestOperator::Less,
        b">" => TestOperator::Greater,
        b"=" => TestOperator::Equal,
        b"<=" => TestOperator::LessEqual,
        b">=" => TestOperator::GreaterEqual,
        b"&" => TestOperator::And,
        b"^" => TestOperator::Xor,
        // `!` alone means: not equal.
        b"" if negated => TestOperator::Equal,
        _ => {
            let reason = "an operator is `< > = <= >= & ^`, with `!` before it if negated";
            return Err(parts[1].fail(Kind::Value, reason));
        }
    };
    let value = number(parts[2], i64::MIN, i64::MAX)?;
    Ok(Condition::ByteTest(ByteTest {
        read,
        negated,
        operator,
        value,
    }))
}

pub(super) fn byte_jump(text: Text<'_>) -> Parsed<Condition> {
    let parts = commas(text);
    few(&parts, text, 2, "bytes, offset, ...")?;
    let common = Allowed {
        multiplier: true,
        align: true,
        align_number: false,
        jump: true,
    };
    let m = modifiers(&parts[2..], text, common)?;
    let mut read = m.read;
    let bytes = number(parts[0], 0, 64)?;
    // Nothing need be read: the jump is the offset behind the end, or behind the place.
    read.bytes = match bytes {
        Number::Is(0) => Number::Is(0),
        bytes => size(parts[0], bytes, read.string)?,
    };
    read.offset = number(parts[1], -FAR, FAR)?;
    Ok(Condition::ByteJump(ByteJump {
        read,
        multiplier: m.multiplier,
        align: m.align.is_some(),
        from_beginning: m.from_beginning,
        from_end: m.from_end,
        post_offset: m.post_offset,
    }))
}

pub(super) fn byte_extract(text: Text<'_>) -> Parsed<Condition> {
    let parts = commas(text);
    few(&parts, text, 3, "bytes, offset, name, ...")?;
    let common = Allowed {
        multiplier: true,
        align: false,
        align_number: true,
        jump: false,
    };
    let m = modifiers(&parts[3..], text, common)?;
    let mut read = m.read;
    read.bytes = size(parts[0], Number::Is(parts[0].number(0, 64)?), read.string)?;
    read.offset = Number::Is(parts[1].number(-FAR, FAR)?);
    Ok(Condition::ByteExtract(ByteExtract {
        read,
        multiplier: m.multiplier,
        align: m.align.unwrap_or(0),
        name: variable(parts[2])?,
    }))
}

/// A name that can be told from a number.
fn variable(text: Text<'_>) -> Parsed<String> {
    let word = name(text)?;
    match word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        true => Ok(word.to_owned()),
        false => Err(text.fail(Kind::Value, "a name begins with a letter")),
    }
}

pub(super) fn byte_math(text: Text<'_>) -> Parsed<Condition> {
    let (mut bytes, mut offset, mut operator) = (None, None, None);
    let (mut value, mut result) = (None, None);
    let mut rest = Vec::new();
    for part in commas(text) {
        let words = part.words();
        let (key, argument) = match words[..] {
            [key, argument] => (key, argument),
            _ => {
                rest.push(part);
                continue;
            }
        };
        let twice = match key.bytes {
            b"bytes" => bytes
                .replace((argument, number(argument, 0, 64)?))
                .is_some(),
            b"offset" => offset.replace(number(argument, -FAR, FAR)?).is_some(),
            b"rvalue" => {
                value = Some((argument, number(argument, 0, u32::MAX.into())?));
                false
            }
            b"result" => result.replace(variable(argument)?).is_some(),
            b"oper" => {
                let found = match argument.bytes {
                    b"+" => MathOperator::Add,
                    b"-" => MathOperator::Subtract,
                    b"*" => MathOperator::Multiply,
                    b"/" => MathOperator::Divide,
                    b"<<" => MathOperator::Left,
                    b">>" => MathOperator::Right,
                    _ => {
                        let reason = "an operator is `+ - * / << >>`";
                        return Err(argument.fail(Kind::Value, reason));
                    }
                };
                operator.replace(found).is_some()
            }
            _ => {
                rest.push(part);
                false
            }
        };
        if twice {
            return Err(part.fail(Kind::Conflict, "given twice"));
        }
    }
    let common = Allowed {
        multiplier: false,
        align: false,
        align_number: false,
        jump: false,
    };
    let mut read = modifiers(&rest, text, common)?.read;
    let missing = |what: &str| text.fail(Kind::Syntax, format!("`{what}` is missing"));
    let (at, bytes) = bytes.ok_or_else(|| missing("bytes"))?;
    let top = if read.string.is_some() { 10 } else { 4 };
    if let Number::Is(n) = bytes
        && n > top
    {
        return Err(at.fail(
            Kind::Value,
            format!("at most {top} bytes are computed with"),
        ));
    }
    read.bytes = size(at, bytes, read.string)?;
    read.offset = offset.ok_or_else(|| missing("offset"))?;
    let operator = operator.ok_or_else(|| missing("oper"))?;
    let (at, value) = value.ok_or_else(|| missing("rvalue"))?;
    match (operator, &value) {
        (MathOperator::Divide, Number::Is(0)) => {
            return Err(at.fail(Kind::Value, "division by zero"));
        }
        (MathOperator::Left | MathOperator::Right, Number::Is(32..)) => {
            return Err(at.fail(Kind::Value, "a shift is by less than 32"));
        }
        _ => {}
    }
    Ok(Condition::ByteMath(ByteMath {
        read,
        operator,
        value,
        name: result.ok_or_else(|| missing("result"))?,
    }))
}

pub(super) fn is_data_at(text: Text<'_>) -> Parsed<Condition> {
    let (text, negated) = text.negation();
    let parts = commas(text);
    let mut relative = false;
    for part in &parts[1..] {
        match part.bytes {
            b"relative" => relative = true,
            b"rawbytes" => {}
            _ => {
                let reason = "only `relative` and `rawbytes` are possible";
                return Err(part.fail(Kind::Syntax, reason));
            }
        }
    }
    // `isdataat:!1` with the negation at the number.
    Ok(Condition::IsDataAt {
        offset: number(parts[0], -FAR, FAR)?,
        relative,
        negated,
    })
}

/// `base64_decode` and `from_base64`; without a value: all bytes from the start.
pub(super) fn base64(text: Option<Text<'_>>, transform: bool, dialect: Dialect) -> Parsed<Base64> {
    let mut out = Base64 {
        bytes: None,
        offset: 0,
        relative: false,
        mode: None,
    };
    let Some(text) = text else { return Ok(out) };
    for part in commas(text) {
        // Snort 3 writes `bytes 10`, Suricata `bytes 10` or, for a transform, `bytes: 10`.
        let split: Vec<Text<'_>> = part.split(b':').into_iter().flat_map(Text::words).collect();
        match split[..] {
            [word] if word.is("relative") && !transform => out.relative = true,
            [key, value] if key.is("bytes") => {
                out.bytes = Some(value.number(1, i64::from(u16::MAX))? as u32);
            }
            [key, value] if key.is("offset") => {
                out.offset = value.number(0, i64::from(u16::MAX))? as u32;
            }
            [key, value] if key.is("mode") && transform => {
                let mode = value.str()?.to_ascii_lowercase();
                if !["rfc4648", "rfc2045", "strict"].contains(&mode.as_str()) {
                    let reason = "a mode is RFC4648, RFC2045 or strict";
                    return Err(value.fail(Kind::Value, reason));
                }
                out.mode = Some(mode);
            }
            _ => {
                let what = match (transform, dialect) {
                    (true, _) => "`bytes N`, `offset N` and `mode M`",
                    (false, _) => "`bytes N`, `offset N` and `relative`",
                };
                return Err(part.fail(Kind::Syntax, format!("{what} are possible")));
            }
        }
    }
    Ok(out)
}
