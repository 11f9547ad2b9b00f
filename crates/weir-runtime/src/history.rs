//! What an edge was changed to, by whom and when, and the way back to any of it.
//!
//! An entry is the records of both parts as they ran after a change. It is written after the change, in a folder of the edge below the state
//! folder: whole, or not at all. A host without that folder keeps no history. Design: docs/design/agent.md.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_engine::edge::{self, EdgeError};
use weir_engine::network;
use weir_graph::Outline;

use crate::error::RuntimeError;
use crate::former::Former;
use crate::{graph, networks};

/// Where packages keep state.
const STATE: &str = "/var/lib/weir";

/// Entries that are kept of an edge.
const KEPT: usize = 100;

/// Names that are tried for an entry while other processes write theirs.
const TRIES: u32 = 100;

/// Longest name of a file, in bytes.
const NAME_MAX: usize = 255;

/// The folder of weir's state: what systemd says in `STATE_DIRECTORY`, or `/var/lib/weir`.
#[must_use]
pub fn state_path() -> PathBuf {
    // systemd joins several by colons; units of weir have one.
    let given = std::env::var_os("STATE_DIRECTORY").filter(|value| !value.is_empty());
    given.map_or_else(|| PathBuf::from(STATE), PathBuf::from)
}

/// Who changes an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// Name of the user, or `uid N`.
    pub user: String,
    /// The command, as it was given.
    pub command: String,
}

impl Author {
    /// Of this process: the user that `sudo` was called by, or that the process has.
    #[must_use]
    pub fn of_process() -> Author {
        let words = std::env::args_os().skip(1);
        let words: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let sudo = std::env::var("SUDO_USER").ok();
        Author {
            user: sudo.unwrap_or_else(|| user_name(rustix::process::getuid().as_raw())),
            command: format!("weir {}", words.join(" ")),
        }
    }
}

/// The name of a user by number.
#[must_use]
pub fn user_name(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = uid.to_string();
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| format!("uid {uid}"))
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 1.
    pub number: u32,
    /// When, in seconds since 1970.
    pub time: u64,
    /// Who.
    #[serde(flatten)]
    pub author: Author,
    /// What differs from the entry before, a line each.
    pub changes: Vec<String>,
    /// The record of the graph that ran then; `None`: none did.
    graph: Option<String>,
    /// The record of the networks that ran then; `None`: none did.
    networks: Option<String>,
}

/// What runs of an edge, as records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Running {
    graph: Option<String>,
    networks: Option<String>,
}

