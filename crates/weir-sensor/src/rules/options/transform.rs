//! Transforms of a sticky buffer.

use crate::rules::model::{Pcre, Transform};
use crate::rules::parse::{Context, Draft};
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::Opt;

use super::in_buffer;
use super::pcre::escape_bytes;

pub(super) fn transform<'a>(
    draft: &mut Draft<'a>,
    opt: Opt<'a>,
    transform: Transform,
) -> Parsed<()> {
    opt.bare()?;
    change(draft, opt, transform)
}

/// Adds a transform to the sticky buffer: its conditions are then apart from those of the buffer as it is.
pub(super) fn change<'a>(draft: &mut Draft<'a>, opt: Opt<'a>, transform: Transform) -> Parsed<()> {
    let at = in_buffer(draft, opt)?;
    let part = &draft.parts[at];
    let at = match part.items.is_empty() {
        true => at,
        false => {
            let (buffer, word) = (part.buffer, part.at);
            // Behind conditions on the buffer, what follows is about the bytes changed further; those of an earlier use of the buffer are none of this one.
            let continues = part.items.iter().any(|i| i.at.start > draft.sticky_at);
            let before = continues.then(|| part.transforms.clone());
            let at = draft.begin(buffer, word);
            draft.parts[at].transforms = before.unwrap_or_default();
            at
        }
    };
    draft.parts[at].transforms.push(transform);
    draft.current = Some(at);
    Ok(())
}

/// Bytes combined with a key.
pub(super) fn xor<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let key = opt.need()?.unquoted()?;
    let mut bytes = Vec::new();
    for pair in key.bytes.chunks(2) {
        let digits = std::str::from_utf8(pair).ok().filter(|p| p.len() == 2);
        let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        let reason = "a key is pairs of hexadecimal digits";
        bytes.push(byte.ok_or_else(|| key.fail(Kind::Value, reason))?);
    }
    change(draft, opt, Transform::Xor(bytes))?;
    Ok(())
}

/// What an expression captures.
pub(super) fn pcre_transform<'a>(
    draft: &mut Draft<'a>,
    opt: Opt<'a>,
    context: &mut Context<'_>,
) -> Parsed<()> {
    let pattern = opt.need()?.unquoted()?;
    let pcre = Pcre::new(escape_bytes(pattern.bytes));
    let compiled = context.expressions.of(&pcre);
    let compiled = compiled.map_err(|e| pattern.fail(Kind::Expression, e.to_string()))?;
    if compiled.groups() != 1 {
        let reason = "the expression must have one capture";
        return Err(pattern.fail(Kind::Value, reason));
    }
    change(draft, opt, Transform::Pcre(pcre.pattern))?;
    Ok(())
}
