//! The conversations of a play: both ends' numbers as if every packet of theirs arrived, and the frames of each event.

use std::net::Ipv4Addr;

use weir_packet::build::Frame;

use super::super::script::{Side, pattern};

const SYN: u8 = Frame::SYN;
const ACK: u8 = Frame::ACK;
const FIN: u8 = Frame::FIN;
const RST: u8 = Frame::RST;
const PSH: u8 = Frame::PSH;
const TTL: u8 = 64;
/// The shared public address.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// A protocol that has conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP echo.
    Echo,
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Its protocol.
    pub kind: Kind,
    /// Who opens it, of three hosts inside.
    pub client: u8,
    /// Who answers, of two hosts outside.
    pub server: u8,
    /// The client's port, of two: clients meet in NAT.
    pub port: u8,
    /// Packets with data before it closes.
    pub data: u8,
    /// Whether windows are scaled.
    pub scaled: bool,
    /// Who closes first; how: 0 and 1 FIN, 2 RST.
    pub close: u8,
}

/// How far a number is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Not at all.
    Exact,
    /// By a few.
    Near(i8),
    /// By half a window.
    Window(bool),
    /// By a quarter of all numbers, ahead or behind.
    Far(bool),
}

impl Shift {
    fn value(self) -> u32 {
        match self {
            Shift::Exact => 0,
            Shift::Near(n) => i32::from(n) as u32,
            Shift::Window(true) => 20_000,
            Shift::Window(false) => 0u32.wrapping_sub(20_000),
            Shift::Far(true) => 0x4000_0000,
            Shift::Far(false) => 0xc000_0000,
        }
    }
}

/// What happens to a conversation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Its next packet.
    Next,
    /// Its next packet, lost before the box.
    Lost,
    /// One of its last packets once more.
    Again(u8),
    /// A segment in the name of one side.
    Forged {
        /// In whose name.
        opener: bool,
        /// Its flags.
        flags: u8,
        /// How far the sequence number is off.
        seq: Shift,
        /// How far the acknowledgement is off.
        ack: Shift,
        /// Bytes of data.
        len: u8,
        /// Whether its checksum is wrong.
        bad: bool,
    },
    /// An ICMP error about a packet of one side.
    Error {
        /// Whose packet is quoted.
        opener: bool,
        /// Type and code.
        what: (u8, u8),
        /// How far the quoted sequence number is off.
        seq: Shift,
    },
    /// A datagram in three fragments.
    Pieces {
        /// Whose.
        opener: bool,
        /// Their order, of six.
        order: u8,
        /// Whether the second one begins eight bytes too early, with other bytes.
        overlap: bool,
    },
    /// A datagram or SYN of the responder's host from another port.
    Stray,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Which conversation.
    pub talk: u8,
    /// What.
    pub op: Op,
}

/// Conversations and events.
#[derive(Clone, Debug)]
pub struct Play {
    /// At least one.
    pub talks: Vec<Talk>,
    /// In order.
    pub events: Vec<Event>,
}

/// What the other side sees of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

impl View {
    /// The source of a frame.
    pub(super) fn of(frame: &[u8]) -> Option<View> {
        let port = match frame.get(23)? {
            // Identifier.
            1 => frame.get(38..40)?,
            _ => frame.get(34..36)?,
        };
        Some(View {
            address: Ipv4Addr::new(
                *frame.get(26)?,
                *frame.get(27)?,
                *frame.get(28)?,
                *frame.get(29)?,
            ),
            port: u16::from_be_bytes([port[0], port[1]]),
        })
    }
}

/// What became of a packet on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    /// It arrived as it must.
    Right,
    /// Something else arrived.
    Wrong(String),
}

impl Seen {
    pub(super) fn same(&self, other: &Seen) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    pub(super) fn word(&self) -> &str {
        match self {
            Seen::Nothing => "dropped",
            Seen::Right => "passed",
            Seen::Wrong(what) => what,
        }
    }
}

