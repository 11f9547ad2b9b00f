//! `weir apply`: makes an edge what a configuration says. One shot; with `--watch` it stays and applies again when a file changes, with
//! `--confirm` it stays until somebody says that the new configuration is right, and goes back to the former one if nobody does.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_engine::edge::{self, Applied};
use weir_graph::{Diff, EdgePlan};

use super::confirm;
use super::record::Record;
use super::{Planned, Refused, diff, plan, running};
use crate::args::ApplyArgs;
use crate::commands::policy::count;
use crate::failure::Failure;
use crate::output;

/// Between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// Longest wait for a signal.
const TICK: Duration = Duration::from_millis(100);

/// What one apply did, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    edge: &'a str,
    /// Absent from a dry run.
    generation: Option<u64>,
    changes: &'a Diff,
    kept: &'a [String],
    replaced: &'a [String],
    added: &'a [String],
    removed: &'a [String],
    attached: &'a [String],
    detached: &'a [String],
    notes: Vec<&'a str>,
    /// The whole plan, of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a EdgePlan>,
}

pub(crate) fn run(args: &ApplyArgs) -> Result<ExitCode, Failure> {
    if args.confirm_now {
        return confirm::say_yes(args);
    }
    let Some(path) = &args.config else {
        return Err(Failure::Usage(
            "name a configuration: weir apply CONFIG".to_owned(),
        ));
    };
    let planned = plan(path)?;
    if args.dry_run {
        return dry_run(args, &planned);
    }
    let confirm = args
        .confirm
        .map(|s| crate::commands::seconds("--confirm", s))
        .transpose()?;
    // Before anything changes: a signal from here on ends the command in order.
    let stop = match args.watch || confirm.is_some() {
        true => Some(crate::commands::stop_on_signals()?),
        false => None,
    };
    match confirm {
        Some(limit) => confirm::apply(args, &planned, limit)?,
        None => drop(carry_out(args, &planned)?),
    }
    match stop.filter(|_| args.watch) {
        Some(stop) => watch(args, planned, &stop),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn dry_run(args: &ApplyArgs, planned: &Planned) -> Result<ExitCode, Failure> {
    let found = diff::against_running(planned)?;
    // A plan for another host is right all the same.
    let refused = edge::refuses_devices(&planned.plan);
    let refused = refused.map(|why| format!("`weir apply` would be refused here now: {why}"));
    let notes: Vec<String> = refused.into_iter().collect();
    if args.json {
        let nothing = Applied {
            notes,
            ..Applied::default()
        };
        output::json(&report(planned, &found.diff, &nothing, None, true))?;
    } else {
        for note in &notes {
            output::complain(note);
        }
        let against = match found.is_running {
            true => "against what runs",
            false => "nothing of it runs",
        };
        output::out(&format!("{}\n{against}:\n{}", planned.plan, found.diff))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Applies a plan and says what that changed.
pub(super) fn carry_out(args: &ApplyArgs, planned: &Planned) -> Result<Applied, Failure> {
    let found = diff::against_running(planned)?;
    let applied = switch_to(&planned.plan, &planned.record)?;
    if args.json {
        let generation = Some(applied.generation);
        output::json(&report(planned, &found.diff, &applied, generation, false))?;
        return Ok(applied);
    }
    for note in planned.plan.notes.iter().chain(&applied.notes) {
        output::complain(note);
    }
    let ports = count(planned.plan.ports.len(), "port");
    let functions = count(planned.plan.configured().count(), "function");
    output::out(&format!(
        "{}edge {} is at generation {}: {ports}, {functions}\n",
        found.diff, planned.plan.edge, applied.generation
    ))?;
    Ok(applied)
}

/// Makes the edge what the plan says.
pub(in crate::commands) fn switch_to(plan: &EdgePlan, record: &Record) -> Result<Applied, Failure> {
    Ok(edge::apply(plan, &record.write()?)?)
}

fn report<'a>(
    planned: &'a Planned,
    changes: &'a Diff,
    applied: &'a Applied,
    generation: Option<u64>,
    whole: bool,
) -> Report<'a> {
    let notes = planned.plan.notes.iter().chain(&applied.notes);
    Report {
        edge: &planned.plan.edge,
        generation,
        changes,
        kept: &applied.kept,
        replaced: &applied.replaced,
        added: &applied.added,
        removed: &applied.removed,
        attached: &applied.attached,
        detached: &applied.detached,
        notes: notes.map(String::as_str).collect(),
        plan: whole.then_some(&planned.plan),
    }
}

/// Applies again whenever a file changes, until a signal. Mistakes are shown, and what runs goes on.
fn watch(args: &ApplyArgs, planned: Planned, stop: &AtomicBool) -> Result<ExitCode, Failure> {
    let name = planned.plan.edge.clone();
    let path = planned.files[0].0.clone();
    output::complain(&format!(
        "watching {}; Ctrl-C ends the watch, not the edge",
        count(planned.files.len(), "file")
    ));
    let mut files = planned.files;
    let mut next = Instant::now() + LOOK;
    while !stop.load(Ordering::Relaxed) {
        sleep(TICK);
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + LOOK;
        if !files.iter_mut().any(changed) {
            continue;
        }
        match again(args, &path, &name) {
            Ok(planned) => files = planned.files,
            Err(failure) if failure.is_broken_pipe() => return Err(failure),
            Err(failure) => {
                output::complain(&format!("{failure}; what runs goes on"));
                // What was seen is what is compared with from now on.
                for file in &mut files {
                    file.1 = std::fs::read(&file.0).ok();
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn again(args: &ApplyArgs, path: &Path, name: &str) -> Result<Planned, Failure> {
    let planned = plan(path).map_err(|refused| match refused {
        Refused::Mistakes(text) => Failure::Usage(text),
        Refused::Failed(failure) => failure,
    })?;
    if planned.plan.edge != name {
        return Err(Failure::Usage(format!(
            "{}: the edge is called {} now, and {name} is watched: end the watch and apply it by itself",
            path.display(),
            planned.plan.edge
        )));
    }
    let same = running(name)?.is_some_and(|record| record == planned.record);
    if !same {
        carry_out(args, &planned)?;
    }
    Ok(planned)
}

fn changed((path, seen): &mut (PathBuf, Option<Vec<u8>>)) -> bool {
    std::fs::read(path).ok() != *seen
}
