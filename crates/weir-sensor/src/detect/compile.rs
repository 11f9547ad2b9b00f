//! Rules to a `Ruleset`: what kind each rule is, in which order rules are decided, by which pattern each is found, and the lists that lead from a packet, a piece or a transaction to
//! the few rules worth deciding.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use crate::app::App;
use crate::buffer::{Buffer, BufferSet, Sides};
use crate::matcher::{Engine, Matcher, Pattern, rarest_window};
use crate::packet::{Direction, Transport};
use crate::rules::{
    Action, Bit, BitOperation, Condition, Content, Expressions, Group, HeaderProtocol, Number,
    Place, PortSet, Reputation, Rule, Transform,
};

use super::address::{AddressMap, share};
use super::check::Check;
use super::program::Program;
use super::transform::Change;

/// A rule that detection cannot decide, with the reason; it is in no list and never matches.
#[derive(Clone, Debug)]
pub struct Unsupported {
    /// Its generator.
    pub gid: u32,
    /// Its number.
    pub sid: u32,
    /// Where it was written.
    pub place: Place,
    /// Why.
    pub reason: String,
}

/// What a packet's transport is, for lists of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Tcp = 0,
    Udp = 1,
    Icmpv4 = 2,
    Icmpv6 = 3,
    Sctp = 4,
    Other = 5,
}

/// How many there are.
const CLASSES: usize = 6;

impl Class {
    pub(super) fn of(transport: &Transport) -> Class {
        match transport {
            Transport::Tcp(_) => Class::Tcp,
            Transport::Udp { .. } => Class::Udp,
            Transport::Icmp { v6: false, .. } => Class::Icmpv4,
            Transport::Icmp { v6: true, .. } => Class::Icmpv6,
            Transport::Sctp { .. } => Class::Sctp,
            Transport::None => Class::Other,
        }
    }
}

/// What a rule is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Addresses only: the first packet of each direction of a flow.
    Addresses,
    /// The protocol of the application only: once in each direction.
    App,
    /// Every packet, without its payload.
    Packet,
    /// Every packet's payload.
    Payload,
    /// Packets' payloads and streams.
    PayloadAndStream,
    /// Streams; packets that are part of none.
    Stream,
    /// Transactions, when these directions are complete.
    Transaction(When),
}

/// Which directions of a transaction a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// One of them.
    One(Direction),
    /// Either, each by itself.
    Each,
    /// Both, so it is decided once, at the end.
    Together,
}

/// A rule, ready to be decided. Its index is its rank.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) kind: Kind,
    pub(super) gate: Gate,
    pub(super) checks: Box<[Check]>,
    /// Conditions on the payload of packets or streams.
    pub(super) payload: Option<Program>,
    /// Conditions on other buffers.
    pub(super) groups: Box<[CompiledGroup]>,
    pub(super) tests: Box<[BitTest]>,
    pub(super) actions: Box<[BitAction]>,
    pub(super) silent: bool,
    pub(super) pass: bool,
    /// The sequencer has something to do for it even if it is silent.
    pub(super) reaches_over_flows: bool,
}

/// The cheap conditions, asked before anything is evaluated.
#[derive(Debug)]
pub(super) struct Gate {
    /// A bit for each class.
    pub(super) classes: u8,
    /// 4 or 6, or 0 for both.
    pub(super) version: u8,
    pub(super) to_server: Option<bool>,
    pub(super) established: Option<bool>,
    pub(super) needs_syn: bool,
    pub(super) only_fragment: Option<bool>,
    /// Header conditions that say nothing are not asked.
    pub(super) any_source: bool,
    pub(super) any_source_port: bool,
    pub(super) any_destination: bool,
    pub(super) any_destination_port: bool,
    pub(super) apps: Box<[(App, bool)]>,
    /// Where the application is known it must be one of these and ports are not asked.
    pub(super) services: Option<Box<[App]>>,
    /// `pkthdr`: packets without an IP header as well.
    pub(super) broken: bool,
}

/// The cheapest conditions of a gate, dense: a packet asks them of a hundred rules that no pattern leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quick {
    classes: u8,
    /// A bit for each direction, and the third for none.
    directions: u8,
    /// Bit 0: not established will do; bit 1: established; bit 2: no flow.
    established: u8,
    /// All ports of the header lie in these.
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
}

impl Quick {
    fn new(rule: &Rule, gate: &Gate) -> Quick {
        let all = (0, u16::MAX);
        // Either way round, and where a known application stands for the ports, they are not asked here.
        let narrow = |set: &PortSet| {
            let asked = !set.any && !rule.header.both_ways && rule.services.is_none();
            let hull = || Some((set.ranges.first()?.0, set.ranges.last()?.1));
            if asked { hull().unwrap_or(all) } else { all }
        };
        Quick {
            classes: gate.classes,
            directions: match gate.to_server {
                Some(true) => 1,
                Some(false) => 2,
                None => 7,
            },
            established: match gate.established {
                Some(false) => 1,
                Some(true) => 2,
                None => 7,
            },
            source_ports: narrow(&rule.header.source_ports),
            destination_ports: narrow(&rule.header.destination_ports),
        }
    }

