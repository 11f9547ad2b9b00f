//! A whole graph over the packets of a capture, in the user engine or in the running kernel.
//!
//! Owns what a plan becomes in a replay (numbers of instances, hops, devices) and what is reported of it; the two engines carry the same out.
//! What only a live edge has (hooks of other kinds, modes of devices, names of maps in bpffs) is left out. Nothing is pinned or attached, and no device is touched. Invariant: both engines give the same verdicts, bytes,
//! ways out, ledgers and log lines; where the kernel's test run cannot be asked, neither is asked.

mod kernel;
mod report;
pub(crate) mod user;

use std::collections::BTreeMap;

use weir_bpf::abi::{self, Hop, Stats, away, panel};
use weir_functions::plan::{ChecksumMode, Constant, MapPlan, ObjectSource, PortConstants};
use weir_graph::{EdgePlan, Hooks, Instance, Mode, PortPlan, Target};
use weir_kernel::object::{TC_TEST_RUN_MAX, TEST_RUN_LINEAR};
use weir_packet::{Reason, Verdict};
use weir_vm::Routes;
use weir_vm::jit::Execution;

use super::form::{Form, Hook};
use super::maps::{PAIR_PLACE, way_out};
use super::ports::Sees;
use crate::{EngineError, EngineKind, LogLine, Packet};

pub use report::{GraphReport, InstanceReport, PortReport, Stage};

/// What is the same for all packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphOptions {
    /// Largest L3 packet a rewrite may produce, in bytes.
    pub mtu: Option<u32>,
    /// How checksums are to be read of packets that come in by ports which do not say it.
    pub checksums: ChecksumMode,
    /// Seed of everything random, secrets included.
    pub seed: u64,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict that ended its way.
    pub verdict: Verdict,
    /// The port it left by, if it was redirected to one: weir's number.
    pub port: Option<u32>,
}

/// A log line and the instance that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphLog {
    /// Place in [`EdgePlan::instances`].
    pub instance: usize,
    /// The line.
    pub line: LogLine,
}

/// Ledgers, summed over all CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Of what the ports received, in their order. A packet that went on to a function counts at [`abi::NEXT`].
    pub ports: Vec<Stats>,
    /// Of what left by the ports, in their order; `None` where no program sees that.
    pub transmits: Vec<Option<Stats>>,
    /// Of the instances in their order.
    pub instances: Vec<Stats>,
    /// Of what takes packets that come back from the pair for recirculation, if the graph has one.
    pub resumed: Option<Stats>,
    /// Packets by the port they were redirected to, by weir's number.
    pub left_by: BTreeMap<u32, u64>,
}

/// Contents of a map: key and value.
pub type Contents = Vec<(Vec<u8>, Vec<u8>)>;

/// Carries a graph out over the packets of a capture, in order.
pub trait GraphEngine {
    /// `user`, `user-jit` or `kernel`.
    fn name(&self) -> &'static str;

