//! The maps that exist once for an edge: made from the first object that declares them, pinned, and written as memory.
//!
//! Invariant: nothing is written here that a packet of the running generation reads, but the word of generations.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;

use weir_bpf::abi::{self, Hop, panel};
use weir_graph::Target;
use weir_kernel::{KernelError, KernelObject, Map, MapDefinition, MmapArray};
use zerocopy::IntoBytes;

use super::error::EdgeError;

/// Places of the map of devices: a port has that of its number, the pair the last one.
pub(super) const PAIR_PLACE: u32 = weir_bpf::abi::panel::DEVICES as u32 - 1;

/// Maps of an edge begin like this.
pub(super) const PREFIX: &str = "weir_";
/// ... and those by which it is watched, like this.
pub(super) const WATCHING: &str = "weir_watch";
/// What an edge cannot be without.
const NEEDED: [&str; 6] = [
    "weir_chain",
    "weir_links",
    "weir_programs",
    "weir_devices",
    "weir_entries",
    "weir_edge",
];

/// The maps of one edge, open.
#[derive(Debug)]
pub(super) struct EdgeMaps {
    by_name: BTreeMap<String, Map>,
    links: MmapArray,
    entries: MmapArray,
    /// Only of edges that had a port on tc.
    transmits: Option<MmapArray>,
    word: MmapArray,
}

impl EdgeMaps {
    /// Those pinned in a folder; `None` unless all are there.
    pub(super) fn open(folder: &Path) -> Result<Option<EdgeMaps>, KernelError> {
        let mut by_name = BTreeMap::new();
        for name in weir_kernel::pinned::names(folder)? {
            if name.starts_with(PREFIX)
                && let Some(map) = Map::open(&folder.join(&name))?
            {
                by_name.insert(name, map);
            }
        }
        match NEEDED.iter().all(|name| by_name.contains_key(*name)) {
            true => EdgeMaps::of(by_name).map(Some),
            false => Ok(None),
        }
    }

    /// New ones, pinned. All ports lead to the stack in both halves.
    pub(super) fn create(folder: &Path) -> Result<EdgeMaps, EdgeError> {
        let elf = weir_bpf::object("entry_graph").ok_or_else(|| EdgeError::NoObject {
            instance: "entry".to_owned(),
            object: "entry_graph".to_owned(),
        })?;
        let program = KernelObject::open(elf)?.load("entry")?;
        let mut by_name = BTreeMap::new();
        for name in program.map_names() {
            if name.starts_with(PREFIX) {
                let map = Map::of(&program, name)?;
                map.pin(&folder.join(name))?;
                by_name.insert(name.to_owned(), map);
            }
        }
        let maps = EdgeMaps::of(by_name)?;
        for at in 0..2 * panel::PORTS {
            maps.entries
                .write(at * size_of::<Hop>(), STACK.as_bytes())?;
        }
        Ok(maps)
    }

    fn of(by_name: BTreeMap<String, Map>) -> Result<EdgeMaps, KernelError> {
        let view = |name: &str| match by_name.get(name) {
            Some(map) => map.mmap(),
            None => Err(KernelError::MissingMap {
                map: name.to_owned(),
                near: Vec::new(),
            }),
        };
        Ok(EdgeMaps {
            links: view("weir_links")?,
            entries: view("weir_entries")?,
            transmits: (by_name.get(TRANSMITS).map(Map::mmap)).transpose()?,
            word: view("weir_edge")?,
            by_name,
        })
    }

    /// One of them.
    pub(super) fn find(&self, name: &str) -> Option<&Map> {
        self.by_name.get(name)
    }

    /// Makes what an object declares and the edge does not have yet, for it and all that come later. `edge`: for messages.
    pub(super) fn complete(
        &mut self,
        object: &KernelObject,
        folder: &Path,
        edge: &str,
    ) -> Result<(), EdgeError> {
        for name in object.maps() {
            if !name.starts_with(PREFIX) {
                continue;
            }
            let here = object.map_definition(&name)?;
            let Some(map) = self.by_name.get(&name) else {
                let map = Map::create(&name, here)?;
                map.pin(&folder.join(&name))?;
                if name == TRANSMITS {
                    self.transmits = Some(map.mmap()?);
                }
                self.by_name.insert(name, map);
                continue;
            };
            let there = map.definition();
            // The kernel adds flags of its own.
            let shape = |d: MapDefinition| (d.kind, d.key, d.value, d.entries);
            if shape(here) != shape(there) {
                return Err(EdgeError::OtherVersion {
                    name: edge.to_owned(),
                    what: format!("its map {name} is {there}, and would be {here}"),
                });
            }
        }
        Ok(())
    }

    /// Lets go of what only a watched edge has; its pins are removed by the sweep.
    pub(super) fn forget_watching(&mut self) {
        self.by_name.retain(|name, _| !name.starts_with(WATCHING));
    }

