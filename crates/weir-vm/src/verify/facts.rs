//! What the walk learned about each operation, for those who translate the program.
//!
//! Owns [`Facts`]. Invariant: a fact holds on every path of every run of the program; where paths differ there is none.

use std::ops::Range;

use super::rejection::ValueKind;

/// Facts about a verified program, by operation of the linked code.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Operation of the first of `ops`.
    base: usize,
    ops: Vec<OpFacts>,
}

/// Facts about one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpFacts {
    /// A path comes here. Operations without one are never executed.
    pub reached: bool,
    /// Of a conditional jump: paths go on behind it.
    pub falls_through: bool,
    /// Of a conditional jump: paths take it.
    pub jumps: bool,
    /// What a load, store or atomic operation accesses.
    pub access: Access,
    /// The one map a helper call works on.
    pub map: OneOf<usize>,
    /// r3 of a call: the index of a tail call.
    pub index: OneOf<u64>,
}

/// What an operation's memory access goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// No path comes here.
    #[default]
    None,
    /// Always memory of this kind; of map values, always this map's (`None`: of several). Of sockets, their kind.
    One(ValueKind, Option<usize>),
    /// Different kinds on different paths.
    Several,
}

/// A value that is the same on all paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OneOf<T> {
    /// No path comes here.
    #[default]
    None,
    /// Always this.
    One(T),
    /// Unknown, or not the same on all paths.
    Several,
}

impl<T: Copy + PartialEq> OneOf<T> {
    /// The value, if it is always the same.
    pub fn get(self) -> Option<T> {
        match self {
            OneOf::One(value) => Some(value),
            OneOf::None | OneOf::Several => None,
        }
    }

    pub(super) fn add(&mut self, value: Option<T>) {
        *self = match (*self, value) {
            (OneOf::None, Some(v)) => OneOf::One(v),
            (OneOf::One(old), Some(v)) if old == v => OneOf::One(v),
            _ => OneOf::Several,
        };
    }
}

impl Facts {
    /// Nothing about these operations yet.
    pub(super) fn new(ops: Range<usize>) -> Facts {
        Facts {
            base: ops.start,
            ops: vec![OpFacts::default(); ops.len()],
        }
    }

    /// Facts about the operation `op`.
    pub fn op(&self, op: usize) -> OpFacts {
        let facts = self.ops.get(op.wrapping_sub(self.base));
        facts.copied().unwrap_or_default()
    }

    pub(super) fn op_mut(&mut self, op: usize) -> Option<&mut OpFacts> {
        self.ops.get_mut(op.wrapping_sub(self.base))
    }

    pub(super) fn access(&mut self, op: usize, kind: ValueKind, map: Option<usize>) {
        let Some(facts) = self.op_mut(op) else {
            return;
        };
        facts.access = match facts.access {
            Access::None => Access::One(kind, map),
            Access::One(old, _) if old != kind => Access::Several,
            Access::One(_, old) => Access::One(kind, if old == map { map } else { None }),
            Access::Several => Access::Several,
        };
    }
}
