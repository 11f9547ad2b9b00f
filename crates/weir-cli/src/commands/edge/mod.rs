//! What the commands on edges share: planning a file through `weir_runtime`, and showing what its author should know.
//!
//! Mistakes are shown with their places and end a command with status 2 before anything on the host is touched.

pub(crate) mod apply;
pub(crate) mod confirm;
pub(crate) mod diff;
pub(super) mod networks;
mod others;
pub(crate) mod status;

use std::path::Path;
use std::process::ExitCode;

use weir_engine::edge::EdgeError;
use weir_engine::network::NetworkError;
use weir_kernel::KernelError;
use weir_runtime::{Planned, RuntimeError};

use super::prog::pinned::holder::occupied;
use crate::args::PlanArgs;
use crate::failure::Failure;
use crate::output;

impl From<RuntimeError> for Failure {
    /// Shows the mistakes of a file.
    fn from(error: RuntimeError) -> Failure {
        match error {
            RuntimeError::Edge(error) => error.into(),
            RuntimeError::Network(error) => error.into(),
            RuntimeError::Mistakes { ref found, .. } => {
                output::tell(&found.render(output::stderr_has_color()));
                Failure::usage(error)
            }
            RuntimeError::Usage(text) => Failure::Usage(text),
            RuntimeError::Failed(text) => Failure::Failed(text),
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

impl From<NetworkError> for Failure {
    fn from(error: NetworkError) -> Failure {
        match error {
            NetworkError::Tables(_) | NetworkError::Name { .. } => Failure::usage(error),
            _ => Failure::failed(error),
        }
    }
}

/// Plans a file: the configuration of an edge, or a document of networks. Warnings are shown.
pub(super) fn plan(path: &Path, edge: Option<&str>) -> Result<Planned, Failure> {
    let planned = weir_runtime::plan(path, edge)?;
    for warnings in &planned.warnings {
        output::tell(&warnings.render(output::stderr_has_color()));
    }
    for note in &planned.notes {
        output::complain(note);
    }
    Ok(planned)
}

/// `weir plan`.
pub(crate) fn plan_of(args: &PlanArgs) -> Result<ExitCode, Failure> {
    apply::dry_run(&plan(&args.file, args.edge.as_deref())?, None, args.json)
}

/// The name of the edge that a file is of; `edge`: which one of a document this host is.
pub(super) fn name(path: &Path, edge: Option<&str>) -> Result<String, Failure> {
    Ok(weir_runtime::edge_of(path, edge)?)
}
