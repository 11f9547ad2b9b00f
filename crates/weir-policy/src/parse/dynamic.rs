//! Sets that packets fill: `set NAME = dynamic ...`, and the targets `add @NAME ADDRESS` and `delete @NAME ADDRESS`.

use super::{Parser, after_at, set_habits};
use crate::ast::{Action, ChangedAddress, SetBody, Span};
use crate::dynamic::Address;
use crate::lexer::Kind;
use crate::words::{field, is_one_of};

/// How a change of a set is written.
const FORMS: &str = "write `add @NAME source`, `add @NAME source 10m` or `delete @NAME source`; `destination`, `ip-saddr` or another field of addresses may stand for `source`";

impl Parser<'_> {
    /// `dynamic [size N] [timeout DURATION]`, at `dynamic`.
    pub(super) fn dynamic_set(&mut self) -> Option<SetBody> {
        self.at += 1;
        let (mut size, mut timeout) = (None, None);
        while let Some(token) = self.peek() {
            let word = self.of(token.span);
            let place = match word.to_ascii_lowercase().as_str() {
                "size" => &mut size,
                "timeout" => &mut timeout,
                _ => {
                    self.error(
                        token.span,
                        format!("expected `size` or `timeout`, found `{word}`"),
                    )
                    .help(
                        "write `set NAME = dynamic size 65536 timeout 10m`; both may be left out",
                    );
                    return None;
                }
            };
            let again = place.is_some();
            self.at += 1;
            let value = self.peek().filter(|t| t.kind == Kind::Word);
            let Some(value) = value else {
                let at = self.peek().map_or(self.end(), |t| t.span);
                let what = match is_one_of(word, &["size"]) {
                    true => "a number of elements behind `size`",
                    false => "a duration behind `timeout`",
                };
                self.error(at, format!("expected {what}"));
                return None;
            };
            if again {
                self.error(token.span, format!("`{word}` is written twice"));
                return None;
            }
            *place = Some(value.span);
            self.at += 1;
        }
        Some(SetBody::Dynamic { size, timeout })
    }

    /// What stands behind `add` or `delete`, at the name of a set.
    pub(super) fn change_of_set(&mut self, deletes: bool) -> Option<Action> {
        let set = after_at(self.next()?.span);
        let braces = self.peek().filter(|t| t.kind == Kind::Open);
        if let Some(open) = braces {
            self.braces_behind_set(set, open.span, deletes);
            return None;
        }
        let word = self.peek().filter(|t| t.kind == Kind::Word);
        let address = word.and_then(|token| {
            let word = self.of(token.span);
            let named = Address::WORDS
                .iter()
                .find(|(name, _)| word.eq_ignore_ascii_case(name));
            let of_field = || {
                let field = field(word)?;
                Some((Address::of(field)?, Some(field)))
            };
            let (address, field) = named
                .map(|&(_, address)| (address, None))
                .or_else(of_field)?;
            Some(ChangedAddress {
                span: token.span,
                address,
                field,
            })
        });
        let Some(address) = address else {
            let at = self.peek().map_or(self.end(), |t| t.span);
            self.error(at, "expected an address of the packet behind the set")
                .help(FORMS);
            self.skip_to_start();
            return None;
        };
        self.at += 1;
        let is_keyword = self
            .peek_word()
            .is_some_and(|w| w.eq_ignore_ascii_case("timeout"));
        if is_keyword && let Some(token) = self.peek() {
            let value = self
                .tokens
                .get(self.at + 1)
                .map_or("10m", |t| self.of(t.span));
            let (set, written) = (self.of(set), self.of(address.span));
            self.error(
                token.span,
                "the time-out of an element stands behind its address without a word",
            )
            .help(format!(
                "write `add @{set} {written} {value}`; `timeout` is for connections"
            ));
            self.at += 2;
            return None;
        }
        let timeout = self.peek().filter(|t| {
            t.kind == Kind::Word && self.of(t.span).starts_with(|c: char| c.is_ascii_digit())
        });
        self.at += usize::from(timeout.is_some());
        if deletes && let Some(timeout) = timeout {
            self.error(
                timeout.span,
                "`delete` takes an element out at once: it has no time-out",
            )
            .help("leave this out");
            return None;
        }
        Some(Action::ChangeSet {
            deletes,
            set,
            address,
            timeout: timeout.map(|t| t.span),
        })
    }

    /// nftables: `add @seen { ip saddr timeout 10m }`.
    fn braces_behind_set(&mut self, set: Span, open: Span, deletes: bool) {
        let from = self.at;
        while self.next().is_some_and(|t| t.kind != Kind::Close) {}
        let words: Vec<&str> = (self.tokens.get(from..self.at).unwrap_or_default().iter())
            .filter(|t| t.kind == Kind::Word)
            .map(|t| self.of(t.span))
            .collect();
        let target = set_habits::target(deletes, self.of(set), &words);
        let span = open.to(self.before());
        self.error(span, "an address stands behind a set without braces")
            .help(format!("write `{target}`"));
    }
}
