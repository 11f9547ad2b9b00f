//! One request and its answer: route, role, arguments, and the work that it asks for.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue,
    WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weir_runtime::history::{Author, user_name};

use super::access::{Listener, Role};
use super::asks::{self, Ask, Task};
use super::events;
use super::host::Host;
use super::hub::{self, Hub};
use super::limits::Limits;
use super::openapi::document;
use super::page;
use super::payload::Payload;
use super::problem::{MEDIA, Problem};
use super::routes::{self, Arguments, Call, OPENMETRICS, Route};
use super::sessions::{self, Owner, Sessions};
use crate::event::Event;
use crate::settings::Edits;

/// Media type of answers.
const JSON: &str = "application/json";

/// Media type of what commands print.
const TEXT: &str = "text/plain; charset=utf-8";

/// Media type of event streams.
const STREAM: &str = "text/event-stream";

/// Seconds: the confirmation timeout of an apply, and the duration of a watch of drops.
const CONFIRM: RangeInclusive<u64> = 5..=3600;
const WATCH: RangeInclusive<u64> = 1..=30;

/// Connections that are listed of each table: by default, and at most.
const LISTED: u64 = 100;
const LISTED_MOST: u64 = 1000;

/// Whose request it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A TCP client without a session.
    Anonymous,
    /// A user of this host.
    User(u32),
    /// The owner of a certificate, by the name that gives it its role.
    Certificate(Arc<str>),
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) who: Who,
    pub(super) role: Role,
    pub(super) listener: Listener,
}

impl Client {
    /// Whoever reaches the address of the metrics.
    pub(super) const SCRAPER: Client = Client {
        who: Who::Anonymous,
        role: Role::Metrics,
        listener: Listener::Metrics,
    };
    /// Whoever reaches the address of the page, before it says whose session it has.
    pub(super) const VISITOR: Client = Client {
        who: Who::Anonymous,
        role: Role::Guest,
        listener: Listener::Page,
    };
}

/// A client with what its session says.
#[derive(Clone, Debug)]
struct Known {
    client: Client,
    /// Its token, and how long it is valid yet.
    session: Option<(String, Duration)>,
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
    /// The one that watches drops, which takes seconds.
    watcher: Arc<Semaphore>,
    sessions: Arc<Sessions>,
    /// The address of the page.
    page: Option<SocketAddr>,
}

