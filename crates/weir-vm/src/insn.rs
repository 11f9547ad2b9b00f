//! Instructions: from the eight-byte encoding of RFC 9669 to operations the interpreter runs directly.
//!
//! Owns the opcode table and the checks that need nothing but one instruction and the length of its section
//! (unknown opcodes, registers above r10, jumps that leave the section or land inside a 16-byte load).
//! It does not know ELF: whoever links code first writes resolved addresses into [`Fixup`]s.
//! Invariant: every [`Op`] names registers below 11, and its target, where it has one, is the index of an operation.

use crate::catalogue::kernel_function;
use thiserror::Error;

/// Size of one encoded instruction slot in bytes (RFC 9669 section 3).
pub const INSN_BYTES: usize = 8;

/// An instruction as it stands in the object: RFC 9669 section 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Class, source bit and operation.
    pub opcode: u8,
    /// Destination register number.
    pub dst: u8,
    /// Source register number, or the kind of immediate.
    pub src: u8,
    /// Signed offset: of a memory access, of a jump in slots, or the variant of an operation.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl Insn {
    /// Reads one slot.
    pub fn from_bytes(b: [u8; INSN_BYTES]) -> Insn {
        Insn {
            opcode: b[0],
            dst: b[1] & 15,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// Writes one slot.
    pub fn to_bytes(self) -> [u8; INSN_BYTES] {
        let off = self.off.to_le_bytes();
        let imm = self.imm.to_le_bytes();
        let regs = (self.dst & 15) | (self.src << 4);
        [
            self.opcode,
            regs,
            off[0],
            off[1],
            imm[0],
            imm[1],
            imm[2],
            imm[3],
        ]
    }
}

/// Why an instruction cannot be decoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The code is not a whole number of slots.
    #[error("code of {0} bytes is not a multiple of 8: the object is truncated")]
    Length(usize),
    /// No such operation in RFC 9669.
    #[error("instruction {pc}: unknown opcode {opcode:#04x} (off {off}, imm {imm})")]
    Opcode {
        /// Index of the slot.
        pc: usize,
        /// The opcode byte.
        opcode: u8,
        /// Its offset field.
        off: i16,
        /// Its immediate.
        imm: i32,
    },
    /// Registers are r0 to r10; r10 cannot be written.
    #[error("instruction {pc}: register r{register} cannot be used here")]
    Register {
        /// Index of the slot.
        pc: usize,
        /// The register.
        register: u8,
    },
    /// A jump or call that leaves its section or lands in the second half of a 16-byte load.
    #[error("instruction {pc}: target {target} is not an instruction of this section")]
    Target {
        /// Index of the slot.
        pc: usize,
        /// Index of the slot jumped to.
        target: i64,
    },
    /// The first half of a 16-byte load without the second.
    #[error("instruction {pc}: 16-byte load without its second half")]
    HalfLoad {
        /// Index of the slot.
        pc: usize,
    },
    /// A 16-byte load of a map or variable that no relocation resolved.
    #[error(
        "instruction {pc}: 16-byte load of kind {kind} needs a relocation and the code has none"
    )]
    Unlinked {
        /// Index of the slot.
        pc: usize,
        /// The source field.
        kind: u8,
    },
}

impl DecodeError {
    /// The reason without the instruction's number, for messages that name the place themselves.
    pub(crate) fn reason(&self) -> String {
        let text = self.to_string();
        match (self, text.split_once(": ")) {
            (DecodeError::Length(_), _) | (_, None) => text,
            (_, Some((_, reason))) => reason.to_owned(),
        }
    }
}

/// What a relocation put in place of an instruction's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixup {
    /// A 16-byte load yields this value.
    Value(u64),
    /// A 16-byte load yields the address of this operation (a function pointer).
    Function(usize),
    /// A call goes to this operation.
    Call(usize),
    /// A call of a kernel function, by its number among helpers.
    Kernel(u32),
    /// The symbol is not in the object; the index is into the list of external names.
    External(u32),
    /// Nothing that can be supplied; the index is into the list of reasons.
    Invalid(u32),
}

