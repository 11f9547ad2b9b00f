//! `weir lab demo`, the main job, as `make run` shows it: all of its checks hold, and it leaves nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::live_bed::root;
use rustix::process::{Pid, Signal, kill_process};

/// Runs it in a folder of its own; returns its outcome and the number of its process.
fn demo(args: &[&str]) -> (serde_json::Value, u32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(["lab", "demo", "--json"])
        .args(args)
        .current_dir(env!("CARGO_TARGET_TMPDIR"));
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let id = child.id();
    let output = child.wait_with_output().expect("ends");
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!(
            "{e}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    let checks = outcome["checks"].as_array().expect("checks");
    assert!(
        !checks.is_empty() && checks.iter().all(|c| c["ok"] == true),
        "{outcome:#}"
    );
    assert!(output.status.success());
    (outcome, id)
}

fn nothing_is_left(of: u32) {
    let names = std::fs::read_dir("/run/netns")
        .map(|d| d.flatten().map(|e| e.file_name()).collect())
        .unwrap_or_else(|_| Vec::new());
    let left: Vec<_> = names
        .iter()
        .filter(|n| n.to_string_lossy().contains(&format!("-{of}-")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(
        !std::env::temp_dir()
            .join(format!("weir-demo-{of}-0"))
            .exists()
    );
}

#[test]
fn on_interfaces() {
    if !root("on_interfaces") {
        return;
    }
    let (outcome, id) = demo(&["--seconds", "1"]);
    assert_eq!(outcome["engine"], "kernel");
    assert!(outcome["checks"].as_array().is_some_and(|c| c.len() >= 30));
    nothing_is_left(id);
}

#[test]
fn from_the_capture() {
    let (outcome, id) = demo(&["--replay"]);
    assert_eq!(outcome["engine"], "user");
    nothing_is_left(id);
}

#[test]
fn interrupted_it_leaves_nothing() {
    if !root("interrupted_it_leaves_nothing") {
        return;
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["lab", "demo", "--seconds", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let id = child.id();
    let end = Instant::now() + Duration::from_secs(20);
    while !Path::new("/run/netns")
        .join(format!("weir-demo-server-{id}-2"))
        .exists()
    {
        assert!(Instant::now() < end, "the bed is not built");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_raw(id as i32).expect("a process"), Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("ends").code(), Some(1));
    nothing_is_left(id);
}
