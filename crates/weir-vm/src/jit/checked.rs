//! Checked mode: native arithmetic and jumps, and every memory access, call and helper through the interpreter's own
//! rules, over the interpreter's own addresses. For programs no verifier has seen.
//!
//! Owns the code of this mode, its entry and the functions it calls. Invariants: a load or store happens at an address
//! `Memory` has just found for exactly that many bytes; one unit of the budget is taken before every operation; result,
//! memory and fault are the interpreter's.

use super::JitError;
use super::asm::*;
use super::code::Executable;
use super::emit::{STATE, arithmetic, atomic, jump, may_goto, register};
use crate::insn::{Kind, Op};
use crate::interp::{FaultKind, Registers, Run, Step};
use crate::memory::{STACK_BYTES, handle_function, stack_address};

/// State of a run, which r12 points at. Offsets are known to the generated code.
#[repr(C)]
struct State<'s, 'r> {
    /// Stack pointer to go back to when the run must stop.
    native_stack: u64,
    /// Units of the budget left.
    left: u64,
    /// What a 4-byte load yielded: 8 bytes if it was a pointer in the context.
    word: u64,
    /// Where the program goes on.
    target: u64,
    /// How often `may_goto` still goes on.
    may_goto: u64,
    /// R0 to R10, while a function of the host has them.
    registers: Registers,
    code: &'s Checked,
    run: &'s mut Run<'r>,
    fault: Option<Box<FaultKind>>,
}

const NATIVE_STACK: i32 = 0;
const LEFT: i32 = 8;
const TARGET: i32 = 24;
const MAY_GOTO: i32 = 32;
const REGISTERS: i32 = 40;

/// Outcome of a helper, as generated code sees it.
const GO_ON: u64 = 0;
const GO_TO: u64 = 1;
const CALL: u64 = 2;
const STOP: u64 = 3;

/// What an access is: bytes in the low half, and these.
const WRITE: u32 = 1 << 8;
const ATOMIC: u32 = 1 << 9;
const WORD_LOAD: u32 = 1 << 10;

type Entry = unsafe extern "sysv64" fn(state: *mut State<'_, '_>, target: u64) -> u64;

/// All operations of a machine as checked native code.
#[derive(Debug)]
pub(crate) struct Checked {
    executable: Executable,
    entry: u32,
    /// Offset of the code of each operation.
    starts: Vec<u32>,
}

impl Checked {
    /// Compiles everything.
    pub(super) fn compile(ops: &[Op]) -> Result<Checked, JitError> {
        Checked::write(ops).ok_or(JitError::Memory)
    }

    fn write(ops: &[Op]) -> Option<Checked> {
        let mut compiler = Compiler::new(ops.len());
        for (pc, op) in ops.iter().enumerate() {
            compiler.operation(pc, op);
        }
        let (asm, starts, entry) = compiler.finish();
        let offsets: Option<Vec<u32>> = starts.iter().map(|l| asm.offset(*l)).collect();
        let entry = asm.offset(entry)?;
        let (code, _) = asm.finish()?;
        Some(Checked {
            executable: Executable::new(&code)?,
            entry,
            starts: offsets?,
        })
    }

    /// Bytes of code.
    pub(super) fn len(&self) -> usize {
        self.executable.len()
    }

    /// Runs from operation `entry` until its function returns, as [`Run::execute`] does.
    pub(crate) fn execute(
        &self,
        run: &mut Run<'_>,
        entry: usize,
        registers: &mut Registers,
    ) -> Step<u64> {
        let Some(target) = self.starts.get(entry).copied() else {
            run.fault_at.get_or_insert(entry);
            return Err(Box::new(FaultKind::Fallthrough));
        };
        let mut state = State {
            native_stack: 0,
            left: run.left,
            word: 0,
            target: 0,
            may_goto: run.may_goto,
            registers: *registers,
            code: self,
            run,
            fault: None,
        };
        let target = self.executable.address(target);
        let enter = self.executable.address(self.entry) as usize;
        // SAFETY: the address is that of the entry written by `Compiler::entry` for this signature, in executable
        // pages that live as long as `self`.
        let enter: Entry = unsafe { std::mem::transmute::<usize, Entry>(enter) };
        // SAFETY: the state outlives the call; generated code keeps the host's calling convention and accesses only
        // the state, its stack, and memory that `access` has found for it.
        let stopped = unsafe { enter(&raw mut state, target) };
        state.run.left = state.left;
        state.run.may_goto = state.may_goto;
        *registers = state.registers;
        match state.fault {
            Some(kind) if stopped != 0 => Err(kind),
            _ => Ok(registers[0]),
        }
    }
}

