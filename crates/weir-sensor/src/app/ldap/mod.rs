//! LDAP (RFC 4511) over TCP and UDP: a request and all its responses are one transaction, by the number of the message. What a security layer of SASL wraps is not read.

mod message;
mod names;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde_json::{Value, json};

use self::message::{Message, is_operation};
use self::names::{OPERATIONS, RESULTS};
use super::ber::{element, head};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Carrier, Fact, Parser, Protocol, UNTOLD, Written};
use super::transaction::{Change, Kind, Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Bytes of a message that is read; a longer one is passed over.
const MOST_MESSAGE: usize = 256 * 1024;
/// Requests that may wait for responses.
const MOST_PENDING: usize = 128;
/// Responses of a request that records show, and that rules ask for by their place; of more, the last one takes the place of the one before.
const MOST_RESPONSES: usize = 128;
/// Bytes of names of one transaction that rules inspect.
const MOST_NAMES: usize = 64 * 1024;
/// The extension that begins TLS.
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

pub(super) const LDAP: Protocol = Protocol {
    app: App::Ldap,
    carrier: Carrier::Both,
    stream: Some(StreamProbe {
        certainty: Certainty::Form,
        look,
        claims: |first| first.at(0) == Some(0x30),
    }),
    datagram: Some(|first| {
        let message = element(first.bytes).filter(|(tag, ..)| *tag == 0x30);
        let message = message.and_then(|(_, content, _)| Message::read(content));
        message.is_some_and(|m| m.is_response() == first.is_server())
    }),
    parser: Some(|start| Box::new(Ldap::new(start.asked, start.stream))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: "ldap.request.operation",
            written: Written::Number(OPERATIONS),
            request: true,
            what: "operation of a request of LDAP",
            ..Fact::NONE
        },
        Fact {
            keyword: OPERATION,
            written: Written::Placed(OPERATIONS),
            answer: true,
            what: "operation of a response of LDAP",
            ..Fact::NONE
        },
        Fact {
            keyword: RESULT,
            written: Written::Placed(RESULTS),
            answer: true,
            what: "result of a response of LDAP",
            ..Fact::NONE
        },
        Fact {
            keyword: COUNT,
            answer: true,
            what: "how many responses of LDAP a request has",
            ..Fact::NONE
        },
    ],
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Ldap,
    events: &["invalid_data", "request_not_found"],
    ..Kind::EXCHANGE
};

const OPERATION: &str = "ldap.responses.operation";
const RESULT: &str = "ldap.responses.result_code";
const COUNT: &str = "ldap.responses.count";

/// A sequence, the number of the message, what is asked or answered.
fn look(first: &First<'_>) -> Look {
    if first.at(0) != Some(0x30) {
        return Look::No;
    }
    let at = match first.at(1) {
        Some(n @ 0x81..=0x84) => 2 + usize::from(n - 0x80),
        Some(n) if n < 0x80 => 2,
        Some(_) => return Look::No,
        None => return Look::Maybe,
    };
    let length = match (first.at(at), first.at(at + 1)) {
        (Some(2), Some(n @ 1..=4)) => usize::from(n),
        (Some(_), Some(_)) => return Look::No,
        _ => return Look::Maybe,
    };
    match first.at(at + 2 + length) {
        Some(what) if is_operation(what, first.is_server()) => Look::Yes,
        Some(_) => Look::No,
        None => Look::Maybe,
    }
}

/// A request without its last response.
struct Pending {
    id: u64,
    transaction: u64,
    starts_tls: bool,
}

struct Ldap {
    wanted: Wanted,
    stream: bool,
    halves: [Half; 2],
    /// The oldest first.
    pending: VecDeque<Pending>,
}

#[derive(Default)]
struct Half {
    /// A message that is not whole.
    carry: Vec<u8>,
    /// Bytes of one that is too long, which will still come.
    skip: usize,
}

impl Ldap {
    fn new(wanted: &Wanted, stream: bool) -> Ldap {
        Ldap {
            wanted: *wanted,
            stream,
            halves: [Half::default(), Half::default()],
            pending: VecDeque::new(),
        }
    }

