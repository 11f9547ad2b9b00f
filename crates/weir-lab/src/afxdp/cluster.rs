//! Which configurations are alike, and what those that are alike share.
//!
//! k-means (k-means++, a fixed seed, 50 starts) on mean, median, deviation and quartiles of each configuration, as in the paper; on their logarithms, scaled to the same spread, because
//! round trips spread by factors, and because otherwise the longest figures alone would decide.
//!
//! **Features.** `calm` (the default): mean and deviation are those of samples up to the run's own p99. On machines that do other things as well, a handful of preemptions of
//! milliseconds *is* the deviation of ten thousand round trips of microseconds, and it tells of the machine, not of the settings. `paper`: of all samples. `all`: the paper's first try,
//! with minimum and maximum, which it reports as failed.
//!
//! **How many clusters.** The paper wants low deviation within clusters, few clusters, and significant differences between them. Here: (1) *significant*: in at least 80 % of blocks,
//! medians of each cluster's members are below those of the next cluster's; (2) *stable*: when blocks are split at random into halves and each half is clustered by itself, the best
//! clusters share at least 0.8 of their members (Jaccard), on average over ten splits; (3) of the numbers that pass, the highest silhouette; (4) of those within 0.02 of it, the *fewest*.
//! If no number passes, the most stable one is taken and the report says so. Inertia (for the elbow), Calinski-Harabasz and the deviation within clusters are shown beside.
//! Below a silhouette of 0.25 there is no structure worth a name: one cluster.
//!
//! **What is relevant** in a cluster: a value that at least 90 % of its members have, and that is over-represented: by chance (hypergeometric, times the number of values looked at) it would
//! be there with a probability of less than 5 %. Of knobs with three values or more, that members have *not* a value counts alike: what is common to those that spin in one way or another is
//! that they do not sleep. Values that all members have without that are told apart as `shared`: few members share much by chance.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::statistics::{Judged, Statistics, median};
use crate::bench::rules::Random;

/// Starts of k-means.
const STARTS: usize = 50;
/// Starts for each half of a split; many splits make up for fewer.
const STARTS_OF_HALVES: usize = 10;
/// Random splits into halves.
const SPLITS: usize = 10;
/// Numbers of clusters that are tried.
const MOST: usize = 10;
/// What halves, and blocks, must agree on.
const AGREE: f64 = 0.8;
/// Silhouettes that differ by less are alike.
const ALIKE: f64 = 0.02;
/// Below this there is no structure.
const STRUCTURE: f64 = 0.25;
/// Members that must have a value for it to be relevant.
const HELD: f64 = 0.9;
/// Probability by chance.
const CHANCE: f64 = 0.05;

/// What cells are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Features {
    /// Mean, median, deviation and quartiles, without what is beyond each run's p99.
    #[default]
    Calm,
    /// Mean, median, deviation and quartiles.
    Paper,
    /// Minimum and maximum as well.
    All,
}

impl Features {
    /// Their names, in order.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Features::Calm => &["calm mean", "median", "calm deviation", "Q1", "Q3"],
            Features::Paper => &["mean", "median", "deviation", "Q1", "Q3"],
            Features::All => &["mean", "median", "deviation", "Q1", "Q3", "min", "max"],
        }
    }

    fn of(self, s: &Statistics) -> Vec<f64> {
        match self {
            Features::Calm => vec![s.calm_mean, s.median, s.calm_deviation, s.q1, s.q3],
            Features::Paper => vec![s.mean, s.median, s.deviation, s.q1, s.q3],
            Features::All => vec![s.mean, s.median, s.deviation, s.q1, s.q3, s.min, s.max],
        }
    }
}

/// A partition of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// Which cluster each point is in.
    pub labels: Vec<usize>,
    /// Sum of squared distances to the own cluster's centre.
    pub inertia: f64,
}

