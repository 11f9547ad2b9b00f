//! Joins a guest's entry to a wrapper: the entry becomes a function of the wrapper's file, seen in that file only.
//!
//! Owns where code, data, symbols, relocations and type information go. Pieces are copied whole: sections of data, `.text`, and
//! single programs. Invariant: what is not copied is named by nothing in the result; every reference that would be is an error.

use std::collections::{BTreeMap, BTreeSet};

use object::elf as raw;

use crate::ObjectError;
use crate::btf::{DATASEC, Ext, Record, STATIC, Type, Types, VAR};
use crate::elf::{self, File, R_BPF_64_32, R_BPF_64_64, Relocation, Section, Symbol};

/// The section programs of the result are in; program arrays take one kind only.
const PROGRAMS: &str = "xdp.frags";
/// Where libbpf looks for functions that programs call.
const FUNCTIONS: &str = ".text";
const INSN: u64 = 8;

/// An object and its type information, in parts.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub(crate) file: File,
    pub(crate) types: Types,
    pub(crate) ext: Ext,
}

impl Unit {
    /// Reads an object. Type information is needed: without it libbpf neither knows maps nor lets functions be called.
    pub(crate) fn read(bytes: &[u8]) -> Result<Unit, ObjectError> {
        let file = elf::read(bytes)?;
        let part = |name: &str| file.section(name).map(|(_, s)| s.data.as_slice());
        let (Some(btf), Some(ext)) = (part(".BTF"), part(".BTF.ext")) else {
            return Err(ObjectError::NoTypes);
        };
        Ok(Unit {
            types: Types::read(btf)?,
            ext: Ext::read(ext)?,
            file,
        })
    }

    /// A defined function outside `.text`, by name.
    pub(crate) fn program(&self, name: &str) -> Option<usize> {
        self.file.symbols.iter().position(|s| {
            let section = s.section.and_then(|i| self.file.sections.get(i));
            let code = section.is_some_and(|s| s.code && s.name != FUNCTIONS);
            s.name == name && s.is_function() && s.is_global() && code
        })
    }

    /// Numbers of the helpers that its code calls.
    pub(crate) fn helpers(&self) -> BTreeSet<i32> {
        let code = self.file.sections.iter().filter(|s| s.code);
        let insns = code.flat_map(|s| s.data.as_chunks::<8>().0);
        let calls = insns.filter(|i| i[0] == 0x85 && i[1] >> 4 == 0);
        calls
            .map(|i| i32::from_le_bytes([i[4], i[5], i[6], i[7]]))
            .collect()
    }

    /// Programs that maps of the object name as elements: what its own tail calls reach.
    pub(crate) fn tail_targets(&self) -> Vec<usize> {
        let Some((_, maps)) = self.file.section(".maps") else {
            return Vec::new();
        };
        let named: BTreeSet<usize> = maps
            .relocations
            .iter()
            .filter(|r| self.file.symbols[r.symbol].is_function())
            .map(|r| r.symbol)
            .collect();
        named.into_iter().collect()
    }
}

/// The result of joining.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) elf: Vec<u8>,
    /// Names of the guest that are taken: old and new.
    pub(crate) renamed: BTreeMap<String, String>,
    /// Names that the loader has to supply.
    pub(crate) externals: Vec<String>,
}

