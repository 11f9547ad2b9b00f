//! Data of other projects that tests read: captures, rule sets, conformance suites. weir does not ship it, and a clone may be without it.
//!
//! This is the one place that knows where it lies. `WEIR_DATA=DIR` names the folder; without the variable it is `../shared/data` beside the
//! workspace. `WEIR_DATA=none` says that tests run without it, and each test that then checks less is listed. With `CI=true` missing data is
//! a failure unless `WEIR_DATA=none` says that it is meant: a check that did not run must not look like one that passed.

pub mod browser;
pub mod etcd;

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::thread;

/// Names the file to which every test that checks less appends a line; `scripts/test` prints it at the end.
pub const NOT_RUN: &str = "WEIR_NOT_RUN";

/// The file or folder at `path` below the data folder, for example `pcaps` or `rules/et-open-half.tar.gz`; `None` where tests run without it.
///
/// # Panics
/// With `CI=true`, when the data is missing and `WEIR_DATA` is not `none`.
#[track_caller]
pub fn find(path: &str) -> Option<PathBuf> {
    let named = env::var_os("WEIR_DATA");
    let ci = env::var_os("CI").is_some_and(|v| v == "true");
    match look(named.as_deref(), ci, &beside_workspace(), path) {
        Ok(found) => Some(found),
        Err(Missing::Meant(line)) => {
            not_run(&line);
            None
        }
        Err(Missing::Failure(line)) => panic!("{line}"),
    }
}

/// Says, past the test harness, that the calling test checks less than it could, and why. The line also goes to the list that [`NOT_RUN`] names.
#[track_caller]
pub fn not_run(why: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("not run: {test} ({}): {why}", Location::caller().file());
    // Nothing is lost when the harness has closed its output.
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(list) = env::var_os(NOT_RUN) {
        let file = File::options().create(true).append(true).open(&list);
        let written = file.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", list.display());
    }
}

/// Why no such file or folder.
#[derive(Debug, PartialEq)]
enum Missing {
    /// The test goes on without it.
    Meant(String),
    /// The test fails.
    Failure(String),
}

fn look(named: Option<&OsStr>, ci: bool, default: &Path, path: &str) -> Result<PathBuf, Missing> {
    if named.is_some_and(|n| n == "none") {
        return Err(Missing::Meant(format!(
            "WEIR_DATA=none: {path} is not read"
        )));
    }
    let root = named.map_or(default, Path::new);
    let found = root.join(path);
    if found.exists() {
        return Ok(found);
    }
    let line = format!("no test data {path} in {}", root.display());
    // A folder that somebody names is meant to be there.
    if ci || named.is_some() {
        return Err(Missing::Failure(format!(
            "{line}; put it there, name its folder with WEIR_DATA=DIR, or run without it with WEIR_DATA=none"
        )));
    }
    Err(Missing::Meant(line))
}

fn beside_workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_found_missed_or_required() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let named = Some(here.as_os_str());
        let absent = Path::new("absent");
        let none = Some(OsStr::new("none"));
        assert_eq!(look(None, true, here, "src"), Ok(here.join("src")));
        assert_eq!(look(named, true, absent, "src"), Ok(here.join("src")));
        assert!(matches!(
            look(none, true, here, "src"),
            Err(Missing::Meant(_))
        ));
        assert!(matches!(
            look(None, false, absent, "src"),
            Err(Missing::Meant(_))
        ));
        for (named, ci, default) in [(None, true, absent), (named, false, here)] {
            let Err(Missing::Failure(line)) = look(named, ci, default, "captures") else {
                panic!("missing data passes: {named:?}, CI {ci}");
            };
            assert!(
                line.contains("WEIR_DATA=none") && !line.contains('\n'),
                "{line}"
            );
        }
    }
}
