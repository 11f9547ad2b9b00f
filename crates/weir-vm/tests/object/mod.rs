//! Compiles the C sources under `tests/objects` and runs their programs, for tests only.

#![allow(
    dead_code,
    reason = "each test file that includes this module uses some of it"
)]

use std::process::Command;

use weir_vm::{Env, Fault, Frame, Machine, Object};

/// The object file of `tests/objects/<name>.c`, with type information.
pub(crate) fn compile(name: &str) -> Vec<u8> {
    compile_with(name, &["-g"])
}

/// As [`compile`], with chosen flags.
pub(crate) fn compile_with(name: &str, flags: &[&str]) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../weir-vm/tests/objects");
    let output = Command::new("clang")
        .args([
            "-O2",
            "-target",
            "bpf",
            "-mcpu=v3",
            "-Wall",
            "-Wno-unused",
            "-Wno-infinite-recursion",
        ])
        .args(flags)
        .args(["-c", &format!("{folder}/{name}.c"), "-o", "-"])
        .output()
        .expect("clang runs: `make setup` installs it");
    assert!(
        output.status.success(),
        "{name}.c does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// A machine for one program of an object.
pub(crate) fn machine(object: &[u8], program: &str) -> Machine {
    Object::parse(object)
        .and_then(|o| o.load(program))
        .expect("the object loads")
}

/// Runs a program once over `frame` with default inputs.
pub(crate) fn run(
    object: &[u8],
    program: &str,
    frame: &mut Frame,
) -> (Machine, Result<u32, Fault>) {
    let mut machine = machine(object, program);
    let verdict = machine.run_xdp(frame, &Env::default());
    (machine, verdict)
}

/// The first `n` values of the map `results`.
pub(crate) fn results(machine: &Machine, n: u32) -> Vec<i64> {
    let map = machine.map("results").expect("objects have a results map");
    (0..n)
        .map(|i| {
            let value = map.value(&i.to_le_bytes()).expect("slot exists");
            i64::from_le_bytes(value.try_into().expect("8 bytes"))
        })
        .collect()
}
