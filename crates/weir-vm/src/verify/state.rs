//! Abstract states: what is known of registers, stack slots, frames, references and locks at a point of a path.
//!
//! Owns the representation and the operations that need nothing but a state. A state is cheap to copy: frames and
//! stacks are shared until written. Invariant: the facts of a register hold for every run that takes the path; history
//! (`born`, `birth`, `narrowed`) is for explanation only and never compared.

use std::rc::Rc;

use super::rejection::{Birth, History, ValueKind};
use super::scalar::Scalar;
use crate::catalogue::DynptrKind;

/// Bytes of a stack slot.
pub(super) const SLOT: usize = 8;
/// Slots of a frame.
pub(super) const SLOTS: usize = 64;
/// Marks an identity whose register differs from its siblings by the constant in `off`.
pub(super) const ADDED: u32 = 1 << 31;
/// As [`ADDED`], by a 32-bit addition: the register is the low half of the sum, and the siblings have no upper half.
pub(super) const ADDED_LOW: u32 = 1 << 30;
/// Both marks.
pub(super) const MARKS: u32 = ADDED | ADDED_LOW;
/// No place.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Range of a packet pointer that is one past the packet's end or further: nothing is there.
pub(super) const BEYOND_END: i32 = -2;
/// Range of a packet pointer at the end or further.
pub(super) const AT_END: i32 = -1;

/// What is known of a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reg {
    pub(super) kind: ValueKind,
    pub(super) or_null: bool,
    /// Memory that may only be read.
    pub(super) read_only: bool,
    /// Frame a stack pointer points into. Kernel object: its trust. Memory of a dynptr: the dynptr's kind.
    pub(super) frame: u8,
    /// Map of a map or value pointer; operation of a function; type of a kernel object; kind of a dynptr.
    pub(super) map: u32,
    /// Constant part of a pointer's offset; of a number with one of [`MARKS`], its distance from its siblings.
    pub(super) off: i32,
    /// Packet: bytes known to be there from the pointer's base. Memory: its size.
    pub(super) range: i32,
    /// The dynptr that the memory belongs to; 0 is none.
    pub(super) dynptr: u32,
    /// Shared by copies; 0 is none.
    pub(super) id: u32,
    /// The reference that must be released.
    pub(super) ref_id: u32,
    /// A number's value, or a pointer's variable offset.
    pub(super) num: Scalar,
    pub(super) birth: Birth,
    pub(super) born: u32,
    pub(super) narrowed: u32,
}

impl Reg {
    pub(super) const fn nothing(birth: Birth, at: u32) -> Reg {
        Reg {
            kind: ValueKind::Uninitialised,
            or_null: false,
            read_only: false,
            frame: 0,
            map: 0,
            off: 0,
            range: 0,
            dynptr: 0,
            id: 0,
            ref_id: 0,
            num: Scalar::UNKNOWN,
            birth,
            born: at,
            narrowed: NOWHERE,
        }
    }

    pub(super) const fn unknown(birth: Birth, at: u32) -> Reg {
        let mut reg = Reg::nothing(birth, at);
        reg.kind = ValueKind::Number;
        reg
    }

    pub(super) const fn constant(value: u64, birth: Birth, at: u32) -> Reg {
        Reg::number(Scalar::constant(value), birth, at)
    }

    pub(super) const fn number(num: Scalar, birth: Birth, at: u32) -> Reg {
        let mut reg = Reg::unknown(birth, at);
        reg.num = num;
        reg
    }

    pub(super) const fn pointer(kind: ValueKind, birth: Birth, at: u32) -> Reg {
        let mut reg = Reg::constant(0, birth, at);
        reg.kind = kind;
        reg
    }

    pub(super) fn is_number(&self) -> bool {
        self.kind == ValueKind::Number
    }

    pub(super) fn is_pointer(&self) -> bool {
        !matches!(self.kind, ValueKind::Number | ValueKind::Uninitialised)
    }

    pub(super) fn is_null(&self) -> bool {
        self.is_number() && self.num.value() == Some(0)
    }

    /// Whether it is packet, metadata or end of packet.
    pub(super) fn is_packet_any(&self) -> bool {
        matches!(
            self.kind,
            ValueKind::Packet | ValueKind::PacketMeta | ValueKind::PacketEnd
        )
    }

