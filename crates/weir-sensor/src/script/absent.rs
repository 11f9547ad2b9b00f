//! What stands for the interpreter in a program that was built without it: no script can be loaded, so none runs.

use std::path::Path;

use super::{Failure, Needs, Script, View};

/// Nothing.
#[derive(Debug)]
pub(crate) enum State {}

impl State {
    pub(super) fn needs(_: &Script) -> Result<Needs, String> {
        Err("this program was built without Lua".to_owned())
    }

    pub(crate) fn new(_: &Script, _: &[String], _: Option<&Path>) -> Result<State, Failure> {
        Err(Failure {
            kind: super::FailureKind::Other,
            text: "this program was built without Lua".to_owned(),
        })
    }

    pub(crate) fn matches(&mut self, _: &mut View<'_>) -> Result<bool, Failure> {
        match *self {}
    }

    pub(crate) fn transform(&mut self, _: &[u8], _: &[String]) -> Result<Option<Vec<u8>>, Failure> {
        match *self {}
    }

    pub(crate) fn log(&mut self, _: &mut View<'_>) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        match *self {}
    }
}
