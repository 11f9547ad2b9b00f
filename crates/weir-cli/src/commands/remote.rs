//! Commands through an agent, on this host or another: the same words and JSON as on the host itself, asked for by its API.

use std::process::ExitCode;

use serde_json::json;
use weir_agent::api::{AgentClient, ClientError, Method, Target};

use super::reach::{edge_of, quoted};
use super::watch::{drops, top};
use super::{history, logs};
use crate::args::history::{HistoryArgs, RollbackArgs};
use crate::args::watch::{DropsArgs, EdgeArgs};
use crate::args::{ApplyArgs, Command, StatusArgs};
use crate::failure::Failure;
use crate::output;

/// Longest watch of drops that the API offers, and what it is by default, in seconds.
const LONGEST_WATCH: u64 = 30;
const WATCH: u64 = 10;

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::failed(error)
    }
}

/// Whether a command works on files only, so that it is the same everywhere.
pub(super) fn is_of_files(command: &Command) -> bool {
    matches!(
        command,
        Command::Check(_)
            | Command::Fmt(_)
            | Command::Import(_)
            | Command::Export(_)
            | Command::Explain(_)
            | Command::Completions(_)
            | Command::Man(_)
    )
}

/// Runs a command through an agent.
pub(super) fn run(target: Target, command: Command) -> Result<ExitCode, Failure> {
    let client = || AgentClient::new(target.clone());
    match command {
        Command::Status(args) => status(client()?, &args),
        Command::History(args) => changes(client()?, &args),
        Command::Rollback(args) => rollback(client()?, &args),
        Command::Apply(args) if args.confirm_now => confirm(client()?, &args),
        Command::Drops(args) => watch(client()?, &args),
        Command::Top(args) => top::run(&args, Some(target)),
        Command::Logs(args) => logs::run(&args, Some(target)),
        _ => Err(Failure::usage(
            "this command works on the host itself: run it there, without --agent. Through an agent go `status`, `history`, `rollback`, `apply --confirm-now`, `drops`, `top` and `logs`",
        )),
    }
}

fn status(mut agent: AgentClient, args: &StatusArgs) -> Result<ExitCode, Failure> {
    if args.openmetrics {
        output::out(&agent.text("/metrics")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    no_file(args.config.is_some())?;
    let path = match &args.edge {
        Some(edge) => format!("/v1/edges/{}", quoted(edge)),
        None => "/v1/status".to_owned(),
    };
    let path = format!("{path}?hits={}", args.hits);
    match args.json {
        true => output::json(&agent.get(&path)?)?,
        false => output::out(&agent.text(&path)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn changes(mut agent: AgentClient, args: &HistoryArgs) -> Result<ExitCode, Failure> {
    let path = path_of(&mut agent, args.edge.as_deref(), "history")?;
    let Some(number) = args.number else {
        return history::show_list(&agent.get(&path)?, args.json);
    };
    let entry = agent.get(&format!("{path}/{number}"))?;
    match args.json {
        true => output::json(&entry)?,
        false => output::out(&history::text(&entry, usize::MAX))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn rollback(mut agent: AgentClient, args: &RollbackArgs) -> Result<ExitCode, Failure> {
    let path = path_of(&mut agent, args.edge.as_deref(), "rollback")?;
    let mut body = json!({ "dry_run": args.dry_run });
    if let Some(number) = args.number {
        body["to"] = json!(number);
    }
    let back = agent.ask(Method::POST, &path, Some(&body))?;
    match args.json {
        true => output::json(&back)?,
        false => output::out(&history::back_text(&back))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn confirm(mut agent: AgentClient, args: &ApplyArgs) -> Result<ExitCode, Failure> {
    no_file(args.config.is_some())?;
    let edge = edge_of(&mut agent, args.edge.as_deref())?;
    let path = format!("/v1/edges/{}/confirm", quoted(&edge));
    let confirmed = agent.ask(Method::POST, &path, None)?;
    match args.json {
        true => output::json(&confirmed)?,
        false => output::out(&format!("edge {edge}: confirmed\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn watch(mut agent: AgentClient, args: &DropsArgs) -> Result<ExitCode, Failure> {
    let packets = &args.packets;
    let chooses = [
        ("--filter", packets.filter.is_some()),
        ("--port", !packets.ports.is_empty()),
        ("--sample", packets.sample != 1),
        ("--count", packets.count.is_some()),
    ];
    if let Some((option, _)) = chooses.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::usage(format!(
            "{option} works on the host itself only: an agent watches all packets"
        )));
    }
    let seconds = packets.duration.map_or(WATCH, |time| time.as_secs().max(1));
    if seconds > LONGEST_WATCH {
        return Err(Failure::usage(format!(
            "an agent watches for {LONGEST_WATCH} s at most: give a shorter --duration"
        )));
    }
    let path = path_of_edge(&mut agent, &args.edge, "drops")?;
    let body = json!({ "seconds": seconds });
    let found = agent.ask(Method::POST, &path, Some(&body))?;
    match args.json {
        true => output::json(&found)?,
        false => {
            let report: drops::Report = serde_json::from_value(found).map_err(Failure::failed)?;
            output::out(&report.text())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn no_file(is_given: bool) -> Result<(), Failure> {
    match is_given {
        true => Err(Failure::usage(
            "a file names an edge of this host: name the agent's with --edge",
        )),
        false => Ok(()),
    }
}

/// Something of the edge that arguments name.
fn path_of_edge(agent: &mut AgentClient, args: &EdgeArgs, what: &str) -> Result<String, Failure> {
    no_file(args.config.is_some())?;
    path_of(agent, args.edge.as_deref(), what)
}

fn path_of(agent: &mut AgentClient, edge: Option<&str>, what: &str) -> Result<String, Failure> {
    let edge = edge_of(agent, edge)?;
    Ok(format!("/v1/edges/{}/{what}", quoted(&edge)))
}
