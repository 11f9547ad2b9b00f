//! Native code: programs as x86-64 instructions, and the memory such code reaches by address.
//!
//! The only module of the crate with `unsafe`; docs/design/jit.md has the memory model. Owns stable memory ([`Block`])
//! and everything that runs or is run by generated code. Invariant: outside this module no address is ever dereferenced.

mod block;
mod raw;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[allow(dead_code, reason = "native mode uses what checked mode does not")]
mod asm;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod checked;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod code;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod elsewhere;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod emit;

use thiserror::Error;

pub(crate) use block::Block;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use checked::Checked;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) use elsewhere::Checked;
pub use raw::Raw;

/// Why there is no native code.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JitError {
    /// The host is not Linux on x86-64.
    #[error("native code needs Linux on x86-64; use the interpreter")]
    Platform,
    /// No memory for the code, or none that may be executed.
    #[error("the system gives no memory for native code; use the interpreter")]
    Memory,
}

/// Whether this host can run native code.
pub fn available() -> bool {
    cfg!(all(target_arch = "x86_64", target_os = "linux"))
}
