//! `weir status`: what runs here. Of edges the ledgers of ports and functions, and the networks. received = sum of verdicts, each side counted on its own.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;
use weir_bpf::abi::{NEXT, Stats};
use weir_engine::edge::{self, EdgeError, Form, SecondStage, Status, reasons};
use weir_engine::monitor::Account;
use weir_engine::network;
use weir_functions::filter::report::{EntryHits, FilterReport};
use weir_runtime::graph::Record;

use super::carried::{self, Carried};
use super::others;
use crate::args::StatusArgs;
use crate::commands::net::Shown;
use crate::failure::Failure;
use crate::output;

/// An edge that may run here and cannot be read.
#[derive(Serialize)]
struct Unreadable {
    edge: String,
    error: String,
}

/// A running edge, as JSON.
#[derive(Serialize)]
struct Report {
    edge: String,
    generation: u64,
    /// Where it was applied from.
    configuration: Option<String>,
    ports: Vec<Port>,
    functions: Vec<Function>,
    hooks: Vec<Hook>,
    recirculation: Option<Recirculation>,
    /// What became of packets after programs decided.
    second_stage: Option<SecondStage>,
    /// Calls that found a function that was just replaced.
    missed: u64,
    /// Whether the programs are such that can be watched, and the process that does; absent where they are not.
    watched: Option<Watched>,
}

#[derive(Serialize)]
struct Port {
    name: String,
    number: u32,
    device: String,
    ifindex: u32,
    mode: String,
    attached: bool,
    ledger: Ledger,
    /// Of packets that leave by it; absent where no program sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    transmit: Option<Ledger>,
}

#[derive(Serialize)]
struct Function {
    name: String,
    kind: Option<String>,
    object: String,
    vid: u32,
    program: u32,
    implicit: bool,
    links: Vec<Link>,
    /// Kernel ids of its maps, by name.
    maps: BTreeMap<String, u32>,
    ledger: Ledger,
    /// Of a router or a balancer: what it carried, by next hop or service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    carried: Vec<Carried>,
    /// Of a filter, where it was asked for.
    #[serde(flatten)]
    counted: Option<Hits>,
}

/// What a filter counted, or why that cannot be told.
#[derive(Serialize)]
#[serde(untagged)]
enum Hits {
    Counted(FilterReport),
    Unknown { not_counted: String },
}

#[derive(Serialize)]
struct Link {
    out: String,
    to: String,
}

#[derive(Serialize)]
struct Hook {
    name: String,
    attach: String,
}

#[derive(Serialize)]
struct Recirculation {
    devices: [String; 2],
    ledger: Ledger,
}

/// Programs that can be watched run.
#[derive(Serialize)]
struct Watched {
    /// `None`: nobody watches, or it was killed.
    process: Option<u32>,
}

/// What became of packets.
#[derive(Serialize)]
struct Ledger {
    received: u64,
    bytes: u64,
    verdicts: Verdicts,
    reasons: Vec<Counted>,
}

#[derive(Serialize)]
struct Verdicts {
    next: u64,
    pass: u64,
    drop: u64,
    tx: u64,
    redirect: u64,
    aborted: u64,
}

#[derive(Serialize)]
struct Counted {
    reason: &'static str,
    packets: u64,
}

pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let named = match &args.config {
        Some(path) => Some(super::name(path, args.edge.as_deref())?),
        None => args.edge.clone(),
    };
    let names = match &named {
        Some(name) => vec![name.clone()],
        None => weir_runtime::edges()?,
    };
    let mut reports = Vec::with_capacity(names.len());
    let mut networks = Vec::new();
    let mut unreadable = Vec::new();
    for name in names {
        match read(&name, args.hits) {
            Ok((report, shown)) => {
                reports.extend(report);
                networks.extend(shown);
            }
            Err(failure) if named.is_some() => return Err(failure),
            // It must not hide the others.
            Err(failure) => unreadable.push(Unreadable {
                edge: name,
                error: failure.to_string(),
            }),
        }
    }
    let code = ExitCode::from(u8::from(!unreadable.is_empty()));
    for one in &unreadable {
        output::complain(&format!("edge {} cannot be read: {}", one.edge, one.error));
    }
    // Policies and programs belong to no edge: they are shown unless one edge is asked for.
    let (policies, programs) = match named {
        Some(_) => (Vec::new(), Vec::new()),
        None => (others::policies()?, others::programs()?),
    };
    if args.json {
        let networks: Result<Vec<_>, _> = networks.iter().map(Shown::json).collect();
        output::json(&serde_json::json!({
            "edges": reports,
            "networks": networks?,
            "policies": policies,
            "programs": programs,
            "unreadable": unreadable,
        }))?;
        return Ok(code);
    }
    let mut texts: Vec<String> = reports.iter().map(Report::text).collect();
    for one in &networks {
        texts.push(one.summary()?);
    }
    if !policies.is_empty() || !programs.is_empty() {
        texts.push(others::text(&policies, &programs));
    }
    match texts.is_empty() {
        true if unreadable.is_empty() => {
            output::out("nothing is running in this network namespace\n")?;
        }
        true => {}
        false => output::out(&texts.join("\n"))?,
    }
    Ok(code)
}

/// The graph and the networks of one edge.
fn read(name: &str, with_hits: bool) -> Result<(Option<Report>, Option<Shown>), Failure> {
    let look = network::look(name)?;
    let report = match edge::status(name) {
        Ok(status) => {
            let hits = match with_hits {
                true => hits(&status)?,
                false => BTreeMap::new(),
            };
            let carried = carried::read(&status)?;
            Some(Report::of(status, hits, carried))
        }
        // It has networks only.
        Err(EdgeError::NotRunning { .. }) if look.is_some() => None,
        Err(error) => return Err(error.into()),
    };
    let shown = match look {
        Some(look) => Some(Shown::of(name.to_owned(), look, &[])?),
        None => None,
    };
    Ok((report, shown))
}

