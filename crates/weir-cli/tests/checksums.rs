//! An independent decoder judges checksums: what tcpdump finds correct before a rewrite is correct after it, and what
//! it finds wrong stays wrong. Packets that no rule matches stay as they are, byte for byte.
//!
//! Packets are generated (with a fixed seed) and taken from the captures of other projects. Nothing here computes a
//! checksum, and weir's own code judges none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::{Folder, ethernet, files, long, read_capture, root, weir, write_capture};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use weir_packet::build::Frame;
use weir_packet::generate::well_formed;
use weir_packet::summary;

/// Generated packets.
const GENERATED: usize = 800;
/// Packets taken from one capture when the run is not a long one.
const MOST_PER_CAPTURE: usize = 60;
/// Time of packet 0 in seconds; packets are a microsecond apart, which is how tcpdump's lines are told apart.
const EPOCH: u64 = 1_000_000_000;

/// Rewriting policies, each with its share of packets that it leaves alone. Destinations of source-routed packets are
/// not written: their pseudo-header holds the final destination, which is not the one in the header.
const POLICIES: &[(&str, &str)] = &[
    (
        "source addresses",
        "ip-ttl >= 1 mod ip-saddr 203.0.113.77\nip6-hop-limit >= 1 mod ip6-saddr 2001:db8:ffff:1234:0:9abc::1",
    ),
    (
        "destination addresses",
        "net-proto ip4 ! ip-opt mod ip-daddr 255.255.0.0\nnet-proto ip6 ! ip6-eh-routing mod ip6-daddr ff02::fb",
    ),
    (
        "addresses and ports",
        "net-proto ip4 tcp-dport mod ip-saddr 0.0.0.0 mod tcp-sport 65535\nip6-saddr udp-dport mod ip6-saddr :: mod udp-sport 1",
    ),
    (
        "ports",
        "tcp-dport != 22 mod tcp-dport 443 mod tcp-sport x8001\nudp-sport != 22 mod udp-dport 40001 mod udp-sport 40000",
    ),
    (
        "TTL and hop limit",
        "ip-ttl > 1 mod ip-ttl 1\nip6-hop-limit > 1 mod ip6-hop-limit 255",
    ),
    (
        "DSCP and ECN",
        "ip-proto != udp mod ip-dscp ef mod ip-ecn 1\nip6-next != udp mod ip6-dscp cs6 mod ip6-ecn 3",
    ),
    ("identification", "ip-id != 1 mod ip-id xbeef mod ip-res"),
    (
        "flow label",
        "ip6-flow-label < 99999 mod ip6-flow-label xfffff mod ip6-tc 255",
    ),
    (
        "TCP flags",
        "! tcp-fin mod tcp-fin mod tcp-ece mod tcp-push 0 mod tcp-reserved 15",
    ),
    (
        "TCP numbers",
        "tcp-win > 0 mod tcp-seq xffffffff mod tcp-ack-num 0 mod tcp-win 65535 mod tcp-urg-ptr 257",
    ),
    ("strip all", "tcp-opt strip all"),
    (
        "strip timestamps",
        "tcp-opt-timestamp strip tcp-opt-timestamp",
    ),
    (
        "keep MSS and window scale",
        "tcp-opt strip ! tcp-opt-mss strip ! tcp-opt-wscale",
    ),
    (
        "add options",
        "tcp-dport != 22 add tcp-opt-wscale 7 add tcp-opt 253 xabcdef",
    ),
    ("add an MSS", "! tcp-opt-mss add tcp-opt-mss 1460"),
    (
        "change values in place",
        "tcp-opt-mss mod tcp-opt-mss 1\ntcp-opt-timestamp mod tcp-opt-timestamp xffeeddccbbaa9988\ntcp-opt-wscale mod tcp-opt-wscale 14",
    ),
    (
        "shrink an option",
        "tcp-opt 34 mod tcp-opt 34 x01\ntcp-opt 253 mod tcp-opt 253 x0102\ntcp-opt-sack mod tcp-opt-sack x00",
    ),
    (
        "grow an option",
        "tcp-opt 34 mod tcp-opt 34 x0102030405060708090a0b0c0d\ntcp-opt 30 mod tcp-opt 30 xffffffffffffffffffffff\ntcp-opt-mss mod tcp-opt-mss 1400",
    ),
    (
        "payload, even offset",
        "tcp-payload mod tcp-payload[2] x0102030405\nudp-payload mod udp-payload[0] xffff\nicmp-type >= 0 mod icmp-payload[0] x1234\nicmp6-type >= 0 mod icmp6-payload[4] x01",
    ),
    (
        "payload, odd offset",
        "tcp-payload mod tcp-payload[1] xff0102\nudp-payload mod udp-payload[3] x80\nicmp-type >= 0 mod icmp-payload[1] x55aa55\nicmp6-type >= 0 mod icmp6-payload[3] xfedc",
    ),
    (
        "IP payload",
        "ip-proto udp mod ip-payload[9] x0102\nip6-next tcp mod ip6-payload[1] x99",
    ),
    (
        "ICMP",
        "icmp-type >= 0 mod icmp-type 13 mod icmp-code 7\nicmp6-type >= 0 mod icmp6-type 201 mod icmp6-code 9",
    ),
    (
        "VLAN",
        "vlan mod vlan-id 99 mod vlan-pcp 5\nvlan2 mod vlan2-id 98",
    ),
    (
        "much at once",
        "net-proto ip4 tcp-dport mod ip-saddr 198.51.100.1 mod ip-ttl 3 mod tcp-dport 1 mod tcp-payload[1] xee\ntcp-dport strip tcp-opt-timestamp add tcp-opt 254 x010203",
    ),
];

