//! The policies of examples/jobs: each reads without errors and warnings, is planned, and does to the packets of examples/jobs/packets.txt what
//! its job asks for. Expectations there come from the job, not from weir.
//!
//! A table begins with `== NAME`. A line is `INTERFACE PROTOCOL SOURCE > DESTINATION WORDS => VERDICT WORDS`; packets of a table follow each
//! other, a second apart unless `t=MS` says otherwise. Words in front of the arrow: TCP flags, `ttl=`, `dscp=`, `vlan=`, `vlan2=`, `mss=`, `len=`
//! (payload), `data=HEX`, `type=`, `code=`, `frag=`, `opt=HEX`, `mac=`, `to-mac=`, `ether=`; behind it what the packet that passes has: `src=`, `dst=`, `ttl=`, `dscp=`,
//! `vlan=`, `pcp=`, `mss=`, `flags=`, `options=` (bytes of TCP options).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use weir_functions::middlebox;
use weir_functions::plan::Port;
use weir_packet::Verdict;
use weir_packet::build::Frame;
use weir_policy::model::{PortName, Test};
use weir_policy::reference::{Input, Meta, Options, PortId, Reference};
use weir_policy::{Parsed, parse_file};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs")
}

fn read(name: &str) -> Parsed {
    let path = folder().join(format!("{name}.weir"));
    let parsed = parse_file(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(parsed.warnings.is_empty(), "{}", parsed.warnings);
    parsed
}

#[test]
fn every_policy_does_its_job() {
    let table = std::fs::read_to_string(folder().join("packets.txt")).expect("a table");
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for section in table.split("\n== ").skip(1) {
        let (name, lines) = section.split_once('\n').expect("a name");
        assert!(seen.insert(name.to_owned()), "{name} stands twice");
        let parsed = read(name);
        planned(name, &parsed);
        let mut reference = Reference::new(parsed.policy.clone(), Options::default());
        let lines = lines.lines().filter(|line| line.contains("=>"));
        let mut verdicts = BTreeSet::new();
        let mut now_ns = 1_000_000_000_000;
        for (number, line) in (0..).zip(lines) {
            let (packet, expected) = line.split_once("=>").expect("an arrow");
            let one = packet_of(packet);
            now_ns += one.after_ms * 1_000_000;
            let outcome = reference.run(Input {
                frame: &one.frame,
                now_ns,
                number,
                port: PortId {
                    name: Some(&one.interface),
                    index: 1,
                },
                queue: 0,
                meta: Meta::default(),
            });
            let mut words = expected.split_whitespace();
            let verdict = match words.next().expect("a verdict") {
                "pass" => Verdict::Pass,
                "drop" => Verdict::Drop,
                "reject" => Verdict::Tx,
                other => panic!("{name}: {other}"),
            };
            verdicts.insert(verdict);
            if outcome.verdict != verdict {
                wrong.push(format!(
                    "{name}: {line}: {} {:?}, rules {:?}",
                    outcome.verdict, outcome.reasons, outcome.matched
                ));
                continue;
            }
            for word in words {
                if !has(&outcome.frame, word) {
                    wrong.push(format!(
                        "{name}: {line}: not {word}: {:02x?}",
                        outcome.frame
                    ));
                }
            }
        }
        // A table that expects the same of everything shows little.
        assert!(
            verdicts.len() > 1 || lines_rewrite(section),
            "{name}: one verdict and no rewriting"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(folder()).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "weir") {
            let name = path.file_stem().and_then(|n| n.to_str()).expect("a name");
            files.insert(name.to_owned());
            let text = std::fs::read_to_string(&path).expect("text");
            assert!(text.starts_with("# "), "{name} says what it is for");
        }
    }
    assert_eq!(files, seen, "each policy has a table");
    let page = std::fs::read_to_string(folder().join("../../docs/policies.md")).expect("a page");
    for name in &files {
        let text = std::fs::read_to_string(folder().join(format!("{name}.weir"))).expect("text");
        let head = text.lines().next().unwrap_or_default();
        let row = format!(
            "| [`{name}`](../examples/jobs/{name}.weir) | {} |",
            &head[2..]
        );
        assert!(page.contains(&row), "docs/policies.md has no row\n{row}");
    }
    assert!(files.len() >= 60, "{}", files.len());
}

fn lines_rewrite(section: &str) -> bool {
    section
        .lines()
        .filter_map(|line| line.split_once("=>"))
        .any(|(_, expected)| expected.contains('='))
}

/// What passes here runs: `weir check` plans policies likewise.
fn planned(name: &str, parsed: &Parsed) {
    let mut names: Vec<String> = Vec::new();
    for rule in &parsed.policy.rules {
        for one in &rule.matches {
            let Test::Port(ports) = &one.test else {
                continue;
            };
            for port in ports {
                if let PortName::Name(port) = port
                    && !names.contains(port)
                {
                    names.push(port.clone());
                }
            }
        }
    }
    let ports: Vec<Port> = (1..)
        .zip(names)
        .map(|(number, name)| Port {
            number,
            name: Some(name),
            index: u32::MAX,
        })
        .collect();
    if let Err(error) = middlebox::plan(&parsed.policy, &ports) {
        panic!("{name}: {error}");
    }
}

struct Packet {
    interface: String,
    frame: Vec<u8>,
    after_ms: u64,
}

fn packet_of(line: &str) -> Packet {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [
        interface,
        protocol,
        source,
        ">",
        destination,
        attributes @ ..,
    ] = words.as_slice()
    else {
        panic!("not a packet: {line}")
    };
    let value = |name: &str| {
        let found = attributes.iter().filter_map(|word| word.split_once('='));
        found.filter(|(n, _)| *n == name).map(|(_, v)| v).next()
    };
    let number =
        |name: &str| value(name).map(|v| v.parse::<u32>().unwrap_or_else(|_| panic!("{line}")));
    let mut frame = Frame::new();
    for tag in ["vlan", "vlan2"] {
        if let Some(id) = number(tag) {
            frame = frame.vlan(id as u16);
        }
    }
    if *protocol == "ether" {
        let kind = value("ether").expect("an EtherType");
        let kind = u16::from_str_radix(kind, 16).expect("hex");
        frame = frame.ether_type(kind).payload(&[0; 46]);
    } else {
        let ((from, sport), (to, dport)) = (end(source), end(destination));
        frame = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => frame.ip4(from.octets(), to.octets()).id(7),
            (IpAddr::V6(from), IpAddr::V6(to)) => frame.ip6(from.octets(), to.octets()),
            _ => panic!("two families: {line}"),
        };
        if let Some(ttl) = number("ttl") {
            frame = frame.ttl(ttl as u8);
        }
        if let Some(dscp) = number("dscp") {
            frame = frame.traffic_class((dscp << 2) as u8);
        }
        if let Some(options) = value("opt") {
            frame = frame.ip_options(&hex(options));
        }
        match value("frag") {
            Some("later") => frame = frame.fragment(100, false),
            Some("first") => frame = frame.fragment(0, true),
            _ => {}
        }
        let (kind, code) = (
            number("type").unwrap_or(8) as u8,
            number("code").unwrap_or(0) as u8,
        );
        let is_later = value("frag") == Some("later");
        frame = match *protocol {
            "tcp" | "udp" | "icmp" | "icmp6" if is_later => frame
                .protocol(match *protocol {
                    "tcp" => 6,
                    "udp" => 17,
                    "icmp" => 1,
                    _ => 58,
                })
                .payload(&[0; 64]),
            "tcp" => {
                // Of one side that began with 1000 and another that answered with 5000.
                let (seq, ack) = match flags(attributes) {
                    0x12 => (5000, 1001),
                    set if set & Frame::ACK != 0 => (1001, 5001),
                    _ => (1000, 0),
                };
                let mut frame = frame
                    .tcp(sport, dport)
                    .flags(flags(attributes))
                    .numbers(seq, ack);
                if let Some(mss) = number("mss") {
                    frame = frame.tcp_option(2, &(mss as u16).to_be_bytes());
                }
                frame
            }
            "udp" => frame.udp(sport, dport),
            "icmp" | "icmp6" => frame.icmp(kind, code).echo(1, 1),
            other => frame
                .protocol(other.parse().unwrap_or_else(|_| panic!("{other}: {line}")))
                .payload(&[0; 24]),
        };
        if let Some(length) = number("len") {
            frame = frame.payload(&vec![0; length as usize]);
        }
        if let Some(data) = value("data") {
            frame = frame.payload(&hex(data));
        }
    }
    let mut bytes = frame.build();
    for (name, at) in [("mac", 6), ("to-mac", 0)] {
        if let Some(mac) = value(name) {
            for (n, byte) in mac.split(':').enumerate() {
                bytes[at + n] = u8::from_str_radix(byte, 16).expect("a MAC address");
            }
        }
    }
    Packet {
        interface: (*interface).to_owned(),
        frame: bytes,
        after_ms: number("t").map_or(1000, u64::from),
    }
}

