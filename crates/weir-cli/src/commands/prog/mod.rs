//! `weir prog`: eBPF objects, of weir and of others. One module for each command; those that leave something in the kernel are in `pinned`.

mod contents;
mod declare;
mod disasm;
mod engine;
mod exec;
mod maps;
mod object;
pub(super) mod pinned;
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
        ProgCommand::Load(args) => pinned::load::run(args),
        ProgCommand::Attach(args) => pinned::attach::run(args),
        ProgCommand::Detach(args) => pinned::detach::run(args),
        ProgCommand::Replace(args) => pinned::replace::run(args),
        ProgCommand::List(args) => pinned::list::run(args),
        ProgCommand::Unload(args) => pinned::unload::run(args),
    }
}
