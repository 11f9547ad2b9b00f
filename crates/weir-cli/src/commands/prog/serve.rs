//! `weir prog serve`: a program over interfaces of this host, in user space, until a signal.
//!
//! Exit status: 0 served until told to stop; 1 a port failed or the program faulted; 2 bad usage.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_engine::ports::{
    ObjectJudge, Pass, Port, Service, SocketPort, ToStack, Totals, Wanted, XskLedger, XskPorts,
};
use weir_vm::ProgramKind;

use super::contents;
use super::engine::Engine;
use super::object;
use crate::args::prog::{RunEngine, ServeArgs, ServeEngine};
use crate::commands::table::grouped;
use crate::failure::Failure;
use crate::output;

/// What the service did, as printed.
#[derive(Serialize)]
struct Report {
    engine: &'static str,
    program: String,
    workers: u16,
    #[serde(flatten)]
    totals: Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_fault: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    contents: Option<contents::Contents>,
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    if args.wire && args.interfaces.len() != 2 {
        return Err(Failure::usage("--wire joins two interfaces: give -i twice"));
    }
    let duration = args.duration;
    let mut opened = object::open(&args.object, &args.map_sizes)?;
    let program = object::program(&args.object, &opened.object, args.prog.as_deref())?;
    let types = contents::Types::of(&opened.object);
    opened.object.set_cpus(args.workers.into());
    if !opened
        .object
        .program_kind(&program)
        .is_some_and(ProgramKind::is_xdp)
    {
        return Err(Failure::usage(format!(
            "{program} is not an XDP program: `serve` runs XDP programs"
        )));
    }
    let kind = match args.engine {
        ServeEngine::Interpreter => RunEngine::Interpreter,
        ServeEngine::Jit => RunEngine::Jit,
    };
    let mut engine = Engine::load(
        kind,
        (&opened.elf, &args.map_sizes),
        opened.object,
        &program,
    )
    .map_err(|e| Failure::failed(format!("{}: {e}", args.object.display())))?;
    if let Some(path) = &args.maps {
        contents::set_from(&mut engine, &types, path)?;
    }
    engine.prepare()?;
    if args.xsk {
        return over_xsk(args, program, engine, &types, duration);
    }
    if let Some(flag) = args.ports.given() {
        return Err(Failure::Usage(format!(
            "{flag} is for AF_XDP sockets: add --xsk"
        )));
    }
    let sockets = args
        .interfaces
        .iter()
        .map(|name| SocketPort::open(name))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::failed)?;
    let ports: Vec<&dyn Port> = sockets.iter().map(|port| port as &dyn Port).collect();
    let service = Service {
        ports: &ports,
        workers: args.workers.into(),
        pass: if args.wire { Pass::Across } else { Pass::Port },
        instruction_budget: args.limit_insns,
    };
    let stop = crate::limits::stop_on_signals()?;
    if let Some(duration) = duration {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            thread::sleep(duration);
            stop.store(true, Ordering::Release);
        });
    }
    output::complain(&format!(
        "serving {} with {program} ({}); Ctrl-C stops",
        args.interfaces.join(", "),
        engine.name()
    ));
    let name = engine.name();
    let Some(machine) = engine.machine_mut() else {
        return Err(Failure::usage("the kernel serves with `weir run`"));
    };
    let totals = service.run(machine, &stop).map_err(Failure::failed)?;
    drop(sockets);
    let faults = totals.faults;
    let mut report = Report {
        engine: name,
        program,
        workers: args.workers,
        first_fault: totals.first_fault.as_ref().map(ToString::to_string),
        totals,
        contents: None,
    };
    if let Some(path) = args.dump_maps.as_deref() {
        let contents = contents::dump(&mut engine, &types).map_err(Failure::failed)?;
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
    Ok(match faults {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

/// What was done over AF_XDP, as printed.
#[derive(Serialize)]
struct XskReport {
    engine: &'static str,
    program: String,
    #[serde(flatten)]
    ledger: XskLedger,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_fault: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    contents: Option<contents::Contents>,
}

/// The same over AF_XDP sockets, in front of the stack.
fn over_xsk(
    args: &ServeArgs,
    program: String,
    mut engine: Engine,
    types: &contents::Types,
    duration: Option<Duration>,
) -> Result<ExitCode, Failure> {
    let wanted = if args.wire {
        let across = |interface: &String| Wanted {
            interface: interface.clone(),
            to: ToStack::Across,
        };
        args.interfaces.iter().map(across).collect()
    } else {
        args.ports.wanted(&args.interfaces)?
    };
    let name = engine.name();
    let stop = crate::limits::stop_on_signals()?;
    let Some(machine) = engine.machine_mut() else {
        return Err(Failure::usage("the kernel serves with `weir run`"));
    };
    let mut judge = ObjectJudge::new(machine, name, args.limit_insns);
    let mut ports = XskPorts::open(&wanted, &args.ports.sockets(args.generic), None, false)?;
    for note in ports.notes() {
        output::complain(note);
    }
    output::complain(&format!(
        "serving {} with {program} ({name}) over AF_XDP; Ctrl-C stops",
        args.interfaces.join(", ")
    ));
    let end = duration.map(|d| Instant::now() + d);
    let mut ended = Ok(());
    while ended.is_ok()
        && !stop.load(Ordering::Relaxed)
        && end.is_none_or(|end| Instant::now() < end)
    {
        let turn = Instant::now() + Duration::from_secs(1);
        ended = ports.serve(&mut judge, &stop, end.map_or(turn, |end| end.min(turn)));
    }
    let (ledger, failed) = ports.finish(&mut judge);
    let faults = ledger.faults;
    let mut report = XskReport {
        engine: name,
        program,
        first_fault: ledger.first_fault.clone(),
        ledger,
        contents: None,
    };
    if let Some(path) = args.dump_maps.as_deref() {
        let contents = contents::dump(&mut engine, types).map_err(Failure::failed)?;
        if path == Path::new("-") {
            report.contents = Some(contents);
        } else {
            contents::write(&contents, path)?;
        }
    }
    if args.json {
        output::json(&report)?;
    } else {
        let mut text = crate::commands::ports::text(&report.ledger);
        if let Some(contents) = &report.contents {
            text.push_str(&serde_json::to_string_pretty(contents).map_err(Failure::failed)?);
            text.push('\n');
        }
        output::out(&text)?;
    }
    ended?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    Ok(match faults {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for port in &report.totals.ports {
        let _ = write!(text, "{}  received {}", port.port, grouped(port.received));
        let verdicts = [
            ("aborted", port.aborted),
            ("drop", port.drop),
            ("pass", port.pass),
            ("tx", port.tx),
            ("redirect", port.redirect),
        ];
        let mut sign = " =";
        for (name, n) in verdicts.into_iter().filter(|(_, n)| *n > 0) {
            let _ = write!(text, "{sign} {} {name}", grouped(n));
            sign = " +";
        }
        let _ = write!(text, "; sent {}", grouped(port.sent));
        if port.missed > 0 {
            let _ = write!(text, "; missed {}", grouped(port.missed));
        }
        text.push('\n');
    }
    let t = &report.totals;
    let rest = [
        ("steered to other workers", t.steered),
        ("redirected to no port of the service", t.no_port),
        ("redirected to a CPU without a worker", t.no_worker),
        ("redirected to a full queue", t.queue_full),
        (
            "redirected to a socket, which `serve` does not have",
            t.no_socket,
        ),
        (
            "redirected with a second program, which `serve` does not run",
            t.second_program,
        ),
        ("longer than the port's MTU", t.too_big),
        ("met a full device queue", t.no_room),
        ("refused by the port", t.not_sent),
        ("made the program fault", t.faults),
    ];
    for (what, n) in rest.into_iter().filter(|(_, n)| *n > 0) {
        let _ = writeln!(text, "{} {what}", grouped(n));
    }
    if let Some(fault) = &report.first_fault {
        let _ = writeln!(text, "first fault: {fault}");
    }
    text
}
