//! `check` of a service: how its servers are asked whether they answer. Nothing of it is in the tables of the data plane; `weir service check`
//! reads it in the configuration that runs.

use super::read::below;
use super::{Protocol, Service};
use crate::request::{FunctionError, Key, Request, suggest};

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "kind",
        "required",
        "`tcp`: a connection. `http`: a status of 200 to 399 for `path`. `none`",
    ),
    Key::new("path", "required with `http`", "HTTP path"),
    Key::new(
        "port",
        "the server's",
        "port to probe; required for services of UDP and of all ports",
    ),
    Key::new("interval", "`\"2s\"`", "time between probes"),
    Key::new("timeout", "`\"1s\"`", "time after which a probe has failed"),
    Key::new("rise", "2", "successes in a row after which a server is up"),
    Key::new(
        "fall",
        "2",
        "failures in a row after which a server is down",
    ),
];
const KINDS: &[&str] = &["tcp", "http", "none"];
/// Shortest and longest time that can be said.
const TIMES_NS: std::ops::RangeInclusive<u64> = 10_000_000..=3_600_000_000_000;
/// Answers in a row at most.
const IN_A_ROW: u64 = 100;

/// How servers are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is asked.
    pub kind: CheckKind,
    /// At this port; `None`: the server's.
    pub port: Option<u16>,
    /// From one question to the next.
    pub interval_ns: u64,
    /// How long an answer may take.
    pub timeout_ns: u64,
    /// Answers in a row that bring a server back.
    pub rise: u32,
    /// Failures in a row that make it down.
    pub fall: u32,
}

/// What a server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// Nothing.
    None,
    /// For a connection.
    Tcp,
    /// For a path, which it has with a status of 200 to 399.
    Http(String),
}

impl Default for Check {
    fn default() -> Check {
        Check {
            kind: CheckKind::Tcp,
            port: None,
            interval_ns: 2_000_000_000,
            timeout_ns: 1_000_000_000,
            rise: 2,
            fall: 2,
        }
    }
}

/// Of a service's keys.
pub(super) fn read(request: &Request<'_>) -> Result<Option<Check>, FunctionError> {
    let Some(keys) = request.table("check")? else {
        return Ok(None);
    };
    let check = one(&Request { keys, ..*request });
    check.map(Some).map_err(|error| below("check", error))
}

fn one(request: &Request<'_>) -> Result<Check, FunctionError> {
    request.only(KEYS)?;
    let path = request.text("path")?;
    let kind = match (request.text("kind")?, path) {
        (Some("http"), Some(path)) if is_path(path) => CheckKind::Http(path.to_owned()),
        (Some("http"), Some(path)) => {
            return Err(
                FunctionError::key("path", format!("invalid HTTP path `{path}`"))
                    .advice("write path = \"/healthz\": from a slash on, without spaces"),
            );
        }
        (Some("http"), None) => {
            return Err(FunctionError::new("kind \"http\" has no `path`")
                .advice("write path = \"/healthz\""));
        }
        (_, Some(_)) => {
            return Err(FunctionError::key(
                "path",
                "`path` has no effect unless kind = \"http\"",
            ));
        }
        (Some("tcp"), None) => CheckKind::Tcp,
        (Some("none"), None) => CheckKind::None,
        (Some(other), None) => {
            return Err(
                FunctionError::key("kind", format!("unknown check kind \"{other}\""))
                    .advice(suggest(other, KINDS)),
            );
        }
        (None, None) => {
            return Err(FunctionError::new("it has no `kind`")
                .advice("write kind = \"tcp\", \"http\" or \"none\""));
        }
    };
    let usual = Check::default();
    let in_a_row = |key: &str, usual: u32| {
        let said = request.number(key, 1..=IN_A_ROW)?;
        Ok::<u32, FunctionError>(said.map_or(usual, |n| n as u32))
    };
    Ok(Check {
        kind,
        port: request.number("port", 1..=65_535)?.map(|n| n as u16),
        interval_ns: time(request, "interval", usual.interval_ns)?,
        timeout_ns: time(request, "timeout", usual.timeout_ns)?,
        rise: in_a_row("rise", usual.rise)?,
        fall: in_a_row("fall", usual.fall)?,
    })
}

/// Whether the servers of a service can be asked like that.
pub(super) fn fits(service: &Service) -> Result<(), FunctionError> {
    let Some(check) = &service.check else {
        return Ok(());
    };
    let known = service.protocol == Protocol::Tcp && service.port.is_some();
    if check.kind == CheckKind::None || check.port.is_some() || known {
        return Ok(());
    }
    let why = match service.protocol {
        Protocol::Udp => "servers are asked by TCP, and the service is UDP",
        Protocol::Tcp => "the service has all ports",
    };
    Err(
        FunctionError::key("check", format!("{why}: `port` is missing"))
            .advice("add port = 8080 to the check"),
    )
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic())
}

fn time(request: &Request<'_>, key: &str, usual: u64) -> Result<u64, FunctionError> {
    let Some(time) = request.duration(key)? else {
        return Ok(usual);
    };
    let ns = time.as_nanos() as u64;
    match TIMES_NS.contains(&ns) {
        true => Ok(ns),
        false => Err(FunctionError::key(
            key,
            format!("`{key}` is not from 10ms to 1h"),
        )),
    }
}