/// Logarithms (of at least 1 ns: a deviation may be 0), each column with mean 0 and deviation 1; columns without spread become 0.
pub fn scale(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut scaled: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| row.iter().map(|v| v.max(1.0).ln()).collect())
        .collect();
    let n = rows.len() as f64;
    for column in 0..rows.first().map_or(0, Vec::len) {
        let mean = scaled.iter().map(|row| row[column]).sum::<f64>() / n;
        let square = scaled.iter().map(|r| (r[column] - mean).powi(2));
        let deviation = (square.sum::<f64>() / n).sqrt();
        for row in &mut scaled {
            row[column] -= mean;
            // Rounding leaves a little even where all are the same.
            if deviation > 1e-12 {
                row[column] /= deviation;
            } else {
                row[column] = 0.0;
            }
        }
    }
    scaled
}

/// The best of several starts. There are never more clusters than different points.
pub fn kmeans(points: &[Vec<f64>], k: usize, seed: u64, starts: usize) -> Partition {
    let mut random = Random(seed);
    let mut best: Option<Partition> = None;
    for _ in 0..starts.max(1) {
        let found = from_start(points, spread_out(points, k, &mut random));
        if best.as_ref().is_none_or(|b| found.inertia < b.inertia) {
            best = Some(found);
        }
    }
    best.unwrap_or(Partition {
        labels: Vec::new(),
        inertia: 0.0,
    })
}

/// Centres by k-means++: each next one is a point, the likelier the farther (squared) it is from those there are. Of a few drawn so, the one is taken that leaves points the nearest to
/// centres, as scikit-learn does it.
fn spread_out(points: &[Vec<f64>], k: usize, random: &mut Random) -> Vec<Vec<f64>> {
    if points.is_empty() {
        return Vec::new();
    }
    let draws = 2 + (k as f64).ln() as usize;
    let first = random.below(points.len());
    let mut centres = vec![points[first].clone()];
    let mut weights: Vec<f64> = points.iter().map(|p| square(p, &centres[0])).collect();
    while centres.len() < k {
        let total: f64 = weights.iter().sum();
        if total <= 0.0 {
            break;
        }
        let mut best: Option<(f64, usize, Vec<f64>)> = None;
        for _ in 0..draws {
            let chosen = draw(&weights, total, random);
            let left: Vec<f64> = points
                .iter()
                .zip(&weights)
                .map(|(p, w)| w.min(square(p, &points[chosen])))
                .collect();
            let sum = left.iter().sum();
            if best.as_ref().is_none_or(|b| sum < b.0) {
                best = Some((sum, chosen, left));
            }
        }
        let Some((_, chosen, left)) = best else { break };
        centres.push(points[chosen].clone());
        weights = left;
    }
    centres
}

