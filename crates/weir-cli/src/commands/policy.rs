//! Reading a policy for a command: diagnostics go to standard error, errors end the command with status 2.

use std::path::Path;

use weir_functions::plan::Port;
use weir_policy::model::{Policy, PortName, Test};
use weir_policy::{Parsed, PolicyError, parse_file};

use crate::failure::Failure;
use crate::output;

/// Reads a policy; shows its warnings.
pub(crate) fn read(path: &Path) -> Result<Parsed, Failure> {
    match parse_file(path) {
        Ok(parsed) => {
            output::tell(&parsed.warnings.render(output::stderr_has_color()));
            Ok(parsed)
        }
        Err(PolicyError::Invalid(diagnostics)) => {
            output::tell(&diagnostics.render(output::stderr_has_color()));
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

/// A port for each interface the policy names, so that it can be planned without any: what is planned then costs at least
/// what it costs on real ports.
pub(crate) fn ports_named(policy: &Policy) -> Vec<Port> {
    let mut names: Vec<&PortName> = Vec::new();
    for rule in &policy.rules {
        for one in &rule.matches {
            if let Test::Port(ports) = &one.test {
                names.extend(ports);
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name));
    (1u32..)
        .zip(names)
        .map(|(number, name)| match name {
            // Indexes are 31 bits wide; the highest one is nobody's.
            PortName::Name(name) => Port {
                number,
                name: Some(name.clone()),
                index: u32::MAX,
            },
            PortName::Index(index) => Port {
                number,
                name: None,
                index: *index,
            },
        })
        .collect()
}