/// The operations of the interpreter, one per distinct behaviour.
///
/// `K` operations take the immediate, `X` operations the source register; `64` and `32` are operand widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Kind {
    Add64K, Sub64K, Mul64K, Div64K, Or64K, And64K, Lsh64K, Rsh64K, Mod64K, Xor64K, Mov64K, Arsh64K, Sdiv64K, Smod64K,
    Add64X, Sub64X, Mul64X, Div64X, Or64X, And64X, Lsh64X, Rsh64X, Mod64X, Xor64X, Mov64X, Arsh64X, Sdiv64X, Smod64X,
    Add32K, Sub32K, Mul32K, Div32K, Or32K, And32K, Lsh32K, Rsh32K, Mod32K, Xor32K, Mov32K, Arsh32K, Sdiv32K, Smod32K,
    Add32X, Sub32X, Mul32X, Div32X, Or32X, And32X, Lsh32X, Rsh32X, Mod32X, Xor32X, Mov32X, Arsh32X, Sdiv32X, Smod32X,
    Neg64, Neg32,
    Movsx8To64, Movsx16To64, Movsx32To64, Movsx8To32, Movsx16To32,
    Le16, Le32, Le64, Swap16, Swap32, Swap64,
    LoadImm, LoadFunction,
    Ldx8, Ldx16, Ldx32, Ldx64, Ldxs8, Ldxs16, Ldxs32,
    Stx8, Stx16, Stx32, Stx64, St8, St16, St32, St64,
    Atomic32, Atomic64,
    /// r0 = bytes of the packet at the immediate (and, second, the source register); `off` is the width. Ends the function with 0 where
    /// there are none.
    PacketAbs, PacketInd,
    Ja, MayGoto,
    Jeq64K, Jgt64K, Jge64K, Jset64K, Jne64K, Jsgt64K, Jsge64K, Jlt64K, Jle64K, Jslt64K, Jsle64K,
    Jeq64X, Jgt64X, Jge64X, Jset64X, Jne64X, Jsgt64X, Jsge64X, Jlt64X, Jle64X, Jslt64X, Jsle64X,
    Jeq32K, Jgt32K, Jge32K, Jset32K, Jne32K, Jsgt32K, Jsge32K, Jlt32K, Jle32K, Jslt32K, Jsle32K,
    Jeq32X, Jgt32X, Jge32X, Jset32X, Jne32X, Jsgt32X, Jsge32X, Jlt32X, Jle32X, Jslt32X, Jsle32X,
    Helper, Call, CallRegister, Exit,
    /// Second half of a 16-byte load: never a target.
    Half,
    /// Stands after the last instruction of a section.
    SectionEnd,
    /// An operand nobody supplies (kernel function, kernel variable, `.kconfig`).
    External,
    /// What is not understood; the immediate is an index into the list of reasons. No program with one is accepted.
    Invalid,
}

/// One decoded operation, 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) dst: u8,
    pub(crate) src: u8,
    /// A field that must be zero is not. Runs do not look at such fields; the verifier refuses paths that lead here, as the kernel does.
    pub(crate) reserved: bool,
    /// Memory offset, or the absolute index of the jump or call target.
    pub(crate) off: i32,
    /// Immediate: sign-extended for 64-bit operations, the low 32 bits for 32-bit ones.
    pub(crate) imm: u64,
}

/// How often a run goes on at [`Kind::MayGoto`] before it jumps (`BPF_MAX_LOOPS`). The kernel counts for each frame, or, on x86-64, ends
/// such a loop after a quarter of a second.
pub(crate) const MAY_GOTO_MAX: u64 = 1 << 23;
/// Immediate of a load that later accesses may not pass. One program runs at a time, so runs need not tell it from a load.
pub(crate) const LOAD_ACQUIRE: i32 = 0x100;
/// Immediate of a store that may not pass earlier accesses.
pub(crate) const STORE_RELEASE: i32 = 0x110;
/// `Op::off` of the swaps that do not depend on the machine's byte order; 0 for those of `be` and `le`.
pub(crate) const UNCONDITIONAL_SWAP: i32 = 1;
/// `Op::src` of the jump with a 32-bit distance; 0 for the one with 16 bits.
pub(crate) const LONG_JUMP: u8 = 1;

