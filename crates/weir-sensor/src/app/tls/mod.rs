//! TLS and SSL up to where encryption begins: hellos, certificates, fingerprints. One transaction a flow. Records are put together from segments, handshake messages from records.

pub(crate) mod certificate;
pub(crate) mod hello;

use sha1::{Digest, Sha1};

use self::certificate::{Certificate, date};
use self::hello::{Hello, Reader, md5_hex};
use super::text::{colons, text};
use super::{App, Parser, Said, Transaction, Transactions, Wanted};
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// A longer handshake message is passed over.
const MOST_MESSAGE: usize = 256 * 1024;
/// The longest record, with the room that ends grant beyond the standard.
const MOST_RECORD: usize = 0x4800;
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
        }
        self.side_done(d, out);
        let half = &mut self.halves[d.index()];
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

    /// One record.
    fn record(&mut self, d: Direction, kind: u8, body: &[u8], out: &mut Transactions) {
        let half = &mut self.halves[d.index()];
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
            24 if !half.encrypted => self.heartbeat(body, out),
            21 | 22 | 24 => {}
            _ => self.fail(d, "invalid_record_type", out),
        }
    }

    /// A heartbeat in the clear: asks for more of the other end's memory than it brings, or has no padding.
    fn heartbeat(&mut self, body: &[u8], out: &mut Transactions) {
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
            t.complete[d.index()] = true;
        }
    }

    /// The client has said more of what rules ask for than its hello, which was decided by itself.
    fn decide_again(&mut self, out: &mut Transactions) {
        if let Some(t) = self.transaction(out) {
            t.inspected[ToServer.index()] = false;
            t.complete[ToServer.index()] = true;
        }
    }

    fn handshake(&mut self, d: Direction, body: &[u8], out: &mut Transactions) {
        let mut message = std::mem::take(&mut self.halves[d.index()].message);
        let skip = self.halves[d.index()].skip.min(body.len());
        self.halves[d.index()].skip -= skip;
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
                    self.halves[d.index()].skip = 4 + length - rest.len();
                    rest = &[];
                }
                break;
            };
            self.message(d, rest[0], content, out);
            if self.halves[d.index()].broken {
                return;
            }
            rest = &rest[4 + length..];
        }
        // What is left stays where it is: a message in records of one byte must not be copied for each.
        let used = message.len() - rest.len();
        message.drain(..used);
        let half = &mut self.halves[d.index()];
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

fn push(t: &mut Transaction, wanted: bool, buffer: Buffer, d: Direction, bytes: &[u8]) {
    if wanted {
        t.push(buffer, d, bytes);
    }
}

/// The random bytes of a hello, and their two parts.
fn random_buffers(t: &mut Transaction, hello: &Hello, d: Direction, w: &Wanted) {
    let (time, rest) = hello.random.split_at(hello.random.len().min(4));
    for (buffer, bytes) in [
        (Buffer::TlsRandom, hello.random.as_slice()),
        (Buffer::TlsRandomTime, time),
        (Buffer::TlsRandomBytes, rest),
    ] {
        push(t, w.buffers.has(buffer), buffer, d, bytes);
    }
}

pub(super) fn fingerprint(hash: String, string: String) -> serde_json::Value {
    let mut f = serde_json::Map::new();
    f.insert("hash".into(), hash.into());
    f.insert("string".into(), string.into());
    f.into()
}

/// What rules inspect of a ClientHello, over TCP.
fn client_buffers(t: &mut Transaction, hello: &Hello, w: &Wanted) {
    let b = w.buffers;
    let d = ToServer;
    if let Some(sni) = &hello.sni {
        push(t, b.has(Buffer::TlsSni), Buffer::TlsSni, d, sni);
    }
    for name in &hello.alpn {
        push(t, b.has(Buffer::TlsAlpn), Buffer::TlsAlpn, d, name);
    }
    if b.has(Buffer::Ja3Hash) || b.has(Buffer::Ja3String) {
        let string = hello.ja3();
        push(
            t,
            b.has(Buffer::Ja3String),
            Buffer::Ja3String,
            d,
            string.as_bytes(),
        );
        push(
            t,
            b.has(Buffer::Ja3Hash),
            Buffer::Ja3Hash,
            d,
            md5_hex(&string).as_bytes(),
        );
    }
    if b.has(Buffer::Ja4Hash) {
        t.push(Buffer::Ja4Hash, d, hello.ja4(false).as_bytes());
    }
    for event in &hello.events {
        t.event(event);
    }
}

