//! DNS over UDP and TCP: each message is a transaction of its own. Names of all questions and records; what a record says, for the log.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value};

use super::text::{hex, string};
use super::{App, Parser, Transaction, Transactions, Wanted};
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::ToClient;

/// The longest name that is written out.
const MOST_NAME: usize = 1025;
/// Labels and compression pointers followed in one name.
const MOST_STEPS: usize = 255;
/// Compression pointers of a name from which on it is a loop, if it has no end within its steps.
const LOOP: usize = 32;
/// Records of one message that are looked at: more than any message has room for with names of their own.
const MOST_RECORDS: usize = 8192;
/// Records of one section that are logged.
const MOST_LOGGED: usize = 1024;

/// Whether bytes begin like a message of `total` bytes; `None`: more are needed. On DNS's own port a message only needs a plausible header.
pub(super) fn looks_like(b: &[u8], total: usize, response: bool, own_port: bool) -> Option<bool> {
    if total < 12 {
        return Some(false);
    }
    if b.len() < 12 {
        return None;
    }
    let flags = u16::from_be_bytes([b[2], b[3]]);
    let count = |at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
    let (questions, answers) = (count(4), count(6));
    let opcode = flags >> 11 & 15;
    if (flags & 0x8000 != 0) != response || (flags & 0x40 != 0 || opcode > 6) && !own_port {
        return Some(false);
    }
    if own_port {
        // What is odd about a message there must at least have a name to ask for.
        if opcode <= 6 && questions < 64 || questions == 0 {
            return Some(opcode <= 6 && (questions > 0 || response));
        }
    } else if questions != 1 || (!response && answers != 0 && opcode == 0) || count(10) > 256 {
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
    let end = b.get(at..at + 4)?;
    let rest = answers | count(8) | count(10);
    let good = end[2] == 0
        && matches!(end[3], 1 | 3 | 255)
        && (end[0] <= 1 || end[0] == 0x80)
        && (labels > 0 || end[1] == 2 || end[1] == 6)
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

    fn message(&self, direction: Direction, b: &[u8], time: u64, out: &mut Transactions) {
        let t = out.begin(App::Dns, time);
        t.only(direction);
        if parse(b, direction, &self.wanted, t).is_none() {
            // Ends throw such a message away: nothing that it seems to say is told to rules or to the log.
            t.clear();
            t.event("malformed_data");
        }
        t.finish();
    }
}

impl Parser for Dns {
    fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if self.stream != Some(true) {
            self.message(direction, bytes, time, out);
            return;
        }
        let mut carry = std::mem::take(&mut self.carry[direction.index()]);
        let held = !carry.is_empty();
        let mut rest: &[u8] = if carry.is_empty() {
            bytes
        } else {
            carry.extend_from_slice(bytes);
            &carry
        };
        // Behind a loss: from byte to byte, until a message begins, so that it does not matter where segments do.
        let lost = &mut self.lost[direction.index()];
        while *lost && rest.len() >= 2 {
            let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            match looks_like(&rest[2..], length, direction == ToClient, false) {
                Some(true) => *lost = false,
                Some(false) => rest = &rest[1..],
                None => break,
            }
        }
        let lost = *lost;
        while !lost && rest.len() >= 2 {
            let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            let Some(message) = rest.get(2..2 + length) else {
                break;
            };
            // Nothing in front of a message is no message.
            if length > 0 {
                self.message(direction, message, time, out);
            }
            rest = &rest[2 + length..];
        }
        let left = rest.len();
        self.carry[direction.index()] = if held {
            carry.drain(..carry.len() - left);
            carry
        } else {
            rest.to_vec()
        };
    }

    fn gap(&mut self, direction: Direction, _: u64, _: &mut Transactions) {
        self.carry[direction.index()] = Vec::new();
        self.lost[direction.index()] = true;
    }

    fn end(&mut self, direction: Direction, _: &mut Transactions) {
        self.carry[direction.index()] = Vec::new();
    }

    fn is_between(&self, direction: Direction) -> bool {
        self.stream == Some(true) && self.carry[direction.index()].is_empty()
    }

    fn memory(&self) -> usize {
        size_of::<Dns>() + self.carry[0].capacity() + self.carry[1].capacity()
    }
}

