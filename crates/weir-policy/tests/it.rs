//! All integration tests of weir-policy in one program: each file beside this one is a module here, and linking once is what it saves.
//!
//! A new file gets a line below; scripts/check-tree finds one that has none. Helpers come first, tests after them.

mod chains;
mod diagnostics;
mod documents;
mod dynamic_sets;
mod includes;
mod language;
mod lints;
mod properties;
mod stateful_language;
mod time;
