//! Tests of the reference semantics, by section of docs/semantics.md. Policies are built from the model directly, so that
//! the parser is not part of what is tested. Expected values are computed by hand or by recomputing whole checksums.

mod connections;
mod corpora;
mod explain;
mod frames;
mod limits;
mod matching;
mod options;
mod properties;
mod rewrite;
mod time;
mod verdict;

use weir_packet::Reason;
use weir_packet::build::Frame;
use weir_packet::checksum::{fold, sum};
use weir_packet::parse::{Fragment, Protocol, Version, parse};

use super::{ChecksumMode, Input, Options, Outcome, Reference};
use crate::field::{Field, Header, Kind};
use crate::model::{Classes, Match, Policy, Ranges, Rule, Subject, Target, Test};

pub(super) fn field(name: &str) -> Field {
    Field::find(name).unwrap_or_else(|| panic!("no field {name}"))
}

/// A subject as written: `tcp-opt 8`, `ip-payload[4]`, `tcp-dport`.
pub(super) fn subject(text: &str) -> Subject {
    let (name, at) = match text.split_once('[') {
        Some((name, at)) => (name, at.trim_end_matches(']').parse().expect("offset")),
        None => (text, 0),
    };
    let (name, number) = match name.split_once(' ') {
        Some((name, number)) => (name, Some(number.parse().expect("kind"))),
        None => (name, None),
    };
    let field = field(name);
    let option = match field.info().kind {
        Kind::TcpOption(kind) | Kind::Ip4Option(kind) => number.or(kind),
        _ => None,
    };
    Subject { field, option, at }
}

/// `tcp-dport`, `! tcp-dport`.
pub(super) fn present(text: &str) -> Match {
    matching_test(text, Test::Present)
}

/// A value test by closed intervals.
pub(super) fn within(text: &str, intervals: &[(u128, u128)]) -> Match {
    matching_test(text, Test::In(Ranges::new(intervals.to_vec()).into()))
}

pub(super) fn is(text: &str, value: u128) -> Match {
    within(text, &[(value, value)])
}

pub(super) fn bytes(text: &str, value: &[u8]) -> Match {
    matching_test(text, Test::Bytes(value.to_vec()))
}

pub(super) fn matching_test(text: &str, test: Test) -> Match {
    let (negated, text) = text
        .strip_prefix("! ")
        .map_or((false, text), |rest| (true, rest));
    Match {
        negated,
        subject: subject(text),
        test,
    }
}

pub(super) fn set(name: &str, value: u128) -> Target {
    Target::Set {
        field: field(name),
        value,
    }
}

pub(super) fn set_payload(text: &str, bytes: &[u8]) -> Target {
    Target::SetPayload {
        subject: subject(text),
        bytes: bytes.to_vec(),
    }
}

/// A policy of rules given by their matches and targets, with the required classes of section 2.
pub(super) fn policy(rules: Vec<(Vec<Match>, Vec<Target>)>) -> Policy {
    let rules = (1..).zip(rules).map(|(id, (matches, targets))| {
        let requires = required(&matches, &targets);
        Rule {
            id,
            name: None,
            line: id,
            file: "".into(),
            included: false,
            stateful: false,
            timeout_ns: None,
            mapping: None,
            helper: None,
            requires,
            matches,
            targets,
        }
    });
    Policy {
        rules: rules.collect(),
        ..Policy::default()
    }
}

