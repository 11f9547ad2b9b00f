//! The other program of weir: `weir` starts `weir-lab` for test beds and benchmarks, and these run `weir`.
//!
//! A program is looked for beside the running one, then in PATH. Hosts in production have no `weir-lab`; the commands say then which package it is in.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::ColorChoice;

use crate::failure::Failure;

/// Becomes `weir-lab COMMAND ARGUMENTS`, with the same process id, so that signals reach it.
pub(crate) fn become_lab(
    command: &str,
    color: ColorChoice,
    arguments: &[OsString],
) -> Result<ExitCode, Failure> {
    let program = find("weir-lab").ok_or_else(|| {
        Failure::Failed(format!(
            "`weir {command}` is in the program weir-lab, which is neither beside weir nor in PATH: install the package weir-lab"
        ))
    })?;
    let mut lab = Command::new(&program);
    if color != ColorChoice::Auto {
        lab.arg(format!("--color={color}"));
    }
    let error = lab.arg(command).args(arguments).exec();
    Err(Failure::Failed(format!(
        "cannot start {}: {error}",
        program.display()
    )))
}

/// The program `weir`, which experiments run as a child.
pub(crate) fn weir() -> Result<PathBuf, Failure> {
    find("weir").ok_or_else(|| {
        Failure::Failed(
            "the program weir is neither beside weir-lab nor in PATH: install the package weir"
                .to_owned(),
        )
    })
}

fn find(name: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok();
    let beside = beside.and_then(|own| Some(own.parent()?.join(name)));
    beside.filter(is_program).or_else(|| in_path(name))
}

/// A program of the host.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut programs = env::split_paths(&path).map(|folder| folder.join(name));
    programs.find(is_program)
}

fn is_program(path: &PathBuf) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
}
