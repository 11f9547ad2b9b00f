//! The instructions of random programs.
//!
//! Owns what each piece becomes. r1 to r5 are free to be overwritten by any of them. Invariant: a piece becomes the same
//! instructions wherever it stands, jump distances aside.

use super::pieces::{
    Access, CONTEXT, COUNTER, Check, Compare, DATA, END, FP, NullCheck, Operand, Piece, Program,
    Start, Step, Variable, Width,
};
use super::{Code, DEVICES, PROGRAMS, RING};

/// Short, because messages show the instructions.
impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "program of {} instructions", self.code().len() / 8)
    }
}

impl Program {
    /// The program's instructions.
    pub(crate) fn code(&self) -> Vec<u8> {
        let mut code = Code::default();
        let mut calls = Vec::new();
        code.put(0xbf, CONTEXT, 1, 0, 0);
        load_packet_pointers(&mut code);
        let mut outs = Vec::new();
        if self.checked > 0 {
            code.put(0xbf, 2, DATA, 0, 0);
            code.put(0x07, 2, 0, 0, i32::from(self.checked));
            outs.push(code.put(0x2d, 2, END, 0, 0));
        }
        for (start, register) in self.starts.iter().zip([0u8, 1, 2, 3, 4, 5, COUNTER]) {
            start.put(register, &mut code);
        }
        body(&self.body, &mut code, &mut outs, &mut calls);
        finish(&mut code, &outs);
        for (number, function) in (0u8..).zip(&self.functions) {
            let callers: Vec<usize> = calls
                .iter()
                .filter(|(_, n)| *n == number)
                .map(|(at, _)| *at)
                .collect();
            // What nobody calls would be refused as unreachable.
            if callers.is_empty() {
                continue;
            }
            let entry = code.here();
            for at in callers {
                code.connect(at, entry);
            }
            let mut outs = Vec::new();
            // Functions get the context and a number, and look at the packet themselves.
            code.put(0xbf, CONTEXT, 1, 0, 0);
            load_packet_pointers(&mut code);
            code.put(0xbf, COUNTER, 2, 0, 0);
            for register in [0, 1, 3, 4, 5] {
                code.put(0xb7, register, 0, 0, i32::from(register));
            }
            body(function, &mut code, &mut outs, &mut Vec::new());
            finish(&mut code, &outs);
        }
        for (at, number) in calls {
            if usize::from(number) >= self.functions.len() {
                // No function: the call becomes a number.
                code.replace(at, 0xb7, 0, 0, 7);
            }
        }
        code.bytes()
    }
}

impl Code {
    fn replace(&mut self, at: usize, opcode: u8, dst: u8, src: u8, imm: i32) {
        let end = self.here();
        self.put(opcode, dst, src, 0, imm);
        self.insns.swap(at, end);
        self.insns.truncate(end);
    }
}

fn load_packet_pointers(code: &mut Code) {
    code.put(0x61, DATA, CONTEXT, 0, 0);
    code.put(0x61, END, CONTEXT, 4, 0);
}

fn finish(code: &mut Code, outs: &[usize]) {
    code.put(0x95, 0, 0, 0, 0);
    if outs.is_empty() {
        return;
    }
    let out = code.here();
    code.put(0xb7, 0, 0, 0, 1);
    code.put(0x95, 0, 0, 0, 0);
    for at in outs {
        code.land(*at, out);
    }
}

impl Start {
    fn put(self, register: u8, code: &mut Code) {
        match self {
            Start::Nothing => {}
            Start::Small(value) => {
                code.put(0xb7, register, 0, 0, value);
            }
            Start::Wide(value) => code.wide(register, 0, value as u32, (value >> 32) as u32),
            Start::Packet(at, width) => {
                let at = i16::from(at).min(14 - width.bytes());
                code.put(0x61 | width.size_bits(), register, DATA, at, 0);
            }
            Start::Context(at) => {
                code.put(0x61, register, CONTEXT, i16::from(at), 0);
            }
        }
    }
}

