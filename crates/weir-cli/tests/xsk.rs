//! `weir xsk` as a user runs it, on veths between namespaces: every packet accounted for at several sizes and with several sockets, forwarding, round trips, what
//! cannot be, and that nothing stays behind.
//!
//! `WEIR_LONG=1` sends ten million frames for each form. Rates and times are printed, never judged.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, iface};

use crate::common;
use crate::common::{long, root_for, say};

/// Queues of each end.
const QUEUES: &str = "4";

/// Two namespaces joined by a veth: `near` in one, `far` in the other.
struct Bed {
    near: NetNs,
    far: NetNs,
}

impl Bed {
    fn new(what: &str) -> Option<Bed> {
        if !root_for(what) {
            return None;
        }
        let bed = Bed {
            near: NetNs::create("weir-xsk-a").expect("namespace"),
            far: NetNs::create("weir-xsk-b").expect("namespace"),
        };
        for ns in [&bed.near, &bed.far] {
            // Their packets would be counted as those of others.
            for which in ["all", "default"] {
                ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
                    .expect("IPv6 off");
            }
        }
        bed.near
            .ip(&[
                "link",
                "add",
                "near",
                "numtxqueues",
                QUEUES,
                "numrxqueues",
                QUEUES,
                "type",
                "veth",
                "peer",
                "name",
                "far",
                "numtxqueues",
                QUEUES,
                "numrxqueues",
                QUEUES,
                "netns",
                bed.far.name(),
            ])
            .expect("veth");
        bed.near.ip(&["link", "set", "near", "up"]).expect("up");
        bed.far.ip(&["link", "set", "far", "up"]).expect("up");
        Some(bed)
    }
}

fn weir(ns: &NetNs, args: &[&str]) -> Command {
    let mut command = ns.command(common::WEIR).expect("namespace");
    command.arg("xsk").args(args).stdin(Stdio::null());
    command
}

fn run(ns: &NetNs, args: &[&str]) -> Output {
    weir(ns, args).output().expect("weir runs")
}

#[track_caller]
fn json(out: &Output) -> Value {
    assert!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_slice(&out.stdout).expect("one object")
}

