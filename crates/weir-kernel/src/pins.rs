//! Where a running weir leaves its attachments so that another process can
//! find and remove them: `/sys/fs/bpf/weir/run/<netns inode>-<ifindex>`, one
//! pinned link per interface.
//!
//! Only links are pinned, never maps or programs: a link keeps its program and
//! that keeps its maps, so what survives a killed process is always complete.

#![expect(unsafe_code, reason = "statfs and mount take raw pointers")]

use std::fs;
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::{KernelError, XdpLink, iface, netns, sys};

/// Where bpffs is mounted by convention.
pub const BPFFS: &str = "/sys/fs/bpf";
/// The folder of the pins.
pub const RUN: &str = "/sys/fs/bpf/weir/run";

/// A link that some process pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedLink {
    /// Its file.
    pub path: PathBuf,
    /// Inode of the namespace it was attached in.
    pub netns: u64,
    /// Index of the interface it was attached to.
    pub ifindex: u32,
    /// That interface's name, where it exists in the current namespace.
    pub name: Option<String>,
    /// Id of the attached program; `None` once the device is gone or the link
    /// was detached, so that only the pin remains.
    pub prog_id: Option<u32>,
}

/// Whether a bpffs is mounted where pins live.
pub fn is_bpffs_mounted() -> bool {
    is_bpffs(Path::new(BPFFS))
}

/// Mounts bpffs at its place unless it is there, as most distributions do at boot.
pub fn ensure_bpffs() -> Result<(), KernelError> {
    if is_bpffs_mounted() {
        return Ok(());
    }
    // SAFETY: C string literals, and no data argument.
    let ret = unsafe {
        libc::mount(
            c"bpf".as_ptr(),
            c"/sys/fs/bpf".as_ptr(),
            c"bpf".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            c"mode=0700".as_ptr().cast(),
        )
    };
    if ret != 0 {
        return match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::EPERM) => {
                Err(KernelError::sys(format!("mount bpffs at {BPFFS}"), e))
            }
            _ => Err(KernelError::NoBpffs {
                path: PathBuf::from(BPFFS),
            }),
        };
    }
    Ok(())
}

/// Where the link of an interface of the current namespace is pinned.
pub fn path_for(ifindex: u32) -> Result<PathBuf, KernelError> {
    Ok(Path::new(RUN).join(file_name(netns::current_inode()?, ifindex)))
}

/// Pins the link of an interface of the current namespace. A dead pin in the
/// way (its device is gone) is replaced, a live one is
/// [`KernelError::AlreadyAttached`].
pub fn pin(link: &XdpLink) -> Result<PathBuf, KernelError> {
    if !is_bpffs_mounted() {
        return Err(KernelError::NoBpffs {
            path: PathBuf::from(BPFFS),
        });
    }
    fs::create_dir_all(RUN).map_err(|e| KernelError::sys(format!("create {RUN}"), e))?;
    let path = path_for(link.ifindex())?;
    if path.exists() {
        match inspect(&path)? {
            Some(found) if found.prog_id.is_some() => {
                return Err(KernelError::AlreadyAttached {
                    iface: found.name.unwrap_or_else(|| format!("#{}", found.ifindex)),
                    prog_id: found.prog_id.unwrap_or(0),
                });
            }
            _ => unlink(&path)?,
        }
    }
    link.pin(&path)?;
    Ok(path)
}

/// A pinned attachment of this process: dropping it takes the program off and
/// removes the pin, and only a killed process leaves both behind, for
/// [`remove_one`] or [`remove_all`].
#[derive(Debug)]
pub struct HeldLink {
    link: XdpLink,
    path: PathBuf,
    released: bool,
}

/// Pins `link` and keeps it until dropped; see [`pin`] for what is refused.
pub fn hold(link: XdpLink) -> Result<HeldLink, KernelError> {
    let path = pin(&link)?;
    Ok(HeldLink {
        link,
        path,
        released: false,
    })
}

impl HeldLink {
    /// The attachment, for [`XdpLink::update`] and questions.
    pub fn link(&mut self) -> &mut XdpLink {
        &mut self.link
    }

    /// Takes the program off the interface and removes the pin, telling what
    /// went wrong; dropping does the same silently.
    pub fn release(mut self) -> Result<(), KernelError> {
        self.released = true;
        self.link.take_off()?;
        unlink(&self.path)
    }
}

impl Drop for HeldLink {
    fn drop(&mut self) {
        if !self.released {
            // Nobody is left to be told; `weir down` finds what remains.
            let _ = self.link.take_off();
            let _ = unlink(&self.path);
        }
    }
}

