//! The picture of docs/figures.md: what the kernel's verifier walks of some programs, over the commits that changed the record.
//!
//! Times of different days and machines are not compared; counts of one kernel and compiler are, so these are what is plotted. The
//! test `verified` of weir-engine appends to the history when it writes the record.

use std::collections::BTreeMap;
use std::path::Path;

use crate::afxdp::draw::{Axis, Scale, Series, Shape, plot};

/// Rows of the record that the picture has, from small to large.
const SHOWN: [&str; 7] = [
    "none",
    "filter:all",
    "connections",
    "router:own-all",
    "nat",
    "balancer:all",
    "all",
];

/// The picture of a history: lines of change, program and count, where a program that did not change has no line.
fn picture(history: &str) -> String {
    let mut series: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    let mut last = 0.0;
    for line in history.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [change, program, count] = cells[..] else {
            panic!("three cells, not {line:?}");
        };
        let number = |cell: &str| cell.parse::<f64>().expect("a number");
        assert!(number(change) >= last, "changes rise: {line:?}");
        last = number(change);
        if SHOWN.contains(&program) {
            let points = series.entry(program).or_default();
            // The count of before holds until this change.
            points.extend(points.last().map(|(_, before)| (last, *before)));
            points.push((last, number(count)));
        }
    }
    let all: Vec<Series> = SHOWN
        .iter()
        .map(|name| {
            let mut points = series.remove(name).unwrap_or_default();
            points.extend(points.last().map(|(_, count)| (last, *count)));
            Series {
                name: (*name).to_owned(),
                points,
            }
        })
        .collect();
    plot(
        "Instructions that the kernel's verifier walks",
        &Axis::new("commits that changed the record", Scale::Linear),
        &Axis::new("verified instructions", Scale::Logarithmic),
        Shape::Line,
        &all,
    )
}

#[test]
fn the_picture_is_that_of_the_history() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let history = std::fs::read_to_string(root.join("benches/record/verified-history.tsv"))
        .expect("the history is in the tree");
    let (path, drawn) = (
        root.join("docs/pictures/verified-instructions.svg"),
        picture(&history),
    );
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, &drawn).expect("the picture is writable");
    }
    let kept = std::fs::read_to_string(&path).expect("the picture is in the tree");
    assert_eq!(
        kept, drawn,
        "WEIR_UPDATE=1 cargo test -p weir-lab --lib history draws it again"
    );
}

#[test]
fn a_count_holds_until_it_changes() {
    let text = picture("# head\n1\tnone\t100\n1\tall\t1000\n3\tnone\t200\n4\tother\t7\n");
    assert_eq!(text.matches("<polyline").count(), 2, "{text}");
    // `none`: 100 at 1, 100 and 200 at 3, 200 at 4.
    let line = text.lines().find(|line| line.starts_with("<polyline"));
    let points = line.and_then(|line| line.split("points=\"").nth(1));
    let points: Vec<&str> = points.expect("points").split(' ').collect();
    assert_eq!(points.len(), 4, "{points:?}");
    let height = |n: usize| points[n].split(',').nth(1);
    assert_eq!(height(0), height(1), "{points:?}");
    assert_ne!(height(1), height(2), "{points:?}");
}
