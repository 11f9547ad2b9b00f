//! Keeping and comparing states: when a path need not be walked again.
//!
//! Owns the decision to keep a state, the comparison, and what happens when a state is covered: the marks of the state
//! that covers it hold for the covered path, too. A covering state in a loop that is not finished has no final marks; such
//! coverings are remembered as back edges and settled when the outermost loop is finished. Invariant: a state is covered
//! only if every run that it describes behaves, as far as the rules see, like one walked from the covering state.

use std::rc::Rc;

use super::precision::{Sought, numbers, stored_numbers};
use super::rejection::{Birth, Rule, ValueKind};
use super::scalar::Scalar;
use super::state::{Frame, MARKS, NOWHERE, Reg, SLOT, Slot, StackByte, State};
use super::walk::{Kept, Step, Walk, stop};

/// How states are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Numbers that did not matter and slots that are not read do not count.
    Loose,
    /// All live numbers must lie within the old ones: the old state's marks are not final.
    Within,
    /// Equal.
    Exact,
}

/// Pairs of identities: old and new.
struct Pairing<'s> {
    pairs: &'s mut Vec<(u32, u32)>,
    /// For numbers without identity: each is its own.
    fresh: u32,
    /// Stack that was never written reads as any number.
    unwritten_reads: bool,
}

impl Pairing<'_> {
    fn same(&mut self, old: u32, new: u32) -> bool {
        if (old == 0) != (new == 0) {
            return false;
        }
        if old == 0 {
            return true;
        }
        for (o, n) in self.pairs.iter() {
            if *o == old {
                return *n == new;
            }
            if *n == new {
                return false;
            }
        }
        self.pairs.push((old, new));
        true
    }

    fn same_number(&mut self, old: u32, new: u32) -> bool {
        let named = |id: u32, fresh: &mut u32| {
            if id == 0 {
                *fresh += 1;
                *fresh
            } else {
                id
            }
        };
        let old = named(old, &mut self.fresh);
        let new = named(new, &mut self.fresh);
        self.same(old, new)
    }
}