    /// Whether it points to bytes that a dynptr of the packet lent out.
    pub(super) fn is_packet_slice(&self) -> bool {
        let kind = DynptrKind::from_number(u32::from(self.frame));
        self.kind == ValueKind::Memory && kind.is_some_and(DynptrKind::is_packet)
    }

    /// Distance from siblings of the same identity.
    pub(super) fn added(&self) -> i32 {
        if self.id & MARKS != 0 { self.off } else { 0 }
    }

    pub(super) fn history(&self) -> History {
        History {
            birth: self.birth,
            born_at: self.born as usize,
            narrowed_at: (self.narrowed != NOWHERE).then_some(self.narrowed as usize),
        }
    }

    /// Equal in all facts, identities aside.
    pub(super) fn same_facts(&self, other: &Reg) -> bool {
        self.kind == other.kind
            && self.or_null == other.or_null
            && self.read_only == other.read_only
            && self.frame == other.frame
            && self.map == other.map
            && self.off == other.off
            && self.range == other.range
            && self.num == other.num
    }
}

/// What a byte of the stack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackByte {
    /// Never written.
    Invalid,
    /// Part of the slot's stored register.
    Spill,
    /// Any number.
    Misc,
    /// Zero.
    Zero,
    /// Part of an iterator; the slot's register says which.
    Iterator,
    /// Part of a dynptr; the slot's register says which.
    Dynptr,
}

/// Eight bytes of stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// By address.
    pub(super) bytes: [StackByte; SLOT],
    /// The register stored here, whose bytes are [`StackByte::Spill`].
    pub(super) reg: Reg,
}

impl Slot {
    pub(super) const EMPTY: Slot = Slot {
        bytes: [StackByte::Invalid; SLOT],
        reg: Reg::nothing(Birth::Nothing, 0),
    };

    /// Whether the slot begins with a stored register.
    pub(super) fn is_spill(&self) -> bool {
        self.bytes[0] == StackByte::Spill
    }

    pub(super) fn is_number_spill(&self) -> bool {
        self.is_spill() && self.reg.is_number()
    }

    /// Bytes of the stored register.
    pub(super) fn spill_size(&self) -> usize {
        self.bytes
            .iter()
            .take_while(|b| **b == StackByte::Spill)
            .count()
    }

    pub(super) fn is_whole_number_spill(&self) -> bool {
        self.bytes[SLOT - 1] == StackByte::Spill && self.is_number_spill()
    }

    /// Whether the bytes are any number; those never written count if they may be read.
    pub(super) fn is_all_misc(&self, unwritten_reads: bool) -> bool {
        self.bytes.iter().all(|b| match b {
            StackByte::Misc => true,
            StackByte::Invalid => unwritten_reads,
            StackByte::Spill | StackByte::Zero | StackByte::Iterator | StackByte::Dynptr => false,
        })
    }

    pub(super) fn is_iterator(&self) -> bool {
        self.bytes.contains(&StackByte::Iterator)
    }

    pub(super) fn is_dynptr(&self) -> bool {
        self.bytes[0] == StackByte::Dynptr
    }

    /// Whether the register describes what is here although none is stored.
    pub(super) fn is_special(&self) -> bool {
        self.is_iterator() || self.is_dynptr()
    }

    /// Parts of a stored register or iterator become any number.
    pub(super) fn scrub(&mut self) {
        for byte in &mut self.bytes {
            if matches!(*byte, StackByte::Spill | StackByte::Iterator) {
                *byte = StackByte::Misc;
            }
        }
    }
}

/// A callback's frame: how its result is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Callback {
    /// Helper that calls it.
    pub(super) helper: u32,
}

/// A call frame.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) regs: [Reg; 11],
    /// Slot `i` is fp-8(i+1); grows when written.
    pub(super) stack: Rc<Vec<Slot>>,
    /// Operation of the call, [`NOWHERE`] for the first frame.
    pub(super) call: u32,
    /// Number of the function.
    pub(super) function: u32,
    pub(super) callback: Option<Callback>,
    /// How often the callback of the helper about to be called was entered.
    pub(super) callback_depth: u32,
}

impl Frame {
    pub(super) fn slot(&self, slot: usize) -> &Slot {
        self.stack.get(slot).unwrap_or(&Slot::EMPTY)
    }
}

/// A reference to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) id: u32,
    pub(super) at: u32,
    pub(super) kind: ValueKind,
}