    fn needed(&self, name: &'static str) -> Result<&Map, KernelError> {
        self.find(name).ok_or_else(|| KernelError::MissingMap {
            map: name.to_owned(),
            near: Vec::new(),
        })
    }

    pub(super) fn programs(&self) -> Result<&Map, KernelError> {
        self.needed("weir_programs")
    }

    /// The programs on tc; `None`: there never was a port on tc.
    pub(super) fn tc_programs(&self) -> Option<&Map> {
        self.find("weir_tc_programs")
    }

    /// Puts a device into its place, on both hooks; `None`: takes it out.
    pub(super) fn set_device(&self, place: u32, ifindex: Option<u32>) -> Result<(), KernelError> {
        let key = place.to_ne_bytes();
        match ifindex {
            Some(ifindex) => self.devices()?.update(&key, &ifindex.to_ne_bytes())?,
            None => drop(self.devices()?.delete(&key)?),
        }
        self.set_tc_device(place, ifindex.unwrap_or_default())
    }

    /// Tells programs on tc which device is at a place, 0: none. Edges that never had a port on tc have no such map.
    pub(super) fn set_tc_device(&self, place: u32, ifindex: u32) -> Result<(), KernelError> {
        match self.find(TC_DEVICES) {
            Some(map) => map.update(&place.to_ne_bytes(), &ifindex.to_ne_bytes()),
            None => Ok(()),
        }
    }

    fn devices(&self) -> Result<&Map, KernelError> {
        self.needed("weir_devices")
    }

    /// The generation that packets get now; 0: none was ever switched to.
    pub(super) fn generation(&self) -> Result<u64, KernelError> {
        let mut word = [0; 8];
        self.word
            .read(offset_of!(abi::Edge, generation), &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Switches: from now on every packet that comes in sees the half of this generation.
    pub(super) fn switch(&self, generation: u64) -> Result<(), KernelError> {
        if cfg!(not(target_arch = "x86_64")) {
            // Loads may be reordered there: packets must not see the word before the rest.
            weir_kernel::grace_period()?;
        }
        self.word
            .publish(offset_of!(abi::Edge, generation), generation)
    }

    /// Where an output of an instance leads in a generation.
    pub(super) fn set_link(
        &self,
        vid: u32,
        out: usize,
        generation: u64,
        hop: Hop,
    ) -> Result<(), KernelError> {
        let half = (generation & 1) as usize * panel::VIDS;
        let at = (half + vid as usize) * panel::OUTS + out;
        self.links.write(at * size_of::<Hop>(), hop.as_bytes())
    }

    /// Where packets of a port begin in a generation.
    pub(super) fn set_entry(
        &self,
        port: u32,
        generation: u64,
        hop: Hop,
    ) -> Result<(), KernelError> {
        let at = port as usize * 2 + (generation & 1) as usize;
        self.entries.write(at * size_of::<Hop>(), hop.as_bytes())
    }

    /// Where packets that leave by a port begin in a generation. Edges that never had a port on tc have no such place.
    pub(super) fn set_transmit(
        &self,
        port: u32,
        generation: u64,
        hop: Hop,
    ) -> Result<(), KernelError> {
        let at = port as usize * 2 + (generation & 1) as usize;
        match &self.transmits {
            Some(transmits) => transmits.write(at * size_of::<Hop>(), hop.as_bytes()),
            None => Ok(()),
        }
    }

    /// Which port each interface is in a generation, by their indexes. Only programs on tc ask.
    pub(super) fn set_ports(
        &self,
        generation: u64,
        ports: impl Iterator<Item = (u32, u32)>,
    ) -> Result<(), KernelError> {
        let Some(map) = self.find(PORTS) else {
            return Ok(());
        };
        let half = (generation & 1) as u32;
        for key in map.keys()? {
            let is_of_half = |key: &[u8; 4]| u32::from_ne_bytes(*key) & 1 == half;
            if key.first_chunk().is_some_and(is_of_half) {
                map.delete(&key)?;
            }
        }
        for (ifindex, number) in ports {
            let key = ifindex * 2 + half;
            map.update(&key.to_ne_bytes(), &number.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// Where packets begin that leave by a port.
const TRANSMITS: &str = "weir_transmits";
/// Devices by their places, for programs on tc.
const TC_DEVICES: &str = "weir_tc_devices";
/// Ports by the indexes of their interfaces.
const PORTS: &str = "weir_ports";

/// To the stack.
pub(super) const STACK: Hop = Hop {
    vid: 0,
    slot: panel::STACK,
};

/// The hop that leaves the graph by a target, which is no instance.
pub(super) fn way_out(target: Target) -> Hop {
    let out = |slot| Hop { vid: 0, slot };
    let device = |place| Hop {
        vid: place,
        slot: panel::DEVICE,
    };
    match target {
        Target::Instance(_) => Hop::default(),
        Target::Device(number) => device(number),
        Target::Pair => device(PAIR_PLACE),
        Target::Stack => STACK,
        Target::Drop => out(panel::DROP),
        Target::Tx => out(panel::TX),
    }
}
