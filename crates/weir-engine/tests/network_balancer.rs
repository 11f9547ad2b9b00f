//! A balancer in a virtual network over two edges: clients on one, servers on both, real connections through the balancer's home and back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::network_bed;
use crate::network_bed::{Bed, checked, root};
use weir_functions::balancer::Balancer;
use weir_functions::kind::Request;
use weir_kernel::TestCtx;
use weir_network::reference::{Balanced, Functions, Reference, What};
use weir_network::values::{Mac, mac_of_name};
use weir_network::{Device, Host};
use weir_packet::build::Frame;

/// Clients behind the balancer's `a`, a router behind its `b`, and servers behind that. Its home is not where the clients are.
const BASE: &str = r#"
[[edge]]
name = "e0"
underlay = "192.0.2.1"
device = "under0"
mtu = 1600
tunnel = "geneve"

[[edge]]
name = "e1"
underlay = "192.0.2.2"
device = "under0"
mtu = 1600
tunnel = "geneve"

[[tenant]]
name = "red"

[[network]]
name = "n"
tenant = "red"

[[network.subnet]]
name = "web"
prefix = ["10.1.0.0/24", "fd00:1::/64"]

[[network.subnet]]
name = "db"
prefix = ["10.2.0.0/24", "fd00:2::/64"]

[[network.function]]
name = "gw"
kind = "router"
interface = [
  { name = "web", address = ["10.1.0.1/24", "fd00:1::1/64"] },
  { name = "db", address = ["10.2.0.1/24", "fd00:2::1/64"] },
]

[[network.link]]
from = "web"
to = "lb"

[[network.link]]
from = "lb"
to = "gw.web"

[[network.link]]
from = "db"
to = "gw.db"

[[network.workload]]
name = "client"
subnet = "web"
edge = "e0"
device = "client"
address = ["10.1.0.10", "fd00:1::10"]
"#;

/// Who says who he is listens on 7001, who sends back on 7000; on 9054 nobody.
const SERVICES: [(&str, &str, u16, u16); 6] = [
    ("who", "tcp 10.9.0.1", 80, 7001),
    ("who6", "tcp fd00:9::1", 80, 7001),
    ("back", "tcp 10.9.0.1", 7000, 7000),
    ("back6", "tcp fd00:9::1", 7000, 7000),
    ("name", "udp 10.9.0.1", 53, 9053),
    ("closed", "udp 10.9.0.1", 54, 9054),
];

/// The keys of the balancer.
fn keys(servers: &[&str]) -> String {
    let mut text = String::from("connections = 4096\nservers = 64\nring = 251\nservice = [\n");
    for (name, at, port, to) in SERVICES {
        let (protocol, address) = at.split_once(' ').expect("both");
        let net = if address.contains(':') {
            "fd00:2::"
        } else {
            "10.2.0."
        };
        let servers: Vec<String> = servers
            .iter()
            .map(|server| {
                let to = if port == to {
                    String::new()
                } else {
                    format!(", port = {to}")
                };
                format!("{{ address = \"{net}{}\"{to} }}", &server[1..])
            })
            .collect();
        text.push_str(&format!(
            "  {{ name = \"{name}\", address = \"{address}\", protocol = \"{protocol}\", port = {port}, mode = \"nat\", server = [{}] }},\n",
            servers.join(", ")
        ));
    }
    text + "]\n"
}

/// A document with these workloads as servers: `s10` has the addresses that end in 10. Those with even numbers are on e0.
fn document(version: u32, servers: &[&str], workloads: &[&str]) -> String {
    let mut text = format!("version = {version}\n{BASE}");
    for name in workloads {
        let host: u32 = name[1..].parse().expect("a number");
        text.push_str(&format!(
            "[[network.workload]]\nname = \"{name}\"\nsubnet = \"db\"\nedge = \"e{}\"\ndevice = \"{name}\"\naddress = [\"10.2.0.{host}\", \"fd00:2::{host}\"]\n",
            host % 2
        ));
    }
    text + &format!(
        "[[network.function]]\nname = \"lb\"\nkind = \"balancer\"\nhome = \"e1\"\n{}",
        keys(servers)
    )
}

