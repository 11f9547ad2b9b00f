//! What the tests of graphs share: building graphs, running packets through every engine, comparing all they say.

use std::sync::Arc;

use weir_engine::edge::Sees;
use weir_engine::edge::replay::{
    self, Contents, GraphLog, GraphOptions, GraphReport, Outcome, Totals,
};
use weir_engine::{EngineKind, Packet};
use weir_functions::kind::Planned;
use weir_functions::middlebox;
use weir_functions::plan::{ChecksumMode, InstancePlan, Port};
use weir_graph::{EdgePlan, Instance, Mode, PortPlan, Target};
use weir_packet::Verdict;
use weir_policy::model::Policy;

use crate::common::Sample;

/// Maps of functions that say what an instance counted or remembers, where it has them.
const TOLD: [&str; 9] = [
    "stats",
    "counters",
    "counts",
    "totals",
    "handed",
    "flows",
    "fragments",
    "service_counts",
    "server_counts",
];

/// An instance, and where its output leads.
pub(crate) type Led = (Instance, Target);

/// A sample leaves by a port, on tc, instead of coming in by it: added to the port's number.
pub(crate) const LEAVES: u32 = 1 << 16;

/// A function that does nothing.
pub(crate) fn empty(name: &str, to: Target) -> Led {
    (Instance::new(name, "empty", Planned::embedded("empty")), to)
}

/// A policy; its ports are `eth1` and `eth2`. The error is a planning error.
pub(crate) fn middlebox(name: &str, policy: &Arc<Policy>, to: Target) -> Result<Led, String> {
    let (plan, _) = middlebox::plan(policy, &ports()).map_err(|e| e.to_string())?;
    Ok(instance(name, plan, to))
}

/// The ports that policies may name.
pub(crate) fn ports() -> Vec<Port> {
    let port = |number: u32| Port {
        number,
        name: Some(format!("eth{number}")),
        index: number + 1,
    };
    vec![port(1), port(2)]
}

pub(crate) fn instance(name: &str, plan: InstancePlan, to: Target) -> Led {
    (
        Instance::new(name, plan.object.to_string(), Planned::new(plan)),
        to,
    )
}

/// A port, and where its packets begin.
pub(crate) fn port(number: u32, checksums: ChecksumMode, first: Target) -> (PortPlan, Target) {
    let port = PortPlan {
        number,
        name: format!("p{number}"),
        device: format!("eth{number}"),
        mode: Mode::Native,
        checksums: Some(checksums),
        metadata: false,
    };
    (port, first)
}

/// A plan as it is written here, which may be one that no configuration has: chains that are too long.
pub(crate) fn plan(ports: Vec<(PortPlan, Target)>, instances: Vec<Led>) -> EdgePlan {
    let (ports, entries): (Vec<PortPlan>, Vec<Target>) = ports.into_iter().unzip();
    let (instances, targets): (Vec<Instance>, Vec<Target>) = instances.into_iter().unzip();
    EdgePlan {
        edge: "test".to_owned(),
        transmits: vec![None; ports.len()],
        ports,
        entries,
        instances,
        targets: targets.into_iter().map(|to| vec![to]).collect(),
        maps: Vec::new(),
        hooks: Vec::new(),
        longest: 0,
        recirculations: 0,
        notes: Vec::new(),
    }
}

/// Instances one behind the other behind port 1; each leads to the next one, the last to `end`.
pub(crate) fn chained(mut instances: Vec<Led>, end: Target) -> EdgePlan {
    let last = instances.len();
    for (place, (_, to)) in instances.iter_mut().enumerate() {
        *to = match place + 1 < last {
            true => Target::Instance(place + 1),
            false => end,
        };
    }
    let first = match last {
        0 => end,
        _ => Target::Instance(0),
    };
    plan(vec![port(1, ChecksumMode::Complete, first)], instances)
}

/// All that an engine says of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) outcomes: Vec<Outcome>,
    /// Empty for packets that did not leave.
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) logs: Vec<GraphLog>,
    pub(crate) totals: Totals,
    pub(crate) contents: Vec<(usize, &'static str, Option<Contents>)>,
}

