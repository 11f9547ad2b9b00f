//! `weir sensor rules check`: rules are loaded as a run loads them, compiled for detection too, and what is refused is shown with its line.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use weir_sensor::load::{book, named};
use weir_sensor::matcher;
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
            "{} rules of {} files loaded ({share:.1} %), {bad} refused, {} commented out, {} notes, in {}",
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
