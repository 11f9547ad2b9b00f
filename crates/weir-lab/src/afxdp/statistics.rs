//! What each configuration came to: its figures, and whether it counts.
//!
//! Quantiles are those of numpy's default (`linear`): of n sorted samples, quantile q lies at place q(n - 1), between its neighbours in proportion. The deviation is numpy's,
//! too: the root of the mean square, divided by n.
//!
//! The paper computes figures for each run and averages them for each configuration. Here each figure is the *median over blocks*: one block in which something else
//! took the CPU does not move it. For comparing cells, blocks are divided by their drift first: the geometric mean of what the controls took in the block, over what each took
//! in the median block. Drift is common to all cells of a block, so the controls' own noise cannot reorder the cells of a block.
//!
//! The paper leaves out configurations whose round trips are like the interval between packets (zero-copy without polling, on i40e), and all that are slower than
//! the system's `ping`; it keeps them in mind for its conclusions. Here five things make a configuration undesirable, each said in a sentence: lost packets, runs that failed, stalls
//! (a median of at least half the interval), settings that did not take effect, and being slower than blocking UDP sockets in every block. `ping` answers in the kernel and its
//! clock is not ours, so the UDP control, which is in every block, stands for it; "in every block" keeps those that are as fast but for noise.
//!
//! A run that failed, lost packets or was not what was asked for makes its configuration undesirable if that happened in two blocks at least (in any, of one or two blocks). Once in
//! many blocks is what a machine with other work does to any configuration, controls included: such a run is left out of the figures and remarked on, and the recommendation
//! prefers configurations without remarks.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::results::{Cell, Results, Run};

/// Lost packets, as a share, from which on a configuration is undesirable.
pub const LOSS: f64 = 0.001;
/// The control that stands for `ping`.
pub const SLOWEST: &str = "udp-block";
/// The knob with the time between packets.
pub const INTERVAL: &str = "interval";
/// Knobs that are no settings but what is sent. Most cells have the same; those that have not are compared with cells that have the same only.
pub const TRAFFIC: [&str; 3] = [INTERVAL, "size", "batch"];

/// Figures of round trips, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// First quartile.
    pub q1: f64,
    /// Third quartile.
    pub q3: f64,
    /// 99 % are at most so long.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
    /// Mean of those up to `p99`: what the configuration does, without the moments in which something else had the CPU.
    pub calm_mean: f64,
    /// Standard deviation of those up to `p99`.
    pub calm_deviation: f64,
}

impl Statistics {
    /// Of samples in any order; none of none.
    pub fn of(samples: &[u64]) -> Option<Statistics> {
        if samples.is_empty() {
            return None;
        }
        let mut sorted: Vec<f64> = samples.iter().map(|ns| *ns as f64).collect();
        sorted.sort_by(f64::total_cmp);
        let p99 = quantile(&sorted, 0.99);
        let (mean, deviation) = moments(&sorted);
        let calm = sorted.partition_point(|ns| *ns <= p99);
        let (calm_mean, calm_deviation) = moments(&sorted[..calm.max(1)]);
        Some(Statistics {
            count: sorted.len() as u64,
            mean,
            median: quantile(&sorted, 0.5),
            deviation,
            q1: quantile(&sorted, 0.25),
            q3: quantile(&sorted, 0.75),
            p99,
            p999: quantile(&sorted, 0.999),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            calm_mean,
            calm_deviation,
        })
    }

    /// Each figure's median over blocks; the count is that of all.
    pub fn median_of(blocks: &[Statistics]) -> Option<Statistics> {
        if blocks.is_empty() {
            return None;
        }
        let over = |figure: fn(&Statistics) -> f64| median(blocks.iter().map(figure).collect());
        Some(Statistics {
            count: blocks.iter().map(|b| b.count).sum(),
            mean: over(|s| s.mean),
            median: over(|s| s.median),
            deviation: over(|s| s.deviation),
            q1: over(|s| s.q1),
            q3: over(|s| s.q3),
            p99: over(|s| s.p99),
            p999: over(|s| s.p999),
            min: over(|s| s.min),
            max: over(|s| s.max),
            calm_mean: over(|s| s.calm_mean),
            calm_deviation: over(|s| s.calm_deviation),
        })
    }

