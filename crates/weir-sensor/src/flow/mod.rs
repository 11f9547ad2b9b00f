//! Flows: which packets belong together, in which direction each goes, when a flow is over; and its TCP session.
//!
//! [`Tracker`] is the one entry: it finds or makes the flow of a packet, lets the reassembler work on its segments, and ends flows by timeout, by order of age at the caps, and
//! at the end of the capture. The capture's clock is the only one. What later stages keep of a flow is its `extra`.

mod key;
mod table;

use std::collections::BTreeSet;
use std::net::IpAddr;

pub use table::FlowRef;

use crate::decode::mix;
use crate::event::Events;
use crate::packet::{Direction, Packet, Transport, flag};
use crate::stream::{self, End, Reassembler, Session};
use table::Table;

/// What a TCP session occupies, with what its handshake needs.
const SESSION: usize = size_of::<Session>() + stream::HANDSHAKE;
/// A second of the capture's clock.
const SECOND: u64 = 1_000_000_000;

/// How far a flow has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// One side was heard.
    #[default]
    New,
    /// Both sides were heard; of TCP, the handshake is done.
    Established,
    /// A TCP session that is over.
    Closed,
}

impl State {
    /// As event logs name it.
    pub fn name(self) -> &'static str {
        match self {
            State::New => "new",
            State::Established => "established",
            State::Closed => "closed",
        }
    }
}

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing was heard of it for as long as its state allows.
    Timeout,
    /// It was the oldest when there was no room for another.
    Forced,
    /// The capture ended.
    Shutdown,
    /// Another session began between the same ports.
    Reuse,
}

impl Reason {
    /// As event logs name it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Timeout => "timeout",
            Reason::Forced => "forced",
            Reason::Shutdown => "shutdown",
            Reason::Reuse => "tcp_reuse",
        }
    }
}

/// What is known of a flow without its streams.
#[derive(Clone, Debug)]
pub struct Info {
    /// The same for the same packets in every run; 53 bits, so that JSON readers keep it whole.
    pub id: u64,
    /// Who opened it.
    pub client: IpAddr,
    /// The other end.
    pub server: IpAddr,
    /// 0 if the protocol has no ports.
    pub client_port: u16,
    /// 0 if the protocol has no ports.
    pub server_port: u16,
    /// IANA number.
    pub protocol: u8,
    /// Kind and code of the first packet, if ICMP.
    pub icmp: Option<(u8, u8)>,
    /// Kind and code of the first answer.
    pub answer: Option<(u8, u8)>,
    /// Security parameters index of the first packet, if ESP.
    pub spi: Option<u32>,
    /// Which of several interfaces its first packet was seen on.
    pub interface: u8,
    /// VLAN identifiers; `vlans` of them count.
    pub vlan: [u16; 3],
    /// How many.
    pub vlans: u8,
    /// How many tunnels deep.
    pub depth: u8,
    /// Time of its first packet.
    pub start: u64,
    /// Time of its last packet.
    pub last: u64,
    /// Number of its first packet.
    pub number: u64,
    /// Packets of each direction, by `Direction::index`.
    pub packets: [u64; 2],
    /// Their bytes, link headers included.
    pub bytes: [u64; 2],
    /// Least and greatest TTL or hop limit of each direction.
    pub ttl: [(u8, u8); 2],
    /// Whether it is a TCP session whose beginning was not seen.
    pub midstream: bool,
    /// How far it has come.
    pub state: State,
    /// Events of its streams until now.
    pub events: Events,
    /// Directions that ended while its stream was not followed.
    ended: [bool; 2],
}

impl Info {
    fn new() -> Info {
        Info {
            id: 0,
            client: IpAddr::from([0; 4]),
            server: IpAddr::from([0; 4]),
            client_port: 0,
            server_port: 0,
            protocol: 0,
            icmp: None,
            answer: None,
            spi: None,
            interface: 0,
            vlan: [0; 3],
            vlans: 0,
            depth: 0,
            start: 0,
            last: 0,
            number: 0,
            packets: [0; 2],
            bytes: [0; 2],
            ttl: [(u8::MAX, 0); 2],
            midstream: false,
            state: State::New,
            events: Events::default(),
            ended: [false; 2],
        }
    }
}

