//! What the reader hands out: a batch of frames with what workers need to know of it, and the frames of each slice in it.

use std::sync::{Arc, Mutex, PoisonError};

use super::lend::{Amounts, Loans};
use crate::source::{Batch, Gap, SourceCounts};
use crate::worker::{Engine, Report};

/// A batch with what workers need to know of it.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) sequence: u64,
    pub(crate) batch: Batch,
    /// Which frames are about which slice; empty if there is one worker.
    pub(super) spread: Spread,
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
    /// What slices may have of each cap; `None`: their parts.
    pub(crate) limits: Option<Arc<[Amounts]>>,
    /// Times in which interfaces were not listened to.
    pub(super) gaps: Vec<Gap>,
    /// Why rules that were to be loaded anew were not.
    pub(super) not_reloaded: Option<String>,
    /// Counters of the source, if they are due.
    pub(super) source: SourceCounts,
    /// What slices found in it.
    pub(crate) found: Mutex<Report>,
}

/// Frames of a batch by the slices that they are about.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// Places of frames in the batch, those of one slice together.
    pub(super) order: Vec<u32>,
    pub(super) shares: Vec<Share>,
    pub(super) ticks: Vec<Tick>,
}

/// What a batch has for one slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) slice: u16,
    /// In the order of frames by slices.
    pub(super) from: u32,
    pub(super) to: u32,
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
pub(super) struct BatchBuffer {
    pub(super) batch: Batch,
    pub(super) spread: Spread,
    pub(super) found: Report,
}

impl From<Work> for BatchBuffer {
    fn from(work: Work) -> BatchBuffer {
        BatchBuffer {
            batch: work.batch,
            spread: work.spread,
            found: work
                .found
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Memory of batches that were written. The last one comes first: it is the one that caches still hold, and no more is touched than is under way.
pub(super) struct BatchBuffers {
    buffers: Mutex<Vec<BatchBuffer>>,
    loans: Mutex<Loans>,
}

impl BatchBuffers {
    pub(super) fn new(loans: Loans) -> BatchBuffers {
        BatchBuffers {
            buffers: Mutex::default(),
            loans: Mutex::new(loans),
        }
    }

    /// A batch is done, with which slices have so much.
    pub(super) fn note(&self, sequence: u64, uses: &[(u16, Amounts)]) {
        let mut loans = self.loans.lock().unwrap_or_else(PoisonError::into_inner);
        loans.note(sequence, uses);
    }

    /// What slices may have in a batch.
    pub(super) fn limits(&self, sequence: u64) -> Option<Arc<[Amounts]>> {
        let loans = self.loans.lock().unwrap_or_else(PoisonError::into_inner);
        loans.limits(sequence)
    }

    /// Of the batch that was written last, or new memory.
    pub(super) fn take(&self) -> BatchBuffer {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.pop().unwrap_or_default()
    }

    /// For another batch.
    pub(super) fn give_back(&self, buffer: BatchBuffer) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.push(buffer);
    }
}
