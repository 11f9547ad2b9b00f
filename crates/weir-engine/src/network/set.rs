//! The maps and programs that the networks of an edge share: made once, written by halves, grown by making another set beside it.
//!
//! Invariants: maps and the programs on devices are pinned, so no process has to stay; the half that the generation's word names is never
//! written; every map has the capacity that the programs were told of when they were loaded.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_bpf::abi::{self, NetCount, NetDrop, NetEdge, net_slot};
use weir_functions::plan::Constant;
use weir_kernel::{KernelError, KernelObject, LoadedProgram, Map, MapDefinition, MmapArray};
use weir_network::Tables;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::NetworkError;
use crate::edge::load::Common;

/// Records of one half of each array, and entries of what is learned and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Virtual interfaces.
    pub interfaces: u32,
    /// Bridges.
    pub bridges: u32,
    /// Routers.
    pub routers: u32,
    /// Ways that routes take.
    pub hops: u32,
    /// Other edges.
    pub remotes: u32,
    /// Interfaces that lead to other edges.
    pub tunnels: u32,
    /// Members of bridges and their remotes, all lists together.
    pub lists: u32,
    /// Interfaces of what leads into and out of chains.
    pub steers: u32,
    /// What is sent through chains.
    pub selections: u32,
    /// Buckets of exact matches, a power of two.
    pub buckets: u32,
    /// Stations and neighbours that are learned.
    pub learned: u32,
}

impl Capacity {
    /// What tables take at least; `learned`: cells of what bridges and routers learn.
    #[must_use]
    pub fn of(tables: &Tables, learned: u32) -> Capacity {
        Capacity {
            interfaces: tables.interfaces.len() as u32,
            bridges: tables.bridges.len() as u32,
            routers: tables.routers.len() as u32,
            hops: tables.hops.len() as u32,
            remotes: tables.remotes.len() as u32,
            tunnels: tables.tunnels.len() as u32,
            lists: tables.lists.len() as u32,
            steers: tables.steers.len() as u32,
            selections: tables.selections.len() as u32,
            buckets: tables.exact.mask + 1,
            learned,
        }
    }

    /// Room for what is asked for and for growing to twice that, in powers of two.
    #[must_use]
    pub fn with_room(self) -> Capacity {
        let room = |n: u32, least: u32| n.saturating_mul(2).max(least).next_power_of_two();
        Capacity {
            interfaces: room(self.interfaces, 1024),
            bridges: room(self.bridges, 128),
            routers: room(self.routers, 128),
            hops: room(self.hops, 256),
            remotes: room(self.remotes, 64),
            tunnels: room(self.tunnels, 128),
            lists: room(self.lists, 1024),
            steers: room(self.steers, 64),
            selections: room(self.selections, 64),
            // Planned tables have room already.
            buckets: self.buckets.max(1024).next_power_of_two(),
            learned: room(self.learned, 1024),
        }
    }

    /// Whether nothing of `other` is more than this.
    #[must_use]
    pub fn holds(&self, other: &Capacity) -> bool {
        self.parts()
            .iter()
            .zip(other.parts())
            .all(|(mine, theirs)| *mine >= theirs)
    }

    fn parts(&self) -> [u32; 11] {
        [
            self.interfaces,
            self.bridges,
            self.routers,
            self.hops,
            self.remotes,
            self.tunnels,
            self.lists,
            self.steers,
            self.selections,
            self.buckets,
            self.learned,
        ]
    }

    /// Bytes of all maps that grow with it, on a host of so many CPUs.
    #[must_use]
    pub fn bytes(&self, cpus: usize) -> u64 {
        let half = u64::from(self.interfaces) * size_of::<abi::Vi>() as u64
            + u64::from(self.bridges) * size_of::<abi::NetBridge>() as u64
            + u64::from(self.routers) * size_of::<abi::NetRouter>() as u64
            + u64::from(self.hops) * size_of::<abi::NetHop>() as u64
            + u64::from(self.remotes) * size_of::<abi::NetRemote>() as u64
            + u64::from(self.tunnels) * size_of::<abi::NetTunnel>() as u64
            + u64::from(self.lists) * 8
            + u64::from(self.steers) * size_of::<abi::NetSteer>() as u64
            + u64::from(self.selections) * size_of::<abi::NetSelection>() as u64
            + u64::from(self.buckets) * BUCKET as u64;
        2 * half
            + u64::from(self.learned) * size_of::<abi::NetLearned>() as u64
            + u64::from(self.interfaces) * (size_of::<NetCount>() * cpus + 8) as u64
    }
}

/// Bytes of a bucket of exact matches.
const BUCKET: usize = size_of::<abi::Exact>() * abi::exact::WAYS as usize;

/// How many entries a map has; `None`: as its object declares.
type Entries = fn(&Capacity) -> Option<u32>;

