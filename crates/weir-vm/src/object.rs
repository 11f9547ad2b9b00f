//! An eBPF object as compiled: programs, maps, constants that may still be set.
//!
//! Owns what can be said before anything is created; map definitions are read in `definitions`, linking is in `link`, running in
//! `machine`. Relocations inside data sections are not applied, as in libbpf, nor are those of type information, which
//! the compiler has applied already.
//! Invariant: every map definition names a variable of a map section or a data section.

use std::sync::Arc;

use thiserror::Error;

use crate::btf::{Btf, BtfError};
use crate::btf_ext::BtfExt;
use crate::catalogue;
use crate::core_relocation::CoreError;
use crate::definitions::{self, Declared, DeclaredMap, InitialMap, MapSource, UnusableMap};
use crate::elf::{self, ElfError, File};
use crate::insn::DecodeError;
use crate::link::{self, Part};
use crate::machine::Machine;
use crate::maps::{MapDefinition, MapDefinitionError};
use crate::program::ProgramKind;

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
    /// Maps in `.maps` without BTF.
    #[error("maps in section .maps need type information: compile with `clang -g`")]
    MapsWithoutBtf,
    /// A definition in the retired `maps` section that cannot be read.
    #[error("map {map}: {reason}; declare it with SEC(\".maps\") instead")]
    LegacyMap {
        /// Map.
        map: String,
        /// What is wrong.
        reason: String,
    },
    /// A value with a member only the kernel gives a meaning.
    #[error("map {map}: member {member} is a struct {kind}, which the user engine does not have")]
    KernelObject {
        /// Map.
        map: String,
        /// Member of the value.
        member: String,
        /// Its type.
        kind: String,
    },
    /// A program of a kind this engine does not run.
    #[error("program {program} is in section {section}, which is not XDP; {}", if can_run.is_empty() { "the object has no XDP program".to_owned() } else { format!("these can run: {can_run}") })]
    NotRunnable {
        /// Program asked for.
        program: String,
        /// Its section.
        section: String,
        /// Programs that can run.
        can_run: String,
    },
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
    /// All maps together are larger than the addresses of a machine.
    #[error("the maps need {0} bytes, more than 256 GiB; set fewer entries before loading")]
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
    /// A CO-RE relocation that cannot be applied.
    #[error("section {section}, instruction {pc}: CO-RE: {error}")]
    Core {
        /// Section.
        section: String,
        /// Slot from its start.
        pc: usize,
        /// What is wrong.
        error: CoreError,
    },
    /// One of several objects that were to be joined.
    #[error("{part}: {error}")]
    Part {
        /// Name of the part.
        part: String,
        /// What is wrong with it.
        error: Box<LoadError>,
    },
    /// Maps that are to be one differ.
    #[error(
        "shared map {map}: {first}, but {part} declares {second}; give both the same definition or do not share it"
    )]
    Shared {
        /// The shared name.
        map: String,
        /// Definition of the part that was first to declare it.
        first: String,
        /// Part whose definition differs.
        part: String,
        /// That definition.
        second: String,
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
    pub(crate) btf: Option<Arc<Btf>>,
    pub(crate) ext: BtfExt,
    pub(crate) programs: Vec<ProgramSymbol>,
    pub(crate) maps: Vec<DeclaredMap>,
    /// Elements the object itself gives its maps of maps, beside those of `.maps`.
    pub(crate) initial: Vec<InitialMap>,
    /// Maps that this engine cannot have; they spoil the programs that use them.
    pub(crate) unusable: Vec<UnusableMap>,
    pub(crate) cpus: u32,
    /// Types CO-RE relocations are resolved against.
    pub(crate) target: Option<Arc<Btf>>,
}

/// A global variable of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Type in the object's BTF.
    pub type_id: u32,
    /// Offset in its section in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct ProgramSymbol {
    pub(crate) name: String,
    pub(crate) section: usize,
    /// First slot in the section.
    pub(crate) slot: usize,
    pub(crate) kind: ProgramKind,
}

impl Object {
    /// Parses an eBPF object file.
    ///
    /// # Errors
    /// [`LoadError`] for anything that is not a well-formed 64-bit little-endian eBPF object.
    pub fn parse(elf: &[u8]) -> Result<Object, LoadError> {
        Object::parse_with(elf, definitions::declared_maps)
    }

    /// The same without the maps it defines, which may be such as this engine does not have: its programs and its data.
    ///
    /// # Errors
    /// As [`Object::parse`].
    pub fn parse_without_maps(elf: &[u8]) -> Result<Object, LoadError> {
        Object::parse_with(elf, |file, btf| {
            Ok(Declared {
                maps: definitions::data_maps(file, btf).collect(),
                ..Declared::default()
            })
        })
    }

