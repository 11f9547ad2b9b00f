//! Contents of files that are read and written, put together by their places in the file. Each is a transaction of its own for each direction, from its first bytes to
//! the end of its handle.

use std::collections::{BTreeMap, VecDeque};

use super::message::{Message, le16, le32, le64, words};
use super::names::{command_name, identifier};
use super::{KIND, Record};
use crate::app::text::text;
use crate::app::transaction::{Transaction, Transactions};
use crate::app::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Open files whose names are remembered.
const MOST_HANDLES: usize = 256;
/// Files that are put together at a time.
const MOST_FILES: usize = 64;
/// Reads that may wait for an answer.
const MOST_READS: usize = 256;
/// Bytes of all files of a session that wait for those before them.
const MOST_HELD: usize = 1 << 20;
/// Pieces of all files of a session that wait.
const MOST_PIECES: usize = 1024;
/// Bytes of a name; the rest of a longer one is cut.
const MOST_NAME: usize = 1024;

/// Which file a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// By what the server called it.
    Told([u8; 16]),
    /// The one that this request opens, whose answer has not come; by the number of the message.
    Asked(u64),
}

impl Key {
    /// `bytes` of version 2, which may mean the file that the same compound opens.
    fn of(bytes: [u8; 16], opening: Option<u64>) -> Key {
        match opening {
            Some(number) if bytes == [0xff; 16] => Key::Asked(number),
            _ => Key::Told(bytes),
        }
    }

    fn first_version(id: usize) -> Key {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&(id as u16).to_le_bytes());
        Key::Told(bytes)
    }
}

/// A read or a write, or what came of a read, as its message says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Where in the message the bytes begin, and how many there are.
    pub(super) at: usize,
    pub(super) length: usize,
}

/// Whether a message carries contents, and where; what is said of the place in the file is not asked. `None` as well if less of the message is there than that takes.
pub(super) fn part_of(m: &Message<'_>) -> Option<Part> {
    // Nothing begins within the header and what says so.
    let least = if m.version == 2 { 80 } else { 40 };
    let part = |at: usize, length: usize| (at >= least).then_some(Part { at, length });
    match (m.version, m.command, m.response) {
        // More of a named pipe or of a directory may come than what fits: no error.
        (2, 8, true) if matches!(m.status, 0 | 0x8000_0005) => {
            part(usize::from(*m.body.get(2)?), le32(m.body, 4)? as usize)
        }
        (2, 9, false) => part(le16(m.body, 2)?, le32(m.body, 4)? as usize),
        (1, 0x2e, true) if matches!(m.status, 0 | 0x8000_0005) => {
            let words = words(m)?.0;
            part(le16(words, 12)?, le16(words, 10)? | le16(words, 14)? << 16)
        }
        (1, 0x2f, false) => {
            let words = words(m)?.0;
            part(le16(words, 22)?, le16(words, 20)? | le16(words, 18)? << 16)
        }
        (1, 0x0b, false) => {
            let (words, _, at) = words(m)?;
            // A byte for the form and two for the length stand before the bytes.
            part(at + 3, le16(words, 2)?)
        }
        _ => None,
    }
}

/// Contents that come.
#[derive(Debug)]
pub(super) struct Content {
    transaction: u64,
    key: Key,
    /// Where in the file the next byte belongs; none that ends behind every end.
    offset: Option<u64>,
    /// Bytes that have not come.
    pub(super) left: usize,
    /// It is the last of a file that was closed before its last read was answered.
    last: bool,
}

impl Content {
    /// Goes on by so many bytes, and returns where they belong.
    fn pass(&mut self, count: usize) -> Option<u64> {
        self.left -= count;
        let offset = self.offset;
        self.offset = offset.map(|o| o + count as u64);
        offset
    }
}

struct Handle {
    key: Key,
    name: Vec<u8>,
}

/// A read that waits for its answer.
struct Read {
    number: u64,
    key: Key,
    offset: u64,
    session: u64,
    tree: u32,
    /// The file was closed meanwhile.
    closed: bool,
}

