//! The page as files, and what a request to its address must look like. The files are those of the folder `page`, which `build.rs` compresses.
//!
//! The address is a loopback address, but browsers go there for any site. So the host must be named as a loopback host (against DNS rebinding),
//! requests of other origins are refused, and what the page may load comes from here alone.

use std::io::Read as _;
use std::net::IpAddr;

use flate2::read::GzDecoder;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HOST, HeaderName,
    HeaderValue, IF_NONE_MATCH, ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};

use super::payload::Payload;
use super::problem::Problem;

/// A file of the page.
#[derive(Debug)]
struct Asset {
    /// Path of the request.
    path: &'static str,
    media: &'static str,
    /// Of its contents, with quotation marks.
    etag: &'static str,
    /// Compressed by gzip.
    bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Security headers of every response at this address.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=()",
    ),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

/// Adds what browsers are told.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
}

/// Whether a request names this host as one that only this host reaches.
///
/// # Errors
/// 421: it does not.
pub(super) fn check_host(head: &Parts) -> Result<(), Problem> {
    let named = head.headers.get_all(HOST).iter().collect::<Vec<_>>();
    let host = match named.as_slice() {
        [one] => one.to_str().ok(),
        _ => None,
    };
    // A request line may name another one.
    let other = head.uri.authority().map(|authority| authority.as_str());
    if host.is_some_and(is_loopback) && other.is_none_or(is_loopback) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "the request does not name a loopback host",
        "open the page as http://127.0.0.1:PORT/ or http://localhost:PORT/; from another host by `ssh -L`",
    ))
}

/// Whether a request is no other site's: browsers say whose script sends it. `scheme` is that of this address, with `://`.
///
/// # Errors
/// 403: it is of another origin.
pub(super) fn check_origin(headers: &HeaderMap, scheme: &str) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().ok());
    let host = text(HOST).flatten().unwrap_or_default();
    let is_own = match text(ORIGIN) {
        None => true,
        Some(origin) => origin.and_then(|one| one.strip_prefix(scheme)) == Some(host),
    };
    let is_same = match text(HeaderName::from_static("sec-fetch-site")) {
        None => true,
        Some(site) => matches!(site, Some("same-origin" | "none")),
    };
    if is_own && is_same {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "the request comes from another origin",
        "send it from the page, or without the header `Origin`",
    ))
}

/// The host of `host:port` or `[host]:port`.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = bare.unwrap_or(host).parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback() && bare.is_some() == address.is_ipv6())
}

/// A file of the page; `None`: the path is of none.
pub(super) fn file(head: &Parts) -> Option<Response<Payload>> {
    let is_get = matches!(head.method, Method::GET | Method::HEAD);
    let asset = ASSETS
        .iter()
        .find(|one| one.path == head.uri.path())
        .filter(|_| is_get)?;
    let says = |name: HeaderName, part: &str| {
        let values = head.headers.get_all(name);
        let mut values = values.iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|one| one.trim() == part))
    };
    let is_known = says(IF_NONE_MATCH, asset.etag);
    let takes_gzip = says(ACCEPT_ENCODING, "gzip");
    let bytes = match (is_known, takes_gzip) {
        (true, _) => Bytes::new(),
        (false, true) => Bytes::from_static(asset.bytes),
        (false, false) => inflated(asset.bytes),
    };
    let mut response = Response::new(Payload::Whole(Some(bytes)));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media));
    headers.insert(ETAG, HeaderValue::from_static(asset.etag));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    // It is asked for again each time: another version of the agent has other files.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if takes_gzip && !is_known {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

/// For clients that do not take gzip. What `build.rs` compressed is whole.
fn inflated(bytes: &[u8]) -> Bytes {
    let mut whole = Vec::new();
    let _ = GzDecoder::new(bytes).read_to_end(&mut whole);
    Bytes::from(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page may take over the wire, in bytes.
    const MOST: usize = 500_000;

    #[test]
    fn hosts_are_loopback_hosts() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9478",
            "127.9.9.9:1",
            "localhost",
            "LOCALHOST:80",
            "[::1]",
            "[::1]:9478",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com:9478",
            "127.0.0.1:9478@example.com",
            "192.0.2.1:9478",
            "0.0.0.0:9478",
            "::1",
            "[127.0.0.1]",
            "localhost:80:80",
            "user@localhost",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn files_are_small_and_whole() {
        let paths: Vec<&str> = ASSETS.iter().map(|one| one.path).collect();
        assert!(paths.contains(&"/"), "{paths:?}");
        let sum: usize = ASSETS.iter().map(|one| one.bytes.len()).sum();
        let mut whole = 0;
        for one in ASSETS {
            let text = inflated(one.bytes);
            assert!(!text.is_empty(), "{}", one.path);
            whole += text.len();
        }
        use std::io::Write as _;
        let line = format!("the page: {sum} bytes compressed, {whole} as they are\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        assert!(whole < MOST, "{whole} bytes");
    }

    #[test]
    fn files_load_nothing_from_elsewhere() {
        for one in ASSETS {
            let text = String::from_utf8(inflated(one.bytes).to_vec()).expect("text");
            for outside in [
                "src=\"http",
                "href=\"http",
                "url(http",
                "from \"http",
                "@import",
            ] {
                assert!(!text.contains(outside), "{} has {outside}", one.path);
            }
        }
    }
}
