//! When flows are left out: by how full rings are.
//!
//! Half full: flows that begin from now on. Three quarters full all the same: those that began a while ago as well, the newest first, further back with each step, until it is enough. A quarter
//! full: nothing more. A flow that was left out stays so until it is quiet, or begins again.

use std::time::{Duration, Instant};

use weir_xsk::{PacketPort, monotonic_ns};

/// Percent of a ring.
const BEGINS: u32 = 50;
const MORE: u32 = 75;
const ENDS: u32 = 25;
/// Between two steps: as long as a step takes to show.
const PAUSE: Duration = Duration::from_millis(20);
/// The first step back, nanoseconds; each is twice the one before.
const STEP: u64 = 100_000_000;

/// The decision about one worker's rings.
#[derive(Debug, Default)]
pub(super) struct Shedder {
    /// Flows that began at this time or later are left out, by `CLOCK_MONOTONIC`.
    since: Option<u64>,
    stepped: Option<Instant>,
    step: u64,
}

impl Shedder {
    /// Looks at rings. The new decision, if it changed.
    pub(super) fn look<'a>(
        &mut self,
        ports: impl Iterator<Item = &'a PacketPort> + Clone,
    ) -> Option<Option<u64>> {
        let fuller = |percent| ports.clone().any(|port| port.is_fuller_than(percent));
        self.decide(fuller, monotonic_ns())
    }

    fn decide(&mut self, fuller: impl Fn(u32) -> bool, now: u64) -> Option<Option<u64>> {
        match self.since {
            None if fuller(BEGINS) => {
                (self.since, self.step) = (Some(now), STEP);
                self.stepped = Some(Instant::now());
            }
            Some(_) if !fuller(ENDS) => self.since = None,
            Some(since) if fuller(MORE) && self.stepped.is_none_or(|at| at.elapsed() >= PAUSE) => {
                self.since = Some(since.saturating_sub(self.step).max(1));
                self.step = self.step.saturating_mul(2);
                self.stepped = Some(Instant::now());
            }
            _ => return None,
        }
        Some(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_first_and_further_back_while_it_is_not_enough() {
        let mut shedder = Shedder::default();
        let at = |level: u32| move |percent: u32| level > percent;
        let now = 10_000_000_000;
        assert_eq!(shedder.decide(at(40), now), None);
        assert_eq!(shedder.decide(at(60), now), Some(Some(now)));
        assert_eq!(shedder.decide(at(60), now + 5), None);
        std::thread::sleep(PAUSE);
        assert_eq!(shedder.decide(at(80), now + 5), Some(Some(now - STEP)));
        std::thread::sleep(PAUSE);
        assert_eq!(shedder.decide(at(80), now + 5), Some(Some(now - 3 * STEP)));
        assert_eq!(shedder.decide(at(30), now + 5), None);
        assert_eq!(shedder.decide(at(20), now + 5), Some(None));
        assert_eq!(shedder.decide(at(20), now + 5), None);
    }
}
