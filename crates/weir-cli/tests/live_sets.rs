//! Dynamic sets of a policy that runs: packets fill them, `weir set` changes them at once, and they keep what they hold when rules are
//! edited, when another policy is loaded and when another `weir run` takes over. Needs root.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::live_bed::{Run, file, root, stderr, weir};
use rustix::process::Signal;
use serde_json::Value;
use weir_kernel::{NetNs, bed, pins};

/// Port 22 opens for who knocks three times; who tries port 23 is banned from port 80.
const POLICY: &str = "set k1 = dynamic timeout 20s\nset k2 = dynamic timeout 20s\n\
    set open = dynamic timeout 1m size 1000\nset bad = dynamic timeout 10m\n\
    udp-dport 7001 add @k1 source\n\
    ip-saddr in @k1 udp-dport 7002 add @k2 source\n\
    ip-saddr in @k2 udp-dport 7003 add @open source\n\
    ssh: ip-saddr in @open tcp-dport 22 accept\n\
    trap: tcp-dport 23 add @bad source drop\n\
    banned: ip-saddr in @bad tcp-dport 80 drop\n\
    shut: tcp-dport 22 drop\n";

/// A host on the left, and one on the right with servers at ports 22 and 80.
struct Hosts {
    left: NetNs,
    right: NetNs,
    address: String,
    host: String,
    _servers: [TcpListener; 2],
}

