//! What the tests of filters share: configuration from text, engines, the naive reading.

#![allow(
    clippy::print_stderr,
    reason = "a skipped engine is said where the test runs"
)]

pub(crate) mod oracle;
pub(crate) mod runs;

use std::io;
use std::path::Path;

use proptest::test_runner::{Config, FileFailurePersistence};
use runs::{Kernel, Run, User};
use weir_functions::filter::{Compiled, Filter};
use weir_functions::kind::{Files, Planned, Request};

struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// A filter from the keys of an instance, which must be right.
pub(crate) fn filter(text: &str) -> Filter {
    let keys = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let request = Request {
        name: "shield",
        keys: &keys,
        files: &NoFiles,
        ports: &[],
        transmits: false,
    };
    Filter::read(&request).unwrap_or_else(|e| panic!("{e}: {:?}\n{text}", e.advice))
}

/// The plan of an instance with these keys.
pub(crate) fn planned(text: &str) -> Planned {
    let keys = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let request = Request {
        name: "shield",
        keys: &keys,
        files: &NoFiles,
        ports: &[],
        transmits: false,
    };
    weir_functions::filter::plan(&request).unwrap_or_else(|e| panic!("{e}: {:?}\n{text}", e.advice))
}

/// The filter compiled; nothing if it names a set in a way that cannot be.
pub(crate) fn compiled(filter: &Filter) -> Option<Compiled> {
    filter.compile().ok()
}

/// All engines that can run here. Without root the kernel is left out, which is an error in CI.
pub(crate) fn engines(compiled: &Compiled) -> Vec<Box<dyn Run>> {
    let mut all: Vec<Box<dyn Run>> = vec![Box::new(User::new(compiled, false))];
    if weir_vm::jit::available() {
        all.push(Box::new(User::new(compiled, true)));
    }
    if is_root() {
        all.push(Box::new(Kernel::new(compiled)));
    }
    all
}

/// Whether this is root, without whom there is no kernel engine.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let uids = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .expect("status has a Uid line");
    let root = uids.split_whitespace().nth(2) == Some("0");
    assert!(
        root || std::env::var("CI").as_deref() != Ok("true"),
        "in CI the kernel engine must be tested: run as root"
    );
    if !root {
        eprintln!("not root: the kernel engine is skipped");
    }
    root
}

/// Settings of a property test; seeds that failed are kept beside the test's `file`.
pub(crate) fn settings(cases: u32, file: &'static str) -> Config {
    Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(file),
        max_shrink_iters: 2000,
        ..Config::default()
    }
}
