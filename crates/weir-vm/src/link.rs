//! Linking: maps are created and relocations become addresses and targets, for one object or several.
//!
//! Owns the meaning of relocations against maps, data, functions and external symbols. Sections with code lie one
//! behind the other in one array of operations, each followed by a mark that faults, those of an object together. Invariant: a function target is
//! an operation of the section its symbol is in.

use std::collections::{BTreeMap, HashMap};

use crate::catalogue;
use crate::core_relocation::{Outcome, Resolver};
use crate::definitions::{DeclaredMap, MapSource};
use crate::elf::{R_BPF_64_32, R_BPF_64_64, R_BPF_NONE, Relocation, Section, Symbol};
use crate::insn::{self, Fixup, INSN_BYTES, Insn, Op};
use crate::machine::{Code, Function, Label, Line, Machine, Unit};
use crate::maps::{MEMORY_MAX, Map, MapDefinition, MapKind, VALUE_SIZE_MAX};
use crate::memory::{MAPS_MAX, map_handle, value_address};
use crate::object::{LoadError, Object};
use crate::signature::Signature;

/// An object to link, and what its parts are called in the machine.
#[derive(Debug)]
pub(crate) struct Part<'o> {
    /// Put before the names of its programs and functions; none for an object alone.
    pub(crate) name: Option<&'o str>,
    pub(crate) object: &'o Object,
    /// Name of each map, in the object's order.
    pub(crate) maps: Vec<MapName>,
}

/// What a map of an object is called in the machine.
#[derive(Clone, Debug)]
pub(crate) enum MapName {
    /// Its own.
    Own(String),
    /// One map for all parts that name it so.
    Shared(String),
}

