//! What the kernel tests share: the compiled sample object and the rule for
//! tests that need root.

#![allow(
    dead_code,
    reason = "each test file that includes this module uses some of it"
)]

use std::process::Command;
use std::sync::OnceLock;

use weir_kernel::{KernelObject, LoadedProgram};

/// The sample object, compiled once per test binary.
pub(crate) fn sample() -> &'static [u8] {
    static ELF: OnceLock<Vec<u8>> = OnceLock::new();
    // The BPF target has no directory of machine headers of its own.
    let machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    ELF.get_or_init(|| compile("sample", &["-idirafter", &machine]))
}

/// The object of `tests/objects/<name>.bpf.c`.
pub(crate) fn compile(name: &str, flags: &[&str]) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects");
    let clang = std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
    let output = Command::new(clang)
        .args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror",
        ])
        .args(["-I", env!("WEIR_LIBBPF_INCLUDE")])
        .args(flags)
        .args(["-c", &format!("{folder}/{name}.bpf.c"), "-o", "-"])
        .output()
        .expect("clang is installed");
    assert!(
        output.status.success(),
        "clang: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Whether this process may run kernel tests. Without root it says that it
/// skips; in CI that is a failure.
pub(crate) fn root(test: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let euid = status
        .lines()
        .find_map(|l| l.strip_prefix("Uid:"))
        .and_then(|l| l.split_whitespace().nth(1).map(str::to_owned));
    if euid.as_deref() == Some("0") {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{test} needs root, and in CI it may not skip"
    );
    use std::io::Write;
    // One write, so that lines of parallel tests do not mix.
    let line = format!("{test}: skipped, it needs root\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// The program `sample` with some constants set.
pub(crate) fn load_sample(constants: &[(&str, &[u8])]) -> LoadedProgram {
    let mut object = KernelObject::open(sample()).expect("opens");
    for (name, value) in constants {
        object.set_rodata(name, value).expect("constant");
    }
    object.load("sample").expect("loads")
}
