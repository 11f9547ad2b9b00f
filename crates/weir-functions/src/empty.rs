//! The function that does nothing: a packet goes on as it came. What a hop costs is measured with it.

use crate::request::{FunctionError, Kind, Planned, Request};

/// The kind's row in `kind`.
pub const KIND: Kind = Kind::new("empty", plan, &[]);

/// Plans an instance; it has no keys.
///
/// # Errors
/// There are keys.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    request.only(&[])?;
    Ok(Planned::embedded("empty"))
}
