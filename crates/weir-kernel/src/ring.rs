//! One ring buffer map being read. libbpf owns positions and memory; this
//! module only hands each record to a closure.
//!
//! Invariant: the sink pointer is set only while `drain` runs.

#![expect(unsafe_code, reason = "libbpf calls back through a raw pointer")]

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use crate::{KernelError, sys};

/// A reader of one `BPF_MAP_TYPE_RINGBUF` map.
pub(crate) struct Ring {
    ring: NonNull<libbpf_sys::ring_buffer>,
}

// SAFETY: libbpf's reader has no thread affinity, and `drain` takes `&mut self`.
unsafe impl Send for Ring {}
// SAFETY: nothing can be done with a shared reference to it.
unsafe impl Sync for Ring {}

/// A reader of a ring buffer map that does not need the program it came with.
pub struct EventRing {
    // Dropped first: it refers to the descriptor.
    ring: Ring,
    _map: OwnedFd,
}

impl std::fmt::Debug for EventRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventRing").finish_non_exhaustive()
    }
}

impl EventRing {
    pub(crate) fn open(map: BorrowedFd<'_>) -> io::Result<EventRing> {
        let map = map.try_clone_to_owned()?;
        Ok(EventRing {
            ring: Ring::open(map.as_fd())?,
            _map: map,
        })
    }

    /// Waits up to `timeout` (zero: not at all) for records and hands over every one that is there, oldest first. Returns how many.
    pub fn drain(
        &mut self,
        timeout: Duration,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<usize, KernelError> {
        let drained = self.ring.drain(timeout, &mut sink);
        drained.map_err(|e| KernelError::sys("read a ring buffer", e))
    }
}

/// What the callback finds behind its context pointer.
type Sink<'a> = &'a mut dyn FnMut(&[u8]);

thread_local! {
    /// The sink of the `drain` that runs in this thread; libbpf's context
    /// pointer is fixed when the ring is opened, the closure differs per call.
    static SINK: std::cell::Cell<*mut c_void> = const { std::cell::Cell::new(std::ptr::null_mut()) };
}

impl Ring {
    pub(crate) fn open(map: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: the callback matches the expected signature and needs no context.
        let ring = unsafe {
            libbpf_sys::ring_buffer__new(
                map.as_raw_fd(),
                Some(hand_over),
                std::ptr::null_mut(),
                std::ptr::null(),
            )
        };
        NonNull::new(ring)
            .map(|ring| Self { ring })
            .ok_or_else(io::Error::last_os_error)
    }

    /// Waits up to `timeout` for a first record, then hands over all that are
    /// there. Returns how many.
    pub(crate) fn drain(&mut self, timeout: Duration, mut sink: Sink<'_>) -> io::Result<usize> {
        let slot: *mut Sink<'_> = &mut sink;
        let before = SINK.replace(slot.cast());
        // SAFETY: the ring is open; `slot` outlives both calls, which run the callback in this thread.
        let ret = unsafe {
            if timeout.is_zero() {
                libbpf_sys::ring_buffer__consume(self.ring.as_ptr())
            } else {
                let ms = timeout.as_millis().clamp(1, i32::MAX as u128) as c_int;
                libbpf_sys::ring_buffer__poll(self.ring.as_ptr(), ms)
            }
        };
        SINK.set(before);
        match sys::check(ret) {
            Ok(n) => Ok(n as usize),
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => Ok(0),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: opened by `ring_buffer__new`, freed once.
        unsafe { libbpf_sys::ring_buffer__free(self.ring.as_ptr()) };
    }
}

/// Called by libbpf for each record. A panic of the sink aborts the process
/// (it must not unwind through C).
extern "C" fn hand_over(_: *mut c_void, data: *mut c_void, len: u64) -> c_int {
    let sink = SINK.get().cast::<Sink<'_>>();
    if sink.is_null() || data.is_null() {
        return 0;
    }
    // SAFETY: `drain` of this thread set the pointer and is still on the stack below us.
    let sink = unsafe { &mut *sink };
    // SAFETY: libbpf guarantees `len` readable bytes until the callback returns.
    sink(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len as usize) });
    0
}
