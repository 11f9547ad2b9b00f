//! `weir sensor` while it runs: files that grow, logs that are moved away, rules that are loaded anew beside the traffic, directories that hold other things than captures.

#![allow(
    clippy::print_stderr,
    reason = "what was measured is said where the test runs"
)]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weir_packet::build::Frame;
use weir_packet::pcap::Writer;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("weir-sensor-run-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), bytes).expect("written");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A capture of datagrams, and where each of them ends in it.
fn capture(packets: u64) -> (Vec<u8>, Vec<usize>) {
    let header = Writer::new(Vec::new())
        .and_then(Writer::finish)
        .expect("memory");
    let (mut bytes, mut ends) = (header.clone(), vec![header.len()]);
    for n in 0..packets {
        let frame = Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(4_000, 4_001)
            .payload(format!("packet {n} with the needle").as_bytes())
            .build();
        let mut one = Writer::new(Vec::new()).expect("memory");
        one.write(
            1_704_067_200_000_000_000 + n * 1_000_000,
            &frame,
            frame.len() as u32,
        )
        .expect("memory");
        bytes.extend_from_slice(&one.finish().expect("memory")[header.len()..]);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn rule(sid: u32) -> String {
    format!("alert udp any any -> any any (msg:\"needle\"; content:\"needle\"; sid:{sid};)\n")
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .expect("there");
    file.write_all(bytes).expect("written");
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Waits until something holds; a machine may be slow, so for long.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(
            since.elapsed() < Duration::from_secs(120),
            "{what}: not within two minutes"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A sensor that goes with the value, also after a panic.
struct Running(Child);

impl Running {
    fn start(args: &[&str]) -> Running {
        Running(
            Command::new(env!("CARGO_BIN_EXE_weir"))
                .arg("sensor")
                .args(args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it runs"),
        )
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal)
            .expect("it is there");
    }

    /// Waits for its end; status and standard output.
    fn end(mut self) -> (i32, String) {
        let mut out = String::new();
        let mut stdout = self.0.stdout.take().expect("piped");
        stdout.read_to_string(&mut out).expect("text");
        (
            self.0.wait().expect("it ends").code().expect("a status"),
            out,
        )
    }

    /// Bytes that are resident.
    fn resident(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        let line = text
            .lines()
            .find(|l| l.starts_with("VmRSS:"))
            .expect("a line");
        let number = line.split_whitespace().nth(1).expect("a number");
        number.parse::<u64>().expect("a number") << 10
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_file_that_grows_and_another_that_comes() {
    let f = Folder::new("follow");
    let (rules, log) = (f.file("r.rules", rule(1)), f.path("log"));
    let captures = f.path("captures");
    fs::create_dir_all(&log).expect("a folder");
    fs::create_dir_all(&captures).expect("a folder");
    let (bytes, ends) = capture(30);
    let first = captures.join("a.pcap");
    append(&first, &bytes[..ends[3]]);
    let sensor = Running::start(&[
        "-r",
        text(&captures),
        "--follow",
        "--idle",
        "3",
        "-S",
        text(&rules),
        "-l",
        text(&log),
        "-k",
        "none",
        "--json",
    ]);
    let fast = log.join("fast.log");
    until("the first packets", || lines(&fast) == 3);
    // Pieces that end inside of a record's header, inside of a packet, and at its end.
    for end in [ends[3] + 5, ends[4] + 20, ends[10], ends[20] - 1] {
        let from = fs::metadata(&first).expect("there").len() as usize;
        append(&first, &bytes[from..end]);
        let whole = ends.iter().filter(|e| **e <= end).count() - 1;
        until("what is whole", || lines(&fast) == whole);
    }
    append(&first, &bytes[ends[20] - 1..]);
    until("the rest", || lines(&fast) == 30);
    fs::write(captures.join("b.pcap"), &bytes).expect("written");
    until("the next file", || lines(&fast) == 60);
    // Nothing comes any more: it ends by itself.
    let (status, out) = sensor.end();
    assert_eq!(status, 0, "{out}");
    let summary: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (summary["frames"].as_u64(), summary["alerts"].as_u64()),
        (Some(60), Some(60))
    );
}

#[test]
fn logs_that_are_moved_away_are_begun_anew() {
    let f = Folder::new("hup");
    let rules = f.file("r.rules", rule(1));
    let (bytes, ends) = capture(20);
    let growing = f.file("x.pcap", &bytes[..ends[8]]);
    let sensor = Running::start(&[
        "-r",
        text(&growing),
        "--follow",
        "-S",
        text(&rules),
        "-l",
        text(&f.0),
        "-k",
        "none",
        "--workers",
        "2",
    ]);
    let (fast, eve) = (f.path("fast.log"), f.path("eve.json"));
    until("the first packets", || lines(&fast) == 8);
    for log in [&fast, &eve] {
        fs::rename(log, log.with_extension("1")).expect("moved");
    }
    sensor.signal(Signal::HUP);
    until("new logs", || fast.exists() && eve.exists());
    append(&growing, &bytes[ends[8]..]);
    until("the other packets", || lines(&fast) == 12);
    sensor.signal(Signal::INT);
    let (status, out) = sensor.end();
    assert_eq!(status, 0, "{out}");
    // Every alert is in one of the two, none in both.
    let alerts = |path: &Path| -> Vec<u64> {
        let text = fs::read_to_string(path).expect("there");
        text.lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).expect("JSON"))
            .filter(|r| r["event_type"] == "alert")
            .map(|r| r["pcap_cnt"].as_u64().expect("a number"))
            .collect()
    };
    assert_eq!(
        alerts(&eve.with_extension("1")),
        (1..=8).collect::<Vec<_>>()
    );
    assert_eq!(alerts(&eve), (9..=20).collect::<Vec<_>>());
    assert_eq!(lines(&fast.with_extension("1")), 8);
}

/// Traffic goes on while rules are loaded anew, again and again: each packet has one alert, of the old rules or of the new ones, and old rules do not stay in memory.
#[test]
fn rules_loaded_anew_leave_no_gap_and_no_second_copy() {
    const OTHERS: u32 = 4_000;
    const LOADS: u32 = 6;
    let f = Folder::new("usr2");
    // Rules that cost memory and never match.
    let write_rules = |sid: u32| {
        let mut text = rule(sid);
        for n in 0..OTHERS {
            text.push_str(&format!("alert http any any -> any any (msg:\"other {n}\"; http.uri; content:\"/path-{n}/{}\"; pcre:\"/x{n}[a-f]+y/U\"; sid:{};)\n", n * 7919, 1_000 + n));
        }
        // Replaced at once: nobody reads half a file.
        fs::rename(f.file("new", text), f.path("r.rules")).expect("moved");
    };
    write_rules(1);
    let (bytes, ends) = capture(4_000);
    let growing = f.file("x.pcap", &bytes[..ends[10]]);
    let mut sensor = Running::start(&[
        "-r",
        text(&growing),
        "--follow",
        "-S",
        text(&f.path("r.rules")),
        "-l",
        text(&f.0),
        "-k",
        "none",
        "--workers",
        "2",
        "--json",
    ]);
    let mut said = BufReader::new(sensor.0.stderr.take().expect("piped")).lines();
    let fast = f.path("fast.log");
    until("the first packets", || lines(&fast) >= 10);
    let before = sensor.resident();
    let (stop, at) = (
        std::sync::atomic::AtomicBool::new(false),
        std::sync::atomic::AtomicUsize::new(10),
    );
    use std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        // Traffic: a packet now and then, until the rules were loaded often enough.
        scope.spawn(|| {
            while !stop.load(Relaxed) && at.load(Relaxed) + 1 < ends.len() {
                let n = at.fetch_add(1, Relaxed);
                append(&growing, &bytes[ends[n]..ends[n + 1]]);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        for load in 1..=LOADS {
            write_rules(load + 1);
            sensor.signal(Signal::USR2);
            let line = said.next().expect("it says something").expect("text");
            assert!(
                line.contains(&format!("{} rules reloaded", OTHERS + 1)),
                "{line}"
            );
            // The new ones hold from the next packets on.
            let mark = format!("[1:{}:0]", load + 1);
            let marked = || fs::read_to_string(&fast).expect("there").contains(&mark);
            let since = Instant::now();
            while !marked() && at.load(Relaxed) + 1 < ends.len() {
                assert!(
                    since.elapsed() < Duration::from_secs(60),
                    "the rules of load {load} do not hold"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        stop.store(true, Relaxed);
    });
    let packets = at.load(Relaxed);
    until("all packets", || lines(&fast) == packets);
    let right_after = sensor.resident();
    // Six copies more would be several times as much. Old rules are freed beside the traffic, and the allocator gives their memory back a little later.
    let most = 2 * before + (32 << 20);
    until("memory given back", || sensor.resident() < most);
    let after = sensor.resident();
    sensor.signal(Signal::INT);
    let (status, out) = sensor.end();
    assert_eq!(status, 0, "{out}");
    let summary: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(summary["frames"].as_u64(), Some(packets as u64));
    assert_eq!(
        summary["alerts"].as_u64(),
        Some(packets as u64),
        "one alert for each packet"
    );
    // In order: rules once replaced do not come back.
    let sids: Vec<u32> = fs::read_to_string(&fast)
        .expect("there")
        .lines()
        .map(|l| {
            l.split("[1:")
                .nth(1)
                .and_then(|r| r.split(':').next())
                .expect("a sid")
                .parse()
                .expect("a number")
        })
        .collect();
    assert!(sids.is_sorted(), "old rules after new ones");
    assert_eq!(sids.last(), Some(&(LOADS + 1)));
    eprintln!(
        "{packets} packets, {LOADS} loads of {OTHERS} rules: {} MB resident before, {} MB right after, {} MB later",
        before >> 20,
        right_after >> 20,
        after >> 20
    );
}

#[test]
fn what_is_no_capture_in_a_directory_is_left_out() {
    let f = Folder::new("other");
    let (rules, log) = (f.path("r.rules"), f.path("log"));
    fs::write(&rules, rule(1)).expect("written");
    fs::create_dir_all(&log).expect("a folder");
    let captures = f.path("captures");
    fs::create_dir_all(&captures).expect("a folder");
    let (bytes, _) = capture(4);
    fs::write(captures.join("notes.txt"), "taken on Monday\n").expect("written");
    fs::write(captures.join("empty"), "").expect("written");
    let run = |paths: &[&Path]| {
        let mut args = vec!["sensor"];
        for path in paths {
            args.extend(["-r", text(path)]);
        }
        let out = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .args(["-S", text(&rules), "-l", text(&log), "-k", "none", "--json"])
            .output()
            .expect("it runs");
        let summary: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        (
            out.status.code(),
            summary,
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    // Nothing but other things: an error with --strict only.
    let (status, _, err) = run(&[&captures]);
    assert_eq!(status, Some(0), "{err}");
    assert!(err.contains("no capture to read"), "{err}");
    fs::write(captures.join("x.pcap"), &bytes).expect("written");
    let (status, summary, err) = run(&[&captures]);
    assert_eq!(status, Some(0), "{err}");
    assert_eq!(summary["alerts"], 4);
    assert!(
        err.contains("notes.txt: no capture, left out") && err.contains("empty: no capture"),
        "{err}"
    );
    assert_eq!(summary["skipped"].as_array().map(Vec::len), Some(2));
    // Named, it is an error. A capture that is cut off is read as far as it goes, and counted.
    assert_eq!(run(&[&captures.join("notes.txt"), &captures]).0, Some(1));
    fs::write(captures.join("cut.pcap"), &bytes[..bytes.len() - 3]).expect("written");
    let (status, summary, err) = run(&[&captures]);
    assert_eq!(status, Some(0), "{err}");
    assert!(err.contains("cut.pcap: the capture is cut off"), "{err}");
    assert_eq!(summary["alerts"], 7);
}

/// The most bytes that were ever resident, of a sensor that has read a capture of floods and waits for more.
fn most_resident(f: &Folder, frames: &[Vec<u8>]) -> u64 {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    for (n, frame) in frames.iter().enumerate() {
        writer
            .write(
                1_704_067_200_000_000_000 + n as u64 * 1_000,
                frame,
                frame.len() as u32,
            )
            .expect("memory");
    }
    let path = f.file("flood.pcap", writer.finish().expect("memory"));
    let (rules, fast) = (f.file("r.rules", rule(1)), f.path("fast.log"));
    let _ = fs::remove_file(&fast);
    let sensor = Running::start(&[
        "-r",
        text(&path),
        "--follow",
        "-S",
        text(&rules),
        "-l",
        text(&f.0),
        "-k",
        "none",
        "--workers",
        "2",
        "--set",
        "flow.memcap=8mb",
        "--set",
        "stream.reassembly.memcap=8mb",
        "--set",
        "defrag.memcap=4mb",
        "--set",
        "app-layer.memcap=8mb",
        "--set",
        "outputs.0.fast.enabled=yes",
    ]);
    // The last frame has the needle.
    until("the end of the flood", || lines(&fast) == 1);
    let status = fs::read_to_string(format!("/proc/{}/status", sensor.0.id())).expect("it runs");
    let line = status
        .lines()
        .find(|l| l.starts_with("VmHWM:"))
        .expect("a line");
    let most = line
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse::<u64>()
        .expect("a number")
        << 10;
    sensor.signal(Signal::INT);
    let (status, out) = sensor.end();
    assert_eq!(status, 0, "{out}");
    most
}

/// Floods of flows, fragments, segments out of order and headers at once, several times the caps: what the system says of memory stays near the caps.
#[test]
fn memory_stays_near_the_caps() {
    let f = Folder::new("memory");
    let last = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(4_000, 4_001)
        .payload(b"the needle")
        .build();
    let quiet = most_resident(&f, std::slice::from_ref(&last));
    let mut frames = Vec::new();
    let server = [10, 0, 0, 80];
    for n in 0..60_000_u32 {
        let client = [172, (n >> 16) as u8, (n >> 8) as u8, n as u8];
        frames.push(
            Frame::new()
                .ip4(client, server)
                .udp(1_000, 9)
                .payload(b"x")
                .build(),
        );
        if n % 4 == 0 {
            frames.push(
                Frame::new()
                    .ip4(client, server)
                    .protocol(17)
                    .id(n as u16)
                    .fragment(0, true)
                    .payload(&[b'f'; 800])
                    .build(),
            );
        }
        if n % 3 == 0 {
            let tcp = Frame::new().ip4(client, server).tcp(2_000, 80);
            frames.push(tcp.clone().flags(Frame::SYN).numbers(1, 0).build());
            frames.push(
                Frame::new()
                    .ip4(server, client)
                    .tcp(80, 2_000)
                    .flags(Frame::SYN | Frame::ACK)
                    .numbers(7, 2)
                    .build(),
            );
            let text = format!("GET / HTTP/1.1\r\nX: {}", "h".repeat(1_300));
            frames.push(tcp.clone().numbers(2, 8).payload(text.as_bytes()).build());
            frames.push(
                Frame::new()
                    .ip4(server, client)
                    .tcp(80, 2_000)
                    .numbers(8, 2 + text.len() as u32)
                    .build(),
            );
            // Behind a hole.
            frames.push(tcp.numbers(5_000, 8).payload(&[b'h'; 1_300]).build());
        }
    }
    frames.push(last);
    let size: usize = frames.iter().map(Vec::len).sum();
    let flooded = most_resident(&f, &frames);
    eprintln!(
        "{} frames, {} MB: {} MB resident at most, {} MB without the flood",
        frames.len(),
        size >> 20,
        flooded >> 20,
        quiet >> 20
    );
    // The caps are 28 MB in all; batches under way, reports and what allocators keep come on top. Without caps it would be more than all the bytes of the flood.
    assert!(
        flooded < quiet + (28 << 20) * 2 + (40 << 20),
        "{flooded} bytes"
    );
}