impl Info {
    /// A packet of a session that is not followed came. Whether the session is over by it, for the first time: it was reset, or both ends have closed it.
    fn ends_by(&mut self, flags: u8, direction: Direction) -> bool {
        self.ended[direction.index()] |= flags & flag::FIN != 0;
        let is_over = self.ended == [true; 2] || flags & flag::RST != 0;
        is_over && std::mem::replace(&mut self.state, State::Closed) != State::Closed
    }
}

/// A flow.
#[derive(Debug)]
pub struct Flow<X> {
    /// Who, when, how much.
    pub info: Info,
    /// Its TCP session.
    pub tcp: Option<Session>,
    /// What later stages keep of it.
    pub extra: X,
}

/// Who takes what flows say. `flow` is as it was when the packet came, counted in already.
pub trait Sink<X> {
    /// The next bytes of a stream.
    fn data(&mut self, flow: &Info, extra: &mut X, direction: Direction, bytes: &[u8]);

    /// So many bytes of a stream were lost.
    fn gap(&mut self, flow: &Info, extra: &mut X, direction: Direction, length: u64);

    /// A stream has ended in one direction; called once for each of a TCP session.
    fn end(&mut self, flow: &Info, extra: &mut X, direction: Direction, end: End);

    /// The flow is over; all it held was handed on before. Its counters are final.
    fn finished(&mut self, flow: &mut Flow<X>, reason: Reason);

    /// When a packet of a flow was kept away last, nanoseconds since 1970, if its packets are.
    fn kept_away(&self, _extra: &X) -> Option<u64> {
        None
    }

    /// Packets that are kept away come again: what was is added to the flow.
    fn come_again(&mut self, _flow: &mut Info, _extra: &mut X) {}

    /// Whether a packet goes on from its flow to its stream; else it is only counted.
    fn enters(&mut self, _packet: &Packet<'_>, _flow: &mut Flow<X>, _direction: Direction) -> bool {
        true
    }

    /// Whether the flow is let go: its packets pass, and nothing more of it is looked at.
    fn is_let_go(&self, _extra: &X) -> bool {
        false
    }

    /// Whether nothing more of the flow is looked at: its packets are counted, and its streams are not followed.
    fn is_left(&self, _extra: &X) -> bool {
        false
    }
}

/// Whether a stream whose beginning was not seen goes on with what only servers say: a status line of HTTP, or a frame of DNP3 that no master sent (its second flag).
fn is_of_server(payload: &[u8]) -> bool {
    payload.starts_with(b"HTTP/1.")
        || matches!(payload, [0x05, 0x64, _, control, ..] if control & 0x80 == 0)
}

/// The stream's view of a flow's sink.
struct Bound<'a, X, S> {
    info: &'a Info,
    extra: &'a mut X,
    sink: &'a mut S,
}

impl<X, S: Sink<X>> stream::Sink for Bound<'_, X, S> {
    fn data(&mut self, direction: Direction, bytes: &[u8]) {
        self.sink.data(self.info, self.extra, direction, bytes);
    }

    fn gap(&mut self, direction: Direction, length: u64) {
        self.sink.gap(self.info, self.extra, direction, length);
    }

    fn end(&mut self, direction: Direction, end: End) {
        self.sink.end(self.info, self.extra, direction, end);
    }
}

/// Seconds without a packet after which a flow is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One side heard.
    pub new: u32,
    /// Both.
    pub established: u32,
    /// Closed.
    pub closed: u32,
}

/// How flows are tracked.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Timeouts of TCP.
    pub tcp: Timeouts,
    /// Of UDP.
    pub udp: Timeouts,
    /// Of ICMP.
    pub icmp: Timeouts,
    /// Of all others.
    pub other: Timeouts,
    /// Flows at most.
    pub flows: usize,
    /// Bytes that flows may occupy, `extra` (its own size, not what it points to) included; held segments have a cap of their own.
    pub memory: usize,
    /// Bytes that TCP sessions may occupy; they are part of `memory` as well.
    pub session_memory: usize,
    /// Whether flows of different VLANs are different.
    pub vlans: bool,
    /// Part of flows' identifiers and of the table's hash. The same seed gives the same identifiers; nothing else depends on it.
    pub seed: u64,
}

impl Default for FlowConfig {
    fn default() -> Self {
        FlowConfig {
            tcp: Timeouts {
                new: 60,
                established: 600,
                closed: 60,
            },
            udp: Timeouts {
                new: 30,
                established: 300,
                closed: 0,
            },
            icmp: Timeouts {
                new: 30,
                established: 300,
                closed: 0,
            },
            other: Timeouts {
                new: 30,
                established: 300,
                closed: 0,
            },
            flows: 1 << 20,
            memory: 512 << 20,
            session_memory: usize::MAX,
            vlans: true,
            seed: 0,
        }
    }
}

