//! Chains laid flat: each rule of a chain becomes one rule for each way into it.
//!
//! All rules count, so a jump is a conjunction: a rule of a chain applies to packets that match the rules that lead to it, too. Laid flat, a
//! policy has rules only, and later stages know no chains. What the ways are called is stated in docs/language.md, "Chains". Works on the
//! syntax tree; whether a way leads anywhere (`in lan0 jump web`, `web` has only rules for UDP) is found when its rules are lowered.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::ast::{
    Action, Choice, Cond, FieldRef, File, Item, Key, Match, Rule, Span, Target, Test,
};
use crate::diagnostic::{Mark, Report};
use crate::field::Kind;
use crate::words::nearest;

/// Jumps behind each other.
const MOST_DEPTH: usize = 16;

/// Rules that chains make at most.
const MOST_RULES: usize = 200_000;

/// A rule of the flat policy.
#[derive(Clone, Debug)]
pub struct Flat {
    /// As it would be written without chains: the matches on the way and its own, and its targets. Its span is that of the written rule.
    pub rule: Rule,
    /// Number of the written rule, from 0 in the order of the file.
    pub of: u32,
    /// Its name in the policy: `web/allow-http`.
    pub name: Option<String>,
    /// The chain that it stands in.
    pub chain: Option<Span>,
    /// The choice of a `choose` that it is.
    pub(crate) choice: Option<Span>,
    /// Rules with jumps that lead to it, outermost first.
    pub(crate) way: Vec<Span>,
}

/// A chain and its rules.
struct Chain<'a> {
    name: Span,
    rules: Vec<(u32, &'a Rule)>,
}

/// What stands behind the matches of a rule.
pub(crate) enum Form<'a> {
    /// Targets.
    Plain,
    /// `jump NAME`
    Jump(Span),
    /// `choose FIELD { ... }`
    Choose(&'a FieldRef, &'a [Choice]),
}

/// What the targets of a rule or a choice are; `None`: a jump or choice is not alone.
pub(crate) fn form(targets: &[Target]) -> Option<Form<'_>> {
    match targets {
        [one] => Some(match &one.action {
            Action::Jump(name) => Form::Jump(*name),
            Action::Choose(field, choices) => Form::Choose(field, choices),
            _ => Form::Plain,
        }),
        many => {
            let leads = |t: &Target| matches!(t.action, Action::Jump(_) | Action::Choose(..));
            (!many.iter().any(leads)).then_some(Form::Plain)
        }
    }
}

/// The match that a choice stands for; of `else` those that rule all others out.
pub(crate) fn matches_of(field: FieldRef, choices: &[Choice], one: &Choice) -> Vec<Match> {
    let made = |span, negated, test| Match {
        span,
        negated,
        field,
        test,
    };
    match one.key {
        Key::Value(value) => vec![made(value, false, Test::Compare(Cond::Eq, value))],
        Key::Set(name) => vec![made(name, false, Test::Set(name))],
        Key::Else(at) => {
            let values = choices.iter().filter_map(|choice| match choice.key {
                Key::Value(value) => Some(value),
                _ => None,
            });
            let values: Vec<Span> = values.collect();
            let listed = (!values.is_empty()).then(|| made(at, true, Test::List(values.into())));
            let sets = choices.iter().filter_map(|choice| match choice.key {
                Key::Set(name) => Some(made(at, true, Test::Set(name))),
                _ => None,
            });
            listed.into_iter().chain(sets).collect()
        }
    }
}

/// Rules of a file with the name of the chain that each stands in.
pub(crate) fn rules(file: &File) -> impl Iterator<Item = (Option<Span>, &Rule)> {
    let mut chain = None;
    file.items.iter().filter_map(move |item| match item {
        Item::Chain(one) => {
            chain = Some(one.name);
            None
        }
        Item::End(_) => {
            chain = None;
            None
        }
        Item::Rule(rule) => Some((chain, rule)),
        _ => None,
    })
}