    #[inline]
    pub(super) fn may(
        &self,
        class: Class,
        direction: Option<Direction>,
        established: Option<bool>,
        ports: (u16, u16),
    ) -> bool {
        let within = |(low, high): (u16, u16), port: u16| low <= port && port <= high;
        self.classes >> (class as u8) & 1 != 0
            && self.directions >> direction.map_or(2, |d| d as u8) & 1 != 0
            && self.established >> established.map_or(2, u8::from) & 1 != 0
            && within(self.source_ports, ports.0)
            && within(self.destination_ports, ports.1)
    }
}

/// Conditions on a buffer of a transaction or a packet.
#[derive(Debug)]
pub(super) struct CompiledGroup {
    pub(super) buffer: Buffer,
    pub(super) changes: Box<[Change]>,
    pub(super) program: Program,
    /// `absent`; `true`: or else the conditions hold.
    pub(super) absent: Option<bool>,
}

/// A question about bits and counters of the flow.
#[derive(Debug)]
pub(super) enum BitTest {
    /// One of these bits is set (`true`), or none of them is.
    Set(Box<[u32]>, bool),
    /// A counter exists, or not.
    Exists(u16, bool),
    /// A counter compares so with a value.
    Compare(u16, Compare, Operand),
}

/// A change of bits and counters of the flow.
#[derive(Debug)]
pub(super) enum BitAction {
    Set(u32),
    Unset(u32),
    Toggle(u32),
    /// A counter becomes, grows by, or shrinks by a value.
    Counter(u16, Arithmetic, Operand),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Compare {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Arithmetic {
    Set,
    Add,
    Subtract,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Number(u32),
    Counter(u16),
}

/// Patterns of a kind of buffer, and the rules that each leads to.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) matcher: Matcher,
    pub(super) changes: Box<[Change]>,
    heads: Box<[u32]>,
    rules: Box<[u32]>,
    /// The longest pattern.
    pub(super) longest: usize,
}

impl Scan {
    /// The rules that a pattern leads to.
    pub(super) fn rules(&self, pattern: u32) -> &[u32] {
        let at = pattern as usize;
        match (self.heads.get(at), self.heads.get(at + 1)) {
            (Some(from), Some(to)) => self
                .rules
                .get(*from as usize..*to as usize)
                .unwrap_or_default(),
            _ => &[],
        }
    }

    fn memory(&self) -> usize {
        self.matcher.memory() + (self.heads.len() + self.rules.len()) * 4
    }
}

/// Rules by the addresses they name.
#[derive(Debug, Default)]
pub(super) struct ByAddress {
    pub(super) source: AddressMap,
    pub(super) destination: AddressMap,
    /// Those that name none, or half the world.
    pub(super) rest: Box<[u32]>,
}

impl ByAddress {
    pub(super) fn is_empty(&self) -> bool {
        self.source.is_empty() && self.destination.is_empty() && self.rest.is_empty()
    }

    fn memory(&self) -> usize {
        self.source.memory() + self.destination.memory() + self.rest.len() * 4
    }
}

/// What leads from a buffer of transactions to rules.
#[derive(Debug, Default)]
pub(super) struct Leads {
    /// By buffer: scans, one for each chain of transforms.
    pub(super) scans: Vec<Vec<u32>>,
    /// By buffer: rules without a usable pattern.
    pub(super) bare: Vec<Vec<u32>>,
    /// Rules about no buffer that must be there.
    pub(super) always: Vec<u32>,
}

/// Rules, ready to be decided; immutable, shared by all workers.
#[derive(Debug)]
pub struct Ruleset {
    rules: Vec<Rule>,
    pub(super) compiled: Vec<Compiled>,
    pub(super) quick: Vec<Quick>,
    pub(super) scans: Vec<Scan>,
    pub(super) addresses: ByAddress,
    pub(super) apps: Vec<u32>,
    /// Rules decided on every packet, by class.
    pub(super) packets: [ByAddress; CLASSES],
    /// Those of TCP that ask for SYN.
    pub(super) syn: ByAddress,
    /// Scans of packets' payloads, by class and direction.
    pub(super) payloads: [[Option<u32>; 2]; CLASSES],
    /// Scans of streams by direction.
    pub(super) streams: [Option<u32>; 2],
    /// Rules of streams without a usable pattern.
    pub(super) bare_streams: [Vec<u32>; 2],
    /// Of transactions: by direction, and the third for those that look at both.
    pub(super) leads: [Leads; 4],
    buffers: BufferSet,
    pub(super) flow_bits: usize,
    most_patterns: usize,
    others: usize,
    expressions: usize,
}

impl Ruleset {
    /// Compiles rules, with the expressions that their loader compiled and the scores that `iprep` asks for. Those that cannot be decided are returned with their reasons.
    pub fn build(
        rules: Vec<Rule>,
        expressions: Expressions,
        reputation: Arc<Reputation>,
        engine: Engine,
    ) -> (Ruleset, Vec<Unsupported>) {
        let build = Build {
            expressions,
            reputation,
            ..Build::default()
        };
        build.ruleset(rules, engine)
    }

