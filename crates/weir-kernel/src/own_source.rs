//! Lets the stack of this host take packets that come in by a device and have one of the host's own addresses as their source: programs in front of the
//! stack translate to such addresses, and IPv4 drops them unless `accept_local` is on and the reverse path filter is not strict.
//!
//! What was changed lies in a record in /run before it is changed, so whoever follows a killed process puts it back. Invariant: a value comes back
//! only if it is still the one that was set here, and only with the last of those who need it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::stack::setting;
use crate::{KernelError, iface, netns};

/// The folder of the records: one for each device and owner.
pub const RECORDS: &str = "/run/weir/held";

/// A setting of the device that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its name below net.ipv4.conf.DEVICE.
    pub name: String,
    /// What it was.
    pub before: u32,
    /// What it is now.
    pub now: u32,
}

/// The settings of one device, held for one owner. They come back when it is dropped, if it is owned.
#[derive(Debug)]
pub struct OwnSource {
    record: PathBuf,
    ifindex: u32,
    changed: Vec<Changed>,
    owned: bool,
}

/// Makes the stack take such packets, for an owner: a name that a record is found by. `None`: it takes them already, and not for this owner's sake.
///
/// # Errors
/// The settings or the record cannot be written; nothing is changed then.
pub fn allow(owner: &str, device: &str, ifindex: u32) -> Result<Option<OwnSource>, KernelError> {
    let record = record_of(owner, ifindex)?;
    let mut held = left(owner, ifindex)?.unwrap_or(OwnSource {
        record,
        ifindex,
        changed: Vec::new(),
        owned: true,
    });
    let others = others(&held.record, ifindex)?;
    let mut fresh = Vec::new();
    for (name, needs, now) in [
        // Either of the two settings.
        ("accept_local", (|v| v == 0) as fn(u32) -> bool, 1),
        // The larger of the two: 1 is strict, 2 takes every source that has a route.
        ("rp_filter", |v| v == 1, 2),
    ] {
        let is_this = |changed: &&Changed| changed.name == name;
        if held.changed.iter().any(|c| is_this(&c)) {
            continue;
        }
        if let Some(other) = others.iter().find(is_this) {
            held.changed.push(other.clone());
            continue;
        }
        let of = |which: &str| setting("ipv4", which, name).unwrap_or(0);
        if needs(of("all").max(of(device))) {
            fresh.push(Changed {
                name: name.to_owned(),
                before: of(device),
                now,
            });
        }
    }
    held.changed.extend(fresh.iter().cloned());
    if held.changed.is_empty() {
        return Ok(None);
    }
    held.write_record()?;
    for changed in &fresh {
        if let Err(e) = set(device, &changed.name, changed.now) {
            // Dropping puts back what was set, and removes the record.
            held.owned = true;
            return Err(KernelError::sys(
                format!(
                    "set net.ipv4.conf.{device}.{}={}",
                    changed.name, changed.now
                ),
                e,
            ));
        }
    }
    Ok(Some(held))
}

/// What an owner that is gone left changed of a device. Dropping it changes nothing until it is owned.
///
/// # Errors
/// The record cannot be read.
pub fn left(owner: &str, ifindex: u32) -> Result<Option<OwnSource>, KernelError> {
    let record = record_of(owner, ifindex)?;
    let changed = read(&record)?;
    let Some(device) = iface::name_of(ifindex) else {
        let _ = fs::remove_file(&record);
        return Ok(None);
    };
    // Of another device with this number, in a namespace with this number, or changed by someone else since.
    let is_current = |c: &Changed| setting("ipv4", &device, &c.name) == Some(c.now);
    let changed: Vec<Changed> = changed.into_iter().filter(is_current).collect();
    if changed.is_empty() {
        let _ = fs::remove_file(&record);
        return Ok(None);
    }
    Ok(Some(OwnSource {
        record,
        ifindex,
        changed,
        owned: false,
    }))
}

/// Puts back all that an owner changed of devices of this namespace; `ifindexes`: of these only. Returns the devices.
///
/// # Errors
/// The records cannot be listed.
pub fn release_all(owner: &str, ifindexes: Option<&[u32]>) -> Result<Vec<String>, KernelError> {
    let mut released = Vec::new();
    for (ifindex, of) in records()? {
        if of != owner || ifindexes.is_some_and(|only| !only.contains(&ifindex)) {
            continue;
        }
        if let Some(mut held) = left(owner, ifindex)? {
            held.owned = true;
            released.extend(iface::name_of(ifindex));
        }
    }
    Ok(released)
}

