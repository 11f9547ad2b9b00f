//! Three edges that follow one store: etcd of three members with TLS, agents in namespaces, two tenants with the same addresses, and packets that go on
//! whatever becomes of the store.
//!
//! ```text
//! red/w1  blue/w1      red/w2  blue/w2      red/w3  blue/w3  blue/w9
//!      [e1]                 [e2]                 [e3]
//!        +------------ bridge, 10.9.0.0/24 --------+---- three members of etcd (10.9.0.254)
//! ```
//!
//! `WEIR_LONG=1`: more changes are timed.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::NetNs;
use weir_testdata::etcd::{Cluster, has_etcd};

use crate::live_agent::Running;
use crate::live_bed::{file, root, stderr};

/// How long something may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait for an answer that is expected, and for one that is not.
const ANSWER: Duration = Duration::from_millis(2000);
const SILENCE: Duration = Duration::from_millis(150);

/// Port of the workloads' echo servers.
const ECHO: u16 = 7;

/// An edge, its agent, and its folders.
struct Edge {
    name: String,
    ns: NetNs,
    folder: PathBuf,
    state: PathBuf,
    agent: Option<Running>,
}

impl Edge {
    fn start(&mut self) {
        self.agent = Some(Running::start(&self.ns, &self.folder, &self.state));
    }

    fn agent(&self) -> &Running {
        self.agent.as_ref().expect("it runs")
    }

    fn weir(&self, args: &[&str]) -> Output {
        let mut command = self
            .ns
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        command.args(args).args(["--config"]).arg(&self.folder);
        command
            .env("STATE_DIRECTORY", &self.state)
            .output()
            .expect("weir starts")
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let output = self.weir(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{args:?}: {}{text}",
            stderr(&output)
        );
        text
    }

    #[track_caller]
    fn status(&self, wait: &str) -> Value {
        let text = self.done(&["net", "store", "status", "--wait", wait, "--json"]);
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.agent = None;
        let mut command = self
            .ns
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        let _ = command
            .args(["net", "delete", "--edge", &self.name])
            .output();
    }
}

/// A workload with an echo server that puts its name in front.
struct Station {
    ns: NetNs,
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Station {
    fn new(edge: &Edge, network: &str, name: &str, host: u8) -> Station {
        let ns = NetNs::create("wst").expect("a namespace");
        let device = format!("{}-{name}", &network[..3]);
        let pair = [
            "link",
            "add",
            &device,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            ns.name(),
        ];
        edge.ns.ip(&pair).expect("a pair");
        edge.ns.ip(&["link", "set", &device, "up"]).expect("up");
        let mac = weir_network::values::mac_of_name(&format!("{network}/{name}")).to_string();
        ns.ip(&["link", "set", "eth0", "address", &mac, "up"])
            .expect("its address");
        ns.ip(&[
            "address",
            "add",
            &format!("10.1.0.{host}/24"),
            "dev",
            "eth0",
        ])
        .expect("an address");
        let socket = ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ECHO)));
        let socket = socket.expect("namespace").expect("binds");
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let (told, own) = (Arc::clone(&stop), format!("{network}/{name} "));
        let server = std::thread::spawn(move || {
            let mut bytes = [0; 256];
            while !told.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut bytes) {
                    let answer = [own.as_bytes(), &bytes[..length]].concat();
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Station {
            ns,
            stop,
            server: Some(server),
        }
    }

    fn socket(&self) -> UdpSocket {
        let socket = self.ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        socket.expect("namespace").expect("binds")
    }

    /// Who answers at an address.
    fn asks(&self, host: u8, patience: Duration) -> Option<String> {
        let socket = self.socket();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a socket");
        let until = Instant::now() + patience;
        let mut bytes = [0; 256];
        while Instant::now() < until {
            // Until ARP is answered the kernel may report that the host is unreachable.
            let _ = socket.send_to(b"?", SocketAddr::from(([10, 1, 0, host], ECHO)));
            if let Ok(length) = socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                return text.split(' ').next().map(str::to_owned);
            }
        }
        None
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Numbered datagrams and their answers, one every two milliseconds.
struct Stream {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64)>,
}

