//! Engines: what carries a plan out over the packets of a capture. One trait, three implementations.
//!
//! `user` runs the compiled data plane in weir-vm, `kernel` the same object in the running kernel, `reference` the
//! semantics in plain Rust. All take time and randomness as inputs, so their verdicts, bytes and counters are equal; the tests hold them to
//! that. Frames the kernel's test run does not take are judged here, by the same rule for every engine.
//! [`live`] is the same policy on the interfaces of this host, [`control`] talks to it from another process.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod control;
pub mod edge;
mod kernel;
pub mod live;
pub mod monitor;
pub mod network;
pub mod ports;
mod reference;
mod tai;
mod translated;
mod user;
pub mod watch;

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use weir_bpf::abi::{self, Counter, Event, Stats};
use weir_functions::middlebox::{self, PlanError};
use weir_functions::plan::{
    ChecksumMode, Constant, InstancePlan, ObjectSource, Port, PortConstants,
};
use weir_kernel::KernelError;
use weir_packet::Verdict;
use weir_policy::model::Policy;
pub use weir_policy::reference::Meta;
use weir_vm::jit::{CompileError, Execution};
use weir_vm::{Fault, LoadError, MapError};
use zerocopy::FromBytes;

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// The compiled data plane in weir's interpreter.
    User,
    /// The compiled data plane, verified and run as native code by weir (Linux on x86-64).
    UserJit,
    /// The compiled data plane in the running kernel.
    Kernel,
    /// The semantics in plain Rust.
    Reference,
}

/// Which build of the data plane a replay runs: what the hooks do alike and what not is in docs/semantics.md section 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayHook {
    /// In front of the stack.
    Xdp,
    /// Traffic control. The kernel's test run takes frames of 14 to 3,400 bytes only, IPv4 ones from 34 bytes and IPv6 ones from 54 on.
    Tc,
}

/// What is the same for all packets of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// How checksums in the capture are to be read.
    pub checksums: ChecksumMode,
    /// Largest L3 packet a rewrite may produce, in bytes.
    pub mtu: Option<u32>,
    /// Seed of random drops.
    pub seed: u64,
    /// Ports that packets come in by.
    pub ports: Vec<Port>,
}

/// One packet and its circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The frame as captured.
    pub frame: &'a [u8],
    /// Capture time in ns.
    pub now_ns: u64,
    /// Number of the frame in the capture, from 0.
    pub number: u64,
    /// Number of a port in [`ReplayOptions::ports`]; 0 for none.
    pub port: u32,
    /// Receive queue.
    pub queue: u16,
}

/// One line of a `log` target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Time of the packet in ns.
    pub now_ns: u64,
    /// Rule id.
    pub rule: u32,
    /// Text of the target.
    pub prefix: String,
    /// What became of the packet.
    pub verdict: Verdict,
    /// Port it came in by.
    pub port: u32,
    /// Bytes of the frame.
    pub len: u32,
}

