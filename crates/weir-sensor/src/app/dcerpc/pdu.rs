//! Messages of DCE/RPC (C706, MS-RPCE): their headers, the interfaces that a client binds, and what a call is about. Over connections, also those that pipes of SMB carry.

use crate::app::bytes::{be16, be32};
use crate::app::names::App;
use crate::app::transaction::{Kind, Transaction};
use crate::app::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// Bytes of a header over connections.
pub(in crate::app) const HEADER: usize = 16;
/// Contexts of one association that are remembered.
const MOST_CONTEXTS: usize = 64;
/// Contexts that one bind offers at most, as far as anybody looks.
const MOST_OFFERED: u8 = 32;
/// Bytes of arguments of one side of a call that are inspected.
pub(in crate::app) const MOST_STUB: usize = 1 << 20;

pub(super) static KIND: Kind = Kind {
    app: App::Dcerpc,
    ..Kind::EXCHANGE
};

/// Kinds of messages over connections.
pub(in crate::app) mod kind {
    pub(in crate::app) const REQUEST: u8 = 0;
    pub(in crate::app) const RESPONSE: u8 = 2;
    pub(in crate::app) const FAULT: u8 = 3;
    pub(in crate::app) const BIND: u8 = 11;
    pub(in crate::app) const BIND_ACK: u8 = 12;
    pub(in crate::app) const BIND_NAK: u8 = 13;
    pub(in crate::app) const ALTER: u8 = 14;
    pub(in crate::app) const ALTER_ANSWER: u8 = 15;
    pub(in crate::app) const AUTH3: u8 = 16;
}

/// The name of a kind of message over connections, as records have it.
pub(in crate::app) fn kind_name(kind: u8) -> &'static str {
    match kind {
        kind::REQUEST => "REQUEST",
        kind::RESPONSE => "RESPONSE",
        kind::FAULT => "FAULT",
        kind::BIND => "BIND",
        kind::BIND_ACK => "BINDACK",
        kind::BIND_NAK => "BINDNAK",
        kind::ALTER => "ALTER_CONTEXT",
        kind::ALTER_ANSWER => "ALTER_CONTEXT_RESP",
        kind::AUTH3 => "AUTH3",
        17 => "SHUTDOWN",
        18 => "CO_CANCEL",
        19 => "ORPHANED",
        20 => "RTS",
        _ => "UNKNOWN",
    }
}

/// Name of the fact: first half of the interface that a call is for.
pub(crate) const INTERFACE_HIGH: &str = "dcerpc.iface.high";
/// Its second half.
pub(crate) const INTERFACE_LOW: &str = "dcerpc.iface.low";
/// Its version.
pub(crate) const INTERFACE_VERSION: &str = "dcerpc.iface.version";
/// Number of the operation.
pub(in crate::app) const OPERATION: &str = "dcerpc.opnum";

/// A message over a connection.
#[derive(Clone, Copy)]
pub(in crate::app) struct Pdu<'a> {
    pub(in crate::app) minor: u8,
    pub(in crate::app) kind: u8,
    flags: u8,
    pub(in crate::app) little: bool,
    /// Its length, all of which need not be there.
    pub(in crate::app) length: usize,
    pub(in crate::app) call: u32,
    /// The bytes that are there, with the header.
    bytes: &'a [u8],
}

