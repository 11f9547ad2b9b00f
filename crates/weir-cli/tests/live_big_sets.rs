//! A set of a million prefixes is loaded, and replaced under traffic in one switch: no packet is judged by half a list, and none is lost. Needs root.
//!
//! Load time and memory are printed, not asserted.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use crate::live_bed::{Run, file, root, stderr, weir};
use rustix::process::Signal;
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

/// Prefixes of a list.
const PREFIXES: u32 = 1_000_000;
/// Rounds of packets, one from each source, and the time between them.
const ROUNDS: u32 = 12_000;
const PAUSE: Duration = Duration::from_micros(500);

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 83, 0, 1);
/// In both lists, in the old one, in the new one, in none.
const SOURCES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(198, 18, 0, 1),
    Ipv4Addr::new(198, 18, 0, 2),
    Ipv4Addr::new(198, 18, 0, 3),
    LEFT,
];

/// A list as they are published: prefixes of 24 to 32 bits, most of them apart, and these addresses.
fn list(shift: u32, with: &[Ipv4Addr]) -> String {
    let mut out = String::with_capacity(20 * PREFIXES as usize);
    let blocks = (0..PREFIXES).map(|n| {
        let address = Ipv4Addr::from(0x1000_0000 + (n + shift) * 512);
        format!("{address}/{}\n", 24 + n % 9)
    });
    out.extend(blocks);
    out.extend(with.iter().map(|address| format!("{address}\n")));
    out
}

#[test]
fn a_million_prefixes_are_replaced_in_one_switch() {
    if !root("a_million_prefixes_are_replaced_in_one_switch") {
        return;
    }
    let left = NetNs::create("weirbs-l").expect("namespace");
    let right = NetNs::create("weirbs-r").expect("namespace");
    bed::veth(
        End {
            ns: &left,
            name: "left0",
            addresses: &[
                "10.83.0.1/24",
                "198.18.0.1/32",
                "198.18.0.2/32",
                "198.18.0.3/32",
            ],
        },
        End {
            ns: &right,
            name: "right0",
            addresses: &["10.83.0.2/24"],
        },
    )
    .expect("veth");
    right
        .ip(&["route", "add", "198.18.0.0/24", "dev", "right0"])
        .expect("ip route");
    let [always, before, after, _] = SOURCES;
    let path = file("list.txt", &list(0, &[always, before]));
    let policy = format!(
        "set bad = file \"{}\"\nudp-dport 9 ip-saddr in @bad drop\n",
        path.display()
    );
    let begun = Instant::now();
    let run = Run::start(&right, &policy, &["right0"], &[]);
    eprintln!(
        "a million prefixes: attached after {:?}, peak {} KiB",
        begun.elapsed(),
        run.peak_kib()
    );

    let receiver = right
        .run(|| UdpSocket::bind("10.83.0.2:9"))
        .expect("namespace")
        .expect("bound");
    rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 1 << 24).expect("sockopt");
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .expect("sockopt");
    let senders: Vec<UdpSocket> = SOURCES
        .iter()
        .map(|address| {
            left.run(|| UdpSocket::bind((*address, 0)))
                .expect("namespace")
                .expect("bound")
        })
        .collect();
    let mut received: [BTreeSet<u32>; 4] = Default::default();
    let took = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for round in 0..ROUNDS {
                for sender in &senders {
                    sender
                        .send_to(&round.to_be_bytes(), "10.83.0.2:9")
                        .expect("sent");
                }
                std::thread::sleep(PAUSE);
            }
        });
        let replacing = scope.spawn(|| {
            let text = list(PREFIXES / 100, &[always, after]);
            let new = path.with_extension("new");
            fs::write(&new, text).expect("written");
            fs::rename(&new, &path).expect("renamed");
            let begun = Instant::now();
            let loaded = weir(&right, &["rule", "load"]);
            assert!(loaded.status.success(), "{}", stderr(&loaded));
            begun.elapsed()
        });
        let mut buffer = [0; 4];
        while let Ok((4, from)) = receiver.recv_from(&mut buffer) {
            let round = u32::from_be_bytes(buffer);
            let source = SOURCES
                .iter()
                .position(|address| from.ip() == *address)
                .expect("a source");
            received[source].insert(round);
        }
        sending.join().expect("all sent");
        replacing.join().expect("replaced")
    });
    eprintln!(
        "a million prefixes: replaced in {took:?}, peak {} KiB",
        run.peak_kib()
    );
    let [always, before, after, never] = received;
    assert!(
        always.is_empty(),
        "{} packets of a source that is in both lists",
        always.len()
    );
    assert_eq!(never.len(), ROUNDS as usize, "no packet of others is lost");
    let first = *before.first().expect("the old list is gone");
    let last = *after.last().expect("the new list was not there at first");
    assert_eq!(
        before.len() as u32,
        ROUNDS - first,
        "from the switch on it passes"
    );
    assert_eq!(after.len() as u32, last + 1, "up to the switch it passes");
    // The two are sent one after the other.
    assert!(
        first == last || first == last + 1,
        "one switch: {first}, {last}"
    );
    run.signal(Signal::INT);
    let (status, _) = run.wait();
    assert!(status.success());
}
