//! Native mode: verified programs over the host's own addresses.
//!
//! Owns the state generated code runs on, the ways in, and the functions of the host it calls. Invariants: only verified
//! programs are compiled; the maps generated code points into are those it was compiled for; while it runs, the state is
//! reached through its address only.

use std::fmt;
use std::ptr::NonNull;

use super::asm::Assembler;
use super::code::{Executable, Pages};
use super::flow::{self, Plan};
use super::translate::{self, Translated};
use super::tune::{Tuned, tune};
use super::{Block, JitError};
use crate::frame::Frame;
use crate::helpers::TAIL_CALLS;
use crate::interp::{Env, FaultKind, Registers, Run, Step};
use crate::machine::Code;
use crate::maps::Map;
use crate::memory::{CALL_FRAMES, STACK_BYTES};
use crate::verify::Facts;

/// State of a run, which r12 points at.
#[repr(C)]
pub(super) struct State {
    /// Stack pointer to go back to when the run must stop.
    pub(super) native_stack: u64,
    /// Tail calls left.
    pub(super) tail_calls: u64,
    /// How often `may_goto` still goes on; set where a program has it.
    pub(super) may_goto: u64,
    /// Addresses of the programs, by number; 0 where there is none.
    pub(super) programs: u64,
    /// What the run takes from outside.
    pub(super) env: *const Env,
    /// The frame the run works on.
    packet: *const Frame,
    /// R10 of the caller of a helper.
    pub(super) frame: u64,
    /// Operation that calls a helper.
    pub(super) pc: u64,
    /// What R1 points at in the beginning.
    pub(super) context: Context,
    /// The run, where the program needs one.
    run: *mut Run<'static>,
    fault: Option<Box<FaultKind>>,
    /// Address of the way in for callbacks.
    callback: u64,
    /// Where the stack starts.
    pub(super) stack: u64,
}

/// The pointers in the context of an XDP program; its numbers stay in `Env`.
#[repr(C)]
pub(super) struct Context {
    pub(super) data: u64,
    pub(super) data_end: u64,
    pub(super) data_meta: u64,
}

/// Result of generated code and of helpers: a value, and what to do.
#[repr(C)]
pub(super) struct Outcome {
    value: u64,
    then: u64,
}

/// `Outcome::then`.
pub(super) const GO_ON: u64 = 0;
pub(super) const STOP: u64 = 1;
pub(super) const GO_TO: u64 = 2;

type EnterProgram = unsafe extern "sysv64" fn(state: *mut State) -> Outcome;
type EnterFunction = unsafe extern "sysv64" fn(
    state: *mut State,
    function: u64,
    arguments: *const [u64; 4],
    frame: u64,
) -> Outcome;

/// Compiled programs of one machine.
pub(crate) struct Native {
    executable: Executable,
    state: NonNull<State>,
    stack: Pages,
    /// Addresses of programs, for tail calls.
    #[expect(dead_code, reason = "generated code reads it by address")]
    bodies: Block,
    programs: Vec<Option<translate::Program>>,
    /// Address of the selected program's thunk; 0 without one.
    start: usize,
    /// The selected program, and what it may tail-call, need no [`Run`].
    alone: bool,
    /// The maps it was compiled for.
    maps: Vec<u64>,
}

impl Native {
    /// Compiles programs, by number, with what the verifier found out about them.
    pub(super) fn compile(
        code: &Code,
        maps: &[Map],
        cpus: u32,
        programs: &[(usize, &Facts)],
    ) -> Result<Native, JitError> {
        let entries: Vec<usize> = programs
            .iter()
            .filter_map(|(p, _)| code.entries.get(*p).copied())
            .collect();
        let facts: Vec<&Facts> = programs.iter().map(|(_, facts)| *facts).collect();
        let mut plan = Plan::of(code.ops.len(), &facts)?;
        let functions = flow::functions(&code.ops, &entries, &plan)?;
        let mut tuned = vec![Tuned::default(); code.ops.len()];
        for function in &functions {
            tune(&code.ops, maps, &mut plan, function, &mut tuned);
        }
        let translated = translate::translate(&code.ops, maps, cpus, &plan, &tuned, &functions)?;
        Native::assemble(code, maps, translated).ok_or(JitError::Memory)
    }

