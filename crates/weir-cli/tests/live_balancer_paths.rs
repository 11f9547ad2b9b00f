//! What belongs to a flow and does not look like it reaches the flow's server: errors of a router on the way back, in every mode; fragments of a
//! datagram; QUIC packets of a client whose address changed. `live_services` has the bed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::live_bed::{root, stderr, weir};
use crate::live_services::{Bed, FAR_MTU, SERVICE, SERVICE6, connect, fetch, ip, service};
use rustix::net::sockopt;
use weir_kernel::NetNs;
use weir_kernel::bed;

/// Servers that answer every datagram, from the address that it was sent to, with their name, whether it is of one byte all over, its length and
/// first byte, until they are dropped.
struct Echoes(Arc<AtomicBool>);

impl Echoes {
    fn start(ns: &NetNs, name: &'static str, at: SocketAddr) -> Echoes {
        let socket = ns.run(|| UdpSocket::bind(at)).expect("namespace");
        let socket = socket.unwrap_or_else(|e| panic!("bind {at}: {e}"));
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut datagram = vec![0; 65_536];
            while !ends.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut datagram) {
                    // As far as it arrived as it was sent.
                    let whole = datagram[..length].iter().all(|b| *b == datagram[0]);
                    let answer = format!("{name} {whole} {length} {}", datagram[0]);
                    let _ = socket.send_to(answer.as_bytes(), from);
                }
            }
        });
        Echoes(stop)
    }
}

