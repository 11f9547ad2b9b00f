//! What an edge knows of the store: kept on disk, merged with each reading. Pure but for reading and writing its file.
//!
//! The one rule: an entry goes only if it was seen in this *lineage* of the store and a complete later reading of the same lineage lacks it, and
//! after a grace period. A store that is another one, went back to an older revision, or does not have what this edge wrote last begins a new
//! lineage; what it lacks is held.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::document::join;
use crate::entry::{self, EdgeEntry, FileEntry, NetworkEntry, WorkloadEntry};
use crate::etcd::{KeyValue, Range};
use crate::http::StoreError;
use crate::layout;
use crate::reading::{Entries, Reading, edges_of};

/// An entry, and where it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    value: String,
    revision: i64,
    lineage: u64,
    /// Since when a complete reading of its lineage lacks it.
    #[serde(skip)]
    gone: Option<Instant>,
}

/// What an edge knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// The edge.
    pub edge: String,
    /// Of the last reading: the store's id, its cluster, when it was accepted, and its revision.
    store: String,
    cluster: u64,
    accepted: u64,
    /// Revision up to which this is read.
    pub revision: i64,
    lineage: u64,
    /// What the edge wrote last ([`crate::ResultEntry::serial`]).
    pub serial: u64,
    /// Version of the document that was made of this last.
    pub version: u64,
    entries: BTreeMap<String, Held>,
}

/// What a reading changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The store is not the one that was read before, or an older state of it.
    pub(crate) restored: bool,
    /// Nothing was ever pushed to it, or it was wiped.
    pub(crate) empty: bool,
}

impl Local {
    /// Of an edge that knows nothing.
    #[must_use]
    pub fn new(edge: &str) -> Local {
        Local {
            edge: edge.to_owned(),
            ..Local::default()
        }
    }

