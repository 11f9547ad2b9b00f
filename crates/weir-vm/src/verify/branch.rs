//! Conditional jumps: which ways a path can go, and what each way teaches.
//!
//! Owns comparisons of packet pointers with the packet's end, null checks, and the spreading of what one register
//! learned to those that share its identity. Invariant: a branch is left out only if no run takes it.

use super::object::{self, Trust};
use super::rejection::ValueKind;
use super::scalar::{Cond, Scalar};
use super::socket::SocketKind;
use super::state::{ADDED_LOW, AT_END, BEYOND_END, MARKS, Reg, State};
use super::walk::{Next, Step, Walk, Where};
use crate::insn::Op;

/// Offsets into a packet are below this, as in the kernel.
const PACKET_MAX: u64 = 0xffff;
/// Siblings noted for one jump.
const LINKED_MAX: usize = 6;

impl Walk<'_> {
    pub(super) fn branch(&mut self, op: &Op, cond: Cond, wide: bool, imm: bool) -> Step<Next> {
        let here = self.at as usize;
        if !imm {
            self.readable(op.src)?;
        }
        let dst = *self.readable(op.dst)?;
        let src = if imm {
            Reg::constant(op.imm, super::rejection::Birth::Constant, self.at)
        } else {
            *self.state.reg(op.src)
        };
        let target = op.target();
        if let Some(taken) = decided(&dst, &src, cond, wide) {
            if dst.is_number() {
                self.precise(op.dst);
            }
            if !imm && src.is_number() {
                self.precise(op.src);
            }
            self.note_branch(here, taken);
            return Ok(Next::Go(if taken { target } else { here + 1 }));
        }
        self.note_branch(here, true);
        self.note_branch(here, false);
        let linked = self.collect_linked(imm, &dst, &src);
        let mut other = self.state.clone();
        if dst.is_number() && src.is_number() {
            self.learn(&mut other, (op, cond, wide, imm), &src, true, &linked);
            let mut state = std::mem::replace(&mut self.state, other);
            self.learn(&mut state, (op, cond, wide, imm), &src, false, &linked);
            other = std::mem::replace(&mut self.state, state);
        }
        if wide {
            self.learn_null(&mut other, op, cond, imm, &dst, &src);
        }
        if wide && !imm {
            compare_with_end(&mut self.state, &mut other, op, cond, &dst, &src, self.at);
        }
        self.push(other, target)?;
        Ok(Next::Go(here + 1))
    }

    /// `may_goto`: the rounds of its loop are walked until one is covered by an earlier one; how many there are is not known, but there is a
    /// last.
    pub(super) fn may_goto(&mut self, op: &Op) -> Step<Next> {
        let here = self.at as usize;
        self.note_branch(here, true);
        self.note_branch(here, false);
        let mut again = self.state.clone();
        again.rounds += 1;
        let state = std::mem::replace(&mut self.state, again);
        self.widen(self.at, state.parent);
        let again = std::mem::replace(&mut self.state, state);
        self.push(again, here + 1)?;
        Ok(Next::Go(op.target()))
    }

    fn note_branch(&mut self, op: usize, taken: bool) {
        if let Some(facts) = self.facts.op_mut(op) {
            facts.jumps |= taken;
            facts.falls_through |= !taken;
        }
    }

    /// Both operands are numbers: `state` learns the outcome.
    fn learn(
        &self,
        state: &mut State,
        (op, cond, wide, imm): (&Op, Cond, bool, bool),
        src: &Reg,
        taken: bool,
        linked: &[Where],
    ) {
        let mut lhs = state.reg(op.dst).num;
        let mut rhs = src.num;
        if !imm && op.src == op.dst {
            Scalar::refine_itself(cond, wide, taken, &mut lhs);
            rhs = lhs;
        } else {
            Scalar::refine(cond, wide, taken, &mut lhs, &mut rhs);
        }
        let at = self.at;
        let put = |state: &mut State, register: u8, num: Scalar| {
            if state.reg(register).num != num {
                let reg = state.reg_mut(register);
                reg.num = num;
                reg.narrowed = at;
            }
        };
        put(state, op.dst, lhs);
        if !imm {
            put(state, op.src, rhs);
            let known = *state.reg(op.src);
            spread(state, &known, linked);
        }
        let known = *state.reg(op.dst);
        spread(state, &known, linked);
    }

    /// Registers and slots that share an identity with the operands; noted for backtracking when there are several.
    fn collect_linked(&mut self, imm: bool, dst: &Reg, src: &Reg) -> Vec<Where> {
        let mut linked = Vec::new();
        for (used, reg) in [(!imm, src), (true, dst)] {
            if used && reg.is_number() && reg.id != 0 {
                self.collect(reg.id & !MARKS, &mut linked);
            }
        }
        if linked.len() > 1 {
            self.linked.push(linked.clone());
            let number = self.linked.len() as u32;
            if let Some(node) = self.node_mut() {
                node.linked = number;
            }
            self.state.noted += 1;
        }
        linked
    }

    fn collect(&mut self, id: u32, linked: &mut Vec<Where>) {
        let mut lost = Vec::new();
        let last = self.state.depth();
        for (f, frame) in self.state.frames.iter().enumerate().rev() {
            let at = if f == last {
                self.at
            } else {
                self.state.frames[f + 1].call
            };
            let live = self.layout.flow(at as usize).live;
            for (r, reg) in frame.regs.iter().enumerate() {
                if reg.is_number() && reg.id & !MARKS == id && live & (1 << r) != 0 {
                    add(linked, Where::Reg(f as u8, r as u8), &mut lost);
                }
            }
            for (s, slot) in frame.stack.iter().enumerate() {
                if slot.is_number_spill() && slot.reg.id & !MARKS == id {
                    add(linked, Where::Slot(f as u8, s as u8), &mut lost);
                }
            }
        }
        for place in lost {
            let reg = reg_at(&mut self.state, place);
            reg.id = 0;
            reg.off = 0;
        }
    }

    /// Null checks, against 0 or another pointer.
    fn learn_null(
        &mut self,
        other: &mut State,
        op: &Op,
        cond: Cond,
        imm: bool,
        dst: &Reg,
        src: &Reg,
    ) {
        let equal_taken = match cond {
            Cond::Eq => true,
            Cond::Ne => false,
            _ => return,
        };
        if imm && op.imm == 0 && dst.or_null {
            let (null, valid) = if equal_taken {
                (&mut *other, &mut self.state)
            } else {
                (&mut self.state, &mut *other)
            };
            // Splitting the borrow: both sides are changed by the same walk's knowledge of maps.
            let lock_map = self
                .maps
                .get(dst.map as usize)
                .is_some_and(|m| m.definition.has_spin_lock);
            let inner = self.maps.get(dst.map as usize).and_then(|m| m.inner);
            mark_null(null, dst, self.at);
            mark_valid(valid, dst, lock_map, inner, self.at);
            return;
        }
        if imm || !dst.is_pointer() || !src.is_pointer() || dst.or_null == src.or_null {
            return;
        }
        let (maybe, register) = if dst.or_null {
            (dst, op.dst)
        } else {
            (src, op.src)
        };
        let inner = self.maps.get(maybe.map as usize).and_then(|m| m.inner);
        let at = self.at;
        let state = if equal_taken { other } else { &mut self.state };
        make_valid(state.reg_mut(register), inner, at);
    }
}

