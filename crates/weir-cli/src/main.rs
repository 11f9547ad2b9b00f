//! The program `weir`: arguments in, output and exit status out. What commands do is in `commands`.
//!
//! Exit status: 0 done, 1 failed, 2 bad usage or configuration. A broken pipe is success: nobody is left to read.

#![warn(clippy::expect_used, clippy::unwrap_used)]

mod args;
mod commands;
mod failure;
mod output;

use std::process::ExitCode;

use clap::Parser;

/// Plans of many networks, rule sets and flows are many small allocations: a seventh of what changing one workload of 10,000 took was glibc's own work for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = args::Args::parse();
    // `ip netns exec` hides it, and with it all that runs.
    weir_kernel::pins::share_bpffs();
    match commands::dispatch(args.command) {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure.to_string());
            failure.exit_code()
        }
    }
}
