//! RFB, the protocol of VNC (RFC 6143): versions, security, its result, and what the screen is like. The handshake of a session is one transaction; screens and keys behind it
//! are not looked at.

use serde_json::{Map, Value};

use super::names::App;
use super::probe::{Certainty, Look, StreamProbe};
use super::protocol::{Fact, Parser, Protocol, Written};
use super::text::{hex, text};
use super::transaction::{Kind, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

pub(super) const RFB: Protocol = Protocol {
    app: App::Rfb,
    services: &["vnc"],
    stream: Some(StreamProbe::new(Certainty::Word, |first| {
        match first.line() {
            Some(_) => first.begins_with(&[b"RFB 003."]),
            None => Look::No,
        }
    })),
    parser: Some(|start| Box::new(Rfb::new(start.asked))),
    kind: Some(&KIND),
    unraised_events: &["confused_state", "unknown_security_result"],
    facts: &[
        Fact {
            keyword: RESULT,
            written: Written::Number(RESULTS),
            answer: true,
            what: "result of the security of RFB",
            ..Fact::NONE
        },
        Fact {
            keyword: TYPE,
            answer: true,
            what: "type of the security of RFB",
            ..Fact::NONE
        },
    ],
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Rfb,
    events: &["malformed_message", "unimplemented_security_type"],
    answered: |_| true,
    ..Kind::EXCHANGE
};

const RESULT: &str = "rfb.secresult";
const TYPE: &str = "rfb.sectype";

/// Results (RFC 6143, 7.1.3; the third is of an extension). The last is any other number.
const RESULTS: &[(&str, u64)] = &[("ok", 0), ("fail", 1), ("toomany", 2), ("unknown", UNKNOWN)];
const UNKNOWN: u64 = 3;

/// Bytes of one end that wait for the other, and the longest text.
const MOST: usize = 16 * 1024;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    ServerVersion,
    ClientVersion,
    /// The one type that a server of version 3.3 wants.
    Type,
    /// The types that a server offers.
    Types,
    /// The type that the client takes.
    Choice,
    Challenge,
    Response,
    Result,
    /// Why a server refuses.
    Reason,
    ClientInit,
    ServerInit,
    /// The handshake is over.
    Over,
}

impl Next {
    /// Who says it.
    fn sender(self) -> Option<Direction> {
        match self {
            Next::ClientVersion | Next::Choice | Next::Response | Next::ClientInit => {
                Some(ToServer)
            }
            Next::Over => None,
            _ => Some(ToClient),
        }
    }
}

pub(super) struct Rfb {
    wanted: Wanted,
    next: Next,
    /// The second number of the version that the client takes.
    minor: u16,
    carry: [Vec<u8>; 2],
    /// The transaction.
    id: Option<u64>,
    record: Map<String, Value>,
    authentication: Map<String, Value>,
}

