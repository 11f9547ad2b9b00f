//! Conditions on packets: the common model of all formats.
//!
//! A condition is a conjunction: fields that are there and have one of some numbers, and headers that are not there. Which headers a field
//! needs is part of the model (a test of `tcp dport` asks for TCP), because rules are subtracted from each other: an accept behind a drop becomes
//! the accept without what the drop took. That is exact, also for packets that have not got the fields of the drop.

use std::collections::{BTreeMap, BTreeSet};

use crate::numbers::Numbers;

/// What a condition looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Field {
    /// Number of an interface in the names that were read.
    In,
    EthSaddr,
    EthDaddr,
    EthType,
    VlanId,
    Proto,
    Saddr4,
    Daddr4,
    Saddr6,
    Daddr6,
    Dscp4,
    Dscp6,
    /// The next header of the fixed header of IPv6.
    Next6,
    Ttl,
    HopLimit,
    Length4,
    /// 1: a fragment behind the first.
    FragLater,
    Sport,
    Dport,
    TcpFlags,
    IcmpType,
    IcmpCode,
    Icmp6Type,
    Icmp6Code,
    /// Mark of the packet.
    Mark,
    /// Priority of the packet.
    Priority,
    /// Second of the day, UTC.
    Hour,
    /// Day of the week from Sunday, UTC.
    Day,
    /// State of the connection, as docs/semantics.md section 7 numbers it.
    CtState,
    /// 1: the destination was translated; what that means for packets as received is said by the translations (`nat`).
    Translated,
    /// 1: an IPv4 address of the packet is in a set that packets fill; which address and set, the number says (`packets_before`).
    Member4(u8),
    /// The same of an IPv6 address.
    Member6(u8),
    /// The same of a MAC address.
    MemberEth(u8),
}

/// A header that a field needs, and that packets can be without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    Always,
    Vlan,
    Ip,
    Ip4,
    Ip6,
    /// Two ports: TCP, UDP, DCCP, SCTP, UDP-Lite, no later fragments.
    Ports,
    Tcp,
    Icmp,
    Icmp6,
}

pub(crate) const IP4: u128 = 0x0800;
pub(crate) const IP6: u128 = 0x86dd;
pub(crate) const TCP: u128 = 6;
pub(crate) const UDP: u128 = 17;
pub(crate) const ICMP: u128 = 1;
pub(crate) const ICMP6: u128 = 58;

/// States of connections.
pub(crate) const CT_INVALID: u128 = 1;
pub(crate) const CT_ESTABLISHED: u128 = 2;
pub(crate) const CT_RELATED: u128 = 4;
pub(crate) const CT_NEW: u128 = 8;
pub(crate) const CT_UNTRACKED: u128 = 64;

fn listed(values: &[u128]) -> Numbers {
    Numbers::new(values.iter().map(|&value| (value, value)).collect())
}

/// EtherTypes of IP.
pub(crate) fn ip() -> Numbers {
    listed(&[IP4, IP6])
}

/// Protocols that begin with two ports.
fn with_ports() -> Numbers {
    listed(&[TCP, UDP, 33, 132, 136])
}

impl Field {
    /// All values that the field can have.
    pub(crate) fn domain(self) -> Numbers {
        match self {
            Field::CtState => {
                listed(&[CT_INVALID, CT_ESTABLISHED, CT_RELATED, CT_NEW, CT_UNTRACKED])
            }
            Field::Hour | Field::Day => Numbers::range(0, self.max()),
            _ => Numbers::all(self.bits()),
        }
    }

