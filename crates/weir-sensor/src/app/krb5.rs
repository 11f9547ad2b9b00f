//! Kerberos 5 (RFC 4120) over TCP and UDP: requests and answers of the key distribution center, and its errors. Each message is a transaction.

use super::ber::{element, elements, number};
use super::bytes::be32;
use super::carry::{Carry, Taken};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Carrier, Fact, Parser, Protocol, Written};
use super::text::string;
use super::transaction::{Kind, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// Bytes of a message that is read; of a longer one the head alone, which no name is in.
const MOST_MESSAGE: usize = 64 * 1024;
/// Parts of a name.
const MOST_PARTS: usize = 32;

pub(super) const KRB5: Protocol = Protocol {
    app: App::Krb5,
    services: &["kerberos"],
    carrier: Carrier::Both,
    stream: Some(StreamProbe {
        certainty: Certainty::Form,
        // A length comes before.
        look: |first| match (first.ports.server, first.at(4)) {
            (88, Some(tag)) if is_message(tag) => Look::Yes,
            _ => Look::No,
        },
        claims: |first| first.ports.server == 88 && first.at(4).is_some(),
    }),
    datagram: Some(is_datagram),
    parser: Some(|start| Box::new(Krb5::new(start.asked, start.stream))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: TYPE,
            written: Written::Number(TYPES),
            what: "type of a message of Kerberos",
            ..Fact::NONE
        },
        Fact {
            keyword: ERROR,
            written: Written::Number(&[]),
            what: "code of an error of Kerberos",
            ..Fact::NONE
        },
        Fact {
            keyword: TICKET,
            written: Written::Names(ENCRYPTIONS, WEAK),
            what: "encryption of a ticket of Kerberos; `weak`: all but AES and Camellia",
            ..Fact::NONE
        },
    ],
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Krb5,
    turns: Turns::Message,
    events: &["malformed_data", "weak_encryption"],
    ..Kind::EXCHANGE
};

const TYPE: &str = "krb5_msg_type";
const ERROR: &str = "krb5_err_code";
const TICKET: &str = "krb5.ticket_encryption";

const TYPES: &[(&str, u64)] = &[
    ("as_req", 10),
    ("as_rep", 11),
    ("tgs_req", 12),
    ("tgs_rep", 13),
    ("ap_req", 14),
    ("ap_rep", 15),
    ("error", 30),
];

/// Kinds of encryption (IANA, Kerberos Encryption Type Numbers).
const ENCRYPTIONS: &[(&str, u64)] = &[
    ("des-cbc-crc", 1),
    ("des-cbc-md4", 2),
    ("des-cbc-md5", 3),
    ("des3-cbc-md5", 5),
    ("des3-cbc-sha1", 7),
    ("dsawithsha1-cmsoid", 9),
    ("md5withrsaencryption-cmsoid", 10),
    ("sha1withrsaencryption-cmsoid", 11),
    ("rc2cbc-envoid", 12),
    ("rsaencryption-envoid", 13),
    ("rsaes-oaep-env-oid", 14),
    ("des-ede3-cbc-env-oid", 15),
    ("des3-cbc-sha1-kd", 16),
    ("aes128-cts-hmac-sha1-96", 17),
    ("aes256-cts-hmac-sha1-96", 18),
    ("aes128-cts-hmac-sha256-128", 19),
    ("aes256-cts-hmac-sha384-192", 20),
    ("rc4-hmac", 23),
    ("rc4-hmac-exp", 24),
    ("camellia128-cts-cmac", 25),
    ("camellia256-cts-cmac", 26),
];

/// The word for all that [`is_weak`] says yes to, as the ranges that it leaves.
const WEAK: &[(&str, &[(u64, u64)])] = &[("weak", &[(0, 16), (21, 24), (27, u32::MAX as u64)])];

/// Whether an encryption is none of those that are not deprecated (RFC 6649, RFC 8429).
fn is_weak(encryption: u64) -> bool {
    !matches!(encryption, 17..=20 | 25 | 26)
}

