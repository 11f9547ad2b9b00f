//! The API over real sockets, with a host that is made up and limits that are short.

mod page;
mod remote;

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use weir_runtime::history::Author;

use super::access::Access;
use super::asks;
use super::host::Host;
use super::hub::Hub;
use super::limits::Limits;
use super::problem::Problem;
use super::server::{Places, Server};
use super::{Api, Woken};
use crate::agent::View;
use crate::event::Event;
use crate::settings::{ApiSettings, Group, Socket};

/// Long enough for a host that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host whose one edge is `office`, and where reading `slow` takes long.
struct MadeUp;

impl Host for MadeUp {
    fn status(&self, edge: Option<&str>, with_hits: bool) -> Result<Value, Problem> {
        match edge {
            Some("slow") => std::thread::sleep(Duration::from_millis(600)),
            Some("broken") => panic!("a mistake"),
            Some(edge) if edge != "office" => return Err(Problem::not_found("none", "see")),
            _ => {}
        }
        Ok(json!({ "edges": [], "with_hits": with_hits, "padding": "x".repeat(4 << 20) }))
    }

    fn status_text(&self, edge: Option<&str>, with_hits: bool) -> Result<String, Problem> {
        self.status(edge, with_hits)
            .map(|_| format!("edge {edge:?}, with hits: {with_hits}\n"))
    }

    fn history(&self, edge: &str, number: Option<u32>) -> Result<Value, Problem> {
        Ok(json!({ "edge": edge, "number": number }))
    }

    fn graph(&self, edge: &str) -> Result<Value, Problem> {
        Ok(json!({ "edge": edge, "generation": 1, "nodes": [], "links": [] }))
    }

    fn connections(
        &self,
        edge: &str,
        function: Option<&str>,
        limit: usize,
    ) -> Result<Value, Problem> {
        Ok(json!({ "edge": edge, "function": function, "limit": limit, "tables": [] }))
    }

    fn waiting(&self, edge: &str) -> Result<Value, Problem> {
        Ok(json!({ "edge": edge, "waits": false, "seconds": 0 }))
    }

    fn plan(&self, file: &Path) -> Result<Value, Problem> {
        Ok(json!({ "edge": "office", "file": file, "lines": [] }))
    }

    fn try_out(
        &self,
        edge: &str,
        file: &Path,
        limit: Duration,
        author: &Author,
    ) -> Result<Value, Problem> {
        let seconds = limit.as_secs();
        Ok(json!({ "edge": edge, "file": file, "seconds": seconds, "author": author }))
    }

    fn drops(&self, edge: &str, time: Duration) -> Result<Value, Problem> {
        Ok(json!({ "edge": edge, "seconds": time.as_secs(), "packets": 0, "drops": [] }))
    }

    fn rollback(
        &self,
        edge: &str,
        to: Option<u32>,
        is_dry_run: bool,
        author: &Author,
    ) -> Result<Value, Problem> {
        Ok(json!({ "edge": edge, "to": to, "applied": !is_dry_run, "author": author }))
    }

    fn confirm(&self, edge: &str) -> Result<Value, Problem> {
        Err(Problem::conflict(
            format!("nothing waits at {edge}"),
            "apply",
        ))
    }

    fn metrics(&self, _: &View) -> Result<String, Problem> {
        Ok("# EOF\n".to_owned())
    }
}

/// A server, and its socket.
struct Bed {
    path: PathBuf,
    hub: Arc<Hub>,
    server: Option<Server>,
}

