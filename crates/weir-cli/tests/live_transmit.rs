//! Packets that a graph sends back by the veth they came in by, whose far end has GRO and no program: as most users have it. The kernel
//! leaves frames of XDP_TX lying there; what arrives is counted at the far end.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::live_bed::{file, root, stderr, weir};
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

/// A veth between two namespaces: `w0`, a port of an edge, and `c0`, its far end with GRO and without a program.
struct Bed {
    near: NetNs,
    far: NetNs,
    edge: String,
}

impl Bed {
    /// `functions`: the configuration behind the edge's only port.
    fn new(name: &str, functions: &str) -> Bed {
        let bed = Bed {
            near: NetNs::create(&format!("weir-tx-n-{name}")).expect("namespace"),
            far: NetNs::create(&format!("weir-tx-f-{name}")).expect("namespace"),
            edge: format!("tx-{name}-{}", std::process::id()),
        };
        for ns in [&bed.near, &bed.far] {
            for which in ["all", "default"] {
                ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
                    .expect("IPv6 off");
            }
        }
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&bed.near, "w0", &["10.81.0.1/24"]),
            end(&bed.far, "c0", &["10.81.0.2/24"]),
        )
        .expect("veth");
        bed.far
            .output("ethtool", &["-K", "c0", "gro", "on"])
            .expect("ethtool");
        let config = file(
            "transmit.toml",
            &format!(
                "edge = \"{}\"\n[[port]]\nname = \"w\"\ndevice = \"w0\"\n{functions}",
                bed.edge
            ),
        );
        bed.apply(&config);
        bed
    }

    fn apply(&self, config: &Path) {
        let config = config.to_str().expect("UTF-8");
        let applied = weir(&self.near, &["apply", config]);
        assert!(applied.status.success(), "{}", stderr(&applied));
    }

    /// What `weir status` says.
    fn status(&self) -> String {
        let told = weir(&self.near, &["status", "--edge", &self.edge]);
        assert!(told.status.success(), "{}", stderr(&told));
        String::from_utf8_lossy(&told.stdout).into_owned()
    }

    /// Frames that the far end's device received, once there are so many or after a while.
    fn arrived(&self, expected: u64) -> u64 {
        const WAIT: Duration = Duration::from_secs(30);
        let end = Instant::now() + WAIT;
        loop {
            let text = self
                .far
                .output("ip", &["-s", "-j", "link", "show", "c0"])
                .expect("ip");
            let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let packets = json[0]["stats64"]["rx"]["packets"].as_u64();
            let packets = packets.expect("a number");
            if packets >= expected || Instant::now() > end {
                return packets;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        weir(&self.near, &["down", "--edge", &self.edge]);
    }
}

#[test]
fn all_connections_pass_the_cookies_of_a_veth() {
    const CONNECTIONS: usize = 40;
    const PATIENCE: Duration = Duration::from_secs(3);
    if !root("all_connections_pass_the_cookies_of_a_veth") {
        return;
    }
    let bed = Bed::new(
        "cookies",
        "[[function]]\nname = \"shield\"\nkind = \"filter\"\nrules = [\"syncookie to-port 80\"]\n\
         [[link]]\nfrom = \"w\"\nto = \"shield\"\n",
    );
    bed.near
        .sysctl("net.ipv4.tcp_syncookies", "2")
        .expect("sysctl");
    let listener = bed
        .near
        .run(|| TcpListener::bind("10.81.0.1:80"))
        .expect("namespace")
        .expect("listens");
    let server: SocketAddr = "10.81.0.1:80".parse().expect("an address");
    let connected = bed
        .far
        .run(|| {
            let one = || TcpStream::connect_timeout(&server, PATIENCE).ok();
            let open: Vec<_> = (0..CONNECTIONS).map(|_| one()).collect();
            open.iter().flatten().count()
        })
        .expect("namespace");
    drop(listener);
    let status = bed.status();
    assert_eq!(connected, CONNECTIONS, "{status}");
}

#[test]
fn what_a_link_sends_back_arrives_at_a_far_end_without_a_program() {
    const FRAMES: u64 = 1000;
    if !root("what_a_link_sends_back_arrives_at_a_far_end_without_a_program") {
        return;
    }
    let bed = Bed::new("link", "[[link]]\nfrom = \"w\"\nto = \"tx\"\n");
    let before = bed.arrived(0);
    let sent = weir(
        &bed.far,
        &["generate", "-i", "c0", "--frames", "1000", "--flows", "50"],
    );
    assert!(sent.status.success(), "{}", stderr(&sent));
    let arrived = bed.arrived(before + FRAMES) - before;
    let status = bed.status();
    assert_eq!(arrived, FRAMES, "{status}");
}
