//! CPU time of the threads of one measurement, between its first counted frame and its last: start-up, warm-up and taking down do not count.
//!
//! One thread turns the phases; each of the others notices at its next look, and reads its own clock only then. A thread that sleeps meanwhile takes no time, so what it
//! notices late it does not count.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

const COUNTING: u32 = 1;
const OVER: u32 = 2;

/// Shared by the threads of a measurement.
#[derive(Debug, Default)]
pub struct Meter {
    phase: AtomicU32,
    cpu_ns: AtomicU64,
}

impl Meter {
    /// From now on time counts.
    pub fn begin(&self) {
        self.phase.store(COUNTING, Ordering::Relaxed);
    }

    /// From now on it does not.
    pub fn end(&self) {
        self.phase.store(OVER, Ordering::Relaxed);
    }

    /// CPU time of all threads that have noticed the end, ns.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}

/// A thread's part in it.
pub(crate) struct Metered<'a> {
    meter: Option<&'a Meter>,
    phase: u32,
    from: u64,
}

impl<'a> Metered<'a> {
    pub(crate) fn new(meter: Option<&'a Meter>) -> Metered<'a> {
        Metered {
            meter,
            phase: 0,
            from: 0,
        }
    }

    /// To be called in each turn of a loop.
    #[inline]
    pub(crate) fn look(&mut self) {
        if let Some(meter) = self.meter {
            let phase = meter.phase.load(Ordering::Relaxed);
            if phase != self.phase {
                self.turn(meter, phase);
            }
        }
    }

    #[cold]
    fn turn(&mut self, meter: &Meter, phase: u32) {
        let now = thread_ns();
        if self.phase == COUNTING {
            meter.cpu_ns.fetch_add(now - self.from, Ordering::Relaxed);
        }
        self.phase = phase;
        self.from = now;
    }
}

impl Drop for Metered<'_> {
    fn drop(&mut self) {
        if let Some(meter) = self.meter {
            self.turn(meter, OVER);
        }
    }
}

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_between_counts() {
        let burn = || {
            let until = thread_ns() + 3_000_000;
            while thread_ns() < until {
                std::hint::spin_loop();
            }
        };
        let meter = Meter::default();
        let mut metered = Metered::new(Some(&meter));
        burn();
        meter.begin();
        metered.look();
        burn();
        metered.look();
        meter.end();
        metered.look();
        let counted = meter.cpu_ns();
        assert!(counted >= 3_000_000, "{counted}");
        burn();
        drop(metered);
        assert_eq!(meter.cpu_ns(), counted);
    }
}
