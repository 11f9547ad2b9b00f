//! What a configuration means, without places in a text: ports, instances, links, shared maps, hooks. [`Model::plan`] makes a plan of it.
//!
//! Planning a configuration makes one and reports mistakes with their places; tests and benchmarks build one directly and get a
//! [`ModelError`](crate::ModelError).

use crate::edge::{HookPlan, Instance, PortPlan, SharedMap, Target};

/// Everything that one edge does, before links become targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// Name of the edge: letters, digits, `-` and `_`, at most 32 of them.
    pub edge: String,
    /// Where packets come in.
    pub ports: Vec<PortPlan>,
    /// Configured functions.
    pub instances: Vec<Instance>,
    /// How packets travel. An output or a port has one link at most; without one it leads to the stack.
    pub links: Vec<Link>,
    /// Maps shared by name.
    pub maps: Vec<SharedMap>,
    /// Objects on other hooks.
    pub hooks: Vec<HookPlan>,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its start.
    pub from: Source,
    /// Its end: never [`Target::Pair`].
    pub to: Target,
    /// How often a packet may take it; only of links that close loops.
    pub guard: Option<u32>,
}

/// Where a link begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Packets that a port receives, by weir's number.
    Port(u32),
    /// Packets that leave by a port, which is on tc.
    Transmit(u32),
    /// An output of an instance.
    Out {
        /// Place in [`Model::instances`].
        instance: usize,
        /// Number of the output.
        out: usize,
    },
}
