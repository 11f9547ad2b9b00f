//! The three engines through the real program: equal JSON but for `engine`, byte-identical output captures, and the
//! flags of `weir replay` that say how packets came in.
//!
//! Without WEIR_LONG=1 only a sample of the captures of other projects is replayed, and each example policy meets a few of them. That engines agree
//! about every example and every capture, weir-engine/tests/captures_agree.rs shows, which loads a program once and not once a capture.

use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{Folder, Run, engines, examples, files, long, read_capture, root, weir};
use serde_json::{Value, json};
use weir_packet::build::Frame;

/// Captures taken from each folder of the shared data when the run is not a long one.
const SAMPLE: usize = 12;
/// Captures that a policy meets when the run is not a long one. They are dealt in turn, so that each capture meets several policies.
const DEALT: usize = 1;

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// Own captures, and those of the shared data: all, or some spread over them.
fn captures() -> Vec<PathBuf> {
    let is_capture = |path: &PathBuf| {
        let extension = path.extension().and_then(|e| e.to_str());
        matches!(extension, Some("pcap" | "pcapng" | "cap" | "trace"))
    };
    let mut all = files(&root().join("tests/captures"));
    all.retain(is_capture);
    for folder in ["pcaps", "zeek-traces"] {
        let Some(folder) = weir_testdata::find(folder) else {
            continue;
        };
        let mut found = files(&folder);
        found.retain(is_capture);
        let step = if long() {
            1
        } else {
            found.len().div_ceil(SAMPLE).max(1)
        };
        // A sample holds small files: large ones are what the long run is for.
        found.retain(|path| long() || path.metadata().is_ok_and(|m| m.len() < 200_000));
        all.extend(found.into_iter().step_by(step));
    }
    all
}

fn replay(policy: &Path, input: &Path, output: &Path, engine: &str, more: &[&str]) -> Run {
    let mut args = vec![
        "replay",
        text(policy),
        "--in",
        text(input),
        "--json",
        "--engine",
        engine,
    ];
    args.extend(["--out", text(output)]);
    args.extend(more);
    weir(args)
}

/// Replays in every engine and compares everything they leave; gives what the first said.
#[track_caller]
fn agreed(policy: &Path, input: &Path, more: &[&str], engines: &[&str]) -> (Run, Vec<u8>) {
    let folder = Folder::new();
    let mut first: Option<(Run, Value, Vec<u8>)> = None;
    for engine in engines {
        let output = folder.join("out.pcap");
        let run = replay(policy, input, &output, engine, more);
        let bytes = std::fs::read(&output).unwrap_or_default();
        let _ = std::fs::remove_file(&output);
        let mut report = if run.stdout.is_empty() {
            Value::Null
        } else {
            run.json()
        };
        if let Some(object) = report.as_object_mut() {
            assert_eq!(object.remove("engine"), Some(json!(engine)));
            balanced(&report, &run);
        }
        match &first {
            None => first = Some((run, report, bytes)),
            Some((wanted, wanted_report, wanted_bytes)) => {
                let what = format!(
                    "{engine}: {} on {} {more:?}",
                    policy.display(),
                    input.display()
                );
                assert_eq!(report, *wanted_report, "{what}");
                assert_eq!(
                    (run.status, &run.stderr),
                    (wanted.status, &wanted.stderr),
                    "{what}"
                );
                assert!(bytes == *wanted_bytes, "{what}: the output captures differ");
            }
        }
    }
    let (run, _, bytes) = first.expect("there are engines");
    (run, bytes)
}

/// The shape of the object, and its sums.
#[track_caller]
fn balanced(report: &Value, run: &Run) {
    let packets = &report["packets"];
    let number = |key: &str| {
        packets[key]
            .as_u64()
            .unwrap_or_else(|| panic!("no {key}: {run:?}"))
    };
    let verdicts: u64 = ["pass", "drop", "tx", "redirect", "aborted"]
        .into_iter()
        .map(number)
        .sum();
    assert_eq!(number("received"), verdicts, "{run:?}");
    assert_eq!(number("aborted"), 0, "{run:?}");
    for (n, rule) in (1_u64..).zip(report["rules"].as_array().expect("rules is a list")) {
        assert_eq!(rule["id"], n, "{run:?}");
        assert!(
            rule["packets"].is_u64() && rule["bytes"].is_u64() && rule.get("name").is_some(),
            "{run:?}"
        );
    }
    let reasons = report["reasons"].as_object().expect("reasons is an object");
    assert!(reasons.values().all(|n| n.as_u64() > Some(0)), "{run:?}");
}

