//! Rules, ready to be decided, and the lists that lead from a packet, a piece or a transaction to the few rules worth deciding.

use std::sync::Arc;

use crate::buffer::BufferSet;
use crate::matcher::{Engine, Matcher};
use crate::packet::Direction;
#[cfg(test)]
use crate::rules::Expression;
use crate::rules::{Expressions, Reputation, Rule, SourceLocation};

use super::address::AddressMap;
use super::compile::{Build, Compiled};
use super::flow::FlowState;
use super::gate::{CLASSES, Quick};
use super::growth::Growth;
use super::plan::Plans;
use super::tables::Tables;
use super::transform::Change;

/// A rule that detection cannot decide, with the reason; it is in no list and never matches.
#[derive(Clone, Debug)]
pub struct Unsupported {
    /// Its generator.
    pub gid: u32,
    /// Its number.
    pub sid: u32,
    /// Where it was written.
    pub place: SourceLocation,
    /// Why.
    pub reason: String,
}

/// Patterns of a kind of buffer, and the rules that each leads to.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) matcher: Matcher,
    pub(super) changes: Box<[Change]>,
    pub(super) heads: Box<[u32]>,
    pub(super) rules: Box<[u32]>,
    /// The longest pattern.
    pub(super) longest: usize,
    /// No pattern is wanted behind this byte of its buffer; the largest number if it may be anywhere.
    pub(super) reach: usize,
    /// The scan of `file.data` searches for its patterns as well.
    pub(super) joined: bool,
}

impl Scan {
    /// The rules that a pattern leads to.
    pub(super) fn rules(&self, pattern: u32) -> &[u32] {
        let at = pattern as usize;
        match (self.heads.get(at), self.heads.get(at + 1)) {
            (Some(from), Some(to)) => self
                .rules
                .get(*from as usize..*to as usize)
                .unwrap_or_default(),
            _ => &[],
        }
    }

    fn memory(&self) -> usize {
        self.matcher.memory() + (self.heads.len() + self.rules.len()) * 4
    }
}

/// Rules by the addresses they name.
#[derive(Debug, Default)]
pub(super) struct ByAddress {
    pub(super) source: AddressMap,
    pub(super) destination: AddressMap,
    /// Those that name none, or half the world.
    pub(super) rest: Box<[u32]>,
}

impl ByAddress {
    fn memory(&self) -> usize {
        self.source.memory() + self.destination.memory() + self.rest.len() * 4
    }
}

/// What leads from a buffer of transactions to rules.
#[derive(Debug, Default)]
pub(super) struct Leads {
    /// By buffer: scans, one for each chain of transforms.
    pub(super) scans: Vec<Vec<u32>>,
    /// By buffer: rules without a usable pattern.
    pub(super) bare: Vec<Vec<u32>>,
    /// Rules about no buffer that must be there.
    pub(super) always: Vec<u32>,
}

/// Rules, ready to be decided; immutable, shared by all workers.
#[derive(Debug)]
pub struct Ruleset {
    /// Shared with the set that comes after this one, where they stay the same.
    pub(super) rules: Vec<Arc<Rule>>,
    pub(super) compiled: Vec<Compiled>,
    /// Rules of the firewall; they are in no other list.
    pub(super) firewall: Tables,
    pub(super) reputation: Arc<Reputation>,
    pub(super) quick: Vec<Quick>,
    pub(super) scans: Vec<Scan>,
    pub(super) addresses: ByAddress,
    pub(super) apps: Vec<u32>,
    /// Rules without a pattern that are decided on every packet, by class.
    pub(super) packets: [Vec<u32>; CLASSES],
    /// Those that ask for a bit of the flow which a rule about streams sets: they are asked again when one has.
    pub(super) follows: Box<[u32]>,
    /// Those of TCP that ask for SYN.
    pub(super) syn: ByAddress,
    /// Scans of packets' payloads, by class and direction.
    pub(super) payloads: [[Vec<u32>; 2]; CLASSES],
    /// Scans of streams by direction.
    pub(super) streams: [Vec<u32>; 2],
    /// What of all this is worth asking, by kinds of traffic.
    pub(super) plans: Plans,
    /// Rules of streams without a usable pattern.
    pub(super) bare_streams: [Vec<u32>; 2],
    /// Of transactions: by direction, and the third for those that look at both.
    pub(super) leads: [Leads; 4],
    pub(super) buffers: BufferSet,
    pub(super) flow_bits: usize,
    /// Names of flows' bits and counters.
    pub(super) bit_names: Vec<String>,
    pub(super) counter_names: Vec<String>,
    pub(super) most_patterns: usize,
    pub(super) others: usize,
    /// Rules have scripts that are asked when transactions come to a state.
    pub(super) hooked: bool,
    /// Whether it is counted what each rule costs.
    pub(crate) profile: bool,
    pub(super) expressions: usize,
}

