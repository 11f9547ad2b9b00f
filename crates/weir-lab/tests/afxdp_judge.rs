//! Judging sweeps of AF_XDP: figures, densities and clusters agree with numpy, SciPy and scikit-learn (fixtures/afxdp, with the script that made them), and what is planted in
//! made-up results is found: clusters, relevant parameters, undesirable cells, effects, recommendations. No kernel, no privileges.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use weir_lab::afxdp::cluster::{
    Clustering, Features, calinski_harabasz, cluster, compare, jaccard, kmeans, scale, silhouette,
};
use weir_lab::afxdp::density::{Bandwidth, Density};
use weir_lab::afxdp::judgement::{Judgement, Options, judge, read_results};
use weir_lab::afxdp::profile::{self, Given, Profile, ProfileError, Role};
use weir_lab::afxdp::recommend::Goal;
use weir_lab::afxdp::report;
use weir_lab::afxdp::results::{Cell, Effective, Extra, Results, Run};
use weir_lab::afxdp::statistics::{Kind, Statistics, judge_cells, nanoseconds, quantile};
use weir_lab::xsk::Setup;
use weir_xsk::{Mode, Wait};

fn golden() -> Value {
    let text = include_str!("fixtures/afxdp/golden.json");
    serde_json::from_str(text).expect("golden.json")
}

fn floats(value: &Value) -> Vec<f64> {
    let list = value.as_array().expect("a list");
    list.iter().map(|v| v.as_f64().expect("a number")).collect()
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().expect("rows").iter().map(floats).collect()
}

#[track_caller]
fn near(a: f64, b: f64, what: &str) {
    assert!(
        (a - b).abs() <= 1e-9 * b.abs().max(1.0),
        "{what}: {a} and not {b}"
    );
}

#[test]
fn quantiles_are_numpys() {
    for case in golden()["quantiles"].as_array().expect("cases") {
        let samples: Vec<u64> = floats(&case["samples"]).iter().map(|v| *v as u64).collect();
        let mut sorted: Vec<f64> = samples.iter().map(|v| *v as f64).collect();
        sorted.sort_by(f64::total_cmp);
        let wanted = floats(&case["quantiles"]);
        for (q, value) in floats(&case["probabilities"]).iter().zip(&wanted) {
            near(quantile(&sorted, *q), *value, &format!("quantile {q}"));
        }
        let s = Statistics::of(&samples).expect("samples");
        near(s.mean, case["mean"].as_f64().expect("mean"), "mean");
        near(
            s.deviation,
            case["deviation"].as_f64().expect("deviation"),
            "deviation",
        );
        let own = [s.min, s.p999, s.q1, s.median, s.q3, s.p99, s.max];
        for (figure, at) in own.iter().zip([0usize, 7, 2, 4, 5, 6, 8]) {
            near(*figure, wanted[at], "figure");
        }
    }
    assert!(Statistics::of(&[]).is_none());
    assert!(quantile(&[], 0.5).is_nan());
}

#[test]
fn densities_are_scipys() {
    for case in golden()["densities"].as_array().expect("cases") {
        let data = floats(&case["data"]);
        for (name, bandwidth) in [
            ("scott", Bandwidth::Scott),
            ("silverman", Bandwidth::Silverman),
        ] {
            let wanted = &case[name];
            let factor = wanted["factor"].as_f64().expect("factor");
            near(bandwidth.factor(data.len()), factor, name);
            let density = Density::new(data.clone(), bandwidth).expect("spread");
            let points = floats(&case["points"]);
            for (x, y) in points.iter().zip(floats(&wanted["density"])) {
                near(density.at(*x), y, name);
            }
        }
    }
    assert!(Density::new(vec![3.0], Bandwidth::Scott).is_none());
    assert!(Density::new(vec![3.0; 9], Bandwidth::Scott).is_none());
}

/// The same groups, whatever they are called.
fn same_groups(a: &[usize], b: &[usize]) -> bool {
    let pairs: BTreeSet<(usize, usize)> = a.iter().copied().zip(b.iter().copied()).collect();
    let firsts: BTreeSet<usize> = a.iter().copied().collect();
    let seconds: BTreeSet<usize> = b.iter().copied().collect();
    pairs.len() == firsts.len() && pairs.len() == seconds.len()
}

