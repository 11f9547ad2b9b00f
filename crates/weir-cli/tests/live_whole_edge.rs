//! One configuration for a whole edge: a graph on the underlay's device, and the tenants' networks that use the same device. Planned, applied,
//! compared, rolled back and taken down by one set of commands, with real clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::NetNs;

use crate::live_bed::{file, root, stderr, weir};

/// Names of the two edges: other processes and other tests of this one have others.
fn names() -> [String; 2] {
    let thread = std::thread::current();
    // Threads have the names of their tests, unless there is only one.
    let test = match thread.name() {
        Some(name) if name.ends_with("whole_parts") => "killed",
        _ => "whole",
    };
    [1, 2].map(|n| format!("{test}-{}-{n}", std::process::id()))
}

/// A subnet over both edges: one client here, one server there.
fn document(version: u32, client_device: &str) -> String {
    let [here, there] = names();
    let mut text = format!("version = {version}\n[[tenant]]\nname = \"red\"\n");
    for (name, address) in [(&here, "192.0.2.1"), (&there, "192.0.2.2")] {
        text.push_str(&format!(
            "[[edge]]\nname = \"{name}\"\nunderlay = \"{address}\"\ndevice = \"under0\"\nmtu = 1600\n"
        ));
    }
    text.push_str(
        "[[network]]\nname = \"n\"\ntenant = \"red\"\n[[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n",
    );
    for (name, edge, device, address) in [
        ("client", &here, client_device, "10.1.0.7"),
        ("server", &there, "server", "10.1.0.8"),
    ] {
        text.push_str(&format!(
            "[[network.workload]]\nname = \"{name}\"\nsubnet = \"web\"\nedge = \"{edge}\"\ndevice = \"{device}\"\naddress = \"{address}\"\n"
        ));
    }
    text
}

/// The configuration of the first edge: rules of its filter, and the document that it names.
fn configuration(rules: &str, networks: Option<&Path>) -> String {
    let [here, _] = names();
    let networks = match networks {
        Some(path) => format!("networks = \"{}\"\n", path.display()),
        None => String::new(),
    };
    format!(
        "edge = \"{here}\"\n{networks}[[port]]\nname = \"under\"\ndevice = \"under0\"\n[[function]]\nname = \"shield\"\nkind = \"filter\"\nrules = [{rules}]\n\
         [[link]]\nfrom = \"under\"\nto = \"shield\"\n[[link]]\nfrom = \"shield\"\nto = \"stack\"\n"
    )
}

/// A workload's namespace behind a device of the edge.
fn workload(edge: &NetNs, name: &str, address: &str) -> NetNs {
    let ns = NetNs::create("whw").expect("a namespace");
    let pair = ["link", "add", name, "type", "veth", "peer", "name", "eth0"];
    edge.ip(&[&pair[..], &["netns", ns.name()]].concat())
        .expect("a pair");
    edge.ip(&["link", "set", name, "up"]).expect("up");
    let mac = weir_network::values::mac_of_name(&format!("n/{name}")).to_string();
    ns.ip(&["link", "set", "eth0", "address", &mac, "up"])
        .expect("its address");
    ns.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])
        .expect("an address");
    ns
}

