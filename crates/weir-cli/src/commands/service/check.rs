//! `weir service check`: asks servers whether they answer, and takes those that do not out of the ring until they do again.
//!
//! How is said by the services' `check`, and by options where they have none. What is found is written into the maps of the edge
//! (`weir_engine::edge::health`): no configuration changes, it outlives this process, and the next one goes on from there. A server that is down keeps
//! the flows it has.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_engine::edge::health::Down;
use weir_engine::edge::{self, EdgeError};
use weir_functions::balancer::check::CheckKind;
use weir_functions::balancer::{AllDown, Protocol, Server, Service};

use super::{ServiceSession, shown};
use crate::args::service::{Check as Options, ServiceArgs};
use crate::failure::Failure;
use crate::limits::stop_on_signals;
use crate::output;

type Check = weir_functions::balancer::Check;

/// Longest wait for a signal.
const TICK: Duration = Duration::from_millis(100);
/// Servers that are asked at the same time at most.
const AT_ONCE: usize = 256;

/// One server of one service, and how its last answers were.
struct Watched {
    identity: u64,
    /// For messages.
    server: String,
    service: String,
    at: SocketAddr,
    check: Check,
    is_down: bool,
    /// Answers in a row that say otherwise.
    against: u32,
    due: Instant,
}

pub(super) fn run(args: &ServiceArgs, options: &Options) -> Result<ExitCode, Failure> {
    let stop = stop_on_signals()?;
    let usual = usual(options);
    let limit = options.duration;
    let began = Instant::now();
    let mut session = ServiceSession::open(args)?;
    let mut generation = edge::generation(&session.edge)?;
    let mut all = watched(&session, &usual, &[]);
    if all.is_empty() {
        return Err(Failure::Usage(
            "no server to check: TCP services with a port are checked, and those with a `check` (docs/balancer.md)".to_owned(),
        ));
    }
    loop {
        // Services and servers come and go.
        let now = edge::generation(&session.edge)?;
        if now != generation {
            session = ServiceSession::open(args)?;
            all = watched(&session, &usual, &all);
            generation = now;
        }
        round(args, &session, &mut all)?;
        let next = all.iter().map(|one| one.due).min();
        let next = next.unwrap_or_else(|| Instant::now() + TICK);
        loop {
            if stop.load(Ordering::Relaxed) || limit.is_some_and(|limit| began.elapsed() >= limit) {
                return Ok(ExitCode::SUCCESS);
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(TICK.min(left));
        }
    }
}

/// How services without a `check` are asked.
fn usual(options: &Options) -> Check {
    Check {
        kind: match &options.http {
            Some(path) => CheckKind::Http(path.clone()),
            None => CheckKind::Tcp,
        },
        port: None,
        interval_ns: options.interval.as_nanos() as u64,
        timeout_ns: options.timeout.as_nanos() as u64,
        rise: options.rise,
        fall: options.fall,
    }
}

/// Asks those that are due, and acts on what they answer.
fn round(args: &ServiceArgs, session: &ServiceSession, all: &mut [Watched]) -> Result<(), Failure> {
    let now = Instant::now();
    let mut due: Vec<&mut Watched> = all.iter_mut().filter(|one| one.due <= now).collect();
    let mut changes = Vec::new();
    let mut said = Vec::new();
    for some in due.chunks_mut(AT_ONCE) {
        let answers: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let asked: Vec<_> = some
                .iter()
                .map(|one| scope.spawn(|| ask(one.at, &one.check)))
                .collect();
            let gone = || Err("the check itself failed".to_owned());
            asked
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|_| gone()))
                .collect()
        });
        for (one, answer) in some.iter_mut().zip(answers) {
            one.due = now + Duration::from_nanos(one.check.interval_ns);
            if answer.is_ok() != one.is_down {
                one.against = 0;
                continue;
            }
            one.against += 1;
            let enough = match one.is_down {
                true => one.check.rise,
                false => one.check.fall,
            };
            if one.against < enough {
                continue;
            }
            changes.push((one.identity, answer.is_err()));
            said.push(match answer {
                Ok(()) => format!("server {} of {} is back", one.server, one.service),
                Err(why) => format!("server {} of {} is down: {why}", one.server, one.service),
            });
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    let wrote = Instant::now();
    let down = match edge::health::set_down(&session.edge, &session.function, &changes) {
        Ok(down) => down,
        // The next round finds the same, and the tables of whoever is at work.
        Err(EdgeError::Busy(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let took = wrote.elapsed().as_micros();
    for one in all.iter_mut() {
        if let Some((_, is_down)) = changes.iter().find(|(id, _)| *id == one.identity) {
            one.is_down = *is_down;
            one.against = 0;
        }
    }
    let changed = |service: &&Service| {
        let mut servers = service.servers.iter().map(|s| service.server_identity(s));
        servers.any(|server| changes.iter().any(|(id, _)| *id == server))
    };
    let services = session.balancer.services.iter().filter(changed);
    said.extend(services.filter_map(|service| all_down(service, &down)));
    if args.json {
        output::json(&json!({
            "edge": session.edge,
            "function": session.function,
            "done": said.join("\n"),
            "microseconds": took as u64,
        }))?;
        return Ok(());
    }
    output::out(&format!(
        "{}\nthe ring was changed in place, in {took} µs\n",
        said.join("\n")
    ))?;
    Ok(())
}

/// What becomes of the new flows of a service if all its servers are down.
fn all_down(service: &Service, down: &Down) -> Option<String> {
    let servers = service.servers.iter().filter(|s| s.takes_flows());
    let servers: Vec<u64> = servers.map(|s| service.server_identity(s)).collect();
    if servers.iter().any(|one| !down.servers.contains(one)) {
        return None;
    }
    let kept = servers.iter().filter(|one| down.kept.contains(one)).count();
    let fate = match service.all_down {
        AllDown::Keep => format!("go to the {kept} that were the last to be up"),
        AllDown::Drop => "are dropped".to_owned(),
    };
    Some(format!(
        "all servers of {} are down: new flows {fate} (all_down = \"{}\")",
        service.place(),
        service.all_down.name()
    ))
}

/// Who is to be asked; `before` says how it went so far.
fn watched(session: &ServiceSession, usual: &Check, before: &[Watched]) -> Vec<Watched> {
    let services = session.balancer.services.iter();
    let all =
        services.flat_map(|service| service.servers.iter().map(move |server| (service, server)));
    all.filter_map(|(service, server)| {
        let check = service.check.as_ref().unwrap_or(usual);
        let at = place(service, server, check)?;
        let identity = service.server_identity(server);
        let known = before.iter().find(|one| one.identity == identity);
        Some(Watched {
            identity,
            server: shown(server),
            service: service.place(),
            at,
            check: check.clone(),
            is_down: session.counts.down.contains(&identity),
            against: known.map_or(0, |one| one.against),
            due: known.map_or_else(Instant::now, |one| one.due),
        })
    })
    .collect()
}

/// Where a server is asked; `None`: it is not.
fn place(service: &Service, server: &Server, check: &Check) -> Option<SocketAddr> {
    if check.kind == CheckKind::None {
        return None;
    }
    let own = match service.protocol {
        Protocol::Tcp => server.port.or(service.port),
        Protocol::Udp => None,
    };
    Some((server.address, check.port.or(own)?).into())
}

/// Whether a server answers; else why not.
fn ask(at: SocketAddr, check: &Check) -> Result<(), String> {
    let patience = Duration::from_nanos(check.timeout_ns);
    let until = Instant::now() + patience;
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&at, patience).map_err(told)?;
    let CheckKind::Http(path) = &check.kind else {
        return Ok(());
    };
    stream.set_write_timeout(Some(patience)).map_err(told)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        at.ip()
    );
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut answer = Vec::new();
    let mut chunk = [0; 512];
    while !answer.contains(&b'\n') && answer.len() < 1024 {
        // A server that sends byte after byte has the same time as others.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("it did not respond in time".to_owned());
        }
        stream.set_read_timeout(Some(left)).map_err(told)?;
        match stream.read(&mut chunk).map_err(told)? {
            0 => break,
            n => answer.extend(&chunk[..n]),
        }
    }
    let line = String::from_utf8_lossy(&answer);
    let line = line.lines().next().unwrap_or_default();
    let code = line
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse::<u16>().ok());
    match code {
        Some(200..=399) if line.starts_with("HTTP/1.") => Ok(()),
        _ => Err(format!("it answered {line:?}")),
    }
}
