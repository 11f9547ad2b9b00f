//! All integration tests of weir-xsk in one program: each file beside this one is a module here, and linking once is what it saves.
//!
//! A new file gets a line below; scripts/check-tree finds one that has none. Helpers come first, tests after them.

mod bypass;
mod model;
mod sockets;
