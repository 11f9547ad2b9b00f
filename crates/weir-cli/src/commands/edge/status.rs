//! `weir status`: what runs here. Of edges the ledgers of ports and functions, and the networks. received = sum of verdicts, each side counted on its own.

use std::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};
use weir_engine::edge::{EdgeError, SecondStage};
use weir_engine::monitor::Account;
use weir_engine::network;
use weir_functions::filter::report::EntryHits;
use weir_runtime::RuntimeError;
use weir_runtime::status::{Carried, EdgeStatus, Hits, Ledger, Watched};

use super::others;
use crate::args::StatusArgs;
use crate::commands::net::Shown;
use crate::commands::prog::pinned::list::Row;
use crate::failure::Failure;
use crate::output;

/// An edge that may run here and cannot be read.
#[derive(Serialize)]
struct Unreadable {
    edge: String,
    error: String,
}

impl Unreadable {
    fn line(&self) -> String {
        format!("edge {} cannot be read: {}", self.edge, self.error)
    }
}

pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode, Failure> {
    if args.openmetrics {
        output::out(&weir_agent::metrics::openmetrics(None)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let named = match &args.config {
        Some(path) => Some(super::name(path, args.edge.as_deref())?),
        None => args.edge.clone(),
    };
    let found = Found::read(named.as_deref(), args.hits)?;
    let code = ExitCode::from(u8::from(!found.unreadable.is_empty()));
    for one in &found.unreadable {
        output::complain(&one.line());
    }
    match args.json {
        true => output::json(&found.json()?)?,
        false => output::out(&found.text()?)?,
    }
    Ok(code)
}

/// What runs here.
pub(crate) struct Found {
    edges: Vec<EdgeStatus>,
    networks: Vec<Shown>,
    policies: Vec<others::Policy>,
    programs: Vec<Row>,
    remains: Vec<others::Remains>,
    unreadable: Vec<Unreadable>,
}

impl Found {
    /// Of one edge, or of all with what belongs to none.
    pub(crate) fn read(named: Option<&str>, with_hits: bool) -> Result<Found, Failure> {
        let names = match named {
            Some(name) => vec![name.to_owned()],
            None => weir_runtime::edges()?,
        };
        let mut found = Found {
            edges: Vec::with_capacity(names.len()),
            networks: Vec::new(),
            policies: Vec::new(),
            programs: Vec::new(),
            remains: Vec::new(),
            unreadable: Vec::new(),
        };
        for name in names {
            match read(&name, with_hits) {
                Ok((report, shown)) => {
                    found.edges.extend(report);
                    found.networks.extend(shown);
                }
                Err(failure) if named.is_some() => return Err(failure),
                // It must not hide the others.
                Err(failure) => found.unreadable.push(Unreadable {
                    edge: name,
                    error: failure.to_string(),
                }),
            }
        }
        // Policies and programs belong to no edge: they are shown unless one edge is asked for.
        if named.is_none() {
            found.policies = others::policies()?;
            found.programs = others::programs()?;
            found.remains = others::remains()?;
        }
        Ok(found)
    }

    pub(crate) fn json(&self) -> Result<Value, Failure> {
        let networks: Result<Vec<_>, _> = self.networks.iter().map(Shown::json).collect();
        Ok(json!({
            "edges": self.edges,
            "networks": networks?,
            "policies": self.policies,
            "programs": self.programs,
            "remains": self.remains,
            "unreadable": self.unreadable,
        }))
    }

    /// All that is printed, with what is written to standard error on this host.
    pub(crate) fn whole_text(&self) -> Result<String, Failure> {
        let mut text = self.text()?;
        for one in &self.unreadable {
            let _ = writeln!(text, "{}", one.line());
        }
        Ok(text)
    }

    fn text(&self) -> Result<String, Failure> {
        let mut texts: Vec<String> = self.edges.iter().map(text).collect();
        for one in &self.networks {
            texts.push(one.summary()?);
        }
        let others = (&self.policies, &self.programs, &self.remains);
        if !others.0.is_empty() || !others.1.is_empty() || !others.2.is_empty() {
            texts.push(others::text(others.0, others.1, others.2));
        }
        Ok(match texts.is_empty() {
            true if self.unreadable.is_empty() => {
                "nothing is running in this network namespace\n".to_owned()
            }
            _ => texts.join("\n"),
        })
    }
}

/// The graph and the networks of one edge.
fn read(name: &str, with_hits: bool) -> Result<(Option<EdgeStatus>, Option<Shown>), Failure> {
    let look = network::look(name)?;
    let report = match EdgeStatus::read(name, with_hits) {
        Ok(report) => Some(report),
        // It has networks only.
        Err(RuntimeError::Edge(EdgeError::NotRunning { .. })) if look.is_some() => None,
        Err(error) => return Err(error.into()),
    };
    let shown = match look {
        Some(look) => Some(Shown::of(name.to_owned(), look, &[])?),
        None => None,
    };
    Ok((report, shown))
}

fn text(edge: &EdgeStatus) -> String {
    let mut text = format!("edge {}, generation {}", edge.edge, edge.generation);
    if let Some(path) = &edge.configuration {
        let _ = write!(text, ", from {path}");
    }
    text.push('\n');
    match &edge.watched {
        Some(Watched {
            process: Some(owner),
        }) => {
            let _ = writeln!(text, "watched by process {owner}");
        }
        Some(Watched { process: None }) => {
            let _ = writeln!(
                text,
                "still runs the programs of a trace that has ended: `weir trace --off --edge {}` or the next apply removes them",
                edge.edge
            );
        }
        None => {}
    }
    for port in &edge.ports {
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
            ledger_text(&port.ledger)
        );
        if let Some(transmit) = &port.transmit {
            let _ = writeln!(
                text,
                "port {}.transmit: {}",
                port.name,
                ledger_text(transmit)
            );
        }
    }
    for one in &edge.functions {
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
            ledger_text(&one.ledger)
        );
        tell_carried(&mut text, &one.carried);
        if let Some(counted) = &one.counted {
            tell_hits(&mut text, counted);
        }
    }
    for hook in &edge.hooks {
        let _ = writeln!(text, "hook {} on {}", hook.name, hook.attach);
    }
    if let Some(pair) = &edge.recirculation {
        let _ = writeln!(
            text,
            "recirculation ({}, {}): {}",
            pair.devices[0],
            pair.devices[1],
            ledger_text(&pair.ledger)
        );
    }
    if let Some(second) = &edge.second_stage {
        tell_second(&mut text, second);
    }
    if edge.missed > 0 {
        let _ = writeln!(
            text,
            "calls that found a replaced function: {}",
            edge.missed
        );
    }
    text
}