/// The outcome of a comparison, if it is the same for all runs of the path.
fn decided(dst: &Reg, src: &Reg, cond: Cond, wide: bool) -> Option<bool> {
    if dst.is_packet_any() && src.is_packet_any() {
        return if wide {
            end_decided(dst, src, cond)
        } else {
            None
        };
    }
    if dst.is_number() && src.is_number() {
        return dst.num.decide(cond, wide, &src.num);
    }
    // A pointer that cannot be null against 0.
    let (pointer, number) = if dst.is_pointer() {
        (dst, src)
    } else {
        (src, dst)
    };
    if !wide || !number.is_null() || !never_null(pointer) {
        return None;
    }
    match cond {
        Cond::Eq => Some(false),
        Cond::Ne => Some(true),
        _ => None,
    }
}

fn never_null(reg: &Reg) -> bool {
    if reg.or_null {
        return false;
    }
    match reg.kind {
        ValueKind::MapValue
        | ValueKind::MapKey
        | ValueKind::Record
        | ValueKind::Memory
        | ValueKind::Map => true,
        ValueKind::Socket => reg.map != SocketKind::Xdp as u32,
        ValueKind::Object => reg.ref_id != 0 || object::trust(reg) == Trust::Trusted,
        _ => false,
    }
}

/// Comparisons of a pointer already known to be at or beyond the end.
fn end_decided(dst: &Reg, src: &Reg, cond: Cond) -> Option<bool> {
    let (packet, cond) = if src.kind == ValueKind::PacketEnd {
        (dst, cond)
    } else if dst.kind == ValueKind::PacketEnd {
        (src, mirrored(cond))
    } else {
        return None;
    };
    match (cond, packet.range) {
        (Cond::Le | Cond::Gt, BEYOND_END) => Some(cond == Cond::Gt),
        (Cond::Lt | Cond::Ge, BEYOND_END | AT_END) => Some(cond == Cond::Ge),
        _ => None,
    }
}

/// The condition with its operands exchanged.
fn mirrored(cond: Cond) -> Cond {
    match cond {
        Cond::Gt => Cond::Lt,
        Cond::Ge => Cond::Le,
        Cond::Lt => Cond::Gt,
        Cond::Le => Cond::Ge,
        Cond::Sgt => Cond::Slt,
        Cond::Sge => Cond::Sle,
        Cond::Slt => Cond::Sgt,
        Cond::Sle => Cond::Sge,
        Cond::Eq | Cond::Ne | Cond::Set => cond,
    }
}