    /// How many rules it holds.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule of a match.
    pub fn rule(&self, index: u32) -> &Rule {
        &self.rules[index as usize]
    }

    /// All of them, in the order they are decided.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What parsers must fill.
    pub fn buffers(&self) -> BufferSet {
        self.buffers
    }

    /// Whether a rule looks at streams that go this way: otherwise `Detector::stream` need not be called.
    pub fn inspects_streams(&self, direction: Direction) -> bool {
        let d = direction.index();
        self.streams[d].is_some() || !self.bare_streams[d].is_empty()
    }

    /// Different regular expressions.
    pub fn expressions(&self) -> usize {
        self.expressions
    }

    /// Sets of patterns that were too large for the engine asked for and are searched by the prefilter.
    pub fn other_engine(&self) -> usize {
        self.others
    }

    pub(super) fn most_patterns(&self) -> usize {
        self.most_patterns
    }

    /// Bytes of its patterns and lists, about; rules, programs and expressions not counted.
    pub fn memory(&self) -> usize {
        self.scans.iter().map(Scan::memory).sum::<usize>()
            + self.addresses.memory()
            + self.syn.memory()
            + self.packets.iter().map(ByAddress::memory).sum::<usize>()
    }
}

/// Patterns that are being collected for a scan.
#[derive(Default)]
struct Collected {
    known: HashMap<(Vec<u8>, bool), usize>,
    patterns: Vec<(Vec<u8>, bool, Vec<u32>)>,
}

impl Collected {
    fn add(&mut self, bytes: &[u8], nocase: bool, rule: u32) {
        let bytes = if nocase {
            bytes.to_ascii_lowercase()
        } else {
            bytes.to_vec()
        };
        let at = *self
            .known
            .entry((bytes, nocase))
            .or_insert_with_key(|(b, n)| {
                self.patterns.push((b.clone(), *n, Vec::new()));
                self.patterns.len() - 1
            });
        self.patterns[at].2.push(rule);
    }
}

/// What is known of names and expressions while rules are compiled.
#[derive(Default)]
struct Build {
    expressions: Expressions,
    reputation: Arc<Reputation>,
    flow_bits: HashMap<String, u32>,
    counters: HashMap<String, u16>,
}

/// The pattern that leads to a rule.
struct Lead {
    /// Index in `Rule::groups`.
    group: usize,
    bytes: Vec<u8>,
    nocase: bool,
}

impl Build {
    fn ruleset(mut self, rules: Vec<Rule>, engine: Engine) -> (Ruleset, Vec<Unsupported>) {
        let mut refused = Vec::new();
        let mut kept = Vec::new();
        for i in order(&rules) {
            match self.rule(&rules[i]) {
                Ok(compiled) => kept.push((i, compiled)),
                Err(reason) => refused.push(Unsupported {
                    gid: rules[i].gid,
                    sid: rules[i].sid,
                    place: rules[i].place.clone(),
                    reason,
                }),
            }
        }
        let mut rules: Vec<Option<Rule>> = rules.into_iter().map(Some).collect();
        let (rules, compiled): (Vec<Rule>, Vec<Compiled>) = kept
            .into_iter()
            .filter_map(|(i, c)| Some((rules[i].take()?, c)))
            .unzip();
        let mut lists = Lists::new(engine);
        for (index, (rule, compiled)) in rules.iter().zip(&compiled).enumerate() {
            lists.add(index as u32, rule, compiled);
        }
        let mut buffers = BufferSet::default();
        for group in rules.iter().flat_map(|r| &r.groups) {
            buffers.insert(group.buffer);
        }
        let quick = rules
            .iter()
            .zip(&compiled)
            .map(|(r, c)| Quick::new(r, &c.gate))
            .collect();
        let mut ruleset = Ruleset {
            rules,
            compiled,
            quick,
            scans: Vec::new(),
            addresses: ByAddress::default(),
            apps: Vec::new(),
            packets: std::array::from_fn(|_| ByAddress::default()),
            syn: ByAddress::default(),
            payloads: [[None; 2]; CLASSES],
            streams: [None; 2],
            bare_streams: [Vec::new(), Vec::new()],
            leads: std::array::from_fn(|_| Leads::default()),
            buffers,
            flow_bits: self.flow_bits.len(),
            most_patterns: 0,
            others: 0,
            expressions: 0,
        };
        lists.finish(&mut ruleset, &mut self.expressions);
        ruleset.expressions = self.expressions.len();
        (ruleset, refused)
    }

