//! Global functions: verified once, by what the types of their arguments promise.
//!
//! Owns the contract between a call of a global function and its body. Invariant: the body is walked with no more than
//! every call is checked to supply.

use super::helpers::Hook;
use super::object::Trust;
use super::rejection::{Birth, Rule, ValueKind};
use super::state::Reg;
use super::walk::{Step, Walk, stop, stop_at};
use crate::btf::{Btf, Shape};
use crate::catalogue::DynptrKind;
use crate::signature::Promise;

/// What messages name where a helper is named otherwise.
const CALL: &str = "call of a global function";

impl Walk<'_> {
    /// What a global function may assume of its arguments.
    pub(super) fn global_arguments(&mut self, function: usize) -> Step<[Option<Reg>; 5]> {
        let promises = self.promises(function)?;
        let mut arguments = [None; 5];
        for (argument, promise) in arguments.iter_mut().zip(promises) {
            let reg = match promise {
                Promise::Number => Reg::unknown(Birth::Entry, self.at),
                Promise::Context => Reg::pointer(ValueKind::Context, Birth::Entry, self.at),
                Promise::Memory { size, or_null } => {
                    let mut reg = Reg::pointer(ValueKind::Memory, Birth::Entry, self.at);
                    reg.range = i32::try_from(size).unwrap_or(0);
                    self.perhaps(reg, or_null)
                }
                Promise::Dynptr => self.lent_dynptr(DynptrKind::Local),
                Promise::Object { name, or_null } => {
                    let reg = self.object(&name, Trust::Trusted, Birth::Entry);
                    self.perhaps(reg, or_null)
                }
            };
            *argument = Some(reg);
        }
        Ok(arguments)
    }

    fn perhaps(&mut self, mut reg: Reg, or_null: bool) -> Reg {
        if or_null {
            reg.or_null = true;
            reg.id = self.new_id();
        }
        reg
    }

    /// Whether a call supplies what the function assumes.
    pub(super) fn check_global_arguments(&mut self, function: usize) -> Step<()> {
        let promises = self.promises(function)?;
        for (promise, register) in promises.into_iter().zip(1u8..) {
            let reg = *self.readable(register)?;
            let wrong = |expected| {
                stop_at(
                    register,
                    Rule::FunctionArgument {
                        function: self.layout.functions[function].name.clone(),
                        argument: register,
                        expected,
                        found: reg.kind,
                    },
                )
            };
            match promise {
                Promise::Number if !reg.is_number() => return wrong("a number"),
                Promise::Number => {}
                Promise::Context if reg.kind != ValueKind::Context => {
                    return wrong("the context");
                }
                Promise::Context => self.check_unmoved(register, &reg)?,
                Promise::Memory { .. } if reg.is_null() => self.precise(register),
                Promise::Memory { size, or_null } => {
                    if !reg.is_pointer() || (reg.or_null && !or_null) {
                        return wrong("a pointer to memory");
                    }
                    self.lent_memory(register, i64::from(size))?;
                }
                Promise::Dynptr => {
                    self.made_dynptr(CALL, register)?;
                }
                Promise::Object { or_null: true, .. } if reg.is_null() => self.precise(register),
                Promise::Object { name, or_null } => {
                    let lent = Reg {
                        or_null: reg.or_null && !or_null,
                        ..reg
                    };
                    self.object_of(CALL, register, &lent, &name)?;
                }
            }
        }
        Ok(())
    }

    /// What the parameters' types promise; read once for each function.
    fn promises(&mut self, function: usize) -> Step<Vec<Promise>> {
        if let Some((_, known)) = self.promised.iter().find(|(f, _)| *f == function) {
            return Ok(known.clone());
        }
        let promises = self.read_promises(function)?;
        self.promised.push((function, promises.clone()));
        Ok(promises)
    }

    fn read_promises(&self, function: usize) -> Step<Vec<Promise>> {
        let start = self.layout.functions[function].start;
        let function_type = self.code.function_type(start).unwrap_or(0);
        let refused = |argument| {
            stop(Rule::FunctionSignature {
                function: self.layout.functions[function].name.clone(),
                argument,
            })
        };
        let Some((
            btf,
            Shape::Prototype {
                returns,
                parameters,
                ..
            },
        )) = self.code.global_prototype(start)
        else {
            return refused(0);
        };
        if promise(btf, *returns, &[], self.hook) != Some(Promise::Number) {
            return refused(0);
        }
        if parameters.len() > 5 {
            return refused(6);
        }
        let mut promises = Vec::with_capacity(parameters.len());
        for (parameter, number) in parameters.iter().zip(1u8..) {
            let tags: Vec<&str> = btf
                .tags(function_type, i32::from(number) - 1)
                .into_iter()
                .filter_map(|tag| tag.strip_prefix("arg:"))
                .collect();
            match promise(btf, *parameter, &tags, self.hook) {
                Some(promise) => promises.push(promise),
                None => return refused(number),
            }
        }
        Ok(promises)
    }
}

/// What a type promises with the tags of its parameter, if it can be checked.
fn promise(btf: &Btf, id: u32, tags: &[&str], hook: Hook) -> Option<Promise> {
    let id = btf.resolve(id).ok()?;
    let target = match btf.shape(id).ok()? {
        Shape::Int { .. } | Shape::Enum { .. } if tags.is_empty() => {
            return (btf.size_of(id).ok()? <= 8).then_some(Promise::Number);
        }
        Shape::Pointer(target) => btf.resolve(*target).ok()?,
        _ => return None,
    };
    let name = btf.name(target);
    let context = name == hook.context() && matches!(btf.shape(target), Ok(Shape::Struct { .. }));
    if context || tags.contains(&"ctx") {
        return (context && tags.iter().all(|tag| *tag == "ctx")).then_some(Promise::Context);
    }
    if matches!(name, "bpf_dynptr" | "bpf_dynptr_kern") {
        return tags.is_empty().then_some(Promise::Dynptr);
    }
    if tags.contains(&"trusted") {
        let or_null = tags.contains(&"nullable");
        let known = tags
            .iter()
            .all(|tag| matches!(*tag, "trusted" | "nullable"));
        // Behind three underscores a program tells its own declarations of a struct apart.
        let name = name.split_once("___").map_or(name, |(name, _)| name);
        let name = name.to_owned();
        return (known && !name.is_empty()).then_some(Promise::Object { name, or_null });
    }
    let or_null = !tags.contains(&"nonnull");
    let known = tags.iter().all(|tag| *tag == "nonnull");
    let size = btf.size_of(target).ok().filter(|s| *s > 0)?;
    known.then_some(Promise::Memory { size, or_null })
}