/// What identifies a conversation in tables: protocol, client, port, server, port.
pub(super) type Key = (u8, Ipv4Addr, u16, Ipv4Addr, u16);

/// A packet to be sent, without what devices choose.
#[derive(Clone, Debug)]
pub(super) struct Shot {
    pub(super) talk: usize,
    pub(super) op: Op,
    pub(super) packet: Packet,
    /// For coverage.
    pub(super) kind: &'static str,
    pub(super) text: String,
    /// Of an ICMP error about TCP: whether the quoted number was not sent through the box, or was acknowledged already.
    pub(super) not_under_way: bool,
    /// Whether somebody got numbers of his own through before.
    pub(super) after_forgery: bool,
    /// Whether SYN and the answer to it have both passed the box.
    pub(super) answered: bool,
    /// Whether the conversation began anew before it was closed.
    pub(super) unclosed: bool,
    /// Whether it is a packet of the conversation before, or one of those passed.
    pub(super) previous: bool,
    /// Whether the conversation was reset or both its sides have closed.
    pub(super) over: bool,
    /// Whether its handshake is through.
    pub(super) open: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Packet {
    Tcp(Segment),
    Udp {
        opener: bool,
        n: u32,
    },
    Echo {
        opener: bool,
        n: u16,
    },
    Error {
        about: Segment,
        quoted: Kind,
        what: (u8, u8),
    },
    Pieces {
        opener: bool,
        order: u8,
        overlap: bool,
        n: u16,
    },
    Stray(Kind),
}

#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) opener: bool,
    pub(super) flags: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) len: u16,
    pub(super) bad: bool,
}

impl Shot {
    pub(super) fn is_from_opener(&self) -> bool {
        match &self.packet {
            Packet::Tcp(s) => s.opener,
            Packet::Udp { opener, .. }
            | Packet::Echo { opener, .. }
            | Packet::Pieces { opener, .. } => *opener,
            // An error comes from the other side of what it quotes.
            Packet::Error { about, .. } => !about.opener,
            Packet::Stray(_) => false,
        }
    }

    pub(super) fn side(&self) -> Side {
        if self.is_from_opener() {
            Side::Inside
        } else {
            Side::Outside
        }
    }

    pub(super) fn is_error(&self) -> bool {
        matches!(self.packet, Packet::Error { .. })
    }

    pub(super) fn quotes_tcp(&self) -> bool {
        matches!(
            self.packet,
            Packet::Error {
                quoted: Kind::Tcp,
                ..
            }
        )
    }

    pub(super) fn is_pieces(&self) -> bool {
        matches!(self.packet, Packet::Pieces { .. })
    }

    /// Fragments that give no datagram.
    pub(super) fn is_incomplete(&self) -> bool {
        matches!(self.packet, Packet::Pieces { overlap: true, .. })
    }

    /// What it is, in few words.
    pub(super) fn signature(&self) -> String {
        let op = match &self.op {
            Op::Forged {
                opener,
                flags,
                seq,
                ack,
                len,
                bad,
            } => {
                let who = if *opener { "opener" } else { "responder" };
                format!(
                    "{who} {flags:#04x} seq {seq:?} ack {ack:?} data {} bad {bad}",
                    *len > 0
                )
            }
            Op::Again(_) => match &self.packet {
                Packet::Tcp(s) => format!("again {:#04x}", s.flags),
                _ => "again".to_owned(),
            },
            op => format!("{op:?}"),
        };
        format!("{} [{op}] open {} over {}", self.kind, self.open, self.over)
    }

    pub(super) fn has_bad_checksum(&self) -> bool {
        matches!(&self.packet, Packet::Tcp(s) if s.bad)
    }
}

/// One end of TCP.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    /// Behind what it sent.
    next: u32,
    /// What the other side has acknowledged.
    acked: u32,
}

