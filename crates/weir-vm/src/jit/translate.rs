//! Operations of verified programs as native code.
//!
//! Owns code layout, calls, context accesses, helpers that need no call, and thunks; arithmetic is in `emit`, lookups are
//! in `lookup`. Invariant: inside a body the stack pointer is aligned to 16 wherever a call stands, and r12 is the state.

use std::mem::offset_of;

use super::JitError;
use super::asm::*;
use super::emit::{STATE, arithmetic, atomic, constant, jump, may_goto, register};
use super::flow::{Function, Plan, is_branch};
use super::lookup;
use super::native::{self, Context, GO_TO, State};
use super::tune::{Tuned, Wide};
use crate::errno::{E2BIG, EINVAL};
use crate::helpers::TAIL_CALLS;
use crate::insn::{Kind, MAY_GOTO_MAX, Op};
use crate::interp::Env;
use crate::maps::{Map, MapKind};
use crate::memory::{Linked, STACK_BYTES, linked_pointer};

/// Code of all programs, not yet at an address.
pub(super) struct Translated {
    pub(super) asm: Assembler,
    pub(super) programs: Vec<Program>,
    /// The way in for callbacks from helpers of the host.
    pub(super) callback: Label,
}

/// A translated program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// First operation.
    pub(super) entry: usize,
    /// Where tail calls go.
    pub(super) body: Label,
    /// Where the host goes.
    pub(super) thunk: Label,
    /// Offset of the thunk, once known.
    pub(super) start: u32,
    /// It, or what it may tail-call, calls helpers of the host.
    pub(super) needs_run: bool,
}

/// Most iterations of `bpf_loop`, as in the helper.
const LOOPS_MAX: i32 = 1 << 23;

/// R6 to R9.
const SAVED: [Reg; 4] = [RBX, R13, R14, R15];

/// Translates functions.
///
/// # Errors
/// [`JitError::Code`] for code no verifier accepts.
pub(super) fn translate(
    ops: &[Op],
    maps: &[Map],
    cpus: u32,
    plan: &Plan,
    tuned: &[Tuned],
    functions: &[Function],
) -> Result<Translated, JitError> {
    let write = |asm| write(asm, ops, maps, cpus, plan, tuned, functions);
    let first = write(Assembler::default())?;
    write(Assembler::again(&first.asm))
}

fn write(
    mut asm: Assembler,
    ops: &[Op],
    maps: &[Map],
    cpus: u32,
    plan: &Plan,
    tuned: &[Tuned],
    functions: &[Function],
) -> Result<Translated, JitError> {
    let starts = asm.labels(ops.len());
    let entries = asm.labels(functions.len());
    let (abort, helper, unverified) = (asm.label(), asm.label(), asm.label());
    let mut translator = Translator {
        asm,
        ops,
        maps,
        cpus,
        plan,
        tuned,
        functions,
        starts,
        entries,
        abort,
        helper,
        unverified,
        bmi2: std::is_x86_feature_detected!("bmi2"),
        frame: Frame::default(),
        asides: Vec::new(),
    };
    for number in 0..functions.len() {
        translator.function(number)?;
    }
    let callback = translator.shared();
    let programs = translator.programs();
    Ok(Translated {
        asm: translator.asm,
        programs,
        callback,
    })
}

pub(super) struct Translator<'t> {
    pub(super) asm: Assembler,
    ops: &'t [Op],
    maps: &'t [Map],
    pub(super) cpus: u32,
    plan: &'t Plan,
    tuned: &'t [Tuned],
    functions: &'t [Function],
    /// Places of operations.
    starts: Vec<Label>,
    /// Places functions are called at: in front of what their prologue saves.
    entries: Vec<Label>,
    abort: Label,
    helper: Label,
    unverified: Label,
    bmi2: bool,
    frame: Frame,
    asides: Vec<lookup::Aside>,
}

/// What the running function has on the native stack.
#[derive(Clone, Debug, Default)]
struct Frame {
    saved: Vec<Reg>,
    pad: bool,
    program: bool,
}

