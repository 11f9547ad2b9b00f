//! IKE over UDP: its first version (ISAKMP, RFC 2408 and 2409) and its second (RFC 7296), as far as its messages are not encrypted. Each message is a transaction.

mod names;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use self::names::{
    ATTRIBUTES, ENCRYPTIONS, EXCHANGES, FUNCTIONS, GROUPS, INTEGRITIES, PAYLOADS, known, name,
};
use super::bytes::{be16, be32};
use super::names::App;
use super::probe::First;
use super::protocol::{Carrier, Fact, Parser, Protocol, Written};
use super::text::hex;
use super::transaction::{Kind, Transaction, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

const HEADER: usize = 28;
/// Payloads of a message that are looked at.
const MOST_PAYLOADS: usize = 64;
/// Proposals and their transforms of a message that are looked at.
const MOST_PROPOSALS: usize = 64;
/// Vendors that a flow remembers.
const MOST_VENDORS: usize = 32;
/// Bytes of a vendor's identifier, a key or a nonce that records have.
const MOST_SHOWN: usize = 2048;

pub(super) const IKE: Protocol = Protocol {
    app: App::Ike,
    aliases: &["ikev2"],
    carrier: Carrier::Udp,
    // Without its ports IKE is too alike to chance.
    datagram: Some(is_datagram),
    parser: Some(|start| Box::new(Ike::new(start.asked))),
    kind: Some(&KIND),
    older_events: &[
        ("weak_crypto_nodh", "weak_crypto_no_dh"),
        ("weak_crypto_noauth", "weak_crypto_no_auth"),
    ],
    facts: &[
        Fact {
            keyword: EXCHANGE,
            written: Written::Number(&[]),
            what: "type of an exchange of IKE",
            ..Fact::NONE
        },
        Fact {
            keyword: CHOSEN,
            written: Written::Attribute(CHOSEN_NAMES),
            what: "an attribute of the association that the responder of IKE has chosen",
            ..Fact::NONE
        },
        Fact {
            keyword: KEY_LENGTH,
            written: Written::Number(&[]),
            what: "bytes of a key exchange of IKE",
            ..Fact::NONE
        },
        Fact {
            keyword: NONCE_LENGTH,
            written: Written::Number(&[]),
            what: "bytes of a nonce of IKE",
            ..Fact::NONE
        },
    ],
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Ike,
    turns: Turns::Message,
    events: &[
        "invalid_proposal",
        "malformed_data",
        "multiple_server_proposal",
        "no_encryption",
        "unknown_proposal",
        "weak_crypto_auth",
        "weak_crypto_dh",
        "weak_crypto_enc",
        "weak_crypto_no_auth",
        "weak_crypto_no_dh",
        "weak_crypto_prf",
    ],
    ..Kind::EXCHANGE
};

const EXCHANGE: &str = "ike.exchtype";
const CHOSEN: &str = "ike.chosen_sa_attribute";
const KEY_LENGTH: &str = "ike.key_exchange_payload_length";
const NONCE_LENGTH: &str = "ike.nonce_payload_length";

/// Attributes that rules name: their numbers of the first version.
const CHOSEN_NAMES: &[(&str, u64)] = &[
    ("alg_enc", 1),
    ("alg_hash", 2),
    ("alg_auth", 3),
    ("alg_dh", 4),
    ("sa_group_type", 5),
    ("sa_life_type", 11),
    ("sa_life_duration", 12),
    ("alg_prf", 13),
    ("sa_key_length", 14),
    ("sa_field_size", 15),
];

/// The message behind the marker that tells it from ESP on port 4500.
fn unmarked(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(&[0; 4]).unwrap_or(bytes)
}

fn is_datagram(first: &First<'_>) -> bool {
    let ike = unmarked(first.bytes);
    (first.has_port(500) || first.has_port(4500))
        && first.bytes.len() >= HEADER
        && matches!(ike.get(17), Some(0x10 | 0x20))
        && be32(ike, 24).is_some_and(|n| n as usize == ike.len())
}

/// What both ends of the first version have said, which records of later messages have, too.
#[derive(Default)]
struct End {
    key: Vec<u8>,
    nonce: Vec<u8>,
}

struct Ike {
    wanted: Wanted,
    ends: [End; 2],
    vendors: Vec<Vec<u8>>,
    /// What the client has proposed, in the first version.
    proposals: Vec<Value>,
    chosen: Vec<(u16, u64)>,
    domain: Option<u32>,
}

/// A payload behind its head: its type and content.
struct Payload<'a> {
    kind: u8,
    content: &'a [u8],
}

