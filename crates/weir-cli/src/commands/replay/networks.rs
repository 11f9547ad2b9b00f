//! `weir replay DOCUMENT.toml`: what an edge's virtual networks do to a capture, in the user engine: no privileges, and nothing of the host is touched.
//!
//! Every packet comes in by a workload's device or by the underlay: what `--port` names, what the capture says its interface is, or the only way there is.
//! What leaves is written into one capture for each device that it left by, so that what leaves by the underlay of one edge can be given to another.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use weir_engine::Packet;
use weir_engine::network::user::{self, End, NetworkLog, Port, Totals, User, UserError};
use weir_graph::Networks;
use weir_network::{EdgeNetworks, Numbers};
use weir_packet::Reason;
use weir_packet::pcap::{CaptureError, Writer};
use weir_runtime::networks::{Record, edge_of, planned};

use super::super::edge::networks::{self, interfaces};
use super::super::table::grouped;
use super::super::{capture, net};
use super::{common, routes};
use crate::args::{Checksums, EngineName, ReplayArgs};
use crate::failure::Failure;
use crate::output;

/// What the underlay is called; no workload has a name without a slash.
const UNDERLAY: &str = "underlay";

/// Whether the networks of a configuration are to be replayed, not its graph: it declares no graph, or a port of them is asked for that the graph
/// does not have.
pub(super) fn are_meant(args: &ReplayArgs) -> bool {
    // Its mistakes are told by who replays it.
    let Ok(config) = weir_runtime::read(&args.policy) else {
        return false;
    };
    if !matches!(config.networks, Some(Networks::Here)) {
        return false;
    }
    if !config.has_graph() {
        return true;
    }
    let Some(port) = &args.port else {
        return false;
    };
    port.contains('/') || port == UNDERLAY && !config.has_port(port)
}

pub(super) fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    refuse(args)?;
    let path = &args.policy;
    let networks = net::checked(&Record::of_file(path)?)?;
    let edge = edge_of(&networks.document, args.edge.as_deref())?;
    if let Some(name) = networks.document.unread().first() {
        return Err(Failure::Usage(format!(
            "{}: workload {name} has `mac = \"device\"`, and a replay looks at no device; write its MAC address",
            path.display()
        )));
    }
    let plan = planned(&networks, &edge, &Numbers::default())?;
    let survey = capture::survey(&args.input, None)?;
    let ports = ports(args, &plan, &survey)?;
    let mut engine = User::new(&plan, args.seed).map_err(|e| failure(e, path))?;
    if let Some(from) = &args.routes {
        engine.set_routes(routes::read(from, &user::devices(&plan))?);
    }
    let mut files = Files::new(args)?;
    let mut verdicts = Vec::new();
    let cut_off = packets(
        args,
        &plan,
        &survey,
        &ports,
        &mut engine,
        &mut files,
        &mut verdicts,
    )?;
    let written = files.finish()?;
    let totals = engine.totals().map_err(|e| failure(e, path))?;
    if args.json {
        let mut value = report(&plan, &totals);
        if args.verdicts {
            value["verdicts"] = Value::Array(verdicts);
        }
        if args.output.is_some() {
            value["written"] = json!(written);
        }
        output::json(&value)?;
    } else {
        let mut text = table(&plan, &totals);
        text.push_str(&survey.notes());
        output::out(&text)?;
    }
    common::end(args, cut_off)
}

/// Options of other replays are refused, not passed over.
fn refuse(args: &ReplayArgs) -> Result<(), Failure> {
    let why = if args.in_if.is_some() {
        "--in-if is for policies; packets of virtual networks come in by a workload or the underlay: name one with --port"
    } else if args.engine != EngineName::User {
        "a document of virtual networks is replayed by --engine user: native code is for XDP, a test run of the kernel sends the copies of floods, and the reference is `weir net trace`"
    } else if args.checksums != Checksums::Complete {
        "--checksums is for XDP: virtual networks run on tc, where every packet is inspected"
    } else if args.mtu.is_some() {
        "--mtu is for policies and graphs: of virtual networks the document says it"
    } else if args.queue != 0 {
        "--queue is for policies and graphs: packets of virtual networks have no receive queue"
    } else {
        return Ok(());
    };
    Err(Failure::usage(why))
}

