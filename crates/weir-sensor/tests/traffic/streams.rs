//! TCP reassembly: any cutting, order and repetition gives the same bytes; overlaps as a naive reference decides them; handshakes, windows, resets; caps under floods.

use std::collections::BTreeMap;

use super::common::{CLIENT, Heard, Line, SECOND, SERVER, Segment};
use proptest::prelude::*;
use weir_sensor::decode::Decoder;
use weir_sensor::event::{Event, Events};
use weir_sensor::flow::{self, Reason, State, Tracked, Tracker};
use weir_sensor::packet::flag::{ACK, FIN, PSH, RST, SYN, URG};
use weir_sensor::stream::{self, Policy};

const PORT: u16 = 40_000;
const CLIENT_ISN: u32 = 0xffff_ff00;
const SERVER_ISN: u32 = 77;

fn line_with(flows: flow::FlowConfig, streams: stream::StreamConfig) -> Line {
    Line::new(Decoder::default(), Tracker::new(flows, streams))
}

fn line(streams: stream::StreamConfig) -> Line {
    line_with(flow::FlowConfig::default(), streams)
}

/// A connection whose segments are given in offsets.
struct Talk {
    line: Line,
    /// The acknowledgement that each side's segments carry, as an offset of the other side.
    acked: [u32; 2],
}

impl Talk {
    fn new(streams: stream::StreamConfig) -> Talk {
        let mut talk = Talk {
            line: line(streams),
            acked: [0; 2],
        };
        talk.open();
        talk
    }

    fn open(&mut self) {
        self.line
            .ip(&Segment::new(true, CLIENT_ISN, 0, SYN, b"").packet(PORT));
        self.line.ip(&Segment::new(
            false,
            SERVER_ISN,
            CLIENT_ISN.wrapping_add(1),
            SYN | ACK,
            b"",
        )
        .packet(PORT));
        let (tracked, events) = self.send(true, 0, ACK, b"");
        assert!(events.is_empty() && tracked.expect("a flow").established);
    }

    fn segment(&self, to_server: bool, offset: i64, flags: u8, payload: &[u8]) -> Segment {
        let [own, other] = if to_server {
            [CLIENT_ISN, SERVER_ISN]
        } else {
            [SERVER_ISN, CLIENT_ISN]
        };
        let sequence = own.wrapping_add(1).wrapping_add(offset as u32);
        let acknowledgement = other
            .wrapping_add(1)
            .wrapping_add(self.acked[usize::from(to_server)]);
        Segment::new(to_server, sequence, acknowledgement, flags, payload)
    }

    fn send(
        &mut self,
        to_server: bool,
        offset: i64,
        flags: u8,
        payload: &[u8],
    ) -> (Option<Tracked>, Events) {
        let packet = self.segment(to_server, offset, flags, payload).packet(PORT);
        self.line.ip(&packet)
    }

    /// Data to the server.
    fn data(&mut self, offset: i64, payload: &[u8]) -> Events {
        self.send(true, offset, PSH | ACK, payload).1
    }

    /// The server acknowledges up to an offset.
    fn ack(&mut self, offset: u32) -> Events {
        self.acked[0] = offset;
        self.send(false, 0, ACK, b"").1
    }

    fn heard(&self) -> [Heard; 2] {
        self.line
            .notes
            .streams
            .values()
            .next()
            .cloned()
            .unwrap_or_default()
    }

    fn close(mut self) -> ([Heard; 2], stream::Ledger) {
        self.line.tracker.shutdown(&mut self.line.notes);
        let ledger = *self.line.tracker.streams().ledger();
        assert_eq!(ledger.settled(), ledger.payload, "{ledger:?}");
        assert_eq!(self.line.tracker.streams().memory().0, 0);
        (self.heard(), ledger)
    }
}

#[test]
fn bytes_wait_for_their_acknowledgement() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    talk.data(0, b"GET / ");
    assert_eq!(talk.heard()[0].bytes, b"");
    talk.ack(3);
    assert_eq!(talk.heard()[0].bytes, b"GET");
    talk.data(6, b"HTTP");
    talk.ack(10);
    assert_eq!(talk.heard()[0].bytes, b"GET / HTTP");
    talk.data(10, b"/1.0");
    let (heard, ledger) = talk.close();
    assert_eq!(heard[0].bytes, b"GET / HTTP/1.0", "what is held is flushed");
    assert_eq!(heard[0].end.as_deref(), Some("Flow"));
    assert_eq!((ledger.delivered, ledger.payload), (14, 14));
}

#[test]
fn inline_does_not_wait() {
    let mut talk = Talk::new(stream::StreamConfig {
        inline: true,
        ..stream::StreamConfig::default()
    });
    talk.data(3, b"def");
    assert_eq!(talk.heard()[0].bytes, b"");
    talk.data(0, b"abc");
    assert_eq!(talk.heard()[0].bytes, b"abcdef");
    talk.data(0, b"xyz");
    assert_eq!(talk.close().0[0].bytes, b"abcdef");
}

#[test]
fn a_gap_is_what_was_acknowledged_and_never_seen() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    talk.data(0, b"abc");
    talk.data(6, b"ghi");
    assert!(talk.ack(3).is_empty());
    assert!(talk.ack(9).has(Event::Gap));
    let heard = talk.heard();
    assert_eq!(
        (heard[0].bytes.as_slice(), heard[0].gaps.as_slice()),
        (b"abcghi".as_slice(), [(3, 3)].as_slice())
    );
    let late = talk.data(3, b"def");
    assert!(late.has(Event::SpuriousRetransmission), "too late");
    assert_eq!(talk.close().1.gap_bytes, 3);
}

#[test]
fn a_late_segment_fills_a_hole_that_nothing_is_behind() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    talk.data(0, b"abc");
    talk.ack(6);
    talk.data(3, b"def");
    let (heard, ledger) = talk.close();
    assert_eq!(
        (heard[0].bytes.as_slice(), ledger.gaps),
        (b"abcdef".as_slice(), 0)
    );
}

