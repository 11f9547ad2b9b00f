//! `weir lab afxdp` as a user runs it: a small sweep on a veth with every packet accounted for, the trap of busy polling caught, a sweep that goes on after a kill, settings that
//! are what they were after an end, a signal and a kill, and what cannot be.
//!
//! Times are printed, never judged, but for the trap, which costs a timer of 5 ms. One test at a time: each new sweep puts back what killed ones left, also those of other tests.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::{NetNs, iface};
use weir_lab::afxdp::run::order;

use crate::common::{Folder, WEIR, root_for, say};

const SIX: &str = "blocks = 2\ncount = 200\nwarm_up = 20\nduration = \"10s\"\ntimeout = \"2s\"\n\
    [[product]]\nmode = [\"copy\", \"generic\"]\nforwarder_wait = \"poll\"\nprober_wait = [\"call\", \"poll\"]\n\
    [[product]]\nneed_wakeup = [true, false]\n";

/// Held by the one test that runs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn afxdp(args: &[&str]) -> Command {
    let mut command = Command::new(WEIR);
    command
        .args(["lab", "afxdp"])
        .args(args)
        .stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("weir runs")
}

#[track_caller]
fn json(out: &Output) -> Value {
    assert!(out.status.success(), "{}", text(out));
    serde_json::from_slice(&out.stdout).expect("one object")
}

fn text(out: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key} of {value}"))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("plain")
}

#[test]
fn a_small_sweep_accounts_for_every_packet() {
    let _alone = alone();
    if !root_for("weir lab afxdp") {
        return;
    }
    let folder = Folder::new();
    let document = folder.write("six.toml", SIX);
    let results = json(&output(&mut afxdp(&[
        path(&document),
        "--json",
        "--out",
        path(&folder.join("out")),
    ])));
    let cells = list(&results, "cells");
    assert_eq!(cells.iter().filter(|c| c["control"].is_null()).count(), 6);
    let controls: Vec<&str> = cells.iter().filter_map(|c| c["control"].as_str()).collect();
    assert!(
        controls.contains(&"udp-block") && controls.contains(&"packet-block"),
        "{controls:?}"
    );
    let mut places = [Vec::new(), Vec::new()];
    for cell in cells {
        let runs = list(cell, "runs");
        assert_eq!(runs.len(), 2, "{}", cell["id"]);
        for run in runs {
            assert_eq!(run["failure"], Value::Null, "{cell}");
            assert_eq!(
                (run["sent"].as_u64(), run["received"].as_u64()),
                (Some(200), Some(200)),
                "{}",
                cell["id"]
            );
            assert_eq!(list(run, "samples").len(), 200);
            assert!(list(run, "samples").iter().all(|ns| ns.as_u64() > Some(0)));
            assert!(run["cpu_per_packet"].as_f64() > Some(0.0), "{}", cell["id"]);
            assert!(list(&run["effective"], "unmet").is_empty(), "{run}");
            let block = run["block"].as_u64().expect("a number") as usize;
            places[block].push(run["place"].as_u64().expect("a number"));
        }
    }
    for mut block in places {
        block.sort_unstable();
        assert_eq!(
            block,
            (0..cells.len() as u64).collect::<Vec<_>>(),
            "every cell has a place of its own"
        );
    }
    assert_eq!(results["driver"], "veth");
    let kept: Value =
        serde_json::from_slice(&std::fs::read(folder.join("out/results.json")).expect("written"))
            .expect("JSON");
    assert_eq!(kept["cells"].as_array().map(Vec::len), Some(cells.len()));
}

