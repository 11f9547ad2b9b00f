//! Names of workloads, as commands take them.

use crate::failure::Failure;

/// A workload as commands name it.
pub(super) fn workload_of(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once('/')
        .ok_or_else(|| Failure::Usage(format!("invalid workload `{text}`: write NETWORK/WORKLOAD")))
}
