//! What a balancer remembers: flows that are confirmed survive a flood of new ones and leave after their idle time, and a tunnel's far end
//! gives back what went in at its beginning.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::balancers::{graph, planned};
use crate::common::{Sample, engines};
use crate::graph::{agree, instance, plan, port};
use weir_bpf::abi::balancer::{self, flow};
use weir_engine::edge::replay::GraphOptions;
use weir_functions::decapsulate;
use weir_functions::kind::{Files, Request};
use weir_functions::plan::{ChecksumMode, InstancePlan};
use weir_graph::{EdgePlan, Target};
use weir_packet::build::Frame;
use weir_packet::{Reason, Verdict};

const SECOND: u64 = 1_000_000_000;
/// 64 buckets.
const SERVICE: &str = r#"
source4 = "10.99.0.0/16"
source6 = "fd99::/64"
connections = 512
ring = 1009
[[service]]
address = "192.0.2.1"
protocol = "tcp"
port = 80
mode = "ipip"
server = [
  { address = "10.0.0.1", mac = "02:00:00:00:01:01" },
  { address = "10.0.0.2", mac = "02:00:00:00:01:02" },
  { address = "2001:db8::3", mac = "02:00:00:00:01:03" },
]
"#;

fn tcp(client: u32, flags: u8, now_ns: u64) -> Sample {
    let address = (0x0a40_0000 + client).to_be_bytes();
    Sample {
        frame: Frame::new()
            .ip4(address, [192, 0, 2, 1])
            .tcp(1000, 80)
            .flags(flags)
            .build(),
        now_ns,
        port: 1,
        queue: 0,
    }
}

/// Entries of the table by their state.
fn remembered(contents: &[(Vec<u8>, Vec<u8>)], state: usize) -> BTreeSet<u64> {
    let words = contents.iter().flat_map(|(_, value)| value.chunks_exact(8));
    let entries = words.map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
    let is = |entry: &u64| {
        *entry != 0 && (entry >> balancer::STATE) as usize & (balancer::STATES - 1) == state
    };
    // Without the time.
    entries.filter(is).map(|entry| entry >> 16).collect()
}

#[test]
fn a_flood_of_new_flows_displaces_no_confirmed_one() {
    let planned = planned(SERVICE, &[]).expect("planned");
    let graph = graph(&planned, ChecksumMode::Complete);
    // 200 clients that talk: two packets each. They are more than half of many buckets.
    let mut samples: Vec<Sample> = (0..200)
        .flat_map(|n| [tcp(n, Frame::SYN, SECOND), tcp(n, Frame::ACK, SECOND)])
        .collect();
    let before = run(&graph, &samples);
    let confirmed = remembered(&before, flow::TCP);
    assert!(confirmed.len() > 190, "{}", confirmed.len());
    // Many times what the table holds, of one packet each.
    samples.extend((0..6000).map(|n| tcp(10_000 + n, Frame::SYN, 2 * SECOND)));
    let flooded = run(&graph, &samples);
    assert!(
        confirmed.is_subset(&remembered(&flooded, flow::TCP)),
        "a confirmed flow was displaced"
    );
    for (bucket, value) in &flooded {
        let new = remembered(&[(bucket.clone(), value.clone())], flow::NEW).len();
        assert!(new <= balancer::QUOTA, "{new} new flows in a bucket");
    }
    // A quarter of an hour later nobody is in the way of those who come then and talk.
    samples.extend((0..300).flat_map(|n| {
        [
            tcp(50_000 + n, Frame::SYN, 2000 * SECOND),
            tcp(50_000 + n, Frame::ACK, 2000 * SECOND),
        ]
    }));
    let late = remembered(&run(&graph, &samples), flow::TCP);
    let stayed = late.intersection(&confirmed).count();
    assert!(stayed < confirmed.len() / 2, "{stayed} of them stayed");
    assert!(late.len() > 290, "{} talk", late.len());
}

/// 8 buckets, and a ring that two servers share.
const TRANSLATED: &str = r#"
connections = 64
ring = 1009
[[service]]
address = "192.0.2.1"
protocol = "udp"
port = 53
mode = "nat"
server = [
  { address = "10.0.0.1", port = 5353, mac = "02:00:00:00:01:01" },
  { address = "10.0.0.2", port = 5353, mac = "02:00:00:00:01:02" },
]
"#;

const SERVERS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

fn client(n: u32) -> [u8; 4] {
    (0x0a40_0000 + n).to_be_bytes()
}

fn asks(n: u32, now_ns: u64) -> Sample {
    Sample {
        frame: Frame::new()
            .ip4(client(n), [192, 0, 2, 1])
            .udp(1000, 53)
            .build(),
        now_ns,
        port: 1,
        queue: 0,
    }
}