/// The payloads of a message, and whether they are whole.
fn payloads(first: u8, mut rest: &[u8]) -> (Vec<Payload<'_>>, Vec<u8>, bool) {
    let (mut all, mut kinds, mut next) = (Vec::new(), vec![first], first);
    while next != 0 && all.len() < MOST_PAYLOADS {
        let (Some(&after), Some(length)) = (rest.first(), be16(rest, 2)) else {
            return (all, kinds, false);
        };
        let length = usize::from(length);
        let Some(content) = rest.get(4..length) else {
            return (all, kinds, false);
        };
        all.push(Payload {
            kind: next,
            content,
        });
        // What is behind is encrypted, and named for the first payload inside.
        if matches!(next, 46 | 53) {
            break;
        }
        next = after;
        kinds.push(next);
        rest = rest.get(length..).unwrap_or_default();
    }
    (all, kinds, true)
}

/// Parts behind each other with a length in their third and fourth byte.
fn parts(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = usize::from(be16(rest, 2)?);
        let part = rest.get(..length).filter(|_| length >= 8)?;
        rest = rest.get(length..).unwrap_or_default();
        Some(part)
    })
    .take(MOST_PROPOSALS)
}

/// Attributes of a transform: short ones have their value in the place of their length.
fn attributes(mut rest: &[u8]) -> Vec<(u16, u64)> {
    let mut all = Vec::new();
    while let (Some(kind), Some(second)) = (be16(rest, 0), be16(rest, 2)) {
        if kind & 0x8000 != 0 {
            all.push((kind & 0x7fff, u64::from(second)));
            rest = rest.get(4..).unwrap_or_default();
            continue;
        }
        let end = 4 + usize::from(second);
        let Some(value) = rest.get(4..end) else {
            break;
        };
        if let Some(number) = super::ber::number(value) {
            all.push((kind, number));
        }
        rest = rest.get(end..).unwrap_or_default();
    }
    all
}

/// Attributes as records have them.
fn show(list: &[(u16, u64)], extended: bool) -> Map<String, Value> {
    let mut map = Map::new();
    for (kind, value) in list {
        let Some(attribute) = ATTRIBUTES.iter().find(|a| a.number == *kind) else {
            continue;
        };
        // The schema has no place for these.
        if matches!(attribute.key, "sa_group_type" | "sa_field_size" | "alg_prf") {
            continue;
        }
        let name = known(attribute.values, *value).unwrap_or("Unknown");
        map.insert(attribute.key.to_owned(), name.into());
        if extended {
            map.insert(format!("{}_raw", attribute.key), (*value).into());
        }
    }
    map
}

impl Ike {
    fn new(wanted: &Wanted) -> Ike {
        Ike {
            wanted: *wanted,
            ends: <[End; 2]>::default(),
            vendors: Vec::new(),
            proposals: Vec::new(),
            chosen: Vec::new(),
            domain: None,
        }
    }

    /// Reads a message; `None`: it is malformed.
    fn message(&mut self, d: Direction, b: &[u8], t: &mut Transaction) -> Option<()> {
        let w = self.wanted;
        let (spis, rest) = b.split_at_checked(16)?;
        let (initiator, responder) = spis.split_at_checked(8)?;
        let &[next, version, exchange, flags] = rest.first_chunk()?;
        let id = be32(b, 20)?;
        if be32(b, 24)? as usize != b.len() || !matches!(version >> 4, 1 | 2) {
            return None;
        }
        let first = version >> 4 == 1;
        t.facts.push((EXCHANGE, exchange.into()));
        let spi = match d {
            ToServer => (Buffer::IkeInitiator, initiator),
            ToClient => (Buffer::IkeResponder, responder),
        };
        if w.buffers.has(spi.0) {
            t.push(spi.0, d, hex(spi.1).as_bytes());
        }
        let encrypted = first && flags & 1 != 0;
        let inside = b.get(HEADER..)?;
        let (list, kinds, whole) = match encrypted {
            true => (Vec::new(), vec![next], true),
            false => payloads(next, inside),
        };
        if !whole {
            t.event("malformed_data");
        }
        let mut notified = Vec::new();
        let mut second = Map::new();
        for Payload { kind, content } in &list {
            match (first, kind) {
                (true, 1) => self.association(d, content, t)?,
                (true, 4) => self.key(d, content, t),
                (true, 10) => self.nonce(d, content, t),
                (true, 13) | (false, 43) => self.vendor(d, content, t),
                (false, 33) => second = proposals(d, content, t),
                // The group comes before.
                (false, 34) => self.key(d, content.get(4..)?, t),
                (false, 40) => self.nonce(d, content, t),
                (false, 41) => notified.push(be16(content, 2)?),
                _ => {}
            }
        }
        if !w.records {
            return Some(());
        }
        let extended = w.said.ike_extended;
        let r = &mut t.record;
        r.insert("version_major".into(), (version >> 4).into());
        r.insert("version_minor".into(), (version & 15).into());
        r.insert("init_spi".into(), hex(initiator).into());
        r.insert("resp_spi".into(), hex(responder).into());
        r.insert("message_id".into(), id.into());
        r.insert("exchange_type".into(), exchange.into());
        if extended && first {
            let verbose = name(EXCHANGES, exchange.into());
            r.insert("exchange_type_verbose".into(), verbose.into());
        }
        let kinds = kinds.iter().map(|k| name(PAYLOADS, u64::from(*k)).into());
        r.insert("payload".into(), Value::Array(kinds.collect()));
        if first {
            r.extend(show(&self.chosen, extended));
            r.insert("ikev1".into(), self.show(encrypted).into());
        } else {
            let role = match flags & 8 != 0 {
                true => "initiator",
                false => "responder",
            };
            r.insert("role".into(), role.into());
            r.extend(second);
            let mut own = Map::new();
            own.insert(
                "errors".into(),
                t.events.len().saturating_sub(weak(t)).into(),
            );
            let notified = notified.iter().map(|n| n.to_string().into());
            own.insert("notify".into(), Value::Array(notified.collect()));
            t.record.insert("ikev2".into(), own.into());
        }
        Some(())
    }

