//! An explanation on one screen.
//!
//! Owns layout only. Invariant: at most about forty lines, however long the path; what is left out is counted.

use std::fmt::Write as _;

use weir_vm::explain::{Branch, Explanation, Source, Spot};

/// Branches shown at each end of a long path.
const BRANCHES_SHOWN: usize = 6;
/// Registers and slots shown.
const STATE_SHOWN: usize = 8;
/// Widest value shown of the state.
const VALUE_WIDTH: usize = 90;

/// The explanation as text.
pub(super) fn explanation(e: &Explanation) -> String {
    let mut text = format!("{}: rejected: {}\n\n", e.program, e.message);
    text.push_str(&place(&e.at));
    let _ = writeln!(text, "\nrule      {}", e.summary);
    if let Some(register) = &e.register {
        let _ = writeln!(
            text,
            "\nvalue     {} holds {}",
            register.name, register.holds
        );
        let from = register.born.as_ref().map_or_else(String::new, line);
        let _ = writeln!(text, "          {}{from}", register.birth);
        if let Some(narrowed) = &register.narrowed {
            let _ = writeln!(text, "          last narrowed{}", line(narrowed));
        }
    }
    let _ = writeln!(text, "\nmissing   {}", e.missing.text);
    if let Some(code) = &e.missing.code {
        for row in code.lines() {
            let _ = writeln!(text, "              {}", row.replace('\t', "        "));
        }
    }
    if let Some(note) = &e.missing.note {
        let _ = writeln!(text, "          {note}");
    }
    if !e.calls.is_empty() {
        for (n, call) in e.calls.iter().enumerate() {
            let head = if n == 0 { "\ncalls     " } else { "          " };
            let _ = writeln!(text, "{head}{}{}", call.function, line(call));
        }
    }
    path(&mut text, &e.path, &e.at);
    state(&mut text, e);
    text
}

/// The source line with the place marked, and the instruction.
fn place(spot: &Spot) -> String {
    let mut text = String::new();
    if let Some(source) = &spot.source {
        let _ = writeln!(
            text,
            "  {}:{}:{} in {}",
            source.file, source.line, source.column, spot.function
        );
        if !source.text.is_empty() {
            let _ = writeln!(text, "    {}", source.text.replace('\t', " "));
        }
        if source.width > 0 {
            let before = source.text.get(..source.mark).unwrap_or_default();
            let marked = source.text.get(source.mark..source.mark + source.width);
            let carets = marked.map_or(1, |m| m.chars().count());
            let _ = writeln!(
                text,
                "    {}{}",
                " ".repeat(before.chars().count()),
                "^".repeat(carets)
            );
        }
    } else {
        let _ = writeln!(
            text,
            "  in {}, section {} (the object has no line information; compile with -g)",
            spot.function, spot.section
        );
    }
    let _ = writeln!(text, "    instruction {}: {}", spot.slot, spot.instruction);
    text
}

/// Where a spot is, in a few words.
fn line(spot: &Spot) -> String {
    match &spot.source {
        Some(Source { line, text, .. }) if !text.is_empty() => {
            format!(", line {line}: {}", text.replace('\t', " "))
        }
        Some(source) => format!(", line {}", source.line),
        None => format!(", instruction {}: {}", spot.slot, spot.instruction),
    }
}

fn path(text: &mut String, path: &[Branch], at: &Spot) {
    if path.is_empty() {
        let _ = writeln!(text, "\npath      straight from the start");
        return;
    }
    let _ = writeln!(text, "\npath");
    let hidden = path.len().saturating_sub(2 * BRANCHES_SHOWN);
    for (n, branch) in path.iter().enumerate() {
        if hidden > 1 && n == BRANCHES_SHOWN {
            let _ = writeln!(text, "          ... {hidden} branches ...");
        }
        if hidden > 1 && (BRANCHES_SHOWN..BRANCHES_SHOWN + hidden).contains(&n) {
            continue;
        }
        let (place, shown) = match &branch.at.source {
            Some(source) => (
                format!("line {}", source.line),
                source.text.replace('\t', " "),
            ),
            None => (
                format!("instruction {}", branch.at.slot),
                branch.at.instruction.clone(),
            ),
        };
        let next = match (branch.next_line, branch.taken) {
            (Some(line), _) => format!("-> line {line}"),
            (None, true) => "-> taken".to_owned(),
            (None, false) => "-> not taken".to_owned(),
        };
        let times = match branch.times {
            1 => String::new(),
            n => format!(", {n} times"),
        };
        let _ = writeln!(text, "  {place:>9}  {shown}  {next}{times}");
    }
    let end = at.source.as_ref().map_or_else(
        || format!("instruction {}", at.slot),
        |s| format!("line {}", s.line),
    );
    let _ = writeln!(text, "  {end:>9}  rejected");
}

fn state(text: &mut String, e: &Explanation) {
    if e.state.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nstate");
    for holding in e.state.iter().take(STATE_SHOWN) {
        let mut value: String = holding.value.chars().take(VALUE_WIDTH).collect();
        if value.len() < holding.value.len() {
            value.push_str("...");
        }
        let _ = writeln!(text, "  {:>7}  {value}", holding.name);
    }
    if e.state.len() > STATE_SHOWN {
        let more = e.state.len() - STATE_SHOWN;
        let _ = writeln!(text, "           ... and {more} more (--json shows all)");
    }
}