struct Open {
    /// Of the protocol.
    version: u8,
    key: Key,
    direction: Direction,
    transaction: u64,
    /// All bytes before it came.
    next: u64,
    /// Pieces by their places, none of which overlap.
    held: BTreeMap<u64, Vec<u8>>,
    /// Something of it will not come or was not kept.
    lacks: bool,
}

/// What the session knows that files' records say.
pub(super) struct Said<'a> {
    pub(super) wanted: &'a Wanted,
    pub(super) dialect: &'a str,
    /// The path of a tree's share.
    pub(super) share: Option<&'a [u8]>,
    pub(super) time: u64,
}

#[derive(Default)]
pub(super) struct Files {
    handles: VecDeque<Handle>,
    reads: VecDeque<Read>,
    open: Vec<Open>,
    /// Bytes and pieces of all that wait.
    held: (usize, usize),
    /// The request of this compound that opens a file.
    opening: Option<u64>,
    /// The message of version 1 that opened a file before the command that it chains: that is about no other.
    pub(super) chain: Option<u64>,
}

impl Files {
    /// A message of its own or a compound begins.
    pub(super) fn begin_frame(&mut self) {
        self.opening = None;
    }

    /// The name that a file was opened by, by what the server calls it; empty: not known.
    pub(super) fn name_of(&self, id: [u8; 16]) -> &[u8] {
        self.opened_by(Key::Told(id))
    }

    /// The same of version 1.
    pub(super) fn name_of_first(&self, id: usize) -> &[u8] {
        self.opened_by(Key::first_version(id))
    }

    fn opened_by(&self, key: Key) -> &[u8] {
        let found = self.handles.iter().rfind(|h| h.key == key);
        found.map(|h| h.name.as_slice()).unwrap_or_default()
    }

    /// A request to open a file.
    pub(super) fn opens(&mut self, m: &Message<'_>, name: &[u8]) {
        if m.version == 2 {
            self.opening = Some(m.number);
        }
        if self.handles.len() >= MOST_HANDLES {
            self.handles.pop_front();
        }
        self.handles.push_back(Handle {
            key: Key::Asked(m.number),
            name: name[..name.len().min(MOST_NAME)].to_vec(),
        });
    }

    /// The answer to it.
    pub(super) fn opened(&mut self, m: &Message<'_>, w: &Wanted, out: &mut Transactions) {
        let asked = Key::Asked(m.number);
        let told = match m.version {
            _ if m.status != 0 => None,
            2 => m
                .body
                .get(64..80)
                .and_then(|b| b.try_into().ok())
                .map(Key::Told),
            _ => words(m).and_then(|w| le16(w.0, 5)).map(Key::first_version),
        };
        let Some(told) = told else {
            self.handles.retain(|h| h.key != asked);
            self.reads.retain(|r| r.key != asked);
            return self.end_all(asked, false, w, out);
        };
        // An older file of that name was closed, and it was not seen.
        self.end_all(told, false, w, out);
        self.handles.retain(|h| h.key != told);
        self.reads.retain(|r| r.key != told);
        for handle in self.handles.iter_mut().filter(|h| h.key == asked) {
            handle.key = told;
        }
        for read in self.reads.iter_mut().filter(|r| r.key == asked) {
            read.key = told;
        }
        for open in self.open.iter_mut().filter(|o| o.key == asked) {
            open.key = told;
            if let Some(t) = out.find(open.transaction).filter(|_| w.records) {
                t.record.insert("fuid".into(), fuid(m.version, told).into());
            }
        }
    }

    /// A request to read.
    pub(super) fn asked(&mut self, m: &Message<'_>) {
        let place = || match m.version {
            2 => {
                let id = m.body.get(16..32)?.try_into().ok()?;
                Some((Key::of(id, self.opening), le64(m.body, 8)?))
            }
            _ => place_of_first(words(m)?.0, 20),
        };
        let Some((key, offset)) = place() else {
            return;
        };
        let key = self.chained(m, key);
        if self.reads.len() >= MOST_READS {
            self.reads.pop_front();
        }
        self.reads.push_back(Read {
            number: m.number,
            key,
            offset,
            session: m.session,
            tree: m.tree,
            closed: false,
        });
    }

