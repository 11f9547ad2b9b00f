//! Two policies or graphs over one capture: `weir replay NEW --against OLD`, and `weir apply --check-with CAPTURE`, where what runs is the old one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use weir_engine::edge::Sees;
use weir_engine::edge::replay::GraphOptions;
use weir_engine::{EngineError, EngineKind, Packet};
use weir_graph::{EdgePlan, Folder};
use weir_packet::pcap::CaptureError;
use weir_packet::summary;
use weir_policy::model::Policy;
use weir_runtime::compare::{Comparison, Given, Graph, Group, Report, Subject, Treatment};
use weir_runtime::{Kind, Planned, RuntimeError};

use super::super::{capture, policy, table};
use super::{common, graph};
use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::output;

/// Groups that people are shown; JSON has all.
const SHOWN: usize = 20;

/// `weir replay NEW --against OLD`.
pub(super) fn run(args: &ReplayArgs, before: &Path) -> Result<ExitCode, Failure> {
    let (old, new) = (Kind::of(before), Kind::of(&args.policy));
    if old == Kind::Networks || new == Kind::Networks {
        return Err(Failure::usage(
            "--against compares policies and graphs; of documents of networks compare the output of two replays with --verdicts",
        ));
    }
    if old != new {
        return Err(Failure::usage(
            "--against compares two policies, or two graphs",
        ));
    }
    let in_if = match (new, &args.in_if, &args.port, &args.routes) {
        (Kind::Policy, _, Some(_), _) | (Kind::Policy, _, _, Some(_)) => {
            return Err(Failure::usage(
                "--port and --routes are for graphs; a policy's packets come in by an interface: name it with --in-if",
            ));
        }
        (Kind::Configuration, Some(_), ..) => {
            return Err(Failure::usage(
                "--in-if is for policies; a graph has ports: name one with --port",
            ));
        }
        (_, in_if, ..) => in_if.as_deref(),
    };
    let survey = capture::survey(&args.input, in_if)?;
    let side = |path: &Path| match new {
        Kind::Policy => Side::of_policy(args, path, &survey),
        _ => Side::of_file(args, path, &survey),
    };
    let (old, new) = (side(before)?, side(&args.policy)?);
    let replay = Replay {
        input: &args.input,
        survey: &survey,
        queue: args.queue,
    };
    let (found, cut_off) = replay.compare(common::kind(args.engine), old, new, &args.policy)?;
    match args.json {
        true => output::json(&found.report)?,
        false => output::out(&format!("{}{}", found.text(), survey.notes()))?,
    }
    common::end(args, cut_off)
}

/// `weir apply --check-with`: what an apply would change for the packets of a capture.
pub(crate) fn of_apply(
    planned: &Planned,
    input: &Path,
    port: Option<&str>,
) -> Result<Found, Failure> {
    let Some(part) = &planned.graph else {
        return Err(Failure::usage(
            "--check-with replays graphs; this file has none: `weir replay FILE --in CAPTURE --verdicts` shows what its networks do",
        ));
    };
    let survey = capture::survey(input, None)?;
    let side = |plan: EdgePlan, policies| -> Result<Side, Failure> {
        let ports = graph::ports(port, input, &plan, &survey)?;
        Ok(Side::of_graph(
            plan,
            policies,
            ports,
            GraphOptions::default(),
            None,
        ))
    };
    let old =
        match weir_runtime::graph::running(&planned.edge, &mut |note| output::complain(&note))? {
            Some(record) => {
                let policies = policies(weir_graph::policies(&record.config()?, &record))?;
                side(record.plan()?, policies)?
            }
            None => Side {
                subject: Subject::Nothing,
                ports: vec![(0, Sees::Received); survey.ports.len()],
            },
        };
    let record = &part.record;
    let new = policies(weir_graph::policies(&record.config()?, record))?;
    let new = side(part.plan.clone(), new)?;
    let replay = Replay {
        input,
        survey: &survey,
        queue: 0,
    };
    let (found, cut_off) = replay.compare(EngineKind::User, old, new, &record.path)?;
    match cut_off {
        None => Ok(found),
        Some(error) => Err(Failure::failed(format!(
            "{}: {error}; nothing was applied",
            input.display()
        ))),
    }
}

