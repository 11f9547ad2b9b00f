//! Bytes of a file that may be written out, until rules have decided: a short file in memory, a longer one in a file of the system that has no name.

use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are kept in memory.
const IN_MEMORY: usize = 256 * 1024;

/// The bytes of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    memory: Vec<u8>,
    /// Shared by copies, of which only one is written to and read.
    spilled: Option<Arc<Mutex<File>>>,
    /// The system did not take them.
    broken: bool,
}

/// A file that nobody else can open.
fn nameless() -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("weir-kept-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path)?;
    remove_file(&path)?;
    Ok(file)
}

impl Kept {
    /// More bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        if self.spilled.is_none() && self.memory.len() + bytes.len() <= IN_MEMORY {
            self.memory.extend_from_slice(bytes);
            return;
        }
        self.broken = self.spill(bytes).is_err();
        if self.broken {
            (self.memory, self.spilled) = (Vec::new(), None);
        }
    }

    fn spill(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.spilled.is_none() {
            let mut file = nameless()?;
            file.write_all(&self.memory)?;
            self.memory = Vec::new();
            self.spilled = Some(Arc::new(Mutex::new(file)));
        }
        match &self.spilled {
            Some(file) => file
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write_all(bytes),
            None => Ok(()),
        }
    }

    /// Bytes in memory.
    pub(crate) fn memory(&self) -> usize {
        self.memory.capacity()
    }

    /// Writes all of them.
    ///
    /// # Errors
    /// They are not all there, or cannot be written.
    pub(crate) fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("the file could not be kept"));
        }
        to.write_all(&self.memory)?;
        if let Some(file) = &self.spilled {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(0))?;
            io::copy(&mut *file, to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_leave_memory() {
        let mut kept = Kept::default();
        let mut all = Vec::new();
        for n in 0..300_u32 {
            let piece = vec![n as u8; 5000];
            kept.append(&piece);
            all.extend_from_slice(&piece);
            assert!(kept.memory() <= 2 * IN_MEMORY);
        }
        assert_eq!(kept.memory(), 0);
        for _ in 0..2 {
            let mut out = Vec::new();
            kept.write_to(&mut out).unwrap();
            assert!(out == all);
        }
    }
}
