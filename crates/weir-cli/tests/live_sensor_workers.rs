//! Sensors on interfaces whose workers have a ring each: alerts are those of the file, whatever the number of workers, and the ledger is exact at any rate.
//!
//! Needs root. All traffic stays in namespaces that the tests make.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_kernel::NetNs;
use weir_kernel::bed;
use weir_packet::build::Frame;
use weir_xsk::{PacketConfig, PacketPort, Port};

use crate::live_bed::root;
use crate::live_sensor::{Folder, Sensor, tcpdump};

const RULES: &str = "alert tcp any any -> any 80 (msg:\"request\"; flow:established,to_server; content:\"NEEDLE\"; sid:1;)\n\
alert udp any any -> any any (msg:\"whole datagram\"; content:\"FIRST\"; content:\"LAST\"; sid:2;)\n\
alert icmp any any -> any any (msg:\"an error of a flow\"; itype:3; sid:3;)\n\
alert tcp any any -> any 80 (msg:\"some of a client\"; flow:established,to_server; content:\"NEEDLE\"; threshold:type both,track by_src,count 3,seconds 3600; sid:4;)\n\
alert tcp any any -> any 80 (msg:\"first\"; flow:established,to_server; content:\"NEEDLE\"; xbits:set,seen,track ip_src; sid:5;)\n";

/// A port that gets a copy of traffic, which `tap` sends.
pub(crate) struct Bed {
    pub(crate) tap: NetNs,
    pub(crate) host: NetNs,
}

impl Bed {
    pub(crate) fn new() -> Bed {
        let bed = Bed {
            tap: NetNs::create("wwrk-t").expect("namespace"),
            host: NetNs::create("wwrk-h").expect("namespace"),
        };
        for ns in [&bed.tap, &bed.host] {
            bed::without_ipv6(ns).expect("sysctl");
        }
        let end = |ns, name| bed::End {
            ns,
            name,
            addresses: &[],
        };
        bed::veth(end(&bed.tap, "copy0"), end(&bed.host, "mirror0")).expect("veth");
        bed
    }

    /// Sends frames, again and again from the first, so many in so long a time; returns how long it took.
    fn send(&self, frames: &[Vec<u8>], count: usize, time: Duration) -> Duration {
        const STEP: usize = 64;
        self.tap
            .run(|| {
                let config = PacketConfig {
                    blocks: 0,
                    slots: 256,
                    longest: 2048,
                    ..PacketConfig::default()
                };
                let mut out = PacketPort::open("copy0", &config).expect("a socket");
                let since = Instant::now();
                let mut all = frames.iter().cycle();
                for sent in (0..count).step_by(STEP) {
                    let due = time.mul_f64(sent as f64 / count as f64);
                    while since.elapsed() < due {
                        std::hint::spin_loop();
                    }
                    for _ in sent..count.min(sent + STEP) {
                        let frame = all.next().expect("not empty");
                        while !out.queue_or_lose(frame).expect("it fits") {
                            out.flush().expect("sent");
                        }
                    }
                    out.flush().expect("sent");
                }
                while out.flush().expect("sent") > 0 {}
                since.elapsed()
            })
            .expect("namespace")
    }

    /// Frames that the tap sent, by its own count.
    pub(crate) fn sent(&self) -> u64 {
        let text = (self.tap)
            .ip(&["-j", "-s", "link", "show", "dev", "copy0"])
            .expect("an interface");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        all[0]["stats64"]["tx"]["packets"]
            .as_u64()
            .expect("a number")
    }
}