impl Running {
    fn of(edge: &str) -> Result<Running, RuntimeError> {
        let graph = match edge::status(edge) {
            Ok(status) => Some(status.text),
            Err(EdgeError::NotRunning { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let networks = network::look(edge)?.map(|look| look.text);
        Ok(Running { graph, networks })
    }
}

/// The history of one edge.
#[derive(Debug)]
pub struct History {
    edge: String,
    folder: PathBuf,
}

impl History {
    /// Of an edge; `None`: this host keeps none.
    ///
    /// # Errors
    /// The name is not that of an edge.
    pub fn of(edge: &str) -> Result<Option<History>, RuntimeError> {
        let state = state_path();
        Ok(match state.is_dir() {
            true => Some(History::below(&state, edge)?),
            false => None,
        })
    }

    /// Below a state folder.
    ///
    /// # Errors
    /// As of [`History::of`].
    pub fn below(state: &Path, edge: &str) -> Result<History, RuntimeError> {
        let is_name = !edge.is_empty() && edge.len() <= NAME_MAX && !edge.starts_with('.');
        if !is_name || edge.contains(['/', '\0']) {
            return Err(RuntimeError::Usage(format!("`{edge}` names no edge")));
        }
        Ok(History {
            edge: edge.to_owned(),
            folder: state.join("history").join(edge),
        })
    }

    /// Records what runs now, if that is not what the newest entry says. Returns the entry's number; `None`: nothing had changed.
    ///
    /// # Errors
    /// What runs cannot be read, or the entry cannot be written. The edge is as it was changed to all the same.
    pub fn note(&self, author: &Author) -> Result<Option<u32>, RuntimeError> {
        let running = Running::of(&self.edge)?;
        self.write(&running, author, now())
    }

    fn write(
        &self,
        running: &Running,
        author: &Author,
        time: u64,
    ) -> Result<Option<u32>, RuntimeError> {
        let numbers = self.numbers()?;
        let before = match numbers.last() {
            // A damaged one must not keep later ones from being written.
            Some(newest) => self.entry(*newest).ok(),
            None => None,
        };
        let (graph, networks) = match &before {
            Some(entry) => (entry.graph.as_deref(), entry.networks.as_deref()),
            None => (None, None),
        };
        if (graph, networks) == (running.graph.as_deref(), running.networks.as_deref()) {
            return Ok(None);
        }
        let mut entry = Entry {
            number: numbers.last().map_or(1, |newest| newest + 1),
            time,
            author: author.clone(),
            changes: changes(&self.edge, (graph, networks), running),
            graph: running.graph.clone(),
            networks: running.networks.clone(),
        };
        fs::create_dir_all(&self.folder).map_err(|error| self.cannot("make", error))?;
        for _ in 0..TRIES {
            if self
                .link(&entry)
                .map_err(|error| self.cannot("write", error))?
            {
                self.forget(&numbers);
                return Ok(Some(entry.number));
            }
            entry.number += 1;
        }
        Err(self.cannot("write", io::ErrorKind::AlreadyExists.into()))
    }

    /// Writes an entry beside its place, and gives it its number if that is free. `false`: it is not.
    fn link(&self, entry: &Entry) -> io::Result<bool> {
        let text = serde_json::to_string_pretty(entry)?;
        let beside = self.folder.join(format!(".{}", std::process::id()));
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Unlike a rename, a link never replaces the entry of another process.
        let linked = fs::hard_link(&beside, self.place(entry.number));
        fs::remove_file(&beside)?;
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(error),
        }
        File::open(&self.folder)?.sync_all()?;
        Ok(true)
    }

    /// Removes the oldest. What cannot be removed is tried again with the next entry.
    fn forget(&self, numbers: &[u32]) {
        let too_many = (numbers.len() + 1).saturating_sub(KEPT);
        for number in &numbers[..too_many.min(numbers.len())] {
            let _ = fs::remove_file(self.place(*number));
        }
    }

    fn place(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number}.json"))
    }

    /// Numbers of the entries, the oldest first.
    fn numbers(&self) -> Result<Vec<u32>, RuntimeError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.cannot("read", error)),
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.cannot("read", error))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".json"));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The entries that can be read, the oldest first, and why others cannot.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn entries(&self) -> Result<(Vec<Entry>, Vec<RuntimeError>), RuntimeError> {
        let (mut entries, mut damaged) = (Vec::new(), Vec::new());
        for number in self.numbers()? {
            match self.entry(number) {
                Ok(entry) => entries.push(entry),
                Err(error) => damaged.push(error),
            }
        }
        Ok((entries, damaged))
    }

    /// One entry.
    ///
    /// # Errors
    /// There is none of that number, or it cannot be read.
    pub fn entry(&self, number: u32) -> Result<Entry, RuntimeError> {
        let place = self.place(number);
        let text = match fs::read_to_string(&place) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RuntimeError::Usage(format!(
                    "edge {} has no change {number} in its history: `weir history --edge {0}` lists them",
                    self.edge
                )));
            }
            Err(error) => return Err(self.cannot("read", error)),
        };
        serde_json::from_str(&text).map_err(|error| {
            RuntimeError::Failed(format!("cannot read {}: {error}", place.display()))
        })
    }

    /// Whether what runs now is what the newest entry says.
    ///
    /// # Errors
    /// What runs cannot be read.
    pub fn is_current(&self, entry: &Entry) -> Result<bool, RuntimeError> {
        let running = Running::of(&self.edge)?;
        Ok((&running.graph, &running.networks) == (&entry.graph, &entry.networks))
    }

    /// What going back to an entry would change of what runs, a line each.
    ///
    /// # Errors
    /// What runs cannot be read.
    pub fn changes_to(&self, entry: &Entry) -> Result<Vec<String>, RuntimeError> {
        let running = Running::of(&self.edge)?;
        let wanted = Running {
            graph: entry.graph.clone(),
            networks: entry.networks.clone(),
        };
        let before = (running.graph.as_deref(), running.networks.as_deref());
        Ok(changes(&self.edge, before, &wanted))
    }

    /// Makes the edge what an entry says, and records that.
    ///
    /// # Errors
    /// The entry cannot be planned by this version, a file that was too large to be kept has changed, or the kernel refused: then what ran runs on, or
    /// the text says otherwise.
    pub fn go_back(&self, entry: &Entry, author: &Author) -> Result<Option<u32>, RuntimeError> {
        let graph = match &entry.graph {
            Some(text) => {
                let record = graph::Record::read(&self.edge, text)?;
                Some((record.plan()?, record))
            }
            None => None,
        };
        let networks = match &entry.networks {
            Some(text) => {
                let record = networks::Record::read(text)?;
                record.check()?;
                Some(record)
            }
            None => None,
        };
        Former::to(&self.edge, graph, networks).restore()?;
        self.note(author)
    }

    fn cannot(&self, what: &str, error: io::Error) -> RuntimeError {
        RuntimeError::Failed(format!("cannot {what} {}: {error}", self.folder.display()))
    }
}

