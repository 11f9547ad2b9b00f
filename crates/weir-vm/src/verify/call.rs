//! Calls and returns: helpers and their results, functions of the program, callbacks.
//!
//! Owns what a call leaves behind; what its arguments must be is in `arguments`. Invariant: after a call r1 to r5
//! hold nothing, and nothing is known of what a helper may have changed.

use std::rc::Rc;

use super::arguments::Said;
use super::helpers;
use super::object::Trust;
use super::rejection::{Birth, Rule, ValueKind};
use super::scalar::Scalar;
use super::socket::SocketKind;
use super::state::{Callback, Held, Lock, NOWHERE, Reg, State};
use super::walk::{Next, Step, Walk, new_frame, stop, stop_at};
use crate::catalogue::{DynptrKind, Outcome, helper_name, kernel_function};
use crate::insn::Op;
use crate::maps::MapKind;

/// `bpf_sk_lookup_tcp`.
const SOCKET_LOOKUP: u32 = 84;
/// Greatest error number.
const ERRNO_MAX: i32 = 4095;
/// Call frames at once.
const FRAMES: usize = 8;
/// Bytes of stack of a chain of frames.
const STACK_MAX: u32 = 512;
/// Bytes that callers of a function with tail calls may use.
const TAIL_CALL_STACK: u32 = 256;

