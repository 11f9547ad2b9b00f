//! Linked code as text: one line for each instruction, in the notation that kernel and llvm-objdump print.
//!
//! Owns the notation, and the cut of linked code into functions. Names of maps, helpers, functions and kernel symbols stand
//! where the code has numbers. Jump targets are slots of the section, as `llvm-objdump -d` counts them. Invariant: every operation has
//! a text, whatever the code.

use crate::SourceLine;
use crate::catalogue::helper_name;
use crate::insn::{Kind, LINKED, Op, UNCONDITIONAL_SWAP};
use crate::machine::{Code, Machine};
use crate::memory::{handle_map, value_address};

/// A function of the object, or a section's code in front of the first function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Symbol; the section's name where there is no symbol.
    pub name: String,
    /// Section it is in.
    pub section: String,
    /// Whether it is a program: an entry from outside.
    pub program: bool,
    /// Its instructions in order.
    pub instructions: Vec<Instruction>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Slot in the section; 16-byte loads take two.
    pub slot: usize,
    /// Index of the operation, as in [`Machine::place`].
    pub op: usize,
    /// What it does.
    pub text: String,
    /// Slot in the section that it may jump to.
    pub target: Option<usize>,
    /// The function of the object that it calls or takes the address of.
    pub function: Option<String>,
    /// The helper it calls, by Linux's `bpf_` name, or the symbol that is not in the object.
    pub helper: Option<String>,
    /// The map it loads the address of.
    pub map: Option<String>,
    /// The line it was compiled from.
    pub source: Option<SourceLine>,
}

impl Machine {
    /// All code of the object, linked, by function.
    pub fn disassemble(&self) -> Vec<Function> {
        Listing { machine: self }.functions()
    }

    /// The text of one operation; empty where there is none.
    pub fn instruction_text(&self, op: usize) -> String {
        let found = self.code().ops.get(op);
        found.map_or_else(String::new, |found| {
            Listing { machine: self }.text(op, found)
        })
    }
}

struct Listing<'m> {
    machine: &'m Machine,
}

