//! BTF, the type information of an eBPF object: parsing and questions by name.
//!
//! Owns the wire format (kinds 1 to 19) and the resolution of typedefs and qualifiers. Does not interpret what the
//! types mean (map definitions are read in `object`); what `.BTF.ext` says about code is in `btf_ext`. Input is hostile: indices and nesting
//! are checked, nothing recurses without a bound.

use thiserror::Error;

/// Where Linux shows its own type information, readable by everybody.
pub const RUNNING_KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// Parsed type information.
#[derive(Clone, Debug)]
pub struct Btf {
    /// Index is the type id; entry 0 is `void`.
    types: Vec<Type>,
    strings: Vec<u8>,
}

/// Why type information cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BtfError {
    /// The header is cut, or of another byte order or version.
    #[error("BTF header is not version 1 in little-endian byte order")]
    Header,
    /// A section, type or member list reaches past the end.
    #[error("BTF is truncated at byte {0}")]
    Truncated(usize),
    /// A kind this parser does not know, so the size of the entry is unknown.
    #[error("BTF type {id} has unknown kind {kind}")]
    Kind {
        /// Type id.
        id: u32,
        /// Kind number.
        kind: u8,
    },
    /// A reference to a type that is not there, or a chain that does not end.
    #[error("BTF type {0} does not exist or refers to itself")]
    Type(u32),
}

/// Why the running kernel's types cannot be had.
#[derive(Debug, Error)]
pub enum RunningKernelError {
    /// The file.
    #[error("cannot read {RUNNING_KERNEL}: {0}")]
    Read(#[from] std::io::Error),
    /// Its contents.
    #[error("{RUNNING_KERNEL}: {0}")]
    Btf(#[from] BtfError),
}

/// A member of a struct or union, or a variable of a data section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name; empty for an anonymous member.
    pub name: String,
    /// Type id.
    pub type_id: u32,
    /// Offset from the start of the struct in bits.
    pub bit_offset: u32,
    /// Width of a bit field in bits, 0 for an ordinary member.
    pub bit_width: u32,
}

/// Size and members of a struct or union, anonymous members flattened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size in bytes.
    pub size: u32,
    /// Named members in order of declaration, those of anonymous structs and unions in their place.
    pub members: Vec<MemberLayout>,
}

impl Layout {
    /// The member called `name`.
    pub fn member(&self, name: &str) -> Option<&MemberLayout> {
        self.members.iter().find(|m| m.name == name)
    }
}

/// Where a member lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLayout {
    /// Name.
    pub name: String,
    /// Offset from the start of the outermost struct in bits; divide by 8 for ordinary members.
    pub bit_offset: u32,
    /// Width of a bit field, 0 for an ordinary member.
    pub bit_width: u32,
    /// Size of the member's type in bytes.
    pub size: u32,
    /// Type id.
    pub type_id: u32,
}

impl MemberLayout {
    /// Offset in whole bytes.
    pub fn offset(&self) -> u32 {
        self.bit_offset / 8
    }
}

/// One entry of the type section.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    name: u32,
    pub(crate) shape: Shape,
}

