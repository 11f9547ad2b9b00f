//! Five edges that follow one store, three tenants with the same addresses, 24 workloads: who reaches whom, what forged frames reach, a change, an
//! edge without connection, and a workload that moves.
//!
//! `WEIR_LONG=1`: fifty workloads, more changes are timed, and the edge is cut off for a minute.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use weir_kernel::{Frames, NetNs, PacketSocket};
use weir_packet::build::Frame;
use weir_testdata::etcd::has_etcd;

use crate::live_bed::{root, stderr};
use crate::live_store_bed::{
    ANSWER, Bed, Edge, PATIENCE, SILENCE, Station, Stream, cluster_in, join, report,
};

/// Edges of the bed.
const EDGES: usize = 5;

/// The tenants, and the last bytes of their workloads' addresses. None has all; a workload is on edge `host % 5`, those of `sky` on the first four
/// only.
const TENANTS: [(&str, std::ops::RangeInclusive<u8>); 3] =
    [("red", 1..=17), ("blue", 2..=18), ("sky", 3..=18)];

/// The highest last byte in the short form: two workloads of a tenant on the last edge.
const SHORT: u8 = 9;

/// Which edge a workload is on.
fn edge_of(tenant: &str, host: u8) -> usize {
    let edges = if tenant == "sky" { EDGES - 1 } else { EDGES };
    usize::from(host) % edges
}

type Stations = BTreeMap<(&'static str, u8), Station>;

#[test]
fn workloads_of_three_tenants_on_five_edges() {
    let test = "workloads_of_three_tenants_on_five_edges";
    if !root(test) || !has_etcd() {
        return;
    }
    let is_long = std::env::var_os("WEIR_LONG").is_some();
    let core = NetNs::create("wsmc").expect("a namespace");
    let mut bed = Bed::new(&core, EDGES);
    let mut cluster = cluster_in(&core, &bed.folder.join("etcd"));
    cluster.start_all();
    bed.configure(&cluster);
    for edge in &mut bed.edges {
        edge.start();
    }
    let mut stations = Stations::new();
    for (tenant, hosts) in TENANTS {
        let mut list = Vec::new();
        for host in hosts.filter(|host| is_long || *host <= SHORT) {
            let (edge, name) = (edge_of(tenant, host), format!("w{host}"));
            let network = format!("{tenant}-net");
            let station = Station::new(&bed.edges[edge], &network, &name, host);
            stations.insert((tenant, host), station);
            list.push((name, edge, host));
        }
        let list: Vec<_> = list.iter().map(|(n, e, h)| (n.as_str(), *e, *h)).collect();
        let document = bed.document(tenant, 1, &list, tenant == "red");
        bed.edges[0].done(&["net", "store", "push", &document, "--wait", "30s"]);
    }
    assert_eq!(stations.len(), if is_long { 50 } else { 24 });
    reach_as_declared(&stations, if is_long { 18 } else { SHORT });
    forged_frames_reach_nobody(&bed, &core, &stations);
    changes_are_everywhere_soon(&bed, &stations, if is_long { 50 } else { 5 });
    an_edge_is_cut_off(&bed, &core, &stations, if is_long { 60 } else { 3 });
    a_workload_moves(&bed, &stations);
}

/// Each workload sends to each address of its subnet: exactly the workloads of its own network answer.
fn reach_as_declared(stations: &Stations, last: u8) {
    let (mut answered, mut silent) = (0, 0);
    for ((tenant, host), from) in stations {
        // Addresses that only other tenants have: tried by one workload of each edge, as each takes its time.
        for other in (1..=last).filter(|other| other != host) {
            let is_there = stations.contains_key(&(*tenant, other));
            if !is_there && *host > 7 {
                continue;
            }
            let patience = if is_there { ANSWER } else { SILENCE };
            let wanted = is_there.then(|| format!("{tenant}-net/w{other}"));
            let answer = from.asks(other, patience);
            assert_eq!(answer, wanted, "{tenant}/w{host} to 10.1.0.{other}");
            *(if is_there { &mut answered } else { &mut silent }) += 1;
        }
    }
    report(&format!(
        "{answered} pairs reach each other, {silent} that are not declared do not"
    ));
}

/// Who may see a frame that carries a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Nobody but its sender.
    Nobody,
    /// Workloads of the sender's network: it is an ordinary frame there.
    OwnNetwork,
}

