//! Capture files as a source: one, several, whole directories, and files that are still being written.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use weir_packet::pcap::CaptureError;

use super::batch::{Batch, CHUNK, Frame};
use super::framer::{Framer, Step};
use super::{Filled, Source, SourceCounts, SourceError};
use crate::decode::Sums;

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    /// Go into directories of directories.
    pub recursive: bool,
    /// Wait for more at the end: of the last file, and for new files in the directories.
    pub follow: bool,
}

/// Files, one after the other.
#[derive(Debug)]
pub struct Files {
    options: FileOptions,
    directories: Vec<PathBuf>,
    known: HashSet<PathBuf>,
    /// Files to read, and whether they were found in a directory.
    waiting: VecDeque<(PathBuf, bool)>,
    open: Option<Open>,
    counts: SourceCounts,
    problems: Vec<(PathBuf, CaptureError)>,
    /// Files of directories that are no captures.
    skipped: Vec<PathBuf>,
    /// Bytes of files done, and of all that are known.
    done: u64,
    total: u64,
    /// A batch has frames of one capture only, and says of which.
    apart: bool,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    /// Found in a directory, not named.
    listed: bool,
    file: File,
    framer: Framer,
    /// The start of a record whose end is not read yet.
    carry: Vec<u8>,
    /// Bytes to leave out before the next record: of a block that is not decoded.
    skip: u64,
    read: u64,
}

impl Files {
    /// Files and directories, in the order given; directories by name.
    ///
    /// # Errors
    /// One of them is not there or cannot be read, or a directory holds no file.
    pub fn open(paths: &[PathBuf], options: FileOptions) -> Result<Files, SourceError> {
        let mut files = Files {
            options,
            directories: Vec::new(),
            known: HashSet::new(),
            waiting: VecDeque::new(),
            open: None,
            counts: SourceCounts::default(),
            problems: Vec::new(),
            skipped: Vec::new(),
            done: 0,
            total: 0,
            apart: false,
        };
        for path in paths {
            let failed = |error| SourceError::Open {
                path: path.clone(),
                error,
            };
            let about = std::fs::metadata(path).map_err(failed)?;
            if about.is_dir() {
                files.directories.push(path.clone());
                let found = listed(path, files.options.recursive)?;
                if found.is_empty() && !files.options.follow {
                    return Err(SourceError::NoFiles { path: path.clone() });
                }
                for file in found {
                    files.add(file, true);
                }
            } else {
                // Refused now rather than after an hour.
                File::open(path).map_err(failed)?;
                files.add(path.clone(), false);
            }
        }
        Ok(files)
    }

    /// `listed`: found in a directory; a file met before is not read again. A file that was named twice is read twice.
    fn add(&mut self, path: PathBuf, listed: bool) {
        if self.known.insert(path.clone()) || !listed {
            self.total += std::fs::metadata(&path).map_or(0, |m| m.len());
            self.waiting.push_back((path, listed));
        }
    }

    /// Opens the next file; whether there is one.
    fn next_file(&mut self) -> bool {
        if self.waiting.is_empty() && self.options.follow {
            for directory in self.directories.clone() {
                for file in listed(&directory, self.options.recursive).unwrap_or_default() {
                    self.add(file, true);
                }
            }
        }
        let Some((path, listed)) = self.waiting.pop_front() else {
            return false;
        };
        match File::open(&path) {
            Ok(file) => {
                self.counts.files += 1;
                self.open = Some(Open {
                    path,
                    listed,
                    file,
                    framer: Framer::new(),
                    carry: Vec::new(),
                    skip: 0,
                    read: 0,
                });
            }
            Err(e) => self.problems.push((path, CaptureError::Io(e))),
        }
        true
    }

    fn close(&mut self, problem: Option<CaptureError>) {
        if let Some(open) = self.open.take() {
            self.done += open.read;
            // What lies beside captures in a directory is no problem; what was named as one is. Damaged captures are one wherever they lie.
            let no_capture = matches!(
                problem,
                Some(CaptureError::NotACapture { .. } | CaptureError::TruncatedHeader)
            );
            if no_capture && open.listed {
                self.counts.files -= 1;
                self.counts.skipped_files += 1;
                self.skipped.push(open.path);
            } else if let Some(problem) = problem {
                self.counts.broken_files += 1;
                self.problems.push((open.path, problem));
            }
        }
    }
}

