//! Mirror of `bpf/include/abi.h`: map keys and values, key offsets, flags.
//!
//! Field for field and in the same order; `tests/abi.rs` compares sizes and offsets with the BTF of the objects.
//! Words of the flat key hold packet bytes in network order, everything else is in host order (little endian).

mod balancers;
mod bypass;
mod decapsulates;
mod dynsets;
mod filters;
mod meters;
mod near;
mod networks;
mod routers;
mod tunnels;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use balancers::*;
pub use bypass::*;
pub use decapsulates::*;
pub use dynsets::*;
pub use filters::*;
pub use meters::*;
pub use near::*;
pub use networks::*;
pub use routers::*;
pub use tunnels::*;

/// Largest frame: an Ethernet header and the largest IP packet.
pub const FRAME_MAX: usize = 65_549;
/// 64-bit words of the flat key.
pub const KEY_WORDS: usize = 58;
/// TCP option kinds whose values a policy may test.
pub const SLOTS: usize = 16;
/// Words of a table's mask.
pub const PROBE_WORDS: usize = 8;
/// Pieces of the flat key that may decide which tables are probed.
pub const DIMS: usize = 8;
/// Matched rules with rewrites or log lines, a packet.
pub const HITS: usize = 64;
/// Bytes of a literal.
pub const VALUE_MAX: usize = 64;
/// Room for a log prefix and its NUL.
pub const PREFIX_MAX: usize = 32;
/// Room in the counter array of reasons.
pub const REASONS: usize = 128;
/// Bytes of the packet in an event.
pub const SNAP: usize = 96;
/// Stateful rules a connection can have.
pub const FLOW_RULES: usize = 15;
/// Connections of a bucket of the index.
pub const WAYS: usize = 15;
/// Connections of a bucket of the index by translated tuple.
pub const NAT_WAYS: usize = 7;
/// Remembered fragments of a bucket.
pub const FRAG_WAYS: usize = 4;
/// Timeouts: states of connections, and fragments.
pub const FLOW_STATES: usize = 18;
/// Version of the maps that outlive a program.
pub const STATE_LAYOUT: u32 = 2;
/// Tables that live edits may add to those of a plan.
pub const LIVE_TABLES: usize = 32;

/// Byte offsets in the flat key (`enum weir_key_at`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod key {
    pub const VALID: usize = 0;
    pub const IN: usize = 8;
    pub const OUT: usize = 10;
    pub const QUEUE: usize = 12;
    pub const ETHER: usize = 14;
    pub const VLAN: usize = 16;
    pub const VLAN2: usize = 18;
    pub const L4PROTO: usize = 20;
    pub const CT: usize = 22;
    pub const IP4: usize = 24;
    pub const MARK: usize = 44;
    pub const IP6: usize = 48;
    pub const L4: usize = 88;
    pub const PRIORITY: usize = 108;
    pub const FRAG6: usize = 112;
    pub const IP4OPT: usize = 120;
    pub const TCPOPT: usize = 152;
    pub const SLOT: usize = 184;
    pub const MAC: usize = 440;
    pub const SETS: usize = 452;
    pub const CLOCK: usize = 456;
}

/// Valid bits of the flat key beyond the header classes (`WEIR_V_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod valid {
    pub const FRAG: u64 = 1 << 8;
    pub const FRAG_FIRST: u64 = 1 << 9;
    pub const FRAG_LATER: u64 = 1 << 10;
    pub const IP4OPT: u64 = 1 << 11;
    pub const TCPOPT: u64 = 1 << 12;
    pub const FRAG6: u64 = 1 << 13;
    pub const EH: u64 = 1 << 14;
    pub const PORTS: u64 = 1 << 15;
    /// First of the extension header bits, in the order of [`super::EXT_HEADERS`].
    pub const EH_FIRST: u64 = 1 << 16;
    /// Number of the first slot bit.
    pub const SLOT: u32 = 32;
}

/// Protocol numbers of extension headers in the order of their valid bits.
pub const EXT_HEADERS: [u8; 9] = [0, 43, 44, 50, 51, 60, 135, 139, 140];

/// `struct weir_table`: one mask over the flat key.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Table {
    /// Words in use.
    pub n_words: u32,
    /// Zero.
    pub pad: u32,
    /// Index of each word in the key.
    pub word: [u8; PROBE_WORDS],
    /// Its mask.
    pub mask: [u64; PROBE_WORDS],
}

