//! `weir service`: the services of a running balancer, listed with what they counted, and changed in the configuration that runs.
//!
//! A change is an edit of that configuration's text, applied by the ordinary way: what does not fit is refused with its place, and leaves what
//! runs as it is. The file on disk is not changed; `weir service save -o FILE` writes what runs.

mod check;
mod edit;
mod rules;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_bpf::abi::LbCount;
use weir_engine::edge::{self, BalancerCounts};
use weir_functions::balancer::{Balancer, Protocol, Server, Service};
use weir_functions::kind::EdgePort;
use weir_runtime::graph::Record;
use weir_value::{Invalid, Prefix};

use crate::args::service::{
    How, ServiceArgs, ServiceCommand, ServiceMode, ServiceSelector, TunType,
};
use crate::failure::Failure;
use crate::output;
use edit::{Text, Way, Which};
use rules::Edit;

pub(crate) fn run(args: &ServiceArgs) -> Result<ExitCode, Failure> {
    if args.command.is_some() && has_flags(args) {
        return Err(Failure::Usage(
            "a subcommand (`weir service add-server ...`) and ipvsadm options cannot be combined: put options behind the subcommand".to_owned(),
        ));
    }
    if let Some(ServiceCommand::Check(check)) = &args.command {
        return check::run(args, check);
    }
    args.foreign.refuse()?;
    let mut session = ServiceSession::open(args)?;
    if args.rate {
        session.rate(args)?;
    }
    match &args.command {
        Some(command) => named(&session, args, command)?,
        None => flagged(&session, args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether anything of ipvsadm's spellings was given.
fn has_flags(args: &ServiceArgs) -> bool {
    let verbs = [
        args.add_service,
        args.edit_service,
        args.delete_service,
        args.add_server,
        args.edit_server,
        args.delete_server,
        args.list,
        args.numeric,
        args.save,
        args.restore,
        args.clear,
        args.zero,
    ];
    verbs.contains(&true)
        || args.place.tcp_service.is_some()
        || args.place.udp_service.is_some()
        || args.real_server.is_some()
        || args.how != How::default()
}

fn named(
    session: &ServiceSession,
    args: &ServiceArgs,
    command: &ServiceCommand,
) -> Result<(), Failure> {
    match command {
        ServiceCommand::List { numeric: _ } => session.list(args),
        ServiceCommand::Add { place, how } => {
            session.change(args, &Edit::AddService(which(place)?, how))
        }
        ServiceCommand::Edit { place, how } => {
            session.change(args, &Edit::ChangeService(which(place)?, how))
        }
        ServiceCommand::Delete { place } => {
            session.change(args, &Edit::DeleteService(which(place)?))
        }
        ServiceCommand::AddServer {
            place,
            real_server,
            how,
        } => session.change(args, &Edit::AddServer(which(place)?, real_server, how)),
        ServiceCommand::EditServer {
            place,
            real_server,
            how,
        } => session.change(args, &Edit::ChangeServer(which(place)?, real_server, how)),
        ServiceCommand::DeleteServer { place, real_server } => {
            session.change(args, &Edit::DeleteServer(which(place)?, real_server))
        }
        ServiceCommand::Drain {
            place,
            real_server,
            off,
        } => session.drain(args, place, *real_server, *off),
        // It opens its own session, again and again.
        ServiceCommand::Check(_) => Ok(()),
        ServiceCommand::Save { output } => {
            std::fs::write(output, session.record.text()).map_err(|error| {
                Failure::Failed(format!("cannot write {}: {error}", output.display()))
            })?;
            output::complain(&format!(
                "{} is the running configuration; paths in it are relative to the folder of the one that was applied",
                output.display()
            ));
            Ok(())
        }
    }
}

/// ipvsadm's spellings.
fn flagged(session: &ServiceSession, args: &ServiceArgs) -> Result<(), Failure> {
    if let Some(edit) = Edit::flagged(args)? {
        return session.change(args, &edit);
    }
    if args.save {
        return rules::save(session);
    }
    if args.restore {
        return rules::restore(session, args);
    }
    if args.clear {
        let mut text = session.text()?;
        let count = text.clear()?;
        return session.apply(args, &text, &format!("{count} services were deleted"));
    }
    if args.zero {
        return session.zero(args);
    }
    if args.place.tcp_service.is_some()
        || args.place.udp_service.is_some()
        || args.real_server.is_some()
    {
        return Err(Failure::Usage(
            "no action given: use -A, -E, -D, -a, -e or -d, or a subcommand (`weir service --help`)"
                .to_owned(),
        ));
    }
    session.list(args)
}

/// A balancer and the configuration that it is in.
struct ServiceSession {
    edge: String,
    function: String,
    record: Record,
    balancer: Balancer,
    counts: BalancerCounts,
}

impl ServiceSession {
    fn open(args: &ServiceArgs) -> Result<ServiceSession, Failure> {
        let edge = match &args.edge {
            Some(name) => name.clone(),
            None => the_only_edge()?,
        };
        let status = edge::status(&edge)?;
        let record = Record::read(&edge, &status.text)?;
        let ports: Vec<EdgePort> = record
            .outline
            .ports
            .iter()
            .map(|port| EdgePort {
                number: port.number,
                name: port.name.clone(),
                device: port.device.clone(),
            })
            .collect();
        let mut balancers = weir_graph::balancers(&record.config()?, &record, &ports);
        let names: Vec<String> = balancers.keys().cloned().collect();
        let function = match (&args.function, names.as_slice()) {
            (Some(name), _) if names.contains(name) => name.clone(),
            (Some(name), _) => {
                return Err(Failure::Usage(format!(
                    "edge {edge} has no balancer `{name}`; it has {}",
                    if names.is_empty() {
                        "none".to_owned()
                    } else {
                        names.join(", ")
                    }
                )));
            }
            (None, [one]) => one.clone(),
            (None, []) => {
                return Err(Failure::Failed(format!(
                    "edge {edge} has no balancer (docs/balancer.md says how to configure one)"
                )));
            }
            (None, many) => {
                return Err(Failure::Usage(format!(
                    "edge {edge} has several balancers: name one of {} with --function",
                    many.join(", ")
                )));
            }
        };
        let balancer = match balancers.remove(&function) {
            Some(read) => read.map_err(Failure::failed)?,
            None => return Err(Failure::Failed(format!("{function} is gone"))),
        };
        let instance = status.instances.iter().find(|i| i.name == function);
        let counts = match instance {
            Some(instance) => instance.balancer_counts().map_err(Failure::failed)?,
            None => None,
        };
        Ok(ServiceSession {
            edge,
            function,
            record,
            balancer,
            counts: counts.unwrap_or_default(),
        })
    }

    /// Makes the counts those of a second.
    fn rate(&mut self, args: &ServiceArgs) -> Result<(), Failure> {
        let began = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        let later = ServiceSession::open(args)?;
        let seconds = began.elapsed().as_secs_f64();
        let before = std::mem::replace(&mut self.counts, later.counts);
        let less = |now: &mut LbCount, was: Option<&LbCount>| {
            let was = was.copied().unwrap_or_default();
            let per =
                |now: u64, was: u64| (now.saturating_sub(was) as f64 / seconds).round() as u64;
            now.packets = per(now.packets, was.packets);
            now.bytes = per(now.bytes, was.bytes);
            now.flows = per(now.flows, was.flows);
        };
        for (identity, count) in &mut self.counts.services {
            less(count, before.services.get(identity));
        }
        for (identity, count) in &mut self.counts.servers {
            less(count, before.servers.get(identity));
        }
        Ok(())
    }

    fn text(&self) -> Result<Text, Failure> {
        Text::parse(self.record.text(), &self.function)
    }

    /// Applies a changed text.
    fn apply(&self, args: &ServiceArgs, text: &Text, done: &str) -> Result<(), Failure> {
        let (plan, record, warnings) = self.record.edited(text.to_string())?;
        output::tell(&warnings.render(output::stderr_has_color()));
        let applied = edge::apply(&plan, &record.write()?)?;
        super::history::note(&self.edge);
        if args.json {
            output::json(&json!({
                "edge": self.edge,
                "function": self.function,
                "done": done,
                "generation": applied.generation,
            }))?;
            return Ok(());
        }
        output::out(&format!(
            "{done}; edge {} is at generation {}\nthe file of the configuration was not changed: `weir service save -o FILE` writes what runs\n",
            self.edge, applied.generation
        ))?;
        Ok(())
    }

    fn change(&self, args: &ServiceArgs, edit: &Edit<'_>) -> Result<(), Failure> {
        let mut text = self.text()?;
        let done = edit.on(&mut text)?;
        self.apply(args, &text, &done)
    }

    /// Sets counters of services and their servers to 0: of one, or of all.
    fn zero(&self, args: &ServiceArgs) -> Result<(), Failure> {
        let one = match args.place.tcp_service.is_some() || args.place.udp_service.is_some() {
            true => Some(which(&args.place)?.to_string()),
            false => None,
        };
        let services = self.balancer.services.iter();
        let meant: Vec<&Service> = services
            .filter(|s| one.as_ref().is_none_or(|one| s.place() == *one))
            .collect();
        if let (Some(one), true) = (&one, meant.is_empty()) {
            return Err(Failure::Failed(format!(
                "no service {one}; nothing was changed"
            )));
        }
        let of = |s: &Service| -> Vec<u64> {
            let servers = s.servers.iter().map(|server| s.server_identity(server));
            std::iter::once(s.identity()).chain(servers).collect()
        };
        let identities: BTreeSet<u64> = meant.iter().flat_map(|s| of(s)).collect();
        let status = edge::status(&self.edge)?;
        let instance = status.instances.iter().find(|i| i.name == self.function);
        if let Some(instance) = instance {
            instance
                .zero_balancer_counts(&identities)
                .map_err(Failure::failed)?;
        }
        let done = format!("counters of {} services are 0", meant.len());
        match args.json {
            true => output::json(&json!({
                "edge": self.edge,
                "function": self.function,
                "done": done,
            }))?,
            false => output::out(&format!("{done}\n"))?,
        }
        Ok(())
    }

    fn drain(
        &self,
        args: &ServiceArgs,
        place: &ServiceSelector,
        server: IpAddr,
        off: bool,
    ) -> Result<(), Failure> {
        let mut text = self.text()?;
        let one = match place.tcp_service.is_some() || place.udp_service.is_some() {
            true => Some(which(place)?),
            false => None,
        };
        let count = text.drain(one.as_ref(), server, !off)?;
        let what = if off {
            "takes new flows again"
        } else {
            "drains"
        };
        self.apply(
            args,
            &text,
            &format!("server {server} {what} in {count} of the services"),
        )
    }

    fn list(&self, args: &ServiceArgs) -> Result<(), Failure> {
        if args.json {
            let services: Vec<Value> = self
                .balancer
                .services
                .iter()
                .map(|s| self.as_json(s))
                .collect();
            output::json(&json!({
                "edge": self.edge,
                "function": self.function,
                "services": services,
            }))?;
            return Ok(());
        }
        let mut text = String::new();
        let counted = |count: LbCount| match args.stats || args.rate {
            true => format!(
                " {:>12} {:>15} {:>10}",
                count.packets, count.bytes, count.flows
            ),
            false => String::new(),
        };
        let heads = match (args.rate, args.stats) {
            (true, _) => format!(" {:>12} {:>15} {:>10}", "Packets/s", "Bytes/s", "Flows/s"),
            (_, true) => format!(" {:>12} {:>15} {:>10}", "Packets", "Bytes", "Flows"),
            _ => String::new(),
        };
        let _ = writeln!(
            text,
            "{:<44} {:<6} {:>6} {:<6}{heads}",
            "Service\n  -> Server", "Mode", "Weight", "State"
        );
        for service in &self.balancer.services {
            let count = self
                .counts
                .services
                .get(&service.identity())
                .copied()
                .unwrap_or_default();
            let head = format!("{} ({})", service.place(), service.name);
            let _ = writeln!(
                text,
                "{head:<44} {:<6} {:>6} {:<6}{}",
                service.mode.name(),
                "",
                "",
                counted(count)
            );
            for server in &service.servers {
                let count = self.count_of(service, server);
                let state = match (self.is_down(service, server), server.drain) {
                    _ if self.is_kept(service, server) => "down*",
                    (true, _) => "down",
                    (_, true) => "drain",
                    _ => "up",
                };
                let _ = writeln!(
                    text,
                    "  -> {:<39} {:<6} {:>6} {state:<6}{}",
                    shown(server),
                    "",
                    server.weight,
                    counted(count)
                );
            }
        }
        if !self.counts.kept.is_empty() {
            text.push_str(
                "* still gets new flows: all servers of the service are down (all_down = \"keep\")\n",
            );
        }
        output::out(&text)?;
        Ok(())
    }

    fn count_of(&self, service: &Service, server: &Server) -> LbCount {
        let identity = service.server_identity(server);
        self.counts
            .servers
            .get(&identity)
            .copied()
            .unwrap_or_default()
    }

    /// Whether it did not answer when it was last asked.
    fn is_down(&self, service: &Service, server: &Server) -> bool {
        self.counts.down.contains(&service.server_identity(server))
    }

    /// Whether it is down and gets new flows all the same.
    fn is_kept(&self, service: &Service, server: &Server) -> bool {
        self.counts.kept.contains(&service.server_identity(server))
    }

    fn as_json(&self, service: &Service) -> Value {
        let counted = |count: LbCount| json!({ "packets": count.packets, "bytes": count.bytes, "flows": count.flows });
        let count = self
            .counts
            .services
            .get(&service.identity())
            .copied()
            .unwrap_or_default();
        let servers: Vec<Value> = service
            .servers
            .iter()
            .map(|server| {
                json!({
                    "address": server.address,
                    "port": server.port,
                    "weight": server.weight,
                    "drain": server.drain,
                    "down": self.is_down(service, server),
                    "kept": self.is_kept(service, server),
                    "counted": counted(self.count_of(service, server)),
                })
            })
            .collect();
        json!({
            "name": service.name,
            "address": service.address.to_string(),
            "protocol": service.protocol.name(),
            "port": service.port,
            "mode": service.mode.name(),
            "all_down": service.all_down.name(),
            "counted": counted(count),
            "servers": servers,
        })
    }
}

fn shown(server: &Server) -> String {
    match (server.port, server.address) {
        (None, address) => address.to_string(),
        (Some(port), IpAddr::V4(address)) => format!("{address}:{port}"),
        (Some(port), IpAddr::V6(address)) => format!("[{address}]:{port}"),
    }
}

/// The mode that is said; GUE in ipvsadm's words has a header of its own.
fn mode(how: &How) -> Result<Option<Way>, Failure> {
    let plain = |mode| Way { mode, gue: None };
    let way = match (how.masquerading, how.ipip, how.gatewaying) {
        (true, ..) => Some(plain(ServiceMode::Nat)),
        (_, true, _) => Some(plain(ServiceMode::Ipip)),
        (.., true) => Some(plain(ServiceMode::Dsr)),
        _ => how.mode.map(plain),
    };
    match (how.tun_type, how.ipip) {
        (None, _) if how.tun_port.is_some() => Err(Failure::Usage(
            "--tun-port requires --tun-type gue".to_owned(),
        )),
        (None | Some(TunType::Ipip), _) => Ok(way),
        (Some(TunType::Gue), true) => Ok(Some(Way {
            mode: ServiceMode::Gue,
            gue: Some(how.tun_port.unwrap_or(6080)),
        })),
        (Some(TunType::Gue), false) => Err(Failure::Usage("--tun-type requires -i".to_owned())),
    }
}

fn which(place: &ServiceSelector) -> Result<Which, Failure> {
    let (protocol, text) = match (&place.tcp_service, &place.udp_service) {
        (Some(text), _) => (Protocol::Tcp, text),
        (_, Some(text)) => (Protocol::Udp, text),
        _ => {
            return Err(Failure::Usage(
                "name the service: -t ADDRESS:PORT or -u ADDRESS:PORT".to_owned(),
            ));
        }
    };
    if let Some((network, len)) = text.split_once('/') {
        let (len, port) = match len.split_once(':') {
            Some((len, "0")) => (len, None),
            Some((len, port)) => (len, Some(number(port, text)?)),
            None => (len, None),
        };
        let prefix = format!("{}/{len}", network.trim_matches(['[', ']']));
        let prefix: Prefix = prefix.parse().map_err(|e: Invalid| Failure::usage(e))?;
        return Ok(Which {
            protocol,
            address: prefix.to_string(),
            port,
        });
    }
    let (address, port) = address(text)?;
    Ok(Which {
        protocol,
        address: address.to_string(),
        port,
    })
}

/// `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]:PORT`.
fn address(text: &str) -> Result<(IpAddr, Option<u16>), Failure> {
    if let Ok(address) = weir_value::address(text.trim_matches(['[', ']'])) {
        return Ok((address, None));
    }
    let (address, port) = text.rsplit_once(':').unwrap_or((text, "0"));
    let address = weir_value::address(address.trim_matches(['[', ']'])).map_err(Failure::usage)?;
    // As ipvsadm: 0 is any.
    let port = if port == "0" {
        None
    } else {
        Some(number(port, text)?)
    };
    Ok((address, port))
}

fn number(port: &str, whole: &str) -> Result<u16, Failure> {
    weir_value::port(port)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| Failure::Usage(format!("`{whole}` has no port from 1 to 65535")))
}

fn the_only_edge() -> Result<String, Failure> {
    let mut edges = edge::list()?;
    match edges.len() {
        0 => Err(Failure::Failed(
            "no edge is running here: `weir apply CONFIG` starts one (docs/balancer.md)".to_owned(),
        )),
        1 => Ok(edges.remove(0)),
        _ => Err(Failure::Usage(format!(
            "several edges are running here: select one of {} with --edge",
            edges.join(", ")
        ))),
    }
}
