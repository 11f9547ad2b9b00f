//! A router between two hosts, live: TCP with unfinished checksums through both kinds of tables, VLANs, `weir route`, and routes that
//! change a thousand times a second while packets follow them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::live_bed::{file, root, stderr, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_engine::edge::routers::Router;
use weir_functions::router::rib::{Hop, Way};
use weir_kernel::bed::{self, End};
use weir_kernel::{Frames, NetNs, PacketSocket, iface};
use weir_packet::build::Frame;
use weir_value::Prefix;

/// Interfaces of a router with tables of its own.
const INTERFACES: &str = "[[function.interface]]\nport = \"left\"\naddress = [\"10.81.1.1/24\", \"fd81:1::1/64\"]\n\
                          [[function.interface]]\nport = \"right\"\naddress = [\"10.81.2.1/24\", \"fd81:2::1/64\"]\n";

/// Two hosts and a router between them; its edge is taken down when dropped.
struct Bed {
    left: NetNs,
    router: NetNs,
    right: NetNs,
    edge: String,
    config: PathBuf,
}

impl Bed {
    /// `keys` of the router; tables of its interfaces come last in them.
    fn new(test: &str, keys: &str) -> Bed {
        let ns = |what: &str| NetNs::create(&format!("weirr-{what}")).expect("namespace");
        let (left, router, right) = (ns("left"), ns("mid"), ns("right"));
        bed::forward(&router).expect("forwards");
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&router, "r0", &["10.81.1.1/24", "fd81:1::1/64"]),
            end(&left, "left0", &["10.81.1.2/24", "fd81:1::2/64"]),
        )
        .expect("veth");
        bed::veth(
            end(&router, "r1", &["10.81.2.1/24", "fd81:2::1/64"]),
            end(
                &right,
                "right0",
                &["10.81.2.2/24", "10.81.2.3/24", "fd81:2::2/64"],
            ),
        )
        .expect("veth");
        for (ns, device, gateways) in [
            (&left, "left0", ["10.81.1.1", "fd81:1::1"]),
            (&right, "right0", ["10.81.2.1", "fd81:2::1"]),
        ] {
            for gateway in gateways {
                bed::default_route(ns, gateway).expect("route");
            }
            ns.output("ethtool", &["-K", device, "gro", "on"])
                .expect("takes frames");
        }
        let bed = Bed {
            edge: format!("r{}-{test}", std::process::id()),
            config: file("router.toml", ""),
            left,
            router,
            right,
        };
        bed.configure(keys);
        let applied = bed.weir(&["apply", bed.config.to_str().expect("UTF-8")]);
        assert!(applied.status.success(), "{}", stderr(&applied));
        bed
    }

    fn configure(&self, keys: &str) {
        let text = format!(
            "edge = \"{}\"\n[[port]]\nname = \"left\"\ndevice = \"r0\"\n[[port]]\nname = \"right\"\ndevice = \"r1\"\n\
             [[link]]\nfrom = \"left\"\nto = \"core\"\n[[link]]\nfrom = \"right\"\nto = \"core\"\n\
             [[function]]\nname = \"core\"\nkind = \"router\"\n{keys}",
            self.edge
        );
        std::fs::write(&self.config, text).expect("cargo's folder is writable");
    }

    fn weir(&self, args: &[&str]) -> Output {
        weir(&self.router, args)
    }

    fn route(&self, args: &[&str]) -> Output {
        self.weir(&[&["route", "--edge", &self.edge], args].concat())
    }

    fn routed(&self, args: &[&str]) -> String {
        let output = self.route(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn ledger(&self) -> Value {
        let output = self.weir(&["status", "--edge", &self.edge, "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["edges"][0]["functions"][0]["ledger"].clone()
    }

    fn redirected(&self) -> u64 {
        let ledger = self.ledger();
        ledger["verdicts"]["redirect"]
            .as_u64()
            .unwrap_or_else(|| panic!("{ledger}"))
    }

    /// Sends bytes from left to right and back over TCP.
    fn transfers(&self, to: &str) {
        let address: IpAddr = to.parse().expect("an address");
        let listener = self
            .right
            .run(|| TcpListener::bind((address, 0)))
            .expect("namespace")
            .expect("listens");
        let at = SocketAddr::new(address, listener.local_addr().expect("bound").port());
        let sent: Vec<u8> = (0..1_000_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("somebody comes");
                let mut got = vec![0; sent.len()];
                stream.read_exact(&mut got).expect("reads");
                stream.write_all(&got).expect("writes");
            });
            let stream = self
                .left
                .run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5)));
            let mut stream = stream.expect("namespace").expect("connects");
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("a time");
            stream.write_all(&sent).expect("writes");
            let mut back = vec![0; sent.len()];
            stream.read_exact(&mut back).expect("reads");
            assert!(back == sent, "{to}: other bytes came back");
        });
    }

    /// Whether a datagram from the left to that address comes to a host on the right that has it.
    fn arrives(&self, to: &str) -> bool {
        let address: IpAddr = to.parse().expect("an address");
        let receiver = self
            .right
            .run(|| UdpSocket::bind((address, 0)))
            .expect("namespace")
            .expect("binds");
        receiver
            .set_read_timeout(Some(Duration::from_millis(300)))
            .expect("a time");
        let at = SocketAddr::new(address, receiver.local_addr().expect("bound").port());
        self.left
            .run(|| {
                UdpSocket::bind("0.0.0.0:0")
                    .expect("binds")
                    .send_to(b"weir", at)
            })
            .expect("namespace")
            .expect("sends");
        receiver.recv(&mut [0; 16]).is_ok()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.weir(&["down", "--edge", &self.edge]);
    }
}

