//! Which build of its programs an edge runs.

/// Which build of its programs an edge runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Nothing but what packets need.
    #[default]
    Graph,
    /// Programs that tell what packets go through, to who asks ([`crate::watch`]).
    Watched,
}

impl Form {
    /// Name of the object that a function or a program of the edge is built into.
    pub(super) fn of(self, name: &str) -> String {
        match self {
            Form::Graph => format!("{name}_graph"),
            Form::Watched => format!("{name}_watched"),
        }
    }
}
