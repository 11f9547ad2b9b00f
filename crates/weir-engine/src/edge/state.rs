//! What an edge remembers of itself, in a pinned map for each generation: which instance has which number, slot and maps, what is
//! attached where, and the configuration it was made from.
//!
//! Invariant: the state that holds is that of the generation in the edge's word. Another one was not reached, or is gone.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weir_graph::{Hooks, Mode};
use weir_kernel::pinned::{self, Folder};
use weir_kernel::{KernelError, Map, MapDefinition};

use super::form::{Form, Hook};

/// Version of this text and of what it describes.
pub(super) const LAYOUT: u32 = 1;

/// Everything about one generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) layout: u32,
    /// [`weir_bpf::abi::STATE_LAYOUT`] of the programs.
    pub(super) maps_layout: u32,
    /// Inode of the namespace of its devices.
    pub(super) netns: u64,
    pub(super) generation: u64,
    /// The configuration.
    pub(super) text: String,
    pub(super) ports: Vec<PortState>,
    pub(super) instances: Vec<InstanceState>,
    pub(super) maps: Vec<SharedState>,
    pub(super) hooks: Vec<HookState>,
    pub(super) pair: Option<PairState>,
    /// Devices that packets are sent to by XDP.
    #[serde(default)]
    pub(super) leaves_by: Vec<String>,
    /// Indexes of all interfaces that packets ever came in by, those of ports that are gone included.
    #[serde(default)]
    pub(super) sources: BTreeSet<u32>,
    /// Packets that instances redirected which are gone, less those that only they could account for; `None` where that is not known.
    #[serde(default)]
    pub(super) redirected_before: Option<i64>,
    /// Frames that devices had dropped on transmission when the edge began to use them, by index.
    #[serde(default)]
    pub(super) baselines: BTreeMap<u32, u64>,
    /// Whether the programs are those that can be watched.
    #[serde(default)]
    pub(super) watched: bool,
}

impl State {
    /// The instance of that name.
    pub(super) fn instance(&self, name: &str) -> Option<&InstanceState> {
        self.instances.iter().find(|one| one.name == name)
    }

    /// Which build of the programs runs.
    pub(super) fn form(&self) -> Form {
        match self.watched {
            true => Form::Watched,
            false => Form::Graph,
        }
    }
}

/// A port that is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PortState {
    pub(super) name: String,
    pub(super) device: String,
    pub(super) ifindex: u32,
    pub(super) number: u32,
    pub(super) mode: String,
    /// Of its programs: mode of checksums and whether metadata goes on.
    pub(super) offloaded: bool,
    pub(super) metadata: bool,
    /// What the entry program was told of the device; 0 in a state of an older weir, whose programs knew nothing of it.
    #[serde(default)]
    pub(super) away: u32,
    /// Pin of its link, XDP or tc.
    pub(super) pin: String,
    /// Pin of the tc link that takes metadata over.
    pub(super) handover: Option<String>,
    /// Pin of the tc link whose program sees packets that leave; only of ports on tc, whose `pin` is that of received ones.
    #[serde(default)]
    pub(super) transmit: Option<String>,
}

impl PortState {
    /// The hook that its programs are on.
    pub(super) fn hook(&self) -> Hook {
        match self.mode == Mode::Tc.text() {
            true => Hook::Tc,
            false => Hook::Xdp,
        }
    }
}

/// An instance that packets reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceState {
    pub(crate) name: String,
    /// Name of its object, or the file.
    pub(crate) object: String,
    pub(crate) vid: u32,
    pub(crate) slot: u32,
    /// Of all it is made from.
    pub(crate) digest: String,
    /// The same without its place in the graph.
    pub(crate) content: String,
    /// Of its object alone.
    pub(crate) object_digest: String,
    /// The kernel's id of its program on XDP; 0: it runs on tc only.
    pub(crate) program: u32,
    /// ... and of the one on tc.
    #[serde(default)]
    pub(crate) tc_program: Option<u32>,
    pub(crate) maps: BTreeMap<String, MapState>,
    /// A constant that is random once and kept then.
    pub(crate) secret: Option<[u8; 8]>,
    /// Names of its outputs, and what they lead to.
    pub(crate) outs: Vec<(String, String)>,
    /// Whether weir put it there by itself.
    pub(crate) implicit: bool,
}

impl InstanceState {
    /// On which hooks it runs.
    pub(crate) fn hooks(&self) -> Hooks {
        Hooks {
            xdp: self.program != 0,
            tc: self.tc_program.is_some(),
        }
    }
}

