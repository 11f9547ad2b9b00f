//! Which content of a rule leads to it, by its text alone, and the list of all contents (`patterns.json`). Detection chooses its own leads, by how often a content is seen (`detect`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::buffer::Buffer;
use crate::rules::{Condition, Content};

use super::lists::{Lists, decoded};
use super::names::{engine_name, written};

/// The content that leads to a rule.
#[derive(Clone, Copy)]
pub(super) struct Lead<'a> {
    pub(super) group: usize,
    pub(super) condition: usize,
    pub(super) content: &'a Content,
}

/// The content that `fast_pattern` marks; else of those that must be there the one in the rarest kind of buffer, then the longest, then the one of the most telling bytes, then the first.
/// Where each must not be there, one of those.
pub(super) fn lead<'a>(lists: &Lists<'a>) -> Option<Lead<'a>> {
    let groups = &lists.rule.groups;
    let contents = groups.iter().enumerate().flat_map(|(group, g)| {
        let (own, _) = decoded(g);
        let conditions = g.conditions.iter().take(own).enumerate();
        conditions.filter_map(move |(condition, c)| match c {
            Condition::Content(content) => Some(Lead {
                group,
                condition,
                content,
            }),
            _ => None,
        })
    });
    let contents: Vec<Lead<'a>> = contents.collect();
    if let Some(named) = lists.rule.fast_pattern {
        let is = |l: &&Lead<'_>| (l.group, l.condition) == (named.group, named.condition);
        return contents.iter().find(is).copied();
    }
    let usable = |l: &&Lead<'_>| {
        let c = l.content;
        !c.negated || c.distance.is_none() && c.within.is_none()
    };
    let rank = |l: &Lead<'_>| {
        let common = groups.get(l.group).is_some_and(|g| is_common(g.buffer));
        let bytes = &l.content.bytes;
        (!l.content.negated, !common, bytes.len(), telling(bytes))
    };
    // Of equal ones the first.
    let all = contents.iter().filter(usable).rev();
    all.max_by_key(|l| rank(l)).copied()
}

/// Buffers that nearly every packet or transaction has, with much the same in them.
fn is_common(buffer: Buffer) -> bool {
    matches!(
        buffer,
        Buffer::Payload | Buffer::HttpMethod | Buffer::HttpStatusCode | Buffer::HttpStatusMessage
    )
}

/// How much the bytes of a content tell: letters little, other text more, other bytes most; what comes again little.
fn telling(bytes: &[u8]) -> usize {
    let mut seen = [false; 256];
    let of = |b: &u8| match std::mem::replace(&mut seen[usize::from(*b)], true) {
        true => 1,
        false if b.is_ascii_alphabetic() => 3,
        false if matches!(b, 0x20..=0x7e | 0 | 1 | 0xff) => 4,
        false => 6,
    };
    bytes.iter().map(of).sum()
}

/// How often a content is asked for, and how often it leads.
#[derive(Default)]
struct Count {
    all: usize,
    leads: usize,
}

/// Of one buffer: a content, and whether case counts.
type Contents = BTreeMap<(Vec<u8>, bool), Count>;

/// The contents of all rules, by buffer.
#[derive(Default)]
pub(super) struct Patterns {
    buffers: BTreeMap<(bool, &'static str), Contents>,
}

impl Patterns {
    /// Adds those of a rule.
    pub(super) fn add(&mut self, lists: &Lists<'_>, lead: Option<&Lead<'_>>) {
        for (at, group) in lists.rule.groups.iter().enumerate() {
            let (own, _) = decoded(group);
            for (condition, c) in group.conditions.iter().enumerate() {
                let Condition::Content(content) = c else {
                    continue;
                };
                let name = match condition < own {
                    true => engine_name(group.buffer),
                    false => "base64_data",
                };
                let buffer = self.buffers.entry((condition >= own, name)).or_default();
                let key = (content.bytes.clone(), content.nocase);
                let count = buffer.entry(key).or_default();
                count.all += 1;
                let leads = |l: &Lead<'_>| (l.group, l.condition) == (at, condition);
                count.leads += usize::from(lead.is_some_and(leads));
            }
        }
    }

    /// As `patterns.json` has them.
    pub(super) fn json(&self) -> Value {
        let buffers = self.buffers.iter().map(|((_, name), patterns)| {
            let list: Vec<Value> = patterns
                .iter()
                .map(|((bytes, nocase), count)| {
                    json!({
                        "pattern": written(bytes),
                        "patlen": bytes.len(),
                        "cnt": count.all,
                        "mpm": count.leads,
                        "nocase": nocase,
                    })
                })
                .collect();
            json!({"name": name, "patterns": list})
        });
        json!({"buffers": buffers.collect::<Vec<_>>()})
    }
}
