//! Function `balancer` over generated packets, in the interpreter, as native code and in the running kernel: the same verdicts and bytes,
//! which are those of a small model.
//!
//! `WEIR_CASES` sets the number of runs (default 20, of 80 packets each).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::balancers::model::{Fate, Made, Model, What};
use crate::balancers::{graph, planned, read};
use crate::common::{Sample, cases, config, engines};
use crate::graph::agree;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config as ProptestConfig, TestError, TestRunner};
use weir_engine::edge::replay::GraphOptions;
use weir_functions::plan::ChecksumMode;
use weir_packet::build::Frame;
use weir_packet::{Reason, Verdict};

const PACKETS: usize = 80;
const MTU: usize = 1400;

/// Every mode, family, and kind of service.
const SERVICES: &str = r#"
source4 = "10.99.0.0/16"
source6 = "fd99::/64"
connections = 65536
ring = 1009

[[service]]
name = "web"
address = "192.0.2.1"
protocol = "tcp"
port = 80
mode = "ipip"
server = [
  { address = "10.0.0.1", mac = "02:00:00:00:01:01" },
  { address = "10.0.0.2", mac = "02:00:00:00:01:02", to = "lan", weight = 3 },
  { address = "2001:db8:1::3", mac = "02:00:00:00:01:03" },
]

[[service]]
name = "web6"
address = "2001:db8::80"
protocol = "tcp"
port = 80
mode = "ipip"
server = [
  { address = "10.0.0.1", mac = "02:00:00:00:02:01", to = "wan" },
  { address = "2001:db8:1::2" },
]

[[service]]
name = "any"
address = "192.0.2.2"
protocol = "udp"
mode = "gue"
server = [
  { address = "10.0.0.1", mac = "02:00:00:00:03:01" },
  { address = "2001:db8:1::2", mac = "02:00:00:00:03:02" },
]

[[service]]
name = "wide"
address = "203.0.113.0/24"
protocol = "tcp"
port = 443
mode = "gue"
gue_version = 0
gue_port = 6081
server = [
  { address = "10.0.0.1", mac = "02:00:00:00:04:01" },
  { address = "2001:db8:1::2", mac = "02:00:00:00:04:02" },
]

[[service]]
name = "narrow"
address = "203.0.113.4"
protocol = "tcp"
port = 443
mode = "dsr"
server = [{ address = "10.0.0.9", mac = "02:00:00:00:05:01" }]

[[service]]
name = "wide6"
address = "2001:db8:5::/48"
protocol = "udp"
mode = "gue"
gue_version = 0
server = [{ address = "10.0.0.1", mac = "02:00:00:00:06:01" }, { address = "2001:db8:1::2", mac = "02:00:00:00:06:02" }]

[[service]]
name = "nat"
address = "192.0.2.3"
protocol = "tcp"
port = 80
mode = "nat"
server = [
  { address = "10.0.1.1", port = 8080, mac = "02:00:00:00:07:01" },
  { address = "10.0.1.2", mac = "02:00:00:00:07:02", to = "lan" },
]

[[service]]
name = "nat6"
address = "2001:db8::53"
protocol = "udp"
port = 53
mode = "nat"
server = [
  { address = "2001:db8:2::1", port = 5353, mac = "02:00:00:00:08:01" },
  { address = "2001:db8:2::2", mac = "02:00:00:00:08:02" },
]

[[service]]
name = "natall"
address = "192.0.2.6"
protocol = "udp"
mode = "nat"
server = [{ address = "10.0.1.3", mac = "02:00:00:00:09:01" }, { address = "10.0.1.4" }]

[[service]]
name = "quic"
address = "192.0.2.5"
protocol = "udp"
port = 443
mode = "dsr"
quic = true
server = [
  { address = "10.0.0.1", mac = "02:00:00:00:0a:01", id = 1 },
  { address = "10.0.0.2", mac = "02:00:00:00:0a:02", id = 515 },
  { address = "10.0.0.3", mac = "02:00:00:00:0a:03", id = 3, drain = true },
]
"#;

/// What generated packets must have met.
const WANTED: [&str; 22] = [
    "web to 10.0.0.1",
    "web to 10.0.0.2",
    "web to 2001:db8:1::3",
    "web6 to 10.0.0.1",
    "web6 to 2001:db8:1::2",
    "any to 10.0.0.1",
    "any to 2001:db8:1::2",
    "wide to 10.0.0.1",
    "wide6 to 2001:db8:1::2",
    "narrow to 10.0.0.9",
    "nat to 10.0.1.1",
    "nat to 10.0.1.2",
    "nat6 to 2001:db8:2::1",
    "natall to 10.0.1.4",
    "quic to 10.0.0.2",
    "quic to 10.0.0.3",
    "back",
    "no answer",
    "echo",
    "error",
    "reply",
    "reply between",
];

