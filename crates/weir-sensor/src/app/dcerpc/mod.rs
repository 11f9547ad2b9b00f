//! DCE/RPC over TCP and UDP: each call with its answer is a transaction. Fragments of arguments are put together; what pipes of SMB carry is `smb`'s, with the messages of `pdu`.

mod datagram;
pub(crate) mod pdu;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::datagram::Datagrams;
use self::pdu::{Contexts, HEADER, KIND, Pdu, add_stub, kind, kind_name, show_stub};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Carrier, Fact, Parser, Protocol, Written};
use super::transaction::{Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Calls of a flow that may wait for an answer.
const MOST_CALLS: usize = 128;
/// Bytes of a call, with what rules are shown of its messages as sent; of more, later messages are not shown.
const MOST_FRAMES: usize = 1 << 20;

pub(super) const DCERPC: Protocol = Protocol {
    app: App::Dcerpc,
    carrier: Carrier::Both,
    stream: Some(StreamProbe {
        certainty: Certainty::Form,
        look,
        claims: is_version_5,
    }),
    datagram: Some(|first| datagram::looks_like(first.bytes)),
    parser: Some(|start| match start.stream {
        true => Box::new(Stream::new(start.asked)),
        false => Box::new(Datagrams::new(start.asked)),
    }),
    kind: Some(&KIND),
    facts: &[Fact {
        keyword: "dcerpc.opnum",
        aliases: &["dce_opnum"],
        written: Written::List,
        what: "number of an operation of DCE/RPC, also over SMB",
        ..Fact::NONE
    }],
    ..Protocol::NONE
};

fn is_version_5(first: &First<'_>) -> bool {
    first.at(0) == Some(5) && first.at(1).is_none_or(|minor| minor <= 1)
}

/// Version 5.0 or 5.1, a bind or a call or what answers it, data representation, length of the fragment.
fn look(first: &First<'_>) -> Look {
    if !is_version_5(first) {
        return Look::No;
    }
    let [_, _, kind, flags, order, rest @ ..] = first.bytes else {
        return Look::Maybe;
    };
    let kinds: &[u8] = match first.is_server() {
        true => &[
            kind::RESPONSE,
            kind::FAULT,
            kind::BIND_ACK,
            kind::BIND_NAK,
            kind::ALTER_ANSWER,
        ],
        false => &[kind::REQUEST, kind::BIND, kind::ALTER],
    };
    if !kinds.contains(kind) || !matches!(order, 0 | 0x10) {
        return Look::No;
    }
    let [a, b, c, d, e, ..] = *rest else {
        return Look::Maybe;
    };
    let length = match order {
        0x10 => u16::from_le_bytes([d, e]),
        _ => u16::from_be_bytes([d, e]),
    };
    // Of a call more is asked than of what only begins a session: it may begin with zeros.
    let begins = matches!(
        *kind,
        kind::BIND | kind::ALTER | kind::BIND_ACK | kind::BIND_NAK
    );
    let plain = flags & 0x7c == 0 && [a, b, c] == [0; 3] && length >= 24;
    match usize::from(length) >= HEADER && (begins || plain) {
        true => Look::Yes,
        false => Look::No,
    }
}

/// A call that waits for its answer, or for more of one of its sides.
struct Call {
    id: u32,
    transaction: u64,
}

struct Stream {
    wanted: Wanted,
    /// A message of each direction that is not whole.
    carry: [Vec<u8>; 2],
    contexts: Contexts,
    /// The oldest first.
    calls: VecDeque<Call>,
}

impl Stream {
    fn new(wanted: &Wanted) -> Stream {
        Stream {
            wanted: *wanted,
            carry: [Vec::new(), Vec::new()],
            contexts: Contexts::default(),
            calls: VecDeque::new(),
        }
    }

    /// Takes the message at the front of these bytes, and returns its length; 0: more are needed.
    fn take(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) -> usize {
        if bytes.len() < HEADER {
            return 0;
        }
        let Some(pdu) = Pdu::read(bytes) else {
            out.failed = true;
            return 0;
        };
        if bytes.len() < pdu.length {
            return 0;
        }
        match d {
            ToServer => self.ask(&pdu, bytes, time, out),
            ToClient => self.answer(&pdu, bytes, time, out),
        }
        pdu.length
    }

    /// The call of a message that goes on or answers: the oldest of its number.
    fn known<'a>(&self, id: u32, out: &'a mut Transactions) -> Option<&'a mut Transaction> {
        let call = self.calls.iter().find(|c| c.id == id)?;
        out.find(call.transaction)
    }

    fn begin<'a>(
        &mut self,
        pdu: &Pdu<'_>,
        time: u64,
        out: &'a mut Transactions,
    ) -> &'a mut Transaction {
        if self.calls.len() >= MOST_CALLS
            && let Some(oldest) = self.calls.pop_front()
            && let Some(t) = out.find(oldest.transaction)
        {
            t.finish();
        }
        let t = out.begin(&KIND, time);
        self.calls.push_back(Call {
            id: pdu.call,
            transaction: t.id,
        });
        if self.wanted.records {
            t.record.insert("call_id".into(), pdu.call.into());
            t.record
                .insert("rpc_version".into(), format!("5.{}", pdu.minor).into());
            t.record.insert("request".into(), "REQUEST_LOST".into());
            t.record.insert("response".into(), "UNREPLIED".into());
        }
        t
    }

    fn ask(&mut self, pdu: &Pdu<'_>, bytes: &[u8], time: u64, out: &mut Transactions) {
        let w = self.wanted;
        match pdu.kind {
            kind::REQUEST => {
                // A fragment of a call whose beginning was lost begins it.
                let goes_on = !pdu.is_first() && self.known(pdu.call, out).is_some();
                if !goes_on {
                    let contexts = std::mem::take(&mut self.contexts);
                    contexts.note(pdu, self.begin(pdu, time, out));
                    self.contexts = contexts;
                }
                let Some(at) = self.calls.iter().rposition(|c| c.id == pdu.call) else {
                    return;
                };
                let id = self.calls.get(at).map_or(0, |c| c.transaction);
                let Some(t) = out.find(id) else { return };
                frames(t, ToServer, (pdu, bytes), &w);
                let (stub, size) = pdu.stub();
                add_stub(t, ToServer, (stub, pdu.little), &w);
                if w.records {
                    t.record.insert("request".into(), "REQUEST".into());
                    show_stub(&mut t.record, "req", size);
                    if let Some(req) = t.record.get_mut("req").and_then(|r| r.as_object_mut()) {
                        req.insert("opnum".into(), pdu.operation().into());
                    }
                }
                if pdu.is_last() {
                    t.finish_side(ToServer);
                }
            }
            kind::BIND | kind::ALTER => {
                let bind = self.contexts.offer(pdu);
                let shown = match w.records {
                    true => self.contexts.show(bind, false),
                    false => Vec::new(),
                };
                let t = self.begin(pdu, time, out);
                frames(t, ToServer, (pdu, bytes), &w);
                if w.records {
                    t.record
                        .insert("request".into(), kind_name(pdu.kind).into());
                    t.record.insert("interfaces".into(), shown.into());
                }
                t.finish_side(ToServer);
            }
            // Cancellations and the third leg of authentication are no calls.
            _ => {}
        }
    }

    fn answer(&mut self, pdu: &Pdu<'_>, bytes: &[u8], time: u64, out: &mut Transactions) {
        let w = self.wanted;
        if !matches!(
            pdu.kind,
            kind::RESPONSE | kind::FAULT | kind::BIND_ACK | kind::BIND_NAK | kind::ALTER_ANSWER
        ) {
            return;
        }
        let acknowledges = matches!(pdu.kind, kind::BIND_ACK | kind::ALTER_ANSWER);
        let bind = acknowledges.then(|| self.contexts.answer(pdu)).flatten();
        if self.known(pdu.call, out).is_none() {
            self.begin(pdu, time, out);
        }
        let shown = match bind {
            Some(bind) if w.records => self.contexts.show(bind, false),
            _ => Vec::new(),
        };
        let Some(t) = self.known(pdu.call, out) else {
            return;
        };
        frames(t, ToClient, (pdu, bytes), &w);
        if w.records {
            t.record
                .insert("response".into(), kind_name(pdu.kind).into());
            if !shown.is_empty() {
                t.record.insert("interfaces".into(), shown.into());
            }
        }
        if pdu.kind == kind::RESPONSE {
            let (stub, size) = pdu.stub();
            add_stub(t, ToClient, (stub, pdu.little), &w);
            if w.records {
                show_stub(&mut t.record, "res", size);
            }
            if !pdu.is_last() {
                return;
            }
        }
        // Who answers has read what was asked.
        t.finish();
        if let Some(at) = self.calls.iter().position(|c| c.id == pdu.call) {
            self.calls.remove(at);
        }
    }
}

