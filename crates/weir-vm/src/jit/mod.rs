//! Native code: programs as x86-64 instructions, and the memory such code reaches by address.
//!
//! The only module of the crate with `unsafe`; docs/design/jit.md has the memory model. Owns stable memory (`Block`)
//! and everything that runs or is run by generated code. Invariant: outside this module no address is ever dereferenced.

mod block;
mod compile;
mod raw;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod asm;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod checked;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod code;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod emit;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod flow;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod lookup;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod native;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod translate;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tune;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod elsewhere;

use thiserror::Error;

pub(crate) use block::Block;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use checked::Checked;
pub use compile::{CompileError, Execution};
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) use elsewhere::{Checked, Host, Native};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use native::{Host, Native};
pub use raw::Raw;

/// Why there is no native code.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JitError {
    /// The host is not Linux on x86-64.
    #[error("native code needs Linux on x86-64; use the interpreter")]
    Platform,
    /// Code that the verifier refuses, or two functions that share code.
    #[error("no native code for this program: {0}; use the interpreter")]
    Code(&'static str),
    /// The verdict is another machine's, or its maps or constants have changed.
    #[error(
        "the program has changed since it was verified, or is another machine's; verify it again"
    )]
    Stale,
    /// Only XDP programs have native code.
    #[error("only XDP programs have native code; use the interpreter")]
    Kind,
    /// No memory for the code, or none that may be executed.
    #[error("the system gives no memory for native code; use the interpreter")]
    Memory,
}

/// Whether this host can run native code.
pub fn available() -> bool {
    cfg!(all(target_arch = "x86_64", target_os = "linux"))
}
