//! DHCP (RFC 2131, 2132): each message is one transaction. Addresses, kind, times of leases, and what clients say of themselves.

use std::net::Ipv4Addr;

use serde_json::{Map, Value};

use super::names::App;
use super::protocol::{Carrier, Fact, Log, Parser, Protocol};
use super::text::{colons, text};
use super::transaction::{Kind, Transactions, Turns};
use super::wanted::Wanted;
use crate::packet::Direction;

pub(super) const DHCP: Protocol = Protocol {
    app: App::Dhcp,
    carrier: Carrier::Udp,
    datagram: Some(|first| {
        let magic = first.bytes.get(HEAD..OPTIONS);
        matches!(first.at(0), Some(1 | 2)) && magic == Some(&MAGIC[..])
    }),
    parser: Some(|start| Box::new(Dhcp::new(start.asked))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: "dhcp.leasetime",
            what: "seconds that an address is leased for",
            ..Fact::NONE
        },
        Fact {
            keyword: "dhcp.renewal_time",
            what: "seconds until a client renews its lease",
            ..Fact::NONE
        },
        Fact {
            keyword: "dhcp.rebinding_time",
            what: "seconds until a client asks any server",
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
    app: App::Dhcp,
    turns: Turns::Message,
    events: &["malformed_options", "truncated_options"],
    ..Kind::EXCHANGE
};

/// Bytes before the magic number, and before the options.
const HEAD: usize = 236;
const OPTIONS: usize = 240;
const MAGIC: [u8; 4] = [0x63, 0x82, 0x53, 0x63];
/// Options of one message that are looked at.
const MOST_OPTIONS: usize = 256;

/// Kinds of messages (RFC 2132, 9.6), from 1.
const KINDS: [&str; 8] = [
    "discover", "offer", "request", "decline", "ack", "nak", "release", "inform",
];

/// The name of an option that a client asks for, if records have one.
fn asked_for(option: u8) -> Option<&'static str> {
    Some(match option {
        1 => "subnet_mask",
        3 => "router",
        6 => "dns_server",
        15 => "domain",
        35 => "arp_timeout",
        42 => "ntp_server",
        66 => "tftp_server_name",
        150 => "tftp_server_ip",
        _ => return None,
    })
}

fn address(bytes: &[u8]) -> Option<String> {
    Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).to_string())
}

fn addresses(bytes: &[u8]) -> Option<Value> {
    let all: Vec<Value> = bytes
        .chunks_exact(4)
        .filter_map(|b| Some(address(b)?.into()))
        .collect();
    (!all.is_empty()).then(|| all.into())
}

fn seconds(bytes: &[u8]) -> Option<u64> {
    let number: [u8; 4] = bytes.try_into().ok()?;
    Some(u32::from_be_bytes(number).into())
}

pub(super) struct Dhcp {
    wanted: Wanted,
}

/// What is read of the options.
#[derive(Default)]
struct Options {
    record: Map<String, Value>,
    facts: Vec<(&'static str, u64)>,
    event: Option<&'static str>,
}

impl Options {
    /// One option. An option whose length its kind cannot have is malformed.
    fn read(&mut self, code: u8, value: &[u8], all: bool) {
        let number = |value: &[u8]| seconds(value).map(Value::from);
        let (key, said) = match code {
            53 => {
                let kind = match value {
                    [n] => Some(usize::from(*n)),
                    _ => None,
                };
                let name = |n: usize| KINDS.get(n.wrapping_sub(1)).copied().unwrap_or("unknown");
                ("dhcp_type", kind.map(|n| name(n).into()))
            }
            51 | 58 | 59 => {
                let (keyword, key) = match code {
                    51 => ("dhcp.leasetime", "lease_time"),
                    58 => ("dhcp.renewal_time", "renewal_time"),
                    _ => ("dhcp.rebinding_time", "rebinding_time"),
                };
                if let Some(time) = seconds(value) {
                    self.facts.push((keyword, time));
                }
                (key, number(value))
            }
            1 => ("subnet_mask", address(value).map(Value::from)),
            3 => ("routers", addresses(value)),
            6 => ("dns_servers", addresses(value)),
            12 => ("hostname", Some(text(value))),
            50 => ("requested_ip", address(value).map(Value::from)),
            55 => {
                let names = value.iter().filter_map(|o| asked_for(*o));
                let names: Vec<Value> = names.map(Value::from).collect();
                if names.is_empty() {
                    return;
                }
                ("params", Some(names.into()))
            }
            60 => ("vendor_class_identifier", Some(text(value))),
            61 => match value {
                // Of Ethernet it is an address; else the sender's own name.
                [1, mac @ ..] => ("client_id", Some(colons(mac, false).into())),
                [_, name @ ..] => ("client_id", Some(text(name))),
                [] => ("client_id", None),
            },
            _ => return,
        };
        match said {
            None => self.event = Some("malformed_options"),
            // What is brief says what a message is, and no more.
            Some(said) if all || code == 53 => {
                self.record.insert(key.into(), said);
            }
            Some(_) => {}
        }
    }
}

fn options(mut bytes: &[u8], all: bool) -> Options {
    let mut found = Options::default();
    for _ in 0..MOST_OPTIONS {
        match bytes {
            [0, rest @ ..] => bytes = rest,
            // The end; what follows it is padding.
            [255, ..] => return found,
            [code, length, rest @ ..] => {
                let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else {
                    break;
                };
                found.read(*code, value, all);
                bytes = rest;
            }
            _ => break,
        }
    }
    // Padding may be longer than what is looked at; else the end is missing.
    if bytes.iter().any(|b| *b != 0) || bytes.is_empty() {
        found.event = Some("truncated_options");
    }
    found
}

impl Dhcp {
    pub(super) fn new(wanted: &Wanted) -> Dhcp {
        Dhcp { wanted: *wanted }
    }
}

/// What the fixed part of a message says.
fn head(bytes: &[u8], all: bool) -> Option<Map<String, Value>> {
    let at = |from: usize| address(bytes.get(from..)?);
    let is_request = bytes.first() == Some(&1);
    let id = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
    let length = usize::from(*bytes.get(2)?).min(16);
    let mut record = Map::new();
    let kind = if is_request { "request" } else { "reply" };
    record.insert("type".into(), kind.into());
    record.insert("id".into(), id.into());
    let mac = colons(bytes.get(28..28 + length)?, false);
    record.insert("client_mac".into(), mac.into());
    record.insert("assigned_ip".into(), at(16)?.into());
    if all && is_request {
        record.insert("client_ip".into(), at(12)?.into());
    }
    if all && !is_request {
        record.insert("relay_ip".into(), at(24)?.into());
        record.insert("next_server_ip".into(), at(20)?.into());
    }
    Some(record)
}

impl Parser for Dhcp {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let t = out.begin(&KIND, time);
        t.only(d);
        let all = self.wanted.said.dhcp_all;
        let found = match bytes.get(OPTIONS..) {
            Some(rest) => options(rest, all),
            None => Options {
                event: Some("truncated_options"),
                ..Options::default()
            },
        };
        if let Some(event) = found.event {
            t.event(event);
        }
        t.facts.extend(found.facts);
        if self.wanted.records
            && let Some(mut record) = head(bytes, all)
        {
            record.extend(found.record);
            t.record = record;
        }
        t.finish();
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        size_of::<Dhcp>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::wanted;
    use crate::app::transaction::Transaction;
    use crate::packet::Direction::ToClient;

