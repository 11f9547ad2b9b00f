//! A report as a table for people: ledger, rules, reasons. Used live and at the end.
//!
//! Pure text; who shows it, and where, is not decided here. Every number is exact unless a column says otherwise.

use std::fmt::Write as _;

use weir_functions::report::Report;
use weir_packet::Reason;

/// An earlier report to compute rates from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since<'a> {
    /// What was counted then.
    pub(crate) report: &'a Report,
    /// Seconds since then; more than 0.
    pub(crate) seconds: f64,
}

/// The table of what was counted in the end.
pub(crate) fn report(report: &Report) -> String {
    render(report, None, None)
}

/// The table. With `since` rules and packets have a rate, with `rows` at most so many rules are listed.
pub(crate) fn render(report: &Report, since: Option<Since<'_>>, rows: Option<usize>) -> String {
    let mut text = String::new();
    ledger(&mut text, report, since);
    rules(&mut text, report, since, rows);
    reasons(&mut text, report);
    text
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn ledger(text: &mut String, report: &Report, since: Option<Since<'_>>) {
    let p = &report.packets;
    let _ = write!(
        text,
        "packets  {} received = {} pass + {} drop",
        grouped(p.received),
        grouped(p.pass),
        grouped(p.drop)
    );
    for (name, count) in [
        ("tx", p.tx),
        ("redirect", p.redirect),
        ("aborted", p.aborted),
    ] {
        if count > 0 {
            let _ = write!(text, " + {} {name}", grouped(count));
        }
    }
    let judged = p.pass + p.drop + p.tx + p.redirect + p.aborted;
    if let Some(rest) = p.received.checked_sub(judged).filter(|rest| *rest > 0) {
        let _ = write!(text, " + {} in flight", grouped(rest));
    }
    if let Some(since) = since {
        let _ = write!(
            text,
            "  ({}/s)",
            grouped(rate(
                p.received,
                since.report.packets.received,
                since.seconds
            ))
        );
    }
    text.push('\n');
}

fn rules(text: &mut String, report: &Report, since: Option<Since<'_>>, rows: Option<usize>) {
    if report.rules.is_empty() {
        return;
    }
    let shown = &report.rules[..rows.unwrap_or(usize::MAX).min(report.rules.len())];
    let width = shown
        .iter()
        .filter_map(|r| r.name.as_ref())
        .map(|n| n.chars().count())
        .max()
        .unwrap_or(0)
        .max(4);
    let _ = write!(
        text,
        "  rule  {:width$}  {:>15}  {:>19}",
        "name", "packets", "bytes"
    );
    text.push_str(if since.is_some() {
        "      packets/s\n"
    } else {
        "\n"
    });
    for (i, rule) in shown.iter().enumerate() {
        let name = rule.name.as_deref().unwrap_or("-");
        let _ = write!(
            text,
            "  {:>4}  {name:width$}  {:>15}  {:>19}",
            rule.id,
            grouped(rule.packets),
            grouped(rule.bytes)
        );
        if let Some(since) = since {
            let before = since.report.rules.get(i).map_or(0, |r| r.packets);
            let _ = write!(
                text,
                "  {:>13}",
                grouped(rate(rule.packets, before, since.seconds))
            );
        }
        text.push('\n');
    }
    if shown.len() < report.rules.len() {
        let _ = writeln!(
            text,
            "  ... and {} more rules, all in the table at the end",
            report.rules.len() - shown.len()
        );
    }
}

fn reasons(text: &mut String, report: &Report) {
    let width = report
        .reasons
        .keys()
        .map(|name| name.len())
        .max()
        .unwrap_or(0);
    if width > 0 {
        text.push_str("  reasons\n");
    }
    for (name, count) in &report.reasons {
        let why = Reason::from_name(name).map_or("", Reason::text);
        let _ = writeln!(text, "  {:>12}  {name:width$}  {why}", grouped(*count));
    }
}

fn rate(now: u64, before: u64, seconds: f64) -> u64 {
    (now.saturating_sub(before) as f64 / seconds.max(1e-3)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_functions::report::{Packets, RuleReport};

    fn report(received: u64, drop: u64, rule: u64) -> Report {
        Report {
            engine: "kernel",
            packets: Packets {
                received,
                pass: received - drop,
                drop,
                ..Packets::default()
            },
            rules: vec![
                RuleReport {
                    id: 1,
                    name: Some("telnet".to_owned()),
                    packets: rule,
                    bytes: rule * 60,
                },
                RuleReport {
                    id: 2,
                    name: None,
                    packets: 0,
                    bytes: 0,
                },
            ],
            reasons: [("rule_drop", drop)]
                .into_iter()
                .filter(|(_, n)| *n > 0)
                .collect(),
        }
    }

    #[test]
    fn thousands_are_grouped() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_live_table_has_rates_and_a_final_one_does_not() {
        let (before, now) = (report(1000, 0, 0), report(3000, 20, 20));
        let live = render(
            &now,
            Some(Since {
                report: &before,
                seconds: 2.0,
            }),
            None,
        );
        assert!(
            live.starts_with("packets  3,000 received = 2,980 pass + 20 drop  (1,000/s)\n"),
            "{live}"
        );
        assert!(
            live.lines()
                .any(|l| l.contains("telnet") && l.trim_end().ends_with(" 10")),
            "{live}"
        );
        assert!(live.contains("rule_drop"), "{live}");
        let last = super::report(&now);
        assert!(!last.contains("/s"), "{last}");
    }

    #[test]
    fn a_short_table_says_what_it_left_out() {
        let text = render(&report(1, 0, 0), None, Some(1));
        assert!(text.contains("and 1 more rules"), "{text}");
        assert!(!text.contains("reasons"), "{text}");
    }

    #[test]
    fn packets_between_counters_are_in_flight() {
        let mut now = report(10, 0, 0);
        now.packets.pass = 8;
        assert!(render(&now, None, None).contains("+ 2 in flight"));
    }
}
