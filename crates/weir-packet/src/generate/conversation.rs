//! Conversations for property tests: few hosts and ports that open connections, and packets made from earlier ones, be it as
//! they were received or as a middlebox sent them on: answers, errors that quote them, fragments, the end and the start over.
//!
//! A step says what to make; the frame is made once the packets before it are known, so that shrinking a script leaves the
//! rest of it meaningful. Time only goes forward, mostly a little, sometimes to or past a timeout.

#![expect(
    clippy::indexing_slicing,
    reason = "generated segments have the bytes that are indexed; nothing foreign is read here"
)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{Sum, checksums, finish, payload, tags, tcp_bytes, trailer, well_formed};
use crate::build::Frame;
use crate::parse::{Fragment, Protocol, Version, parse, protocol, word16};

/// One packet of a script.
#[derive(Clone, Debug)]
pub struct Step {
    /// Time since the packet before.
    pub gap_ns: u64,
    next: Next,
    dress: Dress,
}

/// A packet that went through a middlebox.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// As received.
    pub received: Vec<u8>,
    /// As sent on; `None`: it was dropped.
    pub sent: Option<Vec<u8>>,
}

/// Scripts of so many steps.
pub fn conversations(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    vec((gap(), next(), dress()), steps).prop_map(|steps| {
        let step = |(gap_ns, next, dress)| Step {
            gap_ns,
            next,
            dress,
        };
        steps.into_iter().map(step).collect()
    })
}

/// Scripts of so many steps of hosts that ask TFTP servers for files, of answers from any port, and of others.
pub fn transfers(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    let ask = (ends(), select(&[69u16, 69, 69, 53][..])).prop_map(|(mut ends, port)| {
        ends.talk = Talk::Udp(ends.talk.client_port(), port);
        Next::Open(ends, Tcp::first())
    });
    let after = |follow: Follow, misled| (0usize..12, Just(follow), Just(misled));
    let answer = (0u16..4).prop_flat_map(move |by| after(Follow::Answer { by }, false));
    let misled = after(Follow::Answer { by: 1 }, true);
    let more = any::<bool>().prop_flat_map(move |reverse| {
        let tcp = Tcp::first();
        after(Follow::More { reverse, tcp }, false)
    });
    let stranger = (1u16..5).prop_flat_map(move |by| {
        let tcp = Tcp::first();
        after(Follow::Stranger { by, tcp }, false)
    });
    let next = prop_oneof![
        30 => ask,
        40 => prop_oneof![12 => answer, 1 => misled, 8 => more, 2 => stranger]
            .prop_map(|(back, follow, misled)| Next::After { back, misled, follow }),
        1 => next(),
    ];
    let request =
        select(&[1u8, 2][..]).prop_map(|opcode| [&[0, opcode], &b"boot\0octet\0"[..]].concat());
    let dress = (dress(), request, proptest::bool::weighted(0.7));
    vec((gap(), next, dress), steps).prop_map(|steps| {
        let step = |(gap_ns, next, (dress, request, asks)): (_, _, (Dress, Vec<u8>, bool))| {
            let payload = if asks { request } else { dress.payload.clone() };
            Step {
                gap_ns,
                next,
                dress: Dress { payload, ..dress },
            }
        };
        steps.into_iter().map(step).collect()
    })
}

impl Step {
    /// The frame, after these packets.
    pub fn frame(&self, earlier: &[Exchange]) -> Vec<u8> {
        match &self.next {
            Next::Fresh(frame) => frame.clone(),
            Next::Open(ends, tcp) => self.dress.put_on(ends.packet(tcp, &self.dress)),
            Next::After {
                back,
                misled,
                follow,
            } => {
                let base = follow
                    .base(earlier, *back)
                    .map(|exchange| match &exchange.sent {
                        Some(sent) if follow.is_about_sent() != *misled => sent,
                        _ => &exchange.received,
                    });
                base.and_then(|base| follow.frame(base, &self.dress))
                    .unwrap_or_else(|| {
                        let ends = Ends::first();
                        self.dress.put_on(ends.packet(&Tcp::first(), &self.dress))
                    })
            }
        }
    }
}

