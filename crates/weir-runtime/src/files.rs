//! Files that a plan asks for, what was read of them, and what runs already that the plan must agree with.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use weir_functions::joined::Joined;
use weir_functions::kind::Files;
use weir_graph::Folder;

use crate::error::RuntimeError;

/// Files by the names that they are asked for by; `None`: it could not be read.
pub(crate) type Read = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// Files in the order in which they were asked for; `None`: it could not be read.
pub type FilesRead = Vec<(PathBuf, Option<Vec<u8>>)>;

/// What an array of a running function holds: function, map.
pub(crate) type Held<'h> = &'h dyn Fn(&str, &str) -> Option<Vec<u8>>;

/// A file and what it includes, and which files these are: paths in them start at its folder. `what` it is, for messages.
///
/// # Errors
/// The file cannot be read; [`RuntimeError::Mistakes`] in what it includes.
pub(crate) fn joined(path: &Path, what: &'static str) -> Result<(Joined, FilesRead), RuntimeError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        RuntimeError::Usage(format!("cannot read the {what} `{shown}`: {error}"))
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut read = vec![(path.to_owned(), Some(text.clone().into_bytes()))];
    let mut load = |name: &str| {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path);
        let bytes = text.as_ref().ok().map(|text| text.clone().into_bytes());
        read.push((path.clone(), bytes));
        Ok((path.display().to_string(), text?))
    };
    match Joined::read(&shown, text, &mut load) {
        Ok(joined) => Ok((joined, read)),
        Err(found) => Err(RuntimeError::Mistakes {
            path: path.to_owned(),
            what,
            found,
        }),
    }
}

/// Files of a folder; remembers what it read. `None`: none may be read.
pub(crate) struct Watched<'h> {
    folder: Option<Folder>,
    held: Held<'h>,
    read: RefCell<Read>,
}

impl<'h> Watched<'h> {
    pub(crate) fn new(folder: Option<Folder>, held: Held<'h>) -> Watched<'h> {
        Watched {
            folder,
            held,
            read: RefCell::default(),
        }
    }

    /// What was read.
    pub(crate) fn into_read(self) -> Read {
        self.read.into_inner()
    }
}

impl Files for Watched<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let Some(folder) = &self.folder else {
            return Err(io::Error::other(
                "a document of the store reads no files of hosts; `weir net store push` puts the files that a document names into it",
            ));
        };
        let bytes = folder.read(path);
        let seen = bytes.as_ref().ok().cloned();
        self.read.borrow_mut().insert(path.to_owned(), seen);
        bytes
    }

    fn modified(&self, path: &Path) -> Option<u64> {
        self.folder.as_ref()?.modified(path)
    }

    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        (self.held)(instance, map)
    }
}