/// A map of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MapState {
    pub(crate) id: u32,
    pub(crate) role: Role,
    /// Kind, key, value, entries, flags, as declared: the kernel's own words may differ.
    pub(crate) declared: [u32; 5],
    /// Whether it is pinned: a map of somebody's object.
    #[serde(default)]
    pub(crate) held: bool,
}

impl MapState {
    /// Its pin, if it has one: once no process and no pin holds a map, the kernel empties arrays of programs and stops timers, though a
    /// program still uses it.
    pub(crate) fn pin(&self) -> Option<String> {
        let what = match self.declared[0] {
            PROG_ARRAY => "calls",
            _ => "own",
        };
        self.held.then(|| format!("{what}-{}", self.id))
    }
}

/// `BPF_MAP_TYPE_PROG_ARRAY`.
pub(crate) const PROG_ARRAY: u32 = 3;

/// Whose a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Of the edge.
    Edge,
    /// Filled from configuration; made anew with the instance.
    Configuration,
    /// Kept when the instance is replaced.
    State,
    /// Of several objects.
    Shared,
}

/// A map of several objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedState {
    pub(super) name: String,
    pub(super) declared: [u32; 5],
    pub(super) pin: String,
    pub(super) id: u32,
}

/// An object on another hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HookState {
    pub(super) name: String,
    pub(super) point: String,
    pub(super) digest: String,
    pub(super) pin: String,
}

/// The pair for recirculation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PairState {
    /// The end that packets are redirected to, and the one whose program goes on with them.
    pub(super) near: String,
    pub(super) far: String,
    pub(super) ifindex: u32,
    pub(super) far_ifindex: u32,
    /// Pin of the link of `resume`.
    pub(super) pin: String,
    /// Pin of the link of `near`; empty of a pair that an older weir made.
    #[serde(default)]
    pub(super) near_pin: String,
}

pub(super) fn words(definition: MapDefinition) -> [u32; 5] {
    let MapDefinition {
        kind,
        key,
        value,
        entries,
        flags,
    } = definition;
    [kind, key, value, entries, flags]
}

pub(super) fn definition([kind, key, value, entries, flags]: [u32; 5]) -> MapDefinition {
    MapDefinition {
        kind,
        key,
        value,
        entries,
        flags,
    }
}

/// The pin of a generation's state.
pub(super) fn pin_name(generation: u64) -> String {
    format!("state-{generation}")
}

/// The generation whose state a pin is, if it is one.
pub(super) fn generation_of(pin: &str) -> Option<u64> {
    pin.strip_prefix("state-")?.parse().ok()
}

/// Puts the state beside the one that holds.
pub(super) fn write(folder: &Folder, state: &State) -> Result<(), KernelError> {
    let text = serde_json::to_vec(state).map_err(|e| KernelError::Sys {
        what: "write down the state of the edge".to_owned(),
        source: e.into(),
    })?;
    let path = folder.path().join(pin_name(state.generation));
    pinned::write_text(&path, "weir_state", &text)
}

/// The state in a pinned map, or why it is none.
pub(super) fn read(map: &Map) -> Result<State, String> {
    let text = pinned::read_text(map)?;
    /// The part that every version has.
    #[derive(Deserialize)]
    struct Version {
        layout: u32,
    }
    let version: Version = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    if version.layout != LAYOUT {
        return Err(format!(
            "its text has layout {}, this weir writes {LAYOUT}",
            version.layout
        ));
    }
    serde_json::from_slice(&text).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a weir without ports on tc wrote is read: all it ran is on XDP.
    #[test]
    fn a_state_from_before_ports_on_tc_is_read() {
        let port = r#"{"name":"wan","device":"eth0","ifindex":2,"number":1,"mode":"native","offloaded":false,"metadata":false,"pin":"port-1-1","handover":null}"#;
        let instance = r#"{"name":"rules","object":"middlebox","vid":1,"slot":2,"digest":"","content":"","object_digest":"","program":7,"maps":{},"secret":null,"outs":[],"implicit":false}"#;
        let text = format!(
            r#"{{"layout":1,"maps_layout":1,"netns":1,"generation":1,"text":"","ports":[{port}],"instances":[{instance}],"maps":[],"hooks":[],"pair":null}}"#
        );
        let state: State = serde_json::from_str(&text).expect("is read");
        let (port, instance) = (&state.ports[0], &state.instances[0]);
        assert_eq!((port.hook(), port.transmit.as_deref()), (Hook::Xdp, None));
        let on = instance.hooks();
        assert_eq!((on.xdp, on.tc), (true, false));
    }
}
