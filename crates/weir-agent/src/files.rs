//! The folder of the edges, and whether files changed since they were read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::settings::{CLIENT, SETTINGS};

/// What tells one state of a file from another without reading it; `None`: it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Option<(u64, u64, Option<SystemTime>)>);

impl Stamp {
    pub(crate) fn of(path: &Path) -> Stamp {
        use std::os::unix::fs::MetadataExt as _;
        let found = fs::metadata(path).ok();
        Stamp(found.map(|file| (file.ino(), file.len(), file.modified().ok())))
    }
}

/// Files as they were.
pub(crate) type Stamps = Vec<(PathBuf, Stamp)>;

/// Whether one of them is another now.
pub(crate) fn changed(stamps: &Stamps) -> bool {
    stamps.iter().any(|(path, stamp)| Stamp::of(path) != *stamp)
}

/// The files of edges in a folder, in the order of their names.
pub(crate) fn in_folder(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_toml = path.extension().is_some_and(|end| end == "toml");
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_own = path
            .file_name()
            .is_some_and(|name| name == SETTINGS || name == CLIENT);
        if is_toml && !is_hidden && !is_own {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
