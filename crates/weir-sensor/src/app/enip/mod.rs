//! EtherNet/IP over TCP and UDP, and CIP in it: a request with its answer is a transaction.

mod cip;
mod names;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use self::cip::{
    ATTRIBUTE, CLASS, EXTENDED, INSTANCE, SERVICE, SERVICE_ATTRIBUTE, SERVICE_CLASS, le16, le32,
};
use self::names::{COMMANDS, DEVICES, STATUSES, name};
use super::carry::{Carry, Taken};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Carrier, Fact, Parser, Protocol, Written};
use super::text::text;
use super::transaction::{Kind, Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

const HEADER: usize = 24;
const PORT: u16 = 44_818;
/// Requests that may wait for answers.
const MOST_PENDING: usize = 128;
/// Items of a message that are looked at.
const MOST_ITEMS: usize = 16;

const fn number(keyword: &'static str, what: &'static str) -> Fact {
    Fact {
        keyword,
        what,
        ..Fact::NONE
    }
}

pub(super) const ENIP: Protocol = Protocol {
    app: App::Enip,
    carrier: Carrier::Both,
    stream: Some(StreamProbe::new(Certainty::Form, look)),
    datagram: Some(|first| {
        let own = first.has_port(PORT) || first.has_port(2222);
        own && Head::read(first.bytes)
            .is_some_and(|h| h.is_usual() && usize::from(h.length) + HEADER == first.bytes.len())
    }),
    parser: Some(|start| Box::new(Enip::new(start.asked, start.stream))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: COMMAND,
            aliases: &["enip.command"],
            written: Written::Number(COMMANDS),
            what: "command of EtherNet/IP",
            ..Fact::NONE
        },
        Fact {
            keyword: STATUS,
            written: Written::Number(STATUSES),
            what: "status of EtherNet/IP",
            ..Fact::NONE
        },
        Fact {
            keyword: SERVICE,
            aliases: &["cip.service"],
            written: Written::Steps([SERVICE, SERVICE_CLASS, SERVICE_ATTRIBUTE]),
            what: "service of CIP, with the class and the attribute that it is about",
            ..Fact::NONE
        },
        number(CLASS, "class in a path of CIP"),
        number(INSTANCE, "instance in a path of CIP"),
        number(ATTRIBUTE, "attribute in a path or a list of CIP"),
        number(cip::STATUS, "status of an answer of CIP"),
        number(EXTENDED, "extended status of an answer of CIP"),
        number(PROTOCOL_VERSION, "version of EtherNet/IP"),
        number(CAPABILITIES, "capabilities of a service of EtherNet/IP"),
        number(
            REVISION,
            "revision of a device of EtherNet/IP: its two bytes",
        ),
        number(IDENTITY_STATUS, "status of a device of EtherNet/IP"),
        number(STATE, "state of a device of EtherNet/IP"),
        number(SERIAL, "serial number of a device of EtherNet/IP"),
        number(PRODUCT_CODE, "product code of a device of EtherNet/IP"),
        number(DEVICE_TYPE, "type of a device of EtherNet/IP"),
        number(VENDOR_ID, "vendor of a device of EtherNet/IP"),
    ],
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Enip,
    events: &["invalid_pdu"],
    ..Kind::EXCHANGE
};

const COMMAND: &str = "enip_command";
const STATUS: &str = "enip.status";
const PROTOCOL_VERSION: &str = "enip.protocol_version";
const CAPABILITIES: &str = "enip.capabilities";
const REVISION: &str = "enip.revision";
const IDENTITY_STATUS: &str = "enip.identity_status";
const STATE: &str = "enip.state";
const SERIAL: &str = "enip.serial";
const PRODUCT_CODE: &str = "enip.product_code";
const DEVICE_TYPE: &str = "enip.device_type";
const VENDOR_ID: &str = "enip.vendor_id";

/// The head of a message.
struct Head {
    command: u16,
    length: u16,
    session: u32,
    status: u32,
    context: [u8; 8],
    options: u32,
}

