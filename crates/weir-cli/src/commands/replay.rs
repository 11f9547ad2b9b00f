//! `weir replay`: a policy over a capture, in any engine; a graph is in `graph`, virtual networks are in `networks`, two policies or graphs beside
//! each other are in `against`.

pub(super) mod against;
mod common;
mod graph;
mod networks;
mod routes;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use weir_engine::{Engine, LogLine, Packet};
use weir_functions::report::Report;
use weir_packet::Verdict;
use weir_packet::pcap::{CaptureError, Writer};
use weir_policy::model::Policy;
use weir_runtime::Kind;

use self::common::{end, engine_failure, finish, kind, options, refuse_own_input, write, writer};
use super::{capture, policy, table};
use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    if let Some(before) = &args.against {
        return against::run(args, before);
    }
    let given = Kind::of(&args.policy);
    if given == Kind::Networks || given == Kind::Configuration && networks::are_meant(args) {
        return networks::run(args);
    }
    if args.edge.is_some() || args.verdicts {
        return Err(Failure::usage(
            "--edge and --verdicts are for documents of virtual networks",
        ));
    }
    if given == Kind::Configuration {
        return graph::run(args);
    }
    if args.port.is_some() {
        return Err(Failure::usage(
            "--port is for graphs; a policy's packets come in by an interface: name it with --in-if",
        ));
    }
    if args.routes.is_some() {
        return Err(Failure::usage(
            "--routes is for graphs: a policy asks for no routes",
        ));
    }
    let parsed = policy::read(&args.policy)?;
    let policy = Arc::new(parsed.policy);
    let survey = capture::survey(&args.input, args.in_if.as_deref())?;
    refuse_own_input(args)?;
    let mut engine = weir_engine::open(kind(args.engine), &policy, &options(args, &survey))
        .map_err(|e| engine_failure(e, &args.policy))?;
    let mut writer = writer(args)?;

    let cut_off = packets(
        args,
        &survey,
        engine.as_mut(),
        &policy,
        writer.as_mut().map(|(w, _)| w),
    )?;
    finish(writer)?;
    let (stats, counters) = engine
        .totals()
        .map_err(|e| engine_failure(e, &args.policy))?;
    let report = Report::new(engine.name(), &policy, &stats, &counters);
    if args.json {
        output::json(&report)?;
    } else {
        let mut text = table::report(&report);
        text.push_str(&survey.notes());
        output::out(&text)?;
    }
    end(args, cut_off)
}

/// Runs all packets. Returns what ended the capture early, if anything did.
fn packets<W: Write>(
    args: &ReplayArgs,
    survey: &capture::Survey,
    engine: &mut dyn Engine,
    policy: &Policy,
    mut writer: Option<&mut Writer<W>>,
) -> Result<Option<CaptureError>, Failure> {
    let mut capture = capture::open(&args.input)?;
    let mut progress = capture::Progress::new(survey.packets);
    let mut out = Vec::new();
    loop {
        let packet = match capture.next_frame() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        };
        let input = Packet {
            frame: packet.data,
            now_ns: packet.timestamp_ns,
            number: packet.number,
            port: survey.port_of(&packet).map_or(0, |port| port.number),
            queue: args.queue,
        };
        let verdict = engine
            .packet(&input, &mut out)
            .map_err(|e| engine_failure(e, &args.policy))?;
        if verdict != Verdict::Drop
            && verdict != Verdict::Aborted
            && let Some(writer) = writer.as_deref_mut()
        {
            write(writer, &packet, &out)?;
        }
        if !args.json {
            for line in engine.logs().map_err(|e| engine_failure(e, &args.policy))? {
                output::tell(&log_text(&line, packet.number, policy, packet.data));
            }
        }
        progress.tick(packet.number + 1);
    }
}

fn log_text(line: &LogLine, number: u64, policy: &Policy, frame: &[u8]) -> String {
    let rule = policy
        .rules
        .get(line.rule as usize - 1)
        .and_then(|rule| rule.name.as_deref());
    format!(
        "{}.{:09} packet {} rule {}{} {}{}: {}\n",
        line.now_ns / 1_000_000_000,
        line.now_ns % 1_000_000_000,
        number + 1,
        line.rule,
        rule.map(|name| format!(" ({name})")).unwrap_or_default(),
        line.verdict,
        if line.prefix.is_empty() {
            String::new()
        } else {
            format!(" {}", line.prefix)
        },
        weir_packet::summary(frame),
    )
}
