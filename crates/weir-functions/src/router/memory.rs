//! The memory of a plan: what the maps of a router hold before anybody edits them.

use weir_bpf::abi::router::CHUNK;
use weir_bpf::abi::{Group, NextHop, Route, router};
use zerocopy::{FromZeros, IntoBytes};

use super::rib::{Memory, Room};
use super::trie::{Table, Words};
use crate::plan::MapPlan;

/// What a router has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The root of IPv4 has 2^24 words, else 2^16.
    pub wide: bool,
    /// Nodes.
    pub nodes: usize,
    /// Routes, next hops, groups.
    pub room: Room,
    /// Routes are counted.
    pub counted: bool,
}

/// Maps as vectors.
#[derive(Clone, Debug)]
pub struct PlanMemory {
    words: [Vec<u32>; 4],
    routes: Vec<Route>,
    hops: Vec<NextHop>,
    groups: Vec<Group>,
}

impl PlanMemory {
    /// Empty maps of this size.
    pub fn new(size: Size) -> PlanMemory {
        let Room {
            routes,
            hops,
            groups,
        } = size.room;
        let root4 = if size.wide { 256 * CHUNK } else { CHUNK };
        let nodes = (size.nodes.max(1) * router::NODE).next_multiple_of(CHUNK);
        let targets = match size.counted {
            true => routes.next_multiple_of(CHUNK),
            false => CHUNK,
        };
        PlanMemory {
            words: [root4, CHUNK, nodes, targets].map(|len| vec![0; len]),
            routes: vec![Route::default(); routes.max(1)],
            hops: vec![NextHop::default(); hops.max(1)],
            groups: vec![Group::new_zeroed(); groups.max(1)],
        }
    }

    /// The maps of the instance.
    pub fn maps(&self, counted: bool) -> Vec<MapPlan> {
        let words = |name: &'static str, table: Table| MapPlan {
            max_entries: (self.words[table as usize].len() / CHUNK) as u32,
            keys: (0..(self.words[table as usize].len() / CHUNK) as u32)
                .flat_map(u32::to_ne_bytes)
                .collect(),
            values: self.words[table as usize].as_bytes().to_vec(),
            ..MapPlan::empty(name, 1, CHUNK * 4)
        };
        let counters = |name: &'static str, len: usize| {
            MapPlan::empty(name, len, size_of::<weir_bpf::abi::Counter>())
        };
        let near = size_of::<weir_bpf::abi::Near>();
        vec![
            words("root4", Table::Root4),
            words("root6", Table::Root6),
            words("nodes", Table::Nodes),
            words("targets", Table::Targets),
            MapPlan::array("routes", &self.routes),
            MapPlan::array("next_hops", &self.hops),
            MapPlan::array("groups", &self.groups),
            MapPlan::empty("nears", self.hops.len(), near),
            counters("hop_counts", self.hops.len()),
            counters("route_counts", if counted { self.routes.len() } else { 1 }),
        ]
    }
}

impl Words for PlanMemory {
    fn word(&self, table: Table, at: usize) -> u32 {
        self.words[table as usize].get(at).copied().unwrap_or(0)
    }

    fn set_word(&mut self, table: Table, at: usize, word: u32) {
        if let Some(place) = self.words[table as usize].get_mut(at) {
            *place = word;
        }
    }

    fn len(&self, table: Table) -> usize {
        self.words[table as usize].len()
    }
}

impl Memory for PlanMemory {
    fn route(&self, at: usize) -> Option<Route> {
        self.routes.get(at).copied()
    }

    fn set_route(&mut self, at: usize, route: &Route) {
        if let Some(place) = self.routes.get_mut(at) {
            *place = *route;
        }
    }

    fn hop(&self, at: usize) -> Option<NextHop> {
        self.hops.get(at).copied()
    }

    fn set_hop(&mut self, at: usize, hop: &NextHop) {
        if let Some(place) = self.hops.get_mut(at) {
            *place = *hop;
        }
    }

    fn group(&self, at: usize) -> Option<Group> {
        self.groups.get(at).copied()
    }

    fn set_group(&mut self, at: usize, group: &Group) {
        if let Some(place) = self.groups.get_mut(at) {
            *place = *group;
        }
    }

    fn room(&self) -> Room {
        Room {
            routes: self.routes.len(),
            hops: self.hops.len(),
            groups: self.groups.len(),
        }
    }
}
