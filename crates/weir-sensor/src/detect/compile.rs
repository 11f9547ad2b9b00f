//! Rules to a `Ruleset`: what kind each rule is, what of it is decided on the payload and what on other buffers, and which are refused.

use std::sync::Arc;

use crate::buffer::{Buffer, BufferSet, Sides};
use crate::matcher::Engine;
use crate::packet::Direction;
use crate::rules::{
    ACTION_ORDER, Action, ActionOrder, Bit, BitOperation, Condition, Content, Expression,
    Expressions, FirewallPlace, HeaderProtocol, PacketCondition, Reputation, Rule, RuleScript,
    Scope, SourceLocation, Transform,
};

use super::bits::{BitAction, BitTest, Names};
use super::check::Check;
use super::gate::{Gate, Quick, gate};
use super::growth::{Growth, growth};
use super::lists::{Lists, Start};
use super::plan::Plans;
use super::precedence::order;
use super::program::Program;
use super::ruleset::{ByAddress, Leads, Ruleset, Unsupported};
use super::tables::Tables;
use super::transform::Change;

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
    /// Of what is asked with packets: what it does is done to the whole flow.
    pub(super) whole_flow: bool,
    pub(super) gate: Gate,
    pub(super) checks: Arc<[Check]>,
    /// Conditions on the payload of packets or streams.
    pub(super) payload: Option<Program>,
    /// Conditions on other buffers.
    pub(super) groups: Arc<[CompiledGroup]>,
    pub(super) tests: Box<[BitTest]>,
    pub(super) actions: Box<[BitAction]>,
    pub(super) silent: bool,
    /// Nothing more of its flow is looked at.
    pub(super) bypass: bool,
    pub(super) pass: bool,
    /// Nothing is said of its matches.
    pub(super) untold: bool,
    /// It is about events of a transaction and no buffer of it.
    pub(super) of_events: bool,
    /// Its expressions capture what is to be kept.
    pub(super) captures: bool,
    /// What its action is done to, if the rule says so.
    pub(super) scope: Option<Scope>,
    /// It does something beside alerting, so that its matches count even if it is silent.
    pub(super) reaches_over_flows: bool,
    /// What of a growing body it may be asked.
    pub(super) growth: Growth,
    /// It has scripts, or asks for a state that passes: it is asked when its transaction has come to a state, not only when that is whole.
    pub(super) hooked: bool,
    /// Scripts that decide it when all else holds.
    pub(super) scripts: Box<[RuleScript]>,
}

impl Build {
    /// What of a growing body a rule may be asked.
    #[cfg(test)]
    pub(super) fn growth_of(&self, at: usize) -> Growth {
        self.compiled[at].as_ref().expect("compiled").growth
    }
}

impl Compiled {
    /// Takes what is the same from a rule that was compiled before: two rule sets that follow each other have it once.
    fn share(&mut self, before: &Compiled) {
        if self.checks == before.checks {
            self.checks = Arc::clone(&before.checks);
        }
        if self.groups == before.groups {
            self.groups = Arc::clone(&before.groups);
        }
        if let (Some(program), Some(before)) = (&mut self.payload, &before.payload) {
            program.share(before);
        }
    }

    /// Its regular expressions.
    pub(super) fn expressions(&self, each: &mut impl FnMut(&Arc<Expression>)) {
        if let Some(program) = &self.payload {
            program.expressions(each);
        }
        for group in self.groups.iter() {
            group.program.expressions(each);
            for change in &group.changes {
                if let Change::Pcre(expression) = change {
                    each(expression);
                }
            }
        }
    }
}

/// Conditions on a buffer of a transaction or a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CompiledGroup {
    pub(super) buffer: Buffer,
    /// Of which direction, if the rule says so.
    pub(super) way: Option<Direction>,
    pub(super) changes: Box<[Change]>,
    pub(super) program: Program,
    /// `absent`; `true`: or else the conditions hold.
    pub(super) absent: Option<bool>,
}

/// A rule set while rules are added to it. What a rule was compiled from need not be kept, only what it says of itself.
pub(crate) struct Build {
    /// Which rules are decided first.
    pub(crate) actions: ActionOrder,
    reputation: Arc<Reputation>,
    rules: Vec<Arc<Rule>>,
    places: Vec<SourceLocation>,
    compiled: Vec<Result<Compiled, String>>,
    /// What leads to each rule.
    starts: Vec<Start>,
}

