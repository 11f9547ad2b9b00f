//! Concrete runs against abstract states: every register of a run must lie in what the verifier said of it.
//!
//! Owns the recording of all states of a walk and their comparison with the registers and the stack of the interpreter. A
//! run is watched operation by operation; one recorded state of the operation must describe it. Only registers that are
//! read later count, since states are compared without the others. Invariant: a misfit is a mistake of the verifier (or
//! of the interpreter), never of the program.

use std::fmt;
use std::sync::Arc;

use super::rejection::ValueKind;
use super::state::{Reg, SLOT, Slot, StackByte, State};
use super::tnum::ones;
use crate::interp::Registers;
use crate::machine::Machine;
use crate::memory::{Memory, STACK_BYTES, Spot, stack_address};

/// States kept for one operation; behind that, it is not checked.
const STATES_MAX: usize = 512;

/// All states that a walk came through, by operation.
#[derive(Debug, Default)]
pub struct Recording {
    ops: Vec<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// Registers read later, as bits.
    live: u16,
    /// More states than are kept.
    full: bool,
    states: Vec<Described>,
}

/// The running frame of a state.
#[derive(Debug)]
struct Described {
    depth: usize,
    regs: [Reg; 11],
    stack: Vec<Slot>,
}

/// What watching a machine's runs yielded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Registers and stack slots compared.
    pub compared: u64,
    /// The first run that was in no recorded state.
    pub misfit: Option<Misfit>,
}

/// A run in a state that the verifier did not foresee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Operation.
    pub op: usize,
    /// What differs from the recorded states, the last first.
    pub what: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: {}", self.op, self.what)
    }
}

/// A recording and what came of it so far; part of a machine.
#[derive(Debug)]
pub(crate) struct Watch {
    recording: Arc<Recording>,
    watched: Watched,
}

impl Machine {
    /// Compares all further interpreted runs with the states of a recording of this program.
    pub fn watch(&mut self, recording: Arc<Recording>) {
        self.set_watch(Some(Box::new(Watch {
            recording,
            watched: Watched::default(),
        })));
    }

    /// The first run since [`Machine::watch`] that was in no recorded state.
    pub fn misfit(&self) -> Option<&Misfit> {
        self.watching()?.watched.misfit.as_ref()
    }

    /// Ends [`Machine::watch`]; nothing if it was not begun.
    pub fn watched(&mut self) -> Option<Watched> {
        self.set_watch(None).map(|watch| watch.watched)
    }
}

impl Watch {
    /// Compares the run about to execute `op`.
    pub(crate) fn look(&mut self, op: usize, regs: &Registers, memory: &Memory<'_>) {
        if self.watched.misfit.is_some() {
            return;
        }
        let Some(recorded) = self.recording.ops.get(op).filter(|r| !r.full) else {
            return;
        };
        let mut compared = 0;
        let mut misfits = Vec::new();
        for state in recorded.states.iter().rev() {
            if state.depth != memory.depth {
                continue;
            }
            match state.misfit(recorded.live, regs, memory, &mut compared) {
                None => {
                    self.watched.compared += compared;
                    return;
                }
                Some(misfit) => misfits.push(misfit),
            }
        }
        misfits.truncate(4);
        let what = if misfits.is_empty() {
            "the walk never came here".to_owned()
        } else {
            misfits.join("; ")
        };
        self.watched.misfit = Some(Misfit { op, what });
    }
}

impl Recording {
    pub(super) fn note(&mut self, op: usize, live: u16, state: &State) {
        if self.ops.len() <= op {
            self.ops.resize_with(op + 1, Recorded::default);
        }
        let Some(recorded) = self.ops.get_mut(op) else {
            return;
        };
        recorded.live = live;
        if recorded.states.len() >= STATES_MAX {
            recorded.full = true;
            return;
        }
        let frame = state.frame();
        recorded.states.push(Described {
            depth: state.depth(),
            regs: frame.regs,
            stack: frame.stack.to_vec(),
        });
    }
}