impl Shared {
    pub(super) fn new(
        hub: Arc<Hub>,
        host: Arc<dyn Host>,
        asks: SyncSender<Ask>,
        limits: Limits,
        page: Option<SocketAddr>,
    ) -> Shared {
        Shared {
            hub,
            host,
            asks,
            limits,
            reader: Arc::new(Semaphore::new(1)),
            waiting: Semaphore::new(limits.waiting),
            watcher: Arc::new(Semaphore::new(1)),
            sessions: Arc::default(),
            page,
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
    /// Watches drops beside what reads the host.
    async fn watch(&self, edge: String, time: Duration) -> Result<Value, Problem> {
        let Ok(turn) = Arc::clone(&self.watcher).try_acquire_owned() else {
            return Err(busy("another watch of drops is running"));
        };
        let host = Arc::clone(&self.host);
        let work = move || {
            let _turn = turn;
            host.drops(&edge, time)
        };
        match timeout(time + self.limits.answer_time, spawn_blocking(work)).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(Problem::failed(format!("the work ended: {error}"))),
            Err(_) => Err(busy("drops could not be watched in time")),
        }
    }

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

/// What a request is answered with.
pub(super) async fn answer(
    shared: &Shared,
    client: Client,
    request: Request<Incoming>,
) -> Response<Payload> {
    let listener = client.listener;
    let mut response = match routed(shared, client, request).await {
        Ok(response) => response,
        Err((problem, allowed)) => refused(&problem, allowed),
    };
    let headers = response.headers_mut();
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if listener == Listener::Page {
        page::protect(headers);
    }
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
    if problem.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
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
    let plain = |problem| (problem, None);
    if client.listener == Listener::Page {
        page::check_host(&head).map_err(plain)?;
        if let Some(response) = page::file(&head) {
            return Ok(response);
        }
        page::check_origin(&head.headers, "http://").map_err(plain)?;
    }
    // A browser shows a certificate to whatever site sends it here.
    if client.listener == Listener::Remote {
        page::check_origin(&head.headers, "https://").map_err(plain)?;
    }
    let (route, mut arguments) = routes::find(&head.method, head.uri.path())?;
    let known = identified(shared, client, &head.headers).map_err(plain)?;
    admitted(&known.client, route, head.uri.path()).map_err(plain)?;
    let query = head.uri.query().unwrap_or_default();
    routes::query(route, query, &mut arguments).map_err(plain)?;
    if head.method == Method::POST {
        let bytes = collect(body, &head.headers, &shared.limits)
            .await
            .map_err(plain)?;
        routes::body(route, &bytes, &mut arguments).map_err(plain)?;
    }
    called(shared, &known, route, arguments, &head.headers)
        .await
        .map_err(plain)
}

/// A client with its session, where there are sessions and it has one.
///
/// # Errors
/// 401: its session is over.
fn identified(shared: &Shared, client: Client, headers: &HeaderMap) -> Result<Known, Problem> {
    let given = headers
        .get(AUTHORIZATION)
        .filter(|_| client.listener == Listener::Page);
    let Some(given) = given else {
        let session = None;
        return Ok(Known { client, session });
    };
    let token = given
        .to_str()
        .ok()
        .and_then(|text| text.strip_prefix("Bearer "));
    let token = token.unwrap_or_default().trim();
    let Some((owner, left)) = shared.sessions.find(token, Instant::now()) else {
        return Err(unknown("the session is over"));
    };
    let client = Client {
        who: Who::User(owner.uid),
        role: owner.role,
        ..client
    };
    let session = Some((token.to_owned(), left));
    Ok(Known { client, session })
}

/// 401: the client is not authenticated.
fn unknown(detail: &str) -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        detail,
        "run `weir page` on the host for a login link",
    )
}

