//! Quantiles, densities and times.

use weir_lab::afxdp::density::{Bandwidth, Density};
use weir_lab::afxdp::statistics::{Statistics, quantile};

use super::golden::{floats, golden};
use super::near;

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
