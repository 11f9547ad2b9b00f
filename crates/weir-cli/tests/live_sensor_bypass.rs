//! Flows whose packets the kernel keeps away from a listening sensor: what it says of them is what it says without, and nothing is left on the interface.
//!
//! Needs root. All traffic stays in namespaces that the tests make. `WEIR_LONG=1`: more packets are timed.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use serde_json::Value;
use weir_packet::build::Frame;
use weir_xsk::{PacketConfig, PacketPort, Port};

use crate::live_bed::root;
use crate::live_sensor::{Folder, Sensor, until};
use crate::live_sensor_workers::Bed;

const RULES: &str = "alert tcp any any -> any 9000 (msg:\"large\"; content:\"ELEPHANT\"; bypass; sid:1;)\n\
alert udp any any -> any 9001 (msg:\"large\"; content:\"ELEPHANT\"; bypass; sid:2;)\n\
alert tcp any any -> any any (msg:\"begins\"; flow:established,to_server; content:\"SSH-2.0-client\"; sid:3;)\n\
alert tcp-pkt any any -> any any (msg:\"inside\"; content:\"LATER\"; sid:4;)\n";

/// The message of SSH that new keys are used from here on.
const KEYS: &[u8] = b"\x00\x00\x00\x0c\x0a\x15\0\0\0\0\0\0\0\0\0\0";
/// Rounds behind the beginning: a packet of each end.
const ROUNDS: usize = 200;

impl Bed {
    /// Sends frames once, as fast as they are taken.
    fn burst(&self, frames: &[Vec<u8>]) {
        self.tap
            .run(|| {
                let config = PacketConfig {
                    blocks: 0,
                    slots: 64,
                    ..PacketConfig::default()
                };
                let mut out = PacketPort::open("copy0", &config).expect("a socket");
                for frame in frames {
                    while !out.queue_or_lose(frame).expect("it fits") {
                        out.flush().expect("sent");
                    }
                }
                while out.flush().expect("sent") > 0 {}
            })
            .expect("namespace");
    }

    /// What is on the port: programs of XDP, by `ip link`.
    fn shown(&self) -> String {
        self.host
            .ip(&["-d", "link", "show", "dev", "mirror0"])
            .expect("ip")
    }
}

/// A flow: what is sent before it is decided, behind it, and at its end.
#[derive(Default)]
struct Parts([Vec<Vec<u8>>; 3]);

/// Frames of a flow, of each end.
struct Ends {
    v6: bool,
    tags: &'static [(u16, u16)],
    ports: [u16; 2],
}

impl Ends {
    fn frame(&self, way: usize) -> Frame {
        let mut frame = Frame::new();
        for (tpid, tci) in self.tags {
            frame = frame.tag(*tpid, *tci);
        }
        let [from, to] = [1 + way as u8, 2 - way as u8];
        match self.v6 {
            true => {
                let address = |n| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n];
                frame.ip6(address(from), address(to))
            }
            false => frame.ip4([192, 0, 2, from], [192, 0, 2, to]),
        }
    }

    fn tcp(&self, way: usize, flags: u8, numbers: &[u32; 2], payload: &[u8]) -> Vec<u8> {
        self.frame(way)
            .tcp(self.ports[way], self.ports[1 - way])
            .flags(flags)
            .numbers(numbers[way], numbers[1 - way])
            .payload(payload)
            .build()
    }

    /// A session in which the ends say something in turns, then much more, and close.
    fn session(&self, said: &[&[u8]]) -> Parts {
        const ACK: u8 = Frame::ACK;
        let mut all = Parts::default();
        let mut at = [1000, 9000];
        let [begins, goes_on, ends] = &mut all.0;
        begins.push(self.tcp(0, Frame::SYN, &[at[0], 0], &[]));
        at[0] += 1;
        begins.push(self.tcp(1, Frame::SYN | ACK, &at, &[]));
        at[1] += 1;
        begins.push(self.tcp(0, ACK, &at, &[]));
        for (n, bytes) in said.iter().enumerate() {
            begins.push(self.tcp(n % 2, ACK, &at, bytes));
            at[n % 2] += bytes.len() as u32;
            begins.push(self.tcp(1 - n % 2, ACK, &at, &[]));
        }
        for n in 0..ROUNDS {
            for way in 0..2 {
                let bytes = format!("LATER{}", "x".repeat(100 + n + 50 * way));
                goes_on.push(self.tcp(way, ACK, &at, bytes.as_bytes()));
                at[way] += bytes.len() as u32;
            }
        }
        for way in 0..2 {
            ends.push(self.tcp(way, Frame::FIN | ACK, &at, &[]));
            at[way] += 1;
        }
        ends.push(self.tcp(0, ACK, &at, &[]));
        all
    }

    fn datagrams(&self) -> Parts {
        let datagram = |way: usize, bytes: &[u8]| {
            let ports = (self.ports[way], self.ports[1 - way]);
            self.frame(way).udp(ports.0, ports.1).payload(bytes).build()
        };
        let mut all = Parts::default();
        all.0[0].push(datagram(0, b"an ELEPHANT"));
        all.0[0].push(datagram(1, b"seen"));
        for n in 0..ROUNDS {
            for way in 0..2 {
                all.0[1].push(datagram(way, "y".repeat(30 + n).as_bytes()));
            }
        }
        all
    }
}

