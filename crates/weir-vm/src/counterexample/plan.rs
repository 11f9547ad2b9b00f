//! The inputs that lead along a rejected path: how long the packet must be, which of its bits are what.
//!
//! Walks the path of a rejection once, with numbers as in `bits`, and collects what each branch asks for. Knows loads from packet and
//! context, the stack, and arithmetic of header fields; what it does not know it leaves open. Invariant: it only proposes; whether
//! a proposal breaks the program is for the interpreter to say.

use std::collections::BTreeMap;

use super::bits::{Bit, Bits};
use crate::insn::{Kind, Op};
use crate::machine::Machine;
use crate::program::ProgramKind;
use crate::verify::{PathStep, Rejection};

/// Inputs from here on are bits of `rx_queue_index`.
pub(super) const QUEUE: u32 = 1 << 24;
/// Inputs from here on are bits of `ingress_ifindex`.
pub(super) const INTERFACE: u32 = QUEUE + 32;
/// Longest packet that is proposed.
pub(super) const LENGTH_MAX: i64 = 9_000;
/// Comparisons whose edges are proposed.
const EDGES_MAX: usize = 32;
/// Operations walked at most.
const STEPS_MAX: usize = 200_000;

/// What a packet must be like.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Shortest length that goes along the path.
    pub(super) length_min: i64,
    /// Longest one.
    pub(super) length_max: i64,
    /// Inputs by number.
    pub(super) inputs: BTreeMap<u32, bool>,
    /// Inputs that the rejected operation's operands depend on, and which way makes them larger.
    pub(super) operands: Vec<(u32, bool)>,
    /// For each comparison with a constant, the inputs of a number next to that constant that still goes along the path: off by one is a common mistake.
    pub(super) edges: Vec<Vec<(u32, bool)>>,
    /// A lookup on the path found something.
    pub(super) filled: bool,
}

/// Follows the path of a rejection; nothing where it cannot be followed.
pub(super) fn along(machine: &Machine, rejection: &Rejection) -> Option<Plan> {
    let entry = machine.entry_of(&rejection.program).ok()?;
    let mut walk = Walk {
        machine,
        tc: machine.code().kind(entry) == Some(&ProgramKind::SchedCls),
        registers: vec![Value::Other; 11],
        stack: BTreeMap::new(),
        whole: BTreeMap::new(),
        frames: Vec::new(),
        head: 0,
        demands: Vec::new(),
        plan: Plan {
            length_min: 0,
            length_max: LENGTH_MAX,
            inputs: BTreeMap::new(),
            operands: Vec::new(),
            edges: Vec::new(),
            filled: false,
        },
    };
    walk.registers[1] = Value::Context;
    walk.registers[10] = Value::Stack(0, 0);
    walk.follow(entry, &rejection.path, rejection.place.op)?;
    walk.meet_demands();
    Some(walk.plan)
}

/// What a register holds.
#[derive(Clone, Debug)]
enum Value {
    Number(Bits),
    Context,
    /// Offset from the packet's start as it was received, and a variable part.
    Packet(i64, Option<Bits>),
    PacketEnd,
    /// Call frame and offset from its end.
    Stack(usize, i64),
    /// Memory that a helper returned, or nothing; with the number added to it.
    Result(Option<Bits>),
    Other,
}

/// A comparison that must have an outcome.
struct Demand {
    left: Bits,
    right: u64,
    comparison: Comparison,
    width: usize,
    holds: bool,
}

/// Jumps in the order of [`Kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Eq,
    Gt,
    Ge,
    Set,
    Ne,
    Sgt,
    Sge,
    Lt,
    Le,
    Slt,
    Sle,
}

/// A caller: where to go on, and its callee-saved registers.
struct Caller {
    back: usize,
    kept: Vec<Value>,
}

struct Walk<'m> {
    machine: &'m Machine,
    /// The context is a `struct __sk_buff`.
    tc: bool,
    registers: Vec<Value>,
    /// Bytes of stack frames.
    stack: BTreeMap<(usize, i64), [Bit; 8]>,
    /// Eight-byte slots that hold no number.
    whole: BTreeMap<(usize, i64), Value>,
    frames: Vec<Caller>,
    /// Where the packet's start is now, from where it was received.
    head: i64,
    demands: Vec<Demand>,
    plan: Plan,
}

