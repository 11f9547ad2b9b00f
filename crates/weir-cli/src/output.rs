//! Writing to standard output and error without panicking on a broken pipe.

use std::io::{self, IsTerminal, Write};

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

/// Whether standard error is a terminal: then diagnostics have colour and long work shows progress.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
