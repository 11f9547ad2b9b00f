//! What an operation is, apart from its exact arithmetic: class, operands, registers read and written.
//!
//! Owns the translation of [`Kind`] into the few shapes the walk, the liveness pass and backtracking share.
//! Invariant: every kind has a shape; reads and writes are complete.

use super::scalar::{Alu, Cond};
use crate::insn::{Kind, Op};

/// An operation's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// dst = dst op operand.
    Alu { op: Alu, wide: bool, imm: bool },
    /// dst = dst with bytes swapped or cut.
    Bytes,
    /// dst = sign extension of the low `bits` of src.
    SignMove { bits: u32, wide: bool },
    /// dst = 64-bit constant or pointer.
    LoadImm,
    /// dst = function.
    LoadFunction,
    /// dst = memory.
    Load { bytes: u8, signed: bool },
    /// memory = src.
    Store { bytes: u8 },
    /// memory = immediate.
    StoreImm { bytes: u8 },
    /// Read-modify-write.
    Atomic { bytes: u8 },
    /// r0 = bytes of the packet, by way of the context in r6.
    PacketLoad { indexed: bool },
    /// Unconditional.
    Jump,
    /// Jumps once a count is used up, which a run cannot see.
    MayGoto,
    /// Conditional.
    Branch { cond: Cond, wide: bool, imm: bool },
    /// Helper.
    Helper,
    /// Function of the program.
    Call,
    /// Through a register.
    CallRegister,
    /// Return.
    Exit,
    /// Second half of a 16-byte load.
    Half,
    /// Behind the last operation.
    End,
    /// Operand nobody supplies.
    External,
    /// What is not understood.
    Invalid,
}

/// The shape of an operation.
pub(super) fn shape(op: &Op) -> Shape {
    use Kind::*;
    if let Some(alu) = arithmetic(op.kind) {
        return alu;
    }
    if let Some(branch) = branch(op.kind) {
        return branch;
    }
    match op.kind {
        Neg64 => Shape::Alu {
            op: Alu::Neg,
            wide: true,
            imm: true,
        },
        Neg32 => Shape::Alu {
            op: Alu::Neg,
            wide: false,
            imm: true,
        },
        Movsx8To64 => sign(8, true),
        Movsx16To64 => sign(16, true),
        Movsx32To64 => sign(32, true),
        Movsx8To32 => sign(8, false),
        Movsx16To32 => sign(16, false),
        Le16 | Le32 | Le64 | Swap16 | Swap32 | Swap64 => Shape::Bytes,
        LoadImm => Shape::LoadImm,
        LoadFunction => Shape::LoadFunction,
        Ldx8 => load(1, false),
        Ldx16 => load(2, false),
        Ldx32 => load(4, false),
        Ldx64 => load(8, false),
        Ldxs8 => load(1, true),
        Ldxs16 => load(2, true),
        Ldxs32 => load(4, true),
        Stx8 => Shape::Store { bytes: 1 },
        Stx16 => Shape::Store { bytes: 2 },
        Stx32 => Shape::Store { bytes: 4 },
        Stx64 => Shape::Store { bytes: 8 },
        St8 => Shape::StoreImm { bytes: 1 },
        St16 => Shape::StoreImm { bytes: 2 },
        St32 => Shape::StoreImm { bytes: 4 },
        St64 => Shape::StoreImm { bytes: 8 },
        Atomic32 => Shape::Atomic { bytes: 4 },
        Atomic64 => Shape::Atomic { bytes: 8 },
        PacketAbs => Shape::PacketLoad { indexed: false },
        PacketInd => Shape::PacketLoad { indexed: true },
        Ja => Shape::Jump,
        MayGoto => Shape::MayGoto,
        Helper => Shape::Helper,
        Call => Shape::Call,
        CallRegister => Shape::CallRegister,
        Exit => Shape::Exit,
        Half => Shape::Half,
        SectionEnd => Shape::End,
        Invalid => Shape::Invalid,
        // `External` and nothing else: the two tables above name all the rest, as the test below shows.
        _ => Shape::External,
    }
}

fn sign(bits: u32, wide: bool) -> Shape {
    Shape::SignMove { bits, wide }
}

fn load(bytes: u8, signed: bool) -> Shape {
    Shape::Load { bytes, signed }
}

/// Kinds of one operation in the order 64-bit immediate, 64-bit register, 32-bit immediate, 32-bit register.
type Row<T> = (T, [Kind; 4]);

fn find<T: Copy>(rows: &[Row<T>], kind: Kind) -> Option<(T, bool, bool)> {
    rows.iter().find_map(|(what, kinds)| {
        let at = kinds.iter().position(|k| *k == kind)?;
        Some((*what, at < 2, at % 2 == 0))
    })
}

