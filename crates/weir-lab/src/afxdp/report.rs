//! A judgement as one page (`report.html`, everything in it, no script), as data (`judgement.json`) and as a table of cells (`cells.csv`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::cluster::{Comparison, Features, OVERLAP, Shared};
use super::draw::{Axis, Scale, Series, Shape, forest, plot};
use super::effects::{LoadPoint, Ratio};
use super::judgement::Judgement;
use super::recommend::ChangedAdvice;
use super::statistics::{Judged, Kind};
use crate::bench::plot::escape;

/// Effects and pairs that a page shows; the data has all.
const SHOWN: usize = 24;

/// What cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}")]
pub struct WriteError {
    path: PathBuf,
    source: std::io::Error,
}

/// Writes the three files into a folder, which is made. Returns their names.
pub fn write_report(judgement: &Judgement, folder: &Path) -> Result<Vec<PathBuf>, WriteError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteError { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let data = serde_json::to_string_pretty(judgement)
        .map_err(|e| failed(&folder.join("judgement.json"))(e.into()))?;
    let files = [
        ("report.html", html(judgement)),
        ("judgement.json", data + "\n"),
        ("cells.csv", csv(judgement)),
    ];
    let mut written = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(failed(&path))?;
        written.push(path);
    }
    Ok(written)
}

/// All cells, a line each. Times in nanoseconds, with all their digits; knobs in columns of their own.
pub fn csv(judgement: &Judgement) -> String {
    let knobs: std::collections::BTreeSet<&String> = judgement
        .cells
        .iter()
        .flat_map(|cell| cell.knobs.keys())
        .collect();
    let figures = [
        "mean",
        "median",
        "deviation",
        "q1",
        "q3",
        "p99",
        "p99.9",
        "min",
        "max",
    ];
    let mut head: Vec<String> = ["cell", "control", "cluster", "undesirable", "remarks"]
        .map(str::to_owned)
        .to_vec();
    head.extend(knobs.iter().map(|knob| format!("knob.{knob}")));
    head.extend(["blocks", "sent", "received"].map(str::to_owned));
    head.extend(figures.iter().map(|name| format!("{name}_ns")));
    head.push("cpu_per_packet_ns".to_owned());
    let mut text = line(&head);
    for cell in &judgement.cells {
        let mut row = vec![
            cell.id.clone(),
            cell.control.clone().unwrap_or_default(),
            number_of(judgement, cell).map_or_else(String::new, |n| n.to_string()),
            cell.undesirable.join("; "),
            cell.remarks.join("; "),
        ];
        row.extend(
            knobs
                .iter()
                .map(|knob| cell.knobs.get(*knob).cloned().unwrap_or_default()),
        );
        row.push(cell.blocks.len().to_string());
        row.extend(cell.counts.map(|n| n.to_string()));
        match &cell.figures {
            Some(s) => row.extend(
                [
                    s.mean,
                    s.median,
                    s.deviation,
                    s.q1,
                    s.q3,
                    s.p99,
                    s.p999,
                    s.min,
                    s.max,
                ]
                .map(|value| value.to_string()),
            ),
            None => row.extend(figures.map(|_| String::new())),
        }
        row.push(
            cell.cpu_per_packet
                .map_or_else(String::new, |v| v.to_string()),
        );
        text.push_str(&line(&row));
    }
    text
}

/// A line as RFC 4180 has it.
fn line(fields: &[String]) -> String {
    let quoted: Vec<String> = fields
        .iter()
        .map(|field| {
            if field.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", field.replace('"', "\"\""))
            } else {
                field.clone()
            }
        })
        .collect();
    quoted.join(",") + "\r\n"
}

fn number_of(judgement: &Judgement, cell: &Judged) -> Option<usize> {
    judgement
        .clustering
        .clusters
        .iter()
        .find(|cluster| cluster.members.contains(&cell.id))
        .map(|cluster| cluster.number)
}

