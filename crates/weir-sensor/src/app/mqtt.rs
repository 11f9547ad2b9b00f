//! MQTT 3.1, 3.1.1 and 5: a message and its acknowledgements are one transaction, of the direction of who began it. Rules are decided once, when it is over.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Fact, Log, Parser, Protocol, Written};
use super::text::{string, text};
use super::transaction::{Kind, Transaction, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

pub(super) const MQTT: Protocol = Protocol {
    app: App::Mqtt,
    stream: Some(StreamProbe {
        certainty: Certainty::Form,
        look,
        claims: is_connect,
    }),
    parser: Some(|start| Box::new(Mqtt::new(start.asked))),
    kind: Some(&KIND),
    facts: FACTS,
    log: Log {
        numbered: false,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Mqtt,
    turns: Turns::Message,
    events: &[
        "double_connect",
        "invalid_qos_level",
        "malformed_traffic",
        "missing_connect",
        "missing_msg_id",
        "missing_publish",
        "missing_subscribe",
        "missing_unsubscribe",
        "unassigned_msg_type",
        "unintroduced_message",
    ],
    ..Kind::EXCHANGE
};

/// Control packets (MQTT 5, 2.1.2), by number.
const TYPES: &[(&str, u64)] = &[
    ("UNASSIGNED", 0),
    ("CONNECT", 1),
    ("CONNACK", 2),
    ("PUBLISH", 3),
    ("PUBACK", 4),
    ("PUBREC", 5),
    ("PUBREL", 6),
    ("PUBCOMP", 7),
    ("SUBSCRIBE", 8),
    ("SUBACK", 9),
    ("UNSUBSCRIBE", 10),
    ("UNSUBACK", 11),
    ("PINGREQ", 12),
    ("PINGRESP", 13),
    ("DISCONNECT", 14),
    ("AUTH", 15),
];

const FACTS: &[Fact] = &[
    Fact {
        keyword: "mqtt.type",
        written: Written::Number(TYPES),
        what: "type of a message",
        ..Fact::NONE
    },
    Fact {
        keyword: "mqtt.flags",
        written: Written::Flags(&[("retain", 1), ("dup", 8)]),
        what: "flags of a message, `!` for one that is not set",
        ..Fact::NONE
    },
    Fact {
        keyword: "mqtt.qos",
        what: "quality of service of a message",
        ..Fact::NONE
    },
    Fact {
        keyword: "mqtt.protocol_version",
        what: "version of the session, 3 to 5",
        ..Fact::NONE
    },
    Fact {
        keyword: "mqtt.connect.flags",
        written: Written::Flags(&[
            ("clean_session", 2),
            ("will", 4),
            ("will_retain", 32),
            ("password", 64),
            ("username", 128),
        ]),
        what: "flags of CONNECT, `!` for one that is not set",
        ..Fact::NONE
    },
    Fact {
        keyword: "mqtt.reason_code",
        aliases: &["mqtt.connack.return_code"],
        what: "code of an acknowledgement or DISCONNECT; of SUBACK what was granted",
        ..Fact::NONE
    },
    Fact {
        keyword: "mqtt.connack.session_present",
        written: Written::Word(&[
            ("yes", 1),
            ("true", 1),
            ("1", 1),
            ("no", 0),
            ("false", 0),
            ("0", 0),
        ]),
        what: "the server kept a session",
        ..Fact::NONE
    },
];

/// Bytes of a message, if nothing else is configured; a longer one is passed over.
const MOST_MESSAGE: usize = 1 << 20;
/// Bytes of a text in a record.
const MOST_TEXT: usize = 1024;
/// Topics and codes of one message that are looked at.
const MOST_TOPICS: usize = 100;
/// Properties of one message that are looked at.
const MOST_PROPERTIES: usize = 64;
/// Exchanges that wait for an acknowledgement, and bytes of their messages; beyond it the oldest is decided as it is.
const MOST_OPEN: usize = 64;
const MOST_HELD: usize = 1 << 20;

fn is_connect(first: &First<'_>) -> bool {
    first.at(0) == Some(0x10) && !first.is_server()
}

/// CONNECT with the name of the protocol.
fn look(first: &First<'_>) -> Look {
    if !is_connect(first) {
        return Look::No;
    }
    let mut length = first.bytes.iter().skip(1).take(4);
    let end = length.position(|b| b & 0x80 == 0);
    match end.and_then(|n| first.bytes.get(n + 2..n + 8)) {
        Some(b"\0\x04MQTT" | b"\0\x06MQIs") => Look::Yes,
        Some(_) => Look::No,
        None => Look::Maybe,
    }
}

/// What comes first in every message.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: u8,
    flags: u8,
    /// Bytes of the head.
    size: usize,
    /// Bytes behind it.
    length: usize,
}

impl Head {
    fn qos(self) -> u8 {
        self.flags >> 1 & 3
    }

    fn name(self) -> &'static str {
        match self.kind {
            1 => "connect",
            2 => "connack",
            3 => "publish",
            4 => "puback",
            5 => "pubrec",
            6 => "pubrel",
            7 => "pubcomp",
            8 => "subscribe",
            9 => "suback",
            10 => "unsubscribe",
            11 => "unsuback",
            12 => "pingreq",
            13 => "pingresp",
            14 => "disconnect",
            _ => "",
        }
    }
}

