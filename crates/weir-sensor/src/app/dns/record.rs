//! Resource records, section by section: names for rules, and what each says for the log.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value};

use super::log::type_name;
use super::name::{Odd, name, skip_name};
use super::numbers::{MOST_LOGGED, MOST_RECORDS};
use crate::app::bytes::{be16, be32};
use crate::app::text::{colons, hex, string};
use crate::app::transaction::Transaction;
use crate::app::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::ToClient;

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
pub(super) struct Message<'a> {
    b: &'a [u8],
    d: Direction,
    response: bool,
    w: &'a Wanted,
    /// Room for a name.
    text: Vec<u8>,
    /// Records that may still be looked at.
    left: usize,
}

impl<'a> Message<'a> {
    /// What was read of the message so far: it, its direction, whether it is an answer; and room for names.
    pub(super) fn new(
        (b, d): (&'a [u8], Direction),
        response: bool,
        w: &'a Wanted,
        text: Vec<u8>,
    ) -> Message<'a> {
        Message {
            b,
            d,
            response,
            w,
            text,
            left: MOST_RECORDS,
        }
    }

    /// All sections with records, the first of which begins at `at`; `None` if the message cannot be read on.
    pub(super) fn sections(
        mut self,
        mut at: usize,
        counts: impl Iterator<Item = u16>,
        t: &mut Transaction,
    ) -> Option<()> {
        for (section, count) in SECTIONS.iter().zip(counts) {
            match self.section(*section, at, count, t) {
                Ok(next) => at = next,
                Err(Broken::TooMany) => {
                    t.event("too_many_records");
                    return Some(());
                }
                // An end that asks takes the answers and does without the rest.
                Err(Broken::Malformed) => {
                    t.event(section.broken?);
                    return Some(());
                }
            }
        }
        Some(())
    }

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
                    let print = colons(print, false);
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
                    rest = rest.get(4 + said.len()..)?;
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

/// A name as a field of a record, and, if it was cut, that it was.
pub(super) fn put_name(r: &mut Map<String, Value>, [key, cut]: [&str; 2], name: &[u8], odd: Odd) {
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
