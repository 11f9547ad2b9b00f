//! Tunnels live: weir with a VXLAN device of the kernel, with itself and with Open vSwitch. Segments of 64 KiB cross whole, checksums are right
//! at a receiver whose last hop finishes them, and what is forged is a counted drop.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use crate::tunnel_bed;
use crate::tunnel_bed::{
    FORWARDS, HostId, IDENTIFIER, Outer, Ovs, Sends, Site, TENANT, TUNNEL, Weir, eventually,
    inject, inner_frame, kernel_vxlan, mac, packet, ping, root, say, sites, tcpdump, transfer,
    transfers, watched,
};
use weir_bpf::abi::{self, exact_kind, tunnel_kind};
use weir_engine::network::probe;
use weir_kernel::{NetNs, bed};
use weir_packet::Reason;

/// Kinds over the families of the underlay; all combinations in the long form.
fn kinds() -> Vec<(u8, &'static str, bool)> {
    let all = [
        (tunnel_kind::VXLAN, "vxlan"),
        (tunnel_kind::GENEVE, "geneve"),
        (tunnel_kind::GRE, "gre"),
        (tunnel_kind::KERNEL, "kernel-vxlan"),
    ];
    let long = std::env::var("WEIR_LONG").as_deref() == Ok("1");
    let combinations = all.iter().enumerate().flat_map(|(n, (kind, name))| {
        let families = [false, true].into_iter();
        families
            .filter(move |v6| long || *v6 == (n % 2 == 1))
            .map(|v6| (*kind, *name, v6))
    });
    combinations.collect()
}

/// Bytes of a transfer.
const BYTES: usize = 2 << 20;

/// Two edges of weir.
fn pair(kind: u8, v6: bool) -> (Weir, Weir) {
    let (a, b) = sites(1600);
    let sends = Sends::new(kind, v6);
    (Weir::start(a, sends), Weir::start(b, sends))
}

/// Has what arrives at a workload finished and cut on its last hop, so that it verifies all of it.
fn finish_last_hop(site: &Site) {
    site.ns
        .offloads_off("w0", &["tx", "tso", "gso"])
        .expect("switched off");
}

/// No packet had a wrong checksum.
fn checksums_are_right(ns: &NetNs) {
    for (group, name) in [
        ("Tcp", "InCsumErrors"),
        ("Udp", "InCsumErrors"),
        ("Icmp", "InCsumErrors"),
        ("Ip", "InHdrErrors"),
    ] {
        let errors = bed::counter(ns, group, name).expect("readable");
        assert_eq!(errors, Some(0), "{group}{name} in {}", ns.name());
    }
}

fn no_drops(weir: &Weir) {
    for program in ["workload", "tunnel", "underlay"] {
        let mut reasons = weir.reasons(program);
        // What a workload's kernel said before there was a generation to follow.
        reasons.retain(|(reason, _)| program != "workload" || *reason != Reason::NoLink);
        assert_eq!(reasons, [], "{program}");
    }
}

#[test]
fn with_a_vxlan_device_of_the_kernel() {
    if !root("with_a_vxlan_device_of_the_kernel") {
        return;
    }
    for v6 in [false, true] {
        let (a, b) = sites(1600);
        kernel_vxlan(&b, v6);
        let weir = Weir::start(a, Sends::new(tunnel_kind::VXLAN, v6));
        ping(&weir.site.work, b.place.inner(false));
        ping(&b.ns, weir.site.place.inner(true));
        let (_, seen) = watched(&b.ns, "ul", || {
            transfers((&weir.site.work, weir.site.place), (&b.ns, b.place), BYTES);
        });
        say(&format!(
            "kernel VXLAN, IPv6 {v6}: {} frames to it, {} over 60,000 bytes",
            seen.count, seen.huge
        ));
        assert!(
            seen.huge > 0,
            "the longest frame has {} bytes",
            seen.longest
        );
        no_drops(&weir);
        // What the kernel cuts and sums itself behind the tunnel is right, too.
        finish_last_hop(&weir.site);
        b.ns.offloads_off("vx", &["rx"]).expect("switched off");
        transfers((&weir.site.work, weir.site.place), (&b.ns, b.place), BYTES);
        checksums_are_right(&weir.site.work);
        checksums_are_right(&b.ns);
    }
}

