//! Type information (BTF) as it lies in the file, so that two objects' types can be put into one and renumbered.
//!
//! Owns the wire format of `.BTF` and `.BTF.ext`; meaning is left to whoever loads the result. Input is hostile: lengths are
//! checked, unknown kinds end the reading. Invariant: the type with id `n` is `types[n - 1]`, as on the wire.

use crate::ObjectError;

const MAGIC: u32 = 0x0001_eb9f;
const HEADER: u32 = 24;

pub(crate) const FUNC: u32 = 12;
pub(crate) const VAR: u32 = 14;
pub(crate) const DATASEC: u32 = 15;
/// Linkage of a function that is seen in its own file only, and of a variable of that sort.
pub(crate) const STATIC: u32 = 0;
const DECL_TAG: u32 = 17;
/// Linkage of a function or a variable that is defined elsewhere.
pub(crate) const EXTERN: u32 = 2;

/// One type: its three fixed words and what follows them.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    pub(crate) name: u32,
    info: u32,
    /// Size in bytes, or the type it refers to, by kind.
    size: u32,
    pub(crate) rest: Vec<u32>,
}

impl Type {
    pub(crate) fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// Number of members; of a function its linkage.
    pub(crate) fn vlen(&self) -> u32 {
        self.info & 0xffff
    }

    /// Whether it is a function or a variable that is only declared here.
    fn is_elsewhere(&self) -> bool {
        match self.kind() {
            FUNC => self.vlen() == EXTERN,
            VAR => self.rest.first() == Some(&EXTERN),
            _ => false,
        }
    }

    /// This function, moved and seen in its own file only.
    pub(crate) fn as_static(&self, moved: &Moved) -> Type {
        Type {
            name: moved.string(self.name),
            info: FUNC << 24 | STATIC,
            size: moved.id(self.size),
            rest: Vec::new(),
        }
    }

    /// A section of `bytes` with variables: type, offset and size of each.
    pub(crate) fn section(name: u32, bytes: u32, variables: &[[u32; 3]]) -> Type {
        Type {
            name,
            info: DATASEC << 24 | (variables.len() as u32 & 0xffff),
            size: bytes,
            rest: variables.concat(),
        }
    }

    /// Offsets of further strings and ids of types in it, each given to the right function.
    fn visit(&mut self, mut string: impl FnMut(&mut u32), mut id: impl FnMut(&mut u32)) {
        string(&mut self.name);
        match self.kind() {
            // PTR, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, VAR, DECL_TAG, TYPE_TAG
            2 | 8..=12 | 14 | 17 | 18 => id(&mut self.size),
            // ARRAY: element and index
            3 => self.rest.iter_mut().take(2).for_each(id),
            // STRUCT, UNION
            4 | 5 => self.rest.chunks_exact_mut(3).for_each(|m| {
                string(&mut m[0]);
                id(&mut m[1]);
            }),
            // ENUM, ENUM64
            6 => self
                .rest
                .chunks_exact_mut(2)
                .for_each(|m| string(&mut m[0])),
            19 => self
                .rest
                .chunks_exact_mut(3)
                .for_each(|m| string(&mut m[0])),
            // FUNC_PROTO
            13 => {
                id(&mut self.size);
                self.rest.chunks_exact_mut(2).for_each(|m| {
                    string(&mut m[0]);
                    id(&mut m[1]);
                });
            }
            _ => {}
        }
    }

    /// Words behind the fixed ones.
    fn words(kind: u32, vlen: u32) -> Option<u32> {
        Some(match kind {
            1 | 14 | 17 => 1,
            3 => 3,
            4 | 5 | 15 | 19 => vlen * 3,
            6 | 13 => vlen * 2,
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        })
    }
}

/// All types of an object and their strings.
#[derive(Clone, Debug)]
pub(crate) struct Types {
    strings: Vec<u8>,
    pub(crate) types: Vec<Type>,
}

impl Default for Types {
    fn default() -> Types {
        Types {
            strings: vec![0],
            types: Vec::new(),
        }
    }
}