impl<'a> Pdu<'a> {
    /// The one that begins here; `None`: there are less than its header, or it is none.
    pub(in crate::app) fn read(bytes: &'a [u8]) -> Option<Pdu<'a>> {
        let head: &[u8; HEADER] = bytes.first_chunk()?;
        let [5, minor @ 0..=1, kind @ 0..=20, flags, order, ..] = *head else {
            return None;
        };
        let little = match order & 0xf0 {
            0x10 => true,
            0 => false,
            _ => return None,
        };
        let length = usize::from(word(head, 8, little)?);
        if length < HEADER {
            return None;
        }
        Some(Pdu {
            minor,
            kind,
            flags,
            little,
            length,
            call: long(head, 12, little)?,
            bytes: bytes.get(..length).unwrap_or(bytes),
        })
    }

    /// The first fragment of its call.
    pub(in crate::app) fn is_first(&self) -> bool {
        self.flags & 1 != 0
    }

    /// The last one.
    pub(in crate::app) fn is_last(&self) -> bool {
        self.flags & 2 != 0
    }

    fn word(&self, at: usize) -> Option<u16> {
        word(self.bytes, at, self.little)
    }

    /// The context that a request is for.
    fn context(&self) -> Option<u16> {
        self.word(20)
    }

    /// The operation that a request asks for.
    pub(in crate::app) fn operation(&self) -> Option<u16> {
        self.word(22)
    }

    /// Arguments of a request or a response, with what authentication puts behind them; also how many bytes that is, not all of which need be here.
    pub(in crate::app) fn stub(&self) -> (&'a [u8], usize) {
        let object = self.kind == kind::REQUEST && self.flags & 0x80 != 0;
        let from = if object { 40 } else { 24 };
        let there = self.bytes.get(from..).unwrap_or_default();
        (there, self.length.saturating_sub(from))
    }

    /// The interfaces that a bind offers.
    fn offers(&self, bind: u32) -> Vec<Context> {
        let mut list = Vec::new();
        let mut at = 28;
        for _ in 0..self
            .bytes
            .get(24)
            .copied()
            .unwrap_or_default()
            .min(MOST_OFFERED)
        {
            let (Some(id), Some(uuid), Some(version), Some(minor)) = (
                self.word(at),
                self.bytes.get(at + 4..).and_then(|b| b.first_chunk()),
                self.word(at + 20),
                self.word(at + 22),
            ) else {
                break;
            };
            list.push(Context {
                id,
                interface: canonical(uuid, self.little),
                version,
                minor,
                bind,
                result: None,
            });
            let syntaxes = self.bytes.get(at + 2).copied().unwrap_or_default();
            at += 24 + 20 * usize::from(syntaxes);
        }
        list
    }

    /// Result and reason of each interface that a bind offered.
    fn results(&self) -> Vec<(u16, u16)> {
        // The second address has a length of its own, and what follows it is aligned to four bytes.
        let Some(list) = self
            .word(24)
            .map(|n| (26 + usize::from(n)).next_multiple_of(4))
        else {
            return Vec::new();
        };
        let count = self.bytes.get(list).copied().unwrap_or_default();
        (0..usize::from(count.min(MOST_OFFERED)))
            .map_while(|n| {
                let at = list + 4 + 24 * n;
                Some((self.word(at)?, self.word(at + 2)?))
            })
            .collect()
    }
}

pub(in crate::app) fn word(bytes: &[u8], at: usize, little: bool) -> Option<u16> {
    let n = be16(bytes, at)?;
    Some(if little { n.swap_bytes() } else { n })
}

pub(in crate::app) fn long(bytes: &[u8], at: usize, little: bool) -> Option<u32> {
    let n = be32(bytes, at)?;
    Some(if little { n.swap_bytes() } else { n })
}

/// A UUID in the order in which it is written.
pub(in crate::app) fn canonical(bytes: &[u8; 16], little: bool) -> u128 {
    let mut b = *bytes;
    if little {
        let (a, rest) = b.split_at_mut(4);
        let (c, rest) = rest.split_at_mut(2);
        a.reverse();
        c.reverse();
        if let Some(e) = rest.get_mut(..2) {
            e.reverse();
        }
    }
    u128::from_be_bytes(b)
}

/// A UUID as text.
pub(in crate::app) fn uuid(n: u128) -> String {
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        n >> 96,
        n >> 80 & 0xffff,
        n >> 64 & 0xffff,
        n >> 48 & 0xffff,
        n & 0xffff_ffff_ffff
    )
}

/// An interface that a client bound, or asked to.
#[derive(Clone, Copy, Debug)]
struct Context {
    id: u16,
    interface: u128,
    version: u16,
    minor: u16,
    /// Which of the binds of its association offered it.
    bind: u32,
    /// What the server said: its result and reason.
    result: Option<(u16, u16)>,
}

impl Context {
    fn show(&self) -> Record {
        let version = format!("{}.{}", self.version, self.minor);
        Record::from_iter([
            ("uuid".to_owned(), uuid(self.interface).into()),
            ("version".to_owned(), version.into()),
        ])
    }
}