fn forged_frames_reach_nobody(bed: &Bed, core: &NetNs, stations: &Stations) {
    let sockets: BTreeMap<_, _> = stations
        .iter()
        .map(|(key, station)| {
            let socket = station.ns.run(|| PacketSocket::open("eth0"));
            (*key, socket.expect("namespace").expect("a packet socket"))
        })
        .collect();
    let identifiers = identifiers(&bed.edges[0]);
    assert_eq!(identifiers.len(), 3, "one for each subnet");
    // What each mark stands for, the tenant that sent it, and who may see it.
    let mut marks: Vec<(String, &str, u8, Seen)> = Vec::new();
    let mark = |n: usize| format!("forged {n:05} forged").into_bytes();
    for ((tenant, host), socket) in &sockets {
        if *host > 7 {
            continue;
        }
        for (what, seen, make) in from_workload(tenant, *host, &identifiers) {
            let frame = make(&mark(marks.len()));
            // The kernel refuses some by itself; those reach nobody either.
            let _ = socket.send(&frame);
            marks.push((what, tenant, *host, seen));
        }
    }
    // An ordinary frame arrives: the marks are looked for where they would be seen.
    let seen_by_own = marks.iter().filter(|m| m.3 == Seen::OwnNetwork).count();
    let stranger = stranger(core);
    for (what, sent) in from_underlay(&stranger, &identifiers, |n| mark(marks.len() + n)) {
        assert!(sent, "{what}");
        marks.push((what, "", 0, Seen::Nobody));
    }
    std::thread::sleep(Duration::from_millis(500));
    let mut arrived = 0;
    let mut frames = Frames::new();
    for ((tenant, host), socket) in &sockets {
        while socket.receive(&mut frames).expect("received") > 0 {
            for (frame, _) in frames.iter() {
                let Some(at) = frame.windows(7).position(|w| w == b"forged ") else {
                    continue;
                };
                let number = frame.get(at + 7..at + 12).expect("whole");
                let number: usize = String::from_utf8_lossy(number).parse().expect("a number");
                let (what, from, sender, seen) = &marks[number];
                if (from, sender) == (tenant, host) {
                    continue;
                }
                assert!(
                    *seen == Seen::OwnNetwork && from == tenant,
                    "{what}, from {from}/w{sender}, reached {tenant}/w{host}"
                );
                arrived += 1;
            }
        }
        assert_eq!(socket.missed().expect("counted"), 0);
    }
    assert!(arrived >= seen_by_own, "{arrived} of {seen_by_own}");
    report(&format!(
        "{} forged frames, none where it may not be; {seen_by_own} others were seen {arrived} times in their own networks",
        marks.len() - seen_by_own
    ));
}

/// The identifiers of all subnets.
fn identifiers(edge: &Edge) -> Vec<u32> {
    let text = edge.done(&["net", "store", "export"]);
    let lines = text.lines().filter_map(|line| {
        let value = line.trim().strip_prefix("identifier")?;
        value.trim_start_matches([' ', '=']).parse().ok()
    });
    lines.collect()
}

type Make = Box<dyn Fn(&[u8]) -> Vec<u8>>;

fn mac(tenant: &str, host: u8) -> [u8; 6] {
    weir_network::values::mac_of_name(&format!("{tenant}-net/w{host}")).0
}