/// What matters, for a terminal.
pub fn summary(judgement: &Judgement) -> String {
    let mut text = String::new();
    let measured = judgement.cells.iter().filter(|c| c.control.is_none());
    let counting = judgement.cells.iter().filter(|c| c.counts()).count();
    let _ = writeln!(
        text,
        "{} cells in {} blocks, {counting} count, on {} under Linux {}",
        measured.count(),
        judgement.blocks,
        judgement.driver,
        judgement.kernel
    );
    for (kind, count) in &judgement.undesirable {
        let _ = writeln!(text, "undesirable {count:>4}  {}", kind.name());
    }
    let remarked = judgement.cells.iter().filter(|c| !c.remarks.is_empty());
    let remarked = remarked.filter(|c| c.undesirable.is_empty()).count();
    if remarked > 0 {
        let _ = writeln!(text, "remarked    {remarked:>4}  with a single failed run");
    }
    for trap in &judgement.traps {
        let _ = writeln!(text, "beware      {trap}");
    }
    let _ = writeln!(text, "\n{}", judgement.clustering.why);
    for cluster in &judgement.clustering.clusters {
        let _ = writeln!(
            text,
            "cluster {}   {:>3} cells, median {:.2} us ({:.2} to {:.2}), p99 {:.2}: {}",
            cluster.number,
            cluster.members.len(),
            cluster.median / 1e3,
            cluster.medians[0] / 1e3,
            cluster.medians[1] / 1e3,
            cluster.p99 / 1e3,
            cluster.in_words()
        );
    }
    for against in &judgement.controls {
        let _ = writeln!(
            text,
            "best beside {:<13} {:.2} of its median (blocks: {:.2} to {:.2})",
            against.control, against.median, against.medians[0], against.medians[1]
        );
    }
    for choice in &judgement.recommendation.choices {
        let _ = writeln!(text, "\nfor {}: {}", choice.goal.name(), choice.cell);
        for (name, words) in &choice.evidence {
            let _ = writeln!(text, "    {name:<20} {words}");
        }
        if !choice.as_good.is_empty() {
            let _ = writeln!(text, "    {:<20} {}", "as good", choice.as_good.len());
        }
    }
    for (goal, why) in &judgement.recommendation.missing {
        let _ = writeln!(text, "\nfor {}: no recommendation, as {why}", goal.name());
    }
    text
}

/// Two sweeps, for a terminal.
pub fn comparison(found: &Comparison, advice: &[ChangedAdvice], names: [&str; 2]) -> String {
    let mut text = String::new();
    for ((name, relevant), size) in names.iter().zip(&found.relevant).zip(found.sizes) {
        let relevant: Vec<&str> = relevant.iter().map(String::as_str).collect();
        let relevant = match relevant.is_empty() {
            true => "no common setting".to_owned(),
            false => relevant.join(", "),
        };
        let _ = writeln!(text, "{name}: best cluster of {size}, relevant: {relevant}");
    }
    let _ = writeln!(
        text,
        "overlap of the best clusters: {:.3} (at least {OVERLAP} wanted); relevant parameters {}",
        found.overlap,
        if found.relevant[0] == found.relevant[1] {
            "are the same"
        } else {
            "differ"
        }
    );
    for (only, name) in [
        (&found.only_first, names[0]),
        (&found.only_second, names[1]),
    ] {
        if !only.is_empty() {
            let _ = writeln!(text, "in that of {name} only: {}", only.join("; "));
        }
    }
    if found.elsewhere > 0 {
        let _ = writeln!(
            text,
            "{} cells are valid in one sweep only",
            found.elsewhere
        );
    }
    for changed in advice {
        let cell = |n: usize| changed.cells[n].as_deref().unwrap_or("nothing");
        let _ = writeln!(
            text,
            "advice for {} changed from {} to {}{}",
            changed.goal.name(),
            cell(0),
            cell(1),
            match changed.as_good {
                true => ": each is as good in the other sweep",
                false => "",
            }
        );
    }
    if advice.is_empty() {
        text.push_str("advice is the same\n");
    }
    text
}

