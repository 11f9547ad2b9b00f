//! `weir replay CONFIG.toml`: a whole graph over a capture, in the user engine or in the running kernel.
//!
//! Every packet comes in by a port: the one that `--port` names, the one whose name or interface the capture says, or the only one
//! there is. A name with `.transmit` behind it is that of a port on tc, for packets that leave by it. All packets that leave are written into one capture, in the order they came in; by which port they left is counted.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use weir_engine::edge::Sees;
use weir_engine::edge::replay::{self, GraphEngine, GraphLog, GraphOptions, GraphReport, Stage};
use weir_engine::{EngineError, Packet};
use weir_functions::report::Packets;
use weir_graph::{EdgePlan, Folder, Networks, Numbers};
use weir_packet::pcap::CaptureError;
use weir_packet::{Reason, Verdict};
use weir_vm::Routes;

use super::super::capture;
use super::super::policy::count;
use super::super::table::grouped;
use super::{common, routes};
use crate::args::{EngineName, ReplayArgs};
use crate::failure::Failure;
use crate::output;

pub(super) fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    if args.in_if.is_some() {
        return Err(Failure::usage(
            "--in-if is for policies; a graph has ports: name one with --port",
        ));
    }
    let graph = plan(&args.policy)?;
    let survey = capture::survey(&args.input, None)?;
    common::refuse_own_input(args)?;
    let ports = ports(args.port.as_deref(), &args.input, &graph, &survey)?;
    let kind = common::kind(args.engine);
    let failure = |error: EngineError| common::engine_failure(error, &args.policy);
    let routes = host_routes(args, &graph)?;
    let mut engine = replay::open(kind, &graph, &options(args)).map_err(failure)?;
    if let Some(routes) = routes {
        engine.set_routes(routes);
    }
    let cut_off = packets(args, &graph, &survey, &ports, engine.as_mut())?;
    let totals = engine.totals().map_err(failure)?;
    let report = GraphReport::new(engine.name(), &graph, &totals);
    if args.json {
        output::json(&report)?;
    } else {
        let mut text = table(&report);
        text.push_str(&survey.notes());
        output::out(&text)?;
    }
    common::end(args, cut_off)
}

pub(super) fn options(args: &ReplayArgs) -> GraphOptions {
    GraphOptions {
        // A port that says how to read checksums knows better than the command line.
        checksums: common::checksums(args.checksums),
        mtu: args.mtu,
        seed: args.seed,
    }
}

/// What `--routes` says, with the ports of a graph as devices.
pub(super) fn host_routes(args: &ReplayArgs, graph: &EdgePlan) -> Result<Option<Routes>, Failure> {
    let Some(from) = &args.routes else {
        return Ok(None);
    };
    if args.engine == EngineName::Kernel {
        return Err(Failure::usage(
            "--routes is for the engines in user space: the kernel's asks the host that it runs on",
        ));
    }
    let ports = graph.ports.iter();
    let devices: Vec<_> = ports.map(|p| (p.device.clone(), p.number)).collect();
    routes::read(from, &devices).map(Some)
}

/// Reads and plans a configuration. Mistakes are shown.
pub(super) fn plan(path: &Path) -> Result<EdgePlan, Failure> {
    let shown = path.display().to_string();
    let config = weir_runtime::read(path)?;
    if let (false, Some(Networks::File(document))) = (config.has_graph(), &config.networks) {
        return Err(Failure::Usage(format!(
            "{shown}: it has no graph; `weir replay {}` runs a capture through its networks",
            document.value
        )));
    }
    let mistakes = |found: weir_policy::Diagnostics| {
        output::tell(&found.render(output::stderr_has_color()));
        Failure::Usage(format!(
            "{shown}: {} in the configuration",
            count(found.len(), "mistake")
        ))
    };
    let planned = weir_graph::plan(&config, &Folder::of(path), &Numbers::new());
    let (plan, warnings) = planned.map_err(mistakes)?;
    output::tell(&warnings.render(output::stderr_has_color()));
    Ok(plan)
}

/// What names packets that leave by a port, behind its name.
const TRANSMIT: &str = ".transmit";

/// The port of that name, or on the interface of that name, by its number, and which of its packets are meant.
fn named(graph: &EdgePlan, name: &str) -> Result<Option<(u32, Sees)>, Failure> {
    let find = |name: &str| {
        let by_name = graph.ports.iter().position(|port| port.name == name);
        by_name.or_else(|| graph.ports.iter().position(|port| port.device == name))
    };
    if let Some(at) = find(name) {
        return Ok(Some((graph.ports[at].number, Sees::Received)));
    }
    let Some(at) = name.strip_suffix(TRANSMIT).and_then(find) else {
        return Ok(None);
    };
    let port = &graph.ports[at];
    match graph.transmits[at] {
        Some(_) => Ok(Some((port.number, Sees::Transmitted))),
        None => Err(Failure::Usage(format!(
            "{name}: the graph does not see packets that leave by `{}`; add a link from `{}{TRANSMIT}`, with `hook = \"tc\"` in the port",
            port.name, port.name
        ))),
    }
}