#[test]
fn the_end_of_a_connection() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    talk.data(0, b"bye");
    talk.send(true, 3, FIN | ACK, b"");
    talk.ack(4);
    assert_eq!(talk.heard()[0].end.as_deref(), Some("Fin"));
    talk.send(false, 0, FIN | ACK, b"oh");
    talk.acked[1] = 3;
    let (tracked, _) = talk.send(true, 4, ACK, b"");
    let flow = tracked.expect("a flow").flow;
    assert_eq!(talk.line.tracker.flow(flow).info.state, State::Closed);
    assert_eq!(
        talk.heard()[1],
        Heard {
            bytes: b"oh".to_vec(),
            gaps: vec![],
            end: Some("Fin".into())
        }
    );
    // The same ports again: another flow.
    talk.acked = [0; 2];
    talk.open();
    assert_eq!(talk.line.notes.finished.len(), 1);
    assert_eq!(talk.line.notes.finished[0].1, Reason::Reuse);
}

#[test]
fn a_reset_counts_only_where_the_receiver_takes_it() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    talk.data(0, b"abc");
    talk.ack(3);
    // Beyond, long ago, and in the window but not what its receiver expects (RFC 5961).
    for offset in [500_000, -200_000, 2, 4, 100] {
        let (tracked, events) = talk.send(true, offset, RST | ACK, b"");
        assert!(events.is_empty());
        let flow = tracked.expect("a flow").flow;
        assert_eq!(
            talk.line.tracker.flow(flow).info.state,
            State::Established,
            "RST at {offset}"
        );
    }
    talk.data(3, b"def");
    assert!(
        talk.send(true, 6, RST | ACK, b"why")
            .1
            .has(Event::RstWithData)
    );
    assert_eq!(talk.heard()[0].bytes, b"abcdef");
    assert_eq!(talk.heard()[0].end.as_deref(), Some("Reset"));
    assert!(
        talk.send(false, 0, PSH | ACK, b"more").1.is_empty(),
        "on its way when the other end gave up: nothing odd"
    );
    assert!(
        talk.data(6, b"more").has(Event::SuspectedRstInjection),
        "who gave up does not go on"
    );
    assert_eq!(talk.close().1.closed, 11);
}

#[test]
fn who_was_refused_may_ask_again() {
    let mut talk = Talk {
        line: line(stream::StreamConfig::default()),
        acked: [0; 2],
    };
    let syn = Segment::new(true, CLIENT_ISN, 0, SYN, b"").packet(PORT);
    let ack = CLIENT_ISN.wrapping_add(1);
    for _ in 0..3 {
        talk.line.ip(&syn);
        let no = Segment::new(false, 0, ack, RST | ACK, b"").packet(PORT);
        let (tracked, events) = talk.line.ip(&no);
        assert!(events.is_empty());
        let flow = talk.line.tracker.flow(tracked.expect("a flow").flow);
        assert_eq!(flow.info.state, State::Closed);
    }
    assert!(
        talk.line.notes.finished.is_empty(),
        "it is one flow: the same SYN each time"
    );
    // A SYN/ACK of who had refused: one of both was forged.
    let yes = Segment::new(false, SERVER_ISN, ack, SYN | ACK, b"").packet(PORT);
    assert!(talk.line.ip(&yes).1.has(Event::SuspectedRstInjection));
    talk.send(true, 0, ACK, b"");
    talk.data(0, b"hi");
    talk.ack(2);
    assert_eq!(talk.heard()[0].bytes, b"hi");
    assert!(
        talk.line
            .ip(&Segment::new(true, 77, 0, SYN, b"").packet(PORT))
            .1
            .has(Event::EstablishedSynDifferentSequence)
    );
}

/// A handshake on the ports of a session, from the client or from the server.
fn handshake(from_client: bool) -> [Segment; 3] {
    [
        Segment::new(from_client, 9_000, 0, SYN, b""),
        Segment::new(!from_client, 70_000, 9_001, SYN | ACK, b""),
        Segment::new(from_client, 9_001, 70_001, ACK, b""),
    ]
}

#[test]
fn another_session_on_the_ports_of_one_that_was_never_closed() {
    for (from_client, closing) in [(true, false), (true, true), (false, false)] {
        let mut talk = Talk::new(stream::StreamConfig::default());
        talk.data(0, b"old");
        talk.ack(3);
        if closing {
            talk.send(true, 3, FIN | ACK, b"");
            talk.ack(4);
        }
        let old = talk.send(false, 0, ACK, b"").0.expect("a flow").flow;
        let old = talk.line.tracker.flow(old).info.clone();
        let [syn, answer, ack] = handshake(from_client);
        let said = Segment::new(from_client, 9_001, 70_001, PSH | ACK, b"new");
        let heard = Segment::new(!from_client, 70_001, 9_004, ACK, b"");
        // A SYN that is repeated, and an ACK that was lost: the data confirms.
        let mut all = vec![syn.clone(), syn, answer, said.clone(), heard];
        if from_client {
            all.insert(3, ack);
        }
        let count = all.len();
        let mut last = None;
        for (at, segment) in all.iter().enumerate() {
            let tracked = talk.line.ip(&segment.packet(PORT)).0.expect("a flow");
            assert_eq!(tracked.is_new, at == 3, "with what confirms");
            assert_eq!(tracked.completes, at == 3);
            last = Some(tracked.flow);
        }
        let flow = talk.line.tracker.flow(last.expect("a flow"));
        let new = flow.info.clone();
        assert_eq!(new.client_port == PORT, from_client, "who asked");
        assert_eq!(new.packets, [count as u64 - 2, 2], "its own, SYNs included");
        assert_eq!(new.start, new.last - (count as u64 - 1) * 1_000_000);
        assert_eq!(talk.line.notes.finished, [(old.id, Reason::Reuse)]);
        assert_eq!(talk.line.notes.streams[&old.id][0].bytes, b"old");
        assert_eq!(talk.line.notes.streams[&new.id][0].bytes, b"new");
        talk.close();
    }
}

