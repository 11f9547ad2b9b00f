//! Programs that break one rule each: `weir prog verify` must name the rule, the line and the missing check, and find a packet that
//! breaks the program where there is one; the twin without the mistake must be accepted, and hold against that packet.
//!
//! Each file of tests/broken says in its head what is expected, and marks the line. The whole explanation is compared with NAME.txt where the
//! compiler is the one that was recorded with (others choose other registers); `WEIR_UPDATE=1` writes these.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::common;
use crate::common::{Folder, root_for, say, weir};
use serde_json::Value;

/// What a file expects.
struct Broken {
    name: String,
    rule: String,
    missing: String,
    packet: bool,
    line: u64,
    /// Given to `weir prog verify`, where only a stricter verifier than root's refuses it.
    flags: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken")
}

fn all() -> Vec<Broken> {
    let mut all = Vec::new();
    for path in common::files(&folder()) {
        if path.extension().is_none_or(|e| e != "c") {
            continue;
        }
        let name = path
            .file_stem()
            .expect("files have names")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).expect("the program is readable");
        let head = |key: &str| -> String {
            let prefix = format!(" * {key}: ");
            let line = text.lines().find_map(|l| l.strip_prefix(&prefix));
            line.unwrap_or_else(|| panic!("{name}: no {key} in its head"))
                .to_owned()
        };
        let marked: Vec<u64> = (1..)
            .zip(text.lines())
            .filter(|(_, line)| line.contains("/* REJECTED */"))
            .map(|(n, _)| n)
            .collect();
        assert_eq!(marked.len(), 1, "{name}: one line is marked");
        let flags = text.lines().find_map(|l| l.strip_prefix(" * flags: "));
        let packet = head("packet");
        assert!(packet == "yes" || packet == "none", "{name}: {packet}");
        all.push(Broken {
            rule: head("rule"),
            missing: head("missing"),
            packet: packet == "yes",
            line: marked[0],
            flags: flags
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            name,
        });
    }
    all
}

fn clang() -> std::ffi::OsString {
    std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into())
}

/// The compiler's major version.
fn clang_version() -> String {
    let run = common::run(Command::new(clang()).arg("--version"));
    let version = run
        .stdout
        .split("version ")
        .nth(1)
        .expect("clang tells its version");
    version
        .split('.')
        .next()
        .expect("versions have dots")
        .to_owned()
}

