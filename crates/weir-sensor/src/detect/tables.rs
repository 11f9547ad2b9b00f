//! Rules of the firewall by the table they stand in, and what must be read of traffic for them.

use crate::app::{self, App, Stage};
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::rules::{FirewallPlace, FirewallRule};

/// Rules about the states of a direction of a protocol.
#[derive(Debug)]
struct Side {
    app: App,
    direction: Direction,
    rules: Vec<StateRule>,
}

/// A rule about a state of transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateRule {
    /// Its rank.
    pub(super) index: u32,
    /// Which state, from 0.
    pub(super) state: u8,
    /// The states before it are accepted as well.
    pub(super) before: bool,
}

/// Rules of the firewall by the table they stand in; those of one table in the order they were written.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) packets: Vec<u32>,
    /// Of packets before their flow is looked up, and before their stream takes them.
    pub(super) early: [Vec<u32>; 2],
    /// Of each protocol and direction that has rules.
    states: Vec<Side>,
    /// All of them: they rank before the rules of the inspection.
    pub(super) count: u32,
}

impl Tables {
    /// Adds a rule by its rank.
    pub(super) fn add(&mut self, index: u32, rule: &FirewallRule) {
        self.count += 1;
        match rule.place {
            FirewallPlace::Packet => self.packets.push(index),
            FirewallPlace::PreFlow => self.early[0].push(index),
            FirewallPlace::PreStream => self.early[1].push(index),
            FirewallPlace::State {
                app,
                direction,
                state,
                before,
            } => {
                let rule = StateRule {
                    index,
                    state,
                    before,
                };
                let same = |s: &&mut Side| s.app == app && s.direction == direction;
                match self.states.iter_mut().find(same) {
                    Some(side) => side.rules.push(rule),
                    None => self.states.push(Side {
                        app,
                        direction,
                        rules: vec![rule],
                    }),
                }
            }
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What tells how far transactions have got: of all protocols, as what no rule is about is dropped.
    pub(super) fn buffers() -> impl Iterator<Item = Buffer> {
        let rows = app::PROTOCOLS.iter();
        let names = rows.flat_map(|row| {
            let names = row.states.iter().flat_map(|names| names.iter());
            names.filter_map(|name| row.hook(name))
        });
        names.filter_map(|(_, stage)| match stage {
            Stage::Has(buffer) => Some(buffer),
            _ => None,
        })
    }

    /// Those of a direction of a protocol.
    pub(super) fn of(&self, app: App, direction: Direction) -> &[StateRule] {
        let same = |s: &&Side| s.app == app && s.direction == direction;
        self.states
            .iter()
            .find(same)
            .map_or(&[], |side| &side.rules)
    }
}
