//! Talking to a running `weir run` from another process: one line of JSON each way over a private Unix socket.
//!
//! The socket is `/run/weir/<inode of the network namespace>-<pid>.sock`, mode 0600. What a request means is in `desk`, who listens in
//! `server`, who asks in `client`. Invariant: a request changes the rules whole or not at all, and one at a time.

mod client;
mod policy_file;
mod server;
mod service;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use client::{Client, ClientError};
pub use policy_file::{PolicyFile, SaveError};
pub use server::Server;
use weir_functions::middlebox::flows::{Connection, ConnectionFilter};
use weir_kernel::KernelError;

pub use crate::live::{
    ElementsAdded, LimitInUse, Listed as ListedElement, OpenConnections, SetInfo, Stay,
};

/// Version of requests and replies. A server refuses others.
pub const VERSION: u32 = 1;

/// Where sockets are.
pub const FOLDER: &str = "/run/weir";

/// A line to the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// What is asked.
    pub ask: Ask,
}

/// What can be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Who are you?
    Hello,
    /// Change rules, all at once or not at all.
    Edit {
        /// The changes.
        edits: Vec<Change>,
        /// Only if the rules are still those of this generation.
        if_generation: Option<u64>,
    },
    /// All rules with their counters.
    List,
    /// Put a policy in place of the one that runs.
    Load {
        /// Its file, absolute; default: the one that runs, read again.
        file: Option<PathBuf>,
        /// No connection goes on.
        flush_connections: bool,
    },
    /// What the rules compile to.
    Tables,
    /// Lay everything out anew.
    Compact,
    /// Connections that a filter means, from a place of the table on.
    Connections {
        /// Which.
        filter: ConnectionFilter,
        /// 0, or what the page before said.
        from: u32,
        /// Connections to answer with at most.
        limit: u32,
    },
    /// End the connections that a filter means.
    EndConnections {
        /// Which.
        filter: ConnectionFilter,
    },
    /// The sets that packets fill.
    Sets,
    /// Elements of a set, from a place of its table on.
    Elements {
        /// Its name.
        set: String,
        /// 0, or what the page before said.
        from: u32,
        /// Elements to answer with at most.
        limit: u32,
    },
    /// Put elements into a set, one after the other.
    AddElements {
        /// Its name.
        set: String,
        /// Addresses.
        elements: Vec<String>,
        /// For how long.
        stay: Stay,
    },
    /// Take elements out of a set.
    DeleteElements {
        /// Its name.
        set: String,
        /// Addresses; `None`: all.
        elements: Option<Vec<String>>,
    },
    /// Write the rules to a policy file.
    Save {
        /// Another file than the one it was started from; absolute.
        file: Option<PathBuf>,
        /// Also over a file that changed or is not the configured one.
        force: bool,
    },
}

/// One change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A rule as a policy has it, in one line.
    Add(String),
    /// The rule of this id.
    Delete(u32),
    /// All rules.
    Flush,
}

/// A line from the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Ask::Hello`].
    Hello(Hello),
    /// To [`Ask::Edit`] and [`Ask::Compact`].
    Edited(Edited),
    /// To [`Ask::List`].
    Rules(Rules),
    /// To [`Ask::Tables`].
    Tables(Tables),
    /// To [`Ask::Load`].
    Loaded(Loaded),
    /// To [`Ask::Save`].
    Saved(Saved),
    /// To [`Ask::Connections`].
    Connections(ConnectionPage),
    /// To [`Ask::EndConnections`]: how many.
    Ended(u64),
    /// To [`Ask::Sets`].
    Sets(Sets),
    /// To [`Ask::Elements`].
    Elements(ElementPage),
    /// To [`Ask::AddElements`].
    ElementsAdded(ElementsAdded),
    /// To [`Ask::DeleteElements`]: how many were there.
    ElementsDeleted(u64),
    /// Nothing was done.
    Refused(Refused),
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its process.
    pub pid: u32,
    /// Interfaces it is attached to.
    pub interfaces: Vec<String>,
    /// Policy file it was started from.
    pub policy: PathBuf,
}

