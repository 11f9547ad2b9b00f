//! `weir history` and `weir rollback`: what an edge was changed to, by whom, and the way back to it.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use weir_runtime::RuntimeError;
use weir_runtime::history::{Author, Entry, History};

use crate::args::history::{HistoryArgs, RollbackArgs};
use crate::failure::Failure;
use crate::output;

/// Lines of a change that the list shows.
const LINES: usize = 3;

/// Records what an edge was just changed to. That a change cannot be recorded is said, and undoes nothing.
pub(crate) fn note(edge: &str) {
    let noted = match History::of(edge) {
        Ok(Some(history)) => history.note(&Author::of_process()).map(drop),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = noted {
        output::complain(&format!("the change is not in the history: {error}"));
    }
}

pub(crate) fn run(args: &HistoryArgs) -> Result<ExitCode, Failure> {
    let (edge, history) = open(args.edge.as_deref())?;
    if let Some(number) = args.number {
        let entry = history.entry(number)?;
        match args.json {
            true => output::json(&as_json(&entry))?,
            false => output::out(&text(&as_json(&entry), usize::MAX))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (entries, damaged) = history.entries()?;
    for error in damaged {
        output::complain(&error.to_string());
    }
    let list = list_json(&edge, &entries, newest_runs(&history, &entries)?);
    show_list(&list, args.json)
}

/// Prints all entries.
pub(super) fn show_list(list: &Value, is_json: bool) -> Result<ExitCode, Failure> {
    if is_json {
        output::json(list)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::out(&list_text(list))?;
    if let Some(warning) = warning(list) {
        output::complain(&warning);
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether what runs is what the newest entry says.
pub(super) fn newest_runs(history: &History, entries: &[Entry]) -> Result<bool, RuntimeError> {
    match entries.last() {
        Some(newest) => history.is_current(newest),
        None => Ok(true),
    }
}

pub(super) fn list_json(edge: &str, entries: &[Entry], newest_runs: bool) -> Value {
    let list: Vec<Value> = entries.iter().map(as_json).collect();
    json!({ "edge": edge, "changes": list, "newest_runs": newest_runs })
}

pub(crate) fn rollback(args: &RollbackArgs) -> Result<ExitCode, Failure> {
    let (edge, history) = open(args.edge.as_deref())?;
    let entry = match args.number {
        Some(number) => history.entry(number)?,
        None => before_newest(&edge, &history)?,
    };
    let changes = history.changes_to(&entry)?;
    let applied = match args.dry_run || changes.is_empty() {
        true => None,
        false => Some(history.go_back(&entry, &Author::of_process())?),
    };
    let back = back_json(&edge, &entry, &changes, applied);
    match args.json {
        true => output::json(&back)?,
        false => output::out(&back_text(&back))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What a rollback changes, or changed; then with the number of its own change.
pub(super) fn back_json(
    edge: &str,
    entry: &Entry,
    changes: &[String],
    applied: Option<Option<u32>>,
) -> Value {
    let mut value = json!({
        "edge": edge, "to": entry.number, "runs": entry.ran(), "changes": changes,
        "applied": applied.is_some(),
    });
    if let Some(number) = applied {
        value["number"] = json!(number);
    }
    value
}

/// The entry that a rollback without a number goes to.
pub(super) fn before_newest(edge: &str, history: &History) -> Result<Entry, Failure> {
    let (mut entries, _) = history.entries()?;
    match entries.last() {
        // A change that was not recorded is undone by going to the newest.
        Some(newest) if !history.is_current(newest)? => {}
        _ => drop(entries.pop()),
    }
    entries.pop().ok_or_else(|| {
        Failure::Failed(format!(
            "edge {edge} has no earlier state in its history; `weir down --edge {edge}` takes it down"
        ))
    })
}

/// The edge that is named, or the only one that runs here.
fn open(given: Option<&str>) -> Result<(String, History), Failure> {
    let edge = match given {
        Some(given) => given.to_owned(),
        None => match weir_runtime::edges()?.as_slice() {
            [only] => only.clone(),
            [] => {
                return Err(Failure::Usage(
                    "no edge runs here: name one with --edge".to_owned(),
                ));
            }
            many => {
                return Err(Failure::Usage(format!(
                    "several edges run here: select one with --edge ({})",
                    many.join(", ")
                )));
            }
        },
    };
    match History::of(&edge)? {
        Some(history) => Ok((edge, history)),
        None => Err(Failure::Failed(
            "this host keeps no history: the directory /var/lib/weir does not exist. The package creates it; `mkdir -m 700 /var/lib/weir` does, too"
                .to_owned(),
        )),
    }
}

/// An entry, as JSON has it.
pub(super) fn text(entry: &Value, most: usize) -> String {
    let part = |name: &str| entry[name].as_str().unwrap_or_default();
    format!(
        "{:>3}  {}  {}  {}\n{}",
        entry["number"].as_u64().unwrap_or_default(),
        part("time"),
        part("user"),
        part("command"),
        lines(&strings(&entry["changes"]), most)
    )
}

/// All entries, as JSON has them.
pub(super) fn list_text(list: &Value) -> String {
    let entries = list["changes"].as_array().map_or(&[][..], Vec::as_slice);
    match entries {
        [] => format!(
            "edge {} has no history yet\n",
            list["edge"].as_str().unwrap_or_default()
        ),
        entries => entries.iter().map(|entry| text(entry, LINES)).collect(),
    }
}

/// That what runs is not the newest entry; `None`: it is.
pub(super) fn warning(list: &Value) -> Option<String> {
    (list["newest_runs"] == false).then(|| {
        format!(
            "what runs is not the newest entry: edge {} was changed since, by a command that ended before it could record it",
            list["edge"].as_str().unwrap_or_default()
        )
    })
}

/// What a rollback changes, or changed, as JSON has it.
pub(super) fn back_text(back: &Value) -> String {
    let (edge, to) = (back["edge"].as_str().unwrap_or_default(), &back["to"]);
    let changes = strings(&back["changes"]);
    if changes.is_empty() {
        return format!("edge {edge} already is what change {to} made it\n");
    }
    let changes = lines(&changes, usize::MAX);
    if back["applied"] != true {
        return changes;
    }
    let now = match back["runs"] == true {
        true => format!("is what change {to} made it"),
        false => format!("was taken down, as after change {to}"),
    };
    format!(
        "{changes}edge {edge} {now}\nthe files were not changed: the next `weir apply` applies what they say\n"
    )
}

fn strings(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn lines(changes: &[String], most: usize) -> String {
    let mut text = String::new();
    for line in changes.iter().take(most) {
        let _ = writeln!(text, "     {line}");
    }
    if changes.len() > most {
        let _ = writeln!(text, "     and {} more lines", changes.len() - most);
    }
    text
}

pub(super) fn as_json(entry: &Entry) -> Value {
    json!({
        "number": entry.number,
        "time": weir_value::utc(entry.time),
        "user": entry.author.user,
        "command": entry.author.command,
        "runs": entry.ran(),
        "changes": entry.changes,
    })
}
