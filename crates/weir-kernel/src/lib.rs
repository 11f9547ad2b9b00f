//! The kernel engine: opening, specialising and loading compiled objects,
//! attaching them with links, reading their maps, running them on test frames,
//! and everything about the host that this needs: interfaces, pins, namespaces,
//! feature probes.
//!
//! It knows nothing of policies and functions: programs and maps are found by
//! name, keys and values are bytes. Nothing stays in the kernel after its value
//! is dropped unless it was pinned, and pins live in one place ([`pins`]).
//! All system calls of the workspace that need `unsafe` live here.

#![warn(clippy::expect_used, clippy::unwrap_used)]

pub mod addresses;
pub mod bed;
mod bpffs;
mod clsact;
pub mod confine;
mod declared;
mod error;
mod frames;
pub mod hooks;
mod icmp_socket;
pub mod ids;
pub mod iface;
pub mod link;
pub mod links;
mod loaded;
mod map;
pub mod netlink;
pub mod netns;
mod note;
pub mod object;
mod offload;
pub mod own_source;
mod packet_socket;
pub mod peer;
mod perf;
pub mod pinned;
pub mod pins;
pub mod probes;
pub mod raw;
mod ring;
mod rodata;
pub mod routes;
pub mod sched;
mod slots;
pub mod stack;
mod sys;
mod tap;
mod view;
mod vnet;

pub use clsact::Filter;
pub use error::KernelError;
pub use frames::FrameSocket;
pub use icmp_socket::{IcmpSocket, Passed};
pub use link::{Direction, Link, XdpMode};
pub use map::{Map, MapDefinition};
pub use netns::{ForeignNetNs, NetNs};
pub use note::Note;
pub use object::{
    Batch, Hook, KernelObject, LoadedProgram, MapSizes, ProgramInfo, TEST_RUN_MIN, TestCtx,
    TestOutcome,
};
pub use offload::offers_offload;
pub use packet_socket::{BATCH, Frames, PacketSocket, Unfinished};
pub use ring::EventRing;
pub use sys::{monotonic_ns, possible_cpus, tai_offset};
pub use tap::Tap;
pub use view::MmapArray;
pub use vnet::{VNET_HEADER, VnetHeader, VnetSender, VnetTap};

/// The kernel counts runs of all programs and their time ([`ProgramInfo::runs`]) as long as this is there; that costs every run two
/// readings of a clock.
#[derive(Debug)]
pub struct RunCounting {
    _fd: std::os::fd::OwnedFd,
}

impl RunCounting {
    /// Begins, whoever else does.
    pub fn begin() -> Result<RunCounting, KernelError> {
        let fd = sys::count_runs().map_err(|e| KernelError::sys("count runs of programs", e))?;
        Ok(RunCounting { _fd: fd })
    }
}

/// Returns once every program run that was under way when it was called has ended: a grace period of the kernel, which takes milliseconds.
pub fn grace_period() -> Result<(), KernelError> {
    sys::grace_period().map_err(|e| KernelError::sys("wait for programs to end", e))
}