/// Frames between many pairs of hosts, in turns: a session with a request, a datagram in fragments, and an ICMP error about the session.
fn mix(pairs: u8) -> Vec<Vec<u8>> {
    const ACK: u8 = Frame::ACK;
    let sessions = (0..pairs).map(|pair| {
        // Some clients have several servers, on several workers.
        let (client, server) = ([10, 9, pair % 8, 1], [10, 10, pair, 2]);
        let tagged = |frame: Frame| match pair % 4 {
            1 => frame.vlan(7),
            2 => frame.tag(0x88a8, 3).tag(0x8100, 4),
            _ => frame,
        };
        let there = || tagged(Frame::new()).ip4(client, server);
        let back = || tagged(Frame::new()).ip4(server, client);
        let ports = (4000 + u16::from(pair), 80);
        let payload = b"GET /NEEDLE";
        let to = |flags, numbers: [u32; 2], bytes: &[u8]| {
            let tcp = there().tcp(ports.0, ports.1).flags(flags);
            tcp.numbers(numbers[0], numbers[1]).payload(bytes).build()
        };
        let from = |flags, numbers: [u32; 2]| {
            let tcp = back().tcp(ports.1, ports.0).flags(flags);
            tcp.numbers(numbers[0], numbers[1]).build()
        };
        let end = 101 + payload.len() as u32;
        let request = to(ACK, [101, 501], payload);
        // Offsets are in units of 8 bytes.
        let part = |offset: u16, more, bytes: &[u8]| {
            let frame = there().id(u16::from(pair)).protocol(17);
            frame.fragment(offset, more).payload(bytes).build()
        };
        // Ports 53 and 53, 8 + 16 + 16 bytes, no checksum.
        let mut first = vec![0, 53, 0, 53, 0, 40, 0, 0];
        first.extend(b"FIRST...........");
        let quoted = Frame::new()
            .ip4(client, server)
            .tcp(ports.0, ports.1)
            .flags(ACK)
            .numbers(101, 501)
            .build();
        // A router on the way says it.
        let error = tagged(Frame::new()).ip4([10, 11, pair, 9], client);
        vec![
            to(Frame::SYN, [100, 0], &[]),
            from(Frame::SYN | ACK, [500, 101]),
            to(ACK, [101, 501], &[]),
            request,
            from(ACK, [501, end]),
            part(0, true, &first),
            part(3, false, b"............LAST"),
            error
                .icmp(3, 1)
                .payload(&[&[0; 4], &quoted[14..]].concat())
                .build(),
            to(Frame::FIN | ACK, [end, 501], &[]),
            from(Frame::FIN | ACK, [501, end + 1]),
            to(ACK, [end + 1, 502], &[]),
        ]
    });
    let sessions: Vec<Vec<Vec<u8>>> = sessions.collect();
    let steps = sessions.first().map_or(0, Vec::len);
    let turn = |step: usize| sessions.iter().map(move |session| session[step].clone());
    (0..steps).flat_map(turn).collect()
}

/// Rule, ends and ports of each alert, in an order that is not theirs.
fn alerts(folder: &Folder) -> Vec<String> {
    let alerts = folder.records("alert");
    let mut all: Vec<String> = alerts
        .iter()
        .map(|a| {
            let fields = ["src_ip", "src_port", "dest_ip", "dest_port", "proto"];
            let ends: Vec<String> = fields.iter().map(|f| a[f].to_string()).collect();
            format!("{} {}", a["alert"]["signature_id"], ends.join(" "))
        })
        .collect();
    all.sort();
    all
}

fn of_file(capture: &Path) -> Vec<String> {
    let folder = Folder::new("workers-file");
    let rules = folder.0.join("r.rules");
    fs::write(&rules, RULES).expect("written");
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["sensor", "-k", "none", "-r"])
        .arg(capture)
        .arg("-S")
        .arg(&rules)
        .arg("-l")
        .arg(folder.0.join("logs"))
        .output()
        .expect("weir starts");
    assert!(run.status.success(), "{run:?}");
    alerts(&folder)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn alerts_are_those_of_the_file() {
    if !root("alerts_are_those_of_the_file") {
        return;
    }
    let frames = mix(64);
    for workers in ["1", "2", "4"] {
        let bed = Bed::new();
        let folder = Folder::new(&format!("workers-{workers}"));
        let capture = folder.0.join("same.pcap");
        let mut dump = tcpdump(&bed.host, "mirror0", &capture);
        let args = ["-i", "mirror0", "-k", "none", "--workers", workers];
        let sensor = Sensor::with_rules(&bed.host, &folder, RULES, &args);
        bed.send(&frames, frames.len(), Duration::from_millis(300));
        std::thread::sleep(Duration::from_millis(500));
        let (summary, said) = sensor.stop();
        kill_process(Pid::from_child(&dump), Signal::INT).expect("it runs");
        dump.wait().expect("it ends");
        let (live, expected) = (alerts(&folder), of_file(&capture));
        // 64 of each of four rules, and of eight clients one for its threshold.
        assert_eq!(expected.len(), 4 * 64 + 8);
        assert_eq!(live, expected, "{workers} workers");
        let capture = &summary["capture"];
        let what = format!("{workers}: {summary} {said}");
        assert_eq!(number(&capture["received"]), frames.len() as u64, "{what}");
        assert_eq!(capture["read"], capture["received"], "{what}");
        assert_eq!(capture["unaccounted"], 0, "{what}");
        assert_eq!(summary["ledger"]["unaccounted"], 0, "{what}");
        assert_eq!(summary["ledger"]["read"], capture["read"], "{what}");
        let each = capture["workers"].as_array().expect("a list");
        match workers {
            "1" => assert!(each.is_empty(), "{what}"),
            _ => {
                assert_eq!(each.len().to_string(), workers);
                assert!(each.iter().all(|one| number(&one["read"]) > 100), "{what}");
                let sum: u64 = each.iter().map(|one| number(&one["received"])).sum();
                assert_eq!(sum, frames.len() as u64, "{what}");
            }
        }
    }
}

