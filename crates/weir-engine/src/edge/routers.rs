//! The tables of routers that run: opened as memory, edited under the edge's lock, followed from the kernel's routes, and carried over when an instance is replaced.
//!
//! Invariants: who edits holds the lock of the edge and works on the maps of the generation that packets follow; a number that was let go is given to
//! another next hop or node only after no packet can be in the middle of it. Routes that did not come from the configuration go on over
//! a replacement, with interfaces matched by port and VLAN.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_bpf::abi::router::{CHUNK, hop, origin};
use weir_bpf::abi::{self, Group, Interface, NextHop, Route};
use weir_functions::router::rib::{Hop, Memory, Rib, RibError, TableCapacity, Way};
use weir_functions::router::trie::{Table, Words};
use weir_kernel::pinned::Folder;
use weir_kernel::routes::{Change, KernelRoute, KernelRouteKind};
use weir_kernel::{KernelError, Map, MmapArray};
use weir_value::Prefix;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::error::EdgeError;
use super::folder;
use super::maps::EdgeMaps;
use super::state::{InstanceState, State};

/// The object of routers.
pub const OBJECT: &str = "router";

/// A router of an edge that runs, and its routes.
#[derive(Debug)]
pub struct Router {
    edge: String,
    function: String,
    /// Ids of the maps it was opened with.
    maps: BTreeMap<String, u32>,
    rib: Rib<Live>,
    interfaces: Vec<Interface>,
}

/// What one route does, for who lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where to.
    pub prefix: Prefix,
    /// By which way.
    pub way: Way,
    /// Preference.
    pub metric: u32,
    /// Who brought it ([`origin`]).
    pub origin: u8,
    /// What took it, where routes are counted: packets and bytes.
    pub counted: Option<(u64, u64)>,
}

/// A next hop and what became of packets to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedHop {
    /// It.
    pub hop: Hop,
    /// Routes and groups that name it.
    pub users: u32,
    /// Packets and bytes sent to it.
    pub counted: (u64, u64),
    /// Its link-layer address, as a CPU learned it last from the kernel; zeros: not known.
    pub mac: [u8; 6],
}

/// What a route was before it was replaced, and who had brought it; `None`: it was not there.
type Before = Option<(Way, u8)>;

/// What following the kernel's routes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Routes put in, new or with another way.
    pub put: usize,
    /// Routes taken out.
    pub removed: usize,
    /// Routes that found no room.
    pub refused: usize,
}

impl Router {
    /// Opens a router of a running edge; `function` may be left out where there is one only.
    ///
    /// # Errors
    /// [`EdgeError::NotRunning`], [`EdgeError::NoRouter`], what the kernel refused.
    pub fn open(edge: &str, function: Option<&str>) -> Result<Router, EdgeError> {
        let path = folder::folder_of(edge)?;
        let state = match EdgeMaps::open(&path)? {
            Some(maps) => folder::read_state(edge, &path, &maps)?,
            None => None,
        };
        let Some(state) = state else {
            return Err(folder::not_running(edge)?);
        };
        let own = |i: &&InstanceState| i.object == OBJECT && has_tables(i);
        let routers: Vec<&InstanceState> = state.instances.iter().filter(own).collect();
        let found = match function {
            Some(name) => routers.iter().find(|i| i.name == name),
            None => routers.first().filter(|_| routers.len() == 1),
        };
        let Some(instance) = found else {
            return Err(EdgeError::NoRouter {
                edge: edge.to_owned(),
                wanted: function.map(str::to_owned),
                routers: routers.iter().map(|i| i.name.clone()).collect(),
            });
        };
        Router::of(edge, instance).map_err(EdgeError::Kernel)
    }

    fn of(edge: &str, instance: &InstanceState) -> Result<Router, KernelError> {
        let (live, counted) = Live::open(instance)?;
        Ok(Router {
            edge: edge.to_owned(),
            function: instance.name.clone(),
            maps: ids(instance),
            rib: Rib::open(live, counted),
            interfaces: interfaces(instance)?,
        })
    }

