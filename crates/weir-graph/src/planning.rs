//! What planning a configuration has at hand: the configuration, files, and the mistakes found so far.

use weir_functions::kind::Files;
use weir_policy::Report;

use crate::config::Config;

/// A configuration while it is planned.
pub(crate) struct Planning<'a> {
    pub(crate) config: &'a Config,
    pub(crate) files: &'a dyn Files,
    pub(crate) report: Report,
    /// Files that mistakes were found in: name and text. The first is file number 1 of the report.
    pub(crate) texts: Vec<(String, String)>,
}
