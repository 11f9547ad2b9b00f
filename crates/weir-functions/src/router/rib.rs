//! The routes of a router and the tables made of them, in whatever memory: that of a plan, or the maps of a router that runs.
//!
//! [`Rib`] knows every route; [`Memory`] holds what packets and other editors see of it. An editor that comes later reads the routes back from
//! the memory alone. Invariant: of several routes to one prefix the one of the lowest metric is in the tables, of equals the one that was put in last; next hops
//! and groups are there before a word names them, and are not given to others before no packet can have read such a word.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use weir_bpf::abi::router::{BUCKETS, hop, word};
use weir_bpf::abi::{Group, NextHop, Route};
use weir_value::Prefix;

use super::trie::{Full, Key, Nodes, Table, Trie, Words};

/// What packets read and later editors find.
pub trait Memory: Words {
    /// A route by its place; `None` behind the last.
    fn route(&self, at: usize) -> Option<Route>;
    /// Writes it.
    fn set_route(&mut self, at: usize, route: &Route);
    /// A next hop by its number.
    fn hop(&self, at: usize) -> Option<NextHop>;
    /// Writes it.
    fn set_hop(&mut self, at: usize, hop: &NextHop);
    /// A group by its number.
    fn group(&self, at: usize) -> Option<Group>;
    /// Writes it.
    fn set_group(&mut self, at: usize, group: &Group);
    /// Places for routes, next hops and groups; the first of each is never used.
    fn room(&self) -> TableCapacity;
}

/// Places there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCapacity {
    /// For routes.
    pub routes: usize,
    /// For next hops.
    pub hops: usize,
    /// For groups.
    pub groups: usize,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// Next hops and their weights; one alone is no group.
    pub hops: Vec<(Hop, u16)>,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// What it is ([`hop`]).
    pub kind: u8,
    /// Number of the interface; 0 where it is none.
    pub interface: u16,
    /// The gateway.
    pub address: Option<IpAddr>,
    /// Largest L3 packet; 0: that of the interface.
    pub mtu: u32,
    /// Link-layer address, if it is given.
    pub mac: [u8; 6],
}

impl Hop {
    /// A hop that is no interface's: local, blackhole, unreachable, prohibit.
    pub fn special(kind: u8) -> Hop {
        Hop {
            kind,
            interface: 0,
            address: None,
            mtu: 0,
            mac: [0; 6],
        }
    }

    fn encode(&self) -> NextHop {
        let (family, address) = match self.address {
            None => (0, [0; 16]),
            Some(IpAddr::V4(a)) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&a.octets());
                (4, bytes)
            }
            Some(IpAddr::V6(a)) => (6, a.octets()),
        };
        NextHop {
            kind: self.kind,
            family,
            interface: self.interface,
            mtu: self.mtu,
            address,
            mac: self.mac,
            ..NextHop::default()
        }
    }

    fn decode(hop: &NextHop) -> Hop {
        let [a, b, c, d, ..] = hop.address;
        Hop {
            kind: hop.kind,
            interface: hop.interface,
            address: match hop.family {
                4 => Some([a, b, c, d].into()),
                6 => Some(hop.address.into()),
                _ => None,
            },
            mtu: hop.mtu,
            mac: hop.mac,
        }
    }
}

/// Why a route cannot be put in; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// As many routes as there is room for.
    #[error("the table is full: its capacity is {0} routes")]
    Routes(usize),
    /// No node is left.
    #[error("the table is full: no node is left for prefixes of this length")]
    Nodes {
        /// [`Rib::settle`] makes some free.
        waiting: bool,
    },
    /// No next hop is left.
    #[error("the table is full: its capacity is {0} next hops")]
    Hops(usize),
    /// No group is left.
    #[error("the table is full: its capacity is {0} routes with several next hops of their own")]
    Groups(usize),
    /// Too many next hops, or none, in one route.
    #[error("a route has 1 to {BUCKETS} next hops")]
    Width,
}

impl From<Full> for RibError {
    fn from(full: Full) -> RibError {
        RibError::Nodes {
            waiting: full.waiting,
        }
    }
}

/// A route as it is in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    metric: u32,
    origin: u8,
    at: u32,
    to: u32,
}

/// Numbers given to things that may be equal.
#[derive(Debug)]
struct Numbered<T> {
    by_value: HashMap<T, u32>,
    by_number: HashMap<u32, (T, u32)>,
    free: Vec<u32>,
    leaving: Vec<u32>,
}

