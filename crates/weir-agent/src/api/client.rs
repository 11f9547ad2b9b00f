//! A client of an agent, for commands: by its socket on this host, by TLS from another. One connection, used again as long as it lives.

use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, ClientConfig};
use weir_store::tls::{Endpoint, Identity, TlsError};

use super::events::ALIVE;
use super::payload::Payload;

/// Longer than the agent takes for any request.
const PATIENCE: Duration = Duration::from_secs(150);

/// Longest wait for a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(10);

/// Longest answer.
const MOST: usize = 64 << 20;

/// Longest event.
const MOST_EVENT: usize = 1 << 20;

/// Longest silence of an event stream, on which the agent sends keepalives: after it the host counts as lost, though TCP has not noticed.
const SILENCE: Duration = ALIVE.saturating_mul(3);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens there.
    #[error("cannot reach the agent at {place}: {error}; {next}")]
    Unreachable {
        /// The socket, or the address.
        place: String,
        /// Why.
        error: String,
        /// What to do.
        next: &'static str,
    },
    /// Both ends do not agree on certificates.
    #[error("no TLS connection with the agent at {place}: {error}; {next}")]
    Tls {
        /// The address.
        place: String,
        /// Why.
        error: String,
        /// What to do.
        next: &'static str,
    },
    /// The connection broke, or the answer is not that of an agent.
    #[error("the agent at {place} gave no answer: {why}")]
    Broken {
        /// The socket, or the address.
        place: String,
        /// Why.
        why: String,
    },
    /// The agent refused the request.
    #[error("{detail}: {next}")]
    Refused {
        /// Status of the answer.
        status: u16,
        /// What is wrong.
        detail: String,
        /// What to do.
        next: String,
    },
}

impl ClientError {
    /// Whether the same request may be answered later: the agent has too much to do, or is not there.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            ClientError::Refused { status, .. } => [429, 503].contains(status),
            ClientError::Tls { .. } => false,
            ClientError::Unreachable { .. } | ClientError::Broken { .. } => true,
        }
    }
}

/// Where an agent is.
#[derive(Clone, Debug)]
pub enum Target {
    /// On this host.
    Socket(PathBuf),
    /// On any host.
    Tls {
        /// Its address.
        endpoint: Endpoint,
        /// Keys and certificates.
        config: Arc<ClientConfig>,
    },
}

impl Target {
    /// By TLS, with the authority that the agent's certificate is verified with, and what this client shows.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn tls(endpoint: Endpoint, ca: &Path, identity: Identity<'_>) -> Result<Target, TlsError> {
        let config = weir_store::tls::client(ca, Some(identity))?;
        Ok(Target::Tls { endpoint, config })
    }

    /// As it is named in messages.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Target::Socket(path) => path.display().to_string(),
            Target::Tls { endpoint, .. } => endpoint.to_string(),
        }
    }
}

/// A client of one agent.
pub struct AgentClient {
    target: Target,
    runtime: Runtime,
    open: Option<Open>,
}