impl Walk<'_> {
    fn follow(&mut self, entry: usize, path: &[PathStep], place: usize) -> Option<()> {
        let mut pc = entry;
        let mut steps = path.iter().peekable();
        for _ in 0..STEPS_MAX {
            if pc == place && steps.len() == 0 {
                let op = *self.machine.code().ops.get(pc)?;
                self.note_operands(&op);
                return Some(());
            }
            let op = *self.machine.code().ops.get(pc)?;
            if is_branch(op.kind) {
                let step = steps.next_if(|s| s.op == pc);
                let taken = match step {
                    Some(step) => step.taken,
                    None => self.decide(&op)?,
                };
                self.demand(&op, taken);
                pc = if taken { op.target() } else { pc + 1 };
                continue;
            }
            pc = self.execute(&op, pc)?;
        }
        None
    }

    /// The next operation.
    fn execute(&mut self, op: &Op, pc: usize) -> Option<usize> {
        use Kind::*;
        let dst = usize::from(op.dst);
        let value = match op.kind {
            Ja => return Some(op.target()),
            Call => {
                let kept = self.registers[6..10].to_vec();
                self.frames.push(Caller { back: pc + 1, kept });
                self.registers[10] = Value::Stack(self.frames.len(), 0);
                return Some(op.target());
            }
            Exit => {
                let caller = self.frames.pop()?;
                self.registers[6..10].clone_from_slice(&caller.kept);
                self.registers[10] = Value::Stack(self.frames.len(), 0);
                return Some(caller.back);
            }
            Helper => {
                self.helper(op.imm as u32);
                return Some(pc + 1);
            }
            MayGoto | CallRegister | Half | SectionEnd | External | Invalid => return None,
            LoadImm => {
                self.registers[dst] = Value::Number(Bits::constant(op.imm));
                if crate::memory::handle_map(op.imm).is_some() {
                    self.registers[dst] = Value::Other;
                }
                return Some(pc + 2);
            }
            LoadFunction => {
                self.registers[dst] = Value::Other;
                return Some(pc + 2);
            }
            Ldx8 => self.load(op, 1),
            Ldx16 => self.load(op, 2),
            Ldx32 => self.load(op, 4),
            Ldx64 => self.load(op, 8),
            Ldxs8 => extended(self.load(op, 1), 8),
            Ldxs16 => extended(self.load(op, 2), 16),
            Ldxs32 => extended(self.load(op, 4), 32),
            Stx8 | St8 => return self.store(op, 1, pc),
            Stx16 | St16 => return self.store(op, 2, pc),
            Stx32 | St32 => return self.store(op, 4, pc),
            Stx64 | St64 => return self.store(op, 8, pc),
            Atomic32 | Atomic64 => {
                self.registers[usize::from(op.src)] = Value::Other;
                return Some(pc + 1);
            }
            Movsx8To64 => extended(self.source(op), 8),
            Movsx16To64 => extended(self.source(op), 16),
            Movsx32To64 => extended(self.source(op), 32),
            Movsx8To32 => low(extended(self.source(op), 8)),
            Movsx16To32 => low(extended(self.source(op), 16)),
            Le16 => self.bytes(dst, |b| Bits::from_bytes(&b.bytes(2))),
            Le32 => self.bytes(dst, |b| b.low32()),
            Le64 => return Some(pc + 1),
            Swap16 => self.bytes(dst, |b| b.swapped(16)),
            Swap32 => self.bytes(dst, |b| b.swapped(32)),
            Swap64 => self.bytes(dst, |b| b.swapped(64)),
            Neg64 | Neg32 => Value::Other,
            _ => self.arithmetic(op),
        };
        self.registers[dst] = value;
        Some(pc + 1)
    }

    fn arithmetic(&mut self, op: &Op) -> Value {
        // Kinds stand in groups of 14: 64-bit with immediate and register, 32-bit with immediate and register.
        let (group, operation) = ((op.kind as u8) / 14, (op.kind as u8) % 14);
        let wide = group < 2;
        let operand = if group % 2 == 0 {
            Value::Number(Bits::constant(op.imm))
        } else {
            self.source(op)
        };
        let target = self.registers[usize::from(op.dst)].clone();
        const ADD: u8 = 0;
        const SUB: u8 = 1;
        const MOV: u8 = 10;
        let result = match (operation, target, operand) {
            (MOV, _, operand) => operand,
            (ADD | SUB, Value::Number(a), Value::Number(b)) => {
                let b = match (operation, b.value()) {
                    (SUB, Some(b)) => Bits::constant(b.wrapping_neg()),
                    (SUB, None) => Bits::UNKNOWN,
                    _ => b,
                };
                Value::Number(a.add(&b))
            }
            (ADD, pointer, Value::Number(n)) => moved(pointer, &n, 1),
            (ADD, Value::Number(n), pointer) => moved(pointer, &n, 1),
            (SUB, pointer, Value::Number(n)) => moved(pointer, &n, -1),
            (_, Value::Number(a), Value::Number(b)) => {
                Value::Number(combined(operation, &a, &b, if wide { 64 } else { 32 }))
            }
            _ => Value::Other,
        };
        if wide { result } else { low(result) }
    }

    fn load(&mut self, op: &Op, size: usize) -> Value {
        let off = i64::from(op.off);
        match self.source(op) {
            Value::Context if self.tc => match (off, size) {
                (76, 4) => Value::Packet(self.head, None),
                (80, 4) => Value::PacketEnd,
                (40, 4) => Value::Number(Bits::input(INTERFACE, 32)),
                (12, 4) => Value::Number(Bits::input(QUEUE, 32)),
                _ => Value::Other,
            },
            Value::Context => match (off, size) {
                (0, 4) => Value::Packet(self.head, None),
                (4, 4) => Value::PacketEnd,
                (12, 4) => Value::Number(Bits::input(INTERFACE, 32)),
                (16, 4) => Value::Number(Bits::input(QUEUE, 32)),
                _ => Value::Other,
            },
            Value::Packet(base, variable) => {
                let Some(at) = self.fixed(base, variable.as_ref()) else {
                    return Value::Other;
                };
                match u32::try_from(at + off) {
                    Ok(at) if i64::from(at) < LENGTH_MAX => {
                        Value::Number(Bits::input(at * 8, size * 8))
                    }
                    _ => Value::Number(Bits::UNKNOWN),
                }
            }
            Value::Stack(frame, base) => {
                let at = base + off;
                if size == 8
                    && let Some(value) = self.whole.get(&(frame, at))
                {
                    return value.clone();
                }
                let byte = |i: usize| {
                    let key = (frame, at + i as i64);
                    self.stack.get(&key).copied().unwrap_or([Bit::Unknown; 8])
                };
                let bytes: Vec<[Bit; 8]> = (0..size).map(byte).collect();
                Value::Number(Bits::from_bytes(&bytes))
            }
            _ => Value::Number(Bits::UNKNOWN),
        }
    }

    fn store(&mut self, op: &Op, size: usize, pc: usize) -> Option<usize> {
        let value = match op.kind {
            Kind::St8 | Kind::St16 | Kind::St32 | Kind::St64 => {
                Value::Number(Bits::constant(op.imm))
            }
            _ => self.source(op),
        };
        if let Value::Stack(frame, base) = self.registers[usize::from(op.dst)] {
            let at = base + i64::from(op.off);
            for i in -7..size as i64 {
                self.whole.remove(&(frame, at + i));
            }
            let bits = match &value {
                Value::Number(bits) => *bits,
                _ => Bits::UNKNOWN,
            };
            for (i, byte) in bits.bytes(size).into_iter().enumerate() {
                self.stack.insert((frame, at + i as i64), byte);
            }
            if size == 8 && !matches!(value, Value::Number(_)) {
                self.whole.insert((frame, at), value);
            }
        }
        Some(pc + 1)
    }

    fn helper(&mut self, number: u32) {
        let number_in = |register: usize| match &self.registers[register] {
            Value::Number(bits) => bits.value(),
            _ => None,
        };
        let result = match number {
            1 | 131 | 195 => Value::Result(None),
            44 => {
                // Adjusting the head succeeds on the paths of interest; the packet's start moves.
                let by = number_in(2).map_or(0, |d| i64::from(d as i32));
                self.head = (self.head + by).clamp(-LENGTH_MAX, LENGTH_MAX);
                Value::Number(Bits::UNKNOWN)
            }
            189 => {
                // bpf_xdp_load_bytes: the stack gets bytes of the packet.
                let (from, len) = (number_in(2), number_in(4));
                if let (Some(from), Some(len), Value::Stack(frame, at)) = (
                    from.filter(|n| *n < LENGTH_MAX as u64),
                    len.filter(|n| *n <= 512),
                    &self.registers[3],
                ) {
                    let first = self.head.saturating_add(from as i64);
                    for i in 0..len as i64 {
                        let byte = u32::try_from(first + i).ok();
                        let bits = byte.map_or(Bits::UNKNOWN, |b| Bits::input(b * 8, 8));
                        let key = (*frame, at + i);
                        self.whole.remove(&key);
                        self.stack.insert(key, bits.bytes(1)[0]);
                    }
                    let needed = first + len as i64;
                    self.plan.length_min = self.plan.length_min.max(needed);
                }
                Value::Number(Bits::UNKNOWN)
            }
            _ => Value::Number(Bits::UNKNOWN),
        };
        self.registers[0] = result;
        for register in &mut self.registers[1..6] {
            *register = Value::Other;
        }
    }

    /// The outcome of a branch the path does not mention.
    fn decide(&self, op: &Op) -> Option<bool> {
        let (comparison, width, right) = self.comparison(op);
        match (&self.registers[usize::from(op.dst)], right) {
            (Value::Number(left), Value::Number(right)) => {
                Some(holds(comparison, left.value()?, right.value()?, width))
            }
            _ => None,
        }
    }

    fn comparison(&self, op: &Op) -> (Comparison, usize, Value) {
        use Comparison::*;
        const ORDER: [Comparison; 11] = [Eq, Gt, Ge, Set, Ne, Sgt, Sge, Lt, Le, Slt, Sle];
        let n = op.kind as u8 - Kind::Jeq64K as u8;
        let (group, which) = (n / 11, usize::from(n % 11));
        let right = if group % 2 == 0 {
            Value::Number(Bits::constant(op.imm))
        } else {
            self.source(op)
        };
        let width = if group < 2 { 64 } else { 32 };
        (ORDER[which], width, right)
    }

    /// Takes down what a branch asks of the inputs.
    fn demand(&mut self, op: &Op, taken: bool) {
        let (comparison, width, right) = self.comparison(op);
        let left = self.registers[usize::from(op.dst)].clone();
        match (left, right) {
            (Value::Packet(base, variable), Value::PacketEnd) => {
                if let Some(at) = self.fixed(base, variable.as_ref()) {
                    self.bound(comparison, at, taken);
                }
            }
            (Value::PacketEnd, Value::Packet(base, variable)) => {
                if let Some(at) = self.fixed(base, variable.as_ref()) {
                    self.bound(mirrored(comparison), at, taken);
                }
            }
            (Value::Result(_), Value::Number(zero)) if zero.value() == Some(0) => {
                let present = match comparison {
                    Comparison::Eq => !taken,
                    _ => taken,
                };
                self.plan.filled |= present;
            }
            (Value::Number(left), Value::Number(right)) => {
                let demand = match (right.value(), left.value()) {
                    (Some(right), _) => Some((left, right, comparison)),
                    (None, Some(left)) => Some((right, left, mirrored(comparison))),
                    _ => None,
                };
                if let Some((left, right, comparison)) = demand {
                    self.demands.push(Demand {
                        left,
                        right,
                        comparison,
                        width,
                        holds: taken,
                    });
                }
            }
            _ => {}
        }
    }

    /// `offset comparison length` must be `holds`.
    fn bound(&mut self, comparison: Comparison, offset: i64, holds: bool) {
        let plan = &mut self.plan;
        let (mut min, mut max) = (0, LENGTH_MAX);
        match (comparison, holds) {
            (Comparison::Gt, true) | (Comparison::Le, false) => max = offset - 1,
            (Comparison::Gt, false) | (Comparison::Le, true) => min = offset,
            (Comparison::Ge, true) | (Comparison::Lt, false) => max = offset,
            (Comparison::Ge, false) | (Comparison::Lt, true) => min = offset + 1,
            (Comparison::Eq, true) | (Comparison::Ne, false) => (min, max) = (offset, offset),
            (Comparison::Eq, false) | (Comparison::Ne, true) => min = offset + 1,
            _ => {}
        }
        plan.length_min = plan.length_min.max(min);
        plan.length_max = plan.length_max.min(max);
    }

    /// The offset with its variable part as the inputs stand now, which are kept so.
    fn fixed(&mut self, base: i64, variable: Option<&Bits>) -> Option<i64> {
        let Some(variable) = variable else {
            return Some(base).filter(|at| at.abs() < LENGTH_MAX);
        };
        self.meet_demands();
        for (input, _) in variable.inputs() {
            self.plan.inputs.entry(input).or_insert(false);
        }
        let inputs = &self.plan.inputs;
        let value = variable.evaluate(|n| inputs.get(&n).copied().unwrap_or(false)) as i64;
        Some(base.checked_add(value)?).filter(|at| at.abs() < LENGTH_MAX)
    }

    /// Chooses inputs: first those that must equal something, then the rest where they are not as demanded already.
    fn meet_demands(&mut self) {
        let demands = std::mem::take(&mut self.demands);
        let equal = |d: &Demand| {
            matches!(
                (d.comparison, d.holds),
                (Comparison::Eq, true) | (Comparison::Ne, false)
            )
        };
        for d in demands.iter().filter(|d| equal(d)) {
            self.choose(d, &[d.right]);
        }
        for d in demands.iter().filter(|d| !equal(d)) {
            self.note_edges(d);
            let inputs = &self.plan.inputs;
            let now = d
                .left
                .evaluate(|n| inputs.get(&n).copied().unwrap_or(false));
            if holds(d.comparison, now, d.right, d.width) == d.holds {
                continue;
            }
            let near = [
                d.right,
                d.right.wrapping_add(1),
                d.right.wrapping_sub(1),
                0,
                1,
                u64::MAX >> (64 - d.width),
                1 << (d.width - 1),
            ];
            let fitting: Vec<u64> = near
                .into_iter()
                .filter(|v| holds(d.comparison, *v, d.right, d.width) == d.holds)
                .collect();
            self.choose(d, &fitting);
        }
        // Demands are kept: inputs chosen for later ones must not break them silently, the interpreter sees to that.
    }

    /// Takes down which inputs bring a compared number next to what it is compared with.
    fn note_edges(&mut self, demand: &Demand) {
        let right = demand.right;
        for value in [right, right.wrapping_sub(1), right.wrapping_add(1)] {
            if self.plan.edges.len() >= EDGES_MAX {
                return;
            }
            if holds(demand.comparison, value, right, demand.width) == demand.holds
                && let Some(inputs) = demand.left.solve(value, demand.width)
            {
                self.plan.edges.push(inputs);
                return;
            }
        }
    }

    /// Takes the first of `values` that the inputs allow.
    fn choose(&mut self, demand: &Demand, values: &[u64]) {
        for value in values {
            let Some(inputs) = demand.left.solve(*value, demand.width) else {
                continue;
            };
            let free = |(n, bit): &(u32, bool)| self.plan.inputs.get(n).is_none_or(|b| b == bit);
            if inputs.iter().all(free) {
                self.plan.inputs.extend(inputs);
                return;
            }
        }
    }

    /// What the rejected operation works on.
    fn note_operands(&mut self, op: &Op) {
        let registers: Vec<usize> = match op.kind {
            Kind::Helper => (1..6).collect(),
            _ => vec![usize::from(op.dst), usize::from(op.src)],
        };
        self.meet_demands();
        for register in registers {
            let bits = match self.registers.get(register) {
                Some(Value::Number(bits)) => *bits,
                Some(Value::Packet(_, Some(bits)) | Value::Result(Some(bits))) => *bits,
                _ => continue,
            };
            let larger = bits.inputs().map(|(n, inverted)| (n, !inverted));
            let open = larger.filter(|(n, _)| !self.plan.inputs.contains_key(n));
            self.plan.operands.extend(open);
        }
    }

    fn source(&self, op: &Op) -> Value {
        self.registers
            .get(usize::from(op.src))
            .cloned()
            .unwrap_or(Value::Other)
    }

    fn bytes(&self, register: usize, change: impl Fn(&Bits) -> Bits) -> Value {
        match &self.registers[register] {
            Value::Number(bits) => Value::Number(change(bits)),
            _ => Value::Number(Bits::UNKNOWN),
        }
    }
}

