//! Caps that slices lend each other: what one may have depends on what the others had some batches ago, so that a cap bites where memory is short, and not where one pair of hosts has
//! more than its part of an idle sensor.
//!
//! What a slice has after a batch is a function of the frames up to it, whoever worked on it and when. A batch is handed out with what all slices had so many batches before it as may be
//! under way: that is known by then, for any number of workers. Invariants: the limits of a batch add up to the cap; a quarter of its part no slice can lose; where all want more than
//! there is, the parts become equal.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::SensorConfig;

/// What is lent: flows, their memory, memory of sessions, of segments, of fragments, of applications.
pub(crate) const KINDS: usize = 6;
/// So much of each.
pub(crate) type Amounts = [u64; KINDS];

/// Batches that may be under way: 16 MB. Captures made one after the other have few flows at a time, all of one slice; with less to go on with all workers but one would be idle.
pub(super) const UNDER_WAY: usize = 64;

/// Of its part, one in so many a slice always has.
const FLOOR: u128 = 4;
/// What a slice counts as having at least, as a fraction of its part: idle ones are equal.
const LEAST: u128 = 64;

/// What slices have and may have.
#[derive(Debug)]
pub(crate) struct Loans {
    caps: Amounts,
    /// Now.
    used: Vec<Amounts>,
    /// After each of the last batches, by their numbers.
    past: VecDeque<(u64, Arc<[Amounts]>)>,
    /// Batches between what is known and what is decided by it.
    lag: u64,
    /// Slices that lend each other.
    members: Vec<bool>,
}

impl Loans {
    /// `lag`: batches that may be under way.
    pub(super) fn new(config: &SensorConfig, lag: u64) -> Loans {
        Loans::among(config, lag, |_| true)
    }

    /// Some of the slices, with their parts of each cap.
    pub(super) fn among(
        config: &SensorConfig,
        lag: u64,
        is_member: impl Fn(usize) -> bool,
    ) -> Loans {
        let members: Vec<bool> = (0..usize::from(config.slices)).map(is_member).collect();
        let all = members.len().max(1) as u128;
        let some = members.iter().filter(|is| **is).count() as u128;
        let part = |cap: u64| (u128::from(cap) * some / all) as u64;
        let caps: Amounts = [
            config.flow.flows,
            config.flow.memory,
            config.flow.sessions,
            config.stream.memory,
            config.defragment.memory,
            config.app.memory,
        ];
        Loans {
            caps: caps.map(part),
            used: vec![[0; KINDS]; usize::from(config.slices)],
            past: VecDeque::new(),
            lag,
            members,
        }
    }

    /// A batch is done: what those slices have that had something to do.
    pub(super) fn note(&mut self, sequence: u64, uses: &[(u16, Amounts)]) {
        for (slice, amounts) in uses {
            if let Some(used) = self.used.get_mut(usize::from(*slice)) {
                *used = *amounts;
            }
        }
        self.past.push_back((sequence, self.used.as_slice().into()));
        while self.past.len() as u64 > self.lag + 1 {
            self.past.pop_front();
        }
    }

    /// What slices may have in a batch; `None`: their parts.
    pub(super) fn limits(&self, sequence: u64) -> Option<Arc<[Amounts]>> {
        let known = sequence.checked_sub(self.lag)?;
        let (_, used) = self.past.iter().find(|(number, _)| *number == known)?;
        let lends = |slice: usize| self.members.get(slice).copied().unwrap_or_default();
        let slices = (0..used.len()).filter(|s| lends(*s)).count().max(1) as u128;
        let mut limits = vec![[0; KINDS]; used.len()];
        for (kind, cap) in self.caps.iter().enumerate() {
            let part = u128::from(*cap) / slices;
            let floor = part / FLOOR;
            let pool = u128::from(*cap) - floor * slices;
            let weight = |amounts: &Amounts| u128::from(amounts[kind]) + part / LEAST + 1;
            let members = || (0..).zip(used.iter()).filter(|(slice, _)| lends(*slice));
            let all: u128 = members().map(|(_, amounts)| weight(amounts)).sum();
            for (slice, amounts) in members() {
                // Of a cap that is none, the product would be too large.
                let own = (pool / all.max(1)) * weight(amounts)
                    + (pool % all.max(1)) * weight(amounts) / all.max(1);
                limits[slice][kind] = u64::try_from(floor + own).unwrap_or(u64::MAX);
            }
        }
        Some(limits.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loans(cap: u64) -> Loans {
        let mut config = SensorConfig::default();
        config.flow.flows = cap;
        Loans::new(&config, 2)
    }

    /// Flows that slices may have when they have these; of 16 slices the others have none.
    fn limits(cap: u64, used: &[u64]) -> Vec<u64> {
        let mut loans = loans(cap);
        let uses: Vec<(u16, Amounts)> = (0..)
            .zip(used)
            .map(|(s, n)| (s, [*n, 0, 0, 0, 0, 0]))
            .collect();
        loans.note(0, &uses);
        assert_eq!(loans.limits(0), None);
        assert_eq!(loans.limits(1), None);
        let limits = loans.limits(2).expect("known");
        limits.iter().map(|l| l[0]).collect()
    }

    #[test]
    fn who_has_most_may_have_more() {
        let idle = limits(16_000, &[]);
        assert!(idle.iter().all(|l| (990..=1000).contains(l)), "{idle:?}");
        let one = limits(16_000, &[900]);
        assert!(
            one[0] > 8_000 && one[1..].iter().all(|l| *l >= 250),
            "{one:?}"
        );
        for used in [&[][..], &[900], &[13_000, 10], &[1000; 16], &[16_000; 3]] {
            let sum: u64 = limits(16_000, used).iter().sum();
            assert!(sum <= 16_000 && sum > 15_900, "{used:?}: {sum}");
        }
        // A cap that is none.
        assert!(limits(u64::MAX, &[5]).iter().all(|l| *l > u64::MAX / 64));
    }

    /// Slices of one worker lend each other, and nothing of what another's have.
    #[test]
    fn those_of_one_worker() {
        let mut config = SensorConfig::default();
        config.flow.flows = 16_000;
        let mut loans = Loans::among(&config, 0, |slice| slice % 4 == 1);
        loans.note(0, &[(1, [3_000, 0, 0, 0, 0, 0])]);
        let limits = loans.limits(0).expect("known");
        let sum: u64 = (0..16).filter(|s| s % 4 == 1).map(|s| limits[s][0]).sum();
        assert!((3_990..=4_000).contains(&sum), "{limits:?}");
        assert!(limits[1][0] > 3_000 && limits[5][0] >= 250, "{limits:?}");
    }

    #[test]
    fn where_all_want_more_the_parts_become_equal() {
        let mut used = vec![600_u64; 16];
        used[0] = 12_000;
        for _ in 0..400 {
            used = limits(16_000, &used);
        }
        assert!(used.iter().all(|n| (900..=1100).contains(n)), "{used:?}");
    }
}
