//! A bed for virtual networks: a namespace for each edge of a document, one for each workload, an underlay that joins the edges, and a
//! listener in each workload that sends back what it gets.
//!
//! Names of running networks are unique, so that tests run side by side. Everything goes with the bed, also after a panic.

#![allow(clippy::print_stderr, reason = "a skip is said where the test runs")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_engine::network::{self, Applied, Look, NetworkError, Networks, Step};
use weir_functions::kind::Files;
use weir_kernel::{NetNs, Tap};
use weir_network::model::{Document, Station, Vlan};
use weir_network::values::mac_of_name;
use weir_packet::build::Frame;

/// Whether this process is root. In CI it must be.
pub(crate) fn root(test: &str) -> bool {
    // Through procfs, to stay free of unsafe code.
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let uids = status.lines().find(|line| line.starts_with("Uid:"));
    if uids.and_then(|line| line.split_whitespace().nth(2)) == Some("0") {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "in CI {test} must run: be root"
    );
    eprintln!("{test}: skipped, it needs root");
    false
}

/// Documents of tests name no files.
pub(crate) struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> std::io::Result<Vec<u8>> {
        Err(ErrorKind::NotFound.into())
    }
}

/// What functions hold that run.
struct Held<'n>(&'n Networks);

impl Files for Held<'_> {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        NoFiles.read(path)
    }

    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        self.0.held(instance, map).expect("read")
    }
}

/// A document, checked.
pub(crate) fn checked(text: &str) -> weir_network::Networks {
    checked_with(text, &NoFiles)
}

fn checked_with(text: &str, files: &dyn Files) -> weir_network::Networks {
    let document = weir_network::parse(text, "test").unwrap_or_else(|e| panic!("{e:?}"));
    let (networks, _) = weir_network::check(document, files).unwrap_or_else(|e| panic!("{e:?}"));
    networks
}

/// Port of the listeners that send back what they get, and of those that say who they are.
const PORT: u16 = 7000;
const WHO: u16 = 7001;
/// An answer that is expected: the first packets may be lost while addresses are asked for, and are sent again after one second and after three.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer that must not come.
const MOMENT: Duration = Duration::from_millis(700);

static BEDS: AtomicU32 = AtomicU32::new(0);

/// The bed of a document.
pub(crate) struct Bed {
    /// What the running networks of each edge are called.
    pub(crate) names: BTreeMap<String, String>,
    pub(crate) edges: BTreeMap<String, NetNs>,
    pub(crate) workloads: BTreeMap<String, Workload>,
    /// Workloads on taps, whose devices' names begin so: played by a process.
    pub(crate) taps: BTreeMap<String, Arc<Machine>>,
    fabric: Option<NetNs>,
    stop: Arc<AtomicBool>,
}

/// A workload's namespace.
pub(crate) struct Workload {
    pub(crate) ns: NetNs,
    pub(crate) edge: String,
    pub(crate) mac: [u8; 6],
    pub(crate) addresses: Vec<IpAddr>,
    listener: Option<JoinHandle<()>>,
}