/// The page.
pub fn html(judgement: &Judgement) -> String {
    let mut page = Page(String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>weir lab afxdp</title>\n<style>\n\
         body { font: 15px/1.45 sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; }\n\
         table { border-collapse: collapse; margin: 0.5em 0 1.5em; font-size: 13px; }\n\
         td, th { border: 1px solid #ccc; padding: 2px 7px; text-align: left; vertical-align: top; }\n\
         td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }\n\
         svg { width: 100%; height: auto; }\n\
         .trap { border-left: 4px solid #d55e00; padding-left: 0.8em; }\n\
         </style></head><body>\n",
    ));
    page.line("h1", "Which settings of AF_XDP matter here");
    machine(&mut page, judgement);
    recommendation(&mut page, judgement);
    clusters(&mut page, judgement);
    number_of_clusters(&mut page, judgement);
    effects(&mut page, judgement);
    load_and_chains(&mut page, judgement);
    undesirable(&mut page, judgement);
    all_cells(&mut page, judgement);
    page.0.push_str("</body></html>\n");
    page.0
}

/// A page in the making.
struct Page(String);

impl Page {
    fn line(&mut self, tag: &str, text: &str) {
        let _ = writeln!(self.0, "<{tag}>{}</{tag}>", escape(text));
    }

    fn svg(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// Cells that start with `=` are numbers, to be aligned.
    fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.0.push_str("<table><tr>");
        for name in head {
            let _ = write!(self.0, "<th>{}</th>", escape(name));
        }
        self.0.push_str("</tr>\n");
        for row in rows {
            self.0.push_str("<tr>");
            for field in row {
                let _ = match field.strip_prefix('=') {
                    Some(number) => write!(self.0, "<td class=\"n\">{}</td>", escape(number)),
                    None => write!(self.0, "<td>{}</td>", escape(field)),
                };
            }
            self.0.push_str("</tr>\n");
        }
        self.0.push_str("</table>\n");
    }
}

fn us(ns: f64) -> String {
    format!("={:.2}", ns / 1e3)
}

fn machine(page: &mut Page, judgement: &Judgement) {
    let mut rows: Vec<Vec<String>> = judgement
        .machine
        .iter()
        .map(|(name, value)| vec![name.clone(), value.clone()])
        .collect();
    rows.push(vec!["driver".to_owned(), judgement.driver.clone()]);
    rows.push(vec!["kernel release".to_owned(), judgement.kernel.clone()]);
    let cells = judgement.cells.iter().filter(|c| c.control.is_none());
    rows.push(vec![
        "sweep".to_owned(),
        format!(
            "{} cells and {} controls in {} blocks of random order (seed {}), {:.0} s",
            cells.count(),
            judgement
                .cells
                .iter()
                .filter(|c| c.control.is_some())
                .count(),
            judgement.blocks,
            judgement.seed,
            judgement.seconds
        ),
    ]);
    let drift: Vec<String> = judgement
        .drift
        .iter()
        .map(|(block, drift)| format!("{block}: {drift:.2}"))
        .collect();
    if !drift.is_empty() {
        rows.push(vec![
            "drift of blocks, by their controls".to_owned(),
            drift.join(", "),
        ]);
    }
    page.table(&["machine", ""], &rows);
    for trap in &judgement.traps {
        let _ = writeln!(page.0, "<p class=\"trap\">{}</p>", escape(trap));
    }
}