impl Head {
    fn read(b: &[u8]) -> Option<Head> {
        Some(Head {
            command: le16(b, 0)?,
            length: le16(b, 2)?,
            session: le32(b, 4)?,
            status: le32(b, 8)?,
            context: *b.get(12..)?.first_chunk()?,
            options: le32(b, 20)?,
        })
    }

    /// Whether it is what messages begin with.
    fn is_usual(&self) -> bool {
        let known = COMMANDS.iter().any(|(_, n)| *n == u64::from(self.command));
        let refused = STATUSES.iter().any(|(_, n)| *n == u64::from(self.status));
        known && refused && self.options == 0
    }

    /// Whether nothing else begins so, whatever the port.
    fn is_sure(&self) -> bool {
        self.is_usual()
            && self.status == 0
            && self.session == 0
            && matches!(
                (self.command, self.length),
                (4 | 0x63 | 0x64, 0) | (0x65, 4)
            )
    }
}

fn look(first: &First<'_>) -> Look {
    let own = first.has_port(PORT);
    match Head::read(first.bytes) {
        Some(head) if head.is_usual() && (own || head.is_sure()) => Look::Yes,
        Some(_) => Look::No,
        None => match (first.at(0), first.at(1)) {
            (Some(0 | 4 | 0x63..=0x66 | 0x6f | 0x70 | 0x72 | 0x73), None | Some(0)) if own => {
                Look::Maybe
            }
            (Some(4 | 0x63..=0x65), None | Some(0)) => Look::Maybe,
            _ => Look::No,
        },
    }
}

/// A request without an answer.
struct Pending {
    command: u16,
    context: [u8; 8],
    /// Of connected data: its number.
    sequence: Option<u16>,
    transaction: u64,
}

struct Enip {
    wanted: Wanted,
    stream: bool,
    halves: [Carry; 2],
    /// The oldest first.
    pending: VecDeque<Pending>,
}

impl Enip {
    fn new(wanted: &Wanted, stream: bool) -> Enip {
        Enip {
            wanted: *wanted,
            stream,
            halves: <[Carry; 2]>::default(),
            pending: VecDeque::new(),
        }
    }

    fn message(
        &mut self,
        d: Direction,
        head: &Head,
        pdu: &[u8],
        time: u64,
        out: &mut Transactions,
    ) {
        let (header, b) = pdu.split_at_checked(HEADER).unwrap_or((pdu, &[]));
        let sequence = sequence(head.command, b);
        let id = match d {
            ToServer => None,
            ToClient => {
                let is = |p: &Pending| {
                    p.command == head.command
                        && p.context == head.context
                        && (p.sequence.is_none() || sequence.is_none() || p.sequence == sequence)
                };
                let at = self.pending.iter().position(is);
                at.and_then(|at| self.pending.remove(at))
                    .map(|p| p.transaction)
            }
        };
        let id = id.filter(|id| out.find(*id).is_some());
        let id = id.unwrap_or_else(|| out.begin(&KIND, time).id);
        let Some(t) = out.find(id) else {
            return;
        };
        for (buffer, bytes) in [
            (Buffer::FrameEnipPdu, pdu),
            (Buffer::FrameEnipHeader, header),
            (Buffer::FrameEnipData, b),
        ] {
            if self.wanted.buffers.has(buffer) {
                t.frame((buffer, d), bytes, None);
            }
        }
        t.facts.push((COMMAND, head.command.into()));
        t.facts.push((STATUS, head.status.into()));
        let mut said = Map::new();
        said.insert("command".into(), name(COMMANDS, head.command.into()).into());
        said.insert("status".into(), name(STATUSES, head.status.into()).into());
        let read = match (head.command, d) {
            _ if head.status != 0 => Some(()),
            (0x65, _) => session(b, t, &mut said),
            (0x63, ToClient) => {
                frames(items_of(b), d, t, &self.wanted);
                identity(b, t, &mut said, &self.wanted)
            }
            (4, ToClient) => {
                frames(items_of(b), d, t, &self.wanted);
                services(b, t, &mut said, &self.wanted)
            }
            (0x6f | 0x70, _) => {
                frames(items_of(b.get(6..).unwrap_or_default()), d, t, &self.wanted);
                carried(b, t, &mut said, (d, &self.wanted))
            }
            _ => Some(()),
        };
        if read.is_none() {
            t.event("invalid_pdu");
        }
        if self.wanted.records {
            let side = match d {
                ToServer => "request",
                ToClient => "response",
            };
            t.record.insert(side.into(), said.into());
        }
        t.finish_side(d);
        if d == ToClient {
            t.finish();
            return;
        }
        // These requests have no response.
        if matches!(head.command, 0 | 0x66) {
            t.finish();
            return;
        }
        if self.pending.len() >= MOST_PENDING
            && let Some(oldest) = self.pending.pop_front()
            && let Some(t) = out.find(oldest.transaction)
        {
            t.only(ToServer);
            t.finish();
        }
        self.pending.push_back(Pending {
            command: head.command,
            context: head.context,
            sequence,
            transaction: id,
        });
    }
}

