//! The kernel's numbers for all programs and maps there are, for who wants to know that something is gone.
//!
//! Nothing is opened: the kernel leaks a program array that is opened and closed again while it is being cleared (its clearing is queued
//! once but counted twice), so asking for it by number is no way to see whether it still exists.

#![expect(unsafe_code, reason = "numbers come back through a pointer")]

use std::collections::BTreeSet;

use crate::{KernelError, sys};

/// All programs.
pub fn programs() -> Result<BTreeSet<u32>, KernelError> {
    all("programs", |start, next| {
        // SAFETY: `next` is valid for one number.
        unsafe { libbpf_sys::bpf_prog_get_next_id(start, next) }
    })
}

/// All maps.
pub fn maps() -> Result<BTreeSet<u32>, KernelError> {
    all("maps", |start, next| {
        // SAFETY: `next` is valid for one number.
        unsafe { libbpf_sys::bpf_map_get_next_id(start, next) }
    })
}

fn all(what: &str, following: impl Fn(u32, *mut u32) -> i32) -> Result<BTreeSet<u32>, KernelError> {
    let mut found = BTreeSet::new();
    let mut at = 0;
    loop {
        let mut next = 0;
        match sys::check(following(at, &mut next)) {
            Ok(_) => found.insert(next),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
            Err(e) => return Err(KernelError::sys(format!("list all {what}"), e)),
        };
        at = next;
    }
}
