//! Whether a type of the target may stand for one of the object, and where its members are.
//!
//! Three degrees, as in libbpf: fields that may be read alike, types of the same shape, types that have all the other has. Types are followed
//! to a bounded depth, and each step counts against the object's budget.

use super::{CoreError, DEPTH, Resolver, essential};
use crate::btf::Shape;

impl Resolver<'_> {
    /// The member of a target type called `name`, also inside anonymous members: its struct, its index, and its offset in bits.
    pub(super) fn find_member(
        &self,
        id: u32,
        name: &str,
        depth: usize,
    ) -> Result<Option<(u32, u32, u64)>, CoreError> {
        let btf = self.target;
        let id = btf.resolve(id)?;
        let Shape::Struct { members, .. } = btf.shape(id)? else {
            return Ok(None);
        };
        if depth > DEPTH {
            return Ok(None);
        }
        for (member, index) in members.iter().zip(0u32..) {
            self.step()?;
            let own = btf.string(member.name);
            if own == name {
                return Ok(Some((id, index, u64::from(member.bit_offset))));
            }
            if own.is_empty()
                && let Some((at, index, bits)) =
                    self.find_member(member.type_id, name, depth + 1)?
            {
                return Ok(Some((at, index, bits + u64::from(member.bit_offset))));
            }
        }
        Ok(None)
    }

    /// Whether a field of one type may stand for one of the other.
    pub(super) fn fields_compatible(
        &self,
        local: u32,
        target: u32,
        depth: usize,
    ) -> Result<bool, CoreError> {
        let (local, target) = (self.local.resolve(local)?, self.target.resolve(target)?);
        let (own, other) = (self.local.shape(local)?, self.target.shape(target)?);
        self.step()?;
        if let (Shape::Struct { .. }, Shape::Struct { .. }) = (own, other) {
            return Ok(true);
        }
        if !same_kind(own, other) {
            return Ok(false);
        }
        Ok(match (own, other) {
            (Shape::Pointer(_), _) | (Shape::Float { .. }, _) | (Shape::Int { .. }, _) => true,
            (Shape::Forward { .. } | Shape::Enum { .. }, _) => {
                let (a, b) = (self.local.name(local), self.target.name(target));
                a.is_empty() || b.is_empty() || essential(a) == essential(b)
            }
            (Shape::Array { element: a, .. }, Shape::Array { element: b, .. }) => {
                depth < DEPTH && self.fields_compatible(*a, *b, depth + 1)?
            }
            _ => false,
        })
    }

    /// Whether two types have the same shape, names of what they are made of aside.
    pub(super) fn compatible(
        &self,
        local: u32,
        target: u32,
        depth: usize,
    ) -> Result<bool, CoreError> {
        let (local, target) = (self.local.resolve(local)?, self.target.resolve(target)?);
        let (own, other) = (self.local.shape(local)?, self.target.shape(target)?);
        self.step()?;
        if depth > DEPTH || !same_kind(own, other) {
            return Ok(false);
        }
        Ok(match (own, other) {
            (Shape::Pointer(a), Shape::Pointer(b)) => self.compatible(*a, *b, depth + 1)?,
            (Shape::Array { element: a, .. }, Shape::Array { element: b, .. }) => {
                self.compatible(*a, *b, depth + 1)?
            }
            (
                Shape::Prototype {
                    returns: a,
                    parameters: own,
                    ..
                },
                Shape::Prototype {
                    returns: b,
                    parameters: other,
                    ..
                },
            ) => {
                if own.len() != other.len() {
                    return Ok(false);
                }
                for (a, b) in own.iter().zip(other) {
                    if !self.compatible(*a, *b, depth + 1)? {
                        return Ok(false);
                    }
                }
                self.compatible(*a, *b, depth + 1)?
            }
            (
                Shape::Void
                | Shape::Struct { .. }
                | Shape::Enum { .. }
                | Shape::Forward { .. }
                | Shape::Int { .. },
                _,
            ) => true,
            _ => false,
        })
    }

    /// Whether the target has all that the local type has, names included (`bpf_core_type_matches`).
    pub(super) fn types_match(
        &self,
        local: u32,
        target: u32,
        behind_pointer: bool,
        depth: usize,
    ) -> Result<bool, CoreError> {
        let (local, target) = (self.local.resolve(local)?, self.target.resolve(target)?);
        if depth > DEPTH || essential(self.local.name(local)) != essential(self.target.name(target))
        {
            return Ok(false);
        }
        let (own, other) = (self.local.shape(local)?, self.target.shape(target)?);
        self.step()?;
        let is_struct = |s: &Shape| matches!(s, Shape::Struct { .. } | Shape::Forward { .. });
        let union = |s: &Shape| {
            matches!(
                s,
                Shape::Struct { union: true, .. } | Shape::Forward { union: true }
            )
        };
        if behind_pointer && is_struct(own) && is_struct(other) {
            return Ok(union(own) == union(other));
        }
        if !same_kind(own, other) {
            return Ok(false);
        }
        Ok(match (own, other) {
            (Shape::Void, _) | (Shape::Forward { .. }, _) => union(own) == union(other),
            (
                Shape::Int {
                    size: a, signed: s, ..
                },
                Shape::Int {
                    size: b, signed: t, ..
                },
            ) => a == b && s == t,
            (Shape::Enum { .. }, Shape::Enum { .. }) if behind_pointer => true,
            (Shape::Enum { size: a, .. }, Shape::Enum { size: b, .. }) => {
                let others = self.target.enumerators(target);
                a == b
                    && self.local.enumerators(local).iter().all(|(name, _)| {
                        let mut others = others.iter();
                        others.any(|(other, _)| essential(other) == essential(name))
                    })
            }
            (Shape::Pointer(a), Shape::Pointer(b)) => self.types_match(*a, *b, true, depth + 1)?,
            (
                Shape::Array { element: a, count },
                Shape::Array {
                    element: b,
                    count: other,
                },
            ) => count == other && self.types_match(*a, *b, behind_pointer, depth + 1)?,
            (
                Shape::Prototype {
                    returns: a,
                    parameters: own,
                    ..
                },
                Shape::Prototype {
                    returns: b,
                    parameters: other,
                    ..
                },
            ) => {
                if own.len() != other.len() {
                    return Ok(false);
                }
                for (a, b) in own.iter().zip(other) {
                    if !self.types_match(*a, *b, behind_pointer, depth + 1)? {
                        return Ok(false);
                    }
                }
                self.types_match(*a, *b, behind_pointer, depth + 1)?
            }
            (Shape::Struct { members: own, .. }, Shape::Struct { members: other, .. }) => {
                if own.len() > other.len() {
                    return Ok(false);
                }
                for member in own {
                    let name = essential(self.local.string(member.name));
                    let mut found = false;
                    for candidate in other {
                        if essential(self.target.string(candidate.name)) == name
                            && self.types_match(
                                member.type_id,
                                candidate.type_id,
                                behind_pointer,
                                depth + 1,
                            )?
                        {
                            found = true;
                            break;
                        }
                    }
                    if !found {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }
}

/// Whether two types are of one kind; of structs, unions and enumerations nothing else is asked.
pub(super) fn same_kind(a: &Shape, b: &Shape) -> bool {
    match (a, b) {
        (Shape::Struct { union: a, .. }, Shape::Struct { union: b, .. }) => a == b,
        // A qualifier cannot be a root; it has no name.
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}
