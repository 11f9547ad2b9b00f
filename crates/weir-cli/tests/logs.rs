//! `weir logs -f` and an agent that has too much to do: it waits, and goes on where it was. The agent is a script at a socket.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use crate::common::Folder;

/// An answer whose connection ends with it.
fn answer(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn problem(status: &str) -> String {
    answer(
        status,
        "application/problem+json",
        r#"{"detail":"too many requests","next":"try again later"}"#,
    )
}

/// Reads a request, and answers; the path that was asked for.
fn serve(listener: &UnixListener, answer: &str) -> String {
    let (mut stream, _) = listener.accept().expect("a client");
    let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
    let first = lines.next().expect("a request").expect("text");
    for line in lines {
        if line.expect("text").is_empty() {
            break;
        }
    }
    stream.write_all(answer.as_bytes()).expect("sent");
    // Until the client has read it all.
    drain(stream);
    first.split(' ').nth(1).expect("a path").to_owned()
}

fn drain(mut stream: UnixStream) {
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Killed when dropped.
struct Logs(Child);

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_agent_that_has_too_much_to_do_is_waited_for() {
    let folder = Folder::new();
    let path = folder.join("agent.sock");
    let listener = UnixListener::bind(&path).expect("binds");
    let child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["logs", "-f", "--socket"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(folder.join("errors")).expect("made"))
        .spawn()
        .expect("weir starts");
    let mut child = Logs(child);
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
    let event = |number: u64, text: &str| {
        format!(r#"{{"event":"warning","number":{number},"time":1,"text":"{text}"}}"#)
    };
    let stream = |number: u64, text: &str| {
        let body = format!("id: {number}\ndata: {}\n\n", event(number, text));
        answer("200 OK", "text/event-stream", &body)
    };
    let kept = format!(
        r#"{{"events":[{}],"missed":0,"newest":7,"oldest_time":1}}"#,
        event(7, "kept")
    );
    assert_eq!(
        serve(&listener, &problem("429 Too Many Requests")),
        "/v1/logs"
    );
    assert_eq!(
        serve(&listener, &answer("200 OK", "application/json", &kept)),
        "/v1/logs"
    );
    assert!(
        lines
            .next()
            .expect("a line")
            .expect("text")
            .ends_with("kept")
    );
    for status in ["503 Service Unavailable", "429 Too Many Requests"] {
        assert_eq!(serve(&listener, &problem(status)), "/v1/events?after=7");
    }
    assert_eq!(serve(&listener, &stream(8, "after")), "/v1/events?after=7");
    assert!(
        lines
            .next()
            .expect("a line")
            .expect("text")
            .ends_with("after")
    );
    // The stream ended; where the next one begins is known.
    assert_eq!(
        serve(&listener, &problem("503 Service Unavailable")),
        "/v1/events?after=8"
    );
    // What is refused for good ends it.
    let refused = problem("403 Forbidden");
    assert_eq!(serve(&listener, &refused), "/v1/events?after=8");
    assert_eq!(child.0.wait().expect("waits").code(), Some(1));
    let errors = fs::read_to_string(folder.join("errors")).expect("there");
    let count = |what: &str| errors.matches(what).count();
    assert_eq!(count("waiting for it"), 3, "once each time: {errors}");
    assert_eq!(count("the agent is back"), 1, "{errors}");
}
