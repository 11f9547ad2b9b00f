//! `weir prog run`: a program of an object over a capture, in weir's interpreter, as native code, or in the running kernel.
//!
//! Exit status: 0 every packet ran; 1 a packet made the program fault, or the capture is cut off; 2 bad usage.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use weir_packet::pcap::CaptureError;
use weir_vm::{ProgramKind, Redirect};

use super::engine::{Engine, Input, Outcome};
use super::{contents, object};
use crate::args::prog::{RunArgs, RunEngine};
use crate::commands::capture;
use crate::commands::table::grouped;
use crate::failure::Failure;
use crate::output;

/// Names of `enum xdp_action`, by number.
const XDP: [&str; 5] = ["aborted", "drop", "pass", "tx", "redirect"];
/// Names of `TC_ACT_*`, by number; `unspec` is -1.
const TC: [&str; 9] = [
    "ok",
    "reclassify",
    "shot",
    "pipe",
    "stolen",
    "queued",
    "repeat",
    "redirect",
    "trap",
];
const UNSPEC: u32 = u32::MAX;
/// Verdicts after which there is no packet.
const GONE: [&str; 6] = ["aborted", "drop", "shot", "stolen", "queued", "trap"];
const INVALID: &str = "invalid";
/// Most instructions of one packet.
const INSTRUCTIONS: u64 = 10_000_000;
/// Faults shown in text; all are counted.
const FAULTS_SHOWN: u64 = 10;

/// What a run counted.
#[derive(Default, Serialize)]
struct Report {
    engine: &'static str,
    program: String,
    packets: u64,
    verdicts: BTreeMap<&'static str, u64>,
    /// Return values that are no action; the kernel treats them as aborted, tc as unspec.
    invalid: u64,
    #[serde(skip)]
    tc: bool,
    faults: u64,
    not_run: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    results: Vec<PacketResult>,
    /// What `--dump-maps -` asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    contents: Option<contents::Contents>,
}

