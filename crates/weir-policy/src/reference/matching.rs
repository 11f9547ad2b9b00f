//! Does a rule match a packet: docs/semantics.md section 2.

use super::dynamic_sets::DynamicSets;
use super::fields::{REACH, View};
use crate::field::{Header, Kind};
use crate::model::{Match, PortName, Rule, Test};

/// Whether all of a rule's requirements and matches hold.
pub(super) fn matches(rule: &Rule, packet: &View<'_>) -> bool {
    packet.classes().contains(rule.requires) && rule.matches.iter().all(|one| holds(one, packet))
}

/// Whether one match holds.
pub(super) fn holds(one: &Match, packet: &View<'_>) -> bool {
    if one.test == Test::Present {
        return presence(one, packet);
    }
    // A value test on what is absent, or has no comparable value, is false, negated or not.
    value_test(one, packet).is_some_and(|outcome| outcome != one.negated)
}

fn presence(one: &Match, packet: &View<'_>) -> bool {
    let info = one.subject.field.info();
    let exists = packet.exists(one.subject);
    match info.kind {
        // Inverted they ask for the header without the bit, the option or the extension header.
        Kind::Is(value) => {
            exists && (packet.number(one.subject) == Some(u128::from(value))) != one.negated
        }
        Kind::TcpOption(_) | Kind::Ip4Option(_) | Kind::ExtHeader(_) => {
            super::fields::header_at(packet.layout, info.header).is_some() && exists != one.negated
        }
        _ => exists != one.negated,
    }
}

/// The outcome of a value test before negation; `None` if the field is absent or has no value to compare.
fn value_test(one: &Match, packet: &View<'_>) -> Option<bool> {
    let info = one.subject.field.info();
    match (&one.test, info.kind) {
        (Test::In(set), _) => packet
            .number(one.subject)
            .map(|number| set.contains(number)),
        (Test::Masked { value, mask }, _) => packet
            .number(one.subject)
            .map(|number| number & u128::from(*mask) == u128::from(*value)),
        (Test::Bytes(bytes), Kind::Payload) => {
            let payload = packet.payload(one.subject.field)?;
            let at = usize::from(one.subject.at);
            let within_reach = packet.payload_start(one.subject.field)? + at <= REACH;
            Some(within_reach && payload.get(at..at + bytes.len()) == Some(bytes))
        }
        (Test::Bytes(bytes), Kind::TcpOption(_)) => {
            Some(packet.option_value(one.subject.option?)?.starts_with(bytes))
        }
        (Test::Port(ports), Kind::InPort) => Some(ports.iter().any(|port| match port {
            PortName::Name(name) => packet.input.port.name == Some(name),
            PortName::Index(index) => packet.input.port.index == *index,
        })),
        (Test::Dynamic(set), _) => {
            let number = packet.number(one.subject)?;
            let has =
                |sets: &DynamicSets| sets.has(set, one.subject.field, number, packet.input.now_ns);
            packet.sets.map_or(Some(false), has)
        }
        (Test::Always, _) => (info.header == Header::Meta).then_some(true),
        _ => None,
    }
}
