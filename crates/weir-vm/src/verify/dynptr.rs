//! Dynptrs: their state on the stack, and the memory that they lend out.
//!
//! Owns what a program may do with a dynptr, as Linux 6.18 has it: two slots that only functions of dynptrs read, written
//! over at will unless the dynptr holds a record. Invariant: both slots of a dynptr hold its kind (`map`) and identity
//! (`id`), the lower one is marked by `range`; memory lent out knows its dynptr and is gone with it.

use super::rejection::{Birth, Rule, ValueKind};
use super::stack::{Stored, byte_at};
use super::state::{Held, Reg, SLOT, Slot, StackByte};
use super::walk::{Step, Walk, stop, stop_at};
use crate::catalogue::DynptrKind;

/// Bytes of a `struct bpf_dynptr`.
const BYTES: i64 = 16;
/// `range` of the slot with the lower address.
const FIRST: i32 = 1;

/// A dynptr that an argument names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dynptr {
    pub(super) kind: DynptrKind,
    pub(super) id: u32,
    /// The record that it holds; 0 for none.
    pub(super) ref_id: u32,
}

impl Walk<'_> {
    /// Register of a global function's parameter or of a callback that is a dynptr.
    pub(super) fn lent_dynptr(&mut self, kind: DynptrKind) -> Reg {
        let mut reg = Reg::pointer(ValueKind::Dynptr, Birth::Entry, self.at);
        reg.map = kind as u32;
        reg.id = self.new_id();
        reg
    }

    /// The dynptr that `register` points to, which must have been made.
    pub(super) fn made_dynptr(&mut self, helper: &'static str, register: u8) -> Step<Dynptr> {
        let reg = *self.readable(register)?;
        let expected = "a dynptr that was made";
        let wrong = || {
            stop_at(
                register,
                Rule::DynptrState {
                    helper,
                    register,
                    expected,
                },
            )
        };
        let known = |reg: &Reg| {
            DynptrKind::from_number(reg.map).map(|kind| Dynptr {
                kind,
                id: reg.id,
                ref_id: reg.ref_id,
            })
        };
        if reg.kind == ValueKind::Dynptr {
            self.check_unmoved(register, &reg)?;
            return known(&reg).map_or_else(wrong, Ok);
        }
        let Some((frame, slot)) = self.dynptr_slots(register)? else {
            return wrong();
        };
        let (first, second) = {
            let frame = &self.state.frames[frame];
            (*frame.slot(slot), *frame.slot(slot - 1))
        };
        let whole = [first, second]
            .iter()
            .all(|slot| slot.bytes == [StackByte::Dynptr; SLOT]);
        if !whole || first.reg.range != FIRST || second.reg.range == FIRST {
            return wrong();
        }
        self.mark_read(frame, 0b11 << (slot - 1));
        known(&first.reg).map_or_else(wrong, Ok)
    }

    /// Makes a dynptr where `register` points; `shared` is the record of the dynptr that it is a clone of.
    pub(super) fn make_dynptr(
        &mut self,
        helper: &'static str,
        register: u8,
        kind: DynptrKind,
        shared: u32,
    ) -> Step<()> {
        self.readable(register)?;
        let Some((frame, slot)) = self.dynptr_slots(register)? else {
            return stop_at(
                register,
                Rule::DynptrState {
                    helper,
                    register,
                    expected: "stack where a dynptr can be made, at a constant offset that is a multiple of 8",
                },
            );
        };
        for off in [0, SLOT as i32] {
            self.stack_store(register, off, SLOT, Stored::Anything)?;
        }
        let id = self.new_id();
        let mut ref_id = shared;
        if kind == DynptrKind::Record && shared == 0 {
            ref_id = self.new_id();
            self.state.held.push(Held {
                id: ref_id,
                at: self.at,
                kind: ValueKind::Dynptr,
            });
        }
        for number in [slot, slot - 1] {
            let mut reg = Reg::pointer(ValueKind::Dynptr, Birth::Computed, self.at);
            reg.map = kind as u32;
            reg.id = id;
            reg.ref_id = ref_id;
            reg.range = if number == slot { FIRST } else { 0 };
            let target = self.state.slot_mut(frame, number);
            target.bytes = [StackByte::Dynptr; SLOT];
            target.reg = reg;
            self.state.written[frame] |= 1 << number;
        }
        Ok(())
    }

    /// Hands the record of a dynptr back: clones and memory lent out are gone with it.
    pub(super) fn release_dynptr(&mut self, helper: &'static str, register: u8) -> Step<()> {
        let dynptr = self.made_dynptr(helper, register)?;
        if self.state.reg(register).kind == ValueKind::Dynptr
            || dynptr.ref_id == 0
            || !self.state.release(dynptr.ref_id, self.at)
        {
            return stop_at(register, Rule::NotHeld { helper, register });
        }
        for frame in 0..self.state.frames.len() {
            for slot in 0..self.state.frames[frame].stack.len() {
                let found = self.state.frames[frame].slot(slot);
                if found.is_dynptr() && found.reg.ref_id == dynptr.ref_id {
                    self.empty_slot(frame, slot);
                }
            }
        }
        Ok(())
    }

    /// A slot is about to be written: a dynptr there is no more.
    pub(super) fn destroy_dynptr(&mut self, frame: usize, slot: usize) -> Step<()> {
        let found = *self.state.frames[frame].slot(slot);
        if !found.is_dynptr() {
            return Ok(());
        }
        if found.reg.map == DynptrKind::Record as u32 {
            return stop(Rule::ReferencedDynptr);
        }
        let first = if found.reg.range == FIRST {
            slot
        } else {
            slot + 1
        };
        let (at, id) = (self.at, found.reg.id);
        self.state.change_all(
            |r| r.kind == ValueKind::Memory && r.dynptr == id,
            |r| *r = Reg::unknown(Birth::Released, at),
        );
        self.empty_slot(frame, first);
        self.empty_slot(frame, first - 1);
        Ok(())
    }

    /// A pointer to `size` bytes of a dynptr's memory, or null.
    pub(super) fn slice(&mut self, dynptr: Dynptr, size: u64, birth: Birth) -> Reg {
        let mut reg = Reg::pointer(ValueKind::Memory, birth, self.at);
        // A size that no dynptr has never finds memory.
        reg.range = i32::try_from(size).unwrap_or(0);
        reg.dynptr = dynptr.id;
        reg.ref_id = dynptr.ref_id;
        reg.or_null = true;
        reg.id = self.new_id();
        reg
    }

    fn empty_slot(&mut self, frame: usize, slot: usize) {
        *self.state.slot_mut(frame, slot) = Slot::EMPTY;
        self.state.written[frame] |= 1 << slot;
    }

    /// Frame and slot with the lower address of the 16 bytes that `register` points to, if a dynptr can be there.
    fn dynptr_slots(&mut self, register: u8) -> Step<Option<(usize, usize)>> {
        let reg = *self.state.reg(register);
        if reg.kind != ValueKind::Stack || reg.num.value().is_none() {
            return Ok(None);
        }
        let (offset, _) = self.stack_range(register, 0, BYTES)?;
        let aligned = offset % SLOT as i64 == 0;
        Ok(aligned.then(|| (reg.frame as usize, byte_at(offset).0)))
    }
}