#[test]
fn every_kind_between_two_edges() {
    if !root("every_kind_between_two_edges") {
        return;
    }
    for (kind, name, v6) in kinds() {
        let (a, b) = pair(kind, v6);
        ping(&a.site.work, b.site.place.inner(false));
        ping(&b.site.work, a.site.place.inner(true));
        let (_, seen) = watched(&b.site.work, "eth0", || {
            transfers(
                (&a.site.work, a.site.place),
                (&b.site.work, b.site.place),
                BYTES,
            );
        });
        say(&format!(
            "{name}, IPv6 {v6}: {} frames at the workload, {} over 60,000 bytes",
            seen.count, seen.huge
        ));
        assert!(
            seen.huge > 0,
            "{name}: the longest frame has {} bytes",
            seen.longest
        );
        for site in [&a, &b] {
            finish_last_hop(&site.site);
        }
        transfers(
            (&a.site.work, a.site.place),
            (&b.site.work, b.site.place),
            BYTES,
        );
        for weir in [&a, &b] {
            checksums_are_right(&weir.site.work);
            no_drops(weir);
            let asks = weir.site.place == FORWARDS && kind != tunnel_kind::KERNEL;
            assert_eq!(weir.knows_the_way(), asks, "{name}, IPv6 {v6}");
        }
    }
}

#[test]
fn with_open_vswitch_in_user_space() {
    if !root("with_open_vswitch_in_user_space") {
        return;
    }
    // GRE over IPv6 has another name and header there.
    for (kind, name, v6) in [
        (tunnel_kind::VXLAN, "vxlan", true),
        (tunnel_kind::GENEVE, "geneve", false),
        (tunnel_kind::GRE, "gre", false),
    ] {
        let (a, b) = sites(1600);
        let Some(ovs) = Ovs::start(b, name, v6) else {
            return;
        };
        // It reads frames of the wire only: the kernel cuts and finishes weir's on the way out.
        a.ns.offloads_off("ul", &["tx", "tso", "gso"])
            .expect("switched off");
        let weir = Weir::start(a, Sends::new(kind, v6));
        finish_last_hop(&weir.site);
        let there = ovs.site.place;
        assert!(
            eventually(|| answers(&weir.site.work, there.inner(false))),
            "{name}: no way to Open vSwitch; {:?} {:?}",
            weir.reasons("tunnel"),
            weir.reasons("underlay")
        );
        ping(&weir.site.work, there.inner(true));
        ping(&ovs.site.ns, weir.site.place.inner(false));
        let (_, seen) = watched(&weir.site.ns, "w0", || {
            transfers(
                (&weir.site.work, weir.site.place),
                (&ovs.site.ns, there),
                BYTES / 4,
            );
        });
        say(&format!(
            "Open vSwitch, {name}: {} frames of the workload, the longest of {} bytes",
            seen.count, seen.longest
        ));
        assert!(seen.longest > 10_000, "{name}: {}", seen.longest);
        checksums_are_right(&weir.site.work);
        checksums_are_right(&ovs.site.ns);
    }
}

/// Whether somebody answers at an address: a TCP connection is refused, not lost.
fn answers(from: &NetNs, to: IpAddr) -> bool {
    let at = std::net::SocketAddr::new(to, 9);
    let said = from.run(|| std::net::TcpStream::connect_timeout(&at, Duration::from_millis(300)));
    match said.expect("namespace") {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionRefused,
    }
}

/// Frames as they are on a wire are decoded to their end, with checksums, by somebody else's decoder.
#[test]
fn tcpdump_decodes_every_tunnel() {
    if !root("tcpdump_decodes_every_tunnel") {
        return;
    }
    for (kind, name, v6) in kinds() {
        let (a, b) = pair(kind, v6);
        a.site
            .ns
            .offloads_off("ul", &["tx", "tso", "gso"])
            .expect("switched off");
        let (_, seen) = watched(&b.site.ns, "ul", || {
            ping(&a.site.work, b.site.place.inner(false));
            for inner6 in [false, true] {
                let to = b.site.place.inner(inner6);
                transfer(&a.site.work, &b.site.work, to, 200_000).expect("crosses");
            }
        });
        let word = match kind {
            tunnel_kind::GENEVE => "Geneve",
            tunnel_kind::GRE => "GREv0",
            _ => "VXLAN",
        };
        // Neighbours of the underlay talk there, too.
        let frames: Vec<Vec<u8>> = seen.frames.into_iter().filter(|f| is_tunnel(f)).collect();
        let Some(said) = tcpdump(&frames) else {
            return;
        };
        assert!(frames.len() > 100);
        assert_eq!(said.matches(word).count(), frames.len(), "{name}: {said}");
        let complaints: Vec<String> = said
            .lines()
            // A UDP checksum of 0 over IPv6 is on purpose (RFC 6935); this decoder does not know that yet.
            .map(
                |line| match v6 && word != "GREv0" && kind != tunnel_kind::KERNEL {
                    true => line.replace("[bad udp cksum 0x0000 ->", ""),
                    false => line.to_owned(),
                },
            )
            .filter(|line| {
                [
                    "bad cksum",
                    "bad udp cksum",
                    "[bad",
                    "incorrect",
                    "truncated",
                    "[|",
                    "invalid",
                ]
                .iter()
                .any(|word| line.contains(word))
            })
            .collect();
        assert!(complaints.is_empty(), "{name}, IPv6 {v6}: {complaints:#?}");
    }
}

