//! The outcome as a table: a row for each case and policy, a column for each device, and what is wrong in full below.

use std::fmt::Write as _;

use super::{Came, Device, FirewallOutcome, Judged, Row, Verdict};

/// The table as Markdown, which also reads well as it is.
pub fn table(outcome: &FirewallOutcome) -> String {
    let devices: Vec<Device> = Device::ALL
        .into_iter()
        .filter(|d| outcome.rows.iter().any(|r| r.steps.contains_key(d)))
        .collect();
    let mut cells: Vec<Vec<String>> = Vec::new();
    let mut head = vec!["case".to_owned(), "policy".to_owned()];
    head.extend(devices.iter().map(|d| d.name().to_owned()));
    head.extend(["expected", "verdict", "authority"].map(str::to_owned));
    cells.push(head);
    let mut group = "";
    let mut last: Option<&Row> = None;
    for row in &outcome.rows {
        if row.group != group {
            group = &row.group;
            let mut line = vec![format!("**{group}**")];
            line.resize(cells[0].len(), String::new());
            cells.push(line);
        }
        let mut line = vec![row.title.clone(), row.policy.clone()];
        line.extend(devices.iter().map(|d| {
            let steps = row.steps.get(d);
            steps.map_or_else(String::new, |steps| seen(steps))
        }));
        line.push(expected(row));
        line.push(row.verdict().name().to_owned());
        line.push(row.cite.clone());
        // Policies under which the same happens share a line.
        let shared = cells
            .last_mut()
            .filter(|above| last.is_some_and(|l| l.title == row.title) && above[2..] == line[2..]);
        match shared {
            Some(above) => above[1] = format!("{}, {}", above[1], row.policy),
            None => cells.push(line),
        }
        last = Some(row);
    }
    let mut text = aligned(&cells);
    text.push('\n');
    for row in &outcome.rows {
        failures(row, &mut text);
    }
    for wrong in &outcome.counters {
        let _ = writeln!(text, "counters: {wrong}");
    }
    let count = |verdict| {
        outcome
            .rows
            .iter()
            .filter(|r| r.verdict() == verdict)
            .count()
    };
    let cases: std::collections::BTreeSet<_> = outcome.rows.iter().map(|r| &r.title).collect();
    let _ = writeln!(
        text,
        "{} cases, {} rows: {} same, {} stricter, {} better, {} argued, {} laxer, {} fail",
        cases.len(),
        outcome.rows.len(),
        count(Verdict::Same),
        count(Verdict::Stricter),
        count(Verdict::Better),
        count(Verdict::Argued),
        count(Verdict::Laxer),
        count(Verdict::Fails),
    );
    text
}

/// What a device did with the abuse of a case; of what is legitimate only what failed.
fn seen(steps: &[Judged]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut add = |word: String| {
        if !words.contains(&word) {
            words.push(word);
        }
    };
    for (step, abuse) in steps.iter().map(|s| (s, s.abuse)) {
        match (&step.came, abuse) {
            (Came::Dropped, true) => add("drop".to_owned()),
            (Came::Passed, true) => add("pass".to_owned()),
            (Came::Altered(_), true) => add("altered".to_owned()),
            _ if step.ok() => {}
            (Came::Unsent(_), _) => add("not reached".to_owned()),
            (Came::Dropped, false) => add("breaks".to_owned()),
            (Came::Differs(ports), _) => add(format!("differs ({ports})")),
            (Came::Altered(_), false) => add("alters".to_owned()),
            (Came::Passed | Came::Holds, false) => add("passes".to_owned()),
            (Came::Holds, true) => {}
        }
    }
    match words.is_empty() {
        true => "works".to_owned(),
        false => words.join(", "),
    }
}

fn expected(row: &Row) -> String {
    let Some(steps) = row.steps.values().next() else {
        return String::new();
    };
    let abuse = |passes: bool| steps.iter().any(|s| s.abuse && s.passes == passes);
    match (abuse(false), abuse(true)) {
        (true, true) => "drop, pass".to_owned(),
        (true, false) => "drop".to_owned(),
        (false, true) => "pass".to_owned(),
        (false, false) => "works".to_owned(),
    }
}

fn failures(row: &Row, text: &mut String) {
    let verdict = row.verdict();
    if !matches!(verdict, Verdict::Fails | Verdict::Laxer) {
        return;
    }
    let _ = writeln!(text, "{}: {} ({})", verdict.name(), row.title, row.policy);
    for (device, steps) in &row.steps {
        let shown = |s: &&Judged| !s.ok() || (verdict == Verdict::Laxer && s.abuse);
        for step in steps.iter().filter(shown) {
            let word = match &step.came {
                Came::Passed => "passed".to_owned(),
                Came::Dropped => "nothing arrived".to_owned(),
                Came::Holds => "holds".to_owned(),
                Came::Altered(what) | Came::Unsent(what) => what.clone(),
                Came::Differs(ports) => format!("ports {ports}"),
            };
            let _ = writeln!(
                text,
                "  {}, line {} `{}`: {word}",
                device.name(),
                step.line,
                step.text
            );
        }
    }
}

fn aligned(cells: &[Vec<String>]) -> String {
    let columns = cells.first().map_or(0, Vec::len);
    let width = |at: usize| {
        let widths = cells.iter().filter_map(|line| line.get(at));
        widths.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (n, line) in cells.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
        if n == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}