/// `struct weir_slot`: a bucket of the index; all zeros when empty.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Slot {
    /// Hash of table and masked words.
    pub hash: u64,
    /// Index of the first rule, or of the root of a tree.
    pub first: u32,
    /// [`slot_bits`]: number of rules, table + 1, whether it is a tree.
    pub what: u32,
}

/// Parts of [`Slot::what`] (`WEIR_SLOT_*`).
pub mod slot_bits {
    /// Low bits: number of rules.
    pub const COUNT: u32 = 18;
    /// Above them: table + 1.
    pub const TABLE: u32 = 13;
    /// Number of the bit that marks a tree.
    pub const TREE: u32 = 31;
}

/// Constants of the index' hash (`WEIR_HASH_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod hash {
    pub const SEED: u64 = 0x51ed_270b_9f3c_a6d5;
    pub const TABLE: u64 = 0x9e37_79b9_7f4a_7c15;
    pub const WORD: u64 = 0xbf58_476d_1ce4_e5b9;
    pub const END: u64 = 0x94d0_49bb_1331_11eb;
}

/// `struct weir_cell`: slots of the index that share a cache line; filled from the first on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Cell {
    /// Slots.
    pub slot: [Slot; 4],
}

/// `struct weir_node`: a node of a tree over the values of one field.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Node {
    /// Values below this are on the left (high and low half).
    pub pivot: [u64; 2],
    /// Node of the smaller values, 0: none.
    pub left: u32,
    /// Node of the others, 0: none.
    pub right: u32,
    /// First of the rules here, in the list array.
    pub first: u32,
    /// Their number.
    pub count: u32,
    /// A condition on the field.
    pub field: u32,
    /// Zero.
    pub pad: u32,
}

/// `struct weir_dim`: rows of the bitmaps of 32 values of a piece of the key.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DimRows {
    /// Row of each value, from the first row of the piece.
    pub row: [u16; 32],
}

/// Flags of a rule (`WEIR_RULE_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod rule_flag {
    pub const DROP: u32 = 1 << 0;
    pub const ACCEPT: u32 = 1 << 1;
    pub const RANDOM: u32 = 1 << 2;
    pub const RATE: u32 = 1 << 3;
    pub const HIT: u32 = 1 << 4;
    pub const STATEFUL: u32 = 1 << 5;
    pub const ACCEPT_ICMP: u32 = 1 << 6;
    pub const MAPPING: u32 = 1 << 7;
    pub const FILTER_ADDRESS: u32 = 1 << 8;
    pub const FILTER_NONE: u32 = 1 << 9;
    pub const HELPER_TFTP: u32 = 1 << 10;
    pub const ANSWER: u32 = 1 << 11;
    pub const QUOTA: u32 = 1 << 12;
    pub const TTL: u32 = 1 << 13;
    pub const COUNT: u32 = 1 << 14;
    pub const METER: u32 = 1 << 15;
    /// Not a flag: number of the first bit of the header classes.
    pub const REQUIRES: u32 = 16;
}

/// `WEIR_ANSWER_*`: how a rule with [`rule_flag::ANSWER`] answers.
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod answer {
    pub const RESET: u64 = 1;
    pub const ICMP4: u32 = 8;
    pub const ICMP6: u32 = 16;
}

/// `struct weir_rule`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Rule {
    /// Index into the shapes.
    pub shape: u32,
    /// [`rule_flag`], and above [`rule_flag::REQUIRES`] the header classes that its rewrites need.
    pub flags: u32,
    /// From 1, never given again while an instance runs: the order of rewrites.
    pub id: u32,
    /// Where its counters and rate word lie; given again after the rule is gone.
    pub slot: u32,
    /// First residual condition.
    pub cond_first: u32,
    /// Number of residual conditions.
    pub cond_count: u32,
    /// Generation from which on it is deleted; [`NEVER`] for none.
    pub dead_from: u64,
    /// Values of the shape's words.
    pub value: [u64; PROBE_WORDS],
    /// First rewrite or log line.
    pub op_first: u32,
    /// Number of them.
    pub op_count: u32,
    /// Random drop: threshold, of 2^32; rate (GCRA): ns a packet; quota: bytes.
    pub drop_param: u64,
    /// GCRA: tolerance in ns.
    pub rate_limit_ns: u64,
    /// Timeout of connections of this rule, 0: by their state.
    pub timeout_ns: u64,
}

