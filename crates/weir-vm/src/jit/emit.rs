//! Templates that both modes share: arithmetic, moves and conditional jumps.
//!
//! Owns the register map (Table 1 of the XDP paper) and the subtleties of RFC 9669 that x86-64 sees differently: 32-bit
//! results are zero-extended, dividing by zero yields 0 (the dividend, for a rest), and the smallest number divided by -1
//! does not trap. Invariant: a template changes its destination register, r9 to r11 and the flags, nothing else.

use super::asm::*;
use crate::insn::{Kind, Op};

/// Host registers of R0 to R10.
const REGISTERS: [Reg; 11] = [RAX, RDI, RSI, RDX, RCX, R8, RBX, R13, R14, R15, RBP];

/// Points at the state of the run in all generated code.
pub(super) const STATE: Reg = R12;

/// Host register of a register of the program.
pub(super) fn register(number: u8) -> Reg {
    // Decoding admits no higher number.
    REGISTERS.get(number as usize).copied().unwrap_or(RBP)
}

/// Writes an arithmetic operation; false if `op` is something else.
pub(super) fn arithmetic(a: &mut Assembler, op: &Op, bmi2: bool) -> bool {
    use Kind::*;
    let dst = register(op.dst);
    let src = register(op.src);
    let imm = op.imm as u32 as i32;
    match op.kind {
        Add64K if imm == 0 => {}
        Sub64K if imm == 0 => {}
        Add64K => a.alu_imm(true, Alu::Add, dst, imm),
        Sub64K => a.alu_imm(true, Alu::Sub, dst, imm),
        Or64K => a.alu_imm(true, Alu::Or, dst, imm),
        // The upper half of a mask without sign is zero, and so is that of a 32-bit result.
        And64K => a.alu_imm(imm < 0, Alu::And, dst, imm),
        Xor64K => a.alu_imm(true, Alu::Xor, dst, imm),
        Add32K => a.alu_imm(false, Alu::Add, dst, imm),
        Sub32K => a.alu_imm(false, Alu::Sub, dst, imm),
        Or32K => a.alu_imm(false, Alu::Or, dst, imm),
        And32K => a.alu_imm(false, Alu::And, dst, imm),
        Xor32K => a.alu_imm(false, Alu::Xor, dst, imm),
        Add64X => a.alu(true, Alu::Add, dst, src),
        Sub64X => a.alu(true, Alu::Sub, dst, src),
        Or64X => a.alu(true, Alu::Or, dst, src),
        And64X => a.alu(true, Alu::And, dst, src),
        Xor64X => a.alu(true, Alu::Xor, dst, src),
        Add32X => a.alu(false, Alu::Add, dst, src),
        Sub32X => a.alu(false, Alu::Sub, dst, src),
        Or32X => a.alu(false, Alu::Or, dst, src),
        And32X => a.alu(false, Alu::And, dst, src),
        Xor32X => a.alu(false, Alu::Xor, dst, src),
        Mul64K => a.imul_imm(true, dst, dst, imm),
        Mul32K => a.imul_imm(false, dst, dst, imm),
        Mul64X => a.imul(true, dst, src),
        Mul32X => a.imul(false, dst, src),
        Mov64K => constant(a, dst, op.imm),
        Mov32K => constant(a, dst, u64::from(op.imm as u32)),
        Mov64X => a.mov(true, dst, src),
        Mov32X => a.mov(false, dst, src),
        Lsh64K => a.shift_imm(true, Shift::Shl, dst, imm as u8 & 63),
        Rsh64K => a.shift_imm(true, Shift::Shr, dst, imm as u8 & 63),
        Arsh64K => a.shift_imm(true, Shift::Sar, dst, imm as u8 & 63),
        Lsh32K => shift32(a, Shift::Shl, dst, imm),
        Rsh32K => shift32(a, Shift::Shr, dst, imm),
        Arsh32K => shift32(a, Shift::Sar, dst, imm),
        Lsh64X => shift(a, true, Shift::Shl, dst, src, bmi2),
        Rsh64X => shift(a, true, Shift::Shr, dst, src, bmi2),
        Arsh64X => shift(a, true, Shift::Sar, dst, src, bmi2),
        Lsh32X => shift(a, false, Shift::Shl, dst, src, bmi2),
        Rsh32X => shift(a, false, Shift::Shr, dst, src, bmi2),
        Arsh32X => shift(a, false, Shift::Sar, dst, src, bmi2),
        Div64K | Mod64K | Div32K | Mod32K if (imm as u32).is_power_of_two() && imm > 0 => {
            let wide = matches!(op.kind, Div64K | Mod64K);
            if matches!(op.kind, Div64K | Div32K) {
                shift_or_extend(a, wide, Shift::Shr, dst, imm.trailing_zeros() as u8);
            } else {
                a.alu_imm(false, Alu::And, dst, imm - 1);
            }
        }
        Div64K | Sdiv64K | Mod64K | Smod64K | Div32K | Sdiv32K | Mod32K | Smod32K => {
            let division = Division::of(op.kind);
            let value = if division.wide {
                op.imm
            } else {
                u64::from(op.imm as u32)
            };
            if value == 0 {
                division.by_zero(a, dst);
            } else {
                a.constant(R11, value);
                let minus_one = value == if division.wide { u64::MAX } else { 0xffff_ffff };
                division.write(a, dst, false, minus_one);
            }
        }
        Div64X | Sdiv64X | Mod64X | Smod64X | Div32X | Sdiv32X | Mod32X | Smod32X => {
            a.mov(true, R11, src);
            Division::of(op.kind).write(a, dst, true, true);
        }
        Neg64 => a.unary(true, Unary::Neg, dst),
        Neg32 => a.unary(false, Unary::Neg, dst),
        Movsx8To64 => a.sign_extend(true, Width::B1, dst, src),
        Movsx16To64 => a.sign_extend(true, Width::B2, dst, src),
        Movsx32To64 => a.sign_extend(true, Width::B4, dst, src),
        Movsx8To32 => a.sign_extend(false, Width::B1, dst, src),
        Movsx16To32 => a.sign_extend(false, Width::B2, dst, src),
        Le16 => a.zero_extend(Width::B2, dst, dst),
        Le32 => a.zero_extend(Width::B4, dst, dst),
        Le64 => {}
        Swap16 => {
            a.swap16(dst);
            a.zero_extend(Width::B2, dst, dst);
        }
        Swap32 => a.bswap(false, dst),
        Swap64 => a.bswap(true, dst),
        _ => return false,
    }
    true
}

