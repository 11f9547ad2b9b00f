//! Conditions on the record of a transaction: versions, states, numbers.

use std::ops::RangeInclusive;

use crate::app::dcerpc::pdu::{INTERFACE_HIGH, INTERFACE_LOW, INTERFACE_VERSION};
use crate::app::{App, Fact, ModbusAsked, ModbusFunctions, ModbusTable, ModbusWhat, Written};
use crate::rules::load::Dialect;
use crate::rules::model::{PacketCondition, Range, Which};
use crate::rules::parse::Draft;
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::{Opt, commas};
use crate::rules::text::Text;
use crate::rules::values::range;

pub(super) fn record(draft: &mut Draft<'_>, keyword: &str, value: String, negated: bool) {
    let condition = PacketCondition::Record(keyword.to_owned(), value, negated);
    draft.rule.packet.push(condition);
}

/// Words with commas or bars between them: one of those that are not negated, and none of the others.
pub(super) fn alternatives(
    draft: &mut Draft<'_>,
    keyword: &str,
    value: Text<'_>,
    known: &[&str],
) -> Parsed<()> {
    let mut words: [Vec<String>; 2] = Default::default();
    for part in value.split(b',').into_iter().flat_map(|p| p.split(b'|')) {
        let (part, negated) = part.negation();
        let word = part.lossy().to_ascii_lowercase();
        if !known.contains(&word.as_str()) {
            let reason = format!("`{word}` is none of {}", known.join(", "));
            return Err(part.fail(Kind::Value, reason));
        }
        if words[usize::from(!negated)].contains(&word) {
            let reason = format!("`{word}` is asked for and excluded");
            return Err(part.fail(Kind::Conflict, reason));
        }
        words[usize::from(negated)].push(word);
    }
    for (words, negated) in words.into_iter().zip([false, true]) {
        if !words.is_empty() {
            record(draft, keyword, words.join("|"), negated);
        }
    }
    Ok(())
}

/// A number of a transaction that a protocol has a keyword for.
pub(in crate::rules) fn fact<'a>(draft: &mut Draft<'a>, fact: &Fact, opt: Opt<'a>) -> Parsed<()> {
    match fact.written {
        Written::Number(names) => number_record(draft, fact.name(), opt, names)?,
        Written::Placed(names) => placed_record(draft, fact.name(), opt, names)?,
        Written::Inclusive => inclusive_record(draft, fact.name(), opt)?,
        Written::Keyed(names) => keyed_record(draft, fact.name(), opt, names)?,
        Written::Pair => pair_record(draft, fact.name(), opt)?,
        Written::List => list_record(draft, fact.name(), opt)?,
        Written::Choice(names) => choice_record(draft, fact.name(), opt, names)?,
        Written::Word(known) => word_record(draft, fact.name(), opt, known)?,
        Written::Flags(known) => flag_record(draft, fact.name(), opt, known)?,
        Written::Bits(known) => match opt.need()?.bytes.iter().any(u8::is_ascii_digit) {
            true => number_record(draft, fact.name(), opt, &[])?,
            false => flag_record(draft, fact.name(), opt, known)?,
        },
        Written::Names(names, words) => names_record(draft, fact.name(), opt, names, words)?,
        Written::Attribute(names) => attribute_record(draft, fact.name(), opt, names)?,
        Written::Steps(facts) => steps_record(draft, facts, opt)?,
        Written::Date => date_record(draft, fact.name(), opt)?,
        Written::Bare => {
            opt.bare()?;
            record(draft, fact.name(), String::new(), false);
        }
    }
    if fact.request {
        draft.rule.flow.to_server.get_or_insert(true);
    }
    if fact.answer {
        draft.rule.flow.to_server.get_or_insert(false);
    }
    Ok(())
}