#[test]
fn clusters_are_scikit_learns() {
    for case in golden()["clusters"].as_array().expect("cases") {
        let points = scale(&rows(&case["rows"]));
        for (own, wanted) in points.iter().zip(rows(&case["scaled"])) {
            for (a, b) in own.iter().zip(wanted) {
                near(*a, b, "scaled");
            }
        }
        for by_k in case["by_k"].as_array().expect("by k") {
            let k = by_k["k"].as_u64().expect("k") as usize;
            let labels: Vec<usize> = floats(&by_k["labels"])
                .iter()
                .map(|v| *v as usize)
                .collect();
            let figure = |name: &str| by_k[name].as_f64().expect("figure");
            // Of their partition: the same figures.
            near(
                silhouette(&points, &labels),
                figure("silhouette"),
                "silhouette",
            );
            near(
                calinski_harabasz(&points, &labels),
                figure("calinski_harabasz"),
                "Calinski-Harabasz",
            );
            // Of our own: the same partition. With one cluster more than are planted, many are nearly alike, and it takes more starts than a sweep has.
            let found = kmeans(&points, k, 1, if k > 5 { 300 } else { 50 });
            near(found.inertia, figure("inertia"), &format!("inertia of {k}"));
            assert!(same_groups(&found.labels, &labels), "partition into {k}");
        }
    }
}

#[test]
fn few_or_equal_points_make_few_clusters() {
    assert!(kmeans(&[], 3, 1, 5).labels.is_empty());
    let same = vec![vec![1.0, 2.0]; 5];
    assert_eq!(kmeans(&same, 3, 1, 5).labels, [0; 5]);
    assert_eq!(kmeans(&same, 3, 1, 5).inertia, 0.0);
    let none: BTreeSet<u32> = BTreeSet::new();
    assert_eq!(jaccard(&none, &none), 1.0);
}

/// A fixed sequence.
struct Dice(u64);

impl Dice {
    fn part(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.part()).sum::<f64>() - 6.0
    }
}

const BLOCKS: u32 = 5;

/// Samples about a middle, with a tail, and a preemption of milliseconds now and then.
fn samples(dice: &mut Dice, middle: f64, count: usize) -> Vec<u64> {
    (0..count)
        .map(|_| {
            let mut ns = middle * (0.05 * dice.normal()).exp();
            if dice.part() < 0.02 {
                ns *= 1.5 + dice.part();
            }
            if dice.part() < 0.000_5 {
                ns += 4e6;
            }
            ns as u64
        })
        .collect()
}

/// What a made-up cell takes, by its knobs; `None`: what is asked for has no effect.
fn middle(knobs: &BTreeMap<String, String>) -> f64 {
    let polls = |knob: &str| knobs[knob] == "poll";
    let mut ns = match (polls("forwarder_wait"), polls("prober_wait")) {
        (false, false) => 4000.0,
        (true, false) => 8000.0,
        (false, true) => 9000.0,
        (true, true) => 11_500.0,
    };
    if knobs["forwarder_wait"] == "call" {
        ns *= 1.03;
    }
    if knobs["deferral"] == "2/200us" {
        ns += 200_000.0;
    }
    ns
}

