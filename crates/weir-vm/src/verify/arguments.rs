//! Arguments of helpers: what each register must hold for the prototype, and what it says about the call.
//!
//! Owns memory with its size, maps and what a helper may do with them, records, locks and constants. Invariant: what
//! passes can be read, and where the helper writes written, for every value of every register.

use super::access::Mode;
use super::alu::DISTANCE_MAX;
use super::dynptr::Dynptr;
use super::helpers;
use super::object::{self, Trust};
use super::rejection::{Birth, Rule, ValueKind};
use super::socket;
use super::state::Reg;
use super::tnum::Tnum;
use super::walk::{Step, Walk, stop, stop_at};
use crate::catalogue::{Argument, DynptrKind, helper_name};
use crate::maps::MapDefinition;

/// What the arguments of a helper call said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) map: Option<u32>,
    /// The key, if it is a constant.
    pub(super) key: Option<u64>,
    /// Operation of the callback.
    pub(super) callback: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) released: Option<u32>,
    /// Reference of a socket; 0 for none.
    pub(super) socket: u32,
    pub(super) dynptr: Option<Dynptr>,
    /// Greatest size of memory.
    pub(super) most: u64,
}

impl Walk<'_> {
    pub(super) fn argument(
        &mut self,
        arguments: &[Argument],
        number: u32,
        argument: Argument,
        register: u8,
        said: &mut Said,
    ) -> Step<()> {
        let helper = helper_name(number);
        let reg = *self.readable(register)?;
        let wrong = |expected| {
            stop_at(
                register,
                Rule::HelperArgument {
                    helper,
                    register,
                    expected,
                    found: reg.kind,
                },
            )
        };
        match argument {
            Argument::Any => Ok(()),
            Argument::Context => {
                if reg.kind != ValueKind::Context {
                    return wrong("the context");
                }
                self.check_unmoved(register, &reg)
            }
            Argument::Map => {
                if reg.kind != ValueKind::Map {
                    return wrong("a map");
                }
                if reg.or_null {
                    return stop_at(
                        register,
                        Rule::HelperNull {
                            helper,
                            register,
                            found: reg.kind,
                            map: None,
                        },
                    );
                }
                said.map = Some(reg.map);
                Ok(())
            }
            Argument::Key => {
                let definition = self.said_map(helper, said)?;
                let size = definition.key_size;
                let constant = helpers::always_finds(definition);
                self.check_memory_kind(number, argument, register, &reg)?;
                self.check_argument_memory(register, i64::from(size), Mode::Read, false, false)?;
                if number == helpers::LOOKUP && constant {
                    said.key = self.stack_constant(register, size as usize);
                }
                Ok(())
            }
            Argument::Value if self.said_map(helper, said)?.kind.holds_sockets() => {
                self.argument(arguments, number, Argument::AnySocket, register, said)
            }
            Argument::Value => {
                let size = self.said_map(helper, said)?.value_size;
                self.check_memory_kind(number, argument, register, &reg)?;
                self.check_argument_memory(register, i64::from(size), Mode::Read, false, false)
            }
            Argument::ValueOut => {
                let size = self.said_map(helper, said)?.value_size;
                self.check_memory_kind(number, argument, register, &reg)?;
                // Room that the helper fills: what was there does not matter; `fill` forgets it.
                self.check_argument_memory(register, i64::from(size), Mode::Write, true, false)
            }
            Argument::Read | Argument::Write | Argument::ReadWrite => {
                self.check_memory_kind(number, argument, register, &reg)
            }
            Argument::ReadOrNull | Argument::WriteOrNull => {
                if reg.is_null() {
                    self.precise(register);
                    return Ok(());
                }
                self.check_memory_kind(number, argument, register, &reg)
            }
            Argument::ReadBytes(size) => {
                self.check_memory_kind(number, argument, register, &reg)?;
                self.check_argument_memory(register, i64::from(size), Mode::Read, false, false)
            }
            Argument::WriteBytes(size) | Argument::ReadWriteBytes(size) => {
                let fills = matches!(argument, Argument::WriteBytes(_));
                self.check_memory_kind(number, argument, register, &reg)?;
                self.check_aligned(register, &reg, i64::from(size))?;
                self.check_argument_memory(register, i64::from(size), Mode::Write, fills, false)
            }
            Argument::Size | Argument::SizeOrZero => {
                let before = arguments[register as usize - 2];
                said.most = reg.num.umax;
                self.size(number, before, argument == Argument::SizeOrZero, register)
            }
            Argument::RecordSize => {
                if !reg.is_number() {
                    return wrong("a number");
                }
                let Some(size) = reg.num.value() else {
                    return stop_at(register, Rule::ConstantRequired { helper, register });
                };
                self.precise(register);
                said.size = Some(size);
                Ok(())
            }
            Argument::Record => {
                if reg.kind != ValueKind::Record {
                    if reg.birth == Birth::Released {
                        return stop_at(register, Rule::NotHeld { helper, register });
                    }
                    return wrong("a ring buffer record");
                }
                if reg.or_null {
                    return stop_at(
                        register,
                        Rule::HelperNull {
                            helper,
                            register,
                            found: reg.kind,
                            map: None,
                        },
                    );
                }
                let offset = i64::from(reg.off) + reg.num.value().unwrap_or(1) as i64;
                if offset != 0 {
                    return stop_at(
                        register,
                        Rule::ReleaseMoved {
                            helper,
                            register,
                            offset,
                        },
                    );
                }
                said.released = Some(reg.ref_id);
                Ok(())
            }
            Argument::Callback => {
                if reg.kind != ValueKind::Function {
                    return stop_at(
                        register,
                        Rule::CallbackExpected {
                            helper,
                            register,
                            found: reg.kind,
                        },
                    );
                }
                self.check_unmoved(register, &reg)?;
                said.callback = Some(reg.map);
                Ok(())
            }
            Argument::StackOrNull => {
                if reg.is_null() {
                    self.precise(register);
                    return Ok(());
                }
                if reg.kind != ValueKind::Stack {
                    return wrong("a stack pointer or null");
                }
                Ok(())
            }
            Argument::SpinLock => {
                if reg.kind != ValueKind::MapValue {
                    return wrong("a lock in a map value");
                }
                if reg.or_null {
                    let map = self.map_name_of(&reg);
                    return stop_at(
                        register,
                        Rule::HelperNull {
                            helper,
                            register,
                            found: reg.kind,
                            map,
                        },
                    );
                }
                self.check_lock(helper, register, &reg)
            }
            Argument::ConstantString => self.text(helper, register, &reg),
            Argument::Socket => {
                if reg.kind != ValueKind::Socket {
                    if reg.birth == Birth::Released {
                        return stop_at(register, Rule::NotHeld { helper, register });
                    }
                    return wrong("a socket");
                }
                if reg.or_null {
                    return stop_at(
                        register,
                        Rule::HelperNull {
                            helper,
                            register,
                            found: reg.kind,
                            map: None,
                        },
                    );
                }
                said.socket = reg.ref_id;
                self.said_release(helper, number, register, &reg, said)
            }
            Argument::ContextOrNull if reg.is_null() => {
                self.precise(register);
                Ok(())
            }
            Argument::ContextOrNull => {
                if reg.kind != ValueKind::Context {
                    return wrong("the context or null");
                }
                self.check_unmoved(register, &reg)
            }
            Argument::AnySocket if reg.kind == ValueKind::Object => {
                self.object_of(helper, register, &reg, "sock_common")?;
                said.socket = reg.ref_id;
                self.said_release(helper, number, register, &reg, said)
            }
            Argument::AnySocket => {
                self.argument(arguments, number, Argument::Socket, register, said)
            }
            Argument::ObjectOrNull(_) | Argument::ValueOrNull if reg.is_null() => {
                self.precise(register);
                Ok(())
            }
            Argument::ObjectOrNull(name) if reg.or_null => {
                self.state.reg_mut(register).or_null = false;
                let lent = Reg {
                    or_null: false,
                    ..reg
                };
                let checked = self.object_of(helper, register, &lent, name);
                self.state.reg_mut(register).or_null = true;
                checked
            }
            Argument::Object(name) | Argument::ObjectOrNull(name) => {
                self.object_of(helper, register, &reg, name)
            }
            Argument::ValueOrNull => {
                self.argument(arguments, number, Argument::Value, register, said)
            }
            Argument::Dynptr => {
                said.dynptr = Some(self.made_dynptr(helper, register)?);
                Ok(())
            }
            Argument::NewDynptr => self.make_dynptr(helper, register, DynptrKind::Local, 0),
            Argument::NewRecordDynptr => self.make_dynptr(helper, register, DynptrKind::Record, 0),
            Argument::RecordDynptr => self.release_dynptr(helper, register),
            Argument::Timer => stop(Rule::UnknownHelper {
                number,
                name: helper,
                hook: self.hook.name(),
            }),
        }
    }

    /// Notes which reference `bpf_sk_release` releases.
    fn said_release(
        &self,
        helper: &'static str,
        number: u32,
        register: u8,
        reg: &Reg,
        said: &mut Said,
    ) -> Step<()> {
        if number != socket::RELEASE {
            return Ok(());
        }
        if reg.ref_id == 0 {
            return stop_at(register, Rule::NotHeld { helper, register });
        }
        if reg.off != 0 {
            let offset = i64::from(reg.off);
            return stop_at(
                register,
                Rule::ReleaseMoved {
                    helper,
                    register,
                    offset,
                },
            );
        }
        said.released = Some(reg.ref_id);
        Ok(())
    }

    /// A kernel object of the struct `name`, as helpers take it: not one that may be anything.
    pub(super) fn object_of(
        &self,
        helper: &'static str,
        register: u8,
        reg: &Reg,
        name: &str,
    ) -> Step<()> {
        if reg.kind != ValueKind::Object {
            return stop_at(
                register,
                Rule::HelperArgument {
                    helper,
                    register,
                    expected: "a kernel object",
                    found: reg.kind,
                },
            );
        }
        if reg.or_null {
            return stop_at(
                register,
                Rule::HelperNull {
                    helper,
                    register,
                    found: reg.kind,
                    map: None,
                },
            );
        }
        if object::trust(reg) == Trust::Untrusted {
            return stop_at(register, Rule::Untrusted { helper, register });
        }
        if reg.num.value() != Some(0) {
            return stop_at(register, Rule::VariableOffset { kind: reg.kind });
        }
        if self.is_object((reg.map, reg.off), name, false) {
            return Ok(());
        }
        stop_at(
            register,
            Rule::ObjectType {
                helper,
                register,
                expected: name.to_owned(),
                found: self.object_name(reg),
            },
        )
    }

    /// Memory that a helper writes as one number.
    fn check_aligned(&self, register: u8, reg: &Reg, size: i64) -> Step<()> {
        let offset = i64::from(reg.off);
        let sum = reg.num.tnum.add(Tnum::constant(offset as u64));
        if sum.is_aligned(size as u64) {
            return Ok(());
        }
        stop_at(
            register,
            Rule::Misaligned {
                kind: reg.kind,
                offset,
                size,
            },
        )
    }

    /// The map that an earlier argument named; prototypes have it first.
    fn said_map(&self, helper: &'static str, said: &Said) -> Step<&MapDefinition> {
        match said.map.and_then(|m| self.map(m)) {
            Some(map) => Ok(map.definition),
            None => stop_at(
                1,
                Rule::HelperArgument {
                    helper,
                    register: 1,
                    expected: "a map",
                    found: self.state.reg(1).kind,
                },
            ),
        }
    }

    pub(super) fn check_unmoved(&self, register: u8, reg: &Reg) -> Step<()> {
        if reg.num.value() != Some(0) {
            return stop_at(register, Rule::VariableOffset { kind: reg.kind });
        }
        if reg.off != 0 {
            return stop_at(
                register,
                Rule::ContextMoved {
                    offset: i64::from(reg.off),
                },
            );
        }
        Ok(())
    }

    /// Whether helpers take such a pointer to memory at all.
    fn check_memory_kind(
        &self,
        number: u32,
        argument: Argument,
        register: u8,
        reg: &Reg,
    ) -> Step<()> {
        use ValueKind::*;
        let helper = helper_name(number);
        let memory = matches!(
            reg.kind,
            Stack | Packet | PacketMeta | MapKey | MapValue | Record | Memory
        );
        if !memory {
            return stop_at(
                register,
                Rule::HelperArgument {
                    helper,
                    register,
                    expected: "a pointer to memory",
                    found: reg.kind,
                },
            );
        }
        if reg.or_null {
            let map = self.map_name_of(reg);
            return stop_at(
                register,
                Rule::HelperNull {
                    helper,
                    register,
                    found: reg.kind,
                    map,
                },
            );
        }
        // What an iterator or a dynptr lends is no key and no value.
        let lent = reg.kind == Memory && (reg.read_only || reg.frame != 0);
        let reads = matches!(argument, Argument::Read | Argument::ReadOrNull);
        let writes = matches!(
            argument,
            Argument::Write | Argument::WriteOrNull | Argument::ReadWrite
        );
        if lent && !(reads || (writes && !reg.read_only)) {
            return stop_at(
                register,
                Rule::HelperArgument {
                    helper,
                    register,
                    expected: "memory of the program's own, a map value or a record",
                    found: reg.kind,
                },
            );
        }
        if matches!(reg.kind, Packet | PacketMeta) && !helpers::takes_packet(number) {
            return stop_at(register, Rule::HelperPacket { helper, register });
        }
        Ok(())
    }

    /// A size in `register` of the memory in the register before.
    fn size(
        &mut self,
        number: u32,
        memory: Argument,
        zero_allowed: bool,
        register: u8,
    ) -> Step<()> {
        let helper = helper_name(number);
        let reg = *self.state.reg(register);
        if !reg.is_number() {
            return stop_at(
                register,
                Rule::HelperArgument {
                    helper,
                    register,
                    expected: "a size",
                    found: reg.kind,
                },
            );
        }
        if reg.num.smin < 0 {
            return stop_at(
                register,
                Rule::SizeNegative {
                    helper,
                    register,
                    min: reg.num.smin,
                },
            );
        }
        if reg.num.umin == 0 && !zero_allowed {
            return stop_at(register, Rule::SizeZero { helper, register });
        }
        if reg.num.umax >= DISTANCE_MAX as u64 {
            return stop_at(register, Rule::SizeUnbounded { helper, register });
        }
        let fills =
            matches!(memory, Argument::Write | Argument::WriteOrNull) && reg.num.value().is_some();
        let mode = match memory {
            Argument::Write | Argument::WriteOrNull | Argument::ReadWrite => Mode::Write,
            _ => Mode::Read,
        };
        self.check_argument_memory(register - 1, reg.num.umax as i64, mode, fills, zero_allowed)?;
        self.precise(register);
        Ok(())
    }

    fn text(&mut self, helper: &'static str, register: u8, reg: &Reg) -> Step<()> {
        let constant = match (reg.kind, self.map(reg.map)) {
            (ValueKind::MapValue, Some(map)) if !reg.or_null => map.frozen,
            _ => None,
        };
        let at = reg.num.value().map(|v| i64::from(reg.off) + v as i64);
        let rest = constant
            .zip(at.and_then(|at| usize::try_from(at).ok()))
            .and_then(|(bytes, at)| bytes.get(at..));
        if rest.is_some_and(|bytes| bytes.contains(&0)) {
            return Ok(());
        }
        stop_at(
            register,
            Rule::HelperArgument {
                helper,
                register,
                expected: "a zero-terminated constant in read-only data",
                found: reg.kind,
            },
        )
    }

    pub(super) fn check_map(&mut self, number: u32, said: &Said) -> Step<()> {
        let Some(map) = said.map else {
            return Ok(());
        };
        let at = self.at as usize;
        let helper = helper_name(number);
        let (takes, read_only, live) = match self.map(map) {
            Some(info) => (
                helpers::takes_map(number, info.definition),
                !info.definition.is_writable_by_programs(),
                info.live,
            ),
            None => (false, false, false),
        };
        if !takes {
            return stop(Rule::HelperMap {
                helper,
                map: self.map_name(map),
            });
        }
        if read_only && helpers::writes_map(number) {
            return stop(Rule::ReadOnlyMap {
                map: self.map_name(map),
            });
        }
        if let Some(facts) = self.facts.op_mut(at) {
            facts.map.add(live.then_some(map as usize));
        }
        Ok(())
    }

    fn check_lock(&self, helper: &'static str, register: u8, reg: &Reg) -> Step<()> {
        let Some(value) = reg.num.value() else {
            return stop_at(register, Rule::VariableOffset { kind: reg.kind });
        };
        let at = i64::from(reg.off) + value as i64;
        if self.map(reg.map).and_then(|m| m.lock) != Some(at) {
            return stop_at(
                register,
                Rule::NoLock {
                    helper,
                    map: self.map_name(reg.map),
                },
            );
        }
        Ok(())
    }
}