impl Bed {
    /// Makes devices and namespaces as the document has them; nothing is applied. Workloads get a default route by the first address of
    /// a router in their subnet.
    pub(crate) fn new(document: &Document) -> Bed {
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        let mut bed = Bed {
            names: BTreeMap::new(),
            edges: BTreeMap::new(),
            workloads: BTreeMap::new(),
            taps: BTreeMap::new(),
            fabric: None,
            stop: Arc::new(AtomicBool::new(false)),
        };
        for edge in &document.edges {
            let name = edge.name.value.clone();
            let ns = NetNs::create("vne").expect("a namespace");
            let running = format!("t{}-{number}-{name}", std::process::id());
            bed.names.insert(name.clone(), running);
            bed.edges.insert(name, ns);
        }
        bed.underlay(document);
        for network in &document.networks {
            for workload in &network.workloads {
                let subnet = network
                    .subnets
                    .iter()
                    .find(|one| one.name.value == workload.subnet.value)
                    .expect("a subnet");
                let routers: Vec<IpAddr> = network
                    .functions
                    .iter()
                    .flat_map(|function| &function.interfaces)
                    .flat_map(|interface| &interface.addresses)
                    .map(|address| address.address)
                    .collect();
                let name = format!("{}/{}", network.name.value, workload.name.value);
                let mac = match &workload.mac {
                    Station::Given(mac) => mac.value.0,
                    _ => mac_of_name(&name).0,
                };
                // Of those that may have any, and of trunks, the test gives some to devices of its own.
                let addresses = workload.addresses.known();
                let edge = &bed.edges[&workload.edge.value];
                let device = &workload.device.value;
                if device.starts_with("tap") {
                    let open = || Tap::open(device).expect("a tap");
                    let tap = edge.run(open).expect("in the namespace");
                    edge.ip(&["link", "set", device, "up"]).expect("up");
                    let addresses = addresses.iter().map(|one| one.value).collect();
                    bed.taps
                        .insert(name, Machine::start(tap, mac, addresses, &bed.stop));
                    continue;
                }
                let ns = NetNs::create("vnw").expect("a namespace");
                edge.ip(&[
                    "link",
                    "add",
                    device,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "eth0",
                    "netns",
                    ns.name(),
                ])
                .expect("a pair");
                edge.ip(&["link", "set", device, "up"]).expect("up");
                let shown = mac.map(|byte| format!("{byte:02x}")).join(":");
                ns.ip(&["link", "set", "eth0", "address", &shown, "up"])
                    .expect("its address");
                ns.ip(&["link", "set", "lo", "up"]).expect("up");
                let is_trunk = matches!(workload.vlan, Vlan::Trunk(_));
                for address in addresses.iter().filter(|_| !is_trunk) {
                    let net = subnet
                        .prefixes
                        .iter()
                        .find(|net| net.address().is_ipv4() == address.is_ipv4())
                        .expect("a prefix");
                    let with_length = format!("{}/{}", address.value, net.len);
                    let mut args = vec!["address", "add", &with_length, "dev", "eth0"];
                    if address.is_ipv6() {
                        args.push("nodad");
                    }
                    ns.ip(&args).expect("an address");
                    let router = routers.iter().find(|router| net.contains(**router));
                    if let Some(router) = router {
                        let family = if router.is_ipv4() { "-4" } else { "-6" };
                        ns.ip(&[
                            family,
                            "route",
                            "add",
                            "default",
                            "via",
                            &router.to_string(),
                        ])
                        .expect("a route");
                    }
                }
                let listener = listen(&ns, &bed.stop, &name);
                bed.workloads.insert(
                    name,
                    Workload {
                        ns,
                        edge: workload.edge.value.clone(),
                        mac,
                        addresses: addresses.iter().map(|one| one.value).collect(),
                        listener: Some(listener),
                    },
                );
            }
        }
        bed.settle();
        bed
    }

