//! Bits of flows and hosts, and counters of flows.

use crate::rules::model::{Bit, BitOperation, Number, Track};
use crate::rules::parse::Draft;
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::commas;
use crate::rules::text::Text;
use crate::rules::values::name;

pub(super) fn operation(text: Text<'_>) -> Parsed<BitOperation> {
    Ok(match text.bytes {
        b"set" => BitOperation::Set,
        b"unset" => BitOperation::Unset,
        b"toggle" => BitOperation::Toggle,
        b"isset" => BitOperation::IsSet,
        b"isnotset" => BitOperation::IsNotSet,
        _ => {
            let reason = format!(
                "`{}` is none of set, unset, toggle, isset, isnotset",
                text.lossy()
            );
            return Err(text.fail(Kind::Value, reason));
        }
    })
}

pub(super) fn flowbits(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    if parts[0].is("noalert") {
        draft.rule.silent = true;
        return match parts.get(1) {
            None => Ok(()),
            Some(extra) => Err(extra.fail(Kind::Syntax, "noalert names no bit")),
        };
    }
    let operation = operation(parts[0])?;
    let Some(names) = parts.get(1).filter(|n| !n.is_empty()) else {
        return Err(value.fail(Kind::Syntax, "the name of a bit is missing"));
    };
    if let Some(group) = parts.get(2) {
        let reason = "groups of bits are not supported";
        return Err(group.fail(Kind::Unsupported, reason));
    }
    let asks = matches!(operation, BitOperation::IsSet | BitOperation::IsNotSet);
    let several = |by: u8| -> Parsed<Vec<String>> {
        let one = |n: Text<'_>| name(n).map(str::to_owned);
        names.split(by).into_iter().map(one).collect()
    };
    let has = |b: u8| names.bytes.contains(&b);
    if has(b'&') {
        // Each of them: a condition, or a change, of its own.
        for name in several(b'&')? {
            draft.rule.bits.push(Bit::Flow {
                operation,
                names: vec![name],
            });
        }
        return Ok(());
    }
    let names = several(b'|')?;
    if names.len() > 1 && !asks {
        let reason = "alternatives are possible with isset and isnotset only";
        return Err(parts[1].fail(Kind::Conflict, reason));
    }
    draft.rule.bits.push(Bit::Flow { operation, names });
    Ok(())
}

/// What is not logged.
pub(super) fn config(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    let words: Vec<Vec<Text<'_>>> = parts.iter().map(|p| p.words()).collect();
    let is = |at: usize, wanted: [&str; 2]| {
        let words = words.get(at).map_or(&[][..], Vec::as_slice);
        matches!(words, [a, b] if a.is(wanted[0]) && b.is(wanted[1]))
    };
    let known = parts.len() == 3 && is(0, ["logging", "disable"]);
    if known && is(1, ["type", "tx"]) && is(2, ["scope", "tx"]) {
        draft.rule.bits.push(Bit::Unlog);
        return Ok(());
    }
    let reason = "only `logging disable, type tx, scope tx` is possible";
    Err(value.fail(Kind::Unsupported, reason))
}

pub(super) fn xbits(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    if parts[0].is("noalert") && parts.len() == 1 {
        draft.rule.silent = true;
        return Ok(());
    }
    let operation = operation(parts[0])?;
    let [_, name_at, rest @ ..] = &parts[..] else {
        return Err(value.fail(Kind::Syntax, "the form is `operation,name,track WHAT`"));
    };
    let name = name(*name_at)?.to_owned();
    let (mut track, mut expire, mut of_transaction) = (None, 30, false);
    for part in rest {
        match part.words()[..] {
            [word, what] if word.is("track") => {
                track = Some(match what.bytes {
                    b"ip_src" => Track::Source,
                    b"ip_dst" => Track::Destination,
                    b"ip_pair" => Track::Pair,
                    b"tx" => {
                        of_transaction = true;
                        continue;
                    }
                    _ => {
                        let reason = "bits are of ip_src, ip_dst, ip_pair or tx";
                        return Err(what.fail(Kind::Value, reason));
                    }
                });
            }
            [word, seconds] if word.is("expire") => {
                if operation != BitOperation::Set && operation != BitOperation::Toggle {
                    draft
                        .notes
                        .push("`expire` matters only where a bit is set".to_owned());
                }
                expire = seconds.number(1, u32::MAX.into())? as u32;
            }
            _ => {
                let reason = format!("`{}` is not known here", part.lossy());
                return Err(part.fail(Kind::Syntax, reason));
            }
        }
    }
    if of_transaction {
        draft.rule.bits.push(Bit::Transaction { operation, name });
        return Ok(());
    }
    let Some(track) = track else {
        return Err(value.fail(Kind::Syntax, "`track` is missing"));
    };
    draft.rule.bits.push(Bit::Host {
        operation,
        name,
        track,
        expire,
    });
    Ok(())
}

pub(super) fn hostbits(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    if parts[0].is("noalert") && parts.len() == 1 {
        draft.rule.silent = true;
        return Ok(());
    }
    let operation = operation(parts[0])?;
    let Some(name_at) = parts.get(1) else {
        return Err(value.fail(Kind::Syntax, "the name of a bit is missing"));
    };
    let track = match parts.get(2).map(|p| (*p, p.bytes)) {
        None | Some((_, b"src")) => Track::Source,
        Some((_, b"dst")) => Track::Destination,
        Some((at, b"both")) => {
            let reason = "bits of both hosts at once are not supported";
            return Err(at.fail(Kind::Unsupported, reason));
        }
        Some((at, _)) => return Err(at.fail(Kind::Value, "a side is src or dst")),
    };
    draft.rule.bits.push(Bit::Host {
        operation,
        name: name(*name_at)?.to_owned(),
        track,
        expire: 300,
    });
    Ok(())
}

pub(super) fn flowint(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    let [name_at, operator, rest @ ..] = &parts[..] else {
        return Err(value.fail(Kind::Syntax, "the form is `name,operator[,value]`"));
    };
    let counter = name(*name_at)?.to_owned();
    let operator_text = operator.lossy();
    let asks = ["isset", "isnotset", "notset"].contains(&operator_text.as_str());
    let computes = ["+", "-", "=", "<", ">", "<=", ">=", "==", "!="];
    let with = match (asks, rest) {
        // A value says nothing then, and some write one.
        (true, [] | [_]) => None,
        (false, [with]) if computes.contains(&operator_text.as_str()) => {
            let number = with.bytes.first().is_some_and(u8::is_ascii_digit);
            Some(match number {
                true => Number::Is(with.number(0, u32::MAX.into())?),
                false => Number::Variable(name(*with)?.to_owned()),
            })
        }
        _ => {
            let reason = "an operator is `+ - = < > <= >= == !=` with a value, or isset, isnotset";
            return Err(operator.fail(Kind::Value, reason));
        }
    };
    draft.rule.bits.push(Bit::Counter {
        name: counter,
        operator: operator_text,
        value: with,
    });
    Ok(())
}