/// A sweep: waits of both ends, ring, wakeup; some cells with busy polling, which does nothing, and deferral; controls; load and chains.
fn sweep(noise: u64) -> Results {
    let mut dice = Dice(noise);
    let mut cells: Vec<Cell> = Vec::new();
    let drift: Vec<f64> = (0..BLOCKS).map(|_| (0.15 * dice.normal()).exp()).collect();
    let mut add = |dice: &mut Dice, knobs: BTreeMap<String, String>, control: Option<&str>| {
        let base = match control {
            Some("udp-spin") => 4100.0,
            Some("udp-block") => 12_200.0,
            Some("packet-spin") => 2900.0,
            Some(_) => 11_500.0,
            None => middle(&knobs),
        };
        let busy = knobs.get("busy_poll").is_some_and(|v| v != "off");
        let spins = |knob: &str| knobs.get(knob).is_some_and(|v| v != "poll");
        let id = match control {
            Some(name) => name.to_owned(),
            None => knobs.values().cloned().collect::<Vec<_>>().join(","),
        };
        let own = (0.02 * dice.normal()).exp();
        let runs = (0..BLOCKS)
            .map(|block| {
                let moved = drift[block as usize] * (0.02 * dice.normal()).exp();
                let samples = samples(dice, base * own * moved, 400);
                Run {
                    block,
                    place: 0,
                    sent: samples.len() as u64,
                    received: samples.len() as u64,
                    cpu_per_packet: match (spins("forwarder_wait"), spins("prober_wait")) {
                        (true, true) => base * 2.0,
                        (false, false) => 6000.0,
                        _ => base * 1.5,
                    },
                    kernel_cpu_per_packet: 0.0,
                    joules: None,
                    samples,
                    effective: Effective {
                        unmet: if busy {
                            vec!["busy polling has no NAPI to poll".to_owned()]
                        } else {
                            Vec::new()
                        },
                        ..Effective::default()
                    },
                    failure: None,
                }
            })
            .collect();
        cells.push(Cell {
            id,
            knobs,
            control: control.map(str::to_owned),
            runs,
        });
    };
    let waits = ["spin", "call", "poll"];
    let mut turn = |dice: &mut Dice, all: [&str; 8]| {
        let names = [
            "mode",
            "forwarder_wait",
            "prober_wait",
            "need_wakeup",
            "ring",
            "busy_poll",
            "deferral",
            "interval",
        ];
        let knobs = names
            .iter()
            .zip(all)
            .map(|(n, v)| ((*n).to_owned(), v.to_owned()))
            .collect();
        add(dice, knobs, None);
    };
    for mode in ["copy", "generic"] {
        for forwarder in waits {
            for prober in waits {
                for wakeup in ["on", "off"] {
                    for ring in ["64", "2048"] {
                        turn(
                            &mut dice,
                            [mode, forwarder, prober, wakeup, ring, "off", "0/0", "0"],
                        );
                    }
                }
            }
        }
    }
    for busy in ["off", "20us/64"] {
        for deferral in ["0/0", "2/200us"] {
            // The first of these is there already.
            if (busy, deferral) != ("off", "0/0") {
                turn(
                    &mut dice,
                    ["copy", "call", "call", "on", "2048", busy, deferral, "0"],
                );
            }
        }
    }
    turn(
        &mut dice,
        ["copy", "poll", "poll", "on", "2048", "off", "0/0", "1ms"],
    );
    for control in ["udp-spin", "udp-block", "packet-spin", "packet-block"] {
        add(&mut dice, BTreeMap::new(), Some(control));
    }
    let quick = cells[0].id.clone();
    let extra = |kind: &str, at: f64, unit: &str, middle: f64, lost: u64| Extra {
        kind: kind.to_owned(),
        cell: quick.clone(),
        at,
        unit: unit.to_owned(),
        samples: samples(&mut Dice(7), middle, 200),
        counts: [200, 200 - lost],
    };
    let mut extras = vec![
        extra("load", 1.0, "packets/s", 30_000.0, 0),
        extra("load", 100_000.0, "packets/s", 5000.0, 0),
        extra("load", 900_000.0, "packets/s", 50_000.0, 90),
    ];
    for hops in 1..=5u32 {
        extras.push(extra(
            "chain",
            hops.into(),
            "forwarders",
            2000.0 + 2000.0 * f64::from(hops),
            0,
        ));
    }
    Results {
        version: 1,
        machine: vec![
            ("CPU".to_owned(), "made up <&> \"quoted\"".to_owned()),
            ("date".to_owned(), "2026-11-23".to_owned()),
        ],
        driver: "veth".to_owned(),
        kernel: "6.18.2".to_owned(),
        seed: 1,
        blocks: BLOCKS,
        seconds: 60.0,
        cells,
        pruned: Vec::new(),
        extras,
    }
}

fn best(clustering: &Clustering) -> BTreeSet<String> {
    clustering.clusters[0].members.iter().cloned().collect()
}

fn relevant(clustering: &Clustering, n: usize) -> BTreeSet<String> {
    clustering.clusters[n]
        .relevant
        .iter()
        .map(|r| format!("{}={}", r.knob, r.value))
        .collect()
}

#[test]
fn planted_clusters_and_their_parameters_are_found() {
    let results = sweep(11);
    let judgement = judge(&results, &Options::default());
    let clusters = &judgement.clustering.clusters;
    // All that spin at both ends, and nothing else: 2 modes, 4 pairs of waits, 2 wakeups, 2 rings.
    let spinning: BTreeSet<String> = results
        .cells
        .iter()
        .filter(|c| c.control.is_none())
        .filter(|c| c.knobs["forwarder_wait"] != "poll" && c.knobs["prober_wait"] != "poll")
        .filter(|c| c.knobs["busy_poll"] == "off" && c.knobs["deferral"] == "0/0")
        .map(|c| c.id.clone())
        .collect();
    assert_eq!(spinning.len(), 32);
    assert_eq!(
        best(&judgement.clustering),
        spinning,
        "{}",
        judgement.clustering.why
    );
    assert!(
        clusters.len() >= 2 && clusters.len() <= 4,
        "{}",
        judgement.clustering.why
    );
    let found = relevant(&judgement.clustering, 0);
    for word in ["forwarder_wait=not poll", "prober_wait=not poll"] {
        assert!(found.contains(word), "{found:?}");
    }
    // The slowest ones poll at one end at least, whether these are one cluster or several.
    let last = &clusters[clusters.len() - 1];
    let told = format!("{:?} {:?}", last.relevant, last.either);
    assert!(
        told.contains("prober_wait") && told.contains("poll"),
        "{told}"
    );
    // What has no effect is relevant nowhere.
    for n in 0..clusters.len() {
        for knob in [
            "ring",
            "need_wakeup",
            "mode",
            "interval",
            "deferral",
            "busy_poll",
        ] {
            let found = relevant(&judgement.clustering, n);
            assert!(!found.iter().any(|r| r.starts_with(knob)), "{found:?}");
        }
    }
    // Numbered by their medians, which are about those planted.
    assert!(clusters.windows(2).all(|w| w[0].median < w[1].median));
    assert!((clusters[0].median / 4000.0).ln().abs() < 0.3);
    assert_eq!(judgement.clustering.disorder, 0.0);
    assert!(judgement.clustering.firm);
    assert!(judgement.densities.iter().all(|curve| curve.len() == 300));
}

