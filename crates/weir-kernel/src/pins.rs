//! Where a running weir leaves its attachments so that another process can
//! find and remove them: `/sys/fs/bpf/weir/run/<netns inode>-<ifindex>` for XDP, with `-ingress` or `-egress` behind
//! it for tcx: one pinned link each. A clsact filter has no link; there the program is pinned, as `..-ingress-clsact`, or
//! `..-ingress-clsact-made` where weir made the qdisc, too.
//!
//! A link or a filter keeps its program and that keeps its maps, so what survives a killed process is always complete.

use std::fs::{self, File, TryLockError};
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use crate::bpffs::{
    ensure as ensure_bpffs, is_mounted as is_bpffs_mounted, share as share_bpffs,
};
use crate::link::Direction;
use crate::{Filter, KernelError, Link, LoadedProgram, clsact, iface, netns, sys};

/// Where bpffs is mounted by convention.
pub const BPFFS: &str = "/sys/fs/bpf";
/// The folder of the pins.
pub const RUN: &str = "/sys/fs/bpf/weir/run";
/// The folder of the claims: one empty folder for each interface that a process holds, and locks.
pub const CLAIMS: &str = "/sys/fs/bpf/weir/held";

/// Where on an interface a program is, as the name of its pin says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinnedHook {
    /// An XDP link.
    Xdp,
    /// A tcx link.
    Tcx(Direction),
    /// A clsact filter.
    Clsact {
        /// Its direction.
        direction: Direction,
        /// Whether weir made the qdisc.
        made_qdisc: bool,
    },
}

/// An attachment that some process pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedLink {
    /// Its file.
    pub path: PathBuf,
    /// Inode of the namespace it was attached in.
    pub netns: u64,
    /// Index of the interface it was attached to.
    pub ifindex: u32,
    /// Hook and direction.
    pub place: PinnedHook,
    /// That interface's name, where it exists in the current namespace.
    pub name: Option<String>,
    /// Id of the attached program; `None` once the device is gone or the link
    /// was detached, so that only the pin remains.
    pub prog_id: Option<u32>,
}

/// Where the link of an interface of the current namespace is pinned.
pub fn path_for(ifindex: u32, place: PinnedHook) -> Result<PathBuf, KernelError> {
    Ok(Path::new(RUN).join(file_name(netns::current_inode()?, ifindex, place)))
}

/// Pins the link of an interface of the current namespace. A dead pin in the
/// way (its device is gone) is replaced, a live one is
/// [`KernelError::AlreadyAttached`].
pub fn pin(link: &Link) -> Result<PathBuf, KernelError> {
    let place = link.direction().map_or(PinnedHook::Xdp, PinnedHook::Tcx);
    let path = free_path(link.ifindex(), place)?;
    link.pin(&path)?;
    Ok(path)
}

/// The path of a new pin, without a dead one in the way.
fn free_path(ifindex: u32, place: PinnedHook) -> Result<PathBuf, KernelError> {
    if !is_bpffs_mounted() {
        return Err(KernelError::NoBpffs {
            path: PathBuf::from(BPFFS),
        });
    }
    fs::create_dir_all(RUN).map_err(|e| KernelError::sys(format!("create {RUN}"), e))?;
    let path = path_for(ifindex, place)?;
    if path.exists() {
        match inspect(&path)? {
            Some(found) if found.prog_id.is_some() => {
                let iface = found.name.unwrap_or_else(|| format!("#{}", found.ifindex));
                let prog_id = found.prog_id.unwrap_or(0);
                return Err(match place {
                    PinnedHook::Xdp => KernelError::AlreadyAttached { iface, prog_id },
                    _ => KernelError::AlreadyRunning { iface, prog_id },
                });
            }
            _ => unlink(&path)?,
        }
    }
    Ok(path)
}

/// A pinned attachment of this process: dropping it takes the program off and
/// removes the pin, and only a killed process leaves both behind, for
/// [`remove_one`] or [`remove_all`].
#[derive(Debug)]
pub struct HeldLink {
    link: Link,
    path: PathBuf,
    /// Whether dropping it does so.
    owned: bool,
}

/// Pins `link` and keeps it until dropped; see [`pin`] for what is refused.
pub fn hold(link: Link) -> Result<HeldLink, KernelError> {
    let path = pin(&link)?;
    Ok(HeldLink {
        link,
        path,
        owned: true,
    })
}

