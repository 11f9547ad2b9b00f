//! What a reader of a format knows besides its text, and what it finds: names, options, findings.

use std::collections::BTreeMap;

use weir_value::Prefix;

use crate::condition::Condition;
use crate::finding::Finding;
use crate::numbers::Numbers;
use crate::options::Options;
use crate::packets_before::DynamicSets;
use crate::values::Family;

/// Names that numbers stand for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) interfaces: Vec<String>,
    /// Names that sets had.
    pub(crate) sets: BTreeMap<Numbers, String>,
    pub(crate) dynamic: DynamicSets,
    /// How many addresses limits tell apart, if more than weir does unless told.
    pub(crate) counted: Option<u64>,
}

impl Names {
    /// The number of an interface.
    pub(crate) fn interface(&mut self, name: &str) -> u128 {
        let known = self.interfaces.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.interfaces.push(name.to_owned());
            self.interfaces.len() - 1
        });
        at as u128
    }

    /// Limits tell so many addresses apart.
    pub(crate) fn count(&mut self, addresses: u64) {
        if addresses > 65_536 {
            let most = addresses.min(1_048_576);
            self.counted = Some(self.counted.unwrap_or_default().max(most));
        }
    }

    /// Remembers what a set was called.
    pub(crate) fn call(&mut self, set: Numbers, name: &str) {
        self.sets.entry(set).or_insert_with(|| name.to_owned());
    }
}

/// What is known besides the file, and what is found in it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) names: Names,
    pub(crate) findings: Vec<Finding>,
    pub(crate) options: Options,
}

impl State {
    pub(crate) fn new(options: Options) -> State {
        State {
            names: Names::default(),
            findings: Vec::new(),
            options,
        }
    }

    /// The addresses of this host, if they were given.
    pub(crate) fn local(&self, family: Family) -> Option<Numbers> {
        let own = self.options.local.iter();
        let own = own.filter(|(_, prefix)| prefix.is_ip6 == (family == Family::Six));
        let own: Vec<(u128, u128)> = own
            .map(|(_, prefix)| (prefix.first, prefix.last()))
            .collect();
        (!own.is_empty()).then(|| Numbers::new(own))
    }

    /// Addresses of a type of the routing table; `None`: none of this family are known, but some of the other.
    pub(crate) fn of_type(&self, kind: &str, family: Family) -> Result<Option<Numbers>, String> {
        match (kind, family) {
            ("local", _) if self.options.local.is_empty() => Err(
                "the addresses of this host are not known; give them with `--local ADDRESS`"
                    .to_owned(),
            ),
            ("local", _) => Ok(self.local(family)),
            ("multicast", Family::Four) => Ok(Some(Numbers::range(0xe000_0000, 0xefff_ffff))),
            ("multicast", Family::Six) => Ok(Some(Numbers::range(0xff << 120, u128::MAX))),
            _ => Err(format!(
                "weir does not know which addresses are of type {kind}"
            )),
        }
    }

    /// The address of an interface of this host.
    pub(crate) fn address(&self, interface: Option<&str>, family: Family) -> Option<Prefix> {
        let six = family == Family::Six;
        let mut own = self
            .options
            .local
            .iter()
            .filter(|(_, one)| one.is_ip6 == six);
        match interface {
            Some(wanted) => own
                .find(|(name, _)| name.as_deref() == Some(wanted))
                .map(|(_, prefix)| *prefix),
            None => {
                let first = own.next()?;
                own.next().is_none().then_some(first.1)
            }
        }
    }

    /// Packets that leave by one of these interfaces, or by none of them.
    pub(crate) fn leaves_by(
        &mut self,
        interfaces: &[&str],
        negated: bool,
    ) -> Result<Vec<Condition>, String> {
        let routes = &self.options.routes;
        let unknown = interfaces
            .iter()
            // Nothing that is received leaves by the loopback interface.
            .find(|name| **name != "lo" && !routes.iter().any(|(known, _)| known == *name));
        if let Some(unknown) = unknown {
            return Err(format!(
                "a packet that is received does not show that it leaves by {unknown}; say which addresses are there with `--route {unknown}=PREFIX`"
            ));
        }
        let mut routes = routes.clone();
        // More specific routes take addresses from wider ones.
        routes.sort_by_key(|(_, prefix)| prefix.len);
        let mut out = Vec::new();
        for family in [Family::Four, Family::Six] {
            let domain = family.destination().domain();
            let mut there = Numbers::default();
            for (name, prefix) in &routes {
                if prefix.is_ip6 != (family == Family::Six) {
                    continue;
                }
                let block = Numbers::range(prefix.first, prefix.last());
                there = match interfaces.contains(&name.as_str()) {
                    true => there.or(&block),
                    false => there.and(&block.not_in(&domain)),
                };
            }
            if negated {
                there = there.not_in(&domain);
            }
            if !there.is_empty() {
                out.extend(Condition::of(family.destination(), there));
            }
        }
        Ok(out)
    }

    /// Packets for this host, or for others.
    pub(crate) fn for_host(&self, wanted: bool) -> Vec<Condition> {
        let groups: [(Family, &[(u128, u128)]); 2] = [
            (
                Family::Four,
                &[(0xe000_0000, 0xefff_ffff), (0xffff_ffff, 0xffff_ffff)],
            ),
            (
                Family::Six,
                &[
                    (0xff << 120, u128::MAX),
                    (0xfe80 << 112, (0xfec0 << 112) - 1),
                ],
            ),
        ];
        let mut out = Vec::new();
        for (family, groups) in groups {
            let field = family.destination();
            let own = self.local(family).unwrap_or_default();
            let own = own.or(&Numbers::new(groups.to_vec()));
            let set = if wanted {
                own
            } else {
                own.not_in(&field.domain())
            };
            out.extend(Condition::of(field, set));
        }
        out
    }
}
