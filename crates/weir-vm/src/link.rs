//! Linking: maps are created and relocations become addresses and targets.
//!
//! Owns the meaning of relocations against maps, data, functions and external symbols. Sections with code lie one
//! behind the other in one array of operations, each followed by a mark that faults. Invariant: a function target is
//! an operation of the section its symbol is in.

use std::collections::HashMap;

use crate::core_relocation::{Outcome, Resolver};
use crate::definitions::MapSource;
use crate::elf::{R_BPF_64_32, R_BPF_64_64, R_BPF_NONE, Relocation, Section, Symbol};
use crate::insn::{self, Fixup, INSN_BYTES, Insn, Op};
use crate::machine::{Code, Function, Label, Line, Machine};
use crate::maps::{MEMORY_MAX, Map, MapKind, VALUE_SIZE_MAX};
use crate::memory::{MAPS_MAX, map_handle, value_address};
use crate::object::{LoadError, Object};

/// Creates a machine from an object.
pub(crate) fn link(object: &Object, program: &str) -> Result<Machine, LoadError> {
    require_runnable(object, program)?;
    let maps = create_maps(object)?;
    let code = link_code(object)?;
    let mut machine = Machine::new(code, maps, object.cpus);
    set_references(object, &mut machine)?;
    machine.select(program)?;
    Ok(machine)
}

/// Refuses a program of another kind by name and section, before anything about the object can fail.
fn require_runnable(object: &Object, program: &str) -> Result<(), LoadError> {
    let found = object.programs.iter().find(|p| p.name == program);
    let found = found.ok_or_else(|| object.no_program(program))?;
    if found.kind.is_runnable() {
        return Ok(());
    }
    Err(LoadError::NotRunnable {
        program: program.to_owned(),
        section: object.program_section(program).unwrap_or("?").to_owned(),
        can_run: object.runnable_programs().collect::<Vec<_>>().join(", "),
    })
}

fn create_maps(object: &Object) -> Result<Vec<Map>, LoadError> {
    if object.maps.len() > MAPS_MAX {
        return Err(LoadError::TooManyMaps);
    }
    let mut total: u64 = 0;
    let mut maps = Vec::with_capacity(object.maps.len());
    for declared in &object.maps {
        let d = &declared.definition;
        let cpus = if d.kind.is_percpu() { object.cpus } else { 1 };
        total = total.saturating_add(
            u64::from(d.max_entries)
                .saturating_mul(u64::from(cpus))
                .saturating_mul(u64::from(d.value_size)),
        );
        if total > MEMORY_MAX {
            return Err(LoadError::Memory(total));
        }
        let mut definition = d.clone();
        if d.kind == MapKind::PerfEventArray && d.max_entries == 0 {
            definition.max_entries = object.cpus;
        }
        let mut map = Map::new(definition, object.cpus)?;
        if let MapSource::Section(index) = declared.source {
            let data = object.file.sections.get(index).map(|s| s.data.as_slice());
            if let (Some(value), Some(data)) = (map.value_mut(&[0; 4]), data) {
                value.copy_from_slice(data);
            }
        }
        // Constants: as libbpf does when they are in place.
        let data = !matches!(declared.source, MapSource::Variable { .. });
        if data && !map.writable_by_programs() {
            map.freeze();
        }
        maps.push(map);
    }
    Ok(maps)
}

fn link_code(object: &Object) -> Result<Code, LoadError> {
    let mut bases = HashMap::new();
    let mut base = 0;
    for (index, section) in code_sections(object) {
        bases.insert(index, base);
        base += section.data.len() / INSN_BYTES + 1;
    }
    let mut code = Code::default();
    let types = object.btf.as_deref().zip(object.target.as_deref());
    let mut linker = Linker {
        object,
        bases,
        externals: Vec::new(),
        resolver: types.map(|(local, target)| Resolver::new(local, target)),
    };
    for (index, section) in code_sections(object) {
        let base = code.ops.len();
        code.ops.extend(linker.section(section, base)?);
        code.sections.push(Label {
            start: base,
            name: section.name.clone(),
        });
        for symbol in &object.file.symbols {
            if symbol.section == Some(index) && symbol.function {
                let types = &object.ext.functions;
                let own = types
                    .iter()
                    .find(|f| u64::from(f.offset) == symbol.value && f.section == section.name);
                code.functions.push(Function {
                    start: base.saturating_add((symbol.value / 8) as usize),
                    name: symbol.name.clone(),
                    global: symbol.global,
                    type_id: own.map(|f| f.type_id),
                });
            }
        }
        for line in &object.ext.lines {
            if line.section == section.name {
                code.lines.push(Line {
                    start: base.saturating_add(line.offset as usize / INSN_BYTES),
                    file: line.file,
                    text: line.text,
                    line: line.line,
                    column: line.column,
                });
            }
        }
    }
    code.functions.sort_by_key(|f| f.start);
    code.lines.sort_by_key(|l| l.start);
    code.btf = object.btf.clone();
    code.restricted = !is_gpl_compatible(object);
    for program in &object.programs {
        let Some(base) = linker.bases.get(&program.section) else {
            continue;
        };
        code.programs.push(Label {
            start: base.saturating_add(program.slot),
            name: program.name.clone(),
        });
        code.kinds.push(program.kind.clone());
    }
    code.entries = code.programs.iter().map(|p| p.start).collect();
    code.externals = linker.externals;
    Ok(code)
}

