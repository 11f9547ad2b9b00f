//! SNMP: version, community or user, type of the PDU and names of its variables, where they are in clear; and whether a datagram is SNMP at all.

use super::ber::element;
use super::names::App;
use super::protocol::{Carrier, Fact, Log, Parser, Protocol, Written};
use super::text::text;
use super::transaction::{Kind, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

pub(super) const SNMP: Protocol = Protocol {
    app: App::Snmp,
    carrier: Carrier::Udp,
    datagram: Some(|first| looks_like(first.bytes)),
    parser: Some(|start| Box::new(Snmp::new(start.asked))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: "snmp.version",
            what: "version of SNMP",
            ..Fact::NONE
        },
        Fact {
            keyword: "snmp.pdu_type",
            written: Written::Number(PDU_TYPES),
            what: "type of a PDU of SNMP",
            ..Fact::NONE
        },
        Fact {
            keyword: "snmp.trap_type",
            written: Written::Number(TRAPS),
            what: "what a trap of SNMP 1 says happened",
            ..Fact::NONE
        },
    ],
    log: Log {
        numbered: false,
        direction: |_, packet| packet,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Snmp,
    turns: Turns::Message,
    events: &["malformed_data"],
    ..Kind::EXCHANGE
};

/// Types of PDUs.
const PDU_TYPES: &[(&str, u64)] = &[
    ("get_request", 0),
    ("get_next_request", 1),
    ("response", 2),
    ("set_request", 3),
    ("trap_v1", 4),
    ("get_bulk_request", 5),
    ("inform_request", 6),
    ("trap_v2", 7),
    ("report", 8),
];

/// What traps of version 1 are about; the last is any other number.
const TRAPS: &[(&str, u64)] = &[
    ("coldStart", 0),
    ("warmStart", 1),
    ("linkDown", 2),
    ("linkUp", 3),
    ("authenticationFailure", 4),
    ("egpNeighborLoss", 5),
    ("enterpriseSpecific", 6),
];

pub(super) struct Snmp {
    wanted: Wanted,
}

impl Snmp {
    pub(super) fn new(wanted: &Wanted) -> Snmp {
        Snmp { wanted: *wanted }
    }
}

/// What is read of a message.
struct Message<'a> {
    version: u8,
    community: Option<&'a [u8]>,
    /// User of version 3.
    user: Option<&'a [u8]>,
    /// Type of the PDU, unless it is encrypted.
    kind: Option<u8>,
    /// What it holds.
    pdu: &'a [u8],
}

fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    let (0x30, message, _) = element(bytes)? else {
        return None;
    };
    let (2, version, rest) = element(message)? else {
        return None;
    };
    let [version @ (0 | 1 | 3)] = *version else {
        return None;
    };
    let (tag, second, rest) = element(rest)?;
    match (version, tag) {
        (3, 0x30) => {
            let user = user(rest);
            // In clear it is a sequence: engine, context, PDU.
            let scoped = element(rest).and_then(|(_, _, data)| match element(data)? {
                (0x30, scoped, _) => Some(scoped),
                _ => None,
            });
            let pdu = scoped.and_then(|s| element(element(element(s)?.2)?.2));
            Some(Message {
                version: 3,
                community: None,
                user,
                kind: pdu.map(|(tag, ..)| tag & 0x1f),
                pdu: pdu.map_or(&[], |(_, inside, _)| inside),
            })
        }
        (0 | 1, 4) => {
            let kind = *rest.first()?;
            let pdu = element(rest).map_or(&[][..], |(_, inside, _)| inside);
            matches!(kind, 0xa0..=0xa8).then_some(Message {
                version: version + 1,
                community: Some(second),
                user: None,
                kind: Some(kind & 0x1f),
                pdu,
            })
        }
        _ => None,
    }
}

/// The name in the security parameters of version 3: the fourth of their fields.
fn user(rest: &[u8]) -> Option<&[u8]> {
    let (4, parameters, _) = element(rest)? else {
        return None;
    };
    let (0x30, mut fields, _) = element(parameters)? else {
        return None;
    };
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    match element(fields)? {
        (4, name, _) => Some(name),
        _ => None,
    }
}

/// What a trap of version 1 says happened.
fn trap_kind(message: &Message<'_>) -> Option<u64> {
    if message.kind != Some(4) {
        return None;
    }
    let address = element(message.pdu)?.2;
    let (2, kind, _) = element(element(address)?.2)? else {
        return None;
    };
    kind.iter()
        .try_fold(0u64, |n, b| Some(n.checked_mul(256)? | u64::from(*b)))
}

