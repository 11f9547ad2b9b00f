//! Which rules of a filter are against a packet, from the packet and the configuration alone.
//!
//! Says what `weir trace` shows of a drop. The reason is known by then: only rules that drop for that reason are asked. Nothing is decided
//! here; blocks, tokens and load values are state of the running filter.

use std::net::IpAddr;

use weir_packet::Reason;
use weir_packet::parse::{Fragment, L4, Protocol, Version, parse};
use weir_policy::reference::Input;

use super::list::Entry;
use super::rule::{Action, Addresses, Kind, Ports, Rule, Test};
use super::{Filter, Otherwise};
use crate::request::Judge;

/// What rules ask of a packet.
struct Facts {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: Option<(u16, u16)>,
    is_syn: bool,
    is_fragment: bool,
}

impl Judge for Filter {
    fn why(&self, input: &Input<'_>, reason: Option<Reason>) -> Vec<String> {
        let Some(facts) = Facts::of(input.frame) else {
            return Vec::new();
        };
        if reason == Some(Reason::NotAllowed) {
            debug_assert_eq!(self.default, Otherwise::Drop);
            return vec!["no rule allows it, and the default is drop".to_owned()];
        }
        let drops = |rule: &Rule| {
            matches!(
                (&rule.action, reason),
                (Action::Deny, Some(Reason::Denied))
                    | (Action::Shed { .. }, Some(Reason::Shed))
                    | (Action::Limit(_), Some(Reason::Limited | Reason::Blocked))
                    | (Action::Cookie, Some(Reason::CookieBad))
            )
        };
        let against = |(_, rule): &(usize, &Rule)| drops(rule) && self.matches(rule, &facts);
        (1..)
            .zip(&self.rules)
            .filter(against)
            .map(|(number, rule)| format!("rule {number}: {}", rule.text))
            .collect()
    }
}

impl Facts {
    /// `None` unless it is IP and well formed.
    fn of(frame: &[u8]) -> Option<Facts> {
        let layout = parse(frame).ok()?;
        let ip = layout.ip?;
        let (source, destination) = match ip.version {
            Version::V4 => {
                let at = |at: usize| frame.get(at..)?.first_chunk::<4>().copied();
                (at(ip.at + 12)?.into(), at(ip.at + 16)?.into())
            }
            Version::V6 => {
                let at = |at: usize| frame.get(at..)?.first_chunk::<16>().copied();
                (at(ip.at + 8)?.into(), at(ip.at + 24)?.into())
            }
        };
        let is = |l4: &L4, one: Protocol| l4.protocol == one;
        let l4 = layout.l4.as_ref();
        let word = |at: usize| {
            let bytes = frame.get(at..)?.first_chunk::<2>()?;
            Some(u16::from_be_bytes(*bytes))
        };
        Some(Facts {
            source,
            destination,
            protocol: ip.protocol,
            ports: l4
                .filter(|l4| is(l4, Protocol::Tcp) || is(l4, Protocol::Udp))
                .and_then(|l4| Some((word(l4.at)?, word(l4.at + 2)?))),
            // SYN without ACK.
            is_syn: l4
                .filter(|l4| is(l4, Protocol::Tcp))
                .and_then(|l4| frame.get(l4.at + 13))
                .is_some_and(|flags| flags & 0x12 == 0x02),
            is_fragment: ip.fragment != Fragment::Whole,
        })
    }
}

impl Filter {
    fn matches(&self, rule: &Rule, facts: &Facts) -> bool {
        let kind = |kind: &Kind| match kind {
            Kind::Protocol(number) => facts.protocol == *number,
            Kind::TcpSyn => facts.is_syn,
            Kind::Fragment => facts.is_fragment,
            Kind::Family { is_ip6 } => facts.source.is_ipv6() == *is_ip6,
        };
        let port = |test: &Option<Test<Ports>>, port: Option<u16>| match (test, port) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(test), Some(port)) => holds(test, |(low, high)| (*low..=*high).contains(&port)),
        };
        let side = |test: &Option<Test<Addresses>>, address: IpAddr, port: Option<u16>| {
            let is_there = |entry: &Entry| {
                entry.prefix.contains(address)
                    && entry.only.protocol.is_none_or(|p| p == facts.protocol)
                    && entry.only.port.is_none_or(|p| port == Some(p))
            };
            let one = |one: &Addresses| match one {
                Addresses::Prefix(prefix) => prefix.contains(address),
                Addresses::Set(name) => {
                    let sets = self.sets.iter().filter(|set| set.name == *name);
                    sets.flat_map(|set| &set.entries).any(is_there)
                }
            };
            test.as_ref().is_none_or(|test| holds(test, one))
        };
        let (from_port, to_port) = (facts.ports.map(|p| p.0), facts.ports.map(|p| p.1));
        rule.kinds.iter().all(|test| holds(test, kind))
            && port(&rule.from_port, from_port)
            && port(&rule.to_port, to_port)
            && side(&rule.from, facts.source, from_port)
            && side(&rule.to, facts.destination, to_port)
    }
}

fn holds<T>(test: &Test<T>, one: impl Fn(&T) -> bool) -> bool {
    test.any.iter().any(one) != test.is_negated
}

#[cfg(test)]
mod tests {
    use weir_packet::build::Frame;

    use super::super::rule::parse as rule;
    use super::*;

    #[test]
    fn rules_that_drop_for_the_reason_are_named() {
        let filter = Filter {
            rules: ["deny udp to-port 53", "deny udp", "allow from 10.0.0.0/8"]
                .map(|text| rule(text).expect(text))
                .into(),
            ..Filter::default()
        };
        let [a, b] = [1, 2].map(|host| [192, 0, 2, host]);
        let frame = Frame::new().ip4(a, b).udp(1000, 53).build();
        let input = Input::new(&frame);
        assert_eq!(
            filter.why(&input, Some(Reason::Denied)),
            ["rule 1: deny udp to-port 53", "rule 2: deny udp"]
        );
        assert_eq!(filter.why(&input, Some(Reason::Limited)), [""; 0]);
        let other = Frame::new().ip4(a, b).udp(1000, 54).build();
        assert_eq!(
            filter.why(&Input::new(&other), Some(Reason::Denied)),
            ["rule 2: deny udp"]
        );
    }
}