fn hex(digits: &str) -> Vec<u8> {
    let byte = |n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).expect("hex");
    (0..digits.len() / 2).map(byte).collect()
}

fn flags(words: &[&str]) -> u8 {
    let known = [
        ("syn", Frame::SYN),
        ("synack", Frame::SYN | Frame::ACK),
        ("ack", Frame::ACK),
        ("finack", Frame::FIN | Frame::ACK),
        ("rst", Frame::RST),
        ("null", 0),
        ("xmas", Frame::FIN | Frame::PSH | 0x20),
        ("synfin", Frame::SYN | Frame::FIN),
        ("ecn", Frame::SYN | 0x40 | 0x80),
    ];
    let found = known.iter().find(|(name, _)| words.contains(name));
    found.map_or(Frame::SYN, |(_, flags)| *flags)
}

/// `192.0.2.1:80`, `[2001:db8::1]:80`, or an address alone.
fn end(word: &str) -> (IpAddr, u16) {
    if let Ok(address) = word.parse() {
        return (address, 0);
    }
    let (address, port) = word.rsplit_once(':').unwrap_or_else(|| panic!("{word}"));
    let address = address.trim_matches(['[', ']']);
    let parsed = (address.parse(), port.parse());
    let (Ok(address), Ok(port)) = parsed else {
        panic!("not an address and port: {word}")
    };
    (address, port)
}

