//! The writer: lines of batches in the order of their packets, what reaches over flows decided on the way, and the counters of all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::outputs::Outputs;
use super::tags::Tags;
use super::work::Work;
use super::{Controls, Ledger, RunError, Say, Setup, Summary};
use crate::config::{Kinds, Log, Record};
use crate::decode::Decoder;
use crate::detect::{Decision, Sequencer};
use crate::output::eve::EveOptions;
use crate::output::{
    CertificateStore, LogDestination, Sink, SinkError, Store, What, eve, json, stats_log,
};
use crate::rules::Action;
use crate::source::SourceCounts;
use crate::worker::{Engine, Report};

/// Writes results in the order of packets.
pub(super) struct Writer<'a> {
    say: &'a (dyn Fn(Say<'_>) + Sync),
    eve: Vec<(Sink, Kinds)>,
    fast: Option<Sink>,
    stats: Option<Sink>,
    data: Option<Sink>,
    debug: Option<Sink>,
    store: Option<Store>,
    certificates: Option<CertificateStore>,
    scripts: Outputs,
    tags: Tags,
    options: EveOptions,
    sequencer: Sequencer,
    engine: Arc<Engine>,
    order: Vec<u32>,
    pub(super) live: bool,
    start: Option<u64>,
    now: u64,
    filtered: u64,
    scratch: Vec<u8>,
    /// What stands at the end of each record: which capture is being read, if records say so.
    tail: Option<Vec<u8>>,
    /// Milliseconds in which interfaces were not listened to.
    gap_time: u64,
    /// Times that rules were to be loaded anew and were not.
    not_reloaded: u64,
    /// Counters of sequencers that are no more.
    sequenced: BTreeMap<&'static str, u64>,
    pub(super) summary: Summary,
}

fn sink(log: &Log, folder: &Path) -> Result<Sink, SinkError> {
    let within = |path: &PathBuf| folder.join(path);
    let target = match &log.target {
        LogDestination::File(path) => LogDestination::File(within(path)),
        LogDestination::UnixStream(path) => LogDestination::UnixStream(within(path)),
        LogDestination::UnixDatagram(path) => LogDestination::UnixDatagram(within(path)),
        LogDestination::Stdout => LogDestination::Stdout,
    };
    Sink::open(target, log.rotation)
}

/// A record with what stands at its end, written where there is `buffer`.
fn longer<'a>(record: &'a [u8], tail: Option<&[u8]>, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    let (Some(tail), Some(inside)) = (tail, record.strip_suffix(b"}\n")) else {
        return record;
    };
    buffer.clear();
    buffer.extend_from_slice(inside);
    buffer.extend_from_slice(tail);
    buffer.push(b'\n');
    buffer
}

/// What decides over flows, with what the configuration adds to rules.
fn sequencer(engine: &Engine) -> Sequencer {
    Sequencer::new(Arc::clone(&engine.ruleset), &engine.filters)
}

