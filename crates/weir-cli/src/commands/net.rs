//! `weir net`: virtual networks of this host, from documents that declare them for all hosts (docs/networks.md).
//!
//! Exit status 2: the document or a name is wrong; 1: the host refused. Whatever fails has changed nothing.

mod ping;
mod stations;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use weir_bpf::abi::LbCount;
use weir_engine::edge::BalancerCounts;
use weir_engine::network::helper::Options;
use weir_engine::network::{self, Look, NetworkError, Networks};
use weir_functions::balancer::{Balancer, Server, Service};
use weir_functions::kind::{Files, Request};
use weir_graph::Folder;
use weir_network::model::Document;
use weir_network::trace::{Described, Payload};
use weir_network::values::Mac;
use weir_network::{BALANCER, EdgeNetworks, Networks as Checked, Numbers};
use weir_policy::Diagnostics;

use super::policy::count;
use crate::args::net::{NetArgs, NetCommand};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &NetArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        NetCommand::Check { document } => check(document, args.json)?,
        NetCommand::Plan { document, edge } => plan(document, edge.as_deref(), args.json)?,
        NetCommand::Apply {
            document,
            edge,
            force,
        } => apply(document, edge.as_deref(), *force, args.json)?,
        NetCommand::Delete { networks, edge } => delete(networks, edge.as_deref(), args.json)?,
        NetCommand::Show { networks, edge } => show(networks, edge.as_deref(), args.json)?,
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
                mac: mac.as_deref().map(station).transpose()?,
                payload: payload(what, *source_port)?,
                ttl: *ttl,
                length: *length,
            };
            return trace(document, &described, args.json);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A workload as commands name it.
fn workload_of(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once('/')
        .ok_or_else(|| Failure::Usage(format!("`{text}` is no workload: write NETWORK/WORKLOAD")))
}

fn station(text: &str) -> Result<Mac, Failure> {
    text.parse().map_err(|_| {
        Failure::Usage(format!(
            "`{text}` is no MAC address: write 02:00:00:00:00:07"
        ))
    })
}

/// `echo`, `tcp PORT`, `udp PORT`, or the number of a protocol.
fn payload(words: &[String], source: u16) -> Result<Payload, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "`{}` is nothing a packet carries: write `echo`, `tcp PORT`, `udp PORT` or the number of a protocol",
            words.join(" ")
        ))
    };
    match words {
        [echo] if echo == "echo" => Ok(Payload::Echo),
        [number] => number.parse().map(Payload::Protocol).map_err(|_| wrong()),
        [protocol, port] => {
            let port = port.parse().map_err(|_| wrong())?;
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
    let networks = record(path)?.check()?;
    if let [first, ..] = networks.document.unread().as_slice() {
        output::complain(&format!(
            "a trace looks at no device: {first} and others with `mac = \"device\"` have addresses made of their names in it"
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

impl From<NetworkError> for Failure {
    fn from(error: NetworkError) -> Failure {
        match error {
            NetworkError::Tables(_) | NetworkError::Name { .. } => Failure::usage(error),
            _ => Failure::failed(error),
        }
    }
}

/// What is kept beside running networks, as the engine's text.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Where the document was read from, whole: files that it names lie beside it.
    path: PathBuf,
    /// The document.
    text: String,
    /// MAC addresses that were read from devices, by `network/workload`.
    #[serde(default)]
    stations: BTreeMap<String, String>,
}

impl Record {
    fn read(text: &str) -> Result<Record, Failure> {
        serde_json::from_str(text).map_err(|error| {
            Failure::Failed(format!(
                "what runs was applied by something else than `weir net apply` of this version: {error}"
            ))
        })
    }

    fn write(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(Failure::failed)
    }

    fn check(&self) -> Result<Checked, Failure> {
        let checked = self.check_beside(&|_, _| None)?;
        output::tell(&checked.1.render(output::stderr_is_terminal()));
        Ok(checked.0)
    }

    /// With what functions hold that run, by function and map: balancers go on with the numbers of their servers.
    fn check_beside(&self, held: Held<'_>) -> Result<(Checked, Diagnostics), Failure> {
        let document = self.parse()?;
        let files = Beside {
            folder: Folder::of(&self.path),
            held,
        };
        weir_network::check(document, &files).map_err(|found| self.refused(&found))
    }

    fn parse(&self) -> Result<Document, Failure> {
        let mut document = weir_network::parse(&self.text, &self.path.display().to_string())
            .map_err(|found| self.refused(&found))?;
        let read = self.stations.iter();
        let read = read.filter_map(|(name, mac)| Some((name.clone(), mac.parse().ok()?)));
        document.fill_devices(&read.collect());
        Ok(document)
    }

    /// Reads the MAC addresses that workloads of an edge take from their devices.
    fn read_devices(&mut self, edge: &str) -> Result<(), Failure> {
        let mut document = self.parse()?;
        self.stations = stations::read(&mut document, edge)?;
        Ok(())
    }

    fn refused(&self, found: &Diagnostics) -> Failure {
        output::tell(&found.render(output::stderr_is_terminal()));
        Failure::Usage(format!(
            "{}: {} in the document; nothing was changed",
            self.path.display(),
            count(found.len(), "mistake")
        ))
    }

    /// A document that was checked by itself, checked again beside what runs, if that makes a difference. Its warnings were shown.
    fn beside(&self, networks: Checked, held: Held<'_>) -> Result<Checked, Failure> {
        let mut functions = networks
            .document
            .networks
            .iter()
            .flat_map(|one| &one.functions);
        match functions.any(|one| one.kind.as_str() == BALANCER) {
            true => Ok(self.check_beside(held)?.0),
            false => Ok(networks),
        }
    }
}

/// What a map of a function holds that runs: function, map.
type Held<'h> = &'h dyn Fn(&str, &str) -> Option<Vec<u8>>;

/// Files beside a document, and what functions hold that run.
struct Beside<'h> {
    folder: Folder,
    held: Held<'h>,
}

impl Files for Beside<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.folder.read(path)
    }

    fn modified(&self, path: &Path) -> Option<u64> {
        self.folder.modified(path)
    }

    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        (self.held)(instance, map)
    }
}

