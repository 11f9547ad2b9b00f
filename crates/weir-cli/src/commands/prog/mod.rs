//! `weir prog`: eBPF objects, of weir and of others, without a kernel. One module for each command.

mod contents;
mod declare;
mod disasm;
mod engine;
mod exec;
mod maps;
mod object;
mod run;
mod screen;
mod seeds;
mod serve;
mod typed;
mod verify;

use std::process::ExitCode;

use crate::args::prog::{ProgArgs, ProgCommand};
use crate::failure::Failure;

/// Runs a command on programs.
pub(crate) fn run(args: &ProgArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        ProgCommand::Verify(args) => verify::run(args),
        ProgCommand::Run(args) => run::run(args),
        ProgCommand::Serve(args) => serve::run(args),
        ProgCommand::Maps(args) => maps::run(args),
        ProgCommand::Disasm(args) => disasm::run(args),
        ProgCommand::Exec(args) => exec::run(args),
    }
}