/// Flows that are let go, and one that is not.
fn traffic() -> [Vec<Vec<u8>>; 3] {
    let ends = |port, v6, tags| Ends {
        v6,
        tags,
        ports: [40_000 + port, port],
    };
    let (client, server) = (
        [b"SSH-2.0-client\r\n", KEYS].concat(),
        [b"SSH-2.0-server\r\n", KEYS].concat(),
    );
    let ssh: [&[u8]; 4] = [&client, &server, b"secret", b"secret"];
    let flows = [
        ends(22, false, &[]).session(&ssh),
        ends(22, true, &[]).session(&ssh),
        ends(22, false, &[(0x8100, 7)]).session(&ssh),
        ends(22, false, &[(0x88a8, 5), (0x8100, 7)]).session(&ssh),
        ends(9000, false, &[]).session(&[b"an ELEPHANT", b"seen"]),
        ends(9001, true, &[]).datagrams(),
        ends(9002, false, &[]).session(&[b"nothing"]),
    ];
    let mut all: [Vec<Vec<u8>>; 3] = Default::default();
    for flow in flows {
        for (all, part) in all.iter_mut().zip(flow.0) {
            all.extend(part);
        }
    }
    all
}

/// Flows that are kept away, of those.
const KEPT_AWAY: usize = 6;

/// What a run has said.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    alerts: Vec<String>,
    flows: Vec<String>,
}

const LET_GO: [&str; 2] = [
    "--set",
    "app-layer.protocols.ssh.encryption-handling=bypass",
];

fn said(folder: &Folder) -> Said {
    let ends = |r: &Value| {
        format!(
            "{}:{} {}:{} {} {}",
            r["src_ip"], r["src_port"], r["dest_ip"], r["dest_port"], r["proto"], r["vlan"]
        )
    };
    let sorted = |kind: &str, of: &dyn Fn(&Value) -> String| {
        let mut all: Vec<String> = folder.records(kind).iter().map(of).collect();
        all.sort();
        all
    };
    Said {
        alerts: sorted("alert", &|r| {
            format!("{} {}", r["alert"]["signature_id"], ends(r))
        }),
        flows: sorted("flow", &|r| {
            let f = &r["flow"];
            let counts = [
                "pkts_toserver",
                "pkts_toclient",
                "bytes_toserver",
                "bytes_toclient",
            ]
            .map(|name| f[name].to_string());
            format!("{} {} {}", ends(r), f["state"], counts.join(" "))
        }),
    }
}

