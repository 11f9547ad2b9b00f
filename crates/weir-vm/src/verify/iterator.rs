//! Open-coded iterators: their state on the stack, and the loops they end.
//!
//! Owns what a program may do with an iterator, as Linux 6.18 has it: it is begun, asked for the next until there is none, and
//! destroyed. A loop through `next` is walked until a round is covered by an earlier one (see `prune`). Invariant: an iterator's slots
//! hold its kind (`map`), whether it is used up (`range`), and in the first slot the reference that destroying it releases.

use super::rejection::{Birth, Rule, ValueKind};
use super::stack::byte_at;
use super::state::{Held, Reg, SLOT, Slot, StackByte};
use super::walk::{Next, Step, Walk, stop, stop_at};
use crate::catalogue::{IteratorKind, IteratorStep, KernelFunction};

/// `range` of an iterator that has no next.
const DRAINED: i32 = 1;
/// Bytes of what `next` points to.
const ITEM: i32 = 4;

/// Where an iterator lies: frame and slots, the first at the lowest address.
struct Place {
    frame: usize,
    slots: Vec<usize>,
}

impl Walk<'_> {
    pub(super) fn kernel_function(&mut self, function: &KernelFunction) -> Step<Next> {
        let (at, name) = (self.at, function.name);
        if self.code.is_restricted(at as usize) {
            return stop(Rule::License { helper: name });
        }
        if let Some(lock) = self.state.lock {
            return stop(Rule::CallUnderLock {
                taken_at: lock.at as usize,
            });
        }
        let result = match function.step {
            IteratorStep::New => {
                self.begin(function)?;
                Reg::unknown(Birth::Computed, at)
            }
            IteratorStep::Next => return self.next_item(function),
            IteratorStep::Destroy => {
                self.destroy(function)?;
                Reg::nothing(Birth::Clobbered, at)
            }
        };
        self.state.clobber(at);
        self.state.set(0, result);
        Ok(Next::Go(at as usize + 1))
    }

    fn begin(&mut self, function: &KernelFunction) -> Step<()> {
        let free = "memory that holds no iterator yet";
        let place = self.place(function, free)?;
        self.readable(2)?;
        let count = *self.readable(3)?;
        let number = |reg: &Reg| reg.is_number();
        // The memory of bits is read by the function, whatever its address.
        let start_fits = function.kind == IteratorKind::Bits || number(self.state.reg(2));
        if !start_fits || !number(&count) {
            let register = if start_fits { 3 } else { 2 };
            return stop_at(
                register,
                Rule::HelperArgument {
                    helper: function.name,
                    register,
                    expected: "a number",
                    found: self.state.reg(register).kind,
                },
            );
        }
        let taken = |slot: &usize| self.state.frames[place.frame].slot(*slot).is_iterator();
        if place.slots.iter().any(taken) {
            return stop_at(
                1,
                Rule::IteratorState {
                    function: function.name,
                    expected: free,
                },
            );
        }
        let id = self.new_id();
        self.state.held.push(Held {
            id,
            at: self.at,
            kind: ValueKind::Iterator,
        });
        for (number, slot) in place.slots.iter().enumerate() {
            let mut reg = Reg::pointer(ValueKind::Iterator, Birth::Computed, self.at);
            reg.map = function.kind as u32;
            reg.ref_id = if number == 0 { id } else { 0 };
            let target = self.state.slot_mut(place.frame, *slot);
            target.bytes = [StackByte::Iterator; SLOT];
            target.reg = reg;
            self.state.written[place.frame] |= 1 << slot;
        }
        Ok(())
    }

    fn next_item(&mut self, function: &KernelFunction) -> Step<Next> {
        let place = self.begun(function)?;
        let first = *self.state.frames[place.frame].slot(place.slots[0]);
        let (at, next) = (self.at, self.at as usize + 1);
        self.state.clobber(at);
        if first.reg.range != DRAINED {
            let mut again = self.state.clone();
            again.rounds += 1;
            let state = std::mem::replace(&mut self.state, again);
            self.widen(at, state.parent);
            let mut again = std::mem::replace(&mut self.state, state);
            let mut item = Reg::pointer(ValueKind::Memory, Birth::Computed, at);
            item.read_only = true;
            item.range = ITEM;
            item.ref_id = first.reg.ref_id;
            again.set(0, item);
            self.push(again, next)?;
        }
        for slot in &place.slots {
            self.state.slot_mut(place.frame, *slot).reg.range = DRAINED;
        }
        self.state.set(0, Reg::constant(0, Birth::Computed, at));
        Ok(Next::Go(next))
    }

    fn destroy(&mut self, function: &KernelFunction) -> Step<()> {
        let place = self.begun(function)?;
        let id = self.state.frames[place.frame]
            .slot(place.slots[0])
            .reg
            .ref_id;
        self.state.release(id, self.at);
        for slot in &place.slots {
            *self.state.slot_mut(place.frame, *slot) = Slot::EMPTY;
            self.state.written[place.frame] |= 1 << slot;
        }
        Ok(())
    }

    /// Whether the iterator that r1 points to has a next, for all that is known.
    pub(super) fn iterator_is_active(&self) -> bool {
        let reg = self.state.reg(1);
        let offset = i64::from(reg.off) + reg.num.value().map_or(0, |v| v as i64);
        if reg.kind != ValueKind::Stack || !(-512..0).contains(&offset) {
            return false;
        }
        let slot = self.state.frames[reg.frame as usize].slot(byte_at(offset).0);
        slot.is_iterator() && slot.reg.range != DRAINED
    }

    /// The iterator that r1 points to, begun with the function's kind.
    fn begun(&mut self, function: &KernelFunction) -> Step<Place> {
        let expected = "an iterator that was begun";
        let place = self.place(function, expected)?;
        for (number, slot) in place.slots.iter().enumerate() {
            let slot = self.state.frames[place.frame].slot(*slot);
            let whole = slot.bytes == [StackByte::Iterator; SLOT];
            let own = slot.reg.map == function.kind as u32;
            if !whole || !own || (slot.reg.ref_id != 0) != (number == 0) {
                return stop_at(
                    1,
                    Rule::IteratorState {
                        function: function.name,
                        expected,
                    },
                );
            }
        }
        for slot in &place.slots {
            self.mark_read(place.frame, 1 << slot);
        }
        Ok(place)
    }

    /// The slots that r1 points to.
    fn place(&mut self, function: &KernelFunction, expected: &'static str) -> Step<Place> {
        let reg = *self.readable(1)?;
        let size = (function.kind.slots() * SLOT) as i64;
        let wrong = Rule::IteratorState {
            function: function.name,
            expected,
        };
        if reg.kind != ValueKind::Stack || reg.num.value().is_none() {
            return stop_at(1, wrong);
        }
        let (offset, _) = self.stack_range(1, 0, size)?;
        if offset % SLOT as i64 != 0 {
            return stop_at(1, wrong);
        }
        let first = byte_at(offset).0;
        Ok(Place {
            frame: reg.frame as usize,
            // Slots count downwards from the frame's end.
            slots: (0..function.kind.slots()).map(|n| first - n).collect(),
        })
    }
}
