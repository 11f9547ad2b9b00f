//! A balancer's bed for live tests: a client, an edge that balances, and two servers that answer HTTP, by their own way back or through the edge.
//!
//! ```text
//!                                +---- wan [edge] s1 ---- eth0 server 1 (service's address on lo)
//! far client f0 ---- f1 client c0 -+              s2 ---- eth0 server 2
//!                          d1, d2 ---------------------- back0 of each server: the way back
//! ```
//!
//! The far client is there where a test asks for it; the client is its router then, and the last link takes packets of [`FAR_MTU`] bytes only.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_kernel::iface;

use crate::live_bed::{file, listen, stderr, weir};

pub(crate) const SERVICE: &str = "192.0.2.1";
pub(crate) const SERVICE6: &str = "2001:db8::80";
/// What the last link to the far client takes.
pub(crate) const FAR_MTU: u32 = 1300;

/// A server that answers every line with its name, until it is dropped.
pub(crate) struct Answers(Arc<AtomicBool>);

impl Answers {
    pub(crate) fn start(ns: &NetNs, name: &'static str, port: u16) -> Answers {
        let listener = listen(ns, ("::", port));
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

/// HTTP as far as it is needed: requests end with an empty line, and say how long their body is. `/N` asks for N bytes behind the name.
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
                let path = text.split(' ').nth(1).unwrap_or_default();
                let more: usize = path.trim_start_matches('/').parse().unwrap_or(0);
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}{}",
                    name.len() + more,
                    ".".repeat(more)
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
pub(crate) fn ask(stream: &mut TcpStream, body: usize) -> std::io::Result<String> {
    let request = format!("POST / HTTP/1.1\r\nHost: it\r\nContent-Length: {body}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.write_all(&vec![b'x'; body])?;
    read_answer(stream)
}

/// Asks for so many bytes; the name of the server that sent them all.
pub(crate) fn fetch(stream: &mut TcpStream, bytes: usize) -> std::io::Result<String> {
    let request = format!("GET /{bytes} HTTP/1.1\r\nHost: it\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let answer = read_answer(stream)?;
    let name = answer.trim_end_matches('.');
    assert_eq!(answer.len(), name.len() + bytes, "{name}");
    Ok(name.to_owned())
}

fn read_answer(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut answer = Vec::new();
    let mut chunk = vec![0; 65_536];
    loop {
        let head = answer.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&answer[..head]);
            let length = text.rsplit(' ').next().and_then(|n| n.parse().ok());
            if length.is_some_and(|length: usize| answer.len() >= head + 4 + length) {
                return Ok(String::from_utf8_lossy(&answer[head + 4..]).into_owned());
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => answer.extend(&chunk[..n]),
        }
    }
}

pub(crate) fn end<'a>(ns: &'a NetNs, name: &'a str, addresses: &'a [&'a str]) -> End<'a> {
    End {
        ns,
        name,
        addresses,
    }
}

/// To a service's port 80.
pub(crate) fn connect(from: &NetNs, address: &str) -> std::io::Result<TcpStream> {
    let stream = from.run(|| {
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

/// A section of a configuration: a service named `web`, with servers of this family.
pub(crate) fn service(keys: &str, family: u8, servers: &[(usize, &str)]) -> String {
    let mut text = format!("[[function.service]]\nname = \"web\"\n{keys}\n");
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
    text
}

pub(crate) fn ip(ns: &NetNs, text: &str) {
    let args: Vec<&str> = text.split(' ').collect();
    ns.ip(&args).unwrap_or_else(|e| panic!("ip {text}: {e}"));
}

pub(crate) struct Bed {
    pub(crate) client: NetNs,
    pub(crate) edge: NetNs,
    pub(crate) servers: [NetNs; 2],
    pub(crate) name: String,
    pub(crate) config: PathBuf,
    pub(crate) answers: Vec<Answers>,
}

impl Bed {
    pub(crate) fn new(what: &str) -> Bed {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let ns = |part: &str| NetNs::create(&format!("weirlb-{part}")).expect("namespace");
        let mut bed = Bed {
            client: ns("c"),
            edge: ns("e"),
            servers: [ns("1"), ns("2")],
            name: format!("lb{}-{number}-{what}", std::process::id()),
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
    pub(crate) fn answer_directly(&self, directly: bool) {
        for (at, ns) in self.servers.iter().enumerate() {
            let k = at + 1;
            let (via, dev) = if directly { (3, "back0") } else { (2, "eth0") };
            ip(
                ns,
                &format!("route replace 10.1.0.0/24 via 10.{via}.{k}.1 dev {dev}"),
            );
            ip(
                ns,
                &format!("-6 route replace fd01::/64 via fd0{via}:{k}::1 dev {dev}"),
            );
        }
    }

    /// A client behind the client, where packets of the servers do not fit; `directly` as of `answer_directly`.
    pub(crate) fn far_client(&self, directly: bool) -> NetNs {
        let far = NetNs::create("weirlb-f").expect("namespace");
        bed::veth(
            end(&far, "f0", &["10.4.0.2/24", "fd04::2/64"]),
            end(&self.client, "f1", &["10.4.0.1/24", "fd04::1/64"]),
        )
        .expect("veth");
        bed::forward(&self.client).expect("forwards");
        // The near end alone, so that the client offers segments that do not fit.
        let mtu = FAR_MTU.to_string();
        ip(&self.client, &format!("link set f1 mtu {mtu}"));
        for via in ["10.4.0.1", "fd04::1"] {
            bed::default_route(&far, via).expect("a route");
        }
        ip(&self.edge, "route add 10.4.0.0/24 via 10.1.0.2");
        ip(&self.edge, "-6 route add fd04::/64 via fd01::2");
        let (via, dev) = if directly { (3, "back0") } else { (2, "eth0") };
        for (at, ns) in self.servers.iter().enumerate() {
            let k = at + 1;
            ip(
                ns,
                &format!("route add 10.4.0.0/24 via 10.{via}.{k}.1 dev {dev}"),
            );
            ip(
                ns,
                &format!("-6 route add fd04::/64 via fd0{via}:{k}::1 dev {dev}"),
            );
        }
        far
    }

    pub(crate) fn mac(&self, server: usize) -> String {
        let found = self.servers[server].run(|| iface::find("eth0"));
        let mac = found.expect("namespace").expect("there").mac;
        let bytes: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
        bytes.join(":")
    }

    /// A configuration with one service of TCP port 80; `servers`: which of them, and what else is said of each.
    pub(crate) fn configure(
        &self,
        address: &str,
        mode: &str,
        family: u8,
        servers: &[(usize, &str)],
    ) {
        let keys = format!("address = \"{address}\"\nprotocol = \"tcp\"\nport = 80\n{mode}\n");
        self.write(&service(&keys, family, servers));
    }

    /// A configuration with these services.
    pub(crate) fn write(&self, services: &str) {
        let mut text = format!("edge = \"{}\"\n", self.name);
        for port in ["wan", "s1", "s2"] {
            text.push_str(&format!(
                "[[port]]\nname = \"{port}\"\ndevice = \"{port}\"\n"
            ));
        }
        text.push_str("[[function]]\nname = \"lb\"\nkind = \"balancer\"\nsource4 = \"10.99.0.0/16\"\nsource6 = \"fd99::/64\"\nconnections = 4096\n");
        text.push_str(services);
        for port in ["wan", "s1", "s2"] {
            text.push_str(&format!("[[link]]\nfrom = \"{port}\"\nto = \"lb\"\n"));
        }
        fs::write(&self.config, text).expect("cargo's folder is writable");
    }

    /// The way to a server in words of the configuration.
    pub(crate) fn way(&self, server: usize) -> String {
        format!("mac = \"{}\"\nto = \"s{}\"", self.mac(server), server + 1)
    }

    pub(crate) fn apply(&self) -> Output {
        let output = weir(&self.edge, &["apply", self.config.to_str().expect("UTF-8")]);
        assert!(output.status.success(), "{}", stderr(&output));
        output
    }

    /// The far ends of tunnels.
    pub(crate) fn decapsulate(&self, family: u8) {
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

    pub(crate) fn connect(&self, address: &str) -> std::io::Result<TcpStream> {
        connect(&self.client, address)
    }

    /// Which servers answer so many connections.
    pub(crate) fn spread(&self, address: &str, connections: usize) -> Vec<String> {
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

    pub(crate) fn status(&self) -> serde_json::Value {
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
