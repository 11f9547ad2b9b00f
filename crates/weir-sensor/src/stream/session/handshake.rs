//! The handshake: what is remembered of it until both ends have agreed, and the packets that decide it.
//!
//! It is decided by what the ends confirm: of several SYNs the one that the SYN/ACK acknowledges counts, of several SYN/ACKs the one that the client's ACK does.

use super::{Segment, Session, State, refuse};
use crate::event::Event;
use crate::packet::{Direction, flag};
use crate::stream::Sink;
use crate::stream::side::{Kind, Tools, first};

/// What a session taken up in the middle may scale its windows by: nobody knows.
const UNKNOWN_SCALE: u8 = 14;
/// SYNs that are remembered until one is confirmed.
const CANDIDATES: usize = 4;

/// Different SYNs of one session from which on it is a flood: a client that nobody answers sends its own a handful of times.
const FLOOD: usize = 11;

/// And SYN/ACKs: a server that keeps no state (SYN cookies) sends another one each time.
const ANSWERS: usize = 6;

/// A SYN/ACK not confirmed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    sequence: u32,
    acknowledgement: u32,
    scale: Option<u8>,
    window: u16,
    stamp: Option<u32>,
    time: u64,
}

/// What is only needed until a session is established.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// Sequence numbers of SYNs of the client.
    asked: [u32; CANDIDATES],
    asked_count: u8,
    /// The server's own SYN, if both opened at once; its acknowledgement is not known yet.
    crossed: Option<Answer>,
    answers: Vec<Answer>,
    /// The client's window scale and timestamp.
    scale: Option<u8>,
    stamp: Option<u32>,
    time: u64,
    /// The window that the client announced; of a SYN that was not seen: `None`.
    window: Option<u16>,
    /// The sequence number of the SYN whose data is held.
    data_of: Option<u32>,
    /// That of the SYN/ACK whose data is held.
    answered_data_of: Option<u32>,
    /// Different SYNs: sequence number and timestamp.
    syns: Vec<(u32, Option<u32>)>,
}

impl Handshake {
    /// Whether an answer echoes the timestamp of a SYN, as far as those are known.
    fn is_echoed(&self, echo: u32) -> bool {
        let unknown = self.syns.is_empty() || self.syns.len() >= FLOOD;
        unknown || self.syns.iter().any(|(_, stamp)| *stamp == Some(echo))
    }

    pub(super) fn asked(&self) -> &[u32] {
        first(&self.asked, usize::from(self.asked_count))
    }

    /// Notes a SYN; whether it is one too many.
    fn is_flooded(&mut self, sequence: u32, stamp: Option<u32>) -> bool {
        if self.syns.contains(&(sequence, stamp)) {
            return false;
        }
        let many = self.syns.len() >= FLOOD;
        if !many {
            self.syns.push((sequence, stamp));
        }
        many
    }

    fn ask(&mut self, sequence: u32) {
        if self.asked().contains(&sequence) {
            return;
        }
        let at = usize::from(self.asked_count).min(CANDIDATES - 1);
        if let Some(place) = self.asked.get_mut(at) {
            *place = sequence;
            self.asked_count = (at + 1) as u8;
        }
    }
}