impl<T: Clone + Eq + std::hash::Hash> Numbered<T> {
    fn new(room: usize) -> Numbered<T> {
        Numbered {
            by_value: HashMap::new(),
            by_number: HashMap::new(),
            free: (1..room.max(1) as u32).rev().collect(),
            leaving: Vec::new(),
        }
    }

    /// One user less.
    fn release(&mut self, number: u32) -> Option<T> {
        let (value, users) = self.by_number.get_mut(&number)?;
        *users = users.saturating_sub(1);
        if *users > 0 {
            return None;
        }
        let value = value.clone();
        self.by_number.remove(&number);
        self.by_value.remove(&value);
        self.leaving.push(number);
        Some(value)
    }

    /// The number that a value has, used once more.
    fn again(&mut self, value: &T) -> Option<u32> {
        let number = *self.by_value.get(value)?;
        if let Some((_, users)) = self.by_number.get_mut(&number) {
            *users += 1;
        }
        Some(number)
    }

    fn give(&mut self, number: u32, value: T) {
        self.by_value.insert(value.clone(), number);
        self.by_number.insert(number, (value, 1));
    }

    fn settle(&mut self) {
        self.free.append(&mut self.leaving);
    }
}

/// All routes of a router, over the memory that packets read.
#[derive(Debug)]
pub struct Rib<M> {
    memory: M,
    tries: [Trie; 2],
    nodes: Nodes,
    routes: BTreeMap<Prefix, Vec<Held>>,
    free: Vec<u32>,
    count: usize,
    hops: Numbered<Hop>,
    groups: Numbered<Vec<(u32, u16)>>,
    /// Words name routes, and `targets` what these lead to.
    counted: bool,
}

impl<M: Memory> Rib<M> {
    /// The routes that are in this memory; `counted`: words name routes.
    pub fn open(memory: M, counted: bool) -> Rib<M> {
        let room = memory.room();
        let mut rib = Rib {
            tries: [
                Trie::new(Table::Root4, memory.len(Table::Root4)),
                Trie::new(Table::Root6, memory.len(Table::Root6)),
            ],
            nodes: Nodes::new(memory.len(Table::Nodes)),
            routes: BTreeMap::new(),
            free: Vec::new(),
            count: 0,
            hops: Numbered::new(room.hops),
            groups: Numbered::new(room.groups),
            counted,
            memory,
        };
        rib.adopt(room);
        rib
    }

    fn adopt(&mut self, room: TableCapacity) {
        let mut hops: HashMap<u32, u32> = HashMap::new();
        let mut groups: HashMap<u32, u32> = HashMap::new();
        for at in (1..room.routes as u32).rev() {
            let route = self.memory.route(at as usize);
            let Some(route) = route.filter(|route| route.family != 0) else {
                self.free.push(at);
                continue;
            };
            let prefix = prefix_of(&route);
            let held = Held {
                metric: route.metric,
                origin: route.origin,
                at,
                to: route.to,
            };
            let number = route.to & word::NUMBER;
            let users = match route.to & word::GROUP {
                0 => &mut hops,
                _ => &mut groups,
            };
            *users.entry(number).or_default() += 1;
            self.routes.entry(prefix).or_default().push(held);
            self.count += 1;
        }
        for (prefix, held) in &mut self.routes {
            held.sort_by_key(|one| one.metric);
            self.tries[usize::from(prefix.is_ip6)].adopt(
                &self.memory,
                &mut self.nodes,
                Key::of(prefix),
            );
        }
        self.nodes.adopted();
        for (number, users) in groups {
            let Some(group) = self.memory.group(number as usize) else {
                continue;
            };
            let mut members: BTreeMap<u32, u16> = BTreeMap::new();
            for hop in group.hop {
                *members.entry(hop.into()).or_default() += 1;
            }
            let members: Vec<(u32, u16)> = members.into_iter().collect();
            for (hop, _) in &members {
                *hops.entry(*hop).or_default() += 1;
            }
            self.groups.by_value.insert(members.clone(), number);
            self.groups.by_number.insert(number, (members, users));
        }
        for (number, users) in hops {
            if let Some(hop) = self.memory.hop(number as usize) {
                let hop = Hop::decode(&hop);
                self.hops.by_value.insert(hop, number);
                self.hops.by_number.insert(number, (hop, users));
            }
        }
        let (taken_hops, taken_groups) = (&self.hops.by_number, &self.groups.by_number);
        self.hops.free.retain(|n| !taken_hops.contains_key(n));
        self.groups.free.retain(|n| !taken_groups.contains_key(n));
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Lets the memory be changed beside the routes.
    pub fn with_memory<T>(&mut self, change: impl FnOnce(&mut M) -> T) -> T {
        change(&mut self.memory)
    }

    /// The route to a prefix with this metric: its way and who brought it.
    pub fn held(&self, prefix: Prefix, metric: u32) -> Option<(Way, u8)> {
        let held = self.routes.get(&prefix)?;
        let one = held.iter().find(|one| one.metric == metric)?;
        Some((self.way(one.to), one.origin))
    }

    /// Gives the memory back.
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// Routes there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Nodes in use.
    pub fn nodes(&self) -> usize {
        self.nodes.used()
    }

    /// All routes, by prefix: where each leads, its metric and origin, and its place.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix, Way, u32, u8, u32)> {
        self.routes.iter().flat_map(|(prefix, held)| {
            let one = |held: &Held| {
                (
                    *prefix,
                    self.way(held.to),
                    held.metric,
                    held.origin,
                    held.at,
                )
            };
            held.iter().map(one)
        })
    }

