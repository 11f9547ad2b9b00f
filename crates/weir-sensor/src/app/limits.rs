//! How many transactions of one flow may wait for their other half (`max-tx`).

use std::sync::Arc;

use super::names::App;

/// The limits that a configuration sets; other protocols have their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits(Arc<[(App, usize)]>);

impl Limits {
    /// Limits by protocol.
    pub fn new(limits: Vec<(App, usize)>) -> Limits {
        Limits(limits.into())
    }

    /// That of a protocol, if one is set.
    pub(super) fn of(&self, app: App) -> Option<usize> {
        let found = self.0.iter().find(|(of, _)| *of == app);
        found.map(|(_, most)| *most)
    }
}