/// A pointer with `n` added or (`sign` -1) subtracted.
fn moved(pointer: Value, n: &Bits, sign: i64) -> Value {
    match (pointer, n.value()) {
        (Value::Packet(base, variable), Some(n)) => match near(base, n, sign) {
            Some(base) => Value::Packet(base, variable),
            None => Value::Other,
        },
        (Value::Packet(base, None), None) if sign > 0 => Value::Packet(base, Some(*n)),
        (Value::Stack(frame, base), Some(n)) => match near(base, n, sign) {
            Some(base) => Value::Stack(frame, base),
            None => Value::Other,
        },
        (Value::Result(variable), Some(_)) => Value::Result(variable),
        (Value::Result(_) | Value::Stack(..), None) => Value::Result(Some(*n)),
        _ => Value::Other,
    }
}

/// The sum, unless it is far outside of everything.
fn near(base: i64, n: u64, sign: i64) -> Option<i64> {
    let sum = base.checked_add(sign.checked_mul(n as i64)?)?;
    (sum.abs() < 1 << 20).then_some(sum)
}

/// Operations of numbers other than addition and subtraction, by their position in [`Kind`].
fn combined(operation: u8, a: &Bits, b: &Bits, width: u32) -> Bits {
    let (a, constant) = match width {
        32 => (a.low32(), b.value().map(|b| b & 0xffff_ffff)),
        _ => (*a, b.value()),
    };
    let shift = constant.map(|n| (n % u64::from(width)) as u32);
    match (operation, constant, shift) {
        (2, Some(factor), _) if factor.is_power_of_two() => a.shift_left(factor.trailing_zeros()),
        (4, ..) => a.or(b),
        (5, ..) => a.and(b),
        (6, _, Some(by)) => a.shift_left(by),
        (7, _, Some(by)) => a.shift_right(by, Bit::Known(false)),
        (9, ..) => a.xor(b),
        (11, _, Some(by)) => {
            let extended = a.sign_extended(width as usize);
            extended.shift_right(by, extended.sign(64))
        }
        _ => Bits::UNKNOWN,
    }
}