/// Whether a frame of the underlay is UDP or GRE.
fn is_tunnel(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([8, 0]) => matches!(frame.get(23), Some(17 | 47)),
        Some([0x86, 0xdd]) => matches!(frame.get(20), Some(17 | 47)),
        _ => false,
    }
}

/// What a crafted packet comes to.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Dropped(Reason),
    /// Is left to the stack.
    Passed,
}

#[test]
fn what_is_forged_is_a_counted_drop() {
    if !root("what_is_forged_is_a_counted_drop") {
        return;
    }
    let (a, b) = sites(1600);
    let accepts = 1 << tunnel_kind::VXLAN | 1 << tunnel_kind::GENEVE;
    let mut weir = Weir::start(
        a,
        Sends {
            accepts,
            ..Sends::new(tunnel_kind::VXLAN, false)
        },
    );
    // An identifier that is here, and that the other site has no part in; and addresses of IPv6.
    weir.half.exact.push(abi::Exact {
        value: TUNNEL,
        scope: weir_network::exact::scope(exact_kind::TUNNEL, 0, 0),
        key: [200, 0],
        extra: 0,
    });
    for (kind, at) in [
        (exact_kind::LOCAL, HostId(1)),
        (exact_kind::PEER, HostId(2)),
    ] {
        weir.half.exact.push(abi::Exact {
            value: 1,
            scope: weir_network::exact::scope(kind, 0, 0),
            key: tunnel_bed::key(at.underlay(true)),
            extra: 0,
        });
    }
    weir.apply();
    let good = Outer {
        kind: tunnel_kind::VXLAN,
        src: HostId(2).underlay(false),
        dst: HostId(1).underlay(false),
        identifier: IDENTIFIER,
        options: Vec::new(),
        ecn: 0,
        flags: 8,
    };
    let good6 = Outer {
        src: HostId(2).underlay(true),
        dst: HostId(1).underlay(true),
        ..good.clone()
    };
    let geneve = |options: &[u8]| Outer {
        kind: tunnel_kind::GENEVE,
        options: options.to_vec(),
        ..good.clone()
    };
    let tenant = |number: u32| {
        let mut option = Vec::from(abi::tunnel::CLASS.to_be_bytes());
        option.extend([abi::tunnel::TENANT, 1]);
        option.extend(number.to_be_bytes());
        option
    };
    let stranger = [0xff, 0xf1, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut critical = stranger;
    critical[2] |= 0x80;
    let dropped = Fate::Dropped;
    let cases: Vec<(&str, Outer, Fate)> = vec![
        ("right", good.clone(), Fate::Arrives),
        ("right, over IPv6", good6.clone(), Fate::Arrives),
        (
            "Geneve without options",
            geneve(&[]),
            dropped(Reason::TunnelNoTenant),
        ),
        (
            "Geneve with the tenant",
            geneve(&tenant(TENANT)),
            Fate::Arrives,
        ),
        (
            "Geneve with options of others",
            geneve(&stranger),
            dropped(Reason::TunnelNoTenant),
        ),
        (
            "Geneve with options of others and the tenant",
            geneve(&[&stranger[..], &tenant(TENANT)].concat()),
            Fate::Arrives,
        ),
        (
            "another tenant",
            geneve(&tenant(TENANT + 1)),
            dropped(Reason::TunnelTenant),
        ),
        (
            "a critical option",
            geneve(&critical),
            dropped(Reason::TunnelBad),
        ),
        (
            "an option past the end",
            geneve(&[0xff, 0xf1, 3, 9]),
            dropped(Reason::TunnelBad),
        ),
        (
            "an unknown identifier",
            Outer {
                identifier: IDENTIFIER + 1,
                ..good.clone()
            },
            dropped(Reason::TunnelUnknown),
        ),
        (
            "an identifier without a part",
            Outer {
                identifier: 200,
                ..good.clone()
            },
            dropped(Reason::TunnelMember),
        ),
        (
            "a stranger",
            Outer {
                src: HostId(77).underlay(false),
                ..good.clone()
            },
            dropped(Reason::UnknownVtep),
        ),
        (
            "a stranger of IPv6",
            Outer {
                src: HostId(77).underlay(true),
                ..good6.clone()
            },
            dropped(Reason::UnknownVtep),
        ),
        (
            "a stranger who probes",
            Outer {
                src: HostId(77).underlay(false),
                identifier: abi::probe::IDENTIFIER,
                ..good.clone()
            },
            dropped(Reason::UnknownVtep),
        ),
        (
            "a probe that is none",
            Outer {
                identifier: abi::probe::IDENTIFIER,
                ..good.clone()
            },
            dropped(Reason::TunnelBad),
        ),
        (
            "a kind that is not taken",
            Outer {
                kind: tunnel_kind::GRE,
                ..good.clone()
            },
            dropped(Reason::TunnelKind),
        ),
        (
            "VXLAN without an identifier",
            Outer {
                flags: 0,
                ..good.clone()
            },
            dropped(Reason::TunnelBad),
        ),
        (
            "to another address",
            Outer {
                dst: HostId(9).underlay(false),
                ..good.clone()
            },
            Fate::Passed,
        ),
    ];
    let to = mac(&weir.site.ns, "ul");
    for (n, (what, outer, fate)) in cases.iter().enumerate() {
        let mark = 0x4000 + n as u16;
        let before = weir.stats("underlay");
        let inner = inner_frame(0, mark);
        let (counted, seen) = watched(&weir.site.work, "eth0", || {
            inject(&b.ns, &[packet(outer, to, &inner)]);
            eventually(|| weir.stats("underlay").received > before.received)
        });
        assert!(counted, "{what}: not counted");
        let after = weir.stats("underlay");
        let arrived = seen
            .frames
            .iter()
            .filter(|f| f.get(18..20) == Some(&mark.to_be_bytes()))
            .count();
        let moved: Vec<(Reason, u64)> = Reason::ALL
            .iter()
            .map(|r| {
                (
                    *r,
                    after.reason[r.index() as usize] - before.reason[r.index() as usize],
                )
            })
            .filter(|(_, n)| *n > 0)
            .collect();
        let of = |verdict: usize| after.verdict[verdict] - before.verdict[verdict];
        match fate {
            Fate::Arrives => {
                assert_eq!((arrived, &moved[..], of(4)), (1, &[][..], 1), "{what}");
                assert!(
                    seen.frames.contains(&inner),
                    "{what}: not the frame that was sent"
                );
            }
            Fate::Dropped(reason) => {
                assert_eq!(
                    (arrived, &moved[..], of(1)),
                    (0, &[(*reason, 1)][..], 1),
                    "{what}"
                );
            }
            Fate::Passed => {
                assert_eq!((arrived, &moved[..]), (0, &[][..]), "{what}");
                // Kernels find their neighbours meanwhile.
                assert!(of(2) >= 1, "{what}: passed {}", of(2));
            }
        }
    }
    // By interface as by program. Workloads' kernels send what is theirs to drop, so only reasons of tunnels are looked at.
    let stats = weir.stats("underlay");
    for reason in cases.iter().filter_map(|(_, _, fate)| match fate {
        Fate::Dropped(reason) => Some(reason.index()),
        _ => None,
    }) {
        let drops = weir.set.drops().expect("readable");
        let of_reason = drops.iter().filter(|(drop, _)| drop.reason == reason);
        let sum: u64 = of_reason.map(|(_, n)| n).sum();
        assert_eq!(sum, stats.reason[reason as usize], "reason {reason}");
    }
}

/// RFC 6040, section 4.2: every combination.
#[test]
fn congestion_marks_cross() {
    if !root("congestion_marks_cross") {
        return;
    }
    let (a, b) = sites(1600);
    let weir = Weir::start(a, Sends::new(tunnel_kind::VXLAN, false));
    let to = mac(&weir.site.ns, "ul");
    // Rows: inside Not-ECT, ECT(1), ECT(0), CE. Columns: the same outside.
    let table: [[Option<u8>; 4]; 4] = [
        [Some(0), Some(0), Some(0), None],
        [Some(1), Some(1), Some(1), Some(3)],
        [Some(2), Some(1), Some(2), Some(3)],
        [Some(3), Some(3), Some(3), Some(3)],
    ];
    for (inside, row) in table.iter().enumerate() {
        for (outside, want) in row.iter().enumerate() {
            let mark = 0x5000 + (inside * 4 + outside) as u16;
            let before = weir.stats("underlay").received;
            let (_, seen) = watched(&weir.site.work, "eth0", || {
                let outer = Outer {
                    kind: tunnel_kind::VXLAN,
                    src: HostId(2).underlay(false),
                    dst: HostId(1).underlay(false),
                    identifier: IDENTIFIER,
                    options: Vec::new(),
                    ecn: outside as u8,
                    flags: 8,
                };
                inject(
                    &b.ns,
                    &[packet(&outer, to, &inner_frame(inside as u8, mark))],
                );
                eventually(|| weir.stats("underlay").received > before)
            });
            let frame = seen
                .frames
                .iter()
                .find(|f| f.get(18..20) == Some(&mark.to_be_bytes()));
            let want = want.map(|ecn| inner_frame(ecn, mark));
            assert_eq!(frame, want.as_ref(), "{inside} inside, {outside} outside");
        }
    }
    assert_eq!(weir.reasons("underlay"), [(Reason::TunnelEcn, 1)]);
}

/// The way to the other edge carries less than workloads believe: they are told, and go on with less.
#[test]
fn senders_learn_the_mtu_of_the_tunnel() {
    if !root("senders_learn_the_mtu_of_the_tunnel") {
        return;
    }
    for finished in [false, true] {
        let (a, b) = sites(1500);
        let sends = Sends {
            mtu: 1500,
            ..Sends::new(tunnel_kind::GENEVE, false)
        };
        let (a, b) = (Weir::start(a, sends), Weir::start(b, sends));
        if finished {
            // The checksum of the error is verified by its receiver, and what it quotes had its own left to a device.
            finish_last_hop(&a.site);
            finish_last_hop(&b.site);
        }
        transfers(
            (&a.site.work, a.site.place),
            (&b.site.work, b.site.place),
            BYTES / 4,
        );
        // The other side is told as well, or by its peer's segment size before it sends anything large.
        let told = a.reasons("tunnel");
        assert!(
            matches!(told[..], [(Reason::Answered, n)] if n >= 2),
            "nobody was told: {told:?}"
        );
        for weir in [&a, &b] {
            checksums_are_right(&weir.site.work);
        }
        // 1,500 less 20 (IPv4), 8 (UDP), 16 (Geneve with an option) and 14 (Ethernet).
        for v6 in [false, true] {
            let to = b.site.place.inner(v6).to_string();
            let said = a.site.work.ip(&["route", "get", &to]).expect("a route");
            assert!(said.contains("mtu 1442"), "{said}");
        }
    }
}

/// Sends 20 datagrams of 1,000 bytes that the kernel is to cut out of one (UDP_SEGMENT, which the standard library does not know).
fn send_segments(from: &NetNs, to: IpAddr, port: u16) -> bool {
    let program = format!(
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(17, 103, 1000); s.sendto(b'x' * 20000, ('{to}', {port}))"
    );
    let mut command = from.command("python3").expect("a command");
    let Ok(said) = command.args(["-c", &program]).output() else {
        say("no python3 here: UDP_SEGMENT is skipped");
        return false;
    };
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    true
}

/// How many of 20 datagrams come.
fn received(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 2000];
    (0..20)
        .take_while(|_| socket.recv(&mut buffer).unwrap_or(0) == 1000)
        .count()
}

