//! WebSocket (RFC 6455), which a stream of HTTP/1 changes to: frames, fragments put together, compressed messages (RFC 7692). Each frame is a transaction.

use flate2::{Decompress, FlushDecompress};
use serde_json::Map;

use super::bytes::{be16, be32};
use super::carry::{Carry, Taken};
use super::names::App;
use super::protocol::{Fact, Parser, Protocol, Written};
use super::transaction::{Kind, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// Bytes of a message that are kept where nothing is configured; those behind pass.
const MOST: usize = 64 * 1024;

pub(super) const WEBSOCKET: Protocol = Protocol {
    app: App::Websocket,
    parser: Some(|start| Box::new(Websocket::new(start.asked))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: OPCODE,
            written: Written::Number(OPCODES),
            what: "kind of a frame of WebSocket",
            ..Fact::NONE
        },
        Fact {
            keyword: FLAGS,
            written: Written::Bits(&[("fin", 0x80), ("comp", 0x40)]),
            what: "flags of a frame of WebSocket, the four upper bits of its first byte",
            ..Fact::NONE
        },
        Fact {
            keyword: MASK,
            written: Written::Number(&[]),
            what: "mask of a frame of WebSocket",
            ..Fact::NONE
        },
    ],
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Websocket,
    turns: Turns::Message,
    events: &["reassembly_limit_reached", "skip_end_of_payload"],
    ..Kind::EXCHANGE
};

const OPCODE: &str = "websocket.opcode";
const FLAGS: &str = "websocket.flags";
const MASK: &str = "websocket.mask";

const OPCODES: &[(&str, u64)] = &[
    ("continuation", 0),
    ("text", 1),
    ("binary", 2),
    ("connection_close", 8),
    ("ping", 9),
    ("pong", 10),
];

/// The head of a frame.
struct Head {
    first: u8,
    mask: Option<[u8; 4]>,
    /// Bytes of the head.
    bytes: usize,
    length: u64,
}

impl Head {
    /// `None`: more bytes are needed.
    fn read(b: &[u8]) -> Option<Head> {
        let &[first, second] = b.first_chunk()?;
        let (at, length) = match second & 0x7f {
            126 => (4, u64::from(be16(b, 2)?)),
            127 => (10, u64::from(be32(b, 2)?) << 32 | u64::from(be32(b, 6)?)),
            length => (2, u64::from(length)),
        };
        let mask = match second & 0x80 != 0 {
            true => Some(*b.get(at..)?.first_chunk()?),
            false => None,
        };
        Some(Head {
            first,
            mask,
            bytes: at + if mask.is_some() { 4 } else { 0 },
            length,
        })
    }
}

#[derive(Default)]
struct Half {
    carry: Carry,
    /// A message of which first fragments have come.
    message: Option<Vec<u8>>,
    /// It is compressed.
    compressed: bool,
    /// Some of it was left out.
    cut: bool,
    /// Goes on from message to message.
    decoder: Option<Box<Decompress>>,
}

struct Websocket {
    wanted: Wanted,
    most: usize,
    halves: [Half; 2],
}

impl Websocket {
    fn new(wanted: &Wanted) -> Websocket {
        Websocket {
            wanted: *wanted,
            most: match wanted.said.websocket_payload {
                0 => MOST,
                most => most as usize,
            },
            halves: <[Half; 2]>::default(),
        }
    }

