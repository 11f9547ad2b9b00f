//! A client of the agent's socket, for commands: one request, one answer.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Longer than the agent takes for any request.
const PATIENCE: Duration = Duration::from_secs(150);

/// Longest answer.
const MOST: u64 = 64 << 20;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens there.
    #[error(
        "cannot reach the agent at {path}: {error}; start it with `systemctl start weir-agent`, or name its socket with --socket"
    )]
    Unreachable {
        /// The socket.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The connection broke, or the answer is not that of an agent.
    #[error("the agent at {path} gave no answer: {why}")]
    Broken {
        /// The socket.
        path: String,
        /// Why.
        why: String,
    },
    /// The agent refused the request.
    #[error("{detail}: {next}")]
    Refused {
        /// What is wrong.
        detail: String,
        /// What to do.
        next: String,
    },
}

/// Sends a request without a body, and returns the JSON of the answer.
///
/// # Errors
/// The agent cannot be reached, or refused the request.
pub fn ask(socket: &Path, method: &str, path: &str) -> Result<Value, ClientError> {
    let place = || socket.display().to_string();
    let unreachable = |error| ClientError::Unreachable {
        path: place(),
        error,
    };
    let broken = |why: String| ClientError::Broken { path: place(), why };
    let mut stream = UnixStream::connect(socket).map_err(unreachable)?;
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    let mut bytes = Vec::new();
    let talk = |stream: &mut UnixStream, bytes: &mut Vec<u8>| -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(text.as_bytes())?;
        stream.take(MOST).read_to_end(bytes)?;
        Ok(())
    };
    talk(&mut stream, &mut bytes).map_err(|error| broken(error.to_string()))?;
    let answer = String::from_utf8_lossy(&bytes);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| broken("it closed the connection".to_owned()))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    let value: Value = serde_json::from_str(body).map_err(|error| broken(error.to_string()))?;
    if status == "200" {
        return Ok(value);
    }
    let text = |name: &str| {
        let text = value.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    Err(ClientError::Refused {
        detail: text("detail"),
        next: text("next"),
    })
}
