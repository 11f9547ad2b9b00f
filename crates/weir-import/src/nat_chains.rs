//! Chains of the NAT hooks with their jumps, made one list of translations.
//!
//! A chain that is jumped to is inlined with the conditions of the jump. Which packets an earlier translation takes is settled behind that
//! (`nat`): the first one that matches counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::chains::{MAX_DEPTH, MAX_VISITS};
use crate::condition::{Condition, Work, product, subtract_with};
use crate::finding::{Effect, Finding};
use crate::nat::{self, Target, Translation};
use crate::state::State;

/// What a rule does with packets that meet its conditions.
#[derive(Clone, Debug)]
pub(crate) enum NatThen {
    To(Target),
    Jump(String),
    Goto(String),
    Return,
    /// Nothing is translated.
    Accept,
    /// It cannot be translated, for this reason.
    Unread(String, Effect),
}

/// A rule of a chain that NAT hooks may reach.
#[derive(Clone, Debug)]
pub(crate) struct NatRule {
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) when: Vec<Condition>,
    pub(crate) then: NatThen,
    /// The interface that packets leave by, if the rule names one.
    pub(crate) out: Option<String>,
}

/// A chain that packets enter by themselves.
#[derive(Clone, Debug)]
pub(crate) struct NatBase {
    pub(crate) chain: String,
    /// As the file calls it.
    pub(crate) name: String,
    pub(crate) priority: i32,
    pub(crate) translates: Translates,
    /// Packets that the chain sees.
    pub(crate) covers: Vec<Condition>,
}

/// What the rules of a base chain translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Translates {
    Destination,
    Source,
    /// Packets that this host sends or receives itself.
    OwnPackets,
}

/// All chains by name.
#[derive(Debug, Default)]
pub(crate) struct NatChains {
    chains: BTreeMap<String, Vec<NatRule>>,
    pub(crate) bases: Vec<NatBase>,
}

impl NatChains {
    pub(crate) fn push(&mut self, chain: &str, rule: NatRule) {
        self.chains.entry(chain.to_owned()).or_default().push(rule);
    }

    /// Translations in the order in which packets meet them; what cannot be said goes to the findings.
    pub(crate) fn translations(&self, state: &mut State) -> Vec<Translation> {
        let mut walk = Walk {
            chains: &self.chains,
            source: false,
            made: Vec::new(),
            reached: BTreeSet::new(),
            visits: 0,
            work: Work::of_all(),
            state,
        };
        let mut bases: Vec<&NatBase> = self.bases.iter().collect();
        bases.sort_by_key(|base| base.priority);
        for base in bases {
            match base.translates {
                Translates::OwnPackets => walk.own_packets(base),
                translates => {
                    walk.source = translates == Translates::Source;
                    walk.chain(&base.chain, base.covers.clone(), None, 0);
                }
            }
        }
        walk.unreached();
        walk.made
    }
}

struct Walk<'a, 's> {
    chains: &'a BTreeMap<String, Vec<NatRule>>,
    source: bool,
    made: Vec<Translation>,
    /// Lines of rules that something was said about.
    reached: BTreeSet<u32>,
    visits: usize,
    /// Comparisons of conditions that are left.
    work: Work,
    state: &'s mut State,
}

impl Walk<'_, '_> {
    fn say(&mut self, rule: &NatRule, reason: impl Into<String>, effect: Effect) {
        self.reached.insert(rule.line);
        let finding = Finding::new(rule.line, &rule.text, reason, effect);
        self.state.findings.push(finding);
    }

    fn chain(&mut self, name: &str, entered: Vec<Condition>, out: Option<&str>, depth: usize) {
        let chains = self.chains;
        let mut left = entered;
        // Why the rules behind have no conditions.
        let mut lost: Option<String> = None;
        for rule in chains.get(name).map_or(&[][..], Vec::as_slice) {
            if left.is_empty() {
                break;
            }
            if let Some(reason) = &lost {
                self.say(rule, reason.clone(), Effect::NotMapped);
                continue;
            }
            match self.rule(rule, &left, out, depth) {
                Ok(None) => {}
                Ok(Some(gone)) => {
                    match subtract_with(std::mem::take(&mut left), gone.iter(), &mut self.work) {
                        Ok(rest) => left = rest,
                        Err(_) => {
                            lost = Some(format!(
                                "without the packets that line {} takes out of the chain, it becomes too many rules of weir",
                                rule.line
                            ));
                            left = vec![Condition::any()];
                        }
                    }
                }
                Err(reason) => self.say(rule, reason, Effect::NotMapped),
            }
        }
    }

    /// Conditions of packets that leave the chain without a verdict.
    fn rule(
        &mut self,
        rule: &NatRule,
        left: &[Condition],
        out: Option<&str>,
        depth: usize,
    ) -> Result<Option<Vec<Condition>>, String> {
        self.visits += 1;
        if self.visits > MAX_VISITS {
            return Err(format!(
                "with every entry of its chains there are more than {MAX_VISITS} rules"
            ));
        }
        let pairs = left.len().saturating_mul(rule.when.len());
        let when = (self.work.take(pairs)).and_then(|()| product(left, &rule.when));
        let when = when.map_err(|_| {
            "with the chains around it, it becomes too many rules of weir".to_owned()
        })?;
        if when.is_empty() {
            self.reached.insert(rule.line);
            return Ok(None);
        }
        let out = rule.out.as_deref().or(out);
        let to = match &rule.then {
            NatThen::To(to) => to.clone(),
            NatThen::Accept => nat::none(),
            NatThen::Return if depth == 0 => nat::none(),
            NatThen::Return => return Ok(Some(when)),
            NatThen::Jump(name) | NatThen::Goto(name) => {
                if depth >= MAX_DEPTH {
                    return Err(format!("chains are nested deeper than {MAX_DEPTH}"));
                }
                self.chain(name, when.clone(), out, depth + 1);
                return Ok(matches!(rule.then, NatThen::Goto(_)).then_some(when));
            }
            NatThen::Unread(reason, effect) => {
                self.say(rule, reason.clone(), *effect);
                return Ok(None);
            }
        };
        self.reached.insert(rule.line);
        self.made.push(Translation {
            line: rule.line,
            text: rule.text.clone(),
            when,
            to,
            source: self.source,
            out: out.map(str::to_owned),
            seen: true,
        });
        Ok(None)
    }

    fn own_packets(&mut self, base: &NatBase) {
        let chains = self.chains;
        for rule in chains.get(&base.chain).map_or(&[][..], Vec::as_slice) {
            if matches!(
                rule.then,
                NatThen::To(_) | NatThen::Jump(_) | NatThen::Goto(_)
            ) {
                let reason = format!(
                    "{} translates packets that this host sends or takes itself; the policy judges what is received",
                    base.name
                );
                self.say(rule, reason, Effect::NotMapped);
            }
        }
    }

    /// Translations in chains that no hook leads to.
    fn unreached(&mut self) {
        for (chain, rules) in self.chains {
            for rule in rules {
                if matches!(rule.then, NatThen::To(_)) && !self.reached.contains(&rule.line) {
                    // Names of chains have their table in front.
                    let chain = chain.rsplit('/').next().unwrap_or(chain);
                    let reason = format!(
                        "no rule of prerouting or postrouting that is translated jumps to chain {chain}"
                    );
                    self.say(rule, reason, Effect::NotMapped);
                }
            }
        }
    }
}
