//! Commands and flags of `weir prog`: eBPF objects, of weir and of others. Part of the one table in `args`.

use clap::{Subcommand, ValueEnum};

/// Arguments of `weir prog`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProgArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: ProgCommand,
}

/// What to do with a program.
#[derive(Debug, Subcommand)]
pub(crate) enum ProgCommand {
    /// Run bare instructions, read as hexadecimal bytes from standard input, and print r0 in hexadecimal; the protocol of conformance suites
    Exec(ExecArgs),
}

/// Engines that run bare instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecEngine {
    /// The checked interpreter
    Interpreter,
}

/// Arguments of `weir prog exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Memory that r1 points at, as hexadecimal bytes; r2 is its length
    #[arg(
        value_name = "MEMORY_HEX",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) memory: String,
    /// What runs the instructions
    #[arg(long, value_enum, default_value = "interpreter")]
    pub(crate) engine: ExecEngine,
}
