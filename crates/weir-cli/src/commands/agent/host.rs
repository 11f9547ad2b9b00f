//! What the API of the agent asks of the host: the JSON that commands print, made by the same functions.

use serde_json::Value;
use weir_agent::api::{Host, Problem};
use weir_agent::{View, metrics};
use weir_runtime::RuntimeError;
use weir_runtime::history::History;

use crate::commands::edge::status::Found;
use crate::commands::history;
use crate::failure::Failure;

/// This host, in the network namespace of the process.
pub(super) struct Here;

impl Host for Here {
    fn status(&self, edge: Option<&str>, with_hits: bool) -> Result<Value, Problem> {
        if let Some(edge) = edge {
            runs(edge)?;
        }
        let found = Found::read(edge, with_hits).map_err(failed)?;
        found.json().map_err(failed)
    }

    fn history(&self, edge: &str, number: Option<u32>) -> Result<Value, Problem> {
        let history = open(edge)?;
        let (entries, _) = history.entries().map_err(failed)?;
        if entries.is_empty() {
            runs(edge)?;
        }
        let Some(number) = number else {
            let newest_runs = history::newest_runs(&history, &entries).map_err(failed)?;
            return Ok(history::list_json(edge, &entries, newest_runs));
        };
        let entry = entries.iter().find(|entry| entry.number == number);
        entry.map(history::as_json).ok_or_else(|| {
            Problem::not_found(
                format!("edge {edge} has no change {number} in its history"),
                format!("GET /v1/edges/{edge}/history lists them"),
            )
        })
    }

    fn metrics(&self, view: &View) -> Result<String, Problem> {
        metrics::openmetrics(Some(view)).map_err(failed)
    }
}

fn failed(failure: impl Into<Failure>) -> Problem {
    Problem::failed(failure.into().to_string())
}

/// Whether an edge runs here.
fn runs(edge: &str) -> Result<(), Problem> {
    let edges = weir_runtime::edges().map_err(failed)?;
    match edges.iter().any(|one| one == edge) {
        true => Ok(()),
        false => Err(Problem::not_found(
            format!("no edge {edge} runs here"),
            match edges.as_slice() {
                [] => "apply one: put its file into the folder of the agent".to_owned(),
                some => format!("running edges: {}", some.join(", ")),
            },
        )),
    }
}

fn open(edge: &str) -> Result<History, Problem> {
    match History::of(edge) {
        Ok(Some(history)) => Ok(history),
        Ok(None) => Err(Problem::not_found(
            "this host keeps no history",
            "create the state folder: `mkdir -m 700 /var/lib/weir`",
        )),
        Err(RuntimeError::Usage(text)) => {
            Err(Problem::not_found(text, "GET /v1/status lists edges"))
        }
        Err(error) => Err(failed(error)),
    }
}