/// The interfaces of one association.
#[derive(Debug, Default)]
pub(in crate::app) struct Contexts {
    /// The newest last.
    list: Vec<Context>,
    /// Binds so far.
    binds: u32,
    /// Call and number of the last one.
    last: (u32, u32),
}

pub(in crate::app) type Record = serde_json::Map<String, serde_json::Value>;

impl Contexts {
    /// A client offers interfaces; returns the number of the bind.
    pub(in crate::app) fn offer(&mut self, pdu: &Pdu<'_>) -> u32 {
        self.binds = self.binds.wrapping_add(1);
        self.last = (pdu.call, self.binds);
        for context in pdu.offers(self.binds) {
            if self.list.len() >= MOST_CONTEXTS {
                self.list.remove(0);
            }
            self.list.push(context);
        }
        self.binds
    }

    /// The server says what came of those of the last bind; returns its number. An answer to an older one, which nobody waits for, says nothing.
    pub(in crate::app) fn answer(&mut self, pdu: &Pdu<'_>) -> Option<u32> {
        let (call, bind) = self.last;
        let offered = self.list.iter_mut().filter(|c| c.bind == bind);
        if call != pdu.call {
            return None;
        }
        for (context, result) in offered.zip(pdu.results()) {
            context.result = Some(result);
        }
        Some(bind)
    }

    /// The accepted one that a request is for.
    fn of(&self, pdu: &Pdu<'_>) -> Option<&Context> {
        let id = pdu.context()?;
        let accepted = |c: &&Context| c.id == id && matches!(c.result, Some((0, _)));
        self.list.iter().rfind(accepted)
    }

    /// Those that a bind offered, with what came of them, as records have them.
    pub(in crate::app) fn show(&self, bind: u32, reasons: bool) -> Vec<serde_json::Value> {
        let of = self.list.iter().filter(|c| c.bind == bind);
        of.map(|c| {
            let mut shown = c.show();
            if let Some((result, reason)) = c.result {
                shown.insert("ack_result".into(), result.into());
                if reasons {
                    shown.insert("ack_reason".into(), reason.into());
                }
            }
            shown.into()
        })
        .collect()
    }

    /// The one that a request is for, or all of the last bind if that is not known.
    pub(in crate::app) fn show_of(&self, pdu: &Pdu<'_>) -> Vec<serde_json::Value> {
        match self.of(pdu) {
            Some(context) => vec![context.show().into()],
            None => {
                let last = self.list.iter().filter(|c| c.bind == self.last.1);
                last.map(|c| c.show().into()).collect()
            }
        }
    }

    /// Bytes that it holds.
    pub(in crate::app) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Context>()
    }

    /// What rules ask of a request: its operation and its interface.
    pub(in crate::app) fn note(&self, pdu: &Pdu<'_>, t: &mut Transaction) {
        if let Some(operation) = pdu.operation() {
            t.facts.push((OPERATION, u64::from(operation)));
        }
        if let Some(context) = self.of(pdu) {
            note_interface(t, context.interface, u64::from(context.version));
        }
    }
}

/// The interface of a call, as rules ask for it.
pub(in crate::app) fn note_interface(t: &mut Transaction, interface: u128, version: u64) {
    t.facts.push((INTERFACE_HIGH, (interface >> 64) as u64));
    t.facts.push((INTERFACE_LOW, interface as u64));
    t.facts.push((INTERFACE_VERSION, version));
}

/// More arguments of one side of a call.
pub(in crate::app) fn add_stub(
    t: &mut Transaction,
    d: Direction,
    (bytes, little): (&[u8], bool),
    w: &Wanted,
) {
    if w.buffers.has(Buffer::DcerpcStub) {
        *d.of_mut(&mut t.little) = little;
        t.append(Buffer::DcerpcStub, d, bytes, MOST_STUB);
    }
}

/// What records say of the arguments of one side: fragments, and bytes of them.
pub(in crate::app) fn show_stub(r: &mut Record, key: &str, bytes: usize) -> Option<()> {
    let side = r.entry(key).or_insert_with(|| Record::new().into());
    let side = side.as_object_mut()?;
    for (key, more) in [("frag_cnt", 1), ("stub_data_size", bytes as u64)] {
        let before = side.get(key).and_then(serde_json::Value::as_u64);
        side.insert(key.into(), before.unwrap_or(0).saturating_add(more).into());
    }
    Some(())
}