/// What to make.
#[derive(Clone, Debug)]
enum Next {
    /// This, whatever was before.
    Fresh(Vec<u8>),
    /// A packet between these.
    Open(Ends, Tcp),
    /// A packet that follows from one of the last few.
    After {
        back: usize,
        /// From what it was on the other side of the middlebox, as no host would.
        misled: bool,
        follow: Follow,
    },
}

/// How a packet follows from another.
#[derive(Clone, Debug)]
enum Follow {
    /// The same bytes.
    Repeat,
    /// Another of the same side, or of the other.
    More { reverse: bool, tcp: Tcp },
    /// Nearly: one port or the identifier is another, or the host that it comes from.
    Stranger { by: u16, tcp: Tcp },
    /// What a TFTP server answers, from a port so far from that which was asked.
    Answer { by: u16 },
    /// An ICMP error that quotes it.
    Error {
        kind: u8,
        /// Bytes of the quote behind its IP header.
        len: usize,
        from: Sender,
        /// A byte of the quote that is wrong.
        wrong: Option<(Index, u8)>,
    },
    /// The first fragment of a datagram of the same side, or of the other.
    First { reverse: bool, id: u16 },
    /// A later fragment, of the same datagram unless an identification is given.
    Later { id: Option<u16>, offset: Offset },
}

/// Where a later fragment lies, in units of 8 bytes.
#[derive(Clone, Copy, Debug)]
enum Offset {
    /// So far behind the data of what it follows from.
    Behind(u16),
    /// There, whatever that overlaps.
    At(u16),
}

/// Who sends an error.
#[derive(Clone, Copy, Debug)]
enum Sender {
    /// The host that the quoted packet was for.
    Destination,
    /// Its sender, as nobody would.
    Source,
    /// A router.
    Router,
}

/// What is free in a TCP segment.
#[derive(Clone, Debug)]
struct Tcp {
    flags: u8,
    sequence: Number,
    acknowledgement: Number,
    window: u16,
    options: Vec<u8>,
}

/// A number of a TCP segment.
#[derive(Clone, Copy, Debug)]
enum Number {
    /// So far from the one that comes next.
    Next(u32),
    /// Whatever comes next.
    Any(u32),
}

/// What is around a packet.
#[derive(Clone, Debug)]
struct Dress {
    payload: Vec<u8>,
    tags: Vec<(u16, u16)>,
    trailer: Vec<u8>,
    sum: Sum,
    /// IPv4 options or an IPv6 extension header.
    extended: bool,
    ttl: u8,
    id: u16,
}

/// Who talks to whom.
#[derive(Clone, Debug)]
struct Ends {
    source: Address,
    destination: Address,
    talk: Talk,
    /// Of the packet that this was read from.
    id: u16,
    /// Numbers that come next, of the source and of the destination.
    sequence: u32,
    acknowledgement: u32,
}

#[derive(Clone, Copy, Debug)]
enum Address {
    V4([u8; 4]),
    V6([u8; 16]),
}

#[derive(Clone, Copy, Debug)]
enum Talk {
    Tcp(u16, u16),
    Udp(u16, u16),
    /// Type and identifier.
    Icmp(u8, u16),
    Sctp(u16, u16),
    /// A later fragment's, or another protocol.
    Other(u8),
}

fn gap() -> impl Strategy<Value = u64> {
    const SECOND: u64 = 1_000_000_000;
    let timeout = select(&[1u64, 2, 5, 10, 30, 60, 120, 240, 300, 14_400][..]);
    prop_oneof![
        60 => Just(1_000_000u64),
        20 => 0..SECOND,
        2 => (timeout.clone(), 0u64..2).prop_map(|(seconds, over)| seconds * SECOND + over),
        1 => timeout.prop_map(|seconds| seconds * SECOND / 2),
    ]
}

