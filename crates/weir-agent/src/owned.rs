//! Which edges the agent applied, and from what: it takes down no other, and tells an edit of a running edge from one of its file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What an edge was applied from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    /// Of the file and all that it names.
    pub(crate) digest: String,
}

/// Edges by name, kept in a file.
#[derive(Debug)]
pub(crate) struct Owned {
    path: PathBuf,
    edges: BTreeMap<String, Source>,
}

impl Owned {
    /// What was kept; nothing, if it is not there.
    pub(crate) fn read(state: &Path) -> io::Result<Owned> {
        let path = state.join("agent.json");
        let edges = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Owned { path, edges })
    }

    pub(crate) fn get(&self, edge: &str) -> Option<&Source> {
        self.edges.get(edge)
    }

    /// Edges and their files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&String, &Path)> {
        self.edges
            .iter()
            .map(|(edge, source)| (edge, source.file.as_path()))
    }

    pub(crate) fn set(&mut self, edge: &str, source: Option<Source>) -> io::Result<()> {
        let before = match source.clone() {
            Some(source) => self.edges.insert(edge.to_owned(), source),
            None => self.edges.remove(edge),
        };
        if before == source {
            return Ok(());
        }
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(serde_json::to_string_pretty(&self.edges)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)
    }
}
