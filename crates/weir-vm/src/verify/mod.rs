//! The verifier: whether a program can do no harm, decided as the Linux kernel decides it (docs/design/verifier.md).
//!
//! Owns everything between linked code and an answer: control flow, abstract states, the walk over all paths, pruning.
//! It never runs a program. Invariant: what it accepts cannot fault in the interpreter, whatever the packet and the maps' contents.

mod access;
mod alu;
mod arguments;
mod branch;
mod call;
mod dynptr;
mod facts;
mod global;
mod helpers;
mod iterator;
mod kernel;
mod layout;
mod object;
mod precision;
mod prune;
#[allow(
    dead_code,
    reason = "complete for its tests and the checks against concrete runs"
)]
mod range;
mod recording;
mod rejection;
#[allow(
    dead_code,
    reason = "complete for its tests and the checks against concrete runs"
)]
pub(crate) mod scalar;
mod shape;
mod socket;
mod stack;
mod state;
#[allow(
    dead_code,
    reason = "complete for its tests and the checks against concrete runs"
)]
pub(crate) mod tnum;
mod walk;

use crate::machine::Machine;

pub(crate) use recording::Watch;

pub use facts::{Access, Facts, OneOf, OpFacts};
pub use recording::{Misfit, Recording, Watched};
pub use rejection::{Birth, History, InsnLocation, PathStep, Rejection, Rule, Seen, ValueKind};

/// What may be chosen.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Keep a log of the walk, like the kernel's at level 2. Costs time and memory.
    pub log: bool,
    /// Refuse packet and map value accesses that are not aligned, as on machines that cannot do them.
    pub strict_alignment: bool,
    /// Let programs read stack that was never written, as the kernel lets root; else such reads are refused, as they are to others.
    pub unwritten_stack: bool,
    /// Instructions that may be walked: 1,000,000 as in the kernel.
    pub budget: u64,
    /// Bytes that kept states may take, about: 1 GiB.
    pub state_bytes: u64,
}

impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        VerifyOptions {
            log: false,
            strict_alignment: false,
            unwritten_stack: true,
            budget: 1_000_000,
            state_bytes: 1 << 30,
        }
    }
}

/// An accepted program.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Instructions walked, the kernel's "processed" count.
    pub processed: u64,
    /// States kept, all in all.
    pub states: usize,
    /// States kept at once at most.
    pub peak_states: usize,
    /// Bytes of stack of the deepest chain of calls.
    pub stack_bytes: u32,
    /// What was learned of each operation.
    pub facts: Facts,
    /// The walk, if asked for.
    pub log: String,
    /// What was verified. Nobody else can make one, so an accepted program is a proof.
    pub(crate) origin: Origin,
}

/// The program a verdict holds for, and the state of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Number of the program.
    pub(crate) program: usize,
    /// Code and constants.
    pub(crate) edition: u64,
    /// Identities of the maps.
    pub(crate) maps: Vec<u64>,
}

/// Verifies a program of a machine, with its maps as they are now.
///
/// # Errors
/// The rule that the program breaks, and everything an explanation needs.
pub fn verify(
    machine: &Machine,
    program: &str,
    options: &VerifyOptions,
) -> Result<Verified, Box<Rejection>> {
    let (code, maps, cpus) = machine.parts();
    let Ok(entry) = machine.entry_of(program) else {
        return Err(Box::new(Rejection::without_place(program, Rule::NoProgram)));
    };
    let walk = walk::Walk::new(code, maps, cpus, (program, entry), options)?;
    let (mut verified, _) = walk.run()?;
    verified.origin = machine.origin(entry);
    Ok(verified)
}

/// As [`verify`], and keeps all states, to compare runs with them ([`Machine::watch`]). The walk is longer: what covers a state
/// must cover all its numbers, also those that no rule asks for.
///
/// # Errors
/// As [`verify`].
pub fn verify_recording(
    machine: &Machine,
    program: &str,
    options: &VerifyOptions,
) -> Result<(Verified, Recording), Box<Rejection>> {
    let (code, maps, cpus) = machine.parts();
    let Ok(entry) = machine.entry_of(program) else {
        return Err(Box::new(Rejection::without_place(program, Rule::NoProgram)));
    };
    let mut walk = walk::Walk::new(code, maps, cpus, (program, entry), options)?;
    walk.recording = Some(Recording::default());
    let (mut verified, recording) = walk.run()?;
    verified.origin = machine.origin(entry);
    Ok((verified, recording.unwrap_or_default()))
}
