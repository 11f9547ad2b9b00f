//! A thousand route changes a second in weir's own table while packets go through it: none may be lost.

use super::table::Prefix;
use crate::LabError;
use crate::bench::Bench;
use crate::process::Scratch;

/// Measures it.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    _scratch: &Scratch,
    _prefixes: &[Prefix],
    _cpus: usize,
) -> Result<(), LabError> {
    bench.refuse("router.changes", "this build has no router");
    Ok(())
}