/// Large UDP packets cross whole by GRE. Out of a tunnel of UDP the kernel could not cut them: where its device would hand them over whole, they are
/// counted drops, and pass once it cuts them itself.
#[test]
fn udp_segments_cross() {
    if !root("udp_segments_cross") {
        return;
    }
    for kind in [tunnel_kind::GRE, tunnel_kind::GENEVE] {
        let (a, b) = pair(kind, false);
        let to = b.site.place.inner(false);
        ping(&a.site.work, to);
        let bound = b.site.work.run(|| UdpSocket::bind((to, 5001)));
        let receiver = bound.expect("namespace").expect("bound");
        let patience = Duration::from_millis(500);
        receiver.set_read_timeout(Some(patience)).expect("set");
        let (sent, seen) = watched(&b.site.ns, "ul", || send_segments(&a.site.work, to, 5001));
        if !sent {
            return;
        }
        assert!(seen.longest > 20_000, "{}", seen.longest);
        if kind == tunnel_kind::GRE {
            assert_eq!(received(&receiver), 20);
        } else {
            assert_eq!(received(&receiver), 0);
            assert_eq!(b.dropped(Reason::TunnelNested), 20);
            a.site
                .ns
                .offloads_off("ul", &["tx-udp-segmentation"])
                .expect("switched off");
            assert!(send_segments(&a.site.work, to, 5001));
            assert_eq!(received(&receiver), 20);
            assert_eq!(b.dropped(Reason::TunnelNested), 20);
        }
        no_drops(&a);
        finish_last_hop(&b.site);
        assert!(send_segments(&a.site.work, to, 5001));
        assert_eq!(received(&receiver), 20);
        checksums_are_right(&b.site.work);
    }
}

