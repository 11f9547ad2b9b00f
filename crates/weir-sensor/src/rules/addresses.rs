//! Addresses and ports of headers: groups, negation, variables, ranges, to sorted disjoint ranges that equal groups share.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::model::{AddressSet, PortSet};
use super::problem::{Kind, Parsed};
use super::text::Text;
use super::variables::Variables;

/// How deep groups and variables may be nested.
const DEPTH: u32 = 32;

/// Sorted, disjoint, not adjacent ranges of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges<T>(Vec<(T, T)>);

/// What ranges need of a number.
trait Step: Copy + Ord {
    const MIN: Self;
    const MAX: Self;
    fn up(self) -> Option<Self>;
    fn down(self) -> Option<Self>;
}

macro_rules! step {
    ($($t:ty),*) => {$(
        impl Step for $t {
            const MIN: Self = <$t>::MIN;
            const MAX: Self = <$t>::MAX;
            fn up(self) -> Option<Self> { self.checked_add(1) }
            fn down(self) -> Option<Self> { self.checked_sub(1) }
        }
    )*};
}
step!(u16, u32, u128);

impl<T: Step> Ranges<T> {
    fn all() -> Self {
        Ranges(vec![(T::MIN, T::MAX)])
    }

    fn is_all(&self) -> bool {
        self.0 == [(T::MIN, T::MAX)]
    }

    fn merged(mut ranges: Vec<(T, T)>) -> Self {
        ranges.sort_unstable();
        let mut out: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match out.last_mut() {
                Some(last) if last.1.up().is_none_or(|next| low <= next) => {
                    last.1 = last.1.max(high);
                }
                _ => out.push((low, high)),
            }
        }
        Ranges(out)
    }

    fn complement(&self) -> Self {
        let mut out = Vec::with_capacity(self.0.len() + 1);
        let mut from = Some(T::MIN);
        for (low, high) in &self.0 {
            if let (Some(start), Some(end)) = (from, low.down())
                && start <= end
            {
                out.push((start, end));
            }
            from = high.up();
        }
        if let Some(start) = from {
            out.push((start, T::MAX));
        }
        Ranges(out)
    }

    /// What is in both.
    fn common(&self, other: &Self) -> Self {
        let (mut i, mut j) = (0, 0);
        let mut out = Vec::new();
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            let (low, high) = (a.0.max(b.0), a.1.min(b.1));
            if low <= high {
                out.push((low, high));
            }
            if a.1 < b.1 { i += 1 } else { j += 1 }
        }
        Ranges(out)
    }
}

/// Addresses of both families while they are computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Addresses {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// What groups are made of.
trait Set: Sized + Clone {
    fn all() -> Self;
    fn is_all(&self) -> bool;
    fn is_empty(&self) -> bool;
    fn union(sets: Vec<Self>) -> Self;
    fn without(&self, other: &Self) -> Self;
    /// One member that is not a group, variable or `any`.
    fn member(text: Text<'_>) -> Parsed<Self>;
    /// The value of a variable.
    fn variable<'v>(variables: &'v Variables, name: &str) -> Option<&'v str>;
    const WHAT: &'static str;
    const OTHER: fn(&Variables, &str) -> bool;
}

impl Set for Addresses {
    fn all() -> Self {
        Addresses {
            v4: Ranges::all(),
            v6: Ranges::all(),
        }
    }

    fn is_all(&self) -> bool {
        self.v4.is_all() && self.v6.is_all()
    }

    fn is_empty(&self) -> bool {
        self.v4.0.is_empty() && self.v6.0.is_empty()
    }

    fn union(sets: Vec<Self>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for set in sets {
            v4.extend(set.v4.0);
            v6.extend(set.v6.0);
        }
        Addresses {
            v4: Ranges::merged(v4),
            v6: Ranges::merged(v6),
        }
    }

    fn without(&self, other: &Self) -> Self {
        Addresses {
            v4: self.v4.common(&other.v4.complement()),
            v6: self.v6.common(&other.v6.complement()),
        }
    }

