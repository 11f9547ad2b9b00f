//! What `rules.json` says of each keyword: its name, and the details that its row in the list of keywords asks for.

use std::ops::Range;

use serde_json::{Map, Value, json};

use crate::rules::keywords::{Show, Word};
use crate::rules::{
    Bit, BitOperation, Comparison, Condition, Content, Group, Number, PacketCondition, Read,
    Spoken, TestOperator, Track, Written, compared,
};

use super::lists::Lists;
use super::names::written;
use super::patterns::Lead;

/// Options of a list that are about no buffer.
pub(super) fn options(lists: &Lists<'_>, options: &[usize]) -> Vec<Value> {
    options.iter().flat_map(|at| option(lists, *at)).collect()
}

/// An option; one that asks several bits is several conditions.
fn option(lists: &Lists<'_>, at: usize) -> Vec<Value> {
    let name = lists.name(at);
    let bare = || vec![json!({"name": name})];
    let shown = lists.word(at).and_then(Word::shown);
    let (Some((show, key)), Some(option)) = (shown, lists.source.options.get(at)) else {
        return bare();
    };
    let detail = match show {
        Show::Model => {
            let details = model(lists, at, option);
            let named = |detail| json!({"name": name, key: detail});
            return match details.is_empty() {
                true => bare(),
                false => details.into_iter().map(named).collect(),
            };
        }
        Show::Number => compared(&option.value).map(comparison),
        Show::Exact => number(option).map(|(n, _)| json!({"number": n})),
        Show::Other => number(option).map(|(n, not)| json!({"size": n, "negated": not})),
        Show::Word => Some(json!({"option": option.value})),
    };
    match detail {
        Some(detail) => vec![json!({"name": name, key: detail})],
        None => bare(),
    }
}

fn number(option: &Written) -> Option<(u64, bool)> {
    match compared(&option.value)? {
        (Comparison::Equal(n), negated) => Some((n, negated)),
        _ => None,
    }
}

/// A comparison, under its name.
fn comparison((comparison, negated): (Comparison, bool)) -> Value {
    let between = |low: u64, high: u64| {
        let name = if negated { "negated_range" } else { "range" };
        json!({name: {"min": low, "max": high}})
    };
    match (comparison, negated) {
        (Comparison::Equal(n), false) => json!({"equal": n}),
        (Comparison::Equal(n), true) => json!({"diff": n}),
        (Comparison::Below(n), false) | (Comparison::AtLeast(n), true) => json!({"lt": n}),
        (Comparison::AtMost(n), false) | (Comparison::Above(n), true) => json!({"lte": n}),
        (Comparison::Above(n), false) | (Comparison::AtMost(n), true) => json!({"gt": n}),
        (Comparison::AtLeast(n), false) | (Comparison::Below(n), true) => json!({"gte": n}),
        (Comparison::Between(low, high) | Comparison::Within(low, high), _) => between(low, high),
        (Comparison::Bits(mask, value), _) => {
            let name = if negated {
                "negated_bitmask"
            } else {
                "bitmask"
            };
            json!({name: {"mask": mask, "value": value}})
        }
    }
}

/// What the model holds of an option.
fn model(lists: &Lists<'_>, at: usize, option: &Written) -> Vec<Value> {
    if lists.word(at) == Some(Word::AppLayerProtocol) {
        return vec![protocols(lists, at, option)];
    }
    let bits = lists.rule.bits.iter().zip(&lists.source.bits);
    bits.filter(|(_, from)| **from == at)
        .map(|(b, _)| bit(b))
        .collect()
}

fn protocols(lists: &Lists<'_>, at: usize, option: &Written) -> Value {
    let value = option.value.trim_start_matches('!');
    let words = value.split(',').next().unwrap_or_default().split('|');
    let words: Vec<&str> = words.map(str::trim).collect();
    let conditions = lists.rule.packet.iter().zip(&lists.source.packet);
    let mut of_option = conditions.filter(|(_, from)| **from == Some(at));
    let spoken = of_option.find_map(|(c, _)| match c {
        PacketCondition::Application(spoken, ..) => Some(*spoken),
        _ => None,
    });
    let mode = match spoken.unwrap_or(Spoken::Final) {
        Spoken::Final => "final",
        Spoken::Direction => "direction",
        Spoken::ToServer => "to_server",
        Spoken::ToClient => "to_client",
        Spoken::Either => "either",
        Spoken::Original => "original",
    };
    json!({"protocols": words, "mode": mode, "negated": option.value.starts_with('!')})
}