impl Described {
    /// The first fact that does not hold.
    fn misfit(
        &self,
        live: u16,
        regs: &Registers,
        memory: &Memory<'_>,
        compared: &mut u64,
    ) -> Option<String> {
        for (number, (reg, value)) in self.regs.iter().zip(regs).enumerate().take(10) {
            if live & (1 << number) == 0 {
                continue;
            }
            *compared += 1;
            if !describes(reg, *value, memory) {
                return Some(format!("r{number} is {value:#x}, foreseen was {reg:?}"));
            }
        }
        let bottom = stack_address(memory.depth) + STACK_BYTES as u64;
        for (number, slot) in (1u64..).zip(&self.stack) {
            let address = bottom - number * SLOT as u64;
            let Ok(bytes) = memory.load::<SLOT>(address) else {
                continue;
            };
            *compared += 1;
            if !slot_describes(slot, bytes, memory) {
                return Some(format!(
                    "fp-{} is {bytes:02x?}, foreseen was {slot:?}",
                    number * SLOT as u64
                ));
            }
        }
        None
    }
}

/// Whether bytes of the stack are what a slot says.
fn slot_describes(slot: &Slot, bytes: [u8; SLOT], memory: &Memory<'_>) -> bool {
    let zero = |(kind, byte): (&StackByte, &u8)| *kind != StackByte::Zero || *byte == 0;
    if !slot.bytes.iter().zip(&bytes).all(zero) {
        return false;
    }
    let size = slot.spill_size();
    if size == 0 {
        return true;
    }
    let stored = u64::from_le_bytes(bytes);
    if size == SLOT {
        return describes(&slot.reg, stored, memory);
    }
    // Of a number stored in part, only the lowest bytes are there.
    let bits = size as u32 * 8;
    let part = slot.reg.num.zero_extend(bits);
    !slot.reg.is_number() || part.holds(stored & ones(bits))
}

/// Whether `value` is what `reg` says.
fn describes(reg: &Reg, value: u64, memory: &Memory<'_>) -> bool {
    if reg.kind == ValueKind::Uninitialised {
        return true;
    }
    if reg.kind == ValueKind::Number {
        return reg.num.holds(value);
    }
    if reg.or_null && value == 0 {
        return true;
    }
    // The offset left when the constant part is taken off is the variable part.
    let variable = |offset: i64| offset.wrapping_sub(i64::from(reg.off)) as u64;
    match (reg.kind, memory.spot(value)) {
        (ValueKind::Context, Spot::Context(offset)) => reg.num.holds(variable(offset)),
        (ValueKind::Stack, Spot::Stack(frame, offset)) => {
            frame == usize::from(reg.frame) && reg.num.holds(variable(offset - STACK_BYTES as i64))
        }
        (ValueKind::Packet, Spot::Packet { data, end, .. }) => {
            reg.num.holds(variable(data)) && range_holds(reg, end)
        }
        // Metadata ends where the packet begins.
        (ValueKind::PacketMeta, Spot::Packet { meta, data, .. }) => {
            reg.num.holds(variable(meta)) && range_holds(reg, data)
        }
        (ValueKind::PacketEnd, Spot::Packet { end, .. }) => end == i64::from(reg.off),
        (ValueKind::Map, Spot::Map(map)) => map == reg.map as usize,
        (ValueKind::MapValue, Spot::Value(map, offset)) => {
            // Far away, offsets of the interpreter's addresses wrap.
            let far = reg.num.umax > 1 << 20 && reg.num.smin < -(1 << 20);
            far || (map == reg.map as usize && reg.num.holds(variable(offset)))
        }
        (ValueKind::Record, Spot::Record(offset)) => reg.num.holds(variable(offset)),
        (ValueKind::Function, Spot::Function(op)) => op == reg.map as usize,
        (
            ValueKind::MapKey
            | ValueKind::Memory
            | ValueKind::Socket
            | ValueKind::Iterator
            | ValueKind::Dynptr
            | ValueKind::Object,
            _,
        ) => true,
        _ => false,
    }
}

/// Whether the bytes that a packet pointer's range promises are there; `past_end` is the pointer's distance from the end.
fn range_holds(reg: &Reg, past_end: i64) -> bool {
    let variable_part = past_end - i64::from(reg.off);
    // Negative ranges say that nothing is there.
    reg.range <= 0 || variable_part + i64::from(reg.range) <= 0
}