#[derive(Clone, Debug)]
struct State {
    talk: Talk,
    phase: u32,
    round: u32,
    ends: [Numbers; 2],
    over: bool,
    /// Of each side, behind the last byte that passed the box, and the last acknowledgement of it that did.
    passed: [Option<(u32, Option<u32>)>; 2],
    /// Whether forged numbers passed on all devices.
    forged: bool,
    /// Whether a segment of the conversation before passed in this one.
    revived: bool,
    /// Whether it was picked up in the middle.
    picked_up: bool,
    /// Whether SYN and the answer to it passed since the conversation began.
    answered: [bool; 2],
    /// Whether it began anew before it was closed.
    unclosed: bool,
    /// Packets that were sent, with the round they belong to.
    history: Vec<(u32, Packet)>,
    count: u32,
}

/// The conversations of a play.
pub(super) struct Model {
    play: u32,
    translated: bool,
    states: Vec<State>,
}

impl Model {
    pub(super) fn new(play: &Play, number: u32, translated: bool) -> Model {
        let mut states: Vec<State> = play
            .talks
            .iter()
            .map(|talk| State {
                talk: talk.clone(),
                phase: 0,
                round: 0,
                ends: [Numbers::default(); 2],
                over: false,
                passed: [None; 2],
                forged: false,
                revived: false,
                picked_up: false,
                answered: [false; 2],
                unclosed: false,
                history: Vec::new(),
                count: 0,
            })
            .collect();
        for (n, state) in states.iter_mut().enumerate() {
            state.begin(n as u32);
        }
        Model {
            play: number,
            translated,
            states,
        }
    }

    pub(super) fn talks(&self) -> usize {
        self.states.len()
    }

    /// Conversations with the same tuple, before or behind the translation: what happens to one may concern the other.
    pub(super) fn entangled(&self, talk: usize) -> Vec<usize> {
        let of = |n: usize| {
            let t = &self.states[n].talk;
            (t.kind, t.server, t.port)
        };
        (0..self.talks()).filter(|n| of(*n) == of(talk)).collect()
    }

    /// Whether two conversations of different clients have the same far end and port.
    pub(super) fn collide(&self, one: usize, other: usize) -> bool {
        let (a, b) = (self.key(one), self.key(other));
        a != b && (a.0, a.3, a.4) == (b.0, b.3, b.4)
    }

    pub(super) fn is_over(&self, talk: usize) -> bool {
        self.states[talk].over
    }

    pub(super) fn key(&self, talk: usize) -> Key {
        let t = &self.states[talk].talk;
        let (protocol, port) = match t.kind {
            Kind::Tcp => (6, 80),
            Kind::Udp => (17, 53),
            Kind::Echo => (1, 8),
        };
        (
            protocol,
            address(self.play, 1, t.client),
            5000 + u16::from(t.port),
            address(self.play, 2, t.server),
            port,
        )
    }

    /// The address that the other side sees.
    pub(super) fn public(&self, talk: usize) -> Ipv4Addr {
        match self.translated {
            true => PUBLIC,
            false => self.key(talk).1,
        }
    }

    /// Where answers go as long as nothing of the conversation was seen.
    pub(super) fn guess(&self, talk: usize) -> View {
        View {
            address: self.public(talk),
            port: self.key(talk).2,
        }
    }