/// Whether the object's license is one that the kernel takes for GPL-compatible; without one it is not.
fn is_gpl_compatible(object: &Object) -> bool {
    const COMPATIBLE: [&[u8]; 6] = [
        b"GPL",
        b"GPL v2",
        b"GPL and additional rights",
        b"Dual BSD/GPL",
        b"Dual MIT/GPL",
        b"Dual MPL/GPL",
    ];
    let license = object.file.section("license").map(|(_, s)| &s.data);
    let text = license.and_then(|data| data.split(|b| *b == 0).next());
    text.is_some_and(|text| COMPATIBLE.contains(&text))
}

/// Sections whose code is linked: `.text`, and those with a program this engine runs.
fn code_sections(object: &Object) -> impl Iterator<Item = (usize, &Section)> {
    object
        .file
        .sections
        .iter()
        .enumerate()
        .filter(|(index, s)| {
            let mut programs = object.programs.iter().filter(|p| p.section == *index);
            let runs = s.name == ".text" || programs.any(|p| p.kind.is_runnable());
            s.executable && !s.data.is_empty() && runs
        })
}

struct Linker<'o> {
    object: &'o Object,
    /// Index of the first operation by section.
    bases: HashMap<usize, usize>,
    externals: Vec<String>,
    /// Resolves CO-RE relocations, where there are types to resolve them against.
    resolver: Option<Resolver<'o>>,
}

