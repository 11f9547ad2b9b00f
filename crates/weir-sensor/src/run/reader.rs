//! The reader: fills batches, filters and numbers their frames, says which slice each is about, and takes new rules when they are loaded.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_packet::pcap::LinkType;

use super::lend::Amounts;
use super::reload::{Reloaded, Reloader, tidy};
use super::work::{BatchBuffer, Share, Spread, Tick, Work};
use super::{Controls, RunError, Say, Setup};
use crate::config::Verified;
use crate::decode::{Decoder, Spreader, Sums};
use crate::source::{Batch, Filled, Gap, Notice, Source, SourceCounts};
use crate::worker::Report;

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// So many frames of a capture tell whether its checksums are to be looked at, and so many of ten of them wrong that they are not: as sensors of this kind do.
const SAMPLE: u32 = 1000;
const TENTH: u32 = 10;
/// How long nothing is read after a file that is followed had nothing new.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads batches, filters and numbers frames, and says which slice each is about.
pub(super) struct Reader<'a> {
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
    /// Nanoseconds between records of counters before the last one; 0: there are none.
    stats_every: u64,
    next_stats: u64,
    told: Instant,
    reloader: Reloader<'a>,
    /// Since when no frame came.
    quiet: Option<Instant>,
    /// Whose checksums are verified.
    verified: Verified,
    judge: Judge,
    /// Times in which interfaces were not listened to, for the next batch.
    gaps: Vec<Gap>,
    not_reloaded: Option<String>,
    /// The source takes no more in; what it has is read.
    closed: bool,
}

/// Finds whether a capture's checksums are to be looked at.
#[derive(Default)]
struct Judge {
    decoder: Decoder,
    seen: u32,
    wrong: u32,
    /// Enough was wrong.
    off: bool,
}

impl Judge {
    /// Another capture begins.
    fn begin(&mut self) {
        (self.seen, self.wrong, self.off) = (0, 0, false);
    }