fn extended(value: Value, width: usize) -> Value {
    match value {
        Value::Number(bits) => Value::Number(bits.sign_extended(width)),
        _ => Value::Number(Bits::UNKNOWN),
    }
}

/// The low 32 bits of a number; a pointer cut so is nothing.
fn low(value: Value) -> Value {
    match value {
        Value::Number(bits) => Value::Number(bits.low32()),
        _ => Value::Number(Bits::UNKNOWN),
    }
}

fn mirrored(comparison: Comparison) -> Comparison {
    use Comparison::*;
    match comparison {
        Gt => Lt,
        Ge => Le,
        Lt => Gt,
        Le => Ge,
        Sgt => Slt,
        Sge => Sle,
        Slt => Sgt,
        Sle => Sge,
        same => same,
    }
}

fn holds(comparison: Comparison, a: u64, b: u64, width: usize) -> bool {
    use Comparison::*;
    let (a, b, sa, sb) = match width {
        32 => (
            a & 0xffff_ffff,
            b & 0xffff_ffff,
            i64::from(a as i32),
            i64::from(b as i32),
        ),
        _ => (a, b, a as i64, b as i64),
    };
    match comparison {
        Eq => a == b,
        Gt => a > b,
        Ge => a >= b,
        Set => a & b != 0,
        Ne => a != b,
        Sgt => sa > sb,
        Sge => sa >= sb,
        Lt => a < b,
        Le => a <= b,
        Slt => sa < sb,
        Sle => sa <= sb,
    }
}

