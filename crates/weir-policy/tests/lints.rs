//! Lints: rules that never match are found, and nothing else is taken for one. The reference is the judge: no packet passes all tests of a rule that
//! was called impossible.

use std::path::{Path, PathBuf};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use weir_packet::generate::well_formed;
use weir_policy::field::{Field, Kind};
use weir_policy::model::Rule;
use weir_policy::reference::{Input, PortId, matches};
use weir_policy::{Diagnostics, NoFiles, PolicyError, Severity, Source, parse, parse_file};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is said of a policy, errors or else warnings.
fn said(text: &str) -> Diagnostics {
    match parse(&Source::new("p.weir", text), &NoFiles) {
        Ok(parsed) => parsed.warnings,
        Err(errors) => errors,
    }
}

fn is_impossible(text: &str) -> bool {
    said(text)
        .iter()
        .any(|one| one.message.contains("never matches"))
}

/// All files with policies of the project.
fn policies() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = ["examples", "tests/cases"]
        .map(|name| root().join(name))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{e}")) {
            let path = entry.unwrap_or_else(|e| panic!("{e}")).path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "weir") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Golden cases are packets and rules for one sentence of the semantics, not policies for a network; what is said of them is true. That many
/// end in `all drop` and take ARP is not listed.
const SAID_OF_CASES: &[(&str, &str)] = &[
    (
        "connections/fragments",
        "this is true for every packet that has `udp-dport`",
    ),
    ("meaning/absent-field", "this rule is the same as rule 1"),
    ("meaning/absent-field", "this rule is the same as rule 3"),
    ("meaning/absent-field", "this rule is the same as rule 3"),
    (
        "meaning/accept-beats-drop",
        "only the first fragment of a packet has ports: rule 1 drops the later ones",
    ),
    (
        "meaning/accept-beats-drop",
        "this `drop` has no effect: rule 3 accepts every packet of this rule",
    ),
    (
        "meaning/offloaded",
        "only the first fragment of a packet has ports: later ones keep their addresses, and the packet is lost",
    ),
    (
        "meaning/offloaded",
        "this adds an option to segments with data, and full ones have no room for it",
    ),
    (
        "meaning/reject",
        "only the first fragment of a packet has ports: rule 12 drops the later ones",
    ),
    (
        "meaning/rule-order",
        "`ip-ttl` is written again behind this",
    ),
    (
        "meaning/udp-without-checksum",
        "only the first fragment of a packet has ports: later ones keep their addresses, and the packet is lost",
    ),
    (
        "mmb-defects/same-key-two-verdicts",
        "this `drop` has no effect: rule 2 accepts every packet of this rule",
    ),
];

/// Examples have no warnings (`documents`); of golden cases exactly this is said.
#[test]
fn nothing_false_is_said_of_the_policies_of_the_project() {
    let all = policies();
    assert!(all.len() > 90, "{}", all.len());
    let mut found = Vec::new();
    for path in all {
        let case = std::fs::read_to_string(path.with_file_name("case.toml")).unwrap_or_default();
        let warnings = match parse_file(&path) {
            Ok(parsed) => parsed.warnings,
            Err(PolicyError::Invalid(_)) if case.contains("refused = ") => continue,
            Err(error) => panic!("{}\n{error}", path.display()),
        };
        let name = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy();
        let name = name
            .trim_start_matches("tests/cases/")
            .trim_end_matches("/policy.weir");
        let is_listed = |message: &str| !message.starts_with("this `drop` takes ARP");
        found.extend(
            warnings
                .iter()
                .filter(|one| is_listed(&one.message))
                .map(|one| (name.to_owned(), one.message.clone())),
        );
    }
    let expected: Vec<(String, String)> = (SAID_OF_CASES.iter())
        .map(|&(name, message)| (name.to_owned(), message.to_owned()))
        .collect();
    assert_eq!(found, expected);
}

