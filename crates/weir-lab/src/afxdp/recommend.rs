//! Which configuration to use: for latency, for throughput, for little CPU time; each with what speaks for it.
//!
//! Only cells that count: never an undesirable one, and only such with the usual traffic, as others were not asked the same question. For latency, cells of the best cluster. Cells that
//! come within 5 % of the best one are as good as it: of these, those no run of which went wrong, and of them the one with the fewest settings that are not as usual is taken, then the one with the lower p99. Throughput is the
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
    /// Those that are not as usual.
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
                    _ if candidates.is_empty() => "no cell that counts was measured",
                    Goal::Throughput => {
                        "no cell that counts was run under load without loss (extras of kind `load`)"
                    }
                    Goal::Latency => "there are no clusters",
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
        let mut good: Vec<&(f64, &Judged)> = scored
            .iter()
            .filter(|(score, _)| *score <= best * AS_GOOD)
            .collect();
        let p99 = |cell: &Judged| cell.settled().map_or(f64::INFINITY, |s| s.p99);
        good.sort_by(|(a_score, a), (b_score, b)| {
            (a.remarks.len().min(1))
                .cmp(&b.remarks.len().min(1))
                .then(unusual(a).len().cmp(&unusual(b).len()))
                .then(p99(a).total_cmp(&p99(b)))
                .then(a_score.total_cmp(b_score))
                .then(a.id.cmp(&b.id))
        });
        let (score, cell) = good.first()?;
        Some(Choice {
            goal,
            cell: cell.id.clone(),
            settings: settings(cell),
            unusual: unusual(cell),
            as_good: good[1..].iter().map(|(_, c)| c.id.clone()).collect(),
            evidence: self.evidence(cell, *score / best),
        })
    }

    fn evidence(&self, cell: &Judged, behind: f64) -> Vec<(String, String)> {
        let mut said: Vec<(String, String)> = Vec::new();
        let mut say = |name: &str, text: String| said.push((name.to_owned(), text));
        let us = |ns: f64| format!("{:.2} us", ns / 1e3);
        let clusters = &self.clustering.clusters;
        if let Some(own) = clusters.iter().find(|c| c.members.contains(&cell.id)) {
            let shared: Vec<String> = own
                .relevant
                .iter()
                .map(|r| format!("{} {}", r.knob, r.value))
                .collect();
            let shared = if shared.is_empty() {
                "nothing in particular".to_owned()
            } else {
                shared.join(", ")
            };
            say(
                "cluster",
                format!(
                    "{} of {} (0 is the best), {} members, which share {shared}",
                    own.number,
                    clusters.len(),
                    own.members.len()
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
                    "{:.1} % behind the best figure, with fewer settings that are not as usual",
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
