//! The checked interpreter: one run of a program over a frame or a piece of memory.
//!
//! Owns registers, call frames, the instruction budget and [`Fault`]. Every memory access goes through `memory`, so a
//! program that no verifier has seen cannot do worse than fault. Stack that was not written reads as zero. Helpers are
//! in `helpers`. Invariant: a run ends after at most `instruction_budget` instructions, whatever the code.

use std::ops::{BitAnd, BitOr, BitXor};

use thiserror::Error;

use crate::cost::Cost;
use crate::insn::{Kind, MAY_GOTO_MAX, Op};
use crate::jit::{Checked, Host};
use crate::memory::{
    AccessFault, CALL_FRAMES, Memory, STACK_BYTES, handle_function, stack_address,
};
use crate::routes::Routes;
use crate::skb::Sent;
use crate::verify::Watch;

/// What a run takes from outside: nothing else varies between two runs over the same frame and maps.
#[derive(Clone, Debug)]
pub struct Env {
    /// Every clock helper returns this, in nanoseconds.
    pub now_ns: u64,
    /// `xdp_md.ingress_ifindex`.
    pub ingress_ifindex: u32,
    /// `xdp_md.rx_queue_index`.
    pub rx_queue: u32,
    /// `xdp_md.egress_ifindex`; only devmap programs may read it in the kernel.
    pub egress_ifindex: u32,
    /// CPU the program believes it runs on; below the machine's number of CPUs.
    pub cpu: u32,
    /// Start of the sequence `bpf_get_prandom_u32` yields in this run.
    pub random_seed: u64,
    /// Most instructions the run may execute.
    pub instruction_budget: u64,
}

impl Default for Env {
    /// Time 0, interface 1, queue 0, CPU 0, seed 0 and ten million instructions.
    fn default() -> Env {
        Env {
            now_ns: 0,
            ingress_ifindex: 1,
            rx_queue: 0,
            egress_ifindex: 0,
            cpu: 0,
            random_seed: 0,
            instruction_budget: 10_000_000,
        }
    }
}

/// A run that could not go on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("instruction {pc} of {function}: {kind}")]
pub struct Fault {
    /// Function or, without one, section the instruction is in.
    pub function: String,
    /// Index of the slot from the start of the section, as `llvm-objdump -d` prints it.
    pub pc: usize,
    /// Index of the operation in the linked code, for [`Machine::place`](crate::Machine::place).
    pub op: usize,
    /// What happened.
    pub kind: FaultKind,
}

/// Why a run stopped.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FaultKind {
    /// A memory access failed.
    #[error("{0}")]
    Access(Box<AccessFault>),
    /// A helper this engine does not have.
    #[error("helper {number} ({name}) is not available in the user engine")]
    UnknownHelper {
        /// Linux's number.
        number: u32,
        /// Its name, or `unknown`.
        name: &'static str,
    },
    /// A helper was called in a way the kernel's verifier refuses.
    #[error("{helper}: {reason} (r{register} is {value:#x})")]
    HelperArgument {
        /// Name of the helper.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
        /// Its contents.
        value: u64,
        /// What was expected.
        reason: &'static str,
    },
    /// The budget is used up.
    #[error("the budget of {budget} instructions is used up")]
    Budget {
        /// Instructions allowed.
        budget: u64,
    },
    /// More than eight call frames.
    #[error("more than {CALL_FRAMES} call frames")]
    CallDepth,
    /// A call through a register that holds no function.
    #[error("call to {value:#x}, which is not a function")]
    CallTarget {
        /// Contents of the register.
        value: u64,
    },
    /// Control reached the end of a section or the middle of an instruction.
    #[error("control left the program's instructions")]
    Fallthrough,
    /// A kernel function or variable that only a kernel has, or a field that the types relocated against lack.
    #[error(
        "{name} does not exist here: the user engine has no kernel functions and variables, and only the fields of the types it was given"
    )]
    External {
        /// The symbol.
        name: String,
    },
    /// An instruction, or the operand that a relocation gives it, is not understood.
    #[error("invalid instruction: {reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// A kernel function that runs have no model for.
    #[error("bpf_{name} has no model in the user engine")]
    KernelFunction {
        /// Its name without `bpf_`.
        name: &'static str,
    },
    /// `bpf_throw`: the run ends with the result that it names.
    #[error("the program threw an exception")]
    Thrown,
    /// The program ended with ring buffer records still reserved.
    #[error("the program ended with {0} ring buffer records neither submitted nor discarded")]
    LeakedRecords(u32),
    /// The program ended holding a spin lock.
    #[error("the program ended holding a spin lock")]
    LeakedLock,
    /// A tail call in native code to a program that was not verified and compiled with it.
    #[error(
        "tail call to a program that was not verified; verify and compile all programs of the array"
    )]
    Unverified,
    /// `Env::cpu` is not below the machine's number of CPUs.
    #[error("CPU {cpu} of {cpus}: set more CPUs before loading")]
    Cpu {
        /// CPU asked for.
        cpu: u32,
        /// CPUs the machine has.
        cpus: u32,
    },
}

