//! `weir apply --confirm SECONDS`: the former configuration comes back unless somebody says in time that the new one is right, by ENTER
//! at this command or by `weir apply --confirm-now` anywhere.
//!
//! A connection that is lost (SIGHUP) must not keep the former configuration from coming back, and neither must Ctrl-C: both go back, the
//! first after the time, the second at once. What another command made of the edge meanwhile stays. What waits is a file in the run folder; whoever confirms removes it.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_engine::control;
use weir_runtime::{Former, Planned};

use super::apply::carry_out;
use crate::args::ApplyArgs;
use crate::commands::history;
use crate::failure::Failure;
use crate::output;

/// Between two looks at signals and at the file.
const TICK: Duration = Duration::from_millis(100);

/// How the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Confirmed,
    TooLate,
    Refused,
}

/// Applies, waits, and goes back unless it was confirmed.
pub(super) fn apply(args: &ApplyArgs, planned: &Planned, limit: Duration) -> Result<(), Failure> {
    let name = &planned.edge;
    let waiting = Waiting::open(name)?;
    let signals = Signals::listen()?;
    // Whether it can be gone back to is found out before anything changes.
    let former = Former::of(planned)?;
    carry_out(args, planned)?;
    output::complain(&format!(
        "confirm within {} s, or the previous configuration is restored: press ENTER here, or run `weir apply --confirm-now --edge {name}`",
        limit.as_secs_f64()
    ));
    waiting.show(limit)?;
    let answer = wait(&waiting, &signals, limit)?;
    // A confirmation until here counts; a later one gets the error that nothing waits.
    if answer == Answer::Confirmed || !waiting.close()? {
        output::complain("confirmed");
        return Ok(());
    }
    // Whoever applied or took down the edge meanwhile has the last word.
    if !planned.is_running()? {
        return Err(Failure::Failed(format!(
            "not confirmed, and edge {name} was modified by another command meanwhile: its changes stay"
        )));
    }
    former.restore()?;
    history::note(name);
    let why = match answer {
        Answer::TooLate => "not confirmed in time",
        _ => "it was rejected",
    };
    let now = match former.ran() {
        true => "the previous configuration is restored",
        false => "the edge was taken down, as nothing ran before",
    };
    Err(Failure::Failed(format!("{why}: {now}")))
}

