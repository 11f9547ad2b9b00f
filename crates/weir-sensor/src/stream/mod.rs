//! TCP reassembly: what each end's application reads, as far as a sensor between them can know.
//!
//! By default bytes are handed on when the receiver has acknowledged them: a segment that never arrived there, or that it refused, is then not mistaken for one that did, and
//! where segments overlap before the acknowledgement, the receiver's own policy decides. `inline` hands them on when they arrive. Every byte of payload is in exactly one
//! counter of [`Ledger`]. Not here: finding the session of a packet ([`crate::flow`]).

#![warn(clippy::indexing_slicing)]

mod policy;
mod session;
mod side;

use std::net::IpAddr;

pub use policy::Policy;
pub(crate) use session::{Again, HANDSHAKE};
pub use session::{Session, State};

use crate::event::{EventCounts, Events};
use crate::packet::Direction;

/// Why a direction has no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its sender closed it.
    Fin,
    /// The connection was reset.
    Reset,
    /// As many bytes as are wanted were handed on.
    Depth,
    /// The flow ended: timeout, eviction, end of the capture.
    Flow,
}

/// Who takes the bytes of a stream.
pub trait Sink {
    /// The next bytes of a direction.
    fn data(&mut self, direction: Direction, bytes: &[u8]);

    /// So many bytes were acknowledged and never seen.
    fn gap(&mut self, direction: Direction, length: u64);

    /// Nothing more of a direction will come; called once for each.
    fn end(&mut self, direction: Direction, end: End);
}

/// How streams are reassembled.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// The policy of receivers that `hosts` does not name.
    pub policy: Policy,
    /// Policies of receivers: address, length of its prefix; the longest prefix counts.
    pub hosts: Vec<(IpAddr, u8, Policy)>,
    /// Bytes handed on of each direction (by `Direction::index`); 0: all.
    pub depth: [u64; 2],
    /// Bytes that held segments of all sessions may occupy.
    pub memory: usize,
    /// Segments held of one direction.
    pub max_pieces: usize,
    /// Sessions whose beginning was not seen are taken up.
    pub midstream: bool,
    /// Sessions of which one direction is never seen are followed as well.
    pub one_sided: bool,
    /// Bytes are handed on when they arrive, not when they are acknowledged.
    pub inline: bool,
    /// What becomes of urgent data.
    pub urgent: Urgent,
}

/// What becomes of a byte that the urgent pointer is behind (RFC 6093): systems take it out of what an application reads, unless that asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgent {
    /// It is left out.
    #[default]
    OutOfBand,
    /// It stays.
    Inline,
    /// All of its segment is left out.
    Drop,
    /// It is a gap.
    Gap,
}

impl Urgent {
    /// By its name in configurations.
    pub fn named(word: &str) -> Option<Urgent> {
        Some(match word {
            "oob" => Urgent::OutOfBand,
            "inline" => Urgent::Inline,
            "drop" => Urgent::Drop,
            "gap" => Urgent::Gap,
            _ => return None,
        })
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        StreamConfig {
            policy: Policy::default(),
            hosts: Vec::new(),
            depth: [1 << 20; 2],
            memory: 64 << 20,
            max_pieces: 4096,
            midstream: false,
            one_sided: false,
            inline: false,
            urgent: Urgent::default(),
        }
    }
}

/// Where the bytes of payload went: `payload` is the sum of those after it up to `closed`, and of what is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Bytes of payload of TCP segments.
    pub payload: u64,
    /// Handed on.
    pub delivered: u64,
    /// Sent out of band.
    pub urgent: u64,
    /// Bytes that another segment has as well: duplicates, and those that lost where segments overlap.
    pub overlapped: u64,
    /// Beyond the depth.
    pub beyond_depth: u64,
    /// Given up for memory, or for the number of segments.
    pub over_cap: u64,
    /// Refused by the receiver: outside of its window, with an acknowledgement or timestamp it does not take, or without the ACK flag.
    pub out_of_window: u64,
    /// Of packets with a wrong checksum.
    pub bad_checksum: u64,
    /// Of no session: its beginning was not seen.
    pub untracked: u64,
    /// After the end of the session or direction.
    pub closed: u64,
    /// Bytes that were acknowledged and never seen; they are no part of `payload`.
    pub gap_bytes: u64,
    /// Gaps.
    pub gaps: u64,
    /// Segments with or without payload.
    pub segments: u64,
    /// Sessions begun with a SYN.
    pub sessions: u64,
    /// Sessions taken up later.
    pub midstream: u64,
    /// Sessions ended by a RST.
    pub resets: u64,
}