    fn assemble(code: &Code, maps: &[Map], translated: Translated) -> Option<Native> {
        let Translated {
            asm,
            programs,
            callback,
        } = translated;
        let resolve = |asm: &Assembler, label| asm.offset(label);
        let callback = resolve(&asm, callback)?;
        let (bytes, offsets) = asm.finish()?;
        let executable = Executable::new(&bytes)?;
        let stack = Pages::new((CALL_FRAMES + 1) * STACK_BYTES)?;
        let mut bodies = Block::zeroed(code.entries.len() * 8)?;
        let programs: Vec<_> = code
            .entries
            .iter()
            .map(|entry| programs.iter().find(|p| p.entry == *entry).copied())
            .collect();
        for (program, body) in programs.iter().zip(bodies.words_mut()) {
            if let Some(program) = program {
                *body = executable.address(*offsets.get(program.body.number())?);
            }
        }
        let programs = programs
            .into_iter()
            .map(|p| {
                p.and_then(|p| {
                    Some(translate::Program {
                        start: *offsets.get(p.thunk.number())?,
                        ..p
                    })
                })
            })
            .collect();
        let state = State {
            native_stack: 0,
            tail_calls: 0,
            may_goto: 0,
            programs: bodies.address(),
            env: std::ptr::null(),
            packet: std::ptr::null(),
            frame: 0,
            pc: 0,
            context: Context {
                data: 0,
                data_end: 0,
                data_meta: 0,
            },
            run: std::ptr::null_mut(),
            fault: None,
            callback: executable.address(callback),
            stack: stack.address(),
        };
        Some(Native {
            executable,
            state: NonNull::from(Box::leak(Box::new(state))),
            stack,
            bodies,
            programs,
            start: 0,
            alone: false,
            maps: maps.iter().map(Map::identity).collect(),
        })
    }

    /// Makes the program with this number the one that runs.
    pub(crate) fn select(&mut self, program: usize) {
        let program = self.programs.get(program).and_then(Option::as_ref);
        self.start = program.map_or(0, |p| self.executable.address(p.start) as usize);
        self.alone = program.is_some_and(|p| !p.needs_run);
    }

    /// Whether the program with this number can run here.
    pub(crate) fn has(&self, program: usize) -> bool {
        self.programs.get(program).is_some_and(Option::is_some)
    }

    /// Whether these are the maps the code was compiled for.
    pub(crate) fn fits(&self, maps: &[Map]) -> bool {
        let known = maps.get(..self.maps.len()).unwrap_or_default();
        self.maps
            .iter()
            .copied()
            .eq(known.iter().map(Map::identity))
    }

    /// Bytes of code.
    pub(crate) fn len(&self) -> usize {
        self.executable.len()
    }

    /// Runs the selected program, if it needs no [`Run`].
    #[inline]
    pub(crate) fn execute_alone(&mut self, frame: &mut Frame, env: &Env) -> Option<u64> {
        if !self.alone {
            return None;
        }
        self.prepare(frame, env);
        // SAFETY: a program is selected, the state is prepared for this frame, and the caller borrows the machine.
        let outcome = unsafe { self.enter() };
        Some(outcome.value)
    }

    /// Runs the selected program with the run its helpers work on.
    pub(crate) fn execute(&mut self, run: &mut Run<'_>) -> Step<u64> {
        if self.start == 0 {
            return Err(Box::new(FaultKind::Fallthrough));
        }
        if let Some(frame) = run.memory.frame.as_deref() {
            self.prepare(frame, run.env);
        }
        run.memory.host = Some(Host { state: self.state });
        let state = self.state.as_ptr();
        // SAFETY: the state is this value's own, and nothing else refers to it now. The run outlives the call below,
        // after which the pointer is not used.
        unsafe { (*state).run = std::ptr::from_mut(run).cast() };
        // SAFETY: a program is selected, the state is prepared for the run's frame, and the run borrows the maps.
        let outcome = unsafe { self.enter() };
        // SAFETY: generated code has returned; nothing else refers to the state.
        let fault = unsafe {
            (*state).run = std::ptr::null_mut();
            (*state).fault.take()
        };
        run.memory.host = None;
        match fault {
            Some(kind) if outcome.then == STOP => Err(kind),
            _ => Ok(outcome.value),
        }
    }

