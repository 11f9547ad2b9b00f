//! QUIC: the hellos in initial packets of versions 1, 2 and late drafts, which are encrypted with keys that anyone can derive, and those of Google's versions, which are not. Each datagram with a long header is a
//! transaction, until its end's hello was seen.
//!
//! The tag of a packet is not checked: what does not decrypt to frames and a hello is not used, and a forged packet that does is what the server would see refused at worst.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

mod google;

use aes::Aes128;
use aes::cipher::{Block, BlockCipherEncrypt, KeyInit};
use sha2::{Digest, Sha256};

use self::google::Google;
use super::names::App;
use super::protocol::{Carrier, Log, Parser, Protocol};
use super::text::text;
use super::tls::hello::{Hello, Reader, is_grease, md5_hex};
use super::tls::{client_record, fingerprint};
use super::transaction::{Kind, Transaction, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// The longest ClientHello that is put together.
const MOST_CRYPTO: usize = 64 * 1024;
/// Pieces of it that may lie apart.
const MOST_PIECES: usize = 64;
/// Initial packets that are tried before the flow is given up.
const MOST_PACKETS: u32 = 64;

const V2: u32 = 0x6b33_43cf;

/// Salt of a version's initial keys.
fn salt(version: u32) -> Option<[u8; 20]> {
    Some(match version {
        1 | 0xff00_0021 | 0xff00_0022 => [
            0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
            0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
        ],
        V2 => [
            0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26,
            0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
        ],
        0xff00_001d..=0xff00_0020 => [
            0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61,
            0x11, 0xe0, 0x43, 0x90, 0xa8, 0x99,
        ],
        0xff00_0017..=0xff00_001c => [
            0xc3, 0xee, 0xf7, 0x12, 0xc7, 0x2e, 0xbb, 0x5a, 0x11, 0xa7, 0xd2, 0x43, 0x2b, 0xb4,
            0x63, 0x65, 0xbe, 0xf9, 0xf5, 0x02,
        ],
        _ => return None,
    })
}

fn is_google(version: u32) -> bool {
    version.to_be_bytes()[0] == b'Q' && version.to_be_bytes()[1..].iter().all(u8::is_ascii_digit)
}

fn version_name(version: u32) -> String {
    match version {
        1 => "1".to_string(),
        V2 => "v2".to_string(),
        v if is_google(v) => v.to_be_bytes().iter().map(|b| *b as char).collect(),
        v => format!("{v:08x}"),
    }
}

/// Whether a datagram begins with a long header of a version that is known.
fn looks_like(b: &[u8]) -> bool {
    if Google::parse(b).is_some() {
        return true;
    }
    let Some(h) = Header::parse(b) else {
        return false;
    };
    b.first().is_some_and(|b| b & 0xc0 == 0xc0)
        && (salt(h.version).is_some() || is_google(h.version))
        && h.to.len() <= 20
}

/// A long header up to its connection identifiers.
struct Header<'a> {
    version: u32,
    to: &'a [u8],
    rest: Reader<'a>,
}

impl Header<'_> {
    fn parse(b: &[u8]) -> Option<Header<'_>> {
        let mut r = Reader(b);
        if r.u8()? & 0x80 == 0 {
            return None;
        }
        let version = r.number(4)? as u32;
        let to = r.list(1)?;
        r.list(1)?;
        Some(Header {
            version,
            to,
            rest: r,
        })
    }
}

/// A number of QUIC's variable length.
fn varint(r: &mut Reader<'_>) -> Option<u64> {
    let length = 1usize << (r.0.first()? >> 6);
    let n = r.number(length)?;
    Some(n & (u64::MAX >> (64 - (8 * length as u32 - 2))))
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // Keys here are never longer than a block.
    let mut inner = [0x36u8; 64];
    let mut outer = [0x5cu8; 64];
    for (i, k) in key.iter().take(64).enumerate() {
        inner[i] ^= k;
        outer[i] ^= k;
    }
    let mut h = Sha256::new();
    h.update(inner);
    for p in parts {
        h.update(p);
    }
    let first = h.finalize();
    let mut h = Sha256::new();
    h.update(outer);
    h.update(first);
    h.finalize().into()
}