/// Joins `guest`, of which `entry` is called where the wrapper calls `hole`, and `targets` stay programs.
pub(crate) fn join(
    wrapper: &Unit,
    guest: &Unit,
    hole: &str,
    entry: usize,
    targets: &[usize],
) -> Result<Joined, ObjectError> {
    let mut join = Join {
        units: [wrapper, guest],
        out: File::default(),
        pieces: Vec::new(),
        symbols: [BTreeMap::new(), BTreeMap::new()],
        sections: BTreeMap::new(),
        renamed: names_taken(wrapper, guest),
    };
    join.out.sections.push(Section::empty());
    join.out.symbols.push(Symbol::section_of(None));
    for (unit, source) in [wrapper, guest].into_iter().enumerate() {
        for (index, section) in source.file.sections.iter().enumerate() {
            let whole = match section.code {
                true => unit == WRAPPER || section.name == FUNCTIONS,
                false => is_data(&section.name),
            };
            // The guest's author says under which license it runs, and with it which helpers it may call; silence is an answer, too.
            let license = unit == GUEST && section.name == "license";
            if (whole || license) && !section.data.is_empty() {
                join.place(unit, index, 0..section.data.len() as u64, &section.name);
            }
        }
    }
    let entry_range = range(guest, entry)?;
    let at_home = guest.file.symbols[entry].section.unwrap_or(0);
    join.place(GUEST, at_home, entry_range, FUNCTIONS);
    let entry_piece = join.pieces.len() - 1;
    for target in targets {
        let home = guest.file.symbols[*target].section.unwrap_or(0);
        join.place(GUEST, home, range(guest, *target)?, PROGRAMS);
    }
    join.name_sections();
    let entry_symbol = join.define_entry(entry, entry_piece);
    join.define(WRAPPER, |s| (s == hole).then_some(entry_symbol));
    join.define(GUEST, |_| None);
    if !targets.contains(&entry) {
        join.symbols[GUEST].insert(entry, entry_symbol);
    }
    join.relocate()?;
    join.describe(hole, entry_piece)?;
    let undefined = join.out.symbols.iter().filter(|s| s.section.is_none());
    let externals = undefined.map(|s| s.name.clone()).collect();
    Ok(Joined {
        elf: elf::write(&join.out),
        externals,
        renamed: join.renamed,
    })
}

const WRAPPER: usize = 0;
const GUEST: usize = 1;

/// A stretch of a section and where it went.
struct Piece {
    unit: usize,
    section: usize,
    from: std::ops::Range<u64>,
    to: usize,
    at: u64,
}

struct Join<'u> {
    units: [&'u Unit; 2],
    out: File,
    pieces: Vec<Piece>,
    /// Symbols of the result by those of each unit.
    symbols: [BTreeMap<usize, usize>; 2],
    /// Symbols that stand for sections of the result.
    sections: BTreeMap<usize, usize>,
    renamed: BTreeMap<String, String>,
}

