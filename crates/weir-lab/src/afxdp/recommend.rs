//! Which configuration to use: for latency, for throughput, for little CPU time; each with what speaks for it.
//!
//! Only cells that count: never an undesirable one, and only such with the usual traffic, as others were not asked the same question. For latency, cells of the best cluster. Cells that
//! come within 5 % of the best one, or that it does not beat in at least 80 % of the blocks that both ran in, are as good as it: of these, those no run of which went wrong, and of them the one with the fewest settings that are
//! non-default is taken; of several such, the first by name that none of the others beats in p99 in as many blocks. So the noise of a sweep does not choose. Throughput is the
//! highest load without loss, known of cells that were run under load only; without such runs there is no recommendation for it, and that is said.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cluster::Clustering;
use super::effects::UnderLoad;
use super::statistics::{Judged, TRAFFIC, median};
use super::sweep::Combination;

/// Figures that differ by less are as good as each other.
const AS_GOOD: f64 = 1.05;

/// What a configuration is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Short round trips.
    Latency,
    /// Many packets.
    Throughput,
    /// Little CPU time for each packet.
    Cpu,
}

impl Goal {
    /// All of them, in the order to show.
    pub const ALL: [Goal; 3] = [Goal::Latency, Goal::Throughput, Goal::Cpu];

    /// As in a profile.
    pub fn name(self) -> &'static str {
        match self {
            Goal::Latency => "latency",
            Goal::Throughput => "throughput",
            Goal::Cpu => "cpu",
        }
    }
}

/// A recommendation.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// For what.
    pub goal: Goal,
    /// The cell.
    pub cell: String,
    /// Its settings; traffic is none.
    pub settings: BTreeMap<String, String>,
    /// Those that are non-default.
    pub unusual: Vec<String>,
    /// Cells that are as good, beside it.
    pub as_good: Vec<String>,
    /// What speaks for it: name and words.
    pub evidence: Vec<(String, String)>,
}

/// All of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Recommendation {
    /// What can be recommended.
    pub choices: Vec<Choice>,
    /// What cannot, and why.
    pub missing: Vec<(Goal, String)>,
}

/// The usual value of a knob: what it has where a sweep says nothing. None of what is no knob.
pub fn usual(knob: &str) -> Option<String> {
    Combination::default().knobs().remove(knob)
}

/// Recommends.
pub fn recommend(cells: &[Judged], clustering: &Clustering, loads: &[UnderLoad]) -> Recommendation {
    let candidates: Vec<&Judged> = cells
        .iter()
        .filter(|cell| cell.counts() && cell.usual_traffic)
        .collect();
    let scene = Scene {
        clustering,
        loads,
        cells,
    };
    let mut all = Recommendation::default();
    for goal in Goal::ALL {
        let scored: Vec<(f64, &Judged)> = candidates
            .iter()
            .filter_map(|cell| Some((scene.score(goal, cell)?, *cell)))
            .collect();
        match scene.choose(goal, &scored) {
            Some(choice) => all.choices.push(choice),
            None => {
                let why = match goal {
                    _ if candidates.is_empty() => "no valid cell was measured",
                    Goal::Throughput => {
                        "no valid cell was run under load without loss (extras of kind `load`)"
                    }
                    Goal::Latency => "no clusters",
                    Goal::Cpu => "no CPU times were measured",
                };
                all.missing.push((goal, why.to_owned()));
            }
        }
    }
    all
}

struct Scene<'a> {
    clustering: &'a Clustering,
    loads: &'a [UnderLoad],
    cells: &'a [Judged],
}

