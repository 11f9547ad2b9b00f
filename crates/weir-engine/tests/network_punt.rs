//! Functions with a helper, live: DHCP clients are answered, first packets go to a controller and the rest stays in the kernel, a helper that
//! is killed costs what was for it, and bad input of a controller is told to it.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

#[path = "../examples/reactive-controller.rs"]
mod reactive;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::network_bed::{Bed, checked, root};
use serde_json::{Value, json};
use weir_engine::network::helper::{self, Counts, Options};
use weir_engine::network::{Look, NetworkError};
use weir_kernel::FrameSocket;
use weir_packet::build::Frame;

/// Two subnets with a router between, and in front of the router a function that hands TCP to a controller. In `web` addresses are leased.
/// Longest wait for a process to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

const DOCUMENT: &str = r#"
version = 1

[[edge]]
name = "e1"

[[tenant]]
name = "red"

[[network]]
name = "shop"
tenant = "red"
mtu = 1450

[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
dhcp = true
lease = 600

[[network.subnet]]
name = "db"
prefix = "10.2.0.0/24"

[[network.function]]
name = "ctl"
kind = "punt"
select = [{ protocol = "tcp", port = "7000-7001" }]

[[network.function]]
name = "gw"
kind = "router"
interface = [{ name = "web", address = "10.1.0.1/24" }, { name = "db", address = "10.2.0.1/24" }]

[[network.link]]
from = "web"
to = "ctl.a"
[[network.link]]
from = "ctl.b"
to = "gw.web"
[[network.link]]
from = "db"
to = "gw.db"

[[network.workload]]
name = "a"
subnet = "web"
edge = "e1"
device = "wa"
mac = "02:00:00:00:00:0a"
address = "10.1.0.7"

[[network.workload]]
name = "b"
subnet = "web"
edge = "e1"
device = "wb"
mac = "02:00:00:00:00:0b"
address = "10.1.0.8"

[[network.workload]]
name = "store"
subnet = "db"
edge = "e1"
device = "wd"
address = "10.2.0.2"
"#;

/// A helper in this process, in the namespace of the edge.
struct Helped {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Counts, NetworkError>>>,
}

impl Helped {
    fn start(bed: &Bed, dhcp: bool) -> Helped {
        let running = bed.names["e1"].clone();
        let socket = std::env::temp_dir().join(format!("{running}.sock"));
        let options = Options {
            socket: socket.clone(),
            dhcp,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let planner = |look: &Look| plan(&look.text, look);
        // A thread that is made in a namespace stays there.
        let spawn = move || {
            std::thread::spawn(move || {
                helper::run(&running, &options, &planner, &stopped, &mut |_| {})
            })
        };
        let thread = bed.edges["e1"].run(spawn).expect("in the namespace");
        let helped = Helped {
            socket,
            stop,
            thread: Some(thread),
        };
        wait(&helped.socket);
        helped
    }

    fn end(mut self) -> Counts {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("it runs");
        thread.join().expect("no panic").expect("it ran")
    }
}

impl Drop for Helped {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Until the data plane is told that somebody listens.
fn wait(socket: &Path) {
    let begun = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(begun.elapsed() < PATIENCE, "no socket");
        std::thread::sleep(Duration::from_millis(10));
    }
    // One beat.
    std::thread::sleep(Duration::from_millis(500));
}

fn plan(text: &str, look: &Look) -> Result<weir_network::EdgeNetworks, String> {
    let plan = checked(text).plan("e1", &look.numbers);
    plan.map_err(|error| error.to_string())
}

/// A controller that a test plays.
struct North {
    out: UnixStream,
    lines: BufReader<UnixStream>,
}

impl North {
    fn open(socket: &Path) -> North {
        let out = UnixStream::connect(socket).expect("connected");
        out.set_read_timeout(Some(Duration::from_secs(5)))
            .expect("set");
        let lines = BufReader::new(out.try_clone().expect("cloned"));
        North { out, lines }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    /// Packets that come in between are left out.
    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.out, "{request}").expect("written");
        loop {
            let line = self.line();
            if line["packet"].is_null() {
                return line;
            }
        }
    }

    fn ask_of(&mut self, mut request: Value) -> Value {
        request["network"] = json!("shop");
        request["function"] = json!("ctl");
        self.ask(&request)
    }

    fn packet(&mut self) -> Value {
        loop {
            let line = self.line();
            if !line["packet"].is_null() {
                return line["packet"].clone();
            }
        }
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Drops of the edge, without what is not asked for: nobody answers router solicitations of the workloads' own stacks.
fn drops(bed: &Bed) -> BTreeMap<String, u64> {
    let mut drops = bed.drops("e1");
    drops.retain(|reason, _| {
        reason.starts_with("punt_") || reason.starts_with("spoofed") || reason == "internal"
    });
    drops
}

const A: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];

/// A message of a client: kind, options behind it.
fn request(mac: [u8; 6], kind: u8, options: &[u8]) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0x80, 0];
    message.resize(28, 0);
    message.extend(mac);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, kind]);
    message.extend(options);
    message.push(255);
    let frame = Frame::new().ip4([0; 4], [255; 4]).udp(68, 67);
    let mut frame = frame.payload(&message).build();
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[6..12].copy_from_slice(&mac);
    frame
}