fn failure(error: UserError, path: &Path) -> Failure {
    match error {
        UserError::Network(error) => Failure::Usage(format!("{}: {error}", path.display())),
        other => Failure::failed(other),
    }
}

/// Names of the ways in, as `--port` takes them.
fn names(plan: &EdgeNetworks) -> Vec<(String, Port)> {
    let workloads = plan.devices.iter().enumerate();
    let workloads = workloads.map(|(place, _)| Port::Workload(place));
    let underlay = plan.underlay.device.iter().map(|_| Port::Underlay);
    workloads
        .chain(underlay)
        .map(|port| (name_of(plan, port), port))
        .collect()
}

fn name_of(plan: &EdgeNetworks, port: Port) -> String {
    match port {
        Port::Underlay => UNDERLAY.to_owned(),
        Port::Workload(place) => plan
            .devices
            .get(place)
            .map(|one| format!("{}/{}", one.network, one.workload))
            .unwrap_or_default(),
    }
}

/// For each interface of the capture where its packets come in.
fn ports(
    args: &ReplayArgs,
    plan: &EdgeNetworks,
    survey: &capture::Survey,
) -> Result<Vec<Port>, Failure> {
    const SHOWN: usize = 12;
    let known = names(plan);
    let listed = || {
        let few: Vec<&str> = known
            .iter()
            .map(|(name, _)| name.as_str())
            .take(SHOWN)
            .collect();
        match known.len().saturating_sub(SHOWN) {
            0 if few.is_empty() => "nothing: no workload is on it".to_owned(),
            0 => few.join(", "),
            more => format!("{} and {more} more", few.join(", ")),
        }
    };
    if let Some(wanted) = &args.port {
        let found = known.iter().find(|(name, _)| name == wanted);
        let (_, port) = found.ok_or_else(|| {
            Failure::Usage(format!(
                "--port {wanted}: no such port on edge {}; it has {}",
                plan.edge,
                listed()
            ))
        })?;
        return Ok(vec![*port; survey.ports.len()]);
    }
    let by_device = |name: &str| {
        let place = plan.devices.iter().position(|one| one.device == name);
        let underlay = plan.underlay.device.as_deref() == Some(name);
        place
            .map(Port::Workload)
            .or(underlay.then_some(Port::Underlay))
    };
    let interfaces = survey.ports.iter().map(|interface| {
        let name = interface.name.as_deref();
        let named = known.iter().find(|(known, _)| Some(known.as_str()) == name);
        let named = named.map(|(_, port)| *port);
        match (
            named.or_else(|| name.and_then(by_device)),
            known.as_slice(),
        ) {
            (Some(port), _) => Ok(port),
            (None, [(_, port)]) => Ok(*port),
            _ => Err(Failure::Usage(format!(
                "{}: packets of {} could come in by any workload of edge {}; choose with --port: {}",
                args.input.display(),
                name.map_or_else(|| format!("interface {}", interface.index), |n| format!("interface {n}")),
                plan.edge,
                listed()
            ))),
        }
    });
    interfaces.collect()
}

/// Runs all packets. Returns what ended the capture early, if anything did.
fn packets(
    args: &ReplayArgs,
    plan: &EdgeNetworks,
    survey: &capture::Survey,
    ports: &[Port],
    engine: &mut User,
    files: &mut Files<'_>,
    verdicts: &mut Vec<Value>,
) -> Result<Option<CaptureError>, Failure> {
    let mut capture = capture::open(&args.input)?;
    let mut progress = capture::Progress::new(survey.packets);
    loop {
        let packet = match capture.next_frame() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        };
        let Some(port) = ports.get(survey.place_of(&packet)) else {
            return Err(Failure::failed(format!(
                "{}: the capture changed while it was read",
                args.input.display()
            )));
        };
        let input = Packet {
            frame: packet.data,
            now_ns: packet.timestamp_ns,
            number: packet.number,
            port: 0,
            queue: 0,
        };
        let ends = engine
            .packet(*port, &input)
            .map_err(|e| failure(e, &args.policy))?;
        let lost = (packet.original_len as usize).saturating_sub(packet.data.len());
        for end in &ends {
            if let End::Left { by, frame } = end {
                files.write(plan, *by, packet.timestamp_ns, frame, lost)?;
            }
        }
        if args.verdicts {
            match args.json {
                true => verdicts.push(json!({
                    "packet": packet.number + 1,
                    "ends": ends.iter().map(|end| as_json(plan, end)).collect::<Vec<_>>(),
                })),
                false => output::out(&said(plan, packet.number, &ends))?,
            }
        }
        let logs = engine.logs();
        if !args.json {
            for log in logs {
                output::tell(&log_text(&log, packet.number, packet.data));
            }
        }
        progress.tick(packet.number + 1);
    }
}

