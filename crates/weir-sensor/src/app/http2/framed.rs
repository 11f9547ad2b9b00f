//! Frames of HTTP/2 as rules and the log have them: `hdr`, `data` and `pdu`, each frame with its stream, or with the transaction of the connection.
//!
//! What is kept of a frame depends on the frame alone, and not on how its stream was cut.

use crate::app::transaction::{Transaction, Transactions};
use crate::app::wanted::Asked;
use crate::buffer::Buffer;
use crate::packet::Direction;

use super::frame;

/// Bytes of a body in one frame that are kept.
const MOST_SAMPLE: usize = 512;

/// The first bytes of a frame of a body, until there are enough of them.
pub(super) struct Sample {
    transaction: u64,
    /// Bytes of its payload.
    length: usize,
    /// Its head, and what has come of its payload.
    bytes: Vec<u8>,
}

/// Whether frames are asked for.
pub(super) fn wants(w: &Asked) -> bool {
    let all = [
        Buffer::FrameHttp2Header,
        Buffer::FrameHttp2Data,
        Buffer::FrameHttp2Pdu,
    ];
    all.into_iter().any(|buffer| w.buffers.has(buffer))
}

/// Adds the frames of one frame; `bytes` are its head and the beginning of its payload, which has `length` bytes.
pub(super) fn add(t: &mut Transaction, d: Direction, bytes: &[u8], length: usize, w: &Asked) {
    let (head, data) = bytes.split_at_checked(frame::HEAD).unwrap_or((bytes, &[]));
    let parts = [
        (Buffer::FrameHttp2Pdu, bytes, frame::HEAD + length),
        (Buffer::FrameHttp2Header, head, frame::HEAD),
        (Buffer::FrameHttp2Data, data, length),
    ];
    for (buffer, bytes, length) in parts {
        if w.buffers.has(buffer) {
            t.frame_part((buffer, d), (bytes, length), None);
        }
    }
}

impl Sample {
    pub(super) fn new(transaction: u64, head: [u8; frame::HEAD], length: usize) -> Sample {
        Sample {
            transaction,
            length,
            bytes: head.to_vec(),
        }
    }

    /// Takes more of the payload, if it has not enough of it.
    pub(super) fn take(&mut self, payload: &[u8]) {
        let enough = frame::HEAD + self.length.min(MOST_SAMPLE);
        let missing = enough.saturating_sub(self.bytes.len());
        let more = payload.get(..missing).unwrap_or(payload);
        self.bytes.extend_from_slice(more);
    }

    /// Adds its frames.
    pub(super) fn finish(self, d: Direction, w: &Asked, out: &mut Transactions) {
        if let Some(t) = out.find(self.transaction) {
            add(t, d, &self.bytes, self.length, w);
        }
    }
}
