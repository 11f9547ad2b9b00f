//! Plots as SVG: lines over sizes, the shape of Figure 7 of the mmb paper and of Figures 3 and 5 of the XDP paper, and bars, the shape of Figure 6 of the
//! former.
//!
//! Written by hand: what is needed is two axes and a legend. Axes of sizes are logarithmic, those of costs, too; those of rates, cores and percents are linear.

use std::fmt::Write as _;

use super::matrix::{Matrix, split};
use super::report::{Outcome, short};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 160.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Told apart also without colours, by the markers' shapes.
pub(crate) const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c8c00",
];

impl Outcome {
    /// File names and contents: one plot for each table of figures, and one of the forwarding baselines.
    pub fn plots(&self) -> Vec<(String, String)> {
        let mut plots: Vec<(String, String)> = Matrix::all(self)
            .iter()
            .filter(|m| m.sizes.iter().filter(|s| s.parse::<f64>().is_ok()).count() > 1)
            .map(|m| {
                let name = format!("{}-{}-{}", self.bench, m.group, m.kind).replace('.', "-");
                (format!("{name}.svg"), lines(m))
            })
            .collect();
        let bars: Vec<(String, f64)> = self
            .figures
            .iter()
            .filter(|f| f.name.starts_with("bandwidth.") && split(&f.name).is_none())
            .filter(|f| f.unit == "Gbit/s")
            .filter_map(|f| Some((f.name.split('.').nth(1)?.to_owned(), f.value)))
            .collect();
        if !bars.is_empty() {
            let name = format!("{}-bandwidth-baselines.svg", self.bench);
            plots.push((name, columns("Forwarding baselines", "Gbit/s", &bars)));
        }
        plots
    }
}

/// Lines over sizes. Sizes that are no numbers above 0 are left out.
fn lines(matrix: &Matrix) -> String {
    let sizes: Vec<Option<f64>> = matrix
        .sizes
        .iter()
        .map(|s| s.parse::<f64>().ok().filter(|n| *n >= 1.0))
        .collect();
    let values = matrix.cells.iter().flatten().flatten().map(|(v, _)| *v);
    // What a flood left of a service, and what cores and CPU time gave, is read from 0.
    let over_rates = ["flood.", "load.", "cores."]
        .iter()
        .any(|part| matrix.group.starts_with(part));
    let from_zero = over_rates || matrix.unit == "Gbit/s";
    let high = values.clone().fold(1.0, f64::max);
    let low = values.filter(|v| *v > 0.0).fold(high, f64::min);
    let known = || sizes.iter().flatten().copied();
    let x_axis = match over_rates {
        true => Axis {
            from: LEFT,
            to: WIDTH - RIGHT,
            ..Axis::linear(known().fold(1.0, f64::max))
        },
        false => Axis {
            low: known().fold(f64::INFINITY, f64::min).log10().floor(),
            high: known().fold(1.0, f64::max).log10().ceil(),
            from: LEFT,
            to: WIDTH - RIGHT,
            logarithmic: true,
        },
    };
    let y_axis = match from_zero {
        // The papers': from 0.
        true => Axis::linear(high),
        false => Axis {
            low: low.log10().floor(),
            high: high.log10().ceil(),
            from: HEIGHT - BOTTOM,
            to: TOP,
            logarithmic: true,
        },
    };
    let mut text = open(&format!("{} {}", matrix.group, matrix.kind));
    grid(&mut text, &y_axis, true);
    grid(&mut text, &x_axis, false);
    let sizes_are = match matrix.group.as_str() {
        "flood.tcp" => {
            "flood offered, thousand packets/s (the last one: all that the generator has)"
        }
        group if group.starts_with("load.") => "offered, thousand packets/s",
        group if group.starts_with("cores.") => "cores",
        "testrun.chain" => "functions in a row",
        "live.prefixes" => "prefixes",
        group if group.ends_with(".masks") => "masks",
        _ => "rules",
    };
    label(&mut text, sizes_are, matrix.unit);
    for (n, (series, cells)) in matrix.series.iter().zip(&matrix.cells).enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let points: Vec<(f64, f64)> = sizes
            .iter()
            .zip(cells)
            .filter_map(|(x, cell)| Some(((*x)?, cell.as_ref()?.0)))
            .filter(|(_, value)| from_zero || *value > 0.0)
            .map(|(x, value)| (x_axis.at(x), y_axis.at(value)))
            .collect();
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            text,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            path.join(" ")
        );
        for (x, y) in points {
            marker(&mut text, n, x, y, colour);
        }
        let y = TOP + 10.0 + 18.0 * n as f64;
        marker(&mut text, n, WIDTH - RIGHT + 16.0, y, colour);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT + 26.0,
            y + 4.0,
            escape(series)
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Bars with their values.
fn columns(title: &str, unit: &str, bars: &[(String, f64)]) -> String {
    let axis = Axis::linear(bars.iter().map(|(_, v)| *v).fold(1.0, f64::max));
    let mut text = open(title);
    grid(&mut text, &axis, true);
    label(&mut text, "", unit);
    let step = (WIDTH - LEFT - RIGHT) / bars.len() as f64;
    for (n, (name, value)) in bars.iter().enumerate() {
        let (x, y) = (LEFT + step * (n as f64 + 0.15), axis.at(*value));
        let _ = writeln!(
            text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
            step * 0.7,
            axis.at(0.0) - y,
            COLOURS[n % COLOURS.len()]
        );
        let middle = x + step * 0.35;
        let _ = writeln!(
            text,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y - 4.0,
            short(*value)
        );
        let _ = writeln!(
            text,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\">{}</text>",
            HEIGHT - BOTTOM + 16.0,
            escape(name)
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Maps values to pixels. Of a logarithmic axis the ends are exponents of 10.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Axis {
    /// From 0, upwards, with room above the highest value.
    fn linear(highest: f64) -> Axis {
        Axis {
            low: 0.0,
            high: highest * 1.1,
            from: HEIGHT - BOTTOM,
            to: TOP,
            logarithmic: false,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic {
            value.log10()
        } else {
            value
        };
        let span = (self.high - self.low).max(1e-9);
        self.from + (value - self.low) / span * (self.to - self.from)
    }

    /// Values to mark.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            return (self.low as i32..=self.high as i32)
                .map(|e| 10f64.powi(e))
                .collect();
        }
        let step = 10f64.powf((self.high / 4.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|n| n * step)
            .into_iter()
            .find(|s| self.high / s <= 6.0)
            .unwrap_or(step * 10.0);
        (0..)
            .map(|n| f64::from(n) * step)
            .take_while(|v| *v <= self.high)
            .collect()
    }
}

fn open(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>\n",
        escape(title)
    )
}

fn grid(text: &mut String, axis: &Axis, horizontal: bool) {
    for tick in axis.ticks() {
        let at = axis.at(tick);
        let (x0, y0, x1, y1) = match horizontal {
            true => (LEFT, at, WIDTH - RIGHT, at),
            false => (at, TOP, at, HEIGHT - BOTTOM),
        };
        let _ = writeln!(
            text,
            "<line x1=\"{x0:.1}\" y1=\"{y0:.1}\" x2=\"{x1:.1}\" y2=\"{y1:.1}\" stroke=\"#dddddd\"/>"
        );
        let (x, y, anchor) = match horizontal {
            true => (LEFT - 6.0, at + 4.0, "end"),
            false => (at, HEIGHT - BOTTOM + 16.0, "middle"),
        };
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{tick}</text>"
        );
    }
}

fn label(text: &mut String, below: &str, beside: &str) {
    let (x, y) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0);
    let _ = writeln!(
        text,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
        escape(below)
    );
    let y = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = writeln!(
        text,
        "<text x=\"16\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {y:.1})\">{}</text>",
        escape(beside)
    );
}

