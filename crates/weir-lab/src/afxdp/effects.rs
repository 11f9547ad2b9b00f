//! What each knob does, alone and in pairs; what load does; what a forwarder more costs.
//!
//! A sweep is no full factorial: impossible combinations are missing and many knobs are turned one at a time. So cells are *matched*: the effect of a value is that on cells which
//! differ in nothing else, as a quotient (geometric mean), of medians and of p99, taken block by block. A pair of knobs is judged by fours of cells that differ in these two
//! only: how much more the second one does once the first is turned. Intervals are percentiles of 2,000 bootstrap samples with a fixed seed, over matches, or over their blocks
//! where there are fewer than three matches. Undesirable cells have no part in this; how many matches failed for that is told.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::recommend::usual;
use super::results::{Extra, Results};
use super::statistics::{Judged, LOSS, Statistics, median};
use crate::bench::rules::Random;

/// Bootstrap samples.
const DRAWS: usize = 2000;
/// Matches of which an interval over matches means something.
const ENOUGH: usize = 3;

/// A quotient and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Geometric mean.
    pub ratio: f64,
    /// 95 % interval.
    pub interval: [f64; 2],
}

impl Ratio {
    /// Whether the interval leaves out 1.
    pub fn is_clear(&self) -> bool {
        self.interval[0] > 1.0 || self.interval[1] < 1.0
    }
}

/// What a value does in place of another one.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    /// The knob.
    pub knob: String,
    /// What it is compared with: the usual value, or the most frequent one.
    pub from: String,
    /// The value.
    pub to: String,
    /// Pairs of cells that differ in nothing else.
    pub matches: usize,
    /// Pairs of which one is undesirable, by whether that is the one with the usual value, the other one, or both.
    pub undesirable: [usize; 3],
    /// On medians. None without matches.
    pub median: Option<Ratio>,
    /// On p99.
    pub p99: Option<Ratio>,
    /// On CPU time for each packet.
    pub cpu: Option<Ratio>,
}

/// What two values do together beyond what each does alone.
#[derive(Clone, Debug, Serialize)]
pub struct PairEffect {
    /// First knob, from and to.
    pub first: [String; 3],
    /// Second knob, from and to.
    pub second: [String; 3],
    /// Fours of cells that differ in nothing else.
    pub matches: usize,
    /// On medians: over the product of both alone.
    pub median: Ratio,
}

/// How a cell does under load.
#[derive(Clone, Debug, Serialize)]
pub struct UnderLoad {
    /// Its name.
    pub cell: String,
    /// From the lowest load up.
    pub points: Vec<LoadPoint>,
    /// Highest load without loss to speak of.
    pub loss_free: Option<f64>,
    /// Of medians at loss-free loads: the longest over the shortest.
    pub spread: Option<f64>,
}

/// At one load.
#[derive(Clone, Debug, Serialize)]
pub struct LoadPoint {
    /// Load.
    pub at: f64,
    /// Its unit.
    pub unit: String,
    /// Figures; none if nothing came back.
    pub figures: Option<Statistics>,
    /// Share that was lost.
    pub loss: f64,
}

/// How a cell does over a row of forwarders.
#[derive(Clone, Debug, Serialize)]
pub struct Chain {
    /// Its name.
    pub cell: String,
    /// Number of forwarders, and figures.
    pub points: Vec<LoadPoint>,
    /// What a forwarder more adds to the median, nanoseconds: slope of the line with the least squares.
    pub per_hop: Option<f64>,
    /// The same of p99.
    pub per_hop_p99: Option<f64>,
}

