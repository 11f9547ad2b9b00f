//! Lints: what a policy says and cannot mean. Rules that never match are errors where the text alone shows it, and warnings where packets are
//! dropped before rules see them; rules that match and have no effect, or another one than it seems, are warnings.
//!
//! Everything stands on one decision procedure (`solve`): is there a packet that meets these demands? It knows the shapes of packets (`shape`), options
//! and extension headers (`headers`). `never` explains rules that no packet matches; the others compare rules (`view`) with each other: `verdicts`,
//! `targets`, `connections`. docs/design/lints.md has the idea and what is left out.

mod connections;
mod headers;
mod never;
mod shape;
mod solve;
mod targets;
mod verdicts;
mod view;

use crate::ast;
use crate::diagnostic::Report;
use crate::model::Policy;

pub(crate) use never::{Asked, judge};

/// What can be said of a policy without errors. `written` has each of its rules as it stands in the text, chains laid flat.
pub(crate) fn policy(
    policy: &Policy,
    file: &ast::File,
    written: &[&ast::Rule],
    report: &mut Report,
) {
    let view = view::View::of(policy, written);
    verdicts::judge(&view, report);
    targets::judge(&view, report);
    connections::judge(&view, file, report);
    connections::states(policy, written, report);
}