impl Op {
    /// The jump or call target.
    #[inline(always)]
    pub(crate) fn target(&self) -> usize {
        self.off as u32 as usize
    }

    pub(crate) fn invalid(reason: u32) -> Op {
        Op {
            kind: Kind::Invalid,
            imm: u64::from(reason),
            ..Op::section_end()
        }
    }

    /// Of an instruction that only matters where a path leads to it: the verifier refuses that path, not the program.
    fn invalid_on_path(reason: u32) -> Op {
        Op {
            reserved: true,
            ..Op::invalid(reason)
        }
    }

    pub(crate) fn section_end() -> Op {
        Op {
            kind: Kind::SectionEnd,
            dst: 0,
            src: 0,
            reserved: false,
            off: 0,
            imm: 0,
        }
    }
}

/// Splits code bytes into instruction slots.
///
/// # Errors
/// [`DecodeError::Length`] when a slot is cut.
pub(crate) fn split(code: &[u8]) -> Result<Vec<Insn>, DecodeError> {
    let (slots, rest) = code.as_chunks::<INSN_BYTES>();
    if !rest.is_empty() {
        return Err(DecodeError::Length(code.len()));
    }
    Ok(slots.iter().map(|b| Insn::from_bytes(*b)).collect())
}

/// Decodes one section whose first operation will have index `base`; `fixup` yields what relocations resolved, by slot.
///
/// The result has one operation per slot and a [`Kind::SectionEnd`] behind them. `invalid` answers each error with the index of
/// its reason, for an operation that stands in the instruction's place, or gives up with it.
pub(crate) fn decode(
    insns: &[Insn],
    base: usize,
    fixup: impl Fn(usize) -> Option<Fixup>,
    mut invalid: impl FnMut(DecodeError) -> Result<u32, DecodeError>,
) -> Result<Vec<Op>, DecodeError> {
    let mut ops = Vec::with_capacity(insns.len() + 1);
    let mut halves = vec![false; insns.len()];
    let mut pc = 0;
    while let Some(insn) = insns.get(pc) {
        let second = insns.get(pc + 1).filter(|s| s.opcode == 0);
        if let (LDDW, Some(second)) = (insn.opcode, second) {
            ops.push(match decode_wide(insn, second, pc, base, fixup(pc)) {
                Ok(mut op) => {
                    op.reserved = insn.off != 0;
                    op
                }
                Err(error) => Op::invalid(invalid(error)?),
            });
            ops.push(Op {
                kind: Kind::Half,
                ..Op::section_end()
            });
            if let Some(half) = halves.get_mut(pc + 1) {
                *half = true;
            }
            pc += 2;
        } else {
            let place = SlotPosition {
                pc,
                base,
                len: insns.len(),
            };
            ops.push(match decode_one(insn, place, fixup(pc)) {
                Ok(op) => op,
                // Compilers and tests mark what is never reached with a write to the frame pointer; the kernel takes it there.
                Err(
                    error @ DecodeError::Register {
                        register: FRAME_POINTER,
                        ..
                    },
                ) => Op::invalid_on_path(invalid(error)?),
                Err(error) => Op::invalid(invalid(error)?),
            });
            pc += 1;
        }
    }
    check_targets(&mut ops, &halves, base, invalid)?;
    ops.push(Op::section_end());
    Ok(ops)
}

/// Opcode of the 16-byte load.
pub(crate) const LDDW: u8 = 0x18;
const FRAME_POINTER: u8 = 10;

/// Source of a [`Kind::LoadImm`] whose value a relocation supplied.
pub(crate) const LINKED: u8 = 1;

fn check_targets(
    ops: &mut [Op],
    halves: &[bool],
    base: usize,
    mut invalid: impl FnMut(DecodeError) -> Result<u32, DecodeError>,
) -> Result<(), DecodeError> {
    for (pc, op) in ops.iter_mut().enumerate() {
        let jumps = (op.kind as u8) >= Kind::Ja as u8 && (op.kind as u8) < Kind::Helper as u8;
        if !jumps {
            continue;
        }
        let target = i64::from(op.off) - base as i64;
        let inside = usize::try_from(target).is_ok_and(|t| halves.get(t) == Some(&false));
        if !inside {
            *op = Op::invalid(invalid(DecodeError::Target { pc, target })?);
        }
    }
    Ok(())
}

