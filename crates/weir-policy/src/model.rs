//! The typed policy: what rules mean, independent of how they were written.
//!
//! The parser lowers every spelling to these types; the reference interpreter and the planner read nothing else.
//! Invariants: `Rule::id` counts from 1 in file order over all files; value sets are sorted and disjoint;
//! a rule's required classes never exclude each other.

use std::fmt;
use std::sync::Arc;

use crate::dynamic::{ChangeSet, DynamicSet};
use crate::field::Field;

/// A policy: its rules in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Rules in the order written; `rules[i].id == i + 1`.
    pub rules: Vec<Rule>,
    /// How connections are kept, for stateful rules.
    pub connections: Connections,
}

/// The table of connections: docs/semantics.md section 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    /// How many are kept at least.
    pub capacity: u32,
    /// Idle time after which a connection is dead, ns, by [`FlowState`].
    pub timeouts_ns: [u64; FlowState::ALL.len()],
    /// Whether TCP segments pass whatever their numbers are: of asymmetric paths only one direction is seen.
    pub loose_tcp: bool,
    /// Least path MTU of IPv4 that an ICMP error may name, bytes.
    pub min_pmtu: u16,
    /// How many sources, destinations or pairs each limit tells apart: section 3, "Limits apart". It stands here because it is changed
    /// as the others are, by a line of its own.
    pub limits: u32,
    /// Minutes that the time of `hour` and `day` is ahead of UTC. It stands here for the same reason.
    pub timezone: i16,
}

impl Default for Connections {
    fn default() -> Self {
        Connections {
            capacity: 65_536,
            timeouts_ns: FlowState::ALL.map(|state| state.default_seconds() * 1_000_000_000),
            loose_tcp: false,
            min_pmtu: 552,
            limits: 65_536,
            timezone: 0,
        }
    }
}

/// State of a connection, by what was seen of it, and further time-outs. Discriminants are the index into `weir_timeout` of the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowState {
    /// TCP, one side seen.
    TcpSynSent = 0,
    /// TCP, both sides seen, not both with ACK.
    TcpSynRecv = 1,
    /// TCP, both sides seen with ACK.
    TcpEstablished = 2,
    /// TCP, FIN of one side, not acknowledged yet.
    TcpFinWait = 3,
    /// TCP, FIN of both sides, both acknowledged.
    TcpTimeWait = 4,
    /// TCP, RST.
    TcpClose = 5,
    /// UDP, one side seen.
    UdpUnreplied = 6,
    /// UDP, both sides seen.
    UdpStream = 7,
    /// ICMP and ICMPv6 queries.
    Icmp = 8,
    /// Not a state: how long a first fragment is remembered.
    Fragment = 9,
    /// Other protocols, one side seen.
    GenericNew = 10,
    /// Other protocols, both sides seen.
    Generic = 11,
    /// TCP, FIN of one side, acknowledged by the other.
    TcpCloseWait = 12,
    /// TCP, FIN of both sides, not both acknowledged.
    TcpLastAck = 13,
    /// Not a state: the time-out of established TCP of which three segments in a row were retransmitted.
    TcpRetrans = 14,
    /// Not a state: the time-out of established TCP with data that is not acknowledged.
    TcpUnack = 15,
    /// Not a connection: the address and port by which a host's port is known outside.
    Mapping = 16,
    /// Not a connection: one that a helper expects.
    Expectation = 17,
}

/// Who reads the packets of a connection for those that it expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helper {
    /// RFC 1350: the server answers from another port.
    Tftp,
}

impl Helper {
    /// All, as written.
    pub const NAMES: [(&'static str, Helper); 1] = [("tftp", Helper::Tftp)];
}

/// Who outside may send to a mapping, RFC 4787 section 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filtering {
    /// Addresses and ports that the host sent to.
    #[default]
    AddressAndPortDependent,
    /// Addresses that it sent to, from any port.
    AddressDependent,
    /// Everybody.
    EndpointIndependent,
}

impl Filtering {
    /// All, as written.
    pub const NAMES: [(&'static str, Filtering); 3] = [
        ("endpoint-independent", Filtering::EndpointIndependent),
        ("address-dependent", Filtering::AddressDependent),
        (
            "address-and-port-dependent",
            Filtering::AddressAndPortDependent,
        ),
    ];
}

impl FlowState {
    /// All, by number.
    pub const ALL: [FlowState; 18] = [
        FlowState::TcpSynSent,
        FlowState::TcpSynRecv,
        FlowState::TcpEstablished,
        FlowState::TcpFinWait,
        FlowState::TcpTimeWait,
        FlowState::TcpClose,
        FlowState::UdpUnreplied,
        FlowState::UdpStream,
        FlowState::Icmp,
        FlowState::Fragment,
        FlowState::GenericNew,
        FlowState::Generic,
        FlowState::TcpCloseWait,
        FlowState::TcpLastAck,
        FlowState::TcpRetrans,
        FlowState::TcpUnack,
        FlowState::Mapping,
        FlowState::Expectation,
    ];