#[test]
fn tcp_goes_through_both_kinds_of_tables() {
    if !root("live_route") {
        return;
    }
    for keys in [
        String::new(),
        format!("table = \"own\"\ncounters = \"routes\"\n{INTERFACES}"),
    ] {
        let bed = Bed::new("tcp", &keys);
        for to in ["10.81.2.2", "fd81:2::2"] {
            bed.transfers(to);
        }
        // By the router, not by the stack behind it, which would do as well.
        assert!(bed.redirected() > 1000, "{}", bed.ledger());
        for ns in [&bed.left, &bed.right] {
            let wrong = bed::counter(ns, "Tcp", "InCsumErrors").expect("counted");
            assert_eq!(wrong.unwrap_or(0), 0, "checksums were finished");
        }
    }
}

#[test]
fn errors_name_the_interface_and_reach_who_sent() {
    if !root("live_route") {
        return;
    }
    let routes = "routes = [\"unreachable 10.82.0.0/16\", \"prohibit 10.83.0.0/16\", \"blackhole 10.84.0.0/16\"]";
    let bed = Bed::new(
        "errors",
        &format!("table = \"own\"\n{routes}\n{INTERFACES}"),
    );
    let ping = |args: &[&str]| {
        let args = [&["-n", "-c", "1", "-W", "1"], args].concat();
        let output = bed
            .left
            .command("ping")
            .expect("namespace")
            .args(args)
            .output()
            .expect("ping runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    for (args, want) in [
        (
            &["10.82.0.1"][..],
            "From 10.81.1.1 icmp_seq=1 Destination Host Unreachable",
        ),
        (&["10.83.0.1"], "From 10.81.1.1 icmp_seq=1 Packet filtered"),
        (
            &["10.85.0.1"],
            "From 10.81.1.1 icmp_seq=1 Destination Net Unreachable",
        ),
        (
            &["-t", "1", "10.81.2.2"],
            "From 10.81.1.1 icmp_seq=1 Time to live exceeded",
        ),
        (
            &["-t", "1", "fd81:2::2"],
            "From fd81:1::1 icmp_seq=1 Time exceeded: Hop limit",
        ),
    ] {
        let said = ping(args);
        assert!(said.contains(want), "{args:?}: {said}");
    }
    assert!(
        !ping(&["10.84.0.1"]).contains("From"),
        "a blackhole is silent"
    );
    // A way that carries less: the sender is told how much.
    bed.router
        .ip(&["link", "set", "r1", "mtu", "1400"])
        .expect("smaller");
    let applied = bed.weir(&["apply", bed.config.to_str().expect("UTF-8")]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let said = ping(&["-M", "do", "-s", "1450", "10.81.2.2"]);
    assert!(
        said.contains("From 10.81.1.1 icmp_seq=1 Frag needed and DF set (mtu = 1400)"),
        "{said}"
    );
    let said = ping(&["-M", "do", "-s", "1450", "fd81:2::2"]);
    assert!(
        said.contains("From fd81:1::1 icmp_seq=1 Packet too big: mtu=1400"),
        "{said}"
    );
    let ledger = bed.ledger();
    let answered = serde_json::json!({ "reason": "answered", "packets": 7 });
    let reasons = ledger["reasons"].as_array().expect("a list");
    assert!(reasons.contains(&answered), "{ledger}");
}

#[test]
fn tags_are_taken_off_put_on_and_changed() {
    if !root("live_route") {
        return;
    }
    let keys = "table = \"own\"\nroutes = [\n\"10.90.0.0/16 via 10.81.2.9 dev tagged lladdr 02:00:00:00:00:09\",\n\
                \"10.91.0.0/16 via 10.81.1.9 dev left lladdr 02:00:00:00:00:08\",\n\
                \"10.92.0.0/16 via 10.81.3.9 dev other lladdr 02:00:00:00:00:07\"]\n\
                [[function.interface]]\nport = \"left\"\naddress = [\"10.81.1.1/24\"]\n\
                [[function.interface]]\nname = \"tagged\"\nport = \"right\"\nvlan = 100\ndevice = \"r1\"\naddress = [\"10.81.2.1/24\"]\n\
                [[function.interface]]\nname = \"other\"\nport = \"left\"\nvlan = 7\ndevice = \"r0\"\naddress = [\"10.81.3.1/24\"]\n";
    let bed = Bed::new_untagged_offloads("tags", keys);
    let mac = |ns: &NetNs, device: &str| {
        let found = ns.run(|| iface::find(device)).expect("namespace");
        found.expect("there").mac
    };
    let (r0, r1) = (mac(&bed.router, "r0"), mac(&bed.router, "r1"));
    let sockets = [(&bed.left, "left0"), (&bed.right, "right0")];
    let sockets = sockets.map(|(ns, device)| {
        ns.run(|| PacketSocket::open(device))
            .expect("namespace")
            .expect("opens")
    });
    let addressed = |frame: Frame, to: [u8; 6]| {
        let mut bytes = frame.build();
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 1, 1]);
        bytes
    };
    let packet = |frame: Frame, to: [u8; 4]| {
        frame
            .ip4([10, 81, 1, 2], to)
            .ttl(9)
            .udp(5, 6)
            .payload(b"tagged?")
    };
    // In by, tag, destination; out by, tag, link-layer address.
    for (by, tag, to, out, out_tag, next) in [
        (0, None, [10, 90, 0, 1], 1, Some(0x0064u16), 9u8),
        (0, Some(0xa007u16), [10, 90, 0, 1], 1, Some(0xa064), 9),
        (1, Some(0x0064), [10, 91, 0, 1], 0, None, 8),
        (1, Some(0x6064), [10, 92, 0, 1], 0, Some(0x6007), 7),
    ] {
        let start = match tag {
            None => Frame::new(),
            Some(tci) => Frame::new().tag(0x8100, tci),
        };
        let frame = addressed(packet(start, to), if by == 0 { r0 } else { r1 });
        sockets[by].send(&frame).expect("sends");
        let want = match out_tag {
            None => Frame::new(),
            Some(tci) => Frame::new().tag(0x8100, tci),
        };
        let mut want = addressed(packet(want, to).ttl(8), [2, 0, 0, 0, 0, next]);
        want[6..12].copy_from_slice(if out == 0 { &r0 } else { &r1 });
        let until = Instant::now() + Duration::from_secs(30);
        let mut seen = Vec::new();
        while !seen.contains(&want) && Instant::now() < until {
            let mut frames = Frames::new();
            sockets[out].receive(&mut frames).expect("receives");
            seen.extend(frames.iter().map(|(frame, _)| frame.to_vec()));
        }
        assert!(
            seen.contains(&want),
            "{by} {tag:x?}: want {want:02x?} of {} seen: {seen:02x?}",
            seen.len()
        );
    }
    // A tag of nobody is not the router's.
    sockets[1]
        .send(&addressed(
            packet(Frame::new().tag(0x8100, 5), [10, 91, 0, 1]),
            r1,
        ))
        .expect("sends");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(bed.redirected(), 4, "{}", bed.ledger());
}