/// A number of a transaction's record: exact, a range, or one of the names.
fn number_record<'a>(
    draft: &mut Draft<'a>,
    keyword: &str,
    opt: Opt<'a>,
    names: &[(&str, u64)],
) -> Parsed<()> {
    let value = opt.need()?.unquoted()?;
    let (word, negated) = value.negation();
    let text = word.lossy();
    let named = names.iter().find(|(n, _)| n.eq_ignore_ascii_case(&text));
    if let Some((_, number)) = named {
        record(draft, keyword, number.to_string(), negated);
        return Ok(());
    }
    let span = range(value, u64::from(u32::MAX), draft.dialect)?;
    let written = match span.mask {
        u64::MAX => format!("{}-{}", span.low, span.high),
        mask => format!("&{mask}={}", span.low),
    };
    record(draft, keyword, written, span.negated);
    Ok(())
}

/// A number of a transaction's record, or a range; `a<>b` has its ends.
fn inclusive_record<'a>(draft: &mut Draft<'a>, keyword: &str, opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?.unquoted()?;
    let Some(at) = value.bytes.windows(2).position(|w| w == b"<>") else {
        return number_record(draft, keyword, opt, &[]);
    };
    let top = i64::from(u32::MAX);
    let low = value.part(0..at).trim().number(0, top)?;
    let high = value.from(at + 2).trim().number(0, top)?;
    if low > high {
        return Err(value.fail(Kind::Value, "no number is in this range"));
    }
    record(draft, keyword, format!("{low}-{high}"), false);
    Ok(())
}

/// A word, and what its number is.
fn keyed_record<'a>(
    draft: &mut Draft<'a>,
    keyword: &str,
    opt: Opt<'a>,
    names: &[(&str, u64)],
) -> Parsed<()> {
    let value = opt.need()?.unquoted()?;
    let letter = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let end = value.bytes.iter().position(|b| !letter(b));
    let end = end.unwrap_or(value.len());
    let word = value.part(0..end);
    let key = number_of(word, names)?;
    let rest = value.from(end).trim();
    let span = match rest.bytes {
        [] => Range::new(0, u64::from(u32::MAX), false),
        [b'=', ..] => range(rest.from(1).trim(), u64::from(u32::MAX), draft.dialect)?,
        _ => range(rest, u64::from(u32::MAX), draft.dialect)?,
    };
    if span.negated || span.mask != u64::MAX {
        return Err(rest.fail(Kind::Value, "`=`, `>`, `<` or a range is expected"));
    }
    let top = span.high.min(u64::from(u32::MAX));
    let written = format!("{}-{}", key << 32 | span.low, key << 32 | top);
    record(draft, keyword, written, false);
    Ok(())
}

/// Two numbers of a byte, noted as one of two bytes.
fn pair_record<'a>(draft: &mut Draft<'a>, keyword: &str, opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?.unquoted()?;
    let [high, low] = commas(value)[..] else {
        return Err(value.fail(
            Kind::Syntax,
            "two numbers with a comma between them are expected",
        ));
    };
    let number = high.number(0, 255)? << 8 | low.number(0, 255)?;
    record(draft, keyword, number.to_string(), false);
    Ok(())
}

/// A number that a transaction has several of, and which of them.
fn placed_record<'a>(
    draft: &mut Draft<'a>,
    keyword: &str,
    opt: Opt<'a>,
    names: &[(&str, u64)],
) -> Parsed<()> {
    let mut parts = commas(opt.need()?.unquoted()?).into_iter();
    let Some(value) = parts.next() else {
        return Err(opt.whole.fail(Kind::Syntax, "a value is missing"));
    };
    let which = match parts.next() {
        None => Which::Any,
        Some(word) if word.is("any") => Which::Any,
        Some(word) if word.is("all") => Which::All,
        Some(word) => Which::At(word.number(-128, 127)? as i32),
    };
    if let Some(extra) = parts.next() {
        return Err(extra.fail(Kind::Syntax, "one place is possible"));
    }
    let (word, negated) = value.negation();
    let text = word.lossy();
    let named = names.iter().find(|(n, _)| n.eq_ignore_ascii_case(&text));
    let span = match named {
        Some((_, number)) => Range::new(*number, *number, negated),
        None => range(value, u64::from(u32::MAX), draft.dialect)?,
    };
    let condition = PacketCondition::Placed(keyword.to_owned(), span, which);
    draft.rule.packet.push(condition);
    Ok(())
}

