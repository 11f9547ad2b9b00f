//! Commands that the agent starts for a request: a change that waits for confirmation, and a watch of drops.
//!
//! Both are processes of their own, as if somebody had typed them. A change that waits must go back although the agent ends meanwhile.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_agent::api::Problem;
use weir_runtime::history::Author;

use super::failed::failed;
use crate::commands::edge::confirm;
use crate::output;

/// Between two looks at what a command does.
const TICK: Duration = Duration::from_millis(50);

/// How long an apply may take; the client is answered before its own time is over.
const PATIENCE: Duration = Duration::from_secs(100);

/// Exit status of a command whose arguments or files are wrong.
const USAGE: i32 = 2;

/// `weir apply --confirm`: returns when it waits.
pub(super) fn apply(
    edge: &str,
    file: &Path,
    limit: Duration,
    author: &Author,
) -> Result<Value, Problem> {
    if confirm::waits_for(edge).map_err(failed)?.is_some() {
        return Err(Problem::conflict(
            format!("another change of edge {edge} waits for confirmation"),
            "confirm it, or wait until it is over",
        ));
    }
    let seconds = limit.as_secs();
    let mut command = weir()?;
    command
        .args(["apply", "--edge", edge, "--confirm", &format!("{seconds}s")])
        .arg(file)
        // The history names whoever asked.
        .env("SUDO_USER", &author.user)
        .stdout(Stdio::null());
    let mut child = command.spawn().map_err(cannot)?;
    let said = lines(&mut child);
    let mut words = Vec::new();
    let until = Instant::now() + PATIENCE;
    loop {
        if confirm::is_counting(edge, child.id()) {
            break;
        }
        match said.recv_timeout(TICK) {
            Ok(line) => words.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            // It closed its standard error: it ended.
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().map_err(cannot)?;
                let text = words.join("\n");
                return Err(match status.code() {
                    Some(0) => Problem::conflict(
                        "it was confirmed before it waited",
                        "look at the history",
                    ),
                    Some(USAGE) => Problem::mistakes(text, "correct the file"),
                    _ => Problem::conflict(text, "look at the history: nothing waits"),
                });
            }
        }
        if Instant::now() > until {
            return Err(Problem::failed(format!(
                "`weir apply` of edge {edge} (process {}) takes long; the history will show what it did",
                child.id()
            )));
        }
    }
    // Whoever looks at the agent's log learns how it ended.
    std::thread::spawn(move || {
        for line in said {
            output::tell(&format!("{line}\n"));
        }
        let _ = child.wait();
    });
    Ok(json!({ "edge": edge, "waits": true, "seconds": seconds }))
}

/// `weir drops`.
pub(super) fn drops(edge: &str, time: Duration) -> Result<Value, Problem> {
    let mut command = weir()?;
    command.args(["drops", "--json", "--edge", edge, "--duration"]);
    command.arg(format!("{}s", time.as_secs()));
    let output = command.output().map_err(cannot)?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Problem::conflict(
            text.trim().trim_start_matches("error: ").to_owned(),
            "one `weir drops`, `trace` or `capture` at a time watches an edge",
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| Problem::failed(error.to_string()))
}

fn weir() -> Result<Command, Problem> {
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

/// What a command says, line by line.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(stderr) = child.stderr.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Nobody listens any more: it is read all the same, or the command would block.
                let _ = sender.send(line);
            }
        });
    }
    lines
}

fn cannot(error: std::io::Error) -> Problem {
    Problem::failed(format!("weir cannot be started: {error}"))
}