#[test]
fn two_sweeps_with_other_noise_agree() {
    let find = |noise| judge(&sweep(noise), &Options::default()).clustering;
    let first = find(1);
    for noise in 2..6 {
        let found = compare(&first, &find(noise));
        assert!(found.agrees(), "{found:?}");
        assert!(found.overlap >= 0.8);
    }
    // And one in which something else is quick does not.
    let mut other = sweep(3);
    for cell in other.cells.iter_mut().filter(|c| c.control.is_none()) {
        let quick = cell.knobs["ring"] == "64";
        for sample in cell.runs.iter_mut().flat_map(|run| &mut run.samples) {
            *sample = if quick { *sample / 20 } else { *sample };
        }
    }
    let other = judge(&other, &Options::default()).clustering;
    let found = compare(&first, &other);
    assert!(!found.agrees(), "{found:?}");
    let text = report::comparison(&found, ["a.json", "b.json"]);
    assert!(text.contains("differ"), "{text}");
}

#[test]
fn the_same_results_give_the_same_judgement() {
    let results = sweep(4);
    let text = |j: &Judgement| serde_json::to_string(j).expect("JSON");
    let once = text(&judge(&results, &Options::default()));
    assert_eq!(once, text(&judge(&results, &Options::default())));
}

#[test]
fn undesirable_cells_are_told_and_kept_out() {
    let mut results = sweep(5);
    let quickest = |results: &Results| {
        judge(results, &Options::default()).clustering.clusters[0].members[0].clone()
    };
    // The quickest cells lose packets, fail, do not do what they should.
    let lossy = quickest(&results);
    fn at<'a>(results: &'a mut Results, id: &str) -> &'a mut Cell {
        results.cells.iter_mut().find(|c| c.id == id).expect("cell")
    }
    for run in &mut at(&mut results, &lossy).runs {
        run.sent += 1;
    }
    let failing = quickest(&results);
    assert_ne!(failing, lossy);
    for run in &mut at(&mut results, &failing).runs[2..4] {
        run.failure = Some("the link went down".to_owned());
    }
    let unmet = quickest(&results);
    for run in &mut at(&mut results, &unmet).runs[..2] {
        run.effective.unmet = vec!["copied instead".to_owned()];
    }
    let stalled = quickest(&results);
    for run in &mut at(&mut results, &stalled).runs {
        run.samples.iter_mut().for_each(|s| *s = 600_000);
    }
    at(&mut results, &stalled)
        .knobs
        .insert("interval".to_owned(), "1ms".to_owned());
    let silent = quickest(&results);
    for run in &mut at(&mut results, &silent).runs {
        run.samples.clear();
        run.received = 0;
    }
    let judgement = judge(&results, &Options::default());
    for (id, kind, words) in [
        (&lossy, Kind::Loss, "lost 5 of 2005 packets (0.25 %)"),
        (
            &failing,
            Kind::Failed,
            "2 of 5 runs failed: the link went down",
        ),
        (&unmet, Kind::Ineffective, "copied instead (in 2 of 5 runs)"),
        (
            &stalled,
            Kind::Stall,
            "stalls: the median round trip of 600.0 us",
        ),
        (&silent, Kind::Loss, "lost 2000 of 2000 packets (100.00 %)"),
    ] {
        let cell = judgement.cells.iter().find(|c| c.id == **id).expect("cell");
        assert!(cell.kinds.contains(&kind), "{:?}", cell.undesirable);
        assert!(
            cell.undesirable.iter().any(|text| text.contains(words)),
            "{:?}",
            cell.undesirable
        );
    }
    // Deferred without anybody polling: slower than blocking sockets. Busy polling: without effect.
    let deferred: Vec<_> = judgement
        .cells
        .iter()
        .filter(|c| c.knobs.get("deferral").is_some_and(|d| d == "2/200us"))
        .collect();
    assert_eq!(deferred.len(), 2);
    assert!(deferred.iter().all(|c| c.kinds.contains(&Kind::Slow)));
    assert_eq!(judgement.undesirable[&Kind::Slow], 2);
    assert!(
        judgement
            .traps
            .iter()
            .any(|t| t.contains("did nothing in 2") && t.contains("NAPI"))
    );
    assert!(
        judgement
            .traps
            .iter()
            .any(|t| t.contains("gro_flush_timeout"))
    );
    // Neither clustered nor recommended.
    let bad: BTreeSet<&String> = judgement
        .cells
        .iter()
        .filter(|c| !c.undesirable.is_empty())
        .map(|c| &c.id)
        .collect();
    assert_eq!(bad.len(), 5 + 3);
    for cluster in &judgement.clustering.clusters {
        assert!(cluster.members.iter().all(|id| !bad.contains(id)));
    }
    for choice in &judgement.recommendation.choices {
        assert!(!bad.contains(&choice.cell) && choice.as_good.iter().all(|id| !bad.contains(id)));
    }
    // One that sends other traffic counts, and is compared with nobody.
    let other: Vec<_> = judgement
        .cells
        .iter()
        .filter(|c| c.counts() && !c.usual_traffic)
        .collect();
    assert_eq!(other.len(), 1);
}

