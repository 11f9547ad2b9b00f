//! Limits: what stands behind `drop over`, and words of limits where there is none.

use super::Parser;
use crate::ast::{Action, Span};
use crate::lexer::Kind;

/// What a limit counts apart, for messages.
const PER: &str =
    "write `per source`, `per destination`, `per pair`, or `per source/24` for networks";

impl Parser<'_> {
    /// `RATE [burst N] [per WHAT]`, behind `drop over`; `burst` and `per` in either order.
    pub(super) fn drop_over(&mut self) -> Option<Action> {
        let Some(rate) = self.limit_word() else {
            let end = self.peek().map_or(self.end(), |t| t.span);
            self.error(end, "expected a rate behind `over`").help(
                "a rate is a number of packets per second, minute or hour: `100/s`, `20/m`, `5/h`",
            );
            return None;
        };
        let (mut burst, mut per) = (None, None);
        while let (Some(token), Some(word)) = (self.peek(), self.peek_word()) {
            let (slot, missing, help) = match word.to_ascii_lowercase().as_str() {
                "burst" => (
                    &mut burst,
                    "expected a number of packets behind `burst`",
                    None,
                ),
                "per" => (
                    &mut per,
                    "expected what is counted apart behind `per`",
                    Some(PER),
                ),
                _ => break,
            };
            self.at += 1;
            let value = self.limit_word();
            if value.is_none() {
                let end = self.peek().map_or(self.end(), |t| t.span);
                let draft = self.error(end, missing);
                if let Some(help) = help {
                    draft.help(help);
                }
            }
            if let Some(first) = *slot {
                self.error(token.span, format!("`{word}` is written twice"))
                    .also(0, first, "first here")
                    .help("remove one of them");
            }
            *slot = slot.or(value);
        }
        Some(Action::DropOver(rate, burst, per))
    }

    /// The word behind one of a limit.
    fn limit_word(&mut self) -> Option<Span> {
        let word = self
            .peek()
            .filter(|t| t.kind == Kind::Word && !self.at_target())?;
        self.at += 1;
        Some(word.span)
    }

    /// Reports a limit behind a target that has none; true: there is one.
    pub(super) fn refuse_limit(&mut self, target: &str) -> bool {
        let Some(token) = self.peek() else {
            return false;
        };
        let is_over = self
            .peek_word()
            .is_some_and(|w| w.eq_ignore_ascii_case("over"));
        if !is_over {
            return false;
        }
        let help = match target {
            "reject" => {
                "write `drop over 100/s`: what is above a limit is dropped without an answer"
            }
            "log" => {
                "write `log` in a rule of its own: it reports every packet that it matches, with its verdict"
            }
            _ => {
                "write what is too much: `drop over 100/s burst 20`, and no `accept` for the same packets, which would override it"
            }
        };
        self.error(
            token.span,
            format!("`{target}` has no limit, only `drop` has"),
        )
        .help(help);
        self.skip_to_target();
        true
    }
}