    /// Next hops that routes or groups name, by number, and how many do.
    pub fn hops(&self) -> impl Iterator<Item = (u32, Hop, u32)> {
        let mut hops: Vec<(u32, Hop, u32)> = self
            .hops
            .by_number
            .iter()
            .map(|(number, (hop, users))| (*number, *hop, *users))
            .collect();
        hops.sort_unstable_by_key(|(number, ..)| *number);
        hops.into_iter()
    }

    /// The longest prefix that holds an address, and where it leads.
    pub fn lookup(&self, address: IpAddr) -> Option<(Prefix, Way)> {
        let host = Prefix::one(address);
        let most = host.len;
        (0..=most).rev().find_map(|len| {
            let prefix = Prefix::around(address, len);
            let held = self.routes.get(&prefix)?.first()?;
            Some((prefix, self.way(held.to)))
        })
    }

    /// What the tables say of an address: the same as [`Rib::lookup`], by the way that packets go.
    pub fn find(&self, address: IpAddr) -> Option<Way> {
        let v6 = address.is_ipv6();
        let bits = Key::of(&Prefix::one(address)).bits;
        let found = self.tries[usize::from(v6)].find(&self.memory, bits);
        let to = match self.counted && found != 0 {
            true => self.memory.word(Table::Targets, found as usize),
            false => found,
        };
        (to != 0).then(|| self.way(to))
    }

    fn way(&self, to: u32) -> Way {
        let number = to & word::NUMBER;
        let hop = |number: u32| match self.hops.by_number.get(&number) {
            Some((hop, _)) => *hop,
            None => Hop::special(hop::NONE),
        };
        let hops = match to & word::GROUP {
            0 => vec![(hop(number), 1)],
            _ => match self.groups.by_number.get(&number) {
                Some((members, _)) => members.iter().map(|(n, w)| (hop(*n), *w)).collect(),
                None => Vec::new(),
            },
        };
        Way { hops }
    }

    /// Puts a route in, in the place of one to the same prefix with the same metric.
    ///
    /// # Errors
    /// [`RibError`]; nothing was changed.
    pub fn put(
        &mut self,
        prefix: Prefix,
        way: &Way,
        metric: u32,
        origin: u8,
    ) -> Result<(), RibError> {
        let before = self.routes.get(&prefix);
        let same = before.and_then(|held| held.iter().find(|one| one.metric == metric).copied());
        let at = match same {
            Some(same) => same.at,
            None => *self.free.last().ok_or(RibError::Routes(
                self.memory.room().routes.saturating_sub(1),
            ))?,
        };
        let to = self.resolve(way, same.map(|same| same.to))?;
        let held = Held {
            metric,
            origin,
            at,
            to,
        };
        let best_before = before_best(&self.routes, &prefix);
        let is_best = best_before.is_none_or(|best| metric <= best.metric);
        if is_best {
            let new = best_before.is_none();
            if let Err(e) = self.enter(prefix, &held, new) {
                self.let_go(to);
                return Err(e);
            }
        }
        if same.is_none() {
            self.free.pop();
            self.count += 1;
        }
        self.memory.set_route(at as usize, &encode(prefix, &held));
        let list = self.routes.entry(prefix).or_default();
        list.retain(|one| one.metric != metric);
        list.push(held);
        list.sort_by_key(|one| one.metric);
        if let Some(same) = same {
            self.let_go(same.to);
        }
        Ok(())
    }

