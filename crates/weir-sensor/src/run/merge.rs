//! Results of workers that read for themselves, in one order: that of the capture's time.
//!
//! Each worker says up to which time it has told everything. Lines up to the least of those times are written, the earliest first. Results under new rules wait until no worker has any under old
//! ones: what is decided over flows begins anew with them. Where packets may be logged for their tags whole batches are ordered, by their first packets, as the packets are looked at again.

use std::collections::VecDeque;
use std::collections::vec_deque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::work::{Spread, Work};
use super::writer::Writer;
use super::{Controls, RunError};
use crate::source::{Batch, SourceCounts};
use crate::worker::{Engine, Line, Report, Totals};

/// What a worker tells.
pub(super) struct Message {
    /// The capture's time up to which it has told everything.
    pub(super) told: u64,
    /// How often it took new rules.
    pub(super) generation: u64,
    /// Time of the first frame, if there is one.
    pub(super) start: Option<u64>,
    /// What it found, if there was something to look at.
    pub(super) work: Option<Box<Work>>,
}

/// All workers' results.
pub(super) struct Merge {
    workers: Vec<Results>,
    /// What is written next.
    found: Report,
    engine: Option<Arc<Engine>>,
    lines: u64,
    /// Records of counters that were written.
    rounds: u64,
    now: u64,
    /// Of the source, beside what its parts count.
    pub(super) counts: SourceCounts,
    /// Why rules that were to be loaded anew were not.
    pub(super) not_reloaded: Option<String>,
}

/// Those of one.
struct Results {
    from: Receiver<Message>,
    queue: VecDeque<Pending>,
    told: u64,
    generation: u64,
    open: bool,
    /// Time of the last line.
    at: u64,
    totals: Option<Box<Totals>>,
    counts: SourceCounts,
    filtered: u64,
    rounds: u64,
}

/// What one batch yielded.
struct Pending {
    work: Box<Work>,
    report: Report,
    lines: vec_deque::IntoIter<Line>,
    next: Option<Line>,
    generation: u64,
}

impl Pending {
    fn new(mut work: Box<Work>, generation: u64) -> Pending {
        let found = std::mem::take(&mut work.found);
        let mut report = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut lines = VecDeque::new();
        // Whole batches keep them.
        if work.batch.frames.is_empty() {
            let mut all = std::mem::take(&mut report.lines);
            all.sort_by_key(Line::key);
            lines = all.into();
        }
        let mut lines = lines.into_iter();
        Pending {
            work,
            report,
            next: lines.next(),
            lines,
            generation,
        }
    }

    /// Time of what is written next of it; none: it is done.
    fn time(&self) -> Option<u64> {
        let first = self.work.batch.frames.first().map(|f| f.time);
        first.or(self.next.as_ref().map(|line| line.time))
    }
}

impl Merge {
    pub(super) fn new(from: Vec<Receiver<Message>>) -> Merge {
        let workers = from.into_iter().map(|from| Results {
            from,
            queue: VecDeque::new(),
            told: 0,
            generation: 0,
            open: true,
            at: 0,
            totals: None,
            counts: SourceCounts::default(),
            filtered: 0,
            rounds: 0,
        });
        Merge {
            workers: workers.collect(),
            found: Report::default(),
            engine: None,
            lines: 0,
            rounds: 0,
            now: 0,
            counts: SourceCounts::default(),
            not_reloaded: None,
        }
    }

