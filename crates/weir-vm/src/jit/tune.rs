//! What makes a function's code shorter before it is written: byte loads joined to wide ones, lookups with known keys, and
//! operations whose result nobody reads.
//!
//! Owns the facts of straight pieces of code and the liveness of registers. Compilers for eBPF read unaligned fields byte by
//! byte, because its machines need not be able to do otherwise; x86-64 is. Invariant: the registers that anything reads, and
//! memory, are what they would be without; a wide load reads exactly the bytes that byte loads would have read before it.

use super::asm::Width;
use super::flow::{Function, Plan, is_branch};
use super::lookup;
use crate::insn::{Kind, Op};
use crate::maps::{Lookup, Map};

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tuned {
    /// What it says.
    #[default]
    Plain,
    /// Nothing: nobody reads its result.
    Dead,
    /// A load in place of the last of several operations.
    Wide(Wide),
    /// A lookup in an array whose index is known.
    Element(u32),
}

/// A load of several bytes, the first one the lowest, or the highest if `swapped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wide {
    pub(super) base: u8,
    pub(super) offset: i32,
    pub(super) width: Width,
    pub(super) swapped: bool,
}

/// Tunes one function; branches that turn out to be decided are noted in `plan`.
pub(super) fn tune(
    ops: &[Op],
    maps: &[Map],
    plan: &mut Plan,
    function: &Function,
    tuned: &mut [Tuned],
) {
    let targets = targets(ops, plan, function);
    let mut known = Known::default();
    let mut last = None;
    for pc in function.ops.iter().copied() {
        let Some(op) = ops.get(pc) else {
            continue;
        };
        let follows = last.is_some_and(|last: usize| {
            pc == last + 1 || (pc == last + 2 && ops.get(last + 1).is_some_and(is_half))
        });
        if !follows || targets.binary_search(&pc).is_ok() {
            known = Known::default();
        }
        last = Some(pc);
        step(op, pc, maps, plan, &mut known, tuned);
    }
    remove_dead(ops, maps, plan, function, tuned);
}

fn is_half(op: &Op) -> bool {
    op.kind == Kind::Half
}

