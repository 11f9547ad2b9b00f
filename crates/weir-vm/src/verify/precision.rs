//! Marking what mattered: the search backwards for the origin of a number that a check depended on.
//!
//! Owns the walk back over a path's nodes. Registers are marked precise in every kept state passed, so that no later
//! state is covered there by a different number. Invariant: marks only grow, and cover everything the number was
//! computed from.

use super::helpers;
use super::scalar::Alu;
use super::shape::{Shape, fetched};
use super::state::{Frame, NOWHERE, SlotMasks};
use super::walk::{NO_SLOT, Node, Walk, Where};
use crate::insn::Op;

/// Registers and slots whose origin is sought, by frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sought {
    pub(super) regs: [u16; 8],
    pub(super) slots: SlotMasks,
}

impl Sought {
    fn is_empty(&self) -> bool {
        self.regs == [0; 8] && self.slots == [0; 8]
    }

    fn has(&self, frame: usize, register: u8) -> bool {
        self.regs[frame & 7] & (1 << register) != 0
    }

    fn set(&mut self, frame: usize, register: u8) {
        // The frame pointer is no number.
        if register != 10 {
            self.regs[frame & 7] |= 1 << register;
        }
    }

    fn clear(&mut self, frame: usize, register: u8) {
        self.regs[frame & 7] &= !(1 << register);
    }

    fn contains(&self, place: Where) -> bool {
        match place {
            Where::Reg(f, r) => self.has(f as usize, r),
            Where::Slot(f, s) => self.slots[f as usize & 7] & (1 << s) != 0,
        }
    }

    fn add(&mut self, place: Where) {
        match place {
            Where::Reg(f, r) => self.set(f as usize, r),
            Where::Slot(f, s) => self.slots[f as usize & 7] |= 1 << s,
        }
    }
}

/// Backtracking cannot follow: everything is to be marked.
struct Lost;

