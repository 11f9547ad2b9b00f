//! Network namespaces that belong to one value: created under a unique name,
//! entered by threads and child processes, removed on drop, also by a panic.
//!
//! Entering is `setns` of the network namespace alone, so that /sys (and the
//! bpffs below it) stays what it was; `ip netns exec` would remount it. A
//! process killed with SIGKILL leaves its namespaces; their names start with
//! the prefix, so `ip netns list` shows them. Also where the far end of a veth is.

#![expect(unsafe_code, reason = "setns and pre_exec")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::iface::{self, Interface};
use crate::{KernelError, netlink};

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";

/// File system of namespaces (include/uapi/linux/magic.h).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

/// A named network namespace, removed when the value is dropped.
#[derive(Debug)]
pub struct NetNs {
    name: String,
    fd: OwnedFd,
}

/// A network namespace of others, by the path of its file: it lives as long as anything refers to it.
#[derive(Debug)]
pub struct ForeignNetNs {
    path: PathBuf,
    fd: OwnedFd,
}

impl ForeignNetNs {
    /// Opens the file (`/run/netns/NAME`, `/proc/PID/ns/net`); `None`: there is none, or it is not a network namespace any more.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>, KernelError> {
        let failed = |e| KernelError::sys(format!("open {}", path.display()), e);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let on = rustix::fs::fstatfs(&file).map_err(|e| failed(e.into()))?;
        let is_namespace = on.f_type == NSFS_MAGIC;
        Ok(is_namespace.then(|| Self {
            path: path.to_owned(),
            fd: OwnedFd::from(file),
        }))
    }

    /// As of [`NetNs::run`].
    ///
    /// # Errors
    /// It cannot be entered.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, KernelError> {
        inside(&self.fd, &self.path.display().to_string(), f)
    }
}

impl AsFd for ForeignNetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl NetNs {
    /// Creates a namespace named `PREFIX-PID-N` with loopback up. `ip -n NAME`
    /// works with it.
    pub fn create(prefix: &str) -> Result<Self, KernelError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..100 {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{prefix}-{}-{n}", std::process::id());
            // A killed process of the same number may have left the name.
            if PathBuf::from(NAMES).join(&name).exists() {
                continue;
            }
            run_command(Command::new("ip").args(["netns", "add", &name]))?;
            let path = PathBuf::from(NAMES).join(&name);
            let fd = match File::open(&path) {
                Ok(file) => OwnedFd::from(file),
                Err(e) => {
                    remove(&name);
                    return Err(KernelError::sys(format!("open {}", path.display()), e));
                }
            };
            let ns = Self { name, fd };
            ns.ip(&["link", "set", "lo", "up"])?;
            return Ok(ns);
        }
        Err(KernelError::Sys {
            what: format!("find a free namespace name for {prefix}"),
            source: io::Error::from_raw_os_error(libc::EEXIST),
        })
    }

    /// The name, as `ip netns list` prints it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Inode of the namespace: its identity.
    pub fn inode(&self) -> Result<u64, KernelError> {
        self.run(current_inode)?
    }

    /// Runs `f` on a thread of its own inside the namespace. A panic of `f`
    /// continues in the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, KernelError> {
        inside(&self.fd, &self.name, f)
    }

    /// A command whose child process runs inside the namespace.
    pub fn command(&self, program: &str) -> Result<Command, KernelError> {
        let fd = self.fd.try_clone().map_err(|e| {
            KernelError::sys(
                format!("duplicate the descriptor of namespace {}", self.name),
                e,
            )
        })?;
        let mut command = Command::new(program);
        // SAFETY: the closure only makes one async-signal-safe system call on a descriptor it owns.
        unsafe { command.pre_exec(move || enter(&fd)) };
        Ok(command)
    }

    /// Runs `ip -n NAME ARGS`; returns what it printed.
    pub fn ip(&self, args: &[&str]) -> Result<String, KernelError> {
        run_command(Command::new("ip").args(["-n", &self.name]).args(args))
    }

    /// Runs a program inside the namespace to its end; returns what it printed.
    pub fn output(&self, program: &str, args: &[&str]) -> Result<String, KernelError> {
        run_command(self.command(program)?.args(args))
    }

    /// Sets a sysctl inside the namespace: `("net.ipv4.ip_forward", "1")`. An
    /// interface name with a dot in it cannot be written this way.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<(), KernelError> {
        let path = PathBuf::from("/proc/sys").join(name.replace('.', "/"));
        let written = self.run(|| fs::write(&path, value))?;
        written.map_err(|e| KernelError::sys(format!("set {name}={value} in {}", self.name), e))
    }

    /// Switches offloads of an interface off with `ethtool -K`, e.g. `["tx", "tso"]`.
    pub fn offloads_off(&self, iface: &str, features: &[&str]) -> Result<(), KernelError> {
        let mut args = vec!["-K", iface];
        for feature in features {
            args.extend([*feature, "off"]);
        }
        self.output("ethtool", &args).map(drop)
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// The other end of a veth, in whatever namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// Its index there.
    pub ifindex: u32,
    /// Its name there, where the namespace was found.
    pub name: Option<String>,
    /// The namespace it is in.
    pub place: NetnsRef,
}

