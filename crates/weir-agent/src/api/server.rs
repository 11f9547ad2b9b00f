//! The thread that serves: its socket, its connections, and their limits.

use std::fs::{self, DirBuilder, Permissions};
use std::future::{Future as _, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::StatusCode;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use super::access::{Access, Connections, Listener, Peer, Place};
use super::answer::{Client, Shared, Who};
use super::asks::Ask;
use super::conversation::{PAUSE, refusal, refuse, serve};
use super::host::Host;
use super::hub::Hub;
use super::limits::Limits;
use super::problem::Problem;
use super::remote::{self, Remote};

/// How long reading of the host may go on when the server ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a server listens, and to whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// The Unix socket.
    pub(super) socket: Option<PathBuf>,
    /// Who has a role there.
    pub(super) access: Access,
    /// The address of the metrics over TCP.
    pub(super) metrics: Option<SocketAddr>,
    /// The address of the page over TCP.
    pub(super) page: Option<SocketAddr>,
    /// The address for other hosts.
    pub(super) remote: Option<Remote>,
}

impl Places {
    /// Whether it listens nowhere.
    pub(super) fn is_empty(&self) -> bool {
        self.socket.is_none()
            && self.metrics.is_none()
            && self.page.is_none()
            && self.remote.is_none()
    }

    /// The addresses as they are reported, without those of `others`.
    pub(super) fn without(&self, others: &Places) -> impl Iterator<Item = String> + use<> {
        let names = |places: &Places| {
            [
                places
                    .socket
                    .as_ref()
                    .map(|path| path.display().to_string()),
                places
                    .metrics
                    .map(|address| format!("http://{address}/metrics")),
                places.page.map(|address| format!("http://{address}/")),
                places
                    .remote
                    .as_ref()
                    .map(|remote| format!("https://{}/", remote.address)),
            ]
        };
        let pairs = names(self).into_iter().zip(names(others));
        pairs.filter_map(|(own, other)| own.filter(|_| other.is_none()))
    }
}

/// Sockets that listen.
#[derive(Debug)]
struct Listeners {
    socket: Option<StdListener>,
    metrics: Option<StdTcpListener>,
    page: Option<StdTcpListener>,
    remote: Option<(StdTcpListener, Remote)>,
}

impl Listeners {
    fn is_empty(&self) -> bool {
        self.socket.is_none()
            && self.metrics.is_none()
            && self.page.is_none()
            && self.remote.is_none()
    }
}

/// Addresses that could not be bound.
#[derive(Debug)]
struct Unbound {
    places: Places,
    /// Why, one line for each.
    errors: Vec<String>,
}

/// Binds each address that can be bound.
fn bind(places: &Places) -> (Listeners, Unbound) {
    let Places { access, .. } = *places;
    let mut errors = Vec::new();
    let (metrics, no_metrics) =
        attempt(places.metrics, &mut errors, |at| listen_tcp(*at, "metrics"));
    let (page, no_page) = attempt(places.page, &mut errors, |at| listen_tcp(*at, "page"));
    let (remote, no_remote) = attempt(places.remote.clone(), &mut errors, |one| {
        Ok((listen_tcp(one.address, "listen")?, one.clone()))
    });
    let (socket, no_socket) = attempt(places.socket.clone(), &mut errors, |path| {
        listen(path, &access)
    });
    let listeners = Listeners {
        socket,
        metrics,
        page,
        remote,
    };
    let places = Places {
        socket: no_socket,
        access,
        metrics: no_metrics,
        page: no_page,
        remote: no_remote,
    };
    (listeners, Unbound { places, errors })
}

/// The listener of an address, or the address where it cannot be bound.
fn attempt<A, L>(
    address: Option<A>,
    errors: &mut Vec<String>,
    bind: impl FnOnce(&A) -> Result<L, String>,
) -> (Option<L>, Option<A>) {
    let Some(address) = address else {
        return (None, None);
    };
    match bind(&address) {
        Ok(listener) => (Some(listener), None),
        Err(error) => {
            errors.push(error);
            (None, Some(address))
        }
    }
}

