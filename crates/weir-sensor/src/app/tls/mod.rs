//! TLS and SSL up to where encryption begins: hellos, certificates, fingerprints. One transaction a flow. Records are put together from segments, handshake messages from records.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

pub(crate) mod certificate;
pub(crate) mod hello;
mod show;

use self::hello::{Hello, Reader, md5_hex};
use self::show::{
    DRAFTS_BEFORE_16, about, base64, certificate_buffers, client_buffers, first_certificate, push,
    random_buffers,
};
pub(super) use self::show::{client_record, fingerprint};
pub(crate) use self::show::{is_told, version_name};
use super::framed::Frames;
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Fact, Log, Parser, Protocol, Sides, Written};
use super::text::text;
use super::transaction::{Kind, Stage, Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// A longer handshake message is passed over.
const MOST_MESSAGE: usize = 256 * 1024;
/// The longest record, with the room that ends grant beyond the standard.
const MOST_RECORD: usize = 0x4800;
/// Records that a segment may have before it is odd.
const MANY_RECORDS: usize = 30;
/// The least padding of a heartbeat.
const LEAST_PADDING: usize = 16;
/// Certificates of a chain that are looked at.
const MOST_CERTIFICATES: usize = 16;

/// What rules inspect of certificates of either end.
const OF_CERTIFICATES: [Buffer; 5] = [
    Buffer::TlsCerts,
    Buffer::TlsCertSubject,
    Buffer::TlsCertIssuer,
    Buffer::TlsCertSerial,
    Buffer::TlsCertFingerprint,
];

const CLIENT_HELLO: u64 = 1;
const SERVER_HELLO: u64 = 2;
const CLIENT_KEYX: u64 = 4;
const SERVER_KEYX: u64 = 8;

pub(super) const TLS: Protocol = Protocol {
    app: App::Tls,
    aliases: &["ssl"],
    services: &["https"],
    stream: Some(StreamProbe::new(Certainty::Sure, stream)),
    sides: Sides::Both,
    parser: Some(|start| Box::new(Tls::new(start.asked))),
    kind: Some(&KIND),
    loud: true,
    client_first: true,
    // Of an older decoder of certificates, of SSLv2 behind its first message, and of what is encrypted.
    unraised_events: &[
        "certificate_invalid_extensions",
        "certificate_invalid_issuer",
        "certificate_invalid_string",
        "certificate_invalid_subject",
        "certificate_invalid_validity",
        "certificate_invalid_version",
        "certificate_missing_element",
        "certificate_unknown_element",
        "dataleak_heartbeat_mismatch",
        "error_message_encountered",
    ],
    states: [
        &["client_in_progress", "client_hello_done"],
        &[
            "server_in_progress",
            "server_hello",
            "server_cert_done",
            "server_hello_done",
        ],
    ],
    hooks: &[
        ("client_in_progress", ToServer, Stage::Begun),
        ("client_hello_done", ToServer, Stage::Shaken(1)),
        ("server_in_progress", ToClient, Stage::Begun),
        // Certificates come with the hello, or hidden behind it.
        ("server_hello", ToClient, Stage::Shaken(2)),
        ("server_cert_done", ToClient, Stage::Shaken(2)),
        ("server_hello_done", ToClient, Stage::Shaken(2)),
    ],
    no_hooks: &[(
        &[
            "client_cert_done",
            "client_handshake_done",
            "client_finished",
            "server_handshake_done",
            "server_finished",
            "request_complete",
            "response_complete",
        ],
        "what follows the hellos of a handshake is not told apart here",
    )],
    facts: &[
        Fact {
            keyword: "tls.cert_chain_len",
            what: "certificates of the server's chain",
            ..Fact::NONE
        },
        Fact {
            keyword: "tls_cert_notbefore",
            fact: Some("tls.cert_notbefore"),
            written: Written::Date,
            what: "when the first certificate begins to hold",
            ..Fact::NONE
        },
        Fact {
            keyword: "tls_cert_notafter",
            fact: Some("tls.cert_notafter"),
            written: Written::Date,
            what: "when it ends",
            ..Fact::NONE
        },
    ],
    log: Log {
        numbered: false,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Tls,
    events: &[
        "certificate_invalid_algorithmidentifier",
        "certificate_invalid_date",
        "certificate_invalid_der",
        "certificate_invalid_length",
        "certificate_invalid_serial",
        "certificate_invalid_x509name",
        "handshake_invalid_length",
        "heartbeat_message",
        "invalid_certificate",
        "invalid_handshake_message",
        "invalid_heartbeat_message",
        "invalid_record_length",
        "invalid_record_type",
        "invalid_record_version",
        "invalid_sni_length",
        "invalid_sni_type",
        "invalid_ssl_record",
        "invalid_sslv2_header",
        "invalid_tls_header",
        "multiple_sni_extensions",
        "overflow_heartbeat_message",
        "too_many_records_in_packet",
    ],
    // The messages of the handshake tell who answers.
    answered: |t| t.facts("ssl_state").any(|s| s & 10 != 0),
    ..Kind::EXCHANGE
};

fn stream(first: &First<'_>) -> Look {
    let (bytes, server) = (first.bytes, first.is_server());
    let Some(&kind) = bytes.first() else {
        return Look::Maybe;
    };
    let is = |good: bool| if good { Look::Yes } else { Look::No };
    if kind & 0x80 != 0 && !server {
        // An SSLv2 hello: length, type 1, version 2.0 or 3.x.
        let [_, _, hello, major, minor, ..] = *bytes else {
            return match bytes.get(2).is_none_or(|b| *b == 1) {
                true => Look::Maybe,
                false => Look::No,
            };
        };
        let version = u16::from_be_bytes([major, minor]);
        return is(hello == 1 && matches!(version, 2 | 0x0200 | 0x0300..=0x0304));
    }
    if !matches!(kind, 0x15 | 0x16) {
        return Look::No;
    }
    let right = bytes.get(1).is_none_or(|b| *b == 3)
        && bytes.get(2).is_none_or(|b| *b <= 4)
        && bytes.get(3).is_none_or(|b| *b <= 0x48);
    if !right {
        return Look::No;
    }
    let [_, _, _, a, b, message, ..] = *bytes else {
        return Look::Maybe;
    };
    is(match kind {
        0x15 => [a, b] == [0, 2] && matches!(message, 1 | 2),
        _ => message == if server { 2 } else { 1 },
    })
}

pub(super) struct Tls {
    wanted: Wanted,
    halves: [Half; 2],
    id: Option<u64>,
    /// As agreed, or offered as long as nothing is.
    version: u16,
    client_session: Vec<u8>,
    /// The client has something of an earlier session.
    ticket: bool,
    /// That session was taken up again.
    resumed: bool,
    certificate: bool,
    /// The server wants one of the client.
    certificate_asked: bool,
    /// The client has shown it.
    client_certificate: bool,
}

#[derive(Default)]
struct Half {
    /// The beginning of a record.
    carry: Vec<u8>,
    /// The beginning of a handshake message.
    message: Vec<u8>,
    /// Bytes of a message that is passed over.
    skip: usize,
    /// What follows cannot be read.
    encrypted: bool,
    /// It made no sense from somewhere on. The other end's may.
    broken: bool,
    started: bool,
}

impl Tls {
    pub(super) fn new(wanted: &Wanted) -> Tls {
        Tls {
            wanted: *wanted,
            halves: [Half::default(), Half::default()],
            id: None,
            version: 0,
            client_session: Vec::new(),
            ticket: false,
            resumed: false,
            certificate: false,
            certificate_asked: false,
            client_certificate: false,
        }
    }

    fn transaction<'a>(&mut self, out: &'a mut Transactions) -> Option<&'a mut Transaction> {
        out.find(self.id?)
    }

    /// Ends the transaction: everything that can be read has been.
    fn finish(&mut self, out: &mut Transactions) {
        self.sum_up(out);
        if let Some(t) = self.transaction(out) {
            t.finish();
        }
    }

    /// The record is whole: both ends have said what is in the clear.
    fn sum_up(&mut self, out: &mut Transactions) {
        let Tls {
            version, wanted, ..
        } = *self;
        let resumed = self.resumed && !self.certificate;
        if let Some(t) = self.transaction(out) {
            if wanted.records && !t.record.contains_key("version") {
                t.record
                    .insert("version".into(), version_name(version).into());
            }
            // TLS 1.3 hides whether there is a certificate.
            if wanted.records && resumed && version < 0x0304 {
                t.record.insert("session_resumed".into(), true.into());
            }
            t.ready = true;
        }
    }

    /// What one end says cannot be read on.
    fn fail(&mut self, d: Direction, event: &'static str, out: &mut Transactions) {
        if let Some(t) = self.transaction(out) {
            t.event(event);
            // What stands at the front of a record makes no header, and what follows no record.
            if event.starts_with("invalid_record_") {
                t.event("invalid_tls_header");
                t.event("invalid_ssl_record");
            }
        }
        self.side_done(d, out);
        let half = d.of_mut(&mut self.halves);
        *half = Half {
            broken: true,
            started: true,
            encrypted: half.encrypted,
            ..Half::default()
        };
        if self.halves.iter().all(|h| h.broken || h.encrypted) {
            self.finish(out);
            out.failed = true;
        }
    }

    fn state(&mut self, bit: u64, out: &mut Transactions) {
        if let Some(t) = self.transaction(out) {
            match t.facts.iter_mut().find(|f| f.0 == "ssl_state") {
                Some(f) => f.1 |= bit,
                None => t.facts.push(("ssl_state", bit)),
            }
        }
    }

    fn versions(&mut self, version: u16, out: &mut Transactions) {
        self.version = version;
        if let Some(t) = self.transaction(out) {
            for name in ["tls.version", "ssl_version"] {
                match t.facts.iter_mut().find(|f| f.0 == name) {
                    Some(f) => f.1 = u64::from(version),
                    None => t.facts.push((name, u64::from(version))),
                }
            }
        }
    }

    /// Frames of the record at the front of these bytes, whose body has this length.
    fn frames(&mut self, d: Direction, bytes: &[u8], length: usize, out: &mut Transactions) {
        let asked = self.wanted.buffers;
        if self.wanted.said.frames == Frames::None || d.of(&self.halves).encrypted {
            return;
        }
        let Some(t) = self.transaction(out) else {
            return;
        };
        let special = match bytes.first() {
            Some(21) => Some(Buffer::FrameTlsAlert),
            Some(24) => Some(Buffer::FrameTlsHeartbeat),
            _ => None,
        };
        let parts = [
            (Some(Buffer::FrameTlsPdu), 0..5 + length),
            (Some(Buffer::FrameTlsHeader), 0..5),
            (Some(Buffer::FrameTlsData), 5..5 + length),
            (special, 5..5 + length),
        ];
        for (buffer, range) in parts {
            let behind = bytes.len() - range.start;
            if let Some(buffer) = buffer.filter(|b| asked.has(*b))
                && let Some(bytes) = bytes.get(range)
            {
                t.frame((buffer, d), bytes, Some(behind));
                // Of an end that was decided before, rules are asked again.
                *d.of_mut(&mut t.inspected) = false;
            }
        }
    }

    /// One record.
    fn record(&mut self, d: Direction, kind: u8, body: &[u8], out: &mut Transactions) {
        let half = d.of_mut(&mut self.halves);
        match kind {
            // Change of cipher: in TLS 1.3 it means nothing, and encryption has begun anyway.
            20 | 23 => {
                half.encrypted = true;
                half.message = Vec::new();
                self.side_done(d, out);
                if self.halves.iter().all(|h| h.encrypted) {
                    self.finish(out);
                    out.encrypted = true;
                }
            }
            22 if !half.encrypted => self.handshake(d, body, out),
            // A fatal alert, instead of the rest of the handshake.
            21 if !half.encrypted && d == ToClient && body.first() == Some(&2) => self.sum_up(out),
            24 => self.heartbeat(d, body, out),
            21 | 22 => {}
            _ => self.fail(d, "invalid_record_type", out),
        }
    }

    /// A heartbeat in the clear: asks for more of the other end's memory than it brings, or has no padding.
    fn heartbeat(&mut self, d: Direction, body: &[u8], out: &mut Transactions) {
        if let Some(t) = self.transaction(out) {
            t.event("heartbeat_message");
        }
        if d.of(&self.halves).encrypted {
            return;
        }
        let event = match body {
            [1 | 2, high, low, rest @ ..] => {
                let said = usize::from(u16::from_be_bytes([*high, *low]));
                if said > rest.len() {
                    "overflow_heartbeat_message"
                } else if rest.len() - said < LEAST_PADDING {
                    "invalid_heartbeat_message"
                } else {
                    return;
                }
            }
            _ => "invalid_heartbeat_message",
        };
        if let Some(t) = self.transaction(out) {
            t.event(event);
        }
    }

    fn side_done(&mut self, d: Direction, out: &mut Transactions) {
        if let Some(t) = self.transaction(out) {
            *d.of_mut(&mut t.complete) = true;
        }
    }

    /// The client has said more of what rules ask for than its hello, which was decided by itself.
    fn decide_again(&mut self, out: &mut Transactions) {
        if let Some(t) = self.transaction(out) {
            *ToServer.of_mut(&mut t.inspected) = false;
            *ToServer.of_mut(&mut t.complete) = true;
        }
    }

    fn handshake(&mut self, d: Direction, body: &[u8], out: &mut Transactions) {
        let mut message = std::mem::take(&mut d.of_mut(&mut self.halves).message);
        let skip = d.of(&self.halves).skip.min(body.len());
        d.of_mut(&mut self.halves).skip -= skip;
        message.extend_from_slice(&body[skip..]);
        let mut rest = message.as_slice();
        while rest.len() >= 4 {
            let length =
                usize::from(rest[1]) << 16 | usize::from(rest[2]) << 8 | usize::from(rest[3]);
            let Some(content) = rest.get(4..4 + length) else {
                if length > MOST_MESSAGE {
                    if let Some(t) = self.transaction(out) {
                        t.event("handshake_invalid_length");
                    }
                    d.of_mut(&mut self.halves).skip = 4 + length - rest.len();
                    rest = &[];
                }
                break;
            };
            self.message(d, rest[0], content, out);
            if d.of(&self.halves).broken {
                return;
            }
            rest = &rest[4 + length..];
        }
        // What is left stays where it is: a message in records of one byte must not be copied for each.
        let used = message.len() - rest.len();
        message.drain(..used);
        let half = d.of_mut(&mut self.halves);
        if !half.encrypted {
            half.message = message;
        }
    }

    fn message(&mut self, d: Direction, kind: u8, content: &[u8], out: &mut Transactions) {
        match (kind, d) {
            (1, ToServer) => match Hello::client(content) {
                Some(hello) => self.client_hello(&hello, out),
                None => self.fail(d, "invalid_handshake_message", out),
            },
            (2, ToClient) => match Hello::server(content) {
                Some(hello) => self.server_hello(&hello, out),
                None => self.fail(d, "invalid_handshake_message", out),
            },
            (11, ToServer) => {
                self.client_certificates(content, out);
                self.sum_up(out);
            }
            (11, ToClient) => {
                if !self.certificate {
                    self.certificates(content, out);
                }
                self.side_done(ToClient, out);
            }
            (12, ToClient) => self.state(SERVER_KEYX, out),
            (13, ToClient) => self.certificate_asked = true,
            (14, ToClient) => {
                self.side_done(ToClient, out);
                if !self.certificate_asked {
                    self.sum_up(out);
                }
            }
            (16, ToServer) => {
                self.state(CLIENT_KEYX, out);
                if self.wanted.keys {
                    self.decide_again(out);
                }
            }
            _ => {}
        }
    }

    fn client_hello(&mut self, hello: &Hello, out: &mut Transactions) {
        let w = self.wanted;
        self.client_session.clone_from(&hello.session);
        self.ticket |= hello.ticket;
        self.versions(hello.version(), out);
        self.state(CLIENT_HELLO, out);
        let Some(t) = self.transaction(out) else {
            return;
        };
        client_buffers(t, hello, &w);
        random_buffers(t, hello, ToServer, &w);
        if w.records {
            client_record(t, hello, w.said, false);
        }
        // A second hello, after a retry, adds nothing that rules wait for.
        t.complete[0] = true;
    }

    fn server_hello(&mut self, hello: &Hello, out: &mut Transactions) {
        let w = self.wanted;
        let version = hello.version();
        let same = !hello.session.is_empty() && hello.session == self.client_session;
        self.resumed = self.ticket || same;
        self.versions(version, out);
        self.state(SERVER_HELLO, out);
        let Some(t) = self.transaction(out) else {
            return;
        };
        let b = w.buffers;
        if w.records && w.said.ja3 || b.has(Buffer::Ja3sHash) || b.has(Buffer::Ja3sString) {
            let string = hello.ja3s();
            let hash = md5_hex(&string);
            push(
                t,
                b.has(Buffer::Ja3sString),
                Buffer::Ja3sString,
                ToClient,
                string.as_bytes(),
            );
            push(
                t,
                b.has(Buffer::Ja3sHash),
                Buffer::Ja3sHash,
                ToClient,
                hash.as_bytes(),
            );
            if w.records && w.said.ja3 {
                t.record.insert("ja3s".into(), fingerprint(hash, string));
            }
        }
        for name in &hello.alpn {
            push(t, b.has(Buffer::TlsAlpn), Buffer::TlsAlpn, ToClient, name);
        }
        random_buffers(t, hello, ToClient, &w);
        if w.records {
            // Before draft 16 the number of the final version stood in the header, where it never stands now.
            let name = match hello.legacy_version {
                0x0304 => DRAFTS_BEFORE_16.to_owned(),
                _ => version_name(version),
            };
            t.record.insert("version".into(), name.into());
            if !hello.alpn.is_empty() {
                let names: Vec<_> = hello.alpn.iter().map(|a| text(a)).collect();
                t.record.insert("server_alpns".into(), names.into());
            }
            if w.said.handshakes {
                let mut said = serde_json::Map::new();
                said.insert("version".into(), version_name(hello.legacy_version).into());
                if let Some(cipher) = hello.ciphers.first() {
                    said.insert("cipher".into(), (*cipher).into());
                }
                if !hello.extensions.is_empty() {
                    said.insert("exts".into(), hello.extensions.clone().into());
                }
                t.record.insert("server_handshake".into(), said.into());
            }
        }
        for event in &hello.events {
            t.event(event);
        }
        // From here on TLS 1.3 is encrypted, in both directions.
        if version >= 0x0304 || version >> 8 == 0x7f {
            t.complete = [true; 2];
        }
    }

    fn certificates(&mut self, content: &[u8], out: &mut Transactions) {
        let w = self.wanted;
        self.certificate = true;
        let Some(t) = self.transaction(out) else {
            return;
        };
        let Some(list) = Reader(content).list(3) else {
            t.event("invalid_certificate");
            return;
        };
        let mut r = Reader(list);
        let mut count = 0;
        let mut chain: Vec<serde_json::Value> = Vec::new();
        while !r.0.is_empty() {
            let Some(der) = r.list(3) else {
                t.event("invalid_certificate");
                break;
            };
            count += 1;
            if count > MOST_CERTIFICATES {
                continue;
            }
            if w.records && w.said.certificates {
                chain.push(base64(der).into());
            }
            push(
                t,
                w.buffers.has(Buffer::TlsCerts),
                Buffer::TlsCerts,
                ToClient,
                der,
            );
            if count == 1 {
                first_certificate(t, der, &w);
            }
        }
        t.facts.push(("tls.cert_chain_len", count as u64));
        if let Some(first) = chain.first() {
            t.record.insert("certificate".into(), first.clone());
            t.record.insert("chain".into(), chain.into());
        }
    }

    /// The client's own certificate, if it was asked for one.
    fn client_certificates(&mut self, content: &[u8], out: &mut Transactions) {
        let w = self.wanted;
        let asked = OF_CERTIFICATES.iter().any(|b| w.buffers.has(*b));
        if !w.records && !asked || self.client_certificate {
            return;
        }
        self.client_certificate = true;
        let Some(t) = self.transaction(out) else {
            return;
        };
        let mut r = Reader(Reader(content).list(3).unwrap_or_default());
        let mut said = serde_json::Map::new();
        let mut chain: Vec<serde_json::Value> = Vec::new();
        let mut count = 0;
        while !r.0.is_empty()
            && count < MOST_CERTIFICATES
            && let Some(der) = r.list(3)
        {
            count += 1;
            let all = w.buffers.has(Buffer::TlsCerts);
            push(t, all, Buffer::TlsCerts, ToServer, der);
            if count == 1 {
                let (print, certificate) = certificate_buffers(t, der, ToServer, &w);
                if w.records {
                    said.insert("fingerprint".into(), print.into());
                    if let Ok(c) = certificate {
                        about(&mut said, &c);
                    }
                }
            }
            if w.records && w.said.certificates {
                chain.push(base64(der).into());
            }
        }
        if let Some(first) = chain.first() {
            said.insert("certificate".into(), first.clone());
            said.insert("chain".into(), chain.into());
        }
        if !said.is_empty() {
            t.record.insert("client".into(), said.into());
        }
        if asked && count > 0 {
            self.decide_again(out);
        }
    }

    /// An SSLv2 hello of a client; returns its length when it is whole.
    fn old_hello(&mut self, d: Direction, bytes: &[u8], out: &mut Transactions) -> Option<usize> {
        let length = usize::from(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]) & 0x7fff);
        let body = bytes.get(2..2 + length)?;
        let version = match body.get(1..3) {
            Some([0, 2] | [2, 0]) => 2,
            Some([a, b]) => u16::from_be_bytes([*a, *b]),
            _ => {
                self.fail(d, "invalid_sslv2_header", out);
                return Some(bytes.len());
            }
        };
        self.versions(version, out);
        self.state(CLIENT_HELLO, out);
        self.side_done(ToServer, out);
        Some(2 + length)
    }
}