/// Codes of errors (RFC 4120, 7.5.9; RFC 4556; RFC 6806).
const ERRORS: &[(&str, u64)] = &[
    ("KDC_ERR_NONE", 0),
    ("KDC_ERR_NAME_EXP", 1),
    ("KDC_ERR_SERVICE_EXP", 2),
    ("KDC_ERR_BAD_PVNO", 3),
    ("KDC_ERR_C_OLD_MAST_KVNO", 4),
    ("KDC_ERR_S_OLD_MAST_KVNO", 5),
    ("KDC_ERR_C_PRINCIPAL_UNKNOWN", 6),
    ("KDC_ERR_S_PRINCIPAL_UNKNOWN", 7),
    ("KDC_ERR_PRINCIPAL_NOT_UNIQUE", 8),
    ("KDC_ERR_NULL_KEY", 9),
    ("KDC_ERR_CANNOT_POSTDATE", 10),
    ("KDC_ERR_NEVER_VALID", 11),
    ("KDC_ERR_POLICY", 12),
    ("KDC_ERR_BADOPTION", 13),
    ("KDC_ERR_ETYPE_NOSUPP", 14),
    ("KDC_ERR_SUMTYPE_NOSUPP", 15),
    ("KDC_ERR_PADATA_TYPE_NOSUPP", 16),
    ("KDC_ERR_TRTYPE_NOSUPP", 17),
    ("KDC_ERR_CLIENT_REVOKED", 18),
    ("KDC_ERR_SERVICE_REVOKED", 19),
    ("KDC_ERR_TGT_REVOKED", 20),
    ("KDC_ERR_CLIENT_NOTYET", 21),
    ("KDC_ERR_SERVICE_NOTYET", 22),
    ("KDC_ERR_KEY_EXPIRED", 23),
    ("KDC_ERR_PREAUTH_FAILED", 24),
    ("KDC_ERR_PREAUTH_REQUIRED", 25),
    ("KDC_ERR_SERVER_NOMATCH", 26),
    ("KDC_ERR_MUST_USE_USER2USER", 27),
    ("KDC_ERR_PATH_NOT_ACCEPTED", 28),
    ("KDC_ERR_SVC_UNAVAILABLE", 29),
    ("KRB_AP_ERR_BAD_INTEGRITY", 31),
    ("KRB_AP_ERR_TKT_EXPIRED", 32),
    ("KRB_AP_ERR_TKT_NYV", 33),
    ("KRB_AP_ERR_REPEAT", 34),
    ("KRB_AP_ERR_NOT_US", 35),
    ("KRB_AP_ERR_BADMATCH", 36),
    ("KRB_AP_ERR_SKEW", 37),
    ("KRB_AP_ERR_BADADDR", 38),
    ("KRB_AP_ERR_BADVERSION", 39),
    ("KRB_AP_ERR_MSG_TYPE", 40),
    ("KRB_AP_ERR_MODIFIED", 41),
    ("KRB_AP_ERR_BADORDER", 42),
    ("KRB_AP_ERR_BADKEYVER", 44),
    ("KRB_AP_ERR_NOKEY", 45),
    ("KRB_AP_ERR_MUT_FAIL", 46),
    ("KRB_AP_ERR_BADDIRECTION", 47),
    ("KRB_AP_ERR_METHOD", 48),
    ("KRB_AP_ERR_BADSEQ", 49),
    ("KRB_AP_ERR_INAPP_CKSUM", 50),
    ("KRB_AP_PATH_NOT_ACCEPTED", 51),
    ("KRB_ERR_RESPONSE_TOO_BIG", 52),
    ("KRB_ERR_GENERIC", 60),
    ("KRB_ERR_FIELD_TOOLONG", 61),
    ("KDC_ERR_CLIENT_NOT_TRUSTED", 62),
    ("KDC_ERR_KDC_NOT_TRUSTED", 63),
    ("KDC_ERR_INVALID_SIG", 64),
    ("KDC_ERR_KEY_TOO_WEAK", 65),
    ("KDC_ERR_CERTIFICATE_MISMATCH", 66),
    ("KRB_AP_ERR_NO_TGT", 67),
    ("KDC_ERR_WRONG_REALM", 68),
    ("KRB_AP_ERR_USER_TO_USER_REQUIRED", 69),
    ("KDC_ERR_CANT_VERIFY_CERTIFICATE", 70),
    ("KDC_ERR_INVALID_CERTIFICATE", 71),
    ("KDC_ERR_REVOKED_CERTIFICATE", 72),
    ("KDC_ERR_REVOCATION_STATUS_UNKNOWN", 73),
    ("KDC_ERR_REVOCATION_STATUS_UNAVAILABLE", 74),
    ("KDC_ERR_CLIENT_NAME_MISMATCH", 75),
    ("KDC_ERR_KDC_NAME_MISMATCH", 76),
];