fn next() -> impl Strategy<Value = Next> {
    let after = (0usize..24, proptest::bool::weighted(0.12), follow());
    prop_oneof![
        45 => after.prop_map(|(back, misled, follow)| Next::After { back, misled, follow }),
        9 => (ends(), tcp()).prop_map(|(ends, tcp)| Next::Open(ends, tcp)),
        2 => well_formed().prop_map(Next::Fresh),
    ]
}

fn follow() -> impl Strategy<Value = Follow> {
    let kind = prop_oneof![12 => 0u8..30, 1 => any::<u8>()];
    let len = select(
        &[
            8usize, 8, 8, 9, 12, 16, 17, 18, 19, 20, 24, 40, 1000, 1000, 1000, 7, 0,
        ][..],
    );
    let from = prop_oneof![4 => Just(Sender::Destination), 3 => Just(Sender::Router), 1 => Just(Sender::Source)];
    let wrong = prop_oneof![8 => Just(None), 1 => (any::<Index>(), any::<u8>()).prop_map(Some)];
    let offset = prop_oneof![
        5 => (0u16..3).prop_map(Offset::Behind),
        1 => (1u16..5).prop_map(Offset::At),
        1 => Just(Offset::At(1000)),
    ];
    prop_oneof![
        14 => (any::<bool>(), tcp()).prop_map(|(reverse, tcp)| Follow::More { reverse, tcp }),
        48 => tcp().prop_map(|tcp| Follow::More { reverse: true, tcp }),
        18 => tcp().prop_map(|tcp| Follow::More { reverse: false, tcp }),
        1 => Just(Follow::Repeat),
        2 => (1u16..5, tcp()).prop_map(|(by, tcp)| Follow::Stranger { by, tcp }),
        2 => (0u16..4).prop_map(|by| Follow::Answer { by }),
        43 => (kind, len, from, wrong)
            .prop_map(|(kind, len, from, wrong)| Follow::Error { kind, len, from, wrong }),
        12 => (any::<bool>(), 0u16..3).prop_map(|(reverse, id)| Follow::First { reverse, id }),
        22 => (proptest::option::weighted(0.2, 0u16..3), offset)
            .prop_map(|(id, offset)| Follow::Later { id, offset }),
    ]
}

fn tcp() -> impl Strategy<Value = Tcp> {
    const RST_ACK: u8 = Frame::RST | Frame::ACK;
    const FIN_ACK: u8 = Frame::FIN | Frame::ACK;
    const PSH_ACK: u8 = Frame::PSH | Frame::ACK;
    const SYN_ACK: u8 = Frame::SYN | Frame::ACK;
    let flags = prop_oneof![
        5 => Just(Frame::SYN),
        3 => Just(SYN_ACK),
        6 => Just(Frame::ACK),
        3 => Just(PSH_ACK),
        3 => Just(FIN_ACK),
        1 => Just(Frame::RST),
        1 => Just(RST_ACK),
        1 => any::<u8>(),
    ];
    let block = vec(any::<u8>(), 8);
    let sack = (vec(block, 1..=4), 0usize..3).prop_map(|(blocks, nops)| {
        let edges = blocks.concat();
        let mut bytes = vec![1; nops];
        bytes.extend_from_slice(&[5, edges.len() as u8 + 2]);
        bytes.extend(edges);
        bytes
    });
    let options = prop_oneof![2 => Just(Vec::new()), 2 => tcp_bytes(false), 1 => sack];
    let window = select(&[0u16, 10, 512, 65_535][..]);
    (flags, number(), number(), window, options).prop_map(
        |(flags, sequence, acknowledgement, window, options)| Tcp {
            flags,
            sequence,
            acknowledgement,
            window,
            options,
        },
    )
}

