//! Judging sweeps of AF_XDP: figures, densities and clusters agree with numpy, SciPy and scikit-learn (fixtures/afxdp, with the script that made them), and what is planted in
//! made-up results is found: clusters, relevant parameters, undesirable cells, effects, recommendations. No kernel, no privileges.

mod clusters;
mod figures;
mod golden;
mod judgements;
mod made_up;
mod profiles;
mod reports;

#[track_caller]
fn near(a: f64, b: f64, what: &str) {
    assert!(
        (a - b).abs() <= 1e-9 * b.abs().max(1.0),
        "{what}: {a} and not {b}"
    );
}

#[track_caller]
fn near_by(a: f64, b: f64, share: f64) {
    assert!((a / b - 1.0).abs() < share, "{a} and not about {b}");
}
