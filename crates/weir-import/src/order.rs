//! Which packets reach a decision, in the order of the file, so that rules of weir, which all count, mean the same.
//!
//! Limits turn this around. `accept` of weir overrides a limit, so what may be above one is not accepted: it passes, because no rule drops it.

use crate::answers::Answer;
use crate::chains::{Decision, Verdict};
use crate::condition::{Condition, Field, TCP, TooMany, Work, product, prune, subtract_with};
use crate::finding::Effect;
use crate::numbers::Numbers;
use crate::packets_before::{DynamicSets, Limited, Per};
use crate::writes::of_one_version;

/// A rule that only logs is left out if it becomes more rules.
const MAX_LOGS: usize = 16;

/// A rule that only writes is left out if it becomes more rules.
const MAX_WRITES: usize = 16;

/// What is written for a decision.
#[derive(Debug, Default)]
pub(crate) struct Wrote {
    pub(crate) rules: Vec<Condition>,
    /// Rules in front of those, with their target: how senders are told.
    pub(crate) answered: Vec<(Condition, String)>,
    /// Why senders are not told.
    pub(crate) not_answered: Option<String>,
    /// Packets that it accepts pass without a rule.
    pub(crate) passes: bool,
    /// A line that logs what is above its rate, which weir does not.
    pub(crate) not_logged: Option<u32>,
    /// Said also where no rule is left.
    pub(crate) speaks: bool,
}

/// Decisions up to one, and what they took.
pub(crate) struct Reached<'d> {
    decisions: &'d [Decision],
    /// Dropped at the end.
    last: &'d [Condition],
    sets: &'d DynamicSets,
    dropped: Vec<&'d Condition>,
    /// Of those, what is dropped without an answer, or not always with one.
    silent: Vec<&'d Condition>,
    accepted: Vec<&'d Condition>,
    /// Counted by limits that drop what is above.
    limited: Vec<Condition>,
    /// Accepted without a rule that accepts.
    passed: Vec<Condition>,
    work: Work,
}

/// Why a decision cannot be written, and what that means.
type Refused = (String, Effect);

/// Whether all packets of a condition get an answer, but those that no answer is for: later fragments.
fn is_answered(to: &Condition, when: &Condition) -> bool {
    let protocol = when.has.get(&Field::Proto);
    match to.has.contains_key(&Field::TcpFlags) {
        true => protocol.is_some_and(|set| set.single() == Some(TCP)),
        false => to.covers(when),
    }
}

fn meets(left: &[Condition], right: &[Condition]) -> bool {
    left.iter()
        .any(|one| right.iter().any(|other| one.and(other).is_some()))
}