    /// Name of the function.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// Its interfaces by number: weir's port, VLAN, index of the device.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Routes there are.
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.rib.is_empty()
    }

    /// The longest prefix that holds an address, and where it leads.
    pub fn lookup(&self, address: IpAddr) -> Option<(Prefix, Way)> {
        self.rib.lookup(address)
    }

    /// All routes, with what was counted.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn list(&self) -> Result<Vec<Listed>, KernelError> {
        let live = self.rib.memory();
        let mut listed = Vec::with_capacity(self.rib.len());
        for (prefix, way, metric, origin, at) in self.rib.routes() {
            let counted = match &live.counts {
                Some(counts) => Some(sum(&counts.lookup_percpu(&at.to_ne_bytes())?)),
                None => None,
            };
            listed.push(Listed {
                prefix,
                way,
                metric,
                origin,
                counted,
            });
        }
        Ok(listed)
    }

    /// All next hops that some route names, with what was counted.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn hops(&self) -> Result<Vec<ListedHop>, KernelError> {
        let live = self.rib.memory();
        let mut listed = Vec::new();
        for (number, hop, users) in self.rib.hops() {
            let key = number.to_ne_bytes();
            let nears = live.nears.lookup_percpu(&key)?;
            let nears = nears
                .iter()
                .filter_map(|value| abi::Near::read_from_prefix(value).ok());
            let known = nears.map(|(near, _)| near).filter(|near| near.port != 0);
            let last = known.max_by_key(|near| near.until);
            listed.push(ListedHop {
                hop,
                users,
                counted: sum(&live.hop_counts.lookup_percpu(&key)?),
                mac: last.map_or(hop.mac, |near| near.to),
            });
        }
        Ok(listed)
    }

    /// Packets and bytes sent, by number of the interface.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn sent(&self) -> Result<Vec<(u64, u64)>, KernelError> {
        let live = self.rib.memory();
        let numbers = 0..self.interfaces.len() as u32;
        let sums = numbers.map(|n| Ok(sum(&live.sent.lookup_percpu(&n.to_ne_bytes())?)));
        sums.collect()
    }

    /// Puts routes in, all or none of them.
    ///
    /// # Errors
    /// [`EdgeError::Route`]: one has no room; what was put in before it is taken out again.
    pub fn put(&mut self, routes: &[(Prefix, Way, u32)]) -> Result<(), EdgeError> {
        let _lock = self.begin()?;
        let mut done: Vec<(Prefix, u32, Before)> = Vec::new();
        for (prefix, way, metric) in routes {
            let before = self.held(*prefix, *metric);
            match self.put_one(*prefix, way, *metric, origin::COMMAND) {
                Ok(()) => done.push((*prefix, *metric, before)),
                Err(error) => {
                    for (prefix, metric, before) in done.into_iter().rev() {
                        match before {
                            // It was there a moment ago, so there is room.
                            Some((way, origin)) => {
                                let _ = self.rib.put(prefix, &way, metric, origin);
                            }
                            None => {
                                self.rib.remove(prefix, Some(metric));
                            }
                        }
                    }
                    self.end()?;
                    return Err(EdgeError::Route {
                        function: self.function.clone(),
                        prefix: format!("{prefix:#}"),
                        error,
                    });
                }
            }
        }
        self.end()
    }

    /// Takes a route out; `false` if there is none.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn remove(&mut self, prefix: Prefix, metric: Option<u32>) -> Result<bool, EdgeError> {
        let _lock = self.begin()?;
        let removed = self.rib.remove(prefix, metric);
        self.end()?;
        Ok(removed)
    }

    /// Makes the routes that came from the kernel the same as these. What the configuration or a command put in stays.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn replace_kernels(&mut self, routes: &[KernelRoute]) -> Result<Followed, EdgeError> {
        let _lock = self.begin()?;
        let mut followed = Followed::default();
        let mut wanted: BTreeMap<(Prefix, u32), Way> = BTreeMap::new();
        for route in routes {
            // Of two routes of IPv4 that are alike the first counts.
            wanted.entry(key(route)).or_insert_with(|| self.way(route));
        }
        let held: Vec<(Prefix, Way, u32, u8)> = self
            .rib
            .routes()
            .map(|(prefix, way, metric, origin, _)| (prefix, way, metric, origin))
            .collect();
        for (prefix, way, metric, by) in held {
            match wanted.get(&(prefix, metric)) {
                // Who configures has the first word.
                Some(_) if by != origin::KERNEL => drop(wanted.remove(&(prefix, metric))),
                Some(new) if alike(new, &way) => drop(wanted.remove(&(prefix, metric))),
                None if by == origin::KERNEL => {
                    self.rib.remove(prefix, Some(metric));
                    followed.removed += 1;
                }
                _ => {}
            }
        }
        for ((prefix, metric), way) in &wanted {
            match self.put_one(*prefix, way, *metric, origin::KERNEL) {
                Ok(()) => followed.put += 1,
                Err(_) => followed.refused += 1,
            }
        }
        self.end()?;
        Ok(followed)
    }

    /// Follows changes; `None`: something happened that only reading all of them again tells.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn follow(&mut self, changes: &[Change]) -> Result<Option<Followed>, EdgeError> {
        if changes.contains(&Change::Unknown) {
            return Ok(None);
        }
        let _lock = self.begin()?;
        let mut followed = Followed::default();
        for change in changes {
            match change {
                Change::Added(route) => {
                    let (prefix, metric) = key(route);
                    if self
                        .held(prefix, metric)
                        .is_some_and(|h| h.1 != origin::KERNEL)
                    {
                        continue;
                    }
                    let way = self.way(route);
                    match self.put_one(prefix, &way, metric, origin::KERNEL) {
                        Ok(()) => followed.put += 1,
                        Err(_) => followed.refused += 1,
                    }
                }
                Change::Removed(route) => {
                    let (prefix, metric) = key(route);
                    let ours = self
                        .held(prefix, metric)
                        .is_some_and(|h| h.1 == origin::KERNEL);
                    if ours && self.rib.remove(prefix, Some(metric)) {
                        followed.removed += 1;
                    }
                }
                Change::Unknown => {}
            }
        }
        self.end()?;
        Ok(Some(followed))
    }

    /// Gateways that packets may be sent to: their addresses and the indexes of their devices.
    pub fn gateways(&self) -> Vec<(u32, IpAddr)> {
        let mut gateways: Vec<(u32, IpAddr)> = Vec::new();
        for at in 1..self.rib.memory().room().hops {
            let Some(found) = self.rib.memory().hop(at) else {
                break;
            };
            let [a, b, c, d, ..] = found.address;
            let address: IpAddr = match found.family {
                4 => [a, b, c, d].into(),
                6 => found.address.into(),
                _ => continue,
            };
            let interface = self.interfaces.get(usize::from(found.interface));
            if let (hop::GATEWAY, [0, 0, 0, 0, 0, 0], Some(one)) =
                (found.kind, found.mac, interface)
            {
                gateways.push((one.ifindex, address));
            }
        }
        gateways.sort_unstable();
        gateways.dedup();
        gateways
    }

    /// Locks the edge and makes sure that what is known here is what runs and what others left.
    fn begin(&mut self) -> Result<Folder, EdgeError> {
        let path = folder::folder_of(&self.edge)?;
        if !path.exists() {
            return Err(folder::not_running(&self.edge)?);
        }
        let lock = folder::lock(&self.edge, &path)?;
        let state = match EdgeMaps::open(&path)? {
            Some(maps) => folder::read_state(&self.edge, &path, &maps)?,
            None => None,
        };
        let Some(state) = state else {
            return Err(folder::not_running(&self.edge)?);
        };
        let instance = state.instances.iter().find(|i| i.name == self.function);
        let Some(instance) = instance.filter(|i| i.object == OBJECT && has_tables(i)) else {
            return Err(EdgeError::NoRouter {
                edge: self.edge.clone(),
                wanted: Some(self.function.clone()),
                routers: Vec::new(),
            });
        };
        if ids(instance) != self.maps || self.rib.memory().edits() != self.rib.memory().seen {
            *self = Router::of(&self.edge, instance)?;
        }
        Ok(lock)
    }

    /// Lets others know that something changed, and says what went wrong on the way.
    fn end(&mut self) -> Result<(), EdgeError> {
        let mut refused = None;
        self.rib.with_memory(|live| {
            live.seen = live.edits().wrapping_add(1);
            let edits = live.seen;
            live.set_edits(edits);
            refused = live.refused.take();
        });
        match refused {
            Some(error) => Err(EdgeError::Kernel(error)),
            None => Ok(()),
        }
    }

    fn held(&self, prefix: Prefix, metric: u32) -> Option<(Way, u8)> {
        self.rib.held(prefix, metric)
    }

    fn put_one(&mut self, prefix: Prefix, way: &Way, metric: u32, by: u8) -> Result<(), RibError> {
        match self.rib.put(prefix, way, metric, by) {
            Err(_) if self.rib.waits() => {
                // Numbers that were let go can be had once no packet is in the middle of them.
                if weir_kernel::grace_period().is_ok() {
                    self.rib.settle();
                }
                self.rib.put(prefix, way, metric, by)
            }
            outcome => outcome,
        }
    }

    /// The way of a route of the kernel's. What leaves by a device that is no interface of the router goes to the stack, which knows it.
    fn way(&self, route: &KernelRoute) -> Way {
        let special = |kind| Way {
            hops: vec![(Hop::special(kind), 1)],
        };
        let hop_of = |device: u32, via: Option<IpAddr>| {
            let number = self
                .interfaces
                .iter()
                .position(|one| one.ifindex == device && one.port != 0)?;
            Some(Hop {
                kind: if via.is_some() {
                    hop::GATEWAY
                } else {
                    hop::LINK
                },
                interface: number as u16,
                address: via,
                mtu: route.mtu.unwrap_or(0),
                mac: [0; 6],
            })
        };
        match route.kind {
            KernelRouteKind::Unicast => {}
            KernelRouteKind::Local => return special(hop::LOCAL),
            KernelRouteKind::Blackhole => return special(hop::BLACKHOLE),
            KernelRouteKind::Unreachable => return special(hop::UNREACHABLE),
            KernelRouteKind::Prohibit => return special(hop::PROHIBIT),
        }
        let hops: Option<Vec<(Hop, u16)>> = route
            .hops
            .iter()
            .map(|one| Some((hop_of(one.device, one.via)?, one.weight)))
            .collect();
        match hops.filter(|hops| !hops.is_empty()) {
            Some(hops) => Way { hops },
            None => special(hop::LOCAL),
        }
    }
}