/// Writes a conditional or unconditional jump to `target`; false if `op` is something else.
pub(super) fn jump(a: &mut Assembler, op: &Op, target: Label) -> bool {
    use Kind::*;
    if op.kind == Ja {
        a.jump(target);
        return true;
    }
    let Some((condition, wide, constant)) = comparison(op.kind) else {
        return false;
    };
    let dst = register(op.dst);
    let src = register(op.src);
    let imm = op.imm as u32 as i32;
    match (op.kind, constant) {
        (Jset64K | Jset32K, _) => a.test_imm(wide, dst, imm),
        (Jset64X | Jset32X, _) => a.test(wide, dst, src),
        (_, true) if imm == 0 => a.test(wide, dst, dst),
        (_, true) => a.alu_imm(wide, Alu::Cmp, dst, imm),
        (_, false) => a.alu(wide, Alu::Cmp, dst, src),
    }
    a.jump_if(condition, target);
    true
}

/// Jumps to `target` once the count in memory is used up, and takes one of it else.
pub(super) fn may_goto(a: &mut Assembler, count: Mem, target: Label) {
    a.alu_mem_imm(true, Alu::Cmp, count, 0);
    a.jump_if(Cond::Equal, target);
    a.alu_mem_imm(true, Alu::Sub, count, 1);
}