/// Whether a rule of a file jumps or chooses.
pub fn leads_to_chains(file: &File) -> bool {
    let leads = |t: &Target| matches!(t.action, Action::Jump(_) | Action::Choose(..));
    rules(file).any(|(_, rule)| rule.targets.iter().any(leads))
}

/// Whether a file says anything about chains.
pub(crate) fn has_chains(file: &File) -> bool {
    file.items.iter().any(|item| matches!(item, Item::Chain(_))) || leads_to_chains(file)
}

/// Lays the rules of a file flat. `None`: something was reported, and no rule of a chain can be laid flat.
pub(crate) fn flatten(file: &File, report: &mut Report) -> Option<Vec<Flat>> {
    let errors = report.errors();
    let mut chains = chains(file, report);
    let all: Vec<(u32, Option<Span>, &Rule)> = (0..)
        .zip(rules(file))
        .map(|(of, (chain, rule))| (of, chain, rule))
        .collect();
    for &(of, chain, rule) in &all {
        if let Some(chain) = chain.and_then(|name| chains.get_mut(name.of(&file.text))) {
            chain.rules.push((of, rule));
        }
    }
    let known: Vec<&str> = chains.keys().copied().collect();
    for &(_, _, rule) in &all {
        well_formed(file, &known, rule, report);
    }
    circles(file, &chains, report);
    if report.errors() > errors {
        return None;
    }
    let mut flattening = Flattening {
        file,
        chains: &chains,
        ways: HashMap::new(),
        taken: HashMap::new(),
        out: Vec::with_capacity(all.len()),
        made: 0,
    };
    let outside = all.iter().filter(|(_, chain, _)| chain.is_none());
    let top: Vec<(u32, &Rule)> = outside.map(|&(of, _, rule)| (of, rule)).collect();
    // How often each chain is entered decides what its rules are called.
    for &(_, rule) in &top {
        flattening.count(&rule.targets, 0);
    }
    if flattening.made > MOST_RULES {
        report
            .error(
                0,
                Span::default(),
                format!("the chains of this policy make more than {MOST_RULES} rules"),
            )
            .help("a chain has its rules once for each way into it: use fewer jumps");
        return None;
    }
    for (of, rule) in top {
        let name = rule.name.map(|name| name.of(&file.text).to_owned());
        flattening.expand(of, rule, &Context::default(), name);
    }
    for (name, chain) in sorted(&chains) {
        let jumps = flattening.ways.get(name).copied().unwrap_or(0);
        if jumps == 0 {
            report
                .warning(
                    0,
                    chain.name,
                    format!("nothing jumps to the chain `{name}`, so its rules apply to no packet"),
                )
                .help(format!("write `all jump {name}`, or remove the chain"));
        } else if chain.rules.is_empty() {
            report
                .warning(0, chain.name, format!("the chain `{name}` has no rules"))
                .help("remove it and the jumps to it");
        }
    }
    Some(flattening.out)
}

fn sorted<'a, 'b>(chains: &'b HashMap<&'a str, Chain<'a>>) -> Vec<(&'a str, &'b Chain<'a>)> {
    let mut all: Vec<_> = chains.iter().map(|(name, chain)| (*name, chain)).collect();
    all.sort_by_key(|(_, chain)| chain.name.start);
    all
}

fn chains<'a>(file: &'a File, report: &mut Report) -> HashMap<&'a str, Chain<'a>> {
    let mut chains: HashMap<&str, Chain<'_>> = HashMap::new();
    for item in &file.items {
        let Item::Chain(one) = item else { continue };
        let name = one.name.of(&file.text);
        if let Some(first) = chains.get(name) {
            report
                .error(0, one.name, format!("the chain `{name}` is defined twice"))
                .also(0, first.name, "first here")
                .help("give each chain its own name");
            continue;
        }
        let chain = Chain {
            name: one.name,
            rules: Vec::new(),
        };
        chains.insert(name, chain);
    }
    chains
}

