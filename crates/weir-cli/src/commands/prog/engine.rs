//! What runs an XDP or tc program over frames: weir's interpreter or native code, or the running kernel's test run.
//!
//! Both take the same inputs and give the same answers, so that a capture can be run in one beside the other. Invariant: a frame
//! that an engine cannot take is an outcome, not an error; an error ends the run.

use weir_kernel::{KernelObject, LoadedProgram, TEST_RUN_MIN, TestCtx};
use weir_vm::verify::VerifyOptions;
use weir_vm::{
    Env, Fault, Frame, LoadError, Machine, Map, MapKind, Object, ProgramKind, Redirect, Skb,
    SkbField,
};

use crate::args::prog::RunEngine;
use crate::failure::Failure;

/// Bytes of each CPU's buffer of a perf event array; what does not fit is lost, as in the kernel.
const PERF_BYTES: usize = 1 << 20;

/// A loaded program.
pub(super) enum Engine {
    /// Interpreted, or native code where so asked for.
    Machine(Box<Runner>),
    Kernel(Box<LoadedProgram>),
}

/// A machine and what it works on.
pub(super) struct Runner {
    pub(super) machine: Machine,
    /// Whether it is to run as native code.
    native: bool,
    packet: Packet,
}

/// A packet as the program's hook has it.
enum Packet {
    Xdp(Frame),
    Tc(Box<Skb>),
}

/// How a frame fared.
pub(super) enum Outcome {
    /// The program returned this.
    Returned {
        action: u32,
        /// Where it redirected the frame to, as far as the engine knows.
        redirect: Option<Redirect>,
    },
    /// The program did what no verifier would have let it do, or used up its instructions.
    Fault(Box<Fault>),
    /// The engine cannot run frames like this one.
    NotRun(String),
}

/// What a frame comes with.
pub(super) struct Input<'p> {
    pub(super) frame: &'p [u8],
    pub(super) now_ns: u64,
    /// Position in the capture, from 0: the seed of random numbers.
    pub(super) number: u64,
    pub(super) ingress_ifindex: u32,
    pub(super) rx_queue: u32,
    pub(super) instruction_budget: u64,
}

impl Engine {
    /// Loads `program` of an object. The kernel reads the file, with the entries of maps that are set.
    pub(super) fn load(
        kind: RunEngine,
        (elf, sizes): (&[u8], &[(String, u32)]),
        object: Object,
        program: &str,
    ) -> Result<Engine, Failure> {
        match kind {
            RunEngine::Interpreter | RunEngine::Jit => {
                let native = kind == RunEngine::Jit;
                let packet = match object.program_kind(program) {
                    Some(ProgramKind::SchedCls) => Packet::Tc(Box::new(Skb::new(&[]))),
                    _ => Packet::Xdp(Frame::new(&[])),
                };
                if native && matches!(packet, Packet::Tc(_)) {
                    return Err(Failure::usage(format!(
                        "{program} is a tc program, and only XDP programs are verified and compiled: use the interpreter"
                    )));
                }
                let mut machine = object.load(program).map_err(Failure::failed)?;
                listen(&mut machine).map_err(Failure::failed)?;
                Ok(Engine::Machine(Box::new(Runner {
                    machine,
                    native,
                    packet,
                })))
            }
            RunEngine::Kernel => {
                let mut kernel = KernelObject::open(elf).map_err(Failure::failed)?;
                for (map, entries) in sizes {
                    kernel
                        .set_map_entries(map, *entries)
                        .map_err(Failure::failed)?;
                }
                let loaded = kernel.load(program).map_err(Failure::failed)?;
                Ok(Engine::Kernel(Box::new(loaded)))
            }
        }
    }

    /// The machine of the user engine; none of the kernel's.
    pub(super) fn machine_mut(&mut self) -> Option<&mut Machine> {
        match self {
            Engine::Machine(runner) => Some(&mut runner.machine),
            Engine::Kernel(_) => None,
        }
    }

    /// Makes it ready to run, with the maps as they are: what is to be native code is verified and compiled.
    pub(super) fn prepare(&mut self) -> Result<(), Failure> {
        match self {
            Engine::Machine(runner) if runner.native => {
                let compiled = runner.machine.verify_and_compile(&VerifyOptions::default());
                compiled.map_err(|e| {
                    Failure::failed(format!(
                        "{e}; `weir prog verify` explains rejections, `--engine interpreter` runs any program"
                    ))
                })
            }
            _ => Ok(()),
        }
    }

    /// The name used in output.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Engine::Machine(runner) if runner.native => "jit",
            Engine::Machine(_) => "interpreter",
            Engine::Kernel(_) => "kernel",
        }
    }

    /// Runs the program over one frame; `out` becomes the frame as the program left it.
    pub(super) fn packet(
        &mut self,
        input: &Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Failure> {
        match self {
            Engine::Machine(runner) => Ok(runner.packet(input, out)),
            Engine::Kernel(program) => {
                if input.frame.len() < TEST_RUN_MIN {
                    return Ok(Outcome::NotRun(format!(
                        "the kernel's test run takes frames from {TEST_RUN_MIN} bytes on"
                    )));
                }
                let context = TestCtx {
                    ingress_ifindex: input.ingress_ifindex,
                    rx_queue: input.rx_queue,
                    ..TestCtx::default()
                };
                Ok(match program.test_run(input.frame, out, context) {
                    Ok(outcome) => Outcome::Returned {
                        action: outcome.retval,
                        redirect: None,
                    },
                    // A kernel has its own rules for what a test run takes, by hook and version.
                    Err(error) => Outcome::NotRun(error.to_string()),
                })
            }
        }
    }

    /// Instructions executed so far; nothing where the engine does not count them.
    pub(super) fn instructions(&self) -> Option<u64> {
        match self {
            Engine::Machine(runner) if !runner.native => Some(runner.machine.instructions_run()),
            _ => None,
        }
    }
}

/// Reads all perf event arrays, so that programs can send to them.
fn listen(machine: &mut Machine) -> Result<(), LoadError> {
    let names: Vec<String> = machine.map_names().map(str::to_owned).collect();
    for name in names {
        let kind = machine.map(&name).map(Map::kind);
        if kind == Some(MapKind::PerfEventArray) {
            machine.open_perf(&name, PERF_BYTES)?;
        }
    }
    Ok(())
}

impl Runner {
    fn packet(&mut self, input: &Input<'_>, out: &mut Vec<u8>) -> Outcome {
        let env = Env {
            now_ns: input.now_ns,
            ingress_ifindex: input.ingress_ifindex,
            rx_queue: input.rx_queue,
            random_seed: input.number,
            instruction_budget: input.instruction_budget,
            ..Env::default()
        };
        let result = match &mut self.packet {
            Packet::Xdp(frame) => {
                frame.reset(input.frame);
                self.machine.run_xdp(frame, &env)
            }
            Packet::Tc(skb) => {
                skb.reset(input.frame);
                skb.set(SkbField::IngressIfindex, input.ingress_ifindex);
                self.machine.run_tc(skb, &env)
            }
        };
        match result {
            Ok(action) => {
                out.clear();
                out.extend_from_slice(match &self.packet {
                    Packet::Xdp(frame) => frame.data(),
                    Packet::Tc(skb) => skb.data(),
                });
                Outcome::Returned {
                    action,
                    redirect: self.machine.redirect().cloned(),
                }
            }
            Err(fault) => Outcome::Fault(Box::new(fault)),
        }
    }
}