/// Whether an element is a message: its number is that of an application.
fn is_message(tag: u8) -> bool {
    matches!(tag, 0x6a..=0x7e)
}

fn is_datagram(first: &First<'_>) -> bool {
    first.has_port(88) && first.at(0).is_some_and(is_message)
}

/// A name of a client or a server, in its parts.
pub(super) type Name<'a> = Vec<&'a [u8]>;

/// What a message says.
#[derive(Default)]
struct Said<'a> {
    client: Option<Name<'a>>,
    server: Option<Name<'a>>,
    realm: Option<&'a [u8]>,
    /// Of the part that is for the client.
    encryption: Option<u64>,
    ticket: Option<u64>,
    error: Option<u64>,
}

/// The element behind a tag of context, of a sequence.
fn field(sequence: &[u8], which: u8) -> Option<(u8, &[u8])> {
    let (_, content) = elements(sequence).find(|(tag, _)| *tag == 0xa0 | which)?;
    let (tag, inside, _) = element(content)?;
    Some((tag, inside))
}

fn named(sequence: &[u8], which: u8) -> Option<Name<'_>> {
    let (_, name) = field(sequence, which)?;
    let (_, parts) = field(name, 1)?;
    Some(elements(parts).take(MOST_PARTS).map(|(_, p)| p).collect())
}

fn counted(sequence: &[u8], which: u8) -> Option<u64> {
    number(field(sequence, which)?.1)
}

/// What a message of this type says; `None`: it is malformed.
fn read(kind: u8, message: &[u8]) -> Option<Said<'_>> {
    let (tag, body, _) = element(message)?;
    if tag != 0x30 {
        return None;
    }
    Some(match kind {
        10 | 12 => {
            let (_, asked) = field(body, 4)?;
            Said {
                client: named(asked, 1),
                realm: field(asked, 2).map(|f| f.1),
                server: named(asked, 3),
                ..Said::default()
            }
        }
        11 | 13 => {
            let (tag, ticket) = field(body, 5)?;
            let (_, ticket, _) = element(ticket).filter(|_| tag == 0x61)?;
            Said {
                realm: Some(field(body, 3)?.1),
                client: Some(named(body, 4)?),
                server: Some(named(ticket, 2)?),
                ticket: counted(field(ticket, 3)?.1, 0),
                encryption: counted(field(body, 6)?.1, 0),
                ..Said::default()
            }
        }
        30 => Said {
            error: Some(counted(body, 6)?),
            client: named(body, 8),
            realm: field(body, 9).map(|f| f.1),
            server: named(body, 10),
            ..Said::default()
        },
        _ => Said::default(),
    })
}

/// Realm and server of the ticket in an AP-REQ (RFC 4120, 5.5.1).
pub(super) fn ticket_of(request: &[u8]) -> Option<(&[u8], Name<'_>)> {
    let (tag, inside, _) = element(request)?;
    let (_, body, _) = element(inside).filter(|_| tag == 0x6e)?;
    let (tag, ticket) = field(body, 3)?;
    let (_, ticket, _) = element(ticket).filter(|_| tag == 0x61)?;
    Some((field(ticket, 1)?.1, named(ticket, 2)?))
}