/// Jumps and choices stand alone, and lead to chains that there are.
fn well_formed(file: &File, known: &[&str], rule: &Rule, report: &mut Report) {
    let targets = |targets: &[Target], report: &mut Report| -> bool {
        if form(targets).is_none() {
            let at = targets
                .iter()
                .find(|t| matches!(t.action, Action::Jump(_) | Action::Choose(..)));
            report
                .error(
                    0,
                    at.map_or(rule.span, |t| t.span),
                    "`jump` and `choose` are the only target of their rule",
                )
                .help("write the other targets in a rule of its own with the same matches");
            return false;
        }
        if let Some(Form::Jump(name)) = form(targets) {
            let word = name.of(&file.text);
            if !known.contains(&word) {
                let near = nearest(word, known.iter().copied());
                let draft = report.error(0, name, format!("there is no chain named `{word}`"));
                match near {
                    Some(near) => draft.help(format!("did you mean `{near}`?")),
                    None => draft.help(format!(
                        "define it: `chain {word} {{`, its rules on lines of their own, and `}}`"
                    )),
                };
            }
        }
        true
    };
    let mut leads = !matches!(form(&rule.targets), Some(Form::Plain));
    if targets(&rule.targets, report)
        && let Some(Form::Choose(_, choices)) = form(&rule.targets)
    {
        leads = false;
        let mut last: Option<Span> = None;
        for choice in choices {
            targets(&choice.targets, report);
            leads |= matches!(form(&choice.targets), Some(Form::Jump(_)));
            if let Key::Else(at) = choice.key
                && let Some(first) = last.replace(at)
            {
                report
                    .error(0, at, "`else` stands twice in one `choose`")
                    .also(0, first, "first here");
            }
        }
        if let (Some(at), [_]) = (last, choices) {
            report
                .error(0, at, "`else` needs another choice in front of it")
                .help("write the rule without `choose`");
        }
    }
    if let (true, Some(stateful)) = (leads, rule.stateful) {
        report
            .error(0, stateful, "a rule that jumps opens no connections")
            .help("write `add-stateful` in front of the rules of the chain");
    }
}

/// Names of chains that a rule jumps to.
fn jumps<'a>(file: &'a File, targets: &'a [Target]) -> Vec<(&'a str, Span)> {
    match form(targets) {
        Some(Form::Jump(name)) => vec![(name.of(&file.text), name)],
        Some(Form::Choose(_, choices)) => choices
            .iter()
            .flat_map(|choice| jumps(file, &choice.targets))
            .collect(),
        _ => Vec::new(),
    }
}

/// Refuses chains that lead back to themselves, and such that lie too deep.
fn circles(file: &File, chains: &HashMap<&str, Chain<'_>>, report: &mut Report) {
    /// Jumps from a chain to the last one behind it; `None`: being looked at.
    type Depths<'a> = HashMap<&'a str, Option<usize>>;
    struct Walk<'a, 'r> {
        file: &'a File,
        chains: &'a HashMap<&'a str, Chain<'a>>,
        depths: Depths<'a>,
        path: Vec<&'a str>,
        report: &'r mut Report,
    }
    impl<'a> Walk<'a, '_> {
        fn depth(&mut self, name: &'a str, at: Span) -> usize {
            match self.depths.get(name) {
                Some(Some(depth)) => return *depth,
                Some(None) => {
                    let from = self.path.iter().position(|one| *one == name).unwrap_or(0);
                    let mut circle: Vec<String> = self.path[from..]
                        .iter()
                        .map(|one| format!("`{one}`"))
                        .collect();
                    circle.push(format!("`{name}`"));
                    self.report
                        .error(
                            0,
                            at,
                            format!("chains jump in a circle: {}", circle.join(" -> ")),
                        )
                        .help("a chain cannot lead back to itself: remove one of the jumps");
                    return 0;
                }
                None => {}
            }
            let Some(chain) = self.chains.get(name) else {
                return 0;
            };
            self.depths.insert(name, None);
            self.path.push(name);
            let mut depth = 0;
            for (_, rule) in &chain.rules {
                for (next, at) in jumps(self.file, &rule.targets) {
                    // Beyond the bound nothing is looked for: the stack is not endless.
                    if self.path.len() > MOST_DEPTH {
                        depth = MOST_DEPTH;
                        break;
                    }
                    depth = depth.max(1 + self.depth(next, at));
                }
            }
            self.path.pop();
            self.depths.insert(name, Some(depth));
            depth
        }
    }
    let mut walk = Walk {
        file,
        chains,
        depths: HashMap::new(),
        path: Vec::new(),
        report,
    };
    for (name, chain) in sorted(chains) {
        let depth = walk.depth(name, chain.name);
        if depth >= MOST_DEPTH {
            walk.report
                .error(
                    0,
                    chain.name,
                    format!(
                        "jumps from the chain `{name}` lead through more than {MOST_DEPTH} chains"
                    ),
                )
                .help("join some of the chains");
            return;
        }
    }
}

