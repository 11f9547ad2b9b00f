//! PostgreSQL (version 3 of its protocol): requests for encryption, start, authentication, simple queries with the sizes of what they yield, copies. What a client asks and
//! the server answers is one transaction. Prepared statements are passed over.

use serde_json::{Map, Value, json};

use super::bytes::{be16, be32};
use super::carry::{Carry, Taken};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Parser, Protocol};
use super::text::{string, text};
use super::transaction::{Change, Kind, Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Bytes of a message that are looked at; the rest of it passes.
const MOST_MESSAGE: usize = 64 * 1024;
/// Bytes of the message that a session begins with (as servers take it).
const MOST_START: u32 = 10_000;
/// Parameters of a session that its record has.
const MOST_PARAMETERS: usize = 64;

pub(super) const PGSQL: Protocol = Protocol {
    app: App::Pgsql,
    aliases: &["postgresql"],
    stream: Some(StreamProbe::new(Certainty::Sure, look)),
    parser: Some(|start| Box::new(Pgsql::new(start.asked))),
    kind: Some(&KIND),
    client_first: true,
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Pgsql,
    events: &["invalid_length", "malformed_request", "malformed_response"],
    ..Kind::EXCHANGE
};

/// What a client may begin with, in the place of a version.
const CANCEL: u32 = 80_877_102;
const ENCRYPT: u32 = 80_877_103;
const ENCRYPT_GSS: u32 = 80_877_104;
const VERSION_3: u32 = 3;

fn look(first: &First<'_>) -> Look {
    if first.is_server() || first.at(0) != Some(0) || first.at(1).is_some_and(|b| b != 0) {
        return Look::No;
    }
    let Some((length, code)) = be32(first.bytes, 0).zip(be32(first.bytes, 4)) else {
        return Look::Maybe;
    };
    match (code, length) {
        (ENCRYPT | ENCRYPT_GSS, 8) | (CANCEL, 16) => Look::Yes,
        _ if code >> 16 == VERSION_3 && (9..=MOST_START).contains(&length) => match first.at(8) {
            Some(b) if b.is_ascii_lowercase() || b == b'_' => Look::Yes,
            Some(_) => Look::No,
            None => Look::Maybe,
        },
        _ => Look::No,
    }
}

/// What a client says next that only the state tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Password,
    /// The name of a mechanism, and its first message.
    Mechanism,
    More,
}

struct Pgsql {
    wanted: Wanted,
    halves: [Carry; 2],
    /// The session has begun: messages have types.
    begun: bool,
    /// The server answers a request for encryption by a byte.
    asked_encryption: bool,
    proof: Proof,
    /// The session is open: an error ends no more than what it is about.
    open: bool,
    /// The transaction that waits for its answer.
    id: Option<u64>,
    /// Rows and bytes of the answer so far, of tables and of copies.
    rows: Rows,
    copied: Rows,
    /// Messages and bytes that a client copies.
    copies: Option<Rows>,
}

#[derive(Clone, Copy, Default)]
struct Rows {
    count: u64,
    bytes: u64,
}

impl Rows {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A text up to a zero, and what is behind.
fn terminated(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(0, bytes)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// A parameter's name as records have it: `DateStyle` as `date_style`.
fn key(name: &[u8]) -> String {
    let mut key = String::new();
    let mut small = false;
    for c in string(name).chars() {
        if c.is_ascii_uppercase() && small {
            key.push('_');
        }
        small = c.is_ascii_lowercase();
        key.push(c.to_ascii_lowercase());
    }
    key
}

fn parameter(name: &[u8], value: &[u8]) -> Value {
    let one = [(key(name), text(value))];
    Value::Object(Map::from_iter(one))
}

/// Says something of one side of a transaction.
fn insert(t: &mut Transaction, side: &str, key: &str, value: Value) {
    let side = t.record.entry(side).or_insert_with(|| json!({}));
    if let Some(side) = side.as_object_mut() {
        side.insert(key.to_owned(), value);
    }
}

impl Pgsql {
    fn new(wanted: &Wanted) -> Pgsql {
        Pgsql {
            wanted: *wanted,
            halves: <[Carry; 2]>::default(),
            begun: false,
            asked_encryption: false,
            proof: Proof::Password,
            open: false,
            id: None,
            rows: Rows::default(),
            copied: Rows::default(),
            copies: None,
        }
    }

    /// Begins what a client asks for; what was under way before has no further answer.
    fn begin<'a>(&mut self, time: u64, out: &'a mut Transactions) -> &'a mut Transaction {
        if let Some(t) = self.id.take().and_then(|id| out.find(id)) {
            t.finish();
        }
        self.rows = Rows::default();
        self.copied = Rows::default();
        let t = out.begin(&KIND, time);
        self.id = Some(t.id);
        t.record.insert("tx_id".into(), (t.number + 1).into());
        t
    }