    /// Takes a route out, the one with this metric or the best; `false` if there is none.
    pub fn remove(&mut self, prefix: Prefix, metric: Option<u32>) -> bool {
        let Some(list) = self.routes.get_mut(&prefix) else {
            return false;
        };
        let place = match metric {
            None => Some(0),
            Some(metric) => list.iter().position(|one| one.metric == metric),
        };
        let Some(place) = place.filter(|place| *place < list.len()) else {
            return false;
        };
        let gone = list.remove(place);
        let next = list.first().copied();
        if next.is_none() {
            self.routes.remove(&prefix);
        }
        match next {
            Some(next) if place == 0 => {
                // The prefix has its nodes: this cannot fail.
                let _ = self.enter(prefix, &next, false);
            }
            Some(_) => {}
            None => {
                let instead = self.above(prefix);
                let trie = self.tries[usize::from(prefix.is_ip6)];
                trie.remove(&mut self.memory, &mut self.nodes, Key::of(&prefix), instead);
            }
        }
        self.memory.set_route(gone.at as usize, &Route::default());
        self.free.push(gone.at);
        self.count -= 1;
        self.let_go(gone.to);
        true
    }

    /// To be called when no packet is under way any more that was when the last change was made.
    pub fn settle(&mut self) {
        self.nodes.settle();
        self.hops.settle();
        self.groups.settle();
    }

    /// Whether something waits for [`Rib::settle`].
    pub fn waits(&self) -> bool {
        self.nodes.waits() || !self.hops.leaving.is_empty() || !self.groups.leaving.is_empty()
    }

    /// What the longest shorter prefix leads to, as a word, and its length.
    fn above(&self, prefix: Prefix) -> Option<(u32, u8)> {
        (0..prefix.len).rev().find_map(|len| {
            let shorter = Prefix::around(prefix.address(), len);
            let held = self.routes.get(&shorter)?.first()?;
            Some((self.leaf(held), len))
        })
    }

    fn leaf(&self, held: &Held) -> u32 {
        if self.counted { held.at } else { held.to }
    }

    /// Writes a prefix into the tables.
    fn enter(&mut self, prefix: Prefix, held: &Held, new: bool) -> Result<(), RibError> {
        if self.counted {
            self.memory
                .set_word(Table::Targets, held.at as usize, held.to);
        }
        let leaf = self.leaf(held);
        let trie = self.tries[usize::from(prefix.is_ip6)];
        trie.put(
            &mut self.memory,
            &mut self.nodes,
            Key::of(&prefix),
            leaf,
            new,
        )?;
        Ok(())
    }

    /// The word of a way, whose next hops are in the memory from now on. `before`: the word it replaces, whose buckets are kept where they can be.
    fn resolve(&mut self, way: &Way, before: Option<u32>) -> Result<u32, RibError> {
        if way.hops.is_empty() || way.hops.len() > BUCKETS {
            return Err(RibError::Width);
        }
        let mut members: Vec<(u32, u16)> = Vec::with_capacity(way.hops.len());
        for (hop, weight) in &way.hops {
            match self.hop_number(hop) {
                Ok(number) => match members.iter_mut().find(|(n, _)| *n == number) {
                    Some((_, sum)) => {
                        *sum = sum.saturating_add((*weight).max(1));
                        self.release_hop(number);
                    }
                    None => members.push((number, (*weight).max(1))),
                },
                Err(e) => {
                    members.iter().for_each(|(n, _)| self.release_hop(*n));
                    return Err(e);
                }
            }
        }
        if let [(number, _)] = members.as_slice() {
            return Ok(*number);
        }
        let shares = shares(&members);
        let mut named = shares.clone();
        named.sort_unstable();
        if let Some(number) = self.groups.again(&named) {
            members.iter().for_each(|(n, _)| self.release_hop(*n));
            return Ok(word::GROUP | number);
        }
        let Some(number) = self.groups.free.pop() else {
            members.iter().for_each(|(n, _)| self.release_hop(*n));
            return Err(RibError::Groups(
                self.memory.room().groups.saturating_sub(1),
            ));
        };
        let kept = before.filter(|to| to & word::GROUP != 0);
        let kept = kept.and_then(|to| self.memory.group((to & word::NUMBER) as usize));
        let group = spread(&shares, kept.as_ref());
        self.memory.set_group(number as usize, &group);
        self.groups.give(number, named);
        Ok(word::GROUP | number)
    }