fn decode_wide(
    insn: &Insn,
    second: &Insn,
    pc: usize,
    base: usize,
    fixup: Option<Fixup>,
) -> Result<Op, DecodeError> {
    check_register(insn.dst, pc, true)?;
    let op = |kind, imm| Op {
        kind,
        dst: insn.dst,
        src: 0,
        reserved: false,
        off: 0,
        imm,
    };
    match fixup {
        Some(Fixup::Value(v)) => {
            // Tells a pointer from a number that happens to look like one.
            let linked = Op {
                src: LINKED,
                ..op(Kind::LoadImm, v)
            };
            return Ok(linked);
        }
        Some(Fixup::Function(target) | Fixup::Call(target)) => {
            return Ok(op(Kind::LoadFunction, target as u64));
        }
        Some(Fixup::External(name)) => return Ok(op(Kind::External, u64::from(name))),
        Some(Fixup::Invalid(reason)) => return Ok(Op::invalid(reason)),
        Some(Fixup::Kernel(_)) => return Err(DecodeError::Unlinked { pc, kind: insn.src }),
        None => {}
    }
    match insn.src {
        0 => Ok(op(
            Kind::LoadImm,
            u64::from(insn.imm as u32) | (u64::from(second.imm as u32) << 32),
        )),
        // BPF_PSEUDO_FUNC: the immediate counts slots from the next instruction.
        4 => {
            let target = pc as i64 + 1 + i64::from(insn.imm);
            let target = usize::try_from(target)
                .ok()
                .ok_or(DecodeError::Target { pc, target })?;
            Ok(op(Kind::LoadFunction, (base + target) as u64))
        }
        kind => Err(DecodeError::Unlinked { pc, kind }),
    }
}

/// Where an instruction stands: slot `pc` of a section of `len` slots whose first operation has index `base`.
#[derive(Clone, Copy)]
struct SlotPosition {
    pc: usize,
    base: usize,
    len: usize,
}

impl SlotPosition {
    /// Index of the operation `distance` slots behind the next one.
    fn target(self, distance: i64) -> Result<i32, DecodeError> {
        let relative = self.pc as i64 + 1 + distance;
        let error = DecodeError::Target {
            pc: self.pc,
            target: relative,
        };
        if relative < 0 || relative >= self.len as i64 {
            return Err(error);
        }
        i32::try_from(relative + self.base as i64).map_err(|_| error)
    }
}

fn decode_one(insn: &Insn, place: SlotPosition, fixup: Option<Fixup>) -> Result<Op, DecodeError> {
    let pc = place.pc;
    let unknown = DecodeError::Opcode {
        pc,
        opcode: insn.opcode,
        off: insn.off,
        imm: insn.imm,
    };
    let class = insn.opcode & 7;
    if let Some(Fixup::External(name)) = fixup {
        return Ok(Op {
            kind: Kind::External,
            imm: u64::from(name),
            ..Op::section_end()
        });
    }
    if let Some(Fixup::Invalid(reason)) = fixup {
        return Ok(Op::invalid(reason));
    }
    if insn.opcode == LDDW {
        return Err(DecodeError::HalfLoad { pc });
    }
    let mut op = Op {
        kind: Kind::Exit,
        dst: insn.dst,
        src: insn.src,
        reserved: uses_reserved(insn),
        off: i32::from(insn.off),
        imm: i64::from(insn.imm) as u64,
    };
    match class {
        0 => {
            op.off = match insn.opcode & 0x18 {
                0x00 => 4,
                0x08 => 2,
                0x10 => 1,
                _ => return Err(unknown),
            };
            op.kind = match insn.opcode & 0xe0 {
                0x20 => Kind::PacketAbs,
                0x40 => Kind::PacketInd,
                _ => return Err(unknown),
            };
            check_register(insn.dst, pc, false)?;
            check_register(insn.src, pc, false)?;
            op.imm = u64::from(insn.imm as u32);
        }
        1 => {
            op.kind = load_kind(insn.opcode).ok_or(unknown)?;
            check_register(insn.dst, pc, true)?;
            check_register(insn.src, pc, false)?;
        }
        2 | 3 => {
            op.kind = store_kind(insn).ok_or(unknown)?;
            check_register(insn.dst, pc, false)?;
            if class == 3 {
                let fetches = matches!(op.kind, Kind::Atomic32 | Kind::Atomic64)
                    && insn.imm & 1 == 1
                    && insn.imm != 0xf1;
                check_register(insn.src, pc, fetches)?;
                if is_load(op.kind) {
                    check_register(insn.dst, pc, true)?;
                }
            }
        }
        4 | 7 => {
            op.kind = alu_kind(insn).ok_or(unknown)?;
            check_register(insn.dst, pc, true)?;
            if insn.opcode & 8 != 0 && insn.opcode & 0xf0 != 0xd0 {
                check_register(insn.src, pc, false)?;
            }
            if class == 4 {
                op.imm = u64::from(insn.imm as u32);
            }
            if insn.opcode & 0xf0 == 0xd0 {
                op.off = if class == 7 { UNCONDITIONAL_SWAP } else { 0 };
            }
        }
        _ => return decode_jump(insn, place, fixup, op, unknown),
    }
    Ok(op)
}

