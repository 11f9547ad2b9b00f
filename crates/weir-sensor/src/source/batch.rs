//! Frames in batches: one piece of memory for many frames, filled by a source, read by workers, and used again. Nothing is allocated for a frame.

use std::sync::Arc;

use crate::decode::Sums;

/// Bytes that a source reads at once. Small enough that a batch stays in a second-level cache between reader and worker.
pub const CHUNK: usize = 256 << 10;

/// Where a frame of a batch lies, and what is known of it before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Nanoseconds since 1970, by the capture's clock.
    pub time: u64,
    /// First byte in the batch.
    pub start: u32,
    /// Bytes captured.
    pub len: u32,
    /// Bytes on the wire; more than `len` if the capture cut the frame.
    pub wire: u32,
    /// What its first byte is: a link type of the registry at tcpdump.org.
    pub link: u16,
    /// The slice of the state that it is about. A run with one worker does not set it.
    pub slice: u16,
    /// What is known of its checksums.
    pub sums: Sums,
    /// Which of several interfaces it was seen on.
    pub interface: u8,
}

/// Frames, one after the other.
#[derive(Debug, Default)]
pub struct Batch {
    /// Number of the first frame, counted from 1 over a whole run.
    pub first: u64,
    /// In the order they were captured.
    pub frames: Vec<Frame>,
    /// Memory of the frames. It is longer than what they use, and never shortened, so that it is cleared only once.
    pub(crate) bytes: Vec<u8>,
    /// How much of `bytes` holds something.
    pub(crate) used: usize,
    /// Frames that were read and that a filter took out of the batch; they have no numbers.
    pub filtered: u64,
    /// The capture that all of them are of, if that is to be known.
    pub file: Option<Arc<str>>,
    /// Frames, by their places, that are the first of a capture.
    pub begins: Vec<u32>,
}

impl Batch {
    /// Empties it; the memory stays.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.used = 0;
        self.filtered = 0;
        self.file = None;
        self.begins.clear();
    }

    /// The captured bytes of a frame.
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        let start = frame.start as usize;
        self.bytes
            .get(start..start + frame.len as usize)
            .unwrap_or_default()
    }

    /// Appends a copy of a frame whose first bytes may lie apart (a VLAN tag that a device had taken out is put back so). Returns whether it fits.
    pub fn push(&mut self, time: u64, parts: &[&[u8]], wire: u32, link: u16) -> bool {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let start = self.used;
        let Ok(len32) = u32::try_from(len) else {
            return false;
        };
        self.room(len);
        for part in parts {
            self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
            self.used += part.len();
        }
        self.frames.push(Frame {
            time,
            start: start as u32,
            len: len32,
            wire: wire.max(len32),
            link,
            slice: 0,
            sums: Sums::Unknown,
            interface: 0,
        });
        true
    }

    /// Appends a copy of a frame of another batch.
    pub(crate) fn adopt(&mut self, of: &Batch, frame: &Frame) {
        let bytes = of.bytes(frame);
        if self.push(frame.time, &[bytes], frame.wire, frame.link)
            && let Some(last) = self.frames.last_mut()
        {
            (last.sums, last.interface) = (frame.sums, frame.interface);
        }
    }

    /// Whether a source should stop filling it.
    pub fn is_full(&self) -> bool {
        self.used >= CHUNK
    }

    /// Makes room for `more` bytes behind those used.
    pub(crate) fn room(&mut self, more: usize) {
        let need = self.used + more;
        if self.bytes.is_empty() {
            // Fresh memory of the system need not be cleared once more.
            self.bytes = vec![0; need.next_multiple_of(CHUNK)];
        } else if self.bytes.len() < need {
            self.bytes.resize(need.next_multiple_of(CHUNK), 0);
        }
    }
}