impl Session {
    pub(super) fn begin<S: Sink>(
        &mut self,
        segment: &Segment<'_>,
        tools: &mut Tools<'_>,
        sink: &mut S,
    ) {
        let tcp = segment.tcp;
        let lost = |tools: &mut Tools<'_>| tools.ledger.untracked += segment.payload.len() as u64;
        if segment.has(flag::RST) {
            tools.events.insert(Event::RstNoSession);
            lost(tools);
        } else if segment.has(flag::SYN | flag::ACK) {
            // The flow's direction was chosen by it: its sender is the server.
            if segment.direction == Direction::ToServer {
                lost(tools);
                return;
            }
            let follow = segment.midstream || segment.one_sided;
            let mut handshake = Handshake::default();
            handshake.ask(tcp.acknowledgement.wrapping_sub(1));
            // What the client offered was not seen.
            handshake.scale = tcp.window_scale.map(|_| UNKNOWN_SCALE);
            self.handshake = Some(Box::new(handshake));
            self.answered(segment, tools, sink);
            if follow {
                self.midstream = true;
                tools.ledger.midstream += 1;
            } else {
                // It counts if its SYN comes after it: the capture may have changed their order.
                self.state = State::None;
            }
        } else if segment.has(flag::SYN) {
            tools.ledger.sessions += 1;
            self.state = State::SynSent;
            let early = self
                .handshake
                .take()
                .filter(|h| h.asked() == [tcp.sequence]);
            if early.is_some() {
                self.state = State::SynReceived;
            }
            self.handshake = Some(early.unwrap_or_default());
            self.asked(segment, tools, sink);
        } else if segment.midstream && segment.has(flag::ACK) {
            self.midstream = true;
            tools.ledger.midstream += 1;
            self.state = State::Established;
            self.sides[0].scale = UNKNOWN_SCALE;
            self.sides[1].scale = UNKNOWN_SCALE;
            self.learn(segment);
            self.established(segment, tools, sink);
        } else {
            if segment.has(flag::FIN) {
                tools.events.insert(Event::FinNoSession);
            }
            lost(tools);
        }
    }

    /// Takes sequence numbers from a segment of a session taken up in the middle.
    pub(super) fn learn(&mut self, segment: &Segment<'_>) {
        let sender = segment.direction.of_mut(&mut self.sides);
        if !sender.known {
            sender.known = true;
            sender.zero = segment.tcp.sequence;
        }
        let receiver = segment.direction.reversed().of_mut(&mut self.sides);
        if !receiver.known && segment.has(flag::ACK) {
            receiver.known = true;
            receiver.zero = segment.tcp.acknowledgement;
        }
    }

