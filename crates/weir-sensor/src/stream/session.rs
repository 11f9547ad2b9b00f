//! A TCP session: its handshake and its end, which segments the receiver takes, and the acknowledgements that release bytes.
//!
//! A handshake is decided by what the ends confirm: of several SYNs the one that the SYN/ACK acknowledges counts, of several SYN/ACKs the one that the client's ACK does. Packets
//! that no receiver takes (window, acknowledgement, timestamp, RFC 9293 and RFC 7323) change nothing; they are events.

use super::side::{Kind, Side, Tools};
use super::{End, Reassembler, Sink, Urgent};
use crate::event::{Event, Events};
use crate::packet::{Direction, Packet, Tcp, flag};

/// SYNs that are remembered until one is confirmed.
const CANDIDATES: usize = 4;
/// And SYN/ACKs: a server that keeps no state (SYN cookies) sends another one each time.
const ANSWERS: usize = 6;
/// A timestamp is not compared with one so long ago (RFC 7323, section 5.5), in nanoseconds: 24 days.
const STAMP_AGE: u64 = 24 * 86_400 * 1_000_000_000;
/// What a session taken up in the middle may scale its windows by: nobody knows.
const UNKNOWN_SCALE: u8 = 14;

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing of it was understood: its beginning was not seen.
    #[default]
    None,
    /// The client asked.
    SynSent,
    /// The server answered.
    SynReceived,
    /// Both ends have agreed.
    Established,
    /// The server closed its direction.
    FinWait1,
    /// And the client acknowledged.
    FinWait2,
    /// The client closed its direction.
    CloseWait,
    /// Both closed at once.
    Closing,
    /// Both closed, the client first.
    LastAck,
    /// Both closed, the server first.
    TimeWait,
    /// Over.
    Closed,
}

impl State {
    /// The name in event logs.
    pub fn name(self) -> &'static str {
        match self {
            State::None => "none",
            State::SynSent => "syn_sent",
            State::SynReceived => "syn_recv",
            State::Established => "established",
            State::FinWait1 => "fin_wait1",
            State::FinWait2 => "fin_wait2",
            State::CloseWait => "close_wait",
            State::Closing => "closing",
            State::LastAck => "last_ack",
            State::TimeWait => "time_wait",
            State::Closed => "closed",
        }
    }

    /// Whether the handshake is done, or the session was taken up later.
    pub fn is_established(self) -> bool {
        !matches!(self, State::None | State::SynSent | State::SynReceived)
    }

    /// Whether both ends are done with it.
    pub fn is_over(self) -> bool {
        matches!(self, State::LastAck | State::TimeWait | State::Closed)
    }
}

/// A SYN/ACK not confirmed yet.
#[derive(Clone, Copy, Debug)]
struct Answer {
    sequence: u32,
    acknowledgement: u32,
    scale: Option<u8>,
    window: u16,
    stamp: Option<u32>,
    time: u64,
}

/// What is only needed until a session is established.
#[derive(Debug, Default)]
struct Handshake {
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
}

impl Handshake {
    fn asked(&self) -> &[u32] {
        &self.asked[..usize::from(self.asked_count)]
    }

    fn ask(&mut self, sequence: u32) {
        if self.asked().contains(&sequence) {
            return;
        }
        let at = usize::from(self.asked_count).min(CANDIDATES - 1);
        self.asked[at] = sequence;
        self.asked_count = (at + 1) as u8;
    }
}

/// What the handshake of a session occupies, beside the session.
pub(crate) const HANDSHAKE: usize = {
    // One or the other: only a session that is established may be followed by another one.
    let (own, next) = (size_of::<Handshake>(), size_of::<Again>());
    if own > next { own } else { next }
};

/// A handshake between the ports of a session that goes on: who is asked lost his end of it, or the packets that closed it were not seen. A SYN alone proves nothing: an end that
/// still has the session asks back (RFC 5961, section 4), so that the other end answers and the first one confirms before the old session is given up.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    /// Who opens it, as a direction of the old session.
    pub(crate) opener: Direction,
    syn: Tcp,
    /// The SYN/ACK.
    answer: Option<Tcp>,
    /// Times of both.
    times: [u64; 2],
    /// Where both directions of the old session were at the SYN: one that goes on is not over.
    at: [(i64, i64); 2],
    /// Number of the SYN's packet, and time of the one before it.
    pub(crate) number: u64,
    pub(crate) before: u64,
    /// Packets and bytes of it that the old session was counted, by direction of that.
    pub(crate) packets: [u64; 2],
    pub(crate) bytes: [u64; 2],
}