impl HeldLink {
    /// The attachment, for [`Link::update`] and questions.
    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Whether the program is still on the interface.
    pub fn is_attached(&self) -> Result<bool, KernelError> {
        self.link.is_attached()
    }

    /// From now on it goes with this process; see [`open`].
    pub fn own(&mut self) {
        self.owned = true;
    }

    /// Takes the program off the interface and removes the pin, telling what
    /// went wrong; dropping does the same silently.
    pub fn release(mut self) -> Result<(), KernelError> {
        self.owned = false;
        self.link.take_off()?;
        unlink(&self.path)
    }
}

impl Drop for HeldLink {
    fn drop(&mut self) {
        if self.owned {
            // Nobody is left to be told; `weir down` finds what remains.
            let _ = self.link.take_off();
            let _ = unlink(&self.path);
        }
    }
}

/// A clsact filter of this process and the pin by which `weir down` would find it; both go when it is dropped.
#[derive(Debug)]
pub struct HeldFilter {
    filter: Option<Filter>,
    path: PathBuf,
    /// Whether they do.
    owned: bool,
}

/// Pins `program`, which `filter` runs, and keeps both until dropped.
pub fn hold_filter(filter: Filter, program: &LoadedProgram) -> Result<HeldFilter, KernelError> {
    let place = PinnedHook::Clsact {
        direction: filter.direction(),
        made_qdisc: filter.made_qdisc(),
    };
    let path = path_for(filter.ifindex(), place)?;
    if is_bpffs_mounted() {
        fs::create_dir_all(RUN).map_err(|e| KernelError::sys(format!("create {RUN}"), e))?;
        // Attaching succeeded, so whatever is pinned there is dead.
        unlink(&path)?;
        sys::pin_object(program.as_fd(), &path)
            .map_err(|e| KernelError::sys(format!("pin a program at {}", path.display()), e))?;
    }
    Ok(HeldFilter {
        filter: Some(filter),
        path,
        owned: true,
    })
}

impl HeldFilter {
    /// Whether weir made the qdisc it is on.
    pub fn made_qdisc(&self) -> bool {
        self.filter.as_ref().is_some_and(Filter::made_qdisc)
    }

    /// Whether it is still there.
    pub fn is_attached(&self) -> Result<bool, KernelError> {
        match &self.filter {
            Some(filter) => Ok(filter.prog_id()?.is_some()),
            None => Ok(false),
        }
    }

    /// From now on it goes with this process; see [`open`].
    pub fn own(&mut self) {
        self.owned = true;
    }

    /// Puts another program in its place, and its pin in the place of the old one's.
    pub fn replace(&mut self, program: &LoadedProgram) -> Result<(), KernelError> {
        if let Some(filter) = &self.filter {
            filter.replace(program)?;
        }
        if is_bpffs_mounted() {
            unlink(&self.path)?;
            sys::pin_object(program.as_fd(), &self.path).map_err(|e| {
                KernelError::sys(format!("pin a program at {}", self.path.display()), e)
            })?;
        }
        Ok(())
    }

    /// Takes it off and removes the pin, telling what went wrong; dropping does the same silently.
    pub fn release(mut self) -> Result<(), KernelError> {
        if let Some(filter) = self.filter.take() {
            filter.detach()?;
        }
        unlink(&self.path)
    }
}

impl Drop for HeldFilter {
    fn drop(&mut self) {
        let filter = self.filter.take();
        if self.owned {
            drop(filter);
            let _ = unlink(&self.path);
        } else {
            mem::forget(filter);
        }
    }
}

/// What another process left at one place of an interface, opened. Dropping it changes nothing, until it is made this process's own.
#[derive(Debug)]
pub enum Left {
    /// An XDP or tcx link.
    Link(HeldLink),
    /// A clsact filter.
    Filter(HeldFilter),
}

