//! Detection: which rules hold of packets, streams and transactions.
//!
//! `Ruleset` is what rules become: immutable, shared by all workers. `Detector` is one worker's scratch memory; it is given packets, pieces of streams and transactions in the
//! order of the worker's packets, and yields `Match`es. `Sequencer` takes the matches of all workers in the order of packet numbers and decides what reaches over flows
//! (thresholds, bits of hosts). Design: `docs/design/matcher.md`.

mod address;
mod bits;
mod check;
mod compile;
mod detector;
mod ends;
mod firewall;
mod flow;
mod gate;
mod groups;
mod growth;
mod lists;
mod part;
mod plan;
mod precedence;
mod profile;
mod program;
mod ruleset;
mod script;
mod sequence;
mod tables;
mod transform;
mod work;

pub(crate) use compile::{Build, Built};
pub use detector::{DetectCounts, Detector};
pub use firewall::{PacketTable, Ruling};
pub use flow::{FlowState, FlowView};
pub use part::Part;
pub use profile::RuleCost;
pub use program::{Ask, EvaluationCounts};
pub use ruleset::{Ruleset, Unsupported};
pub(crate) use script::action as action_name;
pub use sequence::{Decision, SequenceCounts, Sequencer};

use std::net::IpAddr;

use crate::app::{App, Transaction};
use crate::packet::{Direction, Packet};
use crate::rules::Range;

/// How many inspected bytes of a stream are kept before the new ones: contents of one rule that lie further apart than this and a piece are not seen together.
pub const LOOKBACK: usize = 2048;

/// How large a piece of a stream is inspected at once: pieces end at absolute multiples of this, where the other end answers, where a transaction is complete, and at the end.
pub const PIECE: usize = 2560;

/// When and by what packet something is inspected.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Nanoseconds, by the capture's clock.
    pub time: u64,
    /// Number of the packet.
    pub number: u64,
    /// The packet; `None` when a flow ends without one: rules with conditions on headers then do not hold.
    pub packet: Option<&'a Packet<'a>>,
}

/// The flow that a packet belongs to.
#[derive(Debug)]
pub struct PacketFlow<'a> {
    /// The flow.
    pub view: &'a FlowView,
    /// What detection remembers of it.
    pub state: &'a mut FlowState,
    /// Which way the packet goes.
    pub direction: Direction,
    /// TCP: offset in its direction's stream of the payload's first byte, if the payload is part of the stream that `Detector::stream` is given. `None`: rules about streams are
    /// decided on the packet alone.
    pub offset: Option<u64>,
    /// The transaction that scripts of rules about packets are shown: the last one of the flow.
    pub transaction: Option<&'a Transaction>,
}

/// A piece of a reassembled stream.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Which way it goes.
    pub direction: Direction,
    /// Bytes in order: up to `LOOKBACK` that were given before, then the new ones. There is no gap in them: after one the window begins anew.
    pub window: &'a [u8],
    /// Index in `window` of the first new byte.
    pub fresh: usize,
    /// Offset in the stream of `window`'s first byte, counted from the first byte after the handshake (of a stream picked up later: from where it was).
    pub base: u64,
    /// Nothing will follow.
    pub last: bool,
}

/// A rule that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index in `Ruleset`.
    pub rule: u32,
    /// Number of the packet that completed it.
    pub packet: u64,
    /// Among the matches of that packet, from 0.
    pub order: u32,
    /// Time of that packet.
    pub time: u64,
    /// The flow's identity, if it has one.
    pub flow: Option<u64>,
    /// Which way what matched went.
    pub direction: Option<Direction>,
    /// Sender of what matched.
    pub source: (IpAddr, u16),
    /// Receiver of what matched.
    pub destination: (IpAddr, u16),
    /// IANA number of the transport.
    pub protocol: u8,
    /// The flow's application.
    pub app: App,
    /// The transaction.
    pub transaction: Option<u64>,
    /// Of a rule about names of files: which of the transaction's files it is about, from 0.
    pub file: Option<u32>,
    /// Of a rule about a frame: which of the transaction's frames it is about, from 0.
    pub frame: Option<u32>,
    /// Whether it was found in reassembled bytes of a stream.
    pub stream: bool,
    /// What is asked of sets that rules change: of each buffer of the rule, its instances that hold but for that, one of which must hold.
    pub asks: Box<[Vec<Vec<Ask>>]>,
    /// An `iponly`, stream or transaction match: its action is about the whole flow.
    pub whole_flow: bool,
}

/// Whether a number is in a range as rules mean it.
fn in_range(range: &Range, number: u64) -> bool {
    range.has(number)
}
