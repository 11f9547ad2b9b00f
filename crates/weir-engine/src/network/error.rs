//! Why the networks of an edge could not be changed or read.

use weir_kernel::{KernelError, MapDefinition};
use weir_network::TablesError;

use crate::edge::EdgeError;

/// What went wrong; what ran before runs on.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The plan does not fit this host.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// More than the maps hold: they must be made anew.
    #[error("the maps of the edge are too small for what is declared")]
    TooSmall,
    /// A function with a program of its own.
    #[error("function {name}: {error}")]
    Function {
        /// `network/function`.
        name: String,
        /// What went wrong.
        error: Box<EdgeError>,
    },
    /// The state of a function would change its shape.
    #[error(
        "function {name}: its map {map} runs as {have} and would become {want}, so its state cannot be kept: keep the size, or apply the document without the function first"
    )]
    StateChanged {
        /// `network/function`.
        name: String,
        /// Map.
        map: String,
        /// Runs as.
        have: MapDefinition,
        /// Would be.
        want: MapDefinition,
    },
    /// Files or devices that it is made of changed since it was applied.
    #[error(
        "function {name} is not what its document makes of it now: apply the document, then watch it"
    )]
    OtherContents {
        /// `network/function`.
        name: String,
    },
    /// Nothing is there to be watched.
    #[error("edge {edge} runs no networks here")]
    NotRunning {
        /// Its name.
        edge: String,
    },
    /// No slot is left.
    #[error("an edge runs {most} functions with programs of their own at most")]
    TooManyFunctions {
        /// So many.
        most: u32,
    },
    /// A part of what runs is gone.
    #[error(
        "{what} of the edge's networks is missing; take them down with `weir net delete` and apply again"
    )]
    Incomplete {
        /// Which one.
        what: String,
    },
    /// Another process changes them.
    #[error("the networks of edge {edge} are being changed by another process; retry later")]
    Busy {
        /// Its name.
        edge: String,
    },
    /// Packets of its ring have one reader.
    #[error("a helper of edge {edge} runs already; end it first")]
    HelperRuns {
        /// Its name.
        edge: String,
    },
    /// The north socket, or a thread.
    #[error("{what}: {source}")]
    Helper {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Not a name.
    #[error("invalid edge name `{edge}`: letters, digits, `-` and `_`, up to 32")]
    Name {
        /// What was given.
        edge: String,
    },
    /// They run elsewhere.
    #[error(
        "the networks of edge {edge} run in another network namespace (inode {there}); run this there"
    )]
    OtherNamespace {
        /// Its name.
        edge: String,
        /// Inode of the namespace.
        there: u64,
    },
    /// Another weir made them.
    #[error(
        "what runs was made by another version of weir ({why}); take it down with that one's `weir net delete`, or remove its pins"
    )]
    OtherVersion {
        /// In words.
        why: String,
    },
}