/// HKDF-Expand-Label with an empty context, of at most 32 bytes.
fn expand(secret: &[u8], label: &str, length: u8) -> [u8; 32] {
    let label = format!("tls13 {label}");
    let head = [0, length, label.len() as u8];
    hmac(secret, &[&head, label.as_bytes(), &[0, 1]])
}

/// Keys of one side's initial packets.
#[derive(Clone)]
struct Keys {
    key: Aes128,
    protection: Aes128,
    iv: [u8; 12],
}

fn aes(key: &[u8; 32]) -> Aes128 {
    let mut k = [0; 16];
    k.copy_from_slice(&key[..16]);
    Aes128::new(&k.into())
}

fn encrypt(aes: &Aes128, block: [u8; 16]) -> [u8; 16] {
    let mut b: Block<Aes128> = block.into();
    aes.encrypt_block(&mut b);
    b.into()
}

impl Keys {
    fn new(version: u32, connection: &[u8], d: Direction) -> Option<Keys> {
        let initial = hmac(&salt(version)?, &[connection]);
        let label = match d {
            Direction::ToServer => "client in",
            Direction::ToClient => "server in",
        };
        let secret = expand(&initial, label, 32);
        let prefix = if version == V2 { "quicv2" } else { "quic" };
        let part = |what: &str, n| expand(&secret, &format!("{prefix} {what}"), n);
        let mut iv = [0; 12];
        iv.copy_from_slice(&part("iv", 12)[..12]);
        Some(Keys {
            key: aes(&part("key", 16)),
            protection: aes(&part("hp", 16)),
            iv,
        })
    }

    /// The payload of a packet, whose number is at `number_at`.
    fn open(&self, packet: &[u8], number_at: usize) -> Option<Vec<u8>> {
        let mut sample = [0; 16];
        sample.copy_from_slice(packet.get(number_at + 4..number_at + 20)?);
        let mask = encrypt(&self.protection, sample);
        let first = packet[0] ^ (mask[0] & 0x0f);
        let length = usize::from(first & 3) + 1;
        let mut nonce = self.iv;
        for i in 0..length {
            nonce[12 - length + i] ^= packet[number_at + i] ^ mask[1 + i];
        }
        let from = number_at + length;
        let mut out = packet.get(from..packet.len().checked_sub(16)?)?.to_vec();
        for (i, chunk) in out.chunks_mut(16).enumerate() {
            let mut block = [0; 16];
            block[..12].copy_from_slice(&nonce);
            block[12..].copy_from_slice(&(i as u32 + 2).to_be_bytes());
            let stream = encrypt(&self.key, block);
            for (b, s) in chunk.iter_mut().zip(stream) {
                *b ^= s;
            }
        }
        Some(out)
    }
}