/// Items of a message that carries data: their types and contents.
fn items(b: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let count = usize::from(le16(b, 0)?);
    let mut rest = b.get(2..)?;
    let mut all = Vec::new();
    for _ in 0..count.min(MOST_ITEMS) {
        let (kind, length) = (le16(rest, 0)?, usize::from(le16(rest, 2)?));
        all.push((kind, rest.get(4..4 + length)?));
        rest = rest.get(4 + length..)?;
    }
    Some(all)
}

/// Items with their types and lengths.
fn items_of(b: &[u8]) -> Vec<&[u8]> {
    let count = usize::from(le16(b, 0).unwrap_or(0));
    let mut rest = b.get(2..).unwrap_or_default();
    let mut all = Vec::new();
    for _ in 0..count.min(MOST_ITEMS) {
        let Some(item) = le16(rest, 2).and_then(|n| rest.get(..4 + usize::from(n))) else {
            break;
        };
        all.push(item);
        rest = rest.get(item.len()..).unwrap_or_default();
    }
    all
}

/// Items for rules.
fn frames(items: Vec<&[u8]>, d: Direction, t: &mut Transaction, w: &Wanted) {
    if w.buffers.has(Buffer::FrameEnipItem) {
        for item in items {
            t.frame((Buffer::FrameEnipItem, d), item, None);
        }
    }
}

/// The number of a message of connected data.
fn sequence(command: u16, b: &[u8]) -> Option<u16> {
    if command != 0x70 {
        return None;
    }
    let all = items(b.get(6..)?)?;
    let (_, data) = all.iter().find(|(kind, _)| *kind == 0xb1)?;
    le16(data, 0)
}

/// What data is carried.
fn carried(
    b: &[u8],
    t: &mut Transaction,
    said: &mut Map<String, Value>,
    of: (Direction, &Wanted),
) -> Option<()> {
    // Behind the interface and a time limit.
    for (kind, data) in items(b.get(6..)?)? {
        let message = match kind {
            0xb1 => data.get(2..)?,
            0xb2 => data,
            _ => continue,
        };
        said.insert("cip".into(), cip::read(message, t, of, false)?.into());
    }
    Some(())
}

fn session(b: &[u8], t: &mut Transaction, said: &mut Map<String, Value>) -> Option<()> {
    let (version, options) = (le16(b, 0)?, le16(b, 2)?);
    t.facts.push((PROTOCOL_VERSION, version.into()));
    let shown = json!({"protocol_version": version, "options": options});
    said.insert("register_session".into(), shown);
    Some(())
}

