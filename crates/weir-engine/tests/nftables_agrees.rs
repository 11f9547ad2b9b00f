//! The same policies over the same packets through weir and through nftables: the same verdicts.
//!
//! nftables shares no code and no author with weir, so what both misread would have to be misread twice. Policies are generated; what
//! nftables cannot express is left out and counted, and so are packets that the two are known to see differently, each kind with its
//! reason in docs/differences-nftables.md. 340 policies of 500 packets each; with `WEIR_LONG=1` 3,000.

#[path = "nftables/bed.rs"]
mod bed;
#[path = "nftables/looks.rs"]
mod looks;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{Sample, engines, policy, run};
use bed::Bed;
use looks::{Looks, looks};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestError};
use weir_engine::{EngineKind, ReplayHook, ReplayOptions};
use weir_functions::plan::{ChecksumMode, Port};
use weir_import::{Inexpressible, chain, lines_of};
use weir_packet::build::Frame;
use weir_packet::parse::{Fragment, Layout, Protocol, parse, protocol};
use weir_packet::{Reason, Verdict};
use weir_policy::model::{DropWhen, Policy, Rule, Target};

const PACKETS: usize = 500;

/// The engines, if nftables can be asked as well: that takes root and nft, in CI without excuse.
#[expect(
    clippy::print_stderr,
    reason = "a skipped comparison is said where the test runs"
)]
fn all_engines() -> Option<Vec<EngineKind>> {
    let mut engines = engines();
    if !engines.contains(&EngineKind::Kernel) {
        return None;
    }
    let nft = std::process::Command::new("nft").arg("--version").output();
    if nft.is_err() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "in CI weir is compared with nftables: install nftables (`scripts/setup`)"
        );
        eprintln!("no nft here: the comparison with nftables is skipped");
        return None;
    }
    engines.push(EngineKind::Reference);
    Some(engines)
}

#[test]
fn generated_policies_judge_generated_packets_as_nftables_does() {
    let Some(engines) = all_engines() else {
        return;
    };
    let long = std::env::var("WEIR_LONG").as_deref() == Ok("1");
    let cases = if long { 3_000 } else { 340 };
    let bed = Bed::build();
    let strategy = (
        weir_policy::generate::policy_text(),
        prop::collection::vec(prop::bool::weighted(0.35), 12),
        prop::bool::weighted(0.1),
        prop::collection::vec(weir_packet::generate::well_formed(), PACKETS),
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(file!()),
        max_shrink_iters: 250,
        ..ProptestConfig::default()
    });
    let coverage = RefCell::new(Coverage::default());
    let result = runner.run(&strategy, |(text, accepts, tags_only, frames)| {
        let coverage = &mut coverage.borrow_mut();
        let rules = expressible(&policy(&text).rules, &accepts, tags_only, coverage);
        match disagreement(&bed, &engines, &rules, &frames, coverage) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(format!(
                "{difference}\npolicy:\n{text}"
            ))),
        }
    });
    match result {
        Ok(()) => {}
        // The reason names policy and packet; the 500 packets beside it would bury them.
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(error) => panic!("{error}"),
    }
    let coverage = coverage.borrow();
    eprintln!("{cases} policies: nftables and {engines:?} agree\n{coverage}");
    coverage.demand();
}

/// A packet that the two sides see differently.
struct Difference {
    what: &'static str,
    policy: &'static str,
    /// What says the same in nftables, at first sight.
    line: &'static str,
    frame: Frame,
    ours: Verdict,
}

