//! `weir run` on tc: what it attaches and leaves, both directions, and what is counted.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::live_bed;
use crate::live_bed::{Bed, Run, look_at, matched, pinned, root, stderr, weir};
use rustix::process::Signal;
use weir_kernel::{NetNs, bed, pins};

const POLICY: &str = "discard: udp-dport 9 drop log \"gone\"\necho: udp-dport 7 accept\n";
const HOOKS: [&str; 2] = ["tc", "clsact"];

/// What tc has on an interface: qdiscs, filters of both directions, tcx programs.
fn tc_on(ns: &NetNs, name: &str) -> String {
    let mut text = String::new();
    for args in [
        ["qdisc", "show", "dev", name].as_slice(),
        &["filter", "show", "dev", name, "ingress"],
        &["filter", "show", "dev", name, "egress"],
    ] {
        let output = ns.command("tc").expect("namespace").args(args).output();
        text += &String::from_utf8_lossy(&output.expect("tc runs").stdout);
    }
    let links = ns
        .run(|| pins::list().expect("readable"))
        .expect("namespace");
    for link in links
        .iter()
        .filter(|link| link.name.as_deref() == Some(name))
    {
        text += &format!("{:?} {:?}\n", link.place, link.prog_id.is_some());
    }
    text
}

fn send(from: &NetNs, to: (&str, u16), count: usize) {
    from.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("bind");
        for _ in 0..count {
            // What is dropped on transmit is an error of the call.
            let _ = socket.send_to(b"weir", to);
        }
    })
    .expect("namespace");
}

#[test]
fn stopping_leaves_everything_as_it_was() {
    if !root("stopping_leaves_everything_as_it_was") {
        return;
    }
    let bed = Bed::build("weirt-stop");
    let look = || {
        (
            tc_on(&bed.middle, "box0"),
            look_at(&bed.middle, "box0"),
            look_at(&bed.client, "cl0"),
        )
    };
    let before = look();
    for hook in HOOKS {
        for more in [&[][..], &["--egress"]] {
            let flags = [&["--hook", hook], more].concat();
            let run = Run::start(&bed.middle, POLICY, &["box0"], &flags);
            assert_ne!(look().0, before.0, "{flags:?}: attached");
            assert_eq!(
                look().2,
                before.2,
                "{flags:?}: the other end keeps its offloads"
            );
            assert!(!run.words().contains("segmentation"), "{}", run.words());
            send(&bed.client, ("10.0.1.1", 9), 3);
            let report = run.stop();
            assert_eq!(matched(&report, "discard"), 3, "{flags:?}: {report}");
            assert_eq!(look(), before, "{flags:?}");
            assert_eq!(pinned(&bed.middle), 0, "{flags:?}");
        }
    }
}

#[test]
fn a_qdisc_that_was_there_stays() {
    if !root("a_qdisc_that_was_there_stays") {
        return;
    }
    let bed = Bed::build("weirt-there");
    bed.middle
        .output("tc", &["qdisc", "add", "dev", "box0", "clsact"])
        .expect("clsact");
    let before = tc_on(&bed.middle, "box0");
    assert!(before.contains("clsact"), "{before}");
    let flags = ["--hook", "clsact", "--egress"];
    Run::start(&bed.middle, POLICY, &["box0"], &flags).stop();
    assert_eq!(tc_on(&bed.middle, "box0"), before);
    let run = Run::start(&bed.middle, POLICY, &["box0"], &flags);
    run.signal(Signal::KILL);
    drop(run.wait());
    assert!(weir(&bed.middle, &["down"]).status.success());
    assert_eq!(tc_on(&bed.middle, "box0"), before);
}

/// A finished checksum that happens to equal the sum of its pseudo-header: XDP can only take it for unfinished, tc does not.
#[test]
fn a_complete_packet_is_never_taken_for_unfinished() {
    if !root("a_complete_packet_is_never_taken_for_unfinished") {
        return;
    }
    let bed = Bed::build("weirt-exact");
    let socket = bed
        .middle
        .run(|| UdpSocket::bind("10.0.1.1:10"))
        .expect("namespace")
        .expect("bind");
    let mac = |ns: &NetNs, name| look_at(ns, name).0.mac;
    let frame = lookalike(mac(&bed.middle, "box0"), mac(&bed.client, "cl0"));
    for (hook, arrives) in [("tc", true), ("clsact", true), ("xdp", false)] {
        let policy = "port: udp-dport 9 mod udp-dport 10\n";
        let run = Run::start(&bed.middle, policy, &["box0"], &["--hook", hook]);
        send_frame(&bed.client, "cl0", &frame);
        // What is expected may take a busy machine a while.
        let wait = Duration::from_millis(if arrives { 5_000 } else { 700 });
        socket.set_read_timeout(Some(wait)).expect("timeout");
        let received = socket.recv(&mut [0; 16]).is_ok();
        let report = run.stop();
        assert_eq!(matched(&report, "port"), 1, "{hook}: {report}");
        assert_eq!(received, arrives, "{hook}");
    }
}