    fn hop_number(&mut self, hop: &Hop) -> Result<u32, RibError> {
        if let Some(number) = self.hops.again(hop) {
            return Ok(number);
        }
        let number = self.hops.free.pop();
        let number =
            number.ok_or_else(|| RibError::Hops(self.memory.room().hops.saturating_sub(1)))?;
        self.memory.set_hop(number as usize, &hop.encode());
        self.hops.give(number, *hop);
        Ok(number)
    }

    fn release_hop(&mut self, number: u32) {
        self.hops.release(number);
    }

    /// One user less of what a word names.
    fn let_go(&mut self, to: u32) {
        let number = to & word::NUMBER;
        if to & word::GROUP == 0 {
            self.release_hop(number);
        } else if let Some(members) = self.groups.release(number) {
            members.iter().for_each(|(n, _)| self.release_hop(*n));
        }
    }
}

fn before_best(routes: &BTreeMap<Prefix, Vec<Held>>, prefix: &Prefix) -> Option<Held> {
    routes.get(prefix).and_then(|held| held.first().copied())
}

fn prefix_of(route: &Route) -> Prefix {
    let [a, b, c, d, ..] = route.address;
    let address: IpAddr = match route.family {
        4 => [a, b, c, d].into(),
        _ => route.address.into(),
    };
    Prefix::around(address, route.len)
}

fn encode(prefix: Prefix, held: &Held) -> Route {
    let mut address = [0; 16];
    match prefix.address() {
        IpAddr::V4(a) => address[..4].copy_from_slice(&a.octets()),
        IpAddr::V6(a) => address = a.octets(),
    }
    Route {
        address,
        len: prefix.len,
        family: if prefix.is_ip6 { 6 } else { 4 },
        origin: held.origin,
        to: held.to,
        metric: held.metric,
        ..Route::default()
    }
}

/// Buckets of each member: in proportion to its weight, at least one, the largest remainders first.
fn shares(members: &[(u32, u16)]) -> Vec<(u32, u16)> {
    let total: usize = members.iter().map(|(_, w)| usize::from(*w)).sum();
    let spare = BUCKETS - members.len();
    let mut shares: Vec<(u32, u16, usize)> = members
        .iter()
        .map(|(number, weight)| {
            let part = spare * usize::from(*weight);
            (*number, 1 + (part / total) as u16, part % total)
        })
        .collect();
    let given: usize = shares.iter().map(|(_, n, _)| usize::from(*n)).sum();
    shares.sort_by_key(|(number, _, rest)| (std::cmp::Reverse(*rest), *number));
    for (_, buckets, _) in shares.iter_mut().take(BUCKETS - given) {
        *buckets += 1;
    }
    shares
        .into_iter()
        .map(|(n, buckets, _)| (n, buckets))
        .collect()
}

/// Gives buckets to members. Those of `kept` stay with who had them as far as shares allow, so that few flows move.
fn spread(shares: &[(u32, u16)], kept: Option<&Group>) -> Group {
    let mut left: BTreeMap<u32, u16> = shares.iter().copied().collect();
    let mut group = Group { hop: [0; BUCKETS] };
    if let Some(kept) = kept {
        for (bucket, hop) in group.hop.iter_mut().zip(kept.hop) {
            if let Some(buckets) = left.get_mut(&hop.into()).filter(|n| **n > 0) {
                *bucket = hop;
                *buckets -= 1;
            }
        }
    }
    // In turn, so that neighbours in the list do not get neighbouring buckets only.
    let mut turn: Vec<u32> = Vec::with_capacity(BUCKETS);
    while left.values().any(|n| *n > 0) {
        for (number, buckets) in left.iter_mut().filter(|(_, n)| **n > 0) {
            turn.push(*number);
            *buckets -= 1;
        }
    }
    let empty = group.hop.iter_mut().filter(|hop| **hop == 0);
    for (bucket, number) in empty.zip(turn) {
        *bucket = number as u16;
    }
    group
}
