//! A run whose workers have a ring each: a worker reads packets, works on them and has the memory that they lay in at once for the next, and only what it found goes to another thread.
//!
//! A slice of state belongs to the worker whose number is the remainder of the slice's. The kernel spreads packets so; what it does not understand (an MPLS label, a long ICMP error) may come to
//! another worker, which hands it over. Results come together in the order of the capture's time ([`super::merge`]), so that decisions over flows are those of one worker.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_packet::pcap::LinkType;

use super::lend::{Loans, UNDER_WAY};
use super::merge::{Merge, Message};
use super::reload::{Reloaded, Reloader, tidy};
use super::work::{Spread, Work};
use super::writer::Writer;
use super::{Controls, RunError, Say, Setup};
use crate::config::Verified;
use crate::decode::{Spreader, Sums};
use crate::source::{Batch, CHUNK, Filled, Gap, Notice, Source, SourceCounts};
use crate::worker::{Engine, Pipeline, Report};

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// Nanoseconds after which the kernel has surely handed over a packet.
const SETTLED: u64 = 60_000_000;
/// Results of one worker that may wait for those of another.
const AHEAD: usize = 64;
/// Bytes that may wait to be handed over to a worker.
const INBOX: usize = 16 * CHUNK;
/// How long the thread that writes waits for a worker before it looks at signals.
const LOOK: Duration = Duration::from_millis(50);
/// How long a worker that has read everything waits for what others hand over.
const PAUSE: Duration = Duration::from_millis(1);

/// What workers have in common.
struct Shared<'a> {
    controls: &'a Controls,
    started: Instant,
    /// The run is to end, for a reason that is not the controls'.
    ending: AtomicBool,
    /// Workers whose sources may have more.
    reading: AtomicUsize,
    /// Frames that have a number.
    numbered: AtomicU64,
    /// Milliseconds from the start to the last frame.
    heard: AtomicU64,
    /// The capture's time that records of counters are counted from.
    stats_from: OnceLock<u64>,
    engine: Mutex<Arc<Engine>>,
    /// How often rules were loaded anew.
    generation: AtomicU64,
    /// Frames for each worker that came to another.
    inboxes: Vec<Mutex<Batch>>,
    not_handed_over: AtomicU64,
}

