//! Commands that run beside edges: started, started again when they end, and ended when they are wanted no more.
//!
//! `setpriv` starts them: with the capabilities that their command needs and no others, without a way to new ones, and with a SIGTERM when the
//! agent ends, however it ends. Sensors, which parse what strangers send, also get a user of their own, and confine themselves once their sockets are
//! open.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process};
use serde::Serialize;

use crate::event::Event;
use crate::files::{self, Stamp, Stamps};
use crate::privileges::{self, BPF, PERFMON, Privileges};
use crate::sensors::Sensor;

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

/// A command that an edge needs, or that the settings name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    /// `None`: it serves no edge.
    pub(crate) edge: Option<String>,
    pub(crate) kind: Kind,
    /// The function, if the command serves one.
    pub(crate) function: Option<String>,
}

/// Kinds of children.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Check,
    Follow,
    Helper,
    Sensor(Sensor),
}

impl Wanted {
    pub(crate) fn sensor(sensor: Sensor) -> Wanted {
        Wanted {
            edge: None,
            kind: Kind::Sensor(sensor),
            function: None,
        }
    }

    fn arguments(&self) -> Vec<String> {
        let command: [&str; 2] = match &self.kind {
            Kind::Check => ["service", "check"],
            Kind::Follow => ["route", "follow"],
            Kind::Helper => ["net", "helper"],
            Kind::Sensor(sensor) => return sensor.arguments(),
        };
        let mut all = command.map(str::to_owned).to_vec();
        if let Some(edge) = &self.edge {
            all.extend(["--edge".to_owned(), edge.clone()]);
        }
        if let Some(function) = &self.function {
            all.extend(["--function".to_owned(), function.clone()]);
        }
        all
    }

    fn command(&self) -> String {
        self.arguments().join(" ")
    }

    /// Options of `setpriv`. The kernel opens maps and programs by ID only with CAP_SYS_ADMIN.
    fn privileges(&self) -> io::Result<Vec<String>> {
        let more = match &self.kind {
            Kind::Helper => ",+net_raw",
            Kind::Check | Kind::Follow => "",
            Kind::Sensor(sensor) => return sensor.privileges(),
        };
        Ok(vec![format!(
            "--bounding-set=-all,+{BPF},+{PERFMON},+net_admin,+sys_admin{more}"
        )])
    }

    /// What it reads, of which a change concerns it.
    fn stamps(&self) -> Read {
        let stamps = |paths: &[PathBuf]| {
            let paths = paths.iter().flat_map(|path| sources(path));
            paths.map(|path| (path.clone(), Stamp::of(&path))).collect()
        };
        match &self.kind {
            Kind::Sensor(sensor) => Read {
                rules: stamps(sensor.rules()),
                config: stamps(sensor.config()),
            },
            _ => Read::default(),
        }
    }
}

/// A file, those of a folder, or those of the folder of a pattern.
fn sources(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().map(|name| name.to_string_lossy());
    let is_pattern = name.is_some_and(|name| name.contains(['*', '?', '[']));
    let folder = match path.parent() {
        Some(parent) if is_pattern => parent,
        _ => path,
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return vec![path.to_owned()];
    };
    let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    all.sort();
    all
}

/// Files that a child reads, as they were.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    /// It reads them again when it is told to.
    rules: Stamps,
    /// It reads them when it starts.
    config: Stamps,
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
    /// The edge that it serves, if it does.
    pub edge: Option<String>,
    /// Its command.
    pub command: String,
    /// Its process; `None`: it waits to be started again.
    pub process: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// What it may do, as the kernel says; `None`: it does not run.
    pub privileges: Option<Privileges>,
}

#[derive(Debug)]
struct Running {
    child: Option<Child>,
    read: Read,
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
                read: Read::default(),
                since: now,
                due: now,
                pause: PAUSE,
                restarts: 0,
            });
            if let Some(child) = &mut running.child {
                let status = match child.try_wait() {
                    Ok(None) => {
                        let id = child.id();
                        look_at_files(one, running, id, events);
                        continue;
                    }
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
            // Before it reads them.
            running.read = one.stamps();
            match start(&self.programs, one) {
                Ok(child) => {
                    events.push(Event::Started {
                        edge: one.edge.clone(),
                        command: one.command(),
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
            command: one.command(),
            process: running.child.as_ref().map(Child::id),
            restarts: running.restarts,
            privileges: (running.child.as_ref()).and_then(|child| privileges::of(child.id())),
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
        command: one.command(),
        status,
        again,
    }
}

/// Tells a child of files that changed: new rules by SIGUSR2, another configuration by SIGTERM, after which it starts again.
fn look_at_files(one: &Wanted, running: &mut Running, process: u32, events: &mut Vec<Event>) {
    // Most children read no files.
    if running.read == Read::default() {
        return;
    }
    let now = one.stamps();
    if now == running.read {
        return;
    }
    let is_config = files::changed(&running.read.config);
    let signal = if is_config {
        Signal::TERM
    } else {
        Signal::USR2
    };
    running.read = now;
    let sent = Pid::from_raw(process.cast_signed()).map(|process| kill_process(process, signal));
    match sent {
        Some(Err(error)) => events.push(Event::Warning {
            text: format!(
                "weir {} does not learn that its files changed: {error}; the agent needs CAP_KILL",
                one.command()
            ),
        }),
        _ => events.push(Event::Reloaded {
            command: one.command(),
            process,
            how: if is_config {
                "starts again with its new configuration"
            } else {
                "reads its new rules"
            },
        }),
    }
}

fn start(programs: &Programs, one: &Wanted) -> io::Result<Child> {
    if let Kind::Sensor(sensor) = &one.kind {
        sensor.make_folder()?;
    }
    Command::new(&programs.setpriv)
        .args(["--pdeathsig", "TERM", "--no-new-privs"])
        .args(one.privileges()?)
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
                    // One that cannot be killed is not waited for.
                    ended.push(match child.kill().and_then(|()| child.wait()) {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Kind, Wanted, sources};

    /// Names of newer capabilities are unknown to the `setpriv` of Ubuntu 22.04, which then starts nothing.
    #[test]
    fn capabilities_that_setpriv_may_not_know_are_numbers() {
        for (kind, want) in [
            (
                Kind::Check,
                "--bounding-set=-all,+cap_39,+cap_38,+net_admin,+sys_admin",
            ),
            (
                Kind::Follow,
                "--bounding-set=-all,+cap_39,+cap_38,+net_admin,+sys_admin",
            ),
            (
                Kind::Helper,
                "--bounding-set=-all,+cap_39,+cap_38,+net_admin,+sys_admin,+net_raw",
            ),
        ] {
            let wanted = Wanted {
                edge: None,
                kind,
                function: None,
            };
            assert_eq!(wanted.privileges().expect("options"), [want]);
        }
    }

    #[test]
    fn files_of_folders_and_patterns_are_watched() {
        let folder = std::env::temp_dir().join(format!("weir-sources-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        for name in ["b.rules", "a.rules"] {
            fs::write(folder.join(name), "").expect("written");
        }
        let all = [folder.join("a.rules"), folder.join("b.rules")];
        assert_eq!(sources(&folder), all);
        assert_eq!(sources(&folder.join("*.rules")), all);
        assert_eq!(sources(&all[1]), all[1..]);
        let missing = folder.join("missing/*.rules");
        assert_eq!(sources(&missing), [missing.as_path()]);
        let _ = fs::remove_dir_all(&folder);
    }
}
