//! A run: a source, workers, and one place where their results come together in the order of packets.
//!
//! With one worker everything happens in one thread. With more, a reader says of each batch which frames are about which slice of state, workers take turns at slices (`crew`), and
//! what a batch yields is written when all slices are done with it. So what is written is the same for any number of workers, and memory is bounded by the batches under way.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_packet::pcap::{CaptureError, LinkType};

use crate::config::{Config, Log};
use crate::crew::{Crew, Done};
use crate::decode::Spreader;
use crate::detect::{Decision, Sequencer};
use crate::output::{Sink, SinkError, Target, eve};
use crate::source::filter::Filter;
use crate::source::{Batch, Filled, Source, SourceCounts, SourceError};
use crate::worker::{Engine, Pipeline, Report};

/// Batches that may be under way: 16 MB. Captures made one after the other have few flows at a time, all of one slice; with less to go on with all workers but one would be idle.
const UNDER_WAY: usize = 64;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// How long a thread that freed much stays.
const LINGER: Duration = Duration::from_millis(1500);
/// How long nothing is read after a file that is followed had nothing new.
const PAUSE: Duration = Duration::from_millis(20);

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
    /// Files that could not be read to their end.
    pub problems: Vec<(PathBuf, String)>,
    /// Files of directories that are no captures, and were left out.
    pub skipped: Vec<PathBuf>,
    /// Wall time.
    pub elapsed: Duration,
}

/// A batch with what workers need to know of it.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) sequence: u64,
    pub(crate) batch: Batch,
    /// Which frames are about which slice; empty if there is one worker.
    spread: Spread,
    pub(crate) engine: Arc<Engine>,
    /// The capture's time before its first frame.
    pub(crate) before: u64,
    /// And after its last one: flows that are over by then are ended.
    pub(crate) now: u64,
    /// Number of its last frame.
    pub(crate) last: u64,
    /// Counters are due after it.
    pub(crate) stats: bool,
    /// It is the last one, and all flows end.
    pub(crate) ends: bool,
    /// Counters of the source, if they are due.
    source: SourceCounts,
    /// What slices found in it.
    pub(crate) found: Mutex<Report>,
}

/// Frames of a batch by the slices that they are about.
#[derive(Debug, Default)]
struct Spread {
    /// Places of frames in the batch, those of one slice together.
    order: Vec<u32>,
    shares: Vec<Share>,
    ticks: Vec<Tick>,
}

/// What a batch has for one slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) slice: u16,
    /// In the order of frames by slices.
    from: u32,
    to: u32,
}

/// A new second of the capture's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// The frame of the batch that began it.
    pub(crate) at: u32,
    pub(crate) time: u64,
}

impl Work {
    /// Those slices that have something to do.
    pub(crate) fn shares(&self) -> &[Share] {
        &self.spread.shares
    }

    /// Seconds that begin in it.
    pub(crate) fn ticks(&self) -> &[Tick] {
        &self.spread.ticks
    }

    /// Places of the frames of a share, rising.
    pub(crate) fn of(&self, share: &Share) -> &[u32] {
        self.spread
            .order
            .get(share.from as usize..share.to as usize)
            .unwrap_or_default()
    }
}

/// Memory of a batch that was written, to be used again.
#[derive(Default)]
struct Room {
    batch: Batch,
    spread: Spread,
    found: Report,
}

