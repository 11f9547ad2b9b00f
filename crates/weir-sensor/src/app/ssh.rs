//! SSH: the banners and the key exchange offers of both ends, with their HASSH. One transaction a flow.

#![expect(
    clippy::indexing_slicing,
    reason = "older than the lint: lengths are compared before; a place that is touched gets a checked access"
)]

use super::lines::Line;
use super::names::App;
use super::probe::{Certainty, StreamProbe};
use super::protocol::{Log, Parser, Protocol, Sides};
use super::text::text;
use super::tls::hello::{Reader, md5_hex};
use super::transaction::{Kind, Stage, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// The longest banner line that is read.
const MOST_BANNER: usize = 1024;
/// The longest that the protocol has, without its end.
const LONG_BANNER: usize = 253;
/// Lines that a server may send before its banner.
const MOST_LINES: usize = 64;
/// The longest packet before encryption.
const MOST_PACKET: usize = 64 * 1024;

pub(super) const SSH: Protocol = Protocol {
    app: App::Ssh,
    stream: Some(StreamProbe::new(Certainty::Sure, |first| {
        first.begins_with(&[b"SSH-"])
    })),
    sides: Sides::Both,
    parser: Some(|start| Box::new(Ssh::new(start.asked))),
    kind: Some(&KIND),
    states: [
        &[
            "request_in_progress",
            "request_banner_wait_eol",
            "request_banner_done",
            "request_finished",
        ],
        &[
            "response_in_progress",
            "response_banner_wait_eol",
            "response_banner_done",
            "response_finished",
        ],
    ],
    hooks: &[
        ("request_in_progress", ToServer, Stage::Begun),
        ("response_in_progress", ToClient, Stage::Begun),
        (
            "request_banner_wait_eol",
            ToServer,
            Stage::Has(Buffer::SshProto),
        ),
        (
            "request_banner_done",
            ToServer,
            Stage::Has(Buffer::SshProto),
        ),
        (
            "response_banner_wait_eol",
            ToClient,
            Stage::Has(Buffer::SshProto),
        ),
        (
            "response_banner_done",
            ToClient,
            Stage::Has(Buffer::SshProto),
        ),
        ("request_finished", ToServer, Stage::Over),
        ("response_finished", ToClient, Stage::Over),
    ],
    log: Log {
        numbered: false,
        ..Protocol::NONE.log
    },
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Ssh,
    events: &[
        "invalid_banner",
        "invalid_record",
        "long_banner",
        "long_kex_record",
    ],
    // What these say fills a buffer that is asked for.
    may_lack: |t, direction| t.all().any(|(_, d, _)| d == direction),
    ..Kind::EXCHANGE
};

pub(super) struct Ssh {
    wanted: Wanted,
    halves: [Half; 2],
    id: Option<u64>,
}

#[derive(Default)]
struct Half {
    line: Line,
    lines: usize,
    banner: bool,
    /// What it offers for the exchange of keys was seen.
    offered: bool,
    carry: Vec<u8>,
    encrypted: bool,
}

impl Ssh {
    pub(super) fn new(wanted: &Wanted) -> Ssh {
        Ssh {
            wanted: *wanted,
            halves: [Half::default(), Half::default()],
            id: None,
        }
    }

    fn banner(&mut self, d: Direction, line: &[u8], out: &mut Transactions) -> bool {
        let Some(rest) = line.strip_prefix(b"SSH-") else {
            return false;
        };
        let dash = memchr::memchr(b'-', rest).unwrap_or(rest.len());
        let proto = &rest[..dash];
        let software = rest.get(dash + 1..).unwrap_or_default();
        let end = software
            .iter()
            .position(|b| *b == b' ')
            .unwrap_or(software.len());
        let software = &software[..end];
        let w = self.wanted;
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            if proto.is_empty() || dash == rest.len() {
                t.event("invalid_banner");
            }
            if line.len() > LONG_BANNER {
                t.event("long_banner");
            }
            if w.buffers.has(Buffer::SshProto) && !proto.is_empty() {
                t.push(Buffer::SshProto, d, proto);
            }
            if w.buffers.has(Buffer::SshSoftware) && !software.is_empty() {
                t.push(Buffer::SshSoftware, d, software);
            }
            if w.records {
                let end = side(&mut t.record, d);
                for (key, said) in [("proto_version", proto), ("software_version", software)] {
                    if !said.is_empty() {
                        end.insert(key.into(), text(said));
                    }
                }
            }
        }
        true
    }

    /// Frames of the packet of this length at the front of these bytes.
    fn frames(&self, d: Direction, bytes: &[u8], length: usize, out: &mut Transactions) {
        let end = 4 + length;
        // Length, padding length and message number; a packet of one byte has no message.
        let (header, data) = match end {
            ..6 => (0..0, 0..0),
            _ => (0..6, 6..end),
        };
        let parts = [
            (Buffer::FrameSshPdu, 0..end),
            (Buffer::FrameSshHeader, header),
            (Buffer::FrameSshData, data),
        ];
        let Some(t) = self.id.and_then(|id| out.find(id)) else {
            return;
        };
        for (buffer, range) in parts.into_iter().filter(|(_, range)| range.end > 0) {
            let behind = bytes.len().saturating_sub(range.start);
            if self.wanted.buffers.has(buffer)
                && let Some(bytes) = bytes.get(range)
            {
                t.frame((buffer, d), bytes, Some(behind));
            }
        }
    }

    fn packet(&mut self, d: Direction, payload: &[u8], out: &mut Transactions) {
        match payload.first() {
            Some(20) => {
                if self.offer(d, &payload[1..], out).is_none()
                    && let Some(t) = self.id.and_then(|id| out.find(id))
                {
                    t.event("invalid_record");
                }
            }
            Some(21) => {
                d.of_mut(&mut self.halves).encrypted = true;
                if let Some(t) = self.id.and_then(|id| out.find(id)) {
                    *d.of_mut(&mut t.complete) = true;
                }
                if self.halves.iter().all(|h| h.encrypted) {
                    if let Some(t) = self.id.and_then(|id| out.find(id)) {
                        t.finish();
                    }
                    out.encrypted = true;
                }
            }
            _ => {}
        }
    }

    fn offer(&mut self, d: Direction, content: &[u8], out: &mut Transactions) -> Option<()> {
        let w = self.wanted;
        let mut r = Reader(content);
        r.take(16)?;
        let mut lists = [&b""[..]; 8];
        for list in &mut lists {
            *list = r.list(4)?;
        }
        // Key exchange, then cipher, MAC and compression of the sender's own direction.
        let own = match d {
            ToServer => [0, 2, 4, 6],
            ToClient => [0, 3, 5, 7],
        };
        let words: Vec<_> = own
            .iter()
            .map(|i| String::from_utf8_lossy(lists[*i]).into_owned())
            .collect();
        let string = words.join(";");
        let hash = md5_hex(&string);
        d.of_mut(&mut self.halves).offered = true;
        let t = out.find(self.id?)?;
        let (a, b) = match d {
            ToServer => (Buffer::SshHassh, Buffer::SshHasshString),
            ToClient => (Buffer::SshHasshServer, Buffer::SshHasshServerString),
        };
        if w.buffers.has(a) {
            t.push(a, d, hash.as_bytes());
        }
        if w.buffers.has(b) {
            t.push(b, d, string.as_bytes());
        }
        if w.records && w.said.hassh {
            let mut hassh = serde_json::Map::new();
            hassh.insert("hash".into(), hash.into());
            hassh.insert("string".into(), string.into());
            side(&mut t.record, d).insert("hassh".into(), hassh.into());
        }
        self.check_ready(out);
        Some(())
    }

    /// The record is whole when both ends have said who they are, and what they offer if that is wanted.
    fn check_ready(&self, out: &mut Transactions) {
        let said = |h: &Half| h.banner && (h.offered || !self.wanted.said.hassh);
        if self.halves.iter().all(said)
            && let Some(t) = self.id.and_then(|id| out.find(id))
        {
            t.ready = true;
        }
    }
}

