//! DCE/RPC over UDP (version 4): a header of 80 bytes says interface, operation and the activity that a call belongs to.

use std::collections::VecDeque;

use super::pdu::{
    KIND, OPERATION, add_stub, canonical, kind_name, long, note_interface, show_stub, uuid, word,
};
use crate::app::protocol::Parser;
use crate::app::transaction::Transactions;
use crate::app::wanted::Wanted;
use crate::packet::Direction;
use crate::packet::Direction::ToClient;

const HEADER: usize = 80;
/// Calls of a flow that may wait for an answer.
const MOST_CALLS: usize = 64;

/// What is read of a datagram.
struct Message<'a> {
    kind: u8,
    little: bool,
    interface: u128,
    activity: u128,
    version: u32,
    sequence: u32,
    operation: u16,
    /// Of several datagrams, and not the first one.
    goes_on: bool,
    is_last: bool,
    stub: &'a [u8],
}

impl<'a> Message<'a> {
    fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let [4, kind @ 0..=10, flags, more, order, float, 0, ..] = *bytes else {
            return None;
        };
        let little = match order {
            0x10 | 0x11 => true,
            0 | 1 => false,
            _ => return None,
        };
        if float > 3 || more & 0xfc != 0 {
            return None;
        }
        let id = |at: usize| {
            let id = bytes.get(at..)?.first_chunk()?;
            Some(canonical(id, little))
        };
        let length = usize::from(word(bytes, 74, little)?);
        let fragment = word(bytes, 76, little)?;
        let is_fragment = flags & 4 != 0;
        Some(Message {
            kind,
            little,
            interface: id(24)?,
            activity: id(40)?,
            version: long(bytes, 60, little)?,
            sequence: long(bytes, 64, little)?,
            operation: word(bytes, 68, little)?,
            goes_on: is_fragment && fragment > 0,
            is_last: !is_fragment || flags & 2 != 0,
            stub: bytes.get(HEADER..)?.get(..length)?,
        })
    }
}

/// Whether a datagram is a first one of this protocol.
pub(super) fn looks_like(bytes: &[u8]) -> bool {
    Message::read(bytes).is_some_and(|m| !m.goes_on)
}

struct Call {
    activity: u128,
    sequence: u32,
    transaction: u64,
}

pub(super) struct Datagrams {
    wanted: Wanted,
    calls: VecDeque<Call>,
}

impl Datagrams {
    pub(super) fn new(wanted: &Wanted) -> Datagrams {
        Datagrams {
            wanted: *wanted,
            calls: VecDeque::new(),
        }
    }
}

impl Parser for Datagrams {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let w = self.wanted;
        let Some(m) = Message::read(bytes) else {
            return;
        };
        // Requests, responses, and what is said in place of a response; the rest is about calls.
        let asks = match m.kind {
            0 => true,
            2 | 3 | 6 => false,
            _ => return,
        };
        let same = |c: &Call| (c.activity, c.sequence) == (m.activity, m.sequence);
        let known = self.calls.iter().position(same);
        let id = match known.and_then(|at| self.calls.get(at)) {
            Some(call) => call.transaction,
            None => {
                if self.calls.len() >= MOST_CALLS
                    && let Some(oldest) = self.calls.pop_front()
                    && let Some(t) = out.find(oldest.transaction)
                {
                    t.finish();
                }
                let t = out.begin(&KIND, time);
                t.facts.push((OPERATION, u64::from(m.operation)));
                note_interface(t, m.interface, u64::from(m.version));
                if w.records {
                    let r = &mut t.record;
                    r.insert("activityuuid".into(), uuid(m.activity).into());
                    r.insert("seqnum".into(), m.sequence.into());
                    r.insert("rpc_version".into(), "4.0".into());
                    r.insert("request".into(), "REQUEST_LOST".into());
                    r.insert("response".into(), "UNREPLIED".into());
                }
                self.calls.push_back(Call {
                    activity: m.activity,
                    sequence: m.sequence,
                    transaction: t.id,
                });
                t.id
            }
        };
        let Some(t) = out.find(id) else { return };
        if m.kind == 0 || m.kind == 2 {
            add_stub(t, d, (m.stub, m.little), &w);
        }
        if w.records {
            let (key, side) = match asks {
                true => ("request", "req"),
                false => ("response", "res"),
            };
            let name = if m.kind == 6 {
                "REJECT"
            } else {
                kind_name(m.kind)
            };
            t.record.insert(key.into(), name.into());
            if m.kind == 0 || m.kind == 2 {
                show_stub(&mut t.record, side, m.stub.len());
            }
            if asks && let Some(req) = t.record.get_mut("req").and_then(|r| r.as_object_mut()) {
                req.insert("opnum".into(), m.operation.into());
            }
        }
        match (asks, m.is_last) {
            (_, false) => {}
            (true, true) => t.finish_side(d),
            (false, true) => {
                t.finish();
                self.calls.retain(|c| c.transaction != id);
            }
        }
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToClient {
            for call in self.calls.drain(..) {
                if let Some(t) = out.find(call.transaction) {
                    t.finish();
                }
            }
        }
    }

    fn memory(&self) -> usize {
        size_of::<Datagrams>() + self.calls.capacity() * size_of::<Call>()
    }
}
