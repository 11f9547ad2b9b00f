//! What rules and records are shown of hellos and certificates.

use sha1::{Digest, Sha1};

use super::SERVER_HELLO;
use super::certificate::{Certificate, date};
use super::hello::{Hello, md5_hex};
use crate::app::text::{colons, text};
use crate::app::transaction::Transaction;
use crate::app::wanted::{Said, Wanted};
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

pub(super) fn push(t: &mut Transaction, wanted: bool, buffer: Buffer, d: Direction, bytes: &[u8]) {
    if wanted {
        t.push(buffer, d, bytes);
    }
}

/// The random bytes of a hello, and their two parts.
pub(super) fn random_buffers(t: &mut Transaction, hello: &Hello, d: Direction, w: &Wanted) {
    let (time, rest) = hello.random.split_at(hello.random.len().min(4));
    for (buffer, bytes) in [
        (Buffer::TlsRandom, hello.random.as_slice()),
        (Buffer::TlsRandomTime, time),
        (Buffer::TlsRandomBytes, rest),
    ] {
        push(t, w.buffers.has(buffer), buffer, d, bytes);
    }
}

pub(in crate::app) fn fingerprint(hash: String, string: String) -> serde_json::Value {
    let mut f = serde_json::Map::new();
    f.insert("hash".into(), hash.into());
    f.insert("string".into(), string.into());
    f.into()
}

/// What rules inspect of a ClientHello, over TCP.
pub(super) fn client_buffers(t: &mut Transaction, hello: &Hello, w: &Wanted) {
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
pub(in crate::app) fn client_record(t: &mut Transaction, hello: &Hello, said: Said, quic: bool) {
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
    // After a retry the client says hello again. Fingerprints are those of the first hello, as in the buffers.
    if (said.ja3 || quic) && !r.contains_key("ja3") {
        let string = hello.ja3();
        r.insert("ja3".into(), fingerprint(md5_hex(&string), string));
    }
    if (said.ja4 || quic) && !r.contains_key("ja4") {
        r.insert("ja4".into(), hello.ja4(quic).into());
    }
    if !hello.alpn.is_empty() && !quic {
        let names: Vec<_> = hello.alpn.iter().map(|a| text(a)).collect();
        r.insert("client_alpns".into(), names.into());
    }
}

/// What rules inspect of the first certificate that an end shows. Returns its fingerprint (empty if nobody asks for it), and what was read of it.
pub(super) fn certificate_buffers(
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
pub(super) fn first_certificate(t: &mut Transaction, der: &[u8], w: &Wanted) {
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
pub(super) fn about(r: &mut serde_json::Map<String, serde_json::Value>, c: &Certificate) {
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

pub(super) fn base64(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    crate::output::json::base64(&mut out, bytes);
    // Without the quotation marks.
    let text = out.get(1..out.len().saturating_sub(1));
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

/// What logs call early drafts of TLS 1.3.
pub(super) const DRAFTS_BEFORE_16: &str = "TLS 1.3 draft-<16";

pub(crate) fn version_name(version: u16) -> String {
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