impl From<Box<AccessFault>> for FaultKind {
    #[cold]
    fn from(fault: Box<AccessFault>) -> FaultKind {
        FaultKind::Access(fault)
    }
}

/// Where a redirect helper sent the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// `bpf_redirect`.
    Interface {
        /// Target interface.
        ifindex: u32,
    },
    /// A redirect of a tc program.
    Device {
        /// Index of the device.
        ifindex: u32,
        /// What becomes of the packet there.
        way: Way,
    },
    /// `bpf_redirect_map` with an entry that exists (or a broadcast).
    Map {
        /// Name of the map.
        map: String,
        /// Key looked up.
        key: u64,
        /// Flags passed.
        flags: u64,
    },
}

/// How a tc program's packet goes on at another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out of it.
    Out,
    /// Into its receive path.
    In,
    /// Into the receive path of its peer in another namespace.
    Peer,
    /// Out of it, with the link-layer addresses that the kernel finds.
    Neighbour,
}

/// Registers r0 to r10; sixteen, so that a masked number is always inside.
pub(crate) type Registers = [u64; 16];

/// What outlives a run: buffers, so that runs need not allocate, and what helpers are told about the host.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) routes: Routes,
    /// Where the callers of running functions go on, and their R6 to R9.
    saved: [(usize, [u64; 4]); CALL_FRAMES],
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// What iterators over bits copied.
    pub(crate) bits: Vec<Vec<u8>>,
    pub(crate) trace: Vec<String>,
    /// Copies of packets that were sent.
    pub(crate) sent: Vec<Sent>,
    /// What interpreted runs are compared with.
    pub(crate) watch: Option<Box<Watch>>,
    /// What interpreted runs cost.
    pub(crate) cost: Option<Box<Cost>>,
}

/// State of one run.
pub(crate) struct Run<'r> {
    pub(crate) ops: &'r [Op],
    pub(crate) externals: &'r [String],
    /// Why operations are invalid.
    pub(crate) invalid: &'r [String],
    /// Entry operations by program number, for tail calls.
    pub(crate) programs: &'r [usize],
    pub(crate) memory: Memory<'r>,
    pub(crate) env: &'r Env,
    pub(crate) epoch: u64,
    pub(crate) scratch: &'r mut Scratch,
    /// Instructions left of the budget.
    pub(crate) left: u64,
    pub(crate) tail_calls: u32,
    /// How often `may_goto` still goes on.
    pub(crate) may_goto: u64,
    pub(crate) random: u64,
    /// Address of the spin lock held.
    pub(crate) lock: Option<u64>,
    pub(crate) open_records: u32,
    /// What `bpf_throw` was called with.
    pub(crate) thrown: Option<u64>,
    /// The function that it is passed to, whose result is the program's.
    pub(crate) catches: Option<usize>,
    pub(crate) redirect: Option<Redirect>,
    /// Operation that faulted.
    pub(crate) fault_at: Option<usize>,
    /// Native code to run instead of interpreting.
    pub(crate) checked: Option<&'r Checked>,
}

