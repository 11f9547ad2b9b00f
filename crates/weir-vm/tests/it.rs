//! All integration tests of weir-vm in one program: each file beside this one is a module here, and linking once is what it saves.
//!
//! A new file gets a line below; scripts/check-tree finds one that has none. Helpers come first, tests after them.

mod asm;
mod object;

mod conformance;
mod cookies;
mod core;
mod frames;
mod hostile;
mod jit_agrees;
mod jit_native;
mod join;
mod loading;
mod maps;
mod operations;
mod programs;
mod verifier;