    fn rule(&mut self, rule: &Rule) -> Result<Compiled, String> {
        let checks: Vec<Check> = rule
            .packet
            .iter()
            .map(|c| Check::new(c, &self.reputation))
            .collect::<Result<_, _>>()?;
        let mut payload: Vec<Condition> = Vec::new();
        let mut groups = Vec::new();
        for group in &rule.groups {
            if group.buffer == Buffer::Payload && group.transforms.is_empty() {
                payload.extend(group.conditions.iter().cloned());
                continue;
            }
            groups.push(CompiledGroup {
                buffer: group.buffer,
                changes: changes(&group.transforms, &mut self.expressions)?,
                program: Program::new(&group.conditions, &mut self.expressions)?,
                absent: group.conditions.iter().find_map(|c| match c {
                    Condition::Absent(or_else) => Some(*or_else),
                    _ => None,
                }),
            });
        }
        let has_payload = !payload.is_empty();
        if rule.flow.stream == Some(true) && !has_payload && rule.groups.is_empty() {
            return Err("only_stream without a content: nothing says what of the stream".into());
        }
        let program = Program::new(&payload, &mut self.expressions)?;
        let (tests, actions) = self.bits(rule)?;
        let reads_hosts = rule.bits.iter().any(|b| {
            matches!(
                b,
                Bit::Host {
                    operation: BitOperation::IsSet | BitOperation::IsNotSet,
                    ..
                }
            )
        });
        if reads_hosts && (!actions.is_empty() || rule.action == Action::Pass) {
            return Err(
                "a rule that asks for a bit of a host cannot change its flow: the first is decided over all flows, after the second"
                    .into(),
            );
        }
        Ok(Compiled {
            kind: kind(rule, &checks, &groups, has_payload, &tests),
            gate: gate(rule, &checks),
            checks: checks.into(),
            payload: has_payload.then_some(program),
            groups: groups.into(),
            tests: tests.into(),
            actions: actions.into(),
            silent: rule.silent,
            pass: rule.action == Action::Pass,
            reaches_over_flows: rule.bits.iter().any(|b| matches!(b, Bit::Host { .. })),
        })
    }

    fn bit(&mut self, name: &str) -> u32 {
        let next = self.flow_bits.len() as u32;
        *self.flow_bits.entry(name.to_owned()).or_insert(next)
    }

    fn counter(&mut self, name: &str) -> Result<u16, String> {
        let next = u16::try_from(self.counters.len()).map_err(|_| "too many counters")?;
        Ok(*self.counters.entry(name.to_owned()).or_insert(next))
    }

