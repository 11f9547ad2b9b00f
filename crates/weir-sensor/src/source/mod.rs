//! Where frames come from: capture files, and interfaces. A source fills batches; it decodes nothing.

mod batch;
mod file;
pub mod filter;
mod framer;
#[cfg(feature = "libpcap")]
mod libpcap;
mod link;
#[cfg(feature = "live")]
mod live;

use std::path::{Path, PathBuf};

pub use batch::{Batch, CHUNK, Frame};
pub use file::{FileOptions, Files};
pub use framer::{Framer, Step};
#[cfg(feature = "libpcap")]
pub use libpcap::Libpcap;
#[cfg(feature = "live")]
pub use live::{Interfaces, LiveOptions};
use weir_packet::pcap::CaptureError;

/// What a call to [`Source::fill`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Frames.
    Frames,
    /// Nothing now; there may be more later.
    Idle,
    /// Nothing, ever.
    End,
}

/// What a source has seen, and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Frames delivered.
    pub frames: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Frames of which the capture kept only the start.
    pub cut: u64,
    /// Files begun.
    pub files: u64,
    /// Files that could not be read to their end.
    pub broken_files: u64,
    /// Files of directories that are no captures; they are left out.
    pub skipped_files: u64,
    /// Live: frames that the kernel lost because its ring was full; they were not delivered.
    pub kernel_drops: u64,
    /// Live: times that a link was away.
    pub gaps: u64,
}

/// What happened to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Its link is away; the sensor waits for it.
    Down {
        /// Which.
        interface: String,
        /// What is the matter.
        why: String,
    },
    /// It was away for a time, and is back; or the run ends before it is.
    Gap(Gap),
}

/// A time in which an interface was not listened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Which.
    pub interface: String,
    /// What was the matter.
    pub why: String,
    /// From when, nanoseconds since 1970.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// Whether it is back.
    pub back: bool,
}

/// Why there are no frames.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file or directory cannot be read.
    #[error("{}: {error}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A directory is empty.
    #[error("{}: no capture in this directory; --recursive looks into the directories below it", path.display())]
    NoFiles {
        /// Which.
        path: PathBuf,
    },
    /// An interface cannot be listened to.
    #[error("{interface}: {message}")]
    Interface {
        /// Which.
        interface: String,
        /// Why.
        message: String,
    },
}

/// Where frames come from.
pub trait Source: Send {
    /// Puts the next frames into an empty batch.
    ///
    /// # Errors
    /// Nothing more can be read, of any file or interface. What is wrong with one file of several is a problem, not an error.
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError>;

    /// What was seen and lost so far.
    fn counts(&mut self) -> SourceCounts;

    /// Files that could not be read, or not to their end; each is told once.
    fn problems(&mut self) -> Vec<(PathBuf, CaptureError)> {
        Vec::new()
    }

    /// Files of directories that are no captures; each is told once.
    fn skipped(&mut self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Bytes done and to do, where that is known.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }

    /// Whether the end is not known: frames come as time goes by.
    fn is_live(&self) -> bool;

    /// What happened to interfaces since this was asked last. `ends`: it is not asked again.
    fn notices(&mut self, _ends: bool) -> Vec<Notice> {
        Vec::new()
    }

    /// Whether it says of each frame what is known of its checksums.
    fn knows_sums(&self) -> bool {
        false
    }

    /// From now on no batch has frames of several captures, and each says of which it has.
    fn keep_apart(&mut self) {}

    /// The file that is being read.
    fn name(&self) -> Option<&Path> {
        None
    }
}
