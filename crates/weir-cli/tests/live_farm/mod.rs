//! A balancer's bed with three servers behind ports of their own, for tests of health checks: HTTP servers that can be killed, started and made
//! sick, a client that asks all the time, and `weir service check` beside them.
//!
//! ```text
//! client c0 ---- wan [edge] s1 ---- eth0 server 1 (service's address on lo)
//!                           s2 ---- eth0 server 2
//!                           s3 ---- eth0 server 3
//! ```
//!
//! Servers answer through the edge, in every mode.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, iface};

use crate::live_bed::{file, listen, stderr, weir};

pub(crate) const SERVICE: &str = "192.0.2.1:80";
pub(crate) const SERVICE6: &str = "[2001:db8::80]:80";
/// How long a client waits before a request has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long something may take that is waited for.
const LONG: Duration = Duration::from_secs(30);

/// Namespaces, links and servers; the edge's configuration is the test's.
pub(crate) struct Farm {
    pub(crate) client: NetNs,
    pub(crate) edge: NetNs,
    pub(crate) servers: Vec<NetNs>,
    pub(crate) name: String,
    pub(crate) config: PathBuf,
    running: Vec<Option<Server>>,
}

impl Farm {
    /// With all servers running.
    pub(crate) fn new(what: &str) -> Farm {
        let ns = |part: &str| NetNs::create(&format!("weirhc-{part}")).expect("namespace");
        let mut farm = Farm {
            client: ns("c"),
            edge: ns("e"),
            servers: vec![ns("1"), ns("2"), ns("3")],
            name: format!("hc{}-{what}", std::process::id()),
            config: file("farm.toml", ""),
            running: vec![None, None, None],
        };
        for ns in farm.servers.iter().chain([&farm.client, &farm.edge]) {
            for which in ["all", "default"] {
                ns.sysctl(&format!("net.ipv4.conf.{which}.rp_filter"), "0")
                    .expect("sysctl");
                ns.sysctl(&format!("net.ipv6.conf.{which}.accept_dad"), "0")
                    .expect("sysctl");
            }
        }
        joined(
            (&farm.client, "c0", ["10.1.0.2/24", "fd01::2/64"]),
            (&farm.edge, "wan", ["10.1.0.1/24", "fd01::1/64"]),
        );
        bed::forward(&farm.edge).expect("forwards");
        for via in ["10.1.0.1", "fd01::1"] {
            bed::default_route(&farm.client, via).expect("a route");
        }
        for (at, ns) in farm.servers.iter().enumerate() {
            let k = at + 1;
            let ends = |host: u8| {
                [
                    format!("10.2.{k}.{host}/24"),
                    format!("fd02:{k}::{host}/64"),
                ]
            };
            let (near, far) = (ends(1), ends(2));
            joined(
                (&farm.edge, &format!("s{k}"), [&near[0], &near[1]]),
                (ns, "eth0", [&far[0], &far[1]]),
            );
            for via in [format!("10.2.{k}.1"), format!("fd02:{k}::1")] {
                bed::default_route(ns, &via).expect("a route");
            }
            for args in [
                ["link", "set", "lo", "up"].as_slice(),
                &["address", "add", "192.0.2.1/32", "dev", "lo"],
                &["address", "add", "2001:db8::80/128", "dev", "lo", "nodad"],
            ] {
                ns.ip(args).expect("ip");
            }
        }
        for at in 0..3 {
            farm.start(at);
        }
        farm
    }

    /// Address of a server, with its port.
    pub(crate) fn at(&self, server: usize) -> String {
        format!("10.2.{}.2:80", server + 1)
    }

    pub(crate) fn at6(&self, server: usize) -> String {
        format!("[fd02:{}::2]:80", server + 1)
    }

    pub(crate) fn start(&mut self, server: usize) {
        let name = ["one", "two", "three"][server];
        self.running[server] = Some(Server::start(&self.servers[server], name));
    }

    /// What listens is closed, and so is every connection.
    pub(crate) fn kill(&mut self, server: usize) {
        self.running[server] = None;
    }

    /// What it sends is lost, as if its host was gone.
    pub(crate) fn silence(&self, server: usize, is_silent: bool) {
        let verb = if is_silent { "add" } else { "del" };
        let edge = format!("10.2.{}.1/32", server + 1);
        for to in ["10.1.0.0/24", &edge] {
            self.servers[server]
                .ip(&["route", verb, "blackhole", to])
                .expect("ip");
        }
    }

    /// `/health` is answered by 503; all else as ever.
    pub(crate) fn make_sick(&self, server: usize, is_sick: bool) {
        let server = self.running[server].as_ref().expect("it runs");
        server.state.is_sick.store(is_sick, Ordering::SeqCst);
    }