impl Listing<'_> {
    fn code(&self) -> &Code {
        self.machine.code()
    }

    fn functions(&self) -> Vec<Function> {
        let mut found: Vec<Function> = Vec::new();
        let mut starts = self.code().functions.iter().peekable();
        let mut sections = self.code().sections.iter().peekable();
        let mut section = "";
        for (at, op) in self.code().ops.iter().enumerate() {
            let mut name = None;
            if let Some(label) = sections.next_if(|s| s.start == at) {
                section = &label.name;
                name = Some(section);
            }
            while let Some(label) = starts.next_if(|f| f.start == at) {
                name = Some(&label.name);
            }
            if let Some(name) = name {
                found.push(Function {
                    name: name.to_owned(),
                    section: section.to_owned(),
                    program: self.code().programs.iter().any(|p| p.start == at),
                    instructions: Vec::new(),
                });
            }
            if matches!(op.kind, Kind::Half | Kind::SectionEnd) {
                continue;
            }
            if let Some(function) = found.last_mut() {
                function.instructions.push(self.instruction(at, op));
            }
        }
        found.retain(|f| !f.instructions.is_empty());
        found
    }

    fn instruction(&self, at: usize, op: &Op) -> Instruction {
        let jump = (op.kind as u8) >= Kind::Ja as u8 && (op.kind as u8) < Kind::Helper as u8;
        Instruction {
            slot: self.slot(at),
            op: at,
            text: self.text(at, op),
            target: jump.then(|| self.slot(op.target())),
            function: match op.kind {
                Kind::Call => Some(self.function(op.target())),
                Kind::LoadFunction => Some(self.function(op.imm as usize)),
                _ => None,
            },
            helper: match op.kind {
                Kind::Helper => Some(self.helper(op.imm)),
                Kind::External => Some(self.external(op.imm)),
                _ => None,
            },
            map: match op.kind {
                Kind::LoadImm => self.map_of(op).map(|(map, _)| map.to_owned()),
                _ => None,
            },
            source: self.machine.source_line(at),
        }
    }

    /// Slot in its section.
    fn slot(&self, at: usize) -> usize {
        let section = self.code().sections.iter().rev().find(|s| s.start <= at);
        at - section.map_or(0, |s| s.start)
    }

    #[rustfmt::skip]
    fn text(&self, at: usize, op: &Op) -> String {
        use Kind::*;
        let (d, s) = (op.dst, op.src);
        let offset = signed(op.off);
        let k64 = |sign: &str| format!("r{d} {sign} {}", op.imm as i64);
        let k32 = |sign: &str| format!("w{d} {sign} {}", op.imm as u32 as i32);
        let x64 = |sign: &str| format!("r{d} {sign} r{s}");
        let x32 = |sign: &str| format!("w{d} {sign} w{s}");
        let load = |size: &str| format!("r{d} = *({size} *)(r{s} {offset})");
        let store = |size: &str| format!("*({size} *)(r{d} {offset}) = r{s}");
        let store_k = |size: &str| format!("*({size} *)(r{d} {offset}) = {}", op.imm as i64);
        let jump_k64 = |sign: &str| format!("if r{d} {sign} {} goto {}", number(op.imm), self.slot(op.target()));
        let jump_k32 = |sign: &str| format!("if w{d} {sign} {} goto {}", number(i64::from(op.imm as u32 as i32) as u64), self.slot(op.target()));
        let jump_x64 = |sign: &str| format!("if r{d} {sign} r{s} goto {}", self.slot(op.target()));
        let jump_x32 = |sign: &str| format!("if w{d} {sign} w{s} goto {}", self.slot(op.target()));
        let swap = |bits: u32| match op.off {
            UNCONDITIONAL_SWAP => format!("r{d} = bswap{bits} r{d}"),
            _ => format!("r{d} = be{bits} r{d}"),
        };
        match op.kind {
            Add64K => k64("+="), Sub64K => k64("-="), Mul64K => k64("*="), Div64K => k64("/="), Or64K => k64("|="),
            And64K => k64("&="), Lsh64K => k64("<<="), Rsh64K => k64(">>="), Mod64K => k64("%="), Xor64K => k64("^="),
            Mov64K => k64("="), Arsh64K => k64("s>>="), Sdiv64K => k64("s/="), Smod64K => k64("s%="),
            Add64X => x64("+="), Sub64X => x64("-="), Mul64X => x64("*="), Div64X => x64("/="), Or64X => x64("|="),
            And64X => x64("&="), Lsh64X => x64("<<="), Rsh64X => x64(">>="), Mod64X => x64("%="), Xor64X => x64("^="),
            Mov64X => x64("="), Arsh64X => x64("s>>="), Sdiv64X => x64("s/="), Smod64X => x64("s%="),
            Add32K => k32("+="), Sub32K => k32("-="), Mul32K => k32("*="), Div32K => k32("/="), Or32K => k32("|="),
            And32K => k32("&="), Lsh32K => k32("<<="), Rsh32K => k32(">>="), Mod32K => k32("%="), Xor32K => k32("^="),
            Mov32K => k32("="), Arsh32K => k32("s>>="), Sdiv32K => k32("s/="), Smod32K => k32("s%="),
            Add32X => x32("+="), Sub32X => x32("-="), Mul32X => x32("*="), Div32X => x32("/="), Or32X => x32("|="),
            And32X => x32("&="), Lsh32X => x32("<<="), Rsh32X => x32(">>="), Mod32X => x32("%="), Xor32X => x32("^="),
            Mov32X => x32("="), Arsh32X => x32("s>>="), Sdiv32X => x32("s/="), Smod32X => x32("s%="),
            Neg64 => format!("r{d} = -r{d}"), Neg32 => format!("w{d} = -w{d}"),
            Movsx8To64 => format!("r{d} = (s8)r{s}"), Movsx16To64 => format!("r{d} = (s16)r{s}"),
            Movsx32To64 => format!("r{d} = (s32)r{s}"), Movsx8To32 => format!("w{d} = (s8)w{s}"),
            Movsx16To32 => format!("w{d} = (s16)w{s}"),
            Le16 => format!("r{d} = le16 r{d}"), Le32 => format!("r{d} = le32 r{d}"), Le64 => format!("r{d} = le64 r{d}"),
            Swap16 => swap(16), Swap32 => swap(32), Swap64 => swap(64),
            LoadImm => match self.map_of(op) {
                Some((map, None)) => format!("r{d} = map {map}"),
                Some((map, Some(0))) => format!("r{d} = value of {map}"),
                Some((map, Some(offset))) => format!("r{d} = value of {map} {}", signed(offset)),
                None => format!("r{d} = {} ll", number(op.imm)),
            },
            LoadFunction => format!("r{d} = function {}", self.function(op.imm as usize)),
            Ldx8 => load("u8"), Ldx16 => load("u16"), Ldx32 => load("u32"), Ldx64 => load("u64"),
            Ldxs8 => load("s8"), Ldxs16 => load("s16"), Ldxs32 => load("s32"),
            Stx8 => store("u8"), Stx16 => store("u16"), Stx32 => store("u32"), Stx64 => store("u64"),
            St8 => store_k("u8"), St16 => store_k("u16"), St32 => store_k("u32"), St64 => store_k("u64"),
            Atomic32 => atomic(op, "u32", 'w'), Atomic64 => atomic(op, "u64", 'r'),
            PacketAbs => format!("r0 = packet {} bytes at {}", op.off, number(op.imm)),
            PacketInd => format!("r0 = packet {} bytes at r{s} + {}", op.off, number(op.imm)),
            Ja => format!("goto {}", self.slot(op.target())),
            MayGoto => format!("may_goto {}", self.slot(op.target())),
            Jeq64K => jump_k64("=="), Jgt64K => jump_k64(">"), Jge64K => jump_k64(">="), Jset64K => jump_k64("&"),
            Jne64K => jump_k64("!="), Jsgt64K => jump_k64("s>"), Jsge64K => jump_k64("s>="), Jlt64K => jump_k64("<"),
            Jle64K => jump_k64("<="), Jslt64K => jump_k64("s<"), Jsle64K => jump_k64("s<="),
            Jeq64X => jump_x64("=="), Jgt64X => jump_x64(">"), Jge64X => jump_x64(">="), Jset64X => jump_x64("&"),
            Jne64X => jump_x64("!="), Jsgt64X => jump_x64("s>"), Jsge64X => jump_x64("s>="), Jlt64X => jump_x64("<"),
            Jle64X => jump_x64("<="), Jslt64X => jump_x64("s<"), Jsle64X => jump_x64("s<="),
            Jeq32K => jump_k32("=="), Jgt32K => jump_k32(">"), Jge32K => jump_k32(">="), Jset32K => jump_k32("&"),
            Jne32K => jump_k32("!="), Jsgt32K => jump_k32("s>"), Jsge32K => jump_k32("s>="), Jlt32K => jump_k32("<"),
            Jle32K => jump_k32("<="), Jslt32K => jump_k32("s<"), Jsle32K => jump_k32("s<="),
            Jeq32X => jump_x32("=="), Jgt32X => jump_x32(">"), Jge32X => jump_x32(">="), Jset32X => jump_x32("&"),
            Jne32X => jump_x32("!="), Jsgt32X => jump_x32("s>"), Jsge32X => jump_x32("s>="), Jlt32X => jump_x32("<"),
            Jle32X => jump_x32("<="), Jslt32X => jump_x32("s<"), Jsle32X => jump_x32("s<="),
            Helper => format!("call {}#{}", self.helper(op.imm), op.imm),
            Call => format!("call {}", self.function(op.target())),
            CallRegister => format!("callx r{d}"),
            Exit => "exit".to_owned(),
            Half => format!("second half of {}", at.saturating_sub(1)),
            SectionEnd => "end of section".to_owned(),
            External => format!("{} (not in the object)", self.external(op.imm)),
            Invalid => format!("invalid: {}", self.invalid(op.imm)),
        }
    }

    fn helper(&self, number: u64) -> String {
        let name = u32::try_from(number).map_or("unknown", helper_name);
        format!("bpf_{name}")
    }

    /// Name of the function that starts at an operation; calls into the middle of one are shown with their distance.
    fn function(&self, at: usize) -> String {
        let label = self.code().functions.iter().rev().find(|f| f.start <= at);
        match label {
            Some(label) if label.start == at => label.name.clone(),
            Some(label) => format!("{}+{}", label.name, at - label.start),
            None => format!("slot {}", self.slot(at)),
        }
    }

    fn invalid(&self, number: u64) -> &str {
        let reason = self.code().invalid.get(number as usize);
        reason.map_or("unknown reason", String::as_str)
    }

    fn external(&self, number: u64) -> String {
        let name = self.code().externals.get(number as usize);
        name.cloned().unwrap_or_else(|| "unknown symbol".to_owned())
    }

    /// The map a load of an address names, and the offset in its value if it is the address of one.
    fn map_of(&self, op: &Op) -> Option<(&str, Option<i32>)> {
        if op.src != LINKED {
            // A number that happens to look like an address.
            return None;
        }
        let address = op.imm;
        if let Some(map) = handle_map(address).and_then(|m| self.machine.maps().get(m)) {
            return Some((map.name(), None));
        }
        self.machine
            .maps()
            .iter()
            .enumerate()
            .find_map(|(number, map)| {
                let offset = address.wrapping_sub(value_address(number)) as i64;
                let size = i64::from(map.definition().value_size);
                let near = (-size..=size).contains(&offset);
                let offset = i32::try_from(offset).ok().filter(|_| near)?;
                Some((map.name(), Some(offset)))
            })
    }
}