impl Ledger {
    /// What has become of payload, without what is held.
    pub fn settled(&self) -> u64 {
        self.delivered
            + self.urgent
            + self.overlapped
            + self.beyond_depth
            + self.over_cap
            + self.out_of_window
            + self.bad_checksum
            + self.untracked
            + self.closed
    }
}

/// Reassembles the streams of all sessions of a worker.
#[derive(Debug, Default)]
pub struct Reassembler {
    config: StreamConfig,
    pool: side::Pool,
    ledger: Ledger,
    events: EventCounts,
    /// Bytes that held segments occupy, in all sessions.
    memory: usize,
    /// The most that they did.
    peak: usize,
}

impl Reassembler {
    /// One of a worker.
    pub fn new(config: StreamConfig) -> Reassembler {
        Reassembler {
            config,
            ..Reassembler::default()
        }
    }

    /// From here on, held segments may occupy so many bytes.
    pub(crate) fn limit(&mut self, memory: usize) {
        self.config.memory = memory;
    }

    /// How it was configured.
    pub fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// Where bytes went.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How often each event happened.
    pub fn events(&self) -> &EventCounts {
        &self.events
    }

    /// Bytes that held segments occupy, and the most they did.
    pub fn memory(&self) -> (usize, usize) {
        (self.memory, self.peak)
    }

    /// Whether a segment of so many bytes might not find room: the caller then frees some with [`Reassembler::relieve`].
    pub fn is_short_of(&self, bytes: usize) -> bool {
        self.memory + bytes + 4096 > self.config.memory
    }

    /// The policy of a receiver.
    pub fn policy(&self, receiver: IpAddr) -> Policy {
        let mut found = (0, self.config.policy);
        for (network, length, policy) in &self.config.hosts {
            if *length >= found.0 && contains(*network, *length, receiver) {
                found = (*length, *policy);
            }
        }
        found.1
    }

    /// Runs `work` on a session with all that it needs, and keeps accounts.
    fn with<S: Sink>(
        &mut self,
        session: &mut Session,
        sink: &mut S,
        work: impl FnOnce(&mut Session, &mut side::Tools<'_>, &mut S),
    ) -> Events {
        let before = session.memory();
        let mut events = Events::default();
        let mut tools = side::Tools {
            pool: &mut self.pool,
            ledger: &mut self.ledger,
            events: &mut events,
            max_pieces: self.config.max_pieces,
            room: self.config.memory.saturating_sub(self.memory),
            inline: self.config.inline,
            urgent: self.config.urgent,
        };
        work(session, &mut tools, sink);
        self.memory = (self.memory + session.memory()).saturating_sub(before);
        self.peak = self.peak.max(self.memory);
        self.events.add(events);
        events
    }

    /// Ends a session: hands on what is held, in order, with its gaps.
    pub fn flush(&mut self, session: &mut Session, sink: &mut impl Sink) -> Events {
        self.with(session, sink, |session, tools, sink| {
            session.flush(End::Flow, tools, sink)
        })
    }

    /// Frees the memory of a session that goes on: hands on what is in order without waiting for acknowledgements, and gives up the rest (`over_cap`).
    pub fn relieve(&mut self, session: &mut Session, sink: &mut impl Sink) -> Events {
        self.with(session, sink, |session, tools, sink| {
            session.relieve(tools, sink)
        })
    }
}

pub(crate) fn contains(network: IpAddr, length: u8, address: IpAddr) -> bool {
    let same = |a: u128, b: u128, bits: u32| {
        let cut = bits.saturating_sub(u32::from(length));
        a.checked_shr(cut).unwrap_or(0) == b.checked_shr(cut).unwrap_or(0)
    };
    match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}