impl Hosts {
    fn build(name: &str, net: &str) -> Hosts {
        let left = NetNs::create(&format!("{name}-l")).expect("namespace");
        let right = NetNs::create(&format!("{name}-r")).expect("namespace");
        let (host, address) = (format!("{net}.1"), format!("{net}.2"));
        let end = |ns, name, addresses| bed::End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&left, "left0", &[&format!("{host}/24")]),
            end(&right, "right0", &[&format!("{address}/24")]),
        )
        .expect("veth");
        let listen = |port: u16| {
            let bound = right.run(|| TcpListener::bind((&*address, port)));
            bound.expect("namespace").expect("bind")
        };
        let _servers = [listen(22), listen(80)];
        Hosts {
            left,
            right,
            host,
            address,
            _servers,
        }
    }

    /// Whether the host on the left reaches a port.
    fn reaches(&self, port: u16) -> bool {
        let to = format!("{}:{port}", self.address)
            .parse()
            .expect("an address");
        let wait = Duration::from_millis(300);
        let connected = self.left.run(|| TcpStream::connect_timeout(&to, wait));
        connected.expect("namespace").is_ok()
    }

    fn knock(&self, port: u16) {
        let socket = self.left.run(|| UdpSocket::bind("0.0.0.0:0"));
        let socket = socket.expect("namespace").expect("bind");
        socket.send_to(b"!", (&*self.address, port)).expect("sends");
        std::thread::sleep(Duration::from_millis(20));
    }

    fn set(&self, arguments: &[&str]) -> Value {
        let output = weir(&self.right, &[&["set", "--json"], arguments].concat());
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            stderr(&output)
        );
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    }

    fn holds(&self, set: &str) -> Vec<String> {
        let listed = self.set(&["list", set]);
        let elements = listed["elements"].as_array().expect("a list");
        let text = |one: &Value| one["element"].as_str().expect("a text").to_owned();
        elements.iter().map(text).collect()
    }

    fn run_weir(&self, arguments: &[&str]) {
        let output = weir(&self.right, arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn knocks_open_a_port_and_a_set_is_changed_at_once() {
    if !root("knocks_open_a_port_and_a_set_is_changed_at_once") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let hosts = Hosts::build("weirs-k", "10.83.0");
    let host = hosts.host.as_str();
    let run = Run::start(&hosts.right, POLICY, &["right0"], &[]);

    // Three knocks, in order.
    assert!(!hosts.reaches(22), "shut");
    hosts.knock(7003);
    hosts.knock(7002);
    hosts.knock(7001);
    assert!(!hosts.reaches(22), "the wrong order");
    hosts.knock(7002);
    assert!(!hosts.reaches(22), "two of three");
    hosts.knock(7003);
    assert!(hosts.reaches(22), "open");
    assert_eq!(hosts.holds("open"), [host]);

    // From outside: at once, for a time, for good.
    assert!(hosts.reaches(80));
    assert_eq!(hosts.set(&["add", "bad", host])["added"], 1);
    assert!(!hosts.reaches(80), "banned");
    assert_eq!(
        hosts.set(&["delete", "bad", host, "192.0.2.1"])["deleted"],
        1
    );
    assert!(hosts.reaches(80));
    hosts.set(&["add", "bad", host, "--timeout", "500ms"]);
    assert!(!hosts.reaches(80), "banned for half a second");
    std::thread::sleep(Duration::from_millis(600));
    assert!(hosts.reaches(80));
    let added = hosts.set(&[
        "add",
        "bad",
        "2001:db8::1",
        "02:00:00:00:00:01",
        "--permanent",
    ]);
    assert_eq!(added["added"], 2);
    let text = weir(&hosts.right, &["set", "list", "bad"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("2001:db8::1 permanent\n") && text.contains("\n2 elements\n"),
        "{text}"
    );

    // By packets.
    assert!(!hosts.reaches(23));
    assert!(!hosts.reaches(80), "the trap banned it");
    let listed = hosts.set(&["list", "bad"]);
    let all = listed["elements"].as_array().expect("a list");
    let left = all
        .iter()
        .find(|one| one["element"] == host)
        .expect("listed");
    let left = left["expires_ms"].as_u64().expect("a time");
    assert!(
        (500_000..=600_000).contains(&left),
        "{left} ms of 10 minutes"
    );
    let sets = hosts.set(&["list"]);
    let bad = &sets["sets"][3];
    assert_eq!(
        (&bad["name"], &bad["count"], &bad["size"]),
        (&"bad".into(), &3.into(), &65536.into()),
        "{sets}"
    );
    assert_eq!(hosts.set(&["flush", "bad"])["deleted"], 3);
    assert!(hosts.reaches(80));

    for (arguments, part) in [
        (
            &["list", "other"][..],
            "unknown dynamic set `other`: rules that run name k1, k2, open, bad",
        ),
        (&["add", "bad", "10.0.0.0/8"], "single addresses"),
        (
            &["add", "bad", "host"],
            "expected an IPv4, IPv6 or MAC address",
        ),
        (&["add", "bad", "::1", "--timeout", "0"], "must be above 0"),
    ] {
        let output = weir(&hosts.right, &[&["set"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    run.stop();
}

#[test]
fn sets_keep_what_they_hold() {
    if !root("sets_keep_what_they_hold") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let hosts = Hosts::build("weirs-h", "10.83.1");
    let host = hosts.host.as_str();
    let run = Run::start(&hosts.right, POLICY, &["right0"], &[]);
    hosts.set(&["add", "bad", host, "--timeout", "1h"]);
    hosts.set(&["add", "open", "192.0.2.7", "192.0.2.8", "--permanent"]);
    let kept = |when: &str| {
        assert_eq!(hosts.holds("bad"), [host], "{when}");
        assert_eq!(hosts.holds("open").len(), 2, "{when}");
        assert!(!hosts.reaches(80), "{when}");
    };
    kept("at first");
    // In place, and with a test that the key had no bit for: rebuilt.
    hosts.run_weir(&[
        "rule",
        "add",
        "ip-saddr",
        "in",
        "@bad",
        "tcp-dport",
        "81",
        "drop",
    ]);
    kept("a rule added");
    hosts.run_weir(&["rule", "add", "ip-daddr", "in", "@bad", "drop"]);
    kept("another test added");
    hosts.run_weir(&["rule", "compact"]);
    kept("compacted");
    // Another policy: a set in front, one larger, one gone.
    let other = format!(
        "set first = dynamic size 50\nudp-dport 9 add @first source\n{}",
        POLICY
            .replace("size 1000", "size 5000")
            .replace("udp-dport 7001 add @k1 source\n", "")
    );
    let path = file("other.weir", &other);
    hosts.run_weir(&["rule", "load", path.to_str().expect("a path")]);
    kept("another policy");
    hosts.knock(9);
    assert_eq!(hosts.holds("first"), [host]);
    // Killed, and taken over: the same policy, then the first one.
    run.signal(Signal::KILL);
    drop(run.wait());
    let run = Run::start(&hosts.right, &other, &["right0"], &[]);
    kept("taken over");
    assert_eq!(hosts.holds("first"), [host]);
    run.signal(Signal::KILL);
    drop(run.wait());
    let run = Run::start(&hosts.right, POLICY, &["right0"], &[]);
    kept("taken over by another policy");
    run.stop();
}

#[test]
fn sets_of_a_graph_are_changed() {
    if !root("sets_of_a_graph_are_changed") {
        return;
    }
    let hosts = Hosts::build("weirs-g", "10.83.2");
    let host = hosts.host.as_str();
    let edge = format!("sets-{}", std::process::id());
    let config = |more: &str| {
        file(
            "sets.toml",
            &format!(
                "edge = \"{edge}\"\n[[port]]\nname = \"right\"\ndevice = \"right0\"\n[[function]]\nname = \"ban\"\nkind = \"middlebox\"\n\
                 rules = \"set bad = dynamic timeout 1h\\ntcp-dport 23 add @bad source drop\\nip-saddr in @bad tcp-dport 80 drop{more}\"\n\
                 [[link]]\nfrom = \"right\"\nto = \"ban\"\n[[link]]\nfrom = \"ban\"\nto = \"stack\"\n"
            ),
        )
    };
    let first = config("");
    let first = first.to_str().expect("a path");
    hosts.run_weir(&["apply", first]);
    assert!(hosts.reaches(80));
    assert_eq!(hosts.set(&["add", "bad", host])["added"], 1);
    assert!(!hosts.reaches(80), "banned");
    let named = ["--edge", &edge, "--function", "ban"];
    assert_eq!(
        hosts.set(&[&["delete", "bad", host], &named[..]].concat())["deleted"],
        1
    );
    assert!(hosts.reaches(80));
    assert!(!hosts.reaches(23));
    assert!(!hosts.reaches(80), "the trap banned it");
    assert_eq!(hosts.holds("bad"), [host]);
    // The same sets under other rules keep what they hold.
    let second = config("\\nudp-dport 9 drop");
    hosts.run_weir(&["apply", second.to_str().expect("a path")]);
    assert_eq!(hosts.holds("bad"), [host]);
    assert!(!hosts.reaches(80), "still");
    hosts.run_weir(&["down", first]);
}
