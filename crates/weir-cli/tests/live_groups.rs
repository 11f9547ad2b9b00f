//! Security groups in networks that run: members come and go under numbered streams, of both families, and no program is loaded for it.
//!
//! ```text
//! w1  w2  w3 -- inside -- wall (policy: only @web may send to port 7) -- outside -- server
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::NetNs;

use crate::live_bed::{file, root, stderr, weir};

/// Longest wait for an answer that is expected, and for one that is not.
const ANSWER: Duration = Duration::from_secs(3);
const SILENCE: Duration = Duration::from_millis(150);

/// The port that only members may send to, and one that anybody may.
const GUARDED: u16 = 7;
const OPEN: u16 = 9;

/// Stateless rules: each packet is judged alone.
const STATELESS: &str = "web4: in a udp-dport 7 ! ip-saddr in @web drop\n\
                         web6: in a udp-dport 7 ! ip6-saddr in @web drop\n";

/// Members open connections; answers and what is open go on.
const STATEFUL: &str = "web: add-stateful in a udp-dport 7 ip-saddr in @web accept\n\
                        deny: udp-dport 7 drop\n";

struct Bed {
    host: NetNs,
    edge: String,
    version: u32,
}

impl Bed {
    fn new() -> Bed {
        static BEDS: AtomicU32 = AtomicU32::new(0);
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        Bed {
            host: NetNs::create("grh").expect("a namespace"),
            edge: format!("groups-{}-{number}", std::process::id()),
            version: 0,
        }
    }

    /// A document with this policy and these sections of workloads.
    fn document(&mut self, policy: &str, groups: &str, workloads: &[String]) -> String {
        self.version += 1;
        let (edge, version) = (&self.edge, self.version);
        let text = format!(
            "version = {version}\n[[edge]]\nname = \"{edge}\"\n[[tenant]]\nname = \"red\"\n[[network]]\nname = \"n\"\ntenant = \"red\"\n\
             [[network.subnet]]\nname = \"inside\"\nprefix = [\"10.1.0.0/24\", \"fd00:1::/64\"]\n\
             [[network.subnet]]\nname = \"outside\"\nprefix = [\"10.1.0.0/24\", \"fd00:1::/64\"]\n\
             {groups}\
             [[network.function]]\nname = \"wall\"\nkind = \"middlebox\"\nrules = \"\"\"\n{policy}\"\"\"\n\
             [[network.link]]\nfrom = \"inside\"\nto = \"wall\"\n[[network.link]]\nfrom = \"wall\"\nto = \"outside\"\n\
             {}{}",
            workloads.concat(),
            member("server", "outside", 100, "")
        );
        let path = file("groups.toml", &text);
        path.to_str().expect("UTF-8").to_owned()
    }

