//! Segments that their receiver may not take: signed by what the session is not signed by, left of the window, or of an end that had given up; and SYNs without end.

use weir_sensor::decode::Decoder;
use weir_sensor::event::{Event, Events};
use weir_sensor::flow::{self, Tracker};
use weir_sensor::packet::flag::{ACK, FIN, PSH, RST, SYN};
use weir_sensor::stream;

use super::common::{Heard, Line, Segment};

const PORT: u16 = 41_000;
const MD5: [u8; 18] = [
    19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
];
const AO: [u8; 16] = [29, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];

/// A session in which the client's bytes begin at 101, the server's at 501.
struct Talk(Line);

impl Talk {
    fn new(options: &[u8]) -> Talk {
        Talk::with(options, stream::StreamConfig::default())
    }

    fn with(options: &[u8], streams: stream::StreamConfig) -> Talk {
        let tracker = Tracker::new(flow::FlowConfig::default(), streams);
        let mut talk = Talk(Line::new(Decoder::default(), tracker));
        talk.send(true, 100, 0, SYN, b"", options);
        talk.send(false, 500, 101, SYN | ACK, b"", options);
        talk.send(true, 101, 501, ACK, b"", options);
        talk
    }

    fn send(
        &mut self,
        to_server: bool,
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
        payload: &[u8],
        options: &[u8],
    ) -> Events {
        let mut segment = Segment::new(to_server, sequence, acknowledgement, flags, payload);
        segment.options = options.to_vec();
        self.0.ip(&segment.packet(PORT)).1
    }

    fn end(mut self) -> ([Heard; 2], stream::Ledger) {
        self.0.tracker.shutdown(&mut self.0.notes);
        let ledger = *self.0.tracker.streams().ledger();
        assert_eq!(ledger.settled(), ledger.payload, "{ledger:?}");
        let heard = self.0.notes.streams.values().next().cloned();
        (heard.unwrap_or_default(), ledger)
    }
}

/// CVE-2021-45098: a receiver drops what is signed in a session that is not, and goes on.
#[test]
fn a_signed_reset_ends_no_session_that_is_not_signed() {
    for (option, both_ways) in [(&MD5[..], true), (&AO, true), (&MD5, false)] {
        for flags in [RST, RST | ACK] {
            let mut talk = Talk::new(&[]);
            talk.send(true, 101, 501, PSH | ACK, b"GET ", &[]);
            let events = match both_ways {
                true => talk.send(true, 105, 501, flags, b"", option),
                false => talk.send(false, 501, 105, flags, b"", option),
            };
            assert!(events.has(Event::SuspectedRstInjection), "{option:?}");
            talk.send(true, 105, 501, PSH | ACK, b"/evil", &[]);
            talk.send(false, 501, 110, ACK, b"", &[]);
            let (heard, ledger) = talk.end();
            assert_eq!(heard[0].bytes, b"GET /evil");
            assert_eq!(ledger.resets, 0);
        }
    }
    // In the handshake, too.
    let mut line = Talk(Line::new(
        Decoder::default(),
        Tracker::new(flow::FlowConfig::default(), stream::StreamConfig::default()),
    ));
    line.send(true, 100, 0, SYN, b"", &[]);
    line.send(false, 0, 101, RST | ACK, b"", &MD5);
    line.send(false, 500, 101, SYN | ACK, b"", &[]);
    line.send(false, 501, 101, RST, b"", &AO);
    line.send(true, 101, 501, ACK, b"", &[]);
    line.send(true, 101, 501, PSH | ACK, b"GET", &[]);
    line.send(false, 501, 104, ACK, b"", &[]);
    assert_eq!(line.end().0[0].bytes, b"GET");
}

#[test]
fn in_a_signed_session_the_unsigned_reset_is_the_odd_one() {
    let mut talk = Talk::new(&MD5);
    talk.send(true, 101, 501, RST, b"", &[]);
    talk.send(true, 101, 501, PSH | ACK, b"data", &MD5);
    talk.send(false, 501, 105, ACK, b"", &MD5);
    let (heard, ledger) = talk.end();
    assert_eq!(
        (heard[0].bytes.as_slice(), ledger.resets),
        (&b"data"[..], 0)
    );
    let mut talk = Talk::new(&MD5);
    talk.send(true, 101, 501, RST, b"", &MD5);
    assert_eq!(talk.end().1.resets, 1);
}

