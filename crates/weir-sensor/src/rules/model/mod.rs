//! A rule as loaded: the meaning of its text, in whichever dialect, before it is compiled for matching.

use std::net::IpAddr;
use std::sync::Arc;

use crate::app::App;
pub use crate::app::Stage;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::script::Script;

pub use super::live::Members;
use super::source::Source;

mod buffer;
mod packet;

pub use buffer::*;
pub use packet::*;

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
    /// `bypass`: nothing more of its flow is looked at.
    pub bypass: bool,
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
            bypass: false,
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
    /// Of each packet before its flow is looked up (`packet:pre_flow`).
    PreFlow,
    /// Of each packet before its stream takes it (`packet:pre_stream`).
    PreStream,
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
