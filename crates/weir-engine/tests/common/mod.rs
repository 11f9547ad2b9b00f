//! What the agreement tests share: running packets through every engine that can run here, and comparing all they say.

#![allow(
    clippy::print_stderr,
    reason = "a skipped engine is said where the test runs"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::test_runner::{
    Config as ProptestConfig, FileFailurePersistence, RngAlgorithm, TestError, TestRng, TestRunner,
};
use weir_bpf::abi::{Counter, Stats};
use weir_engine::{EngineKind, LogLine, Packet, ReplayHook, ReplayOptions};
use weir_kernel::object::TC_TEST_RUN_MAX;
use weir_packet::generate::{Exchange, Step};
use weir_packet::parse::{Fragment, Protocol, Version, parse as parse_frame};
use weir_packet::{Fate, Reason, Verdict};
use weir_policy::model::{Policy, Rule};
use weir_policy::reference::{ConnectionState, Input, Options, Part, PortId, Reference};
use weir_policy::{FileSets, Source, parse, reference};

/// Engines to compare with the reference. Without root the kernel is left out, which is an error in CI.
pub(crate) fn engines() -> Vec<EngineKind> {
    // Through procfs, to stay free of unsafe code.
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let uids = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .expect("status has a Uid line");
    let root = uids.split_whitespace().nth(2) == Some("0");
    let mut engines = vec![EngineKind::User];
    if weir_vm::jit::available() {
        engines.push(EngineKind::UserJit);
    }
    if root {
        engines.push(EngineKind::Kernel);
        return engines;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "in CI the kernel engine must be tested: run as root"
    );
    eprintln!("not root: the kernel engine is skipped");
    engines
}

/// Native code is of XDP programs only.
pub(crate) fn tc_engines() -> Vec<EngineKind> {
    let mut engines = engines();
    engines.retain(|engine| *engine != EngineKind::UserJit);
    engines
}

/// Whether the kernel's test run of a tc program takes a frame.
pub(crate) fn is_taken(frame: &[u8]) -> bool {
    let least = match frame.get(12..14) {
        Some([0x08, 0x00]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => 14,
    };
    (least..=TC_TEST_RUN_MAX).contains(&frame.len())
}

/// A policy from text that must be right.
pub(crate) fn policy(text: &str) -> Arc<Policy> {
    match parse(&Source::new("test.weir", text), &FileSets::relative_to(".")) {
        Ok(parsed) => Arc::new(parsed.policy),
        Err(diagnostics) => panic!("{diagnostics}\n{text}"),
    }
}

/// A packet that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) frame: Vec<u8>,
    pub(crate) now_ns: u64,
    pub(crate) port: u32,
    pub(crate) queue: u16,
}

/// A script played: each packet made from what the reference did to the ones before it. Frames that `is_taken` refuses are
/// left out. The error is a planning error.
pub(crate) fn play(
    hook: ReplayHook,
    policy: &Arc<Policy>,
    options: &ReplayOptions,
    script: &[Step],
    is_taken: fn(&[u8]) -> bool,
) -> Result<Vec<Sample>, String> {
    let mut engine = weir_engine::open_for(hook, EngineKind::Reference, policy, options)
        .map_err(|e| e.to_string())?;
    let (mut samples, mut earlier) = (Vec::<Sample>::new(), Vec::new());
    let (mut now_ns, mut out) = (0, Vec::new());
    for step in script {
        let frame = step.frame(&earlier);
        now_ns += step.gap_ns;
        if !is_taken(&frame) {
            continue;
        }
        let packet = Packet {
            frame: &frame,
            now_ns,
            number: samples.len() as u64,
            port: 1,
            queue: 0,
        };
        let verdict = engine
            .packet(&packet, &mut out)
            .map_err(|e| e.to_string())?;
        earlier.push(Exchange {
            received: frame.clone(),
            sent: (verdict == Verdict::Pass).then(|| out.clone()),
        });
        samples.push(Sample {
            frame,
            now_ns,
            port: 1,
            queue: 0,
        });
    }
    Ok(samples)
}

