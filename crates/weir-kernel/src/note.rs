//! Bytes that programs carry for whoever takes them over when their process is gone: an array map that no program reads, bound to each
//! of them, so that it lives as long as they do and nothing beside them can be stale.
//!
//! The first word is the number of bytes that count. Invariant: it is written after the bytes, so a process killed while it appends
//! leaves what was there before.

#![expect(unsafe_code, reason = "map calls take raw pointers")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::{KernelError, LoadedProgram, MmapArray, sys};

/// The map's name.
pub(crate) const NAME: &str = "weir_note";

/// Bytes of an element.
const PAGE: usize = 4096;
/// Bytes of the length.
const HEAD: usize = 8;

/// A note.
#[derive(Debug)]
pub struct Note {
    fd: OwnedFd,
    view: MmapArray,
    len: usize,
}

impl Note {
    /// One that holds `text` and has `room` bytes for more. No program carries it yet.
    pub fn new(text: &[u8], room: usize) -> Result<Note, KernelError> {
        let pages = (HEAD + text.len() + room).div_ceil(PAGE);
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        // SAFETY: a C string literal, and options that are valid for the call and state their size.
        let ret = unsafe {
            libbpf_sys::bpf_map_create(
                libbpf_sys::BPF_MAP_TYPE_ARRAY,
                c"weir_note".as_ptr(),
                4,
                PAGE as u32,
                pages as u32,
                &opts,
            )
        };
        let fd = sys::own_fd(ret).map_err(|e| KernelError::sys("create a note", e))?;
        let mut note = Note::open(fd, pages * PAGE)?;
        note.append(text)?;
        Ok(note)
    }

    /// The note behind a map.
    pub(crate) fn open(fd: OwnedFd, len: usize) -> Result<Note, KernelError> {
        let view = MmapArray::new(fd.as_fd(), len)
            .map_err(|e| KernelError::sys("map the memory of a note", e))?;
        let mut head = [0; HEAD];
        view.read(0, &mut head)?;
        Ok(Note {
            len: u64::from_ne_bytes(head) as usize,
            fd,
            view,
        })
    }

    /// Makes a program carry it.
    pub fn bind(&self, program: &LoadedProgram) -> Result<(), KernelError> {
        // SAFETY: two open descriptors; null options mean the defaults.
        let ret = unsafe {
            libbpf_sys::bpf_prog_bind_map(
                program.as_fd().as_raw_fd(),
                self.fd.as_raw_fd(),
                std::ptr::null(),
            )
        };
        sys::check(ret)
            .map(drop)
            .map_err(|e| KernelError::sys("bind a note to a program", e))
    }

    /// Adds bytes behind the others; `false` if they do not fit.
    pub fn append(&mut self, text: &[u8]) -> Result<bool, KernelError> {
        let end = self.len + text.len();
        if HEAD + end > self.view.len() {
            return Ok(false);
        }
        self.view.write(HEAD + self.len, text)?;
        self.view.publish(0, end as u64)?;
        self.len = end;
        Ok(true)
    }

    /// What it says.
    pub fn read(&self) -> Result<Vec<u8>, KernelError> {
        let mut text = vec![0; self.len.min(self.view.len() - HEAD)];
        self.view.read(HEAD, &mut text)?;
        Ok(text)
    }
}
