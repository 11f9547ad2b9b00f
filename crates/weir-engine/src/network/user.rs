//! The networks of an edge in one machine of weir-vm, over packets of a capture: the programs that the kernel runs, with maps filled alike.
//!
//! Owns what the kernel does between programs: devices receive and send, copies and packets that go around are run again. Nothing of the host is
//! looked at; devices have numbers of this engine's own. Invariant: every frame that came in or was made as a copy ends in one of the ways of [`End`]
//! or as copies, and is counted there ([`Totals::balanced`]).

use std::collections::{BTreeMap, VecDeque};

use weir_bpf::abi::{NetCount, NetDrop, NetEdge};
use weir_network::{EdgeNetworks, TablesError};
use weir_packet::Reason;
use weir_vm::{Env, Join, LoadError, Machine, Object, Redirect, Routes, Skb, Way};
use zerocopy::{FromBytes, IntoBytes};

use super::error::NetworkError;
use super::layout::{self, Capacity, MAPS, SHARED};
use super::private;
use crate::edge::Form;
use crate::edge::load::Recipe;
use crate::edge::replay::user::{fill, missing, update};
use crate::{EngineError, LogLine, Packet};

/// The near end of the pair that packets go around by.
const PAIR: u32 = 1;
/// The device of the underlay.
const UNDERLAY: u32 = 2;
/// The first workload's device.
const FIRST: u32 = 3;
/// Of the one generation there is; it has the half of odd ones.
const GENERATION: u64 = 1;
/// Frames that one may become, copies and what goes around.
const MOST_FRAMES: usize = 1 << 16;
/// The map of the packet's time.
const REPLAY: &str = "replay";
/// Ring buffer of log lines.
const EVENTS: &str = "events";
/// Verdicts of tc.
const TC_SHOT: u32 = 2;
const TC_REDIRECT: u32 = 7;
/// Shortest frame that a device delivers, and longest.
const SHORTEST: usize = 14;
const LONGEST: usize = weir_bpf::abi::FRAME_MAX;

/// Where packets come in or leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// A workload's device, by its place in [`EdgeNetworks::devices`].
    Workload(usize),
    /// The device of the underlay.
    Underlay,
}

/// How a frame ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It left by a device.
    Left {
        /// Which one.
        by: Port,
        /// Its bytes, with its tag.
        frame: Vec<u8>,
    },
    /// It came in by the underlay and is none of ours: the stack has it.
    Stack,
    /// It was dropped.
    Dropped {
        /// VID of the interface that it had come in by to who dropped it; 0: it had not come so far.
        vid: u32,
        /// Why.
        reason: Reason,
    },
}

/// A log line and the function that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkLog {
    /// `network/function`.
    pub function: String,
    /// The line.
    pub line: LogLine,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that came in.
    pub received: u64,
    /// Copies that floods made of them.
    pub copies: u64,
    /// Frames that went around by the pair.
    pub around: u64,
    /// Frames that left, by device.
    pub left: BTreeMap<Port, u64>,
    /// Frames that the stack has.
    pub stack: u64,
    /// Frames that ended as their copies.
    pub flooded: u64,
    /// Drops by VID and reason, as this engine saw them.
    pub dropped: BTreeMap<(u32, Reason), u64>,
    /// What the programs counted of each interface, by VID.
    pub interfaces: Vec<NetCount>,
}

impl Totals {
    /// Frames that were dropped.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether every frame ended once.
    #[must_use]
    pub fn balanced(&self) -> bool {
        let left: u64 = self.left.values().sum();
        self.received + self.copies == left + self.stack + self.flooded + self.drops()
    }
}

/// Why networks cannot be carried out over a capture.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The plan has no tables, or what they hold does not fit.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A packet that never ends.
    #[error(
        "packet {number} became more than {MOST_FRAMES} frames; floods of several segments multiply"
    )]
    Endless {
        /// Its number from 1.
        number: u64,
    },
}