/// A place, by weight. One with weight 0 is never drawn.
fn draw(weights: &[f64], total: f64, random: &mut Random) -> usize {
    // 53 bits are all that fits a fraction.
    let mut left = (random.next() >> 11) as f64 / (1u64 << 53) as f64 * total;
    let mut last = 0;
    for (n, weight) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
        last = n;
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Lloyd's algorithm to its end. A centre without points stays where it was.
fn from_start(points: &[Vec<f64>], mut centres: Vec<Vec<f64>>) -> Partition {
    let mut labels = vec![usize::MAX; points.len()];
    loop {
        let next: Vec<usize> = points.iter().map(|p| nearest(p, &centres).0).collect();
        let settled = next == labels;
        labels = next;
        if settled {
            break;
        }
        for (n, centre) in centres.iter_mut().enumerate() {
            let own = || points.iter().zip(&labels).filter(|(_, l)| **l == n);
            let count = own().count();
            if count > 0 {
                for (column, value) in centre.iter_mut().enumerate() {
                    *value = own().map(|(p, _)| p[column]).sum::<f64>() / count as f64;
                }
            }
        }
    }
    let inertia = points.iter().map(|p| nearest(p, &centres).1).sum();
    Partition { labels, inertia }
}

fn nearest(point: &[f64], centres: &[Vec<f64>]) -> (usize, f64) {
    let mut best = (0, f64::INFINITY);
    for (n, centre) in centres.iter().enumerate() {
        let distance = square(point, centre);
        if distance < best.1 {
            best = (n, distance);
        }
    }
    best
}

fn square(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Mean silhouette: how much nearer points are to their own cluster than to the next one, from -1 to 1. Points alone in a cluster count 0.
pub fn silhouette(points: &[Vec<f64>], labels: &[usize]) -> f64 {
    let k = labels.iter().max().map_or(0, |most| most + 1);
    let mut sizes = vec![0usize; k];
    for label in labels {
        sizes[*label] += 1;
    }
    let one = |n: usize| {
        let mut sums = vec![0.0; k];
        for (m, other) in points.iter().enumerate() {
            sums[labels[m]] += square(&points[n], other).sqrt();
        }
        let own = labels[n];
        if sizes[own] < 2 {
            return 0.0;
        }
        let inside = sums[own] / (sizes[own] - 1) as f64;
        let outside = (0..k)
            .filter(|c| *c != own && sizes[*c] > 0)
            .map(|c| sums[c] / sizes[c] as f64)
            .fold(f64::INFINITY, f64::min);
        let longer = inside.max(outside);
        if longer > 0.0 && outside.is_finite() {
            (outside - inside) / longer
        } else {
            0.0
        }
    };
    (0..points.len()).map(one).sum::<f64>() / points.len().max(1) as f64
}

/// Calinski and Harabasz: spread between clusters over spread within them, each for its degrees of freedom.
pub fn calinski_harabasz(points: &[Vec<f64>], labels: &[usize]) -> f64 {
    let k = labels.iter().collect::<BTreeSet<_>>().len();
    let n = points.len();
    if k < 2 || n <= k {
        return 0.0;
    }
    let columns = points[0].len();
    let middle = |of: &[&Vec<f64>]| -> Vec<f64> {
        (0..columns)
            .map(|c| of.iter().map(|p| p[c]).sum::<f64>() / of.len() as f64)
            .collect()
    };
    let whole = middle(&points.iter().collect::<Vec<_>>());
    let (mut between, mut within) = (0.0, 0.0);
    for label in labels.iter().collect::<BTreeSet<_>>() {
        let own: Vec<&Vec<f64>> = points
            .iter()
            .zip(labels)
            .filter(|(_, l)| *l == label)
            .map(|(p, _)| p)
            .collect();
        let centre = middle(&own);
        between += own.len() as f64 * square(&centre, &whole);
        within += own.iter().map(|p| square(p, &centre)).sum::<f64>();
    }
    if within <= 0.0 {
        return f64::INFINITY;
    }
    (between / (k - 1) as f64) / (within / (n - k) as f64)
}

/// Shared members over all members. Of two empty sets: 1.
pub fn jaccard<T: Ord>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> f64 {
    let union = a.union(b).count();
    if union == 0 {
        return 1.0;
    }
    a.intersection(b).count() as f64 / union as f64
}

/// Clusters of a sweep and how their number came about.
#[derive(Clone, Debug, Serialize)]
pub struct Clustering {
    /// What cells were compared by.
    pub features: Features,
    /// Each number of clusters that was tried.
    pub tried: Vec<Tried>,
    /// Why this number, in a sentence.
    pub why: String,
    /// Whether clusters are significant and stable, as far as blocks can tell.
    pub firm: bool,
    /// From the lowest median to the highest.
    pub clusters: Vec<Cluster>,
    /// Of all pairs of cells in different clusters, the share whose medians are ordered against the clusters' order: 0 where clusters tell good from bad.
    pub disorder: f64,
}

/// A number of clusters and how good it is.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// How many.
    pub k: usize,
    /// Sum of squared distances within clusters.
    pub inertia: f64,
    /// Mean silhouette.
    pub silhouette: f64,
    /// Calinski and Harabasz.
    pub calinski_harabasz: f64,
    /// Deviation of medians within clusters, as a share (of logarithms), weighted by members.
    pub within: f64,
    /// Share of blocks in which clusters keep their order, of the two neighbours that keep it least.
    pub ordered: Option<f64>,
    /// What the best clusters of halves share. None: fewer than two blocks.
    pub stable: Option<f64>,
}

impl Tried {
    fn passes(&self) -> bool {
        self.ordered.is_none_or(|share| share >= AGREE)
            && self.stable.is_none_or(|share| share >= AGREE)
    }
}

/// Configurations that are alike. Times in nanoseconds, medians over blocks as measured.
#[derive(Clone, Debug, Serialize)]
pub struct Cluster {
    /// 0 is the one with the lowest median.
    pub number: usize,
    /// Names, from the lowest median to the highest.
    pub members: Vec<String>,
    /// Mean of the members' means.
    pub mean: f64,
    /// Mean of the members' deviations.
    pub deviation: f64,
    /// Median of the members' medians.
    pub median: f64,
    /// Median of the members' p99.
    pub p99: f64,
    /// Lowest and highest median.
    pub medians: [f64; 2],
    /// Values that make it.
    pub relevant: Vec<Shared>,
    /// Pairs of values one of which all members have, and the others rarely.
    pub either: Vec<[(String, String); 2]>,
    /// Values that all members have, though chance would do as well.
    pub shared: Vec<Shared>,
    /// The fewest values, of different knobs, that all members have together and no other cell has; none if no three do it.
    pub exact: Vec<(String, String)>,
}

impl Cluster {
    /// What its members have in common, as the paper's tables have it.
    pub fn in_words(&self) -> String {
        let mut words: Vec<String> = self
            .relevant
            .iter()
            .map(|shared| {
                let share = if shared.held == shared.of {
                    String::new()
                } else {
                    format!(" ({} of {})", shared.held, shared.of)
                };
                format!("{} {}{share}", shared.knob, shared.value)
            })
            .collect();
        for [a, b] in &self.either {
            words.push(format!("either {} {} or {} {}", a.0, a.1, b.0, b.1));
        }
        // One relevant value that says it all is not said twice.
        if self.exact.len() > 1 || (self.exact.len() == 1 && words.is_empty()) {
            let values: Vec<String> = self
                .exact
                .iter()
                .map(|(knob, value)| format!("{knob} {value}"))
                .collect();
            words.push(format!("exactly the cells with {}", values.join(" and ")));
        }
        if words.is_empty() {
            "no common setting".to_owned()
        } else {
            words.join(", ")
        }
    }
}

/// A value that members of a cluster share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shared {
    /// The knob.
    pub knob: String,
    /// Its value.
    pub value: String,
    /// Members that have it.
    pub held: usize,
    /// Of how many.
    pub of: usize,
    /// Share of all clustered cells that have it.
    pub overall: f64,
    /// Probability of so many by chance, before correction for the number of values.
    pub chance: f64,
}