    fn asked(
        &mut self,
        time: u64,
        out: &mut Transactions,
        says: impl FnOnce(&mut Map<String, Value>),
    ) {
        let records = self.wanted.records;
        let t = self.begin(time, out);
        if records {
            let mut request = Map::new();
            says(&mut request);
            t.record.insert("request".into(), request.into());
        }
        t.finish_side(ToServer);
    }

    /// The server speaks: of what was asked, or of nothing that was seen.
    fn answers(&mut self, time: u64, out: &mut Transactions) {
        if self.id.is_none_or(|id| out.find(id).is_none()) {
            self.begin(time, out).finish_side(ToServer);
        }
    }

    /// Says something of the answer to what was asked; of prepared statements nothing was.
    fn said(&mut self, out: &mut Transactions, key: &str, value: Value) {
        if self.wanted.records
            && let Some(t) = self.id.and_then(|id| out.find(id))
        {
            insert(t, "response", key, value);
        }
    }

    fn finish(&mut self, out: &mut Transactions) {
        if let Some(t) = self.id.take().and_then(|id| out.find(id)) {
            t.finish();
        }
    }

    /// The message that a session begins with; `None`: it is malformed.
    fn start(&mut self, message: &[u8], time: u64, out: &mut Transactions) -> Option<()> {
        let code = be32(message, 4)?;
        match code {
            ENCRYPT | ENCRYPT_GSS => {
                self.asked_encryption = true;
                let name = if code == ENCRYPT {
                    "SSL Request"
                } else {
                    "GSSENC Request"
                };
                self.asked(time, out, |r| {
                    r.insert("message".into(), name.into());
                });
            }
            CANCEL => {
                let (process, secret) = (be32(message, 8)?, be32(message, 12)?);
                self.asked(time, out, |r| {
                    r.insert("message".into(), "cancel_request".into());
                    r.insert("process_id".into(), process.into());
                    r.insert("secret_key".into(), secret.into());
                });
                // Nobody answers it.
                self.finish(out);
            }
            _ => {
                self.begun = true;
                let mut rest = message.get(8..)?;
                let mut user = None;
                let mut others = Vec::new();
                while let Some((name, after)) = terminated(rest)
                    && !name.is_empty()
                {
                    let (value, after) = terminated(after)?;
                    rest = after;
                    match name {
                        b"user" => user = Some(text(value)),
                        _ if others.len() < MOST_PARAMETERS => others.push(parameter(name, value)),
                        _ => {}
                    }
                }
                self.asked(time, out, |r| {
                    let version = format!("{}.{}", code >> 16, code & 0xffff);
                    r.insert("protocol_version".into(), version.into());
                    let mut all = Map::new();
                    if let Some(user) = user {
                        all.insert("user".into(), user);
                    }
                    if !others.is_empty() {
                        all.insert("optional_parameters".into(), others.into());
                    }
                    r.insert("startup_parameters".into(), all.into());
                });
            }
        }
        Some(())
    }