/// For each interface of the capture the number of the port that its packets come in or leave by. `wanted`: the same one for all of them.
pub(super) fn ports(
    wanted: Option<&str>,
    input: &Path,
    graph: &EdgePlan,
    survey: &capture::Survey,
) -> Result<Vec<(u32, Sees)>, Failure> {
    let names = || {
        let names: Vec<&str> = graph.ports.iter().map(|p| p.name.as_str()).collect();
        names.join(", ")
    };
    if let Some(wanted) = wanted {
        let port = named(graph, wanted)?.ok_or_else(|| {
            Failure::Usage(format!(
                "--port {wanted}: the graph has no such port; it has {}",
                names()
            ))
        })?;
        return Ok(vec![port; survey.ports.len()]);
    }
    survey
        .ports
        .iter()
        .map(|interface| {
            let name = interface.name.as_deref();
            let found = name.map_or(Ok(None), |name| named(graph, name))?;
            match (found, graph.ports.as_slice()) {
                (Some(port), _) => Ok(port),
                (None, [port]) => Ok((port.number, Sees::Received)),
                _ => Err(Failure::Usage(format!(
                    "{}: packets of {} could come in by any port; choose one of {} with --port",
                    input.display(),
                    name.map_or_else(
                        || format!("interface {}", interface.index),
                        |n| format!("interface {n}")
                    ),
                    names()
                ))),
            }
        })
        .collect()
}

/// Runs all packets. Returns what ended the capture early, if anything did.
fn packets(
    args: &ReplayArgs,
    graph: &EdgePlan,
    survey: &capture::Survey,
    ports: &[(u32, Sees)],
    engine: &mut dyn GraphEngine,
) -> Result<Option<CaptureError>, Failure> {
    let mut writer = common::writer(args)?;
    let mut capture = capture::open(&args.input)?;
    let mut progress = capture::Progress::new(survey.packets);
    let mut out = Vec::new();
    let failure = |error: EngineError| common::engine_failure(error, &args.policy);
    let cut_off = loop {
        let packet = match capture.next_frame() {
            Ok(Some(packet)) => packet,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        let port = ports.get(survey.place_of(&packet)).copied();
        let (port, sees) = port.unwrap_or((0, Sees::Received));
        let input = Packet {
            frame: packet.data,
            now_ns: packet.timestamp_ns,
            number: packet.number,
            port,
            queue: args.queue,
        };
        let outcome = engine.packet_of(&input, sees, &mut out).map_err(failure)?;
        if !matches!(outcome.verdict, Verdict::Drop | Verdict::Aborted)
            && let Some((writer, _)) = &mut writer
        {
            common::write(writer, &packet, &out)?;
        }
        let logs = engine.logs().map_err(failure)?;
        if !args.json {
            for log in logs {
                output::tell(&log_text(&log, packet.number, graph, packet.data));
            }
        }
        progress.tick(packet.number + 1);
    };
    common::finish(writer)?;
    Ok(cut_off)
}

fn log_text(log: &GraphLog, number: u64, graph: &EdgePlan, frame: &[u8]) -> String {
    let line = &log.line;
    let name = graph.instances.get(log.instance).map_or("?", |i| &i.name);
    format!(
        "{}.{:09} packet {} {name} rule {} {}{}{}: {}\n",
        line.now_ns / 1_000_000_000,
        line.now_ns % 1_000_000_000,
        number + 1,
        line.rule,
        line.verdict,
        if line.prefix.is_empty() { "" } else { " " },
        line.prefix,
        weir_packet::summary(frame),
    )
}

/// The report for people: the graph, then port by port and function by function, with reasons.
fn table(report: &GraphReport) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "packets  {}", ledger(&report.packets, 0));
    for port in &report.ports {
        let _ = write!(
            text,
            "port {} ({})  {}",
            port.name,
            port.device,
            ledger(&port.stage.packets, port.stage.next)
        );
        if port.sent > 0 {
            let _ = write!(text, "; {} sent", grouped(port.sent));
        }
        text.push('\n');
        reasons(&mut text, &port.stage);
        if let Some(stage) = &port.transmit {
            let ledger = ledger(&stage.packets, stage.next);
            let _ = writeln!(text, "port {}{TRANSMIT}  {ledger}", port.name);
            reasons(&mut text, stage);
        }
    }
    for instance in &report.instances {
        let _ = writeln!(
            text,
            "{} ({})  {}",
            instance.name,
            instance.object,
            ledger(&instance.stage.packets, instance.stage.next)
        );
        reasons(&mut text, &instance.stage);
    }
    if let Some(stage) = &report.recirculated {
        let _ = writeln!(text, "recirculated  {}", ledger(&stage.packets, stage.next));
        reasons(&mut text, stage);
    }
    text
}

/// `received = ` and what became of them.
fn ledger(p: &Packets, next: u64) -> String {
    let mut text = format!("{} received =", grouped(p.received));
    let mut sign = "";
    for (name, number) in [
        ("to the next function", next),
        ("pass", p.pass),
        ("drop", p.drop),
        ("tx", p.tx),
        ("redirect", p.redirect),
        ("aborted", p.aborted),
    ] {
        if number > 0 {
            let _ = write!(text, "{sign} {} {name}", grouped(number));
            sign = " +";
        }
    }
    if sign.is_empty() {
        text.push_str(" 0");
    }
    text
}

fn reasons(text: &mut String, stage: &Stage) {
    let width = stage.reasons.keys().map(|name| name.len()).max();
    let width = width.unwrap_or(0);
    for (name, number) in &stage.reasons {
        let why = Reason::from_name(name).map_or("", Reason::text);
        let _ = writeln!(text, "  {:>12}  {name:width$}  {why}", grouped(*number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_names_what_occurred() {
        let mut packets = Packets::default();
        assert_eq!(ledger(&packets, 0), "0 received = 0");
        packets.received = 1_234;
        packets.drop = 4;
        assert_eq!(
            ledger(&packets, 1_230),
            "1,234 received = 1,230 to the next function + 4 drop"
        );
    }
}
