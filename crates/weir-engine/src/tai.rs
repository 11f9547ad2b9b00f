//! How far TAI is ahead of UTC, for programs that test the time: they read TAI, which follows every step of the host's clock, and
//! take off the seconds that stand in their map.
//!
//! The number changes when an NTP daemon sets it, once after boot, and with leap seconds. Whoever loads a program writes it, and
//! whoever stays beside one renews it.

use weir_kernel::{KernelError, LoadedProgram, Map, tai_offset};

/// The map of programs that may test the time.
pub(crate) const TAI: &str = "tai";

/// Writes the present number into the map of a program.
pub(crate) fn write(program: &LoadedProgram) -> Result<(), KernelError> {
    let seconds = tai_offset().to_ne_bytes();
    program.update(TAI, &0u32.to_ne_bytes(), &seconds, 0)
}

/// Writes it into a map that runs. Programs that test no time let go of theirs.
pub(crate) fn renew(id: u32) -> Result<(), KernelError> {
    let map = match Map::by_id(id, TAI) {
        Ok(map) => map,
        Err(KernelError::Sys { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    map.update(&0u32.to_ne_bytes(), &tai_offset().to_ne_bytes())
}