/// A UDP datagram from 10.0.1.2 to 10.0.1.1 port 9 whose two bytes of payload make its checksum the sum of the pseudo-header.
fn lookalike(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let fold = |mut sum: u32| {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    };
    let words = |bytes: &[u8]| -> u32 {
        bytes
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
            .sum()
    };
    let addresses = [10, 0, 1, 2, 10, 0, 1, 1];
    let pseudo = fold(words(&addresses) + 17 + 10);
    let mut udp = [0x30, 0x39, 0, 9, 0, 10, 0, 0, 0, 0];
    // The whole sums up to 0xffff: payload = 0xffff - checksum - pseudo-header - header.
    let rest = fold(2 * pseudo + words(&udp));
    udp[6..8].copy_from_slice(&(pseudo as u16).to_be_bytes());
    udp[8..10].copy_from_slice(&((0xffff - rest) as u16).to_be_bytes());
    let mut ip = [
        0x45, 0, 0, 30, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 1, 2, 10, 0, 1, 1,
    ];
    let header = !fold(words(&ip)) as u16;
    ip[10..12].copy_from_slice(&header.to_be_bytes());
    [&to[..], &from, &[8, 0], &ip, &udp].concat()
}

/// Sends one frame as it is.
fn send_frame(ns: &NetNs, name: &str, frame: &[u8]) {
    let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind(('{name}', 0))\ns.send(bytes.fromhex('{hex}'))\n"
    );
    ns.output("python3", &["-c", &script]).expect("python3");
}

#[test]
fn a_killed_run_stays_whole_until_down() {
    if !root("a_killed_run_stays_whole_until_down") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let bed = Bed::build("weirt-kill");
    let before = tc_on(&bed.middle, "box0");
    let socket = bed
        .middle
        .run(|| UdpSocket::bind("10.0.1.1:9"))
        .expect("namespace")
        .expect("bind");
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .expect("timeout");
    for hook in HOOKS {
        let run = Run::start(
            &bed.middle,
            POLICY,
            &["box0"],
            &["--hook", hook, "--egress"],
        );
        run.signal(Signal::KILL);
        drop(run.wait());
        assert_eq!(pinned(&bed.middle), 2, "{hook}: one for each direction");
        send(&bed.client, ("10.0.1.1", 9), 3);
        assert!(socket.recv(&mut [0; 16]).is_err(), "{hook}: still dropped");
        let down = weir(&bed.middle, &["down"]);
        assert!(down.status.success(), "{}", stderr(&down));
        let said = String::from_utf8_lossy(&down.stdout).into_owned();
        assert_eq!(said.matches("box0: removed program").count(), 2, "{said}");
        assert_eq!(tc_on(&bed.middle, "box0"), before, "{hook}");
        send(&bed.client, ("10.0.1.1", 9), 1);
        assert_eq!(socket.recv(&mut [0; 16]).expect("arrives"), 4, "{hook}");
    }
}