/// CPU seconds of a process, and of interrupts' lower halves on all CPUs.
fn cpu(process: u32) -> [f64; 2] {
    let ticks = |text: &str, places: &[usize]| {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let all = places
            .iter()
            .map(|p| fields[*p].parse::<f64>().expect("a number"));
        all.sum::<f64>() / 100.0
    };
    let of = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let all = fs::read_to_string("/proc/stat").expect("proc");
    [ticks(&of, &[13, 14]), ticks(&all, &[7])]
}

/// At half of what a sensor reads, as much, twice and ten times as much as its sender can offer, each packet is in one named place.
#[test]
fn the_ledger_is_exact_at_any_rate() {
    if !root("the_ledger_is_exact_at_any_rate") {
        return;
    }
    const COUNT: usize = 60_000;
    let frames = mix(64);
    eprintln!(
        "workers offered/s     sent     read ring_full by worker        unaccounted  frames/CPU-s"
    );
    for workers in ["1", "2"] {
        let mut capacity = 0.0;
        for load in [0.0, 0.5, 1.0, 2.0, 10.0] {
            let bed = Bed::new();
            let folder = Folder::new(&format!("rates-{workers}-{load}"));
            let args = ["-i", "mirror0", "-k", "none", "--workers", workers];
            let sensor = Sensor::with_rules(&bed.host, &folder, RULES, &args);
            let process = sensor.0.id();
            let before = cpu(process);
            // The first run finds what it reads in a second of CPU time.
            let time = match load {
                0.0 => Duration::from_secs(2),
                load => Duration::from_secs_f64(COUNT as f64 / (capacity * load)),
            };
            // What the sensor cannot do in time it does later: stopped, it cannot.
            if load > 5.0 {
                kill_process(Pid::from_child(&sensor.0), Signal::STOP).expect("it runs");
            }
            let count = if load > 5.0 { 8 * COUNT } else { COUNT };
            let took = bed.send(&frames, count, time);
            if load > 5.0 {
                kill_process(Pid::from_child(&sensor.0), Signal::CONT).expect("it runs");
            }
            std::thread::sleep(Duration::from_millis(300));
            let after = cpu(process);
            let sent = bed.sent();
            let (summary, _) = sensor.stop();
            let capture = &summary["capture"];
            let each = capture["workers"].as_array().expect("a list");
            let by_worker: Vec<String> = each
                .iter()
                .map(|one| format!("{}+{}", one["read"], one["ring_full"]))
                .collect();
            let used: f64 = after[0] - before[0] + after[1] - before[1];
            let read = number(&capture["read"]);
            if load == 0.0 {
                capacity = read as f64 / used.max(0.01);
            }
            eprintln!(
                "{workers:7} {:9.0} {sent:8} {read:8} {:9} {:16} {:11} {:13.0}",
                count as f64 / took.as_secs_f64(),
                number(&capture["ring_full"]),
                by_worker.join(" "),
                capture["unaccounted"],
                read as f64 / used.max(0.01),
            );
            let what = format!("{workers} workers, {load}: {capture}");
            assert_eq!(number(&capture["received"]), sent, "{what}");
            assert_eq!(capture["unaccounted"], 0, "{what}");
            assert_eq!(summary["ledger"]["unaccounted"], 0, "{what}");
            assert_eq!(summary["ledger"]["read"], capture["read"], "{what}");
            assert_eq!(read + number(&capture["ring_full"]), sent, "{what}");
            for one in each {
                let sum = number(&one["read"]) + number(&one["ring_full"]);
                assert_eq!(number(&one["received"]), sum, "{what}");
            }
        }
    }
}

/// What `af-packet` says of an interface counts where the command line says nothing.
#[test]
fn threads_and_bypass_of_the_configuration() {
    if !root("threads_and_bypass_of_the_configuration") {
        return;
    }
    let bed = Bed::new();
    let folder = Folder::new("workers-configured");
    let config = folder.0.join("sensor.yaml");
    let file = config.to_str().expect("UTF-8").to_owned();
    for (text, more, workers) in [
        ("interface: mirror0\n    threads: 2\n", &[][..], 2),
        (
            "interface: default\n    threads: 2\n",
            &["-i", "mirror0"],
            2,
        ),
        (
            "interface: mirror0\n    threads: 2\n",
            &["--workers", "1"],
            0,
        ),
        ("interface: mirror0\n    cluster-id: 99\n", &[], 0),
    ] {
        fs::write(&config, format!("af-packet:\n  - {text}")).expect("written");
        let args = [&["-c", file.as_str()], more].concat();
        let sensor = Sensor::with_rules(&bed.host, &folder, RULES, &args);
        let (summary, _) = sensor.stop();
        let each = summary["capture"]["workers"].as_array().expect("a list");
        assert_eq!(each.len(), workers, "{text}: {summary}");
    }
}