/// [`Rule::dead_from`] of rules that are not deleted.
pub const NEVER: u64 = u64::MAX;

/// `struct weir_half`: rules added while running.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Half {
    /// Its first table.
    pub table_first: u32,
    /// Their number, at most [`LIVE_TABLES`].
    pub tables: u32,
    /// Its first cell of the index.
    pub cell_first: u32,
    /// Their number, a power of two, less 1.
    pub cells_mask: u32,
}

/// `struct weir_live`: which rules hold.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LiveWord {
    /// Generation << 1 | half.
    pub now: u64,
    /// The two places for added rules.
    pub half: [Half; 2],
}

/// `struct weir_rule_at`: where the rule of an id lies in the rule array.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RuleAt {
    /// Place + 1 for packets that read each half; 0: there is none.
    pub place: [u32; 2],
}

/// Nesting of a CPU's packets in its word of the `depth` map (`WEIR_DEPTH_MASK`).
pub const DEPTH_MASK: u32 = 0xff;

/// What a condition tests (`enum weir_cond_op`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod cond_op {
    pub const RANGE: u8 = 1;
    pub const SET: u8 = 2;
    pub const OPTION: u8 = 3;
    pub const IP_PAYLOAD: u8 = 4;
    pub const L4_PAYLOAD: u8 = 5;
    /// Flag, not an operation: the test is inverted.
    pub const NEGATED: u8 = 1 << 0;
}

/// `struct weir_cond`: a residual condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cond {
    /// [`cond_op`].
    pub op: u8,
    /// [`cond_op::NEGATED`].
    pub flags: u8,
    /// Bytes of the number: 1, 2, 4, 8 or 16.
    pub width: u8,
    /// Right shift before the mask.
    pub shift: u8,
    /// Offset in the key, slot, or offset in the payload.
    pub off: u16,
    /// Bytes of the literal.
    pub len: u16,
    /// Mask of the shifted number.
    pub mask: u64,
    /// First interval of the set.
    pub set_first: u32,
    /// Number of intervals.
    pub set_count: u32,
    /// Range (lo high, lo low, hi high, hi low) or literal, zero padded.
    pub u: [u8; VALUE_MAX],
}

/// `struct weir_interval`: closed interval of 128-bit numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Interval {
    /// High and low half of the first number.
    pub lo: [u64; 2],
    /// High and low half of the last number.
    pub hi: [u64; 2],
}

impl Interval {
    /// From numbers.
    pub fn new(lo: u128, hi: u128) -> Interval {
        let halves = |x: u128| [(x >> 64) as u64, x as u64];
        Interval {
            lo: halves(lo),
            hi: halves(hi),
        }
    }
}

/// What an operation does (`enum weir_op_kind`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod op_kind {
    pub const WORD: u8 = 1;
    pub const IP_PAYLOAD: u8 = 2;
    pub const L4_PAYLOAD: u8 = 3;
    pub const STRIP: u8 = 4;
    pub const SET_OPTION: u8 = 5;
    pub const ADD_OPTION: u8 = 6;
    pub const LOG: u8 = 7;
    pub const MAP: u8 = 8;
    pub const SHUFFLE: u8 = 9;
    pub const META: u8 = 10;
    pub const VLAN_PUSH: u8 = 11;
    pub const VLAN_POP: u8 = 12;
    pub const TTL: u8 = 13;
    pub const SET_ADD: u8 = 20;
    pub const SET_DELETE: u8 = 21;
}

/// What [`op_kind::META`] writes, its `base`.
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod meta {
    pub const MARK: u8 = 0;
    pub const PRIORITY: u8 = 1;
}

/// What is chosen for a connection, `base` of [`op_kind::MAP`] and [`op_kind::SHUFFLE`] (`enum weir_choice`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod choice {
    pub const SADDR: u8 = 0;
    pub const DADDR: u8 = 1;
    pub const SPORT: u8 = 2;
    pub const DPORT: u8 = 3;
    pub const ID: u8 = 4;
    pub const LABEL: u8 = 5;
    pub const SEQ: u8 = 6;
    pub const ACK: u8 = 7;
}

/// `struct weir_pool`: values to choose from, in [`Op::u`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Pool {
    /// First interval.
    pub first: u32,
    /// Number of intervals.
    pub count: u32,
    /// Values in all, at most 2^32.
    pub size: u64,
}