    /// The packets of an event.
    pub(super) fn shots(&mut self, event: &Event) -> Vec<Shot> {
        let talk = usize::from(event.talk) % self.states.len();
        // Several talks with one tuple are one.
        let key = self.key(talk);
        let talk = (0..talk).find(|n| self.key(*n) == key).unwrap_or(talk);
        let state = &mut self.states[talk];
        let Some((kind, packet)) = state.packet(talk as u32, &event.op) else {
            return Vec::new();
        };
        // nf_conntrack forgets a closed connection, or takes numbers, for a SYN of the responder.
        if let Op::Forged {
            opener: false,
            flags,
            ..
        } = event.op
        {
            state.revived |= flags & SYN != 0;
        }
        let previous = match event.op {
            Op::Again(back) => state
                .again(back)
                .is_some_and(|(round, _)| *round < state.round),
            _ => false,
        };
        let not_under_way = match &packet {
            Packet::Error {
                about,
                quoted: Kind::Tcp,
                ..
            } => {
                let shifted = matches!(event.op, Op::Error { seq, .. } if seq != Shift::Exact);
                let after = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
                let passed = state.passed[usize::from(!about.opener)];
                shifted
                    || passed.is_none_or(|(end, acked)| {
                        after(about.seq, end) || acked.is_some_and(|acked| after(acked, about.seq))
                    })
            }
            _ => false,
        };
        let text = format!(
            "talk {talk} {:?} {}: {kind} {packet:?}",
            state.talk.kind, state.talk.client
        );
        vec![Shot {
            talk,
            op: event.op.clone(),
            packet,
            kind,
            text,
            not_under_way,
            after_forgery: state.forged,
            answered: state.answered == [true; 2] && !state.picked_up,
            unclosed: state.unclosed,
            previous: previous || state.revived,
            over: state.over,
            open: state.phase > 2 || state.round > 0,
        }]
    }

    /// A packet passed on all devices.
    pub(super) fn passed(&mut self, shot: &Shot) {
        let Packet::Tcp(segment) = &shot.packet else {
            return;
        };
        let state = &mut self.states[shot.talk];
        state.revived |= shot.previous;
        if let Op::Forged { seq, ack, len, .. } = shot.op {
            let exact = seq == Shift::Exact && ack == Shift::Exact;
            state.forged |= !exact || len > 0 || segment.flags & (SYN | FIN | RST) != 0;
        }
        let (own, other) = (usize::from(!segment.opener), usize::from(segment.opener));
        let more = u32::from(segment.flags & SYN != 0) + u32::from(segment.flags & FIN != 0);
        state.picked_up |=
            segment.flags & SYN == 0 && segment.opener && state.answered == [false; 2];
        // A SYN in an open connection, repeated or not.
        state.unclosed |= segment.flags & SYN != 0 && segment.opener && state.answered == [true; 2];
        if matches!(shot.op, Op::Next) {
            // A reset counts with the next number only.
            let next = state.passed[own].is_some_and(|(end, _)| end == segment.seq);
            state.over |= segment.flags & RST != 0 && next || shot.kind == "last ACK";
        }
        if segment.flags & SYN != 0 && matches!(shot.op, Op::Next) {
            state.answered[own] = true;
        }
        let end = (segment.seq).wrapping_add(u32::from(segment.len) + more);
        let later = |old: u32, new: u32| {
            if (new.wrapping_sub(old) as i32) > 0 {
                new
            } else {
                old
            }
        };
        state.passed[own] = match state.passed[own] {
            // A new handshake begins anew.
            Some((old, acked)) if segment.flags & SYN == 0 => Some((later(old, end), acked)),
            _ => Some((end, None)),
        };
        if segment.flags & ACK != 0
            && let Some((_, acked)) = &mut state.passed[other]
        {
            *acked = Some(acked.map_or(segment.ack, |old| later(old, segment.ack)));
        }
    }

