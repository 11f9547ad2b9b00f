//! The syntax tree to the typed policy: widths, classes, and what each match and target means.
//!
//! Everything that docs/semantics.md sections 2, 4 and 7 settle when a policy is read is settled here, once; later stages
//! see only `model`. Errors do not stop the file, so that all of them are seen at once.

mod chains;
mod connections;
mod dynamic;
mod limits;
mod matches;
mod targets;

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::ast::{self, Span};
use crate::diagnostic::{Mark, Report};
use crate::field::{Field, Header, Kind};
use crate::flat::{self, Flat};
use crate::lint::{self, Asked};
use crate::model::{Classes, Policy, Ranges, Rule, Subject, Target, Test};
use crate::sets::Sets;
use crate::source::{SetLoader, Source};
use crate::value::Problem;

/// Lowers a tree. What is wrong goes to `report`. Also returns what chains make of the rules, and the set files, which the report's spans
/// point into.
pub(crate) fn lower(
    file: &ast::File,
    loader: &dyn SetLoader,
    report: &mut Report,
) -> (Policy, Option<Vec<Flat>>, Vec<Source>) {
    let sets = Sets::new(file, loader, report);
    let has_chains = flat::has_chains(file);
    let mut flats = match has_chains {
        true => flat::flatten(file, report),
        false => None,
    };
    let mut lower = Lower {
        text: &file.text,
        file,
        unnamed: Arc::from(""),
        loader,
        report,
        sets,
        interned: HashMap::new(),
        names: HashMap::new(),
        seen: HashMap::new(),
    };
    lower.dynamic_sets(file);
    let (rules, kept) = match has_chains {
        true => lower.rules_of_chains(file, flats.as_deref()),
        false => (lower.rules(file), Vec::new()),
    };
    let connections = lower.settings(file, &rules);
    if !lower.report.has_errors() {
        lower.sets.warn_unused(lower.report);
    }
    let Lower { sets, report, .. } = lower;
    if let Some(flats) = &mut flats {
        let mut kept = kept.into_iter();
        flats.retain(|_| kept.next().unwrap_or(false));
    }
    let policy = Policy { rules, connections };
    if !report.has_errors() {
        let written: Vec<&ast::Rule> = match &flats {
            Some(flats) => flats.iter().map(|one| &one.rule).collect(),
            None => flat::rules(file).map(|(_, rule)| rule).collect(),
        };
        let mark = report.mark();
        lint::policy(&policy, file, &written, report);
        if let Some(flats) = &flats {
            flat::settle(flats, mark, report);
        }
    }
    (policy, flats, sets.files)
}

struct Lower<'a> {
    text: &'a str,
    file: &'a ast::File,
    /// Name of files without one.
    unnamed: Arc<str>,
    loader: &'a dyn SetLoader,
    report: &'a mut Report,
    sets: Sets<'a>,
    /// One allocation for each interval of low numbers, however many rules test it.
    interned: HashMap<(u16, u16), Arc<Ranges>>,
    /// Names of rules, with the chain that each stands in or nothing.
    names: HashMap<(&'a str, &'a str), Span>,
    /// Hash of matches and targets to the rules that have it, with the place they were written.
    seen: HashMap<u64, (usize, Span)>,
}

/// The classes of a rule and which words asked for them.
#[derive(Default)]
struct Required {
    classes: Classes,
    places: Vec<(Classes, Span)>,
}

impl Required {
    fn add(&mut self, classes: Classes, span: Span) {
        if !self.classes.contains(classes) {
            self.classes = self.classes.union(classes);
            self.places.push((classes, span));
        }
    }
}

/// Classes that no packet has together.
const EXCLUSIVE: &[(Classes, Classes)] = &[
    (Classes::IP4, Classes::IP6),
    (Classes::TCP, Classes::UDP),
    (Classes::TCP, Classes::ICMP),
    (Classes::TCP, Classes::ICMP6),
    (Classes::UDP, Classes::ICMP),
    (Classes::UDP, Classes::ICMP6),
    (Classes::ICMP, Classes::ICMP6),
    (Classes::IP6, Classes::ICMP),
    (Classes::IP4, Classes::ICMP6),
    (Classes::PORTS, Classes::ICMP),
    (Classes::PORTS, Classes::ICMP6),
];

/// What a class is called.
const CLASS_NAMES: &[(Classes, &str)] = &[
    (Classes::IP4, "IPv4"),
    (Classes::IP6, "IPv6"),
    (Classes::TCP, "TCP"),
    (Classes::UDP, "UDP"),
    (Classes::ICMP, "ICMP"),
    (Classes::ICMP6, "ICMPv6"),
    (Classes::PORTS, "of a protocol with ports"),
];

impl<'a> Lower<'a> {
    /// The rules of a file without chains.
    fn rules(&mut self, file: &'a ast::File) -> Vec<Rule> {
        let is_rule = |item: &&ast::Item| matches!(item, ast::Item::Rule(_));
        let mut rules = Vec::with_capacity(file.items.iter().filter(is_rule).count());
        for (_, written) in flat::rules(file) {
            self.named("", written);
            let id = rules.len() as u32 + 1;
            let name = written.name.map(|name| self.of(name).to_owned());
            let (rule, _) = self.rule(written, id, name);
            self.warn_if_seen(written, &rule, &rules);
            rules.push(rule);
        }
        rules
    }