/// What leads to a rule.
#[derive(Clone, Default)]
struct Context {
    matches: Vec<Match>,
    way: Vec<Span>,
    chain: Option<Span>,
}

struct Flattening<'a> {
    file: &'a File,
    chains: &'a HashMap<&'a str, Chain<'a>>,
    /// How often each chain is entered.
    ways: HashMap<&'a str, usize>,
    /// How often it was entered so far.
    taken: HashMap<&'a str, usize>,
    out: Vec<Flat>,
    /// Rules that `count` found.
    made: usize,
}

impl<'a> Flattening<'a> {
    /// Counts ways, and the rules that they make.
    fn count(&mut self, targets: &'a [Target], depth: usize) {
        if self.made > MOST_RULES {
            return;
        }
        match form(targets) {
            Some(Form::Jump(name)) => {
                let Some((&name, chain)) = self.chains.get_key_value(name.of(&self.file.text))
                else {
                    return;
                };
                *self.ways.entry(name).or_default() += 1;
                self.made += 1;
                if depth <= MOST_DEPTH {
                    for (_, rule) in &chain.rules {
                        self.count(&rule.targets, depth + 1);
                    }
                }
            }
            Some(Form::Choose(_, choices)) => {
                for choice in choices {
                    self.count(&choice.targets, depth);
                }
            }
            _ => self.made += 1,
        }
    }

    /// The rules that a written rule becomes behind what leads to it.
    fn expand(&mut self, of: u32, rule: &Rule, context: &Context, name: Option<String>) {
        let mut context = context.clone();
        append(&mut context.matches, &rule.matches);
        match form(&rule.targets) {
            Some(Form::Choose(field, choices)) => {
                for choice in choices {
                    let mut context = context.clone();
                    append(&mut context.matches, &matches_of(*field, choices, choice));
                    let key = match choice.key {
                        Key::Value(at) => at.of(&self.file.text).to_ascii_lowercase(),
                        Key::Set(at) => format!("@{}", at.of(&self.file.text)),
                        Key::Else(_) => "else".to_owned(),
                    };
                    let name = name.as_ref().map(|name| format!("{name}[{key}]"));
                    let targets = &choice.targets;
                    self.end(of, rule, targets, context, name, Some(choice.span));
                }
            }
            _ => self.end(of, rule, &rule.targets, context, name, None),
        }
    }