#[test]
fn a_forged_handshake_leaves_a_session_that_goes_on() {
    let [syn, answer, ack] = handshake(true);
    let other = Segment::new(false, 70_000, 8_000, SYN | ACK, b"");
    let wrong = Segment::new(true, 9_001, 70_002, ACK, b"");
    let back = Segment::new(true, 70_001, 9_001, ACK, b"");
    for forged in [
        &[&syn][..],
        &[&syn, &answer],
        &[&syn, &ack],
        &[&answer, &ack],
        &[&syn, &other, &ack],
        &[&syn, &answer, &wrong],
        &[&syn, &answer, &back],
    ] {
        let mut talk = Talk::new(stream::StreamConfig::default());
        talk.data(0, b"one ");
        talk.ack(4);
        for segment in forged {
            let tracked = talk.line.ip(&segment.packet(PORT)).0.expect("a flow");
            assert!(!tracked.is_new, "{forged:?}");
        }
        // Who has the session asks back, and goes on.
        talk.ack(4);
        talk.data(4, b"two");
        talk.ack(7);
        // Too late to be believed.
        talk.line.ip(&ack.packet(PORT));
        assert!(talk.line.notes.finished.is_empty(), "{forged:?}");
        assert_eq!(talk.heard()[0].bytes, b"one two");
        talk.close();
    }
}

#[test]
fn both_ends_may_open_at_once() {
    for server_acknowledges in [ACK, SYN | ACK] {
        let mut talk = Talk {
            line: line(stream::StreamConfig::default()),
            acked: [0; 2],
        };
        let (client, server) = (CLIENT_ISN.wrapping_add(1), SERVER_ISN.wrapping_add(1));
        for segment in [
            Segment::new(true, CLIENT_ISN, 0, SYN, b""),
            Segment::new(false, SERVER_ISN, 0, SYN, b""),
            Segment::new(true, CLIENT_ISN, server, SYN | ACK, b""),
            match server_acknowledges {
                ACK => Segment::new(false, server, client, ACK, b""),
                flags => Segment::new(false, SERVER_ISN, client, flags, b""),
            },
        ] {
            assert!(talk.line.ip(&segment.packet(PORT)).1.is_empty());
        }
        talk.data(0, b"hi");
        talk.ack(2);
        assert_eq!(talk.heard()[0].bytes, b"hi");
    }
}

/// Of what was never sent nothing can be acknowledged: such an ACK would hide the answer from who believes it.
#[test]
fn a_handshake_is_not_completed_by_an_acknowledgement_of_the_future() {
    for (offset, event) in [
        (0, Event::AckRightSequenceWrongAck),
        (50, Event::AckWithWrongSequence),
    ] {
        let mut talk = Talk {
            line: line(stream::StreamConfig::default()),
            acked: [0; 2],
        };
        let client = CLIENT_ISN.wrapping_add(1);
        talk.line
            .ip(&Segment::new(true, CLIENT_ISN, 0, SYN, b"").packet(PORT));
        talk.line
            .ip(&Segment::new(false, SERVER_ISN, client, SYN | ACK, b"").packet(PORT));
        talk.acked[1] = 88;
        let (tracked, events) = talk.send(true, offset, ACK, b"");
        assert!(events.has(event) && !tracked.expect("a flow").established);
        talk.acked[1] = 0;
        assert!(talk.send(true, 0, ACK, b"").0.expect("a flow").established);
        assert!(talk.send(false, 0, PSH | ACK, b"answer").1.is_empty());
        assert_eq!(talk.close().0[1].bytes, b"answer");
    }
}

#[test]
fn what_is_sent_again_is_told_from_what_fills_a_hole() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    talk.data(6, b"ghi");
    assert!(talk.data(3, b"def").is_empty(), "late, and new");
    assert!(talk.data(0, b"abcdef").is_empty(), "half of it is new");
    assert!(talk.data(3, b"def").has(Event::Retransmission));
    talk.ack(9);
    for (offset, before) in [(6, false), (3, true)] {
        let spurious = talk.data(offset, b"ghi");
        assert!(
            spurious.has(Event::SpuriousRetransmission) && !spurious.has(Event::Retransmission)
        );
        assert_eq!(spurious.has(Event::EstablishedBeforeLastAck), before);
    }
    assert!(
        talk.data(-900, b"long ago")
            .has(Event::SpuriousRetransmission)
    );
    // Bare acknowledgements: a keep-alive, an old one, one from nowhere.
    assert!(talk.send(true, 8, ACK, b"").1.is_empty());
    assert!(
        talk.send(true, 3, ACK, b"")
            .1
            .has(Event::EstablishedBeforeLastAck)
    );
    assert!(
        talk.send(true, 90_000, ACK, b"")
            .1
            .has(Event::EstablishedOutOfWindow)
    );
    assert_eq!(talk.close().0[0].bytes, b"abcdefghi");
}

#[test]
fn an_urgent_byte_is_read_as_the_configuration_says() {
    use stream::Urgent;
    for (urgent, expected, gaps) in [
        (Urgent::OutOfBand, "abcdefghi", vec![]),
        (Urgent::Inline, "abcXdefghYi", vec![]),
        (Urgent::Drop, "abefi", vec![]),
        (Urgent::Gap, "abcdefghi", vec![(3, 1), (8, 1)]),
    ] {
        let mut talk = Talk::new(stream::StreamConfig {
            urgent,
            ..stream::StreamConfig::default()
        });
        let send = |talk: &mut Talk, offset: i64, pointer: u16, payload: &[u8]| {
            let mut packet = talk
                .segment(true, offset, PSH | ACK | URG, payload)
                .packet(PORT);
            packet[38..40].copy_from_slice(&pointer.to_be_bytes());
            packet[36..38].fill(0);
            super::common::seal(
                &mut packet[20..],
                super::common::CLIENT,
                super::common::SERVER,
                6,
                16,
            );
            assert!(talk.line.ip(&packet).1.is_empty());
        };
        talk.data(0, b"ab");
        send(&mut talk, 2, 2, b"cXd");
        talk.ack(5);
        // In what waits as well; a pointer beyond its segment changes nothing.
        send(&mut talk, 7, 3, b"ghY");
        if urgent == Urgent::Drop {
            talk.data(5, b"ef");
        } else {
            send(&mut talk, 5, 3, b"ef");
        }
        talk.data(10, b"i");
        talk.ack(11);
        let heard = talk.close().0;
        assert_eq!(
            (
                String::from_utf8_lossy(&heard[0].bytes).as_ref(),
                &heard[0].gaps
            ),
            (expected, &gaps),
            "{urgent:?}"
        );
    }
}

