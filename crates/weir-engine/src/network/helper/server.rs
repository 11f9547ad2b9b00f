//! The north socket: one thread that accepts, two for each controller, one of which writes.
//!
//! Invariant: a controller that does not read costs its own packets only; lines wait in a queue of limited length, and nobody waits for it
//! while the dispatcher is held.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, thread};

use super::dispatcher::PuntDispatcher;
use super::hold;
use super::line::Answer;
use crate::network::NetworkError;

/// Controllers at a time.
const MOST_CLIENTS: usize = 16;
/// Longest line of a controller: a frame in hexadecimal digits and room for names.
const LONGEST: u64 = 64 << 10;
/// Lines that wait for a controller.
const QUEUE: usize = 256;
/// A controller that takes nothing for so long is closed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Streams of controllers that are there, by number.
type Streams = Arc<Mutex<Vec<(u64, UnixStream)>>>;

/// A socket that is listened to until it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    streams: Streams,
    thread: Option<JoinHandle<()>>,
    /// Whoever has it is the helper of the edge: the name goes with the process.
    _only: UnixListener,
}

impl Server {
    /// Opens the socket, unless a helper of this edge runs in the current network namespace.
    pub(super) fn open(
        edge: &str,
        path: &Path,
        dispatcher: &Arc<Mutex<PuntDispatcher>>,
    ) -> Result<Server, NetworkError> {
        let failed = |what: String| move |source| NetworkError::Helper { what, source };
        let only = SocketAddr::from_abstract_name(format!("weir-net-helper-{edge}"))
            .and_then(|name| UnixListener::bind_addr(&name));
        let only = only.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => NetworkError::HelperRuns {
                edge: edge.to_owned(),
            },
            _ => failed("take the place of the edge's helper".to_owned())(error),
        })?;
        let listener = listen(path).map_err(failed(format!("listen at {}", path.display())))?;
        let stop = Arc::new(AtomicBool::new(false));
        let streams = Streams::default();
        let (dispatcher, stopped, known) = (
            Arc::clone(dispatcher),
            Arc::clone(&stop),
            Arc::clone(&streams),
        );
        let accepting = thread::Builder::new()
            .name("weir-north".to_owned())
            .spawn(move || accept(&listener, &dispatcher, &stopped, &known));
        Ok(Server {
            path: path.to_owned(),
            stop,
            streams,
            thread: Some(accepting.map_err(failed("start a thread".to_owned()))?),
            _only: only,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread; if that fails it is left behind, and ends with the process.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        for (_, stream) in held(&self.streams).iter() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn held(streams: &Streams) -> std::sync::MutexGuard<'_, Vec<(u64, UnixStream)>> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket that only its owner may use. It is made under another name, so that it is never open to others at its own.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder)?;
    }
    // What answers is somebody's; what does not was left by a helper that was killed.
    if UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let making = path.with_extension("new");
    for old in [path, &making] {
        use std::os::unix::fs::FileTypeExt;
        let is_socket = fs::symlink_metadata(old).map(|found| found.file_type().is_socket());
        match is_socket {
            Ok(true) => fs::remove_file(old)?,
            Ok(false) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => {}
        }
    }
    let listener = UnixListener::bind(&making)?;
    fs::set_permissions(&making, fs::Permissions::from_mode(0o600))?;
    fs::rename(&making, path)?;
    Ok(listener)
}

fn accept(
    listener: &UnixListener,
    dispatcher: &Arc<Mutex<PuntDispatcher>>,
    stop: &AtomicBool,
    known: &Streams,
) {
    let numbers = AtomicU64::new(1);
    for stream in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors or the like: the next one may do.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let Ok(own) = stream.try_clone() else {
            continue;
        };
        let mut streams = held(known);
        if streams.len() >= MOST_CLIENTS {
            drop(streams);
            refuse(stream, "too many controllers are connected");
            continue;
        }
        streams.push((number, own));
        drop(streams);
        let (dispatcher, streams) = (Arc::clone(dispatcher), Arc::clone(known));
        let serving = thread::Builder::new().spawn(move || {
            // A controller that breaks off concerns nobody else.
            let _ = serve(number, &stream, &dispatcher);
            hold(&dispatcher).leave(number);
            // What waits for it is still written: the other thread ends the connection.
            let _ = stream.shutdown(std::net::Shutdown::Read);
            held(&streams).retain(|(one, _)| *one != number);
        });
        if serving.is_err() {
            held(known).retain(|(one, _)| *one != number);
        }
    }
}

fn refuse(mut stream: UnixStream, why: &str) {
    let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
    if let Ok(text) = serde_json::to_string(&Answer::refused(why)) {
        let _ = writeln!(stream, "{text}");
    }
}

fn serve(
    number: u64,
    stream: &UnixStream,
    dispatcher: &Arc<Mutex<PuntDispatcher>>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (lines, waiting) = sync_channel::<String>(QUEUE);
    let writer = stream.try_clone()?;
    thread::Builder::new().spawn(move || write(writer, &waiting))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let is_whole = line.ends_with(b"\n");
        let answer = match (is_whole, std::str::from_utf8(&line)) {
            (true, Ok(line)) => hold(dispatcher).answer(number, line, &lines),
            (true, Err(_)) => Answer::refused("not understood: a line is text in UTF-8"),
            (false, _) => Answer::refused(format!("a line has {LONGEST} bytes at most")),
        };
        let text = serde_json::to_string(&answer)?;
        // Waits for the controller to read; the dispatcher is not held.
        if lines.send(text).is_err() || !is_whole {
            return Ok(());
        }
    }
}

/// Writes lines until there can come no more, or the controller takes none.
fn write(mut stream: UnixStream, lines: &Receiver<String>) {
    for mut line in lines {
        line.push('\n');
        if stream.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Both);
}