    /// As `timeout NAME` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            FlowState::TcpSynSent => "tcp-syn-sent",
            FlowState::TcpSynRecv => "tcp-syn-recv",
            FlowState::TcpEstablished => "tcp-established",
            FlowState::TcpFinWait => "tcp-fin-wait",
            FlowState::TcpTimeWait => "tcp-time-wait",
            FlowState::TcpClose => "tcp-close",
            FlowState::UdpUnreplied => "udp-unreplied",
            FlowState::UdpStream => "udp-stream",
            FlowState::Icmp => "icmp",
            FlowState::Fragment => "fragment",
            FlowState::GenericNew => "generic-new",
            FlowState::Generic => "generic",
            FlowState::TcpCloseWait => "tcp-close-wait",
            FlowState::TcpLastAck => "tcp-last-ack",
            FlowState::TcpRetrans => "tcp-retrans",
            FlowState::TcpUnack => "tcp-unack",
            FlowState::Mapping => "mapping",
            FlowState::Expectation => "expectation",
        }
    }

    /// The states that a name means, in any case: one, or those that an older version had as one. Empty: there are none.
    pub fn named(name: &str) -> &'static [FlowState] {
        use FlowState as S;
        const OLD: [(&str, &[FlowState]); 7] = [
            ("tcp-syn-received", &[S::TcpSynRecv]),
            ("tcp-fin", &[S::TcpFinWait, S::TcpCloseWait]),
            ("tcp-closed", &[S::TcpClose]),
            ("tcp-max-retrans", &[S::TcpRetrans]),
            ("tcp-unacknowledged", &[S::TcpUnack]),
            ("udp-new", &[S::UdpUnreplied]),
            ("udp", &[S::UdpStream]),
        ];
        let same = |other: &str| other.eq_ignore_ascii_case(name);
        if let Some(at) = FlowState::ALL.iter().position(|state| same(state.name())) {
            return FlowState::ALL.get(at..=at).unwrap_or_default();
        }
        let old = OLD.iter().find(|(old, _)| same(old));
        old.map_or(&[], |(_, states)| states)
    }

    /// Time-out unless the policy gives one. Opening, closing and established TCP: RFC 5382 REQ-5 asks for at least 240 s and
    /// 7,440 s; UDP: RFC 4787 REQ-5, 120 s, 300 s recommended; ICMP: RFC 5508 REQ-2, 60 s; fragments: RFC 791 section 3.2 and
    /// Linux; other protocols and the others as nf_conntrack has them.
    pub const fn default_seconds(self) -> u64 {
        match self {
            FlowState::TcpSynSent
            | FlowState::TcpSynRecv
            | FlowState::TcpFinWait
            | FlowState::TcpCloseWait
            | FlowState::TcpLastAck
            | FlowState::TcpTimeWait => 240,
            FlowState::TcpEstablished => 14_400,
            FlowState::TcpRetrans
            | FlowState::TcpUnack
            | FlowState::UdpStream
            | FlowState::Mapping => 300,
            FlowState::TcpClose => 10,
            FlowState::UdpUnreplied | FlowState::GenericNew => 120,
            FlowState::Icmp => 60,
            FlowState::Fragment | FlowState::Expectation => 30,
            FlowState::Generic => 600,
        }
    }

    /// Whether `timeout T` of a rule stands in for that of the state.
    pub const fn takes_rule_timeout(self) -> bool {
        matches!(
            self,
            FlowState::TcpEstablished | FlowState::UdpStream | FlowState::Icmp | FlowState::Generic
        )
    }
}

