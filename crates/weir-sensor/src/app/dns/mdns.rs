//! Multicast DNS (RFC 6762): messages of the form of DNS that both ends send to all. Each is a transaction.

use serde_json::{Map, Value};

use super::is_datagram;
use super::log::type_name;
use super::name::{name, skip_name};
use super::numbers::{MOST_LOGGED, MOST_RECORDS};
use crate::app::bytes::be16;
use crate::app::names::App;
use crate::app::protocol::{Carrier, Log, Parser, Protocol};
use crate::app::text::{string, text};
use crate::app::transaction::{Kind, Transaction, Transactions, Turns};
use crate::app::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

pub(in crate::app) const MDNS: Protocol = Protocol {
    app: App::Mdns,
    carrier: Carrier::Udp,
    datagram: Some(|first| {
        first.has_port(5353) && (is_datagram(first, true) || is_answer(first.bytes))
    }),
    parser: Some(|start| {
        Box::new(Mdns {
            wanted: **start.asked,
        })
    }),
    kind: Some(&KIND),
    log: Log {
        direction: |_, packet| packet,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Mdns,
    turns: Turns::Message,
    events: &[
        "infinite_loop",
        "invalid_additionals",
        "invalid_authorities",
        "invalid_opcode",
        "malformed_data",
        "name_too_long",
        "too_many_labels",
        "z_flag_set",
    ],
    ..Kind::EXCHANGE
};

/// Whoever has something to tell says it to all, unasked and without a question.
fn is_answer(b: &[u8]) -> bool {
    let plain = be16(b, 2).is_some_and(|flags| flags & 0xf80f == 0x8000);
    let answers = be16(b, 6).is_some_and(|n| (1..256).contains(&n));
    plain && answers && be16(b, 4) == Some(0) && skip_name(b, 12).is_some()
}

/// The parts of a message behind its head: their names in records, and their buffer.
const SECTIONS: [(&str, Buffer); 4] = [
    ("queries", Buffer::MdnsQuery),
    ("answers", Buffer::MdnsAnswer),
    ("authorities", Buffer::MdnsAuthority),
    ("additionals", Buffer::MdnsAdditional),
];

struct Mdns {
    wanted: Wanted,
}

/// A name, which may be cut.
fn read(b: &[u8], at: usize, t: &mut Transaction) -> Option<(Vec<u8>, bool)> {
    let mut text = Vec::new();
    let odd = name(b, at, &mut text)?;
    odd.tell(t);
    Some((text, odd.cut))
}

impl Mdns {
    /// Fills a transaction; `None` if the message breaks off.
    fn message(&self, b: &[u8], d: Direction, t: &mut Transaction) -> Option<()> {
        let (id, flags) = (be16(b, 0)?, be16(b, 2)?);
        let (opcode, rcode) = (flags >> 11 & 15, flags & 15);
        let response = flags & 0x8000 != 0;
        if flags & 0x40 != 0 {
            t.event("z_flag_set");
        }
        if opcode > 6 {
            t.event("invalid_opcode");
        }
        let r = &mut t.record;
        let kind = if response { "response" } else { "request" };
        r.insert("type".into(), kind.into());
        r.insert("id".into(), id.into());
        let names = [
            ("aa", 0x400),
            ("tc", 0x200),
            ("rd", 0x100),
            ("ra", 0x80),
            ("z", 0x40),
        ];
        let set = names.iter().filter(|(_, bit)| flags & bit != 0);
        let set: Vec<Value> = set.map(|(name, _)| (*name).into()).collect();
        if !set.is_empty() {
            r.insert("flags".into(), set.into());
        }
        r.insert("opcode".into(), opcode.into());
        r.insert("rcode".into(), rcode.into());
        let mut at = 12;
        let mut left = MOST_RECORDS;
        for (n, (key, buffer)) in SECTIONS.into_iter().enumerate() {
            let count = be16(b, 4 + 2 * n)?;
            let mut shown = Vec::new();
            let mut broken = false;
            for _ in 0..count {
                left = left.checked_sub(1)?;
                match self.record(b, at, (n == 0, response), buffer, d, t) {
                    Some((next, one)) => {
                        at = next;
                        if shown.len() < MOST_LOGGED {
                            shown.push(one.into());
                        }
                    }
                    None => {
                        broken = true;
                        break;
                    }
                }
            }
            if !shown.is_empty() {
                t.record.insert(key.into(), Value::Array(shown));
            }
            match (broken, n) {
                (false, _) => {}
                (true, 2) => {
                    t.event("invalid_authorities");
                    return Some(());
                }
                (true, 3) => {
                    t.event("invalid_additionals");
                    return Some(());
                }
                (true, _) => return None,
            }
        }
        Some(())
    }

    /// A question or a record; returns where the next begins, and what the log says of it.
    fn record(
        &self,
        b: &[u8],
        at: usize,
        (question, response): (bool, bool),
        buffer: Buffer,
        d: Direction,
        t: &mut Transaction,
    ) -> Option<(usize, Map<String, Value>)> {
        let end = skip_name(b, at)?;
        let kind = be16(b, end)?;
        let (owner, cut) = read(b, at, t)?;
        let has = |buffer| self.wanted.buffers.has(buffer);
        if has(buffer) {
            t.push(buffer, d, &owner);
        }
        if response && has(Buffer::MdnsResponse) {
            t.push(Buffer::MdnsResponse, d, &owner);
        }
        let mut said = Map::new();
        said.insert("rrname".into(), text(&owner));
        if cut {
            said.insert("rrname_truncated".into(), true.into());
        }
        if question {
            be16(b, end + 2)?;
            let kind = type_name(kind).to_ascii_lowercase();
            said.insert("rrtype".into(), kind.into());
            return Some((end + 4, said));
        }
        let length = usize::from(be16(b, end + 8)?);
        let start = end + 10;
        let data = b.get(start..start + length)?;
        // What a record names, where it has the form of a name.
        let inner = match kind {
            2 | 5 | 6 | 12 => Some(start),
            15 => Some(start + 2),
            _ => None,
        };
        if let Some(inner) = inner.filter(|_| length > 0) {
            let (named, _) = read(b, inner, t)?;
            if response && has(Buffer::MdnsResponse) {
                t.push(Buffer::MdnsResponse, d, &named);
            }
            // The schema of records has no place for it in authorities.
            if kind == 12 && buffer != Buffer::MdnsAuthority {
                said.insert("ptr".into(), text(&named));
            }
        }
        if kind == 16 && buffer != Buffer::MdnsAuthority {
            let mut all = Vec::new();
            let mut rest = data;
            while let Some((&n, tail)) = rest.split_first() {
                let (one, tail) = tail.split_at_checked(usize::from(n))?;
                if all.len() < MOST_LOGGED {
                    all.push(string(one).into());
                }
                rest = tail;
            }
            said.insert("txt".into(), Value::Array(all));
        }
        Some((start + length, said))
    }
}

impl Parser for Mdns {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let t = out.begin(&KIND, time);
        t.only(d);
        if self.message(bytes, d, t).is_none() {
            // Ends throw such a message away: nothing that it seems to say is told to rules or to the log.
            t.clear();
            t.event("malformed_data");
            t.logged = true;
        }
        t.finish();
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        size_of::<Mdns>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::wanted;
    use crate::packet::Direction::ToServer;

    fn read_all(messages: &[&[u8]]) -> Transactions {
        let mut out = Transactions::default();
        let mut parser = Mdns { wanted: *wanted() };
        for message in messages {
            parser.data(ToServer, message, 1, &mut out);
        }
        out
    }

    const ASKS: &[u8] = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x05_http\x04_tcp\x05local\0\0\x0c\0\x01";

    #[test]
    fn names_and_texts() {
        let answer = [
            &b"\0\0\x84\0\0\0\0\x02\0\0\0\x01"[..],
            b"\x05_http\x04_tcp\x05local\0\0\x0c\0\x01\0\0\0\x78\0\x06\x03box\xc0\x0c",
            b"\x03box\xc0\x0c\0\x10\x80\x01\0\0\0\x78\0\x07\x02a=\x03b=c",
            b"\x01h\xc0\x17\0\x01\x80\x01\0\0\0\x78\0\x04\x0a\0\0\x01",
        ]
        .concat();
        let out = read_all(&[ASKS, &answer]);
        let [asks, tells] = [&out.live[0], &out.live[1]];
        assert_eq!(asks.record["queries"][0]["rrtype"], "ptr");
        let names: Vec<_> = asks.get(Buffer::MdnsQuery, ToServer).collect();
        assert_eq!(names, [b"_http._tcp.local"]);
        let r = &tells.record;
        assert_eq!(r["answers"][0]["ptr"], "box._http._tcp.local");
        assert_eq!(r["answers"][1]["txt"], serde_json::json!(["a=", "b=c"]));
        assert_eq!(r["additionals"][0]["rrname"], "h.local");
        let names: Vec<_> = tells.get(Buffer::MdnsResponse, ToServer).collect();
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn what_breaks_off() {
        let cut = &ASKS[..ASKS.len() - 3];
        let mut odd = ASKS.to_vec();
        (odd[2], odd[3], odd[11]) = (0x78, 0x40, 1);
        let out = read_all(&[cut, &odd]);
        assert_eq!(out.live[0].events, ["malformed_data"]);
        assert!(out.live[0].record.is_empty());
        let events = ["z_flag_set", "invalid_opcode", "invalid_additionals"];
        assert_eq!(out.live[1].events, events);
    }
}
