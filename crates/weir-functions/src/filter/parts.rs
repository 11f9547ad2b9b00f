//! The parts of a packet that are not addresses: rows of ports and kinds, and what each rule does when it is asked.

use std::collections::HashMap;
use std::hash::Hasher;

use weir_bpf::abi::FilterRule;
use weir_bpf::abi::filter::{self, flag, kind, per};

use super::Filter;
use super::address::{Fnv, Meters};
use super::compile::{CompileError, Variant};
use super::rule::{Action, Kind, Per, Ports, Rule, Test};
use super::tables::{Asks, NO_RULE, Rows};

/// What rows are made from.
pub(super) struct Parts<'f> {
    pub(super) filter: &'f Filter,
    pub(super) variants: &'f [Variant],
    pub(super) rows: &'f mut Rows,
}

impl Parts<'_> {
    /// Rows of source ports, then of destination ports, and the row of packets without ports.
    pub(super) fn ports(&mut self) -> Result<(Vec<u16>, u32), CompileError> {
        let mut out = Vec::with_capacity(2 * 65_536);
        for side in [0, 1] {
            let mut cuts: Vec<u32> = vec![0];
            for variant in self.variants {
                let (test, port) = self.port_test(variant, side);
                let ranges = test
                    .into_iter()
                    .flat_map(|t| t.any.iter().copied())
                    .chain(port.map(|p| (p, p)));
                cuts.extend(ranges.flat_map(|(low, high)| [u32::from(low), u32::from(high) + 1]));
            }
            cuts.sort_unstable();
            cuts.dedup();
            cuts.retain(|cut| *cut < 65_536);
            for (at, cut) in cuts.iter().enumerate() {
                let end = cuts.get(at + 1).copied().unwrap_or(65_536);
                let holds = |variant: &usize| {
                    let (test, port) = self.port_test(&self.variants[*variant], side);
                    let value = *cut as u16;
                    let within = |t: &Test<Ports>| {
                        t.any
                            .iter()
                            .any(|(low, high)| (*low..=*high).contains(&value))
                            != t.is_negated
                    };
                    test.is_none_or(within) && port.is_none_or(|port| port == value)
                };
                let rules: Vec<usize> = (0..self.variants.len()).filter(holds).collect();
                let row = self
                    .rows
                    .of(rules.into_iter())
                    .map_err(|_| CompileError::TooManyRows)?;
                out.resize(side * 65_536 + end as usize, row as u16);
            }
        }
        let without = |variant: &usize| {
            let variant = &self.variants[*variant];
            [0, 1]
                .iter()
                .all(|side| self.port_test(variant, *side) == (None, None))
        };
        let rules: Vec<usize> = (0..self.variants.len()).filter(without).collect();
        let none = self
            .rows
            .of(rules.into_iter())
            .map_err(|_| CompileError::TooManyRows)?;
        Ok((out, none))
    }

    fn port_test(&self, variant: &Variant, side: usize) -> (Option<&Test<Ports>>, Option<u16>) {
        let rule = &self.filter.rules[variant.rule];
        let test = if side == 0 {
            &rule.from_port
        } else {
            &rule.to_port
        };
        (test.as_ref(), variant.only[side].port)
    }

    /// Rows of kinds. `first_only`: nothing else has rows, and the number of the first rule takes the place of a row.
    pub(super) fn kinds(&mut self, first_only: bool) -> Result<Vec<u16>, CompileError> {
        let mut known: HashMap<Vec<usize>, u16> = HashMap::new();
        let mut out = Vec::with_capacity(filter::KINDS);
        for number in 0..filter::KINDS as u32 {
            let holds = |variant: &usize| {
                let variant = &self.variants[*variant];
                let only = variant.only.iter().filter_map(|only| only.protocol);
                self.filter.rules[variant.rule]
                    .kinds
                    .iter()
                    .all(|test| holds_kind(test, number))
                    && only
                        .into_iter()
                        .all(|protocol| u32::from(protocol) == number & 255)
            };
            let rules: Vec<usize> = (0..self.variants.len()).filter(holds).collect();
            let row = match known.get(&rules) {
                Some(row) => *row,
                None => {
                    let row = match first_only {
                        true => rules.first().map_or(NO_RULE, |rule| *rule) as u16,
                        false => self
                            .rows
                            .of(rules.iter().copied())
                            .map_err(|_| CompileError::TooManyRows)?
                            as u16,
                    };
                    known.insert(rules, row);
                    row
                }
            };
            out.push(row);
        }
        Ok(out)
    }

    /// What a bit does when it is asked. CPUs it moves packets to go behind those of the list.
    pub(super) fn rule(
        &self,
        variant: &Variant,
        meters: &Meters,
        cpu_list: &mut Vec<u32>,
    ) -> FilterRule {
        let rule = &self.filter.rules[variant.rule];
        let mut out = FilterRule {
            action: rule.action.number(),
            id: identity(&self.filter.rules, variant.rule),
            ..FilterRule::default()
        };
        let slot = |side: usize| match variant.asks[side] {
            Asks::List(list) => Some(meters.slot_of[side][usize::from(list)]),
            _ => None,
        };
        if let Some(slot) = slot(0) {
            out.flags |= flag::HIT_SRC;
            out.slot_src = slot;
        }
        if let Some(slot) = slot(1) {
            out.flags |= flag::HIT_DST;
            out.slot_dst = slot;
        }
        match &rule.action {
            Action::Allow { mark, cpus } => {
                if !cpus.is_empty() {
                    out.flags |= flag::CPU;
                    out.cpu_first = cpu_list.len() as u16;
                    out.cpus = cpus.len() as u8;
                    cpu_list.extend(cpus);
                }
                if let Some(mark) = mark {
                    out.flags |= flag::MARK;
                    out.mark = *mark;
                }
            }
            Action::Shed { above, .. } => out.above = *above,
            Action::Limit(limit) => {
                out.interval_ns = limit.interval_ns;
                out.burst_ns = limit.ahead_ns();
                out.block_ns = limit.block_ns;
                match limit.per {
                    Per::Rule => out.per = per::RULE,
                    Per::Source { len4, len6 } => {
                        (out.per, out.len4, out.len6) = (per::SOURCE, len4, len6)
                    }
                    Per::Entry => {
                        out.per = per::ENTRY;
                        if slot(0).is_none() {
                            out.flags |= flag::ENTRY_DST;
                        }
                    }
                }
            }
            Action::Deny | Action::Cookie => {}
        }
        out
    }
}

fn holds_kind(test: &Test<Kind>, number: u32) -> bool {
    let one = |kind: &Kind| match kind {
        Kind::Protocol(protocol) => u32::from(*protocol) == number & 255,
        Kind::TcpSyn => number & 255 == 6 && number & kind::SYN != 0,
        Kind::Fragment => number & kind::FRAGMENT != 0,
        Kind::Family { is_ip6 } => *is_ip6 == (number & kind::IP6 != 0),
    };
    test.any.iter().any(one) != test.is_negated
}

/// By which the state of a rule is found again after others were edited: its text, and which of those with the same text it is, so that
/// no two rules of a filter share what they count.
fn identity(rules: &[Rule], number: usize) -> u32 {
    let text = &rules[number].text;
    let before = rules[..number].iter().filter(|r| r.text == *text).count();
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(text.as_bytes());
    if before > 0 {
        hasher.write(&(before as u32).to_be_bytes());
    }
    let hash = hasher.finish();
    (hash ^ hash >> 32) as u32
}
