//! What stands in for native code on hosts that have none: types without values.
//!
//! Invariant: nothing here can run, because nothing here can exist.

use super::JitError;
use crate::frame::Frame;
use crate::insn::Op;
use crate::interp::{Env, Registers, Run, Step};
use crate::machine::Code;
use crate::maps::Map;
use crate::verify::Facts;

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

/// Native code of verified programs, which no such host has.
#[derive(Debug)]
pub(crate) enum Native {}

impl Native {
    pub(super) fn compile(
        _: &Code,
        _: &[Map],
        _: u32,
        _: &[(usize, &Facts)],
    ) -> Result<Native, JitError> {
        Err(JitError::Platform)
    }

    pub(crate) fn select(&mut self, _: usize) {
        match *self {}
    }

    pub(crate) fn has(&self, _: usize) -> bool {
        match *self {}
    }

    pub(crate) fn fits(&self, _: &[Map]) -> bool {
        match *self {}
    }

    pub(crate) fn len(&self) -> usize {
        match *self {}
    }

    pub(crate) fn execute_alone(&mut self, _: &mut Frame, _: &Env) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn execute(&mut self, _: &mut Run<'_>) -> Step<u64> {
        match *self {}
    }
}

/// The host's memory, which only native code reaches.
pub(crate) enum Host {}

impl Host {
    pub(crate) fn bytes(&self, _: u64, _: usize) -> Option<&[u8]> {
        match *self {}
    }

    pub(crate) fn bytes_mut(&mut self, _: u64, _: usize) -> Option<&mut [u8]> {
        match *self {}
    }

    pub(crate) fn key(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn holds(&self, _: u64, _: usize) -> bool {
        match *self {}
    }

    pub(crate) fn publish(&mut self, _: &Frame) {
        match *self {}
    }

    pub(crate) fn call(_: &mut Run<'_>, _: usize, _: [u64; 4]) -> Step<u64> {
        Err(Box::new(crate::interp::FaultKind::Fallthrough))
    }
}