/// One rule: the AND of its matches, and what happens to packets that match.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Number from 1 in the order written.
    pub id: u32,
    /// Name given by the user, unique in a policy.
    pub name: Option<String>,
    /// Line in its file, from 1; for messages of later stages.
    pub line: u32,
    /// Name of its file.
    pub file: Arc<str>,
    /// Whether that is one that the policy includes.
    pub included: bool,
    /// Whether packets that match open connections, whose packets then have the rule's targets without matching.
    pub stateful: bool,
    /// `timeout T` of a stateful rule, ns.
    pub timeout_ns: Option<u64>,
    /// `mapping endpoint-independent` of a stateful rule, and who may send to the mappings.
    pub mapping: Option<Filtering>,
    /// `helper NAME` of a stateful rule.
    pub helper: Option<Helper>,
    /// Classes a packet must have, from every field named by matches and targets. See docs/semantics.md section 2.
    pub requires: Classes,
    /// All must hold.
    pub matches: Vec<Match>,
    /// In the order written, strips merged as docs/semantics.md section 4 says.
    pub targets: Vec<Target>,
}

/// Where a rule stands, for messages: `edge.weir:12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Rule {
    /// File and line.
    pub fn place(&self) -> Place {
        Place {
            file: Arc::clone(&self.file),
            line: self.line,
        }
    }

    /// `line 12` of the policy itself, or file and line of a file that it includes.
    pub fn line_text(&self) -> String {
        match self.included {
            true => self.place().to_string(),
            false => format!("line {}", self.line),
        }
    }

    /// Whether the rule accepts packets and names their ICMP or ICMPv6 type.
    pub fn accepts_icmp_type(&self) -> bool {
        let names_type = |one: &Match| {
            let name = one.subject.field.info().name;
            !one.negated
                && matches!(name, "icmp-type" | "icmp6-type")
                && matches!(one.test, Test::In(_))
        };
        self.targets.contains(&Target::Accept) && self.matches.iter().any(names_type)
    }

    /// Whether the rule has a limit that counts addresses apart.
    pub fn counts_apart(&self) -> bool {
        let is_each = |target: &Target| matches!(target, Target::Drop(DropWhen::OverEach { .. }));
        self.targets.iter().any(is_each)
    }

    /// Its limit of connections at a time: how many, and what it counts apart.
    pub fn connections_at_a_time(&self) -> Option<(u32, Option<Per>)> {
        self.targets.iter().find_map(|target| match target {
            Target::Drop(DropWhen::OverConnections { most, per }) => Some((*most, *per)),
            _ => None,
        })
    }
}

/// Header classes as bits. The same bits as `WEIR_V_*` in `bpf/include/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Classes(pub u64);

#[expect(
    missing_docs,
    reason = "the names are those of the header classes in docs/semantics.md"
)]
impl Classes {
    pub const NONE: Classes = Classes(0);
    pub const IP4: Classes = Classes(1 << 0);
    pub const IP6: Classes = Classes(1 << 1);
    pub const TCP: Classes = Classes(1 << 2);
    pub const UDP: Classes = Classes(1 << 3);
    pub const ICMP: Classes = Classes(1 << 4);
    pub const ICMP6: Classes = Classes(1 << 5);
    pub const VLAN: Classes = Classes(1 << 6);
    pub const VLAN2: Classes = Classes(1 << 7);
    /// A transport that begins with two ports (class of `sport` and `dport`).
    pub const PORTS: Classes = Classes(1 << 15);
    /// An IPv6 fragment header was walked (class of `ip6-frag-*`).
    pub const IP6_FRAG: Classes = Classes(1 << 13);

    /// Whether every class of `other` is in `self`.
    pub fn contains(self, other: Classes) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub fn union(self, other: Classes) -> Classes {
        Classes(self.0 | other.0)
    }

    /// Those of `self` that are not in `other`.
    #[must_use]
    pub fn without(self, other: Classes) -> Classes {
        Classes(self.0 & !other.0)
    }
}

/// One match: a field and a test on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// The test is inverted (`!` and `!=` each invert). Presence and value tests differ in what that means when the field is absent.
    pub negated: bool,
    /// What is tested.
    pub subject: Subject,
    /// How.
    pub test: Test,
}

/// A field together with what was written behind its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// The field; named options (`tcp-opt-mss`) keep their own field.
    pub field: Field,
    /// Kind of the TCP option or type of the IPv4 option, also for named ones; `None` for other fields and for "any option".
    pub option: Option<u8>,
    /// Byte offset into a payload; 0 for other fields.
    pub at: u16,
}

