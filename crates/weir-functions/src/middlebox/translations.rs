//! What stateful rules make of addresses, for those who hand the packets to a stack and must know whether it takes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_policy::model::{Match, PortName, Rule, Target, Test};

/// An address that a rule writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Line of the rule.
    pub line: u32,
    /// The first address of its pool.
    pub address: IpAddr,
    /// The source becomes that, or else the destination.
    pub is_source: bool,
    /// What the rule says of the interface that packets come in by: one of these, or none of these.
    comes_in: Vec<(bool, Vec<PortName>)>,
}

impl Translation {
    /// Whether the rule's packets can come in by an interface with one of these names and this index.
    pub fn comes_in_by(&self, names: &[&str], index: u32) -> bool {
        let is_named = |name: &PortName| match name {
            PortName::Name(text) => names.contains(&text.as_str()),
            PortName::Index(number) => *number == index,
        };
        self.comes_in
            .iter()
            .all(|(negated, all)| all.iter().any(is_named) != *negated)
    }
}

/// Addresses that rules write, in their order.
pub fn of(rules: &[Rule]) -> Vec<Translation> {
    let all = rules
        .iter()
        .flat_map(|rule| rule.targets.iter().map(move |target| (rule, target)));
    let one = |(rule, target): (&Rule, &Target)| {
        let Target::Map { field, pool } = target else {
            return None;
        };
        let first = pool.nth(0)?;
        let four = |number: u128| IpAddr::from(Ipv4Addr::from(number as u32));
        let (address, is_source) = match field.info().name {
            "ip-saddr" => (four(first), true),
            "ip-daddr" => (four(first), false),
            "ip6-saddr" => (Ipv6Addr::from(first).into(), true),
            "ip6-daddr" => (Ipv6Addr::from(first).into(), false),
            _ => return None,
        };
        Some(Translation {
            line: rule.line,
            address,
            is_source,
            comes_in: rule.matches.iter().filter_map(interface).collect(),
        })
    };
    all.filter_map(one).collect()
}

fn interface(one: &Match) -> Option<(bool, Vec<PortName>)> {
    match &one.test {
        Test::Port(names) if one.subject.field.info().name == "in" => {
            Some((one.negated, names.clone()))
        }
        _ => None,
    }
}