    /// Notes the name of a rule, unique in its chain.
    fn named(&mut self, chain: &'a str, written: &ast::Rule) {
        let Some(span) = written.name else { return };
        let name = self.of(span);
        match self.names.entry((chain, name)) {
            Entry::Vacant(free) => {
                free.insert(span);
            }
            Entry::Occupied(first) => {
                self.report
                    .error(0, span, format!("two rules are named `{name}`"))
                    .also(0, *first.get(), "first here")
                    .help("give each rule its own name");
            }
        }
    }

    /// What a rule means; and, if its words contradict each other, what the report held before that was said.
    fn rule(&mut self, written: &ast::Rule, id: u32, name: Option<String>) -> (Rule, Option<Mark>) {
        let mut required = Required::default();
        let mut matches = Vec::with_capacity(written.matches.len());
        // The written match that each of them comes from.
        let mut origins: Vec<&ast::Match> = Vec::with_capacity(written.matches.len());
        for m in &written.matches {
            self.lower_match(m, written.matches.len(), &mut matches, &mut required);
            origins.resize(matches.len(), m);
        }
        let of_targets = required.places.len();
        let stateful = written.stateful.is_some();
        let (targets, chosen) = self.lower_targets(&written.targets, stateful, &mut required);
        let (mark, errors) = (self.report.mark(), self.report.errors());
        self.refuse_exclusive(&required);
        if !self.report.has_error_in(0, written.span) {
            let asked = matches.iter().zip(&origins);
            let needed = required.places.get(of_targets..).unwrap_or_default();
            let asked: Vec<Asked<'_>> = asked
                .map(|(one, origin)| Asked::of_match(one, origin))
                .chain(
                    needed
                        .iter()
                        .map(|&(classes, span)| Asked::of_target(classes, span)),
                )
                .collect();
            lint::judge(self.text, &asked, self.report);
        }
        let part = self.file.part(written.span);
        let (file, included) = match part {
            Some(part) => (&part.name, part.path.is_some()),
            None => (&self.unnamed, false),
        };
        let contradicts = (self.report.errors() > errors).then_some(mark);
        let rule = Rule {
            id,
            name,
            line: written.line,
            file: Arc::clone(file),
            included,
            stateful,
            timeout_ns: chosen.timeout_ns(),
            mapping: chosen.filtering(),
            helper: chosen.helper(),
            requires: required.classes,
            matches,
            targets,
        };
        (rule, contradicts)
    }

    fn refuse_exclusive(&mut self, required: &Required) {
        let place = |class: Classes| {
            required
                .places
                .iter()
                .find(|(classes, _)| classes.contains(class))
                .map(|&(_, span)| span)
        };
        for &(a, b) in EXCLUSIVE {
            if !required.classes.contains(a.union(b)) {
                continue;
            }
            let (Some(mut at_a), Some(mut at_b)) = (place(a), place(b)) else {
                continue;
            };
            let (mut a, mut b) = (class_name(a), class_name(b));
            if at_a.start > at_b.start {
                std::mem::swap(&mut at_a, &mut at_b);
                std::mem::swap(&mut a, &mut b);
            }
            self.report
                .error(
                    0,
                    at_b,
                    format!("no packet is both {a} and {b}, so this rule could never match"),
                )
                .label(format!("this is {b}"))
                .also(0, at_a, format!("this is {a}"))
                .help("write one rule for each");
            return;
        }
    }

    fn warn_if_seen(&mut self, written: &ast::Rule, rule: &Rule, earlier: &[Rule]) {
        let key = (rule.matches.as_slice(), rule.targets.as_slice());
        match self.seen.entry(hash_of(rule)) {
            Entry::Vacant(free) => {
                free.insert((earlier.len(), written.span));
            }
            Entry::Occupied(slot) => {
                let &(index, span) = slot.get();
                let same = earlier.get(index).is_some_and(|r| {
                    r.matches == key.0
                        && r.targets == key.1
                        && r.requires == rule.requires
                        && r.stateful == rule.stateful
                        && r.timeout_ns == rule.timeout_ns
                        && r.mapping == rule.mapping
                });
                if same {
                    let id = index + 1;
                    self.report
                        .warning(
                            0,
                            written.span,
                            format!("this rule is the same as rule {id}"),
                        )
                        .also(0, span, format!("rule {id}"))
                        .help("remove one of them; both count, and both run their targets");
                }
            }
        }
    }

    fn range(&mut self, lo: u128, hi: u128) -> Arc<Ranges> {
        let new = || Arc::new(Ranges::new(vec![(lo, hi)]));
        // Addresses and the like repeat too rarely for a look-up to be cheaper than an allocation.
        match (u16::try_from(lo), u16::try_from(hi)) {
            (Ok(lo), Ok(hi)) => Arc::clone(self.interned.entry((lo, hi)).or_insert_with(new)),
            _ => new(),
        }
    }

