//! How round trips are distributed: densities by Gaussian kernels, with the bandwidths of Scott and of Silverman, as SciPy's `gaussian_kde` has them.
//!
//! SciPy's kernels are as wide as the data's deviation (divided by n - 1) times a factor of n alone: n^(-1/5) by Scott, (3n/4)^(-1/5) by Silverman.

use serde::Serialize;

/// How wide kernels are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bandwidth {
    /// n^(-1/5).
    #[default]
    Scott,
    /// (3n/4)^(-1/5).
    Silverman,
}

impl Bandwidth {
    /// Of so many values.
    pub fn factor(self, n: usize) -> f64 {
        match self {
            Bandwidth::Scott => (n as f64).powf(-0.2),
            Bandwidth::Silverman => (n as f64 * 0.75).powf(-0.2),
        }
    }
}

/// A density estimate.
#[derive(Clone, Debug)]
pub struct Density {
    data: Vec<f64>,
    width: f64,
}

impl Density {
    /// Of data with at least two different values; else none: one value has no density.
    pub fn new(data: Vec<f64>, bandwidth: Bandwidth) -> Option<Density> {
        let n = data.len() as f64;
        if data.len() < 2 {
            return None;
        }
        let mean = data.iter().sum::<f64>() / n;
        let variance = data.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let width = variance.sqrt() * bandwidth.factor(data.len());
        (width > 0.0 && width.is_finite()).then_some(Density { data, width })
    }

    /// Its value at a place.
    pub fn at(&self, x: f64) -> f64 {
        let sum: f64 = self
            .data
            .iter()
            .map(|v| (-0.5 * ((x - v) / self.width).powi(2)).exp())
            .sum();
        sum / (self.data.len() as f64 * self.width * (2.0 * std::f64::consts::PI).sqrt())
    }

    /// Its values at places that far apart, from and to included.
    pub fn curve(&self, from: f64, to: f64, points: usize) -> Vec<(f64, f64)> {
        (0..points)
            .map(|n| from + (to - from) * n as f64 / (points.max(2) - 1) as f64)
            .map(|x| (x, self.at(x)))
            .collect()
    }
}

/// At most so many values that stand for all: of the sorted ones every so many-th, so that quantiles stay.
pub fn thin(mut values: Vec<f64>, most: usize) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    if values.len() <= most {
        return values;
    }
    (0..most)
        .map(|n| values[(2 * n + 1) * values.len() / (2 * most)])
        .collect()
}