fn bit(bit: &Bit) -> Value {
    let word = |operation: BitOperation| match operation {
        BitOperation::Set => "set",
        BitOperation::Unset => "unset",
        BitOperation::Toggle => "toggle",
        BitOperation::IsSet => "isset",
        BitOperation::IsNotSet => "isnotset",
    };
    match bit {
        Bit::Flow { operation, names } => {
            let mut out = json!({"cmd": word(*operation), "names": names});
            if names.len() > 1
                && let Value::Object(map) = &mut out
            {
                map.insert("operator".to_owned(), "or".into());
            }
            out
        }
        Bit::Host {
            operation,
            name,
            track,
            expire,
        } => {
            let track = match track {
                Track::Source => "ip_src",
                Track::Destination => "ip_dst",
                Track::Pair => "ip_pair",
                Track::Rule => "rule",
                Track::Flow => "flow",
            };
            json!({"cmd": word(*operation), "name": name, "track": track, "expire": expire})
        }
        Bit::Counter {
            name,
            operator,
            value,
        } => {
            json!({"name": name, "operator": operator, "value": value.as_ref().map(shown)})
        }
        Bit::Transaction { operation, name } => {
            json!({"cmd": word(*operation), "name": name, "track": "tx"})
        }
        Bit::Unlog => Value::Null,
    }
}

/// Conditions of a group, some of them.
pub(super) fn conditions(
    lists: &Lists<'_>,
    group: usize,
    range: Range<usize>,
    lead: Option<&Lead<'_>>,
) -> Vec<Value> {
    let (Some(of), Some(from)) = (
        lists.rule.groups.get(group),
        lists.source.conditions.get(group),
    ) else {
        return Vec::new();
    };
    let numbered = of.conditions.iter().zip(from).enumerate();
    let some = numbered.skip(range.start).take(range.len());
    some.map(|(at, (c, option))| {
        let leads = lead.is_some_and(|l| (l.group, l.condition) == (group, at));
        match c {
            Condition::Content(_) => {
                json!({"name": "content", "content": content(lists, of, group, at, leads)})
            }
            Condition::Pcre(_) => condition("pcre", "pcre", pcre(of, at)),
            other => {
                let shown = lists.word(*option).and_then(Word::shown);
                let name = lists.name(*option);
                match (shown, other) {
                    (Some((Show::Number, key)), _) => {
                        let option = lists.source.options.get(*option);
                        condition(
                            name,
                            key,
                            option.and_then(|o| compared(&o.value)).map(comparison),
                        )
                    }
                    (Some((_, key)), other) => condition(name, key, reading(other)),
                    (None, _) => json!({"name": name}),
                }
            }
        }
    })
    .collect()
}

fn condition(name: &str, key: &str, detail: Option<Value>) -> Value {
    match detail {
        Some(detail) => json!({"name": name, key: detail}),
        None => json!({"name": name}),
    }
}

/// Whether the condition behind this one counts from where this one ends.
fn is_followed(group: &Group, at: usize) -> bool {
    group.conditions.get(at + 1).is_some_and(|c| match c {
        Condition::Content(c) => c.distance.is_some() || c.within.is_some(),
        Condition::Pcre(p) => p.relative,
        Condition::IsDataAt { relative, .. } => *relative,
        Condition::ByteTest(t) => t.read.relative,
        Condition::ByteJump(j) => j.read.relative,
        Condition::ByteExtract(e) => e.read.relative,
        Condition::ByteMath(m) => m.read.relative,
        Condition::Base64Decode(b) => b.relative,
        Condition::Asn1(a) => a.relative,
        _ => false,
    })
}

/// Whether a content that is relative counts from the buffer's start: nothing before it has a place.
pub(super) fn is_first(group: &Group, at: usize) -> bool {
    let before = group.conditions.iter().take(at);
    !before.into_iter().any(|c| {
        matches!(
            c,
            Condition::Content(_)
                | Condition::Pcre(_)
                | Condition::ByteJump(_)
                | Condition::ByteTest(_)
                | Condition::ByteExtract(_)
                | Condition::ByteMath(_)
                | Condition::IsDataAt { .. }
                | Condition::Base64Data
        )
    })
}

/// A content, also of `mpm`.
pub(super) fn content(
    lists: &Lists<'_>,
    group: &Group,
    group_at: usize,
    at: usize,
    leads: bool,
) -> Value {
    let Some(Condition::Content(c)) = group.conditions.get(at) else {
        return Value::Null;
    };
    let marked = lists.rule.fast_pattern;
    let marked = marked.is_some_and(|f| (f.group, f.condition) == (group_at, at));
    let followed = is_followed(group, at);
    let placed = c.offset.is_some() || c.depth.is_some() || c.starts || c.ends;
    let moved = c.distance.is_some() || c.within.is_some();
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("pattern", written(&c.bytes).into());
    put("length", c.bytes.len().into());
    put("nocase", c.nocase.into());
    put("negated", c.negated.into());
    put("starts_with", c.starts.into());
    put("ends_with", c.ends.into());
    put("is_mpm", leads.into());
    // What leads decides it alone.
    let decided = leads && !placed && !moved && !followed && !c.negated;
    put("no_double_inspect", decided.into());
    put("fast_pattern", marked.into());
    put("relative_next", followed.into());
    for (key, value) in places(c, is_first(group, at)) {
        put(key, value);
    }
    Value::Object(out)
}