fn policies(
    read: BTreeMap<String, Result<Policy, weir_functions::kind::FunctionError>>,
) -> Result<BTreeMap<String, Policy>, Failure> {
    let all = read.into_iter();
    all.map(|(name, policy)| match policy {
        Ok(policy) => Ok((name, policy)),
        Err(error) => Err(RuntimeError::Failed(error.message).into()),
    })
    .collect()
}

/// One side, and the port that packets of each interface of the capture come in by.
struct Side {
    subject: Subject,
    ports: Vec<(u32, Sees)>,
}

impl Side {
    fn of_policy(
        args: &ReplayArgs,
        path: &Path,
        survey: &capture::Survey,
    ) -> Result<Side, Failure> {
        let ports = survey.ports.iter();
        Ok(Side {
            subject: Subject::Policy {
                policy: Arc::new(policy::read(path)?.policy),
                options: common::options(args, survey),
            },
            ports: ports.map(|port| (port.number, Sees::Received)).collect(),
        })
    }

    fn of_file(args: &ReplayArgs, path: &Path, survey: &capture::Survey) -> Result<Side, Failure> {
        let plan = graph::plan(path)?;
        let config = weir_runtime::read(path)?;
        let policies = policies(weir_graph::policies(&config, &Folder::of(path)))?;
        let ports = graph::ports(args.port.as_deref(), &args.input, &plan, survey)?;
        let routes = graph::host_routes(args, &plan)?;
        Ok(Side::of_graph(
            plan,
            policies,
            ports,
            graph::options(args),
            routes,
        ))
    }

    fn of_graph(
        plan: EdgePlan,
        policies: BTreeMap<String, Policy>,
        ports: Vec<(u32, Sees)>,
        options: GraphOptions,
        routes: Option<weir_vm::Routes>,
    ) -> Side {
        Side {
            subject: Subject::Graph(Box::new(Graph {
                plan,
                policies,
                options,
                routes,
            })),
            ports,
        }
    }
}

/// What differs, with the first packet of each group in words.
pub(crate) struct Found {
    pub(crate) report: Report,
    /// By number of the packet.
    summaries: BTreeMap<u64, String>,
}

/// A capture that is replayed.
struct Replay<'a> {
    input: &'a Path,
    survey: &'a capture::Survey,
    queue: u16,
}

impl Replay<'_> {
    fn compare(
        &self,
        kind: EngineKind,
        old: Side,
        new: Side,
        shown: &Path,
    ) -> Result<(Found, Option<CaptureError>), Failure> {
        let failure = |error: EngineError| common::engine_failure(error, shown);
        let ports = [old.ports, new.ports];
        let mut comparison = Comparison::new(kind, old.subject, new.subject).map_err(failure)?;
        let cut_off = self.each(&ports, &mut |old, new| {
            comparison.find(old, new).map_err(failure)?;
            Ok(true)
        })?;
        if comparison.differing() > 0 {
            comparison.rewind().map_err(failure)?;
            // What cut the capture off is told once.
            self.each(&ports, &mut |old, new| {
                comparison.explain(old, new).map_err(failure)
            })?;
        }
        let report = comparison.report();
        let summaries = self.summaries(&report)?;
        Ok((Found { report, summaries }, cut_off))
    }

    /// All packets in order, as both sides get them, until one is the last that is wanted. Returns what ended the capture early.
    fn each(
        &self,
        ports: &[Vec<(u32, Sees)>; 2],
        see: &mut dyn FnMut(&Given<'_>, &Given<'_>) -> Result<bool, Failure>,
    ) -> Result<Option<CaptureError>, Failure> {
        let mut capture = capture::open(self.input)?;
        let mut progress = capture::Progress::new(self.survey.packets);
        loop {
            let packet = match capture.next_frame() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(error)),
            };
            let place = self.survey.place_of(&packet);
            let [old, new] = ports.each_ref().map(|ports| {
                let (port, sees) = ports.get(place).copied().unwrap_or((0, Sees::Received));
                Given {
                    packet: Packet {
                        frame: packet.data,
                        now_ns: packet.timestamp_ns,
                        number: packet.number,
                        port,
                        queue: self.queue,
                    },
                    sees,
                }
            });
            if !see(&old, &new)? {
                return Ok(None);
            }
            progress.tick(packet.number + 1);
        }
    }

    /// Of the first packets of the groups that people are shown.
    fn summaries(&self, report: &Report) -> Result<BTreeMap<u64, String>, Failure> {
        let shown = report.groups.iter().take(SHOWN);
        let mut wanted: Vec<u64> = shown
            .filter_map(|group| group.first.first().copied())
            .collect();
        wanted.sort_unstable();
        let mut summaries = BTreeMap::new();
        let Some(last) = wanted.last() else {
            return Ok(summaries);
        };
        let mut capture = capture::open(self.input)?;
        while let Ok(Some(packet)) = capture.next_frame() {
            let number = packet.number + 1;
            if wanted.binary_search(&number).is_ok() {
                summaries.insert(number, summary(packet.data));
            }
            if number >= *last {
                break;
            }
        }
        Ok(summaries)
    }
}