impl Walk<'_> {
    /// Whether the state at `op` is covered by a kept one; keeps it if that seems worth while.
    pub(super) fn covered(&mut self, op: usize) -> Step<bool> {
        let flow = *self.layout.flow(op);
        let force = flow.calls_back || flow.converges || self.state.noted > 40;
        let mut keep = force
            || (self.jumps - self.kept_jumps >= 2 && self.processed - self.kept_processed >= 8);
        let mut list = std::mem::take(&mut self.kept_at[op]);
        let mut i = 0;
        let mut hit = None;
        // Newest first.
        while i < list.len() {
            let number = list[list.len() - 1 - i];
            let kept = &self.kept[number as usize];
            let open = kept.branches > 0;
            if open {
                let next_round = kept.state.rounds != self.state.rounds;
                if flow.converges
                    && next_round
                    && self.may_converge(op)
                    && self.covers(number, How::Within)
                {
                    hit = Some((number, true));
                    break;
                }
                if flow.calls_back {
                    if self.covers(number, How::Within) {
                        hit = Some((number, true));
                        break;
                    }
                } else if self.looks_endless(number) && self.covers(number, How::Exact) {
                    self.kept_at[op] = list;
                    return stop(Rule::EndlessLoop { entry: op });
                } else if !force
                    && self.jumps - self.kept_jumps < 20
                    && self.processed - self.kept_processed < 100
                {
                    keep = false;
                }
            } else {
                let provisional = self.is_provisional(number);
                let strict = provisional || self.recording.is_some();
                let how = if strict { How::Within } else { How::Loose };
                if self.covers(number, how) {
                    hit = Some((number, provisional));
                    break;
                }
            }
            let kept = &mut self.kept[number as usize];
            if keep {
                kept.misses += 1;
            }
            let patience = if force && kept.branches > 0 { 64 } else { 3 };
            if kept.misses > kept.hits * patience + patience {
                let last = list.len() - 1 - i;
                list.remove(last);
                self.kept_now -= 1;
                continue;
            }
            i += 1;
        }
        self.kept_at[op] = list;
        if let Some((number, looped)) = hit {
            self.kept[number as usize].hits += 1;
            self.hand_over(number, looped);
            return Ok(true);
        }
        if keep {
            self.keep(op)?;
        }
        Ok(false)
    }

    fn keep(&mut self, op: usize) -> Step<()> {
        let number = self.kept.len() as u32;
        // The running frame will be copied when it is next written; those of its callers are shared.
        let frame = self.state.frame();
        self.kept_bytes +=
            (size_of::<Kept>() + size_of::<Frame>() + frame.stack.len() * size_of::<Slot>()) as u64;
        let bytes = self.options.state_bytes;
        if self.kept_bytes > bytes {
            return stop(Rule::StateMemory { bytes });
        }
        self.kept.push(Kept {
            state: self.state.clone(),
            op: op as u32,
            branches: 1,
            precise: [0; 8],
            precise_slots: [0; 8],
            read: [0; 8],
            written: self.state.written,
            hits: 0,
            misses: 0,
        });
        self.kept_at[op].push(number);
        self.kept_now += 1;
        self.peak = self.peak.max(self.kept_now);
        self.state.parent = number;
        self.state.written = [0; 8];
        self.state.noted = 0;
        self.kept_jumps = self.jumps;
        self.kept_processed = self.processed;
        Ok(())
    }

    /// The current path has come to its end.
    pub(super) fn path_ended(&mut self) {
        let mut at = self.state.parent;
        while at != NOWHERE {
            let kept = &mut self.kept[at as usize];
            kept.branches -= 1;
            if kept.branches > 0 {
                return;
            }
            let parent = kept.state.parent;
            if self.loop_root == Some(at) {
                self.settle();
            }
            at = parent;
        }
    }

    /// Whether the marks of a finished state may still grow.
    fn is_provisional(&self, number: u32) -> bool {
        let Some(root) = self.loop_root else {
            return false;
        };
        let kept = &self.kept[number as usize];
        let loops = |op: u32| self.layout.flow(op as usize).in_loop;
        number > root
            && (loops(kept.op)
                || kept
                    .state
                    .frames
                    .iter()
                    .any(|f| f.call != NOWHERE && loops(f.call)))
    }

    /// The current state is covered by `number`: what mattered there matters on the current path.
    fn hand_over(&mut self, number: u32, looped: bool) {
        let state = std::mem::replace(&mut self.state, State::EMPTY);
        self.hand_marks(number, &state, self.at);
        self.state = state;
        if !looped {
            return;
        }
        let root = if self.kept[number as usize].branches > 0 {
            number
        } else {
            // A provisional state depends on the root.
            self.loop_root.unwrap_or(number)
        };
        self.loop_root = Some(self.loop_root.map_or(root, |old| old.min(root)));
        self.backedges.push((number, self.state.clone()));
    }

    /// Marks of `number` spread to the path of `state`, which it covers.
    fn hand_marks(&mut self, number: u32, state: &State, op: u32) -> bool {
        let mut sought = Sought::default();
        let mut changed = false;
        for f in 0..state.frames.len() {
            let kept = &self.kept[number as usize];
            let Some(old) = kept.state.frames.get(f) else {
                continue;
            };
            let live = self.live_in(&kept.state, number, f);
            sought.regs[f] = numbers(old, kept.precise[f] & live & 0x3ff);
            sought.slots[f] = stored_numbers(old, kept.precise_slots[f]);
            let read = kept.read[f];
            changed |= self.mark_read_from(state, f, read);
        }
        changed | self.backtrack(sought, (state.node, op), state.parent, state.depth())
    }

    /// As `mark_read`, for a path other than the current one; whether any mark is new.
    fn mark_read_from(&mut self, state: &State, frame: usize, slots: u64) -> bool {
        let mut wanted = slots & !state.written[frame];
        let mut at = state.parent;
        let mut changed = false;
        while wanted != 0 && at != NOWHERE {
            let kept = &mut self.kept[at as usize];
            wanted &= !kept.read[frame];
            changed |= wanted != 0;
            kept.read[frame] |= wanted;
            wanted &= !kept.written[frame];
            at = kept.state.parent;
        }
        changed
    }

    /// The outermost loop is finished: back edges hand marks over until nothing is new.
    fn settle(&mut self) {
        let backedges = std::mem::take(&mut self.backedges);
        loop {
            let mut changed = false;
            for (number, state) in &backedges {
                let op = self.kept[*number as usize].op;
                changed |= self.hand_marks(*number, state, op);
            }
            if !changed {
                break;
            }
        }
        self.loop_root = None;
    }

    /// Registers of frame `f` of a kept state that are read later.
    fn live_in(&self, state: &State, number: u32, f: usize) -> u16 {
        let op = match state.frames.get(f + 1) {
            Some(inner) => inner.call,
            None => self.kept[number as usize].op,
        };
        self.layout.flow(op as usize).live
    }

    /// A quick look before the exact comparison with an ancestor.
    fn looks_endless(&self, number: u32) -> bool {
        let old = &self.kept[number as usize].state;
        if old.frames.len() != self.state.frames.len()
            || old.unrolled != self.state.unrolled
            || old.rounds != self.state.rounds
        {
            return false;
        }
        let (a, b) = (old.frame(), self.state.frame());
        a.regs
            .iter()
            .zip(&b.regs)
            .all(|(x, y)| x.same_facts(y) && x.id == y.id && x.ref_id == y.ref_id)
    }

    /// Whether kept state `number` covers the current one.
    fn covers(&mut self, number: u32, how: How) -> bool {
        let mut pairs = std::mem::take(&mut self.scratch);
        pairs.clear();
        let kept = &self.kept[number as usize];
        let mut pairing = Pairing {
            pairs: &mut pairs,
            fresh: self.next_id & !MARKS,
            unwritten_reads: self.options.unwritten_stack,
        };
        let result = self.compare(kept, how, &mut pairing);
        self.scratch = pairs;
        result
    }

    fn compare(&self, kept: &Kept, how: How, pairing: &mut Pairing<'_>) -> bool {
        let (old, new) = (&kept.state, &self.state);
        if old.frames.len() != new.frames.len()
            || old.held.len() != new.held.len()
            || (old.rcu, old.preempt) != (new.rcu, new.preempt)
        {
            return false;
        }
        for (a, b) in old.held.iter().zip(&new.held) {
            if a.kind != b.kind || !pairing.same(a.id, b.id) {
                return false;
            }
        }
        match (old.lock, new.lock) {
            (None, None) => {}
            (Some(a), Some(b)) => {
                if a.map != b.map || !pairing.same(a.id, b.id) {
                    return false;
                }
            }
            _ => return false,
        }
        let last = old.frames.len() - 1;
        for f in 0..=last {
            let (a, b) = (&old.frames[f], &new.frames[f]);
            if a.call != b.call
                || a.function != b.function
                || a.callback != b.callback
                || a.callback_depth > b.callback_depth
            {
                return false;
            }
        }
        // The running frame differs most often.
        (0..=last).rev().all(|f| {
            let op = match old.frames.get(f + 1) {
                Some(inner) => inner.call,
                None => kept.op,
            };
            let live = self.layout.flow(op as usize).live;
            let (a, b) = (&old.frames[f], &new.frames[f]);
            if Rc::ptr_eq(a, b) && how != How::Exact {
                return same_frame(a, (live, kept.read[f]), how, pairing);
            }
            compare_regs(a, b, (live, kept.precise[f]), how, pairing)
                && compare_stack(a, b, (kept.read[f], kept.precise_slots[f]), how, pairing)
        })
    }

    /// Numbers that differ between the last round and this one and do not matter become unknown. The last round is the newest state kept at
    /// operation `call` but for `this`.
    pub(super) fn widen(&mut self, call: u32, this: u32) {
        let previous = self.kept_at[call as usize].iter().rev().copied().find(|n| {
            let kept = &self.kept[*n as usize];
            *n != this
                && kept.branches > 0
                && kept.state.frames.len() == self.state.frames.len()
                && kept
                    .state
                    .frames
                    .iter()
                    .zip(&self.state.frames)
                    .all(|(a, b)| a.call == b.call)
        });
        let Some(previous) = previous else {
            return;
        };
        let at = self.at;
        let widened = |reg: &mut Reg| {
            *reg = Reg::unknown(Birth::Computed, at);
        };
        for f in 0..self.state.frames.len() {
            let kept = &self.kept[previous as usize];
            let old = Rc::clone(&kept.state.frames[f]);
            let (precise, precise_slots) = (kept.precise[f], kept.precise_slots[f]);
            if Rc::ptr_eq(&old, &self.state.frames[f]) {
                continue;
            }
            for (r, before) in old.regs.iter().enumerate().take(10) {
                let now = &self.state.frames[f].regs[r];
                let differs = before.is_number()
                    && now.is_number()
                    && precise & (1 << r) == 0
                    && now.num != before.num;
                if differs {
                    widened(&mut Rc::make_mut(&mut self.state.frames[f]).regs[r]);
                }
            }
            for (s, before) in old.stack.iter().enumerate() {
                let now = self.state.frames[f].slot(s);
                let differs = before.is_number_spill()
                    && now.is_number_spill()
                    && precise_slots & (1 << s) == 0
                    && now.reg.num != before.reg.num;
                if differs {
                    widened(&mut self.state.slot_mut(f, s).reg);
                }
            }
        }
    }
}