    /// Waits for the worker that is behind the others. Returns whether there is one still.
    pub(super) fn receive(&mut self, most: Duration) -> bool {
        let open = self.workers.iter_mut().filter(|w| w.open);
        let Some(last) = open.min_by_key(|w| w.told) else {
            return false;
        };
        match last.from.recv_timeout(most) {
            Ok(message) => {
                last.told = last.told.max(message.told);
                last.generation = message.generation;
                if let Some(time) = message.start {
                    self.now = self.now.max(time);
                }
                if let Some(work) = message.work {
                    last.queue.push_back(Pending::new(work, message.generation));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => last.open = false,
        }
        true
    }

    /// Writes what comes before all that is still to come.
    pub(super) fn write(
        &mut self,
        writer: &mut Writer<'_>,
        controls: &Controls,
    ) -> Result<(), RunError> {
        let open = || self.workers.iter().filter(|w| w.open);
        let told = open().map(|w| w.told).min().unwrap_or(u64::MAX);
        loop {
            let waiting = self.workers.iter().filter_map(|w| w.queue.front());
            let of_waiting = waiting.map(|p| p.generation);
            let of_open = self.workers.iter().filter(|w| w.open).map(|w| w.generation);
            let oldest = of_waiting.chain(of_open).min().unwrap_or(0);
            let fronts = self.workers.iter().enumerate().filter_map(|(number, w)| {
                let front = w.queue.front().filter(|p| p.generation == oldest)?;
                // Without anything more to write its time is over.
                let time = front.time().map_or(0, |time| time.max(w.at));
                Some((time, number))
            });
            let Some((time, number)) = fronts.min().filter(|(time, _)| *time <= told) else {
                break;
            };
            self.take(number, time, writer, controls)?;
        }
        self.counters(writer, controls)?;
        if !self.found.lines.is_empty()
            || self.not_reloaded.is_some()
            || controls.reopen.load(std::sync::atomic::Ordering::Relaxed)
        {
            self.flush(writer, controls, false, false)?;
        }
        Ok(())
    }

    /// Takes the next line of a worker, or the end of what its batch yielded.
    fn take(
        &mut self,
        number: usize,
        time: u64,
        writer: &mut Writer<'_>,
        controls: &Controls,
    ) -> Result<(), RunError> {
        let worker = &self.workers[number];
        let engine = worker.queue.front().map(|p| Arc::clone(&p.work.engine));
        if let (Some(old), Some(new)) = (&self.engine, &engine)
            && !Arc::ptr_eq(old, new)
        {
            self.flush(writer, controls, false, false)?;
        }
        self.engine = engine;
        let worker = &mut self.workers[number];
        let Some(front) = worker.queue.front_mut() else {
            return Ok(());
        };
        worker.at = worker.at.max(time);
        if front.work.batch.frames.is_empty()
            && let Some(mut line) = front.next.take()
        {
            front.next = front.lines.next();
            let found = &mut self.found;
            for range in [&mut line.eve, &mut line.fast] {
                let start = found.bytes.len();
                let bytes = front.report.bytes.get(range.clone()).unwrap_or_default();
                found.bytes.extend_from_slice(bytes);
                *range = start..found.bytes.len();
            }
            self.lines += 1;
            line.stand_at(self.lines);
            found.lines.push(line);
            return Ok(());
        }
        let Some(mut done) = worker.queue.pop_front() else {
            return Ok(());
        };
        self.now = self.now.max(done.work.now);
        worker.filtered = done.work.batch.filtered;
        if std::mem::take(&mut done.work.stats) {
            worker.totals = done.report.totals.take();
            worker.counts = done.work.source;
            worker.rounds += 1;
            if let Some(one) = writer.summary.workers.get_mut(number) {
                *one = worker.counts;
            }
        }
        done.work.ends = false;
        if done.work.batch.frames.is_empty() {
            self.found.files.append(&mut done.report.files);
            self.found.told.append(&mut done.report.told);
            if !done.work.gaps.is_empty() {
                self.flush_with(writer, controls, *done.work)?;
            }
        } else {
            self.flush(writer, controls, false, false)?;
            done.work.batch.filtered = self.filtered();
            writer.write(&mut done.report, &done.work, controls)?;
        }
        Ok(())
    }

    fn filtered(&self) -> u64 {
        self.workers.iter().map(|w| w.filtered).sum()
    }

    /// Writes a record of counters when all workers have theirs.
    fn counters(&mut self, writer: &mut Writer<'_>, controls: &Controls) -> Result<(), RunError> {
        let open = || self.workers.iter().filter(|w| w.open);
        let rounds = open().map(|w| w.rounds).min().unwrap_or(self.rounds);
        if rounds > self.rounds {
            self.rounds = rounds;
            self.flush(writer, controls, true, false)?;
        }
        Ok(())
    }

    /// All have ended.
    pub(super) fn end(
        &mut self,
        writer: &mut Writer<'_>,
        controls: &Controls,
    ) -> Result<(), RunError> {
        self.flush(writer, controls, true, true)
    }

    fn flush(
        &mut self,
        writer: &mut Writer<'_>,
        controls: &Controls,
        stats: bool,
        ends: bool,
    ) -> Result<(), RunError> {
        let Some(engine) = &self.engine else {
            return Ok(());
        };
        let mut work = Work {
            sequence: 0,
            batch: Batch::default(),
            spread: Spread::default(),
            engine: Arc::clone(engine),
            before: 0,
            now: self.now,
            last: 0,
            stats,
            ends,
            limits: None,
            gaps: Vec::new(),
            not_reloaded: self.not_reloaded.take(),
            source: self.counts,
            found: Mutex::default(),
        };
        if stats {
            for one in &self.workers {
                if let Some(totals) = &one.totals {
                    self.found.add_totals((**totals).clone());
                }
                work.source = work.source.plus(&one.counts);
            }
        }
        self.flush_with(writer, controls, work)
    }

    fn flush_with(
        &mut self,
        writer: &mut Writer<'_>,
        controls: &Controls,
        mut work: Work,
    ) -> Result<(), RunError> {
        work.batch.filtered = self.filtered();
        self.lines = 0;
        writer.write(&mut self.found, &work, controls)
    }
}
