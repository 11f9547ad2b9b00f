//! Regular expressions: delimiters, flags, captures.

use crate::app::App;
use crate::buffer::Buffer;
use crate::rules::load::Dialect;
use crate::rules::model::{Capture, Condition, Kept, Pcre};
use crate::rules::parse::{Context, Draft};
use crate::rules::phrase::{Phrase, described};
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::{Opt, commas};
use crate::rules::text::Text;
use crate::rules::values::name;

/// Text stays; in what is not UTF-8 every byte above ASCII becomes an escape, which the library reads as that byte.
pub(super) fn escape_bytes(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for b in bytes {
        match b.is_ascii() {
            true => out.push(*b as char),
            false => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out
}

pub(super) fn pcre<'a>(
    draft: &mut Draft<'a>,
    opt: Opt<'a>,
    hyperscan: bool,
    context: &mut Context<'_>,
) -> Parsed<()> {
    let (value, negated) = opt.need()?.negation();
    let mut parts = commas(value);
    let first = if hyperscan { parts.remove(0) } else { value };
    let inner = first.unquoted()?;
    let inner = match inner.strip("m") {
        // Behind it any delimiter may stand in Snort's dialect, and a slash in either.
        Some(rest) if draft.dialect == Dialect::Snort || rest.bytes.starts_with(b"/") => rest,
        _ => inner,
    };
    // What stands in front of the first slash means nothing to users of this dialect.
    let slash = inner.bytes.iter().position(|b| *b == b'/');
    let inner = match slash.filter(|at| *at > 0 && draft.dialect == Dialect::Suricata) {
        Some(at) => {
            let what = inner.part(0..at).lossy();
            draft
                .notes
                .push(format!("`{what}` in front of the expression has no effect"));
            inner.from(at)
        }
        None => inner,
    };
    let Some(delimiter) = inner
        .bytes
        .first()
        .copied()
        .filter(|b| !b.is_ascii_alphanumeric())
    else {
        return Err(first.fail(Kind::Syntax, "an expression is `\"/.../flags\"`"));
    };
    let end = inner.bytes.iter().rposition(|b| *b == delimiter);
    let Some(end) = end.filter(|e| *e > 0) else {
        return Err(first.fail(Kind::Syntax, "the expression has no closing delimiter"));
    };
    let pattern = inner.part(1..end);
    if pattern.is_empty() {
        return Err(first.fail(Kind::Syntax, "an empty expression"));
    }
    let mut flags = inner.from(end + 1).split(b',').into_iter();
    let mut pcre = Pcre::new(escape_bytes(pattern.bytes));
    pcre.negated = negated;
    let letters = flags.next().unwrap_or(inner.from(inner.len()));
    let buffer = pcre_flags(draft, &mut pcre, letters)?;
    let kept = captures(draft, flags)?;
    if hyperscan {
        for part in &parts {
            match part.bytes {
                b"nocase" => pcre.caseless = true,
                b"dotall" => pcre.dotall = true,
                b"multiline" => pcre.multiline = true,
                b"relative" => pcre.relative = true,
                b"fast_pattern" => {
                    let what = "`fast_pattern` of a regular expression has no effect";
                    draft.notes.push(what.to_owned());
                }
                _ => {
                    let reason = format!("`{}` is not known here", part.lossy());
                    return Err(part.fail(Kind::Syntax, reason));
                }
            }
        }
    }
    let compiled = context.expressions.of(&pcre).map_err(|e| {
        let at = match e.offset {
            // Offsets hold for the text as written unless bytes were escaped.
            Some(o) if pcre.pattern.len() == pattern.len() => {
                let from = o.min(pattern.len()).saturating_sub(1);
                pattern.part(from..(from + 1).min(pattern.len()))
            }
            _ => pattern,
        };
        at.fail(Kind::Expression, e.reason.clone())
    })?;
    if kept.len() > compiled.groups() {
        let reason = "more variables than captures";
        return Err(first.fail(Kind::Value, reason));
    }
    pcre.captures = kept;
    if draft.dialect == Dialect::Suricata {
        let named = compiled.names().filter_map(|(group, name)| {
            let (keep, name) = [
                ("flow_", Kept::Flow),
                ("pkt_", Kept::Packet),
                ("alert_", Kept::Alert),
            ]
            .iter()
            .find_map(|(prefix, keep)| Some((*keep, name.strip_prefix(prefix)?)))?;
            let name = name.into();
            Some(Capture { group, keep, name })
        });
        pcre.captures.extend(named);
    }
    if !pcre.captures.is_empty() && pcre.negated {
        let what = "what an expression that must not match captures is not kept";
        draft.notes.push(what.to_owned());
    }
    if buffer.is_some() {
        // These flags are older than HTTP/2.
        let http = (App::Http1, false);
        if !draft.rule.apps.contains(&http) {
            draft.rule.apps.push(http);
        }
    }
    let part = match (buffer, draft.current) {
        (Some((buffer, at)), Some(current)) if draft.parts[current].buffer != buffer => {
            let reason = format!(
                "the flag is for {} while {} is in force",
                buffer.name(),
                draft.parts[current].buffer.name()
            );
            let phrase = Phrase::ExpressionBuffer(described(buffer));
            return Err(at.fail(Kind::Conflict, reason).called(phrase));
        }
        (Some((buffer, _)), None) => draft.part_of(buffer),
        _ => draft.place(false),
    };
    draft.add(part, Condition::Pcre(pcre), opt.whole)?;
    draft.mover = Some(part);
    Ok(())
}

fn pcre_flags<'a>(
    draft: &mut Draft<'a>,
    pcre: &mut Pcre,
    letters: Text<'a>,
) -> Parsed<Option<(Buffer, Text<'a>)>> {
    let mut buffer: Option<(Buffer, Text<'a>)> = None;
    for (i, letter) in letters.bytes.iter().enumerate() {
        let at = letters.part(i..i + 1);
        let moved = match letter {
            b'i' => {
                pcre.caseless = true;
                continue;
            }
            b'm' => {
                pcre.multiline = true;
                continue;
            }
            b's' => {
                pcre.dotall = true;
                continue;
            }
            b'x' => {
                pcre.extended = true;
                continue;
            }
            b'A' => {
                pcre.anchored = true;
                continue;
            }
            b'E' => {
                pcre.dollar_end_only = true;
                continue;
            }
            b'G' => {
                pcre.ungreedy = true;
                continue;
            }
            b'R' => {
                pcre.relative = true;
                continue;
            }
            b'O' => {
                let what = "the flag `O` of an expression has no effect: limits hold for all";
                draft.notes.push(what.to_owned());
                continue;
            }
            // Bytes as they are: the payload has no other.
            b'B' => continue,
            _ if draft.dialect == Dialect::Snort => {
                let reason = format!("`{}` is no flag of an expression", at.lossy());
                return Err(at.fail(Kind::Value, reason));
            }
            b'U' => Buffer::HttpUri,
            b'I' => Buffer::HttpUriRaw,
            b'P' => Buffer::HttpRequestBody,
            b'Q' => Buffer::HttpResponseBody,
            b'H' => Buffer::HttpHeader,
            b'D' => Buffer::HttpHeaderRaw,
            b'M' => Buffer::HttpMethod,
            b'C' | b'K' => Buffer::HttpCookie,
            b'S' => Buffer::HttpStatusCode,
            b'Y' => Buffer::HttpStatusMessage,
            b'V' => Buffer::HttpUserAgent,
            b'W' => Buffer::HttpHost,
            b'Z' => Buffer::HttpHostRaw,
            _ => {
                let reason = format!("`{}` is no flag of an expression", at.lossy());
                return Err(at.fail(Kind::Value, reason));
            }
        };
        if let Some((before, _)) = buffer
            && before != moved
        {
            let reason = "two flags for different buffers";
            return Err(at.fail(Kind::Conflict, reason));
        }
        buffer = Some((moved, at));
    }
    Ok(buffer)
}

/// `flow:name`, `pkt:name`, `alert:name` behind the flags, of the captures in their order.
fn captures<'a>(draft: &Draft<'a>, parts: impl Iterator<Item = Text<'a>>) -> Parsed<Vec<Capture>> {
    let mut captures = Vec::new();
    for (part, group) in parts.zip(1..) {
        let part = part.trim();
        let found = [
            ("flow:", Kept::Flow),
            ("pkt:", Kept::Packet),
            ("alert:", Kept::Alert),
        ]
        .iter()
        .find_map(|(prefix, keep)| Some((*keep, part.strip(prefix)?)));
        match found {
            Some((keep, rest)) if draft.dialect == Dialect::Suricata => {
                let name = name(rest)?.into();
                captures.push(Capture { group, keep, name });
            }
            _ => {
                let reason = "a variable is `flow:NAME`, `pkt:NAME` or `alert:NAME`";
                return Err(part.fail(Kind::Syntax, reason));
            }
        }
    }
    Ok(captures)
}