#[test]
fn tcpdump_finds_rewritten_checksums_as_it_found_the_received_ones() {
    let frames = packets();
    let folder = Folder::new();
    let input = folder.join("in.pcap");
    write_capture(
        &input,
        (0u64..).map(time).zip(frames.iter().map(Vec::as_slice)),
    );
    let before = tcpdump(&input);
    let missing: Vec<String> = (0..frames.len())
        .filter(|number| !before.contains_key(number))
        .map(|number| common::hex(&frames[number]))
        .collect();
    assert!(
        missing.is_empty(),
        "tcpdump shows every packet: {missing:?}"
    );
    let correct = before
        .values()
        .filter(|text| Judgement::of(text).l4 == Some(true))
        .count();
    assert!(
        correct > GENERATED / 4,
        "tcpdump finds only {correct} correct L4 checksums"
    );

    let mut problems = Vec::new();
    let (mut judged, mut unjudged) = ([0u64; 2], 0u64);
    for (name, policy) in POLICIES {
        let logged: Vec<String> = policy.lines().map(|rule| format!("{rule} log\n")).collect();
        let policy = folder.write("p.weir", logged.concat());
        let output = folder.join("out.pcap");
        let run = weir([
            Path::new("replay"),
            &policy,
            Path::new("--in"),
            &input,
            Path::new("--out"),
            &output,
        ])
        .succeeded();
        let matched = matched(&run.stderr);
        let after = tcpdump(&output);
        let mut changed = 0;
        for (at, frame) in read_capture(&output) {
            let number = (at / 1000 - EPOCH * 1_000_000) as usize;
            let received = &frames[number];
            if frame == *received {
                continue;
            }
            changed += 1;
            if !matched.contains(&number) {
                problems.push(format!(
                    "{name}: packet {number} changed, but no rule matches: {}",
                    shown(received, &frame)
                ));
                continue;
            }
            let (was, is) = (
                Judgement::of(&before[&number]),
                Judgement::of(&after[&number]),
            );
            for (what, was, is) in [
                ("IPv4 header", was.header, is.header),
                ("L4", was.l4, is.l4),
            ] {
                // Some decoders, chosen by port, say nothing about checksums.
                let (Some(was), Some(is)) = (was, is) else {
                    unjudged += u64::from(was != is);
                    continue;
                };
                judged[usize::from(was)] += 1;
                if was != is {
                    problems.push(format!(
                        "{name}: {what} checksum was {} and is {}\n{}\n{}\n{}",
                        word(was),
                        word(is),
                        shown(received, &frame),
                        before[&number],
                        after[&number]
                    ));
                }
            }
        }
        assert!(changed > 5, "{name}: only {changed} packets were changed");
    }
    common::say(&format!(
        "{} packets, {} policies: tcpdump judged {} correct and {} wrong checksums, before and after",
        frames.len(),
        POLICIES.len(),
        judged[1],
        judged[0]
    ));
    assert!(
        judged[0] > 100 && judged[1] > 1000,
        "too little was judged: {judged:?}"
    );
    assert!(
        unjudged * 200 < judged[0] + judged[1],
        "tcpdump judged {unjudged} checksums on one side only"
    );
    let count = problems.len();
    problems.truncate(5);
    assert!(
        problems.is_empty(),
        "{count} problems, the first of them:\n{}",
        problems.join("\n\n")
    );
}

/// What tcpdump says about the outermost checksums of a packet; `None` where it says nothing.
#[derive(Debug, PartialEq, Eq)]
struct Judgement {
    header: Option<bool>,
    l4: Option<bool>,
}