/// Clusters the cells that count and have the usual traffic. `k` overrides the choice of their number.
pub fn cluster(cells: &[Judged], features: Features, seed: u64, k: Option<usize>) -> Clustering {
    let cells: Vec<&Judged> = cells
        .iter()
        .filter(|cell| cell.counts() && cell.usual_traffic)
        .collect();
    let blocks: Vec<u32> = cells
        .iter()
        .flat_map(|cell| cell.blocks.keys().copied())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let points = scale(&rows(&cells, features, &|_| true));
    let medians: Vec<f64> = cells.iter().map(|cell| settled_median(cell)).collect();
    let different = points
        .iter()
        .map(|p| p.iter().map(|v| v.to_bits()).collect::<Vec<_>>())
        .collect::<BTreeSet<_>>()
        .len();
    let most = MOST.min(different).min(cells.len().saturating_sub(1));
    let halves = halves(&blocks, seed);
    let mut tried = Vec::new();
    let mut partitions = Vec::new();
    for k in 2..=most {
        let found = kmeans(&points, k, seed, STARTS);
        let labels = numbered(&found.labels, &medians);
        tried.push(Tried {
            k,
            inertia: found.inertia,
            silhouette: silhouette(&points, &labels),
            calinski_harabasz: calinski_harabasz(&points, &labels),
            within: within(&labels, &medians),
            ordered: (blocks.len() > 1).then(|| ordered(&cells, &labels, &blocks)),
            stable: stable(&cells, features, k, seed, &halves),
        });
        partitions.push(labels);
    }
    let (chosen, why) = choose(&tried, k);
    let firm = chosen.is_none_or(|n| tried[n].passes());
    let labels = match chosen {
        Some(n) => partitions.swap_remove(n),
        None => vec![0; cells.len()],
    };
    let clusters = describe(&cells, &labels);
    Clustering {
        features,
        tried,
        why,
        firm,
        disorder: disorder(&labels, &medians),
        clusters,
    }
}

fn settled_median(cell: &Judged) -> f64 {
    cell.settled().map_or(f64::NAN, |s| s.median)
}

