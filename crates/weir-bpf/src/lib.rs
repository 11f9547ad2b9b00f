//! The compiled data plane: embedded objects, and the Rust side of the contract in `bpf/include/abi.h`.
//!
//! [`OBJECTS`] holds every file of bpf/functions and bpf/graph as ELF objects, one for each form it is used in, [`BASELINES`] those of bpf/baselines; [`abi`] mirrors the C structures. That both agree is
//! tested against the objects' BTF. Objects are embedded compressed: a program that uses three of a hundred unpacks three.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod abi;

use std::io::Read as _;
use std::sync::OnceLock;

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The object of a function, `None` if there is no such function.
pub fn object(name: &str) -> Option<&'static [u8]> {
    find(&OBJECTS, name)
}

/// The object of a baseline or of a part of a test bed, `None` if there is none of that name.
pub fn baseline(name: &str) -> Option<&'static [u8]> {
    find(&BASELINES, name)
}

/// The object with programs on tracepoints, `None` if there is none of that name.
pub fn monitor(name: &str) -> Option<&'static [u8]> {
    find(&MONITORS, name)
}

/// The object of a tool, `None` if there is none of that name.
pub fn tool(name: &str) -> Option<&'static [u8]> {
    find(&TOOLS, name)
}

fn find(table: &'static [Embedded], name: &str) -> Option<&'static [u8]> {
    let found = table.iter().find(|object| object.name == name);
    found.map(Embedded::bytes)
}

/// An embedded ELF object, compressed until it is asked for.
pub struct Embedded {
    /// Its name: that of the source, and the form.
    pub name: &'static str,
    packed: &'static [u8],
    bytes: OnceLock<Vec<u8>>,
}

impl Embedded {
    const fn new(name: &'static str, packed: &'static [u8]) -> Embedded {
        Embedded {
            name,
            packed,
            bytes: OnceLock::new(),
        }
    }

    /// The ELF file; unpacked once in a process.
    #[expect(
        clippy::expect_used,
        reason = "the build script packed what is unpacked here"
    )]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get_or_init(|| {
            let mut bytes = Vec::new();
            flate2::read::DeflateDecoder::new(self.packed)
                .read_to_end(&mut bytes)
                .expect("the build script packed it");
            bytes
        })
    }
}
