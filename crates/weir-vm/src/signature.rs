//! Prototypes of kernel functions, as type information describes them.
//!
//! Owns the reading of a BTF prototype: what a parameter points to, and what the endings of parameter names say
//! (Documentation/bpf/kfuncs.rst). Who may call a function, and its flags, are in the catalogue. Invariant: a prototype
//! that cannot be read completely is no signature.

use crate::btf::{Btf, Shape};
use crate::catalogue::parameter_name;

/// Structs in structs that are looked into for members that are not numbers, as in the kernel.
const NESTED_MAX: usize = 4;
/// Members looked at, all in all: more means hostile input.
pub(crate) const MEMBERS_MAX: usize = 10_000;

/// What a kernel function takes and returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) result: Value,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) value: Value,
}

/// The type of a parameter or result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nothing,
    Number,
    Pointer(Target),
}

/// What a pointer points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Nothing,
    /// A number, or a struct of numbers, of this many bytes.
    Plain {
        name: String,
        id: u32,
        size: u32,
    },
    /// Another struct, or one that is declared only.
    Struct {
        name: String,
        id: u32,
    },
    Function,
    Other,
}

/// What an argument's type promises a global function of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Any number.
    Number,
    /// The context.
    Context,
    /// This many bytes, or null where that may be.
    Memory { size: u32, or_null: bool },
    /// A dynptr, which the function only reads.
    Dynptr,
    /// A trusted kernel object, or null where that may be.
    Object { name: String, or_null: bool },
}

impl Parameter {
    /// Whether the name ends so, behind two underscores.
    pub(crate) fn ends(&self, ending: &str) -> bool {
        let rest = self.name.strip_suffix(ending);
        rest.is_some_and(|rest| rest.ends_with("__"))
    }

    /// Whether it points to a struct of this name.
    pub(crate) fn points_to(&self, wanted: &str) -> bool {
        match &self.value {
            Value::Pointer(target) => target.name() == Some(wanted),
            _ => false,
        }
    }

    /// Whether it is the length of the memory before it.
    pub(crate) fn is_size(&self) -> bool {
        self.value == Value::Number && (self.ends("sz") || self.ends("szk"))
    }
}

impl Target {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Target::Plain { name, .. } | Target::Struct { name, .. } => Some(name),
            _ => None,
        }
    }
}

impl Signature {
    /// The prototype of function `name` in these types.
    pub(crate) fn of(btf: &Btf, name: &str) -> Option<Signature> {
        let id = btf.prototype_of(name)?;
        let Shape::Prototype {
            returns,
            parameters,
            ..
        } = btf.shape(id).ok()?
        else {
            return None;
        };
        let names = btf.parameter_names(id);
        let read = |(index, (id, own)): (usize, (&u32, &str))| {
            let known = if own.is_empty() {
                parameter_name(name, index).unwrap_or("")
            } else {
                own
            };
            Some(Parameter {
                name: known.to_owned(),
                value: value(btf, *id)?,
            })
        };
        let both = parameters.iter().zip(names).enumerate();
        let parameters: Option<Vec<_>> = both.map(read).collect();
        Some(Signature {
            parameters: parameters.filter(|p| p.len() <= 5)?,
            result: value(btf, *returns)?,
        })
    }
}

fn value(btf: &Btf, id: u32) -> Option<Value> {
    let id = btf.resolve(id).ok()?;
    Some(match btf.shape(id).ok()? {
        Shape::Void => Value::Nothing,
        Shape::Int { .. } | Shape::Enum { .. } => Value::Number,
        Shape::Pointer(target) => Value::Pointer(target_of(btf, *target)?),
        _ => return None,
    })
}

fn target_of(btf: &Btf, id: u32) -> Option<Target> {
    let id = btf.resolve(id).ok()?;
    let name = || btf.name(id).to_owned();
    Some(match btf.shape(id).ok()? {
        Shape::Void => Target::Nothing,
        Shape::Int { size, .. } | Shape::Enum { size, .. } => Target::Plain {
            name: name(),
            id,
            size: *size,
        },
        Shape::Struct { size, .. } if *size > 0 && is_plain(btf, id, 0, &mut 0) => Target::Plain {
            name: name(),
            id,
            size: *size,
        },
        Shape::Struct { .. } | Shape::Forward { .. } => Target::Struct { name: name(), id },
        Shape::Prototype { .. } => Target::Function,
        _ => Target::Other,
    })
}

/// Whether a struct holds nothing but numbers, structs of them and arrays of them.
fn is_plain(btf: &Btf, id: u32, depth: usize, seen: &mut usize) -> bool {
    if depth >= NESTED_MAX {
        return false;
    }
    let Ok(members) = btf.members(id) else {
        return false;
    };
    members.iter().all(|member| {
        *seen += 1;
        if *seen > MEMBERS_MAX {
            return false;
        }
        let Ok(id) = btf.resolve(member.type_id) else {
            return false;
        };
        match btf.shape(id) {
            Ok(Shape::Struct { .. }) => is_plain(btf, id, depth + 1, seen),
            Ok(Shape::Array { element, count }) => *count > 0 && is_number(btf, *element),
            _ => is_number(btf, id),
        }
    })
}

fn is_number(btf: &Btf, id: u32) -> bool {
    let shape = btf.resolve(id).and_then(|id| btf.shape(id));
    matches!(shape, Ok(Shape::Int { .. } | Shape::Enum { .. }))
}
