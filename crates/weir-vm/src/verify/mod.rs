//! The verifier's parts; see `tnum` and `scalar` for what is known about numbers.

#![allow(
    dead_code,
    reason = "the walk over programs, which uses it, is being added"
)]

mod range;
pub(crate) mod scalar;
pub(crate) mod tnum;
