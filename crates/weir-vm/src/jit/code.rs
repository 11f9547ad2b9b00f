//! Mappings of the host: code that was written and is now executable, and memory between guard pages.
//!
//! Owns what is asked of the operating system. Invariant: no page is ever writable and executable at once, and the
//! pages before and behind a mapping have no access at all.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Pages of the host.
pub(super) const PAGE: usize = 4096;

/// Readable and writable pages between two guard pages.
#[derive(Debug)]
pub(super) struct Pages {
    /// The first guard page.
    mapping: NonNull<c_void>,
    /// Bytes between the guards, whole pages.
    len: usize,
}

impl Pages {
    /// At least `bytes` zeroed bytes; nothing when the system has no memory left. Reserved, not filled: a page takes memory once it is
    /// written, so that a map may be as large as its object says.
    pub(super) fn new(bytes: usize) -> Option<Pages> {
        let len = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let total = len.checked_add(2 * PAGE)?;
        // SAFETY: a new private mapping at an address the kernel chooses touches nothing that exists.
        let mapping = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                total,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let pages = Pages {
            mapping: NonNull::new(mapping.ok()?)?,
            len,
        };
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range lies inside the mapping just made, and nothing refers to it yet.
        unsafe { mprotect(pages.start().cast(), len, access) }.ok()?;
        Some(pages)
    }

    pub(super) fn start(&self) -> *mut u8 {
        // SAFETY: the mapping has a page before `len` bytes and one behind them.
        unsafe { self.mapping.as_ptr().cast::<u8>().add(PAGE) }
    }

    /// Bytes between the guards.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn address(&self) -> u64 {
        self.start().expose_provenance() as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, whole, and unmapped once. A failure would leak it and harm nothing.
        let _ = unsafe { munmap(self.mapping.as_ptr(), self.len + 2 * PAGE) };
    }
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Pages {}
// SAFETY: through a shared reference only addresses are handed out.
unsafe impl Sync for Pages {}

/// Executable code.
#[derive(Debug)]
pub(super) struct Executable {
    pages: Pages,
    len: usize,
}

impl Executable {
    /// Copies `code` into pages of its own and makes them executable and read-only.
    pub(super) fn new(code: &[u8]) -> Option<Executable> {
        let pages = Pages::new(code.len())?;
        // SAFETY: the pages are at least as long as the code, writable, and nothing else refers to them; the rest is
        // filled with breakpoints.
        unsafe {
            ptr::write_bytes(pages.start(), 0xcc, pages.len());
            ptr::copy_nonoverlapping(code.as_ptr(), pages.start(), code.len());
        }
        let access = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: the range is the pages' own, and no reference to them exists.
        unsafe { mprotect(pages.start().cast(), pages.len(), access) }.ok()?;
        Some(Executable {
            pages,
            len: code.len(),
        })
    }

    /// Address of the instruction at `offset`.
    pub(super) fn address(&self, offset: u32) -> u64 {
        self.pages.address() + u64::from(offset)
    }

    /// Bytes of code.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}
