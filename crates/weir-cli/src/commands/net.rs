//! `weir net`: what only virtual networks have: traces and pings of workloads, the helper daemon, counters by interface (docs/networks.md). Documents
//! are checked, applied and compared by the commands for all kinds of files (`edge`).
//!
//! Exit status 2: the document or a name is wrong; 1: the host refused. Whatever fails has changed nothing.

mod cni;
mod names;
mod ping;
mod store;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use weir_bpf::abi::LbCount;
use weir_engine::edge::BalancerCounts;
use weir_engine::network::helper::Options;
use weir_engine::network::{self, Look};
use weir_functions::balancer::{Balancer, Server, Service};
use weir_functions::kind::Request;
use weir_graph::Folder;
use weir_network::model::Document;
use weir_network::trace::{Described, Payload};
use weir_network::{BALANCER, Networks as Checked};
use weir_runtime::networks::{Record, planned, running_edge};
use weir_runtime::stations;

use self::names::workload_of;
use super::check;
use super::edge::{
    self,
    networks::{applied_json, applied_text, as_json, columns, interfaces},
};
use crate::args::net::{NetArgs, NetCommand};
use crate::args::{ApplyArgs, CheckArgs, PlanArgs};
use crate::failure::Failure;
use crate::output;

/// Name under which container runtimes start the plugin.
pub(crate) const CNI_PLUGIN: &str = "weir-cni";

/// Serves one call of a container runtime.
pub(crate) fn cni() -> ExitCode {
    cni::run()
}

pub(crate) fn run(args: &NetArgs) -> Result<ExitCode, Failure> {
    let json = args.json;
    match &args.command {
        // The verbs of all kinds of files, as they were called before.
        NetCommand::Check { document } => {
            let policies = vec![document.clone()];
            return check::run(&CheckArgs { policies, json });
        }
        NetCommand::Plan { document, edge } => {
            let (file, edge) = (document.clone(), edge.clone());
            return edge::plan_of(&PlanArgs { file, edge, json });
        }
        NetCommand::Apply {
            document,
            edge,
            force,
        } => {
            return edge::apply::run(&ApplyArgs {
                config: Some(document.clone()),
                edge: edge.clone(),
                force: *force,
                json,
                ..ApplyArgs::default()
            });
        }
        NetCommand::Delete { networks, edge } => delete(networks, edge.as_deref(), args.json)?,
        NetCommand::Workload(command) => return workload::run(command, args.json),
        NetCommand::Cni => return Ok(cni::run()),
        NetCommand::Store(what) => return store::run(what, args.json),
        NetCommand::Show { networks, edge } => {
            let (edge, look) = running_edge(edge.as_deref())?;
            let shown = Shown::of(edge, look, networks)?;
            match args.json {
                true => output::json(&shown.json()?)?,
                false => output::out(&shown.text()?)?,
            }
        }
        NetCommand::Export { edge } => export(edge.as_deref())?,
        NetCommand::Ping(what) => return ping::run(what, args.json),
        NetCommand::Helper {
            edge,
            socket,
            no_dhcp,
        } => helper(edge.as_deref(), socket.as_deref(), !no_dhcp, args.json)?,
        NetCommand::Trace {
            document,
            from,
            to,
            what,
            source_port,
            source,
            mac,
            ttl,
            length,
        } => {
            let (network, workload) = workload_of(from)?;
            let described = Described {
                network: network.to_owned(),
                workload: workload.to_owned(),
                to: *to,
                from: *source,
                mac: *mac,
                payload: payload(what, *source_port)?,
                ttl: *ttl,
                length: *length,
            };
            return trace(document, &described, args.json);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `echo`, `tcp PORT`, `udp PORT`, or the number of a protocol.
fn payload(words: &[String], source: u16) -> Result<Payload, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "`{}` is not a protocol: write `echo`, `tcp PORT`, `udp PORT` or the number of a protocol",
            words.join(" ")
        ))
    };
    match words {
        [echo] if echo == "echo" => Ok(Payload::Echo),
        [number] => weir_value::protocol(number)
            .map(Payload::Protocol)
            .map_err(Failure::usage),
        [protocol, port] => {
            let port = weir_value::port(port).map_err(Failure::usage)?;
            match protocol.as_str() {
                "tcp" => Ok(Payload::Tcp(source, port)),
                "udp" => Ok(Payload::Udp(source, port)),
                _ => Err(wrong()),
            }
        }
        _ => Err(wrong()),
    }
}