#[test]
fn engines_say_the_same_about_real_captures() {
    let engines = engines();
    let (mut replayed, mut refused) = (0, 0);
    let captures = captures();
    let dealt = if long() { captures.len() } else { DEALT };
    for (at, policy) in examples().iter().enumerate() {
        let turn = captures.iter().cycle().skip(at * dealt);
        for capture in turn.take(dealt.min(captures.len())) {
            let (run, _) = agreed(
                policy,
                capture,
                &["--seed", "7", "--in-if", "eth0"],
                &engines,
            );
            match run.status {
                0 | 1 => replayed += 1,
                2 => {
                    assert_eq!(
                        (run.stdout.as_str(), run.stderr.lines().count()),
                        ("", 1),
                        "{run:?}"
                    );
                    refused += 1;
                }
                other => panic!("exit status {other}: {run:?}"),
            }
        }
    }
    assert!(replayed > 0 || captures.is_empty(), "nothing was replayed");
    common::say(&format!(
        "{engines:?} agree on {replayed} replays; {refused} captures were refused alike"
    ));
}

#[test]
fn other_link_types_are_refused_with_the_same_line() {
    let engines = engines();
    let folder = Folder::new();
    let policy = folder.write("p.weir", "all accept\n");
    let ethernet = std::fs::read(folder.capture("in.pcap", &[vec![0; 60]])).expect("just written");
    for (link_type, name) in [(105_u8, "105 (IEEE802_11)"), (239, "239 (NFLOG)")] {
        let mut bytes = ethernet.clone();
        bytes[20] = link_type;
        let capture = folder.write("other.pcap", bytes);
        let (run, written) = agreed(&policy, &capture, &[], &engines);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.contains(name), "{run:?}");
        assert!(written.is_empty(), "nothing is written");
    }
}

/// `tcpdump -i any`: the interface index of each packet is what `in N` names, what this host sent included; a packet that is cut in its link header
/// is counted by its reason; the output is Ethernet.
#[test]
fn a_cooked_capture_is_judged_by_every_engine() {
    let engines = engines();
    let folder = Folder::new();
    let policy = folder.write(
        "p.weir",
        "two: in 2 udp-dport 53 mod ip-ttl 9\nthree: in 3 drop\nv6: eth-type ip6 log\narp: eth-type arp log\n",
    );
    let ip = |port| {
        let frame = Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(port, 53)
            .build();
        frame[14..].to_vec()
    };
    let cooked = |protocol: [u8; 2], index: u8, sent: u8, packet: &[u8]| {
        let mut bytes = vec![
            protocol[0],
            protocol[1],
            0,
            0,
            0,
            0,
            0,
            index,
            0,
            1,
            sent,
            6,
        ];
        bytes.extend([2, 0, 0, 0, 0, index, 0, 0]);
        bytes.extend(packet);
        bytes
    };
    let packets = [
        cooked([8, 0], 2, 0, &ip(1)),
        cooked([8, 0], 3, 0, &ip(2)),
        cooked([8, 0], 2, 4, &ip(3)),
        cooked([8, 6], 4, 1, &[0; 28]),
        vec![8, 0, 0, 0, 0, 0, 0],
    ];
    let mut bytes = std::fs::read(folder.capture("in.pcap", &packets)).expect("just written");
    bytes[20..24].copy_from_slice(&276_u32.to_le_bytes());
    let capture = folder.write("any.pcap", bytes);
    let (run, written) = agreed(&policy, &capture, &[], &engines);
    assert_eq!(run.status, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    let rules: Vec<u64> = report["rules"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|rule| rule["packets"].as_u64().expect("a number"))
        .collect();
    assert_eq!(rules, [2, 1, 0, 1]);
    assert_eq!(report["reasons"]["frame_short"], 1);
    assert_eq!(report["reasons"]["rule_drop"], 1);
    let out = folder.write("out.pcap", written);
    let frames = read_capture(&out);
    let mut first = vec![0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 8, 0];
    first.extend(ip(1));
    first[14 + 8] = 9;
    assert_eq!(frames.len(), 3);
    assert_eq!(frames[0].1[..23], first[..23]);
    assert_eq!(frames[1].1[..14], first[..14], "sent by this host");
    assert_eq!(
        frames[2].1[..14],
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 4, 8, 6]
    );
    let said = weir([
        "explain",
        text(&policy),
        "--in",
        text(&capture),
        "--packet",
        "3",
        "--json",
    ]);
    let words = said.json();
    let rules = words["packets"][0]["rules"].as_array().expect("a list");
    let matched: Vec<bool> = rules.iter().map(|rule| rule["matched"] == true).collect();
    assert_eq!(matched, [true, false, false, false], "{said:?}");
    let said = weir(["replay", text(&policy), "--in", text(&capture)]);
    assert!(
        said.stdout.contains(
            "1 packet of the capture cut inside the header of the link type, counted as frame_short"
        ),
        "{said:?}"
    );
}

