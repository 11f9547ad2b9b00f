//! Function `filter` against xdp-filter of xdp-tools on equal rules: the same verdicts on 100,000 random packets.
//!
//! xdp-filter's own objects, as Debian's package installs them, run in the kernel with their maps filled; the filter runs in every engine, as
//! the one function of a graph. Both deny what an entry names, or allow only that. The packets are well-formed and whole, because the two
//! judge others differently on purpose (docs/filter.md): of a malformed packet xdp-filter says XDP_ABORTED where weir drops it with its
//! reason, of a later fragment it takes the first payload bytes for ports, it gives up on frames with more than six IPv6 extension headers,
//! and it does not take 0x9100 for a VLAN tag. MAC addresses, which xdp-filter knows, are no business of the filter.
//! Needs root, and the package; says when it skips.

#![allow(
    clippy::print_stderr,
    reason = "what is skipped is said where the test runs"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::common;
use crate::common::Sample;
use crate::graph::{agree, chained, instance};
use weir_engine::EngineKind;
use weir_engine::edge::replay::GraphOptions;
use weir_functions::kind::{self, Files, Request};
use weir_graph::Target;
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_packet::Verdict;

const PACKETS: usize = 100_000;
/// Packets for each of the objects that know one kind of entry only.
const FEW: usize = 5_000;

/// `MAP_FLAG_*` of xdp-filter's maps.
const SRC: u64 = 1;
const DST: u64 = 2;
const TCP: u64 = 4;
const UDP: u64 = 8;

#[test]
fn equal_rules_give_equal_verdicts() {
    let engines = common::engines();
    if !engines.contains(&EngineKind::Kernel) {
        return;
    }
    let Some(folder) = installed() else {
        return;
    };
    let mut random = Random(0x5eed);
    let samples: Vec<Sample> = (0..PACKETS).map(|_| packet(&mut random)).collect();
    // The names say what becomes of packets that no entry names.
    for policy in ["alw", "dny"] {
        for features in ["all", "ip", "tcp", "udp"] {
            let rules = Rules::drawn(&mut random, features);
            let count = if features == "all" { PACKETS } else { FEW };
            let samples = &samples[..count];
            let file = folder.join(format!("xdpfilt_{policy}_{features}.o"));
            let theirs = answers(&file, &rules, samples);
            let ours = ours(&engines, &rules, policy == "alw", samples)
                .unwrap_or_else(|e| panic!("{policy} {features}: {e}"));
            let mut passed = 0;
            for (i, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
                let frame = &samples[i].frame;
                assert_eq!(
                    verdict(*theirs),
                    Some(*ours),
                    "{policy} {features}, packet {i}: xdp-filter, then weir; {}\n{frame:02x?}\n{rules:?}",
                    weir_packet::summary(frame)
                );
                passed += usize::from(*theirs == PASS);
            }
            eprintln!(
                "xdpfilt_{policy}_{features}.o and filter on {engines:?}: the same verdicts on {count} packets, {passed} pass"
            );
            let dropped = count - passed;
            assert!(
                passed > count / 20 && dropped > count / 20,
                "{passed} of {count} pass"
            );
        }
    }
}

