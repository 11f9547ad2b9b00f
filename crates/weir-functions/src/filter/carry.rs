//! Counters of one plan -> those of the plan that replaces it.
//!
//! Positions and bits change with every list; what stays is whose a counter is: an entry's identity (map `owners`), a rule's (its `id`, from its text).
//! What was counted for an owner goes to the first counter that it has in the new plan. Owners that are gone take their counters with them.

use std::collections::HashMap;

use weir_bpf::abi::{FilterCount, FilterRule};
use zerocopy::FromBytes;

use super::{Compiled, Filter, FilterReport};

/// What a filter counted, what was carried over to it included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By bit: the rule that it counts.
    pub rules: Vec<FilterRule>,
    /// By bit.
    pub counts: Vec<FilterCount>,
    /// By counter: what tells its entry from all others; 0: nobody's.
    pub owners: Vec<u64>,
    /// By counter.
    pub hits: Vec<u64>,
}

impl Counters {
    /// What the rules and entries of `filter` did, whatever its lists were when it was applied: counters are found by what they count.
    pub fn report(&self, filter: &Filter, compiled: &Compiled) -> FilterReport {
        let of = |name: &str| {
            let map = compiled.plan.maps.iter().find(|map| map.name == name);
            map.map_or(&[][..], |map| &map.values)
        };
        let owners: Vec<u64> = of("owners")
            .chunks_exact(8)
            .filter_map(|word| Some(u64::from_ne_bytes(*word.first_chunk()?)))
            .collect();
        let rules: Vec<FilterRule> = of("rules")
            .chunks_exact(size_of::<FilterRule>())
            .filter_map(|rule| FilterRule::read_from_bytes(rule).ok())
            .collect();
        let hits = hits(&self.owners, &self.hits, &owners);
        compiled.report(filter, &counts(&self.rules, &self.counts, &rules), &hits)
    }
}

/// Hits by counter of the new plan. `hits`: by counter of the old one, everything carried over to it included.
pub fn hits(owners: &[u64], hits: &[u64], new_owners: &[u64]) -> Vec<u64> {
    let mut sums: HashMap<u64, u64> = HashMap::new();
    for (owner, hits) in owners
        .iter()
        .zip(hits)
        .filter(|(owner, hits)| **owner != 0 && **hits != 0)
    {
        *sums.entry(*owner).or_default() += hits;
    }
    new_owners
        .iter()
        .map(|owner| sums.remove(owner).unwrap_or(0))
        .collect()
}

/// The same of rules, by bit.
pub fn counts(
    rules: &[FilterRule],
    counts: &[FilterCount],
    new_rules: &[FilterRule],
) -> Vec<FilterCount> {
    let mut sums: HashMap<u32, FilterCount> = HashMap::new();
    for (rule, count) in rules.iter().zip(counts) {
        add(sums.entry(rule.id).or_default(), count);
    }
    new_rules
        .iter()
        .map(|rule| sums.remove(&rule.id).unwrap_or_default())
        .collect()
}

/// Adds up counters of a rule.
pub fn add(sum: &mut FilterCount, one: &FilterCount) {
    sum.packets += one.packets;
    sum.bytes += one.bytes;
    sum.dropped += one.dropped;
    sum.blocked += one.blocked;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_follows_its_owner() {
        // Owner 7 has two counters before and two after; 8 is gone, 9 is new.
        assert_eq!(
            hits(&[0, 7, 8, 7], &[5, 1, 2, 3], &[9, 7, 0, 7]),
            [0, 4, 0, 0]
        );
        let rule = |id| FilterRule {
            id,
            ..FilterRule::default()
        };
        let count = |packets| FilterCount {
            packets,
            ..FilterCount::default()
        };
        let carried = counts(
            &[rule(1), rule(2), rule(1)],
            &[count(10), count(20), count(30)],
            &[rule(3), rule(1)],
        );
        assert_eq!(carried, [count(0), count(40)]);
    }
}
