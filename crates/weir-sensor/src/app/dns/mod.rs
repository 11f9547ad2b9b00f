//! DNS over UDP and TCP: each message is a transaction of its own. Names of all questions and records; what a record says, for the log.

mod log;
mod mdns;
mod name;
mod numbers;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use log::older;
pub(super) use mdns::MDNS;

use serde_json::{Map, Value};

use self::log::{rcode_name, type_name};
use self::name::{name, skip_name};
use self::numbers::{MOST_LOGGED, MOST_RECORDS};
use self::record::{Message, put_name};
use super::bytes::be16;
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Carrier, Fact, Log, Parser, Protocol, Written};
use super::transaction::{Kind, Transaction, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::ToClient;

pub(super) const DNS: Protocol = Protocol {
    app: App::Dns,
    carrier: Carrier::Both,
    older_events: &[
        ("not_a_request", "not_request"),
        ("not_a_response", "not_response"),
    ],
    stream: Some(StreamProbe::new(Certainty::Chance, stream)),
    // Name services of the link look like DNS and are not what rules for DNS are about.
    datagram: Some(|first| {
        let other = [5353, 5355, 137].iter().any(|port| first.has_port(*port));
        !other && is_datagram(first, first.has_port(53))
    }),
    parser: Some(|start| {
        Box::new(match start.stream {
            true => Dns::of_stream(start.asked),
            false => Dns::new(start.asked),
        })
    }),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: "dns.opcode",
            aliases: &["dns_opcode"],
            written: Written::Number(numbers::OPCODES),
            what: "operation of DNS",
            ..Fact::NONE
        },
        Fact {
            keyword: "dns.rcode",
            written: Written::Number(numbers::RCODES),
            what: "result of DNS",
            ..Fact::NONE
        },
        Fact {
            keyword: "dns.rrtype",
            written: Written::Number(numbers::RRTYPES),
            what: "type of a record of DNS",
            ..Fact::NONE
        },
    ],
    log: Log {
        numbered: false,
        direction: |t, _| match t.record.get("type").is_some_and(|t| t == "response") {
            true => Direction::ToClient,
            false => Direction::ToServer,
        },
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Dns,
    turns: Turns::Message,
    events: &[
        "infinite_loop",
        "invalid_additionals",
        "invalid_authorities",
        "invalid_opcode",
        "malformed_data",
        "name_too_long",
        "not_request",
        "not_response",
        "too_many_labels",
        "too_many_records",
        "z_flag_set",
    ],
    ..Kind::EXCHANGE
};

/// A length, then a message. The whole question must be there and make sense.
fn stream(first: &First<'_>) -> Look {
    let own = first.ports.server == 53;
    let Some(length) = be16(first.bytes, 0) else {
        return Look::Maybe;
    };
    if length < 12 || length > 8 * 1024 && !own {
        return Look::No;
    }
    let message = first.bytes.get(2..).unwrap_or_default();
    match looks_like(message, usize::from(length), first.is_server(), own) {
        Some(true) => Look::Yes,
        Some(false) => Look::No,
        None => Look::Maybe,
    }
}

fn is_datagram(first: &First<'_>, own_port: bool) -> bool {
    let b = first.bytes;
    let response = b.get(2).is_some_and(|flags| flags & 0x80 != 0);
    looks_like(b, b.len(), response, own_port) == Some(true)
}

