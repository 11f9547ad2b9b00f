//! An array map seen as plain memory, so that a value can change without a
//! system call (replay time before every packet).
//!
//! Invariant: the mapping is shared with running programs, so it is only ever
//! touched through atomics, never as a Rust reference to plain bytes.

#![expect(unsafe_code, reason = "the memory belongs to a kernel map")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::KernelError;

/// The values of a `BPF_F_MMAPABLE` array map, back to back; entry `i` starts
/// at `i` times the value size rounded up to 8.
#[derive(Debug)]
pub struct MmapArray {
    base: NonNull<u8>,
    /// Bytes of values; the mapping itself is rounded up to pages.
    len: usize,
}

// SAFETY: the mapping is process-wide and every access is atomic.
unsafe impl Send for MmapArray {}
// SAFETY: as above.
unsafe impl Sync for MmapArray {}

impl MmapArray {
    /// Maps `len` bytes of the map behind `fd`.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { base, len })
    }

    /// Bytes of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the map has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores `bytes` at `offset`. Eight aligned bytes arrive as one, and four
    /// do, so a program never reads half of a word. Refuses what does not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), KernelError> {
        self.check(offset, bytes.len())?;
        if let (Ok(word), true) = (<[u8; 8]>::try_from(bytes), offset.is_multiple_of(8)) {
            // SAFETY: in bounds (checked), 8-aligned (page base and offset), alive as long as self.
            let cell = unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() };
            cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            return Ok(());
        }
        if let (Ok(word), true) = (<[u8; 4]>::try_from(bytes), offset.is_multiple_of(4)) {
            // SAFETY: in bounds (checked), 4-aligned (page base and offset), alive as long as self.
            let cell = unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU32>() };
            cell.store(u32::from_ne_bytes(word), Ordering::Relaxed);
            return Ok(());
        }
        // Whole words where they are aligned: a byte at a time takes eight times as long, and halves of networks have megabytes.
        let (words, rest) = match offset.is_multiple_of(8) {
            true => bytes.split_at(bytes.len() / 8 * 8),
            false => bytes.split_at(0),
        };
        for (i, word) in words.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: in bounds (checked), 8-aligned (page base and offset), alive as long as self.
            let cell = unsafe { &*self.base.as_ptr().add(offset + i * 8).cast::<AtomicU64>() };
            cell.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        for (i, byte) in rest.iter().enumerate() {
            self.byte(offset + words.len() + i)
                .store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Stores an aligned word after everything stored before it, for programs that read the word first: the switch of an update.
    pub fn publish(&self, offset: usize, word: u64) -> Result<(), KernelError> {
        self.word(offset)?.store(word, Ordering::Release);
        Ok(())
    }

    /// Changes an aligned word from `have` to `want`, unless a program changed it first; says whether it did.
    pub fn compare_exchange(
        &self,
        offset: usize,
        have: u64,
        want: u64,
    ) -> Result<bool, KernelError> {
        let word = self.word(offset)?;
        let changed = word.compare_exchange(have, want, Ordering::AcqRel, Ordering::Acquire);
        Ok(changed.is_ok())
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64, KernelError> {
        self.check(offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(KernelError::WrongSize {
                what: format!("the remainder by 8 of offset {offset} of a word"),
                want: 0,
                got: offset % 8,
            });
        }
        // SAFETY: in bounds and 8-aligned (checked; the base is a page), alive as long as self.
        Ok(unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() })
    }

    /// Fills `bytes` from `offset`. Refuses what does not fit.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), KernelError> {
        self.check(offset, bytes.len())?;
        if bytes.len() == 8 && offset.is_multiple_of(8) {
            // SAFETY: in bounds (checked), 8-aligned (page base and offset), alive as long as self.
            let cell = unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() };
            bytes.copy_from_slice(&cell.load(Ordering::Relaxed).to_ne_bytes());
            return Ok(());
        }
        if bytes.len() == 4 && offset.is_multiple_of(4) {
            // SAFETY: in bounds (checked), 4-aligned (page base and offset), alive as long as self.
            let cell = unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU32>() };
            bytes.copy_from_slice(&cell.load(Ordering::Relaxed).to_ne_bytes());
            return Ok(());
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(offset + i).load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), KernelError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(KernelError::WrongSize {
                what: format!("the mapped array at offset {offset}"),
                want: self.len.saturating_sub(offset),
                got: len,
            }),
        }
    }

    /// One byte; the caller has checked the bounds.
    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.len);
        // SAFETY: in bounds by the caller's check, alive as long as self.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU8>() }
    }
}

impl Drop for MmapArray {
    fn drop(&mut self) {
        // SAFETY: exactly the region mapped in `new`; no reference outlives self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
