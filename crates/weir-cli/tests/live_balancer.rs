//! Function `balancer` with real HTTP: a client, an edge that balances, and two servers that answer directly, in every mode. Connections live
//! through changes of the configuration, and packets that do not fit into a tunnel teach the client a smaller MTU.
//!
//! ```text
//!             +---- wan [edge] s1 ---- eth0 server 1 (service's address on lo)
//! client c0 --+                s2 ---- eth0 server 2
//!        d1, d2 ------------------------ back0 of each server: the way back
//! ```

mod live_bed;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use live_bed::{file, root, stderr, weir};
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_kernel::iface;

const SERVICE: &str = "192.0.2.1";
const SERVICE6: &str = "2001:db8::80";

/// A server that answers every line with its name, until it is dropped.
struct Answers(Arc<AtomicBool>);

impl Answers {
    fn start(ns: &NetNs, name: &'static str, port: u16) -> Answers {
        let listener = ns.run(|| TcpListener::bind(("::", port)).expect("bind"));
        let listener = listener.expect("namespace");
        listener.set_nonblocking(true).expect("a listener");
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let ends = Arc::clone(&ends);
                        std::thread::spawn(move || answer(stream, name, &ends));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Answers(stop)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// HTTP as far as it is needed: requests end with an empty line, and say how long their body is.
fn answer(mut stream: TcpStream, name: &str, ends: &AtomicBool) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let mut request = Vec::new();
    let mut chunk = [0; 65_536];
    while !ends.load(Ordering::Relaxed) {
        let head = request.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&request[..head]).into_owned();
            let body: usize = text
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .and_then(|n| n.trim().parse().ok())
                .unwrap_or(0);
            if request.len() >= head + 4 + body {
                request.drain(..head + 4 + body);
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}",
                    name.len()
                );
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
                continue;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(n) => request.extend(&chunk[..n]),
        }
    }
}

/// Asks on an open connection; the name of the server.
fn ask(stream: &mut TcpStream, body: usize) -> std::io::Result<String> {
    let request = format!("POST / HTTP/1.1\r\nHost: it\r\nContent-Length: {body}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.write_all(&vec![b'x'; body])?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, name)) = text.split_once("\r\n\r\n")
            && let Some(length) = head.rsplit(' ').next().and_then(|n| n.parse().ok())
            && name.len() >= length
        {
            return Ok(name.to_owned());
        }
        match stream.read(&mut chunk)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => answer.extend(&chunk[..n]),
        }
    }
}

