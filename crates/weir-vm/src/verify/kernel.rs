//! Calls of kernel functions: what their prototypes and flags demand of the arguments, and what comes back.
//!
//! Owns the rules that Linux 6.18 derives from a BTF prototype, from the endings of parameter names, and from the flags of
//! the catalogue. Iterators and dynptrs have files of their own. Invariant: a parameter that none of the rules describes
//! rejects the call.

use super::access::Mode;
use super::dynptr::Dynptr;
use super::object::{self, Trust};
use super::rejection::{Birth, Rule, ValueKind};
use super::socket::SocketKind;
use super::state::{Held, Reg};
use super::walk::{Next, Step, Walk, stop, stop_at};
use crate::catalogue::{Effect, KERNEL_FUNCTION, KernelFunction, flags};
use crate::signature::{Parameter, Signature, Target, Value};

/// What the arguments of a call said.
#[derive(Debug, Default)]
struct Facts {
    /// The reference that an argument carries, and the argument.
    reference: Option<(u32, u8)>,
    /// A constant argument.
    constant: Option<u64>,
    dynptr: Option<Dynptr>,
    /// Size of the memory returned, and whether it is read-only.
    returned: Option<(u64, bool)>,
}

impl<'m> Walk<'m> {
    /// A call of kernel function `number`.
    pub(super) fn kernel_function(
        &mut self,
        number: u32,
        function: &'static KernelFunction,
    ) -> Step<Next> {
        let (at, name) = (self.at, function.name);
        let Some(signature) = self.code.signatures.get(&number) else {
            return self.unknown(name);
        };
        self.check_callable(number, function)?;
        let facts = self.function_arguments(function, signature)?;
        match function.effect {
            Effect::RcuLock
            | Effect::RcuUnlock
            | Effect::PreemptDisable
            | Effect::PreemptEnable => {
                self.section(function)?;
            }
            Effect::Throw => {
                self.check_nothing_open()?;
                return Ok(Next::End);
            }
            _ => {}
        }
        if function.has(flags::RELEASE) {
            match facts.reference {
                Some((id, register)) => {
                    if !self.state.release(id, at) {
                        return stop_at(
                            register,
                            Rule::NotHeld {
                                helper: name,
                                register,
                            },
                        );
                    }
                }
                None => {
                    return stop_at(
                        1,
                        Rule::NotHeld {
                            helper: name,
                            register: 1,
                        },
                    );
                }
            }
        }
        if function.has(flags::ITER_NEXT) {
            return self.next_item(function, signature);
        }
        if function.has(flags::ITER_DESTROY) {
            self.destroy(function, signature)?;
        }
        self.state.clobber(at);
        if function.has(flags::MOVES_PACKET) {
            self.state.forget_packet(at);
        }
        let result = self.function_result(number, function, &signature.result, &facts)?;
        self.state.set(0, result);
        Ok(Next::Go(at as usize + 1))
    }

    fn check_callable(&self, number: u32, function: &'static KernelFunction) -> Step<()> {
        use super::helpers::Hook;
        let name = function.name;
        let offered = match self.hook {
            Hook::Xdp => function.xdp,
            Hook::Tc => function.tc,
        };
        if !offered {
            return stop(Rule::UnknownHelper {
                number: number & !KERNEL_FUNCTION,
                name,
                hook: self.hook.name(),
            });
        }
        if self.code.is_restricted(self.at as usize) {
            return stop(Rule::License { helper: name });
        }
        // Under a spin lock there are iterators over numbers only.
        let counts = name.starts_with("iter_num_");
        if let Some(lock) = self.state.lock.filter(|_| !counts) {
            return stop(Rule::CallUnderLock {
                taken_at: lock.at as usize,
            });
        }
        if function.has(flags::SLEEPABLE) {
            return stop(Rule::Sleepable { function: name });
        }
        match function.effect {
            Effect::Undescribed | Effect::DeviceBound => stop(Rule::Undescribed { function: name }),
            _ => Ok(()),
        }
    }

    fn function_arguments(
        &mut self,
        function: &'static KernelFunction,
        signature: &'m Signature,
    ) -> Step<Facts> {
        let mut facts = Facts::default();
        let mut sized = false;
        for (index, (parameter, register)) in signature.parameters.iter().zip(1u8..).enumerate() {
            // The length of the memory before it was checked with that.
            if std::mem::take(&mut sized) {
                continue;
            }
            if parameter.ends("ign") {
                continue;
            }
            match &parameter.value {
                Value::Nothing => return self.wrong_argument(function, register, "nothing"),
                Value::Number => self.number_argument(function, parameter, register, &mut facts)?,
                Value::Pointer(target) => {
                    let next = signature.parameters.get(index + 1);
                    let size = next.filter(|next| next.is_size());
                    let pointer = Pointer {
                        parameter,
                        target,
                        size,
                        index,
                    };
                    sized = self.pointer_argument(function, &pointer, register, &mut facts)?;
                }
            }
        }
        Ok(facts)
    }