/// Opens what was left at a live pin of the current namespace, and the program there.
pub fn open(pin: &PinnedLink) -> Result<(Left, LoadedProgram), KernelError> {
    let failed = |e| KernelError::sys(format!("open {}", pin.path.display()), e);
    let fd = sys::open_pinned(&pin.path).map_err(failed)?;
    let path = pin.path.clone();
    let direction = match pin.place {
        PinnedHook::Clsact {
            direction,
            made_qdisc,
        } => {
            let filter = Filter::existing(pin.ifindex, direction, made_qdisc);
            let held = HeldFilter {
                filter: Some(filter),
                path,
                owned: false,
            };
            return Ok((Left::Filter(held), LoadedProgram::adopt(fd)?));
        }
        PinnedHook::Tcx(direction) => Some(direction),
        PinnedHook::Xdp => None,
    };
    let (prog_id, _) = sys::link_info(fd.as_fd()).map_err(failed)?;
    let program = sys::program_by_id(prog_id).map_err(failed)?;
    let held = HeldLink {
        link: Link::existing(fd, pin.ifindex, direction),
        path,
        owned: false,
    };
    Ok((Left::Link(held), LoadedProgram::adopt(program)?))
}

/// The right to attach to an interface: a lock in bpffs that ends with its process, however that ends.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    _lock: File,
}

/// Claims an interface of the current namespace; `None` if a living process has it.
pub fn claim(ifindex: u32) -> Result<Option<Claim>, KernelError> {
    let path = claim_path(netns::current_inode()?, ifindex);
    let failed = |e| KernelError::sys(format!("lock {}", path.display()), e);
    let gone = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    loop {
        // Its last owner may remove it between any two steps, and the last of all what it is in.
        match fs::create_dir_all(&path) {
            Err(e) if gone(&e) => continue,
            made => made.map_err(failed)?,
        }
        let lock = match try_lock(&path) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Ok(None),
            Err(e) if gone(&e) => continue,
            Err(e) => return Err(failed(e)),
        };
        let locked = lock.metadata().map_err(failed)?.ino();
        match fs::metadata(&path) {
            Ok(now) if now.ino() == locked => return Ok(Some(Claim { path, _lock: lock })),
            Err(e) if !gone(&e) => return Err(failed(e)),
            _ => {}
        }
    }
}

/// Removes what killed processes left of their claims, in all namespaces.
pub fn sweep_claims() {
    let Ok(entries) = fs::read_dir(CLAIMS) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if let Ok(Some(_lock)) = try_lock(&entry.path()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    tidy();
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
        tidy();
    }
}

/// Removes the folders of pins and claims where nothing is in them. Who pins has a claim: the folder of the claims goes first.
fn tidy() {
    let above = Path::new(RUN).parent().unwrap_or(Path::new(RUN));
    let folders = [Path::new(CLAIMS), Path::new(RUN), above];
    let _ = folders.iter().map(fs::remove_dir).find(Result::is_err);
}

/// The lock of a folder; `None` if somebody has it.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let folder = File::open(path)?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(e),
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

/// Pins of other namespaces that do nothing any more: their interface is gone, usually with its namespace, and no process claims it.
/// [`remove`] removes them from anywhere.
///
/// # Errors
/// The folder cannot be read.
pub fn orphans() -> Result<Vec<PinnedLink>, KernelError> {
    let here = netns::current_inode()?;
    let mut found = list_all()?;
    found.retain(|pin| pin.netns != here && !is_claimed(pin.netns, pin.ifindex));
    // A link says itself that its interface is gone. A filter cannot be asked for from here.
    let mut filters: Vec<u64> = (found.iter())
        .filter(|pin| matches!(pin.place, PinnedHook::Clsact { .. }))
        .map(|pin| pin.netns)
        .collect();
    netns::retain_gone(&mut filters);
    for pin in &mut found {
        if filters.contains(&pin.netns) {
            pin.prog_id = None;
        }
    }
    found.retain(|pin| pin.prog_id.is_none());
    Ok(found)
}

/// What killed processes left in the current namespace: pins of interfaces that no process claims.
///
/// # Errors
/// As of [`list`].
pub fn left_here() -> Result<Vec<PinnedLink>, KernelError> {
    let mut found = list()?;
    found.retain(|pin| !is_claimed(pin.netns, pin.ifindex));
    Ok(found)
}

