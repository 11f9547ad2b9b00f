//! Packet sockets of one process that share what an interface receives, one for each worker: `bpf/tools/fanout.c` chooses the socket by the slice of the sensor's state that a packet is about.
//!
//! Invariant: while sockets join, none of them receives; from [`PacketPort::open_group`] on each packet comes to exactly one. The kernel takes the sockets' order from the order in which they
//! joined, and keeps it when the link goes down and comes back: they were made in the same order. A removed interface ends the group.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use weir_kernel::{KernelObject, LoadedProgram};

use crate::XskError;

/// Name of the program.
const PROGRAM: &str = "fanout_slice";

/// The program that chooses sockets.
#[derive(Debug)]
pub struct Fanout {
    program: LoadedProgram,
    workers: u16,
}

impl Fanout {
    /// Loads it for so many workers, and slices of state.
    ///
    /// # Errors
    /// The kernel refuses, above all without CAP_BPF.
    pub fn load(workers: u16, slices: u16) -> Result<Fanout, XskError> {
        let mut object = KernelObject::open(weir_bpf::tool("fanout").unwrap_or_default())?;
        for (name, value) in [("fanout_workers", workers), ("fanout_slices", slices)] {
            object.set_rodata(name, &u32::from(value).to_ne_bytes())?;
        }
        Ok(Fanout {
            program: object.load(PROGRAM)?,
            workers,
        })
    }

    /// Sockets of a group.
    pub fn workers(&self) -> u16 {
        self.workers
    }

    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}