    /// Looks at a frame; what is to be done with it.
    fn look(&mut self, link: LinkType, bytes: &[u8]) -> Sums {
        if self.off {
            return Sums::Ignored;
        }
        if self.seen < SAMPLE {
            self.seen += 1;
            self.wrong += u32::from(self.decoder.frame(link, 0, 0, bytes).bad_checksum);
            self.off = self.seen == SAMPLE && self.wrong * TENTH > self.seen;
        }
        Sums::Unknown
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        setup: Setup<'a>,
        source: &'a mut dyn Source,
        controls: &'a Controls,
    ) -> Reader<'a> {
        let slices = usize::from(setup.config.slices);
        let logs = &setup.config.logs;
        let interval = match (logs.kinds.stats, source.is_live()) {
            (false, _) => 0,
            (true, true) => logs.stats_interval,
            (true, false) => logs.stats_file_interval,
        };
        if setup.config.logs.options.file {
            source.keep_apart();
        }
        let verified = match source.knows_sums() {
            true => setup.config.checksums.interfaces,
            false => setup.config.checksums.files,
        };
        let judge = Judge {
            decoder: Decoder::new(setup.config.decoder()),
            ..Judge::default()
        };
        let reloader = Reloader::new(&setup);
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
            stats_every: interval.saturating_mul(SECOND),
            next_stats: 0,
            told: Instant::now(),
            reloader,
            quiet: None,
            verified,
            judge,
            gaps: Vec::new(),
            not_reloaded: None,
            closed: false,
        }
    }

    /// What was decided of the frames of a batch.
    pub(super) fn decided(&mut self, work: &Work, report: &Report) -> Result<(), RunError> {
        let (dropped, answers) = (&report.dropped, &report.answers);
        Ok(self.source.decided(&work.batch, dropped, answers)?)
    }

    /// Number of the batch that comes next.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The next batch with frames, or an empty one if time has passed without. At the end one in which all flows end, with the reason if there is one.
    pub(super) fn next(
        &mut self,
        buffer: BatchBuffer,
        limits: Option<Arc<[Amounts]>>,
    ) -> (Work, Result<(), RunError>) {
        let BatchBuffer {
            mut batch,
            spread,
            found,
        } = buffer;
        let result = self.fill(&mut batch);
        let ends = !matches!(result, Ok(true));
        if ends {
            batch.clear();
            self.hear(true);
        }
        let mut work = self.number_frames(batch, spread, found, ends);
        work.limits = limits;
        (work, result.map(|_| ()))
    }

    /// Fills a batch; whether there is anything to do with it, though it may be empty.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, RunError> {
        let live = self.source.is_live();
        let mut waited: Option<Instant> = None;
        loop {
            if self.controls.stop.load(Ordering::Relaxed) && !self.goes_on()? {
                return Ok(false);
            }
            self.reload();
            batch.clear();
            let filled = self.source.fill(batch);
            self.hear(false);
            match filled? {
                Filled::Frames => {
                    self.quiet = None;
                    return Ok(true);
                }
                Filled::End => return Ok(false),
                Filled::Idle => {
                    let since = *waited.get_or_insert_with(Instant::now);
                    // An empty batch that was handed out is no end of the quiet.
                    let quiet = *self.quiet.get_or_insert(since);
                    if self.setup.idle.is_some_and(|most| quiet.elapsed() >= most)
                        && !self.goes_on()?
                    {
                        return Ok(false);
                    }
                    if self.source.progress().is_some() {
                        std::thread::sleep(PAUSE);
                    }
                    // Flows end although nothing comes: of an interface by the system's clock, which its frames have, too. A file has no time but that of its frames.
                    if live && since.elapsed() >= Duration::from_secs(1)
                        || !self.gaps.is_empty()
                        || self.not_reloaded.is_some()
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

    /// The run is to end: whether the source has frames that it took in before.
    fn goes_on(&mut self) -> Result<bool, RunError> {
        let closed = std::mem::replace(&mut self.closed, true);
        Ok(closed || self.source.close()?)
    }

    /// Tells what happened to interfaces.
    fn hear(&mut self, ends: bool) {
        for notice in self.source.notices(ends) {
            (self.setup.say)(Say::Interface(&notice));
            if let Notice::Gap(gap) = notice {
                self.gaps.push(gap);
            }
        }
    }

    /// Says of each frame whether its checksums are verified.
    fn judge(&mut self, batch: &mut Batch) {
        let all = match self.verified {
            Verified::All => Sums::Unknown,
            Verified::None => Sums::Ignored,
            Verified::Auto if self.source.knows_sums() => return,
            Verified::Auto => {
                let mut frames = std::mem::take(&mut batch.frames);
                let mut begins = batch.begins.iter().map(|at| *at as usize).peekable();
                for (at, frame) in frames.iter_mut().enumerate() {
                    while begins.next_if(|first| *first <= at).is_some() {
                        self.judge.begin();
                    }
                    let before = self.judge.off;
                    frame.sums = (self.judge).look(LinkType(frame.link), batch.bytes(frame));
                    if self.judge.off && !before {
                        (self.setup.say)(Say::SumsIgnored);
                    }
                }
                // One whose frames come with the next batch.
                if begins.next().is_some() {
                    self.judge.begin();
                }
                batch.frames = frames;
                return;
            }
        };
        for frame in &mut batch.frames {
            frame.sums = all;
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
        self.judge(&mut batch);
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
        if self.stats_every > 0 && self.now > 0 && !ends {
            if self.next_stats == 0 {
                self.next_stats = self.now + self.stats_every;
            }
            if self.now >= self.next_stats {
                stats = true;
                self.next_stats = self.now + self.stats_every;
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
            limits: None,
            gaps: std::mem::take(&mut self.gaps),
            not_reloaded: self.not_reloaded.take(),
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
        match self.reloader.poll(self.controls, &self.setup.engine) {
            Some(Reloaded::New(engine)) => {
                tidy(Some(std::mem::replace(&mut self.setup.engine, engine)));
            }
            Some(Reloaded::Kept(why)) => self.not_reloaded = Some(why),
            None => {}
        }
    }
}