/// Who may be behind the quote of an error; another place of the list is whoever sends it.
const SERVERS: [&str; 6] = [
    "10.0.1.1",
    "10.0.1.2",
    "10.0.1.3",
    "10.0.0.1",
    "2001:db8:2::1",
    "2001:db8:2::2",
];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn bare(src: IpAddr, dst: IpAddr) -> Frame {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Frame::new().ip4(src.octets(), dst.octets()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Frame::new().ip6(src.octets(), dst.octets()),
        _ => panic!("of one family"),
    }
}

/// Addresses of a packet: a client and a service, or what looks like it; or a server and a client.
fn ends() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let four = (
        (1u8..6).prop_map(|n| ip(&format!("198.51.100.{n}"))),
        select(vec![
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.3",
            "192.0.2.3",
            "192.0.2.5",
            "192.0.2.6",
            "192.0.2.9",
            "203.0.113.4",
            "203.0.113.5",
            "203.0.113.200",
            "203.0.114.1",
        ])
        .prop_map(ip),
    );
    let six = (
        (1u8..6).prop_map(|n| ip(&format!("2001:db8:c::{n}"))),
        select(vec![
            "2001:db8::80",
            "2001:db8::53",
            "2001:db8:5::7",
            "2001:db8:5:9::1",
            "2001:db8:6::1",
        ])
        .prop_map(ip),
    );
    let servers = (
        select(vec![
            "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.0.1",
        ])
        .prop_map(ip),
        (1u8..6).prop_map(|n| ip(&format!("198.51.100.{n}"))),
    );
    let servers6 = (
        select(vec!["2001:db8:2::1", "2001:db8:2::2"]).prop_map(ip),
        (1u8..6).prop_map(|n| ip(&format!("2001:db8:c::{n}"))),
    );
    prop_oneof![6 => four, 3 => six, 2 => servers, 1 => servers6]
}

fn client_port() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 5000u16..5004, 1 => select(vec![80u16, 8080, 53, 5353])]
}

fn service_port() -> impl Strategy<Value = u16> {
    select(vec![80u16, 80, 80, 443, 443, 53, 53, 25, 6000])
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..60),
        1 => prop::collection::vec(any::<u8>(), 1290..1440),
    ]
}

fn frames() -> impl Strategy<Value = Made> {
    let link = (
        select(vec![0usize, 0, 0, 1]),
        select(vec![1u32, 1, 2]),
        any::<u8>(),
    );
    let what = prop_oneof![
        6 => (client_port(), service_port(), select(vec![2u8, 16, 16, 24, 17, 4])).prop_map(|(sport, dport, flags)| What::Tcp { sport, dport, flags }),
        4 => (client_port(), service_port()).prop_map(|(sport, dport)| What::Udp { sport, dport }),
        2 => (client_port(), select(vec![None, Some(1), Some(515), Some(3), Some(9)])).prop_map(|(sport, id)| What::Quic { sport, dport: 443, id }),
        1 => (client_port(), service_port(), 1u32..5).prop_map(|(sport, dport, id)| What::First { sport, dport, id }),
        2 => (1u32..5).prop_map(|id| What::Later { id, next: 17 }),
        1 => Just(What::Echo),
        2 => (select(vec![6u8, 17]), service_port(), client_port(), 1u8..6).prop_map(|(protocol, sport, dport, to)| What::Error {
            protocol, sport, to: ip(&format!("198.51.100.{to}")), dport, quote: 0,
        }),
        2 => (select(vec![6u8, 17]), select(vec![80u16, 8080, 53, 5353, 7]), client_port(), 0usize..10).prop_map(|(protocol, sport, dport, server)| What::Reply {
            protocol, sport, server: ip(SERVERS.get(server).unwrap_or(&"0.0.0.0")), dport, quote: 0,
        }),
    ];
    (ends(), link, what, payload()).prop_map(|((src, dst), (tags, port, tos), what, payload)| {
        let what = answering(src, tos, what);
        made(src, dst, tags, port, tos, what, &payload)
    })
}

