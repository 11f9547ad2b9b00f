//! Ports of the user engine: where frames enter and leave a program that runs without the kernel's XDP.
//!
//! Owns the [`Port`] trait, its three kinds ([`SocketPort`] on an interface, [`CapturePort`] over a capture, [`MemoryPort`] for
//! batches in memory) and [`Service`], which runs one program over several ports with several workers. And [`XskPorts`]: a policy or a program over the queues of AF_XDP
//! sockets, in front of the stack and with a way to it. Frames are complete
//! when a program sees them: no unfinished checksums, no packets to be segmented. Invariant: every frame received is
//! counted once by its verdict, and every frame to be sent once by what became of it.

mod capture;
mod finish;
mod judge;
mod memory;
mod redirect;
mod service;
mod socket;
mod xsk;

use std::io;
use std::os::fd::BorrowedFd;

pub use capture::CapturePort;
pub use judge::{Arriving, Judge, JudgeError, Judged, ObjectJudge, PolicyJudge};
pub use memory::MemoryPort;
pub use redirect::RedirectTarget;
pub use service::{Pass, PortCount, Service, ServiceError, Totals};
pub use socket::SocketPort;
pub use xsk::{
    PlannedPorts, PortLedger, SocketFacts, Sockets, ToStack, Wanted, XskLedger, XskPorts,
    XskPortsError,
};

/// A frame as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The whole frame.
    pub frame: Vec<u8>,
    /// When it came, in ns: since the epoch for captures, the monotonic clock for sockets.
    pub now_ns: u64,
}

/// What a look for frames found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// So many frames.
    Frames(usize),
    /// None now; there may be some later.
    Nothing,
    /// None, and there will be no more.
    Over,
}

/// Somewhere frames come from and go to. Methods may be called by several workers at once.
pub trait Port: Send + Sync {
    /// Name for people.
    fn name(&self) -> &str;

    /// The number programs know it by (`xdp_md.ingress_ifindex`, `bpf_redirect`).
    fn ifindex(&self) -> u32;

    /// Appends frames that are there to `into`, without waiting.
    ///
    /// # Errors
    /// When the source failed; the service ends then.
    fn receive(&self, into: &mut Vec<Arrival>) -> io::Result<Look>;

    /// Sends a frame.
    ///
    /// # Errors
    /// Why this frame could not be sent; it is counted, and the service goes on.
    fn send(&self, frame: &[u8], now_ns: u64) -> io::Result<()>;

    /// Takes a frame that passed, where passing means something at this port.
    ///
    /// # Errors
    /// As [`Port::send`].
    fn pass(&self, _frame: &[u8], _now_ns: u64) -> io::Result<()> {
        Ok(())
    }

    /// What becomes readable when frames come; none for ports that never need waiting for.
    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Frames that came and were lost before the port could take them, since the start.
    ///
    /// # Errors
    /// When the source does not say.
    fn missed(&self) -> io::Result<u64> {
        Ok(0)
    }
}