/// Pieces one behind the other; skips go from one to the beginning of a later one.
fn body(pieces: &[Piece], code: &mut Code, outs: &mut Vec<usize>, calls: &mut Vec<(usize, u8)>) {
    let mut starts = Vec::new();
    let mut skips = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        starts.push(code.here());
        if let Piece::Skip {
            compare,
            dst,
            operand,
            over,
        } = piece
        {
            let at = compare.put(*dst, *operand, code);
            skips.push((at, index + 1 + *over as usize));
        } else {
            piece.put(code, outs, calls);
        }
    }
    let end = code.here();
    for (at, index) in skips {
        let target = starts.get(index).copied().unwrap_or(end);
        code.land(at, target);
    }
}

impl Compare {
    /// The jump, without its target.
    fn put(self, dst: u8, operand: Operand, code: &mut Code) -> usize {
        let class = if self.wide { 5 } else { 6 };
        match operand {
            Operand::Register(src) => code.put(self.operation | 8 | class, dst, src, 0, 0),
            Operand::Immediate(imm) => code.put(self.operation | class, dst, 0, 0, imm),
        }
    }
}

impl Access {
    fn put(self, base: u8, at: i16, width: Width, code: &mut Code) {
        let size = width.size_bits();
        match self {
            Access::Load(dst) => code.put(0x61 | size, dst, base, at, 0),
            Access::LoadSigned(dst) if width == Width::B8 => code.put(0x79, dst, base, at, 0),
            Access::LoadSigned(dst) => code.put(0x81 | size, dst, base, at, 0),
            Access::Store(src) => code.put(0x63 | size, base, src, at, 0),
            Access::StoreImmediate(imm) => code.put(0x62 | size, base, 0, at, imm),
            Access::Atomic(operation, src) => {
                let opcode = if matches!(width, Width::B8 | Width::B1) {
                    0xdb
                } else {
                    0xc3
                };
                code.put(opcode, base, src, at, i32::from(operation))
            }
        };
    }
}

impl Variable {
    /// The number in r3.
    fn put(&self, code: &mut Code, outs: &mut Vec<usize>) {
        code.put(0xbf, 3, self.register, 0, 0);
        code.put(0x57, 3, 0, 0, self.mask);
        for step in &self.steps {
            match *step {
                Step::Alu {
                    operation,
                    wide,
                    imm,
                } => alu(operation, wide, 3, Operand::Immediate(imm), 0, code),
                Step::SignMove { bits, wide } => {
                    code.put(if wide { 0xbf } else { 0xbc }, 3, 3, bits, 0);
                }
                Step::Leave { compare, imm } => {
                    outs.push(compare.put(3, Operand::Immediate(imm), code));
                }
            }
        }
    }
}

impl Check {
    /// Leaves if `base + len` is past `end`, in one of the ways compilers write it; r1 is overwritten.
    fn put(self, base: u8, end: u8, code: &mut Code, outs: &mut Vec<usize>) {
        code.put(0xbf, 1, base, 0, 0);
        code.put(0x07, 1, 0, 0, i32::from(self.len));
        // Directly out if too short, or over a jump out if long enough; "less or equal" kinds are off by one.
        let (opcode, dst, src, direct) = match self.way {
            0 => (0x2d, 1, end, true),
            1 => (0xad, end, 1, true),
            2 => (0xbd, 1, end, false),
            3 => (0x3d, end, 1, false),
            4 => (0x3d, 1, end, true),
            5 => (0xbd, end, 1, true),
            6 => (0xad, 1, end, false),
            _ => (0x2d, end, 1, false),
        };
        if direct {
            outs.push(code.put(opcode, dst, src, 0, 0));
        } else {
            code.put(opcode, dst, src, 1, 0);
            outs.push(code.put(0x05, 0, 0, 0, 0));
        }
    }
}

/// Writes `value` to the stack slot at -128 and r2 to its address.
fn key(value: Operand, code: &mut Code) {
    match value {
        Operand::Register(src) => code.put(0x63, FP, src, -128, 0),
        Operand::Immediate(imm) => code.put(0x62, FP, 0, -128, imm),
    };
    code.put(0xbf, 2, FP, 0, 0);
    code.put(0x07, 2, 0, 0, -128);
}

/// The null check of r0: the jump to land behind what needs the pointer.
fn null_jump(null: NullCheck, code: &mut Code) -> Option<usize> {
    match null {
        NullCheck::Good => Some(code.put(0x15, 0, 0, 0, 0)),
        NullCheck::Inverted => Some(code.put(0x55, 0, 0, 0, 0)),
        NullCheck::Missing => None,
    }
}

