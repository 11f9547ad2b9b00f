//! Containers that join and leave virtual networks by `weir-cni`, called as a container runtime calls it: alone, many at once, killed half way, and on
//! two edges of one store.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_kernel::NetNs;
use weir_testdata::etcd::has_etcd;

use crate::live_bed::{file, root, stderr, weir};
use crate::live_store_bed::{Bed as StoreBed, cluster_in};

/// How long an answer that is expected may take, and how long one that is not is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_millis(300);

/// The plugin under its name, and what a runtime says with each call.
struct Plugin {
    program: PathBuf,
    config: Value,
}

impl Plugin {
    fn new(settings: &Path, network: &str, subnet: &str) -> Plugin {
        let folder = file("plugins", "").with_extension("d");
        fs::create_dir_all(&folder).expect("writable");
        let program = folder.join("weir-cni");
        symlink(env!("CARGO_BIN_EXE_weir"), &program).expect("a link");
        let config = serde_json::json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "weir-cni",
            "network": network, "subnet": subnet, "config": settings,
        });
        Plugin { program, config }
    }

    fn begin(&self, host: &NetNs, command: &str, pod: &Pod, more: &[(&str, Value)]) -> Child {
        let program = self.program.to_str().expect("UTF-8");
        let mut config = self.config.clone();
        for (key, value) in more {
            config[*key] = value.clone();
        }
        let mut child = host.command(program).expect("namespace");
        child
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &pod.id)
            .env("CNI_IFNAME", "eth0")
            .env(
                "CNI_ARGS",
                format!("IgnoreUnknown=1;K8S_POD_NAME={}", pod.id),
            );
        if let Some(ns) = &pod.ns {
            child.env("CNI_NETNS", Path::new("/run/netns").join(ns.name()));
        }
        child
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = child.spawn().expect("it starts");
        let mut input = child.stdin.take().expect("piped");
        // A killed one reads nothing.
        let _ = input.write_all(config.to_string().as_bytes());
        child
    }

    fn call(&self, host: &NetNs, command: &str, pod: &Pod, more: &[(&str, Value)]) -> Output {
        let child = self.begin(host, command, pod, more);
        child.wait_with_output().expect("it ends")
    }

    #[track_caller]
    fn done(&self, host: &NetNs, command: &str, pod: &Pod) -> Value {
        let output = self.call(host, command, pod, &[]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{command} {}: {text}{}",
            pod.id,
            stderr(&output)
        );
        match text.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).expect("JSON"),
        }
    }

    #[track_caller]
    fn refused(
        &self,
        host: &NetNs,
        command: &str,
        pod: &Pod,
        more: &[(&str, Value)],
    ) -> (u64, String) {
        let output = self.call(host, command, pod, more);
        assert!(!output.status.success(), "{command} {}", pod.id);
        let error: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let text = error["msg"].as_str().expect("a message").to_owned();
        (error["code"].as_u64().expect("a code"), text)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        if let Some(folder) = self.program.parent() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// A container: its ID, and its namespace while that lives.
struct Pod {
    id: String,
    ns: Option<NetNs>,
}

impl Pod {
    fn new(id: &str) -> Pod {
        Pod {
            id: format!("{id}-{}", std::process::id()),
            ns: Some(NetNs::create("wpod").expect("a namespace")),
        }
    }

    fn ns(&self) -> &NetNs {
        self.ns.as_ref().expect("it lives")
    }

    fn socket(&self, port: u16) -> UdpSocket {
        let any: IpAddr = "::".parse().expect("an address");
        let socket = self.ns().run(|| UdpSocket::bind((any, port)));
        let socket = socket.expect("namespace").expect("binds");
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a socket");
        socket
    }

    /// Whether datagrams to an address of another one arrive there.
    fn reaches(&self, other: &Pod, address: IpAddr, port: u16, patience: Duration) -> bool {
        let (sender, receiver) = (self.socket(0), other.socket(port));
        let mapped = match address {
            IpAddr::V4(address) => IpAddr::V6(address.to_ipv6_mapped()),
            other => other,
        };
        let until = Instant::now() + patience;
        while Instant::now() < until {
            // Until its neighbour is known the kernel may report that the host is unreachable.
            let _ = sender.send_to(b"?", SocketAddr::new(mapped, port));
            if receiver.recv(&mut [0; 8]).is_ok() {
                return true;
            }
        }
        false
    }
}

/// Whether one container gets answers of another from a port.
fn is_answered(one: &Pod, other: &Pod, address: IpAddr, port: u16, patience: Duration) -> bool {
    let IpAddr::V4(address) = address else {
        panic!("{address} is of IPv4");
    };
    let (client, server) = (one.socket(0), other.socket(port));
    let to = SocketAddr::new(IpAddr::V6(address.to_ipv6_mapped()), port);
    let until = Instant::now() + patience;
    let mut bytes = [0; 8];
    while Instant::now() < until {
        let _ = client.send_to(b"?", to);
        if let Ok((_, from)) = server.recv_from(&mut bytes) {
            let _ = server.send_to(b"!", from);
            if client.recv(&mut bytes).is_ok() {
                return true;
            }
        }
    }
    false
}

/// Addresses of an answer to ADD.
fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().expect("a list");
    let text = |one: &Value| one["address"].as_str().expect("a text").to_owned();
    let address = |text: String| text.split('/').next().expect("an address").parse();
    ips.iter()
        .map(|one| address(text(one)).expect("an address"))
        .collect()
}

