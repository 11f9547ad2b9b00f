//! Writing to standard output and error without panicking on a broken pipe.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::ColorChoice;

/// Writes all of it to standard output.
pub(crate) fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes one object of JSON and a newline to standard output.
pub(crate) fn json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    out(&text)
}

/// Writes `weir: TEXT` to standard error. If that fails there is nobody to tell.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "weir: {text}");
}

/// Writes text to standard error as it is.
pub(crate) fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Whether standard error is a terminal: then long work shows progress.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Columns of the terminal that standard output is; `None` if it is none.
pub(crate) fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// A line on a terminal about work that takes longer than two seconds: what it is and for how long it goes on. It goes when this is
/// dropped; nothing is written in a pipe.
pub(crate) struct Elapsed {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Elapsed {
    /// `lasting`: how long it takes in all, where that is known.
    pub(crate) fn begin(what: &'static str, lasting: Option<Duration>) -> Elapsed {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let begun = Instant::now();
        let thread = stderr_is_terminal().then(|| {
            std::thread::spawn(move || {
                let mut drawn = false;
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::park_timeout(Duration::from_millis(500));
                    if begun.elapsed() >= Duration::from_secs(2) && !stopped.load(Ordering::Relaxed)
                    {
                        tell(&format!("\r{}", elapsed(what, begun.elapsed(), lasting)));
                        drawn = true;
                    }
                }
                if drawn {
                    tell("\r\x1b[K");
                }
            })
        });
        Elapsed { stop, thread }
    }
}

impl Drop for Elapsed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn elapsed(what: &str, so_far: Duration, lasting: Option<Duration>) -> String {
    match lasting {
        Some(lasting) => format!("{what}: {} of {} s", so_far.as_secs(), lasting.as_secs()),
        None => format!("{what}: {} s", so_far.as_secs()),
    }
}

/// What `--color` said.
static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// Says what `--color` said, once, before anything is written.
pub(crate) fn set_color(choice: ColorChoice) {
    let _ = COLOR.set(choice);
}

/// Whether diagnostics on standard error have colour: as `--color` says; `auto` is a terminal unless NO_COLOR is set (no-color.org).
pub(crate) fn stderr_has_color() -> bool {
    match COLOR.get() {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        Some(ColorChoice::Auto) | None => {
            let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            stderr_is_terminal() && !no_color
        }
    }
}

/// Whether a screen on the terminal has colour: as `--color` says, and unless NO_COLOR is set.
pub(crate) fn screen_has_color() -> bool {
    match COLOR.get() {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        Some(ColorChoice::Auto) | None => {
            std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_says_how_long_it_goes_on() {
        let said = |lasting| elapsed("sending", Duration::from_millis(3900), lasting);
        assert_eq!(said(None), "sending: 3 s");
        assert_eq!(said(Some(Duration::from_secs(10))), "sending: 3 of 10 s");
    }
}