    fn weir(&self, args: &[&str]) -> Output {
        weir(&self.host, args)
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let output = self.weir(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A change that must not load a program.
    #[track_caller]
    fn changes(&self, args: &[&str]) {
        let text = self.done(&[args, &["--json"]].concat());
        let done: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(done["loaded"], serde_json::json!([]), "{args:?}: {done}");
        assert_eq!(done["remade"], false, "{args:?}: {done}");
    }

    /// A namespace behind the device of a workload.
    fn station(&self, workload: &str, host: u8) -> Station {
        self.station_of(workload, &mac_of(workload), host)
    }

    fn station_of(&self, workload: &str, mac: &str, host: u8) -> Station {
        let ns = NetNs::create("grw").expect("a namespace");
        let device = format!("tap-{workload}");
        let pair = [
            "link", "add", &device, "type", "veth", "peer", "name", "eth0",
        ];
        let pair = [&pair[..], &["netns", ns.name()]].concat();
        self.host.ip(&pair).expect("a pair");
        self.host.ip(&["link", "set", &device, "up"]).expect("up");
        ns.ip(&["link", "set", "eth0", "address", mac, "up"])
            .expect("its address");
        for address in [format!("10.1.0.{host}/24"), format!("fd00:1::{host}/64")] {
            ns.ip(&["address", "add", &address, "dev", "eth0", "nodad"])
                .expect("an address");
        }
        Station {
            ns,
            servers: Vec::new(),
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.weir(&["net", "delete", "--edge", &self.edge]);
    }
}

/// The MAC address that is made of a workload's name.
fn mac_of(workload: &str) -> String {
    weir_network::values::mac_of_name(&format!("n/{workload}")).to_string()
}

/// A workload's section.
fn member(name: &str, subnet: &str, host: u8, groups: &str) -> String {
    format!(
        "[[network.workload]]\nname = \"{name}\"\nsubnet = \"{subnet}\"\ndevice = \"tap-{name}\"\n\
         address = [\"10.1.0.{host}\", \"fd00:1::{host}\"]\ngroups = [{groups}]\n"
    )
}

struct Station {
    ns: NetNs,
    servers: Vec<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Station {
    fn socket(&self, port: u16) -> UdpSocket {
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        // Of both families: IPv4 addresses are mapped.
        let socket = self.ns.run(|| UdpSocket::bind(any));
        socket.expect("namespace").expect("binds")
    }

    /// Sends back what comes to a port.
    fn echoes(&mut self, port: u16) {
        let socket = self.socket(port);
        let timeout = Some(Duration::from_millis(100));
        socket.set_read_timeout(timeout).expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 64];
            while !told.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut bytes) {
                    let _ = socket.send_to(&bytes[..length], from);
                }
            }
        });
        self.servers.push((stop, thread));
    }

    /// Whether the server answers on a port, asked from a socket.
    fn is_answered(socket: &UdpSocket, to: IpAddr, port: u16, patience: Duration) -> bool {
        let timeout = Some(Duration::from_millis(20));
        socket.set_read_timeout(timeout).expect("a socket");
        let to = match to {
            IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
            v6 => v6,
        };
        let until = Instant::now() + patience;
        while Instant::now() < until {
            let _ = socket.send_to(b"?", SocketAddr::new(to, port));
            if socket.recv(&mut [0; 64]).is_ok() {
                return true;
            }
        }
        false
    }

    /// Both families have what is wanted of the guarded port, and the open port is open.
    #[track_caller]
    fn may(&self, wanted: bool) {
        for server in ["10.1.0.100", "fd00:1::100"] {
            let to: IpAddr = server.parse().expect("an address");
            let open = Station::is_answered(&self.socket(0), to, OPEN, ANSWER);
            assert!(open, "{server} answers on the open port");
            let patience = if wanted { ANSWER } else { SILENCE };
            let answered = Station::is_answered(&self.socket(0), to, GUARDED, patience);
            assert_eq!(answered, wanted, "{server} on the guarded port");
        }
    }

    /// Numbered datagrams to a port, every 2 ms: ended by dropping what is sent to.
    fn stream(&self, port: u16) -> Stream {
        let socket = self.socket(0);
        socket.set_nonblocking(true).expect("a socket");
        let to: SocketAddr = format!("[::ffff:10.1.0.100]:{port}").parse().expect("one");
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut sent, mut received, mut end) = (0_u64, 0_u64, None);
            while end.is_none_or(|end| Instant::now() < end) {
                if end.is_none() {
                    sent += u64::from(socket.send_to(&sent.to_be_bytes(), to).is_ok());
                    let is_over = told.load(Ordering::Relaxed);
                    end = is_over.then(|| Instant::now() + Duration::from_millis(500));
                }
                while socket.recv(&mut [0; 64]).is_ok() {
                    received += 1;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            (sent, received)
        });
        Stream { stop, thread }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        for (stop, server) in self.servers.drain(..) {
            stop.store(true, Ordering::Relaxed);
            let _ = server.join();
        }
    }
}

struct Stream {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64)>,
}

impl Stream {
    fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends")
    }
}

const GROUPS: &str = "[[network.group]]\nname = \"web\"\n[[network.group]]\nname = \"db\"\n";