#[test]
fn a_syn_ack_again_is_odd_only_after_more_was_acknowledged() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    let again = Segment::new(
        false,
        SERVER_ISN,
        CLIENT_ISN.wrapping_add(1),
        SYN | ACK,
        b"",
    )
    .packet(PORT);
    assert!(talk.line.ip(&again).1.is_empty(), "the ACK was lost");
    talk.data(0, b"abc");
    assert!(talk.line.ip(&again).1.is_empty());
    talk.ack(3);
    assert!(talk.line.ip(&again).1.has(Event::EstablishedSynAckResend));
}

#[test]
fn behind_a_fin_nobody_reads() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    talk.data(0, b"abc");
    talk.send(true, 3, FIN | ACK, b"");
    talk.data(4, b"hidden");
    talk.ack(4);
    // Nothing after it can be acknowledged.
    talk.acked[1] = 0;
    talk.send(false, 0, FIN | ACK, b"");
    talk.acked[1] = 9000;
    assert!(talk.send(true, 4, ACK, b"").1.has(Event::InvalidAck));
    talk.acked[1] = 1;
    let flow = talk.send(true, 4, ACK, b"").0.expect("a flow").flow;
    assert_eq!(talk.line.tracker.flow(flow).info.state, State::Closed);
    let (heard, ledger) = talk.close();
    assert_eq!(
        (heard[0].bytes.as_slice(), heard[0].end.as_deref()),
        (b"abc".as_slice(), Some("Fin"))
    );
    assert_eq!((ledger.closed, ledger.gaps), (6, 0));
}

/// What a receiver refuses is not in the stream: window, acknowledgement, timestamp, no ACK flag, wrong checksum.
#[test]
fn what_the_receiver_refuses() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    assert!(talk.data(70_000, b"far").has(Event::EstablishedOutOfWindow));
    talk.acked[1] = 900_000;
    assert!(talk.data(0, b"XXX").has(Event::EstablishedInvalidAck));
    talk.acked[1] = 0;
    let mut bad = talk.segment(true, 0, PSH | ACK, b"YYY").packet(PORT);
    let last = bad.len() - 1;
    bad[last] ^= 1;
    assert!(talk.line.ip(&bad).1.has(Event::TcpChecksum));
    let mut no_ack = talk.segment(true, 0, PSH, b"ZZZ");
    assert!(talk.line.ip(&no_ack.packet(PORT)).1.has(Event::BrokenAck));
    no_ack.acknowledgement = 0;
    assert!(talk.line.ip(&no_ack.packet(PORT)).1.is_empty());
    talk.data(0, b"abc");
    let (heard, ledger) = talk.close();
    assert_eq!(heard[0].bytes, b"abc");
    assert_eq!((ledger.out_of_window, ledger.bad_checksum), (12, 3));
}

/// The last byte of the window is read, the one behind it is not; a FIN counts where all before it fits.
#[test]
fn a_segment_may_fill_the_window() {
    let edge = 65_535;
    for (beyond, flags) in [(0, PSH), (1, PSH), (0, FIN), (1, FIN)] {
        let mut talk = Talk::new(stream::StreamConfig::default());
        assert!(talk.data(0, &[b'a'; 65_000]).is_empty());
        let rest = vec![b'b'; 535 + beyond];
        let (tracked, events) = talk.send(true, 65_000, flags | ACK, &rest);
        let flow = tracked.expect("a flow").flow;
        let state = talk.line.tracker.flow(flow).tcp.as_ref().map(|s| s.state());
        let expected = match (beyond, flags) {
            (1, FIN) => vec![Event::FinOutOfWindow],
            (1, _) => vec![Event::EstablishedOutOfWindow],
            _ => vec![],
        };
        let what = format!("{beyond} bytes beyond, flags {flags:#x}");
        assert_eq!(events.iter().collect::<Vec<_>>(), expected, "{what}");
        let closes = beyond == 0 && flags == FIN;
        let wanted = match closes {
            true => stream::State::CloseWait,
            false => stream::State::Established,
        };
        assert_eq!(state, Some(wanted), "{what}");
        talk.ack(edge + u32::from(closes));
        let (heard, ledger) = talk.close();
        assert_eq!(heard[0].bytes.len(), edge as usize, "{what}");
        assert_eq!(ledger.out_of_window, beyond as u64, "{what}");
    }
}

/// The client's ACK was lost: what the server does next shows whether it had it. Data and a FIN do, a bare ACK does not.
#[test]
fn a_fin_of_the_server_shows_that_the_handshake_is_done() {
    for (flags, payload, established) in [
        (ACK, &b""[..], false),
        (PSH | ACK, b"hello", true),
        (FIN | ACK, b"", true),
    ] {
        let mut talk = Talk {
            line: line(stream::StreamConfig::default()),
            acked: [0; 2],
        };
        let client = CLIENT_ISN.wrapping_add(1);
        talk.line
            .ip(&Segment::new(true, CLIENT_ISN, 0, SYN, b"").packet(PORT));
        talk.line
            .ip(&Segment::new(false, SERVER_ISN, client, SYN | ACK, b"").packet(PORT));
        let (tracked, events) = talk.send(false, 0, flags, payload);
        let tracked = tracked.expect("a flow");
        assert!(events.is_empty(), "{flags:#x}: {events:?}");
        assert_eq!(tracked.established, established, "{flags:#x}");
        let flow = talk.line.tracker.flow(tracked.flow);
        let wanted = match (established, flags & FIN != 0) {
            (false, _) => stream::State::SynReceived,
            (true, false) => stream::State::Established,
            (true, true) => stream::State::FinWait1,
        };
        assert_eq!(flow.tcp.as_ref().map(|s| s.state()), Some(wanted));
    }
}

