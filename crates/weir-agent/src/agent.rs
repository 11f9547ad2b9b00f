//! One look at files and edges, and what follows from it.
//!
//! A file is planned only when it changed, or when its last try failed and is due again. Otherwise an edge is compared by the records beside
//! what runs, and by whether its ports are attached.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use weir_engine::edge::{self, EdgeError};
use weir_engine::network::{self, DeviceChanges, Look};
use weir_runtime::history::{Author, History};
use weir_runtime::status::{CheckedServer, checked_servers};
use weir_runtime::{Planned, RuntimeError};
use weir_store::ResultState;

use crate::AgentError;
use crate::alerts::Alerts;
use crate::children::{ChildRow, Children, Kind, Programs, Wanted};
use crate::event::Event;
use crate::files::{self, Stamp, Stamps};
use crate::notices::Drops;
use crate::owned::{Owned, Source};
use crate::settings::{Edits, Settings};
use crate::store::Store;

/// The pause before a file is tried again: the first, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How a file and its edge stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// What the file says runs.
    Applied,
    /// The edge was edited since, and is left alone.
    Edited,
    /// The file could not be applied.
    Failed,
}

impl State {
    /// Its name, as in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Applied => "applied",
            State::Edited => "edited",
            State::Failed => "failed",
        }
    }
}

/// A file, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The file.
    pub file: PathBuf,
    /// Its edge, if that could be read.
    pub edge: Option<String>,
    /// How both stand.
    pub state: State,
    /// Why it failed.
    pub error: Option<String>,
}

/// How the agent stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct View {
    /// The folder of the files.
    pub folder: PathBuf,
    /// Files, and what became of them.
    pub files: Vec<Row>,
    /// Commands beside edges.
    pub children: Vec<ChildRow>,
    /// What becomes of edits.
    pub edits: Edits,
    /// What of the API does not work: addresses that cannot be bound, certificates that cannot be read.
    pub problems: Vec<String>,
}

/// Why a file is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    First,
    Changed,
    Again,
    Detached,
    Device,
    Edited,
}

impl Why {
    fn text(self) -> &'static str {
        match self {
            Why::First => "first look",
            Why::Changed => "file changed",
            Why::Again => "tried again",
            Why::Detached => "a port had lost its program",
            Why::Device => "a workload's device appeared",
            Why::Edited => "edits are reverted",
        }
    }
}

/// What runs of an edge: the records of graph and networks.
type Records = (Option<String>, Option<String>);

#[derive(Debug)]
struct Watched {
    edge: Option<String>,
    stamps: Stamps,
    state: State,
    error: Option<String>,
    /// Version of the document of networks that this state is of.
    version: Option<u64>,
    /// What ran when this was last looked at.
    records: Records,
    /// Devices of workloads that do not exist.
    missing: Vec<String>,
    /// A port had no program at the last look.
    is_suspect: bool,
    due: Option<Instant>,
    pause: Duration,
    children: Vec<Wanted>,
    /// Servers with checks, and whether each failed them.
    health: BTreeMap<CheckedServer, bool>,
}

/// The agent of a folder.
#[derive(Debug)]
pub struct Agent {
    folder: PathBuf,
    state: PathBuf,
    settings: Settings,
    settings_stamp: Stamp,
    owned: Owned,
    files: BTreeMap<PathBuf, Watched>,
    children: Children,
    /// What is declared elsewhere.
    store: Store,
    /// Drops that are events of the API.
    drops: Drops,
    /// Alerts of sensors that are events of the API.
    alerts: Alerts,
    /// The folder could not be read. Said once, until it is over.
    is_blind: bool,
    /// The next pass applies edited edges, too.
    is_forced: bool,
    /// Held while this agent lives: two would undo each other.
    _lock: File,
}

