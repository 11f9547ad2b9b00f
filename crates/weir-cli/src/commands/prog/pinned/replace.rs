//! `weir prog replace`: another program in the place of a loaded one. Interfaces change over one by one, each in one step; maps of equal
//! definition go on with their contents.
//!
//! Invariant: whatever is refused, the old program runs on with all it has.

use std::process::ExitCode;

use serde_json::json;

use super::list;
use super::prepare::{differs, prepare};
use super::store::{self, ProgramStore};
use crate::args::prog::ReplaceArgs;
use crate::failure::Failure;
use crate::output;

/// `BPF_MAP_TYPE_PROG_ARRAY`: what a program calls is part of it, not its state.
const PROG_ARRAY: u32 = 3;

pub(crate) fn run(args: &ReplaceArgs) -> Result<ExitCode, Failure> {
    let store = ProgramStore::lock()?;
    let kept = store::find(&args.replaced)?;
    let old = kept.program()?;
    let mut prepared = prepare(&args.loading, Some(old.name()))?;
    let mut shared = Vec::new();
    let mut fresh = Vec::new();
    for (name, map) in kept.maps()? {
        let Some(declared) = prepared
            .declared(&name)
            .filter(|_| !prepared.is_given(&name))
        else {
            continue;
        };
        match differs(declared, map.definition()) {
            // Loading fills it, and the old program must go on with its own until the new one is there.
            None if declared.kind == PROG_ARRAY => {}
            None => {
                prepared.share(&name, &map)?;
                shared.push(name);
            }
            Some(_) if args.fresh => fresh.push(name),
            Some(differs) => {
                return Err(Failure::failed(format!(
                    "map {name} cannot keep its contents: {differs}. Program {kept} keeps running; --fresh replaces it with a new map, \
                     and --map {name}=MAP with another one"
                )));
            }
        }
    }
    let program = prepared.load(args.loading.log)?;
    kept.exchange(&program, &shared)?;
    drop(store);
    let row = list::row(&kept)?;
    if args.loading.json {
        output::json(&json!({ "program": row, "kept_maps": shared, "fresh_maps": fresh }))?;
    } else {
        let words = |maps: &[String], what: &str| match maps {
            [] => String::new(),
            maps => format!("; {what} {}", maps.join(", ")),
        };
        output::out(&format!(
            "replaced {kept}: kernel id {}, tag {}, on {} interfaces{}{}\n",
            row.program_id,
            row.tag,
            row.interfaces.len(),
            words(&shared, "kept the contents of"),
            words(&fresh, "new and empty:")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
