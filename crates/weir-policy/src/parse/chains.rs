//! Chains: the lines that open and close one, and the targets that lead into one (`jump`, `choose`).

use super::{Parser, after_at, takes_values};
use crate::ast::{Action, Chain, Choice, End, FieldRef, Key, Span};
use crate::lexer::Kind;
use crate::names::has_flags;
use crate::words::is_name;

/// How a chain is written.
const FORM: &str = "write `chain NAME {`, then its rules on lines of their own, then `}`";

/// How choices are written.
const CHOICES: &str = "write `choose tcp-dport { 22: jump admin, 80: accept, else: drop }`";

impl Parser<'_> {
    /// `chain NAME {`, at its first word.
    pub(super) fn chain(&mut self, span: Span, comment: Option<Span>) -> Option<Chain> {
        self.at += 1;
        let name = match self.next() {
            Some(t) if t.kind == Kind::Word && is_name(self.of(t.span)) => t.span,
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, "a chain needs a name").help(FORM);
                return None;
            }
        };
        match self.next() {
            Some(t) if t.kind == Kind::Open => {}
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, "expected `{` behind the name of the chain")
                    .help(FORM);
                return None;
            }
        }
        if let Some(t) = self.peek() {
            self.error(t.span, "nothing may follow the `{` of a chain on its line")
                .help(FORM);
            return None;
        }
        Some(Chain {
            span,
            name,
            comment,
        })
    }

    /// `}` on a line of its own.
    pub(super) fn chain_end(&mut self, comment: Option<Span>) -> Option<End> {
        let close = self.next()?;
        if let Some(t) = self.peek() {
            self.error(t.span, "nothing may follow the `}` of a chain on its line");
            return None;
        }
        Some(End {
            span: close.span,
            comment,
        })
    }

    /// What stands behind `jump`.
    pub(super) fn jump(&mut self) -> Option<Action> {
        match self.peek() {
            Some(t) if t.kind == Kind::Word && is_name(self.of(t.span)) && !self.at_target() => {
                self.at += 1;
                Some(Action::Jump(t.span))
            }
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, "expected the name of a chain behind `jump`")
                    .help("write `jump NAME`; `chain NAME {` defines it");
                None
            }
        }
    }

    /// What stands behind `choose`: a field and its choices.
    pub(super) fn choose(&mut self) -> Option<Action> {
        if self.peek().is_none_or(|t| t.kind != Kind::Word) {
            let at = self.peek().map_or(self.end(), |t| t.span);
            self.error(at, "expected a field behind `choose`")
                .help(CHOICES);
            self.skip_past_close();
            return None;
        }
        let reference = self.target_field("choose")?;
        let info = reference.field.info();
        if !takes_values(reference.field, reference.arg.is_some())
            || has_flags(reference.field)
            || !matches!(
                info.kind,
                crate::field::Kind::Number
                    | crate::field::Kind::Addr4
                    | crate::field::Kind::Addr6
                    | crate::field::Kind::Mac
                    | crate::field::Kind::L4Proto
                    | crate::field::Kind::CtState
                    | crate::field::Kind::NetProto
                    | crate::field::Kind::InPort
                    | crate::field::Kind::OutPort
            )
        {
            self.error(
                reference.span,
                format!("`choose` cannot choose by `{}`", info.name),
            )
            .help("choose by an address, a port, a protocol, an interface or another field that is a number");
            self.skip_past_close();
            return None;
        }
        let open = match self.peek() {
            Some(t) if t.kind == Kind::Open => t.span,
            other => {
                let at = other.map_or(self.end(), |t| t.span);
                self.error(at, format!("expected `{{` behind `choose {}`", info.name))
                    .help(CHOICES);
                return None;
            }
        };
        self.at += 1;
        let outer = std::mem::take(&mut self.scratch.targets);
        let nested = std::mem::replace(&mut self.in_choices, true);
        let choices = self.choices(&reference, open);
        self.in_choices = nested;
        self.scratch.targets = outer;
        Some(Action::Choose(reference, choices?.into()))
    }

    fn choices(&mut self, reference: &FieldRef, open: Span) -> Option<Vec<Choice>> {
        let mut choices: Vec<Choice> = Vec::new();
        loop {
            let token = self.peek();
            match token {
                Some(t) if t.kind == Kind::Close && !choices.is_empty() => {
                    self.at += 1;
                    return Some(choices);
                }
                Some(t) if t.kind == Kind::Word => {
                    let key = self.key(reference)?;
                    self.scratch.targets.clear();
                    let errors = self.report.errors();
                    self.targets();
                    let targets: Vec<_> = self.scratch.targets.drain(..).collect();
                    if targets.is_empty() {
                        if self.report.errors() == errors {
                            let at = self.peek().map_or(self.end(), |t| t.span);
                            self.error(at, "this choice has no target").help(CHOICES);
                        }
                        self.skip_past_close();
                        return None;
                    }
                    choices.push(Choice {
                        span: t.span.to(self.before()),
                        key,
                        targets,
                    });
                    match self.peek() {
                        Some(t) if t.kind == Kind::Comma => self.at += 1,
                        Some(t) if t.kind == Kind::Close => {}
                        _ => {
                            let end = self.end();
                            self.error(end, "expected `}` before the end of the line")
                                .also(super::POLICY, open, "to close this")
                                .help("many choices go on behind a `\\` at the end of a line");
                            return None;
                        }
                    }
                }
                other => {
                    let at = other.map_or(self.end(), |t| t.span);
                    self.error(at, "expected a value and a `:`").help(CHOICES);
                    self.skip_past_close();
                    return None;
                }
            }
        }
    }

    /// `VALUE:`, `@SET:`, `else:`; blanks may stand in front of the colon.
    fn key(&mut self, reference: &FieldRef) -> Option<Key> {
        let token = self.next()?;
        let word = self.of(token.span);
        let mut span = token.span;
        let is_colon = |this: &Self| {
            this.peek()
                .is_some_and(|t| t.kind == Kind::Word && this.of(t.span) == ":")
        };
        if is_colon(self) {
            self.at += 1;
        } else if word.len() > 1 && word.ends_with(':') {
            span.end -= 1;
        } else {
            self.error(
                Span {
                    start: span.end,
                    end: span.end,
                },
                format!(
                    "expected `:` behind this value of `{}`",
                    reference.field.info().name
                ),
            )
            .help(CHOICES);
            self.skip_past_close();
            return None;
        }
        let word = self.of(span);
        Some(match word {
            _ if word.starts_with('@') => Key::Set(after_at(span)),
            _ if word.eq_ignore_ascii_case("else") => Key::Else(span),
            _ => Key::Value(span),
        })
    }
}
