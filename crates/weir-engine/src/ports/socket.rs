//! A port on an interface of this host, through a packet socket.
//!
//! The socket sees a copy of what the interface receives: the host's own stack gets every frame as well, so dropping here
//! keeps nothing from it. An interface without addresses, of which nothing else is made, is this port's alone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use weir_kernel::{Frames, KernelError, PacketSocket};

use super::finish::finish;
use super::{Arrival, Look, Port};

/// An interface as a port.
pub struct SocketPort {
    socket: PacketSocket,
    received: Mutex<Frames>,
    /// Frames that could not be finished (see `finish`).
    refused: AtomicU64,
    /// What the socket said it lost, until now.
    lost: AtomicU64,
}

impl SocketPort {
    /// Opens a port on an interface of the current network namespace.
    ///
    /// # Errors
    /// As [`PacketSocket::open`].
    pub fn open(interface: &str) -> Result<Self, KernelError> {
        Ok(SocketPort {
            socket: PacketSocket::open(interface)?,
            received: Mutex::new(Frames::new()),
            refused: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }
}

impl Port for SocketPort {
    fn name(&self) -> &str {
        self.socket.name()
    }

    fn ifindex(&self) -> u32 {
        self.socket.ifindex()
    }

    fn receive(&self, into: &mut Vec<Arrival>) -> io::Result<Look> {
        let mut frames = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        if self.socket.receive(&mut frames).map_err(io::Error::other)? == 0 {
            return Ok(Look::Nothing);
        }
        let now_ns = monotonic_ns();
        let before = into.len();
        for (frame, unfinished) in frames.iter() {
            let first = into.len();
            let whole = finish(frame, unfinished, |frame| {
                into.push(Arrival {
                    frame: frame.to_vec(),
                    now_ns,
                });
            });
            if !whole {
                into.truncate(first);
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(Look::Frames(into.len() - before))
    }

    fn send(&self, frame: &[u8], _now_ns: u64) -> io::Result<()> {
        self.socket.send(frame)
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn missed(&self) -> io::Result<u64> {
        // Reading the socket's count resets it.
        let lost = self.socket.missed().map_err(io::Error::other)?;
        let lost = self.lost.fetch_add(lost, Ordering::Relaxed) + lost;
        Ok(lost + self.refused.load(Ordering::Relaxed))
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}