impl Report {
    fn of(
        status: Status,
        mut hits: BTreeMap<String, Hits>,
        mut carried: BTreeMap<String, Vec<Carried>>,
    ) -> Report {
        // An edge that something else applied is shown, too, without its kinds.
        let record = Record::read(&status.name, &status.text).ok();
        let kind = |name: &str| {
            let instances = record.iter().flat_map(|record| &record.outline.instances);
            let mut found = instances.filter(|one| one.name == name);
            found.next().map(|one| one.kind.clone())
        };
        Report {
            configuration: record
                .as_ref()
                .map(|record| record.path.display().to_string()),
            edge: status.name.clone(),
            generation: status.generation,
            ports: status
                .ports
                .iter()
                .map(|port| Port {
                    name: port.name.clone(),
                    number: port.number,
                    device: port.device.clone(),
                    ifindex: port.ifindex,
                    mode: port.mode.clone(),
                    attached: port.attached,
                    ledger: Ledger::of(&port.ledger),
                    transmit: port.transmit.as_ref().map(Ledger::of),
                })
                .collect(),
            functions: status
                .instances
                .iter()
                .map(|one| Function {
                    name: one.name.clone(),
                    kind: kind(&one.name),
                    object: one.object.clone(),
                    vid: one.vid,
                    program: one.program,
                    implicit: one.implicit,
                    links: one
                        .outs
                        .iter()
                        .map(|(out, to)| Link {
                            out: out.clone(),
                            to: to.clone(),
                        })
                        .collect(),
                    maps: one.maps.iter().cloned().collect(),
                    ledger: Ledger::of(&one.ledger),
                    carried: carried.remove(&one.name).unwrap_or_default(),
                    counted: hits.remove(&one.name),
                })
                .collect(),
            hooks: status
                .hooks
                .iter()
                .map(|(name, attach)| Hook {
                    name: name.clone(),
                    attach: attach.clone(),
                })
                .collect(),
            recirculation: status.recirculation.as_ref().map(|pair| Recirculation {
                devices: [pair.devices.0.clone(), pair.devices.1.clone()],
                ledger: Ledger::of(&pair.ledger),
            }),
            second_stage: status.second,
            missed: status.missed,
            watched: (status.form == Form::Watched).then_some(Watched {
                process: status.watcher,
            }),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("edge {}, generation {}", self.edge, self.generation);
        if let Some(path) = &self.configuration {
            let _ = write!(text, ", from {path}");
        }
        text.push('\n');
        match &self.watched {
            Some(Watched {
                process: Some(owner),
            }) => {
                let _ = writeln!(text, "watched by process {owner}");
            }
            Some(Watched { process: None }) => {
                let _ = writeln!(
                    text,
                    "still runs the programs of a trace that has ended: `weir trace --off --edge {}` or the next apply removes them",
                    self.edge
                );
            }
            None => {}
        }
        for port in &self.ports {
            let gone = if port.attached {
                ""
            } else {
                ", not attached any more"
            };
            let _ = writeln!(
                text,
                "port {} ({}, {}{gone}): {}",
                port.name,
                port.device,
                port.mode,
                port.ledger.text()
            );
            if let Some(transmit) = &port.transmit {
                let _ = writeln!(text, "port {}.transmit: {}", port.name, transmit.text());
            }
        }
        for one in &self.functions {
            let kind = one.kind.as_deref().filter(|_| !one.implicit);
            let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
            let links: Vec<String> = one
                .links
                .iter()
                .map(|link| match link.out.as_str() {
                    "next" => link.to.clone(),
                    out => format!("{out} {}", link.to),
                })
                .collect();
            let _ = writeln!(
                text,
                "function {}{kind} > {}: {}",
                one.name,
                links.join(", "),
                one.ledger.text()
            );
            carried::tell(&mut text, &one.carried);
            if let Some(counted) = &one.counted {
                tell_hits(&mut text, counted);
            }
        }
        for hook in &self.hooks {
            let _ = writeln!(text, "hook {} on {}", hook.name, hook.attach);
        }
        if let Some(pair) = &self.recirculation {
            let _ = writeln!(
                text,
                "recirculation ({}, {}): {}",
                pair.devices[0],
                pair.devices[1],
                pair.ledger.text()
            );
        }
        if let Some(second) = &self.second_stage {
            tell_second(&mut text, second);
        }
        if self.missed > 0 {
            let _ = writeln!(
                text,
                "calls that found a replaced function: {}",
                self.missed
            );
        }
        text
    }
}

/// Entries that are shown as text; the JSON has all.
const ENTRIES: usize = 20;

/// The counters of all filters of an edge, by name. Which of them belongs to which rule and entry, its configuration tells.
fn hits(status: &Status) -> Result<BTreeMap<String, Hits>, Failure> {
    let record = Record::read(&status.name, &status.text)?;
    let mut all = BTreeMap::new();
    for (name, filter) in weir_graph::filters(&record.config()?, &record) {
        let Some(instance) = status.instances.iter().find(|one| one.name == name) else {
            continue;
        };
        let unknown = |why: String| Hits::Unknown { not_counted: why };
        let found = match filter {
            Ok(filter) => match filter.compile() {
                Ok(compiled) => {
                    let counters = instance.filter_counters().map_err(Failure::failed)?;
                    Hits::Counted(counters.unwrap_or_default().report(&filter, &compiled))
                }
                Err(error) => unknown(error.to_string()),
            },
            Err(error) => unknown(error.message),
        };
        all.insert(name, found);
    }
    Ok(all)
}

fn tell_hits(text: &mut String, counted: &Hits) {
    let report = match counted {
        Hits::Counted(report) => report,
        Hits::Unknown { not_counted } => {
            let _ = writeln!(
                text,
                "  counters of rules and entries have no names: {not_counted}"
            );
            return;
        }
    };
    for one in &report.rules {
        let _ = write!(
            text,
            "  rule {} `{}`: {} packets, {} bytes, dropped {}",
            one.number, one.rule, one.packets, one.bytes, one.dropped
        );
        if one.blocked > 0 {
            let _ = write!(text, ", sources blocked {}", one.blocked);
        }
        text.push('\n');
    }
    let mut entries: Vec<&EntryHits> = report.entries.iter().collect();
    entries.sort_by_key(|one| std::cmp::Reverse(one.packets));
    for one in entries.iter().take(ENTRIES) {
        let _ = writeln!(
            text,
            "  entry {} of @{}, line {}: {} packets",
            one.prefix, one.set, one.line, one.packets
        );
    }
    if entries.len() > ENTRIES {
        let _ = writeln!(
            text,
            "  {} more entries were hit: --json shows all",
            entries.len() - ENTRIES
        );
    }
}

/// What became of packets after programs decided; places that packets never went to are left out.
fn tell_second(text: &mut String, second: &SecondStage) {
    let account = |account: &Account| {
        let mut told = format!("{} sent", account.sent);
        for (why, packets) in &account.dropped {
            let _ = write!(told, ", {packets} not, because {why}");
        }
        told
    };
    for device in &second.devices {
        for (way, of) in [
            ("redirected", &device.redirected),
            ("transmitted", &device.transmitted),
        ] {
            if *of != Account::default() {
                let _ = writeln!(text, "{way} to {}: {}", device.device, account(of));
            }
        }
        if device.exceptions > 0 {
            let _ = writeln!(
                text,
                "{}: {} packets that its driver could not process as the program asked",
                device.device, device.exceptions
            );
        }
    }
    for one in &second.instances {
        for target in one.targets.iter().filter(|target| target.handed > 0) {
            let _ = write!(
                text,
                "{} to {}: {} handed over",
                one.instance, target.target, target.handed
            );
            if target.account != Account::default() {
                let _ = write!(text, ", {}", account(&target.account));
            }
            if target.untold > 0 {
                let _ = write!(text, ", {} not reported", target.untold);
            }
            text.push('\n');
        }
    }
    if let Some(packets) = second.unaccounted.filter(|packets| *packets > 0) {
        let _ = writeln!(
            text,
            "unaccounted: {packets} redirected packets that are in no account: lost for an unknown reason, or in transit"
        );
    }
    for warning in &second.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    for absent in &second.absent {
        let _ = writeln!(
            text,
            "not counted: {} ({}: {})",
            absent.loses, absent.tracepoint, absent.why
        );
    }
    if second.uncounted > 0 {
        let _ = writeln!(text, "not counted by place: {} packets", second.uncounted);
    }
}

impl Ledger {
    fn of(stats: &Stats) -> Ledger {
        let verdict = |at: usize| stats.verdict[at];
        Ledger {
            received: stats.received,
            bytes: stats.bytes,
            verdicts: Verdicts {
                next: verdict(NEXT),
                aborted: verdict(0),
                drop: verdict(1),
                pass: verdict(2),
                tx: verdict(3),
                redirect: verdict(4),
            },
            reasons: reasons(stats)
                .into_iter()
                .map(|(reason, packets)| Counted { reason, packets })
                .collect(),
        }
    }

    fn text(&self) -> String {
        let v = &self.verdicts;
        let all = [
            ("next", v.next),
            ("pass", v.pass),
            ("drop", v.drop),
            ("tx", v.tx),
            ("redirect", v.redirect),
            ("aborted", v.aborted),
        ];
        let mut text = format!("{} packets, {} bytes", self.received, self.bytes);
        for (name, count) in all.into_iter().filter(|(_, count)| *count > 0) {
            let _ = write!(text, ", {name} {count}");
        }
        if !self.reasons.is_empty() {
            let reasons = self
                .reasons
                .iter()
                .map(|one| format!("{} {}", one.reason, one.packets));
            let _ = write!(text, " ({})", reasons.collect::<Vec<_>>().join(", "));
        }
        text
    }
}