enum Found {
    More,
    /// A length of more than four bytes.
    Broken,
    Head(Head),
}

fn head(bytes: &[u8]) -> Found {
    let Some((first, rest)) = bytes.split_first() else {
        return Found::More;
    };
    let mut length = 0;
    for (at, byte) in rest.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Found::Head(Head {
                kind: first >> 4,
                flags: first & 15,
                size: at + 2,
                length,
            });
        }
    }
    match rest.len() {
        0..=3 => Found::More,
        _ => Found::Broken,
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (a, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(a)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.short()?;
        self.take(usize::from(n))
    }

    fn varied(&mut self) -> Option<usize> {
        let mut n = 0;
        for at in 0..4 {
            let byte = self.byte()?;
            n |= usize::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Some(n);
            }
        }
        None
    }

    /// Properties (MQTT 5, 2.2.2), by name.
    fn properties(&mut self, version: u8, most: usize) -> Option<Map<String, Value>> {
        let mut all = Map::new();
        if version < 5 {
            return Some(all);
        }
        let length = self.varied()?;
        let mut rest = Reader(self.take(length)?);
        while !rest.0.is_empty() {
            let (name, value) = rest.property(most)?;
            if all.len() < MOST_PROPERTIES {
                all.insert(name, value);
            }
        }
        Some(all)
    }

    fn property(&mut self, most: usize) -> Option<(String, Value)> {
        let (name, width) = match self.byte()? {
            0x01 => ("payload_format_indicator", 1),
            0x02 => ("message_expiry_interval", 4),
            0x03 => ("content_type", 0),
            0x08 => ("response_topic", 0),
            0x09 => ("correlation_data", 0),
            0x0b => return Some(("subscription_identifier".into(), self.varied()?.into())),
            0x11 => ("session_expiry_interval", 4),
            0x12 => ("assigned_client_identifier", 0),
            0x13 => ("server_keep_alive", 2),
            0x15 => ("authentication_method", 0),
            0x16 => ("authentication_data", 0),
            0x17 => ("request_problem_information", 1),
            0x18 => ("will_delay_interval", 4),
            0x19 => ("request_response_information", 1),
            0x1a => ("response_information", 0),
            0x1c => ("server_reference", 0),
            0x1f => ("reason_string", 0),
            0x21 => ("receive_maximum", 2),
            0x22 => ("topic_alias_maximum", 2),
            0x23 => ("topic_alias", 2),
            0x24 => ("maximum_qos", 1),
            0x25 => ("retain_available", 1),
            0x26 => {
                let name = string(cut(self.bytes()?, most));
                return Some((name, text(cut(self.bytes()?, most))));
            }
            0x27 => ("maximum_packet_size", 4),
            0x28 => ("wildcard_subscription_available", 1),
            0x29 => ("subscription_identifier_available", 1),
            0x2a => ("shared_subscription_available", 1),
            _ => return None,
        };
        let value = match width {
            1 => self.byte()?.into(),
            2 => self.short()?.into(),
            4 => self.long()?.into(),
            _ => text(cut(self.bytes()?, most)),
        };
        Some((name.into(), value))
    }
}

fn cut(bytes: &[u8], most: usize) -> &[u8] {
    bytes.get(..most).unwrap_or(bytes)
}