#[test]
fn members_of_groups_come_and_go_under_a_stream() {
    if !root("members_of_groups_come_and_go_under_a_stream") {
        return;
    }
    let mut bed = Bed::new();
    let one = bed.station("w1", 1);
    let two = bed.station("w2", 2);
    // It takes the place of w2, MAC address included: hosts need not ask for it again.
    let three = bed.station_of("w3", &mac_of("w2"), 2);
    let mut server = bed.station("server", 100);
    server.echoes(GUARDED);
    server.echoes(OPEN);
    let workloads = [
        member("w1", "inside", 1, "\"web\""),
        member("w2", "inside", 2, "\"db\""),
    ];
    let document = bed.document(STATELESS, GROUPS, &workloads);
    let planned = bed.done(&["plan", &document]);
    assert!(
        planned.contains("group n/web: w1 (10.1.0.1, fd00:1::1)"),
        "{planned}"
    );
    assert!(
        !planned.contains("n/db"),
        "no policy here tests it: {planned}"
    );
    bed.done(&["apply", &document]);
    one.may(true);
    two.may(false);

    let (member_stream, other) = (one.stream(GUARDED), two.stream(OPEN));
    for _ in 0..20 {
        bed.changes(&["net", "workload", "groups", "n/w2", "web", "db"]);
        two.may(true);
        bed.changes(&["net", "workload", "groups", "n/w2"]);
        two.may(false);
    }
    let same = bed.done(&["net", "workload", "groups", "n/w2"]);
    assert!(same.contains("nothing to change"), "{same}");
    // An address that another workload gets does not bring its groups along, and one that joins is a member at once.
    let mac = mac_of("w2");
    let (devices, names) = (["tap-w2", "tap-w3"], ["n/w2", "n/w3"]);
    let add = |name: &str| {
        let at = usize::from(name == "w3");
        let words = "net workload add --subnet inside --address 10.1.0.2,fd00:1::2";
        let words = words.split(' ').map(str::to_owned);
        let more = [names[at], "--device", devices[at], "--mac", &mac];
        words.chain(more.map(str::to_owned)).collect::<Vec<_>>()
    };
    for groups in [&["--group", "web"][..], &[]] {
        bed.changes(&["net", "workload", "delete", "n/w2"]);
        let third = add("w3");
        let third: Vec<&str> = third.iter().map(String::as_str).collect();
        bed.changes(&[&third[..], groups].concat());
        three.may(!groups.is_empty());
        bed.changes(&["net", "workload", "delete", "n/w3"]);
        let second = add("w2");
        bed.changes(&second.iter().map(String::as_str).collect::<Vec<_>>());
        two.may(false);
    }
    for (stream, what) in [(member_stream, "a member"), (other, "another workload")] {
        let (sent, received) = stream.end();
        // The other workload is deleted and added again meanwhile: what it sends in between is dropped, as from an undeclared source.
        let is_whole = received == sent || what != "a member" && received > sent / 2;
        assert!(is_whole, "{what}: {sent} sent, {received} answered");
        assert!(sent > 500, "{what}: {sent} sent");
    }

    // The group is empty.
    bed.changes(&["net", "workload", "groups", "n/w1"]);
    one.may(false);
    // Names that are not declared, with the nearest.
    let refused = bed.weir(&["net", "workload", "groups", "n/w1", "wbe"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no group is named `wbe`") && said.contains("web"),
        "{said}"
    );
    one.may(false);
    // A document that is applied changes members as commands do.
    let document = bed.document(STATELESS, GROUPS, &workloads);
    let shown = bed.weir(&["diff", &document]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("groups") && shown.contains("web"), "{shown}");
    bed.changes(&["apply", &document]);
    one.may(true);
    let exported = bed.done(&["net", "export", "--edge", &bed.edge]);
    assert!(exported.contains("[[network.group]]"), "{exported}");
    let sets = bed.weir(&["set", "add", "web", "10.1.0.2", "--edge", &bed.edge]);
    assert!(
        !sets.status.success(),
        "only the document says who is in a group"
    );
    two.may(false);
}

/// A connection goes on with the rule that it was opened by, as where a set that the rule names is replaced.
#[test]
fn connections_outlive_the_membership_that_opened_them() {
    if !root("connections_outlive_the_membership_that_opened_them") {
        return;
    }
    let server_at: IpAddr = "10.1.0.100".parse().expect("an address");
    let asks = |socket: &UdpSocket, wanted: bool| {
        let patience = if wanted { ANSWER } else { SILENCE };
        Station::is_answered(socket, server_at, GUARDED, patience)
    };
    let mut seen = Vec::new();
    for is_group in [true, false] {
        let mut bed = Bed::new();
        let one = bed.station("w1", 1);
        let mut server = bed.station("server", 100);
        server.echoes(GUARDED);
        let mut apply = |is_in: bool| {
            let (groups, policy) = match is_group {
                true => (GROUPS, STATEFUL.to_owned()),
                // The same as a set of the policy.
                false => {
                    let host = if is_in { 1 } else { 9 };
                    ("", format!("set web = {{ 10.1.0.{host} }}\n{STATEFUL}"))
                }
            };
            let of = if is_group && is_in { "\"web\"" } else { "" };
            let workloads = [member("w1", "inside", 1, of)];
            let document = bed.document(&policy, groups, &workloads);
            bed.done(&["apply", &document]);
        };
        apply(false);
        let (open, late) = (one.socket(0), one.socket(0));
        let mut steps = vec![asks(&open, false)];
        apply(true);
        steps.push(asks(&open, true));
        apply(false);
        // What is open, and what would be new.
        steps.extend([asks(&open, true), asks(&late, false)]);
        apply(true);
        steps.extend([asks(&open, true), asks(&late, true)]);
        seen.push(steps);
    }
    assert_eq!(seen[0], [false, true, true, false, true, true], "a group");
    assert_eq!(seen[0], seen[1], "a group and a set that is replaced");
}