/// What a receiver made of signed data is seen from what it acknowledges.
#[test]
fn signed_data_counts_if_nothing_came_in_its_place() {
    for option in [&MD5[..], &AO] {
        for inline in [false, true] {
            let config = stream::StreamConfig {
                inline,
                ..stream::StreamConfig::default()
            };
            // Dropped by the receiver: the sender's own bytes follow.
            let mut talk = Talk::with(&[], config.clone());
            talk.send(true, 101, 501, PSH | ACK, b"GET /good", option);
            talk.send(true, 101, 501, PSH | ACK, b"GET /evil", &[]);
            talk.send(false, 501, 110, ACK, b"", &[]);
            let (heard, _) = talk.end();
            assert_eq!(heard[0].bytes, b"GET /evil", "inline {inline}");
            // And before them.
            let mut talk = Talk::with(&[], config.clone());
            talk.send(true, 101, 501, PSH | ACK, b"GET /evil", &[]);
            talk.send(true, 101, 501, PSH | ACK, b"GET /good", option);
            talk.send(false, 501, 110, ACK, b"", &[]);
            assert_eq!(talk.end().0[0].bytes, b"GET /evil", "inline {inline}");
            // Taken by a receiver that knows of no signatures.
            let mut talk = Talk::with(&[], config);
            talk.send(true, 101, 501, PSH | ACK, b"GET /evil", option);
            talk.send(false, 501, 110, ACK, b"", &[]);
            assert_eq!(talk.end().0[0].bytes, b"GET /evil", "inline {inline}");
        }
        // A signed FIN and a signed acknowledgement change nothing either.
        let mut talk = Talk::new(&[]);
        talk.send(true, 101, 501, PSH | ACK, b"ab", &[]);
        talk.send(false, 501, 103, FIN | ACK, b"", option);
        assert_eq!(talk.0.notes.streams.len(), 0);
        talk.send(true, 103, 501, PSH | ACK, b"cd", &[]);
        talk.send(false, 501, 105, ACK, b"xyz", &[]);
        let (heard, _) = talk.end();
        assert_eq!(heard.map(|h| h.bytes), [b"abcd".to_vec(), b"xyz".to_vec()]);
    }
}

#[test]
fn who_goes_on_behind_its_own_reset_did_not_send_it() {
    let mut talk = Talk::new(&[]);
    assert!(talk.send(true, 101, 501, RST | ACK, b"", &[]).is_empty());
    assert!(talk.send(true, 101, 501, RST | ACK, b"", &[]).is_empty());
    assert!(talk.send(false, 501, 101, ACK, b"late", &[]).is_empty());
    let events = talk.send(true, 101, 501, PSH | ACK, b"on", &[]);
    assert!(events.has(Event::SuspectedRstInjection));
    // Once is enough.
    assert!(talk.send(true, 103, 501, ACK, b"", &[]).is_empty());
}

/// Bytes from before the first one are outside of every window, also if the segment reaches into it.
#[test]
fn a_segment_left_of_the_window() {
    for (sequence, payload, refused) in [
        (91_u32, &b"0123456789abcde"[..], 15),
        (99, b"xyz", 3),
        // One byte before it is how a sender asks whether the other end is there.
        (100, b"xGET", 0),
    ] {
        let mut talk = Talk::new(&[]);
        let events = talk.send(true, sequence, 501, PSH | ACK, payload, &[]);
        assert_eq!(
            events.has(Event::EstablishedOutOfWindow),
            refused > 0,
            "{sequence}"
        );
        talk.send(false, 501, 104, ACK, b"", &[]);
        let (heard, ledger) = talk.end();
        assert_eq!(ledger.out_of_window, refused, "{sequence}");
        let expected = if refused > 0 { &b""[..] } else { b"GET" };
        assert_eq!(heard[0].bytes, expected, "{sequence}");
    }
}

#[test]
fn more_syns_than_a_client_sends() {
    let stamped = |n: u32| {
        let mut option = vec![1, 1, 8, 10];
        option.extend_from_slice(&n.to_be_bytes());
        option.extend_from_slice(&[0; 4]);
        option
    };
    for answered in [false, true] {
        let tracker = Tracker::new(flow::FlowConfig::default(), stream::StreamConfig::default());
        let mut talk = Talk(Line::new(Decoder::default(), tracker));
        let mut first = None;
        for n in 0..20 {
            // The same again is no other.
            for _ in 0..2 {
                let events = talk.send(true, 100, 0, SYN, b"", &stamped(n));
                if events.has(Event::SynFlood) {
                    first.get_or_insert(n);
                }
            }
            if answered && n == 0 {
                talk.send(false, 500, 101, SYN | ACK, b"", &stamped(9));
            }
        }
        assert_eq!(first, Some(11), "answered: {answered}");
    }
}