/// What the log says of a ClientHello.
pub(super) fn client_record(t: &mut Transaction, hello: &Hello, said: Said, quic: bool) {
    let r = &mut t.record;
    if said.handshakes && !quic {
        let mut h = serde_json::Map::new();
        h.insert("version".into(), version_name(hello.version()).into());
        for (key, list) in [
            ("ciphers", &hello.ciphers),
            ("exts", &hello.extensions),
            ("sig_algs", &hello.signatures),
        ] {
            if !list.is_empty() {
                h.insert(key.into(), list.clone().into());
            }
        }
        r.insert("client_handshake".into(), h.into());
    }
    if let Some(sni) = &hello.sni {
        r.insert("sni".into(), text(sni));
    }
    if said.ja3 || quic {
        let string = hello.ja3();
        r.insert("ja3".into(), fingerprint(md5_hex(&string), string));
    }
    if said.ja4 || quic {
        r.insert("ja4".into(), hello.ja4(quic).into());
    }
    if !hello.alpn.is_empty() && !quic {
        let names: Vec<_> = hello.alpn.iter().map(|a| text(a)).collect();
        r.insert("client_alpns".into(), names.into());
    }
}

/// What rules inspect of the first certificate that an end shows. Returns its fingerprint (empty if nobody asks for it), and what was read of it.
fn certificate_buffers(
    t: &mut Transaction,
    der: &[u8],
    d: Direction,
    w: &Wanted,
) -> (String, Result<Certificate, &'static str>) {
    let b = w.buffers;
    let mut print = String::new();
    if w.records || b.has(Buffer::TlsCertFingerprint) {
        print = colons(&Sha1::digest(der), false);
        push(
            t,
            b.has(Buffer::TlsCertFingerprint),
            Buffer::TlsCertFingerprint,
            d,
            print.as_bytes(),
        );
    }
    let certificate = Certificate::parse(der);
    if let Ok(c) = &certificate {
        for (buffer, said) in [
            (Buffer::TlsCertSubject, &c.subject),
            (Buffer::TlsCertIssuer, &c.issuer),
            (Buffer::TlsCertSerial, &c.serial),
        ] {
            push(t, b.has(buffer), buffer, d, said.as_bytes());
        }
    }
    (print, certificate)
}

/// The server's.
fn first_certificate(t: &mut Transaction, der: &[u8], w: &Wanted) {
    let (print, certificate) = certificate_buffers(t, der, ToClient, w);
    if w.records {
        t.record.insert("fingerprint".into(), print.into());
    }
    let c = match certificate {
        Ok(c) => c,
        Err(event) => return t.event(event),
    };
    for name in &c.names {
        let b = Buffer::TlsSubjectAltName;
        push(t, w.buffers.has(b), b, ToClient, name);
    }
    for (name, time) in [
        ("tls.cert_notbefore", c.not_before),
        ("tls.cert_notafter", c.not_after),
    ] {
        match time {
            Some(time) => t.facts.push((name, time.max(0) as u64)),
            None => t.event("certificate_invalid_date"),
        }
    }
    if w.records {
        about(&mut t.record, &c);
        let r = &mut t.record;
        if !c.names.is_empty() {
            let names: Vec<_> = c.names.iter().map(|n| text(n)).collect();
            r.insert("subjectaltname".into(), names.into());
        }
    }
}

/// What records say of a certificate of either end.
fn about(r: &mut serde_json::Map<String, serde_json::Value>, c: &Certificate) {
    r.insert("subject".into(), c.subject.clone().into());
    r.insert("issuerdn".into(), c.issuer.clone().into());
    r.insert("serial".into(), c.serial.clone().into());
    for (key, time) in [("notbefore", c.not_before), ("notafter", c.not_after)] {
        if let Some(time) = time {
            r.insert(key.into(), date(time).into());
        }
    }
}

/// Whether a connection is worth a record: the server has shown a certificate, or taken up a session, or agreed on a version that hides both.
pub(crate) fn is_told(t: &Transaction) -> bool {
    let r = &t.record;
    let version = r.get("version").and_then(|v| v.as_str());
    r.contains_key("subject")
        || r.contains_key("session_resumed")
        || version.is_some_and(|v| v.starts_with("TLS 1.3"))
            && t.facts("ssl_state").any(|s| s & SERVER_HELLO != 0)
}

fn base64(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    crate::output::json::base64(&mut out, bytes);
    String::from_utf8_lossy(&out[1..out.len() - 1]).into_owned()
}