/// Policies with the helper of TFTP: without translation, of either side, with mappings, over IPv6, with what else a connection has.
pub(crate) const TRANSFERS: &[&str] = &[
    "add-stateful udp-dport 69 helper tftp accept\nall drop",
    "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.200 accept\nadd-stateful udp-dport 69 helper tftp\nct-state related mod ip-dscp 9 log \"rel\"\nct-state established log \"est\"\nct-state new log \"new\"\nct-state untracked accept\nall drop",
    "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.200 accept\nadd-stateful udp-dport 69 helper tftp\nall drop",
    "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.200 map udp-sport 2000-2003 helper tftp accept\nadd-stateful udp-sport 70 drop\nip-ttl 3 drop",
    "timeout expectation 1s\nadd-stateful ip-daddr 192.0.2.0/24 map ip-daddr 10.0.0.9-10.0.0.12 shuffle ip-id helper tftp timeout 5s accept\nadd-stateful ip-saddr 10.0.0.0/8 log \"out \"\nall drop",
    "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.200 map ip-daddr 192.0.2.7 mapping endpoint-independent filtering address-dependent helper tftp accept mod ip-ttl 9\nall drop",
    "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.200 mapping endpoint-independent filtering endpoint-independent accept\nadd-stateful udp-dport 69 helper tftp log \"asked \"\nall drop",
    "add-stateful udp-dport 69 map ip6-saddr 2001:db8:ffff::1 helper tftp accept\nadd-stateful udp-dport 69 ip-daddr 192.0.2.1 helper tftp accept\nall drop",
];

/// Packets of a script for one of [`TRANSFERS`]. These few policies make few programs, and to load one costs as much as thousands of packets: each gets
/// four times the packets of a generated policy.
pub(crate) const TRANSFER_PACKETS: usize = 400;

/// What a script of connections went through, by the reference's own account.
#[derive(Debug, Default)]
pub(crate) struct Connected {
    packets: u64,
    opened: u64,
    /// Of these, by packets that a helper expected.
    expected: u64,
    forward: u64,
    reverse: u64,
    errors: u64,
    /// Packets of connections with other addresses or ports afterwards.
    translated: u64,
    translated_errors: u64,
    translated_fragments: u64,
    /// Sequence numbers, and SACK blocks.
    moved: u64,
    moved_sack: u64,
    /// Packets that rules with `ct-state` judged, by their state.
    states: BTreeMap<&'static str, u64>,
}

impl Connected {
    /// Counts a run of the reference over these packets.
    pub(crate) fn count(&mut self, policy: &Arc<Policy>, seed: u64, samples: &[Sample]) {
        let options = Options {
            seed,
            ..Options::default()
        };
        let mut reference = Reference::new(Arc::clone(policy), options);
        let tests_states = (policy.rules.iter().flat_map(|rule| &rule.matches))
            .any(|one| one.subject.field.info().name == "ct-state");
        for (number, sample) in (0u64..).zip(samples) {
            let input = Input {
                now_ns: sample.now_ns,
                number,
                port: PortId {
                    name: Some("eth0"),
                    index: 2,
                },
                ..Input::new(&sample.frame)
            };
            let outcome = reference.run(input);
            self.packets += 1;
            if let Some(state) = outcome.state.filter(|_| tests_states) {
                let name = match state {
                    ConnectionState::Invalid => "invalid",
                    ConnectionState::Established => "established",
                    ConnectionState::Related => "related",
                    ConnectionState::New => "new",
                    ConnectionState::Untracked => "untracked",
                };
                *self.states.entry(name).or_default() += 1;
            }
            match outcome.connection {
                None => continue,
                Some(Part::Opened) => {
                    self.opened += 1;
                    let rules =
                        || (policy.rules.iter()).filter(|r| outcome.matched.contains(&r.id));
                    // Rules match that do not match the packet, and no mapping brought them.
                    let brought = |r: &Rule| r.helper.is_some() && !reference::matches(r, &input);
                    self.expected += u64::from(
                        rules().any(brought) && rules().all(|rule| rule.mapping.is_none()),
                    );
                }
                Some(Part::Forward) => self.forward += 1,
                Some(Part::Reverse) => self.reverse += 1,
                Some(Part::Error) => self.errors += 1,
            }
            let Ok(layout) = parse_frame(&sample.frame) else {
                continue;
            };
            let differs =
                |from: usize, to: usize| sample.frame.get(from..to) != outcome.frame.get(from..to);
            let Some(ip) = layout.ip else { continue };
            let end = ip.at + ip.header_len;
            let addresses = match ip.version {
                Version::V4 => differs(end.min(ip.at + 12), ip.at + 20),
                Version::V6 => differs(ip.at + 8, ip.at + 40),
            };
            let ports = layout
                .l4
                .as_ref()
                .is_some_and(|l4| differs(l4.at, l4.at + 4));
            let translated = u64::from(addresses || ports);
            self.translated += translated;
            if outcome.connection == Some(Part::Error) {
                self.translated_errors += translated;
            }
            if ip.fragment == Fragment::Later {
                self.translated_fragments += translated;
            }
            let Some(l4) = layout.l4.filter(|l4| l4.protocol == Protocol::Tcp) else {
                continue;
            };
            self.moved += u64::from(differs(l4.at + 4, l4.at + 8));
            let sack = l4.options.iter().find(|option| option.kind == 5);
            self.moved_sack += u64::from(
                sack.is_some_and(|o| differs(o.at, o.at + o.len)) && differs(l4.at + 8, l4.at + 12),
            );
        }
    }

