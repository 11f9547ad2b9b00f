//! `weir bench xdp`: section 4 of the XDP paper on test beds of namespaces, weir's graphs beside the least that does the same by hand and beside what
//! users could pick instead.
//!
//! `chain` measures programs alone, `verdicts` packets through a box, `load` and `cores` a receive queue on a CPU of its own. No figure is asserted: targets are judged and told.

pub(crate) mod bed;
mod chain;
mod cores;
pub(crate) mod graph;
mod load;
mod peers;
pub(crate) mod traffic;
mod verdicts;

use std::io::Write;

use self::traffic::Traffic;
use super::edge::Function;
use super::{Bench, BenchOptions, Outcome, Scale};
use crate::LabError;

/// Figures that are measured or left out together; a name is a beginning of the figures' names.
const GROUPS: [&str; 5] = [
    "testrun.chain",
    "live.verdicts",
    "live.prefixes",
    "load",
    "cores",
];

/// Runs the benchmark of the XDP platform, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out. Missed targets, missing peers and refused figures are results.
pub fn xdp(options: &BenchOptions<'_>, out: &mut dyn Write) -> Result<Outcome, LabError> {
    let groups = select(&GROUPS, &options.only)?;
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("xdp", options.quick),
        out,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut xdp = Xdp {
        rounds: if options.quick { 5 } else { 11 },
        cpus,
        cpu: cpus - 1,
        bench: &mut bench,
    };
    if groups.contains(&"testrun.chain") {
        chain::run(&mut xdp)?;
    }
    let (verdicts, prefixes) = (
        groups.contains(&"live.verdicts"),
        groups.contains(&"live.prefixes"),
    );
    if verdicts || prefixes {
        verdicts::run(&mut xdp, verdicts, prefixes)?;
    }
    if groups.contains(&"load") {
        load::run(&mut xdp)?;
    }
    if groups.contains(&"cores") {
        cores::run(&mut xdp)?;
    }
    bench.progress("")?;
    Ok(bench.outcome)
}

/// A run under way.
pub(crate) struct Xdp<'a, 'b> {
    pub(crate) bench: &'a mut Bench<'b>,
    pub(crate) rounds: usize,
    /// CPUs there are.
    pub(crate) cpus: usize,
    /// Where packets come from and, unless figures say otherwise, are worked on.
    pub(crate) cpu: usize,
}

/// Those of `groups` whose names start with one of `only`; all if that is empty.
pub(crate) fn select(
    groups: &[&'static str],
    only: &[String],
) -> Result<Vec<&'static str>, LabError> {
    if let Some(wrong) = only
        .iter()
        .find(|o| !groups.iter().any(|g| g.starts_with(o.as_str())))
    {
        return Err(LabError::NothingSelected(wrong.clone(), groups.join(", ")));
    }
    let wanted = |g: &&&str| only.is_empty() || only.iter().any(|o| g.starts_with(o.as_str()));
    Ok(groups.iter().filter(wanted).copied().collect())
}

/// weir's filter that drops these sources.
pub(crate) fn filter_of(traffic: Traffic) -> Function {
    let list: Vec<String> = traffic.prefixes().collect();
    Function {
        kind: "filter",
        keys: "rules = [\"deny from @bad\"]\nsets.bad = { file = \"bad.txt\" }\n".to_owned(),
        files: vec![("bad.txt".into(), list.join("\n").into_bytes())],
    }
}