/// What became of flows: `made == active + timeout + forced + shutdown + reuse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flows begun.
    pub made: u64,
    /// Those of TCP.
    pub tcp: u64,
    /// Of UDP.
    pub udp: u64,
    /// Of ICMP and ICMPv6.
    pub icmp: u64,
    /// Of ICMPv6.
    pub icmp6: u64,
    /// Flows now.
    pub active: u64,
    /// The most there were.
    pub peak: u64,
    /// Ended by timeout.
    pub timeout: u64,
    /// Ended at a cap.
    pub forced: u64,
    /// Of those, the ones that ended because there was no room for another TCP session.
    pub sessions_over_cap: u64,
    /// Ended with the capture.
    pub shutdown: u64,
    /// Ended by another session between the same ports.
    pub reuse: u64,
    /// Packets of flows.
    pub packets: u64,
    /// Packets that belong to no flow: fragments, no or a broken header, ICMP errors about a flow that is not known.
    pub no_flow: u64,
    /// Times that a session's segments were given up because it was the oldest and there was no room.
    pub relieved: u64,
}

/// What the tracker says of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Tracked {
    /// Its flow; good until the next call of the tracker.
    pub flow: FlowRef,
    /// The packet's direction.
    pub direction: Direction,
    /// Whether the flow begins with it.
    pub is_new: bool,
    /// Whether the flow was established when it came, or is by it (`flow:established`).
    pub established: bool,
    /// And it is by it.
    pub completes: bool,
    /// Stream events of this packet.
    pub events: Events,
}

/// Tracks the flows of a slice.
#[derive(Debug)]
pub struct Tracker<X> {
    config: FlowConfig,
    table: Table<X>,
    streams: Reassembler,
    counts: Counts,
    /// The capture's clock: the latest time seen.
    now: u64,
    /// The second in which flows were swept last.
    swept: u64,
    /// Flows of which packets are kept away.
    kept_away: BTreeSet<FlowRef>,
}

impl<X: Default> Tracker<X> {
    /// One of a slice.
    pub fn new(config: FlowConfig, streams: stream::StreamConfig) -> Tracker<X> {
        Tracker {
            table: Table::new(config.seed),
            config,
            streams: Reassembler::new(streams),
            counts: Counts::default(),
            now: 0,
            swept: 0,
            kept_away: BTreeSet::new(),
        }
    }

    /// From here on it may have so many flows, bytes of flows and of sessions, and bytes of segments.
    pub(crate) fn limit(&mut self, [flows, memory, sessions]: [usize; 3], held: usize) {
        self.config.flows = flows;
        self.config.memory = memory;
        self.config.session_memory = sessions;
        self.streams.limit(held);
    }

    /// What became of flows.
    pub fn counts(&self) -> Counts {
        Counts {
            active: self.table.len() as u64,
            ..self.counts
        }
    }

    /// The reassembler, for its ledger and events.
    pub fn streams(&self) -> &Reassembler {
        &self.streams
    }

    /// Bytes that flows occupy, without held segments.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// The most that they did.
    pub fn peak(&self) -> usize {
        self.counts.peak as usize * Table::<X>::FLOW
    }

    /// Bytes of that which are TCP sessions'.
    pub fn session_memory(&self) -> usize {
        self.table.sessions() * SESSION
    }

    /// A flow that the last call named.
    pub fn flow(&self, at: FlowRef) -> &Flow<X> {
        self.table.flow(at)
    }

    /// A flow that the last call named.
    pub fn flow_mut(&mut self, at: FlowRef) -> &mut Flow<X> {
        self.table.flow_mut(at)
    }

    /// Flows that had packets in the last seconds.
    pub(crate) fn recent(&self, seconds: u64) -> Vec<FlowRef> {
        self.table.recent(self.now.saturating_sub(seconds * SECOND))
    }

    /// From here on packets of a flow are kept away: the sink knows when the last of them came.
    pub(crate) fn keeps_away(&mut self, at: FlowRef) {
        self.kept_away.insert(at);
    }