    /// Waits until all devices have found their other ends: the kernel looks at carriers once a second only, and until then a device loses
    /// what is sent without a word.
    fn settle(&self) {
        let workloads = self.workloads.values().map(|workload| &workload.ns);
        let begun = std::time::Instant::now();
        for ns in self.edges.values().chain(workloads) {
            while ns
                .ip(&["-br", "link"])
                .is_ok_and(|shown| shown.contains("NO-CARRIER") || shown.contains(" DOWN "))
            {
                assert!(
                    begun.elapsed() < Duration::from_secs(20),
                    "a device does not come up"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// A switch that joins the underlay devices of all edges.
    fn underlay(&mut self, document: &Document) {
        let with: Vec<_> = document
            .edges
            .iter()
            .filter(|edge| edge.device.is_some())
            .collect();
        if with.is_empty() {
            return;
        }
        let fabric = NetNs::create("vnf").expect("a namespace");
        fabric
            .ip(&["link", "add", "br0", "mtu", "9000", "type", "bridge"])
            .expect("a switch");
        fabric.ip(&["link", "set", "br0", "up"]).expect("up");
        for (at, edge) in with.iter().enumerate() {
            let ns = &self.edges[&edge.name.value];
            let device = edge.device.as_ref().expect("it has one").value.as_str();
            let port = format!("p{at}");
            let mtu = edge.mtu.value.to_string();
            fabric
                .ip(&[
                    "link",
                    "add",
                    &port,
                    "mtu",
                    &mtu,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    device,
                    "mtu",
                    &mtu,
                    "netns",
                    ns.name(),
                ])
                .expect("a pair");
            fabric
                .ip(&["link", "set", &port, "master", "br0", "up"])
                .expect("in the switch");
            for address in &edge.underlay {
                let length = if address.is_ipv4() { 24 } else { 64 };
                let address = format!("{}/{length}", address.value);
                let mut args = vec!["address", "add", &address, "dev", device];
                if address.contains(':') {
                    args.push("nodad");
                }
                ns.ip(&args).expect("an address");
            }
            ns.ip(&["link", "set", device, "up"]).expect("up");
        }
        self.fabric = Some(fabric);
    }

    /// Applies a document on all edges.
    pub(crate) fn apply(&self, text: &str) -> BTreeMap<String, Applied> {
        let edges = self.names.keys();
        edges
            .map(|edge| (edge.clone(), self.apply_on(edge, text).expect("applied")))
            .collect()
    }

    /// ... on one of them.
    pub(crate) fn apply_on(&self, edge: &str, text: &str) -> Result<Applied, NetworkError> {
        self.apply_watched(edge, text, &mut |_| Ok(()))
    }

    /// ... telling each step.
    pub(crate) fn apply_watched(
        &self,
        edge: &str,
        text: &str,
        watch: &mut (dyn FnMut(Step) -> Result<(), NetworkError> + Send),
    ) -> Result<Applied, NetworkError> {
        let apply = || {
            let mut networks = Networks::open(&self.names[edge])?;
            let wanted = checked_with(text, &Held(&networks));
            let plan = wanted.plan(edge, networks.numbers()).expect("planned");
            networks.apply_watched(&plan, text, watch)
        };
        self.edges[edge].run(apply).expect("in the namespace")
    }

    /// What runs on an edge.
    pub(crate) fn look(&self, edge: &str) -> Look {
        let look = || network::look(&self.names[edge]).expect("looked");
        let found = self.edges[edge].run(look).expect("in the namespace");
        found.expect("it runs")
    }

    /// Drops of an edge by reason.
    pub(crate) fn drops(&self, edge: &str) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for (drop, count) in self.look(edge).set.drops().expect("read") {
            let reason = weir_packet::Reason::ALL[drop.reason as usize];
            *drops.entry(reason.name().to_owned()).or_default() += count;
        }
        drops
    }

    /// Whether a workload gets an answer over TCP from an address.
    pub(crate) fn reaches(&self, from: &str, to: IpAddr) -> bool {
        self.reaches_within(PATIENCE, from, to)
    }

    /// The same for what is not to be reached.
    pub(crate) fn reaches_at_once(&self, from: &str, to: IpAddr) -> bool {
        self.reaches_within(MOMENT, from, to)
    }

    fn reaches_within(&self, wait: Duration, from: &str, to: IpAddr) -> bool {
        let talk = |left| {
            let mut stream = TcpStream::connect_timeout(&SocketAddr::new(to, PORT), left).ok()?;
            stream.set_read_timeout(Some(left)).ok()?;
            stream.write_all(b"hello").ok()?;
            let mut back = [0; 5];
            stream.read_exact(&mut back).ok()?;
            (back == *b"hello").then_some(())
        };
        let ns = &self.workloads[from].ns;
        let answered = ns.run(|| tries(wait, talk)).expect("in the namespace");
        answered.is_some()
    }

    /// Who answers a workload at an address: the name of a workload.
    pub(crate) fn who(&self, from: &str, at: IpAddr) -> Option<String> {
        self.who_within(PATIENCE, from, at)
    }

    /// The same where nobody is to answer.
    pub(crate) fn who_at_once(&self, from: &str, at: IpAddr) -> Option<String> {
        self.who_within(MOMENT, from, at)
    }

    fn who_within(&self, wait: Duration, from: &str, at: IpAddr) -> Option<String> {
        let ask = |left| {
            let mut stream = TcpStream::connect_timeout(&SocketAddr::new(at, WHO), left).ok()?;
            stream.set_read_timeout(Some(left)).ok()?;
            let mut name = String::new();
            stream.read_to_string(&mut name).ok()?;
            Some(name)
        };
        let ns = &self.workloads[from].ns;
        ns.run(|| tries(wait, ask)).expect("in the namespace")
    }

    /// Bytes that a workload gets back of so many that it sends to an address.
    pub(crate) fn echo(&self, from: &str, to: IpAddr, bytes: usize) -> std::io::Result<usize> {
        let talk = || {
            let wait = Duration::from_secs(5);
            let mut stream = TcpStream::connect_timeout(&SocketAddr::new(to, PORT), wait)?;
            stream.set_read_timeout(Some(wait))?;
            let mut reader = stream.try_clone()?;
            let sender = std::thread::spawn(move || {
                let block = vec![0x5a; 1 << 16];
                let mut left = bytes;
                while left > 0 {
                    let now = left.min(block.len());
                    if stream.write_all(&block[..now]).is_err() {
                        break;
                    }
                    left -= now;
                }
            });
            let mut got = 0;
            let mut block = vec![0; 1 << 16];
            while got < bytes {
                match reader.read(&mut block)? {
                    0 => break,
                    n => got += n,
                }
            }
            sender.join().expect("sent");
            Ok(got)
        };
        self.workloads[from].ns.run(talk).expect("in the namespace")
    }

    /// `ping` from a workload: received of sent. A request whose ARP request is lost waits a second for the next one, so answers have longer.
    pub(crate) fn ping(&self, from: &str, args: &[&str]) -> String {
        let mut all = vec!["-c", "2", "-i", "0.05", "-W", "5"];
        all.extend(args);
        let command = self.workloads[from].ns.command("ping");
        let output = command.expect("ping").args(all).output().expect("ran");
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }
}

/// Sends back what comes in, and says who it is, until the bed goes.
fn listen(ns: &NetNs, stop: &Arc<AtomicBool>, name: &str) -> JoinHandle<()> {
    let bind =
        || [PORT, WHO].map(|port| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).expect("bound"));
    let [back, who] = ns.run(bind).expect("in the namespace");
    for listener in [&back, &who] {
        listener.set_nonblocking(true).expect("set");
    }
    let (stop, name) = (Arc::clone(stop), name.to_owned());
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            if let Ok((stream, _)) = back.accept() {
                std::thread::spawn(move || send_back(stream));
            } else if let Ok((mut stream, _)) = who.accept() {
                let _ = stream.write_all(name.as_bytes());
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
}

/// A machine behind a tap: answers ARP and echo requests to its IPv4 address in the VLAN that they come in, and keeps answers to its own.
pub(crate) struct Machine {
    tap: Mutex<Tap>,
    mac: [u8; 6],
    pub(crate) address: [u8; 4],
    /// Sources of echo replies that came.
    replies: Mutex<Vec<[u8; 4]>>,
    /// Sources of echo requests that came, and the VLAN of their tag.
    requests: Mutex<BTreeSet<([u8; 4], Option<u16>)>>,
}

impl Machine {
    fn start(
        tap: Tap,
        mac: [u8; 6],
        addresses: Vec<IpAddr>,
        stop: &Arc<AtomicBool>,
    ) -> Arc<Machine> {
        let v4 = addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(v4.octets()),
            IpAddr::V6(_) => None,
        });
        let machine = Arc::new(Machine {
            tap: Mutex::new(tap),
            mac,
            address: v4.expect("an address of IPv4"),
            replies: Mutex::new(Vec::new()),
            requests: Mutex::new(BTreeSet::new()),
        });
        let (running, stop) = (Arc::clone(&machine), Arc::clone(stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let frame = running.tap.lock().expect("whole").receive().expect("read");
                match frame {
                    Some(frame) => running.take(frame),
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        machine
    }

    fn take(&self, mut frame: Vec<u8>) {
        let tagged = frame.get(12..14) == Some(&[0x81, 0]) && frame.len() >= 18;
        let tag: Vec<u8> = match tagged {
            true => frame.drain(12..16).collect(),
            false => Vec::new(),
        };
        let vlan = tag
            .get(2..4)
            .map(|tci| u16::from_be_bytes([tci[0] & 15, tci[1]]));
        let is = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
        if is(12, &[8, 6]) && is(20, &[0, 1]) && is(38, &self.address) {
            frame.copy_within(6..12, 0);
            frame[21] = 2;
            frame.copy_within(22..32, 32);
            frame[22..28].copy_from_slice(&self.mac);
            frame[28..32].copy_from_slice(&self.address);
        } else if is(12, &[8, 0]) && is(23, &[1]) && is(30, &self.address) && is(34, &[8]) {
            let from = [frame[26], frame[27], frame[28], frame[29]];
            self.requests.lock().expect("whole").insert((from, vlan));
            frame.copy_within(6..12, 0);
            frame.copy_within(26..30, 30);
            frame[26..30].copy_from_slice(&self.address);
            frame[34] = 0;
            // One less in the type's byte.
            let sum = u32::from(u16::from_be_bytes([frame[36], frame[37]])) + 0x800;
            let sum = (sum + (sum >> 16)) as u16;
            frame[36..38].copy_from_slice(&sum.to_be_bytes());
        } else {
            if is(12, &[8, 0]) && is(23, &[1]) && is(30, &self.address) && is(34, &[0]) {
                let from = [frame[26], frame[27], frame[28], frame[29]];
                self.replies.lock().expect("whole").push(from);
            }
            return;
        }
        frame[6..12].copy_from_slice(&self.mac);
        frame.splice(12..12, tag);
        self.tap.lock().expect("whole").send(&frame).expect("sent");
    }

    /// Who sent echo requests, and with which tag.
    pub(crate) fn requests(&self) -> Vec<([u8; 4], Option<u16>)> {
        self.requests
            .lock()
            .expect("whole")
            .iter()
            .copied()
            .collect()
    }

    /// Whether an address answers a ping, by a station.
    pub(crate) fn reaches(&self, station: [u8; 6], address: [u8; 4]) -> bool {
        let mut frame = Frame::new()
            .ip4(self.address, address)
            .icmp(8, 0)
            .echo(1, 1)
            .build();
        frame[..6].copy_from_slice(&station);
        frame[6..12].copy_from_slice(&self.mac);
        self.replies.lock().expect("whole").clear();
        self.tap.lock().expect("whole").send(&frame).expect("sent");
        for _ in 0..200 {
            if self.replies.lock().expect("whole").contains(&address) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

/// Tries again until there is an answer or the time is over: three seconds after an address was asked for in vain, a kernel ends everything that waits for it, also what began when the address
/// was already there.
fn tries<T>(wait: Duration, mut once: impl FnMut(Duration) -> Option<T>) -> Option<T> {
    let end = std::time::Instant::now() + wait;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return None;
        }
        if let Some(answer) = once(left) {
            return Some(answer);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn send_back(mut stream: TcpStream) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let mut block = vec![0; 1 << 16];
    while let Ok(n) = stream.read(&mut block) {
        if n == 0 || stream.write_all(&block[..n]).is_err() {
            break;
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (edge, name) in &self.names {
            let remove = || Networks::open(name)?.remove();
            let removed = self.edges[edge].run(remove);
            if !std::thread::panicking() {
                removed.expect("in the namespace").expect("removed");
            }
        }
        for workload in self.workloads.values_mut() {
            if let Some(listener) = workload.listener.take() {
                let _ = listener.join();
            }
        }
    }
}
