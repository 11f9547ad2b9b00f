//! `weir sensor` as a command: what it writes, what it says, and with which status it ends.

#![allow(clippy::print_stderr, reason = "a skip is said where the test runs")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_packet::build::Frame;
use weir_packet::pcap::Writer;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("weir-sensor-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("written");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn weir(args: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .output()
        .expect("it runs");
    (
        status.code().expect("a status"),
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

fn capture() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    for n in 0..3_u64 {
        let frame = Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(4000, 4001)
            .payload(b"find the needle here")
            .build();
        writer
            .write(1_704_067_200_000_000_000 + n, &frame, frame.len() as u32)
            .expect("memory");
    }
    writer.finish().expect("memory")
}

const RULES: &str = "alert udp any any -> any any (msg:\"needle\"; content:\"needle\"; sid:1;)\n";

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).expect("there").lines().count()
}

#[test]
fn a_capture_and_a_rule() {
    let f = Folder::new("run");
    let (pcap, rules) = (f.file("x.pcap", capture()), f.file("one.rules", RULES));
    let log = f.0.display().to_string();
    let (status, out, err) = weir(&[
        "sensor", "-r", &pcap, "-S", &rules, "-l", &log, "-k", "none",
    ]);
    assert_eq!(status, 0, "{err}");
    assert!(
        out.contains("alerts    3\n") && out.contains("rules     1 loaded, 0 rejected"),
        "{out}"
    );
    assert_eq!(lines(&f.0.join("fast.log")), 3);
    // Three alerts, one flow, one record of counters.
    assert_eq!(lines(&f.0.join("eve.json")), 5);
    let (status, out, err) = weir(&[
        "sensor",
        "-r",
        &pcap,
        "-S",
        &f.0.join("*.rules").display().to_string(),
        "-l",
        &log,
        "--workers",
        "2",
        "--json",
        "--engine",
        "aho-corasick",
    ]);
    assert_eq!(status, 0, "{err}");
    let summary: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (
            summary["alerts"].as_u64(),
            summary["frames"].as_u64(),
            summary["ledger"]["unaccounted"].as_i64()
        ),
        (Some(3), Some(3), Some(0))
    );
    // Appended to, as users of such logs expect.
    assert_eq!(lines(&f.0.join("fast.log")), 6);
}

#[test]
fn broken_rules_are_shown_and_the_rest_holds() {
    let f = Folder::new("broken");
    let (pcap, rules) = (
        f.file("x.pcap", capture()),
        f.file(
            "two.rules",
            format!("alert udp any any -> any any (msg:\"bad\"; contentt:\"x\"; sid:2;)\n{RULES}"),
        ),
    );
    let log = f.0.display().to_string();
    let (status, out, err) = weir(&["sensor", "-r", &pcap, "-S", &rules, "-l", &log]);
    assert_eq!(status, 0, "{err}");
    assert!(
        out.contains("1 loaded, 1 rejected") && out.contains("alerts    3\n"),
        "{out}"
    );
    assert!(
        err.contains("two.rules:1") && err.contains("contentt") && err.contains('^'),
        "{err}"
    );
    assert_eq!(
        weir(&["sensor", "-r", &pcap, "-S", &rules, "-l", &log, "--strict"]).0,
        1
    );
    // One that says it is not for this sensor is not in error.
    let other = format!(
        "alert udp any any -> any any (requires: version >= 99; content:\"x\"; sid:2;)\n{RULES}"
    );
    let other = f.file("other.rules", other);
    let (status, out, err) = weir(&["sensor", "-r", &pcap, "-S", &other, "-l", &log, "--strict"]);
    assert_eq!(status, 0, "{err}");
    assert!(
        out.contains("missing a required version: version >= 99"),
        "{out}"
    );
    let (status, out, _) = weir(&["sensor", "rules", "check", &rules]);
    assert_eq!(status, 1);
    assert!(
        out.contains("1 rules of 1 files loaded (50.0 %), 1 rejected"),
        "{out}"
    );
    assert_eq!(
        weir(&["sensor", "rules", "check", &f.file("good.rules", RULES)]).0,
        0
    );
}

