//! `weir run`: a policy on interfaces until a signal, with live counters on a terminal.
//!
//! Standard output gets log lines and tables (or one JSON object), standard error everything said about the run. What
//! touches the kernel is in `weir_engine::live`. Exit status 2: the policy or an argument is wrong; 1: the host refused.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use weir_functions::plan::ChecksumMode;
use weir_functions::report::Report;
use weir_kernel::XdpMode;

use super::table::{self, Since};
use crate::args::{Checksums, HookName, RunArgs, RunEngineName};
use crate::failure::Failure;
use crate::output;
use weir_engine::control::{PolicyFile, Server};
use weir_engine::live::{Hook, Live, LiveError, LogLine, Options};

/// Longest wait for an event, so that signals and deadlines are seen in time.
pub(super) const TICK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    if args.engine != RunEngineName::Kernel {
        return super::run_user::run(args);
    }
    if let Some(flag) = args.ports.given() {
        return Err(Failure::Usage(format!(
            "{flag} is for sockets of the user engine: add --engine user, or user-jit"
        )));
    }
    let (interval, duration) = (args.interval, args.duration);
    let parsed = super::policy::read(&args.policy)?;
    let options = Options {
        hook: match (args.hook, args.generic) {
            (None, false) => None,
            (None | Some(HookName::Xdp), true) => Some(Hook::Xdp(XdpMode::Generic)),
            (Some(HookName::Xdp), false) => Some(Hook::Xdp(XdpMode::Native)),
            (Some(HookName::Tc), false) => Some(Hook::Tc),
            (Some(HookName::Clsact), false) => Some(Hook::Clsact),
            (Some(_), true) => {
                return Err(Failure::Usage(
                    "--generic is a mode of XDP: leave it out, or use --hook xdp".to_owned(),
                ));
            }
        },
        egress: args.egress,
        checksums: args.checksums.map(|c| match c {
            Checksums::Complete => ChecksumMode::Complete,
            Checksums::Offloaded => ChecksumMode::Offloaded,
        }),
        vlan_in_frame: args.vlan_in_frame,
    };
    // Before attaching: a signal from here on ends the run in order.
    let stop = crate::limits::stop_on_signals()?;
    let mut live = Live::start(&parsed, &args.interfaces, options)?;
    for note in live.notes() {
        output::complain(note);
    }
    let names = live.ports().iter().map(|p| p.interface.name.clone());
    let file = PolicyFile::new(&args.policy, &parsed, live.lock().book());
    let server = Server::open(Arc::clone(live.running()), file, names.collect());
    if let Err(error) = &server {
        output::complain(&format!("running without live edits: {error}"));
    }
    output::complain(&format!(
        "{}; Ctrl-C stops",
        attached(&live, options.egress)
    ));
    let end = duration.map(|d| Instant::now() + d);
    let watched = watch(&mut live, args.json, interval, end, &stop);
    // Whatever ended the watch, the interfaces come first. No edit may put programs back.
    drop(server);
    let report = live.stop()?;
    if let Some(path) = &args.report {
        write_report(path, &report)?;
    }
    let lost = watched?;
    if args.json {
        output::json(&report)?;
    } else {
        output::out(&table::report(&report))?;
    }
    if lost.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::Failed(format!(
        "stopped: {} no longer carried the program (the device went away, or `weir down` was run)",
        lost.join(", ")
    )))
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        if error.is_usage() {
            Failure::usage(error)
        } else {
            Failure::failed(error)
        }
    }
}

fn attached(live: &Live, egress: bool) -> String {
    let ports: Vec<String> = live
        .ports()
        .iter()
        .map(|port| {
            let how = match (port.hook, port.checksums) {
                (Hook::Xdp(_), ChecksumMode::Complete) => "checksums complete",
                (Hook::Xdp(_), ChecksumMode::Offloaded) => "checksums offloaded",
                _ if egress => "ingress and egress",
                _ => "ingress",
            };
            let down = if port.interface.up {
                ""
            } else {
                ", the interface is down"
            };
            format!("{} ({}, {how}{down})", port.interface.name, port.hook)
        })
        .collect();
    format!("attached to {}", ports.join(" and "))
}

