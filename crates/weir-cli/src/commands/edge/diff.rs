//! `weir diff`: what `weir apply` of a file would change of what runs. Changes nothing.

use std::process::ExitCode;

use serde_json::{Value, json};
use weir_runtime::Changes;

use super::plan;
use crate::args::EdgeDiffArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &EdgeDiffArgs) -> Result<ExitCode, Failure> {
    let planned = plan(&args.config, args.edge.as_deref())?;
    let changes = planned.changes(&mut |note| output::complain(&note))?;
    match args.json {
        true => output::json(&json(&planned.edge, &changes)?)?,
        false => output::out(&text(&changes))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(changes: &Changes) -> String {
    let mut text = String::new();
    if let Some(found) = &changes.graph {
        text.push_str(&found.diff.to_string());
    }
    if let Some(found) = &changes.networks {
        if found.diff.is_empty() && !found.are_removed {
            text.push_str("the networks stay as they are\n");
        } else {
            text.push_str(&format!("networks:\n{}", found.diff));
        }
    }
    text
}

/// What would change, a line each; none: what runs is what the file says.
pub(crate) fn lines(changes: &Changes) -> Vec<String> {
    let is_same_graph = (changes.graph.as_ref()).is_none_or(|found| found.diff.is_empty());
    let networks = changes.networks.as_ref();
    let are_same = networks.is_none_or(|found| found.diff.is_empty() && !found.are_removed);
    match is_same_graph && are_same {
        true => Vec::new(),
        false => text(changes).lines().map(str::to_owned).collect(),
    }
}

/// The same for programs.
pub(crate) fn json(edge: &str, changes: &Changes) -> Result<Value, Failure> {
    let mut value = json!({ "edge": edge });
    if let Some(found) = &changes.graph {
        value["running"] = json!(found.is_running);
        value["changes"] = serde_json::to_value(&found.diff).map_err(Failure::failed)?;
    }
    if let Some(found) = &changes.networks {
        value["networks"] = json!({ "running": found.is_running, "changes": found.diff });
    }
    Ok(value)
}
