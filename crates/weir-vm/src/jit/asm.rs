//! The encoder: x86-64 instructions as bytes, with labels.
//!
//! Owns encodings (Intel SDM volume 2) and nothing of their meaning to eBPF. Covers what the templates use and no more.
//! Invariant: every label used is bound before [`Assembler::finish`], which reports the first that is not.

/// A general register by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reg(pub(super) u8);

pub(super) const RAX: Reg = Reg(0);
pub(super) const RCX: Reg = Reg(1);
pub(super) const RDX: Reg = Reg(2);
pub(super) const RBX: Reg = Reg(3);
pub(super) const RSP: Reg = Reg(4);
pub(super) const RBP: Reg = Reg(5);
pub(super) const RSI: Reg = Reg(6);
pub(super) const RDI: Reg = Reg(7);
pub(super) const R8: Reg = Reg(8);
pub(super) const R9: Reg = Reg(9);
pub(super) const R10: Reg = Reg(10);
pub(super) const R11: Reg = Reg(11);
pub(super) const R12: Reg = Reg(12);
pub(super) const R13: Reg = Reg(13);
pub(super) const R14: Reg = Reg(14);
pub(super) const R15: Reg = Reg(15);

/// Bytes of an operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    B1,
    B2,
    B4,
    B8,
}

impl Width {
    pub(super) fn bytes(self) -> u32 {
        match self {
            Width::B1 => 1,
            Width::B2 => 2,
            Width::B4 => 4,
            Width::B8 => 8,
        }
    }
}

/// A memory operand: base, an index times a power of two, displacement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mem {
    pub(super) base: Reg,
    /// Register (not rsp) and logarithm of its factor.
    pub(super) index: Option<(Reg, u8)>,
    pub(super) disp: i32,
}

pub(super) fn at(base: Reg, disp: i32) -> Mem {
    Mem {
        base,
        index: None,
        disp,
    }
}

/// The two-operand operations with one encoding scheme; the number is the scheme's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts by their number in the shift group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    Rol = 0,
    Shl = 4,
    Shr = 5,
    Sar = 7,
}

/// One-operand operations of the F7 group by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Neg = 3,
    /// rdx:rax = rax * operand.
    Mul = 4,
    /// rax, rdx = rdx:rax divided by the operand, rest.
    Div = 6,
    Idiv = 7,
}

/// Conditions by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cond {
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowEqual = 6,
    Above = 7,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

/// A place in the code, perhaps not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(u32);

impl Label {
    /// Index of its offset in what [`Assembler::finish`] yields.
    pub(super) fn number(self) -> usize {
        self.0 as usize
    }
}

const UNBOUND: u32 = u32::MAX;

/// A distance to be filled in.
#[derive(Clone, Copy, Debug)]
struct Fixup {
    place: u32,
    /// In bytes.
    size: u32,
    to: Label,
    /// Of a jump, not of a call or an address.
    jump: bool,
}

/// Code being written.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<u8>,
    labels: Vec<u32>,
    fixups: Vec<Fixup>,
    /// Jumps so far.
    jumps: usize,
    /// Which jumps fit one byte, by their number; none unless a first writing has shown.
    short: Vec<bool>,
}

impl Assembler {
    /// For writing the same code again, its near jumps short: code only shrinks, so what was near stays near.
    pub(super) fn again(first: &Assembler) -> Assembler {
        let near = |f: &Fixup| {
            let target = first.labels.get(f.to.0 as usize);
            let distance = target.map(|t| i64::from(*t) - i64::from(f.place + f.size));
            distance.is_some_and(|d| i8::try_from(d).is_ok())
        };
        let jumps = first.fixups.iter().filter(|f| f.jump);
        Assembler {
            short: jumps.map(near).collect(),
            ..Assembler::default()
        }
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(UNBOUND);
        Label(self.labels.len() as u32 - 1)
    }

    pub(super) fn labels(&mut self, count: usize) -> Vec<Label> {
        (0..count).map(|_| self.label()).collect()
    }

    pub(super) fn bind(&mut self, label: Label) {
        let here = self.code.len() as u32;
        if let Some(slot) = self.labels.get_mut(label.0 as usize) {
            *slot = here;
        }
    }

    /// Offset of a bound label.
    pub(super) fn offset(&self, label: Label) -> Option<u32> {
        let offset = self.labels.get(label.0 as usize).copied();
        offset.filter(|o| *o != UNBOUND)
    }