impl Agent {
    /// Of a folder of files, with a folder for its state, which is created.
    ///
    /// # Errors
    /// The settings are wrong, or the state cannot be read or made.
    pub fn new(folder: &Path, state: &Path, programs: Programs) -> Result<Agent, AgentError> {
        let host = |error: std::io::Error| {
            AgentError::Host(format!(
                "cannot use the state folder {}: {error}",
                state.display()
            ))
        };
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state)
            .map_err(host)?;
        Ok(Agent {
            folder: folder.to_owned(),
            state: state.to_owned(),
            settings_stamp: Stamp::of(&folder.join(crate::SETTINGS)),
            settings: Settings::of(folder)?,
            owned: Owned::read(state).map_err(host)?,
            files: BTreeMap::new(),
            children: Children::new(programs),
            store: Store::default(),
            drops: Drops::default(),
            alerts: Alerts::default(),
            is_blind: false,
            is_forced: false,
            _lock: lock(state)?,
        })
    }

    /// Applies every file at the next pass, also where the edge was edited.
    pub fn reload(&mut self) {
        self.files.clear();
        self.is_forced = true;
    }

    /// Calls this when there is something to look at before the next interval ends.
    pub fn wake_with(&mut self, waker: impl Fn() + Send + Sync + 'static) {
        self.store.wake_with(std::sync::Arc::new(waker));
    }

    /// Looks once, and does what is to be done.
    pub fn pass(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.read_settings(&mut events);
        events.extend(self.store.hold(self.settings.store.as_ref(), &self.state));
        let mut paths = match files::in_folder(&self.folder) {
            Ok(paths) => {
                self.is_blind = false;
                paths
            }
            Err(error) => {
                // Not seeing a file does not mean that it is gone.
                if !self.is_blind {
                    events.push(Event::Warning {
                        text: format!(
                            "cannot read {}: {error}; all edges run on",
                            self.folder.display()
                        ),
                    });
                }
                self.is_blind = true;
                return events;
            }
        };
        paths.extend(self.store.file().map(Path::to_owned));
        self.remove(&paths, &mut events);
        for path in &paths {
            self.look(path, &mut events);
        }
        let wanted: Vec<Wanted> = (self.files.values())
            .flat_map(|one| one.children.clone())
            .chain(self.settings.sensors().map(Wanted::sensor))
            .collect();
        self.children.hold(&wanted, &mut events);
        self.is_forced = false;
        self.tell_store();
        events
    }

    /// Events for clients of the API only: drops and alerts. The log of the agent does not have them.
    pub fn notices(&mut self) -> Vec<Event> {
        let edges = self.files.values();
        let edges = edges.filter_map(|one| one.edge.as_deref());
        let now = Instant::now();
        let mut events = self.drops.look(edges, now);
        if let Some(folder) = self.settings.api.alerts.path() {
            events.extend(self.alerts.look(folder, now));
        }
        events
    }

    /// What became of the store's document.
    fn tell_store(&mut self) {
        let Some(one) = self.store.file().and_then(|path| self.files.get(path)) else {
            return;
        };
        let Some(version) = one.version else {
            return;
        };
        let state = match one.state {
            State::Applied => ResultState::Applied,
            State::Edited => ResultState::Edited,
            State::Failed => ResultState::Failed,
        };
        self.store.tell(version, state, one.error.as_deref());
    }

    /// How all files stand, and the children.
    #[must_use]
    pub fn rows(&self) -> (Vec<Row>, Vec<ChildRow>) {
        let row = |(file, one): (&PathBuf, &Watched)| Row {
            file: file.clone(),
            edge: one.edge.clone(),
            state: one.state,
            error: one.error.clone(),
        };
        (self.files.iter().map(row).collect(), self.children.rows())
    }

    /// The same for clients of the API.
    #[must_use]
    pub fn view(&self) -> View {
        let (files, children) = self.rows();
        View {
            folder: self.folder.clone(),
            files,
            children,
            edits: self.settings.edits,
            problems: Vec::new(),
        }
    }

    /// The settings that hold.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A line for `systemctl status`.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |state: State| self.files.values().filter(|one| one.state == state).count();
        format!(
            "edges: {} applied, {} edited, {} failed; children: {}",
            count(State::Applied),
            count(State::Edited),
            count(State::Failed),
            self.children.rows().len()
        )
    }

    /// Ends the children. Edges run on.
    pub fn stop(&mut self) {
        self.children.end();
    }

    fn read_settings(&mut self, events: &mut Vec<Event>) {
        let stamp = Stamp::of(&self.folder.join(crate::SETTINGS));
        if stamp == self.settings_stamp {
            return;
        }
        self.settings_stamp = stamp;
        match Settings::of(&self.folder) {
            Ok(settings) => {
                self.settings = settings;
                // What an edge needs beside it may be another.
                self.files.clear();
            }
            Err(error) => events.push(Event::Warning {
                text: format!("{error}; the settings before hold"),
            }),
        }
    }

    /// Takes down the edges of files that are gone.
    fn remove(&mut self, paths: &[PathBuf], events: &mut Vec<Event>) {
        self.files.retain(|path, _| paths.contains(path));
        let gone: Vec<String> = (self.owned.files())
            .filter(|(_, file)| file.parent() == Some(self.folder.as_path()))
            .filter(|(_, file)| !paths.iter().any(|path| path == file))
            .map(|(edge, _)| edge.clone())
            .collect();
        for edge in gone {
            // Another file may declare it now: it is renamed, not gone.
            let is_declared = paths
                .iter()
                .any(|path| weir_runtime::edge_of(path, None).is_ok_and(|name| name == edge));
            if is_declared {
                continue;
            }
            // A file with a mistake may be the one that declares it.
            if paths
                .iter()
                .any(|path| weir_runtime::edge_of(path, None).is_err())
            {
                continue;
            }
            match weir_runtime::down(&edge) {
                Ok(_) => {
                    self.note(&edge, "file removed", events);
                    self.own(&edge, None, events);
                    events.push(Event::Removed { edge });
                }
                Err(error) => events.push(Event::Warning {
                    text: format!(
                        "edge {edge}: its file is gone, and it cannot be taken down: {error}"
                    ),
                }),
            }
        }
    }

    fn look(&mut self, path: &Path, events: &mut Vec<Event>) {
        let Some(one) = self.files.get(path) else {
            return self.plan(path, Why::First, events);
        };
        if files::changed(&one.stamps) {
            return self.plan(path, Why::Changed, events);
        }
        let Some(edge) = one.edge.clone().filter(|_| one.state != State::Failed) else {
            if one.due.is_some_and(|due| due <= Instant::now()) {
                self.plan(path, Why::Again, events);
            }
            return;
        };
        let is_applied = one.state == State::Applied;
        match standing(&edge) {
            Ok(now) if now.records != one.records => self.plan(path, Why::Edited, events),
            Ok(now) if is_applied && !now.is_attached => {
                // A command that takes the edge down detaches its ports before its record goes. What stays so until the next look is damage.
                let one = self.files.get_mut(path);
                let is_damage = one.is_some_and(|one| std::mem::replace(&mut one.is_suspect, true));
                if is_damage {
                    self.plan(path, Why::Detached, events);
                }
            }
            Ok(now) if is_applied && !now.devices.new.is_empty() => {
                self.plan(path, Why::Device, events);
            }
            Ok(now) => {
                if let Some(one) = self.files.get_mut(path) {
                    one.is_suspect = false;
                }
                self.tell_missing(path, &edge, now.devices.missing, events);
                if let Err(error) = self.look_at_health(path, &edge, events) {
                    self.fail(path, Some(edge), error.to_string(), events);
                }
            }
            Err(error) => self.fail(path, Some(edge), error.to_string(), events),
        }
    }

    /// Says which devices of workloads went since the last look. The agent attaches them when they are back.
    fn tell_missing(
        &mut self,
        path: &Path,
        edge: &str,
        missing: Vec<String>,
        events: &mut Vec<Event>,
    ) {
        let Some(one) = self.files.get_mut(path) else {
            return;
        };
        let gone: Vec<&str> = (missing.iter())
            .filter(|name| !one.missing.contains(name))
            .map(String::as_str)
            .collect();
        if !gone.is_empty() {
            events.push(Event::Warning {
                text: format!(
                    "edge {edge}: no such device: {}; its workload is attached when it appears",
                    gone.join(", ")
                ),
            });
        }
        one.missing = missing;
    }

    /// Says which servers went down or came back since the last look.
    fn look_at_health(
        &mut self,
        path: &Path,
        edge: &str,
        events: &mut Vec<Event>,
    ) -> Result<(), RuntimeError> {
        let Some(one) = self.files.get_mut(path) else {
            return Ok(());
        };
        let is_checked = one.children.iter().any(|child| child.kind == Kind::Check);
        let now = match is_checked {
            true => checked_servers(&edge::status(edge)?)?,
            false => BTreeMap::new(),
        };
        for (server, &is_down) in &now {
            // One that is new counts as up.
            if one.health.get(server).copied().unwrap_or_default() != is_down {
                events.push(Event::Health {
                    edge: edge.to_owned(),
                    function: server.function.clone(),
                    service: server.service.clone(),
                    server: server.server.clone(),
                    state: if is_down { "down" } else { "up" },
                });
            }
        }
        one.health = now;
        Ok(())
    }

    /// Plans a file, and makes its edge what it says.
    fn plan(&mut self, path: &Path, why: Why, events: &mut Vec<Event>) {
        // Before reading: a file that changes meanwhile is read again.
        let own = (path.to_owned(), Stamp::of(path));
        let version = self.store.version_of(path);
        let planned = match self.store.edge_of(path) {
            Some(edge) => weir_runtime::plan_alone(path, edge),
            None => weir_runtime::plan(path, None),
        };
        let mut planned = match planned {
            Ok(planned) => planned,
            Err(error) => {
                let text = match &error {
                    RuntimeError::Mistakes { found, .. } => {
                        format!("{error}\n{}", found.render(false))
                    }
                    _ => error.to_string(),
                };
                // Which files it names now is not known: those that it named before are watched, and it is tried again.
                let before = self.files.get(path).map(|one| one.stamps.clone());
                let before = before
                    .into_iter()
                    .flatten()
                    .filter(|(file, _)| file != path);
                let stamps = before.map(|(file, _)| (file.clone(), Stamp::of(&file)));
                self.watch(path, stamps.chain([own]).collect(), version);
                return self.fail(path, None, text.trim_end().to_owned(), events);
            }
        };
        planned.wait_for_devices();
        let edge = planned.edge.clone();
        let stamps = planned
            .files
            .iter()
            .map(|(file, _)| (file.clone(), Stamp::of(file)));
        self.watch(
            path,
            stamps
                .filter(|(file, _)| file != path)
                .chain([own])
                .collect(),
            version,
        );
        let other = self.files.iter().find(|(file, one)| {
            file.as_path() != path
                && one.edge.as_deref() == Some(&edge)
                && one.state != State::Failed
        });
        if let Some((other, _)) = other {
            let text = format!(
                "edge {edge} is declared by {}, too: one file for each edge",
                other.display()
            );
            return self.fail(path, None, text, events);
        }
        if let Err(error) = self.apply(path, &planned, why, events) {
            self.fail(path, Some(edge), error.to_string(), events);
        }
    }

    fn apply(
        &mut self,
        path: &Path,
        planned: &Planned,
        why: Why,
        events: &mut Vec<Event>,
    ) -> Result<(), RuntimeError> {
        let edge = &planned.edge;
        let digest = digest(planned);
        let Standing {
            records,
            is_attached,
            devices,
        } = standing(edge)?;
        let is_attached = is_attached && devices.new.is_empty();
        let is_running = planned.is_running()?;
        let is_known = self
            .owned
            .get(edge)
            .is_some_and(|source| source.digest == digest);
        // A boot leaves nothing running; whoever takes an edge down while the agent runs means it.
        let is_meant = records != (None, None) || why == Why::Edited;
        let is_edited = !is_running
            && is_known
            && is_meant
            && !self.is_forced
            && self.settings.edits == Edits::Report;
        let state = if is_running && is_attached {
            if why == Why::First {
                events.push(Event::Adopted {
                    edge: edge.clone(),
                    file: path.to_owned(),
                });
            }
            State::Applied
        } else if is_edited {
            events.push(Event::Edited {
                edge: edge.clone(),
                how: match records {
                    (None, None) => "it was taken down",
                    _ => "it was edited since its file was applied",
                },
            });
            State::Edited
        } else {
            for note in &planned.notes {
                events.push(Event::Warning {
                    text: format!("edge {edge}: {note}"),
                });
            }
            planned.apply(false)?;
            events.push(Event::Applied {
                edge: edge.clone(),
                file: path.to_owned(),
                why: why.text(),
            });
            self.note(edge, why.text(), events);
            State::Applied
        };
        let Standing {
            records, devices, ..
        } = standing(edge)?;
        self.tell_missing(path, edge, devices.missing, events);
        self.own(
            edge,
            Some(Source {
                file: path.to_owned(),
                digest,
            }),
            events,
        );
        let children = self.children_of(edge)?;
        if let Some(one) = self.files.get_mut(path) {
            one.edge = Some(edge.clone());
            one.state = state;
            one.error = None;
            one.records = records;
            one.is_suspect = false;
            one.due = None;
            one.pause = PAUSE;
            one.children = children;
        }
        Ok(())
    }

    fn watch(&mut self, path: &Path, stamps: Stamps, version: Option<u64>) {
        let one = self
            .files
            .entry(path.to_owned())
            .or_insert_with(|| Watched {
                edge: None,
                stamps: Vec::new(),
                state: State::Failed,
                error: None,
                version: None,
                records: (None, None),
                missing: Vec::new(),
                is_suspect: false,
                due: None,
                pause: PAUSE,
                children: Vec::new(),
                health: BTreeMap::new(),
            });
        if one.stamps != stamps {
            one.pause = PAUSE;
        }
        one.stamps = stamps;
        one.version = version;
    }

    fn fail(&mut self, path: &Path, edge: Option<String>, error: String, events: &mut Vec<Event>) {
        let Some(one) = self.files.get_mut(path) else {
            return;
        };
        let again = one.pause;
        // The same failure is said once.
        if one.error.as_ref() != Some(&error) {
            events.push(Event::Failed {
                file: path.to_owned(),
                error: error.clone(),
                again: again.as_secs(),
            });
        }
        if edge.is_some() {
            one.edge = edge;
        }
        one.state = State::Failed;
        one.error = Some(error);
        one.due = Some(Instant::now() + again);
        one.pause = (again * 2).min(PAUSE_MAX);
    }

    /// What an edge needs beside it.
    fn children_of(&self, edge: &str) -> Result<Vec<Wanted>, RuntimeError> {
        let settings = self.settings.of_edge(edge);
        let wanted = |kind, function| Wanted {
            edge: Some(edge.to_owned()),
            kind,
            function,
        };
        let mut all = Vec::new();
        if let Some(record) = weir_runtime::graph::running(edge, &mut |_| ())? {
            let config = record.config()?;
            if settings.check_services {
                let balancers = weir_graph::balancers(&config, &record, &[]);
                let checked = balancers.into_iter().filter(|(_, balancer)| {
                    let services = balancer.as_ref().map(|one| one.services.as_slice());
                    services
                        .unwrap_or_default()
                        .iter()
                        .any(|service| service.check.is_some())
                });
                all.extend(checked.map(|(name, _)| wanted(Kind::Check, Some(name))));
            }
            if settings.follow_routes {
                all.push(wanted(Kind::Follow, None));
            }
        }
        if settings.helper && network::look(edge)?.is_some() {
            all.push(wanted(Kind::Helper, None));
        }
        Ok(all)
    }

    fn note(&self, edge: &str, why: &str, events: &mut Vec<Event>) {
        let author = Author {
            user: "agent".to_owned(),
            command: format!("weir agent: {why}"),
        };
        let noted = History::below(&self.state, edge).and_then(|history| history.note(&author));
        if let Err(error) = noted {
            events.push(Event::Warning {
                text: format!("edge {edge}: the change is not in the history: {error}"),
            });
        }
    }

    fn own(&mut self, edge: &str, source: Option<Source>, events: &mut Vec<Event>) {
        if let Err(error) = self.owned.set(edge, source) {
            events.push(Event::Warning {
                text: format!(
                    "cannot write {}: {error}",
                    self.state.join("agent.json").display()
                ),
            });
        }
    }
}