/// Whether bytes begin like a message of `total` bytes; `None`: more are needed. On DNS's own port a message only needs a plausible header.
fn looks_like(b: &[u8], total: usize, response: bool, own_port: bool) -> Option<bool> {
    if total < 12 {
        return Some(false);
    }
    let count = |at: usize| be16(b, at);
    let (flags, questions, answers) = (count(2)?, count(4)?, count(6)?);
    let (authorities, additionals) = (count(8)?, count(10)?);
    let opcode = flags >> 11 & 15;
    if (flags & 0x8000 != 0) != response || (flags & 0x40 != 0 || opcode > 6) && !own_port {
        return Some(false);
    }
    if own_port {
        // What is odd about a message there must at least have a name to ask for.
        if opcode <= 6 && questions < 64 || questions == 0 {
            return Some(opcode <= 6 && (questions > 0 || response));
        }
    } else if questions != 1 || (!response && answers != 0 && opcode == 0) || additionals > 256 {
        return Some(false);
    }
    let mut at = 12;
    let mut labels = 0;
    loop {
        let Some(&length) = b.get(at) else {
            return if at >= total || at > 300 {
                Some(false)
            } else {
                None
            };
        };
        at += 1;
        if length == 0 {
            break;
        }
        if length > 63 || at > 12 + 255 {
            return Some(false);
        }
        labels += 1;
        at += usize::from(length);
    }
    if at + 4 > total {
        return Some(false);
    }
    let &[type_high, type_low, class_high, class_low] = b.get(at..)?.first_chunk()?;
    let rest = answers | authorities | additionals;
    let good = class_high == 0
        && matches!(class_low, 1 | 3 | 255)
        && (type_high <= 1 || type_high == 0x80)
        && (labels > 0 || type_low == 2 || type_low == 6)
        // Without records the question is all there is.
        && (rest != 0 || questions > 1 || at + 4 == total);
    Some(good)
}

pub(super) struct Dns {
    wanted: Wanted,
    carry: [Vec<u8>; 2],
    /// Set by the first call that gives less than a whole message: this is a stream. Datagrams come whole.
    stream: Option<bool>,
    /// Bytes of a stream were lost: where the next message begins is looked for.
    lost: [bool; 2],
}

impl Dns {
    pub(super) fn new(wanted: &Wanted) -> Dns {
        Dns {
            wanted: *wanted,
            carry: [Vec::new(), Vec::new()],
            stream: None,
            lost: [false; 2],
        }
    }

    /// As a parser of streams, each message after its length.
    pub(super) fn of_stream(wanted: &Wanted) -> Dns {
        Dns {
            stream: Some(true),
            ..Dns::new(wanted)
        }
    }

    /// `behind`: bytes from the message's first one to the end of what was given.
    fn message(
        &self,
        direction: Direction,
        (b, behind): (&[u8], usize),
        time: u64,
        out: &mut Transactions,
    ) {
        let t = out.begin(&KIND, time);
        t.only(direction);
        if parse(b, direction, &self.wanted, t).is_none() {
            // Ends throw such a message away: nothing that it seems to say is told to rules or to the log.
            t.clear();
            t.event("malformed_data");
        }
        if self.wanted.buffers.has(Buffer::FrameDnsPdu) {
            t.frame((Buffer::FrameDnsPdu, direction), b, Some(behind));
        }
        t.finish();
    }
}

impl Parser for Dns {
    fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if self.stream != Some(true) {
            self.message(direction, (bytes, bytes.len()), time, out);
            return;
        }
        let mut carry = std::mem::take(direction.of_mut(&mut self.carry));
        let held = !carry.is_empty();
        let mut rest: &[u8] = if carry.is_empty() {
            bytes
        } else {
            carry.extend_from_slice(bytes);
            &carry
        };
        // Behind a loss: from byte to byte, until a message begins, so that it does not matter where segments do.
        let lost = direction.of_mut(&mut self.lost);
        while *lost && let [a, b, message @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*a, *b]));
            match looks_like(message, length, direction == ToClient, false) {
                Some(true) => *lost = false,
                Some(false) => rest = rest.get(1..).unwrap_or_default(),
                None => break,
            }
        }
        let lost = *lost;
        while !lost && let [a, b, after @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*a, *b]));
            let Some((message, next)) = after.split_at_checked(length) else {
                break;
            };
            // Nothing in front of a message is no message.
            if length > 0 {
                self.message(direction, (message, after.len()), time, out);
            }
            rest = next;
        }
        let left = rest.len();
        *direction.of_mut(&mut self.carry) = if held {
            carry.drain(..carry.len() - left);
            carry
        } else {
            rest.to_vec()
        };
    }

    fn gap(&mut self, direction: Direction, _: u64, _: &mut Transactions) {
        *direction.of_mut(&mut self.carry) = Vec::new();
        *direction.of_mut(&mut self.lost) = true;
    }

    fn end(&mut self, direction: Direction, _: &mut Transactions) {
        *direction.of_mut(&mut self.carry) = Vec::new();
    }

    fn is_between(&self, direction: Direction) -> bool {
        self.stream == Some(true) && direction.of(&self.carry).is_empty()
    }

    fn memory(&self) -> usize {
        size_of::<Dns>() + self.carry[0].capacity() + self.carry[1].capacity()
    }
}

