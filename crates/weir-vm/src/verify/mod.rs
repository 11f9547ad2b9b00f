//! The verifier: whether a program can do no harm, decided as the Linux kernel decides it (docs/design/verifier.md).
//!
//! Owns everything between linked code and an answer: control flow, abstract states, the walk over all paths, pruning.
//! It never runs a program. Invariant: what it accepts cannot fault in the interpreter, whatever the packet and the maps' contents.

#![allow(
    dead_code,
    reason = "the walk over programs, which uses it, is being added"
)]

mod facts;
#[allow(
    dead_code,
    reason = "the walk over programs, which uses it, is being added"
)]
mod range;
mod rejection;
#[allow(
    dead_code,
    reason = "the walk over programs, which uses it, is being added"
)]
pub(crate) mod scalar;
#[allow(
    dead_code,
    reason = "the walk over programs, which uses it, is being added"
)]
pub(crate) mod tnum;

pub use facts::{Access, Facts, OneOf, OpFacts};
pub use rejection::{Birth, History, PathStep, Place, Rejection, Rule, Seen, ValueKind};

/// What may be chosen.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Keep a log of the walk, like the kernel's at level 2. Costs time and memory.
    pub log: bool,
    /// Refuse packet and map value accesses that are not aligned, as on machines that cannot do them.
    pub strict_alignment: bool,
    /// Instructions that may be walked: 1,000,000 as in the kernel.
    pub budget: u64,
}

impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        VerifyOptions {
            log: false,
            strict_alignment: false,
            budget: 1_000_000,
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
}