impl Found {
    /// For people: how many packets differ, then group by group.
    pub(crate) fn text(&self) -> String {
        let report = &self.report;
        let same = report.packets - report.changed - report.rewritten;
        let mut text = format!(
            "{}: {} the same, {} with another verdict, {} with other bytes\n",
            packets(report.packets),
            table::grouped(same),
            table::grouped(report.changed),
            table::grouped(report.rewritten)
        );
        for group in report.groups.iter().take(SHOWN) {
            self.group(&mut text, group);
        }
        if let Some(more) = report.groups.len().checked_sub(SHOWN).filter(|n| *n > 0) {
            let _ = writeln!(
                text,
                "... and {more} more kinds of change: --json lists all"
            );
        }
        text
    }

    fn group(&self, text: &mut String, group: &Group) {
        let what = match verdict(&group.before) == verdict(&group.after) {
            true => format!("{}, other bytes", verdict(&group.after)),
            false => format!("{} -> {}", verdict(&group.before), verdict(&group.after)),
        };
        let _ = writeln!(text, "{what}: {}", packets(group.packets));
        let _ = writeln!(text, "  before: {}", why(&group.before));
        let _ = writeln!(text, "  after:  {}", why(&group.after));
        let mut numbers: Vec<String> = group.first.iter().map(u64::to_string).collect();
        if group.packets > numbers.len() as u64 {
            numbers.push("...".to_owned());
        }
        let _ = writeln!(text, "  packets {}", numbers.join(", "));
        let first = group.first.first();
        if let Some(summary) = first.and_then(|number| self.summaries.get(number)) {
            let _ = writeln!(text, "  first:  {summary}");
        }
    }
}

fn packets(n: u64) -> String {
    format!(
        "{} packet{}",
        table::grouped(n),
        if n == 1 { "" } else { "s" }
    )
}

fn verdict(treatment: &Treatment) -> String {
    match &treatment.device {
        Some(device) => format!("{} to {device}", treatment.verdict),
        None => treatment.verdict.to_owned(),
    }
}

/// Rules, reasons and the function, as far as there are any.
fn why(treatment: &Treatment) -> String {
    let mut parts: Vec<String> = Vec::new();
    for rule in &treatment.rules {
        let function = rule.function.as_deref().map(|name| format!("{name} "));
        let name = rule.name.as_deref().map(|name| format!("{name}, "));
        parts.push(format!(
            "{}rule {} ({}{})",
            function.unwrap_or_default(),
            rule.id,
            name.unwrap_or_default(),
            rule.place
        ));
    }
    parts.extend(treatment.reasons.iter().map(|reason| (*reason).to_owned()));
    let mut text = match parts.is_empty() {
        true => "no rule decides".to_owned(),
        false => parts.join(", "),
    };
    if let Some(stage) = &treatment.stage {
        let _ = write!(text, "; ends in {stage}");
    }
    text
}