    fn bits(&mut self, rule: &Rule) -> Result<(Vec<BitTest>, Vec<BitAction>), String> {
        let mut tests = Vec::new();
        let mut actions = Vec::new();
        for bit in &rule.bits {
            match bit {
                Bit::Flow { operation, names } => {
                    let ids: Vec<u32> = names.iter().map(|n| self.bit(n)).collect();
                    match operation {
                        BitOperation::IsSet => tests.push(BitTest::Set(ids.into(), true)),
                        BitOperation::IsNotSet => tests.push(BitTest::Set(ids.into(), false)),
                        BitOperation::Set => actions.extend(ids.into_iter().map(BitAction::Set)),
                        BitOperation::Unset => {
                            actions.extend(ids.into_iter().map(BitAction::Unset));
                        }
                        BitOperation::Toggle => {
                            actions.extend(ids.into_iter().map(BitAction::Toggle));
                        }
                    }
                }
                Bit::Host { .. } => {}
                Bit::Counter {
                    name,
                    operator,
                    value,
                } => {
                    let id = self.counter(name)?;
                    let operand = |build: &mut Build| match value {
                        Some(Number::Is(n)) => u32::try_from(*n)
                            .map(Operand::Number)
                            .map_err(|_| format!("flowint cannot hold {n}")),
                        Some(Number::Variable(other)) => build.counter(other).map(Operand::Counter),
                        None => Err(format!("flowint `{operator}` needs a value")),
                    };
                    let compare = match operator.as_str() {
                        "isset" => {
                            tests.push(BitTest::Exists(id, true));
                            continue;
                        }
                        "notset" | "isnotset" => {
                            tests.push(BitTest::Exists(id, false));
                            continue;
                        }
                        "=" => {
                            actions.push(BitAction::Counter(id, Arithmetic::Set, operand(self)?));
                            continue;
                        }
                        "+" => {
                            actions.push(BitAction::Counter(id, Arithmetic::Add, operand(self)?));
                            continue;
                        }
                        "-" => {
                            let by = operand(self)?;
                            actions.push(BitAction::Counter(id, Arithmetic::Subtract, by));
                            continue;
                        }
                        "<" => Compare::Less,
                        "<=" => Compare::LessEqual,
                        ">" => Compare::Greater,
                        ">=" => Compare::GreaterEqual,
                        "==" => Compare::Equal,
                        "!=" => Compare::NotEqual,
                        other => return Err(format!("flowint has no operator `{other}`")),
                    };
                    tests.push(BitTest::Compare(id, compare, operand(self)?));
                }
            }
        }
        Ok((tests, actions))
    }
}

fn changes(
    transforms: &[Transform],
    expressions: &mut Expressions,
) -> Result<Box<[Change]>, String> {
    transforms
        .iter()
        .map(|t| Change::new(t, expressions))
        .collect()
}

/// The order in which rules are decided: `pass` first, then `drop`, `reject` and `alert`; rules that set a bit before those that ask for it; then by priority, then as loaded.
fn order(rules: &[Rule]) -> Vec<usize> {
    let mut setters: HashMap<(u8, &str), Vec<usize>> = HashMap::new();
    for (i, rule) in rules.iter().enumerate() {
        for key in touched(rule, true) {
            setters.entry(key).or_default().push(i);
        }
    }
    // Depth of the longest chain of setters behind each rule. A cycle is cut where it closes, in the order of loading.
    let mut levels: Vec<Option<u32>> = vec![None; rules.len()];
    let mut entered = vec![false; rules.len()];
    for start in 0..rules.len() {
        let mut stack = vec![(start, false)];
        while let Some((i, leaving)) = stack.pop() {
            if levels[i].is_some() || (entered[i] && !leaving) {
                continue;
            }
            let behind = || {
                touched(&rules[i], false)
                    .into_iter()
                    .filter_map(|k| setters.get(&k))
                    .flatten()
                    .copied()
                    .filter(|s| *s != i)
            };
            if leaving {
                levels[i] = Some(
                    behind()
                        .filter_map(|s| levels[s])
                        .map(|l| l + 1)
                        .max()
                        .unwrap_or(0),
                );
                continue;
            }
            entered[i] = true;
            stack.push((i, true));
            stack.extend(behind().filter(|s| !entered[*s]).map(|s| (s, false)));
        }
    }
    let mut order: Vec<usize> = (0..rules.len()).collect();
    order.sort_by_key(|i| {
        let rule = &rules[*i];
        let action = match rule.action {
            Action::Pass => 0,
            Action::Drop => 1,
            Action::Reject => 2,
            Action::Alert => 3,
        };
        (action, levels[*i].unwrap_or(0), rule.priority, *i)
    });
    order
}

/// Names of bits that a rule changes, or asks for.
fn touched(rule: &Rule, changes: bool) -> Vec<(u8, &str)> {
    let asks = |o: BitOperation| matches!(o, BitOperation::IsSet | BitOperation::IsNotSet);
    let mut out = Vec::new();
    for bit in &rule.bits {
        match bit {
            Bit::Flow { operation, names } if asks(*operation) != changes => {
                out.extend(names.iter().map(|n| (0, n.as_str())));
            }
            Bit::Host {
                operation, name, ..
            } if asks(*operation) != changes => out.push((1, name.as_str())),
            Bit::Counter { name, operator, .. }
                if matches!(operator.as_str(), "=" | "+" | "-") == changes =>
            {
                out.push((2, name.as_str()));
            }
            _ => {}
        }
    }
    out
}

/// Whether a buffer belongs to packets rather than transactions.
pub(super) fn is_of_packets(buffer: Buffer) -> bool {
    matches!(
        buffer,
        Buffer::Payload
            | Buffer::Ipv4Header
            | Buffer::Ipv6Header
            | Buffer::TcpHeader
            | Buffer::UdpHeader
            | Buffer::Icmpv4Header
            | Buffer::Icmpv6Header
    )
}

fn kind(
    rule: &Rule,
    checks: &[Check],
    groups: &[CompiledGroup],
    has_payload: bool,
    tests: &[BitTest],
) -> Kind {
    let of_transactions = groups.iter().any(|g| !is_of_packets(g.buffer))
        || checks.iter().any(Check::needs_transaction);
    if of_transactions {
        return Kind::Transaction(when(rule, groups));
    }
    let on_packets = checks.iter().any(Check::needs_packet) || !groups.is_empty();
    let protocol = rule.header.protocol;
    if has_payload {
        if on_packets || protocol == HeaderProtocol::TcpPacket || rule.flow.stream == Some(false) {
            return Kind::Payload;
        }
        if protocol == HeaderProtocol::TcpStream || rule.flow.stream == Some(true) {
            return Kind::Stream;
        }
        // A place counted from the start is looked for in packets and in the stream, as users of the language expect.
        let placed = rule.groups.iter().flat_map(|g| &g.conditions).any(|c| {
            matches!(c, Condition::Content(Content { offset, depth, starts, .. })
                if offset.is_some() || depth.is_some() || *starts)
        });
        return if placed || !checks.is_empty() {
            Kind::PayloadAndStream
        } else {
            Kind::Stream
        };
    }
    let per_packet =
        on_packets || !checks.is_empty() || !tests.is_empty() || rule.flow.established.is_some();
    let fixed = rule.flow.fragment.is_some() || rule.flow.stream.is_some();
    if !rule.apps.is_empty() {
        return if protocol == HeaderProtocol::App || per_packet || fixed {
            Kind::Packet
        } else {
            Kind::App
        };
    }
    let ports = !(rule.header.source_ports.any && rule.header.destination_ports.any);
    let asks_hosts = rule.bits.iter().any(|b| {
        matches!(
            b,
            Bit::Host {
                operation: BitOperation::IsSet | BitOperation::IsNotSet,
                ..
            }
        )
    });
    let flow = rule.flow.to_server.is_some() || rule.flow.stateless;
    if per_packet
        || fixed
        || ports
        || flow
        || asks_hosts
        || protocol == HeaderProtocol::PacketHeader
    {
        Kind::Packet
    } else {
        Kind::Addresses
    }
}

fn when(rule: &Rule, groups: &[CompiledGroup]) -> When {
    let (mut request, mut response) = (false, false);
    for group in groups {
        match group.buffer.sides() {
            Sides::Request => request = true,
            Sides::Response => response = true,
            Sides::Both => {}
        }
    }
    match rule.flow.to_server {
        Some(true) => request = true,
        Some(false) => response = true,
        None => {}
    }
    match (request, response) {
        (true, true) => When::Together,
        (true, false) => When::One(Direction::ToServer),
        (false, true) => When::One(Direction::ToClient),
        (false, false) => When::Each,
    }
}

fn gate(rule: &Rule, checks: &[Check]) -> Gate {
    let bit = |c: Class| 1_u8 << c as u8;
    let (classes, version) = match rule.header.protocol {
        HeaderProtocol::Tcp | HeaderProtocol::TcpPacket | HeaderProtocol::TcpStream => {
            (bit(Class::Tcp), 0)
        }
        HeaderProtocol::Udp => (bit(Class::Udp), 0),
        HeaderProtocol::Icmp => (bit(Class::Icmpv4) | bit(Class::Icmpv6), 0),
        HeaderProtocol::Icmpv4 => (bit(Class::Icmpv4), 0),
        HeaderProtocol::Icmpv6 => (bit(Class::Icmpv6), 0),
        HeaderProtocol::Sctp => (bit(Class::Sctp), 0),
        HeaderProtocol::App => (bit(Class::Tcp) | bit(Class::Udp), 0),
        HeaderProtocol::Ip | HeaderProtocol::PacketHeader => (0xff, 0),
        HeaderProtocol::Ipv4 => (0xff, 4),
        HeaderProtocol::Ipv6 => (0xff, 6),
    };
    let header = &rule.header;
    Gate {
        classes,
        version,
        to_server: rule.flow.to_server,
        established: rule.flow.established,
        needs_syn: checks.iter().any(Check::needs_syn),
        only_fragment: rule.flow.fragment,
        any_source: header.source.any,
        any_source_port: header.source_ports.any,
        any_destination: header.destination.any,
        any_destination_port: header.destination_ports.any,
        apps: rule.apps.as_slice().into(),
        services: rule.services.as_deref().map(Into::into),
        broken: header.protocol == HeaderProtocol::PacketHeader,
    }
}

/// A shorter pattern leads nowhere: it is in too many buffers, and searching for it would slow down the search for all. Its rule is asked wherever its cheap conditions hold.
const SHORTEST_LEAD: usize = 4;

/// How good a pattern is for finding a rule: rarity of its best window, and its length.
fn worth(bytes: &[u8]) -> i32 {
    rarest_window(bytes, |_| 0).1 + bytes.len().min(24) as i32 * 12
}

/// The pattern that leads to a rule: the one it names, else the rarest of its contents, those of transactions' buffers before those of payloads.
fn lead(rule: &Rule, usable: impl Fn(&Group) -> bool) -> Option<Lead> {
    if let Some(named) = rule.fast_pattern
        && let Some(group) = rule.groups.get(named.group).filter(|g| usable(g))
        && let Some(Condition::Content(content)) = group.conditions.get(named.condition)
        && !content.negated
    {
        let bytes = match named.part {
            Some((from, length)) => content
                .bytes
                .get(usize::from(from)..usize::from(from) + usize::from(length))
                .unwrap_or(&content.bytes),
            None => &content.bytes,
        };
        if bytes.len() >= SHORTEST_LEAD {
            return Some(Lead {
                group: named.group,
                bytes: bytes.to_vec(),
                nocase: content.nocase,
            });
        }
    }
    let mut best: Option<(i32, Lead)> = None;
    for (at, group) in rule.groups.iter().enumerate().filter(|(_, g)| usable(g)) {
        for condition in &group.conditions {
            match condition {
                // What follows is about other bytes.
                Condition::Base64Data => break,
                // The conditions need not hold.
                Condition::Absent(_) => break,
                Condition::Content(c) if !c.negated && c.bytes.len() >= SHORTEST_LEAD => {
                    let of_packets = is_of_packets(group.buffer);
                    let worth = worth(&c.bytes) - if of_packets { 100 } else { 0 };
                    if best.as_ref().is_none_or(|(w, _)| worth > *w) {
                        best = Some((
                            worth,
                            Lead {
                                group: at,
                                bytes: c.bytes.clone(),
                                nocase: c.nocase,
                            },
                        ));
                    }
                }
                _ => {}
            }
        }
    }
    best.map(|(_, lead)| lead).filter(|l| {
        !rule.groups[l.group]
            .conditions
            .iter()
            .any(|c| matches!(c, Condition::Absent(_)))
    })
}

/// The lists, while rules are added to them.
struct Lists {
    engine: Engine,
    addresses: Vec<u32>,
    apps: Vec<u32>,
    packets: [Vec<u32>; CLASSES],
    syn: Vec<u32>,
    payloads: [[Collected; 2]; CLASSES],
    streams: [Collected; 2],
    bare_streams: [Vec<u32>; 2],
    leads: [CollectedLeads; 4],
}

#[derive(Default)]
struct CollectedLeads {
    scans: Vec<(Buffer, Vec<Transform>, Collected)>,
    bare: Vec<(Buffer, u32)>,
    always: Vec<u32>,
}

/// Index in `Ruleset::leads` of the rules that look at both directions, for buffers of one.
pub(super) const TOGETHER: usize = 2;

impl Lists {
    fn new(engine: Engine) -> Lists {
        Lists {
            engine,
            addresses: Vec::new(),
            apps: Vec::new(),
            packets: Default::default(),
            syn: Vec::new(),
            payloads: Default::default(),
            streams: Default::default(),
            bare_streams: Default::default(),
            leads: Default::default(),
        }
    }

