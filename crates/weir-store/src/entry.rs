//! Values of the store, as JSON. Unknown keys are ignored, so that a newer version of weir can add some.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::http::StoreError;

/// Number of this layout.
pub(crate) const FORMAT: u32 = 1;

/// Which store this is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreEntry {
    /// Number of the layout.
    pub format: u32,
    /// Chosen at random when the first document was pushed.
    pub id: String,
    /// When an operator last said that edges shall remove what this store does not have, in microseconds since 1970; 0: never.
    #[serde(default)]
    pub accepted: u64,
}

/// A declared edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeEntry {
    /// Grows with each write.
    pub generation: u64,
    /// Its section `[[edge]]`.
    pub text: String,
}

/// A network without its workloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkEntry {
    /// Grows with each write.
    pub generation: u64,
    /// Its tenant.
    pub tenant: String,
    /// Its section `[[network]]`, with all identifiers.
    pub text: String,
    /// Edges that functions have their home on.
    pub homes: Vec<String>,
}

/// A file that a network carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Grows with each write.
    pub generation: u64,
    /// Its section `[[network.file]]`.
    pub text: String,
}

/// Who wrote a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The document of the tenant lists it: it goes when the document does not list it any more.
    Document,
    /// A command added it: only a command deletes it.
    Command,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadEntry {
    /// Grows with each write.
    pub generation: u64,
    /// The edge that it is on.
    pub edge: String,
    /// Its section `[[network.workload]]`.
    pub text: String,
    /// Who wrote it.
    pub origin: Origin,
}

/// The document of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantEntry {
    /// Grows with each write.
    pub generation: u64,
    /// `version` of its document.
    pub version: u64,
    /// Of the document's entries.
    pub digest: String,
    /// Who pushed it.
    pub author: String,
    /// When, in seconds since 1970.
    pub time: u64,
    /// `false`: a push was interrupted, or goes on.
    pub complete: bool,
}

/// An agent that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// The host's name.
    pub host: String,
    /// Boot of that host: the same for an agent that was started again.
    pub boot: String,
    /// Version of weir.
    pub weir: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

/// That an agent was there: under a lease that ends later than that of [`Alive`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// The host's name.
    pub host: String,
    /// It was stopped, and said so.
    pub stopped: bool,
    /// When this was written, in seconds since 1970.
    pub time: u64,
}

/// How what the store says stands on an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultState {
    /// It runs.
    Applied,
    /// It could not be applied; what ran before runs.
    Failed,
    /// The running networks were edited on the host and are left alone.
    Edited,
    /// The agent has not come to it yet.
    Pending,
}

/// What an edge applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultEntry {
    /// Counts what this edge wrote: a store that has a lower number is older than what the edge has seen.
    pub serial: u64,
    /// Revision up to which the edge has read.
    pub revision: i64,
    /// Of the entries that are applied, with their revisions ([`crate::digest`]).
    pub digest: String,
    /// Version of the document that the edge made of them.
    pub version: u64,
    /// How it stands.
    pub state: ResultState,
    /// Why it failed.
    pub error: Option<String>,
    /// Entries that the edge keeps although this store does not have them.
    pub held: usize,
    /// When, in seconds since 1970.
    pub time: u64,
}

/// A generation above one that is there. It follows the clock, so that what is written after a store was restored is above what was lost.
#[must_use]
pub fn next_generation(before: u64) -> u64 {
    now().max(before.saturating_add(1))
}

/// Microseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

pub(crate) fn read<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::Entry {
        key: key.to_owned(),
        why: error.to_string(),
    })
}

/// As it is stored.
pub(crate) fn written<T: Serialize>(value: &T) -> Vec<u8> {
    // Structures of texts and numbers have a JSON text.
    serde_json::to_vec(value).unwrap_or_default()
}