#[test]
fn a_single_run_that_went_wrong_is_left_out_and_remarked_on() {
    let mut results = sweep(5);
    let before = judge(&results, &Options::default());
    let of = |judgement: &Judgement, id: &str| {
        let mut cells = judgement.cells.iter();
        cells.find(|c| c.id == id).expect("cell").clone()
    };
    let ids: Vec<String> = results.cells[..3].iter().map(|c| c.id.clone()).collect();
    results.cells[0].runs[1].failure = Some("queue 0 is busy".to_owned());
    results.cells[1].runs[1].effective.unmet = vec!["copied instead".to_owned()];
    results.cells[2].runs[1].sent += 50;
    for run in &mut results.cells[..2] {
        run.runs[1].samples.iter_mut().for_each(|s| *s *= 50);
    }
    let after = judge(&results, &Options::default());
    for (id, words) in ids
        .iter()
        .zip(["queue 0 is busy", "copied instead", "lost 50 of"])
    {
        let cell = of(&after, id);
        assert!(cell.counts(), "{:?}", cell.undesirable);
        assert!(
            cell.remarks.iter().any(|r| r.contains(words)),
            "{:?}",
            cell.remarks
        );
        let ratio = cell.figures.expect("figures").median
            / of(&before, id).figures.expect("figures").median;
        near_by(ratio, 1.0, 0.2);
    }
    assert_eq!(of(&after, &ids[0]).blocks.len(), 4);
    // With one block there is nothing to excuse it by.
    for cell in &mut results.cells {
        cell.runs.truncate(2);
        cell.runs.remove(0);
    }
    let after = judge(&results, &Options::default());
    for (id, kind) in ids
        .iter()
        .zip([Kind::Failed, Kind::Ineffective, Kind::Loss])
    {
        assert!(of(&after, id).kinds.contains(&kind), "{id}");
    }
}

#[test]
fn drift_of_a_block_is_taken_out() {
    let mut results = sweep(6);
    for run in results.cells.iter_mut().flat_map(|c| &mut c.runs) {
        if run.block == 1 {
            run.samples.iter_mut().for_each(|s| *s *= 3);
        }
    }
    let (cells, drift) = judge_cells(&results);
    let (before, _) = judge_cells(&sweep(6));
    let (_, usual) = judge_cells(&sweep(6));
    near_by(drift[&1] / usual[&1], 3.0, 0.1);
    for (now, then) in cells
        .iter()
        .zip(&before)
        .filter(|(c, _)| c.control.is_none())
    {
        let median = |c: &weir_lab::afxdp::statistics::Judged| c.blocks[&1].median;
        near_by(median(now) / median(then), 1.0, 0.1);
    }
}

#[track_caller]
fn near_by(a: f64, b: f64, share: f64) {
    assert!((a / b - 1.0).abs() < share, "{a} and not about {b}");
}

#[test]
fn all_features_let_single_preemptions_decide() {
    let (cells, _) = judge_cells(&sweep(11));
    let usual = cluster(&cells, Features::Calm, 1, None);
    let all = cluster(&cells, Features::All, 1, Some(usual.clusters.len()));
    let at = |c: &Clustering, k: usize| c.tried.iter().find(|t| t.k == k).map(|t| t.silhouette);
    let k = usual.clusters.len();
    assert!(
        at(&all, k) < at(&usual, k),
        "{:?} {:?}",
        at(&all, k),
        at(&usual, k)
    );
    assert_eq!(all.features.names().len(), 7);
}