impl Walk<'_> {
    /// The number in `register` of the running frame mattered to the current operation.
    pub(super) fn precise(&mut self, register: u8) {
        if !self.state.reg(register).is_number() {
            return;
        }
        let mut sought = Sought::default();
        sought.set(self.state.depth(), register);
        self.seek(sought);
    }

    /// The number stored in a slot mattered to the current operation.
    pub(super) fn precise_slot(&mut self, frame: usize, slot: usize) {
        let mut sought = Sought::default();
        sought.add(Where::Slot(frame as u8, slot as u8));
        self.seek(sought);
    }

    fn seek(&mut self, sought: Sought) {
        let node = self.state.node;
        // The current operation reads; its node is the last.
        let from = self.nodes.get(node as usize).map_or(NOWHERE, |n| n.prev);
        let op = self.at;
        self.backtrack(sought, (from, op), self.state.parent, self.state.depth());
    }

    /// Marks the origins of `sought`, which held before operation `next` behind node `from`, in the kept states from `parent` on.
    ///
    /// Yields whether any mark is new.
    pub(super) fn backtrack(
        &mut self,
        mut sought: Sought,
        (from, next): (u32, u32),
        parent: u32,
        depth: usize,
    ) -> bool {
        let (mut at, mut next, mut parent, mut frame) = (from, next, parent, depth);
        let mut changed = false;
        while parent != NOWHERE && !sought.is_empty() {
            if at == self.kept[parent as usize].state.node {
                changed |= self.mark(parent, &mut sought);
                parent = self.kept[parent as usize].state.parent;
                continue;
            }
            let Some(node) = self.nodes.get(at as usize).copied() else {
                return changed;
            };
            if self
                .step_back(&node, next, &mut sought, &mut frame)
                .is_err()
            {
                return self.mark_everything(parent) || changed;
            }
            next = node.op;
            at = node.prev;
        }
        changed
    }

    /// Marks what is sought in a kept state; what is no number there, or marked before, is not sought further.
    fn mark(&mut self, number: u32, sought: &mut Sought) -> bool {
        let kept = &mut self.kept[number as usize];
        let mut changed = false;
        for f in 0..8 {
            let Some(frame) = kept.state.frames.get(f) else {
                sought.regs[f] = 0;
                sought.slots[f] = 0;
                continue;
            };
            let regs = numbers(frame, sought.regs[f] & !kept.precise[f]);
            let slots = stored_numbers(frame, sought.slots[f] & !kept.precise_slots[f]);
            changed |= regs != 0 || slots != 0;
            kept.precise[f] |= regs;
            kept.precise_slots[f] |= slots;
            sought.regs[f] = regs;
            sought.slots[f] = slots;
        }
        changed
    }

    fn mark_everything(&mut self, from: u32) -> bool {
        let mut at = from;
        let mut changed = false;
        while at != NOWHERE {
            let kept = &mut self.kept[at as usize];
            changed |= kept.precise != [u16::MAX; 8];
            kept.precise = [u16::MAX; 8];
            kept.precise_slots = [u64::MAX; 8];
            at = kept.state.parent;
        }
        changed
    }

    /// Turns what is sought behind an operation into what is sought before it.
    fn step_back(
        &self,
        node: &Node,
        next: u32,
        sought: &mut Sought,
        frame: &mut usize,
    ) -> Result<(), Lost> {
        let op = &self.ops[node.op as usize];
        let shape = self.layout.flow(node.op as usize).shape;
        self.link(node, sought);
        let f = *frame;
        match shape {
            Shape::Alu { op: alu, imm, .. } => {
                if sought.has(f, op.dst) {
                    if alu == Alu::Mov {
                        sought.clear(f, op.dst);
                    }
                    if !imm {
                        sought.set(f, op.src);
                    }
                }
            }
            Shape::SignMove { .. } => {
                if sought.has(f, op.dst) {
                    sought.clear(f, op.dst);
                    sought.set(f, op.src);
                }
            }
            Shape::Bytes => {}
            Shape::LoadImm | Shape::LoadFunction => sought.clear(f, op.dst),
            Shape::Load { .. } => {
                if sought.has(f, op.dst) {
                    sought.clear(f, op.dst);
                    // Only the stack keeps numbers; what comes from elsewhere is the same on every path.
                    if node.slot != NO_SLOT {
                        sought.add(slot(node.slot));
                    }
                }
            }
            Shape::Store { .. } | Shape::StoreImm { .. } => {
                if sought.has(f, op.dst) {
                    return Err(Lost);
                }
                if node.slot != NO_SLOT && sought.contains(slot(node.slot)) {
                    let (at, number) = (node.slot >> 8, node.slot & 0xff);
                    sought.slots[at as usize & 7] &= !(1 << number);
                    if matches!(shape, Shape::Store { .. }) {
                        sought.set(f, op.src);
                    }
                }
            }
            Shape::Atomic { .. } => {
                if let Some(register) = fetched(op) {
                    sought.clear(f, register);
                }
                if sought.has(f, op.dst) {
                    return Err(Lost);
                }
            }
            Shape::Branch { imm, .. } => {
                if !imm && (sought.has(f, op.dst) || sought.has(f, op.src)) {
                    sought.set(f, op.dst);
                    sought.set(f, op.src);
                }
            }
            Shape::PacketLoad { .. } => {
                if next != node.op + 1 {
                    // Out of the function that it ended.
                    *frame = f + 1;
                    if *frame > 7 {
                        return Err(Lost);
                    }
                    sought.clear(f, 0);
                    sought.regs[*frame] = 0;
                    sought.slots[*frame] = 0;
                } else {
                    sought.regs[f & 7] &= !0x3f;
                }
            }
            Shape::Helper => self.step_back_helper(op, node, next, sought, frame)?,
            Shape::Call => self.step_back_call(op, next, sought, frame)?,
            Shape::Exit => {
                // Into the function that returned.
                let result = !node.callback_exit && sought.has(f, 0);
                if !node.callback_exit {
                    sought.clear(f, 0);
                }
                *frame = f + 1;
                if *frame > 7 {
                    return Err(Lost);
                }
                sought.regs[*frame] = if result { 1 } else { 0 };
                sought.slots[*frame] = 0;
            }
            Shape::Jump | Shape::MayGoto => {}
            Shape::CallRegister | Shape::Half | Shape::End | Shape::External | Shape::Invalid => {
                return Err(Lost);
            }
        }
        self.link(node, sought);
        Ok(())
    }

    /// Registers that shared an identity at a jump learned from each other.
    fn link(&self, node: &Node, sought: &mut Sought) {
        let Some(linked) = (node.linked as usize)
            .checked_sub(1)
            .and_then(|i| self.linked.get(i))
        else {
            return;
        };
        if linked.iter().any(|place| sought.contains(*place)) {
            for place in linked {
                sought.add(*place);
            }
        }
    }

    fn step_back_helper(
        &self,
        op: &Op,
        node: &Node,
        next: u32,
        sought: &mut Sought,
        frame: &mut usize,
    ) -> Result<(), Lost> {
        let number = op.imm as u32;
        if next == node.op + 1 {
            // r0 to r5 come from the call.
            sought.regs[*frame & 7] &= !0x3f;
            return Ok(());
        }
        if number == helpers::TAIL_CALL {
            // Out of the frame whose place another program took.
            *frame = (*frame).checked_add(1).filter(|f| *f < 8).ok_or(Lost)?;
            sought.clear(*frame - 1, 0);
            sought.regs[*frame] = 0;
            sought.slots[*frame] = 0;
            return Ok(());
        }
        // Out of the callback, one of whose arguments is the caller's.
        let (context, passed) = helpers::callback_context(number).ok_or(Lost)?;
        let inner = *frame;
        let outer = inner.checked_sub(1).ok_or(Lost)?;
        if sought.has(inner, context) {
            sought.set(outer, passed);
        }
        sought.regs[inner & 7] = 0;
        sought.slots[inner & 7] = 0;
        *frame = outer;
        Ok(())
    }

    fn step_back_call(
        &self,
        op: &Op,
        next: u32,
        sought: &mut Sought,
        frame: &mut usize,
    ) -> Result<(), Lost> {
        if next as usize != op.target() {
            // A global function: its result is any number.
            sought.regs[*frame & 7] &= !0x3f;
            return Ok(());
        }
        let inner = *frame;
        let outer = inner.checked_sub(1).ok_or(Lost)?;
        let arguments = sought.regs[inner & 7] & 0x3e;
        sought.regs[inner & 7] = 0;
        sought.slots[inner & 7] = 0;
        sought.regs[outer & 7] |= arguments;
        *frame = outer;
        Ok(())
    }
}

/// Those of `regs` that are numbers in `frame`.
pub(super) fn numbers(frame: &Frame, regs: u16) -> u16 {
    let (mut left, mut kept) = (regs, regs);
    while left != 0 {
        let register = left.trailing_zeros();
        left &= left - 1;
        if !frame.regs[register as usize % 11].is_number() {
            kept &= !(1 << register);
        }
    }
    kept
}

/// Those of `slots` that hold a stored number in `frame`.
pub(super) fn stored_numbers(frame: &Frame, slots: u64) -> u64 {
    let (mut left, mut kept) = (slots, slots);
    while left != 0 {
        let slot = left.trailing_zeros();
        left &= left - 1;
        if !frame.slot(slot as usize).is_number_spill() {
            kept &= !(1 << slot);
        }
    }
    kept
}

fn slot(noted: u16) -> Where {
    Where::Slot((noted >> 8) as u8, noted as u8)
}
