//! The classifier through the engines: rule sets that merge, prune and grow trees, a sample of packets each. Verdicts and the counter
//! of every rule must be the reference's, so match sets are compared, not just outcomes.
//!
//! Whole sets are compared with brute force in weir-classify; this is the proof that the data plane does what its model does.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use crate::common::{Coverage, Sample, disagreement, engines, policy};
use weir_engine::ReplayOptions;
use weir_packet::build::Frame;

#[test]
fn prefixes_ports_and_ranges() {
    let mut random = Random(1);
    let mut text = String::new();
    let mut frames = Vec::new();
    for _ in 0..600 {
        let (s, d) = (random.address(), random.address());
        let (sbits, dbits) = (8 + random.below(25), 8 + random.below(25));
        let port = random.below(60_000);
        let protocol = ["tcp", "udp"][random.below(2) as usize];
        let _ = write!(
            text,
            "ip-saddr {} ip-daddr {} ",
            network(s, sbits),
            network(d, dbits)
        );
        let _ = match random.below(4) {
            0 => writeln!(text, "{protocol}-dport {port} drop"),
            1 => writeln!(
                text,
                "{protocol}-dport {port}-{} drop",
                port + random.below(5000)
            ),
            2 => writeln!(text, "{protocol}-sport != {port} accept"),
            _ => writeln!(text, "ip-proto {protocol} accept"),
        };
        let frame = Frame::new().ip4(s, d);
        let port = (port + random.below(3)) as u16;
        frames.push(match protocol {
            "tcp" => frame.tcp(port, port).build(),
            _ => frame.udp(port, port).build(),
        });
    }
    text.push_str("all accept\n");
    agree("prefixes", &text, frames);
}

#[test]
fn classbench_sample() {
    let Some(folder) = weir_testdata::find("classbench") else {
        return;
    };
    for name in ["acl1_1000", "fw1_1000", "ipc1_1000"] {
        let file = folder.join(format!("{name}.gz"));
        let output = Command::new("gzip")
            .arg("-dc")
            .arg(&file)
            .output()
            .expect("gzip runs");
        assert!(output.status.success(), "cannot unpack {}", file.display());
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut random = Random(5);
        let mut text = String::new();
        let mut frames = Vec::new();
        for line in lines.lines().filter_map(|l| l.strip_prefix('@')) {
            let part: Vec<&str> = line.split_whitespace().collect();
            let _ = write!(text, "ip-saddr {} ip-daddr {} ", part[0], part[1]);
            let ports = match part[8] {
                "0x06/0xFF" => Some("tcp"),
                "0x11/0xFF" => Some("udp"),
                "0x00/0x00" => None,
                other => {
                    let number = other.split('/').next().unwrap_or_default();
                    let _ = write!(text, "ip-proto {number} ");
                    None
                }
            };
            if let Some(name) = ports {
                let _ = write!(text, "{name}-sport {}-{} ", part[2], part[4]);
                let _ = write!(text, "{name}-dport {}-{} ", part[5], part[7]);
            }
            text.push_str("drop\n");
            let port = |low: &str, high: &str, by: u64| {
                let (low, high): (u64, u64) =
                    (low.parse().expect("a port"), high.parse().expect("a port"));
                (low + by % (high - low + 1)) as u16
            };
            let frame = Frame::new().ip4(address(part[0]), address(part[1]));
            let (s, d) = (
                port(part[2], part[4], random.next()),
                port(part[5], part[7], random.next()),
            );
            frames.push(match ports {
                Some("udp") => frame.udp(s, d).build(),
                _ => frame.tcp(s, d).build(),
            });
        }
        agree(name, &text, frames);
    }
}

#[test]
fn options_and_ranges_of_options() {
    let mut random = Random(2);
    let mut text = String::new();
    for i in 0..400 {
        let lo = random.below(60_000);
        let _ = writeln!(text, "tcp-opt-mss {i} drop");
        let _ = writeln!(text, "tcp-opt-mss {lo}-{} drop", lo + random.below(900));
        let _ = writeln!(text, "tcp-opt-timestamp >= {} accept", random.next() >> 1);
    }
    let frames = (0..400)
        .map(|i| {
            let mss = if i % 2 == 0 {
                i as u16
            } else {
                random.next() as u16
            };
            Frame::new()
                .ip4([10, 0, 0, 1], [10, 0, 0, 2])
                .tcp(1, 2)
                .flags(Frame::SYN)
                .tcp_option(2, &mss.to_be_bytes())
                .tcp_option(8, &random.next().to_be_bytes())
                .build()
        })
        .collect();
    agree("options", &text, frames);
}