impl<'a> Writer<'a> {
    pub(super) fn open(setup: &Setup<'a>) -> Result<Writer<'a>, SinkError> {
        let logs = &setup.config.logs;
        Ok(Writer {
            say: setup.say,
            eve: (logs.eve.iter())
                .map(|one| Ok((sink(&one.log, &setup.logs)?, one.kinds.clone())))
                .collect::<Result<_, SinkError>>()?,
            fast: (logs.fast.as_ref())
                .map(|log| sink(log, &setup.logs))
                .transpose()?,
            stats: (logs.stats.as_ref())
                .map(|log| sink(log, &setup.logs))
                .transpose()?,
            data: (logs.data.as_ref())
                .map(|log| sink(log, &setup.logs))
                .transpose()?,
            debug: (logs.debug.as_ref())
                .map(|log| sink(log, &setup.logs))
                .transpose()?,
            store: (logs.store.as_ref()).map(|store| Store::new(setup.logs.join(&store.folder))),
            certificates: (logs.certificates.as_ref())
                .map(|folder| CertificateStore::new(setup.logs.join(folder))),
            tags: Tags::new(Decoder::new(setup.config.decoder())),
            scripts: Outputs::open(&logs.scripts, &setup.logs),
            options: logs.options.clone(),
            sequencer: sequencer(&setup.engine),
            engine: Arc::clone(&setup.engine),
            order: Vec::new(),
            live: false,
            start: None,
            now: 0,
            filtered: 0,
            scratch: Vec::new(),
            tail: None,
            gap_time: 0,
            not_reloaded: 0,
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
        if let Some(first) = work.batch.frames.first() {
            self.begin(first.time);
        }
        if controls.reopen.swap(false, Ordering::Relaxed) {
            for sink in self.sinks() {
                sink.reopen()?;
            }
        }
        if !Arc::ptr_eq(&work.engine, &self.engine) {
            // Counts of thresholds begin anew with new rules: numbers of rules have changed.
            self.keep_counts();
            self.sequencer = sequencer(&work.engine);
            self.engine = Arc::clone(&work.engine);
        }
        self.notes(work)?;
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
        report.flows.sort_unstable();
        let mut next = 0;
        let order = std::mem::take(&mut self.order);
        for l in order.iter().copied() {
            // Frames before this line's: what is tagged by then is logged.
            let number = report.lines[l as usize].key().0;
            self.tagged(work, report, &mut next, number)?;
            let line = &mut report.lines[l as usize];
            let scripted = line.scripted.take();
            let line = &*line;
            if let Some(matched) = &line.matched {
                // Where packets are dropped it was decided with its packet.
                let decision = match line.decided {
                    true => Decision::Alert(Action::Alert),
                    false => self.sequencer.decide(matched),
                };
                match decision {
                    Decision::Alert(_) => {}
                    Decision::Silent
                    | Decision::Void
                    | Decision::Limited(_)
                    | Decision::Below
                    | Decision::Suppressed(_) => continue,
                }
                // A rule that passes has no line; it is decided like the others, for the bits that it sets.
                let empty = [&line.eve, &line.fast, &line.debug];
                if empty.iter().all(|r| r.is_empty()) && scripted.is_none() {
                    continue;
                }
                let rule = self.engine.ruleset.rule(matched.rule);
                if !rule.tags.is_empty() && self.options.tagged {
                    self.tags.begin(matched, &rule.tags);
                }
                self.summary.alerts += 1;
                *self.summary.rules.entry((rule.gid, rule.sid)).or_default() += 1;
            }
            if let Some((wants, mut view)) = scripted {
                self.scripts.log(wants, &mut view);
            }
            if !line.eve.is_empty() {
                let record = &report.bytes[line.eve.clone()];
                let record = longer(record, self.tail.as_deref(), &mut self.scratch);
                for (sink, kinds) in &mut self.eve {
                    if kinds.takes(line.record) {
                        sink.line(record, line.time)?;
                    }
                }
            }
            let text = match line.record {
                Record::Data => &mut self.data,
                _ => &mut self.fast,
            };
            for (sink, block) in [(text, &line.fast), (&mut self.debug, &line.debug)] {
                if let Some(sink) = sink
                    && !block.is_empty()
                {
                    sink.line(&report.bytes[block.clone()], line.time)?;
                }
            }
        }
        self.order = order;
        self.tagged(work, report, &mut next, u64::MAX)?;
        report.files.sort_by_key(|stored| stored.key);
        for stored in report.files.drain(..) {
            match (stored.what, &mut self.store, &mut self.certificates) {
                (What::File(file), Some(store), _) => store.put(&file),
                (What::Certificates(chain), _, Some(store)) => store.put(&chain),
                _ => {}
            }
        }
        if work.stats {
            let totals = report.totals.take().unwrap_or_default();
            self.summary.counters = totals.named();
            self.summary.costs.clone_from(totals.costs());
            self.summary.ledger = Ledger {
                filtered: self.filtered,
                ..totals.ledger()
            };
            // At the end the record is written when the source is done, too.
            if !work.ends {
                self.record(&work.source)?;
            }
        }
        for text in &report.told {
            (self.say)(Say::Script(text));
        }
        self.tell();
        report.clear();
        if self.live || work.batch.frames.is_empty() {
            self.flush()?;
        }
        Ok(())
    }

    /// A frame has this time: none does before the first.
    pub(super) fn begin(&mut self, time: u64) {
        self.start.get_or_insert(time);
    }

    /// Writes records of frames before one, of what is tagged.
    fn tagged(
        &mut self,
        work: &Work,
        report: &Report,
        next: &mut usize,
        before: u64,
    ) -> Result<(), SinkError> {
        while let Some(frame) = work.batch.frames.get(*next) {
            let number = work.batch.first + *next as u64;
            if number >= before {
                break;
            }
            *next += 1;
            if self.tags.is_empty() {
                continue;
            }
            let at = report.flows.partition_point(|(n, _)| *n < number);
            let flow = report.flows.get(at).filter(|(n, _)| *n == number);
            let flow = flow.map_or(0, |(_, id)| *id);
            self.scratch.clear();
            let what = (frame, number, flow);
            let bytes = work.batch.bytes(frame);
            let is = (self.tags).frame(what, bytes, &mut self.scratch, &self.options);
            if !is {
                continue;
            }
            let mut longer_record = Vec::new();
            let record = longer(&self.scratch, self.tail.as_deref(), &mut longer_record);
            for (sink, kinds) in &mut self.eve {
                if kinds.takes(Record::Alert) {
                    sink.line(record, frame.time)?;
                }
            }
        }
        Ok(())
    }

    /// Says which scripts of outputs failed.
    fn tell(&mut self) {
        for text in self.scripts.told.drain(..) {
            (self.say)(Say::Script(&text));
        }
    }

    /// All logs.
    fn sinks(&mut self) -> impl Iterator<Item = &mut Sink> {
        let eve = self.eve.iter_mut().map(|(sink, _)| sink);
        eve.chain(&mut self.fast)
            .chain(&mut self.stats)
            .chain(&mut self.data)
            .chain(&mut self.debug)
    }

    /// Records of what happened to the sensor itself.
    fn notes(&mut self, work: &Work) -> Result<(), SinkError> {
        let mut notes: Vec<(u64, Option<&str>, &str, String)> = Vec::new();
        for gap in &work.gaps {
            let milliseconds = gap.to.saturating_sub(gap.from) / 1_000_000;
            let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
            let back = if gap.back { "" } else { ", and is not back" };
            let text = format!(
                "{}; what was sent was not seen for {seconds}.{rest:03} s{back}",
                gap.why
            );
            notes.push((gap.to, Some(&gap.interface), "capture", text));
            self.gap_time += milliseconds;
        }
        if let Some(why) = &work.not_reloaded {
            self.not_reloaded += 1;
            let text = format!("rules not reloaded, the old ones stay in use: {why}");
            notes.push((self.now, None, "detect", text));
        }
        for (time, interface, module, text) in notes {
            self.scratch.clear();
            let what = (module, text.as_str());
            eve::engine(&mut self.scratch, time, interface, what, &self.options);
            for (sink, _) in &mut self.eve {
                sink.line(&self.scratch, time)?;
            }
        }
        Ok(())
    }

    /// Adds the counters of the sequencer to those of sequencers before it.
    fn keep_counts(&mut self) {
        let now = self
            .engine
            .decided()
            .unwrap_or_else(|| self.sequencer.counts());
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
        self.summary.ledger.read = source.frames - source.not_handed_over;
        let before = self.sequenced.clone();
        self.keep_counts();
        let sequenced = std::mem::replace(&mut self.sequenced, before);
        let counters = &mut self.summary.counters;
        counters.insert(
            "capture.kernel_packets".to_owned(),
            (source.kernel_packets).unwrap_or(source.frames + source.kernel_drops),
        );
        counters.insert("capture.removed".to_owned(), source.removed);
        counters.insert("capture.bypassed".to_owned(), source.bypass.packets);
        counters.insert("capture.bypassed_bytes".to_owned(), source.bypass.bytes);
        counters.insert("capture.bypassed_late".to_owned(), source.bypass.late);
        counters.insert("capture.bypass_refused".to_owned(), source.bypass.refused);
        counters.insert("capture.kernel_drops".to_owned(), source.kernel_drops);
        counters.insert("capture.shed".to_owned(), source.shed.packets);
        counters.insert("capture.shed_bytes".to_owned(), source.shed.bytes);
        counters.insert("capture.shed_flows".to_owned(), source.shed.flows);
        counters.insert("capture.not_handed_over".to_owned(), source.not_handed_over);
        for (number, one) in self.summary.workers.iter().enumerate() {
            for (name, count) in [
                ("kernel_packets", one.kernel_packets.unwrap_or(one.frames)),
                ("kernel_drops", one.kernel_drops),
                ("read", one.frames),
            ] {
                counters.insert(format!("capture.worker.{number}.{name}"), count);
            }
        }
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
            ("ledger.bad_checksum", ledger.bad_checksum),
            ("capture.link_gaps", source.gaps),
            ("capture.link_gap_ms", self.gap_time),
            ("detect.reloads_refused", self.not_reloaded),
            ("ledger.inspected", ledger.inspected),
        ] {
            counters.insert(name.to_owned(), count);
        }
        if let Some(inline) = &source.inline {
            for (name, count) in inline.named() {
                counters.insert(format!("inline.{name}"), count);
            }
        }
        if !self.eve.is_empty() {
            let lost = self.eve.iter().map(|(sink, _)| sink.lost()).sum();
            counters.insert("output.eve_lost".to_owned(), lost);
        }
        let full = self.engine.sets.full();
        counters.insert("detect.dataset_full".to_owned(), full);
        if !self.scripts.is_empty() {
            counters.insert("output.lua_errors".to_owned(), self.scripts.errors);
        }
        if let Some(store) = &self.store {
            counters.insert("file_store.fs_errors".to_owned(), store.errors);
        }
        if let Some(store) = &self.certificates {
            counters.insert("tls_store.fs_errors".to_owned(), store.errors);
        }
        for (name, sink) in [
            ("output.fast_lost", &self.fast),
            ("output.tcp_data_lost", &self.data),
            ("output.alert_debug_lost", &self.debug),
        ] {
            if let Some(sink) = sink {
                counters.insert(name.to_owned(), sink.lost());
            }
        }
        let uptime = self.now.saturating_sub(self.start.unwrap_or(self.now)) / 1_000_000_000;
        self.scripts.stats(counters);
        let engine = (self.engine.rules(), self.engine.missing);
        let mut buffer = Vec::new();
        for (sink, kinds) in self.eve.iter_mut().filter(|(_, kinds)| kinds.stats) {
            self.scratch.clear();
            let which = (kinds.all_stats, kinds.zero_stats);
            eve::stats(&mut self.scratch, self.now, uptime, counters, engine, which);
            let record = longer(&self.scratch, self.tail.as_deref(), &mut buffer);
            sink.line(record, self.now)?;
        }
        if let Some(sink) = &mut self.stats {
            self.scratch.clear();
            stats_log::table(&mut self.scratch, self.now, uptime, counters);
            sink.line(&self.scratch, self.now)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        for sink in self.sinks() {
            sink.flush()?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, source: &SourceCounts) -> Result<(), SinkError> {
        self.record(source)?;
        self.scripts.end();
        self.tell();
        for (path, error) in self.engine.sets.write() {
            (self.say)(Say::SetNotWritten(&path, &error));
        }
        self.flush()
    }
}
