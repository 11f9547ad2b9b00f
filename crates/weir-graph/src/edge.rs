//! What an engine needs to run the graph of one edge: ports, instances, where each output leads, shared maps, objects on other hooks.
//!
//! Numbers of instances (VIDs) count from 1 within a plan; an engine adds the base of its generation. Invariant of a plan that
//! [`crate::plan`] made: every [`Target`] exists, and no walk over the links calls more functions in a row than the kernel allows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_functions::kind::Planned;
use weir_functions::plan::ChecksumMode;

use crate::attach::Attach;

/// The graph of one edge, ready for an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgePlan {
    /// Name of the edge.
    pub edge: String,
    /// Ports, by number.
    pub ports: Vec<PortPlan>,
    /// Instances by VID, from VID 1: those of the configuration in its order, then guards, then recirculations.
    pub instances: Vec<Instance>,
    /// Links as they are configured, for engines that insert guards and recirculations by themselves.
    pub links: Vec<Link>,
    /// Maps shared by name.
    pub maps: Vec<SharedMap>,
    /// Objects on other hooks.
    pub hooks: Vec<HookPlan>,
    /// Most functions that a packet passes, all passes of guarded links counted.
    pub longest: u32,
    /// Most recirculations of a packet.
    pub recirculations: u32,
    /// What a user should know.
    pub notes: Vec<String>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// weir's number, from 1.
    pub number: u32,
    /// Name in the configuration.
    pub name: String,
    /// Name of the interface.
    pub device: String,
    /// Where on the interface.
    pub mode: Mode,
    /// How checksums are to be read; `None`: by driver.
    pub checksums: Option<ChecksumMode>,
    /// Packets to the stack carry their mark there.
    pub metadata: bool,
    /// Where its packets begin. Without a link from the port: [`Target::Stack`].
    pub entry: Target,
}

/// A link as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its start.
    pub from: From,
    /// Its end: never an implicit instance.
    pub to: Target,
    /// How often a packet may take it.
    pub guard: Option<u32>,
}

/// Where a link begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A port, by weir's number.
    Port(u32),
    /// An output of an instance.
    Out {
        /// VID within the plan.
        vid: u32,
        /// Number of the output.
        out: usize,
    },
}

/// Where on an interface programs run. Never another one than this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In the driver.
    #[default]
    Native,
    /// In the stack, after an skb was made.
    Generic,
    /// On the device.
    Offload,
}

impl Mode {
    /// As configuration writes it.
    pub fn text(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
            Mode::Offload => "offload",
        }
    }
}

/// One instance of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Number within the plan, from 1.
    pub vid: u32,
    /// Name in the configuration; implicit ones have blanks in theirs.
    pub name: String,
    /// Kind; `guard` and `recirculate` are implicit.
    pub kind: String,
    /// State may be thrown away where the maps of a replacement differ.
    pub fresh: bool,
    /// Object, constants, maps, outputs.
    pub planned: Planned,
    /// Maps of the object that are shared: name in the object -> name in [`EdgePlan::maps`].
    pub shares: BTreeMap<String, String>,
    /// Where each output leads, as many as `planned.outs`.
    pub links: Vec<Target>,
}

/// Where a packet goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Another instance, by VID within the plan.
    Instance(u32),
    /// The network stack.
    Stack,
    /// Into the pair of devices that brings packets back: only from instances of kind `recirculate`.
    Pair,
    /// Dropped and counted.
    Drop,
    /// Out of the interface it came in by.
    Tx,
    /// Out of the interface of a port, by weir's number.
    Device(u32),
}

/// A map that instances and hooks share by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMap {
    /// Name in the configuration.
    pub name: String,
    /// Type.
    #[serde(rename = "type")]
    pub kind: MapType,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Elements.
    pub entries: u32,
    /// Its contents may be thrown away where its sizes change.
    #[serde(default)]
    pub fresh: bool,
}

/// Types of maps that can be shared by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(
    missing_docs,
    reason = "the names are Linux's own; each is BPF_MAP_TYPE_ in capitals"
)]
pub enum MapType {
    Hash,
    Array,
    PercpuHash,
    PercpuArray,
    LruHash,
    LruPercpuHash,
    LpmTrie,
}

impl MapType {
    /// All of them.
    pub const ALL: [MapType; 7] = [
        MapType::Array,
        MapType::Hash,
        MapType::LruHash,
        MapType::PercpuArray,
        MapType::PercpuHash,
        MapType::LruPercpuHash,
        MapType::LpmTrie,
    ];

    /// As configuration writes it.
    pub fn text(self) -> &'static str {
        match self {
            MapType::Hash => "hash",
            MapType::Array => "array",
            MapType::PercpuHash => "percpu-hash",
            MapType::PercpuArray => "percpu-array",
            MapType::LruHash => "lru-hash",
            MapType::LruPercpuHash => "lru-percpu-hash",
            MapType::LpmTrie => "lpm-trie",
        }
    }

    /// Linux's `enum bpf_map_type`.
    pub fn number(self) -> u32 {
        match self {
            MapType::Hash => 1,
            MapType::Array => 2,
            MapType::PercpuHash => 5,
            MapType::PercpuArray => 6,
            MapType::LruHash => 9,
            MapType::LruPercpuHash => 10,
            MapType::LpmTrie => 11,
        }
    }

    /// Creation flags the type must have: a trie is not preallocated.
    pub fn flags(self) -> u32 {
        u32::from(self == MapType::LpmTrie)
    }
}

/// An object on another hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookPlan {
    /// Name in the configuration.
    pub name: String,
    /// File of the object as written.
    pub file: PathBuf,
    /// The object, in ELF.
    pub object: Arc<[u8]>,
    /// Name of the program in it.
    pub program: String,
    /// Where it is attached.
    pub attach: Attach,
    /// Maps of the object that are shared: name in the object -> name in [`EdgePlan::maps`].
    pub shares: BTreeMap<String, String>,
}

impl EdgePlan {
    /// The instance with that VID.
    pub fn instance(&self, vid: u32) -> Option<&Instance> {
        self.instances.get((vid as usize).checked_sub(1)?)
    }

    /// Instances that are configured, in the order of the configuration.
    pub fn configured(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|one| !one.is_implicit())
    }

    /// The instance of that name.
    pub fn named(&self, name: &str) -> Option<&Instance> {
        self.instances.iter().find(|one| one.name == name)
    }

    /// The port with that number.
    pub fn port(&self, number: u32) -> Option<&PortPlan> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// What a target is called in the configuration.
    pub fn target_name(&self, target: Target) -> &str {
        match target {
            Target::Stack => "stack",
            Target::Pair => "pair",
            Target::Drop => "drop",
            Target::Tx => "tx",
            Target::Instance(vid) => self.instance(vid).map_or("?", |one| &one.name),
            Target::Device(number) => self.port(number).map_or("?", |port| &port.name),
        }
    }
}

impl Instance {
    /// Whether weir inserted it: a guard or a recirculation.
    pub fn is_implicit(&self) -> bool {
        self.name.contains(' ')
    }
}