/// What servers send, half of it from ports of services to ports of clients.
fn answering(src: IpAddr, tos: u8, what: What) -> What {
    let is_server = ["10.0.1.", "2001:db8:2:"]
        .iter()
        .any(|net| src.to_string().starts_with(net));
    let turned = |sport: u16, dport: u16| {
        let from = [80, 8080, 53, 5353, 6000][usize::from(sport) % 5];
        (from, 5000 + dport % 4)
    };
    match what {
        _ if !is_server || tos & 128 != 0 => what,
        What::Tcp {
            sport,
            dport,
            flags,
        } => {
            let (sport, dport) = turned(sport, dport);
            What::Tcp {
                sport,
                dport,
                flags,
            }
        }
        What::Udp { sport, dport } => {
            let (sport, dport) = turned(sport, dport);
            What::Udp { sport, dport }
        }
        What::First { sport, dport, id } => {
            let (sport, dport) = turned(sport, dport);
            What::First { sport, dport, id }
        }
        other => other,
    }
}

/// Extension headers in front of a fragment header, or none; and where that is then.
fn ahead(frame: Frame, tos: u8, at: usize) -> (Frame, usize) {
    match tos & 0x30 {
        0x10 => (frame.extension(0, &[1, 4]), at + 8),
        // Hop by hop, authentication of 12 bytes, routing.
        0x20 => (
            frame
                .extension(0, &[1, 4])
                .extension(51, &[0; 10])
                .extension(43, &[0; 6]),
            at + 8 + 12 + 8,
        ),
        0x30 => (frame.extension(60, &[1, 12]), at + 8),
        _ => (frame, at),
    }
}

fn made(
    src: IpAddr,
    dst: IpAddr,
    tags: usize,
    port: u32,
    tos: u8,
    what: What,
    payload: &[u8],
) -> Made {
    let four = src.is_ipv4();
    let l3 = 14 + 4 * tags;
    let mut l4 = l3 + if four { 20 } else { 40 };
    let mut frame = bare(src, dst).traffic_class(tos);
    for tag in 0..tags {
        frame = frame.vlan(7 + tag as u16);
    }
    let mut what = what;
    let mut quoted = Vec::new();
    // Of the fragment header.
    let mut at = 0;
    if let What::Reply {
        sport,
        server,
        dport,
        quote,
        protocol,
    } = &mut what
    {
        let is_client = match dst {
            IpAddr::V4(a) => a.octets()[0] == 198,
            IpAddr::V6(a) => a.segments()[2] == 0xc,
        };
        if server.is_ipv4() != four || server.is_unspecified() {
            *server = src;
        }
        *quote = l4 + 8;
        let inner = bare(dst, *server);
        let inner = match *protocol {
            6 => inner.tcp(*dport, *sport).flags(16),
            _ => inner.udp(*dport, *sport),
        };
        let inner = match four && payload.len().is_multiple_of(5) && *protocol == 17 {
            true => inner.zero_checksum(),
            false => inner,
        };
        let whole = inner.payload(payload).build();
        quoted = whole[14..whole.len().min(14 + 48 + payload.len() / 2)].to_vec();
        if !is_client {
            what = What::Echo;
        }
    }
    let frame = match &mut what {
        What::Tcp {
            sport,
            dport,
            flags,
        } => frame.tcp(*sport, *dport).flags(*flags).payload(payload),
        What::Udp { sport, dport } => {
            let frame = frame.udp(*sport, *dport).payload(payload);
            if tos & 64 != 0 && four {
                frame.zero_checksum()
            } else {
                frame
            }
        }
        What::Quic { sport, dport, id } => {
            let mut bytes = match tos & 3 {
                // Handshake of version 1, Handshake of version 2, short headers.
                0 => vec![0xe0, 0, 0, 0, 1, 8],
                1 => vec![0xf0, 0x6b, 0x33, 0x43, 0xcf, 8],
                _ => vec![0x40 | tos & 0x1f],
            };
            match *id {
                Some(id) => bytes.extend([7, (id >> 8) as u8, id as u8]),
                // Unroutable by its first bits.
                None => bytes.extend([0xe7, 0, 1]),
            }
            if let (Some(number), true) = (*id, tos & 32 != 0 && tos & 3 < 2) {
                // Initial: a client chose it.
                bytes[0] = if tos & 3 == 0 { 0xc0 } else { 0xd0 };
                *id = None;
                bytes[7..].copy_from_slice(&[(number >> 8) as u8, number as u8]);
            }
            bytes.extend([0x55; 20]);
            frame.udp(*sport, *dport).payload(&bytes)
        }
        What::First { sport, dport, id } => {
            let mut frame = frame.id(*id as u16);
            if !four {
                (frame, l4) = ahead(frame, tos, l4);
                at = l4;
                l4 += 8;
            }
            frame = frame.fragment(0, true);
            if !four && tos & 64 != 0 {
                frame = frame.extension(60, &[1, 4]);
                l4 += 8;
            }
            frame
                .udp(*sport, *dport)
                .payload(&payload[..payload.len() / 8 * 8])
        }
        What::Later { id, next } => {
            let mut frame = frame.id(*id as u16);
            if !four {
                (frame, l4) = ahead(frame, tos, l4);
                at = l4;
                *next = if tos & 64 != 0 { 60 } else { 17 };
            }
            let frame = frame.fragment(100, *id & 1 == 0);
            frame.protocol(*next).payload(payload)
        }
        What::Echo => frame
            .icmp(if four { 8 } else { 128 }, 0)
            .echo(1, 2)
            .payload(payload),
        What::Error {
            protocol,
            sport,
            to,
            dport,
            quote,
        } => {
            if !four {
                let IpAddr::V4(a) = *to else { panic!("IPv4") };
                *to = ip(&format!("2001:db8:c::{}", a.octets()[3]));
            }
            *quote = l4 + 8;
            let inner = bare(dst, *to);
            let inner = match *protocol {
                6 => inner.tcp(*sport, *dport).flags(16),
                _ => inner.udp(*sport, *dport),
            };
            let whole = inner.payload(payload).build();
            let some = &whole[14..whole.len().min(14 + 48 + payload.len() / 2)];
            let frame = match four {
                true => frame.icmp(3, 4),
                false => frame.icmp(2, 0),
            };
            frame.payload(some)
        }
        What::Reply { .. } => {
            let frame = match four {
                true => frame.icmp(3, 3),
                false => frame.icmp(1, 4),
            };
            frame.payload(&quoted)
        }
    };
    let mut frame = frame.build();
    if let (What::First { id, .. } | What::Later { id, .. }, false) = (&what, four) {
        frame[at + 4..at + 8].copy_from_slice(&id.to_be_bytes());
    }
    Made {
        frame,
        port,
        l3,
        l4,
        src,
        dst,
        what,
    }
}