    fn member(text: Text<'_>) -> Parsed<Self> {
        let word = text.str()?;
        let bad = |reason: &str| text.fail(Kind::Value, reason.to_owned());
        let none = || {
            let reason = match word.is_empty() {
                true => "an address is missing".to_owned(),
                false => format!("`{word}` is not an address"),
            };
            text.fail(Kind::Value, reason)
        };
        let address = |w: &str| w.trim().parse::<IpAddr>().ok();
        if let Some((base, length)) = word.split_once('/') {
            let base = address(base).ok_or_else(none)?;
            return match base {
                IpAddr::V4(a) => {
                    let mask = match length.parse::<u32>() {
                        Ok(n @ 0..=32) => u32::MAX.checked_shl(32 - n).unwrap_or(0),
                        Ok(_) => return Err(bad("a prefix of IPv4 has at most 32 bits")),
                        Err(_) => match length.parse::<Ipv4Addr>().map(u32::from) {
                            Ok(m) if m.leading_ones() + m.trailing_zeros() >= 32 => m,
                            Ok(_) => return Err(bad("the mask has holes")),
                            Err(_) => return Err(none()),
                        },
                    };
                    let low = u32::from(a) & mask;
                    Ok(v4(low, low | !mask))
                }
                IpAddr::V6(a) => {
                    let Ok(n @ 0..=128) = length.parse::<u32>() else {
                        return Err(bad("a prefix of IPv6 has at most 128 bits"));
                    };
                    let mask = u128::MAX.checked_shl(128 - n).unwrap_or(0);
                    let low = u128::from(a) & mask;
                    Ok(v6(low, low | !mask))
                }
            };
        }
        if let Some((low, high)) = word.split_once('-') {
            return match (address(low), address(high)) {
                (Some(IpAddr::V4(a)), Some(IpAddr::V4(b))) if a <= b => Ok(v4(a.into(), b.into())),
                (Some(IpAddr::V6(a)), Some(IpAddr::V6(b))) if a <= b => Ok(v6(a.into(), b.into())),
                (Some(a), Some(b)) if a.is_ipv4() == b.is_ipv4() => {
                    Err(bad("the range ends before it begins"))
                }
                _ => Err(none()),
            };
        }
        match address(word) {
            Some(IpAddr::V4(a)) => Ok(v4(a.into(), a.into())),
            Some(IpAddr::V6(a)) => Ok(v6(a.into(), a.into())),
            None => Err(none()),
        }
    }

    fn variable<'v>(variables: &'v Variables, name: &str) -> Option<&'v str> {
        variables.addresses.get(name).map(String::as_str)
    }

    const WHAT: &'static str = "address";
    const OTHER: fn(&Variables, &str) -> bool = |v, name| v.ports.contains_key(name);
}

fn v4(low: u32, high: u32) -> Addresses {
    Addresses {
        v4: Ranges(vec![(low, high)]),
        v6: Ranges(Vec::new()),
    }
}

fn v6(low: u128, high: u128) -> Addresses {
    // An IPv4 address written in IPv6 stays one of IPv6: packets decide by their version.
    Addresses {
        v4: Ranges(Vec::new()),
        v6: Ranges(vec![(low, high)]),
    }
}

impl Set for Ranges<u16> {
    fn all() -> Self {
        Ranges::all()
    }

    fn is_all(&self) -> bool {
        self.is_all()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn union(sets: Vec<Self>) -> Self {
        Ranges::merged(sets.into_iter().flat_map(|s| s.0).collect())
    }

    fn without(&self, other: &Self) -> Self {
        self.common(&other.complement())
    }

    fn member(text: Text<'_>) -> Parsed<Self> {
        let port = |t: Text<'_>| t.number(0, 65535).map(|n| n as u16);
        let Some((low, high)) = text.cut(b':') else {
            let only = port(text)?;
            return Ok(Ranges(vec![(only, only)]));
        };
        let (low, high) = (low.trim(), high.trim());
        if low.is_empty() && high.is_empty() {
            return Err(text.fail(Kind::Value, "a range of ports without ends"));
        }
        let from = if low.is_empty() { 0 } else { port(low)? };
        let to = if high.is_empty() {
            u16::MAX
        } else {
            port(high)?
        };
        match from <= to {
            true => Ok(Ranges(vec![(from, to)])),
            false => Err(text.fail(Kind::Value, "the range ends before it begins")),
        }
    }

    fn variable<'v>(variables: &'v Variables, name: &str) -> Option<&'v str> {
        variables.ports.get(name).map(String::as_str)
    }

    const WHAT: &'static str = "port";
    const OTHER: fn(&Variables, &str) -> bool = |v, name| v.addresses.contains_key(name);
}