    /// What both ends of the first version have said so far.
    fn show(&self, encrypted: bool) -> Map<String, Value> {
        let mut own = Map::new();
        if let Some(domain) = self.domain {
            own.insert("doi".into(), domain.into());
        }
        own.insert("encrypted_payloads".into(), encrypted.into());
        for (end, key) in self.ends.iter().zip(["client", "server"]) {
            let mut said = Map::new();
            for (bytes, name, length) in [
                (
                    &end.key,
                    "key_exchange_payload",
                    "key_exchange_payload_length",
                ),
                (&end.nonce, "nonce_payload", "nonce_payload_length"),
            ] {
                if !bytes.is_empty() {
                    said.insert(name.into(), hex(bytes).into());
                    said.insert(length.into(), bytes.len().into());
                }
            }
            if key == "client" && !self.proposals.is_empty() {
                said.insert("proposals".into(), self.proposals.clone().into());
            }
            own.insert(key.into(), said.into());
        }
        if !self.vendors.is_empty() {
            let all = self.vendors.iter().map(|v| hex(v).into());
            own.insert("vendor_ids".into(), Value::Array(all.collect()));
        }
        own
    }

    /// A security association of the first version.
    fn association(&mut self, d: Direction, content: &[u8], t: &mut Transaction) -> Option<()> {
        self.domain = Some(be32(content, 0)?);
        let mut transforms = Vec::new();
        // Behind the domain and the situation.
        for proposal in parts(content.get(8..)?) {
            let &[protocol, spi] = proposal.get(5..)?.first_chunk()?;
            if protocol == 2 {
                t.event("no_encryption");
            }
            for transform in parts(proposal.get(8 + usize::from(spi)..)?) {
                if transforms.len() < MOST_PROPOSALS {
                    transforms.push(attributes(transform.get(8..)?));
                }
            }
        }
        match d {
            ToServer => {
                if self.wanted.records {
                    let extended = self.wanted.said.ike_extended;
                    let shown = transforms.iter().map(|t| show(t, extended).into());
                    self.proposals = shown.collect();
                }
            }
            ToClient => {
                if transforms.len() > 1 {
                    t.event("multiple_server_proposal");
                }
                self.chosen = transforms.into_iter().next().unwrap_or_default();
                self.chosen.truncate(ATTRIBUTES.len());
                for (kind, value) in &self.chosen {
                    choose(t, u64::from(*kind), *value);
                }
            }
        }
        Some(())
    }

    fn key(&mut self, d: Direction, content: &[u8], t: &mut Transaction) {
        t.facts.push((KEY_LENGTH, content.len() as u64));
        if self.wanted.buffers.has(Buffer::IkeKey) {
            t.push(Buffer::IkeKey, d, content);
        }
        if self.wanted.records {
            let shown = content.get(..MOST_SHOWN).unwrap_or(content);
            d.of_mut(&mut self.ends).key = shown.to_vec();
        }
    }

    fn nonce(&mut self, d: Direction, content: &[u8], t: &mut Transaction) {
        t.facts.push((NONCE_LENGTH, content.len() as u64));
        if self.wanted.buffers.has(Buffer::IkeNonce) {
            t.push(Buffer::IkeNonce, d, content);
        }
        if self.wanted.records {
            let shown = content.get(..MOST_SHOWN).unwrap_or(content);
            d.of_mut(&mut self.ends).nonce = shown.to_vec();
        }
    }

