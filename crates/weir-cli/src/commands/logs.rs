//! `weir logs`: events of the agent, by its API: those that it keeps, and the next ones as they happen.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
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

/// The pause before an agent that is gone is tried again.
const PAUSE: Duration = Duration::from_secs(1);

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
    let kept = agent.get(&path)?;
    if is_short(&kept, args.since) {
        output::complain(&format!(
            "{} events before these are not kept any more: `journalctl -u weir-agent` has those of the agent itself",
            kept["missed"]
        ));
    }
    for event in kept["events"].as_array().into_iter().flatten() {
        show(event, args)?;
    }
    if args.follow {
        let newest = kept["newest"].as_u64().unwrap_or_default();
        follow(&mut agent, newest, args)?;
    }
    Ok(ExitCode::SUCCESS)
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

/// Shows the next events until a signal; an agent that ends is waited for.
fn follow(agent: &mut AgentClient, newest: u64, args: &LogsArgs) -> Result<(), Failure> {
    let stop = crate::limits::stop_on_signals()?;
    let is_over = || stop.load(Ordering::Relaxed);
    let mut after = newest;
    let mut is_lost = false;
    while !is_over() {
        let ended = match agent.follow(&format!("/v1/events?after={after}")) {
            Err(error) => error,
            Ok(mut events) => {
                if is_lost {
                    output::complain("the agent is back");
                }
                is_lost = false;
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
        // What it refuses now it refuses later.
        if matches!(ended, ClientError::Refused { .. } | ClientError::Tls { .. }) {
            return Err(ended.into());
        }
        if !is_lost {
            output::complain(&format!("{ended}; waiting for it"));
        }
        is_lost = true;
        let until = Instant::now() + PAUSE;
        while Instant::now() < until && !is_over() {
            sleep(TICK);
        }
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