/// Numbers of a transaction's record with commas between them: one of them. `a-b` has its ends.
fn list_record<'a>(draft: &mut Draft<'a>, keyword: &str, opt: Opt<'a>) -> Parsed<()> {
    let top = i64::from(u32::MAX);
    let (value, negated) = opt.need()?.unquoted()?.negation();
    let mut spans = Vec::new();
    for part in value.split(b',') {
        let part = part.trim();
        let (low, high) = if let Some(rest) = part.strip("<") {
            (0, rest.trim().number(1, top)? - 1)
        } else if let Some(rest) = part.strip(">") {
            (rest.trim().number(0, top)? + 1, top)
        } else if let Some((low, high)) = part.cut(b'-') {
            (low.trim().number(0, top)?, high.trim().number(0, top)?)
        } else {
            let exactly = part.number(0, top)?;
            (exactly, exactly)
        };
        if low > high {
            return Err(part.fail(Kind::Value, "no number is in this range"));
        }
        spans.push(format!("{low}-{high}"));
    }
    record(draft, keyword, spans.join(","), negated);
    Ok(())
}

/// Numbers and names with commas or blanks between them: one of them. `words` are short for ranges.
fn names_record<'a>(
    draft: &mut Draft<'a>,
    keyword: &str,
    opt: Opt<'a>,
    names: &[(&str, u64)],
    words: &[(&str, &[(u64, u64)])],
) -> Parsed<()> {
    let (value, negated) = opt.need()?.unquoted()?.negation();
    let mut spans = Vec::new();
    let parts = value
        .split(b',')
        .into_iter()
        .flat_map(|p| p.trim().split(b' '));
    for part in parts.filter(|p| !p.trim().bytes.is_empty()) {
        let text = part.trim().lossy();
        let short = words.iter().find(|(w, _)| w.eq_ignore_ascii_case(&text));
        let named = names.iter().find(|(n, _)| n.eq_ignore_ascii_case(&text));
        match (short, named) {
            (Some((_, ranges)), _) => spans.extend_from_slice(ranges),
            (_, Some((_, number))) => spans.push((*number, *number)),
            _ => {
                let number = part.trim().number(0, i64::from(u32::MAX))? as u64;
                spans.push((number, number));
            }
        }
    }
    if spans.is_empty() {
        return Err(value.fail(Kind::Syntax, "a number or a name is expected"));
    }
    let spans: Vec<String> = spans.iter().map(|(l, h)| format!("{l}-{h}")).collect();
    record(draft, keyword, spans.join(","), negated);
    Ok(())
}

/// Names with commas or blanks between them: one of them.
fn choice_record<'a>(
    draft: &mut Draft<'a>,
    keyword: &str,
    opt: Opt<'a>,
    names: &[(&str, u64)],
) -> Parsed<()> {
    let (value, negated) = opt.need()?.unquoted()?.negation();
    let parts = value
        .split(b',')
        .into_iter()
        .flat_map(|p| p.trim().split(b' '));
    let mut numbers = Vec::new();
    for part in parts.filter(|p| !p.trim().bytes.is_empty()) {
        numbers.push(number_of(part.trim(), names)?.to_string());
    }
    if numbers.is_empty() {
        return Err(value.fail(Kind::Syntax, "a name is expected"));
    }
    record(draft, keyword, numbers.join(","), negated);
    Ok(())
}

/// What a name stands for.
fn number_of(word: Text<'_>, names: &[(&str, u64)]) -> Parsed<u64> {
    let text = word.lossy();
    let found = names.iter().find(|(n, _)| n.eq_ignore_ascii_case(&text));
    found.map(|(_, number)| *number).ok_or_else(|| {
        let list: Vec<&str> = names.iter().map(|n| n.0).collect();
        let reason = format!("`{text}` is none of {}", list.join(", "));
        word.fail(Kind::Value, reason)
    })
}