/// What is held, or nothing: where it cannot be read, servers get numbers as if the function did not run.
fn held(function: &str, found: Result<Option<Vec<u8>>, NetworkError>) -> Option<Vec<u8>> {
    found.unwrap_or_else(|error| {
        output::complain(&format!(
            "what {function} runs with cannot be read ({error}): this is planned as if it did not run"
        ));
        None
    })
}

fn record(path: &Path) -> Result<Record, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::Usage(format!(
            "cannot read the document `{}`: {error}",
            path.display()
        ))
    })?;
    Ok(Record {
        path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        text,
        stations: BTreeMap::new(),
    })
}

/// Reads a document. Mistakes and warnings are shown.
pub(super) fn checked(path: &Path, text: &str) -> Result<Checked, Failure> {
    let record = Record {
        path: path.to_owned(),
        text: text.to_owned(),
        stations: BTreeMap::new(),
    };
    record.check()
}

fn check(path: &Path, json: bool) -> Result<(), Failure> {
    let networks = record(path)?.check()?;
    let document = &networks.document;
    let workloads: usize = document
        .networks
        .iter()
        .map(|one| one.workloads.len())
        .sum();
    if json {
        return Ok(output::json(&json!({
            "ok": true,
            "version": document.version,
            "edges": document.edges.len(),
            "tenants": document.tenants.len(),
            "networks": document.networks.len(),
            "workloads": workloads,
        }))?);
    }
    Ok(output::out(&format!(
        "{}: version {}, {}, {}, {}, {}\n",
        path.display(),
        document.version,
        count(document.edges.len(), "edge"),
        count(document.tenants.len(), "tenant"),
        count(document.networks.len(), "network"),
        count(workloads, "workload"),
    ))?)
}

/// Which edge is meant.
pub(super) fn edge_of(document: &Document, given: Option<&str>) -> Result<String, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if let [only] = document.edges.as_slice() {
        return Ok(only.name.value.clone());
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    match document.edges.iter().find(|one| one.name.value == host) {
        Some(edge) => Ok(edge.name.value.clone()),
        None => {
            let names: Vec<&str> = document.edges.iter().map(|e| e.name.as_str()).collect();
            Err(Failure::Usage(format!(
                "the document has no edge named as this host (`{host}`); say which one it is with --edge: {}",
                names.join(", ")
            )))
        }
    }
}

pub(super) fn planned(
    networks: &Checked,
    edge: &str,
    before: &Numbers,
) -> Result<EdgeNetworks, Failure> {
    networks.plan(edge, before).map_err(Failure::usage)
}

fn plan(path: &Path, edge: Option<&str>, json: bool) -> Result<(), Failure> {
    let mut record = record(path)?;
    let edge = edge_of(&record.parse()?, edge)?;
    record.read_devices(&edge)?;
    let mut networks = record.check()?;
    // Numbers of what runs, where that can be seen.
    let running = network::look(&edge).ok().flatten();
    if let Some(look) = &running {
        let kept = |function: &str, map: &str| held(function, look.held(function, map));
        networks = record.beside(networks, &kept)?;
    }
    let before = running.map_or_else(Arc::default, |look| look.numbers);
    let plan = planned(&networks, &edge, &before)?;
    let stations = stations::of(&plan)?;
    for warning in stations::warnings(&stations) {
        output::complain(&warning);
    }
    if json {
        let mut value = as_json(&plan);
        value["stations"] = stations::as_json(&stations);
        return Ok(output::json(&value)?);
    }
    let mut text = format!(
        "edge {edge}: {}, {}, {}\n",
        count(plan.devices.len(), "workload"),
        count(
            plan.labels.bridges.iter().filter(|b| !b.is_empty()).count(),
            "subnet"
        ),
        count(
            plan.labels.remotes.iter().filter(|r| !r.is_empty()).count(),
            "other edge"
        ),
    );
    text.push_str(&stations::table(&stations, usize::MAX));
    text.push_str(&interfaces(&plan, &[], |_| None));
    Ok(output::out(&text)?)
}

