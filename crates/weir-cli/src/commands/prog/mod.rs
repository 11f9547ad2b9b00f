//! `weir prog`: eBPF objects, of weir and of others, without a kernel. One module for each command.

mod exec;

use std::process::ExitCode;

use crate::args::prog::{ProgArgs, ProgCommand};
use crate::failure::Failure;

/// Runs a command on programs.
pub(crate) fn run(args: &ProgArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        ProgCommand::Exec(args) => exec::run(args),
    }
}