/// Where the types of one object went in another.
pub(crate) struct Moved {
    ids: Vec<u32>,
    strings: u32,
}

impl Moved {
    /// The new id of a type; 0 (void) for those that were left out.
    pub(crate) fn id(&self, old: u32) -> u32 {
        let at = (old as usize).checked_sub(1);
        at.and_then(|at| self.ids.get(at)).copied().unwrap_or(0)
    }

    /// The new offset of a string.
    pub(crate) fn string(&self, old: u32) -> u32 {
        match old {
            0 => 0,
            _ => old.saturating_add(self.strings),
        }
    }
}

impl Types {
    /// Reads a `.BTF` section.
    pub(crate) fn read(bytes: &[u8]) -> Result<Types, ObjectError> {
        let bad = || ObjectError::Malformed("the type information (.BTF) is cut or unknown".into());
        let header = word(bytes, 4).ok_or_else(bad)?;
        if word(bytes, 0).ok_or_else(bad)? & 0x00ff_ffff != MAGIC || header < HEADER {
            return Err(bad());
        }
        let part = |at: usize| {
            let start = (header as usize).checked_add(word(bytes, at)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
        };
        let mut rest = part(8).ok_or_else(bad)?;
        let strings = part(16).ok_or_else(bad)?.to_vec();
        let mut types = Vec::new();
        while !rest.is_empty() {
            let (Some(name), Some(info), Some(size)) =
                (word(rest, 0), word(rest, 4), word(rest, 8))
            else {
                return Err(bad());
            };
            let words = Type::words(info >> 24 & 0x1f, info & 0xffff).ok_or_else(bad)?;
            let end = 12 + words as usize * 4;
            let tail = rest.get(12..end).ok_or_else(bad)?;
            let (chunks, _) = tail.as_chunks::<4>();
            types.push(Type {
                name,
                info,
                size,
                rest: chunks.iter().map(|c| u32::from_le_bytes(*c)).collect(),
            });
            rest = &rest[end..];
        }
        Ok(Types { strings, types })
    }

    /// The string at an offset; empty for one outside.
    pub(crate) fn text(&self, offset: u32) -> String {
        let tail = self.strings.get(offset as usize..).unwrap_or_default();
        let end = tail.iter().position(|b| *b == 0).unwrap_or(tail.len());
        String::from_utf8_lossy(&tail[..end]).into_owned()
    }

    /// The type with this id.
    pub(crate) fn get(&self, id: u32) -> Option<&Type> {
        self.types.get((id as usize).checked_sub(1)?)
    }

    /// Adds a string; its offset.
    pub(crate) fn add_text(&mut self, text: &str) -> u32 {
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    /// Adds a type; its id.
    pub(crate) fn add(&mut self, new: Type) -> u32 {
        self.types.push(new);
        self.types.len() as u32
    }

    /// Adds all types of another object but its sections and the functions and variables that it only declares
    /// and `without` names.
    pub(crate) fn absorb(&mut self, other: &Types, without: impl Fn(&str) -> bool) -> Moved {
        let mut next = self.types.len() as u32;
        let mut moved = Moved {
            ids: Vec::with_capacity(other.types.len()),
            strings: self.strings.len() as u32,
        };
        let here = |t: &Type| !t.is_elsewhere() || !without(&other.text(t.name));
        let kept = |t: &Type| match t.kind() {
            DATASEC => false,
            DECL_TAG => other.get(t.size).is_none_or(here),
            _ => here(t),
        };
        for one in &other.types {
            let id = match kept(one) {
                true => {
                    next += 1;
                    next
                }
                false => 0,
            };
            moved.ids.push(id);
        }
        self.strings.extend_from_slice(&other.strings);
        for one in other.types.iter().filter(|t| kept(t)) {
            let mut one = one.clone();
            one.visit(|s| *s = moved.string(*s), |id| *id = moved.id(*id));
            self.types.push(one);
        }
        moved
    }

    /// The bytes of a `.BTF` section.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut types = Vec::new();
        for one in &self.types {
            for word in [one.name, one.info, one.size].iter().chain(&one.rest) {
                types.extend_from_slice(&word.to_le_bytes());
            }
        }
        let (types_len, strings_len) = (types.len() as u32, self.strings.len() as u32);
        let header = [MAGIC, HEADER, 0, types_len, types_len, strings_len];
        let mut bytes: Vec<u8> = header.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.extend_from_slice(&types);
        bytes.extend_from_slice(&self.strings);
        bytes
    }
}

/// What the compiler says of an instruction: the offset in bytes in its section, then three words, or one of a function's type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Offset of the section's name.
    pub(crate) section: u32,
    pub(crate) offset: u32,
    pub(crate) words: [u32; 3],
}

