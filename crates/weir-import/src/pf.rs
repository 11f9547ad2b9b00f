//! pf.conf of OpenBSD and FreeBSD: macros, tables, and rules of which the last match counts, unless one is `quick`.
//!
//! The list of decisions has the first match count: so quick rules come in their order, and behind them the others in reverse. Packets of states pass
//! whatever rules say, as those of connections that `add-stateful ... accept` opened do. Rules for what leaves are not part of the policy.

use std::collections::BTreeMap;

use crate::chains::{Decision, Verdict};
use crate::condition::{Condition, Field, Part, TCP, UDP, product, prune};
use crate::finding::{Effect, Finding};
use crate::nat::{self, To, Translation, Translations};
use crate::numbers::Numbers;
use crate::policy::Draft;
use crate::state::State;
use crate::values::{self, Family};

mod rule;
mod words;

use rule::{Known, Made, Table, address, too_many};
use words::{logical_lines, split};

/// Reads the text.
pub(crate) fn read(text: &str, state: &mut State, source: &str) -> Draft {
    let mut reader = Reader {
        state,
        macros: BTreeMap::new(),
        known: Known::default(),
        skipped: Vec::new(),
        quick: Vec::new(),
        others: Vec::new(),
        nat: Vec::new(),
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
    nat: Vec<Translation>,
    passes: bool,
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
            ["scrub", ..] => self.find(line, text, "`scrub` is not translated", Effect::NoChange),
            ["antispoof", rest @ ..] => self.antispoof(line, text, rest),
            ["match", rest @ ..] if rest.contains(&"nat-to") || rest.contains(&"rdr-to") => {
                // As FreeBSD has them.
                let source = rest.contains(&"nat-to");
                let mut words = vec![if source { "nat" } else { "rdr" }.to_owned()];
                let rest = rest.iter().filter(|word| !matches!(**word, "in" | "out"));
                words.extend(rest.map(|word| match *word {
                    "nat-to" | "rdr-to" => "->".to_owned(),
                    word => word.to_owned(),
                }));
                if let Err(reason) = self.translation(line, text, &words) {
                    self.find(line, text, reason, Effect::NotMapped);
                }
            }
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
        if made.out {
            self.find(
                line,
                text,
                "the policy judges what is received, and this is about what leaves",
                Effect::Elsewhere,
            );
            return;
        }
        for (reason, effect) in made.notes {
            self.find(line, text, reason, effect);
        }
        if let Some(tag) = &made.tag
            && self.known.tag(tag, &made.when).is_err()
        {
            let reason = format!("which packets have the tag {tag} becomes too many rules of weir");
            self.known.tags_lost = true;
            self.find(line, text, reason, Effect::ByRules);
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
        let mut translations = Translations::of(&self.nat, self.state);
        let ready = translations.rules(self.state);
        let mut decisions = self.skipped;
        decisions.append(&mut self.quick);
        decisions.extend(self.others.into_iter().rev());
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
        if let Some(tag) = made.tag {
            return Err(format!(
                "it sets the tag {tag}, which rules then test behind the translation: write `tag` in a rule that passes"
            ));
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
        });
        Ok(())
    }

    fn rule(&mut self, words: &[String]) -> Result<Made, String> {
        rule::read(words, self.state, &self.known)
    }
}