fn is_branch(kind: Kind) -> bool {
    (Kind::Jeq64K as u8..=Kind::Jsle32X as u8).contains(&(kind as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of [`Kind`] that `arithmetic` and `comparison` count on.
    #[test]
    fn kinds_stand_in_groups() {
        assert_eq!(Kind::Add64K as u8, 0);
        assert_eq!(Kind::Mov64K as u8, 10);
        assert_eq!(Kind::Add64X as u8, 14);
        assert_eq!(Kind::Add32K as u8, 28);
        assert_eq!(Kind::Smod32X as u8, 55);
        assert_eq!(Kind::Lsh32X as u8 % 14, 6);
        assert_eq!(Kind::Xor64K as u8 % 14, 9);
        assert_eq!(Kind::Arsh32K as u8 % 14, 11);
        let first = Kind::Jeq64K as u8;
        assert_eq!(Kind::Jeq64X as u8 - first, 11);
        assert_eq!(Kind::Jeq32K as u8 - first, 22);
        assert_eq!(Kind::Jsle32X as u8 - first, 43);
        assert_eq!(Kind::Jsle64K as u8 - first, Comparison::Sle as u8);
        assert_eq!(Kind::Jset32X as u8 - first - 33, Comparison::Set as u8);
        assert_eq!(Kind::Jlt64X as u8 - first - 11, Comparison::Lt as u8);
    }

    /// Programs of random instructions, most of them rejected: following and explaining their paths must not panic.
    #[test]
    fn any_rejection_is_followed_and_explained() {
        const OPCODES: [u8; 32] = [
            0x07, 0x0f, 0x17, 0x1f, 0x27, 0x47, 0x57, 0x5f, 0x67, 0x77, 0xa7, 0xb7, 0xbf, 0xc7,
            0x04, 0xbc, 0xdc, 0x61, 0x69, 0x71, 0x79, 0x62, 0x6a, 0x7b, 0x15, 0x1d, 0x25, 0x2d,
            0xb5, 0xbd, 0x16, 0x85,
        ];
        let mut seed: u64 = 7;
        let mut random = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % limit
        };
        let (mut rejected, mut followed) = (0, 0);
        for _ in 0..3_000 {
            // data in r2, data_end in r3, a constant in r4, then anything.
            let mut code = vec![0x61, 0x12, 0, 0, 0, 0, 0, 0, 0x61, 0x13, 4, 0, 0, 0, 0, 0];
            code.extend([0xb7, 0x04, 0, 0, 0xff, 0xff, 0xff, 0x7f]);
            code.extend([0xb7, 0x00, 0, 0, 0, 0, 0, 0]);
            for at in 0..12 {
                let opcode = OPCODES[random(32) as usize];
                let registers = ((random(6) << 4) | random(6)) as u8;
                let class = opcode & 7;
                let offset = match class {
                    5 | 6 if opcode != 0x85 => random(12 - at) as i16,
                    4 | 5 | 7 => 0,
                    _ => [0, 4, 13, -8, i16::MIN][random(5) as usize],
                };
                let registers = if opcode == 0x85 { 0 } else { registers };
                let registers = if opcode & 8 == 0 && matches!(class, 4..=7) {
                    registers & 15
                } else {
                    registers
                };
                let immediate = [0, 1, 13, 44, 189, -1, i32::MIN, i32::MAX, 16][random(9) as usize];
                code.extend([opcode, registers]);
                code.extend(offset.to_le_bytes());
                code.extend(i32::to_le_bytes(if opcode == 0xdc {
                    16
                } else {
                    immediate
                }));
            }
            code.extend([0x95, 0, 0, 0, 0, 0, 0, 0]);
            let Ok(machine) = Machine::from_instructions(&code) else {
                continue;
            };
            let Err(rejection) = crate::verify::verify(&machine, "code", &Default::default())
            else {
                continue;
            };
            rejected += 1;
            followed += usize::from(along(&machine, &rejection).is_some());
            let explanation = crate::explain::explain(&machine, &rejection);
            assert!(!explanation.missing.text.is_empty());
        }
        assert!(rejected > 1_000 && followed > 500, "{rejected} {followed}");
    }
}
