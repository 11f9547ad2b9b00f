//! A TCP session: its states and its end, which segments the receiver takes, and the acknowledgements that release bytes. How it begins is `handshake`'s, and how another one takes
//! its ports `again`'s.
//!
//! Packets that no receiver takes (window, acknowledgement, timestamp, RFC 9293 and RFC 7323) change nothing; they are events.

mod again;
mod handshake;

pub(crate) use again::Again;
use handshake::Handshake;

use super::side::{Kind, Side, Tools, first};
use super::{End, Reassembler, Sink, Urgent};
use crate::event::{Event, Events};
use crate::packet::{Direction, Packet, Signature, Tcp, flag};

/// A timestamp is not compared with one so long ago (RFC 7323, section 5.5), in nanoseconds: 24 days.
const STAMP_AGE: u64 = 24 * 86_400 * 1_000_000_000;

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

/// What the handshake of a session occupies, beside the session.
pub(crate) const HANDSHAKE: usize = {
    // One or the other: only a session that is established may be followed by another one.
    let (own, next) = (size_of::<Handshake>(), size_of::<Again>());
    if own > next { own } else { next }
};

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
    /// What the segments of each direction were signed by when the session began; of one whose beginning was not seen, by its first one.
    signatures: [Option<Signature>; 2],
    reset: bool,
    /// Who sent the RST that ended it.
    reset_by: Option<Direction>,
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
            signatures: [None; 2],
            reset: false,
            reset_by: None,
            refused: false,
            midstream: false,
            first_fin: None,
            again: None,
        }
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
            *direction.of_mut(&mut session.flags) |= tcp.flags;
            let segment = Segment {
                tcp,
                payload,
                direction,
                time: packet.time,
                midstream,
                one_sided,
                doubtful: session.is_doubtful(tcp, direction),
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
    /// Its receiver may drop it, as it is signed by something else than the session is.
    doubtful: bool,
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
        let side = direction.of(&self.sides);
        let syn = tcp.flags & flag::SYN != 0;
        if syn && direction == Direction::ToServer && !self.state.is_established() {
            // It is part of the stream if the server takes it. Without the option no server is expected to: rules are asked of the packet.
            return (tcp.fast_open && self.holds_data_of(tcp.sequence)).then_some(0);
        }
        let sequence = tcp.sequence.wrapping_add(u32::from(syn));
        let at = side.offset(sequence);
        // What comes after the end is handed on by nobody.
        let late =
            self.reset && at >= side.base || side.ended && side.fin.is_some_and(|fin| at >= fin);
        (side.known && !late && (0..side.depth).contains(&at)).then_some(at as u64)
    }

    /// Sequence numbers that a direction's sender used until now, holes, SYN and FIN included (`stream_size`).
    pub fn seen(&self, direction: Direction) -> u64 {
        let side = direction.of(&self.sides);
        side.next.max(0) as u64 + u64::from(side.known) + u64::from(side.fin.is_some())
    }

    /// Bytes of a direction that were handed on or declared lost.
    pub fn handed_on(&self, direction: Direction) -> u64 {
        direction.of(&self.sides).base as u64
    }

    /// Stretches that held bytes of a direction lay in at once, at most, with 256 KiB or more missing between them.
    pub fn most_regions(&self, direction: Direction) -> u64 {
        direction.of(&self.sides).most_regions()
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

    /// Whether a segment is signed by something else than those before it: most systems drop it (RFC 2385, section 2.0), some do not know of signatures. A SYN decides what
    /// its direction is signed by.
    fn is_doubtful(&mut self, tcp: &Tcp, direction: Direction) -> bool {
        let known = direction.of_mut(&mut self.signatures);
        if tcp.flags & flag::SYN != 0 && !self.state.is_established() {
            *known = Some(tcp.signature);
            return false;
        }
        if tcp.flags & flag::RST != 0 && known.is_none() {
            // Who only ever sent a RST is judged by what the other end does.
            let other = *direction.reversed().of(&self.signatures);
            return other.is_some_and(|s| s != tcp.signature);
        }
        *known.get_or_insert(tcp.signature) != tcp.signature
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
            let side = direction.of_mut(&mut self.sides);
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
            direction
                .of_mut(&mut self.sides)
                .relieve(direction, tools, sink);
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
            _ if self.reset => {
                tools.ledger.closed += segment.payload.len() as u64;
                if self.reset_by == Some(segment.direction) && !segment.has(flag::RST) {
                    // Who gave up would not go on: somebody else sent that RST.
                    tools.events.insert(Event::SuspectedRstInjection);
                    self.reset_by = None;
                }
            }
            _ => self.established(segment, tools, sink),
        }
    }

    /// Whether the sender's timestamp is older than the last one in order: the receiver drops such a segment (RFC 7323, section 5.3). One tick is let by, as systems do.
    fn is_stale(&self, segment: &Segment<'_>) -> bool {
        let (Some(value), Some((last, time))) =
            (segment.stamp(), segment.direction.of(&self.sides).stamp)
        else {
            return false;
        };
        self.stamps
            && (value.wrapping_sub(last) as i32) < -1
            && segment.time.saturating_sub(time) < STAMP_AGE
    }

    fn established<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        let (tcp, direction) = (segment.tcp, segment.direction);
        let (own, other) = (direction, direction.reversed());
        if segment.has(flag::SYN) {
            self.late_syn(segment, tools);
            return;
        }
        if segment.doubtful {
            self.doubted(segment, tools, sink);
            return;
        }
        self.learn(segment);
        if segment.has(flag::RST) {
            // Systems send resets without a clock: such a one is told of, but taken (RFC 7323, section 5.2).
            if self.is_stale(segment) {
                tools.events.insert(Event::InvalidTimestamp);
            }
            // In the window is not enough: its receiver asks back (RFC 5961, section 3), and goes on. What it expects lies between what it has acknowledged and what was sent.
            let side = own.of(&self.sides);
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
        let alone = segment.one_sided && *other.of(&self.flags) == 0;
        if alone {
            // Nobody acknowledges.
            tools.inline = true;
        }
        if self.is_stale(segment) {
            refuse(segment, tools, Some(Event::InvalidTimestamp));
            return;
        }
        // The acknowledgement, of the other direction's bytes.
        let receiver = other.of_mut(&mut self.sides);
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
        let scale = own.of(&self.sides).scale;
        let receiver = other.of_mut(&mut self.sides);
        if acknowledged >= receiver.acked {
            let end = acknowledged + (i64::from(tcp.window) << scale);
            receiver.window_end = Some(receiver.window_end.map_or(end, |old| old.max(end)));
        }
        if advanced {
            receiver.deliver(false, direction.reversed(), tools, sink);
        }
        self.data(segment, tools, sink);
        // Whether the end that is not seen closes its direction nobody knows.
        if !alone {
            self.advance();
        }
        if let Some(value) = segment.stamp() {
            let side = own.of_mut(&mut self.sides);
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

    /// A segment that its receiver may drop: it neither ends the session nor acknowledges anything, and its bytes count where the receiver acknowledges them before anything else
    /// came in their place.
    #[cold]
    fn doubted<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        let direction = segment.direction;
        let side = direction.of_mut(&mut self.sides);
        let start = side.offset(segment.tcp.sequence);
        let end = start + segment.payload.len() as i64;
        let room = side.window_end.map_or(i64::MAX, |w| w.max(side.acked));
        let taken = segment.has(flag::ACK)
            && !segment.has(flag::RST)
            && side.known
            && !side.ended
            && start >= side.base
            && end <= room;
        if !taken {
            let event = segment
                .has(flag::RST)
                .then_some(Event::SuspectedRstInjection);
            refuse(segment, tools, event);
        } else if !segment.payload.is_empty() {
            side.insert(start, segment.payload, Kind::Weak, direction, tools, sink);
        }
    }

    /// The payload and the FIN of a segment that is otherwise in order.
    fn data<S: Sink>(&mut self, segment: &Segment<'_>, tools: &mut Tools<'_>, sink: &mut S) {
        let direction = segment.direction;
        let state = self.state;
        let side = direction.of_mut(&mut self.sides);
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
                payload = first(payload, payload.len().saturating_sub(late));
            }
            // A probe is one byte at the edge of a closed window; a keep-alive repeats the last byte.
            let probe = start == room && payload.len() == 1;
            let keep_alive = payload.len() <= 1 && start + 1 == side.next && start < side.acked;
            if !probe && end > room {
                let beyond = (end - start.max(room)).min(payload.len() as i64) as usize;
                tools.ledger.out_of_window += beyond as u64;
                tools.events.insert(out_of_window(state, fin));
                payload = first(payload, payload.len().saturating_sub(beyond));
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
        direction
            .of_mut(&mut self.sides)
            .deliver(false, direction, tools, sink);
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
        (self.reset, self.reset_by) = (true, Some(segment.direction));
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