    /// The file that a chained command is about.
    fn chained(&self, m: &Message<'_>, key: Key) -> Key {
        match self.chain.filter(|_| m.version == 1 && !m.response) {
            Some(number) => Key::Asked(number),
            None => key,
        }
    }

    /// The tree of the file that an answer is read from.
    pub(super) fn tree_of_answer(&self, m: &Message<'_>) -> Option<u32> {
        let read = self.reads.iter().find(|r| r.number == m.number)?;
        Some(read.tree)
    }

    /// The answer to a read: contents, if it has some.
    pub(super) fn answered(
        &mut self,
        m: &Message<'_>,
        part: Option<Part>,
        said: &Said<'_>,
        out: &mut Transactions,
    ) -> Option<Content> {
        let at = self.reads.iter().position(|r| r.number == m.number)?;
        let read = self.reads.remove(at)?;
        let last = read.closed && self.reads.iter().all(|r| r.key != read.key);
        let Some(part) = part.filter(|p| p.length > 0) else {
            if last {
                self.close_now(read.key, said.wanted, out);
            }
            return None;
        };
        let ids = (read.session, read.tree);
        let transaction = self.file(ToClient, read.key, m, ids, said, out);
        Some(Content {
            transaction,
            key: read.key,
            offset: place(read.offset, part),
            left: part.length,
            last,
        })
    }

    /// A request to write.
    pub(super) fn written(
        &mut self,
        m: &Message<'_>,
        part: Part,
        said: &Said<'_>,
        out: &mut Transactions,
    ) -> Option<Content> {
        let (key, offset) = match (m.version, m.command) {
            (2, _) => {
                let id = m.body.get(16..32)?.try_into().ok()?;
                (Key::of(id, self.opening), le64(m.body, 8)?)
            }
            (_, 0x0b) => {
                let words = words(m)?.0;
                (
                    Key::first_version(le16(words, 0)?),
                    u64::from(le32(words, 4)?),
                )
            }
            _ => place_of_first(words(m)?.0, 24)?,
        };
        let key = self.chained(m, key);
        let transaction = self.file(ToServer, key, m, (m.session, m.tree), said, out);
        Some(Content {
            transaction,
            key,
            offset: place(offset, part),
            left: part.length,
            last: false,
        })
    }

    /// A request to close: of what is read, answers may still come.
    pub(super) fn closes(&mut self, m: &Message<'_>, w: &Wanted, out: &mut Transactions) {
        let key = match m.version {
            2 => {
                let id = m.body.get(8..24).and_then(|b| b.try_into().ok());
                id.map(|id| Key::of(id, self.opening))
            }
            _ => words(m).and_then(|w| le16(w.0, 0)).map(Key::first_version),
        };
        let Some(key) = key else {
            return;
        };
        let key = self.chained(m, key);
        let mut waits = false;
        for read in self.reads.iter_mut().filter(|r| r.key == key) {
            read.closed = true;
            waits = true;
        }
        if waits {
            self.end(key, ToServer, true, w, out);
        } else {
            self.close_now(key, w, out);
        }
    }

    fn close_now(&mut self, key: Key, w: &Wanted, out: &mut Transactions) {
        self.handles.retain(|h| h.key != key);
        self.end_all(key, true, w, out);
    }

