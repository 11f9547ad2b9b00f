//! The rules of a policy as lints see them, and how two of them relate.

use std::cell::Cell;

use super::solve::{Demand, Known, always_has, satisfiable};
use crate::ast::{self, Action, Span};
use crate::field::{Header, Kind};
use crate::model::{Classes, Match, Policy, PortName, Rule, Target, Test};

/// Most pairs of rules that are compared.
const MOST_PAIRS: usize = 200_000;

/// A rule with its text and what it asks of packets.
pub(super) struct Seen<'a> {
    pub(super) rule: &'a Rule,
    pub(super) written: &'a ast::Rule,
    pub(super) demands: Vec<Demand<'a>>,
}

/// All rules, and what is known of the packets that reach them.
pub(super) struct View<'a> {
    /// Those that some packet matches.
    pub(super) rules: Vec<Seen<'a>>,
    /// The others.
    pub(super) dead: Vec<Seen<'a>>,
    pub(super) known: Known,
    /// Stateless rules that accept, and such that drop every packet they match, those with few matches first.
    accepts: Vec<usize>,
    drops: Vec<usize>,
    /// All that accept.
    all_accepts: Vec<usize>,
    /// How many more pairs of rules are compared.
    budget: Cell<usize>,
}

impl<'a> View<'a> {
    pub(super) fn of(policy: &'a Policy, written: &[&'a ast::Rule]) -> View<'a> {
        let rules = policy.rules.iter().zip(written);
        let all = rules.map(|(rule, written)| Seen {
            rule,
            written,
            demands: demands(rule),
        });
        let known = Known {
            strict: true,
            stateful: policy.rules.iter().any(|rule| rule.stateful),
        };
        let (rules, dead): (Vec<Seen<'_>>, Vec<Seen<'_>>) =
            all.partition(|seen| satisfiable(&seen.demands, known));
        let those = |is_meant: &dyn Fn(&Seen<'_>) -> bool| {
            let mut found: Vec<usize> = (0..rules.len())
                .filter(|&n| !rules[n].rule.stateful && is_meant(&rules[n]))
                .collect();
            found.sort_by_key(|&n| rules[n].rule.matches.len());
            found
        };
        let always = |target: &Target| matches!(target, Target::Drop(when) if when.is_always());
        let accepts = those(&|seen| seen.accepts());
        let drops = those(&|seen| seen.rule.targets.iter().any(always));
        let all_accepts = (0..rules.len()).filter(|&n| rules[n].accepts()).collect();
        View {
            rules,
            dead,
            known,
            accepts,
            drops,
            all_accepts,
            budget: Cell::new(MOST_PAIRS),
        }
    }

    /// Whether some packet passes all tests of these rules, and more.
    pub(super) fn meet(&self, rules: &[&Seen<'a>], more: &[Demand<'_>]) -> bool {
        if self.budget.get() == 0 {
            // Of very large policies not all is compared: they may meet, so nothing is said.
            return true;
        }
        self.budget.set(self.budget.get() - 1);
        let mut all: Vec<Demand<'_>> = more.to_vec();
        all.extend(rules.iter().flat_map(|seen| seen.demands.iter().copied()));
        satisfiable(&all, self.known)
    }

    /// Whether every packet that meets the demands passes all tests of the rule. `true` is certain.
    pub(super) fn covers(&self, outer: &Seen<'_>, inner: &[Demand<'_>]) -> bool {
        self.covers_but(outer, inner, |_| false)
    }

    /// The same, some of its tests left out.
    pub(super) fn covers_but(
        &self,
        outer: &Seen<'_>,
        inner: &[Demand<'_>],
        is_left_out: impl Fn(&Match) -> bool,
    ) -> bool {
        let tests = || outer.rule.matches.iter().filter(|one| !is_left_out(one));
        if tests().any(|one| is_apart(one, inner)) {
            return false;
        }
        let needed = match tests().count() == outer.rule.matches.len() {
            true => outer.rule.requires,
            // Headers of tests that are left out are not known apart.
            false => outer
                .rule
                .requires
                .without(Classes::VLAN.union(Classes::VLAN2)),
        };
        if tests().any(|one| is_free_of(one, inner)) || !always_has(inner, needed, self.known) {
            return false;
        }
        tests().all(|one| {
            inner.iter().any(|demand| implies(demand, one)) || {
                let mut all = inner.to_vec();
                all.push(Demand::Fails(one));
                !satisfiable(&all, self.known)
            }
        })
    }

    /// Stateless rules that accept.
    pub(super) fn accepts(&self) -> impl Iterator<Item = &Seen<'a>> {
        self.accepts.iter().filter_map(|&n| self.rules.get(n))
    }

    /// All rules that accept.
    pub(super) fn all_accepts(&self) -> impl Iterator<Item = &Seen<'a>> {
        self.all_accepts.iter().filter_map(|&n| self.rules.get(n))
    }

    /// Stateless ones that may cover others: of very many the widest.
    pub(super) fn wide_accepts(&self) -> impl Iterator<Item = &Seen<'a>> {
        self.accepts().take(self.wide())
    }

    /// Stateful rules that accept: of very many the first.
    pub(super) fn wide_stateful_accepts(&self) -> impl Iterator<Item = &Seen<'a>> {
        let stateful = self.all_accepts().filter(|seen| seen.rule.stateful);
        stateful.take(self.wide())
    }

    /// Stateless rules that drop every packet they match: of very many the widest.
    pub(super) fn wide_drops(&self) -> impl Iterator<Item = &Seen<'a>> {
        let drops = self.drops.iter().take(self.wide());
        drops.filter_map(|&n| self.rules.get(n))
    }

    fn wide(&self) -> usize {
        match self.rules.len() {
            0..=2000 => usize::MAX,
            _ => 64,
        }
    }
}