/// Why an engine cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The policy cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The object cannot be loaded into the user engine.
    #[error("user engine: {0}")]
    Load(#[from] LoadError),
    /// The program cannot run as native code.
    #[error("user engine: {0}")]
    Compile(#[from] CompileError),
    /// A map of the user engine refused a value.
    #[error("user engine: map {map}: {error}")]
    Map {
        /// Name of the map.
        map: String,
        /// Why.
        error: MapError,
    },
    /// The program went wrong in the user engine: a defect of weir.
    #[error("user engine, packet {number}: {fault}; please report this with the capture")]
    Fault {
        /// Number of the packet from 1.
        number: u64,
        /// What happened.
        fault: Box<Fault>,
    },
    /// A graph that cannot be carried out.
    #[error("{0}")]
    Graph(String),
    /// The object and this program do not fit: a defect of the build.
    #[error("the embedded object lacks {what}; rebuild weir")]
    Object {
        /// What is missing.
        what: String,
    },
}

impl EngineError {
    /// Whether the configuration is to blame, not the machine.
    pub fn is_configuration(&self) -> bool {
        matches!(self, EngineError::Plan(_) | EngineError::Graph(_))
    }
}

/// Carries a policy out over the packets of a capture, in order.
pub trait Engine {
    /// `user`, `user-jit`, `kernel` or `reference`.
    fn name(&self) -> &'static str;

    /// Runs one packet without mark and priority. Unless it is dropped, `out` holds the frame as rewritten.
    ///
    /// # Errors
    /// As of [`Engine::marked`].
    fn packet(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<Verdict, EngineError> {
        let (verdict, _) = self.marked(packet, Meta::default(), out)?;
        Ok(verdict)
    }

    /// Runs one packet with a mark and a priority. Returns what rules made of these.
    ///
    /// # Errors
    /// [`EngineError`]; the engine is of no more use then.
    fn marked(
        &mut self,
        packet: &Packet<'_>,
        meta: Meta,
        out: &mut Vec<u8>,
    ) -> Result<(Verdict, Meta), EngineError>;

    /// From the next packet on: nanoseconds since 1970 minus those of the clock of [`Packet::now_ns`]. 0 until then: captures count from 1970.
    fn set_wall_offset(&mut self, ns: u64);

    /// Log lines since the last call.
    ///
    /// # Errors
    /// When the event ring cannot be read.
    fn logs(&mut self) -> Result<Vec<LogLine>, EngineError>;

    /// Sums over all CPUs: the ledger, and a counter for each rule in order.
    ///
    /// # Errors
    /// When a map cannot be read.
    fn totals(&mut self) -> Result<(Stats, Vec<Counter>), EngineError>;
}

/// Opens an engine for a policy.
///
/// # Errors
/// Planning is the same for all engines, so a policy one of them refuses all refuse.
pub fn open(
    kind: EngineKind,
    policy: &Arc<Policy>,
    options: &ReplayOptions,
) -> Result<Box<dyn Engine>, EngineError> {
    open_for(ReplayHook::Xdp, kind, policy, options)
}

/// [`open`] for either build of the data plane. tc has one checksum mode, so that [`ReplayOptions::checksums`] does not count there.
///
/// # Errors
/// As [`open`].
pub fn open_for(
    hook: ReplayHook,
    kind: EngineKind,
    policy: &Arc<Policy>,
    options: &ReplayOptions,
) -> Result<Box<dyn Engine>, EngineError> {
    let (mut plan, _) = middlebox::plan(policy, &options.ports)?;
    if hook == ReplayHook::Tc {
        plan.object = ObjectSource::Embedded(live::TC_OBJECT);
    }
    let rules = policy.rules.len();
    Ok(match kind {
        EngineKind::User => {
            let execution = Execution::Interpreter;
            Box::new(user::User::new(&plan, options, rules, execution)?)
        }
        EngineKind::UserJit => Box::new(user::User::new(&plan, options, rules, Execution::Jit)?),
        EngineKind::Kernel => Box::new(kernel::Kernel::new(&plan, options, rules)?),
        EngineKind::Reference => Box::new(reference::Oracle::new(hook, policy, options)),
    })
}

/// Constants of a plan and of the replay port.
fn constants(plan: &InstancePlan, options: &ReplayOptions) -> Vec<Constant> {
    let port = PortConstants {
        port: 0,
        checksums: options.checksums,
        mtu: options.mtu,
        replay: true,
    };
    plan.constants
        .iter()
        .cloned()
        .chain(port.constants())
        .collect()
}

fn object(plan: &InstancePlan) -> Result<&[u8], EngineError> {
    plan.object.bytes().ok_or_else(|| EngineError::Object {
        what: plan.object.to_string(),
    })
}

fn no_stats() -> Stats {
    Stats {
        received: 0,
        bytes: 0,
        verdict: [0; 8],
        reason: [0; weir_bpf::abi::REASONS],
    }
}

fn add_stats(sum: &mut Stats, one: &Stats) {
    sum.received += one.received;
    sum.bytes += one.bytes;
    for (a, b) in sum.verdict.iter_mut().zip(one.verdict) {
        *a += b;
    }
    for (a, b) in sum.reason.iter_mut().zip(one.reason) {
        *a += b;
    }
}

/// Sums per-CPU values of a map into one.
fn sum_stats<'a>(values: impl Iterator<Item = &'a [u8]>) -> Stats {
    let mut sum = no_stats();
    for one in values.filter_map(|bytes| Stats::read_from_bytes(bytes).ok()) {
        add_stats(&mut sum, &one);
    }
    sum
}

fn sum_counter<'a>(values: impl Iterator<Item = &'a [u8]>) -> Counter {
    let mut sum = Counter::default();
    for one in values.filter_map(|bytes| Counter::read_from_bytes(bytes).ok()) {
        sum.packets += one.packets;
        sum.bytes += one.bytes;
    }
    sum
}

