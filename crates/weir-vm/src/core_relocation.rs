//! CO-RE: operands that depend on the layout of types in another kernel than the one compiled against.
//!
//! Owns the resolution of one relocation against the types of a target and its effect on an instruction; what relocations there are
//! is read in `btf_ext`. The rules are those of libbpf: names match without their `___flavour`, the field is found by name through
//! anonymous members, all candidates must give one answer, and what the target does not have is an error only where it is used.
//! Input is hostile: types are followed to a bounded depth, and work is bounded by the target's size per local type.

mod compare;
mod value;

use std::cell::Cell;
use std::collections::HashMap;

use crate::btf::{Btf, BtfError, Shape};
use crate::btf_ext::CoreRelocation;
use crate::insn::Insn;
use compare::same_kind;
use value::{patch, value};

/// Why a relocation cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreError {
    /// The relocation itself is malformed.
    #[error("the relocation is malformed: {0}")]
    Malformed(&'static str),
    /// Types it refers to cannot be followed.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// Several types of the target match and give different answers.
    #[error("{name} is ambiguous: types {first} and {second} of the target differ")]
    Ambiguous {
        /// What was looked for.
        name: String,
        /// Type id in the target.
        first: u32,
        /// Type id in the target.
        second: u32,
    },
    /// The instruction does not hold what the compiler is known to leave there.
    #[error("the instruction holds {found}, the object's own types give {expected}")]
    Instruction {
        /// In the instruction.
        found: u64,
        /// By the object's types.
        expected: u64,
    },
    /// Types nested so that comparing them takes too long.
    #[error("comparing types takes more than {WORK_MAX} steps")]
    Work,
    /// The result does not fit the instruction.
    #[error("the value {0} does not fit the instruction")]
    Range(u64),
}

/// What became of a relocated instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its operand is right for the target now.
    Patched,
    /// The target has nothing of this name, so the instruction must not be executed.
    Missing(String),
}

/// Relocations are resolved against these types.
pub(crate) struct Resolver<'b> {
    local: &'b Btf,
    target: &'b Btf,
    /// Types of the target by name without flavour.
    by_name: HashMap<&'b str, Vec<u32>>,
    /// Steps that comparisons may still take.
    work: Cell<u32>,
}

/// `enum bpf_core_relo_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    FieldByteOffset,
    FieldByteSize,
    FieldExists,
    FieldSigned,
    FieldLshift,
    FieldRshift,
    TypeIdLocal,
    TypeIdTarget,
    TypeExists,
    TypeSize,
    EnumeratorExists,
    EnumeratorValue,
    TypeMatches,
}

impl Kind {
    fn from_number(number: u32) -> Option<Kind> {
        use Kind::*;
        const ALL: [Kind; 13] = [
            FieldByteOffset,
            FieldByteSize,
            FieldExists,
            FieldSigned,
            FieldLshift,
            FieldRshift,
            TypeIdLocal,
            TypeIdTarget,
            TypeExists,
            TypeSize,
            EnumeratorExists,
            EnumeratorValue,
            TypeMatches,
        ];
        ALL.get(number as usize).copied()
    }

    fn is_type(self) -> bool {
        use Kind::*;
        matches!(
            self,
            TypeIdLocal | TypeIdTarget | TypeExists | TypeSize | TypeMatches
        )
    }

    fn is_enumerator(self) -> bool {
        matches!(self, Kind::EnumeratorExists | Kind::EnumeratorValue)
    }
}

/// A place inside a type: the root, the way to it, and the offset it has.
#[derive(Clone, Debug)]
struct Path {
    root: u32,
    steps: Vec<Step>,
    bits: u64,
    /// Enumerator of an enumeration.
    value: u64,
}

/// One step: an index into an array, or member `index` of `type_id`, which has a name unless it is anonymous.
#[derive(Clone, Debug)]
struct Step {
    type_id: u32,
    index: u32,
    name: Option<String>,
}

/// The value an instruction should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    number: u64,
    /// Whether the instruction must hold the local value before.
    checked: bool,
    /// Size and type of the field, for byte offsets of ordinary fields.
    field: Option<(u32, u32)>,
}

/// Most steps that all comparisons of types of one object may take.
const WORK_MAX: u32 = 4_000_000;
/// Longest way into a type.
const STEPS_MAX: usize = 64;
/// Deepest nesting that comparisons of types follow.
const DEPTH: usize = 32;