/// Names of the variables of a PDU: identifiers with dots.
fn variables(pdu: &[u8]) -> Option<Vec<String>> {
    let mut rest = pdu;
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    listed(rest)
}

fn listed(rest: &[u8]) -> Option<Vec<String>> {
    let (0x30, mut list, _) = element(rest)? else {
        return None;
    };
    let mut names = Vec::new();
    while let (Some((0x30, pair, after)), true) = (element(list), names.len() < MOST_VARIABLES) {
        let (6, oid, _) = element(pair)? else {
            return None;
        };
        names.push(dotted(oid));
        list = after;
    }
    Some(names)
}

/// A trap of version 1: who it is about, the address of its agent, what happened.
struct Trap<'a> {
    enterprise: String,
    address: Option<std::net::Ipv4Addr>,
    happened: &'static str,
    /// The list of variables.
    rest: &'a [u8],
}

fn trap(pdu: &[u8]) -> Option<Trap<'_>> {
    let (6, oid, rest) = element(pdu)? else {
        return None;
    };
    let (_, address, rest) = element(rest)?;
    let (2, number, rest) = element(rest)? else {
        return None;
    };
    // A number of its own, and the time.
    let rest = element(element(rest)?.2)?.2;
    Some(Trap {
        enterprise: dotted(oid),
        address: <[u8; 4]>::try_from(address).ok().map(Into::into),
        happened: match number {
            [n] => name_of(TRAPS, u64::from(*n)).unwrap_or("enterpriseSpecific"),
            _ => "enterpriseSpecific",
        },
        rest,
    })
}

fn dotted(oid: &[u8]) -> String {
    let mut out = String::new();
    let mut number = 0u64;
    for byte in oid {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if out.is_empty() {
            // The first two are in one.
            let first = (number / 40).min(2);
            out = format!("{first}.{}", number - 40 * first);
        } else {
            out.push_str(&format!(".{number}"));
        }
        number = 0;
    }
    out
}

/// Variables of one message that are logged.
const MOST_VARIABLES: usize = 128;

/// The name of a type of PDU.
fn kind_name(kind: u8) -> &'static str {
    name_of(PDU_TYPES, u64::from(kind)).unwrap_or("unknown")
}

