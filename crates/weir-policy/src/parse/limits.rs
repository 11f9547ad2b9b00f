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

/// What others call connections.
const CONNECTIONS: &[&str] = &[
    "connections",
    "connection",
    "conns",
    "conn",
    "sessions",
    "session",
    "flows",
    "flow",
    "states",
    "state",
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
            && self.refuse_connections(unit.span, rate)
        {
            return None;
        }
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

    /// Reports another word for connections behind their number; true: it is one.
    fn refuse_connections(&mut self, word: Span, number: Span) -> bool {
        let number = self.of(number);
        let (unit, is_rate) = match self.of(word).split_once('/') {
            Some((unit, _)) => (unit, true),
            None => (self.of(word), false),
        };
        if !is_one_of(unit, CONNECTIONS) {
            return false;
        }
        let help = match is_rate {
            true => format!(
                "write `drop over {number} connections` for how many are open, `ct-state new drop over {number}/s` for how fast they come"
            ),
            false => format!("write `drop over {number} connections`"),
        };
        self.error(word, "a limit of connections is a number of `connections`")
            .help(help);
        self.skip_to_target();
        true
    }

    /// Reports a number of connections behind `drop` without `over`, in either order; true: it is one.
    pub(super) fn refuse_connections_without_over(&mut self) -> bool {
        let word = |n: usize| self.peek_at(n).map_or("", |token| self.of(token.span));
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        let number = match (word(0), word(1), word(2)) {
            (number, what, _) if is_number(number) && is_one_of(what, CONNECTIONS) => number,
            (what, over, number) if is_one_of(what, CONNECTIONS) && is_one_of(over, &["over"]) => {
                number
            }
            _ => return false,
        };
        let help = format!("write `drop over {number} connections`");
        if let Some(token) = self.peek() {
            self.error(token.span, "expected `over` and a number behind `drop`")
                .help(help);
        }
        self.skip_to_target();
        true
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
        let word = |n: usize| self.peek_at(n).map_or("", |token| self.of(token.span));
        let example = match is_one_of(word(2), CONNECTIONS) {
            true => format!("drop over {} connections", word(1)),
            false => "drop over 100/s burst 20".to_owned(),
        };
        let help = match target {
            "reject" => {
                format!("write `{example}`: what is above a limit is dropped without an answer")
            }
            "log" => {
                "a limit says how many packets are logged at most: `log \"text\" limit 5/m burst 10`"
                    .to_owned()
            }
            _ => format!(
                "write what is too much: `{example}`, and no `accept` for the same packets, which would override it"
            ),
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