    fn add(&mut self, index: u32, rule: &Rule, compiled: &Compiled) {
        let of_payload = |g: &Group| g.buffer == Buffer::Payload && g.transforms.is_empty();
        let directions: &[usize] = match compiled.gate.to_server {
            Some(true) => &[0],
            Some(false) => &[1],
            None => &[0, 1],
        };
        let classes = compiled.gate.classes;
        let has = |class: usize| classes >> class & 1 != 0;
        match compiled.kind {
            Kind::Addresses => self.addresses.push(index),
            Kind::App => self.apps.push(index),
            Kind::Packet => self.on_packets(index, compiled),
            Kind::Payload | Kind::PayloadAndStream | Kind::Stream => {
                let lead = lead(rule, of_payload);
                // TCP packets lead to rules of streams only where they are part of none; those are asked separately.
                let in_packets =
                    |class: usize| class != Class::Tcp as usize || compiled.kind != Kind::Stream;
                match &lead {
                    Some(lead) => {
                        for class in (0..CLASSES).filter(|c| has(*c) && in_packets(*c)) {
                            for d in directions {
                                self.payloads[class][*d].add(&lead.bytes, lead.nocase, index);
                            }
                        }
                    }
                    None => self.on_packets(index, compiled),
                }
                if compiled.kind != Kind::Payload && has(Class::Tcp as usize) {
                    for d in directions {
                        match &lead {
                            Some(lead) => self.streams[*d].add(&lead.bytes, lead.nocase, index),
                            None => self.bare_streams[*d].push(index),
                        }
                    }
                }
            }
            Kind::Transaction(when) => {
                let lists: &[usize] = match when {
                    When::One(d) => &[d.index()][..],
                    When::Each => &[0, 1],
                    When::Together => &[TOGETHER, TOGETHER + 1],
                };
                self.of_transactions(index, rule, lists, when);
                if compiled.payload.is_some() {
                    // Its part in the payload or the stream is noted when it is seen.
                    match lead(rule, of_payload) {
                        Some(lead) => {
                            for d in directions {
                                self.streams[*d].add(&lead.bytes, lead.nocase, index);
                                self.payloads[Class::Udp as usize][*d].add(
                                    &lead.bytes,
                                    lead.nocase,
                                    index,
                                );
                            }
                        }
                        None => {
                            for d in directions {
                                self.bare_streams[*d].push(index);
                            }
                            self.packets[Class::Udp as usize].push(index);
                        }
                    }
                }
            }
        }
    }