fn required(matches: &[Match], targets: &[Target]) -> Classes {
    let class = |field: Field| match field.info().header {
        Header::Meta | Header::Skb | Header::Clock | Header::Ether | Header::EtherAddr => {
            Classes::NONE
        }
        Header::Ports => Classes::PORTS,
        Header::Vlan => Classes::VLAN,
        Header::Vlan2 => Classes::VLAN2,
        Header::Ip4 => Classes::IP4,
        Header::Ip6 => Classes::IP6,
        Header::Ip6Frag => Classes::IP6_FRAG,
        Header::Icmp => Classes::ICMP,
        Header::Icmp6 => Classes::ICMP6,
        Header::Udp => Classes::UDP,
        Header::Tcp => Classes::TCP,
    };
    let of_match = |one: &Match| {
        let kind = one.subject.field.info().kind;
        let asks_for_header = matches!(
            kind,
            Kind::Is(_) | Kind::TcpOption(_) | Kind::Ip4Option(_) | Kind::ExtHeader(_)
        );
        if one.negated && one.test == Test::Present && !asks_for_header {
            return Classes::NONE;
        }
        class(one.subject.field)
    };
    let of_target = |target: &Target| match target {
        Target::Set { field, .. } => class(*field),
        Target::SetPayload { subject, .. } => class(subject.field),
        Target::SetOption { .. } | Target::AddOption { .. } | Target::Strip(_) => Classes::TCP,
        Target::Map { field, .. } | Target::Shuffle { field } => class(*field),
        Target::PopTag => Classes::VLAN,
        Target::SetMeta { .. } | Target::PushTag { .. } | Target::DecrementTtl => Classes::NONE,
        Target::Drop(_) | Target::Accept | Target::Log { .. } | Target::ChangeSet(_) => {
            Classes::NONE
        }
    };
    matches
        .iter()
        .map(of_match)
        .chain(targets.iter().map(of_target))
        .fold(Classes::NONE, Classes::union)
}

pub(super) fn all() -> Vec<Match> {
    vec![matching_test("all", Test::Always)]
}

/// Runs targets on every frame that has what they rewrite.
pub(super) fn run(frame: &[u8], targets: Vec<Target>) -> Outcome {
    run_with(frame, targets, Options::default())
}

pub(super) fn run_with(frame: &[u8], targets: Vec<Target>, options: Options) -> Outcome {
    Reference::new(policy(vec![(all(), targets)]), options).run(Input::new(frame))
}

pub(super) fn offloaded() -> Options {
    Options {
        checksums: ChecksumMode::Offloaded,
        ..Options::default()
    }
}

/// Whether one match, as the only one of a rule, lets the rule match.
pub(super) fn holds(one: Match, frame: &[u8]) -> bool {
    let mut reference = Reference::new(
        policy(vec![(vec![one], vec![Target::Accept])]),
        Options::default(),
    );
    !reference.run(Input::new(frame)).matched.is_empty()
}

pub(super) fn ip4() -> Frame {
    Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2])
}

pub(super) fn ip6() -> Frame {
    Frame::new().ip6(address6(1), address6(2))
}

pub(super) fn address6(host: u8) -> [u8; 16] {
    [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]
}

/// What is left when the L4 checksum is verified over the whole segment: 0 if it is right, else by how much it is off
/// modulo 0xffff. `None` without one.
pub(super) fn checksum_error(frame: &[u8]) -> Option<u16> {
    let layout = parse(frame).ok()?;
    let (ip, l4) = (layout.ip?, layout.l4?);
    let end = if l4.protocol == Protocol::Udp && ip.fragment != Fragment::First {
        l4.payload.end
    } else {
        ip.payload.end
    };
    let addresses = match ip.version {
        Version::V4 => sum(&frame[ip.at + 12..ip.at + 20]),
        Version::V6 => sum(&frame[ip.at + 8..ip.at + 40]),
    };
    let pseudo = match l4.protocol {
        Protocol::Icmp => 0,
        _ => addresses + u64::from(ip.protocol) + (end - l4.at) as u64,
    };
    Some(!fold(pseudo + sum(&frame[l4.at..end])) % 0xffff)
}

/// The notes of an outcome by name.
pub(super) fn notes(outcome: &Outcome) -> Vec<&'static str> {
    outcome
        .reasons
        .iter()
        .map(|reason: &Reason| reason.name())
        .collect()
}

/// The bytes of the TCP options.
pub(super) fn tcp_options(frame: &[u8]) -> Vec<u8> {
    let l4 = parse(frame).expect("well formed").l4.expect("TCP");
    frame[l4.at + 20..l4.at + l4.header_len].to_vec()
}
