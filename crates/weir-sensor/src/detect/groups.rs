//! Ports and addresses that no rule tells apart are in one group, and of each group there is the set of rules that take it.
//!
//! Rules name few different sets (variables, mostly), so few groups come of them, and whether a rule takes a packet's ends is one bit of a mask that is made once for a group.

use std::collections::BTreeSet;
use std::net::IpAddr;

use foldhash::HashMap;

use crate::rules::{AddressSet, Header, PortSet};

use super::address::AddressMap;

/// A bit for each rule.
pub(super) type Mask = Box<[u64]>;

/// More entries than this in lists of sets are not made: each port is then a group of its own.
const MOST_SIGNATURES: usize = 1 << 21;

pub(super) fn no_rule(rules: usize) -> Mask {
    vec![0; rules.div_ceil(64)].into()
}

pub(super) fn set(mask: &mut [u64], rule: u32) {
    if let Some(word) = mask.get_mut(rule as usize / 64) {
        *word |= 1 << (rule % 64);
    }
}

/// One end of the headers: rules by the set they name there.
#[derive(Debug)]
struct Named {
    any: Mask,
    /// By number of the set.
    rules: Vec<Vec<u32>>,
}

impl Named {
    fn new(rules: usize) -> Named {
        Named {
            any: no_rule(rules),
            rules: Vec::new(),
        }
    }

    /// `None`: any.
    fn add(&mut self, rule: u32, number: Option<usize>) {
        let Some(number) = number else {
            set(&mut self.any, rule);
            return;
        };
        if self.rules.len() <= number {
            self.rules.resize_with(number + 1, Vec::new);
        }
        self.rules[number].push(rule);
    }

    /// The rules that name one of these sets, or any.
    fn mask(&self, sets: impl Iterator<Item = usize>) -> Mask {
        let mut mask = self.any.clone();
        for rule in sets.filter_map(|s| self.rules.get(s)).flatten() {
            set(&mut mask, *rule);
        }
        mask
    }

    fn memory(&self) -> usize {
        self.any.len() * 8 + self.rules.iter().map(|r| r.len() * 4 + 24).sum::<usize>()
    }
}

/// Which end of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Source,
    Destination,
}

/// Groups of ports.
#[derive(Debug)]
pub(super) struct Ports {
    sets: Vec<PortSet>,
    of: Box<[u16]>,
    source: Named,
    destination: Named,
}

impl Ports {
    /// Of the headers of rules, with the number of all rules.
    pub(super) fn new<'a>(headers: impl Iterator<Item = (u32, &'a Header)>, rules: usize) -> Ports {
        let mut known = HashMap::<PortSet, usize>::default();
        let mut sets = Vec::new();
        let (mut source, mut destination) = (Named::new(rules), Named::new(rules));
        let mut number = |set: &PortSet| {
            (!set.any).then(|| {
                *known.entry(set.clone()).or_insert_with(|| {
                    sets.push(set.clone());
                    sets.len() - 1
                })
            })
        };
        for (rule, header) in headers {
            source.add(rule, number(&header.source_ports));
            destination.add(rule, number(&header.destination_ports));
        }
        let of = groups(&sets).unwrap_or_else(|| (0..=u16::MAX).collect());
        Ports {
            sets,
            of,
            source,
            destination,
        }
    }

    pub(super) fn group(&self, port: u16) -> u16 {
        self.of.get(usize::from(port)).copied().unwrap_or(0)
    }

    /// The rules whose header takes a port at this end.
    pub(super) fn mask(&self, end: End, port: u16) -> Mask {
        let sets = (self.sets.iter().enumerate())
            .filter(|(_, s)| s.has(port))
            .map(|(at, _)| at);
        match end {
            End::Source => self.source.mask(sets),
            End::Destination => self.destination.mask(sets),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.of.len() * 2 + self.source.memory() + self.destination.memory()
    }
}