    fn on_packets(&mut self, index: u32, compiled: &Compiled) {
        let classes = compiled.gate.classes;
        if compiled.gate.needs_syn && classes >> (Class::Tcp as u8) & 1 != 0 {
            self.syn.push(index);
            return;
        }
        for class in (0..CLASSES).filter(|c| classes >> c & 1 != 0) {
            let of_streams = class == Class::Tcp as usize && compiled.kind == Kind::Stream;
            if !of_streams {
                self.packets[class].push(index);
            }
        }
    }

    fn of_transactions(&mut self, index: u32, rule: &Rule, lists: &[usize], when: When) {
        let usable = |g: &Group| !is_of_packets(g.buffer);
        let absent = |g: &Group| {
            g.conditions
                .iter()
                .any(|c| matches!(c, Condition::Absent(_)))
        };
        let lead = lead(rule, usable);
        // A rule of both directions is led to from the one that its buffer is in; of a buffer that is in both, from its flow's.
        let of = |group: &Group| -> Vec<usize> {
            if when != When::Together {
                return lists.to_vec();
            }
            match (group.buffer.sides(), rule.flow.to_server) {
                (Sides::Request, _) => vec![TOGETHER],
                (Sides::Response, _) => vec![TOGETHER + 1],
                (Sides::Both, Some(true)) => vec![TOGETHER],
                (Sides::Both, Some(false)) => vec![TOGETHER + 1],
                (Sides::Both, None) => lists.to_vec(),
            }
        };
        if let Some(lead) = lead {
            let group = &rule.groups[lead.group];
            for list in of(group) {
                self.leads[list]
                    .scan(group)
                    .add(&lead.bytes, lead.nocase, index);
            }
        } else if let Some(group) = rule.groups.iter().find(|g| usable(g) && !absent(g)) {
            for list in of(group) {
                self.leads[list].bare.push((group.buffer, index));
            }
        } else {
            for list in lists {
                self.leads[*list].always.push(index);
            }
        }
    }