/// `enum xdp_action` as a verdict.
fn verdict(action: u32) -> Verdict {
    match action {
        1 => Verdict::Drop,
        2 => Verdict::Pass,
        3 => Verdict::Tx,
        4 => Verdict::Redirect,
        _ => Verdict::Aborted,
    }
}

/// `TC_ACT_` numbers that the tc build returns as a verdict: `TC_ACT_UNSPEC` passes, `TC_ACT_SHOT` drops, `TC_ACT_REDIRECT` sends back.
fn tc_verdict(action: u32) -> Verdict {
    match action {
        u32::MAX => Verdict::Pass,
        2 => Verdict::Drop,
        7 => Verdict::Tx,
        _ => Verdict::Aborted,
    }
}

/// Whether an instance with these constants writes log lines.
fn logs(constants: &[Constant]) -> bool {
    has_feature(constants, abi::feature::LOG)
}

/// Whether an instance with these constants was planned with a feature.
fn has_feature(constants: &[Constant], feature: u32) -> bool {
    constants.iter().any(|(name, value)| {
        let bits = <[u8; 4]>::try_from(value.as_slice()).map_or(0, u32::from_ne_bytes);
        name == "weir_features" && bits & feature != 0
    })
}

fn log_line(bytes: &[u8]) -> Option<LogLine> {
    let event = Event::read_from_bytes(bytes).ok()?;
    let prefix = event.prefix.split(|&b| b == 0).next().unwrap_or_default();
    Some(LogLine {
        now_ns: event.now_ns,
        rule: event.rule,
        prefix: String::from_utf8_lossy(prefix).into_owned(),
        verdict: verdict(event.verdict),
        port: event.port,
        len: event.len,
    })
}

/// Nanoseconds since 1970 minus those of the monotonic clock.
fn wall_offset_ns() -> u64 {
    let ns = |id| {
        let now = clock_gettime(id);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    ns(ClockId::Realtime).wrapping_sub(ns(ClockId::Monotonic))
}

/// What the data plane reads before each packet.
fn replay_input(
    packet: &Packet<'_>,
    meta: Meta,
    seed: u64,
    wall_offset: u64,
) -> weir_bpf::abi::Replay {
    weir_bpf::abi::Replay {
        now_ns: packet.now_ns,
        random: seed.wrapping_add(packet.number << 32),
        port: packet.port,
        queue: packet.queue.into(),
        mark: meta.mark,
        priority: meta.priority,
        wall_ns: packet.now_ns.wrapping_add(wall_offset),
    }
}

/// What the data plane left of mark and priority.
fn replay_output(replay: &[u8], given: Meta) -> Meta {
    weir_bpf::abi::Replay::read_from_bytes(replay).map_or(given, |replay| Meta {
        mark: replay.mark,
        priority: replay.priority,
    })
}
