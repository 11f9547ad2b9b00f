//! The writer: lines of batches in the order of their packets, what reaches over flows decided on the way, and the counters of all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::work::Work;
use super::{Controls, Ledger, RunError, Setup, Summary};
use crate::config::Log;
use crate::detect::{Decision, Sequencer};
use crate::output::{Sink, SinkError, Target, eve, json};
use crate::source::SourceCounts;
use crate::worker::{Engine, Report};

/// Writes results in the order of packets.
pub(super) struct Writer {
    eve: Option<Sink>,
    fast: Option<Sink>,
    sequencer: Sequencer,
    engine: Arc<Engine>,
    order: Vec<u32>,
    pub(super) live: bool,
    stats: bool,
    start: Option<u64>,
    now: u64,
    filtered: u64,
    scratch: Vec<u8>,
    /// What stands at the end of each record: which capture is being read, if records say so.
    tail: Option<Vec<u8>>,
    /// Counters of sequencers that are no more.
    sequenced: BTreeMap<&'static str, u64>,
    pub(super) summary: Summary,
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

/// A record with what stands at its end, written where there is `room`.
fn longer<'a>(record: &'a [u8], tail: Option<&[u8]>, room: &'a mut Vec<u8>) -> &'a [u8] {
    let (Some(tail), Some(inside)) = (tail, record.strip_suffix(b"}\n")) else {
        return record;
    };
    room.clear();
    room.extend_from_slice(inside);
    room.extend_from_slice(tail);
    room.push(b'\n');
    room
}

/// What decides over flows, with what the configuration adds to rules.
fn sequencer(engine: &Engine) -> Sequencer {
    Sequencer::new(Arc::clone(&engine.ruleset), &engine.filters)
}

impl Writer {
    pub(super) fn open(setup: &Setup<'_>) -> Result<Writer, SinkError> {
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
            tail: None,
            sequenced: BTreeMap::new(),
            summary: Summary::default(),
        })
    }

    /// Writes what one batch yielded in the order of packets, and empties it.
    pub(super) fn write(
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
        // At the end of all, the last capture is still the one.
        if let Some(file) = &work.batch.file {
            let mut tail = Vec::new();
            let mut o = json::Object::new(&mut tail);
            o.string("pcap_filename", file);
            o.end();
            tail[0] = b',';
            self.tail = Some(tail);
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
                let record = &report.bytes[line.eve.clone()];
                let record = longer(record, self.tail.as_deref(), &mut self.scratch);
                sink.line(record, line.time)?;
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
        let engine = (self.engine.rules(), self.engine.missing);
        eve::stats(&mut self.scratch, self.now, uptime, counters, engine);
        match &mut self.eve {
            Some(sink) if self.stats => {
                let mut room = Vec::new();
                let record = longer(&self.scratch, self.tail.as_deref(), &mut room);
                sink.line(record, self.now)
            }
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        for sink in [&mut self.eve, &mut self.fast].into_iter().flatten() {
            sink.flush()?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, source: &SourceCounts) -> Result<(), SinkError> {
        self.record(source)?;
        self.flush()
    }
}