impl Walk<'_> {
    pub(super) fn helper(&mut self, op: &Op) -> Step<Next> {
        let number = op.imm as u32;
        if let Some(function) = kernel_function(number) {
            return self.kernel_function(number, function);
        }
        let name = helper_name(number);
        let prototype = helpers::prototype(number, self.hook);
        let Some(prototype) = prototype else {
            return stop(Rule::UnknownHelper {
                number,
                name,
                hook: self.hook.name(),
            });
        };
        if helpers::is_gpl(number) && self.code.is_restricted(self.at as usize) {
            return stop(Rule::License { helper: name });
        }
        if let Some(lock) = self.state.lock
            && number != helpers::SPIN_UNLOCK
        {
            return stop(Rule::CallUnderLock {
                taken_at: lock.at as usize,
            });
        }
        let mut said = Said::default();
        for (argument, register) in prototype.arguments.iter().zip(1u8..) {
            self.argument(prototype.arguments, number, *argument, register, &mut said)?;
        }
        self.check_map(number, &said)?;
        if let Some(id) = said.released
            && !self.state.release(id, self.at)
        {
            return stop_at(
                1,
                Rule::NotHeld {
                    helper: name,
                    register: 1,
                },
            );
        }
        match number {
            helpers::TAIL_CALL => self.tail_call()?,
            helpers::LOOP => self.bounded_loop(&said)?,
            helpers::FOR_EACH => self.for_each(&said)?,
            helpers::SPIN_LOCK => self.lock()?,
            helpers::SPIN_UNLOCK => self.unlock()?,
            helpers::DYNPTR_FROM_MEM if self.state.reg(1).kind != ValueKind::MapValue => {
                return stop_at(
                    1,
                    Rule::HelperArgument {
                        helper: name,
                        register: 1,
                        expected: "a pointer to a map value",
                        found: self.state.reg(1).kind,
                    },
                );
            }
            helpers::FIND_VMA => self.find_vma(&said)?,
            helpers::DRAIN => self.drain(&said)?,
            _ => {}
        }
        self.state.clobber(self.at);
        let result = self.result(number, prototype.result, &said);
        self.state.set(0, result);
        // The kernel may unclone the packet for it.
        let stored = said.dynptr.is_some_and(|d| {
            number == helpers::DYNPTR_WRITE
                && matches!(d.kind, DynptrKind::Skb | DynptrKind::SkbMeta)
        });
        if stored {
            self.state.forget_packet(self.at);
        }
        // A tail call that comes back changed nothing.
        if helpers::changes_packet(number, self.hook) && number != helpers::TAIL_CALL {
            self.state.forget_packet(self.at);
        }
        Ok(Next::Go(self.at as usize + 1))
    }

    fn result(&mut self, number: u32, returns: Outcome, said: &Said) -> Reg {
        let birth = Birth::Helper(number);
        match returns {
            Outcome::Number => Reg::unknown(birth, self.at),
            Outcome::CpuNumber => {
                let last = u64::from(self.cpus.max(1)) - 1;
                Reg::number(Scalar::between(0, last), birth, self.at)
            }
            Outcome::Nothing => Reg::nothing(Birth::Clobbered, self.at),
            Outcome::SocketOrNull => self.socket_or_null(number, said.socket),
            Outcome::NumberUpToSize => {
                let most = i32::try_from(said.most).unwrap_or(i32::MAX);
                Reg::number(Scalar::between_signed(-ERRNO_MAX, most), birth, self.at)
            }
            Outcome::Object(name) => self.object(name, Trust::Trusted, birth),
            Outcome::PlainObject(name) => self.object(name, Trust::Plain, birth),
            Outcome::SocketObjectOrNull(name) => {
                let mut reg = self.object(name, Trust::Plain, birth);
                reg.or_null = true;
                reg.id = self.new_id();
                reg.ref_id = said.socket;
                reg
            }
            Outcome::DynptrMemoryOrNull => match said.dynptr {
                Some(dynptr) => self.slice(dynptr, said.size.unwrap_or(0), birth),
                None => Reg::unknown(birth, self.at),
            },
            Outcome::ValueOrNull => {
                let map = said.map.unwrap_or(NOWHERE);
                let definition = self.map(map).map(|m| m.definition);
                // A map inside a map may be longer or shorter than its definition says.
                let live = self.map(map).is_some_and(|m| m.live);
                let found = definition.is_some_and(|d| {
                    live && helpers::always_finds(d)
                        && number == helpers::LOOKUP
                        && said.key.is_some_and(|k| k < u64::from(d.max_entries))
                });
                let locked = definition.is_some_and(|d| d.has_spin_lock);
                let socket = definition.is_some_and(|d| d.kind == MapKind::XskMap);
                if number == helpers::LOOKUP && definition.is_some_and(|d| d.kind.holds_sockets()) {
                    // Found with a reference, as by a look-up of the socket itself.
                    return self.socket_or_null(SOCKET_LOOKUP, 0);
                }
                let kind = if socket {
                    ValueKind::Socket
                } else {
                    ValueKind::MapValue
                };
                let mut reg = Reg::pointer(kind, birth, self.at);
                reg.map = if socket { SocketKind::Xdp as u32 } else { map };
                reg.or_null = !found;
                if !found || locked {
                    reg.id = self.new_id();
                }
                reg
            }
            Outcome::RecordOrNull => {
                let mut reg = Reg::pointer(ValueKind::Record, birth, self.at);
                // The kernel keeps 32 bits of the size; a record that large is never reserved.
                reg.range = said.size.unwrap_or(0) as u32 as i32;
                reg.or_null = true;
                reg.id = self.new_id();
                reg.ref_id = reg.id;
                reg.map = said.map.unwrap_or(NOWHERE);
                self.state.held.push(Held {
                    id: reg.id,
                    at: self.at,
                    kind: ValueKind::Record,
                });
                reg
            }
        }
    }

    fn tail_call(&mut self) -> Step<()> {
        self.check_nothing_open()?;
        let index = self
            .state
            .reg(3)
            .num
            .value()
            .filter(|_| self.state.reg(3).is_number());
        let at = self.at as usize;
        if let Some(facts) = self.facts.op_mut(at) {
            facts.index.add(index);
        }
        if index.is_some() {
            self.precise(3);
        }
        if self.state.depth() == 0 {
            return Ok(());
        }
        // The program jumped to runs in this frame's place: its result comes back to the caller, with another packet.
        let mut gone = self.state.clone();
        gone.forget_packet(self.at);
        let frame = gone.frames.pop();
        let callback = frame.as_ref().and_then(|f| f.callback);
        let call = frame.map_or(NOWHERE, |f| f.call);
        if callback.is_some() {
            // Any number is not 0 or 1.
            return stop(Rule::CallbackResult {
                min: i64::MIN,
                max: i64::MAX,
            });
        }
        gone.set(0, Reg::unknown(Birth::Helper(helpers::TAIL_CALL), self.at));
        self.push(gone, call as usize + 1)
    }

    fn bounded_loop(&mut self, said: &Said) -> Step<()> {
        self.precise(1);
        let count = *self.state.reg(1);
        let depth = self.state.frame().callback_depth;
        let may_go_on = !count.is_number() || u64::from(depth) < count.num.umax;
        if !may_go_on {
            self.state.frame_mut().callback_depth = 0;
            return Ok(());
        }
        let index = Reg::unknown(Birth::Entry, self.at);
        let context = *self.state.reg(3);
        self.push_callback(
            said,
            helpers::LOOP,
            [Some(index), Some(context), None, None, None],
        )
    }

    fn for_each(&mut self, said: &Said) -> Step<()> {
        let pointer = |kind| {
            let mut reg = Reg::pointer(kind, Birth::Entry, self.at);
            reg.map = said.map.unwrap_or(NOWHERE);
            Some(reg)
        };
        let mut value = pointer(ValueKind::MapValue);
        let (map, key) = (pointer(ValueKind::Map), pointer(ValueKind::MapKey));
        let locked = said
            .map
            .and_then(|m| self.map(m))
            .is_some_and(|m| m.definition.has_spin_lock);
        if let Some(value) = value.as_mut().filter(|_| locked) {
            value.id = self.new_id();
        }
        let context = *self.state.reg(3);
        self.push_callback(
            said,
            helpers::FOR_EACH,
            [map, key, value, Some(context), None],
        )
    }

    fn find_vma(&mut self, said: &Said) -> Step<()> {
        let task = *self.state.reg(1);
        let context = *self.state.reg(4);
        let area = self.object("vm_area_struct", Trust::Plain, Birth::Entry);
        self.push_callback(
            said,
            helpers::FIND_VMA,
            [Some(task), Some(area), Some(context), None, None],
        )
    }

    fn drain(&mut self, said: &Said) -> Step<()> {
        let sample = self.lent_dynptr(DynptrKind::Local);
        let context = *self.state.reg(3);
        self.push_callback(
            said,
            helpers::DRAIN,
            [Some(sample), Some(context), None, None, None],
        )
    }

    /// The callback runs once more, later; the walk goes on as if it had returned for the last time.
    fn push_callback(&mut self, said: &Said, helper: u32, arguments: [Option<Reg>; 5]) -> Step<()> {
        let start = said.callback.unwrap_or(NOWHERE) as usize;
        let Some(function) = self.layout.function_at(start) else {
            return stop(Rule::CallTarget);
        };
        if self.layout.functions[function].global {
            return stop(Rule::CallbackGlobal {
                function: self.layout.functions[function].name.clone(),
            });
        }
        let mut inside = self.state.clone();
        inside.frame_mut().callback_depth += 1;
        inside.unrolled += 1;
        self.enter(&mut inside, function, arguments)?;
        inside.frame_mut().callback = Some(Callback { helper });
        self.state.frame_mut().callback_depth = 0;
        self.push(inside, start)
    }

    fn enter(&self, state: &mut State, function: usize, arguments: [Option<Reg>; 5]) -> Step<()> {
        let depth = state.frames.len();
        if depth >= FRAMES {
            return stop(Rule::CallDepth { frames: depth + 1 });
        }
        state
            .frames
            .push(Rc::new(new_frame(depth, function, self.at, arguments)));
        state.written[depth] = u64::MAX;
        Ok(())
    }

    /// A call to a function of the program.
    pub(super) fn call(&mut self, op: &Op) -> Step<Next> {
        let Some(function) = self.layout.function_at(op.target()) else {
            return stop(Rule::CallTarget);
        };
        if self.layout.functions[function].global {
            return self.call_global(function);
        }
        let mut arguments = [None; 5];
        for (argument, register) in arguments.iter_mut().zip(1u8..) {
            *argument = Some(*self.state.reg(register));
        }
        let mut state = std::mem::replace(&mut self.state, State::EMPTY);
        state.clobber(self.at);
        let entered = self.enter(&mut state, function, arguments);
        self.state = state;
        entered?;
        Ok(Next::Go(op.target()))
    }

    fn call_global(&mut self, function: usize) -> Step<Next> {
        if let Some(lock) = self.state.lock {
            return stop(Rule::CallUnderLock {
                taken_at: lock.at as usize,
            });
        }
        self.check_global_arguments(function)?;
        if !self.globals.iter().any(|(f, _)| *f == function) {
            self.globals.push((function, false));
        }
        if self.layout.functions[function].changes_packet {
            self.state.forget_packet(self.at);
        }
        self.state.clobber(self.at);
        let result = Reg::unknown(Birth::Function, self.at);
        self.state.set(0, result);
        Ok(Next::Go(self.at as usize + 1))
    }

    /// `exit`: of the program, a function or a callback.
    pub(super) fn exit(&mut self) -> Step<Next> {
        let depth = self.state.depth();
        let r0 = *self.state.reg(0);
        if depth == 0 {
            self.check_nothing_open()?;
            self.readable(0)?;
            if self.state.frame().function != 0 && !r0.is_number() {
                return stop_at(0, Rule::ReturnsNoNumber { found: r0.kind });
            }
            return Ok(Next::End);
        }
        if r0.kind == ValueKind::Stack {
            return stop_at(0, Rule::ReturnsStackPointer);
        }
        let callback = self.state.frame().callback;
        let call = self.state.frame().call;
        if callback.is_some() {
            self.readable(0)?;
            if !r0.is_number() {
                return stop_at(0, Rule::ReturnsNoNumber { found: r0.kind });
            }
            self.precise(0);
            if r0.num.smin < 0 || r0.num.smax > 1 {
                return stop_at(
                    0,
                    Rule::CallbackResult {
                        min: r0.num.smin,
                        max: r0.num.smax,
                    },
                );
            }
            if let Some(node) = self.node_mut() {
                node.callback_exit = true;
            }
            self.state.frames.pop();
            self.widen(call, NOWHERE);
            return Ok(Next::Go(call as usize));
        }
        self.state.frames.pop();
        self.state.set(0, r0);
        Ok(Next::Go(call as usize + 1))
    }

    pub(super) fn check_leaks(&self) -> Step<()> {
        match self.state.held.first() {
            Some(held) => stop(Rule::LeakedReference {
                kind: held.kind,
                acquired_at: held.at as usize,
            }),
            None => Ok(()),
        }
    }

    fn lock(&mut self) -> Step<()> {
        let reg = self.state.reg(1);
        self.state.lock = Some(Lock {
            map: reg.map,
            id: reg.id,
            at: self.at,
        });
        Ok(())
    }

    fn unlock(&mut self) -> Step<()> {
        let reg = *self.state.reg(1);
        let held = self
            .state
            .lock
            .filter(|l| l.map == reg.map && l.id == reg.id);
        if held.is_none() {
            return stop_at(1, Rule::OtherLock);
        }
        self.state.lock = None;
        Ok(())
    }

    /// The stack of the deepest chain of calls, within the limits.
    pub(super) fn check_stack(&mut self) -> Step<u32> {
        let functions = self.layout.functions.len();
        let own: Vec<u32> = self
            .stack_used
            .iter()
            .map(|used| used.next_multiple_of(16))
            .collect();
        // Bytes and frames of the longest chain to each function; the graph has no cycles, so this settles.
        let (mut before, mut frames) = (vec![0u32; functions], vec![0usize; functions]);
        frames[0] = 1;
        let mut deepest = own[0];
        loop {
            let mut changed = false;
            for caller in 0..functions {
                if frames[caller] == 0 {
                    continue;
                }
                for (op, callee) in &self.layout.functions[caller].callees {
                    let (bytes, calls) = (before[caller] + own[caller], frames[caller] + 1);
                    if bytes <= before[*callee] && calls <= frames[*callee] {
                        continue;
                    }
                    changed = true;
                    before[*callee] = before[*callee].max(bytes);
                    frames[*callee] = frames[*callee].max(calls);
                    self.at = *op as u32;
                    if self.layout.functions[*callee].tail_calls && bytes >= TAIL_CALL_STACK {
                        return stop(Rule::TailCallStack { bytes });
                    }
                    let bytes = bytes + own[*callee];
                    if bytes > STACK_MAX {
                        return stop(Rule::CombinedStack {
                            calls,
                            bytes,
                            limit: STACK_MAX,
                        });
                    }
                    if calls > FRAMES {
                        return stop(Rule::CallDepth { frames: calls });
                    }
                    deepest = deepest.max(bytes);
                }
            }
            if !changed {
                return Ok(deepest);
            }
        }
    }
}
