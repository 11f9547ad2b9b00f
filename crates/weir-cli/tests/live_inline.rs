//! `weir sensor --inline` between two interfaces, with real clients: what passes, what is cut, what the ends see, and where each frame ended, also when the sensor is stopped or killed.
//!
//! Needs root. All traffic stays in namespaces that the tests make.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{Frames, NetNs, PacketSocket};
use weir_packet::build::Frame;
use weir_xsk::{PacketConfig, PacketPort, Port};

use crate::live_bed::{root, stderr, weir};
use crate::live_sensor::{Folder, Sensor, until};

const RULES: &str = "drop http any any -> any any (msg:\"cut\"; http.uri; content:\"/evil\"; sid:1;)\n\
reject http any any -> any any (msg:\"refused\"; http.uri; content:\"/refused\"; sid:2;)\n\
pass http any any -> any any (msg:\"let by\"; http.uri; content:\"/evil/known\"; sid:3;)\n\
drop udp any any -> any any (msg:\"datagram\"; content:\"evil\"; sid:4;)\n\
reject udp any any -> any 7 (msg:\"closed\"; content:\"knock\"; sid:5;)\n";
const CONFIG: &str = "af-packet:
  - interface: a0
    copy-mode: ips
    copy-iface: b0
  - interface: b0
    copy-mode: ips
    copy-iface: a0
outputs:
  - eve-log:
      enabled: yes
      filename: eve.json
      types:
        - alert
        - drop
        - stats:
            extended: yes
";
/// Bytes of the long answer.
const LONG: usize = 8 << 20;

/// A client and a server, and between them a host that joins its two interfaces.
struct Bed {
    client: NetNs,
    host: NetNs,
    server: NetNs,
}

impl Bed {
    /// `quiet`: no host sends anything of its own, so that every frame can be counted.
    fn new(quiet: bool) -> Bed {
        let bed = Bed {
            client: NetNs::create("winl-c").expect("namespace"),
            host: NetNs::create("winl-h").expect("namespace"),
            server: NetNs::create("winl-s").expect("namespace"),
        };
        bed::without_ipv6(&bed.host).expect("sysctl");
        if quiet {
            bed::without_ipv6(&bed.client).expect("sysctl");
            bed::without_ipv6(&bed.server).expect("sysctl");
        }
        for (ns, name, port, last) in [(&bed.client, "c0", "a0", 1), (&bed.server, "s0", "b0", 2)] {
            let addresses = [format!("10.78.0.{last}/24"), format!("fd78::{last}/64")];
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            let end = End {
                ns,
                name,
                addresses: &addresses[..if quiet { 1 } else { 2 }],
            };
            let port = End {
                ns: &bed.host,
                name: port,
                addresses: &[],
            };
            bed::veth(end, port).expect("veth");
        }
        if quiet {
            let mac = |ns: &NetNs, name: &str| {
                let address = about(ns, name)["address"].clone();
                address.as_str().expect("text").to_owned()
            };
            let (c, s) = (mac(&bed.client, "c0"), mac(&bed.server, "s0"));
            let known = |ns: &NetNs, address: &str, mac: &str, dev: &str| {
                ns.ip(&["neigh", "add", address, "lladdr", mac, "dev", dev])
                    .expect("a neighbour");
            };
            known(&bed.client, "10.78.0.2", &s, "c0");
            known(&bed.server, "10.78.0.1", &c, "s0");
        }
        bed
    }

    fn sensor(&self, folder: &Folder, args: &[&str]) -> Sensor {
        let all = [&["--inline", "a0:b0"], args].concat();
        Sensor::with_rules(&self.host, folder, RULES, &all)
    }

    /// What curl says: its status, and the answer.
    fn curl(&self, url: &str, patience: &str) -> (i32, Vec<u8>) {
        let mut curl = self.client.command("curl").expect("namespace");
        let Output { status, stdout, .. } = curl
            .args(["-sS", "-g", "-m", patience, url])
            .output()
            .expect("curl starts");
        (status.code().expect("it ends"), stdout)
    }

    /// Frames that an interface has sent.
    fn sent(&self, ns: &NetNs, name: &str) -> u64 {
        let sent = about(ns, name)["stats64"]["tx"]["packets"].as_u64();
        sent.expect("a number")
    }
}

/// What `ip` says of an interface.
fn about(ns: &NetNs, name: &str) -> Value {
    let text = ns
        .ip(&["-j", "-s", "link", "show", "dev", name])
        .expect("an interface");
    let mut all: Value = serde_json::from_str(&text).expect("JSON");
    all[0].take()
}