pub(super) const QUIC: Protocol = Protocol {
    app: App::Quic,
    services: &["http3"],
    carrier: Carrier::Udp,
    datagram: Some(|first| looks_like(first.bytes)),
    parser: Some(|start| Box::new(Quic::new(start.asked))),
    kind: Some(&KIND),
    unraised_events: &["crypto_frag_too_long", "error_on_data", "failed_decrypt"],
    log: Log {
        numbered: false,
        direction: |_, packet| packet,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Quic,
    turns: Turns::Transfer,
    ..Kind::EXCHANGE
};

pub(super) struct Quic {
    wanted: Wanted,
    /// By [`Direction::index`].
    sides: [Side; 2],
    /// What the client called the connection, which all keys come from.
    connection: Vec<u8>,
    packets: u32,
    /// The client speaks one of Google's versions that are not encrypted before its second hello.
    google: bool,
}

/// One end's hello, and what it is in.
#[derive(Default)]
struct Side {
    keys: Option<Keys>,
    crypto: Vec<u8>,
    /// Ranges of it that are there, sorted and apart.
    pieces: Vec<(usize, usize)>,
    over: bool,
}

impl Quic {
    pub(super) fn new(wanted: &Wanted) -> Quic {
        Quic {
            wanted: *wanted,
            sides: [Side::default(), Side::default()],
            connection: Vec::new(),
            packets: 0,
            google: false,
        }
    }

    /// A datagram of Google's: a transaction if it has a hello, or is the first.
    fn google(&mut self, d: Direction, found: &Google<'_>, time: u64, out: &mut Transactions) {
        self.google = true;
        let hello = found.hello().filter(|_| d == Direction::ToServer);
        if hello.is_none() && out.count > 0 {
            return;
        }
        let b = self.wanted.buffers;
        let t = out.begin(&KIND, time);
        t.facts.push(("quic.version", u64::from(found.version)));
        if b.has(Buffer::QuicVersion) {
            t.push(Buffer::QuicVersion, d, &found.version.to_be_bytes());
        }
        if self.wanted.records {
            let name = version_name(found.version);
            t.record.insert("version".into(), name.into());
        }
        if let Some(hello) = hello {
            for (buffer, key, value) in [
                (Buffer::QuicSni, "sni", hello.sni),
                (Buffer::QuicUserAgent, "ua", hello.agent),
            ] {
                let Some(value) = value else { continue };
                if b.has(buffer) {
                    t.push(buffer, d, value);
                }
                if self.wanted.records {
                    t.record.insert(key.into(), text(value));
                }
            }
            let (string, hash) = hello.cyu(found.version);
            if b.has(Buffer::QuicCyuString) {
                t.push(Buffer::QuicCyuString, d, string.as_bytes());
            }
            if b.has(Buffer::QuicCyuHash) {
                t.push(Buffer::QuicCyuHash, d, hash.as_bytes());
            }
            if self.wanted.records {
                let cyu = serde_json::json!([{"hash": hash, "string": string}]);
                t.record.insert("cyu".into(), cyu);
            }
        }
        t.only(d);
        t.finish();
    }

    /// One packet with a long header: how long it was, and a hello if it completes one.
    fn packet(&mut self, d: Direction, b: &[u8]) -> Option<(usize, Option<Hello>)> {
        let Header { version, to, rest } = Header::parse(b)?;
        let mut r = rest;
        salt(version)?;
        let initial = kind(version, b[0]) == PacketType::Initial;
        if initial {
            let token = varint(&mut r)?;
            r.take(usize::try_from(token).ok()?)?;
        }
        let length = usize::try_from(varint(&mut r)?).ok()?;
        let number_at = b.len() - r.0.len();
        let end = number_at.checked_add(length).filter(|e| *e <= b.len())?;
        let hello = if initial && !d.of(&self.sides).over {
            self.initial(d, version, to, &b[..end], number_at)
        } else {
            None
        };
        Some((end, hello))
    }

    fn initial(
        &mut self,
        d: Direction,
        version: u32,
        to: &[u8],
        packet: &[u8],
        number_at: usize,
    ) -> Option<Hello> {
        let connection = match d {
            Direction::ToServer => to,
            Direction::ToClient => &self.connection,
        };
        let side = d.of_mut(&mut self.sides);
        // The keys stay those of the first packet, unless a retry made new ones.
        let done = side.keys.clone().is_some_and(|k| {
            k.open(packet, number_at)
                .is_some_and(|p| side.frames(&p).is_some())
        });
        if !done
            && let Some(keys) = Keys::new(version, connection, d)
            && let Some(payload) = keys.open(packet, number_at)
            && side.frames(&payload).is_some()
        {
            side.keys = Some(keys);
            if d == Direction::ToServer {
                self.connection = to.to_vec();
            }
        }
        let side = d.of_mut(&mut self.sides);
        let Some(&(0, end)) = side.pieces.first() else {
            return None;
        };
        let have = side.crypto[..end].to_vec();
        let length = usize::from(*have.get(1)?) << 16
            | usize::from(*have.get(2)?) << 8
            | usize::from(*have.get(3)?);
        let body = have.get(4..4 + length)?;
        side.over = true;
        match (have[0], d) {
            (1, Direction::ToServer) => Hello::client(body),
            (2, Direction::ToClient) => Hello::server(body),
            _ => None,
        }
    }

    fn hello(&self, d: Direction, hello: &Hello, t: &mut Transaction) {
        let b = self.wanted.buffers;
        let (hash, string) = match d {
            Direction::ToServer => (Buffer::Ja3Hash, Buffer::Ja3String),
            Direction::ToClient => (Buffer::Ja3sHash, Buffer::Ja3sString),
        };
        if let Some(sni) = &hello.sni
            && b.has(Buffer::QuicSni)
        {
            t.push(Buffer::QuicSni, d, sni);
        }
        if b.has(hash) || b.has(string) || self.wanted.records {
            let text = match d {
                Direction::ToServer => hello.ja3(),
                Direction::ToClient => hello.ja3s(),
            };
            if b.has(string) {
                t.push(string, d, text.as_bytes());
            }
            if b.has(hash) {
                t.push(hash, d, md5_hex(&text).as_bytes());
            }
            if self.wanted.records && d == Direction::ToClient {
                t.record
                    .insert("ja3s".into(), fingerprint(md5_hex(&text), text));
            }
        }
        if d == Direction::ToServer && b.has(Buffer::Ja4Hash) {
            t.push(Buffer::Ja4Hash, d, hello.ja4(true).as_bytes());
        }
        if !self.wanted.records {
            return;
        }
        if d == Direction::ToServer {
            client_record(t, hello, self.wanted.said, true);
        }
        let extensions: Vec<_> = (hello.extensions.iter())
            .map(|kind| extension(*kind, hello))
            .collect();
        if !extensions.is_empty() {
            t.record.insert("extensions".into(), extensions.into());
        }
    }
}

/// What a packet with a long header is for, as far as that matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PacketType {
    Initial,
    Retry,
    Other,
}

