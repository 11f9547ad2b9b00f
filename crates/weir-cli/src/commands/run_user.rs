//! `weir run --engine user`: a policy in the user engine, over AF_XDP sockets in front of the stack.
//!
//! Frames that the policy passes go to the stack by a tap. Live edits (`weir rule`) and connections as a list are the kernel engine's alone, and refused or absent here.
//! Exit status as of `weir run`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use weir_engine::ports::{
    Judge as _, PlannedPorts, PolicyJudge, XskLedger, XskPorts, XskPortsError,
};
use weir_engine::{EngineError, EngineKind};
use weir_functions::plan::ChecksumMode;
use weir_functions::report::Report;

use super::run::{Screen, TICK, wall_clock};
use super::table::{self, Since};
use crate::args::{Checksums, HookName, RunArgs, RunEngineName};
use crate::failure::Failure;
use crate::output;

/// The policy's counters and what became of frames at the ports.
#[derive(Serialize)]
struct Account {
    #[serde(flatten)]
    report: Report,
    #[serde(flatten)]
    ledger: XskLedger,
}

pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let (interval, duration) = (args.interval, args.duration);
    if args.egress || !matches!(args.hook, None | Some(HookName::Xdp)) {
        return Err(Failure::usage(
            "the user engine sees what an interface receives, in front of the stack: leave --egress out, and --hook, or use --hook xdp",
        ));
    }
    let wanted = args.ports.wanted(&args.interfaces)?;
    let sockets = args.ports.sockets(args.generic);
    let parsed = super::policy::read(&args.policy)?;
    let policy = Arc::new(parsed.policy);
    let planned = PlannedPorts::of(&wanted, &policy)?;
    let kind = match args.engine {
        RunEngineName::UserJit => EngineKind::UserJit,
        RunEngineName::User | RunEngineName::Kernel => EngineKind::User,
    };
    let mut judge = PolicyJudge::new(kind, &policy, planned.ports, planned.mtu, seed())
        .map_err(|error| engine_failure(error, args))?;
    // Before anything is attached: a signal from here on ends the run in order.
    let stop = crate::limits::stop_on_signals()?;
    let vlan = PolicyJudge::names_vlan(&policy) && !args.vlan_in_frame;
    let checksums = args.checksums.map(|c| match c {
        Checksums::Complete => ChecksumMode::Complete,
        Checksums::Offloaded => ChecksumMode::Offloaded,
    });
    let mut ports = XskPorts::open(&wanted, &sockets, checksums, vlan)?;
    for note in planned.notes.iter().chain(ports.notes()) {
        output::complain(note);
    }
    output::complain(&format!(
        "serving {} with the policy ({}); Ctrl-C stops",
        args.interfaces.join(" and "),
        judge.name()
    ));
    let end = duration.map(|d| Instant::now() + d);
    let watched = watch(args, &mut ports, &mut judge, interval, end, &stop);
    let (ledger, failed) = ports.finish(&mut judge);
    show_lines(args, &mut judge, None)?;
    let account = Account {
        report: judge
            .report()
            .map_err(|error| engine_failure(error, args))?,
        ledger,
    };
    if let Some(path) = &args.report {
        super::run::write_report(path, &account)?;
    }
    if args.json {
        output::json(&account)?;
    } else {
        let mut text = table::report(&account.report);
        text.push('\n');
        text.push_str(&super::ports::text(&account.ledger));
        output::out(&text)?;
    }
    watched?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Serves, and shows what happens, until it is time to stop.
fn watch(
    args: &RunArgs,
    ports: &mut XskPorts,
    judge: &mut PolicyJudge,
    interval: Duration,
    end: Option<Instant>,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut screen = (!args.json && std::io::stdout().is_terminal()).then(Screen::default);
    let failure = |error| engine_failure(error, args);
    let mut before = judge.report().map_err(failure)?;
    let mut shown_at = Instant::now();
    let ended: Result<(), XskPortsError> = loop {
        let now = Instant::now();
        if stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end) {
            break Ok(());
        }
        let until = end.map_or(now + TICK, |end| end.min(now + TICK));
        if let Err(error) = ports.serve(judge, stop, until) {
            break Err(error);
        }
        show_lines(args, judge, screen.as_mut())?;
        let Some(screen) = &mut screen else { continue };
        let seconds = shown_at.elapsed();
        if seconds < interval && screen.is_drawn() {
            continue;
        }
        let report = judge.report().map_err(failure)?;
        let since = Since {
            report: &before,
            seconds: seconds.as_secs_f64(),
        };
        screen.draw(&report, Some(since))?;
        if seconds >= interval {
            before = report;
            shown_at = Instant::now();
        }
    };
    if let Some(screen) = &mut screen {
        screen.clear()?;
    }
    Ok(ended?)
}

fn show_lines(
    args: &RunArgs,
    judge: &mut PolicyJudge,
    screen: Option<&mut Screen>,
) -> Result<(), Failure> {
    let lines = judge.take_lines();
    if args.json || lines.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    for (line, packet) in lines {
        let port = args
            .interfaces
            .get((line.port as usize).wrapping_sub(1))
            .map_or("?", String::as_str);
        let prefix = match line.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}: "),
        };
        text.push_str(&format!(
            "{} {port} rule {} {} {prefix}{packet}\n",
            wall_clock(line.now_ns),
            line.rule,
            line.verdict
        ));
    }
    if let Some(screen) = screen {
        screen.clear()?;
    }
    Ok(output::out(&text)?)
}

/// Random drops are to differ from run to run.
fn seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
}

fn engine_failure(error: EngineError, args: &RunArgs) -> Failure {
    if error.is_configuration() {
        return Failure::Usage(format!("{}: {error}", args.policy.display()));
    }
    Failure::failed(error)
}