fn be16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*b.get(at)?, *b.get(at + 1)?]))
}

fn be32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(be16(b, at)?) << 16 | u32::from(be16(b, at + 2)?))
}

/// Passes over a name.
fn skip_name(b: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = *b.get(at)?;
        match length {
            0 => return Some(at + 1),
            0xc0.. => return b.get(at + 1).map(|_| at + 2),
            1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

/// What is wrong with a name that can be read all the same.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Odd {
    /// It was cut.
    cut: bool,
    /// It has more labels and pointers than names have.
    endless: bool,
    looped: bool,
}

impl Odd {
    fn tell(self, t: &mut Transaction) {
        if self.looped {
            t.event("infinite_loop");
        }
        if self.endless {
            t.event("too_many_labels");
        }
        if self.cut {
            t.event("name_too_long");
        }
    }
}

/// Appends a name as labels with dots between them; `None` if it leads out of the message or has a label of no known kind.
fn name(b: &[u8], mut at: usize, out: &mut Vec<u8>) -> Option<Odd> {
    let from = out.len();
    let mut jumps = 0;
    for _ in 0..MOST_STEPS {
        let length = *b.get(at)?;
        match length {
            0 => return Some(Odd::default()),
            0xc0.. => {
                jumps += 1;
                at = usize::from(be16(b, at)? & 0x3fff);
            }
            1..=63 => {
                let label = b.get(at + 1..at + 1 + usize::from(length))?;
                if out.len() > from {
                    out.push(b'.');
                }
                out.extend_from_slice(label);
                if out.len() - from > MOST_NAME {
                    out.truncate(from + MOST_NAME);
                    return Some(Odd {
                        cut: true,
                        ..Odd::default()
                    });
                }
                at += 1 + label.len();
            }
            _ => return None,
        }
    }
    Some(Odd {
        cut: true,
        endless: true,
        looped: jumps > LOOP,
    })
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
    let mut message = Message {
        b,
        d,
        response,
        w,
        text,
        left: MOST_RECORDS,
    };
    for (section, count) in counts[1..].iter().enumerate() {
        match message.section(SECTIONS[section], at, *count, t) {
            Ok(next) => at = next,
            Err(Broken::TooMany) => {
                t.event("too_many_records");
                return Some(());
            }
            // An end that asks takes the answers and does without the rest.
            Err(Broken::Malformed) => {
                t.event(SECTIONS[section].broken?);
                return Some(());
            }
        }
    }
    Some(())
}

/// A part of a message that has records.
#[derive(Clone, Copy)]
struct Section {
    names: Buffer,
    key: &'static str,
    /// The event of a part that cannot be read, if that is not the end of all of it.
    broken: Option<&'static str>,
}

const SECTIONS: [Section; 3] = [
    Section {
        names: Buffer::DnsAnswerName,
        key: "answers",
        broken: None,
    },
    Section {
        names: Buffer::DnsAuthorityName,
        key: "authorities",
        broken: Some("invalid_authorities"),
    },
    Section {
        names: Buffer::DnsAdditionalName,
        key: "additionals",
        broken: Some("invalid_additionals"),
    },
];

/// Why records cannot be read on.
enum Broken {
    Malformed,
    TooMany,
}

/// A message whose records are read.
struct Message<'a> {
    b: &'a [u8],
    d: Direction,
    response: bool,
    w: &'a Wanted,
    /// Room for a name.
    text: Vec<u8>,
    /// Records that may still be looked at.
    left: usize,
}

/// A name as a field of a record, and, if it was cut, that it was.
fn put_name(r: &mut Map<String, Value>, [key, cut]: [&str; 2], name: &[u8], odd: Odd) {
    r.insert(key.into(), string(name).into());
    if odd.cut {
        r.insert(cut.into(), true.into());
    }
}

