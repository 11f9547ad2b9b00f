//! What is written out beside records: files of transactions, with their records, and certificates. Which of them are, rules with `filestore` and
//! `tls.store` say, or the configuration.

use serde_json::{Map, Value};

use super::log::{MAIL, flow_head, record_name};
use super::{FlowAnalysis, PipelineState};
use crate::app::{App, File, Kept, Transaction};
use crate::buffer::Buffer;
use crate::config::{Record, Wants};
use crate::detect::Match;
use crate::flow::Info;
use crate::output::eve::{self, Ether, Head, Marks, Origin};
use crate::output::{Stored, StoredCertificates, StoredFile, What};
use crate::packet::Direction;
use crate::rules::{FileStore, StoreScope};

impl FlowAnalysis {
    /// A rule with `filestore` has matched: marks the files that it is about.
    pub(super) fn store(&mut self, store: Option<FileStore>, one: &Match) {
        let (Some(store), Some(talk)) = (store, &mut self.talk) else {
            return;
        };
        let sides = store.sides.unwrap_or(match one.direction {
            Some(Direction::ToServer) => [true, false],
            Some(Direction::ToClient) => [false, true],
            None => [true, true],
        });
        let live = &mut talk.transactions.live;
        let mine = |t: &&mut Transaction| one.transaction.is_none_or(|id| t.id == id);
        for t in live.iter_mut().filter(mine) {
            for d in [0, 1].into_iter().filter(|d| sides[*d]) {
                if store.scope != StoreScope::File || one.file.is_none() {
                    t.stores[d] = true;
                }
                if store.scope == StoreScope::Flow {
                    let from = self.stores[d].unwrap_or(t.id).min(t.id);
                    self.stores[d] = Some(from);
                }
            }
            if let Some(file) = one.file.and_then(|n| t.files.get_mut(n as usize)) {
                file.stored |= sides[file.direction.index()];
            }
        }
    }

    /// A rule with `tls.store` has matched: the certificates of the end that it was about, if they are not written out yet.
    pub(super) fn certificates(&mut self, one: &Match) -> Option<StoredCertificates> {
        let direction = one.direction?;
        let live = &mut self.talk.as_mut()?.transactions.live;
        let t = live.iter_mut().find(|t| Some(t.id) == one.transaction)?;
        let chain = t.get(Buffer::TlsCerts, direction).map(<[u8]>::to_vec);
        let chain: Vec<Vec<u8>> = chain.collect();
        let stored = direction.of_mut(&mut t.stores);
        if chain.is_empty() || std::mem::replace(stored, true) {
            return None;
        }
        let client = direction == Direction::ToServer;
        let record = match t.record.get("client") {
            Some(Value::Object(own)) if client => own,
            _ => &t.record,
        };
        let said = |key: &str| Some(record.get(key)?.as_str()?.to_owned());
        let about = [
            ("SUBJECT", "subject"),
            ("ISSUERDN", "issuerdn"),
            ("FINGERPRINT", "fingerprint"),
        ];
        let about = about
            .into_iter()
            .filter_map(|(name, key)| Some((name, said(key)?)));
        Some(StoredCertificates {
            time: one.time,
            client,
            chain,
            ends: [one.source, one.destination],
            protocol: one.protocol,
            about: about.collect(),
        })
    }
}

impl PipelineState {
    /// Records of a transaction's files: as alerts on them, they come with a packet of their sender.
    pub(super) fn log_files(
        &mut self,
        info: &Info,
        done: &mut Transaction,
        (marks, first, parent): (Option<&Marks<'_>>, Option<Ether>, u64),
    ) {
        let over = self.origin == Origin::FlowEnd;
        while let Some(file) = done.files.get_mut(done.logged_files) {
            if !over && !done.inspected[file.direction.index()] {
                return;
            }
            let number = done.logged_files;
            let all = self.logs.store.as_ref().map(|store| store.all);
            file.stored |= all.unwrap_or(false) || done.stores[file.direction.index()];
            file.stored &= all.is_some() && !file.sums.is_empty();
            let (stored, direction) = (file.stored, file.direction);
            let sum = file.sums.iter().find(|(name, _)| *name == "sha256");
            let sum = sum.map(|(_, sum)| sum.clone());
            done.logged_files += 1;
            // A list of names, say.
            if done.app == App::FtpData && file.name.is_empty() {
                continue;
            }
            // Lists of all header lines are for the record of the transaction, as are most fields of mail.
            done.record.remove("request_headers");
            done.record.remove("response_headers");
            if let Some(Value::Object(email)) = done.beside.get_mut("email") {
                email.retain(|name, _| MAIL.contains(&name.as_str()));
            }
            if self.logs.calls(Wants::Files) {
                self.script_file(info, done, number);
            }
            let kept = done.take_kept(number);
            let mut sums = self.engine.wanted.sums;
            sums.kept = self.logs.store.is_some();
            let (ends, at) = ((info.client, info.server), self.time);
            let whole = (self.ranges.get_mut(self.slice))
                .and_then(|r| r.part(ends, (done, number), kept.as_ref(), (at, sums)));
            let kept = kept.filter(|_| stored).zip(sum);
            let mut head = flow_head(info, direction, self.time, self.counted());
            head.origin = Some(self.origin);
            head.marks = marks;
            head.ether = self.ether(direction, first);
            head.parent = parent;
            let Some(file) = done.files.get(number) else {
                return;
            };
            let record = std::mem::take(&mut done.record);
            self.log_file(info, &head, (done, &record), file, kept);
            // The last part that was missing: the whole file has a record, without a place in it.
            if let Some((mut file, bytes)) = whole {
                let sum = file.sums.iter().find(|(name, _)| *name == "sha256");
                let kept = bytes.zip(sum.map(|(_, sum)| sum.clone()));
                let kept = kept.filter(|_| stored);
                file.stored = kept.is_some();
                let mut record = record.clone();
                record.remove("content_range");
                self.log_file(info, &head, (done, &record), &file, kept);
            }
            done.record = record;
        }
    }

    /// The record of one file, and its bytes if they are written out.
    fn log_file(
        &mut self,
        info: &Info,
        head: &Head<'_>,
        (done, record): (&Transaction, &Map<String, Value>),
        file: &File,
        kept: Option<(Kept, Vec<u8>)>,
    ) {
        let start = self.bytes.len();
        eve::file(
            &mut self.bytes,
            head,
            (done.app.name(), record_name(done.app)),
            (record, &done.beside),
            (file, done.number),
            &self.logs.options,
        );
        let end = self.bytes.len();
        if let Some((bytes, sum)) = kept {
            let beside = self.logs.store.as_ref().is_some_and(|store| store.records);
            let record = self.bytes.get(start..end).filter(|_| beside);
            let file = StoredFile {
                sum,
                bytes,
                record: record.map(|r| (self.time / 1_000_000_000, r.to_vec())),
            };
            let key = self.key(info.number);
            let what = What::File(file);
            self.files.push(Stored { key, what });
        }
        match self.logs.kinds.files && !self.logs.eve.is_empty() {
            true => self.line(info.number, Record::File, None, start..end, 0..0),
            false => self.bytes.truncate(start),
        }
    }

    /// Where a line about a flow stands among others.
    pub(super) fn key(&self, flow: u64) -> (u64, u8, u64) {
        let flow = if self.phase == 1 { 0 } else { flow };
        (self.number, self.phase, flow)
    }
}
