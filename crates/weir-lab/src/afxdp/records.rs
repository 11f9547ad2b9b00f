//! Runs on disk, one line each, as they are made: a sweep that was interrupted goes on from there.
//!
//! `runs.jsonl` begins with a line about the sweep and the machine; runs of another sweep, kernel or driver are not mixed with them. Invariant: a line is whole, or the last one and
//! cut off by a kill; that one is dropped, and its cell runs again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::results::Run;
use super::run::AfxdpError;

const RUNS: &str = "runs.jsonl";
/// What was measured beside them; see `beside`.
pub(super) const EXTRAS: &str = "extras.jsonl";
const DOCUMENT: &str = "sweep.toml";

/// What all runs of a folder have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) document: String,
    /// That of the order, which need not be the document's.
    pub(super) seed: u64,
    pub(super) kernel: String,
    pub(super) driver: String,
    pub(super) interfaces: [String; 2],
}

impl Header {
    /// In what another one differs.
    fn differs(&self, other: &Header) -> Option<&'static str> {
        [
            (self.version != other.version, "another format"),
            (self.document != other.document, "another document"),
            (self.seed != other.seed, "another seed"),
            (self.kernel != other.kernel, "another kernel"),
            (self.driver != other.driver, "another driver"),
            (self.interfaces != other.interfaces, "other interfaces"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}

/// A file that begins with the header and grows by lines of JSON.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// Opens it, with what is in it; `None` if nothing was, and it begins.
    pub(super) fn open<T: DeserializeOwned>(
        folder: &Path,
        name: &str,
        header: &Header,
    ) -> Result<(Lines, Option<Vec<T>>), AfxdpError> {
        fs::create_dir_all(folder)
            .map_err(AfxdpError::io(format!("create {}", folder.display())))?;
        let path = folder.join(name);
        let failed = |what: &str| AfxdpError::io(format!("{what} {}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed("open"))?;
        let text = std::io::read_to_string(&file).map_err(failed("read"))?;
        // Whole lines only.
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let mut lines = text[..whole].lines();
        let known = match lines.next() {
            None => {
                file.rewind().map_err(failed("rewind"))?;
                file.set_len(0).map_err(failed("cut"))?;
                let mut first = serde_json::to_string(header).unwrap_or_default();
                first.push('\n');
                file.write_all(first.as_bytes()).map_err(failed("write"))?;
                None
            }
            Some(first) => {
                let other = |why: &str| AfxdpError::OtherSweep {
                    folder: folder.display().to_string(),
                    why: why.to_owned(),
                };
                let known: Header =
                    serde_json::from_str(first).map_err(|_| other("another format"))?;
                if let Some(why) = header.differs(&known) {
                    return Err(other(why));
                }
                let known: Vec<T> = lines
                    .map(serde_json::from_str)
                    .collect::<Result<_, _>>()
                    .map_err(|_| other("an unknown line"))?;
                file.set_len(whole as u64).map_err(failed("cut"))?;
                file.seek(std::io::SeekFrom::End(0))
                    .map_err(failed("go on in"))?;
                Some(known)
            }
        };
        Ok((Lines { path, file }, known))
    }

    pub(super) fn add(&mut self, line: &impl Serialize) -> Result<(), AfxdpError> {
        let mut text = serde_json::to_string(line).unwrap_or_default();
        text.push('\n');
        self.file
            .write_all(text.as_bytes())
            .map_err(AfxdpError::io(format!("write {}", self.path.display())))
    }
}

/// A run and its cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) cell: String,
    /// All of it, setting up and taking down included.
    pub(super) seconds: f64,
    pub(super) run: Run,
}

/// Runs so far, in memory and, if wanted, on disk.
#[derive(Debug)]
pub(super) struct Records {
    lines: Vec<Line>,
    /// Cell and block of each.
    known: BTreeMap<(String, u32), f64>,
    lines_on_disk: Option<Lines>,
}

impl Records {
    /// Reads what is in the folder, or begins there.
    pub(super) fn open(folder: Option<&Path>, header: &Header) -> Result<Records, AfxdpError> {
        let mut records = Records {
            lines: Vec::new(),
            known: BTreeMap::new(),
            lines_on_disk: None,
        };
        let Some(folder) = folder else {
            return Ok(records);
        };
        let (lines, known) = Lines::open(folder, RUNS, header)?;
        records.lines_on_disk = Some(lines);
        match known {
            Some(known) => {
                for line in known {
                    records.take(line);
                }
            }
            None => {
                let document = folder.join(DOCUMENT);
                fs::write(&document, &header.document)
                    .map_err(AfxdpError::io(format!("write {}", document.display())))?;
                // Of other runs.
                let extras = folder.join(EXTRAS);
                match fs::remove_file(&extras) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                        return Err(AfxdpError::io(format!("remove {}", extras.display()))(e));
                    }
                    _ => {}
                }
            }
        }
        Ok(records)
    }

    fn take(&mut self, line: Line) {
        self.known
            .insert((line.cell.clone(), line.run.block), line.seconds);
        self.lines.push(line);
    }

    /// How long a cell's run in a block took, if it ran.
    pub(super) fn has(&self, cell: &str, block: u32) -> Option<f64> {
        self.known.get(&(cell.to_owned(), block)).copied()
    }

    /// Adds one, to the disk first.
    pub(super) fn add(&mut self, line: Line) -> Result<(), AfxdpError> {
        if let Some(lines) = &mut self.lines_on_disk {
            lines.add(&line)?;
        }
        self.take(line);
        Ok(())
    }

    /// How long all of them took.
    pub(super) fn seconds(&self) -> f64 {
        self.lines.iter().map(|line| line.seconds).sum()
    }

    /// Runs of each cell, by block.
    pub(super) fn into_runs(self) -> BTreeMap<String, Vec<Run>> {
        let mut runs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
        for line in self.lines {
            runs.entry(line.cell).or_default().push(line.run);
        }
        for list in runs.values_mut() {
            list.sort_by_key(|run| run.block);
        }
        runs
    }
}
