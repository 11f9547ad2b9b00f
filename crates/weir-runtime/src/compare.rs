//! Two policies, or two graphs, over the packets of a capture: which packets get another verdict or other bytes, and by which rules.
//!
//! Both sides begin without connections, limits used up, or elements that packets put into sets. A first pass finds the packets that differ; a
//! second one, from the start, reads counters around each of them, and so tells the rules and reasons. Engines are deterministic, so the
//! second pass meets the same packets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use weir_bpf::abi::{Counter, NEXT, Stats};
use weir_engine::edge::Sees;
use weir_engine::edge::replay::{self, GraphEngine, GraphOptions};
use weir_engine::{Engine, EngineError, EngineKind, Packet, ReplayOptions};
use weir_graph::EdgePlan;
use weir_packet::{Reason, Verdict};
use weir_policy::model::{Policy, Rule, Target};
use weir_vm::Routes;

/// Numbers of packets that are kept of each group.
const KEPT: usize = 10;

/// Map of a middlebox with a counter for each rule.
const COUNTERS: &str = "counters";

/// What runs on one side.
#[derive(Debug)]
pub enum Subject {
    /// Nothing: all packets pass as they are.
    Nothing,
    /// A policy.
    Policy {
        /// The policy.
        policy: Arc<Policy>,
        /// Of its replay.
        options: ReplayOptions,
    },
    /// A graph.
    Graph(Box<Graph>),
}

/// A graph with the policies of its middleboxes.
#[derive(Debug)]
pub struct Graph {
    /// The graph.
    pub plan: EdgePlan,
    /// Policies by name of the function.
    pub policies: BTreeMap<String, Policy>,
    /// Of its replay.
    pub options: GraphOptions,
    /// What the host knows of routes, where a function asks.
    pub routes: Option<Routes>,
}

/// A packet as one side gets it.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The packet; its port is a number of this side.
    pub packet: Packet<'a>,
    /// Whether it comes in by the port or leaves by it. Policies ignore that.
    pub sees: Sees,
}

/// What differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Packets of the capture.
    pub packets: u64,
    /// Packets with another verdict, or sent out of another device.
    pub changed: u64,
    /// Packets with the same verdict and other bytes.
    pub rewritten: u64,
    /// Both, by what happened and why, the largest group first.
    pub groups: Vec<Group>,
}

/// Packets that differ in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// What happened before.
    pub before: Treatment,
    /// What happens after.
    pub after: Treatment,
    /// How many packets.
    pub packets: u64,
    /// Numbers of the first of them, from 1.
    pub first: Vec<u64>,
}

/// What becomes of a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Treatment {
    /// `pass`, `drop`, `tx`, `redirect` or `aborted`.
    pub verdict: &'static str,
    /// The device that it is redirected to, if it is one of a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The port or function where its way ended; absent of a policy, which is one function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Reasons that were counted there.
    pub reasons: Vec<&'static str>,
    /// Rules that matched and have such an effect; of packets that are rewritten differently those that rewrite.
    pub rules: Vec<RuleName>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RuleName {
    /// The function of a graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Number from 1.
    pub id: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it stands: `line 12`, or a file and line.
    pub place: String,
}

/// A comparison: all packets by [`Comparison::find`], then all again by [`Comparison::explain`].
pub struct Comparison {
    kind: EngineKind,
    subjects: [Subject; 2],
    sides: [Side; 2],
    packets: u64,
    /// Numbers of packets that differ, from 0, in order; whether only their bytes do.
    found: Vec<(u64, bool)>,
    /// Of those, how many were explained.
    explained: usize,
    groups: BTreeMap<(Treatment, Treatment), (u64, Vec<u64>)>,
}

impl Comparison {
    /// Of what runs before and after a change, in an engine.
    ///
    /// # Errors
    /// A side cannot run in that engine.
    pub fn new(kind: EngineKind, before: Subject, after: Subject) -> Result<Self, EngineError> {
        let sides = [Side::open(kind, &before)?, Side::open(kind, &after)?];
        Ok(Comparison {
            kind,
            subjects: [before, after],
            sides,
            packets: 0,
            found: Vec::new(),
            explained: 0,
            groups: BTreeMap::new(),
        })
    }

    /// Runs a packet on both sides, and remembers it if they differ.
    ///
    /// # Errors
    /// As of engines.
    pub fn find(&mut self, before: &Given<'_>, after: &Given<'_>) -> Result<(), EngineError> {
        let [old, new] = &mut self.sides;
        let [one, other] = [old.run(before)?, new.run(after)?];
        self.packets += 1;
        if one != other {
            self.found.push((before.packet.number, false));
        } else if !matches!(one.0, Verdict::Drop | Verdict::Aborted) && old.out != new.out {
            self.found.push((before.packet.number, true));
        }
        Ok(())
    }

    /// Packets that differ so far.
    #[must_use]
    pub fn differing(&self) -> usize {
        self.found.len()
    }

