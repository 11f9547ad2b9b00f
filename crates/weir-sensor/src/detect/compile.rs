//! Rules to a `Ruleset`: what kind each rule is, what of it is decided on the payload and what on other buffers, and which are refused.

use std::sync::Arc;

use crate::buffer::{Buffer, BufferSet, Sides};
use crate::matcher::Engine;
use crate::packet::Direction;
use crate::rules::{
    Action, Bit, BitOperation, Condition, Content, Expressions, HeaderProtocol, PacketCondition,
    Reputation, Rule, Transform,
};

use super::bits::{BitAction, BitTest, Names};
use super::check::Check;
use super::gate::{Gate, Quick, gate};
use super::lists::Lists;
use super::plan::Plans;
use super::precedence::order;
use super::program::Program;
use super::ruleset::{ByAddress, Leads, Ruleset, Unsupported};
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
    /// It is about events of a transaction and no buffer of it.
    pub(super) of_events: bool,
    /// The sequencer has something to do for it even if it is silent.
    pub(super) reaches_over_flows: bool,
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

/// What is known of names and expressions while rules are compiled.
pub(super) struct Build {
    expressions: Expressions,
    reputation: Arc<Reputation>,
    names: Names,
}

impl Build {
    pub(super) fn new(expressions: Expressions, reputation: Arc<Reputation>) -> Build {
        Build {
            expressions,
            reputation,
            names: Names::default(),
        }
    }

    pub(super) fn ruleset(
        mut self,
        rules: Vec<Rule>,
        engine: Engine,
    ) -> (Ruleset, Vec<Unsupported>) {
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
        let plans = Plans::new(&rules, &compiled);
        let mut ruleset = Ruleset {
            rules,
            compiled,
            quick,
            scans: Vec::new(),
            addresses: ByAddress::default(),
            apps: Vec::new(),
            packets: Default::default(),
            syn: ByAddress::default(),
            payloads: Default::default(),
            streams: Default::default(),
            plans,
            bare_streams: [Vec::new(), Vec::new()],
            leads: std::array::from_fn(|_| Leads::default()),
            buffers,
            flow_bits: self.names.flow_bits(),
            bit_names: Vec::new(),
            counter_names: Vec::new(),
            most_patterns: 0,
            others: 0,
            expressions: 0,
        };
        lists.finish(&mut ruleset, &mut self.expressions);
        ruleset.expressions = self.expressions.len();
        (ruleset.bit_names, ruleset.counter_names) = self.names.lists();
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
        let program = Program::new(&payload, &mut self.expressions)?;
        let (tests, actions) = self.names.bits(rule)?;
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
            of_events: groups.is_empty() && checks.iter().any(Check::is_app_event),
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
    // What holds of all packets of one direction of a flow alike is asked of its first.
    let alike = |c: &Check| {
        matches!(
            c,
            Check::Plain(PacketCondition::Protocol(_) | PacketCondition::Version(_))
                | Check::Reputation(..)
        )
    };
    let counts = rule.bits.iter().any(|b| matches!(b, Bit::Counter { .. }));
    let per_packet = !groups.is_empty()
        || !checks.iter().all(alike)
        || !tests.is_empty()
        || counts
        || rule.flow.established.is_some()
        || rule.flow.fragment.is_some();
    if !rule.apps.is_empty() {
        let placed = on_packets || rule.flow.stream.is_some();
        return if protocol == HeaderProtocol::App || per_packet || placed {
            Kind::Packet
        } else {
            Kind::App
        };
    }
    let flow = rule.flow.to_server.is_some() || rule.flow.stateless;
    // An address that a header excludes is asked of every packet, as users of the language count on.
    let excludes = rule.header.source.negated || rule.header.destination.negated;
    match per_packet || flow || excludes {
        true => Kind::Packet,
        false => Kind::Addresses,
    }
}

pub(super) fn when(rule: &Rule, groups: &[CompiledGroup]) -> When {
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
