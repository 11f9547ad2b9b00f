//! A packet that breaks a rejected program: searched in the checked interpreter, shortened, and proven on a fresh machine.
//!
//! Candidates are, in this order: zero bytes of every small length, packets made for the rejected path (`plan`), the caller's packets
//! whole and cut, frames too short for an Ethernet header, and mutations. Each runs with the maps empty and with the maps filled. Invariant: what is reported faults in a
//! machine loaded anew, with that packet as its first.

mod bits;
mod plan;

use std::time::{Duration, Instant};

use crate::frame::Frame;
use crate::interp::{Env, Fault, FaultKind};
use crate::machine::Machine;
use crate::maps::{BPF_ANY, Map, MapKind};
use crate::object::{LoadError, Object};
use crate::skb::{Skb, SkbField};
use crate::verify::{Rejection, Rule};
use plan::Plan;

/// How much may be tried.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs at most.
    pub runs: u64,
    /// Instructions of one run.
    pub instructions: u64,
    /// Instructions of all runs together.
    pub total_instructions: u64,
    /// Time at most; shortening what was found may take as long again.
    pub time: Duration,
}

impl Default for Limits {
    /// 50,000 runs of a million instructions, 100 million together, and ten seconds.
    fn default() -> Limits {
        Limits {
            runs: 50_000,
            instructions: 1_000_000,
            total_instructions: 100_000_000,
            time: Duration::from_secs(10),
        }
    }
}

/// What is in the maps before the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapsState {
    /// What the object declares.
    Empty,
    /// Hashes hold a few small keys, and all values are ones.
    Filled,
}

/// A packet that makes the program fault.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The frame.
    pub frame: Vec<u8>,
    /// Receive queue it must come in by.
    pub rx_queue: u32,
    /// Interface it must come in by.
    pub ingress_ifindex: u32,
    /// What the maps must hold.
    pub maps: MapsState,
    /// What happens.
    pub fault: Fault,
    /// Whether that is the operation the verifier rejected.
    pub at_rejection: bool,
}

/// How a search ended.
#[derive(Clone, Debug)]
pub struct Search {
    /// The shortest packet found.
    pub found: Option<Counterexample>,
    /// Runs, those for shortening included.
    pub runs: u64,
    /// Whether a limit ended the search before all candidates were tried.
    pub cut_off: bool,
}

/// Frames of zeros are tried up to this length.
const ZEROS: usize = 96;
/// Bytes every frame has that a driver hands over: an Ethernet header. Shorter ones are tried when nothing else breaks the program.
pub const SHORTEST: usize = 14;
/// Mutations of each packet.
const MUTATIONS: usize = 64;

/// Searches a packet that makes the rejected program fault. `packets` are the caller's own, tried as they are and cut.
///
/// # Errors
/// [`LoadError`] when the object cannot be loaded for the interpreter.
pub fn search(
    object: &Object,
    rejection: &Rejection,
    packets: &[Vec<u8>],
    limits: Limits,
) -> Result<Search, LoadError> {
    let mut hunter = Hunter::new(object, rejection, limits)?;
    let mut best = None;
    for candidate in candidates(&hunter.machines.empty, rejection, packets) {
        if hunter.exhausted() {
            hunter.cut_off = true;
            break;
        }
        let Some(found) = hunter.try_both(&candidate)? else {
            continue;
        };
        let better = found.at_rejection || best.is_none();
        if better {
            let done = found.at_rejection;
            best = Some(found);
            if done {
                break;
            }
        }
    }
    if let Some(found) = best.take() {
        best = Some(hunter.shorten(found)?);
    }
    Ok(Search {
        found: best,
        runs: hunter.runs,
        cut_off: hunter.cut_off,
    })
}

/// A frame and where it comes from.
#[derive(Clone, Debug)]
struct Candidate {
    frame: Vec<u8>,
    rx_queue: u32,
    ingress_ifindex: u32,
}

/// One machine for each state of the maps; they keep what earlier candidates left in them.
struct Machines {
    empty: Machine,
    filled: Machine,
}