    fn vendor(&mut self, d: Direction, content: &[u8], t: &mut Transaction) {
        if d == ToServer && self.wanted.buffers.has(Buffer::IkeVendor) {
            t.push(Buffer::IkeVendor, d, hex(content).as_bytes());
        }
        let shown = content.get(..MOST_SHOWN).unwrap_or(content);
        if self.wanted.records
            && self.vendors.len() < MOST_VENDORS
            && !self.vendors.iter().any(|v| v == shown)
        {
            self.vendors.push(shown.to_vec());
        }
    }
}

/// How many events of a transaction are about weak ciphers, which are no errors of the message.
fn weak(t: &Transaction) -> usize {
    let is_weak = |e: &&&str| e.starts_with("weak_") || **e == "no_encryption";
    t.events.iter().filter(is_weak).count()
}

/// Notes an attribute of what the responder has chosen, as rules ask for it.
fn choose(t: &mut Transaction, attribute: u64, value: u64) {
    if let Ok(value) = u32::try_from(value) {
        t.facts.push((CHOSEN, attribute << 32 | u64::from(value)));
    }
}

/// Proposals of the second version; returns what records say of what was chosen.
fn proposals(d: Direction, content: &[u8], t: &mut Transaction) -> Map<String, Value> {
    let mut chosen = Map::new();
    let mut count = 0;
    let mut read = 0;
    for proposal in parts(content) {
        count += 1;
        read += proposal.len();
        let (Some(&protocol), Some(&spi)) = (proposal.get(5), proposal.get(6)) else {
            continue;
        };
        match protocol {
            1 | 3 => {}
            2 => t.event("no_encryption"),
            _ => t.event("unknown_proposal"),
        }
        let inside = proposal.get(8 + usize::from(spi)..);
        let Some(inside) = inside else {
            t.event("invalid_proposal");
            continue;
        };
        let mut has = [None; 5];
        for transform in parts(inside) {
            let (Some(&kind), Some(id)) = (transform.get(4), be16(transform, 6)) else {
                continue;
            };
            judge(kind, id, t);
            match has.get_mut(usize::from(kind)) {
                Some(slot) => *slot = slot.or(Some(id)),
                None if kind > 5 => t.event("unknown_proposal"),
                None => {}
            }
        }
        let [_, encryption, function, integrity, group] = has;
        // Ciphers with a sum of their own need no other.
        let own_sum = encryption.is_some_and(|e| matches!(e, 14..=16 | 18..=20 | 25..=28));
        if protocol == 1 && integrity.is_none_or(|i| i == 0) && !own_sum {
            t.event("weak_crypto_no_auth");
        }
        if protocol == 1 && group.is_none_or(|g| g == 0) {
            t.event("weak_crypto_no_dh");
        }
        if d == ToClient && count == 1 {
            for (key, attribute, names, value) in [
                ("alg_enc", 1, ENCRYPTIONS, encryption),
                ("", 13, FUNCTIONS, function),
                ("alg_auth", 3, INTEGRITIES, integrity),
                ("alg_dh", 4, GROUPS, group),
            ] {
                let Some(value) = value.map(u64::from) else {
                    continue;
                };
                choose(t, attribute, value);
                if !key.is_empty() {
                    chosen.insert(key.to_owned(), name(names, value).into());
                }
            }
        }
    }
    if count == 0 || read < content.len() && count < MOST_PROPOSALS {
        t.event("invalid_proposal");
    }
    if d == ToClient && count > 1 {
        t.event("multiple_server_proposal");
    }
    chosen
}

/// Notes what is weak about a transform of the second version (RFC 8247, RFC 9395).
fn judge(kind: u8, id: u16, t: &mut Transaction) {
    match (kind, id) {
        (1, 1..=9 | 11) => t.event("weak_crypto_enc"),
        (2, 0..=2) => t.event("weak_crypto_prf"),
        (3, 1..=4 | 6 | 7) => t.event("weak_crypto_auth"),
        (4, 1 | 2 | 5 | 22) => t.event("weak_crypto_dh"),
        _ => {}
    }
}

impl Parser for Ike {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        // A byte that keeps a translation of addresses, and ESP beside IKE, are no messages.
        let bytes = unmarked(bytes);
        if bytes.len() < HEADER || !matches!(bytes.get(17), Some(0x10 | 0x20)) {
            return;
        }
        let t = out.begin(&KIND, time);
        t.only(d);
        if self.message(d, bytes, t).is_none() {
            t.event("malformed_data");
            t.logged = true;
        }
        t.finish();
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        let ends = self.ends.iter().map(|e| e.key.len() + e.nonce.len());
        let vendors = self.vendors.iter().map(Vec::len).sum::<usize>();
        // A shown attribute is about so long.
        size_of::<Ike>() + ends.sum::<usize>() + vendors + self.proposals.len() * 1024
    }
}
