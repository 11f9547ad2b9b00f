//! HTTP/1.1 with one client, within its limits, whatever it is connected by.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::answer::{Client, Shared, answer, refused};
use super::limits::Limits;
use super::payload::Payload;
use super::problem::{MEDIA, Problem};
use super::stall::Stall;

/// The pause after a connection that could not be accepted, as when no file descriptor is free.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// An answer to a connection whose request is not read.
pub(super) fn refusal(problem: &Problem) -> Vec<u8> {
    let body = problem.json().to_string();
    format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {MEDIA}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        problem.status.as_u16(),
        problem.status.canonical_reason().unwrap_or_default(),
        body.len()
    )
    .into_bytes()
}

pub(super) async fn serve<T>(stream: T, client: Client, shared: Arc<Shared>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let limits = shared.limits;
    let service = service_fn(move |request| {
        let (shared, client) = (Arc::clone(&shared), client.clone());
        async move { Ok::<_, Infallible>(answer(&shared, client, request).await) }
    });
    converse(stream, limits, service).await;
}

/// Answers a first request with a problem. A connection that is closed before the client has sent it is an error of the socket for some clients,
/// which then do not read the answer.
pub(super) async fn refuse<T>(stream: T, problem: Problem, mut limits: Limits)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    limits.head_time = limits.head_time.min(limits.refused_time);
    let service = service_fn(move |_| {
        let mut response = refused(&problem, None);
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
        async move { Ok::<_, Infallible>(response) }
    });
    converse(stream, limits, service).await;
}

async fn converse<T, S>(stream: T, limits: Limits, service: S)
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<Payload>, Error = Infallible>,
{
    let stream = Stall::new(stream, limits.stall_time);
    // An error is the client's: it is gone, was too slow, or does not speak HTTP.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head)
        .max_headers(limits.headers)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