impl From<Work> for Room {
    fn from(work: Work) -> Room {
        Room {
            batch: work.batch,
            spread: work.spread,
            found: work
                .found
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        }
    }
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
    let mut reader = Reader::new(setup, source, controls);
    let mut report = Report::default();
    let mut room = Room::default();
    loop {
        let (work, result) = reader.next(room);
        pipeline.work(&work, &mut report);
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
    let crew = Crew::new(setup.config, &setup.engine);
    let workers = setup.workers;
    std::thread::scope(|scope| {
        let (done_to, done) = mpsc::channel::<Done>();
        let (free_to, free) = mpsc::channel::<Room>();
        for _ in 0..UNDER_WAY {
            let _ = free_to.send(Room::default());
        }
        let crew = &crew;
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
                let result = feed(&mut reader, crew, &free, &done_to);
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
        let written = collect(&done, &free_to, writer, controls);
        // The reader stops where no memory comes back.
        drop(free_to);
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

/// The reader's loop: the next batch to those who take it, as soon as there is memory for it.
fn feed(
    reader: &mut Reader<'_>,
    crew: &Crew,
    free: &Receiver<Room>,
    done: &Sender<Done>,
) -> Result<(), RunError> {
    while let Ok(room) = free.recv() {
        let (work, result) = reader.next(room);
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
    free: &Sender<Room>,
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
            writer.write(&mut found, &work, controls)?;
            if work.ends {
                return Ok(());
            }
            let mut room = Room::from(work);
            room.found = found;
            let _ = free.send(room);
        }
    }
    Ok(())
}

/// Reads batches, filters and numbers frames, and says which slice each is about.
struct Reader<'a> {
    /// Its engine is the one of the next batch: nobody else keeps the first one when there are new rules.
    setup: Setup<'a>,
    source: &'a mut dyn Source,
    controls: &'a Controls,
    sequence: u64,
    number: u64,
    /// Tells which slice a frame is about.
    spreader: Spreader,
    /// Of each slice: whether it has ever had a frame, and how many frames of the batch are its.
    used: Vec<bool>,
    counts: Vec<u32>,
    filtered: u64,
    now: u64,
    /// When the capture's clock last began a new second.
    ticked: u64,
    next_stats: u64,
    told: Instant,
    loading: Option<Receiver<Result<(Engine, Duration), String>>>,
    /// Since when no frame came.
    quiet: Option<Instant>,
}

impl<'a> Reader<'a> {
    fn new(setup: Setup<'a>, source: &'a mut dyn Source, controls: &'a Controls) -> Reader<'a> {
        let slices = usize::from(setup.config.slices);
        Reader {
            setup,
            source,
            controls,
            sequence: 0,
            number: 0,
            spreader: Spreader::default(),
            used: vec![false; slices],
            counts: vec![0; slices],
            filtered: 0,
            now: 0,
            ticked: 0,
            next_stats: 0,
            told: Instant::now(),
            loading: None,
            quiet: None,
        }
    }

    /// The next batch with frames, or an empty one if time has passed without. At the end one in which all flows end, with the reason if there is one.
    fn next(&mut self, room: Room) -> (Work, Result<(), RunError>) {
        let Room {
            mut batch,
            spread,
            found,
        } = room;
        let result = self.fill(&mut batch);
        let ends = !matches!(result, Ok(true));
        if ends {
            batch.clear();
        }
        let work = self.number_frames(batch, spread, found, ends);
        (work, result.map(|_| ()))
    }

    /// Fills a batch; whether there is anything to do with it, though it may be empty.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, RunError> {
        let live = self.source.is_live();
        let mut waited: Option<Instant> = None;
        loop {
            if self.controls.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            self.reload();
            batch.clear();
            match self.source.fill(batch)? {
                Filled::Frames => {
                    self.quiet = None;
                    return Ok(true);
                }
                Filled::End => return Ok(false),
                Filled::Idle => {
                    let since = *waited.get_or_insert_with(Instant::now);
                    // An empty batch that was handed out is no end of the quiet.
                    let quiet = *self.quiet.get_or_insert(since);
                    if self.setup.idle.is_some_and(|most| quiet.elapsed() >= most) {
                        return Ok(false);
                    }
                    if self.source.progress().is_some() {
                        std::thread::sleep(PAUSE);
                    }
                    // Flows end although nothing comes: of an interface by the system's clock, which its frames have, too. A file has no time but that of its frames.
                    if live && since.elapsed() >= Duration::from_secs(1)
                        || self.controls.reopen.load(Ordering::Relaxed)
                    {
                        if self.source.progress().is_none() {
                            let now = SystemTime::now()
                                .duration_since(UNIX_EPOCH)
                                .unwrap_or_default();
                            self.now = self.now.max(now.as_nanos() as u64);
                        }
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Filters and numbers the frames of a batch, and says who has to do what.
    fn number_frames(
        &mut self,
        mut batch: Batch,
        mut spread: Spread,
        found: Report,
        ends: bool,
    ) -> Work {
        let read = batch.frames.len();
        if let Some(filter) = &self.setup.filter {
            let mut frames = std::mem::take(&mut batch.frames);
            frames.retain(|f| filter.takes(f.link, batch.bytes(f), f.wire));
            batch.frames = frames;
        }
        self.filtered += (read - batch.frames.len()) as u64;
        batch.first = self.number + 1;
        self.number += batch.frames.len() as u64;
        for frame in &batch.frames {
            self.now = self.now.max(frame.time);
        }
        let before = self.ticked;
        batch.filtered = self.filtered;
        // What the last batch leaves is counted in any case.
        let mut stats = ends;
        if self.setup.config.logs.kinds.stats
            && self.setup.config.logs.stats_interval > 0
            && self.now > 0
            && !ends
        {
            if self.next_stats == 0 {
                self.next_stats = self.now + self.setup.config.logs.stats_interval * 1_000_000_000;
            }
            if self.now >= self.next_stats {
                stats = true;
                self.next_stats = self.now + self.setup.config.logs.stats_interval * 1_000_000_000;
            }
        }
        if self.told.elapsed() >= Duration::from_millis(500)
            && let Some((done, total)) = self.source.progress()
        {
            self.told = Instant::now();
            (self.setup.say)(Say::Progress(done, total, self.number));
        }
        let sequence = self.sequence;
        self.sequence += 1;
        let source = if stats {
            self.source.counts()
        } else {
            SourceCounts::default()
        };
        // A worker that is alone finds slices when it decodes frames.
        if self.setup.workers > 1 {
            self.spread(&mut batch, &mut spread, stats);
        }
        Work {
            sequence,
            batch,
            spread,
            engine: Arc::clone(&self.setup.engine),
            before,
            now: self.now,
            last: self.number,
            stats,
            ends,
            source,
            found: Mutex::new(found),
        }
    }

    /// Finds the slice of each frame, and what each slice has to do. `all`: all of them have something to do.
    fn spread(&mut self, batch: &mut Batch, spread: &mut Spread, all: bool) {
        let slices = self.used.len().max(1) as u64;
        spread.ticks.clear();
        let mut tick = |at: usize, time: u64| {
            if time / SECOND > self.ticked / SECOND {
                self.ticked = time;
                let at = at as u32;
                spread.ticks.push(Tick { at, time });
            }
        };
        self.counts.fill(0);
        let mut frames = std::mem::take(&mut batch.frames);
        for (at, frame) in frames.iter_mut().enumerate() {
            tick(at, frame.time);
            let pair = self.spreader.of(LinkType(frame.link), batch.bytes(frame));
            frame.slice = (pair % slices) as u16;
            self.counts[usize::from(frame.slice)] += 1;
        }
        if frames.is_empty() {
            tick(0, self.now);
        }
        spread.shares.clear();
        let mut from = 0;
        for (slice, (count, used)) in self.counts.iter_mut().zip(&mut self.used).enumerate() {
            *used |= *count > 0;
            if *count > 0 || all || *used && !spread.ticks.is_empty() {
                let to = from + *count;
                let slice = slice as u16;
                spread.shares.push(Share { slice, from, to });
            }
            // From here on, where its next frame stands in the order.
            from += std::mem::replace(count, from);
        }
        spread.order.clear();
        spread.order.resize(frames.len(), 0);
        for (at, frame) in frames.iter().enumerate() {
            let next = &mut self.counts[usize::from(frame.slice)];
            spread.order[*next as usize] = at as u32;
            *next += 1;
        }
        batch.frames = frames;
    }

    /// Begins to load rules if somebody asked for it, and takes them when they are there: from this batch on.
    fn reload(&mut self) {
        if let Some(loading) = &self.loading {
            match loading.try_recv() {
                Ok(Ok((engine, took))) => {
                    (self.setup.say)(Say::Reloaded(engine.rules(), took));
                    let new = Arc::new(engine);
                    tidy(Some(std::mem::replace(&mut self.setup.engine, new)));
                    self.loading = None;
                }
                Ok(Err(why)) => {
                    (self.setup.say)(Say::NotReloaded(&why));
                    self.loading = None;
                }
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => {
                    (self.setup.say)(Say::NotReloaded("loading ended early"));
                    self.loading = None;
                }
            }
        } else if self.controls.reload.swap(false, Ordering::Relaxed)
            && let Some(load) = &self.setup.reload
        {
            let (to, from) = mpsc::channel();
            let (load, before) = (Arc::clone(load), Arc::clone(&self.setup.engine));
            let started = Instant::now();
            let spawned = std::thread::Builder::new()
                .name("sensor-load".to_owned())
                .spawn(move || {
                    let loaded = load(&before);
                    drop(before);
                    // Nobody waits for it any more if the run is over.
                    let _ = to.send(loaded.map(|engine| (engine, started.elapsed())));
                });
            match spawned {
                Ok(_) => self.loading = Some(from),
                Err(e) => (self.setup.say)(Say::NotReloaded(&e.to_string())),
            }
        }
    }
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

/// Writes results in the order of packets.
struct Writer {
    eve: Option<Sink>,
    fast: Option<Sink>,
    sequencer: Sequencer,
    engine: Arc<Engine>,
    order: Vec<u32>,
    live: bool,
    stats: bool,
    start: Option<u64>,
    now: u64,
    filtered: u64,
    scratch: Vec<u8>,
    /// Counters of sequencers that are no more.
    sequenced: BTreeMap<&'static str, u64>,
    summary: Summary,
}

fn sink(log: Option<&Log>, folder: &Path) -> Result<Option<Sink>, SinkError> {
    let Some(log) = log else { return Ok(None) };
    let within = |path: &PathBuf| folder.join(path);
    let target = match &log.target {
        Target::File(path) => Target::File(within(path)),
        Target::UnixStream(path) => Target::UnixStream(within(path)),
        Target::UnixDatagram(path) => Target::UnixDatagram(within(path)),
        Target::Stdout => Target::Stdout,
    };
    Sink::open(target, log.rotation).map(Some)
}

/// What decides over flows, with what the configuration adds to rules.
fn sequencer(engine: &Engine) -> Sequencer {
    Sequencer::new(Arc::clone(&engine.ruleset), &engine.filters)
}

impl Writer {
    fn open(setup: &Setup<'_>) -> Result<Writer, SinkError> {
        let logs = &setup.config.logs;
        Ok(Writer {
            eve: sink(logs.eve.as_ref(), &setup.logs)?,
            fast: sink(logs.fast.as_ref(), &setup.logs)?,
            sequencer: sequencer(&setup.engine),
            engine: Arc::clone(&setup.engine),
            order: Vec::new(),
            live: false,
            stats: logs.kinds.stats,
            start: None,
            now: 0,
            filtered: 0,
            scratch: Vec::new(),
            sequenced: BTreeMap::new(),
            summary: Summary::default(),
        })
    }

    /// Writes what one batch yielded in the order of packets, and empties it.
    fn write(
        &mut self,
        report: &mut Report,
        work: &Work,
        controls: &Controls,
    ) -> Result<(), RunError> {
        self.filtered = work.batch.filtered;
        self.now = self.now.max(work.now);
        if self.start.is_none() {
            self.start = work.batch.frames.first().map(|f| f.time);
        }
        if controls.reopen.swap(false, Ordering::Relaxed) {
            for sink in [&mut self.eve, &mut self.fast].into_iter().flatten() {
                sink.reopen()?;
            }
        }
        if !Arc::ptr_eq(&work.engine, &self.engine) {
            // Counts of thresholds begin anew with new rules: numbers of rules have changed.
            self.keep_counts();
            self.sequencer = sequencer(&work.engine);
            self.engine = Arc::clone(&work.engine);
        }
        self.order.clear();
        self.order.extend(0..report.lines.len() as u32);
        // Of one packet, they are in the order in which they were found.
        self.order.sort_by_key(|l| report.lines[*l as usize].key());
        for l in &self.order {
            let line = &report.lines[*l as usize];
            if let Some(matched) = &line.matched {
                match self.sequencer.decide(matched) {
                    Decision::Alert(_) => {}
                    Decision::Silent
                    | Decision::Void
                    | Decision::Limited
                    | Decision::Suppressed => continue,
                }
                // A rule that passes has no line; it is decided like the others, for the bits that it sets.
                if line.eve.is_empty() && line.fast.is_empty() {
                    continue;
                }
                let rule = self.engine.ruleset.rule(matched.rule);
                self.summary.alerts += 1;
                *self.summary.rules.entry((rule.gid, rule.sid)).or_default() += 1;
            }
            if let Some(sink) = &mut self.eve
                && !line.eve.is_empty()
            {
                sink.line(&report.bytes[line.eve.clone()], line.time)?;
            }
            if let Some(sink) = &mut self.fast
                && !line.fast.is_empty()
            {
                sink.line(&report.bytes[line.fast.clone()], line.time)?;
            }
        }
        if work.stats {
            let totals = report.totals.take().unwrap_or_default();
            self.summary.counters = totals.named();
            self.summary.ledger = Ledger {
                filtered: self.filtered,
                ..totals.ledger()
            };
            // At the end the record is written when the source is done, too.
            if !work.ends {
                self.record(&work.source)?;
            }
        }
        report.clear();
        if self.live || work.batch.frames.is_empty() {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds the counters of the sequencer to those of sequencers before it.
    fn keep_counts(&mut self) {
        let now = self.sequencer.counts();
        for (name, count) in [
            ("detect.alerts_limited", now.limited),
            ("detect.alerts_suppressed", now.suppressed),
            ("detect.void_for_bits_of_hosts", now.void),
            ("detect.thresholds_forgotten", now.thresholds_forgotten),
            ("detect.bits_forgotten", now.bits_forgotten),
        ] {
            *self.sequenced.entry(name).or_default() += count;
        }
    }

    /// A record of counters.
    fn record(&mut self, source: &SourceCounts) -> Result<(), SinkError> {
        self.summary.ledger.read = source.frames;
        let before = self.sequenced.clone();
        self.keep_counts();
        let sequenced = std::mem::replace(&mut self.sequenced, before);
        let counters = &mut self.summary.counters;
        counters.insert(
            "capture.kernel_packets".to_owned(),
            source.frames + source.kernel_drops,
        );
        counters.insert("capture.kernel_drops".to_owned(), source.kernel_drops);
        counters.insert("capture.cut_frames".to_owned(), source.cut);
        counters.insert("detect.alert".to_owned(), self.summary.alerts);
        for (name, count) in &sequenced {
            counters.insert((*name).to_owned(), *count);
        }
        let ledger = &self.summary.ledger;
        for (name, count) in [
            ("ledger.read", ledger.read),
            ("ledger.filtered", ledger.filtered),
            ("ledger.not_ip", ledger.not_ip),
            ("ledger.invalid", ledger.invalid),
            ("ledger.fragments", ledger.fragments),
            ("ledger.inspected", ledger.inspected),
        ] {
            counters.insert(name.to_owned(), count);
        }
        for (name, sink) in [
            ("output.eve_lost", &self.eve),
            ("output.fast_lost", &self.fast),
        ] {
            if let Some(sink) = sink {
                counters.insert(name.to_owned(), sink.lost());
            }
        }
        let uptime = self.now.saturating_sub(self.start.unwrap_or(self.now)) / 1_000_000_000;
        self.scratch.clear();
        eve::stats(&mut self.scratch, self.now, uptime, counters);
        match &mut self.eve {
            Some(sink) if self.stats => sink.line(&self.scratch, self.now),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        for sink in [&mut self.eve, &mut self.fast].into_iter().flatten() {
            sink.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self, source: &SourceCounts) -> Result<(), SinkError> {
        self.record(source)?;
        self.flush()
    }
}
