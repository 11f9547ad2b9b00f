//! DCE/RPC over named pipes: interfaces that are bound on each pipe, calls, and their answers, which come with the request or are read later.

use std::collections::VecDeque;

use super::files::part_of;
use super::message::{Message, le16, le32, words};
use crate::app::dcerpc::pdu::{Contexts, Pdu, Record, add_stub, kind, kind_name, show_stub};
use crate::app::transaction::{Transaction, Transactions};
use crate::app::wanted::Wanted;
use crate::packet::Direction::{ToClient, ToServer};

/// Pipes of a session whose interfaces are remembered.
const MOST_PIPES: usize = 32;
/// Calls of a session that may wait for an answer.
const MOST_WAITING: usize = 64;
/// Reads of pipes that may wait for theirs.
const MOST_READS: usize = 64;

/// A message of DCE/RPC from the client, and the pipe that it goes to.
pub(super) struct Asked<'a> {
    pub(super) pdu: Pdu<'a>,
    pipe: u128,
}

/// A pipe as the server calls it.
fn pipe(bytes: Option<&[u8]>) -> u128 {
    let id = bytes.unwrap_or_default().iter().rev();
    id.fold(0, |all, b| all << 8 | u128::from(*b))
}

/// The DCE/RPC in a write, a transaction or an ioctl.
pub(super) fn asked<'a>(m: &Message<'a>) -> Option<Asked<'a>> {
    let (data, id) = match (m.version, m.command) {
        (2, 9) => (m.all.get(le16(m.body, 2)?..)?, m.body.get(16..32)),
        // Ioctl: only the one that talks to pipes.
        (2, 11) if le32(m.body, 4)? == 0x0011_c017 => {
            let data = m.all.get(le32(m.body, 24)? as usize..)?;
            (data, m.body.get(8..24))
        }
        (1, 0x25) => {
            let words = words(m)?.0;
            (m.all.get(le16(words, 24)?..)?, words.get(30..32))
        }
        (1, 0x2f) => {
            let words = words(m)?.0;
            (m.all.get(le16(words, 22)?..)?, words.get(4..6))
        }
        _ => return None,
    };
    let of_client = matches!(
        data.get(2)?,
        &(kind::REQUEST | kind::BIND | kind::ALTER | kind::AUTH3)
    );
    let pdu = Pdu::read(data).filter(|_| is_rpc(data, 0) && of_client)?;
    Some(Asked {
        pdu,
        pipe: pipe(id),
    })
}

/// Whether a request or an answer of DCE/RPC over connections begins there.
pub(super) fn is_rpc(bytes: &[u8], at: usize) -> bool {
    let Some(data) = bytes.get(at..).filter(|d| d.len() >= 24) else {
        return false;
    };
    let little = data.get(4).is_some_and(|order| order & 0x10 != 0);
    data.starts_with(&[5, 0]) && little && matches!(data.get(2), Some(0 | 2 | 3 | 11..=16))
}

/// What the server says on a pipe: of an ioctl, a transaction, or a read.
fn told<'a>(m: &Message<'a>) -> Option<&'a [u8]> {
    let (at, length) = match (m.version, m.command) {
        (2, 8) | (1, 0x2e) => {
            let part = part_of(m)?;
            (part.at, part.length)
        }
        (2, 11) => (le32(m.body, 32)? as usize, le32(m.body, 36)? as usize),
        (1, 0x25) => {
            let words = words(m)?.0;
            (le16(words, 14)?, le16(words, 12)?)
        }
        _ => return None,
    };
    let data = m.all.get(at..)?;
    Some(data.get(..length).unwrap_or(data))
}

/// A call that waits for its answer.
struct Waiting {
    pipe: u128,
    call: u32,
    transaction: u64,
    /// Bytes of arguments of a fragment of the answer that further reads will bring.
    left: usize,
    /// That fragment is the last.
    last: bool,
    little: bool,
}

/// Calls of a session.
#[derive(Default)]
pub(super) struct Calls {
    pipes: VecDeque<(u128, Contexts)>,
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    /// Reads of pipes: number of the message, pipe.
    reads: VecDeque<(u64, u128)>,
}

impl Calls {
    fn contexts(&mut self, pipe: u128) -> Option<&mut Contexts> {
        if !self.pipes.iter().any(|p| p.0 == pipe) {
            if self.pipes.len() >= MOST_PIPES {
                self.pipes.pop_front();
            }
            self.pipes.push_back((pipe, Contexts::default()));
        }
        let mut all = self.pipes.iter_mut();
        all.find(|p| p.0 == pipe).map(|p| &mut p.1)
    }

    /// A fragment of a call that was begun: its arguments are that call's. `false`: it begins one.
    pub(super) fn goes_on(&self, asked: &Asked<'_>, w: &Wanted, out: &mut Transactions) -> bool {
        let pdu = &asked.pdu;
        if pdu.kind != kind::REQUEST || pdu.is_first() {
            return false;
        }
        let same = |c: &&Waiting| (c.pipe, c.call) == (asked.pipe, pdu.call);
        let known = self.waiting.iter().rfind(same);
        let Some(t) = known.and_then(|call| out.find(call.transaction)) else {
            return false;
        };
        let (stub, size) = pdu.stub();
        add_stub(t, ToServer, (stub, pdu.little), w);
        if let Some(rpc) = rpc_of(t) {
            show_stub(rpc, "req", size);
        }
        if pdu.is_last() {
            *ToServer.of_mut(&mut t.complete) = true;
        }
        true
    }

