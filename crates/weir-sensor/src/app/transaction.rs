//! A transaction (a request and its response, a message): buffers in one allocation, bodies that grow apart, and a record for the event log.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

use std::collections::VecDeque;
use std::net::IpAddr;

use super::digest::{Digests, Sums};
use super::framed::{Framed, Framing, Place};
use super::kept::Kept;
use super::magic::{HEAD, magic};
use super::names::App;
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// What the transactions of a protocol are like.
#[derive(Debug)]
pub struct Kind {
    /// The protocol.
    pub app: App,
    /// How their two directions begin and end.
    pub turns: Turns,
    /// What parsers find wrong with them, as `app-layer-event` names it, sorted; all have [`TOO_MANY`] beside these.
    pub events: &'static [&'static str],
    /// Whether the server has begun, of an exchange without a buffer of the server.
    pub answered: fn(&Transaction) -> bool,
    /// Whether a buffer that is not there is missing from a message, rather than the message from the transaction.
    pub may_lack: fn(&Transaction, Direction) -> bool,
    /// How many of one flow may wait for their other half if nothing else is set (`max-tx`).
    pub most: usize,
}

impl Kind {
    /// An exchange without events.
    pub const EXCHANGE: Kind = Kind {
        app: App::Unknown,
        turns: Turns::Exchange,
        events: &[],
        answered: |_| false,
        may_lack: |_, _| true,
        most: MOST_LIVE,
    };

    /// Whether its parser reports an event.
    pub fn has(&self, event: &str) -> bool {
        event == TOO_MANY || self.events.contains(&event)
    }
}

/// The event of a transaction that was given up because too many waited.
pub const TOO_MANY: &str = "too_many_transactions";

impl Default for &'static Kind {
    fn default() -> &'static Kind {
        &Kind::EXCHANGE
    }
}

/// How the directions of a transaction begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// The client asks, the server answers; the parser says when a direction has ended.
    Exchange,
    /// The client begins; a direction is over when it is complete.
    Transfer,
    /// A message of either direction; it is over when it is complete.
    Message,
}

/// How far a direction of a transaction has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Something of it was said.
    Begun,
    /// This buffer is there.
    Has(Buffer),
    /// These messages of a handshake of TLS were seen, in bits of `ssl_state`.
    Shaken(u64),
    /// It is over.
    Over,
}

/// How far a firewall has got with a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filtered {
    /// All of it is accepted.
    pub(crate) through: bool,
    /// The state of each direction that was accepted last.
    pub(crate) from: [Option<u8>; 2],
    /// What was in each direction then ([`Transaction::size_of`]).
    pub(crate) size: [u64; 2],
}

