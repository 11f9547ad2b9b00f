//! Address translation: rules of the NAT hooks as `map` targets, and what filters behind them see.

use std::collections::BTreeSet;

use crate::condition::{Condition, Field, TCP, TooMany, UDP, narrowed, product, prune, subtract};
use crate::finding::{Effect, Finding};
use crate::numbers::Numbers;
use crate::state::State;
use crate::values::{self, Family};

/// What a packet's address becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// One of these; `None`: it stays.
    Pool(Family, Numbers),
    /// The address of the interface it leaves by.
    Outgoing,
    /// The address of the interface it came in by.
    Incoming,
    /// Nothing is translated.
    Same,
}

/// Address and ports.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: To,
    pub(crate) ports: Option<Numbers>,
}

/// A rule of a NAT hook.
#[derive(Clone, Debug)]
pub(crate) struct Translation {
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) when: Vec<Condition>,
    pub(crate) to: Target,
    /// The source is translated, else the destination.
    pub(crate) source: bool,
    /// The interface that packets leave by, if the rule names one.
    pub(crate) out: Option<String>,
    /// Whether filters see packets behind it; else as received.
    pub(crate) seen: bool,
}

/// `ADDRESS[-ADDRESS][:PORT[-PORT]]`, addresses of IPv6 with ports in brackets.
pub(crate) fn to(text: &str, _source: bool, family: Family) -> Result<Target, String> {
    let bad = || format!("`{text}` is not an address to translate to");
    let (address, ports) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').ok_or_else(bad)?;
            (address, rest.strip_prefix(':'))
        }
        None if family == Family::Four => match text.split_once(':') {
            Some((address, ports)) => (address, Some(ports)),
            None => (text, None),
        },
        None => (text, None),
    };
    let ports = match ports {
        Some(ports) => Some(values::numbers(Field::Dport, ports, '-').ok_or_else(bad)?),
        None => None,
    };
    let address = match address {
        "" if ports.is_some() => To::Same,
        address => {
            let (of, pool) = values::addresses(address).ok_or_else(bad)?;
            if of != family {
                return Err(bad());
            }
            To::Pool(of, pool)
        }
    };
    Ok(Target { address, ports })
}

fn ports_of(ports: Option<&str>) -> Result<Option<Numbers>, String> {
    let read = |ports: &str| {
        values::numbers(Field::Dport, ports, '-').ok_or_else(|| format!("`{ports}` are not ports"))
    };
    ports.map(read).transpose()
}

/// The address of the interface that a packet leaves by.
pub(crate) fn masquerade(ports: Option<&str>) -> Result<Target, String> {
    Ok(Target {
        address: To::Outgoing,
        ports: ports_of(ports)?,
    })
}

/// This host, by the address of the interface that a packet came in by.
pub(crate) fn redirect(ports: Option<&str>) -> Result<Target, String> {
    Ok(Target {
        address: To::Incoming,
        ports: ports_of(ports)?,
    })
}

/// Not translated, whatever later rules say.
pub(crate) fn none() -> Target {
    Target {
        address: To::Same,
        ports: None,
    }
}

/// One translation for packets that no earlier one of its kind takes.
#[derive(Clone, Debug)]
struct Settled {
    line: u32,
    text: String,
    when: Vec<Condition>,
    pool: Option<(Family, Numbers)>,
    ports: Option<Numbers>,
    source: bool,
    seen: bool,
}

/// All translations, first match made explicit.
#[derive(Debug, Default)]
pub(crate) struct Translations {
    settled: Vec<Settled>,
}

impl Translations {
    /// Settles what the host's addresses decide; what cannot be said goes to the findings.
    pub(crate) fn of(rules: &[Translation], state: &mut State) -> Translations {
        let mut out = Translations::default();
        // Sources are translated behind destinations, whatever the order in the file.
        let destinations = rules.iter().filter(|rule| !rule.source);
        for rule in destinations.chain(rules.iter().filter(|rule| rule.source)) {
            let added = by_interface(rule, state)
                .and_then(|rules| rules.iter().try_for_each(|rule| out.add(rule, state)));
            if let Err(reason) = added {
                state.findings.push(Finding::new(
                    rule.line,
                    &rule.text,
                    reason,
                    Effect::NotMapped,
                ));
            }
        }
        out
    }