/// Exit status 0: it reached somebody; 1: it did not.
fn trace(path: &Path, described: &Described, json: bool) -> Result<ExitCode, Failure> {
    let networks = checked(&Record::of_file(path)?)?;
    if let [first, ..] = networks.document.unread().as_slice() {
        output::complain(&format!(
            "a trace does not read devices: {first} and others with `mac = \"device\"` have addresses made of their names in it"
        ));
    }
    let trace = weir_network::trace::trace(&networks, described).map_err(Failure::usage)?;
    let name = |workload: &str| format!("{}/{workload}", described.network);
    let mut ends = vec![name(&described.workload)];
    ends.extend(trace.delivered.iter().map(|one| name(&one.workload)));
    let mut edges: Vec<&str> = trace.steps.iter().map(|one| one.edge.as_str()).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut found = Vec::new();
    for edge in edges {
        found.extend(stations::here(&networks, edge, &ends)?);
    }
    if json {
        let mut value = serde_json::to_value(&trace).map_err(Failure::failed)?;
        value["warnings"] = json!(found);
        output::json(&value)?;
    } else {
        let mut text = trace.to_string();
        for warning in found {
            text.push_str(&format!("warning: {warning}\n"));
        }
        output::out(&text)?;
    }
    Ok(match trace.delivered.is_empty() {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

/// A document, checked; its warnings are shown.
pub(super) fn checked(record: &Record) -> Result<Checked, Failure> {
    let (checked, warnings) = record.check()?;
    output::tell(&warnings.render(output::stderr_has_color()));
    Ok(checked)
}

fn delete(names: &[String], edge: Option<&str>, json: bool) -> Result<(), Failure> {
    let (edge, look) = running_edge(edge)?;
    if names.is_empty() {
        weir_runtime::down_networks(&edge)?;
        match json {
            true => output::json(&json!({ "edge": edge, "removed": true }))?,
            false => output::out(&format!("edge {edge}: all networks are removed\n"))?,
        }
        return Ok(());
    }
    let mut record = Record::read(&look.text)?;
    if let Some(owner) = &record.configuration {
        return Err(Failure::Usage(format!(
            "the networks of edge {edge} belong to the configuration {0}: take them out of {1} and run `weir apply {0}`",
            owner.display(),
            record.path.display()
        )));
    }
    let mut document: toml_edit::DocumentMut = record.text.parse().map_err(Failure::failed)?;
    let networks = document
        .get_mut("network")
        .and_then(toml_edit::Item::as_array_of_tables_mut);
    let name_of = |table: &toml_edit::Table| {
        table
            .get("name")
            .and_then(|name| name.as_str())
            .map(str::to_owned)
    };
    let known: Vec<String> = match &networks {
        Some(networks) => networks.iter().filter_map(name_of).collect(),
        None => Vec::new(),
    };
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(Failure::Usage(format!(
            "no network named `{unknown}` runs on edge {edge}; available: {}",
            known.join(", ")
        )));
    }
    if let Some(networks) = networks {
        networks.retain(|table| !name_of(table).is_some_and(|name| names.contains(&name)));
    }
    record.text = document.to_string();
    drop(checked(&record)?);
    let done = weir_runtime::networks::apply(&edge, &record)?;
    let stations = stations::of(&done.plan)?;
    for warning in stations::warnings(&stations) {
        output::complain(&warning);
    }
    match json {
        true => output::json(&applied_json(&edge, &done, &stations)?)?,
        false => output::out(&applied_text(&edge, &done, &stations))?,
    }
    Ok(())
}

/// Running networks and what they counted.
pub(super) struct Shown {
    edge: String,
    look: Look,
    plan: weir_network::EdgeNetworks,
    only: Vec<String>,
    /// Packets, bytes and drops, by VID.
    counts: BTreeMap<u32, [u64; 3]>,
    drops: Vec<(weir_bpf::abi::NetDrop, u64)>,
    balancers: Vec<Counted>,
    /// Devices of workloads that do not exist.
    missing: Vec<String>,
    /// Its programs tell what packets go through, to this process if it lives; `None`: they do not.
    watched: Option<Option<u32>>,
}

/// One network on this edge.
#[derive(Debug, Default, Serialize)]
struct Total {
    network: String,
    workloads: usize,
    /// Sent by workloads of this edge, and received from other edges.
    packets: u64,
    /// Of these packets.
    bytes: u64,
    /// At any interface of the network.
    dropped: u64,
    reasons: BTreeMap<String, u64>,
}

impl Shown {
    /// Of some networks of an edge, or of all if none is named.
    pub(super) fn of(edge: String, look: Look, only: &[String]) -> Result<Shown, Failure> {
        let networks = checked(&Record::read(&look.text)?)?;
        let plan = planned(&networks, &edge, &look.numbers)?;
        let balancers = balancers(&networks.document, only, &look)?;
        let mut counts = BTreeMap::new();
        for (vid, label) in plan.labels.interfaces.iter().enumerate() {
            if !label.name.is_empty()
                && (only.is_empty() || only.iter().any(|name| **name == *label.network))
            {
                let count = look.set.count(vid as u32)?;
                counts.insert(vid as u32, [count.packets, count.bytes, count.dropped]);
            }
        }
        Ok(Shown {
            drops: look.set.drops()?,
            missing: look.device_changes()?.missing,
            watched: match network::is_watched(&edge)? {
                true => Some(network::watcher(&edge)?),
                false => None,
            },
            edge,
            look,
            plan,
            only: only.to_vec(),
            counts,
            balancers,
        })
    }

    pub(super) fn json(&self) -> Result<serde_json::Value, Failure> {
        let mut value = as_json(&self.plan);
        value["generation"] = json!(self.look.generation);
        value["missing_devices"] = json!(self.missing);
        if let Some(rows) = value["interfaces"].as_array_mut() {
            rows.retain_mut(|row| {
                let vid = row["vid"].as_u64().unwrap_or(0) as u32;
                let Some([packets, bytes, dropped]) = self.counts.get(&vid) else {
                    return false;
                };
                let found = self.drops.iter().filter(|(drop, _)| drop.vid == vid);
                let reasons: BTreeMap<String, u64> = found
                    .clone()
                    .map(|(drop, n)| (reason(drop.reason), *n))
                    .collect();
                let cures: BTreeMap<String, String> = found
                    .filter_map(|(drop, _)| {
                        let known = weir_packet::Reason::from_index(drop.reason)?;
                        let cure = stations::cure(&self.plan, vid, known).ok().flatten()?;
                        Some((known.name().to_owned(), cure))
                    })
                    .collect();
                row["cures"] = json!(cures);
                row["packets"] = json!(packets);
                row["bytes"] = json!(bytes);
                row["dropped"] = json!(dropped);
                row["reasons"] = json!(reasons);
                true
            });
        }
        let watched = self.watched.map(|process| json!({ "process": process }));
        value["watched"] = json!(watched);
        value["totals"] = json!(self.totals());
        value["balancers"] = self.balancers.iter().map(Counted::as_json).collect();
        Ok(value)
    }

    /// What came into each network on this edge, and what was dropped anywhere in it.
    fn totals(&self) -> Vec<Total> {
        let entrances: BTreeSet<u32> = self.plan.entrances().collect();
        let mut all: BTreeMap<&str, Total> = BTreeMap::new();
        for one in &self.plan.devices {
            if self.counts.contains_key(&one.vid) {
                let total = all.entry(&one.network).or_default();
                total.workloads += 1;
            }
        }
        for (vid, [packets, bytes, dropped]) in &self.counts {
            let label = self.plan.labels.interfaces.get(*vid as usize);
            let Some(label) = label else { continue };
            let total = all.entry(&label.network).or_default();
            if entrances.contains(vid) {
                total.packets += packets;
                total.bytes += bytes;
            }
            total.dropped += dropped;
            for (drop, n) in self.drops.iter().filter(|(drop, _)| drop.vid == *vid) {
                *total.reasons.entry(reason(drop.reason)).or_default() += n;
            }
        }
        for (name, total) in &mut all {
            total.network = (*name).to_owned();
        }
        all.into_values().collect()
    }

    pub(super) fn text(&self) -> Result<String, Failure> {
        let mut text = self.head();
        text.push_str(&interfaces(&self.plan, &self.only, |vid| {
            self.counts.get(&vid).copied()
        }));
        text.push_str(&self.drops_text()?);
        for balancer in &self.balancers {
            text.push_str(&balancer.shown());
        }
        Ok(text)
    }

    fn head(&self) -> String {
        let watched = match self.watched {
            Some(Some(process)) => format!("  process {process} watches them\n"),
            Some(None) => {
                "  they run programs that can be watched; `weir trace --off` ends that\n".to_owned()
            }
            None => String::new(),
        };
        let missing = match self.missing.as_slice() {
            [] => String::new(),
            names => format!(
                "  no such device: {}; `weir agent` attaches it when it appears\n",
                names.join(", ")
            ),
        };
        format!(
            "edge {}, networks: generation {}, document version {}\n{watched}{missing}",
            self.edge, self.look.generation, self.plan.version
        )
    }

    /// A line for each network instead of one for each interface; drops in full.
    pub(super) fn summary(&self) -> Result<String, Failure> {
        let head = ["network", "workloads", "packets", "bytes", "dropped"];
        let mut rows = vec![head.map(str::to_owned)];
        for total in self.totals() {
            let [packets, bytes, dropped] =
                [total.packets, total.bytes, total.dropped].map(|n| n.to_string());
            let workloads = total.workloads.to_string();
            rows.push([total.network, workloads, packets, bytes, dropped]);
        }
        Ok(format!(
            "{}{}{}",
            self.head(),
            columns(&rows),
            self.drops_text()?
        ))
    }

    fn drops_text(&self) -> Result<String, Failure> {
        let mut text = String::new();
        for (drop, n) in &self.drops {
            if !self.counts.contains_key(&drop.vid) && drop.vid != 0 {
                continue;
            }
            let label = self.plan.labels.interfaces.get(drop.vid as usize);
            let place = label.filter(|l| !l.name.is_empty()).map_or_else(
                || "no interface".to_owned(),
                |l| format!("{} {}", l.network, l.name),
            );
            text.push_str(&format!(
                "dropped at {place}: {n} {}\n",
                reason(drop.reason)
            ));
            let known = weir_packet::Reason::from_index(drop.reason);
            if let Some(known) = known {
                text.push_str(&format!("  {}\n", known.text()));
                if let Some(cure) = stations::cure(&self.plan, drop.vid, known)? {
                    text.push_str(&format!("  {cure}\n"));
                }
            }
        }
        Ok(text)
    }
}

fn reason(number: u32) -> String {
    let reason = weir_packet::Reason::ALL.get(number as usize);
    reason.map_or_else(|| number.to_string(), |reason| reason.name().to_owned())
}

/// A balancer that runs here, and what it counted.
struct Counted {
    network: String,
    function: String,
    model: Balancer,
    counts: BalancerCounts,
}

/// Those of some networks, or of all if none is named.
fn balancers(document: &Document, only: &[String], look: &Look) -> Result<Vec<Counted>, Failure> {
    let mut found = Vec::new();
    for network in &document.networks {
        let name = network.name.as_str();
        if !only.is_empty() && !only.iter().any(|one| one == name) {
            continue;
        }
        for function in network
            .functions
            .iter()
            .filter(|one| one.kind.as_str() == BALANCER)
        {
            let instance = weir_network::instance_name(name, &function.name);
            // One that has its home elsewhere does not run here.
            let Some(counts) = look.balancer(&instance)? else {
                continue;
            };
            let request = Request {
                name: &instance,
                keys: &function.keys,
                files: &Folder::of(Path::new("")),
                ports: &[],
                transmits: false,
            };
            found.push(Counted {
                network: name.to_owned(),
                function: function.name.value.clone(),
                model: Balancer::read(&request).map_err(Failure::failed)?,
                counts,
            });
        }
    }
    Ok(found)
}

impl Counted {
    fn of_service(&self, service: &Service) -> LbCount {
        let found = self.counts.services.get(&service.identity());
        found.copied().unwrap_or_default()
    }

    fn of_server(&self, service: &Service, server: &Server) -> LbCount {
        let found = self.counts.servers.get(&service.server_identity(server));
        found.copied().unwrap_or_default()
    }

    /// The address and port of a server.
    fn place(service: &Service, server: &Server) -> String {
        match server.port.or(service.port) {
            Some(port) => SocketAddr::new(server.address, port).to_string(),
            None => server.address.to_string(),
        }
    }

    fn shown(&self) -> String {
        let head = ["service", "server", "weight", "packets", "bytes", "flows"];
        let mut rows = vec![head.map(str::to_owned)];
        let numbers =
            |count: LbCount| [count.packets, count.bytes, count.flows].map(|n| n.to_string());
        for service in &self.model.services {
            let [packets, bytes, flows] = numbers(self.of_service(service));
            let name = format!("{} ({})", service.place(), service.name);
            rows.push([name, String::new(), String::new(), packets, bytes, flows]);
            for server in &service.servers {
                let [packets, bytes, flows] = numbers(self.of_server(service, server));
                let weight = match server.drain {
                    true => "drain".to_owned(),
                    false => server.weight.to_string(),
                };
                let place = Counted::place(service, server);
                rows.push([String::new(), place, weight, packets, bytes, flows]);
            }
        }
        format!(
            "balancer {} {}\n{}",
            self.network,
            self.function,
            columns(&rows)
        )
    }

    fn as_json(&self) -> serde_json::Value {
        let counted = |count: LbCount| json!({ "packets": count.packets, "bytes": count.bytes, "flows": count.flows });
        let services: Vec<_> = self
            .model
            .services
            .iter()
            .map(|service| {
                let servers: Vec<_> = service
                    .servers
                    .iter()
                    .map(|server| {
                        let mut row = counted(self.of_server(service, server));
                        row["server"] = json!(Counted::place(service, server));
                        row["weight"] = json!(server.weight);
                        row["drain"] = json!(server.drain);
                        row
                    })
                    .collect();
                let mut row = counted(self.of_service(service));
                row["service"] = json!(service.name);
                row["place"] = json!(service.place());
                row["servers"] = json!(servers);
                row
            })
            .collect();
        json!({ "network": self.network, "function": self.function, "services": services })
    }
}

fn export(edge: Option<&str>) -> Result<(), Failure> {
    let (_, look) = running_edge(edge)?;
    Ok(output::out(&Record::read(&look.text)?.text)?)
}

/// Runs until a signal. Whether networks run yet does not matter where the edge is named.
fn helper(
    edge: Option<&str>,
    socket: Option<&Path>,
    dhcp: bool,
    json: bool,
) -> Result<(), Failure> {
    let edge = match edge {
        Some(edge) => edge.to_owned(),
        None => running_edge(None)?.0,
    };
    let mut options = Options::of(&edge);
    options.dhcp = dhcp;
    if let Some(socket) = socket {
        options.socket = socket.to_owned();
    }
    let planner = |look: &Look| {
        let plan = || {
            let (networks, _) = Record::read(&look.text)?.check()?;
            planned(&networks, &edge, &look.numbers)
        };
        plan().map_err(|error| error.to_string())
    };
    let stop = crate::limits::stop_on_signals()?;
    output::tell(&format!(
        "helper of edge {edge}: controllers at {}\n",
        options.socket.display()
    ));
    let mut told = |text: &str| output::tell(&format!("edge {edge}: {text}\n"));
    let counts = network::helper::run(&edge, &options, &planner, &stop, &mut told)?;
    if json {
        return Ok(output::json(&counts)?);
    }
    Ok(output::out(&format!(
        "{} received ({} too old), {} offered, {} leased, {} refused, {} not answered, {} given to controllers, {} lost, {} sent, {} not sent\n",
        counts.received,
        counts.stale,
        counts.offered,
        counts.leased,
        counts.refused,
        counts.silent,
        counts.given,
        counts.lost,
        counts.sent,
        counts.unsent,
    ))?)
}
