//! What reaches over flows: bits of hosts, thresholds, suppression. Decided once, for the matches of all workers in the order of packets, so that any number of workers gives the same.
//!
//! `Sequencer` decides each match, given in the order of packets. It is bounded: tables forget what is oldest at their caps, and count it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::HashMap;

use crate::rules::{
    Action, Bit, BitOperation, EventFilter, FilterKind, Rule, Threshold, ThresholdKind, Track,
};

use super::{Ask, Match, Ruleset};

/// What becomes of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// An alert, with the rule's action or the one that a rate filter puts in its place.
    Alert(Action),
    /// The rule is not to alert.
    Silent,
    /// A bit of a host, or a set that rules change, is not as the rule wants it: it does not hold.
    Void,
    /// Its threshold holds the alert back; what the rule does beside alerting, it does.
    Limited(Action),
    /// It does not hold yet: its `detection_filter` has not been reached, or a rate filter passes it.
    Below,
    /// The alert is suppressed; what the rule does beside alerting, it does.
    Suppressed(Action),
}

/// What a sequencer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    /// Matches decided.
    pub matches: u64,
    /// Alerts.
    pub alerts: u64,
    /// Matches held back by thresholds and filters.
    pub limited: u64,
    /// Suppressed matches.
    pub suppressed: u64,
    /// Matches void for want of a host's bit.
    pub void: u64,
    /// Thresholds' states forgotten at the cap.
    pub thresholds_forgotten: u64,
    /// Hosts' bits forgotten at the cap.
    pub bits_forgotten: u64,
}

/// Most entries of each table.
const MOST: usize = 1 << 18;

/// Decides matches, in the order they are given.
#[derive(Debug)]
pub struct Sequencer {
    rules: Arc<Ruleset>,
    /// By rule; empty where there is nothing to decide.
    filters: Vec<Vec<FilterKind>>,
    thresholds: Table<State>,
    bits: Table<u64>,
    names: HashMap<String, u32>,
    counts: SequenceCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Rule, or name of a bit.
    what: u32,
    /// Which threshold of a rule; what a bit is tracked by.
    slot: u8,
    a: Option<IpAddr>,
    b: Option<IpAddr>,
    flow: u64,
}

/// State of a threshold.
#[derive(Clone, Copy, Debug)]
struct State {
    begun: u64,
    count: u32,
    /// Since when a rate filter's action is in place.
    changed: Option<u64>,
}

/// A table that forgets its oldest entries.
#[derive(Debug)]
struct Table<T> {
    entries: HashMap<Key, (u64, T)>,
    /// Keys by the time they were made or renewed; an entry counts if its number is the entry's.
    ages: VecDeque<(u64, Key)>,
    next: u64,
    most: usize,
}

impl<T> Table<T> {
    fn new(most: usize) -> Table<T> {
        Table {
            entries: HashMap::default(),
            ages: VecDeque::new(),
            next: 0,
            most: most.max(1),
        }
    }

    fn get(&mut self, key: &Key) -> Option<&mut T> {
        self.entries.get_mut(key).map(|(_, v)| v)
    }

    /// Puts a value; returns how many others were forgotten for it.
    fn put(&mut self, key: Key, value: T) -> u64 {
        self.next += 1;
        self.entries.insert(key, (self.next, value));
        self.ages.push_back((self.next, key));
        let mut forgotten = 0;
        while self.entries.len() > self.most || self.ages.len() > self.most * 2 {
            let Some((number, key)) = self.ages.pop_front() else {
                break;
            };
            let current = self.entries.get(&key).is_some_and(|(n, _)| *n == number);
            if current {
                self.entries.remove(&key);
                forgotten += 1;
            }
        }
        forgotten
    }

    fn remove(&mut self, key: &Key) {
        self.entries.remove(key);
    }
}

impl Sequencer {
    /// For a ruleset, with what the configuration adds to its rules.
    pub fn new(rules: Arc<Ruleset>, filters: &[EventFilter]) -> Sequencer {
        Sequencer::with_cap(rules, filters, MOST)
    }