/// What a socket gets of DHCP answers in two seconds: (kind, address given).
fn answered(socket: &FrameSocket) -> Option<(u8, [u8; 4], Vec<u8>)> {
    answer(socket, Duration::from_secs(2), |_| true)
}

/// The answer of a kind to a message, which is sent again as clients do: a busy host's helper may not listen yet, or be slow.
fn asked(socket: &FrameSocket, message: &[u8], kind: u8) -> Option<([u8; 4], Vec<u8>)> {
    let (_, given, frame) = (0..5).find_map(|_| {
        socket.send(message).expect("sent");
        answer(socket, Duration::from_secs(4), |found| found == kind)
    })?;
    Some((given, frame))
}

fn answer(
    socket: &FrameSocket,
    limit: Duration,
    wanted: impl Fn(u8) -> bool,
) -> Option<(u8, [u8; 4], Vec<u8>)> {
    let begun = Instant::now();
    let mut buffer = vec![0; 65_536];
    while begun.elapsed() < limit {
        let Some(frame) = socket.receive(&mut buffer).expect("read") else {
            continue;
        };
        if frame.len() > 290 && frame[12..14] == [8, 0] && frame[34..38] == [0, 67, 0, 68] {
            let given = [frame[58], frame[59], frame[60], frame[61]];
            if wanted(frame[284]) {
                return Some((frame[284], given, frame.to_vec()));
            }
        }
    }
    None
}

fn open(bed: &Bed, workload: &str) -> FrameSocket {
    let ns = &bed.workloads[workload].ns;
    FrameSocket::open(ns, "eth0", 1 << 20, Duration::from_millis(20)).expect("a socket")
}

#[test]
fn dhcp_clients_get_the_addresses_that_are_declared() {
    if !root("dhcp_clients_get_the_addresses_that_are_declared") {
        return;
    }
    let bed = Bed::new(&checked(DOCUMENT).document);
    bed.apply(DOCUMENT);
    let (a, b) = (open(&bed, "shop/a"), open(&bed, "shop/b"));
    // Nobody listens: dropped for that reason, and nobody else sees it.
    a.send(&request(A, 1, &[])).expect("sent");
    assert!(answered(&a).is_none());
    assert_eq!(
        drops(&bed).get("punt_no_listener"),
        Some(&1),
        "{:?}",
        bed.drops("e1")
    );
    let helped = Helped::start(&bed, true);
    let (given, frame) = asked(&a, &request(A, 1, &[]), 2).expect("an offer");
    assert_eq!(given, [10, 1, 0, 7], "{:?}", bed.drops("e1"));
    let options = &frame[14 + 28 + 240..];
    for option in [
        &[54, 4, 10, 1, 0, 1][..],
        &[51, 4, 0, 0, 2, 88],
        &[1, 4, 255, 255, 255, 0],
        &[3, 4, 10, 1, 0, 1],
        &[26, 2, 5, 170],
    ] {
        assert!(
            options.windows(option.len()).any(|bytes| bytes == option),
            "{option:?}"
        );
    }
    // Taken; another address is refused; another server's is nobody's business here.
    let wanted = request(A, 3, &[54, 4, 10, 1, 0, 1, 50, 4, 10, 1, 0, 7]);
    let (given, _) = asked(&a, &wanted, 5).expect("a lease");
    assert_eq!(given, [10, 1, 0, 7]);
    let (given, _) = asked(&a, &request(A, 3, &[50, 4, 10, 1, 0, 8]), 6).expect("a refusal");
    assert_eq!(given, [0; 4]);
    a.send(&request(A, 3, &[54, 4, 10, 1, 0, 99, 50, 4, 10, 1, 0, 7]))
        .expect("sent");
    // Asking for another workload: its MAC address is not this one's, in the frame or in the message.
    a.send(&request([2, 0, 0, 0, 0, 0x0b], 1, &[]))
        .expect("sent");
    let mut forged = request([2, 0, 0, 0, 0, 0x0b], 1, &[]);
    forged[6..12].copy_from_slice(&A);
    a.send(&forged).expect("sent");
    assert!(answered(&a).is_none());
    // From 0.0.0.0 nothing else passes.
    let mut other = Frame::new()
        .ip4([0; 4], [10, 1, 0, 8])
        .udp(68, 7000)
        .build();
    other[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b]);
    other[6..12].copy_from_slice(&A);
    a.send(&other).expect("sent");
    std::thread::sleep(Duration::from_millis(50));
    let drops = drops(&bed);
    let spoofed = ["spoofed", "spoofed_mac"].map(|reason| drops.get(reason).copied());
    assert_eq!(spoofed, [Some(1), Some(1)], "{:?}", bed.drops("e1"));
    // The neighbour heard nothing of all this.
    let mut buffer = vec![0; 65_536];
    while let Some(frame) = b.receive(&mut buffer).expect("read") {
        let udp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17);
        assert!(!udp, "{frame:02x?}");
    }
    udhcpc(&bed);
    let counts = helped.end();
    assert!(
        counts.offered >= 1 && counts.leased >= 1 && counts.refused >= 1,
        "{counts:?}"
    );
    assert_eq!((counts.unsent, counts.silent), (0, 2), "{counts:?}");
}