#[test]
fn what_cannot_be_read_or_written_is_said() {
    let f = Folder::new("bad");
    let (pcap, rules) = (f.file("x.pcap", capture()), f.file("one.rules", RULES));
    let log = f.0.display().to_string();
    let bytes = capture();
    let cut = f.file("cut.pcap", &bytes[..bytes.len() - 5]);
    let first = f.file("first.pcap", &bytes[..24 + 16 + 5]);
    let no = f.0.join("none").display().to_string();
    // One that is not there is made, but not within a file.
    let under = format!("{rules}/none");
    for (args, expected, said) in [
        (
            vec!["-r", &*no, "-S", &*rules, "-l", &*log],
            2,
            "No such file",
        ),
        (
            vec!["-r", &*pcap, "-S", &*no, "-l", &*log],
            2,
            "No such file",
        ),
        (
            vec!["-r", &*pcap, "-S", &*rules, "-l", &*under],
            2,
            "cannot write logs to",
        ),
        (
            vec!["-r", &*pcap, "-S", &*rules, "-l", &*rules],
            2,
            "not a directory",
        ),
        (
            vec![
                "-r",
                &*pcap,
                "-S",
                &*rules,
                "-l",
                &*log,
                "-f",
                "port nowhere",
            ],
            2,
            "a port is expected",
        ),
        (
            vec![
                "-r",
                &*pcap,
                "-S",
                &*rules,
                "-l",
                &*log,
                "--set",
                "stream.memcap",
            ],
            2,
            "KEY=VALUE",
        ),
        (
            vec!["-r", &*pcap, "-S", &*rules, "-l", &*log, "-c", &*no],
            2,
            "No such file",
        ),
        // What is in front of the cut is decided; in front of this one is nothing.
        (vec!["-r", &*cut, "-S", &*rules, "-l", &*log], 0, "cut off"),
        (
            vec!["-r", &*first, "-S", &*rules, "-l", &*log],
            1,
            "cut off",
        ),
        (
            vec![
                "-r",
                &*pcap,
                "-S",
                &*rules,
                "-l",
                &*log,
                "--strict",
                "--set",
                "stream.midstream=yes",
                "--set",
                "stream.midstream-policy=reject",
            ],
            1,
            "contradicts stream.midstream",
        ),
        (
            vec!["-r", &*rules, "-S", &*rules, "-l", &*log],
            1,
            "not a capture file",
        ),
    ] {
        let (status, _, err) = weir(&[&["sensor"], &args[..]].concat());
        assert_eq!(status, expected, "{args:?}: {err}");
        assert!(err.contains(said), "{args:?}: {err}");
    }
}

/// A configuration may be for more than is there: a rule file that it names and that is not there is said, and the others hold. One that the command line names must be there.
#[test]
fn a_rule_file_of_the_configuration_that_is_not_there() {
    let f = Folder::new("gone");
    let pcap = f.file("x.pcap", capture());
    f.file("one.rules", RULES);
    let log = f.0.display().to_string();
    let config = f.file(
        "weir.yaml",
        format!("%YAML 1.1\n---\ndefault-rule-path: {log}\nrule-files:\n  - gone.rules\n  - one.rules\n  - none-*.rules\n"),
    );
    let run = [
        "sensor", "-c", &config, "-r", &pcap, "-l", &log, "-k", "none",
    ];
    let (status, out, err) = weir(&run);
    assert_eq!(status, 0, "{err}");
    assert!(
        out.contains("rules     1 loaded, 0 rejected, of 1 files") && out.contains("alerts    3\n"),
        "{out}"
    );
    let said: Vec<&str> = (err.lines())
        .filter(|l| l.ends_with("; the other rules are loaded"))
        .collect();
    assert_eq!(said.len(), 2, "{err}");
    assert!(
        said[0].contains("gone.rules") && said[0].contains("No such file"),
        "{err}"
    );
    assert!(said[1].contains("none-*.rules"), "{err}");
    // Rules of the command line alone: the configuration's are not looked for.
    let one = f.0.join("one.rules").display().to_string();
    let (status, _, err) = weir(&[&run[..], &["-S", &one]].concat());
    assert_eq!(status, 0, "{err}");
    assert!(!err.contains("gone.rules"), "{err}");
    let gone = f.0.join("gone.rules").display().to_string();
    for option in ["-S", "-s"] {
        let (status, _, err) = weir(&[&run[..], &[option, &gone]].concat());
        assert_eq!(status, 2, "{option}: {err}");
        assert!(err.contains("gone.rules"), "{option}: {err}");
    }
}

/// `near` and `far` joined in one namespace; `None` without privileges.
fn pair() -> Option<NetNs> {
    if !rustix::process::geteuid().is_root() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "this test needs root, and in CI it may not skip"
        );
        eprintln!("an interface: skipped, it needs root");
        return None;
    }
    let ns = NetNs::create("weir-cli-sensor").expect("namespace");
    for which in ["all", "default"] {
        ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
            .expect("IPv6 off");
    }
    let end = |name| End {
        ns: &ns,
        name,
        addresses: &[],
    };
    bed::veth(end("near"), end("far")).expect("veth");
    // Without it the far end takes no frames that a program sends.
    ns.output("ethtool", &["-K", "far", "gro", "on"])
        .expect("ethtool");
    Some(ns)
}

/// A sensor that goes with the value, also after a panic.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An interface, and rules that change while packets come.
#[test]
fn an_interface_and_rules_loaded_anew() {
    listens("live", "far", &[]);
}

#[test]
#[cfg(feature = "libpcap")]
fn an_interface_by_libpcap() {
    listens("libpcap", "far", &["--capture", "libpcap"]);
}

/// All interfaces at once, whose packets have headers of their own.
#[test]
#[cfg(feature = "libpcap")]
fn all_interfaces_by_libpcap() {
    listens("any", "any", &["--capture", "libpcap"]);
}

#[test]
#[cfg(not(feature = "libpcap"))]
fn a_program_without_libpcap_says_how_to_have_it() {
    let (status, _, err) = weir(&["sensor", "-i", "far", "--capture", "libpcap"]);
    assert_eq!(status, 1, "{err}");
    assert!(err.contains("--features libpcap"), "{err}");
}