/// The spin lock held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) map: u32,
    pub(super) id: u32,
    pub(super) at: u32,
}

/// Slots of each frame, as bits.
pub(super) type SlotMasks = [u64; 8];

/// A state on a path.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) frames: Vec<Rc<Frame>>,
    pub(super) held: Vec<Held>,
    pub(super) lock: Option<Lock>,
    /// Open sections that RCU protects.
    pub(super) rcu: u32,
    /// Open sections without preemption.
    pub(super) preempt: u32,
    /// Last node of the path.
    pub(super) node: u32,
    /// Entries of the path since the last kept state that backtracking must look at.
    pub(super) noted: u32,
    /// Last kept state of the path.
    pub(super) parent: u32,
    /// Slots overwritten since the last kept state, by frame.
    pub(super) written: SlotMasks,
    /// Callbacks entered on the path.
    pub(super) unrolled: u32,
    /// How often the path went on at `may_goto`.
    pub(super) rounds: u32,
}

impl State {
    /// Stands in while the state is elsewhere; it has no frames.
    pub(super) const EMPTY: State = State {
        frames: Vec::new(),
        held: Vec::new(),
        lock: None,
        rcu: 0,
        preempt: 0,
        node: NOWHERE,
        noted: 0,
        parent: NOWHERE,
        written: [u64::MAX; 8],
        unrolled: 0,
        rounds: 0,
    };

    pub(super) fn depth(&self) -> usize {
        self.frames.len() - 1
    }

    pub(super) fn frame(&self) -> &Frame {
        // A state has one frame at least, from its creation to the exit of the first.
        &self.frames[self.frames.len() - 1]
    }

    pub(super) fn frame_mut(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        Rc::make_mut(&mut self.frames[last])
    }

    pub(super) fn reg(&self, register: u8) -> &Reg {
        &self.frame().regs[register as usize % 11]
    }

    pub(super) fn set(&mut self, register: u8, reg: Reg) {
        self.frame_mut().regs[register as usize % 11] = reg;
    }

    pub(super) fn reg_mut(&mut self, register: u8) -> &mut Reg {
        &mut self.frame_mut().regs[register as usize % 11]
    }

    /// A slot to change; the stack grows to it.
    pub(super) fn slot_mut(&mut self, frame: usize, slot: usize) -> &mut Slot {
        let frame = Rc::make_mut(&mut self.frames[frame]);
        let stack = Rc::make_mut(&mut frame.stack);
        if stack.len() <= slot {
            stack.resize(slot + 1, Slot::EMPTY);
        }
        &mut stack[slot]
    }

    /// Changes every register and stored register for which `wanted` holds.
    pub(super) fn change_all(
        &mut self,
        wanted: impl Fn(&Reg) -> bool,
        mut change: impl FnMut(&mut Reg),
    ) {
        for frame in &mut self.frames {
            if frame.regs.iter().any(&wanted) {
                for reg in &mut Rc::make_mut(frame).regs {
                    if wanted(reg) {
                        change(reg);
                    }
                }
            }
            let stored = |s: &Slot| s.is_spill() && wanted(&s.reg);
            if frame.stack.iter().any(stored) {
                let frame = Rc::make_mut(frame);
                for slot in Rc::make_mut(&mut frame.stack) {
                    if slot.is_spill() && wanted(&slot.reg) {
                        change(&mut slot.reg);
                    }
                }
            }
        }
    }

    /// The reference `id` is gone; its pointers become numbers.
    pub(super) fn release(&mut self, id: u32, at: u32) -> bool {
        let Some(position) = self.held.iter().position(|h| h.id == id) else {
            return false;
        };
        self.held.remove(position);
        self.change_all(
            |r| r.ref_id == id,
            |r| *r = Reg::unknown(Birth::Released, at),
        );
        true
    }

    /// Packet pointers, and what dynptrs of the packet lent out, become numbers.
    pub(super) fn forget_packet(&mut self, at: u32) {
        let wanted = |r: &Reg| r.is_packet_any() || r.is_packet_slice();
        self.change_all(wanted, |r| {
            *r = Reg::unknown(Birth::StalePacket, at);
        });
    }

    /// r1 to r5 hold nothing after a call.
    pub(super) fn clobber(&mut self, at: u32) {
        for reg in &mut self.frame_mut().regs[0..6] {
            *reg = Reg::nothing(Birth::Clobbered, at);
        }
    }
}