/// The group of each port. `None`: the sets overlap in too many ways for their distinction to be worth its memory.
fn groups(sets: &[PortSet]) -> Option<Box<[u16]>> {
    // (port, begins, set): what changes there.
    let mut changes = Vec::new();
    for (number, set) in sets.iter().enumerate() {
        for (low, high) in set.ranges.iter() {
            changes.push((u32::from(*low), true, number));
            changes.push((u32::from(*high) + 1, false, number));
        }
    }
    changes.sort_unstable();
    let mut known = HashMap::<Vec<usize>, u16>::default();
    let mut signatures = 0;
    let mut active = BTreeSet::new();
    let mut groups = vec![0_u16; 1 << 16];
    let mut rest = changes.as_slice();
    let mut from = 0;
    loop {
        let to = rest.first().map_or(1 << 16, |change| change.0 as usize);
        if from < to {
            let next = known.len();
            signatures += active.len();
            if signatures > MOST_SIGNATURES {
                return None;
            }
            let signature: Vec<usize> = active.iter().copied().collect();
            let group = *known.entry(signature).or_insert(next as u16);
            groups.get_mut(from..to)?.fill(group);
        }
        let Some((at, ..)) = rest.first() else {
            return Some(groups.into());
        };
        let here = rest.iter().take_while(|c| c.0 == *at).count();
        for (_, begins, number) in &rest[..here] {
            if *begins {
                active.insert(*number);
            } else {
                active.remove(number);
            }
        }
        from = *at as usize;
        rest = &rest[here..];
    }
}

/// Groups of addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    map: AddressMap,
    /// By interval of the map.
    of: Box<[u32]>,
    source: Named,
    destination: Named,
}

impl Addresses {
    /// Of the headers of rules, with the number of all rules.
    pub(super) fn new<'a>(
        headers: impl Iterator<Item = (u32, &'a Header)>,
        rules: usize,
    ) -> Addresses {
        let mut known = HashMap::<AddressSet, usize>::default();
        let mut sets = Vec::new();
        let (mut source, mut destination) = (Named::new(rules), Named::new(rules));
        let mut number = |set: &AddressSet| {
            (!set.any).then(|| {
                *known.entry(set.clone()).or_insert_with(|| {
                    sets.push((set.clone(), sets.len() as u32));
                    sets.len() - 1
                })
            })
        };
        for (rule, header) in headers {
            source.add(rule, number(&header.source));
            destination.add(rule, number(&header.destination));
        }
        let map = AddressMap::new(&sets);
        let mut groups = HashMap::<&[u32], u32>::default();
        let of = (map.intervals())
            .map(|sets| {
                let next = groups.len() as u32;
                *groups.entry(sets).or_insert(next)
            })
            .collect();
        Addresses {
            of,
            map,
            source,
            destination,
        }
    }

    pub(super) fn group(&self, address: IpAddr) -> u32 {
        // Where no rule names an address of this version all are alike.
        (self.map.interval(address)).map_or(u32::MAX, |at| self.of.get(at).copied().unwrap_or(0))
    }

    /// The rules whose header takes an address at this end.
    pub(super) fn mask(&self, end: End, address: IpAddr) -> Mask {
        let sets = self.map.get(address).iter().map(|s| *s as usize);
        match end {
            End::Source => self.source.mask(sets),
            End::Destination => self.destination.mask(sets),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.map.memory() + self.of.len() * 4 + self.source.memory() + self.destination.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_a_group_with_those_that_no_rule_tells_apart() {
        let set = |ranges: &[(u16, u16)]| PortSet {
            any: false,
            ranges: ranges.into(),
        };
        let sets = [
            set(&[(80, 80), (8000, 8100)]),
            set(&[(0, 79), (81, u16::MAX)]),
            set(&[(8050, u16::MAX)]),
        ];
        let groups = groups(&sets).expect("few groups");
        assert_eq!(groups.len(), 1 << 16);
        let holding = |port: u16| sets.each_ref().map(|s| s.has(port));
        for a in (0..=u16::MAX)
            .step_by(7)
            .chain([79, 80, 81, 8050, u16::MAX])
        {
            for b in [0, 79, 80, 81, 8000, 8049, 8050, 8100, 8101, u16::MAX] {
                let same = groups[usize::from(a)] == groups[usize::from(b)];
                assert_eq!(same, holding(a) == holding(b), "{a} {b}");
            }
        }
    }
}
