//! Perf event arrays: one buffer for each CPU that somebody reads.
//!
//! A record is what the program gave, and behind it the bytes of the packet that it asked for; the padding that the kernel appends is left
//! out. Invariant: an index has a buffer only if it was opened, and no buffer holds more bytes than it was opened with.

use std::collections::{BTreeMap, VecDeque};

use crate::errno::{E2BIG, ENOENT, ENOSPC};

#[derive(Debug)]
pub(crate) struct PerfArray {
    most: u32,
    buffers: BTreeMap<u32, Buffer>,
}

#[derive(Debug)]
struct Buffer {
    size: usize,
    used: usize,
    records: VecDeque<Vec<u8>>,
}

/// Bytes the kernel keeps in front of each record: a header of 8, the length, and up to 4 of padding.
const HEADER: usize = 16;

impl PerfArray {
    pub(super) fn new(max_entries: u32) -> PerfArray {
        PerfArray {
            most: max_entries,
            buffers: BTreeMap::new(),
        }
    }

    /// Gives each of the first `cpus` indices a buffer of `bytes`.
    pub(crate) fn open(&mut self, cpus: u32, bytes: usize) {
        for index in 0..cpus.min(self.most) {
            let buffer = Buffer {
                size: bytes,
                used: 0,
                records: VecDeque::new(),
            };
            self.buffers.insert(index, buffer);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Appends a record to the buffer of `index`.
    pub(crate) fn output(&mut self, index: u32, record: Vec<u8>) -> Result<(), i64> {
        if index >= self.most {
            return Err(E2BIG);
        }
        let buffer = self.buffers.get_mut(&index).ok_or(ENOENT)?;
        let needed = HEADER + record.len();
        if buffer.used + needed > buffer.size {
            return Err(ENOSPC);
        }
        buffer.used += needed;
        buffer.records.push_back(record);
        Ok(())
    }

    /// Takes all records: (index, record), those of one index oldest first.
    pub(crate) fn drain(&mut self) -> Vec<(u32, Vec<u8>)> {
        let mut out = Vec::new();
        for (index, buffer) in &mut self.buffers {
            buffer.used = 0;
            out.extend(buffer.records.drain(..).map(|record| (*index, record)));
        }
        out
    }
}