fn decode_jump(
    insn: &Insn,
    place: SlotPosition,
    fixup: Option<Fixup>,
    mut op: Op,
    unknown: DecodeError,
) -> Result<Op, DecodeError> {
    let pc = place.pc;
    let wide = insn.opcode & 7 == 5;
    match insn.opcode {
        0x05 => {
            op.kind = Kind::Ja;
            op.src = 0;
            op.off = place.target(i64::from(insn.off))?;
            return Ok(op);
        }
        0x06 => {
            op.kind = Kind::Ja;
            op.src = LONG_JUMP;
            op.off = place.target(i64::from(insn.imm))?;
            return Ok(op);
        }
        // Of the conditions that are not comparisons there is one: a count of the run.
        0xe5 if insn.src == 0 => {
            op.kind = Kind::MayGoto;
            op.off = place.target(i64::from(insn.off))?;
            return Ok(op);
        }
        0x85 => return decode_call(insn, place, fixup, op, unknown),
        0x8d => {
            check_register(insn.dst, pc, false)?;
            op.kind = Kind::CallRegister;
            return Ok(op);
        }
        0x95 => {
            op.kind = Kind::Exit;
            return Ok(op);
        }
        _ => {}
    }
    op.kind = jump_kind(insn.opcode, wide).ok_or(unknown)?;
    check_register(insn.dst, pc, false)?;
    if insn.opcode & 8 != 0 {
        check_register(insn.src, pc, false)?;
    }
    if !wide {
        op.imm = u64::from(insn.imm as u32);
    }
    op.off = place.target(i64::from(insn.off))?;
    Ok(op)
}

fn decode_call(
    insn: &Insn,
    place: SlotPosition,
    fixup: Option<Fixup>,
    mut op: Op,
    unknown: DecodeError,
) -> Result<Op, DecodeError> {
    match (fixup, insn.src) {
        (Some(Fixup::Call(at) | Fixup::Function(at)), _) => {
            op.kind = Kind::Call;
            op.off = i32::try_from(at).map_err(|_| unknown)?;
        }
        (Some(Fixup::Kernel(number)), _) => {
            op.kind = Kind::Helper;
            op.imm = u64::from(number);
        }
        (Some(Fixup::Value(_) | Fixup::External(_) | Fixup::Invalid(_)), _) => return Err(unknown),
        // Numbers of kernel functions are given by linking only.
        (None, 0) if kernel_function(insn.imm as u32).is_some() => return Err(unknown),
        (None, 0) => {
            op.kind = Kind::Helper;
            op.imm = u64::from(insn.imm as u32);
        }
        (None, 1) => {
            op.kind = Kind::Call;
            op.off = place.target(i64::from(insn.imm))?;
        }
        (None, _) => return Err(unknown),
    }
    Ok(op)
}