    /// A rule with targets, or the rules of a chain.
    fn end(
        &mut self,
        of: u32,
        rule: &Rule,
        targets: &[Target],
        mut context: Context,
        name: Option<String>,
        choice: Option<Span>,
    ) {
        let Some(Form::Jump(to)) = form(targets) else {
            self.out.push(Flat {
                rule: Rule {
                    matches: context.matches,
                    targets: targets.to_vec(),
                    ..rule.clone()
                },
                of,
                name,
                chain: context.chain,
                choice,
                way: context.way,
            });
            return;
        };
        let Some((&called, chain)) = self.chains.get_key_value(to.of(&self.file.text)) else {
            return;
        };
        let taken = self.taken.entry(called).or_default();
        *taken += 1;
        // One way in needs no name; of several each has that of its jump, or its number.
        let way = match self.ways.get(called) {
            Some(0 | 1) | None => String::new(),
            _ => match (rule.name, name) {
                (Some(_), Some(jump)) => format!("@{jump}"),
                _ => format!("@{taken}"),
            },
        };
        context.way.push(rule.span);
        context.chain = Some(chain.name);
        for (number, (of, inner)) in (1..).zip(&chain.rules) {
            let own = match inner.name {
                Some(name) => name.of(&self.file.text).to_owned(),
                None => format!("{number}"),
            };
            let name = format!("{called}/{own}{way}");
            self.expand(*of, inner, &context, Some(name));
        }
    }
}

/// Joins tests; `all` adds none.
fn append(to: &mut Vec<Match>, more: &[Match]) {
    let is_all = |one: &Match| matches!(one.field.field.info().kind, Kind::All);
    to.retain(|one| more.is_empty() || !is_all(one));
    let alone = to.is_empty();
    to.extend(more.iter().filter(|one| alone || !is_all(one)).cloned());
}

/// Leaves out warnings since a mark that are not true of every way into a rule, and says once what is true of all of them. `flats` are the
/// rules of the policy.
pub(crate) fn settle(flats: &[Flat], mark: Mark, report: &mut Report) {
    // By where written rules begin: where they end, and the choices of their copies.
    let mut rules: BTreeMap<u32, (u32, Vec<Option<Span>>)> = BTreeMap::new();
    let mut jumps: BTreeMap<u32, u32> = BTreeMap::new();
    for flat in flats {
        jumps.extend(flat.way.iter().map(|jump| (jump.start, jump.end)));
        if flat.chain.is_some() || flat.choice.is_some() {
            let span = flat.rule.span;
            let (_, copies) = rules.entry(span.start).or_insert((span.end, Vec::new()));
            copies.push(flat.choice);
        }
    }
    let holds =
        |span: Span, at: Span| (span.start..span.end.max(span.start + 1)).contains(&at.start);
    // Copies that a place belongs to; `None`: it is in no copied rule.
    let copies_at = |at: Span| -> Option<usize> {
        let (_, (end, copies)) = rules.range(..=at.start).next_back()?;
        if at.start >= *end {
            return None;
        }
        let of_choice = copies
            .iter()
            .filter(|choice| choice.is_some_and(|choice| holds(choice, at)))
            .count();
        Some(if of_choice > 0 {
            of_choice
        } else {
            copies.len()
        })
    };
    let in_jump = |at: Span| {
        let before = jumps.range(..=at.start).next_back();
        before.is_some_and(|(_, end)| at.start < *end)
    };
    let mut said: HashMap<(u32, u32, String), usize> = HashMap::new();
    for (span, message) in report.warnings_since(mark) {
        if copies_at(span).is_some() {
            *said
                .entry((span.start, span.end, kind_of(message)))
                .or_default() += 1;
        }
    }
    let mut kept: HashSet<(u32, u32, String)> = HashSet::new();
    report.keep_warnings_since(mark, |span, message| {
        let key = (span.start, span.end, kind_of(message));
        match copies_at(span) {
            Some(copies) if said.get(&key).is_some_and(|&times| times >= copies) => {
                kept.insert(key)
            }
            Some(_) => false,
            None if in_jump(span) => kept.insert((key.0, key.1, message.to_owned())),
            None => true,
        }
    });
}

/// What a message says, whatever rule and values it names.
fn kind_of(message: &str) -> String {
    let outside = message.split('`').step_by(2).collect::<Vec<_>>().concat();
    outside.chars().filter(|c| !c.is_ascii_digit()).collect()
}
