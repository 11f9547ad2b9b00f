//! What the tests of the program share: running the real binary, folders that vanish, captures, hex, and the engines
//! that can run here.
//!
//! Nothing here knows what a packet should become; expectations belong to the tests. Every run has its own folder.

#![allow(dead_code, reason = "each test file uses its part of this module")]

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use weir_packet::pcap::{Capture, CaptureError, Writer};

/// Root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Tells whoever runs the tests something, whether they pass or fail.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// All files below a folder, sorted; none if it is not there.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return found;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The example policies.
pub(crate) fn examples() -> Vec<PathBuf> {
    let mut found = files(&root().join("examples"));
    found.retain(|path| path.extension().is_some_and(|e| e == "weir"));
    assert!(!found.is_empty(), "examples/ holds policies");
    found
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    // Through procfs, to stay free of unsafe code.
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let uids = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .expect("status has a Uid line");
    uids.split_whitespace().nth(2) == Some("0")
}

/// Whether a test that needs root can run. In CI it must.
pub(crate) fn root_for(what: &str) -> bool {
    if is_root() {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "in CI {what} must be tested: run as root"
    );
    say(&format!("not root: {what} is skipped"));
    false
}

/// Engines that can run here, by the names of `--engine`. The first is the oracle.
pub(crate) fn engines() -> Vec<&'static str> {
    let mut engines = vec!["reference", "user"];
    if weir_vm::jit::available() {
        engines.push("user-jit");
    }
    if root_for("the kernel engine") {
        engines.push("kernel");
    }
    engines
}

/// Whether the long form of the tests is wanted (`WEIR_LONG=1`).
pub(crate) fn long() -> bool {
    std::env::var_os("WEIR_LONG").is_some_and(|value| value == "1")
}

/// Path of the program.
pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// What a run of a program left.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit status; -1 if a signal ended it.
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Run {
    /// The object that `--json` printed.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("standard output is not JSON ({e}): {self:?}"))
    }

    /// The run, if it went well.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Run {
        assert_eq!(self.status, 0, "{self:?}");
        self
    }
}

/// `weir ARGS...`, with nothing on standard input.
pub(crate) fn weir<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    let mut command = Command::new(WEIR);
    command.args(args).stdin(std::process::Stdio::null());
    run(&mut command)
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Run {
    match command.output() {
        Ok(output) => output.into(),
        Err(error) => panic!("cannot start {command:?}: {error}"),
    }
}

/// A folder of its own for a test; removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path)
            .unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()));
        Folder(path)
    }

    /// Path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new file in it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content)
            .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        path
    }

    /// A new capture in it, one packet a second from second 1.
    pub(crate) fn capture(&self, name: &str, frames: &[Vec<u8>]) -> PathBuf {
        let path = self.join(name);
        let timed = (1u64..)
            .zip(frames)
            .map(|(second, frame)| (second * 1_000_000_000, frame.as_slice()));
        write_capture(&path, timed);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a capture of frames with their times in ns.
pub(crate) fn write_capture<'a>(path: &Path, frames: impl IntoIterator<Item = (u64, &'a [u8])>) {
    let file = File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut writer = Writer::new(BufWriter::new(file)).expect("temporary files can be written");
    for (time, frame) in frames {
        writer
            .write(time, frame, frame.len() as u32)
            .expect("temporary files can be written");
    }
    writer.finish().expect("temporary files can be written");
}

/// All packets of a capture that must be whole: time in ns and bytes.
pub(crate) fn read_capture(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut capture =
        Capture::open(BufReader::new(file)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut packets = Vec::new();
    while let Some(packet) = capture
        .next_packet()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    {
        packets.push((packet.timestamp_ns, packet.data.to_vec()));
    }
    packets
}

/// Packets of a capture as far as it can be read; `None` if it is no capture, or of a link type that weir does not read.
pub(crate) fn ethernet(path: &Path) -> Option<Vec<Vec<u8>>> {
    let mut capture = Capture::open(BufReader::new(File::open(path).ok()?)).ok()?;
    let mut frames = Vec::new();
    loop {
        match capture.next_frame() {
            Ok(Some(packet)) => frames.push(packet.data.to_vec()),
            Err(CaptureError::UnsupportedLinkType { .. }) => return None,
            _ => break,
        }
    }
    let read = capture
        .interfaces()
        .iter()
        .all(|i| i.require_frames().is_ok());
    read.then_some(frames)
}

/// Bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Hex digits as bytes; blanks and line ends do not count.
pub(crate) fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err(format!("an odd number of hex digits: {text}"));
    }
    let byte = |pair: &[char]| {
        let pair: String = pair.iter().collect();
        u8::from_str_radix(&pair, 16).map_err(|e| format!("`{pair}`: {e}"))
    };
    digits.chunks(2).map(byte).collect()
}

/// Ends the threads of a test that fails.
pub(crate) struct Stops<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
