//! One perf event array map being read: libbpf owns the buffers, this module collects what is in them.
//!
//! Records carry up to seven bytes of padding that the kernel appends. Invariant: the collection is written only while `drain` runs.

#![expect(unsafe_code, reason = "libbpf calls back through a raw pointer")]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::sys;

/// Pages of each CPU's buffer, a power of two.
const PAGES: usize = 64;

/// CPU and bytes.
type Records = Vec<(u32, Vec<u8>)>;

/// A reader of one `BPF_MAP_TYPE_PERF_EVENT_ARRAY` map.
pub(crate) struct PerfReader {
    buffer: NonNull<libbpf_sys::perf_buffer>,
    records: Box<UnsafeCell<Records>>,
}

// SAFETY: libbpf's reader has no thread affinity, and `drain` takes `&mut self`.
unsafe impl Send for PerfReader {}
// SAFETY: nothing can be done with a shared reference to it.
unsafe impl Sync for PerfReader {}

impl PerfReader {
    pub(crate) fn open(map: BorrowedFd<'_>) -> io::Result<PerfReader> {
        let records = Box::new(UnsafeCell::new(Records::new()));
        // SAFETY: the callback matches the expected signature, and `records` lives in a box as long as the buffer.
        let buffer = unsafe {
            libbpf_sys::perf_buffer__new(
                map.as_raw_fd(),
                PAGES as libbpf_sys::size_t,
                Some(collect),
                None,
                records.get().cast(),
                std::ptr::null(),
            )
        };
        NonNull::new(buffer)
            .map(|buffer| PerfReader { buffer, records })
            .ok_or_else(io::Error::last_os_error)
    }

    /// Takes all records that are there: (CPU, bytes), those of a CPU oldest first.
    pub(crate) fn drain(&mut self) -> io::Result<Records> {
        // SAFETY: the buffer is open; its callback writes to `records`, which nothing else borrows now.
        sys::check(unsafe { libbpf_sys::perf_buffer__consume(self.buffer.as_ptr()) })?;
        Ok(std::mem::take(self.records.get_mut()))
    }
}

impl Drop for PerfReader {
    fn drop(&mut self) {
        // SAFETY: opened by `perf_buffer__new`, freed once.
        unsafe { libbpf_sys::perf_buffer__free(self.buffer.as_ptr()) };
    }
}

/// Called by libbpf for each record.
unsafe extern "C" fn collect(records: *mut c_void, cpu: c_int, data: *mut c_void, size: u32) {
    if data.is_null() {
        return;
    }
    // SAFETY: `records` is the collection of the reader that is draining, and libbpf guarantees `size` readable bytes.
    unsafe {
        let bytes = std::slice::from_raw_parts(data.cast::<u8>(), size as usize);
        (*records.cast::<Records>()).push((cpu as u32, bytes.to_vec()));
    }
}