    /// Finds or makes the flow of a packet, and lets its stream take it. `None`: the packet belongs to no flow.
    pub fn packet(&mut self, packet: &Packet<'_>, sink: &mut impl Sink<X>) -> Option<Tracked> {
        self.advance(packet.time, sink);
        let found = self.find(packet, sink);
        let Some((at, direction, is_new)) = found else {
            self.counts.no_flow += 1;
            return None;
        };
        self.counts.packets += 1;
        let time = packet.time;
        let flow = self.table.flow_mut(at);
        let info = &mut flow.info;
        let last = info.last;
        info.last = last.max(time);
        info.packets[direction.index()] += 1;
        info.bytes[direction.index()] += packet.data.len() as u64;
        if let Some(ip) = &packet.ip {
            let (least, most) = &mut info.ttl[direction.index()];
            (*least, *most) = ((*least).min(ip.ttl), (*most).max(ip.ttl));
        }
        let before = info.state;
        let mut events = Events::default();
        let enters = sink.enters(packet, flow, direction);
        let info = &mut flow.info;
        match (packet.tcp(), &mut flow.tcp) {
            _ if !enters => {}
            (Some(tcp), Some(_)) if sink.is_let_go(&flow.extra) => {
                if packet.quoted.is_none() && flow.info.ends_by(tcp.flags, direction) {
                    // What comes now is an answer, or begins another session.
                    self.kept_away.remove(&at);
                    sink.come_again(&mut flow.info, &mut flow.extra);
                }
            }
            _ if sink.is_left(&flow.extra) => {}
            (Some(tcp), Some(_)) if packet.quoted.is_none() => {
                if self.streams.is_short_of(packet.payload().len()) {
                    self.relieve(at, packet.payload().len(), sink);
                }
                let flow = self.table.flow_mut(at);
                let Flow {
                    info,
                    tcp: Some(session),
                    extra,
                } = flow
                else {
                    return None;
                };
                if tcp.flags & flag::SYN != 0 {
                    session.ask_again(packet, tcp, direction, last);
                }
                events = self.streams.segment(
                    session,
                    packet,
                    tcp,
                    direction,
                    &mut Bound { info, extra, sink },
                );
                info.events.extend(events);
                let state = session.state();
                if state.is_over() {
                    info.state = State::Closed;
                } else if state.is_established() {
                    info.state = State::Established;
                }
                if before == State::New {
                    info.midstream = session.is_midstream();
                }
                let holds = session.memory() > 0;
                self.table.set_holding(at, holds);
            }
            _ => {
                if packet.quoted.is_none() && info.packets[0] > 0 && info.packets[1] > 0 {
                    info.state = State::Established;
                    if let (Transport::Icmp { kind, code, .. }, None, Direction::ToClient) =
                        (&packet.transport, info.answer, direction)
                    {
                        info.answer = Some((*kind, *code));
                    }
                }
            }
        }
        let state = self.table.flow(at).info.state;
        let timeout = self.timeout(at);
        self.table.touch(at, self.now, timeout);
        Some(Tracked {
            flow: at,
            direction,
            is_new,
            established: before != State::New || state != State::New,
            completes: before == State::New && state != State::New,
            events,
        })
    }

    /// Moves the clock and ends the flows whose time is over.
    pub fn advance(&mut self, time: u64, sink: &mut impl Sink<X>) {
        self.now = self.now.max(time);
        let second = self.now / SECOND;
        if second != self.swept {
            self.swept = second;
            self.hear_of_kept_away(sink);
            while let Some(at) = self.table.expired(self.now) {
                self.end(at, Reason::Timeout, sink);
            }
        }
    }

    /// Packets that are kept away are a flow's all the same: it is not quiet.
    fn hear_of_kept_away(&mut self, sink: &impl Sink<X>) {
        for at in self.kept_away.iter().copied() {
            let flow = self.table.flow_mut(at);
            let last = sink.kept_away(&flow.extra).unwrap_or(0).min(self.now);
            if last > flow.info.last {
                flow.info.last = last;
                let timeout = timeout(&self.config, &flow.info);
                self.table.touch(at, last, timeout);
            }
        }
    }

    /// Ends the flow that has been quiet for longest, for memory that only the caller knows of; whether there was one.
    pub fn evict(&mut self, sink: &mut impl Sink<X>) -> bool {
        let oldest = self.table.oldest();
        if let Some(at) = oldest {
            self.end(at, Reason::Forced, sink);
        }
        oldest.is_some()
    }

    /// Ends all flows, the oldest first.
    pub fn shutdown(&mut self, sink: &mut impl Sink<X>) {
        while let Some(at) = self.table.oldest() {
            self.end(at, Reason::Shutdown, sink);
        }
    }