fn recommendation(page: &mut Page, judgement: &Judgement) {
    page.line("h2", "Recommendation");
    let rows: Vec<Vec<String>> = judgement
        .recommendation
        .choices
        .iter()
        .map(|choice| {
            let unusual = match choice.unusual.is_empty() {
                true => "all defaults".to_owned(),
                false => choice.unusual.join(", "),
            };
            let evidence: Vec<String> = choice
                .evidence
                .iter()
                .map(|(name, words)| format!("{}: {words}", name.replace('_', " ")))
                .collect();
            vec![
                choice.goal.name().to_owned(),
                choice.cell.clone(),
                unusual,
                evidence.join("; "),
                format!("={}", choice.as_good.len()),
            ]
        })
        .collect();
    page.table(
        &["for", "cell", "non-default", "evidence", "equally good"],
        &rows,
    );
    for (goal, why) in &judgement.recommendation.missing {
        page.line("p", &format!("For {}: nothing, as {why}.", goal.name()));
    }
    if judgement.controls.is_empty() {
        return;
    }
    page.line("h3", "The fastest cell compared with other sockets");
    let rows: Vec<Vec<String>> = judgement
        .controls
        .iter()
        .map(|a| {
            vec![
                a.control.clone(),
                format!("={:.3}", a.median),
                format!("={:.3} to {:.3}", a.medians[0], a.medians[1]),
                a.p99.map_or_else(String::new, |r| format!("={r:.3}")),
            ]
        })
        .collect();
    page.table(
        &["control", "of its median", "in blocks", "of its p99"],
        &rows,
    );
}

fn clusters(page: &mut Page, judgement: &Judgement) {
    let clustering = &judgement.clustering;
    page.line("h2", "Clusters");
    page.line(
        "p",
        &format!(
            "k-means on logarithms of {}. {}. Pairs of cells whose medians are ordered against their clusters: {:.1} %.",
            clustering.features.names().join(", "),
            clustering.why,
            100.0 * clustering.disorder
        ),
    );
    if clustering.features == Features::All {
        page.line(
            "p",
            "Minimum and maximum are among the features: the paper's first try, which did not separate good from bad. A maximum is one preemption.",
        );
    }
    let shared = |all: &[Shared]| -> String {
        let words: Vec<String> = all
            .iter()
            .map(|s| format!("{} {}", s.knob, s.value))
            .collect();
        words.join(", ")
    };
    let rows: Vec<Vec<String>> = clustering
        .clusters
        .iter()
        .map(|c| {
            vec![
                format!("={}", c.number),
                format!("={}", c.members.len()),
                us(c.mean),
                us(c.deviation),
                us(c.median),
                format!("={:.2} to {:.2}", c.medians[0] / 1e3, c.medians[1] / 1e3),
                us(c.p99),
                c.in_words(),
                shared(&c.shared),
            ]
        })
        .collect();
    page.table(
        &[
            "cluster",
            "cells",
            "mean us",
            "deviation us",
            "median us",
            "medians us",
            "p99 us",
            "relevant parameters",
            "shared, but may be by chance",
        ],
        &rows,
    );
    let series: Vec<Series> = judgement
        .densities
        .iter()
        .enumerate()
        .map(|(n, curve)| Series {
            name: format!("cluster {n}"),
            points: curve
                .iter()
                .map(|(log, density)| (10f64.powf(*log) / 1e3, *density))
                .collect(),
        })
        .collect();
    page.svg(&plot(
        "Density of round trips, by cluster",
        &Axis::new("round trip, us", Scale::Logarithmic),
        &Axis::new("density, per decade", Scale::Linear),
        Shape::Area,
        &series,
    ));
    let mut series: Vec<Series> = clustering
        .clusters
        .iter()
        .map(|c| Series {
            name: format!("cluster {}", c.number),
            points: points(judgement.cells.iter().filter(|j| c.members.contains(&j.id))),
        })
        .collect();
    series.push(Series {
        name: "undesirable".to_owned(),
        points: points(
            judgement
                .cells
                .iter()
                .filter(|c| c.control.is_none() && !c.counts()),
        ),
    });
    series.push(Series {
        name: "controls".to_owned(),
        points: points(judgement.cells.iter().filter(|c| c.control.is_some())),
    });
    page.svg(&plot(
        "Cells: median and p99",
        &Axis::new("median, us", Scale::Logarithmic),
        &Axis::new("p99, us", Scale::Logarithmic),
        Shape::Points,
        &series,
    ));
}

fn points<'a>(cells: impl Iterator<Item = &'a Judged>) -> Vec<(f64, f64)> {
    cells
        .filter_map(|cell| cell.figures.map(|s| (s.median / 1e3, s.p99 / 1e3)))
        .collect()
}