/// Writes the code of one machine.
struct Compiler {
    asm: Assembler,
    starts: Vec<Label>,
    bmi2: bool,
    entry: Label,
    access: Label,
    helper: Label,
    enter: Label,
    leave: Label,
    call_register: Label,
    stop: Label,
    abort: Label,
    /// Places to jump to when an operation cannot happen.
    stops: Vec<(Label, usize)>,
}

impl Compiler {
    fn new(ops: usize) -> Compiler {
        let mut asm = Assembler::default();
        let starts = asm.labels(ops);
        Compiler {
            starts,
            bmi2: std::is_x86_feature_detected!("bmi2"),
            entry: asm.label(),
            access: asm.label(),
            helper: asm.label(),
            enter: asm.label(),
            leave: asm.label(),
            call_register: asm.label(),
            stop: asm.label(),
            abort: asm.label(),
            stops: Vec::new(),
            asm,
        }
    }

    /// Places outside the code cannot be: decoding admits no such target.
    fn start(&self, pc: usize) -> Label {
        self.starts.get(pc).copied().unwrap_or(self.stop)
    }

    fn operation(&mut self, pc: usize, op: &Op) {
        if matches!(op.kind, Kind::Half) {
            // Not on the way from the first half to the next operation.
            let label = self.start(pc);
            self.stops.push((label, pc));
            return;
        }
        let start = self.start(pc);
        self.asm.bind(start);
        let spent = self.asm.label();
        self.stops.push((spent, pc));
        self.asm.alu_mem_imm(true, Alu::Sub, at(STATE, LEFT), 1);
        self.asm.jump_if(Cond::Below, spent);
        let target = self.start(op.target());
        if arithmetic(&mut self.asm, op, self.bmi2) || jump(&mut self.asm, op, target) {
            return;
        }
        let dst = register(op.dst);
        let src = register(op.src);
        let a = &mut self.asm;
        use Kind::*;
        match op.kind {
            LoadImm => a.constant(dst, op.imm),
            LoadFunction => a.constant(dst, crate::memory::function_handle(op.imm)),
            Ldx32 => {
                self.find(pc, op.src, op.off, 4 | WORD_LOAD);
                self.asm.load(Width::B8, dst, at(R11, 0));
            }
            Ldx8 | Ldx16 | Ldx64 | Ldxs8 | Ldxs16 | Ldxs32 => {
                let width = width(op.kind);
                self.find(pc, op.src, op.off, width.bytes());
                if matches!(op.kind, Ldx8 | Ldx16 | Ldx64) {
                    self.asm.load(width, dst, at(R11, 0));
                } else {
                    self.asm.load_signed(width, dst, at(R11, 0));
                }
            }
            Stx8 | Stx16 | Stx32 | Stx64 => {
                let width = width(op.kind);
                self.find(pc, op.dst, op.off, width.bytes() | WRITE);
                self.asm.store(width, at(R11, 0), src);
            }
            St8 | St16 | St32 | St64 => {
                let width = width(op.kind);
                self.find(pc, op.dst, op.off, width.bytes() | WRITE);
                self.asm.store_imm(width, at(R11, 0), op.imm as u32 as i32);
            }
            Atomic32 | Atomic64 => {
                let bytes = if op.kind == Atomic64 { 8 } else { 4 };
                self.find(pc, op.dst, op.off, bytes | WRITE | ATOMIC);
                atomic(&mut self.asm, op);
            }
            Helper => {
                a.constant(R11, u64::from(op.imm as u32));
                a.constant(R9, pc as u64);
                a.call(self.helper);
            }
            Call => {
                a.constant(R9, pc as u64);
                a.call(self.enter);
                self.push_saved();
                self.asm.call(target);
                self.pop_saved();
                self.asm.call(self.leave);
            }
            CallRegister => {
                let done = a.label();
                a.mov(true, R11, dst);
                a.constant(R9, pc as u64);
                a.call(self.call_register);
                a.test(true, R11, R11);
                a.jump_if(Cond::Equal, done);
                self.push_saved();
                self.asm.call_reg(R11);
                self.pop_saved();
                self.asm.call(self.leave);
                self.asm.bind(done);
            }
            MayGoto => may_goto(a, at(STATE, MAY_GOTO), target),
            Exit => a.ret(),
            _ => {
                a.constant(R9, pc as u64);
                a.jump(self.stop);
            }
        }
    }