const A4: [u8; 4] = [10, 0, 0, 1];
const B4: [u8; 4] = [10, 0, 0, 2];
const A6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const B6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// The table of docs/differences-nftables.md, in its order.
fn differences() -> Vec<Difference> {
    let four = || Frame::new().ip4(A4, B4);
    let six = || Frame::new().ip6(A6, B6);
    let row = |what, policy, line, frame, ours| Difference {
        what,
        policy,
        line,
        frame,
        ours,
    };
    let (drop, pass) = (Verdict::Drop, Verdict::Pass);
    let port_9 = "meta protocol { ip, ip6 } meta l4proto udp udp dport 9 drop";
    vec![
        row(
            "tags",
            "udp-dport 9 drop",
            port_9,
            four().udp(1, 9).vlan(5).vlan(6),
            drop,
        ),
        row(
            "length-field",
            "eth-type < 1536 drop",
            "@ll,96,16 0x8100 @ll,128,16 26 drop",
            Frame::new().ether_type(26).payload(&[0; 26]).vlan(5),
            drop,
        ),
        row(
            "extension-headers",
            "udp-dport 9 drop",
            port_9,
            six().extension(protocol::AH, &[0; 10]).udp(1, 9),
            drop,
        ),
        row(
            "two-fragment-headers",
            "frag-first drop",
            "meta protocol ip6 frag more-fragments 1 drop",
            six()
                .fragment(0, false)
                .fragment(0, true)
                .udp(1, 9)
                .payload(&[0; 8]),
            drop,
        ),
        row(
            "later-fragment",
            "udp-dport 9 drop",
            port_9,
            four()
                .fragment(1, false)
                .protocol(protocol::UDP)
                .payload(&[0, 1, 0, 9, 0, 8, 0, 0]),
            pass,
        ),
        row(
            "option-twice",
            "tcp-opt-mss 536 drop",
            "meta protocol ip meta l4proto tcp tcp option maxseg size 536 drop",
            four()
                .tcp(1, 9)
                .tcp_option(2, &[5, 180])
                .tcp_option(2, &[2, 24]),
            drop,
        ),
        row(
            "option-behind-end",
            "tcp-opt-mss drop",
            "meta protocol ip meta l4proto tcp tcp option maxseg exists drop",
            four().tcp(1, 9).tcp_bytes(&[0, 2, 4, 5, 180, 0, 0, 0]),
            pass,
        ),
        row(
            "ip-option-malformed",
            "ip-opt-rr drop",
            "meta protocol ip ip option rr exists drop",
            four().ip_options(&[7; 7]).udp(1, 9),
            drop,
        ),
        row(
            "payload-end",
            "udp-payload[0] == x4142 drop",
            "meta protocol ip meta l4proto udp @ih,0,16 0x4142 drop",
            four().udp(1, 9).trailer(b"AB"),
            pass,
        ),
        row(
            "two-inequalities",
            "udp-dport != 9 udp-len != 20 drop",
            "meta protocol ip meta l4proto udp udp dport != 9 udp length != 20 drop",
            four().udp(1, 9).payload(&[0; 4]),
            pass,
        ),
    ]
}

/// What is left out above, packet by packet: weir does what docs/semantics.md says, nftables the opposite. A newer nft or kernel may
/// have come round; that is told, and no failure.
#[test]
fn known_differences_are_as_documented() {
    let Some(engines) = all_engines() else {
        return;
    };
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/differences-nftables.md"
    ))
    .expect("the page is there");
    let bed = Bed::build();
    for row in differences() {
        assert!(
            page.contains(&format!("| `{}` |", row.what)),
            "docs/differences-nftables.md has no row `{}`",
            row.what
        );
        let frame = row.frame.build();
        let rules = policy(row.policy).rules.clone();
        for (kind, verdicts) in weir(&engines, &rules, std::slice::from_ref(&frame)) {
            assert_eq!(verdicts, [row.ours], "{kind:?}, {}", row.what);
        }
        bed.load(&[row.line.to_owned()]).expect(row.what);
        if bed.passed(&[frame])[0] == (row.ours == Verdict::Pass) {
            eprintln!("nftables of this machine does as weir does: {}", row.what);
        }
    }
}