/// Frames that a workload sends under names that are not its own, or to networks that are not.
fn from_workload(tenant: &str, host: u8, identifiers: &[u32]) -> Vec<(String, Seen, Make)> {
    let own = mac(tenant, host);
    let (ip, near, far) = ([10, 1, 0, host], [10, 1, 0, 8], [10, 1, 0, 9]);
    let (near_mac, far_mac) = (mac(tenant, 8), mac(tenant, 9));
    let mut all: Vec<(String, Seen, Make)> = Vec::new();
    let mut add = |what: &str, seen, make: Make| all.push((what.to_owned(), seen, make));
    let udp = move |to: [u8; 6], from: [u8; 6], source: [u8; 4], target: [u8; 4]| -> Make {
        Box::new(move |mark| {
            let frame = Frame::new().ip4(source, target).udp(4000, 4000);
            ethernet(to, from, frame.payload(mark).build())
        })
    };
    add(
        "an ordinary packet",
        Seen::OwnNetwork,
        udp(far_mac, own, ip, far),
    );
    for other in TENANTS.map(|(name, _)| name) {
        if other != tenant {
            let what = "a workload of another tenant by its MAC address";
            add(what, Seen::OwnNetwork, udp(mac(other, 9), own, ip, far));
        }
    }
    add(
        "a neighbour's MAC address",
        Seen::Nobody,
        udp(far_mac, near_mac, ip, far),
    );
    add(
        "a group as its MAC address",
        Seen::Nobody,
        udp(far_mac, [3, 0, 0, 0, 0, 1], ip, far),
    );
    for (what, source) in [
        ("a neighbour's address", near),
        ("an address of another subnet", [10, 7, 0, 1]),
        ("the address of an edge", [10, 9, 0, 1]),
        ("an address of the host itself", [127, 0, 0, 1]),
        ("a group's address", [224, 0, 0, 1]),
    ] {
        add(what, Seen::Nobody, udp(far_mac, own, source, far));
    }
    add(
        "a neighbour's address, to all",
        Seen::Nobody,
        udp([255; 6], own, near, [255; 4]),
    );
    let fragment: Make = Box::new(move |mark| {
        let frame = Frame::new().ip4(near, far).fragment(8, false).protocol(17);
        ethernet(far_mac, own, frame.payload(mark).build())
    });
    add(
        "a fragment from a neighbour's address",
        Seen::Nobody,
        fragment,
    );
    let tagged: Make = Box::new(move |mark| {
        let frame = Frame::new().vlan(7).ip4(near, far).udp(4000, 4000);
        ethernet(far_mac, own, frame.payload(mark).build())
    });
    add(
        "a neighbour's address behind a VLAN tag",
        Seen::Nobody,
        tagged,
    );
    let six = |last: u8| [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    for (what, kind) in [
        ("a neighbour advertisement", 136),
        ("a router advertisement", 134),
    ] {
        let make: Make = Box::new(move |mark| {
            let frame = Frame::new().ip6(six(8), six(9)).ttl(255).icmp(kind, 0);
            let body = [&[0; 4], six(8).as_slice(), mark].concat();
            ethernet(far_mac, own, frame.payload(&body).build())
        });
        add(what, Seen::Nobody, make);
    }
    for (what, operation, sender_mac, sender) in [
        ("an ARP reply for a neighbour's address", 2, own, near),
        ("an ARP request from a neighbour's address", 1, own, near),
        (
            "an ARP reply with a neighbour's MAC address",
            2,
            near_mac,
            ip,
        ),
    ] {
        let make: Make = Box::new(move |mark| {
            let mut arp = vec![0, 1, 8, 0, 6, 4, 0, operation];
            arp.extend([sender_mac.as_slice(), &sender, &far_mac, &far].concat());
            arp.extend(mark);
            ethernet(
                [255; 6],
                own,
                Frame::new().ether_type(0x0806).payload(&arp).build(),
            )
        });
        add(what, Seen::Nobody, make);
    }
    // A tunnel of its own making: the edges do not take it, and nobody else has the address.
    for &identifier in identifiers {
        let make: Make = Box::new(move |mark| {
            let inner = Frame::new()
                .ip4(near, far)
                .udp(4000, 4000)
                .payload(mark)
                .build();
            let inner = ethernet(far_mac, near_mac, inner);
            let outer = Frame::new().ip4(ip, [10, 9, 0, 2]).udp(50_000, 4789);
            ethernet(
                [255; 6],
                own,
                outer.payload(&vxlan(identifier, &inner)).build(),
            )
        });
        // To all: an ordinary packet of its own network, whatever is in it.
        add("a tunnel packet to an edge", Seen::OwnNetwork, make);
    }
    all
}

/// The frame with these addresses.
fn ethernet(to: [u8; 6], from: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame
}

/// A VXLAN header (RFC 7348, section 5) and what it carries.
fn vxlan(identifier: u32, inner: &[u8]) -> Vec<u8> {
    [
        &[8, 0, 0, 0],
        (identifier << 8).to_be_bytes().as_slice(),
        inner,
    ]
    .concat()
}

/// A Geneve header without options (RFC 8926, section 3.4) and what it carries.
fn geneve(identifier: u32, inner: &[u8]) -> Vec<u8> {
    [
        &[0, 0, 0x65, 0x58],
        (identifier << 8).to_be_bytes().as_slice(),
        inner,
    ]
    .concat()
}

/// A host on the bridge that no document names.
fn stranger(core: &NetNs) -> NetNs {
    let ns = NetNs::create("wsms").expect("a namespace");
    join((&ns, "eth0", &["10.9.0.77/24"]), (core, "stranger", &[]));
    core.ip(&["link", "set", "stranger", "master", "br0"])
        .expect("set");
    ns
}

/// Tunnel packets from a host that is no edge, and from the address of an edge that has no part in the network; whether each was sent.
fn from_underlay(
    stranger: &NetNs,
    identifiers: &[u32],
    mark: impl Fn(usize) -> Vec<u8>,
) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    let socket = stranger.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 50_001)));
    let socket = socket.expect("namespace").expect("binds");
    let raw = stranger.run(|| PacketSocket::open("eth0"));
    let raw = raw.expect("namespace").expect("a packet socket");
    for edge in 1..=EDGES as u8 {
        for &identifier in identifiers.iter().chain(&[0xff_ffff, 0]) {
            for (kind, port) in [("VXLAN", 4789), ("Geneve", 6081)] {
                let inner = |n: usize| {
                    let frame = Frame::new().ip4([10, 1, 0, 8], [10, 1, 0, 9]);
                    let frame = frame.udp(4000, 4000).payload(&mark(n)).build();
                    let frame = ethernet([255; 6], mac("red", 8), frame);
                    let wrap = if port == 4789 { vxlan } else { geneve };
                    wrap(identifier, &frame)
                };
                let body = inner(all.len());
                let sent = socket
                    .send_to(&body, (Ipv4Addr::new(10, 9, 0, edge), port))
                    .is_ok();
                all.push((format!("{kind} from a host that is no edge"), sent));
            }
        }
        // The last identifier is that of `sky`, which the fifth edge has no part in.
        let (Some(&identifier), true) = (identifiers.last(), usize::from(edge) < EDGES) else {
            continue;
        };
        let to = neighbour(stranger, Ipv4Addr::new(10, 9, 0, edge));
        let inner = Frame::new()
            .ip4([10, 1, 0, 8], [10, 1, 0, 9])
            .udp(4000, 4000);
        let inner = ethernet(
            [255; 6],
            mac("sky", 8),
            inner.payload(&mark(all.len())).build(),
        );
        let outer = Frame::new()
            .ip4([10, 9, 0, 5], [10, 9, 0, edge])
            .udp(50_000, 6081);
        let frame = outer.payload(&geneve(identifier, &inner)).build();
        let sent = raw
            .send(&ethernet(to, [2, 0, 0, 0, 0, 0x77], frame))
            .is_ok();
        all.push(("an edge that has no part in the network".to_owned(), sent));
    }
    all
}

