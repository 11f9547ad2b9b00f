//! The agent: holds the edges of a host to their files, and keeps the commands alive that they need.
//!
//! A client of `weir_runtime`, as the command line is. [`Agent::pass`] looks at files and edges once; who calls it decides how often, and what
//! becomes of the [`Event`]s. Packets never need the agent: edges run on when it ends. Design: docs/design/agent.md.

#![warn(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod agent;
mod alerts;
pub mod api;
mod children;
mod event;
mod files;
pub mod metrics;
mod notices;
mod owned;
mod privileges;
mod sensors;
pub mod service;
mod settings;
mod store;

pub use agent::{Agent, Row, State, View};
pub use children::{ChildRow, Programs, is_orphan};
pub use event::Event;
pub use privileges::Privileges;
pub use sensors::{SensorSettings, User};
pub use settings::{
    AlertFolder, ApiSettings, CLIENT, ClientRole, EdgeSettings, Edits, Group, LoopbackAddress,
    RemoteAddress, SETTINGS, Settings, Socket,
};

/// What keeps the agent from working at all. What goes wrong with one file or edge is an [`Event`].
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent's own settings are wrong.
    #[error("{path}: {text}")]
    Settings {
        /// The file.
        path: String,
        /// What is wrong, with the line.
        text: String,
    },
    /// Something of the host is missing.
    #[error("{0}")]
    Host(String),
}
