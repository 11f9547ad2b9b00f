//! Graphs with ports on tc, with real clients: a stateful host firewall in both directions, masquerading behind routing beside a port on XDP,
//! changes under traffic, what `weir trace` tells of them, and what they leave.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::live_bed::{self, file, listen, look_at, prog_on, root, stderr, weir};
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, pins};

/// Bytes that a transfer moves: many GSO packets.
const BULK: usize = 8 << 20;

/// Long enough for a host that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// An edge in a namespace; taken down when dropped.
struct Edge<'a> {
    ns: &'a NetNs,
    name: String,
    config: PathBuf,
}

impl<'a> Edge<'a> {
    /// `text`: its configuration without its name.
    fn new(ns: &'a NetNs, name: &str, text: &str) -> Edge<'a> {
        let edge = Edge {
            ns,
            name: format!("g{}-{name}", std::process::id()),
            config: file("edge.toml", ""),
        };
        edge.configure(text);
        edge
    }

    fn configure(&self, text: &str) {
        let text = format!("edge = \"{}\"\n{text}", self.name);
        fs::write(&self.config, text).expect("cargo's folder is writable");
    }

    fn config(&self) -> &str {
        self.config.to_str().expect("UTF-8")
    }

    fn weir(&self, args: &[&str]) -> Output {
        weir(self.ns, args)
    }

    #[track_caller]
    fn apply(&self) -> Output {
        let output = self.weir(&["apply", self.config()]);
        assert!(output.status.success(), "{}", stderr(&output));
        output
    }

    fn status(&self) -> Value {
        let output = self.weir(&["status", "--edge", &self.name, "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        value["edges"][0].clone()
    }

    fn function(&self, name: &str) -> Value {
        let status = self.status();
        let functions = status["functions"].as_array().expect("a list");
        let found = functions.iter().find(|one| one["name"] == name);
        found.expect("it runs")["ledger"].clone()
    }
}

impl Drop for Edge<'_> {
    fn drop(&mut self) {
        let _ = self.weir(&["down", "--edge", &self.name]);
    }
}

/// A number of a ledger.
fn count(ledger: &Value, path: &[&str]) -> u64 {
    let found = path.iter().fold(ledger, |value, key| &value[*key]);
    found
        .as_u64()
        .unwrap_or_else(|| panic!("no {path:?} in {ledger}"))
}

/// Every packet has one verdict.
#[track_caller]
fn balanced(ledger: &Value) {
    let verdicts = ledger["verdicts"].as_object().expect("verdicts");
    let sum: u64 = verdicts.values().filter_map(Value::as_u64).sum();
    assert_eq!(count(ledger, &["received"]), sum, "{ledger}");
    assert!(sum > 0, "{ledger}");
}

/// Sends so many bytes from one namespace to a server in another, which says how many came; who it saw.
fn transfer(
    from: &NetNs,
    to: &NetNs,
    address: (&str, u16),
    bytes: usize,
) -> io::Result<SocketAddr> {
    let listener = listen(to, address);
    listener.set_nonblocking(true)?;
    let server = thread::spawn(move || -> io::Result<SocketAddr> {
        let until = Instant::now() + PATIENCE;
        let (mut stream, peer) = loop {
            match listener.accept() {
                Ok(accepted) => break accepted,
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                Err(e) if Instant::now() > until => return Err(e),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        let sum: u64 = all.iter().map(|byte| u64::from(*byte)).sum();
        stream.write_all(&(all.len() as u64).to_be_bytes())?;
        stream.write_all(&sum.to_be_bytes())?;
        Ok(peer)
    });
    let target = SocketAddr::new(address.0.parse().expect("an address"), address.1);
    let connect = || TcpStream::connect_timeout(&target, PATIENCE);
    let mut stream = from.run(connect).expect("namespace")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    stream.write_all(&data)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = [0; 16];
    stream.read_exact(&mut answer)?;
    let sum: u64 = data.iter().map(|byte| u64::from(*byte)).sum();
    let wanted = [(bytes as u64).to_be_bytes(), sum.to_be_bytes()].concat();
    assert_eq!(answer.as_slice(), wanted, "other bytes came than were sent");
    server.join().expect("no panic")
}

/// Whether a TCP connection to a server that listens is let through.
fn connects(from: &NetNs, to: &NetNs, address: (&str, u16)) -> bool {
    let _listener = listen(to, address);
    let target = SocketAddr::new(address.0.parse().expect("an address"), address.1);
    let patience = Duration::from_millis(700);
    let connect = || TcpStream::connect_timeout(&target, patience);
    from.run(connect).expect("namespace").is_ok()
}

/// Programs on an interface at tc, and links of this namespace that weir pinned.
fn traces(ns: &NetNs, name: &str) -> (String, Option<u32>, usize) {
    let mut text = String::new();
    for args in [
        ["qdisc", "show", "dev", name].as_slice(),
        &["filter", "show", "dev", name, "ingress"],
        &["filter", "show", "dev", name, "egress"],
    ] {
        text += &ns.output("tc", args).expect("tc runs");
    }
    let links = ns.run(pins::list).expect("namespace").expect("readable");
    (text, prog_on(ns, name), links.len())
}

/// Two hosts.
struct Hosts {
    left: NetNs,
    right: NetNs,
}

const LEFT: &str = "10.77.0.1";
const RIGHT: &str = "10.77.0.2";

impl Hosts {
    fn new(name: &str) -> Hosts {
        let left = NetNs::create(&format!("weirg-{name}")).expect("namespace");
        let right = NetNs::create(&format!("weirg-{name}")).expect("namespace");
        for end in [&left, &right] {
            // A packet between the attachment of a new edge and its switch passes to the stack, and is counted as `pass`: let there be none.
            bed::without_ipv6(end).expect("sysctl");
        }
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&left, "left0", &["10.77.0.1/24"]),
            end(&right, "right0", &["10.77.0.2/24"]),
        )
        .expect("veth");
        Hosts { left, right }
    }
}

/// A host firewall: this host may call, and may be called at ports 22 and up to 29.
const FIREWALL: &str = "mine: add-stateful out wan accept\\n\
    open: add-stateful in wan tcp-syn tcp-dport 22-29 accept\\n\
    arp:  eth-type arp accept\\n\
    rest: all drop\\n";

fn firewall(more: &str) -> String {
    format!(
        "[[port]]\nname = \"wan\"\ndevice = \"right0\"\nhook = \"tc\"\n\
         [[function]]\nname = \"count\"\nkind = \"empty\"\n\
         [[function]]\nname = \"wall\"\nkind = \"middlebox\"\nrules = \"{FIREWALL}\"\n\
         [[link]]\nfrom = \"wan\"\nto = \"count\"\n[[link]]\nfrom = \"count\"\nto = \"wall\"\n\
         [[link]]\nfrom = \"wan.transmit\"\nto = \"wall\"\n{more}"
    )
}

#[test]
fn a_host_firewall_in_both_directions() {
    if !root("a_host_firewall_in_both_directions") {
        return;
    }
    let Hosts { left, right } = Hosts::new("wall");
    let before = traces(&right, "right0");
    let offloads = look_at(&right, "right0");
    let edge = Edge::new(&right, "wall", &firewall(""));
    edge.apply();
    // Out, and in where it is open; nowhere else.
    transfer(&right, &left, (LEFT, 5001), BULK).expect("this host may call");
    transfer(&left, &right, (RIGHT, 22), BULK).expect("port 22 is open");
    assert!(
        !connects(&left, &right, (RIGHT, 5002)),
        "closed from outside"
    );
    assert!(connects(&right, &left, (LEFT, 5002)), "open from inside");
    // Segmentation stays on, as on any device without weir, and packets are counted as they are on the wire.
    assert_eq!(look_at(&right, "right0"), offloads);
    let status = edge.status();
    let port = &status["ports"][0];
    assert_eq!(
        (&port["mode"], &port["attached"]),
        (&"tc".into(), &true.into())
    );
    let (received, sent) = (&port["ledger"], &port["transmit"]);
    balanced(received);
    balanced(sent);
    for ledger in [received, sent] {
        let segments = (BULK / 1448) as u64;
        assert!(count(ledger, &["received"]) >= segments, "{ledger}");
        assert_eq!(ledger["verdicts"]["next"], ledger["received"], "{ledger}");
    }
    // One ledger for both directions. A host is never quite silent: a packet may come between two readings.
    let one_ledger = || {
        let status = edge.status();
        let port = &status["ports"][0];
        let all = |ledger: &Value| count(ledger, &["received"]);
        all(&status["functions"][1]["ledger"]) == all(&port["ledger"]) + all(&port["transmit"])
    };
    assert!((0..20).any(|_| one_ledger()), "{}", edge.status());
    let wall = edge.function("wall");
    balanced(&wall);
    balanced(&edge.function("count"));
    assert!(count(&wall, &["verdicts", "drop"]) >= 1, "{wall}");
    assert_eq!(status["missed"], 0);
    // Nothing of it stays.
    let output = edge.weir(&["down", "--edge", &edge.name]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(traces(&right, "right0"), before);
    assert_eq!(look_at(&right, "right0"), offloads);
    assert!(
        connects(&left, &right, (RIGHT, 5002)),
        "no firewall any more"
    );
}

#[test]
fn masquerading_behind_routing_beside_a_port_on_xdp() {
    if !root("masquerading_behind_routing_beside_a_port_on_xdp") {
        return;
    }
    let bed = live_bed::Bed::build("weirg-nat");
    let text = "[[port]]\nname = \"lan\"\ndevice = \"box0\"\n\
         [[port]]\nname = \"wan\"\ndevice = \"box1\"\nhook = \"tc\"\n\
         [[function]]\nname = \"shield\"\nkind = \"filter\"\nrules = [\"deny udp to-port 9\"]\n\
         [[function]]\nname = \"nat\"\nkind = \"middlebox\"\n\
         rules = \"nat4: add-stateful out wan net-proto ip4 map ip-saddr 10.0.2.1\"\n\
         [[link]]\nfrom = \"lan\"\nto = \"shield\"\n\
         [[link]]\nfrom = \"wan\"\nto = \"nat\"\n[[link]]\nfrom = \"wan.transmit\"\nto = \"nat\"\n";
    let edge = Edge::new(&bed.middle, "nat", text);
    edge.apply();
    let peer = transfer(&bed.client, &bed.server, ("10.0.2.2", 7000), BULK).expect("through");
    assert_eq!(peer.ip().to_string(), "10.0.2.1", "whom the server sees");
    // The filter on XDP still filters, and lets others by.
    let arrives = |port: u16| {
        let receiver = bed.server.run(|| UdpSocket::bind(("10.0.2.2", port)));
        let receiver = receiver.expect("namespace").expect("binds");
        let patience = Some(Duration::from_millis(700));
        receiver.set_read_timeout(patience).expect("a time");
        let send = || {
            let sender = UdpSocket::bind("0.0.0.0:0").expect("binds");
            sender.send_to(b"weir", ("10.0.2.2", port)).expect("sends");
        };
        bed.client.run(send).expect("namespace");
        receiver
            .recv_from(&mut [0; 16])
            .ok()
            .map(|(_, peer)| peer.ip())
    };
    assert_eq!(
        arrives(7).map(|ip| ip.to_string()).as_deref(),
        Some("10.0.2.1")
    );
    assert_eq!(arrives(9), None);
    assert_eq!(bed.checksum_errors(), 0);
    let shield = edge.function("shield");
    balanced(&shield);
    assert_eq!(count(&shield, &["verdicts", "drop"]), 1);
    balanced(&edge.function("nat"));
    let status = edge.status();
    assert_eq!(status["ports"][0]["mode"], "native");
    assert_eq!(status["second_stage"]["unaccounted"], 0, "{status}");
}

/// Datagrams with numbers, at about 20,000 a second, while functions in their way are replaced.
#[test]
fn replacing_a_function_loses_nothing() {
    if !root("replacing_a_function_loses_nothing") {
        return;
    }
    const CHANGES: usize = 8;
    let Hosts { left, right } = Hosts::new("swap");
    let rules = |n: usize| {
        firewall("").replace(
            "arp:  eth-type",
            &format!(
                "stream: in wan udp-dport 7777 accept\\nn{n}: udp-dport {} drop\\narp: eth-type",
                9000 + n
            ),
        )
    };
    let edge = Edge::new(&right, "swap", &rules(0));
    edge.apply();
    let receiver = right.run(|| UdpSocket::bind((RIGHT, 7777)));
    let receiver = receiver.expect("namespace").expect("binds");
    let patience = Some(Duration::from_millis(1500));
    receiver.set_read_timeout(patience).expect("a time");
    let sender = left.run(|| UdpSocket::bind((LEFT, 0)));
    let sender = sender.expect("namespace").expect("binds");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (sent, seen) = thread::scope(|scope| {
        let numbers = scope.spawn(|| {
            let mut seen: Vec<u32> = Vec::new();
            let mut bytes = [0; 4];
            while receiver.recv(&mut bytes).is_ok() {
                seen.push(u32::from_be_bytes(bytes));
            }
            seen
        });
        let stream = scope.spawn(|| {
            let mut sent = 0u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for _ in 0..20 {
                    let number = sent.to_be_bytes();
                    sender.send_to(&number, (RIGHT, 7777)).expect("sends");
                    sent += 1;
                }
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        for n in 1..=CHANGES {
            edge.configure(&rules(n));
            let output = edge.apply();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("~ function wall"), "{text}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        (
            stream.join().expect("no panic"),
            numbers.join().expect("no panic"),
        )
    });
    assert!(sent > 1000, "{sent} datagrams");
    // What the receiver was too slow for, its socket has counted.
    let overflow = bed::counter(&right, "Udp", "RcvbufErrors").expect("readable");
    let overflow = overflow.expect("exists");
    let wall = edge.function("wall");
    assert!(
        count(&wall, &["verdicts", "pass"]) >= u64::from(sent),
        "{wall}"
    );
    assert_eq!(
        seen.len() as u64 + overflow,
        u64::from(sent),
        "lost or doubled"
    );
    assert!(seen.is_sorted(), "reordered");
    let status = edge.status();
    assert_eq!(status["missed"], 0);
    assert_eq!(status["generation"], 1 + CHANGES);
}

#[test]
fn trace_tells_both_directions_apart() {
    if !root("trace_tells_both_directions_apart") {
        return;
    }
    let Hosts { left, right } = Hosts::new("trace");
    let edge = Edge::new(&right, "trace", &firewall(""));
    edge.apply();
    let mut command = right
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace");
    let child = command
        .args(["trace", "--json", "--edge", &edge.name])
        .args(["--filter", "tcp-syn", "--count", "2"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    let began = Instant::now();
    while edge.status()["watched"]["process"] != child.id() {
        assert!(began.elapsed() < PATIENCE, "it does not watch");
        thread::sleep(Duration::from_millis(20));
    }
    // The SYN leaves, the SYN with ACK comes in.
    assert!(connects(&right, &left, (LEFT, 5003)));
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let packets: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let paths: Vec<&str> = packets.iter().filter_map(|p| p["path"].as_str()).collect();
    assert_eq!(
        paths,
        [
            "wan.transmit > wall: pass > stack",
            "wan > count: pass > wall: pass > stack"
        ]
    );
    assert!(packets.iter().all(|packet| packet["whole"] == true));
    // The edge runs what it ran before.
    assert_eq!(edge.status()["watched"], Value::Null);
    assert!(connects(&right, &left, (LEFT, 5003)));
}

/// What cannot be carried out is refused alike by every command, with function, port and reason, and changes nothing.
#[test]
fn a_function_that_does_not_run_on_tc_is_refused_by_name() {
    if !root("a_function_that_does_not_run_on_tc_is_refused_by_name") {
        return;
    }
    let Hosts { left: _left, right } = Hosts::new("no");
    let edge = Edge::new(&right, "no", &firewall(""));
    edge.apply();
    let more = "[[function]]\nname = \"spread\"\nkind = \"redirect\"\ncpu = [0]\n";
    let text = firewall(more).replace("to = \"count\"", "to = \"spread\"");
    edge.configure(&text);
    for command in [&["apply", "--dry-run"][..], &["apply"], &["diff"]] {
        let output = edge.weir(&[command, &[edge.config()]].concat());
        let said = stderr(&output);
        assert!(!output.status.success(), "{command:?}: {said}");
        let wanted = "packets of the port `wan`, which is on tc, come to `spread`: functions of kind `redirect` run on XDP only";
        assert!(said.contains(wanted), "{command:?}: {said}");
        assert!(said.contains("edge.toml:"), "{command:?}: {said}");
    }
    assert_eq!(edge.status()["generation"], 1);
}

/// Networks are on tc as well, and two of one hook on one device have no order that lasts.
#[test]
fn a_device_of_networks_is_no_port_on_tc() {
    let document = file(
        "net.toml",
        "version = 1\n[[tenant]]\nname = \"red\"\n\
         [[edge]]\nname = \"shared\"\nunderlay = \"192.0.2.1\"\ndevice = \"under0\"\nmtu = 1600\n\
         [[network]]\nname = \"n\"\ntenant = \"red\"\n[[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n\
         [[network.workload]]\nname = \"w\"\nsubnet = \"web\"\nedge = \"shared\"\ndevice = \"w0\"\naddress = \"10.1.0.7\"\n",
    );
    for (hook, is_taken) in [("xdp", true), ("tc", false)] {
        let text = format!(
            "edge = \"shared\"\nnetworks = \"{}\"\n[[port]]\nname = \"under\"\ndevice = \"under0\"\nhook = \"{hook}\"\n\
             [[function]]\nname = \"count\"\nkind = \"empty\"\n[[link]]\nfrom = \"under\"\nto = \"count\"\n",
            document.display()
        );
        let config = file("edge.toml", &text);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("check")
            .arg(&config)
            .output()
            .expect("weir starts");
        let said = stderr(&output);
        assert_eq!(output.status.success(), is_taken, "{hook}: {said}");
        let refusal = "under0 is port under of the graph, on tc, and the underlay of the networks";
        assert_eq!(said.contains(refusal), !is_taken, "{hook}: {said}");
    }
}
