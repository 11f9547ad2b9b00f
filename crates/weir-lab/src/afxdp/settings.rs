//! Settings of interfaces that a sweep changes, and how they become again what they were.
//!
//! Invariants: before a setting is changed, what it was stands in a journal under [`FOLDER`]; a value that changed settings puts them back when it ends, in opposite
//! order. A process that is killed leaves its journal, whose lock is free then: the next sweep, or `weir lab afxdp --restore`, puts back what it says and removes
//! namespaces of a bed of its own. Interface settings are gone with a reboot, and so is the folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use serde::{Deserialize, Serialize};
use weir_kernel::iface::{self, Coalescing, Feature, Queues};
use weir_kernel::netns::{current_inode, run_command};
use weir_kernel::{KernelError, NetNs};

/// Where journals are.
pub const FOLDER: &str = "/run/weir/lab-afxdp";
/// How long CPUs may take to wake, as long as it is open (PM QoS).
pub(super) const CPU_LATENCY: &str = "/dev/cpu_dma_latency";
/// How names of a bed's namespaces begin.
pub(super) const PREFIX: &str = "weir-afxdp";

/// Where an interface is.
#[derive(Debug)]
pub enum NetnsHandle {
    /// The namespace of the process.
    Here,
    /// One of the bed's.
    Ns(Arc<NetNs>),
}

impl NetnsHandle {
    /// Runs `work` there.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, KernelError> {
        match self {
            NetnsHandle::Here => Ok(work()),
            NetnsHandle::Ns(ns) => ns.run(work),
        }
    }
}

/// The /sys of a thread's network namespace, whatever the process has mounted: a mount that has no place in the tree and ends with its descriptor.
#[derive(Debug)]
pub(super) struct Sysfs(OwnedFd);

impl Sysfs {
    /// Of the namespace that the calling thread is in.
    pub(super) fn open() -> io::Result<Sysfs> {
        let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let mount = fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::empty(),
        )?;
        Ok(Sysfs(mount))
    }

    fn file(&self, name: &str, attribute: &str, flags: OFlags) -> io::Result<File> {
        let path = format!("class/net/{name}/{attribute}");
        Ok(File::from(openat(
            &self.0,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )?))
    }

    /// An attribute of an interface, without its line end.
    pub(super) fn read(&self, name: &str, attribute: &str) -> io::Result<String> {
        let text = io::read_to_string(self.file(name, attribute, OFlags::RDONLY)?)?;
        Ok(text.trim().to_owned())
    }

    fn write(&self, name: &str, attribute: &str, value: &str) -> io::Result<()> {
        self.file(name, attribute, OFlags::WRONLY)?
            .write_all(value.as_bytes())
    }
}

/// A setting of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Setting {
    /// Queues: receive, transmit, combined.
    Queues,
    /// Receive and transmit microseconds, adaptive or not.
    Coalescing,
    /// `generic-receive-offload`: on a veth it makes a NAPI instance.
    Gro,
    /// `threaded`.
    Threaded,
    /// `napi_defer_hard_irqs`.
    Irqs,
    /// `gro_flush_timeout`, ns.
    Timeout,
}