    /// Keys of the function, and of services; every port leads to it.
    pub(crate) fn write(&self, keys: &str) {
        let mut text = format!("edge = \"{}\"\n", self.name);
        let ports = ["wan", "s1", "s2", "s3"];
        for port in ports {
            text.push_str(&format!(
                "[[port]]\nname = \"{port}\"\ndevice = \"{port}\"\n"
            ));
        }
        text.push_str(
            "[[function]]\nname = \"lb\"\nkind = \"balancer\"\nsource4 = \"10.99.0.0/16\"\n",
        );
        text.push_str(keys);
        for port in ports {
            text.push_str(&format!("[[link]]\nfrom = \"{port}\"\nto = \"lb\"\n"));
        }
        fs::write(&self.config, text).expect("cargo's folder is writable");
    }

    /// A service at port 80 of an address over these servers; `keys`: mode and what else is said of it.
    pub(crate) fn service(&self, address: &str, keys: &str, servers: &[usize]) -> String {
        let mut text = format!(
            "[[function.service]]\nname = \"{address}\"\naddress = \"{address}\"\nprotocol = \"tcp\"\nport = 80\n{keys}\n"
        );
        for at in servers {
            let k = at + 1;
            let server = match address.contains(':') {
                true => format!("fd02:{k}::2"),
                false => format!("10.2.{k}.2"),
            };
            text.push_str(&format!(
                "[[function.service.server]]\naddress = \"{server}\"\n"
            ));
            if keys.contains("\"dsr\"") {
                text.push_str(&format!("mac = \"{}\"\nto = \"s{k}\"\n", self.mac(*at)));
            }
        }
        text
    }

    fn mac(&self, server: usize) -> String {
        let found = self.servers[server].run(|| iface::find("eth0"));
        let mac = found.expect("namespace").expect("there").mac;
        let bytes: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
        bytes.join(":")
    }

    /// What it said.
    pub(crate) fn apply(&self) -> String {
        let output = weir(&self.edge, &["apply", self.config.to_str().expect("UTF-8")]);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    }

    /// The far ends of tunnels.
    pub(crate) fn decapsulate(&self) {
        for (at, ns) in self.servers.iter().enumerate() {
            let k = at + 1;
            let text = format!(
                "edge = \"{}-{k}\"\n[[port]]\nname = \"in\"\ndevice = \"eth0\"\n[[function]]\nname = \"end\"\nkind = \"decapsulate\"\n\
                 address = \"10.2.{k}.2\"\nfrom = \"10.99.0.0/16\"\n[[link]]\nfrom = \"in\"\nto = \"end\"\n",
                self.name
            );
            let config = file("end.toml", &text);
            let output = weir(ns, &["apply", config.to_str().expect("UTF-8")]);
            assert!(output.status.success(), "{}", stderr(&output));
        }
    }

    /// `weir service` with these arguments; its JSON.
    pub(crate) fn service_command(&self, args: &[&str]) -> serde_json::Value {
        let all = [&["service", "--edge", &self.name, "--json"], args].concat();
        let output = weir(&self.edge, &all);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("an object")
    }

    /// A key of the first service's servers, in their order.
    pub(crate) fn servers_that(&self, key: &str) -> Vec<bool> {
        let listed = self.service_command(&[]);
        let servers = listed["services"][0]["servers"]
            .as_array()
            .expect("servers");
        let said = servers.iter().map(|s| s[key].as_bool().expect("said"));
        said.collect()
    }