    /// All times divided.
    fn divided(&self, by: f64) -> Statistics {
        Statistics {
            count: self.count,
            mean: self.mean / by,
            median: self.median / by,
            deviation: self.deviation / by,
            q1: self.q1 / by,
            q3: self.q3 / by,
            p99: self.p99 / by,
            p999: self.p999 / by,
            min: self.min / by,
            max: self.max / by,
            calm_mean: self.calm_mean / by,
            calm_deviation: self.calm_deviation / by,
        }
    }
}

/// Quantile `q` (0 to 1) of sorted values, as numpy's `linear`. NaN of none.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    let part = place - below as f64;
    // From the nearer end, so that both ends are met exactly.
    if part < 0.5 {
        low + (high - low) * part
    } else {
        high - (high - low) * (1.0 - part)
    }
}

/// Median of values in any order. NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    (mean, square.sqrt())
}

/// One configuration, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Its name.
    pub id: String,
    /// Knob -> value.
    pub knobs: BTreeMap<String, String>,
    /// Which control, if it is one.
    pub control: Option<String>,
    /// Figures as measured: medians over blocks. None if nothing came back at all.
    pub figures: Option<Statistics>,
    /// Block -> figures, drift taken out.
    #[serde(skip)]
    pub blocks: BTreeMap<u32, Statistics>,
    /// Sent and received in all blocks.
    pub counts: [u64; 2],
    /// CPU time for each round trip, nanoseconds, median over blocks: of both programs, and of the kernel's threads that handled packets.
    pub cpu_per_packet: Option<f64>,
    /// Energy for each round trip, nanojoules, median over blocks, where the machine counts it.
    pub energy_per_packet: Option<f64>,
    /// Whether its packets are sent as those of most cells, and can be compared with them.
    pub usual_traffic: bool,
    /// What happened in a single run, which was left out for it.
    pub remarks: Vec<String>,
    /// Why it is undesirable; nothing: it is not.
    pub undesirable: Vec<String>,
    /// The kinds of reasons, for counting.
    pub kinds: BTreeSet<Kind>,
}

/// Why a configuration is undesirable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A run did not end as it should.
    Failed,
    /// Packets were lost.
    Loss,
    /// Round trips are as long as the time between packets.
    Stall,
    /// What was asked for is not what was.
    Ineffective,
    /// Slower than blocking UDP sockets.
    Slow,
}

impl Kind {
    /// In a heading.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Failed => "failed",
            Kind::Loss => "lost packets",
            Kind::Stall => "stalled",
            Kind::Ineffective => "settings that did not take effect",
            Kind::Slow => "slower than blocking UDP sockets",
        }
    }
}

/// Share of the blocks in which a cell must be better to be called so: as of clusters.
const CLEARLY: f64 = 0.8;

impl Judged {
    /// Whether it is one of those to choose from.
    pub fn counts(&self) -> bool {
        self.control.is_none() && self.undesirable.is_empty() && !self.blocks.is_empty()
    }

    /// Drift taken out, medians over blocks.
    pub fn settled(&self) -> Option<Statistics> {
        Statistics::median_of(&self.blocks.values().copied().collect::<Vec<_>>())
    }

    /// Median over the blocks that both ran in of the quotient of a figure.
    pub fn ratio(&self, other: &Judged, figure: fn(&Statistics) -> f64) -> Option<f64> {
        let ratios = self.ratios(other, figure);
        (!ratios.is_empty()).then(|| median(ratios))
    }

    /// Whether a figure is lower than the other's in at least 80 % of the blocks that both ran in.
    pub fn beats(&self, other: &Judged, figure: fn(&Statistics) -> f64) -> bool {
        let ratios = self.ratios(other, figure);
        let lower = ratios.iter().filter(|ratio| **ratio < 1.0).count();
        !ratios.is_empty() && lower as f64 >= CLEARLY * ratios.len() as f64
    }

    fn ratios(&self, other: &Judged, figure: fn(&Statistics) -> f64) -> Vec<f64> {
        self.blocks
            .iter()
            .filter_map(|(block, own)| Some(figure(own) / figure(other.blocks.get(block)?)))
            .collect()
    }
}