    /// A message of a client; `None`: it is malformed.
    fn request(
        &mut self,
        kind: u8,
        body: &[u8],
        size: u64,
        time: u64,
        out: &mut Transactions,
    ) -> Option<()> {
        match kind {
            b'Q' => {
                // A query that is cut has no end.
                let query = terminated(body).map_or(body, |(query, _)| query);
                let t = self.begin(time, out);
                if self.wanted.buffers.has(Buffer::PgsqlQuery) {
                    t.push(Buffer::PgsqlQuery, ToServer, query);
                }
                if self.wanted.records {
                    insert(t, "request", "simple_query", text(query));
                }
                t.finish_side(ToServer);
            }
            b'p' => {
                let passwords = self.wanted.said.pgsql_passwords;
                match self.proof {
                    Proof::Password => {
                        let password = terminated(body).map_or(body, |(word, _)| word);
                        self.asked(time, out, |r| {
                            match passwords {
                                true => r.insert("password".into(), text(password)),
                                false => r.insert("password_redacted".into(), true.into()),
                            };
                        });
                    }
                    Proof::Mechanism => {
                        let (mechanism, rest) = terminated(body)?;
                        let said = rest.get(4..)?;
                        self.asked(time, out, |r| {
                            r.insert("sasl_authentication_mechanism".into(), text(mechanism));
                            r.insert("sasl_param".into(), text(said));
                        });
                    }
                    Proof::More => self.asked(time, out, |r| {
                        r.insert("sasl_response".into(), text(body));
                    }),
                }
            }
            b'd' => match &mut self.copies {
                Some(copies) => copies.add(size),
                None => {
                    let mut first = Rows::default();
                    first.add(size);
                    self.begin(time, out);
                    self.copies = Some(first);
                }
            },
            b'c' | b'f' => {
                let copies = self.copies.take();
                if let Some((t, copies)) = self.id.and_then(|id| out.find(id)).zip(copies) {
                    if self.wanted.records {
                        let said = json!({"msg_count": copies.count, "data_size": copies.bytes});
                        insert(t, "request", "copy_data_in", said);
                    }
                    t.finish_side(ToServer);
                }
            }
            b'X' => {
                self.asked(time, out, |r| {
                    r.insert("message".into(), "termination_message".into());
                });
                self.finish(out);
            }
            // Prepared statements, function calls.
            b'B' | b'C' | b'D' | b'E' | b'F' | b'H' | b'P' | b'S' => {}
            _ => return None,
        }
        Some(())
    }

    /// A message of a server; `None`: it is malformed.
    fn response(&mut self, kind: u8, body: &[u8], size: u64, out: &mut Transactions) -> Option<()> {
        match kind {
            b'R' => {
                let how = be32(body, 0)?;
                let rest = body.get(4..)?;
                match how {
                    0 => self.said(out, "message", "authentication_ok".into()),
                    3 => self.said(out, "message", "authentication_cleartext_password".into()),
                    5 => self.said(out, "authentication_md5_password", text(rest)),
                    10 => self.said(out, "message", "authentication_sasl".into()),
                    11 => self.said(out, "message", "authentication_sasl_continue".into()),
                    12 => self.said(out, "authentication_sasl_final", text(rest)),
                    other => self.said(out, "message", format!("authentication_{other}").into()),
                }
                self.proof = match how {
                    10 => Proof::Mechanism,
                    11 => Proof::More,
                    _ => Proof::Password,
                };
                // The last ones are followed by more.
                if !matches!(how, 0 | 12) {
                    self.finish(out);
                }
            }
            b'S' => {
                let (name, rest) = terminated(body)?;
                let (value, _) = terminated(rest)?;
                // One that changes later is about no request.
                if self.wanted.records
                    && let Some(t) = self.id.and_then(|id| out.find(id))
                    && let Some(r) = t
                        .record
                        .entry("response")
                        .or_insert_with(|| json!({}))
                        .as_object_mut()
                    && let Some(all) = r
                        .entry("parameter_status")
                        .or_insert_with(|| json!([]))
                        .as_array_mut()
                    && all.len() < MOST_PARAMETERS
                {
                    all.push(parameter(name, value));
                }
            }
            b'K' => {
                let (process, secret) = (be32(body, 0)?, be32(body, 4)?);
                self.said(out, "process_id", process.into());
                self.said(out, "secret_key", secret.into());
            }
            b'T' => {
                let count = be16(body, 0)?;
                self.said(out, "field_count", count.into());
            }
            b'D' => {
                // Each value is behind its length.
                let heads = 2 + 4 * u64::from(be16(body, 0)?);
                self.rows.add(size.saturating_sub(heads));
            }
            b'd' => self.copied.add(size),
            b'G' | b'H' => {
                let columns = be16(body, 1)?;
                let name = if kind == b'G' {
                    "copy_in_response"
                } else {
                    "copy_out_response"
                };
                self.said(out, name, json!({"columns": columns}));
                if kind == b'G' {
                    self.finish(out);
                }
            }
            b'C' => {
                let (done, _) = terminated(body)?;
                let (rows, copied) = (self.rows, self.copied);
                if rows.count > 0 {
                    self.said(out, "data_rows", rows.count.into());
                    self.said(out, "data_size", rows.bytes.into());
                }
                if copied.count > 0 {
                    let copied = json!({"row_count": copied.count, "data_size": copied.bytes});
                    self.said(out, "copy_data_out", copied);
                }
                self.said(out, "command_completed", text(done));
            }
            b'E' | b'N' => {
                let mut rest = body;
                while let Some((&field, after)) = rest.split_first().filter(|(f, _)| **f != 0) {
                    let (value, after) = terminated(after)?;
                    rest = after;
                    let key = match field {
                        b'S' => "severity_localizable",
                        b'V' => "severity_non_localizable",
                        b'C' => "code",
                        b'M' => "message",
                        b'F' => "file",
                        b'L' => "line",
                        b'R' => "routine",
                        _ => continue,
                    };
                    self.said(out, key, text(value));
                }
                if kind == b'E' && !self.open {
                    self.finish(out);
                }
            }
            b'Z' => {
                self.open = true;
                self.finish(out);
            }
            // Answers about prepared statements, notifications, ends of copies.
            b'1' | b'2' | b'3' | b'A' | b'I' | b'V' | b'W' | b'c' | b'n' | b's' | b't' | b'v' => {}
            _ => return None,
        }
        Some(())
    }

