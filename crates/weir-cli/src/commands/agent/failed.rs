//! Failures of commands as problems of the API.

use weir_agent::api::Problem;

use crate::failure::Failure;

/// 500: the host failed.
pub(super) fn failed(failure: impl Into<Failure>) -> Problem {
    Problem::failed(failure.into().to_string())
}
