//! Rules that wait for another: a bit of the flow that a rule about transactions sets, and that rules about packets and streams ask for.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::rules::{Bit, BitOperation};

use super::lists::Lists;

/// Who sets a bit, and who asks for it.
#[derive(Default)]
struct Users {
    name: String,
    sets: Vec<u32>,
    asks: Vec<usize>,
    /// A rule about transactions sets it.
    set_late: bool,
    /// A rule about transactions asks for it: it is there in time.
    asked_late: bool,
}

/// Bits of flows, in the order in which rules first name them.
#[derive(Default)]
pub(super) struct Bits {
    places: HashMap<String, usize>,
    users: Vec<Users>,
}

impl Bits {
    /// Adds the bits of the rule of this place.
    pub(super) fn add(&mut self, at: usize, lists: &Lists<'_>) {
        let late = lists.asks_transactions();
        for bit in &lists.rule.bits {
            let Bit::Flow { operation, names } = bit else {
                continue;
            };
            for name in names {
                let users = self.of(name);
                match operation {
                    BitOperation::Set => {
                        users.sets.push(lists.rule.sid);
                        users.set_late |= late;
                    }
                    BitOperation::IsSet => {
                        users.asks.push(at);
                        users.asked_late |= late;
                    }
                    BitOperation::IsNotSet | BitOperation::Unset | BitOperation::Toggle => {}
                }
            }
        }
    }

    fn of(&mut self, name: &str) -> &mut Users {
        let next = self.users.len();
        let at = *self.places.entry(name.to_owned()).or_insert(next);
        if at == next {
            self.users.push(Users {
                name: name.to_owned(),
                ..Users::default()
            });
        }
        &mut self.users[at]
    }

    /// Those rules that the rule of a place waits for.
    pub(super) fn json(&self, at: usize) -> Option<Value> {
        let waits = |u: &&Users| u.asks.contains(&at) && u.set_late && !u.asked_late;
        let (mut sids, mut names): (Vec<u32>, Vec<&str>) = (Vec::new(), Vec::new());
        for users in self.users.iter().filter(waits) {
            sids.extend(&users.sets);
            names.push(&users.name);
        }
        (!names.is_empty()).then(|| {
            json!({"flowbits": {"upstream": {"state_modifying_rules": {"sids": sids, "names": names}}}})
        })
    }
}