impl<'o> Part<'o> {
    /// An object alone, which keeps its names.
    pub(crate) fn whole(object: &'o Object) -> Part<'o> {
        Part {
            name: None,
            object,
            maps: object
                .map_names()
                .map(|n| MapName::Own(n.to_owned()))
                .collect(),
        }
    }

    fn called(&self, name: &str) -> String {
        match self.name {
            Some(part) => format!("{part}/{name}"),
            None => name.to_owned(),
        }
    }

    /// Says which part an error is about, if there are several.
    fn blame(&self, error: LoadError) -> LoadError {
        match self.name {
            None => error,
            Some(part) => LoadError::Part {
                part: part.to_owned(),
                error: Box::new(error),
            },
        }
    }
}

/// Creates a machine of these objects, in which `program` of the part `first` runs.
pub(crate) fn link(parts: &[Part<'_>], first: usize, program: &str) -> Result<Machine, LoadError> {
    let Some(chosen) = parts.get(first) else {
        return Err(LoadError::NoProgram {
            name: program.to_owned(),
            known: String::new(),
        });
    };
    require_runnable(chosen.object, program).map_err(|e| chosen.blame(e))?;
    let cpus = parts.iter().map(|p| p.object.cpus).max().unwrap_or(1);
    let (maps, numbers) = create_maps(parts, cpus)?;
    let mut code = Code::default();
    for (part, numbers) in parts.iter().zip(&numbers) {
        link_code(part, numbers, &mut code).map_err(|e| part.blame(e))?;
    }
    code.functions.sort_by_key(|f| f.start);
    code.lines.sort_by_key(|l| l.start);
    let mut machine = Machine::new(code, maps, cpus);
    for (part, numbers) in parts.iter().zip(&numbers) {
        set_references(part, numbers, &mut machine).map_err(|e| part.blame(e))?;
    }
    machine.select(&chosen.called(program))?;
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

/// The maps of all parts, and for each part the numbers of its maps.
fn create_maps(parts: &[Part<'_>], cpus: u32) -> Result<(Vec<Map>, Vec<Vec<usize>>), LoadError> {
    let mut room = MapBudget { total: 0, cpus };
    let mut maps: Vec<Map> = Vec::new();
    let mut shared: HashMap<&str, usize> = HashMap::new();
    let mut numbers = Vec::with_capacity(parts.len());
    for part in parts {
        let mut own = Vec::with_capacity(part.maps.len());
        for (declared, name) in part.object.maps.iter().zip(&part.maps) {
            let (name, known) = match name {
                MapName::Own(name) => (name, None),
                MapName::Shared(name) => (name, shared.get(name.as_str()).copied()),
            };
            if let Some(number) = known {
                let first = maps.get(number).map(Map::definition);
                if let Some(first) = first.filter(|f| !alike(f, &declared.definition)) {
                    return Err(LoadError::Shared {
                        map: name.clone(),
                        first: shown(first),
                        part: part.name.unwrap_or_default().to_owned(),
                        second: shown(&declared.definition),
                    });
                }
                own.push(number);
                continue;
            }
            if maps.len() >= MAPS_MAX {
                return Err(LoadError::TooManyMaps);
            }
            let map = room
                .create(part.object, declared, name)
                .map_err(|e| part.blame(e))?;
            if matches!(part.maps.get(own.len()), Some(MapName::Shared(_))) {
                shared.insert(name, maps.len());
            }
            own.push(maps.len());
            maps.push(map);
        }
        numbers.push(own);
    }
    Ok((maps, numbers))
}

/// What the maps of a machine may take together.
struct MapBudget {
    total: u64,
    cpus: u32,
}

impl MapBudget {
    fn create(
        &mut self,
        object: &Object,
        declared: &DeclaredMap,
        name: &str,
    ) -> Result<Map, LoadError> {
        let d = &declared.definition;
        let cpus = if d.kind.is_percpu() { self.cpus } else { 1 };
        self.total = self.total.saturating_add(
            u64::from(d.max_entries)
                .saturating_mul(u64::from(cpus))
                .saturating_mul(u64::from(d.value_size)),
        );
        if self.total > MEMORY_MAX {
            return Err(LoadError::Memory(self.total));
        }
        let mut definition = d.clone();
        name.clone_into(&mut definition.name);
        if d.kind == MapKind::PerfEventArray && d.max_entries == 0 {
            definition.max_entries = self.cpus;
        }
        let mut map = Map::new(definition, self.cpus)?;
        if let MapSource::Section(index) = declared.source {
            let data = object.file.sections.get(index).map(|s| s.data.as_slice());
            if let (Some(value), Some(data)) = (map.value_mut(&[0; 4]), data) {
                value.copy_from_slice(data);
            }
        }
        // Constants: as libbpf does when they are in place.
        if declared.is_data() && !map.writable_by_programs() {
            map.freeze();
        }
        Ok(map)
    }
}

/// Whether two definitions mean the same map, as the kernel compares them when a file descriptor is used again.
fn alike(a: &MapDefinition, b: &MapDefinition) -> bool {
    let inner = match (&a.inner, &b.inner) {
        (Some(a), Some(b)) => alike(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    // A perf event array may leave its size to the number of CPUs.
    let entries =
        a.max_entries == b.max_entries || (a.kind == MapKind::PerfEventArray && b.max_entries == 0);
    let sizes = (a.key_size, a.value_size, a.flags, a.extra);
    a.kind == b.kind
        && sizes == (b.key_size, b.value_size, b.flags, b.extra)
        && (a.has_spin_lock, a.lock_at) == (b.has_spin_lock, b.lock_at)
        && entries
        && inner
}

fn shown(d: &MapDefinition) -> String {
    let kind = catalogue::map_kind(d.kind as u32).map_or("map", |k| k.name);
    format!(
        "{kind} of {} entries, keys of {} and values of {} bytes, flags {:#x}",
        d.max_entries, d.key_size, d.value_size, d.flags
    )
}

/// Puts the code of a part behind what there is.
fn link_code(part: &Part<'_>, numbers: &[usize], code: &mut Code) -> Result<(), LoadError> {
    let object = part.object;
    let mut bases = HashMap::new();
    let mut base = code.ops.len();
    code.units.push(Unit {
        start: base,
        btf: object.btf.clone(),
        kernel: object.target.clone(),
        restricted: !is_gpl_compatible(object),
    });
    for (index, section) in code_sections(object) {
        bases.insert(index, base);
        base += section.data.len() / INSN_BYTES + 1;
    }
    let types = object.btf.as_deref().zip(object.target.as_deref());
    let mut linker = Linker {
        object,
        numbers,
        bases,
        externals: std::mem::take(&mut code.externals),
        invalid: std::mem::take(&mut code.invalid),
        signatures: std::mem::take(&mut code.signatures),
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
                    name: part.called(&symbol.name),
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
    for program in &object.programs {
        let Some(base) = linker.bases.get(&program.section) else {
            continue;
        };
        code.programs.push(Label {
            start: base.saturating_add(program.slot),
            name: part.called(&program.name),
        });
        code.entries.push(base.saturating_add(program.slot));
        code.kinds.push(program.kind.clone());
    }
    code.externals = linker.externals;
    code.invalid = linker.invalid;
    code.signatures = linker.signatures;
    Ok(())
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
    /// Number in the machine of each map of the object.
    numbers: &'o [usize],
    /// Index of the first operation by section.
    bases: HashMap<usize, usize>,
    externals: Vec<String>,
    /// Why operations are invalid: they spoil the programs that have them, not the object.
    invalid: Vec<String>,
    /// What kernel functions that are called take and return.
    signatures: BTreeMap<u32, Signature>,
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
            let outside = || self.refused(section, relocation, "it is not at an instruction");
            let (slot, insn) = target.ok_or_else(outside)?;
            let fixup = match aligned {
                true => self.fixup(section, relocation, insn),
                false => Err(self.refused(section, relocation, "it is not at an instruction")),
            };
            let fixup = fixup.unwrap_or_else(|error| self.invalid(error.to_string()));
            fixups.insert(slot, fixup);
        }
        let fixup = |slot| fixups.get(&slot).copied();
        let decoded = insn::decode(&insns, base, fixup, |error| {
            self.invalid.push(error.reason());
            Ok(self.invalid.len() as u32 - 1)
        });
        decoded.map_err(failed)
    }

    /// The operand of an operation that cannot be had.
    fn invalid(&mut self, reason: String) -> Fixup {
        self.invalid.push(reason);
        Fixup::Invalid(self.invalid.len() as u32 - 1)
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
            match outcome {
                Ok(Outcome::Missing(name)) => {
                    self.externals.push(name);
                    fixups.insert(pc, Fixup::External(self.externals.len() as u32 - 1));
                }
                Ok(_) => {}
                Err(error) if pc < insns.len() => {
                    self.invalid.push(format!("CO-RE: {error}"));
                    fixups.insert(pc, Fixup::Invalid(self.invalid.len() as u32 - 1));
                }
                Err(error) => {
                    return Err(LoadError::Core {
                        section: section.name.clone(),
                        pc,
                        error,
                    });
                }
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
            if call && let Some(number) = self.kernel_function(&symbol.name) {
                return Ok(Fixup::Kernel(number));
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
        for (number, map) in self.numbers.iter().copied().zip(&self.object.maps) {
            match map.source {
                MapSource::Section(data) if data == index => {
                    return Ok(Fixup::Value(value_address(number).wrapping_add(address)));
                }
                MapSource::Variable {
                    offset, section, ..
                } if offset == address && section == index => {
                    return Ok(Fixup::Value(map_handle(number)));
                }
                _ => {}
            }
        }
        let mut unusable = self.object.unusable.iter();
        let unusable = unusable.find(|m| (m.section, m.offset) == (index, address));
        if let Some(map) = unusable {
            return Ok(self.invalid(map.error.to_string()));
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

    /// The number of a kernel function that the kernel has, as far as its types are known.
    fn kernel_function(&mut self, name: &str) -> Option<u32> {
        let number = catalogue::kernel_function_number(name)?;
        if !self.signatures.contains_key(&number) {
            let object = self.object;
            let types = object.target.as_deref().or(object.btf.as_deref())?;
            self.signatures.insert(number, Signature::of(types, name)?);
        }
        Some(number)
    }

    /// Address of a setting of the kernel, which reads as zero.
    fn configuration(&self, name: &str) -> Option<u64> {
        let mut maps = self.object.maps.iter().zip(self.numbers.iter().copied());
        maps.find_map(|(map, number)| match &map.source {
            MapSource::Configuration(places) => places
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, offset)| value_address(number).wrapping_add(u64::from(*offset))),
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
fn set_references(
    part: &Part<'_>,
    numbers: &[usize],
    machine: &mut Machine,
) -> Result<(), LoadError> {
    let object = part.object;
    let called = |own: &str| {
        let number = object.maps.iter().position(|m| m.definition.name == own);
        let map = number.and_then(|n| machine_map(machine, *numbers.get(n)?));
        map.unwrap_or_else(|| own.to_owned())
    };
    let mut wanted = Vec::new();
    for initial in &object.initial {
        let (outer, inner) = (called(&initial.outer), called(&initial.inner));
        wanted.push((MapKind::ArrayOfMaps, outer, initial.index, inner));
    }
    let section = object.file.section(".maps").map(|(_, section)| section);
    for relocation in section.map_or(&[][..], |s| &s.relocations) {
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
        let target = match definition.kind {
            MapKind::ProgArray => part.called(&symbol.name),
            _ => called(&symbol.name),
        };
        let outer = called(&definition.name);
        wanted.push((definition.kind, outer, index as u32, target));
    }
    for (kind, outer, index, target) in wanted {
        if kind == MapKind::ProgArray {
            machine.set_tail_call(&outer, index, &target)?;
        } else {
            machine.set_inner_map(&outer, &index.to_le_bytes(), &target)?;
        }
    }
    Ok(())
}

fn machine_map(machine: &Machine, number: usize) -> Option<String> {
    machine.maps().get(number).map(|m| m.name().to_owned())
}
