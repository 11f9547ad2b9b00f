//! `weir diff`: what `weir apply` of a configuration would change of what runs. Changes nothing.

use std::process::ExitCode;

use weir_graph::{Diff, Outline};

use super::{Planned, plan, running};
use crate::args::EdgeDiffArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &EdgeDiffArgs) -> Result<ExitCode, Failure> {
    let planned = plan(&args.config)?;
    let found = against_running(&planned)?;
    if args.json {
        output::json(&serde_json::json!({
            "edge": planned.plan.edge,
            "running": found.is_running,
            "changes": found.diff,
        }))?;
    } else {
        output::out(&found.diff.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A plan beside what runs.
pub(super) struct Found {
    /// Whether the edge runs at all.
    pub(super) is_running: bool,
    pub(super) diff: Diff,
}

pub(super) fn against_running(planned: &Planned) -> Result<Found, Failure> {
    let record = running(&planned.plan.edge)?;
    let before = record.as_ref().map(|record| &record.outline);
    let nothing = Outline::default();
    Ok(Found {
        is_running: record.is_some(),
        diff: weir_graph::diff(before.unwrap_or(&nothing), &planned.record.outline),
    })
}