/// Mostly the next one; else one at an edge of what is taken, or any.
fn number() -> impl Strategy<Value = Number> {
    const NEAR: &[u32] = &[
        1,
        u32::MAX,
        10,
        512,
        65_535,
        65_536,
        0u32.wrapping_sub(65_535),
        0u32.wrapping_sub(65_536),
        65_535 << 14,
        1 << 31,
    ];
    prop_oneof![
        28 => Just(Number::Next(0)),
        4 => select(NEAR).prop_map(Number::Next),
        1 => prop_oneof![Just(1000u32), Just(u32::MAX), any::<u32>()].prop_map(Number::Any),
    ]
}

fn dress() -> impl Strategy<Value = Dress> {
    let tags = prop_oneof![6 => Just(Vec::new()), 1 => tags(3)];
    let trailer = prop_oneof![6 => Just(Vec::new()), 1 => trailer()];
    let ttl = prop_oneof![4 => Just(64u8), 1 => 1u8..4];
    let sum = prop_oneof![9 => Just(Sum::Correct), 1 => checksums()];
    let extended = proptest::bool::weighted(0.15);
    (said(), tags, trailer, sum, extended, ttl, 0u16..3).prop_map(
        |(payload, tags, trailer, sum, extended, ttl, id)| Dress {
            payload,
            tags,
            trailer,
            sum,
            extended,
            ttl,
            id,
        },
    )
}

/// Anything, or what the ends of TFTP say and nearly say (RFC 1350).
fn said() -> impl Strategy<Value = Vec<u8>> {
    let request = (1u8..4, vec(1u8..=255, 0..8), 0u8..6);
    prop_oneof![
        6 => payload(),
        1 => request.prop_map(|(opcode, name, end)| {
            [&[0, opcode], &name[..], b"\0octet", &[end / 5]].concat()
        }),
        1 => (2u8..8, vec(any::<u8>(), 0..8)).prop_map(|(opcode, more)| [&[0, opcode], &more[..]].concat()),
    ]
}

/// Few enough that connections are met again, and that what is chosen for them is taken.
fn ends() -> impl Strategy<Value = Ends> {
    let inside = |host: u8| (Address::V4([10, 0, 0, host]), address6(host));
    let outside = |host: u8| (Address::V4([192, 0, 2, host]), address6(0x90 + host));
    let server = select(&[1u8, 1, 1, 2][..]);
    let near = proptest::bool::weighted(0.2);
    let hosts = (1u8..=4, server, any::<bool>(), near, 0u8..12);
    let ports = (
        select(&[1024u16, 1025][..]),
        select(&[80u16, 80, 80, 80, 443, 53][..]),
    );
    let talk = (0u8..24, ports);
    (hosts, talk).prop_map(
        move |((client, server, four, near, backwards), (kind, ports))| {
            let to = if near {
                inside(server)
            } else {
                outside(server)
            };
            let of = |pair: (Address, Address)| if four { pair.0 } else { pair.1 };
            let (mut source, mut destination) = (of(inside(client)), of(to));
            let talk = match kind {
                0..10 => Talk::Tcp(ports.0, ports.1),
                10..16 => Talk::Udp(ports.0, ports.1),
                16 => Talk::Sctp(ports.0, ports.1),
                17 => Talk::Other(protocol::ESP),
                18 => Talk::Other(47),
                19 if ports.1 == 80 => Talk::Other(protocol::UDP_LITE),
                19 => Talk::Other(protocol::AH),
                20 | 21 if !four => Talk::Icmp(128, ports.0),
                20 | 21 => Talk::Icmp(8, ports.0),
                _ if !four => Talk::Icmp(128, 1),
                _ => Talk::Icmp(13, ports.0),
            };
            if backwards == 11 {
                std::mem::swap(&mut source, &mut destination);
            }
            Ends {
                source,
                destination,
                talk,
                id: 0,
                sequence: 0,
                acknowledgement: 0,
            }
        },
    )
}