#[test]
fn the_trap_of_busy_polling_is_caught_and_explained() {
    let _alone = alone();
    if !root_for("weir lab afxdp with busy polling") {
        return;
    }
    let folder = Folder::new();
    let document = folder.write(
        "trap.toml",
        "blocks = 1\ncount = 20\nwarm_up = 1\nduration = \"5s\"\n[base]\nforwarder_wait = \"poll\"\nprober_wait = \"poll\"\n\
         [[product]]\nbusy_poll = [\"off\", \"20us/64\"]\ndeferral = [\"0/0\", \"2/5ms\"]\n",
    );
    let results = json(&output(&mut afxdp(&[path(&document), "--json"])));
    let cell = |busy: bool, deferred: bool| {
        let fits = |c: &&Value| {
            c["control"].is_null()
                && (c["knobs"]["busy_poll"] != "off") == busy
                && (c["knobs"]["deferral"] != "0/0") == deferred
        };
        list(&results, "cells")
            .iter()
            .find(fits)
            .unwrap_or_else(|| panic!("no such cell in {results}"))
    };
    let run = &list(cell(true, true), "runs")[0];
    let unmet = list(&run["effective"], "unmet");
    if run["effective"]["napi"][0] != 0 {
        say("this kernel's veth names its NAPI instances: the trap is none here");
        assert!(
            run["effective"]["busy_poll_packets"].as_u64() > Some(0),
            "{run}"
        );
        return;
    }
    assert!(
        unmet.iter().any(|u| u
            .as_str()
            .is_some_and(|u| u.contains("SO_INCOMING_NAPI_ID is 0"))),
        "{unmet:?}"
    );
    assert!(
        unmet.iter().any(|u| u
            .as_str()
            .is_some_and(|u| u.contains("waits for the timer"))),
        "{unmet:?}"
    );
    let alone = &list(cell(false, true), "runs")[0];
    assert_eq!(list(&alone["effective"], "unmet").len(), 1, "{alone}");
    assert!(list(&list(cell(false, false), "runs")[0]["effective"], "unmet").is_empty());
    // Two timers of 5 ms lie in each round trip; nothing makes them shorter.
    let mut trips: Vec<u64> = list(run, "samples")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    trips.sort_unstable();
    say(&format!(
        "median round trip in the trap: {} us",
        trips[trips.len() / 2] / 1000
    ));
    assert!(trips[trips.len() / 2] > 2_000_000, "{trips:?}");
}

/// A sweep in the background, which ends with the test.
struct Background {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
}

impl Background {
    fn start(command: &mut Command) -> Background {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let lines = BufReader::new(child.stderr.take().expect("a pipe"));
        Background { child, lines }
    }

    /// Waits for a line.
    fn until(&mut self, wanted: impl Fn(&str) -> bool) {
        let mut line = String::new();
        let mut all = String::new();
        while self.lines.read_line(&mut line).expect("reads") > 0 {
            if wanted(&line) {
                return;
            }
            all.push_str(&line);
            line.clear();
        }
        panic!("it ended without that line: {all}");
    }

