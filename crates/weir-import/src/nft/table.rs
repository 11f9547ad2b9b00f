//! What a table defines for its chains, the elements of sets, and what rules do to sets.

use std::collections::BTreeMap;
use std::time::Duration;

use super::tokens::{Kind, Token};
use crate::condition::{Condition, Field, IP4, IP6};
use crate::numbers::Numbers;

/// A named set or map.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    /// Words of each element; of a map with `:` between key and value.
    pub(super) elements: Vec<Vec<Token>>,
    /// Filled by packets, or with elements that end: the file does not say what it holds.
    pub(super) changes: bool,
    pub(super) size: Option<u64>,
    /// How long an element stays, unless a rule says otherwise.
    pub(super) timeout: Option<Duration>,
}

/// What a table defines for its chains.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) family: String,
    pub(super) name: String,
    pub(super) sets: BTreeMap<String, Named>,
    /// What its rules do to sets.
    pub(super) uses: BTreeMap<String, Uses>,
}

impl Table {
    pub(super) fn scoped(&self, chain: &str) -> String {
        format!("{} {}/{chain}", self.family, self.name)
    }

    /// Packets that its chains see.
    pub(super) fn covers(&self) -> Vec<Condition> {
        let only = |versions: &[u128]| {
            let set = versions.iter().map(|&version| (version, version)).collect();
            Condition::of(Field::EthType, Numbers::new(set))
                .into_iter()
                .collect()
        };
        match self.family.as_str() {
            "ip" => only(&[IP4]),
            "ip6" => only(&[IP6]),
            "arp" => only(&[0x0806]),
            "inet" => only(&[IP4, IP6]),
            _ => vec![Condition::any()],
        }
    }
}

/// The place of the brace that closes the one at `open`, or the end.
pub(super) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The elements of `{ ... }`, inner braces taken apart.
pub(super) fn elements(tokens: &[Token]) -> Vec<Vec<Token>> {
    let mut out = Vec::new();
    let mut one: Vec<Token> = Vec::new();
    for token in tokens {
        match token.kind {
            Kind::Open | Kind::Close | Kind::End => {}
            Kind::Comma => out.push(std::mem::take(&mut one)),
            _ => one.push(token.clone()),
        }
    }
    out.push(one);
    out.retain(|one| !one.is_empty());
    out
}

/// What the rules of a table do to a set.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    /// Statements that count in its elements.
    pub(super) limits: usize,
    pub(super) updates: usize,
    pub(super) timeouts: Vec<String>,
}

/// What all rules of a table do to its sets.
pub(super) fn uses(tokens: &[Token]) -> BTreeMap<String, Uses> {
    let mut all: BTreeMap<String, Uses> = BTreeMap::new();
    for (at, token) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(at + n).map_or("", |token| token.text.as_str());
        let name = match (token.text.as_str(), next(1)) {
            ("add" | "update", name) if name.starts_with('@') => name.trim_start_matches('@'),
            ("meter", name) => name,
            _ => continue,
        };
        // A statement is short; what is longer is not read.
        let rest = tokens
            .get(at..tokens.len().min(at + 64))
            .unwrap_or_default();
        let open = rest.iter().position(|token| token.kind == Kind::Open);
        let inside = open.and_then(|open| rest.get(open..closing(rest, open)));
        let inside = inside.unwrap_or_default();
        let uses = all.entry(name.to_owned()).or_default();
        uses.updates += usize::from(token.text == "update");
        uses.limits += usize::from(inside.iter().any(|token| token.text == "limit"));
        let timeout = inside.iter().position(|token| token.text == "timeout");
        let timeout = timeout.and_then(|at| inside.get(at + 1));
        let timeout = timeout.map_or(String::new(), |token| token.text.clone());
        if !uses.timeouts.contains(&timeout) {
            uses.timeouts.push(timeout);
        }
    }
    all
}

/// `1d2h3m4s5ms`
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at_checked(digits)?;
        let units = [
            ("ms", 1),
            ("d", 86_400_000),
            ("h", 3_600_000),
            ("m", 60_000),
            ("s", 1000),
        ];
        let unit = units.iter().find(|(unit, _)| tail.starts_with(unit));
        // A number alone is seconds.
        let (unit, ms) = unit.copied().or(tail.is_empty().then_some(("", 1000)))?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(ms)?)?;
        rest = tail.strip_prefix(unit)?;
    }
    Some(Duration::from_millis(total))
}
