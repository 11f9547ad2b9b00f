//! The compiled data plane: embedded objects, and the Rust side of the contract in `bpf/include/abi.h`.
//!
//! [`OBJECTS`] holds every file of bpf/functions and bpf/graph as ELF objects, one for each form it is used in, [`BASELINES`] those of bpf/baselines; [`abi`] mirrors the C structures. That both agree is
//! tested against the objects' BTF. Objects are embedded compressed, each by what it has other than another form of the same source: a program that uses three of a hundred unpacks three.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod abi;

use std::io::Read as _;
use std::sync::OnceLock;

use brotli_decompressor::Decompressor;

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
    /// Another form of it, which is the dictionary that it was compressed with.
    base: Option<&'static Embedded>,
    bytes: OnceLock<Vec<u8>>,
}

impl Embedded {
    const fn new(
        name: &'static str,
        packed: &'static [u8],
        base: Option<&'static Embedded>,
    ) -> Embedded {
        Embedded {
            name,
            packed,
            base,
            bytes: OnceLock::new(),
        }
    }

    /// The ELF file; unpacked once in a process.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get_or_init(|| self.unpacked())
    }

    /// What it was compressed with is unpacked as well, and not kept.
    #[expect(
        clippy::expect_used,
        reason = "the build script packed what is unpacked here"
    )]
    fn unpacked(&self) -> Vec<u8> {
        let base = self
            .base
            .map_or_else(Vec::new, |base| match base.bytes.get() {
                Some(bytes) => bytes.clone(),
                None => base.unpacked(),
            });
        let mut bytes = Vec::new();
        Decompressor::new_with_custom_dict(self.packed, BUFFER, base.into())
            .read_to_end(&mut bytes)
            .expect("the build script packed it");
        bytes
    }
}

/// Bytes that are unpacked at a time.
const BUFFER: usize = 1 << 14;