/// A child that is ended with the test; SIGTERM first, as a user would.
struct Running {
    child: Option<Child>,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Running {
    /// Starts one.
    fn begin(ns: &NetNs, args: &[&str]) -> Running {
        let mut child = weir(ns, args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        Running {
            child: Some(child),
            stderr,
            said: String::new(),
        }
    }

    /// Starts one that receives, and waits until it says that it does. The kernel frees the queue of a socket that was closed when it finds time
    /// for it, which may be long on a busy machine.
    fn start(ns: &NetNs, args: &[&str]) -> Running {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let mut running = Running::begin(ns, args);
            running.stderr.read_line(&mut running.said).expect("reads");
            if running.said.contains("Ctrl-C stops") {
                return running;
            }
            let out = running.end();
            let busy = text(&out).contains("another AF_XDP socket holds it");
            assert!(
                busy && Instant::now() < end,
                "{args:?} did not start: {}",
                text(&out)
            );
        }
    }

    /// Tells it to end, and waits for that.
    fn end(&mut self) -> Output {
        let child = self.child.as_ref().expect("running");
        let pid = rustix::process::Pid::from_child(child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.wait()
    }

    /// Waits until it ends by itself.
    fn wait(&mut self) -> Output {
        let mut child = self.child.take().expect("running");
        let mut stdout = Vec::new();
        let mut pipe = child.stdout.take().expect("a pipe");
        pipe.read_to_end(&mut stdout).expect("reads");
        self.stderr.read_to_string(&mut self.said).expect("reads");
        Output {
            status: child.wait().expect("ends"),
            stdout,
            stderr: self.said.clone().into_bytes(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a command said.
fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn program_on(ns: &NetNs, name: &str) -> bool {
    ns.run(|| iface::find(name).expect("there").xdp_prog_id.is_some())
        .expect("namespace")
}

/// AF_XDP sockets of a namespace.
fn sockets_of(ns: &NetNs) -> u64 {
    let list = ns
        .run(|| std::fs::read_to_string("/proc/thread-self/net/protocols"))
        .expect("namespace")
        .expect("readable");
    let line = list
        .lines()
        .find(|line| line.starts_with("XDP "))
        .expect("the kernel has AF_XDP");
    line.split_whitespace()
        .nth(2)
        .and_then(|n| n.parse().ok())
        .expect("a number")
}

fn count(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

/// One direction with so many sockets: every frame is received or in a named loss.
fn account(bed: &Bed, frames: u64, size: usize, sockets: u32, more: &[&str]) -> (Value, Value) {
    let (size, sockets) = (size.to_string(), sockets.to_string());
    let frames_text = frames.to_string();
    let mut receive = vec![
        "receive",
        "-i",
        "far",
        "--sockets",
        &sockets,
        "--json",
        "--idle",
        "2s",
        "--no-delays",
        "--mode",
        "copy",
    ];
    receive.extend(more);
    let mut receiver = Running::start(&bed.far, &receive);
    let mut send = vec![
        "send",
        "-i",
        "near",
        "--sockets",
        &sockets,
        "--json",
        "--size",
        &size,
        "--count",
        &frames_text,
        "--mode",
        "copy",
    ];
    send.extend(more);
    let sent = json(&run(&bed.near, &send));
    let received = json(&receiver.wait());
    assert_eq!(count(&sent["sent"]), frames, "{sent}");
    assert_eq!(count(&sent["unsent"]), 0, "{sent}");
    let lost_sending = count(&sent["losses"]["refused"]) + count(&sent["losses"]["tx_invalid"]);
    let losses = &received["losses"];
    let lost_receiving = count(&losses["rx_dropped"]) + count(&losses["rx_ring_full"]);
    let arrived = count(&received["received"]);
    say(&format!(
        "{frames} frames of {size} B, {sockets} sockets{}: {arrived} received, {lost_sending} refused, {lost_receiving} lost at the sockets; {:.0} sent/s, {:.0} received/s",
        more.iter().map(|m| format!(" {m}")).collect::<String>(),
        sent["rate"].as_f64().unwrap_or(0.0),
        received["rate"].as_f64().unwrap_or(0.0),
    ));
    assert_eq!(
        frames,
        lost_sending + lost_receiving + arrived,
        "{sent}\n{received}"
    );
    // The same from the other side: what the program handed over, and what the numbers say.
    let steered = &received["steered"];
    assert_eq!(
        count(&steered["steered"]),
        arrived + lost_receiving,
        "{received}"
    );
    assert_eq!(count(&steered["lonely"]), 0);
    assert_eq!(
        count(&received["repeated"]) + count(&received["ancient"]),
        0
    );
    assert_eq!(count(&received["others"]), 0);
    assert!(count(&received["missing"]) <= lost_sending + lost_receiving);
    assert!(arrived > 0);
    for socket in received["sockets"].as_array().expect("a list") {
        assert_eq!(socket["mode"], "copy");
    }
    (sent, received)
}

#[test]
fn every_packet_is_accounted_for() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    let frames = if long() { 10_000_000 } else { 30_000 };
    for (size, sockets) in [(60, 1), (60, 2), (60, 4), (512, 1), (1514, 2), (1514, 4)] {
        account(&bed, frames, size, sockets, &[]);
    }
    // The far end is as before.
    assert!(!program_on(&bed.far, "far"));
}

#[test]
fn knobs_keep_the_account() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    for more in [
        &["--wait", "poll"][..],
        &["--wait", "call", "--no-need-wakeup"],
        &[
            "--frame-size",
            "2048",
            "--frames",
            "512",
            "--fill-ring",
            "256",
            "--rx-ring",
            "64",
        ],
        &["--frame-size", "3000", "--unaligned", "--headroom", "128"],
        &["--shared-umem", "--queue", "1", "--batch", "1"],
        &[
            "--busy-poll",
            "20us",
            "--busy-poll-budget",
            "8",
            "--wait",
            "call",
        ],
    ] {
        let (_, received) = account(&bed, 20_000, 200, 2, more);
        if more.contains(&"--busy-poll") {
            let socket = &received["sockets"][0];
            let napi = count(&socket["napi_id"]);
            assert_eq!(socket["busy_poll_effective"], napi != 0, "{socket}");
        }
    }
}

#[test]
fn packets_of_several_frames_arrive_whole() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    for (ns, name) in [(&bed.near, "near"), (&bed.far, "far")] {
        ns.ip(&["link", "set", name, "mtu", "9000"]).expect("MTU");
    }
    let (_, received) = account(&bed, 2_000, 9_014, 1, &["--multi-buffer"]);
    assert_eq!(
        count(&received["bytes"]),
        count(&received["received"]) * 9_014
    );
    let out = run(
        &bed.near,
        &["send", "-i", "near", "--size", "9014", "--count", "1"],
    );
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(text.contains("ask for multi-buffer"), "{text}");
}

/// The far end takes no packets of that length, and says so to the sender (from Linux 6.9 on).
#[test]
fn what_the_device_drops_is_counted() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    bed.far
        .ip(&["link", "set", "far", "mtu", "500"])
        .expect("MTU");
    let args = [
        "send", "-i", "near", "--size", "1000", "--count", "1000", "--json",
    ];
    let sent = json(&run(&bed.near, &args));
    assert_eq!(count(&sent["sent"]), 1_000, "{sent}");
    assert_eq!(count(&sent["losses"]["refused"]), 1_000, "{sent}");
}

#[test]
fn everything_else_passes_to_the_stack() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    bed.near
        .ip(&["address", "add", "10.9.0.1/24", "dev", "near"])
        .expect("address");
    bed.far
        .ip(&["address", "add", "10.9.0.2/24", "dev", "far"])
        .expect("address");
    let mut receiver = Running::start(&bed.far, &["receive", "-i", "far", "--json", "--mark"]);
    bed.near
        .output("ping", &["-c", "3", "-i", "0.05", "-W", "2", "10.9.0.2"])
        .expect("the stack answers");
    json(&run(
        &bed.near,
        &[
            "send", "-i", "near", "--count", "500", "--rate", "5k/s", "--json",
        ],
    ));
    std::thread::sleep(Duration::from_millis(100));
    let received = json(&receiver.end());
    let steered = &received["steered"];
    assert!(count(&steered["passed"]) >= 3, "{received}");
    assert_eq!(count(&received["received"]), 500, "{received}");
    assert_eq!(count(&steered["unmarked"]), 0);
    // The mark in front of each frame was found.
    assert_eq!(
        count(&received["hook_delay_ns"]["count"]),
        500,
        "{received}"
    );
    assert_eq!(count(&received["delay_ns"]["count"]), 500);
    assert!(
        !program_on(&bed.far, "far"),
        "the program left with SIGTERM"
    );
    assert_eq!(sockets_of(&bed.far), 0);
}

#[test]
fn round_trips_are_measured() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    for kind in [&[][..], &["--packet"]] {
        let args = [
            &[
                "forward", "-i", "far", "--stamp", "--json", "--wait", "poll",
            ],
            kind,
        ]
        .concat();
        let mut forwarder = Running::start(&bed.far, &args);
        let args = [
            &[
                "ping",
                "-i",
                "near",
                "--count",
                "300",
                "--interval",
                "1ms",
                "--warm-up",
                "10",
                "--wait",
                "poll",
                "--json",
            ],
            kind,
        ]
        .concat();
        let pinged = json(&run(&bed.near, &args));
        let forwarded = json(&forwarder.end());
        assert_eq!(count(&pinged["sent"]), 300, "{pinged}");
        assert_eq!(
            count(&pinged["received"]) + count(&pinged["lost"]),
            300,
            "{pinged}"
        );
        assert!(count(&pinged["received"]) > 0, "{pinged}\n{forwarded}");
        let trips = &pinged["round_trip_ns"];
        assert_eq!(trips["count"], pinged["received"]);
        assert_eq!(pinged["there_ns"]["count"], pinged["received"]);
        assert!(count(&trips["min"]) <= count(&trips["median"]));
        assert!(count(&trips["median"]) <= count(&trips["p999"]));
        assert!(pinged["calibration"]["clock_ns"].as_f64() > Some(0.0));
        // Those of the warm-up, too.
        assert!(count(&forwarded["forwarded"]) >= count(&pinged["received"]) + 10);
        say(&format!(
            "round trip {kind:?}: median {} ns, p99 {} ns, {} lost",
            trips["median"], trips["p99"], pinged["lost"]
        ));
    }
}

#[test]
fn a_ping_that_ends_in_its_warm_up_measured_nothing() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    let mut forwarder = Running::start(&bed.far, &["forward", "-i", "far", "--json"]);
    // At the usual interval of a second.
    let args = ["ping", "-i", "near", "--warm-up", "100000", "--json"];
    let mut ping = Running::begin(&bed.near, &args);
    std::thread::sleep(Duration::from_millis(1500));
    let pinged = json(&ping.end());
    let forwarded = json(&forwarder.end());
    assert_eq!(count(&pinged["sent"]), 0, "{pinged}");
    assert_eq!(pinged["seconds"].as_f64(), Some(0.0), "{pinged}");
    assert!(count(&forwarded["forwarded"]) >= 10, "{forwarded}");
}