    /// The transaction of a file in a direction, which begins if there is none.
    fn file(
        &mut self,
        d: Direction,
        key: Key,
        m: &Message<'_>,
        (session, tree): (u64, u32),
        said: &Said<'_>,
        out: &mut Transactions,
    ) -> u64 {
        let w = said.wanted;
        let same = |o: &&Open| o.key == key && o.direction == d;
        if let Some(open) = self.open.iter().find(same) {
            return open.transaction;
        }
        if self.open.len() >= MOST_FILES {
            let (key, d) = (self.open[0].key, self.open[0].direction);
            self.end(key, d, false, w, out);
        }
        let handle = self.handles.iter().rfind(|h| h.key == key);
        let name = handle.map(|h| h.name.as_slice()).unwrap_or_default();
        let t = out.begin(&KIND, said.time);
        t.facts.push(("smb.version", u64::from(m.version)));
        if w.buffers.has(Buffer::FileName) && !name.is_empty() {
            t.push(Buffer::FileName, d, name);
        }
        t.begin_file(name.to_vec(), d, w.sums);
        // Nothing of it is the other end's.
        t.only(d);
        t.finish_side(d.reversed());
        if w.records {
            let mut r = Record::new();
            r.insert("id".into(), (t.id + 1).into());
            let dialect = match said.dialect {
                "" => "unknown",
                known => known,
            };
            r.insert("dialect".into(), dialect.into());
            r.insert("command".into(), command_name(m).into());
            r.insert("session_id".into(), session.into());
            r.insert("tree_id".into(), tree.into());
            r.insert("filename".into(), text(name));
            r.insert("share".into(), text(said.share.unwrap_or_default()));
            if matches!(key, Key::Told(_)) {
                r.insert("fuid".into(), fuid(m.version, key).into());
            }
            t.record = r;
        }
        let transaction = t.id;
        self.open.push(Open {
            version: m.version,
            key,
            direction: d,
            transaction,
            next: 0,
            held: BTreeMap::new(),
            lacks: false,
        });
        transaction
    }

    /// The next bytes of contents.
    pub(super) fn feed(
        &mut self,
        content: &mut Content,
        mut bytes: &[u8],
        w: &Wanted,
        out: &mut Transactions,
    ) {
        let offset = content.pass(bytes.len());
        let (Some(open), Some(t)) = (
            (self.open.iter_mut()).find(|o| o.transaction == content.transaction),
            out.find(content.transaction).filter(|t| !t.done),
        ) else {
            return;
        };
        let Some(mut offset) = offset else {
            open.lacks = true;
            return;
        };
        while !bytes.is_empty() {
            let taken = open.take(offset, bytes, &mut self.held, w, t);
            offset += taken as u64;
            bytes = &bytes[taken..];
        }
    }

    /// So many of the next bytes of contents were lost.
    pub(super) fn lose(
        &mut self,
        content: &mut Content,
        count: usize,
        w: &Wanted,
        out: &mut Transactions,
    ) {
        let offset = content.pass(count);
        let (Some(open), Some(t)) = (
            (self.open.iter_mut()).find(|o| o.transaction == content.transaction),
            out.find(content.transaction).filter(|t| !t.done),
        ) else {
            return;
        };
        open.lacks = true;
        let (Some(file), Some(offset)) = (t.files.first_mut(), offset) else {
            return;
        };
        file.gaps = true;
        let behind = offset + count as u64;
        // What follows is inspected behind what came before it.
        if offset <= open.next && behind > open.next {
            file.size = file.size.saturating_add(behind - open.next);
            open.next = behind;
            open.release(&mut self.held, w, t);
        }
    }

    /// All of the contents came.
    pub(super) fn finish(&mut self, content: &Content, w: &Wanted, out: &mut Transactions) {
        if content.last {
            self.close_now(content.key, w, out);
        }
    }

    /// The stream ends in a direction: what it brings will not be more.
    pub(super) fn end_stream(&mut self, d: Direction, w: &Wanted, out: &mut Transactions) {
        while let Some(open) = self.open.iter().find(|o| o.direction == d) {
            let key = open.key;
            self.end(key, d, false, w, out);
        }
    }

    fn end_all(&mut self, key: Key, closed: bool, w: &Wanted, out: &mut Transactions) {
        self.end(key, ToServer, closed, w, out);
        self.end(key, ToClient, closed, w, out);
    }

