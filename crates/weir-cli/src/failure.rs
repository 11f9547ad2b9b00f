//! How a command fails: with one line for the user and an exit status.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// A failed command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad usage or configuration: exit status 2.
    Usage(String),
    /// Something went wrong while doing it: exit status 1.
    Failed(String),
    /// Writing output failed.
    Output(io::Error),
}

impl Failure {
    /// Bad usage or configuration, from anything that can be shown.
    pub(crate) fn usage(error: impl fmt::Display) -> Failure {
        Failure::Usage(error.to_string())
    }

    /// A failure at work, from anything that can be shown.
    pub(crate) fn failed(error: impl fmt::Display) -> Failure {
        Failure::Failed(error.to_string())
    }

    /// Whether nobody reads the output any more.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The status to exit with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Failed(_) | Failure::Output(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Failed(text) => f.write_str(text),
            Failure::Output(error) => write!(f, "cannot write output: {error}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}
