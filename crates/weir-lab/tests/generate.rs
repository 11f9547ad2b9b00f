//! The generator on veth pairs: every frame is right to the checksum, every frame is counted, and what cannot be sent says why.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weir_kernel::bed::{self, End};
use weir_kernel::{FrameSocket, NetNs};
use weir_lab::generate::{self, Endpoints, GenerateError, Load, Pace, Protocol, Report, Traffic};
use weir_packet::build::Frame;
use weir_packet::checksum::{fold, pseudo_header4, pseudo_header6, sum};
use weir_packet::pcap::Writer;

static GO: AtomicBool = AtomicBool::new(false);

/// `near` and `far` joined in one namespace without addresses.
fn pair() -> Option<NetNs> {
    if !root() {
        return None;
    }
    let ns = NetNs::create("weir-gen").expect("namespace");
    for which in ["all", "default"] {
        ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
            .expect("IPv6 off");
    }
    join(&ns, "near", "far");
    Some(ns)
}

fn join(ns: &NetNs, a: &str, b: &str) {
    let end = |name| End {
        ns,
        name,
        addresses: &[],
    };
    bed::veth(end(a), end(b)).expect("veth");
}

/// Lets frames that arrive at `far` into its stack and reads them there.
fn listen(ns: &NetNs) -> FrameSocket {
    ns.output("ethtool", &["-K", "far", "gro", "on"])
        .expect("ethtool");
    FrameSocket::open(ns, "far", 1 << 24, Duration::from_millis(300)).expect("socket")
}

fn send(
    ns: &NetNs,
    load: &Load,
    pace: Pace,
    interface: &str,
    count_on: Option<&str>,
) -> Result<Report, GenerateError> {
    let place = Endpoints {
        interface,
        count_on,
        owned: false,
    };
    ns.run(|| generate::run(load, pace, place, &GO))
        .expect("namespace")
}

fn frames(n: u64) -> Pace {
    Pace {
        frames: Some(n),
        ..Pace::default()
    }
}

fn traffic(v6: bool, protocol: Protocol) -> Traffic {
    Traffic {
        protocol,
        ..Traffic::new(v6)
    }
}

/// What a receiver finds in a frame whose checksums it has verified: addresses and ports, and the number.
fn judge(frame: &[u8], v6: bool, protocol: Protocol) -> (Vec<u8>, u32) {
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let (l4, end, addresses) = if v6 {
        (54, 54 + word(18), 22..54)
    } else {
        assert_eq!(fold(sum(&frame[14..34])), 0xffff, "IPv4 header checksum");
        (34, 14 + word(16), 26..34)
    };
    let addresses = &frame[addresses];
    let (len, number) = ((end - l4) as u32, frame[if v6 { 20 } else { 23 }]);
    let pseudo = if v6 {
        let (from, to) = addresses.split_at(16);
        pseudo_header6(
            from.try_into().expect("16"),
            to.try_into().expect("16"),
            number,
            len,
        )
    } else if protocol == Protocol::Icmp {
        0
    } else {
        let (from, to) = addresses.split_at(4);
        pseudo_header4(
            from.try_into().expect("4"),
            to.try_into().expect("4"),
            number,
            len,
        )
    };
    assert_eq!(
        fold(pseudo + sum(&frame[l4..end])),
        0xffff,
        "L4 checksum: {frame:02x?}"
    );
    let (number, ports) = match protocol {
        Protocol::TcpSyn => (l4 + 4, l4..l4 + 4),
        Protocol::Udp => (l4 + 12, l4..l4 + 4),
        Protocol::Icmp => (l4 + 12, l4 + 4..l4 + 6),
    };
    let flow = [addresses, &frame[ports]].concat();
    let number = frame[number..number + 4].try_into().expect("4 bytes");
    (flow, u32::from_be_bytes(number))
}