impl Stream {
    fn start(from: &Station, host: u8) -> Stream {
        let socket = from.socket();
        socket.set_nonblocking(true).expect("a socket");
        socket
            .connect(SocketAddr::from(([10, 1, 0, host], ECHO)))
            .expect("connected");
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut sent, mut received) = (0, 0);
            let mut bytes = [0; 64];
            let mut end: Option<Instant> = None;
            while end.is_none_or(|end| Instant::now() < end) {
                if end.is_none() {
                    sent += u64::from(socket.send(&u64::to_be_bytes(sent)).is_ok());
                    // The last ones have time to come back.
                    end = told
                        .load(Ordering::Relaxed)
                        .then(|| Instant::now() + Duration::from_millis(500));
                }
                while socket.recv(&mut bytes).is_ok() {
                    received += 1;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            (sent, received)
        });
        Stream { stop, thread }
    }

    /// Sent and answered.
    fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends")
    }
}

/// Three members on the bridge.
fn cluster_in(core: &NetNs, folder: &Path) -> Cluster {
    let core = core.name().to_owned();
    let within = move |program: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &core, program]);
        command
    };
    Cluster::new(folder, "10.9.0.254", 2379, 3, within)
}

struct Bed {
    edges: Vec<Edge>,
    folder: PathBuf,
}

impl Bed {
    fn new(core: &NetNs, edges: usize) -> Bed {
        let folder = file("store", "").with_extension("d");
        core.ip(&["link", "add", "br0", "type", "bridge"])
            .expect("a bridge");
        core.ip(&["link", "set", "lo", "up"]).expect("up");
        core.ip(&["link", "set", "br0", "up"]).expect("up");
        core.ip(&["address", "add", "10.9.0.254/24", "dev", "br0"])
            .expect("an address");
        let edges = (1..=edges).map(|n| {
            let ns = NetNs::create("wste").expect("a namespace");
            let far = format!("up{n}");
            ns.ip(&[
                "link",
                "add",
                "eth0",
                "mtu",
                "1600",
                "type",
                "veth",
                "peer",
                "name",
                &far,
                "mtu",
                "1600",
                "netns",
                core.name(),
            ])
            .expect("a pair");
            core.ip(&["link", "set", &far, "master", "br0", "up"])
                .expect("up");
            ns.ip(&["link", "set", "eth0", "up"]).expect("up");
            ns.ip(&["address", "add", &format!("10.9.0.{n}/24"), "dev", "eth0"])
                .expect("an address");
            let name = format!("s{}-e{n}", std::process::id());
            let home = folder.join(format!("e{n}"));
            fs::create_dir_all(&home).expect("writable");
            Edge {
                name,
                ns,
                state: home.with_extension("state"),
                folder: home,
                agent: None,
            }
        });
        Bed {
            edges: edges.collect(),
            folder,
        }
    }

    fn configure(&self, cluster: &Cluster) {
        for edge in &self.edges {
            let endpoints: Vec<String> = (0..3)
                .map(|member| format!("\"{}\"", cluster.endpoint(member)))
                .collect();
            let path = |name: &str| cluster.authority.path(name);
            let text = format!(
                "[store]\nendpoints = [{}]\nca = \"{}\"\ncert = \"{}\"\nkey = \"{}\"\nedge = \"{}\"\ngrace = 1\n",
                endpoints.join(", "),
                path("ca.pem"),
                path("client.pem"),
                path("client.key"),
                edge.name
            );
            fs::write(edge.folder.join("agent.toml"), text).expect("writable");
        }
    }

    /// A tenant's document. `workloads`: name, edge, last byte of its address.
    fn document(
        &self,
        tenant: &str,
        version: u32,
        workloads: &[(&str, usize, u8)],
        with_edges: bool,
    ) -> String {
        let mut text = format!("version = {version}\n");
        for (n, edge) in self.edges.iter().enumerate().filter(|_| with_edges) {
            text.push_str(&format!(
                "[[edge]]\nname = \"{}\"\nunderlay = \"10.9.0.{}\"\ndevice = \"eth0\"\nmtu = 1600\n", edge.name, n + 1
            ));
        }
        text.push_str(&format!(
            "[[tenant]]\nname = \"{tenant}\"\n[[network]]\nname = \"{tenant}-net\"\ntenant = \"{tenant}\"\n\
             [[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n"
        ));
        for (name, edge, host) in workloads {
            text.push_str(&format!(
                "[[network.workload]]\nname = \"{name}\"\nsubnet = \"web\"\nedge = \"{}\"\ndevice = \"{}-{name}\"\naddress = \"10.1.0.{host}\"\n",
                self.edges[*edge].name, &tenant[..3]
            ));
        }
        let path = self.folder.join(format!("{tenant}-{version}.toml"));
        fs::write(&path, text).expect("writable");
        path.display().to_string()
    }
}