/// The rules that nftables can express, numbered anew, each with a plain verdict instead of its targets. `tags_only` leaves
/// rules that look no deeper than tags, for which packets with any number of tags can be compared.
fn expressible(
    rules: &[Rule],
    accepts: &[bool],
    tags_only: bool,
    coverage: &mut Coverage,
) -> Vec<Rule> {
    let mut kept = Vec::new();
    for rule in rules {
        let verdict = match accepts.get(rule.id as usize % accepts.len()) {
            Some(true) => Target::Accept,
            _ => Target::Drop(DropWhen::Always),
        };
        let rule = Rule {
            id: kept.len() as u32 + 1,
            targets: vec![verdict],
            ..rule.clone()
        };
        if tags_only && looks(std::slice::from_ref(&rule)).ip {
            continue;
        }
        // The bed has the time of the host, packets of weir another one: `time_agrees` has these.
        if weir_functions::middlebox::tests_time([&rule]) {
            continue;
        }
        // The bed numbers frames in their source address.
        if looks(std::slice::from_ref(&rule))
            .fields
            .contains("eth-saddr")
        {
            continue;
        }
        coverage.rules += 1;
        match lines_of(&rule) {
            Ok(_) => kept.push(rule),
            Err(Inexpressible(what)) => *coverage.inexpressible.entry(what).or_insert(0) += 1,
        }
    }
    kept
}

/// Judges all frames that both see alike on both sides; the text of the first difference, if there is one.
fn disagreement(
    bed: &Bed,
    engines: &[EngineKind],
    rules: &[Rule],
    frames: &[Vec<u8>],
    coverage: &mut Coverage,
) -> Option<String> {
    let seen = looks(rules);
    let mut comparable = Vec::new();
    for frame in frames {
        let layout = parse(frame).expect("the generator makes well-formed frames");
        match known_difference(frame, &layout, &seen) {
            None => comparable.push(frame.clone()),
            Some(why) => *coverage.left_out.entry(why).or_insert(0) += 1,
        }
    }
    let lines = match chain(rules) {
        Ok(lines) => lines,
        Err(Inexpressible(what)) => panic!("{what} in rules that were found expressible"),
    };
    if let Err(refused) = bed.load(&lines) {
        return Some(refused);
    }
    let theirs = bed.passed(&comparable);
    let ours = weir(engines, rules, &comparable);
    for (kind, verdicts) in &ours {
        let differs = |&i: &usize| theirs[i] != (verdicts[i] == Verdict::Pass);
        if let Some(i) = (0..comparable.len()).find(differs) {
            return Some(format!(
                "{}\n{}\n{kind:?}: {}, nftables: {}\nchain:\n{}",
                weir_packet::summary(&comparable[i]),
                hex(&comparable[i]),
                verdicts[i],
                if theirs[i] { "pass" } else { "drop" },
                lines.join("\n")
            ));
        }
    }
    coverage.packets += comparable.len() as u64;
    coverage.dropped += theirs.iter().filter(|&&passed| !passed).count() as u64;
    coverage.fields.extend(seen.fields);
    None
}

fn weir(
    engines: &[EngineKind],
    rules: &[Rule],
    frames: &[Vec<u8>],
) -> Vec<(EngineKind, Vec<Verdict>)> {
    let policy = Arc::new(Policy {
        rules: rules.to_vec(),
        ..Policy::default()
    });
    let options = ReplayOptions {
        checksums: ChecksumMode::Complete,
        mtu: None,
        seed: 0,
        ports: vec![Port {
            number: 1,
            name: Some("eth0".to_owned()),
            index: 2,
        }],
    };
    let samples: Vec<Sample> = (frames.iter())
        .map(|frame| Sample {
            frame: frame.clone(),
            now_ns: 0,
            port: 1,
            queue: 0,
        })
        .collect();
    (engines.iter())
        .map(|&kind| {
            let run = run(ReplayHook::Xdp, kind, &policy, &options, &samples)
                .unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            (kind, run.verdicts)
        })
        .collect()
}