fn end<'a>(ns: &'a NetNs, name: &'a str, addresses: &'a [&'a str]) -> End<'a> {
    End {
        ns,
        name,
        addresses,
    }
}

struct Bed {
    client: NetNs,
    edge: NetNs,
    servers: [NetNs; 2],
    name: String,
    config: PathBuf,
    answers: Vec<Answers>,
}

impl Bed {
    fn new(what: &str) -> Bed {
        let ns = |part: &str| NetNs::create(&format!("weirlb-{part}")).expect("namespace");
        let mut bed = Bed {
            client: ns("c"),
            edge: ns("e"),
            servers: [ns("1"), ns("2")],
            name: format!("lb{}-{what}", std::process::id()),
            config: file("balancer.toml", ""),
            answers: Vec::new(),
        };
        for ns in [&bed.client, &bed.edge, &bed.servers[0], &bed.servers[1]] {
            for which in ["all", "default"] {
                // Answers come back by another device than requests leave by, and addresses must work at once.
                ns.sysctl(&format!("net.ipv4.conf.{which}.rp_filter"), "0")
                    .expect("sysctl");
                ns.sysctl(&format!("net.ipv6.conf.{which}.accept_dad"), "0")
                    .expect("sysctl");
            }
        }
        bed::veth(
            end(&bed.client, "c0", &["10.1.0.2/24", "fd01::2/64"]),
            end(&bed.edge, "wan", &["10.1.0.1/24", "fd01::1/64"]),
        )
        .expect("veth");
        // What the edge sends back by XDP is taken by a veth with GRO only.
        bed.client
            .output("ethtool", &["-K", "c0", "gro", "on"])
            .expect("ethtool");
        bed::forward(&bed.edge).expect("forwards");
        let ip = |ns: &NetNs, text: &str| {
            let args: Vec<&str> = text.split(' ').collect();
            ns.ip(&args).unwrap_or_else(|e| panic!("ip {text}: {e}"));
        };
        for (at, ns) in bed.servers.iter().enumerate() {
            let k = at + 1;
            let addresses = |which: &str, host: u8| {
                [
                    format!("10.{which}.{k}.{host}/24"),
                    format!("fd0{which}:{k}::{host}/64"),
                ]
            };
            let (here, there) = (addresses("2", 1), addresses("2", 2));
            let (back, home) = (addresses("3", 2), addresses("3", 1));
            let (near, far) = (format!("s{k}"), format!("d{k}"));
            bed::veth(
                end(&bed.edge, &near, &[&here[0], &here[1]]),
                end(ns, "eth0", &[&there[0], &there[1]]),
            )
            .expect("veth");
            bed::veth(
                end(&bed.client, &far, &[&home[0], &home[1]]),
                end(ns, "back0", &[&back[0], &back[1]]),
            )
            .expect("veth");
            ip(ns, "link set lo up");
            ip(ns, &format!("address add {SERVICE}/32 dev lo"));
            ip(ns, &format!("address add {SERVICE6}/128 dev lo nodad"));
            ns.output("ethtool", &["-K", "eth0", "gro", "on"])
                .expect("ethtool");
        }
        ip(&bed.client, "route add default via 10.1.0.1");
        ip(&bed.client, "-6 route add default via fd01::1");
        bed.answer_directly(true);
        let names = ["one", "two"];
        let answers = bed.servers.iter().zip(names);
        let answers = answers
            .flat_map(|(ns, name)| [Answers::start(ns, name, 80), Answers::start(ns, name, 8080)])
            .collect();
        bed.answers = answers;
        bed
    }

    /// By their own way, or through the edge.
    fn answer_directly(&self, directly: bool) {
        for (at, ns) in self.servers.iter().enumerate() {
            let k = at + 1;
            let via = if directly { "3" } else { "2" };
            let dev = if directly { "back0" } else { "eth0" };
            ns.ip(&[
                "route",
                "replace",
                "10.1.0.0/24",
                "via",
                &format!("10.{via}.{k}.1"),
                "dev",
                dev,
            ])
            .expect("a route");
            ns.ip(&[
                "-6",
                "route",
                "replace",
                "fd01::/64",
                "via",
                &format!("fd0{via}:{k}::1"),
                "dev",
                dev,
            ])
            .expect("a route");
        }
    }

    fn mac(&self, server: usize) -> String {
        let found = self.servers[server].run(|| iface::find("eth0"));
        let mac = found.expect("namespace").expect("there").mac;
        let bytes: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
        bytes.join(":")
    }

    /// A configuration with one service; `servers`: which of them, and what else is said of each.
    fn configure(&self, address: &str, mode: &str, family: u8, servers: &[(usize, &str)]) {
        let mut text = format!("edge = \"{}\"\n", self.name);
        for port in ["wan", "s1", "s2"] {
            text.push_str(&format!(
                "[[port]]\nname = \"{port}\"\ndevice = \"{port}\"\n"
            ));
        }
        text.push_str("[[function]]\nname = \"lb\"\nkind = \"balancer\"\nsource4 = \"10.99.0.0/16\"\nsource6 = \"fd99::/64\"\nconnections = 4096\n");
        text.push_str(&format!(
            "[[function.service]]\nname = \"web\"\naddress = \"{address}\"\nprotocol = \"tcp\"\nport = 80\n{mode}\n"
        ));
        for (server, more) in servers {
            let k = server + 1;
            let address = if family == 4 {
                format!("10.2.{k}.2")
            } else {
                format!("fd02:{k}::2")
            };
            text.push_str(&format!(
                "[[function.service.server]]\naddress = \"{address}\"\n{more}\n"
            ));
        }
        for port in ["wan", "s1", "s2"] {
            text.push_str(&format!("[[link]]\nfrom = \"{port}\"\nto = \"lb\"\n"));
        }
        fs::write(&self.config, text).expect("cargo's folder is writable");
    }

    /// The way to a server in words of the configuration.
    fn way(&self, server: usize) -> String {
        format!("mac = \"{}\"\nto = \"s{}\"", self.mac(server), server + 1)
    }

    fn apply(&self) -> Output {
        let output = weir(&self.edge, &["apply", self.config.to_str().expect("UTF-8")]);
        assert!(output.status.success(), "{}", stderr(&output));
        output
    }

    /// The far ends of tunnels.
    fn decapsulate(&self, family: u8) {
        for (at, ns) in self.servers.iter().enumerate() {
            let k = at + 1;
            let (address, from) = match family {
                4 => (format!("10.2.{k}.2"), "10.99.0.0/16"),
                _ => (format!("fd02:{k}::2"), "fd99::/64"),
            };
            let text = format!(
                "edge = \"{}-{k}\"\n[[port]]\nname = \"in\"\ndevice = \"eth0\"\n[[function]]\nname = \"end\"\nkind = \"decapsulate\"\n\
                 address = \"{address}\"\nfrom = \"{from}\"\n[[link]]\nfrom = \"in\"\nto = \"end\"\n",
                self.name
            );
            let config = file("end.toml", &text);
            let output = weir(ns, &["apply", config.to_str().expect("UTF-8")]);
            assert!(output.status.success(), "{}", stderr(&output));
        }
    }

    fn connect(&self, address: &str) -> std::io::Result<TcpStream> {
        let stream = self.client.run(|| {
            let to = match address.contains(':') {
                true => format!("[{address}]:80"),
                false => format!("{address}:80"),
            };
            TcpStream::connect_timeout(&to.parse().expect("an address"), Duration::from_secs(5))
        });
        let stream = stream.expect("namespace")?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        Ok(stream)
    }

    /// Which servers answer so many connections.
    fn spread(&self, address: &str, connections: usize) -> Vec<String> {
        let mut names: Vec<String> = (0..connections)
            .map(|n| {
                let mut stream = self
                    .connect(address)
                    .unwrap_or_else(|e| panic!("connection {n}: {e}"));
                ask(&mut stream, 10).unwrap_or_else(|e| panic!("request {n}: {e}"))
            })
            .collect();
        names.sort();
        names.dedup();
        names
    }

    fn status(&self) -> serde_json::Value {
        let output = weir(&self.edge, &["status", "--edge", &self.name, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
        json["edges"][0]["functions"][0].clone()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = weir(&self.edge, &["down", "--edge", &self.name]);
        for (at, ns) in self.servers.iter().enumerate() {
            let _ = weir(
                ns,
                &["down", "--edge", &format!("{}-{}", self.name, at + 1)],
            );
        }
    }
}

#[test]
fn http_works_in_every_mode_and_servers_answer_directly() {
    if !root("http_works_in_every_mode_and_servers_answer_directly") {
        return;
    }
    for (what, mode, outer, service) in [
        ("ipip", "mode = \"ipip\"", 4, SERVICE),
        ("ipip46", "mode = \"ipip\"", 6, SERVICE),
        ("ipip64", "mode = \"ipip\"", 4, SERVICE6),
        ("gue", "mode = \"gue\"", 4, SERVICE),
        ("gue0", "mode = \"gue\"\ngue_version = 0", 6, SERVICE6),
        ("dsr", "mode = \"dsr\"", 4, SERVICE),
        ("nat", "mode = \"nat\"", 4, SERVICE),
        ("nat6", "mode = \"nat\"", 6, SERVICE6),
    ] {
        let bed = Bed::new(what);
        let is_nat = what.starts_with("nat");
        bed.answer_directly(!is_nat);
        if what.starts_with("ipip") || what.starts_with("gue") {
            bed.decapsulate(outer);
        }
        let port = if is_nat { "\nport = 8080" } else { "" };
        let ways = [0, 1].map(|k| format!("{}{port}", bed.way(k)));
        bed.configure(service, mode, outer, &[(0, &ways[0]), (1, &ways[1])]);
        bed.apply();
        let names = bed.spread(service, 24);
        assert_eq!(names, ["one", "two"], "{what}: {}", bed.status());
        // More than fits into a packet, and into a tunnel.
        let mut stream = bed.connect(service).expect("connects");
        let name =
            ask(&mut stream, 100_000).unwrap_or_else(|e| panic!("{what}: {e}: {}", bed.status()));
        assert!(names.contains(&name), "{what}: {name}");
        let through = bed.status()["ledger"]["received"]
            .as_u64()
            .expect("counted");
        assert!(through > 100, "{what}: {through}");
        let errors = bed
            .servers
            .iter()
            .map(|ns| bed::counter(ns, "Tcp", "InCsumErrors").expect("readable"));
        assert_eq!(errors.map(|e| e.unwrap_or(0)).sum::<u64>(), 0, "{what}");
    }
}

#[test]
fn connections_stay_with_their_servers_through_changes() {
    if !root("connections_stay_with_their_servers_through_changes") {
        return;
    }
    let bed = Bed::new("stay");
    bed.decapsulate(4);
    let ways = [0, 1].map(|k| bed.way(k));
    let drained = format!("{}\ndrain = true", ways[0]);
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(0, &ways[0]), (1, &ways[1])],
    );
    bed.apply();
    let mut open: Vec<(TcpStream, String)> = (0..16)
        .map(|_| {
            let mut stream = bed.connect(SERVICE).expect("connects");
            let name = ask(&mut stream, 10).expect("answered");
            (stream, name)
        })
        .collect();
    assert!(
        open.iter().any(|(_, name)| name == "one") && open.iter().any(|(_, name)| name == "two")
    );
    let mut check = |what: &str| {
        for (stream, name) in &mut open {
            let now = ask(stream, 10).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(now, *name, "{what}");
        }
    };
    // The other way round, another weight, another object: all is made anew but what is remembered.
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(1, &format!("{}\nweight = 7", ways[1])), (0, &ways[0])],
    );
    bed.apply();
    check("turned round");
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(0, &drained), (1, &ways[1])],
    );
    bed.apply();
    check("drained");
    assert_eq!(bed.spread(SERVICE, 12), ["two"]);
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, &ways[0])]);
    bed.apply();
    assert_eq!(bed.spread(SERVICE, 12), ["one"]);
    // Connections of the one that is left stayed; the others lost theirs.
    for (stream, name) in &mut open {
        if name == "one" {
            assert_eq!(ask(stream, 10).expect("answered"), "one");
        }
    }
    // A mistake changes nothing.
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, "weight = 0")]);
    let refused = weir(&bed.edge, &["apply", bed.config.to_str().expect("UTF-8")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("a server of weight 0 gets no flows"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(bed.spread(SERVICE, 4), ["one"]);
}

#[test]
fn services_are_changed_while_they_run() {
    if !root("services_are_changed_while_they_run") {
        return;
    }
    let bed = Bed::new("edit");
    bed.decapsulate(4);
    let way = bed.way(0);
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, &way)]);
    bed.apply();
    let service = |args: &[&str]| {
        weir(
            &bed.edge,
            &[&["service", "--edge", &bed.name], args].concat(),
        )
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(bed.spread(SERVICE, 6), ["one"]);
    // As ipvsadm would say it.
    let place = format!("{SERVICE}:80");
    let mac = bed.mac(1);
    let added = service(&[
        "-a",
        "-t",
        &place,
        "-r",
        "10.2.2.2:80",
        "-w",
        "3",
        "-i",
        "--mac",
        &mac,
        "--to",
        "s2",
    ]);
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(
        text(&added).contains("the file of the configuration was not changed"),
        "{}",
        text(&added)
    );
    assert_eq!(bed.spread(SERVICE, 24), ["one", "two"]);
    let drained = service(&["drain", "-r", "10.2.1.2"]);
    assert!(drained.status.success(), "{}", stderr(&drained));
    assert_eq!(bed.spread(SERVICE, 12), ["two"]);
    let listed = text(&service(&["-L", "-n", "--stats"]));
    assert!(listed.contains("tcp 192.0.2.1:80 (web)"), "{listed}");
    let line = listed
        .lines()
        .find(|line| line.contains("10.2.2.2"))
        .expect("listed");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[2..4], ["3", "up"], "{listed}");
    assert!(words[6].parse::<u64>().expect("a number") >= 12, "{listed}");
    assert!(
        listed
            .lines()
            .any(|line| line.contains("10.2.1.2") && line.contains("drain")),
        "{listed}"
    );
    // What does not fit is refused, and what runs runs on.
    for (args, what) in [
        (
            vec!["-a", "-t", &place, "-r", "10.2.2.2"],
            "is in tcp 192.0.2.1:80 already",
        ),
        (
            vec!["-e", "-t", &place, "-r", "10.2.2.2", "-w", "0"],
            "a server of weight 0 gets no flows",
        ),
        (
            vec!["-D", "-t", "192.0.2.9:80"],
            "there is no service tcp 192.0.2.9:80",
        ),
        (
            vec!["-a", "-t", &place, "-r", "10.2.9.2", "-m"],
            "has mode ipip",
        ),
    ] {
        let before = text(&service(&["--json"]));
        let refused = service(&args);
        let told = stderr(&refused);
        assert!(
            !refused.status.success() && told.contains(what),
            "{args:?}: {told}"
        );
        assert_eq!(text(&service(&["--json"])).len(), before.len(), "{args:?}");
    }
    let saved = file("saved.toml", "");
    let done = service(&["save", "-o", saved.to_str().expect("UTF-8")]);
    assert!(done.status.success(), "{}", stderr(&done));
    let checked = weir(&bed.edge, &["diff", saved.to_str().expect("UTF-8")]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert!(!text(&checked).contains("10.2"), "{}", text(&checked));
    assert_eq!(bed.spread(SERVICE, 6), ["two"]);
}

