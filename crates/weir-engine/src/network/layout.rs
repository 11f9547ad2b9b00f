//! What the networks of an edge are made of, whoever carries them out: maps with their sizes, programs with their slots, constants, and what a
//! half of each array holds. Pure; `set` makes it in the kernel, `user` in the user engine.
//!
//! Invariant: every map has the capacity that programs are told of.

use serde::{Deserialize, Serialize};
use weir_bpf::abi::{self, NetCount, net_slot};
use weir_functions::plan::Constant;
use weir_network::Tables;
use zerocopy::{Immutable, IntoBytes, KnownLayout};

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
    /// What is sent through chains, or to helpers.
    pub selections: u32,
    /// Interfaces of functions that hand packets to a helper.
    pub punts: u32,
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
            punts: tables.punts.len() as u32,
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
            punts: room(self.punts, 16),
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

    fn parts(&self) -> [u32; 12] {
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
            self.punts,
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
            + u64::from(self.punts) * size_of::<abi::NetPunt>() as u64
            + u64::from(self.buckets) * BUCKET as u64;
        2 * half
            + u64::from(self.learned) * size_of::<abi::NetLearned>() as u64
            + u64::from(self.interfaces)
                * (size_of::<NetCount>() * cpus + 8 + size_of::<abi::NetPunted>()) as u64
    }
}

/// Bytes of a bucket of exact matches.
const BUCKET: usize = size_of::<abi::Exact>() * abi::exact::WAYS as usize;

/// How many entries a map has; `None`: as its object declares.
pub(super) type Entries = fn(&Capacity) -> Option<u32>;

/// Maps that all programs of a set share.
pub(super) const MAPS: &[(&str, Entries)] = &[
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
    ("net_punts", |c| Some(2 * c.punts)),
    ("net_punted", |c| Some(c.interfaces)),
    ("net_ring", |_| None),
    ("net_desk", |_| None),
    ("net_flows", |_| None),
    ("net_learned", |c| Some(c.learned)),
    ("net_counts", |c| Some(c.interfaces)),
    ("net_storms", |c| Some(c.interfaces)),
    ("net_drops", |_| Some(16_384)),
    ("net_near", |c| Some(c.remotes)),
    ("net_heard", |c| Some(c.remotes)),
    // Of programs that are watched only.
    ("weir_watch_want", |_| None),
    ("weir_watch", |_| None),
    ("weir_watch_count", |_| None),
    ("weir_watch_desk", |_| None),
    ("weir_watch_chain", |_| None),
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
    ("net_half_punts", |c| c.punts),
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

/// Constants of programs that say how large maps are, and where packets go around: `pair` is the index of that device.
pub(super) fn constants(capacity: &Capacity, pair: u32) -> Vec<Constant> {
    let halves = HALVES.iter().map(|(symbol, of)| (*symbol, of(capacity)));
    halves
        .chain([("net_pair", pair)])
        .map(|(symbol, value)| (symbol.into(), value.to_ne_bytes().to_vec()))
        .collect()
}

/// Is given the name of an array, the bytes of one half of it, and what that half holds; zeros follow. Elements begin at multiples of 8 bytes.
pub(super) type Put<'p, E> = &'p mut dyn FnMut(&'static str, usize, &[u8]) -> Result<(), E>;

/// What a half of each array holds. `tables` must fit: [`fits`].
pub(super) fn contents<E>(tables: &Tables, capacity: &Capacity, put: Put<'_, E>) -> Result<(), E> {
    let c = capacity;
    let cells = c.buckets * abi::exact::WAYS;
    one("net_interfaces", c.interfaces, &tables.shortened(), put)?;
    one("net_exact", cells, &tables.exact.cells, put)?;
    one("net_bridges", c.bridges, &tables.bridges, put)?;
    one("net_routers", c.routers, &tables.routers, put)?;
    one("net_hops", c.hops, &tables.hops, put)?;
    one("net_remotes", c.remotes, &tables.remotes, put)?;
    one("net_tunnels", c.tunnels, &tables.tunnels, put)?;
    one("net_steers", c.steers, &tables.steers, put)?;
    one("net_selections", c.selections, &tables.selections, put)?;
    one("net_punts", c.punts, &tables.punts, put)?;
    let lists: Vec<u64> = tables.lists.iter().map(|vid| u64::from(*vid)).collect();
    one("net_lists", c.lists, &lists, put)
}

fn one<T: IntoBytes + Immutable + KnownLayout, E>(
    map: &'static str,
    records: u32,
    values: &[T],
    put: Put<'_, E>,
) -> Result<(), E> {
    put(map, records as usize * size_of::<T>(), values.as_bytes())
}

/// Whether tables fit maps of a capacity. Programs know one mask of the exact matches only.
pub(super) fn fits(tables: &Tables, capacity: &Capacity) -> bool {
    capacity.holds(&Capacity::of(tables, 0)) && tables.exact.mask + 1 == capacity.buckets
}