    /// Runs one packet that comes in by port [`Packet::port`]. `out` holds the frame as rewritten, unless it is dropped.
    ///
    /// # Errors
    /// [`EngineError`]; the engine is of no more use then.
    fn packet(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<Outcome, EngineError> {
        self.packet_of(packet, Sees::Received, out)
    }

    /// As [`GraphEngine::packet`], of a packet that comes in by the port or, sent by this host, leaves by it: its `in` is unknown then.
    ///
    /// # Errors
    /// As [`GraphEngine::packet`], and for packets that leave by a port none of whose programs sees them.
    fn packet_of(
        &mut self,
        packet: &Packet<'_>,
        sees: Sees,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, EngineError>;

    /// Log lines since the last call, those of a packet by instance.
    ///
    /// # Errors
    /// When an event ring cannot be read.
    fn logs(&mut self) -> Result<Vec<GraphLog>, EngineError>;

    /// Ledgers of ports and instances.
    ///
    /// # Errors
    /// When a map cannot be read.
    fn totals(&mut self) -> Result<Totals, EngineError>;

    /// Contents of a map of an instance, by key; per-CPU values as sums of their 64-bit words. `None` if it has no such map.
    ///
    /// # Errors
    /// When the map cannot be read.
    fn contents(&mut self, instance: usize, map: &str) -> Result<Option<Contents>, EngineError>;

    /// Says what a host would know of interfaces, routes and neighbours; the index of a port's interface is weir's number of the port. The kernel
    /// engine asks the host that it runs on, whatever is said.
    fn set_routes(&mut self, routes: Routes) {
        let _ = routes;
    }
}

/// Opens an engine for a graph.
///
/// # Errors
/// [`EngineError::Graph`] for the reference engine, which knows policies only, and for what the engine refuses to load.
pub fn open(
    kind: EngineKind,
    plan: &EdgePlan,
    options: &GraphOptions,
) -> Result<Box<dyn GraphEngine>, EngineError> {
    let wiring = Wiring::new(plan, options)?;
    if kind == EngineKind::UserJit && plan.has_tc() {
        return Err(EngineError::Graph(
            "native code is of XDP programs only: choose user or kernel for ports on tc".to_owned(),
        ));
    }
    Ok(match kind {
        EngineKind::User => Box::new(user::User::new(wiring, Execution::Interpreter)?),
        EngineKind::UserJit => Box::new(user::User::new(wiring, Execution::Jit)?),
        EngineKind::Kernel => Box::new(kernel::Kernel::new(wiring)?),
        EngineKind::Reference => {
            return Err(EngineError::Graph(
                "the reference engine runs one policy, not a graph: choose user, user-jit or kernel"
                    .to_owned(),
            ));
        }
    })
}

/// First generation of a replayed graph. It has the half of the links that odd ones have.
const GENERATION: u64 = 1;
/// Maps that have one copy for the whole graph, beside those whose names begin with `weir_`: what time it is.
const REPLAY: &str = "replay";
/// Ledger of an instance or a port.
const STATS: &str = "stats";
/// Ring buffer of log lines.
const EVENTS: &str = "events";
const PROGRAMS: &str = "weir_programs";
const TC_PROGRAMS: &str = "weir_tc_programs";
const DEVICES: &str = "weir_devices";
const TC_DEVICES: &str = "weir_tc_devices";
const CHAIN: &str = "weir_chain";
const EDGE: &str = "weir_edge";
/// Most times a packet is recirculated; graphs are planned with far fewer.
const ROUNDS: usize = 1000;

/// One program of the graph, whether of a port or of an instance.
#[derive(Debug)]
struct Program {
    /// Name of the part: the instance's, or the port's behind a colon.
    name: String,
    hook: Hook,
    /// Of an instance with a program on each hook its name: then both have all maps in common.
    common: Option<String>,
    object: ObjectSource,
    program: String,
    constants: Vec<Constant>,
    /// Those that are set where the object has them.
    offered: Vec<Constant>,
    maps: Vec<MapPlan>,
    shared: BTreeMap<String, String>,
    logs: bool,
}

impl Program {
    /// The name a map is shared by, if it is.
    fn shared_as(&self, map: &str) -> Option<String> {
        if map.starts_with("weir_") || map == REPLAY {
            return Some(map.to_owned());
        }
        let common = self.common.as_ref().filter(|_| !map.starts_with('.'));
        let common = common.map(|name| format!("{name}/{map}"));
        self.shared.get(map).cloned().or(common)
    }

    fn elf(&self) -> Result<&[u8], EngineError> {
        self.object.bytes().ok_or_else(|| EngineError::Object {
            what: self.object.to_string(),
        })
    }
}

/// A graph as programs and map contents.
#[derive(Debug)]
struct Wiring {
    /// Of the ports, in their order.
    entries: Vec<Program>,
    /// Of what leaves by them, in their order, where anything sees that.
    transmits: Vec<Option<Program>>,
    /// weir's numbers of the ports.
    ports: Vec<u32>,
    /// Of the instances, in their order.
    instances: Vec<Program>,
    /// The same once more for tc, of those that run on both hooks.
    copies: Vec<Option<Program>>,
    /// Of the far end of the pair for recirculation.
    resume: Option<Program>,
    /// Elements of arrays of the edge: map, index, value.
    elements: Vec<(&'static str, u32, Vec<u8>)>,
    /// Longest frame in bytes, by port.
    longest: Vec<usize>,
    seed: u64,
}

impl Wiring {
    fn new(plan: &EdgePlan, options: &GraphOptions) -> Result<Wiring, EngineError> {
        let limit = |what: &str, has: usize, most: usize| {
            if has < most {
                return Ok(());
            }
            Err(EngineError::Graph(format!(
                "{has} {what}, an edge has fewer than {most}"
            )))
        };
        limit(
            "functions",
            plan.instances.len(),
            panel::VIDS - panel::DEVICES,
        )?;
        let highest = plan.ports.iter().map(|p| p.number).max().unwrap_or(0);
        limit(
            "is the highest port number",
            highest as usize,
            PAIR_PLACE as usize,
        )?;
        let of_port = |port: &PortPlan| port.checksums.unwrap_or(options.checksums);
        let offloaded = |port: &PortPlan| of_port(port) == ChecksumMode::Offloaded;
        // An instance meets packets of all ports; which of them may be unfinished it asks for each packet.
        let checksums = match plan.ports.iter().any(offloaded) {
            true => ChecksumMode::Offloaded,
            false => ChecksumMode::Complete,
        };
        let offered = |port, checksums| {
            PortConstants {
                port,
                checksums,
                mtu: options.mtu,
                replay: true,
            }
            .constants()
        };
        let own = |name, hook, object, program: &str, constants, offered| Program {
            name,
            hook,
            common: None,
            object: ObjectSource::Embedded(object),
            program: program.to_owned(),
            constants,
            offered,
            maps: Vec::new(),
            shared: BTreeMap::new(),
            logs: false,
        };
        let entry = |port: &PortPlan| {
            let name = format!("port:{}", port.name);
            let offered = offered(port.number, of_port(port));
            match hook_of(port) {
                Hook::Xdp => own(name, Hook::Xdp, "entry_graph", "entry", Vec::new(), offered),
                Hook::Tc => own(
                    name,
                    Hook::Tc,
                    "entry_graph_tc",
                    "entry",
                    Vec::new(),
                    offered,
                ),
            }
        };
        let transmit = |port: &PortPlan| {
            let name = format!("transmit:{}", port.name);
            let away = away::TRANSMIT.to_ne_bytes().to_vec();
            let constants = vec![("weir_away".into(), away)];
            let offered = offered(port.number, of_port(port));
            own(
                name,
                Hook::Tc,
                "entry_graph_tc",
                "entry",
                constants,
                offered,
            )
        };
        let resume = plan.recirculates().then(|| {
            let name = "recirculated:".to_owned();
            let offered = offered(0, checksums);
            own(
                name,
                Hook::Xdp,
                "resume_graph",
                "resume",
                Vec::new(),
                offered,
            )
        });
        let program = |one: &Instance, hook: Hook, is_on_both: bool| {
            let (instance, asks) = (&one.planned.instance, one.planned.asks);
            let mut constants = instance.constants.clone();
            if let Some(secret) = asks.secret {
                constants.push((secret.into(), options.seed.to_ne_bytes().to_vec()));
            }
            let is_copy = is_on_both && hook == Hook::Tc;
            Ok::<_, EngineError>(Program {
                name: match is_copy {
                    true => format!("{} on tc", one.name),
                    false => one.name.clone(),
                },
                hook,
                common: is_on_both.then(|| one.name.clone()),
                object: form(&instance.object, hook)?,
                program: instance.program.to_string(),
                logs: crate::logs(&instance.constants),
                constants,
                offered: offered(0, checksums),
                maps: instance.maps.clone(),
                shared: one.shares.clone(),
            })
        };
        let on = plan.instance_hooks();
        let first = |(one, hooks): (&Instance, &Hooks)| match hooks.xdp {
            true => program(one, Hook::Xdp, hooks.tc),
            false => program(one, Hook::Tc, false),
        };
        let copy = |(one, hooks): (&Instance, &Hooks)| {
            let both = hooks.xdp && hooks.tc;
            both.then(|| program(one, Hook::Tc, true)).transpose()
        };
        // Where such a function runs live, devices deliver no other frames.
        let linear = plan
            .instances
            .iter()
            .any(|one| one.planned.asks.linear_frames);
        Ok(Wiring {
            entries: plan.ports.iter().map(entry).collect(),
            transmits: (plan.ports.iter().zip(&plan.transmits))
                .map(|(port, target)| target.map(|_| transmit(port)))
                .collect(),
            ports: plan.ports.iter().map(|p| p.number).collect(),
            instances: (plan.instances.iter().zip(&on).map(first))
                .collect::<Result<_, EngineError>>()?,
            copies: (plan.instances.iter().zip(&on).map(copy))
                .collect::<Result<_, EngineError>>()?,
            resume,
            elements: elements(plan),
            longest: (plan.ports.iter())
                .map(|port| match (linear, hook_of(port)) {
                    (_, Hook::Tc) => TC_TEST_RUN_MAX,
                    (true, Hook::Xdp) => TEST_RUN_LINEAR,
                    (false, Hook::Xdp) => abi::FRAME_MAX,
                })
                .collect(),
            seed: options.seed,
        })
    }

    /// All programs: of ports, of instances, of the pair.
    fn programs(&self) -> impl Iterator<Item = &Program> {
        let ports = self.entries.iter().chain(self.transmits.iter().flatten());
        let all = ports.chain(&self.instances);
        all.chain(self.copies.iter().flatten()).chain(&self.resume)
    }

    /// The program that packets of a port, by its place, begin at.
    fn entry(&self, port: usize, sees: Sees) -> Result<&Program, EngineError> {
        let program = match sees {
            Sees::Received => self.entries.get(port),
            Sees::Transmitted => self.transmits.get(port).and_then(Option::as_ref),
        };
        program.ok_or_else(|| {
            EngineError::Graph("the graph does not see packets that leave by that port".to_owned())
        })
    }

    /// Place of the port with weir's number `number`.
    fn port(&self, number: u32) -> Result<usize, EngineError> {
        let place = self.ports.iter().position(|p| *p == number);
        place.ok_or_else(|| EngineError::Graph(format!("the graph has no port {number}")))
    }
}

/// The hook of a port.
fn hook_of(port: &PortPlan) -> Hook {
    match port.mode {
        Mode::Tc => Hook::Tc,
        Mode::Native | Mode::Generic | Mode::Offload => Hook::Xdp,
    }
}

/// How a packet's way ended that a program on tc returned `action` for. `vid`: what the chain names last: a device that the packet was handed
/// to, by its place; there is none at place 0, so that it is where the packet goes back if that is what happened.
fn tc_end(action: u32, vid: Option<u32>) -> (Verdict, Option<u32>) {
    /// `TC_ACT_REDIRECT`.
    const REDIRECT: u32 = 7;
    if action != REDIRECT {
        return (crate::tc_verdict(action), None);
    }
    let place = vid.filter(|vid| (1..panel::DEVICES as u32).contains(vid));
    match place {
        Some(_) => (Verdict::Redirect, place),
        None => (Verdict::Tx, None),
    }
}

/// The object built for a graph.
fn form(source: &ObjectSource, hook: Hook) -> Result<ObjectSource, EngineError> {
    let ObjectSource::Embedded(name) = source else {
        return Ok(source.clone());
    };
    let graph = Form::Graph.of(name, hook);
    let found = weir_bpf::OBJECTS.iter().find(|object| object.name == graph);
    found
        .map(|object| ObjectSource::Embedded(object.name))
        .ok_or(EngineError::Object { what: graph })
}

/// Number of an instance. Behind those of places in the map of devices: what a packet's way ended with says then whether it was a device.
fn vid(instance: usize) -> u32 {
    (panel::DEVICES + instance) as u32
}

/// Slot of an instance's program; 0 stays empty.
fn slot(instance: usize) -> u32 {
    1 + instance as u32
}

fn hop(target: Target) -> Hop {
    match target {
        Target::Instance(place) => Hop {
            vid: vid(place),
            slot: slot(place),
        },
        out => way_out(out),
    }
}

fn elements(plan: &EdgePlan) -> Vec<(&'static str, u32, Vec<u8>)> {
    use zerocopy::IntoBytes;
    let word = GENERATION.to_ne_bytes().to_vec();
    let mut elements = vec![(EDGE, 0, word)];
    for (port, entry) in plan.ports.iter().zip(&plan.entries) {
        let at = port.number * 2 + (GENERATION & 1) as u32;
        elements.push(("weir_entries", at, hop(*entry).as_bytes().to_vec()));
    }
    for (port, transmit) in plan.ports.iter().zip(&plan.transmits) {
        if let Some(transmit) = transmit {
            let at = port.number * 2 + (GENERATION & 1) as u32;
            let hop = hop(*transmit).as_bytes().to_vec();
            elements.push(("weir_transmits", at, hop));
        }
    }
    // The index of a device is its port's number here.
    for port in plan.ports.iter().filter(|_| plan.has_tc()) {
        let number = port.number.to_ne_bytes().to_vec();
        elements.push((TC_DEVICES, port.number, number));
    }
    for (place, targets) in plan.targets.iter().enumerate() {
        for (out, target) in targets.iter().enumerate() {
            let half = (GENERATION & 1) as usize * panel::VIDS;
            let at = (half + vid(place) as usize) * panel::OUTS + out;
            elements.push(("weir_links", at as u32, hop(*target).as_bytes().to_vec()));
        }
    }
    elements
}

/// A packet that is sent round for ever: the graph was not planned.
fn endless(packet: &Packet<'_>) -> EngineError {
    EngineError::Graph(format!(
        "packet {} was recirculated more than {ROUNDS} times; give the loop of the graph a guard",
        packet.number + 1
    ))
}

/// Why a frame is not given to any engine: no device of the graph delivers it or, of ports on tc, the kernel's test run takes no socket buffer
/// of it.
fn refused(frame: &[u8], hook: Hook, longest: usize) -> Option<Reason> {
    let least = match (hook, frame.get(12..14)) {
        (Hook::Tc, Some([0x08, 0x00])) => 34,
        (Hook::Tc, Some([0x86, 0xdd])) => 54,
        _ => 14,
    };
    match frame.len() {
        len if len < least => Some(Reason::FrameShort),
        len if len > longest => Some(Reason::FrameLong),
        _ => None,
    }
}

/// What the engines count themselves: frames that were not given to the graph, by port, and where redirected packets went.
#[derive(Debug)]
struct Own {
    /// Hook and longest frame that is given to the graph, by port.
    ports: Vec<(Hook, usize)>,
    refused: Vec<Stats>,
    /// Of those that leave by the port.
    refused_transmit: Vec<Stats>,
    left_by: BTreeMap<u32, u64>,
}

impl Own {
    fn new(wiring: &Wiring) -> Own {
        let hooks = wiring.entries.iter().map(|entry| entry.hook);
        let ports: Vec<(Hook, usize)> = hooks.zip(wiring.longest.iter().copied()).collect();
        Own {
            refused: vec![crate::no_stats(); ports.len()],
            refused_transmit: vec![crate::no_stats(); ports.len()],
            ports,
            left_by: BTreeMap::new(),
        }
    }

    /// Counts a frame that is refused as a drop of its port.
    fn refuse(&mut self, port: usize, sees: Sees, frame: &[u8]) -> Option<Outcome> {
        let (hook, longest) = self.ports.get(port)?;
        let reason = refused(frame, *hook, *longest)?;
        let ledgers = match sees {
            Sees::Received => &mut self.refused,
            Sees::Transmitted => &mut self.refused_transmit,
        };
        if let Some(stats) = ledgers.get_mut(port) {
            stats.received += 1;
            stats.bytes += frame.len() as u64;
            stats.verdict[1] += 1;
            stats.reason[reason as usize] += 1;
        }
        Some(Outcome {
            verdict: Verdict::Drop,
            port: None,
        })
    }

    fn left(&mut self, verdict: Verdict, port: Option<u32>) -> Outcome {
        if let Some(port) = port {
            *self.left_by.entry(port).or_default() += 1;
        }
        Outcome { verdict, port }
    }

    fn totals(
        &self,
        mut ports: Vec<Stats>,
        mut transmits: Vec<Option<Stats>>,
        instances: Vec<Stats>,
        resumed: Option<Stats>,
    ) -> Totals {
        for (port, refused) in ports.iter_mut().zip(&self.refused) {
            crate::add_stats(port, refused);
        }
        for (transmit, refused) in transmits.iter_mut().zip(&self.refused_transmit) {
            if let Some(transmit) = transmit {
                crate::add_stats(transmit, refused);
            }
        }
        Totals {
            ports,
            transmits,
            instances,
            resumed,
            left_by: self.left_by.clone(),
        }
    }
}

/// Per-CPU values as one: sums of their 64-bit words.
fn summed<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut sum: Vec<u64> = Vec::new();
    for value in values {
        let words = value.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            u64::from_ne_bytes(word)
        });
        for (at, word) in words.enumerate() {
            match sum.get_mut(at) {
                Some(sum) => *sum = sum.wrapping_add(word),
                None => sum.push(word),
            }
        }
    }
    sum.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
