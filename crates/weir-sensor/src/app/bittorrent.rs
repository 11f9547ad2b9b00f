//! The distributed hash table of BitTorrent (BEP 5, BEP 32): each datagram is a message, a dictionary of BEP 3.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

use super::names::App;
use super::probe::First;
use super::protocol::{Carrier, Log, Parser, Protocol};
use super::text::{hex, text};
use super::transaction::{Kind, Transactions, Turns};
use super::wanted::Wanted;
use crate::packet::Direction;

pub(super) const BITTORRENT_DHT: Protocol = Protocol {
    app: App::BittorrentDht,
    // As its events and records have it.
    aliases: &["bittorrent_dht"],
    carrier: Carrier::Udp,
    datagram: Some(looks_like),
    parser: Some(|start| Box::new(Dht::new(start.asked))),
    kind: Some(&KIND),
    log: Log {
        name: Some("bittorrent_dht"),
        chosen: Some("bittorrent-dht"),
        numbered: false,
        direction: |_, packet| packet,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::BittorrentDht,
    turns: Turns::Message,
    events: &["malformed_packet"],
    ..Kind::EXCHANGE
};

/// Nodes and addresses of one message that are told; a datagram of the usual size has some fifty.
const MOST_TOLD: usize = 128;

/// Keys are sorted: a message begins with its arguments, its answer, its error, or the address that it came from.
fn looks_like(first: &First<'_>) -> bool {
    [b"d1:ad", b"d1:rd", b"d1:el", b"d2:ip"]
        .iter()
        .any(|begin| first.bytes.starts_with(*begin))
}

/// A value of the encoding; what is in lists and dictionaries is read when it is asked for.
#[derive(Clone, Copy)]
enum Encoded<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    List(&'a [u8]),
    Dictionary(&'a [u8]),
}

/// A value and what stands behind it.
fn value(b: &[u8]) -> Option<(Encoded<'_>, &[u8])> {
    match b.first()? {
        b'i' => {
            let (digits, rest) = until(b.get(1..)?, b'e')?;
            Some((Encoded::Number(number(digits)?), rest))
        }
        kind @ (b'l' | b'd') => {
            let rest = skip(b)?;
            let inside = b.get(1..b.len() - rest.len() - 1)?;
            let read = match kind {
                b'l' => Encoded::List(inside),
                _ => Encoded::Dictionary(inside),
            };
            Some((read, rest))
        }
        _ => {
            let (bytes, rest) = string(b)?;
            Some((Encoded::Bytes(bytes), rest))
        }
    }
}

/// What stands behind a value, however deep that is.
fn skip(mut b: &[u8]) -> Option<&[u8]> {
    let mut depth = 0_u32;
    loop {
        b = match b.first()? {
            b'i' => until(b.get(1..)?, b'e')?.1,
            b'l' | b'd' => {
                depth += 1;
                b.get(1..)?
            }
            b'e' => {
                depth = depth.checked_sub(1)?;
                b.get(1..)?
            }
            _ => string(b)?.1,
        };
        if depth == 0 {
            return Some(b);
        }
    }
}

fn until(b: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(end, b)?;
    Some((b.get(..at)?, b.get(at + 1..)?))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Bytes behind their length and a colon.
fn string(b: &[u8]) -> Option<(&[u8], &[u8])> {
    let (digits, rest) = until(b, b':')?;
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let length = usize::try_from(number(digits).filter(|_| is_number)?).ok()?;
    rest.split_at_checked(length)
}

impl<'a> Encoded<'a> {
    /// The value of a key of a dictionary; `None` also where the dictionary is broken in front of it.
    fn get(self, key: &[u8]) -> Option<Encoded<'a>> {
        let Encoded::Dictionary(mut rest) = self else {
            return None;
        };
        loop {
            let (name, behind) = string(rest)?;
            if name == key {
                return Some(value(behind)?.0);
            }
            rest = skip(behind)?;
        }
    }

    fn bytes(self, key: &[u8]) -> Option<&'a [u8]> {
        match self.get(key)? {
            Encoded::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn number(self, key: &[u8]) -> Option<i64> {
        match self.get(key)? {
            Encoded::Number(n) => Some(n),
            _ => None,
        }
    }
}

/// What a message says.
enum Said<'a> {
    /// A question: its name and arguments.
    Query(&'a [u8], Encoded<'a>),
    Answer(Encoded<'a>),
    /// Its number and text.
    Error(i64, &'a [u8]),
}

struct Message<'a> {
    transaction: &'a [u8],
    client: Option<&'a [u8]>,
    said: Said<'a>,
}

fn parse(b: &[u8]) -> Option<Message<'_>> {
    let (all, _) = value(b)?;
    let said = match all.bytes(b"y")? {
        b"q" => {
            let arguments = all.get(b"a")?;
            arguments.bytes(b"id")?;
            Said::Query(all.bytes(b"q")?, arguments)
        }
        b"r" => {
            let answer = all.get(b"r")?;
            answer.bytes(b"id")?;
            Said::Answer(answer)
        }
        b"e" => {
            let Encoded::List(list) = all.get(b"e")? else {
                return None;
            };
            let (Encoded::Number(number), rest) = value(list)? else {
                return None;
            };
            let (Encoded::Bytes(message), _) = value(rest)? else {
                return None;
            };
            Said::Error(number, message)
        }
        _ => return None,
    };
    Some(Message {
        transaction: all.bytes(b"t")?,
        client: all.bytes(b"v"),
        said,
    })
}

/// Address and port, of either version by their length.
fn end(b: &[u8]) -> Option<Map<String, Value>> {
    let (address, port) = b.split_last_chunk::<2>()?;
    let ip = match address.len() {
        4 => Ipv4Addr::from(*address.first_chunk::<4>()?).to_string(),
        16 => Ipv6Addr::from(*address.first_chunk::<16>()?).to_string(),
        _ => return None,
    };
    let mut shown = Map::new();
    shown.insert("ip".into(), ip.into());
    shown.insert("port".into(), u16::from_be_bytes(*port).into());
    Some(shown)
}

/// Nodes of so many bytes each: an identifier, address and port.
fn nodes(b: &[u8], size: usize) -> Value {
    let one = |node: &[u8]| {
        let (id, at) = node.split_at_checked(20)?;
        let mut shown = end(at)?;
        shown.insert("id".into(), hex(id).into());
        Some(Value::Object(shown))
    };
    let all: Vec<Value> = (b.chunks_exact(size).take(MOST_TOLD))
        .filter_map(one)
        .collect();
    all.into()
}

fn show(m: &Message<'_>, record: &mut Map<String, Value>) {
    record.insert("transaction_id".into(), hex(m.transaction).into());
    if let Some(client) = m.client {
        record.insert("client_version".into(), hex(client).into());
    }
    match &m.said {
        Said::Query(name, arguments) => {
            record.insert("request_type".into(), text(name));
            let mut shown = Map::new();
            for key in ["id", "target", "info_hash", "token"] {
                if let Some(bytes) = arguments.bytes(key.as_bytes()) {
                    shown.insert(key.into(), hex(bytes).into());
                }
            }
            for key in ["implied_port", "port"] {
                if let Some(number) = arguments.number(key.as_bytes()) {
                    shown.insert(key.into(), number.into());
                }
            }
            record.insert("request".into(), shown.into());
        }
        Said::Answer(answer) => {
            let mut shown = Map::new();
            for key in ["id", "token"] {
                if let Some(bytes) = answer.bytes(key.as_bytes()) {
                    shown.insert(key.into(), hex(bytes).into());
                }
            }
            for (key, size) in [("nodes", 26), ("nodes6", 38)] {
                if let Some(bytes) = answer.bytes(key.as_bytes()) {
                    shown.insert(key.into(), nodes(bytes, size));
                }
            }
            if let Some(Encoded::List(mut rest)) = answer.get(b"values") {
                let mut all = Vec::new();
                while let Some((Encoded::Bytes(peer), behind)) = value(rest)
                    && all.len() < MOST_TOLD
                {
                    all.extend(end(peer).map(Value::Object));
                    rest = behind;
                }
                shown.insert("values".into(), all.into());
            }
            record.insert("response".into(), shown.into());
        }
        Said::Error(number, message) => {
            let shown = json!({"num": number, "msg": text(message)});
            record.insert("error".into(), shown);
        }
    }
}

struct Dht {
    wanted: Wanted,
}

impl Dht {
    fn new(wanted: &Wanted) -> Dht {
        Dht { wanted: *wanted }
    }
}

impl Parser for Dht {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let t = out.begin(&KIND, time);
        t.only(d);
        match parse(bytes) {
            Some(message) if self.wanted.records => show(&message, &mut t.record),
            Some(_) => {}
            None => t.event("malformed_packet"),
        }
        t.finish();
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        size_of::<Dht>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::wanted;

    /// One message as its record, and the events.
    fn told(bytes: &[u8]) -> (Value, Vec<&'static str>) {
        let (mut dht, mut out) = (Dht::new(&wanted()), Transactions::default());
        dht.data(Direction::ToServer, bytes, 1, &mut out);
        let t = &out.live[0];
        assert!(t.done);
        (Value::Object(t.record.clone()), t.events.clone())
    }

    #[test]
    fn questions_answers_and_errors_are_told() {
        let id = "abcdefghij0123456789";
        let shown = hex(id.as_bytes());
        let ask = format!("d1:ad2:id20:{id}6:target20:{id}e1:q9:find_node1:t2:aa1:v4:LT011:y1:qe");
        assert_eq!(
            told(ask.as_bytes()).0,
            json!({"transaction_id": "6161", "client_version": "4c543031", "request_type": "find_node",
                "request": {"id": shown, "target": shown}})
        );
        let announce = format!(
            "d1:ad2:id20:{id}12:implied_porti1e9:info_hash20:{id}4:porti6881e5:token4:tokne1:q13:announce_peer1:t2:ab1:y1:qe"
        );
        let (record, events) = told(announce.as_bytes());
        assert!(events.is_empty());
        assert_eq!(record["request"]["port"], 6881);
        assert_eq!(record["request"]["implied_port"], 1);
        assert_eq!(record["request"]["token"], "746f6b6e");
        let node = [id.as_bytes(), &[192, 0, 2, 1, 0x1a, 0xe1]].concat();
        let peer6 = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1, 0, 80]].concat();
        let answer = [
            format!("d1:rd2:id20:{id}5:nodes26:").as_bytes(),
            &node,
            b"6:valuesl6:\xc0\x00\x02\x02\x00\x5018:",
            &peer6,
            b"3:odde5:token2:tke1:t2:aa1:y1:re",
        ]
        .concat();
        let (record, events) = told(&answer);
        assert!(events.is_empty());
        let response = &record["response"];
        assert_eq!(
            response["nodes"],
            json!([{"id": shown, "ip": "192.0.2.1", "port": 6881}])
        );
        let peers = json!([{"ip": "192.0.2.2", "port": 80}, {"ip": "2001:db8::1", "port": 80}]);
        assert_eq!(response["values"], peers);
        assert_eq!(response["token"], "746b");
        let (record, _) = told(b"d1:eli201e7:Generice1:t2:aa1:y1:ee");
        assert_eq!(record["error"], json!({"num": 201, "msg": "Generic"}));
    }

    #[test]
    fn what_is_broken_has_an_event() {
        let whole = b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe";
        assert!(told(whole).1.is_empty());
        for cut in 0..whole.len() {
            assert_eq!(told(&whole[..cut]).1, ["malformed_packet"], "{cut}");
        }
        for broken in [
            &b"d1:ade1:q4:ping1:t2:aa1:y1:qe"[..],
            b"d1:y1:ze",
            b"d1:rde1:t2:aa1:y1:re",
            b"d1:el7:Generic3:abce1:t1:a1:y1:ee",
            b"d99999999999999999999:ae",
            b"d-1:a1:be",
            b"li1ee",
        ] {
            assert_eq!(told(broken).1, ["malformed_packet"], "{broken:?}");
        }
        // However deep, without a call in a call.
        let deep = [&b"d1:ad2:id"[..], &[b'l'; 60_000]].concat();
        assert_eq!(told(&deep).1, ["malformed_packet"]);
    }
}
