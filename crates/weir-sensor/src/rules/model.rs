//! A rule as loaded: the meaning of its text, in whichever dialect, before it is compiled for matching.

use std::net::IpAddr;
use std::sync::Arc;

use crate::app::App;
pub use crate::app::Stage;
use crate::buffer::Buffer;
use crate::event::Event;
use crate::packet::Direction;
use crate::script::Script;

use super::live::LiveSet;
pub use super::live::Members;
use super::source::Source;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it does when it matches.
    pub action: Action,
    /// Protocol, addresses, ports, direction.
    pub header: Header,
    /// Generator; 1 unless the rule says so.
    pub gid: u32,
    /// Signature number.
    pub sid: u32,
    /// Revision.
    pub rev: u32,
    /// Its message.
    pub message: String,
    /// `classtype`, as written.
    pub class: Option<String>,
    /// The description that `classification.config` gives it.
    pub category: String,
    /// 1 (high) to 255: the rule's own, or its class's, or 3.
    pub priority: u8,
    /// `metadata`, key and value.
    pub metadata: Vec<(String, String)>,
    /// `reference`, kind and value.
    pub references: Vec<(String, String)>,
    /// `target`.
    pub target: Option<AlertTarget>,
    /// Protocols of applications that it is about: of the header or of `app-layer-protocol`; empty: any. `true`: not these.
    pub apps: Vec<(App, bool)>,
    /// `service` of Snort 3: where the flow's protocol is known it must be one of these, and ports do not matter; where it is not (yet), ports decide. `None`: no such option.
    pub services: Option<Vec<App>>,
    /// `flow`.
    pub flow: FlowCondition,
    /// Conditions on headers and other numbers, all of which hold.
    pub packet: Vec<PacketCondition>,
    /// Conditions on buffers, in the order written. All of one group hold for the same buffer, all groups hold.
    pub groups: Vec<Group>,
    /// Group and condition that the prefilter is to use, if the rule says so (`fast_pattern`), with offset and length (`fast_pattern:o,l`).
    pub fast_pattern: Option<FastPattern>,
    /// What it asks and changes in its flow, its hosts, and the log, in the order written.
    pub bits: Vec<Bit>,
    /// `threshold` in the rule.
    pub threshold: Option<Threshold>,
    /// `detection_filter`.
    pub detection_filter: Option<Threshold>,
    /// `noalert` or `flowbits:noalert`.
    pub silent: bool,
    /// `drop:flow`, `pass:packet`: what its action is done to, if the rule says so.
    pub scope: Option<Scope>,
    /// What it says as a rule of the firewall: it is of no other use.
    pub firewall: Option<Box<FirewallRule>>,
    /// `alert`: of a rule that passes, an alert all the same.
    pub alerts: bool,
    /// `filestore`: which files are written out when it matches.
    pub store: Option<FileStore>,
    /// `tls.store`: certificates are written out when it matches.
    pub certificates: bool,
    /// `tag`: packets after its alerts that are logged.
    pub tags: Vec<Tag>,
    /// Scripts that decide it, after all else.
    pub scripts: Vec<RuleScript>,
    /// Where it was written.
    pub place: SourceLocation,
    /// How it was written, if that is kept.
    pub source: Option<Box<Source>>,
}

/// Which packets after an alert are logged (`tag`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Of what.
    pub scope: TagScope,
    /// How many, the packet of the alert among them.
    pub count: u32,
    /// Of what that is the number.
    pub metric: TagMetric,
}

/// Whose packets a tag is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagScope {
    /// The flow's.
    Session,
    /// Those from and to the sender of what matched.
    Source,
    /// Those from and to its receiver.
    Destination,
}

/// What a tag counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagMetric {
    /// Packets.
    Packets,
    /// Their bytes.
    Bytes,
    /// Seconds since the alert.
    Seconds,
}

/// A script that decides a rule (`lua`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleScript {
    /// The script.
    pub script: Arc<Script>,
    /// `!`: it must not hold.
    pub negated: bool,
    /// The buffer that it is shown, if it asks for one.
    pub buffer: Option<Buffer>,
}

/// Which files a rule has written out (`filestore`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStore {
    /// Files of which directions, to the server and to the client; `None`: of the one in which the rule matches.
    pub sides: Option<[bool; 2]>,
    /// How far it reaches.
    pub scope: StoreScope,
}

/// How far `filestore` reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreScope {
    /// The file that matched; of a rule that is about no file, those of its transaction.
    File,
    /// All files of the transaction.
    Transaction,
    /// Those of later transactions of the flow, too.
    Flow,
}

