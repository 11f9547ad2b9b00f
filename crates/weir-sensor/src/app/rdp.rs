//! RDP (MS-RDPBCGR) as far as its connection is not encrypted: who asks with which cookie, and what the client says of itself. Each message is a transaction.

use serde_json::{Map, Value};

use super::bytes::be16;
use super::carry::{Carry, Taken};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Parser, Protocol};
use super::text::{string, text};
use super::transaction::{Kind, Transactions, Turns};
use super::wanted::Wanted;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Channels of a client (2.2.1.3.4).
const MOST_CHANNELS: usize = 31;

pub(super) const RDP: Protocol = Protocol {
    app: App::Rdp,
    stream: Some(StreamProbe {
        certainty: Certainty::Form,
        look: |first| match first.at(5) {
            _ if !is_tpkt(first) => Look::No,
            Some(code) if code == if first.is_server() { 0xd0 } else { 0xe0 } => Look::Yes,
            Some(_) => Look::No,
            None => Look::Maybe,
        },
        claims: is_tpkt,
    }),
    parser: Some(|start| Box::new(Rdp::new(start.asked))),
    kind: Some(&KIND),
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Rdp,
    turns: Turns::Message,
    ..Kind::EXCHANGE
};

fn is_tpkt(first: &First<'_>) -> bool {
    first.at(0) == Some(3) && first.at(1).is_none_or(|b| b == 0)
}

struct Rdp {
    wanted: Wanted,
    halves: [Carry; 2],
    /// What follows is encrypted, or of no interest.
    over: [bool; 2],
}

fn le16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*b.get(at..)?.first_chunk()?))
}

fn le32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*b.get(at..)?.first_chunk()?))
}

/// A text of two bytes a character, up to a zero.
fn wide(b: &[u8]) -> String {
    let units = b.as_chunks::<2>().0.iter().map(|c| u16::from_le_bytes(*c));
    let units: Vec<u16> = units.take_while(|u| *u != 0).collect();
    String::from_utf16_lossy(&units)
}

