//! weir's user engine: runs unmodified eBPF objects without a kernel and without privileges.
//!
//! [`Object`] reads what clang compiled, [`Machine`] runs it (or several, [`Join`]) over [`Frame`]s in a checked interpreter of RFC 9669 with
//! the kernel's maps and helpers: every access is checked at run time, and what the kernel would refuse to load ends in a
//! [`Fault`]. [`verify`] says so before a program runs. Time, randomness and the CPU number are inputs ([`Env`]).
//! Invariant: no input (object, frame, map contents) panics or escapes its regions.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod btf;
mod btf_ext;
pub mod catalogue;
mod core_relocation;
mod cost;
pub mod counterexample;
mod definitions;
pub mod disasm;
mod elf;
pub mod errno;
pub mod explain;
mod format;
mod frame;
mod helpers;
mod insn;
mod interp;
#[allow(
    unsafe_code,
    reason = "generated code and the memory it reaches by address; the rest of the crate has none"
)]
pub mod jit;
mod join;
mod link;
mod machine;
mod maps;
mod memory;
mod object;
mod program;
pub mod releases;
mod routes;
mod second;
mod signature;
mod skb;
pub mod verify;

pub use btf::Btf;
pub use btf_ext::SourceLine;
pub use catalogue::helper_name;
pub use core_relocation::CoreError;
pub use cost::{Budget, Cost, LINE_BYTES, Line};
pub use elf::ElfError;
pub use frame::{Frame, HEADROOM, JUMBO_TAILROOM, LINEAR_MAX, RESERVED_HEAD};
pub use helpers::TAIL_CALLS;
pub use insn::{DecodeError, INSN_BYTES, Insn};
pub use interp::{Env, Fault, FaultKind, Redirect, Way};
pub use join::Join;
pub use machine::{CodeLocation, Machine};
pub use maps::{
    BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_F_NO_PREALLOC, BPF_F_RDONLY, BPF_F_RDONLY_PROG,
    BPF_F_WRONLY, BPF_F_WRONLY_PROG, BPF_NOEXIST, Map, MapDefinition, MapDefinitionError, MapError,
    MapKind, VALUE_SIZE_MAX,
};
pub use memory::{AccessFault, CALL_FRAMES, Region, STACK_BYTES, Violation};
pub use object::{LoadError, Object, Variable};
pub use program::{ProgramKind, XdpAttach};
pub use routes::{Neighbour, Route, RouteKind, RouteLink, Routes, TABLE_MAIN};
pub use skb::{Sent, Skb, SkbField, TunnelKey};