/// A test.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// The field is present (one-bit fields: has its value).
    Present,
    /// The number (or address, as a number) is in the set.
    In(Arc<Ranges>),
    /// The bits of `mask` are those of `value`, which has no others.
    Masked {
        /// What they are.
        value: u32,
        /// Which are looked at.
        mask: u32,
    },
    /// The first bytes of an option's value, or the bytes of a payload at an offset, are these.
    Bytes(Vec<u8>),
    /// Came in by / leaves by one of these ports.
    Port(Vec<PortName>),
    /// The address is in a set that packets fill.
    Dynamic(Arc<DynamicSet>),
    /// Every packet (`all`).
    Always,
}

/// An interface as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortName {
    /// Interface name, case kept.
    Name(String),
    /// Interface index.
    Index(u32),
}

/// A set of numbers up to 128 bits as closed intervals: sorted, disjoint, not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// Sorts and merges; intervals with `lo > hi` are left out.
    pub fn new(mut intervals: Vec<(u128, u128)>) -> Ranges {
        intervals.retain(|(lo, hi)| lo <= hi);
        intervals.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(intervals.len());
        for (lo, hi) in intervals {
            match merged.last_mut() {
                Some((_, end)) if lo <= end.saturating_add(1) => *end = (*end).max(hi),
                _ => merged.push((lo, hi)),
            }
        }
        Ranges(merged)
    }

    /// The intervals.
    pub fn intervals(&self) -> &[(u128, u128)] {
        &self.0
    }

    /// How many numbers are in the set; 2^128 - 1 for all 2^128.
    pub fn size(&self) -> u128 {
        let sizes = self.0.iter().map(|&(lo, hi)| (hi - lo).saturating_add(1));
        sizes.fold(0, u128::saturating_add)
    }

    /// Element number `index`, counted from 0 in ascending order.
    pub fn nth(&self, mut index: u128) -> Option<u128> {
        for &(lo, hi) in &self.0 {
            if index <= hi - lo {
                return Some(lo + index);
            }
            index -= hi - lo + 1;
        }
        None
    }

    /// The interval that holds `value`, or else the next one above it.
    pub fn from(&self, value: u128) -> Option<(u128, u128)> {
        let at = self.0.partition_point(|&(_, hi)| hi < value);
        self.0.get(at).copied()
    }

    /// Membership.
    pub fn contains(&self, value: u128) -> bool {
        let after = self.0.partition_point(|&(lo, _)| lo <= value);
        after > 0 && value <= self.0[after - 1].1
    }
}

/// What happens to a matching packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Write a fixed field. The number is right-aligned in the field's bits.
    Set {
        /// The field.
        field: Field,
        /// Its new value.
        value: u128,
    },
    /// Write bits of the mark or of the priority.
    SetMeta {
        /// `mark` or `priority`.
        field: Field,
        /// What they become; no bits but those of `mask`.
        value: u32,
        /// Which are written.
        mask: u32,
    },
    /// Put a VLAN tag of EtherType 0x8100 in front of all others.
    PushTag {
        /// Tag control information: PCP, DEI, VLAN identifier.
        tci: u16,
    },
    /// Take the outermost VLAN tag off.
    PopTag,
    /// Decrement the TTL or hop limit; a packet that came with 1 is dropped.
    DecrementTtl,
    /// Write payload bytes.
    SetPayload {
        /// Payload field and offset.
        subject: Subject,
        /// At most 64 bytes.
        bytes: Vec<u8>,
    },
    /// Change the value of a TCP option where it is present.
    SetOption {
        /// Kind.
        kind: u8,
        /// New value, at most 38 bytes.
        value: Vec<u8>,
    },
    /// Append a TCP option.
    AddOption {
        /// Kind.
        kind: u8,
        /// Value, at most 38 bytes.
        value: Vec<u8>,
    },
    /// Remove TCP options of these kinds (0 and 1 never set).
    Strip(KindSet),
    /// Drop.
    Drop(DropWhen),
    /// Override drops of all matching rules.
    Accept,
    /// Stateful rules: a value chosen for each connection and given to its packets, the inverse to those of the other direction.
    Map {
        /// Address, port, `ip-id` or `ip6-flow-label`.
        field: Field,
        /// What is chosen from: at least one value, at most 2^32.
        pool: Arc<Ranges>,
    },
    /// Stateful rules: a random value for each connection (docs/semantics.md section 7 says which for each field).
    Shuffle {
        /// `tcp-seq-num`, `tcp-ack-num`, a port, `ip-id` or `ip6-flow-label`.
        field: Field,
    },
    /// Put an address of the packet into a set, or take it out.
    ChangeSet(ChangeSet),
    /// Report the packet.
    Log {
        /// Text in front of the line; at most 31 bytes.
        prefix: String,
        /// How often at most.
        limit: Option<LogLimit>,
    },
}

