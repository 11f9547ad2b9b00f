//! The API of `weir agent` with a real edge: it says what commands say, and users have the roles that their groups give.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::NetNs;

use crate::live_agent::Bed;
use crate::live_bed::{root, stderr};

/// Long enough for a host that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A group that exists nowhere.
const READERS: u32 = 67_001;

/// A request over a socket of its own: status, and body.
#[track_caller]
fn ask(socket: &Path, method: &str, path: &str) -> (u16, String) {
    send(
        socket,
        &format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n\r\n"),
    )
}

/// A whole request: status, and body.
#[track_caller]
fn send(socket: &Path, request: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).expect("the agent listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[track_caller]
pub(crate) fn get(socket: &Path, path: &str) -> Value {
    let (status, body) = ask(socket, "GET", path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("JSON")
}

/// The same request as another user, by curl: status, and body.
#[track_caller]
fn ask_as(socket: &Path, user: u32, groups: &str, path: &str) -> (u16, String) {
    let mut command = Command::new("setpriv");
    let user = user.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--groups", groups, "--"]);
    command.args([
        "curl",
        "-s",
        "-m",
        "30",
        "-w",
        "\n%{http_code}",
        "--unix-socket",
    ]);
    command.arg(socket).arg(format!("http://weir{path}"));
    let output = command.output().expect("setpriv and curl");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

#[test]
fn the_api_says_what_commands_say() {
    if !root("the_api_says_what_commands_say") {
        return;
    }
    let bed = Bed::new("api");
    bed.write("\"deny tcp to-port 7001\"");
    let agent = bed.agent();
    let serving = agent.event("serving");
    let socket = PathBuf::from(serving["at"].as_str().expect("a path"));
    assert_eq!(socket, bed.state.join("agent.sock"));
    let edge = &bed.edge;
    let command = |args: &[&str]| -> Value {
        let output = bed.weir(args);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    // A host is never quite silent: a packet may come between two readings.
    let same = |path: &str, args: &[&str]| {
        let is_same = (0..20).any(|_| get(&socket, path) == command(args));
        assert!(is_same, "{path} differs from {args:?} each time");
    };
    let one = format!("/v1/edges/{edge}");
    same(&one, &["status", "--edge", edge, "--json"]);
    same(
        &format!("{one}?hits=true"),
        &["status", "--edge", edge, "--hits", "--json"],
    );
    let all = get(&socket, "/v1/status");
    assert_eq!(all["edges"][0]["edge"], edge.as_str());
    same(
        &format!("{one}/history"),
        &["history", "--edge", edge, "--json"],
    );
    same(
        &format!("{one}/history/1"),
        &["history", "--edge", edge, "1", "--json"],
    );
    let (_, metrics) = ask(&socket, "GET", "/metrics");
    let generation = format!("weir_edge_generation{{edge=\"{edge}\"}} 1\n");
    assert!(metrics.contains(&generation) && metrics.ends_with("# EOF\n"));
    // A mistake is seen here, too.
    bed.write("\"deny tpc to-port 7003\"");
    agent.event("failed");
    let view = get(&socket, "/v1/agent");
    assert_eq!(view["files"][0]["state"], "failed");
    let error = view["files"][0]["error"].as_str();
    assert!(error.is_some_and(|error| error.contains("tpc")), "{view}");
    assert_eq!(view["newest_event"], 3, "applied, serving, failed");
    every_answer_has_the_members_of_the_document(&socket, edge);
    for (path, status) in [
        ("/v1/edges/nowhere", 404),
        ("/v1/edges/nowhere/history", 404),
        ("/v1/edges/../history", 404),
        (&format!("{one}/history/99"), 404),
    ] {
        let (found, body) = ask(&socket, "GET", path);
        assert_eq!(found, status, "{path}: {body}");
    }
}

/// A free port of a namespace. It is let go before the agent takes it; nobody else is there.
fn free_address(ns: &NetNs) -> SocketAddr {
    let bound = ns.run(|| TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()));
    bound.expect("namespace").expect("a free port")
}

#[test]
fn prometheus_reads_the_metrics() {
    if !root("prometheus_reads_the_metrics") {
        return;
    }
    let bed = Bed::new("scrape");
    bed.write("\"deny tcp to-port 7001\"");
    let address = free_address(&bed.right);
    let text = format!("[api]\nsocket = \"off\"\nmetrics = \"{address}\"\n");
    fs::write(bed.folder.join("agent.toml"), text).expect("writable");
    let agent = bed.agent();
    let url = format!("http://{address}/metrics");
    assert_eq!(agent.event("serving")["at"], url.as_str());
    let curl = |arguments: &[&str]| {
        let mut command = bed.right.command("curl").expect("namespace");
        let output = command.args(["-s", "-m", "30"]).args(arguments).output();
        String::from_utf8(output.expect("curl runs").stdout).expect("UTF-8")
    };
    let answer = curl(&["-i", &url]);
    let content = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(answer.contains(content), "{answer}");
    let edge = format!("weir_edge_generation{{edge=\"{}\"}} 1\n", bed.edge);
    assert!(
        answer.contains(&edge) && answer.ends_with("# EOF\n"),
        "{answer}"
    );
    assert!(
        answer.contains("weir_agent_files{state=\"applied\"} 1\n"),
        "{answer}"
    );
    let other = curl(&[
        "-X",
        "POST",
        "-d",
        "x",
        &format!("http://{address}/v1/status"),
    ]);
    assert!(other.contains("\"status\":405"), "{other}");
    a_prometheus_scrapes(&bed, address);
    // A wrong address is refused, and the one before holds.
    fs::write(
        bed.folder.join("agent.toml"),
        "[api]\nmetrics = \"0.0.0.0:9477\"\n",
    )
    .expect("writable");
    let warning = agent.event("warning");
    let text = warning["text"].as_str().expect("text");
    assert!(text.contains("not a loopback address"), "{text}");
    assert!(curl(&[&url]).ends_with("# EOF\n"));
}

/// The server of Debian, if it is installed.
fn a_prometheus_scrapes(bed: &Bed, address: SocketAddr) {
    let own = free_address(&bed.right);
    let config = bed.state.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n- job_name: weir\n  static_configs:\n  - targets: ['{address}']\n"
    );
    fs::write(&config, text).expect("writable");
    let mut command = bed.right.command("prometheus").expect("namespace");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!(
        "--storage.tsdb.path={}",
        bed.state.join("tsdb").display()
    ));
    command.arg(format!("--web.listen-address={own}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let line = format!(
                "prometheus_reads_the_metrics: no scrape by Prometheus ({error}): install prometheus\n"
            );
            let _ = std::io::stderr().write_all(line.as_bytes());
            return;
        }
    };
    let query = format!("http://{own}/api/v1/query?query=weir_edge_generation");
    let until = Instant::now() + PATIENCE;
    let found = loop {
        let mut command = bed.right.command("curl").expect("namespace");
        let output = command
            .args(["-s", "-m", "5", &query])
            .output()
            .expect("curl runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains(&bed.edge) || Instant::now() > until {
            break text;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let _ = child.kill();
    let _ = child.wait();
    assert!(found.contains(&bed.edge), "{found}");
}

/// A request with a body of JSON.
#[track_caller]
fn post(socket: &Path, path: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let (status, body) = send(
        socket,
        &format!(
            "POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    );
    (status, serde_json::from_str(&body).expect("JSON"))
}

#[test]
fn operators_roll_back_apply_and_confirm() {
    if !root("operators_roll_back_apply_and_confirm") {
        return;
    }
    let bed = Bed::new("operate");
    bed.write("\"deny tcp to-port 7001\"");
    let agent = bed.agent();
    agent.event("applied");
    let socket = bed.state.join("agent.sock");
    agent.event("serving");
    let edge = format!("/v1/edges/{}", bed.edge);
    let (status, problem) = post(&socket, &format!("{edge}/rollback"), "");
    assert_eq!(status, 409, "there is one change: {problem}");
    bed.write("\"deny tcp to-port 7002\"");
    agent.event("applied");
    let dry = post(&socket, &format!("{edge}/rollback"), "{\"dry_run\": true}");
    assert_eq!((dry.0, &dry.1["applied"]), (200, &Value::from(false)));
    let (status, back) = post(&socket, &format!("{edge}/rollback"), "{}");
    assert_eq!(
        (status, &back["to"], &back["number"]),
        (200, &1.into(), &3.into()),
        "{back}"
    );
    assert_eq!(back["changes"], dry.1["changes"]);
    let requested = agent.event("requested");
    assert_eq!(
        (&requested["what"], &requested["user"]),
        (&"rollback".into(), &"root".into())
    );
    agent.event("edited");
    let change = get(&socket, &format!("{edge}/history/3"));
    assert_eq!(change["user"], "root");
    let command = format!("POST {edge}/rollback");
    assert_eq!(change["command"], command.as_str());
    // What the file says differs now, until it is applied again.
    let (status, plan) = post(&socket, &format!("{edge}/plan"), "");
    assert_eq!(status, 200, "{plan}");
    let same = post(&socket, &format!("{edge}/plan"), "").1;
    assert_eq!(plan, same, "a plan changes nothing");
    let (status, view) = post(&socket, "/v1/apply", "{}");
    assert_eq!(
        (status, &view["files"][0]["state"]),
        (200, &"applied".into()),
        "{view}"
    );
    agent.event("applied");
    let after = post(&socket, &format!("{edge}/plan"), "").1;
    assert_ne!(plan, after, "nothing differs any more");
    // A change that waits for confirmation.
    let (status, problem) = post(&socket, &format!("{edge}/confirm"), "");
    assert_eq!(status, 409, "{problem}");
    let by_hand = bed.state.join("by-hand.toml");
    let text = fs::read_to_string(bed.file())
        .expect("readable")
        .replace("7002", "7003");
    fs::write(&by_hand, text).expect("writable");
    let mut command = bed
        .right
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace");
    command.args(["apply", "--confirm", "60s"]).arg(&by_hand);
    command
        .env("STATE_DIRECTORY", &bed.state)
        .stdin(Stdio::null());
    let mut child = command.spawn().expect("weir starts");
    let until = Instant::now() + PATIENCE;
    loop {
        let (status, problem) = post(&socket, &format!("{edge}/confirm"), "");
        if status == 200 {
            break;
        }
        assert!(status == 409 && Instant::now() < until, "{problem}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(child.wait().expect("it ends").success(), "confirmed");
    // A file with a mistake.
    bed.write("\"deny tpc to-port 7003\"");
    agent.event("failed");
    let (status, problem) = post(&socket, &format!("{edge}/plan"), "");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(status == 422 && detail.contains("tpc"), "{problem}");
    let (status, _) = post(&socket, "/v1/edges/nowhere/rollback", "");
    assert_eq!(status, 404);
    // A client that comes now learns all of it, in order.
    let mut command = Command::new("curl");
    command
        .args(["-sN", "-m", "2", "--unix-socket"])
        .arg(&socket);
    let output = command.arg("http://weir/v1/events?after=0").output();
    let text = String::from_utf8(output.expect("curl runs").stdout).expect("UTF-8");
    let events = text.lines().filter_map(|line| line.strip_prefix("event: "));
    let events: Vec<&str> = events.collect();
    let expected = [
        "applied",
        "serving",
        "applied",
        "requested",
        "edited",
        "requested",
        "applied",
    ];
    assert_eq!(events.get(..expected.len()), Some(&expected[..]), "{text}");
    assert_eq!(events.last(), Some(&"failed"), "{text}");
}

#[test]
fn an_apply_that_nobody_confirms_goes_back() {
    if !root("an_apply_that_nobody_confirms_goes_back") {
        return;
    }
    let bed = Bed::new("expires");
    bed.write("\"deny tcp to-port 7001\"");
    let agent = bed.agent();
    agent.event("serving");
    let socket = bed.state.join("agent.sock");
    let edge = format!("/v1/edges/{}", bed.edge);
    // Something else than the file runs.
    bed.write("\"deny tcp to-port 7002\"");
    agent.event("applied");
    let (status, _) = post(&socket, &format!("{edge}/rollback"), "{}");
    assert_eq!(status, 200);
    agent.event("edited");
    let lines = |socket: &Path| post(socket, &format!("{edge}/plan"), "").1["lines"].clone();
    let before = lines(&socket);
    assert_ne!(before, Value::Array(Vec::new()));
    let apply = format!("{edge}/apply");
    let (status, waits) = post(&socket, &apply, "{\"confirm\": 5}");
    assert_eq!((status, &waits["waits"]), (200, &true.into()), "{waits}");
    let requested = agent.event("requested");
    assert_eq!(requested["what"], "apply, to be confirmed within 5 s");
    assert_eq!(lines(&socket), Value::Array(Vec::new()), "the file runs");
    let waiting = get(&socket, &format!("{edge}/confirm"));
    assert_eq!(waiting["waits"], true, "{waiting}");
    assert!(
        waiting["seconds"].as_u64().is_some_and(|left| left <= 5),
        "{waiting}"
    );
    let (status, problem) = post(&socket, &apply, "{}");
    assert_eq!(status, 409, "one waits: {problem}");
    let until = Instant::now() + PATIENCE;
    while lines(&socket) != before {
        assert!(Instant::now() < until, "it does not go back");
        std::thread::sleep(Duration::from_millis(100));
    }
    let waiting = get(&socket, &format!("{edge}/confirm"));
    assert_eq!(waiting["waits"], false, "{waiting}");
    // Both are in the history, with the user; the second once it is carried out.
    let mut history = get(&socket, &format!("{edge}/history"));
    while history["changes"]
        .as_array()
        .is_none_or(|all| all.len() < 5)
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(100));
        history = get(&socket, &format!("{edge}/history"));
    }
    let changes = history["changes"].as_array().expect("changes");
    let last: Vec<&str> = changes
        .iter()
        .rev()
        .take(2)
        .filter_map(|one| one["user"].as_str())
        .collect();
    assert_eq!(
        (changes.len(), last),
        (5, vec!["root", "root"]),
        "{history}"
    );
    // A mistake is told, and nothing waits.
    bed.write("\"deny tpc\"");
    agent.event("failed");
    let (status, problem) = post(&socket, &apply, "{}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(status == 422 && detail.contains("tpc"), "{problem}");
}

fn every_answer_has_the_members_of_the_document(socket: &Path, edge: &str) {
    let document = get(socket, "/v1/openapi.json");
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let content = &operations["get"]["responses"]["200"]["content"];
        let required = &content["application/json"]["schema"]["required"];
        let Some(required) = required.as_array() else {
            continue;
        };
        let path = path.replace("{edge}", edge).replace("{number}", "1");
        let answer = get(socket, &path);
        for member in required {
            let member = member.as_str().expect("a name");
            assert!(answer.get(member).is_some(), "{path} has no {member}");
        }
    }
}

#[test]
fn roles_are_those_of_groups() {
    if !root("roles_are_those_of_groups") {
        return;
    }
    let bed = Bed::new("roles");
    bed.write("\"deny tcp to-port 7001\"");
    // Other users cannot see into the state folder.
    let folder = std::env::temp_dir().join(&bed.edge);
    let socket = folder.join("agent.sock");
    let settings = |more: &str| {
        let text = format!("[api]\nsocket = \"{}\"\n{more}", socket.display());
        fs::write(bed.folder.join("agent.toml"), text).expect("writable");
    };
    settings("");
    let agent = bed.agent();
    agent.event("serving");
    // Private without groups: the kernel refuses the connection.
    let (status, _) = ask_as(&socket, 65_534, "65534", "/v1/agent");
    assert_eq!(status, 0, "no answer");
    assert_eq!(ask(&socket, "GET", "/v1/agent").0, 200);
    settings(&format!("read-group = {READERS}\n"));
    agent.event("serving");
    let (status, body) = ask_as(&socket, 65_534, "65534", "/v1/agent");
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("read-group"), "{body}");
    let groups = format!("65534,{READERS}");
    let (status, body) = ask_as(&socket, 65_534, &groups, "/v1/agent");
    assert_eq!(status, 200, "a supplementary group is enough: {body}");
    // `off`, and settings that are wrong: those before hold.
    fs::write(
        bed.folder.join("agent.toml"),
        "[api]\nread-group = 'no such group'\n",
    )
    .expect("writable");
    let warning = agent.event("warning");
    let text = warning["text"].as_str().expect("text");
    assert!(text.contains("groupadd"), "{text}");
    assert_eq!(ask(&socket, "GET", "/v1/agent").0, 200);
    fs::write(bed.folder.join("agent.toml"), "[api]\nsocket = \"off\"\n").expect("writable");
    let until = Instant::now() + PATIENCE;
    while socket.exists() {
        assert!(Instant::now() < until, "it serves on");
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = fs::remove_dir_all(&folder);
}