    fn number_argument(
        &mut self,
        function: &'static KernelFunction,
        parameter: &Parameter,
        register: u8,
        facts: &mut Facts,
    ) -> Step<()> {
        let reg = *self.readable(register)?;
        if !reg.is_number() {
            return self.wrong_argument(function, register, "a number");
        }
        let returned = match parameter.name.as_str() {
            "rdonly_buf_size" => Some(true),
            "rdwr_buf_size" => Some(false),
            _ => None,
        };
        if !parameter.ends("k") && returned.is_none() {
            return Ok(());
        }
        let Some(value) = reg.num.value() else {
            return stop_at(
                register,
                Rule::ConstantRequired {
                    helper: function.name,
                    register,
                },
            );
        };
        self.precise(register);
        match returned {
            Some(read_only) => facts.returned = Some((value, read_only)),
            None => facts.constant = Some(value),
        }
        Ok(())
    }

    /// Whether the next argument, the memory's length, is checked with this one.
    fn pointer_argument(
        &mut self,
        function: &'static KernelFunction,
        pointer: &Pointer<'_>,
        register: u8,
        facts: &mut Facts,
    ) -> Step<bool> {
        let (parameter, name) = (pointer.parameter, function.name);
        let reg = *self.readable(register)?;
        let nullable = parameter.ends("nullable");
        let guarded = function.has(flags::TRUSTED) || function.has(flags::RCU);
        if guarded && (reg.is_null() || reg.or_null) && !nullable {
            return stop_at(
                register,
                Rule::HelperNull {
                    helper: name,
                    register,
                    found: reg.kind,
                    map: self.map_name_of(&reg),
                },
            );
        }
        if reg.ref_id != 0 {
            facts.reference = Some((reg.ref_id, register));
        }
        let context = parameter.points_to(self.hook.context());
        if context || function.effect == Effect::KernelContext {
            if reg.kind != ValueKind::Context {
                return self.wrong_argument(function, register, "the context");
            }
            self.check_unmoved(register, &reg)?;
            return Ok(false);
        }
        if nullable && reg.is_null() {
            self.precise(register);
            return Ok(false);
        }
        if parameter.points_to("bpf_dynptr") || parameter.points_to("bpf_dynptr_kern") {
            self.dynptr_argument(function, parameter, register, facts)?;
            return Ok(false);
        }
        let iterates = flags::ITER_NEW | flags::ITER_NEXT | flags::ITER_DESTROY;
        if pointer.index == 0 && function.has(iterates) {
            if function.has(flags::ITER_NEW) {
                let slots = self.iterator_slots(function, pointer.target)?;
                self.begin(function, slots)?;
            }
            return Ok(false);
        }
        if [
            "alloc",
            "refcounted_kptr",
            "str",
            "map",
            "irq_flag",
            "iter",
            "prog",
        ]
        .iter()
        .any(|ending| parameter.ends(ending))
        {
            return stop(Rule::Undescribed { function: name });
        }
        if matches!(reg.kind, ValueKind::Object | ValueKind::Map) || is_kernel_socket(&reg) {
            return self.object_argument(function, pointer, register);
        }
        if *pointer.target == Target::Function {
            return stop(Rule::Undescribed { function: name });
        }
        if pointer.size.is_some() {
            return self.sized_argument(function, pointer, register, facts);
        }
        let Target::Plain { size, .. } = pointer.target else {
            return self.wrong_argument(function, register, "a pointer to a kernel object");
        };
        self.plain_argument(function, register, i64::from(*size))?;
        Ok(false)
    }

    /// Memory of a fixed size, that is read and written; may be null.
    fn plain_argument(
        &mut self,
        function: &'static KernelFunction,
        register: u8,
        size: i64,
    ) -> Step<()> {
        let reg = *self.state.reg(register);
        if reg.is_null() {
            self.precise(register);
            return Ok(());
        }
        if !reg.is_pointer() {
            return self.wrong_argument(function, register, "a pointer to memory");
        }
        self.lent_memory(register, size)
    }

    /// Memory that a function reads and writes, and whose pointer it checks for null itself.
    pub(super) fn lent_memory(&mut self, register: u8, size: i64) -> Step<()> {
        let or_null = self.state.reg(register).or_null;
        self.state.reg_mut(register).or_null = false;
        self.check_argument_memory(register, size, Mode::Read, false, true)?;
        self.check_argument_memory(register, size, Mode::Write, false, true)?;
        self.state.reg_mut(register).or_null = or_null;
        Ok(())
    }

