//! Questions about, and changes of, bits and counters of a flow; their names as numbers.

use foldhash::HashMap;

use crate::rules::{Bit, BitOperation, Number, Rule};

/// A question about bits and counters of the flow.
#[derive(Debug)]
pub(super) enum BitTest {
    /// One of these bits is set (`true`), or none of them is.
    Set(Box<[u32]>, bool),
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

/// Names of bits and counters, while rules are compiled.
#[derive(Default)]
pub(super) struct Names {
    flow_bits: HashMap<String, u32>,
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

    fn counter(&mut self, name: &str) -> Result<u16, String> {
        let next = u16::try_from(self.counters.len()).map_err(|_| "too many counters")?;
        Ok(*self.counters.entry(name.to_owned()).or_insert(next))
    }

    /// What a rule asks of bits and counters, and what it changes.
    pub(super) fn bits(&mut self, rule: &Rule) -> Result<(Vec<BitTest>, Vec<BitAction>), String> {
        let mut tests = Vec::new();
        let mut actions = Vec::new();
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