/// A thread that serves; ends when dropped.
#[derive(Debug)]
pub(super) struct Server {
    path: Option<PathBuf>,
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    unbound: Unbound,
}

impl Server {
    /// Serves at each address that can be bound; [`Server::errors`] has the others.
    ///
    /// # Errors
    /// In words: no address can be bound, or the thread cannot start.
    pub(super) fn start(
        places: &Places,
        limits: Limits,
        hub: Arc<Hub>,
        host: Arc<dyn Host>,
        asks: SyncSender<Ask>,
    ) -> Result<Server, String> {
        let access = places.access;
        let page_address = places.page;
        let (listeners, unbound) = bind(places);
        if listeners.is_empty() {
            return Err(unbound.errors.join("; "));
        }
        let Listeners {
            socket,
            metrics,
            page,
            remote,
        } = listeners;
        // The socket of another process stays.
        let path = places.socket.clone().filter(|_| socket.is_some());
        let cannot = |error: io::Error| format!("cannot start its thread: {error}");
        let runtime = Builder::new_current_thread()
            .enable_all()
            // One reads the host, one watches drops; one more than that never waits.
            .max_blocking_threads(3)
            .build()
            .map_err(cannot)?;
        let (stop, mut stopped) = watch::channel(());
        let work = move || {
            runtime.block_on(async {
                let page_address = page_address.filter(|_| page.is_some());
                let shared = Arc::new(Shared::new(hub, host, asks, limits, page_address));
                // They were made non-blocking, and the runtime is there: what else can fail is a lack of memory.
                let metrics = metrics.and_then(|one| TcpListener::from_std(one).ok());
                let socket = socket.and_then(|one| UnixListener::from_std(one).ok());
                let page = page.and_then(|one| TcpListener::from_std(one).ok());
                if let Some(listener) = metrics {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(accept_tcp(
                        listener,
                        Client::SCRAPER,
                        limits.scrapers,
                        shared,
                    ));
                }
                if let Some(listener) = page {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(accept_tcp(
                        listener,
                        Client::VISITOR,
                        limits.visitors,
                        shared,
                    ));
                }
                if let Some((listener, remote)) = remote
                    && let Ok(listener) = TcpListener::from_std(listener)
                {
                    tokio::spawn(remote::accept(listener, remote, Arc::clone(&shared)));
                }
                match socket {
                    Some(listener) => accept(listener, access, shared, stopped).await,
                    None => drop(stopped.changed().await),
                }
            });
            runtime.shutdown_timeout(PATIENCE);
        };
        let thread = thread::Builder::new()
            .name("weir-api".to_owned())
            .spawn(work)
            .map_err(cannot)?;
        Ok(Server {
            path,
            stop: Some(stop),
            thread: Some(thread),
            unbound,
        })
    }

    /// Why addresses could not be bound, one line for each.
    pub(super) fn errors(&self) -> &[String] {
        &self.unbound.errors
    }

    /// The addresses that could not be bound.
    pub(super) fn unbound(&self) -> &Places {
        &self.unbound.places
    }

    /// Whether an address that could not be bound can be bound now.
    pub(super) fn can_bind_more(&self) -> bool {
        let (listeners, _) = bind(&self.unbound.places);
        !listeners.is_empty()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        // Before it ends: a client that comes now finds none, not one that never answers.
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the socket. Who may connect is also judged by the peer's credentials, so its mode is only the first barrier.
fn listen(path: &Path, access: &Access) -> Result<StdListener, String> {
    let cannot = |error: io::Error| format!("cannot listen on {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(folder).map_err(cannot)?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(format!(
                "{} is there and is not a socket: remove it, or name another path in agent.toml, `[api] socket`",
                path.display()
            ));
        }
        Ok(_) if is_alive(path) => {
            return Err(format!(
                "another process listens on {}: stop it, or name another path in agent.toml, `[api] socket`",
                path.display()
            ));
        }
        // What a killed agent left.
        Ok(_) => fs::remove_file(path).map_err(cannot)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(error)),
    }
    let listener = StdListener::bind(path).map_err(cannot)?;
    let mode = if access.is_shared() { 0o666 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok(listener)
}

