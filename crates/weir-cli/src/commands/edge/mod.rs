//! What the commands on edges share: reading a configuration, planning it, and what is kept of it beside the running edge.
//!
//! `weir_graph` plans, `weir_engine::edge` carries out. Mistakes are shown with their places and end a command with status 2 before
//! anything on the host is touched.

pub(crate) mod apply;
mod carried;
pub(crate) mod confirm;
pub(crate) mod diff;
pub(super) mod record;
pub(crate) mod status;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use weir_engine::edge::{self, EdgeError};
use weir_functions::kind::Files;
use weir_graph::{Config, EdgePlan, Folder, Numbers};
use weir_kernel::KernelError;
use weir_policy::Diagnostics;

use super::policy::count;
use super::prog::pinned::holder::occupied;
use crate::failure::Failure;
use crate::output;
use record::Record;

/// A configuration that was planned.
pub(super) struct Planned {
    pub(super) plan: EdgePlan,
    pub(super) record: Record,
    /// Every file that was asked for, the configuration first: what it held, `None` if it could not be read.
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
}

/// Why a configuration was not planned.
pub(super) enum Refused {
    /// Mistakes in it; shown already.
    Mistakes(String),
    Failed(Failure),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        match refused {
            Refused::Mistakes(text) => Failure::Usage(text),
            Refused::Failed(failure) => failure,
        }
    }
}

impl From<EdgeError> for Failure {
    fn from(error: EdgeError) -> Failure {
        if let EdgeError::Of {
            who,
            error: KernelError::AlreadyAttached { iface, prog_id },
        } = &error
        {
            return Failure::Failed(format!("{who}: {}", occupied(iface, *prog_id)));
        }
        match error.is_usage() {
            true => Failure::usage(error),
            false => Failure::failed(error),
        }
    }
}

/// Reads a configuration. Mistakes are shown.
fn read(path: &Path) -> Result<(String, Config), Refused> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let text = format!(
            "cannot read the configuration `{}`: {error}",
            path.display()
        );
        Refused::Failed(Failure::Usage(text))
    })?;
    let config = weir_graph::parse(&text, &path.display().to_string())
        .map_err(|found| mistakes(path, &found))?;
    Ok((text, config))
}

/// The name of the edge that a configuration is of. Mistakes are shown.
pub(super) fn name(path: &Path) -> Result<String, Failure> {
    Ok(read(path)?.1.edge)
}

/// Plans a configuration with the numbers that its ports have where they run. Mistakes and warnings are shown.
pub(super) fn plan(path: &Path) -> Result<Planned, Refused> {
    let (text, config) = read(path)?;
    let numbers = numbers(&config.edge).map_err(Refused::Failed)?;
    let files = Watched::new(Folder::of(path), &config.edge);
    let planned = weir_graph::plan(&config, &files, &numbers);
    let (plan, warnings) = planned.map_err(|found| mistakes(path, &found))?;
    output::tell(&warnings.render(output::stderr_is_terminal()));
    let folder = path.parent().unwrap_or(Path::new(""));
    let record = Record::new(path, &text, &plan, &files.read.borrow());
    let read = files.read.into_inner().into_iter();
    let all = read.map(|(file, bytes)| (folder.join(file), bytes));
    Ok(Planned {
        plan,
        record,
        files: std::iter::once((path.to_owned(), Some(text.into_bytes())))
            .chain(all)
            .collect(),
    })
}

/// Numbers of the ports of the edge that runs; none where that cannot be seen, as without root.
fn numbers(edge: &str) -> Result<Numbers, Failure> {
    match edge::numbers(edge) {
        Ok(numbers) => Ok(numbers),
        Err(error) if is_hidden(&error) => Ok(Numbers::new()),
        Err(error) => Err(error.into()),
    }
}

/// What is kept beside the running edge; `None` if it does not run, or that cannot be seen.
pub(super) fn running(edge: &str) -> Result<Option<Record>, Failure> {
    match edge::status(edge) {
        Ok(status) => Record::read(edge, &status.text).map(Some),
        Err(EdgeError::NotRunning { .. }) => Ok(None),
        Err(error) if is_hidden(&error) => {
            output::complain("only root sees what runs: this is compared with nothing");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether only root can tell.
fn is_hidden(error: &EdgeError) -> bool {
    !rustix::process::geteuid().is_root() && matches!(error, EdgeError::Kernel(_))
}

fn mistakes(path: &Path, found: &Diagnostics) -> Refused {
    output::tell(&found.render(output::stderr_is_terminal()));
    Refused::Mistakes(format!(
        "{}: {} in the configuration; nothing was changed",
        path.display(),
        count(found.len(), "mistake")
    ))
}

/// Files of a folder, and what was read of them.
struct Watched {
    folder: Folder,
    /// The edge that the configuration is of.
    edge: String,
    read: RefCell<BTreeMap<PathBuf, Option<Vec<u8>>>>,
}

impl Watched {
    fn new(folder: Folder, edge: &str) -> Watched {
        Watched {
            folder,
            edge: edge.to_owned(),
            read: RefCell::default(),
        }
    }
}

impl Files for Watched {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let bytes = self.folder.read(path);
        let seen = bytes.as_ref().ok().cloned();
        self.read.borrow_mut().insert(path.to_owned(), seen);
        bytes
    }

    fn modified(&self, path: &Path) -> Option<u64> {
        self.folder.modified(path)
    }

    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        kept(&self.edge, instance, map)
    }
}

/// What a map of a running instance holds; `None` if it does not run. Where that cannot be seen, the plan is that of a fresh start.
fn kept(edge: &str, instance: &str, map: &str) -> Option<Vec<u8>> {
    match edge::held(edge, instance, map) {
        Ok(held) => held,
        Err(error) if is_hidden(&error) => None,
        Err(error) => {
            output::complain(&format!(
                "what {instance} runs with cannot be read ({error}): this is planned as if it did not run"
            ));
            None
        }
    }
}
