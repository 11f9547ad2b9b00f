//! What a benchmark found: figures, targets, and what could not be measured; as JSON and as a table.
//!
//! The shape of the JSON is DESIGN section 12's. Names of figures are stable: `catalogue` lists them, docs/figures.md shows them.

use std::fmt::Write as _;
use std::process::Command;

use serde::Serialize;
use weir_kernel::probes;

use super::measure::Samples;

/// One measured quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Stable name.
    pub name: String,
    /// Median over the rounds.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Number of rounds.
    pub rounds: usize,
    /// Largest minus smallest round, as a part of the median.
    pub spread: f64,
    /// Name of the figure it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// This value through that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// What a packet does for it, counted in the user engine; of weir's own programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The rounds, for comparing round by round.
    #[serde(skip)]
    pub(crate) samples: Samples,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, samples: Samples) -> Figure {
        Figure {
            name: name.into(),
            value: samples.median(),
            unit,
            rounds: samples.0.len(),
            spread: samples.spread(),
            against: None,
            ratio: None,
            budget: None,
            samples,
        }
    }
}

/// The most that one packet of a figure does. docs/design/costs.md says how it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// Instructions.
    pub instructions: u64,
    /// Calls of functions.
    pub calls: u64,
    /// Calls of helpers, look-ups that are compiled in line excluded.
    pub helpers: u64,
    /// Cache lines of maps that most packets share.
    pub shared_lines: u64,
    /// Cache lines of maps that few other packets touch: misses, once there are enough rules or flows.
    pub own_lines: u64,
}

impl From<weir_vm::Budget> for Budget {
    fn from(counted: weir_vm::Budget) -> Budget {
        Budget {
            instructions: counted.instructions,
            calls: counted.calls,
            helpers: counted.helpers,
            shared_lines: counted.shared_lines,
            own_lines: counted.own_lines,
        }
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} instructions, {} calls, {} helpers, {} shared and {} own lines",
            self.instructions, self.calls, self.helpers, self.shared_lines, self.own_lines
        )
    }
}

/// A ratio that the project promises.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatioTarget {
    /// Figure above the line.
    pub figure: String,
    /// Figure below it.
    pub against: String,
    /// Their ratio.
    pub ratio: f64,
    /// What it must be: `at most 2`.
    pub promise: String,
    /// Whether it is; `None` for ratios that are only reported.
    pub met: Option<bool>,
}

/// A program that would have been measured, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// Its name.
    pub program: String,
    /// The Debian package that has it.
    pub package: String,
}

/// Something that was not measured, or whose figure was thrown away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Name of the figure, or of the group.
    pub name: String,
    /// Why.
    pub why: String,
}