/// `weir apply --confirm-now`.
pub(super) fn say_yes(args: &ApplyArgs) -> Result<ExitCode, Failure> {
    let name = match (&args.edge, &args.config) {
        (Some(name), _) => name.clone(),
        (None, Some(path)) => super::name(path, None)?,
        (None, None) => the_one_that_waits()?,
    };
    match say_yes_to(&name)? {
        true if args.json => output::json(&json(&name))?,
        true => output::out(&format!("edge {name}: confirmed\n"))?,
        false => {
            return Err(Failure::Failed(format!(
                "no `weir apply --confirm` of edge {name} is waiting"
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Confirms what waits at an edge. `false`: nothing does.
pub(crate) fn say_yes_to(edge: &str) -> Result<bool, Failure> {
    match fs::remove_file(place(edge)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::failed(error)),
    }
}

pub(crate) fn json(edge: &str) -> serde_json::Value {
    serde_json::json!({ "edge": edge, "confirmed": true })
}

/// How long a change of an edge waits for confirmation yet; `None`: none does.
pub(crate) fn waits_for(edge: &str) -> Result<Option<Duration>, Failure> {
    let text = match fs::read_to_string(place(edge)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::failed(error)),
    };
    let mut lines = text.lines();
    if !lines.next().is_some_and(lives) {
        return Ok(None);
    }
    let until = lines.next().and_then(|line| line.parse().ok());
    // It is applied just now: the time has not begun.
    let until = until.map_or_else(SystemTime::now, |seconds| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    });
    Ok(Some(
        until.duration_since(SystemTime::now()).unwrap_or_default(),
    ))
}

/// Whether a process applied its change of an edge, and waits for confirmation now.
pub(crate) fn is_counting(edge: &str, process: u32) -> bool {
    let text = fs::read_to_string(place(edge)).unwrap_or_default();
    let mut lines = text.lines();
    lines.next() == Some(&process.to_string()) && lines.next().is_some()
}

/// Whether a process, by its number in a file, lives.
fn lives(pid: &str) -> bool {
    let pid = pid.trim();
    !pid.is_empty() && Path::new("/proc").join(pid).exists()
}

fn the_one_that_waits() -> Result<String, Failure> {
    let entries = fs::read_dir(control::FOLDER)
        .into_iter()
        .flatten()
        .flatten();
    let names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(SUFFIX).map(str::to_owned))
        .collect();
    match names.as_slice() {
        [] => Err(Failure::Failed(
            "no `weir apply --confirm` is waiting".to_owned(),
        )),
        [one] => Ok(one.clone()),
        many => Err(Failure::Usage(format!(
            "several are waiting: select one with --edge ({})",
            many.join(", ")
        ))),
    }
}

/// End of the names of the files that wait.
const SUFFIX: &str = ".confirm";

fn place(edge: &str) -> PathBuf {
    Path::new(control::FOLDER).join(format!("{edge}{SUFFIX}"))
}

/// Where the file is while the former configuration comes back.
fn closed(edge: &str) -> PathBuf {
    Path::new(control::FOLDER).join(format!("{edge}{SUFFIX}-over"))
}

/// The file that waits to be removed, and its name once it is too late for that; removed when dropped.
struct Waiting(PathBuf, PathBuf);

impl Waiting {
    fn open(edge: &str) -> Result<Waiting, Failure> {
        let path = place(edge);
        fs::create_dir_all(control::FOLDER).map_err(|error| {
            Failure::Failed(format!("cannot make {}: {error}", control::FOLDER))
        })?;
        // One that a killed process left says nothing; one that is waited at would be answered by our removing it.
        let holder = |path: &Path| {
            let text = fs::read_to_string(path).ok()?;
            text.lines()
                .next()
                .filter(|pid| lives(pid))
                .map(str::to_owned)
        };
        if let Some(pid) = holder(&path) {
            return Err(Failure::Failed(format!(
                "another `weir apply --confirm` of edge {edge} is waiting (process {pid}): confirm or end it first"
            )));
        }
        let over = closed(edge);
        if let Some(pid) = holder(&over) {
            return Err(Failure::Failed(format!(
                "the previous configuration of edge {edge} is being restored (process {pid}): try again when it runs"
            )));
        }
        let text = format!("{}\n", std::process::id());
        fs::write(&path, text).map_err(|error| {
            Failure::Failed(format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(Waiting(path, over))
    }

    /// Says until when it waits, for those who show it.
    fn show(&self, limit: Duration) -> Result<(), Failure> {
        // Whoever confirmed already has removed it: it must not come back.
        let file = File::options().append(true).open(&self.0);
        let mut file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Failure::failed(error)),
        };
        let until = SystemTime::now() + limit;
        let since = until.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since.unwrap_or_default().as_secs();
        file.write_all(format!("{seconds}\n").as_bytes())
            .map_err(Failure::failed)
    }

    /// Ends the confirmation window. `false`: the change was confirmed.
    fn close(&self) -> Result<bool, Failure> {
        match fs::rename(&self.0, &self.1) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Failure::failed(error)),
        }
    }

    fn is_confirmed(&self) -> bool {
        !self.0.exists()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(&self.1);
    }
}

struct Signals {
    refuse: Arc<AtomicBool>,
}

impl Signals {
    fn listen() -> Result<Signals, Failure> {
        let refuse = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&refuse)).map_err(Failure::failed)?;
        }
        // Taken note of and no more: the wait goes on without the terminal.
        let lost = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, lost).map_err(Failure::failed)?;
        Ok(Signals { refuse })
    }
}

fn wait(waiting: &Waiting, signals: &Signals, limit: Duration) -> Result<Answer, Failure> {
    let end = Instant::now() + limit;
    let mut stdin = io::stdin().is_terminal().then(io::stdin);
    loop {
        if waiting.is_confirmed() {
            return Ok(Answer::Confirmed);
        }
        if signals.refuse.load(Ordering::Relaxed) {
            return Ok(Answer::Refused);
        }
        if Instant::now() >= end {
            return Ok(Answer::TooLate);
        }
        let Some(terminal) = &stdin else {
            std::thread::sleep(TICK);
            continue;
        };
        match pressed(terminal) {
            Ok(true) => return Ok(Answer::Confirmed),
            Ok(false) => {}
            // The terminal is gone.
            Err(_) => stdin = None,
        }
    }
}

/// Whether ENTER was pressed within a tick. An error: nothing will come any more.
fn pressed(terminal: &io::Stdin) -> io::Result<bool> {
    let tick = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: TICK.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(terminal, PollFlags::IN)];
    match poll(&mut fds, Some(&tick)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    // Line by line: a terminal gives nothing before ENTER.
    let mut bytes = [0; 256];
    let mut file = File::from(rustix::io::dup(terminal)?);
    match file.read(&mut bytes)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A confirmation either counts or fails as too late, in any order of events.
    #[test]
    fn a_confirmation_is_heard_or_refused() {
        let edge = format!("test-{}", std::process::id());
        let Ok(waiting) = Waiting::open(&edge) else {
            // The run folder is root's.
            assert!(!rustix::process::geteuid().is_root());
            return;
        };
        assert!(say_yes_to(&edge).expect("answered"));
        assert!(!waiting.close().expect("answered"), "it was confirmed");
        drop(waiting);
        let waiting = Waiting::open(&edge).expect("nothing waits");
        assert!(waiting.close().expect("answered"), "not confirmed");
        assert!(!say_yes_to(&edge).expect("answered"), "it is too late");
        assert!(
            Waiting::open(&edge).is_err(),
            "the former one is not there yet"
        );
        drop(waiting);
        drop(Waiting::open(&edge).expect("it is over"));
    }
}
