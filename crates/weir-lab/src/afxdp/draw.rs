//! Plots of a judgement, and of the history of the record, as SVG: curves, points, and effects with their intervals. Axes of times and quotients are logarithmic, with marks at 1, 2 and 5.

use std::fmt::Write as _;

use crate::bench::plot::{COLOURS, escape, marker};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// From values to pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    /// As they are.
    Linear,
    /// Their logarithms.
    Logarithmic,
}

/// An axis.
pub(crate) struct Axis {
    pub(crate) title: String,
    pub(crate) scale: Scale,
}

impl Axis {
    pub(crate) fn new(title: &str, scale: Scale) -> Axis {
        Axis {
            title: title.to_owned(),
            scale,
        }
    }
}

/// What to draw of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A line, and what is below it shaded.
    Area,
    /// A line with a mark at each point.
    Line,
    /// Marks.
    Points,
}

/// Values with a name; colour and mark go by its place.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

struct Placed {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Placed {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Placed {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| shown(scale, *v)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        (low, high) = match scale {
            Scale::Logarithmic => (low / 1.1, high * 1.1),
            Scale::Linear => (low.min(0.0), if high > 0.0 { high * 1.08 } else { 1.0 }),
        };
        Placed {
            scale,
            low,
            high,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let rough = (self.high - self.low) / 5.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .map(|n| n * power)
                    .into_iter()
                    .find(|step| *step >= rough)
                    .unwrap_or(power * 10.0);
                let first = (self.low / step).ceil() as i64;
                (first..)
                    .map(|n| n as f64 * step)
                    .take_while(|v| *v <= self.high)
                    .collect()
            }
            Scale::Logarithmic => {
                let decades = (self.low.log10().floor() as i32)..=(self.high.log10().ceil() as i32);
                let many = (self.high / self.low).log10() > 4.0;
                let parts: &[f64] = if many { &[1.0] } else { &[1.0, 2.0, 5.0] };
                decades
                    .flat_map(|e| parts.iter().map(move |n| n * 10f64.powi(e)))
                    .filter(|v| *v >= self.low && *v <= self.high)
                    .collect()
            }
        }
    }
}

fn shown(scale: Scale, value: f64) -> bool {
    match scale {
        Scale::Linear => value.is_finite(),
        Scale::Logarithmic => value.is_finite() && value > 0.0,
    }
}

/// A plot of series, with a legend. Values that an axis cannot show are left out.
pub(crate) fn plot(title: &str, x: &Axis, y: &Axis, shape: Shape, all: &[Series]) -> String {
    let legend = all
        .iter()
        .map(|s| s.name.chars().count())
        .max()
        .unwrap_or(0);
    // About 7 pixels a letter.
    let right = (legend as f64 * 7.0 + 40.0).clamp(40.0, 330.0);
    let points = || all.iter().flat_map(|s| &s.points);
    let across = Placed::new(x.scale, points().map(|p| p.0), LEFT, WIDTH - right);
    let up = Placed::new(y.scale, points().map(|p| p.1), HEIGHT - BOTTOM, TOP);
    let mut text = open(title, HEIGHT);
    rows(&mut text, &up, WIDTH - right);
    columns(&mut text, &across, HEIGHT - BOTTOM);
    titles(&mut text, x, y, WIDTH - right);
    for (n, series) in all.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let placed: Vec<(f64, f64)> = series
            .points
            .iter()
            .filter(|p| shown(x.scale, p.0) && shown(y.scale, p.1))
            .map(|p| (across.at(p.0), up.at(p.1)))
            .collect();
        let path: Vec<String> = placed
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        if shape == Shape::Area && !placed.is_empty() {
            let floor = up.at(0.0);
            let (first, last) = (placed[0].0, placed[placed.len() - 1].0);
            let _ = writeln!(
                text,
                "<polygon fill=\"{colour}\" fill-opacity=\"0.15\" points=\"{first:.1},{floor:.1} {} {last:.1},{floor:.1}\"/>",
                path.join(" ")
            );
        }
        if shape != Shape::Points && !placed.is_empty() {
            let _ = writeln!(
                text,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
                path.join(" ")
            );
        }
        if shape != Shape::Area {
            for (x, y) in placed {
                marker(&mut text, n, x, y, colour);
            }
        }
        let y = TOP + 10.0 + 18.0 * n as f64;
        marker(&mut text, n, WIDTH - right + 16.0, y, colour);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - right + 26.0,
            y + 4.0,
            escape(&series.name)
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Quotients with intervals, a row each; those that leave out 1 are filled.
pub(crate) fn forest(title: &str, below: &str, rows: &[(String, f64, [f64; 2])]) -> String {
    const STEP: f64 = 20.0;
    const NAMES: f64 = 330.0;
    let height = TOP + BOTTOM + STEP * rows.len().max(1) as f64;
    let ends = rows.iter().flat_map(|(_, _, ends)| *ends).chain([0.9, 1.1]);
    let across = Placed::new(Scale::Logarithmic, ends, NAMES, WIDTH - 30.0);
    let mut text = open(title, height);
    columns(&mut text, &across, height - BOTTOM);
    let one = across.at(1.0);
    let _ = writeln!(
        text,
        "<line x1=\"{one:.1}\" y1=\"{TOP}\" x2=\"{one:.1}\" y2=\"{:.1}\" stroke=\"#000000\"/>",
        height - BOTTOM
    );
    for (n, (name, ratio, [low, high])) in rows.iter().enumerate() {
        let y = TOP + STEP * (n as f64 + 0.5);
        let (a, b, x) = (across.at(*low), across.at(*high), across.at(*ratio));
        let fill = if *low > 1.0 || *high < 1.0 {
            COLOURS[0]
        } else {
            "white"
        };
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <line x1=\"{a:.1}\" y1=\"{y:.1}\" x2=\"{b:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"2\"/>\n\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{}\"/>",
            NAMES - 10.0,
            y + 4.0,
            escape(name),
            COLOURS[0],
            COLOURS[0]
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n</svg>",
        (NAMES + WIDTH) / 2.0,
        height - 12.0,
        escape(below)
    );
    text
}

fn open(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>\n",
        escape(title)
    )
}

fn rows(text: &mut String, axis: &Placed, to: f64) {
    for tick in axis.ticks() {
        let y = axis.at(tick);
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            number(tick)
        );
    }
}

fn columns(text: &mut String, axis: &Placed, bottom: f64) {
    for tick in axis.ticks() {
        let x = axis.at(tick);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            number(tick)
        );
    }
}

fn titles(text: &mut String, x: &Axis, y: &Axis, to: f64) {
    let (across, up) = ((LEFT + to) / 2.0, (TOP + HEIGHT - BOTTOM) / 2.0);
    let _ = writeln!(
        text,
        "<text x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"16\" y=\"{up:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {up:.1})\">{}</text>",
        HEIGHT - 12.0,
        escape(&x.title),
        escape(&y.title)
    );
}

/// Without the tail that binary fractions have.
fn number(value: f64) -> String {
    let digits = (3 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