/// Why the two sides are known to see a packet differently under rules that look at this; docs/differences-nftables.md.
fn known_difference(frame: &[u8], layout: &Layout, looks: &Looks) -> Option<&'static str> {
    // Taking the tag off needs six bytes behind the EtherType.
    if !layout.tags.is_empty() && frame.len() < 20 {
        return Some("tagged frame too short for the kernel");
    }
    if layout.tags.len() == 1 && layout.ether_type < 0x600 {
        return Some("length field behind a tag");
    }
    if !looks.ip {
        return None;
    }
    if layout.tags.len() > 1 || frame[12] == 0x91 {
        return Some("IP behind a second tag, or behind 0x9100");
    }
    let ip = layout.ip.as_ref()?;
    let extensions = || ip.extensions.iter().map(|extension| extension.protocol);
    if extensions().any(|number| {
        matches!(
            number,
            protocol::AH | protocol::MOBILITY | protocol::HIP | protocol::SHIM6
        )
    }) {
        return Some("IPv6 headers that end the walk of nftables");
    }
    if extensions()
        .filter(|&number| number == protocol::FRAGMENT)
        .count()
        > 1
    {
        return Some("two fragment headers");
    }
    if looks.payload {
        if layout.notes.contains(&Reason::Trailer) {
            return Some("payload of a frame with a trailer");
        }
        let l4 = layout.l4.as_ref();
        if l4.is_some_and(|l4| l4.protocol == Protocol::Udp && l4.payload.end != ip.payload.end) {
            return Some("payload behind the UDP length");
        }
        if ip.fragment == Fragment::Later && !ip.extensions.is_empty() {
            return Some("payload of a later IPv6 fragment");
        }
    }
    if looks.ip_options && ip.options.iter().any(|option| option.kind == 7) {
        let strict = (ip.options.iter()).all(|option| {
            let pointer = option.value(frame).first().copied().map_or(0, usize::from);
            option.kind != 7 || pointer > option.len || pointer + 3 <= option.len
        });
        if !strict {
            return Some("IPv4 options that the kernel finds malformed");
        }
    }
    if looks.tcp_options
        && let Some(l4) = &layout.l4
        && l4.protocol == Protocol::Tcp
    {
        let kinds: Vec<u8> = l4.options.iter().map(|option| option.kind).collect();
        let distinct: BTreeSet<u8> = kinds.iter().copied().collect();
        if distinct.len() != kinds.len() {
            return Some("a TCP option twice");
        }
        if kinds_behind_end(&frame[l4.at + 20..l4.at + l4.header_len]) {
            return Some("bytes behind the end of TCP options");
        }
    }
    None
}

/// Whether anything but zeros follows the end-of-list option.
fn kinds_behind_end(options: &[u8]) -> bool {
    let mut at = 0;
    while at < options.len() {
        match options[at] {
            0 => return options[at..].iter().any(|&byte| byte != 0),
            1 => at += 1,
            _ => {
                at += options
                    .get(at + 1)
                    .map_or(options.len(), |&len| usize::from(len))
            }
        }
    }
    false
}

/// What a comparison went through.
#[derive(Default)]
struct Coverage {
    packets: u64,
    dropped: u64,
    rules: u64,
    fields: BTreeSet<&'static str>,
    inexpressible: BTreeMap<&'static str, u64>,
    left_out: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Fails if too little was compared to mean anything.
    fn demand(&self) {
        assert!(
            self.packets >= 100_000,
            "too few packets can be compared: {self}"
        );
        let share = self.dropped as f64 / self.packets as f64;
        assert!(
            (0.05..0.95).contains(&share),
            "almost all verdicts are the same: {self}"
        );
        let inexpressible: u64 = self.inexpressible.values().sum();
        assert!(
            inexpressible < self.rules / 4,
            "too many rules cannot be compared: {self}"
        );
    }
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} packets compared, {} of them dropped; {} rules, {} fields",
            self.packets,
            self.dropped,
            self.rules,
            self.fields.len()
        )?;
        writeln!(f, "rules without a counterpart: {:?}", self.inexpressible)?;
        write!(f, "packets seen differently: {:?}", self.left_out)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