/// Tests of every field, with values that generated packets have.
fn tests_of_fields() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for field in Field::all() {
        let info = field.info();
        let name = info.name;
        match info.kind {
            Kind::All | Kind::OutPort => continue,
            Kind::InPort => {
                all.extend(["eth0", "eth1", "!= eth0", "1", "2"].map(|v| format!("in {v}")));
                continue;
            }
            Kind::Payload => {
                all.extend([
                    name.to_owned(),
                    format!("! {name}"),
                    format!("{name} == x41"),
                    format!("{name} != x41"),
                    format!("{name}[1] == x0000"),
                    format!("{name}[1] != x00"),
                ]);
                continue;
            }
            _ => {}
        }
        all.extend([name.to_owned(), format!("! {name}")]);
        let values: &[u32] = match name {
            "net-proto" => &[],
            "eth-type" => &[0x0800, 0x86dd, 0x0806, 0x8100],
            "ip-ver" | "ip6-ver" => &[4, 6],
            "ip-ihl" | "tcp-offset" => &[4, 5, 6, 15],
            "ip-proto" | "ip6-next" => &[6, 17, 1, 58, 47, 44, 0],
            "ip-ttl" | "ip6-hop-limit" => &[0, 1, 64],
            "ip-len" | "ip6-len" | "udp-len" => &[7, 19, 20, 28, 40, 60],
            "tcp-flags" => &[2, 16, 18, 0],
            "ip-flags" => &[0, 1, 2],
            "icmp-type" | "icmp6-type" => &[8, 0, 128, 135],
            "ip-frag-offset" | "ip6-frag-offset" => &[0, 1, 5],
            _ if name.ends_with("port") => &[80, 443, 1024],
            _ => &[0, 1, 2],
        };
        match info.kind {
            Kind::NetProto => all.extend(["ip4", "ip6", "!= ip4"].map(|v| format!("{name} {v}"))),
            Kind::Number if name == "hour" => all.extend(
                ["00:00", "08:00-17:00", "!= 22:00-06:00", "< 12:00"]
                    .map(|v| format!("{name} {v}")),
            ),
            Kind::Number => {
                let max = (1u64 << info.bits) - 1;
                for value in values.iter().filter(|v| u64::from(**v) <= max) {
                    all.extend([format!("{name} {value}"), format!("! {name} {value}")]);
                }
                all.extend([format!("{name} < 2"), format!("{name} >= 2")]);
            }
            Kind::Addr4 => all.extend(
                ["10.0.0.1", "10.0.0.0/30", "!= 10.0.0.0/24", "192.0.2.0/28"]
                    .map(|v| format!("{name} {v}")),
            ),
            Kind::Addr6 => all.extend(
                [
                    "2001:db8::1",
                    "2001:db8::/126",
                    "!= 2001:db8::/64",
                    "fe80::/10",
                ]
                .map(|v| format!("{name} {v}")),
            ),
            Kind::TcpOption(Some(kind)) if kind != 4 => {
                all.extend(["== 1", "!= 1", "> 100", "<= 7"].map(|v| format!("{name} {v}")));
                if ![2, 3, 8].contains(&kind) {
                    all.extend(["== x01", "!= x01", "== x0102"].map(|v| format!("{name} {v}")));
                }
            }
            _ => {}
        }
    }
    all
}

/// Bits, one for each packet.
type Bits = Vec<u64>;

/// Which of many packets pass a test alone.
struct Sample {
    tests: Vec<String>,
    passed: Vec<Bits>,
}

impl Sample {
    fn take(packets: usize) -> Sample {
        let mut runner = TestRunner::deterministic();
        let strategy = well_formed();
        let frames: Vec<Vec<u8>> = (0..packets)
            .map(|_| strategy.new_tree(&mut runner).expect("a frame").current())
            .collect();
        let (mut tests, mut passed) = (Vec::new(), Vec::new());
        for text in tests_of_fields() {
            let rule: Rule = match parse(&Source::new("one", format!("{text} drop")), &NoFiles) {
                Ok(parsed) => parsed.policy.rules[0].clone(),
                // Impossible alone: `! eth-type`.
                Err(errors) => {
                    assert!(errors.to_string().contains("never matches"), "{errors}");
                    continue;
                }
            };
            let mut bits = vec![0; packets.div_ceil(64)];
            for (n, frame) in frames.iter().enumerate() {
                let port = [("eth0", 1), ("eth1", 2)][n % 2];
                let input = Input {
                    port: PortId {
                        name: Some(port.0),
                        index: port.1,
                    },
                    queue: (n % 3) as u16,
                    ..Input::new(frame)
                };
                if matches(&rule, &input) {
                    bits[n / 64] |= 1 << (n % 64);
                }
            }
            tests.push(text);
            passed.push(bits);
        }
        Sample { tests, passed }
    }

    /// Whether some packet passes all of these tests.
    fn passes(&self, tests: &[usize]) -> bool {
        let words = self.passed[0].len();
        (0..words).any(|word| tests.iter().fold(!0, |all, &t| all & self.passed[t][word]) != 0)
    }

    fn rule(&self, tests: &[usize]) -> String {
        let words: Vec<&str> = tests.iter().map(|&t| self.tests[t].as_str()).collect();
        format!("{} drop", words.join(" "))
    }
}

