//! `weir top`: rates of a running edge. Reads its counters again and again and shows the difference; nothing about the edge changes for it.
//!
//! On a terminal it is a screen with tabs, for scripts and in a pipe a table each interval. The kernel measures time for the program that a
//! device runs, and counts what that one calls to it: ns are of a packet's whole path through the graph, by port.

mod draw;
mod grid;
mod networks;
mod rates;
mod row;
mod screen;
mod source;
mod terminal;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ratatui_core::terminal::Terminal;
use serde_json::Value;
use weir_agent::api::Target;
use weir_engine::edge::{self, EdgeError};
use weir_kernel::{LoadedProgram, RunCounting};

use self::rates::{Moment, Runs, Table};
use self::screen::{Screen, Wanted};
use self::source::{Reader, Source, What};
use self::terminal::{Ansi, Raw};
use crate::args::watch::TopArgs;
use crate::failure::Failure;
use crate::output;

/// Longest wait for a signal or a key.
const TICK: Duration = Duration::from_millis(50);

/// Where the first rates come earlier than after an interval.
const FIRST: Duration = Duration::from_millis(300);

pub(crate) fn run(args: &TopArgs, target: Option<Target>) -> Result<ExitCode, Failure> {
    let mut source = Source::choose(target)?;
    if args.time && !matches!(source, Source::Host) {
        return Err(Failure::usage(
            "--time measures in the kernel of this host: run it there as root, without --agent",
        ));
    }
    if args.edge.config.is_some() && !matches!(source, Source::Host) {
        return Err(Failure::usage(
            "a file names an edge of this host: name the agent's with --edge",
        ));
    }
    let name = source.edge(&args.edge)?;
    let stop = crate::limits::stop_on_signals()?;
    let is_screen = io::stdout().is_terminal() && !args.json && !args.once && !args.time;
    match is_screen {
        true => show(args, source, name, &stop)?,
        false => print(args, source, &name, &stop)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A table each interval.
fn print(args: &TopArgs, mut source: Source, name: &str, stop: &AtomicBool) -> Result<(), Failure> {
    // Counting ends with the command.
    let _counting = args
        .time
        .then(RunCounting::begin)
        .transpose()
        .map_err(Failure::failed)?;
    let mut before = moment(&mut source, name, args.time)?;
    loop {
        let end = before.at + args.interval;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = moment(&mut source, name, args.time)?;
        let table = Table::of(&before, &now);
        match args.json {
            true => output::json(&table)?,
            false => output::out(&table.text())?,
        }
        if args.once {
            return Ok(());
        }
        before = now;
    }
}

fn moment(source: &mut Source, name: &str, is_timed: bool) -> Result<Moment, Failure> {
    let runs = match is_timed {
        true => runs(name)?,
        false => Runs::new(),
    };
    let mut status = source.read(name, What::Ledgers)?;
    let at = Instant::now();
    let mut first = |part: &str| {
        let found = status.pointer_mut(&format!("/{part}/0"));
        found.map_or(Value::Null, Value::take)
    };
    let (edge, networks) = (first("edges"), first("networks"));
    match edge.is_null() && networks.is_null() {
        true => Err(Failure::failed(format!(
            "edge {name} does not run any more"
        ))),
        false => Ok(Moment {
            at,
            edge,
            networks,
            runs,
        }),
    }
}

/// Runs of the programs of an edge's ports, and their time.
fn runs(name: &str) -> Result<Runs, Failure> {
    let mut runs = Runs::new();
    let status = match edge::status(name) {
        // Networks alone have no such ports.
        Err(EdgeError::NotRunning { .. }) => return Ok(runs),
        other => other?,
    };
    for port in status.ports {
        let Some(id) = port.program else { continue };
        let info = LoadedProgram::by_id(id).and_then(|program| program.info());
        let info = info.map_err(Failure::failed)?;
        runs.insert(port.number.into(), (id, info.runs, info.run_time_ns));
    }
    Ok(runs)
}

/// The screen, until a key or a signal.
fn show(
    args: &TopArgs,
    source: Source,
    name: String,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let mut screen = Screen::new(name.clone(), source.place());
    let reader = Reader::begin(source, name);
    let raw = Raw::begin()?;
    let mut terminal = Terminal::new(Ansi::new(output::screen_has_color()))?;
    reader.wish(screen.what());
    let mut is_waiting = true;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        while let Some(reading) = reader.take() {
            let is_first = screen.pair().is_none();
            if reading.what == screen.what() {
                is_waiting = false;
                let pause = if is_first { FIRST } else { args.interval };
                next = reading.at + pause.min(args.interval);
            }
            screen.take(reading);
        }
        if !is_waiting && !screen.is_paused && Instant::now() >= next {
            reader.wish(screen.what());
            is_waiting = true;
        }
        terminal.draw(|frame| draw::draw(&mut screen, frame.buffer_mut()))?;
        let Some(keys) = raw.keys(TICK)? else {
            break;
        };
        for key in keys {
            match screen.press(key) {
                Wanted::Nothing => {}
                Wanted::End => return Ok(()),
                Wanted::Read(what) => {
                    reader.wish(what);
                    is_waiting |= what == screen.what();
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
