//! `weir trace`: the way of packets through an edge, function by function, and why each ended where it did.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;
use weir_bpf::abi::{WatchEvent, watch};
use weir_engine::watch::words::{Why, verdict_word};
use weir_engine::watch::{Journey, Journeys, Names, Stage, wall_offset, words};
use weir_functions::kind::Judge;
use weir_packet::summary;
use weir_policy::reference::{Input, Meta, PortId};

use super::{Asked, Session, Stages, closing, edge_name, off};
use crate::args::watch::TraceArgs;
use crate::failure::Failure;
use crate::output;

/// Bytes of a packet that are looked at: all headers that weir knows.
pub(super) const SNAP: u32 = 512;

/// A packet, as JSON.
#[derive(Serialize)]
pub(super) struct Traced {
    /// From 1.
    packet: u64,
    pub(super) port: String,
    cpu: u32,
    generation: u64,
    pub(super) summary: String,
    length: u32,
    /// Whether all its stages are here.
    whole: bool,
    /// The way in one line.
    path: String,
    pub(super) stages: Vec<Passed>,
    /// What is against the packet, of a drop.
    pub(super) why: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct Passed {
    /// A function, or the port.
    pub(super) stage: String,
    /// In words.
    what: String,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    /// What somebody's object returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<i32>,
    /// Since the packet came in; absent where that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    ns: Option<u64>,
    length: u32,
    /// Only where the packet was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<String>,
}

pub(crate) fn run(args: &TraceArgs) -> Result<ExitCode, Failure> {
    if args.off {
        let name = edge_name(&args.edge)?;
        let said = match off(&name)? {
            true => "runs programs again that cannot be watched",
            false => "is not watched",
        };
        match args.json {
            true => output::json(&serde_json::json!({ "edge": name, "watched": false }))?,
            false => output::out(&format!("edge {name} {said}\n"))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let at = match args.drops {
        true => Stages::Drops,
        false => Stages::All,
    };
    let mut session = Session::open(&args.edge, &args.packets, &Asked { at, snap: SNAP })?;
    let judges = session.judges()?;
    // Of graph and networks.
    let mut journeys: [Journeys; 2] = Default::default();
    let mut packets = 0;
    let most = args.packets.count.unwrap_or(u64::MAX);
    let end = session.run(
        |part, names, event, bytes| {
            for journey in journeys[part].add(event, bytes) {
                packets += 1;
                let traced = Traced::of(packets, &journey, names, &judges, args.drops);
                match args.json {
                    true => output::json(&traced)?,
                    false => output::out(&traced.text())?,
                }
                if packets >= most {
                    return Ok(false);
                }
            }
            Ok(true)
        },
        || Ok(()),
    )?;
    let count = session.close()?;
    for line in closing(end, &count) {
        output::complain(&line);
    }
    Ok(ExitCode::SUCCESS)
}

impl Traced {
    pub(super) fn of(
        packet: u64,
        journey: &Journey,
        names: &Names,
        judges: &BTreeMap<String, Box<dyn Judge>>,
        drops_only: bool,
    ) -> Traced {
        let mut stages = Vec::with_capacity(journey.stages.len());
        let first = journey.stages.first();
        let began = journey.entry().map(|stage| stage.event.time_ns);
        let mut before: Option<&Stage> = None;
        let steps = journey.stages.iter().enumerate();
        for (at, stage) in steps {
            // A call that found no program was said to go on before it was known.
            let taken_back = journey.stages.get(at + 1).is_some_and(|next| {
                stage.event.kind == watch::ON
                    && next.event.vid == stage.event.vid
                    && next.event.hop == stage.event.hop
            });
            if taken_back {
                continue;
            }
            stages.push(Passed::of(stage, before, began, names));
            before = Some(stage);
        }
        let last = journey.stages.last();
        let why = match journey.end() {
            Some(end) if end.event.kind & watch::DROP != 0 => why(end, names, judges),
            _ => Vec::new(),
        };
        Traced {
            packet,
            port: first
                .map(|stage| names.port(stage.event.port))
                .unwrap_or_default(),
            cpu: first.map_or(0, |stage| stage.event.cpu),
            generation: first.map_or(0, |stage| stage.event.generation),
            summary: first.map(shown).unwrap_or_default(),
            length: first.map_or(0, |stage| stage.event.len),
            whole: drops_only || journey.is_whole(),
            path: last
                .map(|stage| names.path(&stage.event))
                .unwrap_or_default(),
            stages,
            why,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("packet {}, {}: {}\n", self.packet, self.port, self.summary);
        let wide = self
            .stages
            .iter()
            .map(|one| one.stage.len())
            .max()
            .unwrap_or(0);
        if self.stages.len() == 1 {
            let _ = writeln!(text, "  {}", self.path);
        } else {
            for one in &self.stages {
                let ns = one.ns.map(|ns| format!("{ns} ns")).unwrap_or_default();
                let _ = writeln!(text, "  {ns:>10}  {:wide$}  {}", one.stage, one.what);
                if let Some(changed) = &one.changed {
                    let _ = writeln!(text, "              {changed}");
                }
            }
        }
        for line in &self.why {
            let _ = writeln!(text, "  why: {line}");
        }
        if !self.whole {
            text.push_str("  some of its events were lost\n");
        }
        text
    }
}

impl Passed {
    fn of(stage: &Stage, before: Option<&Stage>, began: Option<u64>, names: &Names) -> Passed {
        let event = &stage.event;
        let why = Why::of(event);
        let length = |one: &Stage| one.event.len;
        let changed =
            before.filter(|before| length(before) != length(stage) || before.bytes != stage.bytes);
        Passed {
            stage: names.stage(event),
            what: names.verdict(event),
            verdict: verdict_word(event.verdict),
            reason: match why {
                Why::Reason(reason) => Some(reason.name()),
                _ => None,
            },
            returned: match why {
                Why::Code(code) => Some(code),
                _ => None,
            },
            ns: began.map(|began| event.time_ns.saturating_sub(began)),
            length: event.len,
            changed: changed.map(|_| match summary_of(stage) {
                same if before.is_some_and(|before| summary_of(before) == same) => {
                    format!("changed: {same}")
                }
                other => format!("now {other}"),
            }),
        }
    }
}

/// Why a packet was dropped, in sentences.
fn why(end: &Stage, names: &Names, judges: &BTreeMap<String, Box<dyn Judge>>) -> Vec<String> {
    let event = &end.event;
    let mut lines = Vec::new();
    match Why::of(event) {
        Why::Reason(reason) => lines.push(format!("{reason}: {}", reason.text())),
        Why::Code(code) => lines.push(returned(code)),
        Why::Unsaid => {}
    }
    let judge = judges.get(&names.instance(event.vid));
    // By a link the packet was dropped behind the function, not by it.
    if let Some(judge) = judge.filter(|_| event.next_slot == 0) {
        let frame = whole_frame(end);
        let port = names.ports.get(&event.port).map(String::as_str);
        let input = Input {
            frame: &frame,
            // Events count by the monotonic clock, rules that test the time by that of the wall.
            now_ns: u64::try_from(i128::from(event.time_ns) + wall_offset()).unwrap_or(0),
            number: event.number,
            port: PortId {
                name: port,
                index: event.port & !watch::TRANSMIT,
            },
            queue: event.queue as u16,
            meta: Meta::default(),
        };
        let reason = match Why::of(event) {
            Why::Reason(reason) => Some(reason),
            Why::Code(_) | Why::Unsaid => None,
        };
        lines.extend(judge.why(&input, reason));
    }
    lines
}

fn returned(code: i32) -> String {
    let known = match u32::try_from(code) {
        Ok(code @ 0..=4) => format!(" (XDP_{})", words::verdict_word(code).to_uppercase()),
        _ => String::new(),
    };
    format!("the program returned {code}{known}, which is not in `proceed`")
}

fn shown(stage: &Stage) -> String {
    let text = summary_of(stage);
    format!("{text} ({} bytes)", stage.event.len)
}

fn summary_of(stage: &Stage) -> String {
    summary(&whole_frame(stage))
}

/// As long as it was; what was not kept of it is zeros.
fn whole_frame(stage: &Stage) -> Vec<u8> {
    let event: &WatchEvent = &stage.event;
    let mut frame = stage.bytes.clone();
    frame.resize((event.len as usize).max(frame.len()), 0);
    frame
}