    fn finish(self, ruleset: &mut Ruleset, expressions: &mut Expressions) {
        let engine = self.engine;
        let mut scans = Vec::new();
        let mut most = 0;
        let mut others = 0;
        let mut scan = |collected: Collected, transforms: &[Transform]| -> Option<u32> {
            if collected.patterns.is_empty() {
                return None;
            }
            let patterns: Vec<Pattern<'_>> = collected
                .patterns
                .iter()
                .enumerate()
                .map(|(id, (bytes, nocase, _))| Pattern {
                    bytes,
                    nocase: *nocase,
                    id: id as u32,
                })
                .collect();
            // A set too large for the automaton is searched by the other engine, which takes any.
            let matcher = match Matcher::new(engine, &patterns) {
                Ok(matcher) => matcher,
                Err(_) => {
                    others += 1;
                    Matcher::new(Engine::Prefilter, &patterns).ok()?
                }
            };
            let mut heads = vec![0];
            let mut rules = Vec::new();
            for (_, _, of_pattern) in &collected.patterns {
                rules.extend_from_slice(of_pattern);
                heads.push(rules.len() as u32);
            }
            most = most.max(patterns.len());
            scans.push(Scan {
                matcher,
                changes: changes(transforms, expressions).unwrap_or_default(),
                heads: heads.into(),
                rules: rules.into(),
                longest: patterns.iter().map(|p| p.bytes.len()).max().unwrap_or(0),
            });
            Some(scans.len() as u32 - 1)
        };
        for (class, of_class) in self.payloads.into_iter().enumerate() {
            for (d, collected) in of_class.into_iter().enumerate() {
                ruleset.payloads[class][d] = scan(collected, &[]);
            }
        }
        for (d, collected) in self.streams.into_iter().enumerate() {
            ruleset.streams[d] = scan(collected, &[]);
        }
        for (list, collected) in self.leads.into_iter().enumerate() {
            let leads = &mut ruleset.leads[list];
            leads.scans.resize(Buffer::ALL.len(), Vec::new());
            leads.bare.resize(Buffer::ALL.len(), Vec::new());
            for (buffer, transforms, collected) in collected.scans {
                leads.scans[buffer as usize].extend(scan(collected, &transforms));
            }
            for (buffer, rule) in collected.bare {
                leads.bare[buffer as usize].push(rule);
            }
            leads.always = collected.always;
        }
        ruleset.bare_streams = self.bare_streams;
        ruleset.apps = self.apps;
        ruleset.scans = scans;
        ruleset.most_patterns = most;
        ruleset.others = others;
        let by_address = |list: &[u32]| by_address(list, &ruleset.rules);
        ruleset.addresses = by_address(&self.addresses);
        ruleset.syn = by_address(&self.syn);
        ruleset.packets = self.packets.each_ref().map(|list| by_address(list));
    }
}

impl CollectedLeads {
    fn scan(&mut self, group: &Group) -> &mut Collected {
        let known = self
            .scans
            .iter()
            .position(|(b, t, _)| *b == group.buffer && *t == group.transforms);
        let at = known.unwrap_or_else(|| {
            let new = (group.buffer, group.transforms.clone(), Collected::default());
            self.scans.push(new);
            self.scans.len() - 1
        });
        &mut self.scans[at].2
    }
}

fn by_address(list: &[u32], rules: &[Rule]) -> ByAddress {
    /// A set of more of the address space than this does not help to find its rule.
    const LARGE: f64 = 1.0 / 64.0;
    let mut source = Vec::new();
    let mut destination = Vec::new();
    let mut rest = Vec::new();
    for index in list {
        let header = &rules[*index as usize].header;
        let (s, d) = (share(&header.source), share(&header.destination));
        if s.min(d) > LARGE {
            rest.push(*index);
            continue;
        }
        let (set, mine, other) = if s <= d {
            (&header.source, &mut source, &mut destination)
        } else {
            (&header.destination, &mut destination, &mut source)
        };
        mine.push((set.clone(), *index));
        if header.both_ways {
            other.push((set.clone(), *index));
        }
    }
    ByAddress {
        source: AddressMap::new(&source),
        destination: AddressMap::new(&destination),
        rest: rest.into(),
    }
}