/// Shows what happens until it is time to stop; returns the interfaces that lost their program.
fn watch(
    live: &mut Live,
    quiet: bool,
    interval: Duration,
    end: Option<Instant>,
    stop: &AtomicBool,
) -> Result<Vec<String>, Failure> {
    let mut screen = (!quiet && io::stdout().is_terminal()).then(Screen::default);
    let mut before = live.report()?;
    let mut shown_at = Instant::now();
    if let Some(screen) = &mut screen {
        screen.draw(&before, None)?;
    }
    let mut looked_at = Instant::now();
    let lost = loop {
        let now = Instant::now();
        if stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end) {
            break Vec::new();
        }
        if looked_at.elapsed() >= TICK {
            looked_at = now;
            live.follow_clock()?;
            let lost = live.lost();
            if !lost.is_empty() {
                break lost.into_iter().map(str::to_owned).collect();
            }
        }
        let until_end = end.map_or(TICK, |end| end - now);
        let lines = live.logs(TICK.min(until_end).max(Duration::from_millis(1)))?;
        if !quiet && !lines.is_empty() {
            show_lines(&lines, screen.as_mut())?;
        }
        let Some(screen) = &mut screen else { continue };
        let seconds = shown_at.elapsed();
        // Log lines push the table away; it comes back soon, yet not after every line of a flood.
        if seconds < interval && (screen.is_drawn() || screen.age() < TICK) {
            continue;
        }
        let report = live.report()?;
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
    let rest = live.logs(Duration::ZERO)?;
    if !quiet {
        show_lines(&rest, screen.as_mut())?;
    }
    if let Some(screen) = &mut screen {
        screen.clear()?;
    }
    Ok(lost)
}

fn show_lines(lines: &[LogLine], screen: Option<&mut Screen>) -> io::Result<()> {
    let text: String = lines.iter().map(log_line).collect();
    if let Some(screen) = screen {
        screen.clear()?;
    }
    output::out(&text)
}

fn log_line(line: &LogLine) -> String {
    let name = line.name.as_deref();
    let rule = name.map_or_else(|| format!("rule {}", line.rule), str::to_owned);
    let prefix = if line.prefix.is_empty() {
        String::new()
    } else {
        format!("{}: ", line.prefix)
    };
    format!(
        "{} {} {rule} {} {prefix}{}\n",
        wall_clock(line.now_ns),
        line.port,
        line.verdict,
        line.packet
    )
}

/// Time of day (UTC) of a moment of the kernel's monotonic clock.
pub(super) fn wall_clock(monotonic_ns: u64) -> String {
    let now = clock_gettime(ClockId::Monotonic);
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let age = Duration::from_nanos(now_ns.saturating_sub(monotonic_ns));
    let then = SystemTime::now()
        .checked_sub(age)
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let since = then
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let day = since.as_secs() % 86_400;
    format!(
        "{:02}:{:02}:{:02}.{:06}",
        day / 3600,
        day / 60 % 60,
        day % 60,
        since.subsec_micros()
    )
}

pub(super) fn write_report(
    path: &std::path::Path,
    report: &impl serde::Serialize,
) -> Result<(), Failure> {
    let text = serde_json::to_string(report).map_err(Failure::failed)?;
    std::fs::write(path, text + "\n").map_err(|e| {
        Failure::Failed(format!(
            "cannot write the report to {}: {e}",
            path.display()
        ))
    })
}

/// A table that is redrawn where it stands.
#[derive(Debug, Default)]
pub(super) struct Screen {
    /// Lines drawn, to go back over.
    lines: usize,
    /// When they were drawn.
    drawn_at: Option<Instant>,
}

impl Screen {
    pub(super) fn draw(&mut self, report: &Report, since: Option<Since<'_>>) -> io::Result<()> {
        let height = rustix::termios::tcgetwinsize(io::stdout())
            .map_or(24, |size| usize::from(size.ws_row))
            .max(4);
        // Ledger, head, remainder and reasons take lines, too, and the cursor needs one.
        let rows = height.saturating_sub(5 + report.reasons.len()).max(1);
        let text = table::render(report, since, Some(rows));
        // Lines beyond the screen would scroll away from the cursor, so would wrapped ones.
        let fitting: Vec<&str> = text.lines().take(height - 1).collect();
        self.clear()?;
        let mut frame = String::from("\x1b[?7l");
        for line in &fitting {
            frame.push_str(line);
            frame.push('\n');
        }
        frame.push_str("\x1b[?7h");
        output::out(&frame)?;
        self.lines = fitting.len();
        self.drawn_at = Some(Instant::now());
        Ok(())
    }

    pub(super) fn is_drawn(&self) -> bool {
        self.lines > 0
    }

    /// Time since the last drawing.
    fn age(&self) -> Duration {
        self.drawn_at.map_or(Duration::MAX, |at| at.elapsed())
    }

    /// Takes the table away; the cursor is where it began.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        if self.lines == 0 {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        write!(stdout, "\x1b[{}A\x1b[J", self.lines)?;
        self.lines = 0;
        stdout.flush()
    }
}
