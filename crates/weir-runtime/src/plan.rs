//! A file -> what it makes of an edge, and what of that differs from what runs. Nothing on the host is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_engine::network::{self, NetworkError};
use weir_functions::joined::Joined;
use weir_graph::{Config, EdgePlan, Folder, Mode, Networks, Outline};
use weir_network::{EdgeNetworks, Networks as Checked};
use weir_policy::Diagnostics;

use crate::error::RuntimeError;
use crate::files::{self, FilesRead, Read, Watched};
use crate::kind::Kind;
use crate::{graph, networks};

/// An edge as a file wants it.
#[derive(Debug)]
pub struct Planned {
    /// Its name.
    pub edge: String,
    /// Its graph; `None`: the file declares none.
    pub graph: Option<GraphPart>,
    /// Its virtual networks; `None`: the file declares none.
    pub networks: Option<NetworksPart>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Diagnostics>,
    /// What a user should know of how this was planned.
    pub notes: Vec<String>,
    /// Every file that was asked for, the one that was named first.
    pub files: FilesRead,
    /// Workloads whose devices do not exist are left out until they do.
    pub(crate) waits: bool,
    /// The configuration of the whole edge; `None`: a document of networks alone, which says nothing of the graph.
    pub(crate) configuration: Option<PathBuf>,
}

/// A graph, and what is kept beside it.
#[derive(Debug)]
pub struct GraphPart {
    /// What runs then.
    pub plan: EdgePlan,
    /// What is kept.
    pub record: graph::Record,
}

/// Virtual networks, and what is kept beside them.
#[derive(Debug)]
pub struct NetworksPart {
    /// What runs then, with the numbers of what runs now where that can be seen.
    pub plan: Arc<EdgeNetworks>,
    /// The document as it was checked.
    pub checked: Checked,
    /// What is kept.
    pub record: networks::Record,
    /// The generation that ran when this was planned, 0 if none could be seen; and the configuration that its networks belonged to.
    pub(crate) seen: (u64, Option<PathBuf>),
}

/// What would change of what runs.
#[derive(Debug)]
pub struct Changes {
    /// Of the graph; `None`: none runs and none is wanted, or the file says nothing of it.
    pub graph: Option<GraphChanges>,
    /// Of the virtual networks, likewise.
    pub networks: Option<NetworkChanges>,
}

/// What would change of a graph.
#[derive(Debug)]
pub struct GraphChanges {
    /// Whether one runs at all.
    pub is_running: bool,
    /// What would change.
    pub diff: weir_graph::Diff,
}

/// What would change of virtual networks.
#[derive(Debug)]
pub struct NetworkChanges {
    /// Whether any run.
    pub is_running: bool,
    /// What would change of their document, of all its edges.
    pub diff: weir_network::Diff,
    /// All of them would be removed.
    pub are_removed: bool,
}

/// Plans what a file declares. `edge`: which edge of a document of networks this is; default: the only one, or the one that has the host's name.
///
/// # Errors
/// [`RuntimeError::Mistakes`], or what cannot be read.
pub fn plan(path: &Path, edge: Option<&str>) -> Result<Planned, RuntimeError> {
    match Kind::of(path) {
        Kind::Policy => Err(RuntimeError::Usage(format!(
            "{}: this is a policy, not the configuration of an edge (.toml): `weir run {0} -i INTERFACE` runs it",
            path.display()
        ))),
        Kind::Configuration => of_configuration(path, edge),
        Kind::Networks => of_document(path, edge),
    }
}

/// Plans a document of networks that others wrote: it can neither include nor name files of this host, so nothing of them is told to whoever reads
/// its errors.
///
/// # Errors
/// As of [`plan`].
pub fn plan_alone(path: &Path, edge: &str) -> Result<Planned, RuntimeError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        RuntimeError::Usage(format!(
            "cannot read the document `{}`: {error}",
            path.display()
        ))
    })?;
    let mut planned = Planned {
        edge: edge.to_owned(),
        graph: None,
        networks: None,
        warnings: Vec::new(),
        notes: Vec::new(),
        files: vec![(path.to_owned(), Some(text.clone().into_bytes()))],
        waits: false,
        configuration: None,
    };
    let name = path.display().to_string();
    let record = networks::Record::of_text(&name, text);
    planned.networks = Some(planned.networks_of(path, record, Some(edge))?);
    Ok(planned)
}

/// Reads a configuration, without planning it.
///
/// # Errors
/// [`RuntimeError::Mistakes`], or it cannot be read.
pub fn read(path: &Path) -> Result<Config, RuntimeError> {
    let (source, _) = files::joined(path, "configuration")?;
    parse(path, source)
}

fn parse(path: &Path, source: Joined) -> Result<Config, RuntimeError> {
    weir_graph::parse_joined(source).map_err(|found| mistakes(path, found))
}

/// The name of the edge that a file is of. `edge`: which one of a document this is, as of [`plan`].
///
/// # Errors
/// As of [`plan`].
pub fn edge_of(path: &Path, edge: Option<&str>) -> Result<String, RuntimeError> {
    if Kind::of(path) == Kind::Networks {
        return networks::edge_of(&networks::Record::of_file(path)?.parse()?, edge);
    }
    let config = read(path)?;
    is_of(path, &config, edge)?;
    Ok(config.edge)
}