#[test]
fn planted_effects_are_found() {
    let judgement = judge(&sweep(7), &Options::default());
    let find = |knob: &str, to: &str| {
        judgement
            .effects
            .iter()
            .find(|e| e.knob == knob && e.to == to)
            .unwrap_or_else(|| panic!("no effect of {knob}"))
    };
    let polls = find("prober_wait", "poll").median.expect("matches");
    // Spin or call at the forwarder: 9/4; poll there: 11.5/8.
    near_by(polls.ratio, (2.25f64 * 2.25 * 1.4375).powf(1.0 / 3.0), 0.05);
    assert!(polls.is_clear());
    let ring = find("ring", "64").median.expect("matches");
    near_by(ring.ratio, 1.0, 0.02);
    assert_eq!(find("ring", "64").matches, 36);
    let deferral = find("deferral", "2/200us");
    assert_eq!((deferral.matches, deferral.undesirable), (0, [0, 1, 1]));
    assert!(deferral.median.is_none());
    let pair = judgement
        .pair_effects
        .iter()
        .find(|p| {
            p.first[0] == "forwarder_wait"
                && p.second[0] == "prober_wait"
                && p.first[2] == "poll"
                && p.second[2] == "poll"
        })
        .expect("waits at both ends");
    near_by(pair.median.ratio, 4.0 * 11.5 / 8.0 / 9.0, 0.05);
    // Load and chains.
    let load = &judgement.loads[0];
    assert_eq!(load.loss_free, Some(100_000.0));
    near_by(load.spread.expect("two loads"), 6.0, 0.1);
    near_by(
        judgement.chains[0].per_hop.expect("five places"),
        2000.0,
        0.05,
    );
    // Controls, in the same blocks.
    let against = |name: &str| {
        let found = judgement.controls.iter().find(|a| a.control == name);
        found.expect("control").median
    };
    near_by(against("udp-block"), 4.0 / 12.2, 0.1);
    near_by(against("udp-spin"), 4.0 / 4.1, 0.1);
}

#[test]
fn recommendations_follow_their_goals_and_keep_what_is_usual() {
    let results = sweep(8);
    let judgement = judge(&results, &Options::default());
    let choice = |goal: Goal| {
        let choices = &judgement.recommendation.choices;
        choices.iter().find(|c| c.goal == goal).expect("a choice")
    };
    let latency = choice(Goal::Latency);
    assert!(latency.unusual.is_empty(), "{:?}", latency.unusual);
    assert!(!latency.as_good.is_empty());
    assert!(!latency.settings.contains_key("interval"));
    let cpu = choice(Goal::Cpu);
    assert_eq!(
        (
            &cpu.settings["forwarder_wait"],
            &cpu.settings["prober_wait"]
        ),
        (&"poll".to_owned(), &"poll".to_owned())
    );
    assert_eq!(choice(Goal::Throughput).cell, results.cells[0].id);
    for name in [
        "cluster",
        "median",
        "p99",
        "cpu",
        "load",
        "against_udp_block",
    ] {
        assert!(latency.evidence.iter().any(|(n, _)| n == name), "{name}");
    }
    let mut without = results;
    without.extras.clear();
    let without = judge(&without, &Options::default()).recommendation;
    assert_eq!(without.missing.len(), 1);
    assert_eq!(without.missing[0].0, Goal::Throughput);
}