fn kind(version: u32, first: u8) -> PacketType {
    // Version 2 counts them on by one.
    let number = (first >> 4).wrapping_sub(u8::from(version == V2)) & 3;
    match number {
        0 => PacketType::Initial,
        3 => PacketType::Retry,
        _ => PacketType::Other,
    }
}

/// An extension of a hello as the log has it: its number, its name if it has one, and what is in those that tell something.
fn extension(kind: u16, hello: &Hello) -> serde_json::Value {
    let name = match kind {
        0 => Some("server_name"),
        1 => Some("max_fragment_length"),
        5 => Some("status_request"),
        10 => Some("supported_groups"),
        11 => Some("ec_point_formats"),
        13 => Some("signature_algorithms"),
        16 => Some("alpn"),
        18 => Some("signed_certificate_timestamp"),
        21 => Some("padding"),
        22 => Some("encrypt_then_mac"),
        23 => Some("extended_master_secret"),
        27 => Some("compress_certificate"),
        28 => Some("record_size_limit"),
        34 => Some("delegated_credentials"),
        35 => Some("session_ticket"),
        41 => Some("pre_shared_key"),
        42 => Some("early_data"),
        43 => Some("supported_versions"),
        44 => Some("cookie"),
        45 => Some("psk_key_exchange_modes"),
        47 => Some("certificate_authorities"),
        48 => Some("oid_filters"),
        49 => Some("post_handshake_auth"),
        50 => Some("signature_algorithms_cert"),
        51 => Some("key_share"),
        57 => Some("quic_transport_parameters"),
        0xff01 => Some("renegotiation_info"),
        _ => None,
    };
    let values: Vec<serde_json::Value> = match kind {
        0 => hello.sni.iter().map(|n| text(n)).collect(),
        13 => (hello.signatures.iter())
            .map(|n| n.to_string().into())
            .collect(),
        16 => hello.alpn.iter().map(|a| text(a)).collect(),
        43 => (hello.versions.iter())
            .map(|v| match v {
                0x0304 => "Tls13".into(),
                0x0303 => "Tls12".into(),
                0x0302 => "Tls11".into(),
                0x0301 => "Tls10".into(),
                other => format!("TlsVersion({other} / 0x{other:x})").into(),
            })
            .collect(),
        _ => Vec::new(),
    };
    let mut e = serde_json::Map::new();
    if let Some(name) = name {
        e.insert("name".into(), name.into());
    }
    // Reserved numbers are chosen anew each time and mean nothing: one stands for all.
    let number = if is_grease(kind) { 0xfafa } else { kind };
    e.insert("type".into(), number.into());
    if !values.is_empty() {
        e.insert("values".into(), values.into());
    }
    e.into()
}

