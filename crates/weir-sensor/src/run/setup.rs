//! What a run is given, and what it says of itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::ledger::Ledger;
use crate::config::SensorConfig;
use crate::detect::RuleCost;
use crate::output::SinkError;
use crate::source::filter::Filter;
use crate::source::{Bypass, Notice, Source, SourceCounts, SourceError};
use crate::worker::Engine;

/// What others may ask of a run while it runs.
#[derive(Debug, Default)]
pub struct Controls {
    /// End it, after what was read is decided.
    pub stop: AtomicBool,
    /// Begin log files anew: somebody moved them away.
    pub reopen: AtomicBool,
    /// Load the rules anew.
    pub reload: AtomicBool,
}

/// Loads rules while those run that it is given.
pub type Reload = dyn Fn(&Engine) -> Result<Engine, String> + Send + Sync;

/// What to run.
#[derive(Clone)]
pub struct Setup<'a> {
    /// What it is told.
    pub config: &'a SensorConfig,
    /// Rules.
    pub engine: Arc<Engine>,
    /// Threads.
    pub workers: usize,
    /// Frames to take.
    pub filter: Option<Filter>,
    /// Where relative names of logs are.
    pub logs: PathBuf,
    /// End after so long without a frame, of a source whose end is not known.
    pub idle: Option<Duration>,
    /// How rules are loaded anew.
    pub reload: Option<Arc<Reload>>,
    /// Told what is worth saying while it runs.
    pub say: &'a (dyn Fn(Say<'_>) + Sync),
}

/// What is worth saying.
#[derive(Clone, Copy, Debug)]
pub enum Say<'a> {
    /// Bytes done and to do, and frames so far.
    Progress(u64, u64, u64),
    /// Rules were loaded anew, so many, in so long.
    Reloaded(usize, Duration),
    /// They could not be loaded; the old ones go on.
    NotReloaded(&'a str),
    /// A script failed, for the first time.
    Script(&'a str),
    /// A set of values could not be written.
    SetNotWritten(&'a Path, &'a std::io::Error),
    /// Something happened to an interface.
    Interface(&'a Notice),
    /// More than a tenth of the first frames of a capture had wrong checksums: those of the rest are not looked at.
    SumsIgnored,
}

impl Setup<'_> {
    /// What keeps packets of flows away. With a filter nothing does: who keeps packets away does not ask it about each.
    pub(super) fn bypass_of(&self, source: &dyn Source) -> Option<Arc<dyn Bypass>> {
        source.bypass().filter(|_| self.filter.is_none())
    }
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing more can be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A log cannot be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// A worker would never have anything to do.
    #[error(
        "{workers} workers need as many slices of state, of which there are {slices} (threading.slices)"
    )]
    TooManyWorkers {
        /// Those asked for.
        workers: usize,
        /// Those there are.
        slices: u16,
    },
    /// A thread ended that should not have.
    #[error("a worker ended early: {0}")]
    Worker(String),
}

impl RunError {
    /// Of a worker that panicked.
    pub(super) fn of_panic(panic: &(dyn std::any::Any + Send)) -> RunError {
        RunError::Worker(
            panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                .unwrap_or_else(|| "it panicked".to_owned()),
        )
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What the source saw.
    pub source: SourceCounts,
    /// Of each worker, if each has a source of its own.
    pub workers: Vec<SourceCounts>,
    /// Where frames ended.
    pub ledger: Ledger,
    /// All counters, by the dotted names of EVE's stats.
    pub counters: BTreeMap<String, u64>,
    /// Alerts written.
    pub alerts: u64,
    /// Alerts of each rule, by `gid:sid`.
    pub rules: BTreeMap<(u32, u32), u64>,
    /// What each rule cost, by `gid:sid`, if the configuration asks for it.
    pub costs: BTreeMap<(u32, u32), RuleCost>,
    /// Files that could not be read to their end.
    pub problems: Vec<(PathBuf, String)>,
    /// So many of those are cut off or damaged behind packets that were read.
    pub partial: usize,
    /// Files of directories that are no captures, and were left out.
    pub skipped: Vec<PathBuf>,
    /// Wall time.
    pub elapsed: Duration,
}
