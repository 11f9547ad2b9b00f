//! Fragments that come in another order than they were sent, through a live `weir run`: later fragments wait for their first one, so
//! that the host they are for puts the datagram together and answers.

use std::thread;
use std::time::{Duration, Instant};

use crate::live_bed::{Bed, Run, look_at, root, stderr, weir};
use crate::live_path::{SERVER, TCP, UDP, octets, serve, settle};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde_json::Value;
use weir_kernel::{FrameSocket, pins};
use weir_packet::build::Frame;

const PORTS: [&str; 2] = ["box0", "box1"];
const PATIENCE: Duration = Duration::from_secs(5);
/// A host that is frames only.
const HERE: [&str; 2] = ["10.0.1.77", "fd00:1::77"];
const POLICY: &str = "nat: add-stateful in box0 net-proto ip4 map ip-saddr 10.9.9.1 accept\n\
    out: add-stateful in box0 net-proto ip6 udp-dport accept\n\
    nd:  eth-type arp accept\n\
    nd6: icmp6-type in { 133-136 } accept\n\
    rest: all drop\n";
/// Bytes of a fragment.
const PIECE: usize = 64;

struct Wire {
    socket: FrameSocket,
    to_box0: [u8; 6],
}

impl Wire {
    fn open(bed: &Bed) -> Wire {
        for address in HERE {
            let mac = "02:00:00:00:00:09";
            let args = [
                "neigh",
                "add",
                address,
                "lladdr",
                mac,
                "dev",
                "box0",
                "nud",
                "permanent",
            ];
            bed.middle.ip(&args).expect("neighbour");
        }
        Wire {
            socket: FrameSocket::open(&bed.client, "cl0", 1 << 22, Duration::from_millis(200))
                .expect("socket"),
            to_box0: look_at(&bed.middle, "box0").0.mac,
        }
    }

    /// Sends the pieces of a datagram in this order; whether the server echoes all of it.
    fn comes_back(&self, six: bool, id: u16, pieces: usize, order: &[usize]) -> bool {
        self.echoes(six, id, pieces, order, PATIENCE)
    }

    /// The same where no echo is expected: a silence decides. A machine at work may be silent that long too, so an echo that is
    /// expected is waited for.
    fn is_lost(&self, six: bool, id: u16, pieces: usize, order: &[usize]) -> bool {
        !self.echoes(six, id, pieces, order, Duration::ZERO)
    }