/// Entries that are shown as text; the JSON has all.
const ENTRIES: usize = 20;

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

/// Lines of what a function carried that are shown as text; the JSON has all.
const LINES: usize = 20;

/// What a function carried: those with most packets first.
fn tell_carried(text: &mut String, carried: &[Carried]) {
    let mut sorted: Vec<&Carried> = carried.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(one.packets));
    for one in sorted.iter().take(LINES) {
        let _ = write!(
            text,
            "  {}: {} packets, {} bytes",
            one.to, one.packets, one.bytes
        );
        if let Some(flows) = one.flows {
            let _ = write!(text, ", {flows} flows");
        }
        if let Some([takes, all]) = one.servers {
            let _ = write!(text, ", {takes} of {all} servers take new ones");
        }
        if let Some(down) = one.down {
            let _ = write!(text, ", {down} are down");
        }
        text.push('\n');
    }
    if sorted.len() > LINES {
        let _ = writeln!(text, "  and {} more (--json has all)", sorted.len() - LINES);
    }
}

fn ledger_text(ledger: &Ledger) -> String {
    let mut text = format!("{} packets, {} bytes", ledger.received, ledger.bytes);
    let verdicts = ledger.verdicts.by_name();
    for (name, count) in verdicts.into_iter().filter(|(_, count)| *count > 0) {
        let _ = write!(text, ", {name} {count}");
    }
    if !ledger.reasons.is_empty() {
        let reasons = ledger
            .reasons
            .iter()
            .map(|one| format!("{} {}", one.reason, one.packets));
        let _ = write!(text, " ({})", reasons.collect::<Vec<_>>().join(", "));
    }
    text
}