impl<'b> Resolver<'b> {
    pub(crate) fn new(local: &'b Btf, target: &'b Btf) -> Resolver<'b> {
        let mut by_name: HashMap<&str, Vec<u32>> = HashMap::new();
        for id in 1..target.len() as u32 {
            let name = essential(target.name(id));
            if !name.is_empty() {
                by_name.entry(name).or_default().push(id);
            }
        }
        Resolver {
            local,
            target,
            by_name,
            work: Cell::new(WORK_MAX),
        }
    }

    /// Applies one relocation to the instruction at `slot`.
    pub(crate) fn apply(
        &mut self,
        relocation: &CoreRelocation,
        insns: &mut [Insn],
        slot: usize,
    ) -> Result<Outcome, CoreError> {
        let kind = Kind::from_number(relocation.kind)
            .ok_or(CoreError::Malformed("its kind is unknown"))?;
        let access = self.local.string(relocation.access).to_owned();
        let local = self.path(relocation.type_id, &access, kind)?;
        let old = value(self.local, Some(&local), kind)?;
        if kind == Kind::TypeIdLocal {
            let own = Value {
                number: u64::from(relocation.type_id),
                checked: false,
                field: None,
            };
            return patch(insns, slot, own, (own, false)).map(|_| Outcome::Patched);
        }
        let new = self.resolve(relocation.type_id, &local, kind)?;
        let Some((new, target)) = new else {
            return Ok(Outcome::Missing(self.describe(&local)));
        };
        let old = old.ok_or(CoreError::Malformed(
            "it has no value in the object's types",
        ))?;
        let resized = target.is_some_and(|_| self.resized_badly(&old, &new));
        if patch(insns, slot, old, (new, resized))? {
            Ok(Outcome::Patched)
        } else {
            Ok(Outcome::Missing(format!(
                "{} with the size it was compiled for",
                self.describe(&local)
            )))
        }
    }

    /// The value in the target, and the type it was found in; nothing if the target has no such field or enumerator.
    fn resolve(
        &mut self,
        id: u32,
        local: &Path,
        kind: Kind,
    ) -> Result<Option<(Value, Option<u32>)>, CoreError> {
        let mut found: Option<(Value, Path)> = None;
        for candidate in self.candidates_of(id)? {
            let Some(path) = self.matching(local, candidate, kind)? else {
                continue;
            };
            let Some(value) = value(self.target, Some(&path), kind)? else {
                continue;
            };
            if let Some((first, first_path)) = &found {
                // What differs between them must not matter.
                if first.number != value.number || first_path.bits != path.bits {
                    return Err(CoreError::Ambiguous {
                        name: self.describe(local),
                        first: first_path.root,
                        second: path.root,
                    });
                }
                continue;
            }
            found = Some((value, path));
        }
        match found {
            Some((value, path)) => Ok(Some((value, Some(path.root)))),
            None => Ok(value(self.target, None, kind)?.map(|v| (v, None))),
        }
    }

    /// Types of the target of the same kind and name as local type `id`.
    fn candidates_of(&self, id: u32) -> Result<Vec<u32>, CoreError> {
        let Ok(own) = self.local.shape(id) else {
            return Ok(Vec::new());
        };
        let named = self.by_name.get(essential(self.local.name(id)));
        let mut found = Vec::new();
        for candidate in named.into_iter().flatten() {
            self.step()?;
            if same_kind(own, self.target.shape(*candidate)?) {
                found.push(*candidate);
            }
        }
        Ok(found)
    }

    fn step(&self) -> Result<(), CoreError> {
        let left = self.work.get().checked_sub(1).ok_or(CoreError::Work)?;
        self.work.set(left);
        Ok(())
    }

    /// Reads an access string against the object's own types.
    fn path(&self, id: u32, access: &str, kind: Kind) -> Result<Path, CoreError> {
        const BAD: CoreError = CoreError::Malformed("its access string does not fit its type");
        let mut indices = Vec::new();
        for part in access.split(':') {
            indices.push(part.parse::<u32>().map_err(|_| BAD)?);
        }
        let (first, rest) = indices.split_first().ok_or(BAD)?;
        if rest.len() >= STEPS_MAX {
            return Err(BAD);
        }
        let mut path = Path {
            root: id,
            steps: Vec::new(),
            bits: 0,
            value: 0,
        };
        if kind.is_type() {
            return if *first == 0 && rest.is_empty() {
                Ok(path)
            } else {
                Err(BAD)
            };
        }
        let btf = self.local;
        let mut at = btf.resolve(id)?;
        if kind.is_enumerator() {
            let values = btf.enumerators(at);
            let (name, value) = values
                .get(*first as usize)
                .filter(|_| rest.is_empty())
                .ok_or(BAD)?;
            path.value = *value as u64;
            path.steps.push(Step {
                type_id: at,
                index: *first,
                name: Some((*name).to_owned()),
            });
            return Ok(path);
        }
        path.bits = bits(*first, btf.size_of(at)?)?;
        path.steps.push(Step {
            type_id: at,
            index: *first,
            name: None,
        });
        for index in rest {
            match btf.shape(at)? {
                Shape::Struct { members, .. } => {
                    let member = members.get(*index as usize).ok_or(BAD)?;
                    let name = btf.string(member.name);
                    path.bits += u64::from(member.bit_offset);
                    if !name.is_empty() {
                        path.steps.push(Step {
                            type_id: at,
                            index: *index,
                            name: Some(name.to_owned()),
                        });
                    }
                    at = btf.resolve(member.type_id)?;
                }
                Shape::Array { element, count } => {
                    let element = btf.resolve(*element)?;
                    if *index >= *count && *count != 0 {
                        return Err(BAD);
                    }
                    path.bits += bits(*index, btf.size_of(element)?)?;
                    path.steps.push(Step {
                        type_id: element,
                        index: *index,
                        name: None,
                    });
                    at = element;
                }
                _ => return Err(BAD),
            }
        }
        Ok(path)
    }

    /// The same place in a candidate, if it has it.
    fn matching(
        &self,
        local: &Path,
        candidate: u32,
        kind: Kind,
    ) -> Result<Option<Path>, CoreError> {
        let mut path = Path {
            root: candidate,
            steps: Vec::new(),
            bits: 0,
            value: 0,
        };
        if kind.is_type() {
            let matches = if kind == Kind::TypeMatches {
                self.types_match(local.root, candidate, false, 0)?
            } else {
                self.compatible(local.root, candidate, 0)?
            };
            return Ok(matches.then_some(path));
        }
        let target = self.target;
        let mut at = target.resolve(candidate)?;
        if kind.is_enumerator() {
            let wanted = local.steps.first().and_then(|s| s.name.as_deref());
            let wanted = essential(wanted.unwrap_or_default());
            let values = target.enumerators(at);
            let found = values.iter().find(|(name, _)| essential(name) == wanted);
            return Ok(found.map(|(name, value)| {
                path.value = *value as u64;
                path.steps.push(Step {
                    type_id: at,
                    index: 0,
                    name: Some((*name).to_owned()),
                });
                path
            }));
        }
        for (number, step) in local.steps.iter().enumerate() {
            if let Some(name) = &step.name {
                let Some((member_at, index, bits)) = self.find_member(at, name, 0)? else {
                    return Ok(None);
                };
                let member = raw_member(target, member_at, index)?;
                let own = raw_member(self.local, step.type_id, step.index)?;
                if !self.fields_compatible(own.type_id, member.type_id, 0)? {
                    return Ok(None);
                }
                path.bits += bits;
                path.steps.push(Step {
                    type_id: member_at,
                    index,
                    name: Some(name.clone()),
                });
                at = target.resolve(member.type_id)?;
                continue;
            }
            if number > 0 {
                let Shape::Array { element, count } = target.shape(at)? else {
                    return Ok(None);
                };
                if step.index >= *count && *count != 0 {
                    return Ok(None);
                }
                at = target.resolve(*element)?;
            }
            let Ok(size) = target.size_of(at) else {
                return Ok(None);
            };
            path.bits += bits(step.index, size)?;
            path.steps.push(Step {
                type_id: at,
                index: step.index,
                name: None,
            });
        }
        Ok(Some(path))
    }

    /// Whether an access of the old size cannot become one of the new: only pointers and unsigned integers can.
    fn resized_badly(&self, old: &Value, new: &Value) -> bool {
        let (Some((old_size, old_type)), Some((new_size, new_type))) = (old.field, new.field)
        else {
            return false;
        };
        if old_size == new_size {
            return false;
        }
        let shapes = (
            self.local
                .resolve(old_type)
                .and_then(|t| self.local.shape(t)),
            self.target
                .resolve(new_type)
                .and_then(|t| self.target.shape(t)),
        );
        !matches!(
            shapes,
            (Ok(Shape::Pointer(_)), Ok(Shape::Pointer(_)))
                | (
                    Ok(Shape::Int { signed: false, .. }),
                    Ok(Shape::Int { signed: false, .. })
                )
        )
    }

    fn describe(&self, path: &Path) -> String {
        let mut text = match self.local.shape(path.root) {
            Ok(Shape::Struct { union: true, .. }) => "union ".to_owned(),
            Ok(Shape::Struct { .. }) => "struct ".to_owned(),
            Ok(Shape::Enum { .. }) => "enum ".to_owned(),
            _ => String::new(),
        };
        text.push_str(self.local.name(path.root));
        for step in &path.steps {
            match &step.name {
                Some(name) => {
                    text.push('.');
                    text.push_str(name);
                }
                None if step.index > 0 => text.push_str(&format!("[{}]", step.index)),
                None => {}
            }
        }
        text
    }
}

