//! What a table defines for its chains, and the elements of sets.

use std::collections::BTreeMap;

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
}

/// What a table defines for its chains.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) family: String,
    pub(super) name: String,
    pub(super) sets: BTreeMap<String, Named>,
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