fn arithmetic(kind: Kind) -> Option<Shape> {
    use Kind::*;
    if kind as u8 > Smod32X as u8 {
        return None;
    }
    #[rustfmt::skip]
    const ROWS: [Row<Alu>; 14] = [
        (Alu::Add, [Add64K, Add64X, Add32K, Add32X]), (Alu::Sub, [Sub64K, Sub64X, Sub32K, Sub32X]),
        (Alu::Mul, [Mul64K, Mul64X, Mul32K, Mul32X]), (Alu::Div, [Div64K, Div64X, Div32K, Div32X]),
        (Alu::Or, [Or64K, Or64X, Or32K, Or32X]), (Alu::And, [And64K, And64X, And32K, And32X]),
        (Alu::Lsh, [Lsh64K, Lsh64X, Lsh32K, Lsh32X]), (Alu::Rsh, [Rsh64K, Rsh64X, Rsh32K, Rsh32X]),
        (Alu::Mod, [Mod64K, Mod64X, Mod32K, Mod32X]), (Alu::Xor, [Xor64K, Xor64X, Xor32K, Xor32X]),
        (Alu::Mov, [Mov64K, Mov64X, Mov32K, Mov32X]), (Alu::Arsh, [Arsh64K, Arsh64X, Arsh32K, Arsh32X]),
        (Alu::Sdiv, [Sdiv64K, Sdiv64X, Sdiv32K, Sdiv32X]), (Alu::Smod, [Smod64K, Smod64X, Smod32K, Smod32X]),
    ];
    find(&ROWS, kind).map(|(op, wide, imm)| Shape::Alu { op, wide, imm })
}

fn branch(kind: Kind) -> Option<Shape> {
    use Kind::*;
    if (kind as u8) < Jeq64K as u8 || kind as u8 > Jsle32X as u8 {
        return None;
    }
    #[rustfmt::skip]
    const ROWS: [Row<Cond>; 11] = [
        (Cond::Eq, [Jeq64K, Jeq64X, Jeq32K, Jeq32X]), (Cond::Gt, [Jgt64K, Jgt64X, Jgt32K, Jgt32X]),
        (Cond::Ge, [Jge64K, Jge64X, Jge32K, Jge32X]), (Cond::Set, [Jset64K, Jset64X, Jset32K, Jset32X]),
        (Cond::Ne, [Jne64K, Jne64X, Jne32K, Jne32X]), (Cond::Sgt, [Jsgt64K, Jsgt64X, Jsgt32K, Jsgt32X]),
        (Cond::Sge, [Jsge64K, Jsge64X, Jsge32K, Jsge32X]), (Cond::Lt, [Jlt64K, Jlt64X, Jlt32K, Jlt32X]),
        (Cond::Le, [Jle64K, Jle64X, Jle32K, Jle32X]), (Cond::Slt, [Jslt64K, Jslt64X, Jslt32K, Jslt32X]),
        (Cond::Sle, [Jsle64K, Jsle64X, Jsle32K, Jsle32X]),
    ];
    find(&ROWS, kind).map(|(cond, wide, imm)| Shape::Branch { cond, wide, imm })
}

/// The operator as in assembler.
pub(super) fn operator(op: Alu) -> &'static str {
    match op {
        Alu::Add => "+=",
        Alu::Sub => "-=",
        Alu::Mul => "*=",
        Alu::Div => "/=",
        Alu::Mod => "%=",
        Alu::Sdiv => "s/=",
        Alu::Smod => "s%=",
        Alu::And => "&=",
        Alu::Or => "|=",
        Alu::Xor => "^=",
        Alu::Lsh => "<<=",
        Alu::Rsh => ">>=",
        Alu::Arsh => "s>>=",
        Alu::Neg => "= -",
        Alu::Mov => "=",
    }
}

/// Whether an atomic operation hands back the old value, and in which register.
pub(super) fn fetched(op: &Op) -> Option<u8> {
    match op.imm & 0xff {
        0xf1 => Some(0),
        code if code & 1 == 1 => Some(op.src),
        _ => None,
    }
}

/// Registers read and written, as bits; `arguments` is how many arguments a helper takes.
pub(super) fn uses(op: &Op, shape: Shape, arguments: u8) -> (u16, u16) {
    let (dst, src) = (1u16 << op.dst, 1u16 << op.src);
    match shape {
        Shape::Alu {
            op: Alu::Mov,
            imm: true,
            ..
        } => (0, dst),
        Shape::Alu {
            op: Alu::Mov,
            imm: false,
            ..
        }
        | Shape::SignMove { .. } => (src, dst),
        Shape::Alu { imm: true, .. } | Shape::Bytes => (dst, dst),
        Shape::Alu { imm: false, .. } => (dst | src, dst),
        Shape::LoadImm | Shape::LoadFunction => (0, dst),
        Shape::Load { .. } => (src, dst),
        Shape::Store { .. } => (dst | src, 0),
        Shape::StoreImm { .. } => (dst, 0),
        Shape::Atomic { .. } => {
            let compared = if op.imm & 0xff == 0xf1 { 1 } else { 0 };
            (
                dst | src | compared,
                fetched(op).map_or(0, |register| 1 << register),
            )
        }
        Shape::PacketLoad { indexed } => (1 << 6 | if indexed { src } else { 0 }, 0x3f),
        Shape::Branch { imm: true, .. } => (dst, 0),
        Shape::Branch { imm: false, .. } => (dst | src, 0),
        Shape::Helper => (((1u16 << (arguments + 1)) - 1) & !1, 0x3f),
        Shape::Call => (0x3e, 0x3f),
        Shape::CallRegister => (0x3e | dst, 0x3f),
        Shape::Exit => (1, 0),
        Shape::Jump
        | Shape::MayGoto
        | Shape::Half
        | Shape::End
        | Shape::External
        | Shape::Invalid => (0, 0),
    }
}