    #[inline]
    fn prepare(&mut self, frame: &Frame, env: &Env) {
        // SAFETY: the state is this value's own, and no generated code runs while `self` is borrowed here.
        let state = unsafe { self.state.as_mut() };
        state.env = env;
        state.packet = frame;
        state.context.publish(frame);
    }

    /// Calls the selected program's thunk.
    ///
    /// # Safety
    /// `start` is not 0, the state is prepared for a frame that lives as long as the call, and the machine whose maps
    /// the code points into is borrowed by the caller.
    #[inline]
    unsafe fn enter(&mut self) -> Outcome {
        // SAFETY: `start` is not 0 (the caller's promise), so `select` took it from `Program::start`: the address in
        // `executable`, which `self` owns and nobody writes any more, of a thunk that the translator wrote for this
        // signature and calling convention.
        let enter: EnterProgram = unsafe { std::mem::transmute::<usize, EnterProgram>(self.start) };
        // SAFETY: the state is a leaked box of this value's own, no reference to it is held here, and the caller has
        // prepared it. A verified program accesses its context, its frame, the stack pages and values of the machine's
        // maps only, all of which outlive the call.
        unsafe { enter(self.state.as_ptr()) }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: made from a box in `assemble`, and given back once.
        drop(unsafe { Box::from_raw(self.state.as_ptr()) });
    }
}

// SAFETY: the state is owned, and its pointers are null or dangling between runs.
unsafe impl Send for Native {}
// SAFETY: nothing is reachable through a shared reference but numbers.
unsafe impl Sync for Native {}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs = self.programs.iter().filter(|p| p.is_some()).count();
        let stack = self.stack.len();
        write!(
            f,
            "Native({programs} programs, {} bytes, stack {stack})",
            self.len()
        )
    }
}

impl Context {
    #[inline]
    fn publish(&mut self, frame: &Frame) {
        let (meta, data, end) = frame.bounds();
        let start = frame.address();
        self.data = start + data as u64;
        self.data_end = start + end as u64;
        self.data_meta = start + meta as u64;
    }
}

/// The right to reach the host's memory by the addresses of a verified program, while it runs.
pub(crate) struct Host {
    state: NonNull<State>,
}

/// Addresses below are null pointers with an offset.
const LOWEST: u64 = 1 << 16;