impl Judgement {
    fn of(text: &str) -> Judgement {
        // The first verdict is that of the outermost header; payloads are decoded behind it.
        let words = [
            ("(correct)", Some(true)),
            ("(incorrect", Some(false)),
            ("udp sum ok]", Some(true)),
            ("bad udp cksum", Some(false)),
            ("[no cksum]", None),
            ("icmp6 sum ok]", Some(true)),
            ("bad icmp6 cksum", Some(false)),
            ("wrong icmp cksum", Some(false)),
        ];
        let mut first = words
            .iter()
            .filter_map(|(word, good)| Some((text.find(word)?, *good)))
            .min();
        // A correct ICMP checksum is not mentioned, and what the message quotes has checksums of its own.
        let icmp = text.contains("proto ICMP (1)") && text.contains(": ICMP ");
        if icmp {
            first = text
                .find("wrong icmp cksum")
                .map(|at| (at, Some(false)))
                .or(Some((0, Some(true))));
        }
        // Over nothing but zeros a checksum of 0 is wrong and ffff correct, though both are the same number in one's
        // complement: updating (RFC 1624) cannot keep that apart.
        if text.contains("wrong icmp cksum 0 (->ffff)") {
            first = None;
        }
        // The first line is that of the outermost IP header.
        let line = text.lines().next().unwrap_or_default();
        let header = line
            .contains("IP (tos")
            .then(|| !line.contains(", bad cksum "));
        Judgement {
            header,
            l4: first.and_then(|(_, good)| good),
        }
    }
}

fn word(correct: bool) -> &'static str {
    if correct { "correct" } else { "wrong" }
}

/// What tcpdump says about each packet of a capture, by number.
fn tcpdump(path: &Path) -> BTreeMap<usize, String> {
    // Through standard input, because tcpdump gives up root before it opens files.
    let input = File::open(path).expect("the capture was just written");
    let output = Command::new("tcpdump")
        .args(["-nvv", "-tt", "-r", "-"])
        .stdin(input)
        .stderr(Stdio::piped())
        .output()
        .unwrap_or_else(|e| {
            panic!("cannot start tcpdump, the judge of this test: {e}; `make setup` installs it")
        });
    assert!(
        output.status.success(),
        "tcpdump: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut packets: BTreeMap<usize, String> = BTreeMap::new();
    let mut current = None;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let stamp = line
            .split(' ')
            .next()
            .and_then(|word| word.strip_prefix("1000000000."));
        if let Some(number) = stamp.and_then(|stamp| stamp.parse().ok()) {
            current = Some(number);
        }
        if let Some(number) = current {
            let text = packets.entry(number).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }
    packets
}

/// Numbers of the packets that log lines name: those that some rule matches.
fn matched(stderr: &str) -> BTreeSet<usize> {
    let number = |line: &str| -> Option<usize> {
        let mut words = line.split(' ').skip_while(|word| *word != "packet");
        words.nth(1)?.parse::<usize>().ok()?.checked_sub(1)
    };
    stderr.lines().filter_map(number).collect()
}

fn time(number: u64) -> u64 {
    EPOCH * 1_000_000_000 + number * 1_000
}

fn packets() -> Vec<Vec<u8>> {
    let mut frames = generated();
    // Plain ones with odd and even payloads, so that the arithmetic meets every alignment.
    for length in 0..24 {
        let payload: Vec<u8> = (0..length).map(|i: u8| i.wrapping_mul(37) | 1).collect();
        let ip4 = || {
            Frame::new()
                .ip4([10, 0, 0, 1], [192, 0, 2, 1])
                .payload(&payload)
        };
        let ip6 = || Frame::new().ip6([0x20; 16], [0xfd; 16]).payload(&payload);
        for frame in [ip4(), ip6(), ip4().vlan(5), ip6().vlan(6).vlan(7)] {
            let options = |frame: Frame| {
                frame
                    .tcp_option(2, &[5, 180])
                    .tcp_option(8, &[1; 8])
                    .tcp_option(34, &payload[..payload.len().min(6)])
            };
            frames.push(options(frame.clone().tcp(1024, 80)).build());
            frames.push(frame.clone().udp(1024, 53).build());
            frames.push(frame.icmp(if length % 2 == 0 { 128 } else { 8 }, 0).build());
        }
    }
    let mut captures = files(&root().join("tests/captures"));
    for folder in ["pcaps", "zeek-traces"] {
        captures.extend(
            weir_testdata::find(folder)
                .map(|folder| files(&folder))
                .unwrap_or_default(),
        );
    }
    for path in captures {
        let most = if long() { usize::MAX } else { MOST_PER_CAPTURE };
        frames.extend(ethernet(&path).unwrap_or_default().into_iter().take(most));
    }
    // tcpdump is silent about packets without a byte.
    frames.retain(|frame| !frame.is_empty());
    frames
}

fn generated() -> Vec<Vec<u8>> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = well_formed();
    (0..GENERATED)
        .map(|_| {
            strategy
                .new_tree(&mut runner)
                .expect("frames can be generated")
                .current()
        })
        .collect()
}

fn shown(received: &[u8], found: &[u8]) -> String {
    format!(
        "received {}\n  {}\nfound    {}\n  {}",
        summary(received),
        common::hex(received),
        summary(found),
        common::hex(found)
    )
}
