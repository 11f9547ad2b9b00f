//! Chains with jumps, made one list of decisions.
//!
//! A chain that is jumped to is inlined with the conditions of the jump; what returned is taken off the conditions of the rules behind. Base chains of one
//! path come one after the other: an accept ends its own chain only, a drop ends the packet.

use std::collections::BTreeMap;

use crate::answers::Answer;
use crate::condition::{Condition, TooMany, Work, product, subtract_with};
use crate::packets_before::{Change, Limited, Per};
use crate::writes::Write;

/// Most decisions that chains may become.
const MAX_DECISIONS: usize = 4_000;
/// Most rules that are looked at on the way, with every entry of their chains.
pub(crate) const MAX_VISITS: usize = 20_000;
/// Deepest nesting of jumps, that of the kernel.
pub(crate) const MAX_DEPTH: usize = 16;

/// What a rule says of packets that meet its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Accept,
    Drop,
    Jump(String),
    Goto(String),
    Return,
    /// No verdict: the packet goes on.
    Continue,
}

/// A rule as read.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) line: u32,
    /// As written, in one line.
    pub(crate) text: String,
    /// One of these holds.
    pub(crate) when: Vec<Condition>,
    pub(crate) then: Then,
    /// Text in front of what is logged.
    pub(crate) log: Option<String>,
    /// `then` is for packets above a rate, or within it.
    pub(crate) limited: Option<Limited>,
    /// What is done to a set for all packets of the rule, before `then`.
    pub(crate) change: Option<(Vec<Condition>, Change)>,
    /// What is written to all packets of the rule that meet one of the conditions, before `then`.
    pub(crate) writes: Vec<(Vec<Condition>, Write)>,
    /// How senders of what it drops are told.
    pub(crate) answers: Vec<Answer>,
}

impl Rule {
    /// The limit of a rule that only logs, and only what is within.
    fn limits_its_log(&self) -> Option<&Limited> {
        let within = |limited: &&Limited| !limited.over && limited.limit.per == Per::Rule;
        (self.limited.as_ref()).filter(|limited| within(limited) && self.then == Then::Continue)
    }

    /// Whether it does nothing but drop these packets.
    fn drops(&self, packets: &[Condition]) -> bool {
        let plain = self.log.is_none() && self.limited.is_none() && self.change.is_none();
        let plain = plain && self.writes.is_empty();
        let covered = |packet: &Condition| self.when.iter().any(|one| one.covers(packet));
        plain && self.then == Then::Drop && packets.iter().all(covered)
    }
}

/// Why a rule with a limit has no counterpart.
const ABOVE: &str = "weir drops what is above a rate; for other things it has no limit, and cannot do them for what is above only";
const WITHIN: &str = "weir drops what is above a rate, and has no limit for what a rule does with packets within it, but for `log` alone, for `accept` in front of drops and for `return` right in front of one";

/// A chain as read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) rules: Vec<Rule>,
    /// Where it is defined.
    pub(crate) line: u32,
}

/// All chains by name.
pub(crate) type Chains = BTreeMap<String, Chain>;

/// What is decided about packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Drop,
    /// Only reported.
    Log,
    /// Only a set is changed.
    Change,
    /// Only a field is written.
    Write,
}

/// Packets that meet one of the conditions, and none of earlier accepts and drops, have the verdict.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) when: Vec<Condition>,
    pub(crate) verdict: Verdict,
    pub(crate) log: Option<String>,
    /// Whether the packets open connections whose packets have the verdict, too.
    pub(crate) stateful: bool,
    /// The verdict is for packets above a rate (drop), or within it (accept, log); the others go on.
    pub(crate) limited: Option<Limited>,
    pub(crate) change: Option<Change>,
    pub(crate) write: Option<Write>,
    /// How senders of what is dropped are told: the first that goes with a packet.
    pub(crate) answers: Vec<Answer>,
}

/// Why a rule has no place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) reason: String,
}

/// Inlines a chain.
pub(crate) struct Flatten<'a> {
    chains: &'a Chains,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) refused: Vec<Refused>,
    visits: usize,
    /// Comparisons of conditions that are left.
    work: Work,
}