/// Result inside a run; the place of the fault is in `Run::fault_at`.
pub(crate) type Step<T> = Result<T, Box<FaultKind>>;

impl<'r> Run<'r> {
    #[allow(
        clippy::too_many_arguments,
        reason = "called once; a struct of the same fields would say nothing more"
    )]
    pub(crate) fn new(
        ops: &'r [Op],
        (externals, invalid): (&'r [String], &'r [String]),
        programs: &'r [usize],
        memory: Memory<'r>,
        env: &'r Env,
        epoch: u64,
        scratch: &'r mut Scratch,
    ) -> Run<'r> {
        Run {
            ops,
            externals,
            invalid,
            programs,
            memory,
            env,
            epoch,
            scratch,
            left: env.instruction_budget,
            tail_calls: 0,
            may_goto: MAY_GOTO_MAX,
            random: env.random_seed,
            lock: None,
            open_records: 0,
            thrown: None,
            catches: None,
            redirect: None,
            fault_at: None,
            checked: None,
        }
    }

    /// Runs from `entry` with r1 and r2 until the program exits.
    pub(crate) fn program(&mut self, entry: usize, r1: u64, r2: u64) -> Step<u64> {
        let mut regs = [0; 16];
        regs[1] = r1;
        regs[2] = r2;
        regs[10] = stack_address(0) + STACK_BYTES as u64;
        self.memory.clear_stack();
        self.scratch.bits.clear();
        let result = match self.execute(entry, &mut regs) {
            Ok(result) => result,
            Err(fault) if *fault == FaultKind::Thrown => {
                self.fault_at = None;
                let cookie = self.thrown.unwrap_or(0);
                match self.catches {
                    None => cookie,
                    Some(callback) => {
                        self.memory.depth = 0;
                        self.callback(callback, [cookie, 0, 0, 0])?
                    }
                }
            }
            Err(fault) => return Err(fault),
        };
        if self.open_records > 0 {
            return Err(Box::new(FaultKind::LeakedRecords(self.open_records)));
        }
        if self.lock.is_some() {
            return Err(Box::new(FaultKind::LeakedLock));
        }
        Ok(result)
    }

    /// Calls a function (as `Memory::function_at` names it) in a frame of its own and returns its r0; for helpers with
    /// callbacks.
    pub(crate) fn callback(&mut self, entry: usize, arguments: [u64; 4]) -> Step<u64> {
        if self.memory.host.is_some() {
            return Host::call(self, entry, arguments);
        }
        let mut regs: Registers = [0; 16];
        for (register, argument) in regs.iter_mut().skip(1).zip(arguments) {
            *register = argument;
        }
        self.enter(&mut regs)?;
        let result = self.execute(entry, &mut regs)?;
        self.memory.depth -= 1;
        Ok(result)
    }

    /// Why operation `pc` cannot be executed: the budget is `spent`, or it is no instruction.
    #[cold]
    pub(crate) fn refused(&self, pc: usize, spent: bool) -> Box<FaultKind> {
        let named = |op: &&Op| {
            matches!(
                op.kind,
                Kind::External | Kind::Invalid | Kind::PacketAbs | Kind::PacketInd
            )
        };
        let named = self.ops.get(pc).filter(named);
        Box::new(match named {
            _ if spent => FaultKind::Budget {
                budget: self.env.instruction_budget,
            },
            None => FaultKind::Fallthrough,
            Some(op) if op.kind == Kind::Invalid => FaultKind::Invalid {
                reason: self
                    .invalid
                    .get(op.imm as usize)
                    .cloned()
                    .unwrap_or_default(),
            },
            // Native code has it for no program: it runs without a socket buffer.
            Some(op) if op.kind != Kind::External => legacy_access(),
            Some(op) => FaultKind::External {
                name: self
                    .externals
                    .get(op.imm as usize)
                    .cloned()
                    .unwrap_or_default(),
            },
        })
    }

    /// Gives the function about to be called a stack frame of its own.
    pub(crate) fn enter(&mut self, regs: &mut Registers) -> Step<()> {
        if self.memory.depth + 1 >= CALL_FRAMES {
            return Err(Box::new(FaultKind::CallDepth));
        }
        self.memory.depth += 1;
        self.memory.clear_stack();
        regs[10] = stack_address(self.memory.depth) + STACK_BYTES as u64;
        Ok(())
    }

    fn execute(&mut self, entry: usize, regs: &mut Registers) -> Step<u64> {
        if let Some(code) = self.checked {
            return code.execute(self, entry, regs);
        }
        if self.scratch.watch.is_some() || self.scratch.cost.is_some() {
            return self.interpret::<true>(entry, regs);
        }
        self.interpret::<false>(entry, regs)
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, op: usize, regs: &Registers) {
        if let Some(watch) = &mut self.scratch.watch {
            watch.look(op, regs, &self.memory);
        }
        if let (Some(cost), Some(op)) = (&mut self.scratch.cost, self.ops.get(op)) {
            cost.look(op, regs, &self.memory);
        }
    }

    /// The loop over operations; a watched one compares the registers before each, or counts what it touches.
    fn interpret<const WATCHED: bool>(&mut self, entry: usize, regs: &mut Registers) -> Step<u64> {
        let ops = self.ops;
        let base = self.memory.depth;
        let mut pc = entry;

        macro_rules! stop {
            ($kind:expr) => {{
                self.fault_at.get_or_insert(pc.wrapping_sub(1));
                return Err(Box::new($kind));
            }};
        }
        macro_rules! checked {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(fault) => stop!(FaultKind::from(fault)),
                }
            };
        }
        macro_rules! passed {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(kind) => {
                        self.fault_at.get_or_insert(pc.wrapping_sub(1));
                        return Err(kind);
                    }
                }
            };
        }

        loop {
            let Some(op) = ops.get(pc) else {
                self.fault_at.get_or_insert(pc);
                return Err(Box::new(FaultKind::Fallthrough));
            };
            if WATCHED {
                self.look(pc, regs);
            }
            pc += 1;
            if self.left == 0 {
                self.fault_at.get_or_insert(pc.wrapping_sub(1));
                return Err(self.refused(pc.wrapping_sub(1), true));
            }
            self.left -= 1;
            let dst = (op.dst & 15) as usize;
            let src = (op.src & 15) as usize;
            let offset = op.off as i64 as u64;

            macro_rules! alu64 {
                ($f:expr, $operand:expr) => {{
                    let f: fn(u64, u64) -> u64 = $f;
                    regs[dst] = f(regs[dst], $operand);
                }};
            }
            macro_rules! alu32 {
                ($f:expr, $operand:expr) => {{
                    let f: fn(u32, u32) -> u32 = $f;
                    regs[dst] = u64::from(f(regs[dst] as u32, $operand as u32));
                }};
            }
            macro_rules! jump64 {
                ($f:expr, $operand:expr) => {{
                    let f: fn(u64, u64) -> bool = $f;
                    if f(regs[dst], $operand) {
                        pc = op.target();
                    }
                }};
            }
            macro_rules! jump32 {
                ($f:expr, $operand:expr) => {{
                    let f: fn(u32, u32) -> bool = $f;
                    if f(regs[dst] as u32, $operand as u32) {
                        pc = op.target();
                    }
                }};
            }
            macro_rules! load {
                ($n:literal, $from:expr) => {{
                    let address = regs[src].wrapping_add(offset);
                    let bytes = checked!(self.memory.load::<$n>(address));
                    regs[dst] = $from(bytes);
                }};
            }
            macro_rules! store {
                ($n:literal, $value:expr) => {{
                    let address = regs[dst].wrapping_add(offset);
                    checked!(self.memory.store::<$n>(address, $value));
                }};
            }

            use Kind::*;
            match op.kind {
                Add64K => alu64!(u64::wrapping_add, op.imm),
                Sub64K => alu64!(u64::wrapping_sub, op.imm),
                Mul64K => alu64!(u64::wrapping_mul, op.imm),
                Div64K => alu64!(div64, op.imm),
                Or64K => alu64!(u64::bitor, op.imm),
                And64K => alu64!(u64::bitand, op.imm),
                Lsh64K => alu64!(lsh64, op.imm),
                Rsh64K => alu64!(rsh64, op.imm),
                Mod64K => alu64!(mod64, op.imm),
                Xor64K => alu64!(u64::bitxor, op.imm),
                Mov64K => regs[dst] = op.imm,
                Arsh64K => alu64!(arsh64, op.imm),
                Sdiv64K => alu64!(sdiv64, op.imm),
                Smod64K => alu64!(smod64, op.imm),
                Add64X => alu64!(u64::wrapping_add, regs[src]),
                Sub64X => alu64!(u64::wrapping_sub, regs[src]),
                Mul64X => alu64!(u64::wrapping_mul, regs[src]),
                Div64X => alu64!(div64, regs[src]),
                Or64X => alu64!(u64::bitor, regs[src]),
                And64X => alu64!(u64::bitand, regs[src]),
                Lsh64X => alu64!(lsh64, regs[src]),
                Rsh64X => alu64!(rsh64, regs[src]),
                Mod64X => alu64!(mod64, regs[src]),
                Xor64X => alu64!(u64::bitxor, regs[src]),
                Mov64X => regs[dst] = regs[src],
                Arsh64X => alu64!(arsh64, regs[src]),
                Sdiv64X => alu64!(sdiv64, regs[src]),
                Smod64X => alu64!(smod64, regs[src]),

                Add32K => alu32!(u32::wrapping_add, op.imm),
                Sub32K => alu32!(u32::wrapping_sub, op.imm),
                Mul32K => alu32!(u32::wrapping_mul, op.imm),
                Div32K => alu32!(div32, op.imm),
                Or32K => alu32!(u32::bitor, op.imm),
                And32K => alu32!(u32::bitand, op.imm),
                Lsh32K => alu32!(u32::wrapping_shl, op.imm),
                Rsh32K => alu32!(u32::wrapping_shr, op.imm),
                Mod32K => alu32!(mod32, op.imm),
                Xor32K => alu32!(u32::bitxor, op.imm),
                Mov32K => regs[dst] = op.imm,
                Arsh32K => alu32!(arsh32, op.imm),
                Sdiv32K => alu32!(sdiv32, op.imm),
                Smod32K => alu32!(smod32, op.imm),
                Add32X => alu32!(u32::wrapping_add, regs[src]),
                Sub32X => alu32!(u32::wrapping_sub, regs[src]),
                Mul32X => alu32!(u32::wrapping_mul, regs[src]),
                Div32X => alu32!(div32, regs[src]),
                Or32X => alu32!(u32::bitor, regs[src]),
                And32X => alu32!(u32::bitand, regs[src]),
                Lsh32X => alu32!(u32::wrapping_shl, regs[src]),
                Rsh32X => alu32!(u32::wrapping_shr, regs[src]),
                Mod32X => alu32!(mod32, regs[src]),
                Xor32X => alu32!(u32::bitxor, regs[src]),
                Mov32X => regs[dst] = u64::from(regs[src] as u32),
                Arsh32X => alu32!(arsh32, regs[src]),
                Sdiv32X => alu32!(sdiv32, regs[src]),
                Smod32X => alu32!(smod32, regs[src]),

                Neg64 => regs[dst] = regs[dst].wrapping_neg(),
                Neg32 => regs[dst] = u64::from((regs[dst] as u32).wrapping_neg()),
                Movsx8To64 => regs[dst] = regs[src] as i8 as u64,
                Movsx16To64 => regs[dst] = regs[src] as i16 as u64,
                Movsx32To64 => regs[dst] = regs[src] as i32 as u64,
                Movsx8To32 => regs[dst] = u64::from(regs[src] as i8 as u32),
                Movsx16To32 => regs[dst] = u64::from(regs[src] as i16 as u32),
                Le16 => regs[dst] = u64::from(regs[dst] as u16),
                Le32 => regs[dst] = u64::from(regs[dst] as u32),
                Le64 => {}
                Swap16 => regs[dst] = u64::from((regs[dst] as u16).swap_bytes()),
                Swap32 => regs[dst] = u64::from((regs[dst] as u32).swap_bytes()),
                Swap64 => regs[dst] = regs[dst].swap_bytes(),

                LoadImm => {
                    regs[dst] = op.imm;
                    pc += 1;
                }
                LoadFunction => {
                    regs[dst] = crate::memory::function_handle(op.imm);
                    pc += 1;
                }
                Ldx8 => load!(1, |b: [u8; 1]| u64::from(b[0])),
                Ldx16 => load!(2, |b| u64::from(u16::from_le_bytes(b))),
                Ldx32 => {
                    regs[dst] = checked!(self.memory.load_word(regs[src].wrapping_add(offset)));
                }
                Ldx64 => load!(8, u64::from_le_bytes),
                Ldxs8 => load!(1, |b| i8::from_le_bytes(b) as u64),
                Ldxs16 => load!(2, |b| i16::from_le_bytes(b) as u64),
                Ldxs32 => load!(4, |b| i32::from_le_bytes(b) as u64),
                Stx8 => store!(1, [regs[src] as u8]),
                Stx16 => store!(2, (regs[src] as u16).to_le_bytes()),
                Stx32 => store!(4, (regs[src] as u32).to_le_bytes()),
                Stx64 => store!(8, regs[src].to_le_bytes()),
                St8 => store!(1, [op.imm as u8]),
                St16 => store!(2, (op.imm as u16).to_le_bytes()),
                St32 => store!(4, (op.imm as u32).to_le_bytes()),
                St64 => store!(8, op.imm.to_le_bytes()),
                Atomic32 => {
                    let address = regs[dst].wrapping_add(offset);
                    let cell = checked!(self.memory.atomic::<4>(address));
                    let old = u32::from_le_bytes(*cell);
                    let new = atomic(op.imm, u64::from(old), regs[src], u64::from(regs[0] as u32));
                    *cell = (new as u32).to_le_bytes();
                    fetch(regs, op, u64::from(old));
                }
                Atomic64 => {
                    let address = regs[dst].wrapping_add(offset);
                    let cell = checked!(self.memory.atomic::<8>(address));
                    let old = u64::from_le_bytes(*cell);
                    *cell = atomic(op.imm, old, regs[src], regs[0]).to_le_bytes();
                    fetch(regs, op, old);
                }

                PacketAbs | PacketInd => {
                    let indexed = op.kind == PacketInd;
                    let index = if indexed { regs[src] as u32 } else { 0 };
                    let at = index.wrapping_add(op.imm as u32);
                    match passed!(self.packet_bytes(at, op.off as usize)) {
                        Some(value) => regs[0] = value,
                        None => {
                            regs[0] = 0;
                            match self.leave(base, regs) {
                                Some(back) => pc = back,
                                None => return Ok(0),
                            }
                        }
                    }
                }
                Ja => pc = op.target(),
                MayGoto => match self.may_goto.checked_sub(1) {
                    Some(left) => self.may_goto = left,
                    None => pc = op.target(),
                },
                Jeq64K => jump64!(|a, b| a == b, op.imm),
                Jgt64K => jump64!(|a, b| a > b, op.imm),
                Jge64K => jump64!(|a, b| a >= b, op.imm),
                Jset64K => jump64!(|a, b| a & b != 0, op.imm),
                Jne64K => jump64!(|a, b| a != b, op.imm),
                Jsgt64K => jump64!(|a, b| (a as i64) > b as i64, op.imm),
                Jsge64K => jump64!(|a, b| a as i64 >= b as i64, op.imm),
                Jlt64K => jump64!(|a, b| a < b, op.imm),
                Jle64K => jump64!(|a, b| a <= b, op.imm),
                Jslt64K => jump64!(|a, b| (a as i64) < b as i64, op.imm),
                Jsle64K => jump64!(|a, b| a as i64 <= b as i64, op.imm),
                Jeq64X => jump64!(|a, b| a == b, regs[src]),
                Jgt64X => jump64!(|a, b| a > b, regs[src]),
                Jge64X => jump64!(|a, b| a >= b, regs[src]),
                Jset64X => jump64!(|a, b| a & b != 0, regs[src]),
                Jne64X => jump64!(|a, b| a != b, regs[src]),
                Jsgt64X => jump64!(|a, b| (a as i64) > b as i64, regs[src]),
                Jsge64X => jump64!(|a, b| a as i64 >= b as i64, regs[src]),
                Jlt64X => jump64!(|a, b| a < b, regs[src]),
                Jle64X => jump64!(|a, b| a <= b, regs[src]),
                Jslt64X => jump64!(|a, b| (a as i64) < b as i64, regs[src]),
                Jsle64X => jump64!(|a, b| a as i64 <= b as i64, regs[src]),
                Jeq32K => jump32!(|a, b| a == b, op.imm),
                Jgt32K => jump32!(|a, b| a > b, op.imm),
                Jge32K => jump32!(|a, b| a >= b, op.imm),
                Jset32K => jump32!(|a, b| a & b != 0, op.imm),
                Jne32K => jump32!(|a, b| a != b, op.imm),
                Jsgt32K => jump32!(|a, b| (a as i32) > b as i32, op.imm),
                Jsge32K => jump32!(|a, b| a as i32 >= b as i32, op.imm),
                Jlt32K => jump32!(|a, b| a < b, op.imm),
                Jle32K => jump32!(|a, b| a <= b, op.imm),
                Jslt32K => jump32!(|a, b| (a as i32) < b as i32, op.imm),
                Jsle32K => jump32!(|a, b| a as i32 <= b as i32, op.imm),
                Jeq32X => jump32!(|a, b| a == b, regs[src]),
                Jgt32X => jump32!(|a, b| a > b, regs[src]),
                Jge32X => jump32!(|a, b| a >= b, regs[src]),
                Jset32X => jump32!(|a, b| a & b != 0, regs[src]),
                Jne32X => jump32!(|a, b| a != b, regs[src]),
                Jsgt32X => jump32!(|a, b| (a as i32) > b as i32, regs[src]),
                Jsge32X => jump32!(|a, b| a as i32 >= b as i32, regs[src]),
                Jlt32X => jump32!(|a, b| a < b, regs[src]),
                Jle32X => jump32!(|a, b| a <= b, regs[src]),
                Jslt32X => jump32!(|a, b| (a as i32) < b as i32, regs[src]),
                Jsle32X => jump32!(|a, b| a as i32 <= b as i32, regs[src]),

                Helper => {
                    if let Some(target) = passed!(self.helper(op.imm as u32, regs)) {
                        pc = target;
                    }
                }
                Call => {
                    self.save(pc, regs);
                    passed!(self.enter(regs));
                    pc = op.target();
                }
                CallRegister => {
                    let value = regs[dst];
                    if let Some(target) = handle_function(value) {
                        self.save(pc, regs);
                        passed!(self.enter(regs));
                        pc = target;
                    } else if let Ok(number) = u32::try_from(value) {
                        if let Some(target) = passed!(self.helper(number, regs)) {
                            pc = target;
                        }
                    } else {
                        stop!(FaultKind::CallTarget { value });
                    }
                }
                Exit => match self.leave(base, regs) {
                    Some(back) => pc = back,
                    None => return Ok(regs[0]),
                },
                Half | SectionEnd | External | Invalid => {
                    self.fault_at.get_or_insert(pc.wrapping_sub(1));
                    return Err(self.refused(pc.wrapping_sub(1), false));
                }
            }
        }
    }

    /// Leaves the running function: where its caller goes on, nothing for the function that the run began with.
    #[inline(always)]
    fn leave(&mut self, base: usize, regs: &mut Registers) -> Option<usize> {
        if self.memory.depth == base {
            return None;
        }
        self.memory.depth -= 1;
        let depth = self.memory.depth;
        let (back, kept) = self.scratch.saved.get(depth)?;
        regs[6..10].copy_from_slice(kept);
        regs[10] = stack_address(depth) + STACK_BYTES as u64;
        Some(*back)
    }

    #[inline(always)]
    fn save(&mut self, back: usize, regs: &Registers) {
        if let Some(slot) = self.scratch.saved.get_mut(self.memory.depth) {
            *slot = (back, [regs[6], regs[7], regs[8], regs[9]]);
        }
    }
}