impl Rule {
    /// A rule that asks nothing but its header: `alert`, of generator 1, of the lowest usual priority.
    pub fn new(header: Header, place: SourceLocation) -> Rule {
        Rule {
            action: Action::Alert,
            header,
            gid: 1,
            sid: 0,
            rev: 0,
            message: String::new(),
            class: None,
            category: String::new(),
            priority: 3,
            metadata: Vec::new(),
            references: Vec::new(),
            target: None,
            apps: Vec::new(),
            services: None,
            flow: FlowCondition::default(),
            packet: Vec::new(),
            groups: Vec::new(),
            fast_pattern: None,
            bits: Vec::new(),
            threshold: None,
            detection_filter: None,
            silent: false,
            scope: None,
            firewall: None,
            alerts: false,
            store: None,
            certificates: false,
            tags: Vec::new(),
            scripts: Vec::new(),
            place,
            source: None,
        }
    }

    /// Whether its matches stand in the log as alerts.
    pub fn is_told(&self) -> bool {
        !self.silent && (self.action != Action::Pass || self.alerts)
    }
}

/// File and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file.
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An alert.
    Alert,
    /// Nothing more is inspected of the packet (and its flow, if the rule has a flow's conditions), no alert.
    Pass,
    /// An alert that says the packet would be dropped.
    Drop,
    /// As drop, with an answer to the sender.
    Reject,
}

/// What an action is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// What the rule was asked of: the next table is asked.
    Hook,
    /// All states of the transaction.
    Transaction,
    /// The packet.
    Packet,
    /// The packet and all later ones of its flow.
    Flow,
}

/// What a rule of the firewall decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, to other rules or to the inspection.
    Accept,
    /// The packet is dropped.
    Drop,
    /// And its sender is told.
    Reject,
}

/// A rule of the firewall: `accept:flow,pass:flow,alert tls:<client_hello_done ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirewallRule {
    /// What it decides.
    pub verdict: Verdict,
    /// Of what.
    pub scope: Scope,
    /// What is passed by the rules of the inspection, if it holds.
    pub pass: Option<Scope>,
    /// When it is asked.
    pub place: FirewallPlace,
}

/// The table that a rule of the firewall stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirewallPlace {
    /// Of each packet (`packet:filter`).
    Packet,
    /// Of transactions in this state (`app:filter`).
    State {
        /// The protocol.
        app: App,
        /// The direction that states are counted in.
        direction: Direction,
        /// Which state, from 0.
        state: u8,
        /// `<`: states before it are accepted as well.
        before: bool,
    },
}

/// Actions, the one first whose rules are decided first (`action-order`).
pub type ActionOrder = [Action; 4];

/// As users of such sensors are used to.
pub const ACTION_ORDER: ActionOrder = [Action::Pass, Action::Drop, Action::Reject, Action::Alert];

/// `target`: which end is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertTarget {
    /// The packet's sender.
    Source,
    /// The packet's receiver.
    Destination,
}

/// Protocol, addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the header's first word says.
    pub protocol: HeaderProtocol,
    /// Left address.
    pub source: AddressSet,
    /// Left port.
    pub source_ports: PortSet,
    /// Right address.
    pub destination: AddressSet,
    /// Right port.
    pub destination_ports: PortSet,
    /// `<>`: either way round.
    pub both_ways: bool,
}

/// Protocol of a header below applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderProtocol {
    /// Any IP.
    Ip,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
    /// TCP, packets and streams.
    Tcp,
    /// `tcp-pkt`: packets only.
    TcpPacket,
    /// `tcp-stream`: streams only.
    TcpStream,
    /// UDP.
    Udp,
    /// ICMP, either version.
    Icmp,
    /// ICMPv4.
    Icmpv4,
    /// ICMPv6.
    Icmpv6,
    /// SCTP.
    Sctp,
    /// An application's name: whatever carries it.
    App,
    /// `pkthdr`: broken packets as well.
    PacketHeader,
}

/// Addresses as sorted, disjoint ranges; negation and variables are resolved. Shared between the rules that name the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddressSet {
    /// Every address.
    pub any: bool,
    /// It was written with a `!`.
    pub negated: bool,
    /// IPv4, both ends included.
    pub v4: Arc<[(u32, u32)]>,
    /// IPv6, both ends included.
    pub v6: Arc<[(u128, u128)]>,
}