/// Features of cells, medians over some blocks; a cell that ran in none of them keeps all.
fn rows(cells: &[&Judged], features: Features, which: &dyn Fn(u32) -> bool) -> Vec<Vec<f64>> {
    let of = |cell: &Judged| {
        let some: Vec<Statistics> = cell
            .blocks
            .iter()
            .filter(|(block, _)| which(**block))
            .map(|(_, s)| *s)
            .collect();
        Statistics::median_of(&some).or_else(|| cell.settled())
    };
    cells
        .iter()
        .map(|cell| features.of(&of(cell).unwrap_or_default()))
        .collect()
}

/// Clusters numbered by the median of their members' medians.
fn numbered(labels: &[usize], medians: &[f64]) -> Vec<usize> {
    let mut middles: Vec<(f64, usize)> = labels
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|label| {
            let own = labels.iter().zip(medians).filter(|(l, _)| *l == label);
            (median(own.map(|(_, m)| *m).collect()), *label)
        })
        .collect();
    middles.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let place: BTreeMap<usize, usize> = middles
        .iter()
        .enumerate()
        .map(|(place, (_, label))| (*label, place))
        .collect();
    labels.iter().map(|label| place[label]).collect()
}

fn within(labels: &[usize], medians: &[f64]) -> f64 {
    let mut sum = 0.0;
    for label in labels.iter().collect::<BTreeSet<_>>() {
        let own: Vec<f64> = labels
            .iter()
            .zip(medians)
            .filter(|(l, _)| *l == label)
            .map(|(_, m)| m.ln())
            .collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        sum += own.iter().map(|m| (m - mean).powi(2)).sum::<f64>();
    }
    (sum / labels.len().max(1) as f64).sqrt()
}

fn ordered(cells: &[&Judged], labels: &[usize], blocks: &[u32]) -> f64 {
    let k = labels.iter().max().map_or(0, |most| most + 1);
    let middle = |cluster: usize, block: u32| {
        let own = cells.iter().zip(labels).filter(|(_, l)| **l == cluster);
        median(
            own.filter_map(|(cell, _)| Some(cell.blocks.get(&block)?.median))
                .collect(),
        )
    };
    (1..k)
        .map(|c| {
            let kept = blocks
                .iter()
                .filter(|b| middle(c - 1, **b) < middle(c, **b));
            kept.count() as f64 / blocks.len() as f64
        })
        .fold(1.0, f64::min)
}

/// Random halves of the blocks.
fn halves(blocks: &[u32], seed: u64) -> Vec<BTreeSet<u32>> {
    if blocks.len() < 2 {
        return Vec::new();
    }
    let mut random = Random(seed ^ 0x6861_6c76_6573);
    (0..SPLITS)
        .map(|_| {
            let mut left = blocks.to_vec();
            let mut half = BTreeSet::new();
            while half.len() < blocks.len() / 2 {
                half.insert(left.swap_remove(random.below(left.len())));
            }
            half
        })
        .collect()
}

fn stable(
    cells: &[&Judged],
    features: Features,
    k: usize,
    seed: u64,
    halves: &[BTreeSet<u32>],
) -> Option<f64> {
    if halves.is_empty() {
        return None;
    }
    let best = |which: &dyn Fn(u32) -> bool| -> BTreeSet<usize> {
        let rows = rows(cells, features, which);
        // The median is the second feature of all sets.
        let medians: Vec<f64> = rows.iter().map(|row| row[1]).collect();
        let found = kmeans(&scale(&rows), k, seed, STARTS_OF_HALVES);
        let labels = numbered(&found.labels, &medians);
        (0..cells.len()).filter(|n| labels[*n] == 0).collect()
    };
    let sum: f64 = halves
        .iter()
        .map(|half| {
            jaccard(
                &best(&|b| half.contains(&b)),
                &best(&|b| !half.contains(&b)),
            )
        })
        .sum();
    Some(sum / halves.len() as f64)
}