impl Open {
    /// Reads once, and finds the packets in what came. Returns how many bytes came.
    fn fill(&mut self, batch: &mut Batch) -> Result<usize, CaptureError> {
        if self.skip > 0 {
            // A seek behind the end is allowed; reading then finds nothing until the file has grown so far.
            self.file.seek(SeekFrom::Current(
                i64::try_from(self.skip).unwrap_or(i64::MAX),
            ))?;
            self.read += self.skip;
            self.skip = 0;
        }
        batch.room(self.carry.len() + CHUNK);
        let start = batch.used;
        batch.bytes[start..start + self.carry.len()].copy_from_slice(&self.carry);
        let from = start + self.carry.len();
        let came = self.file.read(&mut batch.bytes[from..from + CHUNK])?;
        if came == 0 {
            return Ok(0);
        }
        self.carry.clear();
        self.read += came as u64;
        let end = from + came;
        let mut at = start;
        let result = loop {
            match self.framer.step(&batch.bytes[at..end]) {
                Ok(Step::Packet {
                    start,
                    len,
                    wire,
                    time,
                    link,
                    next,
                }) => {
                    batch.frames.push(Frame {
                        time,
                        start: (at + start) as u32,
                        len: len as u32,
                        wire: wire.max(len as u32),
                        link,
                        slice: 0,
                        sums: Sums::Unknown,
                        interface: 0,
                    });
                    at += next;
                }
                Ok(Step::Skip(next)) if at + next <= end => at += next,
                Ok(Step::Skip(next)) => {
                    self.skip = (at + next - end) as u64;
                    break Ok(came);
                }
                Ok(Step::More(_)) => {
                    self.carry.extend_from_slice(&batch.bytes[at..end]);
                    break Ok(came);
                }
                Err(e) => break Err(e),
            }
        };
        batch.used = end;
        result
    }
}

impl Source for Files {
    fn fill(&mut self, batch: &mut Batch) -> Result<Filled, SourceError> {
        loop {
            let Some(open) = &mut self.open else {
                if self.next_file() {
                    batch.begins.push(batch.frames.len() as u32);
                    continue;
                }
                return Ok(match (batch.frames.is_empty(), self.options.follow) {
                    (false, _) => Filled::Frames,
                    (true, true) => Filled::Idle,
                    (true, false) => Filled::End,
                });
            };
            let (before, read) = (batch.frames.len(), open.read);
            if self.apart && before == 0 {
                batch.file = Some(open.path.to_string_lossy().into());
            }
            let came = open.fill(batch);
            self.counts.bytes_read += open.read - read;
            for frame in &batch.frames[before..] {
                self.counts.frames += 1;
                self.counts.wire_bytes += u64::from(frame.wire);
                self.counts.cut += u64::from(frame.len < frame.wire);
            }
            match came {
                Ok(0) => {
                    let ends = self.apart && !batch.frames.is_empty();
                    let open = self
                        .open
                        .as_ref()
                        .map(|o| (o.carry.is_empty(), o.read > 0, o.framer.cut()));
                    let last = self.waiting.is_empty();
                    if self.options.follow && last {
                        // The next file of a directory is begun when it is there; the writer of this one is done then.
                        let found = self.next_listed();
                        if !found {
                            return Ok(if batch.frames.is_empty() {
                                Filled::Idle
                            } else {
                                Filled::Frames
                            });
                        }
                    }
                    let problem = match open {
                        Some((true, true, _)) | None => None,
                        Some((_, _, cut)) => Some(cut),
                    };
                    self.close(problem);
                    if ends {
                        return Ok(Filled::Frames);
                    }
                }
                // Small files share a batch, unless somebody wants to know which is which.
                Ok(_) if batch.used >= CHUNK / 2 && !batch.frames.is_empty() => {
                    return Ok(Filled::Frames);
                }
                Ok(_) => {}
                Err(problem) => {
                    self.close(Some(problem));
                    if self.apart && !batch.frames.is_empty() {
                        return Ok(Filled::Frames);
                    }
                }
            }
        }
    }

    fn counts(&mut self) -> SourceCounts {
        self.counts
    }

    fn problems(&mut self) -> Vec<(PathBuf, CaptureError)> {
        // A file that was followed when the run was stopped is cut only if it does not end with a whole record.
        if let Some(open) = &self.open
            && !open.carry.is_empty()
        {
            let problem = open.framer.cut();
            self.close(Some(problem));
        }
        std::mem::take(&mut self.problems)
    }

    fn skipped(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.skipped)
    }

    fn progress(&self) -> Option<(u64, u64)> {
        let open = self.open.as_ref().map_or(0, |o| o.read);
        Some((self.done + open, self.total))
    }

    fn keep_apart(&mut self) {
        self.apart = true;
    }

    fn is_live(&self) -> bool {
        self.options.follow
    }

    fn name(&self) -> Option<&Path> {
        self.open.as_ref().map(|o| o.path.as_path())
    }
}

impl Files {
    /// Looks for new files of followed directories; whether there are some.
    fn next_listed(&mut self) -> bool {
        for directory in self.directories.clone() {
            for file in listed(&directory, self.options.recursive).unwrap_or_default() {
                self.add(file, true);
            }
        }
        !self.waiting.is_empty()
    }
}

/// Files of a directory by name, hidden ones left out.
fn listed(directory: &Path, recursive: bool) -> Result<Vec<PathBuf>, SourceError> {
    let failed = |error| SourceError::Open {
        path: directory.to_path_buf(),
        error,
    };
    let mut files = Vec::new();
    let mut entries = std::fs::read_dir(directory)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            if recursive {
                files.extend(listed(&path, true)?);
            }
        } else if kind.is_file() || path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}