impl Scene<'_> {
    /// The lower the better. None: not a candidate.
    fn score(&self, goal: Goal, cell: &Judged) -> Option<f64> {
        match goal {
            Goal::Latency => {
                let best = self.clustering.clusters.first()?;
                best.members.contains(&cell.id).then_some(())?;
                Some(cell.settled()?.median)
            }
            Goal::Throughput => self.load(cell)?.loss_free.map(|rate| 1e9 / rate),
            Goal::Cpu => cell.cpu_per_packet,
        }
        .filter(|score| score.is_finite() && *score > 0.0)
    }

    fn load(&self, cell: &Judged) -> Option<&UnderLoad> {
        self.loads.iter().find(|load| load.cell == cell.id)
    }

    fn choose(&self, goal: Goal, scored: &[(f64, &Judged)]) -> Option<Choice> {
        let best = scored.iter().map(|(s, _)| *s).reduce(f64::min)?;
        let (_, fastest) = scored.iter().find(|(score, _)| *score <= best)?;
        let beaten = |cell: &Judged| match goal {
            Goal::Latency => fastest.beats(cell, |s| s.median),
            // Known as one number for all blocks.
            Goal::Throughput | Goal::Cpu => true,
        };
        let mut good: Vec<&(f64, &Judged)> = scored
            .iter()
            .filter(|(score, cell)| *score <= best * AS_GOOD || !beaten(cell))
            .collect();
        good.sort_by(|(_, a), (_, b)| {
            (a.remarks.len().min(1))
                .cmp(&b.remarks.len().min(1))
                .then(unusual(a).len().cmp(&unusual(b).len()))
                .then(a.id.cmp(&b.id))
        });
        let rank = |cell: &Judged| (cell.remarks.len().min(1), unusual(cell).len());
        let first = rank(good.first()?.1);
        let equal = good.iter().take_while(|(_, cell)| rank(cell) == first);
        let equal: Vec<&Judged> = equal.map(|(_, cell)| *cell).collect();
        let unbeaten = |cell: &&&Judged| !equal.iter().any(|other| other.beats(cell, |s| s.p99));
        let cell = *equal.iter().find(unbeaten).or(equal.first())?;
        let score = scored.iter().find(|(_, one)| one.id == cell.id)?.0;
        Some(Choice {
            goal,
            cell: cell.id.clone(),
            settings: settings(cell),
            unusual: unusual(cell),
            as_good: good
                .iter()
                .filter(|(_, other)| other.id != cell.id)
                .map(|(_, other)| other.id.clone())
                .collect(),
            evidence: self.evidence(cell, score / best),
        })
    }

    fn evidence(&self, cell: &Judged, behind: f64) -> Vec<(String, String)> {
        let mut said: Vec<(String, String)> = Vec::new();
        let mut say = |name: &str, text: String| said.push((name.to_owned(), text));
        let us = |ns: f64| format!("{:.2} us", ns / 1e3);
        let clusters = &self.clustering.clusters;
        if let Some(own) = clusters.iter().find(|c| c.members.contains(&cell.id)) {
            say(
                "cluster",
                format!(
                    "{} of {} (0 is the best), {} members: {}",
                    own.number,
                    clusters.len(),
                    own.members.len(),
                    own.in_words()
                ),
            );
        }
        if let Some(figures) = &cell.figures {
            say("median", us(figures.median));
            say("p99", us(figures.p99));
            say("p99.9", us(figures.p999));
            say(
                "round_trips",
                format!("{} in {} blocks", figures.count, cell.blocks.len()),
            );
        }
        let [sent, received] = cell.counts;
        say(
            "lost",
            format!("{} of {sent}", sent.saturating_sub(received)),
        );
        if !cell.remarks.is_empty() {
            say("remarks", cell.remarks.join("; "));
        }
        if let Some(cpu) = cell.cpu_per_packet {
            say("cpu", format!("{} for each round trip", us(cpu)));
        }
        for control in self.cells.iter().filter(|c| c.control.is_some()) {
            if let (Some(name), Some(ratio)) = (&control.control, cell.ratio(control, |s| s.median))
            {
                say(
                    &format!("against_{}", name.replace('-', "_")),
                    format!("{ratio:.2} of its median"),
                );
            }
        }
        match self.load(cell) {
            Some(load) => {
                if let (Some(rate), Some(spread)) = (load.loss_free, load.spread) {
                    say(
                        "load",
                        format!(
                            "loss-free up to {rate:.0} packets/s; medians over loads within {spread:.2} times of each other"
                        ),
                    );
                } else if let Some(rate) = load.loss_free {
                    say("load", format!("loss-free at {rate:.0} packets/s"));
                } else {
                    say("load", "lost packets at every load".to_owned());
                }
            }
            None => say("load", "not run under load".to_owned()),
        }
        if !self.clustering.firm {
            say(
                "reservation",
                "clusters are not stable on these blocks: the machine was too busy, or the blocks too few".to_owned(),
            );
        }
        if behind > 1.0 {
            say(
                "chosen",
                format!(
                    "{:.1} % behind the best figure, which is within 5 % or the spread of the blocks",
                    100.0 * (behind - 1.0)
                ),
            );
        }
        said
    }
}

