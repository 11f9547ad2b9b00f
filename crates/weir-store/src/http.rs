//! One connection to a member of the cluster: TLS 1.2 or newer, HTTP/1.1, JSON. Every wait has a limit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::settings::Settings;
use crate::tls::{self, Endpoint, Identity, TlsError};

/// Longest wait for a connection, TLS included, and for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Largest answer that is accepted: no reading of one edge is near it.
const LARGEST_ANSWER: usize = 256 << 20;

/// Largest message of a watch.
const LARGEST_MESSAGE: usize = 64 << 20;

/// What goes wrong with the store. Nothing of it changes what an edge forwards.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file of the settings.
    #[error("[store]: {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// No member answered.
    #[error(
        "no member of the store answers ({why}): check `endpoints` of [store], and `etcdctl endpoint health`"
    )]
    Unreachable {
        /// Of each, why.
        why: String,
    },
    /// A member refused a request.
    #[error("{endpoint}: etcd refused the request: {text}")]
    Refused {
        /// The member.
        endpoint: String,
        /// Its code, of gRPC.
        code: u64,
        /// Its text.
        text: String,
    },
    /// An answer is not what etcd's API says.
    #[error("{endpoint}: not an answer of etcd 3.4 or newer: {why}")]
    Answer {
        /// The member.
        endpoint: String,
        /// What is wrong.
        why: String,
    },
    /// Revisions that a watch asked for are compacted: read again.
    #[error("the store has compacted revision {revision}")]
    Compacted {
        /// The oldest revision that is left.
        revision: i64,
    },
    /// An entry is not of this layout.
    #[error(
        "the entry {key} of the store cannot be read ({why}): another version of weir wrote it, or something else"
    )]
    Entry {
        /// Its key.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// Another command changed the same entries meanwhile.
    #[error("modified concurrently: {what}; try again")]
    Conflict {
        /// What was changed.
        what: String,
    },
}

impl From<TlsError> for StoreError {
    fn from(TlsError { path, why }: TlsError) -> StoreError {
        StoreError::File { path, why }
    }
}

/// Keys and certificates, read once.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    pub(crate) fn of(settings: &Settings) -> Result<Tls, StoreError> {
        let identity = match (&settings.cert, &settings.key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            _ => None,
        };
        Ok(Tls(tls::client(&settings.ca, identity)?))
    }
}

/// A connection. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Connection {
    endpoint: String,
    host: String,
    sender: SendRequest<Whole>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What goes wrong with a connection: the text says what, the caller tries the next member.
pub(crate) type Broken = String;

impl Connection {
    pub(crate) async fn open(endpoint: &Endpoint, tls: &Tls) -> Result<Connection, Broken> {
        match timeout(PATIENCE, Connection::opened(endpoint, tls)).await {
            Ok(done) => done.map_err(|why| format!("{endpoint}: {why}")),
            Err(_) => Err(format!(
                "{endpoint}: no answer within {} s",
                PATIENCE.as_secs()
            )),
        }
    }

    async fn opened(endpoint: &Endpoint, tls: &Tls) -> Result<Connection, Broken> {
        let told = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
            .await
            .map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        let name =
            ServerName::try_from(endpoint.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::clone(&tls.0))
            .connect(name, stream)
            .await
            .map_err(told)?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let driver = tokio::spawn(async move {
            // Its end is seen by whoever waits for an answer.
            let _ = connection.await;
        });
        Ok(Connection {
            endpoint: endpoint.to_string(),
            host: endpoint.authority(),
            sender,
            driver,
        })
    }

    async fn send(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: Vec<u8>,
        is_last: bool,
    ) -> Result<(u16, Incoming), Broken> {
        let told = |error: hyper::Error| format!("{}: {error}", self.endpoint);
        self.sender.ready().await.map_err(told)?;
        let mut request = hyper::Request::post(path)
            .header("Host", &self.host)
            .header("Content-Type", "application/json");
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        if is_last {
            request = request.header("Connection", "close");
        }
        let request = request
            .body(Whole(Some(body.into())))
            .map_err(|error| format!("{}: {error}", self.endpoint))?;
        let answer = self.sender.send_request(request).await;
        let answer = answer.map_err(|error| format!("{}: {error}", self.endpoint))?;
        Ok((answer.status().as_u16(), answer.into_body()))
    }

    /// Asks, and waits for the whole answer.
    pub(crate) async fn ask(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: &Value,
    ) -> Result<(u16, Value), Broken> {
        let endpoint = self.endpoint.clone();
        let whole = async {
            let (status, mut body) = self
                .send(path, token, body.to_string().into_bytes(), false)
                .await?;
            let mut bytes = Vec::new();
            while let Some(more) = next_bytes(&mut body).await? {
                bytes.extend_from_slice(&more);
                if bytes.len() > LARGEST_ANSWER {
                    return Err(format!(
                        "{endpoint}: an answer of more than {LARGEST_ANSWER} bytes"
                    ));
                }
            }
            match serde_json::from_slice(&bytes) {
                Ok(value) => Ok((status, value)),
                Err(error) if status == 200 => Err(format!("{endpoint}: {error}")),
                // In front of the gateway etcd says in plain text why it refuses.
                Err(_) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let text = format!("status {status}: {}", text.trim());
                    Ok((status, serde_json::json!({ "message": text })))
                }
            }
        };
        match timeout(PATIENCE, whole).await {
            Ok(done) => done,
            Err(_) => Err(format!(
                "{endpoint}: no answer within {} s",
                PATIENCE.as_secs()
            )),
        }
    }

    /// Asks for an answer that goes on. The connection is for nothing else: before a server of Go begins to answer, it throws away what it has not
    /// read of a request, unless the connection ends with the answer. Without that, a part of what is to be watched is lost at random.
    pub(crate) async fn stream(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Lines, Broken> {
        let endpoint = self.endpoint.clone();
        match timeout(PATIENCE, self.send(path, token, body, true)).await {
            Ok(Ok((200, body))) => Ok(Lines {
                body,
                held: Vec::new(),
            }),
            Ok(Ok((status, _))) => Err(format!("{endpoint}: status {status} for {path}")),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(format!(
                "{endpoint}: no answer within {} s",
                PATIENCE.as_secs()
            )),
        }
    }
}

/// An answer that goes on: a JSON value a line.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    held: Vec<u8>,
}

impl Lines {
    /// The next one. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Value, Broken> {
        loop {
            if let Some(at) = self.held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.held.drain(..=at).collect();
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return serde_json::from_slice(&line).map_err(|error| error.to_string());
            }
            if self.held.len() > LARGEST_MESSAGE {
                return Err(format!("a message of more than {LARGEST_MESSAGE} bytes"));
            }
            match next_bytes(&mut self.body).await? {
                Some(more) => self.held.extend_from_slice(&more),
                None => return Err("the member ended the stream".to_owned()),
            }
        }
    }
}

/// The next part of a body; `None` at its end.
async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>, Broken> {
    loop {
        let frame = NextFrame(body).await;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

struct NextFrame<'b>(&'b mut Incoming);

impl Future for NextFrame<'_> {
    type Output = Option<Result<Frame<Bytes>, hyper::Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.0).poll_frame(context)
    }
}

/// A body that is there.
#[derive(Debug)]
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
