//! `weir agent`: looks at files and edges at an interval, until a signal. What it does is `weir_agent`'s; here are signals, systemd and output.

mod beside;
mod failed;
mod graph;
pub(super) mod host;
pub(super) mod page;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_agent::api::{Api, Woken};
use weir_agent::{Agent, AgentError, Event, Programs, service};
use weir_runtime::history;

use self::host::Here;
use super::program;
use crate::args::agent::AgentArgs;
use crate::failure::Failure;
use crate::output;

/// Longest wait for a signal.
const TICK: Duration = Duration::from_millis(100);

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Failure {
        match error {
            AgentError::Settings { .. } => Failure::usage(error),
            AgentError::Host(_) => Failure::failed(error),
        }
    }
}

pub(crate) fn run(args: &AgentArgs) -> Result<ExitCode, Failure> {
    let flag = |signals: &[i32]| -> Result<Arc<AtomicBool>, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in signals {
            signal_hook::flag::register(*signal, Arc::clone(&flag)).map_err(Failure::failed)?;
        }
        Ok(flag)
    };
    let (stop, reload) = (flag(&[SIGTERM, SIGINT])?, flag(&[SIGHUP])?);
    let folder = std::path::absolute(&args.folder).map_err(Failure::failed)?;
    if !folder.is_dir() {
        return Err(Failure::Usage(format!(
            "{} is not a directory: pass the one with the edges' files, `weir agent FOLDER`",
            folder.display()
        )));
    }
    let mut agent = Agent::new(&folder, &history::state_path(), programs()?)?;
    output::complain(&format!(
        "keeps the edges of {}; Ctrl-C ends the agent, not the edges",
        folder.display()
    ));
    let mut api = Api::new(Arc::new(Here));
    agent.wake_with(api.waker());
    let mut events = Vec::new();
    let mut is_ready = false;
    // systemd takes half of its time for silence.
    let interval = match service::watchdog() {
        Some(limit) => args.interval.min(limit / 3),
        None => args.interval,
    };
    while !stop.load(Ordering::Relaxed) {
        if reload.swap(false, Ordering::Relaxed) {
            agent.reload();
        }
        events.extend(agent.pass());
        events.extend(api.hold(&agent.settings().api));
        // Before the events: whoever is told of one finds what it says.
        api.show(agent.view());
        for event in events.drain(..) {
            api.publish(&event);
            let line = match args.json {
                true => serde_json::to_string(&event).map_err(Failure::failed)?,
                false => event.to_string(),
            };
            output::out(&format!("{line}\n"))?;
        }
        for notice in agent.notices() {
            match notice {
                // For the log, too: it comes with the next events.
                Event::Warning { .. } => events.push(notice),
                notice => api.publish(&notice),
            }
        }
        match is_ready {
            false => service::ready(&agent.summary()),
            true => service::alive(&agent.summary()),
        }
        is_ready = true;
        let next = Instant::now() + interval;
        while Instant::now() < next
            && !stop.load(Ordering::Relaxed)
            && !reload.load(Ordering::Relaxed)
        {
            let left = next.saturating_duration_since(Instant::now());
            match api.wait(TICK.min(left)) {
                Woken::Time => continue,
                Woken::Look => {}
                Woken::Apply(event) => {
                    agent.reload();
                    events.push(event);
                }
                Woken::Changed(event) => events.push(event),
            }
            break;
        }
    }
    service::stopping();
    agent.stop();
    Ok(ExitCode::SUCCESS)
}

fn programs() -> Result<Programs, Failure> {
    let setpriv = program::in_path("setpriv").ok_or_else(|| {
        Failure::Failed(
            "`setpriv` is not in PATH, which starts commands with few rights: install util-linux"
                .to_owned(),
        )
    })?;
    let weir: PathBuf = std::env::current_exe().map_err(Failure::failed)?;
    Ok(Programs { weir, setpriv })
}