#[test]
fn profiles_are_written_read_and_used_under_flags() {
    let judgement = judge(&sweep(8), &Options::default());
    let profile = Profile::of(&judgement).expect("choices");
    let folder = std::env::temp_dir().join(format!("weir-profile-{}", std::process::id()));
    let path = folder.join("weir").join("afxdp.toml");
    profile.write(&path).expect("written");
    let read = Profile::read(&path).expect("read");
    assert_eq!(read, profile);
    assert_eq!(read.machine["CPU"], "made up <&> \"quoted\"");
    assert_eq!(read.date.as_deref(), Some("2026-11-23"));
    let (found, _) = Profile::measured(&[folder.join("none.toml"), path.clone()]).expect("there");
    assert_eq!(found, path);
    assert!(matches!(
        Profile::measured(&[folder.join("none.toml")]),
        Err(ProfileError::None { .. })
    ));
    for (text, words) in [
        ("version = 2\nkernel = \"\"\ndriver = \"\"\n", "version"),
        ("version = 1\nkernel = 6\ndriver = \"\"\n", "kernel"),
        (
            "version = 1\nkernel = \"\"\ndriver = \"\"\nsetings = 1\n",
            "setings",
        ),
    ] {
        std::fs::write(&path, text).expect("written");
        let error = Profile::read(&path).expect_err("refused").to_string();
        assert!(
            error.contains(words) && error.contains("no profile"),
            "{error}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("removed");

    let mut entry = read.entry(Goal::Cpu).expect("for CPU").clone();
    for (knob, value) in [
        ("mode", "generic"),
        ("need_wakeup", "off"),
        ("busy_poll", "20us/8"),
        ("ring", "64"),
        ("frame_size", "2048"),
        ("priority", "5"),
        ("threaded", "on"),
        ("queues", "1"),
        ("prober_wait", "call"),
    ] {
        entry.settings.insert(knob.to_owned(), value.to_owned());
    }
    let mut setup = Setup::new("x");
    let left = entry
        .apply(Role::Forwarder, Given::default(), &mut setup)
        .expect("applied");
    assert_eq!(left, ["threaded on"]);
    assert!(setup.generic && !setup.socket.need_wakeup);
    assert_eq!((setup.wait, setup.priority), (Wait::Poll, Some(5)));
    let busy = setup.socket.busy_poll.expect("busy polling");
    assert_eq!((busy.micros, busy.budget, busy.prefer), (20, 8, true));
    let rings = |s: &Setup| [s.socket.rx, s.socket.tx, s.socket.fill, s.socket.completion];
    assert_eq!((rings(&setup), setup.umem.frame_size), ([64; 4], 2048));
    // The prober's own wait; and flags win.
    let mut setup = Setup::new("x");
    setup.socket.mode = Mode::ZeroCopy;
    setup.socket.tx = 512;
    let given = Given {
        mode: true,
        busy_poll: true,
        rings: [false, true, false, false],
        need_wakeup: true,
        frame_size: true,
        priority: true,
        wait: false,
    };
    entry
        .apply(Role::Prober, given, &mut setup)
        .expect("applied");
    assert_eq!(
        (setup.wait, setup.socket.mode),
        (Wait::SpinCalling, Mode::ZeroCopy)
    );
    assert_eq!(rings(&setup), [64, 512, 64, 64]);
    assert!(!setup.generic && setup.socket.need_wakeup && setup.socket.busy_poll.is_none());
    assert_eq!((setup.umem.frame_size, setup.priority), (4096, None));
    entry.settings.insert("mode".to_owned(), "magic".to_owned());
    let error = entry
        .apply(Role::Prober, given, &mut setup)
        .expect_err("unknown");
    assert!(error.to_string().contains("mode = \"magic\""), "{error}");
}

#[test]
fn profiles_that_may_not_hold_any_more_say_so() {
    let profile = Profile::of(&judge(&sweep(8), &Options::default())).expect("choices");
    let veth = [("v0".to_owned(), "veth".to_owned())];
    assert!(profile.doubts("6.18.2", &veth).is_empty());
    assert!(profile.doubts("6.18.2", &[]).is_empty());
    for (kernel, words) in [
        ("6.18.10", "older than"),
        ("7.0.1", "older than"),
        ("6.6.100", "newer than"),
        ("6.18.2-cloud", "another build than"),
    ] {
        let doubts = profile.doubts(kernel, &veth);
        assert_eq!(doubts.len(), 1);
        assert!(
            doubts[0].contains(words) && doubts[0].contains(kernel),
            "{doubts:?}"
        );
        assert!(doubts[0].contains("weir lab afxdp --recommend"));
    }
    let others = [
        ("e0".to_owned(), "virtio_net".to_owned()),
        ("lo".to_owned(), String::new()),
    ];
    let doubts = profile.doubts("6.18.2", &others);
    assert_eq!(doubts.len(), 1);
    assert!(doubts[0].contains("driver veth") && doubts[0].contains("e0: virtio_net"));
}

#[test]
fn profiles_are_looked_for_where_they_are_written() {
    let set = |pairs: &'static [(&str, &str)]| {
        move |name: &str| {
            let found = pairs.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| std::ffi::OsString::from(*v))
        }
    };
    let own = Path::new("/x/weir/afxdp.toml");
    assert_eq!(
        profile::places(set(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]))[0],
        own
    );
    let home = Path::new("/h/.config/weir/afxdp.toml");
    assert_eq!(
        profile::places(set(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]))[0],
        home
    );
    assert_eq!(profile::places(set(&[])), [Path::new(profile::MACHINE)]);
    let write = |root, pairs| profile::place_to_write(root, set(pairs));
    assert_eq!(
        write(true, &[]).expect("root's"),
        Path::new(profile::MACHINE)
    );
    assert_eq!(write(false, &[("HOME", "/h")]).expect("own"), home);
    assert!(matches!(write(false, &[]), Err(ProfileError::Nowhere)));
}

/// Splits a line of RFC 4180.
fn fields(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut quoted, mut chars) = (false, line.chars().peekable());
    while let Some(c) = chars.next() {
        let last = all.last_mut().expect("one");
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                last.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(String::new()),
            c => last.push(c),
        }
    }
    all
}

#[test]
fn the_table_of_cells_reads_back() {
    let judgement = judge(&sweep(5), &Options::default());
    let text = report::csv(&judgement);
    let mut lines = text.split("\r\n").filter(|l| !l.is_empty()).map(fields);
    let head = lines.next().expect("head");
    let at = |name: &str| head.iter().position(|h| h == name).expect("column");
    let rows: Vec<Vec<String>> = lines.collect();
    assert_eq!(rows.len(), judgement.cells.len());
    for (row, cell) in rows.iter().zip(&judgement.cells) {
        assert_eq!(row.len(), head.len());
        assert_eq!(row[at("cell")], cell.id);
        assert_eq!(row[at("undesirable")], cell.undesirable.join("; "));
        let figures = cell.figures.expect("figures");
        for (column, value) in [
            ("median_ns", figures.median),
            ("p99.9_ns", figures.p999),
            ("deviation_ns", figures.deviation),
        ] {
            assert_eq!(row[at(column)].parse::<f64>().expect("number"), value);
        }
        for (knob, value) in &cell.knobs {
            assert_eq!(row[at(&format!("knob.{knob}"))], *value);
        }
    }
}

