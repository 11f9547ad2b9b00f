//! Relocatable eBPF files as sections, symbols and relocations, read and written.
//!
//! Owns the file format; what sections mean is decided in `join`. Input is hostile: ranges are checked by the reader, sizes that
//! need memory without file bytes are bounded. Invariant: a written file has its local symbols in front of the global ones, as
//! ELF wants it, and relocations name symbols that are in it.

use object::elf;
use object::read::elf::{FileHeader, Rel, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex};

use crate::ObjectError;

/// Most bytes in sections without file bytes (`.bss`): what a map value may have, and more than any program needs.
const EMPTY_MAX: u64 = 1 << 28;
/// A 16-byte load of an address.
pub(crate) const R_BPF_64_64: u32 = 1;
/// The immediate of a call.
pub(crate) const R_BPF_64_32: u32 = 10;

/// A section that is loaded, or describes such.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) code: bool,
    /// Whether the file has its bytes.
    pub(crate) filled: bool,
    pub(crate) flags: u64,
    pub(crate) align: u64,
    pub(crate) data: Vec<u8>,
    pub(crate) relocations: Vec<Relocation>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    pub(crate) offset: u64,
    pub(crate) symbol: usize,
    pub(crate) kind: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    /// `None`: undefined or absolute.
    pub(crate) section: Option<usize>,
    pub(crate) value: u64,
    pub(crate) size: u64,
    /// `STB_*`.
    pub(crate) bind: u8,
    /// `STT_*`.
    pub(crate) kind: u8,
    /// `STV_*`.
    pub(crate) visibility: u8,
}

impl Symbol {
    pub(crate) fn is_function(&self) -> bool {
        self.kind == elf::STT_FUNC
    }

    pub(crate) fn is_global(&self) -> bool {
        self.bind != elf::STB_LOCAL
    }

    pub(crate) fn is_section(&self) -> bool {
        self.kind == elf::STT_SECTION
    }
}

/// A file in parts. Indices are those of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) sections: Vec<Section>,
    pub(crate) symbols: Vec<Symbol>,
}

impl File {
    pub(crate) fn section(&self, name: &str) -> Option<(usize, &Section)> {
        let mut all = self.sections.iter().enumerate();
        all.find(|(_, s)| s.name == name)
    }
}

/// Reads a 64-bit little-endian file.
pub(crate) fn read(bytes: &[u8]) -> Result<File, ObjectError> {
    let malformed = |e: object::read::Error| ObjectError::Malformed(e.to_string());
    let header = elf::FileHeader64::<LittleEndian>::parse(bytes).map_err(malformed)?;
    let endian = LittleEndian;
    let table = header.sections(endian, bytes).map_err(malformed)?;
    let mut file = File::default();
    let mut empty = 0;
    for header in table.iter() {
        let name = table.section_name(endian, header).map_err(malformed)?;
        let name = String::from_utf8_lossy(name).into_owned();
        let filled = header.sh_type(endian) != elf::SHT_NOBITS;
        let size = header.sh_size(endian);
        let data = match filled {
            true => header.data(endian, bytes).map_err(malformed)?.to_vec(),
            false => {
                empty = size.saturating_add(empty);
                if empty > EMPTY_MAX {
                    return Err(ObjectError::Malformed(format!(
                        "section {name} of {size} bytes is larger than any map value"
                    )));
                }
                vec![0; size as usize]
            }
        };
        let flags = header.sh_flags(endian);
        file.sections.push(Section {
            name,
            code: flags & u64::from(elf::SHF_EXECINSTR) != 0,
            filled,
            flags,
            align: header.sh_addralign(endian).clamp(1, 4096),
            data,
            relocations: Vec::new(),
        });
    }
    let symbols = table
        .symbols(endian, bytes, elf::SHT_SYMTAB)
        .map_err(malformed)?;
    for symbol in symbols.iter() {
        let name = symbol.name(endian, symbols.strings()).map_err(malformed)?;
        let index = symbol.st_shndx(endian);
        let section = usize::from(index);
        let inside = index != elf::SHN_UNDEF && section < file.sections.len();
        file.symbols.push(Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            section: inside.then_some(section),
            value: symbol.st_value(endian),
            size: symbol.st_size(endian),
            bind: symbol.st_bind(),
            kind: symbol.st_type(),
            visibility: symbol.st_visibility(),
        });
    }
    for header in table.iter() {
        let target = SectionIndex(header.sh_info(endian) as usize);
        let rela = header.rela(endian, bytes).map_err(malformed)?;
        let Some(section) = file.sections.get_mut(target.0) else {
            continue;
        };
        if rela.is_some() && section.flags & u64::from(elf::SHF_ALLOC) != 0 {
            return Err(ObjectError::Malformed(format!(
                "section {} has relocations with addends (RELA), which no eBPF compiler writes",
                section.name
            )));
        }
        let Some((relocations, _)) = header.rel(endian, bytes).map_err(malformed)? else {
            continue;
        };
        for relocation in relocations {
            let symbol = relocation.r_sym(endian) as usize;
            if symbol >= file.symbols.len() {
                return Err(ObjectError::Malformed(format!(
                    "section {}: a relocation names symbol {symbol}, which does not exist",
                    section.name
                )));
            }
            section.relocations.push(Relocation {
                offset: relocation.r_offset(endian),
                symbol,
                kind: relocation.r_type(endian),
            });
        }
    }
    Ok(file)
}

/// Strings one behind the other, each with its NUL.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        at
    }
}