impl<'d> Reached<'d> {
    pub(crate) fn new(
        decisions: &'d [Decision],
        last: &'d [Condition],
        sets: &'d DynamicSets,
    ) -> Reached<'d> {
        Reached {
            decisions,
            last,
            sets,
            dropped: Vec::new(),
            silent: Vec::new(),
            accepted: Vec::new(),
            limited: Vec::new(),
            passed: Vec::new(),
            work: Work::of_all(),
        }
    }

    /// What is written for the next decision, which is at this place.
    pub(crate) fn next(&mut self, at: usize, decision: &'d Decision) -> Result<Wrote, Refused> {
        match (decision.verdict, &decision.limited) {
            (Verdict::Drop, None) => self.drop(decision),
            (Verdict::Drop, Some(limited)) => {
                let effect = |reason: String| match limited.returns {
                    true => (
                        format!("{reason}; all its packets leave the chain"),
                        Effect::Wider,
                    ),
                    false => (reason, Effect::Wider),
                };
                let rules = self.counted(decision, limited).map_err(effect)?;
                self.limited.extend(rules.iter().cloned());
                let above = "weir drops what is above a rate without an answer";
                Ok(Wrote {
                    rules,
                    not_answered: (!decision.answers.is_empty()).then(|| above.to_owned()),
                    ..Wrote::default()
                })
            }
            (Verdict::Accept, None) => self.accept(decision),
            (Verdict::Accept, Some(limited)) => {
                let effect = |reason| (reason, Effect::Narrower);
                self.within(at, decision, limited).map_err(effect)
            }
            (Verdict::Log, _) => self.log(decision),
            (Verdict::Write, _) => {
                let effect = |reason| (reason, Effect::NoChange);
                self.write(at, decision).map_err(effect)
            }
            (Verdict::Change, _) => {
                let effect = |reason| (reason, Effect::NotAdded);
                self.change(at, decision).map_err(effect)
            }
        }
    }

    /// What is dropped at the end.
    pub(crate) fn rest(&mut self) -> Result<Vec<Condition>, String> {
        if self.passed.is_empty() {
            return Ok(self.last.to_vec());
        }
        let rest = subtract_with(self.last.to_vec(), self.passed.iter(), &mut self.work);
        rest.map_err(|TooMany| {
            "without what limits before it let pass, it becomes too many rules of weir".to_owned()
        })
    }

    fn drop(&mut self, decision: &'d Decision) -> Result<Wrote, Refused> {
        let when = prune(decision.when.clone());
        let rules = match self.passed.is_empty() {
            true => Ok(when),
            false => subtract_with(when, self.passed.iter(), &mut self.work),
        };
        let rules = rules.map_err(|TooMany| {
            let reason =
                "without what limits before it let pass, it becomes too many rules of weir";
            (reason.to_owned(), Effect::Wider)
        })?;
        let mut wrote = Wrote::default();
        if !decision.answers.is_empty() {
            match self.answered(&rules, &decision.answers) {
                Ok(answered) => wrote.answered = answered,
                Err(reason) => wrote.not_answered = Some(reason),
            }
        }
        let always =
            |one: &Condition| (decision.answers.iter()).any(|answer| is_answered(&answer.to, one));
        if wrote.not_answered.is_some() || !decision.when.iter().all(always) {
            // Later fragments are not answered.
            let later = Numbers::one(1);
            let answerable = |one: &&Condition| one.has.get(&Field::FragLater) != Some(&later);
            self.silent.extend(decision.when.iter().filter(answerable));
        }
        self.dropped.extend(&decision.when);
        let with_an_answer =
            |one: &Condition| (wrote.answered.iter()).any(|(when, _)| when.covers(one));
        // Weir answers what any rule rejects, so the rest is a drop that may say more than it needs to.
        wrote.rules = (rules.into_iter())
            .filter(|one| !with_an_answer(one))
            .collect();
        Ok(wrote)
    }

    /// Which of these packets are answered, and how. A packet is answered as the first rule says that rejects it, so what was dropped
    /// without an answer before is taken off.
    fn answered(
        &mut self,
        rules: &[Condition],
        answers: &[Answer],
    ) -> Result<Vec<(Condition, String)>, String> {
        if meets(rules, &self.limited) {
            return Err(
                "what is above a limit before it is dropped without an answer, and weir would answer it"
                    .to_owned(),
            );
        }
        let too_many = |TooMany| {
            "without what rules before it drop without an answer, it becomes too many rules of weir"
                .to_owned()
        };
        let silent = self.silent.iter().copied();
        let rules = subtract_with(rules.to_vec(), silent, &mut self.work).map_err(too_many)?;
        let mut out = Vec::new();
        for answer in answers {
            let to = std::slice::from_ref(&answer.to);
            let when = product(&rules, to).map_err(too_many)?;
            out.extend(when.into_iter().map(|one| (one, answer.target.clone())));
        }
        Ok(out)
    }

    fn accept(&mut self, decision: &'d Decision) -> Result<Wrote, Refused> {
        let too_many = |TooMany| {
            let reason = "without what rules before it drop, it becomes too many rules of weir";
            (reason.to_owned(), Effect::Narrower)
        };
        // Whatever becomes of it, packets of it reach no log behind.
        self.accepted.extend(&decision.when);
        let dropped = self.dropped.iter().copied();
        let when = subtract_with(decision.when.clone(), dropped, &mut self.work);
        let mut rules = when.map_err(too_many)?;
        let mut passes = false;
        if meets(&rules, &self.limited) {
            let passed = product(&rules, &self.limited).map_err(too_many)?;
            rules = subtract_with(rules, self.limited.iter(), &mut self.work).map_err(too_many)?;
            self.passed.extend(passed);
            passes = true;
        }
        Ok(Wrote {
            rules,
            passes,
            speaks: true,
            ..Wrote::default()
        })
    }

    /// The packets that reach a decision and that it counts together.
    fn counted(
        &mut self,
        decision: &Decision,
        limited: &Limited,
    ) -> Result<Vec<Condition>, String> {
        self.counts_in_one_place(decision)?;
        let when = self.reaching(decision)?;
        let families: Vec<Option<u128>> = (when.iter())
            .map(|one| one.has.get(&Field::EthType)?.single())
            .collect();
        // Addresses of IPv4 and of IPv6 are counted apart anyway.
        let apart = limited.limit.per != Per::Rule
            && matches!(families[..], [Some(one), Some(other)] if one != other);
        match when.len() > 1 && !apart {
            true => Err(
                "it becomes several rules of weir, each of which would count on its own".to_owned(),
            ),
            false => Ok(when),
        }
    }

    /// A rule of a chain that is entered twice counts the packets of both ways together.
    fn counts_in_one_place(&self, decision: &Decision) -> Result<(), String> {
        let same = |one: &&Decision| {
            one.line == decision.line && one.verdict == decision.verdict && one.limited.is_some()
        };
        match self.decisions.iter().filter(same).count() {
            0 | 1 => Ok(()),
            _ => Err("packets come to it in more than one way, each of which would be a rule of weir that counts on its own".to_owned()),
        }
    }

    fn reaching(&mut self, decision: &Decision) -> Result<Vec<Condition>, String> {
        let before = self.dropped.iter().chain(&self.accepted).copied();
        let before = before.chain(&self.passed);
        subtract_with(decision.when.clone(), before, &mut self.work)
            .map_err(|TooMany| "which packets reach it becomes too many rules of weir".to_owned())
    }

    /// Accepts what is within a rate: all that is above must be dropped by the rules behind.
    fn within(
        &mut self,
        at: usize,
        decision: &Decision,
        limited: &Limited,
    ) -> Result<Wrote, String> {
        let rules = self.counted(decision, limited)?;
        let mut above = rules.clone();
        let (mut not_logged, mut not_answered) = (None, None);
        for later in self.decisions.get(at + 1..).unwrap_or_default() {
            if !meets(&above, &later.when) {
                continue;
            }
            match (later.verdict, &later.limited) {
                (Verdict::Drop, None) => {
                    if !later.answers.is_empty() {
                        let reason = format!(
                            "what is above its rate is dropped without the answer of line {}",
                            later.line
                        );
                        not_answered.get_or_insert(reason);
                    }
                    above = subtract_with(above, later.when.iter(), &mut self.work)
                        .map_err(|TooMany| "too many rules follow it".to_owned())?;
                }
                // What is dropped is not sent.
                (Verdict::Write, _) => {}
                (Verdict::Log, _) => not_logged = not_logged.or(Some(later.line)),
                _ => {
                    return Err(format!(
                        "what is above its rate goes on to line {}, and weir can only drop it",
                        later.line
                    ));
                }
            }
        }
        let left = subtract_with(above, self.last.iter(), &mut self.work)
            .map_err(|TooMany| "too many rules follow it".to_owned())?;
        if !left.is_empty() {
            return Err(
                "no rule behind it drops what is above its rate, and weir can only drop it"
                    .to_owned(),
            );
        }
        self.limited.extend(rules.iter().cloned());
        self.passed.extend(rules.iter().cloned());
        Ok(Wrote {
            rules,
            not_logged,
            not_answered,
            ..Wrote::default()
        })
    }

    fn log(&mut self, decision: &Decision) -> Result<Wrote, Refused> {
        let refused = |reason: &str| (reason.to_owned(), Effect::NotLogged);
        let few = |rules: &Vec<Condition>| rules.len() <= MAX_LOGS;
        let rules = self.reaching(decision).ok().filter(few);
        let rules = rules.ok_or_else(|| {
            refused("what reaches this log cannot be said in a few rules of weir")
        })?;
        if decision.limited.is_some() {
            self.counts_in_one_place(decision)
                .map_err(|reason| refused(&reason))?;
            if rules.len() > 1 {
                return Err(refused(
                    "it becomes several rules of weir, each of which would count on its own",
                ));
            }
        }
        if meets(&rules, &self.limited) {
            return Err(refused(
                "what is above a limit before it does not reach this log, and in weir it would be logged",
            ));
        }
        Ok(Wrote {
            rules,
            ..Wrote::default()
        })
    }

    /// What is dropped is not sent, so only what rules before accept is taken off.
    fn write(&mut self, at: usize, decision: &Decision) -> Result<Wrote, String> {
        let Some(write) = &decision.write else {
            return Ok(Wrote::default());
        };
        let before = self.accepted.iter().copied().chain(&self.passed);
        let rules = subtract_with(decision.when.clone(), before, &mut self.work);
        let rules = rules.ok().filter(|rules| rules.len() <= MAX_WRITES);
        let rules = rules.ok_or("what reaches it cannot be said in a few rules of weir")?;
        let versions: Vec<Option<u128>> = rules.iter().map(of_one_version).collect();
        let apart = matches!(versions[..], [Some(one), Some(other)] if one != other);
        if write.counts && rules.len() > 1 && !apart {
            return Err(
                "it becomes several rules of weir, and a packet may meet more than one".to_owned(),
            );
        }
        // Rules of weir see the packet as received.
        let Some(field) = write.field else {
            return Ok(Wrote {
                rules,
                ..Wrote::default()
            });
        };
        let blind = |when: &Condition| {
            let mut out = when.clone();
            out.has.remove(&field);
            out
        };
        let written: Vec<Condition> = rules.iter().map(blind).collect();
        for later in self.decisions.get(at + 1..).unwrap_or_default() {
            let tests = |when: &&Condition| {
                when.has
                    .get(&field)
                    .is_some_and(|set| *set != field.domain())
            };
            let tested: Vec<Condition> = later.when.iter().filter(tests).map(blind).collect();
            if later.line != decision.line && meets(&written, &tested) {
                return Err(format!(
                    "line {} tests what it writes, and rules of weir see the packet as received",
                    later.line
                ));
            }
        }
        Ok(Wrote {
            rules,
            ..Wrote::default()
        })
    }

    fn change(&mut self, at: usize, decision: &Decision) -> Result<Wrote, String> {
        let Some(change) = &decision.change else {
            return Ok(Wrote::default());
        };
        let rules = self.reaching(decision)?;
        if meets(&rules, &self.limited) {
            return Err(
                "what is above a limit before it does not change the set, and in weir it would"
                    .to_owned(),
            );
        }
        // Rules of weir see the set as it was before the packet.
        let later = self.decisions.get(at + 1..).unwrap_or_default();
        let mut left = rules.clone();
        let mut same_rule = true;
        let too_many = |TooMany| "too many rules follow it".to_owned();
        for one in later {
            if same_rule && one.line != decision.line {
                same_rule = false;
                left = left
                    .iter()
                    .map(|one| self.without(one, change.set))
                    .collect();
            }
            if !same_rule {
                for other in one.when.iter().filter(|when| self.tests(when, change.set)) {
                    if meets(&left, &[self.without(other, change.set)]) {
                        return Err(format!(
                            "line {} tests the set for the same packet behind it, and rules of weir see it as it was before the packet",
                            one.line
                        ));
                    }
                }
            }
            let ends = matches!(one.verdict, Verdict::Drop | Verdict::Accept);
            if ends && one.limited.is_none() && meets(&left, &one.when) {
                left = subtract_with(left, one.when.iter(), &mut self.work).map_err(too_many)?;
            }
        }
        Ok(Wrote {
            rules,
            ..Wrote::default()
        })
    }

    fn tests(&self, when: &Condition, set: u8) -> bool {
        when.has.keys().any(|field| self.is_of(*field, set))
    }

    fn is_of(&self, field: Field, set: u8) -> bool {
        let tested = field
            .membership()
            .and_then(|number| self.sets.tested(number));
        tested.is_some_and(|(of, _)| of == set)
    }

    /// A condition without its tests of a set.
    fn without(&self, when: &Condition, set: u8) -> Condition {
        let mut out = when.clone();
        out.has.retain(|&field, _| !self.is_of(field, set));
        out
    }
}