#[test]
fn forwards_between_interfaces() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    let end = NetNs::create("weir-xsk-c").expect("namespace");
    end.sysctl("net.ipv6.conf.default.disable_ipv6", "1")
        .expect("IPv6 off");
    bed::veth(
        End {
            ns: &bed.far,
            name: "on",
            addresses: &[],
        },
        End {
            ns: &end,
            name: "end",
            addresses: &[],
        },
    )
    .expect("veth");
    for kind in [&[][..], &["--packet"]] {
        let args = [&["receive", "-i", "end", "--json"], kind].concat();
        let mut receiver = Running::start(&end, &args);
        let args = [&["forward", "-i", "far", "--to", "on", "--json"], kind].concat();
        let mut forwarder = Running::start(&bed.far, &args);
        let sent = json(&run(
            &bed.near,
            &[
                "send", "-i", "near", "--count", "20k", "--rate", "100k/s", "--json",
            ],
        ));
        std::thread::sleep(Duration::from_millis(300));
        let forwarded = json(&forwarder.end());
        let received = json(&receiver.end());
        let at_near = count(&sent["sent"]) - count(&sent["losses"]["refused"]);
        let losses = &forwarded["losses"];
        let lost = |names: &[&str]| names.iter().map(|n| count(&losses[*n])).sum::<u64>();
        assert_eq!(
            at_near,
            count(&forwarded["received"]) + lost(&["rx_dropped", "rx_ring_full", "ring_drops"]),
            "{sent}\n{forwarded}"
        );
        let left = count(&forwarded["received"]) - lost(&["refused", "no_room", "tx_invalid"]);
        let at_end = &received["losses"];
        let lost_there = ["rx_dropped", "rx_ring_full", "ring_drops"]
            .iter()
            .map(|n| count(&at_end[*n]))
            .sum::<u64>();
        assert_eq!(
            left,
            count(&received["received"]) + lost_there,
            "{forwarded}\n{received}"
        );
        assert!(count(&received["received"]) > 0);
    }
}

