//! One request and its answer: route, role, arguments, and the work that it asks for.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weir_runtime::history::{Author, user_name};

use super::access::Role;
use super::asks::{self, Ask, Task};
use super::events;
use super::host::Host;
use super::hub::Hub;
use super::limits::Limits;
use super::openapi::document;
use super::problem::{MEDIA, Problem};
use super::routes::{self, Arguments, Call, OPENMETRICS, Route};
use crate::event::Event;

/// Media type of answers.
const JSON: &str = "application/json";

/// Media type of event streams.
const STREAM: &str = "text/event-stream";

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    /// `None`: over TCP, where nobody says who it is.
    pub(super) uid: Option<u32>,
    pub(super) role: Role,
}

/// What all requests share.
pub(super) struct Shared {
    hub: Arc<Hub>,
    host: Arc<dyn Host>,
    asks: SyncSender<Ask>,
    pub(super) limits: Limits,
    /// The one that reads the host.
    reader: Arc<Semaphore>,
    /// Those that wait for it.
    waiting: Semaphore,
}

impl Shared {
    pub(super) fn new(
        hub: Arc<Hub>,
        host: Arc<dyn Host>,
        asks: SyncSender<Ask>,
        limits: Limits,
    ) -> Shared {
        Shared {
            hub,
            host,
            asks,
            limits,
            reader: Arc::new(Semaphore::new(1)),
            waiting: Semaphore::new(limits.waiting),
        }
    }

    /// Work that reads the host. It blocks, so it has a thread; one at a time, so readers take one core at most.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Host) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let Ok(_waits) = self.waiting.try_acquire() else {
            return Err(busy("too many requests wait for their turn"));
        };
        let host = Arc::clone(&self.host);
        let reader = Arc::clone(&self.reader);
        let done = timeout(self.limits.answer_time, async move {
            // It is never closed.
            let turn = reader.acquire_owned().await;
            spawn_blocking(move || {
                let _turn = turn;
                work(&*host)
            })
            .await
        });
        match done.await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(Problem::failed(format!("the work ended: {error}"))),
            Err(_) => Err(busy("what runs could not be read in time")),
        }
    }
}

impl Shared {
    /// Has the agent's loop carry something out.
    async fn change(&self, task: Task) -> Result<Value, Problem> {
        let answer = asks::put(&self.asks, task)?;
        match timeout(self.limits.change_time, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(asks::ended()),
        }
    }
}

fn busy(detail: &str) -> Problem {
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        detail,
        "wait for the answer of a request before you send the next, or try again later",
    )
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Payload {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut *self {
            Payload::Whole(bytes) => Poll::Ready(bytes.take()),
            Payload::Stream(receiver) => receiver.poll_recv(cx),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Payload::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Payload::Stream(_) => SizeHint::default(),
        }
    }
}

/// What a request is answered with.
pub(super) async fn answer(
    shared: &Shared,
    client: Client,
    request: Request<Incoming>,
) -> Response<Payload> {
    let mut response = match routed(shared, client, request).await {
        Ok(response) => response,
        Err((problem, allowed)) => refused(&problem, allowed),
    };
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

/// A problem as an answer; of 405 with the methods that are allowed.
pub(super) fn refused(problem: &Problem, allowed: Option<String>) -> Response<Payload> {
    let mut response = whole(MEDIA, Bytes::from(problem.json().to_string()));
    *response.status_mut() = problem.status;
    let headers = response.headers_mut();
    if let Some(value) = allowed.and_then(|allowed| HeaderValue::from_str(&allowed).ok()) {
        headers.insert(ALLOW, value);
    }
    // What the client still sends is not read.
    if matches!(
        problem.status,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT
    ) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn routed(
    shared: &Shared,
    client: Client,
    request: Request<Incoming>,
) -> Result<Response<Payload>, (Problem, Option<String>)> {
    let (head, body) = request.into_parts();
    let (route, mut arguments) = routes::find(&head.method, head.uri.path())?;
    let plain = |problem| (problem, None);
    if client.role < route.role {
        let role = route.role.name();
        let (detail, next) = match client.uid {
            Some(uid) => (
                format!("user {uid} has not the role {role}"),
                format!("connect as root, or as a member of `{role}-group` of agent.toml, `[api]`"),
            ),
            None => (
                format!("{} is not served over TCP", head.uri.path()),
                "GET /metrics here; connect to the Unix socket of the agent for the rest"
                    .to_owned(),
            ),
        };
        return Err(plain(Problem::new(StatusCode::FORBIDDEN, detail, next)));
    }
    let query = head.uri.query().unwrap_or_default();
    routes::query(route, query, &mut arguments).map_err(plain)?;
    if head.method == Method::POST {
        let bytes = collect(body, &head.headers, &shared.limits)
            .await
            .map_err(plain)?;
        routes::body(route, &bytes, &mut arguments).map_err(plain)?;
    }
    called(shared, client, route, arguments, &head.headers)
        .await
        .map_err(plain)
}

/// A body within its limits.
async fn collect(
    mut body: Incoming,
    headers: &HeaderMap,
    limits: &Limits,
) -> Result<Vec<u8>, Problem> {
    let large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has more than {} bytes", limits.body),
            "send less: bodies hold a few arguments",
        )
    };
    if body.size_hint().lower() > limits.body as u64 {
        return Err(large());
    }
    let read = async {
        let mut bytes = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|error| {
                Problem::new(
                    StatusCode::BAD_REQUEST,
                    format!("the body cannot be read: {error}"),
                    "send a body of the length that its header says",
                )
            })?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            if bytes.len() + data.len() > limits.body {
                return Err(large());
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes)
    };
    let Ok(read) = timeout(limits.body_time, read).await else {
        return Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!(
                "the body was not there within {} s",
                limits.body_time.as_secs_f64()
            ),
            "send the body at once",
        ));
    };
    let bytes = read?;
    let media = headers
        .get(CONTENT_TYPE)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    let media = media.split(|byte| *byte == b';').next().unwrap_or_default();
    if !bytes.is_empty() && !media.trim_ascii().eq_ignore_ascii_case(JSON.as_bytes()) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body is not declared as JSON",
            format!("send the header `Content-Type: {JSON}`"),
        ));
    }
    Ok(bytes)
}