/// A packet pointer against the packet's end, or metadata against the packet's start.
fn compare_with_end(
    fallthrough: &mut State,
    taken: &mut State,
    op: &Op,
    cond: Cond,
    dst: &Reg,
    src: &Reg,
    at: u32,
) {
    let start = |r: &Reg| {
        r.kind == ValueKind::Packet && r.id == 0 && r.off == 0 && r.num.value() == Some(0)
    };
    let bounds = |low: &Reg, high: &Reg| {
        (low.kind == ValueKind::Packet && high.kind == ValueKind::PacketEnd)
            || (low.kind == ValueKind::PacketMeta && start(high))
    };
    let (pointer, register, cond) = if bounds(dst, src) {
        (dst, op.dst, cond)
    } else if bounds(src, dst) {
        (src, op.src, mirrored(cond))
    } else {
        return;
    };
    // Where the pointer is below (or at most at) the end, and where it is not.
    let (below, above, open) = match cond {
        Cond::Gt => (fallthrough, taken, false),
        Cond::Ge => (fallthrough, taken, true),
        Cond::Lt => (taken, fallthrough, true),
        Cond::Le => (taken, fallthrough, false),
        _ => return,
    };
    // Not above: pointer <= end, so `off` bytes are there; not at or above: one more.
    learn_range(below, pointer, open, at);
    if pointer.kind == ValueKind::Packet {
        let reg = above.reg_mut(register);
        reg.range = if open { AT_END } else { BEYOND_END };
        reg.narrowed = at;
    }
}

/// `pointer` is at most at the end (`below`: before it): bytes before it are there, for all with the same base.
fn learn_range(state: &mut State, pointer: &Reg, below: bool, at: u32) {
    if pointer.off < 0 || (pointer.off == 0 && !below) {
        return;
    }
    let off = pointer.off as u64;
    if pointer.num.umax > PACKET_MAX || pointer.num.umax + off > PACKET_MAX {
        return;
    }
    let range = pointer.off + i32::from(below);
    let (kind, id) = (pointer.kind, pointer.id);
    state.change_all(
        |r| r.kind == kind && r.id == id && r.range < range,
        |r| {
            r.range = range;
            r.narrowed = at;
        },
    );
}

/// All copies of a pointer are null: they are the number 0, and what they would have held is not held.
fn mark_null(state: &mut State, pointer: &Reg, at: u32) {
    let id = pointer.id;
    // What a cast yields is null although its argument is not.
    if pointer.ref_id != 0 && pointer.ref_id == id {
        state.held.retain(|h| h.id != pointer.ref_id);
    }
    state.change_all(
        |r| r.or_null && r.id == id,
        |r| {
            let mut zero = Reg::constant(0, r.birth, r.born);
            zero.narrowed = at;
            *r = zero;
        },
    );
}

/// All copies of a pointer are valid.
fn mark_valid(state: &mut State, pointer: &Reg, has_lock: bool, inner: Option<u32>, at: u32) {
    let id = pointer.id;
    let keeps_id = has_lock && pointer.kind == ValueKind::MapValue && inner.is_none();
    state.change_all(
        |r| r.or_null && r.id == id,
        |r| {
            make_valid(r, inner, at);
            if !keeps_id {
                r.id = 0;
            }
        },
    );
}

/// A value of a map of maps is a map once it is not null.
fn make_valid(reg: &mut Reg, inner: Option<u32>, at: u32) {
    reg.or_null = false;
    reg.narrowed = at;
    if let (ValueKind::MapValue, Some(inner)) = (reg.kind, inner) {
        reg.kind = ValueKind::Map;
        reg.map = inner;
    }
}

/// What `known` learned holds for its siblings, shifted by their distance.
fn spread(state: &mut State, known: &Reg, linked: &[Where]) {
    if !known.is_number() || known.id == 0 {
        return;
    }
    for place in linked {
        let current = peek(state, *place);
        if !current.is_number()
            || current.id & !MARKS != known.id & !MARKS
            || (current.num == known.num && current.added() == known.added())
        {
            continue;
        }
        // Sums of 32 and of 64 bits say nothing of each other.
        let marks = (current.id | known.id) & MARKS;
        if marks == MARKS {
            continue;
        }
        let reg = reg_at(state, *place);
        let distance = i64::from(reg.added()) - i64::from(known.added());
        if distance == 0 {
            reg.num = known.num;
        } else {
            let shift = Scalar::constant(distance as u64);
            let wide = marks != ADDED_LOW;
            reg.num = known.num.alu(super::scalar::Alu::Add, wide, &shift);
        }
        reg.narrowed = known.narrowed;
    }
}

fn add(linked: &mut Vec<Where>, place: Where, lost: &mut Vec<Where>) {
    if linked.contains(&place) {
        return;
    }
    if linked.len() < LINKED_MAX {
        linked.push(place);
    } else {
        lost.push(place);
    }
}

fn peek(state: &State, place: Where) -> Reg {
    match place {
        Where::Reg(f, r) => state.frames[f as usize].regs[r as usize],
        Where::Slot(f, s) => state.frames[f as usize].slot(s as usize).reg,
    }
}

fn reg_at(state: &mut State, place: Where) -> &mut Reg {
    match place {
        Where::Reg(f, r) => {
            &mut std::rc::Rc::make_mut(&mut state.frames[f as usize]).regs[r as usize]
        }
        Where::Slot(f, s) => &mut state.slot_mut(f as usize, s as usize).reg,
    }
}
