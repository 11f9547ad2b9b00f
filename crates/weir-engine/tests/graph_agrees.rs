//! Graphs in the user engine, interpreted and as native code, and in the running kernel: the same verdicts, bytes, ways out, ledgers,
//! counters and log lines, over captures and over generated graphs and packets. Chains of policies are also held to the reference,
//! which runs one policy after the other.
//!
//! `WEIR_CASES` sets the number of generated graphs (default 8, of up to seven functions, 50 packets each).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::captures::{captures, dealt, ethernet, half_of_examples};
use crate::common::{Sample, cases, config, engines, policy};
use crate::graph::{Led, agree, chained, empty, middlebox, plan as graph_of, port, ports};
use proptest::prelude::*;
use proptest::test_runner::{Config as ProptestConfig, TestRunner};
use weir_bpf::abi::NEXT;
use weir_engine::edge::replay::{self, GraphOptions, GraphReport};
use weir_engine::{EngineKind, Packet, ReplayOptions};
use weir_functions::kind::Planned;
use weir_functions::plan::ChecksumMode;
use weir_graph::{EdgePlan, Instance, Link, Mode, Model, PortPlan, Source, Target};
use weir_packet::{Reason, Verdict};
use weir_policy::model::Policy;

const PACKETS: usize = 50;

fn frame(byte: u8) -> Sample {
    let mut frame = vec![byte; 64];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    Sample {
        frame,
        now_ns: 0,
        port: 1,
        queue: 0,
    }
}

#[test]
fn empty_chains_count_at_every_hop_and_end_where_links_say() {
    let engines = engines();
    for length in [0, 1, 5, 17, 32] {
        for (end, verdict) in [
            (Target::Stack, Verdict::Pass),
            (Target::Drop, Verdict::Drop),
            (Target::Tx, Verdict::Tx),
            (Target::Device(2), Verdict::Redirect),
        ] {
            let instances = (0..length).map(|i| empty(&format!("f{i}"), Target::Stack));
            let mut graph = chained(instances.collect(), end);
            let (second, dropped) = port(2, ChecksumMode::Complete, Target::Drop);
            graph.ports.push(second);
            graph.entries.push(dropped);
            graph.transmits.push(None);
            let mut samples: Vec<Sample> = (0..4).map(frame).collect();
            samples[3].port = 2;
            let said = agree(&engines, &graph, &GraphOptions::default(), &samples)
                .unwrap_or_else(|e| panic!("{length} functions: {e}"));
            assert_eq!(said.outcomes[0].verdict, verdict);
            let by = (verdict == Verdict::Redirect).then_some(2);
            assert_eq!(said.outcomes[2].port, by);
            assert_eq!(said.outcomes[3].verdict, Verdict::Drop);
            for place in 0..length {
                let stats = &said.totals.instances[place];
                let next = if place + 1 < length { 3 } else { 0 };
                assert_eq!((stats.received, stats.verdict[NEXT]), (3, next));
                assert_eq!(stats.bytes, 3 * 64);
            }
            let sent = said.totals.left_by.get(&2).copied();
            assert_eq!(sent, by.map(|_| 3));
        }
    }
}

#[test]
fn a_chain_of_more_calls_than_the_kernel_makes_is_a_counted_drop() {
    let instances = (0..34).map(|i| empty(&format!("f{i}"), Target::Stack));
    let graph = chained(instances.collect(), Target::Stack);
    let said = agree(&engines(), &graph, &GraphOptions::default(), &[frame(0)]).expect("agree");
    assert_eq!(said.outcomes[0].verdict, Verdict::Drop);
    let lost = said.totals.instances[32].reason[Reason::MissedCall as usize];
    assert_eq!(lost, 1);
}

/// A plan of functions that do nothing, one behind the other, between port 1 and `end`.
fn model(functions: usize, end: Target) -> Model {
    let instance = |i: usize| Instance::new(format!("f{i}"), "empty", Planned::embedded("empty"));
    let link = |i: usize| Link {
        from: match i {
            0 => Source::Port(1),
            _ => Source::Out {
                instance: i - 1,
                out: 0,
            },
        },
        to: match i < functions {
            true => Target::Instance(i),
            false => end,
        },
        guard: None,
    };
    Model {
        edge: "test".to_owned(),
        ports: vec![PortPlan {
            name: "in".to_owned(),
            device: "d".to_owned(),
            number: 1,
            mode: Mode::Native,
            checksums: None,
            metadata: false,
        }],
        instances: (0..functions).map(instance).collect(),
        links: (0..=functions).map(link).collect(),
        ..Model::default()
    }
}

fn wired(model: Model) -> EdgePlan {
    model.plan().expect("a plan")
}