    /// Takes the message at the front of these bytes.
    fn take(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) -> Taken {
        if d == ToServer && !self.begun {
            let Some(length) = be32(bytes, 0) else {
                return Taken::More;
            };
            if !(8..=MOST_START).contains(&length) {
                self.give_up(d, "invalid_length", time, out);
                return Taken::More;
            }
            let Some(message) = bytes.get(..length as usize) else {
                return Taken::More;
            };
            if self.start(message, time, out).is_none() {
                self.give_up(d, "malformed_request", time, out);
            }
            let all = message.len();
            self.frame((d, self.id), (bytes, all), all, out);
            return Taken::Bytes(message.len());
        }
        if d == ToClient && self.asked_encryption {
            self.asked_encryption = false;
            // An error of an old server is a message.
            if let Some(granted @ (b'S' | b'N' | b'G')) = bytes.first() {
                let granted = *granted != b'N';
                self.said(out, "ssl_accepted", granted.into());
                self.finish(out);
                if granted {
                    out.change = Some(Change::default());
                }
                return Taken::Bytes(1);
            }
        }
        let Some((&kind, length)) = bytes.first().zip(be32(bytes, 1)) else {
            return Taken::More;
        };
        let Some(size) = u64::from(length).checked_sub(4) else {
            self.give_up(d, "invalid_length", time, out);
            return Taken::More;
        };
        // Of rows and copies only the size counts.
        let looked = match kind {
            b'd' => 0,
            b'D' if d == ToClient => 2,
            _ => MOST_MESSAGE,
        };
        let kept = size.min(looked as u64) as usize;
        let Some(body) = bytes.get(5..5 + kept) else {
            return Taken::More;
        };
        let before = self.id;
        let read = match d {
            ToServer => self.request(kind, body, size, time, out),
            ToClient => self.response(kind, body, size, out),
        };
        if read.is_none() {
            let event = match d {
                ToServer => "malformed_request",
                ToClient => "malformed_response",
            };
            self.give_up(d, event, time, out);
        }
        let whole = 1 + length as usize;
        // The last message of an exchange ends it.
        let id = self.id.or(before);
        self.frame((d, id), (bytes, 5 + kept), whole, out);
        Taken::Passing(5 + kept, size - kept as u64)
    }

