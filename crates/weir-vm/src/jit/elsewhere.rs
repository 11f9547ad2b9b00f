//! What stands in for native code on hosts that have none: types without values.
//!
//! Invariant: nothing here can run, because nothing here can exist.

use super::JitError;
use crate::insn::Op;
use crate::interp::{Registers, Run, Step};

/// Checked native code, which no such host has.
#[derive(Debug)]
pub(crate) enum Checked {}

impl Checked {
    pub(super) fn compile(_: &[Op]) -> Result<Checked, JitError> {
        Err(JitError::Platform)
    }

    pub(super) fn len(&self) -> usize {
        match *self {}
    }

    pub(crate) fn execute(&self, _: &mut Run<'_>, _: usize, _: &mut Registers) -> Step<u64> {
        match *self {}
    }
}