fn identity(
    b: &[u8],
    t: &mut Transaction,
    said: &mut Map<String, Value>,
    w: &Wanted,
) -> Option<()> {
    for (kind, item) in items(b)? {
        if kind != 0x0c {
            continue;
        }
        let version = le16(item, 0)?;
        // Behind the address of the device.
        let d = item.get(18..)?;
        let (vendor, device, product) = (le16(d, 0)?, le16(d, 2)?, le16(d, 4)?);
        let &[major, minor] = d.get(6..)?.first_chunk()?;
        let (status, serial) = (le16(d, 8)?, le32(d, 10)?);
        let length = usize::from(*d.get(14)?);
        let product_name = d.get(15..15 + length)?;
        let state = *d.get(15 + length)?;
        for (fact, value) in [
            (PROTOCOL_VERSION, version.into()),
            (VENDOR_ID, vendor.into()),
            (DEVICE_TYPE, device.into()),
            (PRODUCT_CODE, product.into()),
            (REVISION, u64::from(major) << 8 | u64::from(minor)),
            (IDENTITY_STATUS, status.into()),
            (SERIAL, serial.into()),
            (STATE, state.into()),
        ] {
            t.facts.push((fact, value));
        }
        if w.buffers.has(Buffer::EnipProduct) {
            t.push(Buffer::EnipProduct, ToClient, product_name);
        }
        let shown = json!({
            "protocol_version": version,
            "revision": format!("{major}.{minor}"),
            "vendor_id": vendor.to_string(),
            "device_type": name(DEVICES, device.into()),
            "product_code": product,
            "status": status,
            "serial": serial,
            "product_name": text(product_name),
            "state": state,
        });
        said.insert("identity".into(), shown);
    }
    Some(())
}

fn services(
    b: &[u8],
    t: &mut Transaction,
    said: &mut Map<String, Value>,
    w: &Wanted,
) -> Option<()> {
    for (kind, item) in items(b)? {
        if kind != 0x100 {
            continue;
        }
        let (version, capabilities) = (le16(item, 0)?, le16(item, 2)?);
        let service = item.get(4..)?;
        let end = service.iter().position(|b| *b == 0);
        let service = service.get(..end.unwrap_or(service.len()))?;
        t.facts.push((PROTOCOL_VERSION, version.into()));
        t.facts.push((CAPABILITIES, capabilities.into()));
        if w.buffers.has(Buffer::EnipService) {
            t.push(Buffer::EnipService, ToClient, service);
        }
        let shown = json!({
            "protocol_version": version,
            "capabilities": capabilities,
            "service_name": text(service),
        });
        said.insert("list_services".into(), shown);
    }
    Some(())
}

/// A malformed message.
fn odd(d: Direction, time: u64, out: &mut Transactions) {
    let t = out.begin(&KIND, time);
    t.only(d);
    t.event("invalid_pdu");
    t.logged = true;
    t.finish();
}

impl Parser for Enip {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if !self.stream {
            match Head::read(bytes) {
                Some(head) if HEADER + usize::from(head.length) == bytes.len() => {
                    self.message(d, &head, bytes, time, out);
                }
                _ => odd(d, time, out),
            }
            return;
        }
        let mut carry = std::mem::take(d.of_mut(&mut self.halves));
        carry.feed(bytes, |rest| {
            let Some(head) = Head::read(rest).filter(|_| !out.failed) else {
                return Taken::More;
            };
            if !head.is_usual() {
                // Where the next message begins is not known.
                odd(d, time, out);
                out.failed = true;
                return Taken::More;
            }
            let end = HEADER + usize::from(head.length);
            match rest.get(..end) {
                Some(pdu) => {
                    self.message(d, &head, pdu, time, out);
                    Taken::Bytes(end)
                }
                None => Taken::More,
            }
        });
        *d.of_mut(&mut self.halves) = carry;
        if out.failed {
            self.end(ToClient, out);
        }
    }

    fn gap(&mut self, _: Direction, _: u64, out: &mut Transactions) {
        // Where the next message begins is not known.
        self.end(ToClient, out);
        out.failed = true;
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToServer {
            return;
        }
        for pending in self.pending.drain(..) {
            if let Some(t) = out.find(pending.transaction) {
                // A response that never came is not inspected.
                t.only(ToServer);
                t.finish();
            }
        }
    }

    fn is_between(&self, d: Direction) -> bool {
        self.stream && d.of(&self.halves).is_empty()
    }

    fn memory(&self) -> usize {
        let halves = self.halves.iter().map(Carry::memory).sum::<usize>();
        size_of::<Enip>() + halves + self.pending.capacity() * size_of::<Pending>()
    }
}