impl From<TablesError> for UserError {
    fn from(error: TablesError) -> UserError {
        UserError::Network(error.into())
    }
}

impl From<LoadError> for UserError {
    fn from(error: LoadError) -> UserError {
        UserError::Engine(error.into())
    }
}

/// Devices by the numbers that they have here.
struct Numbered<'p>(BTreeMap<&'p str, u32>);

impl weir_network::Host for Numbered<'_> {
    fn device(&self, name: &str) -> Option<weir_network::Device> {
        let index = *self.0.get(name)?;
        Some(weir_network::Device { index, peer: false })
    }

    /// A live edge has none either.
    fn kernel_tunnel(&self) -> Option<u32> {
        None
    }
}

/// Names of an edge's devices with the indexes that they have in the user engine, for who says what routes there are.
#[must_use]
pub fn devices(plan: &EdgeNetworks) -> Vec<(String, u32)> {
    let workloads = plan.devices.iter().map(|one| one.device.clone());
    let underlay = plan.underlay.device.iter().cloned();
    workloads
        .zip(FIRST..)
        .chain(underlay.map(|name| (name, UNDERLAY)))
        .collect()
}

/// The networks of an edge, ready to run.
#[derive(Debug)]
pub struct User {
    machine: Machine,
    /// Name of the program that is selected.
    selected: &'static str,
    workloads: usize,
    has_underlay: bool,
    seed: u64,
    /// Functions that write log lines: part and name.
    logging: Vec<(String, String)>,
    /// What the map of drops says so far.
    known: BTreeMap<(u32, u32), u64>,
    totals: Totals,
}

/// A frame that programs still have to see.
struct Ahead {
    skb: Skb,
    program: &'static str,
}

impl User {
    /// Loads what an edge runs by its plan. `seed`: of everything random.
    ///
    /// # Errors
    /// The plan has no tables, or the user engine refused an object.
    pub fn new(plan: &EdgeNetworks, seed: u64) -> Result<User, UserError> {
        let devices = devices(plan);
        let numbers = devices.iter().map(|(name, index)| (name.as_str(), *index));
        let host = Numbered(numbers.collect());
        let mut tables = plan.tables(&host, 0)?;
        let capacity = Capacity::of(&tables, plan.learned.max(1));
        let states = private_slots(plan);
        private::place_slots(&mut tables, &states);
        let mut join = Join::new();
        let constants = layout::constants(&capacity, PAIR);
        let mut slots = Vec::new();
        for (name, slot) in SHARED {
            if let Some(object) = shared_object(name, &capacity, &constants)? {
                join.add(name, object, shared_as)?;
                slots.push((*slot, format!("{name}/{name}")));
            }
        }
        for name in ["workload", "underlay", "resume"] {
            let object = shared_object(name, &capacity, &constants)?;
            let object = object.ok_or_else(|| missing_object(name))?;
            join.add(name, object, shared_as)?;
        }
        let mut logging = Vec::new();
        let mut filled = Vec::new();
        for (function, (_, slot)) in plan.functions.iter().zip(&states) {
            let name = format!("{}/{}", function.network, function.name);
            // A slash parts the names of machines.
            let part = format!("{}.{}", function.network, function.name);
            let recipe = private::recipe(function, &name, constants.clone(), Form::Graph);
            let around = private::surroundings(function, plan);
            join.add(
                &part,
                private_object(&recipe, around, seed, &capacity)?,
                shared_as,
            )?;
            slots.push((*slot, format!("{part}/{}", recipe.plan.program)));
            if crate::logs(&recipe.plan.constants) {
                logging.push((format!("{part}/{EVENTS}"), name));
            }
            filled.push((part, recipe));
        }
        let mut machine = join.load("workload/workload")?;
        for (slot, program) in &slots {
            machine.set_tail_call("net_programs", *slot, program)?;
        }
        for (part, recipe) in &filled {
            for map in &recipe.plan.maps {
                let own = || format!("{part}/{}", map.name);
                fill(&mut machine, &shared_as(&map.name).unwrap_or_else(own), map)?;
            }
        }
        layout::contents(&tables, &capacity, &mut |map, size, bytes| {
            write_half(&mut machine, map, size, bytes)
        })?;
        let word = NetEdge {
            generation: GENERATION,
        };
        update(&mut machine, "net_edge", &[0; 4], word.as_bytes())?;
        Ok(User {
            machine,
            selected: "workload/workload",
            workloads: plan.devices.len(),
            has_underlay: plan.underlay.device.is_some(),
            seed,
            logging,
            known: BTreeMap::new(),
            totals: Totals {
                interfaces: vec![NetCount::default(); tables.interfaces.len()],
                ..Totals::default()
            },
        })
    }