fn address6(host: u8) -> Address {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    address[15] = host;
    Address::V6(address)
}

impl Talk {
    /// A port that one of few clients has.
    fn client_port(self) -> u16 {
        match self {
            Talk::Udp(a, _) | Talk::Tcp(a, _) if a >= 1024 => a,
            _ => 1024,
        }
    }

    /// What a later fragment is one of.
    fn whole(self) -> Talk {
        match self {
            Talk::Other(protocol::TCP) => Talk::Tcp(1024, 80),
            Talk::Other(protocol::UDP) => Talk::Udp(1024, 53),
            known => known,
        }
    }
}

impl Number {
    fn after(self, next: u32) -> u32 {
        match self {
            Number::Next(by) => next.wrapping_add(by),
            Number::Any(number) => number,
        }
    }
}

impl Tcp {
    fn first() -> Tcp {
        Tcp {
            flags: Frame::SYN,
            sequence: Number::Any(0),
            acknowledgement: Number::Next(0),
            window: 512,
            options: Vec::new(),
        }
    }
}

impl Dress {
    fn put_on(&self, frame: Frame) -> Vec<u8> {
        finish(frame.ttl(self.ttl), &self.tags, &self.trailer, self.sum)
    }

    /// An IP header, with what extends it.
    fn network(&self, source: Address, destination: Address, id: u16) -> Frame {
        match (source, destination) {
            (Address::V4(source), Address::V4(destination)) => {
                let frame = Frame::new().ip4(source, destination).id(id);
                if self.extended {
                    frame.ip_options(&[68, 4, 5, 0])
                } else {
                    frame
                }
            }
            (source, destination) => {
                let frame = Frame::new()
                    .ip6(source.of_six(), destination.of_six())
                    .flow_label(u32::from(id));
                if self.extended && self.ttl == 2 {
                    frame.extension(protocol::AH, &[0; 6])
                } else if self.extended {
                    frame.extension(protocol::DESTINATION, &[0; 6])
                } else {
                    frame
                }
            }
        }
    }
}

impl Address {
    fn neighbour(self) -> Address {
        match self {
            Address::V4([a, b, c, d]) => Address::V4([a, b, c, d ^ 3]),
            Address::V6(mut address) => {
                address[15] ^= 3;
                Address::V6(address)
            }
        }
    }

    fn of_six(self) -> [u8; 16] {
        match self {
            Address::V6(address) => address,
            Address::V4(_) => [0; 16],
        }
    }
}

impl Ends {
    fn first() -> Ends {
        Ends {
            source: Address::V4([10, 0, 0, 1]),
            destination: Address::V4([192, 0, 2, 1]),
            talk: Talk::Tcp(1024, 80),
            id: 0,
            sequence: 0,
            acknowledgement: 0,
        }
    }

