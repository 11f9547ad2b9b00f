//! Maps that an object declares in `.maps`, as its type information (BTF) has them, before libbpf reads them.
//!
//! Owns the one check that libbpf leaves out: for a map of type `struct_ops` outside of `.struct_ops` it follows a null pointer.
//! Safe code over bytes; BTF that cannot be read declares nothing, and libbpf refuses it.

use std::collections::HashMap;

use object::read::elf::{FileHeader, SectionHeader};
use object::{LittleEndian, elf};

const MAGIC: u16 = 0xeb9f;
/// `BPF_MAP_TYPE_STRUCT_OPS`.
const STRUCT_OPS: u32 = 26;
/// Typedefs and qualifiers around a type: more means hostile input.
const WRAPPED_MAX: usize = 32;

const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const VAR: u32 = 14;
const DATASEC: u32 = 15;

/// Name of the first map in `.maps` whose type is `struct_ops`.
pub(crate) fn struct_ops_map(bytes: &[u8]) -> Option<String> {
    let endian = LittleEndian;
    let header = elf::FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let sections = header.sections(endian, bytes).ok()?;
    let (_, section) = sections.section_by_name(endian, b".BTF")?;
    let types = Types::read(section.data(endian, bytes).ok()?)?;
    types.struct_ops_map()
}

/// A type: its header, and the bytes behind that.
#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    size_or_type: u32,
    rest: &'a [u8],
}

struct Types<'a> {
    /// By identifier; the first is `void`.
    types: HashMap<u32, Type<'a>>,
    sections: Vec<u32>,
    strings: &'a [u8],
}

impl<'a> Types<'a> {
    fn read(bytes: &'a [u8]) -> Option<Types<'a>> {
        let magic = bytes.first_chunk().map(|b| u16::from_le_bytes(*b))?;
        if magic != MAGIC {
            return None;
        }
        let length = word(bytes, 4)?;
        let body = bytes.get(length as usize..)?;
        let part = |at| {
            let start = word(bytes, at)? as usize;
            let len = word(bytes, at + 4)? as usize;
            body.get(start..start.checked_add(len)?)
        };
        let (mut left, strings) = (part(8)?, part(16)?);
        let mut found = Types {
            types: HashMap::new(),
            sections: Vec::new(),
            strings,
        };
        let mut id = 1;
        while !left.is_empty() {
            let info = word(left, 4)?;
            let (kind, count) = (info >> 24 & 0x1f, info & 0xffff);
            let behind = match kind {
                1 | VAR | 17 => 4,
                PTR | 7..=12 | 16 | 18 => 0,
                ARRAY => 12,
                STRUCT | 5 | DATASEC | 19 => 12 * count as usize,
                6 | 13 => 8 * count as usize,
                _ => return None,
            };
            let one = Type {
                name: word(left, 0)?,
                kind,
                size_or_type: word(left, 8)?,
                rest: left.get(12..12 + behind)?,
            };
            if kind == DATASEC {
                found.sections.push(id);
            }
            found.types.insert(id, one);
            left = &left[12 + behind..];
            id += 1;
        }
        Some(found)
    }

    fn struct_ops_map(&self) -> Option<String> {
        let sections = self.sections.iter().filter_map(|id| self.types.get(id));
        let maps = sections.filter(|section| self.name(section.name) == b".maps");
        let mut variables = maps.flat_map(|section| section.rest.chunks_exact(12));
        variables.find_map(|entry| {
            let variable = self.types.get(&word(entry, 0)?)?;
            let definition = self.unwrapped(variable.size_or_type)?;
            let is_struct = variable.kind == VAR && definition.kind == STRUCT;
            let members = definition.rest.chunks_exact(12).filter(|_| is_struct);
            let mut types = members.filter_map(|member| {
                let name = self.name(word(member, 0)?);
                (name == b"type").then(|| self.number(word(member, 4)?))?
            });
            let name = self.name(variable.name);
            let refused = types.any(|kind| kind == STRUCT_OPS);
            refused.then(|| String::from_utf8_lossy(name).into_owned())
        })
    }

    /// A number as `__uint` declares it: the length of an array that is pointed to.
    fn number(&self, id: u32) -> Option<u32> {
        let pointer = self.unwrapped(id).filter(|found| found.kind == PTR)?;
        let array = self.types.get(&pointer.size_or_type)?;
        word(array.rest, 8).filter(|_| array.kind == ARRAY)
    }

    /// The type without typedefs and qualifiers.
    fn unwrapped(&self, mut id: u32) -> Option<&Type<'a>> {
        for _ in 0..WRAPPED_MAX {
            let found = self.types.get(&id)?;
            if !matches!(found.kind, 8..=11 | 18) {
                return Some(found);
            }
            id = found.size_or_type;
        }
        None
    }

    fn name(&self, at: u32) -> &'a [u8] {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct { int (*type)[length]; } operations SEC(".maps")`.
    fn types(length: u32) -> Vec<u8> {
        let strings = b"\0type\0operations\0.maps\0";
        let words: &[u32] = &[
            // 1: an array of type 0, and 2: a pointer to it.
            0,
            ARRAY << 24,
            0,
            0,
            0,
            length,
            0,
            PTR << 24,
            1,
            // 3: the definition, 4: the variable, const as no source has it (5), and 6: the section.
            0,
            STRUCT << 24 | 1,
            8,
            1,
            2,
            0,
            6,
            VAR << 24,
            5,
            1,
            0,
            10 << 24,
            3,
            17,
            DATASEC << 24 | 1,
            8,
            4,
            0,
            8,
        ];
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([1, 0]);
        let size = words.len() as u32 * 4;
        for word in [24, 0, size, size, strings.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(strings);
        bytes
    }

    fn found(bytes: &[u8]) -> Option<String> {
        Types::read(bytes)?.struct_ops_map()
    }

    #[test]
    fn the_type_of_a_map_is_the_length_of_its_array() {
        assert_eq!(found(&types(STRUCT_OPS)).as_deref(), Some("operations"));
        assert_eq!(found(&types(2)), None);
    }

    #[test]
    fn bytes_that_are_no_types_are_survived() {
        let whole = types(STRUCT_OPS);
        for cut in 0..whole.len() {
            found(&whole[..cut]);
        }
        for at in 0..whole.len() {
            for value in [0, 4, 8, 0x7f, 0xff] {
                let mut spoiled = whole.clone();
                spoiled[at] = value;
                found(&spoiled);
            }
        }
    }
}