impl Translator<'_> {
    fn start(&self, pc: usize) -> Label {
        self.starts.get(pc).copied().unwrap_or(self.abort)
    }

    fn entry_of(&self, pc: usize) -> Result<Label, JitError> {
        let number = self.functions.iter().position(|f| f.entry == pc);
        let label = number.and_then(|n| self.entries.get(n)).copied();
        label.ok_or(JitError::Code("a call to no function"))
    }

    fn function(&mut self, number: usize) -> Result<(), JitError> {
        let (Some(function), Some(entry)) = (self.functions.get(number), self.entries.get(number))
        else {
            return Ok(());
        };
        let saved: Vec<Reg> = SAVED
            .iter()
            .zip(function.writes)
            .filter(|(_, writes)| *writes && !function.program)
            .map(|(register, _)| *register)
            .collect();
        let calls = function.ops.iter().any(|pc| self.calls(*pc));
        self.frame = Frame {
            pad: calls && saved.len().is_multiple_of(2),
            saved,
            program: function.program,
        };
        self.asm.bind(*entry);
        for register in &self.frame.saved {
            self.asm.push(*register);
        }
        if self.frame.pad {
            self.asm.alu_imm(true, Alu::Sub, RSP, 8);
        }
        if function.ops.first() != Some(&function.entry) {
            let start = self.start(function.entry);
            self.asm.jump(start);
        }
        let mut ops = function.ops.iter().copied().peekable();
        while let Some(pc) = ops.next() {
            let start = self.start(pc);
            self.asm.bind(start);
            self.operation(pc)?;
            // A branch that never falls through may have nothing of its function behind it.
            debug_assert!(ops.peek().is_some() || !self.falls(pc));
        }
        for aside in std::mem::take(&mut self.asides) {
            aside.write(&mut self.asm);
        }
        Ok(())
    }

    fn falls(&self, pc: usize) -> bool {
        let kind = self.ops.get(pc).map_or(Kind::Exit, |op| op.kind);
        !matches!(kind, Kind::Exit | Kind::Ja) && !self.plan.op(pc).goes
    }

    /// Whether an operation calls anything natively.
    fn calls(&self, pc: usize) -> bool {
        match self.ops.get(pc) {
            Some(op) if op.kind == Kind::Call => true,
            Some(op) if op.kind == Kind::Helper => {
                matches!(op.imm, 12 | 181 | 189) || self.needs_run(pc)
            }
            _ => false,
        }
    }

    /// Whether an operation is a helper of the host.
    fn needs_run(&self, pc: usize) -> bool {
        let Some(op) = self.ops.get(pc).filter(|op| op.kind == Kind::Helper) else {
            return false;
        };
        match op.imm {
            5 | 8 | 93 | 94 | 125 | 160 | 181 | 189 => false,
            1 => !self.known_map(pc).is_some_and(lookup::is_inlined),
            12 => self.known_program_array(pc).is_none(),
            _ => true,
        }
    }

    fn known_map(&self, pc: usize) -> Option<&Map> {
        self.maps.get(self.plan.op(pc).map?)
    }

    fn known_program_array(&self, pc: usize) -> Option<&Map> {
        self.known_map(pc)
            .filter(|m| m.kind() == MapKind::ProgArray)
    }

    fn operation(&mut self, pc: usize) -> Result<(), JitError> {
        let Some(op) = self.ops.get(pc).copied() else {
            return Ok(());
        };
        let planned = self.plan.op(pc);
        match self.tuned.get(pc) {
            Some(Tuned::Dead) => return Ok(()),
            Some(Tuned::Wide(wide)) => {
                self.wide_load(register(op.dst), wide);
                return Ok(());
            }
            Some(Tuned::Element(index)) => {
                if let Some(map) = planned.map.and_then(|m| self.maps.get(m)) {
                    lookup::element(&mut self.asm, map, *index, self.cpus);
                }
                return Ok(());
            }
            Some(Tuned::Plain) | None => {}
        }
        let target = if is_branch(op.kind) || op.kind == Kind::Ja {
            self.start(op.target())
        } else {
            self.abort
        };
        if is_branch(op.kind) && planned.stays {
            return Ok(());
        }
        if is_branch(op.kind) && planned.goes {
            self.asm.jump(target);
            return Ok(());
        }
        if arithmetic(&mut self.asm, &op, self.bmi2) || jump(&mut self.asm, &op, target) {
            return Ok(());
        }
        let dst = register(op.dst);
        let src = register(op.src);
        let from = at(src, op.off);
        let to = at(dst, op.off);
        let a = &mut self.asm;
        use Kind::*;
        match op.kind {
            Ldx32 if planned.context => match context_field(op.off)? {
                Field::Pointer(offset) => a.load(Width::B8, dst, at(src, offset)),
                Field::Number(offset) => {
                    a.load(Width::B8, R11, state(offset_of!(State, env)));
                    a.load(Width::B4, dst, at(R11, offset));
                }
            },
            _ if planned.context => return Err(JitError::Code("a context access of no field")),
            Ldx8 => a.load(Width::B1, dst, from),
            Ldx16 => a.load(Width::B2, dst, from),
            Ldx32 => a.load(Width::B4, dst, from),
            Ldx64 => a.load(Width::B8, dst, from),
            Ldxs8 => a.load_signed(Width::B1, dst, from),
            Ldxs16 => a.load_signed(Width::B2, dst, from),
            Ldxs32 => a.load_signed(Width::B4, dst, from),
            Stx8 => a.store(Width::B1, to, src),
            Stx16 => a.store(Width::B2, to, src),
            Stx32 => a.store(Width::B4, to, src),
            Stx64 => a.store(Width::B8, to, src),
            St8 => a.store_imm(Width::B1, to, op.imm as u32 as i32),
            St16 => a.store_imm(Width::B2, to, op.imm as u32 as i32),
            St32 => a.store_imm(Width::B4, to, op.imm as u32 as i32),
            St64 => a.store_imm(Width::B8, to, op.imm as u32 as i32),
            Atomic32 | Atomic64 => {
                a.lea(R11, to);
                atomic(a, &op);
            }
            LoadImm => self.load_constant(&op)?,
            LoadFunction => {
                let entry = self.entry_of(op.imm as usize)?;
                self.asm.lea_label(dst, entry);
            }
            Call => {
                let entry = self.entry_of(op.target())?;
                let a = &mut self.asm;
                a.alu_imm(true, Alu::Add, RBP, STACK_BYTES as i32);
                a.call(entry);
                a.alu_imm(true, Alu::Sub, RBP, STACK_BYTES as i32);
            }
            Helper => self.helper_call(pc, op.imm as u32)?,
            MayGoto => may_goto(a, state(offset_of!(State, may_goto)), target),
            Exit => {
                self.leave_frame();
                self.asm.ret();
            }
            _ => return Err(JitError::Code("an operation no verifier accepts")),
        }
        Ok(())
    }

    fn wide_load(&mut self, to: Reg, wide: &Wide) {
        let a = &mut self.asm;
        a.load(wide.width, to, at(register(wide.base), wide.offset));
        match wide.width {
            _ if !wide.swapped => {}
            Width::B1 => {}
            // The load has cleared what lies above.
            Width::B2 => a.swap16(to),
            Width::B4 => a.bswap(false, to),
            Width::B8 => a.bswap(true, to),
        }
    }

    fn leave_frame(&mut self) {
        if self.frame.pad {
            self.asm.alu_imm(true, Alu::Add, RSP, 8);
        }
        for register in self.frame.saved.iter().rev() {
            self.asm.pop(*register);
        }
    }

    /// A constant; values of maps become addresses of the host, handles stay.
    fn load_constant(&mut self, op: &Op) -> Result<(), JitError> {
        let value = match linked_pointer(op) {
            Some(Linked::Value(map, offset)) => {
                let map = self.maps.get(map);
                let start = map.map_or(0, |m| m.slot_address(0));
                if start == 0 {
                    return Err(JitError::Code("a pointer to a value that has no place"));
                }
                start.wrapping_add_signed(i64::from(offset))
            }
            Some(Linked::Map(_)) | None => op.imm,
        };
        constant(&mut self.asm, register(op.dst), value);
        Ok(())
    }

    fn helper_call(&mut self, pc: usize, number: u32) -> Result<(), JitError> {
        let needs_run = self.needs_run(pc);
        let a = &mut self.asm;
        match number {
            1 if !needs_run => {
                if let Some(map) = self.plan.op(pc).map.and_then(|m| self.maps.get(m)) {
                    let aside = lookup::write(&mut self.asm, map, self.cpus);
                    self.asides.extend(aside);
                }
            }
            5 | 125 | 160 => {
                a.load(Width::B8, RAX, state(offset_of!(State, env)));
                a.load(Width::B8, RAX, at(RAX, offset_of!(Env, now_ns) as i32));
            }
            8 => {
                a.load(Width::B8, RAX, state(offset_of!(State, env)));
                a.load(Width::B4, RAX, at(RAX, offset_of!(Env, cpu) as i32));
            }
            189 => {
                a.mov(true, R9, STATE);
                a.constant(RAX, native::load_bytes as *const () as u64);
                a.call_reg(RAX);
            }
            // One worker runs a machine: nobody else can hold the lock, and the verifier has paired the calls.
            93 | 94 => constant(a, RAX, 0),
            12 if !needs_run => self.tail_call(pc),
            181 => self.bounded_loop(),
            _ => {
                self.host_call(pc);
                if number == 12 {
                    let missed = self.asm.label();
                    self.asm.alu_imm(false, Alu::Cmp, RDX, GO_TO as i32);
                    self.asm.jump_if(Cond::NotEqual, missed);
                    self.go_to_program(RAX);
                    self.asm.bind(missed);
                    self.asm.test(false, RDX, RDX);
                }
                self.asm.jump_if(Cond::NotEqual, self.abort);
            }
        }
        Ok(())
    }

    /// Calls the helper of operation `pc`; the flags then say whether to stop.
    fn host_call(&mut self, pc: usize) {
        let a = &mut self.asm;
        a.store_imm(Width::B8, state(offset_of!(State, pc)), pc as i32);
        a.call(self.helper);
    }

    /// The program in slot r3 of a program array whose elements are known, if there is one and calls are left.
    fn tail_call(&mut self, pc: usize) {
        let Some(map) = self.known_program_array(pc) else {
            return;
        };
        let (entries, start) = (map.definition().max_entries, map.slot_address(0));
        let (missed, unverified) = (self.asm.label(), self.unverified);
        let a = &mut self.asm;
        let left = state(offset_of!(State, tail_calls));
        a.alu_imm(false, Alu::Cmp, RDX, entries as i32);
        a.jump_if(Cond::AboveEqual, missed);
        a.alu_mem_imm(true, Alu::Cmp, left, 0);
        a.jump_if(Cond::Equal, missed);
        a.mov(false, RDX, RDX);
        a.constant(R10, start);
        let element = Mem {
            base: R10,
            index: Some((RDX, 3)),
            disp: 4,
        };
        a.load(Width::B4, R10, element);
        a.test(false, R10, R10);
        a.jump_if(Cond::Equal, missed);
        a.load(Width::B8, R11, state(offset_of!(State, programs)));
        let body = Mem {
            base: R11,
            index: Some((R10, 3)),
            disp: -8,
        };
        a.load(Width::B8, R11, body);
        a.test(true, R11, R11);
        a.jump_if(Cond::Equal, unverified);
        a.alu_mem_imm(true, Alu::Sub, left, 1);
        self.go_to_program(R11);
        self.asm.bind(missed);
    }

    /// Leaves for another program: from a program by a jump, from a function by a call that returns to its caller.
    fn go_to_program(&mut self, address: Reg) {
        self.asm.lea(RDI, state(offset_of!(State, context)));
        if self.frame.program {
            self.leave_frame();
            self.asm.jump_reg(address);
            return;
        }
        // A program returns with the stack as it found it: aligned for a call, which functions with tail calls are.
        self.asm.call_reg(address);
        self.leave_frame();
        self.asm.ret();
    }

    /// `bpf_loop`: R1 times the function R2 with (index, R3) until it returns something else than 0.
    fn bounded_loop(&mut self) {
        let a = &mut self.asm;
        let (bad_flags, too_many, again, done, end) =
            (a.label(), a.label(), a.label(), a.label(), a.label());
        a.test(true, RCX, RCX);
        a.jump_if(Cond::NotEqual, bad_flags);
        a.alu_imm(false, Alu::Cmp, RDI, LOOPS_MAX);
        a.jump_if(Cond::Above, too_many);
        a.mov(false, RDI, RDI);
        a.constant(RAX, 0);
        for register in [RDI, RSI, RDX, RAX] {
            a.push(register);
        }
        a.alu_imm(true, Alu::Add, RBP, STACK_BYTES as i32);
        a.bind(again);
        a.load(Width::B8, RDI, at(RSP, 0));
        a.alu_load(true, Alu::Cmp, RDI, at(RSP, 24));
        a.jump_if(Cond::AboveEqual, done);
        a.load(Width::B8, RSI, at(RSP, 8));
        a.call_mem(at(RSP, 16));
        a.alu_mem_imm(true, Alu::Add, at(RSP, 0), 1);
        a.test(true, RAX, RAX);
        a.jump_if(Cond::Equal, again);
        a.bind(done);
        a.alu_imm(true, Alu::Sub, RBP, STACK_BYTES as i32);
        a.load(Width::B8, RAX, at(RSP, 0));
        a.alu_imm(true, Alu::Add, RSP, 32);
        a.jump(end);
        a.bind(bad_flags);
        a.constant(RAX, EINVAL as u64);
        a.jump(end);
        a.bind(too_many);
        // As in the helper: a 32-bit move, so no sign.
        a.constant(RAX, u64::from(E2BIG as u32));
        a.bind(end);
    }

    /// What all programs share; the way in for callbacks.
    fn shared(&mut self) -> Label {
        let callback = self.asm.label();
        let out = self.asm.label();
        let a = &mut self.asm;
        let all = [RBP, RBX, STATE, R13, R14, R15];
        let native_stack = state(offset_of!(State, native_stack));

        // EnterFunction: state, function, arguments, frame.
        a.bind(callback);
        for register in all {
            a.push(register);
        }
        a.mov(true, STATE, RDI);
        a.load(Width::B8, R11, native_stack);
        a.push(R11);
        a.store(Width::B8, native_stack, RSP);
        a.mov(true, R11, RSI);
        a.mov(true, RBP, RCX);
        a.mov(true, R10, RDX);
        a.load(Width::B8, RDI, at(R10, 0));
        a.load(Width::B8, RSI, at(R10, 8));
        a.load(Width::B8, RDX, at(R10, 16));
        a.load(Width::B8, RCX, at(R10, 24));
        // The function's R10 is the end of its frame.
        a.call_reg(R11);
        a.constant(RDX, 0);
        a.bind(out);
        a.pop(R11);
        a.store(Width::B8, native_stack, R11);
        for register in all.iter().rev() {
            a.pop(*register);
        }
        a.ret();

        a.bind(self.unverified);
        a.load(Width::B8, RSP, native_stack);
        a.mov(true, RDI, STATE);
        a.constant(RAX, native::unverified as *const () as u64);
        a.call_reg(RAX);
        // From anywhere, with any depth of calls.
        a.bind(self.abort);
        a.load(Width::B8, RSP, native_stack);
        a.constant(RDX, native::STOP);
        a.jump(out);

        // A helper of the host: R1 to R5 are where its convention wants them.
        a.bind(self.helper);
        a.store(Width::B8, state(offset_of!(State, frame)), RBP);
        a.mov(true, R9, STATE);
        a.constant(RAX, native::helper as *const () as u64);
        a.alu_imm(true, Alu::Sub, RSP, 8);
        a.call_reg(RAX);
        a.alu_imm(true, Alu::Add, RSP, 8);
        a.test(false, RDX, RDX);
        a.ret();
        callback
    }

    /// Writes the thunks.
    fn programs(&mut self) -> Vec<Program> {
        let any_run = self
            .functions
            .iter()
            .any(|f| f.ops.iter().any(|pc| self.needs_run(*pc)));
        let tail_calls = self.functions.iter().any(|f| f.tail_calls);
        let mut programs = Vec::new();
        for (number, function) in self.functions.iter().enumerate() {
            let Some(body) = self.entries.get(number).copied() else {
                continue;
            };
            if !function.program {
                continue;
            }
            // Whatever may stop needs the saved registers where `shared` looks for them.
            let simple = !any_run && !tail_calls;
            let saved: Vec<Reg> = SAVED
                .iter()
                .zip(function.writes)
                .filter(|(_, writes)| *writes || !simple)
                .map(|(register, _)| *register)
                .collect();
            let thunk = self.thunk(body, &saved, simple);
            programs.push(Program {
                entry: function.entry,
                body,
                thunk,
                start: 0,
                needs_run: any_run,
            });
        }
        programs
    }

    /// `EnterProgram`: saves what the body changes, sets up the state, R1 and R10.
    fn thunk(&mut self, body: Label, saved: &[Reg], simple: bool) -> Label {
        let thunk = self.asm.label();
        let kind = |pc: &usize| self.ops.get(*pc).map(|op| op.kind);
        let counts = self
            .functions
            .iter()
            .any(|f| f.ops.iter().any(|pc| kind(pc) == Some(Kind::MayGoto)));
        let a = &mut self.asm;
        let native_stack = state(offset_of!(State, native_stack));
        a.bind(thunk);
        // In the order in which `shared` takes them back.
        let mut pushed = vec![RBP];
        pushed.extend(saved.iter().filter(|r| **r == RBX));
        pushed.push(STATE);
        pushed.extend(saved.iter().filter(|r| **r != RBX));
        for register in &pushed {
            a.push(*register);
        }
        a.mov(true, STATE, RDI);
        if simple {
            if pushed.len().is_multiple_of(2) {
                a.alu_imm(true, Alu::Sub, RSP, 8);
            }
        } else {
            a.load(Width::B8, R11, native_stack);
            a.push(R11);
            a.store(Width::B8, native_stack, RSP);
            let left = state(offset_of!(State, tail_calls));
            a.store_imm(Width::B8, left, TAIL_CALLS as i32);
        }
        if counts {
            let left = state(offset_of!(State, may_goto));
            a.store_imm(Width::B8, left, MAY_GOTO_MAX as i32);
        }
        a.load(Width::B8, RBP, state(offset_of!(State, stack)));
        a.alu_imm(true, Alu::Add, RBP, STACK_BYTES as i32);
        a.lea(RDI, state(offset_of!(State, context)));
        a.call(body);
        a.constant(RDX, 0);
        if simple {
            if pushed.len().is_multiple_of(2) {
                a.alu_imm(true, Alu::Add, RSP, 8);
            }
        } else {
            a.pop(R11);
            a.store(Width::B8, native_stack, R11);
        }
        for register in pushed.iter().rev() {
            a.pop(*register);
        }
        a.ret();
        thunk
    }
}

/// A field of the state.
fn state(offset: usize) -> Mem {
    at(STATE, offset as i32)
}

/// Where a field of the context is.
enum Field {
    /// In the native context.
    Pointer(i32),
    /// In the run's environment.
    Number(i32),
}

/// The field that a program reads at `offset` of `struct xdp_md`.
fn context_field(offset: i32) -> Result<Field, JitError> {
    let pointer = |place: usize| Field::Pointer(place as i32);
    let number = |place: usize| Field::Number(place as i32);
    Ok(match offset {
        0 => pointer(offset_of!(Context, data)),
        4 => pointer(offset_of!(Context, data_end)),
        8 => pointer(offset_of!(Context, data_meta)),
        12 => number(offset_of!(Env, ingress_ifindex)),
        16 => number(offset_of!(Env, rx_queue)),
        20 => number(offset_of!(Env, egress_ifindex)),
        _ => return Err(JitError::Code("a context access of no field")),
    })
}