/// Operations that jumps lead to, sorted.
fn targets(ops: &[Op], plan: &Plan, function: &Function) -> Vec<usize> {
    let mut targets: Vec<usize> = function
        .ops
        .iter()
        .filter_map(|pc| ops.get(*pc).map(|op| (*pc, op)))
        .filter(|(pc, op)| op.kind == Kind::Ja || (is_branch(op.kind) && !plan.op(*pc).stays))
        .map(|(_, op)| op.target())
        .collect();
    targets.push(function.entry);
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Contents of a register as far as they matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Value {
    #[default]
    Unknown,
    Number(u64),
    /// R10 and an offset.
    Frame(i32),
    /// An address that is not null.
    NotNull,
    /// Bytes loaded from `base + offset` while `base` was in its version, shifted up.
    Bytes {
        base: u8,
        version: u32,
        offset: i32,
        count: u8,
        shift: u8,
        /// The byte at the lowest address is the highest.
        swapped: bool,
    },
}

/// What is known at a place of straight code.
#[derive(Default)]
struct Known {
    registers: [Value; 11],
    /// How often each register was written.
    versions: [u32; 11],
    /// 32-bit numbers in the frame, by offset from R10.
    stack: Vec<(i32, u32)>,
}

impl Known {
    fn get(&self, register: u8) -> Value {
        if register == 10 {
            return Value::Frame(0);
        }
        let value = self.registers.get(register as usize);
        value.copied().unwrap_or_default()
    }

    fn set(&mut self, register: u8, value: Value) {
        if let Some(slot) = self.registers.get_mut(register as usize) {
            *slot = value;
        }
        if let Some(version) = self.versions.get_mut(register as usize) {
            *version += 1;
        }
    }

    fn version(&self, register: u8) -> u32 {
        self.versions.get(register as usize).copied().unwrap_or(0)
    }

    /// Memory changes somewhere: what was loaded may not be there any more.
    fn forget_loads(&mut self) {
        for value in &mut self.registers {
            if matches!(value, Value::Bytes { .. }) {
                *value = Value::Unknown;
            }
        }
    }

    fn store(&mut self, base: Value, offset: i32, width: Width, number: Option<u64>) {
        self.forget_loads();
        let Value::Frame(start) = base else {
            self.stack.clear();
            return;
        };
        let (at, end) = (start + offset, start + offset + width.bytes() as i32);
        self.stack.retain(|(o, _)| *o + 4 <= at || *o >= end);
        let Some(number) = number else {
            return;
        };
        if matches!(width, Width::B4 | Width::B8) {
            self.stack.push((at, number as u32));
        }
        if width == Width::B8 {
            self.stack.push((at + 4, (number >> 32) as u32));
        }
    }
}

fn step(op: &Op, pc: usize, maps: &[Map], plan: &mut Plan, known: &mut Known, tuned: &mut [Tuned]) {
    use Kind::*;
    let mut note = |what: Tuned| {
        if let Some(slot) = tuned.get_mut(pc) {
            *slot = what;
        }
    };
    match op.kind {
        Mov64K => known.set(op.dst, Value::Number(op.imm)),
        Mov32K => known.set(op.dst, Value::Number(u64::from(op.imm as u32))),
        Mov64X => known.set(op.dst, known.get(op.src)),
        Add64K => {
            let value = match known.get(op.dst) {
                Value::Frame(offset) => Value::Frame(offset.wrapping_add(op.imm as i32)),
                _ => Value::Unknown,
            };
            known.set(op.dst, value);
        }
        Ldx8 | Ldx16 | Ldx32 if !plan.op(pc).context => {
            let count = match op.kind {
                Ldx8 => 1,
                Ldx16 => 2,
                _ => 4,
            };
            let value = Value::Bytes {
                base: op.src,
                version: known.version(op.src),
                offset: op.off,
                count,
                shift: 0,
                swapped: false,
            };
            // A base that the load itself overwrites is gone.
            known.set(
                op.dst,
                if op.src == op.dst {
                    Value::Unknown
                } else {
                    value
                },
            );
        }
        Lsh64K | Lsh32K => {
            let room = if op.kind == Lsh64K { 64 } else { 32 };
            let value = shifted(known.get(op.dst), op.imm, room);
            known.set(op.dst, value);
        }
        Or64X | Or32X => {
            let room = if op.kind == Or64X { 64 } else { 32 };
            let value = joined(known.get(op.dst), known.get(op.src), room);
            if let Value::Bytes {
                base,
                version,
                offset,
                count,
                shift: 0,
                swapped,
            } = value
                && version == known.version(base)
                && let Some(width) = whole(count)
            {
                note(Tuned::Wide(Wide {
                    base,
                    offset,
                    width,
                    swapped,
                }));
            }
            let replaced = matches!(value, Value::Bytes { base, .. } if base == op.dst);
            known.set(op.dst, if replaced { Value::Unknown } else { value });
        }
        Stx8 | Stx16 | Stx32 | Stx64 => {
            let number = match known.get(op.src) {
                Value::Number(n) => Some(n),
                _ => None,
            };
            known.store(known.get(op.dst), op.off, stored(op.kind), number);
        }
        St8 | St16 | St32 | St64 => {
            known.store(known.get(op.dst), op.off, stored(op.kind), Some(op.imm));
        }
        Helper => {
            let key = match known.get(2) {
                Value::Frame(offset) => known.stack.iter().find(|(o, _)| *o == offset),
                _ => None,
            };
            let map = plan.op(pc).map.and_then(|m| maps.get(m));
            let index = key
                .map(|(_, index)| *index)
                .filter(|index| op.imm == 1 && map.is_some_and(|m| has_element(m, *index)));
            // Only what writes no memory of the program leaves its numbers where they are.
            let looks = op.imm == 1 && map.is_some_and(lookup::is_inlined);
            if !looks {
                known.stack.clear();
            }
            known.forget_loads();
            for register in 0..=5 {
                known.set(register, Value::Unknown);
            }
            if let Some(index) = index {
                note(Tuned::Element(index));
                known.set(0, Value::NotNull);
            }
        }
        Call => *known = Known::default(),
        Atomic32 | Atomic64 => *known = Known::default(),
        Jeq64K | Jne64K if op.imm == 0 && known.get(op.dst) == Value::NotNull => {
            if let Some(planned) = plan.ops.get_mut(pc) {
                planned.stays |= op.kind == Jeq64K;
                planned.goes |= op.kind == Jne64K;
            }
        }
        kind if (kind as u8) >= Ja as u8 => {}
        _ => known.set(op.dst, Value::Unknown),
    }
}

fn has_element(map: &Map, index: u32) -> bool {
    matches!(map.lookup_method(), Lookup::Array(_)) && index < map.definition().max_entries
}

fn stored(kind: Kind) -> Width {
    use Kind::*;
    match kind {
        Stx8 | St8 => Width::B1,
        Stx16 | St16 => Width::B2,
        Stx32 | St32 => Width::B4,
        _ => Width::B8,
    }
}

fn whole(count: u8) -> Option<Width> {
    match count {
        2 => Some(Width::B2),
        4 => Some(Width::B4),
        8 => Some(Width::B8),
        _ => None,
    }
}

fn shifted(value: Value, by: u64, room: u32) -> Value {
    let Value::Bytes {
        base,
        version,
        offset,
        count,
        shift,
        swapped,
    } = value
    else {
        return Value::Unknown;
    };
    let shift = u64::from(shift) + by;
    if !by.is_multiple_of(8) || shift + 8 * u64::from(count) > u64::from(room) {
        return Value::Unknown;
    }
    Value::Bytes {
        base,
        version,
        offset,
        count,
        shift: shift as u8,
        swapped,
    }
}

/// Two pieces of one number, if their bytes are neighbours in memory, too.
fn joined(a: Value, b: Value, room: u32) -> Value {
    let piece = |value: Value| match value {
        Value::Bytes {
            base,
            version,
            offset,
            count,
            shift,
            swapped,
        } => Some((base, version, offset, count, shift, swapped)),
        _ => None,
    };
    let (Some(a), Some(b)) = (piece(a), piece(b)) else {
        return Value::Unknown;
    };
    let (low, high) = if a.4 < b.4 { (a, b) } else { (b, a) };
    let fits = u32::from(high.4) + 8 * u32::from(high.3) <= room;
    let neighbours = low.4 + 8 * low.3 == high.4 && (low.0, low.1) == (high.0, high.1);
    if !fits || !neighbours {
        return Value::Unknown;
    }
    let (base, version, count, shift) = (low.0, low.1, low.3 + high.3, low.4);
    let plain = |p: (u8, u32, i32, u8, u8, bool)| p.3 == 1 || !p.5;
    let turned = |p: (u8, u32, i32, u8, u8, bool)| p.3 == 1 || p.5;
    if plain(low) && plain(high) && high.2 == low.2 + i32::from(low.3) {
        return Value::Bytes {
            base,
            version,
            offset: low.2,
            count,
            shift,
            swapped: false,
        };
    }
    if turned(low) && turned(high) && low.2 == high.2 + i32::from(high.3) {
        return Value::Bytes {
            base,
            version,
            offset: high.2,
            count,
            shift,
            swapped: true,
        };
    }
    Value::Unknown
}

/// Registers that an operation reads and writes, and whether that is all it does.
fn effects(op: &Op, pc: usize, maps: &[Map], plan: &Plan, tuned: Tuned) -> (u16, u16, bool) {
    use Kind::*;
    const CALLER_SAVED: u16 = 0x3f;
    const ARGUMENTS: u16 = 0x3e;
    let dst = 1 << op.dst;
    let src = 1 << op.src;
    if let Tuned::Wide(wide) = tuned {
        return (1 << wide.base, dst, true);
    }
    match op.kind {
        Mov64K | Mov32K | LoadImm | LoadFunction => (0, dst, true),
        Mov64X | Mov32X | Movsx8To64 | Movsx16To64 | Movsx32To64 | Movsx8To32 | Movsx16To32 => {
            (src, dst, true)
        }
        Ldx8 | Ldx16 | Ldx32 | Ldx64 | Ldxs8 | Ldxs16 | Ldxs32 => (src, dst, true),
        Stx8 | Stx16 | Stx32 | Stx64 => (dst | src, 0, false),
        St8 | St16 | St32 | St64 => (dst, 0, false),
        Atomic32 | Atomic64 => (dst | src | 1, 0, false),
        Ja => (0, 0, false),
        Exit => (1, 0, false),
        Call => (ARGUMENTS, CALLER_SAVED, false),
        Helper => {
            let map = plan.op(pc).map.and_then(|m| maps.get(m));
            let reads = match op.imm {
                1 if matches!(tuned, Tuned::Element(_)) => 0,
                1 if map.is_some_and(lookup::is_inlined) => 1 << 2,
                5 | 8 | 93 | 94 | 125 | 160 => 0,
                _ => ARGUMENTS,
            };
            (reads, CALLER_SAVED, false)
        }
        kind if is_branch(kind) => {
            let planned = plan.op(pc);
            let decided = planned.stays || planned.goes;
            (if decided { 0 } else { dst | sources(kind, src) }, 0, false)
        }
        kind if (kind as u8) >= Ja as u8 => (0x7ff, 0, false),
        kind => (dst | sources(kind, src), dst, true),
    }
}

/// The source register of operations that have one.
fn sources(kind: Kind, src: u16) -> u16 {
    use Kind::*;
    let number = kind as u8;
    let arithmetic = (Add64X as u8..=Smod64X as u8).contains(&number)
        || (Add32X as u8..=Smod32X as u8).contains(&number);
    let jump = (Jeq64X as u8..=Jsle64X as u8).contains(&number)
        || (Jeq32X as u8..=Jsle32X as u8).contains(&number);
    if arithmetic || jump { src } else { 0 }
}

fn remove_dead(ops: &[Op], maps: &[Map], plan: &Plan, function: &Function, tuned: &mut [Tuned]) {
    let index = |pc: usize| function.ops.binary_search(&pc).ok();
    let count = function.ops.len();
    let table: Vec<(u16, u16, bool, [Option<usize>; 2])> = function
        .ops
        .iter()
        .map(|pc| {
            let Some(op) = ops.get(*pc) else {
                return (0x7ff, 0, false, [None, None]);
            };
            let what = tuned.get(*pc).copied().unwrap_or_default();
            let (reads, writes, pure) = effects(op, *pc, maps, plan, what);
            let next = match op.kind {
                Kind::LoadImm | Kind::LoadFunction => index(pc + 2),
                Kind::Exit | Kind::Ja => None,
                _ if plan.op(*pc).goes && is_branch(op.kind) => None,
                _ => index(pc + 1),
            };
            let jump = (op.kind == Kind::Ja || is_branch(op.kind))
                && !(plan.op(*pc).stays && is_branch(op.kind));
            let target = if jump { index(op.target()) } else { None };
            (reads, writes, pure, [next, target])
        })
        .collect();
    let mut live_in = vec![0u16; count];
    let after = |live_in: &[u16], next: &[Option<usize>; 2]| {
        let live = |n: &Option<usize>| n.and_then(|n| live_in.get(n)).copied().unwrap_or(0);
        live(&next[0]) | live(&next[1])
    };
    let mut changed = true;
    while changed {
        changed = false;
        for (at, (reads, writes, pure, next)) in table.iter().enumerate().rev() {
            let live = after(&live_in, next);
            // What nobody reads needs nothing itself.
            let dead = *pure && writes & live == 0;
            let before = if dead { live } else { (live & !writes) | reads };
            if let Some(slot) = live_in.get_mut(at)
                && *slot != before
            {
                *slot = before;
                changed = true;
            }
        }
    }
    for ((_, writes, pure, next), pc) in table.iter().zip(&function.ops) {
        if *pure
            && writes & after(&live_in, next) == 0
            && let Some(slot) = tuned.get_mut(*pc)
        {
            *slot = Tuned::Dead;
        }
    }
}
