//! Frames (parts of messages as sent): as a record, and in alerts of rules that ask for one.

use super::{AppNames, EveOptions, Head, Object, app_names, begin, json};
use crate::app::{App, Framed, Transaction};
use crate::packet::Direction;

/// Bytes of a frame that records show.
const MOST_SHOWN: usize = 4096;

/// A frame as records have it.
#[derive(Clone, Copy, Debug)]
pub struct FrameFacts<'a> {
    /// What is known of it.
    pub of: Framed,
    /// Its bytes, as far as they are kept.
    pub bytes: &'a [u8],
    /// All of it has come.
    pub complete: bool,
    /// Its transaction, if it belongs to one.
    pub transaction: Option<u64>,
}

impl<'a> FrameFacts<'a> {
    /// The frame of this number of a transaction, from 0.
    pub(crate) fn of(t: &'a Transaction, number: usize) -> Option<FrameFacts<'a>> {
        let (of, bytes) = t.frames().nth(number)?;
        Some(FrameFacts {
            of: *of,
            bytes,
            complete: of.length.is_none() && (!of.grows() || *of.direction.of(&t.complete)),
            transaction: Some(counted(t)),
        })
    }

    /// Writes it as `frame`.
    pub(super) fn write(&self, o: &mut Object<'_>) {
        let mut f = o.object("frame");
        f.string("type", self.of.buffer.frame().unwrap_or_default());
        f.number("id", self.of.number);
        f.string(
            "direction",
            match self.of.sender {
                Direction::ToServer => "toserver",
                Direction::ToClient => "toclient",
            },
        );
        if let Some(offset) = self.of.offset {
            f.number("stream_offset", offset);
        }
        f.number("length", self.of.length.unwrap_or(self.bytes.len() as u64));
        f.boolean("complete", self.complete);
        let shown = self.bytes.get(..MOST_SHOWN).unwrap_or(self.bytes);
        json::base64(f.key("payload"), shown);
        json::printable(f.key("payload_printable"), shown);
        if let Some(id) = self.transaction {
            f.number("tx_id", id);
        }
        f.end();
    }
}

/// The number of a transaction in records of frames: readers of such logs count from 0 in HTTP/1 and SMTP, from 1 elsewhere.
pub(crate) fn counted(t: &Transaction) -> u64 {
    t.number + u64::from(!matches!(t.app, App::Http1 | App::Smtp))
}

/// A frame, with its newline.
pub fn frame(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    app: &AppNames,
    what: &FrameFacts<'_>,
    options: &EveOptions,
) {
    let mut o = begin(out, "frame", head, options);
    app_names(&mut o, app);
    what.write(&mut o);
    o.end();
    out.push(b'\n');
}