/// The pins of the current namespace, by interface index; empty where bpffs or
/// the folder is absent.
pub fn list() -> Result<Vec<PinnedLink>, KernelError> {
    let here = netns::current_inode()?;
    let mut found = list_all()?;
    found.retain(|pin| pin.netns == here);
    Ok(found)
}

/// The pins of every namespace. Names are given only for the current one.
pub fn list_all() -> Result<Vec<PinnedLink>, KernelError> {
    let entries = match fs::read_dir(RUN) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(KernelError::sys(format!("list {RUN}"), e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| KernelError::sys(format!("list {RUN}"), e))?;
        found.extend(inspect(&entry.path())?);
    }
    found.sort_by_key(|pin| (pin.netns, pin.ifindex));
    Ok(found)
}

/// Takes the program off the interface and removes the pin; a dead pin is just
/// removed.
pub fn remove(pin: &PinnedLink) -> Result<(), KernelError> {
    match sys::open_pinned(&pin.path) {
        Ok(fd) => match sys::link_detach(fd.as_fd()) {
            Ok(()) => {}
            // The device is gone, and the attachment with it.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOLINK | libc::EINVAL)) => {}
            Err(e) => {
                return Err(KernelError::sys(
                    format!("detach the link pinned at {}", pin.path.display()),
                    e,
                ));
            }
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => {
            return Err(KernelError::sys(format!("open {}", pin.path.display()), e));
        }
    }
    unlink(&pin.path)
}

/// Removes the pin of one interface of the current namespace; returns it, or
/// `None` if there was none.
pub fn remove_one(name: &str) -> Result<Option<PinnedLink>, KernelError> {
    let ifindex = iface::index_of(name)?;
    let Some(pin) = list()?.into_iter().find(|pin| pin.ifindex == ifindex) else {
        return Ok(None);
    };
    remove(&pin)?;
    Ok(Some(pin))
}

/// Removes every pin of the current namespace; returns them.
pub fn remove_all() -> Result<Vec<PinnedLink>, KernelError> {
    let pins = list()?;
    for pin in &pins {
        remove(pin)?;
    }
    Ok(pins)
}

/// Reads one pin; `None` for a file that is not one of ours or just vanished.
fn inspect(path: &Path) -> Result<Option<PinnedLink>, KernelError> {
    let Some((inode, ifindex)) = path
        .file_name()
        .and_then(|n| n.to_str())
        .and_then(parse_file_name)
    else {
        return Ok(None);
    };
    let fd = match sys::open_pinned(path) {
        Ok(fd) => fd,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(KernelError::sys(format!("open {}", path.display()), e)),
    };
    let (prog_id, attached) = match sys::xdp_link_info(fd.as_fd()) {
        Ok(info) => info,
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        Err(e) => return Err(KernelError::sys(format!("inspect {}", path.display()), e)),
    };
    let here = netns::current_inode()? == inode;
    Ok(Some(PinnedLink {
        path: path.to_owned(),
        netns: inode,
        ifindex,
        name: if here { iface::name_of(ifindex) } else { None },
        prog_id: (attached != 0).then_some(prog_id),
    }))
}

fn unlink(path: &Path) -> Result<(), KernelError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(KernelError::sys(format!("remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}

fn is_bpffs(path: &Path) -> bool {
    let Ok(path) = sys::c_string(&path.to_string_lossy()) else {
        return false;
    };
    // SAFETY: `statfs` is plain data for which all zeroes are valid.
    let mut info: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: a valid C string and a valid buffer.
    let ret = unsafe { libc::statfs(path.as_ptr(), &raw mut info) };
    ret == 0 && info.f_type == libc::BPF_FS_MAGIC
}

fn file_name(netns: u64, ifindex: u32) -> String {
    format!("{netns}-{ifindex}")
}

fn parse_file_name(name: &str) -> Option<(u64, u32)> {
    let (netns, ifindex) = name.split_once('-')?;
    Some((netns.parse().ok()?, ifindex.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_read_back() {
        assert_eq!(
            parse_file_name(&file_name(4_026_531_840, 7)),
            Some((4_026_531_840, 7))
        );
        for foreign in ["", "x", "1-", "-1", "1-2-3", "a-2", "1-99999999999"] {
            assert_eq!(parse_file_name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn proc_is_no_bpffs() {
        assert!(!is_bpffs(Path::new("/proc")));
        assert!(!is_bpffs(Path::new("/nonexistent")));
    }
}