/// A name, `=`, and the number that it has.
fn attribute_record<'a>(
    draft: &mut Draft<'a>,
    keyword: &str,
    opt: Opt<'a>,
    names: &[(&str, u64)],
) -> Parsed<()> {
    let value = opt.need()?.unquoted()?;
    let Some((name, number)) = value.cut(b'=') else {
        return Err(value.fail(Kind::Syntax, "a name, `=` and a number are expected"));
    };
    let which = number_of(name.trim(), names)?;
    let number = number.trim().number(0, i64::from(u32::MAX))? as u64;
    record(draft, keyword, (which << 32 | number).to_string(), false);
    Ok(())
}

/// One to three numbers, each below the one before.
fn steps_record<'a>(draft: &mut Draft<'a>, facts: [&str; 3], opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?.unquoted()?;
    let parts = commas(value);
    let top = [0xff, 0xffff, 0xffff];
    if parts.len() > top.len() {
        return Err(value.fail(Kind::Syntax, "one to three numbers are expected"));
    }
    let mut numbers = Vec::new();
    for (part, top) in parts.iter().zip(top) {
        numbers.push(part.number(0, top)? as u64);
    }
    let (fact, number) = match numbers[..] {
        [one] => (facts[0], one),
        [one, two] => (facts[1], one << 32 | two),
        [one, two, three] => (facts[2], (one << 32 | two) << 16 | three),
        _ => return Err(value.fail(Kind::Syntax, "a number is expected")),
    };
    record(draft, fact, number.to_string(), false);
    Ok(())
}

/// `dcerpc.iface`: a UUID, and which versions of it. In Snort's dialect the words `uuid` and `version` may stand in front.
pub(super) fn interface<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let mut parts = commas(opt.need()?.unquoted()?).into_iter();
    let Some(first) = parts.next() else {
        return Err(opt.whole.fail(Kind::Syntax, "a UUID is expected"));
    };
    let first = first.strip("uuid ").unwrap_or(first).trim();
    let wrong = || first.fail(Kind::Value, "a UUID is 8-4-4-4-12 hexadecimal digits");
    let lengths = first
        .split(b'-')
        .iter()
        .map(|p| p.len())
        .collect::<Vec<_>>();
    if lengths != [8, 4, 4, 4, 12] {
        return Err(wrong());
    }
    let digits: String = first.lossy().split('-').collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|_| wrong())?;
    for (name, half) in [
        (INTERFACE_HIGH, (number >> 64) as u64),
        (INTERFACE_LOW, number as u64),
    ] {
        record(draft, name, half.to_string(), false);
    }
    for part in parts {
        if part.is("any_frag") {
            continue;
        }
        let version = part.strip("version ").unwrap_or(part).trim();
        let span = range(version, u64::from(u16::MAX), draft.dialect)?;
        let written = format!("{}-{}", span.low, span.high);
        record(draft, INTERFACE_VERSION, written, span.negated);
    }
    Ok(())
}

/// One of a few words of a transaction's record.
fn word_record<'a>(
    draft: &mut Draft<'a>,
    keyword: &str,
    opt: Opt<'a>,
    known: &[(&str, u64)],
) -> Parsed<()> {
    let value = opt.need()?.unquoted()?;
    let (word, negated) = value.negation();
    let number = number_of(word, known)?;
    record(draft, keyword, number.to_string(), negated);
    Ok(())
}

/// Bits of a number of a transaction's record.
fn flag_record<'a>(
    draft: &mut Draft<'a>,
    keyword: &str,
    opt: Opt<'a>,
    known: &[(&str, u64)],
) -> Parsed<()> {
    let (mut mask, mut set) = (0, 0);
    for part in opt.need()?.unquoted()?.split(b',') {
        let (word, negated) = part.trim().negation();
        let bit = number_of(word, known)?;
        if mask & bit != 0 {
            let reason = format!("`{}` is there twice", word.lossy());
            return Err(word.fail(Kind::Conflict, reason));
        }
        mask |= bit;
        if !negated {
            set |= bit;
        }
    }
    record(draft, keyword, format!("&{mask}={set}"), false);
    Ok(())
}