fn answers(n: u32, server: [u8; 4], now_ns: u64) -> Sample {
    Sample {
        frame: Frame::new().ip4(server, client(n)).udp(5353, 1000).build(),
        now_ns,
        port: 2,
        queue: 0,
    }
}

/// What became of packets: those to a server by its place in [`SERVERS`], those to a client by whether they come from the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    Server(usize),
    Translated,
    Untouched,
}

fn went(text: &str, samples: &[Sample]) -> Vec<Went> {
    let planned = planned(text, &[]).expect("planned");
    let graph = graph(&planned, ChecksumMode::Complete);
    let said = agree(&engines(), &graph, &GraphOptions::default(), samples).expect("agree");
    let of = |(n, frame): (usize, &Vec<u8>)| match said.outcomes[n].verdict {
        Verdict::Tx => Went::Server(
            SERVERS
                .iter()
                .position(|server| frame[30..34] == server[..])
                .expect("one of them"),
        ),
        Verdict::Pass if *frame == samples[n].frame => Went::Untouched,
        Verdict::Pass => {
            assert_eq!(
                (&frame[26..30], &frame[34..36]),
                (&[192, 0, 2, 1][..], &[0, 53][..])
            );
            Went::Translated
        }
        other => panic!("{other:?}"),
    };
    said.frames.iter().enumerate().map(of).collect()
}

#[test]
fn what_a_server_sends_is_an_answer_if_the_flow_is_known() {
    // Each client asks once and is answered by both servers; then those servers speak to who asked nobody.
    let mut samples = Vec::new();
    for n in 0..20 {
        samples.push(asks(n, SECOND));
        samples.extend(SERVERS.map(|server| answers(n, server, SECOND)));
        samples.extend(SERVERS.map(|server| answers(n + 1000, server, SECOND)));
    }
    let known = went(TRANSLATED, &samples);
    let all = went(&format!("answers = \"all\"\n{TRANSLATED}"), &samples);
    let mut met = BTreeSet::new();
    for (known, all) in known.chunks(5).zip(all.chunks(5)) {
        let Went::Server(to) = known[0] else {
            panic!("{known:?}");
        };
        met.insert(to);
        let mut wanted = [Went::Untouched; 4];
        wanted[to] = Went::Translated;
        assert_eq!(known[1..], wanted);
        assert_eq!(all[0], known[0]);
        assert_eq!(all[1..], [Went::Translated; 4]);
    }
    assert_eq!(met.len(), 2);
}

#[test]
fn answers_keep_a_flow_and_a_full_table_leaves_them_to_the_ring() {
    // Two minutes are what an idle flow of UDP has. The server speaks every minute, the client never again.
    let mut samples = vec![asks(0, SECOND), asks(0, SECOND)];
    for minute in 1..10 {
        samples.extend(SERVERS.map(|server| answers(0, server, minute * 60 * SECOND)));
    }
    // Then others talk, many more than there is room for.
    let now = 9 * 60 * SECOND;
    for n in 1..400 {
        samples.extend([asks(n, now), asks(n, now)]);
    }
    samples.extend(SERVERS.map(|server| answers(0, server, now + 30 * SECOND)));
    // Flows without room are answered by who the ring gives them to, and so would be those that nobody asked for.
    for n in 300..400 {
        samples.push(asks(n, now + 30 * SECOND));
        samples.extend(SERVERS.map(|server| answers(n, server, now + 30 * SECOND)));
    }
    let all = went(TRANSLATED, &samples);
    let one_answers = |to: Went, two: &[Went]| {
        let Went::Server(to) = to else {
            panic!("{to:?}");
        };
        let mut wanted = [Went::Untouched; 2];
        wanted[to] = Went::Translated;
        assert_eq!(*two, wanted);
    };
    let talk = 2 + 2 * 9;
    for two in all[2..talk].chunks(2) {
        one_answers(all[0], two);
    }
    let late = talk + 2 * 399;
    one_answers(all[0], &all[late..late + 2]);
    for three in all[late + 2..].chunks(3) {
        one_answers(three[0], &three[1..]);
    }
    // An hour later the flow is idle. Others come and talk, and it is displaced; what its server says then is no answer until the client
    // speaks again.
    let later = now + 3600 * SECOND;
    let mut samples = vec![asks(0, SECOND), asks(0, SECOND)];
    for n in 1..400 {
        samples.extend([asks(n, later), asks(n, later)]);
    }
    let end = later + 3600 * SECOND;
    samples.extend(SERVERS.map(|server| answers(0, server, end)));
    samples.push(asks(0, end));
    samples.extend(SERVERS.map(|server| answers(0, server, end)));
    let all = went(TRANSLATED, &samples);
    let late = 2 + 2 * 399;
    assert_eq!(all[late..late + 2], [Went::Untouched; 2]);
    assert_eq!(all[late + 2], all[0]);
    one_answers(all[0], &all[late + 3..]);
}