/// What the list at the head of this file says, seen.
#[test]
fn where_the_two_differ_on_purpose() {
    let engines = common::engines();
    if !engines.contains(&EngineKind::Kernel) {
        return;
    }
    let Some(folder) = installed() else {
        return;
    };
    let mut rules = Rules::default();
    rules.ports.insert(53, DST | UDP);
    let udp = [0, 9, 0, 53, 0, 8, 0, 0];
    let ip4 = |fragment: u8, total: u8| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, total, 0, 7, 0, fragment, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(udp);
        frame
    };
    let ip6 = |headers: usize| {
        let mut frame = vec![2; 12];
        let length = (8 * headers + 8) as u8;
        let first = if headers > 0 { 60 } else { 17 };
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, first, 64]);
        frame.extend([1; 32]);
        for i in 1..=headers {
            frame.extend([if i < headers { 60 } else { 17 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame.extend(udp);
        frame
    };
    let mut tagged = ip4(0, 28);
    tagged.splice(12..12, [0x91, 0x00, 0, 5]);
    let mut cut = ip4(0, 28);
    cut.truncate(14 + 20 + 4);
    let cases = [
        ("whole", ip4(0, 28), DROP, Verdict::Drop),
        ("later fragment", ip4(9, 28), DROP, Verdict::Pass),
        ("no whole UDP header", cut, ABORTED, Verdict::Drop),
        ("IHL without room", ip4(0, 19), DROP, Verdict::Drop),
        ("six extension headers", ip6(5), DROP, Verdict::Drop),
        ("eight extension headers", ip6(7), ABORTED, Verdict::Drop),
        ("tag 0x9100", tagged, PASS, Verdict::Drop),
    ];
    let samples: Vec<Sample> = cases
        .iter()
        .map(|(_, frame, ..)| Sample {
            frame: frame.clone(),
            now_ns: 0,
            port: 1,
            queue: 0,
        })
        .collect();
    let theirs = answers(&folder.join("xdpfilt_alw_all.o"), &rules, &samples);
    let ours = ours(&engines, &rules, true, &samples).unwrap_or_else(|e| panic!("{e}"));
    for (i, (what, _, wanted, own)) in cases.iter().enumerate() {
        assert_eq!((theirs[i], ours[i]), (*wanted, *own), "{what}");
    }
}

/// `enum xdp_action`.
const ABORTED: u32 = 0;
const DROP: u32 = 1;
const PASS: u32 = 2;

fn verdict(action: u32) -> Option<Verdict> {
    match action {
        DROP => Some(Verdict::Drop),
        PASS => Some(Verdict::Pass),
        _ => None,
    }
}

/// What the filter says of each packet, in every engine.
fn ours(
    engines: &[EngineKind],
    rules: &Rules,
    denies: bool,
    samples: &[Sample],
) -> Result<Vec<Verdict>, String> {
    let plan = kind::plan(
        "filter",
        &Request {
            name: "it",
            keys: &rules.configuration(denies),
            files: &NoFiles,
            ports: &[],
            transmits: false,
        },
    );
    let plan = plan.map_err(|e| format!("{e}: {:?}", e.advice))?.instance;
    let filter = chained(vec![instance("it", plan, Target::Stack)], Target::Stack);
    let said = agree(engines, &filter, &GraphOptions::default(), samples)?;
    Ok(said.outcomes.iter().map(|o| o.verdict).collect())
}

/// Entries of both programs: flags as xdp-filter has them.
#[derive(Debug, Default)]
struct Rules {
    addresses: BTreeMap<IpAddr, u64>,
    ports: BTreeMap<u16, u64>,
}

impl Rules {
    fn drawn(random: &mut Random, features: &str) -> Rules {
        let mut rules = Rules::default();
        if matches!(features, "all" | "ip") {
            for _ in 0..24 {
                let is_ip4 = random.below(2) == 0;
                let address = random.address(is_ip4);
                *rules.addresses.entry(address).or_default() |= 1 + random.below(3);
            }
        }
        let protocols = match features {
            "all" => TCP | UDP,
            "tcp" => TCP,
            "udp" => UDP,
            _ => 0,
        };
        if protocols != 0 {
            for _ in 0..12 {
                let protocol = [TCP, UDP, TCP | UDP][random.below(3) as usize] & protocols;
                let flags =
                    (1 + random.below(3)) | if protocol == 0 { protocols } else { protocol };
                *rules.ports.entry(random.port()).or_default() |= flags;
            }
        }
        rules
    }

    /// The same for weir.
    fn configuration(&self, denies: bool) -> toml::Table {
        let verb = if denies { "deny" } else { "allow" };
        let mut rules = BTreeSet::new();
        for (address, flags) in &self.addresses {
            for (flag, side) in [(SRC, "from"), (DST, "to")] {
                if flags & flag != 0 {
                    rules.insert(format!("{verb} {side} {address}"));
                }
            }
        }
        for (port, flags) in &self.ports {
            for (flag, side) in [(SRC, "from-port"), (DST, "to-port")] {
                for (protocol, name) in [(TCP, "tcp"), (UDP, "udp")] {
                    if flags & flag != 0 && flags & protocol != 0 {
                        rules.insert(format!("{verb} {name} {side} {port}"));
                    }
                }
            }
        }
        let mut text = String::from("rules = [\n");
        for rule in rules {
            let _ = writeln!(text, "  {rule:?},");
        }
        text.push_str("]\n");
        if !denies {
            text.push_str("default = \"drop\"\nother = \"drop\"\n");
        }
        text.parse().expect("TOML")
    }

    /// Puts the entries into xdp-filter's maps; objects have those of their features only.
    fn fill(&self, program: &LoadedProgram) {
        let has = |map: &str| program.map_names().contains(&map);
        for (address, flags) in &self.addresses {
            let (map, key) = match address {
                IpAddr::V4(a) => ("filter_ipv4", a.octets().to_vec()),
                IpAddr::V6(a) => ("filter_ipv6", a.octets().to_vec()),
            };
            program
                .update(map, &key, &flags.to_ne_bytes(), 0)
                .expect("there is room");
        }
        for (port, flags) in &self.ports {
            assert!(has("filter_ports"));
            // The program looks a port up as it stands in the packet.
            let key = u32::from(port.to_be());
            program
                .update("filter_ports", &key.to_ne_bytes(), &flags.to_ne_bytes(), 0)
                .expect("in range");
        }
    }
}

/// What xdp-filter answers to each packet.
fn answers(file: &Path, rules: &Rules, samples: &[Sample]) -> Vec<u32> {
    let shown = file.display();
    let elf = std::fs::read(file).unwrap_or_else(|e| panic!("{shown}: {e}"));
    let object = KernelObject::open(&elf).unwrap_or_else(|e| panic!("{shown}: {e}"));
    let name = object.programs().into_iter().next();
    let name = name.unwrap_or_else(|| panic!("{shown} has no program"));
    let mut program = object
        .load(&name)
        .unwrap_or_else(|e| panic!("{shown}: {e}"));
    rules.fill(&program);
    let mut out = Vec::new();
    samples
        .iter()
        .map(|sample| {
            let ran = program.test_run(&sample.frame, &mut out, TestCtx::default());
            ran.unwrap_or_else(|e| panic!("{shown}: {e}")).retval
        })
        .collect()
}

/// A whole, well-formed packet with addresses and ports from small pools, so that entries are often met.
fn packet(random: &mut Random) -> Sample {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for _ in 0..[0, 0, 0, 1, 2][random.below(5) as usize] {
        frame.extend([[0x81, 0x00], [0x88, 0xa8]][random.below(2) as usize]);
        frame.extend((random.next() as u16).to_be_bytes());
    }
    let protocol = [6u8, 6, 6, 17, 17, 17, 1, 58, 132, 47][random.below(10) as usize];
    let mut payload = vec![0; random.below(40) as usize];
    payload.iter_mut().for_each(|b| *b = random.next() as u8);
    let l4 = transport(random, protocol, &payload);
    match random.below(20) {
        0 => {
            frame.extend([[0x08, 0x06], [0x88, 0xb5], [0x88, 0xcc]][random.below(3) as usize]);
            frame.extend(l4);
        }
        1..10 => {
            frame.extend([0x86, 0xdd]);
            let headers = extensions(random, protocol);
            let first = headers.first().map_or(protocol, |(kind, _)| *kind);
            let length = l4.len() + headers.iter().map(|(_, h)| h.len()).sum::<usize>();
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((length as u16).to_be_bytes());
            frame.extend([first, 64]);
            for _ in 0..2 {
                if let IpAddr::V6(a) = random.address(false) {
                    frame.extend(a.octets());
                }
            }
            frame.extend(headers.into_iter().flat_map(|(_, h)| h));
            frame.extend(l4);
        }
        _ => {
            frame.extend([0x08, 0x00]);
            let options = [0, 0, 0, 4, 12, 40][random.below(6) as usize];
            let total = (20 + options + l4.len()) as u16;
            frame.extend([0x45 + (options / 4) as u8, 0]);
            frame.extend(total.to_be_bytes());
            // "Do not fragment" or nothing: never a fragment.
            frame.extend([
                0,
                7,
                [0, 0x40][random.below(2) as usize],
                0,
                64,
                protocol,
                0,
                0,
            ]);
            for _ in 0..2 {
                if let IpAddr::V4(a) = random.address(true) {
                    frame.extend(a.octets());
                }
            }
            frame.extend(std::iter::repeat_n(1, options));
            frame.extend(l4);
        }
    }
    Sample {
        frame,
        now_ns: 0,
        port: 1,
        queue: 0,
    }
}

fn transport(random: &mut Random, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut l4 = Vec::new();
    if matches!(protocol, 6 | 17 | 132) {
        l4.extend(random.port().to_be_bytes());
        l4.extend(random.port().to_be_bytes());
    }
    match protocol {
        6 => {
            let options = 4 * random.below(5) as usize;
            l4.extend([0; 8]);
            l4.extend([((20 + options) / 4 * 16) as u8, random.next() as u8]);
            l4.extend([0; 6]);
            l4.extend(std::iter::repeat_n(1, options));
        }
        17 => {
            l4.extend((8 + payload.len() as u16).to_be_bytes());
            l4.extend([0; 2]);
        }
        _ => l4.extend([0; 8]),
    }
    l4.extend(payload);
    l4
}

/// Extension headers in front of `protocol`, each with its kind: hop-by-hop, destination, routing.
fn extensions(random: &mut Random, protocol: u8) -> Vec<(u8, Vec<u8>)> {
    let count = [0, 0, 0, 1, 2, 3][random.below(6) as usize];
    let kinds = [0u8, 60, 43];
    (0..count)
        .map(|i| {
            let next = match i + 1 < count {
                true => kinds[i + 1],
                false => protocol,
            };
            let length = random.below(3) as u8;
            let mut header = vec![next, length];
            header.resize(8 * (usize::from(length) + 1), 0);
            (kinds[i], header)
        })
        .collect()
}

/// splitmix64.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn port(&mut self) -> u16 {
        const PORTS: [u16; 16] = [
            0, 22, 53, 80, 123, 179, 443, 500, 1024, 1812, 3478, 4789, 5060, 8080, 33_434, 65_535,
        ];
        PORTS[self.below(16) as usize]
    }

    fn address(&mut self, is_ip4: bool) -> IpAddr {
        let host = self.below(40) as u16;
        match is_ip4 {
            true => IpAddr::V4(Ipv4Addr::new(10, 0, (host / 16) as u8, host as u8)),
            false => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, host / 16, 0, 0, 0, host)),
        }
    }
}

struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Where xdp-filter's objects are on this machine.
fn installed() -> Option<PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu/bpf",
        "/usr/lib/bpf",
        "/usr/lib64/bpf",
    ];
    let found = folders
        .iter()
        .map(PathBuf::from)
        .find(|f| f.join("xdpfilt_dny_all.o").exists());
    if found.is_none() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "in CI the objects of xdp-tools must be there: scripts/setup installs them"
        );
        eprintln!("the package xdp-tools is not installed: its filter is skipped");
    }
    found
}