impl Entry {
    /// Whether anything ran.
    #[must_use]
    pub fn ran(&self) -> bool {
        self.graph.is_some() || self.networks.is_some()
    }
}

/// What a change was, a line each. A record that this version cannot read is said to be one.
fn changes(edge: &str, before: (Option<&str>, Option<&str>), after: &Running) -> Vec<String> {
    let mut lines = Vec::new();
    if before.0 != after.graph.as_deref() {
        match (
            outline(edge, before.0),
            outline(edge, after.graph.as_deref()),
        ) {
            (Some(old), Some(new)) => {
                let diff = weir_graph::diff(&old, &new);
                match diff.is_empty() {
                    // Its text differs, in comments or in files that mean the same.
                    true => lines.push("graph: the same plan from other files".to_owned()),
                    false => lines.extend(diff.to_string().lines().map(str::to_owned)),
                }
            }
            _ => lines.push("graph: applied by another version of weir".to_owned()),
        }
    }
    if before.1 != after.networks.as_deref() {
        match (document(before.1), document(after.networks.as_deref())) {
            (Some(old), Some(new)) => {
                let diff = weir_network::diff(&old, &new);
                match diff.is_empty() {
                    true => lines.push("networks: the same document from other files".to_owned()),
                    false => lines.extend(diff.to_string().lines().map(str::to_owned)),
                }
            }
            _ => lines.push("networks: applied by another version of weir".to_owned()),
        }
    }
    lines
}

/// The outline of a graph; of none, an empty one. `None`: it cannot be read.
fn outline(edge: &str, text: Option<&str>) -> Option<Outline> {
    match text {
        None => Some(Outline::default()),
        Some(text) => graph::Record::read(edge, text).ok().map(|r| r.outline),
    }
}

fn document(text: Option<&str>) -> Option<weir_network::model::Document> {
    match text {
        None => Some(weir_network::model::Document::default()),
        Some(text) => networks::Record::read(text).ok()?.parse().ok(),
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn author() -> Author {
        Author {
            user: "kim".to_owned(),
            command: "weir apply office.toml".to_owned(),
        }
    }

    fn running(text: &str) -> Running {
        Running {
            graph: Some(text.to_owned()),
            networks: None,
        }
    }

    #[test]
    fn the_newest_hundred_are_kept_and_the_same_is_written_once() {
        let folder = Folder::new("history");
        let history = History::below(&folder.0, "office").expect("a name");
        for number in 1..=130u32 {
            let text = number.to_string();
            let first = history.write(&running(&text), &author(), u64::from(number));
            assert_eq!(first.expect("written"), Some(number));
            let again = history.write(&running(&text), &author(), 0);
            assert_eq!(again.expect("written"), None, "the same");
        }
        let (entries, damaged) = history.entries().expect("readable");
        assert!(damaged.is_empty());
        let numbers: Vec<u32> = entries.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (31..=130).collect::<Vec<_>>());
        assert!(entries.iter().all(|e| e.time == u64::from(e.number)));
        let files = fs::read_dir(&history.folder).expect("a folder").count();
        assert_eq!(files, 100, "nothing lies beside the entries");
    }

    #[test]
    fn writers_at_the_same_time_get_numbers_of_their_own() {
        let folder = Folder::new("history-writers");
        let path = &folder.0;
        let written: Vec<u32> = (0..20)
            .map(|at| {
                let history = History::below(path, "office").expect("a name");
                // Another writer has taken the next number, and was killed before its entry was whole.
                let taken = history
                    .numbers()
                    .expect("readable")
                    .last()
                    .map_or(1, |n| n + 1);
                if at % 3 == 1 {
                    fs::write(history.place(taken), "{").expect("written");
                }
                let text = format!("text {at}");
                let number = history.write(&running(&text), &author(), 1);
                number.expect("written").expect("new")
            })
            .collect();
        let mut sorted = written.clone();
        sorted.dedup();
        assert_eq!(sorted, written, "no number twice, none replaced");
        let history = History::below(path, "office").expect("a name");
        let (entries, damaged) = history.entries().expect("readable");
        assert_eq!(
            (entries.len(), damaged.len()),
            (20, 7),
            "a damaged one hides no other"
        );
    }

    #[test]
    fn names_that_are_no_edges_are_refused() {
        let long = "a".repeat(NAME_MAX + 1);
        for name in ["", ".", "..", "a/b", "../etc", "a\0b", &long] {
            assert!(
                History::below(Path::new("/nowhere"), name).is_err(),
                "{name}"
            );
        }
    }
}