    /// A frame whose payload is there as far as it is looked at.
    fn frame(&mut self, d: Direction, head: &Head, pdu: &[u8], time: u64, out: &mut Transactions) {
        let payload = pdu.get(head.bytes..).unwrap_or_default();
        let t = out.begin(&KIND, time);
        t.only(d);
        let half = d.of_mut(&mut self.halves);
        for (buffer, bytes) in [
            (Buffer::FrameWebsocketPdu, pdu),
            (
                Buffer::FrameWebsocketHeader,
                pdu.get(..head.bytes).unwrap_or_default(),
            ),
            (Buffer::FrameWebsocketData, payload),
        ] {
            if self.wanted.buffers.has(buffer) {
                t.frame((buffer, d), bytes, None);
            }
        }
        let (opcode, fin) = (head.first & 15, head.first & 0x80 != 0);
        t.facts.push((OPCODE, u64::from(opcode)));
        t.facts.push((FLAGS, u64::from(head.first & 0xf0)));
        let mask = head.mask.map(u32::from_be_bytes);
        if let Some(mask) = mask {
            t.facts.push((MASK, u64::from(mask)));
        }
        let skipped = head.length > payload.len() as u64;
        if skipped {
            t.event("skip_end_of_payload");
        }
        let mut said = payload.to_vec();
        for (n, byte) in said.iter_mut().enumerate() {
            *byte ^= head.mask.and_then(|m| m.get(n % 4).copied()).unwrap_or(0);
        }
        // Control frames may stand between the fragments of a message, and are never fragments.
        if opcode < 8 {
            if opcode != 0 {
                half.compressed = head.first & 0x40 != 0;
                half.cut = false;
                half.message = (!fin).then(Vec::new);
            }
            half.cut |= skipped;
            if let Some(mut message) = half.message.take() {
                if message.len() + said.len() > self.most {
                    t.event("reassembly_limit_reached");
                    half.cut = true;
                } else {
                    message.append(&mut said);
                }
                match fin {
                    true => said = message,
                    false => half.message = Some(message),
                }
            }
            if fin && half.compressed {
                said = half.inflate(&said, self.most);
            }
        }
        let whole = opcode >= 8 || half.message.is_none();
        if whole && self.wanted.buffers.has(Buffer::WebsocketPayload) {
            t.push(Buffer::WebsocketPayload, d, &said);
        }
        if self.wanted.records {
            let mut r = Map::new();
            r.insert("fin".into(), fin.into());
            if let Some(mask) = mask {
                r.insert("mask".into(), mask.into());
            }
            let known = OPCODES.iter().find(|(_, n)| *n == u64::from(opcode));
            let name = known.map_or_else(|| format!("unknown-{opcode}"), |k| k.0.to_owned());
            r.insert("opcode".into(), name.into());
            t.record = r;
        }
        t.finish();
    }
}

impl Half {
    /// A compressed message as it was, as far as it can be read.
    fn inflate(&mut self, bytes: &[u8], most: usize) -> Vec<u8> {
        let decoder = self
            .decoder
            .get_or_insert_with(|| Box::new(Decompress::new(false)));
        let mut out = Vec::new();
        let mut broken = false;
        // Each message ends with what a sender leaves out (RFC 7692, 7.2.1).
        for part in [bytes, &[0, 0, 0xff, 0xff]] {
            let mut rest = part;
            while !rest.is_empty() && !broken {
                let before = (decoder.total_in(), decoder.total_out());
                let mut room = [0; 4096];
                broken |= decoder
                    .decompress(rest, &mut room, FlushDecompress::Sync)
                    .is_err();
                let read = (decoder.total_in() - before.0) as usize;
                let written = (decoder.total_out() - before.1) as usize;
                rest = rest.get(read..).unwrap_or_default();
                let free = most.saturating_sub(out.len());
                let written = room.get(..written.min(free)).unwrap_or_default();
                out.extend_from_slice(written);
                broken |= read == 0 && written.is_empty();
            }
        }
        // What comes next may refer to what was not read.
        if broken || self.cut {
            self.decoder = None;
        }
        out
    }
}

