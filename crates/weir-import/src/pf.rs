//! pf.conf of OpenBSD and FreeBSD: macros, tables, and rules of which the last match counts, unless one is `quick`.
//!
//! The list of decisions has the first match count: so quick rules come in their order, and behind them the others in reverse. Packets of states pass
//! whatever rules say, as those of connections that `add-stateful ... accept` opened do. Rules for what leaves are not part of the policy.

use std::collections::{BTreeMap, BTreeSet};

use crate::chains::{Decision, Verdict};
use crate::condition::{Condition, Field, Part, TCP, UDP, product, prune, subtract};
use crate::finding::{Effect, Finding};
use crate::nat::{self, To, Translation, Translations};
use crate::numbers::Numbers;
use crate::policy::Draft;
use crate::state::State;
use crate::values::{self, Family};
use crate::writes::Write;

mod rule;
mod words;

use rule::{Known, Made, Table, address, too_many};
use words::{logical_lines, split};

/// Why a translation is not read that sets a tag.
const TAGGED: &str = "it sets a tag, which rules then test behind the translation: write `tag` in a rule that passes";

/// Reads the text.
pub(crate) fn read(text: &str, state: &mut State, source: &str) -> Draft {
    let mut reader = Reader {
        state,
        macros: BTreeMap::new(),
        known: Known::default(),
        skipped: Vec::new(),
        quick: Vec::new(),
        others: Vec::new(),
        writes: Vec::new(),
        nat: Vec::new(),
        of_rules: Vec::new(),
        leaving: Vec::new(),
        groups: BTreeSet::new(),
        passes: false,
    };
    for (line, text) in logical_lines(text) {
        reader.line(line, &text);
    }
    reader.draft(source)
}

struct Reader<'s> {
    state: &'s mut State,
    macros: BTreeMap<String, String>,
    known: Known,
    /// Interfaces that are not filtered.
    skipped: Vec<Decision>,
    quick: Vec<Decision>,
    others: Vec<Decision>,
    /// What `scrub` writes, whatever decides about its packets.
    writes: Vec<Decision>,
    nat: Vec<Translation>,
    /// `nat-to` and `rdr-to` of rules that pass: for packets that no other rule decides.
    of_rules: Vec<Translation>,
    /// Rules about what leaves.
    leaving: Vec<Leaving>,
    /// Groups of interfaces that rules name.
    groups: BTreeSet<String>,
    passes: bool,
}

/// A rule with a verdict about packets that leave.
struct Leaving {
    line: u32,
    quick: bool,
    when: Vec<Condition>,
}

