//! Tokens to the syntax tree.
//!
//! Decides what is a field, a value or a keyword, and nothing about widths or meanings. An error never ends the file:
//! the line is taken up again at the next word that can start a match or a target.

mod chains;
mod dynamic;
mod habits;
mod limits;
mod set_habits;
mod targets;

use std::sync::Arc;

use crate::ast::{
    Action, Cond, FieldRef, File, Include, Item, Match, Rule, Set, SetBody, Setting, SettingKind,
    Span, Target, Test,
};
use crate::diagnostic::Report;
use crate::field::{Field, Kind as FieldKind};
use crate::lexer::{Kind, Lexer, Line, Token};
use crate::names::{examples, has_flags, is_named, names_of};
use crate::words::looks_like_literal;
use crate::words::{
    COMMANDS, LB, OF_FIELDS, TARGETS, field, field_spellings, is_name, is_one_of, meant, nearest,
};

/// File number of the policy in reports.
const POLICY: u32 = 0;

/// Reads a text alone: files that it includes are not looked at. What is wrong goes to `report`; the tree then holds what could be read.
pub(crate) fn parse_text(text: &str, report: &mut Report) -> File {
    File {
        text: Arc::from(text),
        items: parse_part(text, 0, report),
        parts: Vec::new(),
    }
}

/// Reads the lines from a place in a text on.
pub(crate) fn parse_part(text: &str, from: u32, report: &mut Report) -> Vec<Item> {
    let mut items = Vec::new();
    if u32::try_from(text.len()).is_err() {
        report.error(POLICY, Span::default(), "the policy is longer than 4 GiB");
        return items;
    }
    let mut lexer = Lexer::new(text, from);
    let mut line = Line::default();
    let mut scratch = Scratch::default();
    let mut open = Open::default();
    while lexer.next_line(&mut line) {
        let item = Parser {
            text,
            tokens: &line.tokens,
            at: 0,
            report,
            scratch: &mut scratch,
            in_choices: false,
        }
        .item(&line);
        let is_kept = open.follow(item.as_ref(), &line, report);
        items.extend(item.filter(|_| is_kept));
    }
    if let Some(chain) = open.chain {
        report
            .error(POLICY, chain, "this chain is not closed")
            .help("write `}` on a line of its own behind its last rule");
    }
    items
}

/// The chain that lines stand in.
#[derive(Default)]
struct Open {
    chain: Option<Span>,
    /// Lines that opened something of another program: their closing braces are no errors of their own.
    foreign: usize,
}

impl Open {
    /// Takes the next line; whether its item may stand here.
    fn follow(&mut self, item: Option<&Item>, line: &Line, report: &mut Report) -> bool {
        match (item, self.chain) {
            (Some(Item::Chain(chain)), None) => self.chain = Some(chain.span),
            (Some(Item::Chain(chain)), Some(first)) => {
                report
                    .error(POLICY, chain.span, "a chain cannot stand in another one")
                    .also(POLICY, first, "this one is still open")
                    .help("close it with `}` first; `jump NAME` leads from one chain into another");
                return false;
            }
            (Some(Item::End(_)), Some(_)) => self.chain = None,
            (Some(Item::End(_)), None) if self.foreign > 0 => {
                self.foreign -= 1;
                return false;
            }
            (Some(Item::End(end)), None) => {
                report
                    .error(POLICY, end.span, "this `}` closes nothing")
                    .help("remove it; `chain NAME {` opens a chain");
                return false;
            }
            (
                Some(
                    Item::Set(Set { span, .. })
                    | Item::Setting(Setting { span, .. })
                    | Item::Include(Include { span, .. }),
                ),
                Some(first),
            ) => {
                report
                    .error(POLICY, *span, "a chain holds rules only")
                    .also(POLICY, first, "this chain is still open")
                    .help("write this line in front of the chain");
            }
            (None, _) if line.tokens.last().is_some_and(|t| t.kind == Kind::Open) => {
                self.foreign += 1;
            }
            _ => {}
        }
        true
    }
}