impl Ruleset {
    /// Compiles rules, with the expressions that their loader compiled and the scores that `iprep` asks for. Those that cannot be decided are returned with their reasons.
    pub fn build(
        rules: Vec<Rule>,
        mut expressions: Expressions,
        reputation: Arc<Reputation>,
        engine: Engine,
    ) -> (Ruleset, Vec<Unsupported>) {
        let mut build = Build::new(reputation, rules.len());
        for rule in rules {
            build.add(rule, &mut expressions, None, |_| {});
        }
        let built = build.finish(|_| false, expressions, engine);
        (built.ruleset, built.refused)
    }

    /// The scores that `iprep` asks for.
    pub(crate) fn reputation(&self) -> &Arc<Reputation> {
        &self.reputation
    }

    /// Has the compiled expressions of all rules at hand in `expressions`.
    pub(crate) fn remember(&self, expressions: &mut Expressions) {
        for compiled in &self.compiled {
            compiled.expressions(&mut |expression| expressions.remember(expression));
        }
    }

    /// The compiled expressions of one rule.
    #[cfg(test)]
    pub(crate) fn expressions_of(&self, rule: usize, each: &mut impl FnMut(&Arc<Expression>)) {
        self.compiled[rule].expressions(each);
    }

    /// How many rules it holds.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule of a match.
    pub fn rule(&self, index: u32) -> &Rule {
        &self.rules[index as usize]
    }

    /// All of them, in the order they are decided.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Names of the bits that are set in a flow, and of its counters with their values.
    pub fn marks<'a>(&'a self, state: &'a FlowState) -> (Vec<&'a str>, Vec<(&'a str, u32)>) {
        let is_set = |at: usize| {
            let word = state.bits.get(at / 64).copied().unwrap_or(0);
            word >> (at % 64) & 1 != 0
        };
        let bits = (self.bit_names.iter().enumerate())
            .filter(|(at, _)| is_set(*at))
            .map(|(_, name)| name.as_str());
        let counters = (state.counters.iter()).filter_map(|(at, value)| {
            Some((self.counter_names.get(usize::from(*at))?.as_str(), *value))
        });
        (bits.collect(), counters.collect())
    }

    /// What parsers must fill.
    pub fn buffers(&self) -> BufferSet {
        self.buffers
    }

    /// Whether a rule looks at streams that go this way: otherwise `Detector::stream` need not be called.
    pub fn inspects_streams(&self, direction: Direction) -> bool {
        let d = direction.index();
        !self.streams[d].is_empty() || !self.bare_streams[d].is_empty()
    }

    /// Different regular expressions.
    pub fn expressions(&self) -> usize {
        self.expressions
    }

    /// Sets of patterns that were too large for the engine asked for and are searched by the prefilter.
    pub fn other_engine(&self) -> usize {
        self.others
    }

    pub(super) fn most_patterns(&self) -> usize {
        self.most_patterns
    }

    /// Whether rules may be asked of bodies that are not whole.
    pub(crate) fn asks_growing(&self) -> bool {
        self.compiled.iter().any(|c| c.growth >= Growth::Beginning)
    }

    /// Bytes of its patterns and lists, about; rules, programs and expressions not counted.
    pub fn memory(&self) -> usize {
        self.scans.iter().map(Scan::memory).sum::<usize>()
            + self.addresses.memory()
            + self.syn.memory()
            + self.packets.iter().map(|p| p.len() * 4).sum::<usize>()
            + self.plans.memory()
    }
}