impl Again {
    /// Time of its SYN.
    pub(crate) fn time(&self) -> u64 {
        self.times[0]
    }
}

/// A session.
#[derive(Debug)]
pub struct Session {
    state: State,
    sides: [Side; 2],
    /// Flags seen of each direction.
    flags: [u8; 2],
    handshake: Option<Box<Handshake>>,
    /// The acknowledgement of the SYN/ACK that counts, and its sequence: what repetitions are compared with.
    answer: Option<(u32, u32)>,
    /// Both ends send timestamps.
    stamps: bool,
    reset: bool,
    /// The server refused the SYN. Its client may ask again with the same one.
    refused: bool,
    midstream: bool,
    /// The direction that closed first.
    first_fin: Option<Direction>,
    /// A handshake that may be another session's.
    again: Option<Box<Again>>,
}

impl Reassembler {
    /// A new session between a client and a server, by the policies that their addresses have.
    pub fn open(&self, client: std::net::IpAddr, server: std::net::IpAddr) -> Session {
        let side = |receiver, bytes| Side::new(self.policy(receiver), depth(bytes));
        let depths = self.config().depth;
        Session {
            state: State::None,
            sides: [side(server, depths[0]), side(client, depths[1])],
            flags: [0; 2],
            handshake: None,
            answer: None,
            stamps: false,
            reset: false,
            refused: false,
            midstream: false,
            first_fin: None,
            again: None,
        }
    }

    /// Begins a session with the SYN and the SYN/ACK that came while another one was there.
    pub(crate) fn resume(&mut self, session: &mut Session, again: &Again, sink: &mut impl Sink) {
        self.with(session, sink, |session, tools, sink| {
            let both = [Some(&again.syn), again.answer.as_ref()];
            let ways = [Direction::ToServer, Direction::ToClient];
            for ((tcp, direction), time) in both.into_iter().zip(ways).zip(again.times) {
                let Some(tcp) = tcp else { continue };
                session.flags[direction.index()] |= tcp.flags;
                // Their data is with the old session, as refused.
                let segment = Segment {
                    tcp,
                    payload: &[],
                    direction,
                    time,
                    midstream: false,
                    one_sided: false,
                };
                session.take(&segment, tools, sink);
            }
        });
    }

    /// Takes a segment that belongs to the session. What it releases goes to the sink: first the other direction's bytes that it acknowledges, then its own if they may.
    pub fn segment(
        &mut self,
        session: &mut Session,
        packet: &Packet<'_>,
        tcp: &Tcp,
        direction: Direction,
        sink: &mut impl Sink,
    ) -> Events {
        let (midstream, one_sided) = (self.config().midstream, self.config().one_sided);
        self.with(session, sink, |session, tools, sink| {
            let payload = packet.payload();
            tools.ledger.segments += 1;
            tools.ledger.payload += payload.len() as u64;
            if packet.bad_checksum {
                tools.ledger.bad_checksum += payload.len() as u64;
                return;
            }
            session.flags[direction.index()] |= tcp.flags;
            let segment = Segment {
                tcp,
                payload,
                direction,
                time: packet.time,
                midstream,
                one_sided,
            };
            session.take(&segment, tools, sink);
        })
    }
}

struct Segment<'a> {
    tcp: &'a Tcp,
    payload: &'a [u8],
    direction: Direction,
    time: u64,
    midstream: bool,
    one_sided: bool,
}

impl Segment<'_> {
    fn has(&self, flags: u8) -> bool {
        self.tcp.flags & flags == flags
    }

    fn stamp(&self) -> Option<u32> {
        self.tcp.timestamps.map(|(value, _)| value)
    }
}