/// All effects of knobs alone, the strongest first.
pub fn alone(cells: &[Judged], seed: u64) -> Vec<Effect> {
    let cells: Vec<&Judged> = cells.iter().filter(|c| c.control.is_none()).collect();
    let mut effects = Vec::new();
    for (knob, from, to) in turns(&cells) {
        let pairs = matches(&cells, &knob, &from, &to);
        let mut undesirable = [0; 3];
        let mut good = Vec::new();
        for (a, b) in pairs {
            match (a.counts(), b.counts()) {
                (true, true) => good.push((a, b)),
                (false, true) => undesirable[0] += 1,
                (true, false) => undesirable[1] += 1,
                (false, false) => undesirable[2] += 1,
            }
        }
        let over = |figure: fn(&Statistics) -> f64| {
            let blocks: Vec<Vec<f64>> = good
                .iter()
                .map(|(a, b)| logs_by_block(a, b, figure))
                .filter(|logs| !logs.is_empty())
                .collect();
            interval(&blocks, seed)
        };
        let cpu: Vec<Vec<f64>> = good
            .iter()
            .filter_map(|(a, b)| Some(vec![(b.cpu_per_packet? / a.cpu_per_packet?).ln()]))
            .collect();
        effects.push(Effect {
            matches: good.len(),
            undesirable,
            median: over(|s| s.median),
            p99: over(|s| s.p99),
            cpu: interval(&cpu, seed),
            knob,
            from,
            to,
        });
    }
    let strength = |e: &Effect| e.median.map_or(-1.0, |m| m.ratio.ln().abs());
    effects.sort_by(|a, b| strength(b).total_cmp(&strength(a)));
    effects
}

/// Effects of pairs of knobs whose interval leaves out 1, the strongest first.
pub fn pairs(cells: &[Judged], seed: u64) -> Vec<PairEffect> {
    let cells: Vec<&Judged> = cells.iter().filter(|c| c.counts()).collect();
    let turns = turns(&cells);
    let index = index(&cells);
    let mut found = Vec::new();
    for (n, first) in turns.iter().enumerate() {
        for second in turns[n + 1..].iter().filter(|t| t.0 != first.0) {
            let mut all = Vec::new();
            for cell in cells.iter().filter(|c| {
                c.knobs.get(&first.0) == Some(&first.1) && c.knobs.get(&second.0) == Some(&second.1)
            }) {
                let turned = |turns: &[&(String, String, String)]| {
                    let mut knobs = cell.knobs.clone();
                    for (knob, _, to) in turns {
                        knobs.insert(knob.clone(), to.clone());
                    }
                    index.get(&knobs).copied()
                };
                let (Some(a), Some(b), Some(both)) = (
                    turned(&[first]),
                    turned(&[second]),
                    turned(&[first, second]),
                ) else {
                    continue;
                };
                let logs: Vec<f64> = cell
                    .blocks
                    .iter()
                    .filter_map(|(block, s)| {
                        let log = |c: &Judged| Some(c.blocks.get(block)?.median.ln());
                        Some(log(both)? - log(a)? - log(b)? + s.median.ln())
                    })
                    .collect();
                if !logs.is_empty() {
                    all.push(logs);
                }
            }
            if let Some(ratio) = interval(&all, seed).filter(Ratio::is_clear) {
                found.push(PairEffect {
                    first: [first.0.clone(), first.1.clone(), first.2.clone()],
                    second: [second.0.clone(), second.1.clone(), second.2.clone()],
                    matches: all.len(),
                    median: ratio,
                });
            }
        }
    }
    let strength = |p: &PairEffect| p.median.ratio.ln().abs();
    found.sort_by(|a, b| strength(b).total_cmp(&strength(a)));
    found
}

/// Knob, usual value, other value.
fn turns(cells: &[&Judged]) -> Vec<(String, String, String)> {
    let mut values: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (knob, value) in cells.iter().flat_map(|cell| &cell.knobs) {
        *values.entry(knob).or_default().entry(value).or_default() += 1;
    }
    let mut turns = Vec::new();
    for (knob, values) in values.iter().filter(|(_, values)| values.len() > 1) {
        let frequent = values.iter().max_by_key(|(_, n)| **n).map(|(v, _)| *v);
        let from = usual(knob)
            .filter(|value| values.contains_key(value.as_str()))
            .or_else(|| frequent.map(str::to_owned));
        let Some(from) = from else { continue };
        for to in values.keys().filter(|to| **to != from) {
            turns.push(((*knob).to_owned(), from.clone(), (*to).to_owned()));
        }
    }
    turns
}

fn index<'a>(cells: &[&'a Judged]) -> BTreeMap<&'a BTreeMap<String, String>, &'a Judged> {
    cells.iter().map(|cell| (&cell.knobs, *cell)).collect()
}