/// A transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// Counted from 0 in each flow.
    pub id: u64,
    /// Counted from 0 in each protocol of a flow (`tx_id`).
    pub number: u64,
    /// Its protocol.
    pub app: App,
    /// What transactions of its protocol are like.
    kind: &'static Kind,
    /// Time of its first byte.
    pub time: u64,
    /// Whether each direction is complete: nothing will be added to its buffers. A body that has reached its limit completes its direction before the message ends.
    pub complete: [bool; 2],
    /// Whether rules have been decided on each direction; detection's own mark.
    pub inspected: [bool; 2],
    /// The parser has finished with it: its record is whole, and once detection has seen it, it is logged and dropped.
    pub done: bool,
    /// What was wrong with it, as `app-layer-event` names it without the protocol.
    pub events: Vec<&'static str>,
    /// Numbers that keywords without a buffer test, under the keyword's name; several of one name are alternatives. `tls.version`, `ssl_version`: version of the wire;
    /// `ssl_state`: bits (client_hello 1, server_hello 2, client_keyx 4, server_keyx 8); `dns.opcode`, `dns.rcode`, `dns.rrtype`; `ftpbounce.address`: of PORT.
    pub facts: Vec<(&'static str, u64)>,
    /// The same of protocols whose rules ask for what one end has sent.
    sided: Vec<(&'static str, Direction, u64)>,
    /// Fields for the event log, under the protocol's name.
    pub record: serde_json::Map<String, serde_json::Value>,
    /// Objects of the event log beside that record: `email`.
    pub beside: serde_json::Map<String, serde_json::Value>,
    /// Files it carries, in order; of SMTP, HTTP, FTP and SMB.
    pub files: Vec<File>,
    /// Directions that the parser has finished with, and in which more may come all the same: it stays among the live ones.
    pub kept: [bool; 2],
    /// Its record says all that it will say of interest: it is logged now, though the parser has not finished with it.
    pub ready: bool,
    /// Arguments of a call of DCE/RPC have their numbers in little-endian order, in each direction (`dce`).
    pub(crate) little: [bool; 2],
    /// It is in the log.
    pub logged: bool,
    /// Alerts that it was shown with although their rules do not ask for one.
    pub(crate) guessed: u8,
    /// So many of its files are in the log.
    pub logged_files: usize,
    /// An answer to it has begun; of HTTP/1.
    pub(crate) answered: bool,
    /// Rules that matched: when it is decided anew, they do not match again. Detection's own.
    pub matched: Vec<(u32, Option<Direction>)>,
    /// How far a firewall has got with it. Detection's own.
    pub(crate) filtered: Filtered,
    /// Bytes of bodies of each direction when rules were last asked of them.
    looked: [u64; 2],
    /// Directions that ended before their message was whole.
    pub(crate) cut: [bool; 2],
    /// Directions that the parser has finished with.
    ended: [bool; 2],
    arena: Vec<u8>,
    entries: Vec<Entry>,
    bodies: Vec<Body>,
    /// Frames, in the order they were begun.
    frames: Vec<Framed>,
    /// Sums of files that are not over, by the number of the file.
    digests: Vec<(usize, Box<Digests>)>,
    /// First bytes of files that are not identified yet, by the number of the file.
    heads: Vec<(usize, Vec<u8>)>,
    /// Bytes of files that may be written out, by the number of the file.
    kept_files: Vec<(usize, Kept)>,
    /// Directions whose files are written out, also those that come yet.
    pub(crate) stores: [bool; 2],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    buffer: Buffer,
    direction: Direction,
    start: u32,
    end: u32,
}

#[derive(Clone, Debug)]
struct Body {
    buffer: Buffer,
    /// A second name for the same bytes.
    also: Option<Buffer>,
    direction: Direction,
    /// Bytes that were there before those that are kept.
    base: u64,
    bytes: Vec<u8>,
}

/// Bytes of a body that are kept at least, so that rules are asked of all of it at once; of a longer one rules are asked in windows.
pub(crate) const WINDOW: usize = 2 << 20;
/// Numbers of one transaction that are told by who sent them.
const MOST_SIDED: usize = 128;
/// Bytes that two windows share: what rules look for may lie across.
const SHARED: usize = 128 << 10;
/// Frames of one transaction that are kept.
const MOST_FRAMES: usize = 4096;
/// Bytes of buffers of one transaction with which no frame is added.
const MOST_FRAMED: usize = 1 << 20;

/// A file that was transferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, as sent.
    pub name: Vec<u8>,
    /// Which way.
    pub direction: Direction,
    /// Bytes seen of it, those beyond limits too.
    pub size: u64,
    /// Its end was seen and nothing of it was lost.
    pub whole: bool,
    /// Some of it was lost.
    pub gaps: bool,
    /// What it is, by its first bytes, if that is wanted.
    pub magic: Option<String>,
    /// Names and values of its sums, if it came whole and they are wanted.
    pub sums: Vec<(&'static str, Vec<u8>)>,
    /// A rule wants it written out.
    pub(crate) stored: bool,
    /// The body that shows it, if its message may carry several.
    pub(crate) body: Option<usize>,
}

impl Body {
    fn slide(&mut self) {
        let front = self.bytes.len().saturating_sub(SHARED);
        self.bytes.drain(..front);
        self.base += front as u64;
    }
}

impl Transaction {
    /// Adds a buffer that is whole.
    pub fn push(&mut self, buffer: Buffer, direction: Direction, bytes: &[u8]) {
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(bytes);
        self.entries.push(Entry {
            buffer,
            direction,
            start,
            end: self.arena.len() as u32,
        });
    }

    /// Adds a frame that is whole. `behind`: how many bytes from its first one to the end of what the parser was given, if it knows.
    pub(crate) fn frame(&mut self, of: (Buffer, Direction), bytes: &[u8], behind: Option<usize>) {
        if self.frames.len() < MOST_FRAMES && self.arena.len() < MOST_FRAMED {
            let place = Place::Entry(self.entries.len());
            self.frames.push(Framed::new(of, place, behind));
            self.push(of.0, of.1, bytes);
        }
    }

    /// The same of the beginning of a frame of so many bytes.
    pub(crate) fn frame_part(
        &mut self,
        of: (Buffer, Direction),
        (bytes, length): (&[u8], usize),
        behind: Option<usize>,
    ) {
        let before = self.frames.len();
        self.frame(of, bytes, behind);
        if bytes.len() < length
            && let Some(frame) = self.frames.get_mut(before)
        {
            frame.length = Some(length as u64);
        }
    }

    /// Begins a frame that grows, and returns what [`Transaction::append_to`] wants.
    pub(crate) fn begin_frame(&mut self, of: (Buffer, Direction), behind: Option<usize>) -> usize {
        let body = self.begin_body(of.0, None, of.1);
        if self.frames.len() < MOST_FRAMES {
            let place = Place::Body(body);
            self.frames.push(Framed::new(of, place, behind));
        }
        body
    }

    /// Gives numbers and places to frames that have none.
    pub(crate) fn number_frames(&mut self, d: Direction, framing: &mut Framing) {
        self.frames.iter_mut().for_each(|f| f.settle(d, framing));
    }

    /// Its frames, with their bytes.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (&Framed, &[u8])> {
        self.frames.iter().filter_map(|frame| {
            let bytes = match frame.place {
                Place::Entry(at) => {
                    let e = self.entries.get(at)?;
                    self.arena.get(e.start as usize..e.end as usize)?
                }
                Place::Body(at) => &self.bodies.get(at)?.bytes,
            };
            Some((frame, bytes))
        })
    }

    /// Notes that all frames that are over are in the log.
    pub(crate) fn frames_are_logged(&mut self) {
        let over = |f: &&mut Framed| !f.grows() || *f.direction.of(&self.complete);
        let frames = self.frames.iter_mut().filter(over);
        frames.for_each(|f| f.logged = true);
    }

    /// Adds a buffer that `fill` writes: for those that are put together of parts.
    pub fn build(&mut self, buffer: Buffer, direction: Direction, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.arena.len() as u32;
        fill(&mut self.arena);
        self.entries.push(Entry {
            buffer,
            direction,
            start,
            end: self.arena.len() as u32,
        });
    }

    /// Adds to a body, up to `limit` bytes in all; returns whether all of it found room.
    pub fn append(
        &mut self,
        buffer: Buffer,
        direction: Direction,
        bytes: &[u8],
        limit: usize,
    ) -> bool {
        let at = self
            .bodies
            .iter()
            .rposition(|b| b.buffer == buffer && b.direction == direction)
            .unwrap_or_else(|| self.begin_body(buffer, None, direction));
        self.append_to(at, bytes, limit)
    }

    /// Begins a body of its own, beside others of the same name (the files of a message), and returns what [`Transaction::append_to`] wants.
    /// `also` is a second buffer that shows the same bytes.
    pub fn begin_body(
        &mut self,
        buffer: Buffer,
        also: Option<Buffer>,
        direction: Direction,
    ) -> usize {
        self.bodies.push(Body {
            buffer,
            also,
            direction,
            base: 0,
            bytes: Vec::new(),
        });
        self.bodies.len() - 1
    }

    /// Makes room in a body for so many bytes that are about to come.
    pub(crate) fn reserve(&mut self, body: usize, bytes: usize) {
        if let Some(body) = self.bodies.get_mut(body) {
            body.bytes.reserve_exact(bytes);
        }
    }

    /// Adds to one body, up to `limit` bytes in all; returns whether all of it found room.
    pub fn append_to(&mut self, body: usize, bytes: &[u8], limit: usize) -> bool {
        let Some(body) = self.bodies.get_mut(body) else {
            return false;
        };
        let there = usize::try_from(body.base)
            .unwrap_or(usize::MAX)
            .saturating_add(body.bytes.len());
        let taken = bytes.len().min(limit.saturating_sub(there));
        body.bytes.extend_from_slice(&bytes[..taken]);
        // Nobody asked for it in time.
        if body.bytes.len() > 2 * WINDOW {
            body.slide();
        }
        taken == bytes.len()
    }

    /// Whether more of a body is there than is kept.
    pub(crate) fn is_over_window(&self, direction: Direction) -> bool {
        let mut bodies = self.bodies.iter();
        bodies.any(|b| b.direction == direction && b.bytes.len() > WINDOW)
    }

    /// Lets go of the front of bodies that are too long.
    pub(crate) fn slide(&mut self, direction: Direction) {
        for body in self.bodies.iter_mut().filter(|b| b.direction == direction) {
            if body.bytes.len() > WINDOW {
                body.slide();
            }
        }
    }

    /// Whether the front of a body is not there any more.
    pub(crate) fn has_slid(&self) -> bool {
        self.bodies.iter().any(|b| b.base > 0)
    }

    fn grown_to(&self, direction: Direction) -> u64 {
        let bodies = self.bodies.iter().filter(|b| b.direction == direction);
        bodies.map(|b| b.base + b.bytes.len() as u64).sum()
    }

    /// A number that grows with what is in a direction: buffers, and bytes of bodies.
    pub(crate) fn size_of(&self, direction: Direction) -> u64 {
        let buffers = self.entries.iter().filter(|e| e.direction == direction);
        buffers.count() as u64 + self.grown_to(direction)
    }

    /// Whether there is more of the bodies of a direction than when rules were last asked of them.
    pub(crate) fn has_grown(&self, direction: Direction) -> bool {
        self.grown_to(direction) > *direction.of(&self.looked)
    }

    /// Rules were asked of the bodies of a direction.
    pub(crate) fn looked_at(&mut self, direction: Direction) {
        *direction.of_mut(&mut self.looked) = self.grown_to(direction);
    }

    /// Begins a file, and returns its number.
    pub(crate) fn begin_file(&mut self, name: Vec<u8>, direction: Direction, sums: Sums) -> usize {
        self.files.push(File {
            name,
            direction,
            size: 0,
            whole: false,
            gaps: false,
            magic: None,
            sums: Vec::new(),
            stored: false,
            body: None,
        });
        let number = self.files.len() - 1;
        if sums.magic {
            self.heads.push((number, Vec::new()));
        }
        if sums.kept {
            self.kept_files.push((number, Kept::default()));
        }
        if let Some(digests) = Digests::new(sums) {
            self.digests.push((number, digests));
        }
        number
    }

    /// A file is shown by this body, and no other.
    pub(crate) fn show_file(&mut self, file: usize, body: Option<usize>) {
        if let Some(f) = self.files.get_mut(file) {
            f.body = body;
        }
    }

    /// What is inspected of a file that has a body of its own.
    pub(crate) fn contents(&self, file: &File) -> Option<&[u8]> {
        self.bodies.get(file.body?).map(|b| b.bytes.as_slice())
    }

    /// More of the only file of a transfer: for its sums, and for rules as far as bodies of its direction are inspected.
    pub(crate) fn transferred(&mut self, d: Direction, bytes: &[u8], w: &Wanted) {
        self.file_data(0, bytes);
        let limit = match d {
            Direction::ToServer => w.request_body,
            Direction::ToClient => w.response_body,
        };
        if w.buffers.has(Buffer::FileData)
            && !self.append(Buffer::FileData, d, bytes, limit)
            && !w.whole_files
        {
            *d.of_mut(&mut self.complete) = true;
        }
    }

    /// More of a file.
    pub(crate) fn file_data(&mut self, file: usize, bytes: &[u8]) {
        if let Some(f) = self.files.get_mut(file) {
            f.size = f.size.saturating_add(bytes.len() as u64);
        }
        if let Some((_, head)) = self.heads.iter_mut().find(|(n, _)| *n == file) {
            let room = HEAD - head.len();
            head.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            if head.len() == HEAD {
                self.identify(file);
            }
        }
        if let Some((_, digests)) = self.digests.iter_mut().find(|(n, _)| *n == file) {
            digests.update(bytes);
        }
        if let Some((_, kept)) = self.kept_files.iter_mut().find(|(n, _)| *n == file) {
            kept.append(bytes);
        }
    }

    /// All that decides what a file is has come.
    fn identify(&mut self, file: usize) {
        let Some(at) = self.heads.iter().position(|(n, _)| *n == file) else {
            return;
        };
        let (_, head) = self.heads.swap_remove(at);
        let Some(direction) = self.files.get(file).map(|f| f.direction) else {
            return;
        };
        let magic = magic(&head);
        self.push(Buffer::FileMagic, direction, magic.as_bytes());
        if let Some(f) = self.files.get_mut(file) {
            f.magic = Some(magic);
        }
    }

    /// A file is over.
    pub(crate) fn end_file(&mut self, file: usize, whole: bool) {
        self.identify(file);
        let Some(f) = self.files.get_mut(file) else {
            return;
        };
        let whole = whole && !*f.direction.of(&self.cut);
        f.whole = whole;
        if let Some(at) = self.digests.iter().position(|(n, _)| *n == file) {
            let (_, digests) = self.digests.swap_remove(at);
            // What is written out of a file that did not come whole has a sum as well: it is its name.
            if whole || self.kept_files.iter().any(|(n, _)| *n == file) {
                f.sums = digests.finish();
            }
        }
    }

    /// The bytes of a file that is over, if they were kept.
    pub(crate) fn take_kept(&mut self, file: usize) -> Option<Kept> {
        let at = self.kept_files.iter().position(|(n, _)| *n == file)?;
        Some(self.kept_files.swap_remove(at).1)
    }

    /// Forgets what it says: it turned out to be no message.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.facts.clear();
        self.record.clear();
        self.arena.clear();
        self.entries.clear();
        self.frames.clear();
    }

    /// Notes an event, once: one of those of its kind.
    pub fn event(&mut self, name: &'static str) {
        debug_assert!(
            self.kind.has(name),
            "rules do not know {}.{name}",
            self.app.name()
        );
        if !self.events.contains(&name) {
            self.events.push(name);
        }
    }

    /// Notes a number that one end has sent, once.
    pub(crate) fn note(&mut self, name: &'static str, direction: Direction, value: u64) {
        let one = (name, direction, value);
        if self.sided.len() < MOST_SIDED && !self.sided.contains(&one) {
            self.sided.push(one);
        }
    }

    /// The values of one fact that are told in a direction.
    pub(crate) fn facts_of<'a>(
        &'a self,
        name: &'a str,
        direction: Option<Direction>,
    ) -> impl Iterator<Item = u64> + 'a {
        let told = move |d: Direction| direction.is_none_or(|wanted| wanted == d);
        let sided = self.sided.iter();
        let sided = sided.filter(move |(n, d, _)| *n == name && told(*d));
        self.facts(name).chain(sided.map(|(.., v)| *v))
    }

    /// What another one says, of a message that is carried in this one.
    pub(crate) fn absorb(&mut self, other: &Transaction) {
        for (buffer, direction, bytes) in other.all() {
            self.push(buffer, direction, bytes);
        }
        self.facts.extend(&other.facts);
    }

    /// Whether rules call it so: by its protocol, or by the one that carries that.
    pub(crate) fn is_called(&self, app: &str) -> bool {
        self.app.name() == app || self.kind.app.name() == app
    }

    /// The values of one fact.
    pub fn facts<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.facts
            .iter()
            .filter(move |(n, _)| *n == name)
            .map(|(_, v)| *v)
    }

    /// Nothing more will come in one direction.
    pub fn finish_side(&mut self, direction: Direction) {
        *direction.of_mut(&mut self.complete) = true;
        *direction.of_mut(&mut self.ended) = true;
        self.done |= self.ended == [true; 2];
    }

    /// Whether it is a message of one direction.
    pub(crate) fn is_message(&self) -> bool {
        self.kind.turns == Turns::Message
    }

    /// Whether something was said in a direction.
    pub fn has_begun(&self, direction: Direction) -> bool {
        self.is_over(direction)
            || self.all().any(|(_, d, _)| d == direction)
            || match (self.kind.turns, direction) {
                (Turns::Message, _) => *direction.of(&self.complete),
                (_, Direction::ToServer) => true,
                (_, Direction::ToClient) => (self.kind.answered)(self),
            }
    }

    /// Whether a buffer that is not there is missing from a message, rather than the message from the transaction.
    pub(crate) fn may_lack(&self, direction: Direction) -> bool {
        (self.kind.may_lack)(self, direction)
    }

    /// Whether a direction is over, and not only given up with its flow.
    pub fn is_over(&self, direction: Direction) -> bool {
        match self.kind.turns {
            Turns::Message | Turns::Transfer => *direction.of(&self.complete),
            Turns::Exchange => *direction.of(&self.ended) && !*direction.of(&self.cut),
        }
    }

    /// It is a message of one direction: rules are decided on no other.
    pub fn only(&mut self, direction: Direction) {
        *direction.reversed().of_mut(&mut self.inspected) = true;
    }

    /// Nothing more will come.
    pub fn finish(&mut self) {
        self.complete = [true; 2];
        self.kept = [false; 2];
        self.done = true;
    }

    /// More came in a direction that was finished: it will be decided anew.
    pub(crate) fn reopen(&mut self, direction: Direction) {
        let d = direction.index();
        self.complete[d] = false;
        self.inspected[d] = false;
        self.ended[d] = false;
        self.kept[d] = false;
        self.done = false;
    }

    /// The buffers of one name and direction, in the order they were added.
    pub fn get(&self, buffer: Buffer, direction: Direction) -> impl Iterator<Item = &[u8]> {
        self.all()
            .filter(move |(b, d, _)| *b == buffer && *d == direction)
            .map(|(_, _, bytes)| bytes)
    }

    /// Every buffer.
    pub fn all(&self) -> impl Iterator<Item = (Buffer, Direction, &[u8])> {
        let entries = self.entries.iter().map(|e| {
            let bytes = &self.arena[e.start as usize..e.end as usize];
            (e.buffer, e.direction, bytes)
        });
        let bodies = self.bodies.iter().flat_map(|b| {
            let names = std::iter::once(b.buffer).chain(b.also);
            names.map(move |n| (n, b.direction, b.bytes.as_slice()))
        });
        entries.chain(bodies)
    }

    /// Bytes it holds.
    pub fn memory(&self) -> usize {
        let kept = self.kept_files.iter().map(|(_, kept)| kept.memory());
        let heads: usize = self.heads.iter().map(|(_, head)| head.capacity()).sum();
        let bodies = self.bodies.iter().map(|b| b.bytes.len());
        self.arena.len() + bodies.sum::<usize>() + kept.sum::<usize>() + heads
    }
}

