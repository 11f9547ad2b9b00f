//! Sets of values that rules change while the sensor runs (`dataset:set`, `dataset:unset`), and that may outlive it in a file.
//!
//! A set is changed and asked where matches of all workers come together in the order of packets (`detect::Sequencer`), so that the same packets give the same answers for any number
//! of workers. It outlives the rules that were loaded with it: rules that are loaded later go on with what is in it.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::base64;

/// Bytes of a set unless its rule says otherwise.
pub(crate) const MEMCAP: u64 = 100 << 20;
/// What a member takes beside its bytes.
const MEMBER: u64 = 64;
/// The longest string that becomes a member, bytes.
const LONGEST: usize = 64 << 10;

/// Members of a set, with their reputation; 0 in a set that has none.
pub type Members = std::collections::HashMap<Vec<u8>, u16>;

/// A set by its name.
#[derive(Debug)]
pub struct LiveSet {
    name: String,
    /// `string`, `md5`, `sha256`, `ipv4`, `ipv6` or `ip`.
    kind: String,
    /// What was in it at first.
    base: Arc<Members>,
    /// A rule changes it.
    changes: AtomicBool,
    memcap: u64,
    /// Where it is written when the run is over; the first rule that says so decides.
    save: OnceLock<PathBuf>,
    content: Mutex<Content>,
}

/// What has changed of a set since it was made.
#[derive(Debug, Default)]
struct Content {
    added: HashSet<Vec<u8>>,
    removed: HashSet<Vec<u8>>,
    bytes: u64,
    full: u64,
}

impl PartialEq for LiveSet {
    /// Sets that nothing changes are what is in them, which is compared elsewhere.
    fn eq(&self, other: &LiveSet) -> bool {
        std::ptr::eq(self, other) || !self.is_changed() && !other.is_changed()
    }
}

impl Eq for LiveSet {}

