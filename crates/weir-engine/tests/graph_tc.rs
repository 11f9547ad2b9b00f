//! Graphs with ports on tc in the user engine and in the running kernel: the same verdicts, bytes, ways out, ledgers, connections and log lines,
//! for received packets and for those that leave; one instance on both hooks is one instance.
//!
//! What the kernel's test run takes no socket buffer of is a drop of its port in every engine (`edge::replay`).

use std::sync::Arc;

use crate::captures::{captures, dealt, ethernet, half_of_examples};
use crate::common::{Sample, engines, policy};
use crate::filters::planned as filter;
use crate::graph::{LEAVES, Led, Said, agree, empty, instance, plan as graph_of, port, ports};
use weir_bpf::abi::NEXT;
use weir_engine::EngineKind;
use weir_engine::edge::replay::{self, GraphOptions};
use weir_functions::middlebox;
use weir_functions::plan::ChecksumMode;
use weir_graph::{EdgePlan, Instance, Link, Mode, Model, PortPlan, Source, Target};
use weir_kernel::object::TC_TEST_RUN_MAX;
use weir_packet::{Reason, Verdict};
use weir_policy::model::Policy;

/// Native code is of XDP programs only.
fn tc_engines() -> Vec<EngineKind> {
    let mut engines = engines();
    engines.retain(|engine| *engine != EngineKind::UserJit);
    engines
}

/// Instances behind port 1, on tc in both directions, and a port 2 on XDP whose packets begin at the same one.
fn graph(instances: Vec<Led>, first: Target) -> EdgePlan {
    let on = |number, mode| {
        let (port, first) = port(number, ChecksumMode::Complete, first);
        let checksums = port.checksums.filter(|_| mode != Mode::Tc);
        let port = PortPlan {
            mode,
            checksums,
            ..port
        };
        (port, first)
    };
    let mut graph = graph_of(vec![on(1, Mode::Tc), on(2, Mode::Native)], instances);
    graph.transmits[0] = Some(first);
    graph
}

/// A policy that sees packets that leave.
fn rules(name: &str, policy: &Arc<Policy>, to: Target) -> Led {
    let (plan, _) = middlebox::plan_for(policy, &ports(), true).expect("can be planned");
    instance(name, plan, to)
}

fn run(graph: &EdgePlan, samples: &[Sample]) -> Said {
    let options = GraphOptions {
        checksums: ChecksumMode::Offloaded,
        ..GraphOptions::default()
    };
    agree(&tc_engines(), graph, &options, samples).unwrap_or_else(|e| panic!("{e}"))
}

fn frame(port: u32) -> Sample {
    let mut frame = vec![7; 64];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    Sample {
        frame,
        now_ns: 0,
        port,
        queue: 0,
    }
}

