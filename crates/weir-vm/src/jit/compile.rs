//! From verified programs of a machine to native code of them.
//!
//! Owns who may be compiled. Invariant: what is compiled has been verified, with this machine's code, constants and maps.

use thiserror::Error;

use super::{JitError, Native};
use crate::machine::Machine;
use crate::maps::MapKind;
use crate::program::ProgramKind;
use crate::verify::{Rejection, Verified, VerifyOptions, verify};

/// What carries a machine's runs over frames out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Native code of verified programs.
    Jit,
    /// The checked interpreter, for any program on any host.
    Interpreter,
}

/// Why a machine cannot run natively.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The verifier refuses the program, or one it may tail-call.
    #[error(transparent)]
    Rejected(#[from] Box<Rejection>),
    /// There is no native code for it.
    #[error(transparent)]
    Jit(#[from] JitError),
}

impl Machine {
    /// Verifies the program that runs and all programs that program arrays hold now, and compiles them; runs over frames
    /// are native from then on. What a program array is given later must have been in one.
    ///
    /// # Errors
    /// [`CompileError`]; the machine goes on interpreting.
    pub fn verify_and_compile(&mut self, options: &VerifyOptions) -> Result<(), CompileError> {
        let mut numbers = vec![self.selected()];
        for map in self
            .maps()
            .iter()
            .filter(|m| m.kind() == MapKind::ProgArray)
        {
            let held = map.keys().filter_map(|key| map.reference(&key));
            numbers.extend(held.map(|number| number as usize));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let kind = |n: &usize| self.code().kinds.get(*n);
        if !numbers.iter().filter_map(kind).all(ProgramKind::is_xdp) {
            return Err(JitError::Kind.into());
        }
        let names = numbers.iter().filter_map(|n| self.code().programs.get(*n));
        let verified: Vec<Verified> = names
            .map(|program| verify(self, &program.name, options))
            .collect::<Result<_, _>>()?;
        self.compile(&verified.iter().collect::<Vec<_>>())?;
        Ok(())
    }

    /// Compiles verified programs; where the selected one is among them, runs over frames are native from then on. Tail
    /// calls reach these programs only: one to another stops the run.
    ///
    /// # Errors
    /// [`JitError`] when the host has no native code, and when something has changed since a program was verified.
    pub fn compile(&mut self, verified: &[&Verified]) -> Result<(), JitError> {
        let mut programs = Vec::with_capacity(verified.len());
        for verified in verified {
            let origin = &verified.origin;
            let entry = self.code().entries.get(origin.program).copied();
            if entry.is_none_or(|entry| self.origin(entry) != *origin) {
                return Err(JitError::Stale);
            }
            let kind = self.code().kinds.get(origin.program);
            if !matches!(kind, Some(ProgramKind::Xdp { .. })) {
                return Err(JitError::Kind);
            }
            programs.push((origin.program, &verified.facts));
        }
        let native = Native::compile(self.code(), self.maps(), self.cpus(), &programs)?;
        self.set_native(Some(native));
        Ok(())
    }

    /// Goes back to interpreting.
    pub fn interpret(&mut self) {
        self.set_native(None);
    }

    /// What carries the selected program's runs over frames out.
    pub fn execution(&self) -> Execution {
        if self.native().is_some_and(|n| n.has(self.selected())) {
            Execution::Jit
        } else {
            Execution::Interpreter
        }
    }

    /// Bytes of native code; 0 without any.
    pub fn native_bytes(&self) -> usize {
        self.native().map_or(0, Native::len)
    }
}
