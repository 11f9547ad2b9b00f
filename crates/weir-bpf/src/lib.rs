//! The compiled data plane: embedded objects, and the Rust side of the contract in `bpf/include/abi.h`.
//!
//! [`OBJECTS`] holds every file of bpf/functions and bpf/graph as ELF objects, one for each form it is used in, [`BASELINES`] those of bpf/baselines; [`abi`] mirrors the C structures. That both agree is
//! tested against the objects' BTF.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod abi;

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The object of a function, `None` if there is no such function.
pub fn object(name: &str) -> Option<&'static [u8]> {
    find(OBJECTS, name)
}

/// The object of a baseline or of a part of a test bed, `None` if there is none of that name.
pub fn baseline(name: &str) -> Option<&'static [u8]> {
    find(BASELINES, name)
}

/// The object with programs on tracepoints, `None` if there is none of that name.
pub fn monitor(name: &str) -> Option<&'static [u8]> {
    find(MONITORS, name)
}

/// The object of a tool, `None` if there is none of that name.
pub fn tool(name: &str) -> Option<&'static [u8]> {
    find(TOOLS, name)
}

fn find(table: &'static [(&'static str, &'static [u8])], name: &str) -> Option<&'static [u8]> {
    table
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, bytes)| *bytes)
}