    /// The largest value.
    pub(crate) fn max(self) -> u128 {
        match self {
            Field::Hour => 86_399,
            Field::Day => 6,
            _ => u128::MAX >> 128u32.saturating_sub(self.bits()).min(127),
        }
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            Field::FragLater
            | Field::Translated
            | Field::Member4(_)
            | Field::Member6(_)
            | Field::MemberEth(_) => 1,
            Field::Day => 3,
            Field::Hour => 17,
            Field::Dscp4 | Field::Dscp6 => 6,
            Field::VlanId => 12,
            Field::EthType | Field::Length4 | Field::Sport | Field::Dport => 16,
            Field::In | Field::Saddr4 | Field::Daddr4 | Field::Mark | Field::Priority => 32,
            Field::EthSaddr | Field::EthDaddr => 48,
            Field::Saddr6 | Field::Daddr6 => 128,
            _ => 8,
        }
    }

    /// The field for membership of an address, by the number of the test.
    pub(crate) fn member(number: u8, address: Field) -> Option<Field> {
        match address {
            Field::Saddr4 | Field::Daddr4 => Some(Field::Member4(number)),
            Field::Saddr6 | Field::Daddr6 => Some(Field::Member6(number)),
            Field::EthSaddr | Field::EthDaddr => Some(Field::MemberEth(number)),
            _ => None,
        }
    }

    /// The number of the test, of a field for membership.
    pub(crate) fn membership(self) -> Option<u8> {
        match self {
            Field::Member4(number) | Field::Member6(number) | Field::MemberEth(number) => {
                Some(number)
            }
            _ => None,
        }
    }

    pub(crate) fn class(self) -> Class {
        match self {
            Field::In
            | Field::EthSaddr
            | Field::EthDaddr
            | Field::EthType
            | Field::FragLater
            | Field::Mark
            | Field::Priority
            | Field::Hour
            | Field::Day
            | Field::MemberEth(_) => Class::Always,
            Field::VlanId => Class::Vlan,
            Field::Proto | Field::CtState | Field::Translated => Class::Ip,
            Field::Saddr4
            | Field::Daddr4
            | Field::Dscp4
            | Field::Ttl
            | Field::Length4
            | Field::Member4(_) => Class::Ip4,
            Field::Saddr6
            | Field::Daddr6
            | Field::Dscp6
            | Field::Next6
            | Field::HopLimit
            | Field::Member6(_) => Class::Ip6,
            Field::Sport | Field::Dport => Class::Ports,
            Field::TcpFlags => Class::Tcp,
            Field::IcmpType | Field::IcmpCode => Class::Icmp,
            Field::Icmp6Type | Field::Icmp6Code => Class::Icmp6,
        }
    }
}

impl Class {
    /// EtherTypes and protocols of packets that have it; `None`: any.
    fn needs(self) -> (Option<Numbers>, Option<Numbers>) {
        match self {
            Class::Always | Class::Vlan => (None, None),
            Class::Ip => (Some(ip()), None),
            Class::Ip4 => (Some(Numbers::one(IP4)), None),
            Class::Ip6 => (Some(Numbers::one(IP6)), None),
            Class::Ports => (Some(ip()), Some(with_ports())),
            Class::Tcp => (Some(ip()), Some(Numbers::one(TCP))),
            Class::Icmp => (Some(Numbers::one(IP4)), Some(Numbers::one(ICMP))),
            Class::Icmp6 => (Some(Numbers::one(IP6)), Some(Numbers::one(ICMP6))),
        }
    }

    /// Whether a packet with this header has the other as well.
    fn implies(self, other: Class) -> bool {
        self == other || (self == Class::Tcp && other == Class::Ports)
    }

    /// A field that every packet with this header has, to ask for the header itself.
    fn witness(self) -> Option<Field> {
        match self {
            Class::Vlan => Some(Field::VlanId),
            Class::Ports => Some(Field::Sport),
            Class::Tcp => Some(Field::TcpFlags),
            Class::Icmp => Some(Field::IcmpType),
            Class::Icmp6 => Some(Field::Icmp6Type),
            _ => None,
        }
    }
}

/// One part of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The field is there and has one of these values.
    Has(Field, Numbers),
    /// The header is not there.
    Lacks(Class),
}

/// A conjunction of parts; without any, every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Condition {
    pub(crate) has: BTreeMap<Field, Numbers>,
    pub(crate) lacks: BTreeSet<Class>,
}

impl Condition {
    /// Every packet.
    pub(crate) fn any() -> Condition {
        Condition::default()
    }

    /// One field.
    pub(crate) fn of(field: Field, values: Numbers) -> Option<Condition> {
        Condition::any().with(&Part::Has(field, values))
    }

    fn values(&self, field: Field) -> Numbers {
        self.has
            .get(&field)
            .cloned()
            .unwrap_or_else(|| field.domain())
    }

    /// This and a part; `None` if no packet is both.
    pub(crate) fn with(&self, part: &Part) -> Option<Condition> {
        let mut out = self.clone();
        match part {
            Part::Has(field, values) => {
                out.narrow(*field, values)?;
                out.need(field.class())?;
            }
            Part::Lacks(class) => out.lack(*class)?,
        }
        out.is_possible().then_some(out)
    }

    fn narrow(&mut self, field: Field, values: &Numbers) -> Option<()> {
        let left = self.values(field).and(values);
        if left.is_empty() {
            return None;
        }
        self.has.insert(field, left);
        Some(())
    }