    /// Begins the second pass.
    ///
    /// # Errors
    /// As of [`Comparison::new`].
    pub fn rewind(&mut self) -> Result<(), EngineError> {
        let [before, after] = &self.subjects;
        self.sides = [
            Side::open(self.kind, before)?,
            Side::open(self.kind, after)?,
        ];
        self.explained = 0;
        self.groups.clear();
        Ok(())
    }

    /// Runs a packet again, and explains it if it differs. `false`: no later packet differs, so no more are needed.
    ///
    /// # Errors
    /// As of engines.
    pub fn explain(&mut self, before: &Given<'_>, after: &Given<'_>) -> Result<bool, EngineError> {
        let Some((number, only_bytes)) = self.found.get(self.explained).copied() else {
            return Ok(false);
        };
        if number != before.packet.number {
            for (side, given) in self.sides.iter_mut().zip([before, after]) {
                side.run(given)?;
            }
            return Ok(true);
        }
        self.explained += 1;
        let mut treated = Vec::with_capacity(2);
        for (at, given) in [before, after].into_iter().enumerate() {
            let (side, subject) = (&mut self.sides[at], &self.subjects[at]);
            let counted = side.counted(subject)?;
            let (verdict, device) = side.run(given)?;
            let change = side.counted(subject)?.since(&counted);
            treated.push(change.treatment(subject, verdict, device, only_bytes));
        }
        if let (Some(after), Some(before)) = (treated.pop(), treated.pop()) {
            let (count, first) = self.groups.entry((before, after)).or_default();
            *count += 1;
            if first.len() < KEPT {
                first.push(number + 1);
            }
        }
        Ok(self.explained < self.found.len())
    }

    /// What differs. Groups are those of packets that were explained.
    #[must_use]
    pub fn report(&self) -> Report {
        let rewritten = self.found.iter().filter(|(_, only_bytes)| *only_bytes);
        let rewritten = rewritten.count() as u64;
        let groups = self.groups.iter();
        let mut groups: Vec<Group> = groups
            .map(|((before, after), (packets, first))| Group {
                before: before.clone(),
                after: after.clone(),
                packets: *packets,
                first: first.clone(),
            })
            .collect();
        groups.sort_by_key(|group| (std::cmp::Reverse(group.packets), group.first.clone()));
        Report {
            packets: self.packets,
            changed: self.found.len() as u64 - rewritten,
            rewritten,
            groups,
        }
    }
}

/// One side, running.
struct Side {
    engine: Running,
    /// The last packet, as it left.
    out: Vec<u8>,
    /// Devices by weir's numbers of the ports.
    devices: BTreeMap<u32, String>,
}

enum Running {
    Nothing,
    Policy(Box<dyn Engine>),
    Graph(Box<dyn GraphEngine>),
}

impl Side {
    fn open(kind: EngineKind, subject: &Subject) -> Result<Side, EngineError> {
        let mut devices = BTreeMap::new();
        let engine = match subject {
            Subject::Nothing => Running::Nothing,
            Subject::Policy { policy, options } => {
                Running::Policy(weir_engine::open(kind, policy, options)?)
            }
            Subject::Graph(graph) => {
                let mut engine = replay::open(kind, &graph.plan, &graph.options)?;
                if let Some(routes) = &graph.routes {
                    engine.set_routes(routes.clone());
                }
                let ports = graph.plan.ports.iter();
                devices = ports.map(|p| (p.number, p.device.clone())).collect();
                Running::Graph(engine)
            }
        };
        Ok(Side {
            engine,
            out: Vec::new(),
            devices,
        })
    }

    /// The verdict, and the device that the packet is redirected to. Log lines are thrown away.
    fn run(&mut self, given: &Given<'_>) -> Result<(Verdict, Option<String>), EngineError> {
        match &mut self.engine {
            Running::Nothing => {
                self.out.clear();
                self.out.extend_from_slice(given.packet.frame);
                Ok((Verdict::Pass, None))
            }
            Running::Policy(engine) => {
                let verdict = engine.packet(&given.packet, &mut self.out)?;
                engine.logs()?;
                Ok((verdict, None))
            }
            Running::Graph(engine) => {
                let outcome = engine.packet_of(&given.packet, given.sees, &mut self.out)?;
                engine.logs()?;
                let port = outcome.port.and_then(|port| self.devices.get(&port));
                Ok((outcome.verdict, port.cloned()))
            }
        }
    }

