//! Attachments pinned in any folder of a bpffs, and locks of such folders: what keeps the state of an edge across processes.
//!
//! The pins of `weir run` are in [`crate::pins`], by interface; here the caller names the folder and knows what its names mean.
//! Invariant: opening changes nothing; [`PinnedLink::remove`] detaches first and unlinks then, so a pin without attachment may
//! be left, an attachment without pin not.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{KernelError, LoadedProgram, Map, MapDefinition, pins, sys};

/// How long a folder that another process holds is waited for: longer than looking at an edge or changing a small one takes.
const PATIENCE: Duration = Duration::from_secs(2);

/// A folder of a bpffs that one process holds at a time; the lock ends with its process, however that ends.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    lock: File,
}

impl Folder {
    /// Creates the folder unless it is there and locks it; `None` if a living process has it.
    ///
    /// One that has it for a moment is waited for, up to two seconds.
    pub fn lock(path: &Path) -> Result<Option<Folder>, KernelError> {
        let until = Instant::now() + PATIENCE;
        pins::ensure_bpffs()?;
        let failed = |e| KernelError::sys(format!("lock {}", path.display()), e);
        let gone = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
        loop {
            fs::create_dir_all(path).map_err(failed)?;
            // Its last owner may remove it between any two steps.
            let folder = match File::open(path) {
                Ok(folder) => folder,
                Err(e) if gone(&e) => continue,
                Err(e) => return Err(failed(e)),
            };
            match folder.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(failed(e)),
            }
            let locked = folder.metadata().map_err(failed)?.ino();
            match fs::metadata(path) {
                Ok(now) if now.ino() == locked => {
                    return Ok(Some(Folder {
                        path: path.to_owned(),
                        lock: folder,
                    }));
                }
                Err(e) if !gone(&e) => return Err(failed(e)),
                _ => {}
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of what is pinned in it, sorted.
    pub fn names(&self) -> Result<Vec<String>, KernelError> {
        names(&self.path)
    }

    /// Removes a pin; it may be gone.
    pub fn unlink(&self, name: &str) -> Result<(), KernelError> {
        unlink(&self.path.join(name))
    }

    /// Removes the folder, which must be empty, and gives the lock up.
    pub fn remove(self) -> Result<(), KernelError> {
        fs::remove_dir(&self.path)
            .map_err(|e| KernelError::sys(format!("remove {}", self.path.display()), e))
    }
}

impl Drop for Folder {
    /// Closing alone would not do: a process that another thread is about to start has a copy of the descriptor until its exec.
    fn drop(&mut self) {
        // It fails for no lock that this descriptor has; closing follows.
        let _ = self.lock.unlock();
    }
}

/// Names of what is pinned in a folder, sorted; empty if there is none.
pub fn names(folder: &Path) -> Result<Vec<String>, KernelError> {
    let failed = |e| KernelError::sys(format!("list {}", folder.display()), e);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(
            entry
                .map_err(failed)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort_unstable();
    Ok(names)
}

/// Pins a text: it lies in a map of its own, with its length in front. `map`: the name that the kernel shows for it.
///
/// # Errors
/// What the kernel refused.
pub fn write_text(path: &Path, map: &str, text: &[u8]) -> Result<(), KernelError> {
    let mut value = (text.len() as u64).to_ne_bytes().to_vec();
    value.extend(text);
    let map = Map::create(
        map,
        MapDefinition {
            kind: libbpf_sys::BPF_MAP_TYPE_ARRAY,
            key: 4,
            value: value.len() as u32,
            entries: 1,
            flags: 0,
        },
    )?;
    map.update(&0u32.to_ne_bytes(), &value)?;
    map.pin(path)
}

/// The text that [`write_text`] left in a map, or why there is none.
///
/// # Errors
/// In words: the map cannot be read, or holds something else.
pub fn read_text(map: &Map) -> Result<Vec<u8>, String> {
    let value = map.lookup(&0u32.to_ne_bytes()).map_err(|e| e.to_string())?;
    let mut value = value.unwrap_or_default();
    let (length, rest) = value.split_first_chunk().ok_or("it is empty")?;
    let length = usize::try_from(u64::from_ne_bytes(*length)).ok();
    let length = length.filter(|length| *length <= rest.len());
    let length = length.ok_or("it is cut short")?;
    value.drain(..size_of::<u64>());
    value.truncate(length);
    Ok(value)
}

/// An attachment of any hook, pinned.
#[derive(Debug)]
pub struct PinnedLink {
    fd: OwnedFd,
    path: PathBuf,
}

impl PinnedLink {
    /// Pins the link behind a descriptor.
    pub(crate) fn new(fd: OwnedFd, path: &Path) -> Result<PinnedLink, KernelError> {
        sys::pin_object(fd.as_fd(), path)
            .map_err(|e| KernelError::sys(format!("pin a link at {}", path.display()), e))?;
        Ok(PinnedLink {
            fd,
            path: path.to_owned(),
        })
    }

    /// The link pinned at `path`; `None` if nothing is.
    pub fn open(path: &Path) -> Result<Option<PinnedLink>, KernelError> {
        match sys::open_pinned(path) {
            Ok(fd) => Ok(Some(PinnedLink {
                fd,
                path: path.to_owned(),
            })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(KernelError::sys(format!("open {}", path.display()), e)),
        }
    }

    /// Id of the program it runs.
    pub fn prog_id(&self) -> Result<u32, KernelError> {
        sys::link_program(self.fd.as_fd())
            .map_err(|e| KernelError::sys(format!("inspect {}", self.path.display()), e))
    }

    /// Of an XDP or tcx link, whether its device is there and still runs it; of other links always true.
    pub fn is_attached(&self) -> Result<bool, KernelError> {
        match sys::link_info(self.fd.as_fd()) {
            Ok((_, ifindex)) => Ok(ifindex != 0),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(true),
            Err(e) => Err(KernelError::sys(
                format!("inspect {}", self.path.display()),
                e,
            )),
        }
    }

    /// Replaces the program of an XDP or tcx link in one step.
    pub fn update(&self, program: &LoadedProgram) -> Result<(), KernelError> {
        sys::link_update(self.fd.as_fd(), program.as_fd()).map_err(|e| {
            KernelError::sys(format!("replace the program of {}", self.path.display()), e)
        })
    }

    /// Takes the program off and removes the pin.
    pub fn remove(self) -> Result<(), KernelError> {
        match sys::link_detach(self.fd.as_fd()) {
            Ok(()) => {}
            // The device is gone, and the attachment with it. Links of perf events and raw tracepoints know no detaching:
            // they end with their last reference, which is this one once the pin is gone.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ENOLINK | libc::EINVAL | libc::EOPNOTSUPP)
                ) => {}
            Err(e) => {
                return Err(KernelError::sys(
                    format!("detach the link pinned at {}", self.path.display()),
                    e,
                ));
            }
        }
        unlink(&self.path)
    }
}

fn unlink(path: &Path) -> Result<(), KernelError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(KernelError::sys(format!("remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}