    fn add(&mut self, rule: &Translation, state: &State) -> Result<(), String> {
        let too_many = |_: TooMany| {
            "behind the translations before it, it becomes too many rules of weir".to_owned()
        };
        let earlier = self
            .settled
            .iter()
            .filter(|other| other.source == rule.source);
        if !rule.source && rule.when.iter().any(asks) {
            return Err(
                "whether a destination was translated is not known before it is".to_owned(),
            );
        }
        let earlier: Vec<&Condition> = earlier.flat_map(|other| &other.when).collect();
        let mut when = subtract(rule.when.clone(), earlier.into_iter()).map_err(too_many)?;
        if rule.source {
            when = self.received(&when, |_| true)?;
        }
        let pools: Vec<Option<(Family, Numbers)>> = match &rule.to.address {
            To::Same => vec![None],
            To::Pool(family, pool) => vec![Some((*family, pool.clone()))],
            To::Outgoing | To::Incoming => {
                let both = [Family::Four, Family::Six];
                let asked = |family: &Family| {
                    let version = match family {
                        Family::Four => crate::condition::IP4,
                        Family::Six => crate::condition::IP6,
                    };
                    let one = Numbers::one(version);
                    when.iter()
                        .any(|when| narrowed(when, Field::EthType, one.clone()).is_some())
                };
                let interface = match rule.to.address {
                    To::Outgoing => rule.out.as_deref(),
                    _ => None,
                };
                let mut found = Vec::new();
                for family in both.into_iter().filter(asked) {
                    if let Some(address) = state.address(interface, family) {
                        found.push(Some((family, Numbers::one(address.first))));
                    }
                }
                if found.is_empty() {
                    return Err(no_address(interface.unwrap_or("IF")));
                }
                found
            }
        };
        for pool in pools {
            let when = match &pool {
                Some((family, _)) => {
                    let field = if rule.source {
                        family.source()
                    } else {
                        family.destination()
                    };
                    when.iter()
                        .filter_map(|one| narrowed(one, field, field.domain()))
                        .collect()
                }
                None => when.clone(),
            };
            self.settled.push(Settled {
                line: rule.line,
                text: rule.text.clone(),
                when,
                pool,
                ports: rule.to.ports.clone(),
                source: rule.source,
                seen: rule.seen,
            });
        }
        Ok(())
    }

    /// Conditions on packets as received, for conditions of filters.
    pub(crate) fn before(&self, when: &[Condition]) -> Result<Vec<Condition>, String> {
        self.received(when, |one| one.seen)
    }

    /// Conditions on packets as received, for conditions on packets whose destination these translations changed.
    fn received(
        &self,
        when: &[Condition],
        by: impl Fn(&Settled) -> bool,
    ) -> Result<Vec<Condition>, String> {
        let destinations: Vec<&Settled> = (self.settled.iter())
            .filter(|one| !one.source && (one.pool.is_some() || one.ports.is_some()) && by(one))
            .collect();
        // Whether a destination was translated is said by what translates it.
        let is = |value: u128, one: &Condition| {
            let asked = one.has.get(&Field::Translated);
            asked.is_none_or(|values| Numbers::one(value).is_within(values))
        };
        let without = |one: &Condition| {
            let mut one = one.clone();
            one.has.remove(&Field::Translated);
            one
        };
        if destinations.is_empty() {
            let when = when.iter().filter(|one| is(0, one));
            return Ok(when.map(without).collect());
        }
        // What looks at no destination sees no difference.
        let looks = |one: &&Condition| {
            let fields = [
                Field::Daddr4,
                Field::Daddr6,
                Field::Dport,
                Field::Translated,
            ];
            fields.iter().any(|field| one.has.contains_key(field))
        };
        let (when, mut out): (Vec<Condition>, Vec<Condition>) =
            when.iter().cloned().partition(|one| looks(&one));
        for one in when.iter().filter(|one| is(1, one)) {
            let one = without(one);
            for translation in &destinations {
                if let Some(seen) = seen_after(&one, translation)? {
                    out.extend(
                        translation
                            .when
                            .iter()
                            .filter_map(|opened| opened.and(&seen)),
                    );
                }
            }
        }
        let taken = destinations.iter().flat_map(|one| &one.when);
        let when = when.iter().filter(|one| is(0, one)).map(without);
        let others = subtract(when.collect(), taken).map_err(|_| {
            "beside what is translated, it becomes too many rules of weir".to_owned()
        })?;
        out.extend(others);
        Ok(prune(out))
    }

    /// Whether destinations of packets are translated.
    pub(crate) fn has_destinations(&self) -> bool {
        let maps = |one: &Settled| !one.source && (one.pool.is_some() || one.ports.is_some());
        self.settled.iter().any(maps)
    }