/// Whether a field takes values (given the kind behind an option's name); others are tested for presence only.
pub(crate) fn takes_values(field: Field, has_arg: bool) -> bool {
    match field.info().kind {
        FieldKind::Number
        | FieldKind::Addr4
        | FieldKind::Addr6
        | FieldKind::Mac
        | FieldKind::L4Proto
        | FieldKind::CtState
        | FieldKind::Payload
        | FieldKind::NetProto
        | FieldKind::InPort
        | FieldKind::OutPort => true,
        FieldKind::TcpOption(kind) => (kind.is_some() && kind != Some(4)) || has_arg,
        FieldKind::Is(_)
        | FieldKind::Ip4Option(_)
        | FieldKind::ExtHeader(_)
        | FieldKind::Exists
        | FieldKind::All => false,
    }
}

/// What values a field takes, for messages.
fn takes(field: Field) -> String {
    let names = names_of(field);
    match field.info().kind {
        FieldKind::Addr4 => "an IPv4 address, a prefix or a range: `192.0.2.0/24`".to_owned(),
        FieldKind::Addr6 => "an IPv6 address, a prefix or a range: `2001:db8::/32`".to_owned(),
        FieldKind::NetProto => "`ip4` or `ip6`".to_owned(),
        FieldKind::Mac => "a MAC address or a prefix: `02:00:00:00:00:00/24`".to_owned(),
        FieldKind::Payload => "bytes behind `==`: `== x474554`".to_owned(),
        FieldKind::InPort | FieldKind::OutPort => "an interface: `eth0`".to_owned(),
        _ if field.info().name == "mark" => {
            "a number, or one with a mask: `x10`, `x10/xff`".to_owned()
        }
        _ if field.info().name == "hour" => {
            "a time of day or a range: `08:00`, `22:00-06:00`".to_owned()
        }
        _ if field.info().name == "day" => "a day or a range: `mon`, `mon-fri`".to_owned(),
        _ if field.info().name == "priority" => "a class or a number: `1:10`".to_owned(),
        _ if names.is_empty() => "a number: `80`, `x50`".to_owned(),
        _ => format!("a number or a name, like {}", examples(names).join(", ")),
    }
}

/// Buffers that rules are collected in, so that each vector of the tree has its exact size.
#[derive(Debug, Default)]
struct Scratch {
    matches: Vec<Match>,
    targets: Vec<Target>,
    elements: Vec<Span>,
}

/// A line that is no rule was reported.
struct NoRule;

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
    report: &'a mut Report,
    scratch: &'a mut Scratch,
    /// Whether targets end at a comma or a brace: those of a choice do.
    in_choices: bool,
}

impl<'a> Parser<'a> {
    fn item(mut self, line: &Line) -> Option<Item> {
        let (Some(first), Some(last)) = (self.tokens.first(), self.tokens.last()) else {
            return Some(line.comment.map_or(Item::Blank, Item::Comment));
        };
        let span = first.span.to(last.span);
        let first = self.peek_word().unwrap_or_default();
        if self.peek().is_some_and(|t| t.kind == Kind::Close) {
            return self.chain_end(line.comment).map(Item::End);
        }
        if first.eq_ignore_ascii_case("include") {
            return self.include(span, line.comment).map(Item::Include);
        }
        if first.eq_ignore_ascii_case("set") {
            return self.set(span, line.comment).map(Item::Set);
        }
        if is_one_of(
            first,
            &["connections", "timeout", "min-pmtu", "limits", "timezone"],
        ) {
            return self.setting(span, line.comment).map(Item::Setting);
        }
        let is_tcp =
            |t: &Token| t.kind == Kind::Word && self.of(t.span).eq_ignore_ascii_case("tcp");
        if first.eq_ignore_ascii_case("loose") && self.tokens.get(1).is_some_and(is_tcp) {
            if let Some(t) = self.tokens.get(2) {
                let at = t.span;
                self.error(at, "nothing may follow `loose tcp` on its line".to_owned());
                return None;
            }
            return Some(Item::Setting(Setting {
                span,
                what: SettingKind::LooseTcp,
                comment: line.comment,
            }));
        }
        let mark = self.report.mark();
        let errors = self.report.errors();
        let text = self.of(span);
        let rule = match first.eq_ignore_ascii_case("chain") {
            true => self.chain(span, line.comment).map(Item::Chain),
            false => self.rule(span, line).map(Item::Rule),
        };
        // What other firewalls write is told in one piece instead of word by word.
        if self.report.errors() > errors
            && let Some(advice) = habits::advice(text, span.start)
        {
            self.report.take_back(mark);
            self.error(advice.span, advice.message).help(advice.help);
            return None;
        }
        rule
    }