async fn called(
    shared: &Shared,
    client: Client,
    route: &Route,
    arguments: Arguments,
    headers: &HeaderMap,
) -> Result<Response<Payload>, Problem> {
    let edge = arguments.text("edge").to_owned();
    let value = match route.call {
        Call::Agent => shared.hub.view(),
        Call::Apply => {
            let event = Event::Requested {
                edge: None,
                what: "apply all files".to_owned(),
                user: user(client),
            };
            shared.change(Task::Apply(event)).await?
        }
        Call::Confirm => {
            let event = Event::Requested {
                edge: Some(edge.clone()),
                what: "confirm the change that waits".to_owned(),
                user: user(client),
            };
            let work = move |host: &dyn Host| Ok((host.confirm(&edge)?, Some(event)));
            shared.change(Task::Run(Box::new(work))).await?
        }
        Call::Rollback => {
            let (to, is_dry_run) = (arguments.number("to"), arguments.flag("dry_run"));
            // A number that is too large for one names no change.
            let to = to.map(|to| u32::try_from(to).unwrap_or(u32::MAX));
            let author = Author {
                user: user(client),
                command: format!("POST {}", route.path.replace("{edge}", &edge)),
            };
            let work = move |host: &dyn Host| {
                let value = host.rollback(&edge, to, is_dry_run, &author)?;
                let is_applied = value.get("applied").and_then(Value::as_bool) == Some(true);
                let event = is_applied.then(|| Event::Requested {
                    edge: Some(edge),
                    what: "rollback".to_owned(),
                    user: author.user,
                });
                Ok((value, event))
            };
            shared.change(Task::Run(Box::new(work))).await?
        }
        Call::Plan => {
            let Some(file) = shared.hub.file_of(&edge) else {
                return Err(Problem::not_found(
                    format!("no file of the agent declares edge {edge}"),
                    "GET /v1/agent lists its files",
                ));
            };
            shared.read(move |host| host.plan(&file)).await?
        }
        Call::Document => document(),
        Call::Events => return Ok(stream(shared, &arguments, headers)),
        Call::Metrics => {
            let view = shared.hub.current();
            let text = shared.read(move |host| host.metrics(&view)).await?;
            return Ok(whole(OPENMETRICS, text.into()));
        }
        Call::Status => shared.read(|host| host.status(None, false)).await?,
        Call::Edge => {
            let with_hits = arguments.flag("hits");
            shared
                .read(move |host| host.status(Some(&edge), with_hits))
                .await?
        }
        Call::History => shared.read(move |host| host.history(&edge, None)).await?,
        Call::Change => {
            let number = arguments.number("number").map(|number| number as u32);
            shared.read(move |host| host.history(&edge, number)).await?
        }
    };
    Ok(json(&value))
}

/// Who asks, by name.
fn user(client: Client) -> String {
    client.uid.map_or_else(String::new, user_name)
}

/// Events after the number that is given, or after the newest.
fn stream(shared: &Shared, arguments: &Arguments, headers: &HeaderMap) -> Response<Payload> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.and_then(|id| id.trim().parse::<u64>().ok());
    let after = last.or(arguments.number("after"));
    let after = after.unwrap_or_else(|| shared.hub.newest());
    let receiver = events::stream(Arc::clone(&shared.hub), after);
    with_media(STREAM, Payload::Stream(receiver))
}

fn json(value: &Value) -> Response<Payload> {
    whole(JSON, Bytes::from(value.to_string()))
}

fn whole(media: &'static str, bytes: Bytes) -> Response<Payload> {
    with_media(media, Payload::Whole(Some(bytes)))
}

fn with_media(media: &'static str, payload: Payload) -> Response<Payload> {
    let mut response = Response::new(payload);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