fn succeed(ns: &NetNs, args: &[&str]) -> String {
    let output = weir(ns, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What runs, as JSON.
fn status(ns: &NetNs) -> Value {
    serde_json::from_str(&succeed(ns, &["status", "--json"])).expect("JSON")
}

/// Sends a line and takes it back.
fn echo(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"are you there?\n")?;
    stream.read_exact(&mut [0; 15])
}

/// Two hosts with an underlay between them, a client behind the first one and a server behind the second.
struct Hosts {
    here: NetNs,
    there: NetNs,
    client: NetNs,
    /// Kept for its life.
    _server: NetNs,
}

impl Hosts {
    fn build() -> Hosts {
        let [here, there] = [1, 2].map(|_| NetNs::create("whe").expect("a namespace"));
        let pair = [
            "link", "add", "under0", "mtu", "1600", "type", "veth", "peer", "name", "under0",
            "mtu", "1600",
        ];
        here.ip(&[&pair[..], &["netns", there.name()]].concat())
            .expect("an underlay");
        for (ns, address) in [(&here, "192.0.2.1/24"), (&there, "192.0.2.2/24")] {
            ns.ip(&["address", "add", address, "dev", "under0"])
                .expect("an address");
            ns.ip(&["link", "set", "under0", "up"]).expect("up");
        }
        let client = workload(&here, "client", "10.1.0.7");
        let server = workload(&there, "server", "10.1.0.8");
        let listener = server.run(|| TcpListener::bind("0.0.0.0:80").expect("bound"));
        let listener = listener.expect("in the namespace");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                std::thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while let Ok(n @ 1..) = stream.read(&mut bytes) {
                        if stream.write_all(&bytes[..n]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Hosts {
            here,
            there,
            client,
            _server: server,
        }
    }

    /// A connection from the client to the server, which sends back what it gets.
    fn connect(&self) -> std::io::Result<TcpStream> {
        let to: SocketAddr = "10.1.0.8:80".parse().expect("an address");
        let stream = self
            .client
            .run(|| TcpStream::connect_timeout(&to, Duration::from_secs(3)))
            .expect("in the namespace")?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        Ok(stream)
    }
}

impl Drop for Hosts {
    /// Takes both edges away, whatever happens.
    fn drop(&mut self) {
        for (ns, name) in [&self.here, &self.there].into_iter().zip(names()) {
            weir(ns, &["down", "--edge", &name]);
        }
    }
}

#[test]
fn one_configuration_carries_a_graph_and_the_networks_of_its_device() {
    if !root("one_configuration_carries_a_graph_and_the_networks_of_its_device") {
        return;
    }
    let hosts = Hosts::build();
    let Hosts { here, there, .. } = &hosts;
    let connect = || hosts.connect();
    let document_path = file("whole-net.toml", &document(1, "client"));
    let edge_path = file("whole-edge.toml", &configuration("", Some(&document_path)));
    let [net, edge] = [&document_path, &edge_path].map(|path| path.to_str().expect("a path"));
    let [name, other] = names();
    // One check, one plan and one difference for both parts.
    let checked = succeed(here, &["check", edge, net]);
    assert!(
        checked
            .contains("1 port, 1 function, version 1, 2 edges, 1 tenant, 1 network, 2 workloads"),
        "{checked}"
    );
    let planned = weir(here, &["plan", edge]);
    let said = stderr(&planned);
    assert!(
        said.contains("under0 is port under of the graph and the underlay of the networks"),
        "{said}"
    );
    let planned = String::from_utf8_lossy(&planned.stdout).into_owned();
    for words in ["shield", "n/client", "nothing of it runs"] {
        assert!(planned.contains(words), "{planned}");
    }
    let changes = succeed(here, &["diff", edge]);
    for words in [
        "+ port under",
        "+ function shield",
        "networks:",
        "network n added",
    ] {
        assert!(changes.contains(words), "{changes}");
    }
    assert_eq!(status(here)["edges"], Value::Array(Vec::new()));

    // A graph that the host refuses leaves nothing of the networks that were held for it.
    let refused = configuration("", Some(&document_path)).replace("\"under0\"", "\"absent0\"");
    std::fs::write(&edge_path, refused).expect("written");
    let refused = weir(here, &["apply", edge]);
    assert!(stderr(&refused).contains("absent0"), "{}", stderr(&refused));
    for folder in ["edge", "net"] {
        let left = Path::new("/sys/fs/bpf/weir").join(folder).join(&name);
        assert!(!left.exists(), "{}", left.display());
    }
    std::fs::write(&edge_path, configuration("", Some(&document_path))).expect("written");

    // Applied at once; the far edge runs its part of the document alone.
    let applied = succeed(here, &["apply", edge]);
    for words in [
        "is at generation 1: 1 port, 1 function",
        "(document version 1): 1 workload",
    ] {
        assert!(applied.contains(words), "{applied}");
    }
    succeed(there, &["apply", net, "--edge", &other]);
    let mut stream = connect().expect("connected");
    echo(&mut stream).expect("through the tunnel");
    let runs = status(here);
    assert_eq!(runs["edges"][0]["edge"], Value::from(name.as_str()));
    let passed = &runs["edges"][0]["functions"][0]["ledger"]["verdicts"]["pass"];
    assert!(
        passed.as_u64() > Some(3),
        "the graph saw the tunnel: {runs}"
    );
    assert_eq!(runs["networks"][0]["edge"], Value::from(name.as_str()));
    let text = succeed(here, &["status"]);
    assert!(text.contains("function shield (filter) > stack"), "{text}");
    assert!(
        text.contains(&format!("edge {name}, networks: generation 1")),
        "{text}"
    );
    let nothing = succeed(here, &["diff", edge]);
    assert!(
        nothing.contains("the networks stay as they are"),
        "{nothing}"
    );
    assert!(
        !nothing
            .lines()
            .any(|line| line.starts_with(['+', '-', '~'])),
        "{nothing}"
    );

    // The document belongs to the configuration now.
    let refused = weir(here, &["apply", net, "--edge", &name]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("belong to the configuration"),
        "{}",
        stderr(&refused)
    );

    // Where the networks are refused, the graph stays as it was, and so do connections.
    std::fs::write(&document_path, document(2, "missing0")).expect("written");
    std::fs::write(
        &edge_path,
        configuration("\"deny tcp to-port 1\"", Some(&document_path)),
    )
    .expect("written");
    let refused = weir(here, &["apply", edge]);
    assert!(!refused.status.success());
    assert!(
        stderr(&refused).contains("missing0"),
        "{}",
        stderr(&refused)
    );
    let runs = status(here);
    assert_eq!(runs["networks"][0]["version"], 1, "{runs}");
    let shield = succeed(here, &["status", "--hits"]);
    assert!(!shield.contains("deny tcp to-port 1"), "{shield}");
    echo(&mut stream).expect("as before");

    // A configuration that cuts the tunnel off comes back by itself, networks included.
    std::fs::write(&document_path, document(2, "client")).expect("written");
    std::fs::write(
        &edge_path,
        configuration("\"deny udp\"", Some(&document_path)),
    )
    .expect("written");
    let unconfirmed = weir(here, &["apply", edge, "--confirm", "1"]);
    assert_eq!(unconfirmed.status.code(), Some(1));
    assert!(
        stderr(&unconfirmed).contains("the previous configuration is restored"),
        "{}",
        stderr(&unconfirmed)
    );
    let runs = status(here);
    assert_eq!(runs["networks"][0]["version"], 1, "{runs}");
    echo(&mut stream).expect("as before");

    // Both parts change, the connection goes on.
    std::fs::write(
        &edge_path,
        configuration("\"deny tcp to-port 1\"", Some(&document_path)),
    )
    .expect("written");
    let applied = succeed(here, &["apply", edge]);
    assert!(applied.contains("(document version 2)"), "{applied}");
    echo(&mut stream).expect("through both parts as they are now");

    // What the configuration names no more is removed; the graph goes on.
    std::fs::write(&edge_path, configuration("\"deny tcp to-port 1\"", None)).expect("written");
    let changes = succeed(here, &["diff", edge]);
    assert!(changes.contains("network n removed"), "{changes}");
    let applied = succeed(here, &["apply", edge]);
    assert!(applied.contains("all networks are removed"), "{applied}");
    let runs = status(here);
    assert_eq!(runs["networks"], Value::Array(Vec::new()));
    assert_eq!(runs["edges"][0]["edge"], Value::from(name.as_str()));
    connect().expect_err("no way");

    // And back, then all of it down: nothing is left.
    std::fs::write(&edge_path, configuration("", Some(&document_path))).expect("written");
    succeed(here, &["apply", edge]);
    echo(&mut connect().expect("connected")).expect("through the tunnel");
    let down = succeed(here, &["down", edge]);
    assert!(down.contains(&format!("edge {name}: down")), "{down}");
    succeed(there, &["down", net, "--edge", &other]);
    for folder in ["edge", "net"] {
        for name in names() {
            let left = Path::new("/sys/fs/bpf/weir").join(folder).join(&name);
            assert!(!left.exists(), "{}", left.display());
        }
    }
    for (ns, device) in [(here, "under0"), (here, "client"), (there, "under0")] {
        let shown = ns.ip(&["-details", "link", "show", device]).expect("shown");
        assert!(!shown.contains("xdp"), "{shown}");
    }
}

/// A configuration that names a document needs no graph of its own, and its name is that of an edge of the document.
#[test]
fn networks_alone_are_a_configuration_too() {
    let [here, _] = names();
    let document = file("whole-alone-net.toml", &document(1, "client"));
    let text = |name: &str| {
        let path = document.file_name().and_then(|name| name.to_str());
        format!(
            "edge = \"{name}\"\nnetworks = \"{}\"\n",
            path.expect("a name")
        )
    };
    let path = file("whole-alone.toml", &text(&here));
    let path = path.to_str().expect("a path");
    let run = |args: &[&str]| {
        std::process::Command::new(crate::common::WEIR)
            .args(args)
            .output()
            .expect("weir runs")
    };
    let checked = run(&["check", path]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(said.contains("ok, version 1, 2 edges"), "{said}");
    let other = file("whole-other.toml", &text("elsewhere"));
    let checked = run(&["check", other.to_str().expect("a path")]);
    assert_eq!(checked.status.code(), Some(2));
    let said = stderr(&checked);
    assert!(
        said.contains("configures edge elsewhere") && said.contains(&here),
        "{said}"
    );
    // tc has one owner on a device.
    let on_tc = text(&here)
        + "[[port]]\nname = \"under\"\ndevice = \"under0\"\nhook = \"tc\"\n[[link]]\nfrom = \"under\"\nto = \"stack\"\n";
    let on_tc = file("whole-tc.toml", &on_tc);
    let checked = run(&["check", on_tc.to_str().expect("a path")]);
    assert_eq!(checked.status.code(), Some(2));
    let said = stderr(&checked);
    assert!(
        said.contains("under0 is port under of the graph, on tc, and the underlay"),
        "{said}"
    );
    // A policy is no configuration, and says what to do with it.
    let policy = file("whole.weir", "tcp-dport 23 drop\n");
    let applied = run(&["apply", policy.to_str().expect("a path")]);
    assert_eq!(applied.status.code(), Some(2));
    assert!(
        stderr(&applied).contains("weir run"),
        "{}",
        stderr(&applied)
    );
}

/// A configuration of several files declares its networks itself. It is what the document of the same networks is, and one takes the other's place
/// while packets pass.
#[test]
fn a_configuration_declares_its_networks_itself() {
    if !root("whole_inline") {
        return;
    }
    let edge = format!("inline-{}", std::process::id());
    let here = NetNs::create("whi").expect("a namespace");
    here.ip(&["link", "add", "up0", "type", "veth", "peer", "name", "up1"])
        .and_then(|_| here.ip(&["link", "set", "up0", "up"]))
        .expect("a device");
    let clients = [("w1", "10.1.0.7"), ("w2", "10.1.0.8")];
    let [client, server] = clients.map(|(name, address)| workload(&here, name, address));
    let written = |which: &str, text: &str| {
        let path = file(&format!("{edge}-{which}.toml"), text);
        path.to_str().expect("a path").to_owned()
    };
    let name = |path: &str| path.rsplit('/').next().expect("a name").to_owned();
    let graph = "[[port]]\nname = \"up\"\ndevice = \"up0\"\n[[function]]\nname = \"shield\"\nkind = \"filter\"\nrules = []\n\
                 [[link]]\nfrom = \"up\"\nto = \"shield\"\n[[link]]\nfrom = \"shield\"\nto = \"stack\"\n";
    let mut network = "[[networks.network]]\nname = \"n\"\ntenant = \"red\"\n[[networks.network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n"
        .to_owned();
    for (name, address) in clients {
        network += &format!(
            "[[networks.network.workload]]\nname = \"{name}\"\nsubnet = \"web\"\ndevice = \"{name}\"\naddress = \"{address}\"\n"
        );
    }
    let head = format!("edge = \"{edge}\"\n");
    let tenant = "[networks]\nversion = 1\n[[networks.tenant]]\nname = \"red\"\n";
    let ports = written("ports", graph);
    let tenants = written("tenants", &network);
    let include = format!("include = [\"{}\", \"{}\"]\n", name(&ports), name(&tenants));
    let whole = written("whole", &format!("{head}{include}{tenant}"));
    let checked = succeed(&here, &["check", &whole]);
    assert!(
        checked.contains("ok, 1 port, 1 function, version 1, 1 edge"),
        "{checked}"
    );

    succeed(&here, &["apply", &whole]);
    let listener = server.run(|| TcpListener::bind("0.0.0.0:80").expect("bound"));
    let listener = listener.expect("in the namespace");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut line = [0; 15];
        while stream.read_exact(&mut line).is_ok() && stream.write_all(&line).is_ok() {}
    });
    let connect = || {
        TcpStream::connect_timeout(
            &SocketAddr::from(([10, 1, 0, 8], 80)),
            Duration::from_secs(30),
        )
    };
    let stream = client.run(connect).expect("in the namespace");
    let mut stream = stream.expect("a connection through the network");
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a limit");
    echo(&mut stream).expect("an answer");
    let same = succeed(&here, &["diff", &whole]);
    assert!(same.contains("the networks stay as they are"), "{same}");
    succeed(
        &here,
        &["net", "trace", &whole, "n/w1", "10.1.0.8", "tcp", "80"],
    );
    let refused = weir(&here, &["net", "delete", "n"]);
    assert!(
        stderr(&refused).contains(&format!("belong to the configuration {whole}")),
        "{}",
        stderr(&refused)
    );

    // A mistake is told where it stands.
    let mistaken = network.replace("10.1.0.8", "10.1.0.800");
    std::fs::write(&tenants, mistaken).expect("written");
    let wrong = weir(&here, &["apply", &whole]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = stderr(&wrong);
    assert!(
        said.contains(&format!("{}:16:11", name(&tenants))) && said.contains("10.1.0.800"),
        "{said}"
    );
    echo(&mut stream).expect("what runs runs on");

    // The same as a document: what is exported can be read, and nothing changes for the networks.
    let exported = succeed(&here, &["net", "export"]);
    let document = written("net", &exported);
    let named = format!("{head}networks = \"{}\"\n{graph}", name(&document));
    let whole = written("whole", &named);
    let same = succeed(&here, &["diff", &whole]);
    assert!(same.contains("the networks stay as they are"), "{same}");
    succeed(&here, &["apply", &whole]);
    echo(&mut stream).expect("the document serves the same connection");

    succeed(&here, &["down", &whole]);
    assert_eq!(status(&here)["networks"].as_array().map(Vec::len), Some(0));
    for device in ["up0", "w1", "w2"] {
        let shown = here
            .ip(&["-details", "link", "show", device])
            .expect("shown");
        assert!(!shown.contains("xdp"), "{shown}");
    }
}

/// `weir apply` of both parts, killed at random moments: each part is the old or the new one, connections go on, and the next command cleans up.
#[test]
fn an_apply_that_is_killed_leaves_whole_parts() {
    if !root("an_apply_that_is_killed_leaves_whole_parts") {
        return;
    }
    let hosts = Hosts::build();
    let Hosts { here, there, .. } = &hosts;
    let [name, other] = names();
    let documents = [1, 2].map(|version| file("killed-net.toml", &document(version, "client")));
    let rules = ["", "\"deny tcp to-port 1\""];
    let edges = [0, 1].map(|at| {
        let text = configuration(rules[at], Some(&documents[at]));
        file("killed-edge.toml", &text)
    });
    let [first, second] = [&edges[0], &edges[1]].map(|path| path.to_str().expect("a path"));
    succeed(here, &["apply", first]);
    let net = documents[0].to_str().expect("a path");
    succeed(there, &["apply", net, "--edge", &other]);
    let pins = || {
        let mut all = Vec::new();
        for folder in ["edge", "net"] {
            let folder = Path::new("/sys/fs/bpf/weir").join(folder).join(&name);
            let entries = std::fs::read_dir(folder).expect("its folder");
            all.push(entries.count());
        }
        all
    };
    // How long one takes, and how much is there after it.
    let began = Instant::now();
    succeed(here, &["apply", second]);
    succeed(here, &["apply", first, "--force"]);
    let took = began.elapsed() / 2;
    let clean = pins();
    let mut stream = hosts.connect().expect("connected");
    let rounds = match std::env::var_os("WEIR_LONG") {
        Some(_) => 200,
        None => 24,
    };
    // A linear congruence: the same moments in every run, as parts of the time that an apply takes.
    let mut random = 12_345u32;
    let (mut ended, mut seen) = (0, [0, 0]);
    for round in 0..rounds {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let moment = took.mul_f64(f64::from(random >> 16) / 65_536.0 * 1.1);
        let mut child = here
            .command(crate::common::WEIR)
            .expect("namespace")
            .args(["apply", [second, first][round % 2], "--force"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("weir starts");
        std::thread::sleep(moment);
        child.kill().expect("killed, or over");
        if child.wait().expect("waits").success() {
            ended += 1;
        }
        echo(&mut stream).unwrap_or_else(|e| panic!("round {round}, after {moment:?}: {e}"));
        let runs = status(here);
        let version = runs["networks"][0]["version"].as_u64().expect("a number");
        assert!((1..=2).contains(&version), "round {round}: {runs}");
        seen[version as usize - 1] += 1;
        assert_eq!(
            runs["edges"][0]["ports"][0]["attached"], true,
            "round {round}: {runs}"
        );
    }
    let line = format!(
        "{rounds} applies killed, {ended} of them too late; networks old or new: {seen:?}\n"
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
    assert!(ended < rounds, "no apply was killed in time");
    succeed(here, &["apply", first, "--force"]);
    assert_eq!(pins(), clean, "the next apply cleans up");
    echo(&mut stream).expect("as before");
    succeed(here, &["down", first]);
}
