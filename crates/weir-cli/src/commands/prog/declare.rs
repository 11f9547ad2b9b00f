//! BTF types as they would be declared in C.
//!
//! Owns text only; qualifiers are left out, because maps do not care. Invariant: output is bounded, whatever the types refer to.

use std::fmt::Write as _;

use weir_vm::Btf;
use weir_vm::btf::Shape;

/// Longest chain of pointers, arrays and typedefs, and deepest nesting of anonymous structs, that is shown.
const DEPTH: usize = 16;

/// The name of a type, such as `struct flow`, `__u32` or `char[16]`.
pub(super) fn name(btf: &Btf, id: u32) -> String {
    declarator(btf, id, String::new(), 0)
}

/// A declaration of `variable`, such as `__u8 address[6]`.
pub(super) fn variable(btf: &Btf, id: u32, variable: &str) -> String {
    declarator(btf, id, variable.to_owned(), 0)
}

/// The members of a struct or union, one a line with their offsets in bytes; nothing for other types.
pub(super) fn members(btf: &Btf, id: u32, indent: usize) -> String {
    let mut text = String::new();
    lines(btf, id, 0, indent, 0, &mut text);
    text
}

fn lines(btf: &Btf, id: u32, base: u32, indent: usize, depth: usize, text: &mut String) {
    let Ok(members) = btf.members(id) else {
        return;
    };
    for member in members {
        let at = base.saturating_add(member.bit_offset);
        let resolved = btf.resolve(member.type_id);
        let anonymous = resolved
            .as_ref()
            .is_ok_and(|id| btf.name(*id).is_empty() && btf.members(*id).is_ok());
        let bits = match (member.bit_width, at % 8) {
            (0, _) => String::new(),
            (width, first) => format!(" : {width} (from bit {first})"),
        };
        let declared = variable(btf, member.type_id, &member.name);
        let _ = writeln!(text, "{:indent$}{:>4}  {declared}{bits}", "", at / 8);
        if let (true, Ok(inner)) = (anonymous && depth < DEPTH, resolved) {
            lines(btf, inner, at, indent + 2, depth + 1, text);
        }
    }
}

fn declarator(btf: &Btf, id: u32, inner: String, depth: usize) -> String {
    let with = |base: String| match inner.chars().next() {
        None => base,
        Some('[') => format!("{base}{inner}"),
        Some(_) => format!("{base} {inner}"),
    };
    let Ok(shape) = btf.shape(id) else {
        return with(format!("type {id}"));
    };
    if depth > DEPTH {
        return with("...".to_owned());
    }
    let tagged = |tag: &str| match btf.name(id) {
        "" => tag.to_owned(),
        name => format!("{tag} {name}"),
    };
    match shape {
        Shape::Void => with("void".to_owned()),
        Shape::Struct { union, .. } => with(tagged(if *union { "union" } else { "struct" })),
        Shape::Forward { union } => with(tagged(if *union { "union" } else { "struct" })),
        Shape::Enum { .. } => with(tagged("enum")),
        Shape::Alias(target) | Shape::Variable { target, .. } => {
            declarator(btf, *target, inner, depth + 1)
        }
        Shape::Pointer(target) => declarator(btf, *target, format!("*{inner}"), depth + 1),
        Shape::Array { element, count } => {
            let inner = match inner.starts_with('*') {
                true => format!("({inner})[{count}]"),
                false => format!("{inner}[{count}]"),
            };
            declarator(btf, *element, inner, depth + 1)
        }
        Shape::Prototype { returns, .. } => {
            declarator(btf, *returns, format!("({inner})()"), depth + 1)
        }
        _ => with(btf.name(id).to_owned()),
    }
}
