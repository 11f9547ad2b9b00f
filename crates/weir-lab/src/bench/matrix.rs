//! Figures of one group as rows of sizes and columns of series: what both the table on the terminal and the plots show.
//!
//! Names have the form PART.SET.SERIES.SIZE.KIND (see `catalogue`); figures of other forms are listed by themselves.

use std::fmt::Write as _;

use super::report::{Figure, Outcome, short};

/// All figures that share part, set and kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    /// `testrun.rules`.
    pub(crate) group: String,
    /// `hot`.
    pub(crate) kind: String,
    pub(crate) unit: &'static str,
    /// In the order measured.
    pub(crate) series: Vec<String>,
    /// In the order measured, which is ascending.
    pub(crate) sizes: Vec<String>,
    /// By series, then by size; value and spread.
    pub(crate) cells: Vec<Vec<Option<(f64, f64)>>>,
}

impl Matrix {
    /// All matrices of an outcome.
    pub(crate) fn all(outcome: &Outcome) -> Vec<Matrix> {
        let mut all: Vec<Matrix> = Vec::new();
        for figure in &outcome.figures {
            let Some((group, series, size, kind)) = split(&figure.name) else {
                continue;
            };
            let found = all
                .iter_mut()
                .position(|m| m.group == group && m.kind == kind);
            let at = found.unwrap_or_else(|| {
                all.push(Matrix {
                    group,
                    kind: kind.to_owned(),
                    unit: figure.unit,
                    series: Vec::new(),
                    sizes: Vec::new(),
                    cells: Vec::new(),
                });
                all.len() - 1
            });
            all[at].put(series, size, figure);
        }
        all
    }

    fn put(&mut self, series: &str, size: &str, figure: &Figure) {
        let row = position(&mut self.series, series);
        let column = position(&mut self.sizes, size);
        self.cells.resize(self.series.len(), Vec::new());
        for cells in &mut self.cells {
            cells.resize(self.sizes.len(), None);
        }
        self.cells[row][column] = Some((figure.value, figure.spread));
    }
}

/// Group, series, size and kind of a name.
pub(crate) fn split(name: &str) -> Option<(String, &str, &str, &str)> {
    let parts: Vec<&str> = name.split('.').collect();
    match parts[..] {
        [part, set, series, size, kind] => Some((format!("{part}.{set}"), series, size, kind)),
        _ => None,
    }
}

fn position(list: &mut Vec<String>, name: &str) -> usize {
    match list.iter().position(|have| have == name) {
        Some(at) => at,
        None => {
            list.push(name.to_owned());
            list.len() - 1
        }
    }
}

impl Outcome {
    /// Everything for a terminal.
    pub fn table(&self) -> String {
        let mut text = format!(
            "\n{}\ncommit {}, {}; medians of interleaved rounds, ± is the spread of the rounds\n",
            self.machine, self.commit, self.date
        );
        for matrix in Matrix::all(self) {
            let _ = writeln!(text, "\n{} {}, {}", matrix.group, matrix.kind, matrix.unit);
            let width = matrix.series.iter().map(String::len).max().unwrap_or(0);
            let _ = write!(text, "  {:width$}", "");
            for size in &matrix.sizes {
                let _ = write!(text, " {size:>13}");
            }
            text.push('\n');
            for (series, cells) in matrix.series.iter().zip(&matrix.cells) {
                let _ = write!(text, "  {series:width$}");
                for cell in cells {
                    let shown = cell.map_or_else(
                        || "-".to_owned(),
                        |(value, spread)| format!("{} ±{:.0}%", short(value), spread * 100.0),
                    );
                    let _ = write!(text, " {shown:>13}");
                }
                text.push('\n');
            }
        }
        let single = self.figures.iter().filter(|f| split(&f.name).is_none());
        for (n, figure) in single.enumerate() {
            let _ = writeln!(
                text,
                "{}{} {} {} ±{:.0}%",
                if n == 0 { "\n" } else { "" },
                figure.name,
                short(figure.value),
                figure.unit,
                figure.spread * 100.0
            );
        }
        self.tell_rest(&mut text);
        text
    }

    fn tell_rest(&self, text: &mut String) {
        let mut section = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                let _ = writeln!(text, "\n{title}");
            }
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        };
        section("facts", self.notes.clone());
        let absent = self.absent.iter();
        section(
            "not installed, so not measured (`scripts/setup bench` installs them)",
            absent
                .map(|a| format!("{} (package {})", a.program, a.package))
                .collect(),
        );
        let budgets = self.budgets();
        section(
            "budgets: the most that one packet does",
            budgets
                .map(|(name, budget)| format!("{name}: {budget}"))
                .collect(),
        );
        let refused = self.refused.iter();
        section(
            "without a figure",
            refused.map(|r| format!("{}: {}", r.name, r.why)).collect(),
        );
        section(
            "ratios",
            self.targets.iter().map(ToString::to_string).collect(),
        );
        let judged = self.targets.iter().filter_map(|t| t.met);
        let (met, all) = judged.fold((0, 0), |(met, all), m| (met + usize::from(m), all + 1));
        section("targets", vec![format!("{met} of {all} are met")]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Samples;
    use super::*;

    #[test]
    fn figures_become_rows_and_columns() {
        let mut outcome = Outcome::new("test", true);
        for (name, value) in [
            ("testrun.rules.weir.10.hot", 5.0),
            ("testrun.rules.weir.100.hot", 6.0),
            ("testrun.rules.linear.10.hot", 50.0),
            ("testrun.rules.weir.10.cold", 9.0),
        ] {
            let samples = Samples(vec![value]);
            outcome
                .figures
                .push(Figure::new(name, "ns/packet", samples));
        }
        let all = Matrix::all(&outcome);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].series, ["weir", "linear"]);
        assert_eq!(all[0].sizes, ["10", "100"]);
        assert_eq!(all[0].cells[1], [Some((50.0, 0.0)), None]);
        assert!(outcome.table().contains("testrun.rules hot, ns/packet"));
    }
}