/// Header an operation counts from (`enum weir_base`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod base {
    pub const VLAN: u8 = 0;
    pub const VLAN2: u8 = 1;
    pub const IP4: u8 = 2;
    pub const IP6: u8 = 3;
    pub const L4: u8 = 4;
}

/// Flags of an operation (`WEIR_OP_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod op_flag {
    pub const PSEUDO: u8 = 1 << 0;
    pub const NEXT_HEADER: u8 = 1 << 1;
    pub const LIMITED: u8 = 1 << 2;
}

/// `struct weir_op`: a rewrite or a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Op {
    /// [`op_kind`].
    pub kind: u8,
    /// [`base`].
    pub base: u8,
    /// [`op_flag`].
    pub flags: u8,
    /// TCP option kind.
    pub option: u8,
    /// Offset from the base.
    pub off: u16,
    /// Bytes of the value.
    pub len: u16,
    /// Word {mask, value, ip_mask, l4_mask}, kinds, or bytes; zero padded.
    pub u: [u8; VALUE_MAX],
}

/// [`Tuple::what`] of what a helper expects: the tuple has any source port (`WEIR_TUPLE_EXPECTED`).
pub const TUPLE_EXPECTED: u16 = 3;

/// `struct weir_tuple`: addresses and ports as in the packet; an IPv4 address is the first four bytes, the rest zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Tuple {
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
    /// Source port, network order.
    pub sport: [u8; 2],
    /// Destination port, network order.
    pub dport: [u8; 2],
    /// Protocol number.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    /// `WEIR_TUPLE_*`: 0 of packets, 1 of a mapping, 2 of a permission, [`TUPLE_EXPECTED`] of what a helper expects.
    pub what: u16,
}

/// Parts of [`Flow::life`]: sequence number << 32 | flags seen << [`life::SEEN_AT`] | state.
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod life {
    pub const FREE: u64 = 0;
    pub const CLAIMED: u64 = 1;
    pub const LIVE: u64 = 2;
    pub const MASK: u64 = 3;
    pub const SEEN_AT: u32 = 8;
    pub const SEEN_ANY: u64 = 1 << 0;
    pub const SEEN_ACK: u64 = 1 << 1;
    pub const SEEN_FIN: u64 = 1 << 2;
    pub const SEEN_RST: u64 = 1 << 3;
    pub const SEEN_REVERSE: u32 = 4;
    pub const SCALE_AT: u32 = 16;
    pub const SCALE_REVERSE: u32 = 4;
    pub const SCALE_MASK: u64 = 15;
    pub const PICKED: u64 = 1 << 24;
    pub const ACKED_FIN: u64 = 1 << 25;
    pub const RETRANS_ONE: u64 = 1 << 27;
    pub const RETRANS: u64 = 3 << 27;
    pub const INEXACT: u64 = 1 << 29;
}

/// Flags of a connection ([`Flow::what`], `WEIR_FLOW_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod flow_flag {
    pub const NAT: u32 = 1 << 0;
    pub const TRANSMIT: u32 = 1 << 1;
    pub const ID_SET: u32 = 1 << 2;
    pub const ID_MOVED: u32 = 1 << 3;
    pub const LABEL_SET: u32 = 1 << 4;
    pub const LABEL_MOVED: u32 = 1 << 5;
    pub const SEQUENCE: u32 = 1 << 6;
    pub const TIMEOUT: u32 = 1 << 7;
    pub const MORE: u32 = 1 << 8;
    pub const MAPPED: u32 = 1 << 9;
    pub const INBOUND: u32 = 1 << 10;
    pub const FILTER_ADDRESS: u32 = 1 << 11;
    pub const FILTER_NONE: u32 = 1 << 12;
    pub const HELPER_TFTP: u32 = 1 << 13;
    pub const EXPECTED: u32 = 1 << 14;
}

/// `struct weir_parent`: the record of a mapping or permission.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Parent {
    /// Its place + 1, 0: none.
    pub place: u32,
    /// Sequence number of its life.
    pub sequence: u32,
}

/// `struct weir_side`: what one side of a TCP connection told, in sequence numbers as they are sent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Side {
    /// Behind the last byte that it sent.
    pub end: u32,
    /// How far it lets the other side send; before the answer, the window of a SYN.
    pub edge: u32,
}