    /// The code with all distances filled in; nothing if a label in use has no place.
    pub(super) fn finish(mut self) -> Option<(Vec<u8>, Vec<u32>)> {
        for Fixup {
            place, size, to, ..
        } in &self.fixups
        {
            let target = *self.labels.get(to.0 as usize)?;
            if target == UNBOUND {
                return None;
            }
            let distance = i64::from(target) - i64::from(*place) - i64::from(*size);
            let bytes = match size {
                1 => i32::from(i8::try_from(distance).ok()?),
                _ => i32::try_from(distance).ok()?,
            };
            let (place, size) = (*place as usize, *size as usize);
            let bytes = bytes.to_le_bytes();
            let distance = self.code.get_mut(place..place + size)?;
            distance.copy_from_slice(bytes.get(..size)?);
        }
        Some((self.code, self.labels))
    }

    pub(super) fn mov(&mut self, wide: bool, to: Reg, from: Reg) {
        self.rr(None, wide, false, &[0x89], from.0, to);
    }

    /// Any constant, in the shortest way that leaves the flags alone.
    pub(super) fn constant(&mut self, to: Reg, value: u64) {
        if let Ok(low) = u32::try_from(value) {
            self.rex(false, false, 0, 0, to.0);
            self.byte(0xb8 | (to.0 & 7));
            self.bytes(&low.to_le_bytes());
        } else if let Ok(signed) = i32::try_from(value as i64) {
            self.rr(None, true, false, &[0xc7], 0, to);
            self.bytes(&signed.to_le_bytes());
        } else {
            self.rex(true, false, 0, 0, to.0);
            self.byte(0xb8 | (to.0 & 7));
            self.bytes(&value.to_le_bytes());
        }
    }

    pub(super) fn alu(&mut self, wide: bool, op: Alu, to: Reg, from: Reg) {
        self.rr(None, wide, false, &[(op as u8) << 3 | 1], from.0, to);
    }

    pub(super) fn alu_imm(&mut self, wide: bool, op: Alu, to: Reg, value: i32) {
        if let Ok(short) = i8::try_from(value) {
            self.rr(None, wide, false, &[0x83], op as u8, to);
            self.byte(short as u8);
        } else {
            self.rr(None, wide, false, &[0x81], op as u8, to);
            self.bytes(&value.to_le_bytes());
        }
    }

    /// Register with memory as the second operand.
    pub(super) fn alu_load(&mut self, wide: bool, op: Alu, to: Reg, from: Mem) {
        self.rm(None, wide, false, &[(op as u8) << 3 | 3], to.0, from);
    }

    /// Memory with a constant as the second operand.
    pub(super) fn alu_mem_imm(&mut self, wide: bool, op: Alu, to: Mem, value: i32) {
        if let Ok(short) = i8::try_from(value) {
            self.rm(None, wide, false, &[0x83], op as u8, to);
            self.byte(short as u8);
        } else {
            self.rm(None, wide, false, &[0x81], op as u8, to);
            self.bytes(&value.to_le_bytes());
        }
    }

    pub(super) fn test(&mut self, wide: bool, a: Reg, b: Reg) {
        self.rr(None, wide, false, &[0x85], b.0, a);
    }