/// Whether a client may use a route here.
fn admitted(client: &Client, route: &Route, path: &str) -> Result<(), Problem> {
    let forbidden =
        |detail: String, next: String| Err(Problem::new(StatusCode::FORBIDDEN, detail, next));
    let is_here = route
        .listener
        .is_none_or(|listener| listener == client.listener);
    let may = client.role >= route.role;
    let role = route.role.name();
    match (client.listener, &client.who) {
        (Listener::Metrics, _) if !may || !is_here => forbidden(
            format!("{path} is not served over TCP"),
            "GET /metrics here; connect to the Unix socket of the agent for the rest".to_owned(),
        ),
        (Listener::Page, Who::Anonymous) if !may => Err(unknown("not logged in")),
        (_, Who::Certificate(name)) if !may => forbidden(
            format!("the certificate of `{name}` has not the role {role}"),
            format!("give it the role in `[api.clients]` of agent.toml: `\"{name}\" = \"{role}\"`"),
        ),
        (_, Who::User(uid)) if !may => forbidden(
            format!("user {uid} has not the role {role}"),
            format!("connect as root, or as a member of `{role}-group` of agent.toml, `[api]`"),
        ),
        (Listener::Socket, _) if !is_here => forbidden(
            format!("{path} is of the page"),
            "the socket needs no session: send the request without one".to_owned(),
        ),
        (Listener::Page | Listener::Remote, _) if !is_here => forbidden(
            format!("{path} is not served at this address"),
            "connect to the Unix socket of the agent".to_owned(),
        ),
        _ => Ok(()),
    }
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
    known: &Known,
    route: &Route,
    arguments: Arguments,
    headers: &HeaderMap,
) -> Result<Response<Payload>, Problem> {
    let client = &known.client;
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
        Call::Try => {
            let limit = seconds(&arguments, "confirm", 60, CONFIRM)?;
            let view = shared.hub.current();
            if view.edits == Edits::Revert {
                return Err(Problem::conflict(
                    "the agent reverts edits: it would apply the file again when the former state comes back",
                    "set `edits = \"report\"` in agent.toml, or POST /v1/apply",
                ));
            }
            let file = file(shared, &edge)?;
            let author = Author {
                user: user(client),
                command: format!("POST {}", route.path.replace("{edge}", &edge)),
            };
            let work = move |host: &dyn Host| {
                let value = host.try_out(&edge, &file, limit, &author)?;
                let event = Event::Requested {
                    edge: Some(edge),
                    what: format!("apply, to be confirmed within {} s", limit.as_secs()),
                    user: author.user,
                };
                Ok((value, Some(event)))
            };
            shared.change(Task::Run(Box::new(work))).await?
        }
        Call::Drops => {
            let time = seconds(&arguments, "seconds", 5, WATCH)?;
            let event = Event::Requested {
                edge: Some(edge.clone()),
                what: format!("watch drops for {} s", time.as_secs()),
                user: user(client),
            };
            // It changes the programs that run while it lasts: the agent's log has it.
            let work = move |_: &dyn Host| Ok((Value::Null, Some(event)));
            shared.change(Task::Run(Box::new(work))).await?;
            shared.watch(edge, time).await?
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
            let file = file(shared, &edge)?;
            shared.read(move |host| host.plan(&file)).await?
        }
        Call::Document => document(),
        Call::Logs => {
            let since = arguments
                .number("seconds")
                .map_or(0, |seconds| hub::now().saturating_sub(seconds));
            shared
                .hub
                .log(arguments.number("after").unwrap_or(0), since)
        }
        Call::Events => return Ok(stream(shared, known, &arguments, headers)),
        Call::Metrics => {
            let view = shared.hub.current();
            let text = shared.read(move |host| host.metrics(&view)).await?;
            return Ok(whole(OPENMETRICS, text.into()));
        }
        Call::Status | Call::Edge => {
            let with_hits = arguments.flag("hits");
            let edge = (route.call == Call::Edge).then_some(edge);
            if wants_text(headers) {
                let work = move |host: &dyn Host| host.status_text(edge.as_deref(), with_hits);
                return Ok(whole(TEXT, shared.read(work).await?.into()));
            }
            shared
                .read(move |host| host.status(edge.as_deref(), with_hits))
                .await?
        }
        Call::Graph => shared.read(move |host| host.graph(&edge)).await?,
        Call::Waiting => shared.read(move |host| host.waiting(&edge)).await?,
        Call::Connections => {
            let function = arguments.given("function").map(str::to_owned);
            let limit = arguments.number("limit").unwrap_or(LISTED);
            let limit = limit.min(LISTED_MOST) as usize;
            let work = move |host: &dyn Host| host.connections(&edge, function.as_deref(), limit);
            shared.read(work).await?
        }
        Call::Session => {
            let left = known.session.as_ref().map(|(_, left)| left.as_secs());
            json!({ "user": user(client), "role": client.role.name(), "seconds": left.unwrap_or(0) })
        }
        Call::Link => link(shared, client).await?,
        Call::Login => login(shared, &arguments)?,
        Call::Logout => {
            if let Some((token, _)) = &known.session {
                shared.sessions.end(token);
            }
            json!({ "ended": true })
        }
        Call::History => shared.read(move |host| host.history(&edge, None)).await?,
        Call::Change => {
            let number = arguments.number("number").map(|number| number as u32);
            shared.read(move |host| host.history(&edge, number)).await?
        }
    };
    Ok(json(&value))
}