    /// Those of a packet.
    fn of(frame: &[u8]) -> Option<Ends> {
        let layout = parse(frame).ok()?;
        let ip = layout.ip.as_ref()?;
        let four = |at: usize| Some(Address::V4(*frame.get(at..)?.first_chunk()?));
        let six = |at: usize| Some(Address::V6(*frame.get(at..)?.first_chunk()?));
        let (source, destination, id) = match ip.version {
            Version::V4 => (
                four(ip.at + 12)?,
                four(ip.at + 16)?,
                word16(frame, ip.at + 4),
            ),
            Version::V6 => (
                six(ip.at + 8)?,
                six(ip.at + 24)?,
                ip.fragment_header().map_or(0, |at| word16(frame, at + 6)),
            ),
        };
        let mut ends = Ends {
            source,
            destination,
            talk: match frame.get(ip.payload.clone()) {
                Some(&[a, b, c, d, ..]) if ip.protocol == protocol::SCTP => {
                    Talk::Sctp(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
                }
                _ => Talk::Other(ip.protocol),
            },
            id,
            sequence: 0,
            acknowledgement: 0,
        };
        let Some(l4) = &layout.l4 else {
            return Some(ends);
        };
        let word = |at: usize| word16(frame, l4.at + at);
        ends.talk = match l4.protocol {
            Protocol::Tcp => {
                let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
                let flags = *frame.get(l4.at + 13)?;
                let counted =
                    u32::from(flags & Frame::SYN != 0) + u32::from(flags & Frame::FIN != 0);
                let len = l4.payload.len() as u32 + counted;
                (ends.sequence, ends.acknowledgement) = (long(4).wrapping_add(len), long(8));
                Talk::Tcp(word(0), word(2))
            }
            Protocol::Udp => Talk::Udp(word(0), word(2)),
            Protocol::Icmp | Protocol::Icmp6 => {
                Talk::Icmp(*frame.get(l4.at).unwrap_or(&0), word(4))
            }
        };
        Some(ends)
    }

    fn reversed(self) -> Ends {
        let talk = match self.talk {
            Talk::Tcp(a, b) => Talk::Tcp(b, a),
            Talk::Udp(a, b) => Talk::Udp(b, a),
            Talk::Sctp(a, b) => Talk::Sctp(b, a),
            Talk::Icmp(kind, identifier) => {
                let answer = match kind {
                    8 => 0,
                    0 => 8,
                    13 => 14,
                    14 => 13,
                    128 => 129,
                    129 => 128,
                    other => other,
                };
                Talk::Icmp(answer, identifier)
            }
            other => other,
        };
        Ends {
            source: self.destination,
            destination: self.source,
            talk,
            sequence: self.acknowledgement,
            acknowledgement: self.sequence,
            ..self
        }
    }

    fn turned(self, reverse: bool) -> Ends {
        if reverse { self.reversed() } else { self }
    }

    fn packet(&self, tcp: &Tcp, dress: &Dress) -> Frame {
        let frame = dress.network(self.source, self.destination, dress.id);
        self.talk_over(frame, tcp, dress)
    }

    fn talk_over(&self, frame: Frame, tcp: &Tcp, dress: &Dress) -> Frame {
        let frame = match self.talk {
            Talk::Tcp(a, b) => frame
                .tcp(a, b)
                .flags(tcp.flags)
                .numbers(
                    tcp.sequence.after(self.sequence),
                    tcp.acknowledgement.after(self.acknowledgement),
                )
                .window(tcp.window)
                .tcp_bytes(&tcp.options),
            Talk::Udp(a, b) => frame.udp(a, b),
            Talk::Icmp(kind, identifier) => frame.icmp(kind, 0).echo(identifier, 1),
            Talk::Sctp(a, b) => {
                let header = [a.to_be_bytes(), b.to_be_bytes(), [0, 7], [0, 7]].concat();
                let frame = frame.protocol(protocol::SCTP);
                return frame.payload(&[header, dress.payload.clone()].concat());
            }
            Talk::Other(number) => {
                let frame = frame.protocol(number);
                // Enough for ESP, AH, and the checksum of UDP-Lite.
                return frame.payload(&[vec![0; 12], dress.payload.clone()].concat());
            }
        };
        frame.payload(&dress.payload)
    }
}

impl Follow {
    /// The packet that it follows from, `back` packets ago, or the last before that which was not dropped; a later fragment follows from
    /// a first one, if there is one before that.
    fn base<'a>(&self, earlier: &'a [Exchange], back: usize) -> Option<&'a Exchange> {
        let at = earlier.len().checked_sub(1 + back % earlier.len().max(1))?;
        let is_first = |exchange: &&Exchange| {
            let layout = parse(&exchange.received).ok();
            layout
                .and_then(|layout| layout.ip)
                .is_some_and(|ip| ip.fragment == Fragment::First)
        };
        let passed = || {
            earlier[..=at]
                .iter()
                .rev()
                .filter(|exchange| exchange.sent.is_some())
        };
        let is_request = |exchange: &&Exchange| {
            let layout = parse(&exchange.received).ok();
            let l4 = layout.and_then(|layout| layout.l4);
            let l4 = l4.filter(|l4| l4.protocol == Protocol::Udp);
            l4.is_some_and(|l4| matches!(exchange.received.get(l4.payload), Some([0, 1 | 2, ..])))
        };
        let chosen = match self {
            Follow::Answer { .. } => passed().find(is_request),
            Follow::Later { id: None, .. } => passed().find(is_first),
            Follow::More { .. } | Follow::Error { .. } | Follow::First { .. } => passed().next(),
            _ => None,
        };
        chosen.or_else(|| earlier.get(at))
    }

    /// Whether who sends it saw that packet as it was sent on.
    fn is_about_sent(&self) -> bool {
        match self {
            Follow::Repeat | Follow::Later { .. } => false,
            Follow::More { reverse, .. } | Follow::First { reverse, .. } => *reverse,
            Follow::Answer { .. } | Follow::Stranger { .. } | Follow::Error { .. } => true,
        }
    }

    /// `None` if nothing of the kind follows from this packet.
    fn frame(&self, base: &[u8], dress: &Dress) -> Option<Vec<u8>> {
        let mut ends = Ends::of(base)?;
        if !matches!(
            self,
            Follow::Repeat | Follow::Error { .. } | Follow::Later { .. }
        ) {
            ends.talk = ends.talk.whole();
        }
        let frame = match self {
            Follow::Repeat => return Some(base.to_vec()),
            Follow::More { reverse, tcp } => ends.turned(*reverse).packet(tcp, dress),
            Follow::Stranger { by, tcp } => {
                if *by == 4 {
                    ends.destination = ends.destination.neighbour();
                }
                let talk = match ends.talk {
                    Talk::Tcp(a, b) if *by > 2 => Talk::Tcp(a, b.wrapping_add(*by)),
                    Talk::Tcp(a, b) => Talk::Tcp(a.wrapping_add(*by), b),
                    Talk::Udp(a, b) => Talk::Udp(a, b.wrapping_add(*by)),
                    Talk::Sctp(a, b) => Talk::Sctp(a.wrapping_add(*by), b),
                    Talk::Icmp(kind, identifier) => Talk::Icmp(kind, identifier ^ by),
                    other => other,
                };
                Ends { talk, ..ends }.reversed().packet(tcp, dress)
            }
            Follow::Answer { by } => {
                let talk = match ends.talk {
                    Talk::Udp(a, b) => Talk::Udp(a, b.wrapping_add(*by)),
                    other => other,
                };
                let answer = Dress {
                    payload: vec![0, 3 + dress.id as u8, 0, 1],
                    ..dress.clone()
                };
                Ends { talk, ..ends }
                    .reversed()
                    .packet(&Tcp::first(), &answer)
            }
            Follow::Error {
                kind,
                len,
                from,
                wrong,
            } => ends.error(base, *kind, *len, *from, *wrong, dress)?,
            Follow::First { reverse, id } => {
                let ends = ends.turned(*reverse);
                let frame = dress
                    .network(ends.source, ends.destination, *id)
                    .fragment(0, true);
                // What a fragment with SYN says cannot be checked, and opens nothing.
                let tcp = Tcp {
                    flags: Frame::ACK,
                    sequence: Number::Next(0),
                    ..Tcp::first()
                };
                ends.talk_over(frame, &tcp, dress)
            }
            Follow::Later { id, offset } => {
                let number = match ends.talk {
                    Talk::Tcp(..) => protocol::TCP,
                    Talk::Udp(..) => protocol::UDP,
                    Talk::Sctp(..) => protocol::SCTP,
                    Talk::Icmp(kind, _) if kind < 128 => protocol::ICMP,
                    Talk::Icmp(..) => protocol::ICMP6,
                    Talk::Other(number) => number,
                };
                let offset = match *offset {
                    Offset::At(units) => units,
                    Offset::Behind(units) => {
                        let ip = parse(base).ok()?.ip?;
                        units + ip.payload.len().div_ceil(8).min(4096) as u16
                    }
                };
                dress
                    .network(ends.source, ends.destination, id.unwrap_or(ends.id))
                    .fragment(offset, dress.ttl == 64)
                    .protocol(number)
                    .payload(&dress.payload)
            }
        };
        Some(dress.put_on(frame))
    }
}