/// A client that people use, where it is installed: it gets the workload its address, and the workload works with it.
fn udhcpc(bed: &Bed) {
    let found = Command::new("udhcpc").arg("--help").output().is_ok();
    if !found {
        eprintln!("udhcpc is not installed: the test's own client only");
        return;
    }
    let workload = &bed.workloads["shop/b"];
    workload
        .ns
        .ip(&["address", "flush", "dev", "eth0"])
        .expect("no address");
    workload
        .ns
        .ip(&["link", "set", "eth0", "mtu", "1500"])
        .expect("an MTU");
    let folder = std::env::temp_dir().join(format!("udhcpc-{}", bed.names["e1"]));
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = folder.join("script");
    let text = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip address add $ip/$mask dev $interface\nip link set $interface mtu $mtu\nip route add default via $router\necho lease $lease server $serverid\n";
    std::fs::write(&script, text).expect("written");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, permissions).expect("set");
    let args = [
        "-i", "eth0", "-f", "-q", "-n", "-t", "10", "-T", "1", "-O", "mtu", "-s",
    ];
    let output = workload
        .ns
        .command("udhcpc")
        .expect("udhcpc")
        .args(args)
        .arg(&script)
        .output();
    let output = output.expect("ran");
    let _ = std::fs::remove_dir_all(&folder);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said} {:?}", bed.drops("e1"));
    assert!(said.contains("lease 600 server 10.1.0.1"), "{said}");
    let shown = workload
        .ns
        .ip(&["-4", "address", "show", "dev", "eth0"])
        .expect("shown");
    assert!(
        shown.contains("10.1.0.8/24") && shown.contains("mtu 1450"),
        "{shown}"
    );
    assert!(bed.ping("shop/b", &["10.2.0.2"]).contains(" 2 received"));
    eprintln!("udhcpc: {}", said.replace('\n', "; "));
}