    pub(super) fn test_imm(&mut self, wide: bool, a: Reg, value: i32) {
        self.rr(None, wide, false, &[0xf7], 0, a);
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn imul(&mut self, wide: bool, to: Reg, by: Reg) {
        self.rr(None, wide, false, &[0x0f, 0xaf], to.0, by);
    }

    /// `to = from * value`.
    pub(super) fn imul_imm(&mut self, wide: bool, to: Reg, from: Reg, value: i32) {
        self.rr(None, wide, false, &[0x69], to.0, from);
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn unary(&mut self, wide: bool, op: Unary, operand: Reg) {
        self.rr(None, wide, false, &[0xf7], op as u8, operand);
    }

    /// Sign of rax into all of rdx.
    pub(super) fn sign_to_rdx(&mut self, wide: bool) {
        self.rex(wide, false, 0, 0, 0);
        self.byte(0x99);
    }

    pub(super) fn shift_imm(&mut self, wide: bool, op: Shift, to: Reg, count: u8) {
        self.rr(None, wide, false, &[0xc1], op as u8, to);
        self.byte(count);
    }

    /// By cl.
    pub(super) fn shift_cl(&mut self, wide: bool, op: Shift, to: Reg) {
        self.rr(None, wide, false, &[0xd3], op as u8, to);
    }

    /// `to = from shifted by count`, without flags (BMI2).
    pub(super) fn shift_by(&mut self, wide: bool, op: Shift, to: Reg, from: Reg, count: Reg) {
        let prefix = match op {
            Shift::Shl => 1,
            Shift::Sar => 2,
            Shift::Shr | Shift::Rol => 3,
        };
        // VEX: inverted R, X, B and map 0f38; W, inverted second source, prefix.
        self.byte(0xc4);
        self.byte(((!to.0 & 8) << 4) | 0x40 | ((!from.0 & 8) << 2) | 2);
        self.byte((u8::from(wide) << 7) | ((!count.0 & 15) << 3) | prefix);
        self.byte(0xf7);
        self.byte(0xc0 | ((to.0 & 7) << 3) | (from.0 & 7));
    }

    /// The lowest two bytes the other way round.
    pub(super) fn swap16(&mut self, to: Reg) {
        self.rr(Some(0x66), false, false, &[0xc1], Shift::Rol as u8, to);
        self.byte(8);
    }

    pub(super) fn bswap(&mut self, wide: bool, to: Reg) {
        self.rex(wide, false, 0, 0, to.0);
        self.bytes(&[0x0f, 0xc8 | (to.0 & 7)]);
    }

    /// The lowest bytes of a register, without sign.
    pub(super) fn zero_extend(&mut self, width: Width, to: Reg, from: Reg) {
        match width {
            Width::B1 => self.rr(None, false, true, &[0x0f, 0xb6], to.0, from),
            Width::B2 => self.rr(None, false, false, &[0x0f, 0xb7], to.0, from),
            Width::B4 => self.mov(false, to, from),
            Width::B8 => self.mov(true, to, from),
        }
    }

    /// The lowest bytes of a register with their sign, to 32 or 64 bits.
    pub(super) fn sign_extend(&mut self, wide: bool, width: Width, to: Reg, from: Reg) {
        match width {
            Width::B1 => self.rr(None, wide, true, &[0x0f, 0xbe], to.0, from),
            Width::B2 => self.rr(None, wide, false, &[0x0f, 0xbf], to.0, from),
            Width::B4 if wide => self.rr(None, true, false, &[0x63], to.0, from),
            Width::B4 | Width::B8 => self.mov(wide, to, from),
        }
    }

    /// A load, zero-extended.
    pub(super) fn load(&mut self, width: Width, to: Reg, from: Mem) {
        match width {
            Width::B1 => self.rm(None, false, false, &[0x0f, 0xb6], to.0, from),
            Width::B2 => self.rm(None, false, false, &[0x0f, 0xb7], to.0, from),
            Width::B4 => self.rm(None, false, false, &[0x8b], to.0, from),
            Width::B8 => self.rm(None, true, false, &[0x8b], to.0, from),
        }
    }

    /// A load, sign-extended to 64 bits.
    pub(super) fn load_signed(&mut self, width: Width, to: Reg, from: Mem) {
        match width {
            Width::B1 => self.rm(None, true, false, &[0x0f, 0xbe], to.0, from),
            Width::B2 => self.rm(None, true, false, &[0x0f, 0xbf], to.0, from),
            Width::B4 => self.rm(None, true, false, &[0x63], to.0, from),
            Width::B8 => self.load(width, to, from),
        }
    }

    pub(super) fn store(&mut self, width: Width, to: Mem, from: Reg) {
        match width {
            Width::B1 => self.rm(None, false, true, &[0x88], from.0, to),
            Width::B2 => self.rm(Some(0x66), false, false, &[0x89], from.0, to),
            Width::B4 => self.rm(None, false, false, &[0x89], from.0, to),
            Width::B8 => self.rm(None, true, false, &[0x89], from.0, to),
        }
    }

    /// Stores the lowest bytes of a constant; eight bytes are the sign-extended one.
    pub(super) fn store_imm(&mut self, width: Width, to: Mem, value: i32) {
        let bytes = value.to_le_bytes();
        match width {
            Width::B1 => {
                self.rm(None, false, false, &[0xc6], 0, to);
                self.byte(bytes[0]);
            }
            Width::B2 => {
                self.rm(Some(0x66), false, false, &[0xc7], 0, to);
                self.bytes(&[bytes[0], bytes[1]]);
            }
            Width::B4 | Width::B8 => {
                self.rm(None, width == Width::B8, false, &[0xc7], 0, to);
                self.bytes(&bytes);
            }
        }
    }

    pub(super) fn lea(&mut self, to: Reg, from: Mem) {
        self.rm(None, true, false, &[0x8d], to.0, from);
    }

    /// The address of a place in the code.
    pub(super) fn lea_label(&mut self, to: Reg, place: Label) {
        self.rex(true, false, to.0, 0, 0);
        self.bytes(&[0x8d, ((to.0 & 7) << 3) | 5]);
        self.distance(place, 4, false);
    }

    /// `lock op [to], from`.
    pub(super) fn lock_alu(&mut self, wide: bool, op: Alu, to: Mem, from: Reg) {
        let opcode = [(op as u8) << 3 | 1];
        self.rm(Some(0xf0), wide, false, &opcode, from.0, to);
    }

    /// `lock xadd [to], with`: adds, and yields the old contents.
    pub(super) fn lock_xadd(&mut self, wide: bool, to: Mem, with: Reg) {
        self.rm(Some(0xf0), wide, false, &[0x0f, 0xc1], with.0, to);
    }

    pub(super) fn xchg(&mut self, wide: bool, with: Mem, register: Reg) {
        self.rm(None, wide, false, &[0x87], register.0, with);
    }

    /// `lock cmpxchg [to], new`: compares with rax.
    pub(super) fn lock_cmpxchg(&mut self, wide: bool, to: Mem, new: Reg) {
        self.rm(Some(0xf0), wide, false, &[0x0f, 0xb1], new.0, to);
    }

    pub(super) fn push(&mut self, register: Reg) {
        self.rex(false, false, 0, 0, register.0);
        self.byte(0x50 | (register.0 & 7));
    }

    pub(super) fn pop(&mut self, register: Reg) {
        self.rex(false, false, 0, 0, register.0);
        self.byte(0x58 | (register.0 & 7));
    }

    pub(super) fn ret(&mut self) {
        self.byte(0xc3);
    }

    pub(super) fn jump(&mut self, to: Label) {
        if self.next_is_short() {
            self.byte(0xeb);
            self.distance(to, 1, true);
        } else {
            self.byte(0xe9);
            self.distance(to, 4, true);
        }
    }

    pub(super) fn jump_if(&mut self, condition: Cond, to: Label) {
        if self.next_is_short() {
            self.byte(0x70 | condition as u8);
            self.distance(to, 1, true);
        } else {
            self.bytes(&[0x0f, 0x80 | condition as u8]);
            self.distance(to, 4, true);
        }
    }

    fn next_is_short(&mut self) -> bool {
        self.jumps += 1;
        self.short.get(self.jumps - 1) == Some(&true)
    }

    pub(super) fn call(&mut self, to: Label) {
        self.byte(0xe8);
        self.distance(to, 4, false);
    }

    pub(super) fn jump_reg(&mut self, to: Reg) {
        self.rr(None, false, false, &[0xff], 4, to);
    }

    pub(super) fn call_mem(&mut self, target: Mem) {
        self.rm(None, false, false, &[0xff], 2, target);
    }

    pub(super) fn call_reg(&mut self, to: Reg) {
        self.rr(None, false, false, &[0xff], 2, to);
    }

    fn distance(&mut self, to: Label, size: u32, jump: bool) {
        self.fixups.push(Fixup {
            place: self.code.len() as u32,
            size,
            to,
            jump,
        });
        self.code.resize(self.code.len() + size as usize, 0);
    }

    /// Prefix, REX, opcode and two registers; `low` when `rm` is an 8-bit register.
    fn rr(&mut self, prefix: Option<u8>, wide: bool, low: bool, opcode: &[u8], reg: u8, rm: Reg) {
        self.code.extend(prefix);
        self.rex(wide, low && rm.0 >= 4, reg, 0, rm.0);
        self.bytes(opcode);
        self.byte(0xc0 | ((reg & 7) << 3) | (rm.0 & 7));
    }

    /// Prefix, REX, opcode, register and memory; `low` when `reg` is an 8-bit register.
    fn rm(&mut self, prefix: Option<u8>, wide: bool, low: bool, opcode: &[u8], reg: u8, mem: Mem) {
        self.code.extend(prefix);
        let index = mem.index.map_or(0, |(r, _)| r.0);
        self.rex(wide, low && reg >= 4, reg, index, mem.base.0);
        self.bytes(opcode);
        let reg = (reg & 7) << 3;
        let base = mem.base.0 & 7;
        // Base 5 without displacement means another mode; base 4 needs the second byte.
        let short = i8::try_from(mem.disp).ok();
        let mode = match short {
            Some(0) if base != 5 => 0x00,
            Some(_) => 0x40,
            None => 0x80,
        };
        match mem.index {
            Some((index, scale)) => {
                self.byte(mode | reg | 4);
                self.byte((scale << 6) | ((index.0 & 7) << 3) | base);
            }
            None if base == 4 => self.bytes(&[mode | reg | 4, 0x24]),
            None => self.byte(mode | reg | base),
        }
        match (mode, short) {
            (0x40, Some(disp)) => self.byte(disp as u8),
            (0x80, _) => self.bytes(&mem.disp.to_le_bytes()),
            _ => {}
        }
    }

    fn rex(&mut self, wide: bool, force: bool, reg: u8, index: u8, base: u8) {
        let rex = (u8::from(wide) << 3) | ((reg >> 3) << 2) | ((index >> 3) << 1) | (base >> 3);
        if rex != 0 || force {
            self.byte(0x40 | rex);
        }
    }

    fn byte(&mut self, byte: u8) {
        self.code.push(byte);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;
