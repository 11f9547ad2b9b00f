//! What the API of the agent asks of the host: the JSON that commands print, made by the same functions.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weir_agent::api::{Host, Problem};
use weir_agent::{View, metrics};
use weir_runtime::RuntimeError;
use weir_runtime::connections::tracked;
use weir_runtime::history::{Author, Entry, History};

use super::beside;
use super::failed::failed;
use super::graph::Graph;
use crate::commands::connections;
use crate::commands::edge::status::Found;
use crate::commands::edge::{confirm, diff};
use crate::commands::history;

/// This host, in the network namespace of the process.
pub(crate) struct Here;

impl Host for Here {
    fn status(&self, edge: Option<&str>, with_hits: bool) -> Result<Value, Problem> {
        if let Some(edge) = edge {
            runs(edge)?;
        }
        let found = Found::read(edge, with_hits).map_err(failed)?;
        found.json().map_err(failed)
    }

    fn status_text(&self, edge: Option<&str>, with_hits: bool) -> Result<String, Problem> {
        if let Some(edge) = edge {
            runs(edge)?;
        }
        let found = Found::read(edge, with_hits).map_err(failed)?;
        found.whole_text().map_err(failed)
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
        change(&entries, edge, number).map(history::as_json)
    }

    fn graph(&self, edge: &str) -> Result<Value, Problem> {
        runs(edge)?;
        let graph = Graph::read(edge).map_err(failed)?;
        serde_json::to_value(graph).map_err(|error| Problem::failed(error.to_string()))
    }

    fn connections(
        &self,
        edge: &str,
        function: Option<&str>,
        limit: usize,
    ) -> Result<Value, Problem> {
        runs(edge)?;
        let tables = tracked(Some(edge)).map_err(failed)?;
        let is_meant = |name: &str| function.is_none_or(|function| function == name);
        let mut listed = Vec::new();
        for one in tables.iter().filter(|one| is_meant(&one.function)) {
            listed.push(connections::summary_json(one, limit).map_err(failed)?);
        }
        Ok(json!({ "edge": edge, "tables": listed }))
    }

    fn waiting(&self, edge: &str) -> Result<Value, Problem> {
        runs(edge)?;
        let left = confirm::waits_for(edge).map_err(failed)?;
        Ok(json!({
            "edge": edge,
            "waits": left.is_some(),
            "seconds": left.map_or(0, |left| left.as_secs()),
        }))
    }

    fn plan(&self, file: &Path) -> Result<Value, Problem> {
        let planned = weir_runtime::plan(file, None).map_err(|error| match &error {
            RuntimeError::Mistakes { found, .. } => Problem::mistakes(
                format!("{error}\n{}", found.render(false)),
                "correct the file",
            ),
            _ if error.is_usage() => Problem::mistakes(error.to_string(), "correct the file"),
            _ => failed(error),
        })?;
        let changes = planned.changes(&mut |_| ()).map_err(failed)?;
        let mut value = diff::json(&planned.edge, &changes).map_err(failed)?;
        value["lines"] = json!(diff::lines(&changes));
        Ok(value)
    }

    fn try_out(
        &self,
        edge: &str,
        file: &Path,
        limit: Duration,
        author: &Author,
    ) -> Result<Value, Problem> {
        beside::apply(edge, file, limit, author)
    }

    fn drops(&self, edge: &str, time: Duration) -> Result<Value, Problem> {
        runs(edge)?;
        beside::drops(edge, time)
    }

    fn rollback(
        &self,
        edge: &str,
        to: Option<u32>,
        is_dry_run: bool,
        author: &Author,
    ) -> Result<Value, Problem> {
        let history = open(edge)?;
        let (entries, _) = history.entries().map_err(failed)?;
        if entries.is_empty() {
            runs(edge)?;
        }
        let entry = match to {
            Some(number) => change(&entries, edge, number)?.clone(),
            None => history::before_newest(edge, &history).map_err(|failure| {
                Problem::conflict(failure.to_string(), "name a change with `to`")
            })?,
        };
        let changes = history.changes_to(&entry).map_err(failed)?;
        if is_dry_run || changes.is_empty() {
            return Ok(history::back_json(edge, &entry, &changes, None));
        }
        let number = history
            .go_back(&entry, author)
            .map_err(|error| match error.is_usage() {
                true => Problem::conflict(error.to_string(), "choose another change"),
                false => failed(error),
            })?;
        Ok(history::back_json(edge, &entry, &changes, Some(number)))
    }

    fn confirm(&self, edge: &str) -> Result<Value, Problem> {
        // Names of running edges name files.
        runs(edge)?;
        match confirm::say_yes_to(edge) {
            Ok(true) => Ok(confirm::json(edge)),
            Ok(false) => Err(Problem::conflict(
                format!("no `weir apply --confirm` of edge {edge} is waiting"),
                "GET the history of the edge: it may be over",
            )),
            Err(failure) => Err(failed(failure)),
        }
    }

    fn metrics(&self, view: &View) -> Result<String, Problem> {
        metrics::openmetrics(Some(view)).map_err(failed)
    }
}

/// A change by its number.
fn change<'e>(entries: &'e [Entry], edge: &str, number: u32) -> Result<&'e Entry, Problem> {
    let mut entries = entries.iter();
    entries.find(|entry| entry.number == number).ok_or_else(|| {
        Problem::not_found(
            format!("edge {edge} has no change {number} in its history"),
            format!("GET /v1/edges/{edge}/history lists them"),
        )
    })
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
