//! Conditions on the packet, its flow, or its transaction's numbers, and what is counted and kept over packets.

use crate::app::{App, ModbusAsked, Stage};
use crate::event::Event;
use crate::packet::Direction;

use super::{Number, Range};

/// A condition on the packet, its flow, or its transaction's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketCondition {
    /// `dsize`.
    PayloadSize(Range),
    /// `ttl`.
    Ttl(Range),
    /// `tos`.
    Tos(Range),
    /// `id`.
    Id(Range),
    /// `ip_proto`.
    Protocol(Range),
    /// `l3_proto`: IPv6 (true) or IPv4.
    Version(bool),
    /// `ipv4-csum`, `tcpv6-csum` and the like.
    Checksum {
        /// The event of a wrong one.
        event: Event,
        /// Of IPv6.
        six: bool,
        /// It is right (`valid`).
        right: bool,
    },
    /// `fragbits`: the bits, and how they are compared.
    FragmentBits {
        /// As in the header: 4 reserved, 2 don't fragment, 1 more fragments.
        bits: u8,
        /// How.
        mode: BitsMode,
    },
    /// `fragoffset`.
    FragmentOffset(Range),
    /// `ipopts`, as written.
    IpOption(String),
    /// `flags`: the bits, those left out of account, and how they are compared.
    Flags {
        /// FIN 1 .. CWR 128.
        bits: u8,
        /// Not looked at.
        ignored: u8,
        /// How.
        mode: BitsMode,
    },
    /// `seq`.
    Sequence(u32),
    /// `ack`.
    Acknowledgement(u32),
    /// `window`.
    Window(Range),
    /// `tcp.mss`.
    Mss(Range),
    /// `itype`.
    IcmpType(Range),
    /// `icode`.
    IcmpCode(Range),
    /// `igmp.type`.
    IgmpType(Range),
    /// `icmp_id`.
    IcmpId(u16),
    /// `icmp_seq`.
    IcmpSequence(u16),
    /// `sameip`.
    SameAddress,
    /// `stream_size`.
    StreamSize {
        /// `server`, `client`, `both`, `either`.
        side: StreamSide,
        /// In bytes.
        size: Range,
    },
    /// `flow.age` in seconds.
    FlowAge(Range),
    /// `flow.pkts`, `flow.bytes` with their side: 0 to server, 1 to client, 2 both, 3 either.
    FlowPackets(u8, Range),
    /// Bytes of a flow.
    FlowBytes(u8, Range),
    /// `app-layer-event` of a transaction: protocol and name.
    AppEvent(String, String),
    /// `decode-event`, `stream-event`: the name as anomaly records write it, with `decoder.` or `stream.` before it.
    Event(String),
    /// A number of a transaction ([`crate::app::Fact`], versions and states of TLS): its name and value (alternatives are joined by `|`, in lower case; empty:
    /// none is written), not negated unless `true`.
    Record(String, String, bool),
    /// A number that a transaction has several of ([`crate::app::Written::Placed`]): its name, the number, and which of them.
    Placed(String, Range, Which),
    /// `iprep`: which side, category, operator and value.
    Reputation {
        /// `src`, `dst`, `any`, `both`.
        side: String,
        /// Number of the category.
        category: u8,
        /// Of the value.
        value: Range,
        /// `isnotset`: there is no score.
        absent: bool,
    },
    /// `vlan.id`: layer and range.
    Vlan(VlanLayer, Range),
    /// `filesize`.
    FileSize(Range, Option<Direction>),
    /// `filemd5`, `filesha1`, `filesha256`: which sum, the list, and whether the sum must not be in it.
    FileSum(
        &'static str,
        std::sync::Arc<std::collections::HashSet<Vec<u8>>>,
        bool,
    ),
    /// `vlan.layers`.
    VlanLayers(Range),
    /// `tcp.wscale`.
    WindowScale(Range),
    /// `icmpv6.mtu`.
    Mtu(Range),
    /// `tls_cert_valid` (true), `tls_cert_expired`.
    CertificateValid(bool),
    /// `rpc`: program, version, procedure.
    Rpc(u32, Option<u32>, Option<u32>),
    /// `app-layer-protocol` of a side, or before a change: which, the protocols, and whether it must be another.
    Application(Spoken, Vec<App>, bool),
    /// `app-layer-state`: a direction has not got so far yet.
    NotReached(Direction, Stage),
    /// `modbus`: of a request.
    Modbus(Box<ModbusAsked>),
    /// `PROTOCOL:HOOK` in the header.
    Hook(Hook),
}