    fn find(
        &mut self,
        packet: &Packet<'_>,
        sink: &mut impl Sink<X>,
    ) -> Option<(FlowRef, Direction, bool)> {
        let ip = packet.ip.as_ref()?;
        if ip.fragment {
            return None;
        }
        if let Some(quoted) = &packet.quoted {
            // An error belongs to the flow that it is about, and makes none.
            let (key, swapped) = key::of_quoted(packet, quoted, self.config.vlans);
            let (at, client_swapped) = self.table.find(&key)?;
            if self.is_over(at, packet.time) {
                self.end(at, Reason::Timeout, sink);
                return None;
            }
            return Some((at, direction(swapped, client_swapped), false));
        }
        let (key, swapped) = key::of(packet, self.config.vlans)?;
        let mut again = None;
        let reason = match self.table.find(&key) {
            None => None,
            Some((at, client_swapped)) => {
                let way = direction(swapped, client_swapped);
                let (reuses, follows) = match (packet.tcp(), &self.table.flow(at).tcp) {
                    (Some(tcp), Some(session)) => {
                        (session.is_reused_by(tcp), session.is_followed_by(tcp, way))
                    }
                    _ => (false, false),
                };
                let reason = if self.is_over(at, packet.time) {
                    Reason::Timeout
                } else if follows && !packet.bad_checksum {
                    again = self.part(at);
                    Reason::Reuse
                } else if reuses || self.begins_again(at, packet, sink) {
                    Reason::Reuse
                } else {
                    return Some((at, way, false));
                };
                Some((at, reason))
            }
        };
        if let Some((at, reason)) = reason {
            self.end(at, reason, sink);
        }
        while self.table.len() >= self.config.flows.max(1)
            || self.table.memory() + Table::<X>::FLOW > self.config.memory.max(2 * Table::<X>::FLOW)
        {
            let oldest = self.table.oldest()?;
            self.end(oldest, Reason::Forced, sink);
        }
        if packet.tcp().is_some() {
            while self.session_memory() + SESSION > self.config.session_memory
                && let Some(oldest) = self.table.oldest_session()
            {
                self.end(oldest, Reason::Forced, sink);
                self.counts.sessions_over_cap += 1;
            }
        }
        let (source_port, destination_port) = packet.ports();
        // The client is who sends first, unless that is the answer to a SYN, or from a name server to a question that was not seen, or the beginning was not seen and it is the server by its port or by what it says.
        let answers = match packet.tcp() {
            // Who confirms a handshake opened it.
            _ if again.is_some() => false,
            Some(tcp) if tcp.flags & flag::SYN != 0 => tcp.flags & flag::ACK != 0,
            Some(_) => {
                self.streams.config().midstream
                    && (source_port < 1024 && destination_port >= 1024
                        || is_of_server(packet.payload()))
            }
            None => {
                let payload = packet.payload();
                ip.protocol == 17
                    && source_port == 53
                    && payload.len() >= 12
                    && payload[2] & 0x80 != 0
            }
        };
        let client_swapped = swapped != answers;
        let mut info = Info {
            protocol: ip.protocol,
            interface: packet.interface,
            vlan: packet.vlan,
            vlans: packet.vlans,
            depth: packet.depth,
            ..Info::new()
        };
        (info.client, info.server) = (ip.source, ip.destination);
        (info.client_port, info.server_port) = (source_port, destination_port);
        if answers {
            (info.client, info.server) = (ip.destination, ip.source);
            (info.client_port, info.server_port) = (destination_port, source_port);
        }
        if let Transport::Icmp { kind, code, .. } = packet.transport {
            info.icmp = Some((kind, code));
        }
        if ip.protocol == 50 {
            let header = packet.data.get(ip.header.end..);
            let spi = header.and_then(|h| h.first_chunk());
            info.spi = spi.map(|b| u32::from_be_bytes(*b));
        }
        (info.start, info.number) = (packet.time, packet.number);
        if let Some(again) = &again {
            (info.start, info.number) = (again.time(), again.number);
            let opener = again.opener.index();
            (info.packets, info.bytes) = (again.packets, again.bytes);
            info.packets.rotate_left(opener);
            info.bytes.rotate_left(opener);
        }
        info.last = packet.time;
        info.id = mix(mix(key.hash(self.config.seed), info.start), info.number) >> 11;
        let tcp = packet
            .tcp()
            .map(|_| self.streams.open(info.client, info.server));
        self.counts.made += 1;
        match ip.protocol {
            6 => self.counts.tcp += 1,
            17 => self.counts.udp += 1,
            1 => self.counts.icmp += 1,
            58 => {
                self.counts.icmp += 1;
                self.counts.icmp6 += 1;
            }
            _ => {}
        }
        let at = self.table.insert(
            key,
            client_swapped,
            Flow {
                info,
                tcp,
                extra: X::default(),
            },
        );
        self.counts.peak = self.counts.peak.max(self.table.len() as u64);
        if let Some(again) = again
            && let Flow {
                info,
                tcp: Some(session),
                extra,
            } = self.table.flow_mut(at)
        {
            let bound = &mut Bound { info, extra, sink };
            self.streams.resume(session, &again, bound);
        }
        Some((at, direction(swapped, client_swapped), true))
    }