/// The same frame in both states: only identities need pairing, with themselves.
fn same_frame(
    frame: &Frame,
    (live, read): (u16, u64),
    how: How,
    pairing: &mut Pairing<'_>,
) -> bool {
    let counts = |mask: u64, at: usize| how != How::Loose || mask & (1 << at) != 0;
    let regs = frame.regs.iter().enumerate();
    let regs = regs.filter(|(r, _)| live & (1 << r) != 0).map(|(_, r)| r);
    let slots = frame.stack.iter().enumerate();
    let slots =
        slots.filter(|(s, slot)| (slot.is_spill() || slot.is_special()) && counts(read, *s));
    regs.chain(slots.map(|(_, s)| &s.reg)).all(|r| {
        let id = r.id & !MARKS;
        [id, r.ref_id, r.dynptr]
            .into_iter()
            .all(|id| id == 0 || pairing.same(id, id))
    })
}

fn compare_regs(
    old: &Frame,
    new: &Frame,
    (live, precise): (u16, u16),
    how: How,
    pairing: &mut Pairing<'_>,
) -> bool {
    (0..11).all(|r| {
        let bit = 1 << r;
        live & bit == 0 || compare_reg(&old.regs[r], &new.regs[r], precise & bit != 0, how, pairing)
    })
}