    /// r11 = address of the bytes at a register plus an offset.
    fn find(&mut self, pc: usize, base: u8, offset: i32, what: u32) {
        self.asm.lea(R11, at(register(base), offset));
        self.asm.constant(R10, u64::from(what));
        self.asm.constant(R9, pc as u64);
        self.asm.call(self.access);
    }

    /// Keeps R6 to R9 over a call, and the stack aligned.
    fn push_saved(&mut self) {
        for register in [RBX, R13, R14, R15] {
            self.asm.push(register);
        }
        self.asm.alu_imm(true, Alu::Sub, RSP, 8);
    }

    fn pop_saved(&mut self) {
        self.asm.alu_imm(true, Alu::Add, RSP, 8);
        for register in [R15, R14, R13, RBX] {
            self.asm.pop(register);
        }
    }

    fn finish(mut self) -> (Assembler, Vec<Label>, Label) {
        self.write_entry();
        self.write_access();
        self.write_helper();
        self.write_enter_and_leave();
        self.write_call_register();
        for (label, pc) in std::mem::take(&mut self.stops) {
            self.asm.bind(label);
            self.asm.constant(R9, pc as u64);
            self.asm.jump(self.stop);
        }
        // Say why, and leave.
        self.asm.bind(self.stop);
        self.asm.mov(true, RDI, STATE);
        self.asm.mov(true, RSI, R9);
        self.asm.load(Width::B8, RSP, at(STATE, NATIVE_STACK));
        self.call_host(stopped as *const () as usize);
        self.asm.jump(self.abort);
        (self.asm, self.starts, self.entry)
    }

    /// `Entry`: runs from `target` with the registers of the state, and yields 0, or 1 if the run had to stop.
    fn write_entry(&mut self) {
        let out = self.asm.label();
        let a = &mut self.asm;
        a.bind(self.entry);
        for register in [RBP, RBX, STATE, R13, R14, R15] {
            a.push(register);
        }
        a.alu_imm(true, Alu::Sub, RSP, 8);
        a.mov(true, STATE, RDI);
        a.mov(true, R11, RSI);
        a.store(Width::B8, at(STATE, NATIVE_STACK), RSP);
        load_all(a);
        a.call_reg(R11);
        store_all(a);
        a.constant(RAX, 0);
        a.bind(out);
        a.alu_imm(true, Alu::Add, RSP, 8);
        for register in [R15, R14, R13, STATE, RBX, RBP] {
            a.pop(register);
        }
        a.ret();
        // From anywhere, with any depth of calls.
        a.bind(self.abort);
        a.load(Width::B8, RSP, at(STATE, NATIVE_STACK));
        a.constant(RAX, 1);
        a.jump(out);
    }

    /// r11 = address `access` finds for address r11, kind r10, operation r9.
    fn write_access(&mut self) {
        let abort = self.abort;
        let caller_saved = [RAX, RDI, RSI, RDX, RCX, R8];
        let a = &mut self.asm;
        a.bind(self.access);
        for register in caller_saved {
            a.push(register);
        }
        a.mov(true, RDI, STATE);
        a.mov(true, RSI, R11);
        a.mov(false, RDX, R10);
        a.mov(true, RCX, R9);
        self.call_host(access as *const () as usize);
        let a = &mut self.asm;
        a.mov(true, R11, RAX);
        for register in caller_saved.iter().rev() {
            a.pop(*register);
        }
        a.test(true, R11, R11);
        a.jump_if(Cond::Equal, abort);
        a.ret();
    }