/// Captures of what left, by device. Names of networks and workloads have no dot.
struct Files<'a> {
    folder: Option<&'a Path>,
    input: &'a Path,
    open: BTreeMap<Port, (PathBuf, Writer<BufWriter<File>>)>,
}

impl<'a> Files<'a> {
    fn new(args: &'a ReplayArgs) -> Result<Files<'a>, Failure> {
        let folder = args.output.as_deref();
        if let Some(folder) = folder {
            let is_capture = folder
                .extension()
                .is_some_and(|e| e == "pcap" || e == "pcapng");
            if is_capture || folder.is_file() {
                return Err(Failure::Usage(format!(
                    "--output {}: packets of virtual networks leave by many devices; name a folder, which gets a capture for each",
                    folder.display()
                )));
            }
            std::fs::create_dir_all(folder).map_err(|error| {
                Failure::failed(format!("cannot make {}: {error}", folder.display()))
            })?;
        }
        Ok(Files {
            folder,
            input: &args.input,
            open: BTreeMap::new(),
        })
    }

    fn write(
        &mut self,
        plan: &EdgeNetworks,
        by: Port,
        at: u64,
        frame: &[u8],
        lost: usize,
    ) -> Result<(), Failure> {
        let Some(folder) = self.folder else {
            return Ok(());
        };
        let (path, writer) = match self.open.entry(by) {
            std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::btree_map::Entry::Vacant(none) => {
                let name = name_of(plan, by).replace('/', ".");
                let path = folder.join(format!("{name}.pcap"));
                if capture::same_file(&path, self.input) {
                    return Err(Failure::Usage(format!(
                        "--output would write over {}, which --in reads; choose another folder",
                        path.display()
                    )));
                }
                let writer = capture::create(&path)?;
                none.insert((path, writer))
            }
        };
        writer
            .write(at, frame, (frame.len() + lost) as u32)
            .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
    }

    /// Ends all of them: where they are.
    fn finish(self) -> Result<Vec<PathBuf>, Failure> {
        let mut written = Vec::new();
        for (path, writer) in self.open.into_values() {
            writer
                .finish()
                .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))?;
            written.push(path);
        }
        Ok(written)
    }
}

/// The interface that a packet was dropped at, as `weir net show` names it.
fn place(plan: &EdgeNetworks, vid: u32) -> String {
    let label = plan.labels.interfaces.get(vid as usize);
    label.filter(|label| !label.name.is_empty()).map_or_else(
        || "no interface".to_owned(),
        |label| format!("{} {}", label.network, label.name),
    )
}

fn as_json(plan: &EdgeNetworks, end: &End) -> Value {
    match end {
        End::Left { by, frame } => json!({ "left": name_of(plan, *by), "bytes": frame.len() }),
        End::Stack => json!({ "stack": true }),
        End::Dropped { vid, reason } => json!({
            "dropped": reason.name(),
            "at": place(plan, *vid),
            "vid": vid,
        }),
    }
}