/// What rules were compiled to.
pub(crate) struct Built {
    pub(crate) ruleset: Ruleset,
    pub(crate) refused: Vec<Unsupported>,
    /// Of each rule of the set, the how manieth that was added it is.
    pub(crate) order: Vec<usize>,
}

impl Build {
    /// With the scores that `iprep` asks for, and room for so many rules.
    pub(crate) fn new(reputation: Arc<Reputation>, rules: usize) -> Build {
        Build {
            actions: ACTION_ORDER,
            reputation,
            rules: Vec::with_capacity(rules),
            places: Vec::with_capacity(rules),
            compiled: Vec::with_capacity(rules),
            starts: Vec::with_capacity(rules),
        }
    }

    /// Adds a rule. `keep` says what is kept of it. What is the same in a rule of a set that was built before is shared with that.
    pub(crate) fn add(
        &mut self,
        mut rule: Rule,
        expressions: &mut Expressions,
        before: Option<(&Ruleset, usize)>,
        keep: impl FnOnce(&mut Rule),
    ) {
        let place = rule.place.clone();
        let mut compiled = compile(&rule, &self.reputation, expressions);
        let before =
            before.and_then(|(rules, at)| Some((rules.rules.get(at)?, rules.compiled.get(at)?)));
        if let (Ok(compiled), Some((_, before))) = (&mut compiled, before) {
            compiled.share(before);
        }
        let mut start = Start::default();
        if let Ok(compiled) = &compiled {
            start = Start::new(&rule, compiled);
        }
        keep(&mut rule);
        self.rules.push(match before {
            Some((before, _)) if **before == rule => Arc::clone(before),
            _ => Arc::new(rule),
        });
        self.places.push(place);
        self.compiled.push(compiled);
        self.starts.push(start);
    }

    /// The rule that was added so many before it, and where it was written.
    pub(crate) fn added(&self, at: usize) -> Option<(&SourceLocation, &Rule)> {
        Some((self.places.get(at)?, self.rules.get(at)?))
    }

    /// All rules that were added, but those left out.
    pub(crate) fn finish(
        self,
        left_out: impl Fn(usize) -> bool,
        mut expressions: Expressions,
        engine: Engine,
    ) -> Built {
        let mut names = Names::default();
        let mut refused = Vec::new();
        let kept: Vec<usize> = (0..self.rules.len()).filter(|at| !left_out(*at)).collect();
        let rules: Vec<Arc<Rule>> = kept.iter().map(|at| Arc::clone(&self.rules[*at])).collect();
        let mut order: Vec<usize> = order(&rules, &self.actions)
            .into_iter()
            .map(|at| kept[at])
            .collect();
        drop((rules, kept));
        let mut all = self.compiled;
        let mut compiled = Vec::with_capacity(order.len());
        order.retain(|at| {
            let rule = &self.rules[*at];
            let taken = std::mem::replace(&mut all[*at], Err(String::new()));
            match taken.and_then(|compiled| with_bits(compiled, rule, &mut names)) {
                Ok(one) => {
                    compiled.push(one);
                    true
                }
                Err(reason) => {
                    refused.push(Unsupported {
                        gid: rule.gid,
                        sid: rule.sid,
                        place: self.places[*at].clone(),
                        reason,
                    });
                    false
                }
            }
        });
        drop((all, self.places));
        compiled.shrink_to_fit();
        let rules: Vec<Arc<Rule>> = order
            .iter()
            .map(|at| Arc::clone(&self.rules[*at]))
            .collect();
        drop(self.rules);
        let mut lists = Lists::new(engine);
        let mut buffers = BufferSet::default();
        let mut tables = Tables::default();
        for (index, (rule, compiled)) in rules.iter().zip(&compiled).enumerate() {
            match &rule.firewall {
                Some(firewall) => tables.add(index as u32, firewall),
                None => lists.add(index as u32, rule, compiled, &self.starts[order[index]]),
            }
            if compiled.payload.is_some() {
                buffers.insert(Buffer::Payload);
            }
            for group in compiled.groups.iter() {
                buffers.insert(group.buffer);
            }
            for buffer in compiled.checks.iter().filter_map(Check::waits_for) {
                buffers.insert(buffer);
            }
            for script in &compiled.scripts {
                let libraries = script.script.needs.libraries.iter();
                for buffer in libraries.flat_map(|library| library.buffers()) {
                    buffers.insert(*buffer);
                }
                script.buffer.into_iter().for_each(|b| buffers.insert(b));
            }
        }
        drop(self.starts);
        if !tables.is_empty() {
            Tables::buffers().for_each(|buffer| buffers.insert(buffer));
        }
        let quick = (rules.iter())
            .zip(&compiled)
            .map(|(r, c)| Quick::new(r, &c.gate))
            .collect();
        let plans = Plans::new(&rules, &compiled);
        let follows = follows(&rules, &compiled);
        let mut ruleset = Ruleset {
            hooked: compiled.iter().any(|c| c.hooked),
            rules,
            compiled,
            firewall: tables,
            reputation: self.reputation,
            quick,
            scans: Vec::new(),
            addresses: ByAddress::default(),
            apps: Vec::new(),
            packets: Default::default(),
            follows,
            syn: ByAddress::default(),
            payloads: Default::default(),
            streams: Default::default(),
            plans,
            bare_streams: [Vec::new(), Vec::new()],
            leads: std::array::from_fn(|_| Leads::default()),
            buffers,
            flow_bits: names.flow_bits(),
            bit_names: Vec::new(),
            counter_names: Vec::new(),
            most_patterns: 0,
            others: 0,
            profile: false,
            expressions: 0,
        };
        lists.finish(&mut ruleset, &mut expressions);
        ruleset.expressions = expressions.len();
        (ruleset.bit_names, ruleset.counter_names) = names.lists();
        Built {
            ruleset,
            refused,
            order,
        }
    }
}