impl Reader<'_> {
    fn find(&mut self, line: u32, text: &str, reason: impl Into<String>, effect: Effect) {
        self.state
            .findings
            .push(Finding::new(line, text, reason, effect));
    }

    fn line(&mut self, line: u32, text: &str) {
        if let Some((name, value)) = words::definition(text) {
            let value = words::expand(value, &self.macros);
            self.macros.insert(name.to_owned(), value);
            return;
        }
        let expanded = words::expand(text, &self.macros);
        let words = split(&expanded);
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        match &texts[..] {
            [] => {}
            ["table", rest @ ..] => self.table(line, text, rest),
            ["set", "skip", "on", rest @ ..] => {
                for name in rest
                    .iter()
                    .filter(|word| !matches!(**word, "{" | "}" | ","))
                {
                    let Some(name) = values::interface(name) else {
                        let reason = format!("`{name}` is not the name of an interface");
                        self.find(line, text, reason, Effect::Narrower);
                        continue;
                    };
                    let number = self.state.names.interface(name);
                    let when = Condition::of(Field::In, Numbers::one(number));
                    self.skipped.push(Decision {
                        line,
                        text: text.to_owned(),
                        when: when.into_iter().collect(),
                        verdict: Verdict::Accept,
                        log: None,
                        stateful: false,
                        limited: None,
                        change: None,
                        write: None,
                        answers: Vec::new(),
                    });
                }
            }
            ["set", "block-policy", policy, ..] => self.known.answers = *policy == "return",
            ["set", ..] => self.find(
                line,
                text,
                "options of pf are not translated",
                Effect::NoChange,
            ),
            ["scrub", rest @ ..] => {
                // As OpenBSD has it: the options are last, behind `scrub`.
                let options = [
                    "no-df",
                    "random-id",
                    "max-mss",
                    "min-ttl",
                    "set-tos",
                    "fragment",
                    "reassemble",
                ];
                let split = rest.iter().position(|word| options.contains(word));
                let (which, options) = rest.split_at(split.unwrap_or(rest.len()));
                let words: Vec<String> = std::iter::once("match")
                    .chain(which.iter().copied())
                    .chain(std::iter::once("scrub"))
                    .chain(options.iter().copied())
                    .map(str::to_owned)
                    .collect();
                let made = self.rule(&words);
                self.take(line, text, made);
            }
            ["antispoof", rest @ ..] => self.antispoof(line, text, rest),
            ["block" | "pass" | "match", ..] => {
                let made = self.rule(&words);
                self.take(line, text, made);
            }
            ["nat" | "rdr", ..] => {
                if let Err(reason) = self.translation(line, text, &words) {
                    self.find(line, text, reason, Effect::NotMapped);
                }
            }
            [first, ..] => {
                let reason = format!("`{first}` is not translated");
                self.find(line, text, reason, Effect::Either);
            }
        }
    }

    /// Adds what a rule decides.
    fn take(&mut self, line: u32, text: &str, made: Result<Made, String>) {
        let made = match made {
            Ok(made) => made,
            Err(reason) => {
                let effect = match text.split_whitespace().next() {
                    Some("pass") => Effect::Narrower,
                    Some("block") => Effect::Wider,
                    _ => Effect::NoChange,
                };
                self.find(line, text, reason, effect);
                return;
            }
        };
        if let Err(reason) = self.translated(line, text, &made) {
            self.find(line, text, reason, Effect::NotMapped);
        }
        if made.out {
            if !made.no_verdict {
                self.leaving.push(Leaving {
                    line,
                    quick: made.quick,
                    when: made.when,
                });
            }
            if !made.no_verdict || made.to.is_none() {
                let reason = "the policy judges what is received, and this is about what leaves";
                self.find(line, text, reason, Effect::Elsewhere);
            }
            return;
        }
        for (reason, effect) in made.notes {
            self.find(line, text, reason, effect);
        }
        // Names of interfaces end in their number.
        let is_group = |name: &&String| !name.ends_with(|c: char| c.is_ascii_digit());
        for name in made.on.iter().filter(is_group) {
            if self.groups.insert(name.clone()) {
                let reason = format!(
                    "`{name}` is a group of interfaces, and which they are is not in the file: write their names for it in the policy"
                );
                self.find(line, text, reason, Effect::Either);
            }
        }
        if let Some(tag) = &made.tag
            && self.known.tag(tag, &made.when).is_err()
        {
            let reason = format!("which packets have the tag {tag} becomes too many rules of weir");
            self.known.tags_lost = true;
            self.find(line, text, reason, Effect::ByRules);
        }
        if let Some(write) = made.write {
            self.written(line, text, &made.when, write);
        }
        if made.no_verdict {
            return;
        }
        self.passes |= made.pass;
        let verdict = if made.pass {
            Verdict::Accept
        } else {
            Verdict::Drop
        };
        let mut add = |when: Vec<Condition>, stateful: bool| {
            if when.is_empty() {
                return;
            }
            let decision = Decision {
                line,
                text: text.to_owned(),
                when,
                verdict,
                log: None,
                stateful,
                limited: None,
                change: None,
                write: None,
                answers: made.answers.clone(),
            };
            match made.quick {
                true => self.quick.push(decision),
                false => self.others.push(decision),
            }
        };
        if !made.keeps_state {
            add(made.when, false);
            return;
        }
        // What opens no connection passes by itself: ICMP errors, and TCP without SYN where a rule takes it.
        let opens = Numbers::new(vec![(TCP, TCP), (UDP, UDP)]);
        let others = match made.any_flags {
            true => Numbers::one(UDP).not_in(&Field::Proto.domain()),
            false => opens.not_in(&Field::Proto.domain()),
        };
        let alone = (made.when.iter())
            .filter_map(|one| one.with(&Part::Has(Field::Proto, others.clone())))
            .collect();
        add(made.when, true);
        add(prune(alone), false);
    }

    fn draft(mut self, source: &str) -> Draft {
        if self.passes {
            self.find(
                1,
                "(no allow-opts)",
                "pf drops packets with IP options where a rule without `allow-opts` passes them, and weir passes them",
                Effect::Wider,
            );
        }
        let mut decisions = std::mem::take(&mut self.skipped);
        decisions.append(&mut self.writes);
        decisions.append(&mut self.quick);
        decisions.extend(std::mem::take(&mut self.others).into_iter().rev());
        self.settle(&decisions);
        let mut translations = Translations::of(&self.nat, self.state);
        let ready = translations.rules(self.state);
        let mut seen = Vec::with_capacity(decisions.len());
        for mut decision in decisions {
            match translations.before(&decision.when) {
                Ok(when) => {
                    decision.when = when;
                    seen.push(decision);
                }
                Err(reason) => {
                    let effect = match decision.verdict {
                        Verdict::Accept => Effect::Narrower,
                        _ => Effect::Wider,
                    };
                    let finding = Finding::new(decision.line, &decision.text, reason, effect);
                    self.state.findings.push(finding);
                }
            }
        }
        Draft {
            head: vec![
                format!("made by `weir import` from {source}"),
                "the first match counts here: quick rules, then the others from the last to the first".to_owned(),
            ],
            decisions: seen,
            rest: Vec::new(),
            ready,
            tracked: Vec::new(),
        }
    }

    /// Notes what a rule translates to.
    fn translated(&mut self, line: u32, text: &str, made: &Made) -> Result<(), String> {
        let Some((source, to)) = &made.to else {
            return Ok(());
        };
        match (source, made.out) {
            (true, false) => {
                return Err("weir translates the sources of what leaves: write `out`".to_owned());
            }
            (false, true) => {
                return Err("weir translates the destinations of what is received".to_owned());
            }
            _ => {}
        }
        if made.tag.is_some() && !source {
            return Err(TAGGED.to_owned());
        }
        let mut when = made.when.clone();
        let on: Vec<&str> = made.on.iter().map(String::as_str).collect();
        if *source && !on.is_empty() {
            when = product(&when, &self.state.leaves_by(&on, false)?).map_err(too_many)?;
        }
        if matches!(to.address, To::Outgoing) && on.len() != 1 {
            return Err("it does not name one interface".to_owned());
        }
        let translation = Translation {
            line,
            text: text.to_owned(),
            when,
            to: to.clone(),
            source: *source,
            out: made
                .on
                .first()
                .filter(|_| *source && on.len() == 1)
                .cloned(),
            // Rules behind a `match` see what it made of a packet. No rule is behind one that passes it.
            seen: made.no_verdict,
        };
        match made.no_verdict {
            true => self.nat.push(translation),
            false => self.of_rules.push(translation),
        }
        Ok(())
    }

    /// Translations of rules that pass, for packets of which no other rule decides.
    fn settle(&mut self, decisions: &[Decision]) {
        for mut one in std::mem::take(&mut self.of_rules) {
            let settled = match one.source {
                true => self.last_of_leaving(&one),
                false => {
                    let verdict = |decision: &&Decision| {
                        matches!(decision.verdict, Verdict::Accept | Verdict::Drop)
                    };
                    let before = decisions.iter().take_while(|other| other.line != one.line);
                    let before = before.filter(verdict).flat_map(|other| &other.when);
                    subtract(std::mem::take(&mut one.when), before)
                        .map(|when| one.when = when)
                        .map_err(too_many)
                }
            };
            match settled {
                Ok(()) => self.nat.push(one),
                Err(reason) => self.find(one.line, &one.text, reason, Effect::NotMapped),
            }
        }
    }

    /// Whether no other rule about what leaves may decide the packets of this one.
    fn last_of_leaving(&self, one: &Translation) -> Result<(), String> {
        let quick = (self.leaving.iter()).any(|rule| rule.line == one.line && rule.quick);
        let comes_first = |rule: &&Leaving| match rule.line < one.line {
            true => rule.quick,
            false => rule.line > one.line && !quick,
        };
        for rule in self.leaving.iter().filter(comes_first) {
            if !product(&rule.when, &one.when).map_err(too_many)?.is_empty() {
                return Err(format!(
                    "line {} decides about some of its packets: write it as `match out`",
                    rule.line
                ));
            }
        }
        Ok(())
    }

    /// Adds what a rule writes to packets.
    fn written(&mut self, line: u32, text: &str, when: &[Condition], write: Write) {
        match product(when, std::slice::from_ref(&write.when)) {
            Ok(when) => self.writes.push(Decision {
                line,
                text: text.to_owned(),
                when,
                verdict: Verdict::Write,
                log: None,
                stateful: false,
                limited: None,
                change: None,
                write: Some(write),
                answers: Vec::new(),
            }),
            Err(error) => self.find(line, text, too_many(error), Effect::NoChange),
        }
    }

    /// `table <name> [const] [persist] [{ ... }] [file "..."]`
    fn table(&mut self, line: u32, text: &str, words: &[&str]) {
        let Some((name, rest)) = words.split_first() else {
            return;
        };
        let mut table = Table::default();
        let mut negated: (Numbers, Numbers) = Default::default();
        let is_listed = rest.contains(&"{");
        if rest.contains(&"file") {
            table.unknown = Some("its members are in another file");
        } else if !is_listed {
            let name = name.trim_matches(['<', '>']);
            let dynamic = &mut self.state.names.dynamic;
            let identifier = crate::policy::identifier(name);
            match dynamic.set(name, &identifier, None) {
                Ok(set) => {
                    let who = format!(
                        "`weir set add {identifier} ADDRESS` fills it, as `pfctl -t {name} -T add` does"
                    );
                    dynamic.fill_by(set, who);
                    table.dynamic = Some(set);
                }
                Err(_) => table.unknown = Some("programs fill it while pf runs"),
            }
        }
        let mut not = false;
        let members = rest.iter().skip_while(|word| **word != "{").skip(1);
        for word in members.take_while(|word| **word != "}") {
            match *word {
                "!" => not = true,
                "," => {}
                word => {
                    match address(word) {
                        Some((family, set)) => {
                            let (four, six) = match not {
                                true => (&mut negated.0, &mut negated.1),
                                false => (&mut table.four, &mut table.six),
                            };
                            let of = if family == Family::Four { four } else { six };
                            *of = of.or(&set);
                        }
                        None => table.unknown = Some("a member is not an address"),
                    }
                    not = false;
                }
            }
        }
        // The most specific member counts; what is negated lies in what is not, or the list means nothing.
        table.four = table.four.and(&negated.0.not_in(&Numbers::all(32)));
        table.six = table.six.and(&negated.1.not_in(&Numbers::all(128)));
        if let Some(reason) = table.unknown {
            self.find(line, text, format!("{name}: {reason}"), Effect::ByRules);
        }
        let name = name.trim_matches(['<', '>']);
        self.state.names.call(table.four.clone(), name);
        self.state
            .names
            .call(table.six.clone(), &format!("{name}6"));
        self.known.tables.insert(name.to_owned(), table);
    }

    /// `antispoof [quick] for IF`: what comes by another interface from the networks of this one, and from its own address.
    fn antispoof(&mut self, line: u32, text: &str, words: &[&str]) {
        let quick = words.contains(&"quick");
        let names = words.iter().skip_while(|word| **word != "for").skip(1);
        for name in names.filter(|word| !matches!(**word, "{" | "}" | ",")) {
            let networks: Vec<weir_value::Prefix> = (self.state.options.routes.iter())
                .filter(|(interface, prefix)| interface == name && prefix.len > 0)
                .map(|(_, prefix)| *prefix)
                .collect();
            if networks.is_empty() {
                self.find(
                    line,
                    text,
                    format!("the networks of {name} are not in the file; give them with `--route {name}=PREFIX`"),
                    Effect::Wider,
                );
                continue;
            }
            let Some(known) = values::interface(name) else {
                let reason = format!("`{name}` is not the name of an interface");
                self.find(line, text, reason, Effect::Wider);
                continue;
            };
            let number = self.state.names.interface(known);
            let others = Numbers::one(number).not_in(&Field::In.domain());
            let mut when = Vec::new();
            for prefix in networks {
                let family = if prefix.is_ip6 {
                    Family::Six
                } else {
                    Family::Four
                };
                let source = Numbers::range(prefix.first, prefix.last());
                let one = Condition::of(family.source(), source);
                when.extend(one.and_then(|one| one.with(&Part::Has(Field::In, others.clone()))));
            }
            let own = self.state.options.local.iter();
            let own = own.filter(|(interface, _)| interface.as_deref() == Some(*name));
            for (_, address) in own {
                let family = if address.is_ip6 {
                    Family::Six
                } else {
                    Family::Four
                };
                when.extend(Condition::of(family.source(), Numbers::one(address.first)));
            }
            let made = Made {
                when: prune(when),
                pass: false,
                quick,
                keeps_state: false,
                any_flags: false,
                notes: Vec::new(),
                no_verdict: false,
                out: false,
                tag: None,
                answers: Vec::new(),
                write: None,
                to: None,
                on: Vec::new(),
            };
            self.take(line, text, Ok(made));
        }
    }

    /// `nat on IF ... -> ADDRESS`, `rdr on IF ... -> ADDRESS [port P]`, as FreeBSD writes them.
    fn translation(&mut self, line: u32, text: &str, words: &[String]) -> Result<(), String> {
        let arrow = words.iter().position(|word| word == "->");
        let arrow = arrow.ok_or("there is no `->`")?;
        let (left, to) = (
            words.get(..arrow).unwrap_or_default(),
            words.get(arrow + 1..).unwrap_or_default(),
        );
        let source = left.first().is_some_and(|word| word == "nat");
        if left.get(1).is_some_and(|word| word == "pass") {
            return Err("`pass` in a translation is not read; write a rule that passes".to_owned());
        }
        let mut rest: Vec<String> = vec!["match".to_owned()];
        let mut out = None;
        let mut at = left.get(1..).unwrap_or_default().iter();
        while let Some(word) = at.next() {
            if word == "on" && source {
                out = at.next().cloned();
            } else {
                rest.push(word.clone());
            }
        }
        let made = self.rule(&rest)?;
        if made.tag.is_some() {
            return Err(TAGGED.to_owned());
        }
        let mut when = made.when;
        if let Some(out) = &out {
            when = product(&when, &self.state.leaves_by(&[out], false)?).map_err(too_many)?;
        }
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let target = match to[..] {
            ["(", _, ")", ..] if source => nat::masquerade(None)?,
            [address] => nat::to(address, source, Family::Four)?,
            [address, "port", port] if !source => {
                let port =
                    values::number(Field::Dport, port).ok_or("the port is not understood")?;
                let mut target = nat::to(address, false, Family::Four)?;
                target.ports = Some(Numbers::one(port));
                target
            }
            _ => return Err("what it is translated to is not understood".to_owned()),
        };
        if matches!(target.address, To::Outgoing) && out.is_none() {
            return Err("it names no interface".to_owned());
        }
        self.nat.push(Translation {
            line,
            text: text.to_owned(),
            when,
            to: target,
            source,
            out,
            seen: true,
        });
        Ok(())
    }

    fn rule(&mut self, words: &[String]) -> Result<Made, String> {
        rule::read(words, self.state, &self.known)
    }
}