    /// What was counted up to now.
    fn counted(&mut self, subject: &Subject) -> Result<Counted, EngineError> {
        let mut counted = Counted::default();
        match (&mut self.engine, subject) {
            (Running::Policy(engine), _) => {
                let (stats, rules) = engine.totals()?;
                counted.stages.push((None, stats));
                counted.rules.push((None, packets(&rules)));
            }
            (Running::Graph(engine), Subject::Graph(graph)) => {
                let totals = engine.totals()?;
                let ports = graph.plan.ports.iter().map(|port| &port.name);
                let received = ports.clone().zip(&totals.ports);
                let transmits = totals.transmits.iter();
                let left = (ports.zip(transmits))
                    .filter_map(|(name, stats)| Some((name, stats.as_ref()?)));
                let instances = graph.plan.instances.iter().map(|one| &one.name);
                let stages = received.chain(left).chain(instances.zip(&totals.instances));
                counted.stages = stages
                    .map(|(name, stats)| (Some(name.clone()), *stats))
                    .collect();
                for (at, instance) in graph.plan.instances.iter().enumerate() {
                    if !graph.policies.contains_key(&instance.name) {
                        continue;
                    }
                    let contents = engine.contents(at, COUNTERS)?.unwrap_or_default();
                    // By key means by its bytes: in the order of rules only up to 256 of them.
                    let rules: BTreeMap<u32, u64> = contents
                        .iter()
                        .filter_map(|(key, value)| {
                            let key = key.first_chunk::<4>().copied()?;
                            Some((u32::from_ne_bytes(key), word(value)))
                        })
                        .collect();
                    let rules = rules.into_values().collect();
                    counted.rules.push((Some(instance.name.clone()), rules));
                }
            }
            _ => {}
        }
        Ok(counted)
    }
}

fn packets(counters: &[Counter]) -> Vec<u64> {
    counters.iter().map(|counter| counter.packets).collect()
}

/// The first word of a counter: packets.
fn word(value: &[u8]) -> u64 {
    let bytes = value.first_chunk::<8>().copied();
    bytes.map_or(0, u64::from_ne_bytes)
}

/// Ledgers and counters of rules, by function; `None` of a policy.
#[derive(Default)]
struct Counted {
    stages: Vec<(Option<String>, Stats)>,
    rules: Vec<(Option<String>, Vec<u64>)>,
}

impl Counted {
    /// What one packet counted.
    fn since(mut self, before: &Counted) -> Counted {
        for ((_, now), (_, then)) in self.stages.iter_mut().zip(&before.stages) {
            let verdicts = now.verdict.iter_mut().zip(&then.verdict);
            let reasons = now.reason.iter_mut().zip(&then.reason);
            for (now, then) in verdicts.chain(reasons) {
                *now = now.wrapping_sub(*then);
            }
        }
        for ((_, now), (_, then)) in self.rules.iter_mut().zip(&before.rules) {
            for (now, then) in now.iter_mut().zip(then) {
                *now = now.wrapping_sub(*then);
            }
        }
        self
    }

    fn treatment(
        &self,
        subject: &Subject,
        verdict: Verdict,
        device: Option<String>,
        only_bytes: bool,
    ) -> Treatment {
        let ended = |stats: &Stats| {
            let verdicts = stats.verdict.iter().enumerate();
            verdicts
                .filter(|(at, _)| *at != NEXT)
                .any(|(_, count)| *count > 0)
        };
        let last = self.stages.iter().find(|(_, stats)| ended(stats));
        let reasons = last.map(|(_, stats)| {
            let all = Reason::ALL.iter();
            let counted = all.filter(|reason| stats.reason[**reason as usize] > 0);
            counted.map(|reason| reason.name()).collect()
        });
        let decides = |rule: &&Rule| {
            rule.targets.iter().any(|target| match verdict {
                _ if only_bytes => rewrites(target),
                Verdict::Drop | Verdict::Tx => matches!(target, Target::Drop(_)),
                _ => matches!(target, Target::Accept),
            })
        };
        let mut rules = Vec::new();
        for (function, counted) in &self.rules {
            let policy = match (subject, function) {
                (Subject::Policy { policy, .. }, _) => Some(&**policy),
                (Subject::Graph(graph), Some(name)) => graph.policies.get(name),
                _ => None,
            };
            let all = policy.iter().flat_map(|policy| policy.rules.iter());
            let matched = all.zip(counted).filter(|(_, packets)| **packets > 0);
            let matched = matched.map(|(rule, _)| rule).filter(decides);
            rules.extend(matched.map(|rule| RuleName {
                function: function.clone(),
                id: rule.id,
                name: rule.name.clone(),
                place: rule.line_text(),
            }));
        }
        Treatment {
            verdict: verdict.name(),
            device,
            stage: last.and_then(|(name, _)| name.clone()),
            reasons: reasons.unwrap_or_default(),
            rules,
        }
    }
}

/// Whether a target may change bytes of a packet.
fn rewrites(target: &Target) -> bool {
    match target {
        Target::Set { .. }
        | Target::PushTag { .. }
        | Target::PopTag
        | Target::DecrementTtl
        | Target::SetPayload { .. }
        | Target::SetOption { .. }
        | Target::AddOption { .. }
        | Target::Strip(_)
        | Target::Map { .. }
        | Target::Shuffle { .. } => true,
        Target::SetMeta { .. }
        | Target::Drop(_)
        | Target::Accept
        | Target::ChangeSet(_)
        | Target::Log { .. } => false,
    }
}