impl Parser for Websocket {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut carry = std::mem::take(&mut d.of_mut(&mut self.halves).carry);
        let most = self.most;
        carry.feed(bytes, |rest| {
            let Some(head) = Head::read(rest) else {
                return Taken::More;
            };
            let kept = head.length.min(most as u64);
            let Some(pdu) = rest.get(..head.bytes + kept as usize) else {
                return Taken::More;
            };
            self.frame(d, &head, pdu, time, out);
            Taken::Passing(pdu.len(), head.length - kept)
        });
        d.of_mut(&mut self.halves).carry = carry;
    }

    fn gap(&mut self, d: Direction, length: u64, out: &mut Transactions) {
        let passes = d.of_mut(&mut self.halves).carry.gap(length);
        // Where the next frame begins is not known.
        out.failed |= !passes;
    }

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn is_between(&self, d: Direction) -> bool {
        d.of(&self.halves).carry.is_empty()
    }

    fn memory(&self) -> usize {
        let half = |h: &Half| {
            let message = h.message.as_ref().map_or(0, Vec::capacity);
            // A window of 32 KiB, and its tables.
            let decoder = h.decoder.as_ref().map_or(0, |_| 44 << 10);
            h.carry.memory() + message + decoder
        };
        size_of::<Websocket>() + self.halves.iter().map(half).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::app::tests::{dump, wanted};
    use crate::packet::Direction::{ToClient, ToServer};

    /// Feeds whole and in pieces: all must agree.
    fn read(parts: &[(Direction, &[u8])]) -> Transactions {
        let feed = |step: usize| {
            let mut out = Transactions::default();
            let mut parser = Websocket::new(&wanted());
            for (d, bytes) in parts {
                for piece in bytes.chunks(step) {
                    parser.data(*d, piece, 1, &mut out);
                    assert!(parser.memory() < 4 * MOST);
                }
            }
            out
        };
        let whole = feed(usize::MAX);
        for step in [1, 2, 3, 7, 100] {
            assert_eq!(dump(&feed(step)), dump(&whole), "pieces of {step}");
        }
        whole
    }

    fn payloads(out: &Transactions, d: Direction) -> Vec<&[u8]> {
        let all = out.live.iter();
        all.flat_map(|t| t.get(Buffer::WebsocketPayload, d))
            .collect()
    }

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first, 0x80 | payload.len() as u8, 1, 2, 3, 4];
        frame.extend(
            payload
                .iter()
                .zip([1, 2, 3, 4].iter().cycle())
                .map(|(b, m)| b ^ m),
        );
        frame
    }

    #[test]
    fn masks_are_undone_and_fragments_put_together() {
        let parts = [
            masked(0x01, b"MAL"),
            masked(0x89, b"ping"),
            masked(0x80, b"WARE"),
        ];
        let out = read(&[(ToServer, &parts.concat()), (ToClient, b"\x82\x02ok")]);
        let found = payloads(&out, ToServer);
        assert_eq!(found, [&b"ping"[..], b"MALWARE"]);
        assert_eq!(payloads(&out, ToClient), [b"ok"]);
        let first = &out.live[0];
        assert_eq!(first.facts(MASK).collect::<Vec<_>>(), [0x0102_0304]);
        assert_eq!(first.facts(FLAGS).collect::<Vec<_>>(), [0]);
        assert_eq!(out.live[1].record["opcode"], "ping");
        assert_eq!(out.live[2].record["fin"], true);
    }

    #[test]
    fn compressed_messages_refer_to_those_before() {
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        let mut frames = Vec::new();
        let text = b"one message that says what the next one says";
        let mut before = 0;
        for _ in 0..2 {
            encoder.write_all(text).unwrap();
            encoder.flush().unwrap();
            let all = encoder.get_ref();
            let message = &all[before..all.len() - 4];
            before = all.len();
            frames.extend_from_slice(&[0xc1, message.len() as u8]);
            frames.extend_from_slice(message);
        }
        let out = read(&[(ToClient, &frames)]);
        assert_eq!(payloads(&out, ToClient), [text, text]);
    }

    #[test]
    fn what_is_too_long_passes() {
        let mut long = vec![0x82, 127, 0, 0, 0, 0, 0, 2, 0, 0];
        long.resize(long.len() + (2 << 16), b'x');
        long.extend_from_slice(b"\x81\x01y");
        let out = read(&[(ToServer, &long)]);
        assert_eq!(out.live[0].events, ["skip_end_of_payload"]);
        assert_eq!(payloads(&out, ToServer)[1], b"y");
        let mut fragments = Vec::new();
        for first in [0x02, 0x00, 0x80] {
            fragments.extend_from_slice(&[first, 126, 0x80, 0]);
            fragments.resize(fragments.len() + 0x8000, b'x');
        }
        let out = read(&[(ToServer, &fragments)]);
        assert_eq!(out.live[2].events, ["reassembly_limit_reached"]);
        assert_eq!(payloads(&out, ToServer)[0].len(), MOST);
    }
}