impl Ends {
    fn error(
        &self,
        about: &[u8],
        kind: u8,
        len: usize,
        from: Sender,
        wrong: Option<(Index, u8)>,
        dress: &Dress,
    ) -> Option<Frame> {
        let layout = parse(about).ok()?;
        let ip = layout.ip.as_ref()?;
        let end = (ip.at + ip.header_len + len).min(ip.payload.end);
        let mut quote = about.get(ip.at..end)?.to_vec();
        if let Some((at, value)) = wrong {
            let at = at.index(quote.len());
            quote[at] = value;
        }
        let six = ip.version == Version::V6;
        let router = if six {
            address6(0xfe)
        } else {
            Address::V4([10, 0, 0, 250])
        };
        let sender = match from {
            Sender::Destination => self.destination,
            Sender::Source => self.source,
            Sender::Router => router,
        };
        let kind = match (kind, six) {
            // Source quench, redirects and router advertisements, which belong to no connection, are fewer.
            (28, true) => 134,
            (29, true) => 137,
            (0..30, true) => kind % 4 + 1,
            (27..30, false) => [4, 5, 9][usize::from(kind) - 27],
            (0..27, false) => [3, 11, 12][usize::from(kind) % 3],
            (other, _) => other,
        };
        let code = if dress.id == 0 { 4 } else { 1 };
        // Also at both sides of the least that there is.
        let mtus: [u32; 12] = [
            1500,
            1280,
            1400,
            0x0001_0000,
            1279,
            552,
            551,
            1400,
            1500,
            1400,
            1280,
            1500,
        ];
        let mtu = mtus[dress.payload.len() % mtus.len()];
        let frame = dress
            .network(sender, self.source, dress.id)
            .icmp(kind, code)
            .echo((mtu >> 16) as u16, mtu as u16);
        let frame = if ip.fragment == Fragment::First && dress.ttl == 1 {
            frame.fragment(0, true)
        } else {
            frame
        };
        Some(frame.payload(&quote))
    }
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;

