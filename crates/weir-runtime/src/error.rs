//! Why something was not planned or not done. Nothing that runs was changed, unless the text says so.

use std::path::PathBuf;

use weir_engine::edge::EdgeError;
use weir_engine::network::NetworkError;
use weir_policy::Diagnostics;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A file has mistakes: all of them, with their places.
    #[error("{}: {} in the {what}; nothing was changed", .path.display(), count(.found.len()))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// `configuration` or `document`.
        what: &'static str,
        /// The mistakes.
        found: Diagnostics,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
    /// It could be, and failed.
    #[error("{0}")]
    Failed(String),
    /// The graph.
    #[error(transparent)]
    Edge(#[from] EdgeError),
    /// The virtual networks.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl RuntimeError {
    /// Whether what was asked for is wrong, rather than the host refusing it.
    pub fn is_usage(&self) -> bool {
        match self {
            RuntimeError::Mistakes { .. } | RuntimeError::Usage(_) => true,
            RuntimeError::Failed(_) => false,
            RuntimeError::Edge(error) => error.is_usage(),
            RuntimeError::Network(error) => {
                matches!(error, NetworkError::Tables(_) | NetworkError::Name { .. })
            }
        }
    }
}

fn count(mistakes: usize) -> String {
    match mistakes {
        1 => "1 mistake".to_owned(),
        many => format!("{many} mistakes"),
    }
}