#[test]
fn long_chains_recirculate() {
    for (length, rounds) in [(33, 0), (34, 1), (40, 1), (100, 3)] {
        let graph = wired(model(length, Target::Device(1)));
        let samples: Vec<Sample> = (0..3).map(frame).collect();
        let said = agree(&engines(), &graph, &GraphOptions::default(), &samples)
            .unwrap_or_else(|e| panic!("{length} functions: {e}"));
        for (outcome, frame) in said.outcomes.iter().zip(&said.frames) {
            let found = (outcome.verdict, outcome.port, frame.len());
            assert_eq!(
                found,
                (Verdict::Redirect, Some(1), 64),
                "{length} functions"
            );
        }
        let back = said.totals.resumed.map_or(0, |s| s.received);
        assert_eq!(back, 3 * rounds, "{length} functions");
        let report = GraphReport::new("user", &graph, &said.totals);
        assert_eq!((report.packets.redirect, report.ports[0].sent), (3, 3));
        assert!(
            said.totals.instances[..length]
                .iter()
                .all(|s| s.received == 3)
        );
    }
}

/// Packets leave a loop when its guard has let them pass as often as it may.
#[test]
fn guarded_loops_end() {
    for (length, guard) in [(3, 4), (10, 15)] {
        let mut model = model(length, Target::Stack);
        let back = model.links.last_mut().expect("has links");
        back.to = Target::Instance(0);
        back.guard = Some(guard);
        let graph = wired(model);
        let said = agree(&engines(), &graph, &GraphOptions::default(), &[frame(7)])
            .unwrap_or_else(|e| panic!("{length} functions: {e}"));
        assert_eq!(said.outcomes[0].verdict, Verdict::Drop);
        let last = &said.totals.instances[length - 1];
        assert_eq!(last.received, u64::from(guard) + 1);
        let lost: u64 = said
            .totals
            .instances
            .iter()
            .map(|s| s.reason[Reason::LoopGuard as usize])
            .sum();
        assert_eq!(lost, 1);
    }
}

/// Frames no device delivers are counted by the port they would have come in by, in every engine.
#[test]
fn frames_that_no_device_delivers_are_drops_of_their_port() {
    let graph = chained(vec![empty("f", Target::Stack)], Target::Stack);
    let mut samples = vec![frame(1); 4];
    samples[0].frame.truncate(13);
    samples[1].frame.clear();
    samples[2].frame.resize(65_550, 0);
    let said = agree(&engines(), &graph, &GraphOptions::default(), &samples).expect("agree");
    let port = &said.totals.ports[0];
    assert_eq!(
        (port.received, port.verdict[1], port.verdict[NEXT]),
        (4, 3, 1)
    );
    assert_eq!(port.reason[Reason::FrameShort as usize], 2);
    assert_eq!(port.reason[Reason::FrameLong as usize], 1);
}

/// Example policies, each as one function between others, over the captures dealt to it.
#[test]
fn policies_in_chains_agree_over_captures() {
    let engines = engines();
    let long = std::env::var_os("WEIR_LONG").is_some();
    let most = if long { usize::MAX } else { 6 };
    let samples: Vec<Vec<Sample>> = captures()
        .iter()
        .filter_map(|path| ethernet(path))
        .map(|samples| samples.into_iter().take(most).collect())
        .collect();
    let packets = samples.iter().map(Vec::len).sum::<usize>();
    assert!(packets > 300, "{packets} packets");
    let mut policies = Vec::new();
    for path in half_of_examples(1) {
        let text = std::fs::read_to_string(&path).expect("readable");
        let sets = weir_policy::FileSets::relative_to(path.parent().expect("in a folder"));
        let source = weir_policy::Source::new(path.display().to_string(), text);
        let parsed = weir_policy::parse(&source, &sets).expect("examples are right");
        policies.push(Arc::new(parsed.policy));
    }
    // Those that name interfaces do not fit this graph's ports.
    let instances: Vec<Led> = policies
        .iter()
        .enumerate()
        .filter_map(|(i, policy)| middlebox(&format!("p{i}"), policy, Target::Stack).ok())
        .collect();
    assert!(instances.len() > 2, "{} policies", instances.len());
    let mut ends = [0u64; 2];
    for (number, chunk) in instances.chunks(3).enumerate() {
        let samples: Vec<Sample> = dealt(&samples, number).flatten().cloned().collect();
        let mut chain = Vec::new();
        for instance in chunk {
            chain.push(empty(&format!("before-{}", instance.0.name), Target::Stack));
            chain.push(instance.clone());
        }
        let graph = chained(chain, Target::Device(1));
        let said = agree(&engines, &graph, &GraphOptions::default(), &samples)
            .unwrap_or_else(|e| panic!("{e}"));
        let left = said.outcomes.iter().filter(|o| o.port.is_some()).count() as u64;
        ends[0] += left;
        ends[1] += samples.len() as u64 - left;
    }
    eprintln!(
        "{} policies in chains, {packets} packets dealt to them: {engines:?} agree; {} left, {} did not",
        instances.len(),
        ends[0],
        ends[1]
    );
    assert!(ends.iter().all(|n| *n > 0), "{ends:?}");
}