impl AddressSet {
    /// Whether an address is in it.
    pub fn has(&self, address: IpAddr) -> bool {
        fn within<T: Ord + Copy>(ranges: &[(T, T)], x: T) -> bool {
            let at = ranges.partition_point(|r| r.1 < x);
            ranges.get(at).is_some_and(|r| r.0 <= x)
        }
        self.any
            || match address {
                IpAddr::V4(a) => within(&self.v4, u32::from(a)),
                IpAddr::V6(a) => within(&self.v6, u128::from(a)),
            }
    }
}

/// Ports as sorted, disjoint ranges, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortSet {
    /// Every port.
    pub any: bool,
    /// Ranges.
    pub ranges: Arc<[(u16, u16)]>,
}

impl PortSet {
    /// Whether a port is in it.
    pub fn has(&self, port: u16) -> bool {
        let at = self.ranges.partition_point(|r| r.1 < port);
        self.any || self.ranges.get(at).is_some_and(|r| r.0 <= port)
    }
}

/// `flow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCondition {
    /// `to_server`/`from_client` (true) or `to_client`/`from_server` (false).
    pub to_server: Option<bool>,
    /// `established` (true) or `not_established` (false).
    pub established: Option<bool>,
    /// `stateless`: also packets that belong to no flow.
    pub stateless: bool,
    /// `only_stream` (true), `no_stream` (false).
    pub stream: Option<bool>,
    /// `only_frag` (true), `no_frag` (false).
    pub fragment: Option<bool>,
}

/// Conditions on one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which.
    pub buffer: Buffer,
    /// Of which direction it is, if the rule says so of a buffer that both have (`http.connection: to_client`, in rules with `=>`).
    pub way: Option<Direction>,
    /// What is done to it first, in order.
    pub transforms: Vec<Transform>,
    /// In the order written: contents relative to what came before depend on it. None (Snort 3): the buffer is there.
    pub conditions: Vec<Condition>,
}

/// A change of a buffer before it is inspected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// `dotprefix`: a dot before it.
    DotPrefix,
    /// `to_lowercase`.
    Lowercase,
    /// `to_uppercase`.
    Uppercase,
    /// `strip_whitespace`.
    StripWhitespace,
    /// `compress_whitespace`.
    CompressWhitespace,
    /// `url_decode`.
    UrlDecode,
    /// `to_md5`.
    Md5,
    /// `to_sha1`.
    Sha1,
    /// `to_sha256`.
    Sha256,
    /// `xor:"..."`.
    Xor(Vec<u8>),
    /// `pcrexform:"..."`: the first capture.
    Pcre(String),
    /// `header_lowercase`.
    HeaderLowercase,
    /// `strip_pseudo_headers`.
    StripPseudoHeaders,
    /// `domain`: last two labels that are no public suffix.
    Domain,
    /// `tld`.
    Tld,
    /// `from_base64`, options as written.
    Base64(Base64),
    /// `gunzip`, `zlib_deflate`: at most so many bytes.
    Inflate {
        /// As gzip writes it, else as zlib does.
        gzip: bool,
        /// `max-size`.
        most: u32,
    },
    /// `http_header: field NAME` of Snort 3: the value of that line, without the name and the blanks around it; no buffer where there is no such line.
    Field(String),
    /// `luaxform`: a script, and the words behind its name.
    Lua(Arc<Script>, Vec<String>),
}

/// Of which bytes of a buffer the entropy is asked, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entropy {
    /// How many; `None`: all. A buffer that has fewer does not hold.
    pub bytes: Option<u32>,
    /// From where.
    pub offset: u32,
    /// In millionths of a bit for each byte.
    pub value: Range,
}

/// A number written in the rule, or the name of one extracted before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// Written.
    Is(i64),
    /// Extracted by `byte_extract` or `byte_math`.
    Variable(String),
}

/// A condition on a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `content`.
    Content(Content),
    /// `pcre`.
    Pcre(Pcre),
    /// `isdataat`.
    IsDataAt {
        /// How far.
        offset: Number,
        /// From the end of the last match.
        relative: bool,
        /// There must not be.
        negated: bool,
    },
    /// `byte_test`.
    ByteTest(ByteTest),
    /// `byte_jump`.
    ByteJump(ByteJump),
    /// `byte_extract`.
    ByteExtract(ByteExtract),
    /// `byte_math`.
    ByteMath(ByteMath),
    /// `bsize`, and `urilen` on its buffer.
    Size(Range),
    /// `base64_decode`: what follows inspects what it yields, after `base64_data`.
    Base64Decode(Base64),
    /// `base64_data`: the conditions after it are about the decoded bytes.
    Base64Data,
    /// `absent` (`or_else` if true): the buffer is not there.
    Absent(bool),
    /// `dataset:isset,...` and `datarep` on values given in a file.
    Dataset(Arc<Dataset>),
    /// `entropy`.
    Entropy(Entropy),
}