/// The MAC address of another host on the bridge, resolved by a datagram to it.
fn neighbour(ns: &NetNs, address: Ipv4Addr) -> [u8; 6] {
    let socket = ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let socket = socket.expect("namespace").expect("binds");
    let text = address.to_string();
    let until = Instant::now() + PATIENCE;
    loop {
        let _ = socket.send_to(b"?", (address, 9));
        let known = ns.ip(&["neighbour", "show", &text]).expect("neighbours");
        let word = known
            .split_whitespace()
            .skip_while(|word| *word != "lladdr")
            .nth(1);
        if let Some(word) = word {
            let bytes = word
                .split(':')
                .map(|b| u8::from_str_radix(b, 16).expect("hexadecimal"));
            return bytes.collect::<Vec<_>>().try_into().expect("six bytes");
        }
        assert!(Instant::now() < until, "{address} is not resolved");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One workload more and less.
fn changes_are_everywhere_soon(bed: &Bed, stations: &Stations, count: usize) {
    let station = Station::new(&bed.edges[4], "red-net", "w19", 19);
    let (mut times, mut written) = (Vec::new(), Vec::new());
    for _ in 0..count {
        for edge in &bed.edges {
            edge.agent().skip();
        }
        let begun = Instant::now();
        add_to_red(bed, 4, 19);
        written.push(begun.elapsed());
        for edge in &bed.edges {
            edge.agent().event("applied");
        }
        times.push(begun.elapsed());
        for from in 1..=5 {
            let answer = stations[&("red", from)].asks(19, ANSWER);
            assert_eq!(answer.as_deref(), Some("red-net/w19"));
        }
        for edge in &bed.edges {
            edge.agent().skip();
        }
        bed.edges[0].done(&["net", "store", "workload", "delete", "red-net/w19"]);
        for edge in &bed.edges {
            edge.agent().event("applied");
        }
    }
    drop(station);
    times.sort();
    written.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    report(&format!(
        "one workload, from the command's start to all five edges: p50 {:?}, p99 {:?}, {count} changes; until the command ended: p50 {:?}",
        at(50),
        at(99),
        written[(written.len() - 1) / 2]
    ));
}

fn add_to_red(bed: &Bed, edge: usize, host: u8) {
    let (name, device) = (format!("red-net/w{host}"), format!("red-w{host}"));
    let (on, address) = (&bed.edges[edge].name, format!("10.1.0.{host}"));
    bed.edges[0].done(&[
        "net",
        "store",
        "workload",
        "add",
        &name,
        "--subnet",
        "web",
        "--on",
        on,
        "--device",
        &device,
        "--address",
        &address,
    ]);
}

/// Changes go on without the fifth edge, which keeps what it has and takes them in afterwards.
fn an_edge_is_cut_off(bed: &Bed, core: &NetNs, stations: &Stations, seconds: u64) {
    let new = Station::new(&bed.edges[0], "red-net", "w20", 20);
    let between_others = Stream::start(&stations[&("red", 1)], 2);
    // Both on the edge that is cut off.
    let within = Stream::start(&stations[&("red", 4)], 9);
    core.ip(&["link", "set", "up5", "down"]).expect("down");
    add_to_red(bed, 0, 20);
    let gone = "blue-net/w7";
    bed.edges[0].done(&["net", "store", "workload", "delete", gone]);
    std::thread::sleep(Duration::from_secs(seconds));
    let answer = stations[&("red", 2)].asks(20, ANSWER);
    assert_eq!(
        answer.as_deref(),
        Some("red-net/w20"),
        "without the fifth edge"
    );
    core.ip(&["link", "set", "up5", "up"]).expect("up");
    let begun = Instant::now();
    bed.edges[0].status("60s");
    let converged = begun.elapsed();
    let answer = stations[&("red", 4)].asks(20, ANSWER);
    assert_eq!(
        answer.as_deref(),
        Some("red-net/w20"),
        "from the fifth edge"
    );
    let until = Instant::now() + ANSWER;
    while stations[&("blue", 4)].asks(7, SILENCE).is_some() {
        assert!(Instant::now() < until, "w7 is let go");
    }
    for (what, stream) in [("between others", between_others), ("within", within)] {
        let (sent, received, _) = stream.end();
        assert!(sent > 500, "{what}: {sent}");
        assert_eq!(received, sent, "{what}");
        report(&format!(
            "an edge cut off for {seconds} s, traffic {what}: {sent} sent, 0 lost"
        ));
    }
    report(&format!(
        "it has all changes {converged:?} after it is back"
    ));
    bed.edges[0].done(&["net", "store", "workload", "delete", "red-net/w20"]);
    bed.edges[0].status("30s");
    drop(new);
}

/// A workload moves between edges under a numbered stream and with a connection open.
fn a_workload_moves(bed: &Bed, stations: &Stations) {
    let moving = Station::new(&bed.edges[0], "red-net", "w21", 21);
    add_to_red(bed, 0, 21);
    bed.edges[0].status("30s");
    let peer = &stations[&("red", 3)];
    assert_eq!(peer.asks(21, ANSWER).as_deref(), Some("red-net/w21"));
    let listener = moving
        .ns
        .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 80)));
    let listener = listener.expect("namespace").expect("binds");
    let stream = peer
        .ns
        .run(|| TcpStream::connect((Ipv4Addr::new(10, 1, 0, 21), 80)));
    let mut stream = stream.expect("namespace").expect("connects");
    let (mut served, _) = listener.accept().expect("a client");
    let mut says = |text: &[u8]| {
        served.write_all(text).expect("sent");
        let mut got = vec![0; text.len()];
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        stream.read_exact(&mut got).expect("arrives");
        assert_eq!(got, text);
    };
    says(b"before");
    // The device that it has on its new edge.
    let (target, name) = (&bed.edges[1], "red-w21");
    join((&target.ns, name, &[]), (&moving.ns, "eth1", &[]));
    let mac = weir_network::values::mac_of_name("red-net/w21").to_string();
    moving
        .ns
        .ip(&["link", "set", "eth1", "address", &mac])
        .expect("its address");
    let numbered = Stream::start(peer, 21);
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ns = &moving.ns;
            ns.ip(&["address", "flush", "dev", "eth0"])
                .expect("flushed");
            ns.ip(&["link", "set", "eth0", "down"]).expect("down");
            ns.ip(&["link", "set", "eth1", "up"]).expect("up");
            ns.ip(&["address", "add", "10.1.0.21/24", "dev", "eth1"])
                .expect("an address");
        });
        let output = bed.edges[0].weir(&[
            "net",
            "store",
            "workload",
            "move",
            "red-net/w21",
            "--to",
            &target.name,
            "--device",
            name,
        ]);
        assert!(output.status.success(), "{}", stderr(&output));
    });
    bed.edges[0].status("30s");
    let told = begun.elapsed();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(peer.asks(21, ANSWER).as_deref(), Some("red-net/w21"));
    says(b"after");
    let (sent, received, pause) = numbered.end();
    assert!(received > 100, "{received} of {sent}");
    report(&format!(
        "a workload moves to another edge: silent for {pause:?}, {} of a datagram every 2 ms lost ({sent} sent), all edges told after {told:?}, its connection goes on",
        sent - received
    ));
}