/// Whether a living process has claimed an interface.
fn is_claimed(netns: u64, ifindex: u32) -> bool {
    // A claim that cannot be read is taken for one: its pins stay.
    match try_lock(&claim_path(netns, ifindex)) {
        Ok(lock) => lock.is_none(),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

fn claim_path(netns: u64, ifindex: u32) -> PathBuf {
    Path::new(CLAIMS).join(format!("{netns}-{ifindex}"))
}

/// Takes the program off the interface and removes the pin; a dead pin is just
/// removed.
pub fn remove(pin: &PinnedLink) -> Result<(), KernelError> {
    if let PinnedHook::Clsact {
        direction,
        made_qdisc,
    } = pin.place
    {
        if pin.prog_id.is_some() {
            clsact::take_off(pin.ifindex, direction, made_qdisc)?;
        }
        return unlink(&pin.path);
    }
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

/// Removes the pins of one interface of the current namespace; returns one of them, or
/// `None` if there was none.
pub fn remove_one(name: &str) -> Result<Option<PinnedLink>, KernelError> {
    let ifindex = iface::index_of(name)?;
    let mut last = None;
    for pin in list()?.into_iter().filter(|pin| pin.ifindex == ifindex) {
        remove(&pin)?;
        last = Some(pin);
    }
    Ok(last)
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
    let Some((inode, ifindex, place)) = path
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
    let here = netns::current_inode()? == inode;
    let found = |prog_id| PinnedLink {
        path: path.to_owned(),
        netns: inode,
        ifindex,
        place,
        name: if here { iface::name_of(ifindex) } else { None },
        prog_id,
    };
    if let PinnedHook::Clsact { direction, .. } = place {
        let pinned = match sys::program_info(fd.as_fd()) {
            Ok(info) => info.id,
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
            Err(e) => return Err(KernelError::sys(format!("inspect {}", path.display()), e)),
        };
        // A filter can only be asked for in its own namespace.
        let running = if here {
            clsact::prog_id(ifindex, direction)?
        } else {
            Some(pinned)
        };
        return Ok(Some(found(running.filter(|id| *id == pinned))));
    }
    let (prog_id, attached) = match sys::link_info(fd.as_fd()) {
        Ok(info) => info,
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        Err(e) => return Err(KernelError::sys(format!("inspect {}", path.display()), e)),
    };
    Ok(Some(found((attached != 0).then_some(prog_id))))
}

fn unlink(path: &Path) -> Result<(), KernelError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(KernelError::sys(format!("remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}

fn file_name(netns: u64, ifindex: u32, place: PinnedHook) -> String {
    let start = format!("{netns}-{ifindex}");
    match place {
        PinnedHook::Xdp => start,
        PinnedHook::Tcx(direction) => format!("{start}-{direction}"),
        PinnedHook::Clsact {
            direction,
            made_qdisc,
        } => {
            let made = if made_qdisc { "-made" } else { "" };
            format!("{start}-{direction}-clsact{made}")
        }
    }
}

fn parse_file_name(name: &str) -> Option<(u64, u32, PinnedHook)> {
    let mut parts = name.splitn(3, '-');
    let netns = parts.next()?.parse().ok()?;
    let ifindex = parts.next()?.parse().ok()?;
    let Some(rest) = parts.next() else {
        return Some((netns, ifindex, PinnedHook::Xdp));
    };
    let (direction, kind) = match rest.split_once('-') {
        Some((direction, kind)) => (direction, Some(kind)),
        None => (rest, None),
    };
    let direction = match direction {
        "ingress" => Direction::Ingress,
        "egress" => Direction::Egress,
        _ => return None,
    };
    let place = match kind {
        None => PinnedHook::Tcx(direction),
        Some("clsact") => PinnedHook::Clsact {
            direction,
            made_qdisc: false,
        },
        Some("clsact-made") => PinnedHook::Clsact {
            direction,
            made_qdisc: true,
        },
        Some(_) => return None,
    };
    Some((netns, ifindex, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_read_back() {
        let clsact = |made_qdisc| PinnedHook::Clsact {
            direction: Direction::Ingress,
            made_qdisc,
        };
        for place in [
            PinnedHook::Xdp,
            PinnedHook::Tcx(Direction::Egress),
            clsact(false),
            clsact(true),
        ] {
            assert_eq!(
                parse_file_name(&file_name(4_026_531_840, 7, place)),
                Some((4_026_531_840, 7, place))
            );
        }
        for foreign in [
            "",
            "x",
            "1-",
            "-1",
            "1-2-3",
            "1-2-ingress-",
            "1-2-egress-clsact-",
            "a-2",
            "1-99999999999",
        ] {
            assert_eq!(parse_file_name(foreign), None, "{foreign}");
        }
    }
}