    fn signal(&mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
        self.child.wait().expect("it ends")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn beds() -> Vec<String> {
    let names = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten();
    names
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|name| name.starts_with("weir-afxdp-"))
        .collect()
}

/// Namespaces of a process's sweep: their names have its number.
fn beds_of(child: &Child) -> Vec<String> {
    let part = format!("-{}-", child.id());
    beds()
        .into_iter()
        .filter(|name| name.contains(&part))
        .collect()
}

#[test]
fn a_killed_sweep_goes_on_and_its_bed_is_removed() {
    let _alone = alone();
    if !root_for("weir lab afxdp after a kill") {
        return;
    }
    let folder = Folder::new();
    let document = folder.write("six.toml", SIX);
    let out = folder.join("out");
    let args = [path(&document), "--out", path(&out), "--progress"];
    let mut background = Background::start(&mut afxdp(&args));
    background.until(|line| line.starts_with("7/"));
    let beds = beds_of(&background.child);
    assert_eq!(beds.len(), 2, "{beds:?}");
    background.signal(rustix::process::Signal::KILL);
    assert_eq!(beds_of(&background.child), beds, "nobody removed them");
    // What a write that was cut off leaves.
    let runs = out.join("runs.jsonl");
    let before = std::fs::read_to_string(&runs).expect("runs");
    let whole = before.lines().count() - 1;
    std::fs::write(&runs, format!("{before}{{\"cell\":\"cop")).expect("written");
    let results = json(&output(&mut afxdp(&[
        path(&document),
        "--out",
        path(&out),
        "--json",
    ])));
    let cells = list(&results, "cells");
    assert!(cells.iter().all(|c| list(c, "runs").len() == 2));
    let after = std::fs::read_to_string(&runs).expect("runs");
    assert!(
        after.starts_with(&before),
        "what ran before is kept as it was"
    );
    assert_eq!(
        after.lines().count() - 1,
        cells.len() * 2,
        "{whole} had run"
    );
    let left: Vec<String> = self::beds()
        .into_iter()
        .filter(|name| beds.contains(name))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Complete: nothing runs again. Another document does not mix.
    let again = json(&output(&mut afxdp(&[
        path(&document),
        "--out",
        path(&out),
        "--json",
    ])));
    assert_eq!(again["cells"], results["cells"]);
    let other = folder.write("other.toml", SIX.replace("200", "100"));
    let refused = output(&mut afxdp(&[path(&other), "--out", path(&out)]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused).contains("another document") && text(&refused).contains("--out"),
        "{}",
        text(&refused)
    );
    let seeded = output(&mut afxdp(&[
        path(&document),
        "--seed",
        "9",
        "--out",
        path(&out),
    ]));
    assert!(text(&seeded).contains("another seed"), "{}", text(&seeded));
}

/// Two interfaces that are connected, in a namespace of the test's.
struct Own(NetNs);

impl Own {
    fn new() -> Own {
        let ns = NetNs::create("weir-lab-own").expect("namespace");
        let own = Own(ns);
        own.0
            .ip(&[
                "link",
                "add",
                "pa",
                "numtxqueues",
                "4",
                "numrxqueues",
                "4",
                "type",
                "veth",
                "peer",
                "name",
                "pb",
                "numtxqueues",
                "4",
                "numrxqueues",
                "4",
            ])
            .expect("veth");
        for name in ["pa", "pb"] {
            own.0.ip(&["link", "set", name, "up"]).expect("up");
        }
        own
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(WEIR).expect("namespace");
        command
            .args(["lab", "afxdp"])
            .args(args)
            .stdin(Stdio::null());
        command
    }

    /// Everything of both interfaces that sweeps change.
    fn settings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for name in ["pa", "pb"] {
            let queues = self
                .0
                .run(|| iface::queues(name))
                .expect("namespace")
                .expect("queues");
            all.push(format!("{name} {queues:?}"));
            for attribute in ["napi_defer_hard_irqs", "gro_flush_timeout", "threaded"] {
                let file = format!("/sys/class/net/{name}/{attribute}");
                let text = Command::new("ip")
                    .args(["netns", "exec", self.0.name(), "cat", &file])
                    .output()
                    .expect("ip runs");
                all.push(format!(
                    "{name} {attribute} {}",
                    String::from_utf8_lossy(&text.stdout)
                ));
            }
            let gro = self
                .0
                .run(|| iface::feature(name, iface::Feature::Gro))
                .expect("namespace")
                .expect("gro");
            all.push(format!("{name} gro {gro}"));
        }
        all
    }
}

/// Cells that change everything that can be changed on a veth.
const CHANGES: &str = "blocks = 1\ncount = 1000000\nduration = \"60s\"\nwarm_up = 0\n\
    [[product]]\nforwarder_wait = \"poll\"\nprober_wait = \"poll\"\nqueues = 2\nthreaded = true\ndeferral = \"2/20ms\"\n";

