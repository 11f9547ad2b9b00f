//! `weir lab sensor`: the accuracy suite as a user runs it, kept, judged again, and held to rules of others.

#![allow(clippy::print_stderr, reason = "a figure is said where the test runs")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("weir-lab-sensor-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn weir(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["lab", "sensor"])
        .args(args)
        .output()
        .expect("it runs");
    (
        out.status.code().expect("a status"),
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

/// Every case of every class, and the suite's own eye: a log in which an alert is missing, and one with an alert too many, are found.
#[test]
fn every_case_fires_its_rules_and_no_other() {
    let folder = Folder::new("all");
    let kept = folder.0.display().to_string();
    let (status, out, err) = weir(&["--keep", &kept]);
    assert_eq!(status, 0, "{out}{err}");
    for class in [
        "client side",
        "bad traffic",
        "fragments",
        "evasion",
        "shell codes",
        "denial of service",
        "brute force",
        "traps",
        "test rules",
        "replay",
        "normal usage",
    ] {
        let line = out
            .lines()
            .rfind(|l| l.starts_with(class))
            .unwrap_or_else(|| panic!("{class} is missing: {out}"));
        assert!(line.contains("cases as they must be"), "{line}");
    }
    // Logs that were left are judged alike.
    let judge = || weir(&["--judge", &kept, "--quiet"]);
    assert_eq!(judge().0, 0);
    let case = |part: &str| -> PathBuf {
        let mut found: Vec<PathBuf> = fs::read_dir(&folder.0)
            .expect("a folder")
            .flatten()
            .map(|e| e.path())
            .filter(|p| {
                p.file_name()
                    .and_then(|n| n.to_str())
                    .is_some_and(|n| n.contains(part))
            })
            .collect();
        found.sort();
        found.remove(0).join("eve.json")
    };
    let (attack, normal) = (
        case("client-side-invisible-frame"),
        case("normal-usage-pages"),
    );
    let alert = fs::read_to_string(&attack).expect("there");
    let line = alert
        .lines()
        .find(|l| l.contains("\"event_type\":\"alert\""))
        .expect("an alert");
    let pages = fs::read_to_string(&normal).expect("there");
    fs::write(&normal, format!("{pages}{line}\n")).expect("written");
    let (status, out, _) = judge();
    assert_eq!(status, 1);
    assert!(
        out.contains("normal usage") && out.contains("910102") && out.contains("NOT AS IT MUST BE"),
        "{out}"
    );
    fs::write(&normal, pages).expect("written");
    fs::write(&attack, "").expect("written");
    let (status, out, _) = judge();
    assert_eq!(status, 1);
    assert!(out.contains("invisible frame"), "{out}");
    fs::remove_file(&attack).expect("there");
    assert_eq!(judge().0, 1);
}

/// A figure, not a gate: what 12,400 published rules say of normal usage.
#[test]
fn published_rules_on_normal_usage() {
    let Some(root) = weir_testdata::find("rules/et-open-half.tar.gz") else {
        return;
    };
    let folder = Folder::new("published");
    let unpacked = Command::new("tar")
        .arg("xzf")
        .arg(&root)
        .arg("-C")
        .arg(&folder.0)
        .status();
    assert!(unpacked.is_ok_and(|s| s.success()), "tar");
    let mut folders = vec![folder.0.clone()];
    let mut args = vec!["--quiet".to_owned()];
    while let Some(f) = folders.pop() {
        for entry in fs::read_dir(&f).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rules") {
                args.extend(["-S".to_owned(), path.display().to_string()]);
            }
        }
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (status, out, err) = weir(&args);
    assert_eq!(status, 0, "{out}{err}");
    let line = out
        .lines()
        .find(|l| l.starts_with("normal usage under"))
        .expect("a figure");
    eprintln!("{line}");
}