/// Why a program without a socket buffer cannot read packets as `LD_ABS` and `LD_IND` do.
#[cold]
pub(crate) fn legacy_access() -> FaultKind {
    FaultKind::Invalid {
        reason: "legacy packet access (LD_ABS, LD_IND) is for tc programs".to_owned(),
    }
}

fn div64(a: u64, b: u64) -> u64 {
    a.checked_div(b).unwrap_or(0)
}

fn mod64(a: u64, b: u64) -> u64 {
    a.checked_rem(b).unwrap_or(a)
}

fn sdiv64(a: u64, b: u64) -> u64 {
    if b == 0 {
        return 0;
    }
    (a as i64).wrapping_div(b as i64) as u64
}

fn smod64(a: u64, b: u64) -> u64 {
    if b == 0 {
        return a;
    }
    (a as i64).wrapping_rem(b as i64) as u64
}

fn lsh64(a: u64, b: u64) -> u64 {
    a.wrapping_shl(b as u32)
}

fn rsh64(a: u64, b: u64) -> u64 {
    a.wrapping_shr(b as u32)
}

fn arsh64(a: u64, b: u64) -> u64 {
    (a as i64).wrapping_shr(b as u32) as u64
}

fn div32(a: u32, b: u32) -> u32 {
    a.checked_div(b).unwrap_or(0)
}