pub(super) fn as_json(plan: &EdgeNetworks) -> serde_json::Value {
    let interfaces = plan.labels.interfaces.iter().enumerate();
    let interfaces: Vec<_> = interfaces
        .filter(|(_, label)| !label.name.is_empty())
        .map(|(vid, label)| {
            json!({
                "vid": vid,
                "network": label.network,
                "interface": label.name,
                "function": label.function,
                "peer": plan.interfaces[vid].peer,
            })
        })
        .collect();
    let devices: Vec<_> = plan
        .devices
        .iter()
        .map(|one| {
            json!({
                "device": one.device,
                "network": one.network,
                "workload": one.workload,
                "vid": one.vid,
            })
        })
        .collect();
    let edges: Vec<&String> = plan
        .labels
        .remotes
        .iter()
        .filter(|r| !r.is_empty())
        .collect();
    json!({
        "edge": plan.edge,
        "version": plan.version,
        "interfaces": interfaces,
        "devices": devices,
        "edges": edges,
    })
}

/// Interfaces of a plan as a table, of some networks, or all if none is named.
pub(super) fn interfaces(
    plan: &EdgeNetworks,
    only: &[String],
    counted: impl Fn(u32) -> Option<[u64; 3]>,
) -> String {
    let head = [
        "network",
        "interface",
        "vid",
        "leads to",
        "packets",
        "bytes",
        "dropped",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for (vid, label) in plan.labels.interfaces.iter().enumerate() {
        let named = only.is_empty() || only.iter().any(|name| **name == *label.network);
        if label.name.is_empty() || !named {
            continue;
        }
        let peer = plan.interfaces[vid].peer as usize;
        let peer = plan
            .labels
            .interfaces
            .get(peer)
            .map_or("", |l| l.name.as_str());
        let counts = counted(vid as u32);
        let shown = |at: usize| counts.map_or(String::new(), |counts| counts[at].to_string());
        rows.push([
            label.network.to_string(),
            label.name.clone(),
            vid.to_string(),
            peer.to_owned(),
            shown(0),
            shown(1),
            shown(2),
        ]);
    }
    columns(&rows)
}

/// Rows under each other, numbers to the right.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let number = !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
            let cell = match number {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            };
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn apply(path: &Path, edge: Option<&str>, force: bool, json: bool) -> Result<(), Failure> {
    let mut record = record(path)?;
    let edge = edge_of(&record.parse()?, edge)?;
    record.read_devices(&edge)?;
    let networks = record.check()?;
    let mut running = Networks::open(&edge)?;
    if running.version() > networks.document.version && !force {
        return Err(Failure::Usage(format!(
            "version {} of the document runs on edge {edge}, and this is version {}; `--force` applies it all the same",
            running.version(),
            networks.document.version
        )));
    }
    make(&edge, &mut running, networks, &record, json)
}

/// Plans a document that was checked beside what runs, and applies it.
fn make(
    edge: &str,
    running: &mut Networks,
    networks: Checked,
    record: &Record,
    json: bool,
) -> Result<(), Failure> {
    let kept = |function: &str, map: &str| held(function, running.held(function, map));
    let networks = record.beside(networks, &kept)?;
    let plan = planned(&networks, edge, running.numbers())?;
    let applied = running.apply(&plan, &record.write()?)?;
    let stations = stations::of(&plan)?;
    for warning in stations::warnings(&stations) {
        output::complain(&warning);
    }
    told(edge, &plan, &applied, &stations, json)
}

fn told(
    edge: &str,
    plan: &EdgeNetworks,
    applied: &network::Applied,
    stations: &[stations::Station<'_>],
    json: bool,
) -> Result<(), Failure> {
    if json {
        let mut value = serde_json::to_value(applied).map_err(Failure::failed)?;
        value["stations"] = stations::as_json(stations);
        value["edge"] = json!(edge);
        value["version"] = json!(plan.version);
        return Ok(output::json(&value)?);
    }
    let mut text = format!(
        "edge {edge} is at generation {} (document version {}): {}, {}\n",
        applied.generation,
        plan.version,
        count(plan.devices.len(), "workload"),
        count(
            plan.labels.bridges.iter().filter(|b| !b.is_empty()).count(),
            "subnet"
        ),
    );
    for (what, names) in [
        ("attached", &applied.attached),
        ("detached", &applied.detached),
        ("loaded", &applied.loaded),
    ] {
        match names.as_slice() {
            [] => {}
            few if few.len() <= 8 => text.push_str(&format!("  {what} {}\n", few.join(", "))),
            many => text.push_str(&format!("  {what} {}\n", count(many.len(), "device"))),
        }
    }
    if applied.remade {
        text.push_str(&format!(
            "  maps of {} KiB were made\n",
            applied.memory.div_ceil(1024)
        ));
    }
    text.push_str(&stations::table(stations, stations::FEW));
    Ok(output::out(&text)?)
}

/// The edge that is meant of those that run here.
fn running_edge(given: Option<&str>) -> Result<(String, Look), Failure> {
    let names = match given {
        Some(given) => vec![given.to_owned()],
        None => network::list_here()?,
    };
    match names.as_slice() {
        [only] => match network::look(only)? {
            Some(look) => Ok((only.clone(), look)),
            None => Err(Failure::Failed(format!(
                "edge {only} runs no networks here; `weir net apply DOCUMENT` makes it"
            ))),
        },
        [] => Err(Failure::Failed(
            "no networks run here; `weir net apply DOCUMENT` makes them".to_owned(),
        )),
        many => Err(Failure::Usage(format!(
            "networks of several edges run here; say which with --edge: {}",
            many.join(", ")
        ))),
    }
}

fn delete(names: &[String], edge: Option<&str>, json: bool) -> Result<(), Failure> {
    let (edge, look) = running_edge(edge)?;
    if names.is_empty() {
        Networks::open(&edge)?.remove()?;
        match json {
            true => output::json(&json!({ "edge": edge, "removed": true }))?,
            false => output::out(&format!("edge {edge}: all networks are gone\n"))?,
        }
        return Ok(());
    }
    let mut record = Record::read(&look.text)?;
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
            "no network named `{unknown}` runs on edge {edge}; there are: {}",
            known.join(", ")
        )));
    }
    if let Some(networks) = networks {
        networks.retain(|table| !name_of(table).is_some_and(|name| names.contains(&name)));
    }
    record.text = document.to_string();
    let networks = record.check()?;
    make(&edge, &mut Networks::open(&edge)?, networks, &record, json)
}

