//! Commands that run beside edges: started, started again when they end, and ended when they are wanted no more.
//!
//! `setpriv` starts them: with the capabilities that their command needs and no others, without a way to new ones, and with a SIGTERM when the
//! agent ends, however it ends.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process};
use serde::Serialize;

use crate::event::Event;

/// The pause before a child is started again: the first, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A child that lived this long starts again after the first pause.
const LIVED: Duration = Duration::from_secs(60);

/// How long children have to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells a child which process its agent is.
const AGENT: &str = "WEIR_AGENT";

/// Whether this process is the child of an agent that is gone. An agent that ends before `setpriv` has asked for a signal leaves a child that
/// gets none: it looks once, after that.
#[must_use]
pub fn is_orphan() -> bool {
    let Ok(agent) = std::env::var(AGENT) else {
        return false;
    };
    let parent = getppid().map(|parent| parent.as_raw_pid().to_string());
    parent.as_ref() != Some(&agent)
}

/// A command that an edge needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    pub(crate) edge: String,
    pub(crate) kind: Kind,
    /// The function, if the command serves one.
    pub(crate) function: Option<String>,
}

/// Kinds of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Check,
    Follow,
    Helper,
}

impl Wanted {
    fn arguments(&self) -> Vec<&str> {
        let command: &[&str] = match self.kind {
            Kind::Check => &["service", "check"],
            Kind::Follow => &["route", "follow"],
            Kind::Helper => &["net", "helper"],
        };
        let mut all = command.to_vec();
        all.extend(["--edge", &self.edge]);
        if let Some(function) = &self.function {
            all.extend(["--function", function]);
        }
        all
    }

    /// For `setpriv --bounding-set`. The kernel opens maps and programs by ID only with CAP_SYS_ADMIN.
    fn capabilities(&self) -> &'static str {
        match self.kind {
            Kind::Helper => "-all,+bpf,+net_admin,+net_raw,+perfmon,+sys_admin",
            Kind::Check | Kind::Follow => "-all,+bpf,+net_admin,+perfmon,+sys_admin",
        }
    }
}

/// What starts children.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `weir`.
    pub weir: PathBuf,
    /// `setpriv` of util-linux.
    pub setpriv: PathBuf,
}

/// A child, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChildRow {
    /// The edge that it serves.
    pub edge: String,
    /// Its command.
    pub command: String,
    /// Its process; `None`: it waits to be started again.
    pub process: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
}

#[derive(Debug)]
struct Running {
    child: Option<Child>,
    since: Instant,
    due: Instant,
    pause: Duration,
    restarts: u64,
}

/// All children.
#[derive(Debug)]
pub(crate) struct Children {
    programs: Programs,
    all: BTreeMap<Wanted, Running>,
}

impl Children {
    pub(crate) fn new(programs: Programs) -> Children {
        Children {
            programs,
            all: BTreeMap::new(),
        }
    }

    /// Starts what is wanted and does not run, and ends what is wanted no more.
    pub(crate) fn hold(&mut self, wanted: &[Wanted], events: &mut Vec<Event>) {
        let gone: Vec<Wanted> = self
            .all
            .keys()
            .filter(|one| !wanted.contains(one))
            .cloned()
            .collect();
        for one in gone {
            if let Some(running) = self.all.remove(&one) {
                let ended = end([running]);
                events.push(ended_event(
                    &one,
                    ended.first().cloned().unwrap_or_default(),
                    None,
                ));
            }
        }
        let now = Instant::now();
        for one in wanted {
            let running = self.all.entry(one.clone()).or_insert_with(|| Running {
                child: None,
                since: now,
                due: now,
                pause: PAUSE,
                restarts: 0,
            });
            if let Some(child) = &mut running.child {
                let status = match child.try_wait() {
                    Ok(None) => continue,
                    Ok(Some(status)) => status.to_string(),
                    Err(error) => error.to_string(),
                };
                if running.since.elapsed() >= LIVED {
                    running.pause = PAUSE;
                }
                running.child = None;
                running.restarts += 1;
                running.due = now + running.pause;
                events.push(ended_event(one, status, Some(running.pause.as_secs())));
                running.pause = (running.pause * 2).min(PAUSE_MAX);
            }
            if running.due > now {
                continue;
            }
            match start(&self.programs, one) {
                Ok(child) => {
                    events.push(Event::Started {
                        edge: one.edge.clone(),
                        command: one.arguments().join(" "),
                        process: child.id(),
                    });
                    running.since = now;
                    running.child = Some(child);
                }
                Err(error) => {
                    events.push(ended_event(
                        one,
                        error.to_string(),
                        Some(running.pause.as_secs()),
                    ));
                    running.due = now + running.pause;
                    running.pause = (running.pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    pub(crate) fn rows(&self) -> Vec<ChildRow> {
        let row = |(one, running): (&Wanted, &Running)| ChildRow {
            edge: one.edge.clone(),
            command: one.arguments().join(" "),
            process: running.child.as_ref().map(Child::id),
            restarts: running.restarts,
        };
        self.all.iter().map(row).collect()
    }

    /// Ends all.
    pub(crate) fn end(&mut self) {
        let all = std::mem::take(&mut self.all);
        end(all.into_values());
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

fn ended_event(one: &Wanted, status: String, again: Option<u64>) -> Event {
    Event::Ended {
        edge: one.edge.clone(),
        command: one.arguments().join(" "),
        status,
        again,
    }
}

fn start(programs: &Programs, one: &Wanted) -> std::io::Result<Child> {
    Command::new(&programs.setpriv)
        .args(["--pdeathsig", "TERM", "--no-new-privs", "--bounding-set"])
        .arg(one.capabilities())
        .arg("--")
        .arg(&programs.weir)
        .args(one.arguments())
        .env(AGENT, std::process::id().to_string())
        .stdin(Stdio::null())
        // Standard output is the agent's, for its events alone.
        .stdout(std::io::stderr())
        .spawn()
}

/// Asks children to end, waits, and kills those that do not. How each ended.
fn end(all: impl IntoIterator<Item = Running>) -> Vec<String> {
    let mut children: Vec<Child> = all.into_iter().filter_map(|one| one.child).collect();
    for child in &children {
        if let Some(process) = Pid::from_raw(child.id() as i32) {
            // It may have ended; its process ID is not reused before it is waited for.
            let _ = kill_process(process, Signal::TERM);
        }
    }
    let until = Instant::now() + PATIENCE;
    let mut ended = Vec::with_capacity(children.len());
    for child in &mut children {
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                Ok(None) => {
                    let _ = child.kill();
                    ended.push(match child.wait() {
                        Ok(status) => status.to_string(),
                        Err(error) => error.to_string(),
                    });
                    break;
                }
                Ok(Some(status)) => {
                    ended.push(status.to_string());
                    break;
                }
                Err(error) => {
                    ended.push(error.to_string());
                    break;
                }
            }
        }
    }
    ended
}