/// Maps that all programs of a set share.
const MAPS: &[(&str, Entries)] = &[
    ("net_edge", |_| None),
    ("net_programs", |_| None),
    ("net_chain", |_| None),
    ("net_interfaces", |c| Some(2 * c.interfaces)),
    ("net_exact", |c| Some(2 * c.buckets)),
    ("net_bridges", |c| Some(2 * c.bridges)),
    ("net_routers", |c| Some(2 * c.routers)),
    ("net_hops", |c| Some(2 * c.hops)),
    ("net_remotes", |c| Some(2 * c.remotes)),
    ("net_tunnels", |c| Some(2 * c.tunnels)),
    ("net_lists", |c| Some(2 * c.lists)),
    ("net_steers", |c| Some(2 * c.steers)),
    ("net_selections", |c| Some(2 * c.selections)),
    ("net_learned", |c| Some(c.learned)),
    ("net_counts", |c| Some(c.interfaces)),
    ("net_storms", |c| Some(c.interfaces)),
    ("net_drops", |_| Some(16_384)),
    ("net_near", |c| Some(c.remotes)),
    ("net_heard", |c| Some(c.remotes)),
];

/// How many records a half has.
type HalfOf = fn(&Capacity) -> u32;

/// Constants of programs that say how large a half is.
const HALVES: &[(&str, HalfOf)] = &[
    ("net_half_interfaces", |c| c.interfaces),
    ("net_half_bridges", |c| c.bridges),
    ("net_half_routers", |c| c.routers),
    ("net_half_hops", |c| c.hops),
    ("net_half_remotes", |c| c.remotes),
    ("net_half_tunnels", |c| c.tunnels),
    ("net_half_lists", |c| c.lists),
    ("net_half_steers", |c| c.steers),
    ("net_half_selections", |c| c.selections),
    ("net_half_buckets", |c| c.buckets),
];

/// Programs that every set has, by slot; a set has those whose objects this weir was built with.
pub(super) const SHARED: &[(&str, u32)] = &[
    ("bridge", net_slot::BRIDGE),
    ("router", net_slot::ROUTER),
    ("tunnel", net_slot::TUNNEL),
    ("flood", net_slot::FLOOD),
    ("steer", net_slot::STEER),
    ("punt", net_slot::PUNT),
    ("empty", net_slot::EMPTY),
    ("refuse", net_slot::REFUSE),
];

/// Programs that devices run.
pub(super) const ON_DEVICES: &[&str] = &["workload", "underlay", "from_kernel", "resume"];

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

    /// Constants of programs that say how large its maps are, and where packets go around.
    #[must_use]
    pub(super) fn constants(&self) -> Vec<Constant> {
        let halves = HALVES
            .iter()
            .map(|(symbol, of)| (*symbol, of(&self.capacity)));
        halves
            .chain([("net_pair", self.pair)])
            .map(|(symbol, value)| (symbol.into(), value.to_ne_bytes().to_vec()))
            .collect()
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
        let c = &self.capacity;
        // Programs know one mask of the table only.
        if !c.holds(&Capacity::of(half, 0)) || half.exact.mask + 1 != c.buckets {
            return Err(NetworkError::TooSmall);
        }
        let odd = generation & 1 == 1;
        self.write_half("net_interfaces", odd, c.interfaces, &half.shortened())?;
        self.write_half(
            "net_exact",
            odd,
            c.buckets * abi::exact::WAYS,
            &half.exact.cells,
        )?;
        self.write_half("net_bridges", odd, c.bridges, &half.bridges)?;
        self.write_half("net_routers", odd, c.routers, &half.routers)?;
        self.write_half("net_hops", odd, c.hops, &half.hops)?;
        self.write_half("net_remotes", odd, c.remotes, &half.remotes)?;
        self.write_half("net_tunnels", odd, c.tunnels, &half.tunnels)?;
        self.write_half("net_steers", odd, c.steers, &half.steers)?;
        self.write_half("net_selections", odd, c.selections, &half.selections)?;
        // Elements of arrays begin at multiples of 8.
        let lists: Vec<u64> = half.lists.iter().map(|vid| u64::from(*vid)).collect();
        self.write_half("net_lists", odd, c.lists, &lists)
    }

    /// Records from the half's beginning on, zeros behind them. A map that no program of this build has is left out.
    fn write_half<T: IntoBytes + Immutable + KnownLayout>(
        &self,
        map: &str,
        odd: bool,
        records: u32,
        values: &[T],
    ) -> Result<(), NetworkError> {
        let Some(map) = self.maps.iter().find(|known| known.name() == map) else {
            return Ok(());
        };
        let memory: MmapArray = map.mmap()?;
        let size = records as usize * size_of::<T>();
        let begin = if odd { size } else { 0 };
        let bytes = values.as_bytes();
        memory.write(begin, bytes)?;
        memory.write(begin + bytes.len(), &vec![0; size - bytes.len()])?;
        Ok(())
    }

    /// Lets packets follow a generation whose half is written.
    ///
    /// # Errors
    /// The word cannot be mapped.
    pub fn switch(&self, generation: u64) -> Result<(), NetworkError> {
        Ok(self.map("net_edge")?.mmap()?.publish(0, generation)?)
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