    fn echoes(
        &self,
        six: bool,
        id: u16,
        pieces: usize,
        order: &[usize],
        patience: Duration,
    ) -> bool {
        let text: Vec<u8> = (0..pieces * PIECE - 8 - 5)
            .map(|n| (n as u8) ^ id as u8)
            .collect();
        // A thread that moves between two pieces leaves them to two CPUs, in any order.
        let sent = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut cpu = CpuSet::new();
                cpu.set(sched_getcpu());
                sched_setaffinity(None, &cpu).expect("one CPU");
                self.send(six, id, &text, order);
            });
            sender.join()
        });
        sent.expect("sent");
        let mut buffer = [0; 4096];
        let end = Instant::now() + patience;
        loop {
            match self.socket.receive(&mut buffer).expect("receives") {
                Some(frame) if frame.ends_with(&text) && frame[..6] == [2, 0, 0, 0, 0, 9] => {
                    return true;
                }
                None if Instant::now() >= end => return false,
                _ => {}
            }
        }
    }

    fn send(&self, six: bool, id: u16, text: &[u8], order: &[usize]) {
        for &n in order {
            let mut bytes = piece(six, id, text, n).build();
            bytes[..6].copy_from_slice(&self.to_box0);
            let end = Instant::now() + PATIENCE;
            while let Err(error) = self.socket.send(&bytes) {
                assert!(Instant::now() < end, "{error}");
                thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

/// One piece of a UDP datagram to the server.
fn piece(six: bool, id: u16, text: &[u8], n: usize) -> Frame {
    let network = |six: bool| {
        if six {
            Frame::new().ip6(six_octets(HERE[1]), six_octets(SERVER[1]))
        } else {
            Frame::new().ip4(octets(HERE[0]), octets(SERVER[0])).id(id)
        }
    };
    let whole = network(six).udp(7000 + id, UDP).payload(text).build();
    let l4 = &whole[if six { 54 } else { 34 }..];
    let bytes = &l4[n * PIECE..l4.len().min((n + 1) * PIECE)];
    let more = l4.len() > (n + 1) * PIECE;
    network(six)
        .fragment((n * PIECE / 8) as u16, more)
        .protocol(17)
        .payload(bytes)
}

fn six_octets(text: &str) -> [u8; 16] {
    let address: std::net::Ipv6Addr = text.parse().expect("an address");
    address.octets()
}

fn number(report: &Value, reason: &str) -> u64 {
    report["reasons"][reason].as_u64().unwrap_or(0)
}

#[test]
fn fragments_in_any_order_arrive_on_tc() {
    fragments_in_any_order_arrive("weirfo", &["--hook", "tc"]);
}

/// XDP leaves them to a copy of the program on tc.
#[test]
fn fragments_in_any_order_arrive_on_xdp() {
    fragments_in_any_order_arrive("weirfx", &["--hook", "xdp"]);
}

/// Behind generic XDP there is no copy for fragments.
#[test]
fn later_fragments_before_their_first_are_lost_on_generic_xdp() {
    if !root("later_fragments_before_their_first_are_lost_on_generic_xdp") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let bed = Bed::build("weirfg");
    serve(&bed.server, TCP, UDP);
    settle(&bed.client);
    let wire = Wire::open(&bed);
    let run = Run::start(&bed.middle, POLICY, &PORTS, &["--generic"]);
    assert!(wire.comes_back(false, 20, 2, &[0, 1]));
    assert!(wire.is_lost(false, 21, 2, &[1, 0]));
    let report = run.stop();
    assert_eq!(number(&report, "frag_before_first"), 1, "{report}");
    assert_eq!(number(&report, "frag_held"), 0, "{report}");
}

fn fragments_in_any_order_arrive(names: &str, options: &[&str]) {
    if !root(names) {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let bed = Bed::build(names);
    serve(&bed.server, TCP, UDP);
    settle(&bed.client);
    let wire = Wire::open(&bed);
    let orders: &[(usize, &[usize], u64)] = &[
        (2, &[0, 1], 0),
        (2, &[1, 0], 1),
        (3, &[1, 2, 0], 2),
        (3, &[2, 1, 0], 2),
        (3, &[1, 0, 2], 1),
        (5, &[4, 3, 2, 1, 0], 4),
        // One that comes twice, and the first one twice.
        (2, &[1, 1, 0], 2),
        (2, &[1, 0, 0], 1),
    ];
    let run = Run::start(&bed.middle, POLICY, &PORTS, options);
    // The first packet of a server to a host finds its neighbours.
    wire.comes_back(true, 500, 1, &[0]);
    let (mut held, mut failed) = (0, Vec::new());
    for six in [false, true] {
        for (k, &(pieces, order, early)) in orders.iter().enumerate() {
            // IPv6 fragments of the builder all have one identification.
            if six && k != 1 {
                continue;
            }
            let id = (20 + k) as u16;
            if !wire.comes_back(six, id, pieces, order) {
                failed.push((six, order));
            }
            held += early;
        }
    }
    // Four of a datagram are held, a fifth is lost.
    assert!(wire.is_lost(false, 90, 6, &[5, 4, 3, 2, 1, 0]));
    let report = run.stop();
    assert!(failed.is_empty(), "{failed:?}: {report}");
    assert_eq!(number(&report, "frag_held"), held + 4, "{report}");
    assert_eq!(number(&report, "frag_before_first"), 1, "{report}");
    // The last rule drops what hosts say by themselves, as multicast reports; a fragment that it dropped would have failed above.
    let others = number(&report, "rule_drop");
    assert_eq!(report["packets"]["drop"], held + 5 + others, "{report}");
    let count = |key: &str| report["packets"][key].as_u64().unwrap_or(0);
    assert_eq!(
        count("received"),
        count("pass") + count("drop"),
        "each packet is judged once: {report}"
    );
}

/// A rule that makes fragments of whole packets cannot come later, where XDP and tc share the work.
#[test]
fn rules_that_make_fragments_are_refused_later_on_xdp() {
    if !root("rules_that_make_fragments_are_refused_later_on_xdp") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let bed = Bed::build("weirfl");
    let run = Run::start(&bed.middle, POLICY, &PORTS, &["--hook", "xdp"]);
    let refused = weir(&bed.middle, &["rule", "add", "udp-dport 9 mod ip-flags 1"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("start it with --hook tc"),
        "{}",
        stderr(&refused)
    );
    run.stop();
}
