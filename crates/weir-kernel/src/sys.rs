//! The few raw calls that several modules share: libbpf's printing, object
//! information, links by file descriptor. Nothing here keeps state but the
//! text of libbpf's latest complaints.
//!
//! Invariant: every file descriptor returned is owned by the caller.

#![expect(unsafe_code, reason = "system calls and libbpf take raw pointers")]

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Once;

use libbpf_rs::PrintLevel;

use crate::KernelError;

/// Where a kernel with type information shows it.
pub(crate) const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

thread_local! {
    /// What libbpf complained about in this thread since the last `forget`.
    static COMPLAINTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps libbpf from writing to standard error; its warnings are collected
/// per thread instead.
pub(crate) fn silence_libbpf() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
            COMPLAINTS.with_borrow_mut(|list| {
                // A failed load prints the whole verifier log; it is kept elsewhere.
                if list.len() < 64 && text.len() < 1024 {
                    list.push(text.trim().trim_start_matches("libbpf: ").to_owned());
                }
            });
        })));
    });
    forget_complaints();
}

/// Starts a new collection for this thread.
pub(crate) fn forget_complaints() {
    COMPLAINTS.with_borrow_mut(Vec::clear);
}

/// The first complaint since the last `forget`: the cause, where later ones
/// are its consequences.
pub(crate) fn first_complaint() -> Option<String> {
    COMPLAINTS.with_borrow(|list| list.first().cloned())
}

/// Turns libbpf's `-errno` or `-1` with errno into a result.
pub(crate) fn check(ret: i32) -> io::Result<i32> {
    match ret {
        0.. => Ok(ret),
        // libbpf 1.x sets errno to the same number that it returns negated.
        _ => Err(io::Error::from_raw_os_error(-ret)),
    }
}

/// Takes ownership of a file descriptor returned by a libbpf call.
pub(crate) fn own_fd(ret: i32) -> io::Result<OwnedFd> {
    let fd = check(ret)?;
    // SAFETY: the call succeeded, so `fd` is a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A C string; an inner NUL is the caller's bad input.
pub(crate) fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// `bpf_prog_info` of a program, without its variable-length parts.
pub(crate) fn program_info(fd: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: `info` is valid for `len` bytes and zeroed, so it asks for no arrays.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) })?;
    Ok(info)
}

/// Ids of the maps that a program uses or carries.
pub(crate) fn map_ids(fd: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // A program may be given another map between the two calls.
    let mut ids = vec![0u32; program_info(fd)?.nr_map_ids as usize + 8];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: `info` is valid for `len` bytes; the only array it asks for is `ids`, of the length it states.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) })?;
    ids.truncate(info.nr_map_ids as usize);
    Ok(ids)
}

/// A map by its id.
pub(crate) fn map_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    own_fd(unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) })
}

/// A program by its id.
pub(crate) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    own_fd(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })
}

/// `bpf_map_info` of a map.
pub(crate) fn map_info(fd: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_map_info> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: `info` is valid for `len` bytes and zeroed.
    check(unsafe { libbpf_sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) })?;
    Ok(info)
}

/// Program id and interface index of an XDP or tcx link; the index is 0 once the
/// device is gone or the link was detached.
pub(crate) fn link_info(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: `info` is valid for `len` bytes and zeroed.
    check(unsafe { libbpf_sys::bpf_link_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) })?;
    // SAFETY: the kernel says which kind of link this is, so that member is the one it filled.
    let ifindex = unsafe {
        match info.type_ {
            libbpf_sys::BPF_LINK_TYPE_XDP => info.__bindgen_anon_1.xdp.ifindex,
            libbpf_sys::BPF_LINK_TYPE_TCX => info.__bindgen_anon_1.tcx.ifindex,
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    };
    Ok((info.prog_id, ifindex))
}

/// Program id of a link of any kind.
pub(crate) fn link_program(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: `info` is valid for `len` bytes and zeroed.
    check(unsafe { libbpf_sys::bpf_link_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) })?;
    Ok(info.prog_id)
}

/// Replaces the program of a link.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: two open descriptors; null options mean the defaults.
    check(unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
    })
    .map(drop)
}

/// Ends an attachment while its link still exists.
pub(crate) fn link_detach(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes a descriptor by value; a wrong one is an error, not undefined behaviour.
    check(unsafe { libbpf_sys::bpf_link_detach(fd.as_raw_fd()) }).map(drop)
}

/// Makes a program or link outlive the process, under a path of a bpffs.
pub(crate) fn pin_object(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_string(&path.to_string_lossy())?;
    // SAFETY: `path` is a valid C string for the duration of the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens a pinned object.
pub(crate) fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_string(&path.to_string_lossy())?;
    // SAFETY: `path` is a valid C string for the duration of the call.
    own_fd(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// Number of CPUs that may ever exist: the width of per-CPU values.
pub fn possible_cpus() -> Result<usize, KernelError> {
    // SAFETY: no arguments.
    let n = check(unsafe { libbpf_sys::libbpf_num_possible_cpus() })
        .map_err(|e| KernelError::sys("count the CPUs", e))?;
    Ok(n as usize)
}

/// The text of a NUL-terminated buffer, up to its first NUL.
pub(crate) fn text_until_nul(bytes: &[u8]) -> String {
    match CStr::from_bytes_until_nul(bytes) {
        Ok(c) => c.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Lets the kernel count runs of all programs and their time while the descriptor is open.
pub(crate) fn count_runs() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    own_fd(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })
}

/// Returns once every program run that was under way has ended: a grace period of the kernel, some milliseconds.
pub(crate) fn grace_period() -> io::Result<()> {
    /// `MEMBARRIER_CMD_GLOBAL`.
    const GLOBAL: libc::c_int = 1;
    // SAFETY: no pointers.
    let ret = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Seconds that the kernel's TAI clock is ahead of UTC: 0 until an NTP daemon sets it.
///
/// From the two clocks: `adjtimex` says the same, and is refused in many containers.
pub fn tai_offset() -> u32 {
    loop {
        let before = clock_ns(libc::CLOCK_REALTIME);
        let tai = clock_ns(libc::CLOCK_TAI);
        let after = clock_ns(libc::CLOCK_REALTIME);
        // Else the clock was stepped between, or this thread waited.
        let took = after.checked_sub(before);
        if took.is_some_and(|ns| ns < SECOND_NS / 2) {
            return (tai.saturating_sub(before) / SECOND_NS) as u32;
        }
    }
}

/// Nanoseconds of the clock that programs read (`CLOCK_MONOTONIC`).
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

const SECOND_NS: u64 = 1_000_000_000;

fn clock_ns(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a clock that Linux has and a place for its time.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec.cast_unsigned() * SECOND_NS + time.tv_nsec.cast_unsigned()
}