/// Lets the kernel ask for the gateways of routers that were applied, so that packets find them known. What a user should know: devices on
/// which the kernel does not forward, which therefore tells nobody where neighbours are.
pub(super) fn prepare(state: &State) -> Result<Vec<String>, KernelError> {
    let mut notes = Vec::new();
    for instance in state.instances.iter().filter(|i| i.object == OBJECT) {
        for one in interfaces(instance)? {
            let Some(device) = weir_kernel::iface::name_of(one.ifindex) else {
                continue;
            };
            let off: Vec<&str> = [("IPv4", "ipv4"), ("IPv6", "ipv6")]
                .into_iter()
                .filter(|(_, path)| forwards(path, &device) == Some(false))
                .map(|(family, _)| family)
                .collect();
            if !off.is_empty() {
                notes.push(format!(
                    "function {}: this host does not forward {} on {device}, so such packets go to the stack: \
                     `sysctl net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`",
                    instance.name,
                    off.join(" and ")
                ));
            }
        }
        if !has_tables(instance) {
            continue;
        }
        for (device, address) in Router::of("", instance)?.gateways() {
            // One that cannot be asked for shows as packets that are `unresolved`.
            let _ = weir_kernel::routes::ask_neighbour(device, address);
        }
    }
    Ok(notes)
}