/// What a type is. Ids are those of [`Btf`]; names are asked for by id.
#[derive(Clone, Debug)]
pub enum Shape {
    /// `void`.
    Void,
    /// An integer.
    Int {
        /// Bytes.
        size: u32,
        /// Whether it is signed.
        signed: bool,
        /// Whether it is `bool`.
        boolean: bool,
        /// Whether it is a character.
        character: bool,
        /// Width in bits.
        bits: u32,
    },
    /// A pointer to this type.
    Pointer(u32),
    /// An array.
    Array {
        /// Type of an element.
        element: u32,
        /// Number of elements; 0 for a flexible one.
        count: u32,
    },
    /// A struct or union; [`Btf::members`] lists what is in it.
    Struct {
        /// Bytes.
        size: u32,
        /// Whether it is a union.
        union: bool,
        /// Members in order.
        members: Vec<RawMember>,
    },
    /// An enumeration; [`Btf::enumerators`] gives the names.
    Enum {
        /// Bytes.
        size: u32,
        /// Whether values are signed.
        signed: bool,
        /// (offset of the name, value).
        values: Vec<(u32, i64)>,
    },
    /// A struct or union that is declared only.
    Forward {
        /// Whether it is a union.
        union: bool,
    },
    /// A typedef of the target.
    Typedef(u32),
    /// `volatile`, `const`, `restrict` or a type tag in front of the target.
    Alias(u32),
    /// A function.
    Function {
        /// Its prototype.
        prototype: u32,
        /// 0 static, 1 global, 2 declared only.
        linkage: u32,
    },
    /// What a function takes and returns.
    Prototype {
        /// Type of the result.
        returns: u32,
        /// Types of the parameters.
        parameters: Vec<u32>,
        /// Their names, as offsets of [`Btf::parameter_names`].
        names: Vec<u32>,
    },
    /// A global variable.
    Variable {
        /// Its type.
        target: u32,
        /// 0 static, 1 global, 2 declared only.
        linkage: u32,
    },
    /// A data section.
    Section {
        /// (variable, offset, size).
        variables: Vec<(u32, u32, u32)>,
    },
    /// A floating-point number.
    Float {
        /// Bytes.
        size: u32,
    },
    /// A remark about another type.
    DeclarationTag {
        /// The type.
        target: u32,
        /// Its member or parameter, from 0; -1 for the type itself.
        component: i32,
    },
}

/// A member as stored.
#[derive(Clone, Debug)]
pub struct RawMember {
    pub(crate) name: u32,
    pub(crate) type_id: u32,
    pub(crate) bit_offset: u32,
    pub(crate) bit_width: u32,
}

/// Longest chain of typedefs and qualifiers, and deepest nesting of anonymous members, that is followed.
const DEPTH: usize = 32;
/// Most members a flattened layout may have; more means hostile input.
const FLATTENED: usize = 65_536;
const MAGIC: u16 = 0xeb9f;

impl Btf {
    /// The types of the running kernel, which everybody may read.
    ///
    /// # Errors
    /// [`RunningKernelError`] where the kernel does not show them.
    pub fn of_running_kernel() -> Result<Btf, RunningKernelError> {
        Ok(Btf::parse(&std::fs::read(RUNNING_KERNEL)?)?)
    }

    /// Parses the contents of a `.BTF` section.
    ///
    /// # Errors
    /// [`BtfError`] for anything cut, of another version, or of unknown kind. References are checked when followed.
    pub fn parse(bytes: &[u8]) -> Result<Btf, BtfError> {
        let mut header = Reader { bytes, at: 0 };
        let magic = header.u16().map_err(|_| BtfError::Header)?;
        let version = header.u16().map_err(|_| BtfError::Header)? & 0xff;
        if magic != MAGIC || version != 1 {
            return Err(BtfError::Header);
        }
        let length = header.u32()? as usize;
        let (type_off, type_len) = (header.u32()? as usize, header.u32()? as usize);
        let (str_off, str_len) = (header.u32()? as usize, header.u32()? as usize);
        let part = |off: usize, len: usize| {
            let start = length.checked_add(off)?;
            bytes.get(start..start.checked_add(len)?)
        };
        let truncated = BtfError::Truncated(bytes.len());
        let section = part(type_off, type_len).ok_or(truncated.clone())?;
        let strings = part(str_off, str_len).ok_or(truncated)?.to_vec();
        let mut types = vec![Type {
            name: 0,
            shape: Shape::Void,
        }];
        let mut reader = Reader {
            bytes: section,
            at: 0,
        };
        while reader.at < section.len() {
            let id = types.len() as u32;
            types.push(parse_type(&mut reader, id)?);
        }
        Ok(Btf { types, strings })
    }

    /// Number of types, `void` included.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is nothing but `void`.
    pub fn is_empty(&self) -> bool {
        self.types.len() <= 1
    }

    /// Name of a type; empty when it has none.
    pub fn name(&self, id: u32) -> &str {
        self.types
            .get(id as usize)
            .map_or("", |t| self.string(t.name))
    }

