//! Programs on hooks that are not network devices: tracepoints and cgroups.
//!
//! Invariant: an attachment is pinned in the same call that makes it, or ends with its value.

#![expect(unsafe_code, reason = "attaching takes raw system calls")]

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::pinned::PinnedLink;
use crate::{KernelError, LoadedProgram, sys};

/// A hook that is not a device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPoint<'a> {
    /// A tracepoint of the kernel by its two names: `sched/sched_switch`. Programs of the kinds `tp`, `raw_tp` and `tp_btf` go there.
    Tracepoint {
        /// Subsystem.
        category: &'a str,
        /// Event.
        name: &'a str,
    },
    /// A hook of a cgroup and all below it.
    Cgroup {
        /// Folder of a cgroup v2 file system.
        path: &'a Path,
        /// What messages call the hook.
        hook: &'a str,
        /// Linux's `enum bpf_attach_type`.
        attach_type: u32,
    },
}

impl fmt::Display for HookPoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HookPoint::Tracepoint { category, name } => write!(f, "tracepoint:{category}/{name}"),
            HookPoint::Cgroup { path, hook, .. } => write!(f, "cgroup:{}:{hook}", path.display()),
        }
    }
}

/// An attachment that ends with the value.
#[derive(Debug)]
pub struct Held {
    _fd: OwnedFd,
}

/// Attaches a program for as long as the value lives.
pub fn hold(program: &LoadedProgram, point: HookPoint<'_>) -> Result<Held, KernelError> {
    Ok(Held {
        _fd: link(program, point)?,
    })
}

/// Attaches a program and pins the attachment at `pin`.
pub fn attach(
    program: &LoadedProgram,
    point: HookPoint<'_>,
    pin: &Path,
) -> Result<PinnedLink, KernelError> {
    PinnedLink::new(link(program, point)?, pin)
}

fn link(program: &LoadedProgram, point: HookPoint<'_>) -> Result<OwnedFd, KernelError> {
    sys::silence_libbpf();
    let failed = |e| KernelError::sys(format!("attach {} to {point}", program.name()), e);
    match point {
        HookPoint::Tracepoint { category, name } => {
            let kind = sys::program_info(program.as_fd()).map_err(failed)?.type_;
            match kind {
                libbpf_sys::BPF_PROG_TYPE_TRACEPOINT => {
                    perf_tracepoint(program, category, name).map_err(failed)
                }
                // A program that names its tracepoint in its BTF is refused where that is another one.
                libbpf_sys::BPF_PROG_TYPE_TRACING => raw_tracepoint(program, None).map_err(failed),
                _ => raw_tracepoint(program, Some(name)).map_err(failed),
            }
        }
        HookPoint::Cgroup {
            path, attach_type, ..
        } => {
            let folder = File::open(path)
                .map_err(|e| KernelError::sys(format!("open cgroup {}", path.display()), e))?;
            // SAFETY: no pointers but a null options argument.
            sys::own_fd(unsafe {
                libbpf_sys::bpf_link_create(
                    program.as_fd().as_raw_fd(),
                    folder.as_raw_fd(),
                    attach_type,
                    std::ptr::null(),
                )
            })
            .map_err(failed)
        }
    }
}

fn raw_tracepoint(program: &LoadedProgram, name: Option<&str>) -> io::Result<OwnedFd> {
    let name: Option<CString> = name.map(sys::c_string).transpose()?;
    let name = name.as_ref().map_or(std::ptr::null(), |n| n.as_ptr());
    // SAFETY: `name` is null or a C string that outlives the call.
    sys::own_fd(unsafe { libbpf_sys::bpf_raw_tracepoint_open(name, program.as_fd().as_raw_fd()) })
}

/// A perf event of the tracepoint with the program on it. The event's CPU does not matter: programs are run for all.
fn perf_tracepoint(program: &LoadedProgram, category: &str, name: &str) -> io::Result<OwnedFd> {
    /// `PERF_TYPE_TRACEPOINT`.
    const TRACEPOINT: u32 = 2;
    /// `PERF_FLAG_FD_CLOEXEC`.
    const CLOEXEC: libc::c_ulong = 8;
    let id = tracepoint_id(category, name)?;
    // struct perf_event_attr up to PERF_ATTR_SIZE_VER0: type, size, config, then zeroes.
    let mut attr = [0u64; 8];
    attr[0] = u64::from(TRACEPOINT) | (mem::size_of_val(&attr) as u64) << 32;
    attr[1] = id;
    // SAFETY: `attr` is valid for the size it states; the other arguments are numbers.
    let event =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), -1, 0, -1, CLOEXEC) };
    if event < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let event = unsafe { OwnedFd::from_raw_fd(event as i32) };
    // SAFETY: no pointers but a null options argument.
    sys::own_fd(unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            event.as_raw_fd(),
            libbpf_sys::BPF_PERF_EVENT,
            std::ptr::null(),
        )
    })
}

/// The number of a tracepoint, from tracefs. Where that is not mounted, it is looked at without being mounted anywhere.
fn tracepoint_id(category: &str, name: &str) -> io::Result<u64> {
    let file = format!("events/{category}/{name}/id");
    let mut text = String::new();
    match File::open(Path::new("/sys/kernel/tracing").join(&file)) {
        Ok(mut id) => id.read_to_string(&mut text)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let root = detached_tracefs()?;
            let path = format!("/proc/self/fd/{}/{file}", root.as_raw_fd());
            File::open(path)?.read_to_string(&mut text)?
        }
        Err(e) => return Err(e),
    };
    text.trim()
        .parse()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// A tracefs that is mounted nowhere and ends with its descriptor.
fn detached_tracefs() -> io::Result<OwnedFd> {
    /// `FSCONFIG_CMD_CREATE`.
    const CREATE: libc::c_uint = 6;
    /// `FSOPEN_CLOEXEC` and `FSMOUNT_CLOEXEC`.
    const CLOEXEC: libc::c_uint = 1;
    let own = |ret: libc::c_long| {
        if ret < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so this is a fresh descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(ret as i32) })
    };
    // SAFETY: a C string literal.
    let fs = own(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOEXEC) })?;
    let null = std::ptr::null::<libc::c_void>();
    // SAFETY: this command takes no key and no value.
    let ret = unsafe { libc::syscall(libc::SYS_fsconfig, fs.as_raw_fd(), CREATE, null, null, 0) };
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no pointers.
    own(unsafe { libc::syscall(libc::SYS_fsmount, fs.as_raw_fd(), CLOEXEC, 0) })
}
