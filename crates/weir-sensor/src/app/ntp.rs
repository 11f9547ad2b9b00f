//! NTP (RFC 5905): version, mode, stratum and reference of each message; answers that nobody asked for.

use super::names::App;
use super::probe::First;
use super::protocol::{Carrier, Fact, Log, Parser, Protocol, Written};
use super::text::colons;
use super::transaction::{Kind, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

pub(super) const NTP: Protocol = Protocol {
    app: App::Ntp,
    carrier: Carrier::Udp,
    datagram: Some(is_message),
    parser: Some(|start| Box::new(Ntp::new(start.asked))),
    kind: Some(&KIND),
    facts: &[
        Fact {
            keyword: "ntp.version",
            what: "version of NTP",
            ..Fact::NONE
        },
        Fact {
            keyword: "ntp.mode",
            written: Written::Number(MODES),
            what: "mode of a message of NTP",
            ..Fact::NONE
        },
        Fact {
            keyword: "ntp.stratum",
            what: "distance from the reference clock",
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
    app: App::Ntp,
    turns: Turns::Message,
    events: &["malformed_data", "unsolicited_response"],
    ..Kind::EXCHANGE
};

/// Modes of messages.
const MODES: &[(&str, u64)] = &[
    ("symmetric_active", ACTIVE as u64),
    ("symmetric_passive", PASSIVE as u64),
    ("client", CLIENT as u64),
    ("server", SERVER as u64),
    ("broadcast", 5),
    ("control", CONTROL as u64),
    ("private", PRIVATE as u64),
];

const ACTIVE: u8 = 1;
const PASSIVE: u8 = 2;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
const CONTROL: u8 = 6;
const PRIVATE: u8 = 7;

/// Length of a message about time, without extensions and authentication.
const LENGTH: usize = 48;

/// Questions of a flow that wait for an answer; who asks more often is answered as often.
const MOST_ASKED: u32 = 1 << 16;

/// Without its port NTP is too alike to chance.
fn is_message(first: &First<'_>) -> bool {
    let head = first.at(0).unwrap_or_default();
    first.has_port(123)
        && first.bytes.len() >= LENGTH
        && matches!(head & 7, 1..=7)
        && head >> 3 & 7 <= 4
}

/// What is read of a message.
struct Message {
    version: u8,
    mode: u8,
    /// Stratum and reference identifier; messages that control a server have none.
    clock: Option<(u8, [u8; 4])>,
}

fn parse(bytes: &[u8]) -> Option<Message> {
    let head = *bytes.first()?;
    let (version, mode) = (head >> 3 & 7, head & 7);
    if !matches!(version, 1..=4) {
        return None;
    }
    let clock = match mode {
        1..=5 if bytes.len() >= LENGTH => {
            let stratum = *bytes.get(1)?;
            Some((stratum, *bytes.get(12..)?.first_chunk()?))
        }
        // Their own headers (RFC 9327, and one that was never published).
        CONTROL if bytes.len() >= 12 => None,
        PRIVATE if bytes.len() >= 8 => None,
        _ => return None,
    };
    Some(Message {
        version,
        mode,
        clock,
    })
}

pub(super) struct Ntp {
    wanted: Wanted,
    /// Questions without an answer, of each direction.
    asked: [u32; 2],
}

impl Ntp {
    fn new(wanted: &Wanted) -> Ntp {
        Ntp {
            wanted: *wanted,
            asked: [0; 2],
        }
    }

    /// Whether a message answers a question of the other direction, if it is an answer.
    fn is_solicited(&mut self, direction: Direction, mode: u8) -> bool {
        match mode {
            ACTIVE | CLIENT => {
                let asked = direction.of_mut(&mut self.asked);
                *asked = (*asked + 1).min(MOST_ASKED);
                true
            }
            PASSIVE | SERVER => {
                let asked = direction.reversed().of_mut(&mut self.asked);
                let solicited = *asked > 0;
                *asked = asked.saturating_sub(1);
                solicited
            }
            _ => true,
        }
    }
}

impl Parser for Ntp {
    fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let t = out.begin(&KIND, time);
        t.only(direction);
        match parse(bytes) {
            Some(message) => {
                t.facts.push(("ntp.version", message.version.into()));
                t.facts.push(("ntp.mode", message.mode.into()));
                if let Some((stratum, reference)) = message.clock {
                    t.facts.push(("ntp.stratum", stratum.into()));
                    if self.wanted.buffers.has(Buffer::NtpReferenceId) {
                        t.push(Buffer::NtpReferenceId, direction, &reference);
                    }
                }
                if self.wanted.records {
                    t.record.insert("version".into(), message.version.into());
                    t.record.insert("mode".into(), message.mode.into());
                    if let Some((stratum, reference)) = message.clock {
                        t.record.insert("stratum".into(), stratum.into());
                        let reference = colons(&reference, false);
                        t.record.insert("reference_id".into(), reference.into());
                    }
                }
                if !self.is_solicited(direction, message.mode) {
                    t.event("unsolicited_response");
                }
            }
            None => t.event("malformed_data"),
        }
        t.finish();
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut Transactions) {}

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        size_of::<Ntp>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::wanted;
    use crate::packet::Direction::{ToClient, ToServer};

    /// A message about time.
    fn message(version: u8, mode: u8, stratum: u8, reference: &[u8; 4]) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        bytes[0] = version << 3 | mode;
        bytes[1] = stratum;
        bytes[12..16].copy_from_slice(reference);
        bytes
    }

    fn talk(messages: &[(Direction, &[u8])]) -> Transactions {
        let (w, mut out) = (wanted(), Transactions::default());
        let mut ntp = Ntp::new(&w);
        for (direction, bytes) in messages {
            ntp.data(*direction, bytes, 1, &mut out);
        }
        out
    }

    #[test]
    fn each_message_is_a_transaction_of_its_direction() {
        let out = talk(&[
            (ToServer, &message(4, CLIENT, 0, &[0; 4])),
            (ToClient, &message(4, SERVER, 2, b"LOCL")),
        ]);
        let (ask, answer) = (&out.live[0], &out.live[1]);
        assert!(ask.done && answer.done && ask.events.is_empty() && answer.events.is_empty());
        assert_eq!(ask.facts("ntp.stratum").collect::<Vec<_>>(), [0]);
        assert_eq!(ask.facts("ntp.mode").collect::<Vec<_>>(), [3]);
        assert_eq!(answer.facts("ntp.version").collect::<Vec<_>>(), [4]);
        let reference: Vec<_> = answer.get(Buffer::NtpReferenceId, ToClient).collect();
        assert_eq!(reference, [b"LOCL"]);
        assert_eq!(answer.record["reference_id"], "4c:4f:43:4c");
        assert_eq!(ask.record["reference_id"], "00:00:00:00");
    }

    #[test]
    fn an_answer_without_a_question_is_an_event() {
        let ask = message(3, CLIENT, 0, &[0; 4]);
        let answer = message(3, SERVER, 1, b"GPS\0");
        let out = talk(&[
            (ToClient, &answer),
            (ToServer, &ask),
            (ToClient, &answer),
            (ToClient, &answer),
        ]);
        let events: Vec<usize> = out.live.iter().map(|t| t.events.len()).collect();
        assert_eq!(events, [1, 0, 0, 1]);
        assert_eq!(out.live[3].events, ["unsolicited_response"]);
        // Peers ask each other.
        let out = talk(&[
            (ToServer, &message(4, ACTIVE, 3, &[10, 0, 0, 1])),
            (ToClient, &message(4, PASSIVE, 2, &[10, 0, 0, 2])),
        ]);
        assert!(out.live.iter().all(|t| t.events.is_empty()));
    }

    #[test]
    fn what_is_cut_or_of_no_version_is_malformed() {
        let whole = message(4, CLIENT, 0, &[0; 4]);
        let odd = [
            &whole[..LENGTH - 1],
            &message(0, CLIENT, 0, &[0; 4]),
            &message(5, CLIENT, 0, &[0; 4]),
            &message(4, 0, 0, &[0; 4]),
            b"",
            &[0x16; 11],
            &[0x17; 7],
        ];
        for bytes in odd {
            let out = talk(&[(ToServer, bytes)]);
            assert_eq!(out.live[0].events, ["malformed_data"], "{bytes:?}");
            assert!(out.live[0].facts.is_empty() && out.live[0].record.is_empty());
        }
    }

    #[test]
    fn control_and_private_messages_have_no_clock() {
        for (bytes, mode) in [(&[0x16; 12][..], 6), (&[0x17; 8], 7)] {
            let out = talk(&[(ToServer, bytes)]);
            let t = &out.live[0];
            assert_eq!(t.record["mode"], mode);
            assert!(t.events.is_empty() && !t.record.contains_key("stratum"));
            assert_eq!(t.all().count(), 0);
        }
    }
}