/// What is asked of a set of values that stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// `isset`, `isnotset`, or a comparison of `datarep`.
    pub test: SetTest,
    /// `match subdomain`: a member may also be the value from one of its dots on.
    pub subdomains: bool,
    /// The set as it was loaded.
    pub members: Arc<Members>,
    /// The set as it is, if rules change it.
    pub live: Arc<LiveSet>,
    /// What its file says of each member; `None`: it lists values and nothing else.
    pub said: Option<Said>,
}

/// What the file of a set in JSON says of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The name that alerts show it under.
    pub name: Arc<str>,
    /// By member: JSON.
    pub values: Arc<std::collections::HashMap<Vec<u8>, Box<str>>>,
}

/// What is asked of a value's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTest {
    /// It is a member.
    In,
    /// It is none.
    NotIn,
    /// It becomes a member, and was none.
    Add,
    /// It ceases to be a member, and was one.
    Remove,
    /// It is a member whose reputation compares so with this.
    Score(std::cmp::Ordering, u16),
}

impl Dataset {
    /// Whether the answer for a value is yes.
    pub fn holds(&self, value: &[u8]) -> bool {
        let found = self.member(value);
        match self.test {
            SetTest::In => found.is_some(),
            SetTest::NotIn => found.is_none(),
            // Decided where matches come together.
            SetTest::Add | SetTest::Remove => false,
            SetTest::Score(order, than) => found.is_some_and(|(_, s)| s.cmp(&than) == order),
        }
    }

    /// The answer for a value of a set that rules change, and the change that the rule makes.
    pub(crate) fn decide(&self, value: &[u8]) -> bool {
        let has = || {
            let dots = value.iter().zip(0..).filter(|(b, _)| **b == b'.');
            let mut parts = dots.filter_map(|(_, at): (_, usize)| value.get(at..));
            self.live.has(value) || self.subdomains && parts.any(|part| self.live.has(part))
        };
        match self.test {
            SetTest::Add => self.live.add(value),
            SetTest::Remove => self.live.remove(value),
            SetTest::In => has(),
            SetTest::NotIn => !has(),
            SetTest::Score(..) => self.holds(value),
        }
    }

    /// The member that a value is, or ends with, and its reputation.
    fn member<'a>(&'a self, value: &[u8]) -> Option<(&'a Vec<u8>, u16)> {
        let get = |value: &[u8]| self.members.get_key_value(value);
        let mut found = get(value);
        if found.is_none() && self.subdomains {
            let dots = value.iter().zip(0..).filter(|(b, _)| **b == b'.');
            found = dots
                .filter_map(|(_, at): (_, usize)| get(&value[at..]))
                .next();
        }
        found.map(|(member, score)| (member, *score))
    }

    /// What alerts show of a value that is a member, as JSON, and under which name.
    pub fn says(&self, value: &[u8]) -> Option<(Capture, &str)> {
        let said = self.said.as_ref().filter(|_| self.test == SetTest::In)?;
        let value = said.values.get(self.member(value)?.0)?;
        let capture = Capture {
            group: 0,
            keep: Kept::Json,
            name: Arc::clone(&said.name),
        };
        Some((capture, value))
    }
}

/// `content`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// `!`.
    pub negated: bool,
    /// `nocase`.
    pub nocase: bool,
    /// `offset`: first place, from the buffer's start.
    pub offset: Option<Number>,
    /// `depth`: how many bytes from there may hold it.
    pub depth: Option<Number>,
    /// `distance`: from the end of the match before.
    pub distance: Option<Number>,
    /// `within`.
    pub within: Option<Number>,
    /// `startswith`.
    pub starts: bool,
    /// `endswith`.
    pub ends: bool,
    /// `rawbytes`.
    pub raw: bool,
    /// `fast_pattern:only`: it is only for the prefilter, its place does not matter.
    pub only: bool,
}

impl Content {
    /// These bytes, anywhere.
    pub fn new(bytes: Vec<u8>) -> Content {
        Content {
            bytes,
            negated: false,
            nocase: false,
            offset: None,
            depth: None,
            distance: None,
            within: None,
            starts: false,
            ends: false,
            raw: false,
            only: false,
        }
    }
}

