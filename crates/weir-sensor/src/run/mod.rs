//! A run: a source, workers, and one place where their results come together in the order of packets.
//!
//! With one worker everything happens in one thread. With more, a reader says of each batch which frames are about which slice of state, workers take turns at slices (`crew`), and
//! what a batch yields is written when all slices are done with it. So what is written is the same for any number of workers, and memory is bounded by the batches under way.

mod lend;
mod reader;
mod work;
mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use weir_packet::pcap::CaptureError;

use crate::config::Config;
use crate::crew::{Crew, Done};
use crate::detect::RuleCost;
use crate::output::SinkError;
use crate::source::filter::Filter;
use crate::source::{Notice, Source, SourceCounts, SourceError};
use crate::worker::{Engine, Pipeline, Report};
pub(crate) use lend::Amounts;
use lend::Loans;
use reader::Reader;
use work::{Room, Rooms};
pub(crate) use work::{Tick, Work};
use writer::Writer;

/// Batches that may be under way: 16 MB. Captures made one after the other have few flows at a time, all of one slice; with less to go on with all workers but one would be idle.
const UNDER_WAY: usize = 64;
/// Those of them for each worker, of a source that can wait, while no worker is idle.
const EACH: usize = 4;
/// How long a thread that freed much stays.
const LINGER: Duration = Duration::from_millis(1500);

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
pub struct Setup<'a> {
    /// What it is told.
    pub config: &'a Config,
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
    /// Something happened to an interface.
    Interface(&'a Notice),
    /// More than a tenth of the first frames of a capture had wrong checksums: those of the rest are not looked at.
    SumsIgnored,
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

/// Where every frame that was read ended: each is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Frames read.
    pub read: u64,
    /// Left out by the capture filter.
    pub filtered: u64,
    /// No IP, or a link type that is not decoded.
    pub not_ip: u64,
    /// Headers that are broken before or in IP.
    pub invalid: u64,
    /// Fragments: put together, or waiting, or given up; which, the counters of defragmentation say.
    pub fragments: u64,
    /// Frames of which something was left out for a wrong checksum: a segment of a stream, or a fragment, which no receiver takes.
    pub bad_checksum: u64,
    /// Whole packets that were inspected.
    pub inspected: u64,
}

impl Ledger {
    /// What is missing; 0 of a run that is over.
    pub fn unaccounted(&self) -> i128 {
        let ends = [
            self.filtered,
            self.not_ip,
            self.invalid,
            self.fragments,
            self.bad_checksum,
            self.inspected,
        ];
        i128::from(self.read) - ends.iter().map(|n| i128::from(*n)).sum::<i128>()
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What the source saw.
    pub source: SourceCounts,
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
    /// Files of directories that are no captures, and were left out.
    pub skipped: Vec<PathBuf>,
    /// Wall time.
    pub elapsed: Duration,
}

/// Runs until the source ends or somebody says stop.
///
/// # Errors
/// The source or a log fails; what was decided until then is written.
pub fn run(
    setup: Setup<'_>,
    source: &mut dyn Source,
    controls: &Controls,
) -> Result<Summary, RunError> {
    let started = Instant::now();
    if setup.workers > usize::from(setup.config.slices) {
        return Err(RunError::TooManyWorkers {
            workers: setup.workers,
            slices: setup.config.slices,
        });
    }
    let mut writer = Writer::open(&setup)?;
    writer.live = source.is_live();
    if writer.live {
        tidy(None);
    }
    let result = if setup.workers <= 1 {
        alone(setup, source, controls, &mut writer)
    } else {
        spread(setup, source, controls, &mut writer)
    };
    let counts = source.counts();
    let problems: Vec<(PathBuf, CaptureError)> = source.problems();
    let skipped = source.skipped();
    let written = writer.finish(&counts);
    result?;
    written?;
    let mut summary = writer.summary;
    summary.source = counts;
    summary.skipped = skipped;
    summary.problems = problems
        .into_iter()
        .map(|(path, e)| (path, e.to_string()))
        .collect();
    summary.elapsed = started.elapsed();
    Ok(summary)
}

fn alone(
    setup: Setup<'_>,
    source: &mut dyn Source,
    controls: &Controls,
    writer: &mut Writer,
) -> Result<(), RunError> {
    let mut pipeline = Pipeline::of_all(setup.config, &setup.engine);
    let mut loans = Loans::new(setup.config, UNDER_WAY as u64);
    let mut reader = Reader::new(setup, source, controls);
    let mut report = Report::default();
    let mut room = Room::default();
    loop {
        let limits = loans.limits(reader.sequence());
        let (work, result) = reader.next(room, limits);
        pipeline.work(&work, &mut report);
        loans.note(work.sequence, &report.uses);
        writer.write(&mut report, &work, controls)?;
        if work.ends {
            return result;
        }
        room = work.into();
    }
}

fn spread(
    setup: Setup<'_>,
    source: &mut dyn Source,
    controls: &Controls,
    writer: &mut Writer,
) -> Result<(), RunError> {
    let workers = setup.workers;
    // What is not read from an interface is lost.
    let enough = if source.is_live() {
        UNDER_WAY
    } else {
        (EACH * workers).min(UNDER_WAY)
    };
    let crew = Crew::new(setup.config, &setup.engine, enough, UNDER_WAY);
    let rooms = Rooms::new(Loans::new(setup.config, UNDER_WAY as u64));
    std::thread::scope(|scope| {
        let (done_to, done) = mpsc::channel::<Done>();
        let (crew, rooms) = (&crew, &rooms);
        let mut threads = Vec::new();
        for id in 0..workers {
            let done_to = done_to.clone();
            let spawned = std::thread::Builder::new()
                .name(format!("sensor-{id}"))
                .spawn_scoped(scope, move || crew.work(&done_to));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    crew.close();
                    return Err(RunError::Worker(e.to_string()));
                }
            }
        }
        let reader = std::thread::Builder::new()
            .name("sensor-read".to_owned())
            .spawn_scoped(scope, move || {
                let mut reader = Reader::new(setup, source, controls);
                let result = feed(&mut reader, crew, rooms, &done_to);
                crew.close();
                result
            });
        let reader = match reader {
            Ok(reader) => reader,
            Err(e) => {
                crew.close();
                return Err(RunError::Worker(e.to_string()));
            }
        };
        let written = collect(&done, crew, rooms, writer, controls);
        crew.abandon();
        drop(done);
        let mut panicked = None;
        for thread in threads {
            if let Err(panic) = thread.join() {
                panicked = Some(message(&*panic));
            }
        }
        let read = reader.join();
        if let Some(panic) = panicked {
            return Err(RunError::Worker(panic));
        }
        written?;
        match read {
            Ok(result) => result,
            Err(panic) => Err(RunError::Worker(message(&*panic))),
        }
    })
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_else(|| "it panicked".to_owned())
}