/// The name of a number.
fn known(names: &[(u32, &'static str)], number: u32) -> Option<&'static str> {
    names.iter().find(|(n, _)| *n == number).map(|n| n.1)
}

const VERSIONS: &[(u32, &str)] = &[
    (0x0008_0001, "v4"),
    (0x0008_0004, "v5"),
    (0x0008_0005, "v10.0"),
    (0x0008_0006, "v10.1"),
    (0x0008_0007, "v10.2"),
    (0x0008_0008, "v10.3"),
    (0x0008_0009, "v10.4"),
    (0x0008_000a, "v10.5"),
    (0x0008_000b, "v10.6"),
    (0x0008_000c, "v10.7"),
];

const BUILDS: &[(u32, &str)] = &[
    (419, "Windows NT 4.0"),
    (2195, "Windows 2000"),
    (2600, "Windows XP"),
    (3790, "Windows Server 2003"),
    (6000, "Windows Vista"),
    (6001, "Windows Vista SP1"),
    (6002, "Windows Vista SP2"),
    (7600, "Windows 7"),
    (7601, "Windows 7 SP1"),
    (9200, "Windows 8"),
    (9600, "Windows 8.1"),
    (10240, "Windows 10"),
    (17763, "Windows 10 v1809"),
    (18362, "Windows 10 v1903"),
];

const KEYBOARDS: &[(u32, &str)] = &[
    (1, "xt"),
    (2, "ico"),
    (3, "at"),
    (4, "enhanced"),
    (5, "1050"),
    (6, "9140"),
    (7, "jp"),
];

/// Layouts of keyboards (MS-LCID); others by number.
const LAYOUTS: &[(u32, &str)] = &[
    (0x0401, "ar-SA"),
    (0x0404, "zh-TW"),
    (0x0405, "cs-CZ"),
    (0x0406, "da-DK"),
    (0x0407, "de-DE"),
    (0x0408, "el-GR"),
    (0x0409, "en-US"),
    (0x040a, "es-ES_tradnl"),
    (0x040b, "fi-FI"),
    (0x040c, "fr-FR"),
    (0x040d, "he-IL"),
    (0x040e, "hu-HU"),
    (0x0410, "it-IT"),
    (0x0411, "ja-JP"),
    (0x0412, "ko-KR"),
    (0x0413, "nl-NL"),
    (0x0414, "nb-NO"),
    (0x0415, "pl-PL"),
    (0x0416, "pt-BR"),
    (0x0418, "ro-RO"),
    (0x0419, "ru-RU"),
    (0x041d, "sv-SE"),
    (0x041f, "tr-TR"),
    (0x0422, "uk-UA"),
    (0x0804, "zh-CN"),
    (0x0807, "de-CH"),
    (0x0809, "en-GB"),
    (0x080a, "es-MX"),
    (0x080c, "fr-BE"),
    (0x0816, "pt-PT"),
    (0x0c0a, "es-ES"),
    (0x0c0c, "fr-CA"),
    (0x100c, "fr-CH"),
];

/// Early capabilities (2.2.1.3.2), by bit.
const CAPABILITIES: [(u16, &str); 10] = [
    (0x0001, "support_errinfo_pdf"),
    (0x0002, "want_32bpp_session"),
    (0x0004, "support_statusinfo_pdu"),
    (0x0008, "strong_asymmetric_keys"),
    (0x0020, "valid_connection_type"),
    (0x0040, "support_monitor_layout_pdu"),
    (0x0080, "support_netchar_autodetect"),
    (0x0100, "support_dynvc_gfx_protocol"),
    (0x0200, "support_dynamic_time_zone"),
    (0x0400, "support_heartbeat_pdu"),
];

impl Rdp {
    fn new(wanted: &Wanted) -> Rdp {
        Rdp {
            wanted: *wanted,
            halves: <[Carry; 2]>::default(),
            over: [false; 2],
        }
    }

    /// A message behind its length.
    fn message(&mut self, d: Direction, b: &[u8], time: u64, out: &mut Transactions) {
        // The length of the head, and what it is.
        let (Some(&head), Some(code)) = (b.first(), b.get(1).map(|c| c & 0xf0)) else {
            return;
        };
        let body = b.get(1 + usize::from(head)..).unwrap_or_default();
        let said = match (code, d) {
            (0xe0, ToServer) => {
                let mut said = event("initial_request");
                // Behind the head of seven bytes.
                if let Some(cookie) = b.get(7..).and_then(cookie) {
                    said.insert("cookie".into(), text(cookie));
                }
                said
            }
            (0xd0, ToClient) => event("initial_response"),
            (0xf0, ToServer) if body.starts_with(&[0x7f, 0x65]) => {
                let mut said = event("connect_request");
                self.over = [true, false];
                if let Some(blocks) = blocks(body) {
                    connect(blocks, &mut said);
                }
                said
            }
            (0xf0, ToClient) if body.starts_with(&[0x7f, 0x66]) => {
                self.over = [true; 2];
                event("connect_response")
            }
            _ => return,
        };
        self.tell(d, said, time, out);
    }

    fn tell(&mut self, d: Direction, said: Map<String, Value>, time: u64, out: &mut Transactions) {
        let t = out.begin(&KIND, time);
        t.only(d);
        if self.wanted.records {
            t.record = said;
            let number = t.number;
            t.record.insert("tx_id".into(), number.into());
        }
        t.finish();
    }
}

fn event(name: &str) -> Map<String, Value> {
    Map::from_iter([("event_type".to_owned(), name.into())])
}

/// The name in `Cookie: mstshash=NAME`.
fn cookie(b: &[u8]) -> Option<&[u8]> {
    let rest = b.strip_prefix(b"Cookie: mstshash=")?;
    let end = memchr::memchr(b'\r', rest)?;
    rest.get(..end)
}

/// The data of a client in the request to connect: behind what H.221 calls its creator, and a length.
fn blocks(b: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(b, b"Duca")?;
    let rest = b.get(at + 4..)?;
    match rest.first()? {
        0x80.. => rest.get(2..),
        _ => rest.get(1..),
    }
}

/// What the blocks of data say.
fn connect(mut b: &[u8], said: &mut Map<String, Value>) {
    while let (Some(kind), Some(length)) = (le16(b, 0), le16(b, 2)) {
        let Some(block) = b.get(4..usize::from(length)) else {
            return;
        };
        match kind {
            0xc001 => {
                said.insert("client".into(), client(block).into());
            }
            0xc003 => {
                let count = le32(block, 0).unwrap_or(0) as usize;
                let names = block.get(4..).unwrap_or_default();
                let names = names
                    .as_chunks::<12>()
                    .0
                    .iter()
                    .take(count.min(MOST_CHANNELS));
                let name = |c: &[u8; 12]| {
                    let name = c.get(..8).unwrap_or_default();
                    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
                    string(name.get(..end).unwrap_or_default()).into()
                };
                said.insert("channels".into(), Value::Array(names.map(name).collect()));
            }
            _ => {}
        }
        b = b.get(usize::from(length)..).unwrap_or_default();
    }
}

/// What a client says of itself (2.2.1.3.2), as far as it is there.
fn client(b: &[u8]) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            all.insert(key.into(), value);
        }
    };
    let named = |names, number: Option<u32>| {
        let name = |n| known(names, n).map_or_else(|| format!("unknown-{n}"), str::to_owned);
        number.map(|n| Value::from(name(n)))
    };
    put("version", named(VERSIONS, le32(b, 0)));
    put("desktop_width", le16(b, 4).map(Value::from));
    put("desktop_height", le16(b, 6).map(Value::from));
    let early = le16(b, 140);
    let depth = match (early, le16(b, 136)) {
        (Some(early), _) if early & 2 != 0 => Some(32),
        (_, Some(high)) => Some(high),
        _ => match le16(b, 128).or(le16(b, 8)) {
            Some(0xca00) => Some(4),
            Some(0xca01) => Some(8),
            Some(0xca02) => Some(15),
            Some(0xca03) => Some(16),
            Some(0xca04) => Some(24),
            _ => None,
        },
    };
    put("color_depth", depth.map(Value::from));
    put("keyboard_layout", named(LAYOUTS, le32(b, 12)));
    put("build", named(BUILDS, le32(b, 16)));
    let words = |from: usize, to: usize| {
        let word = wide(b.get(from..to)?);
        (!word.is_empty()).then(|| Value::from(word))
    };
    put("client_name", words(20, 52));
    put("keyboard_type", named(KEYBOARDS, le32(b, 52)));
    put("function_keys", le32(b, 60).map(Value::from));
    put("product_id", le16(b, 130).map(Value::from));
    let set = early.map(|early| {
        let set = CAPABILITIES.iter().filter(|(bit, _)| early & bit != 0);
        Value::Array(set.map(|(_, name)| (*name).into()).collect())
    });
    put("capabilities", set);
    put("id", words(142, 206));
    all
}

