//! Memory that stays where it is: map values, hash tables and frames, which generated code reaches by address.
//!
//! Owns an allocation and both ways to reach it: as slices through the owner, and as a host address. Invariant: no slice
//! of a block lives while generated code runs, because slices borrow the owner and a run borrows the machine.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::code::Pages;

/// Zeroed memory at an address that does not change until it is dropped.
pub(crate) struct Block {
    start: NonNull<u8>,
    len: usize,
    storage: Storage,
}

enum Storage {
    Heap(Layout),
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Guarded(#[expect(dead_code, reason = "holds the mapping")] Pages),
}

/// Enough for every aligned access a program can make; larger ones would make the allocator touch all pages.
const ALIGN: usize = 16;

/// Bytes from which memory is reserved from the system, page by page.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const RESERVED_FROM: usize = 1 << 20;

impl Block {
    /// `bytes` zeroed bytes, in pages that exist once written; nothing when there is no such memory.
    pub(crate) fn zeroed(bytes: usize) -> Option<Block> {
        let size = bytes.max(ALIGN).checked_next_multiple_of(8)?;
        // The allocator asks the system for memory that it may refuse although most of it is never written.
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if size >= RESERVED_FROM {
            let mut block = Block::guarded(size)?;
            block.len = size;
            return Some(block);
        }
        let layout = Layout::from_size_align(size, ALIGN).ok()?;
        // SAFETY: the size is at least ALIGN, so not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block {
            start,
            len: size,
            storage: Storage::Heap(layout),
        })
    }

    /// As [`Block::zeroed`], with guard pages on both sides where the host has native code.
    pub(crate) fn guarded(bytes: usize) -> Option<Block> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        {
            let pages = Pages::new(bytes)?;
            Some(Block {
                start: NonNull::new(pages.start())?,
                len: pages.len(),
                storage: Storage::Guarded(pages),
            })
        }
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        Block::zeroed(bytes)
    }

    /// Size in bytes, a multiple of eight.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has this size, is initialised (zeroed) and lives as long as `self`; generated code
        // does not run while it is borrowed (module invariant).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The bytes as 64-bit words in the host's order.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: as in `bytes`; the start is aligned to 16, the size a multiple of 8, and every pattern is a u64.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / 8) }
    }

    #[inline(always)]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len / 8) }
    }

    /// Where the block starts in the host's memory.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Storage::Heap(layout) = self.storage {
            // SAFETY: allocated in `zeroed` with this layout, and freed once.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len)
    }
}

// SAFETY: a block owns its allocation alone, like a `Box<[u8]>`.
unsafe impl Send for Block {}
// SAFETY: shared access only reads.
unsafe impl Sync for Block {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_are_the_same_memory() {
        let mut block = Block::zeroed(20).expect("memory");
        assert_eq!((block.bytes().len(), block.words()), (24, &[0, 0, 0][..]));
        block.words_mut()[1] = 0x0807_0605_0403_0201;
        assert_eq!(block.bytes()[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        let address = block.address();
        let moved = block;
        assert_eq!((moved.address(), address % 16), (address, 0));
        assert!(Block::zeroed(usize::MAX - 8).is_none());
    }
}
