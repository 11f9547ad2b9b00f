//! The ELF side of an eBPF object: sections, symbols and relocations copied out of the file.
//!
//! Owns nothing but that; what a section means is decided in `object`. Input is hostile: every range is checked by
//! the reader, and sizes that need memory without file bytes (`.bss`) are bounded. Invariant: relocations are sorted
//! into the section they apply to, and symbol indices in them are valid.

use object::elf;
use object::read::elf::{FileHeader, Rel, Rela, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex};
use thiserror::Error;

use crate::maps::VALUE_SIZE_MAX;

/// Why a file is no eBPF object.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ElfError {
    /// Not ELF, or its tables are cut.
    #[error("not a readable ELF file: {0}")]
    Malformed(String),
    /// ELF for another machine.
    #[error("ELF machine {0} is not eBPF (247): compile with `clang -target bpf`")]
    Machine(u16),
    /// An object for a big-endian machine.
    #[error(
        "the object is big-endian and this engine little-endian: compile with `clang -target bpfel`"
    )]
    BigEndian,
    /// ELF with 32-bit headers.
    #[error("the object is 32-bit ELF, eBPF objects are 64-bit: compile with `clang -target bpf`")]
    Class,
    /// `.bss` or the like is larger than a map value can be.
    #[error("section {name} of {size} bytes exceeds {VALUE_SIZE_MAX} bytes")]
    TooLarge {
        /// Section.
        name: String,
        /// Its size.
        size: u64,
    },
    /// A relocation names a symbol that is not there.
    #[error(
        "section {section}: relocation at {offset:#x} names symbol {symbol}, which does not exist"
    )]
    Symbol {
        /// Section relocated.
        section: String,
        /// Offset in it.
        offset: u64,
        /// Symbol index.
        symbol: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    /// Contents; zeros for a section without file bytes.
    pub(crate) data: Vec<u8>,
    pub(crate) executable: bool,
    pub(crate) allocated: bool,
    pub(crate) relocations: Vec<Relocation>,
}

#[derive(Clone, Debug)]
pub(crate) struct Relocation {
    pub(crate) offset: u64,
    pub(crate) symbol: usize,
    pub(crate) addend: i64,
    /// Number of `R_BPF_*`.
    pub(crate) kind: u32,
}

/// Relocations that change nothing.
pub(crate) const R_BPF_NONE: u32 = 0;
/// A 16-byte load of an address.
pub(crate) const R_BPF_64_64: u32 = 1;
/// The immediate of a call.
pub(crate) const R_BPF_64_32: u32 = 10;

#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    /// Index into the sections; nothing for undefined and absolute symbols.
    pub(crate) section: Option<usize>,
    pub(crate) value: u64,
    pub(crate) size: u64,
    pub(crate) function: bool,
    pub(crate) global: bool,
    pub(crate) weak: bool,
    /// Stands for the section itself.
    pub(crate) is_section: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) sections: Vec<Section>,
    pub(crate) symbols: Vec<Symbol>,
}

impl File {
    pub(crate) fn section(&self, name: &str) -> Option<(usize, &Section)> {
        self.sections
            .iter()
            .enumerate()
            .find(|(_, s)| s.name == name)
    }
}

