//! `drop over` and `log ... limit`: rates, bursts, quotas, and what a limit counts apart.

use super::Lower;
use crate::ast::Span;
use crate::model::{DropWhen, LogLimit, MOST_COUNTED, Per, Target};
use crate::value;
use crate::words::{is_one_of, nearest};

/// Most names that a limit can keep apart: 64 MiB for each rule.
const MAX_LIMITS: u128 = 1 << 20;

/// How `per` is written.
const PER: &str =
    "write `per source`, `per destination`, `per pair`, or `per source/24` for networks";

impl Lower<'_> {
    pub(super) fn drop_over(
        &mut self,
        (rate, burst, per): (Span, Option<Span>, Option<Span>),
        span: Span,
        stateful: bool,
    ) -> Option<Target> {
        let period_ns = self.period(rate)?;
        let burst = match burst {
            Some(at) => self.burst(at, period_ns)?,
            None => 1,
        };
        let Some(per) = per else {
            return Some(Target::Drop(DropWhen::Over { period_ns, burst }));
        };
        let per = self.per(per)?;
        if stateful {
            self.report
                .error(0, span, "both directions of a connection have the targets of a stateful rule, and their sources differ")
                .help("write the limit in a rule without `add-stateful`: `ct-state new ... drop over 10/s per source` limits new connections, which do not open then");
            return None;
        }
        Some(Target::Drop(DropWhen::OverEach {
            period_ns,
            burst,
            per,
        }))
    }

    /// `drop over N bytes`.
    pub(super) fn drop_quota(
        &mut self,
        (bytes, burst, per): (Span, Option<Span>, Option<Span>),
    ) -> Option<Target> {
        if let Some(per) = per {
            self.report
                .error(0, per, "a quota counts all packets of its rule together")
                .help("a table of addresses forgets those that are due first, and a quota is never due: write a rule for each address, or limit packets: `drop over 100/s per source`");
            return None;
        }
        if let Some(burst) = burst {
            self.report
                .error(0, burst, "a quota has no burst")
                .help("leave it out: all bytes of a quota may come at once");
            return None;
        }
        let word = self.of(bytes);
        match value::any_case(word, weir_value::count) {
            Ok(0) => {
                self.report
                    .error(0, bytes, "a quota is at least 1 byte")
                    .help("to drop all packets write `drop`");
                None
            }
            Ok(bytes) => Some(Target::Drop(DropWhen::Quota { bytes })),
            Err(invalid) => {
                self.report
                    .error(0, bytes, invalid.to_string())
                    .help("a quota is a number of bytes, with k, M or G for powers of 1000: `drop over 500M bytes`");
                None
            }
        }
    }

    /// `drop over N connections`.
    pub(super) fn drop_connections(
        &mut self,
        (number, burst, per): (Span, Option<Span>, Option<Span>),
        span: Span,
        stateful: bool,
    ) -> Option<Target> {
        if let Some(burst) = burst {
            self.report
                .error(0, burst, "a limit of connections has no burst")
                .help("leave it out: so many may be open at a time, however fast they came");
            return None;
        }
        let per = match per {
            Some(at) => Some(self.per(at)?),
            None => None,
        };
        if stateful {
            self.report
                .error(0, span, "a connection is counted where it opens, and a stateful rule has its targets in both directions")
                .help("write the limit in a rule without `add-stateful`, with the same matches: packets above it open no connection");
            return None;
        }
        let word = self.of(number);
        match value::number(word, 32, &[]) {
            Ok(0) => {
                self.report
                    .error(0, number, "a limit of connections is at least 1")
                    .help("to drop all packets write `drop`");
                None
            }
            Ok(most) if most <= u128::from(MOST_COUNTED) => {
                let most = u32::try_from(most).ok()?;
                Some(Target::Drop(DropWhen::OverConnections { most, per }))
            }
            Ok(_) => {
                self.report
                    .error(0, number, format!("a limit counts {MOST_COUNTED} connections at most"))
                    .help("a packet that may open one looks at each that is open: limit how fast they come instead, `ct-state new ... drop over 100/s per source`, or write a limit for smaller networks");
                None
            }
            Err(_) => {
                self.report
                    .error(0, number, format!("`{word}` is not a number of connections"))
                    .help(format!("write a number from 1 to {MOST_COUNTED}: `drop over 10 connections per source`"));
                None
            }
        }
    }

    /// `limit RATE [burst N]` of a `log`.
    pub(super) fn log_limit(&mut self, (rate, burst): (Span, Option<Span>)) -> Option<LogLimit> {
        let period_ns = self.period(rate)?;
        let burst = match burst {
            Some(at) => self.burst(at, period_ns)?,
            None => 1,
        };
        Some(LogLimit { period_ns, burst })
    }

    /// A rule has one word to count in.
    pub(super) fn judge_words(&mut self, targets: &[Target], limited_logs: &[Span]) {
        let [first, rest @ ..] = limited_logs else {
            return;
        };
        for other in rest {
            self.report
                .error(0, *other, "a rule has one `log` with a limit")
                .also(0, *first, "the first is here")
                .help("write a rule for each");
        }
        let counts =
            |target: &Target| matches!(target, Target::Drop(when) if when.counts_in_word());
        if targets.iter().any(counts) {
            self.report
                .error(0, *first, "a rule counts one thing: its log lines, what `drop over` lets pass, or its answers")
                .help("write this `log` in a rule of its own, with the same matches: all matching rules count");
        }
    }

    /// Nanoseconds a packet.
    fn period(&mut self, rate: Span) -> Option<u64> {
        let word = self.of(rate);
        let limit = match value::any_case(word, weir_value::rate) {
            Ok(limit) => limit,
            Err(invalid) => {
                self.report.error(0, rate, invalid.to_string());
                return None;
            }
        };
        let period_ns = limit.seconds * 1_000_000_000 / limit.count.max(1);
        if period_ns == 0 {
            self.report
                .error(
                    0,
                    rate,
                    format!("`{word}` is more than one packet per nanosecond"),
                )
                .help("leave the rate limit out: no port is that fast");
            return None;
        }
        Some(period_ns)
    }

    /// Packets that may come at once.
    fn burst(&mut self, at: Span, period_ns: u64) -> Option<u32> {
        let word = self.of(at);
        match word.parse::<u32>() {
            Ok(0) | Err(_) => {
                self.report
                    .error(0, at, format!("`{word}` is not a burst"))
                    .help("a burst is a number of packets, at least 1");
                None
            }
            // A full burst must fit the clock: half of 64 bits of nanoseconds is 292 years.
            Ok(n)
                if period_ns
                    .checked_mul(u64::from(n))
                    .is_some_and(|t| t < 1 << 63) =>
            {
                Some(n)
            }
            Ok(_) => {
                self.report
                    .error(
                        0,
                        at,
                        format!("a burst of {word} at this rate lasts longer than 292 years"),
                    )
                    .help("write a smaller burst");
                None
            }
        }
    }

    /// `source`, `destination`, `pair`, and of the first two networks: `source/24`, `source/24/56`.
    fn per(&mut self, at: Span) -> Option<Per> {
        let word = self.of(at);
        let mut parts = word.split('/');
        let what = parts.next().unwrap_or_default();
        let lengths: Vec<&str> = parts.collect();
        let is = |word: &str| what.eq_ignore_ascii_case(word);
        let (source, destination) = (is("source") || is("pair"), is("destination") || is("pair"));
        if !source && !destination {
            let help = if is_one_of(
                what,
                &[
                    "src",
                    "saddr",
                    "ip-saddr",
                    "ip6-saddr",
                    "ip",
                    "srcip",
                    "src-ip",
                    "host",
                    "client",
                    "from",
                ],
            ) {
                "write `per source`".to_owned()
            } else if is_one_of(
                what,
                &[
                    "dst",
                    "daddr",
                    "ip-daddr",
                    "ip6-daddr",
                    "dstip",
                    "dst-ip",
                    "server",
                    "to",
                ],
            ) {
                "write `per destination`".to_owned()
            } else if is("rule") {
                "leave it out: without `per`, a limit is for all packets of its rule together"
                    .to_owned()
            } else if is_one_of(
                what,
                &[
                    "flow",
                    "connection",
                    "sport",
                    "dport",
                    "port",
                    "srcport",
                    "dstport",
                ],
            ) {
                "ports are not counted apart: `per pair` counts by source and destination address"
                    .to_owned()
            } else if let Some(unit) = ["second", "minute", "hour"]
                .into_iter()
                .find(|unit| what.starts_with(unit))
            {
                let unit = unit.get(..1).unwrap_or_default();
                format!("write the time behind the number: `drop over 100/{unit} per source`")
            } else {
                match nearest(what, ["source", "destination", "pair"]) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => PER.to_owned(),
                }
            };
            self.report
                .error(0, at, format!("a limit does not count by `{what}`"))
                .help(help);
            return None;
        }
        let whole = Per {
            source,
            destination,
            len4: 32,
            len6: 128,
        };
        if lengths.is_empty() {
            return Some(whole);
        }
        if source && destination {
            self.report
                .error(0, at, "pairs are counted by whole addresses")
                .help("write `per pair`, or `per source/24` for networks");
            return None;
        }
        let length = |text: &str, most: u8| text.parse().ok().filter(|n| (1..=most).contains(n));
        let found = match lengths.as_slice() {
            [four] => length(four, 32).map(|four| (four, 64)),
            [four, six] => length(four, 32).zip(length(six, 128)),
            _ => None,
        };
        let Some((len4, len6)) = found else {
            self.report
                .error(0, at, format!("`{word}` is not a prefix length of each family"))
                .help("write 1 to 32 bits for IPv4, then 1 to 128 for IPv6: `per source/24/56`; `per source/24` takes /64 of IPv6");
            return None;
        };
        Some(Per {
            len4,
            len6,
            ..whole
        })
    }

    /// N of `limits N`.
    pub(super) fn limits(&mut self, span: Span) -> Option<u32> {
        let word = self.of(span);
        match value::number(word, 32, &[]) {
            Ok(count) if (1..=MAX_LIMITS).contains(&count) => u32::try_from(count).ok(),
            _ => {
                self.report
                    .error(0, span, format!("`{word}` is not a number of addresses"))
                    .help(format!("it is a number from 1 to {MAX_LIMITS}: how many sources, destinations or pairs each limit tells apart"));
                None
            }
        }
    }
}