    /// Says what a host would know of interfaces, routes and neighbours, by the numbers of [`devices`]; without it the underlay's MAC addresses are zeros.
    pub fn set_routes(&mut self, routes: Routes) {
        self.machine.set_routes(routes);
    }

    /// Runs a packet that comes in by a port, and everything that becomes of it, in the order in which frames leave.
    ///
    /// # Errors
    /// A program went wrong, a map is missing, or the packet never ends; the engine is of no more use then.
    pub fn packet(&mut self, port: Port, packet: &Packet<'_>) -> Result<Vec<End>, UserError> {
        self.totals.received += 1;
        let mut ends = Vec::new();
        // What no device delivers is given to no program.
        let refused = match packet.frame.len() {
            0..SHORTEST => Some(Reason::FrameShort),
            len if len > LONGEST => Some(Reason::FrameLong),
            _ => None,
        };
        if let Some(reason) = refused {
            self.end(&mut ends, End::Dropped { vid: 0, reason });
            return Ok(ends);
        }
        let input = crate::replay_input(packet, crate::Meta::default(), self.seed, 0);
        if self.machine.map(REPLAY).is_some() {
            update(&mut self.machine, REPLAY, &[0; 4], input.as_bytes())?;
        }
        let (device, program) = match port {
            Port::Workload(place) => (FIRST + place as u32, "workload/workload"),
            Port::Underlay => (UNDERLAY, "underlay/underlay"),
        };
        let mut skb = Skb::new(packet.frame);
        skb.receive(device);
        let mut ahead = VecDeque::from([Ahead { skb, program }]);
        let mut frames = 0;
        while let Some(next) = ahead.pop_front() {
            frames += 1;
            if frames > MOST_FRAMES {
                let number = packet.number + 1;
                return Err(UserError::Endless { number });
            }
            self.run(packet, next, &mut ahead, &mut ends)?;
        }
        Ok(ends)
    }

    /// One program with all that it calls.
    fn run(
        &mut self,
        packet: &Packet<'_>,
        next: Ahead,
        ahead: &mut VecDeque<Ahead>,
        ends: &mut Vec<End>,
    ) -> Result<(), UserError> {
        let Ahead { mut skb, program } = next;
        if self.selected != program {
            self.machine.select(program)?;
            self.selected = program;
        }
        let env = Env {
            now_ns: packet.now_ns,
            random_seed: self.seed,
            ..Env::default()
        };
        let action = self.machine.run_tc(&mut skb, &env);
        let action = action.map_err(|fault| EngineError::Fault {
            number: packet.number + 1,
            fault: Box::new(fault),
        })?;
        let copies = self.machine.take_sent();
        let copied = !copies.is_empty();
        self.totals.copies += copies.len() as u64;
        for copy in copies {
            self.sent(copy.skb, copy.ifindex, copy.ingress, ahead, ends);
        }
        match (action, self.machine.redirect()) {
            (
                TC_REDIRECT,
                Some(Redirect::Device {
                    ifindex,
                    way: Way::In,
                }),
            ) => {
                let ifindex = *ifindex;
                self.sent(skb, ifindex, true, ahead, ends);
            }
            (TC_REDIRECT, Some(Redirect::Device { ifindex, .. })) => {
                let ifindex = *ifindex;
                self.sent(skb, ifindex, false, ahead, ends);
            }
            (TC_SHOT, _) => match self.dropped()? {
                Some((vid, reason)) => self.end(ends, End::Dropped { vid, reason }),
                None if copied => self.totals.flooded += 1,
                // Every drop is counted: one that is not is a defect, and named so.
                None => {
                    let reason = Reason::Internal;
                    self.end(ends, End::Dropped { vid: 0, reason });
                }
            },
            _ => self.end(ends, End::Stack),
        }
        Ok(())
    }