/// Condition, whether 64 bits are compared, and whether with a constant.
fn comparison(kind: Kind) -> Option<(Cond, bool, bool)> {
    use Kind::*;
    let condition = match kind {
        Jeq64K | Jeq64X | Jeq32K | Jeq32X => Cond::Equal,
        Jne64K | Jne64X | Jne32K | Jne32X => Cond::NotEqual,
        Jset64K | Jset64X | Jset32K | Jset32X => Cond::NotEqual,
        Jgt64K | Jgt64X | Jgt32K | Jgt32X => Cond::Above,
        Jge64K | Jge64X | Jge32K | Jge32X => Cond::AboveEqual,
        Jlt64K | Jlt64X | Jlt32K | Jlt32X => Cond::Below,
        Jle64K | Jle64X | Jle32K | Jle32X => Cond::BelowEqual,
        Jsgt64K | Jsgt64X | Jsgt32K | Jsgt32X => Cond::Greater,
        Jsge64K | Jsge64X | Jsge32K | Jsge32X => Cond::GreaterEqual,
        Jslt64K | Jslt64X | Jslt32K | Jslt32X => Cond::Less,
        Jsle64K | Jsle64X | Jsle32K | Jsle32X => Cond::LessEqual,
        _ => return None,
    };
    let number = kind as u8;
    let wide = number < Jeq32K as u8;
    let constant = number < Jeq64X as u8 || (number >= Jeq32K as u8 && number < Jeq32X as u8);
    Some((condition, wide, constant))
}

/// Writes an atomic operation (RFC 9669 section 5.3) on the memory r11 points at.
pub(super) fn atomic(a: &mut Assembler, op: &Op) {
    let wide = op.kind == Kind::Atomic64;
    let src = register(op.src);
    let cell = at(R11, 0);
    match op.imm & 0xff {
        0x00 => a.lock_alu(wide, Alu::Add, cell, src),
        0x40 => a.lock_alu(wide, Alu::Or, cell, src),
        0x50 => a.lock_alu(wide, Alu::And, cell, src),
        0xa0 => a.lock_alu(wide, Alu::Xor, cell, src),
        0x01 => a.lock_xadd(wide, cell, src),
        0x41 => fetch(a, wide, Alu::Or, src),
        0x51 => fetch(a, wide, Alu::And, src),
        0xa1 => fetch(a, wide, Alu::Xor, src),
        0xe1 => a.xchg(wide, cell, src),
        _ => {
            a.lock_cmpxchg(wide, cell, src);
            if !wide {
                // If the contents were equal, the upper half of rax is still there.
                a.mov(false, RAX, RAX);
            }
        }
    }
}

/// x86-64 has no fetching or, and, xor: compare and exchange until nobody interfered.
fn fetch(a: &mut Assembler, wide: bool, operation: Alu, src: Reg) {
    let again = a.label();
    let width = if wide { Width::B8 } else { Width::B4 };
    a.mov(true, R10, RAX);
    a.load(width, RAX, at(R11, 0));
    a.bind(again);
    a.mov(true, R9, RAX);
    let operand = if src == RAX { R10 } else { src };
    a.alu(wide, operation, R9, operand);
    a.lock_cmpxchg(wide, at(R11, 0), R9);
    a.jump_if(Cond::NotEqual, again);
    a.mov(wide, src, RAX);
    if src != RAX {
        a.mov(true, RAX, R10);
    }
}

/// Loads a constant; may change the flags.
pub(super) fn constant(a: &mut Assembler, to: Reg, value: u64) {
    if value == 0 {
        a.alu(false, Alu::Xor, to, to);
    } else {
        a.constant(to, value);
    }
}

/// A 32-bit shift by a constant: by 0 it must still clear the upper half.
fn shift32(a: &mut Assembler, op: Shift, dst: Reg, imm: i32) {
    shift_or_extend(a, false, op, dst, imm as u8 & 31);
}

