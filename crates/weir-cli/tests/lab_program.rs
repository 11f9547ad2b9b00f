//! `weir lab` and `weir bench` are in a program of their own: it is found beside `weir` or in PATH, takes over the process, and where it is not
//! installed its package is named.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::WEIR;

/// A folder with `weir` alone, which is removed again, and an empty one in it.
struct Alone {
    folder: PathBuf,
    weir: PathBuf,
    other: PathBuf,
}

impl Alone {
    fn new(name: &str) -> Alone {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("alone-{name}-{}", std::process::id()));
        let (weir, other) = (folder.join("weir"), folder.join("other"));
        fs::create_dir_all(&other).expect("made");
        // No copy: a program that was just written cannot be run while another test forks.
        fs::hard_link(WEIR, &weir).expect("a link");
        Alone {
            folder,
            weir,
            other,
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn run(weir: &Path, path: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(weir);
    command.env("PATH", path).args(arguments);
    command.output().expect("runs")
}

#[test]
fn a_host_without_it_is_told_the_package() {
    let Alone {
        ref weir,
        ref other,
        ..
    } = Alone::new("none");
    for command in ["lab", "bench"] {
        let output = run(weir, other, &[command, "demo", "--json"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            format!(
                "weir: `weir {command}` is in the program weir-lab, which is neither beside weir nor in PATH: install the package weir-lab\n"
            )
        );
    }
    let output = run(weir, other, &["check", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Another process writes it: see [`Alone::new`].
fn put(from: &Path, to: &Path, mode: &str) {
    let mut install = Command::new("install");
    let status = install.args(["-m", mode]).args([from, to]).status();
    assert!(status.expect("runs").success());
}

#[test]
fn it_is_found_in_the_path_and_gets_every_argument_and_the_process() {
    let Alone {
        ref folder,
        ref weir,
        ref other,
    } = Alone::new("path");
    let (script, lab) = (folder.join("script"), other.join("weir-lab"));
    fs::write(&script, "#!/bin/sh\necho $$ \"$@\"\nexit 3\n").expect("written");
    put(&script, &lab, "644");
    // What cannot be run is not taken.
    let child = Command::new(weir)
        .env("PATH", other)
        .args(["bench", "xdp"])
        .output();
    let refused = child.expect("runs");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    put(&script, &lab, "755");
    let mut command = Command::new(weir);
    command
        .env("PATH", other)
        .stdout(std::process::Stdio::piped());
    let child = command
        .args(["bench", "xdp", "--out", "-x", "--help"])
        .spawn()
        .expect("runs");
    let pid = child.id();
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{pid} bench xdp --out -x --help\n")
    );
}

#[test]
fn one_beside_weir_comes_first_and_help_has_the_words_of_weir() {
    let Alone {
        ref folder,
        ref weir,
        ref other,
    } = Alone::new("beside");
    let lab = env!("CARGO_BIN_EXE_weir-lab");
    symlink(lab, folder.join("weir-lab")).expect("a link");
    symlink("/bin/false", other.join("weir-lab")).expect("a link");
    let output = run(weir, other, &["bench", "xdp", "--help"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("Usage: weir bench xdp"), "{text}");
    let output = run(weir, other, &["lab"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