/// Rules that are contradictory by construction, of every field that has values: all are found.
#[test]
fn contradictions_are_found() {
    let mut made: Vec<String> = Vec::new();
    let tests = tests_of_fields();
    let starts = |text: &String, name: &str| {
        text.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' '))
    };
    for field in Field::all() {
        let info = field.info();
        let name = info.name;
        // A test and its negation.
        let own = tests
            .iter()
            .filter(|text| starts(text, name) && !text.contains("!="));
        let own: Vec<&String> = own.collect();
        made.extend(own.iter().map(|text| format!("{text} ! {text}")));
        // Two values, or two ranges that do not meet.
        if !matches!(info.kind, Kind::Payload | Kind::TcpOption(_)) {
            let values = own
                .iter()
                .filter(|t| t.split(' ').count() == 2 && !t.contains('/'));
            let values: Vec<&&String> = values.collect();
            made.extend(
                values
                    .windows(2)
                    .filter(|w| name != "in" || w[0].len() == w[1].len())
                    .map(|w| format!("{} {}", w[0], w[1])),
            );
        }
        match info.kind {
            Kind::Number if name == "hour" => made.extend([
                format!("{name} < 08:00 {name} > 17:00"),
                format!("{name} 22:00-06:00 {name} 06:00:01-21:59"),
            ]),
            Kind::Number if info.bits > 2 => made.extend([
                format!("{name} < 3 {name} > 3"),
                format!("{name} in {{ 1, 2 }} {name} in {{ 3-5 }}"),
                format!("{name} 4 {name} != 2-6"),
            ]),
            Kind::Payload => made.extend([
                format!("{name}[3] == x4142 {name}[4] == x41"),
                format!("{name}[3] == x4142 {name}[4] != x42"),
                format!("! {name} {name}[3] == x41"),
            ]),
            Kind::TcpOption(Some(kind)) if ![2, 3, 4, 8].contains(&kind) => made.extend([
                format!("{name} == x0102 {name} == x02"),
                format!("{name} == x0102 {name} != x01"),
                format!("{name} == x01 {name} == 512"),
                format!("{name} == x010203040506070809 {name} > 5"),
            ]),
            _ => {}
        }
        // Presence.
        if !matches!(name, "all" | "in" | "out") {
            made.push(format!("{name} ! {name}"));
        }
        // Another header.
        let other = match name.split('-').next() {
            Some("tcp") => "ip-proto udp",
            Some("udp") => "ip6-next icmp6",
            Some("icmp") => "eth-type ip6",
            Some("icmp6") => "net-proto ip4",
            Some("ip") => "eth-type ip6",
            Some("ip6") => "net-proto ip4",
            Some("vlan" | "vlan2") if name != "vlan" => "! vlan",
            _ => continue,
        };
        made.push(format!("{name} {other}"));
        if ["tcp", "udp", "icmp", "icmp6"].contains(&name.split('-').next().unwrap_or_default()) {
            made.extend([
                format!("{name} frag-later"),
                format!("{name} ! net-proto"),
                format!("{name} ip6-eh-esp"),
            ]);
        }
    }
    let missed: Vec<&String> = made
        .iter()
        .filter(|text| {
            let text = format!("{text} log");
            !is_impossible(&text)
                && !said(&text)
                    .iter()
                    .any(|one| one.message.starts_with("no packet is both"))
        })
        .collect();
    println!("{} of {} found", made.len() - missed.len(), made.len());
    assert!(made.len() > 800, "{}", made.len());
    assert!(missed.is_empty(), "{missed:#?}");
}

/// A third of all pairs of tests, and many longer rules: what is called impossible, no packet passes.
#[test]
fn impossible_rules_match_no_packet() {
    let sample = Sample::take(3000);
    let count = sample.tests.len();
    assert!(count > 350, "{count}");
    let mut rules: Vec<Vec<usize>> = Vec::new();
    for a in 0..count {
        rules.push(vec![a]);
        rules.extend((a + 1 + a % 3..count).step_by(3).map(|b| vec![a, b]));
    }
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..40_000 {
        let length = 3 + random(3);
        rules.push((0..length).map(|_| random(count)).collect());
    }
    let (mut found, mut missed, mut possible) = (0, 0, 0);
    for rule in &rules {
        let text = sample.rule(rule);
        let heard = said(&text);
        let is_called = heard
            .iter()
            .any(|one| one.severity == Severity::Error || one.message.contains("never matches"));
        match (sample.passes(rule), is_called) {
            (true, true) => panic!("a packet passes it: {text}\n{}", said(&text)),
            (true, false) => possible += 1,
            (false, true) => found += 1,
            (false, false) => missed += 1,
        }
    }
    println!(
        "{} rules: {possible} matched a packet, {found} called impossible, {missed} neither",
        rules.len()
    );
    assert!(possible > 20_000 && found > 20_000, "{possible}, {found}");
}