fn listen_tcp(address: SocketAddr, key: &str) -> Result<StdTcpListener, String> {
    let cannot = |error: io::Error| {
        format!(
            "cannot listen on {address}: {error}; name another address in agent.toml, `[api] {key}`"
        )
    };
    let listener = StdTcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok(listener)
}

/// Serves an address over TCP, to everybody who reaches it.
async fn accept_tcp(listener: TcpListener, client: Client, most: usize, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            let problem = Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("too many connections: {most}"),
                "close some, and try again",
            );
            // It has the room of a fresh socket, so it is written at once or not at all.
            drop(stream.try_write(&refusal(&problem)));
            continue;
        };
        let (shared, client) = (Arc::clone(&shared), client.clone());
        tokio::spawn(async move {
            serve(stream, client, shared).await;
            drop(place);
        });
    }
}

/// Whether something listens at a socket's path.
fn is_alive(path: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(path).is_ok()
}

async fn accept(
    listener: UnixListener,
    access: Access,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<()>,
) {
    let connections = Users::default();
    let listening = Arc::new(Semaphore::new(shared.limits.refused));
    let mut stopped = pin!(stopped.changed());
    loop {
        let accepted = poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            listener.poll_accept(cx).map(Some)
        });
        let stream = match accepted.await {
            None => return,
            Some(Ok((stream, _))) => stream,
            Some(Err(_)) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        match admit(&stream, &access, &connections, &shared.limits) {
            Ok((client, place)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    serve(stream, client, shared).await;
                    drop(place);
                });
            }
            Err(problem) => match Arc::clone(&listening).try_acquire_owned() {
                Ok(listens) => {
                    let limits = shared.limits;
                    tokio::spawn(async move {
                        refuse(stream, problem, limits).await;
                        drop(listens);
                    });
                }
                // It has the room of a fresh socket, so it is written at once or not at all.
                Err(_) => drop(stream.try_write(&refusal(&problem))),
            },
        }
    }
}

/// Open connections of users. All others together cannot take those of root.
#[derive(Debug, Default)]
struct Users {
    root: Connections<u32>,
    others: Connections<u32>,
}

impl Users {
    fn enter(&self, uid: u32, limits: &Limits) -> Option<Place<u32>> {
        match uid {
            0 => self.root.enter(uid, limits.of_user, limits.of_user),
            _ => self.others.enter(uid, limits.of_user, limits.connections),
        }
    }
}

/// Whether a peer may talk.
fn admit(
    stream: &UnixStream,
    access: &Access,
    connections: &Users,
    limits: &Limits,
) -> Result<(Client, Place<u32>), Problem> {
    let found = stream.peer_cred().map_err(|error| {
        Problem::new(
            StatusCode::FORBIDDEN,
            format!("your credentials cannot be read: {error}"),
            "connect to the socket from this host",
        )
    })?;
    // Groups that cannot be read give no role.
    let mut groups = weir_kernel::peer::peer_groups(stream.as_fd()).unwrap_or_default();
    groups.push(found.gid());
    let peer = Peer {
        uid: found.uid(),
        groups,
    };
    let Some(role) = access.role(&peer) else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            format!("user {} has no role here", peer.uid),
            "connect as root, or as a member of `read-group` or `operate-group` of agent.toml, `[api]`",
        ));
    };
    let Some(place) = connections.enter(peer.uid, limits) else {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "too many connections: {} of one user, {} of all",
                limits.of_user, limits.connections
            ),
            "close some, and try again",
        ));
    };
    let client = Client {
        who: Who::User(peer.uid),
        role,
        listener: Listener::Socket,
    };
    Ok((client, place))
}
