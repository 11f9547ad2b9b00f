//! What an engine carries out for one edge: ports, instances, where each output leads, shared maps, objects on other hooks.
//!
//! Made by [`crate::Model::plan`] and [`crate::plan`] only. Invariant: every [`Target`] exists, every output has one, and no walk over them calls
//! more functions in a row than the kernel allows. Instances are named by their places; which number (VID) one has while it runs, an engine says.

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
    /// Where packets that each port receives begin, in the order of ports. Without a link from the port: [`Target::Stack`].
    pub entries: Vec<Target>,
    /// Where packets that leave by each port begin, in the order of ports: of ports on tc only. `None`: no program sees them.
    pub transmits: Vec<Option<Target>>,
    /// Instances: those of the configuration in its order, then guards, then recirculations.
    pub instances: Vec<Instance>,
    /// Where each output of each instance leads, as many as its `planned.outs`.
    pub targets: Vec<Vec<Target>>,
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
    /// weir's number, 1 to 254: an index into the maps of entries and devices.
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
}

/// Where on an interface programs run. Never another one than this.
///
/// [`Mode::Tc`] is `hook = "tc"` of a configuration, the others are modes of XDP.
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
    /// At tc, through tcx: received packets, and those that leave.
    Tc,
}

/// On which hooks an instance runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Ports on XDP lead to it, or none does.
    pub xdp: bool,
    /// Ports on tc lead to it.
    pub tc: bool,
}

impl Mode {
    /// As configuration writes it.
    pub fn text(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
            Mode::Offload => "offload",
            Mode::Tc => "tc",
        }
    }
}

/// One instance of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
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
}

/// Where a packet goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Another instance, by its place.
    Instance(usize),
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
            Target::Instance(at) => self.instances.get(at).map_or("?", |one| &one.name),
            Target::Device(number) => self.port(number).map_or("?", |port| &port.name),
        }
    }

    /// Names of an instance's outputs, and where they lead.
    pub fn outs(&self, at: usize) -> impl Iterator<Item = (&str, Target)> {
        let names = self.instances[at].planned.outs.iter().map(String::as_str);
        names.zip(self.targets[at].iter().copied())
    }
}

impl Instance {
    /// One that shares nothing and keeps its state.
    pub fn new(name: impl Into<String>, kind: impl Into<String>, planned: Planned) -> Instance {
        Instance {
            name: name.into(),
            kind: kind.into(),
            fresh: false,
            planned,
            shares: BTreeMap::new(),
        }
    }

    /// Whether weir inserted it: a guard or a recirculation.
    pub fn is_implicit(&self) -> bool {
        self.name.contains(' ')
    }
}