    fn parse_with(
        elf: &[u8],
        maps: impl FnOnce(&File, Option<&Btf>) -> Result<Declared, LoadError>,
    ) -> Result<Object, LoadError> {
        let file = elf::read(elf)?;
        let btf = match file.section(".BTF") {
            Some((_, section)) => Some(Arc::new(Btf::parse(&section.data)?)),
            None => None,
        };
        let ext = match (file.section(".BTF.ext"), &btf) {
            (Some((_, section)), Some(btf)) => BtfExt::parse(&section.data, btf)?,
            _ => BtfExt::default(),
        };
        let programs = programs(&file);
        let declared = maps(&file, btf.as_deref())?;
        Ok(Object {
            file,
            btf,
            ext,
            programs,
            maps: declared.maps,
            initial: declared.initial,
            unusable: declared.unusable,
            cpus: 1,
            target: None,
        })
    }

    /// Names of the programs: global functions outside `.text`, also those this engine does not run.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.programs.iter().map(|p| p.name.as_str())
    }

    /// Names of the programs this engine runs.
    pub fn runnable_programs(&self) -> impl Iterator<Item = &str> {
        let runnable = self.programs.iter().filter(|p| p.kind.is_runnable());
        runnable.map(|p| p.name.as_str())
    }

    /// What kind of program it is, as its section says.
    pub fn program_kind(&self, program: &str) -> Option<&ProgramKind> {
        let program = self.programs.iter().find(|p| p.name == program)?;
        Some(&program.kind)
    }

    /// Declares what kind of program it is, whatever its section says.
    ///
    /// # Errors
    /// [`LoadError::NoProgram`].
    pub fn set_program_kind(&mut self, program: &str, kind: ProgramKind) -> Result<(), LoadError> {
        let missing = self.no_program(program);
        let found = self.programs.iter_mut().find(|p| p.name == program);
        found.ok_or(missing)?.kind = kind;
        Ok(())
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

    /// Maps that this engine cannot have, and why: programs that use them are rejected, others are not affected.
    pub fn unusable_maps(&self) -> impl Iterator<Item = (&str, &LoadError)> {
        self.unusable.iter().map(|m| (m.name.as_str(), &m.error))
    }

    /// Definition of a map.
    pub fn map_definition(&self, map: &str) -> Option<&MapDefinition> {
        self.maps
            .iter()
            .map(|m| &m.definition)
            .find(|d| d.name == map)
    }

    /// The variables of a data section, by offset; empty without type information.
    pub fn variables(&self, section: &str) -> Vec<Variable> {
        let declared = self.btf().and_then(|b| b.section(section));
        let index = self.file.section(section).map(|(index, _)| index);
        let mut found = Vec::new();
        for (name, type_id, _, size) in declared.unwrap_or_default() {
            // The compiler leaves offsets to the loader: the symbol has the real one.
            let mut symbols = self.file.symbols.iter();
            let symbol = symbols.find(|s| s.section == index && s.name == name);
            if let Some(offset) = symbol.and_then(|s| u32::try_from(s.value).ok()) {
                found.push(Variable {
                    name,
                    type_id,
                    offset,
                    size,
                });
            }
        }
        found.sort_by_key(|v| v.offset);
        found
    }

    /// The type information, if the object has it.
    pub fn btf(&self) -> Option<&Btf> {
        self.btf.as_deref()
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

    /// Whether accesses depend on the types of the kernel the program will run in (CO-RE), or calls of its functions do.
    pub fn is_relocatable(&self) -> bool {
        let mut symbols = self.file.symbols.iter();
        !self.ext.relocations.is_empty()
            || symbols.any(|s| {
                s.section.is_none() && catalogue::kernel_function_number(&s.name).is_some()
            })
    }

    /// Resolves CO-RE relocations against these types when loading, as libbpf does against those of the running kernel ([`Btf::of_running_kernel`]).
    /// Without this call accesses keep the layout they were compiled with, on every machine.
    pub fn relocate_against(&mut self, target: Arc<Btf>) {
        self.target = Some(target);
    }

    /// Creates the maps, links the code and makes `program` the one that runs.
    ///
    /// Every program of the object that this engine runs is linked, so that tail calls can reach it. An operand nobody can supply (a
    /// kernel function) is a fault by its name when executed, not an error here; weak ones are zero. So is an instruction that is not
    /// understood, or whose relocation or map is not: the programs that have it are rejected, the others are not affected.
    ///
    /// # Errors
    /// [`LoadError`] when sections or map definitions do not fit, [`LoadError::NotRunnable`] for a program that is
    /// neither XDP nor tc.
    pub fn load(self, program: &str) -> Result<Machine, LoadError> {
        link::link(&[Part::whole(&self)], 0, program)
    }

    pub(crate) fn no_program(&self, name: &str) -> LoadError {
        LoadError::NoProgram {
            name: name.to_owned(),
            known: self.programs().collect::<Vec<_>>().join(", "),
        }
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
        let section = file.sections.get(index).filter(|s| s.executable);
        let Some(section) = section.filter(|s| s.name != ".text") else {
            continue;
        };
        if symbol.function && symbol.global && symbol.value.is_multiple_of(8) {
            found.push(ProgramSymbol {
                name: symbol.name.clone(),
                section: index,
                slot: (symbol.value / 8) as usize,
                kind: ProgramKind::of_section(&section.name),
            });
        }
    }
    found
}