#[test]
fn every_frame_is_right_and_has_its_number() {
    let Some(ns) = pair() else { return };
    let socket = listen(&ns);
    const N: usize = 200;
    for v6 in [false, true] {
        for (protocol, sizes) in [
            (Protocol::Udp, vec![]),
            (Protocol::Udp, vec![78, 79, 601, 1_514]),
            (Protocol::TcpSyn, vec![]),
            (Protocol::Icmp, vec![]),
            (Protocol::Icmp, vec![101, 1_000]),
        ] {
            let mut wanted = traffic(v6, protocol);
            wanted.flows = 40;
            wanted.sizes = sizes.clone();
            let load = Load::new(&wanted).expect("planned");
            let report = send(&ns, &load, frames(N as u64), "near", None).expect("sent");
            assert_eq!((report.sent, report.taken), (N as u64, Some(N as u64)));
            let mut flows = HashSet::new();
            let mut numbers = BTreeSet::new();
            let mut lengths = BTreeMap::new();
            let mut buffer = [0; 2_048];
            let end = Instant::now() + Duration::from_secs(2);
            while numbers.len() < N && Instant::now() < end {
                let Some(frame) = socket.receive(&mut buffer).expect("readable") else {
                    continue;
                };
                let (flow, number) = judge(frame, v6, protocol);
                flows.insert(flow);
                assert!(numbers.insert(number), "number {number} twice");
                *lengths.entry(frame.len()).or_insert(0) += 1;
            }
            assert!(
                numbers.into_iter().eq(0..N as u32),
                "{protocol:?}: not all numbers"
            );
            assert_eq!(flows.len(), 40, "{protocol:?}");
            let sizes = match sizes.as_slice() {
                [] => vec![load.longest()],
                sizes => sizes.to_vec(),
            };
            assert_eq!(lengths.keys().copied().collect::<Vec<_>>(), sizes);
            // In equal parts, more or less.
            assert!(
                lengths.values().all(|n| n * sizes.len() * 2 > N),
                "{lengths:?}"
            );
        }
    }
}

#[test]
fn all_frames_are_counted_and_none_is_lost_repeated_or_reordered() {
    let Some(ns) = pair() else { return };
    for (v6, protocol) in [
        (false, Protocol::Udp),
        (true, Protocol::Udp),
        (false, Protocol::TcpSyn),
        (true, Protocol::Icmp),
    ] {
        let mut wanted = traffic(v6, protocol);
        wanted.flows = 1_000;
        let load = Load::new(&wanted).expect("planned");
        let report = send(&ns, &load, frames(50_000), "near", Some("far")).expect("sent");
        assert_eq!((report.sent, report.taken), (50_000, Some(50_000)));
        let arrived = report.arrived.expect("counted");
        assert_eq!((arrived.frames, arrived.lost), (50_000, Some(0)));
        assert_eq!((arrived.repeated, arrived.reordered), (0, 0));
        assert_eq!(arrived.bytes, report.bytes);
        assert_eq!(
            arrived.delay_mean_ns.is_some(),
            protocol != Protocol::TcpSyn
        );
    }
    let shown = ns.ip(&["link", "show"]).expect("shown");
    assert!(!shown.contains("xdp"), "something is left behind: {shown}");
}

#[test]
fn frames_that_arrive_elsewhere_are_lost() {
    let Some(ns) = pair() else { return };
    let _socket = listen(&ns);
    join(&ns, "else", "where");
    let load = Load::new(&Traffic::new(false)).expect("planned");
    let report = send(&ns, &load, frames(1_000), "near", Some("where")).expect("sent");
    let arrived = report.arrived.expect("counted");
    assert_eq!((arrived.frames, arrived.lost), (0, Some(1_000)));
}