    /// How often the balancer counted a reason.
    pub(crate) fn reason(&self, name: &str) -> u64 {
        let status = self.status();
        let reasons = status["ledger"]["reasons"].as_array().expect("a list");
        let found = reasons.iter().find(|one| one["reason"] == name);
        found.map_or(0, |one| one["packets"].as_u64().expect("a number"))
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let output = weir(&self.edge, &["status", "--edge", &self.name, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
        json["edges"][0]["functions"][0].clone()
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        let _ = weir(&self.edge, &["down", "--edge", &self.name]);
        for (at, ns) in self.servers.iter().enumerate() {
            let name = format!("{}-{}", self.name, at + 1);
            let _ = weir(ns, &["down", "--edge", &name]);
        }
    }
}

/// Two namespaces with a link that takes at both ends what XDP sends.
fn joined(a: (&NetNs, &str, [&str; 2]), b: (&NetNs, &str, [&str; 2])) {
    bed::veth(
        End {
            ns: a.0,
            name: a.1,
            addresses: &a.2,
        },
        End {
            ns: b.0,
            name: b.1,
            addresses: &b.2,
        },
    )
    .expect("veth");
    for (ns, name, _) in [a, b] {
        ns.output("ethtool", &["-K", name, "gro", "on"])
            .expect("ethtool");
    }
}

/// What a server's threads share.
struct State {
    name: &'static str,
    is_dead: AtomicBool,
    is_sick: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// An HTTP server at port 80, until it is dropped.
struct Server {
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    fn start(ns: &NetNs, name: &'static str) -> Server {
        let listener = listen(ns, ("::", 80));
        listener.set_nonblocking(true).expect("a listener");
        let state = Arc::new(State {
            name,
            is_dead: AtomicBool::new(false),
            is_sick: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let here = Arc::clone(&state);
        let accepting = std::thread::spawn(move || {
            while !here.is_dead.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let here = Arc::clone(&here);
                        std::thread::spawn(move || here.serve(stream));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        Server {
            state,
            accepting: Some(accepting),
        }
    }
}

impl State {
    /// One request after the other, until the client closes. A connection without a request in it is a check by TCP.
    fn serve(&self, mut stream: TcpStream) {
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_read_timeout(Some(LONG));
        let Ok(copy) = stream.try_clone() else {
            return;
        };
        self.open.lock().expect("no panic").push(copy);
        let mut request = Vec::new();
        let mut chunk = [0; 1024];
        while !self.is_dead.load(Ordering::SeqCst) {
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(n) => request.extend(&chunk[..n]),
            }
            if !request.ends_with(b"\r\n\r\n") {
                continue;
            }
            let is_check = request.starts_with(b"GET /health ");
            request.clear();
            let status = match is_check && self.is_sick.load(Ordering::SeqCst) {
                true => "503 Service Unavailable",
                false => "200 OK",
            };
            let (name, length) = (self.name, self.name.len());
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{name}");
            if stream.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
        let peer = stream.peer_addr().ok();
        let mut open = self.open.lock().expect("no panic");
        open.retain(|one| one.peer_addr().ok() != peer && one.peer_addr().is_ok());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.is_dead.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in self.state.open.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// A connection from a namespace.
pub(crate) fn connect(ns: &NetNs, to: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().expect("an address");
    let stream = ns.run(|| TcpStream::connect_timeout(&to, PATIENCE));
    let stream = stream.expect("namespace")?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    Ok(stream)
}

/// Asks on an open connection; the server's name.
pub(crate) fn ask(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.write_all(b"GET /id HTTP/1.1\r\nHost: it\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.rsplit(' ').next().and_then(|n| n.parse().ok());
            if length == Some(body.len()) && head.starts_with("HTTP/1.1 200 ") {
                return Ok(body.to_owned());
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => answer.extend(&chunk[..n]),
        }
    }
}

/// One request on a connection of its own.
pub(crate) fn get(ns: &NetNs, to: &str) -> std::io::Result<String> {
    ask(&mut connect(ns, to)?)
}

/// A request of a [`Load`].
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// Which server answered, or why nobody did.
    pub(crate) answer: Result<String, String>,
}

/// Clients that ask all the time, each request on a connection of its own.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<Asked>>>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(ns: &NetNs, to: &'static str, clients: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let started = (0..clients).map(|_| {
            let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
            // A thread stays in the namespace that it was born in.
            let born = move || {
                std::thread::spawn(move || {
                    let to: SocketAddr = to.parse().expect("an address");
                    while !stop.load(Ordering::SeqCst) {
                        let began = Instant::now();
                        let stream = TcpStream::connect_timeout(&to, PATIENCE);
                        let answer = stream.and_then(|mut stream| {
                            stream.set_read_timeout(Some(PATIENCE))?;
                            ask(&mut stream)
                        });
                        let answer = answer.map_err(|e| e.to_string());
                        let ended = Instant::now();
                        asked.lock().expect("no panic").push(Asked {
                            began,
                            ended,
                            answer,
                        });
                        std::thread::sleep(Duration::from_millis(3));
                    }
                })
            };
            ns.run(born).expect("namespace")
        });
        let clients = started.collect();
        Load {
            stop,
            asked,
            clients,
        }
    }

    /// Waits until so many more requests have begun and ended.
    pub(crate) fn wait_for(&self, more: usize) {
        let began = Instant::now();
        let ended = || {
            let asked = self.asked.lock().expect("no panic");
            asked.iter().filter(|one| one.began > began).count()
        };
        while ended() < more {
            assert!(began.elapsed() < LONG, "clients are stuck");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All requests, after the last one ended.
    pub(crate) fn stop(mut self) -> Vec<Asked> {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            client.join().expect("no panic");
        }
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// `weir service check` in the edge's namespace, until it is dropped.
pub(crate) struct Checking {
    child: Child,
    said: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Checking {
    pub(crate) fn start(farm: &Farm) -> Checking {
        let mut child = farm
            .edge
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace")
            .args(["service", "--edge", &farm.name, "check"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let said: Arc<Mutex<Vec<(Instant, String)>>> = Arc::default();
        let (out, here) = (child.stdout.take().expect("piped"), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                here.lock().expect("no panic").push((Instant::now(), line));
            }
        });
        Checking { child, said }
    }

    /// What it said from `since` on.
    pub(crate) fn since(&self, since: Instant) -> Vec<(Instant, String)> {
        let said = self.said.lock().expect("no panic");
        let later = said.iter().filter(|(at, _)| *at >= since);
        later.cloned().collect()
    }

    /// Waits until it says this after `since`; when it did.
    pub(crate) fn wait_for(&self, since: Instant, what: &str) -> Instant {
        loop {
            let said = self.since(since);
            if let Some((at, _)) = said.iter().find(|(_, line)| line.contains(what)) {
                return *at;
            }
            assert!(since.elapsed() < LONG, "it never said `{what}`: {said:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