/// Whether a configuration is of the edge that was asked for, if one was.
fn is_of(path: &Path, config: &Config, edge: Option<&str>) -> Result<(), RuntimeError> {
    match edge.filter(|given| *given != config.edge) {
        None => Ok(()),
        Some(given) => Err(RuntimeError::Usage(format!(
            "{} configures edge {}, not {given}: `edge = \"{given}\"` in it changes that",
            path.display(),
            config.edge
        ))),
    }
}

fn mistakes(path: &Path, found: Diagnostics) -> RuntimeError {
    RuntimeError::Mistakes {
        path: path.to_owned(),
        what: "configuration",
        found,
    }
}

fn of_configuration(path: &Path, edge: Option<&str>) -> Result<Planned, RuntimeError> {
    let (source, files) = files::joined(path, "configuration")?;
    let config = parse(path, source.clone())?;
    is_of(path, &config, edge)?;
    let mut planned = Planned {
        edge: config.edge.clone(),
        graph: None,
        networks: None,
        warnings: Vec::new(),
        notes: Vec::new(),
        files,
        waits: false,
        configuration: Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())),
    };
    if config.has_graph() {
        planned.graph = Some(planned.graph_of(path, &source, &config)?);
    }
    if let Some(declared) = &config.networks {
        let part = match declared {
            Networks::File(name) => {
                let document = path.parent().unwrap_or(Path::new("")).join(&name.value);
                planned.networks_of_file(&document, Some(&config.edge))?
            }
            Networks::Here => {
                let record = networks::Record::of(path, source);
                planned.networks_of(path, record, Some(&config.edge))?
            }
        };
        planned.share_devices(&part.plan)?;
        planned.networks = Some(part);
    }
    Ok(planned)
}

fn of_document(path: &Path, edge: Option<&str>) -> Result<Planned, RuntimeError> {
    let mut planned = Planned {
        edge: String::new(),
        graph: None,
        networks: None,
        warnings: Vec::new(),
        notes: Vec::new(),
        files: Vec::new(),
        waits: false,
        configuration: None,
    };
    let part = planned.networks_of_file(path, edge)?;
    planned.edge = part.plan.edge.clone();
    planned.networks = Some(part);
    Ok(planned)
}

impl Planned {
    fn graph_of(
        &mut self,
        path: &Path,
        source: &Joined,
        config: &Config,
    ) -> Result<GraphPart, RuntimeError> {
        let numbers = graph::numbers(&config.edge)?;
        let notes = std::cell::RefCell::new(Vec::new());
        let held = |instance: &str, map: &str| {
            graph::held(&config.edge, instance, map, &mut |note| {
                notes.borrow_mut().push(note);
            })
        };
        let files = Watched::new(Some(Folder::of(path)), &held);
        let planned = weir_graph::plan(config, &files, &numbers);
        let (plan, warnings) = planned.map_err(|found| mistakes(path, found))?;
        let read = files.into_read();
        self.notes.extend(notes.into_inner());
        self.warnings.push(warnings);
        let record = graph::Record::new(path, source.clone(), &plan, &read);
        self.add_files(path, read);
        Ok(GraphPart { plan, record })
    }

    fn networks_of_file(
        &mut self,
        path: &Path,
        edge: Option<&str>,
    ) -> Result<NetworksPart, RuntimeError> {
        let (source, files) = files::joined(path, "document")?;
        self.files.extend(files);
        self.networks_of(path, networks::Record::of(path, source), edge)
    }

    fn networks_of(
        &mut self,
        path: &Path,
        mut record: networks::Record,
        edge: Option<&str>,
    ) -> Result<NetworksPart, RuntimeError> {
        record.configuration.clone_from(&self.configuration);
        let document = record.parse()?;
        if let (Some(configuration), Some(edge)) = (&self.configuration, edge)
            && document.edges.iter().all(|one| one.name.value != edge)
        {
            let names: Vec<&str> = document.edges.iter().map(|e| e.name.as_str()).collect();
            return Err(RuntimeError::Usage(format!(
                "{} configures edge {edge}, and {} has no edge of that name: write `edge = \"NAME\"` at the top of the configuration, with one of {}",
                configuration.display(),
                path.display(),
                names.join(", ")
            )));
        }
        let edge = networks::edge_of(&document, edge)?;
        record.read_devices(&edge)?;
        let mut read = Read::new();
        let (mut checked, warnings) = record.check_beside(&|_, _| None, &mut read)?;
        self.warnings.push(warnings);
        self.add_files(path, read);
        // Numbers of what runs, where that can be seen.
        let running = network::look(&edge).ok().flatten();
        if let Some(look) = &running {
            let notes = std::cell::RefCell::new(Vec::new());
            let held = |function: &str, map: &str| {
                networks::held(function, look.held(function, map), &mut |note| {
                    notes.borrow_mut().push(note);
                })
            };
            checked = record.beside(checked, &held)?;
            self.notes.extend(notes.into_inner());
        }
        let seen = match &running {
            Some(look) => {
                let owner = networks::Record::read(&look.text).ok();
                (look.generation, owner.and_then(|owner| owner.configuration))
            }
            None => (0, None),
        };
        let before = running.map_or_else(Arc::default, |look| look.numbers);
        let plan = Arc::new(networks::planned(&checked, &edge, &before)?);
        Ok(NetworksPart {
            plan,
            checked,
            record,
            seen,
        })
    }