/// A date of a transaction's record: exact, `<`, `>`, or `a<>b`.
fn date_record<'a>(draft: &mut Draft<'a>, keyword: &str, opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?.unquoted()?;
    let (low, high) = if let Some(rest) = value.strip("<") {
        (0, date(rest.trim())?.saturating_sub(1))
    } else if let Some(rest) = value.strip(">") {
        (date(rest.trim())? + 1, u64::MAX)
    } else if let Some(at) = value.bytes.windows(2).position(|w| w == b"<>") {
        let low = date(value.part(0..at).trim())?;
        let high = date(value.from(at + 2).trim())?;
        if low + 1 >= high {
            return Err(value.fail(Kind::Value, "no time is between these"));
        }
        (low + 1, high - 1)
    } else {
        let exactly = date(value)?;
        (exactly, exactly)
    };
    record(draft, keyword, format!("{low}-{high}"), false);
    Ok(())
}

/// Seconds since 1970 of `YYYY[-MM[-DD[ HH[:MM[:SS]]]]]`, with a blank or `T` before the hour.
fn date(text: Text<'_>) -> Parsed<u64> {
    let wrong = || {
        text.fail(
            Kind::Value,
            "a date is YYYY-MM-DD HH:MM:SS, or its beginning",
        )
    };
    let word = text.str()?;
    let mut numbers = [1970u64, 1, 1, 0, 0, 0];
    let mut rest = word;
    for (at, slot) in numbers.iter_mut().enumerate() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits != if at == 0 { 4 } else { 2 } {
            return Err(wrong());
        }
        *slot = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let Some(sign) = rest.chars().next() else {
            break;
        };
        let fits = match at {
            0 | 1 => sign == '-',
            2 => sign == ' ' || sign == 'T',
            3 | 4 => sign == ':',
            _ => false,
        };
        if !fits {
            return Err(wrong());
        }
        rest = &rest[1..];
    }
    let [year, month, day, hour, minute, second] = numbers;
    let good = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !good {
        return Err(wrong());
    }
    // Days since 1970, with years that begin in March.
    let (y, m) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Ok(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// `modbus:[unit N,] function ...` or `access ...`.
pub(super) fn modbus<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    if !draft.header_apps.is_empty() && !draft.header_apps.contains(&App::Modbus) {
        let header = draft.protocol_at.lossy();
        let reason = format!("`modbus` in a rule about `{header}`: it never matches");
        return Err(opt.whole.fail(Kind::Conflict, reason));
    }
    let parts = commas(opt.need()?);
    let mut rest = &parts[..];
    let unit = match headed(rest, "unit") {
        Some(value) => {
            rest = &rest[1..];
            Some(plain_range(value, 255)?)
        }
        None => None,
    };
    let what = match rest {
        [] if unit.is_some() => ModbusWhat::Any,
        [first, behind @ ..] => match headed(rest, "function") {
            Some(value) => modbus_function(value, behind)?,
            None if first.words().first().is_some_and(|w| w.is("access")) => {
                modbus_access(*first, behind)?
            }
            None => return Err(first.fail(Kind::Syntax, MODBUS_FORM)),
        },
        [] => return Err(opt.whole.fail(Kind::Syntax, MODBUS_FORM)),
    };
    let asked = Box::new(ModbusAsked { unit, what });
    draft.rule.packet.push(PacketCondition::Modbus(asked));
    if draft.header_apps.is_empty() && !draft.rule.apps.contains(&(App::Modbus, false)) {
        draft.rule.apps.push((App::Modbus, false));
    }
    draft.rule.flow.to_server.get_or_insert(true);
    Ok(())
}

const MODBUS_FORM: &str = "the form is `[unit N,] function ...` or `[unit N,] access ...`";

/// What stands behind a word at the beginning of the first part.
fn headed<'a>(parts: &[Text<'a>], word: &str) -> Option<Text<'a>> {
    let first = parts.first()?;
    let found = first.words().first().copied().filter(|w| w.is(word))?;
    Some(first.from(found.len()).trim())
}