    /// Takes the message at the front of these bytes, and returns its length; 0: more are needed.
    fn take(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) -> usize {
        let half = d.of_mut(&mut self.halves);
        if half.skip > 0 {
            let count = half.skip.min(bytes.len());
            half.skip -= count;
            return count;
        }
        let Some((tag, before, length)) = head(bytes) else {
            // Six bytes tell the length, if it has a form that is possible here.
            if bytes.first().is_some_and(|tag| *tag != 0x30) || bytes.len() >= 6 {
                self.give_up(time, out);
            }
            return 0;
        };
        if tag != 0x30 {
            self.give_up(time, out);
            return 0;
        }
        let all = before.saturating_add(length);
        if all > MOST_MESSAGE {
            half.skip = all - before;
            return before;
        }
        let Some(content) = bytes.get(before..all) else {
            return 0;
        };
        let read = Message::read(content);
        let id = match &read {
            Some(message) if message.is_response() => self.answer(d, message, time, out),
            Some(message) => Some(self.ask(d, message, time, out)),
            None => {
                self.give_up(time, out);
                None
            }
        };
        if self.wanted.buffers.has(Buffer::FrameLdapPdu)
            && let Some(t) = id.and_then(|id| out.find(id))
            && t.memory() + all <= MOST_NAMES
        {
            let whole = bytes.get(..all).unwrap_or(bytes);
            t.frame((Buffer::FrameLdapPdu, d), whole, Some(bytes.len()));
        }
        all
    }

    /// What comes is no LDAP: a security layer has begun, or somebody lies.
    fn give_up(&mut self, time: u64, out: &mut Transactions) {
        if self.stream {
            self.end(ToClient, out);
            out.failed = true;
        } else {
            let t = out.begin(&KIND, time);
            t.event("invalid_data");
            t.finish();
        }
    }

    fn ask(&mut self, d: Direction, m: &Message<'_>, time: u64, out: &mut Transactions) -> u64 {
        let said = m.said(self.wanted.records);
        let t = out.begin(&KIND, time);
        let id = t.id;
        t.facts.push(("ldap.request.operation", m.operation.into()));
        let names = [
            (Buffer::LdapRequestName, said.name.as_slice()),
            (Buffer::LdapRequestAttribute, &said.attributes),
        ];
        push(t, d, &names, &self.wanted);
        if self.wanted.records {
            let mut request = json!({"message_id": m.id, "operation": m.name()});
            show(&mut request, m, said.record);
            t.record.insert("request".into(), request);
        }
        // Nobody answers these.
        if matches!(m.operation, 2 | 16) {
            t.finish();
            return id;
        }
        t.finish_side(d);
        let starts_tls = m.operation == 23 && said.extension == Some(START_TLS);
        self.wait(m.id, id, starts_tls, out);
        id
    }

    fn wait(&mut self, id: u64, transaction: u64, starts_tls: bool, out: &mut Transactions) {
        if self.pending.len() >= MOST_PENDING
            && let Some(oldest) = self.pending.pop_front()
            && let Some(t) = out.find(oldest.transaction)
        {
            t.finish();
        }
        self.pending.push_back(Pending {
            id,
            transaction,
            starts_tls,
        });
    }