fn matches<'a>(
    cells: &[&'a Judged],
    knob: &str,
    from: &str,
    to: &str,
) -> Vec<(&'a Judged, &'a Judged)> {
    let index = index(cells);
    cells
        .iter()
        .filter(|cell| cell.knobs.get(knob).is_some_and(|v| v == from))
        .filter_map(|cell| {
            let mut knobs = cell.knobs.clone();
            knobs.insert(knob.to_owned(), to.to_owned());
            Some((*cell, *index.get(&knobs)?))
        })
        .collect()
}

fn logs_by_block(a: &Judged, b: &Judged, figure: fn(&Statistics) -> f64) -> Vec<f64> {
    a.blocks
        .iter()
        .filter_map(|(block, s)| Some((figure(b.blocks.get(block)?) / figure(s)).ln()))
        .filter(|log| log.is_finite())
        .collect()
}

/// Of logarithms by match and block.
fn interval(matches: &[Vec<f64>], seed: u64) -> Option<Ratio> {
    if matches.is_empty() {
        return None;
    }
    let units: Vec<f64> = if matches.len() >= ENOUGH {
        matches.iter().map(|logs| median(logs.clone())).collect()
    } else {
        matches.concat()
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let middle = if matches.len() >= ENOUGH {
        mean(&units)
    } else {
        let medians: Vec<f64> = matches.iter().map(|logs| median(logs.clone())).collect();
        mean(&medians)
    };
    let mut random = Random(seed);
    let mut drawn: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let sum: f64 = (0..units.len())
                .map(|_| units[random.below(units.len())])
                .sum();
            sum / units.len() as f64
        })
        .collect();
    drawn.sort_by(f64::total_cmp);
    let at = |q: f64| super::statistics::quantile(&drawn, q).exp();
    Some(Ratio {
        ratio: middle.exp(),
        interval: [at(0.025), at(0.975)],
    })
}

/// Cells under load, in the order of their names.
pub fn under_load(results: &Results) -> Vec<UnderLoad> {
    by_cell(results, &["load", "maximum"])
        .into_iter()
        .map(|(cell, points)| {
            let free = || {
                points
                    .iter()
                    .filter(|p| p.loss <= LOSS && p.figures.is_some())
            };
            let medians: Vec<f64> = free().filter_map(|p| Some(p.figures?.median)).collect();
            let most = medians.iter().copied().fold(0.0, f64::max);
            let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
            UnderLoad {
                loss_free: free().map(|p| p.at).reduce(f64::max),
                spread: (medians.len() > 1).then(|| most / least),
                cell,
                points,
            }
        })
        .collect()
}

/// Cells over rows of forwarders.
pub fn chains(results: &Results) -> Vec<Chain> {
    by_cell(results, &["chain"])
        .into_iter()
        .map(|(cell, points)| {
            let of = |figure: fn(&Statistics) -> f64| {
                let known: Vec<(f64, f64)> = points
                    .iter()
                    .filter_map(|p| Some((p.at, figure(p.figures.as_ref()?))))
                    .collect();
                slope(&known)
            };
            Chain {
                per_hop: of(|s| s.median),
                per_hop_p99: of(|s| s.p99),
                cell,
                points,
            }
        })
        .collect()
}

fn by_cell(results: &Results, kinds: &[&str]) -> BTreeMap<String, Vec<LoadPoint>> {
    let mut cells: BTreeMap<String, Vec<LoadPoint>> = BTreeMap::new();
    for extra in results
        .extras
        .iter()
        .filter(|extra| kinds.contains(&extra.kind.as_str()))
    {
        cells
            .entry(extra.cell.clone())
            .or_default()
            .push(load_point(extra));
    }
    for points in cells.values_mut() {
        points.sort_by(|a, b| a.at.total_cmp(&b.at));
    }
    cells
}

fn load_point(extra: &Extra) -> LoadPoint {
    let [sent, received] = extra.counts;
    LoadPoint {
        at: extra.at,
        unit: extra.unit.clone(),
        figures: Statistics::of(&extra.samples),
        loss: if sent > 0 {
            sent.saturating_sub(received) as f64 / sent as f64
        } else {
            1.0
        },
    }
}

/// Of the line with the least squares; none with fewer than two places.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let places: BTreeSet<u64> = points.iter().map(|(x, _)| x.to_bits()).collect();
    if places.len() < 2 {
        return None;
    }
    let n = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
    let up: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let across: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    Some(up / across)
}