#[test]
fn answers_reach_a_client_whose_server_was_found_by_connection_id() {
    let text = TRANSLATED
        .replace("mode = \"nat\"", "mode = \"nat\"\nquic = true")
        .replace(":01\" }", ":01\", id = 1 }")
        .replace(":02\" }", ":02\", id = 2 }");
    let mut samples = Vec::new();
    for n in 0..20u8 {
        // A short header: the client has changed its address, and the id says who its server is.
        let id = n % 2 + 1;
        let mut bytes = vec![0x40, 7, 0, id];
        bytes.extend([0x55; 20]);
        let mut sample = asks(n.into(), SECOND);
        sample.frame = Frame::new()
            .ip4(client(n.into()), [192, 0, 2, 1])
            .udp(1000, 53)
            .payload(&bytes)
            .build();
        samples.push(sample);
        samples.extend(SERVERS.map(|server| answers(n.into(), server, SECOND)));
    }
    for (n, three) in went(&text, &samples).chunks(3).enumerate() {
        let mut wanted = [Went::Server(n % 2), Went::Untouched, Went::Untouched];
        wanted[1 + n % 2] = Went::Translated;
        assert_eq!(three, wanted, "{n}");
    }
}

/// Runs packets through every engine; the table of flows behind it.
fn run(graph: &EdgePlan, samples: &[Sample]) -> Vec<(Vec<u8>, Vec<u8>)> {
    // What all say of the table is compared in agree(), too, if it is among the maps that are told; here one is asked.
    let kinds = engines();
    let said = agree(&kinds, graph, &GraphOptions::default(), samples).expect("agree");
    assert!(said.outcomes.iter().all(|o| o.verdict == Verdict::Tx));
    let flows = said
        .contents
        .into_iter()
        .find(|(_, map, _)| *map == "flows");
    flows.and_then(|(_, _, contents)| contents).expect("told")
}

struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn far_end(keys: &str) -> InstancePlan {
    let keys = keys.parse().expect("TOML");
    let planned = decapsulate::plan(&Request {
        name: "end",
        keys: &keys,
        files: &NoFiles,
        ports: &[],
        transmits: false,
    });
    planned.expect("planned").instance
}

fn end_graph(keys: &str) -> EdgePlan {
    plan(
        vec![port(1, ChecksumMode::Complete, Target::Instance(0))],
        vec![instance("end", far_end(keys), Target::Stack)],
    )
}

const END: &str = "address = [\"10.0.0.1\", \"10.0.0.2\", \"2001:db8::3\"]\nfrom = [\"10.99.0.0/16\", \"fd99::/64\"]";