    /// What the states of a conversation may differ for.
    pub(super) fn class(&self, talk: usize) -> Option<&'static str> {
        let state = &self.states[talk];
        if state.talk.kind != Kind::Tcp {
            None
        } else if state.forged {
            Some("after-forgery")
        } else if state.revived {
            Some("reopened")
        } else if state.answered != [true; 2] || state.picked_up {
            Some(if state.round > 0 {
                "reopened"
            } else {
                "unanswered"
            })
        } else if state.unclosed {
            Some("reuse-unclosed")
        } else {
            None
        }
    }

    /// Whether answers need to know what the device chose.
    pub(super) fn needs_view(&self, shot: &Shot) -> bool {
        self.translated && !shot.is_from_opener()
    }

    /// The frames as they enter the box.
    pub(super) fn frames(&self, shot: &Shot, view: View) -> Vec<Vec<u8>> {
        let key = self.key(shot.talk);
        let near = View {
            address: key.1,
            port: key.2,
        };
        // The client inside is itself, outside what the device made of it.
        let client = if shot.is_from_opener() { near } else { view };
        match shot.packet {
            Packet::Pieces { order, overlap, .. } => self.pieces(shot, client, order, overlap),
            _ => vec![self.frame(shot, client, TTL)],
        }
    }

    /// The frame as it leaves the box.
    pub(super) fn arrival(&self, shot: &Shot, view: View) -> Vec<u8> {
        let key = self.key(shot.talk);
        let near = View {
            address: key.1,
            port: key.2,
        };
        let client = if shot.is_from_opener() { view } else { near };
        self.frame(shot, client, TTL - 1)
    }

    /// The text of a datagram in fragments.
    pub(super) fn text(&self, shot: &Shot) -> Vec<u8> {
        match shot.packet {
            Packet::Pieces { n, .. } => {
                let mut text = pattern(88);
                text.extend(n.to_be_bytes());
                text
            }
            _ => Vec::new(),
        }
    }

    fn frame(&self, shot: &Shot, client: View, ttl: u8) -> Vec<u8> {
        let key = self.key(shot.talk);
        let server = View {
            address: key.3,
            port: key.4,
        };
        match &shot.packet {
            Packet::Tcp(segment) => self.segment(shot.talk, segment, client, server, ttl),
            Packet::Udp { opener, n } => {
                let (from, to) = ends(*opener, client, server);
                base(from, to, ttl)
                    .udp(from.port, to.port)
                    .payload(&n.to_be_bytes())
                    .build()
            }
            Packet::Echo { opener, n } => {
                let (from, to) = ends(*opener, client, server);
                let kind = if *opener { 8 } else { 0 };
                base(from, to, ttl)
                    .icmp(kind, 0)
                    .echo(client.port, *n)
                    .payload(b"echo")
                    .build()
            }
            Packet::Error {
                about,
                quoted,
                what,
            } => {
                let quote = match quoted {
                    Kind::Tcp => self.segment(shot.talk, about, client, server, TTL - 3),
                    Kind::Udp => {
                        let (from, to) = ends(about.opener, client, server);
                        base(from, to, TTL - 3)
                            .udp(from.port, to.port)
                            .payload(b"quoted")
                            .build()
                    }
                    Kind::Echo => {
                        let (from, to) = ends(about.opener, client, server);
                        let kind = if about.opener { 8 } else { 0 };
                        base(from, to, TTL - 3)
                            .icmp(kind, 0)
                            .echo(client.port, 1)
                            .payload(b"echo")
                            .build()
                    }
                };
                // The far end of the conversation says so.
                let (quoted_from, quoted_to) = ends(about.opener, client, server);
                base(quoted_to, quoted_from, ttl)
                    .icmp(what.0, what.1)
                    .echo(0, if *what == (3, 4) { 1400 } else { 0 })
                    .payload(&quote[14..42])
                    .build()
            }
            Packet::Pieces { opener, .. } => {
                let (from, to) = ends(*opener, client, server);
                base(from, to, ttl)
                    .udp(from.port, to.port)
                    .payload(&self.text(shot))
                    .build()
            }
            Packet::Stray(kind) => {
                let frame = base(server, client, ttl);
                match kind {
                    Kind::Tcp => frame.tcp(81, client.port).flags(SYN).numbers(7, 0).build(),
                    Kind::Udp => frame.udp(54, client.port).payload(b"stray").build(),
                    Kind::Echo => frame.icmp(0, 0).echo(client.port ^ 0x4000, 1).build(),
                }
            }
        }
    }

    fn segment(
        &self,
        talk: usize,
        segment: &Segment,
        client: View,
        server: View,
        ttl: u8,
    ) -> Vec<u8> {
        let (from, to) = ends(segment.opener, client, server);
        let ack = if segment.flags & ACK == 0 {
            0
        } else {
            segment.ack
        };
        let mut frame = base(from, to, ttl)
            .tcp(from.port, to.port)
            .flags(segment.flags)
            .numbers(segment.seq, ack)
            .window(64_240)
            .payload(&pattern(segment.len.into()));
        if segment.flags & SYN != 0 && self.states[talk].talk.scaled {
            frame = frame.tcp_option(3, &[7]);
        }
        if segment.bad {
            frame = frame.wrong_checksum(3);
        }
        frame.build()
    }

    fn pieces(&self, shot: &Shot, client: View, order: u8, overlap: bool) -> Vec<Vec<u8>> {
        let whole = self.frame(shot, client, TTL);
        let (from, to) = {
            let key = self.key(shot.talk);
            ends(
                shot.is_from_opener(),
                client,
                View {
                    address: key.3,
                    port: key.4,
                },
            )
        };
        let payload = &whole[34..];
        let n = match shot.packet {
            Packet::Pieces { n, .. } => n,
            _ => 0,
        };
        let piece = |begin: usize, end: usize, poke: bool| {
            let mut bytes = payload[begin..end].to_vec();
            if poke {
                bytes[..8].fill(b'X');
            }
            base(from, to, TTL)
                .id(n)
                .fragment((begin / 8) as u16, end < payload.len())
                .protocol(17)
                .payload(&bytes)
                .build()
        };
        let second = if overlap {
            piece(24, 64, true)
        } else {
            piece(32, 64, false)
        };
        let three = [piece(0, 32, false), second, piece(64, payload.len(), false)];
        let orders = [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ];
        orders[usize::from(order) % 6]
            .map(|at| three[at].clone())
            .to_vec()
    }
}

