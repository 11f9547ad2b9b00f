//! Open-coded iterators: their state on the stack, and the loops they end.
//!
//! Owns what a program may do with an iterator, as Linux 6.18 has it: it is begun, asked for the next until there is none, and
//! destroyed. A loop through `next` is walked until a round is covered by an earlier one (see `prune`). Invariant: an iterator's slots
//! hold its kind (`map`), whether it is used up (`range`), and in the first slot the reference that destroying it releases.

use super::object::Trust;
use super::rejection::{Birth, Rule, ValueKind};
use super::stack::{Stored, byte_at};
use super::state::{Held, Reg, SLOT, Slot, StackByte};
use super::walk::{Next, Step, Walk, stop_at};
use crate::catalogue::{KernelFunction, flags};
use crate::signature::{Signature, Target, Value};

/// `range` of an iterator that has no next.
const DRAINED: i32 = 1;

/// Where an iterator lies: frame and slots, the first at the lowest address.
pub(super) struct Place {
    frame: usize,
    slots: Vec<usize>,
}

impl Walk<'_> {
    /// The slots that an iterator of a function's type takes where r1 points.
    pub(super) fn iterator_slots(
        &mut self,
        function: &'static KernelFunction,
        target: &Target,
    ) -> Step<Place> {
        let free = "memory that holds no iterator yet";
        let size = match target {
            Target::Plain { size, .. } => *size as usize,
            _ => 0,
        };
        let place = self.place(function, size / SLOT, free)?;
        let taken = |slot: &usize| self.state.frames[place.frame].slot(*slot).is_iterator();
        if place.slots.is_empty() || place.slots.iter().any(taken) {
            return stop_at(
                1,
                Rule::IteratorState {
                    function: function.name,
                    expected: free,
                },
            );
        }
        Ok(place)
    }

    pub(super) fn begin(&mut self, function: &'static KernelFunction, place: Place) -> Step<()> {
        for number in 0..place.slots.len() {
            self.stack_store(1, (number * SLOT) as i32, SLOT, Stored::Anything)?;
        }
        let id = self.new_id();
        self.state.held.push(Held {
            id,
            at: self.at,
            kind: ValueKind::Iterator,
        });
        for (number, slot) in place.slots.iter().enumerate() {
            let mut reg = Reg::pointer(ValueKind::Iterator, Birth::Computed, self.at);
            reg.map = iterator(function);
            reg.ref_id = if number == 0 { id } else { 0 };
            reg.frame = if function.has(flags::RCU_PROTECTED) {
                Trust::Rcu as u8
            } else {
                Trust::Trusted as u8
            };
            let target = self.state.slot_mut(place.frame, *slot);
            target.bytes = [StackByte::Iterator; SLOT];
            target.reg = reg;
            self.state.written[place.frame] |= 1 << slot;
        }
        Ok(())
    }

    pub(super) fn next_item(
        &mut self,
        function: &'static KernelFunction,
        signature: &Signature,
    ) -> Step<Next> {
        let place = self.begun(function, signature)?;
        let first = *self.state.frames[place.frame].slot(place.slots[0]);
        let (at, next) = (self.at, self.at as usize + 1);
        let mut item = Reg::pointer(ValueKind::Memory, Birth::Computed, at);
        match &signature.result {
            Value::Pointer(Target::Struct { id, .. } | Target::Plain { id, .. })
                if self.is_struct(*id) =>
            {
                item.kind = ValueKind::Object;
                item.map = *id;
                item.frame = first.reg.frame;
            }
            Value::Pointer(Target::Plain { size, .. }) => {
                item.read_only = true;
                item.range = i32::try_from(*size).unwrap_or(0);
                item.ref_id = first.reg.ref_id;
            }
            _ => return self.unknown(function.name),
        }
        self.state.clobber(at);
        if first.reg.range != DRAINED {
            let mut again = self.state.clone();
            again.rounds += 1;
            let state = std::mem::replace(&mut self.state, again);
            self.widen(at, state.parent);
            let mut again = std::mem::replace(&mut self.state, state);
            again.set(0, item);
            self.push(again, next)?;
        }
        for slot in &place.slots {
            self.state.slot_mut(place.frame, *slot).reg.range = DRAINED;
        }
        self.state.set(0, Reg::constant(0, Birth::Computed, at));
        Ok(Next::Go(next))
    }

    pub(super) fn destroy(
        &mut self,
        function: &'static KernelFunction,
        signature: &Signature,
    ) -> Step<()> {
        let place = self.begun(function, signature)?;
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
    fn begun(&mut self, function: &'static KernelFunction, signature: &Signature) -> Step<Place> {
        let expected = "an iterator that was begun";
        let size = match signature.parameters.first().map(|p| &p.value) {
            Some(Value::Pointer(Target::Plain { size, .. })) => *size as usize,
            _ => 0,
        };
        let place = self.place(function, size / SLOT, expected)?;
        let wrong = |expected| {
            stop_at(
                1,
                Rule::IteratorState {
                    function: function.name,
                    expected,
                },
            )
        };
        if place.slots.is_empty() {
            return wrong(expected);
        }
        for (number, slot) in place.slots.iter().enumerate() {
            let slot = self.state.frames[place.frame].slot(*slot);
            let whole = slot.bytes == [StackByte::Iterator; SLOT];
            let own = slot.reg.map == iterator(function);
            if !whole || !own || (slot.reg.ref_id != 0) != (number == 0) {
                return wrong(expected);
            }
            if slot.reg.frame == Trust::Untrusted as u8 {
                return wrong("an iterator whose RCU section is still open");
            }
        }
        for slot in &place.slots {
            self.mark_read(place.frame, 1 << slot);
        }
        Ok(place)
    }

    /// The slots that r1 points to.
    fn place(
        &mut self,
        function: &'static KernelFunction,
        slots: usize,
        expected: &'static str,
    ) -> Step<Place> {
        let reg = *self.readable(1)?;
        let wrong = Rule::IteratorState {
            function: function.name,
            expected,
        };
        if reg.kind != ValueKind::Stack || reg.num.value().is_none() {
            return stop_at(1, wrong);
        }
        let (offset, _) = self.stack_range(1, 0, (slots * SLOT) as i64)?;
        if offset % SLOT as i64 != 0 {
            return stop_at(1, wrong);
        }
        let first = byte_at(offset).0;
        Ok(Place {
            frame: reg.frame as usize,
            // Slots count downwards from the frame's end.
            slots: (0..slots).map(|n| first - n).collect(),
        })
    }
}

/// Which kind of iterator a function works on.
fn iterator(function: &KernelFunction) -> u32 {
    function.iterator().unwrap_or(u32::MAX)
}