/// How the ledger counts a segment's payload that is not reassembled.
fn refuse(segment: &Segment<'_>, tools: &mut Tools<'_>, event: Option<Event>) {
    tools.ledger.out_of_window += segment.payload.len() as u64;
    if let Some(event) = event {
        tools.events.insert(event);
    }
}

/// How far a stream is followed; 0: all of it.
fn depth(bytes: u64) -> i64 {
    match bytes {
        0 => i64::MAX,
        _ => i64::try_from(bytes).unwrap_or(i64::MAX),
    }
}

impl Session {
    /// Follows its streams so far, or farther if they are already; 0: all of them.
    pub(crate) fn follow(&mut self, bytes: u64) {
        for side in &mut self.sides {
            side.depth = side.depth.max(depth(bytes));
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Flags seen of each direction, by `Direction::index`.
    pub fn flags(&self) -> [u8; 2] {
        self.flags
    }

    /// Whether a RST ended it.
    pub fn is_reset(&self) -> bool {
        self.reset
    }

    /// Whether its beginning was not seen.
    pub fn is_midstream(&self) -> bool {
        self.midstream
    }

    /// Where a segment's payload begins in the stream of its direction; `None` if it is no part of what is handed on.
    pub fn offset(&self, tcp: &Tcp, direction: Direction) -> Option<u64> {
        let side = &self.sides[direction.index()];
        let sequence = tcp
            .sequence
            .wrapping_add(u32::from(tcp.flags & flag::SYN != 0));
        let at = side.offset(sequence);
        // What comes after the end is handed on by nobody.
        let late =
            self.reset && at >= side.base || side.ended && side.fin.is_some_and(|fin| at >= fin);
        (side.known && !late && (0..side.depth).contains(&at)).then_some(at as u64)
    }

    /// Sequence numbers that a direction's sender used until now, holes, SYN and FIN included (`stream_size`).
    pub fn seen(&self, direction: Direction) -> u64 {
        let side = &self.sides[direction.index()];
        side.next.max(0) as u64 + u64::from(side.known) + u64::from(side.fin.is_some())
    }

    /// Bytes of a direction that were handed on or declared lost.
    pub fn handed_on(&self, direction: Direction) -> u64 {
        self.sides[direction.index()].base as u64
    }

    /// Bytes held.
    pub fn held(&self) -> u64 {
        self.sides[0].held() + self.sides[1].held()
    }

    /// What held segments occupy, in bytes.
    pub fn memory(&self) -> usize {
        self.sides[0].memory() + self.sides[1].memory()
    }

    /// Whether a SYN begins another session with the same ports.
    pub fn is_reused_by(&self, tcp: &Tcp) -> bool {
        tcp.flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN
            && self.state.is_over()
            && !(self.refused && self.has_asked(tcp.sequence))
    }

    /// Remembers a SYN, or the answer to one that was remembered, which may begin another session with the same ports. `before`: the time of the packet before it.
    #[cold]
    pub(crate) fn ask_again(
        &mut self,
        packet: &Packet<'_>,
        tcp: &Tcp,
        direction: Direction,
        before: u64,
    ) {
        if packet.bad_checksum || tcp.flags & (flag::RST | flag::FIN) != 0 {
            return;
        }
        if tcp.flags & flag::ACK == 0 {
            let side = &self.sides[direction.index()];
            let new = !side.known || side.zero != tcp.sequence.wrapping_add(1);
            if !new || !self.state.is_established() || self.state.is_over() {
                return;
            }
            let known = |a: &Again| (a.opener, a.syn.sequence) == (direction, tcp.sequence);
            if !self.again.as_deref().is_some_and(known) {
                self.again = Some(Box::new(Again {
                    opener: direction,
                    syn: tcp.clone(),
                    answer: None,
                    times: [packet.time; 2],
                    at: self.progress(),
                    number: packet.number,
                    before,
                    packets: [0; 2],
                    bytes: [0; 2],
                }));
            }
        }
        let Some(again) = &mut self.again else { return };
        if tcp.flags & flag::ACK != 0 {
            if direction == again.opener
                || tcp.acknowledgement != again.syn.sequence.wrapping_add(1)
            {
                return;
            }
            again.answer = Some(tcp.clone());
            again.times[1] = packet.time;
        }
        again.packets[direction.index()] += 1;
        again.bytes[direction.index()] += packet.data.len() as u64;
    }

    /// Whether a segment completes a handshake of another session with the same ports, which this one is then given up for.
    #[inline]
    pub(crate) fn is_followed_by(&self, tcp: &Tcp, direction: Direction) -> bool {
        self.again.is_some() && self.confirms(tcp, direction)
    }

    #[cold]
    fn confirms(&self, tcp: &Tcp, direction: Direction) -> bool {
        let Some(again) = &self.again else {
            return false;
        };
        tcp.flags & (flag::SYN | flag::RST | flag::ACK) == flag::ACK
            && direction == again.opener
            && tcp.sequence == again.syn.sequence.wrapping_add(1)
            && (again.answer.as_ref())
                .is_some_and(|answer| tcp.acknowledgement == answer.sequence.wrapping_add(1))
            && self.progress() == again.at
    }

    /// The handshake that [`Session::is_followed_by`] was about.
    pub(crate) fn take_again(&mut self) -> Option<Box<Again>> {
        self.again.take()
    }

    /// What was sent and acknowledged of each direction.
    fn progress(&self) -> [(i64, i64); 2] {
        [0, 1].map(|d| (self.sides[d].next, self.sides[d].acked))
    }

    fn has_asked(&self, sequence: u32) -> bool {
        (self.handshake.as_ref()).is_some_and(|h| h.asked().contains(&sequence))
    }

    /// Hands on what is held and ends both directions.
    pub(super) fn flush<S: Sink>(&mut self, end: End, tools: &mut Tools<'_>, sink: &mut S) {
        if self.state == State::SynSent || self.refused {
            // Data of a SYN that nobody answered: no application read it.
            self.sides[0].refuse(tools);
        }
        for direction in [Direction::ToServer, Direction::ToClient] {
            let side = &mut self.sides[direction.index()];
            side.deliver(true, direction, tools, sink);
            if !side.ended {
                side.ended = true;
                sink.end(direction, end);
            }
        }
        (self.handshake, self.again) = (None, None);
    }

    pub(super) fn relieve<S: Sink>(&mut self, tools: &mut Tools<'_>, sink: &mut S) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.sides[direction.index()].relieve(direction, tools, sink);
        }
    }

    fn take<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        if segment.has(flag::SYN | flag::FIN) {
            tools.events.insert(Event::FinSyn);
        }
        if !segment.has(flag::ACK) && segment.tcp.acknowledgement != 0 && !segment.has(flag::RST) {
            tools.events.insert(Event::BrokenAck);
        }
        match self.state {
            State::None => self.begin(segment, tools, sink),
            State::SynSent => self.syn_sent(segment, tools, sink),
            State::SynReceived => self.syn_received(segment, tools, sink),
            _ if self.refused && segment.has(flag::SYN) && !segment.has(flag::RST) => {
                if segment.has(flag::ACK) {
                    // Who had refused would not answer.
                    tools.events.insert(Event::SuspectedRstInjection);
                }
                (self.reset, self.refused) = (false, false);
                self.state = State::SynSent;
                self.syn_sent(segment, tools, sink);
            }
            _ if self.reset => tools.ledger.closed += segment.payload.len() as u64,
            _ => self.established(segment, tools, sink),
        }
    }

