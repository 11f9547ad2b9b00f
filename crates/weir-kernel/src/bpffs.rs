//! The bpffs that pins live in, also for a process whose mount namespace does not show it.
//!
//! `ip netns exec` gives a command a mount namespace with a fresh /sys. A bpffs mounted there ends with the command, and with it every pin and
//! what it kept: an edge would be applied and gone. So where /sys/fs/bpf is bare and the mount namespace is not that of the host, the host's bpffs
//! is shown there, after it was mounted where it belongs if need be. The host is the first of this process's ancestors: in a container that is the
//! container's first process.

#![expect(unsafe_code, reason = "mount, unshare and setns")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{CWD, statfs};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::KernelError;
use crate::pins::BPFFS;

/// Shows the host's bpffs in a private mount namespace that lacks it, if the host has one. Nothing happens elsewhere, and without the privilege.
pub fn share() {
    if is_mounted() {
        return;
    }
    if let Some(host) = Host::elsewhere().filter(Host::has_bpffs) {
        // Who goes on to need it is told by `ensure` why not.
        let _ = host.show();
    }
}

/// Mounts bpffs at its place unless it is there, as most distributions do at boot.
pub fn ensure() -> Result<(), KernelError> {
    if is_mounted() {
        return Ok(());
    }
    let what = format!("mount bpffs at {BPFFS}");
    if let Some(host) = Host::elsewhere() {
        return host.show().map_err(|e| {
            KernelError::sys(
                format!("{what} of the host, from a private mount namespace (`nsenter --net=/run/netns/NAME` makes none)"),
                e,
            )
        });
    }
    mount().map_err(|e| match e.raw_os_error() {
        Some(libc::EPERM) => KernelError::sys(what, e),
        _ => KernelError::NoBpffs {
            path: PathBuf::from(BPFFS),
        },
    })
}

/// Whether a bpffs is mounted where pins live.
pub fn is_mounted() -> bool {
    is_bpffs(Path::new(BPFFS))
}

/// The process whose mounts outlive commands.
struct Host(PathBuf);

impl Host {
    /// The host, if mounts that are made here are not its own. Without ancestors that may be looked at, this is the host.
    fn elsewhere() -> Option<Host> {
        let own = fs::metadata("/proc/thread-self/ns/mnt").ok()?.ino();
        let mut found = None;
        let mut at = Path::new("/proc").join(std::process::id().to_string());
        while let Ok(namespace) = fs::metadata(at.join("ns/mnt")) {
            let parent = parent(&at);
            found = Some((at, namespace.ino()));
            match parent {
                Some(parent) => at = parent,
                None => break,
            }
        }
        found
            .filter(|(_, inode)| *inode != own)
            .map(|(process, _)| Host(process))
    }

    fn has_bpffs(&self) -> bool {
        is_bpffs(&self.0.join("root/sys/fs/bpf"))
    }

    /// Shows its bpffs here.
    fn show(&self) -> io::Result<()> {
        // A thread's root and working folder change with its mount namespace: this needs one that ends.
        let tree = thread::scope(|scope| {
            let taken = scope.spawn(|| self.take()).join();
            taken.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&tree, "", CWD, BPFFS, whole)?)
    }

    /// A mount of its bpffs that is nowhere yet. The calling thread is in its mount namespace afterwards.
    fn take(&self) -> io::Result<OwnedFd> {
        let namespace = File::open(self.0.join("ns/mnt"))?;
        // SAFETY: no pointers.
        let entered = unsafe {
            match libc::unshare(libc::CLONE_FS) {
                0 => libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS),
                failed => failed,
            }
        };
        if entered != 0 {
            return Err(io::Error::last_os_error());
        }
        if !is_mounted() {
            mount()?;
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok(open_tree(CWD, BPFFS, flags)?)
    }
}

/// The parent of a process in /proc.
fn parent(process: &Path) -> Option<PathBuf> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // Its name stands in parentheses and may hold any.
    let (_, behind) = stat.rsplit_once(')')?;
    let parent: u32 = behind.split_whitespace().nth(1)?.parse().ok()?;
    (parent != 0).then(|| Path::new("/proc").join(parent.to_string()))
}

fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type == libc::BPF_FS_MAGIC)
}

fn mount() -> io::Result<()> {
    // SAFETY: C string literals.
    let ret = unsafe {
        libc::mount(
            c"bpf".as_ptr(),
            c"/sys/fs/bpf".as_ptr(),
            c"bpf".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            c"mode=0700".as_ptr().cast(),
        )
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_not_a_bpffs() {
        assert!(!is_bpffs(Path::new("/proc")));
        assert!(!is_bpffs(Path::new("/nonexistent")));
    }
}
