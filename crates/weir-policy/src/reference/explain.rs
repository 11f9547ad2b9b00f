//! Why a rule matches a packet or not: `weir explain`.
//!
//! Asks the same questions as matching and keeps every answer. What connections add (docs/semantics.md section 7) is taken from
//! what the reference then makes of the packet, not decided again. The result is data; one line of text per rule comes from
//! `Display`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use weir_packet::Reason;
use weir_packet::parse::parse;

use super::dynamic_sets::DynamicSets;
use super::fields::{Clock, View};
use super::{ConnectionState, Input, Outcome, Part, Reference, connections, matching};
use crate::field::{Field, Kind};
use crate::model::{Classes, Match, Policy, PortName, Ranges, Subject, Test};
use crate::names::name_of;
use crate::value::{mac_text, time_of_day_text};

/// What one rule made of a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleExplanation {
    /// Rule id.
    pub rule: u32,
    /// Name given by the user.
    pub name: Option<String>,
    /// Whether it counts as matching.
    pub matched: bool,
    /// What decided that.
    pub decided: Decided,
    /// Every requirement and every match, in this order.
    pub checks: Vec<Check>,
}

/// What decides whether a rule counts as matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// Its checks: all hold, or not.
    ByChecks,
    /// A stateful rule's checks all hold, and the packet opens a connection with it.
    Opens,
    /// The packet's connection was opened with it, or without it.
    ByConnection,
    /// A stateful rule's checks all hold, but the packet has no connection and may open none.
    MayNotOpen,
}

/// One condition of a rule and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The condition.
    pub checked: Checked,
    /// Whether it holds.
    pub holds: bool,
    /// What the packet has there.
    pub found: Found,
}

/// A condition of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// The rule speaks of this header or tag.
    Class(&'static str),
    /// A match.
    Match(Match),
}

/// What a packet has where a condition looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No such header, option or tag.
    Absent,
    /// It is there; nothing more was asked.
    Present,
    /// It is there and is this number.
    Number(u128),
    /// These bytes; of a payload as many as were compared, or to its end.
    Bytes(Vec<u8>),
    /// An option whose value has a length at which it cannot be compared.
    Incomparable,
    /// A port.
    Port {
        /// Its name, if known.
        name: Option<String>,
        /// Its index.
        index: u32,
    },
}

impl Reference {
    /// Runs the policy over the next packet, and explains every rule.
    ///
    /// # Errors
    /// In the second part the reason why the packet is dropped before any rule sees it.
    pub fn explain(&mut self, input: Input<'_>) -> (Outcome, Result<Vec<RuleExplanation>, Reason>) {
        // Rules see sets as they were before the packet.
        let sets = self.sets.clone();
        let outcome = self.run(input);
        let refused = outcome
            .reasons
            .iter()
            .find(|reason| connections::REFUSALS.contains(reason));
        if let Some(&reason) = refused {
            return (outcome, Err(reason));
        }
        let mut rules = explain_in(&self.policy, &input, outcome.state, Some(&sets));
        for (explained, rule) in rules.iter_mut().flatten().zip(&self.policy.rules) {
            if !rule.stateful {
                continue;
            }
            let holds = explained.matched;
            explained.matched = outcome.matched.contains(&rule.id);
            explained.decided = match outcome.connection {
                Some(Part::Forward | Part::Reverse | Part::Error) => Decided::ByConnection,
                Some(Part::Opened) if holds => Decided::Opens,
                None if holds && !explained.matched => Decided::MayNotOpen,
                Some(Part::Opened) | None => Decided::ByChecks,
            };
        }
        (outcome, rules)
    }
}

/// Explains every rule of a policy for one packet, as if it were alone: connections are nothing one packet can tell.
///
/// # Errors
/// The reason why the packet is dropped before any rule sees it.
pub fn explain(policy: &Policy, input: &Input<'_>) -> Result<Vec<RuleExplanation>, Reason> {
    explain_in(policy, input, None, None)
}

