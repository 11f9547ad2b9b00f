//! An eBPF object as compiled: programs, maps from BTF, constants that may still be set.
//!
//! Owns what can be said before anything is created; linking is in `link`, running in `machine`. CO-RE relocations
//! are not applied: a user engine has no kernel types, so accesses keep the layout they were compiled with. Relocations
//! inside data sections are not applied either, as in libbpf.
//! Invariant: every map definition names a variable of `.maps` or a data section.

use thiserror::Error;

use crate::btf::{Btf, BtfError, Shape};
use crate::elf::{self, ElfError, File};
use crate::insn::DecodeError;
use crate::link;
use crate::machine::Machine;
use crate::maps::{BPF_F_RDONLY_PROG, MapDefinition, MapDefinitionError, MapKind};

/// Why an object cannot be loaded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    /// The file itself.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// Its type information.
    #[error("type information: {0}")]
    Btf(#[from] BtfError),
    /// Its code.
    #[error("section {section}: {error}")]
    Code {
        /// Section.
        section: String,
        /// What is wrong.
        error: DecodeError,
    },
    /// A map cannot be created.
    #[error(transparent)]
    Map(#[from] MapDefinitionError),
    /// Maps without BTF, or in the retired `maps` section.
    #[error(
        "maps need BTF definitions in section .maps: compile with `clang -g` and declare them with SEC(\".maps\")"
    )]
    MapsWithoutBtf,
    /// A member of a map definition that is not understood.
    #[error("map {map}: cannot read member {member} of its definition")]
    MapMember {
        /// Map.
        map: String,
        /// Member.
        member: String,
    },
    /// A kind this engine does not have.
    #[error("map {map}: map type {number} is not available in the user engine")]
    MapType {
        /// Map.
        map: String,
        /// Linux's number of the type.
        number: u32,
    },
    /// More maps than addresses have room for.
    #[error("more than 4096 maps")]
    TooManyMaps,
    /// All maps together need too much memory.
    #[error("the maps need {0} bytes, more than 2 GiB; set fewer entries before loading")]
    Memory(u64),
    /// No such program.
    #[error("no program {name:?}; the object has {known}")]
    NoProgram {
        /// Name asked for.
        name: String,
        /// Names there are.
        known: String,
    },
    /// No such map.
    #[error("no map {name:?}; the object has {known}")]
    NoMap {
        /// Name asked for.
        name: String,
        /// Names there are.
        known: String,
    },
    /// No such constant.
    #[error("no constant {0:?} in .rodata: declare it `const volatile` and use it")]
    NoConstant(String),
    /// A constant of another size.
    #[error("constant {name} has {expected} bytes, the value {got}")]
    ConstantSize {
        /// Constant.
        name: String,
        /// Its size.
        expected: u64,
        /// Size of the value.
        got: usize,
    },
    /// A relocation this engine cannot apply.
    #[error("section {section}: relocation at {offset:#x} against {symbol}: {reason}")]
    Relocation {
        /// Section.
        section: String,
        /// Offset in it.
        offset: u64,
        /// Symbol.
        symbol: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A reference between maps or to a program that does not fit.
    #[error("map {map}: {reason}")]
    Reference {
        /// Map.
        map: String,
        /// What is wrong.
        reason: String,
    },
}

/// A parsed object; nothing is created yet.
#[derive(Clone, Debug)]
pub struct Object {
    pub(crate) file: File,
    btf: Option<Btf>,
    pub(crate) programs: Vec<ProgramSymbol>,
    pub(crate) maps: Vec<DeclaredMap>,
    pub(crate) cpus: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct ProgramSymbol {
    pub(crate) name: String,
    pub(crate) section: usize,
    /// First slot in the section.
    pub(crate) slot: usize,
}

/// A map of the object and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredMap {
    pub(crate) definition: MapDefinition,
    pub(crate) source: MapSource,
}

#[derive(Clone, Debug)]
pub(crate) enum MapSource {
    /// A variable of `.maps` at this offset; initial references start at `values` bytes into it.
    Variable {
        offset: u64,
        size: u64,
        values: Option<u32>,
    },
    /// A data section.
    Section(usize),
}

impl Object {
    /// Parses an eBPF object file.
    ///
    /// # Errors
    /// [`LoadError`] for anything that is not a well-formed 64-bit little-endian eBPF object with BTF-defined maps.
    pub fn parse(elf: &[u8]) -> Result<Object, LoadError> {
        let file = elf::read(elf)?;
        let btf = match file.section(".BTF") {
            Some((_, section)) => Some(Btf::parse(&section.data)?),
            None => None,
        };
        if file.section("maps").is_some() {
            return Err(LoadError::MapsWithoutBtf);
        }
        let programs = programs(&file);
        let mut maps = declared_maps(&file, btf.as_ref())?;
        maps.extend(data_maps(&file));
        Ok(Object {
            file,
            btf,
            programs,
            maps,
            cpus: 1,
        })
    }

