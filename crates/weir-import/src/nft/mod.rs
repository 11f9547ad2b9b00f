//! `nft list ruleset`, and rule files as people write them: tables, sets, maps, chains, variables.
//!
//! `rule` reads what stands in a chain.

mod memory;
mod rule;
mod table;
mod tokens;

use std::collections::BTreeMap;

use crate::chains::{Rule, Then};
use crate::condition::{Condition, Field};
use crate::finding::{Effect, Finding};
use crate::hooks::{Base, Hook, Rules};
use crate::nat_chains::{NatBase, NatRule, NatThen, Translates};
use crate::numbers::Numbers;
use crate::state::State;
use crate::values;
use table::{Named, Table, closing, elements};
use tokens::{Kind, Token, lines, substitute, text_of};

/// Most statements and elements that are read.
const MAX_TOKENS: usize = 8_000_000;

/// Reads the text.
pub(crate) fn read(text: &str, state: &mut State) -> Rules {
    let mut reader = Reader {
        rules: Rules::default(),
        state,
        variables: BTreeMap::new(),
    };
    let mut tokens = lines(text);
    tokens.truncate(MAX_TOKENS);
    reader.top(&tokens);
    reader.rules
}

struct Reader<'s> {
    rules: Rules,
    state: &'s mut State,
    variables: BTreeMap<String, Vec<Token>>,
}

/// One statement of a block: its words, and the block behind them if it has one.
struct Statement<'t> {
    words: &'t [Token],
    block: Option<&'t [Token]>,
}

/// Which hooks lead to a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainKind {
    /// One, with type filter or route.
    Filter,
    /// One, with type nat.
    Nat,
    /// No hook: other chains jump to it.
    User,
}

/// Where statements stand: there are blocks in tables only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Table,
    Chain,
}

/// Parts the tokens of a block. A brace opens a block behind these words only; elsewhere it is a set.
fn statements(tokens: &[Token], level: Level) -> Vec<Statement<'_>> {
    const BLOCKS: &[&str] = &[
        "table",
        "chain",
        "set",
        "map",
        "flowtable",
        "counter",
        "quota",
        "limit",
        "secmark",
        "synproxy",
        "ct",
    ];
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(first) = tokens.get(at) {
        if first.kind == Kind::End {
            at += 1;
            continue;
        }
        let opens = |at: usize, token: &Token| {
            let words = at.saturating_sub(1);
            level == Level::Table
                && token.kind == Kind::Open
                && BLOCKS.contains(&first.text.as_str())
                && words < 5
        };
        let start = at;
        let mut depth = 0usize;
        let mut block = None;
        let mut end = tokens.len();
        while let Some(token) = tokens.get(at) {
            match token.kind {
                Kind::Open if depth == 0 && opens(at - start, token) => {
                    end = at;
                    let close = closing(tokens, at);
                    block = tokens.get(at + 1..close);
                    at = close + 1;
                    break;
                }
                Kind::Open => depth += 1,
                Kind::Close => depth = depth.saturating_sub(1),
                Kind::End if depth == 0 => {
                    end = at;
                    at += 1;
                    break;
                }
                _ => {}
            }
            at += 1;
            end = at;
        }
        out.push(Statement {
            words: tokens.get(start..end).unwrap_or_default(),
            block,
        });
    }
    out
}