/// `+ 8` or `- 8`, as in `*(u8 *)(r1 + 8)`.
fn signed(offset: i32) -> String {
    if offset < 0 {
        format!("- {}", offset.unsigned_abs())
    } else {
        format!("+ {offset}")
    }
}

/// Small numbers as they are counted, others as bits.
fn number(value: u64) -> String {
    match value as i64 {
        small @ -255..=255 => small.to_string(),
        _ => format!("{value:#x}"),
    }
}

/// RFC 9669 section 5.3.
fn atomic(op: &Op, size: &str, register: char) -> String {
    let cell = format!("({size} *)(r{} {})", op.dst, signed(op.off));
    let source = format!("{register}{}", op.src);
    let name = |code: u64| match code & 0xf0 {
        0x00 => ("add", "+="),
        0x40 => ("or", "|="),
        0x50 => ("and", "&="),
        _ => ("xor", "^="),
    };
    match op.imm & 0xff {
        0xf1 => format!("{register}0 = atomic_cmpxchg({cell}, {register}0, {source})"),
        0xe1 => format!("{source} = atomic_xchg({cell}, {source})"),
        code if code & 1 == 1 => {
            format!("{source} = atomic_fetch_{}({cell}, {source})", name(code).0)
        }
        code => format!("lock *{cell} {} {source}", name(code).1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(slots: &[u64]) -> Vec<String> {
        let code: Vec<u8> = slots.iter().flat_map(|s| s.to_be_bytes()).collect();
        let machine = Machine::from_instructions(&code).expect("the code decodes");
        let functions = machine.disassemble();
        assert_eq!(functions.len(), 1);
        functions[0]
            .instructions
            .iter()
            .map(|i| format!("{} {}", i.slot, i.text))
            .collect()
    }

    #[test]
    fn notation() {
        let shown = lines(&[
            0xb700_0000_ffff_ffff, // r0 = -1
            0x1801_0000_7856_3412, // r1 = 0x...ll
            0x0000_0000_0100_0000,
            0x6122_f8ff_0000_0000, // r2 = *(u32 *)(r2 - 8)
            0x7b1a_f0ff_0000_0000, // *(u64 *)(r10 - 16) = r1
            0x2521_0100_0a00_0000, // if r1 > 10 goto
            0xdb21_0800_0100_0000, // r2 = atomic_fetch_add
            0xc321_0000_4000_0000, // lock |=
            0xdc03_0000_1000_0000, // swap16
            0x8500_0000_0100_0000, // helper 1
            0x9500_0000_0000_0000,
        ]);
        assert_eq!(
            shown,
            [
                "0 r0 = -1",
                "1 r1 = 0x112345678 ll",
                "3 r2 = *(u32 *)(r2 - 8)",
                "4 *(u64 *)(r10 - 16) = r1",
                "5 if r1 > 10 goto 7",
                "6 r2 = atomic_fetch_add((u64 *)(r1 + 8), r2)",
                "7 lock *(u32 *)(r1 + 0) |= w2",
                "8 r3 = be16 r3",
                "9 call bpf_map_lookup_elem#1",
                "10 exit",
            ]
        );
    }

    #[test]
    fn every_opcode_that_decodes_has_a_text() {
        let mut seen = 0;
        for opcode in 0..=255u8 {
            for immediate in [0u8, 1, 16, 32, 64, 0x41, 0x51, 0xa0, 0xe1, 0xf1] {
                for off in [0u8, 1, 8] {
                    let code = [opcode, 0x21, off, 0, immediate, 0, 0, 0];
                    let mut program = code.to_vec();
                    program.extend([0; 8]);
                    program.extend([0x95, 0, 0, 0, 0, 0, 0, 0].repeat(80));
                    let whole = if opcode == 0x18 { 0 } else { 8 };
                    program.drain(8..8 + whole);
                    let Ok(machine) = Machine::from_instructions(&program) else {
                        continue;
                    };
                    let text = &machine.disassemble()[0].instructions[0].text;
                    assert!(!text.is_empty(), "{opcode:#x}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 200, "{seen}");
    }
}