/// Whether text is one well-formed element: tags nest, attributes are quoted, `<` and `&` are escaped.
fn well_formed(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let before = &rest[..start];
        for (at, _) in before.match_indices('&') {
            let entity = &before[at..];
            let known = ["&amp;", "&lt;", "&gt;", "&quot;"];
            if !known.iter().any(|e| entity.starts_with(e)) {
                return Err(format!("a bare & in {before:?}"));
            }
        }
        if open.is_empty() && !before.trim().is_empty() {
            return Err(format!("text outside: {before:?}"));
        }
        let end = rest[start..].find('>').ok_or("an open tag")? + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if !tag.matches('"').count().is_multiple_of(2) || tag.contains('<') {
            return Err(format!("quotes in <{tag}>"));
        }
        let name = tag
            .trim_matches('/')
            .split_whitespace()
            .next()
            .unwrap_or("");
        for attribute in tag.split_whitespace().skip(1).filter(|a| a.contains('=')) {
            if !attribute.contains("=\"") {
                return Err(format!("an attribute without quotes in <{tag}>"));
            }
        }
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes another"));
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    match (open.is_empty(), rest.trim().is_empty()) {
        (true, true) => Ok(()),
        _ => Err(format!("left: {open:?} {rest:?}")),
    }
}

#[test]
fn the_page_is_whole_and_its_plots_are_xml() {
    for noise in [5, 6] {
        let mut results = sweep(noise);
        results.cells[3].id = "a<b & \"c\"".to_owned();
        let judgement = judge(&results, &Options::default());
        let page = report::html(&judgement);
        let body = page.strip_prefix("<!DOCTYPE html>\n").expect("a page");
        well_formed(body).expect("well-formed");
        let plots: Vec<&str> = page
            .match_indices("<svg ")
            .map(|(at, _)| {
                let end = page[at..].find("</svg>").expect("closed") + at + 6;
                &page[at..end]
            })
            .collect();
        assert_eq!(plots.len(), 6);
        for plot in plots {
            well_formed(plot).expect("well-formed");
            assert!(!plot.contains("NaN") && !plot.contains("inf"), "{plot}");
        }
        for words in [
            "made up &lt;&amp;&gt;",
            "Busy polling was asked for",
            "settings that did not take effect",
            "Density of round trips",
            "a&lt;b &amp;",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert!(
            !page.contains("http://") || page.matches("http://").count() == 6,
            "nothing is fetched"
        );
    }
}

#[test]
fn files_are_written_and_results_read_back() {
    let results = sweep(9);
    let folder = std::env::temp_dir().join(format!("weir-judge-{}", std::process::id()));
    let judgement = judge(&results, &Options::default());
    let files = report::write_report(&judgement, &folder).expect("written");
    assert_eq!(files.len(), 3);
    let data = std::fs::read_to_string(folder.join("judgement.json")).expect("read");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    assert_eq!(data["clustering"]["clusters"][0]["number"], 0);
    let path = folder.join("results.json");
    std::fs::write(&path, serde_json::to_string(&results).expect("JSON")).expect("written");
    let again = judge(&read_results(&path).expect("read"), &Options::default());
    assert_eq!(report::csv(&again), report::csv(&judgement));
    let mut twice = results.clone();
    twice.cells.push(twice.cells[0].clone());
    let mut newer = results;
    newer.version = 9;
    for (broken, words) in [(twice, "twice"), (newer, "version is 9")] {
        std::fs::write(&path, serde_json::to_string(&broken).expect("JSON")).expect("written");
        let error = read_results(&path).expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
    std::fs::write(&path, "{\"cells\": 3}").expect("written");
    assert!(read_results(&path).is_err());
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(read_results(&path).is_err());
}

#[test]
fn sweeps_of_next_to_nothing_are_judged() {
    let mut results = sweep(2);
    results.cells.truncate(1);
    results.extras.clear();
    let judgement = judge(&results, &Options::default());
    assert_eq!(judgement.clustering.clusters.len(), 1);
    assert!(report::html(&judgement).ends_with("</body></html>\n"));
    results.cells.clear();
    let judgement = judge(&results, &Options::default());
    assert!(judgement.clustering.clusters.is_empty());
    assert_eq!(judgement.recommendation.missing.len(), 3);
    assert!(Profile::of(&judgement).is_none());
    assert!(!report::summary(&judgement).is_empty());
    assert!(report::html(&judgement).ends_with("</body></html>\n"));
}

#[test]
fn times_of_knobs_are_read() {
    for (text, ns) in [
        ("0", Some(0.0)),
        ("100us", Some(1e5)),
        ("1ms", Some(1e6)),
        ("1s", Some(1e9)),
        ("5", None),
        ("soon", None),
    ] {
        assert_eq!(nanoseconds(text), ns, "{text}");
    }
}
