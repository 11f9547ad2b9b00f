//! Finding the running instance that is meant, and asking it.
//!
//! Sockets of processes that are gone are passed over, and removed: nobody answers there any more.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use weir_kernel::{KernelError, netns};

use super::{Ask, FOLDER, Hello, Kind, Refused, Reply, Request, VERSION};

/// A connection to a running instance.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    hello: Hello,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing runs here.
    #[error("no `weir run` is running in this network namespace: start one first")]
    NoneRunning,
    /// Nothing runs on that interface.
    #[error("no `weir run` is running on {interface}; running on: {others}")]
    NotThere {
        /// As given.
        interface: String,
        /// Where something runs.
        others: String,
    },
    /// More than one runs.
    #[error("`weir run` is running on {interfaces}: name one with -i")]
    Several {
        /// Where.
        interfaces: String,
    },
    /// It refused.
    #[error("{}", .0.message)]
    Refused(Refused),
    /// It went away, or is no weir.
    #[error("the running weir (process {pid}) does not respond: {source}")]
    Silent {
        /// Its process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// See [`KernelError`].
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl ClientError {
    /// Whether what the user asked for is wrong.
    pub fn is_usage(&self) -> bool {
        match self {
            ClientError::NotThere { .. } | ClientError::Several { .. } => true,
            ClientError::Refused(refused) => refused.kind == Kind::Usage,
            _ => false,
        }
    }
}

impl Client {
    /// Connects to the instance on an interface, or to the only one there is.
    pub fn find(interface: Option<&str>) -> Result<Client, ClientError> {
        let mut all = Client::all()?;
        let names = |all: &[Client]| -> String {
            let names: Vec<String> = all.iter().map(|c| c.hello.interfaces.join("+")).collect();
            names.join(", ")
        };
        match interface {
            _ if all.is_empty() => Err(ClientError::NoneRunning),
            Some(name) => {
                let on = |c: &Client| c.hello.interfaces.iter().any(|i| i == name);
                match all.iter().position(on) {
                    Some(at) => Ok(all.swap_remove(at)),
                    None => Err(ClientError::NotThere {
                        interface: name.to_owned(),
                        others: names(&all),
                    }),
                }
            }
            None if all.len() > 1 => Err(ClientError::Several {
                interfaces: names(&all),
            }),
            None => all.pop().ok_or(ClientError::NoneRunning),
        }
    }

    /// Connections to all instances of this network namespace.
    pub fn all() -> Result<Vec<Client>, ClientError> {
        let prefix = format!("{}-", netns::current_inode()?);
        let entries = match fs::read_dir(FOLDER) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(super::sys(format!("list {FOLDER}"), e).into()),
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.starts_with(&prefix) && name.ends_with(".sock"))
            })
            .collect();
        paths.sort();
        let mut clients = Vec::new();
        for path in paths {
            clients.extend(Client::at(&path)?);
        }
        Ok(clients)
    }

    /// Removes the sockets of processes that are gone, of all network namespaces.
    pub fn sweep() {
        let Ok(entries) = fs::read_dir(FOLDER) else {
            return;
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        for path in paths.filter(|path| path.extension().is_some_and(|e| e == "sock")) {
            let connected = UnixStream::connect(&path);
            if connected.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(&path);
            }
        }
        // With others in it, it stays.
        let _ = fs::remove_dir(FOLDER);
    }

    /// The instance.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, ask: Ask) -> Result<Reply, ClientError> {
        match exchange(&mut self.reader, ask) {
            Ok(Reply::Refused(refused)) => Err(ClientError::Refused(refused)),
            Ok(reply) => Ok(reply),
            Err(source) => Err(ClientError::Silent {
                pid: self.hello.pid,
                source,
            }),
        }
    }

    /// The instance behind a socket; `None` if it is gone.
    fn at(path: &Path) -> Result<Option<Client>, ClientError> {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(path);
                return Ok(None);
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                return Err(super::sys(format!("connect to {}", path.display()), e).into());
            }
        };
        let mut reader = BufReader::new(stream);
        match exchange(&mut reader, Ask::Hello) {
            Ok(Reply::Hello(hello)) => Ok(Some(Client { reader, hello })),
            Ok(Reply::Refused(refused)) => Err(ClientError::Refused(refused)),
            // It is just ending.
            _ => Ok(None),
        }
    }
}

fn exchange(reader: &mut BufReader<UnixStream>, ask: Ask) -> io::Result<Reply> {
    let request = Request {
        version: VERSION,
        ask,
    };
    let mut text = serde_json::to_string(&request)?;
    text.push('\n');
    let mut stream = reader.get_ref();
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}
