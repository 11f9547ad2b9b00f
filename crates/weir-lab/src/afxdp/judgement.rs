//! From a sweep's results to what they mean: every configuration judged, those that count clustered, effects, comparisons and recommendations. Reads no clock, device or kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cluster::{Clustering, Features, cluster};
use super::density::{Bandwidth, Density, thin};
use super::effects::{Chain, Effect, PairEffect, UnderLoad, alone, chains, pairs, under_load};
use super::recommend::{Against, Recommendation, against_controls, recommend};
use super::results::{Pruned, Results};
use super::statistics::{Judged, Kind, judge_cells};

/// Of results that can be read.
pub const READABLE: u32 = 1;
/// Values that stand for all of a cluster's in a density.
const STANDING: usize = 2000;
/// Places of a density's curve.
const PLACES: usize = 300;

/// Why results cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// No such file.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not results of a sweep.
    #[error("{path} is not a result file of `weir lab afxdp`: {why}")]
    Malformed {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// Reads `results.json`.
pub fn read_results(path: &Path) -> Result<Results, ResultsError> {
    let malformed = |why: String| ResultsError::Malformed {
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read(path).map_err(|source| ResultsError::Read {
        path: path.to_owned(),
        source,
    })?;
    let results: Results = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
    if results.version != READABLE {
        return Err(malformed(format!(
            "its version is {}, and this weir reads {READABLE}",
            results.version
        )));
    }
    let mut seen = std::collections::BTreeSet::new();
    if let Some(twice) = results.cells.iter().find(|cell| !seen.insert(&cell.id)) {
        return Err(malformed(format!(
            "the cell `{}` is declared twice",
            twice.id
        )));
    }
    Ok(results)
}

/// How to judge.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What cells are compared by.
    pub features: Features,
    /// How many clusters; none: by the criteria of `cluster`.
    pub clusters: Option<usize>,
    /// Of clusters' starts and bootstrap samples.
    pub seed: u64,
    /// Of densities.
    pub bandwidth: Bandwidth,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            features: Features::default(),
            clusters: None,
            seed: 1,
            bandwidth: Bandwidth::default(),
        }
    }
}

/// What results mean: `judgement.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// Of the format.
    pub version: u32,
    /// The machine, as in the results.
    pub machine: Vec<(String, String)>,
    /// Driver.
    pub driver: String,
    /// Kernel.
    pub kernel: String,
    /// Seed of the order of cells.
    pub seed: u64,
    /// Blocks.
    pub blocks: u32,
    /// How long it took.
    pub seconds: f64,
    /// Block -> how slow it was beside the median one, by its controls.
    pub drift: BTreeMap<u32, f64>,
    /// All cells.
    pub cells: Vec<Judged>,
    /// Undesirable ones by reason; a cell may have several.
    pub undesirable: BTreeMap<Kind, usize>,
    /// What is to be understood, in words.
    pub traps: Vec<String>,
    /// Clusters of those that count.
    pub clustering: Clustering,
    /// Density of round trips of each cluster, over the decimal logarithm of nanoseconds.
    pub densities: Vec<Vec<(f64, f64)>>,
    /// How wide their kernels are.
    pub bandwidth: Bandwidth,
    /// The quickest cell beside the controls.
    pub controls: Vec<Against>,
    /// Of knobs alone.
    pub effects: Vec<Effect>,
    /// Of pairs of knobs.
    pub pair_effects: Vec<PairEffect>,
    /// Cells under load.
    pub loads: Vec<UnderLoad>,
    /// Cells over rows of forwarders.
    pub chains: Vec<Chain>,
    /// Combinations that were not run.
    pub pruned: Vec<Pruned>,
    /// What the time limit left out beside the blocks.
    pub left_out: Vec<String>,
    /// What to use.
    pub recommendation: Recommendation,
}

/// Judges.
pub fn judge(results: &Results, options: &Options) -> Judgement {
    let (cells, drift) = judge_cells(results);
    let clustering = cluster(&cells, options.features, options.seed, options.clusters);
    let loads = under_load(results);
    let mut undesirable = BTreeMap::new();
    for kind in cells.iter().flat_map(|cell| &cell.kinds) {
        *undesirable.entry(*kind).or_default() += 1;
    }
    Judgement {
        version: READABLE,
        machine: results.machine.clone(),
        driver: results.driver.clone(),
        kernel: results.kernel.clone(),
        seed: results.seed,
        blocks: results.blocks,
        seconds: results.seconds,
        drift,
        undesirable,
        traps: traps(results, &cells),
        densities: densities(results, &clustering, options.bandwidth),
        bandwidth: options.bandwidth,
        controls: against_controls(&cells, &clustering),
        effects: alone(&cells, options.seed),
        pair_effects: pairs(&cells, options.seed),
        chains: chains(results),
        pruned: results.pruned.clone(),
        left_out: results.left_out.clone(),
        recommendation: recommend(&cells, &clustering, &loads),
        clustering,
        cells,
        loads,
    }
}

impl Judgement {
    /// Two cells of each cluster, to be run again under load: the recommended one for latency where it is in there, else the one with the lowest median; and the one with the highest.
    pub fn for_load(&self) -> Vec<String> {
        let recommended = self.recommendation.choices.iter();
        let recommended: Vec<&String> = recommended.map(|choice| &choice.cell).collect();
        let mut all = Vec::new();
        for cluster in &self.clustering.clusters {
            let first = cluster.members.iter().find(|id| recommended.contains(id));
            let first = first.or(cluster.members.first());
            let last = cluster.members.last().filter(|id| Some(*id) != first);
            all.extend(first.into_iter().chain(last).cloned());
        }
        all
    }