impl Drop for Echoes {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A counter of ICMPv6, or of ICMP.
fn errors_received(ns: &NetNs, family: u8) -> u64 {
    if family == 4 {
        return bed::counter(ns, "Icmp", "InDestUnreachs")
            .expect("readable")
            .expect("exists");
    }
    let text = ns.run(|| fs::read_to_string("/proc/thread-self/net/snmp6"));
    let text = text.expect("namespace").expect("readable");
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Icmp6InPktTooBigs"));
    line.expect("exists").trim().parse().expect("a number")
}

/// What a host learned of the way to an address.
fn learned(ns: &NetNs, to: &str) -> bool {
    let route = ns.ip(&["route", "get", to]).expect("a route");
    route.contains(&format!("mtu {FAR_MTU}"))
}

#[test]
fn errors_of_routers_reach_the_server_of_the_connection() {
    if !root("errors_of_routers_reach_the_server_of_the_connection") {
        return;
    }
    for (what, mode, outer, address) in [
        ("ipip", "mode = \"ipip\"", 4, SERVICE),
        ("ipip6", "mode = \"ipip\"", 6, SERVICE6),
        ("gue", "mode = \"gue\"", 4, SERVICE),
        ("gue6", "mode = \"gue\"", 6, SERVICE6),
        ("dsr", "mode = \"dsr\"", 4, SERVICE),
        ("dsr6", "mode = \"dsr\"", 6, SERVICE6),
        ("nat", "mode = \"nat\"", 4, SERVICE),
        ("nat6", "mode = \"nat\"", 6, SERVICE6),
    ] {
        let bed = Bed::new(what);
        let is_nat = what.starts_with("nat");
        let far = bed.far_client(!is_nat);
        if what.starts_with("ipip") || what.starts_with("gue") {
            bed.decapsulate(outer);
        }
        let port = if is_nat { "\nport = 8080" } else { "" };
        let ways = [0, 1].map(|k| format!("{}{port}", bed.way(k)));
        bed.configure(address, mode, outer, &[(0, &ways[0]), (1, &ways[1])]);
        bed.apply();
        let to = if outer == 4 { "10.4.0.2" } else { "fd04::2" };
        // A connection at each of the servers, one after the other.
        for name in ["one", "two"] {
            let mut stream = loop {
                let mut stream = connect(&far, address).expect("connects");
                if fetch(&mut stream, 0).expect("answered") == name {
                    break stream;
                }
            };
            let (its, other) = match name {
                "one" => (&bed.servers[0], &bed.servers[1]),
                _ => (&bed.servers[1], &bed.servers[0]),
            };
            assert!(!learned(its, to), "{what} {name}");
            let before = errors_received(other, outer);
            // More than the first window, in packets that do not fit.
            let from = fetch(&mut stream, 2_000_000);
            let from = from.unwrap_or_else(|e| panic!("{what} {name}: {e}: {}", bed.status()));
            assert_eq!(from, name, "{what}");
            assert!(errors_received(its, outer) > 0, "{what} {name}");
            assert!(learned(its, to), "{what} {name}");
            assert_eq!(errors_received(other, outer), before, "{what} {name}");
        }
        for ns in &bed.servers {
            let bad = bed::counter(ns, "Icmp", "InCsumErrors").expect("readable");
            assert_eq!(bad.unwrap_or(0), 0, "{what}");
        }
    }
}

/// Sends these bytes until they are answered; who answers, and whether they were one byte all over.
fn echo(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> String {
    let mut answer = [0; 100];
    let mine = format!(" {} {}", bytes.len(), bytes[0]);
    for _ in 0..10 {
        let _ = socket.send_to(bytes, to);
        // Errors of the path are told here, too, and answers to what was sent before come late.
        while let Ok(length) = socket.recv(&mut answer) {
            let text = String::from_utf8_lossy(&answer[..length]);
            if let Some(text) = text.strip_suffix(&mine) {
                return text.to_owned();
            }
        }
    }
    panic!("{to} does not answer {} bytes", bytes.len());
}

fn client(ns: &NetNs, from: IpAddr) -> UdpSocket {
    let socket = ns.run(|| UdpSocket::bind((from, 0))).expect("namespace");
    let socket = socket.expect("an address of the client");
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a socket");
    socket
}

fn echoes(bed: &Bed, address: &str, is_nat: bool, port: u16) -> Vec<Echoes> {
    let names = ["one", "two"];
    let start = |(at, name): (usize, &'static str)| {
        let k = at + 1;
        let own = match address.contains(':') {
            false => format!("10.2.{k}.2"),
            true => format!("fd02:{k}::2"),
        };
        let here = if is_nat { &own } else { address };
        let here: IpAddr = here.parse().expect("an address");
        Echoes::start(&bed.servers[at], name, (here, port).into())
    };
    names.into_iter().enumerate().map(start).collect()
}

#[test]
fn fragments_of_a_datagram_reach_one_server() {
    if !root("fragments_of_a_datagram_reach_one_server") {
        return;
    }
    for (what, mode, family, address) in [
        ("fr-ipip", "ipip", 4, SERVICE),
        ("fr-ipip6", "ipip", 6, SERVICE6),
        ("fr-gue", "gue", 4, SERVICE),
        ("fr-dsr", "dsr", 4, SERVICE),
        ("fr-dsr6", "dsr", 6, SERVICE6),
        ("fr-nat", "nat", 4, SERVICE),
        ("fr-nat6", "nat", 6, SERVICE6),
    ] {
        let bed = Bed::new(what);
        let is_nat = mode == "nat";
        bed.answer_directly(!is_nat);
        if matches!(mode, "ipip" | "gue") {
            bed.decapsulate(family);
            // Fragments that fit into the tunnel: what does not is another test's.
            ip(&bed.client, "link set c0 mtu 1400");
        }
        let ways = [0, 1].map(|k| bed.way(k));
        let keys = format!(
            "address = \"{address}\"\nprotocol = \"udp\"\nport = 5353\nmode = \"{mode}\"\n"
        );
        bed.write(&service(&keys, family, &[(0, &ways[0]), (1, &ways[1])]));
        bed.apply();
        let _echoes = echoes(&bed, address, is_nat, 5353);
        let from = if family == 4 { "10.1.0.2" } else { "fd01::2" };
        let from: IpAddr = from.parse().expect("an address");
        let to: SocketAddr = (address.parse::<IpAddr>().expect("an address"), 5353).into();
        let mut names = BTreeSet::new();
        for flow in 0..24 {
            let socket = client(&bed.client, from);
            // One that is whole says who has the flow.
            let whole = echo(&socket, to, &[b'a'; 100]);
            let name = whole.split(' ').next().expect("a word").to_owned();
            assert_eq!(whole, format!("{name} true"), "{what}");
            for datagram in 0..4u8 {
                let bytes = vec![b'b' + datagram; 4000 + flow];
                let answer = echo(&socket, to, &bytes);
                assert_eq!(
                    answer,
                    format!("{name} true"),
                    "{what}: flow {flow}: {}",
                    bed.status()
                );
            }
            names.insert(name);
        }
        assert_eq!(names.len(), 2, "{what}: {names:?}");
        for ns in &bed.servers {
            let failed = bed::counter(ns, "Ip", "ReasmFails").expect("readable");
            assert_eq!(failed, Some(0), "{what}");
        }
    }
}

#[test]
fn errors_of_translated_servers_reach_the_client_as_those_of_the_service() {
    if !root("errors_of_translated_servers_reach_the_client_as_those_of_the_service") {
        return;
    }
    for (what, family, address, port) in [
        ("re4", 4, SERVICE, ""),
        ("re4p", 4, SERVICE, "\nport = 5354"),
        ("re6", 6, SERVICE6, ""),
        ("re6p", 6, SERVICE6, "\nport = 5354"),
    ] {
        let bed = Bed::new(what);
        bed.answer_directly(false);
        for ns in &bed.servers {
            for name in ["ipv4.icmp_ratelimit", "ipv6.icmp.ratelimit"] {
                ns.sysctl(&format!("net.{name}"), "0").expect("sysctl");
            }
        }
        let ways = [0, 1].map(|k| format!("{}{port}", bed.way(k)));
        let keys =
            format!("address = \"{address}\"\nprotocol = \"udp\"\nport = 5353\nmode = \"nat\"\n");
        bed.write(&service(&keys, family, &[(0, &ways[0]), (1, &ways[1])]));
        bed.apply();
        let from = if family == 4 { "10.1.0.2" } else { "fd01::2" };
        let from: IpAddr = from.parse().expect("an address");
        let to: SocketAddr = (address.parse::<IpAddr>().expect("an address"), 5353).into();
        for flow in 0..12 {
            // Nobody listens: a connected socket is told so only if the error's quote is what it sent.
            let socket = client(&bed.client, from);
            socket.connect(to).expect("a connected socket");
            let mut refused = false;
            for _ in 0..4 {
                let _ = socket.send(b"anybody?");
                let error = socket.recv(&mut [0; 10]).expect_err("no answer");
                if error.kind() == ErrorKind::ConnectionRefused {
                    refused = true;
                    break;
                }
            }
            assert!(refused, "{what}: flow {flow}: {}", bed.status());
        }
        let bad = bed::counter(&bed.client, "Icmp", "InCsumErrors").expect("readable");
        assert_eq!(bad, Some(0), "{what}");
    }
}

/// Accepts connections at these places in turn, and says by which CPU the packets of each came.
fn cpus_of(ns: &NetNs, at: SocketAddr, from: impl Fn() -> TcpStream, count: usize) -> Vec<u32> {
    let listener = ns.run(|| TcpListener::bind(at)).expect("namespace");
    let listener = listener.unwrap_or_else(|e| panic!("bind {at}: {e}"));
    let cpus = (0..count).map(|_| {
        let mut client = from();
        let (mut stream, _) = listener.accept().expect("a connection");
        // What came last says it.
        client.write_all(b"ask").expect("sent");
        stream.read_exact(&mut [0; 3]).expect("received");
        let cpu = sockopt::socket_incoming_cpu(&stream).expect("known");
        stream.write_all(b"yes").expect("sent");
        client.read_exact(&mut [0; 3]).expect("answered");
        cpu
    });
    cpus.collect()
}

#[test]
fn servers_of_this_host_get_packets_on_their_cpus() {
    if !root("servers_of_this_host_get_packets_on_their_cpus") {
        return;
    }
    let bed = Bed::new("cpu");
    let last = std::thread::available_parallelism().map_or(1, |n| n.get()) as u32 - 1;
    ip(&bed.edge, &format!("address add {SERVICE}/32 dev lo"));
    ip(
        &bed.edge,
        &format!("address add {SERVICE6}/128 dev lo nodad"),
    );
    for address in [SERVICE, SERVICE6] {
        let server = |at: &str, cpu: u32| {
            format!("[[function.service.server]]\naddress = \"{at}\"\ncpu = {cpu}\n")
        };
        let (near, far) = match address.contains(':') {
            false => ("10.1.0.1", "10.1.0.9"),
            true => ("fd01::1", "fd01::9"),
        };
        for cpu in [0, last] {
            // Whoever has the flow, it is on this CPU.
            let servers = [server(near, cpu), server(far, cpu)].concat();
            bed.write(&format!("[[function.service]]\nname = \"web\"\naddress = \"{address}\"\nprotocol = \"tcp\"\nport = 80\nmode = \"dsr\"\n{servers}"));
            bed.apply();
            let to = (address.parse::<IpAddr>().expect("an address"), 80).into();
            let connect = || bed.connect(address).expect("connects");
            let cpus = cpus_of(&bed.edge, to, connect, 8);
            assert_eq!(cpus, [cpu; 8], "{address}");
        }
        if last > 0 {
            // One server on each.
            let servers = [server(near, 0), server(far, last)].concat();
            bed.write(&format!("[[function.service]]\nname = \"web\"\naddress = \"{address}\"\nprotocol = \"tcp\"\nport = 80\nmode = \"dsr\"\n{servers}"));
            bed.apply();
            let to = (address.parse::<IpAddr>().expect("an address"), 80).into();
            let connect = || bed.connect(address).expect("connects");
            let cpus: BTreeSet<u32> = cpus_of(&bed.edge, to, connect, 24).into_iter().collect();
            assert_eq!(cpus, BTreeSet::from([0, last]), "{address}");
        }
    }
    // NAT: the stack forwards to a namespace, and what comes back from there passes the edge.
    bed.answer_directly(false);
    for address in ["192.0.2.7", "2001:db8::7"] {
        let family = if address.contains(':') { 6 } else { 4 };
        let more = format!("port = 8080\ncpu = {last}");
        bed.configure(address, "mode = \"nat\"", family, &[(0, &more), (1, &more)]);
        bed.apply();
        assert_eq!(bed.spread(address, 24), ["one", "two"]);
    }
    // What cannot work is told, and what is not there refused.
    let own = "[[function.service]]\nname = \"web\"\naddress = \"192.0.2.7\"\nprotocol = \"tcp\"\nport = 80\nmode = \"nat\"\n[[function.service.server]]\naddress = \"10.1.0.1\"\ncpu = ";
    bed.write(&format!("{own}0\n"));
    let told = stderr(&bed.apply());
    assert!(told.contains("10.1.0.1 is this host itself"), "{told}");
    bed.write(&format!("{own}255\n"));
    let config = bed.config.to_str().expect("UTF-8");
    let refused = weir(&bed.edge, &["apply", config]);
    assert!(!refused.status.success(), "CPU 255 is not there");
    assert!(
        stderr(&refused).contains("a CPU that this host does not have"),
        "{}",
        stderr(&refused)
    );
}

/// A long header (`kind` is its type in version 1: 0 Initial, 2 Handshake) or a short one, with this connection id.
fn quic(kind: Option<u8>, id: &[u8]) -> Vec<u8> {
    let mut packet = match kind {
        Some(kind) => {
            let mut packet = vec![0xc0 | kind << 4, 0, 0, 0, 1, id.len() as u8];
            packet.extend(id);
            packet.push(0);
            packet
        }
        None => [&[0x40], id].concat(),
    };
    packet.resize(1200, 0);
    packet
}

#[test]
fn quic_connections_keep_their_server_when_addresses_change() {
    if !root("quic_connections_keep_their_server_when_addresses_change") {
        return;
    }
    for (what, mode, family, address) in [
        ("q-ipip", "ipip", 4, SERVICE),
        ("q-dsr6", "dsr", 6, SERVICE6),
        ("q-nat", "nat", 4, SERVICE),
    ] {
        let bed = Bed::new(what);
        let is_nat = mode == "nat";
        bed.answer_directly(!is_nat);
        if mode == "ipip" {
            bed.decapsulate(family);
        }
        let ways = [0, 1].map(|k| format!("{}\nid = {}", bed.way(k), 0x0a01 + k));
        let keys = format!(
            "address = \"{address}\"\nprotocol = \"udp\"\nport = 443\nmode = \"{mode}\"\nquic = true\n"
        );
        bed.write(&service(&keys, family, &[(0, &ways[0]), (1, &ways[1])]));
        bed.apply();
        let _echoes = echoes(&bed, address, is_nat, 443);
        let to: SocketAddr = (address.parse::<IpAddr>().expect("an address"), 443).into();
        let places: Vec<IpAddr> = (2..6)
            .map(|host| {
                // Without the search for duplicates: until that is over nothing can be bound.
                let (address, rest) = match family {
                    4 => (format!("10.1.0.{host}"), "/24 dev c0"),
                    _ => (format!("fd01::{host}"), "/64 dev c0 nodad"),
                };
                if host > 2 {
                    ip(&bed.client, &format!("address add {address}{rest}"));
                }
                address.parse().expect("an address")
            })
            .collect();
        let name_of = |answer: String| answer.split(' ').next().expect("a word").to_owned();
        let mut seen = BTreeSet::new();
        for connection in 0..12u8 {
            let socket = client(&bed.client, places[0]);
            // The client's own choice looks like an id of server one, and says nothing.
            let chosen = [0, 0x0a, 0x01, connection, 5, 6, 7, 8];
            let name = name_of(echo(&socket, to, &quic(Some(0), &chosen)));
            let number = if name == "one" { 0x01 } else { 0x02 };
            let given = [0, 0x0a, number, connection, 9, 9, 9, 9];
            assert_eq!(name_of(echo(&socket, to, &quic(Some(2), &given))), name);
            // From other ports and addresses, and there and back.
            for at in [1, 2, 3, 0, 2] {
                let moved = client(&bed.client, places[at]);
                for packet in [quic(None, &given), quic(Some(2), &given)] {
                    assert_eq!(name_of(echo(&moved, to, &packet)), name, "{what}");
                }
            }
            seen.insert(name);
        }
        assert_eq!(seen.len(), 2, "{what}: Initial packets go by the ring");
    }
}
