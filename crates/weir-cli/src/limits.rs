//! How long a command goes on: until a signal, or for a number of seconds.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

/// Set by the signals that end a long command; what it made is then taken down in order. Its child processes see a Ctrl-C, too.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::failed)?;
    }
    Ok(stop)
}

/// A number of seconds above 0, given with `flag`.
pub(crate) fn seconds(flag: &str, value: f64) -> Result<Duration, Failure> {
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if value > 0.0 => Ok(duration),
        _ => Err(Failure::Usage(format!(
            "{flag} {value}: give a number of seconds above 0"
        ))),
    }
}