impl Setting {
    /// As the kernel calls it.
    fn name(self) -> &'static str {
        match self {
            Setting::Queues => "number of queues",
            Setting::Coalescing => "interrupt coalescing",
            Setting::Gro => "generic-receive-offload",
            Setting::Threaded => "threaded",
            Setting::Irqs => "napi_defer_hard_irqs",
            Setting::Timeout => "gro_flush_timeout",
        }
    }

    fn read(self, sysfs: &Sysfs, name: &str) -> Result<String, KernelError> {
        Ok(match self {
            Setting::Queues => {
                let q = iface::queues(name)?;
                format!("{}/{}/{}", q.rx, q.tx, q.combined)
            }
            Setting::Coalescing => {
                let c = iface::coalescing(name)?;
                format!(
                    "{}/{}/{}/{}",
                    c.rx_micros, c.tx_micros, c.rx_adaptive, c.tx_adaptive
                )
            }
            Setting::Gro => iface::feature(name, Feature::Gro)?.to_string(),
            other => sysfs
                .read(name, other.name())
                .map_err(|source| sys(format!("read {} of {name}", other.name()), source))?,
        })
    }

    fn write(self, sysfs: &Sysfs, name: &str, value: &str) -> Result<(), KernelError> {
        let bad = || {
            sys(
                format!("read `{value}` as a {}", self.name()),
                io::Error::from(io::ErrorKind::InvalidData),
            )
        };
        let parts: Vec<&str> = value.split('/').collect();
        let number = |at: usize| -> Result<u32, KernelError> {
            parts.get(at).and_then(|p| p.parse().ok()).ok_or_else(bad)
        };
        let flag = |at: usize| -> Result<bool, KernelError> {
            parts.get(at).and_then(|p| p.parse().ok()).ok_or_else(bad)
        };
        match self {
            Setting::Queues => iface::set_queues(
                name,
                Queues {
                    rx: number(0)?,
                    tx: number(1)?,
                    combined: number(2)?,
                    most: 0,
                },
            ),
            Setting::Coalescing => iface::set_coalescing(
                name,
                Coalescing {
                    rx_micros: number(0)?,
                    tx_micros: number(1)?,
                    rx_adaptive: flag(2)?,
                    tx_adaptive: flag(3)?,
                },
            ),
            Setting::Gro => iface::set_feature(name, Feature::Gro, flag(0)?),
            other => sysfs.write(name, other.name(), value).map_err(|source| {
                sys(format!("set {} of {name} to {value}", other.name()), source)
            }),
        }
    }
}

fn sys(what: String, source: io::Error) -> KernelError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => KernelError::NoPermission { what },
        _ => KernelError::Sys { what, source },
    }
}

/// One line of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// Namespaces whose names begin so are the process's own.
    Bed(String),
    /// A setting as it was.
    Was {
        /// Of the network namespace.
        namespace: u64,
        interface: String,
        ifindex: u32,
        setting: Setting,
        value: String,
    },
    /// It is again what it was.
    Back {
        namespace: u64,
        ifindex: u32,
        setting: Setting,
    },
}

/// What a process has changed, on disk.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    /// Something could not be put back.
    kept: AtomicBool,
}