/// The most transactions of one flow that wait for their other half; beyond it the oldest is given up as it is.
pub const MOST_LIVE: usize = 512;

/// The live transactions of a flow, oldest first. Detection looks at those that changed, and drops those that are done once it has.
#[derive(Debug, Default)]
pub struct Transactions {
    /// Live ones, by rising `id`.
    pub live: VecDeque<Transaction>,
    /// How many there have been.
    pub count: u64,
    /// How many there had been when the protocol changed.
    pub(crate) before: u64,
    /// The protocol that the flow had before it changed to the one of this parser.
    pub(crate) from: Option<App>,
    /// Set by a parser that does not understand its stream any more: the flow goes on without it.
    pub failed: bool,
    /// Has the frames of messages that belong to no transaction.
    pub(crate) loose: Option<Box<Transaction>>,
    /// Nothing more of this flow can be understood, as the rest is encrypted: nobody needs to look at it.
    pub encrypted: bool,
    /// What the flow carries proved to be a protocol within its own, whose rules and records hold from here on.
    pub becomes: Option<App>,
    /// The stream speaks something else from here on.
    pub change: Option<Change>,
    /// Flows that this one announced, to be taken by the flow table.
    pub expected: Vec<Expected>,
    /// What was wrong with the flow rather than one transaction, as `app-layer-event` names it.
    pub events: Vec<&'static str>,
    /// Transactions given up because too many waited.
    pub overflowed: u64,
    /// How many may wait, if a configuration says it.
    pub(crate) most: Option<usize>,
    /// Only one end is seen: that nobody answers is not odd.
    pub(crate) alone: bool,
}