/// `struct weir_flow`: a connection.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Flow {
    /// [`life`].
    pub life: u64,
    /// Time of the last packet.
    pub last_ns: u64,
    /// Tuple as opened.
    pub orig: Tuple,
    /// [`flow_flag`].
    pub what: u32,
    /// Id of its first rule.
    pub rule: u32,
    /// Tuple as sent on, if [`flow_flag::NAT`].
    pub trans: Tuple,
    /// The side that opened it, and the other.
    pub side: [Side; 2],
    /// The highest number of the other that each acknowledged.
    pub acked: [u32; 2],
    /// Timeout its rules give, if [`flow_flag::TIMEOUT`].
    pub timeout_ns: u64,
    /// Tag of `trans` in its index.
    pub trans_tag: u32,
    /// Offset of the forward side's sequence numbers, if [`flow_flag::SEQUENCE`].
    pub seq_off: u32,
    /// Offset of the reverse side's.
    pub ack_off: u32,
    /// Identification or flow label, or what is added to it.
    pub identity: u32,
    /// Time of the first packet.
    pub born_ns: u64,
    /// Ids of its other rules, if [`flow_flag::MORE`]; 0 behind the last.
    pub more: [u32; FLOW_RULES - 1],
    /// When the SYN of a handshake came that both hosts may mean although the connection is open; it counts while that is after `last_ns`.
    pub again_ns: u64,
    /// Its end.
    pub again_end: u32,
    /// The end of its answer.
    pub again_answer: u32,
    /// Windows of both.
    pub again_window: [u16; 2],
    /// Their window scales + 1, 0: none.
    pub again_scale: [u8; 2],
    /// Whether there is an answer.
    pub again_answered: u8,
    /// Nothing.
    pub again_pad: u8,
    /// The mapping that it keeps alive, if [`flow_flag::MAPPED`].
    pub mapping: Parent,
    /// The permission that it keeps alive.
    pub permission: Parent,
}

impl Flow {
    /// Ids of its rules.
    pub fn rule_ids(&self) -> impl Iterator<Item = u32> + '_ {
        let more = match self.what & flow_flag::MORE {
            0 => &[],
            _ => self.more.as_slice(),
        };
        std::iter::once(self.rule)
            .chain(more.iter().copied())
            .filter(|&id| id > 0)
    }
}

/// `struct weir_bucket`: a cache line of the index by original tuple.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Bucket {
    /// Counts tuples put in.
    pub version: u32,
    /// Tags.
    pub tag: [u32; WAYS],
}

/// `struct weir_nat_bucket`: a cache line of the index by translated tuple.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NatBucket {
    /// Counts tuples put in.
    pub version: u32,
    /// Zero.
    pub pad: u32,
    /// tag << 32 | place of the connection + 1.
    pub entry: [u64; NAT_WAYS],
}

/// Where the end of a first fragment's data lies in [`Frag::kind`].
pub const FRAG_END_AT: u32 = 2;

/// `struct weir_frag`: a first fragment that passed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Frag {
    /// Odd while written.
    pub lock: u64,
    /// When.
    pub at_ns: u64,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
    /// Identification, as in the packet.
    pub id: u32,
    /// Protocol, 0 in IPv6.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    /// `enum weir_kind`, and the end of its data in units of 8 bytes << [`FRAG_END_AT`].
    pub kind: u16,
    /// Place of its connection + 1, 0: none.
    pub flow: u32,
    /// Sequence number of that.
    pub flow_seq: u32,
}

/// Fragments of a bucket, and so of a datagram, that are held.
pub const HELD_WAYS: usize = 4;
/// Bytes of a frame that can be held.
pub const HELD_BYTES: usize = 2048;

/// `struct weir_held`: a later fragment that came before its first one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Held {
    /// Datagram, and when it came.
    pub key: Frag,
    /// Free, being written, waiting or called.
    pub state: u32,
    /// Bytes of the frame.
    pub len: u32,
    /// The frame.
    pub data: [u8; HELD_BYTES],
}

/// `struct weir_counter`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Counter {
    /// Packets that matched.
    pub packets: u64,
    /// Their frame bytes as received.
    pub bytes: u64,
}

/// `struct weir_stats`: the ledger of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stats {
    /// Packets that entered.
    pub received: u64,
    /// Their frame bytes.
    pub bytes: u64,
    /// By `enum xdp_action`, and at [`NEXT`].
    pub verdict: [u64; 8],
    /// By index in reasons.def.
    pub reason: [u64; REASONS],
}

