//! The page over a real socket: files, login, roles, and what is refused.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::Method;
use serde_json::Value;

use super::{MadeUp, PATIENCE, is_problem, post};
use crate::agent::{Row, State, View};
use crate::api::routes::ROUTES;
use crate::api::{AgentClient, Api, Target};
use crate::event::Event;
use crate::settings::{ApiSettings, Edits, Group, LoopbackAddress, Socket};

/// An agent's loop with a page, whose operators are the group of this process.
struct Bed {
    folder: PathBuf,
    address: SocketAddr,
    /// How the agent stands, shown after each change.
    view: Arc<Mutex<View>>,
    stop: Arc<AtomicBool>,
    agent: Option<JoinHandle<Vec<Event>>>,
}

impl Bed {
    fn new(name: &str, is_reader: bool) -> Bed {
        let folder = std::env::temp_dir().join(format!("weir-page-{}-{name}", std::process::id()));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let own = Group(rustix::process::getgid().as_raw());
        let settings = ApiSettings {
            socket: Socket::Path(folder.join("agent.sock")),
            read_group: is_reader.then_some(own),
            operate_group: (!is_reader).then_some(own),
            page: Some(LoopbackAddress(address)),
            ..ApiSettings::default()
        };
        let mut api = Api::new(Arc::new(MadeUp));
        let said = api.hold(&settings);
        let last = said.last().map(Event::to_string);
        let expected = format!("the API serves at http://{address}/");
        assert_eq!(last, Some(expected), "{said:?}");
        let stop = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&stop);
        let view = Arc::<Mutex<View>>::default();
        let shown = Arc::clone(&view);
        let agent = std::thread::spawn(move || {
            let mut events = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                use super::Woken;
                if let Woken::Changed(event) | Woken::Apply(event) =
                    api.wait(Duration::from_millis(20))
                {
                    api.publish(&event);
                    events.push(event);
                    api.show(shown.lock().expect("whole").clone());
                }
            }
            events
        });
        Bed {
            folder,
            address,
            view,
            stop,
            agent: Some(agent),
        }
    }

    /// The code of a new login link.
    fn code(&self) -> String {
        let socket = self.folder.join("agent.sock");
        let client = AgentClient::new(Target::Socket(socket));
        let link = client
            .and_then(|mut client| client.ask(Method::POST, "/v1/session/link", None))
            .expect("a link");
        let url = link["url"].as_str().expect("a link");
        let start = format!("http://{}/#login=", self.address);
        url.strip_prefix(&start).expect(url).to_owned()
    }

    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A request with more headers.
    fn with(&self, request: &str, headers: &str) -> String {
        let host = self.address;
        self.send(&format!(
            "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    fn login(&self, code: &str) -> String {
        let body = format!("{{\"code\":\"{code}\"}}");
        self.post("/v1/session", &body, "")
    }

    fn post(&self, path: &str, body: &str, headers: &str) -> String {
        let request = post(path, "application/json", body);
        let host = format!("HTTP/1.1\r\nHost: {}\r\n{headers}", self.address);
        self.send(&request.replacen("HTTP/1.1\r\n", &host, 1))
    }

    /// The header of a new session.
    fn bearer(&self) -> String {
        let answer = self.login(&self.code());
        let token = json_of(&answer)["token"]
            .as_str()
            .expect("a token")
            .to_owned();
        format!("Authorization: Bearer {token}\r\n")
    }

    /// What the agent's loop reported.
    fn end(mut self) -> Vec<Event> {
        self.stop.store(true, Ordering::Relaxed);
        let agent = self.agent.take().expect("it runs");
        agent.join().expect("it ends")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(agent) = self.agent.take() {
            let _ = agent.join();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[track_caller]
fn json_of(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn a_link_is_a_session_with_the_role_of_its_user() {
    // Root may everything, whatever the groups say: `live_page` has readers.
    let is_root = rustix::process::getuid().is_root();
    for is_reader in [true, false].into_iter().filter(|one| !one || !is_root) {
        let role = if is_reader { "read" } else { "operate" };
        let bed = Bed::new(role, is_reader);
        is_problem(&bed.with("GET /v1/status", ""), 401);
        let code = bed.code();
        let opened = json_of(&bed.login(&code));
        let user = weir_runtime::history::user_name(rustix::process::getuid().as_raw());
        assert_eq!(
            (&opened["role"], &opened["user"]),
            (&role.into(), &user.as_str().into())
        );
        // Valid once.
        is_problem(&bed.login(&code), 401);
        is_problem(&bed.login("00"), 401);
        is_problem(&bed.login(""), 401);
        let token = opened["token"].as_str().expect("a token");
        assert_ne!(token, code);
        let bearer = format!("Authorization: Bearer {token}\r\n");
        let session = json_of(&bed.with("GET /v1/session", &bearer));
        assert_eq!(session["role"], role);
        assert!(
            session["seconds"]
                .as_u64()
                .is_some_and(|left| left > 28_000)
        );
        let edge = json_of(&bed.with("GET /v1/edges/office/graph", &bearer));
        assert_eq!(edge["edge"], "office");
        let answer = bed.post("/v1/edges/office/rollback", "{}", &bearer);
        match is_reader {
            true => drop(is_problem(&answer, 403)),
            false => assert_eq!(json_of(&answer)["author"]["user"], user.as_str()),
        }
        // A session makes no links, and a code is no token.
        is_problem(&bed.post("/v1/session/link", "", &bearer), 403);
        let other = bed.code();
        let wrong = format!("Authorization: Bearer {other}\r\n");
        is_problem(&bed.with("GET /v1/agent", &wrong), 401);
        json_of(&bed.post("/v1/session/end", "", &bearer));
        is_problem(&bed.with("GET /v1/session", &bearer), 401);
        let events = bed.end();
        let line = format!("login link for the page, role {role}, requested by {user}");
        assert_eq!(events[0].to_string(), line);
    }
}

#[test]
fn no_request_is_answered_without_a_session() {
    let bed = Bed::new("routes", false);
    let wrong = format!("Authorization: Bearer {}\r\n", "0".repeat(48));
    for route in ROUTES {
        let path = route
            .path
            .replace("{edge}", "office")
            .replace("{number}", "1");
        let request = format!("{} {path}", route.method);
        for headers in ["", &wrong, "Authorization: Basic cm9vdDo=\r\n"] {
            let answer = bed.with(&request, headers);
            let problem = is_problem(&answer, 401);
            assert!(
                answer
                    .to_lowercase()
                    .contains("\r\nwww-authenticate: bearer\r\n"),
                "{answer}"
            );
            let next = problem["next"].as_str().unwrap_or_default();
            assert!(next.contains("weir page"), "{request}: {problem}");
        }
    }
    assert!(bed.end().is_empty(), "nothing was changed or asked for");
}

#[test]
fn only_the_page_itself_is_answered() {
    let bed = Bed::new("origins", false);
    let bearer = bed.bearer();
    let port = bed.address.port();
    let get = |host: &str, more: &str| {
        bed.send(&format!(
            "GET /v1/session HTTP/1.1\r\n{host}Connection: close\r\n{bearer}{more}\r\n"
        ))
    };
    for host in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        "127.0.0.1:8000".to_owned(),
    ] {
        let host = format!("Host: {host}\r\n");
        json_of(&get(&host, ""));
    }
    // Names that lead here by DNS, none at all, and two.
    for host in [
        "Host: evil.example\r\n",
        "Host: 192.0.2.1:9478\r\n",
        "Host: \r\n",
        "",
        "Host: localhost\r\nHost: evil.example\r\n",
    ] {
        is_problem(&get(host, ""), 421);
    }
    let absolute = "GET http://evil.example/v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    is_problem(&bed.send(absolute), 421);
    is_problem(
        &bed.send("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
        421,
    );
    let host = format!("Host: 127.0.0.1:{port}\r\n");
    let own = format!("Origin: http://127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin\r\n");
    json_of(&get(&host, &own));
    for other in [
        "Origin: http://evil.example\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        // Another port of the same host is another origin.
        "Origin: http://127.0.0.1:1\r\n".to_owned(),
        format!("Origin: https://127.0.0.1:{port}\r\n"),
        format!("Origin: http://localhost:{port}\r\n"),
        "Sec-Fetch-Site: cross-site\r\n".to_owned(),
        "Sec-Fetch-Site: same-site\r\n".to_owned(),
    ] {
        is_problem(&get(&host, &other), 403);
    }
    // Browsers send nothing by themselves that opens anything.
    let cookie = bearer.replacen("Authorization: Bearer ", "Cookie: weir-session=", 1);
    is_problem(&bed.with("GET /v1/session", &cookie), 401);
    // Preflights of other origins get no permission.
    let preflight = bed.with(
        "OPTIONS /v1/apply",
        "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n",
    );
    is_problem(&preflight, 403);
    assert!(
        !preflight.to_lowercase().contains("access-control-allow"),
        "{preflight}"
    );
}

#[test]
fn files_are_served_with_what_protects_them() {
    let bed = Bed::new("files", false);
    let page = bed.with("GET /", "");
    assert!(page.contains("<title>weir</title>"), "{page}");
    let head = page
        .split("\r\n\r\n")
        .next()
        .expect("a head")
        .to_lowercase();
    for header in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; script-src 'self'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-cache",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    // Everything that it names is there.
    let named = page.split(['"']).filter(|part| part.starts_with('/'));
    let mut count = 0;
    for path in named {
        let answer = bed.with(&format!("GET {path}"), "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        count += 1;
    }
    assert!(count > 5, "{page}");
    let etag = head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .expect("an ETag");
    let again = bed.with("GET /", &format!("If-None-Match: {etag}\r\n"));
    assert!(
        again.starts_with("HTTP/1.1 304 ") && again.ends_with("\r\n\r\n"),
        "{again}"
    );
    let packed = bed.with("GET /main.js", "Accept-Encoding: gzip, br\r\n");
    assert!(
        packed.to_lowercase().contains("content-encoding: gzip"),
        "{packed}"
    );
    // The API's answers are protected, too, and are not kept.
    let answer = bed.with("GET /v1/session", &bed.bearer()).to_lowercase();
    assert!(
        answer.contains("content-security-policy: ") && answer.contains("cache-control: no-store")
    );
    for path in [
        "/vendor/LICENSE-htm",
        "/../Cargo.toml",
        "/vendor/",
        "/index.html",
        "//",
    ] {
        is_problem(&bed.with(&format!("GET {path}"), ""), 404);
    }
    is_problem(&bed.with("POST /", ""), 404);
    // The metrics have their own address.
    is_problem(&bed.with("GET /metrics", ""), 401);
}

#[test]
fn an_event_stream_ends_with_its_session() {
    let bed = Bed::new("stream", false);
    let bearer = bed.bearer();
    let mut stream = TcpStream::connect(bed.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let host = bed.address;
    let request = format!("GET /v1/events?after=0 HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut bytes = [0; 4096];
    let mut seen = String::new();
    while !seen.contains("login link") {
        let count = stream.read(&mut bytes).expect("more");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    json_of(&bed.post("/v1/session/end", "", &bearer));
    // The next event ends it; this client does not see that one.
    let _ = bed.code();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("it ends in order");
    assert!(!rest.contains("requested"), "{rest}");
}

#[test]
fn a_change_that_waits_needs_a_file_a_time_and_edits_that_stay() {
    let bed = Bed::new("waits", false);
    let bearer = bed.bearer();
    let apply = |body: &str| bed.post("/v1/edges/office/apply", body, &bearer);
    for body in [
        r#"{"confirm": 0}"#,
        r#"{"confirm": 4}"#,
        r#"{"confirm": 3601}"#,
        r#"{"confirm": "60"}"#,
    ] {
        is_problem(&apply(body), 400);
    }
    is_problem(&apply("{}"), 404);
    // A change of anything lets the loop show how the agent stands.
    let stands = |edits| {
        *bed.view.lock().expect("whole") = View {
            files: vec![Row {
                file: "/etc/weir/office.toml".into(),
                edge: Some("office".to_owned()),
                state: State::Edited,
                error: None,
            }],
            edits,
            ..View::default()
        };
        let _ = bed.code();
        // The answer comes before the loop shows it.
        let _ = bed.code();
    };
    stands(Edits::Report);
    let answer = json_of(&apply(r#"{"confirm": 5}"#));
    assert_eq!(
        (&answer["seconds"], &answer["file"]),
        (&5.into(), &"/etc/weir/office.toml".into())
    );
    stands(Edits::Revert);
    is_problem(&apply("{}"), 409);
    let drops = |body: &str| bed.post("/v1/edges/office/drops", body, &bearer);
    is_problem(&drops(r#"{"seconds": 31}"#), 400);
    assert_eq!(json_of(&drops("{}"))["seconds"], 5);
    let said: Vec<String> = bed.end().iter().map(Event::to_string).collect();
    let own = weir_runtime::history::user_name(rustix::process::getuid().as_raw());
    for line in [
        "edge office: apply, to be confirmed within 5 s",
        "edge office: watch drops for 5 s",
    ] {
        let line = format!("{line}, requested by {own}");
        assert!(said.contains(&line), "{said:?}");
    }
}

#[test]
fn visitors_take_their_own_places_only() {
    let bed = Bed::new("places", false);
    let most = crate::api::limits::Limits::default().visitors;
    let idle: Vec<TcpStream> = (0..most + 10)
        .map(|_| TcpStream::connect(bed.address).expect("it listens"))
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    is_problem(&bed.with("GET /", ""), 429);
    // The socket is not touched by that.
    let _ = bed.code();
    drop(idle);
    let until = std::time::Instant::now() + PATIENCE;
    while !bed.with("GET /", "").starts_with("HTTP/1.1 200 ") {
        assert!(std::time::Instant::now() < until, "no place becomes free");
        std::thread::sleep(Duration::from_millis(50));
    }
}