fn show(only: &[String], edge: Option<&str>, json: bool) -> Result<(), Failure> {
    let (edge, look) = running_edge(edge)?;
    let record = Record::read(&look.text)?;
    let networks = record.check()?;
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
    let drops = look.set.drops()?;
    let reason = |number: u32| {
        let reason = weir_packet::Reason::ALL.get(number as usize);
        reason.map_or_else(|| number.to_string(), |reason| reason.name().to_owned())
    };
    if json {
        let mut value = as_json(&plan);
        value["generation"] = json!(look.generation);
        if let Some(rows) = value["interfaces"].as_array_mut() {
            rows.retain_mut(|row| {
                let vid = row["vid"].as_u64().unwrap_or(0) as u32;
                let Some([packets, bytes, dropped]) = counts.get(&vid) else {
                    return false;
                };
                let found = drops.iter().filter(|(drop, _)| drop.vid == vid);
                let reasons: BTreeMap<String, u64> = found
                    .clone()
                    .map(|(drop, n)| (reason(drop.reason), *n))
                    .collect();
                let cures: BTreeMap<String, String> = found
                    .filter_map(|(drop, _)| {
                        let known = weir_packet::Reason::from_index(drop.reason)?;
                        let cure = stations::cure(&plan, vid, known).ok().flatten()?;
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
        value["balancers"] = balancers.iter().map(Counted::as_json).collect();
        return Ok(output::json(&value)?);
    }
    let mut text = format!(
        "edge {edge}, generation {}, document version {}\n",
        look.generation, plan.version
    );
    text.push_str(&interfaces(&plan, only, |vid| counts.get(&vid).copied()));
    for (drop, n) in &drops {
        if !counts.contains_key(&drop.vid) && drop.vid != 0 {
            continue;
        }
        let label = plan.labels.interfaces.get(drop.vid as usize);
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
            if let Some(cure) = stations::cure(&plan, drop.vid, known)? {
                text.push_str(&format!("  {cure}\n"));
            }
        }
    }
    for balancer in &balancers {
        text.push_str(&balancer.shown());
    }
    Ok(output::out(&text)?)
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
        let record = Record::read(&look.text).map_err(|error| error.to_string())?;
        let networks = record.check().map_err(|error| error.to_string())?;
        planned(&networks, &edge, &look.numbers).map_err(|error| error.to_string())
    };
    let stop = super::stop_on_signals()?;
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