fn settings(cell: &Judged) -> BTreeMap<String, String> {
    cell.knobs
        .iter()
        .filter(|(knob, _)| !TRAFFIC.contains(&knob.as_str()))
        .map(|(knob, value)| (knob.clone(), value.clone()))
        .collect()
}

fn unusual(cell: &Judged) -> Vec<String> {
    settings(cell)
        .into_iter()
        .filter(|(knob, value)| usual(knob).as_ref() != Some(value))
        .map(|(knob, value)| format!("{knob} {value}"))
        .collect()
}

/// How the quickest cell does beside a control.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// The control.
    pub control: String,
    /// The cell.
    pub cell: String,
    /// Quotient of medians, median over blocks.
    pub median: f64,
    /// Quotient of p99.
    pub p99: Option<f64>,
    /// The lowest and highest quotient of medians of a block.
    pub medians: [f64; 2],
}

/// The cell of the best cluster with the lowest median, beside every control.
pub fn against_controls(cells: &[Judged], clustering: &Clustering) -> Vec<Against> {
    let Some(quickest) = clustering
        .clusters
        .first()
        .and_then(|best| best.members.first())
        .and_then(|id| cells.iter().find(|cell| cell.id == *id))
    else {
        return Vec::new();
    };
    cells
        .iter()
        .filter(|cell| cell.control.is_some())
        .filter_map(|control| {
            let ratios: Vec<f64> = quickest
                .blocks
                .iter()
                .filter_map(|(block, s)| Some(s.median / control.blocks.get(block)?.median))
                .collect();
            if ratios.is_empty() {
                return None;
            }
            Some(Against {
                control: control.control.clone()?,
                cell: quickest.id.clone(),
                p99: quickest.ratio(control, |s| s.p99),
                medians: [
                    ratios.iter().copied().fold(f64::INFINITY, f64::min),
                    ratios.iter().copied().fold(0.0, f64::max),
                ],
                median: median(ratios),
            })
        })
        .collect()
}

/// A goal for which two sweeps recommend different cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedAdvice {
    /// For what.
    pub goal: Goal,
    /// The cells; none where a sweep recommends nothing.
    pub cells: [Option<String>; 2],
    /// Each sweep has the other one's cell among those that are as good.
    pub as_good: bool,
}

/// Where the advice of two sweeps differs.
pub fn changed(first: &Recommendation, second: &Recommendation) -> Vec<ChangedAdvice> {
    let of = |all: &Recommendation, goal: Goal| -> Option<Choice> {
        all.choices.iter().find(|c| c.goal == goal).cloned()
    };
    let mut found = Vec::new();
    for goal in Goal::ALL {
        let (a, b) = (of(first, goal), of(second, goal));
        let cells = [&a, &b].map(|choice| choice.as_ref().map(|c| c.cell.clone()));
        if cells[0] == cells[1] {
            continue;
        }
        let has = |choice: &Option<Choice>, cell: &Option<String>| match (choice, cell) {
            (Some(choice), Some(cell)) => choice.as_good.contains(cell),
            _ => false,
        };
        found.push(ChangedAdvice {
            goal,
            as_good: has(&a, &cells[1]) && has(&b, &cells[0]),
            cells,
        });
    }
    found
}
