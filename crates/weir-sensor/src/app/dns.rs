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
/// The event of a longer one.
const TOO_LONG: &str = "name_too_long";
/// Compression pointers followed in one name.
const MOST_JUMPS: usize = 32;
/// Records of one message that are looked at.
const MOST_RECORDS: usize = 512;
/// Records of one message that are logged.
const MOST_LOGGED: usize = 128;

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
    if (flags & 0x8000 != 0) != response || flags & 0x40 != 0 && !own_port || opcode > 6 {
        return Some(false);
    }
    if own_port {
        return Some(questions + u16::from(response) > 0 && questions < 64);
    }
    if questions != 1 || (!response && answers != 0 && opcode == 0) || count(10) > 256 {
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
        && (rest != 0 || at + 4 == total);
    Some(good)
}

pub(super) struct Dns {
    wanted: Wanted,
    carry: [Vec<u8>; 2],
    /// Set by the first call that gives less than a whole message: this is a stream. Datagrams come whole.
    stream: Option<bool>,
}

impl Dns {
    pub(super) fn new(wanted: &Wanted) -> Dns {
        Dns {
            wanted: *wanted,
            carry: [Vec::new(), Vec::new()],
            stream: None,
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
        while rest.len() >= 2 {
            let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            let Some(message) = rest.get(2..2 + length) else {
                break;
            };
            self.message(direction, message, time, out);
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

    fn gap(&mut self, _: Direction, _: u64, out: &mut Transactions) {
        // Where the next message begins is not known.
        out.failed = true;
    }

    fn end(&mut self, direction: Direction, _: &mut Transactions) {
        self.carry[direction.index()] = Vec::new();
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

/// Appends a name as labels with dots between them. What is wrong with it is an event, and the beginning stays.
fn name(b: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let from = out.len();
    let mut jumps = 0;
    loop {
        let Some(&length) = b.get(at) else {
            return Err("malformed_data");
        };
        match length {
            0 => return Ok(()),
            0xc0.. => {
                let Some(target) = be16(b, at) else {
                    return Err("malformed_data");
                };
                jumps += 1;
                if jumps > MOST_JUMPS {
                    return Err("infinite_loop");
                }
                at = usize::from(target & 0x3fff);
            }
            1..=63 => {
                let Some(label) = b.get(at + 1..at + 1 + usize::from(length)) else {
                    return Err("malformed_data");
                };
                if out.len() > from {
                    out.push(b'.');
                }
                out.extend_from_slice(label);
                if out.len() - from > MOST_NAME {
                    out.truncate(from + MOST_NAME);
                    return Err(TOO_LONG);
                }
                at += 1 + label.len();
            }
            _ => return Err("malformed_data"),
        }
    }
}

fn named(b: &[u8], at: usize, t: &mut Transaction) -> Vec<u8> {
    let mut out = Vec::new();
    if let Err(event) = name(b, at, &mut out) {
        t.event(event);
    }
    out
}

/// A name as a field of a record, and, if it was cut, that it was.
fn put_name(r: &mut Map<String, Value>, name: &[u8], cut: bool) {
    r.insert("rrname".into(), string(name).into());
    if cut {
        r.insert("rrname_truncated".into(), true.into());
    }
}

fn buffer(b: &[u8], at: usize, buffer: Buffer, d: Direction, t: &mut Transaction) {
    let mut result = Ok(());
    t.build(buffer, d, |o| result = name(b, at, o));
    if let Err(event) = result {
        t.event(event);
    }
}

/// Fills a transaction; `None` if the message breaks off.
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
    for _ in 0..counts[0].min(MOST_RECORDS as u16) {
        let end = skip_name(b, at)?;
        let kind = be16(b, end)?;
        be16(b, end + 2)?;
        t.facts.push(("dns.rrtype", u64::from(kind)));
        if w.buffers.has(Buffer::DnsQuery) && d == Direction::ToServer {
            buffer(b, at, Buffer::DnsQuery, d, t);
        }
        if w.buffers.has(Buffer::DnsQueryName) {
            buffer(b, at, Buffer::DnsQueryName, d, t);
        }
        if response && w.buffers.has(Buffer::DnsResponseName) {
            buffer(b, at, Buffer::DnsResponseName, ToClient, t);
        }
        if w.records && questions.len() < MOST_LOGGED {
            let name = named(b, at, t);
            let cut = name.len() == MOST_NAME && t.events.contains(&TOO_LONG);
            let mut q = Map::new();
            put_name(&mut q, &name, cut);
            q.insert("rrtype".into(), type_name(kind).into());
            questions.push(Value::Object(q));
            t.record
                .insert("queries".into(), Value::Array(questions.clone()));
        }
        at = end + 4;
    }
    let mut left = MOST_RECORDS;
    for (section, count) in counts[1..].iter().enumerate() {
        let (what, key) = [
            (Buffer::DnsAnswerName, "answers"),
            (Buffer::DnsAuthorityName, "authorities"),
            (Buffer::DnsAdditionalName, "additionals"),
        ][section];
        let mut logged = Vec::new();
        for _ in 0..*count {
            if left == 0 {
                t.event("too_many_records");
                return Some(());
            }
            left -= 1;
            let Some(next) = record(b, at, d, w, t, what, &mut logged) else {
                put(t, key, logged);
                return None;
            };
            at = next;
        }
        put(t, key, logged);
    }
    Some(())
}

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
        if !grouped.is_empty() {
            t.record.insert("grouped".into(), grouped.into());
        }
    }
    t.record.insert(key.into(), Value::Array(logged));
}

/// One resource record; returns where the next begins.
fn record(
    b: &[u8],
    at: usize,
    d: Direction,
    w: &Wanted,
    t: &mut Transaction,
    what: Buffer,
    logged: &mut Vec<Value>,
) -> Option<usize> {
    let end = skip_name(b, at)?;
    let kind = be16(b, end)?;
    let ttl = be32(b, end + 4)?;
    let length = usize::from(be16(b, end + 8)?);
    let start = end + 10;
    let data = b.get(start..start + length)?;
    // Options of EDNS are no record with a name.
    if kind != 41 && w.buffers.has(what) {
        buffer(b, at, what, d, t);
    }
    if kind != 41 && d == ToClient && w.buffers.has(Buffer::DnsResponseName) {
        buffer(b, at, Buffer::DnsResponseName, d, t);
        // Of records that say a name, that one too.
        let said = match kind {
            2 | 5 | 12 | 39 => Some(start),
            15 => Some(start + 2),
            _ => None,
        };
        if let Some(said) = said.filter(|_| !data.is_empty()) {
            buffer(b, said, Buffer::DnsResponseName, d, t);
        }
    }
    if w.records && logged.len() < MOST_LOGGED {
        let mut r = Map::new();
        let name = named(b, at, t);
        let cut = name.len() == MOST_NAME && t.events.contains(&TOO_LONG);
        put_name(&mut r, &name, cut);
        r.insert("rrtype".into(), type_name(kind).into());
        r.insert("ttl".into(), ttl.into());
        if kind == 16 {
            // Each of its strings stands for itself.
            let mut rest = data;
            while let Some((&n, tail)) = rest.split_first()
                && logged.len() < MOST_LOGGED
            {
                let n = usize::from(n).min(tail.len());
                r.insert("rdata".into(), string(&tail[..n]).into());
                logged.push(r.clone().into());
                rest = &tail[n..];
            }
            return Some(start + length);
        }
        match rdata(b, start, data, kind, t) {
            Some((key, value)) => {
                r.insert(key.into(), value);
            }
            // Options of EDNS without one are none.
            None if kind == 41 => return Some(start + length),
            None => {}
        }
        logged.push(r.into());
    }
    Some(start + length)
}

/// What a record says, and under which field.
fn rdata(
    b: &[u8],
    start: usize,
    data: &[u8],
    kind: u16,
    t: &mut Transaction,
) -> Option<(&'static str, Value)> {
    let mut text = |at: usize| Value::from(string(&named(b, at, t)));
    Some(match kind {
        1 => {
            let a: [u8; 4] = data.try_into().ok()?;
            ("rdata", Ipv4Addr::from(a).to_string().into())
        }
        28 => {
            let a: [u8; 16] = data.try_into().ok()?;
            // The log writes addresses of version 6 in full.
            let full: Vec<String> = Ipv6Addr::from(a)
                .segments()
                .iter()
                .map(|s| format!("{s:04x}"))
                .collect();
            ("rdata", full.join(":").into())
        }
        2 | 5 | 12 | 39 => ("rdata", text(start)),
        15 => ("rdata", text(start + 2)),
        6 => {
            let rname = skip_name(b, start)?;
            let numbers = skip_name(b, rname)?;
            let mut soa = Map::new();
            soa.insert("mname".into(), text(start));
            soa.insert("rname".into(), text(rname));
            for (i, key) in ["serial", "refresh", "retry", "expire", "minimum"]
                .iter()
                .enumerate()
            {
                soa.insert((*key).into(), be32(b, numbers + 4 * i)?.into());
            }
            ("soa", soa.into())
        }
        33 => {
            let mut srv = Map::new();
            for (i, key) in ["priority", "weight", "port"].iter().enumerate() {
                srv.insert((*key).into(), be16(data, 2 * i)?.into());
            }
            srv.insert("name".into(), text(start + 6));
            ("srv", srv.into())
        }
        44 => {
            let mut sshfp = Map::new();
            sshfp.insert("algo".into(), (*data.first()?).into());
            sshfp.insert("type".into(), (*data.get(1)?).into());
            let print = super::text::colons(&data[2..], false);
            sshfp.insert("fingerprint".into(), print.into());
            ("sshfp", sshfp.into())
        }
        // Options of EDNS: their numbers and what they say.
        41 => {
            let mut options: Vec<Value> = Vec::new();
            let mut rest = data;
            while let (Some(code), Some(length)) = (be16(rest, 0), be16(rest, 2)) {
                let Some(said) = rest.get(4..4 + usize::from(length)) else {
                    break;
                };
                let mut option = Map::new();
                option.insert("code".into(), code.into());
                option.insert("data".into(), hex(said).into());
                options.push(option.into());
                rest = &rest[4 + said.len()..];
            }
            if options.is_empty() {
                return None;
            }
            ("opt", options.into())
        }
        10 => ("rdata", string(data).into()),
        // What is no text is left out.
        _ => return None,
    })
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
        40 => "SINK",
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
        53 => "SMIMEA",
        55 => "HIP",
        56 => "NINFO",
        57 => "RKEY",
        58 => "TALINK",
        59 => "CDS",
        60 => "CDNSKEY",
        61 => "OPENPGPKEY",
        62 => "CSYNC",
        63 => "ZONEMD",
        64 => "SVCB",
        65 => "HTTPS",
        99 => "SPF",
        100 => "UINFO",
        101 => "UID",
        102 => "GID",
        103 => "UNSPEC",
        104 => "NID",
        105 => "L32",
        106 => "L64",
        107 => "LP",
        108 => "EUI48",
        109 => "EUI64",
        249 => "TKEY",
        250 => "TSIG",
        251 => "IXFR",
        252 => "AXFR",
        253 => "MAILB",
        254 => "MAILA",
        255 => "ANY",
        256 => "URI",
        257 => "CAA",
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
        assert_eq!(out.live[0].events, ["infinite_loop"]);
        for n in 0..ANSWER.len() {
            p.data(ToClient, &ANSWER[..n], 0, &mut out);
            let t = out.live.back().unwrap();
            assert_eq!(t.events, ["malformed_data"], "{n}");
        }
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