/// A part of a message as the log has it.
fn put(t: &mut Transaction, key: &str, logged: Vec<Value>) {
    if logged.is_empty() {
        return;
    }
    if key == "answers" {
        let mut grouped: Map<String, Value> = Map::new();
        for a in &logged {
            let said = ["rdata", "soa", "srv", "sshfp"]
                .iter()
                .find_map(|k| a.get(k));
            let (Some(kind), Some(data)) = (a["rrtype"].as_str(), said) else {
                continue;
            };
            if let Value::Array(list) = grouped
                .entry(kind)
                .or_insert_with(|| Value::Array(Vec::new()))
            {
                list.push(data.clone());
            }
        }
        t.record.insert("grouped".into(), grouped.into());
    }
    t.record.insert(key.into(), Value::Array(logged));
}

impl Message<'_> {
    /// The records of one section; returns where the next begins.
    fn section(
        &mut self,
        section: Section,
        mut at: usize,
        count: u16,
        t: &mut Transaction,
    ) -> Result<usize, Broken> {
        let mut logged = Vec::new();
        let mut end = Ok(());
        for _ in 0..count {
            if self.left == 0 {
                end = Err(Broken::TooMany);
                break;
            }
            self.left -= 1;
            let Some(next) = self.record(at, section, t, &mut logged) else {
                end = Err(Broken::Malformed);
                break;
            };
            at = next;
        }
        put(t, section.key, logged);
        end.map(|()| at)
    }

    /// Reads a name into the room for it.
    fn name(&mut self, at: usize, t: &mut Transaction) -> Option<Odd> {
        self.text.clear();
        let odd = name(self.b, at, &mut self.text)?;
        odd.tell(t);
        Some(odd)
    }

    /// One resource record; returns where the next begins.
    fn record(
        &mut self,
        at: usize,
        section: Section,
        t: &mut Transaction,
        logged: &mut Vec<Value>,
    ) -> Option<usize> {
        let (b, d, w) = (self.b, self.d, self.w);
        let end = skip_name(b, at)?;
        let kind = be16(b, end)?;
        let ttl = be32(b, end + 4)?;
        let length = usize::from(be16(b, end + 8)?);
        let start = end + 10;
        let data = b.get(start..start + length)?;
        let odd = self.name(at, t)?;
        let is_answer = section.names == Buffer::DnsAnswerName;
        if self.response && is_answer {
            t.facts.push(("dns.rrtype", u64::from(kind)));
        }
        // Options of EDNS are no record with a name.
        if kind != 41 {
            if w.buffers.has(section.names) {
                t.push(section.names, d, &self.text);
            }
            if d == ToClient && w.buffers.has(Buffer::DnsResponseName) {
                t.push(Buffer::DnsResponseName, d, &self.text);
            }
        }
        let is_logged = w.records && logged.len() < MOST_LOGGED;
        let mut r = Map::new();
        if is_logged {
            put_name(&mut r, ["rrname", "rrname_truncated"], &self.text, odd);
            r.insert("rrtype".into(), type_name(kind).into());
            r.insert("ttl".into(), ttl.into());
        }
        if kind == 16 {
            // Each of its strings stands for itself.
            let mut rest = data;
            while let Some((&n, tail)) = rest.split_first() {
                let (text, tail) = tail.split_at_checked(usize::from(n))?;
                if is_logged && logged.len() < MOST_LOGGED {
                    r.insert("rdata".into(), string(text).into());
                    logged.push(r.clone().into());
                }
                rest = tail;
            }
            return Some(start + length);
        }
        let told = self.rdata(start, data, kind, t, is_logged.then_some(&mut r))?;
        // Options of EDNS without one are none.
        if is_logged && (told || kind != 41) {
            logged.push(r.into());
        }
        Some(start + length)
    }

    /// What a record says, into `r` if it is logged; returns whether it says something, or `None` if it is not what its type has. Nothing at all is no fault: updates
    /// name records that way.
    fn rdata(
        &mut self,
        start: usize,
        data: &[u8],
        kind: u16,
        t: &mut Transaction,
        mut r: Option<&mut Map<String, Value>>,
    ) -> Option<bool> {
        let b = self.b;
        let is_logged = r.is_some();
        let mut put = |key: &str, value: &mut dyn FnMut() -> Value| {
            if let Some(r) = &mut r {
                r.insert(key.into(), value());
            }
        };
        match kind {
            // An address of another length is none.
            1 => put("rdata", &mut || {
                let a: Result<[u8; 4], _> = data.try_into();
                a.map_or_else(|_| "".into(), |a| Ipv4Addr::from(a).to_string().into())
            }),
            28 => put("rdata", &mut || {
                let a: Result<[u8; 16], _> = data.try_into();
                // The log writes addresses of version 6 in full.
                a.map_or_else(
                    |_| "".into(),
                    |a| {
                        let full: Vec<String> = Ipv6Addr::from(a)
                            .segments()
                            .iter()
                            .map(|s| format!("{s:04x}"))
                            .collect();
                        full.join(":").into()
                    },
                )
            }),
            2 | 5 | 12 | 15 | 39 => {
                self.text.clear();
                let mut cut = false;
                if !data.is_empty() {
                    let skipped = if kind == 15 { 2 } else { 0 };
                    data.get(skipped..)?;
                    cut = self.name(start + skipped, t)?.cut;
                    // Of records that say a name, rules see that one too.
                    let has = self.w.buffers.has(Buffer::DnsResponseName);
                    if has && self.d == ToClient {
                        t.push(Buffer::DnsResponseName, ToClient, &self.text);
                    }
                }
                put("rdata", &mut || string(&self.text).into());
                if cut {
                    put("rdata_truncated", &mut || true.into());
                }
            }
            6 if !data.is_empty() => {
                let rname = skip_name(b, start)?;
                let numbers = skip_name(b, rname)?;
                be32(b, numbers + 16)?;
                let mut soa = Map::new();
                for (key, cut, at) in [
                    ("mname", "mname_truncated", start),
                    ("rname", "rname_truncated", rname),
                ] {
                    let odd = self.name(at, t)?;
                    // The zone's first server is a name that rules see.
                    let has = self.w.buffers.has(Buffer::DnsResponseName);
                    if at == start && has && self.d == ToClient {
                        t.push(Buffer::DnsResponseName, ToClient, &self.text);
                    }
                    put_name(&mut soa, [key, cut], &self.text, odd);
                }
                for (i, key) in ["serial", "refresh", "retry", "expire", "minimum"]
                    .iter()
                    .enumerate()
                {
                    soa.insert((*key).into(), be32(b, numbers + 4 * i)?.into());
                }
                put("soa", &mut || std::mem::take(&mut soa).into());
            }
            33 if !data.is_empty() => {
                let mut srv = Map::new();
                for (i, key) in ["priority", "weight", "port"].iter().enumerate() {
                    srv.insert((*key).into(), be16(data, 2 * i)?.into());
                }
                let odd = self.name(start + 6, t)?;
                put_name(&mut srv, ["name", "name_truncated"], &self.text, odd);
                put("srv", &mut || std::mem::take(&mut srv).into());
            }
            44 if !data.is_empty() => {
                let [algorithm, of, print @ ..] = data else {
                    return None;
                };
                put("sshfp", &mut || {
                    let mut sshfp = Map::new();
                    sshfp.insert("algo".into(), (*algorithm).into());
                    sshfp.insert("type".into(), (*of).into());
                    let print = super::text::colons(print, false);
                    sshfp.insert("fingerprint".into(), print.into());
                    sshfp.into()
                });
            }
            // Options of EDNS: their numbers and what they say.
            41 => {
                let mut options: Vec<Value> = Vec::new();
                let mut rest = data;
                while !rest.is_empty() {
                    let (code, length) = (be16(rest, 0)?, be16(rest, 2)?);
                    let said = rest.get(4..4 + usize::from(length))?;
                    if is_logged {
                        let mut option = Map::new();
                        option.insert("code".into(), code.into());
                        option.insert("data".into(), hex(said).into());
                        options.push(option.into());
                    }
                    rest = &rest[4 + said.len()..];
                }
                if options.is_empty() {
                    return Some(false);
                }
                put("opt", &mut || std::mem::take(&mut options).into());
            }
            10 => put("rdata", &mut || string(data).into()),
            // What is no text is left out.
            _ => return Some(false),
        }
        Some(true)
    }
}

