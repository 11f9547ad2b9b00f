//! All integration tests of weir-network in one program: each file beside this one is a module here, and linking once is what it saves.
//!
//! A new file gets a line below; scripts/check-tree finds one that has none. Helpers come first, tests after them.

mod bench;

mod example;
mod groups;
mod helpers;
mod mistakes;
mod point_to_point;
mod properties;
mod scale;
mod walks;