impl Parser for Tls {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if self.id.is_none() {
            let from = out.from.filter(|_| self.wanted.records);
            let t = out.begin(&KIND, time);
            self.id = Some(t.id);
            if let Some(from) = from {
                t.record.insert("from_proto".into(), from.name().into());
            }
        }
        if d.of(&self.halves).broken {
            return;
        }
        let mut carry = std::mem::take(&mut d.of_mut(&mut self.halves).carry);
        let held = !carry.is_empty();
        let mut rest: &[u8] = if carry.is_empty() {
            bytes
        } else {
            carry.extend_from_slice(bytes);
            &carry
        };
        if !d.of(&self.halves).started && rest.first().is_some_and(|b| b & 0x80 != 0) {
            match self.old_hello(d, rest, out) {
                Some(used) => {
                    d.of_mut(&mut self.halves).started = true;
                    rest = &rest[used..];
                }
                None => {
                    let all = if held { carry } else { rest.to_vec() };
                    d.of_mut(&mut self.halves).carry = all;
                    return;
                }
            }
        }
        let mut records = 0;
        while rest.len() >= 5 && !d.of(&self.halves).broken && !out.encrypted {
            records += 1;
            if records == MANY_RECORDS + 1
                && let Some(t) = self.transaction(out)
            {
                t.event("too_many_records_in_packet");
            }
            d.of_mut(&mut self.halves).started = true;
            let (kind, major) = (rest[0], rest[1]);
            let length = usize::from(u16::from_be_bytes([rest[3], rest[4]]));
            if major != 3 || length > MOST_RECORD {
                // After an SSLv2 hello a server may go on with SSLv2, which nobody parses.
                let event = if major == 3 {
                    "invalid_record_length"
                } else {
                    "invalid_record_version"
                };
                return self.fail(d, event, out);
            }
            // The body of encrypted records need not be put together.
            let Some(body) = rest.get(5..5 + length) else {
                break;
            };
            self.frames(d, rest, length, out);
            self.record(d, kind, body, out);
            rest = &rest[5 + length..];
        }
        if !d.of(&self.halves).broken && !out.encrypted {
            let left = rest.len();
            d.of_mut(&mut self.halves).carry = if held {
                carry.drain(..carry.len() - left);
                carry
            } else {
                rest.to_vec()
            };
        }
    }

    fn gap(&mut self, _: Direction, _: u64, out: &mut Transactions) {
        self.finish(out);
        out.failed = true;
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        self.side_done(d, out);
        d.of_mut(&mut self.halves).encrypted = true;
        if self.halves.iter().all(|h| h.encrypted) {
            self.finish(out);
        }
    }

    fn memory(&self) -> usize {
        let half = |h: &Half| h.carry.capacity() + h.message.capacity();
        size_of::<Tls>() + half(&self.halves[0]) + half(&self.halves[1])
    }
}

#[cfg(test)]
mod tests;