/// Runs a sensor over the traffic. What it said, and its summary.
fn run(bed: &Bed, name: &str, args: &[&str]) -> (Said, Value) {
    let folder = Folder::new(name);
    let args = [&["-i", "mirror0"], args, &LET_GO].concat();
    let sensor = Sensor::with_rules(&bed.host, &folder, RULES, &args);
    let [begins, goes_on, ends] = traffic();
    bed.burst(&begins);
    // Until it is decided, and sockets have their filter: a socket that is quiet is looked at ten times a second.
    until("what begins is heard", || {
        folder.records("alert").len() >= 6
    });
    std::thread::sleep(Duration::from_millis(600));
    bed.burst(&goes_on);
    bed.burst(&ends);
    std::thread::sleep(Duration::from_millis(300));
    let (summary, err) = sensor.stop();
    let capture = &summary["capture"];
    assert_eq!(capture["unaccounted"], 0, "{summary} {err}");
    assert_eq!(summary["ledger"]["unaccounted"], 0, "{summary}");
    let count = |name: &str| capture[name].as_u64().expect("a number");
    let sent = begins.len() + goes_on.len() + ends.len();
    let found = count("read") + count("ring_full") + count("bypassed");
    assert_eq!(found, sent as u64, "{capture} {err}");
    let of_flows = &summary["counters"]["flow_bypassed.pkts"];
    assert_eq!(
        of_flows.as_u64().expect("a number") + count("bypassed_late"),
        count("bypassed"),
        "{summary}"
    );
    (said(&folder), summary)
}

fn bypassed(summary: &Value) -> u64 {
    summary["capture"]["bypassed"].as_u64().expect("a number")
}

#[test]
fn what_is_kept_away_changes_no_record() {
    if !root("what_is_kept_away_changes_no_record") {
        return;
    }
    let bed = Bed::new();
    let (expected, summary) = run(&bed, "bypass-none", &["--bypass", "none"]);
    assert_eq!(bypassed(&summary), 0);
    assert_eq!(expected.flows.len(), KEPT_AWAY + 1, "{expected:?}");
    let packets = (KEPT_AWAY * ROUNDS * 2) as u64;
    for (name, args) in [
        ("1", &["--bypass", "socket"][..]),
        ("2", &["--bypass", "socket", "--workers", "2"]),
        ("auto", &[]),
        ("confined", &["--confine", "--workers", "2"]),
        ("xdp", &["--bypass", "xdp", "--workers", "2"]),
        ("xdp-confined", &["--bypass", "xdp", "--confine"]),
        ("cluster", &["--bypass", "socket", "--cluster", "77"]),
    ] {
        let (said, summary) = run(&bed, &format!("bypass-{name}"), args);
        assert_eq!(said, expected, "{name}");
        // The acknowledgement behind the last FIN of a session comes before or after that is read.
        let kept_away = bypassed(&summary);
        assert!(
            (packets..packets + KEPT_AWAY as u64).contains(&kept_away),
            "{name}: {summary}"
        );
        assert_eq!(summary["counters"]["flow_bypassed.closed"], KEPT_AWAY);
        assert!(!bed.shown().contains("xdp"), "{name}: {}", bed.shown());
    }
    // A filter is asked about each packet.
    let (said, summary) = run(&bed, "bypass-filter", &["-f", "tcp or udp or vlan"]);
    assert_eq!(bypassed(&summary), 0, "{summary}");
    assert_eq!(said, expected);
}

#[test]
fn a_dead_sensor_leaves_nothing() {
    if !root("a_dead_sensor_leaves_nothing") {
        return;
    }
    let bed = Bed::new();
    let folder = Folder::new("bypass-killed");
    let args = [&["-i", "mirror0", "--bypass", "xdp"][..], &LET_GO].concat();
    let mut sensor = Sensor::with_rules(&bed.host, &folder, RULES, &args);
    let [begins, ..] = traffic();
    bed.burst(&begins);
    until("alerts", || folder.records("alert").len() >= 6);
    assert!(bed.shown().contains("xdp"), "{}", bed.shown());
    sensor.0.kill().expect("it runs");
    sensor.0.wait().expect("it ends");
    until("the program is off", || !bed.shown().contains("xdp"));
}