    /// Begins a call: what rules and the log are told of it. Returns whether more of it will come.
    pub(super) fn begin(
        &mut self,
        asked: &Asked<'_>,
        t: &mut Transaction,
        w: &Wanted,
    ) -> (bool, Option<u64>) {
        let pdu = &asked.pdu;
        let mut r = Record::new();
        r.insert("request".into(), kind_name(pdu.kind).into());
        r.insert("call_id".into(), pdu.call.into());
        let mut more = false;
        let contexts = self.contexts(asked.pipe);
        match pdu.kind {
            kind::REQUEST => {
                let (stub, size) = pdu.stub();
                add_stub(t, ToServer, (stub, pdu.little), w);
                r.insert("opnum".into(), pdu.operation().into());
                show_stub(&mut r, "req", size);
                if let Some(contexts) = contexts {
                    contexts.note(pdu, t);
                    let shown = contexts.show_of(pdu);
                    if !shown.is_empty() {
                        r.insert("interfaces".into(), shown.into());
                    }
                }
                more = !pdu.is_last();
            }
            // The third leg of authentication, which has no answer.
            kind::AUTH3 => {
                r.insert("response".into(), "UNREPLIED".into());
            }
            _ => {
                if let Some(contexts) = contexts {
                    let bind = contexts.offer(pdu);
                    let shown = contexts.show(bind, true);
                    // One that asks for nothing lists nothing.
                    if !shown.is_empty() {
                        r.insert("interfaces".into(), shown.into());
                    }
                }
            }
        }
        if w.records {
            t.record.insert("dcerpc".into(), r.into());
        }
        let mut given_up = None;
        if pdu.kind != kind::AUTH3 {
            if self.waiting.len() >= MOST_WAITING {
                given_up = self.waiting.pop_front().map(|c| c.transaction);
            }
            self.waiting.push_back(Waiting {
                pipe: asked.pipe,
                call: pdu.call,
                transaction: t.id,
                left: 0,
                last: false,
                little: pdu.little,
            });
        }
        (more, given_up)
    }

    /// A pipe is read.
    pub(super) fn reads(&mut self, m: &Message<'_>) {
        let id = match m.version {
            2 => m.body.get(16..32),
            _ => words(m).and_then(|w| w.0.get(4..6)),
        };
        if self.reads.len() >= MOST_READS {
            self.reads.pop_front();
        }
        self.reads.push_back((m.number, pipe(id)));
    }

    /// Whether a request's call has no answer yet.
    pub(super) fn waits(&self, transaction: u64) -> bool {
        self.waiting.iter().any(|c| c.transaction == transaction)
    }

    /// Its call will not be answered.
    pub(super) fn forget(&mut self, transaction: u64) {
        self.waiting.retain(|c| c.transaction != transaction);
    }

    /// An answer on a pipe: to a read, or (with its transaction) to a request that asks and reads in one. Whose call it ends is returned.
    pub(super) fn answered(
        &mut self,
        m: &Message<'_>,
        transaction: Option<u64>,
        w: &Wanted,
        out: &mut Transactions,
    ) -> Option<u64> {
        let pipe = match transaction {
            Some(id) => self.waiting.iter().find(|c| c.transaction == id)?.pipe,
            None => {
                let at = self.reads.iter().position(|r| r.0 == m.number)?;
                self.reads.remove(at)?.1
            }
        };
        let data = told(m)?;
        // The rest of a message that was too long for the read before.
        let unfinished = self
            .waiting
            .iter_mut()
            .find(|c| c.pipe == pipe && c.left > 0);
        if let Some(call) = unfinished {
            let count = data.len().min(call.left);
            call.left -= count;
            let t = out.find(call.transaction)?;
            add_stub(t, ToClient, (data.get(..count)?, call.little), w);
            let (id, over) = (call.transaction, call.left == 0 && call.last);
            return over.then_some(id);
        }
        let pdu = Pdu::read(data).filter(|p| {
            matches!(
                p.kind,
                kind::RESPONSE | kind::FAULT | kind::BIND_ACK | kind::BIND_NAK | kind::ALTER_ANSWER
            )
        })?;
        let acknowledges = matches!(pdu.kind, kind::BIND_ACK | kind::ALTER_ANSWER);
        let mut shown = Vec::new();
        if acknowledges && let Some(contexts) = self.contexts(pipe) {
            let bind = contexts.answer(&pdu);
            shown = bind.map_or_else(Vec::new, |bind| contexts.show(bind, true));
        }
        let same = |c: &&mut Waiting| (c.pipe, c.call) == (pipe, pdu.call);
        let call = self.waiting.iter_mut().find(same)?;
        let t = out.find(call.transaction)?;
        if let Some(rpc) = rpc_of(t) {
            rpc.insert("response".into(), kind_name(pdu.kind).into());
            if !shown.is_empty() {
                rpc.insert("interfaces".into(), shown.into());
            }
        }
        if pdu.kind != kind::RESPONSE {
            return Some(call.transaction);
        }
        let (stub, size) = pdu.stub();
        add_stub(t, ToClient, (stub, pdu.little), w);
        if let Some(rpc) = rpc_of(t) {
            show_stub(rpc, "res", size);
        }
        (call.left, call.last, call.little) = (size - stub.len(), pdu.is_last(), pdu.little);
        (call.left == 0 && call.last).then_some(call.transaction)
    }

    /// Transactions that wait, when nothing more will come.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = u64> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|c| c.transaction)
    }

    /// Bytes that it holds.
    pub(super) fn memory(&self) -> usize {
        let contexts = self.pipes.iter().map(|p| p.1.memory()).sum::<usize>();
        contexts
            + self.pipes.capacity() * size_of::<(u128, Contexts)>()
            + self.waiting.capacity() * size_of::<Waiting>()
            + self.reads.capacity() * size_of::<(u64, u128)>()
    }
}

/// What the record of a message says of its call.
fn rpc_of(t: &mut Transaction) -> Option<&mut Record> {
    t.record.get_mut("dcerpc")?.as_object_mut()
}