/// A limit of log lines (GCRA; docs/semantics.md section 3, "Log lines"). Its rule has one of these, and nothing else that counts in the rule's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogLimit {
    /// T: nanoseconds a line.
    pub period_ns: u64,
    /// Lines that may come at once, at least 1.
    pub burst: u32,
}

/// When a `drop` target drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropWhen {
    /// Every matching packet.
    Always,
    /// Every matching packet, and its sender is told.
    Answered(Answer),
    /// When random(rule), 32 bits, is below this; 0 to 2^32.
    Random {
        /// floor(percentage * 2^32 / 100).
        below: u64,
    },
    /// Packets above a rate (GCRA; docs/semantics.md section 3).
    Over {
        /// T: nanoseconds a packet.
        period_ns: u64,
        /// Packets that may come at once, at least 1.
        burst: u32,
    },
    /// Packets above a rate that is counted for each source, destination or pair (section 3, "Limits apart").
    OverEach {
        /// T: nanoseconds a packet.
        period_ns: u64,
        /// Packets that may come at once, at least 1.
        burst: u32,
        /// What is counted apart.
        per: Per,
    },
    /// Packets that would open a connection while so many are open whose opening packets matched the rule (section 3, "Connections at a time").
    OverConnections {
        /// Connections that may be open, 1 to [`MOST_COUNTED`].
        most: u32,
        /// What is counted apart; `None`: all of the rule together.
        per: Option<Per>,
    },
    /// Packets that make the bytes of the rule's packets more than these (section 3, "Quota").
    Quota {
        /// Bytes of frames, at least 1.
        bytes: u64,
    },
}

/// Most connections that a limit counts: a packet that may open one looks at so many.
pub const MOST_COUNTED: u32 = 128;

/// What a limit counts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Per {
    /// The source address counts.
    pub source: bool,
    /// The destination address counts.
    pub destination: bool,
    /// Bits of IPv4 addresses that count, 1 to 32.
    pub len4: u8,
    /// Bits of IPv6 addresses that count, 1 to 128.
    pub len6: u8,
}

impl DropWhen {
    /// Whether it drops every packet that the rule matches.
    pub fn is_always(self) -> bool {
        matches!(self, DropWhen::Always | DropWhen::Answered(_))
    }

    /// Whether it counts in the one word that a rule has.
    pub fn counts_in_word(self) -> bool {
        match self {
            DropWhen::Answered(_) | DropWhen::Over { .. } | DropWhen::Quota { .. } => true,
            DropWhen::Always
            | DropWhen::Random { .. }
            | DropWhen::OverEach { .. }
            | DropWhen::OverConnections { .. } => false,
        }
    }
}

/// How a `reject` answers: docs/semantics.md section 3, "Answers".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// TCP is answered with RST.
    pub reset: bool,
    /// Code of the ICMP error of type 3 that answers other packets in IPv4.
    pub icmp4: u8,
    /// Code of the ICMPv6 error of type 1 that answers other packets in IPv6.
    pub icmp6: u8,
}

impl Answer {
    /// `reject` alone.
    pub const USUAL: Answer = Answer {
        reset: true,
        icmp4: 13,
        icmp6: 1,
    };
}

/// A set of TCP option kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KindSet(pub [u64; 4]);

impl KindSet {
    /// No kind.
    pub const EMPTY: KindSet = KindSet([0; 4]);

    /// Every kind but EOL (0) and NOP (1).
    pub const ALL: KindSet = KindSet([!3, !0, !0, !0]);

    /// Adds a kind.
    pub fn insert(&mut self, kind: u8) {
        self.0[usize::from(kind >> 6)] |= 1 << (kind & 63);
    }

    /// Removes a kind.
    pub fn remove(&mut self, kind: u8) {
        self.0[usize::from(kind >> 6)] &= !(1 << (kind & 63));
    }

    /// Membership.
    pub fn contains(&self, kind: u8) -> bool {
        self.0[usize::from(kind >> 6)] & (1 << (kind & 63)) != 0
    }
}