fn name_of(names: &[(&'static str, u64)], number: u64) -> Option<&'static str> {
    let mut all = names.iter();
    all.find(|(_, n)| *n == number).map(|(name, _)| *name)
}

fn looks_like(bytes: &[u8]) -> bool {
    parse(bytes).is_some()
}

impl Parser for Snmp {
    fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let t = out.begin(&KIND, time);
        t.only(direction);
        match parse(bytes) {
            Some(m) => {
                t.facts.push(("snmp.version", u64::from(m.version)));
                if let Some(kind) = m.kind {
                    t.facts.push(("snmp.pdu_type", u64::from(kind)));
                }
                if let Some(kind) = trap_kind(&m) {
                    t.facts.push(("snmp.trap_type", kind));
                }
                for (buffer, bytes) in [
                    (Buffer::SnmpCommunity, m.community),
                    (Buffer::SnmpUser, m.user),
                ] {
                    if let Some(bytes) = bytes
                        && self.wanted.buffers.has(buffer)
                    {
                        t.push(buffer, direction, bytes);
                    }
                }
                if self.wanted.records {
                    t.record.insert("version".into(), m.version.into());
                    let kind = m.kind.map_or("encrypted", kind_name);
                    t.record.insert("pdu_type".into(), kind.into());
                    let trap = trap(m.pdu).filter(|_| m.kind == Some(4));
                    let names = match &trap {
                        Some(trap) => listed(trap.rest),
                        None => variables(m.pdu),
                    };
                    if let Some(trap) = trap {
                        t.record.insert("trap_type".into(), trap.happened.into());
                        t.record.insert("trap_oid".into(), trap.enterprise.into());
                        if let Some(address) = trap.address {
                            t.record
                                .insert("trap_address".into(), address.to_string().into());
                        }
                    }
                    if let Some(names) = names.filter(|n| !n.is_empty()) {
                        t.record.insert("vars".into(), names.into());
                    }
                    if let Some(community) = m.community {
                        t.record.insert("community".into(), text(community));
                    }
                    if let Some(user) = m.user {
                        t.record.insert("usm".into(), text(user));
                    }
                }
            }
            None => t.event("malformed_data"),
        }
        t.finish();
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        size_of::<Snmp>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferSet;

    #[test]
    fn a_community_is_found() {
        let get = b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x04\x01\x02\x03\x04\x02\x01\x00\x02\x01\x00\x30\x0b\x30\x09\x06\x05\x2b\x06\x01\x02\x01\x05\x00";
        assert!(looks_like(get));
        assert!(!looks_like(b"\x30\x26\x02\x01\x01\x04"));
        let mut out = Transactions::default();
        let wanted = Wanted {
            buffers: BufferSet::all(),
            request_body: 1,
            response_body: 1,
            decompressed: 1,
            records: true,
            sums: crate::app::Sums::default(),
            whole_files: false,
            keys: false,
            said: crate::app::Said::ALL,
        };
        Snmp::new(&wanted).data(Direction::ToServer, get, 1, &mut out);
        let t = &out.live[0];
        let found: Vec<_> = t.get(Buffer::SnmpCommunity, Direction::ToServer).collect();
        assert_eq!(found, [b"public"]);
        assert_eq!(t.record["version"], 2);
        assert_eq!(t.record["pdu_type"], "get_request");
        assert_eq!(t.record["vars"][0], "1.3.6.1.2.1");
        assert!(t.done);
    }

    #[test]
    fn a_trap_of_version_1() {
        let trap = b"\x30\x35\x02\x01\x00\x04\x06public\xa4\x28\x06\x05\x2b\x06\x01\x04\x01\x40\x04\x0a\x00\x00\x01\x02\x01\x02\x02\x01\x00\x43\x01\x07\x30\x10\x30\x0e\x06\x09\x2b\x06\x01\x02\x01\x02\x02\x01\x01\x02\x01\x01";
        let wanted = crate::app::tests::wanted();
        let mut out = Transactions::default();
        Snmp::new(&wanted).data(Direction::ToServer, trap, 1, &mut out);
        let r = &out.live[0].record;
        assert_eq!(
            (&r["trap_type"], &r["trap_address"]),
            (&"linkDown".into(), &"10.0.0.1".into())
        );
        assert_eq!(
            (&r["trap_oid"], &r["vars"][0]),
            (&"1.3.6.1.4.1".into(), &"1.3.6.1.2.1.2.2.1.1".into())
        );
    }

    #[test]
    fn a_user_of_version_3() {
        let tlv = |tag: u8, inside: &[u8]| [&[tag, inside.len() as u8][..], inside].concat();
        let usm = [
            tlv(4, b"engine"),
            tlv(2, &[1]),
            tlv(2, &[2]),
            tlv(4, b"alice"),
            tlv(4, b""),
            tlv(4, b""),
        ]
        .concat();
        let bind = tlv(
            0x30,
            &[tlv(6, &[0x2b, 6, 0x81, 0x01]), tlv(5, b"")].concat(),
        );
        let pdu = tlv(
            0xa5,
            &[tlv(2, &[1]), tlv(2, &[0]), tlv(2, &[0]), tlv(0x30, &bind)].concat(),
        );
        let message = |data: &[u8]| {
            tlv(
                0x30,
                &[
                    tlv(2, &[3]),
                    tlv(0x30, &tlv(2, &[9])),
                    tlv(4, &tlv(0x30, &usm)),
                    data.to_vec(),
                ]
                .concat(),
            )
        };
        let clear = message(&tlv(0x30, &[tlv(4, b"e"), tlv(4, b""), pdu].concat()));
        let hidden = message(&tlv(4, &[0xa5; 20]));
        let wanted = crate::app::tests::wanted();
        let mut out = Transactions::default();
        let mut snmp = Snmp::new(&wanted);
        snmp.data(Direction::ToServer, &clear, 1, &mut out);
        snmp.data(Direction::ToServer, &hidden, 1, &mut out);
        let (a, b) = (&out.live[0], &out.live[1]);
        let found: Vec<_> = a.get(Buffer::SnmpUser, Direction::ToServer).collect();
        assert_eq!(found, [b"alice"]);
        assert_eq!(a.record["pdu_type"], "get_bulk_request");
        assert_eq!(a.record["vars"][0], "1.3.6.129");
        assert_eq!(b.record["usm"], "alice");
        assert_eq!(b.record["pdu_type"], "encrypted");
    }
}