impl Parser for Rdp {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut carry = std::mem::take(d.of_mut(&mut self.halves));
        carry.feed(bytes, |rest| {
            if *d.of(&self.over) {
                return Taken::Bytes(rest.len());
            }
            // Handshakes of TLS.
            if rest.first() == Some(&0x16) {
                self.over = [true; 2];
                self.tell(d, event("tls_handshake"), time, out);
                return Taken::Bytes(rest.len());
            }
            if rest.first() != Some(&3) {
                *d.of_mut(&mut self.over) = true;
                return Taken::Bytes(rest.len());
            }
            let Some(length) = be16(rest, 2).map(usize::from) else {
                return Taken::More;
            };
            if length < 4 {
                *d.of_mut(&mut self.over) = true;
                return Taken::Bytes(rest.len());
            }
            match rest.get(4..length) {
                Some(message) => {
                    self.message(d, message, time, out);
                    Taken::Bytes(length)
                }
                None => Taken::More,
            }
        });
        *d.of_mut(&mut self.halves) = carry;
    }

    fn gap(&mut self, d: Direction, _: u64, _: &mut Transactions) {
        // Where the next message begins is not known.
        *d.of_mut(&mut self.over) = true;
        *d.of_mut(&mut self.halves) = Carry::default();
    }

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        size_of::<Rdp>() + self.halves.iter().map(Carry::memory).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::probe::Ports;
    use crate::app::tests::converse_all;

    fn tpkt(body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u16 + 4).to_be_bytes();
        [&[3, 0][..], &length, body].concat()
    }

    fn two(text: &str, bytes: usize) -> Vec<u8> {
        let mut all: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        all.resize(bytes, 0);
        all
    }

    #[test]
    fn clients_say_who_they_are() {
        let mut core = vec![4, 0, 8, 0, 0x80, 4, 0x60, 3, 1, 0xca, 3, 0xaa];
        core.extend_from_slice(&[9, 4, 0, 0, 0x28, 0x0a, 0, 0]);
        core.extend_from_slice(&two("DESK-1", 32));
        core.extend_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0]);
        core.resize(128, 0);
        core.extend_from_slice(&[1, 0xca, 1, 0, 0, 0, 0, 0, 15, 0, 7, 0, 1, 0]);
        core.extend_from_slice(&two("55274-OEM", 64));
        let block = |kind: u16, data: &[u8]| {
            let length = data.len() as u16 + 4;
            [&kind.to_le_bytes()[..], &length.to_le_bytes(), data].concat()
        };
        let channels = [&[1, 0, 0, 0][..], b"rdpdr\0\0\0\0\0\0\0"].concat();
        let data = [block(0xc001, &core), block(0xc003, &channels)].concat();
        let request = [&b"\x02\xf0\x80\x7f\x65..Duca\x81\x02"[..], &data].concat();
        let parts: &[(Direction, &[u8])] = &[
            (
                ToServer,
                &tpkt(b"\x0e\xe0\0\0\0\0\0Cookie: mstshash=bob\r\n"),
            ),
            (ToClient, &tpkt(b"\x06\xd0\0\0\0\0\0")),
            (ToServer, &tpkt(&request)),
            (ToClient, &tpkt(b"\x02\xf0\x80\x7f\x66")),
            (ToServer, &tpkt(b"\x02\xf0\x80\x04\x01")),
        ];
        let c = converse_all(parts, Ports::default());
        assert_eq!(c.app(), App::Rdp);
        let r: Vec<_> = c.transactions.live.iter().map(|t| &t.record).collect();
        assert_eq!((&r[0]["cookie"], r.len()), (&"bob".into(), 4));
        assert_eq!(r[1]["event_type"], "initial_response");
        let client = &r[2]["client"];
        for (key, value) in [
            ("version", "v5"),
            ("build", "Windows XP"),
            ("client_name", "DESK-1"),
            ("keyboard_layout", "en-US"),
            ("keyboard_type", "enhanced"),
            ("id", "55274-OEM"),
        ] {
            assert_eq!(client[key], value);
        }
        assert_eq!(
            (&client["desktop_height"], &client["color_depth"]),
            (&864.into(), &15.into())
        );
        assert_eq!(client["capabilities"][0], "support_errinfo_pdf");
        assert_eq!(r[2]["channels"][0], "rdpdr");
        assert_eq!(
            (&r[3]["event_type"], &r[3]["tx_id"]),
            (&"connect_response".into(), &3.into())
        );
    }

    #[test]
    fn encryption_ends_it_and_memory_has_a_bound() {
        let (mut rdp, mut out) = (
            Rdp::new(&crate::app::tests::wanted()),
            Transactions::default(),
        );
        rdp.data(ToServer, &tpkt(b"\x06\xe0\0\0\0\0\0"), 1, &mut out);
        rdp.data(ToClient, &[3, 0, 0xff, 0xff], 1, &mut out);
        for _ in 0..100 {
            rdp.data(ToClient, &[0; 1000], 1, &mut out);
            assert!(rdp.memory() < 256 << 10);
        }
        rdp.data(ToServer, b"\x16\x03\x01\0\x05", 1, &mut out);
        rdp.data(ToServer, &tpkt(b"\x06\xe0\0\0\0\0\0"), 1, &mut out);
        assert_eq!(out.live.len(), 2);
        assert_eq!(out.live[1].record["event_type"], "tls_handshake");
    }
}
