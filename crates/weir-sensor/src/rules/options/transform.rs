//! Transforms of a sticky buffer, and scripts, which are transforms (`luaxform`) or conditions (`lua`): read, compiled and asked what they need when the rule is.

use std::fs;
use std::path::{Component, Path};
use std::sync::Arc;

use crate::app::Stage;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::rules::model::{Hook, PacketCondition, Pcre, RuleScript, Transform};
use crate::rules::parse::{Context, Draft};
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::Opt;
use crate::rules::text::Text;
use crate::script::{MOST, Purpose, Script};

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

/// What `init` may ask for.
const KEYS: [&str; 6] = ["packet", "payload", "stream", "buffer", "ja3", "ja3s"];

/// `lua:[!]FILE`.
pub(super) fn script<'a>(draft: &mut Draft<'a>, opt: Opt<'a>, context: &Context<'_>) -> Parsed<()> {
    let (file, negated) = opt.need()?.negation();
    let file = file.unquoted()?;
    let script = load(file, context, Purpose::Match)?;
    let needs = &script.needs;
    if let Some((key, _)) = needs.keys.iter().find(|(k, _)| !KEYS.contains(&k.as_str())) {
        let reason = format!(
            "the script asks for `{key}`; what there is are {}, and libraries for the rest",
            KEYS.join(", ")
        );
        return Err(file.fail(Kind::Unsupported, reason));
    }
    let mut numbers = needs.numbers.iter();
    if let Some(name) = numbers.find(|name| !draft.names.contains(name)) {
        let reason = format!("the script asks for `{name}`, which the rule does not extract");
        return Err(file.fail(Kind::Variable, reason));
    }
    for (key, buffer, direction) in [
        ("ja3", Buffer::Ja3Hash, Direction::ToServer),
        ("ja3s", Buffer::Ja3sHash, Direction::ToClient),
    ] {
        if needs.has(key) {
            let hook = Hook::Reached(direction, Stage::Has(buffer));
            draft.rule.packet.push(PacketCondition::Hook(hook));
        }
    }
    let buffer = match needs.has("buffer") {
        true => {
            let at = in_buffer(draft, opt)?;
            draft.parts.get(at).map(|part| part.buffer)
        }
        false => None,
    };
    draft.rule.scripts.push(RuleScript {
        script: Arc::new(script),
        negated,
        buffer,
    });
    Ok(())
}

/// `luaxform:FILE[, WORD ...]`.
pub(super) fn lua_transform<'a>(
    draft: &mut Draft<'a>,
    opt: Opt<'a>,
    context: &Context<'_>,
) -> Parsed<()> {
    let value = opt.need()?;
    let (file, mut rest) = match value.cut(b',') {
        Some((file, rest)) => (file, Some(rest)),
        None => (value, None),
    };
    let script = load(file.trim().unquoted()?, context, Purpose::Transform)?;
    // Words are as they are written, with their blanks.
    let mut words = Vec::new();
    while let Some(word) = rest {
        let (word, behind) = match word.cut(b',') {
            Some((word, behind)) => (word, Some(behind)),
            None => (word, None),
        };
        words.push(word.lossy());
        rest = behind;
    }
    change(draft, opt, Transform::Lua(Arc::new(script), words))
}

/// A script beside the rules, or in the folder of rules of the configuration: rules come from elsewhere, and name no other files.
fn load(file: Text<'_>, context: &Context<'_>, purpose: Purpose) -> Parsed<Script> {
    let Some(limits) = context.settings.scripts else {
        let reason = "scripts in rules are turned off (security.lua.allow-rules)";
        return Err(file.fail(Kind::Unsupported, reason));
    };
    let path = Path::new(file.str()?);
    let is_below = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    if !path.components().all(is_below) {
        let reason = "a rule may name scripts below the folder of rules only";
        return Err(file.fail(Kind::File, reason));
    }
    let folders = [context.datasets, context.settings.folder.as_deref()];
    let mut places = folders
        .into_iter()
        .flatten()
        .map(|folder| folder.join(path));
    let Some(path) = places.find(|path| path.is_file()) else {
        let reason = format!("there is no script {} beside the rules", path.display());
        return Err(file.fail(Kind::File, reason));
    };
    let failed =
        |e: std::io::Error| file.fail(Kind::File, format!("cannot read {}: {e}", path.display()));
    if fs::metadata(&path).map_err(failed)?.len() > MOST {
        let reason = format!("{} is larger than {} MiB", path.display(), MOST >> 20);
        return Err(file.fail(Kind::File, reason));
    }
    let source = fs::read(&path).map_err(failed)?;
    Script::load(&file.lossy(), &source, limits, purpose)
        .map_err(|why| file.fail(Kind::Expression, why))
}