    /// With another cap on each table.
    pub fn with_cap(rules: Arc<Ruleset>, filters: &[EventFilter], most: usize) -> Sequencer {
        // What is said of one rule comes after what is said of all, and so before it in the end.
        let mut filters: Vec<&EventFilter> = filters.iter().collect();
        filters.sort_by_key(|f| (f.sid != 0, f.gid != 0));
        let of_rule = |rule: &Arc<Rule>| {
            let about = filters.iter().filter(|f| f.is_about(rule.gid, rule.sid));
            about.map(|f| f.kind.clone()).collect()
        };
        let filters = rules.rules().iter().map(of_rule).collect();
        let mut names = HashMap::default();
        for bit in rules.rules().iter().flat_map(|r| &r.bits) {
            if let Bit::Host { name, .. } = bit {
                let next = names.len() as u32;
                names.entry(name.clone()).or_insert(next);
            }
        }
        Sequencer {
            rules,
            filters,
            thresholds: Table::new(most),
            bits: Table::new(most),
            names,
            counts: SequenceCounts::default(),
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> SequenceCounts {
        self.counts
    }

    /// Decides a match. Matches are given by rising packet number, and order in a packet.
    pub fn decide(&mut self, found: &Match) -> Decision {
        let decision = self.decided(found);
        self.counts.matches += 1;
        match decision {
            Decision::Alert(_) => self.counts.alerts += 1,
            Decision::Limited(_) | Decision::Below => self.counts.limited += 1,
            Decision::Suppressed(_) => self.counts.suppressed += 1,
            Decision::Void => self.counts.void += 1,
            Decision::Silent => {}
        }
        decision
    }

    fn decided(&mut self, found: &Match) -> Decision {
        let rules = self.rules.clone();
        let rule = rules.rule(found.rule);
        for bit in &rule.bits {
            if let Bit::Host {
                operation: operation @ (BitOperation::IsSet | BitOperation::IsNotSet),
                name,
                track,
                ..
            } = bit
                && self.is_set(found, name, *track) != (*operation == BitOperation::IsSet)
            {
                return Decision::Void;
            }
        }
        for buffer in &found.asks {
            let holds = |one: &Vec<Ask>| one.iter().all(|ask| ask.set.decide(&ask.value));
            if !buffer.iter().any(holds) {
                return Decision::Void;
            }
        }
        for bit in &rule.bits {
            if let Bit::Host {
                operation,
                name,
                track,
                expire,
            } = bit
            {
                self.change(found, *operation, name, *track, *expire);
            }
        }
        if rule.silent {
            return Decision::Silent;
        }
        let filters = &self.filters[found.rule as usize];
        let suppressed = filters.iter().any(|p| match p {
            FilterKind::Suppress { track, addresses } => match track {
                None => true,
                Some(Track::Source) => addresses.has(found.source.0),
                Some(Track::Destination) => addresses.has(found.destination.0),
                Some(_) => addresses.has(found.source.0) || addresses.has(found.destination.0),
            },
            _ => false,
        });
        if suppressed {
            return Decision::Suppressed(rule.action);
        }
        let replaced = filters.iter().rev().find_map(|p| match p {
            FilterKind::Threshold(t) => Some(*t),
            _ => None,
        });
        let rates: Vec<(Threshold, Action, u32)> = filters
            .iter()
            .filter_map(|p| match p {
                FilterKind::Rate {
                    threshold,
                    action,
                    timeout,
                } => Some((*threshold, *action, *timeout)),
                _ => None,
            })
            .collect();
        let own = [rule.detection_filter, replaced.or(rule.threshold)];
        for (slot, threshold) in own.into_iter().enumerate() {
            if let Some(threshold) = threshold
                && !self.passes(found, slot as u8, &threshold)
            {
                return match slot {
                    0 => Decision::Below,
                    _ => Decision::Limited(rule.action),
                };
            }
        }
        let mut action = rule.action;
        for (slot, (threshold, other, seconds)) in rates.iter().enumerate() {
            if self.exceeds(found, slot as u8 + 2, threshold, *seconds) {
                action = *other;
            }
        }
        if action == Action::Pass && rule.action != Action::Pass {
            // A rate filter that passes from its count on.
            return Decision::Below;
        }
        Decision::Alert(action)
    }

    fn name(&self, name: &str) -> u32 {
        self.names.get(name).copied().unwrap_or(u32::MAX)
    }

    fn is_set(&mut self, found: &Match, name: &str, track: Track) -> bool {
        let key = key(self.name(name), 0, track, found);
        self.bits
            .get(&key)
            .is_some_and(|until| *until >= found.time)
    }

    fn change(
        &mut self,
        found: &Match,
        operation: BitOperation,
        name: &str,
        track: Track,
        expire: u32,
    ) {
        let key = key(self.name(name), 0, track, found);
        let set = match operation {
            BitOperation::Set => true,
            BitOperation::Unset => false,
            BitOperation::Toggle => !self.is_set(found, name, track),
            BitOperation::IsSet | BitOperation::IsNotSet => return,
        };
        if set {
            let until = found.time.saturating_add(nanoseconds(expire));
            self.counts.bits_forgotten += self.bits.put(key, until);
        } else {
            self.bits.remove(&key);
        }
    }

    /// The state of a threshold for a match, counted up; a new one, or one whose period is over, begins at 1. The flag says that it began.
    fn count(&mut self, found: &Match, slot: u8, threshold: &Threshold) -> (Key, u32, bool) {
        let key = key(found.rule, slot, threshold.track, found);
        let period = match threshold.kind {
            ThresholdKind::Backoff { .. } => u64::MAX,
            _ => nanoseconds(threshold.seconds),
        };
        if let Some(state) = self.thresholds.get(&key)
            && found.time <= state.begun.saturating_add(period)
        {
            state.count = state.count.saturating_add(1);
            return (key, state.count, false);
        }
        let state = State {
            begun: found.time,
            count: 1,
            changed: None,
        };
        self.counts.thresholds_forgotten += self.thresholds.put(key, state);
        (key, 1, true)
    }

    fn passes(&mut self, found: &Match, slot: u8, threshold: &Threshold) -> bool {
        let (key, count, _) = self.count(found, slot, threshold);
        match threshold.kind {
            ThresholdKind::Limit => count <= threshold.count,
            ThresholdKind::Both => count == threshold.count,
            ThresholdKind::Filter => count > threshold.count,
            ThresholdKind::Backoff { multiplier } => {
                let Some(state) = self.thresholds.get(&key) else {
                    return false;
                };
                // The count that alerts next is remembered as `changed`.
                let next = state.changed.unwrap_or(u64::from(threshold.count));
                let reached = u64::from(count) >= next;
                if reached {
                    let further = next.saturating_mul(u64::from(multiplier)).max(next + 1);
                    state.changed = Some(further);
                }
                reached
            }
            ThresholdKind::Threshold => {
                let reached = count >= threshold.count;
                if reached && let Some(state) = self.thresholds.get(&key) {
                    state.count = 0;
                }
                reached
            }
        }
    }

    /// Whether a rate filter's action is in place.
    fn exceeds(&mut self, found: &Match, slot: u8, threshold: &Threshold, seconds: u32) -> bool {
        let key = key(found.rule, slot, threshold.track, found);
        if let Some(state) = self.thresholds.get(&key)
            && let Some(since) = state.changed
        {
            if seconds == 0 || found.time <= since.saturating_add(nanoseconds(seconds)) {
                return true;
            }
            self.thresholds.remove(&key);
        }
        let (key, count, _) = self.count(found, slot, threshold);
        // The first `count` matches keep their action.
        let reached = count > threshold.count;
        if reached && let Some(state) = self.thresholds.get(&key) {
            state.changed = Some(found.time);
        }
        reached
    }
}

fn nanoseconds(seconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000
}

fn key(what: u32, slot: u8, track: Track, found: &Match) -> Key {
    let (source, destination) = (found.source.0, found.destination.0);
    // A bit of a host is the host's, whichever end it is of a match: the key does not say which end it was.
    let (a, b, flow) = match track {
        Track::Source => (Some(source), None, 0),
        Track::Destination => (Some(destination), None, 0),
        Track::Pair => (
            Some(source.min(destination)),
            Some(source.max(destination)),
            0,
        ),
        Track::Rule => (None, None, 0),
        Track::Flow => (None, None, found.flow.unwrap_or(0)),
    };
    Key {
        what,
        slot,
        a,
        b,
        flow,
    }
}