#[test]
fn a_host_firewall_sees_both_directions() {
    if !root("a_host_firewall_sees_both_directions") {
        return;
    }
    let bed = Bed::build("weirt-out");
    // `in` is not known of what the host sends itself, so no rule that names it matches that, negated or not.
    let policy = "own: out cl0 udp-dport 9 drop\nreply: in cl0 udp-sport 7 accept\nnot-in: in != cl0 udp-dport 7 accept\n\
                  sent: out cl0 udp-dport 7 accept\nnot-out: out != cl0 accept\n";
    // Bound once: a child that another test starts holds a copy of a closed socket until it executes, and its address with it.
    let echo = bed
        .server
        .run(|| UdpSocket::bind("10.0.2.2:7"))
        .expect("namespace")
        .expect("bind");
    echo.set_read_timeout(Some(Duration::from_secs(5)))
        .expect("timeout");
    for hook in HOOKS {
        let run = Run::start(&bed.client, policy, &["cl0"], &["--hook", hook, "--egress"]);
        send(&bed.client, ("10.0.2.2", 9), 4);
        send(&bed.client, ("10.0.2.2", 7), 1);
        let mut buffer = [0; 16];
        let (n, from) = echo.recv_from(&mut buffer).expect("arrives");
        echo.send_to(&buffer[..n], from).expect("sent");
        std::thread::sleep(Duration::from_millis(200));
        let report = run.stop();
        let counts =
            ["own", "reply", "not-in", "sent", "not-out"].map(|rule| matched(&report, rule));
        assert_eq!(counts, [4, 1, 0, 1, 0], "{hook}: {report}");
    }
}

#[test]
fn forwarded_packets_know_both_ends() {
    if !root("forwarded_packets_know_both_ends") {
        return;
    }
    let bed = Bed::build("weirt-both");
    let policy =
        "both: in box0 out box1 udp-dport 9 drop\nback: in box1 out box0 udp-dport 9 accept\n";
    let run = Run::start(&bed.middle, policy, &["box0", "box1"], &["--egress"]);
    send(&bed.client, ("10.0.2.2", 9), 2);
    send(&bed.server, ("10.0.1.2", 9), 3);
    std::thread::sleep(Duration::from_millis(200));
    let report = run.stop();
    assert_eq!(
        ["both", "back"].map(|rule| matched(&report, rule)),
        [2, 3],
        "{report}"
    );
    assert_eq!(report["reasons"]["rule_drop"], 2, "{report}");
}

/// A GSO packet counts as what it is cut into: as many packets as the receiver's side would see, each with its headers.
#[test]
fn gso_packets_count_as_their_segments() {
    if !root("gso_packets_count_as_their_segments") {
        return;
    }
    const BYTES: u64 = 4_000_000;
    let bed = Bed::build("weirt-gso");
    let listener = bed
        .server
        .run(|| TcpListener::bind("10.0.2.2:80"))
        .expect("namespace")
        .expect("bind");
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        let mut total = 0;
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            total += n as u64;
        }
        total
    });
    let run = Run::start(
        &bed.middle,
        "data: in box0 tcp-dport 80 accept\n",
        &["box0", "box1"],
        &[],
    );
    let mut stream = bed
        .client
        .run(|| TcpStream::connect("10.0.2.2:80"))
        .expect("namespace")
        .expect("connects");
    stream.write_all(&vec![7; BYTES as usize]).expect("written");
    drop(stream);
    assert_eq!(reader.join().expect("reads"), BYTES);
    let report = run.stop();
    let rule = &report["rules"][0];
    let (packets, bytes) = (
        rule["packets"].as_u64().expect("a number"),
        rule["bytes"].as_u64().expect("a number"),
    );
    // Segments of at most 1,448 bytes, each behind 66 of headers (54 without options, 78 at most for these). A busy machine sends some
    // twice: weir counts them as often as the sender does.
    let again = bed::counter(&bed.client, "Tcp", "RetransSegs")
        .expect("readable")
        .expect("exists");
    assert!(packets >= BYTES / 1448, "{again} {report}");
    let least = BYTES + packets * 54;
    let most = BYTES + again * 1448 + packets * 78;
    assert!((least..=most).contains(&bytes), "{again} {report}");
}

#[test]
fn what_a_hook_does_not_have_is_refused() {
    if !root("what_a_hook_does_not_have_is_refused") {
        return;
    }
    let bed = Bed::build("weirt-no");
    let policy = live_bed::file("no.weir", POLICY);
    let policy = policy.to_str().expect("text");
    for (flags, words) in [
        (&["--hook", "xdp", "--egress"][..], "--egress"),
        (&["--generic", "--egress"], "--egress"),
        (&["--hook", "tc", "--generic"], "--generic"),
        (&["--hook", "tc", "--checksums", "complete"], "--checksums"),
        (&["--hook", "clsact", "--vlan-in-frame"], "--vlan-in-frame"),
    ] {
        let args = [&["run", policy, "-i", "box0"], flags].concat();
        let output = weir(&bed.middle, &args);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{flags:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(words),
            "{flags:?}: {}",
            stderr(&output)
        );
    }
}