const CLIENT: &str = "n/client";
const WAIT: Duration = Duration::from_secs(3);

fn vip(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 9, 0, 1).into(), port)
}

impl Client<'_> {
    /// Who answers so many connections, and how often.
    fn who(&self, to: SocketAddr, connections: usize) -> BTreeMap<String, usize> {
        let ask = || {
            let mut answers = BTreeMap::new();
            for _ in 0..connections {
                let mut name = String::new();
                let mut stream = TcpStream::connect_timeout(&to, WAIT).expect("connected");
                stream.set_read_timeout(Some(WAIT)).expect("set");
                stream.read_to_string(&mut name).expect("an answer");
                *answers.entry(name).or_default() += 1;
            }
            answers
        };
        self.run(ask)
    }

    /// Connections that stay.
    fn hold(&self, connections: usize) -> Vec<TcpStream> {
        let connect = || {
            let made = (0..connections).map(|_| {
                let stream = TcpStream::connect_timeout(&vip(7000), WAIT).expect("connected");
                stream.set_read_timeout(Some(WAIT)).expect("set");
                stream
            });
            made.collect()
        };
        self.run(connect)
    }

    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.workloads[CLIENT]
            .ns
            .run(work)
            .expect("in the namespace")
    }
}

struct Client<'b>(&'b Bed);

fn talk(stream: &mut TcpStream, word: &[u8; 4]) {
    let mut back = [0; 4];
    stream.write_all(word).expect("sent");
    stream.read_exact(&mut back).expect("sent back");
    assert_eq!(&back, word);
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| format!("n/{name}")).collect()
}

/// Counts by service and server, as `weir net show` has them.
fn flows(bed: &Bed, servers: &[&str]) -> BTreeMap<String, (u64, u64)> {
    let counts = bed
        .look("e1")
        .balancer("n/lb")
        .expect("read")
        .expect("it runs");
    let keys = keys(servers).parse().expect("TOML");
    let request = Request {
        name: "n/lb",
        keys: &keys,
        files: &network_bed::NoFiles,
        ports: &[],
        transmits: false,
    };
    let model = Balancer::read(&request).expect("read");
    let of = |service: &weir_functions::balancer::Service| {
        let servers = service.servers.iter();
        let servers = servers.map(|one| counts.servers[&service.server_identity(one)].flows);
        (counts.services[&service.identity()].flows, servers.sum())
    };
    let services = model.services.iter();
    services.map(|one| (one.name.clone(), of(one))).collect()
}