impl Shared<'_> {
    fn ends(&self) -> bool {
        self.controls.stop.load(Ordering::Relaxed) || self.ending.load(Ordering::Relaxed)
    }

    fn elapsed(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Hands a frame over to the worker that it belongs to, if there is room.
    fn hand_over(&self, worker: usize, of: &Batch, at: usize) {
        let Some((inbox, frame)) = self.inboxes.get(worker).zip(of.frames.get(at)) else {
            return;
        };
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        match inbox.used < INBOX {
            true => inbox.adopt(of, frame),
            false => {
                self.not_handed_over.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Ends the run if its worker panics; in any case the worker reads no more.
struct Watch<'a> {
    shared: &'a Shared<'a>,
    reads: bool,
}

impl Watch<'_> {
    fn has_read(&mut self) {
        if std::mem::replace(&mut self.reads, false) {
            self.shared.reading.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.has_read();
        if std::thread::panicking() {
            self.shared.ending.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs. Frames that were not handed over.
pub(super) fn run(
    setup: Setup<'_>,
    sources: &mut [&mut dyn Source],
    controls: &Controls,
    writer: &mut Writer<'_>,
) -> Result<u64, RunError> {
    let workers = sources.len();
    writer.summary.workers = vec![SourceCounts::default(); workers];
    let shared = Shared {
        controls,
        started: Instant::now(),
        ending: AtomicBool::new(false),
        reading: AtomicUsize::new(workers),
        numbered: AtomicU64::new(0),
        heard: AtomicU64::new(0),
        stats_from: OnceLock::new(),
        engine: Mutex::new(Arc::clone(&setup.engine)),
        generation: AtomicU64::new(0),
        inboxes: (0..workers).map(|_| Mutex::default()).collect(),
        not_handed_over: AtomicU64::new(0),
    };
    let mut reloader = Reloader::new(&setup);
    std::thread::scope(|scope| {
        let shared = &shared;
        let (mut threads, mut from) = (Vec::new(), Vec::new());
        for (number, source) in sources.iter_mut().enumerate() {
            let (to, results) = mpsc::sync_channel(AHEAD);
            let mut worker = Worker::new(number, setup.clone(), &mut **source, shared);
            let spawned = std::thread::Builder::new()
                .name(format!("sensor-{number}"))
                .spawn_scoped(scope, move || worker.work(&to));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    shared.ending.store(true, Ordering::Relaxed);
                    return Err(RunError::Worker(e.to_string()));
                }
            }
            from.push(results);
        }
        // The writer's is the last one: what is loaded anew takes its place.
        drop(setup);
        let written = collect(Merge::new(from), shared, &mut reloader, writer);
        // If nothing is written any more nobody need read: who sends finds that nobody takes it.
        shared.ending.store(true, Ordering::Relaxed);
        let mut read = Ok(());
        for thread in threads {
            match thread.join() {
                Err(panic) => read = Err(RunError::of_panic(&*panic)),
                Ok(result) => read = read.and(result),
            }
        }
        written.and(read)
    })?;
    Ok(shared.not_handed_over.into_inner())
}

/// Writes what workers find, until all have ended; loads new rules.
fn collect(
    mut merge: Merge,
    shared: &Shared<'_>,
    reloader: &mut Reloader<'_>,
    writer: &mut Writer<'_>,
) -> Result<(), RunError> {
    loop {
        let goes_on = merge.receive(LOOK);
        merge.counts.not_handed_over = shared.not_handed_over.load(Ordering::Relaxed);
        let mut engine = shared.engine.lock().unwrap_or_else(PoisonError::into_inner);
        match reloader.poll(shared.controls, &engine) {
            Some(Reloaded::New(new)) => {
                tidy(Some(std::mem::replace(&mut *engine, new)));
                shared.generation.fetch_add(1, Ordering::Release);
            }
            Some(Reloaded::Kept(why)) => merge.not_reloaded = Some(why),
            None => {}
        }
        drop(engine);
        merge.write(writer, shared.controls)?;
        if !goes_on {
            return merge.end(writer, shared.controls);
        }
    }
}

/// One worker, with its ring and the state of its slices.
struct Worker<'a> {
    number: usize,
    setup: Setup<'a>,
    source: &'a mut dyn Source,
    shared: &'a Shared<'a>,
    pipeline: Pipeline,
    loans: Loans,
    spreader: Spreader,
    batch: Batch,
    verified: Verified,
    generation: u64,
    sequence: u64,
    /// Number of the last frame.
    last: u64,
    filtered: u64,
    now: u64,
    /// Of the capture's time, up to which everything that came is told.
    told: u64,
    /// Nanoseconds between records of counters; 0: there are none.
    stats_every: u64,
    next_stats: u64,
    gaps: Vec<Gap>,
    /// Since when nothing came.
    quiet: Option<Instant>,
}

impl<'a> Worker<'a> {
    fn new(
        number: usize,
        setup: Setup<'a>,
        source: &'a mut dyn Source,
        shared: &'a Shared<'a>,
    ) -> Worker<'a> {
        let config = setup.config;
        let mut pipeline = Pipeline::of_all(config, &setup.engine);
        pipeline.bypass_at(setup.bypass_of(source));
        let workers = shared.inboxes.len();
        let loans = Loans::among(config, UNDER_WAY as u64, |s| s % workers == number);
        Worker {
            number,
            source,
            shared,
            pipeline,
            loans,
            spreader: Spreader::default(),
            batch: Batch::default(),
            verified: config.checksums.interfaces,
            generation: 0,
            sequence: 0,
            last: 0,
            filtered: 0,
            now: 0,
            told: 0,
            stats_every: match config.logs.kinds.stats {
                true => config.logs.stats_interval.saturating_mul(SECOND),
                false => 0,
            },
            next_stats: 0,
            gaps: Vec::new(),
            quiet: None,
            setup,
        }
    }

    /// Its whole life. What it found until an error counts.
    fn work(&mut self, to: &SyncSender<Message>) -> Result<(), RunError> {
        let shared = self.shared;
        let mut watch = Watch {
            shared,
            reads: true,
        };
        let result = self.read(to, &mut watch);
        if result.is_err() {
            shared.ending.store(true, Ordering::Relaxed);
        }
        watch.has_read();
        self.hear(true);
        self.batch.clear();
        self.hand_on(to, true);
        result
    }

    fn read(&mut self, to: &SyncSender<Message>, watch: &mut Watch<'_>) -> Result<(), RunError> {
        let shared = self.shared;
        let mut closed = false;
        loop {
            if !closed && shared.ends() {
                closed = true;
                if !self.source.close()? {
                    watch.has_read();
                }
            }
            self.batch.clear();
            let filled = match watch.reads {
                true => self.source.fill(&mut self.batch)?,
                false => Filled::End,
            };
            self.hear(false);
            // First: whoever has read everything has handed it over before.
            let last = shared.reading.load(Ordering::Acquire) == 0;
            let has_own = filled == Filled::Frames;
            match filled {
                Filled::Frames => {
                    self.quiet = None;
                    shared.heard.store(shared.elapsed(), Ordering::Relaxed);
                    self.take_own();
                }
                Filled::Idle => self.rest(),
                Filled::End => watch.has_read(),
            }
            self.take_handed();
            if filled == Filled::End && self.batch.frames.is_empty() {
                if last {
                    return Ok(());
                }
                std::thread::sleep(PAUSE);
            }
            if !has_own {
                self.told = self.told.max(system_time().saturating_sub(SETTLED));
            }
            if !self.hand_on(to, false) {
                return Ok(());
            }
        }
    }

    /// Nothing came: flows end by the system's clock, which frames of interfaces have, too.
    fn rest(&mut self) {
        let since = *self.quiet.get_or_insert_with(Instant::now);
        let now = system_time();
        if since.elapsed() >= Duration::from_secs(1) && now / SECOND > self.now / SECOND {
            self.now = now;
        }
        let shared = self.shared;
        let quiet = shared.elapsed() - shared.heard.load(Ordering::Relaxed).min(shared.elapsed());
        if self
            .setup
            .idle
            .is_some_and(|most| u128::from(quiet) >= most.as_millis())
        {
            shared.ending.store(true, Ordering::Relaxed);
        }
    }

    /// Filters what came, says whose checksums are verified, and hands over what is another's.
    fn take_own(&mut self) {
        self.told = self
            .batch
            .frames
            .last()
            .map_or(self.told, |f| self.told.max(f.time));
        let mut frames = std::mem::take(&mut self.batch.frames);
        if let Some(filter) = &self.setup.filter {
            let before = frames.len();
            frames.retain(|f| filter.takes(f.link, self.batch.bytes(f), f.wire));
            self.filtered += (before - frames.len()) as u64;
        }
        self.batch.frames = frames;
        let sums = match self.verified {
            Verified::Auto => None,
            Verified::All => Some(Sums::Unknown),
            Verified::None => Some(Sums::Ignored),
        };
        let (slices, workers) = (
            u64::from(self.setup.config.slices),
            self.shared.inboxes.len() as u64,
        );
        let mut others = false;
        for at in 0..self.batch.frames.len() {
            let frame = self.batch.frames[at];
            let pair = (self.spreader).of(LinkType(frame.link), self.batch.bytes(&frame));
            let owner = (pair % slices % workers) as usize;
            let frame = &mut self.batch.frames[at];
            frame.sums = sums.unwrap_or(frame.sums);
            frame.slice = owner as u16;
            if owner != self.number {
                others = true;
                self.shared.hand_over(owner, &self.batch, at);
            }
        }
        if others {
            let own = self.number as u16;
            self.batch.frames.retain(|f| f.slice == own);
        }
    }

    /// Takes what came to others, in the order of time.
    fn take_handed(&mut self) {
        let Some(inbox) = self.shared.inboxes.get(self.number) else {
            return;
        };
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.frames.is_empty() {
            return;
        }
        for frame in &inbox.frames {
            self.batch.adopt(&inbox, frame);
        }
        inbox.clear();
        drop(inbox);
        self.batch.frames.sort_by_key(|f| f.time);
    }

    fn hear(&mut self, ends: bool) {
        for notice in self.source.notices(ends) {
            (self.setup.say)(Say::Interface(&notice));
            if let Notice::Gap(gap) = notice {
                self.gaps.push(gap);
            }
        }
    }

    /// Takes new rules if there are some.
    fn take_rules(&mut self) {
        if self.shared.generation.load(Ordering::Acquire) != self.generation {
            let engine = self
                .shared
                .engine
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.setup.engine = Arc::clone(&engine);
            // With the lock held: both belong together.
            self.generation = self.shared.generation.load(Ordering::Acquire);
        }
    }

    /// Works on the batch, and hands on what it found. Returns whether anybody takes it.
    fn hand_on(&mut self, to: &SyncSender<Message>, ends: bool) -> bool {
        self.take_rules();
        let before = self.now;
        for frame in &self.batch.frames {
            self.now = self.now.max(frame.time);
        }
        let count = self.batch.frames.len() as u64;
        let first = self.shared.numbered.fetch_add(count, Ordering::Relaxed);
        self.batch.first = first + 1;
        if count > 0 {
            self.last = first + count;
        }
        self.batch.filtered = self.filtered;
        let mut stats = ends;
        if self.stats_every > 0 && self.now > 0 {
            let from = *self.shared.stats_from.get_or_init(|| self.now);
            if self.next_stats == 0 {
                self.next_stats = from + self.stats_every;
            }
            if self.now >= self.next_stats {
                stats = true;
                // A worker that was quiet for long has one record of it.
                let rounds = (self.now - from) / self.stats_every + 1;
                self.next_stats = from + rounds * self.stats_every;
            }
        }
        let start = self.batch.frames.first().map(|f| f.time);
        let idle = count == 0 && !stats && self.gaps.is_empty() && before == self.now;
        let work = (!idle).then(|| self.analyse(before, stats, ends));
        let message = Message {
            told: self.told,
            generation: self.generation,
            start,
            work,
        };
        to.send(message).is_ok()
    }

    fn analyse(&mut self, before: u64, stats: bool, ends: bool) -> Box<Work> {
        let mut report = Report::default();
        let work = Work {
            sequence: self.sequence,
            batch: std::mem::take(&mut self.batch),
            spread: Spread::default(),
            engine: Arc::clone(&self.setup.engine),
            before,
            now: self.now,
            last: self.last,
            stats,
            ends,
            limits: self.loans.limits(self.sequence),
            gaps: std::mem::take(&mut self.gaps),
            not_reloaded: None,
            source: match stats {
                true => self.source.counts(),
                false => SourceCounts::default(),
            },
            found: Mutex::default(),
        };
        self.sequence += 1;
        self.pipeline.work(&work, &mut report);
        self.loans.note(work.sequence, &report.uses);
        let mut work = Work {
            found: Mutex::new(report),
            ..work
        };
        // Packets that are logged for their tags are found by the writer.
        if !work.engine.tags {
            let (first, filtered) = (work.batch.first, work.batch.filtered);
            self.batch = std::mem::replace(
                &mut work.batch,
                Batch {
                    first,
                    filtered,
                    ..Batch::default()
                },
            );
        }
        Box::new(work)
    }
}

/// The system's clock, which frames of interfaces have their times from.
fn system_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}
