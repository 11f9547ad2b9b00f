//! Counters of a filter -> what its rules and entries did.
//!
//! Hits are counted by position; several positions may belong to one entry, and an entry to several lists. Folding adds them up, so
//! that the hits of a set's entries are together the packets of the rules that name it.

use serde::Serialize;
use weir_bpf::abi::FilterCount;

use super::Filter;
use super::compile::Compiled;
use super::intervals::NONE;
use super::rule::Action;

/// What a filter did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FilterReport {
    /// All rules in order.
    pub rules: Vec<RuleCount>,
    /// Entries that were hit, in the order of their sets.
    pub entries: Vec<EntryHits>,
}

/// One rule's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleCount {
    /// Number from 1.
    pub number: usize,
    /// As it was written.
    pub rule: String,
    /// Packets that asked it: no rule before it had decided, and it matched.
    pub packets: u64,
    /// Their frame bytes.
    pub bytes: u64,
    /// Of them, those it dropped.
    pub dropped: u64,
    /// Sources it blocked.
    pub blocked: u64,
}

/// One entry's counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryHits {
    /// Name of its set.
    pub set: String,
    /// Line of the list.
    pub line: u32,
    /// Its addresses.
    pub prefix: String,
    /// Packets that asked a rule because of it.
    pub packets: u64,
}

impl Compiled {
    /// Bits of the rows: how many elements `counts` has.
    pub fn bits(&self) -> usize {
        self.rule_of.len()
    }

    /// Counters of entries: how many words the elements of `hits` have together.
    pub fn counters(&self) -> usize {
        self.meters.counters
    }

    /// The report. `counts`: by bit, `hits`: by counter, both summed over all CPUs.
    pub fn report(&self, filter: &Filter, counts: &[FilterCount], hits: &[u64]) -> FilterReport {
        let mut rules: Vec<RuleCount> = (1..)
            .zip(&filter.rules)
            .map(|(number, rule)| RuleCount {
                number,
                rule: rule.text.clone(),
                ..RuleCount::default()
            })
            .collect();
        for (rule, count) in self.rule_of.iter().zip(counts) {
            let sum = &mut rules[*rule];
            sum.packets += count.packets;
            sum.bytes += count.bytes;
            sum.dropped += match filter.rules[*rule].action {
                // It drops whatever asks it, and counts that once.
                Action::Deny => count.packets,
                _ => count.dropped,
            };
            sum.blocked += count.blocked;
        }
        let mut by_entry: Vec<((usize, usize), u64)> = Vec::new();
        for (number, packets) in self.fold(hits) {
            if let Some(place) = self
                .meters
                .entries
                .get(number as usize)
                .filter(|(set, _)| *set != usize::MAX)
            {
                by_entry.push((*place, packets));
            }
        }
        by_entry.sort_unstable();
        let mut entries: Vec<EntryHits> = Vec::new();
        let mut last = None;
        for (place, packets) in by_entry {
            if last == Some(place)
                && let Some(entry) = entries.last_mut()
            {
                entry.packets += packets;
                continue;
            }
            last = Some(place);
            let Some(entry) = filter
                .sets
                .get(place.0)
                .and_then(|set| set.entries.get(place.1))
            else {
                continue;
            };
            entries.push(EntryHits {
                set: filter.sets[place.0].name.clone(),
                line: entry.line,
                prefix: entry.prefix.to_string(),
                packets,
            });
        }
        FilterReport { rules, entries }
    }

    /// Counters that are not 0, with the number of their entry.
    fn fold(&self, hits: &[u64]) -> Vec<(u32, u64)> {
        let mut out = Vec::new();
        for (at, meter) in self.meters.tables.iter().enumerate() {
            let (slots, slot_of) = (self.meters.slots[at / 2], &self.meters.slot_of[at / 2]);
            for (position, state) in meter
                .state_at
                .iter()
                .enumerate()
                .filter(|(_, state)| **state != NONE)
            {
                let first = meter.first + position * slots;
                let here = hits.get(first..first + slots).unwrap_or_default();
                if here.iter().all(|packets| *packets == 0) {
                    continue;
                }
                for (list, entry) in meter.states.cover(*state) {
                    let packets = here[usize::from(slot_of[usize::from(*list)])];
                    if packets > 0 {
                        out.push((*entry, packets));
                    }
                }
            }
        }
        out
    }
}
