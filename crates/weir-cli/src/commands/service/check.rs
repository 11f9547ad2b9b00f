//! `weir service check`: asks servers whether they answer, and takes those that do not out of the ring until they do again.
//!
//! What it finds is written into the configuration that runs (`down = true` of a server, which is not `drain`: that is somebody's will), so it outlives this
//! process, and the next one goes on from there. A server that is down keeps the flows it has.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_functions::balancer::{Protocol, Server, Service};

use super::edit::Which;
use super::{Desk, shown};
use crate::args::service::{Check, ServiceArgs};
use crate::commands::{seconds, stop_on_signals};
use crate::failure::Failure;

/// Longest wait for a signal.
const TICK: Duration = Duration::from_millis(100);

/// One server of one service, and how its last answers were.
struct Watched {
    which: Which,
    server: Server,
    at: SocketAddr,
    is_down: bool,
    /// Answers in a row that say otherwise.
    against: u32,
}

pub(super) fn run(args: &ServiceArgs, check: &Check) -> Result<ExitCode, Failure> {
    let stop = stop_on_signals()?;
    let every = seconds("--interval", check.interval)?;
    let patience = seconds("--timeout", check.timeout)?;
    let limit = check.duration.map(|s| seconds("--for", s)).transpose()?;
    let began = Instant::now();
    let mut all: Vec<Watched> = Vec::new();
    loop {
        // Services and servers come and go.
        let desk = Desk::open(args)?;
        let before = std::mem::take(&mut all);
        all = watched(&desk, &before);
        if all.is_empty() && before.is_empty() {
            return Err(Failure::Usage(
                "there is no server of a TCP service with a port, so nothing to check".to_owned(),
            ));
        }
        let answers: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let asked: Vec<_> = all
                .iter()
                .map(|one| scope.spawn(|| ask(one.at, patience, check.http.as_deref())))
                .collect();
            let gone = || Err("the check itself failed".to_owned());
            asked
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|_| gone()))
                .collect()
        });
        let mut text = desk.text()?;
        let mut changed = Vec::new();
        for (one, answer) in all.iter_mut().zip(answers) {
            if answer.is_ok() != one.is_down {
                one.against = 0;
                continue;
            }
            one.against += 1;
            let enough = if one.is_down { check.rise } else { check.fall };
            if one.against < enough {
                continue;
            }
            one.is_down = answer.is_err();
            one.against = 0;
            text.set_down(&one.which, one.server.address, one.server.port, one.is_down)?;
            changed.push(match answer {
                Ok(()) => format!("server {} of {} is back", shown(&one.server), one.which),
                Err(why) => format!(
                    "server {} of {} is down: {why}",
                    shown(&one.server),
                    one.which
                ),
            });
        }
        if !changed.is_empty() {
            desk.apply(args, &text, &changed.join("\n"))?;
        }
        let next = Instant::now() + every;
        while Instant::now() < next {
            if stop.load(Ordering::Relaxed) || limit.is_some_and(|limit| began.elapsed() >= limit) {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(TICK.min(every));
        }
    }
}

fn watched(desk: &Desk, before: &[Watched]) -> Vec<Watched> {
    let services = desk.balancer.services.iter();
    let all =
        services.flat_map(|service| service.servers.iter().map(move |server| (service, server)));
    all.filter_map(|(service, server)| {
        let which = which(service);
        let port = server.port.or(service.port)?;
        if service.protocol != Protocol::Tcp {
            return None;
        }
        let same = |one: &&Watched| {
            one.which == which
                && (one.server.address, one.server.port) == (server.address, server.port)
        };
        let against = before.iter().find(same).map_or(0, |one| one.against);
        Some(Watched {
            which,
            server: server.clone(),
            at: (server.address, port).into(),
            is_down: server.down,
            against,
        })
    })
    .collect()
}

fn which(service: &Service) -> Which {
    Which {
        protocol: service.protocol,
        address: service.address.to_string(),
        port: service.port,
    }
}

/// Whether a server answers; else why not.
fn ask(at: SocketAddr, patience: Duration, http: Option<&str>) -> Result<(), String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&at, patience).map_err(told)?;
    let Some(path) = http else {
        return Ok(());
    };
    stream.set_read_timeout(Some(patience)).map_err(told)?;
    stream.set_write_timeout(Some(patience)).map_err(told)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        at.ip()
    );
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut answer = Vec::new();
    let mut chunk = [0; 512];
    while !answer.contains(&b'\n') && answer.len() < 1024 {
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
