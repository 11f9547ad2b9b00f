//! pf.conf of OpenBSD and FreeBSD: macros, tables, and rules of which the last match counts, unless one is `quick`.
//!
//! The list of decisions has the first match count: so quick rules come in their order, and behind them the others in reverse. Packets of states pass
//! whatever rules say, as those of connections that `add-stateful ... accept` opened do. Rules for what leaves are not part of the policy.

use std::collections::BTreeMap;

use crate::chains::{Decision, Verdict};
use crate::condition::{Condition, Field, Part, TCP, TooMany, UDP, ip, product, prune};
use crate::finding::{Effect, Finding};
use crate::nat::{self, To, Translation, Translations};
use crate::numbers::Numbers;
use crate::policy::Draft;
use crate::state::State;
use crate::values::{self, Family};

mod words;

use words::{logical_lines, split};

/// A table.
#[derive(Clone, Debug, Default)]
struct Table {
    four: Numbers,
    six: Numbers,
    /// Why its members are not known.
    unknown: Option<&'static str>,
}

/// A rule that was read.
struct Made {
    when: Vec<Condition>,
    pass: bool,
    quick: bool,
    keeps_state: bool,
    /// TCP packets open states whatever their flags are.
    any_flags: bool,
    notes: Vec<(String, Effect)>,
    /// `match`: no verdict.
    no_verdict: bool,
    /// For what leaves only.
    out: bool,
}

/// Reads the text.
pub(crate) fn read(text: &str, state: &mut State, source: &str) -> Draft {
    let mut reader = Reader {
        state,
        macros: BTreeMap::new(),
        tables: BTreeMap::new(),
        skipped: Vec::new(),
        quick: Vec::new(),
        others: Vec::new(),
        nat: Vec::new(),
        answers: false,
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
    tables: BTreeMap<String, Table>,
    /// Interfaces that are not filtered.
    skipped: Vec<Decision>,
    quick: Vec<Decision>,
    others: Vec<Decision>,
    nat: Vec<Translation>,
    /// `set block-policy return`
    answers: bool,
    passes: bool,
}

fn too_many(_: TooMany) -> String {
    "it becomes too many rules of weir".to_owned()
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
                    });
                }
            }
            ["set", "block-policy", policy, ..] => self.answers = *policy == "return",
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
            table.unknown = Some("programs fill it while pf runs");
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
        self.tables.insert(name.to_owned(), table);
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
        let mut rule = Rule {
            words,
            at: 0,
            reader: self,
            when: Condition::of(Field::EthType, ip()).into_iter().collect(),
            protocols: Vec::new(),
        };
        rule.read()
    }
}

struct Rule<'w, 'r, 's> {
    words: &'w [String],
    at: usize,
    reader: &'r mut Reader<'s>,
    when: Vec<Condition>,
    protocols: Vec<u128>,
}

