//! `weir drops`: why packets are dropped, each cause once: how many, where, the reason and the rule in a sentence, and one of the packets.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_engine::watch::Journeys;

use super::trace::{SNAP, Traced};
use super::{Asked, Session, Stages, closing};
use crate::args::watch::{DropsArgs, PacketArgs};
use crate::commands::policy::count;
use crate::commands::table::grouped;
use crate::failure::Failure;
use crate::output;

/// How long packets are watched where nothing else ends it.
const DURATION: Duration = Duration::from_secs(10);

/// Causes that are told apart; drops of others are counted together.
const CAUSES: usize = 1000;

/// What drops have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
struct Cause {
    /// The function or port that dropped them.
    stage: String,
    /// The reason, as it is counted.
    reason: Option<String>,
    /// The reason in a sentence, and the rules.
    why: Vec<String>,
}

/// Drops of one cause.
#[derive(Debug, Deserialize, Serialize)]
struct Dropped {
    #[serde(flatten)]
    cause: Cause,
    packets: u64,
    /// The first of them: the port it came in by, and its headers.
    example: String,
}

/// What was seen.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    seconds: f64,
    /// Dropped packets that were looked at.
    packets: u64,
    /// Drops that were not seen, because they came faster than they were read.
    lost: u64,
    /// Drops of causes beyond those that are told apart.
    others: u64,
    drops: Vec<Dropped>,
}

pub(crate) fn run(args: &DropsArgs) -> Result<ExitCode, Failure> {
    let packets = PacketArgs {
        duration: match args.packets.count {
            None => args.packets.duration.or(Some(DURATION)),
            Some(_) => args.packets.duration,
        },
        ..args.packets.clone()
    };
    let asked = Asked {
        at: Stages::Drops,
        snap: SNAP,
    };
    let mut session = Session::open(&args.edge, &packets, &asked)?;
    let judges = session.judges()?;
    // Of graph and networks.
    let mut journeys: [Journeys; 2] = Default::default();
    let mut report = Report::default();
    let mut causes: BTreeMap<Cause, (u64, String)> = BTreeMap::new();
    let begun = Instant::now();
    let end = session.run(
        |part, names, event, bytes| {
            for journey in journeys[part].add(event, bytes) {
                report.packets += 1;
                let traced = Traced::of(report.packets, &journey, names, &judges, true);
                let example = format!("{}: {}", traced.port, traced.summary);
                let last = traced.stages.into_iter().next_back();
                let cause = Cause {
                    reason: last
                        .as_ref()
                        .and_then(|stage| stage.reason)
                        .map(str::to_owned),
                    stage: last.map(|stage| stage.stage).unwrap_or_default(),
                    why: traced.why,
                };
                let has_room = causes.len() < CAUSES;
                match causes.get_mut(&cause) {
                    Some((packets, _)) => *packets += 1,
                    None if has_room => drop(causes.insert(cause, (1, example))),
                    None => report.others += 1,
                }
                if packets.count.is_some_and(|most| report.packets >= most) {
                    return Ok(false);
                }
            }
            Ok(true)
        },
        || Ok(()),
    )?;
    report.seconds = begun.elapsed().as_secs_f64();
    let counted = session.close()?;
    report.lost = counted.lost;
    report.drops = causes
        .into_iter()
        .map(|(cause, (packets, example))| Dropped {
            cause,
            packets,
            example,
        })
        .collect();
    report
        .drops
        .sort_by_key(|one| std::cmp::Reverse(one.packets));
    match args.json {
        true => output::json(&report)?,
        false => output::out(&report.text())?,
    }
    for line in closing(end, &counted) {
        output::complain(&line);
    }
    Ok(ExitCode::SUCCESS)
}

impl Report {
    pub(crate) fn text(&self) -> String {
        let seconds = self.seconds;
        if self.packets == 0 {
            return format!("no packet was dropped in {seconds:.1} s\n");
        }
        let mut text = format!(
            "{} in {seconds:.1} s\n",
            count(self.packets as usize, "drop")
        );
        for one in &self.drops {
            let cause = &one.cause;
            let _ = writeln!(
                text,
                "{:>12}  {}: {}",
                grouped(one.packets),
                cause.stage,
                cause
                    .why
                    .first()
                    .map_or("no reason is known", String::as_str)
            );
            for line in cause.why.iter().skip(1) {
                let _ = writeln!(text, "{:14}{line}", "");
            }
            let _ = writeln!(text, "{:14}first: {}", "", one.example);
        }
        if self.others > 0 {
            let _ = writeln!(
                text,
                "{:>12}  of more than {CAUSES} causes: narrow the packets with --filter or --port",
                grouped(self.others)
            );
        }
        text
    }
}