#[test]
fn what_cannot_be_is_told() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    bed.near
        .ip(&["link", "add", "br0", "type", "bridge"])
        .expect("a bridge");
    let send = ["send", "-i", "near", "--count", "1"];
    for (args, status, words) in [
        (
            &["--mode", "zero-copy"][..],
            1,
            "cannot do zero-copy: a veth has no hardware",
        ),
        (
            &["--queue", "7"],
            2,
            "near has no queue 7: it has 4 (0 to 3)",
        ),
        (&["--sockets", "5"], 2, "near has no queue 4"),
        (&["--tx-ring", "1000"], 2, "512 or 1024"),
        (
            &["--completion-ring", "3"],
            2,
            "3 entries for the completion ring",
        ),
        (&["--frame-size", "1024"], 2, "2048 to 4096"),
        (&["--frame-size", "3000"], 2, "unaligned ones need not"),
        (&["--frames", "2G"], 2, "invalid value"),
        (&["--frames", "2000000000"], 1, "more than can be had"),
        (
            &["--huge-pages", "--frames", "400000000"],
            1,
            "sysctl vm.nr_hugepages",
        ),
        (&["--size", "59"], 2, "near takes 60 to 1514"),
        (&["--size", "4000"], 2, "mtu 3986"),
        (
            &["--packet", "--sockets", "2"],
            2,
            "packet sockets have no such thing",
        ),
        (
            &["--sockets", "2", "--cpu", "0,0"],
            2,
            "two spinning threads on CPU 0",
        ),
        (&["--cpu", "900"], 1, "run on CPU 900"),
        (&["--batch", "0"], 2, "at least 1"),
        (&["--interval", "soon"], 2, "invalid duration `soon`"),
    ] {
        let out = run(&bed.near, &[&send, args].concat());
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {text}");
        assert!(text.contains(words), "{args:?}: {text}");
    }
    for (args, status, words) in [
        (&["send", "-i", "nera"][..], 2, "did you mean near"),
        (&["send", "-i", "br0"], 2, "--i-own-this-network"),
        (
            &["receive", "-i", "near", "--match", "some"],
            2,
            "write weir, all",
        ),
        (
            &["forward", "-i", "near", "--to", "near"],
            2,
            "that is the interface itself",
        ),
        (&["ping", "-i", "near", "--sockets", "2"], 2, "one socket"),
    ] {
        let out = run(&bed.near, args);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {text}");
        assert!(text.contains(words), "{args:?}: {text}");
    }
    assert!(!program_on(&bed.near, "near"));
}