/// Whether a field that RFC 9669 reserves for the instruction is not zero (kernel/bpf/verifier.c: "uses reserved fields").
fn uses_reserved(insn: &Insn) -> bool {
    let (operation, register) = (insn.opcode & 0xf0, insn.opcode & 8 != 0);
    match insn.opcode & 7 {
        // Of the packet: r0 is not named, and a source only where one is added.
        0 => insn.dst != 0 || insn.off != 0 || (insn.opcode & 0xe0 == 0x20 && insn.src != 0),
        1 => insn.imm != 0,
        2 => insn.src != 0,
        3 => insn.opcode & 0xe0 == 0x60 && insn.imm != 0,
        4 | 7 => match operation {
            0x80 => insn.src != 0 || insn.off != 0 || insn.imm != 0,
            0xd0 => insn.src != 0 || insn.off != 0,
            _ if register => insn.imm != 0,
            _ => insn.src != 0,
        },
        5 | 6 => match insn.opcode {
            0x05 | 0xe5 => insn.src != 0 || insn.dst != 0 || insn.imm != 0,
            0x06 => insn.src != 0 || insn.dst != 0 || insn.off != 0,
            // The offset of a call names the object a kernel function is in.
            0x85 => insn.dst != 0 || (insn.off != 0 && insn.src != PSEUDO_KFUNC_CALL),
            0x95 => insn.src != 0 || insn.dst != 0 || insn.imm != 0,
            _ if register => insn.imm != 0,
            _ => insn.src != 0,
        },
        _ => false,
    }
}

/// Source of a call of a kernel function.
const PSEUDO_KFUNC_CALL: u8 = 2;

fn check_register(register: u8, pc: usize, written: bool) -> Result<(), DecodeError> {
    let last = if written {
        FRAME_POINTER - 1
    } else {
        FRAME_POINTER
    };
    if register > last {
        return Err(DecodeError::Register { pc, register });
    }
    Ok(())
}

fn is_load(kind: Kind) -> bool {
    matches!(kind, Kind::Ldx8 | Kind::Ldx16 | Kind::Ldx32 | Kind::Ldx64)
}

fn load_kind(opcode: u8) -> Option<Kind> {
    Some(match opcode {
        0x61 => Kind::Ldx32,
        0x69 => Kind::Ldx16,
        0x71 => Kind::Ldx8,
        0x79 => Kind::Ldx64,
        0x81 => Kind::Ldxs32,
        0x89 => Kind::Ldxs16,
        0x91 => Kind::Ldxs8,
        _ => return None,
    })
}

fn store_kind(insn: &Insn) -> Option<Kind> {
    Some(match insn.opcode {
        0x62 => Kind::St32,
        0x6a => Kind::St16,
        0x72 => Kind::St8,
        0x7a => Kind::St64,
        0x63 => Kind::Stx32,
        0x6b => Kind::Stx16,
        0x73 => Kind::Stx8,
        0x7b => Kind::Stx64,
        0xc3 | 0xdb | 0xcb | 0xd3 if matches!(insn.imm, LOAD_ACQUIRE | STORE_RELEASE) => {
            match (insn.imm == LOAD_ACQUIRE, insn.opcode) {
                (true, 0xc3) => Kind::Ldx32,
                (true, 0xcb) => Kind::Ldx16,
                (true, 0xd3) => Kind::Ldx8,
                (true, _) => Kind::Ldx64,
                (false, 0xc3) => Kind::Stx32,
                (false, 0xcb) => Kind::Stx16,
                (false, 0xd3) => Kind::Stx8,
                (false, _) => Kind::Stx64,
            }
        }
        0xc3 | 0xdb => {
            if !matches!(
                insn.imm,
                0x00 | 0x01 | 0x40 | 0x41 | 0x50 | 0x51 | 0xa0 | 0xa1 | 0xe1 | 0xf1
            ) {
                return None;
            }
            if insn.opcode == 0xc3 {
                Kind::Atomic32
            } else {
                Kind::Atomic64
            }
        }
        _ => return None,
    })
}