    fn of(&self, span: Span) -> &'a str {
        span.of(self.text)
    }

    fn problem(&mut self, span: Span, problem: Problem) {
        let draft = self.report.error(0, span, problem.message);
        if let Some(help) = problem.help {
            draft.help(help);
        }
    }

    /// Reads a number from 0 to `max` that is part of the syntax: a kind, an offset.
    fn small_number(&mut self, span: Span, max: u16, what: &str) -> Option<u16> {
        let word = self.of(span);
        match crate::value::number(word, 16, &[]) {
            Ok(value) if value <= u128::from(max) => u16::try_from(value).ok(),
            _ => {
                self.report
                    .error(0, span, format!("`{word}` is not {what}"))
                    .help(format!("it is a number from 0 to {max}"));
                None
            }
        }
    }

    /// What a field reference stands for. Checks kinds and offsets; padding is not an option.
    fn subject(&mut self, reference: &ast::FieldRef) -> Option<Subject> {
        let field = reference.field;
        let mut subject = Subject {
            field,
            option: None,
            at: 0,
        };
        match field.info().kind {
            Kind::TcpOption(kind) | Kind::Ip4Option(kind) => {
                subject.option = kind;
                if let Some(arg) = reference.arg {
                    let tcp = matches!(field.info().kind, Kind::TcpOption(_));
                    let what = if tcp {
                        "a TCP option kind"
                    } else {
                        "an IPv4 option type"
                    };
                    let number = self.small_number(arg, 255, what)?;
                    if number < 2 {
                        let name = if number == 0 {
                            "the end of the list"
                        } else {
                            "padding"
                        };
                        self.report
                            .error(
                                0,
                                arg,
                                format!("{what} of {number} is {name}, not an option"),
                            )
                            .help("options are numbered from 2");
                        return None;
                    }
                    subject.option = u8::try_from(number).ok();
                }
            }
            Kind::Payload => {
                if let Some(arg) = reference.arg {
                    subject.at = self.small_number(arg, u16::MAX, "an offset into a payload")?;
                }
            }
            _ => {}
        }
        Some(subject)
    }
}

/// Classes that packets with this field have.
fn classes_of(field: Field) -> Classes {
    match field.info().header {
        Header::Meta | Header::Skb | Header::Clock | Header::Ether | Header::EtherAddr => {
            Classes::NONE
        }
        Header::Ports => Classes::PORTS,
        Header::Vlan => Classes::VLAN,
        Header::Vlan2 => Classes::VLAN2,
        Header::Ip4 => Classes::IP4,
        Header::Ip6 => Classes::IP6,
        Header::Ip6Frag => Classes::IP6.union(Classes::IP6_FRAG),
        Header::Icmp => Classes::ICMP,
        Header::Icmp6 => Classes::ICMP6,
        Header::Udp => Classes::UDP,
        Header::Tcp => Classes::TCP,
    }
}

fn class_name(class: Classes) -> &'static str {
    CLASS_NAMES
        .iter()
        .find(|(c, _)| *c == class)
        .map_or("this", |&(_, name)| name)
}

fn hash_of(rule: &Rule) -> u64 {
    let mut hasher = DefaultHasher::new();
    (rule.stateful, rule.timeout_ns, rule.mapping).hash(&mut hasher);
    for m in &rule.matches {
        (m.negated, m.subject).hash(&mut hasher);
        match &m.test {
            Test::Present => 0u8.hash(&mut hasher),
            Test::Always => 1u8.hash(&mut hasher),
            Test::In(ranges) => {
                // Long sets: equality decides.
                ranges.intervals().len().hash(&mut hasher);
                ranges.intervals().first().hash(&mut hasher);
                ranges.intervals().last().hash(&mut hasher);
            }
            Test::Masked { value, mask } => (value, mask).hash(&mut hasher),
            Test::Bytes(bytes) => bytes.hash(&mut hasher),
            Test::Port(ports) => ports.hash(&mut hasher),
            Test::Dynamic(set) => set.hash(&mut hasher),
        }
    }
    for target in &rule.targets {
        std::mem::discriminant(target).hash(&mut hasher);
        match target {
            Target::Set { field, value } => (field, value).hash(&mut hasher),
            Target::SetMeta { field, value, mask } => (field, value, mask).hash(&mut hasher),
            Target::SetPayload { subject, bytes } => (subject, bytes).hash(&mut hasher),
            Target::SetOption { kind, value } | Target::AddOption { kind, value } => {
                (kind, value).hash(&mut hasher);
            }
            Target::Strip(kinds) => kinds.hash(&mut hasher),
            Target::Log { prefix, limit } => (prefix, limit).hash(&mut hasher),
            Target::Map { field, pool } => (field, pool.intervals().first()).hash(&mut hasher),
            Target::Shuffle { field } => field.hash(&mut hasher),
            Target::ChangeSet(change) => change.hash(&mut hasher),
            Target::PushTag { tci } => tci.hash(&mut hasher),
            Target::Drop(_) | Target::Accept | Target::PopTag | Target::DecrementTtl => {}
        }
    }
    hasher.finish()
}
