//! Virtual networks: what is declared of them -> the tables of one edge. Pure: no kernel, no clock; files through a trait.
//!
//! [`parse`] reads a document. docs/design/network.md says how networks work and how they are written down;
//! `bpf/include/abi/network.h` what the tables mean.

#![warn(clippy::expect_used, clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod check;
mod cure;
pub mod dhcp;
mod document;
pub mod exact;
mod export;
mod files;
mod graph;
pub mod model;
mod named;
mod numbers;
mod plan;
pub mod reference;
mod tables;
pub mod trace;
pub mod values;

pub use check::{BALANCER, FIRST_IDENTIFIER, Networks, check, instance_name};
pub use cure::cure;
pub use document::{
    DEFAULT_AGE, DEFAULT_FLOWS, DEFAULT_LEASE, DEFAULT_MTU, DEFAULT_PUNT_RATE, DEFAULT_STORM,
    MOST_FLOWS, MOST_IDENTIFIER, parse, parse_joined,
};
pub use export::{Change, Diff, Different, DifferentNetwork, diff, export};
pub use files::Carried;
pub use named::{NamedFile, named_files};
pub use numbers::{Given, NO_NUMBERS, Numbers};
pub use plan::{
    EdgeNetworks, GroupMembers, LEARNED, Label, Labels, Lease, PlanError, PrivateFunction,
    PuntFunction, Underlay, WorkloadDevice,
};
pub use tables::{Device, Host, Tables, TablesError};
