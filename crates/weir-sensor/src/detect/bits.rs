//! Questions about, and changes of, bits and counters of a flow: what rules become, and what is done with them; their names as numbers.

use foldhash::HashMap;

use crate::app::MOST_LIVE;
use crate::rules::{Bit, BitOperation, Number, Rule};

use super::flow::FlowState;

/// A question about bits and counters of the flow.
#[derive(Debug)]
pub(super) enum BitTest {
    /// One of these bits is set (`true`), or none of them is.
    Set(Box<[u32]>, bool),
    /// This bit of the transaction is set, or not.
    OfTransaction(u32, bool),
    /// A counter exists, or not.
    Exists(u16, bool),
    /// A counter compares so with a value.
    Compare(u16, Compare, Operand),
}

/// A change of bits and counters of the flow.
#[derive(Debug)]
pub(super) enum BitAction {
    Set(u32),
    Unset(u32),
    Toggle(u32),
    /// A bit of the transaction is set or cleared (`Some`), or the other way than it was.
    OfTransaction(u32, Option<bool>),
    /// The transaction is not written to the log.
    Unlog,
    /// A counter becomes, grows by, or shrinks by a value.
    Counter(u16, Arithmetic, Operand),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Compare {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Arithmetic {
    Set,
    Add,
    Subtract,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Number(u32),
    Counter(u16),
}

impl BitTest {
    /// Bits of the flow of which one is to be set.
    pub(super) fn wants(&self) -> &[u32] {
        match self {
            BitTest::Set(bits, true) => bits,
            _ => &[],
        }
    }
}

impl BitAction {
    /// The bit of the flow that may be set by it.
    pub(super) fn sets(&self) -> Option<u32> {
        match self {
            BitAction::Set(bit) | BitAction::Toggle(bit) => Some(*bit),
            _ => None,
        }
    }

    /// Changes a flow that may have so many bits, when a rule held of a transaction or of none.
    pub(super) fn act(&self, state: &mut FlowState, bits: usize, transaction: Option<u64>) {
        let mut change = |bit: u32, how: fn(&mut u64, u64)| {
            state.bits.resize(bits.div_ceil(64), 0);
            if let Some(word) = state.bits.get_mut(bit as usize / 64) {
                how(word, 1 << (bit % 64));
            }
        };
        match self {
            BitAction::Set(bit) => change(*bit, |w, b| *w |= b),
            BitAction::Unset(bit) => change(*bit, |w, b| *w &= !b),
            BitAction::Toggle(bit) => change(*bit, |w, b| *w ^= b),
            BitAction::OfTransaction(bit, value) => {
                let Some(id) = transaction else { return };
                let list = &mut state.transaction_bits;
                let at = list.iter().position(|held| *held == (id, *bit));
                match (at, value.unwrap_or(at.is_none())) {
                    (None, true) => {
                        if list.len() >= MOST_LIVE {
                            list.remove(0);
                        }
                        list.push((id, *bit));
                    }
                    (Some(at), false) => {
                        list.remove(at);
                    }
                    _ => {}
                }
            }
            BitAction::Unlog => {
                let list = &mut state.said.get_or_insert_default().unlogged;
                if let Some(id) = transaction.filter(|id| !list.contains(id)) {
                    if list.len() == MOST_LIVE {
                        // No more are live: it is over.
                        list.remove(0);
                    }
                    list.push(id);
                }
            }
            BitAction::Counter(name, how, by) => {
                let by = match by {
                    Operand::Number(n) => *n,
                    Operand::Counter(c) => counter(Some(state), *c).unwrap_or(0),
                };
                let at = state.counters.iter().position(|(n, _)| n == name);
                // Nothing is taken from a counter that is not there: it still is not.
                if at.is_none() && matches!(how, Arithmetic::Subtract) {
                    return;
                }
                let at = at.unwrap_or_else(|| {
                    state.counters.push((*name, 0));
                    state.counters.len() - 1
                });
                let value = &mut state.counters[at].1;
                *value = match how {
                    Arithmetic::Set => by,
                    Arithmetic::Add => value.saturating_add(by),
                    Arithmetic::Subtract => value.saturating_sub(by),
                };
            }
        }
    }
}

/// Names of bits and counters, while rules are compiled.
#[derive(Default)]
pub(super) struct Names {
    flow_bits: HashMap<String, u32>,
    transaction_bits: HashMap<String, u32>,
    counters: HashMap<String, u16>,
}

impl Names {
    /// How many bits of flows there are.
    pub(super) fn flow_bits(&self) -> usize {
        self.flow_bits.len()
    }

    /// Names of the bits of flows, and of counters, by their numbers.
    pub(super) fn lists(&self) -> (Vec<String>, Vec<String>) {
        let mut bits = vec![String::new(); self.flow_bits.len()];
        for (name, at) in &self.flow_bits {
            bits[*at as usize].clone_from(name);
        }
        let mut counters = vec![String::new(); self.counters.len()];
        for (name, at) in &self.counters {
            counters[usize::from(*at)].clone_from(name);
        }
        (bits, counters)
    }

    fn bit(&mut self, name: &str) -> u32 {
        let next = self.flow_bits.len() as u32;
        *self.flow_bits.entry(name.to_owned()).or_insert(next)
    }

    fn bit_of_transaction(&mut self, name: &str) -> u32 {
        let next = self.transaction_bits.len() as u32;
        *self.transaction_bits.entry(name.to_owned()).or_insert(next)
    }

    fn counter(&mut self, name: &str) -> Result<u16, String> {
        let next = u16::try_from(self.counters.len()).map_err(|_| "too many counters")?;
        Ok(*self.counters.entry(name.to_owned()).or_insert(next))
    }

    /// What a rule asks of bits and counters, and what it changes.
    pub(super) fn bits(&mut self, rule: &Rule) -> Result<(Vec<BitTest>, Vec<BitAction>), String> {
        let mut tests = Vec::new();
        let mut actions = Vec::new();
        for name in rule.scripts.iter().flat_map(|s| &s.script.needs.counters) {
            self.counter(name)?;
        }
        for bit in &rule.bits {
            match bit {
                Bit::Flow { operation, names } => {
                    let ids: Vec<u32> = names.iter().map(|n| self.bit(n)).collect();
                    match operation {
                        BitOperation::IsSet => tests.push(BitTest::Set(ids.into(), true)),
                        BitOperation::IsNotSet => tests.push(BitTest::Set(ids.into(), false)),
                        BitOperation::Set => actions.extend(ids.into_iter().map(BitAction::Set)),
                        BitOperation::Unset => {
                            actions.extend(ids.into_iter().map(BitAction::Unset));
                        }
                        BitOperation::Toggle => {
                            actions.extend(ids.into_iter().map(BitAction::Toggle));
                        }
                    }
                }
                Bit::Host { .. } => {}
                Bit::Transaction { operation, name } => {
                    let id = self.bit_of_transaction(name);
                    match operation {
                        BitOperation::IsSet => tests.push(BitTest::OfTransaction(id, true)),
                        BitOperation::IsNotSet => tests.push(BitTest::OfTransaction(id, false)),
                        BitOperation::Set => {
                            actions.push(BitAction::OfTransaction(id, Some(true)));
                        }
                        BitOperation::Unset => {
                            actions.push(BitAction::OfTransaction(id, Some(false)));
                        }
                        BitOperation::Toggle => actions.push(BitAction::OfTransaction(id, None)),
                    }
                }
                Bit::Unlog => actions.push(BitAction::Unlog),
                Bit::Counter {
                    name,
                    operator,
                    value,
                } => {
                    let id = self.counter(name)?;
                    let operand = |names: &mut Names| match value {
                        Some(Number::Is(n)) => u32::try_from(*n)
                            .map(Operand::Number)
                            .map_err(|_| format!("flowint cannot hold {n}")),
                        Some(Number::Variable(other)) => names.counter(other).map(Operand::Counter),
                        None => Err(format!("flowint `{operator}` needs a value")),
                    };
                    let compare = match operator.as_str() {
                        "isset" => {
                            tests.push(BitTest::Exists(id, true));
                            continue;
                        }
                        "notset" | "isnotset" => {
                            tests.push(BitTest::Exists(id, false));
                            continue;
                        }
                        "=" => {
                            actions.push(BitAction::Counter(id, Arithmetic::Set, operand(self)?));
                            continue;
                        }
                        "+" => {
                            actions.push(BitAction::Counter(id, Arithmetic::Add, operand(self)?));
                            continue;
                        }
                        "-" => {
                            let by = operand(self)?;
                            actions.push(BitAction::Counter(id, Arithmetic::Subtract, by));
                            continue;
                        }
                        "<" => Compare::Less,
                        "<=" => Compare::LessEqual,
                        ">" => Compare::Greater,
                        ">=" => Compare::GreaterEqual,
                        "==" => Compare::Equal,
                        "!=" => Compare::NotEqual,
                        other => return Err(format!("flowint has no operator `{other}`")),
                    };
                    tests.push(BitTest::Compare(id, compare, operand(self)?));
                }
            }
        }
        Ok((tests, actions))
    }
}

/// Whether bits of a transaction are as a rule wants them.
pub(super) fn hold_of(tests: &[BitTest], state: &FlowState, transaction: u64) -> bool {
    tests.iter().all(|test| match test {
        BitTest::OfTransaction(bit, wanted) => {
            state.transaction_bits.contains(&(transaction, *bit)) == *wanted
        }
        _ => true,
    })
}

/// Whether bits and counters of the flow are as a rule wants them; those of transactions are [`hold_of`]'s. Without a flow no bit is set.
pub(super) fn hold(tests: &[BitTest], state: Option<&FlowState>) -> bool {
    let value = |operand: &Operand| match operand {
        Operand::Number(n) => Some(*n),
        Operand::Counter(c) => counter(state, *c),
    };
    tests.iter().all(|test| match test {
        BitTest::Set(bits, wanted) => bits.iter().any(|b| is_set(state, *b)) == *wanted,
        BitTest::OfTransaction(..) => true,
        BitTest::Exists(name, wanted) => counter(state, *name).is_some() == *wanted,
        BitTest::Compare(name, how, with) => match (counter(state, *name), value(with)) {
            (Some(a), Some(b)) => match how {
                Compare::Less => a < b,
                Compare::LessEqual => a <= b,
                Compare::Greater => a > b,
                Compare::GreaterEqual => a >= b,
                Compare::Equal => a == b,
                Compare::NotEqual => a != b,
            },
            _ => false,
        },
    })
}

/// Whether bits of the flow were as a rule wants them when these were set.
pub(super) fn held(tests: &[BitTest], set: &[u64]) -> bool {
    tests.iter().all(|test| match test {
        BitTest::Set(bits, wanted) => bits.iter().any(|b| is_in(set, *b)) == *wanted,
        _ => true,
    })
}

fn is_set(state: Option<&FlowState>, bit: u32) -> bool {
    state.is_some_and(|s| is_in(&s.bits, bit))
}

fn is_in(set: &[u64], bit: u32) -> bool {
    let word = set.get(bit as usize / 64).copied();
    word.unwrap_or(0) >> (bit % 64) & 1 != 0
}

fn counter(state: Option<&FlowState>, name: u16) -> Option<u32> {
    let counters = &state?.counters;
    counters.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_compare_below_at_and_above() {
        let state = FlowState {
            counters: vec![(1, 5), (2, 5)],
            ..FlowState::default()
        };
        for (how, holds) in [
            (Compare::Less, [false, false, true]),
            (Compare::LessEqual, [false, true, true]),
            (Compare::Greater, [true, false, false]),
            (Compare::GreaterEqual, [true, true, false]),
            (Compare::Equal, [false, true, false]),
            (Compare::NotEqual, [true, false, true]),
        ] {
            for (with, expected) in [4, 5, 6].into_iter().zip(holds) {
                let test = BitTest::Compare(1, how, Operand::Number(with));
                assert_eq!(hold(&[test], Some(&state)), expected, "5 {how:?} {with}");
            }
            let other = BitTest::Compare(1, how, Operand::Counter(2));
            assert_eq!(hold(&[other], Some(&state)), holds[1], "5 {how:?} 5");
            // What is not there compares with nothing.
            let absent = BitTest::Compare(9, how, Operand::Number(5));
            assert!(!hold(&[absent], Some(&state)), "{how:?}");
        }
    }
}
