//! Where lines go: files that rotate, unix sockets, standard output.
//!
//! Invariant: a sink takes whole lines only; a line that it does not take is counted, and never half written to a file or a datagram.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};

/// Where the lines of one log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// A file; it is appended to.
    File(PathBuf),
    /// A unix socket that somebody listens on, as a stream.
    UnixStream(PathBuf),
    /// A unix socket, one datagram a line.
    UnixDatagram(PathBuf),
    /// Standard output.
    Stdout,
}

/// When a file is put aside and a new one is begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// At so many bytes.
    pub bytes: Option<u64>,
    /// After so many seconds of the capture's time.
    pub seconds: Option<u64>,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Writing failed later.
    #[error("writing to {place} failed: {error}")]
    Write {
        /// Where.
        place: String,
        /// Why.
        error: io::Error,
    },
}

#[derive(Debug)]
enum LogHandle {
    File(File),
    Stream(Option<UnixStream>),
    Datagram(Option<UnixDatagram>),
    Stdout,
}

/// An open log.
#[derive(Debug)]
pub struct Sink {
    target: LogDestination,
    place: LogHandle,
    rotation: Rotation,
    buffer: Vec<u8>,
    /// Bytes in the file, and the time at which it began.
    size: u64,
    since: Option<u64>,
    /// Number of the next file that is put aside.
    turn: u32,
    /// Lines that a socket did not take.
    lost: u64,
    /// Lines written since the last try to connect: a listener that is gone is looked for again now and then.
    tried: u32,
}

/// Bytes gathered before they are written; live runs flush after each batch as well.
const GATHER: usize = 64 << 10;
/// Lines lost before a socket is tried again.
const RETRY: u32 = 256;

impl Sink {
    /// Opens a log.
    ///
    /// # Errors
    /// A file or its directory cannot be written. A socket that nobody listens on is no error: lines are lost, and counted, until somebody does.
    pub fn open(target: LogDestination, rotation: Rotation) -> Result<Sink, SinkError> {
        let (place, size) = match &target {
            LogDestination::File(path) => {
                let (file, size) = open_file(path)?;
                (LogHandle::File(file), size)
            }
            LogDestination::UnixStream(path) => (LogHandle::Stream(connect_stream(path)), 0),
            LogDestination::UnixDatagram(path) => (LogHandle::Datagram(connect_datagram(path)), 0),
            LogDestination::Stdout => (LogHandle::Stdout, 0),
        };
        Ok(Sink {
            target,
            place,
            rotation,
            buffer: Vec::new(),
            size,
            since: None,
            turn: 1,
            lost: 0,
            tried: 0,
        })
    }

    /// Lines that were not taken.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Appends a line, which ends with a newline. `now`: the capture's time, ns.
    ///
    /// # Errors
    /// The file or standard output cannot be written.
    pub fn line(&mut self, line: &[u8], now: u64) -> Result<(), SinkError> {
        match &mut self.place {
            LogHandle::File(_) => {
                let since = *self.since.get_or_insert(now);
                let full = self
                    .rotation
                    .bytes
                    .is_some_and(|most| self.size > 0 && self.size + line.len() as u64 > most);
                let old = self.rotation.seconds.is_some_and(|most| {
                    now.saturating_sub(since) >= most.saturating_mul(1_000_000_000)
                });
                if full || old {
                    self.put_aside(now)?;
                }
                self.size += line.len() as u64;
                self.buffer.extend_from_slice(line);
            }
            LogHandle::Stdout => self.buffer.extend_from_slice(line),
            LogHandle::Stream(_) | LogHandle::Datagram(_) => self.send(line),
        }
        if self.buffer.len() >= GATHER {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what was gathered.
    ///
    /// # Errors
    /// The file or standard output cannot be written.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = match &mut self.place {
            LogHandle::File(file) => file.write_all(&self.buffer),
            LogHandle::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&self.buffer).and_then(|()| out.flush())
            }
            LogHandle::Stream(_) | LogHandle::Datagram(_) => Ok(()),
        };
        self.buffer.clear();
        written.map_err(|error| SinkError::Write {
            place: self.name(),
            error,
        })
    }

    /// Begins the file anew, after somebody moved it away (SIGHUP), or connects anew.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn reopen(&mut self) -> Result<(), SinkError> {
        self.flush()?;
        match &self.target {
            LogDestination::File(path) => {
                let (file, size) = open_file(path)?;
                (self.place, self.size, self.since) = (LogHandle::File(file), size, None);
            }
            LogDestination::UnixStream(path) => {
                self.place = LogHandle::Stream(connect_stream(path))
            }
            LogDestination::UnixDatagram(path) => {
                self.place = LogHandle::Datagram(connect_datagram(path))
            }
            LogDestination::Stdout => {}
        }
        Ok(())
    }

    fn name(&self) -> String {
        match &self.target {
            LogDestination::File(path)
            | LogDestination::UnixStream(path)
            | LogDestination::UnixDatagram(path) => path.display().to_string(),
            LogDestination::Stdout => "standard output".to_owned(),
        }
    }

    /// Renames the file to the first number that is free, and begins a new one.
    fn put_aside(&mut self, now: u64) -> Result<(), SinkError> {
        self.flush()?;
        if let LogDestination::File(path) = &self.target {
            let aside = loop {
                let mut name = path.clone().into_os_string();
                name.push(format!(".{}", self.turn));
                self.turn += 1;
                let aside = PathBuf::from(name);
                if !aside.exists() {
                    break aside;
                }
            };
            std::fs::rename(path, &aside).map_err(|error| SinkError::Open {
                path: aside.clone(),
                error,
            })?;
        }
        self.reopen()?;
        self.since = Some(now);
        Ok(())
    }

    fn send(&mut self, line: &[u8]) {
        let gone = match &self.place {
            LogHandle::Stream(s) => s.is_none(),
            LogHandle::Datagram(s) => s.is_none(),
            LogHandle::File(_) | LogHandle::Stdout => false,
        };
        if gone {
            self.tried += 1;
            if self.tried >= RETRY {
                self.tried = 0;
                match &self.target {
                    LogDestination::UnixStream(path) => {
                        self.place = LogHandle::Stream(connect_stream(path))
                    }
                    LogDestination::UnixDatagram(path) => {
                        self.place = LogHandle::Datagram(connect_datagram(path))
                    }
                    LogDestination::File(_) | LogDestination::Stdout => {}
                }
            }
        }
        let sent = match &mut self.place {
            LogHandle::Stream(socket) => match socket {
                Some(s) => {
                    let sent = s.write_all(line).is_ok();
                    if !sent {
                        *socket = None;
                    }
                    sent
                }
                None => false,
            },
            LogHandle::Datagram(socket) => match socket {
                Some(s) => match s.send(line.strip_suffix(b"\n").unwrap_or(line)) {
                    Ok(_) => true,
                    Err(e) => {
                        if matches!(
                            e.kind(),
                            io::ErrorKind::ConnectionRefused
                                | io::ErrorKind::NotConnected
                                | io::ErrorKind::ConnectionReset
                        ) {
                            *socket = None;
                        }
                        false
                    }
                },
                None => false,
            },
            LogHandle::File(_) | LogHandle::Stdout => true,
        };
        self.lost += u64::from(!sent);
    }
}