fn alu_kind(insn: &Insn) -> Option<Kind> {
    use Kind::*;
    let wide = insn.opcode & 7 == 7;
    let register = insn.opcode & 8 != 0;
    let operation = insn.opcode & 0xf0;
    let pick = |k64, x64, k32, x32| match (wide, register) {
        (true, false) => k64,
        (true, true) => x64,
        (false, false) => k32,
        (false, true) => x32,
    };
    if operation == 0xd0 {
        return match (wide, register, insn.imm) {
            (false, false, 16) => Some(Le16),
            (false, false, 32) => Some(Le32),
            (false, false, 64) => Some(Le64),
            (false, true, 16) | (true, false, 16) => Some(Swap16),
            (false, true, 32) | (true, false, 32) => Some(Swap32),
            (false, true, 64) | (true, false, 64) => Some(Swap64),
            _ => None,
        };
    }
    if operation == 0xb0 && insn.off != 0 {
        return match (wide, register, insn.off) {
            (true, true, 8) => Some(Movsx8To64),
            (true, true, 16) => Some(Movsx16To64),
            (true, true, 32) => Some(Movsx32To64),
            (false, true, 8) => Some(Movsx8To32),
            (false, true, 16) => Some(Movsx16To32),
            _ => None,
        };
    }
    if insn.off == 1 {
        return match operation {
            0x30 => Some(pick(Sdiv64K, Sdiv64X, Sdiv32K, Sdiv32X)),
            0x90 => Some(pick(Smod64K, Smod64X, Smod32K, Smod32X)),
            _ => None,
        };
    }
    if insn.off != 0 {
        return None;
    }
    Some(match operation {
        0x00 => pick(Add64K, Add64X, Add32K, Add32X),
        0x10 => pick(Sub64K, Sub64X, Sub32K, Sub32X),
        0x20 => pick(Mul64K, Mul64X, Mul32K, Mul32X),
        0x30 => pick(Div64K, Div64X, Div32K, Div32X),
        0x40 => pick(Or64K, Or64X, Or32K, Or32X),
        0x50 => pick(And64K, And64X, And32K, And32X),
        0x60 => pick(Lsh64K, Lsh64X, Lsh32K, Lsh32X),
        0x70 => pick(Rsh64K, Rsh64X, Rsh32K, Rsh32X),
        0x80 if !register => pick(Neg64, Neg64, Neg32, Neg32),
        0x90 => pick(Mod64K, Mod64X, Mod32K, Mod32X),
        0xa0 => pick(Xor64K, Xor64X, Xor32K, Xor32X),
        0xb0 => pick(Mov64K, Mov64X, Mov32K, Mov32X),
        0xc0 => pick(Arsh64K, Arsh64X, Arsh32K, Arsh32X),
        _ => return None,
    })
}

fn jump_kind(opcode: u8, wide: bool) -> Option<Kind> {
    use Kind::*;
    let register = opcode & 8 != 0;
    let pick = |k64, x64, k32, x32| match (wide, register) {
        (true, false) => k64,
        (true, true) => x64,
        (false, false) => k32,
        (false, true) => x32,
    };
    Some(match opcode & 0xf0 {
        0x10 => pick(Jeq64K, Jeq64X, Jeq32K, Jeq32X),
        0x20 => pick(Jgt64K, Jgt64X, Jgt32K, Jgt32X),
        0x30 => pick(Jge64K, Jge64X, Jge32K, Jge32X),
        0x40 => pick(Jset64K, Jset64X, Jset32K, Jset32X),
        0x50 => pick(Jne64K, Jne64X, Jne32K, Jne32X),
        0x60 => pick(Jsgt64K, Jsgt64X, Jsgt32K, Jsgt32X),
        0x70 => pick(Jsge64K, Jsge64X, Jsge32K, Jsge32X),
        0xa0 => pick(Jlt64K, Jlt64X, Jlt32K, Jlt32X),
        0xb0 => pick(Jle64K, Jle64X, Jle32K, Jle32X),
        0xc0 => pick(Jslt64K, Jslt64X, Jslt32K, Jslt32X),
        0xd0 => pick(Jsle64K, Jsle64X, Jsle32K, Jsle32X),
        _ => return None,
    })
}