/// A workload's own tunnel: its packets cross in another; what would have to be cut twice is a counted drop.
#[test]
fn tunnels_in_tunnels() {
    if !root("tunnels_in_tunnels") {
        return;
    }
    let (a, b) = pair(tunnel_kind::VXLAN, false);
    for (site, other) in [(&a, &b), (&b, &a)] {
        let (local, remote) = (
            site.site.place.inner(false).to_string(),
            other.site.place.inner(false).to_string(),
        );
        site.site
            .work
            .ip(&[
                "link", "add", "vn", "type", "vxlan", "id", "9", "local", &local, "remote",
                &remote, "dstport", "4790", "dev", "eth0",
            ])
            .expect("a VXLAN device");
        let address = format!("10.9.0.{}/24", site.site.place.0);
        site.site
            .work
            .ip(&["address", "add", &address, "dev", "vn"])
            .expect("an address");
        site.site.work.ip(&["link", "set", "vn", "up"]).expect("up");
    }
    let to = "10.9.0.2".parse().expect("an address");
    ping(&a.site.work, to);
    no_drops(&a);
    if send_segments(&a.site.work, to, 5001) {
        assert_eq!(a.dropped(Reason::TunnelNested), 20);
    }
    // Cut before it is put into the inner tunnel, all of it crosses.
    a.site
        .work
        .offloads_off("vn", &["tso", "gso", "tx"])
        .expect("switched off");
    let before = a.stats("tunnel").verdict[1];
    transfer(&a.site.work, &b.site.work, to, BYTES / 8).expect("crosses");
    assert_eq!(a.stats("tunnel").verdict[1], before);
}