/// Whether the kernel forwards what comes in by a device; `None`: it does not know the family.
fn forwards(family: &str, device: &str) -> Option<bool> {
    let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim() != "0")
}

/// Carries routes that did not come from the configuration over to routers of `new` that have tables in the place of others of `old`.
pub(super) fn carry_over(old: &State, new: &[&InstanceState]) -> Result<(), EdgeError> {
    for instance in new.iter().filter(|i| i.object == OBJECT && has_tables(i)) {
        let before = old.instances.iter().find(|i| i.name == instance.name);
        let Some(before) = before.filter(|i| i.object == OBJECT && has_tables(i)) else {
            continue;
        };
        if before.maps.get("routes").map(|m| m.id) == instance.maps.get("routes").map(|m| m.id) {
            continue;
        }
        let from = Router::of("", before)?;
        let live = |one: &(_, _, _, u8, _)| one.3 != origin::CONFIGURED;
        if !from.rib.routes().any(|one| live(&one)) {
            continue;
        }
        let mut to = Router::of("", instance)?;
        let place = |number: u16| {
            let old = from.interfaces.get(usize::from(number))?;
            let same =
                |one: &Interface| (one.port, one.vlan) == (old.port, old.vlan) && one.port != 0;
            Some(to.interfaces.iter().position(same)? as u16)
        };
        let mut carried = Vec::new();
        for (prefix, mut way, metric, by, _) in from.rib.routes().filter(live) {
            for (hop, _) in &mut way.hops {
                if matches!(hop.kind, hop::GATEWAY | hop::LINK) {
                    match place(hop.interface) {
                        Some(number) => hop.interface = number,
                        // The interface is gone, and the way with it.
                        None => *hop = Hop::special(hop::LOCAL),
                    }
                }
            }
            carried.push((prefix, way, metric, by));
        }
        for (prefix, way, metric, by) in carried {
            if to.held(prefix, metric).is_none() {
                to.rib
                    .put(prefix, &way, metric, by)
                    .map_err(|error| EdgeError::Route {
                        function: instance.name.clone(),
                        prefix: format!("{prefix:#}"),
                        error,
                    })?;
            }
        }
        to.end()?;
    }
    Ok(())
}