struct Hunter<'o> {
    object: &'o Object,
    rejection: &'o Rejection,
    limits: Limits,
    machines: Machines,
    started: Instant,
    runs: u64,
    instructions: u64,
    cut_off: bool,
}

impl<'o> Hunter<'o> {
    fn new(
        object: &'o Object,
        rejection: &'o Rejection,
        limits: Limits,
    ) -> Result<Hunter<'o>, LoadError> {
        let load = |maps| machine(object, &rejection.program, maps);
        Ok(Hunter {
            object,
            rejection,
            limits,
            machines: Machines {
                empty: load(MapsState::Empty)?,
                filled: load(MapsState::Filled)?,
            },
            started: Instant::now(),
            runs: 0,
            instructions: 0,
            cut_off: false,
        })
    }

    fn exhausted(&self) -> bool {
        self.runs >= self.limits.runs
            || self.instructions >= self.limits.total_instructions
            || self.started.elapsed() > self.limits.time
    }

    /// Runs a candidate in both states of the maps; a fault is proven on a fresh machine.
    fn try_both(&mut self, candidate: &Candidate) -> Result<Option<Counterexample>, LoadError> {
        for maps in [MapsState::Empty, MapsState::Filled] {
            let machine = match maps {
                MapsState::Empty => &mut self.machines.empty,
                MapsState::Filled => &mut self.machines.filled,
            };
            self.runs += 1;
            let before = machine.instructions_run();
            let fault = run(machine, candidate, self.limits.instructions);
            self.instructions += machine.instructions_run() - before;
            if fault.is_some_and(|f| counts(&f, self.rejection))
                && let Some(found) = self.prove(candidate, maps)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Runs a candidate on a machine of its own.
    fn prove(
        &mut self,
        candidate: &Candidate,
        maps: MapsState,
    ) -> Result<Option<Counterexample>, LoadError> {
        let mut fresh = machine(self.object, &self.rejection.program, maps)?;
        self.runs += 1;
        let fault = run(&mut fresh, candidate, self.limits.instructions);
        self.instructions += fresh.instructions_run();
        let fault = fault.filter(|f| counts(f, self.rejection));
        Ok(fault.map(|fault| Counterexample {
            frame: candidate.frame.clone(),
            rx_queue: candidate.rx_queue,
            ingress_ifindex: candidate.ingress_ifindex,
            maps,
            at_rejection: is_rejected_one(&fault, self.rejection),
            fault,
        }))
    }

    /// Shortens the frame, sets the maps and the interface back, and clears bytes, as long as it breaks the program at the same place.
    fn shorten(&mut self, found: Counterexample) -> Result<Counterexample, LoadError> {
        let mut best = found;
        let mut cut = best.frame.len();
        while cut > 0 {
            let mut shorter = best.clone();
            let least = best.frame.len().min(SHORTEST);
            let keep = shorter.frame.len().saturating_sub(cut).max(least);
            shorter.frame.truncate(keep);
            let shortened = match keep < best.frame.len() {
                true => self.same(&shorter, &best)?,
                false => None,
            };
            match shortened {
                Some(same) => best = same,
                None => cut /= 2,
            }
        }
        let plain = |c: &mut Counterexample, n: usize| match n {
            0 => c.maps = MapsState::Empty,
            1 => c.rx_queue = 0,
            _ => c.ingress_ifindex = 1,
        };
        for n in 0..3 {
            let mut simpler = best.clone();
            plain(&mut simpler, n);
            best = self.same(&simpler, &best)?.unwrap_or(best);
        }
        for at in 0..best.frame.len().min(128) {
            let mut cleared = best.clone();
            match cleared.frame.get_mut(at) {
                Some(byte) if *byte != 0 => *byte = 0,
                _ => continue,
            }
            best = self.same(&cleared, &best)?.unwrap_or(best);
        }
        Ok(best)
    }

    /// The changed counterexample, if it faults where `like` does.
    fn same(
        &mut self,
        changed: &Counterexample,
        like: &Counterexample,
    ) -> Result<Option<Counterexample>, LoadError> {
        let spent = self.instructions > self.limits.total_instructions.saturating_mul(2);
        if spent || self.started.elapsed() > self.limits.time * 2 {
            return Ok(None);
        }
        let candidate = Candidate {
            frame: changed.frame.clone(),
            rx_queue: changed.rx_queue,
            ingress_ifindex: changed.ingress_ifindex,
        };
        let proven = self.prove(&candidate, changed.maps)?;
        Ok(proven.filter(|p| p.fault.op == like.fault.op))
    }
}

/// A machine with its maps in a state.
fn machine(object: &Object, program: &str, maps: MapsState) -> Result<Machine, LoadError> {
    let mut machine = object.clone().load(program)?;
    if maps == MapsState::Filled {
        let names: Vec<String> = machine.map_names().map(str::to_owned).collect();
        for name in names.iter().filter(|n| !n.starts_with('.')) {
            fill(&mut machine, name);
        }
    }
    Ok(machine)
}

/// Puts a few elements into a map; what cannot be put is left out.
fn fill(machine: &mut Machine, name: &str) {
    let Some(map) = machine.map_mut(name) else {
        return;
    };
    let definition = map.definition().clone();
    let holds_data = !definition.kind.holds_maps() && definition.kind != MapKind::ProgArray;
    if !holds_data || definition.key_size == 0 {
        return;
    }
    let block = definition.value_size.next_multiple_of(8) as usize;
    let size = match definition.kind.is_percpu() {
        true => block * map.values_per_element() as usize,
        false => definition.value_size as usize,
    };
    let value = vec![1; size];
    for number in 0..4u8 {
        let mut key = vec![0; definition.key_size as usize];
        if let Some(first) = key.first_mut() {
            *first = number;
        }
        let _ = map.update(&key, &value, BPF_ANY);
    }
}

fn run(machine: &mut Machine, candidate: &Candidate, instructions: u64) -> Option<Fault> {
    let env = Env {
        rx_queue: candidate.rx_queue,
        ingress_ifindex: candidate.ingress_ifindex,
        instruction_budget: instructions,
        ..Env::default()
    };
    let fault = if machine.program_kind().is_xdp() {
        let mut frame = Frame::new(&candidate.frame);
        machine.run_xdp(&mut frame, &env).err()
    } else {
        let mut skb = Skb::new(&candidate.frame);
        skb.set(SkbField::Ifindex, candidate.ingress_ifindex);
        skb.set(SkbField::QueueMapping, candidate.rx_queue);
        machine.run_tc(&mut skb, &env).err()
    };
    // Full ring buffers would hide from later candidates what happens to records.
    let rings = |m: &Map| m.kind() == MapKind::RingBuf;
    let names: Vec<String> = machine
        .maps()
        .iter()
        .filter(|m| rings(m))
        .map(|m| m.name().to_owned())
        .collect();
    for name in names {
        machine.drain_ringbuf(&name);
    }
    fault
}

/// Whether a fault is the program's doing, and not a limit of this engine.
fn counts(fault: &Fault, rejection: &Rejection) -> bool {
    match &fault.kind {
        FaultKind::Budget { .. } => matches!(rejection.rule, Rule::EndlessLoop { .. }),
        FaultKind::UnknownHelper { .. }
        | FaultKind::External { .. }
        | FaultKind::Invalid { .. }
        | FaultKind::Cpu { .. } => false,
        _ => true,
    }
}

/// Whether a fault is what the verifier warned of. What a program leaves open shows when it ends, an endless loop anywhere in it.
fn is_rejected_one(fault: &Fault, rejection: &Rejection) -> bool {
    match (&fault.kind, &rejection.rule) {
        (FaultKind::LeakedRecords(_), Rule::LeakedReference { .. })
        | (FaultKind::LeakedLock, Rule::LeakedLock { .. })
        | (FaultKind::Budget { .. }, Rule::EndlessLoop { .. }) => true,
        _ => fault.op == rejection.place.op,
    }
}

/// What is tried, in order; the same every time.
fn candidates<'c>(
    machine: &Machine,
    rejection: &Rejection,
    packets: &'c [Vec<u8>],
) -> impl Iterator<Item = Candidate> + 'c {
    let plan = plan::along(machine, rejection);
    let planned: Vec<Candidate> = plan.iter().flat_map(proposals).collect();
    let (planned, short): (Vec<_>, Vec<_>) =
        planned.into_iter().partition(|c| c.frame.len() >= SHORTEST);
    let zeros = (SHORTEST..=ZEROS).map(|n| plain(vec![0; n]));
    let short = short
        .into_iter()
        .chain((0..SHORTEST).map(|n| plain(vec![0; n])));
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let bases: Vec<Candidate> = planned.clone();
    let given = packets.iter().map(|p| plain(p.clone()));
    let cut = packets
        .iter()
        .flat_map(|p| (SHORTEST..p.len().min(128)).map(|n| plain(p[..n].to_vec())));
    let mutated = (0..MUTATIONS).flat_map(move |round| {
        let bases = bases.iter().cloned();
        let all: Vec<Candidate> = bases
            .chain(packets.iter().map(|p| plain(p.clone())))
            .collect();
        all.into_iter()
            .map(|base| mutate(base, round, &mut seed))
            .collect::<Vec<_>>()
    });
    zeros
        .chain(planned)
        .chain(given)
        .chain(cut)
        .chain(short)
        .chain(mutated)
}