impl Rule<'_, '_, '_> {
    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        self.at += 1;
        self.words.get(self.at - 1).cloned().unwrap_or_default()
    }

    fn skip(&mut self, word: &str) -> bool {
        let found = self.at < self.words.len() && self.peek() == word;
        self.at += usize::from(found);
        found
    }

    fn narrow(&mut self, alternatives: &[Condition]) -> Result<(), String> {
        self.when = product(&self.when, alternatives).map_err(too_many)?;
        Ok(())
    }

    fn read(&mut self) -> Result<Made, String> {
        let action = self.take();
        let mut made = Made {
            when: Vec::new(),
            pass: action == "pass",
            quick: false,
            keeps_state: action == "pass",
            any_flags: false,
            notes: Vec::new(),
            no_verdict: action == "match",
            out: false,
        };
        let mut flags = false;
        while self.at < self.words.len() {
            let word = self.take();
            match word.as_str() {
                "drop" => {}
                "return" | "return-rst" | "return-icmp" | "return-icmp6" => {
                    if self.skip("(") {
                        while self.at < self.words.len() && self.take() != ")" {}
                    }
                    made.notes
                        .push((format!("weir has no `{word}`"), Effect::NoAnswer));
                }
                "in" => {}
                "out" => made.out = true,
                "log" => {
                    if self.skip("(") {
                        while self.at < self.words.len() && self.take() != ")" {}
                    }
                    made.notes.push((
                        "`log` of a rule is not translated".to_owned(),
                        Effect::NotLogged,
                    ));
                }
                "quick" => made.quick = true,
                "on" => self.interfaces()?,
                "inet" => self.family(Family::Four)?,
                "inet6" => self.family(Family::Six)?,
                "proto" => self.protocols()?,
                "all" | "any" | "," => {}
                "from" => self.end(true)?,
                "to" => self.end(false)?,
                "port" => return Err("`port` without `from` or `to`".to_owned()),
                "flags" => {
                    flags = true;
                    let value = self.take();
                    if value == "any" {
                        made.any_flags = true;
                    } else {
                        let set = tcp_flags(&value)
                            .ok_or_else(|| format!("the flags `{value}` are not understood"))?;
                        let one: Vec<Condition> =
                            Condition::of(Field::TcpFlags, set).into_iter().collect();
                        self.narrow(&one)?;
                        // A RST, a FIN or an answer opens no connection of weir.
                        made.any_flags = true;
                    }
                }
                "icmp-type" => self.icmp(Field::IcmpType, Field::IcmpCode)?,
                "icmp6-type" => self.icmp(Field::Icmp6Type, Field::Icmp6Code)?,
                "keep" | "modulate" | "synproxy" => {
                    self.skip("state");
                    if word == "synproxy" {
                        made.notes.push((
                            "weir does not answer for the server; connections are opened without"
                                .to_owned(),
                            Effect::NoChange,
                        ));
                    }
                    if self.skip("(") {
                        let mut options = String::new();
                        while self.at < self.words.len() && self.peek() != ")" {
                            options.push_str(&self.take());
                            options.push(' ');
                        }
                        self.skip(")");
                        let limits = ["max", "overload", "source-track", "adaptive", "sloppy"];
                        if limits.iter().any(|limit| options.contains(limit)) {
                            return Err(format!(
                                "weir has no such limits of states: {}",
                                options.trim_end()
                            ));
                        }
                    }
                }
                "no" => {
                    self.skip("state");
                    made.keeps_state = false;
                }
                "label" | "queue" | "tag" | "prio" | "rtable" | "scrub" | "set" => {
                    if self.skip("(") {
                        while self.at < self.words.len() && self.take() != ")" {}
                    } else {
                        self.take();
                    }
                    if matches!(word.as_str(), "scrub" | "set" | "rtable") {
                        made.notes
                            .push((format!("`{word}` is not translated"), Effect::NoChange));
                    }
                }
                "nat-to" | "rdr-to" | "binat-to" | "af-to" | "route-to" | "reply-to" | "dup-to"
                | "divert-to" | "divert-packet" => {
                    return Err(format!("`{word}` in a rule of this kind is not translated"));
                }
                "user" | "group" => {
                    return Err("weir sees packets, not the processes that send them".to_owned());
                }
                "os" => {
                    return Err("weir does not guess the operating system of a sender".to_owned());
                }
                "allow-opts" => {
                    made.notes.push((
                        "packets with IP options pass in weir without it".to_owned(),
                        Effect::NoChange,
                    ));
                }
                other => return Err(format!("`{other}` has no counterpart")),
            }
        }
        if made.pass && !flags && made.keeps_state {
            self.syn_only()?;
        }
        if !made.pass && self.reader.answers {
            made.notes.push((
                "weir has no `block-policy return`".to_owned(),
                Effect::NoAnswer,
            ));
        }
        made.when = std::mem::take(&mut self.when);
        Ok(made)
    }

    /// `flags S/SA` is what `pass` means for TCP.
    fn syn_only(&mut self) -> Result<(), String> {
        let syn = Condition::of(Field::TcpFlags, values::masked_flags(0x12, 0x02));
        let not_tcp = Numbers::one(TCP).not_in(&Field::Proto.domain());
        let others = Condition::of(Field::Proto, not_tcp);
        let both: Vec<Condition> = syn.into_iter().chain(others).collect();
        self.narrow(&both)
    }

    fn family(&mut self, family: Family) -> Result<(), String> {
        let version = match family {
            Family::Four => crate::condition::IP4,
            Family::Six => crate::condition::IP6,
        };
        let one: Vec<Condition> = Condition::of(Field::EthType, Numbers::one(version))
            .into_iter()
            .collect();
        self.narrow(&one)
    }

    /// Words of `{ a, b }`, or one.
    fn list(&mut self) -> Vec<String> {
        if !self.skip("{") {
            return vec![self.take()];
        }
        let mut out = Vec::new();
        let mut depth = 0usize;
        while self.at < self.words.len() {
            match self.take().as_str() {
                "{" => depth += 1,
                "}" if depth == 0 => break,
                "}" => depth -= 1,
                "," => {}
                word => out.push(word.to_owned()),
            }
        }
        out
    }

    fn interfaces(&mut self) -> Result<(), String> {
        let not = self.skip("!");
        let names = self.list();
        if names.iter().any(|name| name == "any") {
            return Ok(());
        }
        let mut set = Numbers::default();
        for name in &names {
            let name =
                values::interface(name).ok_or_else(|| format!("`{name}` is not an interface"))?;
            set = set.or(&Numbers::one(self.reader.state.names.interface(name)));
        }
        let set = if not {
            set.not_in(&Field::In.domain())
        } else {
            set
        };
        let one: Vec<Condition> = Condition::of(Field::In, set).into_iter().collect();
        self.narrow(&one)
    }

    fn protocols(&mut self) -> Result<(), String> {
        let mut set = Numbers::default();
        for word in self.list() {
            let number = match word.as_str() {
                "icmp6" => Some(58),
                word => values::number(Field::Proto, word),
            };
            let number = number.ok_or_else(|| format!("unknown protocol `{word}`"))?;
            self.protocols.push(number);
            set = set.or(&Numbers::one(number));
        }
        let one: Vec<Condition> = Condition::of(Field::Proto, set).into_iter().collect();
        self.narrow(&one)
    }

    /// What stands behind `from` or `to`.
    fn end(&mut self, source: bool) -> Result<(), String> {
        if self.peek() != "port" {
            self.addresses(source)?;
        }
        if self.skip("port") {
            let field = if source { Field::Sport } else { Field::Dport };
            let set = self.ports(field)?;
            let one: Vec<Condition> = Condition::of(field, set).into_iter().collect();
            self.narrow(&one)?;
        }
        Ok(())
    }

    fn addresses(&mut self, source: bool) -> Result<(), String> {
        let mut hosts: Vec<(bool, String)> = Vec::new();
        if self.skip("{") {
            let mut depth = 0usize;
            let mut not = false;
            while self.at < self.words.len() {
                match self.take().as_str() {
                    "{" => depth += 1,
                    "}" if depth == 0 => break,
                    "}" => depth -= 1,
                    "!" => not = true,
                    "," => {}
                    "-" => {
                        let high = self.take();
                        if let Some((_, low)) = hosts.last_mut() {
                            *low = format!("{low}-{high}");
                        }
                    }
                    word => hosts.push((std::mem::take(&mut not), word.to_owned())),
                }
            }
        } else {
            let not = self.skip("!");
            let mut host = self.take();
            if host == "{" {
                return Err("`!` in front of a list is not pf".to_owned());
            }
            if host == "(" {
                host = format!("({})", self.take());
                self.skip(")");
            }
            if self.skip("-") {
                host = format!("{host}-{}", self.take());
            }
            hosts.push((not, host));
        }
        let mut alternatives = Vec::new();
        for (not, host) in hosts {
            alternatives.extend(self.host(&host, not, source)?);
        }
        // Members of a list are rules of their own.
        let alternatives = merged(prune(alternatives), source);
        self.narrow(&alternatives)
    }

    /// The condition of one host, prefix, range or table.
    fn host(&self, host: &str, not: bool, source: bool) -> Result<Vec<Condition>, String> {
        let field = |family: Family| {
            if source {
                family.source()
            } else {
                family.destination()
            }
        };
        let of = |four: Option<Numbers>, six: Option<Numbers>| {
            let sets = [(Family::Four, four), (Family::Six, six)];
            let conditions = sets.into_iter().filter_map(|(family, set)| {
                let set = set?;
                let set = if not {
                    set.not_in(&field(family).domain())
                } else {
                    set
                };
                Condition::of(field(family), set)
            });
            conditions.collect::<Vec<Condition>>()
        };
        if host == "any" {
            return match not {
                true => Err("`! any` is no packet".to_owned()),
                false => Ok(vec![Condition::any()]),
            };
        }
        if let Some(name) = host
            .strip_prefix('<')
            .and_then(|rest| rest.strip_suffix('>'))
        {
            let table = self.reader.tables.get(name);
            let table = table.ok_or_else(|| format!("there is no table <{name}>"))?;
            if let Some(reason) = table.unknown {
                return Err(format!("<{name}>: {reason}"));
            }
            return Ok(of(Some(table.four.clone()), Some(table.six.clone())));
        }
        if host == "self" {
            let (four, six) = (
                self.reader.state.local(Family::Four),
                self.reader.state.local(Family::Six),
            );
            if four.is_none() && six.is_none() {
                return Err("the addresses of this host are not in the file; give them with `--local ADDRESS`".to_owned());
            }
            return Ok(of(four, six));
        }
        if let Some((family, set)) = address(host) {
            return Ok(match family {
                Family::Four => of(Some(set), None),
                Family::Six => of(None, Some(set)),
            });
        }
        let interface = host.trim_matches(['(', ')']);
        if let Some(interface) = interface.strip_suffix(":network") {
            let of_family = |six: bool| {
                let routes = self.reader.state.options.routes.iter();
                let routes = routes.filter(|(name, prefix)| {
                    name == interface && prefix.is_ip6 == six && prefix.len > 0
                });
                let set: Vec<(u128, u128)> = routes
                    .map(|(_, prefix)| (prefix.first, prefix.last()))
                    .collect();
                (!set.is_empty()).then(|| Numbers::new(set))
            };
            let (four, six) = (of_family(false), of_family(true));
            if four.is_some() || six.is_some() {
                return Ok(of(four, six));
            }
            return Err(format!(
                "the networks of {interface} are not in the file; give them with `--route {interface}=PREFIX`"
            ));
        }
        let own = |family: Family| {
            let address = self.reader.state.address(Some(interface), family)?;
            Some(Numbers::one(address.first))
        };
        let (four, six) = (own(Family::Four), own(Family::Six));
        if four.is_some() || six.is_some() {
            return Ok(of(four, six));
        }
        match host {
            "urpf-failed" | "no-route" | "route" => Err(format!(
                "`{host}` asks the routing table, which rules of weir do not see"
            )),
            _ => Err(format!(
                "`{host}` is no address; give that of an interface with `--local {interface}=ADDRESS`"
            )),
        }
    }

    fn ports(&mut self, field: Field) -> Result<Numbers, String> {
        let braces = self.skip("{");
        let mut set = Numbers::default();
        loop {
            if braces && (self.skip("}") || self.at >= self.words.len()) {
                break;
            }
            if braces && self.skip(",") {
                continue;
            }
            set = set.or(&self.port(field)?);
            if !braces {
                break;
            }
        }
        Ok(set)
    }

    fn port(&mut self, field: Field) -> Result<Numbers, String> {
        let domain = field.domain();
        let number = |word: &str| {
            values::number(field, word)
                .ok_or_else(|| format!("the port `{word}` is not understood"))
        };
        let word = self.take();
        Ok(match word.as_str() {
            "=" => Numbers::one(number(&self.take())?),
            "!=" => Numbers::one(number(&self.take())?).not_in(&domain),
            "<" => match number(&self.take())?.checked_sub(1) {
                Some(high) => Numbers::range(0, high),
                None => Numbers::default(),
            },
            "<=" => Numbers::range(0, number(&self.take())?),
            ">" => Numbers::range(number(&self.take())?.saturating_add(1), 65535),
            ">=" => Numbers::range(number(&self.take())?, 65535),
            word => match self.peek() {
                "><" => {
                    self.at += 1;
                    let (low, high) = (number(word)?, number(&self.take())?);
                    Numbers::range(low.saturating_add(1), high.saturating_sub(1))
                }
                "<>" => {
                    self.at += 1;
                    let (low, high) = (number(word)?, number(&self.take())?);
                    Numbers::range(low, high).not_in(&domain)
                }
                _ => values::numbers(field, word, ':')
                    .ok_or_else(|| format!("the port `{word}` is not understood"))?,
            },
        })
    }

    fn icmp(&mut self, kind: Field, code: Field) -> Result<(), String> {
        let mut alternatives = Vec::new();
        let braces = self.skip("{");
        loop {
            if braces && (self.skip("}") || self.at >= self.words.len()) {
                break;
            }
            if braces && self.skip(",") {
                continue;
            }
            let word = self.take();
            let number = icmp_type(kind, &word)
                .ok_or_else(|| format!("the ICMP type `{word}` is not understood"))?;
            let mut one = Condition::of(kind, Numbers::one(number));
            if self.skip("code") {
                let word = self.take();
                let number = values::number(code, &word)
                    .ok_or_else(|| format!("the ICMP code `{word}` is not understood"))?;
                one = one.and_then(|one| one.with(&Part::Has(code, Numbers::one(number))));
            }
            alternatives.extend(one);
            if !braces {
                break;
            }
        }
        // Types without codes become one set.
        let (plain, coded): (Vec<Condition>, Vec<Condition>) = alternatives
            .into_iter()
            .partition(|one| !one.has.contains_key(&code));
        let types = plain.iter().filter_map(|one| one.has.get(&kind));
        let types = types.fold(Numbers::default(), |all, one| all.or(one));
        let all: Vec<Condition> = coded
            .into_iter()
            .chain(Condition::of(kind, types))
            .collect();
        self.narrow(&all)
    }
}

