//! `iptables-save` and `ip6tables-save`: lines of tables, chains with policies, and rules as words.

mod memory;

use std::collections::BTreeMap;

use crate::answers::{self, Answer};
use crate::chains::{Chain, Chains, Rule, Then};
use crate::condition::{
    CT_ESTABLISHED, CT_INVALID, CT_NEW, CT_RELATED, CT_UNTRACKED, Condition, Field, ICMP, ICMP6,
    Part, TooMany, product,
};
use crate::finding::{Effect, Finding};
use crate::hooks::{Base, Hook, Rules};
use crate::nat;
use crate::nat_chains::{NatBase, NatRule, NatThen, Translates};
use crate::numbers::Numbers;
use crate::packets_before::{Change, Limited, Per};
use crate::policy;
use crate::state::State;
use crate::values::{self, Family};
use crate::writes::{self, Write};
use memory::{Recent, Shared};

/// Built-in chains, and the hook that each is.
const HOOKS: &[(&str, Hook)] = &[
    ("PREROUTING", Hook::Prerouting),
    ("INPUT", Hook::Input),
    ("FORWARD", Hook::Forward),
    ("OUTPUT", Hook::Output),
    ("POSTROUTING", Hook::Postrouting),
];

/// Tables in the order in which a packet passes them.
const TABLES: &[(&str, i32)] = &[
    ("raw", -300),
    ("mangle", -150),
    ("nat", -100),
    ("filter", 0),
    ("security", 50),
];

