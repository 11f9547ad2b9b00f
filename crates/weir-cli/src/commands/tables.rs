//! `weir tables`: what a policy compiles to, and the most that one packet can cost. Planning only: no kernel, no privilege. Without a
//! policy: the same of a running instance, as it says itself.

use std::process::ExitCode;

use serde::Serialize;
use weir_bpf::abi;
use weir_functions::middlebox::{self, PlanError};

use weir_engine::control::{Ask, Client, OpenConnections, Reply};

use super::{policy, rule, table};
use crate::args::TablesArgs;
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Tables {
    policy: String,
    rules: usize,
    bounds: Bounds,
    limits: Vec<Limit>,
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

/// A limit that counts addresses apart, or connections.
#[derive(Serialize)]
struct Limit {
    rule: u32,
    /// How many connections each name may have; none of a limit of packets.
    connections: Option<u32>,
    names: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Map {
    name: String,
    entries: u32,
    bytes: u64,
}

pub(crate) fn run(args: &TablesArgs) -> Result<ExitCode, Failure> {
    match &args.policy {
        Some(path) => planned(path, args.json),
        None => running(args),
    }
}

fn running(args: &TablesArgs) -> Result<ExitCode, Failure> {
    let mut client = Client::find(args.interface.as_deref())?;
    let Reply::Tables(tables) = client.ask(Ask::Tables)? else {
        return Err(rule::strange_answer());
    };
    if args.json {
        output::json(&tables)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!(
        "{} on {}: {}, generation {}\n",
        tables.instance.policy.display(),
        tables.instance.interfaces.join(", "),
        policy::count(tables.rules, "rule"),
        tables.generation
    );
    for (count, meaning) in [
        (tables.tables, "tables hold the rules of the plan"),
        (tables.probes, "of them at most are probed for one packet"),
        (
            tables.candidates,
            "rules of the plan at most are compared with one packet",
        ),
        (
            tables.hits,
            "rules of the plan with rewrites or log lines at most meet at one packet",
        ),
        (
            tables.beside,
            "rules were added since and are outside the plan",
        ),
        (tables.room, "fit there before the classifier is rebuilt"),
        (tables.dead, "deleted rules still take a slot in the plan"),
    ] {
        text.push_str(&format!("{:>9}  {meaning}\n", table::grouped(count as u64)));
    }
    let limits = tables.limits.iter().map(|limit| Line {
        rule: limit.rule,
        connections: limit.connections,
        names: limit.names,
        bytes: limit.bytes,
        open: limit.open,
    });
    text.push_str(&limits_text(limits.collect()));
    text.push_str("\n  map             entries          bytes\n");
    for (name, entries, bytes) in &tables.maps {
        text.push_str(&format!(
            "  {name:<12} {:>10} {:>14}\n",
            table::grouped((*entries).into()),
            table::grouped(*bytes)
        ));
    }
    output::out(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn planned(path: &std::path::Path, json: bool) -> Result<ExitCode, Failure> {
    let parsed = policy::read(path)?;
    let ports = policy::ports_named(&parsed.policy);
    // A policy with `out` is one for tc; every other is planned alike for all hooks.
    let planned = match middlebox::plan(&parsed.policy, &ports) {
        Err(PlanError::OutUnknown { .. }) => middlebox::plan_for(&parsed.policy, &ports, true),
        planned => planned,
    };
    let (plan, bounds) =
        planned.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    let tables = Tables {
        policy: path.display().to_string(),
        rules: parsed.policy.rules.len(),
        bounds: Bounds {
            tables: bounds.tables,
            probes: bounds.probes,
            candidates: bounds.candidates,
            hits: bounds.hits,
            hits_limit: abi::HITS,
        },
        limits: middlebox::limit_tables(
            parsed.policy.rules.iter(),
            parsed.policy.connections.limits,
        )
        .into_iter()
        .map(|table| Limit {
            rule: table.rule,
            connections: table.connections,
            names: table.names,
            bytes: table.bytes,
        })
        .collect(),
        maps: plan
            .maps
            .iter()
            .map(|map| Map {
                name: map.name.to_string(),
                entries: map.max_entries,
                bytes: u64::from(map.max_entries) * (map.key_size + map.value_size) as u64,
            })
            .collect(),
    };
    if json {
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
        "           (a policy where more than {} could is rejected)\n",
        b.hits_limit
    ));
    let limits = tables.limits.iter().map(|limit| Line {
        rule: limit.rule,
        connections: limit.connections,
        names: limit.names,
        bytes: limit.bytes,
        open: None,
    });
    text.push_str(&limits_text(limits.collect()));
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

/// What is shown of a limit.
struct Line {
    rule: u32,
    connections: Option<u32>,
    names: u64,
    bytes: u64,
    open: Option<OpenConnections>,
}

/// The table of limits; nothing if there are none.
fn limits_text(lines: Vec<Line>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let runs = lines.iter().any(|line| line.open.is_some());
    let mut text = "\n  rule  counts               names          bytes".to_owned();
    text.push_str(match runs {
        true => "       in use     at limit         open\n",
        false => "\n",
    });
    for line in lines {
        let counts = match line.connections {
            Some(most) => policy::count(most as usize, "connection"),
            None => "packets".to_owned(),
        };
        text.push_str(&format!(
            "  {:>4}  {counts:<15} {:>10} {:>14}",
            line.rule,
            table::grouped(line.names),
            table::grouped(line.bytes)
        ));
        if let Some(open) = line.open {
            let numbers = [open.names, open.at_limit, open.connections];
            for number in numbers {
                text.push_str(&format!(" {:>12}", table::grouped(number)));
            }
        }
        text.push('\n');
    }
    text
}
