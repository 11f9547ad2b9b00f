//! The memory of a plan: what the maps of a router hold before anybody edits them.

use weir_bpf::abi::router::CHUNK;
use weir_bpf::abi::{Group, NextHop, Route, router};
use zerocopy::{FromZeros, IntoBytes};

use super::rib::{Memory, TableCapacity};
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
    pub room: TableCapacity,
    /// Routes are counted.
    pub counted: bool,
}

/// Maps as they are filled: what nobody wrote takes no memory and is zero in the data plane, too.
#[derive(Clone, Debug)]
pub struct PlanMemory {
    words: [Words32; 4],
    room: TableCapacity,
    routes: Vec<Route>,
    hops: Vec<NextHop>,
    groups: Vec<Group>,
}

/// Words by element of their map.
#[derive(Clone, Debug)]
struct Words32 {
    len: usize,
    /// Empty: all zeros.
    chunks: Vec<Vec<u32>>,
}

impl Size {
    /// Words of each table, whole elements.
    fn words(&self) -> [usize; 4] {
        let nodes = (self.nodes.max(1) * router::NODE).next_multiple_of(CHUNK);
        let targets = match self.counted {
            true => self.room.routes.next_multiple_of(CHUNK),
            false => CHUNK,
        };
        [
            if self.wide { 256 * CHUNK } else { CHUNK },
            CHUNK,
            nodes,
            targets,
        ]
    }

    /// Bytes that the tables take in the kernel, counters apart.
    pub fn bytes(&self) -> u64 {
        let words: u64 = self.words().iter().map(|words| *words as u64 * 4).sum();
        let of = |count: usize, size: usize| (count * size) as u64;
        words
            + of(self.room.routes, size_of::<Route>())
            + of(self.room.hops, size_of::<NextHop>())
            + of(self.room.groups, size_of::<Group>())
    }
}

impl PlanMemory {
    /// Empty maps of this size.
    pub fn new(size: Size) -> PlanMemory {
        PlanMemory {
            words: size.words().map(|len| Words32 {
                len,
                chunks: vec![Vec::new(); len / CHUNK],
            }),
            room: size.room,
            routes: Vec::new(),
            hops: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// The maps of the instance.
    pub fn maps(&self, counted: bool) -> Vec<MapPlan> {
        let words = |name: &'static str, table: Table| {
            let Words32 { len, chunks } = &self.words[table as usize];
            MapPlan {
                max_entries: (len / CHUNK) as u32,
                keys: (0u32..)
                    .zip(chunks)
                    .filter(|(_, words)| !words.is_empty())
                    .flat_map(|(at, _)| at.to_ne_bytes())
                    .collect(),
                values: chunks.concat().as_bytes().to_vec(),
                ..MapPlan::empty(name, 1, CHUNK * 4)
            }
        };
        let TableCapacity {
            routes,
            hops,
            groups,
        } = self.room;
        let counters = |name: &'static str, len: usize| {
            MapPlan::empty(name, len, size_of::<weir_bpf::abi::Counter>())
        };
        let near = size_of::<weir_bpf::abi::Near>();
        vec![
            words("root4", Table::Root4),
            words("root6", Table::Root6),
            words("nodes", Table::Nodes),
            words("targets", Table::Targets),
            sized(MapPlan::array("routes", &self.routes), routes),
            sized(MapPlan::array("next_hops", &self.hops), hops),
            sized(MapPlan::array("groups", &self.groups), groups),
            MapPlan::empty("nears", hops, near),
            counters("hop_counts", hops),
            counters("route_counts", if counted { routes } else { 1 }),
        ]
    }
}

fn sized(map: MapPlan, entries: usize) -> MapPlan {
    MapPlan {
        max_entries: entries.max(1) as u32,
        ..map
    }
}

impl Words for PlanMemory {
    fn word(&self, table: Table, at: usize) -> u32 {
        let chunk = self.words[table as usize].chunks.get(at / CHUNK);
        let word = chunk.and_then(|words| words.get(at % CHUNK));
        word.copied().unwrap_or(0)
    }

    fn set_word(&mut self, table: Table, at: usize, word: u32) {
        let Some(chunk) = self.words[table as usize].chunks.get_mut(at / CHUNK) else {
            return;
        };
        if chunk.is_empty() {
            chunk.resize(CHUNK, 0);
        }
        chunk[at % CHUNK] = word;
    }

    fn len(&self, table: Table) -> usize {
        self.words[table as usize].len
    }
}

/// An element within the room; what was not written is zero.
fn element<T: Copy + FromZeros>(list: &[T], at: usize, room: usize) -> Option<T> {
    let zero = || (at < room).then(T::new_zeroed);
    list.get(at).copied().or_else(zero)
}

fn set<T: Copy + FromZeros>(list: &mut Vec<T>, at: usize, room: usize, value: &T) {
    if at >= room {
        return;
    }
    if list.len() <= at {
        list.resize_with(at + 1, T::new_zeroed);
    }
    list[at] = *value;
}

impl Memory for PlanMemory {
    fn route(&self, at: usize) -> Option<Route> {
        element(&self.routes, at, self.room.routes)
    }

    fn set_route(&mut self, at: usize, route: &Route) {
        set(&mut self.routes, at, self.room.routes, route);
    }

    fn hop(&self, at: usize) -> Option<NextHop> {
        element(&self.hops, at, self.room.hops)
    }

    fn set_hop(&mut self, at: usize, hop: &NextHop) {
        set(&mut self.hops, at, self.room.hops, hop);
    }

    fn group(&self, at: usize) -> Option<Group> {
        element(&self.groups, at, self.room.groups)
    }

    fn set_group(&mut self, at: usize, group: &Group) {
        set(&mut self.groups, at, self.room.groups, group);
    }

    fn room(&self) -> TableCapacity {
        self.room
    }
}