/// Holds the state folder.
fn lock(state: &Path) -> Result<File, AgentError> {
    let path = state.join("agent.lock");
    let cannot = |error: std::io::Error| {
        AgentError::Host(format!("cannot lock {}: {error}", path.display()))
    };
    let file = File::create(&path).map_err(cannot)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(AgentError::Host(format!(
            "another agent runs with the state folder {}: stop it, or name another folder in STATE_DIRECTORY",
            state.display()
        ))),
        Err(error) => Err(cannot(error.into())),
    }
}

/// What runs of an edge.
struct Standing {
    records: Records,
    /// Every port of the graph runs its program.
    is_attached: bool,
    /// Of the workloads.
    devices: DeviceChanges,
}

fn standing(edge: &str) -> Result<Standing, RuntimeError> {
    let (graph, is_attached) = match edge::status(edge) {
        Ok(status) => {
            let is_attached = status.ports.iter().all(|port| port.attached);
            (Some(status.text), is_attached)
        }
        Err(EdgeError::NotRunning { .. }) => (None, true),
        Err(error) => return Err(error.into()),
    };
    let networks = network::look(edge)?;
    let devices = networks.as_ref().map(Look::device_changes).transpose()?;
    Ok(Standing {
        records: (graph, networks.map(|look| look.text)),
        is_attached,
        devices: devices.unwrap_or_default(),
    })
}

/// Of a file and all that it names.
fn digest(planned: &Planned) -> String {
    let mut bytes = Vec::new();
    for (path, text) in &planned.files {
        bytes.extend_from_slice(path.as_os_str().as_encoded_bytes());
        bytes.push(0);
        bytes.extend_from_slice(text.as_deref().unwrap_or_default());
        bytes.push(0);
    }
    weir_graph::digest(&bytes)
}
