//! Reading a policy for a command: diagnostics go to standard error, errors end the command with status 2.

use std::path::Path;

use weir_policy::{Parsed, PolicyError, parse_file};

use crate::failure::Failure;
use crate::output;

/// Reads a policy; shows its warnings.
pub(crate) fn read(path: &Path) -> Result<Parsed, Failure> {
    match parse_file(path) {
        Ok(parsed) => {
            output::tell(&parsed.warnings.render(output::stderr_is_terminal()));
            Ok(parsed)
        }
        Err(PolicyError::Invalid(diagnostics)) => {
            output::tell(&diagnostics.render(output::stderr_is_terminal()));
            Err(Failure::Usage(format!(
                "{}: {} in the policy",
                path.display(),
                count(diagnostics.len(), "mistake")
            )))
        }
        Err(error) => Err(Failure::usage(error)),
    }
}

/// `1 rule`, `2 rules`.
pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