    /// Memory with its length behind it.
    fn sized_argument(
        &mut self,
        function: &'static KernelFunction,
        pointer: &Pointer<'_>,
        register: u8,
        facts: &mut Facts,
    ) -> Step<bool> {
        let (reg, next) = (*self.state.reg(register), register + 1);
        let length = *self.readable(next)?;
        let absent = reg.is_null() && pointer.parameter.ends("opt");
        if absent {
            self.precise(register);
        } else {
            self.check_size(function, next, &length)?;
            self.lent_memory(register, length.num.umax as i64)?;
            self.precise(next);
        }
        if pointer.size.is_some_and(|size| size.ends("szk")) {
            let Some(value) = length.num.value().filter(|_| length.is_number()) else {
                return stop_at(
                    next,
                    Rule::ConstantRequired {
                        helper: function.name,
                        register: next,
                    },
                );
            };
            self.precise(next);
            facts.constant = Some(value);
        }
        Ok(true)
    }

    fn check_size(&self, function: &'static KernelFunction, register: u8, reg: &Reg) -> Step<()> {
        let helper = function.name;
        if !reg.is_number() {
            return self
                .wrong_argument(function, register, "a size")
                .map(|_: bool| ());
        }
        if reg.num.smin < 0 {
            let min = reg.num.smin;
            return stop_at(
                register,
                Rule::SizeNegative {
                    helper,
                    register,
                    min,
                },
            );
        }
        if reg.num.umax >= super::alu::DISTANCE_MAX as u64 {
            return stop_at(register, Rule::SizeUnbounded { helper, register });
        }
        Ok(())
    }

    fn dynptr_argument(
        &mut self,
        function: &'static KernelFunction,
        parameter: &Parameter,
        register: u8,
        facts: &mut Facts,
    ) -> Step<()> {
        if !parameter.ends("uninit") {
            facts.dynptr = Some(self.made_dynptr(function.name, register)?);
            return Ok(());
        }
        let (kind, shared) = match (function.effect, facts.dynptr) {
            (Effect::Dynptr(kind), _) => (kind, 0),
            (_, Some(dynptr)) => (dynptr.kind, dynptr.ref_id),
            (_, None) => {
                return stop(Rule::Undescribed {
                    function: function.name,
                });
            }
        };
        self.make_dynptr(function.name, register, kind, shared)
    }

    /// A kernel object, or what stands for one: a socket, a map.
    fn object_argument(
        &mut self,
        function: &'static KernelFunction,
        pointer: &Pointer<'_>,
        register: u8,
    ) -> Step<bool> {
        let (name, reg) = (function.name, *self.state.reg(register));
        let (Target::Struct { name: wanted, .. } | Target::Plain { name: wanted, .. }) =
            pointer.target
        else {
            return self.wrong_argument(function, register, "a pointer to memory");
        };
        let trust = if reg.ref_id != 0 || reg.kind != ValueKind::Object {
            Trust::Trusted
        } else {
            object::trust(&reg)
        };
        let enough = match trust {
            Trust::Trusted => true,
            Trust::Rcu => !function.has(flags::TRUSTED) || function.has(flags::RCU),
            Trust::Plain => !function.has(flags::TRUSTED) && !function.has(flags::RCU),
            Trust::Untrusted => false,
        };
        if reg.or_null || !enough {
            return stop_at(
                register,
                Rule::Untrusted {
                    helper: name,
                    register,
                },
            );
        }
        if reg.num.value() != Some(0) {
            return stop_at(register, Rule::VariableOffset { kind: reg.kind });
        }
        let released = function.has(flags::RELEASE) && reg.ref_id != 0;
        if (released || reg.kind != ValueKind::Object) && reg.off != 0 {
            let offset = i64::from(reg.off);
            return stop_at(
                register,
                Rule::ReleaseMoved {
                    helper: name,
                    register,
                    offset,
                },
            );
        }
        let found = self.object_name(&reg);
        let id = match reg.kind {
            ValueKind::Object => reg.map,
            _ => self.struct_id(&found).unwrap_or(0),
        };
        if !self.is_object((id, reg.off), wanted, released) {
            return stop_at(
                register,
                Rule::ObjectType {
                    helper: name,
                    register,
                    expected: wanted.clone(),
                    found,
                },
            );
        }
        Ok(false)
    }