/// Each workload sends to each address of its subnet: exactly the workloads declared there in its own network answer.
fn reach_as_declared(stations: &BTreeMap<(&'static str, u8), Station>) {
    for (network, from) in stations.keys() {
        for host in [1, 2, 3, 9] {
            if host == *from {
                continue;
            }
            let is_declared = stations.contains_key(&(*network, host));
            let patience = if is_declared { ANSWER } else { SILENCE };
            let answer = stations[&(*network, *from)].asks(host, patience);
            let wanted = is_declared.then(|| format!("{network}/w{host}"));
            assert_eq!(answer, wanted, "{network}/w{from} to 10.1.0.{host}");
        }
    }
}

#[test]
fn edges_follow_the_store_and_forward_without_it() {
    let test = "edges_follow_the_store_and_forward_without_it";
    if !root(test) || !has_etcd() {
        return;
    }
    let is_long = std::env::var_os("WEIR_LONG").is_some();
    let core = NetNs::create("wstc").expect("a namespace");
    let mut bed = Bed::new(&core, 3);
    let mut cluster = cluster_in(&core, &bed.folder.join("etcd"));
    cluster.start_all();
    bed.configure(&cluster);
    for edge in &mut bed.edges {
        edge.start();
    }
    let mut stations = BTreeMap::new();
    for (network, hosts) in [
        ("red-net", [1, 2, 3].as_slice()),
        ("blue-net", &[1, 2, 3, 9]),
    ] {
        for &host in hosts {
            let edge = &bed.edges[usize::from(host.min(3)) - 1];
            stations.insert(
                (network, host),
                Station::new(edge, network, &format!("w{host}"), host),
            );
        }
    }
    let red: Vec<(&str, usize, u8)> = vec![("w1", 0, 1), ("w2", 1, 2), ("w3", 2, 3)];
    let blue = [red.as_slice(), &[("w9", 2, 9)]].concat();
    let first = &bed.edges[0];
    first.done(&[
        "net",
        "store",
        "push",
        &bed.document("red", 1, &red, true),
        "--wait",
        "20s",
    ]);
    first.done(&[
        "net",
        "store",
        "push",
        &bed.document("blue", 1, &blue, false),
        "--wait",
        "20s",
    ]);
    reach_as_declared(&stations);

    // The same is nothing new; another text of the same version is refused, and so is what makes no valid document.
    let again = first.done(&["net", "store", "push", &bed.document("red", 1, &red, true)]);
    assert!(again.contains("the store says the same"), "{again}");
    let refused = first.weir(&[
        "net",
        "store",
        "push",
        &bed.document("red", 1, &red[..2], true),
    ]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("raise `version`"),
        "{}",
        stderr(&refused)
    );
    let add = |name: &str, host: &str| {
        let on = bed.edges[2].name.clone();
        let words = [
            "net",
            "store",
            "workload",
            "add",
            name,
            "--subnet",
            "web",
            "--on",
            &on,
            "--device",
            "red-w5",
            "--address",
            host,
        ];
        words.map(str::to_owned)
    };
    let run = |all: &[String]| first.weir(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = run(&add("red-net/w5", "10.7.0.5"));
    assert!(
        stderr(&refused).contains("10.7.0.5"),
        "{}",
        stderr(&refused)
    );

    // A change of one workload is everywhere soon.
    let fifth = Station::new(&bed.edges[2], "red-net", "w5", 5);
    let mut times = Vec::new();
    for _ in 0..if is_long { 50 } else { 4 } {
        for edge in &bed.edges {
            edge.agent().skip();
        }
        let begun = Instant::now();
        let output = run(&add("red-net/w5", "10.1.0.5"));
        assert!(output.status.success(), "{}", stderr(&output));
        for edge in &bed.edges {
            edge.agent().event("applied");
        }
        times.push(begun.elapsed());
        assert_eq!(
            stations[&("red-net", 1)].asks(5, ANSWER).as_deref(),
            Some("red-net/w5")
        );
        assert_eq!(stations[&("blue-net", 1)].asks(5, SILENCE), None);
        first.done(&["net", "store", "workload", "delete", "red-net/w5"]);
        for edge in &bed.edges {
            edge.agent().event("applied");
        }
        assert_eq!(
            stations[&("red-net", 1)].asks(5, SILENCE),
            None,
            "after the grace period"
        );
    }
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    report(&format!(
        "one workload, from the command's start to all three edges: p50 {:?}, p99 {:?}, {} changes",
        at(50),
        at(99),
        times.len()
    ));

    let stream = Stream::start(&stations[&("red-net", 1)], 2);
    // A member dies; changes go on through the others.
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.wait();
    let output = run(&add("red-net/w5", "10.1.0.5"));
    assert!(output.status.success(), "{}", stderr(&output));
    first.status("30s");
    assert_eq!(
        stations[&("red-net", 2)].asks(5, ANSWER).as_deref(),
        Some("red-net/w5")
    );

    // All die; an agent is killed and starts without them.
    cluster.kill_all();
    bed.edges[1].agent = None;
    bed.edges[1].start();
    bed.edges[1].agent().event("adopted");
    std::thread::sleep(Duration::from_secs(2));
    let refused = bed.edges[0].weir(&["net", "store", "status"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("no member of the store answers"),
        "{}",
        stderr(&refused)
    );
    cluster.start_all();
    bed.edges[0].status("30s");

    // What a restored store lacks is kept; so is everything while it is empty.
    let snapshot = bed.folder.join("snapshot.db").display().to_string();
    cluster.save(&snapshot);
    let sixth = Station::new(&bed.edges[1], "red-net", "w6", 6);
    let (first, on) = (&bed.edges[0], &bed.edges[1].name);
    first.done(&[
        "net",
        "store",
        "workload",
        "add",
        "red-net/w6",
        "--subnet",
        "web",
        "--on",
        on,
        "--device",
        "red-w6",
        "--address",
        "10.1.0.6",
    ]);
    first.status("20s");
    let reaches_all = || {
        for host in [2, 5, 6] {
            let answer = stations[&("red-net", 1)].asks(host, ANSWER);
            assert_eq!(answer, Some(format!("red-net/w{host}")));
        }
    };
    reaches_all();
    cluster.kill_all();
    cluster.wipe();
    cluster.start_all();
    let empty = first.weir(&["net", "store", "status"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(
        stderr(&empty).contains("the store is empty"),
        "{}",
        stderr(&empty)
    );
    for edge in &bed.edges {
        assert_eq!(
            edge.agent().event_of("store", "held")["edge"],
            edge.name.as_str()
        );
    }
    reaches_all();
    cluster.kill_all();
    cluster.wipe();
    cluster.restore(&snapshot);
    for edge in &bed.edges {
        edge.agent().skip();
    }
    cluster.start_all();
    // Until an edge has come back, the store has its result of before.
    for edge in &bed.edges {
        edge.agent().event_of("store", "held");
    }
    let status = first.status("30s");
    let held: u64 = status["edges"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["held"].as_u64().expect("a number"))
        .sum();
    assert!(held >= 3, "each edge keeps w6: {status}");
    // Longer than the grace period.
    std::thread::sleep(Duration::from_millis(1500));
    reaches_all();
    let (sent, received) = stream.end();
    report(&format!(
        "while members, all of etcd and an agent were killed, the store was wiped and restored: {sent} sent, {} lost",
        sent - received
    ));
    assert_eq!(
        (sent, received),
        (sent, sent),
        "nothing of the stream is lost"
    );
    assert!(sent > 2000, "{sent}");

    // The operator accepts the restored state.
    first.done(&["net", "store", "accept"]);
    first.status("20s");
    let until = Instant::now() + PATIENCE;
    while stations[&("red-net", 1)].asks(6, SILENCE).is_some() {
        assert!(Instant::now() < until, "w6 is let go");
    }
    assert_eq!(
        stations[&("red-net", 1)].asks(5, ANSWER).as_deref(),
        Some("red-net/w5")
    );
    reach_as_declared(&stations);
    drop((fifth, sixth));
}

fn report(line: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
