//! Which kernel a program needs: every helper, map kind, instruction and feature it uses, with the first release.
//!
//! Owns the walk over a linked program's reachable operations; the versions of instructions are here, those of helpers
//! and maps in the tables. It does not look at types or at what the verifier of an old kernel could follow (budget, loops
//! it unrolled): a kernel at least as new as every need has the pieces, which does not promise acceptance.

use std::collections::BTreeMap;
use std::fmt;

use crate::catalogue::{Kernel, context, helper, helper_name, kernel_function, map_kind};
use crate::insn::{Kind, LOAD_ACQUIRE, LONG_JUMP, Op, STORE_RELEASE, UNCONDITIONAL_SWAP};
use crate::machine::{Code, Machine};
use crate::maps::Map;
use crate::memory::{handle_map, value_map};
use crate::object::LoadError;
use crate::program::ProgramKind;
use crate::verify::{Access, ValueKind, Verified};

/// `bpf_tail_call`.
const TAIL_CALL: u32 = 12;

/// Something a program needs from a kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// Programs at the hook at all, by its name.
    Hook(&'static str),
    /// A helper, by name without `bpf_`.
    Helper(&'static str),
    /// A kind of map, by name in small letters.
    Map(&'static str),
    /// An instruction or a group of them.
    Instruction(&'static str),
    /// A field of the context.
    Field {
        /// The context's structure.
        context: &'static str,
        /// Its field.
        name: &'static str,
    },
    /// Something else about the program.
    Feature(&'static str),
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Hook(name) => f.write_str(name),
            Requirement::Helper(name) => write!(f, "helper bpf_{name}"),
            Requirement::Map(name) => write!(f, "map kind {name}"),
            Requirement::Instruction(what) => write!(f, "instruction: {what}"),
            Requirement::Field { context, name } => write!(f, "field {name} of struct {context}"),
            Requirement::Feature(what) => f.write_str(what),
        }
    }
}

/// A requirement of a program and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// What is needed.
    pub what: Requirement,
    /// First kernel that has it; nothing for helpers newer than this table.
    pub since: Option<Kernel>,
    /// First operation that needs it, counted as in the linked code; nothing for the program as a whole.
    pub op: Option<usize>,
}

impl Machine {
    /// What `program` needs from a kernel, newest first; the first entry says which kernel is enough.
    ///
    /// # Errors
    /// [`LoadError::NoProgram`].
    pub fn needs(&self, program: &str) -> Result<Vec<Need>, LoadError> {
        Ok(self.walk(program)?.needs())
    }

    /// As [`Machine::needs`], with what only the verifier knows: the fields of the context that an accepted program uses.
    ///
    /// # Errors
    /// [`LoadError::NoProgram`].
    pub fn needs_verified(
        &self,
        program: &str,
        verified: &Verified,
    ) -> Result<Vec<Need>, LoadError> {
        let tc = self.is_tc(program)?;
        let mut found = self.walk(program)?;
        for at in 0..self.code().ops.len() {
            found.context_access(self.code(), at, tc, verified);
        }
        Ok(found.needs())
    }

    /// Instructions of the program and its functions, in slots of eight bytes, without what it can not reach.
    ///
    /// # Errors
    /// [`LoadError::NoProgram`].
    pub fn reachable_slots(&self, program: &str) -> Result<usize, LoadError> {
        Ok(self.walk(program)?.slots)
    }

    fn is_tc(&self, program: &str) -> Result<bool, LoadError> {
        let (_, entry) = self.program(program)?;
        let code = self.code();
        let index = code.entries.iter().position(|e| *e == entry);
        let kind = index.and_then(|i| code.kinds.get(i));
        Ok(kind == Some(&ProgramKind::SchedCls))
    }

    fn walk(&self, program: &str) -> Result<Found, LoadError> {
        let (_, entry) = self.program(program)?;
        Ok(walk(self.code(), self.maps(), entry, self.is_tc(program)?))
    }
}

fn walk(code: &Code, maps: &[Map], entry: usize, tc: bool) -> Found {
    let mut found = Found::default();
    let (hook, since) = if tc {
        ("tc", Kernel(4, 1))
    } else {
        ("XDP", Kernel(4, 8))
    };
    found.add(Requirement::Hook(hook), Some(since), None);
    let section = code.sections.iter().rev().find(|s| s.start <= entry);
    for (what, since) in section.map_or(&[][..], |s| section_features(&s.name)) {
        found.add(Requirement::Feature(what), Some(*since), None);
    }
    let ops = &code.ops;
    let mut seen = vec![false; ops.len()];
    let mut waiting = vec![entry];
    while let Some(at) = waiting.pop() {
        let (Some(op), Some(seen)) = (ops.get(at), seen.get_mut(at)) else {
            continue;
        };
        if std::mem::replace(seen, true) {
            continue;
        }
        found.operation(op, at, maps);
        let wide = matches!(op.kind, Kind::LoadImm | Kind::LoadFunction);
        found.slots += if wide { 2 } else { 1 };
        // The next operation is taken first, so that the first use is found in the order of the code.
        match op.kind {
            Kind::Exit | Kind::SectionEnd | Kind::Half | Kind::External | Kind::Invalid => {}
            Kind::Ja => waiting.push(op.target()),
            Kind::LoadFunction => waiting.extend([op.imm as usize, at + 2]),
            Kind::LoadImm => waiting.push(at + 2),
            Kind::Call => waiting.extend([op.target(), at + 1]),
            _ if is_branch(op.kind) => waiting.extend([op.target(), at + 1]),
            _ => waiting.push(at + 1),
        }
    }
    if found.tail_call && found.call {
        let what = Requirement::Feature("tail calls in a program with function calls");
        found.add(what, Some(Kernel(5, 10)), None);
    }
    found
}

#[derive(Default)]
struct Found {
    needs: Vec<Need>,
    /// Index in `needs`.
    known: BTreeMap<Requirement, usize>,
    slots: usize,
    call: bool,
    tail_call: bool,
}

impl Found {
    /// Newest first.
    fn needs(self) -> Vec<Need> {
        let mut needs = self.needs;
        needs.sort_by(|a, b| {
            let age = |need: &Need| need.since.unwrap_or(Kernel(u8::MAX, 0));
            age(b).cmp(&age(a)).then_with(|| a.what.cmp(&b.what))
        });
        needs
    }

    fn context_access(&mut self, code: &Code, at: usize, tc: bool, verified: &Verified) {
        let Some(op) = code.ops.get(at) else {
            return;
        };
        let place = Some(at);
        match verified.facts.op(at).access {
            Access::One(ValueKind::Context, _) => {
                let used = usize::try_from(op.off)
                    .ok()
                    .and_then(|offset| context::field(tc, offset));
                if let Some((name, since)) = used {
                    let context = context::structure(tc);
                    self.add(Requirement::Field { context, name }, Some(since), place);
                }
            }
            Access::One(ValueKind::Packet, _) if tc => {
                let what = Requirement::Feature("direct packet access of tc programs");
                self.add(what, Some(Kernel(4, 7)), place);
            }
            _ => {}
        }
    }

    fn add(&mut self, what: Requirement, since: Option<Kernel>, op: Option<usize>) {
        match self.known.get(&what).and_then(|at| self.needs.get_mut(*at)) {
            Some(need) => need.op = need.op.min(op),
            None => {
                self.known.insert(what.clone(), self.needs.len());
                self.needs.push(Need { what, since, op });
            }
        }
    }

    fn operation(&mut self, op: &Op, at: usize, maps: &[Map]) {
        let place = Some(at);
        if let Some((what, since)) = instruction(op) {
            self.add(Requirement::Instruction(what), Some(since), place);
        }
        if (is_branch(op.kind) || op.kind == Kind::Ja) && op.target() <= at {
            let what = Requirement::Feature("bounded loop");
            self.add(what, Some(Kernel(5, 3)), place);
        }
        match op.kind {
            Kind::Helper => {
                let number = op.imm as u32;
                let function = kernel_function(number).map(|f| f.since);
                let since = function.or_else(|| helper(number).map(|h| h.since));
                self.add(Requirement::Helper(helper_name(number)), since, place);
                self.tail_call |= number == TAIL_CALL;
            }
            Kind::Call => {
                self.call = true;
                let what = Requirement::Feature("function call");
                self.add(what, Some(Kernel(4, 16)), place);
            }
            Kind::LoadFunction => {
                let what = Requirement::Feature("callback");
                self.add(what, Some(Kernel(5, 13)), place);
            }
            Kind::LoadImm => {
                let value = value_map(op.imm);
                if value.is_some() {
                    let what = Requirement::Feature("global data");
                    self.add(what, Some(Kernel(5, 2)), place);
                }
                let map = handle_map(op.imm).or(value).and_then(|id| maps.get(id));
                if let Some(kind) = map.and_then(|m| map_kind(m.kind() as u32)) {
                    self.add(Requirement::Map(kind.name), Some(kind.since), place);
                }
            }
            _ => {}
        }
    }
}

/// Features that the section of a program asks for.
fn section_features(section: &str) -> &'static [(&'static str, Kernel)] {
    let kind = section.split('/').next_back().unwrap_or_default();
    let frags = section.split('/').next().is_some_and(|s| s == "xdp.frags");
    match (frags, kind) {
        (true, "devmap") => &[
            ("multi-buffer packets", Kernel(5, 18)),
            ("devmap program", Kernel(5, 8)),
        ],
        (true, "cpumap") => &[
            ("multi-buffer packets", Kernel(5, 18)),
            ("cpumap program", Kernel(5, 9)),
        ],
        (true, _) => &[("multi-buffer packets", Kernel(5, 18))],
        (false, "devmap") => &[("devmap program", Kernel(5, 8))],
        (false, "cpumap") => &[("cpumap program", Kernel(5, 9))],
        _ => &[],
    }
}

