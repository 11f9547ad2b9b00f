//! Global functions: verified once, by what the types of their arguments promise.
//!
//! Owns the contract between a call of a global function and its body. Invariant: the body is walked with no more than
//! every call is checked to supply.

use super::access::Mode;
use super::helpers::Hook;
use super::rejection::{Birth, Rule, ValueKind};
use super::state::Reg;
use super::walk::{Step, Walk, stop, stop_at};
use crate::btf::{Btf, Shape};

/// What an argument's type promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// Any number.
    Number,
    /// The context.
    Context,
    /// Null, or this many bytes.
    Memory(u32),
}

impl Walk<'_> {
    /// What a global function may assume of its arguments.
    pub(super) fn global_arguments(&mut self, function: usize) -> Step<[Option<Reg>; 5]> {
        let promises = self.promises(function)?;
        let mut arguments = [None; 5];
        for (argument, promise) in arguments.iter_mut().zip(promises) {
            let reg = match promise {
                Promise::Number => Reg::unknown(Birth::Entry, self.at),
                Promise::Context => Reg::pointer(ValueKind::Context, Birth::Entry, self.at),
                Promise::Memory(size) => {
                    let mut reg = Reg::pointer(ValueKind::Memory, Birth::Entry, self.at);
                    reg.range = i32::try_from(size).unwrap_or(0);
                    reg.or_null = true;
                    reg.id = self.new_id();
                    reg
                }
            };
            *argument = Some(reg);
        }
        Ok(arguments)
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
                Promise::Memory(_) if reg.is_null() => self.precise(register),
                Promise::Memory(size) => {
                    if !reg.is_pointer() {
                        return wrong("a pointer to memory");
                    }
                    // The function checks for null itself.
                    self.state.reg_mut(register).or_null = false;
                    let size = i64::from(size);
                    self.check_argument_memory(register, size, Mode::Read, false, true)?;
                    self.check_argument_memory(register, size, Mode::Write, false, true)?;
                    self.state.reg_mut(register).or_null = reg.or_null;
                }
            }
        }
        Ok(())
    }

    fn promises(&self, function: usize) -> Step<Vec<Promise>> {
        let start = self.layout.functions[function].start;
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
            },
        )) = self.code.global_prototype(start)
        else {
            return refused(0);
        };
        if promise(btf, *returns, self.hook) != Some(Promise::Number) {
            return refused(0);
        }
        if parameters.len() > 5 {
            return refused(6);
        }
        let mut promises = Vec::with_capacity(parameters.len());
        for (parameter, number) in parameters.iter().zip(1u8..) {
            match promise(btf, *parameter, self.hook) {
                Some(promise) => promises.push(promise),
                None => return refused(number),
            }
        }
        Ok(promises)
    }
}

/// What a type promises, if it can be checked.
fn promise(btf: &Btf, id: u32, hook: Hook) -> Option<Promise> {
    let id = btf.resolve(id).ok()?;
    match btf.shape(id).ok()? {
        Shape::Int { .. } | Shape::Enum { .. } => {
            (btf.size_of(id).ok()? <= 8).then_some(Promise::Number)
        }
        Shape::Pointer(target) => {
            let target = btf.resolve(*target).ok()?;
            if btf.name(target) == hook.context()
                && matches!(btf.shape(target), Ok(Shape::Struct { .. }))
            {
                return Some(Promise::Context);
            }
            let size = btf.size_of(target).ok().filter(|s| *s > 0)?;
            Some(Promise::Memory(size))
        }
        _ => None,
    }
}