/// Both names that a flow's record has, at each step of a session.
#[test]
fn states_have_the_names_of_event_logs() {
    let mut talk = Talk {
        line: line(stream::StreamConfig::default()),
        acked: [0; 2],
    };
    let names = |line: &mut Line, segment: Segment| {
        let (tracked, _) = line.ip(&segment.packet(PORT));
        let flow = line.tracker.flow(tracked.expect("a flow").flow);
        let session = flow.tcp.as_ref().expect("a session");
        (flow.info.state.name(), session.state().name())
    };
    let client = CLIENT_ISN.wrapping_add(1);
    let syn = Segment::new(true, CLIENT_ISN, 0, SYN, b"");
    assert_eq!(names(&mut talk.line, syn), ("new", "syn_sent"));
    let answer = Segment::new(false, SERVER_ISN, client, SYN | ACK, b"");
    assert_eq!(names(&mut talk.line, answer), ("new", "syn_recv"));
    let steps = |closes: &[(bool, i64, u8, u32)]| {
        let mut talk = Talk::new(stream::StreamConfig::default());
        let mut seen = Vec::new();
        for (to_server, offset, flags, acked) in closes {
            talk.acked[usize::from(*to_server)] = *acked;
            let segment = talk.segment(*to_server, *offset, *flags, b"");
            seen.push(names(&mut talk.line, segment));
        }
        seen
    };
    let [open, over] = ["established", "closed"];
    assert_eq!(
        steps(&[
            (true, 0, ACK, 0),
            (true, 0, FIN | ACK, 0),
            (false, 0, FIN | ACK, 0),
            (false, 1, ACK, 1),
            (true, 1, ACK, 1),
        ]),
        [
            (open, "established"),
            (open, "close_wait"),
            (over, "last_ack"),
            (over, "last_ack"),
            (over, "closed"),
        ]
    );
    assert_eq!(
        steps(&[
            (false, 0, FIN | ACK, 0),
            (true, 0, ACK, 1),
            (true, 0, FIN | ACK, 1),
        ]),
        [
            (open, "fin_wait1"),
            (open, "fin_wait2"),
            (over, "time_wait"),
        ]
    );
    assert_eq!(
        steps(&[(false, 0, FIN | ACK, 0), (true, 0, FIN | ACK, 0)]).last(),
        Some(&(open, "closing"))
    );
    assert_eq!(stream::State::None.name(), "none");
}

#[test]
fn an_old_timestamp_is_refused() {
    let stamp = |value: u32| [&[8, 10][..], &value.to_be_bytes(), &[0; 4]].concat();
    let mut talk = Talk {
        line: line(stream::StreamConfig::default()),
        acked: [0; 2],
    };
    let mut send = |mut segment: Segment, value: u32| {
        segment.options = stamp(value);
        talk.line.ip(&segment.packet(PORT)).1
    };
    send(Segment::new(true, 9, 0, SYN, b""), 1000);
    send(Segment::new(false, 49, 10, SYN | ACK, b""), 5000);
    send(Segment::new(true, 10, 50, ACK, b""), 1001);
    assert!(send(Segment::new(true, 10, 50, ACK, b""), 1000).is_empty());
    assert!(send(Segment::new(true, 10, 50, ACK | PSH, b"evil"), 900).has(Event::InvalidTimestamp));
    assert!(send(Segment::new(true, 10, 50, ACK | PSH, b"good"), 1002).is_empty());
    assert_eq!(talk.close().0[0].bytes, b"good");
}

/// Systems reset without a clock: receivers take such a reset (RFC 7323, section 5.2). It is told of.
#[test]
fn a_reset_with_an_old_timestamp_is_taken() {
    let stamp = |value: u32| [&[8, 10][..], &value.to_be_bytes(), &[0; 4]].concat();
    for (value, old) in [(0, true), (5001, false)] {
        let mut talk = Talk {
            line: line(stream::StreamConfig::default()),
            acked: [0; 2],
        };
        let mut send = |mut segment: Segment, value: u32| {
            segment.options = stamp(value);
            talk.line.ip(&segment.packet(PORT)).1
        };
        send(Segment::new(true, 9, 0, SYN, b""), 1000);
        send(Segment::new(false, 49, 10, SYN | ACK, b""), 5000);
        send(Segment::new(true, 10, 50, ACK, b""), 1001);
        let events = send(Segment::new(false, 50, 10, RST | ACK, b""), value);
        assert_eq!(events.has(Event::InvalidTimestamp), old, "{value}");
        // Nothing is taken behind it.
        let events = send(Segment::new(false, 50, 10, ACK | PSH, b"late"), 5002);
        assert!(events.has(Event::SuspectedRstInjection), "{events:?}");
    }
}

