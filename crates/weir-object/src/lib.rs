//! Objects of anybody as functions of a graph: one of an object's XDP programs becomes a function that weir's wrapper calls.
//!
//! Owns the joining of the two files ([`chain`]) and the statement of which objects cannot be joined and why ([`ObjectError`]).
//! Pure: files in, a file out, the same on every machine; nobody is asked for permission and nothing is loaded. The idea, and
//! what was decided against, is in docs/design/objects.md.

#![warn(clippy::expect_used, clippy::unwrap_used)]

mod btf;
mod chain;
mod constant;
mod elf;
mod join;

pub use chain::{Chained, ObjectError, PROGRAM, Refused, Request, chain, check};
pub use constant::{ConstantError, Value, constants, encode};