/// All cells, judged; and the drift of each block.
pub fn judge_cells(results: &Results) -> (Vec<Judged>, BTreeMap<u32, f64>) {
    let raw: Vec<BTreeMap<u32, Statistics>> = results
        .cells
        .iter()
        .map(|cell| {
            figured(cell)
                .filter_map(|run| Some((run.block, Statistics::of(&run.samples)?)))
                .collect()
        })
        .collect();
    let drift = drift(&results.cells, &raw);
    let mut judged: Vec<Judged> = results
        .cells
        .iter()
        .zip(raw)
        .map(|(cell, raw)| judged(cell, &raw, &drift))
        .collect();
    let controls: Vec<Judged> = judged
        .iter()
        .filter(|cell| cell.control.as_deref() == Some(SLOWEST))
        .cloned()
        .collect();
    let usual = usual_traffic(&results.cells);
    for cell in judged.iter_mut().filter(|cell| cell.control.is_none()) {
        cell.usual_traffic = traffic(&cell.knobs) == usual;
        compare_with_control(cell, &controls, &usual);
    }
    (judged, drift)
}

fn drift(cells: &[Cell], raw: &[BTreeMap<u32, Statistics>]) -> BTreeMap<u32, f64> {
    let mut logs: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (_, blocks) in cells.iter().zip(raw).filter(|(c, _)| c.control.is_some()) {
        let usual = median(blocks.values().map(|s| s.median).collect());
        for (block, s) in blocks {
            logs.entry(*block)
                .or_default()
                .push((s.median / usual).ln());
        }
    }
    logs.into_iter()
        .map(|(block, logs)| (block, (logs.iter().sum::<f64>() / logs.len() as f64).exp()))
        .filter(|(_, drift)| drift.is_finite() && *drift > 0.0)
        .collect()
}

fn judged(cell: &Cell, raw: &BTreeMap<u32, Statistics>, drift: &BTreeMap<u32, f64>) -> Judged {
    let figures = Statistics::median_of(&raw.values().copied().collect::<Vec<_>>());
    let blocks = raw
        .iter()
        .map(|(block, s)| (*block, s.divided(drift.get(block).copied().unwrap_or(1.0))))
        .collect();
    let sum = |of: fn(&Run) -> u64| cell.runs.iter().map(of).sum::<u64>();
    let counts = [sum(|r| r.sent), sum(|r| r.received)];
    let over_blocks = |of: fn(&Run) -> Option<f64>| {
        let values: Vec<f64> = figured(cell)
            .filter_map(of)
            .filter(|value| value.is_finite() && *value > 0.0)
            .collect();
        (!values.is_empty()).then(|| median(values))
    };
    let mut judged = Judged {
        id: cell.id.clone(),
        knobs: cell.knobs.clone(),
        control: cell.control.clone(),
        figures,
        blocks,
        counts,
        cpu_per_packet: over_blocks(|run| Some(run.cpu_per_packet + run.kernel_cpu_per_packet)),
        energy_per_packet: over_blocks(|run| Some(1e9 * run.joules? / run.received as f64)),
        usual_traffic: true,
        remarks: Vec::new(),
        undesirable: Vec::new(),
        kinds: BTreeSet::new(),
    };
    find_faults(cell, &mut judged);
    judged
}

/// Runs with something wrong that make a cell of so many undesirable.
fn too_many(runs: usize) -> usize {
    if runs < 3 { 1 } else { 2 }
}

fn lost(run: &Run) -> bool {
    run.sent > 0 && run.sent.saturating_sub(run.received) as f64 / run.sent as f64 > LOSS
}

fn unmet(run: &Run) -> bool {
    !run.effective.unmet.is_empty()
}

/// Runs that figures come from: not those that failed, nor a single one that was not as asked for.
fn figured(cell: &Cell) -> impl Iterator<Item = &Run> {
    let single = cell.runs.iter().filter(|run| unmet(run)).count() < too_many(cell.runs.len());
    cell.runs
        .iter()
        .filter(move |run| run.failure.is_none() && !(single && unmet(run)))
}