/// Index into [`Stats::verdict`]: the packet went on to another function of the graph.
pub const NEXT: usize = 5;

/// Sizes of the patch panel (`WEIR_OUTS` and so on).
pub mod panel {
    /// Outputs of an instance; 0 is its default output.
    pub const OUTS: usize = 8;
    /// Numbers of instances; 0 is none.
    pub const VIDS: usize = 2048;
    /// Ports of an edge.
    pub const PORTS: usize = 256;
    /// Slots of the program array; nothing is ever put into slot 0.
    pub const PROGRAMS: usize = 4096;
    /// Places of the map of devices.
    pub const DEVICES: usize = 256;
    /// [`super::Hop::slot`]: to the stack.
    pub const STACK: u32 = 0xffff_fff0;
    /// [`super::Hop::slot`]: dropped, as the configuration says.
    pub const DROP: u32 = 0xffff_fff1;
    /// [`super::Hop::slot`]: out of the device it came in by.
    pub const TX: u32 = 0xffff_fff2;
    /// [`super::Hop::slot`]: out of the device at place [`super::Hop::vid`].
    pub const DEVICE: u32 = 0xffff_fff3;
    /// [`super::Meta::magic`].
    pub const MAGIC: u32 = 0x7269_6577;
    /// "home": behind a recirculation, where `port` is the index of the port's device.
    pub const HOME: u32 = 0x656d_6f68;
}

/// `struct weir_hop`: where a packet goes on. All zeros lead nowhere, which is a missed call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Hop {
    /// Number of the instance, or place of the device.
    pub vid: u32,
    /// Slot of its program, or how the packet leaves ([`panel`]).
    pub slot: u32,
}

/// `struct weir_edge`: the word by which generations are switched.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Edge {
    /// The generation that packets are given when they come in.
    pub generation: u64,
}

/// `struct weir_chain`: a packet's way through the graph, on the CPU that has it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Chain {
    /// Number of the instance that has the packet.
    pub vid: u32,
    /// weir's number of the port it came in by.
    pub port: u32,
    /// Checksum mode of that port ([`csum`]).
    pub csum_mode: u32,
    /// Bytes of the frame.
    pub len: u32,
    /// What functions tell those behind them.
    pub mark: u32,
    /// Times it took guarded links.
    pub passes: u32,
    /// Functions that let it go on; counted while watched only.
    pub hops: u32,
    /// Equal to the low half of `number`: this packet is watched.
    pub watched: u32,
    /// First link of the generation: links of even and odd ones lie side by side.
    pub base: u32,
    /// Why XDP_TX would not send it back by the device of its port ([`away`]).
    pub away: u32,
    /// The generation it was given.
    pub generation: u64,
    /// Its number among the packets of this CPU.
    pub number: u64,
}

/// Bits of [`Chain::away`] (`WEIR_AWAY_*`).
pub mod away {
    /// The packet was recirculated: the device that has it is not that of its port.
    pub const RECIRCULATED: u32 = 1 << 0;
    /// Its port is a native veth, whose XDP_TX waits for a program at the far end.
    pub const VETH: u32 = 1 << 1;
    /// Its port is generic: no tracepoint tells what devices sent.
    pub const GENERIC: u32 = 1 << 2;
    /// Its port is the one that it is leaving by: on tc, at egress.
    pub const TRANSMIT: u32 = 1 << 3;
}

/// `struct weir_meta`: the metadata area in front of a frame.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Meta {
    /// [`panel::MAGIC`].
    pub magic: u32,
    /// [`Chain::mark`].
    pub mark: u32,
    /// Where a recirculated packet goes on; 0 for packets to the stack.
    pub vid: u32,
    /// [`Chain::port`].
    pub port: u32,
    /// [`Chain::passes`].
    pub passes: u32,
    /// [`Chain::csum_mode`].
    pub csum_mode: u32,
    /// [`Chain::generation`].
    pub generation: u64,
}