/// A namespace, by what a command finds it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetnsRef {
    /// That of the caller.
    Here,
    /// `ip netns exec NAME`.
    Named(String),
    /// `nsenter -t PID -n`: that of a process, which has no name.
    Process(u32),
    /// Another one that was not found: of a process that this one may not look into, or of nobody.
    Unknown,
}

impl NetnsRef {
    /// What is written in front of a command to run it there; `None` where that is not known.
    pub fn prefix(&self) -> Option<String> {
        match self {
            NetnsRef::Here => Some(String::new()),
            NetnsRef::Named(name) => Some(format!("ip netns exec {name} ")),
            NetnsRef::Process(pid) => Some(format!("nsenter -t {pid} -n ")),
            NetnsRef::Unknown => None,
        }
    }
}

/// Where the far end of a veth of the current namespace is; `None` if it has none. Named namespaces are looked through first, then those of
/// processes.
///
/// # Errors
/// The kernel does not tell.
pub fn far_end(ifindex: u32) -> Result<Option<FarEnd>, KernelError> {
    let failed = |e| KernelError::sys(format!("find the far end of interface {ifindex}"), e);
    let Some((far, number)) = netlink::far_end(ifindex).map_err(failed)? else {
        return Ok(None);
    };
    let found = |name, place| FarEnd {
        ifindex: far,
        name,
        place,
    };
    let Some(number) = number else {
        return Ok(Some(found(iface::name_of(far), NetnsRef::Here)));
    };
    for (place, path) in namespaces() {
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if netlink::netns_number(file.as_fd()).ok().flatten() != Some(number) {
            continue;
        }
        let fd = OwnedFd::from(file);
        let name = thread::scope(|scope| {
            let inside = scope.spawn(|| enter(&fd).ok().and_then(|()| iface::name_of(far)));
            inside.join().unwrap_or_default()
        });
        return Ok(Some(found(name, place)));
    }
    Ok(Some(found(None, NetnsRef::Unknown)))
}

/// The far end of a veth that lies in this namespace. Its index alone does not say so: another interface may have it here.
pub fn peer_here(interface: &Interface) -> Option<Interface> {
    let far = far_end(interface.ifindex).ok().flatten()?;
    let is_here = interface.is_veth() && far.place == NetnsRef::Here;
    is_here.then(|| iface::find(&far.name?).ok()).flatten()
}

/// Namespaces that there may be, and their files.
fn namespaces() -> impl Iterator<Item = (NetnsRef, PathBuf)> {
    let named = fs::read_dir(NAMES).into_iter().flatten().flatten();
    let named = named.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((NetnsRef::Named(name), entry.path()))
    });
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((NetnsRef::Process(pid), entry.path().join("ns/net")))
    });
    named.chain(processes)
}

/// Inode of the namespace that the calling thread is in.
pub fn current_inode() -> Result<u64, KernelError> {
    fs::metadata("/proc/thread-self/ns/net")
        .map(|m| m.ino())
        .map_err(|e| KernelError::sys("identify the network namespace", e))
}

/// Inode of the first PID namespace, whose processes are all there are (`PROC_PID_INIT_INO` of the kernel).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Keeps those of these namespaces, by inode, that nothing refers to: no thread, no descriptor and no mount of any process. Where not all
/// processes are seen, as in a container, none is kept.
pub(crate) fn retain_gone(inodes: &mut Vec<u64>) {
    let inode = |path: &str| fs::metadata(path).map(|found| found.ino());
    let sees_all = || inode("/proc/self/ns/pid").is_ok_and(|of| of == FIRST_PID_NAMESPACE);
    if inodes.is_empty() || !sees_all() {
        return inodes.clear();
    }
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    for process in entries(PathBuf::from("/proc")) {
        let is_process = |name: &str| name.bytes().all(|c| c.is_ascii_digit());
        if !process.file_name().to_str().is_some_and(is_process) {
            continue;
        }
        let threads = entries(process.path().join("task")).map(|one| one.path().join("ns/net"));
        let descriptors = entries(process.path().join("fd")).map(|one| one.path());
        for path in threads.chain(descriptors) {
            let target = fs::read_link(path).unwrap_or_default();
            inodes.retain(|one| target.as_os_str() != format!("net:[{one}]").as_str());
        }
        let mounts = fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
        inodes.retain(|one| !mounts.contains(&format!(" net:[{one}] ")));
    }
}

/// Runs a command to its end; an error carries the command line and what it
/// wrote to standard error.
pub fn run_command(command: &mut Command) -> Result<String, KernelError> {
    let line = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    let failed = |status: String, stderr: &[u8]| KernelError::Command {
        command: line.clone(),
        status,
        stderr: String::from_utf8_lossy(stderr).trim().replace('\n', "; "),
    };
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed("did not start".to_owned(), e.to_string().as_bytes()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string(), &output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `f` on a thread of its own inside a namespace. A panic of `f` continues in the caller.
fn inside<T: Send>(
    fd: &OwnedFd,
    name: &str,
    f: impl FnOnce() -> T + Send,
) -> Result<T, KernelError> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            enter(fd).map_err(|e| KernelError::sys(format!("enter namespace {name}"), e))?;
            Ok(f())
        });
        match inside.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn enter(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes the name away; the namespace ends with its last user. Failure is not
/// reported: this runs while dropping, and the name is all that would remain.
fn remove(name: &str) {
    let _ = run_command(Command::new("ip").args(["netns", "delete", name]));
}