impl Join<'_> {
    /// Copies a stretch of a section behind what the result's section of that name has.
    fn place(&mut self, unit: usize, section: usize, from: std::ops::Range<u64>, to: &str) {
        let source = &self.units[unit].file.sections[section];
        let known = self.out.section(to).map(|(index, _)| index);
        let index = known.unwrap_or_else(|| {
            let mut new = Section {
                name: to.to_owned(),
                ..source.clone()
            };
            new.data.clear();
            new.relocations.clear();
            self.out.sections.push(new);
            self.out.sections.len() - 1
        });
        let target = &mut self.out.sections[index];
        let align = if source.code { INSN } else { source.align };
        target.align = target.align.max(align);
        target.filled |= source.filled;
        let at = (target.data.len() as u64).next_multiple_of(align);
        target.data.resize(at as usize, 0);
        target
            .data
            .extend_from_slice(&source.data[from.start as usize..from.end as usize]);
        self.pieces.push(Piece {
            unit,
            section,
            from,
            to: index,
            at,
        });
    }

    fn name_sections(&mut self) {
        for index in 1..self.out.sections.len() {
            self.out.symbols.push(Symbol::section_of(Some(index)));
            self.sections.insert(index, self.out.symbols.len() - 1);
        }
    }

    /// The entry as a function of this file only: the kernel then checks it as part of its caller, with what the caller knows.
    fn define_entry(&mut self, entry: usize, piece: usize) -> usize {
        let source = &self.units[GUEST].file.symbols[entry];
        let piece = &self.pieces[piece];
        self.out.symbols.push(Symbol {
            name: source.name.clone(),
            section: Some(piece.to),
            value: piece.at,
            size: source.size,
            bind: raw::STB_LOCAL,
            kind: raw::STT_FUNC,
            visibility: raw::STV_DEFAULT,
        });
        self.out.symbols.len() - 1
    }

    /// Takes over a unit's symbols: what lies in a copied piece, and what code in one wants of somebody else.
    fn define(&mut self, unit: usize, supplied: impl Fn(&str) -> Option<usize>) {
        let source = self.units[unit];
        let wanted = self.wanted(unit);
        for (number, symbol) in source.file.symbols.iter().enumerate() {
            let new = match symbol.section {
                None if wanted.contains(&number) => {
                    let known = supplied(&symbol.name).or_else(|| {
                        let mut all = self.out.symbols.iter();
                        all.position(|s| s.name == symbol.name && s.is_global())
                    });
                    known.unwrap_or_else(|| self.add(symbol.clone()))
                }
                Some(section) if symbol.is_function() || symbol.kind == raw::STT_OBJECT => {
                    // Of a program that was copied twice, as a function and as a target of tail calls, the name stays with the target.
                    let home = &source.file.sections[section];
                    let moved = self.moved(unit, section, symbol.value, home.code);
                    let Some((to, value)) = moved else { continue };
                    let entry = unit == GUEST && home.code && home.name != FUNCTIONS;
                    if entry && self.out.sections[to].name == FUNCTIONS {
                        continue;
                    }
                    let renamed = self.renamed.get(&symbol.name);
                    let renamed = renamed.filter(|_| unit == GUEST && symbol.is_global());
                    self.add(Symbol {
                        name: renamed.unwrap_or(&symbol.name).clone(),
                        section: Some(to),
                        value,
                        ..symbol.clone()
                    })
                }
                _ => continue,
            };
            self.symbols[unit].insert(number, new);
        }
    }

    fn add(&mut self, symbol: Symbol) -> usize {
        self.out.symbols.push(symbol);
        self.out.symbols.len() - 1
    }

    /// Symbols that relocations in copied pieces name.
    fn wanted(&self, unit: usize) -> BTreeSet<usize> {
        let pieces = self.pieces.iter().filter(|p| p.unit == unit);
        let named = pieces.flat_map(|piece| {
            let all = self.units[unit].file.sections[piece.section]
                .relocations
                .iter();
            all.filter(|r| piece.from.contains(&r.offset))
                .map(|r| r.symbol)
        });
        named.collect()
    }

    /// Where an offset of a section went; of two copies the last.
    fn moved(
        &self,
        unit: usize,
        section: usize,
        offset: u64,
        function: bool,
    ) -> Option<(usize, u64)> {
        let holds = |p: &&Piece| {
            let end = p.from.end + u64::from(!function);
            p.unit == unit && p.section == section && (p.from.start..end).contains(&offset)
        };
        let piece = self.pieces.iter().rev().find(holds)?;
        Some((piece.to, piece.at + (offset - piece.from.start)))
    }

    fn relocate(&mut self) -> Result<(), ObjectError> {
        for piece in 0..self.pieces.len() {
            let Piece {
                unit,
                section,
                ref from,
                to,
                at,
            } = self.pieces[piece];
            let (from, source) = (from.clone(), &self.units[unit].file.sections[section]);
            for relocation in source
                .relocations
                .iter()
                .filter(|r| from.contains(&r.offset))
            {
                let offset = at + (relocation.offset - from.start);
                let moved = self.relocation(unit, source, relocation, to, offset)?;
                self.out.sections[to].relocations.push(moved);
            }
        }
        Ok(())
    }

    /// One relocation, at its new place; where it names a section, the offset in the instruction changes with what it names.
    fn relocation(
        &mut self,
        unit: usize,
        source: &Section,
        relocation: &Relocation,
        to: usize,
        offset: u64,
    ) -> Result<Relocation, ObjectError> {
        let symbol = &self.units[unit].file.symbols[relocation.symbol];
        let lost = |what: &str| ObjectError::Reference {
            section: source.name.clone(),
            symbol: what.to_owned(),
        };
        let Relocation { kind, .. } = *relocation;
        if !symbol.is_section() {
            let new = self.symbols[unit].get(&relocation.symbol).copied();
            let new = new.ok_or_else(|| lost(&symbol.name))?;
            return Ok(Relocation {
                offset,
                symbol: new,
                kind,
            });
        }
        let section = symbol.section.ok_or_else(|| lost(&symbol.name))?;
        let name = self.units[unit].file.sections[section].name.clone();
        let at = offset as usize + 4;
        let place = self.out.sections[to].data.get_mut(at..at + 4);
        let place = place.ok_or_else(|| lost(&name))?;
        let imm = i32::from_le_bytes([place[0], place[1], place[2], place[3]]);
        let old = match kind {
            R_BPF_64_32 => (i64::from(imm) + 1) * INSN as i64,
            R_BPF_64_64 => i64::from(imm),
            _ => return Err(lost(&name)),
        };
        let old = u64::try_from(old).map_err(|_| lost(&name))?;
        let function = self.units[unit].file.sections[section].code;
        let (out, new) = self
            .moved(unit, section, old, function)
            .ok_or_else(|| lost(&name))?;
        let imm = match kind {
            R_BPF_64_32 => (new / INSN) as i32 - 1,
            _ => new as i32,
        };
        self.out.sections[to].data[at..at + 4].copy_from_slice(&imm.to_le_bytes());
        Ok(Relocation {
            offset,
            symbol: self.sections[&out],
            kind,
        })
    }

    /// Type information of the result, behind its sections.
    fn describe(&mut self, hole: &str, entry_piece: usize) -> Result<(), ObjectError> {
        let mut types = Types::default();
        let mut ext = Ext::default();
        let mut variables: BTreeMap<String, Vec<[u32; 3]>> = BTreeMap::new();
        let mut names: BTreeMap<usize, u32> = BTreeMap::new();
        for unit in [WRAPPER, GUEST] {
            let source = self.units[unit];
            // What only left-out programs wanted of somebody else the loader would not supply, and the kernel refuses its type.
            let undefined = self.out.symbols.iter().filter(|s| s.section.is_none());
            let wanted: BTreeSet<&str> = undefined.map(|s| s.name.as_str()).collect();
            let moved = types.absorb(&source.types, |name| match unit {
                WRAPPER => name == hole,
                _ => !wanted.contains(name),
            });
            self.variables(unit, |old| moved.id(old), &mut variables);
            if unit == GUEST {
                self.rename_types(&mut types, source, &moved);
            }
            for (number, piece) in self
                .pieces
                .iter()
                .enumerate()
                .filter(|(_, p)| p.unit == unit)
            {
                if !source.file.sections[piece.section].code {
                    continue;
                }
                let section_name = *names
                    .entry(piece.to)
                    .or_insert_with(|| types.add_text(&self.out.sections[piece.to].name));
                let place = |r: &Record| {
                    let here = source.types.text(r.section)
                        == source.file.sections[piece.section].name
                        && piece.from.contains(&u64::from(r.offset));
                    here.then(|| Record {
                        section: section_name,
                        offset: (piece.at + u64::from(r.offset) - piece.from.start) as u32,
                        words: r.words,
                    })
                };
                for mut record in source.ext.functions.iter().filter_map(place) {
                    let old = record.words[0];
                    record.words[0] = moved.id(old);
                    if number == entry_piece {
                        let function = source.types.get(old).ok_or(ObjectError::NoTypes)?;
                        record.words[0] = types.add(function.as_static(&moved));
                    }
                    ext.functions.push(record);
                }
                for mut record in source.ext.lines.iter().filter_map(place) {
                    record.words[0] = moved.string(record.words[0]);
                    record.words[1] = moved.string(record.words[1]);
                    ext.lines.push(record);
                }
                for mut record in source.ext.relocations.iter().filter_map(place) {
                    record.words[0] = moved.id(record.words[0]);
                    record.words[1] = moved.string(record.words[1]);
                    ext.relocations.push(record);
                }
            }
        }
        for (name, mut found) in variables {
            found.sort_by_key(|v| v[1]);
            let size = match self.out.section(&name) {
                Some((_, section)) => section.data.len() as u32,
                // Sections without bytes (.kconfig, .ksyms) are laid out by the loader.
                None => 0,
            };
            let text = types.add_text(&name);
            types.add(Type::section(text, size, &found));
        }
        for (name, data) in [(".BTF", types.write()), (".BTF.ext", ext.write())] {
            self.out.sections.push(Section {
                name: name.to_owned(),
                align: 8,
                filled: true,
                data,
                ..Section::empty()
            });
        }
        Ok(())
    }

    /// Variables of a unit by section of the result: type, offset, size.
    fn variables(
        &self,
        unit: usize,
        id: impl Fn(u32) -> u32,
        into: &mut BTreeMap<String, Vec<[u32; 3]>>,
    ) {
        let source = self.units[unit];
        for section in source.types.types.iter().filter(|t| t.kind() == DATASEC) {
            let name = source.types.text(section.name);
            let home = source.file.section(&name).map(|(index, _)| index);
            for entry in section.rest.chunks_exact(3) {
                let (old, offset, size) = (entry[0], entry[1], entry[2]);
                let variable = source.types.get(old);
                let text = variable
                    .map(|v| source.types.text(v.name))
                    .unwrap_or_default();
                let Some(home) = home else {
                    // Sections without bytes hold what the loader supplies; it looks for each in the symbols.
                    let mut all = self.out.symbols.iter();
                    if all.any(|s| s.section.is_none() && s.name == text && !text.is_empty()) {
                        let entries = into.entry(name.clone()).or_default();
                        entries.push([id(old), offset, size]);
                    }
                    continue;
                };
                let Some(variable) = variable.filter(|t| t.kind() == VAR) else {
                    continue;
                };
                // The compiler leaves the offset of a global to the loader, whose word is the symbol.
                let offset = match variable.rest.first() {
                    Some(&STATIC) => Some(u64::from(offset)),
                    _ => {
                        let mut symbols = source.file.symbols.iter();
                        symbols
                            .find(|s| s.section == Some(home) && s.name == text)
                            .map(|s| s.value)
                    }
                };
                let place = offset.and_then(|o| self.moved(unit, home, o, false));
                if let Some((to, at)) = place {
                    let entries = into.entry(self.out.sections[to].name.clone()).or_default();
                    entries.push([id(old), at as u32, size]);
                }
            }
        }
    }

    /// Gives functions and variables of the guest their new names.
    fn rename_types(&self, types: &mut Types, source: &Unit, moved: &crate::btf::Moved) {
        for (number, old) in source.types.types.iter().enumerate() {
            let nameable = matches!(old.kind(), crate::btf::FUNC | VAR);
            let Some(new) = self
                .renamed
                .get(&source.types.text(old.name))
                .filter(|_| nameable)
            else {
                continue;
            };
            let text = types.add_text(new);
            let id = moved.id(number as u32 + 1);
            if let Some(one) = (id as usize)
                .checked_sub(1)
                .and_then(|i| types.types.get_mut(i))
            {
                one.name = text;
            }
        }
    }
}