/// A text behind its length of four bytes, and how long both are.
fn counted(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let length = be32(bytes, 0)? as usize;
    let end = length.checked_add(4)?;
    Some((bytes.get(4..end)?, end))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The numbers of `RFB 003.008\n`.
fn version(line: &[u8]) -> Option<(&[u8], &[u8], u16)> {
    let numbers = line.strip_prefix(b"RFB ")?.strip_suffix(b"\n")?;
    let (major, minor) = (numbers.get(..3)?, numbers.get(4..7)?);
    let right = numbers.get(3) == Some(&b'.') && major.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(minor).ok()?.parse().ok()?;
    right.then_some((major, minor, number))
}

/// What a step found.
enum Step {
    /// More bytes are needed.
    More,
    /// It took so many bytes, and this comes next.
    Took(usize, Next),
    /// This is no RFB.
    Broken,
}

impl Rfb {
    pub(super) fn new(wanted: &Wanted) -> Rfb {
        Rfb {
            wanted: *wanted,
            next: Next::ServerVersion,
            minor: 0,
            carry: [Vec::new(), Vec::new()],
            id: None,
            record: Map::new(),
            authentication: Map::new(),
        }
    }

    /// Reads what comes next at the front of these bytes.
    fn step(&mut self, bytes: &[u8], out: &mut Transactions) -> Option<Step> {
        Some(match self.next {
            Next::ServerVersion | Next::ClientVersion => {
                let line = bytes.get(..12)?;
                let Some((major, minor, number)) = version(line) else {
                    return Some(Step::Broken);
                };
                let is_server = self.next == Next::ServerVersion;
                let key = match is_server {
                    true => "server_protocol_version",
                    false => "client_protocol_version",
                };
                let numbers = [("major".into(), text(major)), ("minor".into(), text(minor))];
                self.record
                    .insert(key.into(), Map::from_iter(numbers).into());
                self.minor = number;
                let next = match number {
                    _ if is_server => Next::ClientVersion,
                    7.. => Next::Types,
                    _ => Next::Type,
                };
                Step::Took(12, next)
            }
            Next::Type => {
                let kind = be32(bytes, 0)?;
                Step::Took(4, self.chosen(kind, out))
            }
            Next::Types => {
                let count = usize::from(*bytes.first()?);
                bytes.get(..=count)?;
                let next = match count {
                    0 => Next::Reason,
                    _ => Next::Choice,
                };
                Step::Took(1 + count, next)
            }
            Next::Choice => {
                let kind = u32::from(*bytes.first()?);
                Step::Took(1, self.chosen(kind, out))
            }
            Next::Challenge | Next::Response => {
                let (key, next) = match self.next {
                    Next::Challenge => ("challenge", Next::Response),
                    _ => ("response", Next::Result),
                };
                let said = hex(bytes.get(..16)?);
                let vnc = self
                    .authentication
                    .entry("vnc")
                    .or_insert_with(|| Map::new().into());
                if let Some(vnc) = vnc.as_object_mut() {
                    vnc.insert(key.into(), said.into());
                }
                Step::Took(16, next)
            }
            Next::Result => {
                let result = be32(bytes, 0)?;
                self.fact(RESULT, result.into(), out);
                if u64::from(result) > UNKNOWN {
                    self.fact(RESULT, UNKNOWN, out);
                }
                let said: Value = match result {
                    0 => "OK".into(),
                    1 => "FAIL".into(),
                    2 => "TOOMANY".into(),
                    n => format!("UNKNOWN ({n})").into(),
                };
                self.authentication.insert("security_result".into(), said);
                let next = match result {
                    0 => Next::ClientInit,
                    _ if self.minor >= 8 => Next::Reason,
                    _ => Next::Over,
                };
                Step::Took(4, next)
            }
            Next::Reason => {
                let (reason, length) = counted(bytes)?;
                self.record
                    .insert("server_security_failure_reason".into(), text(reason));
                Step::Took(length, Next::Over)
            }
            Next::ClientInit => {
                let shared = *bytes.first()? != 0;
                self.record.insert("screen_shared".into(), shared.into());
                Step::Took(1, Next::ServerInit)
            }
            Next::ServerInit => {
                let (name, length) = counted(bytes.get(20..)?)?;
                let format = bytes.get(4..20)?;
                let screen = [
                    ("width".into(), be16(bytes, 0)?.into()),
                    ("height".into(), be16(bytes, 2)?.into()),
                    ("name".into(), text(name)),
                    ("pixel_format".into(), pixels(format)?.into()),
                ];
                self.record
                    .insert("framebuffer".into(), Map::from_iter(screen).into());
                if self.wanted.buffers.has(Buffer::RfbName)
                    && let Some(t) = self.id.and_then(|id| out.find(id))
                {
                    t.push(Buffer::RfbName, ToClient, name);
                }
                Step::Took(20 + length, Next::Over)
            }
            Next::Over => Step::More,
        })
    }

    /// The type of security is known; returns what comes next.
    fn chosen(&mut self, kind: u32, out: &mut Transactions) -> Next {
        self.fact(TYPE, kind.into(), out);
        self.authentication
            .insert("security_type".into(), kind.into());
        match kind {
            0 => Next::Reason,
            // Only the last version has a result of no security.
            1 if self.minor >= 8 => Next::Result,
            1 => Next::ClientInit,
            2 => Next::Challenge,
            _ => {
                self.event("unimplemented_security_type", out);
                Next::Over
            }
        }
    }

    fn fact(&self, name: &'static str, number: u64, out: &mut Transactions) {
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            t.facts.push((name, number));
        }
    }

    fn event(&self, name: &'static str, out: &mut Transactions) {
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            t.event(name);
        }
    }

    /// The handshake is over, or will not be understood.
    fn finish(&mut self, out: &mut Transactions) {
        self.next = Next::Over;
        self.carry = [Vec::new(), Vec::new()];
        if let Some(t) = self.id.take().and_then(|id| out.find(id)) {
            if self.wanted.records {
                t.record = std::mem::take(&mut self.record);
                let authentication = std::mem::take(&mut self.authentication);
                if !authentication.is_empty() {
                    t.record
                        .insert("authentication".into(), authentication.into());
                }
            }
            t.finish();
        }
    }
}