/// Reads the text of a dump.
pub(crate) fn read(text: &str, family: Family, state: &mut State) -> Rules {
    let mut rules = Rules::default();
    let mut table: Option<(&'static str, i32)> = None;
    let mut chains = Chains::new();
    let mut policies: BTreeMap<String, bool> = BTreeMap::new();
    let mut ether = Condition::any();
    let version = match family {
        Family::Four => crate::condition::IP4,
        Family::Six => crate::condition::IP6,
    };
    if let Some(only) = ether.with(&Part::Has(Field::EthType, Numbers::one(version))) {
        ether = only;
    }
    rules.covers = vec![ether];
    let mut shared = Shared::default();
    for line in text.lines() {
        shared.note(&words(rule_of(line.trim())));
    }
    for (line, raw) in (1u32..).zip(text.lines()) {
        let written = raw.trim();
        if written.is_empty() || written.starts_with('#') {
            continue;
        }
        let unread = |reason: &str| Finding::new(line, written, reason, Effect::Either);
        if let Some(name) = written.strip_prefix('*') {
            table = TABLES.iter().find(|(known, _)| *known == name).copied();
            if table.is_none() {
                state.findings.push(unread("this table is not known"));
            }
            continue;
        }
        if written == "COMMIT" {
            finish(&mut rules, table, &mut chains, &mut policies);
            table = None;
            continue;
        }
        let Some((table_name, _)) = table else {
            state.findings.push(unread("this line stands in no table"));
            continue;
        };
        if let Some(rest) = written.strip_prefix(':') {
            let mut words = rest.split_whitespace();
            let name = words.next().unwrap_or_default().to_owned();
            let policy = words.next().unwrap_or("-");
            policies.insert(name.clone(), policy == "DROP");
            chains.entry(name).or_default().line = line;
            continue;
        }
        let words = words(rule_of(written));
        let [command, chain, rest @ ..] = &words[..] else {
            state.findings.push(unread("this line is not a rule"));
            continue;
        };
        if command != "-A" && command != "--append" {
            state.findings.push(unread("only `-A` stands in a dump"));
            continue;
        }
        let mut reader = Reader::new(rest, family, state, &shared);
        let made = reader.rule();
        let (accepts, effect, out) = (reader.accepts, reader.effect, reader.out.take());
        if table_name == "nat" {
            let made = made.and_then(|rule| match (&rule.limited, &rule.change) {
                (None, None) => nat_rule(rule, family),
                _ => Err(
                    "translations of weir are for all packets of a rule, and change no sets"
                        .to_owned(),
                ),
            });
            match made {
                Ok(Some((when, then))) => rules.nat.push(
                    chain,
                    NatRule {
                        line,
                        text: written.to_owned(),
                        when,
                        then,
                        out,
                    },
                ),
                Ok(None) => {}
                Err(reason) => {
                    state
                        .findings
                        .push(Finding::new(line, written, reason, Effect::NotMapped))
                }
            }
            continue;
        }
        match made {
            Ok(mut one) => {
                for (reason, effect) in one.notes.drain(..) {
                    state
                        .findings
                        .push(Finding::new(line, written, reason, effect));
                }
                let mut writes = Vec::new();
                if let Some(write) = one.write.take() {
                    let all = std::slice::from_ref(&write.when);
                    match product(&one.when, all) {
                        Ok(when) => writes.push((when, write)),
                        Err(TooMany) => {
                            let reason = "it becomes too many rules of weir";
                            let finding = Finding::new(line, written, reason, Effect::NoChange);
                            state.findings.push(finding);
                        }
                    }
                }
                let none = one.change.is_some().then_some(Then::Continue);
                if let Some(then) = one.then.or(none) {
                    let entry: &mut Chain = chains.entry(chain.clone()).or_default();
                    entry.rules.push(Rule {
                        line,
                        text: written.to_owned(),
                        when: one.when,
                        then,
                        log: one.log,
                        limited: one.limited,
                        change: one.change,
                        writes,
                        answers: one.answers,
                    });
                }
            }
            Err(reason) => {
                let effect = effect.unwrap_or(match accepts {
                    Some(true) => Effect::Narrower,
                    Some(false) => Effect::Wider,
                    None => Effect::Either,
                });
                state
                    .findings
                    .push(Finding::new(line, written, reason, effect));
            }
        }
    }
    if table.is_some() {
        finish(&mut rules, table, &mut chains, &mut policies);
    }
    rules
}

/// Takes up the chains of a table.
fn finish(
    rules: &mut Rules,
    table: Option<(&'static str, i32)>,
    chains: &mut Chains,
    policies: &mut BTreeMap<String, bool>,
) {
    let Some((table, priority)) = table else {
        return;
    };
    let scoped = |name: &str| format!("{table}/{name}");
    for (name, mut chain) in std::mem::take(chains) {
        for rule in &mut chain.rules {
            if let Then::Jump(to) | Then::Goto(to) = &mut rule.then {
                *to = scoped(to);
            }
        }
        let hook = HOOKS.iter().find(|(known, _)| *known == name);
        if table == "nat" {
            let translates = match hook {
                Some((_, Hook::Prerouting)) => Translates::Destination,
                Some((_, Hook::Postrouting)) => Translates::Source,
                Some(_) => Translates::OwnPackets,
                None => continue,
            };
            rules.nat.bases.push(NatBase {
                name: format!("chain {name} of table nat"),
                chain: name,
                priority,
                translates,
                covers: rules.covers.clone(),
            });
            continue;
        }
        if let Some(&(_, hook)) = hook {
            rules.bases.push(Base {
                hook,
                priority,
                chain: scoped(&name),
                name: format!("{name} of table {table}"),
                short: name.clone(),
                drops: policies.get(&name).copied().unwrap_or(false),
                covers: rules.covers.clone(),
                line: chain.line,
            });
        }
        rules.chains.insert(scoped(&name), chain);
    }
    policies.clear();
}

/// A line without its counters.
fn rule_of(line: &str) -> &str {
    match line.starts_with('[') {
        true => line.split_once(']').map_or("", |(_, rest)| rest).trim(),
        false => line,
    }
}

/// Words of a line; quotes join, a backslash takes the next character as it is.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What a rule says.
#[derive(Default)]
struct Made {
    when: Vec<Condition>,
    /// `None`: nothing that matters for verdicts.
    then: Option<Then>,
    log: Option<String>,
    notes: Vec<(String, Effect)>,
    target: String,
    /// Options of the target.
    options: Vec<(String, String)>,
    limited: Option<Limited>,
    change: Option<(Vec<Condition>, Change)>,
    write: Option<Write>,
    answers: Vec<Answer>,
}

struct Reader<'a, 's> {
    words: &'a [String],
    at: usize,
    family: Family,
    state: &'s mut State,
    shared: &'a Shared,
    /// A match that counts packets or fills a set: what is tested behind it is not counted.
    last: Option<&'static str>,
    /// A change of a set for all packets that meet the tests.
    changes: Option<Change>,
    /// Whether the rule accepts or drops, as far as known.
    accepts: Option<bool>,
    effect: Option<Effect>,
    negated: bool,
    set_of: Vec<Condition>,
    proto: Option<u128>,
    /// The interface that packets leave by.
    out: Option<String>,
    made: Made,
}

/// Targets that change no verdict, and what is not done without them.
const WITHOUT_VERDICT: &[&str] = &[
    "CLASSIFY",
    "CONNMARK",
    "MARK",
    "NFLOG",
    "SECMARK",
    "CONNSECMARK",
    "TRACE",
    "ULOG",
    "AUDIT",
    "CHECKSUM",
    "DSCP",
    "TOS",
    "TTL",
    "HL",
    "TCPMSS",
    "TCPOPTSTRIP",
    "ECN",
    "SET",
    "LED",
    "RATEEST",
    "IDLETIMER",
    "HMARK",
    "TEE",
];

impl<'a, 's> Reader<'a, 's> {
    fn new(
        words: &'a [String],
        family: Family,
        state: &'s mut State,
        shared: &'a Shared,
    ) -> Reader<'a, 's> {
        let target = words.iter().position(|word| word == "-j" || word == "-g");
        let target = target.and_then(|at| words.get(at + 1)).map(String::as_str);
        Reader {
            words,
            at: 0,
            family,
            state,
            shared,
            last: None,
            changes: None,
            accepts: match target {
                Some("ACCEPT") => Some(true),
                Some("DROP" | "REJECT") => Some(false),
                _ => None,
            },
            effect: target
                .filter(|target| *target == "LOG" || WITHOUT_VERDICT.contains(target))
                .map(|target| {
                    if target == "LOG" {
                        Effect::NotLogged
                    } else {
                        Effect::NoChange
                    }
                }),
            negated: false,
            set_of: vec![Condition::any()],
            proto: None,
            out: None,
            made: Made::default(),
        }
    }

    fn rule(&mut self) -> Result<Made, String> {
        while let Some(word) = self.take() {
            if word == "!" {
                self.negated = !self.negated;
                continue;
            }
            self.option(&word)?;
            self.negated = false;
        }
        self.made.when = std::mem::take(&mut self.set_of);
        if let Some(change) = self.changes.take() {
            self.made.change = Some((self.made.when.clone(), change));
        }
        let marks = WITHOUT_VERDICT.contains(&self.made.target.as_str());
        if let (Some(name), Some(limited)) = (self.last, &self.made.limited) {
            let counted_alone = limited.over || limited.limit.per != Per::Rule;
            if marks || self.made.log.is_some() && counted_alone {
                return Err(format!(
                    "weir limits what a rule logs or drops, all its packets together, and nothing else, as `-m {name}` does here"
                ));
            }
            if self.made.change.is_some() {
                return Err(
                    "weir changes a set for all packets of a rule, not for those within a rate"
                        .to_owned(),
                );
            }
            if matches!(self.made.then, Some(Then::Jump(_) | Then::Goto(_))) {
                return Err(format!(
                    "`-m {name}` in front of a jump has no counterpart: weir drops what is above a rate"
                ));
            }
        }
        Ok(std::mem::take(&mut self.made))
    }

    fn take(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    fn value(&mut self, of: &str) -> Result<String, String> {
        let word = self.take().ok_or_else(|| format!("`{of}` has no value"))?;
        // `--dport ! 22` of old versions.
        if word == "!" {
            self.negated = !self.negated;
            return self.take().ok_or_else(|| format!("`{of}` has no value"));
        }
        Ok(word)
    }

    /// Adds a test: one of these values, or none of them.
    fn test(&mut self, field: Field, values: Numbers) {
        let values = match self.negated {
            true => values.not_in(&field.domain()),
            false => values,
        };
        self.all(&[Condition::of(field, values)]);
    }

    /// Adds alternatives.
    fn all(&mut self, alternatives: &[Option<Condition>]) {
        let alternatives: Vec<Condition> = alternatives.iter().flatten().cloned().collect();
        match product(&self.set_of, &alternatives) {
            Ok(both) => self.set_of = both,
            // A line has a bounded number of tests with few alternatives each.
            Err(_) => self.set_of.clear(),
        }
    }

    fn option(&mut self, word: &str) -> Result<(), String> {
        let bad = |value: &str| format!("`{word} {value}` is not understood");
        let comes_first = [
            "-s",
            "-d",
            "-i",
            "-o",
            "-p",
            "-f",
            "-m",
            "-j",
            "-g",
            "-c",
            "--comment",
        ];
        if let Some(name) = self.last
            && !comes_first.contains(&word)
        {
            return Err(behind(name, word));
        }
        match word {
            "-s" | "--source" | "--src" | "-d" | "--destination" | "--dst" => {
                let value = self.value(word)?;
                let set = self.address_list(&value).ok_or_else(|| bad(&value))?;
                let source = matches!(word, "-s" | "--source" | "--src");
                self.test(self.address(source), set);
            }
            "-i" | "--in-interface" => {
                let value = self.value(word)?;
                let name = values::interface(&value).ok_or_else(|| {
                    format!("`{value}` is a pattern of names; weir tests whole names")
                })?;
                let number = self.state.names.interface(name);
                self.test(Field::In, Numbers::one(number));
            }
            "-o" | "--out-interface" => {
                let value = self.value(word)?;
                let left = self.state.leaves_by(&[&value], self.negated)?;
                self.out = (!self.negated).then_some(value);
                let left: Vec<Option<Condition>> = left.into_iter().map(Some).collect();
                self.all(&left);
            }
            "-p" | "--protocol" | "--proto" => {
                let value = self.value(word)?;
                if value == "all" || value == "0" {
                    return Ok(());
                }
                let number = values::number(Field::Proto, &value).ok_or_else(|| bad(&value))?;
                if !self.negated {
                    self.proto = Some(number);
                }
                self.test(Field::Proto, Numbers::one(number));
            }
            "-f" | "--fragment" => {
                let value = u128::from(!self.negated);
                self.negated = false;
                self.test(Field::FragLater, Numbers::one(value));
            }
            "-m" | "--match" => self.module()?,
            "--sport" | "--source-port" | "--dport" | "--destination-port" => {
                let value = self.value(word)?;
                let field = if word.starts_with("--s") {
                    Field::Sport
                } else {
                    Field::Dport
                };
                let set = values::numbers(field, &value, ':').ok_or_else(|| bad(&value))?;
                self.test(field, set);
            }
            "--sports"
            | "--source-ports"
            | "--dports"
            | "--destination-ports"
            | "--ports"
            | "--port" => {
                let value = self.value(word)?;
                let set = value.split(',').try_fold(Numbers::default(), |all, one| {
                    Some(all.or(&values::numbers(Field::Dport, one, ':')?))
                });
                let set = set.ok_or_else(|| bad(&value))?;
                match (
                    word.starts_with("--s"),
                    word.starts_with("--d"),
                    self.negated,
                ) {
                    (true, ..) => self.test(Field::Sport, set),
                    (_, true, _) => self.test(Field::Dport, set),
                    (.., true) => {
                        self.test(Field::Sport, set.clone());
                        self.test(Field::Dport, set);
                    }
                    _ => self.all(&[
                        Condition::of(Field::Sport, set.clone()),
                        Condition::of(Field::Dport, set),
                    ]),
                }
            }
            "--icmp-type" | "--icmpv6-type" => {
                let value = self.value(word)?;
                self.icmp(&value).ok_or_else(|| bad(&value))?;
            }
            "--syn" => {
                let set = values::masked_flags(0x17, 0x02);
                self.test(Field::TcpFlags, set);
            }
            "--tcp-flags" => {
                let (mask, set) = (self.value(word)?, self.value(word)?);
                let flags = values::flags(&mask, &[',']).zip(values::flags(&set, &[',']));
                let (mask, set) = flags.ok_or_else(|| bad(&format!("{mask} {set}")))?;
                self.test(Field::TcpFlags, values::masked_flags(mask, set));
            }
            "--state" | "--ctstate" => {
                let value = self.value(word)?;
                let listed: Vec<&str> = value.split(',').collect();
                let states = listed.iter().filter(|one| **one != "DNAT");
                let states = states.copied().collect::<Vec<_>>();
                if states.len() == listed.len() {
                    self.test(Field::CtState, self::states(&value)?);
                } else {
                    // Whether the destination was translated is a state here.
                    let translated = Numbers::one(u128::from(!self.negated));
                    let translated = Condition::of(Field::Translated, translated);
                    let states = match &states[..] {
                        [] => None,
                        states => Some(self::states(&states.join(","))?),
                    };
                    match (states, self.negated) {
                        (None, _) => self.all(&[translated]),
                        (Some(states), false) => {
                            self.all(&[Condition::of(Field::CtState, states), translated]);
                        }
                        (Some(states), true) => {
                            self.all(&[translated]);
                            self.test(Field::CtState, states);
                        }
                    }
                }
            }
            "--ctstatus" => {
                let value = self.value(word)?;
                if value != "DNAT" {
                    return Err(format!("weir does not test `--ctstatus {value}`"));
                }
                self.test(Field::Translated, Numbers::one(1));
            }
            "--mac-source" => {
                let value = self.value(word)?;
                let set = values::mac(&value).ok_or_else(|| bad(&value))?;
                self.test(Field::EthSaddr, set);
            }
            "--src-range" | "--dst-range" => {
                let value = self.value(word)?;
                let set = self.address_list(&value).ok_or_else(|| bad(&value))?;
                self.test(self.address(word == "--src-range"), set);
            }
            "--ttl-eq" | "--ttl-lt" | "--ttl-gt" | "--hl-eq" | "--hl-lt" | "--hl-gt" => {
                let value = self.value(word)?;
                let field = if word.starts_with("--ttl") {
                    Field::Ttl
                } else {
                    Field::HopLimit
                };
                let number = values::number(field, &value).ok_or_else(|| bad(&value))?;
                let set = match (word.ends_with("lt"), word.ends_with("gt")) {
                    (true, _) => {
                        Numbers::range(1, number).and(&Numbers::range(0, number.saturating_sub(1)))
                    }
                    (_, true) => Numbers::range(number + 1, 255),
                    _ => Numbers::one(number),
                };
                self.test(field, set);
            }
            "--length" if self.family == Family::Four => {
                let value = self.value(word)?;
                let set =
                    values::numbers(Field::Length4, &value, ':').ok_or_else(|| bad(&value))?;
                self.test(Field::Length4, set);
            }
            "--dscp" | "--dscp-class" => {
                let value = self.value(word)?;
                let field = if self.family == Family::Four {
                    Field::Dscp4
                } else {
                    Field::Dscp6
                };
                let number = values::number(field, &value).ok_or_else(|| bad(&value))?;
                self.test(field, Numbers::one(number));
            }
            "--mark" => {
                let value = self.value(word)?;
                let (value, mask) = value.split_once('/').unwrap_or((&value, "0xffffffff"));
                let set = values::masked_mark(value, mask)?;
                self.test(Field::Mark, set);
            }
            "--dst-type" | "--src-type" => {
                let value = self.value(word)?;
                let mut set = Numbers::default();
                for kind in value.split(',') {
                    let of = self
                        .state
                        .of_type(&kind.to_ascii_lowercase(), self.family)?;
                    set = set.or(&of.unwrap_or_default());
                }
                self.test(self.address(word == "--src-type"), set);
            }
            "--comment" => {
                self.value(word)?;
            }
            "-c" | "--set-counters" => {
                self.value(word)?;
                self.value(word)?;
            }
            "-j" | "--jump" => self.target()?,
            "-g" | "--goto" => {
                let chain = self.value(word)?;
                self.made.then = Some(Then::Goto(chain.clone()));
                self.made.target = chain;
            }
            _ => return Err(unknown(word)),
        }
        Ok(())
    }

    /// `-m NAME`: what the module itself asks for, and what has no counterpart.
    fn module(&mut self) -> Result<(), String> {
        let name = self.value("-m")?;
        if let Some(last) = self.last
            && name != "comment"
        {
            return Err(behind(last, &name));
        }
        match name.as_str() {
            // Their matches are false for fragments behind the first.
            "tcp" | "udp" | "udplite" | "sctp" | "dccp" | "multiport" => {
                self.all(&[Condition::of(Field::Sport, Field::Sport.domain())]);
            }
            "icmp" => self.all(&[Condition::of(Field::IcmpType, Field::IcmpType.domain())]),
            "icmp6" | "icmpv6" | "ipv6-icmp" => {
                self.all(&[Condition::of(Field::Icmp6Type, Field::Icmp6Type.domain())]);
            }
            "state" | "conntrack" | "comment" | "mac" | "iprange" | "ttl" | "hl" | "length"
            | "dscp" | "addrtype" | "mark" => {}
            "limit" => {
                let (limited, at) = memory::limit(self.words, self.at)?;
                self.at = at;
                self.made.limited = Some(limited);
                self.last = Some("limit");
            }
            "hashlimit" => {
                let (limited, most, at) =
                    memory::hashlimit(self.words, self.at, self.family, self.shared)?;
                self.at = at;
                self.state.names.count(most.unwrap_or_default());
                self.made.limited = Some(limited);
                self.last = Some("hashlimit");
            }
            "connlimit" => {
                let (limited, at) = memory::connlimit(self.words, self.at, self.family)?;
                self.at = at;
                // Only packets that may open a connection are judged.
                self.all(&[Condition::of(Field::CtState, Numbers::one(CT_NEW))]);
                self.made.limited = Some(limited);
                self.last = Some("connlimit");
            }
            "recent" => self.recent()?,
            "time" => self.time()?,
            "quota" => {
                return Err("`-m quota` counts bytes of IP packets, `drop over N bytes` of weir those of frames, 14 more a packet".to_owned());
            }
            "statistic" | "connbytes" => {
                return Err(format!(
                    "`-m {name}` depends on packets before, and weir has nothing like it"
                ));
            }
            "set" => return Err("the members of an ipset are not in this file".to_owned()),
            "owner" => return Err("weir sees packets, not the processes that send them".to_owned()),
            "connmark" => return Err("weir has marks of packets, not of connections".to_owned()),
            _ => return Err(format!("there is no counterpart for `-m {name}`")),
        }
        Ok(())
    }

    /// Times of day and days of the week.
    fn time(&mut self) -> Result<(), String> {
        let (mut start, mut stop, mut days) = (0, Field::Hour.max(), Field::Day.domain());
        loop {
            let word = |at: usize| self.words.get(at).map(String::as_str);
            let negated = word(self.at) == Some("!");
            let at = self.at + usize::from(negated);
            let option = word(at).unwrap_or_default();
            let value = word(at + 1).unwrap_or_default();
            let bad = || format!("`{option} {value}` is not understood");
            let time = || values::number(Field::Hour, value).ok_or_else(bad);
            match option {
                "--timestart" if !negated => start = time()?,
                "--timestop" if !negated => stop = time()?,
                "--weekdays" => {
                    days = values::weekdays(value).ok_or_else(bad)?;
                    if negated {
                        days = days.not_in(&Field::Day.domain());
                    }
                }
                "--utc" if !negated => {
                    self.at = at + 1;
                    continue;
                }
                "--kerneltz" | "--localtz" => {
                    return Err(format!(
                        "`{option}` is the time zone of the host; `timezone` of weir is an offset that the policy names"
                    ));
                }
                "--contiguous" => {
                    return Err("a range over midnight has the day of the packet in weir, not the day that it begins on".to_owned());
                }
                "--datestart" | "--datestop" | "--monthdays" => {
                    return Err(format!(
                        "`{option}`: weir tests times of day and days of the week, no dates"
                    ));
                }
                _ => break,
            }
            self.at = at + 2;
        }
        for (field, values) in [
            (Field::Hour, values::hours(start, stop)),
            (Field::Day, days),
        ] {
            if values != field.domain() {
                self.all(&[Condition::of(field, values)]);
            }
        }
        Ok(())
    }

    /// A list of addresses that packets fill.
    fn recent(&mut self) -> Result<(), String> {
        let (recent, at) = Recent::read(self.words, self.at);
        self.at = at;
        let timeout = self.shared.timeout(&recent.name)?;
        let dynamic = &mut self.state.names.dynamic;
        let name = policy::identifier(&recent.name);
        let set = dynamic.set(&format!("recent {}", recent.name), &name, None)?;
        let address = self.address(!recent.destination);
        let field = policy::name(address);
        let change = |delete| Change {
            set,
            delete,
            field,
            timeout: timeout.filter(|_| !delete),
        };
        match recent.verb.as_str() {
            "--set" if recent.negated => return Err("`! --set` never matches".to_owned()),
            "--set" => {
                self.changes = Some(change(false));
                self.last = Some("recent");
            }
            "--rcheck" | "--update" => {
                let test = self.state.names.dynamic.test(set, address)?;
                let is_in = u128::from(!recent.negated);
                self.all(&[Condition::of(test, Numbers::one(is_in))]);
                if recent.verb == "--update" {
                    if recent.negated {
                        return Err("`! --update` renews what it does not match".to_owned());
                    }
                    self.changes = Some(change(false));
                    self.last = Some("recent");
                }
            }
            "--remove" => {
                // It matches an address that was ever there; the set of weir has forgotten that.
                let asks = self.words.iter().any(|word| word == "-j" || word == "-g");
                if recent.negated || asks {
                    return Err("`--remove` as a test is true for addresses whose time is over, too, which a set of weir has forgotten".to_owned());
                }
                self.changes = Some(change(true));
                self.last = Some("recent");
            }
            _ => return Err("`-m recent` says nothing to do".to_owned()),
        }
        Ok(())
    }

    fn target(&mut self) -> Result<(), String> {
        let name = self.value("-j")?;
        self.made.target.clone_from(&name);
        while let Some(option) = self.take() {
            if option == "!" {
                continue;
            }
            let takes_value = self
                .words
                .get(self.at)
                .is_some_and(|next| !next.starts_with("--"));
            let value = if takes_value {
                self.take().unwrap_or_default()
            } else {
                String::new()
            };
            self.made.options.push((option, value));
        }
        let option = |wanted: &str| {
            let found = self.made.options.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        self.made.then = match name.as_str() {
            "ACCEPT" => Some(Then::Accept),
            "DROP" => Some(Then::Drop),
            "RETURN" => Some(Then::Return),
            "REJECT" => {
                let with = option("--reject-with").unwrap_or_default();
                match answers::iptables(self.family, &with) {
                    Some(answer) => self.made.answers.push(answer),
                    None => self.made.notes.push((
                        format!("weir has no answer like `--reject-with {with}`"),
                        Effect::NoAnswer,
                    )),
                }
                Some(Then::Drop)
            }
            "LOG" => {
                self.made.log = Some(option("--log-prefix").unwrap_or_default());
                Some(Then::Continue)
            }
            "MASQUERADE" | "SNAT" | "DNAT" | "REDIRECT" | "NETMAP" => None,
            "CT" | "NOTRACK" => {
                return Err("weir cannot leave packets out of the table of connections".to_owned());
            }
            "NFQUEUE" | "QUEUE" | "TPROXY" | "SYNPROXY" => {
                return Err(format!(
                    "`{name}` hands packets to programs, which weir does not"
                ));
            }
            other
                if let Some(write) = writes::iptables(
                    other,
                    &self.made.options,
                    self.family,
                    self.state.options.mtu,
                ) =>
            {
                match write {
                    Ok(write) => {
                        let note = writes::left_out(other);
                        let notes = note.map(|note| (note.to_owned(), Effect::NoChange));
                        self.made.notes.extend(notes);
                        self.made.write = Some(write);
                    }
                    Err(reason) => self.made.notes.push((reason, Effect::NoChange)),
                }
                self.made.write.is_some().then_some(Then::Continue)
            }
            other if WITHOUT_VERDICT.contains(&other) => {
                let note = format!("weir has no target like `{other}`");
                self.made.notes.push((note, Effect::NoChange));
                None
            }
            chain => Some(Then::Jump(chain.to_owned())),
        };
        Ok(())
    }

    fn address(&self, source: bool) -> Field {
        match source {
            true => self.family.source(),
            false => self.family.destination(),
        }
    }

    fn address_list(&self, value: &str) -> Option<Numbers> {
        value.split(',').try_fold(Numbers::default(), |all, one| {
            let (family, set) = values::addresses(one)?;
            (family == self.family).then(|| all.or(&set))
        })
    }

    fn icmp(&mut self, value: &str) -> Option<()> {
        let six =
            self.proto == Some(ICMP6) || (self.family == Family::Six && self.proto != Some(ICMP));
        let (kind, code) = match six {
            true => (Field::Icmp6Type, Field::Icmp6Code),
            false => (Field::IcmpType, Field::IcmpCode),
        };
        if value == "any" {
            self.test(kind, kind.domain());
            return Some(());
        }
        let (name, number) = match value.split_once('/') {
            Some((kind, code)) => (kind, Some(code)),
            None => (value, None),
        };
        if let Some(found) = values::number(kind, name) {
            let codes = match number {
                Some(number) => values::number(code, number)?,
                None => {
                    self.test(kind, Numbers::one(found));
                    return Some(());
                }
            };
            let both = Condition::of(kind, Numbers::one(found))?;
            let both = both.with(&Part::Has(code, Numbers::one(codes)))?;
            return self.both(&both);
        }
        // Codes by name, as `--icmp-type host-unreachable`.
        let kinds: &[u128] = if six { &[1] } else { &[3] };
        let found = values::number(code, name)?;
        let both = Condition::of(kind, Numbers::new(kinds.iter().map(|&k| (k, k)).collect()))?;
        let both = both.with(&Part::Has(code, Numbers::one(found)))?;
        self.both(&both)
    }

    /// Adds a condition, or its absence among packets of the protocol.
    fn both(&mut self, condition: &Condition) -> Option<()> {
        if !self.negated {
            self.all(&[Some(condition.clone())]);
            return Some(());
        }
        let left = crate::condition::subtract(
            std::mem::take(&mut self.set_of),
            std::iter::once(condition),
        );
        self.set_of = left.ok()?;
        Some(())
    }
}

fn behind(last: &str, word: &str) -> String {
    format!(
        "`-m {last}` counts the packets that reach it, and `{word}` is tested behind it; put `-m {last}` last"
    )
}

fn unknown(word: &str) -> String {
    format!("`{word}` has no counterpart")
}

/// States of `--ctstate`.
fn states(list: &str) -> Result<Numbers, String> {
    list.split(',').try_fold(Numbers::default(), |all, one| {
        let number = match one {
            "INVALID" => CT_INVALID,
            "NEW" => CT_NEW,
            "ESTABLISHED" => CT_ESTABLISHED,
            "RELATED" => CT_RELATED,
            "UNTRACKED" => CT_UNTRACKED,
            _ => return Err(format!("weir does not test the state `{one}`")),
        };
        Ok(all.or(&Numbers::one(number)))
    })
}

/// What a rule of table nat does with which packets.
fn nat_rule(rule: Made, family: Family) -> Result<Option<(Vec<Condition>, NatThen)>, String> {
    let option = |wanted: &str| {
        let found = rule.options.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    let then = match rule.target.as_str() {
        "SNAT" => {
            let to = option("--to-source").unwrap_or_default();
            NatThen::To(nat::to(to, true, family)?)
        }
        "DNAT" => {
            let to = option("--to-destination").unwrap_or_default();
            NatThen::To(nat::to(to, false, family)?)
        }
        "MASQUERADE" => NatThen::To(nat::masquerade(option("--to-ports"))?),
        "REDIRECT" => NatThen::To(nat::redirect(option("--to-ports"))?),
        "" => return Ok(None),
        other => match rule.then {
            Some(Then::Accept) => NatThen::Accept,
            Some(Then::Return) => NatThen::Return,
            Some(Then::Jump(to)) => NatThen::Jump(to),
            Some(Then::Goto(to)) => NatThen::Goto(to),
            _ => return Err(format!("`{other}` in table nat has no counterpart")),
        },
    };
    Ok(Some((rule.when, then)))
}