    /// Fails unless so many packets in a thousand were expected by a helper.
    pub(crate) fn demand_expected(&self, in_a_thousand: u64) {
        assert!(
            self.expected * 1000 > self.packets * in_a_thousand,
            "few packets were expected: {self:?}"
        );
    }

    /// Fails unless generated scripts met what connections can meet.
    pub(crate) fn demand(&self) {
        let least = [
            ("opened", self.opened, 20),
            ("forward", self.forward, 20),
            ("reverse", self.reverse, 20),
            ("errors", self.errors, 50),
            ("translated", self.translated, 10),
            ("translated errors", self.translated_errors, 100),
            ("translated later fragments", self.translated_fragments, 300),
            ("moved sequence numbers", self.moved, 200),
            ("moved SACK blocks", self.moved_sack, 2000),
        ];
        for (what, count, one_in) in least {
            assert!(
                count * one_in > self.packets,
                "{what} are fewer than one in {one_in}: {self:?}"
            );
        }
        for state in ["invalid", "established", "related", "new", "untracked"] {
            let count = self.states.get(state).copied().unwrap_or(0);
            assert!(
                count * 1000 > self.packets,
                "packets that rules saw as {state} are fewer than one in 1000: {self:?}"
            );
        }
    }
}

/// Everything an engine says about a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) logs: Vec<LogLine>,
    pub(crate) stats: Stats,
    pub(crate) counters: Vec<Counter>,
}

/// Runs all samples; the outer error is a planning error, equal for all engines.
pub(crate) fn run(
    hook: ReplayHook,
    kind: EngineKind,
    policy: &Arc<Policy>,
    options: &ReplayOptions,
    samples: &[Sample],
) -> Result<Run, String> {
    let mut engine =
        weir_engine::open_for(hook, kind, policy, options).map_err(|e| e.to_string())?;
    let mut run = Run {
        verdicts: Vec::new(),
        frames: Vec::new(),
        logs: Vec::new(),
        stats: empty(),
        counters: Vec::new(),
    };
    let mut out = Vec::new();
    for (number, sample) in (0u64..).zip(samples) {
        let packet = Packet {
            frame: &sample.frame,
            now_ns: sample.now_ns,
            number,
            port: sample.port,
            queue: sample.queue,
        };
        let verdict = engine
            .packet(&packet, &mut out)
            .map_err(|e| format!("packet {number}: {e}"))?;
        run.verdicts.push(verdict);
        run.frames
            .push(if matches!(verdict, Verdict::Pass | Verdict::Tx) {
                out.clone()
            } else {
                Vec::new()
            });
        run.logs.extend(engine.logs().map_err(|e| e.to_string())?);
    }
    (run.stats, run.counters) = engine.totals().map_err(|e| e.to_string())?;
    Ok(run)
}

/// What an engine says: verdict and frame of each packet that goes on, and all reasons.
pub(crate) type Said = (Vec<(Verdict, Vec<u8>)>, Vec<u64>);

pub(crate) fn said(
    hook: ReplayHook,
    kind: EngineKind,
    policy: &Arc<Policy>,
    frames: &[Vec<u8>],
) -> Result<Said, String> {
    let options = ReplayOptions::default();
    let mut engine =
        weir_engine::open_for(hook, kind, policy, &options).map_err(|e| e.to_string())?;
    let mut said = Vec::new();
    for (number, frame) in (0..).zip(frames) {
        let packet = Packet {
            frame,
            now_ns: number,
            number,
            port: 0,
            queue: 0,
        };
        let mut out = Vec::new();
        let verdict = engine
            .packet(&packet, &mut out)
            .map_err(|e| e.to_string())?;
        if verdict == Verdict::Drop {
            out.clear();
        }
        said.push((verdict, out));
    }
    let (stats, _) = engine.totals().map_err(|e| e.to_string())?;
    Ok((said, stats.reason.to_vec()))
}

/// What a comparison went through, so that agreement about nothing is not mistaken for agreement.
#[derive(Debug)]
pub(crate) struct Coverage {
    packets: u64,
    matched: u64,
    rewritten: u64,
    logged: u64,
    refused: u64,
    reasons: [u64; weir_bpf::abi::REASONS],
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage {
            packets: 0,
            matched: 0,
            rewritten: 0,
            logged: 0,
            refused: 0,
            reasons: [0; weir_bpf::abi::REASONS],
        }
    }
}