/// Runs packets through one engine and checks its ledger.
pub(crate) fn run(
    kind: EngineKind,
    graph: &EdgePlan,
    options: &GraphOptions,
    samples: &[Sample],
) -> Result<Said, String> {
    let mut engine = replay::open(kind, graph, options).map_err(|e| e.to_string())?;
    let (mut outcomes, mut frames, mut logs) = (Vec::new(), Vec::new(), Vec::new());
    let mut out = Vec::new();
    for (number, sample) in (0..).zip(samples) {
        let packet = Packet {
            frame: &sample.frame,
            now_ns: sample.now_ns,
            number,
            port: sample.port,
            queue: sample.queue,
        };
        let (sees, port) = match packet.port.checked_sub(LEAVES) {
            Some(port) => (Sees::Transmitted, port),
            None => (Sees::Received, packet.port),
        };
        let packet = Packet { port, ..packet };
        let outcome = engine
            .packet_of(&packet, sees, &mut out)
            .map_err(|e| e.to_string())?;
        let leaves = !matches!(outcome.verdict, Verdict::Drop | Verdict::Aborted);
        frames.push(if leaves { out.clone() } else { Vec::new() });
        outcomes.push(outcome);
        logs.extend(engine.logs().map_err(|e| e.to_string())?);
    }
    let totals = engine.totals().map_err(|e| e.to_string())?;
    let mut contents = Vec::new();
    for instance in 0..graph.instances.len() {
        for map in TOLD {
            let found = engine.contents(instance, map).map_err(|e| e.to_string())?;
            contents.push((instance, map, found));
        }
    }
    let report = GraphReport::new(engine.name(), graph, &totals);
    if !report.balanced() {
        return Err(format!("the ledger is not balanced: {report:#?}"));
    }
    if report.packets.received != samples.len() as u64 {
        return Err(format!(
            "{} packets, {} received",
            samples.len(),
            report.packets.received
        ));
    }
    Ok(Said {
        outcomes,
        frames,
        logs,
        totals,
        contents,
    })
}

/// The first difference between two runs.
pub(crate) fn difference(
    (kind, wanted): (EngineKind, &Said),
    (other, found): (EngineKind, &Said),
    samples: &[Sample],
) -> Option<String> {
    for (i, sample) in samples.iter().enumerate() {
        if wanted.outcomes[i] != found.outcomes[i] || wanted.frames[i] != found.frames[i] {
            return Some(format!(
                "packet {i} ({})\nreceived {}\n{kind:?} {:?} {}\n{other:?} {:?} {}",
                weir_packet::summary(&sample.frame),
                shown(&sample.frame),
                wanted.outcomes[i],
                shown(&wanted.frames[i]),
                found.outcomes[i],
                shown(&found.frames[i]),
            ));
        }
    }
    if wanted.logs != found.logs {
        let (a, b) = (&wanted.logs, &found.logs);
        return Some(format!("log lines\n{kind:?} {a:?}\n{other:?} {b:?}"));
    }
    if wanted.totals != found.totals {
        let (a, b) = (&wanted.totals, &found.totals);
        return Some(format!("ledgers\n{kind:?} {a:?}\n{other:?} {b:?}"));
    }
    for (a, b) in wanted.contents.iter().zip(&found.contents) {
        if a != b {
            return Some(format!("maps\n{kind:?} {a:?}\n{other:?} {b:?}"));
        }
    }
    None
}

/// The first bytes of a frame, and how many it has.
fn shown(frame: &[u8]) -> String {
    let first = &frame[..frame.len().min(200)];
    format!("{} bytes {first:02x?}", frame.len())
}

/// Runs packets through all these engines; what they all say.
pub(crate) fn agree(
    engines: &[EngineKind],
    graph: &EdgePlan,
    options: &GraphOptions,
    samples: &[Sample],
) -> Result<Said, String> {
    let mut first: Option<(EngineKind, Said)> = None;
    for &kind in engines {
        let said = run(kind, graph, options, samples).map_err(|e| format!("{kind:?}: {e}"))?;
        match &first {
            None => first = Some((kind, said)),
            Some((known, wanted)) => {
                if let Some(text) = difference((*known, wanted), (kind, &said), samples) {
                    return Err(text);
                }
            }
        }
    }
    first
        .map(|(_, said)| said)
        .ok_or_else(|| "no engine".to_owned())
}
