//! Which build of its programs an edge runs, and on which hook each of them does.

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
    pub(super) fn of(self, name: &str, hook: Hook) -> String {
        let form = match self {
            Form::Graph => "graph",
            Form::Watched => "watched",
        };
        match hook {
            Hook::Xdp => format!("{name}_{form}"),
            Hook::Tc => format!("{name}_{form}_tc"),
        }
    }
}

/// The hook that a program of the graph is built for. Programs call each other on one hook only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Xdp,
    /// Ingress and egress.
    Tc,
}
