//! The programs `weir` and `weir-lab`: arguments in, output and exit status out. What commands do is in `commands`.
//!
//! `weir` is what a host needs; `weir-lab` has the test beds and benchmarks, which `weir lab` and `weir bench` start. Exit status: 0 done,
//! 1 failed, 2 bad usage or configuration. A broken pipe is success: nobody is left to read.

#![warn(clippy::expect_used, clippy::unwrap_used)]

mod args;
mod commands;
mod failure;
mod limits;
mod output;

use std::process::ExitCode;

use clap::{Command, FromArgMatches};

use failure::Failure;

/// Plans of many networks, rule sets and flows are many small allocations: a seventh of what changing one workload of 10,000 took was glibc's own work for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The program `weir`.
pub fn weir() -> ExitCode {
    if called_as(commands::CNI_PLUGIN) {
        weir_kernel::pins::share_bpffs();
        return commands::cni();
    }
    let args: args::Args = parsed(args::table::weir());
    output::set_color(args.color);
    if weir_agent::is_orphan() {
        output::complain("the agent that started this command is gone");
        return ExitCode::FAILURE;
    }
    // `ip netns exec` hides it, and with it all that runs.
    weir_kernel::pins::share_bpffs();
    exit(commands::dispatch(args))
}

/// Whether the program was started by this name: container runtimes run plugins by their names in a folder, without arguments.
fn called_as(name: &str) -> bool {
    let called = std::env::args_os().next().unwrap_or_default();
    std::path::Path::new(&called).file_name() == Some(std::ffi::OsStr::new(name))
}

/// The program `weir-lab`.
pub fn weir_lab() -> ExitCode {
    let args: args::LabProgram = parsed(args::table::weir_lab());
    output::set_color(args.color);
    weir_kernel::pins::share_bpffs();
    exit(commands::dispatch_lab(args.command))
}

/// The arguments of this process; ends it where they are wrong, or ask for help.
fn parsed<T: FromArgMatches>(mut command: Command) -> T {
    let matches = command.get_matches_mut();
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

fn exit(outcome: Result<ExitCode, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure.to_string());
            failure.exit_code()
        }
    }
}
