//! `weir lab firewall`: the firewall bed as a table, or as JSON. Exit status 1 if a case is not as it must be.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use weir_lab::firewall::{Device, FirewallOptions, FirewallOutcome, firewall, table};

use crate::args::lab::FirewallArgs;
use crate::commands::program;
use crate::failure::Failure;
use crate::output;

pub(super) fn run(args: &FirewallArgs) -> Result<ExitCode, Failure> {
    let chosen = |d: &Device| args.devices.is_empty() || args.devices.iter().any(|k| k == d.key());
    let options = FirewallOptions {
        weir: program::weir()?,
        devices: Device::ALL.into_iter().filter(chosen).collect(),
        only: args.only.clone(),
        policies: args.policies.clone(),
        files: args.files.clone(),
    };
    let outcome = firewall(&options).map_err(Failure::failed)?;
    if let Some(folder) = &args.output {
        write(folder, &outcome)?;
    }
    if args.json {
        output::json(&object(&outcome))?;
    } else {
        output::out(&table(&outcome))?;
    }
    Ok(ExitCode::from(u8::from(!outcome.ok())))
}

fn object(outcome: &FirewallOutcome) -> Value {
    let rows: Vec<Value> = outcome
        .rows
        .iter()
        .map(|row| json!({"row": row, "verdict": row.verdict()}))
        .collect();
    json!({"ok": outcome.ok(), "rows": rows, "counters": outcome.counters})
}

fn write(folder: &Path, outcome: &FirewallOutcome) -> Result<(), Failure> {
    let files = [
        ("firewall.json", format!("{:#}\n", object(outcome))),
        ("firewall.md", table(outcome)),
    ];
    let written = fs::create_dir_all(folder).and_then(|()| {
        files
            .iter()
            .try_for_each(|(name, text)| fs::write(folder.join(name), text))
    });
    written.map_err(|error| {
        Failure::Failed(format!("cannot write into {}: {error}", folder.display()))
    })
}
