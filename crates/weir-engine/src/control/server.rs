//! Listens for requests while a policy runs: one thread that accepts, one for each connection.
//!
//! Invariant: the socket is private to its owner from the moment it exists, and goes with the server; what a killed process leaves is
//! recognised by nobody answering.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_kernel::{KernelError, netns};

use super::service::ControlService;
use super::{Client, FOLDER, PolicyFile};
use crate::live::Running;

/// Connections at a time.
const MAX_CONNECTIONS: usize = 16;
/// Longest request, in bytes.
const MAX_REQUEST: u64 = 64 << 20;
/// A connection that says nothing for so long is closed.
const SILENCE: Duration = Duration::from_secs(10);

/// A socket that is listened to until it is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the socket of this process for an instance in the current network namespace.
    ///
    /// # Errors
    /// When the folder or the socket cannot be made; the instance then runs without live edits.
    pub fn open(
        running: Arc<Mutex<Running>>,
        policy: PolicyFile,
        interfaces: Vec<String>,
    ) -> Result<Server, KernelError> {
        Client::sweep();
        let inode = netns::current_inode()?;
        let path = Path::new(FOLDER).join(format!("{inode}-{}.sock", std::process::id()));
        let listener =
            listen(&path).map_err(|e| super::sys(format!("listen at {}", path.display()), e))?;
        let desk = Arc::new(ControlService::new(running, policy, interfaces));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("weir-control".to_owned())
            .spawn(move || accept(&listener, &desk, &stopped))
            .map_err(|e| super::sys("start a thread for live edits", e))?;
        Ok(Server {
            path,
            stop,
            thread: Some(thread),
        })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread; if that fails it is left behind, and ends with the process.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = fs::remove_file(&self.path);
        // With others in it, it stays.
        let _ = fs::remove_dir(FOLDER);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// A socket that only its owner may use. It is made under another name, so that it is never open to others at its own.
fn listen(path: &Path) -> io::Result<UnixListener> {
    // The last of others may remove the folder between any two steps.
    loop {
        match listen_once(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
    }
}

fn listen_once(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().unwrap_or(Path::new(FOLDER));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)?;
    let making = path.with_extension("new");
    for old in [path, &making] {
        // Of a process with the same number that was killed.
        match fs::remove_file(old) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    let listener = UnixListener::bind(&making)?;
    fs::set_permissions(&making, fs::Permissions::from_mode(0o600))?;
    fs::rename(&making, path)?;
    Ok(listener)
}

fn accept(listener: &UnixListener, desk: &Arc<ControlService>, stop: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors or the like: the next one may do.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if open.fetch_add(1, Ordering::AcqRel) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (desk, counted) = (Arc::clone(desk), Arc::clone(&open));
        let serving = std::thread::Builder::new().spawn(move || {
            // A connection that breaks off concerns nobody else.
            let _ = serve(&stream, &desk);
            counted.fetch_sub(1, Ordering::AcqRel);
        });
        if serving.is_err() {
            open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn serve(stream: &UnixStream, desk: &ControlService) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let read = reader.by_ref().take(MAX_REQUEST).read_line(&mut line)?;
        if read == 0 || !line.ends_with('\n') {
            return Ok(());
        }
        let mut text = serde_json::to_string(&desk.answer(&line))?;
        text.push('\n');
        let mut stream = stream;
        stream.write_all(text.as_bytes())?;
    }
}