/// How pixels are written (RFC 6143, 7.4).
fn pixels(b: &[u8]) -> Option<Map<String, Value>> {
    let byte = |at: usize| b.get(at).copied();
    Some(Map::from_iter([
        ("bits_per_pixel".into(), byte(0)?.into()),
        ("depth".into(), byte(1)?.into()),
        ("big_endian".into(), (byte(2)? != 0).into()),
        ("true_color".into(), (byte(3)? != 0).into()),
        ("red_max".into(), be16(b, 4)?.into()),
        ("green_max".into(), be16(b, 6)?.into()),
        ("blue_max".into(), be16(b, 8)?.into()),
        ("red_shift".into(), byte(10)?.into()),
        ("green_shift".into(), byte(11)?.into()),
        ("blue_shift".into(), byte(12)?.into()),
    ]))
}

impl Parser for Rfb {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if self.next == Next::Over {
            return;
        }
        if self.id.is_none() {
            self.id = Some(out.begin(&KIND, time).id);
        }
        d.of_mut(&mut self.carry).extend_from_slice(bytes);
        while let Some(sender) = self.next.sender() {
            let carry = std::mem::take(sender.of_mut(&mut self.carry));
            let step = self.step(&carry, out).unwrap_or(Step::More);
            let rest = sender.of_mut(&mut self.carry);
            match step {
                Step::Took(taken, next) => {
                    if self.wanted.buffers.has(Buffer::FrameRfbPdu)
                        && let Some(t) = self.id.and_then(|id| out.find(id))
                        && let Some(bytes) = carry.get(..taken)
                    {
                        let of = (Buffer::FrameRfbPdu, sender);
                        // What waited for the other end to speak was given earlier.
                        t.frame(of, bytes, (sender == d).then_some(carry.len()));
                    }
                    rest.extend_from_slice(carry.get(taken..).unwrap_or_default());
                    self.next = next;
                }
                Step::More if carry.len() <= MOST => {
                    *rest = carry;
                    break;
                }
                Step::More | Step::Broken => {
                    self.event("malformed_message", out);
                    self.finish(out);
                    out.failed = true;
                    return;
                }
            }
        }
        if self.next == Next::Over {
            self.finish(out);
        } else if self.carry.iter().any(|c| c.len() > MOST) {
            // One end talks on without waiting for the other.
            self.event("malformed_message", out);
            self.finish(out);
            out.failed = true;
        }
    }

    fn gap(&mut self, _: Direction, _: u64, out: &mut Transactions) {
        if self.next != Next::Over {
            self.finish(out);
            out.failed = true;
        }
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        // What waits for this end will not come.
        if self.next.sender() == Some(d) {
            self.finish(out);
        }
    }

    fn memory(&self) -> usize {
        size_of::<Rfb>() + self.carry.iter().map(Vec::capacity).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::probe::Ports;
    use crate::app::tests::{converse_all, wanted};
    use crate::app::transaction::Transaction;

    const PORTS: Ports = Ports {
        client: 40_000,
        server: 5900,
    };

    const INIT: &[u8] =
        b"\x03\x20\x02\x58\x20\x18\0\x01\0\xff\0\xff\0\xff\x10\x08\0\0\0\0\0\0\0\x04desk";

    fn only(parts: &[(Direction, &[u8])]) -> Transaction {
        let c = converse_all(parts, PORTS);
        assert_eq!(c.app(), App::Rfb);
        let [t] = &c.transactions.live.iter().collect::<Vec<_>>()[..] else {
            panic!("one transaction");
        };
        assert!(t.done);
        (*t).clone()
    }

    #[test]
    fn a_password_is_right() {
        let t = only(&[
            (ToClient, b"RFB 003.008\n"),
            (ToServer, b"RFB 003.008\n"),
            (ToClient, b"\x02\x01\x02"),
            (ToServer, b"\x02"),
            (ToClient, &[0xab; 16]),
            (ToServer, &[0xcd; 16]),
            (ToClient, b"\0\0\0\0"),
            (ToServer, b"\x01"),
            (ToClient, INIT),
            (ToServer, b"\x03\0\0\0"),
        ]);
        assert_eq!(t.facts(RESULT).collect::<Vec<_>>(), [0]);
        assert_eq!(t.facts(TYPE).collect::<Vec<_>>(), [2]);
        let name: Vec<_> = t.get(Buffer::RfbName, ToClient).collect();
        assert_eq!(name, [b"desk"]);
        let r = &t.record;
        assert_eq!(r["client_protocol_version"]["minor"], "008");
        assert_eq!(r["authentication"]["vnc"]["response"], "cd".repeat(16));
        assert_eq!(r["authentication"]["security_result"], "OK");
        assert_eq!(r["framebuffer"]["width"], 800);
        assert_eq!(r["framebuffer"]["pixel_format"]["green_shift"], 8);
        assert_eq!(r["screen_shared"], true);
    }

    #[test]
    fn refusals_and_older_versions() {
        let refused = only(&[
            (ToClient, b"RFB 003.008\n"),
            (ToServer, b"RFB 003.008\n"),
            (ToClient, b"\x01\x01"),
            (ToServer, b"\x01"),
            (ToClient, b"\0\0\0\x09\0\0\0\x02no"),
        ]);
        assert_eq!(refused.facts(RESULT).collect::<Vec<_>>(), [9, 3]);
        assert_eq!(refused.record["server_security_failure_reason"], "no");
        let result = &refused.record["authentication"]["security_result"];
        assert_eq!(result, "UNKNOWN (9)");
        // The first version has no choice, and no result of no security.
        let first = only(&[
            (ToClient, b"RFB 003.003\n"),
            (ToServer, b"RFB 003.003\n"),
            (ToClient, b"\0\0\0\x01"),
            (ToServer, b"\0"),
            (ToClient, INIT),
        ]);
        assert_eq!(first.record["framebuffer"]["name"], "desk");
        let other = only(&[
            (ToClient, b"RFB 003.889\n"),
            (ToServer, b"RFB 003.889\n"),
            (ToClient, b"\x01\x1e"),
            (ToServer, b"\x1e"),
        ]);
        assert_eq!(other.events, ["unimplemented_security_type"]);
    }

    #[test]
    fn memory_has_a_bound() {
        let mut out = Transactions::default();
        let mut rfb = Rfb::new(&wanted());
        rfb.data(ToClient, b"RFB 003.008\n", 1, &mut out);
        let mut most = 0;
        while !out.failed {
            rfb.data(ToClient, &[0; 100], 1, &mut out);
            most = most.max(rfb.memory());
        }
        assert!(most < 4 * MOST, "{most}");
        assert_eq!(out.live[0].events, ["malformed_message"]);
        assert!(out.live[0].done);
    }
}