/// Members between commas outside brackets.
fn members(text: Text<'_>) -> Parsed<Vec<Text<'_>>> {
    let mut parts = Vec::new();
    let (mut from, mut depth) = (0, 0u32);
    for (i, b) in text.bytes.iter().enumerate() {
        match b {
            b'[' => depth += 1,
            b']' if depth == 0 => {
                let at = text.part(i..i + 1);
                return Err(at.fail(Kind::Syntax, "`]` without `[`"));
            }
            b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text.part(from..i).trim());
                from = i + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(text.fail(Kind::Syntax, "`[` is not closed"));
    }
    parts.push(text.from(from).trim());
    Ok(parts)
}

fn evaluate<S: Set>(text: Text<'_>, variables: &Variables, depth: u32) -> Parsed<S> {
    if depth > DEPTH {
        let reason = "groups or variables are nested too deep, or a variable names itself";
        return Err(text.fail(Kind::Variable, reason));
    }
    let text = text.trim();
    if let Some(rest) = text.strip("!") {
        let set: S = evaluate(rest, variables, depth + 1)?;
        if set.is_all() {
            let reason = format!("nothing is left: this negates every {}", S::WHAT);
            return Err(text.fail(Kind::Value, reason));
        }
        return Ok(S::all().without(&set));
    }
    if text.is_word("any") {
        return Ok(S::all());
    }
    if let Some(name) = text.strip("$") {
        let word = name.str()?;
        let Some(value) = S::variable(variables, word) else {
            let reason = match S::OTHER(variables, word) {
                true => format!("unknown {} variable `${word}`", S::WHAT),
                false => format!("the variable `${word}` is not defined"),
            };
            return Err(text.fail(Kind::Variable, reason));
        };
        return evaluate(Text::new(value.as_bytes()), variables, depth + 1).map_err(|mut e| {
            // Offsets into the variable's value mean nothing in the rule.
            (e.start, e.end) = (text.start, text.end());
            e.reason = format!("in the variable `${word}`: {}", e.reason);
            e
        });
    }
    if let Some(inner) = text.strip("[") {
        let Some((b']', _)) = inner.bytes.split_last() else {
            return Err(text.fail(Kind::Syntax, "`[` is not closed"));
        };
        return list(inner.part(0..inner.len() - 1), text, variables, depth);
    }
    if text.bytes.contains(&b',') {
        return list(text, text, variables, depth);
    }
    S::member(text)
}

/// Members that are not negated, without those that are; all, if every member is negated.
fn list<S: Set>(inner: Text<'_>, whole: Text<'_>, vars: &Variables, depth: u32) -> Parsed<S> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for member in members(inner)? {
        match member.strip("!") {
            Some(rest) => without.push(evaluate::<S>(rest, vars, depth + 1)?),
            None => with.push(evaluate::<S>(member, vars, depth + 1)?),
        }
    }
    let all = with.is_empty();
    let mut set = if all { S::all() } else { S::union(with) };
    if !without.is_empty() {
        set = set.without(&S::union(without));
    }
    match set.is_empty() {
        true => {
            let reason = format!("the group has no {}: it negates what it names", S::WHAT);
            Err(whole.fail(Kind::Value, reason))
        }
        false => Ok(set),
    }
}

/// Groups by their text and by what they hold, so that equal ones share memory.
#[derive(Debug, Default)]
pub(super) struct Groups {
    addresses: HashMap<Box<[u8]>, AddressSet>,
    ports: HashMap<Box<[u8]>, PortSet>,
    same_addresses: HashMap<AddressSet, AddressSet>,
    same_ports: HashMap<PortSet, PortSet>,
}

impl Groups {
    pub(super) fn addresses(&mut self, text: Text<'_>, vars: &Variables) -> Parsed<AddressSet> {
        if let Some(known) = self.addresses.get(text.bytes) {
            return Ok(known.clone());
        }
        let set = address_set(evaluate(text, vars, 0)?, negates(text, vars, 0));
        let same = self.same_addresses.entry(set.clone()).or_insert(set);
        let key = text.bytes.into();
        self.addresses.insert(key, same.clone());
        Ok(same.clone())
    }

    pub(super) fn ports(&mut self, text: Text<'_>, vars: &Variables) -> Parsed<PortSet> {
        if let Some(known) = self.ports.get(text.bytes) {
            return Ok(known.clone());
        }
        let ranges: Ranges<u16> = evaluate(text, vars, 0)?;
        let any = ranges.is_all();
        let kept = if any { Vec::new() } else { ranges.0 };
        let set = PortSet {
            any,
            ranges: kept.into(),
        };
        let same = self.same_ports.entry(set.clone()).or_insert(set);
        self.ports.insert(text.bytes.into(), same.clone());
        Ok(same.clone())
    }
}

/// Whether a group or a variable in it is written with a `!`.
fn negates(text: Text<'_>, variables: &Variables, depth: u32) -> bool {
    let name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    text.bytes.contains(&b'!')
        || depth < DEPTH
            && text.bytes.split(|b| *b == b'$').skip(1).any(|rest| {
                let end = rest.iter().position(|b| !name(b)).unwrap_or(rest.len());
                std::str::from_utf8(&rest[..end])
                    .ok()
                    .and_then(|n| Addresses::variable(variables, n))
                    .is_some_and(|v| negates(Text::new(v.as_bytes()), variables, depth + 1))
            })
}

fn address_set(addresses: Addresses, negated: bool) -> AddressSet {
    match addresses.is_all() {
        true => any_address(),
        false => AddressSet {
            any: false,
            negated,
            v4: addresses.v4.0.into(),
            v6: addresses.v6.0.into(),
        },
    }
}

pub(super) fn any_address() -> AddressSet {
    AddressSet {
        any: true,
        negated: false,
        v4: Arc::new([]),
        v6: Arc::new([]),
    }
}

pub(super) fn any_port() -> PortSet {
    PortSet {
        any: true,
        ranges: Arc::new([]),
    }
}

/// Addresses as rules write them, from elsewhere: a configuration's home network, a threshold's `ip`.
pub fn parse_addresses(text: &str, variables: &Variables) -> Result<AddressSet, String> {
    let parsed = evaluate(Text::new(text.as_bytes()), variables, 0);
    parsed
        .map(|set| address_set(set, text.contains('!')))
        .map_err(|e| e.reason)
}
