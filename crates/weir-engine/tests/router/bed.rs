//! A router in a namespace and another one that has the far ends of its ports, where packets are sent and seen.
//!
//! ```text
//! far: f0 ===== p0 :router   far: f1 ===== p1 :router   ...
//! ```
//!
//! Invariant: nothing sends but the test and, because of it, the router.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_kernel::{Frames, KernelObject, Link, NetNs, PacketSocket, XdpMode, iface};

use super::packets::{MOST, Packet, last_packets, number_of};
use super::world::{PORTS, World, colons, device, port_mac, port_number};

/// Packets sent before the far ends are looked at.
const AT_ONCE: usize = 48;
/// Bytes that every wire takes.
const SHORTEST: usize = 1280;
/// How long nothing comes before all has come, and how long is waited for it.
const QUIET: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(3);

/// A router and its surroundings.
pub(crate) struct Bed {
    /// Where the router is.
    pub(crate) router: Arc<NetNs>,
    _far: NetNs,
    sockets: Vec<PacketSocket>,
    /// At the far ends: a frame that XDP transmits arrives only where there is a program.
    _passing: Vec<Link>,
}

/// A frame that came out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) port: usize,
    pub(crate) frame: Vec<u8>,
}

/// What came of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    /// By packet: what came out because of it.
    pub(crate) seen: Vec<Vec<Seen>>,
    /// Frames that belong to no packet, the router's own questions among them.
    pub(crate) others: Vec<Seen>,
    /// Packets that were sent behind all others.
    ends: usize,
}

