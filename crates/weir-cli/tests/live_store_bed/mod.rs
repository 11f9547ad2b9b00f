//! Edges that follow one store, each in a namespace, on one bridge with the members of etcd; workloads with echo servers; numbered streams between them.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::{NetNs, bed};
use weir_testdata::etcd::Cluster;

use crate::live_agent::Running;
use crate::live_bed::{file, stderr};

/// How long something may take that is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait for an answer that is expected, and for one that is not.
pub(crate) const ANSWER: Duration = Duration::from_millis(2000);
pub(crate) const SILENCE: Duration = Duration::from_millis(150);

/// Port of the workloads' echo servers.
pub(crate) const ECHO: u16 = 7;

/// An edge, its agent, and its folders.
pub(crate) struct Edge {
    pub(crate) name: String,
    pub(crate) ns: NetNs,
    pub(crate) folder: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) agent: Option<Running>,
}

impl Edge {
    pub(crate) fn start(&mut self) {
        self.agent = Some(Running::start(&self.ns, &self.folder, &self.state));
    }

    pub(crate) fn agent(&self) -> &Running {
        self.agent.as_ref().expect("it runs")
    }

    pub(crate) fn weir(&self, args: &[&str]) -> Output {
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
    pub(crate) fn done(&self, args: &[&str]) -> String {
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
    pub(crate) fn status(&self, wait: &str) -> Value {
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

/// One end of a pair of interfaces: namespace, name, addresses.
type Side<'a> = (&'a NetNs, &'a str, &'a [&'a str]);

/// Joins two namespaces.
pub(crate) fn join(one: Side<'_>, other: Side<'_>) {
    let [one, other] = [one, other].map(|(ns, name, addresses)| bed::End {
        ns,
        name,
        addresses,
    });
    bed::veth(one, other).expect("a pair");
}

/// A workload with an echo server that puts its name in front.
pub(crate) struct Station {
    pub(crate) ns: NetNs,
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Station {
    pub(crate) fn new(edge: &Edge, network: &str, name: &str, host: u8) -> Station {
        let ns = NetNs::create("wst").expect("a namespace");
        let device = format!("{}-{name}", &network[..3]);
        let address = format!("10.1.0.{host}/24");
        join((&edge.ns, &device, &[]), (&ns, "eth0", &[&address]));
        let mac = weir_network::values::mac_of_name(&format!("{network}/{name}")).to_string();
        ns.ip(&["link", "set", "eth0", "address", &mac])
            .expect("its address");
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

    pub(crate) fn socket(&self) -> UdpSocket {
        let socket = self.ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        socket.expect("namespace").expect("binds")
    }

    /// Who answers at an address.
    pub(crate) fn asks(&self, host: u8, patience: Duration) -> Option<String> {
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
pub(crate) struct Stream {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64, Duration)>,
}

impl Stream {
    pub(crate) fn start(from: &Station, host: u8) -> Stream {
        let socket = from.socket();
        socket.set_nonblocking(true).expect("a socket");
        socket
            .connect(SocketAddr::from(([10, 1, 0, host], ECHO)))
            .expect("connected");
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut sent, mut received) = (0, 0);
            let (mut last, mut pause) = (Instant::now(), Duration::ZERO);
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
                    pause = pause.max(last.elapsed());
                    last = Instant::now();
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            (sent, received, pause)
        });
        Stream { stop, thread }
    }

    /// Sent and answered, and the longest time between two answers.
    pub(crate) fn end(self) -> (u64, u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends")
    }
}

/// Three members on the bridge.
pub(crate) fn cluster_in(core: &NetNs, folder: &Path) -> Cluster {
    let core = core.name().to_owned();
    let within = move |program: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &core, program]);
        command
    };
    Cluster::new(folder, "10.9.0.254", 2379, 3, within)
}

pub(crate) struct Bed {
    pub(crate) edges: Vec<Edge>,
    pub(crate) folder: PathBuf,
}

impl Bed {
    pub(crate) fn new(core: &NetNs, edges: usize) -> Bed {
        // Names of edges are the host's: two beds of one process must not share them.
        static BEDS: AtomicU32 = AtomicU32::new(0);
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
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
            let address = format!("10.9.0.{n}/24");
            join((&ns, "eth0", &[&address]), (core, &far, &[]));
            // Room for a tunnel's headers around packets of 1,500 bytes.
            ns.ip(&["link", "set", "eth0", "mtu", "1600"]).expect("set");
            core.ip(&["link", "set", &far, "mtu", "1600", "master", "br0"])
                .expect("set");
            let name = format!("s{}-{number}-e{n}", std::process::id());
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

    pub(crate) fn configure(&self, cluster: &Cluster) {
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
    pub(crate) fn document(
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

/// A figure, for whoever reads the log.
pub(crate) fn report(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