    fn message(kind: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[..4].copy_from_slice(&[kind, 1, 6, 0]);
        bytes[4..8].copy_from_slice(&[0, 0, 1, 2]);
        bytes[16..20].copy_from_slice(&[10, 0, 0, 9]);
        bytes[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(options);
        bytes
    }

    fn parsed(bytes: &[u8], all: bool) -> Transaction {
        let mut wanted = wanted().wanted;
        wanted.said.dhcp_all = all;
        let mut out = Transactions::default();
        Dhcp::new(&wanted).data(ToClient, bytes, 1, &mut out);
        out.live.remove(0).expect("one")
    }

    #[test]
    fn an_acknowledgement() {
        let options = b"\x35\x01\x05\x33\x04\0\0\x0e\x10\x3a\x04\0\0\x07\x08\x01\x04\xff\xff\xff\0\x03\x08\x0a\0\0\x01\x0a\0\0\x02\x0c\x01h\x3d\x07\x01\x02\0\0\0\0\x01\x37\x03\x01\x03\x63\0\xff\0\0";
        let t = parsed(&message(2, options), true);
        assert_eq!(t.facts("dhcp.leasetime").collect::<Vec<_>>(), [3600]);
        assert_eq!(t.facts("dhcp.renewal_time").collect::<Vec<_>>(), [1800]);
        let r = &t.record;
        assert_eq!((&r["type"], &r["id"]), (&"reply".into(), &258.into()));
        assert_eq!(r["dhcp_type"], "ack");
        assert_eq!(r["client_mac"], "02:00:00:00:00:01");
        assert_eq!(r["client_id"], "02:00:00:00:00:01");
        assert_eq!(r["assigned_ip"], "10.0.0.9");
        assert_eq!(r["routers"][1], "10.0.0.2");
        assert_eq!(r["params"], serde_json::json!(["subnet_mask", "router"]));
        assert_eq!(r["relay_ip"], "0.0.0.0");
        assert!(t.events.is_empty() && t.done);
        let brief = parsed(&message(2, options), false).record;
        assert_eq!(brief["dhcp_type"], "ack");
        assert!(brief.get("lease_time").is_none() && brief.get("relay_ip").is_none());
    }

    #[test]
    fn options_that_are_wrong() {
        let events = |options: &[u8]| parsed(&message(1, options), true).events;
        assert!(events(b"\x35\x01\x01\xff").is_empty());
        assert_eq!(events(b"\x33\x03\0\0\0\xff"), ["malformed_options"]);
        assert_eq!(events(b"\x35\x01\x01\x0c\x09h"), ["truncated_options"]);
        assert_eq!(events(b"\x35\x01\x01"), ["truncated_options"]);
        let short = parsed(&message(1, b"")[..30], true);
        assert_eq!(short.events, ["truncated_options"]);
        assert!(short.record.is_empty());
    }
}