impl Coverage {
    /// Fails unless a generated run of this many policies met everything that generated packets can meet.
    pub(crate) fn demand(&self, policies: u32) {
        assert!(
            self.rewritten > self.packets / 100,
            "too few packets are rewritten: {self}"
        );
        assert!(self.logged > 0, "no packet is logged: {self}");
        for reason in [Reason::Answered, Reason::NoAnswer, Reason::LimitDisplaced] {
            assert!(
                self.reasons[reason as usize] > 0,
                "no packet met {}: {self}",
                reason.name()
            );
        }
        assert!(
            self.refused < u64::from(policies) / 4,
            "too many policies are refused: {self}"
        );
        // Not to be had from packets: broken plans, nested programs, drivers without room, full rings, frames longer than the
        // generator makes, lost races, and tables that are full (weir-engine/tests/connections.rs); what needs connections
        // is demanded of conversations.
        let out_of_reach = [
            Reason::FlowBusy,
            Reason::FlowFull,
            Reason::FlowDisplaced,
            Reason::PoolBusy,
            Reason::FragBeforeFirst,
            Reason::MatchOverflow,
            Reason::ScratchDepth,
            Reason::Internal,
            Reason::NoHeadroom,
            Reason::LogLost,
            Reason::FrameLong,
        ];
        // Reasons behind those of connections are other functions'.
        let own = |reason: &&Reason| **reason as usize <= Reason::FlowDisplaced as usize;
        for reason in Reason::ALL.iter().filter(own) {
            let met = self.reasons[*reason as usize] > 0;
            assert!(
                met || out_of_reach.contains(reason),
                "no generated packet met {}: {self}",
                reason.name()
            );
        }
    }
}

impl Coverage {
    /// Fails unless generated conversations of this many policies met every reason that connections have.
    pub(crate) fn demand_connections(&self, policies: u32) {
        for reason in [
            Reason::PoolBusy,
            Reason::FragBeforeFirst,
            Reason::TcpFlags,
            Reason::TcpWindow,
            Reason::TcpRstStale,
            Reason::IcmpChecksum,
            Reason::PmtuFloor,
            Reason::IcmpNotAccepted,
            Reason::TcpChecksum,
            Reason::IcmpWindow,
            Reason::FragOverlap,
            Reason::RuleDrop,
            Reason::Answered,
            Reason::NoAnswer,
        ] {
            assert!(
                self.reasons[reason as usize] > 0,
                "no conversation met {}: {self}",
                reason.name()
            );
        }
        assert!(
            self.refused < u64::from(policies) / 4,
            "too many policies are refused: {self}"
        );
    }
}

/// Draws the same inputs in each run: what is demanded of a generator must not depend on chance.
pub(crate) fn fixed_sample(cases: u32) -> TestRunner {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} packets: {} rule matches, {} rewritten, {} log lines, {} policies refused;",
            self.packets, self.matched, self.rewritten, self.logged, self.refused
        )?;
        for reason in Reason::ALL {
            let count = self.reasons[*reason as usize];
            if count > 0 {
                write!(f, " {} {count}", reason.name())?;
            }
        }
        Ok(())
    }
}

/// Compares every engine with the reference; the text of the first difference, if there is one.
pub(crate) fn disagreement(
    engines: &[EngineKind],
    policy: &Arc<Policy>,
    options: &ReplayOptions,
    samples: &[Sample],
    coverage: &mut Coverage,
) -> Option<String> {
    disagreement_on(ReplayHook::Xdp, engines, policy, options, samples, coverage)
}