/// What became of one packet.
fn said(plan: &EdgeNetworks, number: u64, ends: &[End]) -> String {
    let each: Vec<String> = ends
        .iter()
        .map(|end| match end {
            End::Left { by, frame } => {
                format!("left by {} ({} bytes)", name_of(plan, *by), frame.len())
            }
            End::Stack => "to the stack".to_owned(),
            End::Dropped { vid, reason } => {
                format!("dropped at {}: {}", place(plan, *vid), reason.name())
            }
        })
        .collect();
    format!("packet {}: {}\n", number + 1, each.join(", "))
}

fn log_text(log: &NetworkLog, number: u64, frame: &[u8]) -> String {
    let line = &log.line;
    format!(
        "{}.{:09} packet {} {} rule {} {}{}{}: {}\n",
        line.now_ns / 1_000_000_000,
        line.now_ns % 1_000_000_000,
        number + 1,
        log.function,
        line.rule,
        line.verdict,
        if line.prefix.is_empty() { "" } else { " " },
        line.prefix,
        weir_packet::summary(frame),
    )
}

/// Drops by reason, whatever interface they were at.
fn by_reason(totals: &Totals) -> BTreeMap<&'static str, u64> {
    let mut reasons = BTreeMap::new();
    for ((_, reason), n) in &totals.dropped {
        *reasons.entry(reason.name()).or_default() += n;
    }
    reasons
}

fn report(plan: &EdgeNetworks, totals: &Totals) -> Value {
    let mut value = networks::as_json(plan);
    let left: BTreeMap<String, u64> = totals
        .left
        .iter()
        .map(|(port, n)| (name_of(plan, *port), *n))
        .collect();
    value["engine"] = json!("user");
    value["packets"] = json!({
        "received": totals.received,
        "copies": totals.copies,
        "left": totals.left.values().sum::<u64>(),
        "stack": totals.stack,
        "flooded": totals.flooded,
        "dropped": totals.drops(),
        "recirculated": totals.around,
    });
    value["left_by"] = json!(left);
    value["reasons"] = json!(by_reason(totals));
    if let Some(rows) = value["interfaces"].as_array_mut() {
        for row in rows {
            let vid = row["vid"].as_u64().unwrap_or(0) as u32;
            let count = totals.interfaces.get(vid as usize).copied();
            let count = count.unwrap_or_default();
            let here = totals.dropped.iter().filter(|((at, _), _)| *at == vid);
            let reasons: BTreeMap<&str, u64> =
                here.map(|((_, reason), n)| (reason.name(), *n)).collect();
            row["packets"] = json!(count.packets);
            row["bytes"] = json!(count.bytes);
            row["dropped"] = json!(count.dropped);
            row["reasons"] = json!(reasons);
        }
    }
    value
}

/// The report for people: the ledger, ways out, drops, and interfaces as `weir net show` lists them.
fn table(plan: &EdgeNetworks, totals: &Totals) -> String {
    let mut text = format!("edge {}, document version {}\n", plan.edge, plan.version);
    let left: u64 = totals.left.values().sum();
    let _ = write!(text, "packets  {} received", grouped(totals.received));
    if totals.copies > 0 {
        let _ = write!(text, " + {} copies", grouped(totals.copies));
    }
    let mut sign = " =";
    for (name, number) in [
        ("left", left),
        ("to the stack", totals.stack),
        ("flooded", totals.flooded),
        ("dropped", totals.drops()),
    ] {
        if number > 0 {
            let _ = write!(text, "{sign} {} {name}", grouped(number));
            sign = " +";
        }
    }
    if sign == " =" {
        text.push_str(" = 0");
    }
    if totals.around > 0 {
        let _ = write!(text, "; {} went around", grouped(totals.around));
    }
    text.push('\n');
    for (port, n) in &totals.left {
        let _ = writeln!(text, "left by {}: {}", name_of(plan, *port), grouped(*n));
    }
    for ((vid, reason), n) in &totals.dropped {
        let _ = writeln!(
            text,
            "dropped at {}: {} {} ({})",
            place(plan, *vid),
            grouped(*n),
            reason.name(),
            Reason::text(*reason)
        );
    }
    text.push_str(&interfaces(plan, &[], |vid| {
        let count = totals.interfaces.get(vid as usize)?;
        Some([count.packets, count.bytes, count.dropped])
    }));
    text
}