/// `pcre`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcre {
    /// The expression without slashes.
    pub pattern: String,
    /// `!`.
    pub negated: bool,
    /// `i`.
    pub caseless: bool,
    /// `m`.
    pub multiline: bool,
    /// `s`.
    pub dotall: bool,
    /// `x`.
    pub extended: bool,
    /// `A`.
    pub anchored: bool,
    /// `E`.
    pub dollar_end_only: bool,
    /// `G`.
    pub ungreedy: bool,
    /// `R`: begins at the end of the match before.
    pub relative: bool,
    /// Captures that are kept.
    pub captures: Vec<Capture>,
}

/// A capture that is kept when the rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Its number in the expression, from 1.
    pub group: usize,
    /// Where it stands in the log.
    pub keep: Kept,
    /// Under which name.
    pub name: Arc<str>,
}

/// For how long a capture is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// `flow:`: with its flow.
    Flow,
    /// `pkt:`: for the records of its packet.
    Packet,
    /// `alert:`: for the alert.
    Alert,
    /// For the alert, which shows it as JSON: what a set says of its member.
    Json,
}

impl Pcre {
    /// A pattern without flags.
    pub fn new(pattern: String) -> Pcre {
        Pcre {
            pattern,
            negated: false,
            caseless: false,
            multiline: false,
            dotall: false,
            extended: false,
            anchored: false,
            dollar_end_only: false,
            ungreedy: false,
            relative: false,
            captures: Vec::new(),
        }
    }
}

/// How a number is read out of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// How many bytes. Of a string: how many may be digits; 0: all up to the buffer's end.
    pub bytes: Number,
    /// Where.
    pub offset: Number,
    /// From the end of the match before.
    pub relative: bool,
    /// Little-endian.
    pub little: bool,
    /// As text in this base.
    pub string: Option<u32>,
    /// In the order that the header of a DCE/RPC call says of its arguments; of other bytes: big-endian.
    pub dce: bool,
    /// `bitmask`, applied and shifted to its lowest bit.
    pub bitmask: Option<u32>,
}

/// `byte_test`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteTest {
    /// How to read.
    pub read: Read,
    /// `!` before the operator.
    pub negated: bool,
    /// The operator.
    pub operator: TestOperator,
    /// With what.
    pub value: Number,
}

/// Operator of `byte_test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOperator {
    /// `<`.
    Less,
    /// `>`.
    Greater,
    /// `=`.
    Equal,
    /// `<=`.
    LessEqual,
    /// `>=`.
    GreaterEqual,
    /// `&`: any common bit.
    And,
    /// `^`: no common bit, in the language's way: (a ^ b) is not 0.
    Xor,
}

/// `byte_jump`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteJump {
    /// How to read.
    pub read: Read,
    /// `multiplier`.
    pub multiplier: u32,
    /// `align`: up to a multiple of four.
    pub align: bool,
    /// `from_beginning`.
    pub from_beginning: bool,
    /// `from_end`.
    pub from_end: bool,
    /// `post_offset`.
    pub post_offset: Number,
}

/// `byte_extract`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteExtract {
    /// How to read.
    pub read: Read,
    /// `multiplier`.
    pub multiplier: u32,
    /// `align` to 2 or 4; 0: not.
    pub align: u8,
    /// What it is called. A name extracted again takes the later value.
    pub name: String,
}

/// `byte_math`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteMath {
    /// How to read.
    pub read: Read,
    /// `+ - * / << >>`.
    pub operator: MathOperator,
    /// With what.
    pub value: Number,
    /// What it is called.
    pub name: String,
}

/// Operator of `byte_math`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MathOperator {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `<<`.
    Left,
    /// `>>`.
    Right,
}

/// `base64_decode` and `from_base64`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Base64 {
    /// How many encoded bytes; `None`: all.
    pub bytes: Option<u32>,
    /// Where they begin.
    pub offset: u32,
    /// From the end of the match before.
    pub relative: bool,
    /// `mode` of `from_base64`, as written.
    pub mode: Option<String>,
}

/// A range of a number, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// From.
    pub low: u64,
    /// To.
    pub high: u64,
    /// Not in it.
    pub negated: bool,
    /// Bits of the number that are looked at; all of them unless the rule names some (`&0xf0=0x10`).
    pub mask: u64,
}

impl Range {
    /// From one number to another.
    pub const fn new(low: u64, high: u64, negated: bool) -> Range {
        Range {
            low,
            high,
            negated,
            mask: u64::MAX,
        }
    }

    /// Whether a number is in it.
    pub const fn has(&self, number: u64) -> bool {
        let number = number & self.mask;
        (self.low <= number && number <= self.high) != self.negated
    }
}

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
    /// `pre_flow`, `pre_stream`: each packet by itself.
    Packet,
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