    fn add_files(&mut self, path: &Path, read: Read) {
        let folder = path.parent().unwrap_or(Path::new(""));
        let read = read.into_iter();
        self.files
            .extend(read.map(|(file, bytes)| (folder.join(file), bytes)));
    }

    /// Says in which order a device serves the graph and the networks, where it serves both. On one hook there would be no order that lasts.
    fn share_devices(&mut self, networks: &EdgeNetworks) -> Result<(), RuntimeError> {
        let Some(graph) = &self.graph else {
            return Ok(());
        };
        let workloads = networks.devices.iter().map(|one| {
            let what = format!("workload {}/{}", one.network, one.workload);
            (one.device.as_str(), what)
        });
        let underlay = networks.underlay.device.iter();
        let underlay = underlay.map(|device| (device.as_str(), "the underlay".to_owned()));
        let of_networks: BTreeMap<&str, String> = workloads.chain(underlay).collect();
        for port in &graph.plan.ports {
            if let Some(what) = of_networks.get(port.device.as_str()) {
                if port.mode == Mode::Tc {
                    return Err(RuntimeError::Usage(format!(
                        "{} is port {} of the graph, on tc, and {what} of the networks, which are on tc, too: leave `hook = \"tc\"` out of the port",
                        port.device, port.name
                    )));
                }
                self.notes.push(format!(
                    "{} is port {} of the graph and {what} of the networks: received packets pass the graph first, and the networks see what it passes to the stack",
                    port.device, port.name
                ));
            }
        }
        Ok(())
    }

    /// What applying this would change of what runs.
    ///
    /// # Errors
    /// What runs cannot be read.
    pub fn changes(&self, note: &mut dyn FnMut(String)) -> Result<Changes, RuntimeError> {
        Ok(Changes {
            graph: self.graph_changes(note)?,
            networks: self.network_changes()?,
        })
    }

    /// What applying this would change of the graph that runs; `None`: none runs and none is wanted, or the file says nothing of it.
    ///
    /// # Errors
    /// What runs cannot be read.
    pub fn graph_changes(
        &self,
        note: &mut dyn FnMut(String),
    ) -> Result<Option<GraphChanges>, RuntimeError> {
        if self.graph.is_none() && self.configuration.is_none() {
            return Ok(None);
        }
        let before = graph::running(&self.edge, note)?;
        let is_running = before.is_some();
        if self.graph.is_none() && !is_running {
            return Ok(None);
        }
        let nothing = Outline::default();
        let before = before.as_ref().map_or(&nothing, |record| &record.outline);
        let after = self.graph.as_ref().map(|part| &part.record.outline);
        let diff = weir_graph::diff(before, after.unwrap_or(&nothing));
        Ok(Some(GraphChanges { is_running, diff }))
    }

    fn network_changes(&self) -> Result<Option<NetworkChanges>, RuntimeError> {
        let running = self.running_networks()?;
        let is_running = running.is_some();
        let nothing = weir_network::model::Document::default();
        let before = match &running {
            Some(record) => record.parse()?,
            None => nothing.clone(),
        };
        let (after, are_removed) = match (&self.networks, &running) {
            (Some(part), _) => (&part.checked.document, false),
            (None, Some(record)) if self.owns(record) => (&nothing, true),
            (None, _) => return Ok(None),
        };
        Ok(Some(NetworkChanges {
            is_running,
            diff: weir_network::diff(&before, after),
            are_removed,
        }))
    }

    /// What is kept beside the running networks of the edge, where that can be seen.
    pub(crate) fn running_networks(&self) -> Result<Option<networks::Record>, RuntimeError> {
        let look = match network::look(&self.edge) {
            Ok(look) => look,
            // Only root can tell.
            Err(NetworkError::Kernel(_)) if !rustix::process::geteuid().is_root() => None,
            Err(error) => return Err(error.into()),
        };
        look.map(|look| networks::Record::read(&look.text))
            .transpose()
    }

    /// Whether networks that run are there because a configuration of this edge named their document: without that they go.
    pub(crate) fn owns(&self, record: &networks::Record) -> bool {
        self.configuration.is_some() && record.configuration.is_some()
    }

    /// Whether exactly this runs.
    ///
    /// # Errors
    /// What runs cannot be read.
    pub fn is_running(&self) -> Result<bool, RuntimeError> {
        if let Some(part) = &self.graph
            && graph::running(&self.edge, &mut |_| ())?.as_ref() != Some(&part.record)
        {
            return Ok(false);
        }
        Ok(match &self.networks {
            Some(part) => self.running_networks()?.as_ref() == Some(&part.record),
            None => true,
        })
    }
}