    /// Asks for the EtherType and protocol that a header goes with.
    fn need(&mut self, class: Class) -> Option<()> {
        let (ether, proto) = class.needs();
        if let Some(proto) = proto {
            self.narrow(Field::Proto, &proto)?;
        }
        if let Some(ether) = ether {
            self.narrow(Field::EthType, &ether)?;
        }
        Some(())
    }

    /// Asks for a header not to be there, if that is not sure already.
    fn lack(&mut self, class: Class) -> Option<()> {
        let (ether, proto) = class.needs();
        let apart = |field: Field, needed: Option<Numbers>| {
            needed.is_some_and(|needed| {
                let known = self.has.get(&field);
                known.is_some_and(|known| known.and(&needed).is_empty())
            })
        };
        if apart(Field::EthType, ether) || apart(Field::Proto, proto) {
            return Some(());
        }
        self.lacks.insert(class);
        Some(())
    }

    /// Whether a packet can meet all parts, as far as headers exclude each other.
    fn is_possible(&self) -> bool {
        let classes = || self.has.keys().map(|field| field.class());
        if classes().any(|class| self.lacks.iter().any(|&lacked| class.implies(lacked))) {
            return false;
        }
        let within = |field: Field, set: &Numbers| {
            self.has
                .get(&field)
                .is_some_and(|known| known.is_within(set))
        };
        let has_ports = classes().any(|class| class.implies(Class::Ports));
        if self.lacks.contains(&Class::Tcp) && has_ports && within(Field::Proto, &Numbers::one(TCP))
        {
            return false;
        }
        // EtherType of IP and no protocol: there is no such packet. Nor one with a protocol of another family's ICMP header.
        let whole = within(Field::FragLater, &Numbers::one(0));
        let later = within(Field::FragLater, &Numbers::one(1));
        let l4 = |class: Class| {
            !matches!(
                class,
                Class::Always | Class::Vlan | Class::Ip | Class::Ip4 | Class::Ip6
            )
        };
        if later && classes().any(l4) {
            return false;
        }
        if later
            && self
                .has
                .get(&Field::EthType)
                .is_some_and(|ether| ether.and(&ip()).is_empty())
        {
            return false;
        }
        // A whole packet of these protocols has its header.
        let lacks_whole = |class: Class, proto: Numbers, ether: Numbers| {
            self.lacks.contains(&class)
                && whole
                && within(Field::Proto, &proto)
                && within(Field::EthType, &ether)
        };
        let ports = listed(&[TCP, UDP]);
        !(lacks_whole(Class::Ports, ports, ip())
            || lacks_whole(Class::Tcp, Numbers::one(TCP), ip())
            || lacks_whole(Class::Icmp, Numbers::one(ICMP), Numbers::one(IP4))
            || lacks_whole(Class::Icmp6, Numbers::one(ICMP6), Numbers::one(IP6)))
    }

    /// All parts, those that headers need included.
    fn parts(&self) -> impl Iterator<Item = Part> {
        let has = self.has.iter();
        let has = has.map(|(&field, values)| Part::Has(field, values.clone()));
        has.chain(self.lacks.iter().map(|&class| Part::Lacks(class)))
    }

    /// Packets that meet both; `None`: there are none.
    pub(crate) fn and(&self, other: &Condition) -> Option<Condition> {
        other
            .parts()
            .try_fold(self.clone(), |all, part| all.with(&part))
    }

    /// Whether every packet that meets `other` meets this one.
    pub(crate) fn covers(&self, other: &Condition) -> bool {
        let has = self.has.iter().all(|(field, values)| {
            other
                .has
                .get(field)
                .is_some_and(|narrower| narrower.is_within(values))
        });
        has && self.lacks.iter().all(|&class| {
            let mut narrower = other.clone();
            other.lacks.contains(&class)
                || (narrower.lack(class).is_some() && narrower.lacks == other.lacks)
        })
    }

    /// Conditions that together hold for the packets that meet this one and not `other`. They overlap, and are short; or they are `apart`, and
    /// stay few where many others are subtracted.
    fn minus(&self, other: &Condition, apart: bool) -> Vec<Condition> {
        if self.and(other).is_none() {
            return vec![self.clone()];
        }
        let mut out = Vec::new();
        let mut left = self.clone();
        for part in other.parts() {
            let alternatives = negated(&part);
            out.extend(alternatives.iter().filter_map(|not| left.with(not)));
            if apart {
                match left.with(&part) {
                    Some(both) => left = both,
                    None => break,
                }
            }
        }
        prune(out)
    }
}