/// Where a content may be: of the first one from the buffer's start.
fn places(c: &Content, first: bool) -> Vec<(&'static str, Value)> {
    if c.starts {
        return vec![("depth", c.bytes.len().into())];
    }
    let mut out = Vec::new();
    let mut put = |key, number: &Option<Number>| {
        if let Some(number) = number {
            out.push((key, shown(number)));
        }
    };
    put("offset", &c.offset);
    put("depth", &c.depth);
    match (first, &c.distance, &c.within) {
        (true, Some(Number::Is(distance)), Some(Number::Is(within))) => {
            put("offset", &c.distance);
            put("depth", &Some(Number::Is(distance.saturating_add(*within))));
        }
        (true, distance, within) => {
            put("offset", distance);
            put("depth", within);
        }
        (false, distance, within) => {
            put("distance", distance);
            put("within", within);
        }
    }
    out
}

fn pcre(group: &Group, at: usize) -> Option<Value> {
    let Some(Condition::Pcre(p)) = group.conditions.get(at) else {
        return None;
    };
    Some(json!({
        "relative": p.relative,
        "relative_next": is_followed(group, at),
        "nocase": p.caseless,
        "negated": p.negated,
    }))
}

/// A condition that reads numbers, or is about a buffer as a whole.
fn reading(c: &Condition) -> Option<Value> {
    let own = |read: &Read, own: &[(&str, Value)], flags: &[(bool, &str)]| {
        let mut out = Map::new();
        out.insert("nbytes".to_owned(), shown(&read.bytes));
        out.insert("offset".to_owned(), shown(&read.offset));
        let base = match read.string {
            None => "unset",
            Some(16) => "hex",
            Some(8) => "oct",
            Some(_) => "dec",
        };
        out.insert("base".to_owned(), base.into());
        for (key, value) in own {
            out.insert((*key).to_owned(), value.clone());
        }
        if let Some(mask) = read.bitmask {
            out.insert("bitmask".to_owned(), mask.into());
        }
        let common = [
            (read.little, "little_endian"),
            (read.string.is_some(), "string"),
            (read.relative, "relative"),
        ];
        let all = common.iter().chain(flags);
        let named: Vec<&str> = all.filter(|(is, _)| *is).map(|(_, n)| *n).collect();
        out.insert("flags".to_owned(), named.into());
        Some(Value::Object(out))
    };
    match c {
        Condition::ByteTest(t) => own(
            &t.read,
            &[
                ("operator", operator(t.operator).into()),
                ("value", shown(&t.value)),
                ("negated", t.negated.into()),
            ],
            &[(t.read.dce, "dce")],
        ),
        Condition::ByteJump(j) => own(
            &j.read,
            &[
                ("multiplier", j.multiplier.into()),
                ("post_offset", shown(&j.post_offset)),
            ],
            &[
                (j.align, "align"),
                (j.read.dce, "dce"),
                (j.from_beginning, "from_beginning"),
                (j.from_end, "from_end"),
            ],
        ),
        Condition::ByteExtract(e) => own(
            &e.read,
            &[
                ("name", e.name.as_str().into()),
                ("multiplier", e.multiplier.into()),
            ],
            &[(e.align != 0, "align"), (e.read.dce, "dce")],
        ),
        Condition::ByteMath(m) => own(
            &m.read,
            &[
                ("result", m.name.as_str().into()),
                ("value", shown(&m.value)),
            ],
            &[(m.read.dce, "dce")],
        ),
        Condition::IsDataAt {
            offset,
            relative,
            negated,
        } => Some(json!({"offset": shown(offset), "relative": relative, "negated": negated})),
        Condition::Absent(or_else) => Some(json!({"or_else": or_else})),
        _ => None,
    }
}

fn operator(operator: TestOperator) -> &'static str {
    match operator {
        TestOperator::Less => "<",
        TestOperator::Greater => ">",
        TestOperator::Equal => "=",
        TestOperator::LessEqual => "<=",
        TestOperator::GreaterEqual => ">=",
        TestOperator::And => "&",
        TestOperator::Xor => "^",
    }
}

fn shown(number: &Number) -> Value {
    match number {
        Number::Is(n) => (*n).into(),
        Number::Variable(name) => name.as_str().into(),
    }
}