/// `.BTF.ext`: types of functions, source lines, and relocations against the running kernel's types (CO-RE).
#[derive(Clone, Debug, Default)]
pub(crate) struct Ext {
    pub(crate) functions: Vec<Record>,
    pub(crate) lines: Vec<Record>,
    pub(crate) relocations: Vec<Record>,
}

/// Header with all three tables.
const EXT_HEADER: u32 = 32;

impl Ext {
    /// Reads a `.BTF.ext` section.
    pub(crate) fn read(bytes: &[u8]) -> Result<Ext, ObjectError> {
        let bad = || ObjectError::Malformed("the type information (.BTF.ext) is cut".into());
        let header = word(bytes, 4).ok_or_else(bad)?;
        if word(bytes, 0).ok_or_else(bad)? & 0x00ff_ffff != MAGIC || header < HEADER {
            return Err(bad());
        }
        let table = |at: usize, words: usize| {
            let start = (header as usize).checked_add(word(bytes, at)? as usize)?;
            let end = start.checked_add(word(bytes, at + 4)? as usize)?;
            records(bytes.get(start..end)?, words)
        };
        Ok(Ext {
            functions: table(8, 1).ok_or_else(bad)?,
            lines: table(16, 3).ok_or_else(bad)?,
            relocations: match header >= EXT_HEADER {
                true => table(24, 3).ok_or_else(bad)?,
                false => Vec::new(),
            },
        })
    }

    /// The bytes of a `.BTF.ext` section.
    pub(crate) fn write(&self) -> Vec<u8> {
        let tables = [
            (&self.functions, 1),
            (&self.lines, 3),
            (&self.relocations, 3),
        ];
        let mut header = vec![MAGIC, EXT_HEADER];
        let mut body: Vec<u32> = Vec::new();
        for (table, words) in tables {
            let start = body.len();
            if !table.is_empty() {
                body.push(4 + 4 * words as u32);
            }
            let mut table = table.clone();
            table.sort_by_key(|r| (r.section, r.offset));
            for group in table.chunk_by(|a, b| a.section == b.section) {
                body.extend([group[0].section, group.len() as u32]);
                for record in group {
                    body.push(record.offset);
                    body.extend_from_slice(&record.words[..words]);
                }
            }
            header.extend([start as u32 * 4, (body.len() - start) as u32 * 4]);
        }
        let all = header.into_iter().chain(body);
        all.flat_map(u32::to_le_bytes).collect()
    }
}

/// The records of one table, each an offset and `words` words, longer ones cut.
fn records(bytes: &[u8], words: usize) -> Option<Vec<Record>> {
    let mut found = Vec::new();
    if bytes.is_empty() {
        return Some(found);
    }
    let size = word(bytes, 0)? as usize;
    let mut rest = bytes.get(4..)?;
    if size < 4 + 4 * words {
        return None;
    }
    while !rest.is_empty() {
        let (section, count) = (word(rest, 0)?, word(rest, 4)? as usize);
        rest = rest.get(8..)?;
        let all = rest.get(..size.checked_mul(count)?)?;
        for one in all.chunks_exact(size) {
            let mut record = Record {
                section,
                offset: word(one, 0)?,
                words: [0; 3],
            };
            for (at, to) in record.words.iter_mut().take(words).enumerate() {
                *to = word(one, 4 + 4 * at)?;
            }
            found.push(record);
        }
        rest = &rest[all.len()..];
    }
    Some(found)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*four))
}