    /// From its file; of an edge that knows nothing, if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path, edge: &str) -> io::Result<Local> {
        let local: Local = match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Local::new(edge)),
            Err(error) => return Err(error),
        };
        match local.edge == edge {
            true => Ok(local),
            false => Err(io::Error::other(format!(
                "it is of edge {}, and this is edge {edge}: remove it, or correct `edge` of [store]",
                local.edge
            ))),
        }
    }

    /// Into its file, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_whole(path, serde_json::to_string(self)?.as_bytes())
    }

    /// Networks that concern the edge, held ones among them.
    #[must_use]
    pub fn networks(&self) -> BTreeSet<String> {
        let prefix = layout::index_of(&self.edge);
        let networks = self
            .entries
            .keys()
            .filter_map(|key| key.strip_prefix(&prefix));
        networks.map(str::to_owned).collect()
    }

    /// Entries that are kept although the store does not have them.
    #[must_use]
    pub fn held(&self) -> Vec<&str> {
        let held = self
            .entries
            .iter()
            .filter(|(_, one)| one.lineage != self.lineage);
        held.map(|(key, _)| key.as_str()).collect()
    }

    /// Takes in a complete reading.
    pub(crate) fn merge(&mut self, reading: &Reading, now: Instant) -> Merged {
        let is_first = self.store.is_empty();
        let Some(store) = &reading.store else {
            // Where it was wiped, what it lacks was not deleted by anyone.
            return Merged {
                restored: false,
                empty: true,
            };
        };
        let has_own = self.serial == 0
            || (reading.result.as_ref()).is_some_and(|(result, _)| result.serial >= self.serial);
        let is_same = self.store == store.id
            && self.cluster == reading.header.cluster
            && reading.header.revision >= self.revision
            && has_own;
        let is_accepted = store.accepted > self.accepted;
        let restored = !is_first && !is_same && !is_accepted;
        if restored {
            self.lineage += 1;
        } else if is_accepted {
            // What was held is to go if the store lacks it.
            for one in self.entries.values_mut() {
                one.lineage = self.lineage;
            }
        }
        self.store.clone_from(&store.id);
        self.cluster = reading.header.cluster;
        self.accepted = store.accepted;
        self.revision = reading.header.revision;
        if let Some((result, _)) = &reading.result {
            self.serial = self.serial.max(result.serial);
        }
        for (key, (value, revision)) in &reading.entries {
            self.put(key, value, *revision);
        }
        for (key, one) in &mut self.entries {
            let lacks = !reading.entries.contains_key(key) && one.lineage == self.lineage;
            if !lacks {
                one.gone = None;
            } else if one.gone.is_none() {
                one.gone = Some(now);
            }
        }
        Merged {
            restored,
            empty: false,
        }
    }

    /// Takes in an entry that was written.
    pub(crate) fn take(&mut self, one: &KeyValue) {
        self.put(&one.key, &one.value, one.revision);
        self.revision = self.revision.max(one.revision);
    }

    fn put(&mut self, key: &str, value: &[u8], revision: i64) {
        let value = String::from_utf8_lossy(value).into_owned();
        if let Some(before) = self.entries.get(key)
            && before.lineage != self.lineage
            && generation(&before.value) > generation(&value)
        {
            // The store went back behind it.
            return;
        }
        self.entries.insert(
            key.to_owned(),
            Held {
                value,
                revision,
                lineage: self.lineage,
                gone: None,
            },
        );
    }

    /// Removes what is gone for longer than the grace period. `true`: something was.
    pub(crate) fn expire(&mut self, now: Instant, grace: Duration) -> bool {
        let before = self.entries.len();
        let is_over = |one: &Held| {
            one.gone
                .is_some_and(|gone| now.duration_since(gone) >= grace)
        };
        self.entries.retain(|_, one| !is_over(one));
        // Of a network that no longer concerns this edge nothing stays, and no edge that only it named.
        let networks = self.networks();
        self.entries.retain(|key, _| {
            layout::network_of(key).is_none_or(|(network, _)| networks.contains(network))
        });
        self.entries.len() != before
    }

    /// Until when the next entry that is gone stays.
    pub(crate) fn next_expiry(&self, grace: Duration) -> Option<Instant> {
        let gone = self.entries.values().filter_map(|one| one.gone);
        gone.min().map(|gone| gone + grace)
    }

    /// What to watch.
    pub(crate) fn ranges(&self) -> BTreeSet<Range> {
        let mut ranges = BTreeSet::from([
            Range::Key(layout::STORE.to_owned()),
            Range::Prefix(layout::index_of(&self.edge)),
        ]);
        let networks = self.networks();
        ranges.extend(
            networks
                .iter()
                .map(|name| Range::Prefix(layout::network(name))),
        );
        let edges = edges_of(&self.values(), &self.edge);
        ranges.extend(edges.iter().map(|name| Range::Key(layout::edge(name))));
        ranges
    }

    /// Of what the store has and this edge knows, with its revisions ([`digest`]).
    #[must_use]
    pub fn digest(&self) -> String {
        let is_there = |one: &Held| one.gone.is_none() && one.lineage == self.lineage;
        let entries = self.entries.iter().filter(|(_, one)| is_there(one));
        let entries: Entries = entries
            .map(|(key, one)| (key.clone(), (one.value.clone().into_bytes(), one.revision)))
            .collect();
        digest(&entries, &self.edge)
    }

    fn values(&self) -> Entries {
        let entries = self.entries.iter();
        entries
            .map(|(key, one)| (key.clone(), (one.value.clone().into_bytes(), one.revision)))
            .collect()
    }

    /// The document of this edge, at its version; `None`: the store does not declare the edge.
    ///
    /// # Errors
    /// An entry cannot be read.
    pub fn document(&self) -> Result<Option<String>, StoreError> {
        if !self.entries.contains_key(&layout::edge(&self.edge)) {
            return Ok(None);
        }
        let values = self.values();
        let edges = edges_of(&values, &self.edge);
        document(&values, &self.networks(), &edges, self.version).map(Some)
    }

    /// The highest generation of all entries.
    pub(crate) fn generation(&self) -> u64 {
        let all = self.entries.values().map(|one| generation(&one.value));
        all.max().unwrap_or_default()
    }
}

