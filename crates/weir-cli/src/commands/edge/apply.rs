//! `weir apply`: applies a configuration of an edge, or a document of networks. One shot; with `--watch` it stays and applies again when a file changes, with
//! `--confirm` it stays until somebody says that the new configuration is right, and goes back to the former one if nobody does.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use weir_engine::edge::{self, Applied as GraphApplied};
use weir_graph::{Diff, EdgePlan};
use weir_runtime::stations::Station;
use weir_runtime::{Applied, Changes, Planned};

use super::{confirm, networks, plan};
use crate::args::ApplyArgs;
use crate::commands::history;
use crate::commands::policy::count;
use crate::commands::replay::against::{self, Found};
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
            "name a configuration or a document of networks: weir apply FILE".to_owned(),
        ));
    };
    let planned = plan(path, args.edge.as_deref())?;
    let replayed = match &args.check_with {
        Some(capture) => Some(against::of_apply(&planned, capture, args.port.as_deref())?),
        None => None,
    };
    if args.dry_run {
        return dry_run(&planned, replayed.as_ref(), args.json);
    }
    if let Some(found) = &replayed {
        accept(args, found)?;
    }
    // Before anything changes: a signal from here on ends the command in order.
    let stop = match args.watch || args.confirm.is_some() {
        true => Some(crate::limits::stop_on_signals()?),
        false => None,
    };
    match args.confirm {
        Some(limit) => confirm::apply(args, &planned, limit)?,
        None => carry_out(args, &planned)?,
    }
    match stop.filter(|_| args.watch) {
        Some(stop) => watch(args, planned, &stop),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Whether a change may be applied, after what the replay of a capture found.
fn accept(args: &ApplyArgs, found: &Found) -> Result<(), Failure> {
    output::tell(&found.text());
    let changed = found.report.changed;
    if changed <= args.max_changes {
        return Ok(());
    }
    let change = match changed {
        1 => "packet changes",
        _ => "packets change",
    };
    Err(Failure::Failed(format!(
        "{changed} {change} verdict; nothing was applied. `--max-changes {changed}` accepts that"
    )))
}

/// Shows a plan, and what it would change of what runs. Changes nothing.
pub(crate) fn dry_run(
    planned: &Planned,
    replayed: Option<&Found>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let changes = planned.changes(&mut |note| output::complain(&note))?;
    let mut value = json!({ "edge": planned.edge });
    let mut text = String::new();
    if let (Some(part), Some(found)) = (&planned.graph, &changes.graph) {
        // A plan for another host is right all the same.
        let refused = edge::refuses_devices(&part.plan);
        let refused = refused.map(|why| format!("`weir apply` would fail here now: {why}"));
        let notes: Vec<String> = refused.into_iter().collect();
        for note in notes.iter().filter(|_| !json) {
            output::complain(note);
        }
        let against = match found.is_running {
            true => "against what runs",
            false => "nothing of it runs",
        };
        text.push_str(&format!("{}\n{against}:\n{}", part.plan, found.diff));
        let nothing = GraphApplied {
            notes,
            ..GraphApplied::default()
        };
        value = report(&part.plan, &found.diff, &nothing, None, true)?;
    }
    if let Some(part) = &planned.networks {
        let stations = networks::stations_of(&part.plan)?;
        for warning in weir_runtime::stations::warnings(&stations) {
            output::complain(&warning);
        }
        text.push_str(&networks::plan_text(&part.plan, &stations));
        let found = networks::plan_json(&part.plan, &stations);
        match planned.graph {
            Some(_) => value["networks"] = found,
            None => value = found,
        }
    }
    show_removals(&changes, planned, &mut text, &mut value)?;
    if let Some(found) = replayed {
        text.push_str(&found.text());
        value["replay"] = serde_json::to_value(&found.report).map_err(Failure::failed)?;
    }
    match json {
        true => output::json(&value)?,
        false => output::out(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Parts of an edge that its configuration names no more.
fn show_removals(
    changes: &Changes,
    planned: &Planned,
    text: &mut String,
    value: &mut Value,
) -> Result<(), Failure> {
    if planned.graph.is_none()
        && let Some(found) = &changes.graph
    {
        text.push_str(&format!("the graph is removed:\n{}", found.diff));
        value["changes"] = serde_json::to_value(&found.diff).map_err(Failure::failed)?;
    }
    if let Some(found) = changes.networks.as_ref().filter(|found| found.are_removed) {
        text.push_str(&format!("the networks are removed:\n{}", found.diff));
        value["network_changes"] = serde_json::to_value(&found.diff).map_err(Failure::failed)?;
    }
    Ok(())
}

/// Applies a plan and says what that changed.
pub(super) fn carry_out(args: &ApplyArgs, planned: &Planned) -> Result<(), Failure> {
    let changes = planned.graph_changes(&mut |note| output::complain(&note))?;
    let changes = changes.map(|found| found.diff);
    let applied = planned.apply(args.force)?;
    history::note(&planned.edge);
    let stations = match &applied.networks {
        Some(done) => networks::stations_of(&done.plan)?,
        None => Vec::new(),
    };
    for warning in weir_runtime::stations::warnings(&stations) {
        output::complain(&warning);
    }
    match args.json {
        true => Ok(output::json(&applied_json(
            planned,
            changes.as_ref(),
            &applied,
            &stations,
        )?)?),
        false => tell(planned, changes.as_ref(), &applied, &stations),
    }
}

fn tell(
    planned: &Planned,
    changes: Option<&Diff>,
    applied: &Applied,
    stations: &[Station<'_>],
) -> Result<(), Failure> {
    let mut text = String::new();
    if let Some(diff) = changes {
        text.push_str(&diff.to_string());
    }
    if let (Some(part), Some(done)) = (&planned.graph, &applied.graph) {
        for note in part.plan.notes.iter().chain(&done.notes) {
            output::complain(note);
        }
        let ports = count(part.plan.ports.len(), "port");
        let functions = count(part.plan.configured().count(), "function");
        text.push_str(&format!(
            "edge {} is at generation {}: {ports}, {functions}\n",
            planned.edge, done.generation
        ));
    }
    if applied.graph_removed {
        text.push_str(&format!("edge {}: the graph is removed\n", planned.edge));
    }
    if let Some(done) = &applied.networks {
        text.push_str(&networks::applied_text(&planned.edge, done, stations));
    }
    if applied.networks_removed {
        text.push_str(&format!(
            "edge {}: all networks are removed\n",
            planned.edge
        ));
    }
    Ok(output::out(&text)?)
}

fn applied_json(
    planned: &Planned,
    changes: Option<&Diff>,
    applied: &Applied,
    stations: &[Station<'_>],
) -> Result<Value, Failure> {
    let mut value = json!({ "edge": planned.edge });
    if let (Some(part), Some(diff), Some(done)) = (&planned.graph, changes, &applied.graph) {
        value = report(&part.plan, diff, done, Some(done.generation), false)?;
    }
    if let Some(done) = &applied.networks {
        let of_networks = networks::applied_json(&planned.edge, done, stations)?;
        match planned.graph {
            Some(_) => value["networks"] = of_networks,
            None => value = of_networks,
        }
    }
    if applied.graph_removed {
        value["graph_removed"] = json!(true);
    }
    if applied.networks_removed {
        value["networks_removed"] = json!(true);
    }
    Ok(value)
}

fn report(
    plan: &EdgePlan,
    changes: &Diff,
    applied: &GraphApplied,
    generation: Option<u64>,
    whole: bool,
) -> Result<Value, Failure> {
    let notes = plan.notes.iter().chain(&applied.notes);
    serde_json::to_value(Report {
        edge: &plan.edge,
        generation,
        changes,
        kept: &applied.kept,
        replaced: &applied.replaced,
        added: &applied.added,
        removed: &applied.removed,
        attached: &applied.attached,
        detached: &applied.detached,
        notes: notes.map(String::as_str).collect(),
        plan: whole.then_some(plan),
    })
    .map_err(Failure::failed)
}

/// Applies again whenever a file changes, until a signal. Mistakes are shown, and what runs goes on.
fn watch(args: &ApplyArgs, planned: Planned, stop: &AtomicBool) -> Result<ExitCode, Failure> {
    let name = planned.edge.clone();
    let path = planned.files[0].0.clone();
    output::complain(&format!(
        "watching {}; Ctrl-C stops watching, not the edge",
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
                output::complain(&format!("{failure}; the running state is unchanged"));
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
    let planned = plan(path, args.edge.as_deref())?;
    if planned.edge != name {
        return Err(Failure::Usage(format!(
            "{}: the edge is called {} now, but {name} is being watched: stop watching, then apply it",
            path.display(),
            planned.edge
        )));
    }
    if !planned.is_running()? {
        carry_out(args, &planned)?;
    }
    Ok(planned)
}

fn changed((path, seen): &mut (PathBuf, Option<Vec<u8>>)) -> bool {
    std::fs::read(path).ok() != *seen
}
