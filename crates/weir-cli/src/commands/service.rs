//! `weir service`: the services of a running balancer, listed with what they counted, and changed in the configuration that runs.
//!
//! A change is an edit of that configuration's text, applied by the ordinary way: what does not fit is refused with its place, and leaves what
//! runs as it is. The file on disk is not changed; `weir service save -o FILE` writes what runs.

mod check;
mod edit;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

use serde_json::{Value, json};
use weir_bpf::abi::LbCount;
use weir_engine::edge::{self, BalancerCounts};
use weir_functions::balancer::{Balancer, Protocol, Server, Service};
use weir_functions::kind::EdgePort;

use super::edge::apply::switch_to;
use super::edge::record::Record;
use crate::args::service::{How, Place, ServiceArgs, ServiceCommand, ServiceMode};
use crate::failure::Failure;
use crate::output;
use edit::{Text, Which};

pub(crate) fn run(args: &ServiceArgs) -> Result<ExitCode, Failure> {
    if args.command.is_some() && has_flags(args) {
        return Err(Failure::Usage(
            "a word (`weir service add-server ...`) and ipvsadm's letters do not go together: put what belongs to the word behind it".to_owned(),
        ));
    }
    if let Some(ServiceCommand::Check(check)) = &args.command {
        return check::run(args, check);
    }
    let desk = Desk::open(args)?;
    match &args.command {
        Some(command) => named(&desk, args, command)?,
        None => flagged(&desk, args)?,
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
    ];
    verbs.contains(&true)
        || args.place.tcp_service.is_some()
        || args.place.udp_service.is_some()
        || args.real_server.is_some()
        || args.how != How::default()
}

fn named(desk: &Desk, args: &ServiceArgs, command: &ServiceCommand) -> Result<(), Failure> {
    match command {
        ServiceCommand::List { numeric: _ } => desk.list(args),
        ServiceCommand::Add { place, how } => desk.add(args, &which(place)?, how),
        ServiceCommand::Edit { place, how } => desk.edit(args, &which(place)?, how),
        ServiceCommand::Delete { place } => desk.delete(args, &which(place)?),
        ServiceCommand::AddServer {
            place,
            real_server,
            how,
        } => desk.add_server(args, &which(place)?, real_server, how),
        ServiceCommand::EditServer {
            place,
            real_server,
            how,
        } => desk.edit_server(args, &which(place)?, real_server, how),
        ServiceCommand::DeleteServer { place, real_server } => {
            desk.delete_server(args, &which(place)?, real_server)
        }
        ServiceCommand::Drain {
            place,
            real_server,
            off,
        } => desk.drain(args, place, *real_server, *off),
        // It opens its own desk, again and again.
        ServiceCommand::Check(_) => Ok(()),
        ServiceCommand::Save { output } => {
            std::fs::write(output, desk.record.text()).map_err(|error| {
                Failure::Failed(format!("cannot write {}: {error}", output.display()))
            })?;
            output::complain(&format!(
                "{} is the configuration that runs; paths in it are relative to the folder of the one that was applied",
                output.display()
            ));
            Ok(())
        }
    }
}

/// ipvsadm's spellings.
fn flagged(desk: &Desk, args: &ServiceArgs) -> Result<(), Failure> {
    let server = || args.real_server.as_deref().unwrap_or_default();
    let place = || which(&args.place);
    if args.add_service {
        return desk.add(args, &place()?, &args.how);
    }
    if args.edit_service {
        return desk.edit(args, &place()?, &args.how);
    }
    if args.delete_service {
        return desk.delete(args, &place()?);
    }
    if args.add_server {
        return desk.add_server(args, &place()?, server(), &args.how);
    }
    if args.edit_server {
        return desk.edit_server(args, &place()?, server(), &args.how);
    }
    if args.delete_server {
        return desk.delete_server(args, &place()?, server());
    }
    if args.place.tcp_service.is_some()
        || args.place.udp_service.is_some()
        || args.real_server.is_some()
    {
        return Err(Failure::Usage(
            "say what to do with it: -A, -E, -D, -a, -e or -d, or a word (`weir service --help`)"
                .to_owned(),
        ));
    }
    desk.list(args)
}

/// A balancer and the configuration that it is in.
struct Desk {
    edge: String,
    function: String,
    record: Record,
    balancer: Balancer,
    counts: BalancerCounts,
}

impl Desk {
    fn open(args: &ServiceArgs) -> Result<Desk, Failure> {
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
        Ok(Desk {
            edge,
            function,
            record,
            balancer,
            counts: counts.unwrap_or_default(),
        })
    }

    fn text(&self) -> Result<Text, Failure> {
        Text::parse(self.record.text(), &self.function)
    }