/// Linux refuses a reset that echoes what it has not sent, and goes on: a sensor that believed it would be blind to the rest.
#[test]
fn a_reset_that_echoes_another_timestamp_resets_nothing() {
    for (asked, echo) in [
        (Some(1000), 100),
        (None, 100),
        (Some(1000), 1000),
        (Some(1000), 0),
    ] {
        let stamp = |value: u32, echo: u32| {
            [&[8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
        };
        let mut talk = Talk {
            line: line(stream::StreamConfig::default()),
            acked: [0; 2],
        };
        let mut syn = Segment::new(true, 9, 0, SYN, b"");
        if let Some(value) = asked {
            syn.options = stamp(value, 0);
        }
        talk.line.ip(&syn.packet(PORT));
        let mut reset = Segment::new(false, 0, 10, RST | ACK, b"");
        reset.options = stamp(100, echo);
        let events = talk.line.ip(&reset.packet(PORT)).1;
        let wrong = echo != 0 && asked != Some(echo);
        assert_eq!(
            events.has(Event::InvalidTimestamp),
            wrong,
            "{asked:?} {echo}"
        );
    }
}

#[test]
fn a_forged_handshake_that_nobody_confirms_changes_nothing() {
    let mut talk = Talk {
        line: line(stream::StreamConfig::default()),
        acked: [0; 2],
    };
    talk.line
        .ip(&Segment::new(true, 5000, 0, SYN, b"").packet(PORT));
    talk.line
        .ip(&Segment::new(true, CLIENT_ISN, 0, SYN, b"").packet(PORT));
    talk.line
        .ip(&Segment::new(true, 6000, 0, SYN, b"").packet(PORT));
    let ack = CLIENT_ISN.wrapping_add(1);
    assert!(
        talk.line
            .ip(&Segment::new(false, 1, 999, SYN | ACK, b"").packet(PORT))
            .1
            .has(Event::SynAckWrongAck)
    );
    talk.line
        .ip(&Segment::new(false, 12345, ack, SYN | ACK, b"").packet(PORT));
    assert!(
        talk.line
            .ip(&Segment::new(false, SERVER_ISN, ack, SYN | ACK, b"").packet(PORT))
            .1
            .has(Event::SynAckDifferentSequence)
    );
    assert!(
        talk.line
            .ip(&Segment::new(true, ack, 0x7000_0000, ACK, b"").packet(PORT))
            .1
            .has(Event::AckRightSequenceWrongAck)
    );
    assert!(talk.send(true, 0, ACK, b"").0.expect("a flow").established);
    talk.data(0, b"hello");
    talk.ack(5);
    assert_eq!(talk.heard()[0].bytes, b"hello");
}

#[test]
fn data_of_a_syn_counts_if_it_is_acknowledged() {
    for (accepted, expected) in [(3, b"abcdef".as_slice()), (0, b"xyzdef")] {
        let mut talk = Talk {
            line: line(stream::StreamConfig::default()),
            acked: [0; 2],
        };
        talk.line
            .ip(&Segment::new(true, CLIENT_ISN, 0, SYN, b"abc").packet(PORT));
        let answer = Segment::new(
            false,
            SERVER_ISN,
            CLIENT_ISN.wrapping_add(1 + accepted),
            SYN | ACK,
            b"",
        );
        let events = talk.line.ip(&answer.packet(PORT)).1;
        assert_eq!(events.has(Event::SynAckIgnoredData), accepted == 0);
        talk.send(true, i64::from(accepted), ACK, b"");
        if accepted == 0 {
            talk.data(0, b"xyz");
        }
        talk.data(3, b"def");
        talk.ack(6);
        assert_eq!(talk.heard()[0].bytes, expected);
        talk.close();
    }
}

#[test]
fn a_syn_ack_before_its_syn() {
    let mut talk = Talk {
        line: line(stream::StreamConfig::default()),
        acked: [0; 2],
    };
    talk.line.ip(&Segment::new(
        false,
        SERVER_ISN,
        CLIENT_ISN.wrapping_add(1),
        SYN | ACK,
        b"",
    )
    .packet(PORT));
    talk.line
        .ip(&Segment::new(true, CLIENT_ISN, 0, SYN, b"").packet(PORT));
    talk.send(true, 0, ACK, b"");
    talk.data(0, b"hi");
    talk.ack(2);
    assert_eq!(talk.heard()[0].bytes, b"hi", "and the directions are right");
}

#[test]
fn midstream_is_a_choice() {
    for midstream in [false, true] {
        let mut talk = Talk {
            line: line(stream::StreamConfig {
                midstream,
                ..stream::StreamConfig::default()
            }),
            acked: [0; 2],
        };
        talk.data(1000, b"abc");
        talk.ack(1003);
        talk.send(false, 0, ACK | PSH, b"answer");
        talk.acked[1] = 6;
        let (tracked, _) = talk.send(true, 1003, ACK, b"");
        assert_eq!(tracked.expect("a flow").established, midstream);
        let (heard, ledger) = talk.close();
        if midstream {
            assert_eq!(
                (heard[0].bytes.as_slice(), heard[1].bytes.as_slice()),
                (b"abc".as_slice(), b"answer".as_slice())
            );
        } else {
            assert_eq!(ledger.untracked, 9);
        }
    }
}

#[test]
fn ports_tell_who_serves_in_a_session_taken_up_late() {
    for midstream in [false, true] {
        let mut talk = Talk {
            line: line(stream::StreamConfig {
                midstream,
                ..stream::StreamConfig::default()
            }),
            acked: [0; 2],
        };
        let (tracked, _) = talk.send(false, 0, ACK | PSH, b"answer");
        let flow = talk.line.tracker.flow(tracked.expect("a flow").flow);
        assert_eq!(flow.info.server_port == 80, midstream);
        talk.acked[1] = 6;
        talk.data(0, b"next");
        talk.ack(4);
        if midstream {
            let [asked, answered] = talk.heard();
            assert_eq!(
                (asked.bytes, answered.bytes),
                (b"next".to_vec(), b"answer".to_vec())
            );
        }
    }
}

#[test]
fn one_direction_alone_is_a_choice() {
    let mut talk = Talk {
        line: line(stream::StreamConfig {
            one_sided: true,
            ..stream::StreamConfig::default()
        }),
        acked: [0; 2],
    };
    talk.line
        .ip(&Segment::new(true, CLIENT_ISN, 0, SYN, b"").packet(PORT));
    talk.send(true, 0, ACK, b"");
    talk.data(0, b"abc");
    assert_eq!(talk.heard()[0].bytes, b"abc");
}

#[test]
fn both_ends_know_of_bytes_after_a_loss_beyond_the_window() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    talk.data(0, b"abc");
    talk.ack(3);
    assert!(
        talk.data(1_000_000, b"def")
            .has(Event::EstablishedOutOfWindow)
    );
    assert!(talk.ack(1_000_003).is_empty());
    talk.data(1_000_003, b"ghi");
    talk.data(1_000_006, b"jkl");
    talk.ack(1_000_009);
    let heard = talk.heard();
    assert_eq!(
        (heard[0].bytes.as_slice(), heard[0].gaps.as_slice()),
        (b"abcghijkl".as_slice(), [(3, 1_000_000)].as_slice())
    );
}

/// A byte beyond a closed window may be refused: the real one replaces it.
#[test]
fn a_probe_of_a_closed_window_does_not_stay() {
    let mut talk = Talk::new(stream::StreamConfig {
        policy: Policy::First,
        ..stream::StreamConfig::default()
    });
    let closed = |talk: &mut Talk, window: u16, ack: u32| {
        talk.acked[0] = ack;
        let mut segment = talk.segment(false, 0, ACK, b"");
        segment.window = window;
        talk.line.ip(&segment.packet(PORT));
    };
    talk.data(0, &[b'a'; 65_000]);
    talk.data(65_000, &[b'a'; 535]);
    closed(&mut talk, 0, 65_535);
    talk.data(65_535, b"X");
    closed(&mut talk, 1000, 65_535);
    talk.data(65_535, b"real");
    closed(&mut talk, 1000, 65_539);
    assert_eq!(&talk.heard()[0].bytes[65_535..], b"real");
}

#[test]
fn the_depth_ends_a_direction() {
    let mut talk = Talk::new(stream::StreamConfig {
        depth: [5, 0],
        ..stream::StreamConfig::default()
    });
    talk.data(0, b"abc");
    talk.data(3, b"defg");
    talk.ack(7);
    assert_eq!(talk.heard()[0].bytes, b"abcde");
    assert_eq!(talk.heard()[0].end.as_deref(), Some("Depth"));
    talk.data(7, b"hij");
    let (_, ledger) = talk.close();
    assert_eq!((ledger.delivered, ledger.beyond_depth), (5, 5));
}

#[test]
fn an_icmp_error_belongs_to_the_flow_it_quotes() {
    let mut talk = Talk::new(stream::StreamConfig::default());
    let quoted = talk.segment(true, 0, ACK, b"").packet(PORT);
    let mut icmp = vec![3, 1, 0, 0, 0, 0, 0, 0];
    icmp.extend_from_slice(&quoted[..28]);
    let sum = weir_packet::checksum::checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let router = [192, 0, 2, 1];
    let (tracked, events) = talk
        .line
        .ip(&super::common::ipv4(router, CLIENT, 1, 1, 0, &icmp));
    let tracked = tracked.expect("the flow quoted");
    assert!(events.is_empty() && !tracked.is_new);
    assert_eq!(tracked.direction, weir_sensor::packet::Direction::ToClient);
    assert_eq!(talk.line.tracker.counts().made, 1);
    let spread = |bytes: &[u8]| weir_sensor::decode::spread(super::common::RAW, bytes);
    assert_eq!(
        spread(&super::common::ipv4(router, CLIENT, 1, 1, 0, &icmp)),
        spread(&quoted)
    );
}

#[test]
fn flows_end_by_the_captures_clock() {
    let mut line = line(stream::StreamConfig::default());
    let question = super::common::udp(CLIENT, SERVER, (5000, 53), b"?");
    let answer = super::common::udp(SERVER, CLIENT, (53, 5000), b"!");
    let [question, answer] = [
        super::common::ipv4(CLIENT, SERVER, 17, 1, 0, &question),
        super::common::ipv4(SERVER, CLIENT, 17, 1, 0, &answer),
    ];
    let mut at = |second: u64, packet: &[u8]| {
        line.frame(super::common::RAW, second * SECOND, packet)
            .0
            .expect("a flow")
    };
    assert!(at(0, &question).is_new);
    assert!(!at(30, &question).is_new);
    // New flows live 30 s, established ones 300 s.
    assert!(at(61, &question).is_new);
    assert!(at(62, &answer).established);
    assert!(!at(362, &question).is_new);
    assert!(at(663, &question).is_new);
    assert_eq!(line.tracker.counts().timeout, 2);
    assert_eq!(line.tracker.counts().active, 1);
}

/// What is given out by a byte map in which each byte knows the segment it is of.
struct Reference {
    policy: Policy,
    bytes: BTreeMap<i64, (u8, usize)>,
    base: i64,
}

impl Reference {
    fn piece(&self, at: i64) -> std::ops::Range<i64> {
        let id = self.bytes[&at].1;
        let same = |o: &i64| self.bytes.get(o).is_some_and(|(_, i)| *i == id);
        let (mut start, mut end) = (at, at + 1);
        while same(&(start - 1)) {
            start -= 1;
        }
        while same(&end) {
            end += 1;
        }
        start..end
    }

    fn insert(&mut self, id: usize, start: i64, bytes: &[u8]) {
        let start_kept = start.max(self.base);
        let new = start_kept..start + bytes.len() as i64;
        // Decided by what was there before, byte by byte.
        let mut winners = Vec::new();
        for at in new.clone() {
            if !self.bytes.contains_key(&at) || self.policy.takes_new(&self.piece(at), &new) {
                winners.push(at);
            }
        }
        for at in winners {
            self.bytes.insert(at, (bytes[(at - start) as usize], id));
        }
    }

    fn release(&mut self, upto: i64, out: &mut Vec<u8>) {
        while self.base < upto
            && let Some((byte, _)) = self.bytes.remove(&self.base)
        {
            out.push(byte);
            self.base += 1;
        }
    }
}

fn long() -> u32 {
    if std::env::var_os("WEIR_LONG").is_some() {
        5000
    } else {
        200
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: long(), failure_persistence: None, ..ProptestConfig::default() })]

    /// However a stream is cut, ordered and repeated, it is the same stream.
    #[test]
    fn cutting_order_and_repetition_change_nothing(
        stream in prop::collection::vec(any::<u8>(), 1..3000),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..700), 0..40),
        order in prop::collection::vec(any::<u64>(), 80),
        acks in prop::collection::vec(any::<bool>(), 80),
        policy in prop::sample::select(Policy::ALL),
        inline in any::<bool>(),
    ) {
        let mut talk = Talk::new(stream::StreamConfig { policy, inline, ..stream::StreamConfig::default() });
        let mut segments: Vec<(usize, usize)> = cuts.iter().map(|(at, n)| { let at = at.index(stream.len()); (at, (at + n).min(stream.len())) }).collect();
        let mut at = 0;
        let mut sizes = cuts.iter().map(|(_, n)| *n).chain(std::iter::repeat(400));
        while at < stream.len() {
            let end = (at + sizes.next().unwrap_or(400)).min(stream.len());
            segments.push((at, end));
            at = end;
        }
        let mut keyed: Vec<_> = segments.iter().enumerate().map(|(i, s)| (order[i % order.len()], i, *s)).collect();
        keyed.sort_unstable();
        // The receiver acknowledges what it has in order, sometimes.
        let mut has = vec![false; stream.len()];
        for (i, (_, _, (from, to))) in keyed.iter().enumerate() {
            let events = talk.data(*from as i64, &stream[*from..*to]);
            prop_assert!(!events.has(Event::OverlapDifferentData));
            has[*from..*to].fill(true);
            if acks[i % acks.len()] {
                talk.ack(has.iter().take_while(|b| **b).count() as u32);
            }
        }
        let payload = talk.line.tracker.streams().ledger().payload;
        let (heard, ledger) = talk.close();
        prop_assert_eq!(&heard[0].bytes, &stream);
        prop_assert_eq!(&heard[0].gaps, &vec![]);
        prop_assert_eq!(ledger.delivered, stream.len() as u64);
        prop_assert_eq!(ledger.overlapped, payload - stream.len() as u64);
    }

    /// Segments that contradict each other: the fast reassembler and the byte map agree, for each policy, wherever acknowledgements fall.
    #[test]
    fn overlaps_are_decided_as_by_the_byte_map(
        segments in prop::collection::vec((0_i64..60, 1_usize..30, prop::option::weighted(0.2, 0_i64..90)), 1..25),
        policy in prop::sample::select(Policy::ALL),
    ) {
        let mut talk = Talk::new(stream::StreamConfig { policy, ..stream::StreamConfig::default() });
        let mut reference = Reference { policy, bytes: BTreeMap::new(), base: 0 };
        let mut expected = Vec::new();
        let mut acked = 0;
        for (id, (start, length, ack)) in segments.iter().enumerate() {
            let bytes = vec![b'A' + id as u8; *length];
            talk.data(*start, &bytes);
            reference.insert(id, *start, &bytes);
            reference.release(acked, &mut expected);
            if let Some(ack) = ack {
                // Only what the receiver can have: in order.
                let mut end = reference.base;
                while reference.bytes.contains_key(&end) && end < *ack {
                    end += 1;
                }
                acked = acked.max(end);
                talk.ack(acked as u32);
                reference.release(acked, &mut expected);
            }
        }
        prop_assert_eq!(&talk.heard()[0].bytes, &expected);
        let ledger = *talk.line.tracker.streams().ledger();
        let held = reference.bytes.len() as u64;
        prop_assert_eq!(ledger.payload, ledger.settled() + held);
        let (heard, _) = talk.close();
        // The flush hands on the rest, holes as gaps.
        expected.extend(reference.bytes.values().map(|(b, _)| *b));
        prop_assert_eq!(&heard[0].bytes, &expected);
    }

    /// Any segments at all: the ledger stays exact, and nothing panics.
    #[test]
    fn the_ledger_is_exact_for_any_segments(
        segments in prop::collection::vec((any::<bool>(), prop_oneof![-70_000_i64..70_000, 0_i64..50], prop_oneof![0_u32..60, any::<u32>()], any::<u8>(), any::<u16>(), 0_usize..40), 1..60),
        begins in any::<bool>(),
        midstream in any::<bool>(),
        one_sided in any::<bool>(),
        inline in any::<bool>(),
        depth in prop::sample::select(vec![0_u64, 7, 1000]),
        memory in prop::sample::select(vec![5000_usize, 1 << 20]),
        max_pieces in prop::sample::select(vec![2_usize, 100]),
    ) {
        let config = stream::StreamConfig { midstream, one_sided, inline, depth: [depth; 2], memory, max_pieces, policy: Policy::Last, ..stream::StreamConfig::default() };
        let mut talk = Talk { line: line(config), acked: [0; 2] };
        if begins {
            talk.open();
        }
        for (to_server, offset, ack, flags, window, length) in &segments {
            let mut segment = talk.segment(*to_server, *offset, *flags, &vec![b'x'; *length]);
            segment.window = *window;
            segment.acknowledgement = segment.acknowledgement.wrapping_add(*ack);
            talk.line.ip(&segment.packet(PORT));
            let (held, peak) = talk.line.tracker.streams().memory();
            prop_assert!(held <= memory && peak <= memory);
        }
        talk.close();
    }
}

