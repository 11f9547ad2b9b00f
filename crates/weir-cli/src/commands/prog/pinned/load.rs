//! `weir prog load`: a program into the kernel, kept under a number and a name.

use std::process::ExitCode;

use serde_json::json;

use super::list;
use super::prepare::prepare;
use super::store::ProgramStore;
use crate::args::prog::LoadArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &LoadArgs) -> Result<ExitCode, Failure> {
    let prepared = prepare(&args.loading, None)?;
    let store = ProgramStore::lock()?;
    let name = args.name.as_deref().unwrap_or(&prepared.program).to_owned();
    let kept = store.make(&name)?;
    let loaded = prepared.load(args.loading.log).and_then(|program| {
        kept.keep(&program)?;
        Ok(program)
    });
    if let Err(error) = loaded {
        // The folder has no program yet and counts for nothing; the next command would remove it, too.
        let _ = kept.remove();
        store.close();
        return Err(error);
    }
    let row = list::row(&kept)?;
    if args.loading.json {
        output::json(&json!({ "program": row }))?;
    } else {
        output::out(&format!(
            "loaded {kept}: kernel id {}, tag {}; `weir prog attach {} -i IF` puts it on an interface\n",
            row.program_id, row.tag, kept.id
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