fn listens(name: &str, interface: &str, capture: &[&str]) {
    let Some(ns) = pair() else { return };
    let f = Folder::new(name);
    let rule = |sid| format!("alert udp any any -> any any (msg:\"any\"; dsize:>0; sid:{sid};)\n");
    let rules = f.file("live.rules", rule(1));
    let log = f.0.display().to_string();
    let mut sensor = Running(
        ns.command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace")
            .args([
                "sensor", "-i", interface, "-S", &rules, "-l", &log, "-k", "none", "--json", "-f",
                "udp",
            ])
            .args(capture)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs"),
    );
    let mut said = BufReader::new(sensor.0.stderr.take().expect("piped")).lines();
    // It listens before it opens its logs.
    let patience = Instant::now();
    while !f.0.join("eve.json").exists() {
        assert!(
            patience.elapsed() < Duration::from_secs(60),
            "it does not begin"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let generate = || {
        let out = ns
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace")
            .args(["generate", "-i", "near", "--frames", "300", "--size", "100"])
            .output()
            .expect("it runs");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        // Until the sensor has seen them: its ring is handed over by time.
        std::thread::sleep(Duration::from_millis(500));
    };
    let pid = rustix::process::Pid::from_child(&sensor.0);
    let signal = |signal| rustix::process::kill_process(pid, signal).expect("it is there");
    generate();
    fs::write(f.0.join("live.rules"), rule(2)).expect("written");
    signal(rustix::process::Signal::USR2);
    let line = said.next().expect("it says something").expect("text");
    assert!(line.contains("1 rules reloaded"), "{line}");
    generate();
    signal(rustix::process::Signal::INT);
    let mut told = String::new();
    sensor
        .0
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut told)
        .expect("text");
    assert!(sensor.0.wait().expect("it ends").success());
    let summary: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let lost = summary["counters"]["capture.kernel_drops"]
        .as_u64()
        .expect("a number");
    assert_eq!(
        summary["ledger"]["inspected"].as_u64().map(|n| n + lost),
        Some(600),
        "{summary}"
    );
    assert_eq!(summary["ledger"]["unaccounted"].as_i64(), Some(0));
    if lost == 0 {
        let by_rule: Vec<_> = summary["by_rule"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|r| (r["sid"].as_u64(), r["alerts"].as_u64()))
            .collect();
        assert_eq!(by_rule, [(Some(1), Some(300)), (Some(2), Some(300))]);
    }
    let first = fs::read_to_string(f.0.join("eve.json")).expect("there");
    let first: serde_json::Value =
        serde_json::from_str(first.lines().next().expect("one")).expect("JSON");
    assert_eq!(first["in_iface"], interface);
}

/// Files of the log have the phrases that sites search, and no control characters of rules.
#[test]
fn the_log_names_rejected_rules() {
    let folder = Folder::new("phrases");
    let rules = "alert udp any any -> any any (msg:\"a\"; content:\"AA\"; depth:50; depth:20; sid:1;)\n\
alert udp any any -> any any (msg:\"b\x1b[2J\"; content:\"|l0|\"; sid:2;)\n\
alert udp any any -> any any (msg:\"c\"; requires: feature fortune; sid:3;)\n";
    let rules = folder.file("a.rules", rules);
    let config = folder.file(
        "a.yaml",
        "logging:\n  default-log-level: info\n  outputs:\n    - file: {filename: sensor.log}\nclassification-file: /nowhere/classes\n",
    );
    let more = folder.file(
        "b.yaml",
        "decoder:\n  erspan:\n    typeI:\n      enabled: yes\n",
    );
    let log = folder.0.join("log").display().to_string();
    let run = |more: &[&str]| {
        let args = ["sensor", "-c", &config, "-S", &rules, "-l", &log, "-T"];
        let out = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .args(more)
            .output()
            .expect("it runs");
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
        )
    };
    let (status, out) = run(&["--include", &more]);
    assert_eq!(status, Some(0), "{out}");
    assert!(
        out.contains("rule 3: missing a required feature: feature fortune"),
        "{out}"
    );
    let text = fs::read_to_string(folder.0.join("log/sensor.log")).expect("a log");
    for line in [
        "Error: detect-depth: can't use multiple depths for the same content.",
        "Error: detect-content: Invalid hex code in content - |l0|, hex l. Invalidating signature.",
        "Info: detect-requires: missing a required feature: feature fortune",
        "Warning: classification-config: could not open: \"/nowhere/classes\"",
        "Warning: config: ERSPAN Type I is no longer configurable",
        "Warning: detect: 1 rule files specified, but no rules were loaded!",
        "msg:\"b\\u{1b}[2J\"",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!(text.matches("error parsing signature").count(), 2, "{text}");
    assert!(!text.contains('\x1b'));
    let (_, out) = run(&["--include", &more, "--dump-config"]);
    assert!(
        out.contains("decoder.erspan.typeI.enabled = yes\n"),
        "{out}"
    );
}