/// Whether a packet is one that the model knows: QUIC elsewhere is UDP.
fn settle(mut made: Made) -> Made {
    if let What::Quic { sport, dport, .. } = made.what
        && made.dst != ip("192.0.2.5")
    {
        made.what = What::Udp { sport, dport };
    }
    made
}

fn fate(verdict: Verdict, port: Option<u32>, from: u32, frame: &[u8]) -> Option<Fate> {
    Some(match verdict {
        Verdict::Tx => Fate::Out(from, frame.to_vec()),
        Verdict::Redirect => Fate::Out(port?, frame.to_vec()),
        Verdict::Pass => Fate::Stack(frame.to_vec()),
        _ => return None,
    })
}

fn shown(fate: &Fate) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    match fate {
        Fate::Out(port, frame) => format!("out {port} {}", hex(frame)),
        Fate::Stack(frame) => format!("stack {}", hex(frame)),
        Fate::Drop(reason) => format!("drop {}", reason.name()),
    }
}

/// Packets that meet every service, server and kind, whatever chance brings.
fn sweep() -> Vec<Made> {
    let (four, six) = (ip("198.51.100.1"), ip("2001:db8:c::1"));
    let mut all = Vec::new();
    for n in 0..24u16 {
        let sport = 7000 + n;
        let tcp = |dport| What::Tcp {
            sport,
            dport,
            flags: Frame::SYN,
        };
        let udp = |dport| What::Udp { sport, dport };
        let quic = |id| What::Quic {
            sport,
            dport: 443,
            id: Some(id),
        };
        for (src, dst, what) in [
            (four, "192.0.2.1", tcp(80)),
            (six, "2001:db8::80", tcp(80)),
            (four, "192.0.2.2", udp(53)),
            (four, "203.0.113.9", tcp(443)),
            (four, "203.0.113.4", tcp(443)),
            (six, "2001:db8:5::9", udp(99)),
            (four, "192.0.2.3", tcp(80)),
            (six, "2001:db8::53", udp(53)),
            (four, "192.0.2.6", udp(7)),
            (four, "192.0.2.5", quic(515)),
            (four, "192.0.2.5", quic(3)),
        ] {
            all.push(made(src, ip(dst), 0, 1, 2, what, b"sweep"));
        }
    }
    // Of either server to every client: one of them is who was asked. And to a port that asked nobody.
    for dport in (7000..7024).chain([6999]) {
        for (server, sport) in [("10.0.1.1", 8080), ("10.0.1.2", 80)] {
            let from_server = What::Tcp {
                sport,
                dport,
                flags: Frame::ACK,
            };
            all.push(made(ip(server), four, 0, 2, 0, from_server, b"back"));
        }
        for (server, sport) in [("2001:db8:2::1", 5353), ("2001:db8:2::2", 53)] {
            let from_server = What::Udp { sport, dport };
            all.push(made(ip(server), six, 0, 2, 0, from_server, b"back"));
        }
    }
    all.push(made(four, ip("192.0.2.1"), 0, 1, 0, What::Echo, b"ping"));
    let error = What::Error {
        protocol: 6,
        sport: 80,
        to: four,
        dport: 7000,
        quote: 0,
    };
    all.push(made(four, ip("192.0.2.1"), 0, 1, 0, error, b"quoted"));
    for (from, dport) in ["10.0.1.2", "10.9.9.9"]
        .into_iter()
        .flat_map(|from| (6999..7024).map(move |dport| (from, dport)))
    {
        let reply = What::Reply {
            protocol: 6,
            sport: 80,
            server: ip("10.0.1.2"),
            dport,
            quote: 0,
        };
        all.push(made(ip(from), four, 0, 2, 0, reply, b"quoted"));
    }
    all
}