#[test]
fn what_goes_into_a_tunnel_comes_out_of_it() {
    for mode in [
        "mode = \"ipip\"",
        "mode = \"gue\"",
        "mode = \"gue\"\ngue_version = 0",
    ] {
        for (family, address) in [(4, "192.0.2.1"), (6, "2001:db8::80")] {
            let text = SERVICE
                .replace("mode = \"ipip\"", mode)
                .replace("192.0.2.1", address);
            let planned = planned(&text, &[]).expect("planned");
            let graph = graph(&planned, ChecksumMode::Complete);
            let samples: Vec<Sample> = (0..60u8)
                .map(|n| {
                    let frame = match family {
                        4 => Frame::new().ip4([198, 51, 100, n], [192, 0, 2, 1]),
                        _ => {
                            let mut client = [0x20; 16];
                            client[15] = n;
                            let mut service = [0; 16];
                            service[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
                            service[15] = 0x80;
                            Frame::new().ip6(client, service)
                        }
                    };
                    let frame = match n % 3 {
                        0 => frame.vlan(9),
                        _ => frame,
                    };
                    let frame = frame.traffic_class(n).tcp(1000, 80).flags(Frame::ACK);
                    Sample {
                        frame: frame.payload(&vec![n; n.into()]).build(),
                        now_ns: SECOND,
                        port: 1,
                        queue: 0,
                    }
                })
                .collect();
            let sent = agree(&engines(), &graph, &GraphOptions::default(), &samples);
            let sent = sent.expect("agree");
            decoded_by_tcpdump(&sent.frames, mode);
            let outer: Vec<Sample> = sent
                .frames
                .iter()
                .map(|frame| Sample {
                    frame: frame.clone(),
                    now_ns: SECOND,
                    port: 1,
                    queue: 0,
                })
                .collect();
            let got = agree(
                &engines(),
                &end_graph(END),
                &GraphOptions::default(),
                &outer,
            );
            let got = got.expect("agree");
            for (n, frame) in got.frames.iter().enumerate() {
                assert_eq!(got.outcomes[n].verdict, Verdict::Pass);
                assert_eq!(frame[12..], samples[n].frame[12..], "packet {n} {mode}");
            }
        }
    }
}

/// tcpdump, where it is installed, finds nothing wrong with the frames.
fn decoded_by_tcpdump(frames: &[Vec<u8>], what: &str) {
    let mut capture = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        capture.extend(word.to_ne_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            capture.extend(word.to_ne_bytes());
        }
        capture.extend(frame);
    }
    let command = Command::new("tcpdump")
        .args(["-nvvr", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = command else {
        return;
    };
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || stdin.write_all(&capture));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads all");
    let text = String::from_utf8_lossy(&output.stdout);
    // UDP without a checksum over IPv6 is what RFC 6935 allows tunnels; tcpdump says so of it.
    for wrong in [
        "bad cksum",
        "incorrect",
        "[|",
        "truncated",
        "invalid",
        "malformed",
    ] {
        assert!(!text.contains(wrong), "{what}: {wrong}: {text}");
    }
    assert!(
        text.contains("192.0.2.1") || text.contains("2001:db8::80") || text.contains("6080"),
        "{text}"
    );
}

#[test]
fn a_far_end_takes_its_own_tunnels_only() {
    let inner = |class: u8| {
        let frame = Frame::new()
            .ip4([198, 51, 100, 1], [192, 0, 2, 1])
            .traffic_class(class)
            .tcp(1, 2)
            .build();
        frame[14..].to_vec()
    };
    let outer = |from: [u8; 4], to: [u8; 4], class: u8, payload: &[u8]| {
        Frame::new()
            .ip4(from, to)
            .traffic_class(class)
            .protocol(4)
            .payload(payload)
            .build()
    };
    let (ours, end) = ([10, 99, 1, 1], [10, 0, 0, 1]);
    let dropped = Some(Reason::TunnelBad);
    let mut cut = inner(0);
    cut.truncate(30);
    let gue = |first: u8, payload: &[u8]| {
        let bytes: Vec<u8> = [first, 4, 0, 0].iter().chain(payload).copied().collect();
        Frame::new()
            .ip4(ours, end)
            .udp(9, 6080)
            .payload(&bytes)
            .build()
    };
    for (what, frame, reason, changed) in [
        ("a tunnel", outer(ours, end, 0, &inner(0)), None, true),
        (
            "from elsewhere",
            outer([10, 98, 1, 1], end, 0, &inner(0)),
            dropped,
            false,
        ),
        (
            "to elsewhere",
            outer(ours, [10, 0, 0, 9], 0, &inner(0)),
            None,
            false,
        ),
        ("cut short", outer(ours, end, 0, &cut), dropped, false),
        ("nothing inside", outer(ours, end, 0, &[]), dropped, false),
        (
            "another version",
            outer(ours, end, 0, &[0x60; 60]),
            dropped,
            false,
        ),
        (
            "congestion, told",
            outer(ours, end, 3, &inner(2)),
            None,
            true,
        ),
        (
            "congestion, untold",
            outer(ours, end, 3, &inner(0)),
            dropped,
            false,
        ),
        ("a control message", gue(0x20, &inner(0)), dropped, false),
        (
            "a version that there is not",
            gue(0x80, &inner(0)),
            dropped,
            false,
        ),
        (
            "with a field of 4 bytes",
            gue(0x01, &[vec![1, 2, 3, 4], inner(0)].concat()),
            None,
            true,
        ),
        (
            "no tunnel at all",
            Frame::new().ip4(ours, end).tcp(1, 2).build(),
            None,
            false,
        ),
    ] {
        let sample = Sample {
            frame: frame.clone(),
            now_ns: 0,
            port: 1,
            queue: 0,
        };
        let said = agree(
            &engines(),
            &end_graph(END),
            &GraphOptions::default(),
            &[sample],
        );
        let said = said.unwrap_or_else(|e| panic!("{what}: {e}"));
        let stats = &said.totals.instances[0];
        let counted = Reason::ALL
            .iter()
            .copied()
            .find(|reason| stats.reason[reason.index() as usize] > 0);
        assert_eq!(counted, reason, "{what}");
        if reason.is_none() {
            assert_eq!(said.frames[0] != frame, changed, "{what}");
        }
        if what == "congestion, told" {
            let mut wanted = inner(3);
            wanted[1] = 3;
            assert_eq!(said.frames[0][14..], wanted, "{what}");
        }
    }
}
