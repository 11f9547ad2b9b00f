//! `weir logs`: events of the agent, by its API: those that it keeps, and the next ones as they happen.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_agent::api::{AgentClient, ClientError, Target};

use super::reach;
use crate::args::agent::LogsArgs;
use crate::failure::Failure;
use crate::output;

/// Longest wait for a signal.
const TICK: Duration = Duration::from_millis(200);

/// The pause before an agent that is gone, or has too much to do, is tried again: the first, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &LogsArgs, target: Option<Target>) -> Result<ExitCode, Failure> {
    let target = match (target, &args.socket) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage(
                "--agent and --socket name two agents: give one",
            ));
        }
        (Some(target), None) => target,
        (None, socket) => reach::here_or(socket.as_deref())?,
    };
    let mut agent = AgentClient::new(target)?;
    let path = match args.since {
        Some(time) => format!("/v1/logs?seconds={}", time.as_secs().max(1)),
        None => "/v1/logs".to_owned(),
    };
    let stop = match args.follow {
        true => Some(crate::limits::stop_on_signals()?),
        false => None,
    };
    let kept = match &stop {
        None => agent.get(&path)?,
        Some(stop) => match first(&mut agent, &path, stop)? {
            Some(kept) => kept,
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    if is_short(&kept, args.since) {
        output::complain(&format!(
            "{} events before these are not kept any more: `journalctl -u weir-agent` has those of the agent itself",
            kept["missed"]
        ));
    }
    for event in kept["events"].as_array().into_iter().flatten() {
        show(event, args)?;
    }
    if let Some(stop) = stop {
        let newest = kept["newest"].as_u64().unwrap_or_default();
        follow(&mut agent, newest, args, &stop)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The events that are kept, of an agent that may have too much to do; `None`: a signal came first. One that is not there is an error, as without
/// `-f`: its address may be wrong.
fn first(agent: &mut AgentClient, path: &str, stop: &AtomicBool) -> Result<Option<Value>, Failure> {
    let mut wait = Waiting::default();
    while !stop.load(Ordering::Relaxed) {
        match agent.get(path) {
            Ok(kept) => return Ok(Some(kept)),
            Err(error @ ClientError::Refused { .. }) if error.is_temporary() => {
                wait.after(&error, stop);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Waits between tries, each time longer.
#[derive(Default)]
struct Waiting {
    /// The last pause; `None`: the agent answered.
    pause: Option<Duration>,
}

impl Waiting {
    /// Says once why, and waits, unless a signal comes.
    fn after(&mut self, error: &ClientError, stop: &AtomicBool) {
        if self.pause.is_none() {
            output::complain(&format!("{error}; waiting for it"));
        }
        let pause = self
            .pause
            .map_or(PAUSE, |before| (before * 2).min(PAUSE_MAX));
        self.pause = Some(pause);
        let until = Instant::now() + pause;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            sleep(TICK);
        }
    }

    fn is_over(&mut self) {
        if self.pause.take().is_some() {
            output::complain("the agent is back");
        }
    }
}

/// Whether events are missing that were asked for.
fn is_short(kept: &Value, since: Option<Duration>) -> bool {
    let is_missed = kept["missed"].as_u64() > Some(0);
    // Of a time, all are there if one before it is.
    let events = kept["events"].as_array();
    let first = events.and_then(|events| events.first());
    let is_whole = since.is_some()
        && first.is_none_or(|first| first["time"].as_u64() > kept["oldest_time"].as_u64());
    is_missed && !is_whole
}

/// Shows the next events until a signal; an agent that ends, or has too much to do, is waited for.
fn follow(
    agent: &mut AgentClient,
    newest: u64,
    args: &LogsArgs,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let is_over = || stop.load(Ordering::Relaxed);
    let mut after = newest;
    let mut wait = Waiting::default();
    while !is_over() {
        let ended = match agent.follow(&format!("/v1/events?after={after}")) {
            Err(error) => error,
            Ok(mut events) => {
                wait.is_over();
                loop {
                    if is_over() {
                        return Ok(());
                    }
                    match events.next(TICK) {
                        Ok(None) => {}
                        Ok(Some(event)) => {
                            after = event["number"].as_u64().unwrap_or(after);
                            show(&event, args)?;
                        }
                        Err(error) => break error,
                    }
                }
            }
        };
        if !ended.is_temporary() {
            return Err(ended.into());
        }
        wait.after(&ended, stop);
    }
    Ok(())
}

fn show(event: &Value, args: &LogsArgs) -> Result<(), Failure> {
    let kind = event["event"].as_str().unwrap_or_default();
    if kind == "missed" {
        output::complain(&format!("{} events were missed", event["events"]));
        return Ok(());
    }
    let is_kind = args.events.is_empty() || args.events.iter().any(|one| one == kind);
    let is_edge = args
        .edge
        .as_deref()
        .is_none_or(|edge| event["edge"] == edge);
    if !is_kind || !is_edge {
        return Ok(());
    }
    match args.json {
        true => output::json(event)?,
        false => output::out(&line(event))?,
    }
    Ok(())
}

/// An event for people. Lines of its text that follow the first are indented; control characters, which could be a terminal's, are replaced.
fn line(event: &Value) -> String {
    let text = event["text"].as_str().unwrap_or_default();
    let text: String = text
        .trim_end()
        .chars()
        .map(|c| match c {
            '\n' => c,
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect();
    let time = weir_value::utc(event["time"].as_u64().unwrap_or_default());
    format!("{time}  {}\n", text.replace('\n', "\n    "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let event = json!({ "time": 0, "text": "a\u{1b}[2Jb\nc\n" });
        assert_eq!(line(&event), "1970-01-01T00:00:00Z  a\u{fffd}[2Jb\n    c\n");
    }

    #[test]
    fn what_is_missing_is_said_where_it_was_asked_for() {
        let kept = |missed: u64, first: u64| json!({ "missed": missed, "oldest_time": 50, "events": [{ "time": first }] });
        let minute = Some(Duration::from_secs(60));
        assert!(!is_short(&kept(0, 50), None));
        assert!(is_short(&kept(3, 50), None));
        assert!(
            is_short(&kept(3, 50), minute),
            "the oldest is within the time"
        );
        assert!(!is_short(&kept(3, 60), minute));
    }
}