/// Everything a run found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// Processor, CPUs, kernel.
    pub machine: String,
    /// Commit that the program was built from.
    pub commit: &'static str,
    /// Day of the run, UTC.
    pub date: String,
    /// Whether it was a quick run, whose figures are rough.
    pub quick: bool,
    /// Figures in the order measured.
    pub figures: Vec<Figure>,
    /// Ratios with their targets.
    pub targets: Vec<RatioTarget>,
    /// Programs that are not installed.
    pub absent: Vec<Absent>,
    /// What has no figure, and why.
    pub refused: Vec<Refused>,
    /// Facts about what was measured, a line each.
    pub notes: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(bench: &'static str, quick: bool) -> Outcome {
        Outcome {
            bench,
            machine: machine(),
            commit: env!("WEIR_COMMIT"),
            date: first_line("date", &["-u", "+%F"]),
            quick,
            figures: Vec::new(),
            targets: Vec::new(),
            absent: Vec::new(),
            refused: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A figure by name.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|f| f.name == name)
    }

    /// Figures that have a budget, with it.
    pub(crate) fn budgets(&self) -> impl Iterator<Item = (&str, Budget)> {
        let figures = self.figures.iter();
        figures.filter_map(|f| Some((f.name.as_str(), f.budget?)))
    }

    /// Records a ratio of two figures if both are there; the upper figure shows it, too.
    pub(crate) fn compare(&mut self, above: &str, below: &str, promise: Promise) {
        let (Some(a), Some(b)) = (self.figure(above), self.figure(below)) else {
            return;
        };
        // Of what is counted, none is less than one.
        let below_one = if b.value == 0.0 { 1.0 } else { b.value };
        let ratio = a.value / below_one;
        self.targets.push(RatioTarget {
            figure: above.to_owned(),
            against: below.to_owned(),
            ratio,
            promise: promise.to_string(),
            met: promise.met(ratio),
        });
        if let Some(figure) = self.figures.iter_mut().find(|f| f.name == above)
            && figure.against.is_none()
        {
            figure.against = Some(below.to_owned());
            figure.ratio = Some(ratio);
        }
    }

    /// Records a figure that has a limit of its own.
    pub(crate) fn bound(&mut self, figure: Figure, limit: f64) {
        let ratio = figure.value / limit;
        let promise = Promise::AtMost(1.0);
        self.targets.push(RatioTarget {
            figure: figure.name.clone(),
            against: format!("{limit} {}", figure.unit),
            ratio,
            promise: promise.to_string(),
            met: promise.met(ratio),
        });
        self.figures.push(figure);
    }

    /// Records a figure that must reach a value of its own.
    pub(crate) fn least(&mut self, figure: Figure, limit: f64) {
        let ratio = figure.value / limit;
        let promise = Promise::AtLeast(1.0);
        self.targets.push(RatioTarget {
            figure: figure.name.clone(),
            against: format!("{limit} {}", figure.unit),
            ratio,
            promise: promise.to_string(),
            met: promise.met(ratio),
        });
        self.figures.push(figure);
    }

    /// Records a figure that must be 0.
    pub(crate) fn none(&mut self, figure: Figure) {
        self.targets.push(RatioTarget {
            figure: figure.name.clone(),
            against: format!("1 {}", figure.unit),
            ratio: figure.value,
            promise: Promise::AtMost(0.0).to_string(),
            met: Promise::AtMost(0.0).met(figure.value),
        });
        self.figures.push(figure);
    }

    /// Tab-separated history: a line a figure.
    pub fn record(&self) -> String {
        let mut text = format!(
            "# weir bench {}{}; {}; commit {}; {}\n# figure\tvalue\tunit\trounds\tspread\n",
            self.bench,
            if self.quick { " --quick" } else { "" },
            self.machine,
            self.commit,
            self.date
        );
        for f in &self.figures {
            let _ = writeln!(
                text,
                "{}\t{}\t{}\t{}\t{:.2}",
                f.name,
                short(f.value),
                f.unit,
                f.rounds,
                f.spread
            );
        }
        for target in &self.targets {
            let _ = writeln!(text, "# {target}");
        }
        for (name, budget) in self.budgets() {
            let _ = writeln!(text, "# budget of {name}: {budget}");
        }
        for one in &self.refused {
            let _ = writeln!(text, "# not measured: {}: {}", one.name, one.why);
        }
        text
    }
}

impl RatioTarget {
    /// Whether the promise holds, in words.
    pub(crate) fn state(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "for information",
        }
    }
}

impl std::fmt::Display for RatioTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        write!(
            f,
            "{} / {}: {:.2} ({}): {state}",
            self.figure, self.against, self.ratio, self.promise
        )
    }
}

/// What a ratio must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Promise {
    AtMost(f64),
    AtLeast(f64),
    Reported,
}

impl Promise {
    fn met(self, ratio: f64) -> Option<bool> {
        match self {
            Promise::AtMost(limit) => Some(ratio <= limit),
            Promise::AtLeast(limit) => Some(ratio >= limit),
            Promise::Reported => None,
        }
    }
}

impl std::fmt::Display for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Promise::AtMost(limit) => write!(f, "at most {limit}"),
            Promise::AtLeast(limit) => write!(f, "at least {limit}"),
            Promise::Reported => f.write_str("no target"),
        }
    }
}

/// A value with three digits that matter.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {cpus} CPUs, Linux {}", probes::kernel_release())
}

fn first_line(command: &str, args: &[&str]) -> String {
    let output = Command::new(command).args(args).output();
    let text = output.map(|o| o.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_judged_by_its_promise() {
        let mut outcome = Outcome::new("test", true);
        for (name, value) in [("a", 30.0), ("b", 10.0)] {
            outcome
                .figures
                .push(Figure::new(name, "ns", Samples(vec![value])));
        }
        outcome.compare("a", "b", Promise::AtMost(2.0));
        outcome.compare("a", "b", Promise::AtLeast(3.0));
        outcome.compare("a", "absent", Promise::Reported);
        let met: Vec<_> = outcome.targets.iter().map(|t| t.met).collect();
        assert_eq!(met, [Some(false), Some(true)]);
        assert_eq!(
            outcome.targets[0].to_string(),
            "a / b: 3.00 (at most 2): NOT MET"
        );
        assert_eq!(
            outcome.figure("a").and_then(|f| f.against.as_deref()),
            Some("b")
        );
    }
}