/// Whether a frame has a value, read without weir's parser.
fn has(frame: &[u8], word: &str) -> bool {
    let (name, wanted) = word.split_once('=').unwrap_or_else(|| panic!("{word}"));
    let short = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut at = 12;
    let mut tags = Vec::new();
    while matches!(short(at), 0x8100 | 0x88a8) {
        tags.push(short(at + 2));
        at += 4;
    }
    let is4 = short(at) == 0x0800;
    let ip = at + 2;
    let l4 = match is4 {
        true => ip + usize::from(frame[ip] & 15) * 4,
        false => ip + 40,
    };
    let number = || wanted.parse::<u16>().unwrap_or_else(|_| panic!("{word}"));
    let address = |four: usize, six: usize| -> IpAddr {
        match is4 {
            true => <[u8; 4]>::try_from(&frame[ip + four..ip + four + 4])
                .expect("4")
                .into(),
            false => <[u8; 16]>::try_from(&frame[ip + six..ip + six + 16])
                .expect("16")
                .into(),
        }
    };
    let is = |have: IpAddr, port: usize| {
        let (want, want_port) = end(wanted);
        have == want && (want_port == 0 || short(l4 + port) == want_port)
    };
    match name {
        "src" => is(address(12, 8), 0),
        "dst" => is(address(16, 24), 2),
        "ttl" => u16::from(frame[ip + if is4 { 8 } else { 7 }]) == number(),
        "dscp" if is4 => u16::from(frame[ip + 1] >> 2) == number(),
        "dscp" => (short(ip) >> 6) & 63 == number(),
        "ecn" if is4 => u16::from(frame[ip + 1] & 3) == number(),
        "vlan" => tags.first().map(|tag| tag & 0xfff) == Some(number()),
        "pcp" => tags.first().map(|tag| tag >> 13) == Some(number()),
        "flags" => u16::from(frame[l4 + 13]) == number(),
        "options" => usize::from(frame[l4 + 12] >> 4) * 4 - 20 == usize::from(number()),
        "mss" => short(l4 + 22) == number(),
        _ => panic!("{word}"),
    }
}
