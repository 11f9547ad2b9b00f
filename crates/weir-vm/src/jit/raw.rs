//! Checked native code over one machine: programs no verifier has seen, with the interpreter's results.
//!
//! Owns the public face of checked mode. Invariant: the code is the machine's own, because it borrows the machine.

use super::{Checked, JitError};
use crate::frame::Frame;
use crate::interp::{Env, Fault};
use crate::machine::Machine;

/// A machine whose program runs as checked native code: no verifier needed, results and faults are the interpreter's.
#[derive(Debug)]
pub struct Raw<'m> {
    machine: &'m mut Machine,
    code: Checked,
}

impl<'m> Raw<'m> {
    /// Compiles all code of the machine.
    ///
    /// # Errors
    /// [`JitError`] when the host cannot run native code.
    pub fn compile(machine: &'m mut Machine) -> Result<Raw<'m>, JitError> {
        let code = Checked::compile(machine.ops())?;
        Ok(Raw { machine, code })
    }

    /// As [`Machine::run_raw`].
    ///
    /// # Errors
    /// As [`Machine::run_raw`].
    pub fn run(&mut self, mem: &mut [u8]) -> Result<u64, Fault> {
        self.run_with(mem, &Env::default())
    }

    /// As [`Machine::run_raw_with`].
    ///
    /// # Errors
    /// As [`Machine::run_raw_with`].
    pub fn run_with(&mut self, mem: &mut [u8], env: &Env) -> Result<u64, Fault> {
        self.machine.run_raw_checked(mem, env, &self.code)
    }

    /// As [`Machine::run_xdp`], every access checked.
    ///
    /// # Errors
    /// As [`Machine::run_xdp`].
    pub fn run_xdp(&mut self, frame: &mut Frame, env: &Env) -> Result<u32, Fault> {
        self.machine.run_xdp_checked(frame, env, &self.code)
    }

    /// Bytes of native code.
    pub fn code_bytes(&self) -> usize {
        self.code.len()
    }
}