    /// Id of the struct, union, enum, typedef or basic type called `name`; a struct wins over a typedef of the same name.
    pub fn type_id(&self, name: &str) -> Option<u32> {
        let mut alias = None;
        for (id, t) in self.types.iter().enumerate() {
            if name.is_empty() || self.string(t.name) != name {
                continue;
            }
            match t.shape {
                Shape::Struct { .. } | Shape::Enum { .. } => return Some(id as u32),
                Shape::Typedef(_) | Shape::Int { .. } | Shape::Float { .. } => {
                    alias = alias.or(Some(id as u32));
                }
                _ => {}
            }
        }
        alias
    }

    /// Size of a type in bytes; pointers have 8.
    ///
    /// # Errors
    /// [`BtfError::Type`] for types without a size and for chains that do not end.
    pub fn size_of(&self, id: u32) -> Result<u32, BtfError> {
        let mut count: u32 = 1;
        let mut at = id;
        for _ in 0..DEPTH {
            let own = match self.shape(at)? {
                Shape::Int { size, .. }
                | Shape::Struct { size, .. }
                | Shape::Enum { size, .. }
                | Shape::Float { size } => *size,
                Shape::Pointer(_) => 8,
                Shape::Array { element, count: n } => {
                    count = count.checked_mul(*n).ok_or(BtfError::Type(id))?;
                    at = *element;
                    continue;
                }
                Shape::Typedef(target) | Shape::Alias(target) | Shape::Variable { target, .. } => {
                    at = *target;
                    continue;
                }
                _ => return Err(BtfError::Type(id)),
            };
            return own.checked_mul(count).ok_or(BtfError::Type(id));
        }
        Err(BtfError::Type(id))
    }

    /// Size and flattened members of the struct or union called `name` (or a typedef of one).
    ///
    /// # Errors
    /// [`BtfError::Type`] with id 0 when there is no such struct, with its own id when it is malformed.
    pub fn layout(&self, name: &str) -> Result<Layout, BtfError> {
        let id = self.type_id(name).ok_or(BtfError::Type(0))?;
        self.layout_of(id)
    }

    /// As [`Btf::layout`], by id.
    ///
    /// # Errors
    /// [`BtfError::Type`] when `id` is no struct or malformed.
    pub fn layout_of(&self, id: u32) -> Result<Layout, BtfError> {
        let id = self.resolve(id)?;
        let mut members = Vec::new();
        let mut steps = 0;
        self.flatten(id, 0, (0, &mut steps), &mut members)?;
        Ok(Layout {
            size: self.size_of(id)?,
            members,
        })
    }

    /// Names and values of the enumeration called `name`.
    pub fn enumeration(&self, name: &str) -> Option<Vec<(String, i64)>> {
        let id = self.resolve(self.type_id(name)?).ok()?;
        match self.shape(id).ok()? {
            Shape::Enum { values, .. } => Some(
                values
                    .iter()
                    .map(|(n, v)| (self.string(*n).to_owned(), *v))
                    .collect(),
            ),
            _ => None,
        }
    }

