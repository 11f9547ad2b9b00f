//! Numbers that stay: of interfaces, bridges, routers and so on, by what they belong to.
//!
//! What is there from one plan to the next keeps its number. A number whose owner is gone rests for one generation before it is given
//! to somebody else, so that no packet on its way and no counter being read takes the new owner for the old one.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Numbers are below this.
const MOST: u32 = 1 << 24;

/// The numbers of one kind of thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Owners in the order in which plans come to them, with their numbers. Tens of thousands are read, looked up and written with each
    /// change of one workload: order costs nothing here, and sorting would be most of it.
    pub names: Vec<(String, u32)>,
    /// Of owners that are gone since the plan before.
    pub resting: Vec<u32>,
}

/// All numbers of an edge: what the next plan needs of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// VIDs.
    pub interfaces: Given,
    /// Records of bridges.
    pub bridges: Given,
    /// Records of routers.
    pub routers: Given,
    /// Records of tunnels.
    pub tunnels: Given,
    /// Records of remotes.
    pub remotes: Given,
    /// Slots of private functions, from 0.
    pub slots: Given,
    /// Runs of what is learned.
    pub runs: Given,
    /// Security groups.
    #[serde(default)]
    pub groups: Given,
}

/// Nothing was given out yet.
pub static NO_NUMBERS: Numbers = Numbers {
    interfaces: Given::NONE,
    bridges: Given::NONE,
    routers: Given::NONE,
    tunnels: Given::NONE,
    remotes: Given::NONE,
    slots: Given::NONE,
    runs: Given::NONE,
    groups: Given::NONE,
};

impl Given {
    const NONE: Given = Given {
        names: Vec::new(),
        resting: Vec::new(),
    };

    /// The number of an owner, 0: it has none. Looks at all: for a few questions.
    #[must_use]
    pub fn of(&self, name: &str) -> u32 {
        let found = self.names.iter().find(|(owner, _)| owner == name);
        found.map_or(0, |(_, number)| *number)
    }
}

/// Gives numbers out, from 1.
#[derive(Debug)]
pub(crate) struct Giver<'a> {
    before: &'a Given,
    had: HashMap<&'a str, u32, RandomState>,
    taken: Vec<bool>,
    next: u32,
    now: IndexMap<String, u32, RandomState>,
}

impl<'a> Giver<'a> {
    pub(crate) fn new(before: &'a Given) -> Giver<'a> {
        // What was kept may be anybody's writing: numbers that no table has are nobody's.
        let numbers = || {
            let names = before.names.iter().map(|(_, number)| *number);
            names
                .chain(before.resting.iter().copied())
                .filter(|number| *number < MOST)
        };
        let mut taken = vec![false; numbers().max().map_or(1, |most| most as usize + 1)];
        taken[0] = true;
        for number in numbers() {
            taken[number as usize] = true;
        }
        let had = before.names.iter().map(|(name, n)| (name.as_str(), *n));
        Giver {
            before,
            had: had.collect(),
            taken,
            next: 0,
            now: IndexMap::with_capacity_and_hasher(before.names.len(), RandomState::default()),
        }
    }

    /// The number of an owner.
    pub(crate) fn of(&mut self, name: String) -> u32 {
        if let Some(number) = self.now.get(&name) {
            return *number;
        }
        let number = match self.had.get(name.as_str()) {
            Some(number) if (1..MOST).contains(number) => *number,
            _ => {
                while self.taken.get(self.next as usize).copied().unwrap_or(false) {
                    self.next += 1;
                }
                self.next += 1;
                self.next - 1
            }
        };
        self.now.insert(name, number);
        number
    }

    /// The number of an owner that has one.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.now.get(name).copied()
    }

    pub(crate) fn finish(self) -> Given {
        let gone = (self.before.names.iter()).filter(|(name, _)| !self.now.contains_key(name));
        Given {
            resting: gone.map(|(_, number)| *number).collect(),
            names: self.now.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(before: &Given, names: &[&str]) -> (Vec<u32>, Given) {
        let mut giver = Giver::new(before);
        let numbers = names
            .iter()
            .map(|name| giver.of((*name).to_owned()))
            .collect();
        (numbers, giver.finish())
    }

    #[test]
    fn numbers_that_cannot_be_are_given_anew() {
        let odd = [("a".to_owned(), u32::MAX), ("b".to_owned(), 0)];
        let before = Given {
            names: odd.into_iter().collect(),
            resting: vec![1, u32::MAX],
        };
        assert_eq!(give(&before, &["a", "b"]).0, [2, 3]);
    }

    #[test]
    fn numbers_stay_and_rest_for_a_generation() {
        let (numbers, first) = give(&Given::default(), &["a", "b", "c", "a"]);
        assert_eq!(numbers, [1, 2, 3, 1]);
        let (numbers, second) = give(&first, &["d", "c", "a"]);
        assert_eq!(numbers, [4, 3, 1]);
        assert_eq!(second.resting, [2]);
        let (numbers, third) = give(&second, &["e", "a", "c"]);
        assert_eq!(numbers, [5, 1, 3]);
        assert_eq!(third.resting, [4]);
        let (numbers, _) = give(&third, &["f", "g", "h"]);
        assert_eq!(numbers, [2, 6, 7]);
    }
}