    /// Applies a changed text.
    fn apply(&self, args: &ServiceArgs, text: &Text, done: &str) -> Result<(), Failure> {
        let (plan, record) = self.record.edited(text.to_string())?;
        let applied = switch_to(&plan, &record)?;
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

    fn add(&self, args: &ServiceArgs, which: &Which, how: &How) -> Result<(), Failure> {
        let mut text = self.text()?;
        text.add(which, mode(how), how.name.as_deref())?;
        self.apply(args, &text, &format!("service {which} was added"))
    }

    fn edit(&self, args: &ServiceArgs, which: &Which, how: &How) -> Result<(), Failure> {
        let mut text = self.text()?;
        if mode(how).is_none() && how.name.is_none() {
            return Err(Failure::Usage(
                "say what of the service is to change: --mode (-i, -m, -g) or --name".to_owned(),
            ));
        }
        text.edit(which, mode(how), how.name.as_deref())?;
        self.apply(args, &text, &format!("service {which} was changed"))
    }

    fn delete(&self, args: &ServiceArgs, which: &Which) -> Result<(), Failure> {
        let mut text = self.text()?;
        text.delete(which)?;
        self.apply(args, &text, &format!("service {which} was deleted"))
    }

    fn add_server(
        &self,
        args: &ServiceArgs,
        which: &Which,
        server: &str,
        how: &How,
    ) -> Result<(), Failure> {
        let mut text = self.text()?;
        let (address, port) = address(server)?;
        text.add_server(which, address, port, how, mode(how))?;
        self.apply(
            args,
            &text,
            &format!("server {server} was added to {which}"),
        )
    }

    fn edit_server(
        &self,
        args: &ServiceArgs,
        which: &Which,
        server: &str,
        how: &How,
    ) -> Result<(), Failure> {
        let mut text = self.text()?;
        let (address, port) = address(server)?;
        text.edit_server(which, address, port, how, mode(how))?;
        self.apply(
            args,
            &text,
            &format!("server {server} of {which} was changed"),
        )
    }

    fn delete_server(
        &self,
        args: &ServiceArgs,
        which: &Which,
        server: &str,
    ) -> Result<(), Failure> {
        let mut text = self.text()?;
        let (address, port) = address(server)?;
        text.delete_server(which, address, port)?;
        self.apply(
            args,
            &text,
            &format!("server {server} was taken out of {which}"),
        )
    }

    fn drain(
        &self,
        args: &ServiceArgs,
        place: &Place,
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
        let counted = |count: LbCount| match args.stats {
            true => format!(
                " {:>12} {:>15} {:>10}",
                count.packets, count.bytes, count.flows
            ),
            false => String::new(),
        };
        let heads = match args.stats {
            true => format!(" {:>12} {:>15} {:>10}", "Packets", "Bytes", "Flows"),
            false => String::new(),
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
                let state = match (server.down, server.drain) {
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
                    "down": server.down,
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

fn mode(how: &How) -> Option<ServiceMode> {
    match (how.masquerading, how.ipip, how.gatewaying) {
        (true, ..) => Some(ServiceMode::Nat),
        (_, true, _) => Some(ServiceMode::Ipip),
        (.., true) => Some(ServiceMode::Dsr),
        _ => how.mode,
    }
}

fn which(place: &Place) -> Result<Which, Failure> {
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
            Some((len, port)) => (len, Some(number(port, text)?)),
            None => (len, None),
        };
        return Ok(Which {
            protocol,
            address: format!("{}/{len}", network.trim_matches(['[', ']'])),
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
    let wrong = || {
        Failure::Usage(format!(
            "`{text}` is no address: write 192.0.2.1:80, [2001:db8::1]:80, or the address alone"
        ))
    };
    if let Ok(address) = text.trim_matches(['[', ']']).parse() {
        return Ok((address, None));
    }
    let (address, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let address = address
        .trim_matches(['[', ']'])
        .parse()
        .map_err(|_| wrong())?;
    // As ipvsadm: 0 is any.
    let port = if port == "0" {
        None
    } else {
        Some(number(port, text)?)
    };
    Ok((address, port))
}

fn number(port: &str, whole: &str) -> Result<u16, Failure> {
    port.parse()
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| Failure::Usage(format!("`{whole}` has no port from 1 to 65535")))
}

fn the_only_edge() -> Result<String, Failure> {
    let mut edges = edge::list()?;
    match edges.len() {
        0 => Err(Failure::Failed(
            "no edge runs here: `weir apply CONFIG` makes one (docs/balancer.md)".to_owned(),
        )),
        1 => Ok(edges.remove(0)),
        _ => Err(Failure::Usage(format!(
            "several edges run here: name one of {} with --edge",
            edges.join(", ")
        ))),
    }
}