/// A host that runs one edge with a network of two subnets and a firewall between them.
struct Bed {
    host: NetNs,
    edge: String,
    plugin: Plugin,
    settings: PathBuf,
}

impl Bed {
    fn new() -> Bed {
        let host = NetNs::create("wcni").expect("a namespace");
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let edge = format!("cni-{}-{number}", std::process::id());
        let settings = file("settings", "").with_extension("d");
        fs::create_dir_all(&settings).expect("writable");
        let rules =
            "db: udp-dport 5432 drop\nadmin: in b udp-dport 5433 ! ip-saddr in @admins drop\n";
        let policy = file("wall.weir", rules);
        let document = format!(
            "version = 1\n[[edge]]\nname = \"{edge}\"\n[[tenant]]\nname = \"red\"\n[[network]]\nname = \"shop\"\ntenant = \"red\"\n\
             [[network.subnet]]\nname = \"web\"\nprefix = [\"10.1.0.0/24\", \"fd00:1::/64\"]\n\
             [[network.subnet]]\nname = \"db\"\nprefix = \"10.2.0.0/24\"\n\
             [[network.group]]\nname = \"admins\"\n\
             [[network.function]]\nname = \"gw\"\nkind = \"router\"\n\
             interface = [{{ name = \"web\", address = [\"10.1.0.1/24\", \"fd00:1::1/64\"] }}, {{ name = \"db\", address = [\"10.2.0.1/24\"] }}]\n\
             [[network.function]]\nname = \"wall\"\nkind = \"middlebox\"\npolicy = \"{}\"\n\
             [[network.link]]\nfrom = \"web\"\nto = \"gw.web\"\n\
             [[network.link]]\nfrom = \"db\"\nto = \"wall\"\n[[network.link]]\nfrom = \"wall\"\nto = \"gw.db\"\n",
            policy.display()
        );
        let path = file("cni.toml", &document);
        let applied = weir(&host, &["apply", path.to_str().expect("UTF-8")]);
        assert!(applied.status.success(), "{}", stderr(&applied));
        Bed {
            plugin: Plugin::new(&settings, "shop", "web"),
            host,
            edge,
            settings,
        }
    }

    /// Devices of containers on the host.
    fn devices(&self) -> Vec<String> {
        let all = self
            .host
            .run(weir_kernel::links::all)
            .expect("namespace")
            .expect("devices");
        let names = all.into_iter().map(|one| one.name);
        names.filter(|name| name.starts_with("cni")).collect()
    }

