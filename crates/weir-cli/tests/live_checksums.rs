//! Checksums on live traffic, judged by the receiving kernels: with the last hop's transmit offload off their InCsumErrors
//! count every packet that weir got wrong. Each kind of rewrite, with the senders' offloads on (unfinished checksums reach
//! weir) and off, for TCP and UDP, IPv4 and IPv6; on XDP, and on tc on receive and on transmit, where the senders' segmentation
//! offload stays on and weir sees packets of up to 64 KiB.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::live_bed::{Bed, Run, matched, root};

const SERVER: [&str; 2] = ["10.0.2.2", "fd00:2::2"];
/// What clients call the server in the address rewrite.
const ALIAS: [&str; 2] = ["10.0.3.9", "fd00:3::9"];
const PATIENCE: Duration = Duration::from_secs(5);
/// Several windows of full segments.
const TCP_BYTES: usize = 2_000_000;

/// A policy and how clients use it.
struct Rewrite {
    name: &'static str,
    policy: &'static str,
    addresses: [&'static str; 2],
    tcp_port: u16,
    udp_port: u16,
    /// What the server gets in place of `HELLO`.
    arrives: &'static [u8; 5],
}

const REWRITES: [Rewrite; 5] = [
    Rewrite {
        name: "port",
        policy: "t-to: in box0 tcp-dport 8080 mod tcp-dport 80\nt-from: in box1 tcp-sport 80 mod tcp-sport 8080\n\
                 u-to: in box0 udp-dport 5300 mod udp-dport 53\nu-from: in box1 udp-sport 53 mod udp-sport 5300\n",
        addresses: SERVER,
        tcp_port: 8080,
        udp_port: 5300,
        arrives: b"HELLO",
    },
    Rewrite {
        name: "address",
        policy: "t4-to: in box0 ip-daddr 10.0.3.9 tcp-dport mod ip-daddr 10.0.2.2 mod ip-saddr 10.0.1.77\n\
                 t4-from: in box1 ip-daddr 10.0.1.77 tcp-sport mod ip-daddr 10.0.1.2 mod ip-saddr 10.0.3.9\n\
                 u4-to: in box0 ip-daddr 10.0.3.9 udp-dport mod ip-daddr 10.0.2.2 mod ip-saddr 10.0.1.77\n\
                 u4-from: in box1 ip-daddr 10.0.1.77 udp-sport mod ip-daddr 10.0.1.2 mod ip-saddr 10.0.3.9\n\
                 t6-to: in box0 ip6-daddr fd00:3::9 tcp-dport mod ip6-daddr fd00:2::2 mod ip6-saddr fd00:1::77\n\
                 t6-from: in box1 ip6-daddr fd00:1::77 tcp-sport mod ip6-daddr fd00:1::2 mod ip6-saddr fd00:3::9\n\
                 u6-to: in box0 ip6-daddr fd00:3::9 udp-dport mod ip6-daddr fd00:2::2 mod ip6-saddr fd00:1::77\n\
                 u6-from: in box1 ip6-daddr fd00:1::77 udp-sport mod ip6-daddr fd00:1::2 mod ip6-saddr fd00:3::9\n",
        addresses: ALIAS,
        tcp_port: 80,
        udp_port: 53,
        arrives: b"HELLO",
    },
    Rewrite {
        // On handshakes and, where segments carry data that may not move, on those.
        name: "option strip",
        policy: "syn: tcp-syn strip tcp-opt 4\ndata: ! tcp-syn tcp-opt-timestamp strip tcp-opt-timestamp\n\
                 ttl: udp-dport 53 net-proto ip4 mod ip-ttl 9\n",
        addresses: SERVER,
        tcp_port: 80,
        udp_port: 53,
        arrives: b"HELLO",
    },
    Rewrite {
        name: "option add",
        policy: "syn: tcp-syn add tcp-opt 254 x0102\ndata: ! tcp-syn add tcp-opt 253 x0304\n\
                 dscp: udp-dport 53 net-proto ip4 mod ip-dscp 10\n",
        addresses: SERVER,
        tcp_port: 80,
        udp_port: 53,
        arrives: b"HELLO",
    },
    Rewrite {
        name: "payload",
        policy: "tcp: in box0 tcp-payload == x48454c4c4f mod tcp-payload x68656c6c6f\n\
                 udp: in box0 udp-payload == x48454c4c4f mod udp-payload[1] x656c6c6f mod udp-payload x68\n",
        addresses: SERVER,
        tcp_port: 80,
        udp_port: 53,
        arrives: b"hello",
    },
];

/// Where weir is in the box.
#[derive(Clone, Copy, Debug)]
enum AttachPoint {
    /// As `weir run` chooses for a veth: unfinished checksums are told by the checksum itself.
    Xdp,
    /// With `--checksums complete`, the cure that `weir run` names where all senders finish their checksums: told by the checksum, one complete
    /// packet in 65,536 is taken for unfinished, and these tests send tens of thousands.
    XdpComplete,
    /// On receive.
    Tc,
    /// On receive, through a filter.
    Clsact,
    /// On transmit, forwarded packets only: every rule names `out`, and `in` from where it was received.
    Egress,
}

#[test]
fn rewrites_are_right_with_sender_offloads_on() {
    if root("rewrites_are_right_with_sender_offloads_on") {
        every_rewrite(&Bed::build("weirl-on"), AttachPoint::Xdp);
    }
}

#[test]
fn rewrites_are_right_with_sender_offloads_off() {
    if root("rewrites_are_right_with_sender_offloads_off") {
        every_rewrite(&without_offloads("weirl-off"), AttachPoint::XdpComplete);
    }
}

#[test]
fn rewrites_on_tc_are_right_with_sender_offloads_on() {
    if root("rewrites_on_tc_are_right_with_sender_offloads_on") {
        let bed = Bed::build("weirl-ton");
        let seen = gso_seen(&bed);
        every_rewrite(&bed, AttachPoint::Tc);
        assert!(
            gso_seen(&bed) > seen,
            "no GSO packet crossed the box: the test shows nothing"
        );
    }
}

#[test]
fn rewrites_on_tc_are_right_with_sender_offloads_off() {
    if root("rewrites_on_tc_are_right_with_sender_offloads_off") {
        every_rewrite(&without_offloads("weirl-toff"), AttachPoint::Tc);
    }
}

#[test]
fn rewrites_in_a_clsact_filter_are_right() {
    if root("rewrites_in_a_clsact_filter_are_right") {
        every_rewrite(&Bed::build("weirl-cls"), AttachPoint::Clsact);
    }
}

#[test]
fn rewrites_on_transmit_are_right() {
    if root("rewrites_on_transmit_are_right") {
        let bed = Bed::build("weirl-out");
        // Routing is done with the packet as received.
        for (to, via) in [
            ("10.0.3.9", "10.0.2.2"),
            ("fd00:3::9", "fd00:2::2"),
            ("10.0.1.77", "10.0.1.2"),
            ("fd00:1::77", "fd00:1::2"),
        ] {
            bed.middle
                .ip(&["route", "add", to, "via", via])
                .expect("route");
        }
        every_rewrite(&bed, AttachPoint::Egress);
    }
}

fn without_offloads(prefix: &str) -> Bed {
    let bed = Bed::build(prefix);
    bed.client.offloads_off("cl0", &["tx"]).expect("offload");
    bed.server.offloads_off("sv0", &["tx"]).expect("offload");
    bed
}

/// Bytes beyond a full segment for each packet that the box received: above 0, senders' segments came uncut.
fn gso_seen(bed: &Bed) -> u64 {
    bed.middle
        .run(|| {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("readable");
            let line = text.lines().find(|l| l.trim_start().starts_with("box0:"));
            let numbers: Vec<u64> = line
                .expect("box0 exists")
                .split_whitespace()
                .skip(1)
                .map(|n| n.parse().expect("a number"))
                .collect();
            numbers[0].saturating_sub(numbers[1] * 1514)
        })
        .expect("namespace")
}

/// The control: a wrong mode makes wrong checksums, and this judge sees them.
#[test]
fn the_judge_sees_wrong_checksums() {
    if !root("the_judge_sees_wrong_checksums") {
        return;
    }
    let bed = Bed::build("weirl-judge");
    serve(&bed);
    settle(&bed);
    let ports = &REWRITES[0];
    let run = Run::start(
        &bed.middle,
        ports.policy,
        &["box0", "box1"],
        &["--hook", "xdp", "--checksums", "complete"],
    );
    let answered = udp(&bed, ports, ports.addresses[0]).is_ok();
    run.stop();
    assert!(
        !answered && bed.checksum_errors() > 0,
        "{answered} {}",
        bed.checksum_errors()
    );
}

fn every_rewrite(bed: &Bed, place: AttachPoint) {
    let flags: &[&str] = match place {
        AttachPoint::Xdp => &["--hook", "xdp"],
        AttachPoint::XdpComplete => &["--hook", "xdp", "--checksums", "complete"],
        AttachPoint::Tc => &["--hook", "tc"],
        AttachPoint::Clsact => &["--hook", "clsact"],
        AttachPoint::Egress => &["--egress"],
    };
    serve(bed);
    settle(bed);
    for rewrite in &REWRITES {
        let before = bed.checksum_errors();
        let mut policy = rewrite.policy.to_owned();
        if matches!(place, AttachPoint::Egress) {
            policy = policy
                .replace("in box0", "in box0 out box1")
                .replace("in box1", "in box1 out box0");
            let lines = policy.lines().map(|line| match line.split_once(':') {
                Some((name, rest)) if !rest.contains(" out ") => {
                    format!("{name}: in {{ box0, box1 }} out {{ box0, box1 }} {rest}\n")
                }
                _ => format!("{line}\n"),
            });
            policy = lines.collect();
        }
        let run = Run::start(&bed.middle, &policy, &["box0", "box1"], flags);
        let mut failed = Vec::new();
        for address in rewrite.addresses {
            for (protocol, exchange) in [
                ("TCP", tcp(bed, rewrite, address)),
                ("UDP", udp(bed, rewrite, address)),
            ] {
                if let Err(error) = exchange {
                    failed.push(format!("{protocol} to {address}: {error}"));
                }
            }
        }
        let report = run.stop();
        let errors = bed.checksum_errors() - before;
        assert!(
            failed.is_empty() && errors == 0,
            "{}: {failed:?}, {errors} checksum errors; {report}",
            rewrite.name
        );
        for rule in rewrite.policy.lines().filter_map(|l| l.split(':').next()) {
            assert!(
                matched(&report, rule.trim()) > 0,
                "{}: rule {rule}: {report}",
                rewrite.name
            );
        }
        for (reason, _) in report["reasons"].as_object().expect("reasons") {
            // What an option that may not move, or a full segment, is noted as.
            let known =
                rewrite.name == "option add" && matches!(reason.as_str(), "no_room" | "too_big");
            assert!(known, "{}: {reason}: {report}", rewrite.name);
        }
    }
}

/// Echo over TCP port 80 and UDP port 53; threads end with the test process.
fn serve(bed: &Bed) {
    let bound = bed
        .server
        .run(|| (TcpListener::bind("[::]:80"), UdpSocket::bind("[::]:53")))
        .expect("namespace");
    let (listener, socket) = (bound.0.expect("bind"), bound.1.expect("bind"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || echo(stream));
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..n], from);
        }
    });
}