fn has_tables(instance: &InstanceState) -> bool {
    // A router by the kernel's tables has room for one route, which it never uses.
    instance
        .maps
        .get("routes")
        .is_some_and(|map| map.declared[3] > 1)
}

fn ids(instance: &InstanceState) -> BTreeMap<String, u32> {
    let own = instance.maps.iter();
    own.map(|(name, map)| (name.clone(), map.id)).collect()
}

fn key(route: &KernelRoute) -> (Prefix, u32) {
    (Prefix::around(route.destination, route.len), route.metric)
}

/// Whether two ways are the same; of several next hops only who they are is known of one that is in the tables.
fn alike(a: &Way, b: &Way) -> bool {
    let hops = |way: &Way| {
        let mut hops: Vec<Hop> = way.hops.iter().map(|(hop, _)| *hop).collect();
        hops.sort_unstable_by_key(|hop| (hop.kind, hop.interface, hop.address, hop.mtu));
        hops
    };
    let uneven = |way: &Way| way.hops.windows(2).any(|two| two[0].1 != two[1].1);
    hops(a) == hops(b) && (a.hops.len() == 1 || !uneven(a) && even(b))
}

/// Whether shares of buckets are as even as they can be.
fn even(way: &Way) -> bool {
    let shares = way.hops.iter().map(|(_, share)| *share);
    let (least, most) = (shares.clone().min(), shares.max());
    most.unwrap_or(0) - least.unwrap_or(0) <= 1
}

fn interfaces(instance: &InstanceState) -> Result<Vec<Interface>, KernelError> {
    let map = open(instance, "interfaces")?;
    let mut interfaces = Vec::new();
    for number in 0..abi::router::INTERFACES as u32 {
        let value = map.lookup(&number.to_ne_bytes())?.unwrap_or_default();
        match Interface::read_from_bytes(&value) {
            Ok(interface) if interface.port != 0 => interfaces.push(interface),
            _ => break,
        }
    }
    Ok(interfaces)
}

fn open(instance: &InstanceState, name: &str) -> Result<Map, KernelError> {
    let map = instance
        .maps
        .get(name)
        .ok_or_else(|| KernelError::MissingMap {
            map: name.to_owned(),
            near: Vec::new(),
        })?;
    Map::by_id(map.id, name)
}