#[test]
fn ipv6_prefixes_and_interfaces() {
    let mut random = Random(3);
    let mut text = String::new();
    let mut frames = Vec::new();
    for i in 0..500 {
        let site = random.below(12);
        let host = random.below(200);
        let bits = [32, 48, 56, 64, 120, 128][random.below(6) as usize];
        let mut source = [0u8; 16];
        source[..4].copy_from_slice(&[0x20, 1, 0xd, site as u8]);
        source[5] = host as u8 & 7;
        source[15] = host as u8;
        let _ = write!(
            text,
            "ip6-saddr {}/{bits} ",
            std::net::Ipv6Addr::from(masked6(source, bits))
        );
        let _ = match i % 3 {
            0 => writeln!(text, "in eth{} udp-dport {} drop", i % 2, host),
            1 => writeln!(text, "! udp-dport {host}-{} accept", host + 9),
            _ => writeln!(text, "ip6-next udp drop"),
        };
        let frame = Frame::new().ip6(source, [9; 16]);
        frames.push(frame.udp(7, random.below(210) as u16).build());
    }
    agree("ipv6", &text, frames);
}

#[test]
fn one_rule_for_each_mask_and_many_for_one_key() {
    let mut random = Random(4);
    let mut text = String::new();
    let mut frames = Vec::new();
    for s in (1..=32).step_by(2) {
        for d in 1..=32 {
            let (from, to) = (random.address(), random.address());
            let _ = writeln!(
                text,
                "ip-saddr {} ip-daddr {} drop",
                network(from, s),
                network(to, d)
            );
            frames.push(Frame::new().ip4(from, to).udp(1, 2).build());
        }
    }
    agree("masks", &text, frames);

    let mut text = String::new();
    for i in 0..500u64 {
        let _ = writeln!(text, "tcp-dport {i}-{} drop", 65_535 - i * 20);
        let _ = writeln!(
            text,
            "ip-ttl {}-{} tcp-sport != {i} accept",
            i % 100,
            100 + i % 150
        );
    }
    let frames = (0..300)
        .map(|_| {
            let (s, d) = (random.below(600) as u16, random.next() as u16);
            Frame::new()
                .ip4([1; 4], [2; 4])
                .ttl(random.next() as u8)
                .tcp(s, d)
                .build()
        })
        .collect();
    agree("one key", &text, frames);
}

/// Runs the frames through every engine.
fn agree(name: &str, text: &str, frames: Vec<Vec<u8>>) {
    let policy = policy(text);
    let ports = ["eth0", "eth1"];
    let options = ReplayOptions {
        ports: (1u32..)
            .zip(ports)
            .map(|(number, name)| weir_functions::plan::Port {
                number,
                name: Some(name.to_owned()),
                index: number + 1,
            })
            .collect(),
        ..ReplayOptions::default()
    };
    let (_, bounds) = weir_functions::middlebox::plan(&policy, &options.ports)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let samples: Vec<Sample> = (0u32..)
        .zip(frames)
        .map(|(i, frame)| Sample {
            frame,
            now_ns: 0,
            port: i % 3,
            queue: 0,
        })
        .collect();
    let mut coverage = Coverage::default();
    if let Some(difference) = disagreement(&engines(), &policy, &options, &samples, &mut coverage) {
        panic!("{name}: {difference}");
    }
    say(&format!(
        "{name}: {} rules, {bounds:?}: {coverage}",
        policy.rules.len()
    ));
    assert!(
        coverage.to_string().contains("rule matches") && !coverage.to_string().contains(" 0 rule")
    );
}

fn say(text: &str) {
    // A note for whoever reads the test's output; nobody may.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn network(address: [u8; 4], bits: u64) -> String {
    let mask = u32::MAX.checked_shl(32 - bits as u32).unwrap_or(0);
    let network = u32::from_be_bytes(address) & mask;
    format!("{}/{bits}", std::net::Ipv4Addr::from(network))
}

fn masked6(address: [u8; 16], bits: u32) -> [u8; 16] {
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    (u128::from_be_bytes(address) & mask).to_be_bytes()
}

fn address(prefix: &str) -> [u8; 4] {
    let text = prefix.split('/').next().unwrap_or_default();
    text.parse::<std::net::Ipv4Addr>()
        .expect("an address")
        .octets()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn address(&mut self) -> [u8; 4] {
        ((self.next() as u32) % 0xd000_0000 + 0x0100_0000).to_be_bytes()
    }
}