    /// A frame goes out of a device, or into the receive path of one.
    fn sent(
        &mut self,
        mut skb: Skb,
        ifindex: u32,
        ingress: bool,
        ahead: &mut VecDeque<Ahead>,
        ends: &mut Vec<End>,
    ) {
        if ingress && ifindex == PAIR {
            self.totals.around += 1;
            skb.receive(PAIR);
            let program = "resume/resume";
            ahead.push_back(Ahead { skb, program });
            return;
        }
        let place = ifindex.checked_sub(FIRST).map(|place| place as usize);
        let by = match place.filter(|place| *place < self.workloads) {
            Some(place) => Port::Workload(place),
            // Which of its devices routes lead to makes no difference here.
            None => Port::Underlay,
        };
        let frame = skb.wire();
        self.end(ends, End::Left { by, frame });
    }

    fn end(&mut self, ends: &mut Vec<End>, end: End) {
        let counter = match &end {
            End::Left { by, .. } => self.totals.left.entry(*by).or_default(),
            End::Stack => &mut self.totals.stack,
            End::Dropped { vid, reason } => self.totals.dropped.entry((*vid, *reason)).or_default(),
        };
        *counter += 1;
        ends.push(end);
    }

    /// What the map of drops says that it did not say before: nothing, or the one drop of a run.
    fn dropped(&mut self) -> Result<Option<(u32, Reason)>, UserError> {
        let map = self.machine.map("net_drops");
        let map = map.ok_or_else(|| missing("net_drops"))?;
        let mut found = None;
        for key in map.keys() {
            let value = map.lookup(&key).unwrap_or_default();
            let (Ok(drop), Ok(count)) = (
                NetDrop::read_from_bytes(&key),
                <[u8; 8]>::try_from(value.as_slice()),
            ) else {
                continue;
            };
            let count = u64::from_ne_bytes(count);
            let known = self.known.entry((drop.vid, drop.reason)).or_default();
            if *known != count {
                *known = count;
                let reason = Reason::ALL.get(drop.reason as usize).copied();
                found = Some((drop.vid, reason.unwrap_or(Reason::Internal)));
            }
        }
        Ok(found)
    }

    /// Log lines of functions since the last call.
    pub fn logs(&mut self) -> Vec<NetworkLog> {
        let mut logs = Vec::new();
        for (ring, function) in &self.logging {
            let records = self.machine.drain_ringbuf(ring);
            let lines = records.iter().filter_map(|r| crate::log_line(r));
            logs.extend(lines.map(|line| NetworkLog {
                function: function.clone(),
                line,
            }));
        }
        logs
    }