impl Bed {
    fn new(limits: Limits) -> Bed {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-api-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name).join("agent.sock");
        let hub = Arc::<Hub>::default();
        let server = start(&path, limits, &hub).expect("it starts");
        Bed {
            path,
            hub,
            server: Some(server),
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        match stream.write_all(request.as_bytes()) {
            Ok(()) => {}
            // It was refused, and said so, before it could ask.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => panic!("{error}"),
        }
        rest(&mut stream)
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n"))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.server.take());
        assert!(!self.path.exists(), "the socket goes with the server");
        if let Some(folder) = self.path.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The user of this process may do everything, root or not.
fn start(path: &Path, limits: Limits, hub: &Arc<Hub>) -> Result<Server, String> {
    let own = rustix::process::getgid().as_raw();
    let access = Access {
        read: None,
        operate: Some(own),
    };
    let places = Places {
        socket: Some(path.to_owned()),
        access,
        ..Places::default()
    };
    let (queue, _) = asks::queue();
    Server::start(&places, limits, Arc::clone(hub), Arc::new(MadeUp), queue)
}

/// All until the other end closes, by whatever means.
fn rest(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
    }
    String::from_utf8(bytes).expect("UTF-8")
}

#[track_caller]
fn is_problem(answer: &str, status: u16) -> Value {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let head = head.to_lowercase();
    assert!(
        head.contains("content-type: application/problem+json"),
        "{head}"
    );
    let problem: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(problem["status"], status);
    for member in ["title", "detail", "next"] {
        assert!(
            problem[member]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{problem}"
        );
    }
    problem
}

#[test]
fn requests_are_answered_or_refused_with_the_next_step() {
    let bed = Bed::new(Limits::default());
    assert!(
        bed.get("/metrics")
            .contains("openmetrics-text; version=1.0.0")
    );
    assert!(
        bed.get("/v1/openapi.json")
            .contains("\"openapi\":\"3.1.0\"")
    );
    assert!(
        bed.get("/v1/edges/office/history/7")
            .ends_with(r#"{"edge":"office","number":7}"#)
    );
    let answer = bed.get("/v1/edges/office?hits=true");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"with_hits\":true"));
    let answer = bed.ask(
        "GET /v1/edges/office HTTP/1.1\r\nAccept: text/plain, */*;q=0.1\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.contains("content-type: text/plain; charset=utf-8\r\n"));
    assert!(
        answer.ends_with("\r\n\r\nedge Some(\"office\"), with hits: false\n"),
        "{answer}"
    );
    is_problem(&bed.get("/v1/edges/other"), 404);
    is_problem(&bed.get("/v2"), 404);
    is_problem(&bed.get("/v1/status?edge=office"), 400);
    let answer = bed.ask("PUT /v1/status HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(
        answer.to_lowercase().contains("\r\nallow: get, head\r\n"),
        "{answer}"
    );
    is_problem(&answer, 405);
    let answer = bed.ask("HEAD /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    // A panic ends one request.
    is_problem(&bed.get("/v1/edges/broken"), 500);
    assert!(bed.get("/metrics").ends_with("# EOF\n"));
}

#[test]
fn a_second_server_leaves_the_first_alone_and_a_dead_one_is_replaced() {
    let bed = Bed::new(Limits::default());
    let error = start(&bed.path, Limits::default(), &bed.hub).expect_err("taken");
    assert!(error.contains("another process listens"), "{error}");
    let path = bed.path.with_extension("dead");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    drop(start(&path, Limits::default(), &bed.hub).expect("nobody listens there"));
    std::fs::write(&path, "a file").expect("written");
    let error = start(&path, Limits::default(), &bed.hub).expect_err("a file");
    assert!(error.contains("not a socket") && path.exists(), "{error}");
}

#[test]
fn an_address_that_is_taken_stops_no_other() {
    let path = std::env::temp_dir()
        .join(format!("weir-api-taken-{}", std::process::id()))
        .join("agent.sock");
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("an address");
    let settings = ApiSettings {
        socket: Socket::Path(path.clone()),
        metrics: Some(format!("{address}").try_into().expect("loopback")),
        ..ApiSettings::default()
    };
    let mut api = Api::new(Arc::new(MadeUp));
    let said: Vec<String> = api.hold(&settings).iter().map(Event::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("agent.sock"), "{said:?}");
    let names = |text: &str| text.contains(&address.to_string()) && text.contains("metrics");
    assert!(names(&said[1]), "{said:?}");
    // The socket serves, and goes on while the address is tried again.
    let mut open = UnixStream::connect(&path).expect("it listens");
    open.set_read_timeout(Some(PATIENCE)).expect("set");
    assert!(api.hold(&settings).is_empty(), "said once");
    open.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        .expect("the same server");
    assert!(rest(&mut open).ends_with("# EOF\n"));
    drop(other);
    let said = api.hold(&settings);
    assert_eq!(said.len(), 2, "both are served: {said:?}");
    assert!(TcpStream::connect(address).is_ok());
    assert!(api.hold(&settings).is_empty(), "said once");
    drop(api);
    let _ = std::fs::remove_dir_all(path.parent().expect("a folder"));
}

#[test]
fn the_socket_of_another_agent_stays() {
    let bed = Bed::new(Limits::default());
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let settings = ApiSettings {
        socket: Socket::Path(bed.path.clone()),
        metrics: Some(format!("{address}").try_into().expect("loopback")),
        ..ApiSettings::default()
    };
    let mut api = Api::new(Arc::new(MadeUp));
    let said: Vec<String> = api.hold(&settings).iter().map(Event::to_string).collect();
    assert!(said[1].contains("another process listens"), "{said:?}");
    assert!(api.hold(&settings).is_empty(), "said once");
    drop(api);
    assert!(bed.get("/metrics").ends_with("# EOF\n"));
}

#[test]
fn a_thousand_idle_connections_shut_out_nobody_else() {
    let limits = Limits {
        head_time: Duration::from_millis(1500),
        ..Limits::default()
    };
    // Both ends are in this process.
    let (resource, files) = (Resource::Nofile, getrlimit(Resource::Nofile));
    let current = files.maximum;
    setrlimit(resource, Rlimit { current, ..files }).expect("up to the maximum");
    let bed = Bed::new(limits);
    let idle: Vec<UnixStream> = (0..1000).map(|_| bed.connect()).collect();
    let refused = idle.iter().skip(limits.of_user + limits.refused).take(3);
    for mut stream in refused {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        is_problem(&String::from_utf8(bytes).expect("UTF-8"), 429);
    }
    is_problem(&bed.get("/metrics"), 429);
    // Those that were let in are closed: a place is free again.
    let until = Instant::now() + PATIENCE;
    while !bed.get("/metrics").starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < until, "idle connections stay");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn slow_clients_and_large_requests_end() {
    let limits = Limits {
        head_time: Duration::from_millis(300),
        stall_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let bed = Bed::new(limits);
    // A head that never ends, byte by byte.
    let mut slow = bed.connect();
    let begun = Instant::now();
    while slow.write_all(b"G").is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it may send for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Heads that are too large.
    let line = "a".repeat(limits.head);
    assert!(bed.get(&format!("/{line}")).starts_with("HTTP/1.1 4"));
    let many = "A: b\r\n".repeat(limits.headers + 1);
    let answer = bed.ask(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    // One that does not take its answer of 4 MB.
    let mut deaf = bed.connect();
    deaf.write_all(b"GET /v1/status HTTP/1.1\r\n\r\n")
        .expect("sent");
    std::thread::sleep(Duration::from_millis(900));
    assert!(rest(&mut deaf).len() < 4 << 20, "it was waited for");
    // No HTTP at all.
    let answer = bed.ask("\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03\r\n\r\n");
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
        "{answer}"
    );
}

#[test]
fn one_request_at_a_time_reads_the_host() {
    let limits = Limits {
        waiting: 2,
        answer_time: Duration::from_secs(15),
        ..Limits::default()
    };
    let bed = Bed::new(limits);
    let ask = || {
        let mut stream = bed.connect();
        let request = b"GET /v1/edges/slow HTTP/1.1\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("sent");
        stream
    };
    let mut streams: Vec<UnixStream> = (0..4).map(|_| ask()).collect();
    // What does not read the host does not wait.
    assert!(bed.get("/v1/agent").starts_with("HTTP/1.1 200 "));
    let answers: Vec<String> = streams.iter_mut().map(rest).collect();
    let of = |status: &str| {
        let start = format!("HTTP/1.1 {status} ");
        answers
            .iter()
            .filter(|answer| answer.starts_with(&start))
            .count()
    };
    assert_eq!((of("200"), of("429")), (2, 2));
}

/// POST with a body and a media type.
fn post(path: &str, media: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[test]
fn changes_are_made_by_the_loop_of_the_agent() {
    let folder = std::env::temp_dir().join(format!("weir-api-{}-loop", std::process::id()));
    let path = folder.join("agent.sock");
    let settings = ApiSettings {
        socket: Socket::Path(path.clone()),
        operate_group: Some(Group(rustix::process::getgid().as_raw())),
        ..ApiSettings::default()
    };
    let mut api = Api::new(Arc::new(MadeUp));
    assert_eq!(api.hold(&settings).len(), 1, "it serves");
    assert!(api.hold(&settings).is_empty(), "said once");
    let json = "application/json; charset=utf-8";
    let send = |request: String| {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    };
    let body = r#"{"to": 3}"#;
    let mut asked = send(post("/v1/edges/office/rollback", json, body));
    let Woken::Changed(event) = api.wait(PATIENCE) else {
        panic!("nothing was changed");
    };
    let own = weir_runtime::history::user_name(rustix::process::getuid().as_raw());
    let line = format!("edge office: rollback, requested by {own}");
    assert_eq!(event.to_string(), line);
    let answer = rest(&mut asked);
    assert!(
        answer.contains(r#""applied":true"#) && answer.contains(r#""to":3"#),
        "{answer}"
    );
    assert!(
        answer.contains("POST /v1/edges/office/rollback"),
        "{answer}"
    );
    // Neither of these changes anything.
    let mut dry = send(post(
        "/v1/edges/office/rollback",
        json,
        r#"{"dry_run": true}"#,
    ));
    assert!(matches!(api.wait(PATIENCE), Woken::Time));
    assert!(rest(&mut dry).contains(r#""applied":false"#));
    let mut early = send(post("/v1/edges/office/confirm", json, ""));
    assert!(matches!(api.wait(PATIENCE), Woken::Time));
    is_problem(&rest(&mut early), 409);
    // The answer to an apply comes with the next look.
    let mut apply = send(post("/v1/apply", json, "{}"));
    assert!(matches!(api.wait(PATIENCE), Woken::Apply(_)));
    api.show(View {
        folder: "/looked".into(),
        ..View::default()
    });
    assert!(rest(&mut apply).contains(r#""folder":"/looked""#));
    // A client that left is not served.
    drop(send(post("/v1/apply", json, "{}")));
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        matches!(api.wait(Duration::ZERO), Woken::Time),
        "nobody waits"
    );
    drop(api);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn bodies_have_limits() {
    let limits = Limits {
        body_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let bed = Bed::new(limits);
    let path = "/v1/edges/office/rollback";
    let json = "application/json";
    is_problem(
        &bed.ask(&post(path, json, &"x".repeat(limits.body + 1))),
        413,
    );
    is_problem(&bed.ask(&post(path, "text/plain", "{}")), 415);
    for body in [
        "[]",
        "{",
        r#"{"too": 1}"#,
        r#"{"to": "1"}"#,
        r#"{"to": -1}"#,
        r#"{"edge": "b"}"#,
    ] {
        is_problem(&bed.ask(&post(path, json, body)), 400);
    }
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: {json}\r\n");
    is_problem(
        &bed.ask(&format!("{head}Content-Length: 10\r\n\r\n{{")),
        408,
    );
    let many = format!("{:x}\r\n{}\r\n", 1 << 14, "x".repeat(1 << 14)).repeat(5);
    is_problem(
        &bed.ask(&format!("{head}Transfer-Encoding: chunked\r\n\r\n{many}")),
        413,
    );
    // The agent's loop is gone.
    is_problem(&bed.ask(&post(path, json, "{}")), 503);
    is_problem(&bed.ask(&post("/v1/edges/office/plan", json, "")), 404);
}

#[test]
fn metrics_over_tcp_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let places = Places {
        metrics: Some(address),
        ..Places::default()
    };
    let limits = Limits {
        scrapers: 3,
        head_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let start = || {
        let (queue, _) = asks::queue();
        Server::start(&places, limits, Arc::default(), Arc::new(MadeUp), queue)
    };
    let error = start().expect_err("taken");
    assert!(error.contains("name another address"), "{error}");
    drop(listener);
    let server = start().expect("free");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        // One that was refused may be closed before it has sent all.
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(get("/metrics").ends_with("# EOF\n"));
    is_problem(&get("/v1/status"), 403);
    is_problem(&get("/v1/events"), 403);
    is_problem(&get("/"), 404);
    // A scraper gets in again when idle connections are closed.
    let _idle: Vec<TcpStream> = (0..50)
        .map(|_| TcpStream::connect(address).expect("it listens"))
        .collect();
    assert!(!get("/metrics").contains("# EOF"));
    let until = Instant::now() + PATIENCE;
    while !get("/metrics").ends_with("# EOF\n") {
        assert!(Instant::now() < until, "idle connections stay");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "it listens on");
}

#[test]
fn events_come_as_they_happen() {
    let bed = Bed::new(Limits::default());
    let say = |text: &str| {
        bed.hub.publish(&Event::Warning {
            text: text.to_owned(),
        })
    };
    say("first");
    let mut late = bed.connect();
    late.write_all(b"GET /v1/events HTTP/1.1\r\n\r\n")
        .expect("sent");
    let mut all = bed.connect();
    all.write_all(b"GET /v1/events?after=0 HTTP/1.1\r\nLast-Event-ID: 0\r\n\r\n")
        .expect("sent");
    let until = |stream: &mut UnixStream, text: &str| {
        let mut seen = String::new();
        let mut bytes = [0; 4096];
        while !seen.contains(text) {
            let count = stream.read(&mut bytes).expect("more");
            assert!(count > 0, "it ended after {seen}");
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        seen
    };
    assert!(until(&mut all, "first").contains("content-type: text/event-stream"));
    until(&mut late, ": weir");
    say("second");
    let seen = until(&mut late, "second");
    assert!(!seen.contains("first"), "{seen}");
    assert!(seen.contains("id: 2\nevent: warning\ndata: {"), "{seen}");
    until(&mut all, "second");
}