type Map = serde_json::Map<String, serde_json::Value>;

fn side(record: &mut Map, d: Direction) -> &mut Map {
    let key = match d {
        ToServer => "client",
        ToClient => "server",
    };
    match record.entry(key).or_insert_with(|| Map::new().into()) {
        serde_json::Value::Object(map) => map,
        _ => unreachable!("only objects are put there"),
    }
}

impl Parser for Ssh {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        if self.id.is_none() {
            self.id = Some(out.begin(&KIND, time).id);
        }
        let mut rest = bytes;
        while !d.of(&self.halves).banner {
            let half = d.of_mut(&mut self.halves);
            let (line, left) = half.line.next(rest, MOST_BANNER);
            rest = left;
            let Some(line) = line else {
                return;
            };
            half.lines += 1;
            // Only a server may say something before.
            let many = half.lines > MOST_LINES || d == ToServer;
            d.of_mut(&mut self.halves).banner = self.banner(d, &line, out);
            if !d.of(&self.halves).banner && many {
                if let Some(t) = self.id.and_then(|id| out.find(id)) {
                    t.event("invalid_banner");
                    t.finish();
                }
                out.failed = true;
                return;
            }
            if d.of(&self.halves).banner {
                self.check_ready(out);
            }
        }
        if d.of(&self.halves).encrypted {
            return;
        }
        let mut carry = std::mem::take(&mut d.of_mut(&mut self.halves).carry);
        carry.extend_from_slice(rest);
        let mut at = 0;
        while let Some(head) = carry.get(at..at + 5) {
            let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let padding = usize::from(head[4]);
            if length > MOST_PACKET || length < padding + 1 {
                if let Some(t) = self.id.and_then(|id| out.find(id)) {
                    t.event(if length > MOST_PACKET {
                        "long_kex_record"
                    } else {
                        "invalid_record"
                    });
                    t.finish();
                }
                out.failed = true;
                return;
            }
            let Some(packet) = carry.get(at + 5..at + 4 + length) else {
                break;
            };
            self.frames(d, &carry[at..], length, out);
            self.packet(d, &packet[..packet.len() - padding], out);
            at += 4 + length;
            if d.of(&self.halves).encrypted {
                return;
            }
        }
        carry.drain(..at.min(carry.len()));
        d.of_mut(&mut self.halves).carry = carry;
    }

    fn gap(&mut self, _: Direction, _: u64, out: &mut Transactions) {
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            t.finish();
        }
        out.failed = true;
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if let Some(t) = self.id.and_then(|id| out.find(id)) {
            t.finish_side(d);
        }
    }

    fn memory(&self) -> usize {
        let half = |h: &Half| h.carry.capacity() + h.line.memory();
        size_of::<Ssh>() + half(&self.halves[0]) + half(&self.halves[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Ports;
    use crate::app::tests::converse_all;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let padding = 4;
        let length = (payload.len() + 1 + padding) as u32;
        [
            &length.to_be_bytes()[..],
            &[padding as u8],
            payload,
            &[0; 4],
        ]
        .concat()
    }

    fn offer(tag: &str) -> Vec<u8> {
        let mut p = vec![20];
        p.extend_from_slice(&[1; 16]);
        for i in 0..10 {
            let list = format!("{tag}{i},x");
            p.extend_from_slice(&(list.len() as u32).to_be_bytes());
            p.extend_from_slice(list.as_bytes());
        }
        p.extend_from_slice(&[0; 5]);
        packet(&p)
    }

    #[test]
    fn odd_banners_are_told_of() {
        let long = [&b"SSH-2.0-"[..], &[b'a'; 300], b"\r\n"].concat();
        for (line, events, software) in [
            (&b"SSH-2.0-\r\n"[..], &[][..], 0),
            (b"SSH-2.0\r\n", &["invalid_banner"], 0),
            (b"SSH--x\r\n", &["invalid_banner"], 1),
            (b"GET / HTTP/1.1\r\n", &["invalid_banner"], 0),
            (&long, &["long_banner"], 1),
        ] {
            let all = [(ToClient, &b"SSH-2.0-x\r\n"[..]), (ToServer, line)];
            let c = converse_all(&all, Ports::default());
            let t = &c.transactions.live[0];
            let said = t.get(Buffer::SshSoftware, ToServer).count();
            let line = String::from_utf8_lossy(line);
            assert_eq!((&t.events[..], said), (events, software), "{line}");
        }
        let no_length = [&b"SSH-2.0-x\r\n"[..], &[0; 5]].concat();
        let c = converse_all(&[(ToServer, &no_length)], Ports::default());
        assert_eq!(c.transactions.live[0].events, ["invalid_record"]);
    }

    #[test]
    fn banners_and_offers() {
        let client = [
            &b"SSH-2.0-OpenSSH_9.6 Debian\r\n"[..],
            &offer("c"),
            &packet(&[21]),
            &[0xee; 50],
        ]
        .concat();
        let server = [
            &b"hello\r\nSSH-2.0-dropbear_2020\r\n"[..],
            &offer("s"),
            &packet(&[21]),
        ]
        .concat();
        let c = converse_all(
            &[(ToServer, &client), (ToClient, &server)],
            Ports::default(),
        );
        assert_eq!(c.app(), App::Ssh);
        assert!(c.is_encrypted());
        let t = &c.transactions.live[0];
        let one = |b, d| String::from_utf8_lossy(t.get(b, d).next().unwrap()).into_owned();
        assert_eq!(one(Buffer::SshProto, ToServer), "2.0");
        assert_eq!(one(Buffer::SshSoftware, ToServer), "OpenSSH_9.6");
        assert_eq!(one(Buffer::SshSoftware, ToClient), "dropbear_2020");
        assert_eq!(one(Buffer::SshHasshString, ToServer), "c0,x;c2,x;c4,x;c6,x");
        assert_eq!(
            one(Buffer::SshHasshServerString, ToClient),
            "s0,x;s3,x;s5,x;s7,x"
        );
        assert_eq!(t.record["client"]["software_version"], "OpenSSH_9.6");
        assert_eq!(one(Buffer::SshHassh, ToServer).len(), 32);
        assert!(t.done);
    }
}
