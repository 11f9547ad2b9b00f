//! `weir prog unload`: a loaded program and its maps out of the kernel, once it is on no interface.

use std::process::ExitCode;

use super::store::{self, ProgramStore};
use crate::args::prog::UnloadArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &UnloadArgs) -> Result<ExitCode, Failure> {
    let store = ProgramStore::lock()?;
    let kept = store::find(&args.program)?;
    let places = kept.places()?;
    if !places.is_empty() {
        let all: Vec<String> = places.iter().map(ToString::to_string).collect();
        return Err(Failure::failed(format!(
            "program {kept} is on {}: `weir prog detach {} -i IF` detaches it first",
            all.join(", "),
            kept.id
        )));
    }
    kept.remove()?;
    store.close();
    output::out(&format!("unloaded {kept}\n"))?;
    Ok(ExitCode::SUCCESS)
}