impl Host {
    /// The bytes a verified program may pass to a helper.
    #[inline]
    pub(crate) fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        if address < LOWEST {
            return None;
        }
        let start = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: helpers ask for what the verifier has proved to be readable, and initialised, for this length: context,
        // frame, stack, values or records, all of which live as long as the run and were exposed when their addresses
        // were taken, and each of which is one allocation. No mutable slice of it exists, because those borrow the
        // `Memory` that owns this value, and generated code waits for the helper.
        Some(unsafe { std::slice::from_raw_parts(start, len) })
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        if address < LOWEST {
            return None;
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: as in `bytes`, of what the verifier has proved to be writable: frame, stack, values or records. `self`
        // is borrowed exclusively, and with it all that this type hands out, so no other slice of it exists.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Where keys shown to callbacks lie: behind the last call frame.
    pub(crate) fn key(&self) -> u64 {
        self.stack() + (CALL_FRAMES * STACK_BYTES) as u64
    }

    /// Whether an address range is stack.
    pub(crate) fn holds(&self, address: u64, len: usize) -> bool {
        let size = ((CALL_FRAMES + 1) * STACK_BYTES) as u64;
        let offset = address.wrapping_sub(self.stack());
        offset <= size && len as u64 <= size - offset
    }

    /// Makes the context show the frame as it is now.
    pub(crate) fn publish(&mut self, frame: &Frame) {
        // SAFETY: generated code waits for the helper that called this, and no other reference to the context exists.
        unsafe { (*self.state.as_ptr()).context.publish(frame) }
    }

    /// Calls the function at an address of the generated code, one frame above the helper's caller.
    pub(crate) fn call(run: &mut Run<'_>, function: usize, arguments: [u64; 4]) -> Step<u64> {
        let Some(state) = run.memory.host.as_ref().map(|h| h.state.as_ptr()) else {
            return Err(Box::new(FaultKind::Fallthrough));
        };
        // SAFETY: as in `publish`; only values are copied out.
        let (enter, stack, frame, outer) = unsafe {
            let state = &*state;
            (state.callback, state.stack, state.frame, state.run)
        };
        let callee = frame + STACK_BYTES as u64;
        if callee > stack + (CALL_FRAMES * STACK_BYTES) as u64 {
            return Err(Box::new(FaultKind::CallDepth));
        }
        // SAFETY: `callback` is the address of the entry written for this signature.
        let enter: EnterFunction =
            unsafe { std::mem::transmute::<usize, EnterFunction>(enter as usize) };
        // SAFETY: the verifier has proved that the pointer is a function of the program with such arguments; the run is
        // not used here while the function has it, and the outer pointer is put back for the code that waits.
        let (outcome, fault) = unsafe {
            (*state).run = std::ptr::from_mut(run).cast();
            let outcome = enter(state, function as u64, &raw const arguments, callee);
            (*state).run = outer;
            (*state).frame = frame;
            (outcome, (*state).fault.take())
        };
        match fault {
            Some(kind) if outcome.then == STOP => Err(kind),
            _ => Ok(outcome.value),
        }
    }

    fn stack(&self) -> u64 {
        // SAFETY: the number is never written while the value exists.
        unsafe { (*self.state.as_ptr()).stack }
    }
}

/// Carries out a helper for generated code: R1 to R5 as they are, the state in the sixth argument.
pub(super) unsafe extern "sysv64" fn helper(
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
    state: *mut State,
) -> Outcome {
    // SAFETY: generated code passes its state, whose run `execute` or `Host::call` has set and does not use meanwhile.
    let (run, pc) = unsafe { (&mut *(*state).run, (*state).pc as usize) };
    let number = run.ops.get(pc).map_or(0, |op| op.imm as u32);
    let mut registers: Registers = [0; 16];
    for (to, from) in registers.iter_mut().skip(1).zip([r1, r2, r3, r4, r5]) {
        *to = from;
    }
    // SAFETY: as above; a number is copied.
    let left = unsafe { (*state).tail_calls };
    run.tail_calls = TAIL_CALLS - (left as u32).min(TAIL_CALLS);
    let kind = match run.helper(number, &mut registers) {
        Ok(None) => {
            return Outcome {
                value: registers[0],
                then: GO_ON,
            };
        }
        Ok(Some(target)) => {
            let program = run.programs.iter().position(|entry| *entry == target);
            // SAFETY: as above. The table has a word for each program.
            let address = unsafe {
                (*state).tail_calls = u64::from(TAIL_CALLS - run.tail_calls);
                let table = std::ptr::with_exposed_provenance::<u64>((*state).programs as usize);
                program.map_or(0, |p| *table.add(p))
            };
            if address != 0 {
                return Outcome {
                    value: address,
                    then: GO_TO,
                };
            }
            Box::new(FaultKind::Unverified)
        }
        Err(kind) => kind,
    };
    run.fault_at.get_or_insert(pc);
    // SAFETY: as above; nothing else refers to the state.
    unsafe { (*state).fault = Some(kind) };
    Outcome {
        value: 0,
        then: STOP,
    }
}

/// `bpf_xdp_load_bytes` for generated code, without a [`Run`].
pub(super) unsafe extern "sysv64" fn load_bytes(
    _context: u64,
    offset: u64,
    to: u64,
    len: u64,
    _r5: u64,
    state: *mut State,
) -> u64 {
    // SAFETY: the run's frame, which nobody changes while generated code waits for this.
    let frame = unsafe { &*(*state).packet };
    let part = match frame.part(offset as u32, len as u32) {
        Ok(part) => part,
        Err(errno) => return errno as u64,
    };
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: the verifier has proved that `len` bytes at `to` are the program's to write; they may lie in the frame itself.
    unsafe { std::ptr::copy(part.as_ptr(), to, part.len()) };
    0
}

/// A tail call met a program that was not compiled.
pub(super) unsafe extern "sysv64" fn unverified(state: *mut State) {
    // SAFETY: generated code passes its state; nothing else refers to it.
    unsafe { (*state).fault = Some(Box::new(FaultKind::Unverified)) };
}