/// A change of protocol in a stream: STARTTLS, CONNECT, an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// To what; `None`: it is to be recognized anew.
    pub to: Option<App>,
    /// Bytes of each direction that the old parser was given and that belong to the new.
    pub rest: [Vec<u8>; 2],
    /// The request that HTTP/2 answers, of one that began as HTTP/1.
    pub upgraded: Option<Box<Upgrade>>,
}

/// A request of HTTP/1 that asks to go on in HTTP/2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgrade {
    /// Its method.
    pub method: Vec<u8>,
    /// Its target, as sent.
    pub target: Vec<u8>,
    /// Its host, as sent.
    pub host: Option<Vec<u8>>,
    /// The settings of its client, in Base64 for addresses.
    pub settings: Vec<u8>,
}

impl Upgrade {
    /// The settings as a frame has them; `None`: they are none.
    pub(crate) fn settings(&self) -> Option<Vec<u8>> {
        let plain: Vec<u8> = (self.settings.iter())
            .map(|b| match b {
                b'-' => b'+',
                b'_' => b'/',
                other => *other,
            })
            .collect();
        let mut settings = Vec::new();
        crate::base64::decode_until_invalid(&plain, &mut settings);
        let whole = settings.len() == plain.len() * 3 / 4;
        (whole && settings.len().is_multiple_of(6)).then_some(settings)
    }
}

