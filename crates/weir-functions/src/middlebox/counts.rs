//! Limits of connections at a time: where their tables lie, and what a rule says of its own.

use serde::{Deserialize, Serialize};
use weir_bpf::abi::{self, COUNT_WAYS, Count, rule_flag};
use weir_policy::model::{Per, Rule};

use super::meters::{self, TablesTooLarge};
use crate::plan::MapPlan;

/// Maps with names and references: good with the connections that they refer to, and where they lie as they did.
pub const COUNT_MAPS: &[&str] = &["count_names", "count_words"];

/// Most bytes of all tables: 1 GiB.
const MAX_BYTES: u64 = 1 << 30;

/// Where a rule's table begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    bucket: u64,
    word: u64,
    /// Buckets of the table.
    buckets: u64,
}

/// Hands out places, rule by rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// `limits N` of the policy.
    limits: u32,
    next: Place,
}

impl Places {
    pub(super) fn new(limits: u32) -> Places {
        Places {
            limits,
            next: Place::default(),
        }
    }

    /// The place of a rule; `None` if it limits no connections.
    pub(super) fn take(&mut self, rule: &Rule) -> Option<Place> {
        let (most, per) = rule.connections_at_a_time()?;
        let buckets = per.map_or(1, |_| u64::from(self.limits.next_power_of_two()));
        let place = Place {
            buckets,
            ..self.next
        };
        self.next.bucket += buckets;
        self.next.word += buckets * COUNT_WAYS as u64 * u64::from(most);
        Some(place)
    }
}

/// What a rule has in place of a rate and a time-out. [`plan`] refuses places that do not fit.
pub(super) fn write(out: &mut abi::Rule, most: u32, per: Option<Per>, name: u32, place: Place) {
    out.flags |= rule_flag::COUNT | rule_flag::HIT;
    out.drop_param = u64::from(most) << 32 | u64::from(place.word as u32);
    out.rate_limit_ns = place.bucket << 32 | place.buckets.saturating_sub(1);
    out.timeout_ns = meters::word(name, per);
}

/// A limit that counts addresses apart, or connections, and its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitTable {
    /// Id of the rule.
    pub rule: u32,
    /// How many connections each name may have; `None`: a limit of packets.
    pub connections: Option<u32>,
    /// Names that fit: addresses, pairs, or one of the whole rule.
    pub names: u64,
    /// What the table takes.
    pub bytes: u64,
    place: Place,
}

impl LimitTable {
    /// Buckets of the table in the map of names, each [`COUNT_WAYS`] names; of a limit of connections.
    pub fn buckets(&self) -> std::ops::Range<u64> {
        self.place.bucket..self.place.bucket + self.place.buckets
    }

    /// First word of a name's list in the map of words: its bucket counted from the first one of the table, and its way there.
    pub fn words(&self, bucket: u64, way: u64) -> std::ops::Range<u64> {
        let most = u64::from(self.connections.unwrap_or(0));
        let first = self.place.word + (bucket * COUNT_WAYS as u64 + way) * most;
        first..first + most
    }
}

/// The tables of all limits that count apart, in the order of rules. `limits`: as the policy says.
pub fn limit_tables<'a>(rules: impl Iterator<Item = &'a Rule>, limits: u32) -> Vec<LimitTable> {
    let mut places = Places::new(limits);
    let of = |rule: &Rule| {
        let table = LimitTable {
            rule: rule.id,
            connections: None,
            names: 0,
            bytes: 0,
            place: Place::default(),
        };
        if let Some(place) = places.take(rule) {
            let (most, per) = rule.connections_at_a_time()?;
            let ways = place.buckets * COUNT_WAYS as u64;
            return Some(LimitTable {
                connections: Some(most),
                names: if per.is_some() { ways } else { 1 },
                bytes: place.buckets * size_of::<Count>() as u64
                    + ways * u64::from(most) * size_of::<u64>() as u64,
                place,
                ..table
            });
        }
        let (names, bytes) = rule.counts_apart().then(|| meters::size(limits))?;
        Some(LimitTable {
            names,
            bytes,
            ..table
        })
    };
    rules.filter_map(of).collect()
}

/// The maps of all tables.
pub(super) fn plan(limits: u32, rules: &[abi::Rule]) -> Result<[MapPlan; 2], TablesTooLarge> {
    let counting = rules.iter().filter(|r| r.flags & rule_flag::COUNT != 0);
    let (mut tables, mut buckets, mut words) = (0, 0u64, 0u64);
    for rule in counting {
        let own = (rule.rate_limit_ns & u64::from(u32::MAX)) + 1;
        tables += 1;
        buckets += own;
        words += own * COUNT_WAYS as u64 * (rule.drop_param >> 32);
    }
    let bytes = buckets * size_of::<Count>() as u64 + words * size_of::<u64>() as u64;
    if bytes > MAX_BYTES {
        return Err(TablesTooLarge {
            tables,
            limits,
            mib: bytes >> 20,
            max: MAX_BYTES >> 20,
        });
    }
    Ok([
        MapPlan::empty("count_names", buckets as usize, size_of::<Count>()),
        MapPlan::empty("count_words", words as usize, size_of::<u64>()),
    ])
}