impl State {
    /// New initial numbers.
    fn begin(&mut self, seed: u32) {
        self.round += u32::from(self.phase > 0);
        self.unclosed |= self.phase > 0 && !self.over;
        self.answered = [false; 2];
        self.phase = 0;
        self.over = false;
        for (n, end) in self.ends.iter_mut().enumerate() {
            // Far apart from one round to the next, and for some talks close to the wrap.
            let isn = 0xffff_f000u32
                .wrapping_add(seed.wrapping_mul(0x1357_9bdf))
                .wrapping_add(self.round.wrapping_mul(0x2345_6789))
                .wrapping_add(n as u32 * 0x4321_0000);
            *end = Numbers {
                next: isn,
                acked: isn,
            };
        }
    }

    fn packet(&mut self, seed: u32, op: &Op) -> Option<(&'static str, Packet)> {
        let found = match op {
            Op::Next => Some(self.next(seed)),
            Op::Lost => {
                self.next(seed);
                return None;
            }
            Op::Again(back) => {
                let (_, packet) = self.again(*back)?;
                return Some(("repeated", packet.clone()));
            }
            Op::Forged {
                opener,
                flags,
                seq,
                ack,
                len,
                bad,
            } => {
                if self.talk.kind != Kind::Tcp {
                    return None;
                }
                let (own, other) = (
                    self.ends[usize::from(!opener)],
                    self.ends[usize::from(*opener)],
                );
                let segment = Segment {
                    opener: *opener,
                    flags: *flags,
                    seq: own.next.wrapping_add(seq.value()),
                    ack: other.next.wrapping_add(ack.value()),
                    len: u16::from(*len),
                    bad: *bad,
                };
                return Some(("forged", Packet::Tcp(segment)));
            }
            Op::Error { opener, what, seq } => {
                let own = self.ends[usize::from(!opener)];
                let about = Segment {
                    opener: *opener,
                    flags: ACK,
                    seq: own.next.wrapping_add(seq.value()),
                    ack: self.ends[usize::from(*opener)].next,
                    len: 0,
                    bad: false,
                };
                return Some((
                    "error",
                    Packet::Error {
                        about,
                        quoted: self.talk.kind,
                        what: *what,
                    },
                ));
            }
            Op::Pieces {
                opener,
                order,
                overlap,
            } => {
                if self.talk.kind != Kind::Udp {
                    return None;
                }
                self.count += 1;
                let n = 100 + (seed % 32) as u16 * 1000 + self.count as u16;
                return Some((
                    "fragments",
                    Packet::Pieces {
                        opener: *opener,
                        order: *order,
                        overlap: *overlap,
                        n,
                    },
                ));
            }
            Op::Stray => return Some(("stray", Packet::Stray(self.talk.kind))),
        };
        if let Some((_, packet)) = &found {
            self.history.push((self.round, packet.clone()));
        }
        found
    }