/// A name without its flavour: `sk_buff___old` is `sk_buff`. Exactly three underscores part the two.
fn essential(name: &str) -> &str {
    let bytes = name.as_bytes();
    let parted = |w: &[u8]| matches!(w, [a, b'_', b'_', b'_', z] if *a != b'_' && *z != b'_');
    match bytes.windows(5).rposition(parted) {
        Some(at) => name.get(..at + 1).unwrap_or(name),
        None => name,
    }
}

/// Offset in bits of element `index` of elements of `size` bytes.
fn bits(index: u32, size: u32) -> Result<u64, CoreError> {
    let far = CoreError::Malformed("it reaches beyond four gigabytes");
    let bytes = u64::from(index) * u64::from(size);
    u32::try_from(bytes)
        .map(|b| u64::from(b) * 8)
        .map_err(|_| far)
}

fn raw_member(btf: &Btf, id: u32, index: u32) -> Result<&crate::btf::RawMember, CoreError> {
    match btf.shape(id)? {
        Shape::Struct { members, .. } => members
            .get(index as usize)
            .ok_or(CoreError::Malformed("it names a member that is not there")),
        _ => Err(CoreError::Malformed(
            "it names a member of something else than a struct",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavours() {
        assert_eq!(essential("sk_buff___old"), "sk_buff");
        assert_eq!(essential("sk_buff"), "sk_buff");
        assert_eq!(essential("___x"), "___x");
        assert_eq!(essential("x___"), "x___");
        assert_eq!(essential("a___b___c"), "a___b");
        assert_eq!(essential("a____b"), "a____b");
    }

    /// Type information of structs only: (name, members by type id).
    fn structs(all: &[(&str, &[(&str, u32)])]) -> Btf {
        let (mut types, mut strings) = (Vec::<u32>::new(), vec![0u8]);
        let mut text = |s: &str| {
            let at = if s.is_empty() {
                0
            } else {
                strings.len() as u32
            };
            if at != 0 {
                strings.extend_from_slice(s.as_bytes());
                strings.push(0);
            }
            at
        };
        for (name, members) in all {
            types.extend([text(name), (4 << 24) | members.len() as u32, 4]);
            for (member, id) in *members {
                types.extend([text(member), *id, 0]);
            }
        }
        let length = types.len() as u32 * 4;
        let mut bytes = vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
        for word in [0, length, length, strings.len() as u32]
            .into_iter()
            .chain(types)
        {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.append(&mut strings);
        Btf::parse(&bytes).expect("well-formed")
    }

    #[test]
    fn types_that_nest_for_ever_are_given_up() {
        // Each struct has the one before twice, under names that match last: 2^30 comparisons.
        let names: Vec<String> = (0..31).map(|i| format!("s{i}")).collect();
        let members: Vec<[(&str, u32); 2]> = (0..31).map(|i| [("a", i), ("b", i)]).collect();
        let all: Vec<(&str, &[(&str, u32)])> = names
            .iter()
            .zip(&members)
            .enumerate()
            .map(|(i, (n, m))| (n.as_str(), if i == 0 { &[][..] } else { &m[..] }))
            .collect();
        let btf = structs(&all);
        let resolver = Resolver::new(&btf, &btf);
        assert_eq!(resolver.types_match(31, 31, false, 0), Err(CoreError::Work));
        // The same through anonymous members.
        let members: Vec<[(&str, u32); 2]> = (0..31).map(|i| [("", i), ("", i)]).collect();
        let all: Vec<(&str, &[(&str, u32)])> = names
            .iter()
            .zip(&members)
            .enumerate()
            .map(|(i, (n, m))| (n.as_str(), if i == 0 { &[][..] } else { &m[..] }))
            .collect();
        let btf = structs(&all);
        let resolver = Resolver::new(&btf, &btf);
        assert_eq!(resolver.find_member(31, "none", 0), Err(CoreError::Work));
    }
}
