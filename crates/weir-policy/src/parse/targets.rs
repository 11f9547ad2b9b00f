//! Targets: from the first of their keywords (`mod`, `drop`, `map` ...) to the end of the rule.

use super::{Parser, after_at};
use crate::ast::{Action, FieldRef, Pool, Span, Target};
use crate::field::Kind as FieldKind;
use crate::lexer::{Kind, Token};
use crate::names::is_named;
use crate::words::looks_like_literal;
use crate::words::{TARGETS, field, field_spellings, meant, nearest};

/// How durations are written.
const DURATION: &str =
    "a duration is written `30s`, `5m`, `4h`, `500ms`, or as a number of seconds";

impl Parser<'_> {
    /// Reads targets up to the end of the line.
    pub(super) fn targets(&mut self) {
        while let Some(token) = self.peek() {
            let word = self.of(token.span);
            match token.kind {
                Kind::Word if self.at_target() => {
                    self.at += 1;
                    if let Some(action) = self.action(word, token) {
                        let span = token.span.to(self.before());
                        self.scratch.targets.push(Target { span, action });
                    }
                }
                Kind::Not | Kind::Word if token.kind == Kind::Not || field(word).is_some() => {
                    let end = self.end();
                    let start = token.span;
                    let negated = (token.kind == Kind::Not).then_some(token.span);
                    self.at += usize::from(negated.is_some());
                    if self.peek_word().is_none_or(|w| field(w).is_none()) {
                        self.error(start, "expected a target");
                        self.skip_to_start();
                        continue;
                    }
                    self.one_match(negated);
                    let span = self.scratch.matches.last().map_or(end, |m| m.span);
                    self.error(span, "matches stand in front of the targets")
                        .help("move this match in front of the first target");
                }
                Kind::Word => self.unknown_target(token),
                Kind::Comma | Kind::Close if self.in_choices => return,
                _ => {
                    self.stray(token, "a target");
                    self.skip_to_start();
                }
            }
        }
    }

    fn action(&mut self, word: &str, token: Token) -> Option<Action> {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "mod" => {
                let reference = self.target_field("mod")?;
                self.no_condition("mod");
                Some(Action::Mod(reference, self.target_value(&reference)))
            }
            "mark" | "priority" => self.set_meta(token),
            "vlan" => self.tag(),
            "ttl" => self.decrement(token),
            "add" | "delete" if self.peek_word().is_some_and(|w| w.starts_with('@')) => {
                self.change_of_set(lower == "delete")
            }
            "delete" => {
                let at = self.peek().map_or(self.end(), |t| t.span);
                self.error(at, "expected a set behind `delete`")
                    .help("write `delete @NAME source`");
                self.skip_to_target();
                None
            }
            "add" => {
                let reference = self.target_field("add")?;
                self.no_condition("add");
                Some(Action::Add(reference, self.target_value(&reference)))
            }
            "strip" => {
                let not = self.peek().filter(|t| t.kind == Kind::Not);
                self.at += usize::from(not.is_some());
                if self
                    .peek_word()
                    .is_some_and(|w| w.eq_ignore_ascii_case("all"))
                {
                    self.at += 1;
                    if let Some(not) = not {
                        self.error(not.span, "`strip ! all` would strip nothing")
                            .help("write `strip all`, or `strip ! OPTION` for each option to keep");
                        return None;
                    }
                    return Some(Action::StripAll);
                }
                Some(Action::Strip(not.is_some(), self.target_field("strip")?))
            }
            "drop" => self.drop_action(),
            "reject" => self.reject_action(),
            "accept" => (!self.refuse_limit("accept")).then_some(Action::Accept),
            "log" => {
                if self.refuse_limit("log") {
                    return None;
                }
                let text = self.peek().filter(|t| t.kind == Kind::Text);
                self.at += usize::from(text.is_some());
                if let Some(t) = self.peek().filter(|t| t.kind == Kind::OpenText) {
                    self.at += 1;
                    self.open_text(t);
                }
                let limit = self.log_limit();
                Some(Action::Log(text.map(|t| t.span), limit))
            }
            "map" => {
                let reference = self.target_field("map")?;
                self.no_condition("map");
                Some(Action::Map(reference, self.pool(&reference)?))
            }
            "shuffle" => {
                let reference = self.target_field("shuffle")?;
                if let Some(value) = self.target_value(&reference) {
                    let name = reference.field.info().name;
                    self.error(value, "`shuffle` takes no value")
                        .help(format!("to choose from values write `map {name} ...`"));
                    return None;
                }
                Some(Action::Shuffle(reference))
            }
            "timeout" => {
                let word = self
                    .peek()
                    .filter(|t| t.kind == Kind::Word && !self.at_target());
                let Some(word) = word else {
                    let end = self.peek().map_or(self.end(), |t| t.span);
                    self.error(end, "expected a duration behind `timeout`")
                        .help(DURATION);
                    return None;
                };
                self.at += 1;
                Some(Action::Timeout(word.span))
            }
            "mapping" | "filtering" | "helper" => {
                let value = self
                    .peek()
                    .filter(|t| t.kind == Kind::Word && !self.at_target());
                let Some(value) = value else {
                    let end = self.peek().map_or(self.end(), |t| t.span);
                    self.error(end, format!("expected a word behind `{lower}`"))
                        .help(match lower.as_str() {
                            "helper" => "write `helper tftp`".to_owned(),
                            _ => format!("write `{lower} endpoint-independent`"),
                        });
                    return None;
                };
                self.at += 1;
                Some(match lower.as_str() {
                    "mapping" => Action::Mapping(value.span),
                    "helper" => Action::Helper(value.span),
                    _ => Action::Filtering(value.span),
                })
            }
            "jump" => self.jump(),
            "choose" if self.in_choices => {
                self.error(token.span, "a choice cannot hold another `choose`")
                    .help("jump to a chain that chooses");
                self.skip_past_close();
                None
            }
            "choose" => self.choose(),
            _ => {
                self.error(
                    token.span,
                    format!("`{word}` is not in weir: mmb accepted it and never did anything"),
                )
                .help(format!("the targets are {}", TARGETS.join(", ")));
                self.skip_to_target();
                None
            }
        }
    }

    /// `push ID [pcp N] [dei]` or `pop`, behind `vlan`.
    fn tag(&mut self) -> Option<Action> {
        let verb = self.next()?;
        if self.of(verb.span).eq_ignore_ascii_case("pop") {
            return Some(Action::PopTag);
        }
        let id = self.tag_number("a VLAN identifier behind `vlan push`")?;
        let (mut pcp, mut dei) = (None, false);
        while let Some(word) = self.peek_word() {
            if word.eq_ignore_ascii_case("pcp") && pcp.is_none() {
                self.at += 1;
                pcp = Some(self.tag_number("a priority behind `pcp`")?);
            } else if word.eq_ignore_ascii_case("dei") && !dei {
                self.at += 1;
                dei = true;
            } else {
                break;
            }
        }
        Some(Action::PushTag { id, pcp, dei })
    }

    /// `dec`, behind `ttl`.
    fn decrement(&mut self, token: Token) -> Option<Action> {
        if self
            .peek_word()
            .is_some_and(|word| word.eq_ignore_ascii_case("dec"))
        {
            self.at += 1;
            return Some(Action::DecrementTtl);
        }
        self.error(token.span, "expected `dec` behind `ttl`").help(
            "as a match write `ip-ttl` (IPv6: `ip6-hop-limit`), to set it `mod ip-ttl 64`, to decrement it `ttl dec`",
        );
        self.skip_to_target();
        None
    }

    fn tag_number(&mut self, what: &str) -> Option<Span> {
        match self.peek() {
            Some(t) if t.kind == Kind::Word && looks_like_literal(self.of(t.span)) => {
                self.at += 1;
                Some(t.span)
            }
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, format!("expected {what}"))
                    .help("write `vlan push 100`, or with priority `vlan push 100 pcp 3`");
                self.skip_to_target();
                None
            }
        }
    }

    /// `mark set VALUE[/MASK]`, `priority set VALUE`, behind the first word.
    fn set_meta(&mut self, token: Token) -> Option<Action> {
        self.at -= 1;
        let reference = self.field_ref()?;
        self.at += 1;
        let name = reference.field.info().name;
        self.no_condition(&format!("{name} set"));
        let is_value = |t: &Token| t.kind == Kind::Word && field(self.of(t.span)).is_none();
        let Some(value) = self.peek().filter(is_value).filter(|_| !self.at_target()) else {
            let at = self.peek().map_or(self.end(), |t| t.span);
            self.error(at, format!("expected a value behind `{name} set`"))
                .also(super::POLICY, token.span, "this target needs one")
                .help(match name {
                    "mark" => "write `mark set x10`, or to keep other bits `mark set x10/xff`",
                    _ => "write a class, `priority set 1:10`, or a number",
                });
            self.skip_to_target();
            return None;
        };
        self.at += 1;
        Some(Action::SetMeta(reference, value.span))
    }

    /// What stands behind the field of a `map`: a value, a range, a prefix, or with or without `in` a set.
    fn pool(&mut self, reference: &FieldRef) -> Option<Pool> {
        let behind_in = self
            .peek_word()
            .is_some_and(|w| w.eq_ignore_ascii_case("in"));
        self.at += usize::from(behind_in);
        let name = reference.field.info().name;
        match self.peek() {
            Some(t) if t.kind == Kind::Open => self.list().map(|list| Pool::List(list.into())),
            Some(t) if t.kind == Kind::Word && self.of(t.span).starts_with('@') => {
                self.at += 1;
                Some(Pool::Set(after_at(t.span)))
            }
            Some(t)
                if t.kind == Kind::Word
                    && !self.at_target()
                    && field(self.of(t.span)).is_none() =>
            {
                self.at += 1;
                Some(Pool::One(t.span))
            }
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, format!("expected what to map `{name}` to"))
                    .help(format!(
                        "write `map {name} VALUE`, a range, a prefix, `{{ ... }}` or `@SET`"
                    ));
                self.skip_to_target();
                None
            }
        }
    }

    fn drop_action(&mut self) -> Option<Action> {
        let Some(word) = self.peek_word() else {
            return Some(Action::Drop(None));
        };
        if word.eq_ignore_ascii_case("over") {
            self.at += 1;
            return self.drop_over();
        }
        if self.refuse_connections_without_over() {
            return None;
        }
        let is_rate =
            word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
        let rate = self.peek().filter(|_| is_rate);
        self.at += usize::from(is_rate);
        Some(Action::Drop(rate.map(|t| t.span)))
    }

    fn reject_action(&mut self) -> Option<Action> {
        if self.refuse_limit("reject") {
            return None;
        }
        if !self
            .peek_word()
            .is_some_and(|w| w.eq_ignore_ascii_case("with"))
        {
            return Some(Action::Reject(None));
        }
        self.at += 1;
        let Some(kind) = self.peek().filter(|t| t.kind == Kind::Word) else {
            let end = self.peek().map_or(self.end(), |t| t.span);
            self.error(end, "expected how to answer behind `with`")
                .help(crate::reject::FORMS);
            return None;
        };
        self.at += 1;
        let is = |word: &str, what: &str| word.eq_ignore_ascii_case(what);
        let word = self.of(kind.span);
        if is(word, "tcp") && self.peek_word().is_some_and(|w| is(w, "reset")) {
            self.at += 1;
            return Some(Action::Reject(Some((kind.span.to(self.before()), None))));
        }
        if crate::reject::codes(word).is_none() {
            return Some(Action::Reject(Some((kind.span, None))));
        }
        if self.peek_word().is_some_and(|w| is(w, "type")) {
            self.at += 1;
        }
        let code = self.peek().filter(|t| t.kind == Kind::Word);
        let Some(code) = code else {
            let end = self.peek().map_or(self.end(), |t| t.span);
            self.error(end, format!("expected a code behind `{word}`"))
                .help(crate::reject::FORMS);
            return None;
        };
        self.at += 1;
        Some(Action::Reject(Some((kind.span, Some(code.span)))))
    }

    /// The field behind a target keyword.
    pub(super) fn target_field(&mut self, keyword: &str) -> Option<FieldRef> {
        let Some(token) = self.peek() else {
            let end = self.end();
            self.error(end, format!("expected a field behind `{keyword}`"));
            return None;
        };
        let word = self.of(token.span);
        if token.kind != Kind::Word || (field(word).is_none() && self.at_target()) {
            self.error(token.span, format!("expected a field behind `{keyword}`"));
            self.skip_to_target();
            return None;
        }
        if field(word).is_none() {
            let near = nearest(word, field_spellings().filter(|_| !word.is_empty()));
            let draft = self.error(token.span, format!("`{word}` is not a field"));
            if let Some(near) = near {
                draft.help(format!("did you mean `{near}`?"));
            }
            self.at += 1;
            self.skip_to_target();
            return None;
        }
        self.field_ref()
    }

    /// The value behind a target's field, if there is one.
    fn target_value(&mut self, reference: &FieldRef) -> Option<Span> {
        let token = self.peek()?;
        if token.kind == Kind::Open {
            self.error(token.span, "a target takes one value, not a set");
            self.list();
            return None;
        }
        if token.kind != Kind::Word || self.at_target() {
            return None;
        }
        let word = self.of(token.span);
        let is_value = looks_like_literal(word)
            || is_named(reference.field, word)
            || (field(word).is_none()
                && matches!(
                    reference.field.info().kind,
                    FieldKind::Number | FieldKind::Addr4 | FieldKind::Addr6 | FieldKind::Payload
                ));
        is_value.then(|| self.value(reference.field))
    }

    fn no_condition(&mut self, keyword: &str) {
        if let Some(t) = self.peek()
            && matches!(t.kind, Kind::Cond(_) | Kind::Assign)
        {
            self.error(
                t.span,
                format!("`{keyword}` takes a value without a condition"),
            )
            .help("leave this out");
            self.at += 1;
        }
    }

    fn unknown_target(&mut self, token: Token) {
        let word = self.of(token.span);
        let near = nearest(word, TARGETS.iter().copied());
        let draft = self.error(token.span, format!("expected a target, found `{word}`"));
        match (meant(word), near) {
            (Some(help), _) => draft.help(help),
            (None, Some(near)) => draft.help(format!("did you mean `{near}`?")),
            (None, None) => draft.help(format!("the targets are {}", TARGETS.join(", "))),
        };
        self.at += 1;
        self.skip_to_target();
    }

    pub(super) fn skip_to_target(&mut self) {
        while self.peek().is_some() && !self.at_target() {
            self.at += 1;
        }
    }
}