/// What is read of a message.
#[derive(Default)]
struct Message<'a> {
    record: Map<String, Value>,
    buffers: Vec<(Buffer, &'a [u8])>,
    facts: Vec<(&'static str, u64)>,
    /// Number of the exchange; of what has none 0.
    id: Option<u16>,
    /// Code of an acknowledgement.
    code: u8,
    /// All of it as sent, and how much of that is its head.
    frames: Option<(&'a [u8], usize)>,
}

impl<'a> Message<'a> {
    fn says(&mut self, name: &str, value: impl Into<Value>) {
        self.record.insert(name.into(), value.into());
    }

    fn set(&mut self, properties: Map<String, Value>) {
        if !properties.is_empty() {
            self.says("properties", properties);
        }
    }

    /// A text for the record, as far as records have it.
    fn shows(&mut self, name: &str, bytes: &[u8]) {
        self.says(name, text(cut(bytes, MOST_TEXT)));
        if bytes.len() > MOST_TEXT && name == "message" {
            self.says("truncated", true);
        }
    }

    fn coded(&mut self, code: u8) {
        self.code = self.code.max(code);
        self.facts.push(("mqtt.reason_code", code.into()));
    }

    fn read(head: Head, version: u8, passwords: bool, body: &'a [u8]) -> Option<Message<'a>> {
        let mut m = Message::default();
        let mut r = Reader(body);
        match head.kind {
            1 => m.connect(&mut r, passwords)?,
            2 => {
                let present = r.byte()? & 1;
                let code = r.byte()?;
                m.facts
                    .push(("mqtt.connack.session_present", present.into()));
                m.coded(code);
                m.says("session_present", present == 1);
                m.says("return_code", code);
                let properties = r.properties(version, MOST_TEXT)?;
                m.set(properties);
            }
            3 => {
                let topic = r.bytes()?;
                m.buffers.push((Buffer::MqttPublishTopic, topic));
                m.shows("topic", topic);
                if head.qos() > 0 {
                    m.number(&mut r)?;
                }
                let properties = r.properties(version, MOST_TEXT)?;
                m.buffers.push((Buffer::MqttPublishMessage, r.0));
                m.shows("message", r.0);
                m.set(properties);
            }
            4..=7 => {
                m.number(&mut r)?;
                if version >= 5 {
                    let code = r.byte().unwrap_or(0);
                    m.coded(code);
                    m.says("reason_code", code);
                }
            }
            8 | 10 => m.topics(&mut r, head, version)?,
            9 | 11 => {
                m.number(&mut r)?;
                r.properties(version, MOST_TEXT)?;
                let codes = cut(r.0, MOST_TOPICS);
                codes.iter().for_each(|code| m.coded(*code));
                if !codes.is_empty() {
                    let name = match head.kind {
                        9 => "qos_granted",
                        _ => "reason_codes",
                    };
                    m.says(name, codes.to_vec());
                }
            }
            14 | 15 if version >= 5 => {
                let code = r.byte().unwrap_or(0);
                m.coded(code);
                m.says("reason_code", code);
                if !r.0.is_empty() {
                    let properties = r.properties(version, MOST_TEXT)?;
                    m.set(properties);
                }
            }
            _ => {}
        }
        Some(m)
    }

    fn number(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let id = r.short()?;
        self.id = Some(id);
        self.says("message_id", id);
        Some(())
    }

    fn topics(&mut self, r: &mut Reader<'a>, head: Head, version: u8) -> Option<()> {
        let asks = head.kind == 8;
        self.number(r)?;
        r.properties(version, MOST_TEXT)?;
        let mut list = Vec::new();
        while !r.0.is_empty() {
            let topic = r.bytes()?;
            let options = if asks { Some(r.byte()?) } else { None };
            if list.len() >= MOST_TOPICS {
                continue;
            }
            let shown = text(cut(topic, MOST_TEXT));
            self.buffers.push(match options {
                Some(_) => (Buffer::MqttSubscribeTopic, topic),
                None => (Buffer::MqttUnsubscribeTopic, topic),
            });
            list.push(match options {
                Some(o) => serde_json::json!({ "topic": shown, "qos": o & 3 }),
                None => shown,
            });
        }
        if !list.is_empty() {
            self.says("topics", list);
        }
        Some(())
    }

    fn connect(&mut self, r: &mut Reader<'a>, passwords: bool) -> Option<()> {
        let name = r.bytes()?;
        let version = r.byte()?;
        let flags = r.byte()?;
        r.short()?;
        self.buffers.push((Buffer::MqttConnectProtocol, name));
        self.facts.push(("mqtt.connect.flags", flags.into()));
        self.shows("protocol_string", name);
        self.says("protocol_version", version);
        self.says(
            "flags",
            serde_json::json!({
                "username": flags & 128 != 0,
                "password": flags & 64 != 0,
                "will": flags & 4 != 0,
                "will_retain": flags & 32 != 0,
                "clean_session": flags & 2 != 0,
            }),
        );
        let properties = r.properties(version, MOST_TEXT)?;
        self.set(properties);
        let client = r.bytes()?;
        self.buffers.push((Buffer::MqttConnectClient, client));
        self.shows("client_id", client);
        if flags & 4 != 0 {
            let properties = r.properties(version, MOST_TEXT)?;
            let (topic, message) = (r.bytes()?, r.bytes()?);
            self.buffers.push((Buffer::MqttConnectWillTopic, topic));
            self.buffers.push((Buffer::MqttConnectWillMessage, message));
            let mut will = Map::new();
            will.insert("topic".into(), text(cut(topic, MOST_TEXT)));
            will.insert("message".into(), text(cut(message, MOST_TEXT)));
            if !properties.is_empty() {
                will.insert("properties".into(), properties.into());
            }
            self.says("will", will);
        }
        if flags & 128 != 0 {
            let user = r.bytes()?;
            self.buffers.push((Buffer::MqttConnectUser, user));
            self.shows("username", user);
        }
        if flags & 64 != 0 {
            let password = r.bytes()?;
            self.buffers.push((Buffer::MqttConnectPassword, password));
            if passwords {
                self.shows("password", password);
            }
        }
        Some(())
    }
}

/// An exchange that waits for an acknowledgement.
struct Open {
    transaction: u64,
    /// Who began it.
    direction: Direction,
    /// The type of its first message.
    kind: u8,
    id: u16,
    bytes: usize,
}

/// One direction.
#[derive(Default)]
struct Side {
    /// The message that is not whole.
    bytes: Vec<u8>,
    /// Bytes of a message that are passed over.
    skip: u64,
}

pub(super) struct Mqtt {
    wanted: Wanted,
    most: usize,
    sides: [Side; 2],
    open: VecDeque<Open>,
    held: usize,
    /// Of the session; 0: it is not known yet.
    version: u8,
    connected: bool,
    /// Messages were passed over or given up: what is acknowledged may have been there.
    missed: bool,
    /// Bytes from the message that is read to the end of what was given.
    left: usize,
}

impl Mqtt {
    pub(super) fn new(wanted: &Wanted) -> Mqtt {
        Mqtt {
            wanted: *wanted,
            most: match wanted.said.mqtt_message {
                0 => MOST_MESSAGE,
                set => set as usize,
            },
            sides: [Side::default(), Side::default()],
            open: VecDeque::new(),
            held: 0,
            version: 0,
            connected: false,
            missed: false,
            left: 0,
        }
    }

    /// Fills a transaction with one of its messages.
    fn fill(&self, t: &mut Transaction, d: Direction, head: Head, message: Message<'_>) {
        t.facts.push(("mqtt.type", head.kind.into()));
        t.facts.push(("mqtt.flags", head.flags.into()));
        t.facts.push(("mqtt.qos", head.qos().into()));
        t.facts.extend(message.facts);
        if let Some((whole, size)) = message.frames {
            let (header, data) = whole.split_at_checked(size).unwrap_or((whole, &[]));
            for (buffer, bytes) in [
                (Buffer::FrameMqttPdu, whole),
                (Buffer::FrameMqttHeader, header),
                (Buffer::FrameMqttData, data),
            ] {
                if self.wanted.buffers.has(buffer) {
                    let from = if buffer == Buffer::FrameMqttData {
                        size
                    } else {
                        0
                    };
                    t.frame((buffer, d), bytes, Some(self.left.saturating_sub(from)));
                }
            }
        }
        for (buffer, bytes) in message.buffers {
            if self.wanted.buffers.has(buffer) && buffer.sides().has(d) {
                t.push(buffer, d, bytes);
            }
        }
        if self.wanted.records && !head.name().is_empty() {
            let mut record = message.record;
            record.insert("qos".into(), head.qos().into());
            record.insert("retain".into(), (head.flags & 1 != 0).into());
            record.insert("dup".into(), (head.flags & 8 != 0).into());
            t.record.insert(head.name().into(), record.into());
        }
    }

    /// Begins a transaction in a direction.
    fn begin<'t>(&self, d: Direction, time: u64, out: &'t mut Transactions) -> &'t mut Transaction {
        let t = out.begin(&KIND, time);
        t.only(d);
        if self.version != 0 {
            t.facts.push(("mqtt.protocol_version", self.version.into()));
        }
        t
    }

    /// A message that is longer than what is read.
    fn long(&mut self, d: Direction, head: Head, time: u64, out: &mut Transactions) {
        self.missed = true;
        let mut message = Message::default();
        message.says("truncated", true);
        message.says("skipped_length", head.size + head.length);
        // Other messages have no field that says so.
        if head.kind != 3 {
            message.record.clear();
        }
        let t = self.begin(d, time, out);
        self.fill(t, d, head, message);
        t.finish();
    }

    fn message(
        &mut self,
        d: Direction,
        head: Head,
        whole: &[u8],
        time: u64,
        out: &mut Transactions,
    ) {
        let body = whole.get(head.size..).unwrap_or_default();
        let passwords = !self.wanted.said.mqtt_no_passwords;
        let read = Message::read(head, self.version, passwords, body);
        // Version 3 has no AUTH.
        let wrong = match head.kind {
            0 => Some("unassigned_msg_type"),
            15 if self.version < 5 => Some("unassigned_msg_type"),
            _ if head.qos() == 3 => Some("invalid_qos_level"),
            _ => None,
        };
        let frames = (whole, head.size);
        let Some(mut message) = read.filter(|_| wrong.is_none()) else {
            let t = self.begin(d, time, out);
            let lacks = match head.kind {
                3 => head.qos() > 0 && body.len() <= 2,
                4..=11 => body.len() < 2,
                _ => false,
            };
            t.event(match wrong {
                Some(wrong) => wrong,
                None if lacks => "missing_msg_id",
                None => "malformed_traffic",
            });
            let message = Message {
                frames: Some(frames),
                ..Message::default()
            };
            self.fill(t, d, head, message);
            t.finish();
            return;
        };
        message.frames = Some(frames);
        // Who began what this belongs to, if it is not this one.
        let answers = match head.kind {
            2 => Some((1, d.reversed(), "missing_connect")),
            4 | 5 | 7 => Some((3, d.reversed(), "missing_publish")),
            6 => Some((3, d, "missing_publish")),
            9 => Some((8, d.reversed(), "missing_subscribe")),
            11 => Some((10, d.reversed(), "missing_unsubscribe")),
            _ => None,
        };
        let (id, code) = (message.id.unwrap_or(0), message.code);
        let unmet = !matches!(head.kind, 1 | 2) && !self.connected;
        if head.kind == 2 {
            self.connected = code == 0;
        }
        if let Some((kind, began, event)) = answers {
            let place = self
                .open
                .iter()
                .position(|o| o.kind == kind && o.direction == began && o.id == id);
            let found = place.and_then(|at| Some((at, out.find(self.open.get(at)?.transaction)?)));
            let Some((at, t)) = found else {
                let missed = self.missed;
                let t = self.begin(d, time, out);
                if !missed {
                    t.event(event);
                }
                self.fill(t, d, head, message);
                t.finish();
                return;
            };
            self.fill(t, began, head, message);
            // Of the second quality of service four messages make one exchange.
            let goes_on = matches!(head.kind, 5 | 6) && code < 0x80;
            if !goes_on {
                t.finish();
                if let Some(open) = self.open.remove(at) {
                    self.held = self.held.saturating_sub(open.bytes);
                }
            }
            return;
        }
        let again = head.kind == 1
            && (self.connected || self.open.iter().any(|o| o.kind == 1 && o.direction == d));
        if let (1, Some(version)) = (head.kind, message.record.get("protocol_version")) {
            self.version = version.as_u64().unwrap_or(0) as u8;
        }
        if head.kind == 14 {
            self.connected = false;
        }
        let t = self.begin(d, time, out);
        if again {
            t.event("double_connect");
        }
        if unmet {
            t.event("unintroduced_message");
        }
        if message.id == Some(0) {
            t.event("missing_msg_id");
        }
        self.fill(t, d, head, message);
        let waits = matches!(head.kind, 1 | 8 | 10) || head.kind == 3 && head.qos() > 0;
        if !waits {
            t.finish();
            return;
        }
        let transaction = t.id;
        self.held += body.len();
        self.open.push_back(Open {
            transaction,
            direction: d,
            kind: head.kind,
            id,
            bytes: body.len(),
        });
        while self.open.len() > MOST_OPEN || self.held > MOST_HELD {
            let Some(oldest) = self.open.pop_front() else {
                break;
            };
            self.held = self.held.saturating_sub(oldest.bytes);
            self.missed = true;
            if let Some(t) = out.find(oldest.transaction) {
                t.finish();
            }
        }
    }
}

impl Parser for Mqtt {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut side = std::mem::take(d.of_mut(&mut self.sides));
        let mut rest = bytes;
        if side.skip > 0 {
            let passed = rest
                .len()
                .min(usize::try_from(side.skip).unwrap_or(usize::MAX));
            side.skip -= passed as u64;
            rest = rest.get(passed..).unwrap_or_default();
        }
        let mut waiting = std::mem::take(&mut side.bytes);
        waiting.extend_from_slice(rest);
        let mut rest = waiting.as_slice();
        while side.skip == 0 {
            let h = match head(rest) {
                Found::Head(h) => h,
                Found::More => break,
                Found::Broken => {
                    let t = self.begin(d, time, out);
                    t.event("malformed_traffic");
                    t.finish();
                    out.failed = true;
                    return;
                }
            };
            let all = h.size + h.length;
            if h.length > self.most {
                self.long(d, h, time, out);
                side.skip = all.saturating_sub(rest.len()) as u64;
                rest = rest.get(all..).unwrap_or_default();
                continue;
            }
            let Some(whole) = rest.get(..all) else {
                break;
            };
            self.left = rest.len();
            self.message(d, h, whole, time, out);
            rest = rest.get(all..).unwrap_or_default();
        }
        let done = waiting.len() - rest.len();
        waiting.drain(..done);
        if waiting.is_empty() {
            waiting = Vec::new();
        }
        side.bytes = waiting;
        *d.of_mut(&mut self.sides) = side;
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        self.missed = true;
        let side = d.of_mut(&mut self.sides);
        if side.skip == 0 {
            // A message that has begun says how much of it is to come.
            if let Found::Head(h) = head(&side.bytes) {
                side.skip = (h.size + h.length).saturating_sub(side.bytes.len()) as u64;
            }
            side.bytes = Vec::new();
        }
        match side.skip.checked_sub(length) {
            Some(left) => side.skip = left,
            None => out.failed = true,
        }
    }

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        let sides = self.sides.iter().map(|s| s.bytes.capacity()).sum::<usize>();
        size_of::<Mqtt>() + sides + self.open.capacity() * size_of::<Open>()
    }

    fn is_between(&self, d: Direction) -> bool {
        let side = d.of(&self.sides);
        side.bytes.is_empty() && side.skip == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Ports;
    use crate::app::tests::{converse_all, wanted};
    use crate::packet::Direction::{ToClient, ToServer};

    const PORTS: Ports = Ports {
        client: 40_000,
        server: 1883,
    };

    const CONNECT: &[u8] = b"\x10\x19\0\x04MQTT\x05\xc2\0\x3c\x03\x21\0\x14\0\x02me\0\x01u\0\x02pw";
    const CONNACK: &[u8] = b"\x20\x03\x01\0\0";

    #[test]
    fn a_session_of_version_5() {
        let c = converse_all(
            &[
                (ToServer, CONNECT),
                (ToClient, CONNACK),
                (ToServer, b"\x82\x0c\0\x01\0\0\x01a\x01\0\x02b/\x02"),
                (ToClient, b"\x90\x05\0\x01\0\x01\x80"),
                (ToServer, b"\x3d\x0b\0\x01t\0\x07\0hello"),
                (ToClient, b"\x50\x02\0\x07"),
                (ToServer, b"\x62\x02\0\x07"),
                (ToClient, b"\x70\x02\0\x07"),
                (ToClient, b"\x30\x06\0\x01t\0by"),
                (ToServer, b"\xa2\x06\0\x02\0\0\x01a"),
                (ToClient, b"\xb0\x04\0\x02\0\x11"),
                (ToServer, b"\xc0\0"),
                (ToClient, b"\xd0\0"),
                (ToServer, b"\xe0\0"),
            ],
            PORTS,
        );
        assert_eq!(c.app(), App::Mqtt);
        let t = &c.transactions.live;
        assert_eq!(t.len(), 8);
        assert!(t.iter().all(|t| t.done && t.events.is_empty()));
        let connect = &t[0].record["connect"];
        assert_eq!(connect["password"], "pw");
        assert_eq!(connect["properties"]["receive_maximum"], 20);
        assert_eq!(t[0].record["connack"]["session_present"], true);
        let topics: Vec<_> = t[1].get(Buffer::MqttSubscribeTopic, ToServer).collect();
        assert_eq!(topics, [&b"a"[..], b"b/"]);
        assert_eq!(
            t[1].facts("mqtt.reason_code").collect::<Vec<_>>(),
            [1, 0x80]
        );
        let names: Vec<_> = t[2].record.keys().map(String::as_str).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert_eq!(t[2].record["publish"]["message"], "hello");
        assert_eq!(t[2].record["publish"]["dup"], true);
        let said: Vec<_> = t[3].get(Buffer::MqttPublishMessage, ToClient).collect();
        assert_eq!(said, [b"by"]);
        assert_eq!(t[4].record["unsuback"]["reason_codes"][0], 17);
        assert_eq!(t[7].record["disconnect"]["reason_code"], 0);
    }

    #[test]
    fn what_is_wrong_is_an_event() {
        let c = converse_all(
            &[
                (ToServer, CONNECT),
                (ToServer, b"\xc0\0"),
                (ToClient, CONNACK),
                (ToServer, CONNECT),
                (ToClient, b"\x40\x02\0\x09"),
                (ToServer, b"\x36\x06\0\x01t\0\x01\0"),
                (ToServer, b"\0\0"),
                (ToServer, b"\x82\x01\0"),
                (ToServer, b"\x30\x01\0"),
                (ToServer, b"\x30\x80\x80\x80\x80\x01"),
            ],
            PORTS,
        );
        let events: Vec<_> = c
            .transactions
            .live
            .iter()
            .flat_map(|t| t.events.clone())
            .collect();
        assert_eq!(
            events,
            [
                "unintroduced_message",
                "double_connect",
                "missing_publish",
                "invalid_qos_level",
                "unassigned_msg_type",
                "missing_msg_id",
                "malformed_traffic",
                "malformed_traffic",
            ]
        );
    }

    #[test]
    fn memory_is_bounded() {
        let w = wanted();
        let mut parser = Mqtt::new(&w);
        let mut out = Transactions::default();
        parser.data(ToServer, CONNECT, 1, &mut out);
        parser.data(ToClient, CONNACK, 1, &mut out);
        let waiting = |out: &Transactions| {
            let open = out.live.iter().filter(|t| !t.done);
            open.map(Transaction::memory).sum::<usize>()
        };
        for id in 0..2_000u16 {
            let mut message = vec![0x32, 0x80 | 0x35, 0x4e, 0, 1, b't'];
            message.extend(id.to_be_bytes());
            message.push(0);
            message.resize(3 + 0x35 + (0x4e << 7), b'x');
            parser.data(ToServer, &message, 1, &mut out);
            assert!(waiting(&out) <= 3 * MOST_HELD, "{}", waiting(&out));
            assert!(parser.open.len() <= MOST_OPEN);
            out.live.retain(|t| !t.done);
        }
        // A message of more than a megabyte is not kept.
        let mut out = Transactions::default();
        parser.data(ToServer, &[0x30, 0xff, 0xff, 0xff, 0x7f], 1, &mut out);
        for _ in 0..64 {
            parser.data(ToServer, &[b'x'; 1 << 20], 1, &mut out);
        }
        assert!(parser.memory() < 1 << 20, "{}", parser.memory());
        let publish = &out.live[0].record["publish"];
        assert_eq!(publish["skipped_length"], (1 << 28) + 4);
        assert_eq!(publish["truncated"], true);
        assert_eq!(out.live.len(), 1);
    }

    #[test]
    fn a_gap_inside_of_a_message_is_passed_over() {
        let w = wanted();
        let mut parser = Mqtt::new(&w);
        let mut out = Transactions::default();
        parser.data(ToServer, CONNECT, 1, &mut out);
        parser.data(ToClient, CONNACK, 1, &mut out);
        parser.data(ToServer, b"\x30\x20\0\x01t\0abc", 1, &mut out);
        parser.gap(ToServer, 20, &mut out);
        parser.data(ToServer, b"12345\xc0\0", 1, &mut out);
        assert!(!out.failed && parser.is_between(ToServer));
        assert!(out.live[1].record.contains_key("pingreq"));
        parser.gap(ToServer, 1, &mut out);
        assert!(out.failed);
    }
}