#[test]
fn a_rate_is_kept_and_time_ends_it() {
    let Some(ns) = pair() else { return };
    let pace = Pace {
        rate: Some(20_000),
        frames: None,
        lasting: Some(Duration::from_millis(400)),
    };
    let load = Load::new(&Traffic::new(false)).expect("planned");
    let report = send(&ns, &load, pace, "near", Some("far")).expect("sent");
    // Never more than is due; less only if the machine had no time for it.
    assert!((4_000..=8_001).contains(&report.sent), "{report:?}");
    assert!(report.seconds >= 0.4, "{report:?}");
    assert_eq!(report.arrived.and_then(|a| a.lost), Some(0));
    let unpaced = Pace { rate: None, ..pace };
    let report = send(&ns, &load, unpaced, "near", Some("far")).expect("sent");
    assert!(report.sent > 8_001, "{report:?}");
    assert_eq!(report.arrived.and_then(|a| a.lost), Some(0));
}

#[test]
fn a_capture_is_sent_as_it_is_in_its_order() {
    let Some(ns) = pair() else { return };
    let frame = |n: usize| {
        Frame::new()
            .ether_type(0x88b5)
            .trailer(&vec![n as u8; 46 + n * 7])
            .build()
    };
    let wanted: Vec<Vec<u8>> = (0..100).map(frame).collect();
    let mut writer = Writer::new(Vec::new()).expect("in memory");
    for frame in wanted.iter().chain([&vec![0; 4_000]]) {
        writer
            .write(0, frame, frame.len() as u32)
            .expect("in memory");
    }
    let file = writer.finish().expect("in memory");
    let load = Load::from_capture(file.as_slice()).expect("read");
    assert_eq!((load.templates.len(), load.left_out), (100, 1));
    let socket = listen(&ns);
    let report = send(&ns, &load, frames(200), "near", None).expect("sent");
    assert_eq!(report.sent, 200);
    assert!(
        report.notes[0].contains("of the capture were left out"),
        "{:?}",
        report.notes
    );
    let mut buffer = [0; 2_048];
    for wanted in wanted.iter().chain(&wanted) {
        let got = socket.receive(&mut buffer).expect("readable");
        assert_eq!(got, Some(wanted.as_slice()));
    }
    let report = send(&ns, &load, frames(1_000), "near", Some("far")).expect("sent");
    let arrived = report.arrived.expect("counted");
    assert_eq!((arrived.frames, arrived.lost), (1_000, Some(0)));
    assert!(Load::from_capture(&b"no capture"[..]).is_err());
}

#[test]
fn what_cannot_be_sent_says_why_and_what_to_do() {
    let Some(ns) = pair() else { return };
    let load = Load::new(&Traffic::new(false)).expect("planned");
    let fails = |interface: &str, load: &Load| {
        let result = send(&ns, load, frames(100), interface, None);
        result.expect_err(interface).to_string()
    };
    ns.output("ethtool", &["-K", "far", "gro", "off"])
        .expect("ethtool");
    let error = fails("near", &load);
    assert!(
        error.starts_with("near took none of 100 frames: 100 because"),
        "{error}"
    );
    assert!(error.contains("ethtool -K far gro on"), "{error}");
    ns.ip(&["link", "set", "lo", "up"]).expect("up");
    let error = fails("lo", &load);
    assert!(
        error.contains("the loopback device takes no XDP frames"),
        "{error}"
    );
    ns.ip(&["link", "add", "br0", "type", "bridge"])
        .expect("a bridge");
    let error = fails("br0", &load);
    assert!(
        error.contains("driver bridge") && error.contains("--i-own-this-network"),
        "{error}"
    );
    let error = fails("nera", &load);
    assert!(error.contains("near"), "{error}");
    let mut wanted = Traffic::new(false);
    wanted.sizes = vec![1_600];
    let error = fails("near", &Load::new(&wanted).expect("planned"));
    assert!(error.ends_with("`ip link set near mtu 1586`"), "{error}");
    ns.ip(&["link", "set", "near", "down"]).expect("down");
    assert_eq!(fails("near", &load), "near is down: `ip link set near up`");
}

fn root() -> bool {
    use std::io::Write as _;
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "these tests need root, and in CI they may not skip"
    );
    let _ = std::io::stderr().write_all(b"skipped, it needs root\n");
    false
}
