//! Putting a program on many devices, and taking it off: tcx links, pinned, where they are few; filters of clsact else.
//!
//! Attaching by tcx waits for a grace period of the kernel (about 9 ms each, one after the other), a filter takes 0.04 ms; a packet by tcx saves
//! some 25 ns. Invariant: what is attached can be taken off by its [`DeviceState`] alone, by another process.

use std::path::PathBuf;

use weir_kernel::pinned::{Folder, PinnedLink};
use weir_kernel::{Direction, Filter, KernelError, LoadedProgram, iface};

use super::error::NetworkError;
use super::state::DeviceState;

/// So many new devices of one apply get tcx links.
const FEW: usize = 16;

/// An edge with more devices than this gives none a tcx link: nearly all of its have filters, and its changes are to be quick.
const MANY: usize = 1024;

/// How new devices are attached, when so many are, and there are so many then.
pub(super) fn by_tcx(new: usize, all: usize) -> bool {
    new <= FEW && all <= MANY
}

fn pin_of(folder: &Folder, device: &DeviceState) -> PathBuf {
    folder.path().join(pin_name(device))
}

/// The pin of a device's link.
pub(super) fn pin_name(device: &DeviceState) -> String {
    format!("on-{}-{}", device.role.program(), device.ifindex)
}

/// Attaches; `device` says how, and is corrected where the kernel has no tcx or a qdisc is made.
pub(super) fn put(
    folder: &Folder,
    device: &mut DeviceState,
    program: &LoadedProgram,
) -> Result<(), NetworkError> {
    if device.tcx {
        match program.attach_tcx(device.ifindex, Direction::Ingress) {
            Ok(link) => return Ok(link.pin(&pin_of(folder, device))?),
            Err(KernelError::NoTcx) => device.tcx = false,
            Err(e) => return Err(e.into()),
        }
    }
    let filter = Filter::attach(program, device.ifindex, Direction::Ingress, false)?;
    device.made_qdisc = filter.made_qdisc();
    filter.keep();
    Ok(())
}

/// Puts another program in the place of the one it runs; every packet meets one of them.
pub(super) fn replace(
    folder: &Folder,
    device: &DeviceState,
    program: &LoadedProgram,
) -> Result<(), NetworkError> {
    if device.tcx {
        if let Some(link) = PinnedLink::open(&pin_of(folder, device))? {
            link.update(program)?;
        }
        return Ok(());
    }
    let filter = Filter::existing(device.ifindex, Direction::Ingress, device.made_qdisc);
    let replaced = filter.replace(program);
    filter.keep();
    Ok(replaced?)
}

/// Whether it still runs there.
pub(super) fn is_there(folder: &Folder, device: &DeviceState) -> Result<bool, NetworkError> {
    if device.tcx {
        return Ok(match PinnedLink::open(&pin_of(folder, device))? {
            Some(link) => link.is_attached()?,
            None => false,
        });
    }
    if iface::name_of(device.ifindex).is_none() {
        return Ok(false);
    }
    let filter = Filter::existing(device.ifindex, Direction::Ingress, device.made_qdisc);
    let found = filter.prog_id();
    filter.keep();
    Ok(found?.is_some())
}

/// Takes it off; the device may be gone.
pub(super) fn remove(folder: &Folder, device: &DeviceState) -> Result<(), NetworkError> {
    if let Some(link) = PinnedLink::open(&pin_of(folder, device))? {
        return Ok(link.remove()?);
    }
    if device.tcx || iface::name_of(device.ifindex).is_none() {
        return Ok(());
    }
    let filter = Filter::existing(device.ifindex, Direction::Ingress, device.made_qdisc);
    if filter.prog_id()?.is_some() {
        filter.detach()?;
    } else {
        filter.keep();
    }
    Ok(())
}
