//! `weir tables`: what a policy compiles to, and the most that one packet can cost. Planning only: no kernel, no privilege.

use std::process::ExitCode;

use serde::Serialize;
use weir_bpf::abi;
use weir_functions::middlebox::{self, PlanError};

use super::{policy, table};
use crate::args::TablesArgs;
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Tables {
    policy: String,
    rules: usize,
    bounds: Bounds,
    maps: Vec<Map>,
}

#[derive(Serialize)]
struct Bounds {
    tables: usize,
    probes: usize,
    candidates: usize,
    hits: usize,
    hits_limit: usize,
}

#[derive(Serialize)]
struct Map {
    name: &'static str,
    entries: u32,
    bytes: u64,
}

pub(crate) fn run(args: &TablesArgs) -> Result<ExitCode, Failure> {
    let parsed = policy::read(&args.policy)?;
    let ports = policy::ports_named(&parsed.policy);
    // A policy with `out` is one for tc; every other is planned alike for all hooks.
    let planned = match middlebox::plan(&parsed.policy, &ports) {
        Err(PlanError::OutUnknown { .. }) => middlebox::plan_for(&parsed.policy, &ports, true),
        planned => planned,
    };
    let (plan, bounds) =
        planned.map_err(|error| Failure::Usage(format!("{}: {error}", args.policy.display())))?;
    let tables = Tables {
        policy: args.policy.display().to_string(),
        rules: parsed.policy.rules.len(),
        bounds: Bounds {
            tables: bounds.tables,
            probes: bounds.probes,
            candidates: bounds.candidates,
            hits: bounds.hits,
            hits_limit: abi::HITS,
        },
        maps: plan
            .maps
            .iter()
            .map(|map| Map {
                name: map.name,
                entries: map.max_entries,
                bytes: u64::from(map.max_entries) * (map.key_size + map.value_size) as u64,
            })
            .collect(),
    };
    if args.json {
        output::json(&tables)?;
    } else {
        output::out(&text(&tables))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(tables: &Tables) -> String {
    let b = &tables.bounds;
    let mut text = format!(
        "{}: {}\n",
        tables.policy,
        policy::count(tables.rules, "rule")
    );
    let lines = [
        (b.tables, "tables hold all rules"),
        (b.probes, "tables at most are probed for one packet"),
        (b.candidates, "rules at most are compared with one packet"),
        (
            b.hits,
            "rules with rewrites or log lines at most meet at one packet",
        ),
    ];
    for (count, meaning) in lines {
        text.push_str(&format!("{:>9}  {meaning}\n", table::grouped(count as u64)));
    }
    text.push_str(&format!(
        "           (a policy where more than {} could is refused)\n",
        b.hits_limit
    ));
    text.push_str("\n  map             entries          bytes\n");
    for map in &tables.maps {
        text.push_str(&format!(
            "  {:<12} {:>10} {:>14}\n",
            map.name,
            table::grouped(map.entries.into()),
            table::grouped(map.bytes)
        ));
    }
    text
}