    /// Names of the programs: global functions outside `.text`.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.programs.iter().map(|p| p.name.as_str())
    }

    /// Section of a program, such as `xdp`.
    pub fn program_section(&self, program: &str) -> Option<&str> {
        let program = self.programs.iter().find(|p| p.name == program)?;
        self.file
            .sections
            .get(program.section)
            .map(|s| s.name.as_str())
    }

    /// Names of the maps; data sections appear under their section's name.
    pub fn map_names(&self) -> impl Iterator<Item = &str> {
        self.maps.iter().map(|m| m.definition.name.as_str())
    }

    /// Definition of a map.
    pub fn map_definition(&self, map: &str) -> Option<&MapDefinition> {
        self.maps
            .iter()
            .map(|m| &m.definition)
            .find(|d| d.name == map)
    }

    /// The type information, if the object has it.
    pub fn btf(&self) -> Option<&Btf> {
        self.btf.as_ref()
    }

    /// Sets a `const volatile` global before loading.
    ///
    /// # Errors
    /// [`LoadError::NoConstant`] when no read-only section has such a symbol, [`LoadError::ConstantSize`] for another size.
    pub fn set_rodata(&mut self, symbol: &str, value: &[u8]) -> Result<(), LoadError> {
        let found = self.file.symbols.iter().find(|s| {
            let section = s.section.and_then(|i| self.file.sections.get(i));
            s.name == symbol && section.is_some_and(|s| s.name.starts_with(".rodata"))
        });
        let missing = || LoadError::NoConstant(symbol.to_owned());
        let found = found.ok_or_else(missing)?;
        if found.size != value.len() as u64 {
            return Err(LoadError::ConstantSize {
                name: symbol.to_owned(),
                expected: found.size,
                got: value.len(),
            });
        }
        let start = usize::try_from(found.value).map_err(|_| missing())?;
        let section = found.section;
        let end = start.checked_add(value.len()).ok_or_else(missing)?;
        section
            .and_then(|i| self.file.sections.get_mut(i))
            .and_then(|s| s.data.get_mut(start..end))
            .ok_or_else(missing)?
            .copy_from_slice(value);
        Ok(())
    }

    /// Sets the number of entries of a map before loading (bytes for a ring buffer).
    ///
    /// # Errors
    /// [`LoadError::NoMap`] when there is none; a bad number shows when loading.
    pub fn set_map_entries(&mut self, map: &str, max_entries: u32) -> Result<(), LoadError> {
        let found = self
            .maps
            .iter_mut()
            .find(|m| m.definition.name == map && matches!(m.source, MapSource::Variable { .. }));
        match found {
            Some(m) => {
                m.definition.max_entries = max_entries;
                Ok(())
            }
            None => Err(self.no_map(map)),
        }
    }

    /// Sets the number of CPUs per-CPU maps have values for; 1 unless set, at least 1.
    pub fn set_cpus(&mut self, cpus: u32) {
        self.cpus = cpus.max(1);
    }

    /// Creates the maps, links the code and makes `program` the one that runs.
    ///
    /// Every program of the object is linked, so that tail calls can reach it. An operand nobody can supply (a kernel
    /// function) is a fault when executed, not an error here.
    ///
    /// # Errors
    /// [`LoadError`] when code, relocations or map definitions do not fit.
    pub fn load(self, program: &str) -> Result<Machine, LoadError> {
        link::link(&self, program)
    }

    pub(crate) fn no_map(&self, name: &str) -> LoadError {
        LoadError::NoMap {
            name: name.to_owned(),
            known: self.map_names().collect::<Vec<_>>().join(", "),
        }
    }
}

fn programs(file: &File) -> Vec<ProgramSymbol> {
    let mut found = Vec::new();
    for symbol in &file.symbols {
        let Some(index) = symbol.section else {
            continue;
        };
        let program = file
            .sections
            .get(index)
            .is_some_and(|s| s.executable && s.name != ".text");
        if program && symbol.function && symbol.global && symbol.value.is_multiple_of(8) {
            found.push(ProgramSymbol {
                name: symbol.name.clone(),
                section: index,
                slot: (symbol.value / 8) as usize,
            });
        }
    }
    found
}

fn data_maps(file: &File) -> impl Iterator<Item = DeclaredMap> + '_ {
    let data = |name: &str| {
        [".rodata", ".data", ".bss"]
            .iter()
            .any(|p| name == *p || name.strip_prefix(p).is_some_and(|r| r.starts_with('.')))
    };
    file.sections
        .iter()
        .enumerate()
        .filter(move |(_, s)| s.allocated && !s.data.is_empty() && data(&s.name))
        .map(|(index, s)| DeclaredMap {
            definition: MapDefinition {
                name: s.name.clone(),
                kind: MapKind::Array,
                key_size: 4,
                value_size: u32::try_from(s.data.len()).unwrap_or(u32::MAX),
                max_entries: 1,
                flags: if s.name.starts_with(".rodata") {
                    BPF_F_RDONLY_PROG
                } else {
                    0
                },
                has_spin_lock: false,
                inner: None,
            },
            source: MapSource::Section(index),
        })
}