impl Bed {
    /// With tags in frames, where XDP sees them.
    fn new_untagged_offloads(test: &str, keys: &str) -> Bed {
        let bed = Bed::new(test, "");
        for (ns, device) in [
            (&bed.left, "left0"),
            (&bed.right, "right0"),
            (&bed.router, "r0"),
            (&bed.router, "r1"),
        ] {
            for feature in ["rxvlan", "txvlan"] {
                // Some devices have one of them fixed.
                let _ = ns.output("ethtool", &["-K", device, feature, "off"]);
            }
        }
        bed.configure(keys);
        let applied = bed.weir(&["apply", bed.config.to_str().expect("UTF-8")]);
        assert!(applied.status.success(), "{}", stderr(&applied));
        bed
    }
}

#[test]
fn routes_are_shown_changed_and_refused() {
    if !root("live_route") {
        return;
    }
    let keys = format!(
        "table = \"own\"\nprefixes = 12\nroutes = [\"10.90.0.0/16 via 10.81.2.2\"]\n{INTERFACES}"
    );
    let bed = Bed::new("shown", &keys);
    bed.right
        .ip(&["address", "add", "10.95.0.1/32", "dev", "lo"])
        .expect("address");
    assert!(!bed.arrives("10.95.0.1"));
    assert_eq!(
        bed.routed(&["add", "10.95.0.0/16", "via", "10.81.2.2"]),
        "core: 1 route put in, 14 in all\n"
    );
    assert!(bed.arrives("10.95.0.1"));
    assert_eq!(
        bed.routed(&["get", "10.95.0.1"]),
        "10.95.0.1 takes 10.95.0.0/16 via 10.81.2.2 dev right\n"
    );
    let listed = bed.routed(&["list", "10.80.0.0/12"]);
    for line in [
        "10.90.0.0/16 via 10.81.2.2 dev right\n",
        "10.95.0.0/16 via 10.81.2.2 dev right  # weir route\n",
    ] {
        assert!(listed.contains(line), "{listed}");
    }
    let hops: Value = serde_json::from_str(&bed.routed(&["hops", "--json"])).expect("JSON");
    let gateway = hops["hops"]
        .as_array()
        .and_then(|hops| hops.iter().find(|one| one["via"] == "10.81.2.2"));
    let gateway = gateway.unwrap_or_else(|| panic!("{hops}"));
    assert!(
        gateway["users"] == 2
            && gateway["packets"].as_u64() >= Some(1)
            && gateway["mac"].is_string(),
        "{hops}"
    );
    // The edge says it in short.
    let status = bed.weir(&["status", bed.config.to_str().expect("UTF-8")]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    for line in ["  via 10.81.2.2 dev right: ", "  sent by right: "] {
        let found = status.lines().find_map(|one| one.strip_prefix(line));
        let packets = found.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(packets >= Some(1), "{status}");
    }
    // Another configuration: what was added goes on, what it says is new.
    bed.configure(&keys.replace("10.90.0.0/16", "10.91.0.0/16"));
    let applied = bed.weir(&["apply", bed.config.to_str().expect("UTF-8")]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    assert!(bed.arrives("10.95.0.1"));
    // Mistakes change nothing and say what to write.
    let before = bed.routed(&["list"]);
    for (words, want) in [
        (
            &["add", "10.96.0.0/8", "via", "10.81.2.2"][..],
            "invalid prefix `10.96.0.0/8`: host bits are set; write 10.0.0.0/8 or 10.96.0.0",
        ),
        (
            &["add", "10.96.0.0/16", "via", "10.99.0.1"],
            "no interface has a network that holds the gateway 10.99.0.1",
        ),
        (
            &["add", "10.96.0.0/16", "via", "fd81:2::2", "dev", "rihgt"],
            "the router has no interface `rihgt`: did you mean `right`?",
        ),
        (
            &["add", "10.96.0.0/16", "veea", "10.81.2.2"],
            "`veea` is not understood in a route",
        ),
        (
            &["add", "10.96.0.0/16"],
            "the route to 10.96.0.0/16 leads nowhere",
        ),
        (
            &["add", "10.96.0.0/16", "via", "10.81.2.1"],
            "the gateway 10.81.2.1 is the router itself",
        ),
        (&["delete", "10.97.0.0/16"], "no route to 10.97.0.0/16"),
    ] {
        let output = bed.route(words);
        assert!(
            !output.status.success() && stderr(&output).contains(want),
            "{words:?}: {}",
            stderr(&output)
        );
    }
    let mut lines = String::new();
    for n in 0..200 {
        lines += &format!("10.100.{n}.0/24 via 10.81.2.2\n");
    }
    lines += "10.101.0.0/16 via 10.81.2.2\n";
    let full = piped(
        &bed,
        &["add", "-"],
        &lines.replace("/24", "/23").replace(".1.0", ".0.0"),
    );
    assert!(
        !full.status.success(),
        "prefixes with bits behind their length"
    );
    let lines: String = (0..2000)
        .map(|n| format!("11.{}.{}.0/24 via 10.81.2.2\n", n / 250, n % 250))
        .collect();
    let full = piped(&bed, &["add", "-"], &lines);
    let said = stderr(&full);
    assert!(
        !full.status.success()
            && said.contains("the table is full: its capacity is")
            && said.contains("raise `prefixes`"),
        "{said}"
    );
    assert_eq!(bed.routed(&["list"]), before, "all or none");
    assert_eq!(
        bed.routed(&["delete", "10.95.0.0/16"]),
        "core: the route to 10.95.0.0/16 is gone, 13 in all\n"
    );
    assert!(!bed.arrives("10.95.0.1"));
}

fn piped(bed: &Bed, words: &[&str], text: &str) -> Output {
    let mut command = bed
        .router
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace");
    command.args(["route", "--edge", &bed.edge]).args(words);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("weir runs");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(text.as_bytes())
        .expect("writes");
    child.wait_with_output().expect("ends")
}

/// `weir route follow`; ended when dropped.
struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.0.wait();
    }
}

