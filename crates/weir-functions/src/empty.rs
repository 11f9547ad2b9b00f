//! The function that does nothing: a packet goes on as it came. What a hop costs is measured with it.

use crate::kind::{FunctionError, Planned, Request};

/// Plans an instance; it has no keys.
///
/// # Errors
/// There are keys.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    request.only(&[])?;
    Ok(Planned::embedded("empty"))
}