fn echo(stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    io::copy(&mut &stream, &mut &stream)?;
    stream.shutdown(Shutdown::Write)
}

/// Waits until both families work: a new bed's IPv6 needs a moment.
fn settle(bed: &Bed) {
    let end = Instant::now() + Duration::from_secs(10);
    for address in SERVER {
        let to = SocketAddr::new(address.parse().expect("an address"), 80);
        while bed
            .client
            .run(|| TcpStream::connect_timeout(&to, Duration::from_millis(500)))
            .expect("namespace")
            .is_err()
        {
            assert!(Instant::now() < end, "no way to {address} without weir");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn tcp(bed: &Bed, rewrite: &Rewrite, address: &str) -> io::Result<()> {
    let to = SocketAddr::new(address.parse().map_err(io::Error::other)?, rewrite.tcp_port);
    let stream = bed
        .client
        .run(|| TcpStream::connect_timeout(&to, PATIENCE))
        .map_err(io::Error::other)??;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let sent = message(TCP_BYTES);
    let mut back = Vec::with_capacity(sent.len());
    thread::scope(|scope| -> io::Result<()> {
        let writer = scope.spawn(|| -> io::Result<()> {
            let mut writing = &stream;
            // The greeting is a segment of its own, with room for a whole payload match.
            writing.write_all(&sent[..5])?;
            thread::sleep(Duration::from_millis(20));
            writing.write_all(&sent[5..])?;
            stream.shutdown(Shutdown::Write)
        });
        (&stream).read_to_end(&mut back)?;
        writer
            .join()
            .map_err(|_| io::Error::other("the writer panicked"))?
    })?;
    same(&back, &sent, rewrite)
}

fn udp(bed: &Bed, rewrite: &Rewrite, address: &str) -> io::Result<()> {
    let to = SocketAddr::new(address.parse().map_err(io::Error::other)?, rewrite.udp_port);
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = bed
        .client
        .run(|| UdpSocket::bind(any))
        .map_err(io::Error::other)??;
    socket.connect(to)?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut back = [0; 2048];
    for len in [5, 6, 63, 700, 1201, 1400] {
        let sent = message(len);
        socket.send(&sent)?;
        let n = socket.recv(&mut back)?;
        same(&back[..n], &sent, rewrite)?;
    }
    Ok(())
}

/// `HELLO` and bytes without a pattern.
fn message(len: usize) -> Vec<u8> {
    let mut bytes = b"HELLO".to_vec();
    let mut state = 0x9e37_79b9u32;
    while bytes.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.push((state >> 24) as u8);
    }
    bytes
}

fn same(back: &[u8], sent: &[u8], rewrite: &Rewrite) -> io::Result<()> {
    let mut expected = sent.to_vec();
    expected[..5].copy_from_slice(rewrite.arrives);
    if back == expected {
        return Ok(());
    }
    let at = back.iter().zip(&expected).position(|(a, b)| a != b);
    Err(io::Error::other(format!(
        "{} bytes came back of {}, first difference {at:?}",
        back.len(),
        sent.len()
    )))
}