#[test]
fn interface_names_of_a_pcapng_file_are_matched_by_in() {
    let engines = engines();
    let folder = Folder::new();
    let policy = folder.write(
        "p.weir",
        "left: in eth0 mod ip-ttl 9\nright: in lan1 drop\nnot: in != eth0 log\nindex: in 1 log\n",
    );
    let frame = |port| {
        Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(port, 53)
            .build()
    };
    let packets = [(0, frame(1)), (1, frame(2)), (0, frame(3)), (2, frame(4))];
    let capture = folder.write(
        "in.pcapng",
        pcapng(&[Some("eth0"), Some("lan1"), None], &packets),
    );
    let (run, bytes) = agreed(&policy, &capture, &[], &engines);
    let rules = run.succeeded().json()["rules"].clone();
    let counted: Vec<u64> = (0..3)
        .map(|i| rules[i]["packets"].as_u64().expect("a number"))
        .collect();
    assert_eq!(counted, [2, 1, 2], "{rules}");
    assert_eq!(
        rules[3]["packets"], 1,
        "interfaces are numbered from 0: {rules}"
    );
    let out = read_capture(&folder.write("out.pcap", bytes));
    let ttls: Vec<u8> = out.iter().map(|(_, frame)| frame[22]).collect();
    assert_eq!(ttls, [9, 9, 64]);

    // --in-if names the interface of all packets, whatever the capture says.
    let (run, _) = agreed(&policy, &capture, &["--in-if", "lan1"], &engines);
    let report = run.succeeded().json();
    assert_eq!(report["packets"]["drop"], 4, "{report}");
    assert_eq!(report["rules"][0]["packets"], 0, "{report}");
}

#[test]
fn the_queue_is_matched() {
    let engines = engines();
    let folder = Folder::new();
    let policy = folder.write("p.weir", "queue 0 log\nqueue 3 drop\nqueue > 3 drop\n");
    let capture = folder.capture("in.pcap", &[vec![0; 60], vec![1; 60]]);
    for (queue, counted) in [
        ("0", [2, 0, 0]),
        ("3", [0, 2, 0]),
        ("65535", [0, 0, 2]),
        ("1", [0, 0, 0]),
    ] {
        let (run, _) = agreed(&policy, &capture, &["--queue", queue], &engines);
        let report = run.succeeded().json();
        for (i, wanted) in counted.into_iter().enumerate() {
            assert_eq!(
                report["rules"][i]["packets"], wanted,
                "--queue {queue}: {report}"
            );
        }
    }
}

#[test]
fn random_drops_follow_the_seed() {
    let engines = engines();
    let folder = Folder::new();
    let policy = folder.write("p.weir", "all drop 50%\n");
    let frames: Vec<Vec<u8>> = (0..200).map(|i| vec![i; 60]).collect();
    let capture = folder.capture("in.pcap", &frames);
    let survivors = |more: &[&str]| {
        let (run, bytes) = agreed(&policy, &capture, more, &engines);
        let report = run.succeeded().json();
        assert_eq!(
            report["rules"][0]["packets"], 200,
            "a rule counts what it matches: {report}"
        );
        read_capture(&folder.write("out.pcap", bytes))
    };
    let (zero, one) = (survivors(&["--seed", "0"]), survivors(&["--seed", "1"]));
    assert_eq!(zero, survivors(&[]), "the seed is 0 unless given");
    assert_eq!(
        one,
        survivors(&["--seed", "1"]),
        "the same seed, the same packets"
    );
    assert_ne!(zero, one, "another seed, other packets");
    for kept in [
        zero.len(),
        one.len(),
        survivors(&["--seed", "18446744073709551615"]).len(),
    ] {
        // 200 fair throws are outside of 60 to 140 once in 10^8.
        assert!(
            (60..=140).contains(&kept),
            "{kept} of 200 packets survived 50 %"
        );
    }
}