    /// `connections N`, `timeout STATE DURATION`, `min-pmtu N`, `limits N`, `timezone OFFSET`.
    fn setting(&mut self, span: Span, comment: Option<Span>) -> Option<Setting> {
        let keyword = self.next()?;
        let name = self.of(keyword.span).to_ascii_lowercase();
        let mut word = |wanted: &str| match self.peek() {
            Some(t) if t.kind == Kind::Word => {
                self.at += 1;
                Some(t.span)
            }
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                let help = match name.as_str() {
                    "timezone" => "write `timezone +02:00`, or `timezone utc`",
                    _ => {
                        "write `connections 100000`, `limits 100000`, or `timeout udp-stream 5m` for connections of one state"
                    }
                };
                self.error(at, format!("expected {wanted}")).help(help);
                None
            }
        };
        let what = match name.as_str() {
            "timeout" => SettingKind::Timeout(
                word("a state behind `timeout`")?,
                word("a duration behind the state")?,
            ),
            "min-pmtu" => SettingKind::MinPmtu(word("a number of bytes behind `min-pmtu`")?),
            "timezone" => SettingKind::Timezone(word("an offset from UTC behind `timezone`")?),
            "limits" => SettingKind::Limits(word("a number of addresses behind `limits`")?),
            _ => SettingKind::Connections(word("a number behind `connections`")?),
        };
        if let Some(t) = self.peek() {
            self.error(t.span, format!("nothing may follow `{name}` on its line"));
            return None;
        }
        Some(Setting {
            span,
            what,
            comment,
        })
    }

    /// `include "path"`
    fn include(&mut self, span: Span, comment: Option<Span>) -> Option<Include> {
        self.at += 1;
        let path = match self.peek() {
            Some(t) if t.kind == Kind::Text => t.span,
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, "expected the path of a file in quotes")
                    .help("write `include \"file.weir\"`");
                return None;
            }
        };
        self.at += 1;
        if let Some(t) = self.peek() {
            self.error(t.span, "nothing may follow the path on this line")
                .help("write one `include` for each file");
            return None;
        }
        Some(Include {
            span,
            path,
            comment,
        })
    }

    fn set(&mut self, span: Span, comment: Option<Span>) -> Option<Set> {
        self.at += 1;
        let name = match self.next() {
            Some(t) if t.kind == Kind::Word && is_name(self.of(t.span)) => t.span,
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, "a set needs a name")
                    .help("write `set NAME = { 80, 443 }` or `set NAME = file \"path\"`; a name is letters, digits, `_`, `.` and `-`, and starts with a letter");
                return None;
            }
        };
        match self.next() {
            Some(t) if t.kind == Kind::Assign => {}
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                let braces = other.is_some_and(|t| t.kind == Kind::Open);
                let name = self.of(name);
                let draft = self.error(at, "expected `=` behind the name of the set");
                if braces {
                    draft.help(format!("write `set {name} = {{ 80, 443 }}`; a set that packets fill is `set {name} = dynamic timeout 10m`"));
                }
                return None;
            }
        }
        let body = match self.peek() {
            Some(t) if t.kind == Kind::Open => SetBody::List(self.list()?),
            Some(t) if t.kind == Kind::Word && self.of(t.span).eq_ignore_ascii_case("file") => {
                self.at += 1;
                SetBody::File(self.text_token("the path of the file")?)
            }
            Some(t) if t.kind == Kind::Word && self.of(t.span).eq_ignore_ascii_case("dynamic") => {
                self.dynamic_set()?
            }
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, "expected `{`, `file` or `dynamic`")
                    .help("write `set NAME = { 80, 443 }`, `set NAME = file \"path\"`, or `set NAME = dynamic timeout 10m` for a set that packets fill");
                return None;
            }
        };
        if let Some(t) = self.peek() {
            self.error(t.span, "nothing may follow a set on its line");
        }
        Some(Set {
            span,
            name,
            body,
            comment,
        })
    }

    fn rule(&mut self, span: Span, line: &Line) -> Option<Rule> {
        let name = self.rule_name();
        let stateful = self.prefix().ok()?;
        self.scratch.matches.clear();
        self.scratch.targets.clear();
        let errors_before = self.report.errors();
        self.matches();
        self.targets();
        let clean = self.report.errors() == errors_before;
        if clean && self.scratch.targets.is_empty() {
            let end = self.end();
            let help = if stateful.is_some() {
                "a target is `accept`, `map FIELD VALUE`, `shuffle FIELD`, `mod FIELD VALUE`, `drop` or another"
            } else {
                "a target is `mod FIELD VALUE`, `add OPTION VALUE`, `strip OPTION`, `drop`, `accept` or `log`"
            };
            self.error(end, "this rule has no target")
                .label("expected a target here")
                .help(help);
        } else if clean && self.scratch.matches.is_empty() && !self.chooses() {
            let at = self.scratch.targets.first().map_or(span, |t| t.span);
            self.error(at, "this rule has no match")
                .label("expected a match in front of this")
                .help("write `all` to match every packet");
        }
        Some(Rule {
            span,
            line: line.number,
            name,
            stateful,
            matches: self.scratch.matches.drain(..).collect(),
            targets: self.scratch.targets.drain(..).collect(),
            comment: line.comment,
        })
    }

    /// Whether the targets are a choice: it tests its field by itself.
    fn chooses(&self) -> bool {
        let targets = self.scratch.targets.as_slice();
        matches!(
            targets,
            [Target {
                action: Action::Choose(..),
                ..
            }]
        )
    }

    /// `name:` in front of a rule.
    fn rule_name(&mut self) -> Option<Span> {
        let word = self.peek_word()?;
        let name = word.strip_suffix(':')?;
        let span = self.next()?.span;
        let span = Span {
            start: span.start,
            end: span.end - 1,
        };
        if !is_name(name) {
            self.error(span, format!("`{name}` cannot be the name of a rule"))
                .help(
                    "a name is letters, digits, `_`, `.` and `-`, and starts with a letter or `_`",
                );
            return None;
        }
        Some(span)
    }

    /// `mmb add`, and where `add-stateful` stands; an error if the line is no rule.
    fn prefix(&mut self) -> Result<Option<Span>, NoRule> {
        if self
            .peek_word()
            .is_some_and(|w| w.eq_ignore_ascii_case("mmb"))
        {
            self.at += 1;
        }
        let (Some(word), Some(token)) = (self.peek_word(), self.peek()) else {
            return Ok(None);
        };
        if is_one_of(word, &["add", "add-stateless"]) {
            self.at += 1;
        } else if word.eq_ignore_ascii_case("add-stateful") {
            self.at += 1;
            return Ok(Some(token.span));
        } else if is_one_of(word, COMMANDS) {
            self.error(
                token.span,
                format!("`{word}` is a command of mmb, not a rule"),
            )
            .help("a policy file holds rules, sets and settings of connections only");
            return Err(NoRule);
        }
        Ok(None)
    }

    fn matches(&mut self) {
        // The field before, if it had no value: an unknown word may have been meant as its value.
        let mut open: Option<Field> = None;
        while let Some(token) = self.peek() {
            match token.kind {
                Kind::Word if self.at_target() => return,
                Kind::Not => {
                    self.at += 1;
                    match self.peek() {
                        Some(t) if t.kind == Kind::Word && field(self.of(t.span)).is_some() => {
                            open = self.one_match(Some(token.span));
                        }
                        Some(t) if t.kind == Kind::Not => {
                            self.error(t.span, "one `!` is enough")
                                .help("two of them cancel: remove both");
                            self.at += 1;
                            self.skip_to_start();
                        }
                        Some(t) if t.kind == Kind::Word && !self.at_target() => {
                            self.unknown(t, None)
                        }
                        other => {
                            let at = other.map_or(self.end(), |t| t.span);
                            self.error(at, "expected a field behind `!`");
                            self.skip_to_start();
                        }
                    }
                }
                Kind::Word if field(self.of(token.span)).is_some() => open = self.one_match(None),
                Kind::Word => self.unknown(token, open.take()),
                _ => {
                    self.stray(token, "a field or a target");
                    self.skip_to_start();
                }
            }
        }
    }

    /// A match at a known field. Returns the field if it has no value.
    fn one_match(&mut self, not: Option<Span>) -> Option<Field> {
        let reference = self.field_ref()?;
        let start = not.unwrap_or(reference.span);
        let test = self.test(&reference);
        let end = self.before();
        let bare = matches!(test, Test::Present).then_some(reference.field);
        let span = start.to(end);
        self.scratch.matches.push(Match {
            span,
            negated: not.is_some(),
            field: reference,
            test,
        });
        bare
    }

    /// A field name with the kind or offset behind it. The caller has seen that the name is a field.
    fn field_ref(&mut self) -> Option<FieldRef> {
        let token = self.next()?;
        let field = field(self.of(token.span))?;
        let mut reference = FieldRef {
            span: token.span,
            field,
            arg: None,
        };
        match field.info().kind {
            FieldKind::TcpOption(None) | FieldKind::Ip4Option(None) => {
                if let Some(t) = self.peek()
                    && t.kind == Kind::Word
                    && looks_like_literal(self.of(t.span))
                {
                    self.at += 1;
                    reference.arg = Some(t.span);
                    reference.span = token.span.to(t.span);
                }
            }
            _ => {}
        }
        if let Some(t) = self.peek()
            && t.kind == Kind::OpenIndex
        {
            self.index(&mut reference, t);
        }
        Some(reference)
    }

    /// `[n]`
    fn index(&mut self, reference: &mut FieldRef, open: Token) {
        self.at += 1;
        let number = self.peek().filter(|t| t.kind == Kind::Word);
        self.at += usize::from(number.is_some());
        let close = self.peek().filter(|t| t.kind == Kind::CloseIndex);
        self.at += usize::from(close.is_some());
        let span = open.span.to(self.before());
        reference.span = reference.span.to(span);
        if !matches!(reference.field.info().kind, FieldKind::Payload) {
            let name = reference.field.info().name;
            self.error(span, format!("`{name}` takes no offset"))
                .help("only payload fields take one: `udp-payload[4] == x0102`");
        } else if number.is_none() || close.is_none() {
            self.error(
                span,
                "an offset is written `[n]`, a number of bytes in brackets",
            );
        } else {
            reference.arg = number.map(|t| t.span);
        }
    }

    fn test(&mut self, reference: &FieldRef) -> Test {
        let f = reference.field;
        let is_port = matches!(f.info().kind, FieldKind::InPort | FieldKind::OutPort);
        let Some(token) = self.peek() else {
            return Test::Present;
        };
        match token.kind {
            Kind::Cond(cond) => {
                self.at += 1;
                self.compared(f, cond, token)
            }
            Kind::Assign => {
                self.error(token.span, "`=` is not a condition")
                    .help("write `==`");
                self.at += 1;
                self.compared(f, Cond::Eq, token)
            }
            Kind::Open if is_port => self.list().map_or(Test::Present, |l| Test::List(l.into())),
            Kind::Open => {
                self.error(token.span, "a set of values is written behind `in`")
                    .help(format!("write `{} in {{ ... }}`", f.info().name));
                self.list().map_or(Test::Present, |l| Test::List(l.into()))
            }
            Kind::Word => self.test_at_word(reference, token, is_port),
            _ => Test::Present,
        }
    }

    fn test_at_word(&mut self, reference: &FieldRef, token: Token, is_port: bool) -> Test {
        let f = reference.field;
        let word = self.of(token.span);
        if word.eq_ignore_ascii_case("in") && takes_values(f, reference.arg.is_some()) {
            match self.tokens.get(self.at + 1) {
                Some(t) if t.kind == Kind::Open => {
                    self.at += 1;
                    return self.list().map_or(Test::Present, |l| Test::List(l.into()));
                }
                Some(t) if t.kind == Kind::Word && self.of(t.span).starts_with('@') => {
                    self.at += 2;
                    return Test::Set(after_at(t.span));
                }
                _ => {}
            }
        }
        if word.starts_with('@') {
            self.at += 1;
            if !is_port {
                self.error(token.span, "a set is used behind `in`")
                    .help(format!("write `{} in {word}`", f.info().name));
            }
            return Test::Set(after_at(token.span));
        }
        let is_value = if is_port {
            field(word).is_none() && !self.at_target()
        } else {
            looks_like_literal(word) || is_named(f, word)
        };
        if !is_value {
            return Test::Present;
        }
        Test::Compare(Cond::Eq, self.value(f))
    }

    /// The value at the next word. Flags of a value are parted by commas, without blanks.
    fn value(&mut self, f: Field) -> Span {
        let start = self.peek().map_or(self.end(), |t| t.span);
        self.at += 1;
        let mut end = start;
        while has_flags(f)
            && let [comma, word, ..] = self.tokens.get(self.at..).unwrap_or_default()
            && comma.kind == Kind::Comma
            && word.kind == Kind::Word
            && (comma.span.start, word.span.start) == (end.end, comma.span.end)
        {
            end = word.span;
            self.at += 2;
        }
        start.to(end)
    }

    /// What follows a condition.
    fn compared(&mut self, f: Field, cond: Cond, at: Token) -> Test {
        let is_port = matches!(f.info().kind, FieldKind::InPort | FieldKind::OutPort);
        match self.peek() {
            Some(t) if t.kind == Kind::Word && self.of(t.span).starts_with('@') => {
                self.no_set_here(cond, at.span);
                self.at += 1;
                Test::Set(after_at(t.span))
            }
            Some(t) if t.kind == Kind::Open => {
                self.no_set_here(cond, at.span);
                self.list().map_or(Test::Present, |l| Test::List(l.into()))
            }
            Some(t)
                if t.kind == Kind::Word
                    && (is_port
                        || is_named(f, self.of(t.span))
                        || (field(self.of(t.span)).is_none() && !self.at_target())) =>
            {
                Test::Compare(cond, self.value(f))
            }
            other => {
                let text = cond.text();
                let span = other.map_or(self.end(), |t| t.span);
                self.error(span, format!("expected a value behind `{text}`"))
                    .also(POLICY, at.span, "this condition needs one");
                self.skip_to_start();
                Test::Present
            }
        }
    }

    fn no_set_here(&mut self, cond: Cond, span: Span) {
        let text = cond.text();
        let help = match cond {
            Cond::Ne => "write `! FIELD in ...`",
            _ => "write `FIELD in ...`",
        };
        self.error(span, format!("`{text}` takes one value, not a set"))
            .help(help);
    }

    /// `{ a, b }`, at its `{`.
    fn list(&mut self) -> Option<Vec<Span>> {
        let open = self.next()?;
        self.scratch.elements.clear();
        let errors_before = self.report.errors();
        let mut expect_value = true;
        loop {
            match self.next() {
                Some(t) if t.kind == Kind::Close => {
                    if self.scratch.elements.is_empty() {
                        if self.report.errors() == errors_before {
                            self.error(open.span.to(t.span), "this set is empty");
                        }
                        return None;
                    }
                    return Some(self.scratch.elements.to_vec());
                }
                Some(t) if t.kind == Kind::Word && expect_value => {
                    if self.of(t.span).starts_with('@') {
                        self.error(t.span, "a set cannot hold another set");
                    } else {
                        self.scratch.elements.push(t.span);
                    }
                    expect_value = false;
                }
                Some(t) if t.kind == Kind::Comma && !expect_value => expect_value = true,
                Some(t) if t.kind == Kind::Word => {
                    self.error(t.span, "expected `,` or `}` between the elements of a set");
                    self.scratch.elements.push(t.span);
                }
                Some(t) => {
                    self.stray(t, "a value, `,` or `}`");
                    self.skip_past_close();
                    return None;
                }
                None => {
                    let end = self.end();
                    self.error(end, "expected `}` before the end of the line")
                        .also(POLICY, open.span, "to close this")
                        .help(
                            "a long set goes on behind a `\\` at the end of a line, or into a file",
                        );
                    return None;
                }
            }
        }
    }

    fn text_token(&mut self, what: &str) -> Option<Span> {
        match self.next() {
            Some(t) if t.kind == Kind::Text => Some(t.span),
            Some(t) if t.kind == Kind::OpenText => {
                self.open_text(t);
                None
            }
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, format!("expected {what} in quotes"));
                None
            }
        }
    }

    fn unknown(&mut self, token: Token, behind: Option<Field>) {
        let word = self.of(token.span);
        if is_one_of(word, COMMANDS) && self.at == 0 {
            self.error(
                token.span,
                format!("`{word}` is a command of mmb, not a rule"),
            );
            self.at += 1;
            self.skip_to_start();
            return;
        }
        let names = behind.map_or(&[][..], names_of);
        let candidates = names
            .iter()
            .map(|n| n.0)
            .chain(field_spellings())
            .chain(TARGETS.iter().copied());
        let near = nearest(word, candidates);
        let word_of_names = |name: &str| names.iter().any(|n| n.0 == name);
        let value_of = behind.filter(|&f| takes_values(f, false));
        let help = match (meant(word), near) {
            (None, Some(near)) if word_of_names(near) || value_of.is_none() => {
                Some(format!("did you mean `{near}`?"))
            }
            (Some(_), _) if value_of.is_some() && is_one_of(word, &["any", "all", "*"]) => Some(
                "leave this test out: a rule covers all values of what it does not test".to_owned(),
            ),
            (Some(help), _) => Some(help.to_owned()),
            _ if self.is_value_of_last(word) => Some(self.second_value(word)),
            (None, Some(near)) => Some(format!("did you mean `{near}`?")),
            (None, None) if word.ends_with(':') => {
                Some("the name of a rule stands at its beginning".to_owned())
            }
            (None, None) if word.contains(':') && self.at == 0 => {
                Some("put a space behind the colon of a rule's name".to_owned())
            }
            (None, None) if word.starts_with('@') => {
                Some("a set is used behind a field and `in`".to_owned())
            }
            (None, None) if looks_like_literal(word) => Some(self.second_value(word)),
            (None, None) => Some(match value_of {
                Some(f) if names_of(f).iter().any(|n| n.0.starts_with(word)) => {
                    let longer = names_of(f).iter().filter(|n| n.0.starts_with(word));
                    let longer: Vec<String> =
                        longer.map(|n| format!("`{}`", n.0)).take(4).collect();
                    format!("did you mean {}?", longer.join(" or "))
                }
                Some(f) => format!("`{}` takes {}", f.info().name, takes(f)),
                None => "docs/language.md lists all fields and targets".to_owned(),
            }),
        };
        let message = if looks_like_literal(word) || word.starts_with('@') {
            format!("expected a field or a target, found `{word}`")
        } else {
            format!("`{word}` is not a field or a target")
        };
        let draft = self.error(token.span, message);
        if let Some(help) = help {
            draft.help(help);
        }
        self.at += 1;
        self.skip_to_start();
    }

    /// Whether a word would be a value of the field that was tested last.
    fn is_value_of_last(&self, word: &str) -> bool {
        let last = self.scratch.matches.last();
        last.is_some_and(|m| matches!(m.test, Test::Compare(..)) && is_named(m.field.field, word))
    }

    /// What to say of a value that stands behind no field: most often the second of a list.
    fn second_value(&self, word: &str) -> String {
        let behind = self.before();
        let mut before = self.scratch.matches.iter().rev();
        let last = before
            .next()
            .filter(|m| m.span.end == behind.end || self.of(behind) == ",");
        match last {
            // `tcp-dport in 80, 443`: the `in` was read as the interface.
            Some(Match {
                field,
                test: Test::Compare(Cond::Eq, value),
                ..
            }) if matches!(field.field.info().kind, FieldKind::InPort)
                && let Some(set_of) = before.next().filter(|m| {
                    matches!(m.test, Test::Present) && takes_values(m.field.field, false)
                }) =>
            {
                format!(
                    "a set stands in braces: `{} in {{ {}, {word} }}`",
                    self.of(set_of.field.span),
                    self.of(*value)
                )
            }
            Some(Match {
                field,
                test: Test::Compare(Cond::Eq, value),
                ..
            }) if has_flags(field.field) => format!(
                "no blanks stand between flags: `{} {},{word}`",
                self.of(field.span),
                self.of(*value)
            ),
            Some(Match {
                field,
                test: Test::Compare(Cond::Eq, value),
                ..
            }) => format!(
                "for several values write `{} in {{ {}, {word} }}`",
                self.of(field.span),
                self.of(*value)
            ),
            _ => "a value stands behind its field".to_owned(),
        }
    }

    fn stray(&mut self, token: Token, expected: &str) {
        if token.kind == Kind::OpenText {
            self.open_text(token);
        } else if token.kind == Kind::Stray {
            self.error(
                token.span,
                "a `\\` continues a rule only as the last character of a line",
            );
        } else {
            let found = self.of(token.span);
            let next = self.tokens.get(self.at + 1);
            let help = next
                .filter(|t| token.kind == Kind::Comma && t.kind == Kind::Word)
                .map(|next| self.of(next.span))
                .filter(|word| looks_like_literal(word) || self.is_value_of_last(word))
                .map(|word| self.second_value(word));
            let draft = self.error(token.span, format!("expected {expected}, found `{found}`"));
            if let Some(help) = help {
                draft.help(help);
            }
        }
        if self.peek().is_some_and(|t| t.span == token.span) {
            self.at += 1;
        }
    }

    fn open_text(&mut self, token: Token) {
        self.error(token.span, "this text has no closing quote");
    }

    /// Goes on at the next word that can start a match or a target.
    fn skip_to_start(&mut self) {
        while let Some(t) = self.peek() {
            let word = self.of(t.span);
            if t.kind == Kind::Word && (self.at_target() || field(word).is_some()) {
                return;
            }
            self.at += 1;
        }
    }

    fn skip_past_close(&mut self) {
        while let Some(t) = self.next() {
            if t.kind == Kind::Close {
                return;
            }
        }
    }

    /// Whether the next token starts a target.
    fn at_target(&self) -> bool {
        let Some(word) = self.peek_word() else {
            return false;
        };
        // No target is longer; most words are.
        word.len() <= 9
            && (is_one_of(word, TARGETS)
                || word.eq_ignore_ascii_case(LB)
                || self.at_target_of_field(word))
    }

    /// `mark set`: a field, and a word behind it that makes it a target.
    fn at_target_of_field(&self, word: &str) -> bool {
        let is = |one: &str, word: &str| one.eq_ignore_ascii_case(word);
        OF_FIELDS.iter().any(|(first, second)| {
            let next = self.tokens.get(self.at + 1);
            is(first, word)
                && next.is_some_and(|t| t.kind == Kind::Word && is(second, self.of(t.span)))
        })
    }

    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    /// The token so many behind the next one.
    fn peek_at(&self, ahead: usize) -> Option<Token> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn peek_word(&self) -> Option<&'a str> {
        self.peek()
            .filter(|t| t.kind == Kind::Word)
            .map(|t| self.of(t.span))
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// Span of the token before this one.
    fn before(&self) -> Span {
        self.tokens
            .get(self.at.wrapping_sub(1))
            .map_or(Span::default(), |t| t.span)
    }

    /// The place behind the last token.
    fn end(&self) -> Span {
        let end = self.tokens.last().map_or(0, |t| t.span.end);
        Span { start: end, end }
    }

    fn of(&self, span: Span) -> &'a str {
        span.of(self.text)
    }

    fn error(&mut self, span: Span, message: impl Into<String>) -> &mut crate::diagnostic::Draft {
        self.report.error(POLICY, span, message)
    }
}

fn after_at(span: Span) -> Span {
    Span {
        start: span.start + 1,
        end: span.end,
    }
}