#[test]
fn generated_packets_leave_as_the_model_says_in_every_engine() {
    let model = read(SERVICES);
    let planned = planned(SERVICES, &[]).expect("planned");
    let engines = engines();
    let options = GraphOptions {
        mtu: Some(MTU as u32),
        ..GraphOptions::default()
    };
    let seen: RefCell<BTreeMap<String, u32>> = RefCell::default();
    let cases = cases(20);
    // A failing packet is told by itself: shrinking whole runs in three engines takes long and tells no more.
    let config = ProptestConfig {
        max_shrink_iters: 0,
        ..config(cases, file!())
    };
    let mut runner = TestRunner::new(config);
    let strategy = (prop::collection::vec(frames(), PACKETS), any::<bool>());
    let judged = |(packets, offloaded): (Vec<Made>, bool)| {
        let mode = if offloaded {
            ChecksumMode::Offloaded
        } else {
            ChecksumMode::Complete
        };
        let graph = graph(&planned, mode);
        let packets: Vec<Made> = packets.into_iter().map(settle).collect();
        let samples: Vec<Sample> = (1u64..)
            .zip(&packets)
            .map(|(n, made)| Sample {
                frame: made.frame.clone(),
                now_ns: n * 10_000_000,
                port: made.port,
                queue: 0,
            })
            .collect();
        let said = agree(&engines, &graph, &options, &samples).map_err(TestCaseError::fail)?;
        let mut model = Model::new(&model, MTU);
        let mut drops = BTreeMap::new();
        for (n, made) in packets.iter().enumerate() {
            let wanted = model.packet(made);
            let outcome = said.outcomes[n];
            if let Fate::Drop(reason) = wanted {
                *drops.entry(reason.name()).or_insert(0u64) += 1;
                prop_assert_eq!(outcome.verdict, Verdict::Drop, "packet {}: {:?}", n, made);
                continue;
            }
            let found = fate(outcome.verdict, outcome.port, made.port, &said.frames[n]);
            let Some(found) = found else {
                return Err(TestCaseError::fail(format!(
                    "packet {n} {made:?}\nwanted {}\nfound {outcome:?}",
                    shown(&wanted)
                )));
            };
            prop_assert!(
                found == wanted,
                "packet {} {:?}\nwanted {}\nfound  {}",
                n,
                made,
                shown(&wanted),
                shown(&found)
            );
        }
        let stats = &said.totals.instances[0];
        for reason in Reason::ALL {
            let wanted = drops.get(reason.name()).copied().unwrap_or(0);
            if !matches!(reason, Reason::Answered) {
                prop_assert_eq!(
                    stats.reason[reason.index() as usize],
                    wanted,
                    "{}",
                    reason.name()
                );
            }
        }
        for (what, count) in model.seen {
            *seen.borrow_mut().entry(what).or_default() += count;
        }
        Ok(())
    };
    if let Err(error) = judged((sweep(), false)) {
        panic!("{error}");
    }
    for met in ["back", "reply", "reply between"] {
        assert!(seen.borrow().contains_key(met), "{met}");
    }
    let outcome = runner.run(&strategy, judged);
    if let Err(TestError::Fail(why, _)) = outcome {
        panic!("{why}");
    }
    let seen = seen.into_inner();
    eprintln!("{seen:?}");
    for wanted in WANTED {
        assert!(
            seen.contains_key(wanted),
            "no packet met {wanted}: {seen:?}"
        );
    }
}