fn move_operand(dst: u8, operand: Operand, code: &mut Code) {
    match operand {
        Operand::Register(src) => code.put(0xbf, dst, src, 0, 0),
        Operand::Immediate(imm) => code.put(0xb7, dst, 0, 0, imm),
    };
}

/// After a call r1 to r5 are gone: numbers again.
fn refill(code: &mut Code) {
    for register in 1..6 {
        code.put(0xb7, register, 0, 0, i32::from(register));
    }
}

impl Piece {
    fn put(&self, code: &mut Code, outs: &mut Vec<usize>, calls: &mut Vec<(usize, u8)>) {
        match self {
            Piece::Alu {
                operation,
                wide,
                dst,
                operand,
            } => alu(*operation, *wide, *dst, *operand, 0, code),
            Piece::Pointer {
                operation,
                dst,
                operand,
            } => alu(*operation, true, *dst, *operand, 0, code),
            Piece::Divide {
                remainder,
                signed,
                wide,
                dst,
                operand,
            } => {
                let operation = if *remainder { 0x90 } else { 0x30 };
                alu(operation, *wide, *dst, *operand, i16::from(*signed), code);
            }
            Piece::Negate { wide, dst } => {
                code.put(if *wide { 0x87 } else { 0x84 }, *dst, 0, 0, 0);
            }
            Piece::SignMove {
                bits,
                wide,
                dst,
                src,
            } => {
                code.put(if *wide { 0xbf } else { 0xbc }, *dst, *src, *bits, 0);
            }
            Piece::Swap { opcode, bits, dst } => {
                code.put(*opcode, *dst, 0, 0, *bits);
            }
            Piece::Wide { dst, value } => {
                code.wide(*dst, 0, *value as u32, (*value >> 32) as u32);
            }
            Piece::Packet { check, accesses } => {
                check.put(DATA, END, code, outs);
                for (at, width, access) in accesses {
                    access.put(DATA, *at, *width, code);
                }
            }
            Piece::PacketAt {
                offset,
                mask,
                shift,
                check,
                at,
                width,
                access,
            } => {
                code.put(0xbf, 3, *offset, 0, 0);
                code.put(0x57, 3, 0, 0, *mask);
                code.put(0x67, 3, 0, 0, i32::from(*shift));
                code.put(0x0f, 3, DATA, 0, 0);
                check.put(3, END, code, outs);
                access.put(3, *at, *width, code);
                code.put(0xb7, 3, 0, 0, 3);
            }
            Piece::Meta {
                check,
                at,
                width,
                access,
            } => {
                code.put(0x61, 3, CONTEXT, 8, 0);
                check.put(3, DATA, code, outs);
                access.put(3, *at, *width, code);
                code.put(0xb7, 3, 0, 0, 3);
            }
            Piece::Stack { at, width, access } => access.put(FP, *at, *width, code),
            Piece::StackAt {
                variable,
                base,
                width,
                access,
            } => {
                // The pointer first: what Linux 6.18 makes of a stack pointer added to a number in a called function
                // is on the list of differences.
                variable.put(code, outs);
                code.put(0xbf, 5, 3, 0, 0);
                code.put(0xbf, 3, FP, 0, 0);
                code.put(0x0f, 3, 5, 0, 0);
                access.put(3, *base, *width, code);
                code.put(0xb7, 3, 0, 0, 3);
            }
            Piece::Spill {
                pointer,
                slot,
                dst,
                at,
                width,
            } => {
                code.put(0x7b, FP, *pointer, *slot, 0);
                code.put(0x79, 4, FP, *slot, 0);
                Access::Load(*dst).put(4, *at, *width, code);
                code.put(0xb7, 4, 0, 0, 4);
            }
            Piece::Global {
                map,
                offset,
                at,
                width,
                access,
            } => {
                code.wide(4, 2, u32::from(*map), *offset);
                access.put(4, *at, *width, code);
                code.put(0xb7, 4, 0, 0, 4);
            }
            Piece::Length { dst } => {
                code.put(0xbf, 1, END, 0, 0);
                code.put(0x1f, 1, DATA, 0, 0);
                code.put(0xbf, *dst, 1, 0, 0);
            }
            Piece::Leave {
                compare,
                dst,
                operand,
                value,
            } => {
                let leave = compare.put(*dst, *operand, code);
                let on = code.put(0x05, 0, 0, 0, 0);
                code.land(leave, on + 1);
                code.put(0xb7, 0, 0, 0, *value);
                code.put(0x95, 0, 0, 0, 0);
                let end = code.here();
                code.land(on, end);
            }
            Piece::Skip { .. } => {}
            Piece::Loop {
                bound,
                step,
                compare,
                kept,
                escape,
                body: pieces,
            } => {
                code.put(0xb7, COUNTER, 0, 0, 0);
                let top = code.here();
                let out = escape.then(|| code.put(0xe5, 0, 0, 0, 0));
                if *kept {
                    code.put(0x7b, FP, COUNTER, -144, 0);
                }
                body(pieces, code, outs, calls);
                if *kept {
                    code.put(0x79, COUNTER, FP, -144, 0);
                }
                code.put(0x07, COUNTER, 0, 0, *step);
                let back = compare.put(COUNTER, Operand::Immediate(*bound), code);
                code.land(back, top);
                if let Some(out) = out {
                    let end = code.here();
                    code.land(out, end);
                }
            }
            Piece::Call {
                function,
                arguments: [first, second],
            } => {
                if *second != 2 {
                    code.put(0xbf, 2, *second, 0, 0);
                }
                // Mostly the context, sometimes a number that is none.
                let context = if *first < 8 { CONTEXT } else { *first };
                code.put(0xbf, 1, context, 0, 0);
                calls.push((code.put(0x85, 0, 1, 0, -1), *function));
                refill(code);
            }
            _ => self.put_helper(code, outs),
        }
    }

