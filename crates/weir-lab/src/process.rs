//! Child processes and scratch files that end with their values, and what of them can be seen from outside.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use weir_kernel::NetNs;

use crate::LabError;

/// How often a condition is looked at again.
const POLL: Duration = Duration::from_millis(10);

/// A child process; dropping it asks it to end and, after two seconds, ends it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
    /// Where its standard error goes; `None`: to ours.
    stderr: Option<PathBuf>,
}

impl Running {
    /// Starts it with standard error where ours goes: the user sees what it says.
    pub(crate) fn shown(command: &mut Command, name: &str) -> Result<Running, LabError> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .map_err(LabError::io(format!("start {name}")))?;
        Ok(Running {
            child,
            name: name.to_owned(),
            stderr: None,
        })
    }

    /// Starts it with standard error in a scratch file, so that its last words can be told.
    pub(crate) fn start(
        command: &mut Command,
        name: &str,
        scratch: &Scratch,
    ) -> Result<Running, LabError> {
        let stderr = scratch.fresh(name, "stderr");
        let file =
            File::create(&stderr).map_err(LabError::io(format!("create {}", stderr.display())))?;
        let child = command
            .stdin(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(LabError::io(format!("start {name}")))?;
        Ok(Running {
            child,
            name: name.to_owned(),
            stderr: Some(stderr),
        })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr
            .as_ref()
            .and_then(|path| fs::read_to_string(path).ok())
            .unwrap_or_default()
    }

    /// Waits until `ready` holds; an early end and `limit` are errors.
    pub(crate) fn wait_until(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut(&Running) -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let end = Instant::now() + limit;
        loop {
            if ready(self)? {
                return Ok(());
            }
            if let Some(status) = self.status()? {
                return Err(self.failed(&format!("ended early ({status})")));
            }
            if Instant::now() > end {
                return Err(self.failed("was not ready in time"));
            }
            thread::sleep(POLL);
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), LabError> {
        match i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            Some(pid) => kill_process(pid, signal).map_err(|e| LabError::Io {
                what: format!("signal {}", self.name),
                source: e.into(),
            }),
            None => Ok(()),
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<ExitStatus, LabError> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            if Instant::now() > end {
                return Err(self.failed("did not end in time"));
            }
            thread::sleep(POLL);
        }
    }

    /// An error about it, with the last line that it wrote.
    pub(crate) fn failed(&self, why: &str) -> LabError {
        let words = self.stderr();
        let last = words.lines().rfind(|l| !l.trim().is_empty());
        let why = last.map_or_else(|| why.to_owned(), |last| format!("{why}: {last}"));
        LabError::Child {
            what: self.name.clone(),
            why,
        }
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child
            .try_wait()
            .map_err(LabError::io(format!("wait for {}", self.name)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = self.signal(Signal::TERM);
        if self.wait(Duration::from_secs(2)).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A folder for temporary files, removed with its contents.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Named `PREFIX-PID-N`.
    pub(crate) fn create(prefix: &str) -> Result<Scratch, LabError> {
        let base = std::env::temp_dir();
        let mut n = 0u32;
        loop {
            let path = base.join(format!("{prefix}-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch { path }),
                // Somebody else's, perhaps of a killed process.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && n < 100 => n += 1,
                Err(e) => return Err(LabError::io(format!("create {}", path.display()))(e)),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it that is not in use.
    pub(crate) fn fresh(&self, stem: &str, extension: &str) -> PathBuf {
        let mut n = 0u32;
        loop {
            let path = self.path.join(format!("{stem}-{n}.{extension}"));
            if !path.exists() {
                return path;
            }
            n += 1;
        }
    }

    /// Writes a file into it.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> Result<PathBuf, LabError> {
        let path = self.path.join(name);
        fs::write(&path, contents).map_err(LabError::io(format!("write {}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Those of `tools` that are not on the path.
pub(crate) fn missing(tools: &[&'static str]) -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    tools
        .iter()
        .copied()
        .filter(|tool| !folders.iter().any(|folder| folder.join(tool).is_file()))
        .collect()
}

/// Whether somebody listens on a TCP port of the namespace, on any address. Asking does not connect.
pub(crate) fn is_listening(ns: &NetNs, port: u16) -> Result<bool, LabError> {
    let tables = ns.run(|| {
        ["tcp", "tcp6"].map(|file| {
            fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
        })
    })?;
    let local = format!(":{port:04X}");
    // Columns: slot, local address, remote address, state; 0A is LISTEN.
    let listens = |line: &str| {
        let mut columns = line.split_whitespace().skip(1);
        columns.next().is_some_and(|c| c.ends_with(&local)) && columns.nth(1) == Some("0A")
    };
    Ok(tables.iter().any(|table| table.lines().any(listens)))
}