/// An edit that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edited {
    /// Ids of the rules added.
    pub added: Vec<u32>,
    /// Number of the state of the rules since then.
    pub generation: u64,
    /// Whether everything was laid out anew for it.
    pub rebuilt: bool,
    /// Microseconds it took.
    pub micros: u64,
    /// What is odd about the rules added.
    pub warnings: String,
}

/// A policy that took the place of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// Its file.
    pub file: PathBuf,
    /// Rules that stay.
    pub kept: usize,
    /// Of them, those that have other ids now.
    pub renumbered: usize,
    /// Rules that came.
    pub added: usize,
    /// Rules that went.
    pub removed: usize,
    /// Number of the state of the rules since then.
    pub generation: u64,
    /// Whether everything was laid out anew for it.
    pub rebuilt: bool,
    /// Microseconds it took.
    pub micros: u64,
    /// What is odd about the policy.
    pub warnings: String,
}

/// All rules.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rules {
    /// The instance.
    pub instance: Hello,
    /// Number of the state of the rules.
    pub generation: u64,
    /// Whether they are not those of the policy file.
    pub drifted: bool,
    /// By id, those deleted live among them.
    pub rules: Vec<Listed>,
}

/// A rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Its id, for `weir rule delete`.
    pub id: u32,
    /// Where it stands against the policy file.
    pub state: State,
    /// Its canonical text.
    pub rule: String,
    /// Packets that matched; 0 of deleted rules.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A rule and the policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Runs and is in the file.
    Configured,
    /// Runs and is not in the file.
    AddedLive,
    /// Is in the file and does not run.
    DeletedLive,
}

/// What the rules compile to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tables {
    /// The instance.
    pub instance: Hello,
    /// Number of the state of the rules.
    pub generation: u64,
    /// Rules that run.
    pub rules: usize,
    /// Of them, those that are outside the plan.
    pub beside: usize,
    /// How many may lie there.
    pub room: usize,
    /// Deleted rules that still take a slot in the plan.
    pub dead: usize,
    /// Tables of the plan.
    pub tables: usize,
    /// Of them, how many are probed for a packet at most.
    pub probes: usize,
    /// Rules of the plan compared with a packet at most.
    pub candidates: usize,
    /// Rules of the plan with rewrites or log lines that one packet can match.
    pub hits: usize,
    /// Limits that count addresses apart, or connections.
    #[serde(default)]
    pub limits: Vec<LimitInUse>,
    /// Maps: name, entries, bytes.
    pub maps: Vec<(String, u32, u64)>,
}

/// Part of the table of connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionPage {
    /// The instance.
    pub instance: Hello,
    /// How many connections are kept at least.
    pub capacity: u32,
    /// Those that are meant.
    pub connections: Vec<Connection>,
    /// Where to go on; `None`: this was the end.
    pub next: Option<u32>,
}

/// The sets that packets fill.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sets {
    /// The instance.
    pub instance: Hello,
    /// In the order in which rules name them.
    pub sets: Vec<SetInfo>,
}

/// Part of a set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ElementPage {
    /// In no order.
    pub elements: Vec<ListedElement>,
    /// Where to go on; `None`: this was the end.
    pub next: Option<u32>,
}

/// A policy file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Where.
    pub file: PathBuf,
    /// Rules in it.
    pub rules: usize,
    /// Lines added.
    pub added: usize,
    /// Rules taken out.
    pub removed: usize,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Who is to do something about it.
    pub kind: Kind,
    /// For the user; several lines for mistakes in a rule.
    pub message: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The request is wrong.
    Usage,
    /// Somebody else changed the rules first.
    Generation,
    /// Somebody else is changing the rules.
    Busy,
    /// The host refused.
    Failed,
}

fn sys(what: impl Into<String>, source: std::io::Error) -> KernelError {
    KernelError::Sys {
        what: what.into(),
        source,
    }
}