/// Answers each request by its path, until dropped.
struct WebServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WebServer {
    fn start(ns: &NetNs) -> WebServer {
        let listener = ns
            .run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 80)).expect("free"))
            .expect("namespace");
        listener.set_nonblocking(true).expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        std::thread::spawn(move || answer(stream));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        WebServer {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The long answer: no two stretches of it are the same.
fn long() -> Vec<u8> {
    let mut state = 1_u64;
    let words = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 32) as u32
    });
    words.take(LONG / 4).flat_map(u32::to_le_bytes).collect()
}

fn answer(mut stream: std::net::TcpStream) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(len) => request.extend(&piece[..len]),
        }
    }
    let body = match request.starts_with(b"GET /long ") {
        true => long(),
        false => b"hello\n".to_vec(),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&body);
}

fn inline(summary: &Value, name: &str) -> u64 {
    summary["inline"][name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {}", summary["inline"]))
}

fn actions(folder: &Folder) -> Vec<(u64, String)> {
    let alerts = folder.records("alert");
    let mut all: Vec<(u64, String)> = alerts
        .iter()
        .map(|a| {
            let sid = a["alert"]["signature_id"].as_u64().expect("a number");
            let action = a["alert"]["action"].as_str().expect("text");
            (sid, action.to_owned())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn clients_pass_and_rules_cut_what_they_name() {
    if !root("clients_pass_and_rules_cut_what_they_name") {
        return;
    }
    let bed = Bed::new(false);
    let folder = Folder::new("inline-clients");
    // The configuration of a sensor between two interfaces, as users have it.
    let config = folder.0.join("suricata.yaml");
    std::fs::write(&config, CONFIG).expect("written");
    let config = config.to_str().expect("UTF-8");
    let sensor = Sensor::with_rules(&bed.host, &folder, RULES, &["-c", config]);
    let _server = WebServer::start(&bed.server);
    for host in ["10.78.0.2", "[fd78::2]"] {
        let get = |path: &str, patience: &str| bed.curl(&format!("http://{host}{path}"), patience);
        assert_eq!(get("/", "5"), (0, b"hello\n".to_vec()), "{host}");
        assert_eq!(get("/evil/known", "5"), (0, b"hello\n".to_vec()), "{host}");
        // Nobody is told, so the client waits: 28.
        assert_eq!(get("/evil", "2").0, 28, "{host}");
        // Both ends are told: reset by peer, 56, long before the client would give up.
        assert_eq!(get("/refused", "10").0, 56, "{host}");
        let (status, body) = get("/long", "20");
        assert_eq!((status, body.len()), (0, LONG), "{host}");
        assert!(body == long(), "{host}: other bytes came than were sent");
    }
    // A datagram that is rejected: its sender's socket has the error. One that a busy host's sensor could not take is dropped, so it is sent again.
    let knocks = bed
        .client
        .run(|| {
            let socket = UdpSocket::bind("10.78.0.1:0").expect("free");
            socket.connect("10.78.0.2:7").expect("an address");
            socket
                .set_read_timeout(Some(Duration::from_secs(5)))
                .expect("a socket");
            for knock in 1..=6 {
                socket.send(b"knock").expect("sent");
                match socket.recv(&mut [0; 10]).expect_err("no answer").kind() {
                    ErrorKind::ConnectionRefused => return knock,
                    ErrorKind::WouldBlock => {}
                    other => panic!("{other}"),
                }
            }
            panic!("nobody refuses it");
        })
        .expect("namespace");
    let (summary, words) = sensor.stop();
    let expected = [1, 1, 2, 2, 5].map(|sid| (sid, "blocked".to_owned()));
    let mut found = actions(&folder);
    found.dedup_by(|a, b| a == b && a.0 == 5);
    assert_eq!(found, expected);
    let drops = folder.records("drop");
    assert!(drops.len() >= 5, "{drops:?}");
    let stats = folder.records("stats");
    let stats = &stats.last().expect("one at the end")["stats"]["inline"];
    assert_eq!(stats["answers"], summary["inline"]["answers"], "{stats}");
    assert_eq!(summary["inline"]["unaccounted"], 0, "{summary}");
    assert_eq!(summary["ledger"]["unaccounted"], 0, "{summary}");
    // On a busy host the sensor may be away from time to time.
    let uninspected = inline(&summary, "dropped_away") + inline(&summary, "dropped_late");
    let read = summary["frames"].as_u64().expect("a number");
    assert_eq!(inline(&summary, "received"), read + uninspected);
    // Resets to both ends of two connections, and an error for each datagram that was inspected.
    let errors = inline(&summary, "answers") - 4;
    assert!((1..=knocks).contains(&errors), "{errors} of {knocks}");
    assert_eq!(inline(&summary, "send_failed"), 0);
    // Long segments stay whole: fewer frames than a third of what the wire would have.
    assert!(
        inline(&summary, "forwarded") < 2 * LONG as u64 / 1448 / 3,
        "{}",
        summary["inline"]
    );
    assert!(
        words.contains("nothing passes between a0 and b0"),
        "{words}"
    );
    for ns in [&bed.client, &bed.server] {
        let wrong = bed::counter(ns, "Tcp", "InCsumErrors").expect("counters");
        assert_eq!(wrong, Some(0));
    }
    // It stays closed until somebody gives the interfaces back; the host's own stack then has them.
    assert_eq!(bed.curl("http://10.78.0.2/", "0.3").0, 28);
    let given = weir(&bed.host, &["sensor", "--inline", "a0:b0", "--detach"]);
    assert!(given.status.success(), "{}", stderr(&given));
    assert_eq!(
        String::from_utf8_lossy(&given.stdout),
        "a0, b0 given back\n"
    );
    let filters = bed
        .host
        .output("tc", &["filter", "show", "dev", "a0", "ingress"]);
    assert!(!filters.unwrap_or_default().contains("wire"));
}

#[test]
fn the_last_device_finishes_what_is_left_to_devices() {
    if !root("the_last_device_finishes_what_is_left_to_devices") {
        return;
    }
    let bed = Bed::new(false);
    // The host's interfaces sum and cut in software, and receivers look.
    for port in ["a0", "b0"] {
        bed.host
            .offloads_off(port, &["tx", "tso", "gso"])
            .expect("offloads");
    }
    let folder = Folder::new("inline-offloads");
    let sensor = bed.sensor(&folder, &[]);
    let _server = WebServer::start(&bed.server);
    for host in ["10.78.0.2", "[fd78::2]"] {
        let (status, body) = bed.curl(&format!("http://{host}/long"), "20");
        assert_eq!((status, body.len()), (0, LONG), "{host}");
        assert!(body == long(), "{host}: other bytes came than were sent");
    }
    let (summary, _) = sensor.stop();
    assert_eq!(summary["inline"]["unaccounted"], 0, "{summary}");
    for ns in [&bed.client, &bed.server] {
        let wrong = bed::counter(ns, "Tcp", "InCsumErrors").expect("counters");
        assert_eq!(wrong, Some(0));
    }
}

#[test]
fn vlan_tags_stay_and_are_looked_behind() {
    if !root("vlan_tags_stay_and_are_looked_behind") {
        return;
    }
    let bed = Bed::new(true);
    let folder = Folder::new("inline-vlan");
    let sensor = bed.sensor(&folder, &[]);
    let sink = bed
        .server
        .run(|| PacketSocket::open("s0").expect("a socket"))
        .expect("namespace");
    let frame = |tags: &[u16], text: &[u8]| {
        let tagged = tags.iter().fold(Frame::new(), |f, id| f.vlan(*id));
        tagged
            .ip4([10, 78, 0, 1], [10, 78, 0, 2])
            .udp(1000, 2000)
            .payload(text)
            .build()
    };
    let frames = [
        frame(&[], b"none"),
        frame(&[7], b"one"),
        frame(&[7], b"evil"),
        frame(&[7, 8], b"two"),
        frame(&[7, 8], b"also evil"),
    ];
    bed.client
        .run(|| {
            let config = PacketConfig {
                blocks: 0,
                slots: 8,
                ..PacketConfig::default()
            };
            let mut out = PacketPort::open("c0", &config).expect("a socket");
            for frame in &frames {
                assert!(out.queue_or_lose(frame).expect("it fits"));
            }
            out.flush().expect("sent");
        })
        .expect("namespace");
    let mut got = Vec::new();
    let mut into = Frames::new();
    until("three frames come", || {
        sink.receive(&mut into).expect("a socket");
        got.extend(into.iter().map(|(bytes, _)| bytes.to_vec()));
        got.len() >= 3
    });
    assert_eq!(got, [0, 1, 3].map(|n| frames[n].clone()));
    let (summary, _) = sensor.stop();
    assert_eq!(inline(&summary, "received"), 5);
    assert_eq!(inline(&summary, "dropped"), 2);
    assert_eq!(inline(&summary, "forwarded"), 3);
    assert_eq!(summary["inline"]["unaccounted"], 0);
}

/// Datagrams that a server gets, counted by whether a rule names them.
struct Datagrams {
    stop: Arc<AtomicBool>,
    counts: Arc<[AtomicU64; 2]>,
    thread: Option<JoinHandle<()>>,
}

impl Datagrams {
    fn start(ns: &NetNs) -> Datagrams {
        let socket = ns
            .run(|| UdpSocket::bind("10.78.0.2:2000").expect("free"))
            .expect("namespace");
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let (ends, all) = (Arc::clone(&stop), Arc::clone(&counts));
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 100];
            while !ends.load(Ordering::Relaxed) {
                if let Ok(len) = socket.recv(&mut bytes) {
                    let evil = bytes[..len].starts_with(b"evil");
                    all[usize::from(evil)].fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Datagrams {
            stop,
            counts,
            thread: Some(thread),
        }
    }

    /// Those that no rule names, and those that one does.
    fn counts(&self) -> [u64; 2] {
        [0, 1].map(|n| self.counts[n].load(Ordering::Relaxed))
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends datagrams, every fourth of them one that a rule names, `gap` apart.
fn send(ns: &NetNs, count: u64, gap: Duration) {
    ns.run(|| {
        let socket = UdpSocket::bind("10.78.0.1:0").expect("free");
        socket.connect("10.78.0.2:2000").expect("an address");
        for n in 0..count {
            let text: &[u8] = match n % 4 {
                3 => b"evil",
                _ => b"good",
            };
            // Where nothing gets through, the server's errors do not either.
            let _ = socket.send(text);
            if !gap.is_zero() {
                std::thread::sleep(gap);
            }
        }
    })
    .expect("namespace");
}

fn kill(sensor: &Sensor, signal: Signal) {
    kill_process(Pid::from_child(&sensor.0), signal).expect("it runs");
}

/// What became of the sender's frames, added up over the sensors that stood between.
#[test]
fn every_frame_that_was_sent_is_in_one_counter() {
    if !root("every_frame_that_was_sent_is_in_one_counter") {
        return;
    }
    for open in [false, true] {
        let bed = Bed::new(true);
        let folder = Folder::new(&format!("inline-ledger-{open}"));
        let mode = if open { "--fail-open" } else { "--fail-closed" };
        let args = [mode, "--set", "inline.queue=256"];
        let sensor = bed.sensor(&folder, &args);
        let server = Datagrams::start(&bed.server);
        let few = Duration::from_micros(50);
        send(&bed.client, 2000, few);
        // It is stopped: what waits is bounded, and half a second later it counts as dead.
        kill(&sensor, Signal::STOP);
        send(&bed.client, 1000, few);
        std::thread::sleep(Duration::from_millis(700));
        send(&bed.client, 1000, few);
        kill(&sensor, Signal::CONT);
        std::thread::sleep(Duration::from_millis(100));
        send(&bed.client, 2000, few);
        let (summary, _) = sensor.stop();
        let count = |name: &str| inline(&summary, name);
        let sent = bed.sent(&bed.client, "c0") + bed.sent(&bed.server, "s0");
        assert_eq!(bed.sent(&bed.client, "c0"), 6000);
        assert_eq!(count("received"), sent, "{open}: {}", summary["inline"]);
        assert_eq!(
            summary["inline"]["unaccounted"], 0,
            "{open}: {}",
            summary["inline"]
        );
        assert_eq!(count("overrun"), 0);
        // A quarter is dropped by the rule of what was inspected.
        assert!(count("dropped") >= 1000, "{open}: {}", summary["inline"]);
        let (late, away) = match open {
            true => ("passed_late", "passed_away"),
            false => ("dropped_late", "dropped_away"),
        };
        assert!(count(late) >= 600, "{open}: {}", summary["inline"]);
        assert!(count(away) >= 900, "{open}: {}", summary["inline"]);
        let crossed = count("forwarded") + count("passed_late") + count("passed_away");
        assert_eq!(
            bed.sent(&bed.host, "b0") + bed.sent(&bed.host, "a0"),
            crossed
        );
        let lost = bed::counter(&bed.server, "Udp", "RcvbufErrors").expect("counters");
        let lost = lost.unwrap_or(0);
        until("the server has read", || {
            server.counts().iter().sum::<u64>() + lost >= bed.sent(&bed.host, "b0")
        });
        if !open {
            assert_eq!(
                server.counts()[1],
                0,
                "a datagram that a rule drops came through"
            );
        }
    }
}

#[test]
fn a_sensor_that_is_killed() {
    if !root("a_sensor_that_is_killed") {
        return;
    }
    let kills = match std::env::var("WEIR_LONG").as_deref() == Ok("1") {
        true => 10,
        false => 2,
    };
    for open in [false, true] {
        let bed = Bed::new(true);
        let folder = Folder::new(&format!("inline-killed-{open}"));
        let mode = if open { "--fail-open" } else { "--fail-closed" };
        let server = Datagrams::start(&bed.server);
        let done = AtomicBool::new(false);
        let first = bed.sensor(&folder, &[mode]);
        let summary = std::thread::scope(|scope| {
            let (bed, done) = (&bed, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    send(&bed.client, 100, Duration::from_micros(100));
                }
            });
            let mut sensor = first;
            for _ in 0..kills {
                std::thread::sleep(Duration::from_millis(150));
                // As its value goes.
                drop(sensor);
                std::thread::sleep(Duration::from_millis(150));
                sensor = bed.sensor(&folder, &[mode]);
            }
            std::thread::sleep(Duration::from_millis(150));
            done.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
            sensor.stop().0
        });
        let sent = bed.sent(&bed.client, "c0");
        let [good, evil] = server.counts();
        let crossed = bed.sent(&bed.host, "b0");
        assert_eq!(summary["inline"]["unaccounted"], 0, "{}", summary["inline"]);
        let between = |what: &str| inline(&summary, &format!("before.{what}"));
        eprintln!(
            "{mode}: {sent} sent, {crossed} crossed, {good} good and {evil} evil came; in the last gap {} passed, {} were dropped, {} were lost with the sensor",
            between("passed"),
            between("dropped"),
            between("lost")
        );
        match open {
            false => {
                assert_eq!(evil, 0, "a datagram that a rule drops came through");
                assert!(between("dropped") > 500, "{}", summary["inline"]);
                assert_eq!(between("passed"), 0);
            }
            true => {
                assert!(between("passed") > 500, "{}", summary["inline"]);
                assert_eq!(between("dropped"), 0);
                // Uninspected means that those come, too.
                assert!(evil > 0);
                // Lost is what a sensor held when it died.
                let lost = sent - evil - good;
                let rules = inline(&summary, "dropped");
                assert!(lost >= rules, "{sent} sent, {good} and {evil} came");
            }
        }
    }
}

#[test]
fn round_trips_through_the_sensor() {
    if !root("round_trips_through_the_sensor") {
        return;
    }
    let bed = Bed::new(true);
    let folder = Folder::new("inline-latency");
    let sensor = bed.sensor(&folder, &["--fail-open"]);
    let echo = bed
        .server
        .run(|| UdpSocket::bind("10.78.0.2:2000").expect("free"))
        .expect("namespace");
    let stop = AtomicBool::new(false);
    echo.set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a socket");
    let (through, beside) = std::thread::scope(|scope| {
        let (echo, stop) = (&echo, &stop);
        scope.spawn(move || {
            let mut bytes = [0; 100];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((len, from)) = echo.recv_from(&mut bytes) {
                    let _ = echo.send_to(&bytes[..len], from);
                }
            }
        });
        let through = round_trips(&bed.client);
        // Without it, the program alone joins the two.
        drop(sensor);
        let beside = round_trips(&bed.client);
        stop.store(true, Ordering::Relaxed);
        (through, beside)
    });
    let at = |times: &[Duration], percent: usize| times[(times.len() - 1) * percent / 100];
    eprintln!(
        "round trips: through the sensor p50 {:?} p99 {:?}; joined by the program alone p50 {:?} p99 {:?}",
        at(&through, 50),
        at(&through, 99),
        at(&beside, 50),
        at(&beside, 99)
    );
}

/// Times of round trips, rising.
fn round_trips(ns: &NetNs) -> Vec<Duration> {
    ns.run(|| {
        let socket = UdpSocket::bind("10.78.0.1:0").expect("free");
        socket.connect("10.78.0.2:2000").expect("an address");
        socket
            .set_read_timeout(Some(Duration::from_millis(500)))
            .expect("a socket");
        let mut times = Vec::new();
        for _ in 0..1000 {
            let began = Instant::now();
            socket.send(b"good").expect("sent");
            if socket.recv(&mut [0; 10]).is_ok() {
                times.push(began.elapsed());
            }
        }
        assert!(times.len() > 900, "{} of 1000 came back", times.len());
        times.sort();
        times
    })
    .expect("namespace")
}
