//! Where policy text comes from: files, strings, and the set files that a policy names.
//!
//! The parser itself opens nothing; it asks a [`SetLoader`]. Errors of [`read_source`] say what to do next.

use std::io;
use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostics;

/// Longest policy or set file that is read, in bytes.
pub const MAX_BYTES: u64 = 1 << 30;

/// Policy text and the name it has in messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Path, or something like `<stdin>`.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Source {
    /// A named text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source {
            name: name.into(),
            text: text.into(),
        }
    }
}

/// Reads the files that `set NAME = file "path"` and `include "path"` name.
pub trait SetLoader {
    /// The file's name for messages and its text. `path` is as written in the policy, and if an included file names it, from the folder of
    /// the policy on.
    ///
    /// # Errors
    /// Whatever kept the file from being read.
    fn load(&self, path: &str) -> io::Result<Source>;

    /// Names of security groups that rules may test like sets: those of the network that the policy is for.
    fn groups(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Reads set files from the file system, relative paths from a folder.
#[derive(Clone, Debug)]
pub struct FileSets {
    folder: PathBuf,
}

impl FileSets {
    /// Relative paths start at `folder`.
    pub fn relative_to(folder: impl Into<PathBuf>) -> FileSets {
        FileSets {
            folder: folder.into(),
        }
    }

    /// Relative paths start at the folder that holds the file `policy`.
    pub fn beside(policy: &Path) -> FileSets {
        FileSets {
            folder: policy.parent().unwrap_or(Path::new("")).to_path_buf(),
        }
    }
}

impl SetLoader for FileSets {
    fn load(&self, path: &str) -> io::Result<Source> {
        let full = self.folder.join(path);
        let text = read_text(&full)?;
        Ok(Source {
            name: full.display().to_string(),
            text,
        })
    }
}

/// Has no files: for text that did not come from one.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl SetLoader for NoFiles {
    fn load(&self, _path: &str) -> io::Result<Source> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "set files cannot be read here",
        ))
    }
}

/// Why a policy file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file does not exist.
    #[error("there is no policy file `{path}`; check the path (policy files end in .weir)")]
    Missing {
        /// As given.
        path: String,
    },
    /// The path names a folder.
    #[error("`{path}` is a folder; name a policy file in it")]
    Folder {
        /// As given.
        path: String,
    },
    /// The file exists and cannot be read.
    #[error(
        "cannot read `{path}`: {source}; check its permissions, and that it is a text file in UTF-8"
    )]
    Read {
        /// As given.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The text has errors.
    #[error("{0}")]
    Invalid(Diagnostics),
}

/// Reads a policy file without parsing it, for `weir fmt`.
///
/// # Errors
/// The file cannot be read.
pub fn read_source(path: impl AsRef<Path>) -> Result<Source, PolicyError> {
    let path = path.as_ref();
    let name = path.display().to_string();
    if path.is_dir() {
        return Err(PolicyError::Folder { path: name });
    }
    match read_text(path) {
        Ok(text) => Ok(Source { name, text }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(PolicyError::Missing { path: name })
        }
        Err(source) => Err(PolicyError::Read { path: name, source }),
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let meta = std::fs::metadata(path)?;
    if meta.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a folder",
        ));
    }
    if meta.len() > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has {} bytes, the limit is {MAX_BYTES}", meta.len()),
        ));
    }
    let bytes = std::fs::read(path)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("byte {at} is not UTF-8 text"),
        )
    })
}