    /// Whether packets can come in by the underlay.
    #[must_use]
    pub fn has_underlay(&self) -> bool {
        self.has_underlay
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// A map is missing.
    pub fn totals(&mut self) -> Result<Totals, UserError> {
        let map = self.machine.map("net_counts");
        let map = map.ok_or_else(|| missing("net_counts"))?;
        for (vid, sum) in (0u32..).zip(&mut self.totals.interfaces) {
            *sum = NetCount::default();
            let value = map.lookup(&vid.to_ne_bytes()).unwrap_or_default();
            for one in value.chunks_exact(size_of::<NetCount>()) {
                let one = NetCount::read_from_bytes(one).unwrap_or_default();
                sum.packets += one.packets;
                sum.bytes += one.bytes;
                sum.dropped += one.dropped;
            }
        }
        Ok(self.totals.clone())
    }
}

/// The slot that each function was planned with, and the one it has: the first of its two.
fn private_slots(plan: &EdgeNetworks) -> Vec<(u32, u32)> {
    let planned = plan.functions.iter().map(|function| function.slot);
    planned
        .map(|slot| (slot, private::slots(slot)[0]))
        .collect()
}

/// Name by which programs share a map; nothing for their own.
fn shared_as(map: &str) -> Option<String> {
    let is_shared = map == REPLAY || MAPS.iter().any(|(known, _)| *known == map);
    is_shared.then(|| map.to_owned())
}

/// A program of all networks; nothing if this weir was built without it.
fn shared_object(
    name: &str,
    capacity: &Capacity,
    constants: &[weir_functions::plan::Constant],
) -> Result<Option<Object>, UserError> {
    let Some(elf) = weir_bpf::object(&format!("net_{name}")) else {
        return Ok(None);
    };
    let mut object = Object::parse(elf)?;
    for (symbol, value) in constants {
        offer(&mut object, symbol, value)?;
    }
    specialise(&mut object, capacity)?;
    Ok(Some(object))
}

/// A function with a program of its own.
fn private_object(
    recipe: &Recipe<'_>,
    around: crate::edge::load::Surroundings,
    seed: u64,
    capacity: &Capacity,
) -> Result<Object, UserError> {
    let elf = recipe
        .elf()
        .map_err(|_| missing_object(&recipe.plan.object.to_string()))?;
    let mut object = Object::parse(elf)?;
    let own = recipe.plan.constants.len();
    for (at, (symbol, value)) in recipe.constants(around).iter().enumerate() {
        match at < own {
            true => object.set_rodata(symbol, value)?,
            // Not every object asks what its links are like.
            false => offer(&mut object, symbol, value)?,
        }
    }
    if let Some(symbol) = recipe.secret {
        object.set_rodata(symbol, &seed.to_ne_bytes())?;
    }
    for map in &recipe.plan.maps {
        object.set_map_entries(&map.name, map.max_entries)?;
    }
    specialise(&mut object, capacity)?;
    Ok(object)
}

/// Time comes from the capture, and shared maps have their size.
fn specialise(object: &mut Object, capacity: &Capacity) -> Result<(), UserError> {
    offer(object, "weir_replay", &1u32.to_ne_bytes())?;
    for (name, entries) in MAPS {
        let Some(entries) = entries(capacity) else {
            continue;
        };
        match object.set_map_entries(name, entries) {
            Ok(()) | Err(LoadError::NoMap { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn offer(object: &mut Object, symbol: &str, value: &[u8]) -> Result<(), UserError> {
    match object.set_rodata(symbol, value) {
        Ok(()) | Err(LoadError::NoConstant(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn missing_object(name: &str) -> EngineError {
    EngineError::Object {
        what: format!("the program {name} of networks"),
    }
}

/// Writes the odd half of an array; the machine's maps are zero until then. One that no program has is left out.
fn write_half(
    machine: &mut Machine,
    map: &'static str,
    size: usize,
    bytes: &[u8],
) -> Result<(), UserError> {
    let Some(width) = machine
        .map(map)
        .map(|map| map.definition().value_size as usize)
    else {
        return Ok(());
    };
    let stride = width.next_multiple_of(8);
    let first = (size / stride) as u32;
    for (at, element) in (first..).zip(bytes.chunks(stride)) {
        let mut value = element.to_vec();
        value.resize(width, 0);
        update(machine, map, &at.to_ne_bytes(), &value)?;
    }
    Ok(())
}