/// What logs call early drafts of TLS 1.3.
const DRAFTS_BEFORE_16: &str = "TLS 1.3 draft-<16";

fn version_name(version: u16) -> String {
    match version {
        0x0002 => "SSLv2",
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLS 1.1",
        0x0303 => "TLS 1.2",
        0x0304 => "TLS 1.3",
        0x7f00..=0x7f0f => DRAFTS_BEFORE_16,
        0x7f10..=0x7fff => return format!("TLS 1.3 draft-{}", version & 0xff),
        0 => "UNDETERMINED",
        other => return format!("0x{other:04x}"),
    }
    .to_string()
}

impl Parser for Tls {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if self.id.is_none() {
            let from = out.from.filter(|_| self.wanted.records);
            let t = out.begin(App::Tls, time);
            self.id = Some(t.id);
            if let Some(from) = from {
                t.record.insert("from_proto".into(), from.name().into());
            }
        }
        if self.halves[d.index()].broken {
            return;
        }
        let mut carry = std::mem::take(&mut self.halves[d.index()].carry);
        let held = !carry.is_empty();
        let mut rest: &[u8] = if carry.is_empty() {
            bytes
        } else {
            carry.extend_from_slice(bytes);
            &carry
        };
        if !self.halves[d.index()].started && rest.first().is_some_and(|b| b & 0x80 != 0) {
            match self.old_hello(d, rest, out) {
                Some(used) => {
                    self.halves[d.index()].started = true;
                    rest = &rest[used..];
                }
                None => {
                    let all = if held { carry } else { rest.to_vec() };
                    self.halves[d.index()].carry = all;
                    return;
                }
            }
        }
        while rest.len() >= 5 && !self.halves[d.index()].broken && !out.encrypted {
            self.halves[d.index()].started = true;
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
            self.record(d, kind, body, out);
            rest = &rest[5 + length..];
        }
        if !self.halves[d.index()].broken && !out.encrypted {
            let left = rest.len();
            self.halves[d.index()].carry = if held {
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
        self.halves[d.index()].encrypted = true;
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
mod tests {
    use super::*;
    use crate::app::Ports;
    use crate::app::tests::{converse, converse_all};

    fn list(bytes: usize, content: &[u8]) -> Vec<u8> {
        let n = (content.len() as u32).to_be_bytes();
        [&n[4 - bytes..], content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &list(2, content)].concat()
    }

    fn client_hello() -> Vec<u8> {
        let extensions = [
            extension(0x0a0a, &[]),
            extension(
                0,
                &list(2, &[&[0][..], &list(2, b"www.Example.com")].concat()),
            ),
            extension(10, &list(2, &[0, 29, 0, 23])),
            extension(11, &list(1, &[0])),
            extension(
                16,
                &list(2, &[list(1, b"h2"), list(1, b"http/1.1")].concat()),
            ),
        ]
        .concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &list(1, &[]),
            &list(2, &[0x1a, 0x1a, 0x13, 1, 0xc0, 0x2f]),
            &list(1, &[0]),
            &list(2, &extensions),
        ]
        .concat();
        [&[1][..], &list(3, &body)].concat()
    }

    fn server_hello() -> Vec<u8> {
        let body = [
            &[3, 3][..],
            &[8; 32],
            &list(1, &[]),
            &[0xc0, 0x2f, 0],
            &list(2, &extension(65281, &[0])),
        ]
        .concat();
        [&[2][..], &list(3, &body)].concat()
    }

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        if content.len() < 128 {
            [&[tag, content.len() as u8][..], content].concat()
        } else {
            [&[tag, 0x82][..], &list(2, content)].concat()
        }
    }

    pub(super) fn certificate() -> Vec<u8> {
        let name = |cn: &[u8]| {
            let c = der(0x30, &[der(6, &[0x55, 4, 6]), der(0x13, b"US")].concat());
            let n = der(0x30, &[der(6, &[0x55, 4, 3]), der(0x0c, cn)].concat());
            der(0x30, &[der(0x31, &c), der(0x31, &n)].concat())
        };
        let san = der(
            0x30,
            &[der(0x82, b"a.example"), der(0x87, &[1, 2, 3, 4])].concat(),
        );
        let ext = der(0x30, &[der(6, &[0x55, 0x1d, 0x11]), der(4, &san)].concat());
        let tbs = [
            der(0xa0, &der(2, &[2])),
            der(2, &[0, 0xab, 1]),
            der(0x30, &[]),
            name(b"Root"),
            der(
                0x30,
                &[der(0x17, b"240101000000Z"), der(0x17, b"250101000000Z")].concat(),
            ),
            name(b"a.example"),
            der(0x30, &[]),
            der(0xa3, &der(0x30, &ext)),
        ]
        .concat();
        der(
            0x30,
            &[der(0x30, &tbs), der(0x30, &[]), der(3, &[0])].concat(),
        )
    }

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind, 3, 1][..], &list(2, body)].concat()
    }

    fn server_flight() -> Vec<u8> {
        let chain = list(3, &list(3, &certificate()));
        let messages = [
            server_hello(),
            [&[11][..], &list(3, &chain)].concat(),
            vec![14, 0, 0, 0],
        ]
        .concat();
        // Messages over records of a few bytes, which no message boundary heeds.
        messages.chunks(50).flat_map(|c| record(22, c)).collect()
    }

    #[test]
    fn hellos_and_certificates_are_read_in_any_pieces() {
        let client = record(22, &client_hello());
        let server = server_flight();
        let after = [record(20, &[1]), record(22, &[9; 40])].concat();
        let c = converse_all(
            &[
                (ToServer, &client),
                (ToClient, &server),
                (ToServer, &after),
                (ToClient, &after),
            ],
            Ports::default(),
        );
        assert_eq!(c.app(), App::Tls);
        assert!(c.is_encrypted());
        let t = &c.transactions.live[0];
        assert!(t.done && t.events.is_empty(), "{:?}", t.events);
        let one = |b, d| String::from_utf8_lossy(t.get(b, d).next().unwrap()).into_owned();
        assert_eq!(one(Buffer::TlsSni, ToServer), "www.Example.com");
        assert_eq!(
            one(Buffer::Ja3String, ToServer),
            "771,4865-49199,0-10-11-16,29-23,0"
        );
        assert_eq!(one(Buffer::Ja3sString, ToClient), "771,49199,65281");
        assert_eq!(one(Buffer::TlsCertSubject, ToClient), "C=US, CN=a.example");
        assert_eq!(one(Buffer::TlsCertIssuer, ToClient), "C=US, CN=Root");
        assert_eq!(one(Buffer::TlsCertSerial, ToClient), "00:AB:01");
        assert_eq!(one(Buffer::TlsCertFingerprint, ToClient).len(), 59);
        assert_eq!(t.get(Buffer::TlsSubjectAltName, ToClient).count(), 2);
        assert_eq!(t.get(Buffer::TlsAlpn, ToServer).count(), 2);
        assert!(one(Buffer::Ja4Hash, ToServer).starts_with("t12d0204h2_"));
        for (way, byte) in [(ToServer, 7), (ToClient, 8)] {
            for (buffer, length) in [
                (Buffer::TlsRandom, 32),
                (Buffer::TlsRandomTime, 4),
                (Buffer::TlsRandomBytes, 28),
            ] {
                let found = t.get(buffer, way).next().unwrap();
                assert_eq!(found, vec![byte; length]);
            }
        }
        assert_eq!(t.facts("tls.cert_chain_len").next(), Some(1));
        assert_eq!(t.record["version"], "TLS 1.2");
        assert_eq!(t.record["notafter"], "2025-01-01T00:00:00");
        assert_eq!(t.record["subjectaltname"][1], "1.2.3.4");
        assert_eq!(t.record["sni"], "www.Example.com");
        assert_eq!(
            t.facts("ssl_state").next(),
            Some(CLIENT_HELLO | SERVER_HELLO)
        );
    }

    #[test]
    fn what_one_end_garbles_hides_nothing_of_the_other() {
        let client = [&record(22, &client_hello())[..], &[0xff; 30]].concat();
        let c = converse_all(
            &[(ToServer, &client), (ToClient, &server_flight())],
            Ports::default(),
        );
        let t = &c.transactions.live[0];
        assert_eq!(t.events, ["invalid_record_version"]);
        assert_eq!(t.get(Buffer::TlsCertSubject, ToClient).count(), 1);
        assert!(is_told(t));
        // Both: nobody reads on.
        let server = [&server_flight()[..], &[0xff; 30]].concat();
        let c = converse_all(
            &[(ToServer, &client), (ToClient, &server)],
            Ports::default(),
        );
        assert!(!c.is_parsed() && c.transactions.live[0].done);
    }

    #[test]
    fn heartbeats_that_ask_for_more_than_they_bring() {
        let hello = record(22, &client_hello());
        let padded = |kind: u8, said: u16, payload: &[u8]| {
            record(24, &[&[kind][..], &said.to_be_bytes(), payload].concat())
        };
        for (beat, events) in [
            (padded(1, 5, &[0; 21]), &[][..]),
            (padded(1, 0x4000, b""), &["overflow_heartbeat_message"]),
            (padded(1, 5, b"hello"), &["invalid_heartbeat_message"]),
            (padded(9, 0, &[0; 16]), &["invalid_heartbeat_message"]),
        ] {
            let c = converse_all(
                &[(ToServer, &[hello.clone(), beat].concat())],
                Ports::default(),
            );
            assert_eq!(c.transactions.live[0].events, events);
        }
    }

    #[test]
    fn a_handshake_without_a_certificate_is_a_record_only_if_a_session_goes_on() {
        let told = |client: &[u8], server: &[u8]| {
            let all = [(ToServer, client), (ToClient, server)];
            let c = converse_all(&all, Ports::default());
            let t = &c.transactions.live[0];
            (is_told(t), t.record.contains_key("session_resumed"))
        };
        let end = [record(20, &[1]), record(22, &[9; 40])].concat();
        let client = [record(22, &client_hello()), end.clone()].concat();
        let server = [record(22, &server_hello()), end.clone()].concat();
        assert_eq!(told(&client, &record(21, &[2, 40])), (false, false));
        assert_eq!(told(&client, &server), (false, false));
        // The same with a session that both name.
        let with_session = |hello: Vec<u8>| {
            let body = [&hello[4..38], &list(1, &[5; 32]), &hello[39..]].concat();
            [&hello[..1], &list(3, &body)].concat()
        };
        let client = [record(22, &with_session(client_hello())), end.clone()].concat();
        let server = [record(22, &with_session(server_hello())), end].concat();
        assert_eq!(told(&client, &server), (true, true));
    }

    #[test]
    fn certificates_are_read_as_far_as_they_go() {
        let good = certificate();
        let told = |der: &[u8]| {
            let chain = list(3, &list(3, der));
            let messages = [server_hello(), [&[11][..], &list(3, &chain)].concat()].concat();
            let c = converse_all(
                &[
                    (ToServer, &record(22, &client_hello())),
                    (ToClient, &record(22, &messages)),
                ],
                Ports::default(),
            );
            let t = &c.transactions.live[0];
            let subject = t.record.get("subject").and_then(|s| s.as_str());
            (t.events.clone(), subject.map(str::to_owned))
        };
        let find = |what: &[u8]| memchr::memmem::find(&good, what).unwrap();
        let all = Some("C=US, CN=a.example".to_owned());
        assert_eq!(told(&good), (vec![], all.clone()));
        // A time that is none, and an issuer that is no name, hide no subject.
        let mut odd = good.clone();
        odd[find(b"250101")] = b'x';
        assert_eq!(told(&odd), (vec!["certificate_invalid_date"], all.clone()));
        let mut odd = good.clone();
        odd[find(b"Root") - 1] = 0xff;
        assert_eq!(told(&odd), (vec![], all));
        for (bytes, event) in [
            (&b""[..], "certificate_invalid_length"),
            (b"\xde\xad\xbe\xef", "certificate_invalid_der"),
            (b"\x30\x80\0\0", "certificate_invalid_der"),
            (&good[..good.len() - 4], "invalid_certificate"),
        ] {
            assert_eq!(told(bytes), (vec![event], None));
        }
    }

    #[test]
    fn an_old_hello_and_lies() {
        let old = b"\x80\x0b\x01\x00\x02\x00\x03\x00\x00\x00\x00\x07\x00\xc0";
        let c = converse(&[(ToServer, old)], 3, Ports::default());
        assert_eq!(c.app(), App::Tls);
        assert_eq!(c.transactions.live[0].facts("ssl_version").next(), Some(2));
        // Every cut of a flight ends, and none panics.
        let all = [record(22, &client_hello()), server_flight()].concat();
        for n in 0..all.len() {
            let mut bad = all[..n].to_vec();
            bad.extend_from_slice(&[0xff; 30]);
            converse(&[(ToServer, &bad)], 100, Ports::default());
            let mut flipped = all.clone();
            flipped[n] ^= 0x55;
            let cut = client_hello().len() + 5;
            converse(
                &[(ToServer, &flipped[..cut]), (ToClient, &flipped[cut..])],
                usize::MAX,
                Ports::default(),
            );
        }
    }
}