#[test]
fn a_busy_queue_and_a_taken_interface_are_told() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    let mut holder = Running::start(&bed.far, &["receive", "-i", "far", "--json"]);
    let out = run(
        &bed.far,
        &["send", "-i", "far", "--count", "1", "--bind-wait", "50ms"],
    );
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("queue 0 of far is busy"), "{text}");
    let out = run(&bed.far, &["receive", "-i", "far", "--queue", "1"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("already carries an XDP program"), "{text}");
    holder.end();
    let out = run(&bed.far, &["receive", "-i", "far", "--set-queues", "2"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("more transmit queues"), "{text}");
    // The queue is free soon after, which the usual patience covers.
    json(&run(
        &bed.far,
        &["send", "-i", "far", "--count", "1", "--json"],
    ));
}

#[test]
fn a_missing_peer_is_told() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    // Nobody forwards there.
    let out = run(
        &bed.near,
        &[
            "ping",
            "-i",
            "near",
            "--count",
            "3",
            "--interval",
            "1ms",
            "--timeout",
            "50ms",
            "--json",
        ],
    );
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("nothing came back to near"), "{text}");
    let report: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!((count(&report["sent"]), count(&report["received"])), (3, 0));
    // And an interface to forward to that is not there.
    let out = run(&bed.far, &["forward", "-i", "far", "--to", "farther"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(text.contains("no such interface: farther"), "{text}");
    assert!(!program_on(&bed.near, "near"));
}

#[test]
fn without_permission_it_says_so() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    let out = bed
        .near
        .command("setpriv")
        .expect("namespace")
        .args(["--inh-caps=-all", "--bounding-set=-all", common::WEIR])
        .args(["xsk", "send", "-i", "near", "--count", "1"])
        .output()
        .expect("setpriv runs");
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(
        text.contains("no permission to open an AF_XDP socket"),
        "{text}"
    );
}

#[test]
fn memory_beyond_the_limit_is_told() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    let out = bed
        .near
        .command("prlimit")
        .expect("namespace")
        .args(["--memlock=65536:65536", "setpriv", "--inh-caps=-ipc_lock"])
        .args(["--bounding-set=-ipc_lock", common::WEIR])
        .args(["xsk", "send", "-i", "near", "--count", "1"])
        .output()
        .expect("prlimit runs");
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("16777216 bytes of frames are more"), "{text}");
    assert!(text.contains("may lock 65536 bytes"), "{text}");
}