fn number_of_clusters(page: &mut Page, judgement: &Judgement) {
    let tried = &judgement.clustering.tried;
    if tried.is_empty() {
        return;
    }
    page.line("h3", "How many clusters");
    page.line(
        "p",
        "Significant: clusters keep the order of their medians in at least 80 % of blocks. Stable: the best clusters of random halves of the blocks share at least 0.8. Of those that pass, \
         the highest silhouette; within 0.02 of it, the fewest.",
    );
    let share = |s: Option<f64>| s.map_or_else(|| "one block".to_owned(), |s| format!("={s:.2}"));
    let rows: Vec<Vec<String>> = tried
        .iter()
        .map(|t| {
            vec![
                format!("={}", t.k),
                format!("={:.3}", t.silhouette),
                share(t.ordered),
                share(t.stable),
                format!("={:.3}", t.inertia),
                format!("={:.1}", t.calinski_harabasz),
                format!("={:.1} %", 100.0 * t.within),
            ]
        })
        .collect();
    page.table(
        &[
            "clusters",
            "silhouette",
            "order kept",
            "best of halves share",
            "inertia (elbow)",
            "Calinski-Harabasz",
            "deviation of medians within",
        ],
        &rows,
    );
    let top = tried.iter().map(|t| t.inertia).fold(1e-12, f64::max);
    let series = [
        Series {
            name: "silhouette".to_owned(),
            points: tried.iter().map(|t| (t.k as f64, t.silhouette)).collect(),
        },
        Series {
            name: "inertia, of the first".to_owned(),
            points: tried
                .iter()
                .map(|t| (t.k as f64, t.inertia / top))
                .collect(),
        },
    ];
    page.svg(&plot(
        "Number of clusters",
        &Axis::new("clusters", Scale::Linear),
        &Axis::new("", Scale::Linear),
        Shape::Line,
        &series,
    ));
}

fn ratio(found: &Option<Ratio>) -> String {
    found.map_or_else(String::new, |r| {
        format!(
            "={:.2} ({:.2} to {:.2})",
            r.ratio, r.interval[0], r.interval[1]
        )
    })
}

fn effects(page: &mut Page, judgement: &Judgement) {
    page.line("h2", "What each knob does");
    page.line(
        "p",
        "Quotients over cells that differ in nothing else, with 95 % intervals; above 1 is slower. Undesirable cells have no part: the last column counts the matches that failed \
         for that, by whether the usual value's cell was undesirable, the other one, or both.",
    );
    let shown: Vec<_> = judgement.effects.iter().take(SHOWN).collect();
    let bars: Vec<(String, f64, [f64; 2])> = shown
        .iter()
        .filter_map(|e| {
            let m = e.median?;
            Some((
                format!("{}: {} to {}", e.knob, e.from, e.to),
                m.ratio,
                m.interval,
            ))
        })
        .collect();
    page.svg(&forest(
        "Effect on the median",
        "times as long (filled: clearly not 1)",
        &bars,
    ));
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|e| {
            vec![
                e.knob.clone(),
                e.from.clone(),
                e.to.clone(),
                ratio(&e.median),
                ratio(&e.p99),
                ratio(&e.cpu),
                format!("={}", e.matches),
                format!(
                    "={} / {} / {}",
                    e.undesirable[0], e.undesirable[1], e.undesirable[2]
                ),
            ]
        })
        .collect();
    page.table(
        &[
            "knob",
            "from",
            "to",
            "median",
            "p99",
            "CPU time",
            "matches",
            "undesirable",
        ],
        &rows,
    );
    page.line("h3", "In pairs");
    if judgement.pair_effects.is_empty() {
        page.line(
            "p",
            "No pair of knobs does clearly more or less together than each alone.",
        );
        return;
    }
    page.line(
        "p",
        "Times as long as each alone would make it; only those whose interval leaves out 1.",
    );
    let rows: Vec<Vec<String>> = judgement
        .pair_effects
        .iter()
        .take(SHOWN)
        .map(|p| {
            let words = |[knob, from, to]: &[String; 3]| format!("{knob}: {from} to {to}");
            vec![
                words(&p.first),
                words(&p.second),
                ratio(&Some(p.median)),
                format!("={}", p.matches),
            ]
        })
        .collect();
    page.table(&["knob", "and", "together", "matches"], &rows);
}

