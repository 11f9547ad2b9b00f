//! `weir trace`, `drops`, `capture` and `top` as processes on a running edge: what they tell of packets, and that the edge is as before behind them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::live_bed::{file, root, stderr, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_packet::pcap::Capture;

const PATIENCE: Duration = Duration::from_secs(20);

/// An edge of three functions: one counts, one sets the TTL of UDP to port 7 to 9, one drops UDP to port 23.
struct Bed {
    left: NetNs,
    right: NetNs,
    edge: String,
    config: PathBuf,
}

impl Bed {
    fn new(name: &str) -> Bed {
        let left = NetNs::create(&format!("weirw-{name}")).expect("namespace");
        let right = NetNs::create(&format!("weirw-{name}")).expect("namespace");
        let end = |ns, name, address| End {
            ns,
            name,
            addresses: address,
        };
        bed::veth(
            end(&left, "left0", &["10.78.0.1/24"]),
            end(&right, "right0", &["10.78.0.2/24"]),
        )
        .expect("veth");
        let edge = format!("w{}-{name}", std::process::id());
        let config = file(
            "edge.toml",
            &format!(
                "edge = \"{edge}\"\n[[port]]\nname = \"wan\"\ndevice = \"right0\"\n\
                 [[function]]\nname = \"count\"\nkind = \"empty\"\n\
                 [[function]]\nname = \"mark\"\nkind = \"middlebox\"\nrules = \"udp-dport 7 mod ip-ttl 9\"\n\
                 [[function]]\nname = \"firewall\"\nkind = \"middlebox\"\nrules = \"no-telnet: udp-dport 23 drop\"\n\
                 [[link]]\nfrom = \"wan\"\nto = \"count\"\n[[link]]\nfrom = \"count\"\nto = \"mark\"\n\
                 [[link]]\nfrom = \"mark\"\nto = \"firewall\"\n"
            ),
        );
        let bed = Bed {
            left,
            right,
            edge,
            config,
        };
        let output = bed.weir(&["apply", bed.config()]);
        assert!(output.status.success(), "{}", stderr(&output));
        bed
    }

    fn config(&self) -> &str {
        self.config.to_str().expect("UTF-8")
    }

    fn weir(&self, args: &[&str]) -> Output {
        weir(&self.right, args)
    }