#[test]
fn a_flood_of_flows_stays_within_its_cap() {
    let mut line = line_with(
        flow::FlowConfig {
            flows: 1000,
            ..flow::FlowConfig::default()
        },
        stream::StreamConfig::default(),
    );
    let mut most = 0;
    for i in 0..20_000_u32 {
        let from = [10, 1, (i >> 8) as u8, i as u8];
        line.ip(&Segment::new(true, i, 0, SYN, b"").between(from, SERVER, (PORT, 80)));
        most = most.max(line.tracker.memory());
    }
    let counts = line.tracker.counts();
    assert_eq!(
        (counts.made, counts.active, counts.peak, counts.forced),
        (20_000, 1000, 1000, 19_000)
    );
    assert!(
        line.notes
            .finished
            .iter()
            .all(|(_, reason)| *reason == Reason::Forced)
    );
    // By memory as well.
    let per_flow = most / 1000;
    let mut line = line_with(
        flow::FlowConfig {
            memory: 100 * per_flow,
            ..flow::FlowConfig::default()
        },
        stream::StreamConfig::default(),
    );
    for i in 0..5000_u32 {
        let from = [10, 1, (i >> 8) as u8, i as u8];
        line.ip(&Segment::new(true, i, 0, SYN, b"").between(from, SERVER, (PORT, 80)));
        assert!(line.tracker.memory() <= 100 * per_flow);
    }
    assert_eq!(line.tracker.counts().active, 100);
}