#[test]
fn a_link_that_goes_down_ends_it_and_queues_are_put_back() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    let queues = |bed: &Bed| {
        bed.far
            .run(|| iface::queues("far"))
            .expect("namespace")
            .expect("told")
    };
    // A veth takes a program only if its far end has no more transmit queues than it has receive queues.
    bed.near
        .output("ethtool", &["-L", "near", "rx", "2", "tx", "2"])
        .expect("ethtool");
    let before = queues(&bed);
    assert_eq!(before.usable(), 4);
    for (what, words) in [
        (["link", "set", "far", "down"], "far is down"),
        (["link", "set", "near", "down"], "far has no carrier"),
    ] {
        let mut receiver = Running::start(
            &bed.far,
            &[
                "receive",
                "-i",
                "far",
                "--set-queues",
                "3",
                "--wait",
                "poll",
            ],
        );
        assert_eq!(queues(&bed).usable(), 3);
        let ns = if what[2] == "far" {
            &bed.far
        } else {
            &bed.near
        };
        ns.ip(&what).expect("down");
        let out = receiver.wait();
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{text}");
        assert!(text.contains(words), "{text}");
        assert_eq!(queues(&bed), before, "queues are put back");
        assert!(!program_on(&bed.far, "far"));
        ns.ip(&["link", "set", what[2], "up"]).expect("up");
    }
    // A sender notices by itself, too, and one that begins without carrier says so.
    bed.far.ip(&["link", "set", "far", "down"]).expect("down");
    // The kernel tells a moment later.
    let watch = bed.near.run(|| iface::LinkWatch::new("near"));
    let watch = watch.expect("namespace").expect("there");
    while watch.state().expect("told").is_some_and(|s| s.carrier) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let out = run(&bed.near, &["send", "-i", "near", "--count", "1"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("near has no carrier"), "{text}");
    bed.far.ip(&["link", "set", "far", "up"]).expect("up");
    let args = ["send", "-i", "near", "--duration", "20s", "--rate", "1k/s"];
    let mut sender = Running::begin(&bed.near, &args);
    std::thread::sleep(Duration::from_millis(500));
    bed.near.ip(&["link", "delete", "near"]).expect("deleted");
    let out = sender.wait();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("near is gone"), "{text}");
}

/// Rates beside packet sockets doing the same; told, not judged.
#[test]
fn rates_beside_packet_sockets() {
    let Some(bed) = Bed::new("AF_XDP sockets") else {
        return;
    };
    // Without a program the far end takes the generator's frames only so.
    bed.far
        .output("ethtool", &["-K", "far", "gro", "on"])
        .expect("ethtool");
    let (rounds, time) = if long() { (5, "2s") } else { (1, "500ms") };
    for round in 0..rounds {
        for kind in [&[][..], &["--packet"]] {
            for job in ["receive", "forward"] {
                let args = [
                    &[job, "-i", "far", "--match", "all", "--cpu", "1", "--json"],
                    kind,
                ]
                .concat();
                let mut there = Running::start(&bed.far, &args);
                // The kernel makes the frames: the same for both, and faster than either.
                let out = bed
                    .near
                    .command(common::WEIR)
                    .expect("namespace")
                    // Its frames come by the queue of its CPU.
                    .args(["generate", "-i", "near", "--duration", time, "--json"])
                    .args(["--cpu", "0"])
                    .output()
                    .expect("weir runs");
                let sent = json(&out);
                let report = json(&there.end());
                let received = count(&report["received"]) + report["others"].as_u64().unwrap_or(0);
                assert!(received > 0, "{sent}\n{report}");
                say(&format!(
                    "round {round}, {job} {}: {:.0} a second of {:.0} offered{}",
                    if kind.is_empty() {
                        "af_xdp"
                    } else {
                        "af_packet"
                    },
                    report["rate"].as_f64().unwrap_or(0.0),
                    sent["rate"].as_f64().unwrap_or(0.0),
                    match report["forwarded"].as_u64() {
                        Some(forwarded) => format!(
                            "; {forwarded} of {received} sent back, {} of them refused",
                            report["losses"]["refused"]
                        ),
                        None => String::new(),
                    }
                ));
            }
        }
    }
}