impl LiveSet {
    pub(crate) fn new(
        name: &str,
        kind: &str,
        base: Arc<Members>,
        memcap: u64,
        save: Option<PathBuf>,
    ) -> LiveSet {
        let bytes = base.keys().map(|m| m.len() as u64 + MEMBER).sum();
        LiveSet {
            name: name.to_owned(),
            kind: kind.to_owned(),
            base,
            changes: AtomicBool::new(false),
            memcap,
            save: save.map_or_else(OnceLock::new, OnceLock::from),
            content: Mutex::new(Content {
                bytes,
                ..Content::default()
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // Nothing panics with half a change made.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `string`, `md5`, `sha256`, `ipv4`, `ipv6` or `ip`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What was in it at first.
    pub(crate) fn base(&self) -> &Arc<Members> {
        &self.base
    }

    /// Bytes that it may take.
    pub(crate) fn memcap(&self) -> u64 {
        self.memcap
    }

    /// Has it written to a file when the run is over, unless it is written to another already; returns the one that it is written to.
    pub(crate) fn save_to(&self, path: PathBuf) -> &Path {
        self.save.get_or_init(|| path)
    }

    /// Whether it is too large for its cap already.
    pub(crate) fn is_too_large(&self) -> bool {
        self.lock().bytes > self.memcap
    }

    /// A rule changes it from here on.
    pub(crate) fn change(&self) {
        self.changes.store(true, Ordering::Relaxed);
    }

    /// Whether a rule changes it: then it is asked in the order of packets only.
    pub fn is_changed(&self) -> bool {
        self.changes.load(Ordering::Relaxed)
    }

    /// Whether a value may be a member.
    pub(crate) fn takes(&self, value: &[u8]) -> bool {
        match self.kind.as_str() {
            "md5" => value.len() == 16,
            "sha256" => value.len() == 32,
            "ipv4" => value.len() == 4,
            "ipv6" => value.len() == 16,
            "ip" => matches!(value.len(), 4 | 16),
            _ => value.len() <= LONGEST,
        }
    }

    /// Whether a value is a member.
    pub(crate) fn has(&self, value: &[u8]) -> bool {
        let content = self.lock();
        content.added.contains(value)
            || self.base.contains_key(value) && !content.removed.contains(value)
    }

    /// Makes a value a member; returns whether it was none. Where there is no room for it, it stays none.
    pub(crate) fn add(&self, value: &[u8]) -> bool {
        let mut content = self.lock();
        if content.removed.remove(value) {
            content.bytes += value.len() as u64 + MEMBER;
            return true;
        }
        if self.base.contains_key(value) || content.added.contains(value) {
            return false;
        }
        let bytes = content.bytes + value.len() as u64 + MEMBER;
        if bytes > self.memcap {
            content.full += 1;
            return false;
        }
        content.bytes = bytes;
        content.added.insert(value.to_vec());
        true
    }

    /// Takes a member out; returns whether it was one.
    pub(crate) fn remove(&self, value: &[u8]) -> bool {
        let mut content = self.lock();
        let there = content.added.remove(value)
            || self.base.contains_key(value) && content.removed.insert(value.to_vec());
        if there {
            content.bytes = content.bytes.saturating_sub(value.len() as u64 + MEMBER);
        }
        there
    }

    /// Members that there was no room for.
    fn full(&self) -> u64 {
        self.lock().full
    }

    /// Writes all members, one a line, sorted, if the set is to be kept.
    fn write(&self) -> io::Result<()> {
        let Some(path) = self.save.get() else {
            return Ok(());
        };
        let mut lines: Vec<Vec<u8>> = {
            let content = self.lock();
            let base = self.base.keys().filter(|m| !content.removed.contains(*m));
            let all = base.chain(&content.added);
            all.map(|member| line(&self.kind, member)).collect()
        };
        lines.sort();
        // Named by the process: no rule can have named a set's file so.
        let mut part = path.clone();
        let suffix = format!(".part-{}", std::process::id());
        part.as_mut_os_string().push(suffix);
        let mut out = io::BufWriter::new(fs::File::create(&part)?);
        for line in lines {
            out.write_all(&line)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        fs::rename(&part, path)
    }
}

/// A member as files have it.
fn line(kind: &str, member: &[u8]) -> Vec<u8> {
    let address = || match member.len() {
        4 => <[u8; 4]>::try_from(member).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(member).ok().map(IpAddr::from),
    };
    match kind {
        "md5" | "sha256" => crate::app::hex(member).into_bytes(),
        "ipv4" | "ipv6" | "ip" => address()
            .map(|a| a.to_string().into_bytes())
            .unwrap_or_default(),
        _ => {
            let mut out = Vec::new();
            base64::encode(member, &mut out);
            out
        }
    }
}

/// Sets that outlive the rules that they were loaded with.
#[derive(Debug, Default)]
pub struct LiveSets(Mutex<BTreeMap<String, Arc<LiveSet>>>);

impl LiveSets {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LiveSet>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<LiveSet>> {
        self.lock().get(name).cloned()
    }

    /// Keeps a set.
    pub(crate) fn keep(&self, set: &Arc<LiveSet>) {
        self.lock()
            .entry(set.name.clone())
            .or_insert_with(|| Arc::clone(set));
    }

    /// Members that there was no room for, of all sets.
    pub(crate) fn full(&self) -> u64 {
        self.lock().values().map(|set| set.full()).sum()
    }

    /// Writes those that are to be kept; returns which could not be.
    pub(crate) fn write(&self) -> Vec<(PathBuf, io::Error)> {
        let sets: Vec<Arc<LiveSet>> = self.lock().values().cloned().collect();
        let failed = |set: Arc<LiveSet>| {
            let error = set.write().err()?;
            Some((set.save.get()?.clone(), error))
        };
        sets.into_iter().filter_map(failed).collect()
    }
}

/// Where rules may have sets written.
#[derive(Clone, Debug, Default)]
pub struct SetFiles {
    /// The folder that names count from; `None`: no set is written.
    pub folder: Option<PathBuf>,
    /// `datasets.rules.allow-write` is off.
    pub read_only: bool,
    /// `datasets.rules.allow-absolute-filenames`.
    pub anywhere: bool,
}

impl SetFiles {
    /// The path of a file that a rule has a set written to.
    pub(crate) fn path(&self, name: &Path) -> Result<PathBuf, String> {
        use std::path::Component;
        if self.read_only {
            return Err("rules may not have sets written (datasets.rules.allow-write)".to_owned());
        }
        let is_below = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
        if !self.anywhere && !name.components().all(is_below) {
            let what = "is neither below the data folder nor allowed by datasets.rules.allow-absolute-filenames";
            return Err(format!("{} {what}", name.display()));
        }
        match &self.folder {
            Some(folder) => Ok(folder.join(name)),
            None if name.is_absolute() => Ok(name.to_path_buf()),
            None => Err("there is no folder for data (--data-dir, default-data-dir)".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_there_and_what_came_and_went() {
        let base = Members::from([(b"a".to_vec(), 0), (b"b".to_vec(), 0)]);
        let set = LiveSet::new("s", "string", Arc::new(base), 3 * 65, None);
        assert!(set.has(b"a") && !set.has(b"c"));
        assert!(!set.add(b"a") && set.remove(b"a") && !set.remove(b"a"));
        assert!(!set.has(b"a") && set.add(b"a") && set.has(b"a"));
        assert!(set.add(b"c") && !set.add(b"c"));
        // A fourth one has no room, and is none.
        assert!(!set.add(b"d") && !set.has(b"d"));
        assert_eq!(set.full(), 1);
        assert!(set.remove(b"c") && set.add(b"d"));
    }

    #[test]
    fn files_of_sets_do_not_replace_each_other() {
        let folder = std::env::temp_dir().join(format!("weir-live-sets-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let sets = LiveSets::default();
        let files = ["a.part", "a.lst", "a"];
        for (name, file) in ["x", "y", "z"].into_iter().zip(files) {
            let save = Some(folder.join(file));
            let set = LiveSet::new(name, "string", Arc::default(), MEMCAP, save);
            set.add(name.as_bytes());
            sets.keep(&Arc::new(set));
        }
        assert!(sets.write().is_empty());
        let read = files.map(|file| fs::read_to_string(folder.join(file)).unwrap_or_default());
        let _ = fs::remove_dir_all(&folder);
        assert_eq!(read, ["eA==\n", "eQ==\n", "eg==\n"]);
    }

    #[test]
    fn members_are_written_as_files_have_them() {
        for (kind, member, text) in [
            ("string", &b"hi"[..], "aGk="),
            ("md5", &[0xab; 16], "abababababababababababababababab"),
            ("ipv4", &[192, 0, 2, 1], "192.0.2.1"),
            ("ip", &[0; 16], "::"),
        ] {
            assert_eq!(line(kind, member), text.as_bytes(), "{kind}");
        }
    }
}
