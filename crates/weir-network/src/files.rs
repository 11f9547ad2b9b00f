//! Files that a document carries (`[[network.file]]`): functions of a network find them by the paths that name them, before files beside the document.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use weir_functions::kind::Files;

use crate::model::{File, Network};

/// Files of a network: those that it carries, else those beside the document.
pub struct Carried<'f> {
    network: &'f Network,
    beside: &'f dyn Files,
    /// Names of carried files that were asked for.
    asked: RefCell<BTreeSet<&'f str>>,
}

impl<'f> Carried<'f> {
    /// `beside`: files that it does not carry.
    pub fn new(network: &'f Network, beside: &'f dyn Files) -> Carried<'f> {
        Carried {
            network,
            beside,
            asked: RefCell::default(),
        }
    }

    fn find(&self, path: &Path) -> Option<&'f File> {
        let path = plain(path);
        let mut files = self.network.files.iter();
        files.find(|file| plain(Path::new(file.name.as_str())) == path)
    }

    /// Files that nothing has asked for.
    pub(crate) fn unused(&self) -> Vec<&'f File> {
        let asked = self.asked.borrow();
        let files = self.network.files.iter();
        files
            .filter(|file| !asked.contains(file.name.as_str()))
            .collect()
    }
}

impl Files for Carried<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let Some(file) = self.find(path) else {
            return self.beside.read(path);
        };
        self.asked.borrow_mut().insert(file.name.as_str());
        Ok(file.text.clone().into_bytes())
    }

    fn modified(&self, path: &Path) -> Option<u64> {
        match self.find(path) {
            // A text has no time: what counts from it is refused.
            Some(_) => None,
            None => self.beside.modified(path),
        }
    }

    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        self.beside.kept(instance, map)
    }

    fn groups(&self) -> Vec<String> {
        let groups = self.network.groups.iter();
        groups.map(|group| group.name.value.clone()).collect()
    }
}

/// Without `.` and, where a folder stands in front of it, `..`. Whether a folder is a link is not looked at: carried files have none.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        let last = out.components().next_back();
        match (component, last) {
            (Component::CurDir, _) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => drop(out.pop()),
            _ => out.push(component),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_plain() {
        for (path, wanted) in [
            ("a/../b.weir", "b.weir"),
            ("./a//b", "a/b"),
            ("../a", "../a"),
            ("/etc/./a", "/etc/a"),
        ] {
            assert_eq!(plain(Path::new(path)), Path::new(wanted));
        }
    }
}