/// Removes the record of a device that is gone, with its settings, in a namespace by its inode.
///
/// # Errors
/// The record cannot be removed.
pub fn forget(owner: &str, netns: u64, ifindex: u32) -> Result<(), KernelError> {
    let record = record_in(netns, owner, ifindex);
    match fs::remove_file(&record) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            let what = format!("remove {}", record.display());
            Err(KernelError::sys(what, e))
        }
        _ => Ok(()),
    }
}

/// Devices of this namespace of which an owner holds settings.
///
/// # Errors
/// The records cannot be listed.
pub fn held_by(owner: &str) -> Result<Vec<u32>, KernelError> {
    let found = records()?.into_iter().filter(|(_, of)| of == owner);
    Ok(found.map(|(ifindex, _)| ifindex).collect())
}

impl OwnSource {
    /// The settings that were changed.
    pub fn changed(&self) -> &[Changed] {
        &self.changed
    }

    /// Index of the device.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// From now on they come back when this is dropped.
    pub fn own(&mut self) {
        self.owned = true;
    }

    /// They stay when this is dropped: the record keeps them.
    pub fn leave(mut self) {
        self.owned = false;
    }

    fn write_record(&self) -> Result<(), KernelError> {
        let failed = |e| KernelError::sys(format!("write {}", self.record.display()), e);
        let line = |c: &Changed| format!("{} {} {}\n", c.name, c.before, c.now);
        let text: String = self.changed.iter().map(line).collect();
        // Whole or not at all.
        let draft = Path::new(RECORDS).join(format!(".{}", std::process::id()));
        loop {
            fs::create_dir_all(RECORDS).map_err(failed)?;
            match fs::write(&draft, &text).and_then(|()| fs::rename(&draft, &self.record)) {
                // The last of others removed the folder in between.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                done => return done.map_err(failed),
            }
        }
    }
}

impl Drop for OwnSource {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let others = others(&self.record, self.ifindex).unwrap_or_default();
        if let Some(device) = iface::name_of(self.ifindex) {
            for changed in &self.changed {
                let is_held = others.iter().any(|other| other.name == changed.name);
                if !is_held && setting("ipv4", &device, &changed.name) == Some(changed.now) {
                    // The device may be gone meanwhile; then there is nothing to put back.
                    let _ = set(&device, &changed.name, changed.before);
                }
            }
        }
        let _ = fs::remove_file(&self.record);
        // With others in them, they stay.
        let folders = Path::new(RECORDS).ancestors().take(2);
        let _ = folders.map(fs::remove_dir).find(Result::is_err);
    }
}

fn record_of(owner: &str, ifindex: u32) -> Result<PathBuf, KernelError> {
    Ok(record_in(netns::current_inode()?, owner, ifindex))
}

fn record_in(netns: u64, owner: &str, ifindex: u32) -> PathBuf {
    Path::new(RECORDS).join(format!("{netns}-{ifindex}-{owner}"))
}

/// Devices and owners of the records of this namespace.
fn records() -> Result<Vec<(u32, String)>, KernelError> {
    let entries = match fs::read_dir(RECORDS) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(KernelError::sys(format!("list {RECORDS}"), e)),
    };
    let here = format!("{}-", netns::current_inode()?);
    let names = entries.flatten().map(|entry| entry.file_name());
    let found = names.filter_map(|name| {
        let (ifindex, owner) = name.to_str()?.strip_prefix(&here)?.split_once('-')?;
        Some((ifindex.parse().ok()?, owner.to_owned()))
    });
    Ok(found.collect())
}

/// What other owners changed of a device.
fn others(own: &Path, ifindex: u32) -> Result<Vec<Changed>, KernelError> {
    let mut all = Vec::new();
    for (of, owner) in records()? {
        let record = record_of(&owner, of)?;
        if of == ifindex && record != own {
            all.extend(read(&record)?);
        }
    }
    Ok(all)
}

fn read(record: &Path) -> Result<Vec<Changed>, KernelError> {
    let text = match fs::read_to_string(record) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(KernelError::sys(format!("read {}", record.display()), e)),
    };
    let known = ["accept_local", "rp_filter"];
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().filter(|name| known.contains(name))?;
        Some(Changed {
            name: name.to_owned(),
            before: words.next()?.parse().ok()?,
            now: words.next()?.parse().ok()?,
        })
    };
    Ok(text.lines().filter_map(line).collect())
}

fn set(device: &str, name: &str, value: u32) -> io::Result<()> {
    let path = format!("/proc/sys/net/ipv4/conf/{device}/{name}");
    fs::write(path, value.to_string())
}