#[test]
fn settings_are_what_they_were_after_an_end_a_signal_and_a_kill() {
    let _alone = alone();
    if !root_for("what weir lab afxdp puts back") {
        return;
    }
    let folder = Folder::new();
    let document = folder.write("changes.toml", CHANGES);
    let own = Own::new();
    let before = own.settings();
    // An order in which the cell comes before its two controls.
    let seed = (0..)
        .find(|seed| order(*seed, 0, 3)[0] == 0)
        .expect("one")
        .to_string();
    let here = [
        "-i",
        "pa",
        "--forwarder",
        "pb",
        "--progress",
        "--seed",
        &seed,
        path(&document),
    ];
    let start = || {
        let mut background = Background::start(&mut own.command(&here));
        background.until(|line| line.contains("defer="));
        // The line comes before the run's settings do.
        let limit = Instant::now() + Duration::from_secs(10);
        while own.settings() == before {
            assert!(Instant::now() < limit, "nothing is changed");
            std::thread::sleep(Duration::from_millis(20));
        }
        background
    };
    let mut background = start();
    let status = background.signal(rustix::process::Signal::TERM);
    assert_eq!(status.code(), Some(1));
    assert_eq!(own.settings(), before, "after SIGTERM");

    let mut background = start();
    // All settings of the run are made.
    std::thread::sleep(Duration::from_millis(300));
    background.signal(rustix::process::Signal::KILL);
    assert_ne!(own.settings(), before, "a killed process puts nothing back");
    let restored = output(&mut own.command(&["--restore"]));
    assert!(text(&restored).contains("again"), "{}", text(&restored));
    assert_eq!(own.settings(), before, "after a kill and --restore");
    let nothing = output(&mut own.command(&["--restore"]));
    assert!(!text(&nothing).contains(" of pa "), "{}", text(&nothing));

    let mut background = start();
    background.signal(rustix::process::Signal::KILL);
    let planned = output(&mut own.command(&[
        "-i",
        "pa",
        "--forwarder",
        "pb",
        "--dry-run",
        path(&document),
    ]));
    assert!(planned.status.success(), "{}", text(&planned));
    assert_eq!(own.settings(), before, "after a kill and the next sweep");

    let quick = folder.write("quick.toml", CHANGES.replace("1000000", "20"));
    let results = json(&output(&mut own.command(&[
        "-i",
        "pa",
        "--forwarder",
        "pb",
        "--json",
        path(&quick),
    ])));
    assert_eq!(own.settings(), before, "after its end");
    assert!(list(&results, "pruned").iter().any(|p| {
        p["reason"]
            .as_str()
            .is_some_and(|r| r.contains("no UDP controls"))
    }));
}

#[test]
fn a_link_that_goes_down_is_a_failure_of_its_run() {
    let _alone = alone();
    if !root_for("weir lab afxdp with a link that goes down") {
        return;
    }
    let folder = Folder::new();
    let document = folder.write(
        "down.toml",
        "blocks = 2\ncount = 100000\nwarm_up = 0\nduration = \"2s\"\n[[product]]\nforwarder_wait = \"poll\"\nprober_wait = \"poll\"\nqueues = [1, 2]\n",
    );
    let own = Own::new();
    let before = own.settings();
    let out = folder.join("out");
    let args = [
        "-i",
        "pa",
        "--forwarder",
        "pb",
        "--progress",
        "--out",
        path(&out),
        path(&document),
    ];
    let mut background = Background::start(&mut own.command(&args));
    background.until(|line| line.contains("copy,"));
    std::thread::sleep(Duration::from_millis(500));
    own.0.ip(&["link", "set", "pb", "down"]).expect("down");
    let mut said = String::new();
    background.child.wait().expect("it ends");
    std::io::Read::read_to_string(&mut background.lines, &mut said).expect("reads");
    assert!(
        said.contains("pb is down") && said.contains("restored"),
        "{said}"
    );
    let runs = std::fs::read_to_string(out.join("runs.jsonl")).expect("runs");
    assert!(
        runs.contains("\"failure\":\""),
        "{}",
        runs.lines().last().unwrap_or_default()
    );
    own.0.ip(&["link", "set", "pb", "up"]).expect("up");
    assert_eq!(own.settings(), before);
}