pub(crate) fn marker(text: &mut String, n: usize, x: f64, y: f64, colour: &str) {
    let _ = match n % 3 {
        0 => writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
        ),
        1 => writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"{colour}\"/>",
            x - 4.0,
            y - 4.0
        ),
        _ => writeln!(
            text,
            "<path d=\"M{:.1} {:.1}l5 9h-10z\" fill=\"{colour}\"/>",
            x,
            y - 5.0
        ),
    };
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::measure::Samples;
    use super::super::report::Figure;
    use super::*;

    #[test]
    fn a_plot_has_a_line_for_each_series() {
        let mut outcome = Outcome::new("test", true);
        for (name, value) in [
            ("live.tuples.weir.10.pass", 5.0),
            ("live.tuples.weir.100.pass", 6.0),
            ("live.tuples.a<b.10.pass", 50.0),
        ] {
            outcome
                .figures
                .push(Figure::new(name, "ns/packet", Samples(vec![value])));
        }
        for (name, value) in [("bandwidth.direct", 30.0), ("bandwidth.forwarding", 20.0)] {
            outcome
                .figures
                .push(Figure::new(name, "Gbit/s", Samples(vec![value])));
        }
        let plots = outcome.plots();
        let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["test-live-tuples-pass.svg", "test-bandwidth-baselines.svg"]
        );
        assert!(plots.iter().all(|(_, text)| !text.contains("NaN")));
        assert_eq!(plots[0].1.matches("<polyline").count(), 2);
        assert!(plots[0].1.contains("a&lt;b") && !plots[0].1.contains("NaN"));
        assert_eq!(plots[1].1.matches("<rect x").count(), 2);
    }

    #[test]
    fn floods_are_plotted_from_zero() {
        let mut outcome = Outcome::new("ddos", true);
        for (rate, value) in [(1, 60_000.0), (1000, 30_000.0), (20_000, 0.0)] {
            let name = format!("flood.tcp.none.{rate}.transactions");
            outcome
                .figures
                .push(Figure::new(name, "1/s", Samples(vec![value])));
        }
        let plots = outcome.plots();
        assert_eq!(plots[0].0, "ddos-flood-tcp-transactions.svg");
        // A service that lost everything is on the axis, not left out.
        let floor = format!("{:.1}", HEIGHT - BOTTOM);
        let line = plots[0].1.lines().find(|l| l.starts_with("<polyline"));
        assert!(
            line.is_some_and(|l| l.contains(&format!(",{floor}\""))),
            "{line:?}"
        );
    }

    #[test]
    fn axes_map_their_ends_to_the_edges() {
        let axis = Axis::linear(40.0);
        assert_eq!(axis.at(0.0), HEIGHT - BOTTOM);
        assert!((axis.at(44.0) - TOP).abs() < 1e-9);
        assert_eq!(axis.ticks()[..3], [0.0, 10.0, 20.0]);
    }
}