/// Which of those tried, and why. None: one cluster.
fn choose(tried: &[Tried], wanted: Option<usize>) -> (Option<usize>, String) {
    if let Some(k) = wanted {
        return match tried.iter().position(|t| t.k == k) {
            Some(n) => (Some(n), format!("{k} clusters, as asked for")),
            None => (
                None,
                format!("one cluster: too few different cells for {k}"),
            ),
        };
    }
    if tried.is_empty() {
        return (None, "one cluster: too few cells".to_owned());
    }
    let passing: Vec<usize> = (0..tried.len()).filter(|n| tried[*n].passes()).collect();
    if passing.is_empty() {
        let firm = |t: &Tried| t.stable.unwrap_or(0.0).min(t.ordered.unwrap_or(0.0));
        let best = (0..tried.len())
            .rev()
            .max_by(|a, b| firm(&tried[*a]).total_cmp(&firm(&tried[*b])));
        let why = best.map_or_else(String::new, |n| {
            format!(
                "{} clusters, with a reservation: no number is both significant and stable on these blocks; this one is the most so (order kept in {:.2} of blocks, best clusters of halves share {:.2})",
                tried[n].k,
                tried[n].ordered.unwrap_or(0.0),
                tried[n].stable.unwrap_or(0.0),
            )
        });
        return (best, why);
    }
    let highest = passing
        .iter()
        .map(|n| tried[*n].silhouette)
        .fold(f64::NEG_INFINITY, f64::max);
    if highest < STRUCTURE {
        return (
            None,
            format!(
                "one cluster: the highest silhouette is {highest:.2}, and below {STRUCTURE} there is no structure"
            ),
        );
    }
    let chosen = passing
        .iter()
        .copied()
        .find(|n| tried[*n].silhouette >= highest - ALIKE);
    let why = chosen.map_or_else(String::new, |n| {
        let t = &tried[n];
        let beside = if t.silhouette < highest {
            format!(", within {ALIKE} of the highest with more clusters")
        } else {
            String::new()
        };
        let checks = match (t.ordered, t.stable) {
            (Some(ordered), Some(stable)) => format!(
                "; clusters keep their order in {:.0} % of blocks, and the best clusters of halves of the blocks share {stable:.2}",
                100.0 * ordered
            ),
            _ => "; one block only, so their stability is unknown".to_owned(),
        };
        format!("{} clusters: silhouette {:.3}{beside}{checks}", t.k, t.silhouette)
    });
    (chosen, why)
}

fn disorder(labels: &[usize], medians: &[f64]) -> f64 {
    let (mut pairs, mut against) = (0u64, 0u64);
    for (a, first) in labels.iter().enumerate() {
        for (b, _) in labels.iter().enumerate().filter(|(_, l)| *l > first) {
            pairs += 1;
            against += u64::from(medians[a] > medians[b]);
        }
    }
    against as f64 / pairs.max(1) as f64
}

fn describe(cells: &[&Judged], labels: &[usize]) -> Vec<Cluster> {
    let values = varied(cells);
    let count = labels.iter().max().map_or(0, |most| most + 1);
    (0..count)
        .map(|number| {
            let mut members: Vec<usize> =
                (0..cells.len()).filter(|n| labels[*n] == number).collect();
            members.sort_by(|a, b| {
                settled_median(cells[*a])
                    .total_cmp(&settled_median(cells[*b]))
                    .then_with(|| cells[*a].id.cmp(&cells[*b].id))
            });
            let figures = |figure: fn(&Statistics) -> f64| -> Vec<f64> {
                members
                    .iter()
                    .filter_map(|n| cells[*n].figures.as_ref().map(figure))
                    .collect()
            };
            let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
            let medians = figures(|s| s.median);
            let (relevant, shared) = common(cells, &members, &with_absent(&values));
            Cluster {
                number,
                mean: mean(figures(|s| s.mean)),
                deviation: mean(figures(|s| s.deviation)),
                median: median(medians.clone()),
                p99: median(figures(|s| s.p99)),
                medians: [
                    medians.iter().copied().fold(f64::INFINITY, f64::min),
                    medians.iter().copied().fold(0.0, f64::max),
                ],
                either: either(cells, &members, &values, &relevant),
                exact: exactly(cells, &members, &with_absent(&values)),
                relevant,
                shared,
                members: members.iter().map(|n| cells[*n].id.clone()).collect(),
            }
        })
        .collect()
}

