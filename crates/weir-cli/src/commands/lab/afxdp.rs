//! `weir lab afxdp`: a sweep from its document to its results, with progress on the way.
//!
//! Exit status 0 if it ran, whatever came out; 1 if it could not go on, 2 for what cannot be.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use weir_lab::afxdp::results::{self, Pruned, Results};
use weir_lab::afxdp::{self, AfxdpError, Bed, Ends, Options, PRESETS, Plan, Sweep, Told};

use crate::args::lab::AfxdpArgs;
use crate::failure::Failure;
use crate::limits::stop_on_signals;
use crate::output;

pub(crate) fn run(args: &AfxdpArgs) -> Result<ExitCode, Failure> {
    if args.restore {
        return restore(args);
    }
    if let (Some(listen), Some(interface)) = (args.listen, &args.interface) {
        let stop = stop_on_signals()?;
        let tell = |text: &str| output::tell(&format!("{text}\n"));
        afxdp::remote::serve(interface, listen, args.i_own_this_network, &stop, &tell)
            .map_err(failure)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(code) = args
        .judge
        .without_sweep(args.output.as_deref(), args.json)?
    {
        return Ok(code);
    }
    let (name, text) = document(args)?;
    if args.show {
        output::out(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut sweep = Sweep::parse(&text, &name).map_err(Failure::usage)?;
    if let Some(seed) = args.seed {
        sweep.seed = seed;
    }
    if let Some(blocks) = args.blocks {
        sweep.blocks = blocks;
    }
    let ends = match (&args.interface, &args.forwarder, &args.remote) {
        (Some(near), Some(far), _) => Ends::Interfaces(near.clone(), far.clone()),
        (Some(near), _, Some(address)) => Ends::Remote(near.clone(), address.clone()),
        (Some(near), None, None) => {
            return Err(Failure::Usage(format!(
                "where is the forwarder? --forwarder IF names its interface on this host, which is connected with {near}; --remote HOST:PORT another host's `weir lab afxdp -i IF --listen ADDRESS:PORT`"
            )));
        }
        (None, ..) => Ends::Bed,
    };
    let stop = stop_on_signals()?;
    let progress = Progress::new(args.progress);
    let tell = |told: Told<'_>| progress.tell(told);
    if args.dry_run {
        let bed = Bed::new(&ends, args.i_own_this_network, &tell).map_err(failure)?;
        let plan = bed.plan(&sweep).map_err(failure)?;
        bed.restore().map_err(failure)?;
        return dry_run(args, &sweep, &plan);
    }
    let options = Options {
        sweep: &sweep,
        ends,
        out: args.output.as_deref(),
        time_limit: args.time_limit,
        owned: args.i_own_this_network,
        stop: &stop,
        tell: &tell,
        beside: &|results| args.judge.beside(results),
    };
    let results = afxdp::run(&options);
    progress.end();
    let results = results.map_err(failure)?;
    if let Some(folder) = &args.output {
        write(folder, &results)?;
    }
    judge(args, &results)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows results and what they mean, and writes the report beside them.
fn judge(args: &AfxdpArgs, results: &Results) -> Result<(), Failure> {
    if args.json {
        output::json(results)?;
    } else {
        output::out(&format!("{}\n", table(results)))?;
    }
    let judgement = args.judge.judge(results);
    args.judge
        .finish(&judgement, args.output.as_deref(), args.json)
}

fn restore(args: &AfxdpArgs) -> Result<ExitCode, Failure> {
    let lines = afxdp::restore_orphans().map_err(Failure::failed)?;
    if args.json {
        output::json(&serde_json::json!({ "restored": lines }))?;
    } else if lines.is_empty() {
        output::out("no killed sweep left anything\n")?;
    } else {
        output::out(&format!("{}\n", lines.join("\n")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn document(args: &AfxdpArgs) -> Result<(String, String), Failure> {
    if let Some(path) = &args.document {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::Usage(format!("cannot read {}: {e}", path.display())))?;
        return Ok((path.display().to_string(), text));
    }
    match Sweep::preset(&args.preset) {
        Some(text) => Ok((args.preset.clone(), text.to_owned())),
        None => {
            let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
            Err(Failure::Usage(format!(
                "unknown preset `{}`: {}",
                args.preset,
                names.join(", ")
            )))
        }
    }
}

fn failure(error: AfxdpError) -> Failure {
    if error.is_usage() {
        Failure::usage(error)
    } else {
        Failure::failed(error)
    }
}

fn write(folder: &Path, results: &Results) -> Result<(), Failure> {
    let path = folder.join("results.json");
    let text = serde_json::to_string(results).map_err(Failure::failed)?;
    std::fs::write(&path, text)
        .map_err(|e| Failure::Failed(format!("cannot write {}: {e}", path.display())))
}

fn dry_run(args: &AfxdpArgs, sweep: &Sweep, plan: &Plan) -> Result<ExitCode, Failure> {
    let cells: Vec<String> = plan
        .space
        .cells
        .iter()
        .map(afxdp::sweep::Combination::id)
        .collect();
    if args.json {
        output::json(&serde_json::json!({
            "name": sweep.name,
            "cells": cells,
            "controls": plan.controls,
            "pruned": plan.space.pruned,
            "blocks": sweep.blocks,
            "seed": sweep.seed,
            "estimate_seconds": plan.estimate.as_secs_f64(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for id in &cells {
        let _ = writeln!(text, "{id}");
    }
    let _ = writeln!(
        text,
        "{} cells and {} controls ({}) in {} blocks, seed {}: about {}",
        cells.len(),
        plan.controls.len(),
        plan.controls.join(", "),
        sweep.blocks,
        sweep.seed,
        words(plan.estimate)
    );
    pruned(&mut text, &plan.space.pruned);
    output::out(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn pruned(text: &mut String, pruned: &[Pruned]) {
    for class in pruned {
        let _ = writeln!(
            text,
            "left out {:>5}: {} (as {})",
            class.count, class.reason, class.example
        );
    }
}

/// One line for each cell, quickest first: medians over its blocks.
fn table(results: &Results) -> String {
    let mut rows: Vec<(f64, String)> = results.cells.iter().map(row).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut text = format!(
        "{:>10} {:>10} {:>8} {:>9}  cell\n{:>10} {:>10} {:>8} {:>9}\n",
        "median", "p99", "CPU", "lost", "us", "us", "us/trip", "of"
    );
    for (_, row) in rows {
        text.push_str(&row);
    }
    for extra in &results.extras {
        let mut sorted = extra.samples.clone();
        sorted.sort_unstable();
        let median = sorted
            .get(sorted.len() / 2)
            .map_or(f64::NAN, |ns| *ns as f64 / 1e3);
        let [sent, received] = extra.counts;
        let _ = writeln!(
            text,
            "{median:>10.2} us at {:.0} {} ({}), {} of {sent} lost: {}",
            extra.at,
            extra.unit,
            extra.kind,
            sent - received.min(sent),
            extra.cell
        );
    }
    for name in &results.left_out {
        let _ = writeln!(text, "left out, for the time limit was reached: {name}");
    }
    pruned(&mut text, &results.pruned);
    let _ = writeln!(
        text,
        "{} cells, {} blocks, {}",
        results.cells.len(),
        results.blocks,
        words(Duration::from_secs_f64(results.seconds.max(0.0)))
    );
    text
}

fn row(cell: &results::Cell) -> (f64, String) {
    let over = |of: &dyn Fn(&results::Run) -> Option<f64>| {
        let mut values: Vec<f64> = cell.runs.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let quantile = |run: &results::Run, part: f64| {
        let mut sorted = run.samples.clone();
        sorted.sort_unstable();
        let at = ((part * sorted.len() as f64).ceil() as usize).max(1) - 1;
        sorted.get(at).map(|ns| *ns as f64 / 1e3)
    };
    let median = over(&|run| quantile(run, 0.5));
    let p99 = over(&|run| quantile(run, 0.99));
    let cpu = over(&|run| (run.received > 0).then_some(run.cpu_per_packet / 1e3));
    let (sent, received) = cell
        .runs
        .iter()
        .fold((0, 0), |(s, r), run| (s + run.sent, r + run.received));
    let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
    let mut text = format!(
        "{:>10} {:>10} {:>8} {:>9}  {}",
        show(median),
        show(p99),
        show(cpu),
        format!("{}/{sent}", sent - received.min(sent)),
        cell.id
    );
    let failure = cell.runs.iter().find_map(|run| run.failure.as_deref());
    let unmet = cell.runs.iter().find_map(|run| run.effective.unmet.first());
    if let Some(why) = failure {
        let _ = write!(text, "; FAILED: {why}");
    } else if let Some(why) = unmet {
        let _ = write!(text, "; NOT SO: {why}");
    }
    text.push('\n');
    (median.unwrap_or(f64::MAX), text)
}

fn words(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0..=99 => format!("{:.0} s", time.as_secs_f64()),
        100..=5999 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// On standard error: in place on a terminal, a line now and then elsewhere if it was asked for.
struct Progress {
    terminal: bool,
    asked: bool,
    /// Lines elsewhere come at most for each hundredth.
    shown: Cell<u64>,
}

impl Progress {
    fn new(asked: bool) -> Progress {
        Progress {
            terminal: output::stderr_is_terminal(),
            asked,
            shown: Cell::new(u64::MAX),
        }
    }

    fn tell(&self, told: Told<'_>) {
        match told {
            Told::Note(text) => {
                self.end();
                output::tell(&format!("{text}\n"));
            }
            Told::Progress {
                done,
                all,
                left,
                cell,
            } => {
                let line = format!("{done}/{all} runs, {} left: {cell}", words(left));
                if self.terminal {
                    output::tell(&format!("\r\x1b[K{line}"));
                } else if self.asked
                    && self.shown.replace(done * 100 / all.max(1)) != done * 100 / all.max(1)
                {
                    output::tell(&format!("{line}\n"));
                }
            }
        }
    }

    /// Leaves the line free.
    fn end(&self) {
        if self.terminal {
            output::tell("\r\x1b[K");
        }
    }
}
