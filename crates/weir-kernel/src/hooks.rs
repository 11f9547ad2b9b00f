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
use std::path::{Path, PathBuf};

use crate::pinned::PinnedLink;
use crate::{KernelError, LoadedProgram, sys};

/// A hook that is not a device's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookPoint {
    /// A tracepoint of the kernel by its two names: `sched/sched_switch`. Programs of the kinds `tp`, `raw_tp` and `tp_btf` go there.
    Tracepoint {
        /// Subsystem.
        category: String,
        /// Event.
        name: String,
    },
    /// A hook of a cgroup and all below it.
    Cgroup {
        /// Folder of a cgroup v2 file system.
        path: PathBuf,
        /// Which hook.
        hook: CgroupHook,
    },
}

/// Hooks of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupHook {
    /// Packets that sockets receive.
    Ingress,
    /// Packets that sockets send.
    Egress,
    /// `socket()`.
    SockCreate,
    /// `connect()` over IPv4.
    Connect4,
    /// `connect()` over IPv6.
    Connect6,
    /// `bind()` over IPv4.
    Bind4,
    /// `bind()` over IPv6.
    Bind6,
    /// `sendmsg()` without connection over IPv4.
    Sendmsg4,
    /// `sendmsg()` without connection over IPv6.
    Sendmsg6,
}

impl CgroupHook {
    /// All of them by name.
    pub const ALL: [(&'static str, CgroupHook); 9] = [
        ("ingress", CgroupHook::Ingress),
        ("egress", CgroupHook::Egress),
        ("sock_create", CgroupHook::SockCreate),
        ("connect4", CgroupHook::Connect4),
        ("connect6", CgroupHook::Connect6),
        ("bind4", CgroupHook::Bind4),
        ("bind6", CgroupHook::Bind6),
        ("sendmsg4", CgroupHook::Sendmsg4),
        ("sendmsg6", CgroupHook::Sendmsg6),
    ];

    fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            CgroupHook::Ingress => libbpf_sys::BPF_CGROUP_INET_INGRESS,
            CgroupHook::Egress => libbpf_sys::BPF_CGROUP_INET_EGRESS,
            CgroupHook::SockCreate => libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE,
            CgroupHook::Connect4 => libbpf_sys::BPF_CGROUP_INET4_CONNECT,
            CgroupHook::Connect6 => libbpf_sys::BPF_CGROUP_INET6_CONNECT,
            CgroupHook::Bind4 => libbpf_sys::BPF_CGROUP_INET4_BIND,
            CgroupHook::Bind6 => libbpf_sys::BPF_CGROUP_INET6_BIND,
            CgroupHook::Sendmsg4 => libbpf_sys::BPF_CGROUP_UDP4_SENDMSG,
            CgroupHook::Sendmsg6 => libbpf_sys::BPF_CGROUP_UDP6_SENDMSG,
        }
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HookPoint::Tracepoint { category, name } => write!(f, "tracepoint:{category}/{name}"),
            HookPoint::Cgroup { path, hook } => {
                let name = CgroupHook::ALL.iter().find(|(_, h)| h == hook);
                write!(
                    f,
                    "cgroup:{}:{}",
                    path.display(),
                    name.map_or("", |(n, _)| n)
                )
            }
        }
    }
}

/// Text that names no hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no hook: write tracepoint:CATEGORY/NAME or cgroup:FOLDER:HOOK, where HOOK is one of {hooks}", hooks = CgroupHook::ALL.map(|(n, _)| n).join(", "))]
pub struct BadHook(String);

impl std::str::FromStr for HookPoint {
    type Err = BadHook;

    fn from_str(text: &str) -> Result<HookPoint, BadHook> {
        let bad = || BadHook(text.to_owned());
        let is_name =
            |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match text.split_once(':').ok_or_else(bad)? {
            ("tracepoint", rest) => {
                let (category, name) = rest.split_once('/').ok_or_else(bad)?;
                if !is_name(category) || !is_name(name) {
                    return Err(bad());
                }
                Ok(HookPoint::Tracepoint {
                    category: category.to_owned(),
                    name: name.to_owned(),
                })
            }
            ("cgroup", rest) => {
                let (path, hook) = rest.rsplit_once(':').ok_or_else(bad)?;
                let (_, hook) = CgroupHook::ALL
                    .into_iter()
                    .find(|(name, _)| *name == hook)
                    .ok_or_else(bad)?;
                if path.is_empty() {
                    return Err(bad());
                }
                Ok(HookPoint::Cgroup {
                    path: PathBuf::from(path),
                    hook,
                })
            }
            _ => Err(bad()),
        }
    }
}

/// An attachment that ends with the value.
#[derive(Debug)]
pub struct Held {
    _fd: OwnedFd,
}

/// Attaches a program for as long as the value lives.
pub fn hold(program: &LoadedProgram, point: &HookPoint) -> Result<Held, KernelError> {
    Ok(Held {
        _fd: link(program, point)?,
    })
}

/// Attaches a program and pins the attachment at `pin`.
pub fn attach(
    program: &LoadedProgram,
    point: &HookPoint,
    pin: &Path,
) -> Result<PinnedLink, KernelError> {
    PinnedLink::new(link(program, point)?, pin)
}

fn link(program: &LoadedProgram, point: &HookPoint) -> Result<OwnedFd, KernelError> {
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
        HookPoint::Cgroup { path, hook } => {
            let folder = File::open(path)
                .map_err(|e| KernelError::sys(format!("open cgroup {}", path.display()), e))?;
            // SAFETY: no pointers but a null options argument.
            sys::own_fd(unsafe {
                libbpf_sys::bpf_link_create(
                    program.as_fd().as_raw_fd(),
                    folder.as_raw_fd(),
                    hook.attach_type(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_read_back() {
        for text in [
            "tracepoint:sched/sched_switch",
            "cgroup:/sys/fs/cgroup/unified:connect4",
        ] {
            let point: HookPoint = text.parse().expect(text);
            assert_eq!(point.to_string(), text);
        }
        for bad in [
            "",
            "sched/sched_switch",
            "tracepoint:sched",
            "tracepoint:sched/../x",
            "cgroup:/x",
            "cgroup::ingress",
            "cgroup:/x:everything",
        ] {
            let e = bad.parse::<HookPoint>().expect_err(bad);
            assert!(e.to_string().contains("connect4"), "{e}");
        }
    }
}