impl Linker<'_> {
    fn section(&mut self, section: &Section, base: usize) -> Result<Vec<Op>, LoadError> {
        let failed = |error| LoadError::Code {
            section: section.name.clone(),
            error,
        };
        let mut insns = insn::split(&section.data).map_err(failed)?;
        let mut fixups = HashMap::new();
        self.relocate_types(section, &mut insns, &mut fixups)?;
        for relocation in &section.relocations {
            if relocation.kind == R_BPF_NONE {
                continue;
            }
            let slot = usize::try_from(relocation.offset / INSN_BYTES as u64).ok();
            let target = slot.and_then(|slot| Some((slot, insns.get(slot)?)));
            let aligned = relocation.offset.is_multiple_of(INSN_BYTES as u64);
            let (slot, insn) = target
                .filter(|_| aligned)
                .ok_or_else(|| self.refused(section, relocation, "it is not at an instruction"))?;
            fixups.insert(slot, self.fixup(section, relocation, insn)?);
        }
        insn::decode(&insns, base, |slot| fixups.get(&slot).copied()).map_err(failed)
    }

    /// Applies the section's CO-RE relocations.
    fn relocate_types(
        &mut self,
        section: &Section,
        insns: &mut [Insn],
        fixups: &mut HashMap<usize, Fixup>,
    ) -> Result<(), LoadError> {
        let Some(resolver) = &mut self.resolver else {
            return Ok(());
        };
        for relocation in &self.object.ext.relocations {
            if relocation.section != section.name {
                continue;
            }
            let pc = relocation.offset as usize / INSN_BYTES;
            let outcome = resolver.apply(relocation, insns, pc);
            let outcome = outcome.map_err(|error| LoadError::Core {
                section: section.name.clone(),
                pc,
                error,
            })?;
            if let Outcome::Missing(name) = outcome {
                self.externals.push(name);
                fixups.insert(pc, Fixup::External(self.externals.len() as u32 - 1));
            }
        }
        Ok(())
    }

    fn fixup(
        &mut self,
        section: &Section,
        relocation: &Relocation,
        insn: &Insn,
    ) -> Result<Fixup, LoadError> {
        let call = match (insn.opcode, relocation.kind) {
            (0x85, R_BPF_64_32) => true,
            (0x18, R_BPF_64_64) => false,
            _ => {
                return Err(self.refused(
                    section,
                    relocation,
                    "code has R_BPF_64_64 at 16-byte loads and R_BPF_64_32 at calls, nothing else",
                ));
            }
        };
        let Some(symbol) = self.object.file.symbols.get(relocation.symbol) else {
            return Err(self.refused(section, relocation, "the symbol does not exist"));
        };
        let Some(index) = symbol.section else {
            if symbol.weak && !call {
                return Ok(Fixup::Value(self.configuration(&symbol.name).unwrap_or(0)));
            }
            self.externals.push(symbol.name.clone());
            return Ok(Fixup::External(self.externals.len() as u32 - 1));
        };
        let addend = relocation.addend.wrapping_add(i64::from(insn.imm));
        if let Some(base) = self.bases.get(&index) {
            let target = function_target(symbol, addend, call);
            let size = self
                .object
                .file
                .sections
                .get(index)
                .map_or(0, |s| s.data.len());
            let target = usize::try_from(target)
                .ok()
                .filter(|t| *t < size / INSN_BYTES)
                .ok_or_else(|| {
                    self.refused(section, relocation, "it points outside its section")
                })?;
            return Ok(if call {
                Fixup::Call(base + target)
            } else {
                Fixup::Function(base + target)
            });
        }
        if call {
            return Err(self.refused(section, relocation, "a call needs a function"));
        }
        let address = symbol.value.wrapping_add(addend as u64);
        let near = (address as i64).unsigned_abs() <= u64::from(VALUE_SIZE_MAX);
        if !near {
            return Err(self.refused(section, relocation, "it points far outside its section"));
        }
        for (number, map) in self.object.maps.iter().enumerate() {
            match map.source {
                MapSource::Section(data) if data == index => {
                    return Ok(Fixup::Value(value_address(number, 0).wrapping_add(address)));
                }
                MapSource::Variable {
                    offset, section, ..
                } if offset == address && section == index => {
                    return Ok(Fixup::Value(map_handle(number)));
                }
                _ => {}
            }
        }
        Err(self.refused(
            section,
            relocation,
            if self
                .object
                .file
                .sections
                .get(index)
                .is_some_and(|s| s.executable)
            {
                "the function is in a section with no XDP program, which is not linked"
            } else {
                "the symbol is in a section that is neither code, data nor maps"
            },
        ))
    }

    /// Address of a setting of the kernel, which reads as zero.
    fn configuration(&self, name: &str) -> Option<u64> {
        let mut maps = self.object.maps.iter().zip(0..);
        maps.find_map(|(map, number)| match &map.source {
            MapSource::Configuration(places) => places
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, offset)| value_address(number, 0).wrapping_add(u64::from(*offset))),
            _ => None,
        })
    }

    fn refused(
        &self,
        section: &Section,
        relocation: &Relocation,
        reason: &'static str,
    ) -> LoadError {
        let symbol = self.object.file.symbols.get(relocation.symbol);
        LoadError::Relocation {
            section: section.name.clone(),
            offset: relocation.offset,
            symbol: symbol.map_or_else(String::new, |s| s.name.clone()),
            reason,
        }
    }
}

/// Slot a function symbol and addend mean: calls count slots from the next instruction, loads count bytes.
fn function_target(symbol: &Symbol, addend: i64, call: bool) -> i64 {
    let start = (symbol.value / INSN_BYTES as u64) as i64;
    if call {
        start.wrapping_add(addend).wrapping_add(1)
    } else {
        start.wrapping_add(addend / INSN_BYTES as i64)
    }
}

/// Fills program arrays and maps of maps from the initial values the object gives them.
fn set_references(object: &Object, machine: &mut Machine) -> Result<(), LoadError> {
    for initial in &object.initial {
        machine.set_inner_map(&initial.outer, &initial.index.to_le_bytes(), &initial.inner)?;
    }
    let Some((_, section)) = object.file.section(".maps") else {
        return Ok(());
    };
    for relocation in &section.relocations {
        let Some(symbol) = object.file.symbols.get(relocation.symbol) else {
            continue;
        };
        let owner = object.maps.iter().find_map(|m| match m.source {
            MapSource::Variable {
                offset,
                size,
                values: Some(values),
                ..
            } => {
                let first = offset + u64::from(values);
                let inside = relocation.offset >= first && relocation.offset < offset + size;
                inside.then(|| (&m.definition, (relocation.offset - first) / 8))
            }
            _ => None,
        });
        let Some((definition, index)) = owner else {
            continue;
        };
        let key = (index as u32).to_le_bytes();
        if definition.kind == MapKind::ProgArray {
            machine.set_tail_call(&definition.name, index as u32, &symbol.name)?;
        } else {
            machine.set_inner_map(&definition.name, &key, &symbol.name)?;
        }
    }
    Ok(())
}