    fn put_helper(&self, code: &mut Code, outs: &mut Vec<usize>) {
        match self {
            Piece::Lookup {
                map,
                key: value,
                null,
                accesses,
                variable,
            } => {
                if let Some(variable) = variable {
                    // Kept over the call on the stack.
                    variable.put(code, outs);
                    code.put(0x7b, FP, 3, -136, 0);
                }
                key(*value, code);
                code.wide(1, 1, u32::from(*map), 0);
                code.put(0x85, 0, 0, 0, 1);
                refill(code);
                let jump = null_jump(*null, code);
                code.put(0xbf, 4, 0, 0, 0);
                if variable.is_some() {
                    code.put(0x79, 3, FP, -136, 0);
                    code.put(0x0f, 4, 3, 0, 0);
                }
                for (at, width, access) in accesses {
                    access.put(4, *at, *width, code);
                }
                let end = code.here();
                if let Some(jump) = jump {
                    code.land(jump, end);
                }
                code.put(0xb7, 0, 0, 0, 5);
                code.put(0xb7, 4, 0, 0, 4);
            }
            Piece::Update {
                map,
                key: value,
                size,
                flags,
            } => {
                // The value's place is the size's random number; most are written in part at least.
                code.put(0x7a, FP, 0, *size, 1);
                code.put(0x7a, FP, 0, size.saturating_add(8), 2);
                key(Operand::Immediate(value & 3), code);
                code.put(0xbf, 3, FP, 0, 0);
                code.put(0x07, 3, 0, 0, i32::from(*size));
                code.put(0xb7, 4, 0, 0, *flags);
                code.wide(1, 1, u32::from(*map), 0);
                code.put(0x85, 0, 0, 0, 2);
                refill(code);
            }
            Piece::Delete { map, key: value } => {
                key(Operand::Immediate(value & 7), code);
                code.wide(1, 1, u32::from(*map), 0);
                code.put(0x85, 0, 0, 0, 3);
                refill(code);
            }
            Piece::Adjust {
                helper,
                delta,
                reload,
            } => {
                code.put(0xbf, 1, CONTEXT, 0, 0);
                code.put(0xb7, 2, 0, 0, *delta);
                code.put(0x85, 0, 0, 0, *helper);
                refill(code);
                if *reload {
                    load_packet_pointers(code);
                }
            }
            Piece::Checksum { at, length, seed } => {
                code.put(0xbf, 5, *seed, 0, 0);
                code.put(0xb7, 1, 0, 0, 0);
                code.put(0xb7, 2, 0, 0, 0);
                code.put(0xbf, 3, FP, 0, 0);
                code.put(0x07, 3, 0, 0, i32::from(*at));
                code.put(0xb7, 4, 0, 0, *length);
                code.put(0x85, 0, 0, 0, 28);
                refill(code);
            }
            Piece::Bytes {
                store,
                offset,
                at,
                length,
                mask,
            } => {
                move_operand(4, *length, code);
                if matches!(length, Operand::Register(_)) {
                    code.put(0x57, 4, 0, 0, *mask);
                    outs.push(code.put(0x15, 4, 0, 0, 0));
                }
                code.put(0xbf, 1, CONTEXT, 0, 0);
                code.put(0xb7, 2, 0, 0, *offset);
                code.put(0xbf, 3, FP, 0, 0);
                code.put(0x07, 3, 0, 0, i32::from(*at));
                code.put(0x85, 0, 0, 0, if *store { 190 } else { 189 });
                refill(code);
            }
            Piece::Ring {
                size,
                null,
                access,
                finish,
            } => {
                code.wide(1, 1, u32::from(RING), 0);
                code.put(0xb7, 2, 0, 0, *size);
                code.put(0xb7, 3, 0, 0, 0);
                code.put(0x85, 0, 0, 0, 131);
                refill(code);
                let jump = null_jump(*null, code);
                if let Some((at, width, access)) = access {
                    code.put(0xbf, 4, 0, 0, 0);
                    access.put(4, *at, *width, code);
                }
                if matches!(finish, 132 | 133) {
                    code.put(0xbf, 1, if access.is_some() { 4 } else { 0 }, 0, 0);
                    code.put(0xb7, 2, 0, 0, 0);
                    code.put(0x85, 0, 0, 0, *finish);
                    refill(code);
                }
                let end = code.here();
                if let Some(jump) = jump {
                    code.land(jump, end);
                }
                code.put(0xb7, 0, 0, 0, 3);
            }
            Piece::Socket {
                helper,
                null,
                load,
                release,
            } => {
                code.put(0x7a, FP, 0, -160, 0);
                code.put(0x7a, FP, 0, -152, 0);
                code.put(0xbf, 1, CONTEXT, 0, 0);
                code.put(0xbf, 2, FP, 0, 0);
                code.put(0x07, 2, 0, 0, -160);
                code.put(0xb7, 3, 0, 0, 12);
                code.put(0xb7, 4, 0, 0, -1);
                code.put(0xb7, 5, 0, 0, 0);
                code.put(0x85, 0, 0, 0, *helper);
                refill(code);
                let jump = null_jump(*null, code);
                if let Some((at, width)) = load {
                    code.put(0x61 | width.size_bits(), 4, 0, *at, 0);
                }
                if *release {
                    code.put(0xbf, 1, 0, 0, 0);
                    code.put(0x85, 0, 0, 0, 86);
                    refill(code);
                }
                let end = code.here();
                if let Some(jump) = jump {
                    code.land(jump, end);
                }
                code.put(0xb7, 0, 0, 0, 3);
                code.put(0xb7, 4, 0, 0, 4);
            }
            Piece::TailCall { index, reload } => {
                move_operand(3, *index, code);
                code.put(0xbf, 1, CONTEXT, 0, 0);
                code.wide(2, 1, u32::from(PROGRAMS), 0);
                code.put(0x85, 0, 0, 0, 12);
                code.put(0xb7, 0, 0, 0, 2);
                refill(code);
                if *reload {
                    load_packet_pointers(code);
                }
            }
            Piece::RedirectMap { index, flags } => {
                move_operand(2, *index, code);
                code.wide(1, 1, u32::from(DEVICES), 0);
                code.put(0xb7, 3, 0, 0, *flags);
                code.put(0x85, 0, 0, 0, 51);
                refill(code);
            }
            _ => {}
        }
    }
}

fn alu(operation: u8, wide: bool, dst: u8, operand: Operand, off: i16, code: &mut Code) {
    let class = if wide { 7 } else { 4 };
    match operand {
        Operand::Register(src) => code.put(operation | 8 | class, dst, src, off, 0),
        Operand::Immediate(imm) => code.put(operation | class, dst, 0, off, imm),
    };
}