#[test]
fn first_packets_go_to_a_controller_and_the_rest_stays_in_the_kernel() {
    if !root("first_packets_go_to_a_controller_and_the_rest_stays_in_the_kernel") {
        return;
    }
    let bed = Bed::new(&checked(DOCUMENT).document);
    bed.apply(DOCUMENT);
    let helped = Helped::start(&bed, true);
    // Nobody listens to the function; what it does not select goes on.
    assert!(!bed.reaches_at_once("shop/a", ip("10.2.0.2")));
    assert!(drops(&bed)["punt_no_listener"] > 0);
    assert!(bed.ping("shop/a", &["10.2.0.2"]).contains(" 2 received"));
    let controller = reactive::Controller {
        network: "shop".to_owned(),
        function: "ctl".to_owned(),
        barred: Some(7001),
    };
    let stream = UnixStream::connect(&helped.socket).expect("connected");
    let serving = std::thread::spawn(move || controller.serve(stream));
    std::thread::sleep(Duration::from_millis(100));
    let mut north = North::open(&helped.socket);
    let punted = |north: &mut North| -> u64 {
        let counters = north.ask_of(json!({ "do": "counters" }));
        let sides = counters["interfaces"].as_array().expect("a list");
        sides
            .iter()
            .map(|side| side["punted"].as_u64().expect("a number"))
            .sum()
    };
    let before = punted(&mut north);
    let bytes = 20_000_000;
    let whole = bed.echo("shop/a", ip("10.2.0.2"), bytes);
    assert_eq!(whole.expect("echoed"), bytes, "{:?}", bed.drops("e1"));
    // The SYN; and its answer, if it was faster than the second flow.
    let of_one = punted(&mut north) - before;
    assert!(
        (1..=4).contains(&of_one),
        "{of_one} packets went to the controller"
    );
    let flows = north.ask_of(json!({ "do": "flows" }));
    let flows = flows["flows"].as_array().expect("a list").clone();
    let port = |flow: &&Value| flow["flow"]["port"] == 7000 && flow["action"] == "forward";
    let there = flows.iter().find(port).expect("the flow");
    let in_kernel = there["packets"].as_u64().expect("a number");
    assert!(
        there["bytes"].as_u64().expect("a number") > bytes as u64,
        "{there}"
    );
    eprintln!(
        "one connection of {bytes} bytes each way: {of_one} packets to the controller, {in_kernel} by its flow"
    );
    // What the controller bars is dropped in the kernel.
    let connect = || {
        // Long enough for the first packet to be sent again.
        let to = std::net::SocketAddr::new(ip("10.2.0.2"), 7001);
        std::net::TcpStream::connect_timeout(&to, Duration::from_secs(4)).is_ok()
    };
    assert!(
        !bed.workloads["shop/a"]
            .ns
            .run(connect)
            .expect("in the namespace")
    );
    assert!(drops(&bed)["punt_denied"] > 0, "{:?}", bed.drops("e1"));
    // An apply changes nothing of installed flows, nor of who listens.
    let text = DOCUMENT.replace("version = 1", "version = 2");
    bed.apply(&text);
    std::thread::sleep(Duration::from_millis(500));
    let after = north.ask_of(json!({ "do": "flows" }));
    assert!(after["flows"].as_array().expect("a list").len() >= flows.len());
    assert!(
        bed.reaches("shop/a", ip("10.2.0.2")),
        "{:?}",
        bed.drops("e1")
    );
    // Without the function its flows are gone.
    let gone = text.replace(
        "name = \"ctl\"\nkind = \"punt\"\nselect = [{ protocol = \"tcp\", port = \"7000-7001\" }]",
        "name = \"ctl\"\nkind = \"empty\"",
    );
    bed.apply(&gone);
    let look = bed.look("e1");
    assert!(
        look.set
            .map("net_flows")
            .expect("there")
            .keys()
            .expect("read")
            .is_empty()
    );
    assert_eq!(
        bed.who("shop/a", ip("10.2.0.2")).as_deref(),
        Some("shop/store")
    );
    let counts = helped.end();
    assert!(counts.given >= 3 && counts.sent >= 1, "{counts:?}");
    serving.join().expect("no panic").expect("served");
}

