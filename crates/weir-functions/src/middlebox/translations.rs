//! What rules make of addresses, for those who hand the packets to a stack and must know whether it takes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use weir_policy::model::{Match, PortName, Ranges, Rule, Target, Test};

/// Addresses that a rule writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Line of the rule.
    pub line: u32,
    /// The first address of its pool.
    pub address: IpAddr,
    /// The source becomes one of them, or else the destination.
    pub is_source: bool,
    /// Whether answers are translated back.
    pub is_stateful: bool,
    /// All addresses of the pool, as numbers.
    pool: Arc<Ranges>,
    /// What the rule says of the destination: in one of these, or in none of them.
    destinations: Vec<(bool, Arc<Ranges>)>,
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

    /// Whether the rule writes this address.
    pub fn writes(&self, address: IpAddr) -> bool {
        self.is_of_family(address) && self.pool.contains(number(address))
    }

    /// Whether the rule matches packets to this address, as far as it says.
    pub fn matches_destination(&self, address: IpAddr) -> bool {
        let number = number(address);
        self.is_of_family(address)
            && self
                .destinations
                .iter()
                .all(|(negated, set)| set.contains(number) != *negated)
    }

    /// First and last address of each interval of the pool, of very many the first few.
    pub fn ends(&self) -> impl Iterator<Item = IpAddr> {
        const MOST: usize = 16;
        let ends = self.pool.intervals().iter().flat_map(|&(lo, hi)| [lo, hi]);
        ends.take(MOST).map(|n| address(n, self.address.is_ipv6()))
    }

    fn is_of_family(&self, address: IpAddr) -> bool {
        address.is_ipv6() == self.address.is_ipv6()
    }
}

/// Addresses that rules write where packets come in, in their order. A rule that names `out` holds behind the stack, but for connections
/// that a helper expects: the peer opens them where it comes in, so what answers it is translated where that comes in.
pub fn of<'r>(rules: impl IntoIterator<Item = &'r Rule>) -> Vec<Translation> {
    let rules: Vec<&Rule> = rules.into_iter().collect();
    let has_helper = rules.iter().any(|rule| rule.helper.is_some());
    let names_out = |rule: &&Rule| {
        let mut fields = rule.matches.iter().map(|one| one.subject.field);
        fields.any(|field| field.info().name == "out")
    };
    let all = rules
        .into_iter()
        .filter(|rule| !names_out(rule) || has_helper && rule.stateful)
        .flat_map(|rule| rule.targets.iter().map(move |target| (rule, target)));
    all.filter_map(|(rule, target)| {
        let (field, pool) = match target {
            Target::Map { field, pool } => (*field, Arc::clone(pool)),
            Target::Set { field, value } => (*field, Arc::new(Ranges::new(vec![(*value, *value)]))),
            _ => return None,
        };
        let (is_source, is_ipv6) = match field.info().name {
            "ip-saddr" => (true, false),
            "ip-daddr" => (false, false),
            "ip6-saddr" => (true, true),
            "ip6-daddr" => (false, true),
            _ => return None,
        };
        let destination = if is_ipv6 { "ip6-daddr" } else { "ip-daddr" };
        let destinations = rule.matches.iter().filter_map(|one| match &one.test {
            Test::In(set) if one.subject.field.info().name == destination => {
                Some((one.negated, Arc::clone(set)))
            }
            _ => None,
        });
        Some(Translation {
            line: rule.line,
            address: address(pool.nth(0)?, is_ipv6),
            is_source,
            is_stateful: rule.stateful,
            pool,
            destinations: destinations.collect(),
            comes_in: rule.matches.iter().filter_map(interface).collect(),
        })
    })
    .collect()
}

fn address(number: u128, is_ipv6: bool) -> IpAddr {
    match is_ipv6 {
        false => Ipv4Addr::from(number as u32).into(),
        true => Ipv6Addr::from(number).into(),
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(u32::from(four)),
        IpAddr::V6(six) => u128::from(six),
    }
}

fn interface(one: &Match) -> Option<(bool, Vec<PortName>)> {
    match &one.test {
        Test::Port(names) => match one.subject.field.info().name {
            "in" => Some((one.negated, names.clone())),
            // Only rules of connections with a helper get here: their answers come in by any other interface.
            "out" => Some((!one.negated, names.clone())),
            _ => None,
        },
        _ => None,
    }
}
