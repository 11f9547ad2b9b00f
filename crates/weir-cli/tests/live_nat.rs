//! Address translation on live traffic, judged by the kernels at both ends: real TCP, UDP and ping through `weir run` on a router,
//! IPv4 and IPv6, on XDP and on tc, the senders' offloads on and off, their checksum counters being the judge.
//!
//! What happens when tables are full, flooded or old is in live_flows.rs.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::live_bed;
use crate::live_bed::{Run, matched, root};
use crate::live_path;
use crate::live_path::{
    ALIAS, Path, Peers, SERVER, TCP, UDP, ask, connect, error_of, ping, serve, settle, snmp6, tcp,
    udp, udp_socket,
};
use rustix::net::{self, AddressFamily, SocketType};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use weir_kernel::{NetNs, bed};

const PORTS: [&str; 2] = ["box0", "box1"];
const PATIENCE: Duration = Duration::from_secs(5);
/// Several windows of full segments.
const BULK: usize = 2_000_000;
/// The last three are fragments.
const LENGTHS: [usize; 7] = [1, 6, 63, 1400, 2000, 8192, 30_000];

/// Masquerading on receive behind an address that is nobody's.
const MASQUERADE: &str = "nat4: add-stateful in box0 net-proto ip4 map ip-saddr 10.9.9.1\n\
    nat6: add-stateful in box0 net-proto ip6 map ip6-saddr fd00:9::1\n";

/// ... and everything else that can be chosen for a connection.
const SHUFFLED: &str = "nat4: add-stateful in box0 net-proto ip4 map ip-saddr 10.9.9.1 shuffle ip-id\n\
    nat6: add-stateful in box0 net-proto ip6 map ip6-saddr fd00:9::1 shuffle ip6-flow-label\n\
    tcp: add-stateful in box0 tcp-dport shuffle tcp-sport shuffle tcp-seq-num shuffle tcp-ack-num\n\
    udp: add-stateful in box0 udp-dport shuffle udp-sport\n";

/// Where weir is in the box, and whether it is told that senders finish their checksums.
const TC: &[&str] = &["--hook", "tc"];
const XDP: &[&str] = &["--hook", "xdp"];
const XDP_COMPLETE: &[&str] = &["--hook", "xdp", "--checksums", "complete"];

#[test]
fn masquerading_on_tc() {
    if root("masquerading_on_tc") {
        masquerading(&Path::build("weirn-mt"), TC);
    }
}

#[test]
fn masquerading_on_tc_without_offloads() {
    if root("masquerading_on_tc_without_offloads") {
        masquerading(&Path::build("weirn-mto").without_offloads(), TC);
    }
}

#[test]
fn masquerading_on_xdp() {
    if root("masquerading_on_xdp") {
        masquerading(&Path::build("weirn-mx"), XDP);
    }
}

#[test]
fn masquerading_on_xdp_without_offloads() {
    if root("masquerading_on_xdp_without_offloads") {
        masquerading(&Path::build("weirn-mxo").without_offloads(), XDP_COMPLETE);
    }
}

fn masquerading(path: &Path, flags: &[&str]) {
    let peers = serve(&path.server, TCP, UDP);
    settle(&path.client);
    for (policy, shuffled) in [(MASQUERADE, false), (SHUFFLED, true)] {
        drop(peers.each_ref().map(Peers::take));
        let run = Run::start(&path.middle, policy, &PORTS, flags);
        let mut failed = Vec::new();
        for (server, alias) in SERVER.into_iter().zip(ALIAS) {
            exchanges(path, server, &mut failed);
            let [tcp, udp] = peers.each_ref().map(Peers::take);
            assert!(!tcp.is_empty() && !udp.is_empty(), "{failed:?}");
            for peer in tcp.into_iter().chain(udp) {
                let port_is_right = !shuffled || peer.port() >= 49_152;
                if peer.ip().to_string() != alias || !port_is_right {
                    failed.push(format!("the server saw {peer}"));
                }
            }
            if shuffled {
                errors(path, server, &mut failed);
            }
        }
        let report = run.stop();
        judge(path, &failed, &report);
        for rule in ["nat4", "nat6"] {
            assert!(matched(&report, rule) > 100, "{report}");
        }
    }
}