/// A document of some networks and edges.
pub(crate) fn document(
    entries: &Entries,
    networks: &BTreeSet<String>,
    edges: &BTreeSet<String>,
    version: u64,
) -> Result<String, StoreError> {
    let of_networks: Entries = entries
        .iter()
        .filter(|(key, _)| {
            layout::network_of(key).is_some_and(|(network, _)| networks.contains(network))
        })
        .map(|(key, one)| (key.clone(), one.clone()))
        .collect();
    let mut sections = Vec::new();
    for name in edges {
        let key = layout::edge(name);
        // Where one is missing that a workload names, the document's check says so.
        if let Some((value, _)) = entries.get(&key) {
            sections.push(entry::read::<EdgeEntry>(&key, value)?.text);
        }
    }
    let mut parts: BTreeMap<&str, (Option<NetworkEntry>, Vec<String>)> = BTreeMap::new();
    for (key, (value, _)) in &of_networks {
        match layout::network_of(key) {
            Some((network, Some(_))) => {
                let workload: WorkloadEntry = entry::read(key, value)?;
                parts.entry(network).or_default().1.push(workload.text);
            }
            Some((network, None)) if layout::is_file(key) => {
                let file: FileEntry = entry::read(key, value)?;
                parts.entry(network).or_default().1.push(file.text);
            }
            Some((network, None)) if *key == layout::config(network) => {
                parts.entry(network).or_default().0 = Some(entry::read(key, value)?);
            }
            _ => {}
        }
    }
    // Files and workloads whose network is not there yet wait for it.
    let whole: Vec<(&NetworkEntry, &Vec<String>)> = (parts.values())
        .filter_map(|(network, parts)| Some((network.as_ref()?, parts)))
        .collect();
    let tenants: BTreeSet<&str> = whole.iter().map(|(one, _)| one.tenant.as_str()).collect();
    let networks = whole.iter().map(|(network, parts)| {
        let parts = parts.iter().map(String::as_str).collect();
        (network.text.as_str(), parts)
    });
    let sections = sections.iter().map(String::as_str);
    Ok(join(version, sections, &tenants, networks))
}

/// Of the entries that concern an edge, with their revisions: an edge that has the same has what the store has.
#[must_use]
pub fn digest(entries: &Entries, edge: &str) -> String {
    let prefix = layout::index_of(edge);
    let indexed: BTreeSet<&str> = entries
        .keys()
        .filter_map(|key| key.strip_prefix(&prefix))
        .collect();
    let of_networks: Entries = entries
        .iter()
        .filter(|(key, _)| layout::network_of(key).is_some_and(|(one, _)| indexed.contains(one)))
        .map(|(key, one)| (key.clone(), one.clone()))
        .collect();
    let edges = edges_of(&of_networks, edge);
    let mut sum = Fnv::new();
    for (key, (_, revision)) in entries {
        let concerns = of_networks.contains_key(key)
            || key.starts_with(&prefix)
            || (key.strip_prefix(layout::EDGES)).is_some_and(|name| edges.contains(name));
        if concerns {
            sum.add(key.as_bytes());
            sum.add(&[0]);
            sum.add(&revision.to_le_bytes());
        }
    }
    format!("{:016x}", sum.0)
}

/// FNV-1a of 64 bits.
pub(crate) struct Fnv(pub(crate) u64);

impl Fnv {
    pub(crate) fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Of any entry; 0: it has none.
fn generation(value: &str) -> u64 {
    #[derive(Deserialize)]
    struct Any {
        generation: u64,
    }
    serde_json::from_str::<Any>(value).map_or(0, |any| any.generation)
}

/// Writes a file beside its place, and moves it there.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests;
