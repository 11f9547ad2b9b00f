//! NFS, versions 2 to 4, over TCP and UDP: a call with its answer is a transaction; what is read of a file, or written to it, with versions 2 and 3 is another one for each
//! direction. Operations of version 4 are told as far as their arguments are known; its files are not put together.

mod call;
mod names;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use self::call::{About, Answer, Call, Credentials, HEAD, Reader};
use super::bytes::be32;
use super::carry::{Carry, Taken};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Carrier, Fact, Log, Parser, Protocol, Written};
use super::text::text;
use super::transaction::{Kind, Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Calls that may wait for answers; handles with names; files under way.
const MOST_PENDING: usize = 256;
const MOST_NAMES: usize = 256;
const MOST_FILES: usize = 64;

pub(super) const NFS: Protocol = Protocol {
    app: App::Nfs,
    carrier: Carrier::Both,
    stream: Some(StreamProbe {
        certainty: Certainty::Form,
        look,
        claims: is_marked,
    }),
    datagram: Some(|first| !first.is_server() && is_call(first.bytes, 4)),
    parser: Some(|start| Box::new(Nfs::new(start.asked, start.stream))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: PROCEDURE,
            written: Written::Inclusive,
            what: "procedure of NFS by its number, of version 4 one of the operations",
            ..Fact::NONE
        },
        Fact {
            keyword: VERSION,
            aliases: &["nfs_version"],
            written: Written::Inclusive,
            what: "version of NFS",
            ..Fact::NONE
        },
    ],
    files: true,
    log: Log {
        direction: |_, _| ToClient,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Nfs,
    events: &["malformed_data"],
    ..Kind::EXCHANGE
};

const PROCEDURE: &str = "nfs_procedure";
const VERSION: &str = "nfs.version";

/// A record mark, then a call.
fn look(first: &First<'_>) -> Look {
    match be32(first.bytes, 16) {
        _ if !is_marked(first) => Look::No,
        Some(_) if is_call(first.bytes, 8) => Look::Yes,
        Some(_) => Look::No,
        None => Look::Maybe,
    }
}

fn is_marked(first: &First<'_>) -> bool {
    first.at(0).is_some_and(|b| b & 0x80 != 0) && !first.is_server()
}

fn is_call(bytes: &[u8], at: usize) -> bool {
    be32(bytes, at) == Some(0)
        && be32(bytes, at + 4) == Some(2)
        && be32(bytes, at + 8) == Some(100_003)
}

/// Whether a transaction has a record: what only asks whether anything has changed has none.
pub(crate) fn is_told(t: &Transaction) -> bool {
    let of = |name| t.facts(name).next();
    match (of(VERSION), of(PROCEDURE)) {
        (Some(2 | 3), Some(procedure)) => procedure > 1,
        (Some(4), Some(procedure)) => procedure != 0,
        _ => false,
    }
}

/// A call without an answer.
struct Pending {
    number: u32,
    transaction: u64,
    version: u32,
    procedure: u32,
    handle: Vec<u8>,
    name: Vec<u8>,
    offset: Option<u64>,
    commits: bool,
}

/// A file of which bytes have come in one direction.
struct Open {
    handle: Vec<u8>,
    direction: Direction,
    transaction: u64,
    /// The next byte.
    next: u64,
    /// Nothing of it is missing so far.
    whole: bool,
    chunks: u64,
}

#[derive(Default)]
struct Half {
    carry: Carry,
    /// The bytes that come next are of a file: its transaction, how many, and how many of the message follow.
    body: Option<(u64, u64, u64)>,
}

struct Nfs {
    wanted: Wanted,
    stream: bool,
    halves: [Half; 2],
    /// The oldest first, as in the lists below.
    pending: VecDeque<Pending>,
    names: VecDeque<(Vec<u8>, Vec<u8>)>,
    files: VecDeque<Open>,
}

impl Nfs {
    fn new(wanted: &Wanted, stream: bool) -> Nfs {
        Nfs {
            wanted: *wanted,
            stream,
            halves: <[Half; 2]>::default(),
            pending: VecDeque::new(),
            names: VecDeque::new(),
            files: VecDeque::new(),
        }
    }

    fn name_of(&self, handle: &[u8]) -> Vec<u8> {
        let known = self.names.iter().find(|(h, _)| h == handle);
        known.map(|(_, name)| name.clone()).unwrap_or_default()
    }

    fn remember(&mut self, handle: &[u8], name: &[u8]) {
        self.names.retain(|(h, _)| h != handle);
        if self.names.len() >= MOST_NAMES {
            self.names.pop_front();
        }
        let name = name.get(..256).unwrap_or(name);
        self.names.push_back((handle.to_vec(), name.to_vec()));
    }

    /// Reads a message, or its first bytes; returns the file that bytes of it are of, where these begin, and how many they are.
    fn message(
        &mut self,
        d: Direction,
        b: &[u8],
        time: u64,
        out: &mut Transactions,
    ) -> Option<(u64, usize, u64)> {
        let mut r = Reader(b);
        let read = (r.number(), r.number());
        let found = match read {
            (Some(number), Some(0)) => {
                Call::read(r.0).map(|call| self.call(d, number, &call, b.len(), time, out))
            }
            (Some(number), Some(1)) => self.answer(d, number, r.0, b.len(), out),
            _ => None,
        };
        if found.is_none() {
            let t = out.begin(&KIND, time);
            t.only(d);
            t.event("malformed_data");
            t.logged = true;
            t.finish();
        }
        found.flatten()
    }

    fn call(
        &mut self,
        d: Direction,
        number: u32,
        call: &Call<'_>,
        length: usize,
        time: u64,
        out: &mut Transactions,
    ) -> Option<(u64, usize, u64)> {
        let about = About::read(call);
        let handle = about.handle.unwrap_or_default();
        // Of version 4 what is not only on the way to it.
        let on_the_way = |o: &&u32| !matches!(**o, 9 | 10 | 15 | 16 | 22..=24 | 31 | 32 | 53);
        let procedure = match call.version {
            4 => {
                let operations = &about.operations;
                let main = operations.iter().find(on_the_way).or(operations.last());
                main.copied().unwrap_or(call.procedure)
            }
            _ => call.procedure,
        };
        // Files of version 4 are not put together.
        let files = call.version < 4;
        let reads = files && about.offset.is_some() && about.data.is_none();
        let writes = files && about.data.is_some();
        let direction = if writes { ToServer } else { ToClient };
        let open = (reads || writes).then(|| self.file(handle, direction));
        let name = match about.name {
            Some(name) => name.to_vec(),
            None => self.name_of(handle),
        };
        let id = match open.flatten() {
            Some(id) => id,
            None => {
                let t = out.begin(&KIND, time);
                let id = t.id;
                t.facts.push((VERSION, call.version.into()));
                match call.version {
                    4 if !about.operations.is_empty() => {
                        let all = about.operations.iter();
                        t.facts.extend(all.map(|o| (PROCEDURE, u64::from(*o))));
                        // The one that records name stands first.
                        if let Some(at) = t
                            .facts
                            .iter()
                            .position(|f| *f == (PROCEDURE, procedure.into()))
                        {
                            t.facts.swap(1, at);
                        }
                    }
                    _ => t.facts.push((PROCEDURE, procedure.into())),
                }
                if self.wanted.records {
                    let name = about.name.unwrap_or(&name);
                    show(t, number, call, procedure, name, handle);
                    if let (Some(from), Some(to)) = (about.name, about.to) {
                        let rename = json!({"from": text(from), "to": text(to)});
                        t.record.insert("rename".into(), rename);
                    }
                }
                if reads || writes {
                    if self.wanted.buffers.has(Buffer::FileName) && !name.is_empty() {
                        t.push(Buffer::FileName, direction, &name);
                    }
                    t.begin_file(name.clone(), direction, self.wanted.sums);
                    t.record.insert("file_tx".into(), true.into());
                    let open = Open {
                        handle: handle.to_vec(),
                        direction,
                        transaction: id,
                        next: 0,
                        whole: true,
                        chunks: 0,
                    };
                    self.open(open, out);
                }
                // What is written goes on.
                if let Some(t) = out.find(id).filter(|_| !writes) {
                    t.finish_side(d);
                }
                id
            }
        };
        if self.pending.len() >= MOST_PENDING
            && let Some(oldest) = self.pending.pop_front()
            && !self
                .files
                .iter()
                .any(|f| f.transaction == oldest.transaction)
            && let Some(t) = out.find(oldest.transaction).filter(|t| !t.done)
        {
            t.only(ToServer);
            t.finish();
        }
        self.pending.push_back(Pending {
            number,
            transaction: id,
            version: call.version,
            procedure: call.procedure,
            handle: handle.to_vec(),
            name,
            offset: about.offset,
            commits: about.commits,
        });
        let (left, count) = about.data.filter(|_| writes)?;
        self.piece(id, about.offset.unwrap_or(0), count.into(), number, out);
        Some((id, length.checked_sub(left)?, count.into()))
    }

    /// The transaction of a file that is under way.
    fn file(&self, handle: &[u8], direction: Direction) -> Option<u64> {
        let is = |f: &&Open| f.handle == handle && f.direction == direction;
        self.files.iter().find(is).map(|f| f.transaction)
    }

    fn open(&mut self, open: Open, out: &mut Transactions) {
        if self.files.len() >= MOST_FILES
            && let Some(oldest) = self.files.pop_front()
        {
            close(&oldest, false, out);
        }
        self.files.push_back(open);
    }

    /// Bytes of a file are about to come.
    fn piece(&mut self, id: u64, offset: u64, count: u64, number: u32, out: &mut Transactions) {
        let Some(open) = self.files.iter_mut().find(|f| f.transaction == id) else {
            return;
        };
        open.whole &= open.next == offset;
        open.next = offset.saturating_add(count);
        open.chunks += 1;
        if self.wanted.records
            && let Some(t) = out.find(id)
        {
            let key = match open.direction {
                ToServer => "write",
                ToClient => "read",
            };
            let first = json!({"first": true, "last": false});
            let entry = t.record.entry(key).or_insert(first);
            if let Some(part) = entry.as_object_mut() {
                part.insert("chunks".into(), open.chunks.into());
                part.insert("last_xid".into(), number.into());
            }
        }
    }

    fn answer(
        &mut self,
        d: Direction,
        number: u32,
        b: &[u8],
        length: usize,
        out: &mut Transactions,
    ) -> Option<Option<(u64, usize, u64)>> {
        // An answer to what was not seen says nothing.
        let Some(at) = self.pending.iter().position(|p| p.number == number) else {
            return Some(None);
        };
        let pending = self.pending.remove(at)?;
        let answer = Answer::read(b, pending.version, pending.procedure)?;
        let is_file = self
            .files
            .iter()
            .any(|f| f.transaction == pending.transaction);
        if let Some(handle) = answer.handle.filter(|_| !pending.name.is_empty()) {
            self.remember(handle, &pending.name);
        }
        if let Some(t) = out.find(pending.transaction) {
            if self.wanted.records {
                let rpc = t.beside.entry("rpc").or_insert_with(|| json!({}));
                if let Some(rpc) = rpc.as_object_mut() {
                    let said = if answer.accepted {
                        "ACCEPTED"
                    } else {
                        "DENIED"
                    };
                    rpc.insert("status".into(), said.into());
                }
                t.record.insert("type".into(), "response".into());
                if let Some(status) = answer.status {
                    t.record
                        .insert("status".into(), names::status(status).into());
                }
            }
            if !is_file {
                t.finish_side(d);
            }
        }
        // What was written is complete now.
        if pending.commits
            && let Some(id) = self.file(&pending.handle, ToServer)
        {
            self.over(id, true, out);
        }
        if !is_file {
            return Some(None);
        }
        let id = pending.transaction;
        if answer.status != Some(0) {
            let reads = self
                .files
                .iter()
                .any(|f| f.transaction == id && f.direction == ToClient);
            if reads {
                self.over(id, false, out);
            }
            return Some(None);
        }
        let Some((left, count)) = answer.data else {
            return Some(None);
        };
        let offset = pending.offset.unwrap_or(0);
        self.piece(id, offset, count.into(), number, out);
        // A server of version 2 does not say where a file ends.
        let last = answer.last || pending.version == 2 && count == 0;
        if last && let Some(open) = self.files.iter_mut().find(|f| f.transaction == id) {
            // Its bytes come behind.
            open.handle.clear();
        }
        Some(Some((id, length.checked_sub(left)?, count.into())))
    }

    /// Bytes of a file.
    fn bytes(&mut self, id: u64, bytes: &[u8], out: &mut Transactions) {
        let Some(open) = self.files.iter().find(|f| f.transaction == id) else {
            return;
        };
        if let Some(t) = out.find(id) {
            t.transferred(open.direction, bytes, &self.wanted);
        }
    }

    /// All bytes of a piece have come: of the last one the file is over.
    fn piece_over(&mut self, id: u64, out: &mut Transactions) {
        let last = |f: &Open| f.transaction == id && f.direction == ToClient && f.handle.is_empty();
        if self.files.iter().any(last) {
            self.over(id, true, out);
        }
    }

    fn over(&mut self, id: u64, complete: bool, out: &mut Transactions) {
        if let Some(at) = self.files.iter().position(|f| f.transaction == id)
            && let Some(open) = self.files.remove(at)
        {
            close(&open, complete, out);
        }
    }

    /// Takes what is at the front of these bytes of a stream.
    fn take(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) -> Taken {
        if let Some((id, count, behind)) = d.of_mut(&mut self.halves).body.take() {
            let taken = (bytes.len() as u64).min(count);
            let part = bytes.get(..taken as usize).unwrap_or_default();
            self.bytes(id, part, out);
            if taken < count {
                d.of_mut(&mut self.halves).body = Some((id, count - taken, behind));
                return Taken::Bytes(part.len());
            }
            self.piece_over(id, out);
            return Taken::Passing(part.len(), behind);
        }
        let Some(mark) = be32(bytes, 0) else {
            return Taken::More;
        };
        let length = u64::from(mark & 0x7fff_ffff);
        // Messages in several records are rare, and passed over.
        if mark & 0x8000_0000 == 0 || length < 8 {
            return Taken::Passing(4, length);
        }
        let kept = length.min(HEAD as u64) as usize;
        let Some(message) = bytes.get(4..4 + kept) else {
            return Taken::More;
        };
        let Some((id, at, count)) = self.message(d, message, time, out) else {
            return Taken::Passing(4 + kept, length - kept as u64);
        };
        // Of a file that claims to be longer than its message, what is there.
        let there = length.saturating_sub(at as u64);
        let count = count.min(there);
        match count {
            0 => self.piece_over(id, out),
            _ => d.of_mut(&mut self.halves).body = Some((id, count, there - count)),
        }
        match count {
            0 => Taken::Passing(4 + kept, length - kept as u64),
            _ => Taken::Bytes(4 + at),
        }
    }
}

/// A file is over.
fn close(open: &Open, complete: bool, out: &mut Transactions) {
    let Some(t) = out.find(open.transaction) else {
        return;
    };
    t.end_file(0, complete && open.whole);
    let key = match open.direction {
        ToServer => "write",
        ToClient => "read",
    };
    if let Some(part) = t.record.get_mut(key).and_then(Value::as_object_mut) {
        part.insert("last".into(), complete.into());
    }
    t.finish();
}

/// What the record of a call says.
fn show(
    t: &mut Transaction,
    number: u32,
    call: &Call<'_>,
    procedure: u32,
    name: &[u8],
    handle: &[u8],
) {
    let id = t.number + 1;
    let r = &mut t.record;
    r.insert("version".into(), call.version.into());
    let procedure = names::procedure(call.version, procedure);
    r.insert("procedure".into(), procedure.into());
    r.insert("filename".into(), text(name));
    if !handle.is_empty() {
        let mut sum = flate2::Crc::new();
        sum.update(handle);
        r.insert("hhash".into(), format!("{:x}", sum.sum()).into());
    }
    r.insert("id".into(), id.into());
    r.insert("file_tx".into(), false.into());
    r.insert("type".into(), "request".into());
    let Credentials {
        flavor,
        machine,
        user,
        group,
    } = &call.credentials;
    let mut rpc = Map::new();
    rpc.insert("xid".into(), number.into());
    rpc.insert("auth_type".into(), names::flavor(*flavor).into());
    if *flavor == 1 {
        let creds = json!({"machine_name": text(machine), "uid": user, "gid": group});
        rpc.insert("creds".into(), creds);
    }
    t.beside.insert("rpc".into(), rpc.into());
}

impl Parser for Nfs {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if !self.stream {
            if let Some((id, at, count)) = self.message(d, bytes, time, out) {
                let rest = bytes.get(at..).unwrap_or_default();
                let part = rest.get(..count as usize).unwrap_or(rest);
                self.bytes(id, part, out);
                self.piece_over(id, out);
            }
            return;
        }
        let mut carry = std::mem::take(&mut d.of_mut(&mut self.halves).carry);
        carry.feed(bytes, |rest| self.take(d, rest, time, out));
        d.of_mut(&mut self.halves).carry = carry;
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        let half = d.of_mut(&mut self.halves);
        if let Some((id, count, behind)) = half.body.take().filter(|(_, count, _)| *count > length)
        {
            half.body = Some((id, count - length, behind));
            if let Some(open) = self.files.iter_mut().find(|f| f.transaction == id) {
                open.whole = false;
            }
            if let Some(file) = out.find(id).and_then(|t| t.files.first_mut()) {
                file.gaps = true;
            }
            return;
        }
        // Where the next message begins is not known.
        if !half.carry.gap(length) {
            self.end(ToClient, out);
            out.failed = true;
        }
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToServer {
            return;
        }
        for open in std::mem::take(&mut self.files) {
            close(&open, false, out);
        }
        for pending in self.pending.drain(..) {
            if let Some(t) = out.find(pending.transaction).filter(|t| !t.done) {
                // What nobody said is not decided on.
                t.only(ToServer);
                t.finish();
            }
        }
    }

    fn is_between(&self, d: Direction) -> bool {
        let half = d.of(&self.halves);
        self.stream && half.carry.is_empty() && half.body.is_none()
    }

    fn memory(&self) -> usize {
        let pending = self.pending.iter();
        let pending = pending.map(|p| size_of::<Pending>() + p.handle.len() + p.name.len());
        let names = self.names.iter().map(|(h, n)| 48 + h.len() + n.len());
        let files = self
            .files
            .iter()
            .map(|f| size_of::<Open>() + f.handle.len());
        let halves = self.halves.iter().map(|h| h.carry.memory());
        size_of::<Nfs>()
            + pending.sum::<usize>()
            + names.sum::<usize>()
            + files.sum::<usize>()
            + halves.sum::<usize>()
    }
}
