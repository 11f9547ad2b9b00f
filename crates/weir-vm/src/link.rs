//! Linking: maps are created and relocations become addresses and targets.
//!
//! Owns the meaning of relocations against maps, data, functions and external symbols. Sections with code lie one
//! behind the other in one array of operations, each followed by a mark that faults. Invariant: a function target is
//! an operation of the section its symbol is in.

use std::collections::HashMap;

use crate::elf::{Relocation, Section, Symbol};
use crate::insn::{self, Fixup, INSN_BYTES, Insn, Op};
use crate::machine::{Code, Label, Machine};
use crate::maps::{MEMORY_MAX, Map, MapKind, VALUE_SIZE_MAX};
use crate::memory::{MAPS_MAX, map_handle, value_address};
use crate::object::{LoadError, MapSource, Object};

/// Creates a machine from an object.
pub(crate) fn link(object: &Object, program: &str) -> Result<Machine, LoadError> {
    let maps = create_maps(object)?;
    let code = link_code(object)?;
    let mut machine = Machine::new(code, maps, object.cpus);
    set_references(object, &mut machine)?;
    machine.select(program)?;
    Ok(machine)
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
        let mut map = Map::new(d.clone(), object.cpus)?;
        if let MapSource::Section(index) = declared.source {
            let data = object.file.sections.get(index).map(|s| s.data.as_slice());
            if let (Some(value), Some(data)) = (map.value_mut(&[0; 4]), data) {
                value.copy_from_slice(data);
            }
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
    let mut linker = Linker {
        object,
        bases,
        externals: Vec::new(),
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
                code.functions.push(Label {
                    start: base.saturating_add((symbol.value / 8) as usize),
                    name: symbol.name.clone(),
                });
            }
        }
    }
    code.functions.sort_by_key(|f| f.start);
    for program in &object.programs {
        let Some(base) = linker.bases.get(&program.section) else {
            continue;
        };
        code.programs.push(Label {
            start: base.saturating_add(program.slot),
            name: program.name.clone(),
        });
    }
    code.entries = code.programs.iter().map(|p| p.start).collect();
    code.externals = linker.externals;
    Ok(code)
}

fn code_sections(object: &Object) -> impl Iterator<Item = (usize, &Section)> {
    object
        .file
        .sections
        .iter()
        .enumerate()
        .filter(|(_, s)| s.executable && !s.data.is_empty())
}

struct Linker<'o> {
    object: &'o Object,
    /// Index of the first operation by section.
    bases: HashMap<usize, usize>,
    externals: Vec<String>,
}

impl Linker<'_> {
    fn section(&mut self, section: &Section, base: usize) -> Result<Vec<Op>, LoadError> {
        let failed = |error| LoadError::Code {
            section: section.name.clone(),
            error,
        };
        let insns = insn::split(&section.data).map_err(failed)?;
        let mut fixups = HashMap::new();
        for relocation in &section.relocations {
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

    fn fixup(
        &mut self,
        section: &Section,
        relocation: &Relocation,
        insn: &Insn,
    ) -> Result<Fixup, LoadError> {
        let call = match insn.opcode {
            0x85 => true,
            0x18 => false,
            _ => {
                return Err(self.refused(
                    section,
                    relocation,
                    "only calls and 16-byte loads can be relocated",
                ));
            }
        };
        let Some(symbol) = self.object.file.symbols.get(relocation.symbol) else {
            return Err(self.refused(section, relocation, "the symbol does not exist"));
        };
        let Some(index) = symbol.section else {
            if symbol.weak && !call {
                return Ok(Fixup::Value(0));
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
                MapSource::Variable { offset, .. }
                    if offset == address && self.is_maps_section(index) =>
                {
                    return Ok(Fixup::Value(map_handle(number)));
                }
                _ => {}
            }
        }
        Err(self.refused(
            section,
            relocation,
            "the symbol is in a section that is neither code, data nor .maps",
        ))
    }

    fn is_maps_section(&self, index: usize) -> bool {
        let section = self.object.file.sections.get(index);
        section.is_some_and(|s| s.name == ".maps")
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