/// How one packet fared, for `-v`.
#[derive(Serialize)]
struct PacketResult {
    packet: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect: Option<String>,
    /// Why it has no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    if args.limit_insns.is_some() && args.engine != RunEngine::Interpreter {
        return Err(Failure::usage(
            "only the interpreter counts instructions: omit --limit-insns",
        ));
    }
    let opened = object::open(&args.object, &args.map_sizes)?;
    let program = object::program(&args.object, &opened.object, args.prog.as_deref())?;
    let survey = capture::survey(&args.input, None)?;
    if args
        .output
        .as_deref()
        .is_some_and(|out| capture::same_file(out, &args.input))
    {
        return Err(Failure::usage(
            "--output names the capture that --in reads; choose another file",
        ));
    }
    let tc = opened.object.program_kind(&program) == Some(&ProgramKind::SchedCls);
    let types = contents::Types::of(&opened.object);
    let mut engine = Engine::load(
        args.engine,
        (&opened.elf, &args.map_sizes),
        opened.object,
        &program,
    )
    .map_err(|e| Failure::failed(format!("{}: {e}", args.object.display())))?;
    if let Some(path) = &args.maps {
        contents::set_from(&mut engine, &types, path)?;
    }
    engine.prepare()?;
    let mut report = Report {
        engine: engine.name(),
        program,
        verdicts: match tc {
            false => XDP.iter().map(|name| (*name, 0)).collect(),
            true => BTreeMap::new(),
        },
        tc,
        ..Report::default()
    };
    let cut_off = packets(args, survey.packets, &mut engine, &mut report)?;
    report.instructions = engine.instructions();
    let dump = args.dump_maps.as_deref();
    let dump = dump.map(|path| Ok::<_, Failure>((path, dumped(&mut engine, &types)?)));
    if let Some((path, contents)) = dump.transpose()? {
        if path == Path::new("-") {
            report.contents = Some(contents);
        } else {
            contents::write(&contents, path)?;
        }
    }
    if args.json {
        output::json(&report)?;
    } else {
        let mut text = text(&report);
        if let Some(contents) = &report.contents {
            text.push_str(&serde_json::to_string_pretty(contents).map_err(Failure::failed)?);
            text.push('\n');
        }
        output::out(&text)?;
    }
    if let Some(error) = cut_off {
        return Err(Failure::failed(format!(
            "{}: {error}; the packets before it were run",
            args.input.display()
        )));
    }
    Ok(match report.faults {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

fn dumped(engine: &mut Engine, types: &contents::Types) -> Result<contents::Contents, Failure> {
    contents::dump(engine, types).map_err(Failure::failed)
}

/// Runs all packets. Returns what ended the capture early, if anything did.
fn packets(
    args: &RunArgs,
    total: u64,
    engine: &mut Engine,
    report: &mut Report,
) -> Result<Option<CaptureError>, Failure> {
    let mut capture = capture::open(&args.input)?;
    let mut progress = capture::Progress::new(total);
    let mut writer = args.output.as_deref().map(capture::create).transpose()?;
    let cannot_write =
        |e: std::io::Error| Failure::failed(format!("cannot write the output capture: {e}"));
    let mut out = Vec::new();
    let cut_off = loop {
        let packet = match capture.next_frame() {
            Ok(Some(packet)) => packet,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        let input = Input {
            frame: packet.data,
            now_ns: packet.timestamp_ns,
            number: packet.number,
            ingress_ifindex: args.ifindex,
            rx_queue: args.queue,
            instruction_budget: args.limit_insns.unwrap_or(INSTRUCTIONS),
        };
        let outcome = engine.packet(&input, &mut out)?;
        report.packets += 1;
        let shown = count(report, packet.number + 1, &outcome);
        let goes_on = shown
            .verdict
            .is_some_and(|v| v != INVALID && !GONE.contains(&v));
        if goes_on && let Some(writer) = &mut writer {
            let lost = (packet.original_len as usize).saturating_sub(packet.data.len());
            writer
                .write(packet.timestamp_ns, &out, (out.len() + lost) as u32)
                .map_err(cannot_write)?;
        }
        let first_faults = shown.problem.is_some() && report.faults <= FAULTS_SHOWN;
        if !args.json && (args.verbose || first_faults) {
            output::tell(&line(&shown, packet.data));
        } else if args.json && args.verbose {
            report.results.push(shown);
        }
        progress.tick(packet.number + 1);
    };
    if let Some(writer) = writer {
        writer.finish().map_err(cannot_write)?;
    }
    Ok(cut_off)
}

/// Counts an outcome, and puts it into words.
fn count(report: &mut Report, packet: u64, outcome: &Outcome) -> PacketResult {
    let mut result = PacketResult {
        packet,
        verdict: None,
        returned: None,
        redirect: None,
        problem: None,
    };
    match outcome {
        Outcome::Returned { action, redirect } => {
            let name = match (report.tc, *action) {
                (true, UNSPEC) => Some("unspec"),
                (true, action) => TC.get(action as usize).copied(),
                (false, action) => XDP.get(action as usize).copied(),
            };
            match name {
                Some(name) => *report.verdicts.entry(name).or_default() += 1,
                None => report.invalid += 1,
            }
            result.verdict = Some(name.unwrap_or(INVALID));
            result.returned = Some(*action);
            result.redirect = redirect.as_ref().map(target);
        }
        Outcome::Fault(fault) => {
            report.faults += 1;
            result.problem = Some(format!("fault: {fault}"));
        }
        Outcome::NotRun(why) => {
            report.not_run += 1;
            result.problem = Some(format!("not run: {why}"));
        }
    }
    result
}

fn target(redirect: &Redirect) -> String {
    match redirect {
        Redirect::Interface { ifindex } | Redirect::Device { ifindex, .. } => {
            format!("interface {ifindex}")
        }
        Redirect::Map { map, key, flags } if *flags == 0 => format!("{map}[{key}]"),
        Redirect::Map { map, key, flags } => format!("{map}[{key}] flags {flags:#x}"),
    }
}

fn line(result: &PacketResult, frame: &[u8]) -> String {
    let mut text = format!("packet {}: ", result.packet);
    match (&result.problem, result.verdict) {
        (Some(problem), _) => text.push_str(problem),
        (None, verdict) => text.push_str(verdict.unwrap_or("?")),
    }
    if let (Some(returned), Some(INVALID)) = (result.returned, result.verdict) {
        let _ = write!(text, " ({returned})");
    }
    if let Some(redirect) = &result.redirect {
        let _ = write!(text, " to {redirect}");
    }
    let _ = writeln!(text, "; {}", weir_packet::summary(frame));
    text
}

fn text(report: &Report) -> String {
    let mut text = format!("packets  {} run", grouped(report.packets));
    let mut sign = " =";
    let rest = [
        ("with no action", report.invalid),
        ("faulted", report.faults),
        ("not run", report.not_run),
    ];
    let verdicts = report.verdicts.iter().map(|(name, n)| (*name, *n));
    for (name, n) in verdicts.chain(rest).filter(|(_, n)| *n > 0) {
        let _ = write!(text, "{sign} {} {name}", grouped(n));
        sign = " +";
    }
    text.push('\n');
    if let Some(instructions) = report.instructions.filter(|_| report.packets > 0) {
        let _ = writeln!(
            text,
            "instructions  {}, {} a packet",
            grouped(instructions),
            grouped(instructions / report.packets)
        );
    }
    text
}
