//! `weir net` with a balancer: what it says of services and servers while connections go through, and servers that keep their numbers from
//! one document to the next.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::live_bed::{file, root, stderr, weir};
use serde_json::Value;
use weir_kernel::NetNs;

/// What the edge is called: tests of other processes have others.
fn name() -> String {
    format!("net-lb-{}", std::process::id())
}

/// A client, and servers behind a router, all on one edge.
fn document(version: u32, servers: &[u32]) -> String {
    let listed: Vec<String> = servers
        .iter()
        .map(|host| format!("{{ address = \"10.2.0.{host}\", port = 7000 }}"))
        .collect();
    let edge = name();
    let mut text = format!(
        r#"
version = {version}
[[edge]]
name = "{edge}"
[[tenant]]
name = "red"
[[network]]
name = "n"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
[[network.subnet]]
name = "db"
prefix = "10.2.0.0/24"
[[network.function]]
name = "gw"
kind = "router"
interface = [{{ name = "web", address = "10.1.0.1/24" }}, {{ name = "db", address = "10.2.0.1/24" }}]
[[network.function]]
name = "lb"
kind = "balancer"
connections = 1000
servers = 16
ring = 251
[[network.function.service]]
name = "shop"
address = "10.9.0.1"
protocol = "tcp"
port = 80
mode = "nat"
server = [{}]
[[network.link]]
from = "web"
to = "lb"
[[network.link]]
from = "lb"
to = "gw.web"
[[network.link]]
from = "db"
to = "gw.db"
"#,
        listed.join(", ")
    );
    for (name, subnet, address) in [
        ("client", "web", "10.1.0.7"),
        ("s2", "db", "10.2.0.2"),
        ("s3", "db", "10.2.0.3"),
    ] {
        text.push_str(&format!(
            "[[network.workload]]\nname = \"{name}\"\nsubnet = \"{subnet}\"\nedge = \"{edge}\"\ndevice = \"{name}\"\naddress = \"{address}\"\n"
        ));
    }
    text
}

/// A workload's namespace behind a device of the edge.
fn workload(edge: &NetNs, name: &str, address: &str, router: &str) -> NetNs {
    let ns = NetNs::create("wlb").expect("a namespace");
    let pair = [
        "link",
        "add",
        name,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        ns.name(),
    ];
    edge.ip(&pair).expect("a pair");
    edge.ip(&["link", "set", name, "up"]).expect("up");
    let mac = weir_network::values::mac_of_name(&format!("n/{name}")).to_string();
    ns.ip(&["link", "set", "eth0", "address", &mac, "up"])
        .expect("its address");
    ns.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])
        .expect("an address");
    ns.ip(&["route", "add", "default", "via", router])
        .expect("a route");
    ns
}

/// What the only service has counted: its flows, and those of each server.
fn counted(edge: &NetNs) -> (u64, Vec<(String, u64)>) {
    let shown = weir(edge, &["net", "show", "--edge", &name(), "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let service = &shown["balancers"][0]["services"][0];
    assert_eq!(service["place"], "tcp 10.9.0.1:80", "{shown}");
    let servers = service["servers"].as_array().expect("a list").iter();
    let servers = servers.map(|one| {
        let name = one["server"].as_str().expect("a text").to_owned();
        (name, one["flows"].as_u64().expect("a number"))
    });
    (
        service["flows"].as_u64().expect("a number"),
        servers.collect(),
    )
}

/// Takes the networks away, whatever happens.
struct Gone<'n>(&'n NetNs);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        weir(self.0, &["net", "delete", "--edge", &name()]);
    }
}

#[test]
fn net_tells_what_balancers_do_and_keeps_the_numbers_of_servers() {
    if !root("net_tells_what_balancers_do_and_keeps_the_numbers_of_servers") {
        return;
    }
    let edge = NetNs::create("elb").expect("a namespace");
    let _gone = Gone(&edge);
    let client = workload(&edge, "client", "10.1.0.7", "10.1.0.1");
    let servers = [2, 3].map(|host| {
        let ns = workload(
            &edge,
            &format!("s{host}"),
            &format!("10.2.0.{host}"),
            "10.2.0.1",
        );
        let listener = ns.run(|| TcpListener::bind("0.0.0.0:7000").expect("bound"));
        (ns, listener.expect("in the namespace"))
    });
    let succeed = |args: &[&str]| {
        let output = weir(&edge, args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let first = file("net-lb-1.toml", &document(1, &[2]));
    let second = file("net-lb-2.toml", &document(2, &[3, 2]));
    let [first, second] = [&first, &second].map(|path| path.to_str().expect("a path"));
    succeed(&["apply", first]);
    let connect = || {
        let to: SocketAddr = "10.9.0.1:80".parse().expect("an address");
        let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(3));
        client
            .run(connect)
            .expect("in the namespace")
            .expect("connected")
    };
    let mut held: Vec<TcpStream> = (0..12).map(|_| connect()).collect();
    assert_eq!(counted(&edge), (12, vec![("10.2.0.2:7000".to_owned(), 12)]));
    // Another server in front of it: flows and counters stay where they are.
    let plan = succeed(&["plan", second, "--edge", &name()]);
    assert!(plan.contains("lb.a"), "{plan}");
    let applied = succeed(&["apply", second]);
    assert!(applied.contains("loaded n/lb"), "{applied}");
    for stream in &mut held {
        stream.write_all(b"still here").expect("sent");
    }
    let more: Vec<TcpStream> = (0..24).map(|_| connect()).collect();
    let (flows, counts) = counted(&edge);
    let names: Vec<&str> = counts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((flows, names), (36, vec!["10.2.0.3:7000", "10.2.0.2:7000"]));
    let [new, old] = [counts[0].1, counts[1].1];
    assert!(new > 0 && old >= 12 && new + old == 36, "{counts:?}");
    // Whom they reached says the same.
    let accepted = |at: usize| {
        let (_, listener) = &servers[at];
        listener.set_nonblocking(true).expect("set");
        std::iter::from_fn(|| listener.accept().ok()).count() as u64
    };
    assert_eq!((accepted(0), accepted(1)), (old, new));
    drop(more);
    let shown = succeed(&["net", "show", "--edge", &name()]);
    for words in ["balancer n lb", "tcp 10.9.0.1:80 (shop)", "10.2.0.3:7000"] {
        assert!(shown.contains(words), "{shown}");
    }
    // The same document is nothing new.
    let again = succeed(&["apply", second]);
    assert!(!again.contains("loaded"), "{again}");
    assert_eq!(
        succeed(&["net", "export", "--edge", &name()]),
        document(2, &[3, 2])
    );
    let traced = succeed(&["net", "trace", second, "n/client", "10.9.0.1", "tcp", "80"]);
    assert!(
        traced.contains("lb: a new flow to service 10.9.0.1:80 goes to server 10.2.0."),
        "{traced}"
    );
}
