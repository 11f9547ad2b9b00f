//! Requests made from the OpenAPI document of the API, and spoilt: none is answered with 5xx, and none of a reader changes anything.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::thread::{Gid, Uid, set_thread_gid, set_thread_groups, set_thread_uid};
use serde_json::{Value, json};

use crate::live_agent::Bed;
use crate::live_api::get;
use crate::live_bed::root;

/// Long enough for a host that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A group and a user that exist nowhere.
const READERS: u32 = 67_002;
const USER: u32 = 67_003;

/// Requests of the reader, of the operator, and of one without a role.
const READS: usize = 1500;
const CHANGES: usize = 300;
const OTHERS: usize = 50;

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    fn text(&mut self) -> String {
        let length = self.below(12);
        (0..length)
            .map(|_| char::from(b' ' + self.below(95) as u8))
            .collect()
    }
}

/// A request: its method, all its bytes, and whether they are fewer than it says.
fn request(dice: &mut Dice, document: &Value, edge: &str) -> (String, Vec<u8>, bool) {
    let paths = document["paths"].as_object().expect("paths");
    let path = paths.keys().nth(dice.below(paths.len())).expect("a path");
    let operations = paths[path].as_object().expect("operations");
    let (declared, operation) = operations
        .iter()
        .nth(dice.below(operations.len()))
        .expect("an operation");
    let others = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "X",
    ];
    let method = match dice.below(3) {
        0 => dice.one_of(&others).to_owned(),
        _ => declared.to_uppercase(),
    };
    let long = "a".repeat(300);
    let edges = [
        edge,
        edge,
        edge,
        "nowhere",
        "..",
        "%2e%2e%2f%2e%2e",
        "%00",
        "",
        &long,
        "%c3%28",
        "%",
        "a b",
        ".confirm",
    ];
    let numbers = [
        "1",
        "2",
        "0",
        "-1",
        "99999999999999999999",
        "1e3",
        "%31",
        "4294967295",
    ];
    let mut target = path
        .replace("{edge}", dice.one_of(&edges))
        .replace("{number}", dice.one_of(&numbers));
    if dice.below(8) == 0 {
        let at = dice.below(target.len() + 1);
        let odd = ["/", "//", "%", "?", "#", "\u{e4}", "..", ";", "{", "\t"];
        if target.is_char_boundary(at) {
            target.insert_str(at, dice.one_of(&odd));
        }
    }
    if dice.below(3) == 0 {
        let names: Vec<&str> = operation["parameters"]
            .as_array()
            .expect("parameters")
            .iter()
            .filter_map(|one| one["name"].as_str())
            .chain(["x", ""])
            .collect();
        let values = [
            "true",
            "false",
            "0",
            "-1",
            "18446744073709551616",
            "%zz",
            "",
            "a",
        ];
        target += &format!("?{}={}", dice.one_of(&names), dice.one_of(&values));
    }
    let headers = [
        "Accept: */*",
        "Accept: application/openmetrics-text;q=0",
        "Last-Event-ID: 0",
        "Last-Event-ID: x",
        "Host: weir",
        "Expect: 100-continue",
        "X-Forwarded-User: root",
        "Authorization: Basic cm9vdDo=",
        "Range: bytes=0-1",
        "Upgrade: h2c",
        "Content-Type: text/plain",
        "Bad Header",
        "Cookie: role=operate",
    ];
    let mut head = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
    for _ in 0..dice.below(3) {
        head += dice.one_of(&headers);
        head += "\r\n";
    }
    let body = body(dice, operation);
    let mut is_short = false;
    if !body.is_empty() {
        head += "Content-Type: application/json\r\n";
        let length = match dice.below(20) {
            0 => body.len() + 7,
            1 => body.len() / 2,
            _ => body.len(),
        };
        is_short = length > body.len();
        head += &format!("Content-Length: {length}\r\n");
    }
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
    (method, bytes, is_short)
}

fn body(dice: &mut Dice, operation: &Value) -> Vec<u8> {
    match dice.below(8) {
        0..=3 => Vec::new(),
        4 => dice.text().into_bytes(),
        5 if dice.below(10) == 0 => vec![b'1'; 70_000],
        _ => {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let known = schema["properties"].as_object();
            let names: Vec<&String> = known.into_iter().flat_map(|all| all.keys()).collect();
            let mut value = json!({});
            for _ in 0..dice.below(3) {
                let name = match names.is_empty() || dice.below(6) == 0 {
                    true => dice.text(),
                    false => names[dice.below(names.len())].clone(),
                };
                value[name] = match dice.below(6) {
                    0 => json!(null),
                    1 => json!(dice.below(2) == 1),
                    2 => json!(dice.text()),
                    3 => json!([1]),
                    4 => json!(-1),
                    _ => json!(dice.below(5)),
                };
            }
            value.to_string().into_bytes()
        }
    }
}