fn load_and_chains(page: &mut Page, judgement: &Judgement) {
    if !judgement.loads.is_empty() {
        page.line("h2", "Under load");
        let rows: Vec<Vec<String>> = judgement
            .loads
            .iter()
            .map(|l| {
                vec![
                    l.cell.clone(),
                    l.loss_free
                        .map_or_else(|| "none".to_owned(), |r| format!("={r:.0}")),
                    l.spread.map_or_else(String::new, |s| format!("={s:.2}")),
                    l.points
                        .iter()
                        .map(|p| point_in_words(p, true))
                        .collect::<Vec<_>>()
                        .join("; "),
                ]
            })
            .collect();
        page.table(
            &[
                "cell",
                "loss-free, packets/s",
                "medians: longest over shortest",
                "at packets/s: median us, lost",
            ],
            &rows,
        );
        let series = over(judgement.loads.iter().map(|l| (&l.cell, &l.points)));
        page.svg(&plot(
            "Median round trip under load",
            &Axis::new("offered, packets/s", Scale::Logarithmic),
            &Axis::new("median, us", Scale::Logarithmic),
            Shape::Line,
            &series,
        ));
    }
    if !judgement.chains.is_empty() {
        page.line("h2", "Over rows of forwarders");
        let rows: Vec<Vec<String>> = judgement
            .chains
            .iter()
            .map(|c| {
                vec![
                    c.cell.clone(),
                    c.per_hop.map_or_else(String::new, us),
                    c.per_hop_p99.map_or_else(String::new, us),
                    c.points
                        .iter()
                        .map(|p| point_in_words(p, false))
                        .collect::<Vec<_>>()
                        .join("; "),
                ]
            })
            .collect();
        page.table(
            &[
                "cell",
                "a forwarder more, median us",
                "p99 us",
                "at forwarders: median us, lost",
            ],
            &rows,
        );
        let series = over(judgement.chains.iter().map(|c| (&c.cell, &c.points)));
        page.svg(&plot(
            "Median round trip over forwarders",
            &Axis::new("forwarders", Scale::Linear),
            &Axis::new("median, us", Scale::Linear),
            Shape::Line,
            &series,
        ));
    }
}

fn over<'a>(all: impl Iterator<Item = (&'a String, &'a Vec<LoadPoint>)>) -> Vec<Series> {
    all.map(|(cell, points)| Series {
        name: cell.clone(),
        points: points
            .iter()
            .filter_map(|p| Some((p.at, p.figures.as_ref()?.median / 1e3)))
            .collect(),
    })
    .collect()
}

fn point_in_words(point: &LoadPoint, rate: bool) -> String {
    let at = if rate {
        format!("{:.0}", point.at)
    } else {
        format!("{}", point.at)
    };
    let figures = point.figures.as_ref().map_or_else(
        || "nothing".to_owned(),
        |s| format!("{:.2}", s.median / 1e3),
    );
    if point.loss > 0.0 {
        format!("{at}: {figures}, {:.2} % lost", 100.0 * point.loss)
    } else {
        format!("{at}: {figures}")
    }
}