/// [`disagreement`] of the builds for one hook.
pub(crate) fn disagreement_on(
    hook: ReplayHook,
    engines: &[EngineKind],
    policy: &Arc<Policy>,
    options: &ReplayOptions,
    samples: &[Sample],
    coverage: &mut Coverage,
) -> Option<String> {
    let wanted = run(hook, EngineKind::Reference, policy, options, samples);
    for &kind in engines {
        let found = run(hook, kind, policy, options, samples);
        match (&wanted, found) {
            (Err(a), Err(b)) if *a == b => {}
            (Err(a), Err(b)) => return Some(format!("reference: {a}\n{kind:?}: {b}")),
            (Err(a), Ok(_)) => return Some(format!("only the reference failed: {a}")),
            (Ok(_), Err(b)) => return Some(format!("{kind:?} failed: {b}")),
            (Ok(wanted), Ok(found)) => {
                if let Some(text) = difference(kind, wanted, &found, samples) {
                    return Some(text);
                }
            }
        }
    }
    let Ok(run) = wanted else {
        coverage.refused += 1;
        return None;
    };
    coverage.packets += samples.len() as u64;
    coverage.matched += run.counters.iter().map(|c| c.packets).sum::<u64>();
    coverage.rewritten += (run.frames.iter().zip(samples))
        .filter(|(out, s)| !out.is_empty() && **out != s.frame)
        .count() as u64;
    coverage.logged += run.logs.len() as u64;
    for (sum, count) in coverage.reasons.iter_mut().zip(run.stats.reason) {
        *sum += count;
    }
    let reasons: u64 = Reason::ALL
        .iter()
        .filter(|r| r.fate() == Fate::Drop)
        .map(|r| run.stats.reason[*r as usize])
        .sum();
    if run.stats.received != samples.len() as u64
        || run.stats.verdict.iter().sum::<u64>() != run.stats.received
    {
        return Some(format!("the ledger is not balanced: {:?}", run.stats));
    }
    (reasons != run.stats.verdict[1])
        .then(|| format!("{reasons} drop reasons for {} drops", run.stats.verdict[1]))
}

/// What the packets before one were, and what the reference made of them: a connection may be older than the packet that shows the difference.
fn before(at: usize, wanted: &Run, samples: &[Sample]) -> String {
    let lines = samples.iter().take(at).enumerate().map(|(i, sample)| {
        format!(
            "{i} at {} ms: {}; {} {}\n",
            sample.now_ns / 1_000_000,
            weir_packet::summary(&sample.frame),
            wanted.verdicts[i],
            weir_packet::summary(&wanted.frames[i]),
        )
    });
    lines.collect()
}

fn difference(kind: EngineKind, wanted: &Run, found: &Run, samples: &[Sample]) -> Option<String> {
    for (i, sample) in samples.iter().enumerate() {
        if wanted.verdicts[i] != found.verdicts[i] || wanted.frames[i] != found.frames[i] {
            return Some(format!(
                "{}packet {i} ({})\nreceived  {}\nreference {} {}\n{kind:?} {} {}",
                before(i, wanted, samples),
                weir_packet::summary(&sample.frame),
                hex(&sample.frame),
                wanted.verdicts[i],
                hex(&wanted.frames[i]),
                found.verdicts[i],
                hex(&found.frames[i]),
            ));
        }
    }
    if wanted.logs != found.logs {
        return Some(format!(
            "log lines\nreference {:?}\n{kind:?} {:?}",
            wanted.logs, found.logs
        ));
    }
    if wanted.counters != found.counters {
        return Some(format!(
            "rule counters\nreference {:?}\n{kind:?} {:?}",
            wanted.counters, found.counters
        ));
    }
    if wanted.stats != found.stats {
        let names = |stats: &Stats| -> Vec<String> {
            let named = Reason::ALL
                .iter()
                .filter(|r| stats.reason[**r as usize] > 0);
            named
                .map(|r| format!("{} {}", r.name(), stats.reason[*r as usize]))
                .collect()
        };
        return Some(format!(
            "ledger\nreference {:?} {:?}\n{kind:?} {:?} {:?}",
            wanted.stats.verdict,
            names(&wanted.stats),
            found.stats.verdict,
            names(&found.stats)
        ));
    }
    None
}

fn empty() -> Stats {
    Stats {
        received: 0,
        bytes: 0,
        verdict: [0; 8],
        reason: [0; weir_bpf::abi::REASONS],
    }
}

fn hex(bytes: &[u8]) -> String {
    let shown = bytes.len().min(400);
    let mut text: String = bytes[..shown].iter().map(|b| format!("{b:02x}")).collect();
    if shown < bytes.len() {
        text.push_str(&format!("... {} bytes", bytes.len()));
    }
    text
}

/// Number of generated cases: `WEIR_CASES`, or the usual one.
pub(crate) fn cases(usual: u32) -> u32 {
    std::env::var("WEIR_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(usual)
}

/// Ends a property test that failed. The reason comes last: inputs are long, and a log may be cut in front of its end.
pub(crate) fn give_up<T: std::fmt::Debug>(error: TestError<T>) -> ! {
    match error {
        TestError::Fail(reason, input) => panic!("smallest input: {input:#?}\n{reason}"),
        TestError::Abort(reason) => panic!("{reason}"),
    }
}

/// Settings of a property test; seeds that failed are kept beside the test's `file`.
pub(crate) fn config(cases: u32, file: &'static str) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(file),
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    }
}