fn compare_reg(old: &Reg, new: &Reg, precise: bool, how: How, pairing: &mut Pairing<'_>) -> bool {
    if how == How::Exact {
        return old.same_facts(new)
            && pairing.same(old.id, new.id)
            && pairing.same(old.ref_id, new.ref_id);
    }
    if old.kind == ValueKind::Uninitialised {
        return true;
    }
    if old.kind != new.kind || old.or_null != new.or_null || old.read_only != new.read_only {
        return false;
    }
    match old.kind {
        ValueKind::Number => {
            if !precise && how == How::Loose {
                return true;
            }
            let added = old.id & MARKS;
            added == new.id & MARKS
                && (added == 0 || old.off == new.off)
                && pairing.same_number(old.id & !MARKS, new.id & !MARKS)
                && new.num.within(&old.num)
        }
        ValueKind::Packet | ValueKind::PacketMeta => {
            let range = if old.range < 0 || new.range < 0 {
                old.range == new.range
            } else {
                old.range <= new.range
            };
            range && old.off == new.off && pairing.same(old.id, new.id) && new.num.within(&old.num)
        }
        ValueKind::MapValue | ValueKind::MapKey | ValueKind::Record | ValueKind::Memory => {
            old.map == new.map
                && old.off == new.off
                && old.range == new.range
                && old.frame == new.frame
                && pairing.same(old.dynptr, new.dynptr)
                && new.num.within(&old.num)
                && pairing.same(old.id, new.id)
                && pairing.same(old.ref_id, new.ref_id)
        }
        _ => {
            old.same_facts(new)
                && pairing.same(old.id, new.id)
                && pairing.same(old.ref_id, new.ref_id)
        }
    }
}

fn compare_stack(
    old: &Frame,
    new: &Frame,
    (read, precise): (u64, u64),
    how: How,
    pairing: &mut Pairing<'_>,
) -> bool {
    if how == How::Exact {
        return old.stack.len() == new.stack.len()
            && old.stack.iter().zip(new.stack.iter()).all(|(a, b)| {
                a.bytes == b.bytes
                    && (!(a.is_spill() || a.is_special())
                        || compare_reg(&a.reg, &b.reg, true, how, pairing))
            });
    }
    old.stack.iter().enumerate().all(|(s, slot)| {
        let bit = 1 << s;
        if how == How::Loose && read & bit == 0 {
            return true;
        }
        compare_slot(slot, new.slot(s), precise & bit != 0, how, pairing)
    })
}

fn compare_slot(
    old: &Slot,
    new: &Slot,
    precise: bool,
    how: How,
    pairing: &mut Pairing<'_>,
) -> bool {
    // A stored number and bytes of anything describe the same.
    if let (Some(a), Some(b)) = (
        whole_number(old, pairing.unwritten_reads),
        whole_number(new, pairing.unwritten_reads),
    ) {
        return compare_reg(&a, &b, precise, how, pairing);
    }
    for byte in 0..SLOT {
        let (a, b) = (old.bytes[byte], new.bytes[byte]);
        match (a, b) {
            // Reading these yields any number; only parts of a stored register, once broken, cannot be read.
            (StackByte::Misc | StackByte::Invalid, StackByte::Spill)
                if !new.is_spill() || new.reg.kind == ValueKind::Uninitialised =>
            {
                return false;
            }
            (StackByte::Misc | StackByte::Invalid, StackByte::Iterator | StackByte::Dynptr) => {
                return false;
            }
            (StackByte::Misc, StackByte::Invalid) if !pairing.unwritten_reads => return false,
            (StackByte::Misc | StackByte::Invalid, _) => {}
            _ if a != b => return false,
            _ => {}
        }
    }
    if old.is_spill() || old.is_special() {
        return compare_reg(&old.reg, &new.reg, precise, how, pairing);
    }
    true
}

/// What eight bytes hold as one number, if that is what they hold.
fn whole_number(slot: &Slot, unwritten_reads: bool) -> Option<Reg> {
    if slot.is_whole_number_spill() {
        return Some(slot.reg);
    }
    slot.is_all_misc(unwritten_reads).then(|| {
        let mut reg = Reg::unknown(Birth::Nothing, 0);
        reg.num = Scalar::UNKNOWN;
        reg
    })
}