pub(super) fn sum(values: &[Vec<u8>]) -> (u64, u64) {
    let counters = values
        .iter()
        .filter_map(|value| abi::Counter::read_from_prefix(value).ok());
    counters.fold((0, 0), |sum, (one, _)| {
        (sum.0 + one.packets, sum.1 + one.bytes)
    })
}

/// The maps of a router as memory.
#[derive(Debug)]
struct Live {
    words: [MmapArray; 4],
    routes: MmapArray,
    hops: MmapArray,
    groups: MmapArray,
    /// What CPUs know of next hops: forgotten when a number is given to another one.
    nears: Map,
    counts: Option<Map>,
    hop_counts: Map,
    sent: Map,
    /// Edits that were seen.
    seen: u32,
    /// The first thing that went wrong.
    refused: Option<KernelError>,
}

impl Live {
    /// Also whether words name routes.
    fn open(instance: &InstanceState) -> Result<(Live, bool), KernelError> {
        let mapped = |name: &str| open(instance, name)?.mmap();
        let counts = open(instance, "route_counts")?;
        let counted = counts.definition().entries > 1;
        let mut live = Live {
            words: [
                mapped("root4")?,
                mapped("root6")?,
                mapped("nodes")?,
                mapped("targets")?,
            ],
            routes: mapped("routes")?,
            hops: mapped("next_hops")?,
            groups: mapped("groups")?,
            nears: open(instance, "nears")?,
            counts: counted.then_some(counts),
            hop_counts: open(instance, "hop_counts")?,
            sent: open(instance, "sent")?,
            seen: 0,
            refused: None,
        };
        live.seen = live.edits();
        Ok((live, counted))
    }

    /// Edits so far: the metric of the route that is none.
    fn edits(&self) -> u32 {
        self.route(0).map_or(0, |route| route.metric)
    }

    fn set_edits(&mut self, edits: u32) {
        let none = Route {
            metric: edits,
            ..Route::default()
        };
        self.set_route(0, &none);
    }
}

/// Element `at` of an array of such; `None` behind the last.
fn read<T: FromBytes + FromZeros + IntoBytes>(map: &MmapArray, at: usize) -> Option<T> {
    let mut value = T::new_zeroed();
    map.read(at * size_of::<T>(), value.as_mut_bytes()).ok()?;
    Some(value)
}

fn write<T: IntoBytes + zerocopy::Immutable>(map: &MmapArray, at: usize, value: &T) {
    // Places are within the room that the memory said it has.
    let _ = map.write(at * size_of::<T>(), value.as_bytes());
}

impl Words for Live {
    fn word(&self, table: Table, at: usize) -> u32 {
        read(&self.words[table as usize], at).unwrap_or(0)
    }

    fn set_word(&mut self, table: Table, at: usize, word: u32) {
        write(&self.words[table as usize], at, &word);
    }

    fn len(&self, table: Table) -> usize {
        let words = self.words[table as usize].len() / 4;
        words - words % CHUNK
    }
}

impl Memory for Live {
    fn route(&self, at: usize) -> Option<Route> {
        read(&self.routes, at)
    }

    fn set_route(&mut self, at: usize, route: &Route) {
        write(&self.routes, at, route);
    }

    fn hop(&self, at: usize) -> Option<NextHop> {
        read(&self.hops, at)
    }

    fn set_hop(&mut self, at: usize, hop: &NextHop) {
        write(&self.hops, at, hop);
        let key = (at as u32).to_ne_bytes();
        let forgotten = abi::Near::default();
        let update = self.nears.update(&key, forgotten.as_bytes());
        if let Err(error) = update {
            self.refused.get_or_insert(error);
        }
    }

    fn group(&self, at: usize) -> Option<Group> {
        read(&self.groups, at)
    }

    fn set_group(&mut self, at: usize, group: &Group) {
        write(&self.groups, at, group);
    }

    fn room(&self) -> TableCapacity {
        TableCapacity {
            routes: self.routes.len() / size_of::<Route>(),
            hops: self.hops.len() / size_of::<NextHop>(),
            groups: self.groups.len() / size_of::<Group>(),
        }
    }
}