/// What can be told from the cell alone.
fn find_faults(cell: &Cell, judged: &mut Judged) {
    let runs = cell.runs.len();
    let many =
        |of: fn(&Run) -> bool| cell.runs.iter().filter(|run| of(run)).count() >= too_many(runs);
    let mut found: Vec<(Kind, bool, String)> = Vec::new();

    let mut failures: BTreeMap<&str, usize> = BTreeMap::new();
    for failure in cell.runs.iter().filter_map(|run| run.failure.as_deref()) {
        *failures.entry(failure).or_default() += 1;
    }
    let failed = many(|run| run.failure.is_some());
    for (failure, times) in failures {
        let text = format!("{times} of {runs} runs failed: {failure}");
        found.push((Kind::Failed, failed, text));
    }

    let [sent, received] = judged.counts;
    let missing = sent.saturating_sub(received);
    if missing > 0 && cell.runs.iter().any(lost) {
        let share = 100.0 * missing as f64 / sent as f64;
        let text = format!("lost {missing} of {sent} packets ({share:.2} %)");
        let severe = many(lost) && missing as f64 > LOSS * sent as f64;
        found.push((Kind::Loss, severe, text));
    }
    if judged.figures.is_none() && found.iter().all(|(_, severe, _)| !severe) {
        found.push((Kind::Failed, true, "nothing was measured".to_owned()));
    }

    let interval = cell.knobs.get(INTERVAL);
    let interval = interval
        .and_then(|text| weir_value::duration(text).ok())
        .map(|time| time.as_nanos() as f64);
    if let (Some(figures), Some(interval)) = (&judged.figures, interval)
        && interval > 0.0
        && figures.median >= interval / 2.0
    {
        let text = format!(
            "stalls: the median round trip of {:.1} us is at least half the {:.1} us between packets, as if each waited for the next one",
            figures.median / 1e3,
            interval / 1e3
        );
        found.push((Kind::Stall, true, text));
    }

    let mut sentences: BTreeMap<&str, usize> = BTreeMap::new();
    for sentence in cell.runs.iter().flat_map(|run| &run.effective.unmet) {
        *sentences.entry(sentence).or_default() += 1;
    }
    let ineffective = many(unmet);
    for (sentence, times) in sentences {
        let blocks = match times < runs {
            true => format!(" (in {times} of {runs} runs)"),
            false => String::new(),
        };
        found.push((
            Kind::Ineffective,
            ineffective,
            format!("{sentence}{blocks}"),
        ));
    }

    for (kind, severe, text) in found {
        if severe {
            judged.kinds.insert(kind);
            judged.undesirable.push(text);
        } else {
            judged.remarks.push(text);
        }
    }
}

/// What is sent, in the order of [`TRAFFIC`].
fn traffic(knobs: &BTreeMap<String, String>) -> Vec<Option<String>> {
    TRAFFIC
        .iter()
        .map(|knob| knobs.get(*knob).cloned())
        .collect()
}

/// What most cells send.
fn usual_traffic(cells: &[Cell]) -> Vec<Option<String>> {
    let mut seen: BTreeMap<Vec<Option<String>>, usize> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.control.is_none()) {
        *seen.entry(traffic(&cell.knobs)).or_default() += 1;
    }
    let most = seen.values().max().copied();
    seen.into_iter()
        .find(|(_, count)| Some(*count) == most)
        .map(|(traffic, _)| traffic)
        .unwrap_or_default()
}

fn compare_with_control(cell: &mut Judged, controls: &[Judged], usual: &[Option<String>]) {
    // What a control does not say of its traffic is as usual. Under traffic that no control had, nothing is said.
    let own = traffic(&cell.knobs);
    let alike = |control: &&Judged| {
        traffic(&control.knobs)
            .into_iter()
            .zip(usual)
            .map(|(told, usual)| told.or_else(|| usual.clone()))
            .eq(own.iter().cloned())
    };
    let Some(control) = controls.iter().find(alike) else {
        return;
    };
    let ratios = cell.ratios(control, |s| s.median);
    // One block of several says little.
    if ratios.len() >= too_many(cell.blocks.len()) && ratios.iter().all(|ratio| *ratio > 1.0) {
        let ratio = median(ratios);
        cell.kinds.insert(Kind::Slow);
        cell.undesirable.push(format!(
            "slower than blocking UDP sockets in every block, {ratio:.2} times in the median one"
        ));
    }
}