#[test]
fn the_kernels_routes_are_followed() {
    if !root("live_route") {
        return;
    }
    let bed = Bed::new(
        "follow",
        &format!("table = \"own\"\nprefixes = 5000\n{INTERFACES}"),
    );
    bed.right
        .ip(&["address", "add", "10.95.0.1/32", "dev", "lo"])
        .expect("address");
    let mut command = bed
        .router
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace");
    let said = file("follow", "");
    let log = std::fs::File::create(&said).expect("cargo's folder is writable");
    command
        .args(["route", "follow", "--edge", &bed.edge])
        .stdout(log.try_clone().expect("a file"))
        .stderr(log);
    let following = Following(command.spawn().expect("weir runs"));
    // From here on the stack would forward as well: what the router says is what is looked at.
    let becomes = |address: &str, want: &str| {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let output = bed.route(&["get", address]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if said.contains(want) {
                return;
            }
            assert!(
                Instant::now() < until,
                "{address}: want {want}, have {said}{}",
                stderr(&output)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let ip = |args: &[&str]| bed.router.ip(args).expect("ip does it");
    ip(&["route", "add", "10.95.0.0/16", "via", "10.81.2.2"]);
    becomes("10.95.0.1", "10.95.0.0/16 via 10.81.2.2 dev right");
    assert!(bed.arrives("10.95.0.1"));
    ip(&[
        "route",
        "replace",
        "10.95.0.0/16",
        "via",
        "10.81.2.3",
        "mtu",
        "1300",
    ]);
    becomes("10.95.0.1", "via 10.81.2.3 dev right mtu 1300");
    ip(&[
        "route",
        "add",
        "10.95.0.0/16",
        "metric",
        "5",
        "nexthop",
        "via",
        "10.81.2.2",
        "nexthop",
        "via",
        "10.81.2.3",
    ]);
    ip(&["route", "add", "blackhole", "10.95.7.0/24"]);
    becomes("10.95.7.1", "blackhole 10.95.7.0/24");
    ip(&["route", "del", "10.95.0.0/16", "metric", "0"]);
    becomes(
        "10.95.0.1",
        "nexthop via 10.81.2.2 dev right weight 128 nexthop via 10.81.2.3 dev right weight 128",
    );
    ip(&["-6", "route", "add", "2001:db8:1::/48", "via", "fd81:2::2"]);
    becomes("2001:db8:1::5", "via fd81:2::2 dev right");
    // A table that changes at once, and an apply in the middle.
    let lines: String = (0..2000)
        .map(|n| format!("route add 11.{}.{}.0/24 via 10.81.2.2\n", n / 250, n % 250))
        .collect();
    let batch = file("routes.batch", &lines);
    let run = |what: &str| {
        bed.router
            .output("ip", &["-batch", what])
            .expect("ip does it")
    };
    run(batch.to_str().expect("UTF-8"));
    bed.configure(&format!("table = \"own\"\nprefixes = 6000\n{INTERFACES}"));
    let applied = bed.weir(&["apply", bed.config.to_str().expect("UTF-8")]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    becomes("11.7.249.1", "11.7.249.0/24 via 10.81.2.2");
    becomes("11.0.0.1", "11.0.0.0/24 via 10.81.2.2");
    // Of IPv4 nobody tells that routes went with their address.
    ip(&["address", "del", "10.81.2.1/24", "dev", "r1"]);
    let until = Instant::now() + Duration::from_secs(30);
    while bed.routed(&["list"]).contains("11.") {
        let told = || std::fs::read_to_string(&said).unwrap_or_default();
        assert!(Instant::now() < until, "routes stay: {}", told());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(following);
    assert!(
        bed.routed(&["list"]).contains("2001:db8:1::/48"),
        "the router goes on with what it has"
    );
}

/// Packets follow one of two equally good ways while the route to them is put in, replaced and taken out.
/// Packets under way at once: fewer than the rings of a veth and the buffer of a socket hold.
const IN_FLIGHT: u64 = 100;

#[test]
fn no_packet_is_lost_while_routes_change() {
    if !root("live_route") {
        return;
    }
    let seconds = if std::env::var_os("WEIR_LONG").is_some() {
        60
    } else {
        3
    };
    let keys = format!(
        "table = \"own\"\nprefixes = 100000\nroutes = [\"10.95.0.0/16 via 10.81.2.2\"]\n{INTERFACES}"
    );
    let bed = Bed::new("changes", &keys);
    bed.right
        .ip(&["address", "add", "10.95.0.1/32", "dev", "lo"])
        .expect("address");
    assert!(bed.arrives("10.95.0.1"));
    let receiver = bed
        .right
        .run(|| UdpSocket::bind("10.95.0.1:7"))
        .expect("namespace")
        .expect("binds");
    receiver
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a time");
    let sender = bed
        .left
        .run(|| UdpSocket::bind("10.81.1.2:0"))
        .expect("namespace")
        .expect("binds");
    let stop = AtomicBool::new(false);
    let gateway = |last: u8| Hop {
        address: Some(IpAddr::from([10, 81, 2, last])),
        interface: 1,
        ..Hop::special(weir_bpf::abi::router::hop::GATEWAY)
    };
    let ways = [
        vec![(gateway(2), 1)],
        vec![(gateway(3), 1)],
        vec![(gateway(2), 1), (gateway(3), 1)],
    ];
    let prefixes = [
        ([10, 95, 0, 0], 24),
        ([10, 95, 0, 1], 32),
        ([10, 95, 0, 0], 17),
        ([10, 94, 0, 0], 15),
    ];
    // Both are known before they are used.
    for last in [2, 3] {
        bed.routed(&[
            "add",
            &format!("10.98.{last}.0/24"),
            "via",
            &format!("10.81.2.{last}"),
        ]);
    }
    let got = AtomicU64::new(0);
    let (sent, changes) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut buffer = [0; 64];
            loop {
                match receiver.recv(&mut buffer) {
                    Ok(_) => {
                        got.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) if stop.load(Ordering::Relaxed) => break,
                    Err(_) => {}
                }
            }
        });
        let sending = scope.spawn(|| {
            let mut sent = 0u64;
            while !stop.load(Ordering::Relaxed) {
                // A receiver that gets no CPU must not look like a router that loses packets.
                if sent - got.load(Ordering::Relaxed) >= IN_FLIGHT {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                sender
                    .send_to(&sent.to_ne_bytes(), "10.95.0.1:7")
                    .expect("sends");
                sent += 1;
                if sent.is_multiple_of(20) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            sent
        });
        let changes = bed.router.run(|| {
            let mut router = Router::open(&bed.edge, None).expect("opens");
            let start = Instant::now();
            let mut changes = 0u32;
            while start.elapsed() < Duration::from_secs(seconds) {
                let (address, len) = prefixes[changes as usize % prefixes.len()];
                let prefix = Prefix::around(IpAddr::from(address), len);
                if changes % 3 == 2 {
                    router.remove(prefix, None).expect("removed");
                } else {
                    let way = Way {
                        hops: ways[changes as usize % 7 % ways.len()].clone(),
                    };
                    router.put(&[(prefix, way, 0)]).expect("put in");
                }
                changes += 1;
                let due = start + Duration::from_micros(u64::from(changes) * 900);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            changes
        });
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join().expect("sends");
        receiving.join().expect("receives");
        (sent, changes.expect("namespace"))
    });
    let got = got.into_inner();
    println!("{changes} changes in {seconds} s, {sent} packets sent, {got} received");
    assert!(changes > 100 && sent > 1000);
    assert_eq!(got, sent, "{}", bed.ledger());
}
