//! `weir bench middlebox`: weir beside everything that a user could pick instead, and beside baselines of the project's own, in one
//! interleaved run. `weir bench vm`, in `vm`: the user engine beside the kernel.
//!
//! `testrun` measures programs alone, `live` packets through a box, `bandwidth` streams through a box. What is measured is selected by
//! groups; every group leaves nothing behind. No figure is asserted here: targets are judged and told.

mod all;
mod balancer;
mod bandwidth;
mod bed;
pub mod catalogue;
mod classbench;
mod connections;
mod ddos;
mod edge;
#[cfg(test)]
mod history;
mod limits;
mod live;
mod matrix;
pub(crate) mod measure;
mod network;
mod peers;
pub(crate) mod plot;
#[cfg(feature = "rbpf")]
mod rbpf;
mod report;
mod router;
pub(crate) mod rules;
mod sensor;
mod testrun;
mod user;
mod vm;
mod xdp;
mod xsk;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

pub use all::{All, BenchRun, all};
pub use balancer::balancer_bench as balancer;
pub use ddos::ddos;
pub use limits::limits;
pub use network::network;
pub use report::{Absent, Budget, Figure, Outcome, RatioTarget, Refused};
pub use router::router;
pub use sensor::{Made, SensorBench, Traffic, sensor, sensor_part};
pub use vm::vm;
pub use xdp::xdp;
pub use xsk::xsk;

use crate::LabError;

/// How to measure.
#[derive(Debug)]
pub struct BenchOptions<'a> {
    /// The program `weir`.
    pub weir: PathBuf,
    /// Fewer sizes and shorter rounds: under a minute, rough figures.
    pub quick: bool,
    /// No rule set larger than this.
    pub largest: Option<usize>,
    /// Only groups whose names start with one of these; empty: all.
    pub only: Vec<String>,
    /// ClassBench sets: a file or a folder.
    pub rules: Option<PathBuf>,
    /// An object of Katran's balancer, for `balancer`.
    pub peer: Option<PathBuf>,
    /// Nothing but the outcome.
    pub quiet: bool,
    /// Show progress on standard error.
    pub progress: bool,
    /// Ends the run in order when set.
    pub stop: &'a AtomicBool,
}

/// Runs the benchmark of the middlebox, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out. Missed targets, missing peers and refused figures are results.
pub fn middlebox(options: &BenchOptions<'_>, out: &mut dyn Write) -> Result<Outcome, LabError> {
    let groups = Group::selected(&options.only)?;
    let mut bench = Bench {
        options,
        groups,
        scale: Scale::of(options),
        outcome: Outcome::new("middlebox", options.quick),
        out,
    };
    testrun::run(&mut bench)?;
    connections::run(&mut bench)?;
    live::run(&mut bench)?;
    bandwidth::run(&mut bench)?;
    bench.progress("")?;
    Ok(bench.outcome)
}

/// Figures that are measured or left out together. A name is a beginning of the figures' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    TestRules,
    TestExact,
    TestMasks,
    TestMss,
    TestMssRange,
    TestClassbench,
    TestConnections,
    LiveTuples,
    LiveExact,
    LiveSources,
    LiveMss,
    LiveStateful,
    Bandwidth,
    BandwidthTuples,
    BandwidthStateful,
    BandwidthTimestamps,
}

impl Group {
    const ALL: [(Group, &'static str); 16] = [
        (Group::TestRules, "testrun.rules"),
        (Group::TestExact, "testrun.exact"),
        (Group::TestMasks, "testrun.masks"),
        (Group::TestMss, "testrun.mss"),
        (Group::TestMssRange, "testrun.mss-range"),
        (Group::TestClassbench, "testrun.classbench"),
        (Group::TestConnections, "testrun.connections"),
        (Group::LiveTuples, "live.tuples"),
        (Group::LiveExact, "live.exact"),
        (Group::LiveSources, "live.sources"),
        (Group::LiveMss, "live.mss"),
        (Group::LiveStateful, "live.stateful"),
        (Group::Bandwidth, "bandwidth.baselines"),
        (Group::BandwidthTuples, "bandwidth.tuples"),
        (Group::BandwidthStateful, "bandwidth.stateful"),
        (Group::BandwidthTimestamps, "bandwidth.timestamps"),
    ];

    fn selected(only: &[String]) -> Result<Vec<Group>, LabError> {
        let starts = |name: &str| only.is_empty() || only.iter().any(|o| name.starts_with(o));
        for wanted in only {
            if !Group::ALL.iter().any(|(_, name)| name.starts_with(wanted)) {
                let names: Vec<&str> = Group::ALL.iter().map(|(_, name)| *name).collect();
                return Err(LabError::NothingSelected(wanted.clone(), names.join(", ")));
            }
        }
        let all = Group::ALL.iter().filter(|(_, name)| starts(name));
        Ok(all.map(|(group, _)| *group).collect())
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) rounds: usize,
    /// Largest rule set.
    pub(crate) largest: usize,
    /// Test runs of a hot packet in a round.
    pub(crate) repeat: usize,
    /// ns of CPU time that the live packets of one figure may take in a round.
    pub(crate) budget_ns: f64,
    quick: bool,
}

impl Scale {
    fn of(options: &BenchOptions<'_>) -> Scale {
        Scale {
            rounds: if options.quick { 5 } else { 11 },
            largest: options.largest.unwrap_or(100_000),
            repeat: if options.quick { 15 } else { 61 },
            budget_ns: if options.quick { 10e6 } else { 120e6 },
            quick: options.quick,
        }
    }

    /// Which of these sizes are measured. A quick run takes those that targets need.
    pub(crate) fn counts(&self, all: &[usize]) -> Vec<usize> {
        const QUICK: [usize; 4] = [10, 26, 1000, 100_000];
        let largest_of_all = all.iter().max();
        all.iter()
            .copied()
            .filter(|n| *n <= self.largest)
            .filter(|n| !self.quick || QUICK.contains(n) || Some(n) == largest_of_all)
            .collect()
    }
}

/// A run under way.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a BenchOptions<'a>,
    groups: Vec<Group>,
    pub(crate) scale: Scale,
    pub(crate) outcome: Outcome,
    out: &'a mut dyn Write,
}

impl Bench<'_> {
    pub(crate) fn wants(&self, group: Group) -> bool {
        self.groups.contains(&group)
    }

    /// A line for the user; also a place where an interruption is noticed.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), LabError> {
        self.progress("")?;
        if !self.options.quiet {
            writeln!(self.out, "{line}")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// What is being done now, in place; empty: nothing. Also a place where an interruption is noticed.
    pub(crate) fn progress(&mut self, line: &str) -> Result<(), LabError> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        if self.options.progress {
            // Progress that nobody can read is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
        }
        Ok(())
    }

    pub(crate) fn refuse(&mut self, name: &str, why: &str) {
        self.outcome.refused.push(Refused {
            name: name.to_owned(),
            why: why.to_owned(),
        });
    }

    pub(crate) fn note(&mut self, line: String) {
        self.outcome.notes.push(line);
    }

    pub(crate) fn figure(&mut self, figure: Figure) {
        self.outcome.figures.push(figure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_selected_by_beginnings_of_their_names() {
        let only = |names: &[&str]| {
            Group::selected(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(only(&[]).map(|g| g.len()).ok(), Some(Group::ALL.len()));
        assert_eq!(only(&["testrun.masks"]).ok(), Some(vec![Group::TestMasks]));
        let error = only(&["nosuch"]).unwrap_err().to_string();
        assert!(
            error.contains("nosuch") && error.contains("testrun.masks"),
            "{error}"
        );
    }
}