/// Reads a 64-bit little-endian eBPF object.
pub(crate) fn read(bytes: &[u8]) -> Result<File, ElfError> {
    check_identity(bytes)?;
    let header = elf::FileHeader64::<LittleEndian>::parse(bytes).map_err(malformed)?;
    let endian = LittleEndian;
    let machine = header.e_machine(endian);
    if machine != elf::EM_BPF {
        return Err(ElfError::Machine(machine));
    }
    let table = header.sections(endian, bytes).map_err(malformed)?;
    let mut sections = Vec::new();
    for header in table.iter() {
        let name = table.section_name(endian, header).map_err(malformed)?;
        let name = String::from_utf8_lossy(name).into_owned();
        let size = header.sh_size(endian);
        let flags = header.sh_flags(endian);
        let data = if header.sh_type(endian) == elf::SHT_NOBITS {
            if size > u64::from(VALUE_SIZE_MAX) {
                return Err(ElfError::TooLarge { name, size });
            }
            vec![0; size as usize]
        } else {
            header.data(endian, bytes).map_err(malformed)?.to_vec()
        };
        sections.push(Section {
            name,
            data,
            executable: flags & u64::from(elf::SHF_EXECINSTR) != 0,
            allocated: flags & u64::from(elf::SHF_ALLOC) != 0,
            relocations: Vec::new(),
        });
    }
    let table_symbols = table
        .symbols(endian, bytes, elf::SHT_SYMTAB)
        .map_err(malformed)?;
    let mut symbols: Vec<Symbol> = Vec::new();
    for symbol in table_symbols.iter() {
        let name = symbol
            .name(endian, table_symbols.strings())
            .map_err(malformed)?;
        let index = symbol.st_shndx(endian);
        let section = usize::from(index);
        let in_section = index != elf::SHN_UNDEF && section < sections.len();
        symbols.push(Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            section: in_section.then_some(section),
            value: symbol.st_value(endian),
            size: symbol.st_size(endian),
            function: symbol.st_type() == elf::STT_FUNC,
            global: symbol.st_bind() != elf::STB_LOCAL,
            weak: symbol.st_bind() == elf::STB_WEAK,
            is_section: symbol.st_type() == elf::STT_SECTION,
        });
    }
    name_untyped_functions(&sections, &mut symbols);
    for header in table.iter() {
        let target = SectionIndex(header.sh_info(endian) as usize);
        let mut found = Vec::new();
        if let Some((rels, _)) = header.rel(endian, bytes).map_err(malformed)? {
            found.extend(rels.iter().map(|r| Relocation {
                offset: r.r_offset(endian),
                symbol: r.r_sym(endian) as usize,
                addend: 0,
                kind: r.r_type(endian),
            }));
        }
        if let Some((relas, _)) = header.rela(endian, bytes).map_err(malformed)? {
            found.extend(relas.iter().map(|r| Relocation {
                offset: r.r_offset(endian),
                symbol: r.r_sym(endian, false) as usize,
                addend: r.r_addend(endian),
                kind: r.r_type(endian, false),
            }));
        }
        let Some(section) = sections.get_mut(target.0) else {
            continue;
        };
        if let Some(bad) = found.iter().find(|r| r.symbol >= symbols.len()) {
            return Err(ElfError::Symbol {
                section: section.name.clone(),
                offset: bad.offset,
                symbol: bad.symbol,
            });
        }
        section.relocations.append(&mut found);
    }
    Ok(File { sections, symbols })
}

/// Compilers before LLVM 6 gave functions no type: in a section of code without typed ones, global symbols are functions.
fn name_untyped_functions(sections: &[Section], symbols: &mut [Symbol]) {
    let typed: Vec<usize> = symbols
        .iter()
        .filter(|s| s.function)
        .filter_map(|s| s.section)
        .collect();
    for symbol in symbols.iter_mut() {
        let code = |index: &usize| {
            sections.get(*index).is_some_and(|s| s.executable) && !typed.contains(index)
        };
        if symbol.global && symbol.section.as_ref().is_some_and(code) {
            symbol.function = true;
        }
    }
}

/// Says plainly what is wrong with an ELF file of another kind, before its headers are read in this one's layout.
fn check_identity(bytes: &[u8]) -> Result<(), ElfError> {
    let Some([0x7f, b'E', b'L', b'F', class, data]) = bytes.first_chunk::<6>() else {
        return Ok(());
    };
    let machine = bytes.get(18..20).and_then(|b| b.first_chunk::<2>());
    match (*data, machine.copied()) {
        (elf::ELFDATA2MSB, Some(m)) if u16::from_be_bytes(m) == elf::EM_BPF => {
            return Err(ElfError::BigEndian);
        }
        (elf::ELFDATA2MSB, Some(m)) => return Err(ElfError::Machine(u16::from_be_bytes(m))),
        (_, Some(m)) if u16::from_le_bytes(m) != elf::EM_BPF => {
            return Err(ElfError::Machine(u16::from_le_bytes(m)));
        }
        _ => {}
    }
    if *class == elf::ELFCLASS32 {
        return Err(ElfError::Class);
    }
    Ok(())
}

fn malformed(error: object::read::Error) -> ElfError {
    ElfError::Malformed(error.to_string())
}
