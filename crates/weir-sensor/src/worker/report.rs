//! What a worker finds in a batch: lines for the logs, and counters.

use std::ops::Range;

use super::counters::Totals;
use crate::config::{Record, Wants};
use crate::detect::Match;
use crate::output::Stored;
use crate::run::Amounts;
use crate::script::View;
use crate::source::Answer;

/// One line of a log, or a match that has none.
#[derive(Debug)]
pub(crate) struct Line {
    /// Number of the packet it belongs to.
    pub(super) number: u64,
    /// 0: of flows that were over before the packet; 1: of the packet; 2: after the last one.
    pub(super) phase: u8,
    /// Of flows that are over: the number of their first packet.
    pub(super) flow: u64,
    pub(crate) time: u64,
    pub(crate) record: Record,
    pub(crate) matched: Option<Match>,
    /// Its match was decided over flows.
    pub(crate) decided: bool,
    /// What scripts of outputs are called for, and what they see.
    pub(crate) scripted: Option<(Wants, Box<View<'static>>)>,
    pub(crate) eve: Range<usize>,
    /// The line of fast.log; of a part of a stream the block of tcp-data.
    pub(crate) fast: Range<usize>,
    /// The block of alert-debug.
    pub(crate) debug: Range<usize>,
}

impl Line {
    /// From here on it stands at this place.
    pub(crate) fn stand_at(&mut self, place: u64) {
        (self.number, self.phase, self.flow) = (place, 1, 0);
    }

    pub(crate) fn key(&self) -> (u64, u8, u64) {
        (self.number, self.phase, self.flow)
    }
}

/// What was found in a batch.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: Vec<Line>,
    /// Files that are written out.
    pub(crate) files: Vec<Stored>,
    /// Flows of frames by their numbers, if packets may be tagged.
    pub(crate) flows: Vec<(u64, u64)>,
    /// What there is to tell of scripts that failed.
    pub(crate) told: Vec<String>,
    /// Counters so far, if they were asked for.
    pub(crate) totals: Option<Box<Totals>>,
    /// What slices have of each cap, of those that had something to do.
    pub(crate) uses: Vec<(u16, Amounts)>,
    /// Places of the frames that are dropped, rising.
    pub(crate) dropped: Vec<u32>,
    /// What is sent for those that were rejected.
    pub(crate) answers: Vec<Answer>,
}

impl Report {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
        self.files.clear();
        self.told.clear();
        self.flows.clear();
        self.uses.clear();
        self.dropped.clear();
        self.answers.clear();
        self.totals = None;
    }

    pub(crate) fn add_totals(&mut self, totals: Totals) {
        match &mut self.totals {
            Some(all) => all.add(&totals),
            None => self.totals = Some(Box::new(totals)),
        }
    }
}