/// A flow that another one announced. A later one of the same address and port replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What it will carry.
    pub app: App,
    /// Which end waits for it: `ToServer` if the client will connect to the server.
    pub direction: Direction,
    /// The address that waits; `None`: that end of this flow.
    pub address: Option<IpAddr>,
    /// The port that waits.
    pub port: u16,
    /// The file it will carry, if known.
    pub file: Vec<u8>,
    /// The command that asked for it, if known.
    pub command: &'static str,
}

impl Transactions {
    /// Begins one.
    #[expect(clippy::expect_used, reason = "the line above pushes one")]
    pub fn begin(&mut self, kind: &'static Kind, time: u64) -> &mut Transaction {
        self.relieve(kind);
        self.live.push_back(Transaction {
            id: self.count,
            number: self.count - self.before,
            app: kind.app,
            kind,
            time,
            ..Transaction::default()
        });
        self.count += 1;
        self.live.back_mut().expect("one was pushed")
    }

    /// How many may wait.
    pub(crate) fn most(&self, kind: &Kind) -> usize {
        self.most.unwrap_or(kind.most)
    }

    /// Whether another one may begin, of a protocol whose parser stops where too many wait.
    pub(crate) fn may_begin(&mut self, kind: &'static Kind) -> bool {
        // A parser that stopped begins no more, whatever is left of the segment that it is given.
        let fits = !self.failed && (!self.relieve(kind) || self.alone);
        self.failed |= !fits;
        fits
    }

    /// A peer that never answers must not make the list grow: what has waited longest is decided as it is. Whether something was.
    fn relieve(&mut self, kind: &'static Kind) -> bool {
        let most = self.most(kind);
        if self.live.len() < most || self.live.iter().filter(|t| !t.done).count() < most {
            return false;
        }
        let Some(oldest) = self.live.iter_mut().find(|t| !t.done) else {
            return false;
        };
        if !self.alone {
            oldest.event(TOO_MANY);
        }
        oldest.finish();
        self.overflowed += 1;
        true
    }

    /// What is under way in this direction will not be seen to its end.
    pub(crate) fn cut(&mut self, direction: Direction) {
        for t in self.live.iter_mut().filter(|t| !t.done) {
            *direction.of_mut(&mut t.cut) |= !*direction.of(&t.ended);
        }
    }

    /// The live one of that number.
    pub fn find(&mut self, id: u64) -> Option<&mut Transaction> {
        let at = self.live.binary_search_by_key(&id, |t| t.id).ok()?;
        self.live.get_mut(at)
    }

    /// Notes an event of the flow, once.
    pub fn event(&mut self, name: &'static str) {
        if !self.events.contains(&name) {
            self.events.push(name);
        }
    }
}