impl Journal {
    /// Begins one, locked as long as the process lives.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn begin() -> Result<Arc<Journal>, KernelError> {
        let failed = |e| sys(format!("write a journal of settings in {FOLDER}"), e);
        fs::create_dir_all(FOLDER).map_err(failed)?;
        for n in 0..1000 {
            let path = Path::new(FOLDER).join(format!("{}-{n}.journal", std::process::id()));
            match OpenOptions::new().create_new(true).append(true).open(&path) {
                Ok(file) => {
                    flock(&file, FlockOperation::NonBlockingLockExclusive)
                        .map_err(|e| failed(e.into()))?;
                    return Ok(Arc::new(Journal {
                        path,
                        file: Mutex::new(file),
                        kept: AtomicBool::new(false),
                    }));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Err(failed(io::Error::from(io::ErrorKind::AlreadyExists)))
    }

    fn note(&self, entry: &Entry) -> Result<(), KernelError> {
        let mut line = serde_json::to_string(entry).unwrap_or_default();
        line.push('\n');
        let mut file = self
            .file
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // One call: a process that is killed leaves whole lines.
        file.write_all(line.as_bytes())
            .map_err(|e| sys(format!("write {}", self.path.display()), e))
    }

    /// Says that namespaces are made whose names begin so.
    pub(super) fn note_bed(&self, prefix: &str) -> Result<(), KernelError> {
        self.note(&Entry::Bed(prefix.to_owned()))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Its users have ended before it. What they could not undo the next sweep tries again.
        if !self.kept.load(Ordering::Relaxed) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Settings of one interface. Ends by putting them back.
#[derive(Debug)]
pub(super) struct InterfaceSettings {
    journal: Arc<Journal>,
    sysfs: Sysfs,
    namespace: u64,
    interface: String,
    ifindex: u32,
    /// What was changed, oldest first, and what it was.
    changed: Vec<(Setting, String)>,
}

impl InterfaceSettings {
    /// Of an interface of the calling thread's namespace. Nothing is changed yet.
    pub(super) fn of(
        journal: &Arc<Journal>,
        interface: &str,
    ) -> Result<InterfaceSettings, KernelError> {
        Ok(InterfaceSettings {
            journal: Arc::clone(journal),
            sysfs: Sysfs::open()
                .map_err(|e| sys(format!("reach the settings of {interface}"), e))?,
            namespace: current_inode()?,
            ifindex: iface::index_of(interface)?,
            interface: interface.to_owned(),
            changed: Vec::new(),
        })
    }

    /// Gives a setting a value; a sentence if the kernel holds another one afterwards.
    fn set(&mut self, setting: Setting, value: &str) -> Result<Option<String>, KernelError> {
        let now = setting.read(&self.sysfs, &self.interface)?;
        if now == value {
            return Ok(None);
        }
        if !self.changed.iter().any(|(known, _)| *known == setting) {
            self.journal.note(&Entry::Was {
                namespace: self.namespace,
                interface: self.interface.clone(),
                ifindex: self.ifindex,
                setting,
                value: now.clone(),
            })?;
            self.changed.push((setting, now));
        }
        setting.write(&self.sysfs, &self.interface, value)?;
        let held = setting.read(&self.sysfs, &self.interface)?;
        Ok((held != value).then(|| {
            format!(
                "{} of {} was set to {value} and is {held}",
                setting.name(),
                self.interface
            )
        }))
    }

    /// Gives settings their values and puts back all others that were changed. Returns a sentence for each that does not hold. Must be called in the interface's namespace.
    pub(super) fn turn_into(
        &mut self,
        wanted: &[(Setting, String)],
    ) -> Result<Vec<String>, KernelError> {
        self.put_back(|setting| !wanted.iter().any(|(w, _)| *w == setting))?;
        let mut unmet = Vec::new();
        for (setting, value) in wanted {
            unmet.extend(self.set(*setting, value)?);
        }
        Ok(unmet)
    }

    /// Puts back what was changed, newest first. All is tried; the first failure is told, and stays in the journal.
    pub(super) fn restore(&mut self) -> Result<(), KernelError> {
        let result = self.put_back(|_| true);
        if result.is_err() {
            self.journal.kept.store(true, Ordering::Relaxed);
        }
        result
    }

    fn put_back(&mut self, which: impl Fn(Setting) -> bool) -> Result<(), KernelError> {
        let mut first = Ok(());
        for at in (0..self.changed.len()).rev() {
            let (setting, value) = self.changed[at].clone();
            if !which(setting) {
                continue;
            }
            let back = setting.write(&self.sysfs, &self.interface, &value);
            // An interface that is gone has no settings.
            if back.is_ok() || iface::find_index(&self.interface) != Some(self.ifindex) {
                self.changed.remove(at);
                self.journal.note(&Entry::Back {
                    namespace: self.namespace,
                    ifindex: self.ifindex,
                    setting,
                })?;
            } else if first.is_ok() {
                first = back;
            }
        }
        first
    }
}

/// A limit of how long CPUs may take to wake, held by an open file.
#[derive(Debug)]
pub(super) struct WakeLimit(File);

impl WakeLimit {
    pub(super) fn set(micros: u32) -> Result<WakeLimit, KernelError> {
        let failed = |e| {
            sys(
                format!("limit how long CPUs may take to wake ({CPU_LATENCY})"),
                e,
            )
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(CPU_LATENCY)
            .map_err(failed)?;
        file.write_all(&micros.cast_signed().to_ne_bytes())
            .map_err(failed)?;
        Ok(WakeLimit(file))
    }

    /// The limit that holds: the strictest of all that are set.
    pub(super) fn held(&self) -> Option<i32> {
        let mut bytes = [0; 4];
        use std::os::unix::fs::FileExt as _;
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        Some(i32::from_ne_bytes(bytes))
    }
}

/// Puts back what killed processes left: journals whose lock is free. Returns a line for each thing done, or that could not be.
///
/// # Errors
/// The folder cannot be read.
pub fn restore_orphans() -> Result<Vec<String>, KernelError> {
    let mut told = Vec::new();
    let folder = match fs::read_dir(FOLDER) {
        Ok(folder) => folder,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(told),
        Err(e) => return Err(sys(format!("read {FOLDER}"), e)),
    };
    for entry in folder.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "journal") {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).append(true).open(&path) else {
            continue;
        };
        if !lock(&path, &file) {
            continue;
        }
        // It may have ended in order between the two.
        let same =
            fs::metadata(&path).ok().map(|m| m.ino()) == file.metadata().ok().map(|m| m.ino());
        if same && restore(&path, &mut told)? {
            fs::remove_file(&path).map_err(|e| sys(format!("remove {}", path.display()), e))?;
        }
    }
    Ok(told)
}

/// Takes the lock of a journal whose process has ended.
fn lock(path: &Path, file: &File) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let process = name.split('-').next().unwrap_or_default();
    for _ in 0..100 {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        if Path::new("/proc").join(process).exists() {
            return false;
        }
        // Another process is about to put back what it says.
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// One journal. Whether all of it is done.
fn restore(path: &Path, told: &mut Vec<String>) -> Result<bool, KernelError> {
    let text = fs::read_to_string(path).map_err(|e| sys(format!("read {}", path.display()), e))?;
    let here = current_inode()?;
    let mut done = true;
    let mut beds = Vec::new();
    let mut was = Vec::new();
    for entry in text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
    {
        match entry {
            Entry::Bed(prefix) => beds.push(prefix),
            Entry::Was {
                namespace,
                interface,
                ifindex,
                setting,
                value,
            } => {
                was.push((namespace, interface, ifindex, setting, value));
            }
            Entry::Back {
                namespace,
                ifindex,
                setting,
            } => {
                was.retain(|(n, _, i, s, _)| (*n, *i, *s) != (namespace, ifindex, setting));
            }
        }
    }
    for prefix in &beds {
        for name in namespaces(prefix) {
            run_command(std::process::Command::new("ip").args(["netns", "delete", &name]))?;
            told.push(format!("removed namespace {name} of a killed run"));
        }
    }
    // Settings of the bed's interfaces went with it.
    for (namespace, interface, ifindex, setting, value) in was.into_iter().rev() {
        if namespace != here {
            if exists(namespace) {
                done = false;
                told.push(format!(
                    "{} of {interface} was {value}, in another network namespace (inode {namespace}): run `weir lab afxdp --restore` there",
                    setting.name()
                ));
            }
            continue;
        }
        if iface::find_index(&interface) != Some(ifindex) {
            continue;
        }
        let sysfs =
            Sysfs::open().map_err(|e| sys(format!("reach the settings of {interface}"), e))?;
        // An interface may still be busy with the end of the killed process's sockets.
        let mut tries = 0;
        loop {
            match setting.write(&sysfs, &interface, &value) {
                Ok(()) => {
                    told.push(format!(
                        "{} of {interface} is {value} again",
                        setting.name()
                    ));
                    break;
                }
                Err(_) if tries < 10 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(e) => return Err(e),
            }
        }
    }
    Ok(done)
}

/// Whether anything is in a network namespace, or it has a name.
fn exists(inode: u64) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let used = processes.map(|entry| entry.path().join("ns/net"));
    let named = fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    used.chain(named)
        .any(|path| fs::metadata(path).is_ok_and(|found| found.ino() == inode))
}

fn namespaces(prefix: &str) -> Vec<String> {
    let Ok(folder) = fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    folder
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect()
}