#[test]
fn the_forwarder_may_be_on_another_host() {
    let _alone = alone();
    if !root_for("weir lab afxdp with a forwarder elsewhere") {
        return;
    }
    let folder = Folder::new();
    let document = folder.write("six.toml", SIX.replace("200", "100"));
    let (here, there) = (
        NetNs::create("weir-lab-here").expect("namespace"),
        NetNs::create("weir-lab-there").expect("namespace"),
    );
    let end = |ns, name, addresses| weir_kernel::bed::End {
        ns,
        name,
        addresses,
    };
    weir_kernel::bed::veth(end(&here, "wire", &[]), end(&there, "wire", &[]))
        .expect("the link that is measured");
    weir_kernel::bed::veth(
        end(&here, "ctl", &["192.0.2.1/24"]),
        end(&there, "ctl", &["192.0.2.2/24"]),
    )
    .expect("the link of the connection");
    let mut served = there.command(WEIR).expect("namespace");
    served.args(["lab", "afxdp", "-i", "wire", "--listen", "192.0.2.2:7700"]);
    let mut server = Background::start(&mut served);
    server.until(|line| line.contains("serving sweeps"));
    let queues = || {
        there
            .run(|| iface::queues("wire"))
            .expect("namespace")
            .expect("queues")
    };
    let before = queues();
    for _ in 0..2 {
        let mut command = here.command(WEIR).expect("namespace");
        command.args([
            "lab",
            "afxdp",
            "-i",
            "wire",
            "--remote",
            "192.0.2.2:7700",
            "--json",
            path(&document),
        ]);
        let results = json(&output(&mut command));
        let cells = list(&results, "cells");
        assert!(
            cells.iter().any(|c| c["control"] == "packet-block"),
            "{results}"
        );
        for run in cells.iter().flat_map(|c| list(c, "runs")) {
            assert_eq!(
                (run["failure"].is_null(), run["received"].as_u64()),
                (true, Some(100)),
                "{run}"
            );
        }
        server.until(|line| line.contains("restored"));
        assert_eq!(queues(), before);
    }
    assert_eq!(server.signal(rustix::process::Signal::TERM).code(), Some(0));
}

#[test]
fn what_cannot_be_is_told_before_anything_is_touched() {
    let _alone = alone();
    for (args, status, words) in [
        (
            &["--preset", "fastest"][..],
            2,
            "unknown preset `fastest`: default, paper, quick",
        ),
        (
            &["/nonexistent.toml"][..],
            2,
            "cannot read /nonexistent.toml",
        ),
        (&["-i", "lo"][..], 2, "--forwarder"),
    ] {
        let out = output(&mut afxdp(args));
        assert_eq!(out.status.code(), Some(status), "{}", text(&out));
        assert!(text(&out).contains(words), "{}", text(&out));
    }
    let shown = output(&mut afxdp(&["--preset", "paper", "--show"]));
    assert!(
        shown.status.success() && text(&shown).contains("interval = \"1s\""),
        "{}",
        text(&shown)
    );
    if !root_for("weir lab afxdp on interfaces that are not there") {
        return;
    }
    let own = Own::new();
    for (args, words) in [
        (&["-i", "pa", "--forwarder", "px"][..], "px"),
        (&["-i", "pa", "--forwarder", "pa"][..], "both ends"),
    ] {
        let out = output(&mut own.command(args));
        assert_eq!(out.status.code(), Some(2), "{}", text(&out));
        assert!(text(&out).contains(words), "{}", text(&out));
    }
    let plan = json(&output(&mut afxdp(&["--dry-run", "--json"])));
    assert!(
        list(&plan, "cells").len() >= 100,
        "{}",
        list(&plan, "cells").len()
    );
    assert!(
        list(&plan, "pruned")
            .iter()
            .all(|p| p["count"].as_u64() > Some(0) && p["reason"] != "")
    );
}