fn mod32(a: u32, b: u32) -> u32 {
    a.checked_rem(b).unwrap_or(a)
}

fn sdiv32(a: u32, b: u32) -> u32 {
    if b == 0 {
        return 0;
    }
    (a as i32).wrapping_div(b as i32) as u32
}

fn smod32(a: u32, b: u32) -> u32 {
    if b == 0 {
        return a;
    }
    (a as i32).wrapping_rem(b as i32) as u32
}

fn arsh32(a: u32, b: u32) -> u32 {
    (a as i32).wrapping_shr(b) as u32
}

/// New contents of a cell after the atomic operation `code` (RFC 9669 section 5.3).
#[inline(always)]
fn atomic(code: u64, old: u64, operand: u64, expected: u64) -> u64 {
    match code & 0xff {
        0x00 | 0x01 => old.wrapping_add(operand),
        0x40 | 0x41 => old | operand,
        0x50 | 0x51 => old & operand,
        0xa0 | 0xa1 => old ^ operand,
        0xe1 => operand,
        _ if old == expected => operand,
        _ => old,
    }
}

/// Puts the old contents where the operation wants them: r0 for compare-and-exchange, else the source.
#[inline(always)]
fn fetch(regs: &mut Registers, op: &Op, old: u64) {
    match op.imm & 0xff {
        0xf1 => regs[0] = old,
        code if code & 1 == 1 => regs[(op.src & 15) as usize] = old,
        _ => {}
    }
}