impl Side {
    /// Takes the frames of a payload; `None` if they make no sense.
    fn frames(&mut self, payload: &[u8]) -> Option<()> {
        let mut r = Reader(payload);
        let mut found = Vec::new();
        while !r.0.is_empty() {
            match varint(&mut r)? {
                0 | 1 => {}
                kind @ (2 | 3) => {
                    varint(&mut r)?;
                    varint(&mut r)?;
                    let ranges = varint(&mut r)?;
                    varint(&mut r)?;
                    for _ in 0..ranges {
                        varint(&mut r)?;
                        varint(&mut r)?;
                    }
                    if kind == 3 {
                        for _ in 0..3 {
                            varint(&mut r)?;
                        }
                    }
                }
                6 => {
                    let offset = usize::try_from(varint(&mut r)?).ok()?;
                    let length = usize::try_from(varint(&mut r)?).ok()?;
                    found.push((offset, r.take(length)?));
                }
                0x1c => {
                    varint(&mut r)?;
                    varint(&mut r)?;
                    let reason = usize::try_from(varint(&mut r)?).ok()?;
                    r.take(reason)?;
                }
                _ => return None,
            }
        }
        for (offset, data) in found {
            self.piece(offset, data);
        }
        Some(())
    }

    /// Pieces come in any order; what was there first stays.
    fn piece(&mut self, offset: usize, data: &[u8]) {
        let Some(end) = offset.checked_add(data.len()) else {
            return;
        };
        if end > MOST_CRYPTO || self.pieces.len() >= MOST_PIECES || data.is_empty() {
            return;
        }
        if self.crypto.len() < end {
            self.crypto.resize(end, 0);
        }
        for (i, b) in data.iter().enumerate() {
            let at = offset + i;
            if !self.pieces.iter().any(|p| (p.0..p.1).contains(&at)) {
                self.crypto[at] = *b;
            }
        }
        self.pieces.push((offset, end));
        self.pieces.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(self.pieces.len());
        for p in &self.pieces {
            match merged.last_mut() {
                Some(last) if p.0 <= last.1 => last.1 = last.1.max(p.1),
                _ => merged.push(*p),
            }
        }
        self.pieces = merged;
    }
}