    fn end(&mut self, key: Key, d: Direction, closed: bool, w: &Wanted, out: &mut Transactions) {
        let same = |o: &Open| o.key == key && o.direction == d;
        let Some(at) = self.open.iter().position(same) else {
            return;
        };
        let open = self.open.remove(at);
        self.held.0 -= open.held.values().map(Vec::len).sum::<usize>();
        self.held.1 -= open.held.len();
        let Some(t) = out.find(open.transaction) else {
            return;
        };
        if w.records && closed && open.version == 2 {
            t.record.insert("status".into(), "STATUS_SUCCESS".into());
            t.record.insert("status_code".into(), "0x0".into());
        }
        t.end_file(0, closed && !open.lacks && open.held.is_empty());
        if closed {
            t.finish_side(d);
        }
        t.finish();
    }

    pub(super) fn memory(&self) -> usize {
        let names = self.handles.iter().map(|h| h.name.capacity());
        self.held.0
            + self.held.1 * 64
            + names.sum::<usize>()
            + self.handles.capacity() * size_of::<Handle>()
            + self.reads.capacity() * size_of::<Read>()
            + self.open.capacity() * size_of::<Open>()
    }
}

impl Open {
    /// Takes the first of these bytes and returns how many, at least one: up to where something changes.
    fn take(
        &mut self,
        offset: u64,
        bytes: &[u8],
        held: &mut (usize, usize),
        w: &Wanted,
        t: &mut Transaction,
    ) -> usize {
        let up_to = |end: u64| {
            bytes
                .len()
                .min(usize::try_from(end - offset).unwrap_or(usize::MAX))
        };
        if offset < self.next {
            t.event("file_overlap");
            return up_to(self.next);
        }
        // The piece that begins here or before, and where the one behind it begins.
        let before = (self.held.range(..=offset).next_back())
            .map(|(at, piece)| (*at, at + piece.len() as u64));
        let behind = self.held.range(offset..).next().map(|(at, _)| *at);
        if let Some((_, end)) = before.filter(|(_, end)| *end > offset) {
            t.event("file_overlap");
            return up_to(end);
        }
        let count = behind.map_or(bytes.len(), up_to);
        if offset == self.next {
            self.deliver(&bytes[..count], w, t);
            self.release(held, w, t);
            return count;
        }
        let kept = count.min(MOST_HELD - held.0);
        match before.filter(|(_, end)| *end == offset) {
            Some((at, _)) => {
                if let Some(piece) = self.held.get_mut(&at) {
                    piece.extend_from_slice(&bytes[..kept]);
                }
                held.0 += kept;
            }
            None if kept > 0 && held.1 < MOST_PIECES => {
                self.held.insert(offset, bytes[..kept].to_vec());
                held.0 += kept;
                held.1 += 1;
            }
            None => {
                self.lacks = true;
                return count;
            }
        }
        self.lacks |= kept < count;
        count
    }

    /// Hands on what follows.
    fn deliver(&mut self, bytes: &[u8], w: &Wanted, t: &mut Transaction) {
        self.next += bytes.len() as u64;
        t.transferred(self.direction, bytes, w);
    }

    /// Hands on the pieces that waited for what came.
    fn release(&mut self, held: &mut (usize, usize), w: &Wanted, t: &mut Transaction) {
        while let Some(first) = self.held.first_entry() {
            let Some(known) = self.next.checked_sub(*first.key()) else {
                return;
            };
            let piece = first.remove();
            held.0 -= piece.len();
            held.1 -= 1;
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            if let Some(rest) = piece.get(known..) {
                self.deliver(rest, w, t);
            }
        }
    }
}

/// File and place of version 1; `high`: where the upper half of the place is, if there is one.
fn place_of_first(words: &[u8], high: usize) -> Option<(Key, u64)> {
    let low = u64::from(le32(words, 6)?);
    let high = u64::from(le32(words, high).unwrap_or_default());
    Some((Key::first_version(le16(words, 4)?), high << 32 | low))
}

/// What the server called a file, as the log has it.
fn fuid(version: u8, key: Key) -> String {
    match key {
        Key::Told(id) if version == 2 => identifier(&id),
        Key::Told(id) => format!("{:04x}", u16::from_le_bytes([id[0], id[1]])),
        Key::Asked(_) => String::new(),
    }
}

/// Where contents belong that begin there.
fn place(offset: u64, part: Part) -> Option<u64> {
    offset.checked_add(part.length as u64).map(|_| offset)
}