/// Knobs with more than one value among cells, with their values.
fn varied(cells: &[&Judged]) -> Vec<(String, String)> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (knob, value) in cells.iter().flat_map(|cell| &cell.knobs) {
        values.entry(knob).or_default().insert(value);
    }
    values
        .into_iter()
        .filter(|(_, values)| values.len() > 1)
        .flat_map(|(knob, values)| {
            values
                .into_iter()
                .map(move |value| (knob.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Said before a value that is not there.
const NOT: &str = "not ";

/// The values, and the absence of each that a knob with more than two has.
fn with_absent(values: &[(String, String)]) -> Vec<(String, String)> {
    let several = |knob: &str| values.iter().filter(|(k, _)| k == knob).count() > 2;
    let absent = values
        .iter()
        .filter(|(knob, _)| several(knob))
        .map(|(knob, value)| (knob.clone(), format!("{NOT}{value}")));
    values.iter().cloned().chain(absent).collect()
}

fn has(cell: &Judged, (knob, value): &(String, String)) -> bool {
    let own = cell.knobs.get(knob);
    match value.strip_prefix(NOT) {
        Some(value) => own.is_some_and(|own| own != value),
        None => own == Some(value),
    }
}

/// Relevant values, and those that are shared but may be by chance.
fn common(
    cells: &[&Judged],
    members: &[usize],
    values: &[(String, String)],
) -> (Vec<Shared>, Vec<Shared>) {
    let (mut relevant, mut shared) = (Vec::new(), Vec::new());
    for literal in values {
        let held = members.iter().filter(|n| has(cells[**n], literal)).count();
        let everywhere = cells.iter().filter(|cell| has(cell, literal)).count();
        let of = members.len();
        if of == 0 || (held as f64) < HELD * of as f64 {
            continue;
        }
        let chance = hypergeometric(cells.len(), everywhere, of, held);
        let found = Shared {
            knob: literal.0.clone(),
            value: literal.1.clone(),
            held,
            of,
            overall: everywhere as f64 / cells.len() as f64,
            chance,
        };
        if chance * (values.len() as f64) < CHANCE {
            relevant.push(found);
        } else if held == of {
            shared.push(found);
        }
    }
    // Who has one value has none of the others: that is not said again.
    let present = |knob: &str| {
        let mut all = relevant.iter().chain(&shared);
        all.any(|one: &Shared| one.knob == knob && !one.value.starts_with(NOT))
    };
    let said: BTreeSet<String> = values
        .iter()
        .filter(|(knob, _)| present(knob))
        .map(|(knob, _)| knob.clone())
        .collect();
    let again = |one: &Shared| one.value.starts_with(NOT) && said.contains(&one.knob);
    relevant.retain(|one| !again(one));
    shared.retain(|one| !one.value.starts_with(NOT));
    (relevant, shared)
}

/// The one or two pairs of values of which all members have at least one, and the fewest others; only where that is not by chance.
fn either(
    cells: &[&Judged],
    members: &[usize],
    values: &[(String, String)],
    relevant: &[Shared],
) -> Vec<[(String, String); 2]> {
    let told = |literal: &(String, String)| {
        relevant
            .iter()
            .any(|r| r.knob == literal.0 && r.held == r.of)
    };
    let open: Vec<&(String, String)> = values.iter().filter(|l| !told(l)).collect();
    let looked_at = (open.len() * open.len().saturating_sub(1) / 2).max(1) as f64;
    let mut found = Vec::new();
    for (n, a) in open.iter().enumerate() {
        for b in open[n + 1..].iter().filter(|b| b.0 != a.0) {
            let one = |cell: &Judged| has(cell, a) || has(cell, b);
            let each = |l| members.iter().filter(|n| has(cells[**n], l)).count();
            let all = members.len();
            // Both must be needed.
            if all == 0 || each(a) == all || each(b) == all {
                continue;
            }
            if !members.iter().all(|n| one(cells[*n])) {
                continue;
            }
            let everywhere = cells.iter().filter(|cell| one(cell)).count();
            let chance = hypergeometric(cells.len(), everywhere, all, all);
            if chance * looked_at < CHANCE && everywhere * 2 <= cells.len() + all {
                found.push((everywhere, [(*a).clone(), (*b).clone()]));
            }
        }
    }
    found.sort();
    found.into_iter().take(2).map(|(_, pair)| pair).collect()
}

/// Knobs that describe a cluster exactly at most.
const EXACT: usize = 3;

/// The fewest values, of different knobs, that all members have together and no other cell has.
fn exactly(
    cells: &[&Judged],
    members: &[usize],
    values: &[(String, String)],
) -> Vec<(String, String)> {
    let held: Vec<&(String, String)> = values
        .iter()
        .filter(|literal| members.iter().all(|n| has(cells[*n], literal)))
        .collect();
    if members.is_empty() || members.len() == cells.len() {
        return Vec::new();
    }
    let mut sets: Vec<Vec<&(String, String)>> = vec![Vec::new()];
    for _ in 0..EXACT {
        let mut longer = Vec::new();
        for set in &sets {
            // In the order of `held`, so that each set is looked at once.
            let after = set.last().map_or(0, |last| {
                held.iter().position(|l| l == last).map_or(0, |at| at + 1)
            });
            for literal in &held[after..] {
                if set.iter().any(|one| one.0 == literal.0) {
                    continue;
                }
                let mut set = set.clone();
                set.push(literal);
                let all = |cell: &Judged| set.iter().all(|literal| has(cell, literal));
                if cells.iter().filter(|cell| all(cell)).count() == members.len() {
                    return set.into_iter().cloned().collect();
                }
                longer.push(set);
            }
        }
        sets = longer;
    }
    Vec::new()
}

/// Probability that of `drawn` out of `all`, of which `marked` are marked, at least `hit` are.
fn hypergeometric(all: usize, marked: usize, drawn: usize, hit: usize) -> f64 {
    let mut logs = vec![0.0f64; all + 1];
    for n in 1..=all {
        logs[n] = logs[n - 1] + (n as f64).ln();
    }
    let choose = |n: usize, k: usize| logs[n] - logs[k] - logs[n - k];
    (hit..=drawn.min(marked))
        .filter(|h| drawn - h <= all - marked)
        .map(|h| (choose(marked, h) + choose(all - marked, drawn - h) - choose(all, drawn)).exp())
        .sum::<f64>()
        .min(1.0)
}

/// Whether two sweeps found the same.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What the best clusters share (Jaccard).
    pub overlap: f64,
    /// Members of the best clusters.
    pub sizes: [usize; 2],
    /// Relevant parameters of the best clusters, as `knob=value`.
    pub relevant: [BTreeSet<String>; 2],
    /// In the first one's best cluster only.
    pub only_first: Vec<String>,
    /// In the second one's only.
    pub only_second: Vec<String>,
    /// Cells that count in one sweep and not in the other.
    pub elsewhere: usize,
}

/// What best clusters must share for two sweeps to agree.
pub const OVERLAP: f64 = 0.8;

impl Comparison {
    /// Whether they agree.
    pub fn agrees(&self) -> bool {
        self.overlap >= OVERLAP && self.relevant[0] == self.relevant[1]
    }
}

/// Compares the best clusters of two sweeps. A cell that only one of them measured, or that is undesirable in one of them, counts as not shared.
pub fn compare(first: &Clustering, second: &Clustering) -> Comparison {
    let best = |c: &Clustering| -> BTreeSet<String> {
        c.clusters
            .first()
            .map(|best| best.members.iter().cloned().collect())
            .unwrap_or_default()
    };
    let all = |c: &Clustering| -> BTreeSet<String> {
        let members = c.clusters.iter().flat_map(|cluster| &cluster.members);
        members.cloned().collect()
    };
    let relevant = |c: &Clustering| -> BTreeSet<String> {
        let best = c.clusters.first().into_iter();
        best.flat_map(|best| &best.relevant)
            .map(|r| format!("{}={}", r.knob, r.value))
            .collect()
    };
    let (a, b) = (best(first), best(second));
    Comparison {
        overlap: jaccard(&a, &b),
        sizes: [a.len(), b.len()],
        relevant: [relevant(first), relevant(second)],
        only_first: a.difference(&b).cloned().collect(),
        only_second: b.difference(&a).cloned().collect(),
        elsewhere: all(first).symmetric_difference(&all(second)).count(),
    }
}
