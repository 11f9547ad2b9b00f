//! `weir prog attach`: a loaded program onto an interface, in the mode that was asked for or not at all.

use std::process::ExitCode;

use weir_kernel::{KernelError, XdpMode, iface, offers_offload};

use super::holder::occupied;
use super::store::{self, Kept, ProgramStore};
use crate::args::prog::{AttachArgs, AttachMode};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &AttachArgs) -> Result<ExitCode, Failure> {
    let interface = iface::find(&args.interface).map_err(Failure::usage)?;
    let mode = match args.mode {
        AttachMode::Native => XdpMode::Native,
        AttachMode::Generic => XdpMode::Generic,
        AttachMode::Offload => return Err(no_offload(&interface)),
    };
    let store = ProgramStore::lock()?;
    let kept = store::find(&args.program)?;
    if let Some(place) = kept.place_on(interface.ifindex)? {
        return Err(Failure::failed(format!(
            "program {kept} is on {} already, in mode {}",
            interface.name, place.mode
        )));
    }
    let program = kept.program()?;
    let link = program
        .attach_xdp(interface.ifindex, mode)
        .map_err(|error| refused(&kept, &interface.name, mode, error))?;
    // The link ends with this process unless its pin is there.
    kept.keep_link(&link, &mode.to_string())?;
    drop(store);
    output::out(&format!(
        "program {kept} is on {} ({mode})\n",
        interface.name
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Why nothing is offloaded: the device has none, or weir does not load for it.
fn no_offload(interface: &iface::Interface) -> Failure {
    let name = &interface.name;
    match offers_offload(interface.ifindex) {
        Err(error) => Failure::failed(error),
        Ok(false) => Failure::failed(format!(
            "{name} (driver {}) runs no programs in hardware: --mode native runs it in the driver",
            interface.driver
        )),
        Ok(true) => Failure::failed(format!(
            "{name} takes programs for its hardware, but they must be loaded for that device alone, which `weir prog load` does not do: \
             use `ip link set dev {name} xdpoffload object FILE`, or --mode native"
        )),
    }
}

fn refused(kept: &Kept, interface: &str, mode: XdpMode, error: KernelError) -> Failure {
    match error {
        KernelError::AlreadyAttached { prog_id, .. } => occupied(interface, prog_id),
        KernelError::NativeUnsupported { driver, .. } => Failure::failed(format!(
            "{interface} (driver {driver}) cannot run native XDP: --mode generic works on every device and is slower"
        )),
        KernelError::Sys { source, .. } if source.raw_os_error() == Some(libc::ERANGE) => {
            Failure::failed(format!(
                "{interface} does not take program {kept} in mode {mode}: its MTU, or its peer's, is too large for a program that was not built \
             for packets of several buffers. Build it with SEC(\"xdp.frags\"), lower the MTU, or use --mode generic"
            ))
        }
        other => Failure::failed(other),
    }
}
