//! Samples of one quantity over the rounds of a run, and what they come to.
//!
//! Invariant: a figure is the median over rounds of one run; figures are compared only within a run.

use std::fs;

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::LabError;

/// One sample for each round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(pub(crate) Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle sample; of an even number the higher of the two. NaN without samples.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The mean without the highest fiftieth, which interrupts are in.
    pub(crate) fn trimmed_mean(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.truncate((sorted.len() - sorted.len() / 50).max(1));
        sorted.iter().sum::<f64>() / sorted.len() as f64
    }

    /// Largest minus smallest, as a part of the median; 0 where the median is 0.
    pub(crate) fn spread(&self) -> f64 {
        if self.median() == 0.0 {
            return 0.0;
        }
        let low = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (high - low) / self.median().abs()
    }

    /// Round by round, this minus the other: what is left of a cost without its floor.
    pub(crate) fn minus(&self, floor: &Samples) -> Samples {
        Samples(self.0.iter().zip(&floor.0).map(|(a, b)| a - b).collect())
    }
}

/// CPU time that the work of the calling thread takes: its own, and that of the kernel thread which the kernel moves network processing
/// to when there is much of it. The thread is held on one CPU.
#[derive(Debug)]
pub(crate) struct CpuClock {
    helpers: Vec<u32>,
}

impl CpuClock {
    /// Binds the calling thread to a CPU.
    pub(crate) fn on(cpu: usize) -> Result<CpuClock, LabError> {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None::<Pid>, &set).map_err(|e| LabError::Io {
            what: format!("bind a thread to CPU {cpu}"),
            source: e.into(),
        })?;
        Ok(CpuClock {
            helpers: process_named(&format!("ksoftirqd/{cpu}"))
                .into_iter()
                .collect(),
        })
    }

    /// Counts these threads in, too.
    pub(crate) fn and(mut self, threads: impl IntoIterator<Item = u32>) -> CpuClock {
        self.helpers.extend(threads);
        self
    }

    /// ns so far.
    pub(crate) fn ns(&self) -> f64 {
        let own = clock_gettime(ClockId::ThreadCPUTime);
        let helpers = self.helpers.iter().filter_map(|pid| schedstat_ns(*pid));
        own.tv_sec as f64 * 1e9 + own.tv_nsec as f64 + helpers.sum::<f64>()
    }
}

/// CPU time of all ksoftirqd threads so far, in ns.
pub(crate) fn ksoftirqd_ns() -> f64 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (0..cpus)
        .filter_map(|cpu| schedstat_ns(process_named(&format!("ksoftirqd/{cpu}"))?))
        .sum()
}

/// CPU time of a thread so far, in ns.
pub(crate) fn schedstat_ns(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn process_named(name: &str) -> Option<u32> {
    processes(|comm| comm == name).into_iter().next()
}

/// Processes, kernel threads among them, whose names this is true for.
pub(crate) fn processes(wanted: impl Fn(&str) -> bool) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let pid = entry.file_name().to_string_lossy().parse::<u32>().ok()?;
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        wanted(comm.trim_end()).then_some(pid)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_spread() {
        let samples = Samples(vec![10.0, 14.0, 12.0]);
        assert_eq!(samples.median(), 12.0);
        assert!((samples.spread() - 4.0 / 12.0).abs() < 1e-9);
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn floors_are_taken_off_round_by_round() {
        let cost = Samples(vec![10.0, 30.0]);
        let floor = Samples(vec![5.0, 10.0]);
        assert_eq!(cost.minus(&floor).0, [5.0, 20.0]);
        let interrupted = Samples((0..50).map(|i| if i == 7 { 1e6 } else { 2.0 }).collect());
        assert_eq!(interrupted.trimmed_mean(), 2.0);
    }
}