    fn answer(
        &mut self,
        d: Direction,
        m: &Message<'_>,
        time: u64,
        out: &mut Transactions,
    ) -> Option<u64> {
        let w = self.wanted;
        if !self.pending.iter().any(|p| p.id == m.id) {
            let t = out.begin(&KIND, time);
            // Notices of the server have this number, and no request.
            if m.id != 0 {
                t.event("request_not_found");
            }
            let id = t.id;
            self.wait(m.id, id, false, out);
        }
        let at = self.pending.iter().position(|p| p.id == m.id)?;
        let pending = self.pending.get(at)?;
        let id = pending.transaction;
        let starts_tls = pending.starts_tls;
        let Some(t) = out.find(pending.transaction) else {
            self.pending.remove(at);
            return None;
        };
        let said = m.said(w.records);
        let message = said.result.map(|(_, message)| message);
        let names = [
            (Buffer::LdapResponseName, said.name.as_slice()),
            (Buffer::LdapResponseAttribute, &said.attributes),
            (Buffer::LdapResponseMessage, message.as_slice()),
        ];
        push(t, d, &names, &w);
        let code = said.result.map_or(UNTOLD, |(code, _)| code);
        note(t, OPERATION, m.operation.into());
        note(t, RESULT, code);
        match t.facts.iter_mut().find(|(name, _)| *name == COUNT) {
            Some((_, count)) => *count += 1,
            None => t.facts.push((COUNT, 1)),
        }
        if w.records {
            let mut response = json!({"operation": m.name()});
            if !t.record.contains_key("request")
                && let Some(r) = response.as_object_mut()
            {
                r.insert("message_id".into(), m.id.into());
            }
            show(&mut response, m, said.record);
            let all = t.record.entry("responses").or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                if all.len() >= MOST_RESPONSES {
                    all.pop();
                }
                all.push(response);
            }
        }
        if m.goes_on() {
            return Some(id);
        }
        t.finish();
        self.pending.remove(at);
        if starts_tls && code == 0 && self.stream {
            out.change = Some(Change {
                to: Some(App::Tls),
                ..Change::default()
            });
        }
        Some(id)
    }
}

/// What a message says, under the name of its operation.
fn show(to: &mut Value, m: &Message<'_>, record: serde_json::Map<String, Value>) {
    if let Some(to) = to.as_object_mut().filter(|_| !record.is_empty()) {
        to.insert(m.name().to_owned(), record.into());
    }
}

/// A number of the next response.
fn note(t: &mut Transaction, fact: &'static str, value: u64) {
    if t.facts(fact).count() < MOST_RESPONSES {
        t.facts.push((fact, value));
    } else if let Some((_, last)) = t.facts.iter_mut().rfind(|(name, _)| *name == fact) {
        *last = value;
    }
}

/// Names for rules, as far as they ask and there is room.
fn push(t: &mut Transaction, d: Direction, names: &[(Buffer, &[&[u8]])], w: &Wanted) {
    for (buffer, names) in names {
        for name in *names {
            if w.buffers.has(*buffer) && t.memory() + name.len() <= MOST_NAMES {
                t.push(*buffer, d, name);
            }
        }
    }
}

impl Parser for Ldap {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut carry = std::mem::take(&mut d.of_mut(&mut self.halves).carry);
        let mut rest = bytes;
        if !carry.is_empty() {
            carry.extend_from_slice(bytes);
            rest = &carry;
        }
        while !rest.is_empty() && !out.failed && out.change.is_none() {
            match self.take(d, rest, time, out) {
                0 => break,
                taken => rest = rest.get(taken..).unwrap_or_default(),
            }
        }
        if let Some(change) = &mut out.change {
            d.of_mut(&mut change.rest).extend_from_slice(rest);
            return;
        }
        if !self.stream {
            return;
        }
        d.of_mut(&mut self.halves).carry = if carry.is_empty() {
            rest.to_vec()
        } else {
            let taken = carry.len() - rest.len();
            carry.drain(..taken);
            carry
        };
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        let half = d.of_mut(&mut self.halves);
        if half.carry.is_empty() && half.skip as u64 >= length {
            half.skip -= length as usize;
            return;
        }
        // Where the next message begins is not known.
        self.end(ToClient, out);
        out.failed = true;
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToServer {
            return;
        }
        for pending in self.pending.drain(..) {
            if let Some(t) = out.find(pending.transaction) {
                t.finish();
            }
        }
    }

    fn memory(&self) -> usize {
        let carry = self.halves.iter().map(|h| h.carry.capacity());
        let pending = self.pending.capacity() * size_of::<Pending>();
        size_of::<Ldap>() + carry.sum::<usize>() + pending
    }
}