fn open_file(path: &Path) -> Result<(File, u64), SinkError> {
    let failed = |error| SinkError::Open {
        path: path.to_path_buf(),
        error,
    };
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    Ok((file, size))
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

fn connect_stream(path: &Path) -> Option<UnixStream> {
    if !is_socket(path) {
        return None;
    }
    // A listener that does not read must not stop the sensor for long.
    let socket = UnixStream::connect(path).ok()?;
    socket
        .set_write_timeout(Some(std::time::Duration::from_millis(100)))
        .ok()?;
    Some(socket)
}

fn connect_datagram(path: &Path) -> Option<UnixDatagram> {
    if !is_socket(path) {
        return None;
    }
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    socket
        .set_write_timeout(Some(std::time::Duration::from_millis(100)))
        .ok()?;
    Some(socket)
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Whoever wants to know whether it worked calls `flush`.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-sink-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        path
    }

    #[test]
    fn files_rotate_by_size_and_time_and_lose_nothing() {
        let folder = folder("rotate");
        let path = folder.join("eve.json");
        let rotation = Rotation {
            bytes: Some(20),
            seconds: Some(60),
        };
        let mut sink = Sink::open(LogDestination::File(path.clone()), rotation).expect("writable");
        for n in 0..5 {
            sink.line(format!("line {n}\n").as_bytes(), 0)
                .expect("written");
        }
        sink.line(b"late\n", 61_000_000_000).expect("written");
        sink.flush().expect("written");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
        assert_eq!(read("eve.json.1"), "line 0\nline 1\n");
        assert_eq!(read("eve.json.2"), "line 2\nline 3\n");
        assert_eq!(read("eve.json.3"), "line 4\n");
        assert_eq!(read("eve.json"), "late\n");
        // Moved away by somebody else, then told so.
        std::fs::rename(&path, folder.join("moved")).expect("moved");
        sink.reopen().expect("opened");
        sink.line(b"new\n", 62_000_000_000).expect("written");
        drop(sink);
        assert_eq!(read("moved"), "late\n");
        assert_eq!(read("eve.json"), "new\n");
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn sockets_take_lines_and_losses_are_counted() {
        let folder = folder("socket");
        let path = folder.join("datagrams");
        let mut early = Sink::open(
            LogDestination::UnixDatagram(path.clone()),
            Rotation::default(),
        )
        .expect("no error");
        early.line(b"nobody\n", 0).expect("no error");
        assert_eq!(early.lost(), 1);
        let listener = UnixDatagram::bind(&path).expect("bound");
        early.reopen().expect("connected");
        early.line(b"{\"a\":1}\n", 0).expect("sent");
        let mut buffer = [0; 64];
        let n = listener.recv(&mut buffer).expect("received");
        assert_eq!(&buffer[..n], b"{\"a\":1}");

        let path = folder.join("stream");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let mut sink =
            Sink::open(LogDestination::UnixStream(path), Rotation::default()).expect("connected");
        sink.line(b"one\n", 0).expect("sent");
        sink.line(b"two\n", 0).expect("sent");
        drop(sink);
        let mut text = String::new();
        listener
            .accept()
            .expect("connected")
            .0
            .read_to_string(&mut text)
            .expect("read");
        assert_eq!(text, "one\ntwo\n");
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let path = PathBuf::from("/nonexistent/folder/eve.json");
        let error = Sink::open(LogDestination::File(path), Rotation::default())
            .expect_err("no such folder");
        assert_eq!(
            error.to_string(),
            "cannot write /nonexistent/folder/eve.json: No such file or directory (os error 2)"
        );
    }
}
