//! `weir sensor` on interfaces, with default options: senders that leave checksums to the device, links that go and come back, several interfaces at once.
//!
//! Needs root. All traffic stays in namespaces that the tests make.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::live_bed::{listen, root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_packet::build::Frame;
use weir_xsk::{PacketConfig, PacketPort, Port};

pub(crate) const RULES: &str = "alert http any any -> any any (msg:\"request\"; http.uri; content:\"/needle\"; sid:1;)\n\
alert http any any -> any any (msg:\"answer\"; flow:to_client; file.data; content:\"in the middle\"; sid:2;)\n\
alert tcp any any -> any any (msg:\"stream\"; flow:to_server,established; content:\"Host: a\"; sid:3;)\n";

/// A folder that goes with the value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("live-sensor-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("cargo's folder is writable");
        Folder(path)
    }

    pub(crate) fn records(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.0.join("logs/eve.json")).unwrap_or_default();
        // A line that is being written may be cut off anywhere, behind an inner `}` too.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| {
                serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"))
            })
            .filter(|record| record["event_type"] == kind)
            .collect()
    }

    /// Alerts of each of the three rules.
    pub(crate) fn alerts(&self) -> [usize; 3] {
        let alerts = self.records("alert");
        [1, 2, 3].map(|sid| {
            let is = |a: &&Value| a["alert"]["signature_id"] == sid;
            alerts.iter().filter(is).count()
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Captures a port to a file, whole frames; returns when it listens.
pub(crate) fn tcpdump(ns: &NetNs, port: &str, capture: &Path) -> Child {
    let mut command = ns.command("tcpdump").expect("namespace");
    let child = command
        .args([
            "-i",
            port,
            "-s",
            "0",
            "-B",
            "65536",
            "--immediate-mode",
            "-U",
            "-w",
        ])
        .arg(capture)
        .stderr(Stdio::null())
        .spawn()
        .expect("tcpdump starts");
    until("tcpdump listens", || {
        capture.metadata().is_ok_and(|m| m.len() > 0)
    });
    child
}

/// A running sensor; killed when dropped.
pub(crate) struct Sensor(pub(crate) Child);

impl Sensor {
    pub(crate) fn start(ns: &NetNs, folder: &Folder, args: &[&str]) -> Sensor {
        Sensor::with_rules(ns, folder, RULES, args)
    }

    pub(crate) fn with_rules(ns: &NetNs, folder: &Folder, text: &str, args: &[&str]) -> Sensor {
        let rules = folder.0.join("test.rules");
        fs::write(&rules, text).expect("written");
        let _ = fs::remove_file(folder.0.join("logs/eve.json"));
        let mut command = ns.command(env!("CARGO_BIN_EXE_weir")).expect("namespace");
        let child = command
            .args(["sensor", "--json", "-S"])
            .arg(&rules)
            .arg("-l")
            .arg(folder.0.join("logs"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let sensor = Sensor(child);
        // Its log is begun when its sockets are there.
        until("the sensor listens", || {
            folder.0.join("logs/eve.json").exists()
        });
        std::thread::sleep(Duration::from_millis(300));
        sensor
    }

    pub(crate) fn stop(mut self) -> (Value, String) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::INT).expect("it runs");
        let (mut out, mut err) = (String::new(), String::new());
        let mut stdout = self.0.stdout.take().expect("piped");
        stdout.read_to_string(&mut out).expect("text");
        let mut stderr = self.0.stderr.take().expect("piped");
        stderr.read_to_string(&mut err).expect("text");
        let status = self.0.wait().expect("waits");
        assert!(status.success(), "{status}: {err}");
        let summary = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {err}"));
        (summary, err)
    }
}

impl Drop for Sensor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "{what}: not within half a minute"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two hosts with a link between them.
pub(crate) struct Bed {
    pub(crate) client: NetNs,
    pub(crate) server: NetNs,
}

impl Bed {
    pub(crate) fn new(links: u8) -> Bed {
        let bed = Bed {
            client: NetNs::create("wsens-c").expect("namespace"),
            server: NetNs::create("wsens-s").expect("namespace"),
        };
        for link in 0..links {
            bed.link(link);
        }
        bed
    }

    /// One link, and nothing but what tests send.
    fn quiet() -> Bed {
        let bed = Bed {
            client: NetNs::create("wsens-c").expect("namespace"),
            server: NetNs::create("wsens-s").expect("namespace"),
        };
        for ns in [&bed.client, &bed.server] {
            bed::without_ipv6(ns).expect("sysctl");
        }
        bed.link(0);
        bed
    }

    fn link(&self, number: u8) {
        let [client, server] = [2, 1].map(|host| format!("10.77.{number}.{host}/24"));
        let [cl, sv] = ["cl", "sv"].map(|end| format!("{end}{number}"));
        bed::veth(
            End {
                ns: &self.client,
                name: &cl,
                addresses: &[&client],
            },
            End {
                ns: &self.server,
                name: &sv,
                addresses: &[&server],
            },
        )
        .expect("veth");
    }

    /// Conversations of HTTP over a link, with answers that are longer than a packet.
    pub(crate) fn talk(&self, link: u8, count: usize) {
        self.talk_to(&format!("10.77.{link}.1:80"), count);
    }

    /// The same with a server at an address.
    fn talk_to(&self, address: &str, count: usize) {
        let listener = listen(&self.server, address);
        let server = std::thread::spawn(move || {
            for _ in 0..count {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut request = [0; 4096];
                let mut got = 0;
                while !request[..got].ends_with(b"\r\n\r\n") {
                    got += stream.read(&mut request[got..]).expect("a request");
                }
                let body = format!("{}in the middle{}", "x".repeat(30_000), "y".repeat(30_000));
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).expect("sent");
                stream.write_all(body.as_bytes()).expect("sent");
            }
        });
        for n in 0..count {
            let mut stream = self
                .client
                .run(|| TcpStream::connect(address).expect("a server"))
                .expect("namespace");
            let request = format!("GET /needle/{n} HTTP/1.1\r\nHost: a\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("sent");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("an answer");
            assert!(answer.len() > 60_000);
        }
        server.join().expect("it ends");
    }
}

fn lost(summary: &Value, what: &str) -> u64 {
    let list = summary["lost"].as_array().expect("a list");
    let found = list.iter().find(|l| l["what"] == what);
    found.map_or(0, |l| l["count"].as_u64().expect("a number"))
}

#[test]
fn checksums_that_devices_are_left_with() {
    if !root("checksums_that_devices_are_left_with") {
        return;
    }
    const WRONG: &str = "frames with a wrong checksum";
    for off in [false, true] {
        let bed = Bed::new(1);
        if off {
            let features = ["tx", "tso", "gso", "gro"];
            bed.client.offloads_off("cl0", &features).expect("offloads");
            bed.server.offloads_off("sv0", &features).expect("offloads");
        }
        for (side, ns, port) in [
            ("client", &bed.client, "cl0"),
            ("server", &bed.server, "sv0"),
        ] {
            let folder = Folder::new(&format!("sums-{off}-{side}"));
            let capture = folder.0.join("same.pcap");
            let mut dump = tcpdump(ns, port, &capture);
            let sensor = Sensor::start(ns, &folder, &["-i", port]);
            bed.talk(0, 20);
            until("alerts", || folder.alerts() == [20; 3]);
            // What is wrong stays wrong: nobody vouches for it.
            if side == "server" {
                let wrong = Frame::new()
                    .ip4([10, 77, 0, 2], [10, 77, 0, 1])
                    .tcp(9999, 80)
                    .flags(Frame::SYN)
                    .wrong_checksum(1)
                    .build();
                bed.client
                    .run(|| {
                        let config = PacketConfig {
                            blocks: 0,
                            slots: 8,
                            ..PacketConfig::default()
                        };
                        let mut out = PacketPort::open("cl0", &config).expect("a socket");
                        assert!(out.queue_or_lose(&wrong).expect("it fits"));
                        out.flush().expect("sent");
                    })
                    .expect("namespace");
                std::thread::sleep(Duration::from_millis(300));
            }
            let (summary, _) = sensor.stop();
            kill_process(Pid::from_child(&dump), Signal::INT).expect("it runs");
            dump.wait().expect("it ends");
            assert_eq!(folder.alerts(), [20; 3], "offloads off: {off}, {side}");
            let expected = u64::from(side == "server");
            assert_eq!(
                lost(&summary, WRONG),
                expected,
                "offloads off: {off}, {side}: {summary}"
            );
            assert_eq!(summary["ledger"]["bad_checksum"], expected);
            assert_eq!(summary["ledger"]["unaccounted"], 0);
            // The same from the file.
            let of_file = Folder::new(&format!("sums-{off}-{side}-file"));
            let rules = of_file.0.join("r.rules");
            fs::write(&rules, RULES).expect("written");
            let run = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
                .args(["sensor", "-k", "none", "-r"])
                .arg(&capture)
                .arg("-S")
                .arg(&rules)
                .arg("-l")
                .arg(of_file.0.join("logs"))
                .output()
                .expect("weir starts");
            assert!(run.status.success());
            assert_eq!(of_file.alerts(), [20; 3]);
        }
    }
}

/// Datagrams of 1,400 bytes from the client to the server, as fast as they go.
fn flood(bed: &Bed, count: usize) {
    bed.client
        .run(|| {
            let config = PacketConfig {
                blocks: 0,
                slots: 64,
                ..PacketConfig::default()
            };
            let mut out = PacketPort::open("cl0", &config).expect("a socket");
            let frame = Frame::new()
                .ip4([10, 77, 0, 2], [10, 77, 0, 1])
                .udp(1000, 2000)
                .payload(&[7; 1400])
                .build();
            let mut sent = 0;
            while sent < count {
                while sent < count && out.queue_or_lose(&frame).expect("it fits") {
                    sent += 1;
                }
                out.flush().expect("sent");
            }
            while out.flush().expect("sent") > 0 {}
        })
        .expect("namespace");
}

/// Frames that an interface has sent, by its own count.
fn frames_sent(ns: &NetNs, name: &str) -> u64 {
    let text = ns
        .ip(&["-j", "-s", "link", "show", "dev", name])
        .expect("an interface");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let sent = all[0]["stats64"]["tx"]["packets"].as_u64();
    sent.expect("a number")
}

#[test]
fn what_was_sent_is_what_the_sensor_accounts_for() {
    if !root("what_was_sent_is_what_the_sensor_accounts_for") {
        return;
    }
    // More than the ring holds, which is 64 MiB.
    const MANY: usize = 60_000;
    for (workers, stopped) in [("1", false), ("1", true), ("2", true)] {
        let bed = Bed::quiet();
        let folder = Folder::new(&format!("ledger-{workers}-{stopped}"));
        let sensor = Sensor::start(&bed.server, &folder, &["-i", "sv0", "--workers", workers]);
        let pid = Pid::from_child(&sensor.0);
        if stopped {
            kill_process(pid, Signal::STOP).expect("it runs");
        }
        flood(&bed, if stopped { MANY } else { 2000 });
        if stopped {
            kill_process(pid, Signal::CONT).expect("it runs");
        }
        std::thread::sleep(Duration::from_millis(100));
        // Both directions are listened to: the server may answer.
        let sent = [(&bed.client, "cl0"), (&bed.server, "sv0")]
            .map(|(ns, name)| frames_sent(ns, name))
            .iter()
            .sum::<u64>();
        // It ends with the ring full still: what is there is read.
        let (summary, _) = sensor.stop();
        let capture = &summary["capture"];
        let count = |what: &str| capture[what].as_u64().expect("a number");
        let what = format!("{workers}, {stopped}: {sent} sent, {capture}");
        assert_eq!(count("received"), sent, "{what}");
        assert_eq!(capture["unaccounted"], 0, "{what}");
        assert_eq!(summary["ledger"]["unaccounted"], 0, "{what}");
        assert_eq!(
            count("read") + count("ring_full"),
            count("received"),
            "{what}"
        );
        assert_eq!(count("ring_full") > 0, stopped, "{what}");
        assert_eq!(
            summary["counters"]["capture.kernel_packets"],
            count("received")
        );
        eprintln!("workers {what}");
    }
}

#[test]
fn sensors_that_share_an_interface() {
    if !root("sensors_that_share_an_interface") {
        return;
    }
    const HOSTS: u8 = 12;
    let bed = Bed::quiet();
    for host in 0..HOSTS {
        let address = format!("10.77.0.{}/24", 100 + host);
        bed.server
            .ip(&["address", "add", &address, "dev", "sv0"])
            .expect("an address");
    }
    let folders = ["one", "two"].map(|name| Folder::new(&format!("cluster-{name}")));
    let args = ["-i", "cl0", "--cluster", "7"];
    let sensors = [&folders[0], &folders[1]].map(|f| Sensor::start(&bed.client, f, &args));
    for host in 0..HOSTS {
        bed.talk_to(&format!("10.77.0.{}:80", 100 + host), 2);
    }
    let all = 2 * usize::from(HOSTS);
    let sum = || {
        let [one, two] = [folders[0].alerts(), folders[1].alerts()];
        [0, 1, 2].map(|n| one[n] + two[n])
    };
    until("alerts", || sum() == [all; 3]);
    // Fragments go with their datagram: each sensor that has one has it whole.
    let sent = [(&bed.client, "cl0"), (&bed.server, "sv0")]
        .map(|(ns, name)| frames_sent(ns, name))
        .iter()
        .sum::<u64>();
    let summaries = sensors.map(|sensor| sensor.stop().0);
    let mut received = 0;
    for (summary, folder) in summaries.iter().zip(&folders) {
        // A conversation is whole in one of them.
        let [a, b, c] = folder.alerts();
        assert!(a > 0 && a == b && b == c, "{a} {b} {c}");
        assert_eq!(summary["capture"]["unaccounted"], 0, "{summary}");
        assert_eq!(summary["counters"]["tcp.reassembly_gap"], 0, "{summary}");
        received += summary["capture"]["received"].as_u64().expect("a number");
    }
    assert_eq!(received, sent);
    assert_eq!(sum(), [all; 3]);
}

#[test]
fn a_link_that_goes_and_comes_back() {
    if !root("a_link_that_goes_and_comes_back") {
        return;
    }
    for workers in ["1", "2"] {
        let bed = Bed::new(1);
        let folder = Folder::new(&format!("link-{workers}"));
        let sensor = Sensor::start(&bed.client, &folder, &["-i", "cl0", "--workers", workers]);
        bed.talk(0, 3);
        until("alerts before", || folder.alerts() == [3; 3]);
        bed.client
            .ip(&["link", "set", "cl0", "down"])
            .expect("down");
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(folder.records("engine").len(), 0);
        bed.client.ip(&["link", "set", "cl0", "up"]).expect("up");
        until("the gap is told", || folder.records("engine").len() == 1);
        bed.talk(0, 3);
        until("alerts after", || folder.alerts() == [6; 3]);
        // Removed, and another one of its name.
        bed.client.ip(&["link", "del", "cl0"]).expect("removed");
        std::thread::sleep(Duration::from_millis(1200));
        bed.link(0);
        until("the second gap is told", || {
            folder.records("engine").len() == 2
        });
        bed.talk(0, 3);
        until("alerts at last", || folder.alerts() == [9; 3]);
        let (summary, words) = sensor.stop();
        let gaps = folder.records("engine");
        assert_eq!(gaps.len(), 2, "{gaps:?}");
        for gap in &gaps {
            assert_eq!(
                (&gap["in_iface"], &gap["engine"]["module"]),
                (&"cl0".into(), &"capture".into())
            );
            assert!(
                gap["engine"]["message"]
                    .as_str()
                    .is_some_and(|m| m.contains("was not seen for")),
                "{gap}"
            );
        }
        assert_eq!(lost(&summary, "times that a link was away"), 2, "{summary}");
        assert!(
            summary["counters"]["capture.link_gap_ms"].as_u64() > Some(1000),
            "{summary}"
        );
        assert!(words.contains("waiting for it"), "{words}");
    }
}

#[test]
fn several_interfaces() {
    if !root("several_interfaces") {
        return;
    }
    let bed = Bed::new(3);
    let folder = Folder::new("several");
    let sensor = Sensor::start(&bed.client, &folder, &["-i", "cl0", "-i", "cl1"]);
    // One is down from the beginning of a second run, and is waited for.
    for link in 0..3 {
        bed.talk(link, 2);
    }
    until("alerts", || folder.alerts() == [4; 3]);
    sensor.stop();
    let mut names: Vec<String> = folder
        .records("alert")
        .iter()
        .map(|a| a["in_iface"].as_str().expect("text").to_owned())
        .collect();
    names.sort();
    assert_eq!(names, [["cl0"; 6], ["cl1"; 6]].concat());
    // Those of a configuration, where the command line names none.
    let config = folder.0.join("sensor.yaml");
    fs::write(
        &config,
        "af-packet:\n  - interface: cl1\n  - interface: cl2\n  - interface: default\n",
    )
    .expect("written");
    bed.client
        .ip(&["link", "set", "cl2", "down"])
        .expect("down");
    let folder = Folder::new("configured");
    let config = config.to_str().map(str::to_owned).expect("UTF-8");
    let sensor = {
        fs::create_dir_all(PathBuf::from(&config).parent().expect("a folder")).expect("there");
        fs::write(
            &config,
            "af-packet:\n  - interface: cl1\n  - interface: cl2\n  - interface: default\n",
        )
        .expect("written");
        Sensor::start(&bed.client, &folder, &["-c", &config])
    };
    bed.talk(1, 2);
    until("alerts", || folder.alerts() == [2; 3]);
    bed.client.ip(&["link", "set", "cl2", "up"]).expect("up");
    until("the gap is told", || folder.records("engine").len() == 1);
    bed.talk(2, 2);
    until("alerts", || folder.alerts() == [4; 3]);
    sensor.stop();
}