/// Which tags `vlan.id` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanLayer {
    /// One of them.
    Any,
    /// Each, and there is one.
    All,
    /// This one; below 0 from the innermost.
    At(i8),
}

/// Which of several numbers of a transaction a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// One of them.
    Any,
    /// All of them, of which there is one at least.
    All,
    /// The one at this place, from 0; below 0: from the end.
    At(i32),
}

/// Which of the protocols that a flow is told to be `app-layer-protocol` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// The flow's own.
    Final,
    /// What the bytes of the direction inspected look like.
    Direction,
    /// What the client's bytes look like.
    ToServer,
    /// What the server's bytes look like.
    ToClient,
    /// Either of these two.
    Either,
    /// That before the flow changed to another.
    Original,
}

/// When a rule is decided, if its header says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// `all`: each packet; contents are looked for in streams as ever.
    All,
    /// `pre_flow`: each packet by itself; of a firewall before its flow is looked up.
    PreFlow,
    /// `pre_stream`: the same, of a firewall before its stream takes it.
    PreStream,
    /// The first packet of each direction of a flow.
    FlowStart,
    /// A transaction has got so far in a direction.
    Reached(Direction, Stage),
}

/// Which side's bytes `stream_size` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamSide {
    /// Bytes the server sent.
    Server,
    /// Bytes the client sent.
    Client,
    /// Each of them.
    Both,
    /// One of them.
    Either,
}

/// How bits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitsMode {
    /// Exactly these.
    Exact,
    /// `+`: these, others as they may be.
    All,
    /// `*`: one of these.
    Any,
    /// `!`: none of these.
    None,
}

/// Flow bits, counters and bits of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bit {
    /// `flowbits`.
    Flow {
        /// What to do.
        operation: BitOperation,
        /// Names, joined by "or" in `isset:a|b`.
        names: Vec<String>,
    },
    /// `xbits`, and `hostbits` with their side.
    Host {
        /// What to do.
        operation: BitOperation,
        /// Its name.
        name: String,
        /// `ip_src`, `ip_dst`, `ip_pair`.
        track: Track,
        /// Seconds it stays.
        expire: u32,
    },
    /// `xbits` with `track tx`: a bit of the transaction.
    Transaction {
        /// What to do.
        operation: BitOperation,
        /// Its name.
        name: String,
    },
    /// `config:logging disable, type tx, scope tx`: the transaction is not written to the log.
    Unlog,
    /// `flowint`.
    Counter {
        /// Its name.
        name: String,
        /// `+ - = < > <= >= == != isset isnotset notset`.
        operator: String,
        /// With what: a number or another counter.
        value: Option<Number>,
    },
}

/// What is done with a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperation {
    /// Set when the rule matches.
    Set,
    /// Cleared when the rule matches.
    Unset,
    /// Turned when the rule matches.
    Toggle,
    /// Must be set.
    IsSet,
    /// Must not be set.
    IsNotSet,
}

/// What is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    /// By sender.
    Source,
    /// By receiver.
    Destination,
    /// By both ends, order apart.
    Pair,
    /// By rule only.
    Rule,
    /// By flow.
    Flow,
}

/// `threshold`, `detection_filter`, `rate_filter`, `suppress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Which.
    pub kind: ThresholdKind,
    /// Counted by.
    pub track: Track,
    /// How many.
    pub count: u32,
    /// In how many seconds.
    pub seconds: u32,
}

/// Kinds of threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdKind {
    /// At most `count` in a period.
    Limit,
    /// Every `count`th in a period.
    Threshold,
    /// Once in a period, at the `count`th.
    Both,
    /// After `count` in a period, each.
    Filter,
    /// At the `count`th, and each time that the count has grown by `multiplier` since.
    Backoff {
        /// By how much the next count is larger.
        multiplier: u32,
    },
}

/// `fast_pattern`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPattern {
    /// Of `Rule::groups`.
    pub group: usize,
    /// Of its conditions: a content that is not negated.
    pub condition: usize,
    /// The part of it to use: offset and length.
    pub part: Option<(u16, u16)>,
}