/// Rules about packets that ask for a bit which a rule about streams sets.
fn follows(rules: &[Arc<Rule>], compiled: &[Compiled]) -> Box<[u32]> {
    let of_stream = |c: &&Compiled| matches!(c.kind, Kind::PayloadAndStream | Kind::Stream);
    let set = compiled.iter().filter(of_stream);
    let mut set: Vec<u32> = set
        .flat_map(|c| c.actions.iter().filter_map(BitAction::sets))
        .collect();
    set.sort_unstable();
    let asks = |(rule, c): &(&Arc<Rule>, &Compiled)| {
        rule.firewall.is_none()
            && matches!(c.kind, Kind::Packet | Kind::Payload)
            && c.tests
                .iter()
                .any(|t| t.wants().iter().any(|bit| set.binary_search(bit).is_ok()))
    };
    let all = rules.iter().zip(compiled).zip(0..);
    all.filter(|(both, _)| asks(both))
        .map(|(_, at)| at)
        .collect()
}

/// Everything of a rule but what it asks and changes in its flow: names have numbers when the order of rules is known.
fn compile(
    rule: &Rule,
    reputation: &Arc<Reputation>,
    expressions: &mut Expressions,
) -> Result<Compiled, String> {
    let checks: Vec<Check> = rule
        .packet
        .iter()
        .map(|c| Check::new(c, reputation))
        .collect::<Result<_, _>>()?;
    let numbers = rule.scripts.iter().flat_map(|s| &s.script.needs.numbers);
    let numbers: Vec<&str> = numbers.map(String::as_str).collect();
    let mut payload: Vec<Condition> = Vec::new();
    let mut decoded: Vec<Condition> = Vec::new();
    let mut groups = Vec::new();
    for group in &rule.groups {
        if group.buffer == Buffer::Payload && group.transforms.is_empty() {
            // All behind `base64_data` is about the decoded bytes: what is about the payload itself goes before it.
            let decodes = |c: &Condition| matches!(c, Condition::Base64Data);
            let list = match group.conditions.iter().any(decodes) {
                true => &mut decoded,
                false => &mut payload,
            };
            list.extend(group.conditions.iter().cloned());
            continue;
        }
        groups.push(CompiledGroup {
            buffer: group.buffer,
            way: group.way,
            changes: changes(&group.transforms, expressions)?,
            program: Program::exporting(&group.conditions, expressions, &numbers)?,
            absent: group.conditions.iter().find_map(|c| match c {
                Condition::Absent(or_else) => Some(*or_else),
                _ => None,
            }),
        });
    }
    payload.append(&mut decoded);
    let streams = rule.scripts.iter().any(|s| s.script.needs.has("stream"));
    let has_payload = !payload.is_empty() || streams;
    let program = Program::exporting(&payload, expressions, &numbers)?;
    let kind = kind(rule, &checks, &groups, has_payload);
    let whole_flow = is_about_flow(rule, kind, &checks, &groups);
    if rule.firewall.is_some() && !rule.scripts.is_empty() {
        return Err("rules of the firewall have no scripts".into());
    }
    if let Some(firewall) = &rule.firewall {
        let of_state = matches!(firewall.place, FirewallPlace::State { .. });
        if of_state != matches!(kind, Kind::Transaction(_)) {
            return Err("a rule about packets asks nothing of transactions".into());
        }
        let flow = rule.flow;
        let asks_flow =
            flow.to_server.is_some() || flow.established.is_some() || flow.stream.is_some();
        if firewall.place == FirewallPlace::PreFlow && (asks_flow || !rule.bits.is_empty()) {
            return Err("before its flow is known a packet has no direction, state or bits".into());
        }
        if of_state && has_payload {
            return Err("what a state of a transaction is asked for is in buffers".into());
        }
    }
    let unlogs = rule.bits.iter().any(|b| matches!(b, Bit::Unlog));
    let of_transactions = rule
        .bits
        .iter()
        .any(|b| matches!(b, Bit::Transaction { .. }));
    if of_transactions && !matches!(kind, Kind::Transaction(_)) {
        return Err(
            "a bit of a transaction is asked for or changed, and the rule is about packets".into(),
        );
    }
    if unlogs && !matches!(kind, Kind::Transaction(_)) {
        return Err("`config` is about a transaction, and the rule is about packets".into());
    }
    let mut conditions = rule.groups.iter().flat_map(|g| &g.conditions);
    let captures = conditions.any(|c| match c {
        Condition::Pcre(p) => !p.negated && !p.captures.is_empty(),
        Condition::Dataset(set) => set.said.is_some(),
        _ => false,
    });
    Ok(Compiled {
        kind,
        whole_flow,
        growth: growth(
            rule,
            kind,
            !checks.is_empty() || !rule.scripts.is_empty(),
            has_payload,
        ),
        hooked: !rule.scripts.is_empty() && checks.iter().any(Check::is_hook)
            || checks.iter().any(Check::is_passing),
        scripts: rule.scripts.as_slice().into(),
        captures,
        of_events: groups.is_empty() && checks.iter().any(Check::is_app_event),
        gate: gate(rule, &checks),
        checks: checks.into(),
        payload: has_payload.then_some(program),
        groups: groups.into(),
        tests: Box::default(),
        actions: Box::default(),
        silent: rule.silent,
        bypass: rule.bypass,
        pass: rule.action == Action::Pass,
        untold: !rule.is_told(),
        scope: rule.scope,
        reaches_over_flows: rule.firewall.is_none()
            && matches!(rule.action, Action::Drop | Action::Reject)
            || rule.bits.iter().any(|b| matches!(b, Bit::Host { .. })),
    })
}