    /// Takes the handshake of another session between its ports out of a flow.
    #[cold]
    fn part(&mut self, at: FlowRef) -> Option<Box<stream::Again>> {
        let Flow { info, tcp, .. } = self.table.flow_mut(at);
        let again = tcp.as_mut()?.take_again()?;
        for d in 0..2 {
            info.packets[d] -= again.packets[d];
            info.bytes[d] -= again.bytes[d];
        }
        info.last = again.before;
        Some(again)
    }

    /// Whether a packet begins a session between the ports of one that was let go and is over.
    fn begins_again(&self, at: FlowRef, packet: &Packet<'_>, sink: &impl Sink<X>) -> bool {
        let flow = self.table.flow(at);
        let opens = |tcp: &crate::packet::Tcp| tcp.flags & (flag::SYN | flag::ACK) == flag::SYN;
        flow.info.state == State::Closed
            && packet.tcp().is_some_and(opens)
            && sink.is_let_go(&flow.extra)
    }

    fn timeout(&self, at: FlowRef) -> u64 {
        timeout(&self.config, &self.table.flow(at).info)
    }

    /// Whether a flow's time was over when a packet came: the same answer whatever other packets moved the clock. A packet from long before is of another capture.
    fn is_over(&self, at: FlowRef, time: u64) -> bool {
        time.abs_diff(self.table.flow(at).info.last) > self.timeout(at)
    }

    fn end(&mut self, at: FlowRef, reason: Reason, sink: &mut impl Sink<X>) {
        self.kept_away.remove(&at);
        let mut flow = self.table.remove(at);
        let Flow { info, tcp, extra } = &mut *flow;
        if let Some(session) = tcp {
            let events = self
                .streams
                .flush(session, &mut Bound { info, extra, sink });
            info.events.extend(events);
        }
        match reason {
            Reason::Timeout => self.counts.timeout += 1,
            Reason::Forced => self.counts.forced += 1,
            Reason::Shutdown => self.counts.shutdown += 1,
            Reason::Reuse => self.counts.reuse += 1,
        }
        sink.finished(&mut flow, reason);
    }

    /// Makes room for a segment: sessions that hold segments give them up, the one that began to hold first is first.
    fn relieve(&mut self, for_flow: FlowRef, bytes: usize, sink: &mut impl Sink<X>) {
        while self.streams.is_short_of(bytes) {
            let Some(at) = self.table.oldest_holder() else {
                return;
            };
            let flow = self.table.flow_mut(at);
            if let Flow {
                info,
                tcp: Some(session),
                extra,
            } = flow
            {
                let events = self
                    .streams
                    .relieve(session, &mut Bound { info, extra, sink });
                info.events.extend(events);
            }
            self.table.set_holding(at, false);
            self.counts.relieved += 1;
            if at == for_flow
                && self.streams.is_short_of(bytes)
                && self.table.oldest_holder().is_none()
            {
                return;
            }
        }
    }
}

/// Nanoseconds that a flow lives without a packet.
fn timeout(config: &FlowConfig, info: &Info) -> u64 {
    let timeouts = match info.protocol {
        6 => config.tcp,
        17 => config.udp,
        1 | 58 => config.icmp,
        _ => config.other,
    };
    let seconds = match info.state {
        State::New => timeouts.new,
        State::Established => timeouts.established,
        State::Closed => timeouts.closed,
    };
    u64::from(seconds) * SECOND
}

fn direction(swapped: bool, client_swapped: bool) -> Direction {
    if swapped == client_swapped {
        Direction::ToServer
    } else {
        Direction::ToClient
    }
}
