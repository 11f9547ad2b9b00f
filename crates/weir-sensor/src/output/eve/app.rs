//! What applications did: transactions, the files that these carried, and what is not as protocols want it.

use std::io::Write;

use serde_json::{Map, Value};

use super::alert::{AlertFacts, packet};
use super::{EveOptions, Head, Object, begin, besides, json, quoted, value};
use crate::app::File;
use crate::packet::Direction;

/// A transaction of an application.
pub fn transaction(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    (kind, name): (&str, &str),
    id: Option<u64>,
    (record, beside): (&Map<String, Value>, &Map<String, Value>),
    options: &EveOptions,
) {
    let mut o = begin(out, kind, head, options);
    if let Some(id) = id {
        o.number("tx_id", id);
    }
    value(o.key(name), record);
    besides(&mut o, beside);
    o.end();
    out.push(b'\n');
}

/// A file that was transferred, with the transaction it was in: names of its application, and of the application's records.
pub fn file(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    (app, name): (&'static str, &'static str),
    (record, beside): (&Map<String, Value>, &Map<String, Value>),
    (file, transaction): (&File, u64),
    options: &EveOptions,
) {
    let mut o = begin(out, "fileinfo", head, options);
    if !record.is_empty() {
        value(o.key(name), record);
    }
    besides(&mut o, beside);
    o.string("app_proto", app);
    let range = range(file, record);
    about_file(o.object("fileinfo"), file, range, transaction);
    o.end();
    out.push(b'\n');
}

/// The files that an alert's transaction carries in its direction.
pub(super) fn files(o: &mut Object<'_>, facts: &AlertFacts<'_>) {
    let (Some(transaction), Some(to_server)) = (facts.transaction, facts.to_server) else {
        return;
    };
    let mine = |f: &&File| (f.direction == Direction::ToServer) == to_server;
    if !facts.files.iter().any(|f| mine(&f)) {
        return;
    }
    json::list(
        o.key("files"),
        facts.files.iter().filter(mine),
        |out, file| {
            let range = facts.record.and_then(|(_, record)| range(file, record));
            about_file(Object::new(out), file, range, transaction);
        },
    );
}

/// First and last byte of a part of a file that a server sent as such (`Content-Range`).
fn range(file: &File, record: &Map<String, Value>) -> Option<(u64, u64)> {
    let range = record.get("content_range")?;
    let of = |key: &str| range.get(key).and_then(Value::as_u64);
    let range = of("start").zip(of("end"))?;
    (file.direction == Direction::ToClient).then_some(range)
}

/// What records say of a file, or of the part of one.
fn about_file(mut f: Object<'_>, file: &File, range: Option<(u64, u64)>, transaction: u64) {
    f.string("filename", &String::from_utf8_lossy(&file.name));
    if let Some(magic) = &file.magic {
        f.string("magic", magic);
    }
    f.boolean("gaps", file.gaps);
    f.string("state", if file.whole { "CLOSED" } else { "TRUNCATED" });
    for (name, sum) in &file.sums {
        quoted(f.key(name), |out| {
            for byte in sum {
                let _ = write!(out, "{byte:02x}");
            }
        });
    }
    f.boolean("stored", file.stored);
    f.number("size", file.size);
    if let Some((start, end)) = range {
        f.number("start", start);
        f.number("end", end);
    }
    f.number("tx_id", transaction);
    f.end();
}

/// Something that is not as protocols want it.
#[derive(Clone, Copy, Debug)]
pub struct Anomaly<'a> {
    /// `decode`, `stream`, `applayer`.
    pub kind: &'a str,
    /// Its name.
    pub event: &'a str,
    /// The application.
    pub app: Option<&'a str>,
    /// `proto_parser`, `proto_detect`.
    pub layer: Option<&'a str>,
    /// The transaction.
    pub transaction: Option<u64>,
    /// The frame, with its link type, if records show its beginning.
    pub frame: Option<(&'a [u8], u16)>,
}

/// So many bytes of a frame are its beginning.
const BEGINNING: usize = 32;

/// An anomaly, with its newline.
pub fn anomaly(out: &mut Vec<u8>, head: &Head<'_>, what: &Anomaly<'_>, options: &EveOptions) {
    let mut o = begin(out, "anomaly", head, options);
    if let Some(id) = what.transaction {
        o.number("tx_id", id);
    }
    let mut a = o.object("anomaly");
    if let Some(app) = what.app {
        a.string("app_proto", app);
    }
    a.string("type", what.kind);
    a.string("event", what.event);
    if let Some(layer) = what.layer {
        a.string("layer", layer);
    }
    a.end();
    if let Some((bytes, link)) = what.frame {
        packet(&mut o, &bytes[..bytes.len().min(BEGINNING)], link);
    }
    o.end();
    out.push(b'\n');
}