#[test]
fn growth_stops_at_the_mtu() {
    let engines = engines();
    let folder = Folder::new();
    let policy = folder.write("p.weir", "tcp-syn ! tcp-opt-mss add tcp-opt-mss 1460\n");
    let syn = |payload| {
        let frame = Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .tcp(1, 2)
            .flags(Frame::SYN);
        frame.payload(&vec![7; payload]).build()
    };
    let capture = folder.capture("in.pcap", &[syn(0), syn(1456), syn(1457), syn(1460)]);
    for (more, too_big) in [
        (&["--mtu", "1500"][..], json!({"too_big": 2})),
        (&[], json!({})),
    ] {
        let (run, bytes) = agreed(&policy, &capture, more, &engines);
        let report = run.succeeded().json();
        assert_eq!(report["reasons"], too_big, "{more:?}: {report}");
        let out = read_capture(&folder.write("out.pcap", bytes));
        let lengths: Vec<usize> = out.iter().map(|(_, frame)| frame.len() - 14).collect();
        let last = if more.is_empty() {
            [1501, 1504]
        } else {
            [1497, 1500]
        };
        assert_eq!(lengths, [44, 1500, last[0], last[1]], "{more:?}");
    }
}

#[test]
fn unfinished_checksums_are_known_in_mode_offloaded_only() {
    let engines = engines();
    let folder = Folder::new();
    let policy = folder.write("p.weir", "udp-dport 53 mod udp-dport 54\n");
    let frame = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 53)
        .payload(b"abc")
        .unfinished()
        .build();
    let capture = folder.capture("in.pcap", std::slice::from_ref(&frame));
    for (mode, changes) in [("offloaded", false), ("complete", true)] {
        let (run, bytes) = agreed(&policy, &capture, &["--checksums", mode], &engines);
        run.succeeded();
        let out = read_capture(&folder.write("out.pcap", bytes));
        assert_eq!(out[0].1[36..38], 54_u16.to_be_bytes());
        assert_eq!(out[0].1[40..42] != frame[40..42], changes, "{mode}");
    }
}

#[test]
fn packets_keep_their_timestamps_and_their_length_on_the_wire() {
    let engines = engines();
    let folder = Folder::new();
    let policy = folder.write("p.weir", "tcp-syn strip all\n");
    let frame = Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .tcp(1, 2)
        .flags(Frame::SYN)
        .tcp_option(2, &[5, 180])
        .build();
    let capture = folder.join("in.pcap");
    let times = [1_700_000_000_123_456_789, 1_700_000_000_123_456_790, 5];
    common::write_capture(&capture, times.map(|time| (time, frame.as_slice())));
    let (run, bytes) = agreed(&policy, &capture, &[], &engines);
    run.succeeded();
    let out = read_capture(&folder.write("out.pcap", bytes));
    assert_eq!(out.iter().map(|(time, _)| *time).collect::<Vec<_>>(), times);
    assert!(out.iter().all(|(_, after)| after.len() == frame.len() - 4));
}

/// A little-endian pcapng file of Ethernet interfaces, with or without names, and enhanced packet blocks.
fn pcapng(interfaces: &[Option<&str>], packets: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    // Byte order magic, version 1.0, unknown section length.
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    block(&mut file, 0x0a0d_0d0a, &section);
    for name in interfaces {
        // Link type Ethernet, reserved, no snap length; option 2 is if_name.
        let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0];
        if let Some(name) = name {
            body.extend(2_u16.to_le_bytes());
            body.extend((name.len() as u16).to_le_bytes());
            body.extend(name.as_bytes());
            body.resize(body.len().next_multiple_of(4), 0);
            body.extend([0; 4]);
        }
        block(&mut file, 1, &body);
    }
    for (time, (interface, frame)) in (1_000_000_u32..).zip(packets) {
        let mut body = interface.to_le_bytes().to_vec();
        for word in [0, time, frame.len() as u32, frame.len() as u32] {
            body.extend(word.to_le_bytes());
        }
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        block(&mut file, 6, &body);
    }
    file
}

fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let length = (body.len() as u32 + 12).to_le_bytes();
    file.extend(kind.to_le_bytes());
    file.extend(length);
    file.extend(body);
    file.extend(length);
}