/// Whether bytes are a query as resolvers send them.
pub(super) fn is_query(b: &[u8]) -> bool {
    looks_like(b, b.len(), false, false) == Some(true)
}

/// Fills a transaction of what carries a message of DNS; `false`: the bytes are none.
pub(super) fn carried(b: &[u8], d: Direction, w: &Wanted, into: &mut Transaction) -> bool {
    let mut own = Transactions::default();
    let t = own.begin(&KIND, into.time);
    t.id = into.id;
    if parse(b, d, w, t).is_none() {
        return false;
    }
    into.absorb(t);
    if w.records {
        // Of the answer, which has the question as well.
        let record = std::mem::take(&mut t.record);
        into.beside.insert("dns".into(), Value::Object(record));
    }
    true
}

/// Fills a transaction; `None` if the message breaks off, or a name in it cannot be read.
fn parse(b: &[u8], d: Direction, w: &Wanted, t: &mut Transaction) -> Option<()> {
    let id = be16(b, 0)?;
    let flags = be16(b, 2)?;
    let counts = [be16(b, 4)?, be16(b, 6)?, be16(b, 8)?, be16(b, 10)?];
    let response = flags & 0x8000 != 0;
    let opcode = flags >> 11 & 15;
    let rcode = flags & 15;
    t.facts.push(("dns.opcode", u64::from(opcode)));
    t.facts.push(("dns.rcode", u64::from(rcode)));
    if response != (d == Direction::ToClient) {
        t.event(if response {
            "not_request"
        } else {
            "not_response"
        });
    }
    if flags & 0x40 != 0 {
        t.event("z_flag_set");
    }
    if opcode > 6 {
        t.event("invalid_opcode");
    }
    if w.records {
        let r = &mut t.record;
        r.insert("version".into(), 3.into());
        let kind = if response { "response" } else { "request" };
        r.insert("type".into(), kind.into());
        r.insert("tx_id".into(), t.id.into());
        r.insert("id".into(), id.into());
        r.insert("flags".into(), format!("{flags:x}").into());
        for (name, bit) in [
            ("qr", 0x8000),
            ("aa", 0x400),
            ("tc", 0x200),
            ("rd", 0x100),
            ("ra", 0x80),
            ("z", 0x40),
        ] {
            if flags & bit != 0 {
                r.insert(name.into(), true.into());
            }
        }
        r.insert("opcode".into(), opcode.into());
        r.insert("rcode".into(), rcode_name(rcode).into());
    }
    let mut at = 12;
    let mut questions = Vec::new();
    let mut text = Vec::new();
    for _ in 0..usize::from(counts[0]).min(MOST_RECORDS) {
        let end = skip_name(b, at)?;
        let kind = be16(b, end)?;
        be16(b, end + 2)?;
        text.clear();
        let odd = name(b, at, &mut text)?;
        odd.tell(t);
        // Of an answer, the types of what it answers count.
        if !response {
            t.facts.push(("dns.rrtype", u64::from(kind)));
        }
        if w.buffers.has(Buffer::DnsQuery) && d == Direction::ToServer {
            t.push(Buffer::DnsQuery, d, &text);
        }
        if w.buffers.has(Buffer::DnsQueryName) {
            t.push(Buffer::DnsQueryName, d, &text);
        }
        if response && w.buffers.has(Buffer::DnsResponseName) {
            t.push(Buffer::DnsResponseName, ToClient, &text);
        }
        if w.records && questions.len() < MOST_LOGGED {
            let mut q = Map::new();
            put_name(&mut q, ["rrname", "rrname_truncated"], &text, odd);
            q.insert("rrtype".into(), type_name(kind).into());
            questions.push(Value::Object(q));
        }
        at = end + 4;
    }
    if !questions.is_empty() {
        t.record.insert("queries".into(), Value::Array(questions));
    }
    let message = Message::new((b, d), response, w, text);
    message.sections(at, counts[1..].iter().copied(), t)
}