/// A record as version 2 of the log has it: one for each question of a query; one for an answer, about its first question.
pub(crate) fn older(record: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let is_answer = record.get("type").is_some_and(|t| t == "response");
    let mut common = Map::new();
    common.insert("version".into(), 2.into());
    let kind = if is_answer { "answer" } else { "query" };
    common.insert("type".into(), kind.into());
    let kept: &[&str] = if is_answer {
        &[
            "id",
            "flags",
            "qr",
            "aa",
            "tc",
            "rd",
            "ra",
            "z",
            "opcode",
            "rcode",
            "answers",
            "grouped",
            "authorities",
            "additionals",
        ]
    } else {
        &["id", "tx_id", "opcode"]
    };
    for key in kept {
        if let Some(value) = record.get(*key) {
            common.insert((*key).into(), value.clone());
        }
    }
    let questions = record.get("queries").and_then(Value::as_array);
    let mut all: Vec<Map<String, Value>> = (questions.into_iter().flatten())
        .take(if is_answer { 1 } else { MOST_LOGGED })
        .filter_map(Value::as_object)
        .map(|question| {
            let mut one = common.clone();
            one.extend(question.clone());
            one
        })
        .collect();
    if all.is_empty() && is_answer {
        all.push(common);
    }
    all
}

fn rcode_name(code: u16) -> String {
    const NAMES: [&str; 11] = [
        "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
        "NXRRSET", "NOTAUTH", "NOTZONE",
    ];
    NAMES
        .get(usize::from(code))
        .map_or_else(|| code.to_string(), |n| (*n).to_string())
}