#[test]
fn a_controller_that_asks_what_is_wrong_is_told_so() {
    if !root("a_controller_that_asks_what_is_wrong_is_told_so") {
        return;
    }
    let bed = Bed::new(&checked(DOCUMENT).document);
    bed.apply(DOCUMENT);
    let helped = Helped::start(&bed, false);
    let mut north = North::open(&helped.socket);
    let flow = json!({ "protocol": 6, "from": "10.1.0.7", "to": "10.2.0.2", "port": 80 });
    let install = |more: Value| {
        let mut one = json!({ "do": "install", "network": "shop", "function": "ctl", "interface": "a", "flow": flow, "action": "drop" });
        for (key, value) in more.as_object().expect("an object") {
            one[key] = value.clone();
        }
        one
    };
    let at = |what: &str, more: Value| {
        let mut one = json!({ "do": what, "network": "shop", "function": "ctl" });
        for (key, value) in more.as_object().expect("an object") {
            one[key] = value.clone();
        }
        one
    };
    for (request, says) in [
        (json!({}), "missing field `do`"),
        (json!({ "do": "dance" }), "unknown variant `dance`"),
        (json!([1, 2]), "not understood"),
        (
            json!({ "do": "list", "loud": true }),
            "unknown field `loud`",
        ),
        (
            at("listen", json!({ "function": "gw" })),
            "no punt function `gw`",
        ),
        (
            at("listen", json!({ "network": "none" })),
            "network `none` has no",
        ),
        (
            at("send", json!({ "interface": "c", "data": "" })),
            "no interface `c`",
        ),
        (
            at("send", json!({ "interface": "a", "data": "0" })),
            "hexadecimal",
        ),
        (
            at("send", json!({ "interface": "a", "data": "zz" })),
            "hexadecimal",
        ),
        (
            at("send", json!({ "interface": "a", "data": "00" })),
            "14 to 9216 bytes",
        ),
        (
            at(
                "send",
                json!({ "interface": "a", "data": "00".repeat(9217) }),
            ),
            "14 to 9216 bytes",
        ),
        (install(json!({ "action": "forward" })), "needs `by`"),
        (install(json!({ "by": "b" })), "takes no `by`"),
        (
            install(json!({ "action": "forward", "by": "gw" })),
            "no interface `gw`",
        ),
        (install(json!({ "idle": -1 })), "not understood"),
        (
            install(json!({ "flow": { "protocol": 6, "from": "10.1.0.7", "to": "::1" } })),
            "no packet goes",
        ),
        (
            install(
                json!({ "flow": { "protocol": 1, "from": "10.1.0.7", "to": "10.1.0.8", "port": 1 } }),
            ),
            "has no ports",
        ),
        (
            at("remove", json!({ "interface": "a", "flow": flow })),
            "no such flow",
        ),
    ] {
        let answer = north.ask(&request);
        assert_eq!(answer["ok"], false, "{request}: {answer}");
        let error = answer["error"].as_str().expect("a reason");
        assert!(error.contains(says), "{request}: {error}");
    }
    writeln!(north.out, "nonsense").expect("written");
    assert_eq!(north.line()["ok"], false);
    north.out.write_all(b"\xff\xfe\n").expect("written");
    assert_eq!(north.line()["ok"], false);
    // One listens; the other is told, until the first is gone.
    assert_eq!(north.ask_of(json!({ "do": "listen" }))["ok"], true);
    let mut second = North::open(&helped.socket);
    assert_eq!(second.ask_of(json!({ "do": "listen" }))["ok"], false);
    // A line without an end is answered once, and then the connection is.
    let mut long = North::open(&helped.socket);
    long.out.write_all(&vec![b'x'; 70_000]).expect("written");
    assert!(
        long.line()["error"]
            .as_str()
            .expect("a reason")
            .contains("65536 bytes")
    );
    assert_eq!(long.lines.read_line(&mut String::new()).unwrap_or(0), 0);
    // As many flows as the document allows, and no more; putting one in again is none more.
    for port in 0..1024 {
        let flow = json!({ "protocol": 17, "from": "10.1.0.7", "to": "10.2.0.2", "port": port });
        assert_eq!(
            north.ask(&install(json!({ "flow": flow })))["ok"],
            true,
            "{port}"
        );
    }
    let full = north.ask(&install(json!({})));
    assert!(
        full["error"]
            .as_str()
            .expect("a reason")
            .contains("1024 flows"),
        "{full}"
    );
    let again = json!({ "protocol": 17, "from": "10.1.0.7", "to": "10.2.0.2", "port": 7 });
    assert_eq!(north.ask(&install(json!({ "flow": again })))["ok"], true);
    let removed = north.ask(&at("remove", json!({ "interface": "a", "flow": again })));
    assert_eq!(removed["ok"], true);
    assert_eq!(north.ask(&install(json!({})))["ok"], true);
    // A second helper of the edge is refused.
    let options = Options {
        socket: helped.socket.with_extension("other"),
        dhcp: true,
    };
    let refused = bed.edges["e1"].run(|| {
        let planner = |look: &Look| plan(&look.text, look);
        helper::run(
            &bed.names["e1"],
            &options,
            &planner,
            &AtomicBool::new(true),
            &mut |_| {},
        )
    });
    assert!(matches!(
        refused.expect("in the namespace"),
        Err(NetworkError::HelperRuns { .. })
    ));
    // Whole as a controller gets them: the sender left the checksum to its device.
    bed.reaches_at_once("shop/a", ip("10.2.0.2"));
    let packet = north.packet();
    assert_eq!(
        (&packet["interface"], &packet["tenant"]),
        (&json!("a"), &json!("red"))
    );
    let frame = bytes(packet["data"].as_str().expect("data"));
    let segment = &frame[34..];
    let pseudo = weir_packet::checksum::pseudo_header4(
        [10, 1, 0, 7],
        [10, 2, 0, 2],
        6,
        segment.len() as u32,
    );
    let sum = weir_packet::checksum::fold(pseudo + weir_packet::checksum::sum(segment));
    assert_eq!(sum, 0xffff, "{frame:02x?}");
    drop(north);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(second.ask_of(json!({ "do": "listen" }))["ok"], true);
    helped.end();
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
        .collect()
}