impl Parser for Quic {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        self.packets += 1;
        if let Some(found) = Google::parse(bytes) {
            self.google(d, &found, time, out);
        }
        if self.google {
            out.encrypted |= self.packets > MOST_PACKETS;
            return;
        }
        let header = Header::parse(bytes);
        let tells = header.as_ref().is_some_and(|h| {
            // Google's own versions have headers of their own.
            match kind(h.version, bytes[0]) {
                _ if is_google(h.version) => out.count == 0,
                PacketType::Retry => d == Direction::ToClient,
                _ => !d.of(&self.sides).over,
            }
        });
        if let Some(h) = header.filter(|_| tells) {
            if d == Direction::ToClient && kind(h.version, bytes[0]) == PacketType::Retry {
                // The client says all of it again, under another name.
                self.sides = [Side::default(), Side::default()];
            }
            let mut hellos = Vec::new();
            // Several packets may share a datagram.
            let mut rest = bytes;
            while let Some((length, hello)) = self.packet(d, rest) {
                hellos.extend(hello);
                rest = &rest[length..];
            }
            let name = version_name(h.version);
            let t = out.begin(&KIND, time);
            t.facts.push(("quic.version", u64::from(h.version)));
            if self.wanted.buffers.has(Buffer::QuicVersion) {
                // As sent: Google's are text.
                t.push(Buffer::QuicVersion, d, &h.version.to_be_bytes());
            }
            if self.wanted.records {
                t.record.insert("version".into(), name.into());
            }
            for hello in &hellos {
                self.hello(d, hello, t);
            }
            t.only(d);
            t.finish();
        }
        let long = bytes.first().is_some_and(|b| b & 0x80 != 0);
        let client = self.sides[Direction::ToServer.index()].over;
        // A short header, or too many tries: the rest is encrypted for good.
        if (!long && (client || d == Direction::ToClient)) || self.packets > MOST_PACKETS {
            out.encrypted = true;
        }
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        let side = |s: &Side| s.crypto.capacity() + s.pieces.capacity() * 16;
        size_of::<Quic>() + side(&self.sides[0]) + side(&self.sides[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::wanted;
    use crate::app::text::hex;

    /// Keys of RFC 9001, appendix A.1.
    #[test]
    fn keys_are_those_of_the_standard() {
        let dcid = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let initial = hmac(&salt(1).unwrap(), &[&dcid]);
        let secret = expand(&initial, "client in", 32);
        assert_eq!(
            hex(&secret),
            "c00cf151ca5be075ed0ebfb5c80323c42d6b7db67881289af4008f1f6c357aea"
        );
        assert_eq!(
            hex(&expand(&secret, "quic key", 16)[..16]),
            "1f369613dd76d5467730efcbe3b1a22d"
        );
        assert_eq!(
            hex(&expand(&secret, "quic iv", 12)[..12]),
            "fa044b2f42a3fd3b46fb255c"
        );
        let sample = [
            0xd1, 0xb1, 0xc9, 0x8d, 0xd7, 0x68, 0x9f, 0xb8, 0xec, 0x11, 0xd2, 0x42, 0xb1, 0x23,
            0xdc, 0x9b,
        ];
        let hp = aes(&expand(&secret, "quic hp", 16));
        assert_eq!(hex(&encrypt(&hp, sample)[..5]), "437b9aec36");
    }

    /// Seals frames as one end would, tag left open.
    fn seal(version: u32, dcid: &[u8], d: Direction, number: u32, frames: &[u8]) -> Vec<u8> {
        let keys = Keys::new(version, dcid, d).unwrap();
        let kind = if version == V2 { 1 } else { 0 };
        let mut p = vec![0xc3 | kind << 4];
        p.extend_from_slice(&version.to_be_bytes());
        p.push(dcid.len() as u8);
        p.extend_from_slice(dcid);
        p.extend_from_slice(&[0, 0]);
        let length = 4 + frames.len() + 16;
        p.extend_from_slice(&(0x4000 | length as u16).to_be_bytes());
        let at = p.len();
        p.extend_from_slice(&number.to_be_bytes());
        p.extend_from_slice(frames);
        p.extend_from_slice(&[0; 16]);
        // The stream cipher is its own inverse: with protection off, opening seals.
        let mut nonce = keys.iv;
        for i in 0..4 {
            nonce[8 + i] ^= number.to_be_bytes()[i];
        }
        for (i, chunk) in p[at + 4..at + 4 + frames.len()].chunks_mut(16).enumerate() {
            let mut block = [0; 16];
            block[..12].copy_from_slice(&nonce);
            block[12..].copy_from_slice(&(i as u32 + 2).to_be_bytes());
            for (b, s) in chunk.iter_mut().zip(encrypt(&keys.key, block)) {
                *b ^= s;
            }
        }
        let mut sample = [0; 16];
        sample.copy_from_slice(&p[at + 4..at + 20]);
        let mask = encrypt(&keys.protection, sample);
        p[0] ^= mask[0] & 0x0f;
        for i in 0..4 {
            p[at + i] ^= mask[1 + i];
        }
        p
    }

    #[test]
    fn hellos_of_google_are_told_without_keys() {
        let sent = |agent: &[u8]| {
            let values: [(&[u8; 4], &[u8]); 3] = [
                (b"PAD\0", &[b'-'; 64]),
                (b"SNI\0", b"q.example"),
                (b"UAID", agent),
            ];
            google::tests::datagram(43, &values)
        };
        let (mut p, mut out) = (Quic::new(&wanted()), Transactions::default());
        assert!(looks_like(&sent(b"one")));
        p.data(Direction::ToServer, &sent(b"one"), 1, &mut out);
        // The server says that it wants more; its packets name no version.
        p.data(Direction::ToClient, &[0x08; 60], 2, &mut out);
        p.data(Direction::ToServer, &sent(b"two"), 3, &mut out);
        p.data(Direction::ToServer, &[0x08; 60], 4, &mut out);
        let agents = out.live.iter().map(|t| &t.record["ua"]);
        assert_eq!(agents.collect::<Vec<_>>(), ["one", "two"]);
        let t = &out.live[0];
        assert_eq!(t.record["version"], "Q043");
        assert_eq!(t.record["cyu"][0]["string"], "43,PAD-SNI-UAID");
        let of = |buffer| t.get(buffer, Direction::ToServer).next();
        assert_eq!(of(Buffer::QuicUserAgent), Some(&b"one"[..]));
        assert_eq!(of(Buffer::QuicSni), Some(&b"q.example"[..]));
        assert_eq!(of(Buffer::QuicCyuString), Some(&b"43,PAD-SNI-UAID"[..]));
        assert!(of(Buffer::QuicCyuHash).is_some_and(|h| h.len() == 32));
    }

    fn crypto(offset: u16, data: &[u8]) -> Vec<u8> {
        [
            &[6][..],
            &(0x4000 | offset).to_be_bytes(),
            &(0x4000 | data.len() as u16).to_be_bytes(),
            data,
        ]
        .concat()
    }

    #[test]
    fn a_hello_in_pieces_is_read() {
        let sni = b"\0\0\0\x0e\0\x0c\0\0\x09q.example";
        let body = [
            &[3, 3][..],
            &[5; 32],
            &[0, 0, 2, 0x13, 1, 1, 0],
            &[0, sni.len() as u8],
            sni,
        ]
        .concat();
        let hello = [&[1, 0, 0, body.len() as u8][..], &body].concat();
        let (a, b) = hello.split_at(30);
        for version in [1, V2, 0xff00_001d] {
            let first = [crypto(30, b), vec![0; 400]].concat();
            let second = [vec![1], crypto(0, a), crypto(0, &a[..3]), vec![0; 300]].concat();
            let mut p = Quic::new(&wanted());
            let mut out = Transactions::default();
            let one = seal(version, b"12345678", Direction::ToServer, 0, &first);
            assert!(looks_like(&one));
            p.data(Direction::ToServer, &one, 1, &mut out);
            assert!(out.live[0].done && !out.live[0].record.contains_key("sni"));
            p.data(
                Direction::ToServer,
                &seal(version, b"12345678", Direction::ToServer, 1, &second),
                2,
                &mut out,
            );
            let t = &out.live[1];
            let sni: Vec<_> = t.get(Buffer::QuicSni, Direction::ToServer).collect();
            assert_eq!(sni, [b"q.example"], "{version:x}");
            assert!(t.done);
            assert_eq!(t.record["sni"], "q.example");
            let name =
                serde_json::json!({"name": "server_name", "type": 0, "values": ["q.example"]});
            assert_eq!(t.record["extensions"], serde_json::json!([name]));
            // What the server says is under keys of the client's name for the connection.
            let chosen = [
                &[3, 3][..],
                &[6; 32],
                &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4],
            ]
            .concat();
            let said = [&[2, 0, 0, chosen.len() as u8][..], &chosen].concat();
            let said = [crypto(0, &said), vec![0; 300]].concat();
            let mut reply = seal(version, b"12345678", Direction::ToClient, 0, &said);
            // Not sealed here, and of another name: the client's.
            reply[6..14].copy_from_slice(b"abcdefgh");
            p.data(Direction::ToClient, &reply, 3, &mut out);
            let t = &out.live[2];
            assert_eq!(t.record["ja3s"]["string"], "771,4865,43", "{version:x}");
            assert_eq!(t.record["extensions"][0]["values"][0], "Tls13");
            p.data(Direction::ToServer, &[0x40; 50], 3, &mut out);
            assert!(out.encrypted);
        }
    }
}
