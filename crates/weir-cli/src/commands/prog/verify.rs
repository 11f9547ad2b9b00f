//! `weir prog verify`: whether programs would load, and where not, why, and what packet would break them.
//!
//! Exit status: 0 all accepted; 1 a program is rejected, or not taken by a release that was named; 2 bad usage.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use weir_vm::catalogue::Kernel;
use weir_vm::counterexample::{self, Counterexample, Limits, MapsState, Search};
use weir_vm::explain::{self, Explanation};
use weir_vm::releases::Objection;
use weir_vm::verify::{self, Rejection, VerifyOptions};
use weir_vm::{FaultKind, Machine, Object, ProgramKind};

use super::typed::hex;
use super::{object, screen, seeds};
use crate::args::prog::VerifyArgs;
use crate::commands::capture;
use crate::commands::table::grouped;
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Report {
    programs: Vec<Judged>,
}

/// What became of a program.
#[derive(Serialize)]
struct Judged {
    program: String,
    accepted: bool,
    processed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    states: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_states: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counterexample: Option<Hunted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernels: Option<Kernels>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    releases: Vec<Release>,
    #[serde(skip_serializing_if = "String::is_empty")]
    log: String,
}

/// Whether a Linux release takes a program.
#[derive(Serialize)]
struct Release {
    release: String,
    /// Whether nothing was found against it.
    taken: bool,
    against: Vec<Against>,
}