/// Bytes of the file header.
const FILE_HEADER: usize = 64;
/// Bytes of a section header.
const SECTION_HEADER: usize = 64;

/// Writes a file. Section 0 and symbol 0 are the empty ones that ELF wants and must be there.
pub(crate) fn write(file: &File) -> Vec<u8> {
    let mut strings = Strings(vec![0]);
    // Local symbols first, the order otherwise kept.
    let mut order: Vec<usize> = (0..file.symbols.len()).collect();
    order.sort_by_key(|i| file.symbols[*i].is_global());
    let mut number = vec![0u32; file.symbols.len()];
    for (new, old) in order.iter().enumerate() {
        number[*old] = new as u32;
    }
    let locals = file.symbols.iter().filter(|s| !s.is_global()).count();
    let mut table = Vec::new();
    for symbol in order.iter().map(|i| &file.symbols[*i]) {
        let name = match symbol.name.as_str() {
            "" => 0,
            name => strings.add(name),
        };
        table.extend_from_slice(&name.to_le_bytes());
        table.push(symbol.bind << 4 | symbol.kind);
        table.push(symbol.visibility);
        table.extend_from_slice(&(symbol.section.unwrap_or(0) as u16).to_le_bytes());
        table.extend_from_slice(&symbol.value.to_le_bytes());
        table.extend_from_slice(&symbol.size.to_le_bytes());
    }

    let mut bytes = vec![0u8; FILE_HEADER];
    let mut headers: Vec<u8> = vec![0; SECTION_HEADER];
    let mut put = |bytes: &mut Vec<u8>, h: Header, data: &[u8]| {
        bytes.resize(bytes.len().next_multiple_of(h.align.max(1) as usize), 0);
        headers.extend_from_slice(&h.name.to_le_bytes());
        headers.extend_from_slice(&h.kind.to_le_bytes());
        headers.extend_from_slice(&h.flags.to_le_bytes());
        headers.extend_from_slice(&0u64.to_le_bytes());
        headers.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        headers.extend_from_slice(&(data.len() as u64).to_le_bytes());
        headers.extend_from_slice(&h.link.to_le_bytes());
        headers.extend_from_slice(&h.info.to_le_bytes());
        headers.extend_from_slice(&h.align.to_le_bytes());
        headers.extend_from_slice(&h.entry.to_le_bytes());
        if h.kind != elf::SHT_NOBITS {
            bytes.extend_from_slice(data);
        }
    };
    for section in file.sections.iter().skip(1) {
        let kind = match section.filled {
            true => elf::SHT_PROGBITS,
            false => elf::SHT_NOBITS,
        };
        let header = Header {
            name: strings.add(&section.name),
            kind,
            flags: section.flags,
            align: section.align,
            ..Header::default()
        };
        put(&mut bytes, header, &section.data);
    }
    let related: Vec<usize> = (1..file.sections.len())
        .filter(|i| !file.sections[*i].relocations.is_empty())
        .collect();
    let symtab = file.sections.len() + related.len();
    for index in related {
        let section = &file.sections[index];
        let data: Vec<u8> = section
            .relocations
            .iter()
            .flat_map(|r| {
                let info = u64::from(number[r.symbol]) << 32 | u64::from(r.kind);
                [r.offset.to_le_bytes(), info.to_le_bytes()].concat()
            })
            .collect();
        let header = Header {
            name: strings.add(&format!(".rel{}", section.name)),
            kind: elf::SHT_REL,
            flags: u64::from(elf::SHF_INFO_LINK),
            align: 8,
            link: symtab as u32,
            info: index as u32,
            entry: 16,
        };
        put(&mut bytes, header, &data);
    }
    let header = Header {
        name: strings.add(".symtab"),
        kind: elf::SHT_SYMTAB,
        align: 8,
        link: symtab as u32 + 1,
        info: locals as u32,
        entry: 24,
        ..Header::default()
    };
    put(&mut bytes, header, &table);
    let header = Header {
        name: strings.add(".strtab"),
        kind: elf::SHT_STRTAB,
        align: 1,
        ..Header::default()
    };
    put(&mut bytes, header, &strings.0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let start = bytes.len() as u64;
    let count = (headers.len() / SECTION_HEADER) as u16;
    bytes.extend_from_slice(&headers);
    bytes[..FILE_HEADER].copy_from_slice(&file_header(start, count));
    bytes
}

/// What differs between section headers; `sh_addr` is 0 in all of them.
#[derive(Default)]
struct Header {
    name: u32,
    kind: u32,
    flags: u64,
    align: u64,
    link: u32,
    info: u32,
    entry: u64,
}

/// The header of a relocatable eBPF file whose strings are in its last section.
fn file_header(sections_at: u64, sections: u16) -> [u8; FILE_HEADER] {
    let mut header = [0u8; FILE_HEADER];
    header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', elf::ELFCLASS64, elf::ELFDATA2LSB, 1]);
    header[16..18].copy_from_slice(&elf::ET_REL.to_le_bytes());
    header[18..20].copy_from_slice(&elf::EM_BPF.to_le_bytes());
    header[20..24].copy_from_slice(&1u32.to_le_bytes());
    header[40..48].copy_from_slice(&sections_at.to_le_bytes());
    header[52..54].copy_from_slice(&(FILE_HEADER as u16).to_le_bytes());
    header[58..60].copy_from_slice(&(SECTION_HEADER as u16).to_le_bytes());
    header[60..62].copy_from_slice(&sections.to_le_bytes());
    header[62..64].copy_from_slice(&(sections - 1).to_le_bytes());
    header
}