#[test]
fn xdp_is_refused_where_packets_are_of_use_to_others() {
    if !root("xdp_is_refused_where_packets_are_of_use_to_others") {
        return;
    }
    let bed = Bed::new();
    let folder = Folder::new("bypass-refused");
    let refusal = || {
        let mut weir = bed
            .host
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        let output = weir
            .args(["sensor", "-i", "mirror0", "--bypass", "xdp", "-l"])
            .arg(folder.0.join("logs"))
            .output()
            .expect("weir starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let ip = |args: &[&str]| bed.host.ip(args).expect("ip");
    ip(&["addr", "add", "198.51.100.1/24", "dev", "mirror0"]);
    let text = refusal();
    assert!(
        text.contains("mirror0 has the address 198.51.100.1"),
        "{text}"
    );
    ip(&["addr", "flush", "dev", "mirror0"]);
    ip(&["link", "add", "bridge0", "type", "bridge"]);
    ip(&["link", "set", "mirror0", "master", "bridge0"]);
    let text = refusal();
    assert!(text.contains("mirror0 is a port of bridge0"), "{text}");
    ip(&["link", "set", "mirror0", "nomaster"]);
    bed.host
        .run(|| std::fs::write("/proc/sys/net/ipv4/conf/mirror0/forwarding", "1"))
        .expect("namespace")
        .expect("sysctl");
    let text = refusal();
    assert!(text.contains("mirror0 forwards ipv4"), "{text}");
}

/// CPU time of a process, and of interrupts of all CPUs, in seconds: ticks of the kernel are hundredths.
fn cpu(process: u32) -> [f64; 2] {
    let text = |path: String| fs::read_to_string(path).expect("readable");
    let number = |word: Option<&str>| word.and_then(|w| w.parse::<f64>().ok()).expect("a number");
    let stat = text(format!("/proc/{process}/stat"));
    let behind_name = stat.rsplit(')').next().expect("a name");
    let own: f64 = (behind_name.split_whitespace().skip(11).take(2))
        .map(|word| number(Some(word)))
        .sum();
    let all = text("/proc/stat".to_owned());
    let interrupts = number(all.split_whitespace().nth(7));
    [own / 100.0, interrupts / 100.0]
}

#[test]
fn what_a_packet_of_an_encrypted_session_costs() {
    if !root("what_a_packet_of_an_encrypted_session_costs") {
        return;
    }
    const BURST: usize = 10_000;
    let is_long = std::env::var_os("WEIR_LONG").is_some();
    let count = if is_long { 30 * BURST } else { 4 * BURST };
    let bed = Bed::new();
    let ends = Ends {
        v6: false,
        tags: &[],
        ports: [40_022, 22],
    };
    let (client, server) = (
        [b"SSH-2.0-client\r\n", KEYS].concat(),
        [b"SSH-2.0-server\r\n", KEYS].concat(),
    );
    let Parts([begins, ..]) = ends.session(&[&client, &server, b"secret", b"secret"]);
    let frame = ends.tcp(1, Frame::ACK, &[5000, 50_000], &[7; 1400]);
    let burst = vec![frame; BURST];
    for place in ["none", "socket", "xdp"] {
        let folder = Folder::new(&format!("bypass-cost-{place}"));
        let args = [&["-i", "mirror0", "--bypass", place][..], &LET_GO].concat();
        let sensor = Sensor::with_rules(&bed.host, &folder, RULES, &args);
        bed.burst(&begins);
        until("it begins", || !folder.records("alert").is_empty());
        std::thread::sleep(Duration::from_millis(600));
        let process = sensor.0.id();
        let before = cpu(process);
        for _ in 0..count / BURST {
            bed.burst(&burst);
        }
        std::thread::sleep(Duration::from_millis(300));
        let after = cpu(process);
        let [own, interrupts] = [0, 1].map(|n| after[n] - before[n]);
        let (summary, _) = sensor.stop();
        assert_eq!(summary["capture"]["unaccounted"], 0, "{summary}");
        let lost = summary["capture"]["ring_full"].as_u64().expect("a number");
        let spent = own + interrupts;
        let text = format!(
            "bypass {place}: {} of {count} packets kept away, {lost} lost; {own:.2} s of the sensor, {interrupts:.2} s of interrupts: {:.0} packets per CPU-second\n",
            bypassed(&summary),
            (count as u64 - lost) as f64 / spent.max(0.01),
        );
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