fn shift_or_extend(a: &mut Assembler, wide: bool, op: Shift, dst: Reg, count: u8) {
    match (count, wide) {
        (0, true) => {}
        (0, false) => a.mov(false, dst, dst),
        _ => a.shift_imm(wide, op, dst, count),
    }
}

fn shift(a: &mut Assembler, wide: bool, op: Shift, dst: Reg, src: Reg, bmi2: bool) {
    if bmi2 {
        a.shift_by(wide, op, dst, dst, src);
        return;
    }
    if src == RCX {
        if dst == RCX {
            a.mov(true, R11, RCX);
            a.shift_cl(wide, op, R11);
            a.mov(true, RCX, R11);
        } else {
            a.shift_cl(wide, op, dst);
        }
        return;
    }
    a.mov(true, R11, RCX);
    a.mov(true, RCX, src);
    if dst == RCX {
        a.shift_cl(wide, op, R11);
        a.mov(true, RCX, R11);
    } else {
        a.shift_cl(wide, op, dst);
        a.mov(true, RCX, R11);
    }
}

/// A division or rest, by the value in r11.
#[derive(Clone, Copy)]
struct Division {
    wide: bool,
    signed: bool,
    rest: bool,
}

impl Division {
    fn of(kind: Kind) -> Division {
        use Kind::*;
        Division {
            wide: matches!(
                kind,
                Div64K | Div64X | Mod64K | Mod64X | Sdiv64K | Sdiv64X | Smod64K | Smod64X
            ),
            signed: matches!(
                kind,
                Sdiv64K | Sdiv64X | Smod64K | Smod64X | Sdiv32K | Sdiv32X | Smod32K | Smod32X
            ),
            rest: matches!(
                kind,
                Mod64K | Mod64X | Smod64K | Smod64X | Mod32K | Mod32X | Smod32K | Smod32X
            ),
        }
    }

    fn by_zero(self, a: &mut Assembler, dst: Reg) {
        match (self.rest, self.wide) {
            (false, _) => a.alu(false, Alu::Xor, dst, dst),
            (true, false) => a.mov(false, dst, dst),
            (true, true) => {}
        }
    }

    fn by_minus_one(self, a: &mut Assembler, dst: Reg) {
        if self.rest {
            a.alu(false, Alu::Xor, dst, dst);
        } else {
            a.unary(self.wide, Unary::Neg, dst);
        }
    }

    /// `maybe_zero`, `maybe_minus_one`: whether r11 can hold these.
    fn write(self, a: &mut Assembler, dst: Reg, maybe_zero: bool, maybe_minus_one: bool) {
        let (zero, minus_one, done) = (a.label(), a.label(), a.label());
        let minus_ones = self.signed && maybe_minus_one;
        if maybe_zero {
            a.test(self.wide, R11, R11);
            a.jump_if(Cond::Equal, zero);
        }
        if minus_ones {
            a.alu_imm(self.wide, Alu::Cmp, R11, -1);
            a.jump_if(Cond::Equal, minus_one);
        }
        if dst != RAX {
            a.mov(true, R10, RAX);
            a.mov(true, RAX, dst);
        }
        if dst != RDX {
            a.mov(true, R9, RDX);
        }
        if self.signed {
            a.sign_to_rdx(self.wide);
            a.unary(self.wide, Unary::Idiv, R11);
        } else {
            a.alu(false, Alu::Xor, RDX, RDX);
            a.unary(self.wide, Unary::Div, R11);
        }
        a.mov(self.wide, R11, if self.rest { RDX } else { RAX });
        if dst != RAX {
            a.mov(true, RAX, R10);
        }
        if dst != RDX {
            a.mov(true, RDX, R9);
        }
        a.mov(true, dst, R11);
        if maybe_zero || minus_ones {
            a.jump(done);
        }
        a.bind(zero);
        if maybe_zero {
            self.by_zero(a, dst);
            if minus_ones {
                a.jump(done);
            }
        }
        a.bind(minus_one);
        if minus_ones {
            self.by_minus_one(a, dst);
        }
        a.bind(done);
    }
}
