//! The store of files (`file-store`, version 2): each by its SHA-256, in a folder by the first two digits, once however often it was seen; beside it, if that is wanted, what its
//! record says, each time.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::app::{Kept, hex};

/// A file that is to be written out.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Packet, phase and flow that it belongs to: files are written in this order.
    pub(crate) key: (u64, u8, u64),
    /// Its SHA-256.
    pub(crate) sum: Vec<u8>,
    /// Its bytes.
    pub(crate) bytes: Kept,
    /// Its record, if that is written beside it, and seconds since 1970 of it.
    pub(crate) record: Option<(u64, Vec<u8>)>,
}

/// Where files go.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// Records that were written beside files, which tells them apart.
    records: u64,
    /// Files and records that could not be written.
    pub(crate) errors: u64,
}

impl Store {
    /// Below a folder, which is made when there is something to write.
    pub(crate) fn new(folder: PathBuf) -> Store {
        Store {
            folder,
            records: 0,
            errors: 0,
        }
    }

    /// Writes a file out; what fails is counted.
    pub(crate) fn put(&mut self, stored: &Stored) {
        self.errors += u64::from(self.write(stored).is_err());
    }

    fn write(&mut self, stored: &Stored) -> io::Result<()> {
        let name = hex(&stored.sum);
        let folder = self.folder.join(name.get(..2).unwrap_or("00"));
        fs::create_dir_all(&folder)?;
        let path = folder.join(&name);
        if !path.exists() {
            whole(&path, |out| stored.bytes.write_to(out))?;
        }
        if let Some((seconds, record)) = &stored.record {
            self.records += 1;
            let name = format!("{name}.{seconds}.{}.json", self.records);
            whole(&folder.join(name), |out| out.write_all(record))?;
        }
        Ok(())
    }
}

/// Writes a file so that it is there as a whole or not at all.
fn whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .open(&part)?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out).and_then(|()| out.flush());
    match written {
        Ok(()) => fs::rename(&part, path),
        Err(e) => {
            let _ = fs::remove_file(&part);
            Err(e)
        }
    }
}