/// An open connection. Dropping it ends it.
struct Open {
    sender: SendRequest<Payload>,
    driver: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl AgentClient {
    /// Connects with the first request.
    ///
    /// # Errors
    /// The process lacks file descriptors.
    pub fn new(target: Target) -> Result<AgentClient, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ClientError::Unreachable {
            place: target.place(),
            error: error.to_string(),
            next: "raise the limit of open files (`ulimit -n`)",
        })?;
        Ok(AgentClient {
            target,
            runtime,
            open: None,
        })
    }

    /// Where the agent is, as it is named in messages.
    #[must_use]
    pub fn place(&self) -> String {
        self.target.place()
    }

    /// Gets JSON.
    ///
    /// # Errors
    /// The agent cannot be reached, or refused the request.
    pub fn get(&mut self, path: &str) -> Result<Value, ClientError> {
        self.ask(Method::GET, path, None)
    }

    /// Gets what commands print.
    ///
    /// # Errors
    /// As of [`AgentClient::get`].
    pub fn text(&mut self, path: &str) -> Result<String, ClientError> {
        let bytes = self.exchange(Method::GET, path, None, "text/plain")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends a request, and returns the JSON of the answer.
    ///
    /// # Errors
    /// As of [`AgentClient::get`].
    pub fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let bytes = self.exchange(method, path, body, "application/json")?;
        serde_json::from_slice(&bytes).map_err(|error| self.broken(error))
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Broken {
            place: self.place(),
            why: why.to_string(),
        }
    }

    fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        accept: &str,
    ) -> Result<Vec<u8>, ClientError> {
        let request = request(&self.target, method, path, body, accept)
            .map_err(|error| self.broken(error))?;
        let (target, open) = (&self.target, self.open.take());
        let work = async {
            let mut open = open_again(target, open).await?;
            let answer = send(target, &mut open, request).await?;
            let status = answer.status();
            let bytes = whole(target, answer.into_body()).await?;
            Ok((open, status, bytes))
        };
        let done = self
            .runtime
            .block_on(async { timeout(PATIENCE, work).await });
        let Ok(done) = done else {
            return Err(self.broken(format!("none within {} s", PATIENCE.as_secs())));
        };
        let (open, status, bytes) = done?;
        self.open = Some(open);
        match status {
            StatusCode::OK => Ok(bytes),
            _ => Err(self.refused(status, &bytes)),
        }
    }

    /// The events of a stream.
    ///
    /// # Errors
    /// As of [`AgentClient::get`].
    pub fn follow(&mut self, path: &str) -> Result<Events<'_>, ClientError> {
        let request = request(&self.target, Method::GET, path, None, "text/event-stream")
            .map_err(|error| self.broken(error))?;
        let target = &self.target;
        let work = async {
            // The stream takes the connection for itself.
            let mut open = open_again(target, None).await?;
            let answer = send(target, &mut open, request).await?;
            Ok((open, answer))
        };
        let done = self
            .runtime
            .block_on(async { timeout(CONNECT, work).await });
        let Ok(done) = done else {
            return Err(self.broken(format!("none within {} s", CONNECT.as_secs())));
        };
        let (open, answer) = done?;
        let status = answer.status();
        if status != StatusCode::OK {
            let body = whole(&self.target, answer.into_body());
            let read = self
                .runtime
                .block_on(async { timeout(CONNECT, body).await });
            return Err(match read {
                Ok(bytes) => self.refused(status, &bytes?),
                Err(_) => self.broken(format!("status {status}")),
            });
        }
        Ok(Events {
            client: self,
            body: answer.into_body(),
            held: Vec::new(),
            heard: Instant::now(),
            silence: SILENCE,
            _open: open,
        })
    }

    fn refused(&self, status: StatusCode, bytes: &[u8]) -> ClientError {
        let problem: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let text = |name: &str| problem.get(name).and_then(Value::as_str);
        match (text("detail"), text("next")) {
            (Some(detail), Some(next)) => ClientError::Refused {
                status: status.as_u16(),
                detail: detail.to_owned(),
                next: next.to_owned(),
            },
            _ => self.broken(format!("status {status}")),
        }
    }
}

/// Events as they come.
pub struct Events<'c> {
    client: &'c AgentClient,
    body: Incoming,
    held: Vec<u8>,
    /// When the last bytes came.
    heard: Instant,
    silence: Duration,
    _open: Open,
}

impl Events<'_> {
    /// The data of the next event; `None`: none came in that time.
    ///
    /// # Errors
    /// The stream ended, or its keepalives did.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Value>, ClientError> {
        loop {
            if let Some(value) = self.take_held()? {
                return Ok(Some(value));
            }
            if self.held.len() > MOST_EVENT {
                return Err(self.client.broken("an event without end"));
            }
            let body = &mut self.body;
            let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
            let got = self
                .client
                .runtime
                .block_on(async { timeout(wait, frame).await });
            match got {
                Err(_) if self.heard.elapsed() < self.silence => return Ok(None),
                Err(_) => {
                    let seconds = self.silence.as_secs_f64();
                    return Err(self.client.broken(format!("silent for {seconds} s")));
                }
                Ok(None) => return Err(self.client.broken("it ended the stream")),
                Ok(Some(Err(error))) => {
                    return Err(failed(&self.client.target, &error));
                }
                Ok(Some(Ok(frame))) => {
                    self.heard = Instant::now();
                    let data = frame.into_data().unwrap_or_default();
                    self.held.extend_from_slice(&data);
                }
            }
        }
    }

    /// The data of the first whole event that was received; comments and other fields are skipped.
    fn take_held(&mut self) -> Result<Option<Value>, ClientError> {
        while let Some(end) = self.held.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.held.drain(..end + 2).collect();
            let mut lines = event.split(|byte| *byte == b'\n');
            if let Some(data) = lines.find_map(|line| line.strip_prefix(b"data: ")) {
                let value = serde_json::from_slice(data);
                return value.map(Some).map_err(|error| self.client.broken(error));
            }
        }
        Ok(None)
    }
}

fn request(
    target: &Target,
    method: Method,
    path: &str,
    body: Option<&Value>,
    accept: &str,
) -> Result<Request<Payload>, hyper::http::Error> {
    let host = match target {
        Target::Socket(_) => "weir".to_owned(),
        Target::Tls { endpoint, .. } => endpoint.authority(),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, host)
        .header(ACCEPT, accept);
    let bytes = body.map(|body| Bytes::from(body.to_string()));
    if bytes.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request.body(Payload::Whole(bytes))
}

