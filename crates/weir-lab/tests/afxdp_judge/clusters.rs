//! Clusters: those of scikit-learn, and those that are planted, with their parameters.

use std::collections::BTreeSet;

use weir_lab::afxdp::cluster::{
    Clustering, calinski_harabasz, compare, jaccard, kmeans, scale, silhouette,
};
use weir_lab::afxdp::judgement::{Judgement, Options, judge};
use weir_lab::afxdp::recommend::changed;
use weir_lab::afxdp::report;

use super::golden::{floats, golden, rows};
use super::made_up::sweep;
use super::near;

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
    let words = clusters[0].in_words();
    assert!(
        words.ends_with("exactly the cells with forwarder_wait not poll and prober_wait not poll"),
        "{words}"
    );
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
    let find = |noise| judge(&sweep(noise), &Options::default());
    let Judgement {
        clustering: first,
        recommendation: advice,
        ..
    } = find(1);
    for noise in 2..6 {
        let again = find(noise);
        // Noise does not choose.
        assert_eq!(changed(&advice, &again.recommendation), []);
        let found = compare(&first, &again.clustering);
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
    let other = judge(&other, &Options::default());
    let found = compare(&first, &other.clustering);
    assert!(!found.agrees(), "{found:?}");
    let moved = changed(&advice, &other.recommendation);
    let text = report::comparison(&found, &moved, ["a.json", "b.json"]);
    assert!(text.contains("differ"), "{text}");
    assert!(
        text.contains("\nadvice for latency changed from ") && !text.contains("as good"),
        "{text}"
    );
    let text = report::comparison(&found, &[], ["a.json", "b.json"]);
    assert!(text.ends_with("advice is the same\n"), "{text}");
}