/// TCP, UDP up to fragments, and ping.
fn exchanges(path: &Path, server: &str, failed: &mut Vec<String>) {
    let results = [
        ("TCP", tcp(&path.client, (server, TCP), BULK)),
        ("UDP", udp(&path.client, (server, UDP), &LENGTHS)),
        ("segmented UDP", segmented(path, server)),
        ("ping", ping(&path.client, server, 56)),
        ("ping of 4,000 bytes", ping(&path.client, server, 4000)),
    ];
    note(server, &results, failed);
}

/// Datagrams that the sender's kernel gets as one, which its device or a hop on the way cuts; all must come back.
fn segmented(path: &Path, server: &str) -> io::Result<()> {
    let script = format!(
        r"
import socket
s = socket.socket(socket.AF_INET6 if ':' in '{server}' else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(17, 103, 1100)
s.settimeout(2)
s.connect(('{server}', {UDP}))
sent = [bytes([65 + n]) * (1100 if n < 19 else 300) for n in range(20)]
s.send(b''.join(sent))
back = sorted(s.recv(2000) for _ in sent)
print('all' if back == sent else [len(b) for b in back])
"
    );
    let output = live_path::run(&path.client, "python3", &["-c", &script])?;
    if output.stdout == b"all\n" {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(io::Error::other(
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

fn note(server: &str, results: &[(&str, io::Result<()>)], failed: &mut Vec<String>) {
    for (what, result) in results {
        if let Err(error) = result {
            failed.push(format!("{what} to {server}: {error}"));
        }
    }
}

/// Errors reach the sender as if nothing had been translated, from the server itself and from the router on the way.
fn errors(path: &Path, server: &str, failed: &mut Vec<String>) {
    let router = if server.contains(':') {
        "fd00:4::2"
    } else {
        "10.0.4.2"
    };
    for (protocol, port, ttl, expected) in [
        (
            "udp",
            54,
            64,
            format!("ECONNREFUSED {server} 54 {server} who is there"),
        ),
        (
            "udp",
            54,
            2,
            format!("EHOSTUNREACH {server} 54 {router} who is there"),
        ),
        ("tcp", 81, 64, "ECONNREFUSED".to_owned()),
        ("tcp", 81, 2, "EHOSTUNREACH".to_owned()),
    ] {
        let got = error_of(&path.client, protocol, (server, port), ttl);
        if got != expected {
            failed.push(format!("{protocol} with TTL {ttl} to {server}: {got}"));
        }
    }
    let args = ["-c", "1", "-t", "2", "-W", "0.5", server];
    let output = live_path::run(&path.client, "ping", &args);
    let text = String::from_utf8_lossy(&output.expect("ping runs").stdout).into_owned();
    if !text.contains(&format!("From {router}")) || !text.contains("xceeded") {
        failed.push(format!("ping with TTL 2: {text}"));
    }
}

/// From outside to a port of the box, and from the server's own side, where its answers would not come back by themselves.
#[test]
fn forwarding_a_port() {
    if !root("forwarding_a_port") {
        return;
    }
    let policy = "t4: add-stateful in box0 ip-daddr 10.0.1.1 tcp-dport 8080 map ip-daddr 10.0.2.2 map tcp-dport 80\n\
        t6: add-stateful in box0 ip6-daddr fd00:1::1 tcp-dport 8080 map ip6-daddr fd00:2::2 map tcp-dport 80\n\
        u4: add-stateful in box0 ip-daddr 10.0.1.1 udp-dport 5300 map ip-daddr 10.0.2.2 map udp-dport 53\n\
        u6: add-stateful in box0 ip6-daddr fd00:1::1 udp-dport 5300 map ip6-daddr fd00:2::2 map udp-dport 53\n\
        ht4: add-stateful in box1 ip-daddr 10.0.1.1 tcp-dport 8080 map ip-daddr 10.0.2.2 map tcp-dport 80 map ip-saddr 10.9.9.1\n\
        ht6: add-stateful in box1 ip6-daddr fd00:1::1 tcp-dport 8080 map ip6-daddr fd00:2::2 map tcp-dport 80 map ip6-saddr fd00:9::1\n\
        hu4: add-stateful in box1 ip-daddr 10.0.1.1 udp-dport 5300 map ip-daddr 10.0.2.2 map udp-dport 53 map ip-saddr 10.9.9.1\n\
        hu6: add-stateful in box1 ip6-daddr fd00:1::1 udp-dport 5300 map ip6-daddr fd00:2::2 map udp-dport 53 map ip6-saddr fd00:9::1\n";
    let path = Path::build("weirn-pf");
    // Answers are given the box's own address before its kernel routes them: weir lets it take them.
    let peers = serve(&path.server, TCP, UDP);
    settle(&path.client);
    for flags in [TC, XDP] {
        drop(peers.each_ref().map(Peers::take));
        let run = Run::start(&path.middle, policy, &PORTS, flags);
        let mut failed = Vec::new();
        for (box_address, client, alias) in [
            ("10.0.1.1", "10.0.1.2", ALIAS[0]),
            ("fd00:1::1", "fd00:1::2", ALIAS[1]),
        ] {
            for (from, seen_as) in [(&path.client, client), (&path.server, alias)] {
                let results = [
                    ("TCP", tcp(from, (box_address, 8080), BULK)),
                    ("UDP", udp(from, (box_address, 5300), &LENGTHS)),
                ];
                note(
                    &format!("{box_address} as {seen_as}"),
                    &results,
                    &mut failed,
                );
                let seen = peers.each_ref().map(Peers::take).concat();
                if seen.is_empty() || seen.iter().any(|p| p.ip().to_string() != seen_as) {
                    failed.push(format!("the server saw {seen:?}, not {seen_as}"));
                }
            }
        }
        let report = run.stop();
        judge(&path, &failed, &report);
        for rule in ["t4", "t6", "u4", "u6", "ht4", "ht6", "hu4", "hu6"] {
            assert!(matched(&report, rule) > 10, "{rule}: {report}");
        }
    }
}

/// Sequence numbers are moved and segments get lost: a sender recovers by SACK only if the blocks that cross the box are moved, too.
/// (It discards the others. It discards a few without weir as well.)
#[test]
fn moved_sequence_numbers_survive_loss() {
    if !root("moved_sequence_numbers_survive_loss") {
        return;
    }
    // Segments are lost one by one, not 40 at a time; and all are finished, which XDP must be told.
    let path = Path::build("weirn-seq").without_offloads();
    path.middle.offloads_off("box1", &["tx"]).expect("offload");
    path.far.offloads_off("far0", &["tx"]).expect("offload");
    serve(&path.server, TCP, UDP);
    settle(&path.client);
    let lossy = Run::start(&path.far, "tcp-payload drop 0.5%\n", &["far0", "far1"], TC);
    for flags in [TC, XDP_COMPLETE] {
        let run = Run::start(&path.middle, SHUFFLED, &PORTS, flags);
        let recoveries = || {
            [&path.client, &path.server].map(|ns| {
                let value = bed::counter(ns, "TcpExt", "TCPSackRecovery").expect("readable");
                value.expect("exists")
            })
        };
        let before = recoveries();
        let mut failed = Vec::new();
        for server in SERVER {
            let result = tcp(&path.client, (server, TCP), 4 * BULK);
            note(server, &[("TCP", result)], &mut failed);
        }
        let report = run.stop();
        judge(&path, &failed, &report);
        for (end, (before, after)) in before.into_iter().zip(recoveries()).enumerate() {
            assert!(
                after > before + 3,
                "{flags:?}: end {end} never recovered by SACK"
            );
        }
    }
    lossy.stop();
}

/// A hop behind the box takes packets of 1,280 bytes only, and says so to an address that only weir knows.
#[test]
fn a_narrow_hop_is_told_to_the_sender() {
    if !root("a_narrow_hop_is_told_to_the_sender") {
        return;
    }
    for (prefix, flags) in [("weirn-pt", TC), ("weirn-px", XDP)] {
        let path = Path::build(prefix);
        serve(&path.server, TCP, UDP);
        settle(&path.client);
        narrow(&path.far, &["10.0.2.0/24", "fd00:2::/64"], "far1");
        let run = Run::start(&path.middle, SHUFFLED, &PORTS, flags);
        let mut failed = Vec::new();
        for server in SERVER {
            // The box's answer comes from the server, full size, the other way.
            let results = [("TCP", tcp(&path.client, (server, TCP), 300_000))];
            note(server, &results, &mut failed);
        }
        let told = too_big(&path.client);
        let report = run.stop();
        judge(&path, &failed, &report);
        assert!(told[0] > 0 && told[1] > 0, "{flags:?}: {told:?}");
    }
}

/// Gives routes an MTU of 1,280, which forwarded packets must obey.
fn narrow(ns: &NetNs, routes: &[&str], dev: &str) {
    for route in routes {
        // The kernel's own route has these metrics.
        let (family, metric) = if route.contains(':') {
            ("-6", "256")
        } else {
            ("-4", "0")
        };
        let route = [family, "route", "replace", route, "dev", dev];
        let mtu = ["metric", metric, "mtu", "lock", "1280"];
        ns.ip(&[&route[..], &mtu].concat()).expect("route");
    }
}

/// Errors received that say a packet was too big, IPv4 and IPv6. (IPv4 counts all unreachables.)
fn too_big(ns: &NetNs) -> [u64; 2] {
    let four = bed::counter(ns, "Icmp", "InDestUnreachs").expect("readable");
    [four.expect("exists"), snmp6(ns, "Icmp6InPktTooBigs")]
}

/// Where masquerading belongs: on transmit, behind routing, with the box's own address.
const OUTSIDE: &str = "nat4: add-stateful out box1 net-proto ip4 map ip-saddr 10.0.4.1\n\
    nat6: add-stateful out box1 net-proto ip6 map ip6-saddr fd00:4::1\n\
    seq: add-stateful out box1 tcp-dport shuffle tcp-seq-num shuffle tcp-ack-num\n";

#[test]
fn masquerading_on_transmit() {
    if !root("masquerading_on_transmit") {
        return;
    }
    for (prefix, hook, ports) in [
        ("weirn-et", "tc", &PORTS[..]),
        ("weirn-eo", "tc", &PORTS[1..]),
        ("weirn-ec", "clsact", &PORTS),
    ] {
        let path = Path::build(prefix);
        let peers = serve(&path.server, TCP, UDP);
        settle(&path.client);
        drop(peers.each_ref().map(Peers::take));
        let run = Run::start(&path.middle, OUTSIDE, ports, &["--hook", hook, "--egress"]);
        let mut failed = Vec::new();
        for (server, alias, port) in [
            (SERVER[0], "10.0.4.1", 7000),
            (SERVER[1], "fd00:4::1", 7001),
        ] {
            exchanges(&path, server, &mut failed);
            if hook == "tc" {
                errors(&path, server, &mut failed);
            }
            for peer in peers.each_ref().map(Peers::take).concat() {
                if peer.ip().to_string() != alias {
                    failed.push(format!("{hook}: the server saw {peer}"));
                }
            }
            // The port that the box itself uses is not given to the client.
            let both = [&path.middle, &path.client].map(|ns| connect_from(ns, port, (server, TCP)));
            for (who, stream) in ["box", "client"].iter().zip(&both) {
                let stream = stream.as_ref().map_err(|e| io::Error::from(e.kind()));
                if let Err(error) = stream.and_then(|stream| ask(stream, b"who am I")) {
                    failed.push(format!("{who} from port {port} to {server}: {error}"));
                }
            }
            let mut seen = peers[0].take();
            seen.sort();
            seen.dedup();
            if seen.len() != 2 {
                failed.push(format!("two connections, the server saw {seen:?}"));
            }
        }
        // The way back is narrow, right behind the box: it tells the server about packets that the server never sent like that.
        narrow(&path.middle, &["10.0.1.0/24", "fd00:1::/64"], "box0");
        for server in SERVER {
            let results = [("TCP", tcp(&path.client, (server, TCP), 300_000))];
            note(server, &results, &mut failed);
        }
        let told = too_big(&path.server);
        let report = run.stop();
        judge(&path, &failed, &report);
        assert!(told[0] > 0 && told[1] > 0, "{hook}: {told:?}");
        for rule in ["nat4", "nat6", "seq"] {
            assert!(matched(&report, rule) > 100, "{rule}: {report}");
        }
    }
}

/// A connection from a source port of one's choice.
fn connect_from(ns: &NetNs, port: u16, to: (&str, u16)) -> io::Result<TcpStream> {
    let to = live_path::socket_address(to);
    let family = if to.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let any: SocketAddr = if to.is_ipv6() {
        ([0u16; 8], port).into()
    } else {
        ([0; 4], port).into()
    };
    let connected = ns.run(|| -> io::Result<TcpStream> {
        let socket = net::socket(family, SocketType::STREAM, None)?;
        net::bind(&socket, &any)?;
        net::sockopt::set_socket_timeout(&socket, net::sockopt::Timeout::Send, Some(PATIENCE))?;
        net::connect(&socket, &to)?;
        Ok(socket.into())
    });
    let stream = connected.map_err(io::Error::other)??;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Clients at each end of every CPU's own direction.
const CLIENTS: usize = 64;
/// Connections that each makes, one after the other.
const ROUNDS: usize = 16;

/// Many clients in both directions at once: forward packets are worked on by one CPU while the other one works on the answers, or both open
/// connections at once. None may fail, and no two may leave the box with the same addresses and ports.
#[test]
fn many_clients_on_two_cpus() {
    if !root("many_clients_on_two_cpus") {
        return;
    }
    let policy = format!(
        "connections 16384\n{SHUFFLED}\
        back4: add-stateful in box1 ip-daddr 10.9.8.1 tcp-dport 8080 map ip-daddr 10.0.1.2 map tcp-dport 8000 map ip-saddr 10.9.7.0/28\n\
        back6: add-stateful in box1 ip6-daddr fd00:8::1 tcp-dport 8080 map ip6-daddr fd00:1::2 map tcp-dport 8000 map ip6-saddr fd00:7::/124\n"
    );
    for (prefix, flags, steer) in [("weirn-ct", TC, true), ("weirn-cx", XDP, false)] {
        let path = Path::build(prefix);
        let there = serve(&path.server, TCP, UDP);
        let here = serve(&path.client, 8000, 8001);
        settle(&path.client);
        drop(there[0].take());
        if steer {
            for (ns, port, cpus) in [
                (&path.middle, "box0", "1"),
                (&path.middle, "box1", "2"),
                (&path.client, "cl0", "1"),
                (&path.server, "sv0", "2"),
            ] {
                receive_on(ns, port, cpus);
            }
        }
        let run = Run::start(&path.middle, &policy, &PORTS, flags);
        let crowds = [
            (&path.client, [(SERVER[0], TCP), (SERVER[1], TCP)], 0),
            (&path.server, [("10.9.8.1", 8080), ("fd00:8::1", 8080)], 1),
        ];
        let failed: Vec<String> = thread::scope(|scope| {
            let crowds = crowds.map(|(ns, to, cpu)| {
                let cpu = steer.then_some(cpu);
                scope.spawn(move || ns.run(|| crowd(to, cpu)).expect("namespace"))
            });
            let crowds = crowds.map(|crowd| crowd.join().expect("no panic"));
            crowds.concat()
        });
        let report = run.stop();
        judge_closed_at_speed(&path, &failed, &report);
        for (peers, who) in [(&there[0], "server"), (&here[0], "client")] {
            let mut seen = peers.take();
            assert_eq!(seen.len(), CLIENTS * ROUNDS, "{who}");
            seen.sort();
            seen.dedup();
            // All of them are still remembered, so none was given twice.
            assert_eq!(seen.len(), CLIENTS * ROUNDS, "{who}: shared a tuple");
        }
    }
}

/// Clients that connect, ask and close, again and again; on one CPU, or half of them on each.
fn crowd(to: [(&'static str, u16); 2], cpu: Option<usize>) -> Vec<String> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                scope.spawn(move || {
                    let mut cpus = CpuSet::new();
                    cpus.set(cpu.unwrap_or(n % 2));
                    // A machine of one CPU has only the first.
                    let _ = sched_setaffinity(None, &cpus);
                    let to = live_path::socket_address(to[n / 2 % 2]);
                    (0..ROUNDS).find_map(|round| {
                        let asked = TcpStream::connect_timeout(&to, PATIENCE).and_then(|stream| {
                            stream.set_read_timeout(Some(PATIENCE))?;
                            ask(&stream, &live_path::message(1 + round * 700))
                        });
                        let error = asked.err()?;
                        Some(format!("client {n}, connection {round} to {to}: {error}"))
                    })
                })
            })
            .collect();
        let ends = clients.into_iter().map(|c| c.join().expect("no panic"));
        ends.flatten().collect()
    })
}

/// Receives of an interface are worked on by these CPUs (a mask).
fn receive_on(ns: &NetNs, port: &str, cpus: &str) {
    let script = format!("echo {cpus} > /sys/class/net/{port}/queues/rx-0/rps_cpus");
    let args = ["netns", "exec", ns.name(), "sh", "-c", &script];
    let status = std::process::Command::new("ip").args(args).status();
    assert!(status.expect("ip runs").success(), "{script}");
}

/// What people use: a download, and a bandwidth test with parallel streams both ways.
#[test]
fn curl_and_iperf3_work() {
    if !root("curl_and_iperf3_work") {
        return;
    }
    let path = Path::build("weirn-tool");
    serve(&path.server, TCP, UDP);
    settle(&path.client);
    let content = live_bed::file("content", &"weir carries this\n".repeat(300_000));
    let folder = content.parent().expect("a folder").display().to_string();
    let name = content.file_name().expect("a name").to_string_lossy();
    let mut web = Server::start(
        &path,
        "python3",
        &["-m", "http.server", "8000", "--bind", "::", "-d", &folder],
        8000,
    );
    for flags in [TC, XDP] {
        let mut iperf3 = Server::start(&path, "iperf3", &["-s"], 5201);
        let run = Run::start(&path.middle, SHUFFLED, &PORTS, flags);
        let mut failed = Vec::new();
        for (server, url) in SERVER.into_iter().zip(["10.0.2.2", "[fd00:2::2]"]) {
            let url = format!("http://{url}:8000/{name}");
            let got = live_path::run(&path.client, "curl", &["-sSf", "-m", "10", &url]);
            let got = got.expect("curl runs");
            if got.stdout != std::fs::read(&content).expect("readable") {
                let error = String::from_utf8_lossy(&got.stderr).into_owned();
                failed.push(format!("curl {url}: {} bytes, {error}", got.stdout.len()));
            }
            // Long enough for the bytes that are demanded on a machine busy with other tests.
            let args = ["-c", server, "-P", "4", "-t", "4", "--bidir", "-J"];
            let output = live_path::run(&path.client, "iperf3", &args).expect("iperf3 runs");
            let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            for sum in ["sum_received", "sum_received_bidir_reverse"] {
                let bytes = report["end"][sum]["bytes"].as_u64().unwrap_or(0);
                if bytes < 10_000_000 {
                    failed.push(format!("iperf3 {server} {sum}: {report}"));
                }
            }
        }
        let report = run.stop();
        iperf3.stop();
        judge_closed_at_speed(&path, &failed, &report);
    }
    web.stop();
}

/// A program that listens in the server's namespace; killed when dropped.
struct Server(Child);

impl Server {
    fn start(path: &Path, program: &str, args: &[&str], port: u16) -> Server {
        let mut command = path.server.command(program).expect("namespace");
        command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Server(command.spawn().expect("starts"));
        // Interpreters take seconds to start where other tests compute.
        let end = Instant::now() + 6 * PATIENCE;
        while connect(&path.server, ("127.0.0.1", port), PATIENCE).is_err() {
            assert!(Instant::now() < end, "{program} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn stop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A firewall of one host, not of a router: what it asks for may come back, nothing else comes in.
#[test]
fn a_host_lets_answers_in_only() {
    if !root("a_host_lets_answers_in_only") {
        return;
    }
    let policy = "own: add-stateful out cl0 accept\n\
        neighbours: in cl0 icmp6-type 133-137 accept\nclosed4: in cl0 net-proto ip4 drop\nclosed6: in cl0 net-proto ip6 drop\n";
    let path = Path::build("weirn-host");
    serve(&path.server, TCP, UDP);
    serve(&path.client, 8000, 8001);
    settle(&path.client);
    for hook in ["tc", "clsact"] {
        let flags = ["--hook", hook, "--egress"];
        let run = Run::start(&path.client, policy, &["cl0"], &flags);
        let mut failed = Vec::new();
        for server in SERVER {
            exchanges(&path, server, &mut failed);
            if hook == "tc" {
                errors(&path, server, &mut failed);
            }
        }
        for client in ["10.0.1.2", "fd00:1::2"] {
            let patience = Duration::from_millis(300);
            if connect(&path.server, (client, 8000), patience).is_ok() {
                failed.push(format!("a stranger reached {client} by TCP"));
            }
            let socket = udp_socket(&path.server, (client, 8001)).expect("socket");
            socket.set_read_timeout(Some(patience)).expect("set");
            let answered = socket.send(b"hello").and_then(|_| socket.recv(&mut [0; 9]));
            if answered.is_ok() {
                failed.push(format!("a stranger reached {client} by UDP"));
            }
            let args = ["-c", "1", "-W", "0.3", client];
            let pinged = live_path::run(&path.server, "ping", &args).expect("ping runs");
            if pinged.status.success() {
                failed.push(format!("a stranger reached {client} by ping"));
            }
        }
        let report = run.stop();
        assert!(failed.is_empty(), "{hook}: {failed:#?}; {report}");
        assert_eq!(path.checksum_errors(), 0, "{report}");
        assert_eq!(report["packets"]["drop"], report["reasons"]["rule_drop"]);
        for rule in ["closed4", "closed6"] {
            assert!(matched(&report, rule) > 5, "{rule}: {report}");
        }
    }
}

/// What docs/support.md advises where the box's own address is given to clients: ports that it does not use itself.
#[test]
fn ports_of_their_own_keep_clients_and_box_apart() {
    if !root("ports_of_their_own_keep_clients_and_box_apart") {
        return;
    }
    let policy =
        "tcp: add-stateful out box1 tcp-dport map ip-saddr 10.0.4.1 map tcp-sport 1024-32767\n";
    let path = Path::build("weirn-own");
    let [peers, _] = serve(&path.server, TCP, UDP);
    settle(&path.client);
    peers.take();
    let flags = ["--hook", "tc", "--egress"];
    let run = Run::start(&path.middle, policy, &PORTS, &flags);
    let streams: Vec<TcpStream> = (40_000..40_008)
        .flat_map(|port| [(&path.client, port), (&path.middle, port)])
        .map(|(ns, port)| connect_from(ns, port, (SERVER[0], TCP)).expect("connects"))
        .collect();
    for stream in &streams {
        ask(stream, b"who am I").expect("an answer");
    }
    let mut seen = peers.take();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), streams.len(), "{seen:?}");
    assert!(
        seen.iter().all(|p| (1024..32_768).contains(&p.port())),
        "{seen:?}"
    );
    judge_closed_at_speed(&path, &[], &run.stop());
}

/// What docs/support.md advises where the box's own errors cannot be understood: answers of a forwarded port through a narrow link.
#[test]
fn a_clamped_handshake_needs_no_errors() {
    if !root("a_clamped_handshake_needs_no_errors") {
        return;
    }
    let policy = "t4: add-stateful in box0 ip-daddr 10.9.9.1 tcp-dport 8080 map ip-daddr 10.0.2.2 map tcp-dport 80\n\
        t6: add-stateful in box0 ip6-daddr fd00:9::1 tcp-dport 8080 map ip6-daddr fd00:2::2 map tcp-dport 80\n\
        clamp: tcp-syn tcp-opt-mss > 1200 mod tcp-opt-mss 1200\n";
    let path = Path::build("weirn-mss");
    serve(&path.server, TCP, UDP);
    settle(&path.client);
    narrow(&path.middle, &["10.0.1.0/24", "fd00:1::/64"], "box0");
    for flags in [TC, XDP] {
        let run = Run::start(&path.middle, policy, &PORTS, flags);
        let mut failed = Vec::new();
        for alias in ALIAS {
            let results = [("TCP", tcp(&path.client, (alias, 8080), BULK))];
            note(alias, &results, &mut failed);
        }
        judge(&path, &failed, &run.stop());
    }
    assert_eq!(too_big(&path.server), [0, 0]);
}

/// The example of a gateway, as it is but for names and addresses of this bed.
#[test]
fn the_example_of_a_gateway_works() {
    if !root("the_example_of_a_gateway_works") {
        return;
    }
    let policy = include_str!("../../../examples/gateway.weir")
        .replace("lan0", "box0")
        .replace("wan0", "box1")
        .replace("10.0.0.0/8", "10.0.1.0/24")
        .replace("10.0.0.5", "10.0.1.2");
    let path = Path::build("weirn-me");
    let [there, _] = serve(&path.server, TCP, UDP);
    let [here, _] = serve(&path.client, TCP, UDP);
    settle(&path.client);
    for flags in [TC, XDP] {
        drop([there.take(), here.take()]);
        let run = Run::start(&path.middle, &policy, &PORTS, flags);
        // A box that has just come up knows nobody.
        path.middle.ip(&["neigh", "flush", "all"]).expect("flushed");
        let mut failed = Vec::new();
        exchanges(&path, SERVER[0], &mut failed);
        let results = [("TCP", tcp(&path.server, ("192.0.2.10", 8080), BULK))];
        note("192.0.2.10", &results, &mut failed);
        if connect(&path.server, ("10.0.1.2", TCP), Duration::from_millis(500)).is_ok() {
            failed.push("a stranger came in".to_owned());
        }
        for peer in there.take() {
            if !peer.ip().to_string().starts_with("192.0.2.1") {
                failed.push(format!("the server saw {peer}"));
            }
        }
        let report = run.stop();
        assert!(failed.is_empty(), "{flags:?}: {failed:#?}; {report}");
        assert_eq!(path.checksum_errors(), 0, "{report}");
        assert_eq!(here.take().len(), 1, "{report}");
    }
}

/// Everything worked, no receiver found a wrong checksum, and weir dropped nothing.
fn judge(path: &Path, failed: &[String], report: &Value) {
    judge_but(0, path, failed, report);
}

/// As [`judge`], after connections that were closed at full speed: a host that closes while segments are in flight answers each late one
/// with a RST, and after the peer's next acknowledgement their numbers are old. Nothing else may be dropped.
fn judge_closed_at_speed(path: &Path, failed: &[String], report: &Value) {
    let late = report["reasons"]["tcp_rst_stale"].as_u64().unwrap_or(0);
    judge_but(late, path, failed, report);
}

fn judge_but(late: u64, path: &Path, failed: &[String], report: &Value) {
    let errors = path.checksum_errors();
    assert!(
        failed.is_empty() && errors == 0,
        "{failed:#?}, {errors} checksum errors; {report}"
    );
    assert_eq!(report["packets"]["drop"], late, "{report}");
}