fn undesirable(page: &mut Page, judgement: &Judgement) {
    page.line("h2", "Undesirable and impossible");
    let bad: Vec<&Judged> = judgement
        .cells
        .iter()
        .filter(|c| c.control.is_none() && !c.counts())
        .collect();
    if bad.is_empty() {
        page.line("p", "No cell is undesirable.");
    }
    for kind in [
        Kind::Ineffective,
        Kind::Loss,
        Kind::Stall,
        Kind::Slow,
        Kind::Failed,
    ] {
        // A cell with several reasons is shown at the first of them.
        let own: Vec<&&Judged> = bad
            .iter()
            .filter(|c| c.kinds.contains(&kind) && first_kind(c) == Some(kind))
            .collect();
        if own.is_empty() {
            continue;
        }
        page.line("h3", &format!("{} ({})", kind.name(), own.len()));
        let rows: Vec<Vec<String>> = own
            .iter()
            .map(|c| {
                vec![
                    c.id.clone(),
                    c.figures.map_or_else(String::new, |s| us(s.median)),
                    c.undesirable.join("; "),
                ]
            })
            .collect();
        page.table(&["cell", "median us", "why"], &rows);
    }
    let remarked: Vec<Vec<String>> = judgement
        .cells
        .iter()
        .filter(|c| !c.remarks.is_empty() && (c.counts() || c.control.is_some()))
        .map(|c| vec![c.id.clone(), c.remarks.join("; ")])
        .collect();
    if !remarked.is_empty() {
        page.line("h3", "Single failed runs");
        page.line(
            "p",
            "Failures in a single block are attributed to the machine and excluded from the figures.",
        );
        page.table(&["cell", "what"], &remarked);
    }
    if !judgement.pruned.is_empty() {
        page.line("h3", "Impossible combinations");
        let rows: Vec<Vec<String>> = judgement
            .pruned
            .iter()
            .map(|p| vec![p.reason.clone(), format!("={}", p.count), p.example.clone()])
            .collect();
        page.table(&["reason", "combinations", "one of them"], &rows);
    }
    if !judgement.left_out.is_empty() {
        page.line("h3", "Left out by the time limit");
        let rows: Vec<Vec<String>> = judgement.left_out.iter().map(|n| vec![n.clone()]).collect();
        page.table(&["extra measurements left out"], &rows);
    }
}

fn first_kind(cell: &Judged) -> Option<Kind> {
    [
        Kind::Ineffective,
        Kind::Loss,
        Kind::Stall,
        Kind::Slow,
        Kind::Failed,
    ]
    .into_iter()
    .find(|kind| cell.kinds.contains(kind))
}

fn all_cells(page: &mut Page, judgement: &Judgement) {
    page.line("h2", "All cells");
    page.line(
        "p",
        "Microseconds; medians over blocks. Cells without a cluster are undesirable, controls, or sent other traffic than most.",
    );
    let mut cells: Vec<&Judged> = judgement.cells.iter().collect();
    let order = |c: &Judged| c.figures.map_or(f64::INFINITY, |s| s.median);
    cells.sort_by(|a, b| order(a).total_cmp(&order(b)).then(a.id.cmp(&b.id)));
    let rows: Vec<Vec<String>> = cells
        .iter()
        .map(|c| {
            let figure = |f: fn(&super::statistics::Statistics) -> f64| {
                c.figures.as_ref().map_or_else(String::new, |s| us(f(s)))
            };
            vec![
                c.id.clone(),
                match (&c.control, number_of(judgement, c)) {
                    (Some(_), _) => "control".to_owned(),
                    (_, Some(n)) => format!("={n}"),
                    (_, None) if c.counts() => "other traffic".to_owned(),
                    _ => "undesirable".to_owned(),
                },
                figure(|s| s.mean),
                figure(|s| s.deviation),
                figure(|s| s.min),
                figure(|s| s.q1),
                figure(|s| s.median),
                figure(|s| s.q3),
                figure(|s| s.p99),
                figure(|s| s.p999),
                figure(|s| s.max),
                c.cpu_per_packet.map_or_else(String::new, us),
                c.energy_per_packet
                    .map_or_else(|| "-".to_owned(), |nj| format!("={:.2}", nj / 1e3)),
            ]
        })
        .collect();
    page.table(
        &[
            "cell",
            "cluster",
            "mean",
            "deviation",
            "min",
            "Q1",
            "median",
            "Q3",
            "p99",
            "p99.9",
            "max",
            "CPU time",
            "energy, uJ",
        ],
        &rows,
    );
}