    /// The frame of a message of so many bytes, of which those of `kept` are there, in a transaction.
    fn frame(
        &self,
        (d, id): (Direction, Option<u64>),
        (bytes, kept): (&[u8], usize),
        whole: usize,
        out: &mut Transactions,
    ) {
        if self.wanted.buffers.has(Buffer::FramePgsqlPdu)
            && let Some(t) = id.and_then(|id| out.find(id))
            && let Some(part) = bytes.get(..kept)
        {
            t.frame_part((Buffer::FramePgsqlPdu, d), (part, whole), Some(bytes.len()));
        }
    }

    /// What comes is not understood.
    fn give_up(&mut self, d: Direction, event: &'static str, time: u64, out: &mut Transactions) {
        match d {
            ToServer => _ = self.begin(time, out),
            ToClient => self.answers(time, out),
        }
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            t.event(event);
        }
        self.finish(out);
        out.failed = true;
    }
}

impl Parser for Pgsql {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut carry = std::mem::take(d.of_mut(&mut self.halves));
        let mut rest = Vec::new();
        carry.feed(bytes, |front| {
            if out.failed {
                return Taken::More;
            }
            if out.change.is_some() {
                rest = front.to_vec();
                return Taken::Bytes(front.len());
            }
            self.take(d, front, time, out)
        });
        if let Some(change) = &mut out.change {
            change.to = Some(App::Tls);
            *d.of_mut(&mut change.rest) = rest;
        }
        *d.of_mut(&mut self.halves) = carry;
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        // Where the next message begins is not known.
        if !d.of_mut(&mut self.halves).gap(length) {
            self.finish(out);
            out.failed = true;
        }
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToClient {
            self.finish(out);
        }
    }

    fn is_between(&self, d: Direction) -> bool {
        d.of(&self.halves).is_empty()
    }

    fn memory(&self) -> usize {
        size_of::<Pgsql>() + self.halves.iter().map(Carry::memory).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::probe::Ports;
    use crate::app::tests::converse_all;

    const PORTS: Ports = Ports {
        client: 40_000,
        server: 5432,
    };

    fn m(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    fn start(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
    }

    const PARAMETERS: &[u8] = b"\0\x03\0\0user\0joe\0database\0shop\0DateStyle\0ISO\0\0";

    #[test]
    fn a_session_is_told_from_its_start_to_its_end() {
        let opened = [
            m(b'R', &[0; 4]),
            m(b'S', b"TimeZone\0UTC\0"),
            m(b'K', &[0, 0, 0, 9, 0, 0, 0, 8]),
            m(b'Z', b"I"),
        ]
        .concat();
        let rows = [
            m(b'T', b"\0\x02"),
            m(b'D', b"\0\x02\0\0\0\x01a\0\0\0\x02bc"),
            m(b'D', b"\0\x02\0\0\0\x01a\xff\xff\xff\xff"),
            m(b'C', b"SELECT 2\0"),
            m(b'Z', b"I"),
        ]
        .concat();
        let failed = [m(b'E', b"SERROR\0C57014\0Mno\0\0"), m(b'Z', b"I")].concat();
        let parts: &[(Direction, &[u8])] = &[
            (ToServer, &start(&ENCRYPT.to_be_bytes())),
            (ToClient, b"N"),
            (ToServer, &start(PARAMETERS)),
            (ToClient, &m(b'R', b"\0\0\0\x05salt")),
            (ToServer, &m(b'p', b"md5secret\0")),
            (ToClient, &opened),
            (ToServer, &m(b'Q', b"select 1\0")),
            (ToClient, &rows),
            (ToServer, &m(b'Q', b"select 2\0")),
            (ToClient, &failed),
            (ToServer, &m(b'X', b"")),
        ];
        let c = converse_all(parts, PORTS);
        assert_eq!(c.app(), App::Pgsql);
        let r: Vec<_> = c.transactions.live.iter().map(|t| &t.record).collect();
        assert_eq!(r[0]["response"]["ssl_accepted"], false);
        let start = &r[1]["request"]["startup_parameters"];
        assert_eq!(start["user"], "joe");
        assert_eq!(start["optional_parameters"][1]["date_style"], "ISO");
        assert_eq!(r[1]["response"]["authentication_md5_password"], "salt");
        assert_eq!(r[2]["request"]["password"], "md5secret");
        assert_eq!(r[2]["response"]["parameter_status"][0]["time_zone"], "UTC");
        assert_eq!(r[2]["response"]["secret_key"], 8);
        assert_eq!(r[3]["request"]["simple_query"], "select 1");
        let said = &r[3]["response"];
        assert_eq!(
            (&said["data_rows"], &said["data_size"]),
            (&2.into(), &4.into())
        );
        assert_eq!(r[4]["response"]["code"], "57014");
        assert_eq!(r[5]["request"]["message"], "termination_message");
        assert_eq!(r[5]["tx_id"], 6);
        let query: Vec<_> = c.transactions.live[3]
            .get(Buffer::PgsqlQuery, ToServer)
            .collect();
        assert_eq!(query, [b"select 1"]);
    }

    #[test]
    fn encryption_is_followed() {
        let hello = b"\x16\x03\x01\x00\x01\x01";
        let asks = start(&ENCRYPT.to_be_bytes());
        let c = converse_all(
            &[(ToServer, &asks), (ToClient, b"S"), (ToServer, hello)],
            PORTS,
        );
        assert_eq!((c.app(), c.before()), (App::Tls, Some(App::Pgsql)));
    }

    #[test]
    fn copies_and_mechanisms() {
        let out = [
            m(b'H', b"\0\0\x03"),
            m(b'd', b"12345"),
            m(b'd', b"678"),
            m(b'c', b""),
            m(b'C', b"COPY 2\0"),
            m(b'Z', b"I"),
        ]
        .concat();
        let copies = [m(b'd', b"xx"), m(b'd', b"y"), m(b'c', b"")].concat();
        let done = [m(b'C', b"COPY 1\0"), m(b'Z', b"I")].concat();
        let parts: &[(Direction, &[u8])] = &[
            (ToServer, &start(PARAMETERS)),
            (ToClient, &m(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0")),
            (ToServer, &m(b'p', b"SCRAM-SHA-256\0\0\0\0\x02n,")),
            (ToClient, &m(b'R', b"\0\0\0\x0br=x")),
            (ToServer, &m(b'p', b"c=biws")),
            (
                ToClient,
                &[m(b'R', b"\0\0\0\x0cv=y"), m(b'R', &[0; 4]), m(b'Z', b"I")].concat(),
            ),
            (ToServer, &m(b'Q', b"COPY a TO STDOUT\0")),
            (ToClient, &out),
            (ToServer, &m(b'Q', b"COPY a FROM STDIN\0")),
            (ToClient, &m(b'G', b"\0\0\x02")),
            (ToServer, &copies),
            (ToClient, &done),
        ];
        let c = converse_all(parts, PORTS);
        let r: Vec<_> = c.transactions.live.iter().map(|t| &t.record).collect();
        assert_eq!(
            r[1]["request"]["sasl_authentication_mechanism"],
            "SCRAM-SHA-256"
        );
        assert_eq!(r[2]["response"]["authentication_sasl_final"], "v=y");
        assert_eq!(r[3]["response"]["copy_out_response"]["columns"], 3);
        assert_eq!(r[3]["response"]["copy_data_out"]["data_size"], 8);
        assert_eq!(r[4]["response"]["copy_in_response"]["columns"], 2);
        assert_eq!(r[5]["request"]["copy_data_in"]["msg_count"], 2);
        assert_eq!(r[5]["response"]["command_completed"], "COPY 1");
    }

    #[test]
    fn what_is_wrong_ends_it_and_memory_has_a_bound() {
        let (mut p, mut out) = (
            Pgsql::new(&crate::app::tests::wanted()),
            Transactions::default(),
        );
        p.data(ToServer, &start(PARAMETERS), 1, &mut out);
        p.data(ToServer, &[b'Q', 0x40, 0, 0, 0], 1, &mut out);
        for _ in 0..1000 {
            p.data(ToServer, &[b'x'; 1000], 1, &mut out);
            assert!(p.memory() < 256 << 10);
        }
        assert!(!out.failed);
        p.data(ToClient, &[b'T', 0, 0, 0, 3], 1, &mut out);
        assert!(out.failed);
        assert!(out.live.iter().any(|t| t.events == ["invalid_length"]));
    }
}