fn is_branch(kind: Kind) -> bool {
    kind as u8 > Kind::Ja as u8 && (kind as u8) < Kind::Helper as u8
}

/// Operations that not every kernel with XDP has.
fn instruction(op: &Op) -> Option<(&'static str, Kernel)> {
    use Kind::*;
    const BEFORE_V2: Kernel = Kernel(4, 14);
    const V3: Kernel = Kernel(5, 1);
    const V4: Kernel = Kernel(6, 6);
    Some(match op.kind {
        Jlt64K | Jle64K | Jslt64K | Jsle64K | Jlt64X | Jle64X | Jslt64X | Jsle64X => {
            ("jump if less (v2)", BEFORE_V2)
        }
        Jeq32K | Jgt32K | Jge32K | Jset32K | Jne32K | Jsgt32K | Jsge32K | Jlt32K | Jle32K
        | Jslt32K | Jsle32K | Jeq32X | Jgt32X | Jge32X | Jset32X | Jne32X | Jsgt32X | Jsge32X
        | Jlt32X | Jle32X | Jslt32X | Jsle32X => ("32-bit jump (v3)", V3),
        Atomic32 | Atomic64 if op.imm != 0 => ("atomic operation other than add", Kernel(5, 12)),
        Sdiv64K | Smod64K | Sdiv64X | Smod64X | Sdiv32K | Smod32K | Sdiv32X | Smod32X => {
            ("signed division (v4)", V4)
        }
        Movsx8To64 | Movsx16To64 | Movsx32To64 | Movsx8To32 | Movsx16To32 => {
            ("sign-extending move (v4)", V4)
        }
        Ldxs8 | Ldxs16 | Ldxs32 => ("sign-extending load (v4)", V4),
        Swap16 | Swap32 | Swap64 if op.off == UNCONDITIONAL_SWAP => ("byte swap (v4)", V4),
        Ja if op.src == LONG_JUMP => ("long jump (v4)", V4),
        MayGoto => ("may_goto", Kernel(6, 9)),
        Ldx8 | Ldx16 | Ldx32 | Ldx64 if op.imm == LOAD_ACQUIRE as u64 => {
            ("load-acquire", Kernel(6, 15))
        }
        Stx8 | Stx16 | Stx32 | Stx64 if op.imm == STORE_RELEASE as u64 => {
            ("store-release", Kernel(6, 15))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{INSN_BYTES, Insn, MapDefinition, MapKind};

    fn insn(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; INSN_BYTES] {
        Insn {
            opcode,
            dst,
            src,
            off,
            imm,
        }
        .to_bytes()
    }

    fn needs_of(code: &[[u8; INSN_BYTES]], kind: MapKind) -> Vec<(String, String, Option<usize>)> {
        let map = MapDefinition::new("m", kind, 4, 8, 1);
        let machine = Machine::from_program(&code.concat(), vec![map], 1).expect("it links");
        let needs = machine.needs("code").expect("there is one program");
        let line = |n: Need| {
            let since = n.since.map_or_else(String::new, |k| k.to_string());
            (n.what.to_string(), since, n.op)
        };
        needs.into_iter().map(line).collect()
    }

    #[test]
    fn a_program_needs_what_it_can_reach() {
        let code = [
            insn(0x18, 1, 1, 0, 0), // r1 = map 0
            insn(0, 0, 0, 0, 0),
            insn(0xb7, 2, 0, 0, 0),   // r2 = 0
            insn(0xb7, 3, 0, 0, 0),   // r3 = 0
            insn(0x85, 0, 0, 0, 51),  // redirect_map
            insn(0x56, 0, 0, 1, 4),   // if w0 != 4 goto +1
            insn(0x95, 0, 0, 0, 0),   // exit
            insn(0xd7, 0, 0, 0, 16),  // r0 = bswap16 r0
            insn(0x85, 0, 1, 0, 1),   // call +1
            insn(0x95, 0, 0, 0, 0),   // exit
            insn(0xb7, 0, 0, 0, 2),   // r0 = 2
            insn(0xdc, 0, 0, 0, 16),  // r0 = be16 r0
            insn(0x55, 0, 0, -3, 0),  // if r0 != 0 goto -3
            insn(0x95, 0, 0, 0, 0),   // exit
            insn(0x85, 0, 0, 0, 181), // unreachable: loop
        ];
        let expected = [
            ("instruction: byte swap (v4)", "6.6", Some(7)),
            ("bounded loop", "5.3", Some(12)),
            ("instruction: 32-bit jump (v3)", "5.1", Some(5)),
            ("function call", "4.16", Some(8)),
            ("helper bpf_redirect_map", "4.14", Some(4)),
            ("map kind devmap", "4.14", Some(0)),
            ("XDP", "4.8", None),
        ];
        let owned = |(a, b, c): (&str, &str, _)| (a.to_owned(), b.to_owned(), c);
        assert_eq!(needs_of(&code, MapKind::DevMap), expected.map(owned));
    }

    #[test]
    fn global_data_and_unknown_helpers_are_told() {
        let code = [
            insn(0x18, 1, 2, 0, 0), // r1 = value 0 of map 0
            insn(0, 0, 0, 0, 4),
            insn(0x85, 0, 0, 0, 999),
            insn(0x95, 0, 0, 0, 0),
        ];
        let needs = needs_of(&code, MapKind::Array);
        assert_eq!(
            needs.first(),
            Some(&("helper bpf_unknown".to_owned(), String::new(), Some(2)))
        );
        assert!(needs.contains(&("global data".to_owned(), "5.2".to_owned(), Some(0))));
    }

    #[test]
    fn sections_ask_for_features() {
        let features = |section| {
            section_features(section)
                .iter()
                .map(|f| f.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(features("xdp"), Vec::<&str>::new());
        assert_eq!(features("xdp.frags"), ["multi-buffer packets"]);
        assert_eq!(features("xdp/devmap"), ["devmap program"]);
        assert_eq!(features("xdp.frags/cpumap").len(), 2);
    }
}