fn declared_maps(file: &File, btf: Option<&Btf>) -> Result<Vec<DeclaredMap>, LoadError> {
    let Some((maps_section, _)) = file.section(".maps") else {
        return Ok(Vec::new());
    };
    let btf = btf.ok_or(LoadError::MapsWithoutBtf)?;
    let variables = btf.section(".maps").ok_or(LoadError::MapsWithoutBtf)?;
    let mut maps = Vec::new();
    for (name, id, _, size) in variables {
        // The offsets in BTF are left to the loader: the symbol has the real one.
        let symbol = file
            .symbols
            .iter()
            .find(|s| s.section == Some(maps_section) && s.name == name)
            .ok_or(LoadError::MapsWithoutBtf)?;
        let (definition, values) = definition(btf, &name, id, true)?;
        maps.push(DeclaredMap {
            definition,
            source: MapSource::Variable {
                offset: symbol.value,
                size: u64::from(size).max(symbol.size),
                values,
            },
        });
    }
    Ok(maps)
}

/// Reads a map's definition from the struct type `id`; also the offset of its `values` member.
fn definition(
    btf: &Btf,
    name: &str,
    id: u32,
    outer: bool,
) -> Result<(MapDefinition, Option<u32>), LoadError> {
    let mut number = 0;
    let mut definition = MapDefinition {
        name: name.to_owned(),
        kind: MapKind::Array,
        key_size: 0,
        value_size: 0,
        max_entries: 0,
        flags: 0,
        has_spin_lock: false,
        inner: None,
    };
    let mut values = None;
    for member in btf.members(id)? {
        let bad = |_| LoadError::MapMember {
            map: name.to_owned(),
            member: member.name.clone(),
        };
        // __uint(name, n) declares `int (*name)[n]`.
        let count = || -> Result<u32, BtfError> { Ok(btf.array(btf.pointee(member.type_id)?)?.1) };
        match member.name.as_str() {
            "type" => number = count().map_err(bad)?,
            "key_size" => definition.key_size = count().map_err(bad)?,
            "value_size" => definition.value_size = count().map_err(bad)?,
            "max_entries" => definition.max_entries = count().map_err(bad)?,
            "map_flags" => definition.flags = count().map_err(bad)?,
            // They say nothing about what a map does: placement, pinning path, hash functions of a Bloom filter.
            "numa_node" | "pinning" | "map_extra" => {}
            "key" => {
                let key = btf.pointee(member.type_id).map_err(bad)?;
                definition.key_size = btf.size_of(key).map_err(bad)?;
            }
            "value" => {
                let value = btf.pointee(member.type_id).map_err(bad)?;
                definition.value_size = btf.size_of(value).map_err(bad)?;
                definition.has_spin_lock = has_spin_lock(btf, value);
            }
            "values" if outer => {
                values = Some(member.bit_offset / 8);
                let (element, _) = btf.array(member.type_id).map_err(bad)?;
                let inner = btf
                    .pointee(element)
                    .and_then(|t| btf.resolve(t))
                    .map_err(bad)?;
                if matches!(btf.shape(inner), Ok(Shape::Struct { .. })) {
                    let inner_name = format!("{name}.inner");
                    let (inner, _) = self::definition(btf, &inner_name, inner, false)?;
                    definition.inner = Some(Box::new(inner));
                }
            }
            _ => {
                return Err(LoadError::MapMember {
                    map: name.to_owned(),
                    member: member.name.clone(),
                });
            }
        }
    }
    definition.kind = MapKind::from_number(number).ok_or_else(|| LoadError::MapType {
        map: name.to_owned(),
        number,
    })?;
    adjust(&mut definition);
    Ok((definition, values))
}

/// Fills in what libbpf does.
fn adjust(d: &mut MapDefinition) {
    match d.kind {
        MapKind::ArrayOfMaps | MapKind::HashOfMaps | MapKind::ProgArray if d.value_size == 0 => {
            d.value_size = 4;
        }
        MapKind::PerfEventArray if d.max_entries == 0 => d.max_entries = 1,
        MapKind::RingBuf => {
            let pages = d.max_entries.max(4096).checked_next_power_of_two();
            d.max_entries = pages.unwrap_or(d.max_entries);
        }
        _ => {}
    }
}

fn has_spin_lock(btf: &Btf, value: u32) -> bool {
    btf.members(value).is_ok_and(|members| {
        members.iter().any(|m| {
            btf.resolve(m.type_id)
                .is_ok_and(|id| btf.name(id) == "bpf_spin_lock")
        })
    })
}