    /// A SYN of the client.
    fn asked<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        let tcp = segment.tcp;
        let Some(handshake) = &mut self.handshake else {
            return;
        };
        if handshake.is_flooded(tcp.sequence, segment.stamp()) {
            tools.events.insert(Event::SynFlood);
        }
        handshake.ask(tcp.sequence);
        handshake.scale = tcp.window_scale;
        handshake.stamp = segment.stamp();
        handshake.time = segment.time;
        handshake.window = Some(tcp.window);
        if segment.payload.is_empty() {
            return;
        }
        // Data of a SYN (RFC 7413) counts if the SYN/ACK acknowledges it; of several SYNs the last one's is kept.
        let side = &mut self.sides[0];
        if handshake.data_of != Some(tcp.sequence) {
            side.refuse(tools);
            side.zero = tcp.sequence.wrapping_add(1);
            side.next = 0;
        }
        handshake.data_of = Some(tcp.sequence);
        let inline = std::mem::replace(&mut tools.inline, false);
        side.insert(
            0,
            segment.payload,
            Kind::Data,
            Direction::ToServer,
            tools,
            sink,
        );
        tools.inline = inline;
    }

    pub(super) fn syn_sent<S: Sink>(
        &mut self,
        segment: &Segment<'_>,
        tools: &mut Tools<'_>,
        sink: &mut S,
    ) {
        let tcp = segment.tcp;
        let to_server = segment.direction == Direction::ToServer;
        // Who asked refuses what echoes a timestamp that it has not sent (RFC 7323, section 3.2): a reset or an end so made is to deceive others.
        if !to_server
            && !segment.has(flag::SYN)
            && let Some((_, echo)) = tcp.timestamps.filter(|(_, echo)| *echo != 0)
            && (self.handshake.as_ref()).is_some_and(|h| !h.is_echoed(echo))
        {
            return refuse(segment, tools, Some(Event::InvalidTimestamp));
        }
        if segment.has(flag::RST) {
            let asked = self.handshake.as_ref().map_or(&[][..], |h| h.asked());
            let fits = if segment.doubtful {
                tools.events.insert(Event::SuspectedRstInjection);
                false
            } else if to_server {
                asked
                    .iter()
                    .any(|s| tcp.sequence == *s || tcp.sequence == s.wrapping_add(1))
            } else {
                segment.has(flag::ACK)
                    && asked
                        .iter()
                        .any(|s| self.acknowledges(*s, tcp.acknowledgement))
            };
            if !fits && !to_server && segment.has(flag::ACK) {
                tools.events.insert(Event::InvalidAck);
                tools.events.insert(Event::RstInvalidAck);
            }
            if fits && !to_server {
                tools.ledger.resets += 1;
                tools.ledger.closed += segment.payload.len() as u64;
                (self.reset, self.refused) = (true, true);
                self.state = State::Closed;
            } else {
                self.reset_if(fits, segment, tools, sink);
            }
        } else if segment.has(flag::SYN | flag::ACK) {
            if to_server {
                let crossed = self.handshake.as_ref().and_then(|h| h.crossed);
                match crossed {
                    None => refuse(segment, tools, Some(Event::SynAckInWrongDirection)),
                    Some(server) if tcp.acknowledgement != server.sequence.wrapping_add(1) => {
                        refuse(segment, tools, Some(Event::FourWayWrongAck))
                    }
                    Some(_) if !self.has_asked(tcp.sequence) => {
                        refuse(segment, tools, Some(Event::FourWayWrongSyn));
                    }
                    Some(server) => {
                        // Both know of each other: what is left is that the server acknowledges.
                        if let Some(handshake) = &mut self.handshake {
                            handshake.answers.push(Answer {
                                acknowledgement: tcp.sequence.wrapping_add(1),
                                ..server
                            });
                        }
                        self.state = State::SynReceived;
                        tools.ledger.overlapped += segment.payload.len() as u64;
                    }
                }
            } else {
                self.answered(segment, tools, sink);
            }
        } else if segment.has(flag::SYN) {
            if to_server {
                self.asked(segment, tools, sink);
            } else {
                if let Some(handshake) = &mut self.handshake {
                    handshake.crossed = Some(Answer {
                        sequence: tcp.sequence,
                        acknowledgement: 0,
                        scale: tcp.window_scale,
                        window: tcp.window,
                        stamp: segment.stamp(),
                        time: segment.time,
                    });
                }
                refuse(segment, tools, None);
            }
        } else if segment.one_sided && to_server && segment.has(flag::ACK) {
            // The server's half is not seen.
            let isn = tcp.sequence.wrapping_sub(1);
            if self
                .handshake
                .as_ref()
                .is_some_and(|h| h.asked().contains(&isn))
            {
                let side = &mut self.sides[0];
                side.known = true;
                side.zero = tcp.sequence;
                self.handshake = None;
                self.sides[0].scale = UNKNOWN_SCALE;
                self.sides[1].scale = UNKNOWN_SCALE;
                self.state = State::Established;
                self.learn(segment);
                self.established(segment, tools, sink);
            } else {
                refuse(segment, tools, Some(Event::AckWithWrongSequence));
            }
        } else {
            refuse(segment, tools, None);
        }
    }

    /// Whether the data of a SYN with that sequence number is held, or was read.
    pub(super) fn holds_data_of(&self, sequence: u32) -> bool {
        match &self.handshake {
            Some(handshake) => handshake.data_of == Some(sequence),
            None => false,
        }
    }

    /// Whether an acknowledgement is of a SYN with that sequence number, perhaps with its data.
    fn acknowledges(&self, sequence: u32, acknowledgement: u32) -> bool {
        let beyond = acknowledgement.wrapping_sub(sequence.wrapping_add(1));
        let data = match &self.handshake {
            Some(h) if h.data_of == Some(sequence) => self.sides[0].next.max(0) as u32,
            _ => 0,
        };
        beyond <= data
    }

    /// A SYN/ACK of the server.
    fn answered<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        let tcp = segment.tcp;
        let asked = self.handshake.as_ref().and_then(|h| {
            h.asked()
                .iter()
                .copied()
                .find(|s| self.acknowledges(*s, tcp.acknowledgement))
        });
        let Some(isn) = asked else {
            refuse(segment, tools, Some(Event::SynAckWrongAck));
            return;
        };
        let Some(handshake) = &mut self.handshake else {
            return;
        };
        if let Some(first) = handshake.answers.first() {
            if first.sequence != tcp.sequence {
                tools.events.insert(Event::SynAckDifferentSequence);
            } else if first.acknowledgement != tcp.acknowledgement {
                tools.events.insert(Event::SynAckDifferentAck);
            }
        }
        let known = handshake
            .answers
            .iter()
            .any(|a| (a.sequence, a.acknowledgement) == (tcp.sequence, tcp.acknowledgement));
        if !known {
            if handshake.answers.len() >= ANSWERS {
                refuse(segment, tools, Some(Event::SynAckFlood));
                return;
            }
            handshake.answers.push(Answer {
                sequence: tcp.sequence,
                acknowledgement: tcp.acknowledgement,
                scale: tcp.window_scale,
                window: tcp.window,
                stamp: segment.stamp(),
                time: segment.time,
            });
        }
        if handshake.data_of == Some(isn) && tcp.acknowledgement == isn.wrapping_add(1) {
            // The server did not take the data of the SYN; the client sends it again.
            tools.events.insert(Event::SynAckIgnoredData);
            handshake.data_of = None;
            self.sides[0].refuse(tools);
            self.sides[0].next = 0;
        }
        self.state = State::SynReceived;
        if segment.payload.is_empty() {
            return;
        }
        // Data of a SYN/ACK counts if the client confirms that answer; the first answer's is kept.
        if *handshake.answered_data_of.get_or_insert(tcp.sequence) == tcp.sequence {
            let inline = std::mem::replace(&mut tools.inline, false);
            self.sides[1].insert(
                0,
                segment.payload,
                Kind::Data,
                Direction::ToClient,
                tools,
                sink,
            );
            tools.inline = inline;
        } else {
            refuse(segment, tools, None);
        }
    }

    pub(super) fn syn_received<S: Sink>(
        &mut self,
        segment: &Segment<'_>,
        tools: &mut Tools<'_>,
        sink: &mut S,
    ) {
        let tcp = segment.tcp;
        let to_server = segment.direction == Direction::ToServer;
        if segment.has(flag::RST) {
            let Some(handshake) = &self.handshake else {
                return;
            };
            let fits = if segment.doubtful {
                tools.events.insert(Event::SuspectedRstInjection);
                false
            } else if to_server {
                handshake
                    .answers
                    .iter()
                    .any(|a| tcp.sequence == a.acknowledgement)
            } else {
                handshake
                    .answers
                    .iter()
                    .any(|a| tcp.sequence == a.sequence.wrapping_add(1))
                    || segment.has(flag::ACK)
                        && handshake
                            .answers
                            .iter()
                            .any(|a| tcp.acknowledgement == a.acknowledgement)
            };
            self.reset_if(fits, segment, tools, sink);
            return;
        }
        if segment.has(flag::SYN | flag::ACK) {
            if to_server {
                let expected = self.handshake.as_ref().is_some_and(|h| h.crossed.is_some());
                refuse(
                    segment,
                    tools,
                    (!expected).then_some(Event::SynAckToServerOnSynReceived),
                );
            } else {
                self.answered(segment, tools, sink);
            }
            return;
        }
        if segment.has(flag::SYN) {
            if !to_server {
                refuse(segment, tools, Some(Event::SynToClientOnSynReceived));
                return;
            }
            if self
                .handshake
                .as_ref()
                .is_some_and(|h| !h.asked().contains(&tcp.sequence))
            {
                tools.events.insert(Event::SynDifferentSequence);
                if let Some(handshake) = &mut self.handshake {
                    handshake.ask(tcp.sequence);
                }
            }
            let stamp = segment.stamp();
            if let Some(handshake) = &mut self.handshake
                && handshake.is_flooded(tcp.sequence, stamp)
            {
                tools.events.insert(Event::SynFlood);
            }
            refuse(segment, tools, None);
            return;
        }
        if !segment.has(flag::ACK) || segment.doubtful {
            refuse(segment, tools, None);
            return;
        }
        let answers = self
            .handshake
            .as_ref()
            .map_or(&[][..], |h| h.answers.as_slice());
        // Data may come before the ACK: near is enough, exact is better. But nobody acknowledges what the server has not sent; its client's ACK may be lost, and is then
        // known from what the server does.
        let near = |one: u32, other: u32| one.wrapping_sub(other) <= 1 << 30;
        let (own, other) = if to_server {
            (tcp.sequence, tcp.acknowledgement)
        } else {
            (tcp.acknowledgement, tcp.sequence)
        };
        let sent = self.sides[1].next.max(0) as u32;
        let fits = |a: &&Answer| {
            let beyond = other.wrapping_sub(a.sequence.wrapping_add(1));
            near(own, a.acknowledgement) && beyond <= if to_server { sent } else { 1 << 30 }
        };
        let exact = |a: &&Answer| own == a.acknowledgement && other == a.sequence.wrapping_add(1);
        let answer = answers
            .iter()
            .find(exact)
            .or_else(|| answers.iter().find(fits))
            .copied();
        let crossed = self.handshake.as_ref().is_some_and(|h| h.crossed.is_some());
        match answer {
            None if to_server && answers.iter().any(|a| own == a.acknowledgement) => {
                refuse(segment, tools, Some(Event::AckRightSequenceWrongAck))
            }
            None => refuse(segment, tools, Some(Event::AckWithWrongSequence)),
            // The server's data proves that it got an ACK which was not seen; a bare ACK proves nothing, unless the client has answered the server's SYN.
            Some(answer)
                if !to_server
                    && !crossed
                    && segment.payload.is_empty()
                    && !segment.has(flag::FIN) =>
            {
                let odd = !exact(&&answer);
                refuse(segment, tools, odd.then_some(Event::WrongAckDirection))
            }
            Some(answer) => {
                self.establish(&answer, tools);
                // Data of the SYN that the answer acknowledged.
                self.sides[0].deliver(false, Direction::ToServer, tools, sink);
                self.established(segment, tools, sink);
            }
        }
    }

    /// The handshake is done with that answer of the server.
    fn establish(&mut self, answer: &Answer, tools: &mut Tools<'_>) {
        let Some(handshake) = self.handshake.take() else {
            return;
        };
        self.state = State::Established;
        self.answer = Some((answer.sequence, answer.acknowledgement));
        let accepted = match handshake.data_of {
            Some(isn) => answer.acknowledgement.wrapping_sub(isn.wrapping_add(1)),
            None => 0,
        };
        let [client, server] = &mut self.sides;
        client.known = true;
        client.zero = answer.acknowledgement.wrapping_sub(accepted);
        client.acked = i64::from(accepted);
        client.window_end = Some(i64::from(accepted) + i64::from(answer.window));
        server.known = true;
        server.zero = answer.sequence.wrapping_add(1);
        // Windows of SYNs are never scaled (RFC 7323, section 2.2).
        server.window_end = handshake.window.map(i64::from);
        // Data of another answer than the one confirmed was never read.
        let forged = handshake
            .answered_data_of
            .is_some_and(|s| s != answer.sequence);
        if let (Some(client_scale), Some(server_scale)) = (handshake.scale, answer.scale) {
            client.scale = client_scale;
            server.scale = server_scale;
        }
        if let (Some(client_stamp), Some(server_stamp)) = (handshake.stamp, answer.stamp) {
            self.stamps = true;
            client.stamp = Some((client_stamp, handshake.time));
            server.stamp = Some((server_stamp, answer.time));
        }
        if forged {
            server.refuse(tools);
            server.next = 0;
        }
    }
}