/// A condition with one more test, for callers that have the values.
pub(crate) fn narrowed(condition: &Condition, field: Field, values: Numbers) -> Option<Condition> {
    condition.with(&Part::Has(field, values))
}

/// What holds for a packet that does not meet a part: one of these.
fn negated(part: &Part) -> Vec<Part> {
    match part {
        Part::Has(field, values) => {
            let mut out = Vec::new();
            let others = values.not_in(&field.domain());
            if !others.is_empty() {
                out.push(Part::Has(*field, others));
            }
            let ether =
                |set: &Numbers| Part::Has(Field::EthType, set.not_in(&Field::EthType.domain()));
            match field.class() {
                Class::Always => {}
                Class::Ip => out.push(ether(&ip())),
                Class::Ip4 => out.push(ether(&Numbers::one(IP4))),
                Class::Ip6 => out.push(ether(&Numbers::one(IP6))),
                class => out.push(Part::Lacks(class)),
            }
            out
        }
        Part::Lacks(class) => class
            .witness()
            .map(|field| Part::Has(field, field.domain()))
            .into_iter()
            .collect(),
    }
}

/// Leaves out conditions that others cover.
pub(crate) fn prune(conditions: Vec<Condition>) -> Vec<Condition> {
    let mut out: Vec<Condition> = Vec::with_capacity(conditions.len());
    for one in conditions {
        if out.iter().any(|other| other.covers(&one)) {
            continue;
        }
        out.retain(|other| !one.covers(other));
        out.push(one);
    }
    out
}

/// More conditions than this from one rule are refused: the policy would be unreadable, and slow to make.
pub(crate) const MAX_CONDITIONS: usize = 256;

/// More than [`MAX_CONDITIONS`] would be needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooMany;

/// Comparisons of conditions that are left for a whole rule set: what rules take from each other grows with their square.
#[derive(Debug)]
pub(crate) struct Work(usize);

impl Work {
    /// Enough for some thousand rules that overlap; a second or two.
    pub(crate) fn of_all() -> Work {
        Work(2_000_000)
    }

    /// Enough for one rule.
    fn of_one() -> Work {
        Work(200_000)
    }

    pub(crate) fn take(&mut self, comparisons: usize) -> Result<(), TooMany> {
        self.0 = self.0.checked_sub(comparisons).ok_or(TooMany)?;
        Ok(())
    }
}

/// The packets that meet one of `from` and none of `without`.
pub(crate) fn subtract<'a>(
    from: Vec<Condition>,
    without: impl Iterator<Item = &'a Condition> + Clone,
) -> Result<Vec<Condition>, TooMany> {
    subtract_with(from, without, &mut Work::of_one())
}

/// The same for rules one after the other, which share the work.
pub(crate) fn subtract_with<'a>(
    from: Vec<Condition>,
    without: impl Iterator<Item = &'a Condition> + Clone,
    work: &mut Work,
) -> Result<Vec<Condition>, TooMany> {
    subtract_within(from.clone(), without.clone(), false, SHORT, work)
        .or_else(|TooMany| subtract_within(from, without, true, MAX_CONDITIONS, work))
}

/// Overlapping conditions are given up above this number.
const SHORT: usize = 16;

fn subtract_within<'a>(
    from: Vec<Condition>,
    without: impl Iterator<Item = &'a Condition>,
    apart: bool,
    most: usize,
    work: &mut Work,
) -> Result<Vec<Condition>, TooMany> {
    let most = most.max(from.len());
    let mut left = from;
    for other in without {
        work.take(left.len())?;
        if left.iter().all(|one| one.and(other).is_none()) {
            continue;
        }
        let rest: Vec<Condition> = (left.iter())
            .flat_map(|one| one.minus(other, apart))
            .collect();
        work.take(rest.len().saturating_mul(rest.len()))?;
        left = prune(rest);
        if left.len() > most {
            return Err(TooMany);
        }
    }
    Ok(left)
}

/// The packets that meet one of each.
pub(crate) fn product(left: &[Condition], right: &[Condition]) -> Result<Vec<Condition>, TooMany> {
    if left.len().saturating_mul(right.len()) > 64 * MAX_CONDITIONS {
        return Err(TooMany);
    }
    let pairs = left
        .iter()
        .flat_map(|one| right.iter().filter_map(move |other| one.and(other)));
    let out = prune(pairs.collect());
    match out.len() > MAX_CONDITIONS {
        true => Err(TooMany),
        false => Ok(out),
    }
}