#[test]
fn what_cannot_work_here_is_refused_or_told() {
    if !root("what_cannot_work_here_is_refused_or_told") {
        return;
    }
    let bed = Bed::new("cannot");
    bed.decapsulate(4);
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, ""), (1, "")]);
    // Without MAC addresses the kernel says the way.
    let applied = bed.apply();
    assert_eq!(stderr(&applied), "", "both servers are reached");
    assert_eq!(bed.spread(SERVICE, 24), ["one", "two"]);
    let before = bed.status();
    bed.edge
        .ip(&["link", "set", "dev", "s2", "mtu", "590"])
        .expect("an MTU");
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, "")]);
    let refused = weir(&bed.edge, &["apply", bed.config.to_str().expect("UTF-8")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("run `ip link set dev s2 mtu 596` or more"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(bed.status()["program"], before["program"]);
    bed.edge
        .ip(&["link", "set", "dev", "s2", "mtu", "1500"])
        .expect("an MTU");
    let away = "[[function.service.server]]\naddress = \"203.0.113.77\"";
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, away)]);
    let told = stderr(&bed.apply());
    assert!(
        told.contains("this host has no way to 203.0.113.77") && told.contains("ip route add"),
        "{told}"
    );
}

#[test]
fn servers_that_do_not_answer_get_no_new_flows_until_they_do() {
    if !root("servers_that_do_not_answer_get_no_new_flows_until_they_do") {
        return;
    }
    let mut bed = Bed::new("check");
    bed.decapsulate(4);
    let ways = [0, 1].map(|k| bed.way(k));
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(0, &ways[0]), (1, &ways[1])],
    );
    bed.apply();
    // The first server stops listening: its answers are the first two.
    bed.answers.drain(..2);
    std::thread::sleep(Duration::from_millis(200));
    let check = |bed: &Bed, kind: &[&str]| {
        let args = [
            "service",
            "--edge",
            &bed.name,
            "check",
            "--interval",
            "0.1",
            "--fall",
            "2",
            "--rise",
            "1",
            "--for",
            "1",
        ];
        let output = weir(&bed.edge, &[&args[..], kind].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = check(&bed, &["--http", "/"]);
    assert!(
        said.contains("server 10.2.1.2 of tcp 192.0.2.1:80 is down"),
        "{said}"
    );
    assert!(!said.contains("10.2.2.2"), "{said}");
    assert_eq!(bed.spread(SERVICE, 12), ["two"]);
    let again = Answers::start(&bed.servers[0], "one", 80);
    bed.answers.push(again);
    let said = check(&bed, &[]);
    assert!(
        said.contains("server 10.2.1.2 of tcp 192.0.2.1:80 is back"),
        "{said}"
    );
    assert_eq!(bed.spread(SERVICE, 24), ["one", "two"]);
}