/// New names for global symbols of the guest that the wrapper has, too, or that would become the edge's.
fn names_taken(wrapper: &Unit, guest: &Unit) -> BTreeMap<String, String> {
    let global = |unit: &Unit| -> BTreeSet<String> {
        let defined = unit
            .file
            .symbols
            .iter()
            .filter(|s| s.is_global() && s.section.is_some());
        defined.map(|s| s.name.clone()).collect()
    };
    let (ours, theirs) = (global(wrapper), global(guest));
    let taken = theirs
        .iter()
        .filter(|name| ours.contains(*name) || name.starts_with("weir_"));
    let fresh = |name: &String| {
        let mut new = format!("own_{name}");
        while ours.contains(&new) || theirs.contains(&new) {
            new.push('_');
        }
        (name.clone(), new)
    };
    taken.map(fresh).collect()
}

/// Sections of data that libbpf makes maps of, or reads.
fn is_data(name: &str) -> bool {
    let under = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    name == ".maps" || under(".data") || under(".rodata") || under(".bss")
}

/// The bytes of a function in its section.
fn range(unit: &Unit, symbol: usize) -> Result<std::ops::Range<u64>, ObjectError> {
    let symbol = &unit.file.symbols[symbol];
    let section = symbol.section.and_then(|i| unit.file.sections.get(i));
    let end = symbol.value.checked_add(symbol.size);
    let inside = section.zip(end).is_some_and(|(section, end)| {
        end <= section.data.len() as u64
            && symbol.size > 0
            && symbol.value.is_multiple_of(INSN)
            && symbol.size.is_multiple_of(INSN)
    });
    match end {
        Some(end) if inside => Ok(symbol.value..end),
        _ => Err(ObjectError::Malformed(format!(
            "function {} lies outside its section",
            symbol.name
        ))),
    }
}

impl Section {
    fn empty() -> Section {
        Section {
            name: String::new(),
            code: false,
            filled: true,
            flags: 0,
            align: 1,
            data: Vec::new(),
            relocations: Vec::new(),
        }
    }
}

impl Symbol {
    /// What stands for a section; without one, the symbol that every table begins with.
    fn section_of(index: Option<usize>) -> Symbol {
        Symbol {
            name: String::new(),
            section: index,
            value: 0,
            size: 0,
            bind: raw::STB_LOCAL,
            kind: if index.is_some() {
                raw::STT_SECTION
            } else {
                raw::STT_NOTYPE
            },
            visibility: raw::STV_DEFAULT,
        }
    }
}
