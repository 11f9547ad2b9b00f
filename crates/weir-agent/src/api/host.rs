//! What the server asks of the host that it serves.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use weir_runtime::history::Author;

use super::problem::Problem;
use crate::agent::View;

/// What the API asks of the host, which the command line answers in the same words.
pub trait Host: Send + Sync + 'static {
    /// What `weir status --json` prints, of one edge or of all.
    ///
    /// # Errors
    /// No such edge runs, or its state cannot be read.
    fn status(&self, edge: Option<&str>, with_hits: bool) -> Result<Value, Problem>;

    /// What `weir status` prints as text.
    ///
    /// # Errors
    /// As of [`Host::status`].
    fn status_text(&self, edge: Option<&str>, with_hits: bool) -> Result<String, Problem>;

    /// What `weir history --json` prints, of one change or of all.
    ///
    /// # Errors
    /// There is no such edge or change, or no history is kept.
    fn history(&self, edge: &str, number: Option<u32>) -> Result<Value, Problem>;

    /// Nodes and links of an edge with their counters, as docs/openapi.json describes them.
    ///
    /// # Errors
    /// No such edge runs, or its state cannot be read.
    fn graph(&self, edge: &str) -> Result<Value, Problem>;

    /// Connections of the functions of an edge that track them, or of one: at most so many of each table.
    ///
    /// # Errors
    /// No such edge runs, or its state cannot be read.
    fn connections(
        &self,
        edge: &str,
        function: Option<&str>,
        limit: usize,
    ) -> Result<Value, Problem>;

    /// Whether a change of an edge waits for confirmation, and for how many seconds yet.
    ///
    /// # Errors
    /// No such edge runs.
    fn waiting(&self, edge: &str) -> Result<Value, Problem>;

    /// What `weir diff --json` prints of a file, and in `lines` what it prints as text, unless nothing differs. Changes nothing.
    ///
    /// # Errors
    /// The file has mistakes.
    fn plan(&self, file: &Path) -> Result<Value, Problem>;

    /// What `weir apply --confirm` does with a file: returns when it waits for confirmation.
    ///
    /// # Errors
    /// The file has mistakes, another change waits, or the kernel refused.
    fn try_out(
        &self,
        edge: &str,
        file: &Path,
        limit: Duration,
        author: &Author,
    ) -> Result<Value, Problem>;

    /// What `weir drops --json` prints. Takes that long.
    ///
    /// # Errors
    /// No such edge runs, or something else watches it.
    fn drops(&self, edge: &str, time: Duration) -> Result<Value, Problem>;

    /// What `weir rollback --json` does and prints.
    ///
    /// # Errors
    /// There is nothing to go back to, or the kernel refused.
    fn rollback(
        &self,
        edge: &str,
        to: Option<u32>,
        is_dry_run: bool,
        author: &Author,
    ) -> Result<Value, Problem>;

    /// What `weir apply --confirm-now --json` does and prints.
    ///
    /// # Errors
    /// Nothing waits for it.
    fn confirm(&self, edge: &str) -> Result<Value, Problem>;

    /// What `weir status --openmetrics` prints, and how the agent stands.
    ///
    /// # Errors
    /// What runs cannot be read.
    fn metrics(&self, view: &View) -> Result<String, Problem>;
}