#[test]
fn connections_of_a_tenant_are_balanced_over_servers_on_two_edges() {
    if !root("connections_of_a_tenant_are_balanced_over_servers_on_two_edges") {
        return;
    }
    let workloads = ["s10", "s11", "s12"];
    let first = document(1, &["s10", "s11"], &workloads);
    let bed = Bed::new(&checked(&first).document);
    bed.apply(&first);
    let client = Client(&bed);
    let drops = || (bed.drops("e0"), bed.drops("e1"));
    for to in [
        vip(80),
        SocketAddr::new("fd00:9::1".parse().expect("one"), 80),
    ] {
        let answers = client.who(to, 24);
        let names: BTreeSet<String> = answers.keys().cloned().collect();
        assert_eq!(
            names,
            set(&["s10", "s11"]),
            "{to}: {answers:?} {:?}",
            drops()
        );
    }
    // Segments that the kernel cuts later, and checksums that are left to devices.
    for at in ["10.9.0.1", "fd00:9::1"] {
        let at: IpAddr = at.parse().expect("an address");
        let whole = bed.echo(CLIENT, at, 5_000_000);
        assert_eq!(whole.expect("echoed"), 5_000_000, "{at} {:?}", drops());
        let said = bed.ping(CLIENT, &[&at.to_string()]);
        assert!(said.contains(" 2 received"), "{said} {:?}", drops());
    }
    datagrams(&bed);
    // Who is not a client of the service is none of its affair.
    assert_eq!(
        bed.who(CLIENT, "10.2.0.12".parse().expect("one"))
            .as_deref(),
        Some("n/s12")
    );
    let counted = flows(&bed, &["s10", "s11"]);
    assert_eq!((counted["who"], counted["who6"]), ((24, 24), (24, 24)));
    assert_eq!((counted["back"], counted["back6"]), ((1, 1), (1, 1)));

    // A server more, in front of the others: flows stay where they are, whatever the ring says now.
    let mut held = client.hold(24);
    held.iter_mut().for_each(|stream| talk(stream, b"one "));
    let now = ["s12", "s10", "s11"];
    let second = document(2, &now, &workloads);
    bed.apply(&second);
    held.iter_mut().for_each(|stream| talk(stream, b"two "));
    let answers = client.who(vip(80), 40);
    let names: BTreeSet<String> = answers.keys().cloned().collect();
    assert_eq!(names, set(&now), "{answers:?} {:?}", drops());
    // More than the maps of the edges hold: they are made anew, and flows are still where they were.
    let mut larger = document(3, &now, &workloads);
    for at in 0..150 {
        larger.push_str(&format!("[[network.subnet]]\nname = \"x{at}\"\n"));
    }
    let applied = bed.apply(&larger);
    assert!(applied.values().all(|one| one.remade), "{applied:?}");
    held.iter_mut().for_each(|stream| talk(stream, b"more"));
    assert_eq!(flows(&bed, &now)["back"], (25, 25));
    // One that is taken out loses its flows, and only it; new ones go to the rest.
    let third = document(4, &["s12", "s11"], &workloads);
    bed.apply(&third);
    let answers = client.who(vip(80), 40);
    let names: BTreeSet<String> = answers.keys().cloned().collect();
    assert_eq!(names, set(&["s11", "s12"]), "{answers:?} {:?}", drops());
    let alive = held.iter().filter(|stream| {
        let (mut stream, mut back) = (*stream, [0; 4]);
        stream.write_all(b"last").is_ok() && stream.read_exact(&mut back).is_ok()
    });
    let alive = alive.count();
    assert!(
        (1..24).contains(&alive),
        "{alive} of 24 connections are left"
    );
}

/// UDP to a service, and what a server's host says of a port that is closed there.
fn datagrams(bed: &Bed) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["n/s10", "n/s11"] {
            let bind = || UdpSocket::bind("0.0.0.0:9053").expect("bound");
            let socket = bed.workloads[name].ns.run(bind).expect("in the namespace");
            socket
                .set_read_timeout(Some(Duration::from_millis(20)))
                .expect("set");
            let stop = &stop;
            scope.spawn(move || {
                let mut block = [0; 4000];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((n, from)) = socket.recv_from(&mut block) {
                        socket.send_to(&block[..n], from).expect("sent");
                    }
                }
            });
        }
        let ask = || {
            let mut back = [0; 4000];
            // The last one goes in fragments, there and back.
            for size in [1, 700, 1400, 3500] {
                let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
                socket.set_read_timeout(Some(WAIT)).expect("set");
                socket.connect(vip(53)).expect("connected");
                socket.send(&vec![7; size]).expect("sent");
                assert_eq!(socket.recv(&mut back).expect("an answer"), size);
            }
            let socket = UdpSocket::bind("0.0.0.0:0").expect("bound");
            socket.set_read_timeout(Some(WAIT)).expect("set");
            socket.connect(vip(54)).expect("connected");
            socket.send(b"anybody?").expect("sent");
            socket.recv(&mut back).expect_err("nobody").kind()
        };
        let refused = bed.workloads[CLIENT].ns.run(ask);
        stop.store(true, Ordering::Relaxed);
        // The error quotes what the server got; it arrives because the balancer made it one about what was sent.
        assert_eq!(
            refused.expect("in the namespace"),
            ErrorKind::ConnectionRefused
        );
    });
}

/// Devices of an edge of the bed.
struct Devices(Vec<(String, u32)>);

impl Host for Devices {
    fn device(&self, name: &str) -> Option<Device> {
        let found = self.0.iter().find(|(known, _)| known == name)?;
        Some(Device {
            index: found.1,
            peer: true,
        })
    }

    fn kernel_tunnel(&self) -> Option<u32> {
        None
    }
}