impl Reader<'_> {
    fn top(&mut self, tokens: &[Token]) {
        // Tables may be opened more than once, and chains use sets that follow them.
        let mut tables: BTreeMap<(String, String), Table> = BTreeMap::new();
        let mut blocks: Vec<((String, String), &[Token])> = Vec::new();
        for statement in statements(tokens, Level::Table) {
            let words: Vec<&str> = statement.words.iter().map(|t| t.text.as_str()).collect();
            match (&words[..], statement.block) {
                (["table", rest @ ..], Some(block)) => {
                    let (family, name) = match rest {
                        [family, name, ..] => (*family, *name),
                        [name] => ("ip", *name),
                        [] => ("ip", ""),
                    };
                    let key = (family.to_owned(), name.to_owned());
                    let table = tables.entry(key.clone()).or_insert_with(|| Table {
                        family: family.to_owned(),
                        name: name.to_owned(),
                        sets: BTreeMap::new(),
                        uses: BTreeMap::new(),
                    });
                    table.uses.extend(table::uses(block));
                    self.definitions(block);
                    self.sets(block, table);
                    blocks.push((key, block));
                }
                (["define", ..], _) => self.define(statement.words),
                (["flush" | "#!/usr/sbin/nft", ..] | [], _) => {}
                (
                    ["table" | "add", "table", ..] | ["table", ..] | ["delete" | "destroy", ..],
                    _,
                ) => {}
                _ => {
                    let reason = "only tables, chains, sets and variables are read; list what is loaded with `nft list ruleset`";
                    self.unread(statement.words, reason, Effect::Either);
                }
            }
        }
        for (key, block) in blocks {
            if let Some(table) = tables.get(&key) {
                self.chains(block, table);
            }
        }
    }

    fn unread(&mut self, words: &[Token], reason: impl Into<String>, effect: Effect) {
        let line = words.first().map_or(1, |token| token.line);
        let finding = Finding::new(line, &text_of(words), reason, effect);
        self.state.findings.push(finding);
    }

    fn definitions(&mut self, block: &[Token]) {
        for statement in statements(block, Level::Table) {
            if statement
                .words
                .first()
                .is_some_and(|word| word.text == "define")
            {
                self.define(statement.words);
            }
        }
    }

    /// `define NAME = VALUE`
    fn define(&mut self, words: &[Token]) {
        if let [_, name, equals, value @ ..] = words
            && equals.text == "="
        {
            let value = substitute(value, &self.variables);
            self.variables.insert(name.text.clone(), value);
        }
    }

    fn sets(&mut self, block: &[Token], table: &mut Table) {
        for statement in statements(block, Level::Table) {
            let (Some(body), [kind, name]) = (statement.block, statement.words) else {
                continue;
            };
            if kind.text != "set" && kind.text != "map" {
                continue;
            }
            let mut named = Named::default();
            for line in statements(body, Level::Chain) {
                match line.words {
                    [first, equals, rest @ ..]
                        if first.text == "elements" && equals.text == "=" =>
                    {
                        let rest = substitute(rest, &self.variables);
                        named.elements.extend(elements(&rest));
                    }
                    [first, rest @ ..] if first.text == "flags" => {
                        let dynamic =
                            |token: &Token| matches!(token.text.as_str(), "dynamic" | "timeout");
                        named.changes |= rest.iter().any(dynamic);
                    }
                    [first, time, ..] if first.text == "timeout" => {
                        named.changes = true;
                        named.timeout = table::duration(&time.text);
                    }
                    [first, size, ..] if first.text == "size" => {
                        named.size = size.text.parse().ok();
                    }
                    _ => {}
                }
            }
            let counts = |one: &Vec<Token>| one.iter().any(|token| token.text == "limit");
            if named.changes && named.elements.iter().any(|one| !counts(one)) {
                let reason = "the addresses that the set has now are not in the policy";
                self.unread(statement.words, reason, Effect::NotAdded);
            }
            table.sets.insert(name.text.clone(), named);
        }
    }

    fn chains(&mut self, block: &[Token], table: &Table) {
        for statement in statements(block, Level::Table) {
            let (Some(body), [kind, name]) = (statement.block, statement.words) else {
                if let [first, rest @ ..] = statement.words
                    && first.text == "flags"
                    && rest.iter().any(|token| token.text == "dormant")
                {
                    self.unread(
                        statement.words,
                        "the table is dormant; it is read as if it were not",
                        Effect::Either,
                    );
                }
                continue;
            };
            if kind.text == "chain" {
                self.chain(body, name, table);
            }
        }
    }

    fn chain(&mut self, body: &[Token], name: &Token, table: &Table) {
        let scoped = table.scoped(&name.text);
        let mut base: Option<Base> = None;
        let mut of = ChainKind::User;
        let mut rules = Vec::new();
        for statement in statements(body, Level::Chain) {
            let words = substitute(statement.words, &self.variables);
            let texts: Vec<&str> = words.iter().map(|token| token.text.as_str()).collect();
            match &texts[..] {
                [] | ["comment", _] => continue,
                ["type", kind, "hook", hook, rest @ ..] => {
                    of = match *kind {
                        "nat" => ChainKind::Nat,
                        _ => ChainKind::Filter,
                    };
                    base = self.base(hook, rest, name, table, &scoped);
                    if base.is_none() {
                        self.unread(
                            &words,
                            "the hook or the name of a device is not understood",
                            Effect::Either,
                        );
                    }
                    continue;
                }
                ["policy", policy] => {
                    if let Some(base) = &mut base {
                        base.drops = *policy == "drop";
                    }
                    continue;
                }
                _ => {}
            }
            rules.push(words);
        }
        let entry = self.rules.chains.entry(scoped.clone()).or_default();
        entry.line = name.line;
        for words in rules {
            self.rule(&words, table, &scoped, of);
        }
        match base {
            Some(base) if of == ChainKind::Nat => self.rules.nat.bases.push(NatBase {
                translates: match base.hook {
                    Hook::Prerouting => Translates::Destination,
                    Hook::Postrouting | Hook::Input => Translates::Source,
                    _ => Translates::OwnPackets,
                },
                chain: base.chain,
                name: base.name,
                priority: base.priority,
                covers: base.covers,
            }),
            base => self.rules.bases.extend(base),
        }
    }

    fn base(
        &mut self,
        hook: &str,
        rest: &[&str],
        name: &Token,
        table: &Table,
        scoped: &str,
    ) -> Option<Base> {
        let hook = match hook {
            "ingress" => Hook::Ingress,
            "prerouting" => Hook::Prerouting,
            "input" => Hook::Input,
            "forward" => Hook::Forward,
            "output" => Hook::Output,
            "postrouting" => Hook::Postrouting,
            "egress" => Hook::Egress,
            _ => return None,
        };
        let at = rest.iter().position(|word| *word == "priority");
        let priority = at.map_or(0, |at| priority(rest.get(at + 1..).unwrap_or_default()));
        let mut covers = table.covers();
        let named = rest.iter().take_while(|word| **word != "priority");
        let named =
            named.filter(|word| !matches!(**word, "device" | "devices" | "=" | "{" | "}" | ","));
        let mut devices: Vec<u128> = Vec::new();
        for word in named {
            devices.push(self.state.names.interface(values::interface(word)?));
        }
        if !devices.is_empty() {
            let devices = Numbers::new(devices.iter().map(|&number| (number, number)).collect());
            covers = (covers.iter())
                .filter_map(|one| crate::condition::narrowed(one, Field::In, devices.clone()))
                .collect();
        }
        Some(Base {
            hook,
            priority,
            chain: scoped.to_owned(),
            name: format!(
                "chain {} of table {} {}",
                name.text, table.family, table.name
            ),
            short: name.text.clone(),
            drops: false,
            covers,
            line: name.line,
        })
    }

    fn rule(&mut self, words: &[Token], table: &Table, scoped: &str, of: ChainKind) {
        let line = words.first().map_or(1, |token| token.line);
        let text = text_of(words);
        let made = rule::read(words, table, self.state);
        for (reason, effect) in made.notes {
            self.state
                .findings
                .push(Finding::new(line, &text, reason, effect));
        }
        let branches = match made.branches {
            Ok(branches) => branches,
            Err(reason) => {
                self.state
                    .findings
                    .push(Finding::new(line, &text, reason, made.effect));
                return;
            }
        };
        let memory = made.limited.is_some() || made.change.is_some();
        if !made.writes.is_empty() && branches.len() != 1 {
            let reason = "what it writes stands beside a verdict map";
            let finding = Finding::new(line, &text, reason, made.effect);
            self.state.findings.push(finding);
            return;
        }
        if memory && (branches.len() != 1 || of == ChainKind::Nat || made.to.is_some()) {
            let reason =
                "what it counts or puts into a set stands beside a verdict map or a translation";
            let finding = Finding::new(line, &text, reason, made.effect);
            self.state.findings.push(finding);
            return;
        }
        let nat_rule = |when: Vec<Condition>, then| NatRule {
            line,
            text: text.clone(),
            when,
            then,
            out: made.out.clone(),
        };
        if let Some(to) = made.to {
            let when = branches.into_iter().flat_map(|(when, _)| when).collect();
            self.rules.nat.push(scoped, nat_rule(when, NatThen::To(to)));
            return;
        }
        // A chain without a hook may be reached from those of either kind.
        if of != ChainKind::Filter {
            for (when, then) in &branches {
                let then = match then {
                    Then::Continue => continue,
                    _ if memory => NatThen::Unread(
                        "translations of weir are for all packets of a rule, and change no sets"
                            .to_owned(),
                        made.effect,
                    ),
                    Then::Drop => NatThen::Unread(
                        "drops in chains of type nat are not read".to_owned(),
                        Effect::Wider,
                    ),
                    Then::Accept => NatThen::Accept,
                    Then::Return => NatThen::Return,
                    Then::Jump(to) => NatThen::Jump(table.scoped(to)),
                    Then::Goto(to) => NatThen::Goto(table.scoped(to)),
                };
                self.rules.nat.push(scoped, nat_rule(when.clone(), then));
            }
        }
        if of == ChainKind::Nat {
            return;
        }
        let chain = self.rules.chains.entry(scoped.to_owned()).or_default();
        for (when, mut then) in branches {
            if let Then::Jump(to) | Then::Goto(to) = &mut then {
                *to = table.scoped(to);
            }
            chain.rules.push(Rule {
                line,
                text: text.clone(),
                when,
                then,
                log: made.log.clone(),
                limited: made.limited.clone(),
                change: made.change.clone(),
                writes: made.writes.clone(),
                answers: made.answers.clone(),
            });
        }
    }
}

/// `filter`, `-10`, `filter - 10`.
fn priority(words: &[&str]) -> i32 {
    let mut sum = 0i32;
    let mut sign = 1;
    for word in words {
        let value = match *word {
            "raw" => -300,
            "mangle" => -150,
            "dstnat" => -100,
            "filter" => 0,
            "security" => 50,
            "srcnat" => 100,
            "-" => {
                sign = -1;
                continue;
            }
            "+" => continue,
            word => match word.parse::<i32>() {
                Ok(value) => value,
                Err(_) => break,
            },
        };
        sum = sum.saturating_add(value.saturating_mul(sign));
        sign = 1;
    }
    sum
}