    #[test]
    fn what_follows_is_well_formed_and_of_every_kind() {
        let mut runner = TestRunner::deterministic();
        let strategy = conversations(100);
        let mut counts = [0usize; 4];
        let mut malformed = 0;
        for _ in 0..50 {
            let steps = strategy
                .new_tree(&mut runner)
                .expect("no filters")
                .current();
            let mut earlier: Vec<Exchange> = Vec::new();
            for step in &steps {
                let received = step.frame(&earlier);
                match parse(&received) {
                    Ok(layout) => {
                        let part = layout.ip.as_ref().map(|ip| ip.fragment);
                        let icmp = layout.l4.as_ref().is_some_and(|l4| {
                            matches!(received[l4.at], 1 | 3 | 11)
                                && matches!(l4.protocol, Protocol::Icmp | Protocol::Icmp6)
                        });
                        counts[0] += usize::from(part == Some(Fragment::Whole));
                        counts[1] += usize::from(part == Some(Fragment::First));
                        counts[2] += usize::from(part == Some(Fragment::Later));
                        counts[3] += usize::from(icmp);
                    }
                    Err(_) => malformed += 1,
                }
                earlier.push(Exchange {
                    sent: Some(received.clone()),
                    received,
                });
            }
        }
        let total = 5_000;
        assert!(malformed < total / 100, "{malformed} malformed");
        assert!(
            counts.iter().all(|&count| count > total / 50),
            "whole, first, later, errors: {counts:?}"
        );
    }
}
