//! One edge, whoever asks for it: a configuration is planned, compared with what runs, applied, rolled back and taken down here.
//!
//! An edge has up to two parts, each planned by a pure crate and carried out by `weir_engine`: the graph of functions on its ports
//! (`weir_graph`) and the virtual networks of its tenants (`weir_network`). [`plan`] reads a file of any kind, [`Planned::changes`] compares
//! it with what runs, [`Planned::apply`] makes it so, [`Former`] goes back, [`down`] removes it.
//! Clients (the command line, an agent) print and ask; they make no decision of their own. Nothing here prints.
//! Design: docs/design/runtime.md.

#![warn(clippy::expect_used, clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod apply;
pub mod compare;
pub mod connections;
pub mod dynamic_sets;
mod error;
mod files;
mod former;
pub mod graph;
pub mod history;
mod kind;
mod middleboxes;
pub mod networks;
mod plan;
pub mod stations;
pub mod status;
pub mod workloads;

pub use apply::{Applied, down, down_networks, edges};
pub use error::RuntimeError;
pub use files::FilesRead;
pub use former::Former;
pub use kind::Kind;
pub use plan::{
    Changes, GraphChanges, GraphPart, NetworkChanges, NetworksPart, Planned, edge_of, plan,
    plan_alone, read,
};