/// Sizes and flags of watching (`WEIR_WATCH_*`, `WEIR_W_*`, `WEIR_WQ_*`).
pub mod watch {
    /// Most bytes of a packet in an event.
    pub const SNAP: usize = 9216;
    /// Hops of a path that are kept.
    pub const PATH: usize = 48;
    /// In [`super::WatchEvent::port`]: the packet is on its way out of it.
    pub const TRANSMIT: u32 = 1 << 16;
    /// In [`super::WatchEvent::reason`]: the low bits are what somebody's object returned.
    pub const CODE: u32 = 1 << 31;
    /// The packet came in, or came back by recirculation.
    pub const ENTRY: u32 = 1 << 0;
    /// A function let it go on to another one.
    pub const ON: u32 = 1 << 1;
    /// It left the graph.
    pub const END: u32 = 1 << 2;
    /// It left by being dropped; stands beside [`END`].
    pub const DROP: u32 = 1 << 3;
    /// Of networks: a copy of it leaves by a device, or goes on; the packet itself stays.
    pub const COPY: u32 = 1 << 4;
    /// Test: IPv4.
    pub const IP4: u32 = 1 << 0;
    /// Test: IPv6.
    pub const IP6: u32 = 1 << 1;
    /// Test: protocol.
    pub const PROTO: u32 = 1 << 2;
    /// Test: source address.
    pub const SADDR: u32 = 1 << 3;
    /// Test: destination address.
    pub const DADDR: u32 = 1 << 4;
    /// Test: source port.
    pub const SPORT: u32 = 1 << 5;
    /// Test: destination port.
    pub const DPORT: u32 = 1 << 6;
}

/// `struct weir_watch_want`: what a watcher asks for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WatchWant {
    /// Stands in the events; 0: nobody watches.
    pub session: u32,
    /// Process that asked.
    pub owner: u32,
    /// Monotonic time at which the wish is forgotten.
    pub until_ns: u64,
    /// Kinds of events ([`watch`]).
    pub emit: u32,
    /// Events of this instance only, entries apart; 0: of all.
    pub vid: u32,
    /// One in so many of the packets that the filter lets by.
    pub sample: u32,
    /// Bytes of a packet in an event.
    pub snap: u32,
    /// A bit for each weir port.
    pub ports: [u64; 4],
    /// What of the rest is to be tested ([`watch`]).
    pub checks: u32,
    /// Protocol in an IPv4 header.
    pub proto_v4: u8,
    /// Next header in an IPv6 header.
    pub proto_v6: u8,
    /// Zero.
    pub pad: [u8; 2],
    /// Source address; IPv4: the first four bytes.
    pub saddr: [u8; 16],
    /// Which bits of it count.
    pub saddr_mask: [u8; 16],
    /// Destination address.
    pub daddr: [u8; 16],
    /// Which bits of it count.
    pub daddr_mask: [u8; 16],
    /// First and last source port.
    pub sport: [u16; 2],
    /// First and last destination port.
    pub dport: [u16; 2],
}

/// `struct weir_watch_event`: one stage of one packet. Bytes of the frame follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WatchEvent {
    /// Monotonic time.
    pub time_ns: u64,
    /// Number of the packet among those of its CPU.
    pub number: u64,
    /// The generation it was given.
    pub generation: u64,
    /// [`WatchWant::session`].
    pub session: u32,
    /// The CPU.
    pub cpu: u32,
    /// [`watch::ENTRY`] and so on.
    pub kind: u32,
    /// Functions that let the packet go on before.
    pub hop: u32,
    /// The instance; 0: the entry of the port.
    pub vid: u32,
    /// weir's number of the port it came in by.
    pub port: u32,
    /// `enum xdp_action`, or [`NEXT`].
    pub verdict: u32,
    /// The output it took, where it took one.
    pub out: u32,
    /// Where it goes on: [`Hop::vid`].
    pub next_vid: u32,
    /// Where it goes on: [`Hop::slot`]; 0 where the function ended its way by itself.
    pub next_slot: u32,
    /// Of a drop, `WEIR_NO_REASON`, or [`watch::CODE`] and a return code.
    pub reason: u32,
    /// Bytes of the frame.
    pub len: u32,
    /// Bytes of it that follow.
    pub snap: u32,
    /// Receive queue.
    pub queue: u32,
    /// Number | output << 11 of the first functions that let it go on; [`WatchEvent::hop`] of them.
    pub path: [u16; watch::PATH],
}

/// `struct weir_watch_count`: what was seen of the packets of a CPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WatchCount {
    /// Came in while watched.
    pub packets: u64,
    /// Passed filter and sample.
    pub asked: u64,
    /// Events put into the ring.
    pub events: u64,
    /// Events that the ring had no room for.
    pub lost: u64,
    /// Turn of the sample.
    pub turn: u64,
}