    fn begin<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
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
    fn learn(&mut self, segment: &Segment<'_>) {
        let sender = &mut self.sides[segment.direction.index()];
        if !sender.known {
            sender.known = true;
            sender.zero = segment.tcp.sequence;
        }
        let receiver = &mut self.sides[segment.direction.reversed().index()];
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

    fn syn_sent<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        let tcp = segment.tcp;
        let to_server = segment.direction == Direction::ToServer;
        if segment.has(flag::RST) {
            let asked = self.handshake.as_ref().map_or(&[][..], |h| h.asked());
            let fits = if to_server {
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
        } else if (segment.one_sided || segment.midstream) && to_server && segment.has(flag::ACK) {
            // The server's half is not seen, or its SYN/ACK was lost.
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

    fn syn_received<S: Sink>(
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
            let fits = if to_server {
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
            refuse(segment, tools, None);
            return;
        }
        if !segment.has(flag::ACK) {
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

    /// Whether the sender's timestamp is older than the last one in order: the receiver drops such a segment (RFC 7323, section 5.3). One tick is let by, as systems do.
    fn is_stale(&self, segment: &Segment<'_>) -> bool {
        let (Some(value), Some((last, time))) =
            (segment.stamp(), self.sides[segment.direction.index()].stamp)
        else {
            return false;
        };
        self.stamps
            && (value.wrapping_sub(last) as i32) < -1
            && segment.time.saturating_sub(time) < STAMP_AGE
    }

    fn established<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        let (tcp, direction) = (segment.tcp, segment.direction);
        let (own, other) = (direction.index(), direction.reversed().index());
        if segment.has(flag::SYN) {
            self.late_syn(segment, tools);
            return;
        }
        self.learn(segment);
        if segment.has(flag::RST) {
            // In the window is not enough: its receiver asks back (RFC 5961, section 3), and goes on. What it expects lies between what it has acknowledged and what was sent.
            let side = &self.sides[own];
            let at = side.offset(tcp.sequence);
            let sent = side.fin.map_or(side.next, |fin| side.next.max(fin + 1));
            let fits = at >= side.acked.min(sent) && at <= sent;
            self.reset_if(fits, segment, tools, sink);
            return;
        }
        if !segment.has(flag::ACK) {
            refuse(segment, tools, None);
            return;
        }
        if segment.one_sided && self.flags[other] == 0 {
            // Nobody acknowledges.
            tools.inline = true;
        }
        if self.is_stale(segment) {
            refuse(segment, tools, Some(Event::InvalidTimestamp));
            return;
        }
        // The acknowledgement, of the other direction's bytes.
        let receiver = &mut self.sides[other];
        let acknowledged = receiver.offset(tcp.acknowledgement);
        // After its FIN nothing is sent.
        let limit = match (receiver.fin, receiver.window_end) {
            (Some(fin), _) => receiver.next.max(fin) + 1,
            (None, Some(end)) => end.max(receiver.next) + 1,
            (None, None) => i64::MAX,
        };
        // An acknowledgement of bytes that were refused as out of the window: both ends know of them, the sensor lost what was before.
        let found = receiver
            .stray
            .as_ref()
            .is_some_and(|stray| stray.contains(&acknowledged) || stray.end == acknowledged);
        if found {
            receiver.stray = None;
        } else if acknowledged > limit || acknowledged < receiver.acked - (1 << 30) {
            let event = if segment.has(flag::FIN) {
                Event::FinInvalidAck
            } else {
                self.invalid_ack()
            };
            let over = self.state == State::Closed;
            if !over {
                tools.events.insert(Event::InvalidAck);
            }
            refuse(segment, tools, (!over).then_some(event));
            return;
        }
        let advanced = acknowledged > receiver.acked;
        receiver.acked = receiver.acked.max(acknowledged);
        let scale = self.sides[own].scale;
        let receiver = &mut self.sides[other];
        if acknowledged >= receiver.acked {
            let end = acknowledged + (i64::from(tcp.window) << scale);
            receiver.window_end = Some(receiver.window_end.map_or(end, |old| old.max(end)));
        }
        if advanced {
            receiver.deliver(false, direction.reversed(), tools, sink);
        }
        self.data(segment, tools, sink);
        self.advance();
        if let Some(value) = segment.stamp() {
            let side = &mut self.sides[own];
            let start = side.offset(tcp.sequence);
            if start <= side.acked
                && side
                    .stamp
                    .is_none_or(|(last, _)| value.wrapping_sub(last) as i32 >= 0)
            {
                side.stamp = Some((value, segment.time));
            }
        }
    }

    /// The payload and the FIN of a segment that is otherwise in order.
    fn data<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        let direction = segment.direction;
        let state = self.state;
        let side = &mut self.sides[direction.index()];
        let mut payload = segment.payload;
        let start = side.offset(segment.tcp.sequence);
        let end = start + payload.len() as i64;
        let fin = segment.has(flag::FIN);
        let room = side.window_end.map_or(i64::MAX, |w| w.max(side.acked));
        if payload.is_empty() && !fin {
            if start > room && state != State::Closed {
                tools.events.insert(out_of_window(state, false));
            } else if start + 1 < side.acked {
                tools.events.extend(before_last_ack(state));
            }
            return;
        }
        if start > room {
            side.stray = Some(
                side.stray
                    .take()
                    .filter(|s| s.contains(&start) || s.end == start)
                    .map_or(start, |s| s.start)..end,
            );
        }
        // Sent again though its receiver has it, however long ago.
        let spurious = !payload.is_empty() && end <= side.acked;
        if start < -1 || start > room {
            let event = if spurious && !fin {
                Event::SpuriousRetransmission
            } else {
                out_of_window(state, fin)
            };
            tools.ledger.out_of_window += payload.len() as u64;
            tools.events.insert(event);
            return;
        }
        if !payload.is_empty() {
            if let Some(fin) = side.fin
                && side.ended
                && end > fin
            {
                let late = (end - start.max(fin)) as usize;
                tools.ledger.closed += late as u64;
                payload = &payload[..payload.len() - late];
            }
            // A probe is one byte at the edge of a closed window; a keep-alive repeats the last byte.
            let probe = start == room && payload.len() == 1;
            let keep_alive = payload.len() <= 1 && start + 1 == side.next && start < side.acked;
            if !probe && end > room {
                let beyond = (end - start.max(room)).min(payload.len() as i64) as usize;
                tools.ledger.out_of_window += beyond as u64;
                tools.events.insert(out_of_window(state, fin));
                payload = &payload[..payload.len() - beyond];
            }
            let (before, sent) = (side.base, side.next);
            let known = if segment.has(flag::URG) && tools.urgent != Urgent::Inline {
                urgent(side, start, payload, segment, tools, sink)
            } else {
                let kind = if probe { Kind::Weak } else { Kind::Data };
                side.insert(start, payload, kind, direction, tools, sink)
            };
            if !keep_alive && !payload.is_empty() {
                if spurious {
                    tools.events.insert(Event::SpuriousRetransmission);
                    if end < side.acked {
                        tools.events.extend(before_last_ack(state));
                    }
                } else if end <= before {
                    tools.events.insert(Event::BeforeBase);
                } else if known && end <= sent {
                    tools.events.insert(Event::Retransmission);
                }
            }
        }
        if fin {
            if end > room || side.fin.is_none() && end < side.base {
                tools.events.insert(out_of_window(state, true));
            } else if side.fin.is_none() {
                side.fin = Some(end);
                if self.first_fin.is_none() {
                    self.first_fin = Some(direction);
                }
            }
        }
        self.sides[direction.index()].deliver(false, direction, tools, sink);
    }

    /// The state after the FINs and acknowledgements seen.
    fn advance(&mut self) {
        let fin = |side: &Side| side.fin.map(|at| side.acked > at);
        let [client, server] = [fin(&self.sides[0]), fin(&self.sides[1])];
        self.state = match (client, server) {
            (None, None) => State::Established,
            (Some(_), None) => State::CloseWait,
            (None, Some(false)) => State::FinWait1,
            (None, Some(true)) => State::FinWait2,
            // Its last acknowledgement was seen.
            (Some(true), Some(true)) => State::Closed,
            (Some(_), Some(_)) if self.first_fin == Some(Direction::ToServer) => State::LastAck,
            (Some(_), Some(true)) => State::TimeWait,
            (Some(_), Some(false)) => State::Closing,
        };
    }

    fn invalid_ack(&self) -> Event {
        match self.state {
            State::CloseWait => Event::CloseWaitInvalidAck,
            State::FinWait1 => Event::FinWait1InvalidAck,
            State::FinWait2 => Event::FinWait2InvalidAck,
            State::Closing => Event::ClosingInvalidAck,
            State::LastAck => Event::LastAckInvalidAck,
            State::TimeWait | State::Closed => Event::TimeWaitInvalidAck,
            State::None | State::SynSent | State::SynReceived | State::Established => {
                Event::EstablishedInvalidAck
            }
        }
    }

    /// SYN and SYN/ACK of a session that has begun.
    fn late_syn(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>) {
        let tcp = segment.tcp;
        let to_server = segment.direction == Direction::ToServer;
        let event = if segment.has(flag::ACK) {
            let client = &self.sides[0];
            match self.answer {
                // Sent before the end, or because the ACK was lost: nothing odd.
                Some(answer)
                    if !to_server
                        && (self.state == State::Closed
                            || answer == (tcp.sequence, tcp.acknowledgement)
                                && client.acked <= client.offset(tcp.acknowledgement)) =>
                {
                    refuse(segment, tools, None);
                    return;
                }
                _ if to_server => Event::EstablishedSynAckToServer,
                Some((sequence, _)) if sequence != tcp.sequence => {
                    Event::EstablishedSynAckDifferentSequence
                }
                Some((_, acknowledgement)) if acknowledgement != tcp.acknowledgement => {
                    Event::EstablishedSynAckDifferentAck
                }
                _ => Event::EstablishedSynAckResend,
            }
        } else if self.state != State::Established {
            Event::ShutdownSynResend
        } else if !to_server {
            Event::EstablishedSynToClient
        } else if self.sides[0].zero == tcp.sequence.wrapping_add(1) {
            Event::EstablishedSynResend
        } else {
            Event::EstablishedSynDifferentSequence
        };
        refuse(segment, tools, Some(event));
    }

    fn reset_if<S: Sink>(
        &mut self,
        fits: bool,
        segment: &Segment<'_>,
        tools: &mut Tools<'_>,
        sink: &mut S,
    ) {
        // A RST may say why in its payload (RFC 9293, section 3.5.3): it is no part of the stream.
        tools.ledger.closed += segment.payload.len() as u64;
        if !fits {
            return;
        }
        if !segment.payload.is_empty() {
            tools.events.insert(Event::RstWithData);
        }
        tools.ledger.resets += 1;
        self.flush(End::Reset, tools, sink);
        self.reset = true;
        self.state = State::Closed;
    }
}

/// Takes a segment with urgent data: the byte before that where the pointer is, which is how systems read RFC 793 (RFC 6093, section 3.1).
#[cold]
fn urgent<S: Sink>(
    side: &mut Side,
    start: i64,
    payload: &[u8],
    segment: &Segment<'_>,
    tools: &mut Tools<'_>,
    sink: &mut S,
) -> bool {
    let direction = segment.direction;
    let pointer = usize::from(segment.tcp.urgent);
    let part = match tools.urgent {
        Urgent::Drop => 0..payload.len(),
        _ if (1..=payload.len()).contains(&pointer) => pointer - 1..pointer,
        _ => 0..0,
    };
    let mut known = true;
    let mut put = |range: std::ops::Range<usize>, kind: Kind| {
        if let Some(bytes @ [_, ..]) = payload.get(range.clone()) {
            let at = start + range.start as i64;
            known &= side.insert(at, bytes, kind, direction, tools, sink);
        }
    };
    put(0..part.start, Kind::Data);
    put(part.clone(), Kind::Urgent);
    put(part.end..payload.len(), Kind::Data);
    known
}

/// What is before the last acknowledgement, and does not reach it.
fn before_last_ack(state: State) -> Events {
    let mut events = Events::default();
    match state {
        State::Established => events.insert(Event::EstablishedBeforeLastAck),
        State::CloseWait => events.insert(Event::CloseWaitBeforeLastAck),
        _ => {}
    }
    events
}

fn out_of_window(state: State, fin: bool) -> Event {
    match (state, fin) {
        (State::CloseWait, false) => Event::CloseWaitOutOfWindow,
        (State::CloseWait, true) => Event::CloseWaitFinOutOfWindow,
        (State::FinWait1, false) => Event::FinWait1OutOfWindow,
        (State::FinWait1, true) => Event::FinWait1FinOutOfWindow,
        (State::FinWait2, false) => Event::FinWait2OutOfWindow,
        (State::FinWait2, true) => Event::FinWait2FinOutOfWindow,
        (State::Closing, _) => Event::ClosingOutOfWindow,
        (State::LastAck, _) => Event::LastAckOutOfWindow,
        (State::TimeWait | State::Closed, _) => Event::TimeWaitOutOfWindow,
        (_, true) => Event::FinOutOfWindow,
        (_, false) => Event::EstablishedOutOfWindow,
    }
}