    fn status(&self) -> Value {
        let output = self.weir(&["status", "--edge", &self.edge, "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        value["edges"][0].clone()
    }

    /// One datagram to each port.
    fn send(&self, ports: &[u16]) {
        self.left
            .run(|| {
                let sender = UdpSocket::bind("10.78.0.1:0").expect("bind");
                for port in ports {
                    sender.send_to(b"weir", ("10.78.0.2", *port)).expect("send");
                }
            })
            .expect("namespace");
    }

    /// Starts a watcher and waits until it watches.
    fn watch(&self, args: &[&str]) -> Child {
        let mut command = self
            .right
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        let child = command
            .args(args)
            .args(["--edge", &self.edge])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let began = Instant::now();
        while self.status()["watched"]["process"] != child.id() {
            assert!(began.elapsed() < PATIENCE, "{args:?} does not watch");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// What a watcher said that ends by itself; behind it the edge runs what it ran before.
    fn outcome(&self, child: Child) -> Output {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(self.status()["watched"], Value::Null);
        output
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.weir(&["down", "--edge", &self.edge]);
    }
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn trace_tells_why_a_packet_ended_in_the_third_function() {
    if !root("trace_tells_why_a_packet_ended_in_the_third_function") {
        return;
    }
    let bed = Bed::new("trace");
    let child = bed.watch(&[
        "trace",
        "--filter",
        "udp-dport in { 7, 23 }",
        "--count",
        "2",
        "--json",
    ]);
    bed.send(&[99, 23, 53, 7, 23]);
    let output = bed.outcome(child);
    let packets = lines(&output);
    assert_eq!(packets.len(), 2);
    let dropped = &packets[0];
    assert_eq!(
        dropped["path"],
        "wan > count: pass > mark: pass > firewall: drop rule_drop"
    );
    assert_eq!(dropped["whole"], true);
    let stages: Vec<&str> = dropped["stages"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|stage| stage["stage"].as_str().expect("a name"))
        .collect();
    assert_eq!(stages, ["wan", "count", "mark", "firewall"]);
    let why = dropped["why"].to_string();
    assert!(why.contains("a matching rule says drop"), "{why}");
    assert!(why.contains("no-telnet"), "{why}");
    let passed = &packets[1];
    assert_eq!(
        passed["path"],
        "wan > count: pass > mark: pass > firewall: pass > stack"
    );
    assert!(passed["stages"][2]["changed"].is_string(), "{passed}");
    assert_eq!(passed["why"].as_array().map(Vec::len), Some(0));
    // Nothing of its ledgers began anew.
    let status = bed.status();
    assert!(status["ports"][0]["ledger"]["received"].as_u64() >= Some(5));
    for function in status["functions"].as_array().expect("a list") {
        assert!(
            function["ledger"]["received"].as_u64() >= Some(5),
            "{function}"
        );
    }
}

#[test]
fn only_drops_are_told_of_where_that_is_asked_for() {
    if !root("only_drops_are_told_of_where_that_is_asked_for") {
        return;
    }
    let bed = Bed::new("drops");
    for more in [&[][..], &["--filter", "udp"][..]] {
        let args = [&["trace", "--drops", "--count", "2", "--json"], more].concat();
        // `udp` is no field: a filter that is right and matches all of it.
        let args: Vec<&str> = args
            .iter()
            .map(|arg| {
                if *arg == "udp" {
                    "udp-dport 1-65535"
                } else {
                    *arg
                }
            })
            .collect();
        let child = bed.watch(&args);
        bed.send(&[99, 23, 7, 53, 23]);
        let packets = lines(&bed.outcome(child));
        assert_eq!(packets.len(), 2);
        for packet in packets {
            assert_eq!(
                packet["path"],
                "wan > count: pass > mark: pass > firewall: drop rule_drop"
            );
        }
    }
}

#[test]
fn causes_of_drops_are_told_once_each() {
    if !root("causes_of_drops_are_told_once_each") {
        return;
    }
    let bed = Bed::new("causes");
    let watch = |more: &[&str]| {
        let child = bed.watch(&[&["drops", "--count", "5"], more].concat());
        bed.send(&[23, 9, 23, 7, 23, 23]);
        // A frame that is cut in its IP header: another reason, at no rule.
        let mut frame = [0u8; 20];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        let socket = bed.left.run(|| weir_kernel::PacketSocket::open("left0"));
        let socket = socket.expect("namespace").expect("root");
        socket.send(&frame).expect("sent");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    let output = watch(&["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["packets"], &report["lost"]),
        (&5.into(), &0.into())
    );
    let drops = report["drops"].as_array().expect("causes");
    assert_eq!(drops.len(), 2, "{report}");
    assert_eq!(
        (&drops[0]["packets"], &drops[0]["stage"]),
        (&4.into(), &"firewall".into())
    );
    assert_eq!(drops[0]["reason"], "rule_drop");
    let why = drops[0]["why"].to_string();
    assert!(why.contains("no-telnet"), "{why}");
    let example = drops[0]["example"].as_str().expect("text");
    assert!(
        example.starts_with("wan: ") && example.contains("10.78.0.2.23"),
        "{example}"
    );
    assert_eq!(drops[1]["packets"], 1, "{report}");
    assert_ne!(drops[1]["reason"], "rule_drop", "{report}");
    let text = String::from_utf8_lossy(&watch(&[]).stdout).into_owned();
    for wanted in [
        "5 drops in ",
        "           4  firewall: rule_drop: ",
        "Rule 1 (no-telnet)",
        "first: wan: ",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(
        bed.status()["watched"].is_null(),
        "the edge runs its own programs"
    );
}

#[test]
fn a_capture_has_packets_as_they_are_at_a_stage() {
    if !root("a_capture_has_packets_as_they_are_at_a_stage") {
        return;
    }
    let bed = Bed::new("capture");
    let out = file("out.pcapng", "");
    let path = out.to_str().expect("UTF-8");
    for (stage, ttl, comment) in [
        ("entry", 64, "wan"),
        ("count", 64, "wan > count: pass"),
        ("mark", 9, "wan > count: pass > mark: pass"),
        (
            "end",
            9,
            "wan > count: pass > mark: pass > firewall: pass > stack",
        ),
    ] {
        let child = bed.watch(&[
            "capture",
            "--at",
            stage,
            "--filter",
            "udp-dport 7",
            "--count",
            "3",
            "--out",
            path,
        ]);
        bed.send(&[99, 7, 23, 7, 53, 7, 7]);
        bed.outcome(child);
        let bytes = fs::read(&out).expect("written");
        let mut capture = Capture::open(&bytes[..]).expect("a capture");
        let mut packets = 0;
        while let Some(packet) = capture.next_packet().expect("whole") {
            packets += 1;
            assert_eq!(packet.data[22], ttl, "at {stage}");
            assert_eq!(packet.data[36..38], [0, 7]);
            assert_eq!(packet.data.len() as u32, packet.original_len);
            let name = match stage {
                "entry" => "wan",
                "end" => "firewall",
                name => name,
            };
            assert_eq!(packet.interface.name.as_deref(), Some(name));
        }
        assert_eq!(packets, 3, "at {stage}");
        let mut option = vec![1, 0, comment.len() as u8, 0];
        option.extend_from_slice(comment.as_bytes());
        assert!(
            bytes.windows(option.len()).any(|w| w == option),
            "{comment}"
        );
    }
}

#[test]
fn whatever_ends_a_watcher_the_edge_can_go_back() {
    if !root("whatever_ends_a_watcher_the_edge_can_go_back") {
        return;
    }
    let bed = Bed::new("ends");
    let mut child = bed.watch(&["trace"]);
    // A second one is refused.
    let second = bed.weir(&["trace", "--edge", &bed.edge]);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        stderr(&second).contains(&format!("process {}", child.id())),
        "{}",
        stderr(&second)
    );
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).expect("it runs");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(bed.status()["watched"], Value::Null);

    let mut child = bed.watch(&["trace"]);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(bed.status()["watched"].is_object());
    let began = Instant::now();
    while !bed.status()["watched"]["process"].is_null() {
        assert!(began.elapsed() < PATIENCE, "its wish runs out");
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = bed.weir(&["status", "--edge", &bed.edge]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("weir trace --off"), "{text}");
    let off = bed.weir(&["trace", "--off", "--edge", &bed.edge]);
    assert!(off.status.success(), "{}", stderr(&off));
    assert_eq!(bed.status()["watched"], Value::Null);

    // An apply ends a watcher, which says so.
    let child = bed.watch(&["trace"]);
    let apply = bed.weir(&["apply", bed.config()]);
    assert!(apply.status.success(), "{}", stderr(&apply));
    let output = bed.outcome(child);
    assert!(
        stderr(&output).contains("another configuration was applied"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn wrong_wishes_are_refused_and_change_nothing() {
    if !root("wrong_wishes_are_refused_and_change_nothing") {
        return;
    }
    let bed = Bed::new("wrong");
    let generation = bed.status()["generation"].clone();
    for (args, words) in [
        (&["trace", "--filter", "udp-dprt 7"][..], "udp-dprt"),
        (&["trace", "--filter", "all drop"], "filter"),
        (&["trace", "--filter", "in lan"], "ports: wan"),
        (&["trace", "--port", "lan"], "ports: wan"),
        (
            &["capture", "--at", "nothing", "--out", "/dev/null"],
            "functions: count, mark, firewall",
        ),
    ] {
        let output = bed.weir(&[args, &["--edge", &bed.edge]].concat());
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(words),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    let none = bed.weir(&["top", "--edge", "nobody-has-it"]);
    assert_ne!(none.status.code(), Some(0));
    assert_eq!(bed.status()["generation"], generation);
}

#[test]
fn top_shows_rates_of_ports_and_functions() {
    if !root("top_shows_rates_of_ports_and_functions") {
        return;
    }
    let bed = Bed::new("top");
    let mut command = bed
        .right
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace");
    let child = command
        .args([
            "top",
            bed.config(),
            "--once",
            "--json",
            "--time",
            "--interval",
            "2",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("weir starts");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        bed.send(&[23, 99]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let tables = lines(&output);
    let [table] = &tables[..] else {
        panic!("{tables:?}");
    };
    let port = &table["ports"][0];
    assert_eq!(port["name"], "wan");
    assert!(port["packets"].as_f64() > Some(1.0), "{port}");
    assert!(port["ns"].as_f64() > Some(0.0), "{port}");
    let firewall = &table["functions"][2];
    assert_eq!(firewall["name"], "firewall");
    for (part, name) in [("verdicts", "drop"), ("reasons", "rule_drop")] {
        assert!(firewall[part][name].as_f64() > Some(0.5), "{firewall}");
    }
}

/// What a terminal of 80x24 shows of what it is sent.
struct Shown {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// All that it was sent.
    all: String,
}

impl Default for Shown {
    fn default() -> Shown {
        Shown {
            cells: vec![vec![' '; 80]; 24],
            at: (0, 0),
            all: String::new(),
        }
    }
}

impl Shown {
    /// Cursor addresses and characters; other sequences draw nothing. A sequence that is cut in two is put together by reading all again.
    fn take(&mut self, bytes: &[u8]) {
        let all = std::mem::take(&mut self.all) + &String::from_utf8_lossy(bytes);
        *self = Shown::default();
        let mut rest = all.chars();
        while let Some(c) = rest.next() {
            if c == '\x1b' {
                let mut sequence = String::new();
                for c in rest.by_ref().skip(1) {
                    sequence.push(c);
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
                let place = sequence
                    .strip_suffix('H')
                    .and_then(|one| one.split_once(';'));
                if let Some((y, x)) = place {
                    let number = |text: &str| text.parse::<usize>().map_or(0, |one| one - 1);
                    self.at = (number(y), number(x));
                }
            } else if !c.is_control() {
                let (y, x) = self.at;
                if let Some(cell) = self.cells.get_mut(y).and_then(|line| line.get_mut(x)) {
                    *cell = c;
                }
                self.at.1 += 1;
            }
        }
        self.all = all;
    }

    fn text(&self) -> String {
        let lines = self.cells.iter();
        let lines = lines.map(|line| line.iter().collect::<String>() + "\n");
        lines.collect()
    }
}

/// A screen of 80x24 on a pseudo terminal, which `script` makes.
#[test]
fn top_is_a_screen_on_a_terminal() {
    if !root("top_is_a_screen_on_a_terminal") {
        return;
    }
    let bed = Bed::new("screen");
    let line = format!(
        "stty rows 24 cols 80; {} top --interval 0.2 --edge {}",
        env!("CARGO_BIN_EXE_weir"),
        bed.edge
    );
    let mut command = bed.right.command("script").expect("namespace");
    let mut child = command
        .args(["-qefc", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script starts");
    let (mut keys, mut output) = (
        child.stdin.take().expect("piped"),
        child.stdout.take().expect("piped"),
    );
    let shown = Arc::new(Mutex::new(Shown::default()));
    let reader = {
        let shown = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().expect("whole").take(&bytes[..count]);
            }
        })
    };
    let wait = |text: &str| {
        let began = Instant::now();
        loop {
            let screen = shown.lock().expect("whole").text();
            if screen.contains(text) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no {text}:\n{screen}");
            bed.send(&[23, 7, 99]);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(&format!("edge {}", bed.edge));
    wait("firewall");
    // Drops have a tab, and the watch says which rule it was.
    keys.write_all(b"4").expect("sent");
    wait("rule_drop");
    keys.write_all(b"w").expect("sent");
    wait("no-telnet");
    keys.write_all(b"q").expect("sent");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    reader.join().expect("read");
    // The terminal is as it was.
    let rest = shown.lock().expect("whole").all.clone();
    assert!(rest.contains("\x1b[?25h\x1b[?1049l"), "{rest:?}");
    assert_eq!(bed.status()["watched"], Value::Null);
}