/// Name of the running networks, for a process that is to be killed.
const VICTIM: &str = "WEIR_HELPER_VICTIM";

/// Not a test of its own: what the next one starts as another process.
#[test]
fn a_helper_that_is_killed() {
    let Ok(running) = std::env::var(VICTIM) else {
        return;
    };
    let options = Options {
        socket: socket_of(&running),
        dhcp: true,
    };
    let planner = |look: &Look| plan(&look.text, look);
    let ended = helper::run(
        &running,
        &options,
        &planner,
        &AtomicBool::new(false),
        &mut |_| {},
    );
    panic!("{ended:?}");
}

fn socket_of(running: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{running}.sock"))
}

struct Victim(Child);

impl Victim {
    fn start(bed: &Bed) -> Victim {
        let this = std::env::current_exe().expect("known");
        let mut command = bed.edges["e1"]
            .command(this.to_str().expect("a path"))
            .expect("a command");
        command
            .args(["--exact", "network_punt::a_helper_that_is_killed"])
            .env(VICTIM, &bed.names["e1"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = Victim(command.spawn().expect("started"));
        wait(&socket_of(&bed.names["e1"]));
        child
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_helper_costs_what_was_for_it_and_nothing_else() {
    if !root("a_killed_helper_costs_what_was_for_it_and_nothing_else") {
        return;
    }
    let bed = Bed::new(&checked(DOCUMENT).document);
    bed.apply(DOCUMENT);
    let a = open(&bed, "shop/a");
    let mut unheard = 0;
    for round in 0..2 {
        let victim = Victim::start(&bed);
        let mut north = North::open(&socket_of(&bed.names["e1"]));
        assert_eq!(north.ask_of(json!({ "do": "listen" }))["ok"], true);
        for (interface, flow) in [
            (
                "a",
                json!({ "protocol": 6, "from": "10.1.0.7", "to": "10.2.0.2", "from_port": 4000, "port": 7000 }),
            ),
            (
                "b",
                json!({ "protocol": 6, "from": "10.2.0.2", "to": "10.1.0.7", "from_port": 7000, "port": 4000 }),
            ),
        ] {
            let by = if interface == "a" { "b" } else { "a" };
            let install = json!({ "do": "install", "interface": interface, "flow": flow, "action": "forward", "by": by });
            assert_eq!(north.ask_of(install)["ok"], true);
        }
        let offer = asked(&a, &request(A, 1, &[]), 2);
        assert!(offer.is_some(), "round {round}: {:?}", bed.drops("e1"));
        // Traffic that is not for the helper goes on all the time, what is of an installed flow too.
        let pinging = std::thread::scope(|scope| {
            let pings =
                scope.spawn(|| bed.ping("shop/b", &["-c", "150", "-i", "0.02", "10.2.0.2"]));
            std::thread::sleep(Duration::from_millis(700));
            drop(victim);
            pings.join().expect("pinged")
        });
        assert!(
            pinging.contains(" 150 received"),
            "round {round}: {pinging}"
        );
        // 3 s are past: the data plane knows.
        a.send(&request(A, 1, &[])).expect("sent");
        assert!(answered(&a).is_none());
        let drops = drops(&bed);
        assert!(drops["punt_no_listener"] > unheard, "{drops:?}");
        unheard = drops["punt_no_listener"];
        assert!(connects(&bed), "round {round}: {:?}", bed.drops("e1"));
    }
    let helped = Helped::start(&bed, true);
    let offer = asked(&a, &request(A, 1, &[]), 2);
    assert!(offer.is_some(), "{:?}", bed.drops("e1"));
    assert!(connects(&bed));
    helped.end();
}

/// Whether port 4000 of `a` reaches the store, by what is installed.
fn connects(bed: &Bed) -> bool {
    let text = "import socket\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\ns.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')\ns.bind(('10.1.0.7', 4000))\ns.settimeout(3)\ns.connect(('10.2.0.2', 7000))\ns.send(b'hello')\nassert s.recv(5) == b'hello'\n";
    let command = bed.workloads["shop/a"].ns.command("python3");
    let output = command
        .expect("python3")
        .args(["-c", text])
        .output()
        .expect("ran");
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}