/// The status of an answer; `None`: the connection was closed without one. Event streams are not read to their end, which there is none of.
fn send(socket: &Path, bytes: &[u8], is_short: bool) -> Option<(u16, String)> {
    let mut stream = UnixStream::connect(socket).expect("the agent listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    // It may be refused before all is sent.
    let _ = stream.write_all(bytes);
    if is_short {
        // Or else the agent waits for the rest.
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
        }
        if answer.windows(17).any(|part| part == b"text/event-stream") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    // After a `100 Continue` comes another.
    let last = text.rsplit("HTTP/1.1 ").next()?;
    let status = last.split(' ').next()?.parse().ok()?;
    Some((status, text))
}

/// Sends requests, and counts the answers by status.
fn fuzz(
    socket: &Path,
    document: &Value,
    edge: &str,
    seed: u64,
    count: usize,
    judge: impl Fn(&str, u16) -> bool,
) -> BTreeMap<u16, usize> {
    let mut dice = Dice(seed);
    let mut seen = BTreeMap::new();
    for _ in 0..count {
        let (method, bytes, is_short) = request(&mut dice, document, edge);
        let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(500)]).into_owned();
        let Some((status, answer)) = send(socket, &bytes, is_short) else {
            *seen.entry(0).or_default() += 1;
            continue;
        };
        assert!(
            status < 500 && judge(&method, status),
            "{}\n{answer}",
            shown()
        );
        // Those without a body are of the HTTP library, for what is not HTTP.
        let is_bare = answer.contains("content-length: 0\r\n") && matches!(status, 400 | 414 | 431);
        if status >= 400 && method != "HEAD" && !is_bare {
            assert!(answer.contains("\"next\":\""), "{}\n{answer}", shown());
        }
        *seen.entry(status).or_default() += 1;
    }
    seen
}

/// Runs as a user who is in a group, in a thread: Linux has credentials for each.
fn as_user<T: Send>(groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            set_thread_groups(&groups).expect("root may");
            set_thread_gid(Gid::from_raw(USER)).expect("root may");
            set_thread_uid(Uid::from_raw(USER)).expect("root may");
            work()
        });
        match thread.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[test]
fn spoilt_requests_change_nothing_and_break_nothing() {
    if !root("spoilt_requests_change_nothing_and_break_nothing") {
        return;
    }
    let bed = Bed::new("fuzz");
    bed.write("\"deny tcp to-port 7001\"");
    // Other users cannot see into the state folder.
    let folder = std::env::temp_dir().join(&bed.edge);
    let socket = folder.join("agent.sock");
    let text = format!(
        "[api]\nsocket = \"{}\"\nread-group = {READERS}\n",
        socket.display()
    );
    fs::write(bed.folder.join("agent.toml"), text).expect("writable");
    let agent = bed.agent();
    agent.event("serving");
    bed.write("\"deny tcp to-port 7002\"");
    agent.event("applied");
    let document = get(&socket, "/v1/openapi.json");
    let edge = bed.edge.as_str();
    // Events, history and files: what a change leaves behind.
    let state = || {
        (
            get(&socket, "/v1/agent"),
            get(&socket, &format!("/v1/edges/{edge}/history")),
            fs::read(bed.file()).expect("readable"),
            bed.generation(),
        )
    };
    let before = state();
    let begun = std::time::Instant::now();
    let seen = as_user(&[READERS], || {
        let judge = |method: &str, status| method != "POST" || status >= 400;
        fuzz(&socket, &document, edge, 0x5eed, READS, judge)
    });
    for status in [200, 400, 403, 404, 405] {
        assert!(seen.contains_key(&status), "no answer {status}: {seen:?}");
    }
    let others = as_user(&[], || {
        fuzz(&socket, &document, edge, 77, OTHERS, |_, status| {
            matches!(status, 400 | 403)
        })
    });
    assert!(others.contains_key(&403), "{others:?}");
    assert_eq!(state(), before, "a reader changed something");
    let line = format!(
        "as reader {seen:?}, without role {others:?}, in {:?}\n",
        begun.elapsed()
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
    // Whoever may change does, and breaks nothing.
    let mut document = document;
    let paths = document["paths"].as_object_mut().expect("paths");
    // A change that waits outlives this test, and watching takes seconds: `live_api` and `live_page` have both.
    paths.retain(|path, _| {
        path == "/v1/apply" || !(path.ends_with("/apply") || path.ends_with("/drops"))
    });
    let seen = fuzz(&socket, &document, edge, 4711, CHANGES, |_, _| true);
    let line = format!("as operator {seen:?}, in all {:?}\n", begun.elapsed());
    let _ = std::io::stderr().write_all(line.as_bytes());
    assert!(seen.contains_key(&200), "{seen:?}");
    let (after, _, _, _) = state();
    assert!(
        after["newest_event"].as_u64() > before.0["newest_event"].as_u64(),
        "{after}"
    );
    let _ = fs::remove_dir_all(&folder);
}