    /// Helper number r11, operation r9.
    fn write_helper(&mut self) {
        let done = self.asm.label();
        self.asm.bind(self.helper);
        self.host_with_registers(helper as *const () as usize);
        let a = &mut self.asm;
        a.alu_imm(true, Alu::Cmp, R10, GO_ON as i32);
        a.jump_if(Cond::Equal, done);
        a.alu_imm(true, Alu::Cmp, R10, GO_TO as i32);
        a.jump_if(Cond::NotEqual, self.abort);
        // A tail call replaces the caller.
        a.alu_imm(true, Alu::Add, RSP, 8);
        a.jump_reg(R11);
        a.bind(done);
        a.ret();
    }

    /// A frame for the function about to be called from operation r9, and back.
    fn write_enter_and_leave(&mut self) {
        self.asm.bind(self.enter);
        self.host_with_registers(enter as *const () as usize);
        let a = &mut self.asm;
        a.alu_imm(true, Alu::Cmp, R10, STOP as i32);
        a.jump_if(Cond::Equal, self.abort);
        a.ret();
        a.bind(self.leave);
        self.host_with_registers(leave as *const () as usize);
        self.asm.ret();
    }

    /// A call through a register with value r11 at operation r9: r11 is then the function's address, or 0 when all is done.
    fn write_call_register(&mut self) {
        let (done, function) = (self.asm.label(), self.asm.label());
        self.asm.bind(self.call_register);
        self.host_with_registers(call_register as *const () as usize);
        let a = &mut self.asm;
        a.alu_imm(true, Alu::Cmp, R10, GO_ON as i32);
        a.jump_if(Cond::Equal, done);
        a.alu_imm(true, Alu::Cmp, R10, CALL as i32);
        a.jump_if(Cond::Equal, function);
        a.alu_imm(true, Alu::Cmp, R10, GO_TO as i32);
        a.jump_if(Cond::NotEqual, self.abort);
        a.alu_imm(true, Alu::Add, RSP, 8);
        a.jump_reg(R11);
        a.bind(done);
        a.constant(R11, 0);
        a.bind(function);
        a.ret();
    }

    /// Calls a function of the host with the state, r11 and r9, all registers of the program in the state meanwhile;
    /// then r10 is what it returned and r11 the target it set. Entered with the stack aligned.
    fn host_with_registers(&mut self, function: usize) {
        let a = &mut self.asm;
        store_all(a);
        a.mov(true, RDI, STATE);
        a.mov(true, RSI, R11);
        a.mov(true, RDX, R9);
        self.call_host(function);
        let a = &mut self.asm;
        a.mov(true, R10, RAX);
        a.load(Width::B8, R11, at(STATE, TARGET));
        load_all(a);
    }

    fn call_host(&mut self, function: usize) {
        self.asm.constant(RAX, function as u64);
        self.asm.call_reg(RAX);
    }
}

fn load_all(a: &mut Assembler) {
    for number in 0..11u8 {
        let place = at(STATE, REGISTERS + 8 * i32::from(number));
        a.load(Width::B8, register(number), place);
    }
}

fn store_all(a: &mut Assembler) {
    for number in 0..11u8 {
        let place = at(STATE, REGISTERS + 8 * i32::from(number));
        a.store(Width::B8, place, register(number));
    }
}

fn width(kind: Kind) -> Width {
    use Kind::*;
    match kind {
        Ldx8 | Ldxs8 | Stx8 | St8 => Width::B1,
        Ldx16 | Ldxs16 | Stx16 | St16 => Width::B2,
        Ldx32 | Ldxs32 | Stx32 | St32 => Width::B4,
        _ => Width::B8,
    }
}

impl State<'_, '_> {
    /// Notes why the run must stop.
    fn stop(&mut self, pc: u64, kind: Box<FaultKind>) -> u64 {
        self.run.fault_at.get_or_insert(pc as usize);
        self.fault = Some(kind);
        STOP
    }

    fn function(&mut self, target: usize) -> Result<u64, Box<FaultKind>> {
        let Some(offset) = self.code.starts.get(target) else {
            self.run.fault_at.get_or_insert(target);
            return Err(Box::new(FaultKind::Fallthrough));
        };
        Ok(self.code.executable.address(*offset))
    }