/// The object of a program, or of its twin without the mistake. Each is compiled once, and left where cargo wants such files.
fn compile(name: &str, fixed: bool) -> PathBuf {
    static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken");
    let object = place.join(format!("{name}{}.o", if fixed { "-fixed" } else { "" }));
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if made.contains(&object) {
        return object;
    }
    std::fs::create_dir_all(&place).expect("the folder can be made");
    let mut command = Command::new(clang());
    // Paths in the object are just the file's name.
    command
        .current_dir(self::folder())
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-w"])
        .arg("-fdebug-compilation-dir=.")
        .args(["-c", &format!("{name}.c"), "-o"])
        .arg(&object);
    if fixed {
        command.arg("-DFIXED");
    }
    let run = common::run(&mut command);
    assert_eq!(run.status, 0, "{name}: {run:?}");
    made.insert(object.clone());
    object
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// `weir prog verify` as the file wants it, and with more arguments.
fn verify(b: &Broken, object: &Path, more: &[&str]) -> common::Run {
    let mut args = vec!["prog", "verify", text(object)];
    args.extend(b.flags.iter().map(String::as_str));
    args.extend(more);
    weir(args)
}

#[test]
fn each_is_explained_with_the_right_line_and_the_right_check() {
    let folder = Folder::new();
    let version = clang_version();
    let broken = all();
    assert!(broken.len() >= 20);
    let mut failures = Vec::new();
    let mut compared = 0;
    for b in &broken {
        let object = compile(&b.name, false);
        let capture = folder.join("packet.pcap");
        let _ = std::fs::remove_file(&capture);
        let run = verify(b, &object, &["--json", "--counterexample", text(&capture)]);
        let mut wrong = |what: String| failures.push(format!("{}: {what}", b.name));
        if run.status != 1 {
            wrong(format!("not rejected: {run:?}"));
            continue;
        }
        let report = run.json();
        let e = &report["programs"][0]["explanation"];
        if e["rule"] != b.rule.as_str() {
            wrong(format!("rule {}, expected {}", e["rule"], b.rule));
        }
        if e["at"]["source"]["line"] != b.line {
            wrong(format!(
                "line {}, expected {}",
                e["at"]["source"]["line"], b.line
            ));
        }
        let missing = ["text", "code", "note"].map(|k| e["missing"][k].as_str().unwrap_or(""));
        if !missing.join("\n").contains(&b.missing) {
            wrong(format!("missing {missing:?}, expected {}", b.missing));
        }
        let found = &report["programs"][0]["counterexample"]["found"];
        if found.is_null() == b.packet {
            wrong(format!("packet {found}, expected {}", b.packet));
        }
        if b.packet && !found.is_null() {
            packet_breaks_it(b, &object, &capture, found, &mut wrong);
        }
        let shown = verify(b, &object, &[]).stdout;
        // How much was tried before a search gave up may depend on the machine.
        let shown = match (shown.find(" ("), shown.rfind("checked interpreter (")) {
            (Some(_), Some(at)) => format!("{}checked interpreter\n", &shown[..at]),
            _ => shown,
        };
        let recorded = self::folder().join(format!("{}.txt", b.name));
        let now = format!("clang {version}\n\n{shown}");
        if std::env::var_os("WEIR_UPDATE").is_some() {
            std::fs::write(&recorded, &now).expect("the record can be written");
        }
        let record = std::fs::read_to_string(&recorded).unwrap_or_default();
        if record.is_empty() || record.starts_with(&format!("clang {version}\n")) {
            compared += 1;
            if record != now {
                wrong(format!(
                    "explained differently than in {}.txt; WEIR_UPDATE=1 records:\n{shown}",
                    b.name
                ));
            }
        }
    }
    say(&format!(
        "{} programs, {compared} explanations compared word for word",
        broken.len()
    ));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The packet found makes the broken program fault, and its twin not.
fn packet_breaks_it(
    b: &Broken,
    object: &Path,
    capture: &Path,
    found: &Value,
    wrong: &mut impl FnMut(String),
) {
    if common::read_capture(capture).len() != 1 {
        wrong("the capture holds one packet".to_owned());
    }
    let mut args = vec!["--in".to_owned(), text(capture).to_owned()];
    let queue = found["rx_queue"].as_u64().unwrap_or_default();
    args.extend(["--queue".to_owned(), queue.to_string()]);
    let interface = found["ingress_ifindex"].as_u64().unwrap_or_default();
    args.extend(["--ifindex".to_owned(), interface.to_string()]);
    let run = |object: &Path| {
        let head = ["prog", "run", text(object)].map(str::to_owned);
        weir(head.into_iter().chain(args.iter().cloned()))
    };
    let broken = run(object);
    if broken.status != 1 || !broken.stdout.contains("1 faulted") {
        wrong(format!("the packet does not break it: {broken:?}"));
    }
    let fixed = run(&compile(&b.name, true));
    if fixed.status != 0 {
        wrong(format!("the packet breaks the twin, too: {fixed:?}"));
    }
}

#[test]
fn the_twins_are_accepted() {
    let mut failures = Vec::new();
    for b in all() {
        let object = compile(&b.name, true);
        let run = verify(&b, &object, &[]);
        if run.status != 0 || !run.stdout.contains("prog: accepted; ") {
            failures.push(format!("{}:\n{}{}", b.name, run.stdout, run.stderr));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_kernel_judges_them_likewise() {
    if !root_for("judging broken programs by the kernel") {
        return;
    }
    let folder = Folder::new();
    let frame = weir_packet::build::Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 2);
    let capture = folder.capture("in.pcap", &[frame.build()]);
    let mut failures = Vec::new();
    for b in all().iter().filter(|b| b.flags.is_empty()) {
        for fixed in [false, true] {
            let object = compile(&b.name, fixed);
            let run = weir([
                "prog",
                "run",
                text(&object),
                "--engine",
                "kernel",
                "--in",
                text(&capture),
            ]);
            // What is not in the object at all is told before the kernel sees it.
            let rejected = run.status == 1
                && (run.stderr.contains("the kernel rejected")
                    || run.stderr.contains("failed to find BTF for extern"));
            if rejected == fixed || (fixed && run.status != 0) {
                failures.push(format!("{}, fixed {fixed}: {run:?}", b.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn releases_are_judged_by_what_they_have() {
    let judge = |name: &str, fixed: bool, releases: &str| {
        let object = compile(name, fixed);
        weir(["prog", "verify", text(&object), "--kernel", releases])
    };
    // Reads of stack that was never written.
    let run = judge("uninit_stack", false, "6.1,6.3.0-1-amd64");
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.stdout.contains("Linux 6.1   does not: "), "{run:?}");
    assert!(run.stdout.contains("Linux 6.3   takes it"), "{run:?}");
    // A helper and a field of the context, with their lines.
    let run = judge("context_argument", true, "5.15,5.18");
    assert_eq!(run.status, 1, "{run:?}");
    let helper = "Linux 5.15  does not: helper bpf_xdp_load_bytes: since 5.18 (line 17)";
    assert!(run.stdout.contains(helper), "{run:?}");
    assert!(run.stdout.contains("Linux 5.18  takes it"), "{run:?}");
    let run = judge("null_map_value", true, "4.15");
    let field = "field rx_queue_index of struct xdp_md: since 4.16 (line 19)";
    assert!(run.stdout.contains(field), "{run:?}");
    assert_eq!(judge("null_map_value", true, "4.18,6.18").status, 0);
    // tc programs need no XDP.
    let run = judge("tc_bounds", true, "4.6,5.1");
    assert!(!run.stdout.contains("XDP"), "{run:?}");
    assert!(run.stdout.contains("Linux 5.1   takes it"), "{run:?}");
    let packet = "direct packet access of tc programs: since 4.7";
    assert!(run.stdout.contains(packet), "{run:?}");
    // What the newest verifier rejects, no release takes.
    assert_eq!(judge("bounds_missing", false, "6.12").status, 1);
    let run = judge("bounds_missing", true, "six");
    assert_eq!(run.status, 2, "{run:?}");
    assert!(
        run.stderr.contains("write major.minor, as in 6.12"),
        "{run:?}"
    );
}