/// A frame of a workload to its router.
fn frame(
    from: &str,
    mac: [u8; 6],
    router: Mac,
    made: impl FnOnce(Frame) -> Frame,
    to: &str,
) -> Vec<u8> {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    let frame = match (ip(from), ip(to)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Frame::new().ip4(from.octets(), to.octets()),
        (IpAddr::V6(from), IpAddr::V6(to)) => Frame::new().ip6(from.octets(), to.octets()),
        _ => panic!("one family"),
    };
    let mut bytes = made(frame).build();
    bytes[..6].copy_from_slice(&router.0);
    bytes[6..12].copy_from_slice(&mac);
    bytes
}

#[test]
fn the_data_plane_balances_as_the_reference_says() {
    if !root("the_data_plane_balances_as_the_reference_says") {
        return;
    }
    // Everybody on the balancer's edge.
    let text = document(1, &["s11", "s13", "s15"], &["s11", "s13", "s15"]).replace(
        "edge = \"e0\"\ndevice = \"client\"",
        "edge = \"e1\"\ndevice = \"client\"",
    );
    let networks = checked(&text);
    let bed = Bed::new(&networks.document);
    bed.apply(&text);
    let mut look = bed.look("e1");
    let plan = networks.plan("e1", &look.numbers).expect("planned");
    let names = ["client", "s11", "s13", "s15", "under0"];
    let index = |name: &&str| {
        let index = || weir_kernel::iface::index_of(name).expect("there");
        (
            (*name).to_owned(),
            bed.edges["e1"].run(index).expect("in the namespace"),
        )
    };
    let devices = Devices(names.iter().map(index).collect());
    let tables = plan
        .tables(&devices, look.capacity.buckets)
        .expect("tables");
    let router = |side: &str| mac_of_name(&format!("n/gw.{side}"));
    let mac = |name: &str| bed.workloads[&format!("n/{name}")].mac;
    let mut cases = Vec::new();
    for port in 2000..2040u16 {
        for (client, service, server) in [
            ("10.1.0.10", "10.9.0.1", "10.2.0.13"),
            ("fd00:1::10", "fd00:9::1", "fd00:2::13"),
        ] {
            let payload = vec![0x5a; usize::from(port) % 37];
            let out = |made: &dyn Fn(Frame) -> Frame| {
                let made = |frame| made(frame).payload(&payload);
                (
                    "client",
                    frame(client, mac("client"), router("web"), made, service),
                )
            };
            // One of the servers is who the flow was given to; from the others it is no answer.
            let back = |made: &dyn Fn(Frame) -> Frame| {
                ["s11", "s13", "s15"].map(|name| {
                    let server = server.replace("13", &name[1..]);
                    let made = |frame| made(frame).payload(&payload);
                    (name, frame(&server, mac(name), router("db"), made, client))
                })
            };
            let echo = if client.contains(':') { 128 } else { 8 };
            cases.extend([
                out(&|frame| frame.tcp(port, 80)),
                out(&|frame| frame.tcp(port, 7000)),
                out(&|frame| frame.icmp(echo, 0).echo(port, 1)),
            ]);
            // Over IPv6 no service has it, and routers answer so many errors only.
            if service.contains('.') {
                cases.push(out(&|frame| frame.udp(port, 53)));
            }
            for (protocol, from) in [("tcp", 7001), ("tcp", 7000), ("udp", 9053), ("udp", 9055)] {
                cases.extend(back(&|frame| match protocol {
                    "tcp" => frame.tcp(from, port),
                    _ => frame.udp(from, port),
                }));
            }
            // The router behind the balancer says that this one is too old: 40 of the 50 errors that it may send at once.
            if port < 2020 {
                cases.push(out(&|frame| frame.tcp(port, 7000).ttl(1)));
            }
            // Errors of servers, and of clients about what servers sent: what they quote need not be whole.
            let quoted = |from: &str, to: &str, ports: (u16, u16)| {
                let mac = mac("client");
                let made = |frame: Frame| match port % 2 {
                    0 => frame.udp(ports.0, ports.1).payload(&payload),
                    _ => frame.tcp(ports.0, ports.1).payload(&payload),
                };
                let frame = frame(from, mac, router("web"), made, to);
                let whole = frame[14..].to_vec();
                // The first 8 bytes behind the header are what every error has.
                let head = if from.contains(':') { 40 } else { 20 };
                whole[..whole.len().min(head + 8 + usize::from(port) % 31)].to_vec()
            };
            let (kind, code) = if client.contains(':') { (1, 4) } else { (3, 3) };
            let to_server = quoted(
                client,
                server,
                (port, if port % 2 == 0 { 9053 } else { 7001 }),
            );
            let error = |frame: Frame| frame.icmp(kind, code).payload(&to_server);
            cases.push((
                "s13",
                frame(server, mac("s13"), router("db"), error, client),
            ));
            let is_udp = port % 2 == 0;
            if service.contains('.') || !is_udp {
                let to_client = quoted(service, client, (if is_udp { 53 } else { 80 }, port));
                let error = |frame: Frame| frame.icmp(kind, code).payload(&to_client);
                cases.push((
                    "client",
                    frame(client, mac("client"), router("web"), error, service),
                ));
            }
        }
    }
    let index = |device: &str| devices.device(device).expect("one").index;
    let run = || {
        let program = look.set.program_mut("workload").expect("open");
        let one = |(device, bytes): &(&str, Vec<u8>)| {
            let mut out = Vec::new();
            let ctx = TestCtx {
                ingress_ifindex: index(device),
                ..TestCtx::default()
            };
            let ran = program.test_run(bytes, &mut out, ctx).expect("ran");
            (ran.retval, out)
        };
        cases.iter().map(one).collect::<Vec<_>>()
    };
    let ran = bed.edges["e1"].run(run).expect("in the namespace");
    // Once more as a device delivers them that sums up what it receives: the kernel checks that its sum is that of the bytes afterwards.
    let complete = || {
        let program = look.set.program_mut("workload").expect("open");
        let mut wrong = Vec::new();
        for (at, (device, bytes)) in cases.iter().enumerate() {
            let ctx = TestCtx {
                ingress_ifindex: index(device),
                checksum_complete: true,
                ..TestCtx::default()
            };
            if let Err(error) = program.test_run(bytes, &mut Vec::new(), ctx) {
                wrong.push(format!("case {at}: {error}"));
            }
        }
        wrong
    };
    let release = weir_kernel::probes::kernel_release();
    if !weir_kernel::probes::release_at_least(&release, "6.11") {
        eprintln!("sums of devices are not checked: Linux {release} has no such test runs");
    } else {
        let wrong = bed.edges["e1"].run(complete).expect("in the namespace");
        assert!(wrong.is_empty(), "{} wrong sums: {wrong:?}", wrong.len());
    }
    let mut functions = Functions::of(&plan);
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, ((device, bytes), (action, out))) in cases.iter().zip(&ran).enumerate() {
        let mut reference = Reference::new(&tables);
        let walk = reference.from_device(index(device), bytes, &mut functions);
        let [leaving] = walk.leaving.as_slice() else {
            panic!("case {at}: {walk:#?}");
        };
        for step in &walk.steps {
            let kind = match step.what {
                What::Balanced(Balanced::Given { .. }) => "given",
                What::Balanced(Balanced::Returned { .. }) => "returned",
                What::Balanced(Balanced::Echoed { .. }) => "echoed",
                What::Balanced(Balanced::Quoted { .. }) => "quoted",
                What::Passed { .. } => "passed",
                _ => continue,
            };
            *seen.entry(kind).or_default() += 1;
        }
        // Redirected, with the bytes that the reference says.
        assert_eq!(*action, 7, "case {at}: {:?}", bed.drops("e1"));
        assert_eq!(
            *out, leaving.frame,
            "case {at}, {bytes:02x?}\n{:#?}",
            walk.steps
        );
    }
    eprintln!("{seen:?}");
    let want = [
        ("echoed", 80),
        ("given", 240),
        ("passed", 821),
        ("quoted", 119),
        ("returned", 200),
    ];
    assert_eq!(seen, BTreeMap::from(want));
}