/// Joins conditions on nothing but one address field, so that a list is one rule of weir.
fn merged(conditions: Vec<Condition>, source: bool) -> Vec<Condition> {
    let mut out: Vec<Condition> = Vec::new();
    for family in [Family::Four, Family::Six] {
        let field = if source {
            family.source()
        } else {
            family.destination()
        };
        let sets = conditions.iter().filter_map(|one| one.has.get(&field));
        let all = sets.fold(Numbers::default(), |all, one| all.or(one));
        out.extend(Condition::of(field, all));
    }
    let is_any = |one: &&Condition| one.has.is_empty();
    out.extend(conditions.iter().filter(is_any).cloned());
    prune(out)
}

/// An address as pf writes it, `10/8` too.
fn address(word: &str) -> Option<(Family, Numbers)> {
    if let Some(found) = values::addresses(word) {
        return Some(found);
    }
    let (address, length) = word.split_once('/')?;
    let parts = address.split('.').count();
    if parts >= 4 || address.contains(':') {
        return None;
    }
    values::addresses(&format!("{address}{}/{length}", ".0".repeat(4 - parts)))
}

/// `S/SA`, `/SFRA`.
fn tcp_flags(word: &str) -> Option<Numbers> {
    let (set, mask) = word.split_once('/').unwrap_or((word, "FSRPAUEW"));
    let bits = |letters: &str| {
        letters.chars().try_fold(0u128, |all, letter| {
            let at = "FSRPAUEW".find(letter)?;
            Some(all | 1 << at)
        })
    };
    let (set, mask) = (bits(set)?, bits(mask)?);
    Some(values::masked_flags(mask, set))
}

/// Types as pf calls them.
fn icmp_type(field: Field, word: &str) -> Option<u128> {
    const FOUR: &[(&str, u128)] = &[
        ("echorep", 0),
        ("unreach", 3),
        ("squench", 4),
        ("redir", 5),
        ("echoreq", 8),
        ("routeradv", 9),
        ("routersol", 10),
        ("timex", 11),
        ("paramprob", 12),
        ("timereq", 13),
        ("timerep", 14),
    ];
    const SIX: &[(&str, u128)] = &[
        ("unreach", 1),
        ("toobig", 2),
        ("timex", 3),
        ("paramprob", 4),
        ("echoreq", 128),
        ("echorep", 129),
        ("groupqry", 130),
        ("grouprep", 131),
        ("groupterm", 132),
        ("routersol", 133),
        ("routeradv", 134),
        ("neighbrsol", 135),
        ("neighbradv", 136),
        ("redir", 137),
    ];
    let names = if field == Field::IcmpType { FOUR } else { SIX };
    let named = names
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, number)| *number);
    named.or_else(|| values::number(field, word))
}