/// For a packet that is in this state.
fn explain_in(
    policy: &Policy,
    input: &Input<'_>,
    state: Option<ConnectionState>,
    sets: Option<&DynamicSets>,
) -> Result<Vec<RuleExplanation>, Reason> {
    let layout = parse(input.frame).map_err(|malformed| malformed.reason)?;
    let packet = View {
        input,
        layout: &layout,
        state,
        sets,
        clock: Clock {
            offset_ns: 0,
            timezone: policy.connections.timezone,
        },
    };
    Ok(policy
        .rules
        .iter()
        .map(|rule| {
            let required = CLASSES
                .iter()
                .filter(|(class, _)| rule.requires.contains(*class))
                .map(|&(class, name)| {
                    let holds = packet.classes().contains(class);
                    let found = if holds { Found::Present } else { Found::Absent };
                    Check {
                        checked: Checked::Class(name),
                        holds,
                        found,
                    }
                });
            let matches = rule.matches.iter().map(|one| Check {
                checked: Checked::Match(one.clone()),
                holds: matching::holds(one, &packet),
                found: found(one, &packet),
            });
            let checks: Vec<Check> = required.chain(matches).collect();
            let matched = matching::matches(rule, &packet);
            RuleExplanation {
                rule: rule.id,
                name: rule.name.clone(),
                matched,
                decided: Decided::ByChecks,
                checks,
            }
        })
        .collect())
}

const CLASSES: [(Classes, &str); 10] = [
    (Classes::IP4, "IPv4 header"),
    (Classes::IP6, "IPv6 header"),
    (Classes::TCP, "TCP header"),
    (Classes::UDP, "UDP header"),
    (Classes::ICMP, "ICMP header"),
    (Classes::ICMP6, "ICMPv6 header"),
    (Classes::VLAN, "VLAN tag"),
    (Classes::VLAN2, "second VLAN tag"),
    (Classes::IP6_FRAG, "IPv6 fragment header"),
    (Classes::PORTS, "ports"),
];

fn found(one: &Match, packet: &View<'_>) -> Found {
    let subject = one.subject;
    let kind = subject.field.info().kind;
    if kind == Kind::InPort {
        let port = packet.input.port;
        return Found::Port {
            name: port.name.map(str::to_owned),
            index: port.index,
        };
    }
    if !packet.exists(subject) {
        return Found::Absent;
    }
    match (&one.test, kind) {
        (Test::Present, Kind::Is(_))
        | (Test::In(_) | Test::Masked { .. } | Test::Dynamic(_), _) => packet
            .number(subject)
            .map_or(Found::Incomparable, Found::Number),
        (Test::Bytes(bytes), Kind::Payload) => {
            let payload = packet.payload(subject.field).unwrap_or_default();
            let start = usize::from(subject.at).min(payload.len());
            let end = (start + bytes.len()).min(payload.len());
            Found::Bytes(payload[start..end].to_vec())
        }
        (Test::Bytes(_), _) => subject
            .option
            .and_then(|kind| packet.option_value(kind))
            .map_or(Found::Incomparable, |value| Found::Bytes(value.to_vec())),
        _ => Found::Present,
    }
}

