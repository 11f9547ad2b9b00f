//! Programs that an object's own maps name: what its tail calls reach, and what therefore has to be loaded with any of its programs.
//!
//! libbpf fills program arrays from the definitions in the object, but says nobody which programs that takes; the relocations of `.maps` do.
//! A file that cannot be read has none: libbpf has the last word on it.

use std::collections::BTreeSet;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex};

/// Names of the functions that elements of the object's maps refer to.
pub(crate) fn named_by_maps(bytes: &[u8]) -> BTreeSet<String> {
    read(bytes).unwrap_or_default()
}

fn read(bytes: &[u8]) -> object::read::Result<BTreeSet<String>> {
    let endian = LittleEndian;
    let header = elf::FileHeader64::<LittleEndian>::parse(bytes)?;
    let sections = header.sections(endian, bytes)?;
    let symbols = sections.symbols(endian, bytes, elf::SHT_SYMTAB)?;
    let mut found = BTreeSet::new();
    for section in sections.iter() {
        let Some((relocations, _)) = section.rel(endian, bytes)? else {
            continue;
        };
        let target = SectionIndex(section.sh_info(endian) as usize);
        let target = sections.section(target)?;
        if sections.section_name(endian, target)? != b".maps" {
            continue;
        }
        for relocation in relocations {
            let symbol = symbols.symbol(object::SymbolIndex(relocation.r_sym(endian) as usize))?;
            if symbol.st_type() == elf::STT_FUNC {
                let name = symbol.name(endian, symbols.strings())?;
                found.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Ok(found)
}