impl Bed {
    pub(crate) fn build(world: &World) -> Bed {
        let router = Arc::new(NetNs::create("weir-router").expect("namespace"));
        let far = NetNs::create("weir-around").expect("namespace");
        for which in ["all", "default"] {
            let name = format!("net.ipv6.conf.{which}.disable_ipv6");
            far.sysctl(&name, "1").expect("IPv6 off");
        }
        for (name, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv6.conf.default.forwarding", "1"),
            ("net.ipv6.conf.default.addr_gen_mode", "1"),
            ("net.ipv6.conf.default.accept_ra", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
            ("net.ipv6.auto_flowlabels", "0"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
            // weir sends no redirects; hosts that need them are on one link with the next router.
            ("net.ipv4.conf.all.send_redirects", "0"),
            ("net.ipv4.conf.default.send_redirects", "0"),
            ("net.ipv4.conf.all.accept_redirects", "0"),
            ("net.ipv6.conf.default.accept_redirects", "0"),
            ("net.ipv4.icmp_ratelimit", "0"),
            ("net.ipv4.icmp_ratemask", "0"),
            ("net.ipv6.icmp.ratelimit", "0"),
            ("net.ipv6.icmp.ratemask", "200"),
            ("net.ipv4.tcp_challenge_ack_limit", "2147483647"),
        ] {
            router.sysctl(name, value).unwrap_or_else(|e| panic!("{e}"));
        }
        let mut lines = String::new();
        for n in 0..PORTS {
            let (near, distant) = (device(n), format!("f{n}"));
            let line = format!(
                "link add {near} index {} address {} type veth peer name {distant} netns {}\n",
                port_number(n),
                colons(port_mac(n)),
                far.name()
            );
            lines += &line;
        }
        lines += &world.batch();
        batch(&router, &lines);
        for n in 0..PORTS {
            let distant = format!("f{n}");
            far.ip(&["link", "set", &distant, "mtu", "2000", "up"])
                .expect("up");
            // Frames have their tags in them.
            // Who does not answer is given up at once, so that nothing comes late.
            for name in [
                format!("net.ipv4.neigh.{}.mcast_solicit", device(n)),
                format!("net.ipv4.neigh.{}.ucast_solicit", device(n)),
                format!("net.ipv6.neigh.{}.mcast_solicit", device(n)),
                format!("net.ipv6.neigh.{}.ucast_solicit", device(n)),
            ] {
                router.sysctl(&name, "0").unwrap_or_else(|e| panic!("{e}"));
            }
            for (ns, name, words) in [
                (&far, distant, ["txvlan", "off"]),
                (&*router, device(n), ["txvlan", "off"]),
            ] {
                ns.output("ethtool", &["-K", &name, words[0], words[1]])
                    .expect("a feature");
            }
        }
        let elf = weir_bpf::baseline("xdp_pass").expect("compiled");
        let pass = KernelObject::open(elf).expect("opens");
        let pass = pass.load("xdp_pass").expect("loads");
        let passing = far.run(|| {
            let attach = |n| pass.attach_xdp(iface::index_of(&format!("f{n}"))?, XdpMode::Native);
            (0..PORTS).map(attach).collect::<Result<Vec<_>, _>>()
        });
        let sockets = far.run(|| {
            let open = |n| PacketSocket::open(&format!("f{n}"));
            (0..PORTS).map(open).collect::<Result<Vec<_>, _>>()
        });
        let sockets = sockets.expect("namespace").expect("sockets");
        Bed {
            router,
            _far: far,
            sockets,
            _passing: passing.expect("namespace").expect("attached"),
        }
    }

    /// Adds to what the router knows.
    pub(crate) fn change(&self, lines: &str) {
        batch(&self.router, lines);
    }

    /// Sends all packets and tells what came out.
    pub(crate) fn pass(&self, world: &World, packets: &[Packet]) -> Passed {
        let mut passed = Passed {
            seen: vec![Vec::new(); packets.len()],
            others: Vec::new(),
            ends: 0,
        };
        let mut frames = Frames::new();
        for part in packets.chunks(AT_ONCE) {
            for packet in part.iter().filter(|p| !p.frame.is_empty()) {
                let sent = self.sockets[packet.port].send(&packet.frame);
                // A frame that is too long for the port's wire is lost on it, on either side.
                let is_lost = packet.frame.len() > 14 + SHORTEST;
                let length = packet.frame.len();
                assert!(sent.is_ok() || is_lost, "{length} bytes: {sent:?}");
            }
            self.collect(world, &mut frames, &mut passed);
            // Errors are limited by a clock that goes in steps.
            std::thread::sleep(Duration::from_millis(4));
        }
        // What is sent last goes every way there is: behind it nothing is under way any more.
        for packet in &last_packets() {
            let sent = self.sockets[packet.port].send(&packet.frame);
            sent.unwrap_or_else(|e| panic!("{e}"));
        }
        let start = Instant::now();
        let mut last = start;
        let is_over = |passed: &Passed, last: Instant| {
            let all = passed.ends == PORTS * PORTS || start.elapsed() > PATIENCE;
            all && last.elapsed() > QUIET
        };
        while !is_over(&passed, last) {
            if self.collect(world, &mut frames, &mut passed) > 0 {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for socket in &self.sockets {
            assert_eq!(socket.missed().expect("told"), 0, "frames were missed");
        }
        passed
    }

    fn collect(&self, world: &World, frames: &mut Frames, passed: &mut Passed) -> usize {
        let mut total = 0;
        for (port, socket) in self.sockets.iter().enumerate() {
            while socket.receive(frames).expect("received") > 0 {
                for (frame, _) in frames.iter() {
                    total += 1;
                    let seen = Seen {
                        port,
                        frame: frame.to_vec(),
                    };
                    let number = number_of(world, frame).map_or(0, usize::from);
                    match passed.seen.get_mut(number.wrapping_sub(1)) {
                        Some(place) => place.push(seen),
                        None if number > MOST => passed.ends += 1,
                        None => passed.others.push(seen),
                    }
                }
            }
        }
        total
    }
}

/// Runs lines of `ip`.
fn batch(ns: &NetNs, lines: &str) {
    let path: PathBuf = std::env::temp_dir().join(format!("{}.batch", ns.name()));
    fs::write(&path, lines).expect("a file");
    let done = ns.ip(&["-batch", &path.to_string_lossy()]);
    let _ = fs::remove_file(&path);
    done.unwrap_or_else(|e| panic!("{e}\n{lines}"));
}
