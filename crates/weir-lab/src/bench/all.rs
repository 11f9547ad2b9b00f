//! `weir bench all`: every benchmark, one after the other, and all targets in one table.
//!
//! A benchmark that cannot be carried out is told with its reason and does not end the run. Invariant: what the limits say is measured
//! first, so that each row can be compared with what its budget costs here.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::report::{Budget, Figure, Outcome, short};
use super::sensor::{SensorBench, Traffic, sensor};
use super::{BenchOptions, balancer, ddos, limits, middlebox, network, router, vm, xdp, xsk};
use crate::LabError;

/// What one of the benchmarks came to.
#[derive(Debug, Serialize)]
pub struct BenchRun {
    /// Its name.
    pub bench: &'static str,
    /// How long it took.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// What it found; nothing if it could not be carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it could not be carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Everything that a run of all benchmarks found.
#[derive(Debug, Serialize)]
pub struct All {
    /// In the order measured.
    pub parts: Vec<BenchRun>,
}

type Run = fn(&BenchOptions<'_>, &mut dyn Write) -> Result<Outcome, LabError>;

/// All benchmarks but the sensor's; the limits first, since others are compared with them.
const BENCHES: [(&str, Run); 9] = [
    ("limits", limits),
    ("vm", vm),
    ("middlebox", middlebox),
    ("xdp", xdp),
    ("ddos", ddos),
    ("router", router),
    ("balancer", balancer),
    ("network", network),
    ("xsk", xsk),
];
const SENSOR: &str = "sensor";

/// Runs all benchmarks whose names start with one of `options.only`, or all; says on `out` which one is under way. The sensor reads the
/// captures and rules in `shared` if they are there, else its own.
///
/// # Errors
/// When nothing is selected, the user stops the run or the output fails. A benchmark that fails is a result.
pub fn all(
    options: &BenchOptions<'_>,
    shared: &Path,
    out: &mut dyn Write,
) -> Result<All, LabError> {
    let names = || BENCHES.iter().map(|(name, _)| *name).chain([SENSOR]);
    for wanted in &options.only {
        if !names().any(|name| name.starts_with(wanted)) {
            let all: Vec<&str> = names().collect();
            return Err(LabError::NothingSelected(wanted.clone(), all.join(", ")));
        }
    }
    let wanted = |name: &str| {
        options.only.is_empty() || options.only.iter().any(|only| name.starts_with(only))
    };
    let mut parts = Vec::new();
    for bench in names().filter(|name| wanted(name)) {
        if !options.quiet {
            writeln!(out, "weir bench {bench}")?;
            out.flush()?;
        }
        let options = BenchOptions {
            weir: options.weir.clone(),
            only: Vec::new(),
            rules: options.rules.clone(),
            peer: options.peer.clone(),
            quiet: true,
            ..*options
        };
        let started = Instant::now();
        let run = BENCHES.iter().find(|(name, _)| *name == bench);
        // In a thread of its own: benchmarks bind theirs to a CPU, and what comes behind must have all.
        let result = std::thread::scope(|scope| {
            let measuring = scope.spawn(|| match run {
                Some((_, run)) => run(&options, &mut std::io::sink()),
                None => sensor(&on_captures(shared), &options, &mut std::io::sink()),
            });
            measuring.join()
        });
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (outcome, failed) = match result {
            Ok(outcome) => (Some(outcome), None),
            Err(error @ (LabError::Interrupted | LabError::Output(_))) => return Err(error),
            Err(error) => (None, Some(error.to_string())),
        };
        parts.push(BenchRun {
            bench,
            took: started.elapsed(),
            outcome,
            failed,
        });
    }
    Ok(All { parts })
}

fn on_captures(shared: &Path) -> SensorBench {
    SensorBench {
        traffic: Traffic {
            multiple: 1.0,
            shared: shared.to_owned(),
            ..Traffic::default()
        },
        ..SensorBench::default()
    }
}

impl All {
    /// One row for each target, under a heading for the columns.
    fn rows(&self) -> Vec<[String; 8]> {
        let mut rows = vec![
            [
                "figure", "value", "against", "ratio", "target", "state", "budget", "limit",
            ]
            .map(str::to_owned),
        ];
        let limits = self.outcomes().find(|o| o.bench == "limits");
        for outcome in self.outcomes() {
            for target in &outcome.targets {
                let figure = outcome.figure(&target.figure);
                let budget = figure.and_then(|f| f.budget);
                let serial = budget.zip(limits).and_then(|(budget, limits)| {
                    let is_cold = !target.figure.ends_with(".hot");
                    serial_ns(&budget, limits, is_cold)
                });
                rows.push([
                    format!("{}: {}", outcome.bench, target.figure),
                    figure.map_or_else(String::new, value),
                    target.against.clone(),
                    format!("{:.2}", target.ratio),
                    target.promise.clone(),
                    target.state().to_owned(),
                    budget.map_or_else(String::new, |b| {
                        format!(
                            "{} calls, {} helpers, {}+{} lines",
                            b.calls, b.helpers, b.shared_lines, b.own_lines
                        )
                    }),
                    serial.map_or_else(String::new, |ns| format!("{} ns", short(ns))),
                ]);
            }
        }
        rows
    }

    /// All targets: value, what it is compared with and whether it holds, with the figure's budget and what that costs one by one, by the
    /// limits of the same run; then the time that each benchmark took, and what has no figure.
    pub fn table(&self) -> String {
        let rows = self.rows();
        let mut text = String::new();
        if let Some(outcome) = self.outcomes().next() {
            let _ = writeln!(
                text,
                "{}\ncommit {}, {}{}",
                outcome.machine,
                outcome.commit,
                outcome.date,
                if outcome.quick {
                    ", --quick: rough figures"
                } else {
                    ""
                }
            );
        }
        let widths: Vec<usize> = (0..8)
            .map(|n| rows.iter().map(|r| r[n].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &rows {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let judged: Vec<bool> = self
            .outcomes()
            .flat_map(|o| o.targets.iter().filter_map(|t| t.met))
            .collect();
        let met = judged.iter().filter(|met| **met).count();
        let _ = writeln!(text, "{met} of {} targets are met", judged.len());
        for part in &self.parts {
            let _ = writeln!(
                text,
                "{}: {:.0} s{}",
                part.bench,
                part.took.as_secs_f64(),
                part.failed
                    .as_ref()
                    .map_or_else(String::new, |why| format!(", not measured: {why}"))
            );
        }
        for outcome in self.outcomes() {
            for absent in &outcome.absent {
                let _ = writeln!(
                    text,
                    "{}: {} is not installed (package {})",
                    outcome.bench, absent.program, absent.package
                );
            }
            for refused in &outcome.refused {
                let _ = writeln!(
                    text,
                    "{}: without a figure: {}: {}",
                    outcome.bench, refused.name, refused.why
                );
            }
        }
        text
    }

    /// The rows of the table, separated by tabs, behind a line for the run.
    pub fn tsv(&self) -> String {
        let about = self.outcomes().next().map(|outcome| {
            format!(
                "# weir bench all{}; {}; commit {}; {}\n# ",
                if outcome.quick { " --quick" } else { "" },
                outcome.machine,
                outcome.commit,
                outcome.date
            )
        });
        let rows = self.rows().into_iter();
        let rows: String = rows.map(|row| row.join("\t") + "\n").collect();
        about.unwrap_or_default() + &rows
    }

    /// Whether each benchmark could be carried out.
    pub fn is_whole(&self) -> bool {
        self.parts.iter().all(|part| part.failed.is_none())
    }

    /// What was found.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.parts.iter().filter_map(|part| part.outcome.as_ref())
    }
}

fn value(figure: &Figure) -> String {
    format!("{} {}", short(figure.value), figure.unit)
}

/// ns that a budget's calls and lines take one after the other. Lines of a packet's own come from memory where packets are cold, and from the
/// first cache where they are hot. Processors overlap loads that do not wait for each other, so cold packets can take less.
fn serial_ns(budget: &Budget, limits: &Outcome, is_cold: bool) -> Option<f64> {
    let of = |name: &str| Some(limits.figure(name)?.value);
    let near = of("memory.16")?;
    let far = if is_cold { of("memory.65536")? } else { near };
    Some(
        budget.calls as f64 * of("call")?
            + budget.helpers as f64 * of("helper")?
            + budget.own_lines as f64 * far,
    )
}

fn seconds<S: serde::Serializer>(took: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((took.as_secs_f64() * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::super::measure::Samples;
    use super::super::report::Promise;
    use super::*;

    fn part(bench: &'static str, figures: &[(&str, f64, Option<Budget>)]) -> BenchRun {
        let mut outcome = Outcome::new(bench, true);
        for (name, value, budget) in figures {
            let mut figure = Figure::new(*name, "ns", Samples(vec![*value]));
            figure.budget = *budget;
            outcome.figures.push(figure);
        }
        BenchRun {
            bench,
            took: Duration::from_secs(3),
            outcome: Some(outcome),
            failed: None,
        }
    }

    #[test]
    fn a_row_shows_what_its_budget_costs_here() {
        let budget = Budget {
            instructions: 300,
            calls: 2,
            helpers: 3,
            shared_lines: 9,
            own_lines: 4,
        };
        let limits = [
            ("memory.16", 2.0, None),
            ("memory.65536", 100.0, None),
            ("call", 1.5, None),
            ("helper", 2.0, None),
        ];
        let mut middlebox = part(
            "middlebox",
            &[
                ("a.cold", 600.0, Some(budget)),
                ("a.hot", 60.0, Some(budget)),
                ("b", 300.0, None),
            ],
        );
        if let Some(outcome) = &mut middlebox.outcome {
            outcome.compare("a.cold", "b", Promise::AtMost(1.0));
            outcome.compare("a.hot", "b", Promise::AtMost(1.0));
        }
        let all = All {
            parts: vec![
                part("limits", &limits),
                middlebox,
                BenchRun {
                    bench: "xsk",
                    took: Duration::ZERO,
                    outcome: None,
                    failed: Some("no sockets".to_owned()),
                },
            ],
        };
        assert!(!all.is_whole());
        let table = all.table();
        let row = |name: &str| table.lines().find(|l| l.contains(name)).unwrap_or_default();
        assert!(
            row("a.cold").ends_with("2 calls, 3 helpers, 9+4 lines  409 ns"),
            "{table}"
        );
        assert!(row("a.hot").ends_with("17.0 ns"), "{table}");
        assert!(
            row("a.cold").contains("NOT MET") && row("a.hot").contains("  met"),
            "{table}"
        );
        assert!(table.contains("1 of 2 targets are met"), "{table}");
        assert!(
            table.contains("xsk: 0 s, not measured: no sockets"),
            "{table}"
        );
    }
}
