//! Limits: what stands behind `drop over` and `log ... limit`, and words of limits where there is none.

use super::Parser;
use crate::ast::{Action, Span};
use crate::lexer::Kind;
use crate::words::is_one_of;

/// How a rate is written.
const RATE: &str =
    "a rate is a number of packets per second, minute or hour: `100/s`, `20/m`, `5/h`";

/// Units of bytes that nftables has, and others write.
const UNITS: &[(&[&str], u64)] = &[
    (&["kbytes", "kb", "kib"], 1 << 10),
    (&["mbytes", "mb", "mib"], 1 << 20),
    (&["gbytes", "gb", "gib"], 1 << 30),
];

/// What a limit counts apart, for messages.
const PER: &str =
    "write `per source`, `per destination`, `per pair`, or `per source/24` for networks";

impl Parser<'_> {
    /// `RATE [burst N] [per WHAT]`, `N connections [per WHAT]` or `N bytes`, behind `drop over`.
    pub(super) fn drop_over(&mut self) -> Option<Action> {
        let Some(rate) = self.limit_word() else {
            let end = self.peek().map_or(self.end(), |t| t.span);
            self.error(end, "expected a rate behind `over`").help(RATE);
            return None;
        };
        let unit = self.peek().filter(|t| t.kind == Kind::Word);
        let is_quota = self.is_next("bytes") || self.is_next("byte");
        let is_count = self.is_next("connections") || self.is_next("connection");
        self.at += usize::from(is_quota || is_count);
        if let Some(unit) = unit.filter(|_| !is_quota && !is_count)
            && let Some(bytes) = self.bytes_in(rate, unit.span)
        {
            self.error(unit.span, "a quota is a number of bytes")
                .help(format!("write `drop over {bytes} bytes`"));
            self.skip_to_target();
            return None;
        }
        let (burst, per) = self.burst_and_per();
        Some(match (is_quota, is_count) {
            (true, _) => Action::DropQuota(rate, burst, per),
            (_, true) => Action::DropConnections(rate, burst, per),
            _ => Action::DropOver(rate, burst, per),
        })
    }

    /// What so many of a unit of nftables are in bytes; `None`: it is no such unit.
    fn bytes_in(&self, number: Span, unit: Span) -> Option<u64> {
        let (_, factor) = UNITS
            .iter()
            .find(|(names, _)| is_one_of(self.of(unit), names))?;
        self.of(number).parse::<u64>().ok()?.checked_mul(*factor)
    }

    /// `limit RATE [burst N]`, behind `log` and its text.
    pub(super) fn log_limit(&mut self) -> Option<(Span, Option<Span>)> {
        if !self.is_next("limit") {
            self.refuse_limit("log");
            return None;
        }
        self.at += 1;
        // `limit rate 5/minute` of nftables.
        self.at += usize::from(self.is_next("rate"));
        let Some(rate) = self.limit_word() else {
            let end = self.peek().map_or(self.end(), |t| t.span);
            self.error(end, "expected a rate behind `limit`").help(RATE);
            return None;
        };
        let (burst, per) = self.burst_and_per();
        if let Some(per) = per {
            self.error(per, "log lines of a rule are counted together")
                .help("leave `per` out: each address would need its own word, and tables are for `drop over ... per source`");
        }
        Some((rate, burst))
    }

    fn is_next(&self, word: &str) -> bool {
        self.peek_word()
            .is_some_and(|next| next.eq_ignore_ascii_case(word))
    }

    /// `[burst N] [per WHAT]`, in either order.
    fn burst_and_per(&mut self) -> (Option<Span>, Option<Span>) {
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
        (burst, per)
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
                "a limit says how many packets are logged at most: `log \"text\" limit 5/m burst 10`"
            }
            _ => {
                "write what is too much: `drop over 100/s burst 20`, and no `accept` for the same packets, which would override it"
            }
        };
        let message = match target {
            "log" => "`log` reports packets within a limit, not above it".to_owned(),
            _ => format!("`{target}` has no limit, only `drop` and `log` have"),
        };
        self.error(token.span, message).help(help);
        self.skip_to_target();
        true
    }
}