    /// Names and values of the enumeration `id`; empty for other types.
    pub fn enumerators(&self, id: u32) -> Vec<(&str, i64)> {
        match self.resolve(id).and_then(|id| self.shape(id)) {
            Ok(Shape::Enum { values, .. }) => values
                .iter()
                .map(|(name, value)| (self.string(*name), *value))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The value of the enumerator called `name` in any enumeration.
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        self.types.iter().find_map(|t| match &t.shape {
            Shape::Enum { values, .. } => values
                .iter()
                .find(|(n, _)| self.string(*n) == name)
                .map(|(_, v)| *v),
            _ => None,
        })
    }

    /// The variables of the data section called `name`: (name, type id, offset, size), as the compiler left them.
    pub fn section(&self, name: &str) -> Option<Vec<(String, u32, u32, u32)>> {
        self.types.iter().find_map(|t| match &t.shape {
            Shape::Section { variables } if self.string(t.name) == name => Some(
                variables
                    .iter()
                    .map(|(id, offset, size)| (self.name(*id).to_owned(), *id, *offset, *size))
                    .collect(),
            ),
            _ => None,
        })
    }

    /// Id of the data section called `name`.
    pub fn section_id(&self, name: &str) -> Option<u32> {
        let found = self
            .types
            .iter()
            .position(|t| matches!(t.shape, Shape::Section { .. }) && self.string(t.name) == name);
        found.map(|id| id as u32)
    }

    /// Follows variables, typedefs and qualifiers to the type itself.
    ///
    /// # Errors
    /// [`BtfError::Type`] for a missing type or a chain that does not end.
    pub fn resolve(&self, id: u32) -> Result<u32, BtfError> {
        let mut at = id;
        for _ in 0..DEPTH {
            match self.shape(at)? {
                Shape::Typedef(target) | Shape::Alias(target) | Shape::Variable { target, .. } => {
                    at = *target
                }
                _ => return Ok(at),
            }
        }
        Err(BtfError::Type(id))
    }

    /// Direct members of a struct or union, not flattened.
    ///
    /// # Errors
    /// [`BtfError::Type`] when `id` is no struct.
    pub fn members(&self, id: u32) -> Result<Vec<Member>, BtfError> {
        let id = self.resolve(id)?;
        match self.shape(id)? {
            Shape::Struct { members, .. } => Ok(members
                .iter()
                .map(|m| Member {
                    name: self.string(m.name).to_owned(),
                    type_id: m.type_id,
                    bit_offset: m.bit_offset,
                    bit_width: m.bit_width,
                })
                .collect()),
            _ => Err(BtfError::Type(id)),
        }
    }

    /// What type `id` is.
    ///
    /// # Errors
    /// [`BtfError::Type`] when there is none.
    pub fn shape(&self, id: u32) -> Result<&Shape, BtfError> {
        self.types
            .get(id as usize)
            .map(|t| &t.shape)
            .ok_or(BtfError::Type(id))
    }

    /// Prototype of the function called `name`.
    pub fn prototype_of(&self, name: &str) -> Option<u32> {
        self.types.iter().find_map(|t| match t.shape {
            Shape::Function { prototype, .. } if self.string(t.name) == name => Some(prototype),
            _ => None,
        })
    }

    /// Names of a prototype's parameters, empty where the compiler left them out; none for other types.
    pub fn parameter_names(&self, prototype: u32) -> Vec<&str> {
        match self.shape(prototype) {
            Ok(Shape::Prototype { names, .. }) => names.iter().map(|n| self.string(*n)).collect(),
            _ => Vec::new(),
        }
    }

    /// Remarks about a type's component (a parameter, a member) by declaration tags.
    pub fn tags(&self, target: u32, component: i32) -> Vec<&str> {
        let wanted = |t: &&Type| match t.shape {
            Shape::DeclarationTag {
                target: tagged,
                component: at,
            } => (tagged, at) == (target, component),
            _ => false,
        };
        let tags = self.types.iter().filter(wanted);
        tags.map(|t| self.string(t.name)).collect()
    }

    /// What a pointer points to.
    pub(crate) fn pointee(&self, id: u32) -> Result<u32, BtfError> {
        match self.shape(self.resolve(id)?)? {
            Shape::Pointer(target) => Ok(*target),
            _ => Err(BtfError::Type(id)),
        }
    }

    pub(crate) fn array(&self, id: u32) -> Result<(u32, u32), BtfError> {
        match self.shape(self.resolve(id)?)? {
            Shape::Array { element, count } => Ok((*element, *count)),
            _ => Err(BtfError::Type(id)),
        }
    }

    fn flatten(
        &self,
        id: u32,
        base: u32,
        (depth, steps): (usize, &mut usize),
        out: &mut Vec<MemberLayout>,
    ) -> Result<(), BtfError> {
        let Shape::Struct { members, .. } = self.shape(id)? else {
            return Err(BtfError::Type(id));
        };
        for m in members {
            *steps += 1;
            if depth > DEPTH || *steps > FLATTENED {
                return Err(BtfError::Type(id));
            }
            let bit_offset = base.checked_add(m.bit_offset).ok_or(BtfError::Type(id))?;
            let name = self.string(m.name);
            let inner = self.resolve(m.type_id)?;
            if name.is_empty() && matches!(self.shape(inner)?, Shape::Struct { .. }) {
                self.flatten(inner, bit_offset, (depth + 1, steps), out)?;
                continue;
            }
            if name.is_empty() {
                continue;
            }
            out.push(MemberLayout {
                name: name.to_owned(),
                bit_offset,
                bit_width: m.bit_width,
                size: self.size_of(m.type_id)?,
                type_id: m.type_id,
            });
        }
        Ok(())
    }

    /// The string at an offset of the string section; empty where there is none.
    pub(crate) fn string(&self, offset: u32) -> &str {
        let Some(rest) = self.strings.get(offset as usize..) else {
            return "";
        };
        let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
        rest.get(..end)
            .and_then(|s| std::str::from_utf8(s).ok())
            .unwrap_or("")
    }
}

fn parse_type(r: &mut Reader<'_>, id: u32) -> Result<Type, BtfError> {
    let (name, info, size) = (r.u32()?, r.u32()?, r.u32()?);
    let count = info & 0xffff;
    let kind = ((info >> 24) & 0x1f) as u8;
    let flag = info >> 31 == 1;
    let shape = match kind {
        1 => {
            let data = r.u32()?;
            Shape::Int {
                size,
                signed: data >> 24 & 1 != 0,
                character: data >> 24 & 2 != 0,
                boolean: data >> 24 & 4 != 0,
                bits: data & 0xff,
            }
        }
        2 => Shape::Pointer(size),
        3 => {
            let element = r.u32()?;
            r.u32()?;
            Shape::Array {
                element,
                count: r.u32()?,
            }
        }
        4 | 5 => Shape::Struct {
            size,
            union: kind == 5,
            members: parse_members(r, count, flag)?,
        },
        6 | 19 => Shape::Enum {
            size,
            signed: flag,
            values: parse_values(r, count, flag, kind == 19)?,
        },
        7 => Shape::Forward { union: flag },
        8 => Shape::Typedef(size),
        9..=11 | 18 => Shape::Alias(size),
        12 => Shape::Function {
            prototype: size,
            linkage: count,
        },
        13 => {
            let (mut parameters, mut names) = (Vec::new(), Vec::new());
            for _ in 0..count {
                names.push(r.u32()?);
                parameters.push(r.u32()?);
            }
            Shape::Prototype {
                returns: size,
                parameters,
                names,
            }
        }
        14 => Shape::Variable {
            target: size,
            linkage: r.u32()?,
        },
        15 => {
            let mut variables = Vec::new();
            for _ in 0..count {
                variables.push((r.u32()?, r.u32()?, r.u32()?));
            }
            Shape::Section { variables }
        }
        16 => Shape::Float { size },
        17 => Shape::DeclarationTag {
            target: size,
            component: r.u32()? as i32,
        },
        _ => return Err(BtfError::Kind { id, kind }),
    };
    Ok(Type { name, shape })
}

fn parse_members(r: &mut Reader<'_>, count: u32, flag: bool) -> Result<Vec<RawMember>, BtfError> {
    let mut members = Vec::new();
    for _ in 0..count {
        let (name, type_id, offset) = (r.u32()?, r.u32()?, r.u32()?);
        members.push(RawMember {
            name,
            type_id,
            bit_offset: if flag { offset & 0xff_ffff } else { offset },
            bit_width: if flag { offset >> 24 } else { 0 },
        });
    }
    Ok(members)
}

fn parse_values(
    r: &mut Reader<'_>,
    count: u32,
    signed: bool,
    wide: bool,
) -> Result<Vec<(u32, i64)>, BtfError> {
    let mut values = Vec::new();
    for _ in 0..count {
        let (name, low) = (r.u32()?, r.u32()?);
        let value = if wide {
            (u64::from(low) | (u64::from(r.u32()?) << 32)) as i64
        } else if signed {
            i64::from(low as i32)
        } else {
            i64::from(low)
        };
        values.push((name, value));
    }
    Ok(values)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn u16(&mut self) -> Result<u16, BtfError> {
        let b = self.take::<2>()?;
        Ok(u16::from_le_bytes(b))
    }

    fn u32(&mut self) -> Result<u32, BtfError> {
        let b = self.take::<4>()?;
        Ok(u32::from_le_bytes(b))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BtfError> {
        let chunk = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>())
            .ok_or(BtfError::Truncated(self.at))?;
        self.at += N;
        Ok(*chunk)
    }
}
