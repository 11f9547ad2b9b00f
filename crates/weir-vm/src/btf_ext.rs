//! `.BTF.ext`: what the compiler says about single instructions. Functions' types, source lines, and CO-RE relocations.
//!
//! Owns the wire format; strings and types are those of the object's `.BTF`. Linking turns section offsets into operations.
//! Input is hostile: every record is checked against its section, and records of unknown length are read as far as they are known.

use crate::btf::{Btf, BtfError};

/// A line of source, as BTF has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// File as the compiler was told.
    pub file: String,
    /// Line from 1.
    pub line: u32,
    /// Column from 1; 0 when unknown.
    pub column: u32,
    /// Text of the line without the white space around it; empty when the compiler did not keep it.
    pub text: String,
}

/// What `.BTF.ext` holds, by section of code.
#[derive(Clone, Debug, Default)]
pub(crate) struct BtfExt {
    pub(crate) functions: Vec<FunctionType>,
    pub(crate) lines: Vec<Line>,
    pub(crate) relocations: Vec<CoreRelocation>,
}

/// The type of the function that starts at `offset` bytes of a section.
#[derive(Clone, Debug)]
pub(crate) struct FunctionType {
    pub(crate) section: String,
    pub(crate) offset: u32,
    pub(crate) type_id: u32,
}

/// Source of the instructions from `offset` on.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) section: String,
    pub(crate) offset: u32,
    /// Offsets into the strings of `.BTF`.
    pub(crate) file: u32,
    pub(crate) text: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// An instruction whose operand depends on the types of the running kernel.
#[derive(Clone, Debug)]
pub(crate) struct CoreRelocation {
    pub(crate) section: String,
    pub(crate) offset: u32,
    /// Type in the object's BTF the access starts from.
    pub(crate) type_id: u32,
    /// Offset of a string such as `0:1:2` that says which member.
    pub(crate) access: u32,
    /// `enum bpf_core_relo_kind`.
    pub(crate) kind: u32,
}

/// Header up to the line information; objects of compilers before CO-RE have no more.
const HEADER_SHORT: u32 = 24;
/// Header with CO-RE relocations.
const HEADER_CORE: u32 = 32;

impl BtfExt {
    /// Parses the contents of a `.BTF.ext` section.
    ///
    /// # Errors
    /// [`BtfError`] for anything cut or of another version.
    pub(crate) fn parse(bytes: &[u8], btf: &Btf) -> Result<BtfExt, BtfError> {
        let word = |at: usize| {
            bytes
                .get(at..)
                .and_then(|b| b.first_chunk::<4>())
                .map(|b| u32::from_le_bytes(*b))
                .ok_or(BtfError::Truncated(at))
        };
        if word(0)? & 0x00ff_ffff != 0x0001_eb9f {
            return Err(BtfError::Header);
        }
        let header = word(4)?;
        if header < HEADER_SHORT {
            return Err(BtfError::Header);
        }
        let part = |offset_at: usize| -> Result<&[u8], BtfError> {
            let (offset, length) = (word(offset_at)?, word(offset_at + 4)?);
            let start = header as usize + offset as usize;
            bytes
                .get(start..start.saturating_add(length as usize))
                .ok_or(BtfError::Truncated(start))
        };
        let mut found = BtfExt::default();
        records::<2>(part(8)?, |section, [offset, type_id]| {
            found.functions.push(FunctionType {
                section: btf.string(section).to_owned(),
                offset,
                type_id,
            });
        })?;
        records::<4>(part(16)?, |section, [offset, file, text, place]| {
            found.lines.push(Line {
                section: btf.string(section).to_owned(),
                offset,
                file,
                text,
                line: place >> 10,
                column: place & 0x3ff,
            });
        })?;
        if header >= HEADER_CORE {
            records::<4>(part(24)?, |section, [offset, type_id, access, kind]| {
                found.relocations.push(CoreRelocation {
                    section: btf.string(section).to_owned(),
                    offset,
                    type_id,
                    access,
                    kind,
                });
            })?;
        }
        Ok(found)
    }
}

/// Walks one part: the length of a record, then for each section its name, the number of records, and the records.
fn records<const N: usize>(
    part: &[u8],
    mut each: impl FnMut(u32, [u32; N]),
) -> Result<(), BtfError> {
    if part.is_empty() {
        return Ok(());
    }
    let word = |at: usize| {
        part.get(at..)
            .and_then(|b| b.first_chunk::<4>())
            .map(|b| u32::from_le_bytes(*b))
            .ok_or(BtfError::Truncated(at))
    };
    let size = word(0)? as usize;
    if size < N * 4 || !size.is_multiple_of(4) {
        return Err(BtfError::Header);
    }
    let mut at = 4;
    while at < part.len() {
        let (section, count) = (word(at)?, word(at + 4)?);
        at += 8;
        for _ in 0..count {
            let mut fields = [0; N];
            for (i, field) in fields.iter_mut().enumerate() {
                *field = word(at + i * 4)?;
            }
            at += size;
            each(section, fields);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_cut_are_refused() {
        let words = |w: &[u32]| w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let mut seen = Vec::new();
        let whole = words(&[8, 5, 2, 0, 7, 16, 9]);
        assert_eq!(records::<2>(&whole, |s, f| seen.push((s, f))), Ok(()));
        assert_eq!(seen, [(5, [0, 7]), (5, [16, 9])]);
        assert!(records::<2>(&whole[..whole.len() - 1], |_, _| {}).is_err());
        assert!(records::<2>(&words(&[4, 5, 0]), |_, _| {}).is_err());
        // Longer records than known: the rest is skipped.
        let mut longer = Vec::new();
        let text = words(&[12, 1, 1, 8, 3, 99]);
        assert_eq!(records::<2>(&text, |_, f| longer.push(f)), Ok(()));
        assert_eq!(longer, [[8, 3]]);
    }
}