/// With what the rule asks and changes in its flow.
fn with_bits(mut compiled: Compiled, rule: &Rule, names: &mut Names) -> Result<Compiled, String> {
    let (tests, actions) = names.bits(rule)?;
    let reads_hosts = rule.bits.iter().any(|b| {
        matches!(
            b,
            Bit::Host {
                operation: BitOperation::IsSet | BitOperation::IsNotSet,
                ..
            }
        )
    });
    let of_payload = compiled.payload.as_ref().is_some_and(Program::asks_live);
    let asks_live = of_payload || compiled.groups.iter().any(|g| g.program.asks_live());
    if (reads_hosts || asks_live) && (!actions.is_empty() || rule.action == Action::Pass) {
        let what = if asks_live {
            "asks something of a set that rules change"
        } else {
            "asks for a bit of a host"
        };
        return Err(format!(
            "a rule that {what} cannot change its flow: the first is decided over all flows, after the second"
        ));
    }
    if asks_live && rule.firewall.is_some() {
        return Err("a rule of the firewall asks nothing of sets that rules change".into());
    }
    if of_payload && matches!(compiled.kind, Kind::Transaction(_)) {
        return Err(
            "a rule about transactions asks nothing of the payload of a set that rules change"
                .into(),
        );
    }
    compiled.reaches_over_flows |= asks_live;
    (compiled.tests, compiled.actions) = (tests.into(), actions.into());
    Ok(compiled)
}

pub(super) fn changes(
    transforms: &[Transform],
    expressions: &mut Expressions,
) -> Result<Box<[Change]>, String> {
    transforms
        .iter()
        .map(|t| Change::new(t, expressions))
        .collect()
}

