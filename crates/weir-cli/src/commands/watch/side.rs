//! What of an edge can be named where it is watched: ports and stages of its graph, or of its networks.

use std::collections::{BTreeMap, BTreeSet};

use weir_bpf::abi::{WatchEvent, net_slot, watch};
use weir_engine::watch::Names;

/// Names of a part, and what they stand for.
pub(super) struct Side {
    pub(super) names: Names,
    /// Ports by name and by device.
    pub(super) ports: BTreeMap<String, Vec<u32>>,
    pub(super) port_names: Vec<String>,
    pub(super) stages: BTreeMap<String, Place>,
    pub(super) stage_names: Vec<String>,
}

/// A stage that has a name.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Behind an instance of a graph.
    Instance(u32),
    /// Behind what has these interfaces, in networks.
    Interfaces(BTreeSet<u32>),
    /// A workload's port: packets from it and to it.
    Workload(u32),
}

impl Place {
    /// Whether an event is of the stage.
    pub(super) fn has(&self, event: &WatchEvent) -> bool {
        match self {
            Place::Instance(_) => true,
            Place::Interfaces(vids) => event.kind != watch::ENTRY && vids.contains(&event.vid),
            Place::Workload(vid) => match event.kind {
                watch::ENTRY => event.vid == 0 && event.port == *vid,
                watch::ON => false,
                // The port itself drops what the workload may not send.
                _ if event.vid == 0 => event.port == *vid,
                _ => event.next_slot == net_slot::DEVICE && event.next_vid == *vid,
            },
        }
    }
}