    fn workloads(&self) -> usize {
        let output = weir(&self.host, &["net", "export", "--edge", &self.edge]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.matches("[[network.workload]]").count()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = weir(&self.host, &["net", "delete", "--edge", &self.edge]);
        let _ = fs::remove_dir_all(&self.settings);
    }
}

#[test]
fn containers_join_are_checked_and_leave() {
    if !root("containers_join_are_checked_and_leave") {
        return;
    }
    let bed = Bed::new();
    let (host, plugin) = (&bed.host, &bed.plugin);
    let version = plugin.done(
        host,
        "VERSION",
        &Pod {
            id: "a".to_owned(),
            ns: None,
        },
    );
    assert!(
        version["supportedVersions"]
            .as_array()
            .is_some_and(|all| all.len() == 5),
        "{version}"
    );
    assert_eq!(
        plugin.done(
            host,
            "STATUS",
            &Pod {
                id: "a".to_owned(),
                ns: None
            }
        ),
        Value::Null
    );

    let (one, two, mut store) = (Pod::new("one"), Pod::new("two"), Pod::new("store"));
    let first = plugin.done(host, "ADD", &one);
    assert_eq!(first["interfaces"][1]["name"], "eth0");
    assert_eq!(first["ips"][0]["gateway"], "10.1.0.1");
    assert_eq!(first["routes"][0]["dst"], "0.0.0.0/0");
    let second = plugin.done(host, "ADD", &two);
    let db = [("subnet", Value::from("db"))];
    let output = plugin.call(host, "ADD", &store, &db);
    let third: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{third}");
    // In the subnet by both families, to the other one through router and firewall.
    for address in addresses(&second) {
        assert!(one.reaches(&two, address, 9, PATIENCE), "{address}");
    }
    let [there] = addresses(&third)[..] else {
        panic!("one address: {third}");
    };
    assert!(
        one.reaches(&store, there, 9, PATIENCE),
        "through the router"
    );
    assert!(
        !one.reaches(&store, there, 5432, SILENCE),
        "the firewall drops it"
    );

    let told = [("prevResult", first.clone())];
    assert!(plugin.call(host, "CHECK", &one, &told).status.success());
    let (code, text) = plugin.refused(host, "CHECK", &one, &[("prevResult", second)]);
    assert_eq!(code, 100, "{text}");
    one.ns()
        .ip(&["address", "flush", "dev", "eth0", "scope", "global"])
        .expect("flushed");
    let (_, text) = plugin.refused(host, "CHECK", &one, &told);
    assert!(text.contains("does not have the address"), "{text}");
    // Adding again puts it right, with the same addresses.
    assert_eq!(
        addresses(&plugin.done(host, "ADD", &one)),
        addresses(&first)
    );
    assert!(plugin.call(host, "CHECK", &one, &told).status.success());

    let (code, text) = plugin.refused(host, "ADD", &one, &[("subnet", Value::from("wab"))]);
    assert!(
        code == 7 && text.contains("available: web, db"),
        "{code} {text}"
    );
    let (code, text) = plugin.refused(
        host,
        "ADD",
        &Pod::new("x"),
        &[("cniVersion", Value::from("9.9.9"))],
    );
    assert!(code == 1 && text.contains("1.1.0"), "{code} {text}");

    // DEL of a container whose namespace is gone succeeds, also a second time.
    store.ns = None;
    for _ in 0..2 {
        let output = plugin.call(host, "DEL", &store, &db);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    // What the runtime does not know any more is collected.
    let valid = serde_json::json!([{ "containerID": two.id, "ifname": "eth0" }]);
    let output = plugin.call(host, "GC", &two, &[("cni.dev/valid-attachments", valid)]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_eq!((bed.devices().len(), bed.workloads()), (1, 1));
    plugin.done(host, "DEL", &two);
    assert_eq!((bed.devices().len(), bed.workloads()), (0, 0));
}

/// Which of two edges a container is on cannot be guessed: DEL must not succeed without looking.
#[test]
fn a_host_with_two_edges_needs_the_name_of_one() {
    if !root("a_host_with_two_edges_needs_the_name_of_one") {
        return;
    }
    let bed = Bed::new();
    let pod = Pod::new("one");
    bed.plugin.done(&bed.host, "ADD", &pod);
    let other = format!("{}-other", bed.edge);
    let document =
        format!("version = 1\n[[edge]]\nname = \"{other}\"\n[[tenant]]\nname = \"blue\"\n");
    let path = file("other.toml", &document);
    let applied = weir(&bed.host, &["apply", path.to_str().expect("UTF-8")]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let (code, text) = bed.plugin.refused(&bed.host, "DEL", &pod, &[]);
    assert!(code == 7 && text.contains(&other), "{code} {text}");
    let named = [("edge", Value::from(bed.edge.as_str()))];
    let output = bed.plugin.call(&bed.host, "DEL", &pod, &named);
    assert!(output.status.success(), "{}", stderr(&output));
    let gone = weir(&bed.host, &["net", "delete", "--edge", &other]);
    assert!(gone.status.success(), "{}", stderr(&gone));
    assert_eq!((bed.devices().len(), bed.workloads()), (0, 0));
}

/// A container is in the security groups of its configuration from its first packet on, until it is deleted.
#[test]
fn containers_join_security_groups() {
    if !root("containers_join_security_groups") {
        return;
    }
    let bed = Bed::new();
    let (host, plugin) = (&bed.host, &bed.plugin);
    let (one, mut two, store) = (Pod::new("one"), Pod::new("two"), Pod::new("store"));
    let db = [("subnet", Value::from("db"))];
    let added = plugin.call(host, "ADD", &store, &db);
    let added: Value = serde_json::from_slice(&added.stdout).expect("JSON");
    let [there] = addresses(&added)[..] else {
        panic!("one address: {added}");
    };
    let unknown = [("groups", Value::from(vec!["admin"]))];
    let (code, text) = plugin.refused(host, "ADD", &one, &unknown);
    assert!(
        code == 7 && text.contains("did you mean `admins`?") || text.contains("admins"),
        "{code} {text}"
    );
    plugin.done(host, "ADD", &one);
    let admins = [("groups", Value::from(vec!["admins"]))];
    let member = plugin.call(host, "ADD", &two, &admins);
    assert!(
        member.status.success(),
        "{}",
        String::from_utf8_lossy(&member.stdout)
    );
    assert!(two.reaches(&store, there, 5433, PATIENCE), "a member");
    assert!(!one.reaches(&store, there, 5433, SILENCE), "no member");
    assert!(one.reaches(&store, there, 9, PATIENCE), "all else is open");
    // Again, as a runtime does that was restarted, whatever the configuration says by now.
    plugin.done(host, "ADD", &two);
    assert!(two.reaches(&store, there, 5433, PATIENCE), "a member still");
    plugin.done(host, "DEL", &two);
    two.ns = None;
    let exported = weir(host, &["net", "export", "--edge", &bed.edge]);
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    assert!(!exported.contains("groups ="), "{exported}");
    plugin.done(host, "DEL", &one);
    plugin.done(host, "DEL", &store);
}

#[test]
fn many_additions_at_once_get_addresses_of_their_own() {
    if !root("many_additions_at_once_get_addresses_of_their_own") {
        return;
    }
    let bed = Bed::new();
    let pods: Vec<Pod> = (0..8).map(|n| Pod::new(&format!("many{n}"))).collect();
    let begun: Vec<Child> = (pods.iter())
        .map(|pod| bed.plugin.begin(&bed.host, "ADD", pod, &[]))
        .collect();
    let mut all = std::collections::BTreeSet::new();
    for child in begun {
        let output = child.wait_with_output().expect("it ends");
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(output.status.success(), "{result}");
        all.extend(addresses(&result));
    }
    assert_eq!((all.len(), bed.workloads()), (16, 8), "of two families");
    for pod in &pods {
        bed.plugin.done(&bed.host, "DEL", pod);
    }
    assert_eq!((bed.devices().len(), bed.workloads()), (0, 0));
}

#[test]
fn a_killed_call_leaves_nothing_that_the_next_one_does_not_mend() {
    if !root("a_killed_call_leaves_nothing_that_the_next_one_does_not_mend") {
        return;
    }
    let bed = Bed::new();
    let rounds = if std::env::var_os("WEIR_LONG").is_some() {
        200
    } else {
        12
    };
    let begun = Instant::now();
    let stays = Pod::new("stays");
    bed.plugin.done(&bed.host, "ADD", &stays);
    let whole = begun.elapsed();
    let mut halves = 0;
    for round in 0..rounds {
        let pod = Pod::new(&format!("killed{round}"));
        let command = if round % 4 == 3 { "DEL" } else { "ADD" };
        if command == "DEL" {
            bed.plugin.done(&bed.host, "ADD", &pod);
        }
        let mut child = bed.plugin.begin(&bed.host, command, &pod, &[]);
        std::thread::sleep(whole.mul_f64(f64::from(round % 13) / 12.0));
        child.kill().expect("killed");
        let status = child.wait().expect("it ended");
        let mut rest = String::new();
        let _ = child
            .stdout
            .take()
            .expect("piped")
            .read_to_string(&mut rest);
        halves += u32::from(!status.success());
        if round % 2 == 0 {
            bed.plugin.done(&bed.host, "ADD", &pod);
            bed.plugin.done(&bed.host, "CHECK", &pod);
        }
        bed.plugin.done(&bed.host, "DEL", &pod);
        assert_eq!(
            (bed.devices().len(), bed.workloads()),
            (1, 1),
            "round {round}"
        );
    }
    bed.plugin.done(&bed.host, "CHECK", &stays);
    assert!(halves > 2, "{halves} calls were killed before their end");
}

#[test]
fn containers_on_two_edges_of_a_store_reach_each_other() {
    if !root("containers_on_two_edges_of_a_store_reach_each_other") || !has_etcd() {
        return;
    }
    let core = NetNs::create("wcnis").expect("a namespace");
    let mut bed = StoreBed::new(&core, 2);
    let mut cluster = cluster_in(&core, &bed.folder.join("etcd"));
    cluster.start_all();
    bed.configure(&cluster);
    for edge in &mut bed.edges {
        edge.start();
    }
    bed.edges[0].done(&["net", "store", "push", &bed.document("red", 1, &[], true)]);
    let pods = [Pod::new("left"), Pod::new("right")];
    let mut results = Vec::new();
    let plugins: Vec<Plugin> = (bed.edges.iter())
        .map(|edge| Plugin::new(&edge.folder, "red-net", "web"))
        .collect();
    for ((edge, plugin), pod) in bed.edges.iter().zip(&plugins).zip(&pods) {
        results.push(plugin.done(&edge.ns, "ADD", pod));
    }
    let [left, right] = [&results[0], &results[1]].map(|result| addresses(result)[0]);
    assert_ne!(left, right);
    assert!(pods[0].reaches(&pods[1], right, 9, PATIENCE));
    assert!(pods[1].reaches(&pods[0], left, 9, PATIENCE));
    for ((edge, plugin), pod) in bed.edges.iter().zip(&plugins).zip(&pods) {
        plugin.done(&edge.ns, "CHECK", pod);
    }
    plugins[0].done(&bed.edges[0].ns, "DEL", &pods[0]);
    plugins[1].done(&bed.edges[1].ns, "DEL", &pods[1]);
    let status = bed.edges[0].status("10s");
    assert_eq!(status["converged"], true, "{status}");
}

/// Two edges of a store; the network of their containers has a firewall between its subnets, whose policy consists of files that only the host has
/// which pushes them.
struct Separated {
    bed: StoreBed,
    plugins: Vec<Plugin>,
    _cluster: weir_testdata::etcd::Cluster,
    _core: NetNs,
}

impl Separated {
    fn new() -> Separated {
        let core = NetNs::create("wcnip").expect("a namespace");
        let mut bed = StoreBed::new(&core, 2);
        let mut cluster = cluster_in(&core, &bed.folder.join("etcd"));
        cluster.start_all();
        bed.configure(&cluster);
        for edge in &mut bed.edges {
            edge.start();
        }
        let plugins = (bed.edges.iter())
            .zip(["web", "db"])
            .map(|(edge, subnet)| Plugin::new(&edge.folder, "red-net", subnet));
        Separated {
            plugins: plugins.collect(),
            bed,
            _cluster: cluster,
            _core: core,
        }
    }

    /// The document, whose firewall lets clients open flows to one port. A connection is a connection on one edge.
    fn document(&self, version: u32, port: u16) -> String {
        let folder = self.bed.folder.join("policies");
        fs::create_dir_all(folder.join("lib")).expect("writable");
        for (name, text) in [
            (
                "pods.weir",
                "include \"lib/open.weir\"\nset clients = file \"clients.txt\"\nrest: all drop\n"
                    .to_owned(),
            ),
            (
                "lib/open.weir",
                format!("open: add-stateful in b ip-saddr in @clients udp-dport {port} accept\n"),
            ),
            ("clients.txt", "10.1.0.0/24\n".to_owned()),
        ] {
            fs::write(folder.join(name), text).expect("writable");
        }
        let path = self.bed.document("red", version, &[], true);
        let mut text = fs::read_to_string(&path).expect("readable");
        text.push_str(&format!(
            "[[network.subnet]]\nname = \"db\"\nprefix = \"10.2.0.0/24\"\n\
             [[network.function]]\nname = \"gw\"\nkind = \"router\"\n\
             interface = [{{ name = \"web\", address = \"10.1.0.1/24\" }}, {{ name = \"db\", address = \"10.2.0.1/24\" }}]\n\
             [[network.function]]\nname = \"wall\"\nkind = \"middlebox\"\nhome = \"{}\"\npolicy = \"policies/pods.weir\"\n\
             [[network.link]]\nfrom = \"web\"\nto = \"gw.web\"\n\
             [[network.link]]\nfrom = \"db\"\nto = \"wall\"\n[[network.link]]\nfrom = \"wall\"\nto = \"gw.db\"\n",
            self.bed.edges[0].name
        ));
        fs::write(&path, text).expect("writable");
        path
    }

    fn done(&self, edge: usize, command: &str, pod: &Pod) -> Value {
        self.plugins[edge].done(&self.bed.edges[edge].ns, command, pod)
    }

    /// Kills a call after a time, or after less if the call is faster: it ends killed.
    fn kill_one(&self, edge: usize, command: &str, pod: &Pod, mut after: Duration) {
        loop {
            if command == "DEL" {
                self.done(edge, "ADD", pod);
            }
            let ns = &self.bed.edges[edge].ns;
            let mut child = self.plugins[edge].begin(ns, command, pod, &[]);
            std::thread::sleep(after);
            child.kill().expect("killed");
            let status = child.wait().expect("it ended");
            if status.signal().is_some() {
                return;
            }
            assert!(status.success(), "{command} {}", pod.id);
            self.done(edge, "DEL", pod);
            after /= 2;
        }
    }

    /// Devices of containers on both hosts, and workloads of the store.
    fn left(&self) -> ([usize; 2], usize) {
        let devices = [0, 1].map(|edge| {
            let ns = &self.bed.edges[edge].ns;
            let all = ns.run(weir_kernel::links::all).expect("namespace");
            let all = all.expect("devices").into_iter();
            all.filter(|one| one.name.starts_with("cni")).count()
        });
        let text = self.bed.edges[0].done(&["net", "store", "export"]);
        (devices, text.matches("[[network.workload]]").count())
    }

    /// A command of one host, as its operator gives it.
    fn on_host(&self, edge: usize, args: &[&str]) -> String {
        let edge = &self.bed.edges[edge];
        let mut command = (edge.ns)
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        command.args(args).env("STATE_DIRECTORY", &edge.state);
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{args:?}: {}{text}",
            stderr(&output)
        );
        text
    }
}

#[test]
fn a_policy_separates_containers_on_two_edges_of_a_store() {
    if !root("a_policy_separates_containers_on_two_edges_of_a_store") || !has_etcd() {
        return;
    }
    let bed = Separated::new();
    let first = &bed.bed.edges[0];
    let document = bed.document(1, 7000);
    first.done(&["net", "store", "push", &document]);
    let [left, right] = [Pod::new("left"), Pod::new("right")];
    let results = [bed.done(0, "ADD", &left), bed.done(1, "ADD", &right)];
    let [here, there] = results.each_ref().map(|result| addresses(result)[0]);
    let only = |port: u16| {
        assert!(is_answered(&left, &right, there, port, PATIENCE), "{port}");
        for other in [7000, 7001, 7002].into_iter().filter(|one| *one != port) {
            assert!(!left.reaches(&right, there, other, SILENCE), "{other}");
        }
        // The flow was opened from one side; the other side may not open any.
        assert!(!right.reaches(&left, here, port, SILENCE), "{port} back");
    };
    only(7000);

    // Another port: one file changes, and the document of that version with it.
    let document = bed.document(2, 7001);
    let difference = first.done(&["net", "store", "diff", &document]);
    assert!(
        difference.contains("file policies/lib/open.weir changed")
            && difference.contains("udp-dport 7001 accept")
            && !difference.contains("clients.txt"),
        "{difference}"
    );
    first.done(&["net", "store", "push", &document, "--wait", "20s"]);
    only(7001);
    // What an edge has of it is whole without the files of the host that pushed it.
    fs::remove_dir_all(bed.bed.folder.join("policies")).expect("there");
    let export = first.done(&["net", "store", "export"]);
    assert!(export.contains("udp-dport 7001"), "{export}");
    let name = bed.bed.edges[0].name.clone();
    // The host's history has the policy of each time.
    bed.on_host(0, &["rollback", "--edge", &name]);
    only(7000);
    first.agent().signal(rustix::process::Signal::HUP);
    first.status("20s");
    only(7001);
    for file in ["policies/none.weir", "/etc/hostname"] {
        let text = fs::read_to_string(&document).expect("readable");
        let text = text
            .replace("policies/pods.weir", file)
            .replace("version = 2", "version = 3");
        let path = self::file("wrong.toml", &text);
        let refused = first.weir(&["net", "store", "push", path.to_str().expect("UTF-8")]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    }
    // The exported document is complete: pushed again it says the same.
    let path = file("export.toml", &format!("version = 2\n{export}"));
    let again = first.done(&["net", "store", "diff", path.to_str().expect("UTF-8")]);
    assert!(again.contains("the store says the same"), "{again}");
    only(7001);
    bed.done(0, "DEL", &left);
    bed.done(1, "DEL", &right);
    assert_eq!(bed.left(), ([0, 0], 0));
    first.status("10s");
}

#[test]
fn killed_calls_on_two_edges_of_a_store_are_mended() {
    if !root("killed_calls_on_two_edges_of_a_store_are_mended") || !has_etcd() {
        return;
    }
    let rounds = match std::env::var_os("WEIR_LONG") {
        Some(_) => 100,
        None => 12,
    };
    let bed = Separated::new();
    let document = bed.document(1, 7000);
    bed.bed.edges[0].done(&["net", "store", "push", &document]);
    let begun = Instant::now();
    let [left, right] = [Pod::new("left"), Pod::new("right")];
    let first = [bed.done(0, "ADD", &left), bed.done(1, "ADD", &right)];
    let whole = begun.elapsed() / 2;
    let there = addresses(&first[1])[0];
    for round in 0..rounds {
        let edge = round % 2;
        let pod = Pod::new(&format!("killed{round}"));
        let command = if round % 6 > 3 { "DEL" } else { "ADD" };
        let after = whole.mul_f64((round % 11) as f64 / 10.0);
        bed.kill_one(edge, command, &pod, after);
        if round % 4 < 2 {
            let added = bed.done(edge, "ADD", &pod);
            bed.done(edge, "CHECK", &pod);
            let again = bed.done(edge, "ADD", &pod);
            assert_eq!(addresses(&added), addresses(&again), "round {round}");
        }
        bed.done(edge, "DEL", &pod);
        bed.done(edge, "DEL", &pod);
        assert_eq!(bed.left(), ([1, 1], 2), "round {round}");
    }
    for (edge, pod) in [&left, &right].into_iter().enumerate() {
        bed.done(edge, "CHECK", pod);
        assert_eq!(
            addresses(&bed.done(edge, "ADD", pod)),
            addresses(&first[edge])
        );
    }
    assert!(is_answered(&left, &right, there, 7000, PATIENCE));
    assert!(!left.reaches(&right, there, 7001, SILENCE));
    let status = bed.bed.edges[0].status("10s");
    assert_eq!(status["converged"], true, "{status}");
}