/// How records name a number.
fn name_of(list: &[(&'static str, u64)], number: u64) -> String {
    let known = list.iter().find(|(_, n)| *n == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

fn kind_name(kind: u8) -> String {
    let known = TYPES.iter().find(|(_, n)| *n == u64::from(kind));
    known.map_or_else(
        || kind.to_string(),
        |(name, _)| format!("KRB_{}", name.to_ascii_uppercase()),
    )
}

struct Krb5 {
    wanted: Wanted,
    stream: bool,
    halves: [Carry; 2],
    /// Type of the last request, which an error is about.
    request: u8,
}

impl Krb5 {
    fn new(wanted: &Wanted, stream: bool) -> Krb5 {
        Krb5 {
            wanted: *wanted,
            stream,
            halves: <[Carry; 2]>::default(),
            request: 0,
        }
    }

    fn message(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let w = self.wanted;
        let t = out.begin(&KIND, time);
        t.only(d);
        let found = element(bytes).filter(|(tag, ..)| is_message(*tag));
        let kind = found.map_or(0, |(tag, ..)| tag & 0x1f);
        let Some(said) = found.and_then(|(_, message, _)| read(kind, message)) else {
            t.event("malformed_data");
            t.logged = true;
            t.finish();
            return;
        };
        if matches!(kind, 10 | 12 | 14) {
            self.request = kind;
        }
        t.facts.push((TYPE, kind.into()));
        if let Some(code) = said.error {
            t.facts.push((ERROR, code));
        }
        if let Some(ticket) = said.ticket {
            t.facts.push((TICKET, ticket));
        }
        if said.encryption.is_some_and(is_weak) {
            t.event("weak_encryption");
        }
        for (buffer, name) in [
            (Buffer::Krb5Client, &said.client),
            (Buffer::Krb5Server, &said.server),
        ] {
            if w.buffers.has(buffer) && d == Direction::ToClient {
                for part in name.iter().flatten() {
                    t.push(buffer, d, part);
                }
            }
        }
        if w.records {
            let r = &mut t.record;
            match said.error {
                Some(code) => {
                    r.insert("msg_type".into(), "KRB_ERROR".into());
                    let failed = kind_name(self.request);
                    r.insert("failed_request".into(), failed.into());
                    r.insert("error_code".into(), name_of(ERRORS, code).into());
                }
                None => {
                    r.insert("msg_type".into(), kind_name(kind).into());
                }
            }
            let whole = |name: &Option<Name<'_>>| match name {
                Some(parts) => string(&parts.join(&b'/')),
                None => "<empty>".to_owned(),
            };
            r.insert("cname".into(), whole(&said.client).into());
            let realm = said.realm.map_or_else(|| "<empty>".to_owned(), string);
            r.insert("realm".into(), realm.into());
            r.insert("sname".into(), whole(&said.server).into());
            let shown = |e: Option<u64>| e.map(|e| name_of(ENCRYPTIONS, e));
            let encryption = shown(said.encryption).unwrap_or_else(|| "<none>".to_owned());
            r.insert("encryption".into(), encryption.into());
            let weak = said.encryption.is_some_and(is_weak);
            r.insert("weak_encryption".into(), weak.into());
            if let Some(ticket) = said.ticket {
                let name = name_of(ENCRYPTIONS, ticket);
                r.insert("ticket_encryption".into(), name.into());
                r.insert("ticket_weak_encryption".into(), is_weak(ticket).into());
            }
        }
        t.finish();
    }
}

impl Parser for Krb5 {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if !self.stream {
            self.message(d, bytes, time, out);
            return;
        }
        let mut carry = std::mem::take(d.of_mut(&mut self.halves));
        carry.feed(bytes, |rest| {
            let Some(length) = be32(rest, 0) else {
                return Taken::More;
            };
            let length = length as usize;
            if length > MOST_MESSAGE {
                let t = out.begin(&KIND, time);
                t.only(d);
                t.event("malformed_data");
                t.logged = true;
                t.finish();
                return Taken::Passing(4, length as u64);
            }
            match rest.get(4..4 + length) {
                Some(message) => {
                    self.message(d, message, time, out);
                    Taken::Bytes(4 + length)
                }
                None => Taken::More,
            }
        });
        *d.of_mut(&mut self.halves) = carry;
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        // Where the next message begins is not known.
        out.failed |= !d.of_mut(&mut self.halves).gap(length);
    }

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn is_between(&self, d: Direction) -> bool {
        self.stream && d.of(&self.halves).is_empty()
    }

    fn memory(&self) -> usize {
        size_of::<Krb5>() + self.halves.iter().map(Carry::memory).sum::<usize>()
    }
}
