//! Chains of functions as test runs need them: an entry, a chain, a drop, with the maps filled here.
//!
//! The edge engine does the same for devices (`weir_engine::edge`). A test run needs the entry program without a device. Invariant: nothing is pinned, everything ends with the value.

use weir_bpf::abi::panel;
use weir_kernel::{KernelObject, LoadedProgram};

use crate::LabError;

/// weir's number of the one port.
const PORT: u32 = 1;
/// Maps that all programs of an edge share.
const SHARED: &str = "weir_";

/// How functions find the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hops {
    /// In the array of links, as in loops and very large graphs.
    LookedUp,
    /// In a constant of their own, as the edge engine does it.
    Constant,
}

/// An entry program with functions behind it.
pub(crate) struct Graph {
    /// What is attached.
    pub(crate) entry: LoadedProgram,
    /// In the order of the chain.
    pub(crate) functions: Vec<LoadedProgram>,
}

impl Graph {
    /// So many functions that do nothing but count, and then a drop.
    pub(crate) fn of_empty(functions: u32, hops: Hops) -> Result<Graph, LabError> {
        let mut entry = open("entry_graph")?;
        entry.set_rodata("weir_port", &PORT.to_ne_bytes())?;
        let entry = entry.load("entry")?;
        let mut graph = Graph {
            entry,
            functions: Vec::new(),
        };
        for number in 1..=functions {
            let mut object = open("empty_graph")?;
            object.set_rodata("weir_vid", &number.to_ne_bytes())?;
            let next = match number < functions {
                true => number + 1,
                false => panel::DROP,
            };
            let mut outs = [0; panel::OUTS];
            if hops == Hops::Constant || number == functions {
                outs[0] = next;
            }
            let outs = outs.map(u32::to_ne_bytes).concat();
            object.set_rodata("weir_next_slot", &outs)?;
            for map in object.maps().iter().filter(|m| m.starts_with(SHARED)) {
                if graph.entry.map_names().contains(&map.as_str()) {
                    object.reuse_map(map, &graph.entry)?;
                }
            }
            let program = object.load("empty")?;
            program.install_in(&graph.entry, "weir_programs", number)?;
            graph.functions.push(program);
            graph.link(number, next, next)?;
        }
        // Generation 0.
        let first = if functions == 0 { panel::DROP } else { 1 };
        graph.write("weir_entries", PORT * 2, (first, first))?;
        Ok(graph)
    }

    fn link(&self, from: u32, vid: u32, slot: u32) -> Result<(), LabError> {
        self.write("weir_links", from * panel::OUTS as u32, (vid, slot))
    }

    fn write(&self, map: &str, at: u32, (vid, slot): (u32, u32)) -> Result<(), LabError> {
        let hop = [vid, slot].map(u32::to_ne_bytes).concat();
        Ok(self.entry.update(map, &at.to_ne_bytes(), &hop, 0)?)
    }
}

fn open(object: &str) -> Result<KernelObject, LabError> {
    let elf =
        weir_bpf::object(object).ok_or_else(|| LabError::Engine(format!("no object {object}")))?;
    Ok(KernelObject::open(elf)?)
}