#[derive(Serialize)]
struct Against {
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// What a program needs of a kernel.
#[derive(Serialize)]
struct Kernels {
    /// The least version with all of it; nothing if some of it is newer than what weir knows.
    least: Option<String>,
    needs: Vec<KernelNeed>,
}

#[derive(Serialize)]
struct KernelNeed {
    what: String,
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// How the search for a packet ended.
#[derive(Serialize)]
struct Hunted {
    runs: u64,
    cut_off: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<FoundPacket>,
}

#[derive(Serialize)]
struct FoundPacket {
    frame: String,
    length: usize,
    rx_queue: u32,
    ingress_ifindex: u32,
    /// Whether hash maps must hold elements for it.
    maps_filled: bool,
    fault: String,
    at_rejection: bool,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let opened = object::open(&args.object, &args.map_sizes)?;
    let programs = object::chosen(&args.object, &opened.object, args.prog.as_deref())?;
    if let Some(other) = programs.iter().find(|p| {
        let kind = opened.object.program_kind(p);
        !kind.is_some_and(ProgramKind::is_runnable)
    }) {
        return Err(Failure::usage(format!(
            "{other} is neither an XDP nor a tc program, and only these are verified"
        )));
    }
    if args.counterexample.is_some() && programs.len() > 1 {
        return Err(Failure::usage(format!(
            "--counterexample writes one packet; choose a program with --prog: {}",
            programs.join(", ")
        )));
    }
    let packets = match &args.input {
        Some(path) => given(path)?,
        None => seeds::packets(),
    };
    let options = VerifyOptions {
        log: args.log,
        strict_alignment: args.strict_alignment,
        unwritten_stack: !args.strict_stack,
        ..VerifyOptions::default()
    };
    let mut report = Report {
        programs: Vec::new(),
    };
    let mut text = String::new();
    for program in &programs {
        let machine = opened
            .object
            .clone()
            .load(program)
            .map_err(|e| Failure::failed(format!("{}: {e}", args.object.display())))?;
        let mut judged = judge(args, &opened.object, &machine, program, &options, &packets)?;
        if args.kernels {
            judged.kernels = Some(kernels(&machine, program, &options)?);
        }
        if !args.releases.is_empty() {
            judged.releases = releases(&machine, program, &options, &args.releases)?;
        }
        if !args.json {
            if !text.is_empty() && !judged.accepted {
                text.push('\n');
            }
            text.push_str(&words(&judged, args));
        }
        report.programs.push(judged);
    }
    let accepted = report
        .programs
        .iter()
        .all(|p| p.accepted && p.releases.iter().all(|r| r.taken));
    if args.json {
        output::json(&report)?;
    } else {
        output::out(&text)?;
    }
    Ok(if accepted {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn judge(
    args: &VerifyArgs,
    object: &Object,
    machine: &Machine,
    program: &str,
    options: &VerifyOptions,
    packets: &[Vec<u8>],
) -> Result<Judged, Failure> {
    match verify::verify(machine, program, options) {
        Ok(verified) => Ok(Judged {
            program: program.to_owned(),
            accepted: true,
            processed: verified.processed,
            states: Some(verified.states),
            peak_states: Some(verified.peak_states),
            stack_bytes: Some(verified.stack_bytes),
            explanation: None,
            counterexample: None,
            kernels: None,
            releases: Vec::new(),
            log: verified.log,
        }),
        Err(rejection) => {
            let search = hunt(object, &rejection, packets)?;
            if let (Some(path), Some(found)) = (&args.counterexample, &search.found) {
                write(path, &found.frame)?;
            }
            Ok(Judged {
                program: program.to_owned(),
                accepted: false,
                processed: rejection.processed,
                states: None,
                peak_states: None,
                stack_bytes: None,
                explanation: Some(explain::explain(machine, &rejection)),
                counterexample: Some(hunted(search)),
                kernels: None,
                releases: Vec::new(),
                log: rejection.log.clone(),
            })
        }
    }
}

fn hunt(object: &Object, rejection: &Rejection, packets: &[Vec<u8>]) -> Result<Search, Failure> {
    counterexample::search(object, rejection, packets, Limits::default()).map_err(Failure::failed)
}

fn hunted(search: Search) -> Hunted {
    let packet = |found: Counterexample| FoundPacket {
        length: found.frame.len(),
        frame: hex(&found.frame),
        rx_queue: found.rx_queue,
        ingress_ifindex: found.ingress_ifindex,
        maps_filled: found.maps == MapsState::Filled,
        fault: match found.fault.kind {
            // They show when the program ends; the instruction says nothing.
            FaultKind::LeakedRecords(_) | FaultKind::LeakedLock | FaultKind::Budget { .. } => {
                found.fault.kind.to_string()
            }
            _ => found.fault.to_string(),
        },
        at_rejection: found.at_rejection,
    };
    Hunted {
        runs: search.runs,
        cut_off: search.cut_off,
        found: search.found.map(packet),
    }
}

fn words(judged: &Judged, args: &VerifyArgs) -> String {
    let mut text = match &judged.explanation {
        Some(explanation) => screen::explanation(explanation),
        None => format!(
            "{}: accepted; {} instructions processed, {} states (at most {} at once), {} bytes of stack\n",
            judged.program,
            grouped(judged.processed),
            grouped(judged.states.unwrap_or_default() as u64),
            grouped(judged.peak_states.unwrap_or_default() as u64),
            judged.stack_bytes.unwrap_or_default(),
        ),
    };
    if let Some(hunted) = &judged.counterexample {
        text.push('\n');
        text.push_str(&hunt_words(hunted, args.counterexample.as_deref()));
    }
    if let Some(kernels) = &judged.kernels {
        text.push_str(&kernel_words(&judged.program, kernels));
    }
    text.push_str(&release_words(&judged.releases));
    if args.log {
        text.push_str("\nlog\n");
        text.push_str(&judged.log);
    }
    text
}

fn hunt_words(hunted: &Hunted, written: Option<&Path>) -> String {
    let Some(found) = &hunted.found else {
        let why = if hunted.cut_off {
            "the limits of the search were reached"
        } else {
            "all candidates were tried"
        };
        return format!(
            "packet    none was found that breaks the program in the checked interpreter ({} runs; {why})\n",
            grouped(hunted.runs)
        );
    };
    let mut text = format!(
        "packet    a frame of {} bytes breaks the program",
        found.length
    );
    let mut with = Vec::new();
    if found.rx_queue != 0 {
        with.push(format!("received by queue {}", found.rx_queue));
    }
    if found.ingress_ifindex != 1 {
        with.push(format!("received by interface {}", found.ingress_ifindex));
    }
    if found.maps_filled {
        with.push("with elements in the hash maps".to_owned());
    }
    if !with.is_empty() {
        let _ = write!(text, ", {}", with.join(", "));
    }
    let _ = writeln!(text, ":");
    if found.length < counterexample::SHORTEST {
        let _ = writeln!(
            text,
            "          (shorter than an Ethernet header; drivers that check lengths never deliver one)"
        );
    }
    if found.length > 0 {
        for row in found.frame.as_bytes().chunks(64).take(4) {
            let _ = writeln!(text, "              {}", String::from_utf8_lossy(row));
        }
        if found.frame.len() > 256 {
            let _ = writeln!(text, "              ...");
        }
    }
    let place = if found.at_rejection {
        ""
    } else {
        " (at another place than the one rejected)"
    };
    let _ = writeln!(text, "          {}{place}", found.fault);
    if let Some(path) = written {
        let _ = writeln!(text, "          written to {}", path.display());
    }
    text
}

fn kernels(machine: &Machine, program: &str, options: &VerifyOptions) -> Result<Kernels, Failure> {
    let needs = match verify::verify(machine, program, options) {
        Ok(verified) => machine.needs_verified(program, &verified),
        Err(_) => machine.needs(program),
    }
    .map_err(Failure::failed)?;
    let known = needs.iter().all(|need| need.since.is_some());
    let least = needs.iter().filter_map(|need| need.since).max();
    let need = |need: &weir_vm::catalogue::Need| KernelNeed {
        what: need.what.to_string(),
        since: need.since.map(|k| k.to_string()),
        line: line_of(machine, need.op),
    };
    Ok(Kernels {
        least: least.filter(|_| known).map(|k| k.to_string()),
        needs: needs.iter().map(need).collect(),
    })
}

fn kernel_words(program: &str, kernels: &Kernels) -> String {
    let mut text = match &kernels.least {
        Some(least) => format!("{program}: everything it uses is in Linux {least} and newer\n"),
        None => format!("{program}: uses something whose kernel version is unknown\n"),
    };
    for need in &kernels.needs {
        let since = need.since.as_deref().unwrap_or("?");
        let place = need
            .line
            .map_or_else(String::new, |l| format!("  line {l}"));
        let _ = writeln!(text, "  {since:>5}  {}{place}", need.what);
    }
    text
}

/// The source line of an operation.
fn line_of(machine: &Machine, op: Option<usize>) -> Option<u32> {
    op.and_then(|op| machine.source_line(op))
        .map(|source| source.line)
        .filter(|line| *line > 0)
}

fn releases(
    machine: &Machine,
    program: &str,
    options: &VerifyOptions,
    releases: &[Kernel],
) -> Result<Vec<Release>, Failure> {
    let judged =
        weir_vm::releases::judge(machine, program, options, releases).map_err(Failure::failed)?;
    let against = |objection: &Objection| Against {
        what: objection.to_string(),
        line: match objection {
            Objection::Needs(need) => line_of(machine, need.op),
            Objection::Rejected(rejection) => line_of(machine, Some(rejection.place.op)),
            Objection::Length { .. } | Objection::Walk { .. } => None,
        },
    };
    let release = |(kernel, found): &(Kernel, Vec<Objection>)| Release {
        release: kernel.to_string(),
        taken: found.is_empty(),
        against: found.iter().map(against).collect(),
    };
    Ok(judged.iter().map(release).collect())
}

fn release_words(releases: &[Release]) -> String {
    let mut text = String::new();
    for release in releases {
        if release.taken {
            let _ = writeln!(text, "  Linux {:<5} takes it", release.release);
            continue;
        }
        for (at, against) in release.against.iter().enumerate() {
            let head = if at == 0 {
                format!("Linux {:<5} does not: ", release.release)
            } else {
                " ".repeat(23)
            };
            let place = against
                .line
                .map_or_else(String::new, |line| format!(" (line {line})"));
            let _ = writeln!(text, "  {head}{}{place}", against.what);
        }
    }
    text
}

/// Packets of a capture.
fn given(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    capture::survey(path, None)?;
    let mut capture = capture::open(path)?;
    let mut packets = Vec::new();
    loop {
        match capture.next_frame() {
            Ok(Some(packet)) => packets.push(packet.data.to_vec()),
            Ok(None) => return Ok(packets),
            Err(error) => {
                return Err(Failure::usage(format!("{}: {error}", path.display())));
            }
        }
    }
}

fn write(path: &Path, frame: &[u8]) -> Result<(), Failure> {
    let failed =
        |e: std::io::Error| Failure::failed(format!("cannot write {}: {e}", path.display()));
    let mut writer = capture::create(path)?;
    writer.write(0, frame, frame.len() as u32).map_err(failed)?;
    writer.finish().map(drop).map_err(failed)
}