/// The connection as it is, if it can still be used, or another.
async fn open_again(target: &Target, open: Option<Open>) -> Result<Open, ClientError> {
    if let Some(mut open) = open {
        // What the agent closed meanwhile is seen when its driver runs.
        tokio::task::yield_now().await;
        if open.sender.ready().await.is_ok() {
            return Ok(open);
        }
    }
    match timeout(CONNECT, connect(target)).await {
        Ok(done) => done,
        Err(_) => Err(unreachable(
            target,
            format!("no connection within {} s", CONNECT.as_secs()),
        )),
    }
}

async fn connect(target: &Target) -> Result<Open, ClientError> {
    match target {
        Target::Socket(path) => {
            let stream = UnixStream::connect(path).await;
            talk(target, stream.map_err(|error| unreachable(target, error))?).await
        }
        Target::Tls { endpoint, config } => {
            let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
                .await
                .map_err(|error| unreachable(target, error))?;
            stream
                .set_nodelay(true)
                .map_err(|error| unreachable(target, error))?;
            let name = ServerName::try_from(endpoint.host.clone())
                .map_err(|error| unreachable(target, error))?;
            let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream);
            let stream = stream.await.map_err(|error| failed(target, &error))?;
            talk(target, stream).await
        }
    }
}

async fn talk<T>(target: &Target, stream: T) -> Result<Open, ClientError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(target, &error))?;
    let driver = tokio::spawn(async move {
        // Its end is seen by whoever waits for an answer.
        let _ = connection.await;
    });
    Ok(Open { sender, driver })
}

async fn send(
    target: &Target,
    open: &mut Open,
    request: Request<Payload>,
) -> Result<hyper::Response<Incoming>, ClientError> {
    let answer = open.sender.send_request(request).await;
    answer.map_err(|error| failed(target, &error))
}

async fn whole(target: &Target, mut body: Incoming) -> Result<Vec<u8>, ClientError> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| failed(target, &error))?;
        bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
        if bytes.len() > MOST {
            return Err(ClientError::Broken {
                place: target.place(),
                why: format!("more than {MOST} bytes"),
            });
        }
    }
    Ok(bytes)
}

fn unreachable(target: &Target, error: impl ToString) -> ClientError {
    let next = match target {
        Target::Socket(_) => {
            "start it with `systemctl start weir-agent`, or name its socket with --socket"
        }
        Target::Tls { .. } => {
            "check the address, a firewall in between, and `[api] listen` of agent.toml there"
        }
    };
    ClientError::Unreachable {
        place: target.place(),
        error: error.to_string(),
        next,
    }
}

/// Why a connection failed: where TLS is the reason, with what to do.
fn failed(target: &Target, error: &(dyn std::error::Error + 'static)) -> ClientError {
    let place = target.place();
    let Some(tls) = tls_error(error) else {
        let why = match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        return ClientError::Broken { place, why };
    };
    let next = match tls {
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                "it does not trust the authority of your certificate: use one that `client-ca` of its agent.toml has signed"
            }
            AlertDescription::CertificateExpired => "your certificate has expired: renew it",
            AlertDescription::CertificateRequired => {
                "it wants a certificate: give one with --cert and --key"
            }
            _ => "it refused your certificate: check that it is for TLS clients, and valid now",
        },
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired: renew it there",
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another name: use the name that the certificate has",
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "no authority of --ca has signed its certificate: give the file of the one that did",
        _ => "check that an agent of weir serves TLS there",
    };
    ClientError::Tls {
        place,
        error: tls.to_string(),
        next,
    }
}

/// What TLS says of an error, through all that wraps it.
fn tls_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        at = match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_silent_stream_is_lost() {
        let path = std::env::temp_dir().join(format!("weir-silent-{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a free path");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            // A response in front of its request is an error of the protocol.
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a request");
                request.extend(byte);
            }
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head).expect("sent");
            // Until the client gives up.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let mut client = AgentClient::new(Target::Socket(path.clone())).expect("a client");
        let mut events = client.follow("/v1/events").expect("a stream");
        events.silence = Duration::from_millis(200);
        let tick = Duration::from_millis(20);
        let begin = Instant::now();
        let error = loop {
            match events.next(tick) {
                Ok(event) => assert_eq!(event, None),
                Err(error) => break error,
            }
            assert!(begin.elapsed() < CONNECT, "it waits for ever");
        };
        assert!(error.to_string().contains("silent for"), "{error}");
        // The connection closes with its runtime.
        drop(events);
        drop(client);
        server.join().expect("it saw the end");
        let _ = std::fs::remove_file(&path);
    }
}