/// Probes are answered in the far data plane, whatever the kind; a silent edge is down after its time.
#[test]
fn probes_tell_whether_a_tunnel_carries() {
    if !root("probes_tell_whether_a_tunnel_carries") {
        return;
    }
    for (kind, name, v6) in kinds() {
        let (a, b) = pair(kind, v6);
        let remote = a.half.remotes[1];
        let ask = || {
            a.site
                .ns
                .run(|| probe::ask(&a.set, &remote))
                .expect("namespace")
                .expect("sent");
        };
        let heard = || probe::heard(&a.set, &remote).expect("readable");
        let patience = Duration::from_millis(300);
        assert!(
            !probe::judge(&a.set, &remote, patience).expect("judged"),
            "{name}: heard of nobody"
        );
        assert_eq!(heard().down, 1);
        ask();
        assert!(
            eventually(|| heard().answers == 1),
            "{name}, IPv6 {v6}: no answer; {:?} {:?} {:?}",
            b.reasons("underlay"),
            a.reasons("underlay"),
            heard()
        );
        assert!(
            probe::judge(&a.set, &remote, patience).expect("judged"),
            "{name}"
        );
        assert_eq!(heard().down, 0);
        let rtt = Duration::from_nanos(heard().rtt_ns);
        say(&format!("probe by {name}, IPv6 {v6}: {rtt:?}"));
        assert!(rtt < patience);
        let asked = probe::heard(&b.set, &b.half.remotes[1])
            .expect("readable")
            .asked;
        assert_eq!(asked, 1);
        // The way is cut.
        b.site.ns.ip(&["link", "set", "ul", "down"]).expect("down");
        assert!(
            eventually(|| {
                let _ = a.site.ns.run(|| probe::ask(&a.set, &remote));
                !probe::judge(&a.set, &remote, patience).expect("judged")
            }),
            "{name}: still up"
        );
        assert_eq!(heard().answers, 1);
    }
}
