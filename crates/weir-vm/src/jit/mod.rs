//! Native code: programs as x86-64 instructions, and the memory such code reaches by address.
//!
//! The only module of the crate with `unsafe`; docs/design/jit.md has the memory model. Owns stable memory ([`Block`])
//! and everything that runs or is run by generated code. Invariant: outside this module no address is ever dereferenced.

mod block;

pub(crate) use block::Block;