impl Seen<'_> {
    pub(super) fn accepts(&self) -> bool {
        self.rule.targets.contains(&Target::Accept)
    }

    /// How a message calls it.
    pub(super) fn called(&self) -> String {
        match &self.rule.name {
            Some(name) => format!("rule `{name}`"),
            None => format!("rule {}", self.rule.id),
        }
    }

    /// The first target like this, or all of the rule.
    pub(super) fn place(&self, is_meant: impl Fn(&Action) -> bool) -> Span {
        let targets = self.written.targets.iter();
        let found = targets.into_iter().find(|target| is_meant(&target.action));
        found.map_or(self.written.span, |target| target.span)
    }

    pub(super) fn drop_place(&self) -> Span {
        self.place(|action| {
            matches!(
                action,
                Action::Drop(_)
                    | Action::DropOver(..)
                    | Action::DropQuota(..)
                    | Action::DropConnections(..)
                    | Action::Reject(_)
            )
        })
    }

    /// Whether a match names this field.
    pub(super) fn names_field(&self, name: &str) -> bool {
        let mut fields = self.rule.matches.iter().map(|one| one.subject.field);
        fields.any(|field| field.info().name == name)
    }

    /// Whether a match names a field of one of these headers.
    pub(super) fn names(&self, headers: &[Header]) -> bool {
        let fields = self.rule.matches.iter().map(|one| one.subject.field);
        fields
            .into_iter()
            .any(|field| headers.contains(&field.info().header))
    }
}

/// What a rule asks of packets.
fn demands(rule: &Rule) -> Vec<Demand<'_>> {
    let needed = (rule.requires != Classes::NONE).then_some(Demand::Has(rule.requires));
    let matches = rule.matches.iter().map(Demand::Holds);
    needed.into_iter().chain(matches).collect()
}

/// Whether no packet that meets the demands passes a test, as is seen at once: both have few values, and none in common.
fn is_apart(one: &Match, demands: &[Demand<'_>]) -> bool {
    const FEW: usize = 8;
    let Test::In(outer) = &one.test else {
        return false;
    };
    demands.iter().any(|demand| match demand {
        Demand::Holds(other) if other.subject == one.subject && !other.negated && !one.negated => {
            let Test::In(inner) = &other.test else {
                return false;
            };
            let met =
                |&(lo, hi): &(u128, u128)| outer.from(lo).is_some_and(|(first, _)| first <= hi);
            inner.intervals().len() <= FEW && !inner.intervals().iter().any(met)
        }
        _ => false,
    })
}

/// Whether nothing in the demands says anything about what a match tests, so that it may fail.
fn is_free_of(one: &Match, demands: &[Demand<'_>]) -> bool {
    let info = one.subject.field.info();
    let tells = match (&one.test, info.kind) {
        (Test::Always | Test::Present, _) => return false,
        (_, Kind::Addr4 | Kind::Addr6 | Kind::InPort | Kind::OutPort) => true,
        (_, Kind::Number) => info.name.ends_with("port") || info.name.ends_with("type"),
        _ => false,
    };
    let is_same = |demand: &Demand<'_>| match demand {
        Demand::Holds(other) => other.subject == one.subject,
        _ => false,
    };
    tells && info.name != "eth-type" && !demands.iter().any(is_same)
}

/// Whether a match that holds makes another one hold, by what is written.
fn implies(demand: &Demand<'_>, one: &Match) -> bool {
    let Demand::Holds(other) = demand else {
        return false;
    };
    if *other == one {
        return true;
    }
    if other.subject != one.subject || other.negated {
        return false;
    }
    match (&other.test, &one.test) {
        (Test::Port(inner), Test::Port(outer)) if !one.negated => {
            inner.iter().all(|port| outer.contains(port))
        }
        (Test::Port(inner), Test::Port(outer)) => {
            let is_name = |port: &PortName| matches!(port, PortName::Name(_));
            let same_kind = |port: &PortName| outer.iter().all(|o| is_name(o) == is_name(port));
            inner
                .iter()
                .all(|port| same_kind(port) && !outer.contains(port))
        }
        // A value of an option that is in a smaller set is in the larger one.
        (Test::In(inner), Test::In(outer)) => {
            let holds = |&(lo, hi): &(u128, u128)| match outer.from(lo) {
                Some((first, last)) => {
                    !one.negated && first <= lo && hi <= last || one.negated && hi < first
                }
                None => one.negated,
            };
            inner.intervals().len() < 64 && inner.intervals().iter().all(holds)
        }
        _ => false,
    }
}