/// `struct weir_replay`: time and randomness of the next packet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Replay {
    /// Capture time.
    pub now_ns: u64,
    /// seed + (number of the frame << 32), wrapping.
    pub random: u64,
    /// weir's port number.
    pub port: u32,
    /// Receive queue.
    pub queue: u32,
    /// `skb->mark`, which the program writes as well.
    pub mark: u32,
    /// `skb->priority`, likewise.
    pub priority: u32,
    /// Nanoseconds since 1970, UTC; `now_ns` may be another clock.
    pub wall_ns: u64,
}

/// `struct weir_event`: one log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Event {
    /// Time of the packet.
    pub now_ns: u64,
    /// Rule id.
    pub rule: u32,
    /// weir's port number.
    pub port: u32,
    /// Bytes of the frame.
    pub len: u32,
    /// `enum xdp_action`.
    pub verdict: u32,
    /// Bytes valid in `data`.
    pub snap: u32,
    /// Zero.
    pub pad: u32,
    /// NUL-terminated text of the log target.
    pub prefix: [u8; PREFIX_MAX],
    /// The packet's first bytes, as received.
    pub data: [u8; SNAP],
}

/// Function `redirect`: targets, what they are, and how packets spread over them.
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod redirect {
    pub const TARGETS: usize = 64;
    pub const TO_ALL: u32 = 63;
    pub const TO_DEVICES: u32 = 0;
    pub const TO_CPUS: u32 = 1;
    pub const TO_SOCKETS: u32 = 2;
    pub const SPREAD_FLOW: u32 = 0;
    pub const SPREAD_ROUND: u32 = 1;
}

/// `struct weir_seen`: what the monitor's programs saw; a word that does not apply is 0.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
pub struct Seen {
    /// [`seen`].
    pub event: u32,
    /// Negative error number, 0: none.
    pub error: i32,
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Interface index that the packets came in by.
    pub from: u32,
    /// Id of the map they were redirected by.
    pub map: u32,
    /// Interface index, CPU, place in the map ([`seen::ERROR`]) or XDP action ([`seen::EXCEPTION`]).
    pub target: u32,
}

/// `struct weir_seen_count`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SeenCount {
    /// Packets taken.
    pub sent: u64,
    /// Packets dropped.
    pub dropped: u64,
}

/// Tracepoints of XDP, as [`Seen::event`] (`WEIR_SEEN_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod seen {
    pub const ERROR: u32 = 1;
    pub const DEVICE: u32 = 2;
    pub const ENQUEUE: u32 = 3;
    pub const CPU: u32 = 4;
    pub const TX: u32 = 5;
    pub const EXCEPTION: u32 = 6;
}

/// Load-time constants: checksum modes (`WEIR_CSUM_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod csum {
    pub const COMPLETE: u32 = 0;
    pub const OFFLOADED: u32 = 1;
}

/// Load-time constants: features in use (`WEIR_F_*`).
#[expect(missing_docs, reason = "documented in abi.h")]
pub mod feature {
    pub const SLOTS: u32 = 1 << 0;
    pub const TCPOPT: u32 = 1 << 1;
    pub const OPTION_OPS: u32 = 1 << 2;
    pub const PAYLOAD_OPS: u32 = 1 << 3;
    pub const LOG: u32 = 1 << 4;
    pub const REWRITE: u32 = 1 << 5;
    pub const STATE: u32 = 1 << 6;
    pub const TRANSLATE: u32 = 1 << 7;
    pub const NAT: u32 = 1 << 8;
    pub const SEQUENCE: u32 = 1 << 9;
    pub const MAPPING: u32 = 1 << 10;
    pub const EXPECT: u32 = 1 << 11;
    pub const MAC: u32 = 1 << 12;
    pub const PORTS: u32 = 1 << 13;
    pub const L4PROTO: u32 = 1 << 14;
    pub const CT: u32 = 1 << 15;
    pub const REJECT: u32 = 1 << 16;
    pub const META: u32 = 1 << 17;
    pub const VLAN: u32 = 1 << 18;
    pub const TTL: u32 = 1 << 19;
    pub const METER: u32 = 1 << 20;
    pub const SETS: u32 = 1 << 21;
    pub const LOG_LIMIT: u32 = 1 << 22;
    pub const QUOTA: u32 = 1 << 23;
    pub const COUNT: u32 = 1 << 24;
    pub const CLOCK: u32 = 1 << 25;
}