    fn function_result(
        &mut self,
        number: u32,
        function: &'static KernelFunction,
        result: &Value,
        facts: &Facts,
    ) -> Step<Reg> {
        let (at, birth) = (self.at, Birth::Helper(number));
        let mut reg = match (function.effect, result) {
            (Effect::Slice { writable }, _) => {
                let Some(dynptr) = facts.dynptr else {
                    return stop(Rule::Undescribed {
                        function: function.name,
                    });
                };
                let mut reg = self.slice(dynptr, facts.constant.unwrap_or(0), birth);
                reg.read_only = !writable;
                reg.frame = dynptr.kind as u8;
                reg.ref_id = 0;
                return Ok(reg);
            }
            (Effect::KernelContext, _) => {
                let context = self.hook.kernel_context();
                self.object(context, Trust::Trusted, birth)
            }
            (Effect::ReadOnlyCast, _) => {
                let wanted = facts.constant.unwrap_or(0);
                let id = u32::try_from(wanted).ok();
                match id.and_then(|id| self.cast_target(id)) {
                    Some(id) => {
                        let mut reg = Reg::pointer(ValueKind::Object, birth, at);
                        reg.map = id;
                        reg.frame = Trust::Untrusted as u8;
                        reg
                    }
                    None => {
                        return stop(Rule::ObjectType {
                            helper: function.name,
                            register: 2,
                            expected: "of the kernel".to_owned(),
                            found: wanted.to_string(),
                        });
                    }
                }
            }
            (_, Value::Nothing) => return Ok(Reg::nothing(Birth::Clobbered, at)),
            (_, Value::Number | Value::Pointer(Target::Nothing)) => {
                return Ok(Reg::unknown(birth, at));
            }
            (_, Value::Pointer(Target::Struct { id, .. } | Target::Plain { id, .. }))
                if self.is_struct(*id) =>
            {
                let mut reg = Reg::pointer(ValueKind::Object, birth, at);
                reg.map = *id;
                reg.frame = Trust::Plain as u8;
                reg
            }
            (_, Value::Pointer(target)) => {
                let size = match (facts.returned, target) {
                    (Some(returned), _) => returned,
                    (None, Target::Plain { size, .. }) => (u64::from(*size), true),
                    _ => {
                        return stop(Rule::Undescribed {
                            function: function.name,
                        });
                    }
                };
                let mut reg = Reg::pointer(ValueKind::Memory, birth, at);
                reg.range = i32::try_from(size.0).unwrap_or(0);
                reg.read_only = size.1;
                reg.ref_id = facts.reference.map_or(0, |(id, _)| id);
                reg
            }
        };
        if function.has(flags::RET_NULL) {
            reg.or_null = true;
            reg.id = self.new_id();
        }
        if function.has(flags::ACQUIRE) {
            let id = if reg.or_null { reg.id } else { self.new_id() };
            reg.ref_id = id;
            self.state.held.push(Held {
                id,
                at,
                kind: ValueKind::Object,
            });
        }
        Ok(reg)
    }

    /// The beginning or the end of a section.
    fn section(&mut self, function: &'static KernelFunction) -> Step<()> {
        let unmatched = || {
            stop(Rule::SectionUnmatched {
                function: function.name,
            })
        };
        match function.effect {
            Effect::RcuLock if self.state.rcu > 0 => return unmatched(),
            Effect::RcuLock => self.state.rcu += 1,
            Effect::RcuUnlock if self.state.rcu == 0 => return unmatched(),
            Effect::RcuUnlock => {
                self.state.rcu -= 1;
                self.forget_rcu();
            }
            Effect::PreemptDisable => self.state.preempt += 1,
            Effect::PreemptEnable if self.state.preempt == 0 => return unmatched(),
            _ => self.state.preempt -= 1,
        }
        Ok(())
    }

    /// Whether the program may end here: nothing is held, no section open.
    pub(super) fn check_nothing_open(&self) -> Step<()> {
        if let Some(lock) = self.state.lock {
            return stop(Rule::LeakedLock {
                taken_at: lock.at as usize,
            });
        }
        for (open, section) in [
            (self.state.rcu, "RCU"),
            (self.state.preempt, "non-preemptible"),
        ] {
            if open > 0 {
                return stop(Rule::SectionOpen { section });
            }
        }
        self.check_leaks()
    }

    fn wrong_argument<T>(
        &self,
        function: &'static KernelFunction,
        register: u8,
        expected: &'static str,
    ) -> Step<T> {
        stop_at(
            register,
            Rule::HelperArgument {
                helper: function.name,
                register,
                expected,
                found: self.state.reg(register).kind,
            },
        )
    }
}

/// A parameter that is a pointer.
struct Pointer<'s> {
    parameter: &'s Parameter,
    target: &'s Target,
    /// The next parameter, if it is the length of the memory.
    size: Option<&'s Parameter>,
    /// Number of the parameter.
    index: usize,
}

/// Whether a register holds a socket that has a type of the kernel.
fn is_kernel_socket(reg: &Reg) -> bool {
    reg.kind == ValueKind::Socket && reg.map != SocketKind::Xdp as u32
}