/// A number or a range, without `!`.
fn plain_range(text: Text<'_>, top: u64) -> Parsed<RangeInclusive<u64>> {
    let range = range(text, top, Dialect::Suricata)?;
    if range.negated || range.mask != u64::MAX {
        let reason = "a number, `<n`, `>n` or `a<>b` is possible here";
        return Err(text.fail(Kind::Value, reason));
    }
    Ok(range.low..=range.high)
}

fn modbus_function(value: Text<'_>, behind: &[Text<'_>]) -> Parsed<ModbusWhat> {
    let (word, negated) = value.negation();
    let word = word.trim();
    let group = ModbusFunctions::NAMES.iter().find(|(n, _)| word.is(n));
    let what = match group {
        Some((_, ModbusFunctions::All)) if negated => {
            return Err(value.fail(Kind::Value, "`!all` is no function"));
        }
        Some((_, group)) => ModbusWhat::Functions(*group, negated),
        None if negated => return Err(value.fail(Kind::Value, MODBUS_GROUPS)),
        None => {
            let number = value.number(1, 127)? as u8;
            let sub = match headed(behind, "subfunction") {
                Some(_) if !matches!(number, 8 | 43) => {
                    let reason = "only the functions 8 (diagnostics) and 43 (encapsulated interfaces) have subfunctions";
                    return Err(value.fail(Kind::Conflict, reason));
                }
                Some(sub) => {
                    let top = if number == 43 { 255 } else { u16::MAX.into() };
                    Some(sub.number(0, top)? as u16)
                }
                None => None,
            };
            let used = usize::from(sub.is_some());
            nothing_more(behind.get(used..).unwrap_or_default())?;
            return Ok(ModbusWhat::Function(number, sub));
        }
    };
    nothing_more(behind)?;
    Ok(what)
}

const MODBUS_GROUPS: &str =
    "groups of functions are assigned, unassigned, public, user, reserved and all";

fn modbus_access(first: Text<'_>, behind: &[Text<'_>]) -> Parsed<ModbusWhat> {
    let words = first.words();
    let write = match words.get(1) {
        Some(word) if word.is("read") => false,
        Some(word) if word.is("write") => true,
        _ => return Err(first.fail(Kind::Syntax, "an access is `read` or `write`")),
    };
    let table = match words.get(2) {
        None => None,
        Some(word) => {
            let found = ModbusTable::NAMES.iter().find(|(n, _)| word.is(n));
            let Some((_, table)) = found else {
                let reason = "a table is discretes, coils, input or holding";
                return Err(word.fail(Kind::Value, reason));
            };
            if write && matches!(table, ModbusTable::Discretes | ModbusTable::Input) {
                let reason = "no request writes this table: coils and holding are written";
                return Err(word.fail(Kind::Conflict, reason));
            }
            Some(*table)
        }
    };
    if let Some(more) = words.get(3) {
        return Err(more.fail(Kind::Syntax, "one table is possible"));
    }
    let mut behind = behind;
    let mut next = |word: &str, top: u64| {
        let value = headed(behind, word)?;
        behind = behind.get(1..).unwrap_or_default();
        Some(plain_range(value, top).map(|range| (value, range)))
    };
    let address = next("address", 1 << 16).transpose()?;
    let value = next("value", u16::MAX.into()).transpose()?;
    nothing_more(behind)?;
    if let Some((at, _)) = &address
        && table.is_none()
    {
        let reason = "an address is of a table, which is missing";
        return Err(at.fail(Kind::Syntax, reason));
    }
    if let Some((at, _)) = &value
        && (!write || address.is_none())
    {
        let reason = "a value is written, at an address";
        return Err(at.fail(Kind::Conflict, reason));
    }
    Ok(ModbusWhat::Access {
        write,
        table,
        address: address.map(|(_, range)| range),
        value: value.map(|(_, range)| range),
    })
}

/// Nothing else may follow.
fn nothing_more(rest: &[Text<'_>]) -> Parsed<()> {
    match rest.first() {
        Some(more) => Err(more.fail(Kind::Syntax, "this is not expected here")),
        None => Ok(()),
    }
}
