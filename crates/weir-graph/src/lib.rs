//! The graph of one edge: configuration -> plan -> difference to what runs. Pure: no kernel, no clock, files through a trait.
//!
//! [`parse`] reads the TOML, [`plan`] makes an [`EdgePlan`] of it, by way of a [`Model`], that `weir_engine::edge` carries out; [`diff`] says what of it
//! differs from another one. Everything that can be known without the running kernel is refused here, all of it at once, with file, line and next step.
//! The configuration is described in docs/graph.md.

#![warn(clippy::expect_used, clippy::unwrap_used)]

mod attach;
mod checked;
mod config;
mod diff;
mod digest;
mod directions;
mod edge;
mod misplaced;
mod model;
mod objects;
mod outline;
mod parts;
mod paths;
mod plan;
mod planning;
mod reach;
mod show;
mod wired;
mod wiring;

pub use attach::{Attach, CgroupHook};
pub use checked::ModelError;
pub use config::{Config, Networks, parse, parse_joined};
pub use diff::{Change, Diff, diff};
pub use digest::{Digest, digest};
pub use edge::{EdgePlan, HookPlan, Hooks, Instance, MapType, Mode, PortPlan, SharedMap, Target};
pub use model::{Link, Model, Source};
pub use outline::{HookOutline, InstanceOutline, MapOutline, Outline, PortOutline};
pub use paths::{GUARD_BITS, MAX_CALLS, MAX_RECIRCULATIONS};
pub use plan::{Folder, Numbers, balancers, filters, interfaces, judges, plan, policies};
