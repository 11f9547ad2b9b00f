//! `weir sensor rules check` and `analyse`: rules are loaded as a run loads them, compiled for detection too, and what is refused is shown with its line.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use weir_sensor::load::{book, named};
use weir_sensor::matcher;
use weir_sensor::rules::{Condition, Rule, fast_pattern};
use weir_sensor::worker::Engine;

use crate::args::sensor::CheckArgs;
use crate::failure::Failure;
use crate::output;

pub(super) fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let config = super::config(&args.settings)?;
    let mut files = Vec::new();
    for path in &args.rules {
        files.extend(named(path).map_err(Failure::usage)?);
    }
    let started = Instant::now();
    let mut book = book(&config, super::dialect(&args.settings), &files).map_err(Failure::usage)?;
    let (engine, uncompiled) = Engine::new(&config, &mut book, matcher::Engine::Prefilter);
    let took = started.elapsed();
    let refused: Vec<_> = book.refused.iter().chain(&book.loaded.refused).collect();
    let bad = refused.len() + uncompiled.len();
    if args.json {
        let list: Vec<_> = refused
            .iter()
            .map(|r| json!({"file": &*r.place.file, "line": r.place.line, "column": r.column, "sid": r.sid, "kind": r.kind.name(), "keyword": r.keyword, "reason": r.reason}))
            .chain(uncompiled.iter().map(|u| json!({"file": &*u.place.file, "line": u.place.line, "sid": u.sid, "kind": "unsupported", "reason": u.reason})))
            .collect();
        let notes: Vec<_> = book.loaded.notes.iter().map(|n| json!({"file": &*n.place.file, "line": n.place.line, "sid": n.sid, "note": n.text})).collect();
        output::json(&json!({
            "files": book.loaded.files,
            "loaded": engine.rules(),
            "refused": bad,
            "disabled": book.loaded.disabled,
            "seconds": took.as_secs_f64(),
            "problems": list,
            "notes": notes,
        }))?;
    } else {
        let mut text = String::new();
        let most = if args.show == 0 {
            usize::MAX
        } else {
            args.show
        };
        for one in refused.iter().take(most) {
            let _ = writeln!(text, "{}\n", one.explain());
        }
        for one in uncompiled.iter().take(most.saturating_sub(refused.len())) {
            let _ = writeln!(
                text,
                "{}:{}: sid {}: {}\n",
                one.place.file, one.place.line, one.sid, one.reason
            );
        }
        if bad > most {
            let _ = writeln!(text, "... and {} more; --show 0 shows all\n", bad - most);
        }
        for (reason, count) in book.loaded.reasons() {
            let _ = writeln!(text, "{count:8}  {reason}");
        }
        let all = engine.rules() + bad;
        let share = if all == 0 {
            100.0
        } else {
            engine.rules() as f64 * 100.0 / all as f64
        };
        let _ = writeln!(
            text,
            "{} rules of {} files loaded ({share:.1} %), {bad} rejected, {} commented out, {} notes, in {}",
            engine.rules(),
            book.loaded.files,
            book.loaded.disabled,
            book.loaded.notes.len(),
            super::seconds(took)
        );
        output::out(&text)?;
    }
    Ok(match bad {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

/// Leads shorter than this are not searched for: their rules are asked wherever their other conditions hold.
const GOOD: usize = 4;

/// What is said of a rule by its text.
struct Asked {
    gid: u32,
    sid: u32,
    /// What leads to it: `none`, `short`, `good`.
    lead: &'static str,
    text: String,
    contents: usize,
    expressions: usize,
}

impl Asked {
    fn new(rule: &Rule) -> Asked {
        let lead = fast_pattern(rule);
        let conditions = || rule.groups.iter().flat_map(|g| &g.conditions);
        Asked {
            gid: rule.gid,
            sid: rule.sid,
            lead: match lead {
                None => "none",
                Some(lead) if lead.bytes.len() < GOOD => "short",
                Some(_) => "good",
            },
            text: lead.map_or_else(String::new, |lead| {
                let bytes = lead.bytes.escape_ascii();
                format!("{} \"{bytes}\"", lead.buffer.name())
            }),
            contents: conditions()
                .filter(|c| matches!(c, Condition::Content(_)))
                .count(),
            expressions: conditions()
                .filter(|c| matches!(c, Condition::Pcre(_)))
                .count(),
        }
    }
}

pub(super) fn analyse(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let config = super::config(&args.settings)?;
    let mut files = Vec::new();
    for path in &args.rules {
        files.extend(named(path).map_err(Failure::usage)?);
    }
    let book = book(&config, super::dialect(&args.settings), &files).map_err(Failure::usage)?;
    let refused = book.refused.len() + book.loaded.refused.len();
    let mut all: Vec<Asked> = book.loaded.rules.iter().map(Asked::new).collect();
    all.sort_by_key(|a| (a.lead == "good", a.lead == "short", a.gid, a.sid));
    let count = |lead: &str| all.iter().filter(|a| a.lead == lead).count();
    if args.json {
        let rules: Vec<_> = all
            .iter()
            .map(|a| json!({"gid": a.gid, "sid": a.sid, "lead": a.lead, "pattern": a.text, "contents": a.contents, "expressions": a.expressions}))
            .collect();
        output::json(&json!({
            "loaded": all.len(),
            "refused": refused,
            "leads": {"none": count("none"), "short": count("short"), "good": count("good")},
            "rules": rules,
        }))?;
    } else {
        let mut text = String::new();
        let most = if args.show == 0 {
            usize::MAX
        } else {
            args.show
        };
        let poor = || all.iter().filter(|a| a.lead != "good");
        for one in poor().take(most) {
            let what = match one.text.as_str() {
                "" => "no content leads to it".to_owned(),
                text => format!("its lead is short: {text}"),
            };
            let _ = writeln!(
                text,
                "{:>10}:{:<9} {what}; {} contents, {} expressions",
                one.gid, one.sid, one.contents, one.expressions
            );
        }
        if poor().count() > most {
            let _ = writeln!(
                text,
                "... and {} more; --show 0 shows all",
                poor().count() - most
            );
        }
        let _ = writeln!(
            text,
            "{} rules, {refused} rejected: {} without a lead, {} with one of less than {GOOD} bytes, {} with a good one; they are tested on all traffic that their headers and other conditions take",
            all.len(),
            count("none"),
            count("short"),
            count("good")
        );
        output::out(&text)?;
    }
    Ok(match refused {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}
