//! The maps and programs that the networks of an edge share: made once, written by halves, grown by making another set beside it.
//!
//! Invariants: maps and the programs on devices are pinned, so no process has to stay; the half that the generation's word names is never
//! written; every map has the capacity that the programs were told of when they were loaded.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use weir_bpf::abi::{NetCount, NetDrop, NetEdge, NetFlowKey};
use weir_functions::plan::Constant;
use weir_kernel::{KernelError, KernelObject, LoadedProgram, Map, MapDefinition, MmapArray};
use weir_network::Tables;
use zerocopy::FromBytes;

use super::error::NetworkError;
use super::layout::{self, Capacity, MAPS, ON_DEVICES, SHARED};
use crate::edge::load::Common;

/// The maps and programs of one capacity.
#[derive(Debug)]
pub struct Set {
    capacity: Capacity,
    /// Index of the near end of the pair for recirculation.
    pair: u32,
    maps: Vec<Map>,
    /// By name: those of devices, and those in slots, in this process only.
    programs: Vec<(String, LoadedProgram)>,
}

impl Set {
    /// Makes one; `pair`: index of the near end of the pair for recirculation. Nothing runs yet.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn make(capacity: Capacity, pair: u32) -> Result<Set, NetworkError> {
        Set::build(capacity, pair, "")
    }

    /// The programs that have a build for XDP, for test runs: floods, tunnels and going around need tc.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn make_for_xdp(capacity: Capacity) -> Result<Set, NetworkError> {
        Set::build(capacity, 0, "_xdp")
    }

    fn build(capacity: Capacity, pair: u32, suffix: &str) -> Result<Set, NetworkError> {
        let mut set = Set {
            capacity,
            pair,
            maps: Vec::new(),
            programs: Vec::new(),
        };
        for (name, slot) in SHARED {
            if let Some(program) = set.load(name, suffix)? {
                set.map("net_programs")?.set_program(*slot, &program)?;
                set.programs.push(((*name).to_owned(), program));
            }
        }
        for name in ON_DEVICES {
            if let Some(program) = set.load(name, suffix)? {
                set.programs.push(((*name).to_owned(), program));
            }
        }
        Ok(set)
    }

    /// Loads a program with the set's maps, making those that are not there yet; `None` if there is no such object.
    fn load(&mut self, name: &str, suffix: &str) -> Result<Option<LoadedProgram>, NetworkError> {
        let Some(elf) = weir_bpf::object(&format!("net_{name}{suffix}")) else {
            return Ok(None);
        };
        let mut object = KernelObject::open(elf)?;
        self.specialise(&mut object)?;
        Ok(Some(object.load(name)?))
    }

    /// All of its programs once more, in the form that tells what packets go through, by name. They share its maps, and those of watching are
    /// made.
    pub(super) fn watched(&mut self) -> Result<Vec<(&'static str, LoadedProgram)>, NetworkError> {
        let shared = SHARED.iter().map(|(name, _)| *name);
        let mut programs = Vec::new();
        for name in shared.chain(ON_DEVICES.iter().copied()) {
            if let Some(program) = self.load(name, "_watched")? {
                programs.push((name, program));
            }
        }
        Ok(programs)
    }

    /// Constants of programs that say how large its maps are, and where packets go around.
    #[must_use]
    pub(super) fn constants(&self) -> Vec<Constant> {
        layout::constants(&self.capacity, self.pair)
    }

    /// Gives an object of the set's the maps and constants.
    fn specialise(&mut self, object: &mut KernelObject) -> Result<(), NetworkError> {
        let known: Vec<String> = object.constants().map(str::to_owned).collect();
        for (symbol, value) in self.constants() {
            if known.iter().any(|known| *known == symbol) {
                object.set_rodata(&symbol, &value)?;
            }
        }
        let declared = object.maps();
        for (name, entries) in MAPS {
            if !declared.iter().any(|map| map == name) {
                continue;
            }
            if let Some(entries) = entries(&self.capacity) {
                object.set_map_entries(name, entries)?;
            }
            let definition: MapDefinition = object.map_definition(name)?;
            if self.maps.iter().all(|map| map.name() != *name) {
                self.maps.push(Map::create(name, definition)?);
            }
            object.share_map(name, self.map(name)?)?;
        }
        Ok(())
    }

    /// Pins maps and the programs of devices in a folder that is there; names begin with `prefix`.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn pin(&self, folder: &Path, prefix: &str) -> Result<(), NetworkError> {
        for map in &self.maps {
            map.pin(&pin_of(folder, prefix, map.name()))?;
        }
        for (name, program) in &self.programs {
            if ON_DEVICES.contains(&name.as_str()) {
                program.pin(&pin_of(folder, prefix, &format!("program-{name}")))?;
            }
        }
        Ok(())
    }

    /// Opens one that is pinned; `None` if its word is not there.
    ///
    /// # Errors
    /// What the kernel refused, or a part of it is missing.
    pub fn open(
        folder: &Path,
        prefix: &str,
        capacity: Capacity,
        pair: u32,
    ) -> Result<Option<Set>, NetworkError> {
        let mut set = Set {
            capacity,
            pair,
            maps: Vec::new(),
            programs: Vec::new(),
        };
        for (name, _) in MAPS {
            if let Some(map) = Map::open(&pin_of(folder, prefix, name))? {
                set.maps.push(renamed(map, name)?);
            }
        }
        if set.maps.iter().all(|map| map.name() != "net_edge") {
            return Ok(None);
        }
        for name in ON_DEVICES {
            let path = pin_of(folder, prefix, &format!("program-{name}"));
            if let Some(program) = LoadedProgram::open(&path)? {
                set.programs.push(((*name).to_owned(), program));
            }
        }
        Ok(Some(set))
    }

    /// Whether all its maps and programs on devices are there.
    pub(super) fn is_whole(&self) -> bool {
        self.maps.len() == MAPS.len() && self.programs.len() >= ON_DEVICES.len()
    }

    /// Index of the end of the pair that packets go around by.
    #[must_use]
    pub fn pair(&self) -> u32 {
        self.pair
    }

    /// How large it is.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// A program by its name: one on devices, or one that this process loaded.
    ///
    /// # Errors
    /// It is not there.
    pub fn program(&self, name: &str) -> Result<&LoadedProgram, NetworkError> {
        let found = self.programs.iter().find(|(known, _)| known == name);
        found
            .map(|(_, program)| program)
            .ok_or_else(|| NetworkError::Incomplete {
                what: format!("program {name}"),
            })
    }

    /// A program to run by hand.
    ///
    /// # Errors
    /// It is not there.
    pub fn program_mut(&mut self, name: &str) -> Result<&mut LoadedProgram, NetworkError> {
        let found = self.programs.iter_mut().find(|(known, _)| known == name);
        found
            .map(|(_, program)| program)
            .ok_or_else(|| NetworkError::Incomplete {
                what: format!("program {name}"),
            })
    }

    /// A map by its name.
    ///
    /// # Errors
    /// It is not there.
    pub fn map(&self, name: &str) -> Result<&Map, NetworkError> {
        let found = self.maps.iter().find(|map| map.name() == name);
        found.ok_or_else(|| NetworkError::Incomplete {
            what: format!("map {name}"),
        })
    }

    /// The generation that packets follow; 0: none was ever written.
    ///
    /// # Errors
    /// The word cannot be read.
    pub fn generation(&self) -> Result<u64, NetworkError> {
        let value = self.map("net_edge")?.lookup(&0u32.to_ne_bytes())?;
        let edge = value.and_then(|bytes| NetEdge::read_from_bytes(&bytes).ok());
        Ok(edge.unwrap_or_default().generation)
    }

    /// Writes the half of a generation, all of it. That half must not be the one that packets follow, or none may follow any.
    ///
    /// # Errors
    /// It does not fit, or a map cannot be written.
    pub fn write(&self, generation: u64, half: &Tables) -> Result<(), NetworkError> {
        if !layout::fits(half, &self.capacity) {
            return Err(NetworkError::TooSmall);
        }
        let odd = generation & 1 == 1;
        layout::contents(half, &self.capacity, &mut |map, size, bytes| {
            // A map that no program of this build has is left out.
            let Some(map) = self.maps.iter().find(|known| known.name() == map) else {
                return Ok(());
            };
            let memory: MmapArray = map.mmap()?;
            let begin = if odd { size } else { 0 };
            memory.write(begin, bytes)?;
            memory.write(begin + bytes.len(), &vec![0; size - bytes.len()])?;
            Ok(())
        })
    }

    /// Lets packets follow a generation whose half is written.
    ///
    /// # Errors
    /// The word cannot be mapped.
    pub fn switch(&self, generation: u64) -> Result<(), NetworkError> {
        Ok(self.map("net_edge")?.mmap()?.publish(0, generation)?)
    }

    /// Removes flows that helpers installed at other interfaces than these: their VIDs will be others'. Who they are is asked if there are flows.
    ///
    /// # Errors
    /// The map cannot be read or written.
    pub(super) fn keep_flows(
        &self,
        vids: impl FnOnce() -> HashSet<u32>,
    ) -> Result<(), NetworkError> {
        let map = self.map("net_flows")?;
        let keys = map.keys()?;
        if keys.is_empty() {
            return Ok(());
        }
        let vids = vids();
        for key in keys {
            let flow = NetFlowKey::read_from_bytes(&key);
            if flow.is_ok_and(|flow| !vids.contains(&flow.vid)) {
                map.delete(&key)?;
            }
        }
        Ok(())
    }

    /// What came in by an interface, all CPUs together.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn count(&self, vid: u32) -> Result<NetCount, NetworkError> {
        let mut sum = NetCount::default();
        for value in self.map("net_counts")?.lookup_percpu(&vid.to_ne_bytes())? {
            let one = NetCount::read_from_bytes(&value).unwrap_or_default();
            sum.packets += one.packets;
            sum.bytes += one.bytes;
            sum.dropped += one.dropped;
        }
        Ok(sum)
    }

    /// Drops by interface and reason.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn drops(&self) -> Result<Vec<(NetDrop, u64)>, NetworkError> {
        let map = self.map("net_drops")?;
        let mut found = Vec::new();
        for key in map.keys()? {
            let count = map.lookup(&key)?;
            let count = count.and_then(|bytes| bytes.try_into().ok());
            let drop = NetDrop::read_from_bytes(&key);
            if let (Ok(drop), Some(count)) = (drop, count) {
                found.push((drop, u64::from_ne_bytes(count)));
            }
        }
        found.sort_unstable_by_key(|(drop, _)| (drop.vid, drop.reason));
        Ok(found)
    }
}

impl Common for Set {
    fn is_common(&self, name: &str) -> bool {
        MAPS.iter().any(|(known, _)| *known == name)
    }

    fn get(&self, name: &str) -> Option<&Map> {
        self.maps.iter().find(|map| map.name() == name)
    }
}

fn pin_of(folder: &Path, prefix: &str, name: &str) -> PathBuf {
    folder.join(format!("{prefix}{name}"))
}

/// The map under the name that programs know it by; its pin has a prefix.
fn renamed(map: Map, name: &str) -> Result<Map, KernelError> {
    Map::by_id(map.id(), name)
}
