//! What ipvsadm's users expect: edits as lines (`-A -t ...`, `-a -t ... -r ...`), printed by `-S` and read by `-R`; and its options that have no
//! meaning here, refused by name with what to do instead.

use std::fmt::Write as _;
use std::io::Read;

use clap::Parser;
use weir_functions::balancer::{AllDown, Mode, Server, Service};
use weir_value::{Mac, Prefix};

use super::edit::{Text, Which};
use super::{ServiceSession, address, mode, which};
use crate::args::service::{Foreign, How, ServiceArgs};
use crate::failure::Failure;
use crate::output;

/// One edit of services or servers.
pub(super) enum Edit<'a> {
    AddService(Which, &'a How),
    ChangeService(Which, &'a How),
    DeleteService(Which),
    AddServer(Which, &'a str, &'a How),
    ChangeServer(Which, &'a str, &'a How),
    DeleteServer(Which, &'a str),
}

impl<'a> Edit<'a> {
    /// That ipvsadm's letters ask for; `None` if they ask for none.
    pub(super) fn flagged(args: &'a ServiceArgs) -> Result<Option<Edit<'a>>, Failure> {
        args.foreign.refuse()?;
        let server = || args.real_server.as_deref().unwrap_or_default();
        let place = || which(&args.place);
        let how = &args.how;
        Ok(Some(if args.add_service {
            Edit::AddService(place()?, how)
        } else if args.edit_service {
            Edit::ChangeService(place()?, how)
        } else if args.delete_service {
            Edit::DeleteService(place()?)
        } else if args.add_server {
            Edit::AddServer(place()?, server(), how)
        } else if args.edit_server {
            Edit::ChangeServer(place()?, server(), how)
        } else if args.delete_server {
            Edit::DeleteServer(place()?, server())
        } else {
            return Ok(None);
        }))
    }

    /// Edits the text; what was done.
    pub(super) fn on(&self, text: &mut Text) -> Result<String, Failure> {
        Ok(match self {
            Edit::AddService(which, how) => {
                text.add(which, mode(how)?, how.name.as_deref())?;
                format!("service {which} was added")
            }
            Edit::ChangeService(which, how) => {
                let mode = mode(how)?;
                if mode.is_none() && how.name.is_none() {
                    return Err(Failure::Usage(
                        "nothing to change: give --mode (-i, -m, -g) or --name".to_owned(),
                    ));
                }
                text.edit(which, mode, how.name.as_deref())?;
                format!("service {which} was changed")
            }
            Edit::DeleteService(which) => {
                text.delete(which)?;
                format!("service {which} was deleted")
            }
            Edit::AddServer(which, server, how) => {
                let (address, port) = address(server)?;
                text.add_server(which, address, port, how, mode(how)?)?;
                format!("server {server} was added to {which}")
            }
            Edit::ChangeServer(which, server, how) => {
                let (address, port) = address(server)?;
                text.edit_server(which, address, port, how, mode(how)?)?;
                format!("server {server} of {which} was changed")
            }
            Edit::DeleteServer(which, server) => {
                let (address, port) = address(server)?;
                text.delete_server(which, address, port)?;
                format!("server {server} was removed from {which}")
            }
        })
    }
}

impl Foreign {
    /// Why an option of ipvsadm's is none here.
    pub(super) fn refuse(&self) -> Result<(), Failure> {
        let no = |option: &str, why: &str| Err(Failure::Usage(format!("{option}: {why}")));
        match self.scheduler.as_deref() {
            None | Some("mh") => {}
            Some(other) => {
                return no(
                    &format!("-s {other}"),
                    "weir spreads flows by Maglev hashing with weights, which ipvsadm calls mh",
                );
            }
        }
        if self.persistent.is_some() {
            return no(
                "-p",
                "flows of a client are spread independently; a flow always stays on its server",
            );
        }
        if self.connection {
            return no(
                "-c",
                "flows are stored as hashes, so clients cannot be listed; --stats counts them",
            );
        }
        if self.timeout || self.set.is_some() {
            return no(
                "--timeout, --set",
                "times are `idle` of the function in the configuration",
            );
        }
        if self.daemon || self.start_daemon.is_some() || self.stop_daemon.is_some() {
            return no(
                "--daemon, --start-daemon, --stop-daemon",
                "edges compute the same ring; no synchronization is needed",
            );
        }
        if self.thresholds || self.u_threshold.is_some() || self.l_threshold.is_some() {
            return no(
                "--thresholds, -x, -y",
                "servers have no connection limits; use weights",
            );
        }
        if self.persistent_conn {
            return no(
                "--persistent-conn",
                "persistent templates are not supported",
            );
        }
        if self.fwmark_service.is_some() {
            return no(
                "-f",
                "name services by address and port; a prefix may stand for many",
            );
        }
        Ok(())
    }
}

/// `-S`: the services as lines.
pub(super) fn save(session: &ServiceSession) -> Result<(), Failure> {
    let mut text = String::new();
    let mut left_out = Vec::new();
    for service in &session.balancer.services {
        lines(service, session, &mut text, &mut left_out);
    }
    output::out(&text)?;
    if !left_out.is_empty() {
        output::complain(&format!(
            "these lines are not complete: {}; `weir service save -o FILE` writes the whole configuration",
            left_out.join("; ")
        ));
    }
    Ok(())
}

fn lines(
    service: &Service,
    session: &ServiceSession,
    text: &mut String,
    left_out: &mut Vec<String>,
) {
    let letter = match service.protocol {
        weir_functions::balancer::Protocol::Tcp => "-t",
        weir_functions::balancer::Protocol::Udp => "-u",
    };
    let place = place(service.address, service.port);
    let flags = match service.mode {
        Mode::Ipip => "-i".to_owned(),
        Mode::Nat => "-m".to_owned(),
        Mode::Dsr => "-g".to_owned(),
        // What ipvsadm calls GUE has a header of its own.
        Mode::Gue { port, version: 0 } => {
            format!("-i --tun-type gue --tun-port {port} --tun-nocsum")
        }
        Mode::Gue { .. } => "--mode gue".to_owned(),
    };
    let mut missing = Vec::new();
    if let Mode::Gue { port, version: 1 } = service.mode
        && port != 6080
    {
        missing.push("its GUE port");
    }
    if service.quic.is_some() {
        missing.push("QUIC ids");
    }
    if service.check.is_some() {
        missing.push("its check");
    }
    if service.all_down != AllDown::default() {
        missing.push("all_down");
    }
    if service.servers.iter().any(|server| server.cpu.is_some()) {
        missing.push("CPUs of servers");
    }
    if !missing.is_empty() {
        left_out.push(format!("{} of {}", missing.join(" and "), service.place()));
    }
    // Without servers the mode would be the usual one.
    let mode = match service.servers.is_empty() {
        true => format!(" {flags}"),
        false => String::new(),
    };
    let _ = writeln!(text, "-A {letter} {place} -s mh{mode}");
    for server in &service.servers {
        let weight = if server.drain { 0 } else { server.weight };
        let port = server.port.or(service.port);
        let at = self::server(server, port);
        let mut more = String::new();
        if let Some(mac) = server.mac {
            let _ = write!(more, " --mac {}", Mac(mac));
        }
        let to = server.to.and_then(|number| {
            let ports = session.record.outline.ports.iter();
            ports.into_iter().find(|port| port.number == number)
        });
        if let Some(to) = to {
            let _ = write!(more, " --to {}", to.name);
        }
        let _ = writeln!(
            text,
            "-a {letter} {place} -r {at} {flags} -w {weight}{more}"
        );
    }
}

fn place(address: Prefix, port: Option<u16>) -> String {
    let port = port.unwrap_or(0);
    match address.is_ip6 {
        true => format!("[{}]{}:{port}", address.address(), len(address)),
        false => format!("{address}:{port}"),
    }
}

fn len(address: Prefix) -> String {
    match address.is_one() {
        true => String::new(),
        false => format!("/{}", address.len),
    }
}

fn server(server: &Server, port: Option<u16>) -> String {
    let port = port.unwrap_or(0);
    match server.address.is_ipv6() {
        true => format!("[{}]:{port}", server.address),
        false => format!("{}:{port}", server.address),
    }
}

/// A line of `-R` as a command line of its own.
#[derive(Debug, Parser)]
#[command(name = "weir service", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: ServiceArgs,
}

/// `-R`: lines as `-S` or `ipvsadm -S -n` writes them, all of them or none.
pub(super) fn restore(session: &ServiceSession, args: &ServiceArgs) -> Result<(), Failure> {
    let mut lines = String::new();
    std::io::stdin()
        .read_to_string(&mut lines)
        .map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))?;
    let mut text = session.text()?;
    let mut count = 0;
    for (number, line) in (1..).zip(lines.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let told = |why: String| Failure::Usage(format!("line {number} (`{line}`): {why}"));
        one(&mut text, line).map_err(told)?;
        count += 1;
    }
    if count == 0 {
        return Err(Failure::Usage(
            "standard input has no line; nothing was changed".to_owned(),
        ));
    }
    session.apply(args, &text, &format!("{count} lines were restored"))
}

fn one(text: &mut Text, line: &str) -> Result<(), String> {
    let words = line.split_whitespace();
    let mut parsed = Line::try_parse_from(words).map_err(|error| {
        // Its first paragraph; what follows is usage.
        let all = error.to_string();
        let first = all.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })?;
    // ipvsadm's weight 0: a server that keeps its flows and gets no new ones.
    let drains = parsed.args.how.weight == Some(0) && parsed.args.real_server.is_some();
    if drains {
        parsed.args.how.weight = None;
    }
    let edit = Edit::flagged(&parsed.args).map_err(|error| error.to_string())?;
    let edit = edit.ok_or_else(|| "a line begins with -A, -E, -D, -a, -e or -d".to_owned())?;
    edit.on(text).map_err(|error| error.to_string())?;
    if let (true, Edit::AddServer(which, server, _) | Edit::ChangeServer(which, server, _)) =
        (drains, &edit)
    {
        let (address, _) = address(server).map_err(|error| error.to_string())?;
        text.drain(Some(which), address, true)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}