    fn helper(&mut self, number: u32, pc: u64) -> u64 {
        self.run.left = self.left;
        self.run.may_goto = self.may_goto;
        let result = self.run.helper(number, &mut self.registers);
        self.left = self.run.left;
        self.may_goto = self.run.may_goto;
        match result {
            Ok(None) => GO_ON,
            Ok(Some(target)) => match self.function(target) {
                Ok(address) => {
                    self.target = address;
                    GO_TO
                }
                Err(kind) => self.stop(pc, kind),
            },
            Err(kind) => self.stop(pc, kind),
        }
    }

    fn enter(&mut self, pc: u64) -> u64 {
        match self.run.enter(&mut self.registers) {
            Ok(()) => GO_ON,
            Err(kind) => self.stop(pc, kind),
        }
    }
}

/// Host address of the bytes an operation may access, or 0.
extern "sysv64" fn access(state: &mut State<'_, '_>, address: u64, what: u32, pc: u64) -> u64 {
    let len = (what & 0xff) as usize;
    let memory = &mut state.run.memory;
    let found = if what & WORD_LOAD != 0 {
        memory.load_word(address).map(|word| {
            state.word = word;
            (&raw mut state.word).cast::<u8>()
        })
    } else if what & ATOMIC != 0 && len == 4 {
        memory.atomic::<4>(address).map(|cell| cell.as_mut_ptr())
    } else if what & ATOMIC != 0 {
        memory.atomic::<8>(address).map(|cell| cell.as_mut_ptr())
    } else if what & WRITE != 0 {
        memory.bytes_mut(address, len).map(<[u8]>::as_mut_ptr)
    } else {
        memory.bytes(address, len).map(|b| b.as_ptr().cast_mut())
    };
    match found {
        Ok(place) => place as u64,
        Err(fault) => {
            state.stop(pc, Box::new(FaultKind::from(fault)));
            0
        }
    }
}

extern "sysv64" fn helper(state: &mut State<'_, '_>, number: u64, pc: u64) -> u64 {
    state.helper(number as u32, pc)
}

extern "sysv64" fn enter(state: &mut State<'_, '_>, _: u64, pc: u64) -> u64 {
    state.enter(pc)
}

extern "sysv64" fn leave(state: &mut State<'_, '_>) -> u64 {
    let memory = &mut state.run.memory;
    memory.depth = memory.depth.saturating_sub(1);
    state.registers[10] = stack_address(memory.depth) + STACK_BYTES as u64;
    GO_ON
}

extern "sysv64" fn call_register(state: &mut State<'_, '_>, value: u64, pc: u64) -> u64 {
    if let Some(target) = handle_function(value) {
        if state.enter(pc) == STOP {
            return STOP;
        }
        return match state.function(target) {
            Ok(address) => {
                state.target = address;
                CALL
            }
            Err(kind) => state.stop(pc, kind),
        };
    }
    match u32::try_from(value) {
        Ok(number) => state.helper(number, pc),
        Err(_) => state.stop(pc, Box::new(FaultKind::CallTarget { value })),
    }
}

/// Operation `pc` cannot happen: nothing left of the budget, or nothing there to execute.
extern "sysv64" fn stopped(state: &mut State<'_, '_>, pc: u64) {
    let half = state
        .run
        .ops
        .get(pc as usize)
        .is_some_and(|op| op.kind == Kind::Half);
    // All operations but these have taken their unit before they come here.
    if half {
        state.left = state.left.wrapping_sub(1);
    }
    let spent = state.left == u64::MAX;
    if spent {
        state.left = 0;
    }
    let kind = state.run.refused(pc as usize, spent);
    state.stop(pc, kind);
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn offsets_in_generated_code_are_those_of_the_state() {
        assert_eq!(
            offset_of!(State<'_, '_>, native_stack),
            NATIVE_STACK as usize
        );
        assert_eq!(offset_of!(State<'_, '_>, left), LEFT as usize);
        assert_eq!(offset_of!(State<'_, '_>, word), 16);
        assert_eq!(offset_of!(State<'_, '_>, target), TARGET as usize);
        assert_eq!(offset_of!(State<'_, '_>, may_goto), MAY_GOTO as usize);
        assert_eq!(offset_of!(State<'_, '_>, registers), REGISTERS as usize);
    }
}
