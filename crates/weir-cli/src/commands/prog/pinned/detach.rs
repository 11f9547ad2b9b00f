//! `weir prog detach`: a loaded program off an interface. It stays loaded, and so do its maps.

use std::process::ExitCode;

use weir_kernel::iface;

use super::store::{self, ProgramStore};
use crate::args::prog::DetachArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &DetachArgs) -> Result<ExitCode, Failure> {
    let ifindex = iface::index_of(&args.interface).map_err(Failure::usage)?;
    let store = ProgramStore::lock()?;
    let kept = store::find(&args.program)?;
    let Some(place) = kept.place_on(ifindex)? else {
        let places = kept.places()?;
        let others: Vec<String> = places.iter().map(ToString::to_string).collect();
        let others = match others.is_empty() {
            true => "it is on no interface".to_owned(),
            false => format!("it is on {}", others.join(", ")),
        };
        return Err(Failure::failed(format!(
            "program {kept} is not on {}; {others}",
            args.interface
        )));
    };
    if let Some(link) = place.link().map_err(Failure::failed)? {
        link.remove().map_err(Failure::failed)?;
    }
    drop(store);
    output::out(&format!(
        "program {kept} is off {}; it is still loaded\n",
        args.interface
    ))?;
    Ok(ExitCode::SUCCESS)
}