/// A TCP segment between a host inside, 10.0.0.1:4000, and a server outside, 192.0.2.1:80.
fn segment(port: u32, outwards: bool, flags: u8, now_ms: u64) -> Sample {
    let (inside, outside) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    let (src, dst, sport, dport) = match outwards {
        true => (inside, outside, 4000u16, 80u16),
        false => (outside, inside, 80, 4000),
    };
    let mut frame = vec![2; 12];
    frame.extend([8, 0]);
    frame.extend([0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(src);
    frame.extend(dst);
    frame.extend(sport.to_be_bytes());
    frame.extend(dport.to_be_bytes());
    let seq = if flags & SYN != 0 { 1 } else { 2 };
    let ack = if flags & ACK != 0 { 2 } else { 0 };
    frame.extend([0, 0, 0, seq, 0, 0, 0, ack, 0x50, flags]);
    frame.extend([0xff, 0xff, 0, 0, 0, 0]);
    let sum = |words: &[u8], start: u32| {
        let words = words
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let sum = words.fold(start, |sum, word| sum + word);
        let sum = (sum & 0xffff) + (sum >> 16);
        !(((sum & 0xffff) + (sum >> 16)) as u16)
    };
    let head = sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&head.to_be_bytes());
    let check = sum(&frame[26..54], 6 + 20);
    frame[50..52].copy_from_slice(&check.to_be_bytes());
    Sample {
        frame,
        now_ns: now_ms * 1_000_000,
        port,
        queue: 0,
    }
}

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;

#[test]
fn packets_end_on_tc_where_links_say() {
    for (end, verdict) in [
        (Target::Stack, Verdict::Pass),
        (Target::Drop, Verdict::Drop),
        (Target::Tx, Verdict::Tx),
        (Target::Device(2), Verdict::Redirect),
    ] {
        let chain = vec![empty("a", Target::Instance(1)), empty("b", end)];
        let graph = graph(chain, Target::Instance(0));
        // Packets that leave and would be sent back are refused by plans, which this one is not.
        let samples = [frame(1), frame(2), frame(1 + LEAVES)];
        let said = run(&graph, &samples);
        let port = (verdict == Verdict::Redirect).then_some(2);
        for outcome in &said.outcomes {
            assert_eq!((outcome.verdict, outcome.port), (verdict, port), "{end:?}");
        }
        for (stats, next) in said.totals.instances.iter().zip([3, 0]) {
            assert_eq!((stats.received, stats.bytes), (3, 3 * 64));
            assert_eq!(stats.verdict[NEXT], next);
        }
        let transmits: Vec<_> = said.totals.transmits.iter().collect();
        let sent = transmits[0].as_ref().expect("is seen");
        assert_eq!((sent.received, sent.verdict[NEXT]), (1, 1));
        assert!(transmits[1].is_none());
        assert!(said.totals.ports.iter().all(|port| port.received == 1));
    }
}

/// A connection that a packet opened on its way out is known to its answers on both hooks, and nothing else comes in.
#[test]
fn one_connection_table_for_both_hooks_and_directions() {
    let policy = policy(
        "mine: add-stateful out eth1 accept\n\
         in:   add-stateful in eth2 tcp-dport 22 accept\n\
         rest: all drop\n",
    );
    let graph = graph(
        vec![
            empty("count", Target::Instance(1)),
            rules("wall", &policy, Target::Stack),
        ],
        Target::Instance(0),
    );
    let leaves = 1 + LEAVES;
    let samples = [
        segment(1, false, SYN_ACK, 0),
        segment(leaves, true, SYN, 1),
        segment(1, false, SYN_ACK, 2),
        segment(leaves, true, ACK, 3),
        segment(2, false, ACK, 4),
    ];
    let said = run(&graph, &samples);
    let verdicts: Vec<Verdict> = said.outcomes.iter().map(|one| one.verdict).collect();
    use Verdict::{Drop, Pass};
    assert_eq!(verdicts, [Drop, Pass, Pass, Pass, Pass]);
    let wall = &said.totals.instances[1];
    assert_eq!((wall.received, wall.verdict[1], wall.verdict[2]), (5, 1, 4));
    assert_eq!(wall.reason[Reason::RuleDrop as usize], 1);
}

/// What one function makes of the mark is what the next one finds, 0 as well.
#[test]
fn marks_go_from_function_to_function() {
    let rule = |name, text: &str, to| rules(name, &policy(text), to);
    let shield = |mark: u32, to| {
        let keys = format!("rules = [\"allow tcp mark {mark}\"]");
        (Instance::new("shield", "filter", filter(&keys)), to)
    };
    let next = Target::Instance;
    for (made, given) in [(5, 0), (0, 7), (5, 7), (0, 0)] {
        let wanted = |mark: u32| format!("! mark {mark} drop");
        let chain = vec![
            rule("make", &format!("all mark set {made}"), next(1)),
            rule("made", &wanted(made), next(2)),
            shield(given, next(3)),
            rule("given", &wanted(given), next(4)),
            rule("clear", "all mark set 0", next(5)),
            rule("cleared", &wanted(0), Target::Stack),
        ];
        let graph = graph(chain, next(0));
        let samples = [segment(1, false, ACK, 0), segment(1, true, ACK, 1)];
        let said = run(&graph, &samples);
        for outcome in &said.outcomes {
            assert_eq!(outcome.verdict, Verdict::Pass, "{made} {given}");
        }
    }
}

/// Packets that leave have the address of this host, and their answers come back to who sent them.
#[test]
fn both_directions_are_translated() {
    let policy = policy("nat: add-stateful out eth1 net-proto ip4 map ip-saddr 198.51.100.1\n");
    let graph = graph(
        vec![rules("nat", &policy, Target::Stack)],
        Target::Instance(0),
    );
    let mut answer = segment(1, false, SYN_ACK, 2);
    let to = [198, 51, 100, 1];
    answer.frame[30..34].copy_from_slice(&to);
    // Both checksums: the sum of the words that changed is added to them.
    let delta = |bytes: &mut [u8]| {
        let word = |w: &[u8]| u32::from(w[0]) << 8 | u32::from(w[1]);
        let mut sum = u32::from(!(word(bytes) as u16));
        for (old, new) in [(10 << 8, 198 << 8 | 51), (1, 100 << 8 | 1)] {
            sum += u32::from(!(old as u16)) + new;
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        bytes.copy_from_slice(&(!(sum as u16)).to_be_bytes());
    };
    delta(&mut answer.frame[24..26]);
    delta(&mut answer.frame[50..52]);
    let samples = [segment(1 + LEAVES, true, SYN, 1), answer];
    let said = run(&graph, &samples);
    assert_eq!(said.frames[0][26..30], to, "the source of what leaves");
    assert_eq!(
        said.frames[1][30..34],
        [10, 0, 0, 1],
        "the target of the answer"
    );
}

/// Example policies, each behind a port on tc, over the captures dealt to it, one packet of two as one that leaves.
#[test]
fn policies_agree_over_captures() {
    let long = std::env::var_os("WEIR_LONG").is_some();
    let most = if long { usize::MAX } else { 6 };
    let mut samples: Vec<Vec<Sample>> = captures()
        .iter()
        .filter_map(|path| ethernet(path))
        .map(|samples| samples.into_iter().take(most).collect())
        .collect();
    let packets = samples.iter().map(Vec::len).sum::<usize>();
    assert!(packets > 300, "{packets} packets");
    for sample in samples.iter_mut().flatten().step_by(2) {
        sample.port += LEAVES;
    }
    let mut seen = [0; 5];
    for (number, path) in half_of_examples(0).into_iter().enumerate() {
        let parsed = weir_policy::parse_file(&path);
        let parsed = parsed.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let samples: Vec<Sample> = dealt(&samples, number).flatten().cloned().collect();
        let wall = rules("wall", &Arc::new(parsed.policy), Target::Stack);
        let graph = graph(vec![wall], Target::Instance(0));
        for outcome in run(&graph, &samples).outcomes {
            seen[outcome.verdict as usize] += 1;
        }
    }
    assert!(
        seen.iter().filter(|count| **count > 0).count() > 1,
        "{seen:?}"
    );
    eprintln!("{packets} packets dealt to the examples: {seen:?}");
}

/// Filters see the same packets on both hooks, and say the same of them.
#[test]
fn filters_agree_with_those_on_xdp() {
    let samples: Vec<Sample> = captures()
        .iter()
        .filter_map(|path| ethernet(path))
        .flat_map(|samples| samples.into_iter().take(20))
        .filter(|sample| (54..=TC_TEST_RUN_MAX).contains(&sample.frame.len()))
        .collect();
    let on_xdp: Vec<Sample> = (samples.iter().cloned())
        .map(|sample| Sample { port: 2, ..sample })
        .collect();
    for keys in [
        "rules = [\"deny from 10.0.0.0/8\", \"deny udp\", \"allow tcp to-port 80\"]\ndefault = \"drop\"",
        "rules = [\"deny from 192.168.0.0/16\"]",
        "rules = [\"deny from 10.0.0.0/8\", \"limit udp rate 1/s per source block 60s\", \"limit tcp-syn rate 1/s per source\"]",
        "rules = [\"allow tcp\", \"allow udp to-port 53\"]\ndefault = \"drop\"\nother = \"drop\"",
    ] {
        let shield = || {
            let shield = Instance::new("shield", "filter", filter(keys));
            vec![(shield, Target::Stack)]
        };
        let graph = graph(shield(), Target::Instance(0));
        let tc = run(&graph, &samples);
        let xdp = run(&graph, &on_xdp);
        for (i, sample) in samples.iter().enumerate() {
            let shown = weir_packet::summary(&sample.frame);
            assert_eq!(tc.outcomes[i], xdp.outcomes[i], "packet {i} {shown}");
        }
        assert_eq!(
            tc.totals.instances[0].reason, xdp.totals.instances[0].reason,
            "{keys}"
        );
    }
}

#[test]
fn a_guarded_loop_ends_on_tc() {
    let link = |from, to, guard| Link { from, to, guard };
    let out = |instance| Source::Out { instance, out: 0 };
    let (port, _) = port(1, ChecksumMode::Complete, Target::Stack);
    let instances = vec![empty("a", Target::Stack).0, empty("b", Target::Stack).0];
    let model = Model {
        edge: "t".to_owned(),
        ports: vec![PortPlan {
            mode: Mode::Tc,
            checksums: None,
            ..port
        }],
        instances,
        links: vec![
            link(Source::Transmit(1), Target::Instance(0), None),
            link(out(0), Target::Instance(1), None),
            link(out(1), Target::Instance(0), Some(3)),
        ],
        ..Model::default()
    };
    let graph = model.plan().expect("a plan");
    let said = run(&graph, &[frame(1 + LEAVES)]);
    assert_eq!(said.outcomes[0].verdict, Verdict::Drop);
    assert_eq!(said.totals.instances[0].received, 4);
    let lost = said.totals.instances[2].reason[Reason::LoopGuard as usize];
    assert_eq!(lost, 1);
}

#[test]
fn native_code_is_refused_by_name() {
    let graph = graph(vec![empty("a", Target::Stack)], Target::Instance(0));
    let opened = replay::open(EngineKind::UserJit, &graph, &GraphOptions::default());
    let error = opened.err().expect("refused").to_string();
    assert!(error.contains("ports on tc"), "{error}");
}