    /// One of the last four packets.
    fn again(&self, back: u8) -> Option<&(u32, Packet)> {
        let at = self.history.len().checked_sub(1 + usize::from(back % 4))?;
        self.history.get(at)
    }

    /// The packet that both ends would send next.
    fn next(&mut self, seed: u32) -> (&'static str, Packet) {
        self.count += 1;
        let opener = self.count % 2 == 1;
        match self.talk.kind {
            Kind::Udp => (
                "datagram",
                Packet::Udp {
                    opener,
                    n: self.count,
                },
            ),
            Kind::Echo => {
                let n = self.count.div_ceil(2) as u16;
                ("echo", Packet::Echo { opener, n })
            }
            Kind::Tcp => self.next_segment(seed),
        }
    }

    fn next_segment(&mut self, seed: u32) -> (&'static str, Packet) {
        let data = u32::from(self.talk.data);
        if self.phase > 3 + data + if self.talk.close == 2 { 0 } else { 2 } {
            self.begin(seed + 1);
        }
        let first = self.talk.close != 1;
        let (kind, opener, flags, len) = match self.phase {
            0 => ("SYN", true, SYN, 0),
            1 => ("SYN", false, SYN | ACK, 0),
            2 => ("handshake", true, ACK, 0),
            n if n < 3 + data => ("data", n % 2 == 1, ACK | PSH, 100 + (n % 5) as u16 * 250),
            n if n == 3 + data && self.talk.close == 2 => ("RST", true, RST | ACK, 0),
            n if n == 3 + data => ("FIN", first, FIN | ACK, 0),
            n if n == 4 + data => ("FIN", !first, FIN | ACK, 0),
            _ => ("last ACK", first, ACK, 0),
        };
        self.phase += 1;
        let (own, other) = (usize::from(!opener), usize::from(opener));
        let segment = Segment {
            opener,
            flags,
            seq: self.ends[own].next,
            ack: self.ends[other].next,
            len,
            bad: false,
        };
        if flags & ACK != 0 {
            self.ends[other].acked = self.ends[other].next;
        }
        let more = u32::from(len) + u32::from(flags & (SYN | FIN) != 0);
        self.ends[own].next = self.ends[own].next.wrapping_add(more);
        (kind, Packet::Tcp(segment))
    }
}

fn ends(opener: bool, client: View, server: View) -> (View, View) {
    if opener {
        (client, server)
    } else {
        (server, client)
    }
}

fn base(from: View, to: View, ttl: u8) -> Frame {
    Frame::new()
        .ip4(from.address.octets(), to.address.octets())
        .ttl(ttl)
}

/// Where a frame goes, and its bytes behind the addresses.
pub(super) fn address_of(frame: &[u8]) -> String {
    frame
        .get(14..62.min(frame.len()))
        .unwrap_or(&[])
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// An address of a play: `net` 1 inside, 2 outside.
fn address(play: u32, net: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(
        10,
        net,
        (play / 16) as u8,
        ((play % 16) * 16) as u8 + host + 1,
    )
}