    /// The rules in weir's words.
    pub(crate) fn rules(&mut self, state: &mut State) -> Vec<(u32, String, Mapped)> {
        let mut out = Vec::new();
        for one in &self.settled {
            if one.pool.is_none() && one.ports.is_none() {
                continue;
            }
            for when in &one.when {
                match targets(one, when) {
                    Ok(rules) => out.extend(
                        rules
                            .into_iter()
                            .map(|(when, targets)| (one.line, one.text.clone(), (when, targets))),
                    ),
                    Err(reason) => state.findings.push(Finding::new(
                        one.line,
                        &one.text,
                        reason,
                        Effect::NotMapped,
                    )),
                }
            }
        }
        out
    }
}

/// A rule that translates to the address of whatever interface a packet leaves by, for each interface that was given with address and routes.
fn by_interface(rule: &Translation, state: &mut State) -> Result<Vec<Translation>, String> {
    let whole = || Ok(vec![rule.clone()]);
    if rule.to.address != To::Outgoing || rule.out.is_some() {
        return whole();
    }
    let routes = state.options.routes.iter().map(|(name, _)| name.clone());
    let interfaces: BTreeSet<String> = routes.collect();
    let mut out = Vec::new();
    let mut without = None;
    for name in interfaces {
        let leaves = state.leaves_by(&[&name], false)?;
        let when = product(&rule.when, &leaves)
            .map_err(|_| "for each interface, it becomes too many rules of weir".to_owned())?;
        let has_address = state
            .options
            .local
            .iter()
            .any(|(of, _)| of.as_ref() == Some(&name));
        match has_address {
            _ if when.is_empty() => {}
            true => out.push(Translation {
                when,
                out: Some(name),
                ..rule.clone()
            }),
            false => without = Some(name),
        }
    }
    match without {
        _ if out.is_empty() => whole(),
        Some(name) => Err(no_address(&name)),
        None => Ok(out),
    }
}

fn no_address(interface: &str) -> String {
    format!(
        "the address to translate to is not in the file; give it with `--local {interface}=ADDRESS`"
    )
}

/// Whether a condition asks if the destination was translated.
pub(crate) fn asks(condition: &Condition) -> bool {
    condition.has.contains_key(&Field::Translated)
}

/// Condition of a rule, and its targets.
pub(crate) type Mapped = (Condition, Vec<(Field, Numbers)>);

/// What a translated packet must have been for a condition to hold behind the translation; `None`: it does not hold.
fn seen_after(condition: &Condition, translation: &Settled) -> Result<Option<Condition>, String> {
    let mut seen = condition.clone();
    let mut judge = |field: Field, values: &Numbers| -> Result<bool, String> {
        let Some(wanted) = seen.has.remove(&field) else {
            return Ok(true);
        };
        if values.is_within(&wanted) {
            return Ok(true);
        }
        match wanted.and(values).is_empty() {
            true => Ok(false),
            false => Err(
                "it holds for some of the addresses that a packet may be translated to".to_owned(),
            ),
        }
    };
    if let Some((family, pool)) = &translation.pool {
        let other = match family {
            Family::Four => Field::Daddr6,
            Family::Six => Field::Daddr4,
        };
        if condition.has.contains_key(&other) {
            return Ok(None);
        }
        if !judge(family.destination(), pool)? {
            return Ok(None);
        }
    }
    if let Some(ports) = &translation.ports
        && !judge(Field::Dport, ports)?
    {
        return Ok(None);
    }
    Ok(Some(seen))
}

/// A rule for each protocol, as ports are those of one.
fn targets(one: &Settled, when: &Condition) -> Result<Vec<Mapped>, String> {
    let mut maps = Vec::new();
    if let Some((family, pool)) = &one.pool {
        let field = if one.source {
            family.source()
        } else {
            family.destination()
        };
        maps.push((field, pool.clone()));
    }
    let Some(ports) = &one.ports else {
        return Ok(vec![(when.clone(), maps)]);
    };
    let field = if one.source {
        Field::Sport
    } else {
        Field::Dport
    };
    let mut out = Vec::new();
    for protocol in [TCP, UDP] {
        let of_protocol = narrowed(when, Field::Proto, Numbers::one(protocol));
        if let Some(of_protocol) = of_protocol.and_then(|one| narrowed(&one, field, field.domain()))
        {
            let mut maps = maps.clone();
            maps.push((field, ports.clone()));
            out.push((of_protocol, maps));
        }
    }
    match out.is_empty() {
        true => Err("weir maps ports of TCP and UDP only".to_owned()),
        false => Ok(out),
    }
}