fn plain(frame: Vec<u8>) -> Candidate {
    Candidate {
        frame,
        rx_queue: 0,
        ingress_ifindex: 1,
    }
}

/// Packets that go along the rejected path, as far as it could be followed.
fn proposals(plan: &Plan) -> Vec<Candidate> {
    let mut found = Vec::new();
    if plan.length_min > plan.length_max {
        return found;
    }
    let operands = &plan.operands;
    let none: &[(u32, bool)] = &[];
    let opposite: Vec<(u32, bool)> = operands.iter().map(|(n, bit)| (*n, !bit)).collect();
    let mut lengths = vec![plan.length_min];
    for more in [1, 2, 8, 64, 1_400] {
        lengths.push((plan.length_min + more).min(plan.length_max));
    }
    lengths.push(plan.length_max.min(1_500));
    lengths.dedup();
    for extra in [none, operands, &opposite] {
        for length in &lengths {
            found.push(proposal(plan, extra, *length));
        }
    }
    for edge in &plan.edges {
        found.push(proposal(plan, edge, plan.length_min));
        found.push(proposal(plan, edge, plan.length_max.min(1_500)));
    }
    found
}

fn proposal(plan: &Plan, extra: &[(u32, bool)], length: i64) -> Candidate {
    let length = length.clamp(0, plan::LENGTH_MAX) as usize;
    let mut candidate = plain(vec![0; length]);
    let inputs = plan.inputs.iter().map(|(n, bit)| (*n, *bit));
    for (input, bit) in inputs.chain(extra.iter().copied()) {
        let (word, position) = match input {
            plan::INTERFACE.. => (&mut candidate.ingress_ifindex, input - plan::INTERFACE),
            plan::QUEUE.. => (&mut candidate.rx_queue, input - plan::QUEUE),
            _ => {
                if let Some(byte) = candidate.frame.get_mut((input / 8) as usize) {
                    let mask = 1 << (input % 8);
                    *byte = if bit { *byte | mask } else { *byte & !mask };
                }
                continue;
            }
        };
        let mask = 1u32.checked_shl(position).unwrap_or(0);
        *word = if bit { *word | mask } else { *word & !mask };
    }
    candidate
}

/// Changes a few bytes or the length; later rounds change more.
fn mutate(mut candidate: Candidate, round: usize, seed: &mut u64) -> Candidate {
    let mut next = |limit: usize| {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed >> 32) as usize % limit.max(1)
    };
    for _ in 0..=round / 16 {
        let length = candidate.frame.len();
        match next(4) {
            0 => candidate.frame.truncate(next(length + 1)),
            1 => candidate.frame.resize(length + next(64), 0),
            _ => {
                let at = next(length.min(96));
                let byte = [0, 1, 0x7f, 0x80, 0xff, next(256) as u8][next(6)];
                if let Some(place) = candidate.frame.get_mut(at) {
                    *place = byte;
                }
            }
        }
    }
    candidate
}