/// The reader's loop: the next batch to those who take it, as soon as they want one.
fn feed(
    reader: &mut Reader<'_>,
    crew: &Crew,
    rooms: &Rooms,
    done: &Sender<Done>,
) -> Result<(), RunError> {
    while crew.admit() {
        let limits = rooms.limits(reader.sequence());
        let (work, result) = reader.next(rooms.take(), limits);
        let ends = work.ends;
        if !crew.hand_out(work, done) || ends {
            return result;
        }
    }
    Ok(())
}

/// Writes what batches yielded, one after the other.
fn collect(
    done: &Receiver<Done>,
    crew: &Crew,
    rooms: &Rooms,
    writer: &mut Writer,
    controls: &Controls,
) -> Result<(), RunError> {
    let mut first = 0_u64;
    let mut pending: VecDeque<Option<Work>> = VecDeque::new();
    for work in done {
        // Who panicked says more when its thread is joined.
        let Ok(work) = work else { return Ok(()) };
        let at = (work.sequence - first) as usize;
        if pending.len() <= at {
            pending.resize_with(at + 1, || None);
        }
        pending[at] = Some(work);
        while pending.front().is_some_and(Option::is_some) {
            let Some(mut work) = pending.pop_front().flatten() else {
                break;
            };
            first += 1;
            let mut found = std::mem::take(&mut work.found)
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            rooms.note(work.sequence, &found.uses);
            writer.write(&mut found, &work, controls)?;
            if work.ends {
                return Ok(());
            }
            let mut room = Room::from(work);
            room.found = found;
            rooms.give_back(room);
            crew.written();
        }
    }
    Ok(())
}

/// Lets go of rules when nobody else refers to them any more: whoever works on packets does not stop for it. Without any: has the memory given back that loading them took.
fn tidy(old: Option<Arc<Engine>>) {
    // If there can be no thread, the closure goes, and the rules with whoever refers to them last.
    let _ = std::thread::Builder::new()
        .name("sensor-tidy".to_owned())
        .spawn(move || {
            while old.as_ref().is_some_and(|old| Arc::strong_count(old) > 1) {
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(old);
            // Allocators give free memory back to the system when somebody allocates or a thread ends, some time after it became free (mimalloc: a second). A quiet sensor does neither.
            std::thread::sleep(LINGER);
        });
}