impl fmt::Display for RuleExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.rule)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        match (self.decided, self.matched) {
            (Decided::ByChecks, true) => return f.write_str(" matches"),
            (Decided::Opens, _) => return f.write_str(" matches: it opens a connection"),
            (Decided::ByConnection, true) => {
                return f.write_str(" counts: the packet's connection was opened with it");
            }
            (Decided::ByConnection, false) => {
                return f
                    .write_str(" does not count: the packet's connection was opened without it");
            }
            (Decided::MayNotOpen, _) => {
                return f.write_str(
                    " does not count: the packet belongs to no connection and may open none",
                );
            }
            (Decided::ByChecks, false) => {}
        }
        f.write_str(" does not match")?;
        let failed = self.checks.iter().filter(|check| !check.holds);
        for (i, check) in failed.enumerate() {
            write!(f, "{}{check}", if i == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = match &self.checked {
            Checked::Class(name) if self.holds => {
                return write!(f, "the packet has: {name}");
            }
            Checked::Class(name) => return write!(f, "the packet has no {name}"),
            Checked::Match(one) => one,
        };
        write!(f, "{}", Name(one.subject))?;
        match &self.found {
            Found::Absent => return f.write_str(" is absent"),
            Found::Present => f.write_str(" is present")?,
            Found::Number(number) => write!(f, " is {}", Value(one.subject.field, *number))?,
            Found::Bytes(bytes) => write!(f, " is {}", Hex(bytes))?,
            Found::Incomparable => return f.write_str(" has a value of another length"),
            Found::Port {
                name: Some(name), ..
            } => write!(f, " is {name}")?,
            Found::Port { name: None, index } => write!(f, " is {index}")?,
        }
        // The value is in the set if the check holds and is not inverted, or the other way round.
        let inside = self.holds != one.negated;
        match &one.test {
            Test::Present | Test::Always => Ok(()),
            Test::In(set) => write!(
                f,
                ", {}in {}",
                if inside { "" } else { "not " },
                Set(one.subject.field, set)
            ),
            Test::Masked { value, mask } => {
                let not = if inside { "" } else { "not " };
                write!(f, ", of its bits x{mask:x} {not}x{value:x}")
            }
            Test::Dynamic(set) => {
                write!(f, ", {}in @{}", if inside { "" } else { "not " }, set.name)
            }
            Test::Bytes(bytes) => {
                write!(f, ", {} {}", if inside { "as" } else { "not" }, Hex(bytes))
            }
            Test::Port(ports) => {
                let names: Vec<String> = ports
                    .iter()
                    .map(|port| match port {
                        PortName::Name(name) => name.clone(),
                        PortName::Index(index) => index.to_string(),
                    })
                    .collect();
                write!(
                    f,
                    ", {}in {{{}}}",
                    if inside { "" } else { "not " },
                    names.join(", ")
                )
            }
        }
    }
}

/// A subject as it is written.
struct Name(Subject);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.0.field.info();
        f.write_str(info.name)?;
        match (info.kind, self.0.option) {
            (Kind::TcpOption(None) | Kind::Ip4Option(None), Some(kind)) => write!(f, " {kind}"),
            (Kind::Payload, _) if self.0.at != 0 => write!(f, "[{}]", self.0.at),
            _ => Ok(()),
        }
    }
}

/// A number as its field is written.
struct Value(Field, u128);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.info().kind {
            Kind::Addr4 => Ipv4Addr::from(self.1 as u32).fmt(f),
            Kind::Addr6 => Ipv6Addr::from(self.1).fmt(f),
            Kind::Mac => f.write_str(&mac_text(self.1)),
            Kind::CtState => match name_of(self.0, self.1) {
                Some(name) => f.write_str(&name),
                None => self.1.fmt(f),
            },
            Kind::NetProto => write!(f, "ip{}", self.1),
            _ if self.0.info().name == "hour" => f.write_str(&time_of_day_text(self.1)),
            _ if self.0.info().name == "day" => {
                f.write_str(&name_of(self.0, self.1).unwrap_or_default())
            }
            _ => match name_of(self.0, self.1) {
                Some(name) => write!(f, "{} ({name})", self.1),
                None => self.1.fmt(f),
            },
        }
    }
}

/// A set of numbers; of a long one the first few.
struct Set<'a>(Field, &'a Ranges);

impl fmt::Display for Set<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let intervals = self.1.intervals();
        f.write_str("{")?;
        for (i, &(lo, hi)) in intervals.iter().take(SHOWN).enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, Value(self.0, lo))?;
            if hi != lo {
                write!(f, "-{}", Value(self.0, hi))?;
            }
        }
        if intervals.len() > SHOWN {
            write!(f, ", and {} more", intervals.len() - SHOWN)?;
        }
        f.write_str("}")
    }
}

/// Bytes as a literal.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("empty");
        }
        f.write_str("x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
