//! What is asked of an edge: ports, instances, the links between them, shared maps and hooks. Passive data; nothing here looks at the host.

use weir_functions::kind::Planned;
use weir_functions::plan::ChecksumMode;
use weir_graph::{HookPlan, Mode, SharedMap};

/// Everything that one edge does.
#[derive(Clone, Debug, Default)]
pub struct EdgePlan {
    /// Name of the edge: letters, digits, `-` and `_`, at most 32 of them.
    pub name: String,
    /// Where packets come in.
    pub ports: Vec<PortPlan>,
    /// Configured functions.
    pub instances: Vec<EdgeInstance>,
    /// How packets travel.
    pub links: Vec<LinkPlan>,
    /// Maps that several objects share.
    pub maps: Vec<SharedMap>,
    /// Objects on other hooks.
    pub hooks: Vec<HookPlan>,
}

/// Which build of its programs an edge runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Nothing but what packets need.
    #[default]
    Graph,
    /// Programs that tell what packets go through, to who asks ([`crate::watch`]).
    Watched,
}

impl Form {
    /// Name of the object that a function or a program of the edge is built into.
    pub(super) fn of(self, name: &str) -> String {
        match self {
            Form::Graph => format!("{name}_graph"),
            Form::Watched => format!("{name}_watched"),
        }
    }
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// Name in links.
    pub name: String,
    /// Name of the interface, in the namespace of the caller.
    pub device: String,
    /// weir's number, 1 to 254: an index into the maps of entries and devices.
    pub number: u32,
    /// How to attach.
    pub mode: Mode,
    /// How checksums are to be read; `None`: by driver.
    pub checksums: Option<ChecksumMode>,
    /// Packets to the stack carry their mark there.
    pub metadata: bool,
}

/// One configured function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeInstance {
    /// Name, unique among the instances.
    pub name: String,
    /// What its kind made of it.
    pub planned: Planned,
    /// Maps of its object that are shared: name in the object, name of the shared map.
    pub maps: Vec<(String, String)>,
    /// State of another shape begins anew instead of being refused.
    pub fresh: bool,
}

/// Where a link comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A port, by its place in [`EdgePlan::ports`].
    Port(usize),
    /// An output of an instance.
    Out {
        /// Place in [`EdgePlan::instances`].
        instance: usize,
        /// Number of the output.
        out: usize,
    },
}

/// Where a link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An instance, by its place in [`EdgePlan::instances`].
    Instance(usize),
    /// Out of a port, by its place in [`EdgePlan::ports`].
    Port(usize),
    /// To the host.
    Stack,
    /// Nowhere.
    Drop,
    /// Out of the device it came in by.
    Tx,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Its start.
    pub from: Source,
    /// Its end.
    pub to: Target,
    /// How often a packet may take it; only of links that close loops.
    pub guard: Option<u32>,
}