    /// The cells with the lowest and the highest median of those that count, to be run over rows of forwarders. One if there is but one.
    pub fn for_chains(&self) -> Vec<String> {
        let clusters = &self.clustering.clusters;
        let best = clusters.first().and_then(|c| c.members.first());
        let worst = clusters.last().and_then(|c| c.members.last());
        let worst = worst.filter(|id| Some(*id) != best);
        best.into_iter().chain(worst).cloned().collect()
    }
}

/// Of each cluster, every cell with the same weight; up to p99.5, beyond which curves are flat.
fn densities(
    results: &Results,
    clustering: &Clustering,
    bandwidth: Bandwidth,
) -> Vec<Vec<(f64, f64)>> {
    let pooled: Vec<Vec<f64>> = clustering
        .clusters
        .iter()
        .map(|cluster| {
            let each = (STANDING / cluster.members.len().max(1)).max(20);
            let of = |id: &String| -> Vec<f64> {
                let cell = results.cells.iter().find(|cell| cell.id == *id);
                let samples = cell.into_iter().flat_map(|cell| &cell.runs);
                let logs: Vec<f64> = samples
                    .flat_map(|run| &run.samples)
                    .map(|ns| (*ns as f64).max(1.0).log10())
                    .collect();
                let standing = thin(logs, each);
                let keep = (standing.len() as f64 * 0.995).ceil() as usize;
                standing[..keep].to_vec()
            };
            cluster.members.iter().flat_map(of).collect()
        })
        .collect();
    let all = || pooled.iter().flatten().copied();
    let (from, to) = (
        all().fold(f64::INFINITY, f64::min) - 0.05,
        all().fold(f64::NEG_INFINITY, f64::max) + 0.05,
    );
    pooled
        .iter()
        .map(|values| {
            Density::new(values.clone(), bandwidth)
                .map(|density| density.curve(from, to, PLACES))
                .unwrap_or_default()
        })
        .collect()
}

/// What a reader would stumble over.
fn traps(results: &Results, cells: &[Judged]) -> Vec<String> {
    let mut traps = Vec::new();
    let asks = |knobs: &BTreeMap<String, String>| {
        knobs.get("busy_poll").is_some_and(|value| value != "off")
    };
    let pairs = || results.cells.iter().zip(cells);
    let asked = pairs().filter(|(cell, _)| asks(&cell.knobs)).count();
    let idle: Vec<&Judged> = pairs()
        .filter(|(cell, _)| asks(&cell.knobs) && !cell.runs.is_empty())
        .filter(|(cell, _)| {
            cell.runs
                .iter()
                .all(|run| run.effective.napi.contains(&0) && run.effective.busy_poll_packets == 0)
        })
        .map(|(_, judged)| judged)
        .collect();
    if !idle.is_empty() {
        traps.push(format!(
            "Busy polling was asked for in {asked} cells and did nothing in {} of them: their sockets have no NAPI id (SO_INCOMING_NAPI_ID is 0), so there is nothing to poll, and the kernel counted no packet \
             received by busy polling. The driver ({}) does not tell the kernel which NAPI serves its queues, as Linux 6.13 and later want it. The socket options are accepted all the same: asked for is not effective.",
            idle.len(),
            results.driver
        ));
    }
    let deferred = |cell: &Judged| cell.knobs.get("deferral").is_some_and(|v| v != "0/0");
    let slow: Vec<f64> = cells
        .iter()
        .filter(|cell| deferred(cell))
        .filter_map(|cell| {
            let mut knobs = cell.knobs.clone();
            knobs.insert("deferral".to_owned(), "0/0".to_owned());
            let plain = cells.iter().find(|other| other.knobs == knobs)?;
            cell.ratio(plain, |s| s.median)
        })
        .collect();
    let worst = slow.iter().copied().fold(0.0, f64::max);
    if worst > 2.0 {
        traps.push(format!(
            "Putting interrupts off (napi_defer_hard_irqs and gro_flush_timeout), as instructions for busy polling recommend, made round trips up to {worst:.0} times as long as without: where nobody polls, a packet \
             waits for the timer. Set them only where busy polling was seen to take effect."
        ));
    }
    let zero_copy = pairs()
        .filter(|(cell, _)| cell.knobs.get("mode").is_some_and(|m| m == "zero-copy"))
        .filter(|(cell, _)| cell.runs.iter().any(|run| !run.effective.zero_copy))
        .count();
    if zero_copy > 0 {
        traps.push(format!(
            "In {zero_copy} cells zero-copy was asked for and frames were copied."
        ));
    }
    let spinners: Vec<f64> = cells
        .iter()
        .filter(|cell| cell.knobs.get("placement").is_some_and(|p| p == "same"))
        .filter(|cell| {
            ["forwarder_wait", "prober_wait"]
                .iter()
                .all(|knob| cell.knobs.get(*knob).is_some_and(|wait| wait != "poll"))
        })
        .filter_map(|cell| Some(cell.figures?.median))
        .collect();
    let longest = spinners.iter().copied().fold(0.0, f64::max);
    if longest > 1e6 {
        traps.push(format!(
            "Two programs that spin on one CPU took up to {:.1} ms for a round trip: each waits for the end of the other's time slice.",
            longest / 1e6
        ));
    }
    traps
}