/// A message as sent, for rules.
fn frames(t: &mut Transaction, d: Direction, (pdu, bytes): (&Pdu<'_>, &[u8]), w: &Wanted) {
    let whole = bytes.get(..pdu.length).unwrap_or_default();
    let (head, data) = whole.split_at_checked(HEADER).unwrap_or((whole, &[]));
    for (buffer, bytes) in [
        (Buffer::FrameDcerpcPdu, whole),
        (Buffer::FrameDcerpcHeader, head),
        (Buffer::FrameDcerpcData, data),
    ] {
        if w.buffers.has(buffer) && t.memory() + bytes.len() <= MOST_FRAMES {
            t.frame((buffer, d), bytes, None);
        }
    }
}

impl Parser for Stream {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut carry = std::mem::take(d.of_mut(&mut self.carry));
        let mut rest = bytes;
        if !carry.is_empty() {
            carry.extend_from_slice(bytes);
            rest = &carry;
        }
        while !out.failed {
            match self.take(d, rest, time, out) {
                0 => break,
                taken => rest = rest.get(taken..).unwrap_or_default(),
            }
        }
        *d.of_mut(&mut self.carry) = if carry.is_empty() {
            rest.to_vec()
        } else {
            let taken = carry.len() - rest.len();
            carry.drain(..taken);
            carry
        };
    }

    fn gap(&mut self, d: Direction, _: u64, out: &mut Transactions) {
        // Where the next message begins is not known; what the other end says goes on being read.
        d.of_mut(&mut self.carry).clear();
        for call in self.calls.drain(..) {
            if let Some(t) = out.find(call.transaction) {
                t.finish();
            }
        }
        out.failed = true;
    }

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
        let carry = self.carry.iter().map(Vec::capacity).sum::<usize>();
        let calls = self.calls.capacity() * size_of::<Call>();
        size_of::<Stream>() + carry + calls + self.contexts.memory()
    }
}