/// Segments out of order in many sessions: the cap holds, the oldest give way, and a session that comes last is still read.
#[test]
fn a_flood_of_segments_out_of_order_stays_within_its_cap() {
    let memory = 200_000;
    let mut line = line(stream::StreamConfig {
        memory,
        ..stream::StreamConfig::default()
    });
    let open = |line: &mut Line, from: [u8; 4]| {
        line.ip(&Segment::new(true, 99, 0, SYN, b"").between(from, SERVER, (PORT, 80)));
        line.ip(&Segment::new(false, 499, 100, SYN | ACK, b"").between(SERVER, from, (80, PORT)));
        line.ip(&Segment::new(true, 100, 500, ACK, b"").between(from, SERVER, (PORT, 80)));
    };
    for i in 0..300_u16 {
        let from = [10, 2, (i >> 8) as u8, i as u8];
        open(&mut line, from);
        for k in 1..10 {
            line.ip(
                &Segment::new(true, 100 + k * 1000, 500, ACK, &[7; 900]).between(
                    from,
                    SERVER,
                    (PORT, 80),
                ),
            );
            let (held, peak) = line.tracker.streams().memory();
            assert!(held <= memory && peak <= memory, "{held} {peak}");
        }
    }
    assert!(line.tracker.counts().relieved > 200);
    let from = [10, 3, 0, 1];
    open(&mut line, from);
    line.ip(&Segment::new(true, 100, 500, ACK, b"still read").between(from, SERVER, (PORT, 80)));
    line.ip(&Segment::new(false, 500, 110, ACK, b"").between(SERVER, from, (80, PORT)));
    assert!(
        line.notes
            .streams
            .values()
            .any(|s| s[0].bytes == b"still read")
    );
    line.tracker.shutdown(&mut line.notes);
    let ledger = line.tracker.streams().ledger();
    assert_eq!(ledger.settled(), ledger.payload);
    assert_eq!(ledger.payload, 300 * 9 * 900 + 10);
    assert!(ledger.over_cap > 0 && ledger.delivered > 10);
}