/// Whether a buffer belongs to packets rather than transactions.
pub(super) fn is_of_packets(buffer: Buffer) -> bool {
    matches!(
        buffer,
        Buffer::Payload
            | Buffer::EtherHeader
            | Buffer::IgmpHeader
            | Buffer::Ipv4Header
            | Buffer::Ipv6Header
            | Buffer::TcpHeader
            | Buffer::UdpHeader
            | Buffer::Icmpv4Header
            | Buffer::Icmpv6Header
            | Buffer::IpSource
            | Buffer::IpDestination
    )
}

/// What holds of all packets of one direction of a flow alike.
fn is_alike(c: &Check) -> bool {
    matches!(
        c,
        Check::Plain(PacketCondition::Protocol(_) | PacketCondition::Version(_))
            | Check::Reputation(..)
    ) || c.is_of_application()
}

/// Whether what a rule does is done to the whole flow: it asks for addresses or the application, and nothing of the packet itself.
fn is_about_flow(rule: &Rule, kind: Kind, checks: &[Check], groups: &[CompiledGroup]) -> bool {
    match kind {
        Kind::Addresses | Kind::App => true,
        Kind::Packet => {
            let alike = groups.is_empty() && rule.scripts.is_empty() && checks.iter().all(is_alike);
            alike && (rule.header.protocol == HeaderProtocol::App || excludes(rule))
        }
        _ => false,
    }
}

/// Whether a rule asks for addresses and ports alone, one of which its header excludes.
fn excludes(rule: &Rule) -> bool {
    let of_flow = rule.flow.to_server.is_some() || rule.flow.stateless;
    let of_state = rule.flow.established.is_some() || rule.flow.fragment.is_some();
    let excludes = rule.header.source.negated || rule.header.destination.negated;
    excludes && rule.apps.is_empty() && rule.bits.is_empty() && !of_flow && !of_state
}

fn kind(rule: &Rule, checks: &[Check], groups: &[CompiledGroup], has_payload: bool) -> Kind {
    let of_transactions = groups.iter().any(|g| !is_of_packets(g.buffer))
        || checks.iter().any(Check::needs_transaction);
    if of_transactions {
        return Kind::Transaction(when(rule, groups));
    }
    let streams = |s: &RuleScript| s.script.needs.has("stream");
    let on_packets = checks.iter().any(Check::needs_packet)
        || !groups.is_empty()
        || !rule.scripts.is_empty() && !rule.scripts.iter().any(streams);
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
        let free = |c: &Check| c.is_free() || c.is_of_application();
        return if placed || !checks.iter().all(free) {
            Kind::PayloadAndStream
        } else {
            Kind::Stream
        };
    }
    // What holds of all packets of one direction of a flow alike is asked of its first.
    let asks = |b: &Bit| match b {
        Bit::Flow { operation, .. } => {
            matches!(operation, BitOperation::IsSet | BitOperation::IsNotSet)
        }
        Bit::Unlog | Bit::Transaction { .. } => false,
        Bit::Counter { .. } => true,
        Bit::Host { .. } => false,
    };
    let per_packet = !groups.is_empty()
        || !rule.scripts.is_empty()
        || !checks.iter().all(is_alike)
        || rule.bits.iter().any(asks)
        || rule.flow.established.is_some()
        || rule.flow.fragment.is_some();
    if !rule.apps.is_empty() || checks.iter().any(Check::is_of_application) {
        let placed = on_packets || rule.flow.stream.is_some();
        return if protocol == HeaderProtocol::App || per_packet || placed {
            Kind::Packet
        } else {
            Kind::App
        };
    }
    let flow = rule.flow.to_server.is_some() || rule.flow.stateless;
    // An address that a header excludes is asked of every packet, as users of the language count on.
    match per_packet || flow || excludes(rule) {
        true => Kind::Packet,
        false => Kind::Addresses,
    }
}

pub(super) fn when(rule: &Rule, groups: &[CompiledGroup]) -> When {
    let (mut request, mut response) = (false, false);
    for group in groups {
        match (group.buffer.sides(), group.way) {
            (Sides::Request, _) | (Sides::Both, Some(Direction::ToServer)) => request = true,
            (Sides::Response, _) | (Sides::Both, Some(Direction::ToClient)) => response = true,
            (Sides::Both, None) => {}
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