/// Whether text is asked for, and not JSON. The order of preference is the client's: what it names first.
fn wants_text(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let mut media = accepted
        .unwrap_or_default()
        .split(',')
        .map(|one| one.split(';').next().unwrap_or_default().trim());
    media.find_map(|one| match one {
        "text/plain" | "text/*" => Some(true),
        JSON | "application/*" | "*/*" => Some(false),
        _ => None,
    }) == Some(true)
}

/// The file that an edge is held to.
fn file(shared: &Shared, edge: &str) -> Result<PathBuf, Problem> {
    shared.hub.file_of(edge).ok_or_else(|| {
        Problem::not_found(
            format!("no file of the agent declares edge {edge}"),
            "GET /v1/agent lists its files",
        )
    })
}

/// An argument that is a time in seconds.
fn seconds(
    arguments: &Arguments,
    name: &str,
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<Duration, Problem> {
    let seconds = arguments.number(name).unwrap_or(default);
    if range.contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    let (least, most) = (range.start(), range.end());
    Err(Problem::new(
        StatusCode::BAD_REQUEST,
        format!("`{name}` is {seconds}"),
        format!("give {least} to {most} seconds"),
    ))
}

/// A login link with the role of whoever asks for it. The agent's log has it: a link is a way in.
async fn link(shared: &Shared, client: &Client) -> Result<Value, Problem> {
    let (Some(address), &Who::User(uid)) = (shared.page, &client.who) else {
        return Err(Problem::conflict(
            "no page is served",
            "name its address in agent.toml: `[api] page = \"127.0.0.1:9478\"`",
        ));
    };
    let owner = Owner {
        uid,
        role: client.role,
    };
    let sessions = Arc::clone(&shared.sessions);
    let event = Event::Requested {
        edge: None,
        what: format!("login link for the page, role {}", owner.role.name()),
        user: user(client),
    };
    let work = move |_: &dyn Host| {
        let code = sessions.link(owner, Instant::now()).map_err(random)?;
        let value = json!({
            "url": format!("http://{address}/#login={code}"),
            "seconds": sessions::LINK_TIME.as_secs(),
            "role": owner.role.name(),
        });
        Ok((value, Some(event)))
    };
    shared.change(Task::Run(Box::new(work))).await
}

fn login(shared: &Shared, arguments: &Arguments) -> Result<Value, Problem> {
    let opened = shared
        .sessions
        .open(arguments.text("code"), Instant::now())
        .map_err(random)?;
    let Some((token, owner)) = opened else {
        return Err(unknown("the login link was used, or has expired"));
    };
    Ok(json!({
        "token": token,
        "user": user_name(owner.uid),
        "role": owner.role.name(),
        "seconds": sessions::SESSION_TIME.as_secs(),
    }))
}

fn random(error: std::io::Error) -> Problem {
    Problem::failed(format!("no random bytes: {error}"))
}

/// Who asks, by name. Names of certificates are not those of users.
fn user(client: &Client) -> String {
    match &client.who {
        Who::Anonymous => String::new(),
        Who::User(uid) => user_name(*uid),
        Who::Certificate(name) => format!("tls:{name}"),
    }
}

/// Events after the number that is given, or after the newest.
fn stream(
    shared: &Shared,
    known: &Known,
    arguments: &Arguments,
    headers: &HeaderMap,
) -> Response<Payload> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.and_then(|id| id.trim().parse::<u64>().ok());
    let after = last.or(arguments.number("after"));
    let after = after.unwrap_or_else(|| shared.hub.newest());
    let sessions = Arc::clone(&shared.sessions);
    let token = known.session.as_ref().map(|(token, _)| token.clone());
    let may_go_on = move || {
        let is_open = |token: &String| sessions.is_open(token, Instant::now());
        token.as_ref().is_none_or(is_open)
    };
    let receiver = events::stream(Arc::clone(&shared.hub), after, may_go_on);
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