/// Types as logs of such sensors name them; the others, newer ones among them, by number.
fn type_name(kind: u16) -> String {
    let name = match kind {
        1 => "A",
        2 => "NS",
        3 => "MD",
        4 => "MF",
        5 => "CNAME",
        6 => "SOA",
        7 => "MB",
        8 => "MG",
        9 => "MR",
        10 => "NULL",
        11 => "WKS",
        12 => "PTR",
        13 => "HINFO",
        14 => "MINFO",
        15 => "MX",
        16 => "TXT",
        17 => "RP",
        18 => "AFSDB",
        19 => "X25",
        20 => "ISDN",
        21 => "RT",
        22 => "NSAP",
        23 => "NSAPPTR",
        24 => "SIG",
        25 => "KEY",
        26 => "PX",
        27 => "GPOS",
        28 => "AAAA",
        29 => "LOC",
        30 => "NXT",
        33 => "SRV",
        34 => "ATMA",
        35 => "NAPTR",
        36 => "KX",
        37 => "CERT",
        38 => "A6",
        39 => "DNAME",
        41 => "OPT",
        42 => "APL",
        43 => "DS",
        44 => "SSHFP",
        45 => "IPSECKEY",
        46 => "RRSIG",
        47 => "NSEC",
        48 => "DNSKEY",
        49 => "DHCID",
        50 => "NSEC3",
        51 => "NSEC3PARAM",
        52 => "TLSA",
        55 => "HIP",
        59 => "CDS",
        60 => "CDNSKEY",
        65 => "HTTPS",
        99 => "SPF",
        249 => "TKEY",
        250 => "TSIG",
        254 => "MAILA",
        255 => "ANY",
        256 => "URI",
        other => return other.to_string(),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::{dump, wanted};
    use crate::packet::Direction::ToServer;

    /// A query for www.Example.com, type A.
    pub(crate) const QUERY: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07Example\x03com\x00\x00\x01\x00\x01";
    /// Its answer: a CNAME by pointer, and an address.
    const ANSWER: &[u8] = b"\x12\x34\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00\x03www\x07Example\x03com\x00\x00\x01\x00\x01\
        \xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01x\xc0\x10\
        \xc0\x2d\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x01\x02\x03\x04";

    #[test]
    fn questions_and_answers_are_read() {
        let mut p = Dns::new(&wanted());
        let mut out = Transactions::default();
        p.data(ToServer, QUERY, 5, &mut out);
        p.data(ToClient, ANSWER, 6, &mut out);
        let q = &out.live[0];
        assert_eq!(
            q.get(Buffer::DnsQuery, ToServer).collect::<Vec<_>>(),
            [b"www.Example.com"]
        );
        assert_eq!(q.record["queries"][0]["rrtype"], "A");
        assert_eq!(q.record["id"], 0x1234);
        let a = &out.live[1];
        assert!(a.events.is_empty(), "{:?}", a.events);
        assert_eq!(a.get(Buffer::DnsQuery, ToClient).count(), 0);
        assert_eq!(a.record["answers"][0]["rdata"], "x.Example.com");
        assert_eq!(a.record["answers"][1]["rdata"], "1.2.3.4");
        assert_eq!(a.record["grouped"]["A"][0], "1.2.3.4");
        assert_eq!(a.record["rcode"], "NOERROR");
        assert_eq!(a.record["flags"], "8180");
        assert_eq!(a.facts("dns.rcode").collect::<Vec<_>>(), [0]);
        assert!(a.done && q.done);
    }

    #[test]
    fn streams_are_cut_anywhere() {
        let mut stream = Vec::new();
        for _ in 0..3 {
            stream.extend_from_slice(&(QUERY.len() as u16).to_be_bytes());
            stream.extend_from_slice(QUERY);
        }
        let run = |step: usize| {
            let mut p = Dns::of_stream(&wanted());
            let mut out = Transactions::default();
            for piece in stream.chunks(step) {
                p.data(ToServer, piece, 0, &mut out);
            }
            dump(&out)
        };
        let whole = run(stream.len());
        assert_eq!(whole.len(), 3);
        for step in 1..40 {
            assert_eq!(run(step), whole);
        }
    }

    #[test]
    fn loops_and_lies_end() {
        let mut looped = QUERY[..12].to_vec();
        looped.extend_from_slice(b"\xc0\x0c\x00\x01\x00\x01");
        let mut p = Dns::new(&wanted());
        let mut out = Transactions::default();
        p.data(ToServer, &looped, 0, &mut out);
        let events = ["infinite_loop", "too_many_labels", "name_too_long"];
        assert_eq!(out.live[0].events, events);
        // A long way round is none.
        let mut long = QUERY[..12].to_vec();
        let mut at = 12 + 6;
        for _ in 0..200 {
            long.extend_from_slice(&(0xc000 | at as u16).to_be_bytes());
            if long.len() == 14 {
                long.extend_from_slice(&[0, 1, 0, 1]);
            }
            at += 2;
        }
        long.extend_from_slice(b"\x01z\x00");
        p.data(ToServer, &long, 0, &mut out);
        let t = out.live.back().unwrap();
        assert!(t.events.is_empty(), "{:?}", t.events);
        assert_eq!(t.record["queries"][0]["rrname"], "z");
        for n in 0..ANSWER.len() {
            p.data(ToClient, &ANSWER[..n], 0, &mut out);
            let t = out.live.back().unwrap();
            assert_eq!(t.events, ["malformed_data"], "{n}");
            assert!(t.record.is_empty() && t.facts.is_empty(), "{n}");
        }
    }

    /// `ANSWER` with records of a question's own name behind it, in the sections that `counts` says.
    fn with(counts: [u8; 3], records: &[(u8, &[u8])]) -> Transactions {
        let mut b = ANSWER[..ANSWER.len() - 32].to_vec();
        (b[7], b[9], b[11]) = (counts[0], counts[1], counts[2]);
        for (kind, data) in records {
            b.extend_from_slice(&[0xc0, 0x0c, 0, *kind, 0, 1, 0, 0, 0, 9, 0, data.len() as u8]);
            b.extend_from_slice(data);
        }
        let mut out = Transactions::default();
        Dns::new(&wanted()).data(ToClient, &b, 0, &mut out);
        out
    }

    #[test]
    fn answers_are_of_the_types_of_their_records() {
        let out = with([1, 1, 0], &[(16, b"\x02hi\x01!"), (15, b"\0\x0a\xc0\x0c")]);
        let t = &out.live[0];
        assert_eq!(t.facts("dns.rrtype").collect::<Vec<_>>(), [16]);
        assert_eq!(t.record["answers"][1]["rdata"], "!");
        assert_eq!(t.record["authorities"][0]["rdata"], "www.Example.com");
        // An address of a wrong length is none, and a type without text says nothing.
        let out = with([2, 0, 0], &[(1, b"\x01"), (65, b"\0\x01\0")]);
        let record = &out.live[0].record;
        assert_eq!(record["answers"][0]["rdata"], "");
        assert_eq!(record["answers"][1]["rrtype"], "HTTPS");
        assert!(record["answers"][1].get("rdata").is_none());
        let out = with([1, 0, 0], &[(64, b"\0\x01\0")]);
        assert_eq!(out.live[0].record["grouped"], serde_json::json!({}));
        assert_eq!(out.live[0].record["answers"][0]["rrtype"], "64");
    }

    #[test]
    fn answers_that_cannot_be_read_are_no_message_and_the_rest_may_be_broken() {
        for (kind, data) in [
            (5, &b"\x3fabc"[..]),
            (16, b"\x20short"),
            (33, b"\0\x01\0"),
            (44, b"\x01"),
            (15, b"\0"),
        ] {
            let out = with([1, 0, 0], &[(kind, data)]);
            assert_eq!(out.live[0].events, ["malformed_data"], "{kind}");
            assert!(out.live[0].record.is_empty());
            let out = with([0, 1, 0], &[(kind, data)]);
            assert_eq!(out.live[0].events, ["invalid_authorities"], "{kind}");
            let out = with([0, 0, 1], &[(kind, data)]);
            assert_eq!(out.live[0].events, ["invalid_additionals"], "{kind}");
            assert_eq!(out.live[0].record["queries"][0]["rrtype"], "A");
        }
        // Nothing at all is what an update says of what is to go.
        assert!(with([1, 0, 0], &[(6, b"")]).live[0].events.is_empty());
        let out = with([0, 0, 1], &[(41, b"\0\x0a\0\x09ab")]);
        assert_eq!(out.live[0].events, ["invalid_additionals"]);
    }

    #[test]
    fn a_stream_is_read_on_behind_a_loss() {
        let framed = [&(QUERY.len() as u16).to_be_bytes()[..], QUERY].concat();
        let behind = [
            &framed[22..],
            b"\0\0",
            &[b"\0\0", &framed[..]].concat(),
            &framed,
            &[b"\0\0", &framed[..]].concat(),
        ]
        .concat();
        for piece in [behind.len(), 1, 7] {
            let mut p = Dns::of_stream(&wanted());
            let mut out = Transactions::default();
            p.data(ToServer, &framed[..10], 0, &mut out);
            p.gap(ToServer, 12, &mut out);
            for bytes in behind.chunks(piece) {
                p.data(ToServer, bytes, 0, &mut out);
            }
            assert_eq!(out.live.len(), 3, "{piece}");
            assert!(out.live.iter().all(|t| t.events.is_empty()));
            assert!(!out.failed);
        }
    }

    #[test]
    fn what_is_odd_on_the_own_port_needs_a_question() {
        let mut odd = QUERY.to_vec();
        odd[2] = 9 << 3;
        assert_eq!(looks_like(&odd, odd.len(), false, true), Some(true));
        assert_eq!(looks_like(&odd, odd.len(), false, false), Some(false));
        assert_eq!(
            looks_like(b"garbage!garbage!", 16, false, true),
            Some(false)
        );
    }

    #[test]
    fn chance_bytes_are_no_dns() {
        assert_eq!(looks_like(QUERY, QUERY.len(), false, false), Some(true));
        assert_eq!(looks_like(&QUERY[..20], QUERY.len(), false, false), None);
        assert_eq!(looks_like(ANSWER, ANSWER.len(), true, false), Some(true));
        assert_eq!(looks_like(&[0; 12], 12, false, false), Some(false));
        assert_eq!(looks_like(&[0xab; 60], 60, true, false), Some(false));
    }
}
