//! The stack: what is stored where, byte by byte, and what reading it yields.
//!
//! Owns spills and fills, constant and variable offsets, and which slots a helper reads or overwrites. Invariant: a slot
//! marked overwritten had all eight bytes written; a fill yields no more than was stored.

use super::alu::DISTANCE_MAX;
use super::rejection::{Birth, Rule, ValueKind};
use super::state::{NOWHERE, Reg, SLOT, SLOTS, Slot, StackByte};
use super::walk::{Step, Walk, stop_at};

/// Bytes of a frame.
const FRAME: i64 = (SLOT * SLOTS) as i64;

/// The slot of a byte at `off` (negative) from the frame pointer, and its place in it.
pub(super) fn byte_at(off: i64) -> (usize, usize) {
    let below = (-off - 1) as usize;
    (below / SLOT, SLOT - 1 - below % SLOT)
}

impl Walk<'_> {
    /// Least and greatest offset of an access through stack pointer `register`, checked against the frame.
    pub(super) fn stack_range(&mut self, register: u8, off: i32, size: i64) -> Step<(i64, i64)> {
        let reg = *self.state.reg(register);
        let base = i64::from(reg.off) + i64::from(off);
        let (min, max) = match reg.num.value() {
            Some(value) => {
                let at = (value as i64).wrapping_add(base);
                (at, at)
            }
            None => {
                if reg.num.smax >= DISTANCE_MAX || reg.num.smin <= -DISTANCE_MAX {
                    return stop_at(register, Rule::StackUnbounded);
                }
                (reg.num.smin + base, reg.num.smax + base)
            }
        };
        if min < -FRAME || max + size > 0 || size < 0 {
            let offset = if min < -FRAME { min } else { max };
            return stop_at(register, Rule::StackBounds { offset, size });
        }
        let frame = reg.frame as usize;
        let function = self.state.frames[frame].function as usize;
        if let Some(used) = self.stack_used.get_mut(function) {
            *used = (*used).max(-min as u32);
        }
        Ok((min, max))
    }

    /// `*(register + off) = value`, where `value` is a register, a constant or (`None`) anything.
    pub(super) fn stack_store(
        &mut self,
        register: u8,
        off: i32,
        size: usize,
        value: Stored,
    ) -> Step<()> {
        let (min, max) = self.stack_range(register, off, size as i64)?;
        let frame = self.state.reg(register).frame as usize;
        if min != max {
            return self.stack_store_variable(frame, (min, max), size, value);
        }
        let (slot, first) = byte_at(min);
        self.destroy_dynptr(frame, slot)?;
        let own = frame == self.state.depth();
        let aligned = min % SLOT as i64 == 0;
        match value {
            Stored::Reg(source) if aligned && self.state.reg(source).is_number() => {
                let reg = *self.state.reg(source);
                let fits = size == SLOT || reg.num.umax < 1 << (8 * size);
                if fits {
                    self.name_number(source);
                }
                let mut stored = *self.state.reg(source);
                if !fits {
                    stored.id = 0;
                    stored.off = 0;
                }
                self.spill(frame, slot, stored, size);
            }
            Stored::Constant(value) if aligned => {
                let mut stored = Reg::constant(value, Birth::Constant, self.at);
                if size < SLOT {
                    // The bytes behind the stored ones are not part of the number.
                    stored.num = stored.num.zero_extend(8 * size as u32);
                }
                self.spill(frame, slot, stored, size);
            }
            Stored::Reg(source) if self.state.reg(source).is_pointer() => {
                let reg = *self.state.reg(source);
                if size != SLOT {
                    return stop_at(source, Rule::PartialSpill { kind: reg.kind });
                }
                if !own && reg.kind == ValueKind::Stack {
                    return stop_at(source, Rule::SpillToCaller);
                }
                self.spill(frame, slot, reg, size);
            }
            _ => {
                let zero = match value {
                    Stored::Reg(source) => {
                        let zero = self.state.reg(source).is_null();
                        if zero {
                            self.precise(source);
                        }
                        zero
                    }
                    Stored::Constant(value) => value == 0,
                    Stored::Anything => false,
                };
                let kind = if zero {
                    StackByte::Zero
                } else {
                    StackByte::Misc
                };
                let target = self.state.slot_mut(frame, slot);
                target.scrub();
                target.reg = Slot::EMPTY.reg;
                for byte in target.bytes.iter_mut().skip(first).take(size) {
                    *byte = kind;
                }
                if size == SLOT {
                    self.state.written[frame] |= 1 << slot;
                }
                return Ok(());
            }
        }
        if size == SLOT {
            self.state.written[frame] |= 1 << slot;
        }
        self.note_slot(frame, slot);
        Ok(())
    }

    fn spill(&mut self, frame: usize, slot: usize, reg: Reg, size: usize) {
        let target = self.state.slot_mut(frame, slot);
        target.reg = reg;
        for (i, byte) in target.bytes.iter_mut().enumerate() {
            if i < size {
                *byte = StackByte::Spill;
            } else if matches!(*byte, StackByte::Spill | StackByte::Iterator) {
                *byte = StackByte::Misc;
            }
        }
    }

    /// A store somewhere between two offsets.
    fn stack_store_variable(
        &mut self,
        frame: usize,
        (min, max): (i64, i64),
        size: usize,
        value: Stored,
    ) -> Step<()> {
        let zero = match value {
            Stored::Reg(source) => self.state.reg(source).is_null(),
            Stored::Constant(value) => value == 0,
            Stored::Anything => false,
        };
        for off in min..max + size as i64 {
            self.destroy_dynptr(frame, byte_at(off).0)?;
        }
        let mut zero_used = false;
        for off in min..max + size as i64 {
            let (slot, byte) = byte_at(off);
            let target = self.state.slot_mut(frame, slot);
            let kind = target.bytes[byte];
            if zero
                && kind == StackByte::Spill
                && target.is_number_spill()
                && target.reg.num.value() == Some(0)
            {
                zero_used = true;
                continue;
            }
            target.scrub();
            target.reg = Slot::EMPTY.reg;
            target.bytes[byte] = if zero && kind == StackByte::Zero {
                zero_used = true;
                StackByte::Zero
            } else {
                StackByte::Misc
            };
        }
        if let (true, Stored::Reg(source)) = (zero_used, value) {
            self.precise(source);
        }
        Ok(())
    }

    /// What `size` bytes at `register + off` hold.
    pub(super) fn stack_load(&mut self, register: u8, off: i32, size: usize) -> Step<Reg> {
        let (min, max) = self.stack_range(register, off, size as i64)?;
        let frame = self.state.reg(register).frame as usize;
        if min != max {
            self.check_readable(register, frame, (min, max + size as i64), false)?;
            return Ok(self.loaded_bytes(frame, min, max + size as i64));
        }
        let (number, _) = byte_at(min);
        self.mark_read(frame, 1 << number);
        let slot = *self.state.frames[frame].slot(number);
        if !slot.is_spill() {
            self.check_readable(register, frame, (min, min + size as i64), false)?;
            return Ok(self.loaded_bytes(frame, min, min + size as i64));
        }
        let spilled = slot.spill_size();
        if size == SLOT && spilled == SLOT {
            if let Some(named) = self.named(slot.reg) {
                self.state.slot_mut(frame, number).reg = named;
            }
            self.note_slot(frame, number);
            return Ok(self.state.frames[frame].slot(number).reg);
        }
        if !slot.reg.is_number() {
            return stop_at(
                register,
                Rule::PartialFill {
                    kind: slot.reg.kind,
                    size: size as i64,
                },
            );
        }
        if size <= spilled && min % SLOT as i64 == 0 {
            let narrow = slot.reg.num.umax <= u64::from(u32::MAX);
            if size == 4
                && spilled == 4
                && narrow
                && let Some(named) = self.named(slot.reg)
            {
                self.state.slot_mut(frame, number).reg = named;
            }
            self.note_slot(frame, number);
            let mut reg = self.state.frames[frame].slot(number).reg;
            if reg.num.umax >= 1 << (8 * size.min(7)) && size < SLOT {
                reg.id = 0;
                reg.off = 0;
            }
            return Ok(reg);
        }
        let (mut spills, mut zeros) = (0, 0);
        for off in min..min + size as i64 {
            match slot.bytes[byte_at(off).1] {
                StackByte::Spill => spills += 1,
                StackByte::Zero => zeros += 1,
                StackByte::Invalid if !self.options.unwritten_stack => {
                    return stop_at(
                        register,
                        Rule::UninitStack {
                            offset: min,
                            size: size as i64,
                        },
                    );
                }
                StackByte::Misc | StackByte::Invalid | StackByte::Iterator | StackByte::Dynptr => {}
            }
        }
        if spills == size && slot.reg.num.value() == Some(0) {
            self.note_slot(frame, number);
            return Ok(Reg::constant(0, Birth::Loaded(ValueKind::Stack), self.at));
        }
        if zeros == size {
            return Ok(Reg::constant(0, Birth::Loaded(ValueKind::Stack), self.at));
        }
        Ok(Reg::unknown(Birth::Loaded(ValueKind::Stack), self.at))
    }

    /// Bytes that are no stored register: zero if all are, else anything.
    fn loaded_bytes(&self, frame: usize, from: i64, to: i64) -> Reg {
        let birth = Birth::Loaded(ValueKind::Stack);
        let zero = (from..to).all(|off| {
            let (slot, byte) = byte_at(off);
            self.state.frames[frame].slot(slot).bytes[byte] == StackByte::Zero
        });
        if zero {
            Reg::constant(0, birth, self.at)
        } else {
            Reg::unknown(birth, self.at)
        }
    }

    /// A helper reads `size` bytes at the pointer, or (`write`) may change them as well.
    pub(super) fn stack_argument(
        &mut self,
        register: u8,
        off: i32,
        size: i64,
        write: bool,
        fills: bool,
    ) -> Step<()> {
        let (min, max) = self.stack_range(register, off, size)?;
        let reg = *self.state.reg(register);
        let frame = reg.frame as usize;
        if fills {
            let special = (min..max + size).find(|off| {
                let (slot, byte) = byte_at(*off);
                self.state.frames[frame].slot(slot).bytes[byte] == StackByte::Dynptr
            });
            if let Some(offset) = special {
                return stop_at(register, Rule::UninitStack { offset, size });
            }
        }
        if fills && min == max {
            // The helper writes all of it whatever was there.
            for off in min..min + size {
                let (slot, byte) = byte_at(off);
                let target = self.state.slot_mut(frame, slot);
                target.scrub();
                target.reg = Slot::EMPTY.reg;
                target.bytes[byte] = StackByte::Misc;
                if byte == SLOT - 1 && off - min >= SLOT as i64 - 1 {
                    self.state.written[frame] |= 1 << slot;
                }
            }
            return Ok(());
        }
        self.check_readable(register, frame, (min, max + size), write)
    }

    /// Whether all bytes may be read as numbers; with `clobber` they hold anything afterwards.
    fn check_readable(
        &mut self,
        register: u8,
        frame: usize,
        (from, to): (i64, i64),
        clobber: bool,
    ) -> Step<()> {
        for off in from..to {
            let (number, byte) = byte_at(off);
            let slot = self.state.frames[frame].slot(number);
            match slot.bytes[byte] {
                StackByte::Misc => {}
                StackByte::Invalid if !self.options.unwritten_stack => {
                    return stop_at(
                        register,
                        Rule::UninitStack {
                            offset: from,
                            size: to - from,
                        },
                    );
                }
                StackByte::Zero | StackByte::Invalid => {
                    if clobber {
                        self.state.slot_mut(frame, number).bytes[byte] = StackByte::Misc;
                    }
                }
                StackByte::Spill
                    if slot.is_spill() && slot.reg.kind != ValueKind::Uninitialised =>
                {
                    if clobber {
                        let at = self.at;
                        let slot = self.state.slot_mut(frame, number);
                        slot.scrub();
                        slot.reg = Reg::unknown(Birth::Computed, at);
                    }
                }
                StackByte::Spill | StackByte::Iterator | StackByte::Dynptr => {
                    return stop_at(
                        register,
                        Rule::UninitStack {
                            offset: from,
                            size: to - from,
                        },
                    );
                }
            }
            self.mark_read(frame, 1 << number);
        }
        Ok(())
    }

    /// The constant in `size` bytes of stack that `register` points to, if it is one; it becomes precise.
    pub(super) fn stack_constant(&mut self, register: u8, size: usize) -> Option<u64> {
        let reg = *self.state.reg(register);
        if reg.kind != ValueKind::Stack {
            return None;
        }
        let off = i64::from(reg.off) + reg.num.value()? as i64;
        if !(-FRAME..0).contains(&off) {
            return None;
        }
        let (number, first) = byte_at(off);
        let slot = *self.state.frames[reg.frame as usize].slot(number);
        let zeros = slot.bytes.iter().skip(first);
        if zeros.take_while(|b| **b == StackByte::Zero).count() >= size {
            return Some(0);
        }
        if !slot.is_number_spill() {
            return None;
        }
        let stored = slot.bytes.iter().skip(first);
        if stored.take_while(|b| **b == StackByte::Spill).count() != size || first != 0 {
            return None;
        }
        let value = slot.reg.num.value()?;
        self.precise_slot(reg.frame as usize, number);
        Some(value)
    }

    /// The slots are read: kept states up to where they were written depend on them.
    pub(super) fn mark_read(&mut self, frame: usize, slots: u64) {
        let mut wanted = slots & !self.state.written[frame];
        let mut at = self.state.parent;
        while wanted != 0 && at != NOWHERE {
            let kept = &mut self.kept[at as usize];
            wanted &= !kept.read[frame];
            kept.read[frame] |= wanted;
            wanted &= !kept.written[frame];
            at = kept.state.parent;
        }
    }

    /// Notes for backtracking that the current operation stored to or filled from the slot.
    fn note_slot(&mut self, frame: usize, slot: usize) {
        let noted = (frame << 8 | slot) as u16;
        if let Some(node) = self.node_mut() {
            node.slot = noted;
        }
        self.state.noted += 1;
    }
}

/// What a store writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored {
    Reg(u8),
    Constant(u64),
    Anything,
}