impl<'a> Flatten<'a> {
    pub(crate) fn new(chains: &'a Chains) -> Flatten<'a> {
        Flatten {
            chains,
            decisions: Vec::new(),
            refused: Vec::new(),
            visits: 0,
            work: Work::of_all(),
        }
    }

    /// Appends what a chain decides about packets that meet one of the conditions. What is left at its end.
    pub(crate) fn chain(
        &mut self,
        name: &str,
        entered: Vec<Condition>,
        depth: usize,
    ) -> Result<(), String> {
        let Some(chain) = self.chains.get(name) else {
            return Err(format!("there is no chain `{name}`"));
        };
        if depth > MAX_DEPTH {
            return Err(format!("chains are nested deeper than {MAX_DEPTH}"));
        }
        let mut left = entered;
        for (at, rule) in chain.rules.iter().enumerate() {
            if left.is_empty() {
                break;
            }
            let before = self.decisions.len();
            match self.rule(rule, chain.rules.get(at + 1), &left, depth) {
                Ok(gone) => left = gone,
                Err(reason) => {
                    // A chain that cannot be inlined whole is not inlined in part.
                    self.decisions.truncate(before);
                    self.refused.push(Refused {
                        line: rule.line,
                        text: rule.text.clone(),
                        reason,
                    });
                }
            }
        }
        Ok(())
    }

    /// Appends what a rule decides; the conditions of packets that go on to the next rule, as far as that is cheap to say.
    fn rule(
        &mut self,
        rule: &Rule,
        next: Option<&Rule>,
        left: &[Condition],
        depth: usize,
    ) -> Result<Vec<Condition>, String> {
        // A chain that jumps to itself more than once would be inlined exponentially often.
        self.visits += 1;
        if self.visits > MAX_VISITS {
            return Err(format!(
                "with every entry of its chains there are more than {MAX_VISITS} rules"
            ));
        }
        let too_many =
            |_: TooMany| "with the chains around it, it becomes too many rules of weir".to_owned();
        let pairs = left.len().saturating_mul(rule.when.len());
        self.work.take(pairs).map_err(too_many)?;
        let when = product(left, &rule.when).map_err(too_many)?;
        if when.is_empty() {
            return Ok(left.to_vec());
        }
        let decisions = &mut self.decisions;
        let mut put = |decision: Decision| {
            if decisions.len() >= MAX_DECISIONS {
                return Err(format!("the chains become more than {MAX_DECISIONS} rules"));
            }
            decisions.push(decision);
            Ok(())
        };
        let decision = |verdict| Decision {
            line: rule.line,
            text: rule.text.clone(),
            when: when.clone(),
            verdict,
            log: None,
            stateful: false,
            limited: None,
            change: None,
            write: None,
            answers: Vec::new(),
        };
        for (of, write) in &rule.writes {
            put(Decision {
                when: product(left, of).map_err(too_many)?,
                write: Some(write.clone()),
                ..decision(Verdict::Write)
            })?;
        }
        if let Some((of, change)) = &rule.change {
            put(Decision {
                when: product(left, of).map_err(too_many)?,
                change: Some(change.clone()),
                ..decision(Verdict::Change)
            })?;
        }
        if rule.log.is_some() {
            let limited = rule.limits_its_log().cloned();
            let alone = limited.is_some();
            put(Decision {
                log: rule.log.clone(),
                limited,
                ..decision(Verdict::Log)
            })?;
            if alone {
                return Ok(left.to_vec());
            }
        }
        if let Some(limited) = &rule.limited {
            let verdict = match (&rule.then, limited.over) {
                (Then::Drop, true) => Verdict::Drop,
                (Then::Accept, false) => Verdict::Accept,
                // What is within returns, what is above is dropped by the next rule.
                (Then::Return, false) if next.is_some_and(|next| next.drops(&rule.when)) => {
                    put(Decision {
                        limited: Some(Limited {
                            over: true,
                            returns: true,
                            ..limited.clone()
                        }),
                        answers: next.map_or_else(Vec::new, |next| next.answers.clone()),
                        ..decision(Verdict::Drop)
                    })?;
                    return subtract_with(left.to_vec(), when.iter(), &mut self.work)
                        .map_err(too_many);
                }
                (_, true) => return Err(ABOVE.to_owned()),
                (_, false) => return Err(WITHIN.to_owned()),
            };
            put(Decision {
                limited: Some(limited.clone()),
                answers: rule.answers.clone(),
                ..decision(verdict)
            })?;
            return Ok(left.to_vec());
        }
        let mut push = |verdict| {
            put(Decision {
                answers: rule.answers.clone(),
                ..decision(verdict)
            })
        };
        let ends = |left: &[Condition]| -> Vec<Condition> {
            let open = |one: &&Condition| !when.iter().any(|gone| gone.covers(one));
            left.iter().filter(open).cloned().collect()
        };
        match &rule.then {
            Then::Continue => Ok(left.to_vec()),
            Then::Accept => push(Verdict::Accept).map(|()| ends(left)),
            Then::Drop => push(Verdict::Drop).map(|()| ends(left)),
            Then::Return => {
                subtract_with(left.to_vec(), when.iter(), &mut self.work).map_err(too_many)
            }
            Then::Jump(name) => {
                self.chain(name, when, depth + 1)?;
                Ok(left.to_vec())
            }
            Then::Goto(name) => {
                self.chain(name, when.clone(), depth + 1)?;
                subtract_with(left.to_vec(), when.iter(), &mut self.work).map_err(too_many)
            }
        }
    }
}

/// The decisions of base chains that a packet passes one after the other. Only the last one may drop what nothing decides: what comes before
/// is drops, each without what its own chain accepted before.
pub(crate) fn in_series(earlier: Vec<Decision>, refused: &mut Vec<Refused>) -> Vec<Decision> {
    let mut accepted: Vec<Condition> = Vec::new();
    let mut out = Vec::new();
    let mut work = Work::of_all();
    for mut decision in earlier {
        match decision.verdict {
            Verdict::Accept if decision.limited.is_some() => refused.push(Refused {
                line: decision.line,
                text: decision.text,
                reason: "only the last chain of a path may accept within a rate".to_owned(),
            }),
            Verdict::Accept => accepted.extend(decision.when),
            Verdict::Drop | Verdict::Log | Verdict::Change | Verdict::Write => {
                match subtract_with(decision.when, accepted.iter(), &mut work) {
                    Ok(when) => {
                        decision.when = when;
                        out.push(decision);
                    }
                    Err(TooMany) => refused.push(Refused {
                        line: decision.line,
                        text: decision.text,
                        reason:
                            "without what is accepted before it, it becomes too many rules of weir"
                                .to_owned(),
                    }),
                }
            }
        }
    }
    out
}