/// A function of a generated graph.
#[derive(Clone, Debug)]
enum Kind {
    Empty,
    Policy(String),
}

/// A generated graph: functions, where each leads, where ports begin, checksum modes.
#[derive(Clone, Debug)]
struct Drawn {
    functions: Vec<(Kind, u8)>,
    ports: Vec<(u8, bool)>,
    mtu: Option<u32>,
    seed: u64,
}

fn drawn(policy: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = Drawn> {
    let kind = prop_oneof![
        1 => Just(Kind::Empty),
        2 => policy.prop_map(Kind::Policy),
    ];
    let mtu = prop_oneof![3 => Just(None), 1 => (40u32..120).prop_map(Some)];
    (
        prop::collection::vec((kind, any::<u8>()), 1..8),
        prop::collection::vec((any::<u8>(), prop::bool::weighted(0.3)), 2),
        mtu,
        any::<u64>(),
    )
        .prop_map(|(functions, ports, mtu, seed)| Drawn {
            functions,
            ports,
            mtu,
            seed,
        })
}

/// Somewhere behind function `from`; mostly another function.
fn target(from: usize, functions: usize, choice: u8) -> Target {
    let behind = functions.saturating_sub(from);
    match choice % 8 {
        0 => Target::Drop,
        1 => Target::Tx,
        2 => Target::Device(u32::from(choice >> 7) + 1),
        3 => Target::Stack,
        _ if behind == 0 => Target::Stack,
        _ => Target::Instance(from + usize::from(choice >> 3) % behind),
    }
}

/// The policies of a graph's functions, of those that have one.
type Policies = Vec<Option<Arc<Policy>>>;

/// The graph and its policies. The error is a planning error.
fn built(drawn: &Drawn) -> Result<(EdgePlan, Policies), String> {
    let count = drawn.functions.len();
    let mut policies = Vec::new();
    let mut instances = Vec::new();
    for (place, (kind, choice)) in drawn.functions.iter().enumerate() {
        let to = target(place + 1, count, *choice);
        let name = format!("f{place}");
        match kind {
            Kind::Empty => {
                policies.push(None);
                instances.push(empty(&name, to));
            }
            Kind::Policy(text) => {
                let policy = policy(text);
                instances.push(middlebox(&name, &policy, to)?);
                policies.push(Some(policy));
            }
        }
    }
    let ports = (1..)
        .zip(&drawn.ports)
        .map(|(number, (choice, offloaded))| {
            let checksums = match offloaded {
                true => ChecksumMode::Offloaded,
                false => ChecksumMode::Complete,
            };
            port(number, checksums, target(0, count, choice | 4))
        });
    Ok((graph_of(ports.collect(), instances), policies))
}

/// What became of a packet, by the reference: one policy after the other.
type Walked = (Verdict, Option<u32>, Vec<u8>);

/// Walks packets through the graph with the reference for each policy. For ports with complete checksums.
fn walk(
    graph: &EdgePlan,
    policies: &[Option<Arc<Policy>>],
    options: &GraphOptions,
    samples: &[Sample],
) -> Vec<Walked> {
    let mut references: BTreeMap<usize, Box<dyn weir_engine::Engine>> = BTreeMap::new();
    for (place, policy) in policies.iter().enumerate() {
        let Some(policy) = policy else { continue };
        let options = ReplayOptions {
            checksums: ChecksumMode::Complete,
            mtu: options.mtu,
            seed: options.seed,
            ports: ports(),
        };
        let engine = weir_engine::open(EngineKind::Reference, policy, &options);
        references.insert(place, engine.expect("was planned"));
    }
    let mut walked = Vec::new();
    for (number, sample) in (0..).zip(samples) {
        let first = graph.entries[sample.port as usize - 1];
        let (mut at, mut bytes) = (first, sample.frame.clone());
        let end = loop {
            let place = match at {
                Target::Instance(place) => place,
                Target::Device(port) => break (Verdict::Redirect, Some(port)),
                Target::Stack => break (Verdict::Pass, None),
                Target::Drop => break (Verdict::Drop, None),
                Target::Tx => break (Verdict::Tx, None),
                Target::Pair => unreachable!("short graphs do not recirculate"),
            };
            at = graph.targets[place][0];
            let Some(reference) = references.get_mut(&place) else {
                continue;
            };
            let packet = Packet {
                frame: &bytes,
                now_ns: sample.now_ns,
                number,
                port: sample.port,
                queue: sample.queue,
            };
            let mut out = Vec::new();
            let verdict = reference.packet(&packet, &mut out).expect("runs");
            if matches!(verdict, Verdict::Pass | Verdict::Tx) {
                bytes = out;
            }
            if verdict != Verdict::Pass {
                break (verdict, None);
            }
        };
        if end.0 == Verdict::Drop {
            bytes.clear();
        }
        walked.push((end.0, end.1, bytes));
    }
    walked
}

fn sample(frame: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Sample> {
    let taken = frame.prop_filter("a device delivers it", |f| {
        (14..=weir_bpf::abi::FRAME_MAX).contains(&f.len())
    });
    (taken, 0u64..2_000_000_000, 1u32..3, 0u16..3).prop_map(|(frame, now_ns, port, queue)| Sample {
        frame,
        now_ns,
        port,
        queue,
    })
}

#[test]
fn generated_graphs_agree_on_generated_packets() {
    let (cases, engines) = (cases(8), engines());
    let strategy = (
        drawn(weir_policy::generate::policy_text()),
        prop::collection::vec(sample(weir_packet::generate::frame()), PACKETS),
    );
    let seen = RefCell::new(BTreeMap::<String, u64>::new());
    let count = |what: &str, n: u64| {
        *seen.borrow_mut().entry(what.to_owned()).or_default() += n;
    };
    // Every step of shrinking loads the graph into every engine.
    let config = ProptestConfig {
        max_shrink_iters: 100,
        ..config(cases, file!())
    };
    TestRunner::new(config)
        .run(&strategy, |(drawn, samples)| {
            let Ok((graph, policies)) = built(&drawn) else {
                count("graphs that cannot be planned", 1);
                return Ok(());
            };
            let options = GraphOptions {
                mtu: drawn.mtu,
                seed: drawn.seed,
                ..GraphOptions::default()
            };
            let said = agree(&engines, &graph, &options, &samples).map_err(TestCaseError::fail)?;
            for outcome in &said.outcomes {
                count(&format!("{}", outcome.verdict), 1);
            }
            count("log lines", said.logs.len() as u64);
            let hops: u64 = said.totals.instances.iter().map(|s| s.received).sum();
            count("hops", hops);
            // Checksums that senders left to a device are finished where packets leave a graph, of which the reference knows nothing.
            let complete = |p: &PortPlan| p.checksums == Some(ChecksumMode::Complete);
            if !graph.ports.iter().all(complete) {
                return Ok(());
            }
            count("graphs held to the reference", 1);
            let walked = walk(&graph, &policies, &options, &samples);
            for (i, (verdict, port, bytes)) in walked.iter().enumerate() {
                let found = (said.outcomes[i].verdict, said.outcomes[i].port);
                prop_assert_eq!(found, (*verdict, *port), "packet {}", i);
                if *verdict != Verdict::Drop {
                    prop_assert_eq!(&said.frames[i], bytes, "packet {}", i);
                }
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    let seen = seen.into_inner();
    eprintln!("{cases} graphs x {PACKETS} packets: {engines:?} agree: {seen:?}");
    // Few graphs need not end in every way.
    let least: &[&str] = match cases {
        60.. => &["pass", "drop", "tx", "redirect", "log lines"],
        _ => &["pass", "drop"],
    };
    for what in least.iter().chain(&["graphs held to the reference"]) {
        assert!(
            seen.get(*what).is_some_and(|n| *n > 0),
            "no {what}: {seen:?}"
        );
    }
}

#[test]
fn the_reference_engine_takes_no_graph() {
    let graph = chained(Vec::new(), Target::Stack);
    let error = replay::open(EngineKind::Reference, &graph, &GraphOptions::default())
        .err()
        .expect("refused");
    assert!(error.is_configuration());
    assert!(
        error.to_string().contains("user, user-jit or kernel"),
        "{error}"
    );
}

#[test]
fn reports_add_up() {
    let graph = chained(
        vec![empty("a", Target::Stack), empty("b", Target::Stack)],
        Target::Device(1),
    );
    let samples: Vec<Sample> = (0..3).map(frame).collect();
    let said = agree(&engines(), &graph, &GraphOptions::default(), &samples).expect("agree");
    let report = GraphReport::new("user", &graph, &said.totals);
    assert_eq!(report.packets.received, 3);
    assert_eq!(report.packets.redirect, 3);
    assert_eq!((report.ports[0].stage.next, report.ports[0].sent), (3, 3));
    assert_eq!(report.instances[1].stage.packets.redirect, 3);
    let mut unbalanced = report.clone();
    unbalanced.instances[0].stage.packets.received -= 1;
    assert!(report.balanced() && !unbalanced.balanced());
}
