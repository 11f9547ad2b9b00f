//! One module for each command.

mod bench;
mod capture;
mod check;
mod connections;
mod doctor;
mod down;
mod explain;
mod fmt;
mod lab;
mod policy;
mod prog;
mod replay;
mod rule;
mod run;
mod table;
mod tables;

use std::process::ExitCode;

use crate::args::Command;
use crate::failure::Failure;

/// Runs a command.
pub(crate) fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Fmt(args) => fmt::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Prog(args) => prog::run(&args),
        Command::Tables(args) => tables::run(&args),
        Command::Rule(args) => rule::run(&args),
        Command::Connections(args) => connections::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Bench(args) => bench::run(&args),
    }
}
